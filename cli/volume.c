/* volume.c - syncrepctl volume create, list, show, delete. */
#include "cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/units.h"
#include "control/wire.h"

/* ---- create ---- */

enum { SIZE, POOL, PEER_POOL, PREALLOCATE, IMPORT, ACTIVE_SITE, DURABILITY, WAIT, N_CREATE };

static int check_create(struct cli *cli, const char *name, const struct option_spec *specs, uint64_t *size_bytes)
{
    const struct option_spec *size = &specs[SIZE], *import = &specs[IMPORT];
    int exit = cli_check_name(cli, "volume", name);

    *size_bytes = 0;
    if (exit != CLI_DONE)
        return exit;
    if (!size->given && !import->given)
        return cli_usage_error(cli, name, "--size is missing (only --import knows the size by itself)");
    if (size->given)
        exit = cli_parse_size(cli, "--size", size->value, size_bytes);
    if (exit != CLI_DONE)
        return exit;
    if (size->given && (*size_bytes < SR_VOLUME_MIN_BYTES || *size_bytes > SR_VOLUME_MAX_BYTES))
        return cli_usage_error(cli, name, "--size: '%s' is out of bounds; from 1MiB to 64TiB", size->value);
    if (*size_bytes % SR_BLOCK_BYTES != 0)
        return cli_usage_error(cli, name, "--size: '%s' is not a multiple of 4KiB", size->value);
    if (import->given && import->value[0] != '/')
        return cli_usage_error(cli, import->value, "--import: '%s' is not an absolute path", import->value);
    if (import->given && specs[PREALLOCATE].given)
        return cli_usage_error(cli, name, "--import has data already: leave --preallocate out");
    const char *durability = specs[DURABILITY].given ? specs[DURABILITY].value : "write-through";
    if (strcmp(durability, "write-through") != 0 && strcmp(durability, "write-back") != 0)
        return cli_usage_error(cli, name, "--durability: '%s' is neither write-through nor write-back", durability);
    if (specs[POOL].given)
        exit = cli_check_name(cli, "pool", specs[POOL].value);
    if (exit == CLI_DONE && specs[PEER_POOL].given)
        exit = cli_check_name(cli, "pool", specs[PEER_POOL].value);
    if (exit == CLI_DONE && specs[ACTIVE_SITE].given)
        exit = cli_check_name(cli, "site", specs[ACTIVE_SITE].value);
    return exit;
}

static char *value_or(const struct option_spec *spec, char *otherwise)
{
    return spec->given ? (char *)spec->value : otherwise;
}

static int run_create(struct cli *cli, int argc, char **argv)
{
    struct option_spec specs[N_CREATE] = {
        [SIZE] = {.name = "size", .argument = required_argument},
        [POOL] = {.name = "pool", .argument = required_argument},
        [PEER_POOL] = {.name = "peer-pool", .argument = required_argument},
        [PREALLOCATE] = {.name = "preallocate"},
        [IMPORT] = {.name = "import", .argument = required_argument},
        [ACTIVE_SITE] = {.name = "active-site", .argument = required_argument},
        [DURABILITY] = {.name = "durability", .argument = required_argument},
        [WAIT] = {.name = "wait", .argument = optional_argument},
    };
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__VolumeCreateRequest create = SYNCREP__CONTROL__VOLUME_CREATE_REQUEST__INIT;
    Syncrep__Control__Response *done = NULL;
    struct cli_act act;
    char **names;
    uint64_t wait_ms;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, specs, N_CREATE, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = check_create(cli, names[0], specs, &create.size_bytes);
    if (exit == CLI_DONE)
        exit = cli_wait_option(cli, &specs[WAIT], &wait_ms);
    if (exit != CLI_DONE)
        return exit;
    create.name = names[0];
    create.pool = value_or(&specs[POOL], create.pool);
    create.peer_pool = value_or(&specs[PEER_POOL], create.peer_pool);
    create.preallocate = specs[PREALLOCATE].given;
    create.import_path = value_or(&specs[IMPORT], create.import_path);
    create.active_site = value_or(&specs[ACTIVE_SITE], create.active_site);
    create.durability = value_or(&specs[DURABILITY], create.durability);
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_VOLUME_CREATE;
    request.volume_create = &create;
    cli_act_begin(&act, cli);
    uint64_t timeout_ms = !cli->timeout_given && wait_ms > cli->timeout_ms ? wait_ms : cli->timeout_ms;
    if (cli_act_do(&act, names[0], &request, timeout_ms, NULL, &done) && wait_ms > 0)
        cli_act_wait(&act, done->done->collection[0] ? done->done->collection : names[0],
                     SYNCREP__CONTROL__CONDITION__CONDITION_IN_SYNC, wait_ms);
    sr_control_response_free(done);
    return cli_act_end(&act);
}

const struct verb verb_volume_create = {
    .group = "volume",
    .word = "create",
    .summary = "Make a volume, with a copy at both sites.",
    .usage = "NAME --size SIZE [--pool P] [--peer-pool P]\n"
             "           [--preallocate] [--import PATH] [--active-site S]\n"
             "           [--durability write-through|write-back] [--wait[=60s]]",
    .help = "The volume is empty and in sync at once. It exists at both sites or at neither.\n"
            "\n"
            "  --size SIZE       1MiB to 64TiB, such as 512M or 10GiB (binary units)\n"
            "  --pool P          pool at this site; not needed if there is only one\n"
            "  --peer-pool P     pool at the other site; the one of the same name, or its\n"
            "                    only one\n"
            "  --preallocate     write zeroes once: space is sure, writes are fast\n"
            "  --import PATH     use the device or file with data at PATH (at this site); it\n"
            "                    is copied in full to the peer. --size may be left out\n"
            "  --active-site S   name of the site that hosts will use; this one\n"
            "  --durability D    write-through (default): what is answered is durable at\n"
            "                    both sites. write-back: it is at both sites, and durable\n"
            "                    at each FLUSH or FUA, as with a disk's own cache\n"
            "  --wait[=60s]      return when in sync; exit 4 if it is not by then\n"
            "\n"
            "Examples:\n"
            "  syncrepctl volume create vm1 --size 10GiB\n"
            "  syncrepctl volume create db --size 1T --pool fast --preallocate --timeout 2h\n"
            "  syncrepctl volume create old --import /dev/vg0/old --wait=4h\n",
    .run = run_create,
};

/* ---- list, show ---- */

static void print_volumes(const struct cli_parts *parts)
{
    static const char *const headings[] = {"NAME",   "STATE",  ">SIZE", ">ALLOCATED",
                                           ">DIRTY", ">HOSTS", "POOL",  "COLLECTION"};
    struct cli_table *table = cli_table_new(headings, 8);

    for (size_t p = 0; p < parts->n; p++) {
        const Syncrep__Control__VolumeList *list = parts->list[p]->volumes;
        for (size_t i = 0; i < list->n_volumes; i++) {
            const Syncrep__Control__Volume *v = list->volumes[i];
            char size[SR_SIZE_TEXT_BYTES], allocated[SR_SIZE_TEXT_BYTES], dirty[SR_SIZE_TEXT_BYTES], hosts[16];
            snprintf(hosts, sizeof(hosts), "%u", (unsigned)v->connections);
            cli_table_row(table, (const char *const[]){v->name, v->state, sr_size_format(v->size_bytes, size),
                                                       sr_size_format(v->allocated_bytes, allocated),
                                                       sr_size_format(v->dirty_bytes, dirty), hosts, v->pool,
                                                       v->collection});
        }
    }
    cli_table_print(table, "no volumes; make one with: syncrepctl volume create NAME --size SIZE");
}

static void describe_volume(const Syncrep__Control__Volume *v)
{
    char size[SR_SIZE_TEXT_BYTES];

    printf("volume:      %s\n", v->name);
    printf("uuid:        %s\n", cli_or_dash(v->uuid));
    printf("collection:  %s\n", cli_or_dash(v->collection));
    printf("state:       %s\n", cli_or_dash(v->state));
    printf("size:        %s (%llu bytes)\n", sr_size_format(v->size_bytes, size), (unsigned long long)v->size_bytes);
    printf("pool:        %s\n", cli_or_dash(v->pool));
    printf("copy here:   %s%s\n", cli_or_dash(v->path), v->imported ? " (imported)" : "");
    printf("allocated:   %s\n", sr_size_format(v->allocated_bytes, size));
    printf("dirty:       %s\n", sr_size_format(v->dirty_bytes, size));
    if (strcmp(v->durability, "write-back") == 0)
        printf("durability:  write-back; not flushed yet: %s\n", sr_size_format(v->cached_bytes, size));
    else
        printf("durability:  %s\n", v->durability[0] ? v->durability : "write-through");
    printf("hosts:       %u connected, %u requests in flight\n", (unsigned)v->connections, (unsigned)v->requests);
    for (size_t i = 0; i < v->n_exports; i++)
        printf("%s%s\n", i == 0 ? "export:      " : "             ", v->exports[i]);
}

static json_t *volumes_json(const struct cli_parts *parts)
{
    json_t *array = json_array();

    for (size_t p = 0; p < parts->n; p++)
        for (size_t i = 0; i < parts->list[p]->volumes->n_volumes; i++)
            json_array_append_new(array, cli_json_volume(parts->list[p]->volumes->volumes[i]));
    return array;
}

static int run_list(struct cli *cli, int argc, char **argv)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__VolumeListRequest list = SYNCREP__CONTROL__VOLUME_LIST_REQUEST__INIT;
    struct failure why = {.exit = CLI_DONE};
    struct cli_parts parts;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, NULL, 0, 0, 0, "", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_VOLUME_LIST;
    request.volume_list = &list;
    if (!cli_ask_parts(cli, &request, cli->timeout_ms, SYNCREP__CONTROL__RESPONSE__BODY_VOLUMES, &parts, &why))
        return cli_fail(cli, &why);
    if (cli->json) {
        json_t *document = cli_document(cli, true);
        json_object_set_new(document, "site", cli_json_text(parts.list[0]->volumes->site));
        json_object_set_new(document, "volumes", volumes_json(&parts));
        cli_print_json(document, false);
    } else {
        print_volumes(&parts);
    }
    cli_parts_free(&parts);
    return CLI_DONE;
}

static int run_show(struct cli *cli, int argc, char **argv)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__VolumeShowRequest show = SYNCREP__CONTROL__VOLUME_SHOW_REQUEST__INIT;
    struct failure why = {.exit = CLI_DONE};
    Syncrep__Control__Response *response;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, NULL, 0, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "volume", names[0]);
    if (exit != CLI_DONE)
        return exit;
    show.name = names[0];
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW;
    request.volume_show = &show;
    response = cli_ask(cli, &request, cli->timeout_ms, SYNCREP__CONTROL__RESPONSE__BODY_VOLUMES, &why);
    if (!response)
        return cli_fail(cli, &why);
    if (response->volumes->n_volumes != 1) {
        cli_failure(&why, CLI_REFUSED, "not-found", names[0], "syncrepctl volume list", "no volume '%s'", names[0]);
        exit = cli_fail(cli, &why);
    } else if (cli->json) {
        json_t *document = cli_document(cli, true);
        json_object_set_new(document, "site", cli_json_text(response->volumes->site));
        json_object_set_new(document, "volume", cli_json_volume(response->volumes->volumes[0]));
        cli_print_json(document, false);
    } else {
        describe_volume(response->volumes->volumes[0]);
    }
    sr_control_response_free(response);
    return exit;
}

const struct verb verb_volume_list = {
    .group = "volume",
    .word = "list",
    .summary = "List the volumes.",
    .usage = "",
    .help = "Examples:\n"
            "  syncrepctl volume list\n"
            "  syncrepctl volume list --json | jq -r '.volumes[].name'\n",
    .run = run_list,
};

const struct verb verb_volume_show = {
    .group = "volume",
    .word = "show",
    .summary = "Show one volume: its copy, size, hosts and exports.",
    .usage = "NAME",
    .help = "Examples:\n"
            "  syncrepctl volume show vm1\n",
    .run = run_show,
};

/* ---- delete ---- */

static int run_delete(struct cli *cli, int argc, char **argv)
{
    struct option_spec specs[] = {{.name = "force", .argument = required_argument}};
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__VolumeDeleteRequest delete = SYNCREP__CONTROL__VOLUME_DELETE_REQUEST__INIT;
    char hint[200], **names;
    struct cli_act act;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, specs, 1, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "volume", names[0]);
    if (exit != CLI_DONE)
        return exit;
    if (specs[0].given && strcmp(specs[0].value, names[0]) != 0)
        return cli_usage_error(cli, specs[0].value, "--force names '%s', but '%s' is to be deleted", specs[0].value,
                               names[0]);
    delete.name = names[0];
    if (specs[0].given)
        delete.force_name = names[0];
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_VOLUME_DELETE;
    request.volume_delete = &delete;
    snprintf(hint, sizeof(hint), "syncrepctl volume delete %s --force=%s", names[0], names[0]);
    cli_act_begin(&act, cli);
    cli_act_do(&act, names[0], &request, cli->timeout_ms, hint, NULL);
    return cli_act_end(&act);
}

const struct verb verb_volume_delete = {
    .group = "volume",
    .word = "delete",
    .summary = "Delete a volume and its data at both sites.",
    .usage = "NAME [--force=NAME]",
    .help = "  --force=NAME  yes, NAME and its data; exit 5 where this is needed and missing\n"
            "\n"
            "Examples:\n"
            "  syncrepctl volume delete vm1 --force=vm1\n",
    .run = run_delete,
};
