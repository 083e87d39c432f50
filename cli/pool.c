/* pool.c - syncrepctl pool list, pool create. */
#include "cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "control/wire.h"

static void print_list(const Syncrep__Control__PoolList *list)
{
    static const char *const headings[] = {"NAME", "STATE", ">FREE", ">TOTAL", ">VOLUMES", "DIRECTORY"};
    struct cli_table *table = cli_table_new(headings, 6);

    for (size_t i = 0; i < list->n_pools; i++) {
        const Syncrep__Control__Pool *p = list->pools[i];
        char free_text[SR_SIZE_TEXT_BYTES], total[SR_SIZE_TEXT_BYTES], volumes[16];
        snprintf(volumes, sizeof(volumes), "%u", (unsigned)p->volumes);
        cli_table_row(table, (const char *const[]){p->name, cli_pool_state(p->state),
                                                   sr_size_format(p->free_bytes, free_text),
                                                   sr_size_format(p->total_bytes, total), volumes, p->directory});
    }
    cli_table_print(table, "no pools; name one in the configuration file");
    for (size_t i = 0; i < list->n_pools; i++)
        if (list->pools[i]->detail[0])
            printf("%s: %s\n", list->pools[i]->name, list->pools[i]->detail);
}

static int run_list(struct cli *cli, int argc, char **argv)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__PoolListRequest list = SYNCREP__CONTROL__POOL_LIST_REQUEST__INIT;
    struct failure why = {.exit = CLI_DONE};
    Syncrep__Control__Response *response;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, NULL, 0, 0, 0, "", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_POOL_LIST;
    request.pool_list = &list;
    response = cli_ask(cli, &request, cli->timeout_ms, SYNCREP__CONTROL__RESPONSE__BODY_POOLS, &why);
    if (!response)
        return cli_fail(cli, &why);
    if (cli->json) {
        json_t *document = cli_document(cli, true), *array = json_array();
        for (size_t i = 0; i < response->pools->n_pools; i++)
            json_array_append_new(array, cli_json_pool(response->pools->pools[i]));
        json_object_set_new(document, "site", cli_json_text(response->pools->site));
        json_object_set_new(document, "pools", array);
        cli_print_json(document, false);
    } else {
        print_list(response->pools);
    }
    sr_control_response_free(response);
    return CLI_DONE;
}

const struct verb verb_pool_list = {
    .group = "pool",
    .word = "list",
    .summary = "List the pools of this site with their free space.",
    .usage = "",
    .help = "Pools are named in the configuration file; a new one needs a restart.\n"
            "\n"
            "Examples:\n"
            "  syncrepctl pool list\n",
    .run = run_list,
};

static int run_create(struct cli *cli, int argc, char **argv)
{
    struct option_spec specs[] = {{.name = "force", .argument = required_argument}};
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__PoolCreateRequest create = SYNCREP__CONTROL__POOL_CREATE_REQUEST__INIT;
    char hint[200], **names;
    struct cli_act act;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, specs, 1, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "pool", names[0]);
    if (exit != CLI_DONE)
        return exit;
    if (specs[0].given && strcmp(specs[0].value, names[0]) != 0)
        return cli_usage_error(cli, specs[0].value, "--force names '%s', but '%s' is to be made", specs[0].value,
                               names[0]);
    create.name = names[0];
    if (specs[0].given)
        create.force_name = names[0];
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_POOL_CREATE;
    request.pool_create = &create;
    snprintf(hint, sizeof(hint), "syncrepctl pool create %s --force=%s", names[0], names[0]);
    cli_act_begin(&act, cli);
    cli_act_do(&act, names[0], &request, cli->timeout_ms, hint, NULL);
    return cli_act_end(&act);
}

const struct verb verb_pool_create = {
    .group = "pool",
    .word = "create",
    .summary = "Make a pool of this site anew after its disk was exchanged.",
    .usage = "NAME [--force=NAME]",
    .help = "The pool's directory must exist, be empty (but for lost+found) and carry no\n"
            "pool's identity; nothing else is touched. Mount the new disk, restart syncrepd,\n"
            "run this, then 'syncrepctl replace' for each volume that had its copy there.\n"
            "\n"
            "  --force=NAME  also if volumes had their copies in it: these are given up\n"
            "\n"
            "Examples:\n"
            "  syncrepctl pool create main --force=main\n",
    .run = run_create,
};
