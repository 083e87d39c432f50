/* main.h - what main.c and planted.c share. */
#ifndef SR_SIM_MAIN_H
#define SR_SIM_MAIN_H

#include "sim.h"

#define SIM_JOBS_MAX 16

struct sim_options {
    uint64_t schedules, seed;
    enum sim_profile profile;
    uint32_t steps;
    unsigned jobs, seconds;
    bool verbose;
    const char *regressions, *planted;
};

/* Runs one schedule and reports a failure on stderr; false then. */
bool sim_main_one(struct sim_world *world, uint64_t seed, enum sim_profile profile, uint32_t steps);

bool sim_main_profile(const char *name, enum sim_profile *profile);

#ifdef SR_PLANTED_BUGS
/* Returns the exit code: 0 if every bug was caught. */
int sim_planted_run(const struct sim_options *options);
#endif

#endif
