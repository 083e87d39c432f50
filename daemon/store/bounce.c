/* bounce.c - transfers that direct I/O would refuse, through aligned memory.
 *
 * Whole 4 KiB blocks are read, merged and written, in chunks of at most 1 MiB.  The memory is bounded for the whole
 * engine: who finds none waits in a queue, and one reserved piece lets the first of the queue go on even when
 * the system has no memory left.
 *
 * Invariants
 *   1. A request holds at most one bounce, and gives it back before it is finished.
 *   2. Bytes outside of the range keep their value: the first and the last block are read before they are written
 *      unless the range covers them.  (Nobody else writes to them meanwhile: the callers lock whole blocks.)
 *   3. If anybody waits, somebody holds a bounce (who will wake it).
 * A crash is harmless: a block that is rewritten holds either content in each sector, and the bytes outside of the
 * range are the same in both.
 */
#include "store/store_impl.h"

#include <string.h>
#include <sys/uio.h>

static bool take(struct sr_request *request, size_t bytes)
{
    struct sr_store_engine *engine = request->store->engine;

    request->bounce.buf = sr_buf_alloc(&engine->bounce_budget, bytes);
    if (request->bounce.buf)
        return true;
    if (engine->reserve_used)
        return false;
    engine->reserve_used = true;
    request->bounce.is_reserve = true;
    request->bounce.buf = engine->reserve;
    return true;
}

void sr_bounce_acquire(struct sr_request *request, size_t bytes, sr_request_fn resume)
{
    struct sr_store_engine *engine = request->store->engine;

    SR_ASSERT(bytes > 0 && bytes <= SR_STORE_CHUNK_BYTES);
    SR_ASSERT(!request->bounce.buf);
    request->bounce.need = bytes;
    if (engine->bounce_waiters.head || !take(request, bytes)) {
        request->resume = resume;
        sr_request_list_push(&engine->bounce_waiters, request);
        return;
    }
    resume(request, SR_OK);
}

void sr_bounce_release(struct sr_request *request)
{
    struct sr_store_engine *engine = request->store->engine;
    struct sr_request *waiter;

    SR_ASSERT(request->bounce.buf);
    if (request->bounce.is_reserve)
        engine->reserve_used = false;
    else
        sr_buf_unref(request->bounce.buf);
    request->bounce.buf = NULL;
    request->bounce.is_reserve = false;

    while ((waiter = engine->bounce_waiters.head) && take(waiter, waiter->bounce.need)) {
        sr_request_list_pop(&engine->bounce_waiters);
        waiter->resume(waiter, SR_OK);
    }
}

static void end(struct sr_request *request, enum sr_error error)
{
    sr_bounce_release(request);
    request->bounce.then(request, error);
}

static void next_chunk(struct sr_request *request, enum sr_error error);

/* Bytes of the range that lie in the present chunk. */
static size_t chunk_bytes(const struct sr_request *request)
{
    uint64_t until = request->bounce.last < request->bounce.end ? request->bounce.last : request->bounce.end;

    return (size_t)(until - request->bounce.at);
}

static uint8_t *chunk_place(const struct sr_request *request)
{
    return request->bounce.buf->data + (request->bounce.at - request->bounce.first);
}

static void chunk_ended(struct sr_request *request, enum sr_error error)
{
    size_t bytes = chunk_bytes(request);

    if (error) {
        end(request, error);
        return;
    }
    if (!request->bounce.writing)
        memcpy(request->bounce.memory, chunk_place(request), bytes);
    if (request->bounce.memory)
        request->bounce.memory += bytes;
    request->bounce.at += bytes;
    if (request->bounce.at == request->bounce.end)
        end(request, SR_OK);
    else
        next_chunk(request, SR_OK);
}

/* The edges are there: put the caller's bytes between them, write. */
static void merge(struct sr_request *request, enum sr_error error)
{
    if (error) {
        end(request, error);
        return;
    }
    if (request->bounce.memory)
        memcpy(chunk_place(request), request->bounce.memory, chunk_bytes(request));
    else
        memset(chunk_place(request), 0, chunk_bytes(request));
    sr_request_write(request, request->bounce.buf->data, request->bounce.first,
                     (size_t)(request->bounce.last - request->bounce.first), sr_request_rw_flags(request),
                     chunk_ended);
}

static void read_last_block(struct sr_request *request, enum sr_error error)
{
    uint64_t block = request->bounce.last - SR_BLOCK_BYTES;
    bool first_was_read = request->bounce.at > request->bounce.first;

    if (error || request->bounce.end >= request->bounce.last || (first_was_read && block == request->bounce.first)) {
        merge(request, error);
        return;
    }
    sr_request_read(request, request->bounce.buf->data + (block - request->bounce.first), block, SR_BLOCK_BYTES,
                    merge);
}

static void next_chunk(struct sr_request *request, enum sr_error error)
{
    uint64_t last = sr_block_ceil(request->bounce.end);

    SR_ASSERT(error == SR_OK);
    request->bounce.first = sr_block_floor(request->bounce.at);
    if (last - request->bounce.first > SR_STORE_CHUNK_BYTES)
        last = request->bounce.first + SR_STORE_CHUNK_BYTES;
    request->bounce.last = last;
    SR_ASSERT(last - request->bounce.first <= request->bounce.buf->capacity);

    if (!request->bounce.writing)
        sr_request_read(request, request->bounce.buf->data, request->bounce.first,
                        (size_t)(last - request->bounce.first), chunk_ended);
    else if (request->bounce.at > request->bounce.first)
        sr_request_read(request, request->bounce.buf->data, request->bounce.first, SR_BLOCK_BYTES, read_last_block);
    else
        read_last_block(request, SR_OK);
}

static void start(struct sr_request *request, bool writing, uint8_t *memory, uint64_t offset, uint64_t length,
                  sr_request_fn then)
{
    uint64_t bytes = sr_block_ceil(offset + length) - sr_block_floor(offset);

    SR_ASSERT(length > 0);
    request->bounce.writing = writing;
    request->bounce.memory = memory;
    request->bounce.at = offset;
    request->bounce.end = offset + length;
    request->bounce.then = then;
    sr_bounce_acquire(request, bytes < SR_STORE_CHUNK_BYTES ? (size_t)bytes : SR_STORE_CHUNK_BYTES, next_chunk);
}

void sr_bounce_read(struct sr_request *request, uint8_t *memory, uint64_t offset, uint64_t length, sr_request_fn then)
{
    SR_ASSERT(memory);
    start(request, false, memory, offset, length, then);
}

void sr_bounce_write(struct sr_request *request, const uint8_t *memory, uint64_t offset, uint64_t length,
                     sr_request_fn then)
{
    start(request, true, (uint8_t *)(uintptr_t)memory, offset, length, then);
}
