/* failover.c - what an administrator decides when the sites cannot: failover, giving diverged writes up; and the
 * probe that shows how the peer stands now.
 *
 * A failover asks the peer first: while it answers within a second and is active, it is refused, whatever the session
 * between the two.  Then the session ends, the disk work that the peer had asked for ends, and one commit makes a
 * generation of its own, which nobody takes for another's.  Hosts are served when that is durable.
 *
 * A crash at any line is harmless: before the commit nothing has changed, after it the record says all.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/internal.h"

#define PROBE_US       UINT64_C(1000000)
#define DISK_WAIT_US   UINT64_C(5000000) /* for writes of the old session that are still at the disk here */
#define COMMIT_WAIT_US UINT64_C(2000000)

/* ---- probes ------------------------------------------------------------------------------------------------------
 */

static void send_probe(struct sr_core *core, struct admin *admin)
{
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_PROBE);
    admin->probe = msg->id = ++core->next_probe;
    admin->probe_until_us = core->now_us + PROBE_US;
    msg->session = 0;
    core->probe_answered = false;
    core_send_msg(core, msg);
}

/* Is a failover of this site under way?  Of two that meet neither may find the other site idle: the answer to a probe
 * claims the role already.  A copy without a generation cannot say so in its record; it gives way itself. */
static bool claims_role(const struct sr_core *core)
{
    const struct admin *admin;
    TAILQ_FOREACH (admin, &core->admins, link)
        if (admin->command == SR_ADMIN_FAILOVER && (admin->probe_until_us || admin->waits_for_disk))
            return true;
    return false;
}

/* A probe that came while the record was on its way to the disk is answered when it is durable (C6). */
void core_probe_pump(struct sr_core *core)
{
    if (!core->probe_owed || !core_settled(core))
        return;
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_PROBED);
    msg->session = 0;
    msg->id = core->probe_owed;
    msg->greeting = core_greeting(core);
    if (claims_role(core) && !sr_uuid_is_none(&core->rec.gen))
        msg->greeting.record.role = SR_ROLE_ACTIVE;
    core->probe_owed = 0;
    core_send_msg(core, msg);
}

void core_on_probe(struct sr_core *core, const struct sr_peer_msg *msg)
{
    struct admin *admin;
    if (msg->type == SR_MSG_PROBE) {
        core->probe_owed = msg->id;
        core->claim_crossed |= claims_role(core) && sr_uuid_is_none(&core->rec.gen);
        return;
    }
    if (msg->id != core->next_probe)
        return; /* too late */
    core->shown_peer = msg->greeting;
    core->probe_answered = true;
    TAILQ_FOREACH (admin, &core->admins, link)
        admin->probe = 0; /* this answer is as good as that to its own question */
}

void core_probe_command(struct sr_core *core, uint64_t id)
{
    if (!core->link_up) {
        core->probe_answered = false;
        core_answer_admin(core, id, SR_E_UNREACHABLE, "%s is not connected", core->peer_name);
        return;
    }
    send_probe(core, core_remember_admin(core, id, SR_ADMIN_PROBE, core->now_us + 2 * PROBE_US));
}

/* ---- failover
 * ------------------------------------------------------------------------------------------------------ */

static bool handing_over(const struct sr_core *core)
{
    return core->mode == MODE_HANDING_OVER || core->mode == MODE_HANDED_OVER || core->taking;
}

static void refuse(struct sr_core *core, struct admin *admin, enum sr_error error, const char *why)
{
    core_answer_admin(core, admin->id, error, "%s: no failover: %s", core->name, why);
    core_end_admin(core, admin);
}

/* NULL: it may go on.  `answered`: the peer said within a second how it stands. */
static const char *forbidden(const struct sr_core *core, bool answered, bool force, enum sr_error *error)
{
    const struct sr_record *peer = &core->shown_peer.record;
    *error = SR_E_REFUSED;
    if (answered && peer->role == SR_ROLE_ACTIVE && !SR_BUG(FAILOVER_BESIDE_ACTIVE))
        return core->stage == STAGE_CONFLICT
                   ? "the other site is active and answers, and the copies are in conflict: "
                     "`syncrepctl resolve` decides which one stays"
               : core->mode == MODE_FOLLOWING
                   ? "the other site is active and answers: `syncrepctl switchover` moves the role without loss"
                   : "the other site is active and answers: wait until both are in sync, then `syncrepctl "
                     "switchover`";
    if (core->rec.handover && core->link_up && !SR_BUG(FAILOVER_WHILE_HANDED_OVER))
        return "the active role is on its way to the other site, which is connected: wait for it";
    if (core->rec.consistent)
        return NULL;
    if (answered && peer->consistent)
        return "this copy is not complete and the other site, which answers, has a complete one: run it there";
    if (force)
        return NULL;
    *error = SR_E_NEEDS_FORCE;
    return "this copy is not complete (a resync did not finish, or it was never filled): hosts would read a mixture "
           "of "
           "old and new";
}

static void take_over(struct sr_core *core, struct admin *admin)
{
    bool forced = !core->rec.consistent;
    SR_ASSERT(!core->random_used && core->n_session_ios == 0);
    core->random_used = true;
    core->failover_pending = false;
    sr_lineage_take_over(&core->rec, &core->random, forced);
    core->rec.gen_wall_ms = core->wall_ms;
    if (forced)
        core_everything_differs(core);
    core->alone_commit = core_commit_record(core);
    core->mode = MODE_ALONE;
    core->retry_at_us = 0;
    core_set_cause(core, core->link_up ? SR_CAUSE_CONNECTING : SR_CAUSE_PEER_UNREACHABLE,
                   "made active here by an administrator's %sfailover", forced ? "forced " : "");
    core_say(core, SR_LOG_WARNING, "%sfailover by an administrator: this site is active", forced ? "forced " : "");
    admin->waits_for_disk = false;
    admin->commit = core->rec_commit;
    admin->deadline_us = core->now_us + COMMIT_WAIT_US;
}

static const char *impossible(const struct sr_core *core)
{
    return core->rec.failed     ? "the copy here has failed: repair the disk, then `syncrepctl replace`"
           : core->stopping     ? "this site is stopping"
           : handing_over(core) ? "a switchover is under way"
                                : NULL;
}

const char *sr_core_failover_refusal(const struct sr_core *core, bool force, enum sr_error *error)
{
    const char *why = impossible(core);
    *error = SR_E_REFUSED;
    if (why || core_serving(core))
        return why;
    return forbidden(core, core->link_up && core->probe_answered, force, error);
}

/* False: it is answered, and gone, or will be when the record is durable. */
static bool decide(struct sr_core *core, struct admin *admin, bool answered)
{
    enum sr_error error = SR_E_REFUSED;
    const char *why = impossible(core);
    if (!why && core_serving(core)) {
        admin->commit = core->rec_commit; /* C6 */
        if (!core_settled(core))
            return false;
        core_answer_admin(core, admin->id, SR_OK, "%s is active and served here already", core->name);
        core_end_admin(core, admin);
        return false;
    }
    if (!why && core->claim_crossed)
        why = "the other site asks how this one stands: perhaps it is to become active; try again";
    if (!why)
        why = forbidden(core, answered, admin->force, &error);
    if (why) {
        refuse(core, admin, error, why);
        return false;
    }
    core_end_session(core, SR_CAUSE_FAILOVER);
    core->failover_pending = true;
    admin->waits_for_disk = true;
    admin->deadline_us = core->now_us + DISK_WAIT_US;
    return true;
}

static void ask(struct sr_core *core, struct admin *admin)
{
    if (core->link_up && !core_serving(core) && !impossible(core))
        send_probe(core, admin);
    else
        decide(core, admin, false);
}

void core_failover_command(struct sr_core *core, uint64_t id, bool force)
{
    if (!claims_role(core))
        core->claim_crossed = false;
    struct admin *admin = core_remember_admin(core, id, SR_ADMIN_FAILOVER, core->now_us + PROBE_US + DISK_WAIT_US);
    admin->force = force;
    ask(core, admin);
}

/* What hosts will read here is stable, whoever wrote it. */
static bool ready(struct sr_core *core)
{
    core_flush_all(core);
    return core->n_session_ios == 0 && core_secure(core) && core_flush_clean(core) && core_settled(core) &&
           !core->random_used;
}

/* Of one FAILOVER or PROBE that waits.  May end it. */
void core_failover_pump(struct sr_core *core, struct admin *admin)
{
    bool asked = admin->probe_until_us != 0;
    bool over = asked && (!admin->probe || core->now_us >= admin->probe_until_us || !core->link_up);
    if (asked && !over)
        return;
    if (admin->command == SR_ADMIN_PROBE) {
        core_answer_admin(core, admin->id, core->probe_answered ? SR_OK : SR_E_UNREACHABLE, "%s %s", core->peer_name,
                          core->probe_answered ? "answers" : "did not answer within a second");
        core_end_admin(core, admin);
        return;
    }
    if (over) {
        bool answered = !admin->probe;
        admin->probe_until_us = 0;
        if (!decide(core, admin, answered))
            return;
    }
    if (!core->failover_pending || core_serving(core) || impossible(core) || core->claim_crossed) {
        admin->waits_for_disk = false; /* another failover was first, or the copy failed: all may be different now */
        ask(core, admin);
    } else if (ready(core)) {
        take_over(core, admin);
    } else if (core->now_us >= admin->deadline_us) {
        core->failover_pending = false;
        core_answer_admin(core, admin->id, SR_E_TIMEOUT,
                          "%s: no failover: the disk here still works on writes of the other site; try again",
                          core->name);
        core_end_admin(core, admin);
    }
}

/* ---- a conflict
 * ------------------------------------------------------------------------------------------------------ */

const char *sr_core_discard_refusal(const struct sr_core *core, enum sr_error *error)
{
    *error = SR_E_REFUSED;
    if (core->stage != STAGE_CONFLICT)
        return "it is not in conflict with a connected peer";
    if (!core->peer.record.consistent)
        return "the copy of the other site is not complete: it cannot replace this one";
    return sr_uuid_is_none(&core->rec.gen) ? "this copy holds nothing" : NULL;
}

void core_discard_command(struct sr_core *core, uint64_t id)
{
    enum sr_error error;
    const struct sr_record *peer = &core->peer.record;
    const char *why = sr_core_discard_refusal(core, &error);
    if (why) {
        core_answer_admin(core, id, SR_E_REFUSED, "%s: nothing was given up here: %s", core->name, why);
        return;
    }
    core_stop_serving(core);
    core_end_session(core, SR_CAUSE_CONFLICT);
    core->rec.discard = true;
    core->rec.discard_mine = core->rec.gen;
    core->rec.discard_peer = peer->gen;
    core_commit_record(core);
    core->retry_at_us = 0;
    core_say(core, SR_LOG_WARNING, "an administrator gave up what only this site holds: the copy of %s is kept",
             core->peer_name);
    core_remember_admin(core, id, SR_ADMIN_DISCARD,
                        core->now_us + (uint64_t)(core->tune.stall_budget_ms + 2000) * 1000);
}
