/* zero.c - ranges that read back as zeroes.
 *
 *   first block, if the range covers it in part  --> written (bounce.c)
 *   last block, likewise                         --> written
 *   what is between                              --> may_trim: punch a hole; refused: zero the range;
 *                                                    refused too: write zeroes, 1 MiB at a time
 *   then fdatasync, unless everything was written with RWF_DSYNC, or it may stay in a cache (`cached`)
 *
 * Block devices take the same calls: discarding one does not promise zeroes, punching a hole does.
 * What a file system refused once (EOPNOTSUPP) is not tried again.
 *
 * Invariant: success means that the last call that changed the range was RWF_DSYNC or was followed by a fdatasync,
 * but for a `cached` one.
 * A crash is harmless: each block holds its old content or zeroes, and nobody was told.
 */
#include "store/store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/uio.h>

static void middle(struct sr_request *request, enum sr_error error);

static void ended(struct sr_request *request)
{
    if (request->store->failed)
        sr_request_finish(request, SR_E_IO);
    else if (request->range.need_sync && !request->io.cached)
        sr_sync_join(request);
    else
        sr_request_finish(request, SR_OK);
}

/* ---- writing zeroes ------------------------------------------------------------------------------------- */

static void write_chunk(struct sr_request *request, enum sr_error error)
{
    uint64_t left;
    size_t bytes;

    if (error) {
        sr_request_finish(request, error);
        return;
    }
    left = request->range.end - request->range.at;
    if (left == 0) {
        ended(request);
        return;
    }
    bytes = left < SR_STORE_CHUNK_BYTES ? (size_t)left : SR_STORE_CHUNK_BYTES;
    request->range.at += bytes;
    sr_request_write(request, request->store->engine->zeroes, request->range.at - bytes, bytes,
                     request->range.need_sync ? 0 : sr_request_rw_flags(request), write_chunk);
}

/* ---- fallocate -------------------------------------------------------------------------------------------- */

static bool refused(int64_t result)
{
    return result == -EOPNOTSUPP || result == -ENOSYS || result == -ENODEV || result == -EINVAL;
}

static void fallocate_done(struct sr_prim *prim, int64_t result)
{
    struct sr_request *request = (struct sr_request *)prim;

    if (result == 0) {
        request->range.need_sync = true;
        ended(request);
    } else if (refused(result)) {
        if (prim->mode & FALLOC_FL_PUNCH_HOLE)
            request->store->no_punch = true;
        else
            request->store->no_zero_range = true;
        middle(request, SR_OK);
    } else {
        sr_request_finish(request, sr_request_error(result));
    }
}

static void middle(struct sr_request *request, enum sr_error error)
{
    struct sr_store *store = request->store;
    struct sr_prim *prim = &request->prim;
    bool punch = request->io.may_trim && !store->no_punch;

    if (error || request->range.at == request->range.end) {
        if (error)
            sr_request_finish(request, error);
        else
            ended(request);
        return;
    }
    if (!punch && store->no_zero_range) {
        request->range.need_sync = request->range.end - request->range.at > SR_STORE_CHUNK_BYTES;
        write_chunk(request, SR_OK);
        return;
    }
    prim->op = SR_PRIM_FALLOCATE;
    prim->fd = store->fd;
    prim->mode = (punch ? FALLOC_FL_PUNCH_HOLE : FALLOC_FL_ZERO_RANGE) | FALLOC_FL_KEEP_SIZE;
    prim->offset = request->range.at;
    prim->length = request->range.end - request->range.at;
    prim->done = fallocate_done;
    sr_engine_submit(store, prim);
}

/* ---- the edges --------------------------------------------------------------------------------------------- */

static void last_edge(struct sr_request *request, enum sr_error error)
{
    uint64_t end = request->range.end;

    if (error || sr_block_aligned(end) || request->range.at == end) {
        middle(request, error);
        return;
    }
    request->range.end = sr_block_floor(end);
    sr_bounce_write(request, NULL, request->range.end, end - request->range.end, middle);
}

void sr_zero_start(struct sr_request *request)
{
    uint64_t at = request->io.offset_bytes;
    uint64_t end = at + request->io.length_bytes;
    uint64_t first_end = sr_block_ceil(at) < end ? sr_block_ceil(at) : end;

    request->range.at = first_end;
    request->range.end = end;
    if (first_end > at)
        sr_bounce_write(request, NULL, at, first_end - at, last_edge);
    else
        last_edge(request, SR_OK);
}
