/* role.c - syncrepctl switchover, failback, failover, resolve: the verbs that move the active role, and their --plan.
 */
#include "cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "control/wire.h"

/* ---- plans
 * --------------------------------------------------------------------------------------------------------- */

#define WIDTH 80

/* A sentence behind its label, in lines of at most WIDTH. */
static void print_wrapped(const char *label, const char *text)
{
    size_t indent = strlen("last in sync: "), column = indent;

    printf("%-*s", (int)indent, label);
    for (const char *word = text; *word;) {
        size_t length = strcspn(word, " ");
        if (column > indent && column + 1 + length > WIDTH) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        }
        if (column > indent)
            column += (size_t)printf(" ");
        column += length;
        fwrite(word, 1, length, stdout);
        word += length + strspn(word + length, " ");
    }
    puts("");
}

static void print_side(const Syncrep__Control__PlanSide *side)
{
    char size[SR_SIZE_TEXT_BYTES], ago[32], text[400], label[80];
    int n;

    snprintf(label, sizeof(label), "%s: ", side->site);
    if (!side->known) {
        print_wrapped(label, "not heard of since the link came up, or it is down");
        return;
    }
    n = snprintf(text, sizeof(text), "%s, %s copy", cli_role(side->role),
                 !side->consistent                      ? "incomplete"
                 : strcmp(side->made_by, "forced") == 0 ? "forced, perhaps incomplete,"
                                                        : "complete");
    if (side->since_wall_ms)
        n += snprintf(text + n, sizeof(text) - (size_t)n, "; its generation: %s, %s ago", cli_or_dash(side->made_by),
                      cli_ago(side->since_wall_ms, ago, sizeof(ago)));
    if (side->dirty_blocks)
        snprintf(text + n, sizeof(text) - (size_t)n, "; %llu blocks (%s) are only there",
                 (unsigned long long)side->dirty_blocks, sr_size_format(side->dirty_bytes, size));
    print_wrapped(label, text);
}

/* In a conflict: what each choice costs. */
static void print_choice(const Syncrep__Control__PlanSide *kept, const Syncrep__Control__PlanSide *given_up)
{
    char text[600];

    snprintf(text, sizeof(text), "keeping %s loses %s", kept->site, given_up->lost[0] ? given_up->lost : "nothing");
    print_wrapped("choice: ", text);
}

static void print_peer(const Syncrep__Control__Plan *plan)
{
    char ago[32], text[120];

    int n = snprintf(text, sizeof(text), "%s; the link is %s", plan->peer_answered ? "answers" : "does not answer",
                     plan->connected ? "up" : "down");
    if (plan->peer_wall_ms)
        snprintf(text + n, sizeof(text) - (size_t)n, " for %s", cli_ago(plan->peer_wall_ms, ago, sizeof(ago)));
    print_wrapped("peer: ", text);
}

static void print_plan(const Syncrep__Control__Plan *plan)
{
    char ago[32], text[600];

    snprintf(text, sizeof(text), "%s %s; nothing was changed", plan->command, plan->name);
    print_wrapped("plan: ", text);
    snprintf(text, sizeof(text), "nothing would be done: %s", plan->reason);
    print_wrapped("result: ", !plan->possible   ? "it would not be done, see below"
                              : plan->reason[0] ? text
                                                : "it would be done now");
    for (size_t i = 0; i < plan->n_sides; i++)
        print_side(plan->sides[i]);
    print_peer(plan);
    snprintf(text, sizeof(text), "%s ago", cli_ago(plan->synced_wall_ms, ago, sizeof(ago)));
    print_wrapped("last in sync: ", plan->synced_wall_ms ? text : "not known");
    snprintf(text, sizeof(text), "hosts would wait about %llu ms",
             (unsigned long long)(plan->pause_estimate_us + 999) / 1000);
    if (plan->pause_estimate_us)
        print_wrapped("pause: ", text);
    if (plan->n_sides == 2 && (plan->sides[0]->lost[0] || plan->sides[1]->lost[0])) {
        print_choice(plan->sides[0], plan->sides[1]);
        print_choice(plan->sides[1], plan->sides[0]);
    } else {
        print_wrapped("may be lost: ", plan->may_be_lost[0] ? plan->may_be_lost : "nothing");
    }
    if (plan->possible && plan->hint[0])
        printf("%-14s%s\n", "next: ", plan->hint);
}

static json_t *side_json(const Syncrep__Control__PlanSide *side)
{
    if (!side->known)
        return json_pack("{s:o,s:b}", "site", cli_json_text(side->site), "known", 0);
    return json_pack("{s:o,s:b,s:s,s:b,s:o,s:I,s:I,s:I,s:o}", "site", cli_json_text(side->site), "known", 1, "role",
                     cli_role(side->role), "consistent", side->consistent, "made_by", cli_json_text(side->made_by),
                     "since_wall_ms", (json_int_t)side->since_wall_ms, "dirty_blocks", (json_int_t)side->dirty_blocks,
                     "dirty_bytes", (json_int_t)side->dirty_bytes, "lost", cli_json_text(side->lost));
}

static json_t *plan_json(const Syncrep__Control__Plan *plan)
{
    json_t *sides = json_array();

    for (size_t i = 0; i < plan->n_sides; i++)
        json_array_append_new(sides, side_json(plan->sides[i]));
    return json_pack("{s:o,s:o,s:b,s:i,s:o,s:o,s:o,s:b,s:b,s:I,s:I,s:I,s:o,s:o}", "name", cli_json_text(plan->name),
                     "command", cli_json_text(plan->command), "possible", plan->possible, "exit", (int)plan->exit,
                     "code", cli_json_text(plan->code), "reason", cli_json_text(plan->reason), "sides", sides,
                     "peer_answered", plan->peer_answered, "connected", plan->connected, "peer_wall_ms",
                     (json_int_t)plan->peer_wall_ms, "synced_wall_ms", (json_int_t)plan->synced_wall_ms,
                     "pause_estimate_us", (json_int_t)plan->pause_estimate_us, "may_be_lost",
                     cli_json_text(plan->may_be_lost), "hint", cli_json_text(plan->hint));
}

/* The exit code is the one that the verb would have. */
static int show_plan(struct cli *cli, Syncrep__Control__Request *request)
{
    struct failure why = {.exit = CLI_DONE};
    Syncrep__Control__Response *response =
        cli_ask(cli, request, cli->timeout_ms, SYNCREP__CONTROL__RESPONSE__BODY_PLAN, &why);

    if (!response)
        return cli_fail(cli, &why);
    const Syncrep__Control__Plan *plan = response->plan;
    int exit = plan->possible ? CLI_DONE : (int)plan->exit;
    if (exit < CLI_DONE || exit > CLI_NEEDS_FORCE)
        exit = CLI_REFUSED;
    if (!plan->possible)
        cli_failure(&why, exit, plan->code, plan->name, plan->hint, "%s", plan->reason);
    if (cli->json) {
        json_t *document = cli_document(cli, plan->possible);
        json_object_set_new(document, "plan", plan_json(plan));
        if (!plan->possible)
            json_object_set_new(document, "error", cli_failure_json(&why));
        cli_print_json(document, false);
    } else {
        print_plan(plan);
        fflush(stdout);
        if (!plan->possible)
            cli_fail(cli, &why);
    }
    sr_control_response_free(response);
    return exit;
}

static int act(struct cli *cli, const char *name, Syncrep__Control__Request *request, bool plan, uint64_t timeout_ms,
               const char *hint_force, Syncrep__Control__Condition wait_for, uint64_t wait_ms)
{
    struct cli_act act;

    if (plan)
        return show_plan(cli, request);
    cli_act_begin(&act, cli);
    if (cli_act_do(&act, name, request, timeout_ms, hint_force, NULL) && wait_ms > 0)
        cli_act_wait(&act, name, wait_for, wait_ms);
    return cli_act_end(&act);
}

/* ---- the verbs
 * ----------------------------------------------------------------------------------------------------- */

static int switch_over(struct cli *cli, int argc, char **argv, bool failback)
{
    struct option_spec specs[] = {{.name = "to", .argument = required_argument},
                                  {.name = "plan", .argument = no_argument},
                                  {.name = "wait", .argument = optional_argument}};
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__SwitchoverRequest switchover = SYNCREP__CONTROL__SWITCHOVER_REQUEST__INIT;
    uint64_t wait_ms = 0, timeout_ms;
    char **names;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, specs, 3, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "collection", names[0]);
    if (exit == CLI_DONE)
        exit = cli_wait_option(cli, &specs[2], &wait_ms);
    if (exit != CLI_DONE)
        return exit;
    timeout_ms = cli->timeout_ms; /* options may have set it */
    if (specs[0].given && cli_check_name(cli, "site", specs[0].value) != CLI_DONE)
        return CLI_USAGE;
    switchover.name = names[0];
    switchover.plan = specs[1].given;
    if (specs[0].given)
        switchover.to_site = (char *)specs[0].value;
    if (failback && !switchover.plan) { /* --timeout is for the copying; the switchover has its own time */
        switchover.sync_wait_ms = cli->timeout_given ? cli->timeout_ms : CLI_WAIT_MS;
        timeout_ms = switchover.sync_wait_ms + CLI_TIMEOUT_MS;
    }
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_SWITCHOVER;
    request.switchover = &switchover;
    return act(cli, names[0], &request, switchover.plan, timeout_ms, NULL,
               SYNCREP__CONTROL__CONDITION__CONDITION_IN_SYNC, wait_ms);
}

static int run_switchover(struct cli *cli, int argc, char **argv)
{
    return switch_over(cli, argc, argv, false);
}

static int run_failback(struct cli *cli, int argc, char **argv)
{
    return switch_over(cli, argc, argv, true);
}

static int run_failover(struct cli *cli, int argc, char **argv)
{
    struct option_spec specs[] = {{.name = "force", .argument = required_argument},
                                  {.name = "plan", .argument = no_argument},
                                  {.name = "wait", .argument = optional_argument}};
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__FailoverRequest failover = SYNCREP__CONTROL__FAILOVER_REQUEST__INIT;
    char hint[200], **names;
    uint64_t wait_ms = 0;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, specs, 3, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "collection", names[0]);
    if (exit == CLI_DONE)
        exit = cli_wait_option(cli, &specs[2], &wait_ms);
    if (exit != CLI_DONE)
        return exit;
    if (specs[0].given && strcmp(specs[0].value, names[0]) != 0)
        return cli_usage_error(cli, specs[0].value, "--force names '%s', but '%s' is to be made active",
                               specs[0].value, names[0]);
    failover.name = names[0];
    if (specs[0].given)
        failover.force_name = names[0];
    failover.plan = specs[1].given;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_FAILOVER;
    request.failover = &failover;
    snprintf(hint, sizeof(hint), "syncrepctl failover %s --force=%s", names[0], names[0]);
    return act(cli, names[0], &request, failover.plan, cli->timeout_ms, hint,
               SYNCREP__CONTROL__CONDITION__CONDITION_ACTIVE, wait_ms);
}

static int run_resolve(struct cli *cli, int argc, char **argv)
{
    struct option_spec specs[] = {{.name = "keep", .argument = required_argument},
                                  {.name = "plan", .argument = no_argument},
                                  {.name = "wait", .argument = optional_argument}};
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__ResolveRequest resolve = SYNCREP__CONTROL__RESOLVE_REQUEST__INIT;
    char **names;
    uint64_t wait_ms = 0;
    bool exit_now;
    int n, exit = cli_arguments(cli, argc, argv, specs, 3, 1, 1, "NAME", &names, &n, &exit_now);

    if (exit_now)
        return exit;
    exit = cli_check_name(cli, "collection", names[0]);
    if (exit == CLI_DONE)
        exit = cli_wait_option(cli, &specs[2], &wait_ms);
    if (exit != CLI_DONE)
        return exit;
    if (!specs[0].given)
        return cli_usage_error(cli, names[0], "--keep SITE is missing: which site's copy is to stay?");
    if (cli_check_name(cli, "site", specs[0].value) != CLI_DONE)
        return CLI_USAGE;
    resolve.name = names[0];
    resolve.keep_site = (char *)specs[0].value;
    resolve.plan = specs[1].given;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_RESOLVE;
    request.resolve = &resolve;
    return act(cli, names[0], &request, resolve.plan, cli->timeout_ms, NULL,
               SYNCREP__CONTROL__CONDITION__CONDITION_IN_SYNC, wait_ms);
}

const struct verb verb_switchover = {
    .group = "switchover",
    .summary = "Move the active role to the other site, as planned.",
    .usage = "NAME [--to SITE] [--plan] [--wait[=60s]]",
    .help = "Both copies must be in sync. Hosts see a pause, never an error: requests that\n"
            "came meanwhile are carried out at the new site, then their connections close.\n"
            "At either site. If the other site does not get ready in time it is undone.\n"
            "\n"
            "  --to SITE     the site that is to be active; without it, the one that is not.\n"
            "                Done at once if it is active already: use it in scripts\n"
            "  --plan        change nothing: would it be done, how long would hosts wait?\n"
            "  --wait[=60s]  return when in sync again\n"
            "\n"
            "Exit 4: timed out, handing over: the next contact of the sites finishes it.\n"
            "\n"
            "Examples:\n"
            "  syncrepctl switchover vm1 --plan\n"
            "  syncrepctl switchover vm1 --to berlin\n",
    .run = run_switchover,
};

const struct verb verb_failback = {
    .group = "failback",
    .summary = "Wait until both copies are in sync, then switch over.",
    .usage = "NAME [--to SITE] [--timeout 60s] [--plan]\n"
             "         [--wait[=60s]]",
    .help = "After a failover: the site that was lost is back and catches up with the\n"
            "differences; then the active role moves to it.\n"
            "\n"
            "  --to SITE     the site that is to be active; without it, the one that is not\n"
            "  --timeout 60s how long to wait for in-sync, 60s; exit 4 if it is not by\n"
            "                then, and nothing was changed\n"
            "  --plan        change nothing, show what a switchover would do now\n"
            "  --wait[=60s]  then return when in sync again\n"
            "\n"
            "Examples:\n"
            "  syncrepctl failback vm1 --to amsterdam --timeout 2h\n",
    .run = run_failback,
};

const struct verb verb_failover = {
    .group = "failover",
    .summary = "Make this site active, whatever became of the other one.",
    .usage = "NAME [--plan] [--force=NAME] [--wait[=60s]]",
    .help = "Run it at the site that is to serve, when the active site is lost; also to let\n"
            "a restarted active site serve without its peer. Refused while the other site\n"
            "answers and is active. When it returns it follows, or a conflict is shown.\n"
            "\n"
            "  --plan        change nothing: what is known of the other site, when both\n"
            "                copies were last equal, what may be lost\n"
            "  --force=NAME  also on a copy that is not complete: a mixture of old and new\n"
            "  --wait[=60s]  return when hosts are served here\n"
            "\n"
            "Examples:\n"
            "  syncrepctl failover vm1 --plan\n"
            "  syncrepctl failover vm1\n",
    .run = run_failover,
};

const struct verb verb_resolve = {
    .group = "resolve",
    .summary = "End a conflict: name the site whose copy stays.",
    .usage = "NAME --keep SITE [--plan] [--wait[=60s]]",
    .help = "Both sites wrote since they parted. What only the other site holds is given\n"
            "up and overwritten by a resync. At either site, while they are connected.\n"
            "\n"
            "  --keep SITE   the site whose copy stays\n"
            "  --plan        change nothing: what keeping either copy would cost\n"
            "  --wait[=60s]  return when in sync\n"
            "\n"
            "Examples:\n"
            "  syncrepctl resolve vm1 --keep berlin --plan\n"
            "  syncrepctl resolve vm1 --keep berlin --wait=1h\n",
    .run = run_resolve,
};
