/* repair.c - when this copy cannot take or give what the host asked for, but the pair can.
 *
 * ENOSPC on a write: the peer may hold the new data already, this copy does not.  Under the range lock, the present
 * content of the blocks here is sent to the peer, chunk by chunk; then the host gets its error.
 *
 *   FIX_READ -> FIX_SENT -> (next chunk) -> reply
 *
 * A read error while the peer holds the block: under the write lock the peer reads it for us, the blocks are
 * committed as bad (never copied from), rewritten here, committed as good.
 *
 *   FETCH_LOCK -> FETCH_READ -> (next block, or) FETCHING -> BAD_COMMIT -> REWRITING -> GOOD_COMMIT -> (next block)
 * -> reply
 *
 * That goes block by block, so that only a block that cannot be read is called bad: what is bad is never copied from.
 *
 * A session that ends sends either back to its first state; alone, the first is answered at once (its blocks are
 * tracked) and the second with the error of the disk.
 */
#include <stdlib.h>

#include "core/internal.h"

void core_repair_drop(struct sr_core *core, struct request *request)
{
    (void)core;
    sr_buf_unref(request->chunk);
    request->chunk = NULL;
}

/* The chunk at chunk_offset, whole blocks, at most max_bytes; false: none left, or no memory (then *wait). */
static bool take_chunk(struct sr_core *core, struct request *request, uint64_t max_bytes, bool *wait)
{
    uint64_t end = core_end_block(request->offset, request->length) * SR_BLOCK_BYTES;
    *wait = false;
    if (request->chunk_offset >= end)
        return false;
    request->chunk_length = end - request->chunk_offset < max_bytes ? end - request->chunk_offset : max_bytes;
    if (!request->chunk)
        request->chunk = sr_buf_alloc(core->budget, max_bytes);
    *wait = !request->chunk;
    if (*wait)
        core->memory_at_us = core->now_us + MEMORY_RETRY_US;
    return !*wait;
}

static uint64_t chunk_io(struct sr_core *core, struct request *request, enum sr_disk_op op)
{
    request->local_done = false;
    return core_start_io(core, IO_REQUEST, request, request->volume,
                         (struct sr_disk_io){.op = op,
                                             .offset_bytes = request->chunk_offset,
                                             .length_bytes = request->chunk_length,
                                             .buf = request->chunk});
}

static struct sr_peer_msg *chunk_msg(struct sr_core *core, struct request *request, enum sr_peer_msg_type type)
{
    struct sr_peer_msg *msg = core_new_msg(core, type);
    request->message = sr_slots_take(&core->messages, MSG_REQUEST, request);
    request->peer_done = false;
    msg->id = request->message;
    msg->volume = request->volume->index;
    msg->offset_bytes = request->chunk_offset;
    msg->length_bytes = request->chunk_length;
    return msg;
}

/* ---- no space here ------------------------------------------------------------------------------------------ */

static void fix_rewind(struct request *request)
{
    request->state = PIECE_FIX_READ;
    request->chunk_offset = core_first_block(request->offset) * SR_BLOCK_BYTES;
    request->local_done = false;
    request->peer_done = false;
}

void core_fix_begin(struct sr_core *core, struct request *request)
{
    fix_rewind(request);
    core_wait_for_peer(core, request);
    core_make_ready(core, request);
}

static void fix_read(struct sr_core *core, struct request *request)
{
    bool wait;
    if (request->local_done) {
        if (request->local_error != SR_OK) { /* what the peer should get cannot be read: the blocks stay tracked */
            core_go_alone(core, SR_CAUSE_ACTIVE_IO_ERROR);
            return;
        }
        struct sr_peer_msg *msg = chunk_msg(core, request, SR_MSG_WRITE);
        msg->content = SR_CONTENT_DATA;
        msg->payload = request->chunk; /* the message takes our reference: the peer may be slow */
        request->chunk = NULL;
        msg->payload_bytes = (uint32_t)request->chunk_length;
        request->state = PIECE_FIX_SENT;
        core_send_msg(core, msg);
        return;
    }
    if (request->io)
        return;
    if (take_chunk(core, request, FIX_CHUNK_BYTES, &wait))
        request->io = chunk_io(core, request, SR_DISK_READ);
    else if (!wait)
        core_leave(core, request, SR_E_NO_SPACE);
}

void core_fix_step(struct sr_core *core, struct request *request)
{
    if (request->io)
        return;
    if (core->mode == MODE_ALONE) { /* the blocks are tracked; only the record must be durable */
        if (core_settled(core) && !sr_lineage_must_go_alone(&core->rec))
            core_leave(core, request, SR_E_NO_SPACE);
        return;
    }
    if (!core_leads_open(core)) { /* from the first chunk again when a session opens */
        fix_rewind(request);
        return;
    }
    if (request->state == PIECE_FIX_SENT && !request->message && !request->peer_done)
        fix_rewind(request); /* the session that carried the chunk ended */
    if (request->state == PIECE_FIX_SENT) {
        if (!request->peer_done)
            return;
        request->chunk_offset += request->chunk_length;
        request->local_done = request->peer_done = false;
        request->state = PIECE_FIX_READ;
    }
    fix_read(core, request);
}

/* ---- unreadable here ---------------------------------------------------------------------------------------- */

void core_fetch_begin(struct sr_core *core, struct request *request)
{
    core_unlock(request->volume, &request->lock);
    request->state = PIECE_FETCH_LOCK;
    request->chunk_offset = core_first_block(request->offset) * SR_BLOCK_BYTES;
    request->local_done = request->peer_done = false;
    core_wait_for_peer(core, request);
    if (sr_rangelock_acquire(&request->volume->locks, &request->lock, core_first_block(request->offset),
                             core_end_block(request->offset, request->length), false, request))
        core_make_ready(core, request);
}

static void copy_out(struct request *request)
{
    uint64_t first = request->chunk_offset > request->offset ? request->chunk_offset : request->offset;
    uint64_t end = request->chunk_offset + request->chunk_length;
    if (end > request->offset + request->length)
        end = request->offset + request->length;
    memcpy(request->host.buf->data + request->buf_offset + (first - request->offset),
           request->chunk->data + (first - request->chunk_offset), end - first);
}

static void mark_chunk(struct sr_core *core, struct request *request, bool bad)
{
    struct volume *volume = request->volume;
    uint64_t first = core_first_block(request->chunk_offset);
    uint64_t end = core_end_block(request->chunk_offset, request->chunk_length);
    if (!bad) {
        core_drop_bad(core, volume, first, end);
        return;
    }
    for (uint64_t block = first; block < end; block++)
        if (core_add_bad(volume, block))
            core_commit_op(core, SR_META_BAD, volume->index)->block = block;
}

/* Waits for the commit being built, in the given state. */
static void await_commit(struct sr_core *core, struct request *request, enum piece_state state)
{
    request->state = state;
    request->wait_commit = core_next_commit(core);
    if (!request->waits_for_commit) {
        request->waits_for_commit = true;
        TAILQ_INSERT_TAIL(&core->commit_wait, request, commit_wait);
    }
}

/* What the peer lacks must not be read from it: while this read waited for the lock, a session may have ended and
 * another copy may have come in the place of the one that held the block. */
static bool peer_lacks_chunk(const struct request *request)
{
    uint64_t first = core_first_block(request->chunk_offset);
    uint64_t end = core_end_block(request->chunk_offset, request->chunk_length);
    return sr_dirtymap_any(&request->volume->map, first, end - first) && !SR_BUG(FETCHED_UNCHECKED);
}

static void next_block(struct sr_core *core, struct request *request)
{
    bool wait;
    if (take_chunk(core, request, SR_BLOCK_BYTES, &wait)) {
        request->state = PIECE_FETCH_READ;
        request->io = chunk_io(core, request, SR_DISK_READ);
    } else if (!wait) {
        core_leave(core, request, SR_OK);
    }
}

static void block_done(struct sr_core *core, struct request *request)
{
    request->chunk_offset += request->chunk_length;
    next_block(core, request);
}

static void fetch(struct sr_core *core, struct request *request)
{
    if (peer_lacks_chunk(request)) {
        core_leave(core, request, SR_E_IO);
        return;
    }
    struct sr_peer_msg *msg = chunk_msg(core, request, SR_MSG_FETCH);
    request->state = PIECE_FETCHING;
    core_send_msg(core, msg);
}

static void fetched(struct sr_core *core, struct request *request)
{
    if (request->local_error != SR_OK) {
        core_leave(core, request, SR_E_IO); /* unreadable at both sites */
        return;
    }
    copy_out(request);
    mark_chunk(core, request, true);
    uint64_t block = core_first_block(request->chunk_offset);
    if (core_is_bad(request->volume, block, block + 1))
        await_commit(core, request, PIECE_BAD_COMMIT);
    else
        block_done(core, request); /* the list is full: it is not rewritten, or a torn write would count as good */
}

static void rewritten(struct sr_core *core, struct request *request)
{
    if (request->local_error == SR_E_NO_SPACE) { /* stays bad; the host has its data from the peer */
        block_done(core, request);
        return;
    }
    SR_ASSERT(request->local_error == SR_OK); /* anything else has failed the replica */
    core_say(core, SR_LOG_WARNING, "block %llu could not be read here; read from %s and rewritten",
             (unsigned long long)core_first_block(request->chunk_offset), core->peer_name);
    mark_chunk(core, request, false);
    await_commit(core, request, PIECE_GOOD_COMMIT);
}

void core_fetch_step(struct sr_core *core, struct request *request)
{
    if (request->io)
        return;
    if (!core_leads_open(core)) { /* nobody to ask: the host gets what the disk said */
        if (request->state != PIECE_FETCH_LOCK || sr_lock_granted(&request->lock))
            core_leave(core, request, SR_E_IO);
        return;
    }
    switch (request->state) {
    case PIECE_FETCH_LOCK:
        if (sr_lock_granted(&request->lock))
            next_block(core, request);
        break;
    case PIECE_FETCH_READ:
        if (request->local_done && request->local_error == SR_OK) {
            copy_out(request);
            block_done(core, request);
        } else if (request->local_done) {
            fetch(core, request);
        } else {
            next_block(core, request); /* there was no memory before */
        }
        break;
    case PIECE_FETCHING:
        if (request->peer_done)
            fetched(core, request);
        break;
    case PIECE_BAD_COMMIT:
        if (request->wait_commit > core->durable)
            break;
        request->state = PIECE_REWRITING;
        request->io = chunk_io(core, request, SR_DISK_WRITE);
        break;
    case PIECE_REWRITING:
        if (request->local_done)
            rewritten(core, request);
        break;
    case PIECE_GOOD_COMMIT:
        if (request->wait_commit <= core->durable)
            block_done(core, request);
        break;
    default:
        SR_UNREACHABLE();
    }
}

/* ---- the list of unreadable blocks ---------------------------------------------------------------------------- */

static uint32_t bad_index(const struct volume *volume, uint64_t block)
{
    uint32_t low = 0, high = volume->n_bad;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (volume->bad[middle] < block)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool core_is_bad(const struct volume *volume, uint64_t first, uint64_t end)
{
    uint32_t at = bad_index(volume, first);
    return at < volume->n_bad && volume->bad[at] < end;
}

bool core_add_bad(struct volume *volume, uint64_t block)
{
    uint32_t at = bad_index(volume, block);
    if ((at < volume->n_bad && volume->bad[at] == block) || volume->n_bad == BAD_BLOCKS_MAX)
        return false;
    if (!volume->bad) {
        volume->bad = calloc(BAD_BLOCKS_MAX, sizeof *volume->bad);
        SR_ASSERT(volume->bad != NULL);
    }
    memmove(&volume->bad[at + 1], &volume->bad[at], (volume->n_bad - at) * sizeof *volume->bad);
    volume->bad[at] = block;
    volume->n_bad++;
    return true;
}

void core_drop_bad(struct sr_core *core, struct volume *volume, uint64_t first, uint64_t end)
{
    while (volume->n_bad && first < end && core_is_bad(volume, first, end)) {
        uint32_t at = bad_index(volume, first);
        core_commit_op(core, SR_META_GOOD, volume->index)->block = volume->bad[at];
        memmove(&volume->bad[at], &volume->bad[at + 1], (volume->n_bad - at - 1) * sizeof *volume->bad);
        volume->n_bad--;
    }
}
