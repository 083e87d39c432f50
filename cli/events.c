/* events.c - syncrepctl events: the recent ones, and with --follow the coming ones, a line each.
 *
 * JSON: one document with all, or with --follow one a line.  Every line is flushed, and a standard output that was
 * closed ends the program. */
#include "cli.h"

#include <stdio.h>
#include <time.h>

#include "control/wire.h"

/* all: where to collect them, or NULL. */
static void print_event(struct cli *cli, const Syncrep__Control__Event *e, json_t *all)
{
    char when[32] = "-";
    time_t seconds = (time_t)(e->wall_ms / 1000);
    struct tm tm;

    if (all) {
        json_array_append_new(all, cli_json_event(e));
        return;
    }
    if (cli->json) {
        json_t *document = cli_document(cli, true);
        json_object_set_new(document, "event", cli_json_event(e));
        cli_print_json(document, true);
        return;
    }
    if (e->wall_ms > 0 && localtime_r(&seconds, &tm))
        strftime(when, sizeof(when), "%Y-%m-%d %H:%M:%S", &tm);
    printf("%s %-7s %-6s %s%s%s\n", when, cli_level(e->level), e->kind, e->object, e->object[0] ? ": " : "", e->text);
}

/* Takes the events until the last response.  With --follow there is none. */
static int receive(struct cli *cli, bool follow, json_t *all)
{
    uint64_t deadline_ms = follow && !cli->timeout_given ? UINT64_MAX : cli_deadline(cli->timeout_ms);
    struct failure why = {.exit = CLI_DONE};
    uint64_t before = 0;

    for (;;) {
        Syncrep__Control__Response *response = cli_receive(cli, deadline_ms, &why);
        if (!response && follow && why.exit == CLI_TIMED_OUT)
            cli_failure(&why, CLI_TIMED_OUT, "timeout", "", "", "the time given with --timeout is over");
        if (!response)
            return cli_fail(cli, &why);
        bool last = response->last;
        if (response->body_case == SYNCREP__CONTROL__RESPONSE__BODY_EVENT) {
            uint64_t sequence = response->event->sequence;
            if (before > 0 && sequence > before + 1)
                fprintf(stderr, "syncrepctl: %llu events were lost\n", (unsigned long long)(sequence - before - 1));
            before = sequence;
            print_event(cli, response->event, all);
        }
        sr_control_response_free(response);
        if (fflush(stdout) != 0)
            return CLI_REFUSED;
        if (last && before == 0 && !cli->json)
            puts("no events since the daemon started");
        if (last)
            return CLI_DONE;
    }
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct option_spec specs[] = {{.name = "follow", .letter = 'f'}};
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__EventsRequest events = SYNCREP__CONTROL__EVENTS_REQUEST__INIT;
    struct failure why = {.exit = CLI_DONE};
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, specs, 1, 0, 0, "", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    events.follow = specs[0].given;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_EVENTS;
    request.events = &events;
    if (!cli_send(cli, &request, cli->timeout_ms, &why))
        return cli_fail(cli, &why);
    cli->json_lines = events.follow;
    json_t *all = cli->json && !events.follow ? json_array() : NULL;
    exit = receive(cli, events.follow, all);
    if (all && exit == CLI_DONE) {
        json_t *document = cli_document(cli, true);
        json_object_set_new(document, "events", json_incref(all));
        cli_print_json(document, false);
    }
    json_decref(all);
    return exit;
}

const struct verb verb_events = {
    .group = "events",
    .summary = "Print what happened of late: states, roles, links.",
    .usage = "[-f|--follow]",
    .help = "  -f, --follow      go on with what happens from now on, until interrupted (or\n"
            "                    --timeout, then exit 4)\n"
            "\n"
            "The daemon keeps the last 256 events; the log has all.\n"
            "\n"
            "Examples:\n"
            "  syncrepctl events\n"
            "  syncrepctl events --follow --json | jq -r .event.text\n",
    .run = run,
};
