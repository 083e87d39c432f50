/* main.c - arguments, signals, limits of the process and exit codes; the only file that may exit.
 *
 *   0 stopped in order   1 could not start, or went wrong
 *   2 wrong usage or configuration: also its certificates, and a state folder of another site or group
 *   3 another daemon has the state folder   70 the metadata failed: nothing was acknowledged after that
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "site.h"

#define LOG_CLOSE_MS 1000u

static const char usage_text[] =
    "usage: syncrepd --config FILE [--check-config]\n"
    "\n"
    "  --config FILE     the configuration of this site\n"
    "  --check-config    say every fault of the file, and exit: 0 if there is none, 2 otherwise\n"
    "  --version         print the version and exit\n"
    "  --help            print this and exit\n"
    "\n"
    "Signals: TERM and INT stop in order, HUP reads the configuration again.\n"
    "Example: syncrepd --config /etc/syncrep/site-a.yaml\n";

struct arguments {
    const char *config;
    bool check;
};

struct program {
    struct sr_site *site;
    uv_signal_t term, interrupt, hangup;
    unsigned signals;
};

/* Returns -1 to go on, else the exit code. */
static int parse(int argc, char **argv, struct arguments *arguments)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"check-config", no_argument, NULL, 'k'},
                                            {"version", no_argument, NULL, 'v'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            arguments->config = optarg;
            break;
        case 'k':
            arguments->check = true;
            break;
        case 'v':
            printf("syncrepd %s\n", SYNCREP_VERSION);
            return 0;
        case 'h':
            fputs(usage_text, stdout);
            return 0;
        default:
            fputs(usage_text, stderr);
            return SR_EXIT_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "syncrepd: unexpected argument '%s'\n%s", argv[optind], usage_text);
        return SR_EXIT_USAGE;
    }
    if (!arguments->config) {
        fprintf(stderr, "syncrepd: --config FILE is missing\n%s", usage_text);
        return SR_EXIT_USAGE;
    }
    return -1;
}

/* ---- the process ------------------------------------------------------------------------------------------------
 */

/* systemd's readiness protocol: a datagram to the socket named in the environment. */
static void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (!path || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof(address.sun_path))
        return;
    memcpy(address.sun_path, path, strlen(path));
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&address, bytes);
    close(fd);
}

static void raise_limits(void)
{
    struct rlimit files = {0}, locked = {0};

    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    getrlimit(RLIMIT_NOFILE, &files);
    getrlimit(RLIMIT_MEMLOCK, &locked);
    sr_log(files.rlim_cur < 1024 ? SR_LOG_WARNING : SR_LOG_INFO,
           "limits of this process: %llu open files (RLIMIT_NOFILE), %llu KiB of locked memory (RLIMIT_MEMLOCK)",
           (unsigned long long)files.rlim_cur, (unsigned long long)(locked.rlim_cur / 1024));
}

static void on_stop(uv_signal_t *handle, int number)
{
    struct program *program = handle->data;

    sr_log(SR_LOG_NOTICE, "signal %d: stopping", number);
    notify("STOPPING=1");
    sr_shutdown_begin(program->site);
}

static void on_hangup(uv_signal_t *handle, int number)
{
    struct program *program = handle->data;
    char text[1024];

    (void)number;
    if (!program->site->stopping)
        sr_reload(program->site, text, sizeof(text));
}

static void watch_signals(struct program *program)
{
    uv_loop_t *loop = program->site->loop;

    signal(SIGPIPE, SIG_IGN);
    uv_signal_init(loop, &program->term);
    uv_signal_init(loop, &program->interrupt);
    uv_signal_init(loop, &program->hangup);
    program->term.data = program->interrupt.data = program->hangup.data = program;
    uv_signal_start(&program->term, on_stop, SIGTERM);
    uv_signal_start(&program->interrupt, on_stop, SIGINT);
    uv_signal_start(&program->hangup, on_hangup, SIGHUP);
}

static void forget_signals(struct program *program)
{
    uv_close((uv_handle_t *)&program->term, NULL);
    uv_close((uv_handle_t *)&program->interrupt, NULL);
    uv_close((uv_handle_t *)&program->hangup, NULL);
}

static void leave_loop(struct sr_site *site)
{
    uv_stop(site->loop);
}

/* ---- running ------------------------------------------------------------------------------------------------------
 */

static int run(struct sr_site *site)
{
    struct program program = {.site = site};
    char text[1024] = "";
    int exit_code = 0;

    watch_signals(&program);
    site->stop_fn = leave_loop;
    enum sr_error error = sr_startup(site, &exit_code, text, sizeof(text));
    if (error == SR_OK) {
        exit_code = 0;
        sr_log(SR_LOG_NOTICE, "syncrepd %s: site %s serves %u volumes; its peer is %s", SYNCREP_VERSION,
               site->config->site, site->n_collections, site->config->peer_name);
        notify("READY=1");
        uv_run(site->loop, UV_RUN_DEFAULT);
        exit_code = site->exit_code;
    } else {
        sr_log(SR_LOG_ERROR, "%s", text);
    }
    forget_signals(&program);
    sr_shutdown_finish(site);
    return exit_code;
}

static int start(const struct sr_config *config)
{
    enum sr_error error = sr_log_init(config->log_level, config->log_format, STDERR_FILENO);
    uv_loop_t loop;

    if (error != SR_OK) {
        fprintf(stderr, "syncrepd: the log cannot be started: %s\n", sr_error_text(error));
        return SR_EXIT_RUNTIME;
    }
    raise_limits();
    if (uv_loop_init(&loop) != 0) {
        sr_log(SR_LOG_ERROR, "the event loop cannot be made");
        sr_log_close(LOG_CLOSE_MS);
        return SR_EXIT_RUNTIME;
    }
    struct sr_site *site = calloc(1, sizeof(*site));
    if (!site)
        return SR_EXIT_RUNTIME;
    site->loop = &loop;
    site->config = (struct sr_config *)config;
    int exit_code = run(site);
    if (exit_code == 0)
        sr_log(SR_LOG_NOTICE, "stopped");
    sr_log_close(LOG_CLOSE_MS);
    if (!site->finished || uv_loop_close(&loop) != 0)
        _exit(exit_code); /* work that is stuck in the kernel must not hold the end up */
    free(site);
    return exit_code;
}

int main(int argc, char **argv)
{
    struct arguments arguments = {0};
    struct sr_config_faults faults = {0};
    struct sr_config *config;
    int exit_code = parse(argc, argv, &arguments);

    if (exit_code >= 0)
        return exit_code;
    if (sr_config_load(arguments.config, &config, &faults) != SR_OK) {
        sr_config_faults_print(&faults, stderr);
        sr_config_faults_free(&faults);
        return SR_EXIT_USAGE;
    }
    if (!sr_certificates_check(config, &faults)) {
        sr_config_faults_print(&faults, stderr);
        sr_config_faults_free(&faults);
        sr_config_free(config);
        return SR_EXIT_USAGE;
    }
    sr_config_faults_free(&faults);
    if (arguments.check)
        printf("%s: no fault found\n", arguments.config);
    else
        exit_code = start(config);
    sr_config_free(config);
    return arguments.check ? 0 : exit_code;
}
