/* workers.c - a small pool of threads that carries primitives out.
 *
 * Not libuv's own pool: that has four threads and serves name lookups too.  Threads start when work waits and
 * none is idle, so an idle daemon has none.
 *
 * Invariants
 *   1. A pushed primitive comes out of drain exactly once, even if no thread can be started.
 *   2. A thread touches a primitive only between taking it off the queue and putting it on `ended`.
 *   3. Threads block all signals: those are for the loop thread.
 * A crash is harmless: nothing here outlives the process; a primitive that was not reported is not durable.
 */
#include "store/workers.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"

#define STACK_BYTES (512 * 1024) /* digests and system calls need little; sanitizers want some */

void sr_prim_list_push(struct sr_prim_list *list, struct sr_prim *prim)
{
    prim->next = NULL;
    if (list->tail)
        list->tail->next = prim;
    else
        list->head = prim;
    list->tail = prim;
    list->n++;
}

struct sr_prim *sr_prim_list_pop(struct sr_prim_list *list)
{
    struct sr_prim *prim = list->head;

    if (!prim)
        return NULL;
    list->head = prim->next;
    if (!list->head)
        list->tail = NULL;
    list->n--;
    prim->next = NULL;
    return prim;
}

static int64_t execute_once(struct sr_prim *prim)
{
    struct iovec iov = {.iov_base = prim->data, .iov_len = (size_t)prim->length};

    switch (prim->op) {
    case SR_PRIM_READ:
        return pread(prim->fd, prim->data, (size_t)prim->length, (off_t)prim->offset);
    case SR_PRIM_WRITE:
        return pwritev2(prim->fd, &iov, 1, (off_t)prim->offset, prim->rw_flags);
    case SR_PRIM_FALLOCATE:
        return fallocate(prim->fd, prim->mode, (off_t)prim->offset, (off_t)prim->length);
    case SR_PRIM_SYNC:
        return fdatasync(prim->fd);
    case SR_PRIM_WORK:
        break;
    }
    SR_UNREACHABLE();
}

int64_t sr_prim_execute(struct sr_prim *prim)
{
    if (prim->op == SR_PRIM_WORK)
        return prim->work(prim);
    for (;;) {
        int64_t result = execute_once(prim);

        if (result >= 0)
            return result;
        /* An interrupted fdatasync is an answer, not a failure of the disk; nothing was given up by it. */
        if (errno != EINTR)
            return -errno;
    }
}

static void *worker_main(void *arg)
{
    struct sr_workers *workers = arg;

    pthread_mutex_lock(&workers->mutex);
    for (;;) {
        struct sr_prim *prim;

        while (!workers->queue.head && !workers->stopping) {
            workers->idle++;
            pthread_cond_wait(&workers->work_came, &workers->mutex);
            workers->idle--;
        }
        prim = sr_prim_list_pop(&workers->queue);
        if (!prim)
            break;
        pthread_mutex_unlock(&workers->mutex);
        prim->result = sr_prim_execute(prim);
        pthread_mutex_lock(&workers->mutex);
        sr_prim_list_push(&workers->ended, prim);
        uv_async_send(workers->wake); /* under the mutex: `wake` outlives whoever holds it */
    }
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

void sr_workers_init(struct sr_workers *workers, uint32_t max, uv_async_t *wake)
{
    SR_ASSERT(max > 0 && max <= SR_WORKERS_MAX);
    memset(workers, 0, sizeof(*workers));
    SR_ASSERT(pthread_mutex_init(&workers->mutex, NULL) == 0);
    SR_ASSERT(pthread_cond_init(&workers->work_came, NULL) == 0);
    workers->max = max;
    workers->wake = wake;
}

static bool start_thread(struct sr_workers *workers)
{
    pthread_attr_t attr;
    sigset_t all, before;
    int failed;

    if (workers->n == workers->max)
        return false;
    SR_ASSERT(pthread_attr_init(&attr) == 0);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&workers->threads[workers->n], &attr, worker_main, workers);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (failed)
        return false;
    pthread_setname_np(workers->threads[workers->n], "sr-store");
    workers->n++;
    return true;
}

void sr_workers_push(struct sr_workers *workers, struct sr_prim *prim)
{
    bool short_of_threads;

    pthread_mutex_lock(&workers->mutex);
    sr_prim_list_push(&workers->queue, prim);
    short_of_threads = workers->queue.n > workers->idle;
    pthread_cond_signal(&workers->work_came);
    pthread_mutex_unlock(&workers->mutex);

    if (!short_of_threads || start_thread(workers) || workers->n > 0)
        return;
    /* Not one thread: slow is better than stuck. */
    pthread_mutex_lock(&workers->mutex);
    prim = sr_prim_list_pop(&workers->queue);
    pthread_mutex_unlock(&workers->mutex);
    prim->result = sr_prim_execute(prim);
    pthread_mutex_lock(&workers->mutex);
    sr_prim_list_push(&workers->ended, prim);
    pthread_mutex_unlock(&workers->mutex);
    uv_async_send(workers->wake);
}

struct sr_prim_list sr_workers_drain(struct sr_workers *workers)
{
    struct sr_prim_list ended;

    pthread_mutex_lock(&workers->mutex);
    ended = workers->ended;
    memset(&workers->ended, 0, sizeof(workers->ended));
    pthread_mutex_unlock(&workers->mutex);
    return ended;
}

void sr_workers_stop(struct sr_workers *workers)
{
    pthread_mutex_lock(&workers->mutex);
    SR_ASSERT(!workers->queue.head && !workers->ended.head);
    workers->stopping = true;
    pthread_cond_broadcast(&workers->work_came);
    pthread_mutex_unlock(&workers->mutex);
    for (uint32_t i = 0; i < workers->n; i++)
        pthread_join(workers->threads[i], NULL);
    workers->n = 0;
    pthread_cond_destroy(&workers->work_came);
    pthread_mutex_destroy(&workers->mutex);
}
