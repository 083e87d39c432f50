/* session.c - the handshake with the peer's core, and how a session opens and ends.
 *
 *   leader    NONE -> HELLO -> MAP -> START -> STARTED -> OPENING -> OPEN
 *   follower  NONE -> HELLO -> JOINING -> ADOPTING -> OPEN
 *   neither   NONE -> HELLO -> PAUSED | CONFLICT | WAIT
 *
 * Every stage may end in NONE: the link fell, the peer said BYE or opened a higher session, this site went
 * alone.  The number of the session is in every message; a message of another session is dropped unread, so
 * nothing late is ever taken for a newer state.
 *
 * Invariants
 *   S1  A greeting is sent only when the record is durable, all disk work of the session before has ended, and what
 *       it wrote is stable.
 *   S2  A session ends before the record changes for going alone, pause, resume or a failed replica.
 *   S3  START is sent only when the map that covers every difference is durable; STARTED only when the
 *       lineage is; COMPLETE when `completing` is; COMPLETED when `consistent` is.
 */
#include <endian.h>

#include "core/internal.h"

/* Both sites count up by ones; a leap could only use the numbers up. */
#define SESSION_JUMP_MAX (UINT64_C(1) << 32)

bool core_leads_open(const struct sr_core *core)
{
    return core->stage == STAGE_OPEN &&
           (core->mode == MODE_RESYNCING || core->mode == MODE_MIRRORING || core->mode == MODE_HANDING_OVER);
}

bool core_serving(const struct sr_core *core)
{
    return core->mode == MODE_HOLDING || core->mode == MODE_ALONE || core->mode == MODE_RESYNCING ||
           core->mode == MODE_MIRRORING || core->mode == MODE_HANDING_OVER;
}

void core_free_peer_maps(struct sr_core *core)
{
    for (uint32_t i = 0; core->peer_maps && i < core->n_volumes; i++)
        sr_dirtymap_clear_all(&core->peer_maps[i]);
}

static void drop_follow_ops(struct sr_core *core)
{
    struct follow_op *op;
    TAILQ_FOREACH (op, &core->follow_ops, link)
        op->session = 0; /* their answers go nowhere; the disk work is still waited for (S1) */
}

void core_end_session(struct sr_core *core, enum sr_cause cause)
{
    if (core->stage == STAGE_NONE)
        return;
    if (cause != SR_CAUSE_NONE && core->link_up && !SR_BUG(ALONE_KEEPS_SESSION)) {
        struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_BYE);
        msg->cause = cause;
        core_send_msg(core, msg);
    }
    if (core_copies_equal(core)) { /* until now; an idle pair has taken no step for long */
        core->in_sync_us = core->now_us;
        core->in_sync_wall_ms = core->wall_ms;
    }
    core->stage = STAGE_NONE;
    core->sessions_ended++;
    core->hello_sent = core->map_sent = false;
    core->complete_sent = core->complete_pending = core->completed = core->completing_flush = false;
    core->peer_everything = core->peer_failed = false;
    core_free_peer_maps(core);
    core_handover_session_ended(core);
    core_flush_session_ended(core);
    if (core->mode == MODE_FOLLOWING && !core->taking) { /* for people: until when the copies were equal */
        core->rec.synced_wall_ms = core->in_sync_wall_ms;
        core_commit_record(core);
    }
    if (core->mode == MODE_RESYNCING || core->mode == MODE_MIRRORING || core->mode == MODE_HANDING_OVER)
        core->mode = MODE_HOLDING;
    else if (core->mode == MODE_CATCHING_UP || core->mode == MODE_FOLLOWING || core->mode == MODE_HANDED_OVER)
        core->mode = MODE_STANDBY;
    core_resync_session_ended(core);
    drop_follow_ops(core);
    core_requests_session_ended(core);
}

void core_on_link(struct sr_core *core, bool up)
{
    if (!up) {
        core_end_session(core, SR_CAUSE_NONE);
        core->peer_known = false;
        core->greet_back = false;
        core->probe_owed = 0;
        if (core->mode == MODE_HOLDING || core->mode == MODE_STANDBY || core->mode == MODE_ALONE) {
            if (core->link_up)
                core_set_cause(core, SR_CAUSE_PEER_UNREACHABLE, "the link to %s is down", core->peer_name);
        }
    }
    if (core->link_up || !up)
        core->session = core->session_seen = 0; /* numbers count per link */
    core->link_up = up;
    if (up && core->cause != SR_CAUSE_ALTERNATE_NO_SPACE)
        core->retry_at_us = 0; /* a new link is a new chance; a full pool is still full */
}

/* ---- greeting ------------------------------------------------------------------------------------------------ */

static bool map_is_empty(const struct sr_core *core)
{
    const struct request *request;
    TAILQ_FOREACH (request, &core->requests, all)
        if (request->has_intents)
            return false;
    return core_dirty_blocks(core) == 0 && core_flush_clean(core);
}

struct sr_greeting core_greeting(const struct sr_core *core)
{
    return (struct sr_greeting){.record = core->rec,
                                .map_empty = map_is_empty(core),
                                .dirty_blocks = core_dirty_blocks(core),
                                .boot = core->boot,
                                .flushes = core->flushes_done};
}

static void send_hello(struct sr_core *core)
{
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_HELLO);
    core->stage = STAGE_HELLO;
    core->hello_sent = true;
    core->mine = core_greeting(core);
    core->sent_map_empty = core->mine.map_empty;
    msg->greeting = core->mine;
    core_send_msg(core, msg);
}

static void greet(struct sr_core *core)
{
    bool own = core->stage == STAGE_NONE && !core->greet_back;
    if (!core->link_up || core->hello_sent || core->n_session_ios || !core_secure(core) || !core_settled(core) ||
        core->stopping || core->failover_pending || core->taking) /* S1 */
        return;
    if (core->stage != STAGE_NONE || core->now_us < core->retry_at_us)
        return;
    if (own)
        core->session = (core->session > core->session_seen ? core->session : core->session_seen) + 1;
    else
        core->session = core->session_seen;
    send_hello(core);
}

/* ---- what the two greetings say -------------------------------------------------------------------------------- */

/* Going alone ends a session; where nothing is copied in it anyway, its number may go on. */
static void alone_within_session(struct sr_core *core, enum sr_cause cause)
{
    enum stage stage = core->stage;
    core_end_session(core, SR_CAUSE_NONE);
    core_go_alone(core, cause);
    core->retry_at_us = 0;
    core->stage = stage;
    core->hello_sent = true;
}

static void become_active(struct sr_core *core)
{
    core->rec.role = SR_ROLE_ACTIVE;
    core->rec.handover = false;
    core->rec.discard = false;
    core_commit_record(core);
    core_say(core, SR_LOG_NOTICE, "this site becomes active: %s", sr_lineage_explain(&core->mine, &core->peer));
}

/* The copy here failed while it was active: the peer serves from now on, and nothing comes that would say so later.
 */
static void step_down(struct sr_core *core)
{
    if (!core->rec.failed || core->rec.role != SR_ROLE_ACTIVE)
        return;
    core->rec.role = SR_ROLE_ALTERNATE;
    core_commit_record(core);
}

/* The pause holds up the copying, not the rule that one site serves. */
static void show_paused(struct sr_core *core, enum sr_decision decision)
{
    core->stage = STAGE_PAUSED;
    if (decision == SR_DECIDE_TAKE) {
        become_active(
            core); /* the role was given away, or the other copy is unfit or given up: nobody else can serve */
        decision = SR_DECIDE_LEAD;
    }
    bool may_serve = decision == SR_DECIDE_LEAD && core->rec.role == SR_ROLE_ACTIVE;
    if (may_serve && !core_serving(core))
        core->mode = MODE_HOLDING;
    if (decision == SR_DECIDE_FOLLOW || (decision == SR_DECIDE_WAIT && core->mode != MODE_ALONE))
        core_stop_serving(core);
    if (decision == SR_DECIDE_FOLLOW)
        step_down(core);
    if (core_serving(core) && core->mode != MODE_ALONE)
        alone_within_session(core, SR_CAUSE_PAUSED);
    bool leads = decision == SR_DECIDE_LEAD;
    if (decision == SR_DECIDE_WAIT)
        core_set_cause(core, SR_CAUSE_PAUSED, "paused; when resumed: waits, %s",
                       sr_lineage_explain(&core->mine, &core->peer));
    else
        core_set_cause(core, SR_CAUSE_PAUSED,
                       "paused by an administrator; when resumed, the copy at %s is brought up to date",
                       leads ? core->peer_name : "this site");
}

/* Both were promoted, each while it was cut off or the other one dead: one may go on, the later one as far as the
 * clocks tell.  Both sites must come to the same answer; which is right is for the administrator to say. */
static bool later_failover(const struct sr_record *one, const struct sr_record *other)
{
    if (one->gen_wall_ms != other->gen_wall_ms)
        return one->gen_wall_ms > other->gen_wall_ms;
    return memcmp(&one->gen, &other->gen, sizeof one->gen) > 0;
}

/* The side that an administrator promoted goes on; else whoever was alone already. */
static void conflict(struct sr_core *core)
{
    core->stage = STAGE_CONFLICT;
    bool i_was = core->rec.made_by == SR_MADE_FAILOVER || core->rec.made_by == SR_MADE_FORCED;
    bool peer_was = core->peer.record.made_by == SR_MADE_FAILOVER || core->peer.record.made_by == SR_MADE_FORCED;
    const struct sr_record *peer = &core->peer.record;
    bool promoted = i_was && (!peer_was || peer->role != SR_ROLE_ACTIVE || later_failover(&core->rec, peer));
    bool stays = SR_BUG(CONFLICT_BOTH_SERVE) || promoted || (!i_was && !peer_was && core->rec.role == SR_ROLE_ACTIVE);
    bool peer_gave_up = peer->discard && sr_uuid_equal(&peer->discard_mine, &peer->gen) &&
                        sr_uuid_equal(&peer->discard_peer, &core->rec.gen);
    if (core->rec.discard && peer_gave_up) {
        core->rec.discard = false; /* both given up: neither counts, the administrator chooses again */
        core_commit_record(core);
    }
    core_set_cause(core, SR_CAUSE_CONFLICT, "%s", sr_lineage_explain(&core->mine, &core->peer));
    if (core->rec.discard || core->mode != MODE_ALONE || !stays)
        core_stop_serving(core);
    core_say(core, SR_LOG_ERROR, "conflict with %s: %s; nothing is copied", core->peer_name, core->detail);
}

static void wait_for_failover(struct sr_core *core)
{
    core->stage = STAGE_WAIT;
    core_set_cause(core, SR_CAUSE_WAITING_FOR_FAILOVER, "%s", sr_lineage_explain(&core->mine, &core->peer));
    if (core->mode != MODE_ALONE)
        core_stop_serving(core);
}

/* The sites agree: what stood between them is over. */
static void conflict_is_over(struct sr_core *core)
{
    if (core->cause == SR_CAUSE_CONFLICT)
        core_set_cause(core, SR_CAUSE_CONNECTING,
                       "the conflict is over: one copy was given up, or is the other's past");
}

static void lead(struct sr_core *core, bool take)
{
    conflict_is_over(core);
    if (take)
        become_active(core);
    core->stage = STAGE_MAP;
    core->peer_failed = core->peer.record.failed && !SR_BUG(FAILED_COPY_CONSISTENT);
    if (!core->peer_failed)
        return;
    if (core->mode == MODE_STANDBY)
        core->mode = MODE_HOLDING;
    core->stage = STAGE_WAIT; /* nothing can be copied until it is replaced */
    if (core->mode != MODE_ALONE || sr_lineage_must_go_alone(&core->rec))
        alone_within_session(core, SR_CAUSE_ALTERNATE_IO_ERROR);
    core_set_cause(core, SR_CAUSE_ALTERNATE_IO_ERROR, "the copy of %s at %s has failed: replace it there",
                   core_failed_name(core, &core->peer.record), core->peer_name);
}

/* A block that cannot be read here is missing here, whatever the history says: the leader copies it. */
static void claim_bad_blocks(struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes; i++)
        for (uint32_t at = 0; at < core->volumes[i].n_bad; at++)
            sr_dirtymap_set(&core->volumes[i].map, core->volumes[i].bad[at], 1);
}

static void follow(struct sr_core *core)
{
    core_stop_serving(core);
    step_down(core);
    conflict_is_over(core);
    core->shown_peer.record.role = SR_ROLE_ACTIVE; /* it is, or becomes it now */
    claim_bad_blocks(core);
    core->stage = STAGE_JOINING;
}

static void on_greetings(struct sr_core *core)
{
    const struct sr_record *peer = &core->peer.record;
    core_flush_greeted(core);
    bool stale_discard = core->rec.discard && !(sr_uuid_equal(&core->rec.discard_mine, &core->rec.gen) &&
                                                sr_uuid_equal(&core->rec.discard_peer, &peer->gen));
    if (stale_discard) {
        core->rec.discard = core->mine.record.discard = false; /* it was for another conflict */
        core_commit_record(core);
    }
    if (sr_lineage_merge_pause(&core->rec, peer))
        core_commit_record(core);
    enum sr_decision decision = sr_lineage_decide(&core->mine, &core->peer);
    core_say(core, SR_LOG_INFO, "session %llu with %s: %s%s", (unsigned long long)core->session, core->peer_name,
             sr_decision_name(decision), core->rec.paused ? " (paused)" : "");
    if (core->rec.paused && decision != SR_DECIDE_CONFLICT) {
        show_paused(core, decision);
        return;
    }
    switch (decision) {
    case SR_DECIDE_CONFLICT:
        conflict(core);
        break;
    case SR_DECIDE_WAIT:
        wait_for_failover(core);
        break;
    case SR_DECIDE_LEAD:
    case SR_DECIDE_TAKE:
        lead(core, decision == SR_DECIDE_TAKE);
        break;
    case SR_DECIDE_FOLLOW:
        follow(core);
        break;
    }
}

static void on_hello(struct sr_core *core, const struct sr_peer_msg *msg)
{
    bool newer = msg->session > core->session;
    if (newer && msg->session - core->session > SESSION_JUMP_MAX) {
        core_fault_link(core, "a HELLO of %s leaps to session %llu", core->peer_name,
                        (unsigned long long)msg->session);
        return;
    }
    if (msg->session < core->session_seen || (!newer && (msg->session < core->session || core->stage != STAGE_HELLO)))
        return;
    core->peer = core->shown_peer = msg->greeting;
    core->peer_known = true;
    if (newer) {
        core_end_session(core, SR_CAUSE_NONE);
        core->session_seen = msg->session;
        core->session = msg->session;
        core->greet_back = true; /* answered, and then decided, when all disk work of the old one has ended */
        return;
    }
    core->session_seen = msg->session;
    on_greetings(core);
}

/* ---- following ------------------------------------------------------------------------------------------------- */

static void send_map_part(struct sr_core *core, struct sr_buf *buf, uint32_t n, bool last, bool everything)
{
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_MAP);
    msg->last = last;
    msg->everything = everything;
    msg->n_entries = n;
    msg->payload = n ? buf : NULL;
    msg->payload_bytes = n * SR_MAP_ENTRY_BYTES;
    if (!n)
        sr_buf_unref(buf);
    core_send_msg(core, msg);
}

static void send_maps(struct sr_core *core)
{
    struct sr_buf *buf = NULL;
    uint32_t n = 0;
    bool everything = false;
    for (uint32_t i = 0; i < core->n_volumes; i++)
        everything |= core->volumes[i].map.from != SR_DIRTYMAP_NOWHERE;
    for (uint32_t i = 0; i < core->n_volumes && !everything; i++) {
        const struct sr_dirtymap *map = &core->volumes[i].map;
        for (uint32_t region = sr_dirtymap_next_region(map, 0); region < map->n_regions;
             region = sr_dirtymap_next_region(map, region + 1)) {
            if (!buf)
                buf = sr_buf_alloc(NULL, (size_t)SR_MAP_ENTRIES_MAX * SR_MAP_ENTRY_BYTES);
            SR_ASSERT(buf != NULL);
            uint8_t *at = buf->data + (size_t)n * SR_MAP_ENTRY_BYTES;
            uint32_t place[2] = {htole32(i), htole32(region)};
            memcpy(at, place, sizeof place);
            sr_dirtymap_region_bits(map, region, at + 8);
            if (++n == SR_MAP_ENTRIES_MAX) {
                send_map_part(core, buf, n, false, false);
                buf = NULL;
                n = 0;
            }
        }
    }
    send_map_part(core, buf, n, true, everything);
    core->map_sent = true;
}

static void on_start(struct sr_core *core, const struct sr_peer_msg *msg)
{
    const struct sr_record *leader = &msg->lineage;
    if (sr_uuid_is_none(&leader->gen)) {
        core_fault_link(core, "%s sent a START without a generation", core->peer_name);
        return;
    }
    bool same_gen = sr_uuid_equal(&leader->gen, &core->rec.gen);
    core->rec.role = SR_ROLE_ALTERNATE;
    core->shown_peer.record.role = SR_ROLE_ACTIVE;
    core->rec.gen = leader->gen;
    core->rec.made_by = leader->made_by;
    core->rec.gen_wall_ms = leader->gen_wall_ms;
    core->rec.base_kind = SR_BASE_NONE;
    memset(&core->rec.base, 0, sizeof core->rec.base);
    core->rec.handover = core->rec.discard = core->rec.completing = false;
    if (!same_gen) {
        core->rec.n_ancestors = 0;
        core->rec.consistent = false;
    }
    sr_lineage_merge_pause(&core->rec, leader);
    core_flush_given_up(core); /* it is in the map that the leader has */
    core_commit_clear_maps(core);
    core_commit_record(core);
    core->stage = STAGE_ADOPTING;
    if (SR_BUG(STARTED_BEFORE_COMMIT))
        core->rec_commit = 0;
}

static void on_complete(struct sr_core *core, const struct sr_peer_msg *msg)
{
    struct sr_record after = core->rec;
    const char *why;
    after.consistent = true;
    after.n_ancestors = msg->lineage.n_ancestors;
    memcpy(after.ancestors, msg->lineage.ancestors, sizeof after.ancestors);
    if (!sr_record_valid(&after, &why)) {
        core_fault_link(core, "a COMPLETE of %s would leave a record with a wrong %s", core->peer_name, why);
        return;
    }
    core->complete_lineage = msg->lineage;
    core->completing_flush = true;
    for (uint32_t i = 0; i < core->n_volumes; i++)
        core_secure_start(core, &core->volumes[i]);
}

static void follow_pump(struct sr_core *core)
{
    if (core->stage == STAGE_JOINING && !core->map_sent && core->n_ios == 0 && core_settled(core))
        send_maps(core);
    if (core->stage == STAGE_ADOPTING && core_settled(core)) { /* S3 */
        core->stage = STAGE_OPEN;
        core->mode = MODE_CATCHING_UP;
        core_set_cause(core, SR_CAUSE_RESYNCING, "%s", "");
        core_send_msg(core, core_new_msg(core, SR_MSG_STARTED));
    }
    if (core->mode == MODE_CATCHING_UP && core->completing_flush && core->flushes_left == 0) {
        core->completing_flush = false;
        core->rec.consistent = true;
        core->rec.synced_wall_ms = core->wall_ms;
        core->rec.n_ancestors = core->complete_lineage.n_ancestors;
        memcpy(core->rec.ancestors, core->complete_lineage.ancestors, sizeof core->rec.ancestors);
        core_commit_record(core);
        core->completed = true;
    }
    if (core->mode == MODE_CATCHING_UP && core->completed && core_settled(core)) {
        core->completed = false;
        core->mode = MODE_FOLLOWING;
        core_set_cause(core, SR_CAUSE_NONE, "%s", "");
        core_say(core, SR_LOG_NOTICE, "in sync with %s", core->peer_name);
        core_send_msg(core, core_new_msg(core, SR_MSG_COMPLETED));
    }
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

static void on_bye(struct sr_core *core, const struct sr_peer_msg *msg)
{
    enum sr_cause cause = msg->cause;
    core_end_session(core, SR_CAUSE_NONE);
    if (cause == SR_CAUSE_SHUTDOWN)
        core_set_cause(core, SR_CAUSE_PEER_UNREACHABLE, "%s is shutting down", core->peer_name);
    else if (cause != SR_CAUSE_CONNECTING)
        core_set_cause(core, cause, "%s ended the session", core->peer_name);
}

static void answered(struct sr_core *core, const struct sr_peer_msg *msg)
{
    uint32_t kind;
    void *owner = sr_slots_find(&core->messages, msg->id, &kind);
    if (!owner) {
        core_fault_link(core, "%s answered an operation that is not out (%s)", core->peer_name,
                        sr_peer_msg_name(msg->type));
        return;
    }
    if (kind == MSG_REQUEST) {
        struct request *request = owner;
        enum piece_state state = request->state;
        bool fetched = msg->type == SR_MSG_FETCHED;
        bool fits = fetched == (state == PIECE_FETCHING) && (fetched || msg->type == SR_MSG_WRITTEN);
        if (!fits || (fetched && msg->error == SR_OK && msg->payload_bytes != request->chunk_length)) {
            core_fault_link(core, "%s answered with the wrong message (%s)", core->peer_name,
                            sr_peer_msg_name(msg->type));
            return;
        }
        sr_slots_give(&core->messages, msg->id);
        core_request_peer_done(core, request, msg);
        return;
    }
    if ((kind == MSG_FLUSH) != (msg->type == SR_MSG_FLUSHED)) {
        core_fault_link(core, "%s answered with the wrong message (%s)", core->peer_name,
                        sr_peer_msg_name(msg->type));
        return;
    }
    if (kind == MSG_FLUSH) {
        sr_slots_give(&core->messages, msg->id);
        core_flush_peer_done(core, owner, msg->error);
        return;
    }
    struct copy *copy = owner;
    bool hashed = msg->type == SR_MSG_HASHED;
    if (hashed != (copy->state == COPY_COMPARING) || (!hashed && msg->type != SR_MSG_COPIED)) {
        core_fault_link(core, "%s answered with the wrong message (%s)", core->peer_name,
                        sr_peer_msg_name(msg->type));
        return;
    }
    sr_slots_give(&core->messages, msg->id);
    if (hashed)
        core_copy_compared(core, copy, msg);
    else
        core_copy_confirmed(core, copy, msg);
}

static bool in_stage(struct sr_core *core, const struct sr_peer_msg *msg, bool fits)
{
    if (!fits)
        core_fault_link(core, "%s sent %s out of turn", core->peer_name, sr_peer_msg_name(msg->type));
    return fits;
}

static bool follows_open(const struct sr_core *core)
{
    return core->stage == STAGE_OPEN && !core->taking &&
           (core->mode == MODE_CATCHING_UP || core->mode == MODE_FOLLOWING);
}

/* Does this message of a switchover fit what this site does? */
static bool handover_fits(const struct sr_core *core, enum sr_peer_msg_type type)
{
    switch (type) {
    case SR_MSG_PREPARE:
    case SR_MSG_TAKE:
        return follows_open(core) && core->mode == MODE_FOLLOWING;
    case SR_MSG_READY: /* may be the answer to an attempt that was undone */
        return core_leads_open(core) && core->handover_id;
    case SR_MSG_TAKEN:
        return core->stage == STAGE_OPEN && core->mode == MODE_HANDED_OVER && core->take_sent;
    case SR_MSG_FORWARD:
        return core->stage == STAGE_OPEN && core->forwards_left;
    default:
        return core->stage == STAGE_OPEN && core->n_forwards_out;
    }
}

static void dispatch(struct sr_core *core, struct sr_peer_msg *msg)
{
    switch (msg->type) {
    case SR_MSG_HELLO:
        on_hello(core, msg);
        break;
    case SR_MSG_BYE:
        on_bye(core, msg);
        break;
    case SR_MSG_MAP:
        if (in_stage(core, msg, core->stage == STAGE_WAIT || (core->stage == STAGE_MAP && !core->map_sent)) &&
            core->stage == STAGE_MAP)
            core_lead_map(core, msg);
        break;
    case SR_MSG_START:
        if (in_stage(core, msg, core->stage == STAGE_JOINING && core->map_sent))
            on_start(core, msg);
        break;
    case SR_MSG_STARTED:
        if (in_stage(core, msg, core->stage == STAGE_STARTED))
            core_lead_started(core);
        break;
    case SR_MSG_COMPLETE:
        if (in_stage(core, msg,
                     core->stage == STAGE_OPEN && core->mode == MODE_CATCHING_UP && !core->completing_flush))
            on_complete(core, msg);
        break;
    case SR_MSG_COMPLETED:
        if (in_stage(core, msg, core_leads_open(core) && core->complete_sent))
            core_lead_completed(core);
        break;
    case SR_MSG_WRITTEN:
    case SR_MSG_COPIED:
    case SR_MSG_HASHED:
    case SR_MSG_FETCHED:
    case SR_MSG_FLUSHED:
        if (SR_BUG(MEMBER_LEFT_BEHIND) && core->mode == MODE_ALONE)
            break;
        if (in_stage(core, msg, core_leads_open(core)))
            answered(core, msg);
        break;
    case SR_MSG_PREPARE:
    case SR_MSG_READY:
    case SR_MSG_TAKE:
    case SR_MSG_TAKEN:
    case SR_MSG_FORWARD:
    case SR_MSG_FORWARDED:
        if (in_stage(core, msg, handover_fits(core, msg->type)))
            core_handover_msg(core, msg);
        break;
    case SR_MSG_PROBE:
    case SR_MSG_PROBED:
        core_on_probe(core, msg);
        break;
    case SR_MSG_WRITE:
    case SR_MSG_COPY:
    case SR_MSG_HASH:
    case SR_MSG_FETCH:
    case SR_MSG_FLUSH:
        if (in_stage(core, msg, follows_open(core)))
            core_follow_msg(core, msg);
        break;
    default:
        in_stage(core, msg, false);
    }
}

/* The peer withdrew a greeting that was not answered yet. */
static bool takes_back_greeting(struct sr_core *core, const struct sr_peer_msg *msg)
{
    bool so = core->greet_back && msg->type == SR_MSG_BYE && msg->session == core->session_seen;
    if (so)
        core->greet_back = core->hello_sent = false;
    return so;
}

void core_on_msg(struct sr_core *core, struct sr_peer_msg *msg)
{
    /* these belong to no session */
    bool hello = msg->type == SR_MSG_HELLO || msg->type == SR_MSG_PROBE || msg->type == SR_MSG_PROBED;
    bool of_this = core->stage != STAGE_NONE && msg->session == core->session;
    if (SR_BUG(ENDED_SESSION_HEARD) && !hello)
        of_this = true;
    if (core->link_up && !takes_back_greeting(core, msg) && (hello || of_this))
        dispatch(core, msg);
    sr_peer_msg_free(msg);
}

void core_session_pump(struct sr_core *core)
{
    greet(core);
    if (core->greet_back && core->hello_sent && core->stage == STAGE_HELLO) {
        core->greet_back = false;
        on_greetings(core);
    }
    core_lead_pump(core);
    follow_pump(core);
}
