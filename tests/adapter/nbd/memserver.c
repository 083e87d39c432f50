/* memserver.c - sr_nbd over sparse memory, so that foreign clients test the wire without the rest of the daemon.
 *
 *   memserver [options] EXPORT...
 *     EXPORT = NAME:SIZE[,ro][,refuse][,slowzero]
 *     --unix PATH | --tcp       (TCP: loopback, a port that the kernel chooses, printed as "port N")
 *     --tls CERT KEY            offer TLS    --require-tls
 *     --depth N --connections N --handshake-ms N --evict-ms N --budget BYTES --hold-ms N
 *     --delay-us N              answer each request so much later
 *
 * Prints "ready" when clients may come and statistics as JSON at SIGUSR1, drops its first export at SIGUSR2, and
 * leaves in order at SIGTERM.  Data lives in anonymous memory; a page that was never written, or was trimmed, is a
 * hole.  Requests whose offset lies in the last block of an export of exactly 1048576 + 4096 bytes fail with an I/O
 * error (a trim: with "shutting down"), for tests of errors from below.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <openssl/ssl.h>
#include <uv.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/units.h"
#include "nbd/nbd.h"

#define MAX_EXPORTS 64
#define FAULTY_BYTES (SR_MIB + SR_BLOCK_BYTES)

struct volume {
    char name[64];
    char refusal[120];
    uint64_t size_bytes;
    bool read_only, refuse, slow_zero;
    uint8_t *data;
    uint8_t *present; /* a byte a block */
};

struct job {
    struct job *next;
    struct volume *volume;
    struct sr_nbd_request request;
    uint64_t due_us;
};

static uv_loop_t *loop;
static struct sr_nbd_server *server;
static struct sr_budget budget;
static struct volume volumes[MAX_EXPORTS];
static uint32_t n_volumes;
static struct job *first_job, **last_job = &first_job;
static uv_timer_t job_timer;
static uv_idle_t job_idle;
static uv_signal_t on_term, on_usr1, on_usr2;
static uint64_t delay_us;
static uint64_t n_fua, n_flush;

/* ---- the volumes ---------------------------------------------------------------------------------------- */

static void describe(struct volume *volume, struct sr_nbd_export_info *info)
{
    info->name = volume->name;
    info->description = "sparse memory";
    info->size_bytes = volume->size_bytes;
    info->read_only = volume->read_only;
    info->fast_zero = !volume->slow_zero;
    info->available = !volume->refuse;
    info->refusal = volume->refusal;
}

static void *find(void *arg, const char *name, size_t name_bytes, struct sr_nbd_export_info *info)
{
    (void)arg;
    for (uint32_t i = 0; i < n_volumes; i++) {
        if (strlen(volumes[i].name) == name_bytes && memcmp(volumes[i].name, name, name_bytes) == 0) {
            describe(&volumes[i], info);
            return &volumes[i];
        }
    }
    return NULL;
}

static bool list(void *arg, uint32_t index, struct sr_nbd_export_info *info)
{
    (void)arg;
    if (index >= n_volumes)
        return false;
    describe(&volumes[index], info);
    return true;
}

static uint64_t extent(void *arg, void *export, uint64_t offset_bytes, uint64_t limit_bytes, bool *hole)
{
    struct volume *volume = export;
    uint64_t block = offset_bytes / SR_BLOCK_BYTES, end;

    (void)arg;
    *hole = !volume->present[block];
    for (end = block + 1; end * SR_BLOCK_BYTES < offset_bytes + limit_bytes; end++)
        if (volume->present[end] != volume->present[block])
            break;
    end = end * SR_BLOCK_BYTES - offset_bytes;
    return end < limit_bytes ? end : limit_bytes;
}

static void clear(struct volume *volume, uint64_t offset, uint64_t length)
{
    uint64_t first = (offset + SR_BLOCK_BYTES - 1) / SR_BLOCK_BYTES, last = (offset + length) / SR_BLOCK_BYTES;

    memset(volume->data + offset, 0, length);
    for (uint64_t block = first; block < last; block++)
        volume->present[block] = 0;
}

static enum sr_error carry_out(struct volume *volume, const struct sr_nbd_request *request)
{
    uint64_t offset = request->offset_bytes, length = request->length_bytes;

    n_fua += request->fua;
    if (request->op == SR_HOST_FLUSH) {
        n_flush++;
        return SR_OK;
    }
    SR_ASSERT(length > 0 && offset <= volume->size_bytes && length <= volume->size_bytes - offset);
    if (volume->size_bytes == FAULTY_BYTES && offset >= SR_MIB)
        return request->op == SR_HOST_TRIM ? SR_E_SHUTDOWN : SR_E_IO;
    switch (request->op) {
    case SR_HOST_READ:
        memcpy(request->buf->data, volume->data + offset, length);
        break;
    case SR_HOST_WRITE:
        memcpy(volume->data + offset, request->buf->data, length);
        memset(volume->present + offset / SR_BLOCK_BYTES, 1,
               (offset + length - 1) / SR_BLOCK_BYTES - offset / SR_BLOCK_BYTES + 1);
        break;
    case SR_HOST_TRIM:
        clear(volume, offset, length);
        break;
    case SR_HOST_ZERO:
        if (request->no_hole)
            memset(volume->present + offset / SR_BLOCK_BYTES, 1,
                   (offset + length - 1) / SR_BLOCK_BYTES - offset / SR_BLOCK_BYTES + 1);
        if (request->no_hole)
            memset(volume->data + offset, 0, length);
        else
            clear(volume, offset, length);
        break;
    default:
        SR_UNREACHABLE();
    }
    return SR_OK;
}

/* ---- answering, later ----------------------------------------------------------------------------------- */

static void run_jobs(void);

static void on_job_timer(uv_timer_t *timer)
{
    (void)timer;
    run_jobs();
}

static void on_job_idle(uv_idle_t *idle)
{
    (void)idle;
    run_jobs();
}

static void run_jobs(void)
{
    struct job *job;

    while ((job = first_job) && job->due_us <= uv_hrtime() / 1000) {
        first_job = job->next;
        if (!first_job)
            last_job = &first_job;
        sr_nbd_complete(server, job->request.tag, carry_out(job->volume, &job->request));
        sr_buf_unref(job->request.buf);
        free(job);
    }
    if (!first_job || delay_us > 0)
        uv_idle_stop(&job_idle);
    if (first_job && delay_us > 0)
        uv_timer_start(&job_timer, on_job_timer, 1, 0);
}

static void submit(void *arg, void *export, const struct sr_nbd_request *request)
{
    struct job *job = calloc(1, sizeof *job);

    (void)arg;
    SR_ASSERT(job);
    job->volume = export;
    job->request = *request;
    sr_buf_ref(request->buf);
    job->due_us = uv_hrtime() / 1000 + delay_us;
    *last_job = job;
    last_job = &job->next;
    if (delay_us > 0)
        uv_timer_start(&job_timer, on_job_timer, 1, 0);
    else
        uv_idle_start(&job_idle, on_job_idle);
}

static void log_line(void *arg, enum sr_log_level level, const char *text)
{
    (void)arg;
    fprintf(stderr, "%d %s\n", level, text);
}

/* ---- signals -------------------------------------------------------------------------------------------- */

static void on_closed(void *arg)
{
    struct job *job;

    (void)arg;
    while ((job = first_job)) { /* abandoned at the deadline */
        first_job = job->next;
        sr_buf_unref(job->request.buf);
        free(job);
    }
    uv_close((uv_handle_t *)&job_timer, NULL);
    uv_close((uv_handle_t *)&job_idle, NULL);
    uv_close((uv_handle_t *)&on_term, NULL);
    uv_close((uv_handle_t *)&on_usr1, NULL);
    uv_close((uv_handle_t *)&on_usr2, NULL);
}

static void stop(uv_signal_t *handle, int number)
{
    (void)number;
    uv_signal_stop(handle);
    sr_nbd_server_close(server, 2000, on_closed, NULL);
}

static void report(uv_signal_t *handle, int number)
{
    struct sr_nbd_stats s;
    struct rusage usage;

    (void)handle;
    (void)number;
    sr_nbd_server_stats(server, &s);
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"connections\": %u, \"handshaking\": %u, \"stalled\": %u, \"open\": %u, \"accepted\": %llu, "
           "\"refused_cap\": %llu, \"refused_fds\": %llu, \"evicted\": %llu, \"handshake_timeouts\": %llu, "
           "\"requests\": %llu, \"errors\": %llu, \"late\": %llu, \"budget_used\": %zu, \"budget_peak\": %zu, "
           "\"fua\": %llu, \"flush\": %llu, \"cpu_ms\": %lld, \"rss_kib\": %ld, \"log_suppressed\": %llu}\n",
           s.connections, s.handshaking, s.stalled, s.requests_open, (unsigned long long)s.accepted,
           (unsigned long long)s.refused_cap, (unsigned long long)s.refused_fds, (unsigned long long)s.evicted,
           (unsigned long long)s.handshake_timeouts, (unsigned long long)s.requests,
           (unsigned long long)s.request_errors, (unsigned long long)s.late_completions, budget.used_bytes,
           budget.peak_bytes, (unsigned long long)n_fua, (unsigned long long)n_flush,
           (long long)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
               (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000,
           usage.ru_maxrss, (unsigned long long)s.log_suppressed);
    fflush(stdout);
}

static void drop(uv_signal_t *handle, int number)
{
    uint32_t before = sr_nbd_export_connections(server, &volumes[0]);

    (void)handle;
    (void)number;
    sr_nbd_drop_export(server, &volumes[0]);
    printf("connections %u, then %u\n", before, sr_nbd_export_connections(server, &volumes[0]));
    fflush(stdout);
}

/* ---- start ---------------------------------------------------------------------------------------------- */

static void fail(const char *what)
{
    fprintf(stderr, "memserver: %s\n", what);
    exit(2);
}

static void add_volume(char *text)
{
    struct volume *volume = &volumes[n_volumes];
    char *size = strchr(text, ':'), *flags;

    if (!size || n_volumes == MAX_EXPORTS)
        fail("an export is NAME:SIZE[,ro][,refuse][,slowzero]");
    *size++ = '\0';
    flags = strchr(size, ',');
    snprintf(volume->name, sizeof volume->name, "%s", text);
    snprintf(volume->refusal, sizeof volume->refusal, "volume %s is active at site b: connect there", text);
    volume->size_bytes = strtoull(size, NULL, 0);
    volume->read_only = flags && strstr(flags, ",ro");
    volume->refuse = flags && strstr(flags, ",refuse");
    volume->slow_zero = flags && strstr(flags, ",slowzero");
    volume->data = mmap(NULL, volume->size_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    volume->present = calloc(volume->size_bytes / SR_BLOCK_BYTES + 2, 1);
    if (volume->data == MAP_FAILED || !volume->present)
        fail("no memory");
    n_volumes++;
}

static SSL_CTX *tls_context(const char *certificate, const char *key)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());

    if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_use_certificate_chain_file(context, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1)
        fail("cannot use the certificate");
    return context;
}

struct options {
    const char *unix_path, *certificate, *key;
    bool require_tls;
    struct sr_nbd_config config;
};

static void parse(int argc, char **argv, struct options *options)
{
    struct {
        const char *name;
        uint32_t *value;
    } numbers[] = {
        {"--depth", &options->config.queue_depth},
        {"--connections", &options->config.max_connections},
        {"--handshake-ms", &options->config.handshake_timeout_ms},
        {"--evict-ms", &options->config.evict_after_ms},
        {"--hold-ms", &options->config.hold_timeout_ms},
    };

    for (int i = 1; i < argc; i++) {
        bool found = false;

        for (size_t n = 0; n < sizeof numbers / sizeof numbers[0] && i + 1 < argc; n++) {
            if (strcmp(argv[i], numbers[n].name) == 0) {
                *numbers[n].value = (uint32_t)strtoul(argv[++i], NULL, 0);
                found = true;
                break;
            }
        }
        if (found)
            continue;
        if (strcmp(argv[i], "--unix") == 0 && i + 1 < argc)
            options->unix_path = argv[++i];
        else if (strcmp(argv[i], "--budget") == 0 && i + 1 < argc)
            budget.limit_bytes = strtoul(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--delay-us") == 0 && i + 1 < argc)
            delay_us = strtoul(argv[++i], NULL, 0);
        else if (strcmp(argv[i], "--tls") == 0 && i + 2 < argc) {
            options->certificate = argv[++i];
            options->key = argv[++i];
        } else if (strcmp(argv[i], "--require-tls") == 0)
            options->require_tls = true;
        else if (strcmp(argv[i], "--tcp") != 0)
            add_volume(argv[i]);
    }
}

int main(int argc, char **argv)
{
    static const struct sr_nbd_callbacks callbacks = {
        .find = find, .list = list, .submit = submit, .extent = extent, .log = log_line};
    struct options options = {0};
    enum sr_nbd_tls tls;
    uint16_t port = 0;
    char why[300] = "";

    signal(SIGPIPE, SIG_IGN);
    parse(argc, argv, &options);
    options.config.budget = &budget;
    tls = !options.certificate ? SR_NBD_TLS_OFF : options.require_tls ? SR_NBD_TLS_REQUIRED : SR_NBD_TLS_OPTIONAL;
    loop = uv_default_loop();
    server = sr_nbd_server_new(loop, &options.config, &callbacks, NULL);
    if (!server)
        fail("no server");
    if (options.certificate) {
        SSL_CTX *context = tls_context(options.certificate, options.key);

        sr_nbd_server_set_tls(server, context);
        SSL_CTX_free(context);
    }
    uv_timer_init(loop, &job_timer);
    uv_idle_init(loop, &job_idle);
    uv_signal_init(loop, &on_term);
    uv_signal_start(&on_term, stop, SIGTERM);
    uv_signal_init(loop, &on_usr1);
    uv_signal_start(&on_usr1, report, SIGUSR1);
    uv_signal_init(loop, &on_usr2);
    uv_signal_start(&on_usr2, drop, SIGUSR2);
    if (options.unix_path) {
        if (sr_nbd_listen_unix(server, options.unix_path, tls, why, sizeof why))
            fail(why);
    } else {
        if (sr_nbd_listen_tcp(server, "127.0.0.1", 0, tls, &port, why, sizeof why))
            fail(why);
        printf("port %u\n", port);
    }
    printf("ready\n");
    fflush(stdout);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
    SR_ASSERT(budget.used_bytes == 0); /* no buffer is ever lost */
    for (uint32_t i = 0; i < n_volumes; i++) {
        munmap(volumes[i].data, volumes[i].size_bytes);
        free(volumes[i].present);
    }
    return 0;
}
