/* receive.c - the bytes of a peer connection become frames, and frames become messages.
 *
 * Invariants
 *  1. Before the greeting was accepted only HELLO, HELLO_ACK and REFUSED are taken, with a small header and no
 * payload: a stranger costs a few kilobytes.
 *  2. A payload is allocated only when its frame's header is known to be good; without room we stop reading.
 *  3. Whatever is wrong ends the connection with one reason; nothing here asserts on what came in.
 *
 * Nothing here is durable.
 */
#include "link/link_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define PUMP_STEPS_MAX 1024 /* of one connection before others have their turn */

void conn_forget_received(struct conn *conn)
{
    sr_frame_free(&conn->frame);
    sr_buf_unref(conn->payload);
    conn->payload = NULL;
    if (conn->header != conn->header_inline)
        free(conn->header);
    conn->header = conn->header_inline;
    conn->phase = RX_FIXED;
    conn->have_bytes = 0;
}

/* ---- frames ------------------------------------------------------------------------------------------- */

/* A whole frame is there: hands its message on. */
static void dispatch(struct conn *conn)
{
    struct sr_link *link = conn->link;
    struct sr_frame frame = conn->frame;

    memset(&conn->frame, 0, sizeof conn->frame); /* the message moves */
    conn_forget_received(conn);
    if (frame.kind == SR_FRAME_SITE) {
        conn_got_site(conn, frame.site);
    } else if (frame.kind == SR_FRAME_PEER) {
        if (conn->state == CONN_UP) {
            link->callbacks.on_msg(link->arg, &frame.collection, frame.msg);
            return;
        }
        conn_end(conn, SR_E_PROTOCOL, SR_LINK_FAULTY, false, "a %s frame before the greeting was acknowledged",
                 sr_peer_msg_name(frame.msg->type));
        sr_peer_msg_free(frame.msg);
    }
}

/* Does the fixed header fit to where we are?  Invariant 1. */
static bool check_fixed(struct conn *conn)
{
    const struct sr_frame_fixed *fixed = &conn->fixed;
    bool greets = fixed->type == SR_SITE_HELLO || fixed->type == SR_SITE_HELLO_ACK || fixed->type == SR_SITE_REFUSED;
    uint16_t version = greets || conn->state < CONN_WAITING ? SR_WIRE_VERSION_HELLO : conn->peer.version;

    if (conn->state < CONN_WAITING &&
        (!greets || fixed->payload_bytes > 0 || fixed->header_bytes > CONN_HEADER_INLINE_BYTES)) {
        conn_end(conn, SR_E_PROTOCOL, SR_LINK_FAULTY, false,
                 "the first frame is not a greeting (type %u, %u + %u bytes)", fixed->type, fixed->header_bytes,
                 fixed->payload_bytes);
        return false;
    }
    if (fixed->version != version) {
        conn_end(conn, SR_E_VERSION, SR_LINK_FAULTY, false, "a frame of protocol version %u, expected %u",
                 fixed->version, version);
        return false;
    }
    return true;
}

static void got_fixed(struct conn *conn)
{
    char text[SR_FRAME_TEXT_BYTES];
    enum sr_error error = sr_frame_fixed_decode(conn->fixed_bytes, &conn->fixed, text);

    if (error != SR_OK) {
        conn_end(conn, error, SR_LINK_FAULTY, false, "%s", text);
        return;
    }
    if (!check_fixed(conn))
        return;
    if (conn->fixed.header_bytes > CONN_HEADER_INLINE_BYTES) {
        conn->header = malloc(conn->fixed.header_bytes);
        if (!conn->header) {
            conn->header = conn->header_inline;
            conn_end(conn, SR_E_NO_MEMORY, SR_LINK_FAULTY, false, "no memory for a frame's header");
            return;
        }
    }
    conn->phase = RX_HEADER;
    conn->have_bytes = 0;
}

static void got_header(struct conn *conn)
{
    const struct sr_budget *budget = conn->link->config.budget;
    char text[SR_FRAME_TEXT_BYTES];
    enum sr_error error = sr_frame_header_decode(&conn->fixed, conn->header, &conn->frame, text);

    if (error != SR_OK) {
        conn_end(conn, error, SR_LINK_FAULTY, false, "%s", text);
        return;
    }
    if (conn->fixed.payload_bytes == 0) {
        dispatch(conn);
        return;
    }
    if (budget && budget->limit_bytes && conn->fixed.payload_bytes > budget->limit_bytes) {
        conn_end(conn, SR_E_TOO_LARGE, SR_LINK_FAULTY, false,
                 "a payload of %u bytes is more than the whole buffer memory here (%zu)", conn->fixed.payload_bytes,
                 budget->limit_bytes);
        return;
    }
    conn->phase = RX_ALLOC;
    conn->have_bytes = 0;
}

static void got_payload(struct conn *conn)
{
    char text[SR_FRAME_TEXT_BYTES];
    enum sr_error error = sr_frame_payload_attach(&conn->fixed, &conn->frame, conn->payload, text);

    if (error != SR_OK)
        conn_end(conn, error, SR_LINK_FAULTY, false, "%s", text);
    else
        dispatch(conn);
}

static bool allocate_payload(struct conn *conn)
{
    conn->payload = sr_buf_alloc(conn->link->config.budget, conn->fixed.payload_bytes);
    if (conn->payload) {
        conn->phase = RX_PAYLOAD;
        return true;
    }
    if (!conn->budget_blocked) {
        conn->budget_blocked = true;
        conn->link->budget_waits++;
        conn_apply_pause(conn);
        link_budget_blocked(conn->link);
    }
    return false;
}

/* In insecure mode: the first bytes tell whether the other end tries TLS. */
static bool meets_tls(struct conn *conn)
{
    if (!conn->link->config.insecure || conn->state != CONN_HELLO || conn->have_bytes < 2 ||
        (conn->fixed_bytes[0] != 22 && conn->fixed_bytes[0] != 21) || conn->fixed_bytes[1] != 3)
        return false;
    conn_end(conn, SR_E_PROTOCOL, SR_LINK_FAULTY, false,
             "the other end speaks TLS, but this site is configured with insecure: true");
    return true;
}

/* Reads towards what the phase needs; true: it is complete. */
static bool fill(struct conn *conn, uint8_t *into, size_t want_bytes)
{
    ssize_t got;

    if (conn->have_bytes == want_bytes)
        return true;
    got = sr_stream_read(conn->stream, into + conn->have_bytes, want_bytes - conn->have_bytes);
    if (got > 0) {
        conn->have_bytes += (size_t)got;
        conn->last_rx_ms = uv_now(conn->link->loop);
        if (conn->phase == RX_FIXED && meets_tls(conn))
            return false;
        return conn->have_bytes == want_bytes;
    }
    if (got == SR_STREAM_EOF)
        conn_end(conn, SR_OK, SR_LINK_CLOSED_BY_PEER, false, "the other end closed the connection%s",
                 conn->state < CONN_WAITING ? " before it said who it is" : "");
    else if (got == SR_STREAM_BROKEN)
        conn_end(conn, SR_OK, SR_LINK_CLOSED_BY_PEER, false, "%s", sr_stream_error_text(conn->stream));
    return false;
}

/* One step of receiving; false: no more now. */
static bool pump_step(struct conn *conn)
{
    switch (conn->phase) {
    case RX_FIXED:
        if (!fill(conn, conn->fixed_bytes, sizeof conn->fixed_bytes))
            return false;
        got_fixed(conn);
        return true;
    case RX_HEADER:
        if (!fill(conn, conn->header, conn->fixed.header_bytes))
            return false;
        got_header(conn);
        return true;
    case RX_ALLOC:
        return allocate_payload(conn);
    case RX_PAYLOAD:
        if (!fill(conn, conn->payload->data, conn->fixed.payload_bytes))
            return false;
        got_payload(conn);
        return true;
    }
    SR_UNREACHABLE();
}

void conn_receive(struct conn *conn)
{
    /* Where it stops early the stream calls again. */
    for (int i = 0; i < PUMP_STEPS_MAX; i++)
        if (conn->state == CONN_DEAD || !conn_reads(conn) || !pump_step(conn))
            return;
}

void conn_retry_payload(struct conn *conn)
{
    if (conn->state == CONN_DEAD || !conn->budget_blocked || !allocate_payload(conn))
        return;
    conn->budget_blocked = false;
    conn_apply_pause(conn);
}
