/* check.c - the checkers.
 *
 * Names as they appear in a failure:
 *   durability  an acknowledged write is stable on both disks, or the site that acknowledged is durably alone
 *               and its durable map counts every block in which the copies differ as out of sync
 *   reads       model.c
 *   image       model.c: a copy that calls itself consistent is what one moment left; a paused one stays it
 *   equal       both sites say in sync and nothing is on its way: equal copies, equal generations, nothing dirty
 *   one-active  two sites never serve at once, and only an active, consistent copy that has not failed serves
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

/* A request is cut into pieces of so many regions, each with a lock of its own. */
#define PIECE_BYTES (UINT64_C(64) * SR_REGION_BYTES)
#define SLACK_US    100000u
#define IMAGE_EVERY 24u /* steps */

/* 0: a request may wait a stall budget of its own for each one that it queued behind, because the core counts from
 * the moment a write is sent. */
#define SIM_STRICT_WAITS 1

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
    bool whole = r->length_bytes <= PIECE_BYTES && !r->switched;
    struct sim_span span = {0};

    if (whole && sim_disk_writing(world, site, r->volume, r->offset_bytes, r->length_bytes))
        sim_fail(world, "durability", "site %u acknowledges write %u, which is not stable yet at site %u", acker,
                 r->write, site);
    while (sim_layout_next(&world->layout, r->volume, r->offset_bytes, r->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++) {
            uint64_t stamp = sector[span.sector + i];
            if (stamp == wanted || (!whole && sim_model_after(world, stamp, r->write)))
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

/* At the moment of a reply with OK. */
void sim_check_reply(struct sim_world *world, unsigned site, const struct sim_request *request)
{
    if (request->switched && world->site[site].meta.record.role != SR_ROLE_ACTIVE)
        site = !site; /* it passes on what the site says that took the role over */
    else if (world->site[!site].up && world->site[!site].serving)
        sim_fail(world, "one-active", "site %u answers while site %u serves", site, !site);
    if (!is_write(request->op))
        return;
    bool failed = world->site[site].meta.record.failed;
    if (failed && !request->switched) /* else it may have failed while its answer was on its way */
        sim_fail(world, "one-active", "site %u acknowledges on a failed copy", site);
    if (!failed)
        check_holds(world, site, site, request);
    /* of a request in pieces, some may be done alone and some mirrored: only the former are out of sync */
    if (request->length_bytes > PIECE_BYTES && world->site[site].meta.record.base_kind != SR_BASE_NONE)
        check_tracked(world, site, request);
    else if (sim_meta_alone(&world->site[site].meta))
        check_tracked(world, site, request);
    else if (!gone(&world->site[!site].meta.record))
        check_holds(world, site, !site, request);
}

/* ---- who serves, what is lost
 * -------------------------------------------------------------------------------------- */

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

    if (world->site[!site].up && world->site[!site].serving)
        sim_fail(world, "one-active", "both sites serve");
    if (record->role != SR_ROLE_ACTIVE || !record->consistent || record->failed)
        sim_fail(world, "one-active", "site %u serves, but its record says %s, %s%s", site,
                 record->role == SR_ROLE_ACTIVE ? "active" : "alternate",
                 record->consistent ? "consistent" : "not consistent", record->failed ? ", failed" : "");
    check_start(world, site);
    if (!world->checks.lost)
        return;
    sim_trace(world, "%u    goes on from an older copy, the newer one was lost", site);
    sim_model_rebase(world, site);
    world->checks.lost = false;
}

void sim_check_record(struct sim_world *world, unsigned site, const struct sr_record *before,
                      const struct sr_record *after)
{
    const struct sr_record *peer = &world->site[!site].meta.record;

    sim_trace(world, "%u    durable: %s gen %02x%02x base %u %02x%02x %s%s%s%s", site,
              after->role == SR_ROLE_ACTIVE ? "active" : "alternate", after->gen.b[0], after->gen.b[1],
              after->base_kind, after->base.b[0], after->base.b[1], after->consistent ? "consistent" : "inconsistent",
              after->failed ? " failed" : "", after->completing ? " completing" : "", after->paused ? " paused" : "");
    /* a commit may carry both the failure and its replacement */
    if (!(after->failed && !before->failed) && !(before->consistent && sr_uuid_is_none(&after->gen)))
        return;
    if (!world->site[site].disk.had_error)
        sim_fail(world, "failed", "site %u calls its copy failed, but no write or flush did fail", site);
    world->checks.pause.tracking = false;
    if (!before->consistent ||
        (peer->consistent && (before->role != SR_ROLE_ACTIVE || sr_uuid_equal(&before->gen, &peer->gen))))
        return;
    sim_trace(world, "%u    the only complete copy is lost", site);
    world->stats->only_copies_lost++;
    world->checks.lost = world->checks.ever_lost = true;
}

bool sim_check_all_lost(const struct sim_world *world)
{
    return world->checks.ever_lost && !world->site[0].meta.record.consistent &&
           !world->site[1].meta.record.consistent;
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
    } else if (command == SR_ADMIN_REPLACE) {
        pause->tracking = false;
    }
    if (command != SR_ADMIN_PAUSE)
        return;
    if (pause->tracking) { /* paused twice: nothing new, but after a resume it starts another story */
        pause->tracking = !pause->resumed;
        return;
    }
    if (!sim_check_both_in_sync(world) || !world->wire.connected || world->checks.lost)
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
            slack_us + world->params.tuning.stall_budget_ms * UINT64_C(1000) * (SIM_STRICT_WAITS ? 1 : 1 + r->behind);
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
    if (sim_check_both_in_sync(world) && nothing_under_way(world))
        check_equal(world);
    if (world->steps % IMAGE_EVERY == 0 && !world->checks.lost)
        for (unsigned i = 0; i < 2; i++)
            if (world->site[i].meta.record.consistent)
                sim_model_image(world, i, 0);
}

void sim_check_end(struct sim_world *world)
{
    if (world->failed || sim_check_all_lost(world))
        return;
    if (!sim_check_both_in_sync(world) || world->hosts.n > 0)
        sim_fail(world, "progress",
                 "faults ended long ago, but site 0 is %s (%s, %s), site 1 is %s (%s, %s), %u requests "
                 "open, commands open %d %d",
                 world->site[0].status.mode, sr_cause_name(world->site[0].status.cause), world->site[0].status.detail,
                 world->site[1].status.mode, sr_cause_name(world->site[1].status.cause), world->site[1].status.detail,
                 world->hosts.n, world->admin.command[0].waiting, world->admin.command[1].waiting);
    else if (!world->sweeping)
        sim_fail(world, "progress", "in sync, but no site serves");
    else if (nothing_under_way(world))
        check_equal(world);
}
