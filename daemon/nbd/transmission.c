/* transmission.c - requests in: bytes from the socket become requests to the backend.
 *
 *   HEADER -> ADMIT -> PAYLOAD -> (submit) -> HEADER
 *      |        `-> (submit, or answered here) -> HEADER
 *      `-> DRAIN -> (error reply) -> HEADER
 *
 * A header is read together with whatever came behind it into a small buffer: a short write then takes one system
 * call instead of two, for a copy of some kilobytes.  The rest of a long payload is read straight into the buffer
 * that goes to disk and peer.
 *
 * Invariants
 *   1. After an error the next byte that is taken for a header is the one behind the refused request's payload.
 *   2. A request is decoded only when there is room for its reply, and admitted only with its memory and its slot in
 *      hand: from there on nothing but its backend can delay it.
 *   3. Who waits for memory waits in line; a small request does not overtake a large one of another connection.
 *   4. One call takes at most TURN_REQUESTS requests or about TURN_BYTES bytes, then the others have their turn.
 *
 * Nothing here is durable: a write that was received and not answered may or may not have happened, as with any disk.
 */
#include <string.h>

#include "base/assert.h"
#include "nbd/nbd_internal.h"

#define TURN_REQUESTS 64u
#define TURN_BYTES    (1u << 20)
#define READ_BYTES    (256u << 10)

void nbd_transmission_start(struct conn *conn)
{
    struct sr_nbd_server *server = conn->server;

    SR_ASSERT(conn->phase < PHASE_TRANSMISSION);
    /* What is still queued of the handshake counts as sent before anything else. */
    conn->queued_total = sr_stream_queue_bytes(conn->stream);
    conn->phase = PHASE_TRANSMISSION;
    conn->intake = INTAKE_HEADER;
    conn->have_from = conn->have = 0;
    server->stats.handshaking--;
    nbd_conn_resume(conn);
}

static size_t staged(const struct conn *conn)
{
    return conn->have - conn->have_from;
}

/* Takes up to max_bytes of what was read ahead. */
static size_t take_staged(struct conn *conn, uint8_t *into, size_t max_bytes)
{
    size_t part = staged(conn) < max_bytes ? staged(conn) : max_bytes;

    if (into && part > 0)
        memcpy(into, conn->in + conn->have_from, part);
    conn->have_from += part;
    if (conn->have_from == conn->have)
        conn->have_from = conn->have = 0;
    return part;
}

/* ---- admitted requests ---------------------------------------------------------------------------------- */

static void submit(struct conn *conn, struct inflight *inflight)
{
    static const enum sr_host_op ops[] = {
        [SR_NBD_CMD_READ] = SR_HOST_READ, [SR_NBD_CMD_WRITE] = SR_HOST_WRITE,
        [SR_NBD_CMD_FLUSH] = SR_HOST_FLUSH, [SR_NBD_CMD_TRIM] = SR_HOST_TRIM,
        [SR_NBD_CMD_WRITE_ZEROES] = SR_HOST_ZERO,
    };
    const struct sr_nbd_request_header *header = &inflight->header;
    struct sr_nbd_server *server = conn->server;
    struct sr_nbd_request request = {
        .tag = nbd_inflight_tag(inflight),
        .op = ops[header->command],
        .fua = header->flags & SR_NBD_CMD_FLAG_FUA,
        .no_hole = header->flags & SR_NBD_CMD_FLAG_NO_HOLE,
        .offset_bytes = header->offset_bytes,
        .length_bytes = header->length_bytes,
        .buf = inflight->buf,
    };

    conn->receiving = NULL;
    conn->intake = INTAKE_HEADER;
    if (header->command == SR_NBD_CMD_READ)
        server->stats.read_bytes += header->length_bytes;
    else if (header->command == SR_NBD_CMD_WRITE)
        server->stats.written_bytes += header->length_bytes;
    server->callbacks.submit(server->arg, conn->export, &request); /* may complete it: inflight is gone then */
}

/* The request gets this error once its payload, if any, has gone by. */
static void refuse(struct conn *conn, enum sr_nbd_errno error)
{
    uint32_t payload_bytes = sr_nbd_request_payload_bytes(&conn->request);

    if (payload_bytes > SR_NBD_DRAIN_MAX_BYTES) {
        nbd_server_log(conn->server, SR_LOG_WARNING, "nbd: a client sent a write of %u bytes: disconnected",
                       payload_bytes);
        nbd_conn_abort(conn);
        return;
    }
    conn->request_error = error;
    conn->drain_bytes = payload_bytes;
    conn->intake = INTAKE_DRAIN;
}

/* Those that need no backend. */
static bool answer_here(struct conn *conn)
{
    switch (conn->request.command) {
    case SR_NBD_CMD_CACHE:
        nbd_reply_plain(conn, &conn->request, SR_NBD_OK);
        break;
    case SR_NBD_CMD_BLOCK_STATUS:
        nbd_reply_status(conn, &conn->request);
        break;
    case SR_NBD_CMD_FLUSH:
        if (!conn->terms.read_only)
            return false;
        nbd_reply_plain(conn, &conn->request, SR_NBD_OK);
        break;
    default:
        return false;
    }
    conn->intake = INTAKE_HEADER;
    return true;
}

/* ---- steps: each returns false if nothing more can be done now ------------------------------------------ */

static bool admit(struct conn *conn)
{
    const struct sr_nbd_request_header *header = &conn->request;
    struct sr_nbd_server *server = conn->server;
    const struct sr_budget *budget = server->config.budget;
    bool moves_data = header->command == SR_NBD_CMD_READ || header->command == SR_NBD_CMD_WRITE;
    size_t bytes = moves_data ? header->length_bytes : 0;
    size_t charged_bytes = (bytes + SR_BUF_ALIGN - 1) / SR_BUF_ALIGN * SR_BUF_ALIGN;
    struct inflight *inflight;
    struct sr_buf *buf = NULL;

    if (answer_here(conn))
        return nbd_conn_alive(conn);
    if (budget && budget->limit_bytes && charged_bytes > budget->limit_bytes) {
        refuse(conn, SR_NBD_ENOMEM); /* it would wait for ever */
        return nbd_conn_alive(conn);
    }
    if (!nbd_conn_has_room(conn, bytes)) {
        nbd_conn_pause(conn);
        if (conn->stalled) { /* the line is for those that wait for memory alone */
            nbd_conn_unstall(conn);
            nbd_server_kick_stalled(server);
        }
        return false;
    }
    if (!TAILQ_EMPTY(&server->stalled) && TAILQ_FIRST(&server->stalled) != conn) {
        nbd_conn_stall(conn);
        return false;
    }
    if (bytes > 0)
        buf = sr_buf_alloc(server->config.budget, bytes);
    inflight = bytes > 0 && !buf ? NULL : nbd_inflight_new(conn, header, buf);
    if (!inflight) {
        sr_buf_unref(buf);
        nbd_conn_stall(conn);
        return false;
    }
    if (conn->stalled) {
        nbd_conn_unstall(conn);
        nbd_server_kick_stalled(server);
    }
    if (header->command == SR_NBD_CMD_WRITE) {
        conn->receiving = inflight;
        conn->received_bytes = 0;
        conn->intake = INTAKE_PAYLOAD;
    } else {
        submit(conn, inflight);
    }
    return true;
}

static bool take_header(struct conn *conn)
{
    if (!nbd_conn_has_room(conn, 0)) {
        nbd_conn_pause(conn);
        return false;
    }
    if (staged(conn) < SR_NBD_REQUEST_BYTES) {
        size_t left = staged(conn), got;

        memmove(conn->in, conn->in + conn->have_from, left);
        conn->have_from = 0;
        conn->have = left;
        got = nbd_conn_read(conn, conn->in + left, sizeof conn->in - left);
        conn->have += got;
        if (got == 0 || staged(conn) < SR_NBD_REQUEST_BYTES)
            return got > 0;
    }
    if (sr_nbd_get_request(conn->in + conn->have_from, &conn->request)) {
        nbd_server_log(conn->server, SR_LOG_WARNING, "nbd: a client sent something that is no request: disconnected");
        nbd_conn_abort(conn);
        return false;
    }
    take_staged(conn, NULL, SR_NBD_REQUEST_BYTES);
    if (conn->request.command == SR_NBD_CMD_DISC) {
        nbd_conn_finish(conn);
        return false;
    }
    conn->server->stats.requests++;
    conn->request_error = sr_nbd_check_request(&conn->request, &conn->terms);
    if (conn->request_error)
        refuse(conn, conn->request_error);
    else
        conn->intake = INTAKE_ADMIT;
    return nbd_conn_alive(conn);
}

static bool take_payload(struct conn *conn, size_t *moved)
{
    struct sr_buf *buf = conn->receiving->buf;
    uint32_t total = conn->request.length_bytes;
    size_t left = total - conn->received_bytes, got;

    got = take_staged(conn, buf->data + conn->received_bytes, left);
    if (got == 0) {
        got = nbd_conn_read(conn, buf->data + conn->received_bytes, left < READ_BYTES ? left : READ_BYTES);
        if (got == 0)
            return false;
    }
    *moved += got;
    conn->received_bytes += (uint32_t)got;
    if (conn->received_bytes == total)
        submit(conn, conn->receiving);
    return true;
}

static bool drain(struct conn *conn, size_t *moved)
{
    size_t got;

    if (conn->drain_bytes > 0) {
        got = take_staged(conn, NULL, conn->drain_bytes);
        if (got == 0) /* nothing is staged, so the whole of `in` is free */
            got = nbd_conn_read(conn, conn->in,
                                conn->drain_bytes < sizeof conn->in ? conn->drain_bytes : sizeof conn->in);
        if (got == 0)
            return false;
        *moved += got;
        conn->drain_bytes -= (uint32_t)got;
    }
    if (conn->drain_bytes == 0) {
        nbd_reply_plain(conn, &conn->request, conn->request_error);
        conn->intake = INTAKE_HEADER;
    }
    return true;
}

void nbd_transmission_readable(struct conn *conn)
{
    unsigned n_requests = 0;
    size_t moved = 0;
    bool more = true;

    while (more && conn->phase == PHASE_TRANSMISSION && n_requests < TURN_REQUESTS && moved < TURN_BYTES) {
        switch (conn->intake) {
        case INTAKE_HEADER:
            n_requests++;
            more = take_header(conn);
            break;
        case INTAKE_ADMIT:
            more = admit(conn);
            break;
        case INTAKE_PAYLOAD:
            more = take_payload(conn, &moved);
            break;
        case INTAKE_DRAIN:
            more = drain(conn, &moved);
            break;
        }
    }
}
