/* conn.c - life of a connection, and the bounds that it keeps to.
 *
 * Invariants
 *   1. Requests in flight plus replies that have not left never exceed queue_depth: a client that does not read its
 *      replies is not read from.
 *   2. Payload in work plus bytes queued for the client never exceeds queue_bytes (or one request, if that is
 *      larger).
 *   3. Reading stops at a bound and goes on when a request is answered or the queue has emptied; one of the two
 *      always follows.
 *   4. A dead connection's memory stays until no call is inside it.
 *
 * Nothing here is durable: after a crash the clients connect again.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "nbd/nbd_internal.h"

void nbd_conn_enter(struct conn *conn)
{
    conn->entered++;
}

void nbd_conn_leave(struct conn *conn)
{
    SR_ASSERT(conn->entered > 0);
    if (--conn->entered == 0 && conn->phase == PHASE_DEAD) {
        free(conn->reply_ends);
        free(conn);
    }
}

bool nbd_conn_alive(const struct conn *conn)
{
    return conn->phase != PHASE_DEAD;
}

/* ---- callbacks of the stream ---------------------------------------------------------------------------- */

static void on_readable(void *arg)
{
    struct conn *conn = arg;

    nbd_conn_enter(conn);
    if (conn->phase == PHASE_TRANSMISSION)
        nbd_transmission_readable(conn);
    else if (conn->phase < PHASE_TRANSMISSION)
        nbd_handshake_readable(conn);
    nbd_conn_leave(conn);
}

static void on_drained(void *arg)
{
    struct conn *conn = arg;

    nbd_conn_enter(conn);
    if (conn->phase == PHASE_TRANSMISSION && !conn->stalled)
        nbd_conn_resume(conn);
    else if (conn->phase < PHASE_TRANSMISSION)
        nbd_handshake_drained(conn);
    nbd_server_kick_stalled(conn->server); /* what was sent was memory */
    nbd_conn_leave(conn);
}

static void on_ready(void *arg)
{
    struct conn *conn = arg;

    nbd_conn_enter(conn);
    if (conn->phase == PHASE_TLS)
        nbd_handshake_tls_ready(conn);
    nbd_conn_leave(conn);
}

static void on_error(void *arg, enum sr_error error, const char *text)
{
    struct conn *conn = arg;

    (void)error;
    nbd_conn_enter(conn);
    if (conn->phase < PHASE_TRANSMISSION) {
        conn->server->stats.handshake_failures++;
        nbd_server_log(conn->server, SR_LOG_INFO, "nbd: handshake ended: %s", text);
    }
    nbd_conn_abort(conn);
    nbd_conn_leave(conn);
}

/* ---- birth and death ------------------------------------------------------------------------------------ */

void nbd_conn_new(struct sr_nbd_server *server, int fd, enum sr_nbd_tls tls_mode)
{
    static const struct sr_stream_callbacks callbacks = {on_readable, on_drained, on_ready, on_error};
    uint8_t greeting[SR_NBD_GREETING_BYTES];
    struct conn *conn = calloc(1, sizeof *conn);

    if (!conn)
        goto fail;
    conn->reply_ends = calloc(server->config.queue_depth + 1, sizeof *conn->reply_ends);
    if (!conn->reply_ends)
        goto fail;
    conn->stream = sr_stream_new(server->loop, fd, &callbacks, conn);
    if (!conn->stream)
        goto fail;
    sr_stream_set_water(conn->stream, 0, 1);
    conn->server = server;
    conn->tls_mode = tls_mode;
    conn->phase = PHASE_FLAGS;
    conn->since_ms = nbd_server_now(server);
    conn->deadline_ms = conn->since_ms + server->config.handshake_timeout_ms;
    LIST_INIT(&conn->requests);
    TAILQ_INSERT_TAIL(&server->conns, conn, link);
    server->stats.connections++;
    server->stats.handshaking++;
    server->stats.accepted++;
    nbd_server_need_tick(server);
    nbd_conn_enter(conn);
    sr_nbd_put_greeting(greeting);
    if (!nbd_conn_queue(conn, greeting, sizeof greeting, NULL, 0))
        nbd_conn_abort(conn);
    nbd_conn_leave(conn);
    return;
fail:
    nbd_server_log(server, SR_LOG_WARNING, "nbd: no memory for another connection");
    if (conn)
        free(conn->reply_ends);
    free(conn);
    close(fd);
}

/* A write that was not received to its end never began. */
static void forget_unreceived(struct conn *conn)
{
    if (conn->receiving)
        nbd_inflight_free(conn->server, conn->receiving);
    conn->receiving = NULL;
}

/* Everything but the stream. */
static void detach(struct conn *conn)
{
    struct sr_nbd_server *server = conn->server;
    struct inflight *inflight;

    if (conn->phase < PHASE_TRANSMISSION)
        server->stats.handshaking--;
    conn->phase = PHASE_DEAD;
    conn->stream = NULL;
    nbd_conn_unstall(conn);
    forget_unreceived(conn);
    while ((inflight = LIST_FIRST(&conn->requests)))
        nbd_inflight_orphan(inflight);
    TAILQ_REMOVE(&server->conns, conn, link);
    server->stats.connections--;
    nbd_server_kick_stalled(server);
    nbd_server_close_step(server);
}

void nbd_conn_abort(struct conn *conn)
{
    if (conn->phase == PHASE_DEAD)
        return;
    nbd_conn_enter(conn);
    sr_stream_close(conn->stream);
    detach(conn);
    nbd_conn_leave(conn);
}

void nbd_conn_close_flushed(struct conn *conn)
{
    if (conn->phase == PHASE_DEAD)
        return;
    nbd_conn_enter(conn);
    sr_stream_close_flushed(conn->stream, CLOSE_FLUSH_MS);
    detach(conn);
    nbd_conn_leave(conn);
}

void nbd_conn_finish(struct conn *conn)
{
    if (conn->phase != PHASE_TRANSMISSION)
        return;
    conn->phase = PHASE_LEAVING;
    conn->deadline_ms = nbd_server_now(conn->server) + conn->server->config.linger_ms;
    nbd_conn_unstall(conn);
    forget_unreceived(conn);
    nbd_conn_pause(conn);
    nbd_server_need_tick(conn->server);
    nbd_conn_finish_if_idle(conn);
}

void nbd_conn_finish_if_idle(struct conn *conn)
{
    if (conn->phase == PHASE_LEAVING && conn->n_requests == 0)
        nbd_conn_close_flushed(conn);
}

/* ---- bounds --------------------------------------------------------------------------------------------- */

/* Forget the replies that have left. */
static void settle_replies(struct conn *conn)
{
    uint64_t sent = conn->queued_total - sr_stream_queue_bytes(conn->stream);

    while (conn->n_replies > 0 && conn->reply_ends[conn->replies_first] <= sent) {
        conn->replies_first = (conn->replies_first + 1) % (conn->server->config.queue_depth + 1);
        conn->n_replies--;
    }
}

bool nbd_conn_has_room(struct conn *conn, size_t payload_bytes)
{
    const struct sr_nbd_config *config = &conn->server->config;
    size_t busy_bytes;

    settle_replies(conn);
    if (conn->n_requests + conn->n_replies >= config->queue_depth)
        return false;
    busy_bytes = conn->request_bytes + sr_stream_queue_bytes(conn->stream);
    return payload_bytes == 0 || busy_bytes == 0 ||
           (busy_bytes <= config->queue_bytes && payload_bytes <= config->queue_bytes - busy_bytes);
}

void nbd_conn_stall(struct conn *conn)
{
    struct sr_nbd_server *server = conn->server;

    nbd_conn_pause(conn);
    nbd_server_need_retry(server);
    if (conn->stalled)
        return;
    conn->stalled = true;
    TAILQ_INSERT_TAIL(&server->stalled, conn, stall_link);
    server->stats.stalled++;
}

void nbd_conn_unstall(struct conn *conn)
{
    if (!conn->stalled)
        return;
    conn->stalled = false;
    TAILQ_REMOVE(&conn->server->stalled, conn, stall_link);
    conn->server->stats.stalled--;
}

/* ---- bytes ---------------------------------------------------------------------------------------------- */

bool nbd_conn_queue(struct conn *conn, const void *header, size_t bytes, struct sr_buf *payload, size_t payload_bytes)
{
    if (!sr_stream_queue(conn->stream, header, bytes, payload, 0, payload_bytes))
        return false;
    if (conn->phase < PHASE_TRANSMISSION)
        return true;
    settle_replies(conn);
    conn->queued_total += bytes + payload_bytes;
    SR_ASSERT(conn->n_replies <= conn->server->config.queue_depth);
    conn->reply_ends[(conn->replies_first + conn->n_replies++) % (conn->server->config.queue_depth + 1)] =
        conn->queued_total;
    return true;
}

size_t nbd_conn_read(struct conn *conn, void *into, size_t max_bytes)
{
    ssize_t got = sr_stream_read(conn->stream, into, max_bytes);

    if (got > 0)
        return (size_t)got;
    if (got == SR_STREAM_AGAIN)
        return 0;
    if (conn->phase == PHASE_TRANSMISSION && got == SR_STREAM_EOF)
        nbd_conn_finish(conn); /* a client may leave without a word; what it asked for is done all the same */
    else
        nbd_conn_abort(conn);
    return 0;
}

void nbd_conn_pause(struct conn *conn)
{
    conn->paused = true;
    sr_stream_pause_reading(conn->stream);
}

void nbd_conn_resume(struct conn *conn)
{
    if (!conn->paused || conn->phase >= PHASE_LEAVING)
        return;
    conn->paused = false;
    sr_stream_resume_reading(conn->stream);
}
