/* alone.c - leaving the pair: going alone, standing down, a failed replica.
 *
 * Going alone is for the whole collection at once: the session ends first (so nothing late is believed), then the
 * record changes in one commit, and only when that is durable is anything acknowledged that the peer lacks.
 */
#include <stdio.h>

#include "core/internal.h"

void core_set_cause(struct sr_core *core, enum sr_cause cause, const char *format, ...)
{
    va_list args;
    core->cause = cause;
    va_start(args, format);
    vsnprintf(core->detail, sizeof core->detail, format, args);
    va_end(args);
}

void core_back_off(struct sr_core *core)
{
    core->retry_ms = core->retry_ms ? core->retry_ms * 2 : core->tune.retry_min_ms;
    if (core->retry_ms > core->tune.retry_max_ms)
        core->retry_ms = core->tune.retry_max_ms;
    core->retry_at_us = core->now_us + (uint64_t)core->retry_ms * 1000;
}

static void explain_alone(struct sr_core *core, enum sr_cause cause)
{
    switch (cause) {
    case SR_CAUSE_PEER_UNREACHABLE:
        core_set_cause(core, cause, "%s has not been reachable for longer than the stall budget", core->peer_name);
        break;
    case SR_CAUSE_PEER_STALLED:
        core_set_cause(core, cause, "%s did not confirm a write within the stall budget", core->peer_name);
        break;
    case SR_CAUSE_ALTERNATE_NO_SPACE:
        core_set_cause(core, cause, "the pool at %s is full: free space there", core->peer_name);
        break;
    case SR_CAUSE_ALTERNATE_IO_ERROR:
        core_set_cause(core, cause, "the copy of %s at %s has failed: replace it there", core_failed_name(core, &core->peer.record),
                       core->peer_name);
        break;
    case SR_CAUSE_PAUSED:
        core_set_cause(core, cause, "paused by an administrator");
        break;
    default:
        core->cause = cause;
        break;
    }
}

void core_go_alone(struct sr_core *core, enum sr_cause cause)
{
    bool was_alone = core->mode == MODE_ALONE;
    SR_ASSERT(core_serving(core));
    if (!SR_BUG(ALONE_KEEPS_SESSION) && !(SR_BUG(MEMBER_LEFT_BEHIND) && core->n_volumes > 1))
        core_end_session(core, cause);
    if (!was_alone && !SR_BUG(ALONE_FORGETS_CACHED))
        core_flush_to_maps(core); /* first: those are compared, the peer most likely has them */
    if (!was_alone)
        core_requests_mark_unfinished(core);
    if (sr_lineage_must_go_alone(&core->rec)) {
        SR_ASSERT(!core->random_used);
        core->random_used = true;
        if (core->rec.base_kind == SR_BASE_NONE && core->in_sync_wall_ms)
            core->rec.synced_wall_ms = core->in_sync_wall_ms;
        sr_lineage_go_alone(&core->rec, &core->random);
        core->rec.gen_wall_ms = core->wall_ms;
        core->alone_commit = core_commit_record(core);
    }
    core->mode = MODE_ALONE;
    if (cause == SR_CAUSE_PAUSED)
        core->retry_at_us = 0;
    else
        core_back_off(core);
    core_requests_forgive_peer(core);
    explain_alone(core, cause);
    if (!was_alone)
        core_say(core, SR_LOG_WARNING, "going on alone (%s): %s", sr_cause_name(cause), core->detail);
    core_make_all_ready(core);
}

/* Whose copy it is, as well as it is known. */
const char *core_failed_name(const struct sr_core *core, const struct sr_record *record)
{
    for (uint32_t i = 0; i < core->n_volumes; i++)
        if (sr_uuid_equal(&core->volumes[i].uuid, &record->failed_volume))
            return core->volumes[i].name;
    return core->name;
}

void core_go_alone_for(struct sr_core *core, enum sr_cause cause, const struct volume *volume)
{
    core_go_alone(core, cause);
    if (cause == SR_CAUSE_ALTERNATE_NO_SPACE)
        core_set_cause(core, cause, "the pool of volume %s at %s is full: free space there", volume->name,
                       core->peer_name);
    else if (cause == SR_CAUSE_ALTERNATE_IO_ERROR)
        core_set_cause(core, cause, "the copy of %s at %s has failed: replace it there", volume->name,
                       core->peer_name);
}

void core_stop_serving(struct sr_core *core)
{
    if (!core_serving(core))
        return;
    if (core->mode != MODE_ALONE) {
        core_flush_to_maps(core);
        core_requests_mark_unfinished(core);
    }
    core->mode = MODE_STANDBY;
    core->refuse_pending = true;
}

void core_replica_failed(struct sr_core *core, struct volume *volume, const char *what, enum sr_error error)
{
    if (core->rec.failed)
        return;
    bool active = core->rec.role == SR_ROLE_ACTIVE;
    core->failover_pending = false;
    core_end_session(core, SR_CAUSE_NONE); /* the peer hears of it by the next greeting, when it is durable */
    core_stop_serving(core);
    core_flush_forget(core); /* nobody knows what the disk holds */
    if (!SR_BUG(FAILED_COPY_CONSISTENT)) {
        core->rec.failed = true;
        core->rec.failed_volume = volume->uuid;
        core->rec.consistent = false;
    }
    core_commit_record(core);
    core_set_cause(core, active ? SR_CAUSE_ACTIVE_IO_ERROR : SR_CAUSE_ALTERNATE_IO_ERROR,
                   "the copy of %s at this site has failed (%s: %s): repair the disk, then replace it", volume->name,
                   what, sr_error_text(error));
    core_say(core, SR_LOG_ERROR, "%s", core->detail);
}
