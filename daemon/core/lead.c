/* lead.c - the leader's side of a session: from the follower's map to in sync.
 *
 *   MAP      the follower's map comes in
 *   START    the map that covers every difference is committed, together with the base that it counts from
 *   STARTED  the follower adopts the lineage
 *   OPENING  base = gen is committed: the peer holds this generation, with the holes listed
 *   OPEN     writes are mirrored, resync.c copies; then COMPLETE, COMPLETED, and base = none: in sync
 *
 * The invariants are S1 to S3 of session.c.
 */
#include <endian.h>

#include "core/internal.h"

void core_lead_map(struct sr_core *core, const struct sr_peer_msg *msg)
{
    const uint8_t *at = msg->payload ? msg->payload->data + msg->payload_offset : NULL;
    if (msg->everything)
        core->peer_everything = true;
    for (uint32_t i = 0; i < msg->n_entries; i++, at += SR_MAP_ENTRY_BYTES) {
        uint32_t volume, region;
        memcpy(&volume, at, 4);
        memcpy(&region, at + 4, 4);
        volume = le32toh(volume);
        region = le32toh(region);
        if (volume >= core->n_volumes || region >= core->volumes[volume].map.n_regions) {
            core_fault_link(core, "a MAP of %s names region %u of volume %u, which does not exist", core->peer_name,
                            region, volume);
            return;
        }
        sr_dirtymap_set_region(&core->peer_maps[volume], region, at + 8);
    }
    if (msg->last)
        core->map_sent = true; /* theirs, complete */
}

void core_everything_differs(struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        struct volume *volume = &core->volumes[i];
        sr_dirtymap_set_from(&volume->map, 0, core->compare_all);
        volume->map.disk_from = 0;
        core_commit_op(core, SR_META_FROM, i)->block = 0;
    }
}

static void merge_peer_maps(struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        struct volume *volume = &core->volumes[i];
        const struct sr_dirtymap *theirs = &core->peer_maps[i];
        for (uint32_t region = sr_dirtymap_next_region(theirs, 0); region < theirs->n_regions;
             region = sr_dirtymap_next_region(theirs, region + 1)) {
            uint8_t bits[SR_REGION_MAP_BYTES];
            sr_dirtymap_region_bits(theirs, region, bits);
            sr_dirtymap_set_region(&volume->map, region, bits);
            core_save_region(core, volume, region);
        }
    }
}

/* The map that covers every difference, in one commit with the base that it counts from. */
static void commit_start(struct sr_core *core)
{
    const struct sr_record *peer = &core->peer.record;
    bool same_gen = sr_uuid_equal(&core->rec.gen, &peer->gen);
    bool has_gen = !sr_uuid_is_none(&peer->gen);
    for (uint32_t i = 0; i < core->n_volumes; i++)
        core->peer_everything |=
            core->peer_maps[i].from != SR_DIRTYMAP_NOWHERE; /* it grew too large to keep exactly */
    bool suffices = sr_lineage_maps_suffice(&core->rec, peer) && !core->peer_everything;
    core->compare_all = has_gen;
    core->full_reason = suffices                ? ""
                        : !has_gen              ? "the other copy holds nothing yet"
                        : core->peer_everything ? "the other site could not narrow down what it wrote"
                                                : "the two copies have no common generation to count from";
    if (suffices && SR_BUG(PEER_MAP_IGNORED))
        core_free_peer_maps(core);
    else if (suffices)
        merge_peer_maps(core);
    else
        core_everything_differs(core);
    if (!same_gen || !peer->consistent) {
        core->rec.completing = false;
        if (!same_gen) {
            core->rec.base_kind = has_gen ? SR_BASE_KNOWN : SR_BASE_UNKNOWN;
            core->rec.base = peer->gen;
        } else if (core->rec.base_kind == SR_BASE_NONE) {
            core->rec.base_kind = SR_BASE_UNKNOWN;
        }
    }
    core->stage = STAGE_START;
    core_commit_record(core);
    core_free_peer_maps(core);
    if (!suffices)
        core_say(core, SR_LOG_NOTICE, "full copy to %s: %s", core->peer_name, core->full_reason);
}

static void send_start(struct sr_core *core)
{
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_START);
    msg->lineage = core->rec;
    core->stage = STAGE_STARTED;
    core_send_msg(core, msg);
}

void core_lead_started(struct sr_core *core)
{
    if (core->rec.base_kind != SR_BASE_NONE) {
        core->rec.base_kind = SR_BASE_KNOWN;
        core->rec.base = core->rec.gen; /* the peer holds this generation, with holes */
        core_commit_record(core);
    }
    core->shown_peer.record.role = SR_ROLE_ALTERNATE;
    core->mode = MODE_RESYNCING;
    core->stage = STAGE_OPENING;
}

static void open_leader(struct sr_core *core)
{
    core->stage = STAGE_OPEN;
    core_resync_begin(core);
    core_requests_session_open(core);
    core_flush_session_open(core);
    core_set_cause(core, SR_CAUSE_RESYNCING, "%s", "");
}

void core_lead_completed(struct sr_core *core)
{
    core->rec.base_kind = SR_BASE_NONE;
    memset(&core->rec.base, 0, sizeof core->rec.base);
    core->rec.completing = false;
    core->rec.synced_wall_ms = core->wall_ms;
    core_commit_clear_maps(core);
    core_commit_record(core);
    core->completed = true;
    core->complete_sent = false;
}

void core_in_sync(struct sr_core *core)
{
    core->completed = false;
    core->mode = MODE_MIRRORING;
    core->retry_ms = 0;
    core->full_reason = "";
    core_set_cause(core, SR_CAUSE_NONE, "%s", "");
    core_say(core, SR_LOG_NOTICE, "in sync with %s", core->peer_name);
    core_make_all_ready(core);
}

void core_lead_pump(struct sr_core *core)
{
    if (core->stage == STAGE_MAP && core->map_sent && core_settled(core))
        commit_start(core);
    if (core->stage == STAGE_START && core_settled(core)) /* S3 */
        send_start(core);
    if (core->stage == STAGE_OPENING && core_settled(core))
        open_leader(core);
    if (core_leads_open(core) && core->complete_pending && core_settled(core)) {
        struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_COMPLETE);
        msg->lineage = core->rec;
        core->complete_pending = false;
        core->complete_sent = true;
        core_send_msg(core, msg);
    }
    if (core_leads_open(core) && core->completed && core_settled(core))
        core_in_sync(core);
}
