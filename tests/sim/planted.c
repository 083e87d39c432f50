/* planted.c - proves that the checkers see: runs a core with one known bug after the other until it is caught.
 *
 * Each bug runs in a process of its own, because some end in a failed assertion, which counts as caught too.  The
 * product does not contain these bugs: only this program is linked with a core built with SR_PLANTED_BUGS.
 */
#include "sim.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/planted.h"
#include "main.h"

static const char *const names[] = {
#define SIM_PLANTED_NAME(name) #name,
    SR_PLANTED(SIM_PLANTED_NAME)
#undef SIM_PLANTED_NAME
};
#define N_BUGS (sizeof(names) / sizeof(names[0]))

/* Where a bug is met soonest; the others in every profile.  So that the whole list takes a minute or so. */
static const struct {
    enum sr_planted bug;
    enum sim_profile profile;
} hunting_grounds[] = {
    {SR_BUG_START_IGNORES_COMPLETING, SIM_PROFILE_ROLES},   {SR_BUG_ADMITTED_WHILE_HANDING_OVER, SIM_PROFILE_ROLES},
    {SR_BUG_GIVEN_WITH_WRITES_LEFT, SIM_PROFILE_ROLES},     {SR_BUG_ROLE_GIVEN_LATE, SIM_PROFILE_ROLES},
    {SR_BUG_TAKEN_BEFORE_COMMIT, SIM_PROFILE_ROLES},        {SR_BUG_FORWARDS_UNFENCED, SIM_PROFILE_ROLES},
    {SR_BUG_FORWARDS_UNBOUNDED, SIM_PROFILE_ROLES},         {SR_BUG_FAILOVER_BESIDE_ACTIVE, SIM_PROFILE_ROLES},
    {SR_BUG_FAILOVER_WHILE_HANDED_OVER, SIM_PROFILE_ROLES}, {SR_BUG_FORCED_KEEPS_LINEAGE, SIM_PROFILE_ROLES},
    {SR_BUG_OLD_DISCARD_KEPT, SIM_PROFILE_ROLES},           {SR_BUG_BASE_IS_DESCENT, SIM_PROFILE_ROLES},
    {SR_BUG_CONFLICT_BOTH_SERVE, SIM_PROFILE_ROLES},        {SR_BUG_FETCHED_UNCHECKED, SIM_PROFILE_DISK},
};

static enum sim_profile ground(const struct sim_options *options, enum sr_planted bug)
{
    for (size_t i = 0; i < sizeof(hunting_grounds) / sizeof(hunting_grounds[0]); i++)
        if (hunting_grounds[i].bug == bug && options->profile == SIM_PROFILE_ALL)
            return hunting_grounds[i].profile;
    return options->profile;
}

struct result {
    bool caught;
    uint64_t seed, schedules;
    char failure[200];
};

/* In the child: the schedule that runs now, and where to report. */
static struct result result;
static int report_fd;

static void report(void)
{
    ssize_t written = write(report_fd, &result, sizeof(result));

    _exit(written == (ssize_t)sizeof(result) ? 0 : 2);
}

static void on_abort(int signal_number)
{
    result.caught = true;
    snprintf(result.failure, sizeof(result.failure), "assertion (signal %d)", signal_number);
    report();
}

/* Fresh memory for each: the time of a run must not depend on luck. */
static void hunt(const struct sim_options *options, enum sr_planted bug)
{
    struct sim_stats *stats = calloc(1, sizeof(*stats));
    struct sim_world *world = sim_world_new(stats);
    world->write_back = options->write_back;
    time_t end = time(NULL) + (time_t)options->seconds;
    enum sim_profile profile = ground(options, bug);

    signal(SIGABRT, on_abort);
    signal(SIGSEGV, on_abort);
    alarm(options->seconds + 30);
    sr_planted_bug = bug;
    for (uint64_t i = 0; i < options->schedules && time(NULL) <= end; i++) {
        result.seed = options->seed + i;
        if (!sim_main_wanted(options, stats, result.seed))
            continue;
        result.schedules = i + 1;
        if (sim_world_run(world, result.seed, profile, options->steps))
            continue;
        snprintf(result.failure, sizeof(result.failure), "%.199s", world->failure);
        sr_planted_bug = SR_BUG_NONE; /* without the bug the same schedule must pass, else it proves nothing */
        result.caught = sim_world_run(world, result.seed, profile, options->steps);
        if (result.caught)
            break;
        sr_planted_bug = bug;
    }
    report();
}

static pid_t start(const struct sim_options *options, unsigned bug, int *fd)
{
    int ends[2];
    pid_t pid;

    fflush(stdout);
    if (pipe(ends) != 0 || (pid = fork()) < 0) {
        perror("sr-sim-planted");
        exit(2);
    }
    if (pid == 0) {
        int quiet = dup2(fileno(fopen("/dev/null", "w")), STDERR_FILENO); /* the texts of assertions */
        report_fd = ends[1];
        if (quiet >= 0)
            hunt(options, (enum sr_planted)bug);
        _exit(2);
    }
    close(ends[1]);
    *fd = ends[0];
    return pid;
}

static bool finish(pid_t pid, int fd, unsigned bug)
{
    struct result got = {0};
    bool whole = read(fd, &got, sizeof(got)) == (ssize_t)sizeof(got);

    close(fd);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
    if (whole && got.caught)
        printf("%-28s caught at seed %-6llu %s\n", names[bug], (unsigned long long)got.seed, got.failure);
    else
        printf("%-28s MISSED (%s%llu schedules)\n", names[bug], whole ? "" : "hung or killed; ",
               (unsigned long long)got.schedules);
    fflush(stdout);
    return whole && got.caught;
}

int sim_planted_run(const struct sim_options *options)
{
    bool all = strcmp(options->planted, "all") == 0, known = all;
    pid_t pids[N_BUGS];
    int fds[N_BUGS];
    unsigned missed = 0, chosen[N_BUGS], n = 0;

    for (unsigned bug = 1; bug < N_BUGS; bug++)
        if (all || strcmp(options->planted, names[bug]) == 0)
            chosen[n++] = bug;
    known = n > 0;
    if (!known) {
        fprintf(stderr, "sr-sim-planted: no such bug: %s\n", options->planted);
        return 2;
    }
    for (unsigned i = 0; i < n; i++) { /* at most `jobs` at a time, reported in order */
        if (i == 0)
            for (unsigned k = 0; k < options->jobs && k < n; k++)
                pids[k] = start(options, chosen[k], &fds[k]);
        missed += !finish(pids[i], fds[i], chosen[i]);
        if (i + options->jobs < n)
            pids[i + options->jobs] = start(options, chosen[i + options->jobs], &fds[i + options->jobs]);
    }
    printf("%u of %u planted bugs caught\n", n - missed, n);
    return missed > 0;
}
