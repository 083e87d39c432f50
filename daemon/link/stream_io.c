/* stream_io.c - how the bytes of a stream get in and out of the kernel, plain and through OpenSSL.
 *
 * Invariants
 *  1. After SSL_write asked to be repeated, the same bytes are offered again, and as many: committed_bytes of the
 *     queue's front do not change until that write has succeeded (urgent messages are put behind them).
 *  2. No call here calls the owner.
 *  3. OpenSSL's error queue is empty before each of its calls, so that no stream reads another's error.
 */
#include "link/stream_internal.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/assert.h"

#define IOV_MAX_USED 64

void stream_break(struct sr_stream *stream, enum sr_error error, const char *format, ...)
{
    va_list args;

    if (stream->broken)
        return;
    va_start(args, format);
    vsnprintf(stream->error_text, sizeof stream->error_text, format, args);
    va_end(args);
    stream->broken = true;
    stream->error_due = true;
    stream->error = error;
}

static void break_errno(struct sr_stream *stream, const char *what, int errnum)
{
    stream_break(stream, SR_E_UNREACHABLE, "%s: %s", what, strerror(errnum));
}

/* Why an OpenSSL call failed, in words that name the cause. */
static void break_ssl(struct sr_stream *stream, const char *what, int ssl_error, int errnum)
{
    unsigned long code = ERR_peek_last_error();
    int reason = ERR_GET_REASON(code);
    long verify = SSL_get_verify_result(stream->ssl);

    if (ssl_error == SSL_ERROR_SYSCALL || code == 0)
        stream_break(stream, SR_E_UNREACHABLE, "%s: %s", what,
                     errnum ? strerror(errnum) : "the other end closed the connection");
    else if (ERR_GET_LIB(code) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET)
        stream_break(stream, SR_E_PERMISSION, "%s: the other end refused us (TLS alert: %s)", what,
                     reason == SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED /* missing in OpenSSL 3.0's list */
                         ? "certificate required"
                         : SSL_alert_desc_string_long(reason - SSL_AD_REASON_OFFSET));
    else if (reason == SSL_R_CERTIFICATE_VERIFY_FAILED && verify != X509_V_OK)
        stream_break(stream, SR_E_PERMISSION, "%s: the other end's certificate was refused: %s", what,
                     X509_verify_cert_error_string(verify));
    else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        stream_break(stream, SR_E_PERMISSION, "%s: the other end sent no certificate", what);
    else if (reason == SSL_R_UNEXPECTED_EOF_WHILE_READING)
        stream_break(stream, SR_E_UNREACHABLE, "%s: the other end closed the connection", what);
    else
        stream_break(stream, SR_E_PROTOCOL, "%s: %s", what, ERR_reason_error_string(code));
    ERR_clear_error();
}

/* ---- reading ------------------------------------------------------------------------------------------ */

static ssize_t found_eof(struct sr_stream *stream)
{
    stream->eof = true;
    stream->read_blocked = true;
    return SR_STREAM_EOF;
}

static ssize_t found_nothing(struct sr_stream *stream)
{
    stream->read_blocked = true;
    return SR_STREAM_AGAIN;
}

static ssize_t found_break(struct sr_stream *stream)
{
    stream->error_due = false; /* the reader learns it here */
    return SR_STREAM_BROKEN;
}

static ssize_t from_stash(struct sr_stream *stream, void *into, size_t bytes)
{
    size_t have = stream->stash_end - stream->stash_start;
    size_t part = bytes < have ? bytes : have;

    memcpy(into, stream->stash + stream->stash_start, part);
    stream->stash_start += part;
    if (stream->stash_start == stream->stash_end)
        stream->stash_start = stream->stash_end = 0;
    return (ssize_t)part;
}

/* A small read takes along what lies behind it: a frame's header, its protobuf and a 4 KiB payload are then one
 * system call.  A large one goes straight to its place. */
static ssize_t read_plain(struct sr_stream *stream, void *into, size_t bytes)
{
    struct iovec iov[2] = {{into, bytes}, {stream->stash, sizeof stream->stash}};
    bool ahead = bytes < sizeof stream->stash;
    size_t asked = bytes + (ahead ? sizeof stream->stash : 0);
    ssize_t got;

    do
        got = readv(stream->fd, iov, ahead ? 2 : 1);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return found_nothing(stream);
    if (got < 0) {
        break_errno(stream, "read", errno);
        return found_break(stream);
    }
    if (got == 0)
        return found_eof(stream);
    stream->emptied = (size_t)got < asked;
    stream->bytes_in += (uint64_t)got;
    if ((size_t)got <= bytes)
        return got;
    stream->stash_start = 0;
    stream->stash_end = (size_t)got - bytes;
    return (ssize_t)bytes;
}

static ssize_t read_tls(struct sr_stream *stream, void *into, size_t bytes)
{
    size_t got = 0;
    int error;

    ERR_clear_error();
    errno = 0;
    if (SSL_read_ex(stream->ssl, into, bytes, &got)) {
        stream->bytes_in += got;
        return (ssize_t)got;
    }
    error = SSL_get_error(stream->ssl, 0);
    switch (error) {
    case SSL_ERROR_WANT_WRITE: /* answering a KeyUpdate */
        stream->read_wants_write = true;
        return found_nothing(stream);
    case SSL_ERROR_WANT_READ:
        return found_nothing(stream);
    case SSL_ERROR_ZERO_RETURN:
        return found_eof(stream);
    case SSL_ERROR_SSL:
        /* Many end without a close_notify.  Whoever reads has lengths of his own to see what was cut. */
        if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
            ERR_clear_error();
            return found_eof(stream);
        }
        break;
    default:
        break;
    }
    break_ssl(stream, "TLS read", error, errno);
    return found_break(stream);
}

ssize_t sr_stream_read(struct sr_stream *stream, void *into, size_t bytes)
{
    SR_ASSERT(bytes > 0 && !stream->closed);
    if (bytes > SSIZE_MAX / 2)
        bytes = SSIZE_MAX / 2;
    if (stream->stash_end > 0)
        return from_stash(stream, into, bytes);
    if (stream->broken)
        return found_break(stream);
    if (stream->eof)
        return SR_STREAM_EOF;
    if (stream->mode == STREAM_TLS)
        return read_tls(stream, into, bytes);
    if (stream->mode != STREAM_PLAIN || stream->emptied)
        return found_nothing(stream);
    return read_plain(stream, into, bytes);
}

bool stream_swallow(struct sr_stream *stream)
{
    for (int i = 0; i < 64; i++) {
        ssize_t got = recv(stream->fd, stream->stash, sizeof stream->stash, MSG_DONTWAIT);

        if (got == 0)
            return false;
        if (got < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    }
    return true;
}

/* ---- writing ------------------------------------------------------------------------------------------ */

static void message_free(struct sr_stream *stream, struct stream_message *message)
{
    if (message->urgent)
        stream->urgents--;
    sr_buf_unref(message->payload);
    free(message);
}

/* `bytes` more bytes of the queue's front are with the kernel. */
static void consume(struct sr_stream *stream, size_t bytes)
{
    stream->bytes_out += bytes;
    stream->queue_bytes -= bytes;
    while (bytes > 0) {
        struct stream_message *message = stream->head;
        size_t left = stream_message_left(message);

        if (bytes < left) {
            message->sent_bytes += bytes;
            return;
        }
        bytes -= left;
        stream->head = message->next;
        if (!stream->head)
            stream->tail = NULL;
        message_free(stream, message);
    }
}

/* The slices of the queue's front, at most max of them and about limit bytes. */
static int slices(const struct sr_stream *stream, struct iovec *iov, int max, size_t limit_bytes)
{
    size_t total = 0;
    int n = 0;

    for (struct stream_message *m = stream->head; m && n + 2 <= max && total < limit_bytes; m = m->next) {
        size_t sent = m->sent_bytes;

        if (sent < m->header_bytes) {
            iov[n++] = (struct iovec){m->header + sent, m->header_bytes - sent};
            total += m->header_bytes - sent;
            sent = m->header_bytes;
        }
        sent -= m->header_bytes;
        if (sent < m->payload_bytes) {
            iov[n++] = (struct iovec){m->payload->data + m->payload_offset + sent, m->payload_bytes - sent};
            total += m->payload_bytes - sent;
        }
    }
    return n;
}

static void flush_plain(struct sr_stream *stream)
{
    size_t turn_bytes = 0;

    while (stream->head && turn_bytes < SR_STREAM_TURN_BYTES) {
        struct iovec iov[IOV_MAX_USED];
        struct msghdr message = {.msg_iov = iov};
        ssize_t sent;

        message.msg_iovlen = (size_t)slices(stream, iov, IOV_MAX_USED, SR_STREAM_TURN_BYTES);
        sent = sendmsg(stream->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM)) {
            stream->write_blocked = true;
            return;
        }
        if (sent < 0) {
            break_errno(stream, "write", errno);
            return;
        }
        consume(stream, (size_t)sent);
        turn_bytes += (size_t)sent;
    }
}

/* The front of the queue as one piece of at most want_bytes: where it lies if that is long enough, else copied
 * together, so that small messages share a record. */
static const uint8_t *gather(const struct sr_stream *stream, size_t want_bytes, uint8_t *scratch, size_t *bytes)
{
    struct iovec iov[IOV_MAX_USED];
    int n = slices(stream, iov, IOV_MAX_USED, want_bytes);
    size_t have = 0;

    if (iov[0].iov_len >= want_bytes || n == 1) {
        *bytes = iov[0].iov_len < want_bytes ? iov[0].iov_len : want_bytes;
        return iov[0].iov_base;
    }
    for (int i = 0; i < n && have < want_bytes; i++) {
        size_t part = iov[i].iov_len < want_bytes - have ? iov[i].iov_len : want_bytes - have;

        memcpy(scratch + have, iov[i].iov_base, part);
        have += part;
    }
    *bytes = have;
    return scratch;
}

static void flush_tls(struct sr_stream *stream)
{
    uint8_t scratch[SR_STREAM_RECORD_BYTES];
    size_t turn_bytes = 0;

    while (stream->head && turn_bytes < SR_STREAM_TURN_BYTES) {
        size_t bytes, sent = 0;
        const uint8_t *from =
            gather(stream, stream->committed_bytes ? stream->committed_bytes : sizeof scratch, scratch, &bytes);
        int error;

        SR_ASSERT(stream->committed_bytes == 0 || bytes == stream->committed_bytes);
        ERR_clear_error();
        errno = 0;
        if (SSL_write_ex(stream->ssl, from, bytes, &sent)) {
            stream->committed_bytes = 0;
            consume(stream, sent);
            turn_bytes += sent;
            continue;
        }
        error = SSL_get_error(stream->ssl, 0);
        stream->committed_bytes = bytes;
        if (error == SSL_ERROR_WANT_WRITE) {
            stream->write_blocked = true;
        } else if (error == SSL_ERROR_WANT_READ) {
            stream->write_wants_read = true;
        } else {
            break_ssl(stream, "TLS write", error, errno);
        }
        return;
    }
}

void stream_flush(struct sr_stream *stream)
{
    if (stream->broken || stream->write_blocked || stream->write_wants_read)
        return;
    if (stream->mode == STREAM_TLS)
        flush_tls(stream);
    else if (stream->mode == STREAM_PLAIN)
        flush_plain(stream);
}

/* ---- the TLS handshake -------------------------------------------------------------------------------- */

/* OpenSSL would call it a wrong version number, and its peer would only see a reset: look at the first bytes
 * ourselves. */
static void check_speaks_tls(struct sr_stream *stream)
{
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, 70}; /* fatal: protocol version */
    uint8_t first[4];
    char seen[sizeof first + 1];
    ssize_t got = recv(stream->fd, first, sizeof first, MSG_PEEK | MSG_DONTWAIT);

    if (got <= 0)
        return;
    stream->tls_seen = true;
    if (first[0] == 22 || first[0] == 21) /* handshake or alert */
        return;
    for (ssize_t i = 0; i < got; i++)
        seen[i] = first[i] > ' ' && first[i] <= '~' ? (char)first[i] : '?';
    seen[got] = '\0';
    (void)!send(stream->fd, alert, sizeof alert, MSG_NOSIGNAL | MSG_DONTWAIT); /* which tells the other end */
    stream_break(stream, SR_E_PROTOCOL, "TLS is required here, but the other end speaks without it (it sent \"%s\")",
                 seen);
}

bool stream_handshake(struct sr_stream *stream)
{
    int result, error;

    if (!stream->tls_seen)
        check_speaks_tls(stream);
    if (stream->broken)
        return false;
    ERR_clear_error();
    errno = 0;
    result = SSL_do_handshake(stream->ssl);
    if (result == 1)
        return true;
    error = SSL_get_error(stream->ssl, result);
    stream->handshake_wants_write = error == SSL_ERROR_WANT_WRITE;
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        break_ssl(stream, "TLS handshake", error, errno);
    return false;
}
