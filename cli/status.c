/* status.c - syncrepctl status: what an operator looks at first, possibly at night.
 *
 *   status          the site in a line, a line per collection, then for those in trouble why and what to run next
 *   status NAME, -x everything about it
 *   --watch         again and again; --check  one line and an exit code for monitoring
 */
#include "cli.h"

#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/size.h"

#define TROUBLES_SHOWN 5

enum { LONG, WATCH, CHECK, N_SPECS };

struct view {
    const char *name; /* "": all */
    bool full, check;
};

/* ---- exit code of --check ---- */

static int check_of(Syncrep__Control__Verdict verdict)
{
    switch (verdict) {
    case SYNCREP__CONTROL__VERDICT__VERDICT_PROTECTED:
        return 0;
    case SYNCREP__CONTROL__VERDICT__VERDICT_EXPOSED:
        return 1;
    default:
        return 2; /* a verdict of a newer daemon is hardly better news */
    }
}

#define EACH_COLLECTION(parts, c)                                                                                    \
    for (size_t p_ = 0; p_ < (parts)->n; p_++)                                                                       \
        for (size_t i_ = 0; i_ < (parts)->list[p_]->status->n_collections &&                                         \
                            ((c) = (parts)->list[p_]->status->collections[i_]) != NULL;                              \
             i_++)

static int worst(const struct cli_parts *parts)
{
    const Syncrep__Control__Collection *c = NULL;
    int exit = 0;

    EACH_COLLECTION(parts, c)
    {
        if (check_of(c->verdict) > exit)
            exit = check_of(c->verdict);
    }
    return exit;
}

static void print_check(const struct cli_parts *parts)
{
    static const char *const words[] = {"PROTECTED", "EXPOSED", "OFFLINE"};
    const Syncrep__Control__Collection *c = NULL;
    unsigned total = 0, bad = 0;

    EACH_COLLECTION(parts, c)
    {
        total++;
        bad += check_of(c->verdict) > 0;
    }
    printf("%s: %u of %u collections protected", words[worst(parts)], total - bad, total);
    unsigned shown = 0;
    EACH_COLLECTION(parts, c)
    {
        if (check_of(c->verdict) == 0 || shown++ >= TROUBLES_SHOWN)
            continue;
        printf("%s%s %s%s%s%s", shown == 1 ? "; " : ", ", c->name, cli_verdict(c->verdict), c->cause[0] ? " (" : "",
               c->cause, c->cause[0] ? ")" : "");
    }
    puts(shown > TROUBLES_SHOWN ? ", ..." : "");
}

/* ---- text ---- */

static void print_site(const Syncrep__Control__Status *s)
{
    const Syncrep__Control__Link *l = s->link;
    char ago[32];

    printf("site %s, peer %s: link %s", cli_or_dash(s->site), cli_or_dash(s->peer),
           cli_link_state(l ? l->state : SYNCREP__CONTROL__LINK_STATE__LINK_UNKNOWN));
    if (l && l->since_wall_ms > 0)
        printf(" for %s", cli_ago(l->since_wall_ms, ago, sizeof(ago)));
    if (l && l->state == SYNCREP__CONTROL__LINK_STATE__LINK_UP) {
        printf(" (%s", l->tls ? "TLS" : "not encrypted");
        if (l->rtt_us > 0)
            printf(", %llu.%02llu ms", (unsigned long long)(l->rtt_us / 1000),
                   (unsigned long long)(l->rtt_us % 1000 / 10));
        printf(")");
    } else if (l && l->last_error[0]) {
        printf("\n  %s", l->last_error);
    }
    puts("");
    for (size_t i = 0; i < s->n_pools; i++)
        if (s->pools[i]->state != SYNCREP__CONTROL__POOL_STATE__POOL_OK || s->pools[i]->detail[0])
            printf("pool %s: %s: %s\n", s->pools[i]->name, cli_pool_state(s->pools[i]->state),
                   cli_or_dash(s->pools[i]->detail));
}

static void print_site_full(const Syncrep__Control__Status *s)
{
    char used[SR_SIZE_TEXT_BYTES], limit[SR_SIZE_TEXT_BYTES], ago[32];

    print_site(s);
    printf("daemon %s, pid %llu, up %s, engine %s, buffers %s of %s", cli_or_dash(s->daemon_version),
           (unsigned long long)s->pid, cli_ago(s->started_wall_ms, ago, sizeof(ago)), cli_or_dash(s->engine),
           sr_size_format(s->buffer_used_bytes, used), sr_size_format(s->buffer_limit_bytes, limit));
    if (s->log_lines_dropped > 0)
        printf(", %llu log lines dropped", (unsigned long long)s->log_lines_dropped);
    puts("");
}

static void print_table(const struct cli_parts *parts)
{
    static const char *const headings[] = {"NAME", "VERDICT", "STATE", "ROLE", ">DIRTY", ">RESYNC", "DETAIL"};
    struct cli_table *table = cli_table_new(headings, 7);
    const Syncrep__Control__Collection *c = NULL;

    EACH_COLLECTION(parts, c)
    {
        char dirty[SR_SIZE_TEXT_BYTES], percent[16], detail[96], eta[SR_SIZE_TEXT_BYTES];
        bool running = c->resync && c->resync->running;
        snprintf(detail, sizeof(detail), "%s%s%s%s", c->cause[0] || !c->warning[0] ? c->cause : "warning below", running && c->resync->eta_known ? ", " : "",
                 running && c->resync->eta_known ? sr_duration_format(c->resync->eta_s * 1000, eta) : "",
                 running && c->resync->eta_known ? " left" : "");
        cli_table_row(table, (const char *const[]){c->name, cli_verdict(c->verdict), cli_sync(c->sync),
                                                   cli_role(c->role), sr_size_format(c->dirty_bytes, dirty),
                                                   cli_percent(c->resync, percent, sizeof(percent)), detail});
    }
    cli_table_print(table, "no volumes; make one with: syncrepctl volume create NAME --size SIZE");
}

/* Those in trouble: why, and what to run. */
static void print_troubles(const struct cli_parts *parts)
{
    const Syncrep__Control__Collection *c = NULL;
    unsigned troubles = 0;

    EACH_COLLECTION(parts, c)
    {
        if (check_of(c->verdict) == 0 && !c->next_command[0] && !c->warning[0])
            continue;
        if (troubles++ >= TROUBLES_SHOWN)
            continue;
        if (troubles == 1)
            puts("");
        if (c->detail[0] || c->cause[0] || !c->warning[0])
            printf("%s: %s\n", c->name, c->detail[0] ? c->detail : cli_or_dash(c->cause));
        if (c->warning[0])
            printf("%s: warning: %s\n", c->name, c->warning);
        if (c->next_command[0])
            printf("  next: %s\n", c->next_command);
    }
    if (troubles > TROUBLES_SHOWN)
        printf("and %u more: syncrepctl status -x\n", troubles - TROUBLES_SHOWN);
}

static void print_text(const struct view *view, const struct cli_parts *parts)
{
    const Syncrep__Control__Collection *c = NULL;

    if (view->check) {
        print_check(parts);
    } else if (view->full || view->name[0]) {
        if (view->full)
            print_site_full(parts->list[0]->status);
        bool blank = view->full;
        EACH_COLLECTION(parts, c)
        {
            if (blank)
                puts("");
            blank = true;
            cli_describe_collection(c);
        }
    } else {
        print_site(parts->list[0]->status);
        print_table(parts);
        print_troubles(parts);
    }
}

static void print_json(struct cli *cli, const struct view *view, const struct cli_parts *parts)
{
    json_t *document = cli_document(cli, true), *array = json_array();
    const Syncrep__Control__Collection *c = NULL;

    EACH_COLLECTION(parts, c)
    {
        json_array_append_new(array, cli_json_collection(c));
    }
    json_object_set_new(document, "site", cli_json_site(parts->list[0]->status));
    json_object_set_new(document, "collections", array);
    if (view->check)
        json_object_set_new(document, "check",
                            json_pack("{s:s,s:i}", "verdict",
                                      cli_verdict((Syncrep__Control__Verdict)(worst(parts) + 1)), "exit",
                                      worst(parts)));
    cli_print_json(document, cli->json_lines);
}

/* ---- one look, and many ---- */

static int show_once(struct cli *cli, const struct view *view, bool watching)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__StatusRequest status = SYNCREP__CONTROL__STATUS_REQUEST__INIT;
    struct failure why = {.exit = CLI_DONE};
    struct cli_parts parts;
    int exit = CLI_DONE;

    status.name = (char *)view->name;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_STATUS;
    request.status = &status;
    bool answered =
        cli_ask_parts(cli, &request, cli->timeout_ms, SYNCREP__CONTROL__RESPONSE__BODY_STATUS, &parts, &why);
    if (watching && !cli->json && isatty(STDOUT_FILENO))
        fputs("\033[H\033[2J", stdout);
    if (!answered)
        return cli_fail(cli, &why);
    if (cli->json)
        print_json(cli, view, &parts);
    else
        print_text(view, &parts);
    if (view->check)
        exit = worst(&parts);
    cli_parts_free(&parts);
    return exit;
}

/* Until interrupted or nobody reads.  A daemon that is away may come back: shown, and asked again. */
static int watch(struct cli *cli, const struct view *view, uint64_t interval_ms)
{
    cli->json_lines = true;
    for (bool first = true;; first = false) {
        if (!first && !cli->json && !isatty(STDOUT_FILENO))
            puts("");
        show_once(cli, view, true);
        if (fflush(stdout) != 0)
            return CLI_REFUSED;
        /* Waits, and notices at once when the reader of a pipe goes away. */
        struct pollfd p = {.fd = STDOUT_FILENO, .events = 0};
        if (poll(&p, 1, (int)interval_ms) > 0 && (p.revents & (POLLERR | POLLHUP | POLLNVAL)))
            return CLI_REFUSED;
    }
}

/* Seconds ("2", "0.5") or a duration ("500ms"). */
static int parse_interval(struct cli *cli, const char *text, uint64_t *interval_ms)
{
    char *end = NULL;
    double seconds = strtod(text, &end);

    if (strspn(text, "0123456789.") == strlen(text) && end != text && *end == '\0')
        *interval_ms = seconds < 86400 ? (uint64_t)(seconds * 1000) : UINT64_MAX;
    else if (!sr_duration_parse(text, interval_ms, NULL))
        return cli_usage_error(cli, text, "--watch: '%s' is not a number of seconds", text);
    if (*interval_ms < 100 || *interval_ms > 86400000)
        return cli_usage_error(cli, text, "--watch: '%s' is out of bounds; from 0.1 seconds to a day", text);
    return CLI_DONE;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct option_spec specs[N_SPECS] = {
        [LONG] = {.name = "long", .letter = 'x'},
        [WATCH] = {.name = "watch", .argument = optional_argument},
        [CHECK] = {.name = "check"},
    };
    uint64_t interval_ms = 2000;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, specs, N_SPECS, 0, 1, "", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    if (n == 1)
        exit = cli_check_name(cli, "collection", names[0]);
    if (exit == CLI_DONE && specs[WATCH].value)
        exit = parse_interval(cli, specs[WATCH].value, &interval_ms);
    if (exit != CLI_DONE)
        return exit;
    if (specs[CHECK].given && (specs[WATCH].given || specs[LONG].given))
        return cli_usage_error(cli, "", "--check goes neither with --watch nor with -x");
    struct view view = {.name = n == 1 ? names[0] : "", .full = specs[LONG].given, .check = specs[CHECK].given};
    return specs[WATCH].given ? watch(cli, &view, interval_ms) : show_once(cli, &view, false);
}

const struct verb verb_status = {
    .group = "status",
    .summary = "Show verdict, state, role and what to do next.",
    .usage = "[-x] [--watch[=SECONDS]] [--check] [NAME]",
    .help = "protected: both copies hold every acknowledged write. exposed: only one does.\n"
            "offline: hosts cannot use it here.\n"
            "\n"
            "  NAME               only this collection, with everything about it\n"
            "  -x, --long         everything about all, and about the daemon\n"
            "  --watch[=SECONDS]  again every 2 (or so many) seconds, until interrupted\n"
            "  --check            one line for monitoring; exit 0: all protected, 1: some\n"
            "                     exposed, 2: some offline, 3: the daemon does not answer\n"
            "\n"
            "Examples:\n"
            "  syncrepctl status\n"
            "  syncrepctl status vm1\n"
            "  syncrepctl status --watch=1\n"
            "  syncrepctl status --json | jq '.collections[] | {name, verdict, cause}'\n",
    .run = run,
};
