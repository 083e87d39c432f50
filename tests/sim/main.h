/* main.h - what main.c and planted.c share. */
#ifndef SR_SIM_MAIN_H
#define SR_SIM_MAIN_H

#include "sim.h"

#define SIM_JOBS_MAX 16

struct sim_options {
    uint64_t schedules, seed;
    enum sim_profile profile;
    uint32_t steps;
    unsigned jobs, seconds, gap;
    bool verbose;
    bool write_back; /* all volumes are */
    bool every_edge; /* fail if an allowed edge was never taken */
    const char *regressions, *planted;
};

/* Runs one schedule and reports a failure on stderr; false then. */
bool sim_main_one(struct sim_world *world, uint64_t seed, enum sim_profile profile, uint32_t steps);

/* Is this seed to be run? */
bool sim_main_wanted(const struct sim_options *options, struct sim_stats *stats, uint64_t seed);
bool sim_main_profile(const char *name, enum sim_profile *profile);

/* The profile `exhaustive`: seeds are numbers below the total, of which some are no schedules. */
uint64_t sim_exhaustive_total(void);
bool sim_exhaustive_wanted(uint64_t number, unsigned gap); /* gap: of three operations; 0: any */
/* It equals another schedule, as earlier ones have shown; counts it then. */
bool sim_exhaustive_known(struct sim_stats *stats, uint64_t number);
void sim_exhaustive_describe(const struct sim_stats *stats, unsigned gap);

#ifdef SR_PLANTED_BUGS
/* Returns the exit code: 0 if every bug was caught. */
int sim_planted_run(const struct sim_options *options);
#endif

#endif
