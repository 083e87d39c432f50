/* follow.c - the leader's operations at the follower: writes, copies, comparisons, reads for the leader.
 *
 * Each is answered once, when its effect is durable (a cached write: when it is there).  The leader holds the range
 * lock for as long as an operation is out, so those under way never overlap, and the session rule (S1 in session.c)
 * keeps those of an earlier session out.
 */
#include <stdlib.h>

#include "core/internal.h"

static void end_op(struct sr_core *core, struct follow_op *op)
{
    TAILQ_REMOVE(&core->follow_ops, op, link);
    core->n_follow_ops--;
    sr_buf_unref(op->buf);
    sr_buf_unref(op->digests);
    free(op);
}

static enum sr_peer_msg_type answer_type(enum sr_peer_msg_type type)
{
    switch (type) {
    case SR_MSG_WRITE:
        return SR_MSG_WRITTEN;
    case SR_MSG_COPY:
        return SR_MSG_COPIED;
    case SR_MSG_HASH:
        return SR_MSG_HASHED;
    case SR_MSG_FLUSH:
        return SR_MSG_FLUSHED;
    default:
        SR_ASSERT(type == SR_MSG_FETCH);
        return SR_MSG_FETCHED;
    }
}

static void answer(struct sr_core *core, struct follow_op *op, enum sr_error error)
{
    if (core->stage == STAGE_OPEN && op->session == core->session) {
        struct sr_peer_msg *msg = core_new_msg(core, answer_type(op->type));
        msg->id = op->id;
        msg->error = error;
        msg->volume = op->volume->index;
        memcpy(msg->differs, op->differs, sizeof msg->differs);
        if (op->type == SR_MSG_FETCH && error == SR_OK) {
            msg->payload = op->buf;
            msg->payload_bytes = (uint32_t)op->length;
            op->buf = NULL;
        }
        core_send_msg(core, msg);
    }
    end_op(core, op);
}

static void submit(struct sr_core *core, struct follow_op *op, enum sr_disk_op disk_op, bool may_trim,
                   uint32_t buf_offset)
{
    op->io = core_start_io(core, IO_FOLLOW, op, op->volume,
                           (struct sr_disk_io){.op = disk_op,
                                               .may_trim = may_trim,
                                               .cached = op->cached,
                                               .offset_bytes = op->offset,
                                               .length_bytes = op->length,
                                               .buf = op->buf,
                                               .buf_offset = buf_offset});
}

/* What a peer sent is checked, never asserted. */
static const char *fault_of(const struct sr_core *core, const struct sr_peer_msg *msg)
{
    if (msg->volume >= core->n_volumes)
        return "names a volume that does not exist";
    uint64_t size = core->volumes[msg->volume].size_bytes;
    if (msg->type == SR_MSG_FLUSH)
        return core->n_follow_ops >= FOLLOW_OPS_MAX ? "exceeds the operations that may be under way" : NULL;
    if (!msg->length_bytes || msg->length_bytes > size || msg->offset_bytes > size - msg->length_bytes)
        return "lies outside the volume";
    bool data = (msg->type == SR_MSG_WRITE || msg->type == SR_MSG_COPY) && msg->content == SR_CONTENT_DATA;
    if (data && (!msg->payload || msg->payload_bytes != msg->length_bytes))
        return "carries another length than it says";
    if (msg->type == SR_MSG_WRITE || msg->type == SR_MSG_COPY)
        return core->n_follow_ops >= FOLLOW_OPS_MAX ? "exceeds the operations that may be under way" : NULL;
    bool whole_blocks = msg->offset_bytes % SR_BLOCK_BYTES == 0 && msg->length_bytes % SR_BLOCK_BYTES == 0;
    uint64_t n = msg->length_bytes / SR_BLOCK_BYTES;
    if (!whole_blocks || n > SR_RUN_MAX_BLOCKS)
        return "is not a run of at most 256 blocks";
    if (msg->type == SR_MSG_HASH && (!msg->payload || msg->payload_bytes != n * SR_DIGEST_BYTES))
        return "carries another number of digests than blocks";
    return core->n_follow_ops >= FOLLOW_OPS_MAX ? "exceeds the operations that may be under way" : NULL;
}

/* Reads or hashes for the leader, when there is memory for it. */
static void look(struct sr_core *core, struct follow_op *op)
{
    bool hash = op->type == SR_MSG_HASH;
    uint64_t bytes = hash ? op->length / SR_BLOCK_BYTES * SR_DIGEST_BYTES : op->length;
    op->buf = sr_buf_alloc(core->budget, bytes);
    if (op->buf)
        submit(core, op, hash ? SR_DISK_HASH : SR_DISK_READ, false, 0);
    else
        core->memory_at_us = core->now_us + MEMORY_RETRY_US;
}

void core_follow_retry_memory(struct sr_core *core)
{
    struct follow_op *op, *next;
    for (op = TAILQ_FIRST(&core->follow_ops); op; op = next) {
        next = TAILQ_NEXT(op, link);
        bool looks = op->type == SR_MSG_HASH || op->type == SR_MSG_FETCH;
        if (!looks || op->buf || op->io)
            continue;
        if (op->session)
            look(core, op);
        else
            end_op(core, op); /* of an ended session: it never began */
    }
}

static void flush(struct sr_core *core, struct follow_op *op)
{
    op->flushing = true;
    op->covers = op->volume->applied;
    submit(core, op, SR_DISK_FLUSH, false, 0);
}

void core_follow_msg(struct sr_core *core, struct sr_peer_msg *msg)
{
    const char *fault = fault_of(core, msg);
    if (fault) {
        core_fault_link(core, "a %s of %s %s", sr_peer_msg_name(msg->type), core->peer_name, fault);
        return;
    }
    struct follow_op *op = calloc(1, sizeof *op);
    SR_ASSERT(op != NULL);
    op->volume = &core->volumes[msg->volume];
    op->type = msg->type;
    op->session = msg->session;
    op->id = msg->id;
    op->offset = msg->offset_bytes;
    op->length = msg->length_bytes;
    TAILQ_INSERT_TAIL(&core->follow_ops, op, link);
    core->n_follow_ops++;
    if (msg->type == SR_MSG_FLUSH) {
        flush(core, op);
        return;
    }
    if (msg->type == SR_MSG_WRITE || msg->type == SR_MSG_COPY) {
        op->cached = msg->type == SR_MSG_WRITE && msg->cached && op->volume->write_back;
        op->buf = sr_buf_ref(msg->payload);
        if (msg->content == SR_CONTENT_DATA)
            submit(core, op, SR_DISK_WRITE, false, msg->payload_offset);
        else
            submit(core, op, SR_DISK_ZERO, msg->may_trim || msg->content == SR_CONTENT_TRIM, 0);
        return;
    }
    if (msg->type == SR_MSG_HASH) {
        op->digests = sr_buf_ref(msg->payload);
        op->digests_offset = msg->payload_offset;
    }
    look(core, op);
}

/* Blocks that compare equal count only once they are flushed. */
static void compare(struct sr_core *core, struct follow_op *op)
{
    const uint8_t *theirs = op->digests->data + op->digests_offset;
    uint64_t n = op->length / SR_BLOCK_BYTES, equal = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (memcmp(op->buf->data + i * SR_DIGEST_BYTES, theirs + i * SR_DIGEST_BYTES, SR_DIGEST_BYTES) == 0)
            equal++;
        else
            op->differs[i / 8] |= (uint8_t)(1u << (i % 8));
    }
    if (!equal) {
        answer(core, op, SR_OK);
        return;
    }
    flush(core, op);
}

static void note_stable(struct follow_op *op, enum sr_error error)
{
    struct volume *volume = op->volume;
    volume->applied += op->cached; /* what an error left of it too */
    if (op->flushing && error == SR_OK && op->covers > volume->stable)
        volume->stable = op->covers;
}

void core_follow_io_done(struct sr_core *core, struct follow_op *op, enum sr_error error)
{
    op->io = 0;
    note_stable(op, error);
    if (op->session == 0) { /* of an ended session: only its end mattered, and whether the copy failed */
        bool wrote = op->type == SR_MSG_WRITE || op->type == SR_MSG_COPY || op->flushing;
        struct volume *volume = op->volume;
        end_op(core, op);
        if (wrote && error != SR_OK && error != SR_E_NO_SPACE)
            core_replica_failed(core, volume, "write", error);
        return;
    }
    if (op->type == SR_MSG_FETCH) {
        answer(core, op, error);
        return;
    }
    if (op->type == SR_MSG_HASH && !op->flushing) {
        if (error != SR_OK) { /* unreadable here: take the leader's */
            memset(op->differs, 0xff, sizeof op->differs);
            answer(core, op, SR_OK);
        } else {
            compare(core, op);
        }
        return;
    }
    if (error == SR_OK && !op->flushing) /* whole blocks that were unreadable are readable again */
        core_drop_bad(core, op->volume, (op->offset + SR_BLOCK_BYTES - 1) / SR_BLOCK_BYTES,
                      (op->offset + op->length) / SR_BLOCK_BYTES);
    core->flushes_done += op->type == SR_MSG_FLUSH && error == SR_OK;
    if (error == SR_OK || (error == SR_E_NO_SPACE && !op->flushing)) {
        answer(core, op, error);
        return;
    }
    struct volume *volume = op->volume;
    bool flush = op->flushing;
    end_op(core, op); /* unanswered: the leader hears of the failed copy by the next greeting */
    core_replica_failed(core, volume, flush ? "flush" : "write", error);
}
