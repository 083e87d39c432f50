/* status.c - what an operator sees, derived from the state; nothing here changes it. */
#include <stdio.h>

#include "core/internal.h"

static const char *mode_name(const struct sr_core *core)
{
    static const char *const names[] = {"standby",      "holding",     "alone",       "resyncing", "mirroring",
                                        "handing-over", "handed-over", "catching-up", "following"};
    return names[core->mode];
}

/* Both copies hold every acknowledged write, as far as this site knows. */
bool core_copies_equal(const struct sr_core *core)
{
    return core->mode == MODE_MIRRORING || core->mode == MODE_HANDING_OVER || core->mode == MODE_HANDED_OVER ||
           core->mode == MODE_FOLLOWING;
}

/* A blip shorter than the stall budget is not shown: nothing is lost, and nobody waits longer than promised.  Only
 * the active site can tell: while it holds its hosts' answers back nothing is acknowledged that the peer lacks.  The
 * alternate cannot know what the active one does meanwhile. */
static bool blip(const struct sr_core *core, uint64_t now_us)
{
    bool was_in_sync = core->rec.base_kind == SR_BASE_NONE && core->rec.consistent && core->in_sync_us;
    bool recent = now_us - core->in_sync_us < (uint64_t)core->tune.stall_budget_ms * 1000;
    bool holds = core->mode == MODE_HOLDING || core->mode == MODE_RESYNCING;
    return was_in_sync && recent && holds && core_dirty_blocks(core) == 0;
}

enum sr_sync core_sync(const struct sr_core *core, uint64_t now_us)
{
    if (core->rec.paused && !core_copies_equal(core))
        return SR_SYNC_PAUSED;
    if (core_copies_equal(core) || blip(core, now_us))
        return SR_SYNC_IN_SYNC;
    return SR_SYNC_OUT_OF_SYNC;
}

static enum sr_cause cause_shown(const struct sr_core *core)
{
    if (core->stage == STAGE_CONFLICT) /* also of a failed copy: an administrator has to choose */
        return SR_CAUSE_CONFLICT;
    if (core->rec.failed)
        return core->rec.role == SR_ROLE_ACTIVE ? SR_CAUSE_ACTIVE_IO_ERROR : SR_CAUSE_ALTERNATE_IO_ERROR;
    if (core->rec.handover)
        return SR_CAUSE_HANDING_OVER;
    if (core->rec.paused)
        return SR_CAUSE_PAUSED;
    if (core->mode == MODE_RESYNCING || core->mode == MODE_CATCHING_UP)
        return core->cause == SR_CAUSE_ACTIVE_IO_ERROR ? core->cause : SR_CAUSE_RESYNCING;
    if (!core->link_up)
        return SR_CAUSE_PEER_UNREACHABLE;
    if (core->cause == SR_CAUSE_NONE || core->cause == SR_CAUSE_PEER_UNREACHABLE)
        return SR_CAUSE_CONNECTING;
    return core->cause;
}

static enum sr_verdict verdict(const struct sr_core *core, enum sr_sync sync)
{
    const struct sr_record *peer = &core->shown_peer.record;
    bool other_serves = core->peer_known && peer->role == SR_ROLE_ACTIVE && peer->consistent && !peer->failed;
    if (sync == SR_SYNC_IN_SYNC)
        return SR_VERDICT_PROTECTED;
    if (core_serving(core) || other_serves)
        return SR_VERDICT_EXPOSED;
    /* an alternate that cannot see the active site does not know; the hosts may well be served there */
    if (core->rec.role == SR_ROLE_ALTERNATE && !core->link_up)
        return SR_VERDICT_EXPOSED;
    return SR_VERDICT_OFFLINE;
}

static void fill_resync(const struct sr_core *core, struct sr_core_status *status)
{
    status->resyncing = core->mode == MODE_RESYNCING && core->stage == STAGE_OPEN;
    status->resync_eta_s = UINT64_MAX;
    if (!status->resyncing)
        return;
    status->resync_done_blocks = core->resync_done;
    status->resync_total_blocks = core->resync_total;
    status->resync_bytes_per_s = core->throttle.measured_bytes_per_s;
    if (status->resync_bytes_per_s)
        status->resync_eta_s = status->dirty_blocks * SR_BLOCK_BYTES / status->resync_bytes_per_s;
    if (!status->dirty_blocks)
        status->resync_eta_s = 0;
}

void sr_core_status(const struct sr_core *core, uint64_t now_us, struct sr_core_status *status)
{
    *status = core->count;
    status->record = core->rec;
    if (core->in_sync_wall_ms > core->rec.synced_wall_ms)
        status->record.synced_wall_ms = core->in_sync_wall_ms;
    status->sync = core_sync(core, now_us);
    status->cause = status->sync == SR_SYNC_IN_SYNC ? SR_CAUSE_NONE : cause_shown(core);
    status->verdict = verdict(core, status->sync);
    status->mode = mode_name(core);
    bool told = core->cause == SR_CAUSE_ACTIVE_IO_ERROR || core->cause == SR_CAUSE_ALTERNATE_IO_ERROR;
    if (core->rec.failed && !told) /* whatever came after: that is why */
        snprintf(status->detail, sizeof status->detail,
                 "the copy of %s at this site has failed: repair the disk, then replace it",
                 core_failed_name(core, &core->rec));
    else if (status->cause != SR_CAUSE_NONE)
        snprintf(status->detail, sizeof status->detail, "%s", core->detail);
    status->link_up = core->link_up;
    status->serving = core_serving(core) && core->serve_told && !core->retired;
    status->peer_known = core->peer_known;
    status->peer = core->shown_peer.record;
    status->peer_dirty_blocks = core->shown_peer.dirty_blocks;
    status->probe_answered = core->probe_answered;
    status->giving = core->mode == MODE_HANDING_OVER || core->mode == MODE_HANDED_OVER || core->rec.handover;
    status->taking = core->taking || core->forwards_left; /* hosts are served when the forwarded requests are here */
    status->handover_estimate_us = core_handover_estimate_us(core);
    status->handover_took_us = core->handover_took_us;
    status->peer_usable = core->mode == MODE_MIRRORING || core->mode == MODE_HANDING_OVER ||
                          (core->peer_known && core->peer.record.consistent && core->mode != MODE_RESYNCING);
    status->dirty_blocks = core_dirty_blocks(core);
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        const struct sr_dirtymap *map = &core->volumes[i].map;
        if (map->from < map->n_blocks)
            status->full_copy_blocks += map->n_blocks - map->from;
    }
    status->full_copy_reason = core->full_reason;
    fill_resync(core, status);
    status->since_wall_ms = core->since_wall_ms;
    status->requests = core->n_requests;
    status->settled = !core->building && !core->flying;
}

uint64_t sr_core_volume_dirty(const struct sr_core *core, uint32_t volume)
{
    SR_ASSERT(volume < core->n_volumes);
    return sr_dirtymap_count(&core->volumes[volume].map);
}

uint64_t sr_core_volume_cached(const struct sr_core *core, uint32_t volume)
{
    const struct sr_intent *intent;
    uint64_t n = 0;
    SR_ASSERT(volume < core->n_volumes);
    TAILQ_FOREACH (intent, &core->intents.all, all)
        for (uint32_t bit = 0; intent->is_cached && intent->volume == volume && bit < SR_REGION_BLOCKS; bit++)
            n += intent->cached[bit / 8] >> (bit % 8) & 1;
    return n;
}

uint64_t sr_core_volume_no_space(const struct sr_core *core, uint32_t volume)
{
    SR_ASSERT(volume < core->n_volumes);
    return core->volumes[volume].full_length;
}
