/* main.c - syncrepctl: finds the verb and runs it. */
#include "cli.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

static const struct verb *const verbs[] = {
    &verb_status,          &verb_wait,        &verb_pause,       &verb_resume,        &verb_switchover,
    &verb_failover,        &verb_failback,    &verb_resolve,     &verb_replace,
    &verb_volume_create,   &verb_volume_list, &verb_volume_show, &verb_volume_delete, &verb_collection_list,
    &verb_collection_create, &verb_collection_add, &verb_collection_remove, &verb_collection_delete,
    &verb_collection_show, &verb_pool_list,   &verb_pool_create, &verb_events,      &verb_tune,          &verb_reload,
};
#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

static void print_help(void)
{
    puts("usage: syncrepctl [--control PATH] [--json] [--timeout DURATION] VERB ...\n"
         "\n"
         "Shows and steers a syncrep daemon.\n");
    for (size_t i = 0; i < N_VERBS; i++) {
        char words[40];
        snprintf(words, sizeof(words), "%s%s%s", verbs[i]->group, verbs[i]->word ? " " : "",
                 verbs[i]->word ? verbs[i]->word : "");
        printf("  %-17s  %s\n", words, verbs[i]->summary);
    }
    puts("\n"
         "'syncrepctl VERB --help' explains a verb, with examples.\n"
         "\n"
         "  --control PATH      socket of the daemon; else $SYNCREP_CONTROL, else\n"
         "                      " CLI_DEFAULT_SOCKET "\n"
         "  --json              print JSON, errors too\n"
         "  --timeout DURATION  how long to wait for the daemon, such as 5s; 30s\n"
         "  --version           print the version\n"
         "\n"
         "exit status: 0 done, 1 refused, 2 wrong usage, 3 daemon or peer unreachable,\n"
         "             4 timed out, 5 needs --force");
}

static void print_version(const struct cli *cli)
{
    if (cli->json)
        cli_print_json(json_pack("{s:i,s:b,s:s,s:s}", "version", CLI_JSON_VERSION, "ok", 1, "command", "version",
                                 "syncrepctl", SYNCREP_VERSION),
                       false);
    else
        puts("syncrepctl " SYNCREP_VERSION);
}

/* An error before the options were parsed must know already. */
static bool wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            return true;
    return false;
}

/* Sets *used to the number of words; a group without its second word gives NULL and *group_known. */
static const struct verb *find_verb(int argc, char **argv, int *used, bool *group_known)
{
    *group_known = false;
    for (size_t i = 0; i < N_VERBS; i++) {
        if (strcmp(verbs[i]->group, argv[0]) != 0)
            continue;
        *group_known = true;
        if (!verbs[i]->word || (argc > 1 && strcmp(verbs[i]->word, argv[1]) == 0)) {
            *used = verbs[i]->word ? 2 : 1;
            return verbs[i];
        }
    }
    return NULL;
}

static int group_help(struct cli *cli, int argc, char **argv)
{
    char words[160] = "";

    for (size_t i = 0; i < N_VERBS; i++) {
        if (strcmp(verbs[i]->group, argv[0]) != 0)
            continue;
        if (argc > 1 && strcmp(argv[1], "--help") == 0)
            printf("syncrepctl %s %s %s\n    %s\n", verbs[i]->group, verbs[i]->word, verbs[i]->usage,
                   verbs[i]->summary);
        size_t length = strlen(words);
        snprintf(words + length, sizeof(words) - length, "%s%s", length ? ", " : "", verbs[i]->word);
    }
    if (argc > 1 && strcmp(argv[1], "--help") == 0)
        return CLI_DONE;
    if (argc > 1)
        return cli_usage_error(cli, argv[1], "unknown verb '%s %s'; there is: %s", argv[0], argv[1], words);
    return cli_usage_error(cli, argv[0], "'%s' needs a second word: %s", argv[0], words);
}

static int run(struct cli *cli, int argc, char **argv)
{
    bool group_known;
    int used = 0;

    if (argc == 0)
        return cli_usage_error(cli, "", "no verb given");
    cli->verb = find_verb(argc, argv, &used, &group_known);
    if (!cli->verb && group_known)
        return group_help(cli, argc, argv);
    if (!cli->verb)
        return cli_usage_error(cli, argv[0], "unknown verb '%s'", argv[0]);
    return cli->verb->run(cli, argc - used + 1, argv + used - 1);
}

/* Options before the verb.  True: all is said and done, with *exit. */
static bool leading_options(struct cli *cli, int argc, char **argv, int *exit)
{
    static const struct option options[] = {
        {"control", required_argument, NULL, 'C'}, {"json", no_argument, NULL, 'J'},
        {"timeout", required_argument, NULL, 'T'}, {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},       {NULL, 0, NULL, 0},
    };
    int c;

    opterr = 0;
    while ((c = getopt_long(argc, argv, "+:h", options, NULL)) != -1) {
        switch (c) {
        case 'C':
            cli->control_path = optarg;
            if (!optarg[0]) {
                *exit = cli_usage_error(cli, "--control", "--control: the path of a socket is missing");
                return true;
            }
            break;
        case 'J':
            cli->json = true;
            break;
        case 'T':
            *exit = cli_parse_duration(cli, "--timeout", optarg, &cli->timeout_ms);
            cli->timeout_given = true;
            if (*exit != CLI_DONE)
                return true;
            break;
        case 'h':
            print_help();
            *exit = CLI_DONE;
            return true;
        case 'V':
            print_version(cli);
            *exit = CLI_DONE;
            return true;
        default:
            *exit = cli_usage_error(cli, argv[optind - 1],
                                    c == ':' ? "option '%s' needs a value" : "unknown option '%s'", argv[optind - 1]);
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    const char *from_environment = getenv("SYNCREP_CONTROL");
    struct cli cli = {.control_path = CLI_DEFAULT_SOCKET, .timeout_ms = CLI_TIMEOUT_MS, .fd = -1};
    int exit = CLI_DONE;

    signal(SIGPIPE, SIG_IGN);
    if (from_environment && from_environment[0])
        cli.control_path = from_environment;
    cli.json = wants_json(argc, argv);
    if (!leading_options(&cli, argc, argv, &exit)) {
        argc -= optind;
        argv += optind;
        exit = run(&cli, argc, argv);
    }
    cli_disconnect(&cli);
    return cli_finish(&cli, exit);
}
