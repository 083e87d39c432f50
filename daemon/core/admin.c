/* admin.c - commands of an administrator.
 *
 * The session ends first, then the record changes in one commit, and the answer is given when that is durable and,
 * where both sites must know, when the peer has been greeted with it.  Every command is answered by its deadline.
 */
#include <stdlib.h>

#include "core/internal.h"

#define ADMIN_SLACK_MS 2000u

struct admin *core_remember_admin(struct sr_core *core, uint64_t id, enum sr_admin_command command,
                                  uint64_t deadline_us)
{
    struct admin *admin = calloc(1, sizeof *admin);
    SR_ASSERT(admin != NULL);
    admin->id = id;
    admin->command = command;
    admin->commit = core->rec_commit;
    admin->deadline_us = deadline_us;
    TAILQ_INSERT_TAIL(&core->admins, admin, link);
    return admin;
}

void core_end_admin(struct sr_core *core, struct admin *admin)
{
    TAILQ_REMOVE(&core->admins, admin, link);
    free(admin);
}

static struct admin *remember(struct sr_core *core, uint64_t id, enum sr_admin_command command)
{
    return core_remember_admin(core, id, command,
                               core->now_us + (uint64_t)(core->tune.stall_budget_ms + ADMIN_SLACK_MS) * 1000);
}

static void set_pause(struct sr_core *core, uint64_t id, enum sr_admin_command command)
{
    bool pause = command == SR_ADMIN_PAUSE;
    bool moving = core->mode == MODE_HANDING_OVER || core->rec.handover || core->taking;
    if (pause && moving) {
        core_answer_admin(core, id, SR_E_BUSY, "%s: its active role is being handed over: try again after that",
                          core->name);
        return;
    }
    if (core->rec.paused == pause && core_settled(core)) {
        core_answer_admin(core, id, SR_OK, pause ? "%s is paused already" : "%s is not paused", core->name);
        return;
    }
    core_end_session(core, pause ? SR_CAUSE_PAUSED : SR_CAUSE_CONNECTING);
    core->rec.paused = pause;
    core->rec.pause_counter++;
    core_commit_record(core);
    if (pause && core_serving(core))
        core_go_alone(core, SR_CAUSE_PAUSED); /* the same commit */
    if (pause)
        core_set_cause(core, SR_CAUSE_PAUSED, "paused by an administrator");
    else
        core_set_cause(core, core->link_up ? SR_CAUSE_CONNECTING : SR_CAUSE_PEER_UNREACHABLE,
                       "resumed by an administrator");
    core->retry_at_us = 0;
    core->retry_ms = 0;
    core_say(core, SR_LOG_NOTICE, "%s by an administrator", pause ? "paused" : "resumed");
    remember(core, id, command)->needs_peer = true;
}

/* The new copy's life begins when the last I/O of the old one has ended: what still fails there is not its fault. */
static void replace_now(struct sr_core *core, struct admin *admin)
{
    if (core->rec.failed) {
        core_end_session(core, SR_CAUSE_CONNECTING);
        sr_lineage_replace(&core->rec);
        for (uint32_t i = 0; i < core->n_volumes; i++) {
            core_drop_bad(core, &core->volumes[i], 0, UINT64_MAX);
            core->volumes[i].stable = core->volumes[i].applied; /* nothing is left of it that could be lost */
        }
        core_flush_forget(core);
        core_commit_clear_maps(core);
        core_commit_record(core);
        core->retry_at_us = 0;
        core_set_cause(core, SR_CAUSE_NEVER_SYNCED, "replaced by an administrator: to be copied in full");
        core_say(core, SR_LOG_NOTICE, "the copy here was replaced by an administrator and holds nothing");
    }
    admin->waits_for_disk = false;
    admin->commit = core->rec_commit;
}

/* NULL: it may be replaced.  Never without force the last copy, whatever it is worth. */
const char *sr_core_replace_refusal(const struct sr_core *core, bool force, enum sr_error *error)
{
    const struct sr_record *peer = &core->shown_peer.record;
    *error = SR_E_REFUSED;
    if (!core->rec.failed)
        return core->peer_known && peer->failed ? "the copy here has not failed, that of the other site has: "
                                                  "replace it there"
                                                : NULL;
    *error = SR_E_NEEDS_FORCE;
    if (force)
        return NULL;
    if (core->rec.base_kind != SR_BASE_NONE && !core->rec.discard)
        return "the failed copy here may hold writes that the other site lacks: replacing it gives them up";
    if (!core->peer_known)
        return "whether the other site has a complete copy is not known: connect the sites first, or this may be "
               "the last one";
    return peer->failed || !peer->consistent ? "the copy of the other site is not complete either: replacing this "
                                               "one gives up the last one, damaged as it is"
                                             : NULL;
}

static void replace(struct sr_core *core, uint64_t id, bool force)
{
    enum sr_error error;
    const char *why = sr_core_replace_refusal(core, force, &error);
    if (why) {
        core_answer_admin(core, id, error, "%s: nothing is replaced: %s", core->name, why);
        return;
    }
    if (!core->rec.failed) { /* also if somebody has done it already */
        core_answer_admin(core, id, SR_OK, "%s: the copy here has not failed: nothing was replaced", core->name);
        return;
    }
    remember(core, id, SR_ADMIN_REPLACE)->waits_for_disk = true;
}

/* Whoever waits for the stop is told; the session, if it has ended, begins anew. */
static void go_on(struct sr_core *core, uint64_t id)
{
    struct admin *admin, *next;

    for (admin = TAILQ_FIRST(&core->admins); admin; admin = next) {
        next = TAILQ_NEXT(admin, link);
        if (admin->command != SR_ADMIN_STOP)
            continue;
        core_answer_admin(core, admin->id, SR_E_CANCELLED, "%s goes on", core->name);
        core_end_admin(core, admin);
    }
    core->stopping = core->flushes_alone = false;
    core->retry_at_us = 0;
    core->retry_ms = 0;
    core_answer_admin(core, id, SR_OK, "%s goes on", core->name);
}

void core_on_admin(struct sr_core *core, uint64_t id, enum sr_admin_command command, bool force)
{
    switch (command) {
    case SR_ADMIN_PAUSE:
    case SR_ADMIN_RESUME:
        set_pause(core, id, command);
        break;
    case SR_ADMIN_REPLACE:
        replace(core, id, force);
        break;
    case SR_ADMIN_STOP:
        if (core->mode == MODE_HANDING_OVER)
            core_handover_undo(core, "this site is stopping");
        core->stopping = true;
        remember(core, id, command);
        break;
    case SR_ADMIN_GO_ON:
        go_on(core, id);
        break;
    case SR_ADMIN_SWITCHOVER:
        core_handover_command(core, id);
        break;
    case SR_ADMIN_FAILOVER:
        core_failover_command(core, id, force);
        break;
    case SR_ADMIN_DISCARD:
        core_discard_command(core, id);
        break;
    case SR_ADMIN_PROBE:
        core_probe_command(core, id);
        break;
    }
}

/* A flush that has to wait until blocks are copied is not waited for: nothing is copied any more, and they are in the
 * map. */
static bool waits_for_resync(const struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes; i++)
        if (core_flush_blocked(core, &core->volumes[i]))
            return true;
    return false;
}

/* All maps are exact and durable, the peer knows that we go. */
static bool stopped(struct sr_core *core)
{
    if (core->n_requests)
        return false;
    if (core_leads_open(core) && !core_flush_clean(core) && !waits_for_resync(core)) {
        core_flush_all(core); /* at both sites, while that is possible */
        return false;
    }
    core_end_session(core, SR_CAUSE_SHUTDOWN); /* first: a resync would make maps stale for ever */
    core_flush_alone(core);
    core_flush_all(core);
    core_flush_pump(core); /* one that waited for the peer is over now */
    if (core->save_at_us == 0 && TAILQ_EMPTY(&core->intents.all) && !core->building && !core->flying)
        return core->n_ios == 0 && core_secure(core);
    core_cool_all(core);
    core->save_at_us = core->save_at_us ? 1 : 0; /* now */
    return false;
}

static bool finished(struct sr_core *core, const struct admin *admin)
{
    if (admin->command == SR_ADMIN_STOP)
        return stopped(core);
    if (admin->waits_for_disk || admin->commit > core->durable)
        return false;
    if (!admin->needs_peer || !core->link_up)
        return true;
    return core->stage != STAGE_NONE && core->stage != STAGE_HELLO;
}

static const char *done_text(const struct sr_core *core, const struct admin *admin)
{
    switch (admin->command) {
    case SR_ADMIN_PAUSE:
        return core->link_up ? "paused" : "paused here; the other site takes it over when it is back";
    case SR_ADMIN_RESUME:
        return core->link_up ? "resumed" : "resumed here; the other site takes it over when it is back";
    case SR_ADMIN_FAILOVER:
        return "active here";
    case SR_ADMIN_DISCARD:
        return "what only the losing site held is given up; the copy that is kept is taken over there as soon as "
               "the sites agree"; /* read at either site */
    case SR_ADMIN_REPLACE:
        return "replaced; it is copied in full as soon as the sites are connected";
    default:
        return "stopped";
    }
}

void core_admins_pump(struct sr_core *core)
{
    struct admin *admin, *next;
    for (admin = TAILQ_FIRST(&core->admins); admin; admin = next) {
        next = TAILQ_NEXT(admin, link);
        bool late = core->now_us >= admin->deadline_us;
        if (admin->command == SR_ADMIN_SWITCHOVER && !late)
            continue; /* answered by handover.c */
        if (admin->command == SR_ADMIN_SWITCHOVER) {
            core_answer_admin(core, admin->id, SR_E_TIMEOUT, "%s: timed out, handing over to %s", core->name,
                              core->peer_name);
            core_end_admin(core, admin);
            continue;
        }
        bool role = admin->command == SR_ADMIN_PROBE || admin->command == SR_ADMIN_FAILOVER;
        if (role && (admin->probe_until_us || admin->waits_for_disk || admin->command == SR_ADMIN_PROBE)) {
            core_failover_pump(core, admin);
            continue;
        }
        if (admin->waits_for_disk && core->n_ios == 0 && core_settled(core))
            replace_now(core, admin);
        if (!finished(core, admin) && !late)
            continue;
        if (admin->waits_for_disk || admin->commit > core->durable || (late && admin->command == SR_ADMIN_STOP))
            core_answer_admin(core, admin->id, SR_E_TIMEOUT, "%s: not finished in time%s", core->name,
                              admin->waits_for_disk ? ": the old copy still has I/O under way; nothing was replaced"
                                                    : "; it goes on");
        else
            core_answer_admin(core, admin->id, SR_OK, "%s: %s%s", core->name, done_text(core, admin),
                              late ? "; the other site has not confirmed it yet" : "");
        core_end_admin(core, admin);
    }
}
