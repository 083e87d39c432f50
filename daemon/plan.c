/* plan.c - see plan.h.  Everything said here comes from the core's status after a probe, and says when it is not
 * known. */
#include "plan.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"

#define LINES 400

struct plan {
    const struct sr_collection *collection;
    const struct sr_config *config;
    struct sr_core_status status;
    enum sr_plan_verb verb;
    bool to_here;
    char reason[LINES], lost[LINES], side_lost[2][LINES], hint[SR_SITE_TEXT];
    enum sr_error error;
};

static Syncrep__Control__Role wire_role(enum sr_role role)
{
    return role == SR_ROLE_ACTIVE ? SYNCREP__CONTROL__ROLE__ROLE_ACTIVE : SYNCREP__CONTROL__ROLE__ROLE_ALTERNATE;
}

static void fill_side(Syncrep__Control__PlanSide *side, const char *site, bool known, const struct sr_record *record,
                      uint64_t dirty_blocks)
{
    syncrep__control__plan_side__init(side);
    side->site = (char *)site;
    side->known = known;
    if (!known)
        return;
    side->role = wire_role(record->role);
    side->consistent = record->consistent;
    side->made_by = (char *)sr_made_by_word(record->made_by);
    side->since_wall_ms = record->gen_wall_ms;
    side->dirty_blocks = record->base_kind == SR_BASE_NONE ? 0 : dirty_blocks;
    side->dirty_bytes = side->dirty_blocks * SR_BLOCK_BYTES;
}

static void refused(struct plan *plan, enum sr_error error, const char *why)
{
    plan->error = error;
    snprintf(plan->reason, sizeof(plan->reason), "%s", why);
}

/* ---- the three verbs --------------------------------------------------------------------------------------------
 */

/* NULL: it would be done, or it is active there already. */
static const char *switchover_problem(const struct plan *plan, enum sr_error *error)
{
    const struct sr_core_status *s = &plan->status;

    *error = SR_OK;
    switch (sr_roles_target(s, plan->to_here)) {
    case SR_TARGET_ACTIVE:
    case SR_TARGET_ARRIVING:
        return NULL;
    case SR_TARGET_CONFLICT:
        *error = SR_E_REFUSED;
        return "the copies are in conflict: `syncrepctl resolve` decides which one stays";
    case SR_TARGET_NOT_SERVED:
        *error = SR_E_REFUSED;
        return "it is active here already, but not served to hosts yet";
    case SR_TARGET_LEAVING:
        *error = SR_E_BUSY;
        return "the active role is on its way to the other site";
    case SR_TARGET_UNKNOWN:
        *error = SR_E_UNREACHABLE;
        return "where it is active is not known: the sites are not connected";
    case SR_TARGET_MOVES:
        break;
    }
    if (!plan->to_here && sr_core_switchover_refusal(plan->collection->core, error))
        return sr_core_switchover_refusal(plan->collection->core, error);
    *error = SR_E_UNREACHABLE;
    if (!s->link_up || !s->probe_answered)
        return s->link_up ? "the other site did not answer within a second" : "the sites are not connected";
    *error = plan->to_here && s->sync != SR_SYNC_IN_SYNC ? SR_E_REFUSED : SR_OK;
    return *error == SR_OK ? NULL : s->record.paused ? "it is paused: resume it first" : "it is not in sync";
}

/* The verb would find it done. */
static void nothing_to_do(struct plan *plan, const char *site)
{
    snprintf(plan->reason, sizeof(plan->reason), "it is active at %s already", site);
    snprintf(plan->hint, sizeof(plan->hint), "syncrepctl status %s", plan->collection->name);
}

static void plan_switchover(struct plan *plan)
{
    const char *name = plan->collection->name;
    const char *site = plan->to_here ? plan->config->site : plan->config->peer_name;
    enum sr_error error;
    const char *why = switchover_problem(plan, &error);

    if (why)
        refused(plan, error, why);
    if (!why && sr_roles_target(&plan->status, plan->to_here) == SR_TARGET_ACTIVE)
        nothing_to_do(plan, site);
    else if (sr_roles_waits_for_somebody(&plan->status))
        sr_status_next_command(plan->collection, &plan->status, plan->hint, sizeof(plan->hint));
    else if (plan->error == SR_OK)
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl switchover %s --to %s", name, site);
    else
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl failback %s --to %s   (waits until both are in sync)",
                 name, site);
}

/* What hosts may find missing after a failover here. */
static void what_is_lost(struct plan *plan)
{
    const struct sr_core_status *s = &plan->status;
    const char *peer = plan->config->peer_name;

    if (!s->record.consistent)
        snprintf(plan->lost, sizeof(plan->lost),
                 "this copy is a mixture of old and new (a resync did not finish, or never began): what %s wrote "
                 "since both "
                 "were last in sync is missing in part, and files or databases on it may be broken",
                 peer);
    else if (s->record.base_kind != SR_BASE_NONE)
        plan->lost[0] = '\0'; /* only this site could have gone on */
    else if (s->record.role == SR_ROLE_ACTIVE)
        snprintf(plan->lost, sizeof(plan->lost),
                 "nothing, unless an administrator made %s active after this site had stopped", peer);
    else if (s->record.paused)
        snprintf(plan->lost, sizeof(plan->lost), "everything that hosts wrote at %s since it was paused", peer);
    else if (s->probe_answered && s->peer.base_kind == SR_BASE_NONE)
        plan->lost[0] = '\0';
    else
        snprintf(plan->lost, sizeof(plan->lost),
                 "whatever hosts wrote at %s after it went on alone (it does when this site is silent for the stall "
                 "budget); "
                 "nothing if it never did",
                 peer);
}

/* In a write-back volume also what was in this site's caches when it went down, if it did since both were in sync. */
static void what_was_cached(struct plan *plan)
{
    const struct sr_core_status *s = &plan->status;
    const struct sr_collection *collection = plan->collection;
    bool write_back = false, had_it = s->record.base_kind != SR_BASE_NONE || s->record.role == SR_ROLE_ACTIVE;
    size_t used = strlen(plan->lost);

    for (uint32_t i = 0; i < collection->n_volumes; i++)
        write_back = write_back || collection->volumes[i]->meta.write_back;
    if (!write_back || had_it || !s->record.consistent)
        return;
    snprintf(plan->lost + used, sizeof(plan->lost) - used,
             "%swhat hosts had not flushed, if this site lost its caches since both were last in sync",
             used ? "; " : "");
}

static void plan_failover(struct plan *plan, bool force)
{
    const char *name = plan->collection->name;
    enum sr_error error = SR_OK;
    const char *why = sr_core_failover_refusal(plan->collection->core, force, &error);

    if (plan->status.serving) {
        snprintf(plan->reason, sizeof(plan->reason), "it is active and served here already");
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl status %s", name);
        return;
    }
    what_is_lost(plan);
    what_was_cached(plan);
    if (force)
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl failover %s --force=%s", name, name);
    else
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl failover %s", name);
    if (!why)
        return;
    refused(plan, error, why);
    if (error == SR_E_NEEDS_FORCE)
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl failover %s --force=%s", name, name);
    else if (plan->status.cause == SR_CAUSE_CONFLICT)
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl resolve %s --keep %s --plan", name, plan->config->site);
    else if (plan->status.record.failed)
        sr_status_next_command(plan->collection, &plan->status, plan->hint, sizeof(plan->hint));
    else if (plan->status.sync == SR_SYNC_IN_SYNC)
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl switchover %s --to %s --plan", name, plan->config->site);
    else
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl failback %s --to %s --plan", name, plan->config->site);
}

/* What only this copy holds, as far as its own count says. */
static void only_there(char lost[LINES], const char *site, const struct plan *plan, bool here)
{
    const struct sr_core_status *s = &plan->status;
    const struct sr_record *record = here ? &s->record : &s->peer;
    uint64_t blocks = here ? s->dirty_blocks : s->peer_dirty_blocks;
    char size[SR_SIZE_TEXT_BYTES];

    if (record->base_kind == SR_BASE_UNKNOWN ||
        (record->base_kind == SR_BASE_NONE && !sr_uuid_equal(&s->record.gen, &s->peer.gen)))
        snprintf(lost, LINES, "all that %s holds: how it differs is not known", site);
    else if (blocks == 0)
        lost[0] = '\0';
    else
        snprintf(lost, LINES, "%llu blocks (%s) that hosts wrote at %s since the copies parted",
                 (unsigned long long)blocks, sr_size_format(blocks * SR_BLOCK_BYTES, size), site);
}

static void plan_resolve(struct plan *plan)
{
    const struct sr_core_status *s = &plan->status;
    enum sr_error error = SR_OK;
    const char *name = plan->collection->name;
    const char *keep = plan->to_here ? plan->config->site : plan->config->peer_name;
    const char *other = plan->to_here ? plan->config->peer_name : plan->config->site;
    const char *why;

    if (s->cause != SR_CAUSE_CONFLICT) {
        snprintf(plan->hint, sizeof(plan->hint), "syncrepctl status %s", name);
        if (sr_roles_target(s, plan->to_here) == SR_TARGET_ACTIVE)
            nothing_to_do(plan, keep);
        else
            refused(plan, SR_E_REFUSED, "it is not in conflict with a connected peer: nothing is to be decided");
        return;
    }
    only_there(plan->side_lost[0], plan->config->site, plan, true);
    only_there(plan->side_lost[1], plan->config->peer_name, plan, false);
    memcpy(plan->lost, plan->side_lost[plan->to_here], sizeof(plan->lost));
    snprintf(plan->hint, sizeof(plan->hint), "syncrepctl resolve %s --keep %s   (gives up what only %s holds)", name,
             keep, other);
    if (plan->to_here && !s->record.consistent)
        why = "the copy that would be kept is not complete";
    else if (plan->to_here && !(s->link_up && s->probe_answered))
        why = "the other site, whose writes would be given up, did not answer within a second";
    else
        why = plan->to_here ? NULL : sr_core_discard_refusal(plan->collection->core, &error);
    if (!why)
        return;
    refused(plan, plan->to_here && s->record.consistent ? SR_E_UNREACHABLE : SR_E_REFUSED, why);
    snprintf(plan->hint, sizeof(plan->hint), "syncrepctl resolve %s --keep %s --plan", name, other);
}

/* ---- the answer --------------------------------------------------------------------------------------------------
 */

void sr_plan_reply(const struct sr_collection *collection, struct sr_control_call *call, enum sr_plan_verb verb,
                   bool to_here, bool force)
{
    static const char *const commands[] = {"switchover", "failover", "resolve"};
    struct plan plan = {
        .collection = collection, .config = collection->site->config, .verb = verb, .to_here = to_here};
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    Syncrep__Control__Plan out = SYNCREP__CONTROL__PLAN__INIT;
    Syncrep__Control__PlanSide sides[2], *list[2] = {&sides[0], &sides[1]};
    struct sr_link_view link;

    if (!collection->core) {
        sr_control_reply_error(call, SR_E_REFUSED, collection->name, "syncrepctl status", "%s", collection->fault);
        return;
    }
    sr_driver_status(collection, &plan.status);
    if (verb == SR_PLAN_SWITCHOVER)
        plan_switchover(&plan);
    else if (verb == SR_PLAN_FAILOVER)
        plan_failover(&plan, force);
    else
        plan_resolve(&plan);
    fill_side(&sides[0], plan.config->site, true, &plan.status.record, plan.status.dirty_blocks);
    fill_side(&sides[1], plan.config->peer_name, plan.status.peer_known, &plan.status.peer,
              plan.status.peer_dirty_blocks);
    sides[0].lost = plan.side_lost[0];
    sides[1].lost = plan.side_lost[1];
    sr_link_events_view(collection->site, &link);
    out.name = (char *)collection->name;
    out.command = (char *)commands[verb];
    out.possible = plan.error == SR_OK;
    out.exit = sr_control_exit_class(plan.error);
    out.code = (char *)(plan.error == SR_OK ? "" : sr_error_name(plan.error));
    out.reason = plan.reason;
    out.n_sides = 2;
    out.sides = list;
    out.peer_answered = plan.status.link_up && plan.status.probe_answered;
    out.connected = link.state == SYNCREP__CONTROL__LINK_STATE__LINK_UP;
    out.peer_wall_ms = collection->site->link_since_wall_ms ? collection->site->link_since_wall_ms
                                                            : collection->site->started_wall_ms;
    out.synced_wall_ms = sr_status_synced_wall_ms(&plan.status);
    out.pause_estimate_us = verb == SR_PLAN_SWITCHOVER ? plan.status.handover_estimate_us + 2 * link.rtt_us : 0;
    out.may_be_lost = plan.lost;
    out.hint = plan.hint;
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_PLAN;
    response.plan = &out;
    sr_control_reply(call, &response, true);
}
