/* faults.c - what breaks, how often, and the parameters of a schedule.
 *
 * Each schedule switches on a random choice of faults ("swarm"): a fault that hides another one is then absent in
 * many schedules.  Times are short, so that a few hundred steps see outages both shorter and longer than the
 * stall budget.
 */
#include "sim.h"

#include <string.h>

#include "base/assert.h"

const char *sim_profile_name(enum sim_profile profile)
{
    static const char *const names[] = {"quick", "crash", "disk", "admin", "roles", "all", "exhaustive"};

    SR_ASSERT(profile < SIM_PROFILES);
    return names[profile];
}

/* ---- parameters
 * ----------------------------------------------------------------------------------------------------- */

static uint32_t pick(struct sim_rng *rng, const uint32_t *list, unsigned n)
{
    return list[sim_below(rng, n)];
}

#define PICK(rng, ...)                                                                                               \
    pick(rng, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

void sim_tuning_choose(struct sr_core_tuning *tuning, struct sim_rng *rng)
{
    memset(tuning, 0, sizeof(*tuning));
    tuning->stall_budget_ms = PICK(rng, 5, 20, 50, 200);
    tuning->hot_regions_max = PICK(rng, 1, 2, 3, 1024);
    tuning->cool_after_ms = PICK(rng, 1, 5, 20, 1000);
    tuning->retry_min_ms = PICK(rng, 1, 5, 20);
    tuning->retry_max_ms = tuning->retry_min_ms * PICK(rng, 1, 4, 16);
    tuning->resync_parallel = PICK(rng, 1, 2, 4);
    tuning->resync_min_bytes_per_s = PICK(rng, 4, 64) * SR_MIB;
    tuning->resync_max_bytes_per_s = PICK(rng, 0, 0, 200) * SR_MIB;
    tuning->resync_latency_factor_percent = PICK(rng, 120, 200, 1000);
    /* without a number of its own, so that kept schedules stay what they were: one at a time, a few, all */
    tuning->forward_window_bytes =
        tuning->resync_parallel > 2 ? 4 * SR_MIB : (tuning->resync_parallel - 1) * 4 * SR_BLOCK_BYTES;
}

/* On in half of the schedules, then at some weight. */
static unsigned maybe(struct sim_rng *rng, unsigned weight)
{
    return sim_chance(rng, 500) ? (unsigned)sim_between(rng, weight / 3 + 1, weight * 2) : 0;
}

static void choose_faults(struct sim_params *p, struct sim_rng *rng, enum sim_profile profile)
{
    bool quick = profile == SIM_PROFILE_QUICK, crash = profile == SIM_PROFILE_CRASH,
         disk = profile == SIM_PROFILE_DISK, roles = profile == SIM_PROFILE_ROLES;

    p->cut = maybe(rng, roles ? 120 : 80);
    p->one_way = maybe(rng, roles ? 80 : 20);
    p->stall = maybe(rng, 60);
    p->freeze = maybe(rng, 30);
    p->spurious_timer = maybe(rng, 100);
    p->drop = maybe(rng, 10);
    p->ambush = maybe(rng, roles ? 200 : 50);
    if (quick || crash || disk || roles || sim_chance(rng, 400)) {
        p->crash = maybe(rng, crash ? 150 : 60);
        p->crash_both = maybe(rng, crash ? 60 : 15);
    }
    if (disk || sim_chance(rng, 250)) {
        p->slow_disk = maybe(rng, 60);
        p->write_error = maybe(rng, 25);
        p->read_error = maybe(rng, 60);
        p->flush_error = maybe(rng, 25);
        p->unreadable = maybe(rng, 60);
        p->no_space = maybe(rng, 80);
        p->budget = maybe(rng, 60);
    }
    if (crash || sim_chance(rng, 200))
        p->crash_every = PICK(rng, 0, 20, 60, 150);
    if (sim_chance(rng, 300))
        p->cut_every = PICK(rng, 20, 60, 150);
    if (crash || disk)
        p->meta_error = maybe(rng, 25);
}

/* Administrators who move the role when the sites cannot agree.  Most schedules of the other profiles do without: there
 * the stricter rules of a pair without a failover hold. */
static void choose_roles(struct sim_params *p, struct sim_rng *rng, enum sim_profile profile)
{
    if (profile != SIM_PROFILE_ROLES) {
        if (sim_chance(rng, 100))
            p->failover = p->discard = 100;
        return;
    }
    p->switchover = maybe(rng, 400);
    p->fault_us = PICK(rng, 1500, 6000, 20000);
    p->failover = (unsigned)sim_between(rng, 40, 400);
    p->discard = (unsigned)sim_between(rng, 20, 600);
    p->probe = maybe(rng, 20);
    p->fault_length_us = PICK(rng, 3000, 20000, 60000, 400000);
    p->tuning.stall_budget_ms = PICK(rng, 5, 5, 20, 50);
}

void sim_params_choose(struct sim_params *p, struct sim_rng *rng, enum sim_profile profile, uint32_t steps)
{
    if (profile == SIM_PROFILE_ALL)
        profile = (enum sim_profile)sim_below(rng, SIM_PROFILE_ALL);
    memset(p, 0, sizeof(*p));
    p->profile = profile;
    p->steps = steps;
    sim_tuning_choose(&p->tuning, rng);
    p->disk_us = PICK(rng, 20, 100, 500);
    p->meta_us = PICK(rng, 20, 100, 500);
    p->wire_us = PICK(rng, 10, 50, 400);
    p->host_us = PICK(rng, 50, 300, 1500);
    p->fault_us = PICK(rng, 500, 2000, 6000);
    p->admin_us = PICK(rng, 1000, 4000);
    p->restart_us = PICK(rng, 500, 3000, 30000);
    p->notice_us = PICK(rng, 50, 1000, 20000);
    p->fault_length_us = PICK(rng, 1000, 10000, 60000);
    p->write_percent = PICK(rng, 30, 55, 75);
    p->big_percent = PICK(rng, 0, 10, 50);
    p->partial_percent = PICK(rng, 0, 30, 60);
    p->import = sim_chance(rng, 100);
    p->heartbeat_us = PICK(rng, 5000, 50000, 2000000);
    p->faults_us = profile == SIM_PROFILE_ROLES ? 6000000 : 300000;
    choose_faults(p, rng, profile);
    bool admin = profile == SIM_PROFILE_ADMIN;
    if (admin || sim_chance(rng, 400)) {
        p->pause = maybe(rng, admin ? 200 : 80);
        p->resume = p->pause * 2;
        p->stop = maybe(rng, admin ? 60 : 20);
        p->tune = maybe(rng, 40);
    }
    if (admin || sim_chance(rng, 500)) {
        p->switchover = maybe(rng, admin ? 300 : 150);
        p->probe = maybe(rng, 20);
    }
    choose_roles(p, rng, profile);
    p->replace = 400;
    if (admin && sim_chance(rng, 400)) { /* calm: what was written while paused can be compared with what is copied */
        p->calm = true;
        p->cut = p->one_way = p->ambush = p->stall = p->freeze = p->crash = p->crash_both = p->crash_every = p->cut_every = p->stop = 0;
        p->failover = p->discard = 0;
        p->slow_disk = p->write_error = p->read_error = p->flush_error = p->unreadable = p->no_space = p->budget = 0;
        p->tuning.stall_budget_ms = 200;
        p->import = false;
    }
}

/* ---- what breaks
 * ------------------------------------------------------------------------------------------------------ */

static uint64_t some_length_us(struct sim_world *world)
{
    return sim_delay(&world->rng, world->params.fault_length_us);
}

static void disturb(struct sim_world *world, unsigned site, uint64_t until_us)
{
    struct sim_site *me = &world->site[site];

    sim_check_disturbed(world);
    if (me->disturbed_until_us < until_us)
        me->disturbed_until_us = until_us;
}

static void crash(struct sim_world *world, unsigned site)
{
    if (world->site[site].up)
        sim_world_crash(world, site, sim_delay(&world->rng, world->params.restart_us));
}

static void cut(struct sim_world *world)
{
    sim_check_disturbed(world);
    world->stats->cuts++;
    world->wire.cut_until_us = world->now_us + some_length_us(world);
    sim_wire_cut(world);
}

/* What is on its way already stays due when it was, whatever comes after. */
static void hold_up(struct sim_lane *lane, uint64_t until_us)
{
    lane->stalled_until_us = until_us;
    if (lane->trouble_us < until_us)
        lane->trouble_us = until_us;
}

static void stall(struct sim_world *world, unsigned to)
{
    struct sim_lane *lane = &world->wire.lane[to];

    sim_check_disturbed(world);
    world->stats->stalls++;
    hold_up(lane, world->now_us + some_length_us(world));
    sim_trace(world, "  messages to site %u stall until %llu", to, (unsigned long long)lane->stalled_until_us);
}

/* Nothing arrives in one direction any more; the other one works until the heartbeat finds out. */
static void one_way(struct sim_world *world, unsigned to)
{
    struct sim_lane *lane = &world->wire.lane[to];

    if (!world->wire.connected || world->wire.dead_us != 0)
        return;
    sim_check_disturbed(world);
    world->stats->one_way++;
    world->wire.dead_us = world->now_us + sim_delay(&world->rng, world->params.heartbeat_us);
    hold_up(lane, world->wire.dead_us + 1);
    sim_trace(world, "  messages to site %u vanish; cut at %llu", to, (unsigned long long)world->wire.dead_us);
}

static void freeze(struct sim_world *world, unsigned site)
{
    struct sim_site *me = &world->site[site];

    world->stats->freezes++;
    uint64_t until_us = world->now_us + some_length_us(world);
    if (me->frozen_until_us < until_us) /* events were put off until then already */
        me->frozen_until_us = until_us;
    disturb(world, site, me->frozen_until_us);
    sim_trace(world, "  site %u is frozen until %llu", site, (unsigned long long)me->frozen_until_us);
}

/* Somebody else takes buffers and gives them back. */
static void take_budget(struct sim_world *world, unsigned site)
{
    struct sim_site *me = &world->site[site];
    struct sr_budget *budget = &me->budget;

    disturb(world, site, world->now_us + some_length_us(world));
    if (budget->limit_bytes == 0)
        budget->limit_bytes = 8 * SR_MIB;
    if (budget->used_bytes < budget->limit_bytes && me->budget_taken == 0) {
        me->budget_taken = budget->limit_bytes - budget->used_bytes;
        budget->used_bytes = budget->limit_bytes;
        world->stats->budget_shortages++;
    }
}

static void give_budget_back(struct sim_site *me)
{
    me->budget.used_bytes -= me->budget_taken;
    me->budget_taken = 0;
}

static void break_disk(struct sim_world *world, unsigned site)
{
    const struct sim_params *params = &world->params;
    struct sim_disk *disk = &world->site[site].disk;
    struct sim_rng *rng = &world->rng;
    uint64_t until_us = world->now_us + some_length_us(world);

    if (sim_chance(rng, params->slow_disk)) {
        disk->slow_until_us = until_us;
        disturb(world, site, until_us + 200 * params->disk_us);
    }
    if (sim_chance(rng, params->no_space)) {
        disk->full_until_us = until_us;
        disturb(world, site, until_us);
    }
    if (sim_chance(rng, params->write_error))
        disk->fail_writes = 1, disturb(world, site, world->now_us);
    if (sim_chance(rng, params->read_error))
        disk->fail_reads = (unsigned)sim_between(rng, 1, 2), disturb(world, site, world->now_us);
    if (sim_chance(rng, params->flush_error))
        disk->fail_flushes = 1, disturb(world, site, world->now_us);
    if (sim_chance(rng, params->unreadable))
        disk->unreadable[sim_below(rng, world->layout.n_hot)] = true, disturb(world, site, world->now_us);
    if (sim_chance(rng, params->meta_error))
        world->site[site].meta.fail_next = true, disturb(world, site, world->now_us);
    if (sim_chance(rng, params->budget))
        take_budget(world, site);
}

void sim_fault_visit(struct sim_world *world)
{
    const struct sim_params *params = &world->params;
    struct sim_rng *rng = &world->rng;
    unsigned site = (unsigned)sim_below(rng, 2);

    if (world->mending)
        return; /* and never comes again */
    sim_world_push(world, SIM_EV_FAULT, 0, world->now_us + sim_delay(rng, params->fault_us), 0);
    for (unsigned i = 0; i < 2; i++)
        if (sim_chance(rng, 300))
            give_budget_back(&world->site[i]);
    if (sim_chance(rng, params->spurious_timer) && world->site[site].up) {
        world->stats->spurious_timers++;
        sim_world_push(world, SIM_EV_TIMER, site, world->now_us, UINT32_MAX);
    }
    break_disk(world, site);
    if (sim_chance(rng, params->stall))
        stall(world, site);
    if (sim_chance(rng, params->one_way))
        one_way(world, site);
    if (sim_chance(rng, params->cut))
        cut(world);
    if (sim_chance(rng, params->freeze) && world->site[site].up)
        freeze(world, site);
    if (sim_chance(rng, params->crash))
        crash(world, site);
    if (sim_chance(rng, params->crash_both)) {
        crash(world, site);
        crash(world, !site);
    }
}

static bool due(struct sim_world *world, unsigned every, uint32_t *step)
{
    if (every == 0 || world->mending || world->steps < *step)
        return false;
    bool first = *step == 0;
    *step = world->steps + (uint32_t)sim_between(&world->rng, 1, 2 * (uint64_t)every);
    return !first;
}

/* The moments when a role or a session changes hands are short: faults wait for them. */
static void ambush(struct sim_world *world)
{
    bool changed = world->wire.pivotal;

    world->wire.pivotal = false;
    if (changed)
        sim_admin_ambush(world);
    for (unsigned i = 0; i < 2; i++) {
        struct sim_site *me = &world->site[i];
        changed |= me->up && me->watched_mode != me->mode;
        me->watched_mode = me->mode;
    }
    if (!changed || world->mending || !sim_chance(&world->rng, world->params.ambush))
        return;
    unsigned site = (unsigned)sim_below(&world->rng, 2);
    switch (sim_below(&world->rng, 6)) {
    case 0:
        cut(world);
        break;
    case 1:
    case 2:
        one_way(world, site);
        break;
    case 3:
        if (world->params.crash > 0)
            crash(world, site);
        break;
    default:
        stall(world, site);
    }
}

void sim_fault_step(struct sim_world *world)
{
    ambush(world);
    if (due(world, world->params.crash_every, &world->crash_step))
        crash(world, (unsigned)sim_below(&world->rng, 2));
    if (due(world, world->params.cut_every, &world->cut_step))
        cut(world);
    if (world->wire.dead_us != 0 && world->now_us >= world->wire.dead_us) {
        uint64_t until_us = world->now_us + some_length_us(world);
        sim_wire_cut(world);
        world->wire.cut_until_us = world->mending ? 0 : until_us;
    }
}

void sim_fault_end_all(struct sim_world *world)
{
    for (unsigned i = 0; i < 2; i++) {
        struct sim_site *me = &world->site[i];
        struct sim_disk *disk = &me->disk;
        give_budget_back(me);
        disk->fail_writes = disk->fail_reads = disk->fail_flushes = 0;
        disk->full_until_us = disk->slow_until_us = 0;
        memset(disk->unreadable, 0, sizeof(disk->unreadable));
        me->meta.fail_next = false;
    }
    sim_check_disturbed(world);
}
