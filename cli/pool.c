/* pool.c - syncrepctl pool list. */
#include "cli.h"

#include <stdio.h>

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

static int run(struct cli *cli, int argc, char **argv)
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
    .help = "Pools are made in the configuration file; 'syncrepctl reload' reads it again.\n"
            "\n"
            "Examples:\n"
            "  syncrepctl pool list\n",
    .run = run,
};
