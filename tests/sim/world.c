/* world.c - virtual time: the heap of events, the two processes, one schedule from start to end.
 *
 * A schedule has three parts: steps with faults, until the number asked for is done; mending, when no new faults
 * come and an administrator cleans up until the pair is in sync; the sweep, which reads every hot block once more.
 *
 * Invariants
 *   W1  Everything random comes from world->rng; events of the same time run in the order in which they were made.
 *       So a seed gives the same schedule every time.
 *   W2  An event of a process that is gone (an older epoch) is void.
 *   W3  A core is never stepped from inside its own step: actions only make later events.
 *   W4  The replies of a step are checked before any of its other actions is carried out: none may depend on them.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define MENDING_STEPS_MAX 60000u
#define MENDING_US_MAX    (UINT64_C(600) * 1000000)

/* ---- what everybody uses -------------------------------------------------------------------------------- */

void sim_fail(struct sim_world *world, const char *checker, const char *format, ...)
{
    va_list args;

    if (world->failed)
        return;
    world->failed = true;
    int n = snprintf(world->failure, sizeof(world->failure), "%s: ", checker);
    va_start(args, format);
    vsnprintf(world->failure + n, sizeof(world->failure) - (size_t)n, format, args);
    va_end(args);
    sim_trace(world, "VIOLATION %s", world->failure);
}

void sim_trace(struct sim_world *world, const char *format, ...)
{
    va_list args;

    if (!world->verbose)
        return;
    printf("%10llu ", (unsigned long long)world->now_us);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* ---- the heap of events ----------------------------------------------------------------------------------- */

static bool earlier(const struct sim_event *a, const struct sim_event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->order < b->order;
}

static void heap_insert(struct sim_world *world, struct sim_event event)
{
    if (world->n_events == world->cap_events) {
        world->cap_events = world->cap_events == 0 ? 1024 : world->cap_events * 2;
        world->heap = realloc(world->heap, world->cap_events * sizeof(*world->heap));
        SR_ASSERT(world->heap != NULL);
    }
    uint32_t i = world->n_events++;
    while (i > 0 && earlier(&event, &world->heap[(i - 1) / 2])) {
        world->heap[i] = world->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    world->heap[i] = event;
}

static struct sim_event heap_take(struct sim_world *world)
{
    struct sim_event first = world->heap[0], last = world->heap[--world->n_events];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= world->n_events)
            break;
        if (child + 1 < world->n_events && earlier(&world->heap[child + 1], &world->heap[child]))
            child++;
        if (!earlier(&world->heap[child], &last))
            break;
        world->heap[i] = world->heap[child];
        i = child;
    }
    world->heap[i] = last;
    return first;
}

void sim_world_push(struct sim_world *world, enum sim_event_kind kind, unsigned site, uint64_t at_us, uint32_t arg)
{
    struct sim_event event = {.at_us = at_us,
                              .order = world->order++,
                              .kind = (uint8_t)kind,
                              .site = (uint8_t)site,
                              .epoch = world->site[site].epoch,
                              .arg = arg};

    if (event.at_us < world->now_us)
        event.at_us = world->now_us;
    heap_insert(world, event);
}

/* ---- one step of a core ------------------------------------------------------------------------------------- */

static const char *event_name(const struct sr_event *event)
{
    static const char *const names[] = {"TIME",    "HOST",      "DISK_DONE", "META_DONE", "PEER_MSG",
                                        "LINK_UP", "LINK_DOWN", "RETIRED",   "ADMIN",     "TUNE"};

    return names[event->type];
}

static void note_mode(struct sim_world *world, unsigned site)
{
    struct sim_stats *stats = world->stats;
    const char *mode = world->site[site].status.mode;
    uint32_t i;

    for (i = 0; i < stats->n_modes; i++)
        if (strcmp(stats->modes[i], mode) == 0)
            break;
    if (i == stats->n_modes) {
        SR_ASSERT(stats->n_modes < SIM_MODES_MAX);
        snprintf(stats->modes[stats->n_modes++], sizeof(stats->modes[0]), "%s", mode);
    }
    if (world->site[site].mode != i && world->site[site].mode != UINT8_MAX) {
        if (stats->edges[world->site[site].mode][i] == 0 &&
            !sim_edge_allowed(stats->modes[world->site[site].mode], mode))
            sim_fail(world, "edges", "site %u goes from %s to %s", site, stats->modes[world->site[site].mode], mode);
        stats->edges[world->site[site].mode][i]++;
        sim_trace(world, "%u    mode %s -> %s", site, stats->modes[world->site[site].mode], mode);
    } else if (world->site[site].mode != i) {
        sim_trace(world, "%u    mode %s", site, mode);
    }
    world->site[site].mode = (uint8_t)i;
}

/* Replies and answers first (W4). */
static void check_answers(struct sim_world *world, unsigned site)
{
    const struct sr_actions *actions = &world->site[site].actions;
    bool halts = false;

    for (uint32_t i = 0; i < actions->n; i++)
        halts |= actions->list[i].type == SR_ACT_HALT;
    for (uint32_t i = 0; i < actions->n; i++) {
        const struct sr_action *action = &actions->list[i];
        if (action->type == SR_ACT_REPLY) {
            if (halts && action->reply.error == SR_OK)
                sim_fail(world, "halt", "site %u acknowledges a request in the step in which it halts", site);
            sim_host_reply(world, site, action->reply.id, action->reply.error);
        }
    }
    for (uint32_t i = 0; i < actions->n; i++) {
        const struct sr_action *action = &actions->list[i];
        if (action->type == SR_ACT_ADMIN)
            sim_admin_reply(world, site, action->admin.id, action->admin.error, action->admin.text);
    }
}

static void arm_timer(struct sim_world *world, unsigned site, uint64_t at_us)
{
    struct sim_site *me = &world->site[site];

    me->timer++;
    if (at_us == 0)
        return;
    uint64_t late_us = sim_chance(&world->rng, 100) ? sim_delay(&world->rng, 2000) : 0;
    if (at_us < world->now_us)
        at_us = world->now_us;
    sim_world_push(world, SIM_EV_TIMER, site, at_us + late_us, me->timer);
}

/* Returns false if the process is to stop at once. */
static bool carry_out(struct sim_world *world, unsigned site, struct sr_action *action)
{
    struct sim_site *me = &world->site[site];

    switch (action->type) {
    case SR_ACT_DISK:
        sim_disk_submit(world, site, &action->disk);
        break;
    case SR_ACT_COMMIT:
        sim_meta_submit(world, site, action->commit);
        break;
    case SR_ACT_SEND:
        sim_wire_send(world, site, action->msg);
        break;
    case SR_ACT_REPLY:
    case SR_ACT_ADMIN:
        break;
    case SR_ACT_TIMER:
        arm_timer(world, site, action->timer_us);
        break;
    case SR_ACT_SERVE:
        sim_trace(world, "%u    %s", site, action->serve ? "SERVES" : "serves no more");
        me->serving = action->serve;
        if (action->serve)
            sim_check_serve(world, site);
        break;
    case SR_ACT_RETIRE:
        sim_trace(world, "%u    retires its hosts", site);
        me->serving = false;
        sim_host_retired(world, site);
        sim_world_push(world, SIM_EV_RETIRED, site, world->now_us + sim_delay(&world->rng, world->params.host_us / 4), 0);
        break;
    case SR_ACT_LINK_FAULT:
        sim_fail(world, "protocol", "site %u complains about its honest peer: %s", site, action->text);
        break;
    case SR_ACT_LOG:
        sim_trace(world, "%u    log: %s", site, action->log.text);
        break;
    case SR_ACT_HALT:
        if (!me->meta.failed)
            sim_fail(world, "halt", "site %u halts without a failed commit: %s", site, action->text);
        sim_trace(world, "%u    HALT %s", site, action->text);
        return false;
    }
    return true;
}

void sim_world_step(struct sim_world *world, unsigned site, struct sr_event *event)
{
    struct sim_site *me = &world->site[site];
    bool alive = true;

    SR_ASSERT(me->up);
    event->now_us = world->now_us;
    event->wall_ms = UINT64_C(1700000000000) + world->now_us / 1000;
    for (unsigned i = 0; i < 2; i++) {
        uint64_t bits = sim_random(&world->rng);
        memcpy(&event->random.b[8 * i], &bits, sizeof(bits));
    }
    sim_trace(world, "%u %s", site, event_name(event));
    world->steps++;
    me->cause = me->status.cause;
    sr_core_step(me->core, event, &me->actions);
    sr_core_check(me->core);
    sr_core_status(me->core, world->now_us, &me->status);
    note_mode(world, site);
    check_answers(world, site);
    /* The list is ours until the next step; nothing below steps this core. */
    for (uint32_t i = 0; i < me->actions.n; i++)
        alive &= carry_out(world, site, &me->actions.list[i]);
    if (me->meta.failed && alive)
        sim_fail(world, "halt", "site %u goes on after a failed commit", site);
    if (!alive || me->stopping) {
        sim_world_crash(world, site, sim_delay(&world->rng, world->params.restart_us));
        return;
    }
    sim_check_step(world, site);
}

/* ---- a process starts and ends --------------------------------------------------------------------------------- */

static const struct sr_uuid *volume_uuid(struct sr_uuid *uuid, uint32_t volume)
{
    memset(uuid, 0x40 + (int)volume, sizeof(*uuid));
    return uuid;
}

void sim_world_start(struct sim_world *world, unsigned site)
{
    struct sim_site *me = &world->site[site];
    struct sr_core_volume volumes[SIM_VOLUMES_MAX] = {0};
    struct sr_core_config config = {.tuning = world->params.tuning,
                                    .n_volumes = world->layout.n_volumes,
                                    .volumes = volumes,
                                    .budget = &me->budget,
                                    .name = site == 0 ? "a" : "b",
                                    .peer_name = site == 0 ? "b" : "a"};
    struct sr_event now = {.type = SR_EV_TIME, .now_us = world->now_us};

    SR_ASSERT(!me->up);
    for (uint32_t i = 0; i < world->layout.n_volumes; i++) {
        volume_uuid(&volumes[i].uuid, i);
        volumes[i].size_bytes = world->layout.blocks[i] * SR_BLOCK_BYTES;
        volumes[i].write_back = world->layout.write_back[i];
    }
    sim_trace(world, "%u START", site);
    sim_disk_secure(&me->disk);
    me->core = sr_core_new(&config, &me->meta.record);
    SR_ASSERT(me->core != NULL);
    sim_meta_load(world, site, me->core);
    me->up = true;
    me->serving = me->link_up = me->met_peer = me->stopping = false;
    me->mode = UINT8_MAX;
    me->started_us = world->now_us;
    now.wall_ms = UINT64_C(1700000000000) + world->now_us / 1000;
    uint64_t bits[2] = {sim_random(&world->rng), sim_random(&world->rng)};
    memcpy(now.random.b, bits, sizeof(bits));
    sr_core_start(me->core, &now, &me->actions);
    sr_core_check(me->core);
    sr_core_status(me->core, world->now_us, &me->status);
    note_mode(world, site);
    check_answers(world, site);
    for (uint32_t i = 0; i < me->actions.n; i++)
        if (!carry_out(world, site, &me->actions.list[i]))
            sim_fail(world, "halt", "site %u halts at its start", site);
    sim_world_push(world, SIM_EV_CONNECT, 0, world->now_us + sim_delay(&world->rng, world->params.notice_us), 0);
}

static void forget_process(struct sim_world *world, unsigned site)
{
    struct sim_site *me = &world->site[site];
    bool write_back = world->layout.any_write_back, power = write_back && sim_chance(&world->rng, 600);

    if (power)
        sim_trace(world, "%u    with its cache", site);
    world->stats->power_cuts += power;
    me->lossy |= power;
    sim_disk_crash(world, site, power);
    sim_meta_crash(world, site);
    if (write_back && me->meta.record.role == SR_ROLE_ACTIVE)
        sim_model_lost(world, site); /* killed: a host that connects again cannot know that it is still there */
    me->epoch++;
    me->timer++;
    me->up = me->serving = me->link_up = false;
    sr_core_free(me->core);
    me->core = NULL;
}

void sim_world_crash(struct sim_world *world, unsigned site, uint64_t restart_after_us)
{
    struct sim_site *me = &world->site[site];

    SR_ASSERT(me->up);
    sim_trace(world, "%u %s", site, me->stopping ? "STOPPED" : "CRASH");
    sim_check_disturbed(world);
    world->stats->crashes += !me->stopping;
    sim_wire_cut(world);
    forget_process(world, site);
    sim_host_crash(world, site);
    sim_admin_crash(world, site);
    me->stopping = false;
    me->frozen_until_us = me->disturbed_until_us = 0;
    if (me->budget.used_bytes != me->budget_taken)
        sim_fail(world, "buffers", "site %u leaves %zu bytes of buffers behind", site, me->budget.used_bytes);
    sim_world_push(world, SIM_EV_RESTART, site, world->now_us + restart_after_us, 0);
}

/* ---- a schedule -------------------------------------------------------------------------------------------------
 */

static bool dies_with_the_process(enum sim_event_kind kind)
{
    return kind == SIM_EV_DISK || kind == SIM_EV_META || kind == SIM_EV_WIRE || kind == SIM_EV_TIMER ||
           kind == SIM_EV_LINK_UP || kind == SIM_EV_LINK_DOWN || kind == SIM_EV_RETIRED;
}

static void dispatch(struct sim_world *world, const struct sim_event *event)
{
    struct sim_site *me = &world->site[event->site];
    struct sr_event time = {.type = SR_EV_TIME};

    switch ((enum sim_event_kind)event->kind) {
    case SIM_EV_DISK:
        sim_disk_complete(world, event->site, event->arg);
        break;
    case SIM_EV_META:
        sim_meta_complete(world, event->site);
        break;
    case SIM_EV_WIRE:
        sim_wire_deliver(world, event->site, event->arg);
        break;
    case SIM_EV_TIMER:
        if (event->arg == me->timer || event->arg == UINT32_MAX)
            sim_world_step(world, event->site, &time);
        break;
    case SIM_EV_LINK_UP:
        sim_wire_up(world, event->site, event->arg);
        break;
    case SIM_EV_LINK_DOWN:
        sim_wire_down(world, event->site);
        break;
    case SIM_EV_RETIRED:
        sim_host_late(world, event->site);
        if (me->up)
            sim_world_step(world, event->site, &(struct sr_event){.type = SR_EV_RETIRED});
        break;
    case SIM_EV_RESTART:
        sim_world_start(world, event->site);
        break;
    case SIM_EV_CONNECT:
        sim_wire_connect(world);
        break;
    case SIM_EV_HOST:
        sim_host_visit(world, event->arg);
        break;
    case SIM_EV_ADMIN:
        sim_admin_visit(world);
        break;
    case SIM_EV_FAULT:
        sim_fault_visit(world);
        break;
    case SIM_EV_KINDS:
        SR_UNREACHABLE();
    }
}

static void run_one(struct sim_world *world)
{
    struct sim_event event = heap_take(world);
    struct sim_site *me = &world->site[event.site];

    SR_ASSERT(event.at_us >= world->now_us);
    world->now_us = event.at_us;
    if (dies_with_the_process((enum sim_event_kind)event.kind)) {
        if (event.epoch != me->epoch)
            return;
        if (me->frozen_until_us > world->now_us) { /* the order among them stays */
            event.at_us = me->frozen_until_us;
            heap_insert(world, event);
            return;
        }
    }
    world->stats->events[event.kind]++;
    dispatch(world, &event);
    sim_fault_step(world);
    sim_check_waits(world);
}

static void begin(struct sim_world *world, uint64_t seed, enum sim_profile profile, uint32_t steps)
{
    world->seed = seed;
    world->now_us = 1000000;
    world->order = 0;
    world->rng.state = sim_mix(seed + 1) ^ ((uint64_t)profile << 56);
    world->n_events = world->steps = world->crash_step = world->cut_step = 0;
    world->mending = world->sweeping = world->failed = false;
    for (unsigned i = 0; i < 2; i++) {
        sim_layout_reset(&world->site[i]);
        world->wire.lane[i].head = world->wire.lane[i].n = 0;
        world->wire.lane[i].last_due_us = world->wire.lane[i].stalled_until_us = 0;
        world->wire.lane[i].trouble_us = 0;
    }
    world->wire.connected = world->wire.pivotal = false;
    world->wire.connection = 0;
    world->wire.cut_until_us = world->wire.dead_us = world->wire.up_since_us = 0;
    memset(&world->hosts, 0, sizeof(world->hosts));
    memset(&world->admin, 0, sizeof(world->admin));
    memset(&world->checks, 0, sizeof(world->checks));
    world->rng.fixed = false;
    if (profile == SIM_PROFILE_EXHAUSTIVE) {
        sim_exhaustive_begin(world);
    } else {
        sim_params_choose(&world->params, &world->rng, profile, steps);
        sim_layout_choose(world);
        sim_layout_choose_durability(world);
    }
    sim_layout_fill(world);
    for (unsigned i = 0; i < 2; i++)
        sim_world_start(world, i);
    if (profile == SIM_PROFILE_EXHAUSTIVE)
        return;
    for (uint32_t i = 0; i < SIM_HOSTS; i++)
        sim_world_push(world, SIM_EV_HOST, 0, world->now_us + sim_delay(&world->rng, world->params.host_us), i);
    sim_world_push(world, SIM_EV_ADMIN, 0, world->now_us + sim_delay(&world->rng, world->params.admin_us), 0);
    sim_world_push(world, SIM_EV_FAULT, 0, world->now_us + sim_delay(&world->rng, world->params.fault_us), 0);
}

/* Everything that is broken gets mended; returns when the pair is in sync and idle, or something is wrong. */
static void mend(struct sim_world *world)
{
    uint64_t deadline_us = world->now_us + MENDING_US_MAX;
    uint32_t last_step = world->steps + MENDING_STEPS_MAX;

    world->mending = true;
    sim_trace(world, "MENDING");
    sim_fault_end_all(world);
    if (world->params.profile == SIM_PROFILE_EXHAUSTIVE)
        sim_exhaustive_mend(world);
    while (!world->failed) {
        if (sim_check_both_in_sync(world) && world->hosts.n == 0) {
            if (world->sweeping)
                return;
            world->sweeping = sim_host_sweep(world);
        }
        if (world->steps > last_step || world->now_us > deadline_us) {
            sim_check_end(world);
            return;
        }
        SR_ASSERT(world->n_events > 0);
        run_one(world);
    }
}

static void end(struct sim_world *world)
{
    for (unsigned i = 0; i < 2; i++) {
        if (world->site[i].up)
            forget_process(world, i);
        sim_host_crash(world, i);
    }
    sim_wire_cut(world);
    for (unsigned i = 0; i < 2; i++) {
        struct sim_site *me = &world->site[i];
        if (me->budget.used_bytes != me->budget_taken)
            sim_fail(world, "buffers", "site %u leaves %zu bytes of buffers behind", i, me->budget.used_bytes);
    }
}

bool sim_world_run(struct sim_world *world, uint64_t seed, enum sim_profile profile, uint32_t steps)
{
    begin(world, seed, profile, steps);
    uint64_t deadline_us = world->now_us + world->params.faults_us; /* nothing may happen for long: no site serves */
    bool enumerated = profile == SIM_PROFILE_EXHAUSTIVE;
    while (!world->failed && (enumerated ? sim_exhaustive_next(world)
                                         : world->steps < world->params.steps && world->now_us < deadline_us)) {
        SR_ASSERT(world->n_events > 0);
        run_one(world);
    }
    uint32_t before = world->steps;
    bool judged = !enumerated || !world->script.pointless;
    if (!world->failed && judged)
        mend(world);
    if (!world->failed && judged)
        sim_check_end(world);
    end(world);
    world->stats->schedules++;
    world->stats->steps += world->steps;
    world->stats->settle_steps += world->steps - before;
    return !world->failed;
}

struct sim_world *sim_world_new(struct sim_stats *stats)
{
    struct sim_world *world = calloc(1, sizeof(*world));

    SR_ASSERT(world != NULL);
    world->stats = stats;
    return world;
}

void sim_world_free(struct sim_world *world)
{
    for (unsigned i = 0; i < 2; i++)
        sr_actions_free(&world->site[i].actions);
    free(world->heap);
    free(world);
}
