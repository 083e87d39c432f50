/* request.c - one operation from submit to completion; reads and writes of whole blocks.
 *
 * Invariants
 *   1. `done` of a request is called exactly once, and never from inside sr_store_submit.
 *   2. Success of a WRITE means that every byte of it was written with RWF_DSYNC, by calls that returned; of a
 *      `cached` one, that it was written: a FLUSH makes it stable.
 *   3. On the direct path the memory, the offset and the length are multiples of a block; anything else goes
 *      through bounce.c.  Newer kernels would let less pass, older ones would not: so it is asserted.
 *   4. After a WRITE, ZERO or FLUSH that failed with SR_E_IO the store is failed, and no later one succeeds.
 * A crash is harmless: what was not reported may be there or not, wholly or in part, and nobody was told.
 */
#include "store/store_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

void sr_request_list_push(struct sr_request_list *list, struct sr_request *request)
{
    request->next = NULL;
    if (list->tail)
        list->tail->next = request;
    else
        list->head = request;
    list->tail = request;
}

struct sr_request *sr_request_list_pop(struct sr_request_list *list)
{
    struct sr_request *request = list->head;

    if (!request)
        return NULL;
    list->head = request->next;
    if (!list->head)
        list->tail = NULL;
    request->next = NULL;
    return request;
}

enum sr_error sr_request_error(int64_t result)
{
    SR_ASSERT(result < 0);
    return result == -ENOSPC || result == -EDQUOT ? SR_E_NO_SPACE : SR_E_IO;
}

/* ---- transfers ---------------------------------------------------------------------------------------- */

static void transfer_next(struct sr_request *request);

static bool is_cut_off(const struct sr_store *store)
{
    struct stat st;

    return fstat(store->fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size < store->size_bytes;
}

static void transfer_done(struct sr_prim *prim, int64_t result)
{
    struct sr_request *request = (struct sr_request *)prim;
    size_t before = request->transfer.done;

    if (result < 0) {
        request->transfer.then(request, sr_request_error(result));
        return;
    }
    SR_ASSERT((size_t)result <= request->transfer.length - before);
    request->transfer.done += (size_t)result;
    if (request->transfer.done < request->transfer.length) {
        /* A short one: go on with the rest, from a whole block where direct I/O wants that. */
        if (request->store->direct)
            request->transfer.done = sr_block_floor(request->transfer.done);
        if (request->transfer.done <= before) {
            /* The copy ends before its size: somebody cut it off.  Whatever is written behind would leave zeroes
             * between that nobody wrote, so no repair of single blocks is of use: the whole copy is bad. */
            if (prim->op == SR_PRIM_READ && is_cut_off(request->store))
                request->store->failed = true;
            request->transfer.then(request, SR_E_IO);
        } else {
            transfer_next(request);
        }
        return;
    }
    request->transfer.then(request, SR_OK);
}

static void transfer_next(struct sr_request *request)
{
    struct sr_prim *prim = &request->prim;

    prim->fd = request->store->fd;
    prim->data = request->transfer.data + request->transfer.done;
    prim->offset = request->transfer.offset + request->transfer.done;
    prim->length = request->transfer.length - request->transfer.done;
    if (prim->length > SR_STORE_CALL_BYTES)
        prim->length = SR_STORE_CALL_BYTES;
    prim->rw_flags = request->transfer.rw_flags;
    prim->zeroing = request->io.op == SR_DISK_ZERO;
    prim->done = transfer_done;
    if (request->store->direct)
        SR_ASSERT(sr_block_aligned((uintptr_t)prim->data) && sr_block_aligned(prim->offset) &&
                  sr_block_aligned(prim->length));
    sr_engine_submit(request->store, prim);
}

static void transfer_start(struct sr_request *request, enum sr_prim_op op, uint8_t *data, uint64_t offset,
                           size_t length, int rw_flags, sr_request_fn then)
{
    SR_ASSERT(length > 0);
    request->prim.op = op;
    request->transfer.data = data;
    request->transfer.offset = offset;
    request->transfer.length = length;
    request->transfer.done = 0;
    request->transfer.rw_flags = rw_flags;
    request->transfer.then = then;
    transfer_next(request);
}

void sr_request_read(struct sr_request *request, uint8_t *data, uint64_t offset, size_t length, sr_request_fn then)
{
    transfer_start(request, SR_PRIM_READ, data, offset, length, 0, then);
}

void sr_request_write(struct sr_request *request, const uint8_t *data, uint64_t offset, size_t length, int rw_flags,
                      sr_request_fn then)
{
    transfer_start(request, SR_PRIM_WRITE, (uint8_t *)(uintptr_t)data, offset, length, rw_flags, then);
}

/* ---- life of a request --------------------------------------------------------------------------------- */

static bool changes_data(enum sr_disk_op op)
{
    return op == SR_DISK_WRITE || op == SR_DISK_ZERO || op == SR_DISK_FLUSH;
}

static struct sr_request *request_new(struct sr_store_engine *engine)
{
    struct sr_request *request = engine->spare;

    if (request) {
        engine->spare = request->next;
        engine->spares--;
        memset(request, 0, sizeof(*request));
    } else {
        request = calloc(1, sizeof(*request));
        SR_ASSERT(request); /* the callers bound how many there are; without this much memory nothing works */
    }
    if (engine->outstanding++ == 0)
        uv_ref((uv_handle_t *)&engine->wake);
    return request;
}

void sr_request_finish(struct sr_request *request, enum sr_error error)
{
    struct sr_store *store = request->store;
    struct sr_store_engine *engine = store->engine;
    sr_store_done_fn done = request->done;
    void *arg = request->arg;
    uint64_t io = request->io.io;
    bool all_zero = request->all_zero;

    SR_ASSERT(!request->bounce.buf);
    if (error == SR_E_IO && changes_data(request->io.op))
        store->failed = true;
    if (engine->spares < SR_STORE_REQUESTS_SPARE) {
        request->next = engine->spare;
        engine->spare = request;
        engine->spares++;
    } else {
        free(request);
    }
    store->in_flight--;
    if (--engine->outstanding == 0)
        uv_unref((uv_handle_t *)&engine->wake);
    done(arg, io, error, all_zero); /* may submit, and may close the store */
}

/* ---- reads and writes ------------------------------------------------------------------------------------ */

static bool needs_bounce(const struct sr_request *request)
{
    const struct sr_disk_io *io = &request->io;

    return request->store->direct && !(sr_block_aligned(io->offset_bytes) && sr_block_aligned(io->length_bytes) &&
                                       sr_block_aligned((uintptr_t)(io->buf->data + io->buf_offset)));
}

static void start_read(struct sr_request *request)
{
    uint8_t *memory = request->io.buf->data + request->io.buf_offset;

    if (needs_bounce(request))
        sr_bounce_read(request, memory, request->io.offset_bytes, request->io.length_bytes, sr_request_finish);
    else
        sr_request_read(request, memory, request->io.offset_bytes, request->io.length_bytes, sr_request_finish);
}

int sr_request_rw_flags(const struct sr_request *request)
{
    return request->io.cached ? 0 : RWF_DSYNC;
}

static void start_write(struct sr_request *request)
{
    const uint8_t *memory = request->io.buf->data + request->io.buf_offset;

    if (needs_bounce(request))
        sr_bounce_write(request, memory, request->io.offset_bytes, request->io.length_bytes, sr_request_finish);
    else
        sr_request_write(request, memory, request->io.offset_bytes, request->io.length_bytes,
                         sr_request_rw_flags(request), sr_request_finish);
}

/* On a worker: the file system may have to look its extents up on disk. */
static int64_t probe_work(struct sr_prim *prim)
{
    off_t data = lseek(prim->fd, (off_t)prim->offset, SEEK_DATA);

    if (data < 0)
        return errno == ENXIO; /* none up to the end; anything else: read and see */
    return (uint64_t)data >= prim->offset + prim->length;
}

static void probe_done(struct sr_prim *prim, int64_t is_hole)
{
    struct sr_request *request = (struct sr_request *)prim;

    if (is_hole) {
        request->all_zero = true;
        sr_request_finish(request, SR_OK);
        return;
    }
    start_read(request);
}

static void start_probe(struct sr_request *request)
{
    request->prim.op = SR_PRIM_WORK;
    request->prim.fd = request->store->fd;
    request->prim.offset = request->io.offset_bytes;
    request->prim.length = request->io.length_bytes;
    request->prim.work = probe_work;
    request->prim.done = probe_done;
    sr_engine_submit(request->store, &request->prim);
}

static void answer(struct sr_prim *prim, int64_t error)
{
    sr_request_finish((struct sr_request *)prim, (enum sr_error)error);
}

static void answer_soon(struct sr_request *request, enum sr_error error)
{
    request->prim.done = answer;
    sr_engine_complete_soon(request->store->engine, &request->prim, error);
}

static bool in_range(const struct sr_store *store, const struct sr_disk_io *io)
{
    return io->op == SR_DISK_FLUSH || (io->length_bytes > 0 && io->offset_bytes <= store->size_bytes &&
                                       io->length_bytes <= store->size_bytes - io->offset_bytes);
}

static void check_buffer(const struct sr_disk_io *io)
{
    uint64_t bytes = io->length_bytes;

    if (io->op == SR_DISK_FLUSH || io->op == SR_DISK_ZERO)
        return;
    if (io->op == SR_DISK_HASH) {
        SR_ASSERT(sr_block_aligned(io->offset_bytes) && sr_block_aligned(io->length_bytes));
        bytes = io->length_bytes / SR_BLOCK_BYTES * SR_DIGEST_BYTES;
    }
    SR_ASSERT(io->buf && io->buf_offset <= io->buf->capacity && bytes <= io->buf->capacity - io->buf_offset);
}

void sr_store_submit(struct sr_store *store, const struct sr_disk_io *io, sr_store_done_fn done, void *arg)
{
    struct sr_request *request = request_new(store->engine);

    request->store = store;
    request->io = *io;
    request->done = done;
    request->arg = arg;
    store->in_flight++;
    if (!in_range(store, io)) {
        answer_soon(request, SR_E_INVALID);
        return;
    }
    check_buffer(io);
    if (store->failed && changes_data(io->op)) {
        answer_soon(request, SR_E_IO);
        return;
    }
    switch (io->op) {
    case SR_DISK_READ:
        if (io->probe)
            start_probe(request);
        else
            start_read(request);
        return;
    case SR_DISK_WRITE:
        start_write(request);
        return;
    case SR_DISK_ZERO:
        sr_zero_start(request);
        return;
    case SR_DISK_FLUSH:
        sr_sync_join(request);
        return;
    case SR_DISK_HASH:
        sr_hash_start(request);
        return;
    }
    SR_UNREACHABLE();
}
