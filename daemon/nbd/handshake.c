/* handshake.c - from the greeting to the transmission phase: option haggling and STARTTLS.
 *
 * Invariants
 *   1. No byte is read ahead: only what the present option needs.  So whatever a client pipelined behind
 *      STARTTLS is still unread when TLS begins, and the connection is refused.
 *   2. Nothing that was negotiated before TLS outlives it, but for the client flags, which are not sent again.
 *   3. The next option is not read before the replies to the last have left: a client cannot pile them up.
 *   4. An option that is refused leaves the stream in step, unless its data is longer than anybody's would be.
 *
 * Nothing here is durable.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "nbd/nbd_internal.h"

/* What people see of a name that a stranger sent. */
static const char *printable(const char *name, size_t name_bytes, char text[100])
{
    size_t at = 0;

    for (size_t i = 0; i < name_bytes && at + 5 < 96; i++) {
        uint8_t byte = (uint8_t)name[i];

        if (byte >= 0x20 && byte < 0x7f && byte != '\\')
            text[at++] = (char)byte;
        else
            at += (size_t)snprintf(text + at, 5, "\\x%02x", byte);
        if (at >= 80) {
            memcpy(text + at, "...", 3);
            at += 3;
            break;
        }
    }
    text[at] = '\0';
    return text;
}

static void fail(struct conn *conn, const char *why)
{
    conn->server->stats.handshake_failures++;
    nbd_server_log(conn->server, SR_LOG_INFO, "nbd: handshake refused: %s", why);
    nbd_conn_abort(conn);
}

/* ---- replies -------------------------------------------------------------------------------------------- */

static void send_bytes(struct conn *conn, const uint8_t *bytes, size_t n_bytes)
{
    if (nbd_conn_alive(conn) && !nbd_conn_queue(conn, bytes, n_bytes, NULL, 0))
        nbd_conn_abort(conn);
}

static void send_text(struct conn *conn, uint32_t reply, const char *text)
{
    uint8_t bytes[SR_NBD_OPTION_REPLY_MAX_BYTES];

    send_bytes(conn, bytes, sr_nbd_put_rep_text(bytes, conn->option.option, reply, text));
}

static void send_ack(struct conn *conn)
{
    send_text(conn, SR_NBD_REP_ACK, NULL);
}

static void send_data_error(struct conn *conn, enum sr_error error)
{
    if (error == SR_E_TOO_LARGE)
        send_text(conn, SR_NBD_REP_ERR_TOO_BIG, "a name may have 4096 bytes at most");
    else
        send_text(conn, SR_NBD_REP_ERR_INVALID, "the option's data is malformed");
}

/* ---- exports -------------------------------------------------------------------------------------------- */

/* The export of that name.  The empty name stands for the only export there is. */
static void *find_export(struct conn *conn, const char *name, size_t name_bytes, struct sr_nbd_export_info *info)
{
    const struct sr_nbd_callbacks *callbacks = &conn->server->callbacks;
    char only[SR_NBD_STRING_MAX_BYTES + 1];

    memset(info, 0, sizeof *info);
    if (name_bytes > 0)
        return callbacks->find(conn->server->arg, name, name_bytes, info);
    if (callbacks->list(conn->server->arg, 1, info) || !callbacks->list(conn->server->arg, 0, info))
        return NULL;
    name_bytes = strlen(info->name);
    if (name_bytes >= sizeof only)
        return NULL;
    memcpy(only, info->name, name_bytes);
    return callbacks->find(conn->server->arg, only, name_bytes, info);
}

/* An export that may be used now; else the option was answered, or there is nobody to answer. */
static void *choose_export(struct conn *conn, const char *name, size_t name_bytes, bool can_reply,
                           struct sr_nbd_export_info *info)
{
    void *export = find_export(conn, name, name_bytes, info);
    char text[100], line[200];

    if (export && info->available)
        return export;
    if (!can_reply) {
        fail(conn, export ? "the export is not available here" : "there is no such export");
    } else if (export) {
        send_text(conn, SR_NBD_REP_ERR_POLICY, info->refusal ? info->refusal : "the export is not available here");
    } else if (name_bytes == 0) {
        send_text(conn, SR_NBD_REP_ERR_UNKNOWN, "there is no default export: name one");
    } else {
        snprintf(line, sizeof line, "there is no export '%s'", printable(name, name_bytes, text));
        send_text(conn, SR_NBD_REP_ERR_UNKNOWN, line);
    }
    return NULL;
}

static struct sr_nbd_terms terms_of(const struct conn *conn, void *export, const struct sr_nbd_export_info *info)
{
    struct sr_nbd_terms terms = {
        .size_bytes = info->size_bytes,
        .read_only = info->read_only,
        .structured = conn->structured,
        .base_allocation = conn->meta_base && conn->meta_export == export,
        .fast_zero = info->fast_zero,
    };

    return terms;
}

static void begin_transmission(struct conn *conn, void *export, const struct sr_nbd_terms *terms)
{
    conn->export = export;
    conn->terms = *terms;
    nbd_transmission_start(conn);
}

/* ---- options -------------------------------------------------------------------------------------------- */

static void do_export_name(struct conn *conn)
{
    uint8_t bytes[SR_NBD_EXPORT_NAME_REPLY_BYTES];
    struct sr_nbd_export_info info;
    struct sr_nbd_terms terms;
    void *export;

    if (!sr_nbd_string_valid(conn->in, conn->option.length_bytes)) {
        fail(conn, "an export name that is not text");
        return;
    }
    export = choose_export(conn, (const char *)conn->in, conn->option.length_bytes, false, &info);
    if (!export)
        return;
    terms = terms_of(conn, export, &info);
    send_bytes(conn, bytes,
               sr_nbd_put_export_name_reply(bytes, terms.size_bytes, sr_nbd_transmission_flags(&terms, true),
                                            conn->client.no_zeroes));
    if (nbd_conn_alive(conn))
        begin_transmission(conn, export, &terms);
}

static void do_go(struct conn *conn)
{
    uint8_t bytes[SR_NBD_OPTION_REPLY_MAX_BYTES];
    uint32_t option = conn->option.option;
    struct sr_nbd_export_info info;
    struct sr_nbd_terms terms;
    struct sr_nbd_go go;
    enum sr_error error = sr_nbd_get_go(conn->in, conn->option.length_bytes, &go);
    void *export;

    if (error) {
        send_data_error(conn, error);
        return;
    }
    export = choose_export(conn, go.name, go.name_bytes, true, &info);
    if (!export)
        return;
    terms = terms_of(conn, export, &info);
    send_bytes(conn, bytes,
               sr_nbd_put_rep_info_export(bytes, option, terms.size_bytes, sr_nbd_transmission_flags(&terms, true)));
    if (go.wants_name)
        send_bytes(conn, bytes, sr_nbd_put_rep_info_text(bytes, option, SR_NBD_INFO_NAME, info.name));
    if (go.wants_description && info.description)
        send_bytes(conn, bytes, sr_nbd_put_rep_info_text(bytes, option, SR_NBD_INFO_DESCRIPTION, info.description));
    /* Told even if not asked for: the minimum is 1, so nobody who ignores it can go wrong. */
    send_bytes(conn, bytes, sr_nbd_put_rep_info_block_size(bytes, option));
    send_ack(conn);
    if (option == SR_NBD_OPT_GO && nbd_conn_alive(conn))
        begin_transmission(conn, export, &terms);
}

static void do_list(struct conn *conn)
{
    uint8_t bytes[SR_NBD_OPTION_REPLY_MAX_BYTES];
    struct sr_nbd_export_info info;

    if (conn->option.length_bytes != 0) {
        send_text(conn, SR_NBD_REP_ERR_INVALID, "this option has no data");
        return;
    }
    memset(&info, 0, sizeof info);
    for (uint32_t i = 0; nbd_conn_alive(conn) && conn->server->callbacks.list(conn->server->arg, i, &info); i++)
        send_bytes(conn, bytes, sr_nbd_put_rep_server(bytes, info.name));
    send_ack(conn);
}

static void do_structured_reply(struct conn *conn)
{
    if (conn->option.length_bytes != 0) {
        send_text(conn, SR_NBD_REP_ERR_INVALID, "this option has no data");
        return;
    }
    conn->structured = true;
    send_ack(conn);
}

static void do_meta_context(struct conn *conn)
{
    uint8_t bytes[SR_NBD_OPTION_REPLY_MAX_BYTES];
    bool list = conn->option.option == SR_NBD_OPT_LIST_META_CONTEXT;
    uint32_t id = list ? 0 : SR_NBD_META_BASE_ALLOCATION_ID;
    struct sr_nbd_export_info info;
    struct sr_nbd_meta meta;
    enum sr_error error;
    void *export;

    if (!list)
        conn->meta_base = false; /* a new choice replaces the old one, a failed one too */
    if (!conn->structured) {
        send_text(conn, SR_NBD_REP_ERR_INVALID, "structured replies must be negotiated first");
        return;
    }
    error = sr_nbd_get_meta(conn->in, conn->option.length_bytes, list, &meta);
    if (error) {
        send_data_error(conn, error);
        return;
    }
    export = choose_export(conn, meta.name, meta.name_bytes, true, &info);
    if (!export)
        return;
    if (meta.base_allocation)
        send_bytes(conn, bytes, sr_nbd_put_rep_meta_context(bytes, conn->option.option, id));
    if (!list) {
        conn->meta_base = meta.base_allocation;
        conn->meta_export = export;
    }
    send_ack(conn);
}

/* Has the client sent more than it may before it has our answer? */
static bool has_pipelined(const struct conn *conn)
{
    uint8_t byte;

    return recv(sr_stream_fd(conn->stream), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void do_starttls(struct conn *conn)
{
    if (conn->option.length_bytes != 0) {
        send_text(conn, SR_NBD_REP_ERR_INVALID, "this option has no data");
    } else if (conn->tls) {
        send_text(conn, SR_NBD_REP_ERR_INVALID, "TLS is on already");
    } else if (conn->tls_mode == SR_NBD_TLS_OFF) {
        send_text(conn, SR_NBD_REP_ERR_POLICY, "TLS is not used on this socket");
    } else if (!conn->server->tls) {
        send_text(conn, SR_NBD_REP_ERR_POLICY, "TLS is not set up here");
    } else if (has_pipelined(conn)) {
        fail(conn, "bytes in the clear behind STARTTLS");
    } else {
        send_ack(conn);
        if (nbd_conn_alive(conn))
            conn->phase = PHASE_TLS_ACK;
    }
}

static void do_option(struct conn *conn)
{
    uint32_t option = conn->option.option;

    if (option == SR_NBD_OPT_ABORT) {
        send_ack(conn);
        nbd_conn_close_flushed(conn);
        return;
    }
    if (option == SR_NBD_OPT_STARTTLS) {
        do_starttls(conn);
        return;
    }
    if (conn->tls_mode == SR_NBD_TLS_REQUIRED && !conn->tls) {
        if (option == SR_NBD_OPT_EXPORT_NAME)
            fail(conn, "no TLS where it is required");
        else
            send_text(conn, SR_NBD_REP_ERR_TLS_REQD, "TLS is required on this socket");
        return;
    }
    switch (option) {
    case SR_NBD_OPT_EXPORT_NAME:
        do_export_name(conn);
        break;
    case SR_NBD_OPT_LIST:
        do_list(conn);
        break;
    case SR_NBD_OPT_INFO:
    case SR_NBD_OPT_GO:
        do_go(conn);
        break;
    case SR_NBD_OPT_STRUCTURED_REPLY:
        do_structured_reply(conn);
        break;
    case SR_NBD_OPT_LIST_META_CONTEXT:
    case SR_NBD_OPT_SET_META_CONTEXT:
        do_meta_context(conn);
        break;
    default:
        send_text(conn, SR_NBD_REP_ERR_UNSUP, "this option is not known");
    }
}

/* ---- reading -------------------------------------------------------------------------------------------- */

/* True when `want` bytes are in conn->in; else the connection waits, or is closed. */
static bool fill(struct conn *conn, size_t want)
{
    while (conn->have < want) {
        size_t got = nbd_conn_read(conn, conn->in + conn->have, want - conn->have);

        if (got == 0)
            return false;
        conn->have += got;
    }
    return true;
}

static void next_phase(struct conn *conn, enum phase phase)
{
    conn->phase = phase;
    conn->have = 0;
}

/* The option is answered: wait until the answer has left (invariant 3). */
static void option_done(struct conn *conn)
{
    if (!nbd_conn_alive(conn) || conn->phase >= PHASE_TRANSMISSION)
        return;
    if (conn->phase != PHASE_TLS_ACK)
        next_phase(conn, PHASE_OPTION);
    if (sr_stream_queue_bytes(conn->stream) > 0)
        nbd_conn_pause(conn);
}

static void got_option(struct conn *conn)
{
    if (sr_nbd_get_option(conn->in, &conn->option)) {
        fail(conn, "not an NBD option");
        return;
    }
    if (!conn->client.fixed_newstyle && conn->option.option != SR_NBD_OPT_EXPORT_NAME) {
        fail(conn, "an option that needs fixed newstyle, which the client did not choose");
        return;
    }
    if (conn->option.length_bytes <= SR_NBD_OPTION_MAX_BYTES) {
        next_phase(conn, PHASE_OPTION_DATA);
        return;
    }
    if (conn->option.length_bytes <= SR_NBD_OPTION_SKIP_MAX_BYTES && conn->option.option != SR_NBD_OPT_EXPORT_NAME) {
        next_phase(conn, PHASE_OPTION_SKIP);
        conn->skip_bytes = conn->option.length_bytes;
        return;
    }
    conn->server->stats.handshake_failures++;
    nbd_server_log(conn->server, SR_LOG_INFO, "nbd: handshake refused: option %u with %u bytes of data",
                   conn->option.option, conn->option.length_bytes);
    if (conn->option.option != SR_NBD_OPT_EXPORT_NAME)
        send_text(conn, SR_NBD_REP_ERR_TOO_BIG, "the option's data is too long");
    nbd_conn_close_flushed(conn);
}

static void skip_data(struct conn *conn)
{
    while (conn->skip_bytes > 0) {
        size_t part = conn->skip_bytes < sizeof conn->in ? conn->skip_bytes : sizeof conn->in;
        size_t got = nbd_conn_read(conn, conn->in, part);

        if (got == 0)
            return;
        conn->skip_bytes -= (uint32_t)got;
    }
    send_text(conn, SR_NBD_REP_ERR_TOO_BIG, "the option's data is too long");
    option_done(conn);
}

/* One step; false: nothing more can be done now. */
static bool handshake_step(struct conn *conn)
{
    switch (conn->phase) {
    case PHASE_FLAGS:
        if (!fill(conn, SR_NBD_CLIENT_FLAGS_BYTES))
            return false;
        if (sr_nbd_get_client_flags(conn->in, &conn->client))
            fail(conn, "client flags that were never offered");
        else
            next_phase(conn, PHASE_OPTION);
        return true;
    case PHASE_OPTION:
        if (sr_stream_queue_bytes(conn->stream) > 0) {
            nbd_conn_pause(conn); /* drained resumes */
            return false;
        }
        if (!fill(conn, SR_NBD_OPTION_HEADER_BYTES))
            return false;
        got_option(conn);
        return true;
    case PHASE_OPTION_DATA:
        if (!fill(conn, conn->option.length_bytes))
            return false;
        do_option(conn);
        option_done(conn);
        return false;
    case PHASE_OPTION_SKIP:
        skip_data(conn);
        return false;
    default:
        return false;
    }
}

void nbd_handshake_readable(struct conn *conn)
{
    while (nbd_conn_alive(conn) && handshake_step(conn))
        ;
}

void nbd_handshake_drained(struct conn *conn)
{
    if (conn->phase != PHASE_TLS_ACK) {
        nbd_conn_resume(conn);
        return;
    }
    if (!conn->server->tls || sr_stream_start_tls(conn->stream, conn->server->tls, SR_STREAM_SERVER) != SR_OK) {
        fail(conn, "TLS could not be started");
        return;
    }
    conn->tls = true;
    conn->structured = false;
    conn->meta_base = false;
    conn->meta_export = NULL;
    next_phase(conn, PHASE_TLS);
}

void nbd_handshake_tls_ready(struct conn *conn)
{
    next_phase(conn, PHASE_OPTION);
    nbd_conn_resume(conn);
}
