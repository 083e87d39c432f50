/* exhaustive.c - every order of up to three operations, at every step of one small schedule.
 *
 *     sr-sim --profile exhaustive --jobs 2               of three operations those at most 10 steps apart
 *     sr-sim --profile exhaustive --gap 0 --jobs 2       all of it
 *     sr-sim --profile exhaustive --seed 4711 --schedules 1 --verbose      the trace of one
 *
 * The base schedule: a pair in sync, one volume, a host that writes four times, one write after the other; delays are
 * fixed and nothing breaks.  Position p is the moment after p steps of the two cores, counted from the host's first
 * request on; a schedule is up to three operations, each at a position.  What an operation sets off counts as steps too, so
 * later ones meet it at every step.  When nothing is left to happen, the world is mended and judged as everywhere else.
 *
 * The seed of this profile is the number of the schedule: lengths first, then operations, then positions, the last one
 * fastest.  One thing is left to chance, seeded by the operations so far: whether a kill keeps, loses or tears a write in flight.
 *
 * What is left out, and counted, is what another schedule of the enumeration covers, but for that chance:
 *   - an operation without effect (heal an uncut link, kill a dead process): the one without it;
 *   - a position after everything has come to rest: the one at which it came to rest.
 */
#include "sim.h"

#include "base/assert.h"
#include "main.h"

#define POSITIONS    60u /* the base schedule has about half; the rest is for what operations set off */
#define STEPS_MAX    600u
#define BASE_WRITES  4u
#define REST_US      UINT64_C(2500000) /* nothing to come for so long (a probe waits a second): it is at rest */
#define NEVER_US     (UINT64_C(3600) * 1000000)
#define FIRST_RANDOM UINT64_C(2) /* makes site 0 the active one */

enum operation { WRITE, FLUSH, CUT, HEAL, KILL_A, KILL_B, SWITCHOVER, FAILOVER, OPERATIONS };

static const char *const names[OPERATIONS] = {"write",  "flush",  "cut",        "heal",
                                              "kill-a", "kill-b", "switchover", "failover"};

/* ---- the enumeration ------------------------------------------------------------------------------------------------ */

static uint64_t power(uint64_t base, unsigned exponent)
{
    return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

static uint64_t numbers(unsigned length)
{
    return power(OPERATIONS, length) * power(POSITIONS, length);
}

uint64_t sim_exhaustive_total(void)
{
    uint64_t total = 0;

    for (unsigned n = 1; n <= SIM_SCRIPT_MAX; n++)
        total += numbers(n);
    return total;
}

static void decode(struct sim_script *script, uint64_t number)
{
    *script = (struct sim_script){.n = 1};
    while (script->n < SIM_SCRIPT_MAX && number >= numbers(script->n))
        number -= numbers(script->n++);
    for (unsigned i = script->n; i-- > 0; number /= POSITIONS)
        script->at[i] = (uint32_t)(number % POSITIONS);
    for (unsigned i = script->n; i-- > 0; number /= OPERATIONS)
        script->op[i] = (uint8_t)(number % OPERATIONS);
}

bool sim_exhaustive_wanted(uint64_t number, unsigned gap)
{
    struct sim_script script;

    if (number >= sim_exhaustive_total())
        return false;
    decode(&script, number);
    for (unsigned i = 1; i < script.n; i++) {
        if (script.at[i] < script.at[i - 1])
            return false; /* not a moment later: another number has the order the other way round */
        if (gap > 0 && script.n == SIM_SCRIPT_MAX && script.at[i] - script.at[i - 1] > gap)
            return false;
    }
    return true;
}

/* What earlier schedules of this process have shown, by the operations that came before and their positions: 1 + the
 * position at which everything came to rest, and whether the last of them was without effect. */
#define CHOICES (OPERATIONS * POSITIONS)

static struct {
    uint8_t rest[1 + CHOICES + CHOICES * CHOICES];
    bool without_effect[1 + CHOICES + CHOICES * CHOICES];
} known;

_Static_assert(SIM_SCRIPT_MAX == 3 && POSITIONS < UINT8_MAX, "the tables above");

static size_t place(const struct sim_script *script, unsigned n)
{
    size_t first = n == 0 ? 0 : script->op[0] * POSITIONS + script->at[0];

    SR_ASSERT(n < SIM_SCRIPT_MAX);
    return n == 0 ? 0 : n == 1 ? 1 + first : 1 + CHOICES + first * CHOICES + script->op[1] * POSITIONS + script->at[1];
}

bool sim_exhaustive_known(struct sim_stats *stats, uint64_t number)
{
    struct sim_script script;

    decode(&script, number);
    for (unsigned i = 0; i < script.n; i++) {
        bool without_effect = known.without_effect[place(&script, i)];
        bool after_rest = known.rest[place(&script, i)] > 0 && script.at[i] >= known.rest[place(&script, i)];
        if (!without_effect && !after_rest)
            continue;
        stats->schedules++;
        stats->without_effect += without_effect;
        stats->after_rest += !without_effect;
        return true;
    }
    return false;
}

void sim_exhaustive_describe(const struct sim_stats *s, unsigned gap)
{
    uint64_t sequences = 0;

    for (unsigned n = 1; n <= SIM_SCRIPT_MAX; n++)
        sequences += power(OPERATIONS, n);
    printf("exhaustive: %llu sequences of up to %u of %u operations at %u positions, ", (unsigned long long)sequences,
           SIM_SCRIPT_MAX, OPERATIONS, POSITIONS);
    if (gap > 0)
        printf("of three those at most %u steps apart;", gap);
    else
        printf("all of them;");
    printf(" %llu schedules run to their end, %llu equal to one without an operation that had no effect, %llu equal to one at "
           "an earlier position\n",
           (unsigned long long)(s->schedules - s->without_effect - s->after_rest), (unsigned long long)s->without_effect,
           (unsigned long long)s->after_rest);
}

/* ---- the base schedule ----------------------------------------------------------------------------------------------- */

void sim_exhaustive_begin(struct sim_world *world)
{
    struct sim_layout *layout = &world->layout;

    decode(&world->script, world->seed);
    world->rng = (struct sim_rng){.state = FIRST_RANDOM, .fixed = true};
    world->params = (struct sim_params){.profile = SIM_PROFILE_EXHAUSTIVE,
                                        .disk_us = 70,
                                        .meta_us = 110,
                                        .wire_us = 40,
                                        .host_us = 200,
                                        .admin_us = 1000,
                                        .fault_us = 1000,
                                        .restart_us = 8000, /* later than the stall budget */
                                        .notice_us = 150,
                                        .tuning = {.stall_budget_ms = 5,
                                                   .hot_regions_max = 1,
                                                   .cool_after_ms = 1,
                                                   .retry_min_ms = 1,
                                                   .retry_max_ms = 4,
                                                   .resync_parallel = 2,
                                                   .resync_min_bytes_per_s = 64 * SR_MIB,
                                                   .resync_latency_factor_percent = 200}};
    *layout = (struct sim_layout){.n_volumes = 1,
                                  .n_areas = 2,
                                  .n_hot = 3,
                                  .blocks = {2 * SR_REGION_BLOCKS},
                                  .areas = {{0, 2, 4, 0}, {0, 1, SR_REGION_BLOCKS, 2}},
                                  .hot_block = {4, 5, SR_REGION_BLOCKS},
                                  .write_back = {world->write_back},
                                  .any_write_back = world->write_back};
}

static bool at_rest(const struct sim_world *world)
{
    return world->n_events == 0 || world->heap[0].at_us > world->now_us + REST_US;
}

/* Should both serve, once an administrator parted them, host 0 uses the first and host 1 the second. */
static bool serving_site(const struct sim_world *world, unsigned host, unsigned *site)
{
    for (unsigned i = 0; i < 2; i++) {
        *site = host == 0 ? i : !i;
        if (world->site[*site].up && world->site[*site].serving)
            return true;
    }
    return false;
}

static bool issue(struct sim_world *world, unsigned host, enum sr_host_op op, uint32_t hot)
{
    unsigned site;

    return serving_site(world, host, &site) &&
           sim_host_issue(world, host, site, op, 0, op == SR_HOST_FLUSH ? 0 : world->layout.hot_block[hot] * SR_BLOCK_BYTES,
                          op == SR_HOST_FLUSH ? 0 : SR_BLOCK_BYTES);
}

/* ---- the operations --------------------------------------------------------------------------------------------------- */

static bool cut(struct sim_world *world)
{
    if (world->wire.cut_until_us > world->now_us)
        return false;
    sim_check_disturbed(world);
    world->stats->cuts++;
    world->wire.cut_until_us = world->now_us + NEVER_US;
    sim_wire_cut(world);
    return true;
}

static bool heal(struct sim_world *world)
{
    if (world->wire.cut_until_us <= world->now_us)
        return false;
    sim_trace(world, "  link healed");
    world->wire.cut_until_us = world->now_us;
    sim_world_push(world, SIM_EV_CONNECT, 0, world->now_us + world->params.notice_us, 0);
    return true;
}

static bool kill_site(struct sim_world *world, unsigned site)
{
    if (!world->site[site].up)
        return false;
    sim_world_crash(world, site, world->params.restart_us);
    return true;
}

/* At the site whose record says active. */
static bool switch_over(struct sim_world *world)
{
    unsigned site = world->site[0].up && world->site[0].meta.record.role == SR_ROLE_ACTIVE ? 0 : 1;

    return world->site[site].up && world->site[site].meta.record.role == SR_ROLE_ACTIVE &&
           sim_admin_command(world, site, SR_ADMIN_SWITCHOVER, false);
}

/* At a site that does not serve; if that is either, at the alternate one. */
static bool fail_over(struct sim_world *world)
{
    unsigned site = 1;

    if (!world->site[1].up || world->site[1].serving ||
        (world->site[1].meta.record.role == SR_ROLE_ACTIVE && world->site[0].up && !world->site[0].serving))
        site = 0;
    return !world->site[site].serving && sim_admin_command(world, site, SR_ADMIN_FAILOVER, false);
}

/* Without effect: false. */
static bool perform(struct sim_world *world, enum operation operation)
{
    struct sim_script *script = &world->script;

    sim_trace(world, "---- %s", names[operation]);
    switch (operation) {
    case WRITE:
        return issue(world, 1, SR_HOST_WRITE, script->done % world->layout.n_hot);
    case FLUSH:
        return issue(world, 1, SR_HOST_FLUSH, 0);
    case CUT:
        return cut(world);
    case HEAL:
        return heal(world);
    case KILL_A:
        return kill_site(world, 0);
    case KILL_B:
        return kill_site(world, 1);
    case SWITCHOVER:
        return switch_over(world);
    case FAILOVER:
        return fail_over(world);
    case OPERATIONS:
        break;
    }
    SR_UNREACHABLE();
}

/* ---- a schedule -------------------------------------------------------------------------------------------------------- */

static bool operate(struct sim_world *world)
{
    struct sim_script *script = &world->script;
    unsigned i = script->done;

    world->rng.state = sim_mix(world->rng.state ^ ((uint64_t)script->op[i] << 32 | script->at[i]));
    script->done++;
    script->pointless = !perform(world, (enum operation)script->op[i]);
    world->stats->without_effect += script->pointless;
    if (script->done < SIM_SCRIPT_MAX)
        known.without_effect[place(script, script->done)] = script->pointless;
    return !script->pointless;
}

/* Between two events.  False: the schedule is over. */
bool sim_exhaustive_next(struct sim_world *world)
{
    struct sim_script *script = &world->script;

    if (!script->began) {
        if (!at_rest(world))
            return true;
        SR_ASSERT(sim_check_both_in_sync(world) && world->site[0].serving);
        script->began = true;
        script->first_step = world->steps;
    }
    while (!world->failed) {
        uint32_t position = world->steps - script->first_step;
        if (script->done < script->n && script->at[script->done] <= position) {
            if (!operate(world))
                return false;
        } else if (script->writes < BASE_WRITES && world->hosts.in_flight[0] == 0 &&
                   issue(world, 0, SR_HOST_WRITE, script->writes % world->layout.n_hot)) {
            script->writes++;
        } else {
            break;
        }
    }
    if (world->failed || world->steps - script->first_step > STEPS_MAX)
        return false;
    if (!at_rest(world))
        return true;
    script->pointless = script->done < script->n;
    world->stats->after_rest += script->pointless;
    if (script->pointless)
        known.rest[place(script, script->done)] = (uint8_t)(1 + world->steps - script->first_step);
    return false;
}

void sim_exhaustive_mend(struct sim_world *world)
{
    heal(world);
    sim_world_push(world, SIM_EV_ADMIN, 0, world->now_us + world->params.admin_us, 0);
    for (uint32_t i = 0; i < SIM_HOSTS; i++)
        sim_world_push(world, SIM_EV_HOST, 0, world->now_us + world->params.host_us, i);
}
