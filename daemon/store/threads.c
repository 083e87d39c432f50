/* threads.c - the portable engine: every primitive is a blocking system call on a worker thread.
 *
 * For kernels and containers that forbid io_uring.  A WRITE is pwritev2 with RWF_DSYNC, so it has returned only
 * when the data is stable; nothing is reported before that.
 */
#include "store/store_impl.h"

static enum sr_error threads_start(struct sr_store_engine *engine, char *why, size_t why_bytes)
{
    (void)engine;
    (void)why;
    (void)why_bytes;
    return SR_OK;
}

static void threads_submit(struct sr_store_engine *engine, struct sr_prim *prim)
{
    sr_workers_push(&engine->workers, prim);
}

static void threads_stop(struct sr_store_engine *engine)
{
    (void)engine;
}

const struct sr_engine_ops sr_engine_threads_ops = {
    .name = "threads",
    .start = threads_start,
    .submit = threads_submit,
    .stop = threads_stop,
};
