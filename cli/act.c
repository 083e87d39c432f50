/* act.c - verbs that change something: one request per name, then the waiting, then one report.
 *
 * Text: each result is printed as it comes, failures on stderr.  JSON: one document, "results" has one entry a name
 * (and one more for what was waited for), "error" is the first failure.  The exit code is that of the first
 * failure; the other names are tried all the same.
 */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/wire.h"

void cli_act_begin(struct cli_act *act, struct cli *cli)
{
    memset(act, 0, sizeof(*act));
    act->cli = cli;
    if (cli->json)
        act->results = json_array();
}

void cli_act_fail(struct cli_act *act, const char *name, const struct failure *why)
{
    if (!act->failed)
        act->first = *why;
    act->failed = true;
    if (act->cli->json)
        json_array_append_new(act->results, json_pack("{s:o,s:b,s:o}", "name", cli_json_text(name), "ok", 0, "error",
                                                      cli_failure_json(why)));
    else
        cli_fail(act->cli, why);
}

static void succeed(struct cli_act *act, const char *name, const Syncrep__Control__Done *done)
{
    if (act->cli->json) {
        json_array_append_new(act->results,
                              json_pack("{s:o,s:b,s:o,s:o}", "name", cli_json_text(name), "ok", 1, "text",
                                        cli_json_text(done->text), "hint", cli_json_text(done->hint)));
        return;
    }
    puts(done->text);
    if (done->hint[0])
        printf("next: %s\n", done->hint);
    fflush(stdout);
}

bool cli_act_do(struct cli_act *act, const char *name, Syncrep__Control__Request *request, uint64_t timeout_ms,
                const char *hint_force, Syncrep__Control__Response **done)
{
    struct failure why = {.exit = CLI_DONE};
    Syncrep__Control__Response *response =
        cli_ask(act->cli, request, timeout_ms, SYNCREP__CONTROL__RESPONSE__BODY_DONE, &why);

    if (done)
        *done = NULL;
    if (!response) {
        if (why.exit == CLI_NEEDS_FORCE && !why.hint[0] && hint_force)
            snprintf(why.hint, sizeof(why.hint), "%s", hint_force);
        cli_act_fail(act, name, &why);
        return false;
    }
    succeed(act, name, response->done);
    if (done)
        *done = response;
    else
        sr_control_response_free(response);
    return true;
}

bool cli_act_wait(struct cli_act *act, const char *name, Syncrep__Control__Condition condition, uint64_t timeout_ms)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__WaitRequest wait = SYNCREP__CONTROL__WAIT_REQUEST__INIT;

    wait.name = (char *)name;
    wait.condition = condition;
    wait.timeout_ms = timeout_ms;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_WAIT;
    request.wait = &wait;
    return cli_act_do(act, name, &request, timeout_ms + CLI_WAIT_GRACE_MS, NULL, NULL);
}

int cli_act_end(struct cli_act *act)
{
    if (act->cli->json) {
        json_t *document = cli_document(act->cli, !act->failed);
        json_object_set_new(document, "results", act->results);
        if (act->failed)
            json_object_set_new(document, "error", cli_failure_json(&act->first));
        cli_print_json(document, false);
    }
    return act->failed ? act->first.exit : CLI_DONE;
}

void cli_names_free(char **names, int n)
{
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

bool cli_all_names(struct cli *cli, char ***names, int *n, struct failure *why)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__StatusRequest status = SYNCREP__CONTROL__STATUS_REQUEST__INIT;
    struct cli_parts parts;
    bool ok = true;

    *names = NULL;
    *n = 0;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_STATUS;
    request.status = &status;
    if (!cli_ask_parts(cli, &request, cli->timeout_ms, SYNCREP__CONTROL__RESPONSE__BODY_STATUS, &parts, why))
        return false;
    for (size_t p = 0; p < parts.n && ok; p++) {
        const Syncrep__Control__Status *s = parts.list[p]->status;
        char **larger = realloc(*names, ((size_t)*n + s->n_collections + 1) * sizeof(char *));
        ok = larger != NULL;
        if (ok)
            *names = larger;
        for (size_t i = 0; i < s->n_collections && ok; i++) {
            (*names)[*n] = strdup(s->collections[i]->name);
            ok = (*names)[*n] != NULL;
            *n += ok ? 1 : 0;
        }
    }
    cli_parts_free(&parts);
    if (!ok) {
        cli_names_free(*names, *n);
        cli_failure(why, CLI_REFUSED, "no-memory", "", "", "out of memory");
    }
    return ok;
}
