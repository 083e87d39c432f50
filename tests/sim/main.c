/* main.c - sr-sim: runs schedules of the simulator, says which seed failed and how to see it again.
 *
 *     sr-sim --schedules 20000 --seed 1 --profile all --jobs 2
 *     sr-sim --seed 4711 --schedules 1 --profile crash --verbose      the trace of one schedule
 *     sr-sim --regressions tests/sim/regressions.txt                   seeds that once failed
 *     sr-sim-planted --planted all                                     bugs on purpose: each must be caught
 *
 * A failed assertion inside a core ends the process; a handler still names the seed.
 */
#include "sim.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "main.h"

/* What runs now, for the handler. */
static struct {
    uint64_t seed;
    enum sim_profile profile;
    uint32_t steps;
    bool write_back;
} running;

static void on_abort(int signal_number)
{
    char text[160];
    int n = snprintf(text, sizeof(text),
                     "FAILED seed %llu: signal %d\nreproduce: sr-sim --profile %s --seed %llu --steps %u "
                     "--schedules 1%s --verbose\n",
                     (unsigned long long)running.seed, signal_number, sim_profile_name(running.profile),
                     (unsigned long long)running.seed, running.steps, running.write_back ? " --write-back" : "");

    fflush(stdout);
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(4);
    _exit(3);
}

bool sim_main_one(struct sim_world *world, uint64_t seed, enum sim_profile profile, uint32_t steps)
{
    running.seed = seed;
    running.profile = profile;
    running.steps = steps;
    running.write_back = world->write_back;
    if (sim_world_run(world, seed, profile, steps))
        return true;
    fflush(stdout);
    fprintf(stderr,
            "FAILED seed %llu: %s\nreproduce: sr-sim --profile %s --seed %llu --steps %u --schedules 1%s --verbose\n",
            (unsigned long long)seed, world->failure, sim_profile_name(profile), (unsigned long long)seed, steps,
            world->write_back ? " --write-back" : "");
    return false;
}

bool sim_main_wanted(const struct sim_options *options, struct sim_stats *stats, uint64_t seed)
{
    return options->profile != SIM_PROFILE_EXHAUSTIVE ||
           (sim_exhaustive_wanted(seed, options->gap) && !sim_exhaustive_known(stats, seed));
}

bool sim_main_profile(const char *name, enum sim_profile *profile)
{
    for (int i = 0; i < SIM_PROFILES; i++)
        if (strcmp(name, sim_profile_name((enum sim_profile)i)) == 0) {
            *profile = (enum sim_profile)i;
            return true;
        }
    return false;
}

/* ---- figures
 * ---------------------------------------------------------------------------------------------------------- */

static uint32_t find_mode(struct sim_stats *stats, const char *name)
{
    uint32_t i;

    for (i = 0; i < stats->n_modes; i++)
        if (strcmp(stats->modes[i], name) == 0)
            return i;
    SR_ASSERT(i < SIM_MODES_MAX);
    memcpy(stats->modes[i], name, sizeof(stats->modes[i]));
    stats->n_modes++;
    return i;
}

static void add_stats(struct sim_stats *sum, const struct sim_stats *one)
{
    const uint64_t *from = (const uint64_t *)one;
    uint64_t *to = (uint64_t *)sum;

    for (size_t i = 0; i < offsetof(struct sim_stats, n_modes) / sizeof(uint64_t); i++)
        to[i] += from[i];
    for (uint32_t a = 0; a < one->n_modes; a++)
        for (uint32_t b = 0; b < one->n_modes; b++)
            if (one->edges[a][b] > 0)
                sum->edges[find_mode(sum, one->modes[a])][find_mode(sum, one->modes[b])] += one->edges[a][b];
}

static void print_stats(const struct sim_stats *s, double seconds)
{
    static const char *const kinds[SIM_EV_KINDS] = {"disk",    "meta",    "wire", "timer", "link-up", "link-down", "retired",
                                                    "restart", "connect", "host", "admin", "fault"};

    printf("%llu schedules, %llu steps (%llu of them while mending), %.1f s\n", (unsigned long long)s->schedules,
           (unsigned long long)s->steps, (unsigned long long)s->settle_steps, seconds);
    printf("events:");
    for (int i = 0; i < SIM_EV_KINDS; i++)
        printf(" %s %llu", kinds[i], (unsigned long long)s->events[i]);
    printf("\nwork: writes %llu reads %llu replies %llu (errors %llu) messages %llu commits %llu disk %llu\n",
           (unsigned long long)s->writes, (unsigned long long)s->reads, (unsigned long long)s->replies,
           (unsigned long long)s->reply_errors, (unsigned long long)s->messages, (unsigned long long)s->commits,
           (unsigned long long)s->ios);
    printf(
        "faults: crashes %llu cuts %llu one-way %llu stalls %llu freezes %llu disk errors %llu no space %llu metadata errors %llu "
        "buffers short %llu spurious timers %llu only copies lost %llu\n",
        (unsigned long long)s->crashes, (unsigned long long)s->cuts,
        (unsigned long long)s->one_way, (unsigned long long)s->stalls,
        (unsigned long long)s->freezes, (unsigned long long)s->disk_errors, (unsigned long long)s->no_space,
        (unsigned long long)s->meta_errors, (unsigned long long)s->budget_shortages,
        (unsigned long long)s->spurious_timers, (unsigned long long)s->only_copies_lost);
    printf("administrator: pause %llu resume %llu replace %llu stop %llu tune %llu switchover %llu failover %llu discard %llu "
           "probe %llu\n",
           (unsigned long long)s->commands[SR_ADMIN_PAUSE], (unsigned long long)s->commands[SR_ADMIN_RESUME],
           (unsigned long long)s->commands[SR_ADMIN_REPLACE], (unsigned long long)s->commands[SR_ADMIN_STOP],
           (unsigned long long)s->tunes, (unsigned long long)s->commands[SR_ADMIN_SWITCHOVER],
           (unsigned long long)s->commands[SR_ADMIN_FAILOVER], (unsigned long long)s->commands[SR_ADMIN_DISCARD],
           (unsigned long long)s->commands[SR_ADMIN_PROBE]);
    printf("roles: failovers %llu (forced %llu) both sites served %llu copies adopted %llu (writes given up %llu)\n",
           (unsigned long long)s->failovers, (unsigned long long)s->forced, (unsigned long long)s->partings,
           (unsigned long long)s->adoptions, (unsigned long long)s->given_up);
    printf("write-back: flushes %llu writes with FUA %llu caches lost %llu\n", (unsigned long long)s->flushes,
           (unsigned long long)s->fuas, (unsigned long long)s->power_cuts);
    printf("checks: equal copies %llu images %llu exact resyncs %llu\n", (unsigned long long)s->equal_checks,
           (unsigned long long)s->images, (unsigned long long)s->exact_resyncs);
}

/* ---- many schedules
 * -------------------------------------------------------------------------------------------------- */

/* Every `jobs`th seed from `first` on; returns what the process should exit with. */
static int run_share(struct sim_stats *stats, const struct sim_options *options, unsigned first)
{
    struct sim_world *world = sim_world_new(stats);
    int status = 0;

    world->verbose = options->verbose;
    world->write_back = options->write_back;
    for (uint64_t i = first; i < options->schedules && status == 0; i += options->jobs)
        if (sim_main_wanted(options, stats, options->seed + i) &&
            !sim_main_one(world, options->seed + i, options->profile, options->steps))
            status = 1;
    sim_world_free(world);
    return status;
}

static bool read_all(int fd, void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, (char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static bool write_all(int fd, const void *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(fd, (const char *)data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static int run_jobs(struct sim_stats *sum, const struct sim_options *options)
{
    int fds[SIM_JOBS_MAX], status = 0, child_status;
    pid_t pids[SIM_JOBS_MAX];

    if (options->jobs == 1)
        return run_share(sum, options, 0);
    fflush(stdout);
    for (unsigned i = 0; i < options->jobs; i++) {
        int ends[2];
        if (pipe(ends) != 0 || (pids[i] = fork()) < 0) {
            perror("sr-sim");
            exit(2);
        }
        if (pids[i] == 0) {
            struct sim_stats stats = {0};
            int mine = run_share(&stats, options, i);
            _exit(write_all(ends[1], &stats, sizeof(stats)) ? mine : 2);
        }
        close(ends[1]);
        fds[i] = ends[0];
    }
    for (unsigned i = 0; i < options->jobs; i++) {
        struct sim_stats stats;
        if (read_all(fds[i], &stats, sizeof(stats)))
            add_stats(sum, &stats);
        close(fds[i]);
        while (waitpid(pids[i], &child_status, 0) < 0 && errno == EINTR)
            ;
        if (!WIFEXITED(child_status) || WEXITSTATUS(child_status) != 0)
            status = 1;
    }
    return status;
}

/* Lines: profile seed steps # what it showed */
static int run_regressions(struct sim_stats *stats, const struct sim_options *options)
{
    FILE *file = fopen(options->regressions, "r");
    struct sim_world *world = sim_world_new(stats);
    char line[512], name[32];
    unsigned long long seed;
    enum sim_profile profile;
    unsigned steps, number = 0;
    int status = 0;

    if (file == NULL) {
        perror(options->regressions);
        exit(2);
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        number++;
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (sscanf(line, "%31s %llu %u", name, &seed, &steps) != 3 || !sim_main_profile(name, &profile)) {
            fprintf(stderr, "%s:%u: expected \"profile seed steps # what it showed\"\n", options->regressions,
                    number);
            exit(2);
        }
        if (!sim_main_one(world, seed, profile, steps)) {
            fprintf(stderr, "%s:%u: %s", options->regressions, number, line);
            status = 1;
        }
    }
    fclose(file);
    sim_world_free(world);
    return status;
}

static void usage(void)
{
    fprintf(stderr,
            "usage: sr-sim [--schedules N] [--seed S] [--profile quick|crash|disk|admin|roles|all] [--steps N] [--jobs N]\n"
            "              [--write-back] [--verbose] [--every-edge] | --regressions FILE\n"
            "              | --profile exhaustive [--gap STEPS, 0: any] [--write-back] [--jobs N]"
#ifdef SR_PLANTED_BUGS
            " | --planted NAME|all [--schedules N] [--seconds N]"
#endif
            "\n");
    exit(2);
}

static void parse(int argc, char **argv, struct sim_options *o)
{
    static const struct option options[] = {
        {"schedules", required_argument, NULL, 'n'},   {"seed", required_argument, NULL, 's'},
        {"profile", required_argument, NULL, 'p'},     {"steps", required_argument, NULL, 't'},
        {"jobs", required_argument, NULL, 'j'},        {"verbose", no_argument, NULL, 'v'},
        {"regressions", required_argument, NULL, 'r'}, {"planted", required_argument, NULL, 'b'},
        {"seconds", required_argument, NULL, 'c'},     {"gap", required_argument, NULL, 'g'},
        {"every-edge", no_argument, NULL, 'e'},        {"write-back", no_argument, NULL, 'w'},
        {NULL, 0, NULL, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "v", options, NULL)) != -1) {
        if (c == 'n')
            o->schedules = strtoull(optarg, NULL, 10);
        else if (c == 's')
            o->seed = strtoull(optarg, NULL, 10);
        else if (c == 'p' && sim_main_profile(optarg, &o->profile))
            continue;
        else if (c == 't')
            o->steps = (uint32_t)strtoul(optarg, NULL, 10);
        else if (c == 'j')
            o->jobs = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'v')
            o->verbose = true;
        else if (c == 'e')
            o->every_edge = true;
        else if (c == 'w')
            o->write_back = true;
        else if (c == 'r')
            o->regressions = optarg;
        else if (c == 'b')
            o->planted = optarg;
        else if (c == 'c')
            o->seconds = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'g')
            o->gap = (unsigned)strtoul(optarg, NULL, 10);
        else
            usage();
    }
    if (o->profile == SIM_PROFILE_EXHAUSTIVE && o->schedules == 0) {
        o->seed = 0;
        o->schedules = sim_exhaustive_total();
    }
    if (o->schedules == 0)
        o->schedules = 1000;
    if (optind != argc || o->jobs < 1 || o->jobs > SIM_JOBS_MAX || o->steps < 1)
        usage();
}

int main(int argc, char **argv)
{
    struct sim_options options = {
        .seed = 1, .profile = SIM_PROFILE_ALL, .steps = 300, .jobs = 1, .seconds = 60, .gap = 10};
    static struct sim_stats stats;
    struct timespec begin, end;
    int status;

    parse(argc, argv, &options);
    if (options.planted != NULL) {
#ifdef SR_PLANTED_BUGS
        return sim_planted_run(&options);
#else
        usage();
#endif
    }
    signal(SIGABRT, on_abort);
    signal(SIGSEGV, on_abort);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    status = options.regressions != NULL ? run_regressions(&stats, &options) : run_jobs(&stats, &options);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (options.profile == SIM_PROFILE_EXHAUSTIVE)
        sim_exhaustive_describe(&stats, options.gap);
    print_stats(&stats, (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
    if (sim_edges_print(&stats) > 0 && options.every_edge) {
        fprintf(stderr, "FAILED: an edge of the state table was never taken\n");
        status = 1;
    }
    return status;
}
