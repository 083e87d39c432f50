/* replace.c - syncrepctl replace: a failed copy is given up and filled again. */
#include "cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static int run(struct cli *cli, int argc, char **argv)
{
    struct option_spec specs[] = {{.name = "force", .argument = required_argument},
                                  {.name = "wait", .argument = optional_argument}};
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__ReplaceRequest replace = SYNCREP__CONTROL__REPLACE_REQUEST__INIT;
    char hint[200], **names;
    struct cli_act act;
    uint64_t wait_ms;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, specs, 2, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "collection", names[0]);
    if (exit == CLI_DONE)
        exit = cli_wait_option(cli, &specs[1], &wait_ms);
    if (exit != CLI_DONE)
        return exit;
    if (specs[0].given && strcmp(specs[0].value, names[0]) != 0)
        return cli_usage_error(cli, specs[0].value, "--force names '%s', but '%s' is to be replaced", specs[0].value,
                               names[0]);
    replace.name = names[0];
    if (specs[0].given)
        replace.force_name = names[0];
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_REPLACE;
    request.replace = &replace;
    snprintf(hint, sizeof(hint), "syncrepctl replace %s --force=%s", names[0], names[0]);
    cli_act_begin(&act, cli);
    if (cli_act_do(&act, names[0], &request, cli->timeout_ms, hint, NULL) && wait_ms > 0)
        cli_act_wait(&act, names[0], SYNCREP__CONTROL__CONDITION__CONDITION_IN_SYNC, wait_ms);
    return cli_act_end(&act);
}

const struct verb verb_replace = {
    .group = "replace",
    .summary = "Give up this site's failed copy and fill it from the peer.",
    .usage = "NAME [--force=NAME] [--wait[=60s]]",
    .help = "Run it at the site whose copy has failed, after the disk is good again.\n"
            "\n"
            "  --force=NAME  also if this copy holds writes that the peer lacks: they are\n"
            "                lost\n"
            "  --wait[=60s]  return when in sync; exit 4 if it is not by then (the copying\n"
            "                goes on)\n"
            "\n"
            "Examples:\n"
            "  syncrepctl replace vm1\n"
            "  syncrepctl replace vm1 --wait=2h\n",
    .run = run,
};
