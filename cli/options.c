/* options.c - arguments of a verb.  No option and no argument is ever ignored: unknown, doubled or superfluous ones
 * are usage errors with a hint. */
#include "cli.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "base/names.h"
#include "base/size.h"

#define SPECS_MAX 12

int cli_parse_duration(struct cli *cli, const char *option, const char *text, uint64_t *duration_ms)
{
    const char *why = "";
    bool parsed = sr_duration_parse(text, duration_ms, &why);

    if (!parsed)
        return cli_usage_error(cli, text, "%s: '%s' is not a duration: %s", option, text, why);
    if (*duration_ms == 0 || *duration_ms > UINT64_C(24) * 3600 * 1000)
        return cli_usage_error(cli, text, "%s: '%s' is out of bounds; from 1ms to 24h", option, text);
    return CLI_DONE;
}

int cli_parse_size(struct cli *cli, const char *option, const char *text, uint64_t *bytes)
{
    const char *why = "";

    if (!sr_size_parse(text, bytes, &why))
        return cli_usage_error(cli, text, "%s: '%s' is not a size: %s", option, text, why);
    return CLI_DONE;
}

int cli_check_name(struct cli *cli, const char *what, const char *name)
{
    const char *why = "";

    if (!sr_name_valid(name, &why))
        return cli_usage_error(cli, name, "'%s' is no name of a %s: %s", name, what, why);
    return CLI_DONE;
}

int cli_wait_option(struct cli *cli, const struct option_spec *spec, uint64_t *wait_ms)
{
    *wait_ms = spec->given ? CLI_WAIT_MS : 0;
    if (spec->given && spec->value)
        return cli_parse_duration(cli, "--wait", spec->value, wait_ms);
    return CLI_DONE;
}

static void print_help(const struct verb *verb)
{
    printf("usage: syncrepctl %s%s%s%s%s\n\n%s\n\n%s\n", verb->group, verb->word ? " " : "",
           verb->word ? verb->word : "", verb->usage[0] ? " " : "", verb->usage, verb->summary, verb->help);
    puts("Global options: --control PATH, --json, --timeout DURATION, --help.");
}

/* "--wait 60s": the 60s would be taken for a name. */
static bool value_astray(const struct option_spec *spec, const char *next)
{
    uint64_t ignored;

    return spec->argument == optional_argument && !spec->value && next &&
           (sr_duration_parse(next, &ignored, NULL) || strspn(next, "0123456789.") == strlen(next));
}

static int take_global(struct cli *cli, int c, bool *seen_timeout)
{
    switch (c) {
    case 'C':
        cli->control_path = optarg;
        if (!optarg[0])
            return cli_usage_error(cli, "--control", "--control: the path of a socket is missing");
        return CLI_DONE;
    case 'J':
        cli->json = true;
        return CLI_DONE;
    default:
        if (*seen_timeout)
            return cli_usage_error(cli, optarg, "option '--timeout' is given twice");
        *seen_timeout = cli->timeout_given = true;
        return cli_parse_duration(cli, "--timeout", optarg, &cli->timeout_ms);
    }
}

static int take_spec(struct cli *cli, struct option_spec *spec, const char *next)
{
    if (spec->given)
        return cli_usage_error(cli, spec->name, "option '--%s' is given twice", spec->name);
    spec->given = true;
    spec->value = optarg;
    if (value_astray(spec, next))
        return cli_usage_error(cli, next, "write --%s=%s, without a space", spec->name, next);
    return CLI_DONE;
}

/* The option as it was typed, for the message. */
static int bad_option(struct cli *cli, int c, char **argv)
{
    const char *typed = argv[optind - 1];
    char letter[3] = {'-', (char)optopt, '\0'};

    if (optopt > 0 && optopt < 256 && strncmp(typed, "--", 2) != 0)
        typed = letter;
    if (c == ':')
        return cli_usage_error(cli, typed, "option '%s' needs a value", typed);
    return cli_usage_error(cli, typed, "option '%s' is unknown or takes no value", typed);
}

int cli_options(struct cli *cli, int argc, char **argv, struct option_spec *specs, size_t n, char ***names,
                int *n_names, bool *exit_now)
{
    struct option options[SPECS_MAX + 5] = {
        {"control", required_argument, NULL, 'C'},
        {"json", no_argument, NULL, 'J'},
        {"timeout", required_argument, NULL, 'T'},
        {"help", no_argument, NULL, 'h'},
    };
    char letters[4 + 2 * SPECS_MAX] = ":h";
    bool seen_timeout = false;
    int c, exit = CLI_DONE;

    *exit_now = false;
    for (size_t i = 0; i < n && i < SPECS_MAX; i++) {
        options[4 + i] = (struct option){specs[i].name, specs[i].argument, NULL, 256 + (int)i};
        if (specs[i].letter)
            strncat(letters, &specs[i].letter, 1);
    }
    optind = 0;
    opterr = 0;
    while (exit == CLI_DONE && (c = getopt_long(argc, argv, letters, options, NULL)) != -1) {
        size_t which = n;
        for (size_t i = 0; i < n; i++)
            if (c == 256 + (int)i || (specs[i].letter && c == specs[i].letter))
                which = i;
        if (which < n) {
            exit = take_spec(cli, &specs[which], argv[optind]);
        } else if (c == 'h') {
            print_help(cli->verb);
            *exit_now = true;
            return CLI_DONE;
        } else if (c == '?' || c == ':') {
            exit = bad_option(cli, c, argv);
        } else {
            exit = take_global(cli, c, &seen_timeout);
        }
    }
    if (exit != CLI_DONE) {
        *exit_now = true;
        return exit;
    }
    *names = argv + optind;
    *n_names = argc - optind;
    return CLI_DONE;
}

int cli_arguments(struct cli *cli, int argc, char **argv, struct option_spec *specs, size_t n, int least, int most,
                  const char *what, char ***names, int *n_names, bool *exit_now)
{
    int exit = cli_options(cli, argc, argv, specs, n, names, n_names, exit_now);

    if (exit != CLI_DONE || *exit_now)
        return exit;
    if (*n_names < least)
        exit = cli_usage_error(cli, "", "%s is missing", what);
    else if (*n_names > most)
        exit = cli_usage_error(cli, (*names)[most], "superfluous argument '%s'", (*names)[most]);
    *exit_now = exit != CLI_DONE;
    return exit;
}
