/* admin.c - the administrator: pauses, resumes, replaces failed copies, stops daemons, changes settings.
 *
 * During the schedule at random and without much sense; once faults are over, with the aim to get the pair back
 * in sync.  A command is answered exactly once, or its daemon ended first.
 */
#include "sim.h"

#include "base/assert.h"

static void command(struct sim_world *world, unsigned site, enum sr_admin_command what, bool force)
{
    static const char *const names[] = {"PAUSE",    "RESUME",  "REPLACE", "SWITCHOVER",
                                        "FAILOVER", "DISCARD", "PROBE",   "STOP"};
    struct sim_command *open = &world->admin.command[site];
    struct sr_event event = {.type = SR_EV_ADMIN};

    if (open->waiting || !world->site[site].up)
        return;
    *open = (struct sim_command){
        .waiting = true, .id = ++world->admin.next_id, .start_us = world->now_us, .command = what};
    sim_trace(world, "%u admin %s%s", site, names[what], force ? " --force" : "");
    world->stats->commands[what]++;
    sim_check_command(world, site, what);
    event.admin.id = open->id;
    event.admin.command = what;
    event.admin.force = force;
    sim_world_step(world, site, &event);
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
    if (!world->site[site].up || world->site[site].frozen_until_us > world->now_us)
        return;
    bool paused = world->site[site].status.record.paused;
    if (params->calm) {
        if (paused ? sim_chance(rng, 300) : sim_check_both_in_sync(world))
            command(world, site, paused ? SR_ADMIN_RESUME : SR_ADMIN_PAUSE, false);
        return;
    }
    if (sim_chance(rng, params->pause))
        command(world, site, SR_ADMIN_PAUSE, false);
    else if (sim_chance(rng, params->resume))
        command(world, site, SR_ADMIN_RESUME, false);
    else if (sim_chance(rng, world->site[site].meta.record.failed ? params->replace : params->replace / 20))
        command(world, site, SR_ADMIN_REPLACE, world->site[site].meta.record.failed && sim_chance(rng, 500));
    else if (sim_chance(rng, params->stop))
        command(world, site, SR_ADMIN_STOP, false);
    else if (sim_chance(rng, params->switchover))
        command(world, world->site[0].meta.record.role == SR_ROLE_ACTIVE || sim_chance(rng, 30) ? 0 : 1,
                SR_ADMIN_SWITCHOVER, false);
    else if (sim_chance(rng, params->probe))
        command(world, site, SR_ADMIN_PROBE, false);
    else if (sim_chance(rng, params->tune))
        tune(world, site);
}

/* Failed copies are replaced, then pauses end; one command at a time, and time for it to work. */
void sim_admin_mend(struct sim_world *world)
{
    for (unsigned i = 0; i < 2; i++)
        if (!world->site[i].up || world->admin.command[i].waiting)
            return;
    for (unsigned i = 0; i < 2; i++)
        if (world->site[i].status.record.failed) {
            command(world, i, SR_ADMIN_REPLACE, true);
            return;
        }
    if (!world->site[0].link_up || !world->site[1].link_up)
        return;
    unsigned first = (unsigned)sim_below(&world->rng, 2);
    for (unsigned i = 0; i < 2; i++)
        if (world->site[first ^ i].status.record.paused) {
            command(world, first ^ i, SR_ADMIN_RESUME, false);
            return;
        }
}

void sim_admin_reply(struct sim_world *world, unsigned site, uint64_t id, enum sr_error error, const char *text)
{
    struct sim_command *open = &world->admin.command[site];

    sim_trace(world, "%u    answer to the administrator: %s, %s", site, sr_error_name(error), text);
    if (!open->waiting || open->id != id) {
        sim_fail(world, "answers", "site %u answers command %llu, which is not open", site, (unsigned long long)id);
        return;
    }
    open->waiting = false;
    sim_check_command_done(world, site, open->command, error);
    if (open->command != SR_ADMIN_STOP || error != SR_OK)
        return;
    world->site[site].stopping = true; /* the daemon exits after this step */
    for (const struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++)
        if (r->used && r->site == site)
            sim_fail(world, "answers", "site %u has stopped, but request %llu is still open", site,
                     (unsigned long long)r->id);
    if (world->site[site].meta.n > 0 || world->site[site].disk.n_writes > 0)
        sim_fail(world, "answers", "site %u has stopped with %u commits and %u writes in flight", site,
                 world->site[site].meta.n, world->site[site].disk.n_writes);
}
