/* requests.c - host requests at the active site.
 *
 * A request is cut into pieces of at most 64 regions, one at a time, under one lock for the whole of it: a later piece
 * must not come after what others asked for meanwhile (its host may be gone, and have written anew from elsewhere).
 *
 *   read    LOCKING (shared) -> RUNNING -> reply            a suspect block: SUSPECT, without the lock, first
 *   others  LOCKING (exclusive) -> INTENT -> RUNNING -> acknowledged -> next piece (INTENT) or reply
 *   flush   FLUSHING -> reply                                in a write-back volume (flush.c); else the reply at once
 *
 * step() is level-triggered: it looks at where the piece stands and does whatever is possible now; everything that
 * may unblock a piece puts it on the ready list.
 *
 * Invariants
 *   Q1  A write starts, on either copy, only when the intents of its regions are durable.
 *   Q2  Both copies of a write are started in the same step when the session is open.
 *   Q3  A piece is acknowledged when this copy is durable and either the peer confirmed it in the present session, or
 *       the record that says "alone" is durable.  (Write-back without FUA: when the copies are written; FLUSH makes
 *       them durable.)
 *   Q4  A piece keeps its intents, a request its lock, until its disk I/O has ended, whoever went away meanwhile.
 */
#include <stdlib.h>

#include "core/internal.h"

uint64_t core_first_block(uint64_t offset)
{
    return offset / SR_BLOCK_BYTES;
}

uint64_t core_end_block(uint64_t offset, uint64_t length)
{
    return (offset + length + SR_BLOCK_BYTES - 1) / SR_BLOCK_BYTES;
}

static bool is_read(const struct request *request)
{
    return request->host.op == SR_HOST_READ;
}

static uint64_t piece_first(const struct request *request)
{
    return core_first_block(request->offset);
}

static uint64_t piece_end(const struct request *request)
{
    return core_end_block(request->offset, request->length);
}

/* ---- lists ----------------------------------------------------------------------------------------------- */

void core_make_ready(struct sr_core *core, struct request *request)
{
    if (request->is_ready)
        return;
    request->is_ready = true;
    TAILQ_INSERT_TAIL(&core->ready, request, ready);
}

void core_make_all_ready(struct sr_core *core)
{
    struct request *request;
    TAILQ_FOREACH (request, &core->requests, all)
        core_make_ready(core, request);
}

/* The list is in the order of peer_wait_since_us: its head tells when the collection must go alone. */
void core_wait_for_peer(struct sr_core *core, struct request *request)
{
    if (request->waits_for_peer)
        return;
    request->waits_for_peer = true;
    if (!request->peer_wait_since_us)
        request->peer_wait_since_us = core->now_us;
    struct request *later = TAILQ_LAST(&core->peer_wait, request_list);
    while (later && later->peer_wait_since_us > request->peer_wait_since_us)
        later = TAILQ_PREV(later, request_list, peer_wait);
    if (later)
        TAILQ_INSERT_AFTER(&core->peer_wait, later, request, peer_wait);
    else
        TAILQ_INSERT_HEAD(&core->peer_wait, request, peer_wait);
}

void core_stop_waiting_for_peer(struct sr_core *core, struct request *request)
{
    if (!request->waits_for_peer)
        return;
    request->waits_for_peer = false;
    TAILQ_REMOVE(&core->peer_wait, request, peer_wait);
}

static void wait_for_commit(struct sr_core *core, struct request *request)
{
    if (request->waits_for_commit)
        return;
    request->waits_for_commit = true;
    TAILQ_INSERT_TAIL(&core->commit_wait, request, commit_wait);
}

void core_requests_commits_done(struct sr_core *core)
{
    struct request *request, *next;
    for (request = TAILQ_FIRST(&core->commit_wait); request; request = next) {
        next = TAILQ_NEXT(request, commit_wait);
        if (request->wait_commit > core->durable && request->wait_commit != UINT64_MAX)
            continue;
        request->waits_for_commit = false;
        TAILQ_REMOVE(&core->commit_wait, request, commit_wait);
        core_make_ready(core, request);
    }
    core->intents_wanted = false;
    if (core->mode == MODE_ALONE && core_settled(core)) /* acknowledgements may have waited for the record */
        core_make_all_ready(core);
}

/* Owners of locks that became free: requests and copies are told apart by who asked. */
static void lock_granted(void *arg, void *owner)
{
    struct volume *volume = arg;
    struct sr_core *core = volume->core;
    uintptr_t tagged = (uintptr_t)owner;
    if (tagged & 1) {
        core_copy_granted(core, (struct copy *)(tagged - 1));
        return;
    }
    struct request *request = owner;
    core_stop_waiting_for_peer(core, request);
    if (request->peer_wait_since_us) /* what it waited for the disk here is not the peer's fault */
        request->peer_wait_since_us = request->peer_wait_since_us + core->unlock_local_us < core->now_us
                                          ? request->peer_wait_since_us + core->unlock_local_us
                                          : core->now_us;
    request->granted_us = core->now_us;
    core_make_ready(core, request);
}

void core_unlock(struct volume *volume, struct sr_lock *lock)
{
    if (lock->queued)
        sr_rangelock_release(&volume->locks, lock, lock_granted, volume);
}

static void admit(struct sr_core *core, struct request *request)
{
    if (!request->begun)
        core->n_begun++;
    request->begun = true;
}

/* ---- the end of a piece and of a request ------------------------------------------------------------------ */

/* Of everything but the lock. */
static void let_go_piece(struct sr_core *core, struct request *request)
{
    SR_ASSERT(!request->io); /* Q4 */
    core_stop_waiting_for_peer(core, request);
    if (request->message) {
        sr_slots_give(&core->messages, request->message);
        request->message = 0;
    }
    if (request->waits_for_commit) {
        request->waits_for_commit = false;
        TAILQ_REMOVE(&core->commit_wait, request, commit_wait);
    }
    core_repair_drop(core, request);
    core_intents_give(core, request);
}

static void let_go(struct sr_core *core, struct request *request)
{
    let_go_piece(core, request);
    if (sr_lock_granted(&request->lock))
        core->unlock_local_us =
            (request->local_done_us ? request->local_done_us : core->now_us) - request->granted_us;
    core_unlock(request->volume, &request->lock);
    core->unlock_local_us = 0;
}

void core_forget_request(struct sr_core *core, struct request *request)
{
    let_go(core, request);
    if (request->is_ready)
        TAILQ_REMOVE(&core->ready, request, ready);
    TAILQ_REMOVE(&core->requests, request, all);
    core->n_requests--;
    if (request->begun)
        core->n_begun--;
    core_forward_ended(core, request);
    sr_buf_unref(request->host.buf);
    free(request);
}

static void begin_piece(struct request *request)
{
    uint64_t end = request->host.offset_bytes + request->host.length_bytes;
    request->offset = request->next_offset;
    request->length = end - request->offset < PIECE_MAX_BYTES ? end - request->offset : PIECE_MAX_BYTES;
    request->next_offset = request->offset + request->length;
    request->state = PIECE_QUEUED;
    request->local_done = request->peer_done = false;
    request->local_error = SR_OK;
    request->peer_wait_since_us = 0;
    request->local_done_us = 0;
    request->wait_commit = 0;
}

static void count_request(struct sr_core *core, const struct request *request)
{
    uint64_t took = core->now_us - request->began_us;
    if (request->host.op == SR_HOST_FLUSH)
        return;
    if (is_read(request)) {
        core->count.reads++;
        core->count.read_bytes += request->host.length_bytes;
        return;
    }
    core->count.writes++;
    core->count.written_bytes += request->host.length_bytes;
    if (request->host.op == SR_HOST_WRITE)
        sr_throttle_host_write(&core->throttle, core->now_us, took, core->n_copies > 0);
}

/* The piece is done: the next one, or the reply. */
void core_leave(struct sr_core *core, struct request *request, enum sr_error error)
{
    if (error == SR_OK && request->next_offset < request->host.offset_bytes + request->host.length_bytes) {
        let_go_piece(core, request);
        begin_piece(request);
        request->state = PIECE_INTENT;
        core_make_ready(core, request);
        return;
    }
    let_go(core, request);
    count_request(core, request);
    if (!request->replied)
        core_reply_request(core, request, error);
    core_forget_request(core, request);
}

/* ---- writes ------------------------------------------------------------------------------------------------ */

static void send_write(struct sr_core *core, struct request *request)
{
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_WRITE);
    SR_ASSERT(!request->message);
    request->message = sr_slots_take(&core->messages, MSG_REQUEST, request);
    msg->id = request->message;
    msg->volume = request->volume->index;
    msg->offset_bytes = request->offset;
    msg->length_bytes = request->length;
    if (request->host.op == SR_HOST_WRITE) {
        msg->content = SR_CONTENT_DATA;
        msg->payload = sr_buf_ref(request->host.buf);
        msg->payload_offset = request->buf_offset + (uint32_t)(request->offset - request->host.offset_bytes);
        msg->payload_bytes = (uint32_t)request->length;
    } else {
        msg->content = request->host.op == SR_HOST_TRIM ? SR_CONTENT_TRIM : SR_CONTENT_ZERO;
        msg->may_trim = request->host.op == SR_HOST_TRIM || !request->host.no_hole;
    }
    msg->cached = core_cached_write(request) || (SR_BUG(FUA_CACHED_THERE) && request->volume->write_back);
    request->peer_done = false;
    core_send_msg(core, msg);
}

static void write_here(struct sr_core *core, struct request *request)
{
    struct sr_disk_io io = {
        .offset_bytes = request->offset, .length_bytes = request->length, .cached = core_cached_write(request)};
    if (request->host.op == SR_HOST_WRITE) {
        io.op = SR_DISK_WRITE;
        io.buf = request->host.buf;
        io.buf_offset = request->buf_offset + (uint32_t)(request->offset - request->host.offset_bytes);
    } else {
        io.op = SR_DISK_ZERO;
        io.may_trim = request->host.op == SR_HOST_TRIM || !request->host.no_hole;
    }
    request->io = core_start_io(core, IO_REQUEST, request, request->volume, io);
}

static void track(struct request *request)
{
    uint64_t first = piece_first(request), end = piece_end(request);
    if (SR_BUG(TRACKING_MISSED) && end > first + 1)
        end = first + 1;
    sr_dirtymap_set(&request->volume->map, first, end - first);
}

static bool mirrored(const struct sr_core *core, const struct request *request)
{
    if (SR_BUG(RESYNC_WRITES_NOT_MIRRORED) && core->mode == MODE_RESYNCING &&
        !sr_dirtymap_any(&request->volume->map, piece_first(request), 1))
        return false;
    return core_leads_open(core);
}

static void start_write(struct sr_core *core, struct request *request)
{
    if (core->mode == MODE_ALONE) {
        if (sr_lineage_must_go_alone(&core->rec))
            core_go_alone(core, core->cause);
        else if (core->stage == STAGE_HELLO && core->sent_map_empty)
            core_end_session(core, SR_CAUSE_CONNECTING); /* the greeting said that the map is empty */
        track(request);
    }
    request->state = PIECE_RUNNING;
    if (core_cached_write(request))
        core_intents_write_cached(core, request);
    if (SR_BUG(COOLED_IN_FLIGHT))
        core_commit_op(core, SR_META_CLEAN, request->volume->index)->region =
            (uint32_t)(request->offset / SR_REGION_BYTES);
    bool behind = SR_BUG(MEMBER_LEFT_BEHIND) && core->mode == MODE_ALONE && core->stage == STAGE_OPEN;
    if (mirrored(core, request) || (behind && request->volume->index)) /* Q2 */
        send_write(core, request);
    else if (core_leads_open(core))
        request->peer_done = true; /* only a planted bug comes here */
    write_here(core, request);
    if (core->mode != MODE_ALONE)
        core_wait_for_peer(core, request);
}

static bool alone_acks(const struct sr_core *core)
{
    if (core->mode != MODE_ALONE)
        return false;
    return SR_BUG(ALONE_BEFORE_COMMIT) || (core_settled(core) && !sr_lineage_must_go_alone(&core->rec)) ||
           SR_BUG(ALONE_KEEPS_GENERATION);
}

static void try_acknowledge(struct sr_core *core, struct request *request)
{
    bool here = request->local_done;
    bool there = (request->peer_done && core_leads_open(core)) || alone_acks(core) ||
                 (SR_BUG(ACK_BEFORE_PEER) && core_leads_open(core));
    if (!here || !there) /* Q3 */
        return;
    if (request->local_error == SR_E_NO_SPACE && core->mode != MODE_ALONE && !SR_BUG(NO_SPACE_LEFT_DIFFERENT)) {
        core_fix_begin(core, request);
        return;
    }
    if (request->local_error == SR_OK)
        core_drop_bad(core, request->volume, (request->offset + SR_BLOCK_BYTES - 1) / SR_BLOCK_BYTES,
                      core_first_block(request->offset + request->length));
    core_leave(core, request, request->local_error);
}

/* ---- flushes: write-back volumes only ------------------------------------------------------------------------ */

static void begin_flush(struct sr_core *core, struct request *request)
{
    request->state = PIECE_FLUSHING;
    request->flush = core_flush_want(core, request->volume);
    core_make_ready(core, request);
}

/* While this site's own disk flushes nobody waits for the peer: that time does not count. */
static void wait_for_flush(struct sr_core *core, struct request *request)
{
    const struct flush *flush = &request->volume->flush;
    bool disk = core_leads_open(core) && flush->running && !flush->here;
    if (core->mode == MODE_ALONE)
        return;
    if (disk && request->waits_for_peer) {
        core_stop_waiting_for_peer(core, request);
        request->granted_us = core->now_us;
    } else if (!disk && !request->waits_for_peer) {
        if (request->granted_us && request->peer_wait_since_us)
            request->peer_wait_since_us += core->now_us - request->granted_us;
        request->granted_us = 0;
        core_wait_for_peer(core, request);
    }
}

static void try_flushed(struct sr_core *core, struct request *request)
{
    /* A site that serves alone from its start has acknowledged nothing yet that the peer could take back. */
    bool alone = core->mode == MODE_ALONE && core_settled(core);
    if (request->volume->flush.done >= request->flush && (core_leads_open(core) || alone))
        core_leave(core, request, SR_OK);
    else
        wait_for_flush(core, request);
}

/* ---- reads ------------------------------------------------------------------------------------------------- */

static bool suspect(const struct sr_core *core, const struct request *request)
{
    return core_reads_must_wait(core) &&
           sr_dirtymap_any(&request->volume->map, piece_first(request), piece_end(request) - piece_first(request));
}

static void wait_until_settled(struct sr_core *core, struct request *request)
{
    core_unlock(request->volume, &request->lock); /* else a copy behind a waiting write would wait for us */
    request->state = PIECE_SUSPECT;
    core_wait_for_peer(core, request);
}

static void start_read(struct sr_core *core, struct request *request)
{
    core_stop_waiting_for_peer(core, request);
    request->state = PIECE_RUNNING;
    request->io = core_start_io(core, IO_REQUEST, request, request->volume,
                                (struct sr_disk_io){.op = SR_DISK_READ,
                                                    .offset_bytes = request->offset,
                                                    .length_bytes = request->length,
                                                    .buf = request->host.buf});
}

static void finish_read(struct sr_core *core, struct request *request)
{
    if (!request->local_done)
        return;
    bool peer_has_it =
        core_leads_open(core) && request->local_error != SR_OK &&
        (!sr_dirtymap_any(&request->volume->map, piece_first(request), piece_end(request) - piece_first(request)) ||
         SR_BUG(FETCHED_UNCHECKED));
    if (peer_has_it)
        core_fetch_begin(core, request);
    else
        core_leave(core, request, request->local_error);
}

/* ---- the step ---------------------------------------------------------------------------------------------- */

static void try_lock(struct sr_core *core, struct request *request)
{
    bool queues = core->mode == MODE_HANDING_OVER && !request->begun;
    if (queues && !SR_BUG(ADMITTED_WHILE_HANDING_OVER))
        return; /* the peer carries it out, or this site when the switchover is undone */
    if (!queues)
        admit(core, request);
    if (request->host.op == SR_HOST_FLUSH) {
        begin_flush(core, request);
        return;
    }
    if (is_read(request) && suspect(core, request)) {
        wait_until_settled(core, request);
        return;
    }
    request->state = PIECE_LOCKING;
    if (sr_rangelock_acquire(&request->volume->locks, &request->lock, core_first_block(request->host.offset_bytes),
                             core_end_block(request->host.offset_bytes, request->host.length_bytes), is_read(request),
                             request)) {
        request->granted_us = core->now_us;
        core_make_ready(core, request);
    } else if (core->mode != MODE_ALONE) {
        core_wait_for_peer(
            core, request); /* whoever holds the lock may come to wait for the peer: the budget runs for us too */
    }
}

static void lock_held(struct sr_core *core, struct request *request)
{
    if (!is_read(request)) {
        request->state = PIECE_INTENT;
        core_make_ready(core, request);
    } else if (suspect(core, request)) {
        wait_until_settled(core, request);
    } else {
        start_read(core, request);
    }
}

static void want_intents(struct sr_core *core, struct request *request)
{
    if (!request->has_intents && !core_intents_take(core, request)) {
        /* room comes with the commit that cools some, or when others give theirs back */
        bool cooling =
            core->intents.n_cached ? core->intents.n_cooling > 0 : core->building != NULL || core->flying != NULL;
        if (core->intents.n_cached && core->mode != MODE_ALONE)
            core_wait_for_peer(core, request); /* ... or with a flush, which is the peer's too */
        request->wait_commit = cooling ? core_next_commit(core) : UINT64_MAX;
        core->intents_wanted = core->intents_wanted || !cooling;
        wait_for_commit(core, request);
        return;
    }
    if (request->wait_commit > core->durable && !SR_BUG(WRITE_BEFORE_INTENT)) { /* Q1 */
        wait_for_commit(core, request);
        return;
    }
    start_write(core, request);
}

static void step(struct sr_core *core, struct request *request)
{
    if (!core_serving(core) || request->refused)
        return;
    switch (request->state) {
    case PIECE_QUEUED:
        try_lock(core, request);
        break;
    case PIECE_SUSPECT:
        if (suspect(core, request))
            break;
        core_stop_waiting_for_peer(core, request);
        try_lock(core, request);
        break;
    case PIECE_LOCKING:
        if (sr_lock_granted(&request->lock))
            lock_held(core, request);
        break;
    case PIECE_INTENT:
        want_intents(core, request);
        break;
    case PIECE_RUNNING:
        if (is_read(request))
            finish_read(core, request);
        else
            try_acknowledge(core, request);
        break;
    case PIECE_FIX_READ:
    case PIECE_FIX_SENT:
        core_fix_step(core, request);
        break;
    case PIECE_FORWARDED:
        break;
    case PIECE_FLUSHING:
        try_flushed(core, request);
        break;
    default:
        core_fetch_step(core, request);
        break;
    }
}

void core_run_ready(struct sr_core *core)
{
    struct request *request;
    while ((request = TAILQ_FIRST(&core->ready))) {
        TAILQ_REMOVE(&core->ready, request, ready);
        request->is_ready = false;
        step(core, request);
    }
}

struct request *core_new_request(struct sr_core *core, const struct sr_host_request *host)
{
    struct request *request = calloc(1, sizeof *request);
    SR_ASSERT(request != NULL);
    request->host = *host;
    request->volume = &core->volumes[host->volume];
    request->began_us = core->now_us;
    sr_buf_ref(host->buf);
    request->next_offset = host->offset_bytes;
    TAILQ_INSERT_TAIL(&core->requests, request, all);
    core->n_requests++;
    begin_piece(request);
    core_make_ready(core, request);
    return request;
}

/* ---- events ------------------------------------------------------------------------------------------------ */

void core_on_host(struct sr_core *core, const struct sr_host_request *host)
{
    SR_ASSERT(host->volume < core->n_volumes);
    struct volume *volume = &core->volumes[host->volume];
    bool queues = core->mode == MODE_HANDED_OVER && !core->take_sent; /* it was sent before the role was given away */
    if ((!core_serving(core) && !queues) || core->refuse_pending || core->stopping) {
        core_reply_host(core, host->id, SR_E_SHUTDOWN);
        return;
    }
    if (host->op == SR_HOST_FLUSH && (!volume->write_back || queues)) {
        /* whatever was answered is durable at both sites already */
        core_reply_host(core, host->id, SR_OK);
        return;
    }
    if (host->op == SR_HOST_FLUSH) {
        core_new_request(core, &(struct sr_host_request){.id = host->id, .volume = host->volume, .op = host->op});
        return;
    }
    SR_ASSERT(host->length_bytes > 0 && host->length_bytes <= volume->size_bytes &&
              host->offset_bytes <= volume->size_bytes - host->length_bytes);
    core_new_request(core, host);
}

/* What operators see while the pool is full.  That other blocks can be written, which have their space, says nothing. */
static void note_space(const struct request *request, enum sr_error error)
{
    struct volume *volume = request->volume;
    bool there = request->offset < volume->full_offset + volume->full_length &&
                 volume->full_offset < request->offset + request->length;
    if (error == SR_E_NO_SPACE) {
        volume->full_offset = request->offset;
        volume->full_length = request->length;
    } else if (error == SR_OK && there) {
        volume->full_length = 0;
    }
}

void core_request_io_done(struct sr_core *core, struct request *request, enum sr_error error)
{
    request->io = 0;
    bool wrote = request->state == PIECE_REWRITING || (request->state == PIECE_RUNNING && !is_read(request));
    if (request->refused) { /* nobody waits for it, but whether the copy failed matters */
        struct volume *volume = request->volume;
        core_forget_request(core, request);
        if (wrote && error != SR_OK && error != SR_E_NO_SPACE)
            core_replica_failed(core, volume, "write", error);
        return;
    }
    if (wrote)
        note_space(request, error);
    if (wrote && error == SR_E_NO_SPACE)
        core_say(core, SR_LOG_WARNING,
                 "no space left in the pool here: hosts get errors for writes that need new space");
    if (wrote && error != SR_OK && error != SR_E_NO_SPACE) {
        core_replica_failed(core, request->volume,
                            request->state == PIECE_RUNNING ? "write" : "rewrite of a bad block", error);
        return;
    }
    if (request->state != PIECE_RUNNING) { /* of a repair */
        request->local_error = error;
        request->local_done = true;
        core_make_ready(core, request);
        return;
    }
    request->local_done = true;
    request->local_done_us = core->now_us;
    request->local_error = error;
    core_make_ready(core, request);
}

void core_request_peer_done(struct sr_core *core, struct request *request, const struct sr_peer_msg *msg)
{
    request->message = 0;
    if (msg->error == SR_E_NO_SPACE && msg->type == SR_MSG_WRITTEN) {
        core_go_alone_for(core, SR_CAUSE_ALTERNATE_NO_SPACE, request->volume);
        return;
    }
    if (msg->error != SR_OK && msg->type == SR_MSG_WRITTEN) {
        core_go_alone_for(core, SR_CAUSE_ALTERNATE_IO_ERROR, request->volume);
        return;
    }
    if (request->state == PIECE_FETCHING) {
        request->local_error = msg->error;
        if (msg->error == SR_OK && request->chunk)
            memcpy(request->chunk->data, msg->payload->data + msg->payload_offset, msg->payload_bytes);
    }
    if (request->held) {
        request->held = false;
        core->held_left--;
    }
    request->peer_done = true;
    if (SR_BUG(ACK_BEFORE_LOCAL) && !request->replied && msg->type == SR_MSG_WRITTEN &&
        request->next_offset == request->host.offset_bytes + request->host.length_bytes) {
        core_reply_request(core, request, SR_OK);
        request->replied = true;
    }
    if (request->state == PIECE_RUNNING) {
        core_stop_waiting_for_peer(core, request);
        request->peer_wait_since_us = 0; /* if it comes to wait for the peer again, that is another wait */
    }
    core_make_ready(core, request);
}

/* ---- sessions ---------------------------------------------------------------------------------------------- */

void core_requests_session_ended(struct sr_core *core)
{
    struct request *request;
    TAILQ_FOREACH (request, &core->requests, all) {
        if (request->message) {
            sr_slots_give(&core->messages, request->message);
            request->message = 0;
        }
        request->held = false;
        if (is_read(request)) {
            core_make_ready(core, request);
            continue;
        }
        if (!SR_BUG(OLD_CONFIRMATIONS_KEPT))
            request->peer_done = false;
        if (request->state == PIECE_RUNNING && !request->refused && core->mode != MODE_ALONE)
            core_wait_for_peer(core, request);
        core_make_ready(core, request);
    }
    core->held_left = 0;
}

void core_requests_session_open(struct sr_core *core)
{
    struct request *request;
    core->held_left = 0;
    TAILQ_FOREACH (request, &core->requests, all) {
        if (request->state == PIECE_LOCKING && !request->refused)
            core_wait_for_peer(core, request); /* it may come to wait behind a copy */
        if (request->refused || is_read(request) || request->state != PIECE_RUNNING)
            continue;
        if (SR_BUG(HELD_WRITES_NOT_RESENT)) {
            request->peer_done = true;
            continue;
        }
        if (SR_BUG(OLD_CONFIRMATIONS_KEPT) && request->peer_done)
            continue;
        send_write(core, request);
        core_wait_for_peer(core, request);
        request->held = true;
        core->held_left++;
    }
    core_make_all_ready(core);
}

/* Alone, nobody waits for the peer; a later session starts the clock anew. */
void core_requests_forgive_peer(struct sr_core *core)
{
    struct request *request;
    while ((request = TAILQ_FIRST(&core->peer_wait))) {
        core_stop_waiting_for_peer(core, request);
        request->peer_wait_since_us = 0;
    }
}

/* What these write here may be missing at the peer. */
void core_requests_mark_unfinished(struct sr_core *core)
{
    struct request *request;
    TAILQ_FOREACH (request, &core->requests, all)
        if (!is_read(request) && request->has_intents && request->state >= PIECE_RUNNING)
            track(request);
}

void core_requests_refuse_all(struct sr_core *core)
{
    struct request *request, *next;
    for (request = TAILQ_FIRST(&core->requests); request; request = next) {
        next = TAILQ_NEXT(request, all);
        if (request->refused)
            continue;
        if (!request->replied)
            core_reply_request(core, request, SR_E_SHUTDOWN);
        core_stop_waiting_for_peer(core, request);
        request->refused = true;
        if (!request->io)
            core_forget_request(core, request);
    }
}
