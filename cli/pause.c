/* pause.c - syncrepctl pause, resume and wait: several names or all of them. */
#include "cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "control/words.h"

/* The names given, or all.  CLI_DONE, else it has said why. */
static int pick_names(struct cli *cli, bool all, char **given, int n_given, char ***names, int *n)
{
    struct failure why = {.exit = CLI_DONE};

    *names = NULL;
    *n = 0;
    if (all && n_given > 0)
        return cli_usage_error(cli, given[0], "give names or --all, not both");
    if (!all && n_given == 0)
        return cli_usage_error(cli, "", "NAME is missing (or --all)");
    for (int i = 0; i < n_given; i++) {
        int exit = cli_check_name(cli, "collection", given[i]);
        if (exit != CLI_DONE)
            return exit;
    }
    if (all)
        return cli_all_names(cli, names, n, &why) ? CLI_DONE : cli_fail(cli, &why);
    *names = malloc((size_t)n_given * sizeof(char *));
    for (int i = 0; *names && i < n_given; i++)
        if (((*names)[i] = strdup(given[i])) != NULL)
            (*n)++;
    return CLI_DONE;
}

/* Waits for each of names in turn, all by one deadline. */
static void wait_all(struct cli_act *act, char **names, const bool *skip, int n,
                     Syncrep__Control__Condition condition, uint64_t wait_ms)
{
    uint64_t deadline_ms = cli_deadline(wait_ms);

    for (int i = 0; i < n; i++) {
        uint64_t now = cli_deadline(0);
        if (!skip || !skip[i])
            cli_act_wait(act, names[i], condition, deadline_ms > now ? deadline_ms - now : 0);
    }
}

static int pause_or_resume(struct cli *cli, int argc, char **argv, bool pause)
{
    struct option_spec specs[] = {{.name = "all"}, {.name = "wait", .argument = optional_argument}};
    Syncrep__Control__PauseRequest pause_op = SYNCREP__CONTROL__PAUSE_REQUEST__INIT;
    Syncrep__Control__ResumeRequest resume_op = SYNCREP__CONTROL__RESUME_REQUEST__INIT;
    struct cli_act act;
    char **given, **names;
    int n_given, n;
    uint64_t wait_ms;
    bool exit_now;
    int exit = cli_options(cli, argc, argv, specs, 2, &given, &n_given, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_wait_option(cli, &specs[1], &wait_ms);
    if (exit == CLI_DONE)
        exit = pick_names(cli, specs[0].given, given, n_given, &names, &n);
    if (exit != CLI_DONE)
        return exit;
    bool *failed = calloc((size_t)n + 1, sizeof(bool));
    cli_act_begin(&act, cli);
    for (int i = 0; i < n; i++) {
        Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
        if (pause) {
            pause_op.name = names[i];
            request.op_case = SYNCREP__CONTROL__REQUEST__OP_PAUSE;
            request.pause = &pause_op;
        } else {
            resume_op.name = names[i];
            request.op_case = SYNCREP__CONTROL__REQUEST__OP_RESUME;
            request.resume = &resume_op;
        }
        bool done = cli_act_do(&act, names[i], &request, cli->timeout_ms, NULL, NULL);
        if (failed)
            failed[i] = !done;
    }
    if (wait_ms > 0)
        wait_all(&act, names, failed, n,
                 pause ? SYNCREP__CONTROL__CONDITION__CONDITION_PAUSED
                       : SYNCREP__CONTROL__CONDITION__CONDITION_IN_SYNC,
                 wait_ms);
    free(failed);
    cli_names_free(names, n);
    return cli_act_end(&act);
}

static int run_pause(struct cli *cli, int argc, char **argv)
{
    return pause_or_resume(cli, argc, argv, true);
}

static int run_resume(struct cli *cli, int argc, char **argv)
{
    return pause_or_resume(cli, argc, argv, false);
}

const struct verb verb_pause = {
    .group = "pause",
    .summary = "Stop mirroring; the alternate copy stays as it is now.",
    .usage = "NAME... | --all  [--wait[=60s]]",
    .help = "Hosts go on. Blocks written from now on are remembered and copied after\n"
            "'resume'. Works at either site, also while the peer is unreachable.\n"
            "\n"
            "  --all         every collection\n"
            "  --wait[=60s]  return when the pause holds; exit 4 if it does not by then\n"
            "\n"
            "Examples:\n"
            "  syncrepctl pause vm1\n"
            "  syncrepctl pause vm1 vm2 --wait=10s\n"
            "  syncrepctl pause --all --json\n",
    .run = run_pause,
};

const struct verb verb_resume = {
    .group = "resume",
    .summary = "Mirror again; copies what was written meanwhile.",
    .usage = "NAME... | --all  [--wait[=60s]]",
    .help = "  --all         every collection\n"
            "  --wait[=60s]  return when in sync; exit 4 if it is not by then (the copying\n"
            "                goes on)\n"
            "\n"
            "Examples:\n"
            "  syncrepctl resume vm1\n"
            "  syncrepctl resume vm1 --wait=10m\n"
            "  syncrepctl resume --all\n",
    .run = run_resume,
};

static int run_wait(struct cli *cli, int argc, char **argv)
{
    struct option_spec specs[] = {{.name = "for", .argument = required_argument}, {.name = "all"}};
    Syncrep__Control__Condition condition;
    struct cli_act act;
    char **given, **names;
    int n_given, n;
    bool exit_now;
    int exit = cli_options(cli, argc, argv, specs, 2, &given, &n_given, &exit_now);

    if (exit_now)
        return exit;
    if (!specs[0].given)
        return cli_usage_error(cli, "", "--for CONDITION is missing");
    condition = sr_control_condition_parse(specs[0].value);
    if (condition == SYNCREP__CONTROL__CONDITION__CONDITION_UNKNOWN)
        return cli_usage_error(cli, specs[0].value,
                               "--for: '%s' is none of in-sync, paused, out-of-sync, protected, active, alternate, "
                               "connected",
                               specs[0].value);
    uint64_t wait_ms = cli->timeout_given ? cli->timeout_ms : CLI_WAIT_MS;
    if (condition == SYNCREP__CONTROL__CONDITION__CONDITION_CONNECTED && n_given == 0 && !specs[1].given) {
        cli_act_begin(&act, cli);
        cli_act_wait(&act, "", condition, wait_ms);
        return cli_act_end(&act);
    }
    exit = pick_names(cli, specs[1].given, given, n_given, &names, &n);
    if (exit != CLI_DONE)
        return exit;
    cli_act_begin(&act, cli);
    wait_all(&act, names, NULL, n, condition, wait_ms);
    cli_names_free(names, n);
    return cli_act_end(&act);
}

const struct verb verb_wait = {
    .group = "wait",
    .summary = "Wait until a condition holds.",
    .usage = "NAME... | --all  --for CONDITION [--timeout 60s]",
    .help = "Conditions: in-sync, paused, out-of-sync, protected, active and alternate\n"
            "(the role of this site), connected (the peer; needs no NAME).\n"
            "\n"
            "  --for CONDITION   what to wait for\n"
            "  --timeout 60s     exit 4 if it does not hold by then; 60s\n"
            "  --all             every collection, all by that time\n"
            "\n"
            "Examples:\n"
            "  syncrepctl wait vm1 --for in-sync --timeout 10m\n"
            "  syncrepctl wait --for connected\n",
    .run = run_wait,
};
