/* reply.c - requests in flight and the replies to them.
 *
 * A tag is (generation, index) of a slot in the server's table.  The generation changes when the slot is freed, so a
 * late or repeated completion finds nothing: it can never answer another request.
 *
 * Invariants
 *   1. A slot in use is on the list of its connection, or orphaned (conn NULL) until it is completed or its export
 *      is dropped.
 *   2. A reply is queued whole, header and payload together; the payload is the buffer that the backend filled.
 *
 * Nothing here is durable: a reply that a crash swallows leaves the client with a broken connection, as any disk
 * that vanishes does.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/zero.h"
#include "nbd/nbd_internal.h"

#define STATUS_EXTENTS_MAX 256u

/* ---- slots ---------------------------------------------------------------------------------------------- */

static struct inflight *slot_take(struct sr_nbd_server *server)
{
    struct inflight *slot = server->free_list;

    if (slot) {
        server->free_list = slot->next_free;
        return slot;
    }
    if (server->n_table >= server->config.max_requests)
        return NULL;
    slot = calloc(1, sizeof *slot);
    if (!slot)
        return NULL;
    slot->index = server->n_table;
    slot->generation = 1;
    server->table[server->n_table++] = slot;
    return slot;
}

static size_t payload_of(const struct inflight *inflight)
{
    return inflight->buf ? inflight->header.length_bytes : 0;
}

struct inflight *nbd_inflight_new(struct conn *conn, const struct sr_nbd_request_header *header, struct sr_buf *buf)
{
    struct inflight *inflight = slot_take(conn->server);

    if (!inflight)
        return NULL;
    inflight->used = true;
    inflight->conn = conn;
    inflight->export = conn->export;
    inflight->header = *header;
    inflight->buf = buf;
    LIST_INSERT_HEAD(&conn->requests, inflight, of_conn);
    conn->n_requests++;
    conn->request_bytes += payload_of(inflight);
    conn->server->stats.requests_open++;
    return inflight;
}

uint64_t nbd_inflight_tag(const struct inflight *inflight)
{
    return (uint64_t)inflight->generation << 32 | inflight->index;
}

void nbd_inflight_orphan(struct inflight *inflight)
{
    struct conn *conn = inflight->conn;

    SR_ASSERT(inflight->used && conn && conn->n_requests > 0 && conn->request_bytes >= payload_of(inflight));
    LIST_REMOVE(inflight, of_conn);
    conn->n_requests--;
    conn->request_bytes -= payload_of(inflight);
    inflight->conn = NULL;
}

void nbd_inflight_free(struct sr_nbd_server *server, struct inflight *inflight)
{
    if (inflight->conn)
        nbd_inflight_orphan(inflight);
    sr_buf_unref(inflight->buf);
    inflight->buf = NULL;
    inflight->export = NULL;
    inflight->used = false;
    inflight->generation++;
    if (inflight->generation == 0)
        inflight->generation = 1;
    inflight->next_free = server->free_list;
    server->free_list = inflight;
    SR_ASSERT(server->stats.requests_open > 0);
    server->stats.requests_open--;
}

static struct inflight *find_inflight(const struct sr_nbd_server *server, uint64_t tag)
{
    uint32_t index = (uint32_t)tag;
    struct inflight *inflight;

    if (index >= server->n_table)
        return NULL;
    inflight = server->table[index];
    return inflight->used && nbd_inflight_tag(inflight) == tag ? inflight : NULL;
}

/* ---- replies -------------------------------------------------------------------------------------------- */

static void send_reply(struct conn *conn, const uint8_t *bytes, size_t n_bytes, struct sr_buf *payload,
                       size_t payload_bytes)
{
    if (nbd_conn_alive(conn) && !nbd_conn_queue(conn, bytes, n_bytes, payload, payload_bytes))
        nbd_conn_abort(conn);
}

static const char *error_text(enum sr_nbd_errno error)
{
    switch (error) {
    case SR_NBD_EPERM:
        return "the export is read-only";
    case SR_NBD_ENOMEM:
        return "no memory for this request";
    case SR_NBD_EINVAL:
        return "invalid request";
    case SR_NBD_ENOSPC:
        return "no space left, or beyond the end";
    case SR_NBD_EOVERFLOW:
        return "the request is too long";
    case SR_NBD_ENOTSUP:
        return "not supported, or not fast";
    case SR_NBD_ESHUTDOWN:
        return "the server is shutting down";
    default:
        return "input/output error";
    }
}

/* A reply without content. */
void nbd_reply_plain(struct conn *conn, const struct sr_nbd_request_header *header, enum sr_nbd_errno error)
{
    uint8_t bytes[SR_NBD_ERROR_CHUNK_BYTES + 64];
    size_t text_bytes;

    if (error != SR_NBD_OK)
        conn->server->stats.request_errors++;
    if (error != SR_NBD_OK && conn->terms.structured) {
        text_bytes = strlen(error_text(error));
        SR_ASSERT(text_bytes <= 64);
        sr_nbd_put_error_chunk(bytes, header->cookie, error, (uint16_t)text_bytes);
        memcpy(bytes + SR_NBD_ERROR_CHUNK_BYTES, error_text(error), text_bytes);
        send_reply(conn, bytes, SR_NBD_ERROR_CHUNK_BYTES + text_bytes, NULL, 0);
        return;
    }
    sr_nbd_put_simple_reply(bytes, error, header->cookie);
    send_reply(conn, bytes, SR_NBD_SIMPLE_REPLY_BYTES, NULL, 0);
}

static void reply_data(struct conn *conn, const struct sr_nbd_request_header *header, struct sr_buf *buf)
{
    uint8_t bytes[SR_NBD_HOLE_CHUNK_BYTES];
    uint32_t length = header->length_bytes;

    if (!conn->terms.structured) {
        sr_nbd_put_simple_reply(bytes, SR_NBD_OK, header->cookie);
        send_reply(conn, bytes, SR_NBD_SIMPLE_REPLY_BYTES, buf, length);
    } else if (!(header->flags & SR_NBD_CMD_FLAG_DF) && sr_is_zero(buf->data, length)) {
        /* Looking stops at the first byte of data, and zeroes are cheaper to look at than to send. */
        sr_nbd_put_hole_chunk(bytes, header->cookie, true, header->offset_bytes, length);
        send_reply(conn, bytes, SR_NBD_HOLE_CHUNK_BYTES, NULL, 0);
    } else {
        sr_nbd_put_data_chunk(bytes, header->cookie, true, header->offset_bytes, length);
        send_reply(conn, bytes, SR_NBD_DATA_CHUNK_BYTES, buf, length);
    }
}

/* The extents from the header's offset on; neighbours of one kind are joined.  At least one. */
static uint32_t collect_extents(struct conn *conn, const struct sr_nbd_request_header *header, uint8_t *out,
                                uint32_t max_extents)
{
    uint64_t at = header->offset_bytes, end = at + header->length_bytes, start = at, step;
    const struct sr_nbd_server *server = conn->server;
    uint64_t (*extent)(void *, void *, uint64_t, uint64_t, bool *) = server->callbacks.extent;
    bool hole = false, kind = false;
    uint32_t n = 0;

    for (unsigned looks = 0; at < end && looks < 4 * STATUS_EXTENTS_MAX; looks++) {
        step = extent ? extent(server->arg, conn->export, at, end - at, &hole) : 0;
        if (step == 0) {
            step = end - at;
            hole = false;
        }
        SR_ASSERT(step <= end - at);
        if (at > start && hole != kind) {
            sr_nbd_put_status_extent(out + n++ * SR_NBD_STATUS_EXTENT_BYTES, (uint32_t)(at - start), kind);
            start = at;
            if (n == max_extents)
                return n;
        }
        kind = hole;
        at += step;
    }
    sr_nbd_put_status_extent(out + n++ * SR_NBD_STATUS_EXTENT_BYTES, (uint32_t)(at - start), kind);
    return n;
}

void nbd_reply_status(struct conn *conn, const struct sr_nbd_request_header *header)
{
    uint8_t bytes[SR_NBD_STATUS_CHUNK_BYTES + STATUS_EXTENTS_MAX * SR_NBD_STATUS_EXTENT_BYTES];
    bool one = header->flags & SR_NBD_CMD_FLAG_REQ_ONE;
    uint32_t n = collect_extents(conn, header, bytes + SR_NBD_STATUS_CHUNK_BYTES, one ? 1 : STATUS_EXTENTS_MAX);

    sr_nbd_put_status_chunk(bytes, header->cookie, n);
    send_reply(conn, bytes, SR_NBD_STATUS_CHUNK_BYTES + n * SR_NBD_STATUS_EXTENT_BYTES, NULL, 0);
}

void sr_nbd_complete(struct sr_nbd_server *server, uint64_t tag, enum sr_error error)
{
    struct inflight *inflight = find_inflight(server, tag);
    struct sr_nbd_request_header header;
    struct sr_buf *buf;
    struct conn *conn;

    if (!inflight) {
        server->stats.late_completions++;
        return;
    }
    conn = inflight->conn;
    header = inflight->header;
    buf = sr_buf_ref(inflight->buf); /* the slot goes first: the reply must find room */
    nbd_inflight_free(server, inflight);
    if (conn) {
        nbd_conn_enter(conn);
        if (error == SR_E_SHUTDOWN)
            nbd_conn_close_flushed(conn);
        else if (error == SR_OK && header.command == SR_NBD_CMD_READ)
            reply_data(conn, &header, buf);
        else
            nbd_reply_plain(conn, &header, sr_nbd_errno_from(error));
        if (!conn->stalled)
            nbd_conn_resume(conn);
        nbd_conn_finish_if_idle(conn);
        nbd_conn_leave(conn);
    }
    sr_buf_unref(buf);
    nbd_server_kick_stalled(server);
}
