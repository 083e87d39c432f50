/* handover.c - switchover: the active role moves to a peer that is in sync, and no host sees more than a pause.
 *
 *   active site                                       peer
 *   HANDING_OVER  requests that have not begun queue
 *                 PREPARE                        ->
 *                                                <-   READY, or why not
 *                 those under way end, and what is in caches is flushed at both sites
 *   HANDED_OVER   commit role = alternate, handover = true, empty map; hosts' connections are retired: what they
 *                 had sent by then queues too
 *                 TAKE, then one FORWARD for each
 *                 request that queued, a window
 *                 of them at a time              ->
 *                                                     commit role = active, handover = false
 *                                                <-   TAKEN: MIRRORING, leads from here
 *   FOLLOWING     commit handover = false
 *                                                <-   FORWARDED: answered on the old connection, which then closes
 *
 * Invariants
 *   H1  Until the commit is handed out anything that goes wrong undoes it and the queue runs on; after it this site
 *       never serves again by itself: a crash or a lost link is finished by the next handshake (`handover`).
 *   H2  TAKE is sent only when the commit is durable, TAKEN only when the peer's is.
 *   H3  The peer takes in every forwarded request before its own hosts are let in, so whatever those write comes
 *       later in the order of the range locks.  A request that was not forwarded, or whose session ended, is never
 *       carried out later: its connection closes without an answer (no stale late write).
 *   H4  What is forwarded and not yet answered carries at most `forward_window_bytes`, or is one request.  The peer
 *       frees its memory only when this site has confirmed the writes, by answers that come behind whatever else was
 *       forwarded: it cannot leave that in the socket until there is room.
 *   H5  When the role is given away all that was answered is stable at both sites, in write-back volumes too.  A FLUSH
 *       that queued is answered then; none is forwarded.
 *
 * A crash at any line is harmless: the records alone say who has the role.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/internal.h"

static bool waits_here(const struct request *request)
{
    return request->state == PIECE_QUEUED && !request->begun && !request->refused;
}

/* ---- the site that is active ------------------------------------------------------------------------------------
 */

/* READY is one round trip; then come this site's commit, the peer's, and TAKEN. */
uint64_t core_handover_estimate_us(const struct sr_core *core)
{
    uint64_t write_us = sr_throttle_latency_us(&core->throttle);
    return 2 * write_us + 2 * core->commit_took_us;
}

static const char *cannot(const struct sr_core *core, enum sr_error *error)
{
    *error = SR_E_REFUSED;
    if (core->stopping)
        return "this site is stopping";
    if (core->rec.paused)
        return "it is paused: resume it first";
    if (core->mode == MODE_MIRRORING)
        return NULL;
    if (core->link_up)
        return "it is not in sync";
    *error = SR_E_UNREACHABLE;
    return "the sites are not connected";
}

static void begin(struct sr_core *core)
{
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_PREPARE);
    core->mode = MODE_HANDING_OVER;
    core->peer_ready = core->take_sent = false;
    core->handover_began_us = core->now_us;
    core->handover_deadline_us = core->now_us + (uint64_t)core->tune.stall_budget_ms * 500; /* half of it */
    core->handover_why[0] = '\0';
    msg->id = ++core->handover_id;
    core_send_msg(core, msg);
    core_flush_all(core); /* so that less is left when the last request has ended */
    core_say(core, SR_LOG_NOTICE, "switchover to %s begins", core->peer_name);
}

const char *sr_core_switchover_refusal(const struct sr_core *core, enum sr_error *error)
{
    *error = SR_E_REFUSED;
    if (core->rec.role != SR_ROLE_ACTIVE)
        return core->rec.handover ? "the active role is on its way already" : "it is not active at this site";
    if (core->mode == MODE_HANDING_OVER || core->taking || core->forwards_left)
        return "a switchover is under way";
    return cannot(core, error);
}

void core_handover_command(struct sr_core *core, uint64_t id)
{
    /* Half the budget until it is undone, the whole of it for the peer to take the role. */
    uint64_t deadline_us = core->now_us + (uint64_t)core->tune.stall_budget_ms * 2000 + 1000000;
    bool under_way = core->mode == MODE_HANDING_OVER || core->mode == MODE_HANDED_OVER;
    if (core->rec.role != SR_ROLE_ACTIVE && !core->rec.handover) {
        core_answer_admin(core, id, SR_E_REFUSED, "%s is not active at this site", core->name);
        return;
    }
    enum sr_error error = SR_E_REFUSED;
    const char *why = under_way || core->rec.handover ? NULL : cannot(core, &error);
    if (why || core->taking || core->forwards_left) {
        core_answer_admin(core, id, error, "%s cannot be switched over: %s", core->name,
                          why ? why : "its role is only just moving here");
        return;
    }
    core_remember_admin(core, id, SR_ADMIN_SWITCHOVER, deadline_us);
    if (!under_way && !core->rec.handover)
        begin(core);
}

/* In the order in which they came: one that has come in this very step must not overtake those that queued.  Whoever
 * queued because of the peer has been waiting for it all that time. */
static void run_on(struct sr_core *core, bool peer_was_late)
{
    struct request *request;
    TAILQ_FOREACH (request, &core->requests, all) {
        if (peer_was_late && waits_here(request))
            request->peer_wait_since_us =
                request->began_us > core->handover_began_us ? request->began_us : core->handover_began_us;
        if (request->is_ready)
            TAILQ_REMOVE(&core->ready, request, ready);
        request->is_ready = false;
        core_make_ready(core, request);
    }
}

void core_handover_undo(struct sr_core *core, const char *why)
{
    SR_ASSERT(core->mode == MODE_HANDING_OVER);
    core->mode = MODE_MIRRORING;
    core->handover_deadline_us = 0;
    snprintf(core->handover_why, sizeof core->handover_why, "%s", why);
    core_say(core, SR_LOG_WARNING, "switchover undone: %s", why);
    run_on(core, !core->peer_ready);
}

/* All that was answered is stable at both sites: they have waited long enough. */
static void answer_flushes(struct sr_core *core)
{
    struct request *request, *next;
    for (request = TAILQ_FIRST(&core->requests); request; request = next) {
        next = TAILQ_NEXT(request, all);
        if (waits_here(request) && request->host.op == SR_HOST_FLUSH)
            core_leave(core, request, SR_OK);
    }
}

/* From here on the role is given away (H1). */
static void give_away(struct sr_core *core)
{
    core_flush_forget(core); /* there is nothing, but for a planted bug */
    answer_flushes(core);
    core->rec.role = SR_ROLE_ALTERNATE;
    core->rec.handover = !SR_BUG(HANDOVER_NOT_RECORDED);
    core->rec.synced_wall_ms = core->wall_ms;
    core_commit_clear_maps(core);
    core_commit_record(core);
    core->mode = MODE_HANDED_OVER;
    core->handover_deadline_us = core->handover_began_us + (uint64_t)core->tune.stall_budget_ms * 1000;
    core_set_cause(core, SR_CAUSE_HANDING_OVER, "the active role is on its way to %s", core->peer_name);
    core->retired = true;
    core->hosts_read = false;
    core_act(core, SR_ACT_RETIRE);
}

/* What it occupies at the peer: its data, or room for what it reads. */
static uint64_t forward_bytes(const struct request *request)
{
    bool has_buffer = request->host.op == SR_HOST_READ || request->host.op == SR_HOST_WRITE;
    return has_buffer ? request->host.length_bytes : 0;
}

static void forward(struct sr_core *core, struct request *request)
{
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_FORWARD);
    request->state = PIECE_FORWARDED;
    core->n_forwards_out++;
    core->forward_bytes_out += forward_bytes(request);
    core_stop_waiting_for_peer(core, request);
    request->message = sr_slots_take(&core->messages, MSG_FORWARD, request);
    msg->id = request->message;
    msg->volume = request->host.volume;
    msg->offset_bytes = request->host.offset_bytes;
    msg->length_bytes = request->host.length_bytes;
    msg->may_trim = request->host.op == SR_HOST_TRIM || !request->host.no_hole;
    msg->fua = request->host.fua;
    switch (request->host.op) {
    case SR_HOST_READ:
        msg->content = SR_CONTENT_READ;
        break;
    case SR_HOST_WRITE:
        msg->content = SR_CONTENT_DATA;
        msg->payload = sr_buf_ref(request->host.buf);
        msg->payload_offset = request->buf_offset;
        msg->payload_bytes = (uint32_t)request->host.length_bytes;
        break;
    case SR_HOST_TRIM:
        msg->content = SR_CONTENT_TRIM;
        break;
    default:
        msg->content = SR_CONTENT_ZERO;
        break;
    }
    core_send_msg(core, msg);
}

/* One that is out, or one of the other site's, is being forgotten. */
void core_forward_ended(struct sr_core *core, const struct request *request)
{
    if (request->state == PIECE_FORWARDED) {
        core->n_forwards_out--;
        core->forward_bytes_out -= forward_bytes(request);
    }
    if (request->forwarded == core->sessions_ended + 1)
        core->forwarded_bytes -= forward_bytes(request);
}

/* In the order in which they came, as far as the window goes (H4). */
static void send_forwards(struct sr_core *core)
{
    struct request *request;
    TAILQ_FOREACH (request, &core->requests, all) {
        if (!core->forwards_unsent)
            return;
        if (!waits_here(request))
            continue;
        if (core->n_forwards_out &&
            core->forward_bytes_out + forward_bytes(request) > core->tune.forward_window_bytes)
            return;
        core->forwards_unsent--;
        forward(core, request);
    }
}

static void send_take(struct sr_core *core)
{
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_TAKE);
    struct request *request;
    TAILQ_FOREACH (request, &core->requests, all)
        msg->n_forwards += waits_here(request);
    core->take_sent = true;
    core->forwards_unsent = msg->n_forwards;
    core_send_msg(core, msg);
}

bool core_forwards_due(const struct sr_core *core)
{
    return core->n_forwards_out || core->forwards_unsent;
}

static void taken(struct sr_core *core)
{
    core->rec.handover = false;
    core_commit_record(core);
    core->mode = MODE_FOLLOWING;
    core->shown_peer.record.role = SR_ROLE_ACTIVE;
    core->handover_deadline_us =
        core->now_us + (uint64_t)core->tune.stall_budget_ms * 1000; /* for what was forwarded */
    core->handover_took_us = core->now_us - core->handover_began_us;
    core_set_cause(core, SR_CAUSE_NONE, "%s", "");
    core_say(core, SR_LOG_NOTICE, "%s is active; hosts waited %llu ms", core->peer_name,
             (unsigned long long)core->handover_took_us / 1000);
    for (uint32_t i = 0; i < core->n_volumes; i++)
        if (core->volumes[i].n_bad) { /* as a follower this site claims them, in a session of its own */
            core_end_session(core, SR_CAUSE_CONNECTING);
            break;
        }
}

static void on_ready(struct sr_core *core, const struct sr_peer_msg *msg)
{
    char why[120];
    if (core->mode != MODE_HANDING_OVER || msg->id != core->handover_id)
        return; /* of an attempt that was undone */
    core->peer_ready = true;
    if (msg->error == SR_OK)
        return;
    snprintf(why, sizeof why, "%s is not ready: %s", core->peer_name, sr_error_text(msg->error));
    core_handover_undo(core, why);
}

static void on_forwarded(struct sr_core *core, const struct sr_peer_msg *msg)
{
    uint32_t kind;
    struct request *request = sr_slots_find(&core->messages, msg->id, &kind);
    bool read = request && kind == MSG_FORWARD && request->host.op == SR_HOST_READ && msg->error == SR_OK;
    if (!request || kind != MSG_FORWARD || msg->payload_bytes != (read ? request->host.length_bytes : 0)) {
        core_fault_link(core, "%s answered a request that was not forwarded to it", core->peer_name);
        return;
    }
    if (read)
        memcpy(request->host.buf->data + request->buf_offset, msg->payload->data + msg->payload_offset,
               msg->payload_bytes);
    core_reply_request(core, request, msg->error);
    core_forget_request(core, request);
}

/* ---- the peer
 * ------------------------------------------------------------------------------------------------------ */

static enum sr_error self_check(const struct sr_core *core)
{
    if (core->stopping)
        return SR_E_SHUTDOWN;
    for (uint32_t i = 0; i < core->n_volumes; i++)
        if (core->volumes[i].n_bad)
            return SR_E_IO;
    return core_settled(core) ? SR_OK : SR_E_BUSY;
}

static void on_prepare(struct sr_core *core, const struct sr_peer_msg *msg)
{
    struct sr_peer_msg *answer = core_new_msg(core, SR_MSG_READY);
    answer->id = msg->id;
    answer->error = self_check(core);
    core_send_msg(core, answer);
}

static void on_take(struct sr_core *core, const struct sr_peer_msg *msg)
{
    if (core->n_follow_ops || !core_secure(core) || msg->n_forwards > FOLLOW_OPS_MAX) {
        core_fault_link(core, "%s gave the active role away too early", core->peer_name);
        return;
    }
    core->taking = true;
    core->forwards_left = msg->n_forwards;
    core->handover_began_us = core->now_us;
    core->rec.role = SR_ROLE_ACTIVE;
    core->rec.handover = core->rec.discard = false;
    core->rec.synced_wall_ms = core->wall_ms;
    core_commit_record(core);
    if (SR_BUG(TAKEN_BEFORE_COMMIT))
        core->rec_commit = 0;
}

static enum sr_host_op op_of(enum sr_content content)
{
    switch (content) {
    case SR_CONTENT_DATA:
        return SR_HOST_WRITE;
    case SR_CONTENT_ZERO:
        return SR_HOST_ZERO;
    case SR_CONTENT_TRIM:
        return SR_HOST_TRIM;
    default:
        return SR_HOST_READ;
    }
}

static bool forward_fits(const struct sr_core *core, const struct sr_peer_msg *msg)
{
    if (msg->volume >= core->n_volumes)
        return false;
    uint64_t size = core->volumes[msg->volume].size_bytes;
    bool by_content = msg->content == SR_CONTENT_DATA || msg->content == SR_CONTENT_READ;
    if (!msg->length_bytes || msg->length_bytes > size || msg->offset_bytes > size - msg->length_bytes)
        return false;
    if (by_content && msg->length_bytes > SR_IO_MAX_BYTES)
        return false;
    return msg->payload_bytes == (msg->content == SR_CONTENT_DATA ? msg->length_bytes : 0);
}

static void on_forward(struct sr_core *core, struct sr_peer_msg *msg)
{
    uint64_t bytes = msg->content == SR_CONTENT_DATA || msg->content == SR_CONTENT_READ ? msg->length_bytes : 0;
    bool fits = forward_fits(core, msg) && core->forwarded_bytes + bytes <= SR_FORWARD_WINDOW_BYTES; /* H4 */
    if (!core->forwards_left || !fits) {
        core_fault_link(core, "%s forwarded a request that does not fit", core->peer_name);
        return;
    }
    core->forwards_left--;
    core->forwarded_bytes += bytes;
    struct sr_host_request host = {.id = msg->id,
                                   .volume = msg->volume,
                                   .op = op_of(msg->content),
                                   .no_hole = !msg->may_trim,
                                   .fua = msg->fua,
                                   .offset_bytes = msg->offset_bytes,
                                   .length_bytes = msg->length_bytes};
    if (host.op == SR_HOST_READ)
        host.buf = sr_buf_alloc(core->budget, host.length_bytes);
    else if (host.op == SR_HOST_WRITE)
        host.buf = msg->payload; /* the request takes a reference of its own */
    struct request *request = core_new_request(core, &host);
    request->forwarded = core->sessions_ended + 1;
    request->buf_offset = msg->payload_offset;
    if (host.op != SR_HOST_READ)
        return;
    if (!host.buf) { /* no memory for its answer: it closes its connection and asks again */
        core_reply_request(core, request, SR_E_SHUTDOWN);
        core_forget_request(core, request);
        return;
    }
    sr_buf_unref(host.buf); /* the request holds its own */
}

/* The role is this site's, durably. */
static void took(struct sr_core *core)
{
    bool open = core->stage == STAGE_OPEN && core->mode == MODE_FOLLOWING;
    core->taking = false;
    core->handover_took_us = core->now_us - core->handover_began_us;
    if (!open) { /* the session ended meanwhile: as any active site whose session ended */
        if (core->mode == MODE_STANDBY && core->rec.role == SR_ROLE_ACTIVE && core->rec.consistent)
            core->mode = MODE_HOLDING;
        return;
    }
    core->shown_peer.record.role = SR_ROLE_ALTERNATE;
    core_send_msg(core, core_new_msg(core, SR_MSG_TAKEN));
    core_in_sync(core);
    core_say(core, SR_LOG_NOTICE, "this site is active: %s handed it over", core->peer_name);
}

/* ---- both
 * ---------------------------------------------------------------------------------------------------------- */

/* Called before the mode of the ended session is left. */
void core_handover_session_ended(struct sr_core *core)
{
    struct request *request, *next;
    if (core->mode == MODE_HANDING_OVER) {
        snprintf(core->handover_why, sizeof core->handover_why, "the session with %s ended", core->peer_name);
        core->handover_deadline_us = 0;
        run_on(core, true);
    } else if (core->mode == MODE_HANDED_OVER || core->mode == MODE_FOLLOWING) {
        core->handover_deadline_us = 0;
        snprintf(core->handover_why, sizeof core->handover_why, "%s could not take the role", core->peer_name);
        core->refuse_pending = core->refuse_pending || (core->n_requests && !core->taking); /* H3 */
    }
    core->forwards_left = core->forwards_unsent = 0;
    core->forwarded_bytes = 0; /* counts those of this session */
    for (request = TAILQ_FIRST(&core->requests); request; request = next) {
        next = TAILQ_NEXT(request, all);
        if (request->state == PIECE_FORWARDED) /* whether it was carried out is not known */
            core_reply_request(core, request, SR_E_SHUTDOWN);
        else if (!request->forwarded || request->begun)
            continue;
        core_forget_request(core, request); /* H3: its connection, here or at the other site, is closed */
    }
}

void core_handover_msg(struct sr_core *core, struct sr_peer_msg *msg)
{
    switch (msg->type) {
    case SR_MSG_PREPARE:
        on_prepare(core, msg);
        break;
    case SR_MSG_READY:
        on_ready(core, msg);
        break;
    case SR_MSG_TAKE:
        on_take(core, msg);
        break;
    case SR_MSG_TAKEN:
        taken(core);
        break;
    case SR_MSG_FORWARD:
        on_forward(core, msg);
        break;
    default:
        on_forwarded(core, msg);
        break;
    }
}

static void answer_admins(struct sr_core *core)
{
    struct admin *admin, *next;
    bool done = core->rec.role == SR_ROLE_ALTERNATE && !core->rec.handover && core->mode != MODE_HANDED_OVER &&
                core_settled(core);
    bool undone = core->rec.role == SR_ROLE_ACTIVE && core->mode != MODE_HANDING_OVER;
    for (admin = TAILQ_FIRST(&core->admins); admin && (done || undone); admin = next) {
        next = TAILQ_NEXT(admin, link);
        if (admin->command != SR_ADMIN_SWITCHOVER)
            continue;
        if (done)
            core_answer_admin(core, admin->id, SR_OK, "%s is active at %s; hosts waited %llu ms", core->name,
                              core->peer_name, (unsigned long long)core->handover_took_us / 1000);
        else
            core_answer_admin(core, admin->id, SR_E_REFUSED, "%s stays active here: %s", core->name,
                              core->handover_why);
        core_end_admin(core, admin);
    }
}

static bool has_deadline(const struct sr_core *core)
{
    return core->handover_deadline_us && (core->mode == MODE_HANDING_OVER || core->mode == MODE_HANDED_OVER ||
                                          (core_forwards_due(core) && !SR_BUG(FORWARDS_UNBOUNDED)));
}

static void on_deadline(struct sr_core *core)
{
    char why[120];
    if (core->mode == MODE_FOLLOWING) { /* the peer never makes a host wait for longer than that, not here either */
        core_say(core, SR_LOG_WARNING, "%s does not answer what was forwarded to it: those connections close",
                 core->peer_name);
        core_end_session(core, SR_CAUSE_PEER_STALLED);
        return;
    }
    if (core->mode == MODE_HANDED_OVER) {
        core_say(core, SR_LOG_WARNING, "%s has not taken the active role in time: it does at the next handshake",
                 core->peer_name);
        core_end_session(core, SR_CAUSE_HANDING_OVER);
        return;
    }
    if (core->peer_ready && core->n_begun == 0)
        snprintf(why, sizeof why, "what is in the caches was not flushed in time");
    else if (core->peer_ready)
        snprintf(why, sizeof why, "requests that were under way here did not end in time");
    else
        snprintf(why, sizeof why, "%s did not say in time that it is ready", core->peer_name);
    core_handover_undo(core, why);
}

void core_handover_pump(struct sr_core *core)
{
    bool may_give = core->mode == MODE_HANDING_OVER && core->peer_ready &&
                    (core->n_begun == 0 || SR_BUG(GIVEN_WITH_WRITES_LEFT)) && core_settled(core);
    bool clean = may_give && (core_flush_clean(core) || SR_BUG(GIVEN_WITHOUT_FLUSH)); /* H5 */
    if (may_give && clean)
        give_away(core);
    else if (may_give)
        core_flush_all(core);
    bool given = core_settled(core) || SR_BUG(ROLE_GIVEN_LATE);
    if (core->mode == MODE_HANDED_OVER && !core->take_sent && given && core->hosts_read) /* H2 */
        send_take(core);
    if (core->forwards_unsent)
        send_forwards(core);
    if (core->taking && core_settled(core))
        took(core);
    if (has_deadline(core) && core->now_us >= core->handover_deadline_us)
        on_deadline(core);
    answer_admins(core);
}

uint64_t core_handover_next_us(const struct sr_core *core)
{
    return has_deadline(core) ? core->handover_deadline_us : 0;
}
