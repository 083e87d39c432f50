/* job.c - creations and deletions of images on a thread of their own, reported on the loop.
 *
 * Invariants
 *   1. done is called once, on the loop, after the thread has ended.
 *   2. The thread writes result and text before `ended`; the loop reads them after it.
 * A crash is harmless: see image.c.
 */
#include "store/pool_impl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/names.h"
#include "base/units.h"

#define PROGRESS_EVERY_BYTES (16 * SR_MIB)

struct sr_pool_job {
    uv_async_t wake;
    pthread_t thread;
    struct sr_pool *pool;
    char volume_name[SR_NAME_BYTES];
    struct sr_pool_image image; /* creations */
    bool deleting;
    sr_pool_on_progress_fn on_progress;
    sr_pool_done_fn done;
    void *arg;
    atomic_bool cancelled, ended;
    atomic_uint_fast64_t done_bytes;
    enum sr_error result;
    char text[512];
};

static bool progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct sr_pool_job *job = arg;

    atomic_store(&job->done_bytes, done_bytes);
    if (job->on_progress && (done_bytes % PROGRESS_EVERY_BYTES == 0 || done_bytes == total_bytes))
        uv_async_send(&job->wake);
    return !atomic_load(&job->cancelled);
}

static void *job_main(void *arg)
{
    struct sr_pool_job *job = arg;

    if (job->deleting)
        job->result =
            sr_pool_image_delete(job->pool, job->volume_name, &job->image.volume, job->text, sizeof(job->text));
    else
        job->result = sr_pool_image_create(job->pool, &job->image, progress, job, job->text, sizeof(job->text));
    atomic_store(&job->ended, true);
    uv_async_send(&job->wake);
    return NULL;
}

static void closed(uv_handle_t *handle)
{
    struct sr_pool_job *job = handle->data;

    job->done(job->arg, job->result, job->text);
    free(job);
}

static void woken(uv_async_t *wake)
{
    struct sr_pool_job *job = wake->data;

    if (atomic_load(&job->ended)) {
        pthread_join(job->thread, NULL);
        uv_close((uv_handle_t *)wake, closed);
    } else if (job->on_progress) {
        job->on_progress(job->arg, atomic_load(&job->done_bytes), job->image.size_bytes);
    }
}

static void closed_unstarted(uv_handle_t *handle)
{
    free(handle->data);
}

static enum sr_error start(struct sr_pool_job *job, uv_loop_t *loop, struct sr_pool_job **job_out)
{
    if (uv_async_init(loop, &job->wake, woken)) {
        free(job);
        return SR_E_NO_MEMORY;
    }
    job->wake.data = job;
    if (pthread_create(&job->thread, NULL, job_main, job)) {
        uv_close((uv_handle_t *)&job->wake, closed_unstarted);
        return SR_E_NO_MEMORY;
    }
    if (job_out)
        *job_out = job;
    return SR_OK;
}

static struct sr_pool_job *job_new(struct sr_pool *pool, const char *volume_name, sr_pool_done_fn done, void *arg)
{
    struct sr_pool_job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->pool = pool;
    strncpy(job->volume_name, volume_name, sizeof(job->volume_name) - 1);
    job->done = done;
    job->arg = arg;
    return job;
}

enum sr_error sr_pool_create_start(struct sr_pool *pool, uv_loop_t *loop, const struct sr_pool_image *image,
                                   sr_pool_on_progress_fn on_progress, sr_pool_done_fn done, void *arg,
                                   struct sr_pool_job **job_out)
{
    struct sr_pool_job *job;

    if (!sr_name_valid(image->volume_name, NULL))
        return SR_E_INVALID;
    job = job_new(pool, image->volume_name, done, arg);
    if (!job)
        return SR_E_NO_MEMORY;
    job->image = *image;
    job->image.volume_name = job->volume_name;
    job->on_progress = on_progress;
    return start(job, loop, job_out);
}

enum sr_error sr_pool_delete_start(struct sr_pool *pool, uv_loop_t *loop, const char *volume_name,
                                   const struct sr_uuid *volume, sr_pool_done_fn done, void *arg,
                                   struct sr_pool_job **job_out)
{
    struct sr_pool_job *job;

    if (!sr_name_valid(volume_name, NULL))
        return SR_E_INVALID;
    job = job_new(pool, volume_name, done, arg);
    if (!job)
        return SR_E_NO_MEMORY;
    job->deleting = true;
    job->image.volume = *volume;
    return start(job, loop, job_out);
}

void sr_pool_job_cancel(struct sr_pool_job *job)
{
    atomic_store(&job->cancelled, true);
}
