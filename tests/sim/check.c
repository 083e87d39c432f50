/* check.c - the checkers.
 *
 * Names as they appear in a failure:
 *   durability  an acknowledged write is stable on both disks, or the site that acknowledged is durably alone
 *               and its durable map counts every block in which the copies differ as out of sync
 *   flushed     what a FLUSH or a write with FUA of a write-back volume covers survives any loss of power; so does
 *               all that was acknowledged before a switchover, or before a stop
 *   reads       model.c
 *   image       model.c: a copy that calls itself consistent is what one moment left; a paused one stays it
 *   equal       both sites say in sync and nothing is on its way: equal copies, equal generations, nothing dirty
 *   one-active  two sites never serve at once, unless a failover parted them, and then only until they meet; only an
 *               active, consistent copy that has not failed serves
 *   failover    only on command, never beside an active peer that can answer; an unforced one lacks nothing that was
 *               acknowledged while both copies were one
 *   overwrite   a copy follows another one only if nothing is lost that was acknowledged on its line of truth alone
 *               (model.c), or an administrator gave it up
 *   conflict    never without a failover or the loss of the only complete copy
 *   bounded     no host waits longer than the stall budget and what its own site's disks need
 *   resync      pause, write, resume with nothing broken copies the blocks written, and at most 5 % more
 *   progress    once faults are over everything is answered and the pair comes back in sync
 *   failed      a copy is called failed only after a disk error, and a site that was told of a failed write or
 *               flush does not go on as if nothing had happened
 * and disk, meta, wire, answers, halt, buffers, protocol for promises broken towards the surroundings.
 *
 * They use actions, replies, disks, durable metadata and sr_core_status, nothing from inside a core.
 */
#include "sim.h"

#include <string.h>

#include "base/assert.h"

#define SLACK_US    100000u
#define IMAGE_EVERY 24u /* steps */
#define CONFLICT_US UINT64_C(50000) /* both know of it: nothing but a few messages is to come */
#define CONTACT_US  UINT64_C(3000000) /* undisturbed, sites know each other long before */

static bool is_write(enum sr_host_op op)
{
    return op == SR_HOST_WRITE || op == SR_HOST_ZERO || op == SR_HOST_TRIM;
}

/* ---- durability ---------------------------------------------------------------------------------------------------
 */

static void check_holds(struct sim_world *world, unsigned acker, unsigned site, const struct sim_request *r)
{
    const uint64_t *sector = world->site[site].disk.sector;
    uint64_t wanted = r->op == SR_HOST_WRITE ? r->write : 0;
    /* later writes may have come already over a piece of it, or while the other site's answer was on its way */
    bool parted = site != acker && !sim_model_joined(world); /* the peer was promoted, and its hosts write too */
    bool whole = r->length_bytes <= SIM_PIECE_BYTES && !r->switched && !parted;
    bool cached = world->layout.write_back[r->volume] && !r->fua;
    struct sim_span span = {0};

    if (whole && sim_disk_writing(world, site, r->volume, r->offset_bytes, r->length_bytes))
        sim_fail(world, "durability", "site %u acknowledges write %u, which is not stable yet at site %u", acker,
                 r->write, site);
    if (cached && world->site[site].lossy)
        return; /* it had it */
    while (sim_layout_next(&world->layout, r->volume, r->offset_bytes, r->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++) {
            uint64_t stamp = sector[span.sector + i], stable = world->site[site].disk.stable[span.sector + i].stamp;
            if (!cached && stable != wanted && (whole || !sim_model_after(world, site, stable, r->write)))
                sim_fail(world, "durability", "site %u acknowledges write %u, which is in the cache of site %u only",
                         acker, r->write, site);
            if (stamp == wanted || (!whole && sim_model_after(world, site, stamp, r->write)))
                continue;
            sim_fail(world, "durability",
                     "site %u acknowledges write %u, but at site %u block %llu sector %u holds write "
                     "%llu",
                     acker, r->write, site,
                     (unsigned long long)world->layout.hot_block[(span.sector + i) / SIM_BLOCK_SECTORS],
                     (span.sector + i) % SIM_BLOCK_SECTORS, (unsigned long long)stamp);
            return;
        }
}

static bool promoted(const struct sr_record *record)
{
    return record->made_by == SR_MADE_FAILOVER || record->made_by == SR_MADE_FORCED;
}

/* The peer confirmed, then its copy failed or was thrown away before the confirmation arrived. */
static bool gone(const struct sr_record *peer)
{
    return peer->failed || sr_uuid_is_none(&peer->gen);
}

static void check_tracked(struct sim_world *world, unsigned site, const struct sim_request *r)
{
    const uint64_t *mine = world->site[site].disk.sector, *peer = world->site[!site].disk.sector;
    struct sim_span span = {0};

    while (sim_layout_next(&world->layout, r->volume, r->offset_bytes, r->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++) {
            uint64_t block = world->layout.hot_block[(span.sector + i) / SIM_BLOCK_SECTORS];
            if (mine[span.sector + i] == peer[span.sector + i] ||
                sim_meta_dirty(&world->site[site].meta, r->volume, block))
                continue;
            sim_fail(world, "durability",
                     "site %u, alone, acknowledges write %u without a durable mark for block %llu", site, r->write,
                     (unsigned long long)block);
            return;
        }
}

/* An administrator's failover parted the sites: each may serve, on a line of truth of its own. */
static bool parted_by_failover(const struct sim_world *world)
{
    const struct sr_record *a = &world->site[0].meta.record, *b = &world->site[1].meta.record;

    return world->checks.failovers > 0 && !sr_uuid_equal(&a->gen, &b->gen) && (promoted(a) || promoted(b));
}

/* At the moment of a reply with OK; true: the peer holds what it acknowledges too. */
bool sim_check_reply(struct sim_world *world, unsigned site, const struct sim_request *request)
{
    bool passed_on = request->switched && world->site[site].meta.record.role != SR_ROLE_ACTIVE;

    if (passed_on) /* it passes on what the site says that took the role over */
        site = !site;
    else if (world->site[!site].up && world->site[!site].serving && !parted_by_failover(world))
        sim_fail(world, "one-active", "site %u answers while site %u serves", site, !site);
    bool failed = world->site[site].meta.record.failed, alone = sim_meta_alone(&world->site[site].meta);
    if (request->op == SR_HOST_FLUSH) { /* of a peer that lacks blocks nothing is promised: it cannot be promoted */
        const struct sr_record *record = &world->site[site].meta.record;
        return passed_on || record->base_kind == SR_BASE_NONE || record->completing;
    }
    if (!is_write(request->op))
        return false;
    if (failed && !request->switched) /* else it may have failed while its answer was on its way */
        sim_fail(world, "one-active", "site %u acknowledges on a failed copy", site);
    if (!failed)
        check_holds(world, site, site, request);
    /* of a request in pieces, some may be done alone and some mirrored: only the former are out of sync */
    if (request->length_bytes > SIM_PIECE_BYTES && world->site[site].meta.record.base_kind != SR_BASE_NONE)
        check_tracked(world, site, request);
    else if (alone)
        check_tracked(world, site, request);
    else if (!gone(&world->site[!site].meta.record))
        check_holds(world, site, !site, request);
    return passed_on || !alone;
}

void sim_check_flushed(struct sim_world *world, unsigned site, bool mirrored)
{
    for (unsigned i = 0; i < 2; i++) {
        const struct sr_record *record = &world->site[i].meta.record;
        bool counts = i == site || (mirrored && sim_model_joined(world));
        if (counts && record->consistent && !record->failed)
            sim_model_stable(world, i);
    }
}

/* The role is given away, durably. */
static void check_given(struct sim_world *world, unsigned site)
{
    for (unsigned i = 0; i < 2; i++)
        if (!world->site[i].meta.record.failed && !sim_disk_is_secure(world, i))
            sim_fail(world, "flushed",
                     "site %u gives the role away while site %u has acknowledged writes in its cache", site, i);
    for (uint32_t v = 0; v < world->layout.n_volumes; v++)
        if (world->layout.write_back[v])
            sim_model_flushed(world, site, world->model.tick, v, true);
}

/* ---- who serves ------------------------------------------------------------------------------------------------ */

/* A site that serves before it heard of its peer must know that the peer cannot be promoted unforced. */
static void check_start(struct sim_world *world, unsigned site)
{
    const struct sr_record *me = &world->site[site].meta.record, *peer = &world->site[!site].meta.record;

    if (!world->site[site].met_peer && !sim_meta_alone(&world->site[site].meta) && peer->consistent &&
        !peer->failed && sr_uuid_equal(&me->gen, &peer->gen))
        sim_fail(world, "one-active", "site %u serves at its start, although its peer could have been promoted",
                 site);
}

void sim_check_serve(struct sim_world *world, unsigned site)
{
    const struct sr_record *record = &world->site[site].meta.record;

    if (world->site[!site].up && world->site[!site].serving) {
        world->stats->partings++;
        if (!parted_by_failover(world))
            sim_fail(world, "one-active", "both sites serve");
    }
    if (record->role != SR_ROLE_ACTIVE || !record->consistent || record->failed)
        sim_fail(world, "one-active", "site %u serves, but its record says %s, %s%s", site,
                 record->role == SR_ROLE_ACTIVE ? "active" : "alternate",
                 record->consistent ? "consistent" : "not consistent", record->failed ? ", failed" : "");
    check_start(world, site);
}

static bool knows_conflict(const struct sim_site *me)
{
    return me->up && me->status.cause == SR_CAUSE_CONFLICT && me->meta.n == 0;
}

/* Sites that met: one of them goes on serving, or both if each was promoted.  A site in conflict that makes a new
 * generation greets again before it stops: that may take a moment. */
static void check_contact(struct sim_world *world)
{
    const struct sim_site *a = &world->site[0], *b = &world->site[1];
    struct sim_checks *checks = &world->checks;
    bool both = a->up && b->up && a->serving && b->serving &&
                !(promoted(&a->meta.record) && promoted(&b->meta.record));
    uint64_t long_ago_us = world->now_us > CONTACT_US ? world->now_us - CONTACT_US : 0;

    if (!both || !world->wire.connected || !knows_conflict(a) || !knows_conflict(b))
        checks->met_us = 0;
    else if (checks->met_us == 0)
        checks->met_us = world->now_us;
    if (!both)
        return;
    for (unsigned i = 0; i < 2; i++) {
        const struct sim_site *me = &world->site[i];
        if (me->cause != SR_CAUSE_CONFLICT && me->status.cause == SR_CAUSE_CONFLICT && me->status.serving &&
            promoted(&me->status.peer) && !promoted(&me->status.record))
            sim_fail(world, "one-active", "site %u serves on in a conflict with a peer that was promoted", i);
    }
    bool met = checks->met_us != 0 && sim_wire_clear_since(world, checks->met_us) &&
               world->now_us - checks->met_us > CONFLICT_US;
    if (met || sim_wire_clear_since(world, long_ago_us))
        sim_fail(world, "one-active", "both sites serve although they are in contact");
}

/* A decision that only a failover, or the loss of the copy that was ahead, can explain. */
static void check_peace(struct sim_world *world, unsigned site)
{
    enum sr_cause cause = world->site[site].status.cause;

    if (world->checks.failovers > 0 || world->checks.ever_lost)
        return;
    if (cause == SR_CAUSE_CONFLICT || (cause == SR_CAUSE_WAITING_FOR_FAILOVER && !world->site[site].serving))
        sim_fail(world, "conflict", "site %u is in %s (%s) without any failover", site, sr_cause_name(cause),
                 world->site[site].status.detail);
}

/* ---- lines of truth ---------------------------------------------------------------------------------------------- */

static void check_promotion(struct sim_world *world, unsigned site, const struct sr_record *before, bool forced)
{
    const struct sim_command *command = sim_admin_open(world, site, SR_ADMIN_FAILOVER);
    const struct sim_site *peer = &world->site[!site];

    if (command == NULL || (forced && !sim_admin_forced(world, site))) {
        sim_fail(world, "failover", "site %u promotes its copy%s, which nobody asked for", site,
                 forced ? " by force" : "");
        return;
    }
    if (before->handover && world->site[site].link_up && world->site[site].link_up_us < command->start_us)
        sim_fail(world, "failover", "site %u is promoted while its role is on the way to a connected peer", site);
    if (!peer->up || peer->started_us >= command->start_us || !sim_wire_clear_since(world, command->start_us))
        return;
    if (peer->meta.record.role == SR_ROLE_ACTIVE)
        sim_fail(world, "failover", "site %u is promoted beside an active peer that could answer", site);
    if (forced && peer->meta.record.consistent)
        sim_fail(world, "failover", "site %u forces its copy beside a complete one that could answer", site);
}

static void on_generation(struct sim_world *world, unsigned site, const struct sr_record *before,
                          const struct sr_record *after)
{
    if (!promoted(after)) { /* it goes on alone */
        if (sim_model_joined(world))
            sim_model_fork(world, !site);
        return;
    }
    bool forced = after->made_by == SR_MADE_FORCED;
    world->checks.failovers++;
    world->stats->failovers++;
    world->stats->forced += forced;
    check_promotion(world, site, before, forced);
    sim_model_fork(world, site);
    if (forced)
        sim_model_rebase(world, site);
    else
        sim_model_holds(world, site);
}

static void on_adoption(struct sim_world *world, unsigned site, const struct sr_record *before,
                        const struct sr_record *after)
{
    uint32_t example = 0, n = sr_uuid_is_none(&before->gen) ? 0 : sim_model_only_here(world, site, &example);
    bool given_up = before->discard && sr_uuid_equal(&before->discard_mine, &before->gen) &&
                    sr_uuid_equal(&before->discard_peer, &after->gen);

    world->stats->adoptions++;
    world->stats->given_up += n > 0;
    if (n > 0 && !given_up)
        sim_fail(world, "overwrite",
                 "site %u follows and loses %u writes that it acknowledged (%u is one), and nobody gave them up", site, n,
                 example);
    sim_model_join(world, site);
}

static void check_lost(struct sim_world *world, unsigned site, const struct sr_record *before,
                       const struct sr_record *after)
{
    const struct sr_record *peer = &world->site[!site].meta.record;
    const struct sr_uuid *gen = sr_uuid_is_none(&after->gen) ? &before->gen : &after->gen; /* going alone came first */

    if (!world->site[site].disk.had_error)
        sim_fail(world, "failed", "site %u calls its copy failed, but no write or flush did fail", site);
    world->checks.pause.tracking = false;
    if (!before->consistent ||
        (peer->consistent && (before->role != SR_ROLE_ACTIVE || sr_uuid_equal(gen, &peer->gen))))
        return;
    sim_trace(world, "%u    the only complete copy is lost", site);
    world->stats->only_copies_lost++;
    world->checks.ever_lost = true;
}

void sim_check_record(struct sim_world *world, unsigned site, const struct sr_record *before,
                      const struct sr_record *after)
{
    sim_trace(world, "%u    durable: %s gen %02x%02x base %u %02x%02x %s%s%s%s%s%s", site,
              after->role == SR_ROLE_ACTIVE ? "active" : "alternate", after->gen.b[0], after->gen.b[1],
              after->base_kind, after->base.b[0], after->base.b[1], after->consistent ? "consistent" : "inconsistent",
              after->failed ? " failed" : "", after->completing ? " completing" : "", after->paused ? " paused" : "",
              after->handover ? " handover" : "", after->discard ? " discard" : "");
    if (after->discard && !before->discard && sim_admin_open(world, site, SR_ADMIN_DISCARD) == NULL)
        sim_fail(world, "overwrite", "site %u gives its writes up, which nobody asked for", site);
    if (!sr_uuid_equal(&before->gen, &after->gen) && !sr_uuid_is_none(&after->gen)) {
        if (after->role == SR_ROLE_ACTIVE)
            on_generation(world, site, before, after);
        else
            on_adoption(world, site, before, after);
    }
    if (after->handover && !before->handover && world->layout.any_write_back)
        check_given(world, site);
    if (after->role == SR_ROLE_ACTIVE && before->role != SR_ROLE_ACTIVE && world->site[site].lossy)
        sim_model_lost(world, site);
    /* a commit may carry both the failure and its replacement */
    if ((after->failed && !before->failed) || (before->consistent && sr_uuid_is_none(&after->gen)))
        check_lost(world, site, before, after);
}

/* ---- equal when in sync
 * ---------------------------------------------------------------------------------------------- */

bool sim_check_both_in_sync(struct sim_world *world)
{
    const struct sim_site *a = &world->site[0], *b = &world->site[1];

    return a->up && b->up && a->status.sync == SR_SYNC_IN_SYNC && b->status.sync == SR_SYNC_IN_SYNC;
}

static bool nothing_under_way(const struct sim_world *world)
{
    if (!sim_wire_quiet(world) || sim_host_forwards(world))
        return false;
    for (unsigned i = 0; i < 2; i++)
        if (world->site[i].disk.n_writes > 0 || world->site[i].meta.n > 0)
            return false;
    for (const struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++)
        if (r->used && is_write(r->op))
            return false;
    return true;
}

static void check_equal(struct sim_world *world)
{
    const struct sim_site *a = &world->site[0], *b = &world->site[1];
    uint32_t n = world->layout.n_hot * SIM_BLOCK_SECTORS;

    world->stats->equal_checks++;
    for (uint32_t s = 0; s < n; s++)
        if (a->disk.sector[s] != b->disk.sector[s]) {
            sim_fail(world, "equal",
                     "in sync, but volume %u block %llu sector %u holds write %llu at site 0 and %llu at "
                     "site 1",
                     world->layout.hot_volume[s / SIM_BLOCK_SECTORS],
                     (unsigned long long)world->layout.hot_block[s / SIM_BLOCK_SECTORS], s % SIM_BLOCK_SECTORS,
                     (unsigned long long)a->disk.sector[s], (unsigned long long)b->disk.sector[s]);
            return;
        }
    if (!sr_uuid_equal(&a->meta.record.gen, &b->meta.record.gen))
        sim_fail(world, "equal", "in sync with different generations");
    for (unsigned i = 0; i < 2; i++) {
        const struct sr_record *record = &world->site[i].meta.record;
        if (!record->consistent || record->failed || record->base_kind != SR_BASE_NONE)
            sim_fail(world, "equal", "in sync, but the record of site %u says otherwise", i);
        for (uint32_t v = 0; v < world->layout.n_volumes; v++)
            if (sr_core_volume_dirty(world->site[i].core, v) != 0)
                sim_fail(world, "equal", "in sync, but site %u counts %llu blocks of volume %u as out of sync", i,
                         (unsigned long long)sr_core_volume_dirty(world->site[i].core, v), v);
    }
}

/* ---- pause and resume
 * -------------------------------------------------------------------------------------------------- */

static uint64_t copied(const struct sim_world *world)
{
    return world->site[0].status.copied_bytes + world->site[1].status.copied_bytes;
}

void sim_check_written(struct sim_world *world, uint32_t volume, uint64_t offset_bytes, uint64_t length_bytes)
{
    struct sim_pause *pause = &world->checks.pause;
    uint64_t first = offset_bytes / SR_BLOCK_BYTES, hot = 0;
    uint64_t end = (offset_bytes + length_bytes + SR_BLOCK_BYTES - 1) / SR_BLOCK_BYTES;
    struct sim_span span = {0};

    if (!pause->tracking)
        return;
    while (sim_layout_next(&world->layout, volume, offset_bytes, length_bytes, &span))
        for (uint32_t s = span.sector / SIM_BLOCK_SECTORS; s * SIM_BLOCK_SECTORS < span.sector + span.n; s++, hot++)
            pause->written[s] = true;
    pause->written_others += end - first - hot;
}

void sim_check_command(struct sim_world *world, unsigned site, enum sr_admin_command command)
{
    struct sim_pause *pause = &world->checks.pause;

    if (command == SR_ADMIN_RESUME && pause->tracking) {
        pause->resumed = true;
        pause->tracking = pause->image && pause->clean;
    } else if (command == SR_ADMIN_REPLACE || command == SR_ADMIN_FAILOVER || command == SR_ADMIN_DISCARD) {
        pause->tracking = false;
    }
    if (command != SR_ADMIN_PAUSE)
        return;
    if (pause->tracking) { /* paused twice: nothing new, but after a resume it starts another story */
        pause->tracking = !pause->resumed;
        return;
    }
    if (!sim_check_both_in_sync(world) || !world->wire.connected)
        return;
    *pause = (struct sim_pause){.tracking = true,
                                .clean = true,
                                .site = site,
                                .since = ++world->model.tick,
                                .alternate = world->site[0].meta.record.role == SR_ROLE_ALTERNATE ? 0 : 1,
                                .copied_before = copied(world)};
    for (const struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++)
        if (r->used && is_write(r->op))
            sim_check_written(world, r->volume, r->offset_bytes, r->length_bytes);
}

void sim_check_command_done(struct sim_world *world, unsigned site, enum sr_admin_command command,
                            enum sr_error error)
{
    struct sim_pause *pause = &world->checks.pause;

    if (pause->tracking && command == SR_ADMIN_PAUSE && site == pause->site && !pause->answered) {
        pause->answered = error == SR_OK;
        pause->tracking = error == SR_OK;
    }
}

void sim_check_disturbed(struct sim_world *world)
{
    struct sim_pause *pause = &world->checks.pause;

    pause->clean = false;
    pause->tracking = pause->tracking && pause->image && !pause->resumed;
}

static void check_exact_resync(struct sim_world *world)
{
    struct sim_pause *pause = &world->checks.pause;
    uint64_t blocks = pause->written_others, bytes = copied(world) - pause->copied_before;

    for (uint32_t i = 0; i < world->layout.n_hot; i++)
        blocks += pause->written[i];
    world->stats->exact_resyncs++;
    if (bytes * 100 > blocks * SR_BLOCK_BYTES * 105)
        sim_fail(world, "resync", "%llu blocks were written since the pause, but %llu bytes were copied",
                 (unsigned long long)blocks, (unsigned long long)bytes);
    pause->tracking = false;
}

static void follow_pause(struct sim_world *world)
{
    struct sim_pause *pause = &world->checks.pause;
    const struct sr_record *a = &world->site[0].meta.record, *b = &world->site[1].meta.record;

    if (world->site[pause->alternate].meta.record.role == SR_ROLE_ACTIVE) { /* the role was on its way to it */
        pause->tracking = false;
    } else if (!pause->image) {
        unsigned alternate = pause->alternate;
        if (!pause->answered || !a->paused || !b->paused || world->site[alternate].disk.n_writes > 0 ||
            !sim_wire_quiet(world))
            return;
        pause->image = true;
        sim_trace(world, "  site %u holds the image of the pause", alternate);
        sim_model_image(world, alternate, pause->since);
    } else if (pause->resumed && !a->paused && !b->paused && sim_check_both_in_sync(world)) {
        check_exact_resync(world);
    }
}

void sim_check_disk_write(struct sim_world *world, unsigned site)
{
    const struct sim_pause *pause = &world->checks.pause;

    if (pause->tracking && pause->image && !pause->resumed && site == pause->alternate)
        sim_fail(world, "image", "site %u writes to the image of the pause point", site);
}

/* ---- time
 * --------------------------------------------------------------------------------------------------------------- */

void sim_check_waits(struct sim_world *world)
{
    uint64_t slack_us = SLACK_US + 100 * (world->params.disk_us + world->params.meta_us);

    for (const struct sim_request *r = world->hosts.requests;
         world->hosts.n > 0 && r < world->hosts.requests + SIM_REQUESTS_MAX; r++) {
        const struct sim_site *me = &world->site[r->site];
        uint64_t limit_us =
            slack_us + world->params.tuning.stall_budget_ms * UINT64_C(1000) * (1 + r->pieces);
        if (r->switched)
            limit_us *= 2;
        if (!r->used || r->start_us + limit_us >= world->now_us || me->disturbed_until_us + limit_us >= world->now_us)
            continue;
        sim_fail(world, "bounded",
                 "request %llu (operation %u) at site %u waits for %llu ms, the stall budget is %u ms",
                 (unsigned long long)r->id, r->op, r->site, (unsigned long long)(world->now_us - r->start_us) / 1000,
                 world->params.tuning.stall_budget_ms);
    }
}

void sim_check_step(struct sim_world *world, unsigned site)
{
    struct sim_site *me = &world->site[site];

    if (world->failed)
        return;
    /* SERVE may wait for the commit that it rests on */
    if (me->status.serving != me->serving && (me->status.serving || me->meta.n == 0))
        sim_fail(world, "one-active", "site %u: status says serving %d, the last action %d", site, me->status.serving,
                 me->serving);
    if (me->disk.told_error && me->meta.n == 0 && !me->meta.record.failed &&
        (me->status.serving || me->status.sync == SR_SYNC_IN_SYNC))
        sim_fail(world, "failed", "site %u goes on after a failed write or flush", site);
    if (world->checks.pause.tracking)
        follow_pause(world);
    if (sim_check_both_in_sync(world))
        world->site[0].lossy = world->site[1].lossy = false;
    if (sim_check_both_in_sync(world) && nothing_under_way(world))
        check_equal(world);
    check_contact(world);
    check_peace(world, site);
    if (world->steps % IMAGE_EVERY != 0)
        return;
    for (unsigned i = 0; i < 2; i++)
        if (world->site[i].meta.record.consistent) {
            sim_model_image(world, i, 0);
            sim_model_holds(world, i);
            if (world->layout.any_write_back && !world->site[i].meta.record.failed)
                sim_model_stable(world, i);
        }
}

void sim_check_end(struct sim_world *world)
{
    if (world->failed)
        return;
    if (!sim_check_both_in_sync(world) || world->hosts.n > 0)
        sim_fail(world, "progress",
                 "faults ended long ago, but site 0 is %s (%s, %s), site 1 is %s (%s, %s), %u requests "
                 "open, commands open %d %d",
                 world->site[0].status.mode, sr_cause_name(world->site[0].status.cause), world->site[0].status.detail,
                 world->site[1].status.mode, sr_cause_name(world->site[1].status.cause), world->site[1].status.detail,
                 world->hosts.n, sim_admin_busy(world, 0), sim_admin_busy(world, 1));
    else if (!world->sweeping)
        sim_fail(world, "progress", "in sync, but no site serves");
    else if (nothing_under_way(world))
        check_equal(world);
}
