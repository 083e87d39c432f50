/* uring.c - the io_uring engine: primitives become submission entries, the loop reaps the completions.
 *
 *   submit:  pending  --flush: an entry is filled-->  staged  --the kernel took it-->  in flight  --> completed
 *
 * A flush happens once in each turn of the loop (before it sleeps and after it has polled), or at once when many
 * wait.  The loop watches the ring itself, which is readable while completions wait.
 * `pending` is also the overflow queue: never more is in flight than the completion queue holds.
 *
 * Invariants
 *   1. A primitive is in exactly one of: pending, staged, in flight, the workers' queue.
 *   2. staged lists, in order, exactly the entries of the submission queue that the kernel has not taken.
 *   3. If the ring breaks (submitting fails for good), what the kernel has not taken and everything later goes to
 *      the worker threads, and no call submits on the ring again; what it has taken still completes through it.
 * A crash is harmless: what the kernel has taken may still land (the file's lock is held until then), the rest
 * never happened; none of it was reported.
 */
#include "store/store_impl.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES            128u
#define IN_FLIGHT_MAX      1024u /* entries of the completion queue */
#define FLUSH_AT           32u   /* a batch this large does not wait for the end of the turn */
#define REAP_AT_ONCE       32u
#define FAILED_SUBMITS_MAX 1000u /* with nothing in flight that could help: the ring is taken for broken */

struct sr_uring {
    struct io_uring ring;
    struct sr_store_engine *engine;
    uv_poll_t poll;
    uv_prepare_t prepare;
    uv_check_t check;
    struct sr_prim_list pending, staged;
    uint32_t in_flight;
    uint32_t failed_submits;
    bool broken;
};

static void fill(struct io_uring_sqe *sqe, struct sr_prim *prim)
{
    switch (prim->op) {
    case SR_PRIM_READ:
        io_uring_prep_read(sqe, prim->fd, prim->data, (unsigned)prim->length, prim->offset);
        break;
    case SR_PRIM_WRITE:
        io_uring_prep_write(sqe, prim->fd, prim->data, (unsigned)prim->length, prim->offset);
        sqe->rw_flags = prim->rw_flags;
        break;
    case SR_PRIM_FALLOCATE:
        io_uring_prep_fallocate(sqe, prim->fd, prim->mode, (off_t)prim->offset, (off_t)prim->length);
        break;
    case SR_PRIM_SYNC:
        io_uring_prep_fsync(sqe, prim->fd, IORING_FSYNC_DATASYNC);
        break;
    case SR_PRIM_WORK:
        SR_UNREACHABLE();
    }
    io_uring_sqe_set_data(sqe, prim);
}

static void move_to_workers(struct sr_uring *uring, struct sr_prim_list *list)
{
    struct sr_prim *prim;

    while ((prim = sr_prim_list_pop(list)))
        sr_workers_push(&uring->engine->workers, prim);
}

static void stage(struct sr_uring *uring)
{
    while (uring->pending.head && uring->in_flight + uring->staged.n < IN_FLIGHT_MAX) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);

        if (!sqe)
            return;
        fill(sqe, uring->pending.head);
        sr_prim_list_push(&uring->staged, sr_prim_list_pop(&uring->pending));
    }
}

/* What to do about a submit that took nothing.  True: try again now. */
static bool submit_failed(struct sr_uring *uring, int error)
{
    if (error == -EINTR)
        return true;
    if (error == 0 || error == -EAGAIN || error == -EBUSY || error == -ENOMEM) {
        if (uring->in_flight > 0)
            return false; /* the next completion tries again */
        if (++uring->failed_submits < FAILED_SUBMITS_MAX) {
            uv_async_send(&uring->engine->wake); /* the next turn tries again */
            return false;
        }
    }
    uring->broken = true;
    return true;
}

static void flush(struct sr_uring *uring)
{
    while (uring->pending.head || uring->staged.head) {
        int taken;

        if (uring->broken) {
            move_to_workers(uring, &uring->staged);
            move_to_workers(uring, &uring->pending);
            return;
        }
        stage(uring);
        if (!uring->staged.head)
            return; /* the completion queue is full: the next completion goes on */
        taken = io_uring_submit(&uring->ring);
        if (taken <= 0) {
            if (!submit_failed(uring, taken))
                return;
            continue;
        }
        uring->failed_submits = 0;
        uring->in_flight += (uint32_t)taken;
        while (taken-- > 0)
            SR_ASSERT(sr_prim_list_pop(&uring->staged));
    }
}

static void complete(struct sr_uring *uring, struct sr_prim *prim, int result)
{
    uring->in_flight--;
    /* These say "not now, not here", which is no answer of the disk: a thread can wait for it. */
    if (result == -EAGAIN || result == -EINTR || result == -ECANCELED || result == -ENOMEM) {
        sr_workers_push(&uring->engine->workers, prim);
        return;
    }
    sr_engine_complete(uring->engine, prim, result);
}

static void reap(struct sr_uring *uring)
{
    struct io_uring_cqe *cqes[REAP_AT_ONCE];
    struct sr_prim *prims[REAP_AT_ONCE];
    int results[REAP_AT_ONCE];
    unsigned n;

    while ((n = io_uring_peek_batch_cqe(&uring->ring, cqes, REAP_AT_ONCE)) > 0) {
        /* Copied first: a completion may submit, and the kernel reuse the entries. */
        for (unsigned i = 0; i < n; i++) {
            prims[i] = io_uring_cqe_get_data(cqes[i]);
            results[i] = cqes[i]->res;
        }
        io_uring_cq_advance(&uring->ring, n);
        for (unsigned i = 0; i < n; i++)
            complete(uring, prims[i], results[i]);
    }
    flush(uring);
}

static void completions_came(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    reap(poll->data);
}

static void prepare_came(uv_prepare_t *prepare)
{
    flush(prepare->data);
}

static void check_came(uv_check_t *check)
{
    flush(check->data);
}

static void uring_submit(struct sr_store_engine *engine, struct sr_prim *prim)
{
    struct sr_uring *uring = engine->uring;

    sr_prim_list_push(&uring->pending, prim);
    if (uring->pending.n >= FLUSH_AT)
        flush(uring);
}

/* ---- start and stop --------------------------------------------------------------------------------------- */

static bool operations_exist(struct io_uring *ring)
{
    static const int needed[] = {IORING_OP_READ, IORING_OP_WRITE, IORING_OP_FSYNC, IORING_OP_FALLOCATE};
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool all = probe != NULL;

    for (unsigned i = 0; all && i < sizeof(needed) / sizeof(needed[0]); i++)
        all = io_uring_opcode_supported(probe, needed[i]);
    if (probe)
        io_uring_free_probe(probe);
    return all;
}

static int ring_setup(struct io_uring *ring)
{
    struct io_uring_params params;
    int failed;

    memset(&params, 0, sizeof(params));
    params.cq_entries = IN_FLIGHT_MAX;
    params.flags = IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER;
    failed = io_uring_queue_init_params(ENTRIES, ring, &params);
    if (failed == -EINVAL) { /* a kernel before 6.0 */
        memset(&params, 0, sizeof(params));
        params.cq_entries = IN_FLIGHT_MAX;
        params.flags = IORING_SETUP_CQSIZE;
        failed = io_uring_queue_init_params(ENTRIES, ring, &params);
    }
    return failed;
}

static void start_handles(struct sr_uring *uring, uv_loop_t *loop)
{
    uv_prepare_init(loop, &uring->prepare);
    uv_check_init(loop, &uring->check);
    uring->poll.data = uring->prepare.data = uring->check.data = uring;
    uv_poll_start(&uring->poll, UV_READABLE, completions_came);
    uv_prepare_start(&uring->prepare, prepare_came);
    uv_check_start(&uring->check, check_came);
    /* The engine's wake handle holds the loop while there is work. */
    uv_unref((uv_handle_t *)&uring->poll);
    uv_unref((uv_handle_t *)&uring->prepare);
    uv_unref((uv_handle_t *)&uring->check);
}

static enum sr_error uring_start(struct sr_store_engine *engine, char *why, size_t why_bytes)
{
    struct sr_uring *uring = calloc(1, sizeof(*uring));
    int failed;

    snprintf(why, why_bytes, "out of memory for io_uring");
    if (!uring)
        return SR_E_NO_MEMORY;
    uring->engine = engine;
    failed = ring_setup(&uring->ring);
    if (failed) {
        snprintf(why, why_bytes, "io_uring cannot be set up: %s", strerror(-failed));
        goto fail_memory;
    }
    if (!operations_exist(&uring->ring)) {
        snprintf(why, why_bytes, "this kernel's io_uring lacks operations");
        goto fail_ring;
    }
    failed = uv_poll_init(engine->loop, &uring->poll, uring->ring.ring_fd);
    if (failed) {
        snprintf(why, why_bytes, "io_uring cannot be watched: %s", uv_strerror(failed));
        goto fail_ring;
    }
    start_handles(uring, engine->loop);
    engine->uring = uring;
    return SR_OK;

fail_ring:
    io_uring_queue_exit(&uring->ring);
fail_memory:
    free(uring);
    return SR_E_UNSUPPORTED;
}

static void check_closed(uv_handle_t *handle)
{
    struct sr_uring *uring = handle->data;
    struct sr_store_engine *engine = uring->engine;

    free(uring);
    sr_engine_handle_closed(engine);
}

static void prepare_closed(uv_handle_t *handle)
{
    struct sr_uring *uring = handle->data;

    uv_close((uv_handle_t *)&uring->check, check_closed);
}

static void poll_closed(uv_handle_t *handle)
{
    struct sr_uring *uring = handle->data;

    io_uring_queue_exit(&uring->ring);
    uv_close((uv_handle_t *)&uring->prepare, prepare_closed);
}

static void uring_stop(struct sr_store_engine *engine)
{
    struct sr_uring *uring = engine->uring;

    SR_ASSERT(!uring->pending.head && !uring->staged.head && uring->in_flight == 0);
    engine->handles_open++;
    uv_close((uv_handle_t *)&uring->poll, poll_closed);
}

const struct sr_engine_ops sr_engine_uring_ops = {
    .name = "io_uring",
    .start = uring_start,
    .submit = uring_submit,
    .stop = uring_stop,
};
