/* conn.c - one connection of the peer link: greeting, heartbeat, end.  receive.c takes its frames apart.
 *
 *     CONNECTING --> TLS --> HELLO --> WAITING --> UP
 *                                  (any) --> DEAD
 *
 * HELLO: each end sends its greeting at once and reads the other's.  WAITING: the greeting was good; the
 * acknowledgement is sent when all work of the previous connection is done, and awaited.  Heartbeats run from here
 * on, so a peer that drains for long is not taken for dead.
 *
 * Invariants
 *  1. While we do not read (paused, or without room) the other end is not taken for silent.
 *  2. A connection ends once, through conn_close, and its memory stays until the loop has closed its timer.
 *
 * Nothing here is durable.
 */
#include "link/link_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"

#define PINGS_QUEUED_MAX 2
#define PONGS_QUEUED_MAX 16
#define RTT_MAX_NS       (UINT64_C(600) * 1000000000)

static void on_timer(uv_timer_t *timer);

/* ---- the end ------------------------------------------------------------------------------------------ */

static void on_timer_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    struct sr_link *link = conn->link;
    struct conn **at = &link->conns;

    while (*at != conn)
        at = &(*at)->next;
    *at = conn->next;
    free(conn);
    link_release(link);
}

void conn_close(struct conn *conn, bool flushed)
{
    struct sr_link *link = conn->link;

    SR_ASSERT(conn->state != CONN_DEAD);
    if (conn->state < CONN_WAITING && !conn->dialled)
        link->unauthenticated--;
    conn->state = CONN_DEAD;
    if (link->current == conn)
        link->current = NULL;
    if (link->waiting == conn)
        link->waiting = NULL;
    if (link->dialling == conn)
        link->dialling = NULL;
    link->bytes_in += sr_stream_bytes_in(conn->stream);
    link->bytes_out += sr_stream_bytes_out(conn->stream);
    if (flushed)
        sr_stream_close_flushed(conn->stream, CONN_GOODBYE_MS);
    else
        sr_stream_close(conn->stream);
    conn->stream = NULL;
    conn_forget_received(conn);
    uv_close((uv_handle_t *)&conn->timer, on_timer_closed);
}

void conn_end(struct conn *conn, enum sr_error refuse, enum sr_link_cause cause, bool quiet, const char *format, ...)
{
    char text[SR_LINK_TEXT_BYTES];
    va_list args;

    if (conn->state == CONN_DEAD)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (refuse != SR_OK && conn->state >= CONN_HELLO) {
        struct sr_site_msg msg = {.type = SR_SITE_REFUSED};

        msg.refused.code = refuse;
        snprintf(msg.refused.text, sizeof msg.refused.text, "%.*s", SR_SITE_TEXT_BYTES - 1, text);
        conn_send_site(conn, &msg);
    }
    link_ended(conn->link, conn, cause, text, quiet);
}

/* ---- sending ------------------------------------------------------------------------------------------ */

bool conn_send_site(struct conn *conn, const struct sr_site_msg *msg)
{
    uint8_t out[SR_FRAME_FIXED_BYTES + SR_FRAME_HEADER_MAX_BYTES];
    bool beat = msg->type == SR_SITE_PING || msg->type == SR_SITE_PONG;
    bool greets = msg->type == SR_SITE_HELLO || msg->type == SR_SITE_HELLO_ACK || msg->type == SR_SITE_REFUSED;
    size_t bytes = sr_frame_encode_site(out, sizeof out, greets ? SR_WIRE_VERSION_HELLO : conn->peer.version, msg);

    if (bytes == 0)
        return false;
    return beat ? sr_stream_queue_urgent(conn->stream, out, bytes)
                : sr_stream_queue(conn->stream, out, bytes, NULL, 0, 0);
}

static void send_hello(struct conn *conn)
{
    const struct sr_link_config *config = &conn->link->config;
    struct sr_site_msg msg = {.type = SR_SITE_HELLO};

    msg.hello.version_min = config->version_min;
    msg.hello.version_max = config->version_max;
    msg.hello.features = config->features;
    msg.hello.site = config->site;
    msg.hello.group = config->group;
    snprintf(msg.hello.site_name, sizeof msg.hello.site_name, "%s", config->site_name);
    msg.hello.boot = config->boot;
    msg.hello.connection = conn->number;
    snprintf(msg.hello.software, sizeof msg.hello.software, "syncrep " SYNCREP_VERSION);
    if (!conn_send_site(conn, &msg))
        conn_end(conn, SR_OK, SR_LINK_CLOSED_BY_PEER, false, "the greeting could not be sent");
}

void conn_try_ack(struct conn *conn)
{
    struct sr_site_msg msg = {.type = SR_SITE_HELLO_ACK};

    if (conn->state != CONN_WAITING || conn->link->undrained)
        return;
    if (!conn->ack_sent) {
        msg.ack.version = conn->peer.version;
        msg.ack.features = conn->peer.features;
        if (!conn_send_site(conn, &msg)) {
            conn_end(conn, SR_OK, SR_LINK_CLOSED_BY_PEER, false, "the greeting could not be acknowledged");
            return;
        }
        conn->ack_sent = true;
    }
    if (conn->ack_received) {
        conn->state = CONN_UP;
        link_up(conn->link, conn);
    }
}

/* ---- the greeting ------------------------------------------------------------------------------------- */

/* Is this the peer, and can we talk to it?  False: refused. */
static bool check_hello(struct conn *conn, const struct sr_site_hello *hello)
{
    const struct sr_link *link = conn->link;
    const struct sr_link_config *config = &link->config;
    char mine[SR_UUID_TEXT_BYTES], theirs[SR_UUID_TEXT_BYTES], text[SR_SITE_TEXT_BYTES] = "";

    if (!sr_uuid_equal(&hello->group, &config->group)) {
        conn_end(conn, SR_E_IDENTITY, SR_LINK_FAULTY, false, "group %s of site \"%s\" is not group %s of site \"%s\"",
                 sr_uuid_format(&hello->group, theirs), hello->site_name, sr_uuid_format(&config->group, mine),
                 config->site_name);
        return false;
    }
    if (sr_uuid_equal(&hello->site, &config->site)) {
        conn_end(conn, SR_E_IDENTITY, SR_LINK_FAULTY, false,
                 "both ends are site %s: the peer address leads back here, or the state folder was copied",
                 sr_uuid_format(&config->site, mine));
        return false;
    }
    if (strcmp(hello->site_name, config->peer_name) != 0) {
        conn_end(conn, SR_E_IDENTITY, SR_LINK_FAULTY, false,
                 "site \"%s\" called, but the peer of site \"%s\" is \"%s\"", hello->site_name, config->site_name,
                 config->peer_name);
        return false;
    }
    if (hello->version_max < config->version_min || hello->version_min > config->version_max) {
        conn_end(conn, SR_E_VERSION, SR_LINK_FAULTY, false,
                 "no common protocol version: site \"%s\" (%s) speaks %u to %u, site \"%s\" (syncrep %s) %u to %u",
                 hello->site_name, hello->software, hello->version_min, hello->version_max, config->site_name,
                 SYNCREP_VERSION, config->version_min, config->version_max);
        return false;
    }
    if (!sr_uuid_is_none(&config->peer) && !sr_uuid_equal(&config->peer, &hello->site)) {
        conn_end(conn, SR_E_IDENTITY, SR_LINK_FAULTY, false,
                 "site \"%s\" has UUID %s, but the peer known here is %s: was its state folder made anew?",
                 hello->site_name, sr_uuid_format(&hello->site, theirs), sr_uuid_format(&config->peer, mine));
        return false;
    }
    if (link->callbacks.check_identity && !link->callbacks.check_identity(link->arg, hello, text)) {
        text[sizeof text - 1] = '\0';
        conn_end(conn, SR_E_IDENTITY, SR_LINK_FAULTY, false, "%s", text);
        return false;
    }
    return conn->state != CONN_DEAD;
}

static void got_hello(struct conn *conn, const struct sr_site_hello *hello)
{
    const struct sr_link_config *config = &conn->link->config;

    if (conn->state != CONN_HELLO) {
        conn_end(conn, SR_E_PROTOCOL, SR_LINK_FAULTY, false, "a second HELLO");
        return;
    }
    if (!check_hello(conn, hello))
        return;
    conn->peer.hello = *hello;
    conn->peer.version = hello->version_max < config->version_max ? hello->version_max : config->version_max;
    conn->peer.features = hello->features & config->features;
    conn->peer.dialled = conn->dialled;
    snprintf(conn->peer.address, sizeof conn->peer.address, "%s", conn->address);
    if (!link_authenticated(conn->link, conn))
        return;
    conn->last_rx_ms = uv_now(conn->link->loop);
    conn->next_ping_ms = conn->last_rx_ms;
    uv_timer_start(&conn->timer, on_timer, 0, 0);
    conn_try_ack(conn);
}

static void got_ack(struct conn *conn, const struct sr_site_msg *msg)
{
    if (conn->state != CONN_WAITING || conn->ack_received) {
        conn_end(conn, SR_E_PROTOCOL, SR_LINK_FAULTY, false, "HELLO_ACK out of turn");
        return;
    }
    if (msg->ack.version != conn->peer.version || msg->ack.features != conn->peer.features) {
        conn_end(conn, SR_E_PROTOCOL, SR_LINK_FAULTY, false,
                 "HELLO_ACK chose version %u and features %llx, expected %u and %llx", msg->ack.version,
                 (unsigned long long)msg->ack.features, conn->peer.version, (unsigned long long)conn->peer.features);
        return;
    }
    conn->ack_received = true;
    conn_try_ack(conn);
}

static void got_refused(struct conn *conn, const struct sr_site_msg *msg)
{
    bool quiet = msg->refused.code == SR_E_EXISTS; /* the newer of two connections stayed */

    conn_end(conn, SR_OK, SR_LINK_CLOSED_BY_PEER, quiet, "the other end refused: %s", msg->refused.text);
}

/* ---- the heartbeat ------------------------------------------------------------------------------------ */

bool conn_reads(const struct conn *conn)
{
    return !conn->budget_blocked && !(conn->state == CONN_UP && conn->link->paused);
}

static void send_ping(struct conn *conn)
{
    struct sr_site_msg msg = {.type = SR_SITE_PING};

    if (sr_stream_queue_urgents(conn->stream) >= PINGS_QUEUED_MAX)
        return; /* the others still wait to leave */
    msg.stamp = uv_hrtime();
    conn_send_site(conn, &msg);
}

static void arm_heartbeat(struct conn *conn, uint64_t now_ms)
{
    const struct sr_link_config *config = &conn->link->config;
    uint64_t dead_ms = conn->last_rx_ms + config->heartbeat_timeout_ms;
    uint64_t next_ms = conn_reads(conn) && dead_ms < conn->next_ping_ms ? dead_ms : conn->next_ping_ms;

    if (conn->suspect)
        next_ms = now_ms + 1;
    uv_timer_start(&conn->timer, on_timer, next_ms > now_ms ? next_ms - now_ms : 1, 0);
}

static void beat(struct conn *conn)
{
    const struct sr_link_config *config = &conn->link->config;
    uint64_t now_ms = uv_now(conn->link->loop);

    if (!conn_reads(conn))
        conn->last_rx_ms = now_ms; /* invariant 1 */
    if (now_ms - conn->last_rx_ms < config->heartbeat_timeout_ms) {
        conn->suspect = false;
    } else if (!conn->suspect) {
        /* Perhaps it was us who slept, and its bytes wait in the socket: look there first. */
        conn->suspect = true;
    } else {
        conn_end(conn, SR_OK, SR_LINK_SILENT, false, "the peer was silent for %u ms", config->heartbeat_timeout_ms);
        return;
    }
    if (now_ms >= conn->next_ping_ms) {
        send_ping(conn);
        conn->next_ping_ms = now_ms + config->heartbeat_interval_ms;
    }
    arm_heartbeat(conn, now_ms);
}

static void on_timer(uv_timer_t *timer)
{
    struct conn *conn = timer->data;

    conn_try_ack(conn);
    if (conn->state == CONN_DEAD)
        return;
    if (conn->state >= CONN_WAITING) {
        beat(conn);
        return;
    }
    conn_end(conn, SR_E_TIMEOUT, SR_LINK_SILENT, false, "%s within %u ms",
             conn->state == CONN_CONNECTING ? "no TCP connection"
             : conn->state == CONN_TLS      ? "no TLS handshake"
                                            : "no greeting",
             conn->link->config.handshake_timeout_ms);
}

static void got_pong(struct conn *conn, uint64_t stamp)
{
    uint64_t now = uv_hrtime();

    if (stamp <= now && now - stamp < RTT_MAX_NS)
        conn->rtt_us = (now - stamp) / 1000 ? (now - stamp) / 1000 : 1;
}

static void got_ping(struct conn *conn, struct sr_site_msg *msg)
{
    if (sr_stream_queue_urgents(conn->stream) >= PONGS_QUEUED_MAX)
        return; /* it does not read what it asks for */
    msg->type = SR_SITE_PONG;
    conn_send_site(conn, msg);
}

/* ---- messages of the link itself ------------------------------------------------------------------------ */

void conn_got_site(struct conn *conn, struct sr_site_msg *msg)
{
    struct sr_link *link = conn->link;

    switch (msg->type) {
    case SR_SITE_HELLO:
        got_hello(conn, &msg->hello);
        break;
    case SR_SITE_HELLO_ACK:
        got_ack(conn, msg);
        break;
    case SR_SITE_REFUSED:
        got_refused(conn, msg);
        break;
    case SR_SITE_PING:
        got_ping(conn, msg);
        break;
    case SR_SITE_PONG:
        got_pong(conn, msg->stamp);
        break;
    default:
        if (conn->state == CONN_UP) {
            link->callbacks.on_site_msg(link->arg, msg);
            return;
        }
        conn_end(conn, SR_E_PROTOCOL, SR_LINK_FAULTY, false, "a %s frame before the greeting was acknowledged",
                 sr_site_msg_name(msg->type));
        break;
    }
    sr_site_msg_free(msg);
}

void conn_drained(struct conn *conn)
{
    uv_timer_start(&conn->timer, on_timer, 0, 0);
}

void conn_apply_pause(struct conn *conn)
{
    if (conn->state == CONN_DEAD)
        return;
    if (!conn_reads(conn)) {
        sr_stream_pause_reading(conn->stream);
        return;
    }
    conn->last_rx_ms = uv_now(conn->link->loop);
    sr_stream_resume_reading(conn->stream);
}

/* ---- the beginning ------------------------------------------------------------------------------------ */

static void say_hello(struct conn *conn)
{
    conn->state = CONN_HELLO;
    link_note_state(conn->link);
    send_hello(conn);
}

static void start_tls(struct conn *conn)
{
    enum sr_error error;

    conn->state = CONN_TLS;
    error = sr_stream_start_tls(conn->stream, sr_tls_context(conn->link->config.tls),
                                conn->dialled ? SR_STREAM_CLIENT : SR_STREAM_SERVER);
    if (error != SR_OK)
        conn_end(conn, SR_OK, SR_LINK_FAULTY, false, "TLS: %s", sr_error_text(error));
}

/* TCP is there, or TLS. */
static void on_ready(void *arg)
{
    struct conn *conn = arg;
    const struct sr_link_config *config = &conn->link->config;
    char text[SR_LINK_TEXT_BYTES];

    if (conn->state == CONN_CONNECTING && !config->insecure) {
        start_tls(conn);
        return;
    }
    if (conn->state == CONN_TLS) {
        conn->state = CONN_HELLO; /* the name is part of who-are-you: the refusal goes through TLS */
        if (sr_tls_check_name(sr_stream_ssl(conn->stream), config->peer_name, text, sizeof text) != SR_OK) {
            conn_end(conn, SR_E_IDENTITY, SR_LINK_FAULTY, false, "%s", text);
            return;
        }
    }
    say_hello(conn);
}

static void on_readable(void *arg)
{
    conn_receive(arg);
}

static void on_drained(void *arg)
{
    struct conn *conn = arg;
    struct sr_link *link = conn->link;

    if (conn->state == CONN_UP && link->callbacks.on_writable)
        link->callbacks.on_writable(link->arg);
}

static void on_error(void *arg, enum sr_error error, const char *text)
{
    struct conn *conn = arg;

    (void)error;
    conn_end(conn, SR_OK, SR_LINK_CLOSED_BY_PEER, false, "%s", text);
}

struct conn *conn_new(struct sr_link *link, int fd, bool dialled, bool connecting, const char *address)
{
    static const struct sr_stream_callbacks callbacks = {on_readable, on_drained, on_ready, on_error};
    struct conn *conn = calloc(1, sizeof *conn);
    int bytes = link->config.socket_buffer_bytes;

    if (!conn)
        goto fail;
    if (bytes) {
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    }
    conn->stream = sr_stream_new(link->loop, fd, &callbacks, conn);
    if (!conn->stream)
        goto fail_conn;
    sr_stream_set_water(conn->stream, link->config.queue_low_bytes, link->config.queue_high_bytes);
    conn->link = link;
    conn->dialled = dialled;
    conn->header = conn->header_inline;
    conn->number = ++link->next_number;
    conn->created_ms = uv_now(link->loop);
    snprintf(conn->address, sizeof conn->address, "%s", address);
    uv_timer_init(link->loop, &conn->timer);
    conn->timer.data = conn;
    link->handles++;
    conn->next = link->conns;
    link->conns = conn;
    if (!dialled)
        link->unauthenticated++;
    uv_timer_start(&conn->timer, on_timer, link->config.handshake_timeout_ms, 0);
    conn->state = CONN_CONNECTING;
    if (dialled)
        link->dialling = conn;
    if (connecting)
        sr_stream_await_connect(conn->stream);
    else
        on_ready(conn);
    return conn;

fail_conn:
    free(conn);
fail:
    close(fd);
    return NULL;
}
