/* output.c - failures, JSON documents, and the end of the program. */
#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/wire.h"

void cli_command_name(const struct cli *cli, char *text, size_t bytes)
{
    if (!cli->verb)
        snprintf(text, bytes, "%s", "");
    else
        snprintf(text, bytes, "%s%s%s", cli->verb->group, cli->verb->word ? " " : "",
                 cli->verb->word ? cli->verb->word : "");
}

void cli_failure(struct failure *why, int exit, const char *code, const char *object, const char *hint,
                 const char *format, ...)
{
    va_list ap;

    why->exit = exit;
    snprintf(why->code, sizeof(why->code), "%s", code);
    snprintf(why->object, sizeof(why->object), "%s", object);
    snprintf(why->hint, sizeof(why->hint), "%s", hint);
    va_start(ap, format);
    vsnprintf(why->text, sizeof(why->text), format, ap);
    va_end(ap);
}

json_t *cli_document(struct cli *cli, bool ok)
{
    char command[64];

    cli_command_name(cli, command, sizeof(command));
    return json_pack("{s:i,s:b,s:s}", "version", CLI_JSON_VERSION, "ok", ok ? 1 : 0, "command", command);
}

json_t *cli_failure_json(const struct failure *why)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:i}", "code", cli_json_text(why->code), "message", cli_json_text(why->text),
                     "object", cli_json_text(why->object), "hint", cli_json_text(why->hint), "exit", why->exit);
}

void cli_print_json(json_t *document, bool one_line)
{
    char *text = document ? json_dumps(document, one_line ? JSON_COMPACT : JSON_INDENT(2)) : NULL;

    /* Without memory there is still a document, and a valid one. */
    puts(text ? text
              : "{\"version\":1,\"ok\":false,\"error\":{\"code\":\"no-memory\",\"message\":\"out of memory\","
                "\"object\":\"\",\"hint\":\"\",\"exit\":1}}");
    free(text);
    json_decref(document);
}

int cli_fail(struct cli *cli, const struct failure *why)
{
    if (cli->json) {
        json_t *document = cli_document(cli, false);
        json_object_set_new(document, "error", cli_failure_json(why));
        cli_print_json(document, cli->json_lines);
        return why->exit;
    }
    struct failure clean = *why;
    fprintf(stderr, "syncrepctl: %s\n", sr_control_text_clean(clean.text));
    if (clean.hint[0])
        fprintf(stderr, "next: %s\n", sr_control_text_clean(clean.hint));
    return why->exit;
}

int cli_usage_error(struct cli *cli, const char *object, const char *format, ...)
{
    struct failure why;
    char command[64], text[600], hint[120];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    cli_command_name(cli, command, sizeof(command));
    snprintf(hint, sizeof(hint), "syncrepctl %s%s--help", command, command[0] ? " " : "");
    cli_failure(&why, CLI_USAGE, "usage", object, hint, "%s%s%s", command, command[0] ? ": " : "", text);
    return cli_fail(cli, &why);
}

int cli_finish(struct cli *cli, int exit)
{
    (void)cli;
    /* A pipe that was closed on purpose (head) needs no words, but what was to be shown was not shown. */
    if (fflush(stdout) == 0 && !ferror(stdout))
        return exit;
    if (errno != EPIPE)
        fprintf(stderr, "syncrepctl: cannot write to standard output: %s\n", strerror(errno));
    return exit == CLI_DONE ? CLI_REFUSED : exit;
}
