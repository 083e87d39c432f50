/* admin.c - administrators: pauses, role changes, replaced copies, stopped daemons, changed settings.
 *
 * During the schedule at random and without much sense, at either site and several at once; once faults are over, with
 * the aim to get the pair back in sync.  A command is answered exactly once, or its daemon ended first.
 */
#include "sim.h"

#include "base/assert.h"

/* ---- open commands --------------------------------------------------------------------------------------------- */

const struct sim_command *sim_admin_open(const struct sim_world *world, unsigned site, enum sr_admin_command command)
{
    const struct sim_command *oldest = NULL;

    for (unsigned i = 0; i < SIM_COMMANDS_MAX; i++) {
        const struct sim_command *c = &world->admin.commands[site][i];
        if ((c->open || c->late) && c->command == command && (oldest == NULL || c->start_us < oldest->start_us))
            oldest = c;
    }
    return oldest;
}

bool sim_admin_forced(const struct sim_world *world, unsigned site)
{
    for (unsigned i = 0; i < SIM_COMMANDS_MAX; i++) {
        const struct sim_command *c = &world->admin.commands[site][i];
        if ((c->open || c->late) && c->command == SR_ADMIN_FAILOVER && c->force)
            return true;
    }
    return false;
}

unsigned sim_admin_busy(const struct sim_world *world, unsigned site)
{
    unsigned n = 0;

    for (unsigned i = 0; i < SIM_COMMANDS_MAX; i++)
        n += world->admin.commands[site][i].open;
    return n;
}

void sim_admin_crash(struct sim_world *world, unsigned site)
{
    for (unsigned i = 0; i < SIM_COMMANDS_MAX; i++)
        world->admin.commands[site][i] = (struct sim_command){0};
}

static void command(struct sim_world *world, unsigned site, enum sr_admin_command what, bool force)
{
    static const char *const names[] = {"PAUSE",   "RESUME", "REPLACE", "SWITCHOVER", "FAILOVER",
                                        "DISCARD", "PROBE",  "STOP",    "GO ON"};
    struct sim_command *open = NULL;
    struct sr_event event = {.type = SR_EV_ADMIN};

    for (unsigned i = 0; i < SIM_COMMANDS_MAX; i++) { /* the place of a late one only if there is no other */
        struct sim_command *c = &world->admin.commands[site][i];
        if (!c->open && (open == NULL || !c->late))
            open = c;
    }
    if (open == NULL || !world->site[site].up || world->site[site].frozen_until_us > world->now_us)
        return;
    *open = (struct sim_command){
        .open = true, .force = force, .id = ++world->admin.next_id, .start_us = world->now_us, .command = what};
    sim_trace(world, "%u admin %s%s (command %llu)", site, names[what], force ? " --force" : "",
              (unsigned long long)open->id);
    world->stats->commands[what]++;
    sim_check_command(world, site, what);
    event.admin.id = open->id;
    event.admin.command = what;
    event.admin.force = force;
    sim_world_step(world, site, &event);
}

bool sim_admin_command(struct sim_world *world, unsigned site, enum sr_admin_command what, bool force)
{
    if (sim_admin_busy(world, site) == SIM_COMMANDS_MAX || !world->site[site].up)
        return false;
    command(world, site, what, force);
    return true;
}

static void tune(struct sim_world *world, unsigned site)
{
    struct sr_event event = {.type = SR_EV_TUNE};
    uint32_t stall_budget_ms = world->params.tuning.stall_budget_ms;

    sim_tuning_choose(&event.tuning, &world->rng);
    if (event.tuning.stall_budget_ms < stall_budget_ms) /* the checker counts with the largest that ever was set */
        event.tuning.stall_budget_ms = stall_budget_ms;
    world->params.tuning = event.tuning;
    world->stats->tunes++;
    sim_world_step(world, site, &event);
}

/* ---- at random --------------------------------------------------------------------------------------------------- */

/* A failover makes most sense where nobody serves and the other site is out of reach; now and then it is asked for all
 * the same, to be refused. */
static bool wants_failover(struct sim_world *world, unsigned site)
{
    const struct sim_site *me = &world->site[site];
    unsigned weight = world->params.failover;

    if (me->serving || (me->link_up && me->status.cause != SR_CAUSE_WAITING_FOR_FAILOVER &&
                        world->wire.lane[site].stalled_until_us <= world->now_us))
        weight = weight / 10;
    if (me->meta.record.handover && world->params.failover > 0)
        weight = 500; /* impatient: the role is on its way */
    return sim_chance(&world->rng, weight);
}

/* Sometimes twice, or at both sites: nobody knows of the other one's command. */
static void fail_over(struct sim_world *world, unsigned site)
{
    struct sim_rng *rng = &world->rng;
    bool force = sim_chance(rng, world->site[site].meta.record.consistent ? 200 : 600);

    command(world, site, SR_ADMIN_FAILOVER, force);
    if (sim_chance(rng, 250))
        command(world, site, SR_ADMIN_FAILOVER, force);
    if (sim_chance(rng, 150))
        command(world, !site, SR_ADMIN_FAILOVER, force);
}

static bool wants_discard(struct sim_world *world, unsigned site)
{
    bool conflict = world->site[site].status.cause == SR_CAUSE_CONFLICT;

    return sim_chance(&world->rng, conflict ? world->params.discard : world->params.discard / 20);
}

static void at_random(struct sim_world *world, unsigned site)
{
    const struct sim_params *params = &world->params;
    struct sim_rng *rng = &world->rng;
    const struct sr_record *record = &world->site[site].meta.record;

    if (!world->site[site].up || world->site[site].frozen_until_us > world->now_us)
        return;
    if (world->layout.any_write_back && sim_admin_open(world, site, SR_ADMIN_STOP) && sim_chance(rng, 500))
        command(world, site, SR_ADMIN_GO_ON, false); /* elsewhere no dice: old seeds stay what they were */
    else if (sim_chance(rng, params->pause))
        command(world, site, SR_ADMIN_PAUSE, false);
    else if (sim_chance(rng, params->resume))
        command(world, site, SR_ADMIN_RESUME, false);
    else if (sim_chance(rng, record->failed ? params->replace : params->replace / 20))
        command(world, site, SR_ADMIN_REPLACE, record->failed && sim_chance(rng, 500));
    else if (sim_chance(rng, params->stop))
        command(world, site, SR_ADMIN_STOP, false);
    else if (sim_chance(rng, params->switchover))
        command(world, world->site[0].meta.record.role == SR_ROLE_ACTIVE || sim_chance(rng, 30) ? 0 : 1,
                SR_ADMIN_SWITCHOVER, false);
    else if (wants_failover(world, site))
        fail_over(world, site);
    else if (wants_discard(world, site))
        command(world, site, SR_ADMIN_DISCARD, false);
    else if (sim_chance(rng, params->probe))
        command(world, site, SR_ADMIN_PROBE, false);
    else if (sim_chance(rng, params->tune))
        tune(world, site);
}

void sim_admin_ambush(struct sim_world *world)
{
    unsigned site = (unsigned)sim_below(&world->rng, 2);

    if (world->params.failover > 0 && sim_chance(&world->rng, 40) && !world->site[site].serving)
        command(world, site, SR_ADMIN_FAILOVER, sim_chance(&world->rng, 500));
}

void sim_admin_visit(struct sim_world *world)
{
    const struct sim_params *params = &world->params;
    struct sim_rng *rng = &world->rng;
    unsigned site = (unsigned)sim_below(rng, 2);

    sim_world_push(world, SIM_EV_ADMIN, 0, world->now_us + sim_delay(rng, world->mending ? 10000 : params->admin_us),
                   0);
    if (world->mending) {
        sim_admin_mend(world);
        return;
    }
    if (!params->calm) {
        at_random(world, site);
        if (sim_chance(rng, 100)) /* somebody else has the same idea, or another one */
            at_random(world, sim_chance(rng, 700) ? !site : site);
        return;
    }
    if (!world->site[site].up || world->site[site].frozen_until_us > world->now_us)
        return;
    bool paused = world->site[site].status.record.paused;
    if (paused ? sim_chance(rng, 300) : sim_check_both_in_sync(world))
        command(world, site, paused ? SR_ADMIN_RESUME : SR_ADMIN_PAUSE, false);
}

/* ---- mending ------------------------------------------------------------------------------------------------------ */

/* Nobody may become active by itself: the copy that has gone on longest, if it shows. */
static void mend_waiting(struct sim_world *world, unsigned first)
{
    unsigned site = first;

    for (unsigned i = 0; i < 2; i++)
        if (world->site[i].meta.record.base_kind != SR_BASE_NONE)
            site = i;
    if (!world->site[site].meta.record.consistent)
        site = !site;
    command(world, site, SR_ADMIN_FAILOVER, false);
    if (sim_chance(&world->rng, world->params.failover))
        command(world, !site, SR_ADMIN_FAILOVER, false);
}

/* One copy is kept: a complete one, if there is one, else whatever is left of one. */
static void mend_conflict(struct sim_world *world, unsigned first)
{
    const struct sr_record *mine = &world->site[first].meta.record, *other = &world->site[!first].meta.record;

    if (!mine->consistent && !other->consistent) {
        unsigned site = sr_uuid_is_none(&mine->gen) ? !first : first;
        command(world, site, SR_ADMIN_FAILOVER, true);
        if (sim_chance(&world->rng, world->params.failover) && !sr_uuid_is_none(&world->site[!site].meta.record.gen))
            command(world, !site, SR_ADMIN_FAILOVER, true);
    } else
        command(world, other->consistent ? first : !first, SR_ADMIN_DISCARD, false);
}

/* Failed copies are replaced, then pauses end, then the sites are brought together; one command at a time, and time for
 * it to work. */
void sim_admin_mend(struct sim_world *world)
{
    unsigned first = (unsigned)sim_below(&world->rng, 2);

    for (unsigned i = 0; i < 2; i++)
        if (!world->site[i].up || sim_admin_busy(world, i) > 0)
            return;
    for (unsigned i = 0; i < 2; i++)
        if (world->site[i].status.record.failed) {
            command(world, i, SR_ADMIN_REPLACE, true);
            return;
        }
    if (!world->site[0].link_up || !world->site[1].link_up)
        return;
    if (world->site[first].meta.record.handover && sim_chance(&world->rng, world->params.failover)) {
        command(world, first, SR_ADMIN_FAILOVER, false); /* impatient: it is refused, and the role arrives by itself */
        return;
    }
    if (!world->site[first].serving && world->site[!first].serving && world->params.failover > 0 &&
        sim_chance(&world->rng, 100)) {
        command(world, first, SR_ADMIN_FAILOVER, false); /* beside a peer that serves: it is refused */
        return;
    }
    for (unsigned i = 0; i < 2; i++)
        if (world->site[first ^ i].status.record.paused) {
            command(world, first ^ i, SR_ADMIN_RESUME, false);
            return;
        }
    enum sr_cause a = world->site[0].status.cause, b = world->site[1].status.cause;
    if (a == SR_CAUSE_CONFLICT && b == SR_CAUSE_CONFLICT)
        mend_conflict(world, first);
    else if (a == SR_CAUSE_WAITING_FOR_FAILOVER && b == SR_CAUSE_WAITING_FOR_FAILOVER)
        mend_waiting(world, first);
}

/* ---- answers ------------------------------------------------------------------------------------------------------ */

void sim_admin_reply(struct sim_world *world, unsigned site, uint64_t id, enum sr_error error, const char *text)
{
    struct sim_command *open = world->admin.commands[site];

    sim_trace(world, "%u    answer to command %llu: %s, %s", site, (unsigned long long)id, sr_error_name(error), text);
    while (open < world->admin.commands[site] + SIM_COMMANDS_MAX && (!open->open || open->id != id))
        open++;
    if (open == world->admin.commands[site] + SIM_COMMANDS_MAX) {
        sim_fail(world, "answers", "site %u answers command %llu, which is not open", site, (unsigned long long)id);
        return;
    }
    open->open = false;
    open->late = error == SR_E_TIMEOUT;
    sim_check_command_done(world, site, open->command, error);
    if (open->command != SR_ADMIN_STOP || error == SR_E_CANCELLED)
        return;
    if (open->late && world->site[site].disturbed_until_us < open->start_us)
        sim_fail(world, "bounded", "site %u does not stop in time, although nothing holds it up", site);
    world->site[site].stopping = true; /* the daemon exits after this step, at its deadline whatever is left */
    if (error != SR_OK)
        return;
    for (const struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++)
        if (r->used && r->site == site)
            sim_fail(world, "answers", "site %u has stopped, but request %llu is still open", site,
                     (unsigned long long)r->id);
    if (!world->site[site].meta.record.failed && !sim_disk_is_secure(world, site))
        sim_fail(world, "flushed", "site %u has stopped, but not all it wrote is stable", site);
    if (world->site[site].meta.n > 0 || world->site[site].disk.n_writes > 0)
        sim_fail(world, "answers", "site %u has stopped with %u commits and %u writes in flight", site,
                 world->site[site].meta.n, world->site[site].disk.n_writes);
}
