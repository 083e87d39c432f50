/* member.c - syncrepctl collection create, add, remove, delete: which volumes are in a collection. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

/* One volume moves; false: it did not, and has been reported. */
static bool move(struct cli_act *act, Syncrep__Control__Request__OpCase op, char *name, char *volume)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__MemberRequest member = SYNCREP__CONTROL__MEMBER_REQUEST__INIT;

    member.name = name;
    member.volume = volume;
    request.op_case = op;
    if (op == SYNCREP__CONTROL__REQUEST__OP_COLLECTION_CREATE)
        request.collection_create = &member;
    else if (op == SYNCREP__CONTROL__REQUEST__OP_COLLECTION_ADD)
        request.collection_add = &member;
    else
        request.collection_remove = &member;
    return cli_act_do(act, volume, &request, act->cli->timeout_ms, NULL, NULL);
}

static int run_members(struct cli *cli, int argc, char **argv, Syncrep__Control__Request__OpCase first)
{
    struct cli_act act;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, NULL, 0, 2, 64, "NAME VOLUME...", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "collection", names[0]);
    for (int i = 1; i < n && exit == CLI_DONE; i++)
        exit = cli_check_name(cli, "volume", names[i]);
    if (exit != CLI_DONE)
        return exit;
    cli_act_begin(&act, cli);
    bool made = move(&act, first, names[0], names[1]);
    if (first == SYNCREP__CONTROL__REQUEST__OP_COLLECTION_CREATE)
        first = SYNCREP__CONTROL__REQUEST__OP_COLLECTION_ADD;
    for (int i = 2; i < n && made; i++)
        made = move(&act, first, names[0], names[i]);
    return cli_act_end(&act);
}

static int run_create(struct cli *cli, int argc, char **argv)
{
    return run_members(cli, argc, argv, SYNCREP__CONTROL__REQUEST__OP_COLLECTION_CREATE);
}

static int run_add(struct cli *cli, int argc, char **argv)
{
    return run_members(cli, argc, argv, SYNCREP__CONTROL__REQUEST__OP_COLLECTION_ADD);
}

static int run_remove(struct cli *cli, int argc, char **argv)
{
    return run_members(cli, argc, argv, SYNCREP__CONTROL__REQUEST__OP_COLLECTION_REMOVE);
}

static int run_delete(struct cli *cli, int argc, char **argv)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__CollectionDeleteRequest delete = SYNCREP__CONTROL__COLLECTION_DELETE_REQUEST__INIT;
    struct cli_act act;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, NULL, 0, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "collection", names[0]);
    if (exit != CLI_DONE)
        return exit;
    delete.name = names[0];
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_COLLECTION_DELETE;
    request.collection_delete = &delete;
    cli_act_begin(&act, cli);
    cli_act_do(&act, names[0], &request, cli->timeout_ms, NULL, NULL);
    return cli_act_end(&act);
}

#define IN_SYNC_TEXT                                                                                                 \
    "Both collections must be in sync, and active at the same site. Hosts see a short\n"                             \
    "pause. At either site.\n"                                                                                       \
    "\n"

const struct verb verb_collection_create = {
    .group = "collection",
    .word = "create",
    .summary = "Make a collection of volumes: one role, one state.",
    .usage = "NAME VOLUME...",
    .help =
        "A collection is a consistency group: its volumes change role together, and leave\n"
        "sync together at one point of the write order. It begins with its first volume.\n" IN_SYNC_TEXT "Examples:\n"
        "  syncrepctl collection create db db-data db-log\n",
    .run = run_create,
};

const struct verb verb_collection_add = {
    .group = "collection",
    .word = "add",
    .summary = "Add volumes to a collection.",
    .usage = "NAME VOLUME...",
    .help = IN_SYNC_TEXT "Examples:\n"
                         "  syncrepctl collection add db db-archive\n",
    .run = run_add,
};

const struct verb verb_collection_remove = {
    .group = "collection",
    .word = "remove",
    .summary = "Take volumes out of a collection.",
    .usage = "NAME VOLUME...",
    .help = "Each gets a collection of its own again, with its own name. A collection that\n"
            "is left empty is gone.\n" IN_SYNC_TEXT "Examples:\n"
            "  syncrepctl collection remove db db-archive\n",
    .run = run_remove,
};

const struct verb verb_collection_delete = {
    .group = "collection",
    .word = "delete",
    .summary = "Dissolve a collection; its volumes stay.",
    .usage = "NAME",
    .help = "Its volumes get collections of their own again. No data is touched.\n" IN_SYNC_TEXT "Examples:\n"
            "  syncrepctl collection delete db\n",
    .run = run_delete,
};
