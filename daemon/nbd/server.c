/* server.c - life of the server, deadlines, the line for memory, the log.
 *
 * Two timers, each running only while it is needed: `tick` for deadlines (handshakes, leaving clients, a listener
 * that rests), `retry` for connections that wait for memory, which others of the same budget may free without
 * telling.
 *
 * Invariants
 *   1. No deadline is missed by more than TICK_MS.
 *   2. While a connection waits for memory, the first in line is asked again at least every STALL_RETRY_MS, and
 *      nobody who holds memory without moving bytes keeps it for longer than hold_timeout_ms.
 *   3. After sr_nbd_server_close no connection is begun, and the end comes by the deadline whatever clients and
 *      backend do.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "nbd/nbd_internal.h"

#define LOG_WINDOW_MS 10000u
#define LOG_LINES     20u /* in a window; more are counted */

uint64_t nbd_server_now(const struct sr_nbd_server *server)
{
    return uv_now(server->loop);
}

void nbd_server_log(struct sr_nbd_server *server, enum sr_log_level level, const char *format, ...)
{
    uint64_t now = nbd_server_now(server);
    char line[400];
    va_list args;
    int used;

    if (!server->callbacks.log)
        return;
    if (now - server->log_window_ms >= LOG_WINDOW_MS) {
        server->log_window_ms = now;
        server->log_lines = 0;
    }
    if (server->log_lines >= LOG_LINES) {
        server->log_skipped++;
        server->stats.log_suppressed++;
        return;
    }
    server->log_lines++;
    va_start(args, format);
    used = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (server->log_skipped > 0 && used >= 0 && (size_t)used < sizeof line)
        snprintf(line + used, sizeof line - (size_t)used, " (%llu lines of this kind were left out)",
                 (unsigned long long)server->log_skipped);
    server->log_skipped = 0;
    server->callbacks.log(server->arg, level, line);
}

/* ---- timers --------------------------------------------------------------------------------------------- */

static void check_deadline(struct sr_nbd_server *server, struct conn *conn, uint64_t now)
{
    if (conn->phase == PHASE_TRANSMISSION || now < conn->deadline_ms)
        return;
    if (conn->phase == PHASE_LEAVING) {
        if (conn->n_requests > 0)
            nbd_server_log(server, SR_LOG_NOTICE, "nbd: a client left, and %u of its requests are still unanswered",
                           conn->n_requests);
    } else {
        server->stats.handshake_timeouts++;
        nbd_server_log(server, SR_LOG_INFO, "nbd: no handshake within %u ms: disconnected",
                       server->config.handshake_timeout_ms);
    }
    nbd_conn_abort(conn);
}

/* Does it hold payload that only its client can move on?  Then its bytes must move. */
static void check_hold(struct sr_nbd_server *server, struct conn *conn, uint64_t now)
{
    uint64_t moved = sr_stream_bytes_in(conn->stream) + sr_stream_bytes_out(conn->stream);
    bool holds = conn->receiving || sr_stream_queue_bytes(conn->stream) > 0;

    if (!holds || moved != conn->moved_bytes || conn->moved_ms == 0) {
        conn->moved_bytes = moved;
        conn->moved_ms = now;
    } else if (now - conn->moved_ms >= server->config.hold_timeout_ms) {
        nbd_server_log(server, SR_LOG_WARNING,
                       "nbd: others wait for the memory that a stuck client has held for %u ms: disconnected",
                       server->config.hold_timeout_ms);
        nbd_conn_abort(conn);
    }
}

/* Of the list only conn itself can go in a turn. */
static void tick(uv_timer_t *timer)
{
    struct sr_nbd_server *server = timer->data;
    uint64_t now = nbd_server_now(server);
    struct conn *conn, *next;
    bool needed = server->closing || server->listen_again_ms != 0 || !TAILQ_EMPTY(&server->stalled);

    if (server->listen_again_ms != 0 && now >= server->listen_again_ms && !server->closing)
        nbd_listeners_resume(server);
    for (conn = TAILQ_FIRST(&server->conns); conn; conn = next) {
        next = TAILQ_NEXT(conn, link);
        if (conn->phase != PHASE_TRANSMISSION)
            needed = true;
        nbd_conn_enter(conn);
        if (TAILQ_EMPTY(&server->stalled))
            conn->moved_ms = 0;
        else
            check_hold(server, conn, now);
        if (nbd_conn_alive(conn))
            check_deadline(server, conn, now);
        nbd_conn_leave(conn);
    }
    if (server->closing && now >= server->close_deadline_ms)
        while ((conn = TAILQ_FIRST(&server->conns)))
            nbd_conn_abort(conn);
    if (!needed)
        uv_timer_stop(&server->tick);
}

void nbd_server_need_tick(struct sr_nbd_server *server)
{
    if (!uv_is_closing((uv_handle_t *)&server->tick) && !uv_is_active((uv_handle_t *)&server->tick))
        uv_timer_start(&server->tick, tick, TICK_MS, TICK_MS);
}

void nbd_server_kick_stalled(struct sr_nbd_server *server)
{
    struct conn *first = TAILQ_FIRST(&server->stalled);

    if (first)
        nbd_conn_resume(first);
}

static void retry(uv_timer_t *timer)
{
    struct sr_nbd_server *server = timer->data;

    nbd_retire_turn(server);
    if (TAILQ_EMPTY(&server->stalled) && LIST_EMPTY(&server->retiring))
        uv_timer_stop(&server->retry);
    else
        nbd_server_kick_stalled(server);
}

void nbd_server_need_retry(struct sr_nbd_server *server)
{
    nbd_server_need_tick(server);
    if (!uv_is_closing((uv_handle_t *)&server->retry) && !uv_is_active((uv_handle_t *)&server->retry))
        uv_timer_start(&server->retry, retry, STALL_RETRY_MS, STALL_RETRY_MS);
}

void nbd_server_retry_now(struct sr_nbd_server *server)
{
    if (!uv_is_closing((uv_handle_t *)&server->retry))
        uv_timer_start(&server->retry, retry, 0, STALL_RETRY_MS);
}

void sr_nbd_memory_freed(struct sr_nbd_server *server)
{
    nbd_server_kick_stalled(server);
}

/* ---- life ----------------------------------------------------------------------------------------------- */

static void set_defaults(struct sr_nbd_config *config)
{
#define DEFAULT(field, value)                                                                                       \
    do {                                                                                                            \
        if (config->field == 0)                                                                                     \
            config->field = (value);                                                                                \
    } while (0)
    DEFAULT(handshake_timeout_ms, 10000);
    DEFAULT(max_connections, 256);
    DEFAULT(evict_after_ms, 1000);
    DEFAULT(queue_depth, 128);
    DEFAULT(queue_bytes, 2 * (size_t)SR_IO_MAX_BYTES);
    DEFAULT(max_requests, 8192);
    DEFAULT(linger_ms, 30000);
    DEFAULT(hold_timeout_ms, 10000);
#undef DEFAULT
}

struct sr_nbd_server *sr_nbd_server_new(uv_loop_t *loop, const struct sr_nbd_config *config,
                                            const struct sr_nbd_callbacks *callbacks, void *arg)
{
    struct sr_nbd_server *server = calloc(1, sizeof *server);

    SR_ASSERT(callbacks->find && callbacks->list && callbacks->submit);
    if (!server)
        return NULL;
    server->loop = loop;
    server->config = *config;
    set_defaults(&server->config);
    server->callbacks = *callbacks;
    server->arg = arg;
    LIST_INIT(&server->listeners);
    TAILQ_INIT(&server->conns);
    TAILQ_INIT(&server->stalled);
    server->log_window_ms = uv_now(loop);
    server->table = calloc(server->config.max_requests, sizeof(struct inflight *));
    if (!server->table)
        goto fail_server;
    server->spare_fd = -1;
    if (!nbd_spare_open(server))
        goto fail_table;
    uv_timer_init(loop, &server->tick); /* cannot fail */
    uv_timer_init(loop, &server->retry);
    server->tick.data = server->retry.data = server;
    server->open_handles = 2;
    return server;
fail_table:
    free(server->table);
fail_server:
    free(server);
    return NULL;
}

void sr_nbd_server_set_tls(struct sr_nbd_server *server, SSL_CTX *context)
{
    if (context)
        SSL_CTX_up_ref(context);
    SSL_CTX_free(server->tls);
    server->tls = context;
}

static void free_server(struct sr_nbd_server *server)
{
    SR_ASSERT(TAILQ_EMPTY(&server->conns) && LIST_EMPTY(&server->listeners));
    for (uint32_t i = 0; i < server->n_table; i++) {
        sr_buf_unref(server->table[i]->buf); /* abandoned at the deadline */
        free(server->table[i]);
    }
    free(server->table);
    nbd_retire_forget(server);
    if (server->spare_fd >= 0)
        close(server->spare_fd);
    SSL_CTX_free(server->tls);
    if (server->closed)
        server->closed(server->closed_arg);
    free(server);
}

/* The loop closes handles in an order of its own; whoever is last frees. */
void nbd_server_release_handle(struct sr_nbd_server *server)
{
    SR_ASSERT(server->open_handles > 0);
    if (--server->open_handles == 0)
        free_server(server);
}

static void on_timer_closed(uv_handle_t *handle)
{
    nbd_server_release_handle(handle->data);
}

/* The last connection gone: the timers go, and the server with the last handle. */
void nbd_server_close_step(struct sr_nbd_server *server)
{
    if (!server->closing || !TAILQ_EMPTY(&server->conns) || uv_is_closing((uv_handle_t *)&server->tick))
        return;
    uv_close((uv_handle_t *)&server->tick, on_timer_closed);
    uv_close((uv_handle_t *)&server->retry, on_timer_closed);
}

void sr_nbd_server_close(struct sr_nbd_server *server, uint32_t deadline_ms, void (*closed)(void *closed_arg),
                             void *closed_arg)
{
    struct conn *conn, *next;
    struct listener *listener;

    SR_ASSERT(!server->closing);
    uv_update_time(server->loop);
    server->closing = true;
    server->close_deadline_ms = nbd_server_now(server) + deadline_ms;
    server->closed = closed;
    server->closed_arg = closed_arg;
    while ((listener = LIST_FIRST(&server->listeners)))
        nbd_listener_close(listener);
    nbd_server_need_tick(server);
    for (conn = TAILQ_FIRST(&server->conns); conn; conn = next) {
        next = TAILQ_NEXT(conn, link);
        if (conn->phase < PHASE_TRANSMISSION)
            nbd_conn_abort(conn);
        else
            nbd_conn_finish(conn);
    }
    nbd_server_close_step(server);
}

/* ---- exports -------------------------------------------------------------------------------------------- */

void sr_nbd_drop_export(struct sr_nbd_server *server, void *export)
{
    struct conn *conn, *next;

    for (conn = TAILQ_FIRST(&server->conns); conn; conn = next) {
        next = TAILQ_NEXT(conn, link);
        if (conn->phase >= PHASE_TRANSMISSION && conn->export == export)
            nbd_conn_close_flushed(conn);
        else if (conn->meta_export == export) {
            conn->meta_base = false;
            conn->meta_export = NULL;
        }
    }
    for (uint32_t i = 0; i < server->n_table; i++)
        if (server->table[i]->used && server->table[i]->export == export)
            nbd_inflight_free(server, server->table[i]);
    nbd_server_kick_stalled(server);
}

uint32_t sr_nbd_export_connections(const struct sr_nbd_server *server, const void *export)
{
    const struct conn *conn;
    uint32_t n = 0;

    if (!server)
        return 0;
    TAILQ_FOREACH (conn, &server->conns, link)
        if (conn->phase >= PHASE_TRANSMISSION && conn->export == export)
            n++;
    return n;
}

void sr_nbd_server_stats(const struct sr_nbd_server *server, struct sr_nbd_stats *stats)
{
    *stats = server->stats;
}
