/* tune.c - syncrepctl tune and reload. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTINGS_MAX 16

/* KEY=VALUE in two. */
static char *take_value(char *setting)
{
    char *equals = strchr(setting, '=');

    *equals = '\0';
    return equals + 1;
}

/* The first request carries all, so that none is applied if one is refused; the others then answer for one each. */
static bool set(struct cli_act *act, char **names, int n)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__TuneRequest tune = SYNCREP__CONTROL__TUNE_REQUEST__INIT;
    Syncrep__Control__Setting settings[SETTINGS_MAX], *more[SETTINGS_MAX];
    char *copies[SETTINGS_MAX] = {NULL};
    bool done = true;

    for (int i = 0; i < n && done; i++) {
        syncrep__control__setting__init(&settings[i]);
        copies[i] = strdup(names[i]);
        done = copies[i] != NULL;
        settings[i].value = done ? take_value(copies[i]) : NULL;
        settings[i].key = copies[i];
        more[i] = &settings[i];
    }
    if (done) {
        tune.key = settings[0].key;
        tune.value = settings[0].value;
        tune.n_more = (size_t)n - 1;
        tune.more = more + 1;
        request.op_case = SYNCREP__CONTROL__REQUEST__OP_TUNE;
        request.tune = &tune;
        done = cli_act_do(act, tune.key, &request, act->cli->timeout_ms, NULL, NULL);
    }
    for (int i = 0; i < n; i++)
        free(copies[i]);
    return done;
}

static int run_tune(struct cli *cli, int argc, char **argv)
{
    struct cli_act act;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, NULL, 0, 1, SETTINGS_MAX, "KEY=VALUE", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    for (int i = 0; i < n; i++) {
        const char *equals = strchr(names[i], '=');
        if (!equals || equals == names[i] || !equals[1])
            return cli_usage_error(cli, names[i], "'%s' is not KEY=VALUE", names[i]);
    }
    cli_act_begin(&act, cli);
    bool good = true;
    for (int i = 0; good && i < n; i++)
        good = set(&act, names + i, i == 0 ? n : 1);
    return cli_act_end(&act);
}

const struct verb verb_tune = {
    .group = "tune",
    .summary = "Change a limit while the daemon runs, until it restarts.",
    .usage = "KEY=VALUE...",
    .help = "  resync_min_rate=4MiB        bytes a second: resync is never slower\n"
            "  resync_max_rate=200MiB      bytes a second: nor faster; 0: no limit\n"
            "  resync_latency_factor=2.0   how much slower hosts' writes may get\n"
            "  stall_budget=5s             how long the peer can make a host wait\n"
            "\n"
            "All are changed, or none if one is refused.\n"
            "To keep a change, put it into the configuration file, too.\n"
            "\n"
            "Examples:\n"
            "  syncrepctl tune resync_max_rate=50MiB\n"
            "  syncrepctl tune resync_max_rate=0 resync_latency_factor=4.0\n",
    .run = run_tune,
};

static int run_reload(struct cli *cli, int argc, char **argv)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__ReloadRequest reload = SYNCREP__CONTROL__RELOAD_REQUEST__INIT;
    struct cli_act act;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, NULL, 0, 0, 0, "", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_RELOAD;
    request.reload = &reload;
    cli_act_begin(&act, cli);
    cli_act_do(&act, "", &request, cli->timeout_ms, NULL, NULL);
    return cli_act_end(&act);
}

const struct verb verb_reload = {
    .group = "reload",
    .summary = "Read the configuration file and certificates again.",
    .usage = "",
    .help = "A faulty file changes nothing. Hosts are not interrupted.\n"
            "\n"
            "Examples:\n"
            "  syncrepctl reload\n",
    .run = run_reload,
};
