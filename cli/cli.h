/* cli.h - what the files of syncrepctl share.
 *
 * A verb parses its arguments (options.c), asks the daemon (client.c), and prints (output.c, and tojson.c for
 * --json).  Every way out goes through an exit code of `enum exit_code`; with --json exactly one document is printed
 * (one a line for --watch and events), and the exit code is the same as without.
 */
#ifndef SR_CLI_CLI_H
#define SR_CLI_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "control.pb-c.h"

#define CLI_JSON_VERSION   1
#define CLI_TIMEOUT_MS     30000u
#define CLI_WAIT_MS        60000u
#define CLI_WAIT_GRACE_MS  2000u /* the daemon ends a wait itself; longer than this it hangs */
#define CLI_DEFAULT_SOCKET "/run/syncrep/control.sock"

enum exit_code {
    CLI_DONE = 0,
    CLI_REFUSED = 1,
    CLI_USAGE = 2,
    CLI_UNREACHABLE = 3,
    CLI_TIMED_OUT = 4,
    CLI_NEEDS_FORCE = 5
};

/* Why something did not work. */
struct failure {
    int exit; /* of enum exit_code; CLI_DONE: it did work */
    char code[40];
    char text[640];
    char object[160];
    char hint[320]; /* command to run next; may be empty */
};

struct verb;

struct cli {
    const struct verb *verb;
    const char *control_path;
    bool json;
    bool json_lines; /* several documents, one a line */
    bool timeout_given;
    uint64_t timeout_ms;
    int fd; /* connection to the daemon; -1: none */
    uint64_t next_id;
};

struct verb {
    const char *group; /* first word */
    const char *word;  /* second word, or NULL */
    const char *summary;
    const char *usage;                                  /* arguments and options, one line */
    const char *help;                                   /* paragraphs, ending with examples */
    int (*run)(struct cli *cli, int argc, char **argv); /* argv[0] is the verb's last word */
};

/* ---- verbs, in the order of the help; one file per topic ---- */
extern const struct verb verb_status, verb_pool_list, verb_pool_create, verb_volume_create, verb_volume_list, verb_volume_show,
    verb_volume_delete, verb_collection_list, verb_collection_show, verb_pause, verb_resume, verb_replace, verb_wait,
    verb_tune, verb_events, verb_reload, verb_switchover, verb_failback, verb_failover, verb_resolve,
    verb_collection_create, verb_collection_add, verb_collection_remove, verb_collection_delete;

/* ---- options.c ---- */

struct option_spec {
    const char *name;
    char letter;       /* 0: none */
    int argument;      /* no_argument, required_argument, optional_argument of getopt.h */
    bool given;        /* result */
    const char *value; /* result; NULL without one */
};

/* Parses argv with the options of the verb (n may be 0) and the global ones.  CLI_DONE: *names points at the *n_names
 * arguments that are left.  Otherwise it has said why (or printed the help: then *exit_now is set and the code 0). */
int cli_options(struct cli *cli, int argc, char **argv, struct option_spec *specs, size_t n, char ***names,
                int *n_names, bool *exit_now);

/* The same, then checks that least..most arguments are left; `what` names them for the message. */
int cli_arguments(struct cli *cli, int argc, char **argv, struct option_spec *specs, size_t n, int least, int most,
                  const char *what, char ***names, int *n_names, bool *exit_now);

/* Values of options; on failure they have said why and return CLI_USAGE. */
int cli_parse_duration(struct cli *cli, const char *option, const char *text, uint64_t *duration_ms);
int cli_parse_size(struct cli *cli, const char *option, const char *text, uint64_t *bytes);
int cli_check_name(struct cli *cli, const char *what, const char *name);

/* ---- client.c ---- */

/* Fills in version, id and deadline (from timeout_ms, if the operation takes one), sends.  False: *why says. */
bool cli_send(struct cli *cli, Syncrep__Control__Request *request, uint64_t timeout_ms, struct failure *why);

/* The next response, by the deadline (from cli_deadline; UINT64_MAX: none).  NULL: *why says, and the connection is
 * closed.  An Error response is returned as NULL with *why set, too (the connection stays). */
Syncrep__Control__Response *cli_receive(struct cli *cli, uint64_t deadline_ms, struct failure *why);

uint64_t cli_deadline(uint64_t timeout_ms); /* from now, on the clock of cli_receive */

/* One request, one response with the body wanted.  NULL: *why says. */
Syncrep__Control__Response *cli_ask(struct cli *cli, Syncrep__Control__Request *request, uint64_t timeout_ms,
                                    Syncrep__Control__Response__BodyCase wanted, struct failure *why);

/* As cli_ask for bodies that come in parts: takes all of them.  *parts (n) is the caller's: cli_parts_free. */
struct cli_parts {
    Syncrep__Control__Response **list;
    size_t n;
};
bool cli_ask_parts(struct cli *cli, Syncrep__Control__Request *request, uint64_t timeout_ms,
                   Syncrep__Control__Response__BodyCase wanted, struct cli_parts *parts, struct failure *why);
void cli_parts_free(struct cli_parts *parts);

void cli_disconnect(struct cli *cli);

/* ---- output.c ---- */

void cli_failure(struct failure *why, int exit, const char *code, const char *object, const char *hint,
                 const char *format, ...) __attribute__((format(printf, 6, 7)));

/* Says why (text on stderr, or the JSON document) and returns the exit code. */
int cli_fail(struct cli *cli, const struct failure *why);
int cli_usage_error(struct cli *cli, const char *object, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

json_t *cli_document(struct cli *cli, bool ok);       /* {"version":1,"ok":..,"command":..} */
json_t *cli_failure_json(const struct failure *why);  /* the "error" object */
void cli_print_json(json_t *document, bool one_line); /* takes the reference; adds the newline */
void cli_command_name(const struct cli *cli, char *text, size_t bytes);

/* Flushes; a standard output that was closed or is full makes an exit code of 0 into CLI_REFUSED. */
int cli_finish(struct cli *cli, int exit);

/* ---- format.c: for people ---- */

/* Makes every string of a message safe for a terminal, in place. */
void cli_clean_message(ProtobufCMessage *message);
const char *cli_ago(uint64_t wall_ms, char *text, size_t bytes); /* "2 h 5 m", "-" if never */
const char *cli_percent(const Syncrep__Control__Resync *resync, char *text, size_t bytes);
const char *cli_or_dash(const char *text);

/* A table with these headings; cells are added row by row; print frees it.  Right: headings that start with '>'. */
struct cli_table;
struct cli_table *cli_table_new(const char *const *headings, size_t n);
void cli_table_row(struct cli_table *table, const char *const *cells);
void cli_table_print(struct cli_table *table, const char *if_empty);

/* ---- tojson.c ---- */

json_t *cli_json_text(const char *text); /* any bytes */
json_t *cli_json_collection(const Syncrep__Control__Collection *c);
json_t *cli_json_volume(const Syncrep__Control__Volume *v);
json_t *cli_json_pool(const Syncrep__Control__Pool *p);
json_t *cli_json_site(const Syncrep__Control__Status *s);
json_t *cli_json_event(const Syncrep__Control__Event *e);
const char *cli_role(Syncrep__Control__Role role);
const char *cli_sync(Syncrep__Control__Sync sync);
const char *cli_verdict(Syncrep__Control__Verdict verdict);
const char *cli_link_state(Syncrep__Control__LinkState state);
const char *cli_pool_state(Syncrep__Control__PoolState state);
const char *cli_level(Syncrep__Control__Level level);

/* ---- act.c: verbs that change something ---- */

/* One acted-on thing after the other, then what was waited for, then one report. */
struct cli_act {
    struct cli *cli;
    json_t *results; /* with --json */
    struct failure first;
    bool failed;
};

void cli_act_begin(struct cli_act *act, struct cli *cli);
/* Sends and reports; *done (may be NULL) gets the Done response, which is then the caller's.  False: failed.
 * hint_force: the command line that forces it, for a daemon that names none; may be NULL. */
bool cli_act_do(struct cli_act *act, const char *name, Syncrep__Control__Request *request, uint64_t timeout_ms,
                const char *hint_force, Syncrep__Control__Response **done);
/* Waits until condition holds for name, or deadline_ms. */
bool cli_act_wait(struct cli_act *act, const char *name, Syncrep__Control__Condition condition, uint64_t timeout_ms);
void cli_act_fail(struct cli_act *act, const char *name, const struct failure *why);
int cli_act_end(struct cli_act *act); /* the exit code: of the first failure */

/* Names of all collections, to be freed with cli_names_free.  False: *why says. */
bool cli_all_names(struct cli *cli, char ***names, int *n, struct failure *why);
void cli_names_free(char **names, int n);

/* --wait[=DURATION]: 0 if not given. */
int cli_wait_option(struct cli *cli, const struct option_spec *spec, uint64_t *wait_ms);

/* ---- collection.c ---- */
void cli_describe_collection(const Syncrep__Control__Collection *c);

#endif
