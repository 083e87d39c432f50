/* resync.c - the leader copies the blocks that the follower lacks.
 *
 * A copy is one run of at most 256 blocks within a region:
 *
 *   LOCKING -> [HASHING -> COMPARING ->] READING -> SENT -> bits cleared
 *
 * HASHING and COMPARING only where the blocks are suspect (an intent after a crash, or nothing narrower known): equal
 * blocks cost 16 bytes each.  The run is locked (shared with reads, against writes) from before its first read
 * until the follower has confirmed it.
 *
 * Invariants
 *   Y1  A bit is cleared only when the follower confirmed, in this session, a copy that is durable and newer than
 *       every write to the block (the lock), or that the block is equal and flushed.
 *   Y2  Two copies never overlap.
 *   Y3  COMPLETE is sent when the map is empty, no copy is under way and every re-sent write is confirmed.
 */
#include <stdlib.h>

#include "base/zero.h"
#include "core/internal.h"

uint64_t core_dirty_blocks(const struct sr_core *core)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < core->n_volumes; i++)
        sum += sr_dirtymap_count(&core->volumes[i].map);
    return sum;
}

/* While the peer may be promoted unforced, a host must not build on a block that a failover would take back. */
bool core_reads_must_wait(const struct sr_core *core)
{
    if (SR_BUG(SUSPECT_READABLE) || core->mode == MODE_MIRRORING)
        return false;
    if (core->mode == MODE_ALONE)
        return core->alone_commit > core->durable;
    const struct sr_record *rec = &core->rec;
    return rec->base_kind == SR_BASE_NONE ||
           (rec->base_kind == SR_BASE_KNOWN && sr_uuid_equal(&rec->base, &rec->gen) && rec->completing);
}

/* Since when the peer has had a copy that the request waits behind; 0: there is none. */
uint64_t core_copy_peer_since_us(const struct sr_core *core, const struct request *request)
{
    uint64_t first = core_first_block(request->host.offset_bytes);
    uint64_t end = core_end_block(request->host.offset_bytes, request->host.length_bytes), since_us = 0;
    const struct copy *copy;
    TAILQ_FOREACH (copy, &core->copies, link) {
        bool out = copy->state == COPY_COMPARING || copy->state == COPY_SENT;
        if (out && copy->volume == request->volume && copy->first < end && first < copy->first + copy->n &&
            (!since_us || copy->peer_since_us < since_us))
            since_us = copy->peer_since_us;
    }
    return since_us;
}

/* ---- choosing ------------------------------------------------------------------------------------------------ */

/* Of the copies under way that overlap [first, end) the one that begins first. */
static const struct copy *overlapping(const struct sr_core *core, const struct volume *volume, uint64_t first,
                                      uint64_t end)
{
    const struct copy *copy, *earliest = NULL;
    TAILQ_FOREACH (copy, &core->copies, link)
        if (copy->volume == volume && copy->first < end && first < copy->first + copy->n &&
            (!earliest || copy->first < earliest->first))
            earliest = copy;
    return earliest;
}

/* The next run at or after `at` and before `end` that is not under way and can be read. */
static uint64_t choose_in(struct sr_core *core, struct volume *volume, uint64_t at, uint64_t end, uint64_t *first)
{
    if (volume->too_bad)
        return 0;
    for (;;) {
        uint64_t n = sr_dirtymap_next_run(&volume->map, at, SR_RUN_MAX_BLOCKS, first);
        if (!n || *first >= end)
            return 0;
        const struct copy *other = overlapping(core, volume, *first, *first + n);
        if (other && other->first <= *first) {
            at = other->first + other->n;
            continue;
        }
        if (other)
            n = other->first - *first;
        if (core_is_bad(volume, *first, *first + 1)) {
            at = *first + 1;
            continue;
        }
        for (uint64_t i = 1; i < n && volume->n_bad; i++)
            if (core_is_bad(volume, *first + i, *first + i + 1))
                n = i;
        return n;
    }
}

/* Of those that a FLUSH of the volume waits for. */
static uint64_t choose_doubtful(struct sr_core *core, struct volume *volume, uint64_t *first)
{
    const struct sr_intent *intent;
    if (!core_flush_blocked(core, volume))
        return 0;
    if (volume->flush.doubt_all)
        return choose_in(core, volume, 0, UINT64_MAX, first);
    TAILQ_FOREACH (intent, &core->intents.all, all) {
        uint64_t at = (uint64_t)intent->region * SR_REGION_BLOCKS;
        uint64_t n =
            core_flush_doubts(volume, intent) ? choose_in(core, volume, at, at + SR_REGION_BLOCKS, first) : 0;
        if (n)
            return n;
    }
    return 0;
}

/* Blocks that a host waits to read, or that its FLUSH waits for, come first. */
static uint64_t choose_urgent(struct sr_core *core, struct volume **volume, uint64_t *first)
{
    struct request *request;
    TAILQ_FOREACH (request, &core->peer_wait, peer_wait) {
        uint64_t n = 0;
        if (request->state == PIECE_SUSPECT)
            n = choose_in(core, request->volume, core_first_block(request->offset),
                          core_end_block(request->offset, request->length), first);
        else if (request->state == PIECE_FLUSHING)
            n = choose_doubtful(core, request->volume, first);
        if (n) {
            *volume = request->volume;
            return n;
        }
    }
    return 0;
}

static uint64_t choose_next(struct sr_core *core, struct volume **volume, uint64_t *first)
{
    for (uint32_t turn = 0; turn <= core->n_volumes; turn++) {
        *volume = &core->volumes[core->cursor_volume];
        uint64_t n = choose_in(core, *volume, core->cursor_block, UINT64_MAX, first);
        if (n) {
            core->cursor_block = *first + n;
            return n;
        }
        core->cursor_volume = (core->cursor_volume + 1) % core->n_volumes;
        core->cursor_block = 0;
    }
    return 0;
}

/* ---- one copy ------------------------------------------------------------------------------------------------ */

static void end_copy(struct sr_core *core, struct copy *copy)
{
    SR_ASSERT(!copy->io);
    if (copy->granted_us)
        core->unlock_local_us = (copy->peer_since_us ? copy->peer_since_us : core->now_us) - copy->granted_us;
    core_unlock(copy->volume, &copy->lock);
    core->unlock_local_us = 0;
    TAILQ_REMOVE(&core->copies, copy, link);
    core->n_copies--;
    sr_buf_unref(copy->buf);
    free(copy);
}

static bool want_memory(struct sr_core *core, struct copy *copy, uint64_t bytes)
{
    if (!copy->buf)
        copy->buf = sr_buf_alloc(core->budget, bytes);
    if (!copy->buf)
        core->memory_at_us = core->now_us + MEMORY_RETRY_US;
    return copy->buf != NULL;
}

static uint64_t copy_io(struct sr_core *core, struct copy *copy, enum sr_disk_op op)
{
    return core_start_io(core, IO_COPY, copy, copy->volume,
                         (struct sr_disk_io){.op = op,
                                             .probe = op == SR_DISK_READ,
                                             .offset_bytes = copy->first * SR_BLOCK_BYTES,
                                             .length_bytes = copy->n * SR_BLOCK_BYTES,
                                             .buf = copy->buf});
}

static void begin_read(struct sr_core *core, struct copy *copy)
{
    copy->state = COPY_READING;
    if (want_memory(core, copy, copy->n * SR_BLOCK_BYTES))
        copy->io = copy_io(core, copy, SR_DISK_READ);
}

static void begin_hash(struct sr_core *core, struct copy *copy)
{
    copy->state = COPY_HASHING;
    if (want_memory(core, copy, copy->n * SR_DIGEST_BYTES))
        copy->io = copy_io(core, copy, SR_DISK_HASH);
}

void core_copy_granted(struct sr_core *core, struct copy *copy)
{
    if (copy->state != COPY_LOCKING)
        return;
    copy->granted_us = core->now_us;
    memset(copy->send, 0xff, sizeof copy->send);
    if (sr_dirtymap_is_suspect(&copy->volume->map, copy->first))
        begin_hash(core, copy);
    else
        begin_read(core, copy);
}

static void begin_copy(struct sr_core *core, struct volume *volume, uint64_t first, uint64_t n)
{
    struct copy *copy = calloc(1, sizeof *copy);
    SR_ASSERT(copy != NULL);
    sr_dirtymap_materialize(&volume->map, first + n);
    copy->volume = volume;
    copy->first = first;
    copy->n = n;
    copy->state = COPY_LOCKING;
    TAILQ_INSERT_TAIL(&core->copies, copy, link);
    core->n_copies++;
    if (SR_BUG(COPY_WITHOUT_LOCK))
        core_copy_granted(core, copy);
    else if (sr_rangelock_acquire(&volume->locks, &copy->lock, first, first + n, true, (void *)((uintptr_t)copy | 1)))
        core_copy_granted(core, copy);
}

static void settle(struct sr_core *core, struct copy *copy, uint64_t first, uint64_t n)
{
    sr_dirtymap_clear(&copy->volume->map, first, n);
    core->resync_done += n;
    sr_throttle_moved(&core->throttle, core->now_us, n * SR_BLOCK_BYTES);
    if (!core->save_at_us)
        core->save_at_us = core->now_us + 1000000;
}

static void wake_suspect_reads(struct sr_core *core)
{
    struct request *request;
    TAILQ_FOREACH (request, &core->peer_wait, peer_wait)
        if (request->state == PIECE_SUSPECT)
            core_make_ready(core, request);
}

static void copy_done(struct sr_core *core, struct copy *copy)
{
    end_copy(core, copy);
    wake_suspect_reads(core);
}

static bool bit(const uint8_t *bits, uint64_t i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static bool zero_block(const struct copy *copy, uint64_t i, bool all_zero)
{
    return all_zero || sr_is_zero(copy->buf->data + i * SR_BLOCK_BYTES, SR_BLOCK_BYTES);
}

/* Sends the wanted blocks in segments that are all data or all zero. */
static void send_copies(struct sr_core *core, struct copy *copy, bool all_zero)
{
    copy->state = COPY_SENT;
    copy->peer_since_us = core->now_us;
    for (uint64_t i = 0; i < copy->n;) {
        if (!bit(copy->send, i)) {
            i++;
            continue;
        }
        bool zero = zero_block(copy, i, all_zero);
        uint64_t end = i + 1;
        while (end < copy->n && bit(copy->send, end) && zero_block(copy, end, all_zero) == zero)
            end++;
        struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_COPY);
        msg->id = sr_slots_take(&core->messages, MSG_COPY, copy);
        copy->n_out++;
        msg->volume = copy->volume->index;
        msg->offset_bytes = (copy->first + i) * SR_BLOCK_BYTES;
        msg->length_bytes = (end - i) * SR_BLOCK_BYTES;
        msg->content = zero ? SR_CONTENT_ZERO : SR_CONTENT_DATA;
        msg->may_trim = zero;
        if (!zero) {
            msg->payload = sr_buf_ref(copy->buf);
            msg->payload_offset = (uint32_t)(i * SR_BLOCK_BYTES);
            msg->payload_bytes = (uint32_t)msg->length_bytes;
            core->count.copied_bytes += msg->length_bytes;
        }
        core_send_msg(core, msg);
        i = end;
    }
    if (SR_BUG(BIT_CLEARED_WHEN_SENT))
        settle(core, copy, copy->first, copy->n);
    if (!copy->n_out) /* all equal */
        copy_done(core, copy);
}

static void unreadable(struct sr_core *core, struct copy *copy)
{
    if (copy->n > 1) { /* find the block: one at a time from here on */
        struct volume *volume = copy->volume;
        uint64_t first = copy->first, n = copy->n;
        end_copy(core, copy);
        for (uint64_t i = 0; i < n; i++)
            if (core->n_copies < COPIES_MAX)
                begin_copy(core, volume, first + i, 1);
        return;
    }
    if (!core_add_bad(copy->volume, copy->first) && copy->volume->n_bad == BAD_BLOCKS_MAX) {
        /* The only complete copy may be this one: it goes on serving what can be read. */
        copy->volume->too_bad = true;
        core_set_cause(core, SR_CAUSE_ACTIVE_IO_ERROR,
                       "more than %u blocks of volume %s cannot be read here: the rest of it is not copied",
                       BAD_BLOCKS_MAX, copy->volume->name);
        core_say(core, SR_LOG_ERROR, "%s", core->detail);
        copy_done(core, copy);
        return;
    }
    core_commit_op(core, SR_META_BAD, copy->volume->index)->block = copy->first;
    core_set_cause(core, SR_CAUSE_ACTIVE_IO_ERROR,
                   "block %llu of volume %s cannot be read here and is not copied: overwrite it",
                   (unsigned long long)copy->first, copy->volume->name);
    core_say(core, SR_LOG_ERROR, "%s", core->detail);
    copy_done(core, copy);
}

void core_copy_io_done(struct sr_core *core, struct copy *copy, enum sr_error error, bool all_zero)
{
    copy->io = 0;
    if (copy->cancelled) {
        end_copy(core, copy);
        return;
    }
    if (error != SR_OK) {
        unreadable(core, copy);
        return;
    }
    if (copy->state == COPY_READING) {
        send_copies(core, copy, all_zero);
        return;
    }
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_HASH);
    msg->id = copy->message = sr_slots_take(&core->messages, MSG_COPY, copy);
    msg->volume = copy->volume->index;
    msg->offset_bytes = copy->first * SR_BLOCK_BYTES;
    msg->length_bytes = copy->n * SR_BLOCK_BYTES;
    msg->payload = copy->buf;
    msg->payload_bytes = (uint32_t)(copy->n * SR_DIGEST_BYTES);
    copy->buf = NULL;
    copy->state = COPY_COMPARING;
    copy->peer_since_us = core->now_us;
    core_send_msg(core, msg);
}

void core_copy_compared(struct sr_core *core, struct copy *copy, const struct sr_peer_msg *msg)
{
    copy->message = 0;
    if (msg->error != SR_OK) {
        core_go_alone_for(core, SR_CAUSE_ALTERNATE_IO_ERROR, copy->volume);
        return;
    }
    bool any = false;
    for (uint64_t i = 0; i < copy->n; i++) {
        core->count.compared_blocks++;
        if (bit(msg->differs, i)) {
            any = true;
            continue;
        }
        core->count.equal_blocks++;
        copy->send[i / 8] &= (uint8_t) ~(1u << (i % 8));
        settle(core, copy, copy->first + i, 1); /* Y1: equal, and flushed there */
    }
    if (any)
        begin_read(core, copy);
    else
        copy_done(core, copy);
}

void core_copy_confirmed(struct sr_core *core, struct copy *copy, const struct sr_peer_msg *msg)
{
    copy->n_out--;
    if (msg->error != SR_OK) {
        core_go_alone_for(core,
                          msg->error == SR_E_NO_SPACE ? SR_CAUSE_ALTERNATE_NO_SPACE : SR_CAUSE_ALTERNATE_IO_ERROR,
                          copy->volume);
        return;
    }
    if (copy->n_out)
        return;
    for (uint64_t i = 0; i < copy->n; i++) /* Y1 */
        if (bit(copy->send, i))
            settle(core, copy, copy->first + i, 1);
    copy_done(core, copy);
}

/* ---- the whole ------------------------------------------------------------------------------------------------ */

void core_resync_begin(struct sr_core *core)
{
    core->cursor_volume = 0;
    core->cursor_block = 0;
    core->resync_began_us = core->now_us;
    core->resync_done = 0;
    core->resync_total = core_dirty_blocks(core);
    for (uint32_t i = 0; i < core->n_volumes; i++)
        core->volumes[i].too_bad = false;
    sr_throttle_begin(&core->throttle, core->now_us);
    if (core->resync_total)
        core_say(core, SR_LOG_NOTICE, "resync to %s begins: %llu blocks", core->peer_name,
                 (unsigned long long)core->resync_total);
}

void core_resync_session_ended(struct sr_core *core)
{
    struct copy *copy, *next;
    for (copy = TAILQ_FIRST(&core->copies); copy; copy = next) {
        next = TAILQ_NEXT(copy, link);
        copy->cancelled = true;
        if (!copy->io)
            end_copy(core, copy);
    }
    /* the requests gave theirs back themselves; what is left in the table were the copies' */
    for (uint32_t i = 0; i < core->messages.n; i++)
        if (core->messages.slots[i].owner && core->messages.slots[i].kind == MSG_COPY)
            sr_slots_give(&core->messages, (uint64_t)core->messages.slots[i].round << 32 | (i + 1));
}

static struct sr_throttle_limits limits(const struct sr_core *core)
{
    return (struct sr_throttle_limits){core->tune.resync_min_bytes_per_s, core->tune.resync_max_bytes_per_s,
                                       core->tune.resync_latency_factor_percent};
}

void core_resync_retry_memory(struct sr_core *core)
{
    struct copy *copy;
    TAILQ_FOREACH (copy, &core->copies, link) {
        if (copy->buf || copy->io || copy->cancelled)
            continue;
        if (copy->state == COPY_READING)
            begin_read(core, copy);
        else if (copy->state == COPY_HASHING)
            begin_hash(core, copy);
    }
}

static void try_complete(struct sr_core *core)
{
    bool copies = core->n_copies && !SR_BUG(COMPLETE_WITH_COPIES_LEFT);
    bool dirty = SR_BUG(COMPLETE_WITH_COPIES_LEFT) ? core_dirty_blocks(core) > 8 : core_dirty_blocks(core) > 0;
    if (dirty || copies || core->held_left || core->complete_pending || core->complete_sent ||
        core->completed) /* Y3 */
        return;
    core->rec.completing = true;
    core_commit_record(core);
    core->complete_pending = true;
}

/* Copied regions stay listed until their metadata is up to date: a resync must not run ahead of that for ever. */
static bool maps_full(struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        if (core->volumes[i].map.stale && core->volumes[i].map.n_entries >= SR_DIRTYMAP_REGIONS_MAX) {
            core->save_at_us = core->save_at_us ? core->save_at_us : core->now_us + 1000;
            return true;
        }
    }
    return false;
}

void core_resync_pump(struct sr_core *core)
{
    core->throttled = false;
    if (core->stage != STAGE_OPEN || core->mode != MODE_RESYNCING || core->stopping)
        return;
    struct sr_throttle_limits bounds = limits(core);
    uint32_t parallel = core->tune.resync_parallel < COPIES_MAX ? core->tune.resync_parallel : COPIES_MAX;
    while (core->n_copies < parallel && !core->memory_at_us) {
        struct volume *volume;
        uint64_t first, n = choose_urgent(core, &volume, &first);
        if (!n && maps_full(core)) /* saving them makes room */
            break;
        if (!n) {
            n = choose_next(core, &volume, &first);
            core->throttled = n && !sr_throttle_may_start(&core->throttle, &bounds, core->now_us);
        }
        if (!n || core->throttled) {
            core->cursor_block = core->throttled ? first : core->cursor_block;
            break;
        }
        sr_throttle_spend(&core->throttle, n * SR_BLOCK_BYTES);
        begin_copy(core, volume, first, n);
        if (core->stage != STAGE_OPEN)
            return;
    }
    try_complete(core);
}

uint64_t core_resync_next_us(const struct sr_core *core)
{
    return core->throttled ? sr_throttle_next_us(&core->throttle, core->now_us) : 0;
}
