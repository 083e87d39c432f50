/* engine.c - a store engine: one of two tables of operations, and what they share.
 *
 * Invariants
 *   1. A primitive handed to sr_engine_submit is completed exactly once, on the loop, never from inside submit.
 *   2. While a request is outstanding the wake handle holds the loop alive; else nothing of ours does.
 *   3. An injected delay holds back the completion, not the I/O: what the disk has done is done.
 * A crash is harmless: an engine holds no state beyond operations that were not yet reported.
 */
#include "store/store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "store/fault.h"

struct delayed {
    uv_timer_t timer;
    struct sr_prim *prim;
};

static void delayed_closed(uv_handle_t *handle)
{
    struct delayed *delayed = (struct delayed *)handle;
    struct sr_prim *prim = delayed->prim;

    free(delayed);
    prim->done(prim, prim->result);
}

static void delayed_due(uv_timer_t *timer)
{
    uv_close((uv_handle_t *)timer, delayed_closed);
}

void sr_engine_complete(struct sr_store_engine *engine, struct sr_prim *prim, int64_t result)
{
    struct delayed *delayed;

    prim->result = result;
    if (prim->delay_ms == 0) {
        prim->done(prim, result);
        return;
    }
    delayed = malloc(sizeof(*delayed));
    SR_ASSERT(delayed); /* only with injected faults */
    delayed->prim = prim;
    uv_timer_init(engine->loop, &delayed->timer);
    uv_update_time(engine->loop); /* the cached time may be old, which would make the delay too short */
    uv_timer_start(&delayed->timer, delayed_due, prim->delay_ms, 0);
    prim->delay_ms = 0;
}

void sr_engine_complete_soon(struct sr_store_engine *engine, struct sr_prim *prim, int64_t result)
{
    prim->result = result;
    sr_prim_list_push(&engine->soon, prim);
    uv_async_send(&engine->wake);
}

static enum sr_fault_op fault_op(const struct sr_prim *prim)
{
    switch (prim->op) {
    case SR_PRIM_READ:
        return SR_FAULT_READ;
    case SR_PRIM_WRITE:
        return prim->zeroing ? SR_FAULT_ZERO : SR_FAULT_WRITE;
    case SR_PRIM_FALLOCATE:
        return SR_FAULT_ZERO;
    case SR_PRIM_SYNC:
        return SR_FAULT_FLUSH;
    case SR_PRIM_WORK:
        break;
    }
    SR_UNREACHABLE();
}

void sr_engine_submit(struct sr_store *store, struct sr_prim *prim)
{
    struct sr_store_engine *engine = store->engine;
    struct sr_fault_hit hit;

    prim->delay_ms = 0;
    if (prim->op == SR_PRIM_WORK) {
        sr_workers_push(&engine->workers, prim);
        return;
    }
    if (sr_fault_check(store->path, fault_op(prim), prim->offset, prim->length, &hit)) {
        prim->delay_ms = hit.delay_ms;
        if (hit.result <= 0) {
            sr_engine_complete_soon(engine, prim, hit.result);
            return;
        }
        if (hit.cut_short && prim->length >= 2 * SR_BLOCK_BYTES)
            prim->length = sr_block_floor(prim->length / 2);
    }
    engine->ops->submit(engine, prim);
}

static void deliver(struct sr_store_engine *engine, struct sr_prim_list list)
{
    struct sr_prim *prim;

    while ((prim = sr_prim_list_pop(&list)))
        sr_engine_complete(engine, prim, prim->result);
}

static void woken(uv_async_t *wake)
{
    struct sr_store_engine *engine = wake->data;
    struct sr_prim_list soon = engine->soon;

    memset(&engine->soon, 0, sizeof(engine->soon));
    deliver(engine, soon);
    if (engine->closing)
        return; /* by the last completion */
    deliver(engine, sr_workers_drain(&engine->workers));
}

static enum sr_error pick(struct sr_store_engine *engine, enum sr_store_engine_kind kind, char *why, size_t why_bytes)
{
    char reason[160] = "";
    enum sr_error error;

    if (kind != SR_ENGINE_THREADS) {
        engine->ops = &sr_engine_uring_ops;
        error = engine->ops->start(engine, reason, sizeof(reason));
        if (!error || kind == SR_ENGINE_URING) {
            snprintf(why, why_bytes, "%s", error ? reason : "io_uring: the kernel offers it");
            return error;
        }
    }
    engine->ops = &sr_engine_threads_ops;
    error = engine->ops->start(engine, why, why_bytes);
    if (!error)
        snprintf(why, why_bytes, "threads: %s", kind == SR_ENGINE_AUTO ? reason : "as configured");
    return error;
}

enum sr_error sr_store_engine_new(uv_loop_t *loop, enum sr_store_engine_kind kind,
                                  struct sr_store_engine **engine_out, char *why, size_t why_bytes)
{
    struct sr_store_engine *engine = calloc(1, sizeof(*engine));
    enum sr_error error = SR_E_NO_MEMORY;
    char unused[8];

    if (!why || why_bytes == 0) {
        why = unused;
        why_bytes = sizeof(unused);
    }
    snprintf(why, why_bytes, "out of memory");
    if (!engine)
        return SR_E_NO_MEMORY;
    sr_fault_init();
    engine->loop = loop;
    engine->bounce_budget.limit_bytes = SR_STORE_BOUNCE_BYTES;
    engine->reserve = sr_buf_alloc(NULL, SR_STORE_CHUNK_BYTES);
    if (!engine->reserve)
        goto fail_engine;
    /* Only ever read: every page of it is the kernel's one page of zeroes and costs nothing. */
    engine->zeroes = mmap(NULL, SR_STORE_CHUNK_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (engine->zeroes == MAP_FAILED)
        goto fail_reserve;
    if (uv_async_init(loop, &engine->wake, woken))
        goto fail_zeroes;
    engine->wake.data = engine;
    uv_unref((uv_handle_t *)&engine->wake);
    sr_workers_init(&engine->workers, SR_STORE_WORKERS, &engine->wake);
    error = pick(engine, kind, why, why_bytes);
    if (error) {
        /* The handle is closed by the loop, later; the rest goes with it. */
        engine->ops = NULL;
        sr_store_engine_close(engine, NULL, NULL);
        return error;
    }
    *engine_out = engine;
    return SR_OK;

fail_zeroes:
    munmap(engine->zeroes, SR_STORE_CHUNK_BYTES);
fail_reserve:
    sr_buf_unref(engine->reserve);
fail_engine:
    free(engine);
    return error;
}

const char *sr_store_engine_name(const struct sr_store_engine *engine)
{
    return engine->ops->name;
}

void sr_engine_handle_closed(struct sr_store_engine *engine)
{
    void (*closed_cb)(void *arg) = engine->closed_cb;
    void *closed_arg = engine->closed_arg;

    SR_ASSERT(engine->handles_open > 0);
    if (--engine->handles_open > 0)
        return;
    while (engine->spare) {
        struct sr_request *request = engine->spare;

        engine->spare = request->next;
        free(request);
    }
    munmap(engine->zeroes, SR_STORE_CHUNK_BYTES);
    sr_buf_unref(engine->reserve);
    free(engine);
    if (closed_cb)
        closed_cb(closed_arg);
}

static void wake_closed(uv_handle_t *handle)
{
    sr_engine_handle_closed(handle->data);
}

void sr_store_engine_close(struct sr_store_engine *engine, void (*closed_cb)(void *arg), void *arg)
{
    SR_ASSERT(engine->stores == 0);
    SR_ASSERT(engine->outstanding == 0);
    SR_ASSERT(!engine->soon.head);
    engine->closing = true;
    engine->closed_cb = closed_cb;
    engine->closed_arg = arg;
    sr_workers_stop(&engine->workers);
    engine->handles_open++;
    uv_close((uv_handle_t *)&engine->wake, wake_closed);
    if (engine->ops)
        engine->ops->stop(engine);
}
