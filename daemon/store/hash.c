/* hash.c - digests of the blocks of a range: read a chunk into bounce memory, digest it on a worker, go on.
 *
 * The digests go straight into the caller's buffer.  10 us a block would hold the loop up, so a thread does it in
 * both engines.  A crash is harmless: nothing is written.
 */
#include "store/store_impl.h"

#include "base/digest.h"

_Static_assert(SR_DIGEST_BYTES == SR_DIGEST_OUT_BYTES, "the digest of the wire is the digest of base/");
_Static_assert(SR_BLOCK_BYTES == SR_DIGEST_BLOCK_BYTES, "one digest a block");

static void read_chunk(struct sr_request *request, enum sr_error error);

static size_t chunk_bytes(const struct sr_request *request)
{
    uint64_t left = request->range.end - request->range.at;

    return left < SR_STORE_CHUNK_BYTES ? (size_t)left : SR_STORE_CHUNK_BYTES;
}

static int64_t digest_work(struct sr_prim *prim)
{
    struct sr_request *request = (struct sr_request *)prim;
    uint64_t done_blocks = (request->range.at - request->io.offset_bytes) / SR_BLOCK_BYTES;

    sr_digest_blocks(request->bounce.buf->data, chunk_bytes(request) / SR_BLOCK_BYTES,
                     request->io.buf->data + request->io.buf_offset + done_blocks * SR_DIGEST_BYTES);
    return 0;
}

static void digest_done(struct sr_prim *prim, int64_t result)
{
    struct sr_request *request = (struct sr_request *)prim;

    (void)result;
    request->range.at += chunk_bytes(request);
    if (request->range.at < request->range.end) {
        read_chunk(request, SR_OK);
        return;
    }
    sr_bounce_release(request);
    sr_request_finish(request, SR_OK);
}

static void chunk_read(struct sr_request *request, enum sr_error error)
{
    if (error) {
        sr_bounce_release(request);
        sr_request_finish(request, error);
        return;
    }
    request->prim.op = SR_PRIM_WORK;
    request->prim.work = digest_work;
    request->prim.done = digest_done;
    sr_engine_submit(request->store, &request->prim);
}

static void read_chunk(struct sr_request *request, enum sr_error error)
{
    SR_ASSERT(error == SR_OK);
    sr_request_read(request, request->bounce.buf->data, request->range.at, chunk_bytes(request), chunk_read);
}

void sr_hash_start(struct sr_request *request)
{
    request->range.at = request->io.offset_bytes;
    request->range.end = request->io.offset_bytes + request->io.length_bytes;
    sr_bounce_acquire(request, chunk_bytes(request), read_chunk);
}
