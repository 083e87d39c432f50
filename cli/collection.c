/* collection.c - syncrepctl collection list and show, and the description of a collection that status uses, too. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "control/wire.h"

static void describe_resync(const Syncrep__Control__Collection *c)
{
    const Syncrep__Control__Resync *r = c->resync;
    char percent[16], rate[SR_SIZE_TEXT_BYTES], eta[SR_SIZE_TEXT_BYTES], size[SR_SIZE_TEXT_BYTES];

    if (c->full_copy)
        printf("full copy:   %s\n", cli_or_dash(c->full_copy_reason));
    if (!r || !r->running)
        return;
    uint64_t left = r->total_blocks > r->done_blocks ? r->total_blocks - r->done_blocks : 0;
    printf("resync:      %s done, %s left, %s/s, %s%s\n", cli_percent(r, percent, sizeof(percent)),
           sr_size_format(left * 4096, size), sr_size_format(r->bytes_per_s, rate), r->eta_known ? "about " : "",
           r->eta_known ? sr_duration_format(r->eta_s * 1000, eta) : "no estimate yet");
}

static void describe_counters(const Syncrep__Control__Counters *k)
{
    char a[SR_SIZE_TEXT_BYTES], b[SR_SIZE_TEXT_BYTES];

    if (!k)
        return;
    printf("written:     %s in %llu writes\n", sr_size_format(k->written_bytes, a), (unsigned long long)k->writes);
    printf("read:        %s in %llu reads\n", sr_size_format(k->read_bytes, a), (unsigned long long)k->reads);
    printf("sent:        %s to the peer, %s of it by resync\n", sr_size_format(k->sent_payload_bytes, a),
           sr_size_format(k->copied_bytes, b));
    printf("compared:    %llu blocks, %llu were equal\n", (unsigned long long)k->compared_blocks,
           (unsigned long long)k->equal_blocks);
}

void cli_describe_collection(const Syncrep__Control__Collection *c)
{
    char size[SR_SIZE_TEXT_BYTES], ago[32];

    printf("collection:  %s\n", c->name);
    printf("verdict:     %s\n", cli_verdict(c->verdict));
    printf("state:       %s%s%s%s", cli_sync(c->sync), c->cause[0] ? " (" : "", c->cause, c->cause[0] ? ")" : "");
    if (c->since_wall_ms > 0)
        printf(", for %s", cli_ago(c->since_wall_ms, ago, sizeof(ago)));
    puts("");
    if (c->detail[0])
        printf("cause:       %s\n", c->detail);
    if (c->warning[0])
        printf("warning:     %s\n", c->warning);
    if (c->next_command[0])
        printf("next:        %s\n", c->next_command);
    printf("role:        %s at %s, %s at %s%s\n", cli_role(c->role), cli_or_dash(c->site), cli_role(c->peer_role),
           cli_or_dash(c->peer_site), c->handing_over ? ", handing over" : "");
    if (c->switchover_pause_us)
        printf("switchover:  hosts waited %llu ms in the last one\n",
               (unsigned long long)c->switchover_pause_us / 1000);
    printf("hosts:       %s, %llu requests in flight\n", c->serving ? "served here" : "not served here",
           (unsigned long long)c->requests);
    printf("dirty:       %s (%llu blocks)\n", sr_size_format(c->dirty_bytes, size),
           (unsigned long long)c->dirty_blocks);
    describe_resync(c);
    for (size_t i = 0; i < c->n_volumes; i++) {
        const Syncrep__Control__Volume *v = c->volumes[i];
        char dirty[SR_SIZE_TEXT_BYTES];
        printf("volume:      %s, %s, %s dirty, pool %s, %u connected\n", v->name, sr_size_format(v->size_bytes, size),
               sr_size_format(v->dirty_bytes, dirty), cli_or_dash(v->pool), (unsigned)v->connections);
    }
    describe_counters(c->counters);
    printf("generation:  %s%s%s (mode %s)\n", cli_or_dash(c->generation), c->made_by[0] ? ", " : "", c->made_by,
           cli_or_dash(c->mode));
    printf("uuid:        %s\n", cli_or_dash(c->uuid));
}

static void print_list(const struct cli_parts *parts)
{
    static const char *const headings[] = {"NAME", "VERDICT", "STATE", "ROLE", ">VOLUMES", ">DIRTY"};
    struct cli_table *table = cli_table_new(headings, 6);

    for (size_t p = 0; p < parts->n; p++) {
        const Syncrep__Control__CollectionList *list = parts->list[p]->collections;
        for (size_t i = 0; i < list->n_collections; i++) {
            const Syncrep__Control__Collection *c = list->collections[i];
            char dirty[SR_SIZE_TEXT_BYTES], volumes[24];
            snprintf(volumes, sizeof(volumes), "%zu", c->n_volumes);
            cli_table_row(table,
                          (const char *const[]){c->name, cli_verdict(c->verdict), cli_sync(c->sync),
                                                cli_role(c->role), volumes, sr_size_format(c->dirty_bytes, dirty)});
        }
    }
    cli_table_print(table, "no collections; each volume has one: syncrepctl volume create NAME --size SIZE");
}

static int run_list(struct cli *cli, int argc, char **argv)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__CollectionListRequest list = SYNCREP__CONTROL__COLLECTION_LIST_REQUEST__INIT;
    struct failure why = {.exit = CLI_DONE};
    struct cli_parts parts;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, NULL, 0, 0, 0, "", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_COLLECTION_LIST;
    request.collection_list = &list;
    if (!cli_ask_parts(cli, &request, cli->timeout_ms, SYNCREP__CONTROL__RESPONSE__BODY_COLLECTIONS, &parts, &why))
        return cli_fail(cli, &why);
    if (cli->json) {
        json_t *document = cli_document(cli, true), *array = json_array();
        for (size_t p = 0; p < parts.n; p++)
            for (size_t i = 0; i < parts.list[p]->collections->n_collections; i++)
                json_array_append_new(array, cli_json_collection(parts.list[p]->collections->collections[i]));
        json_object_set_new(document, "site", cli_json_text(parts.list[0]->collections->site));
        json_object_set_new(document, "collections", array);
        cli_print_json(document, false);
    } else {
        print_list(&parts);
    }
    cli_parts_free(&parts);
    return CLI_DONE;
}

static int run_show(struct cli *cli, int argc, char **argv)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__CollectionShowRequest show = SYNCREP__CONTROL__COLLECTION_SHOW_REQUEST__INIT;
    struct failure why = {.exit = CLI_DONE};
    Syncrep__Control__Response *response;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, NULL, 0, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "collection", names[0]);
    if (exit != CLI_DONE)
        return exit;
    show.name = names[0];
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_COLLECTION_SHOW;
    request.collection_show = &show;
    response = cli_ask(cli, &request, cli->timeout_ms, SYNCREP__CONTROL__RESPONSE__BODY_COLLECTIONS, &why);
    if (!response)
        return cli_fail(cli, &why);
    if (response->collections->n_collections != 1) {
        cli_failure(&why, CLI_REFUSED, "not-found", names[0], "syncrepctl collection list", "no collection '%s'",
                    names[0]);
        exit = cli_fail(cli, &why);
    } else if (cli->json) {
        json_t *document = cli_document(cli, true);
        json_object_set_new(document, "site", cli_json_text(response->collections->site));
        json_object_set_new(document, "collection", cli_json_collection(response->collections->collections[0]));
        cli_print_json(document, false);
    } else {
        cli_describe_collection(response->collections->collections[0]);
    }
    sr_control_response_free(response);
    return exit;
}

const struct verb verb_collection_list = {
    .group = "collection",
    .word = "list",
    .summary = "List the collections.",
    .usage = "",
    .help = "A collection is a set of volumes with one role and one state. A new volume gets\n"
            "a collection of its own, of the same name.\n"
            "\n"
            "Examples:\n"
            "  syncrepctl collection list\n",
    .run = run_list,
};

const struct verb verb_collection_show = {
    .group = "collection",
    .word = "show",
    .summary = "Show one collection with its volumes.",
    .usage = "NAME",
    .help = "Examples:\n"
            "  syncrepctl collection show vm1\n",
    .run = run_show,
};
