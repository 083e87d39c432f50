/* stream_tls.c - how the bytes of a stream get in and out of the kernel through OpenSSL.
 *
 *   queue --records of up to 16 KiB--> SSL_write --> sealed --one call for all of a turn--> socket
 *   socket --64 KiB at a time--> OpenSSL's buffer --> SSL_read --> stash (small reads) or the reader's memory
 *
 * OpenSSL talks to a BIO of our own: what it writes is collected in `sealed`, whose size is fixed, so that a turn
 * costs one call of the kernel and not one for each record.
 *
 * Invariants
 *  1. Records are made only while `sealed` holds less than SR_STREAM_SEALED_FULL, so SSL_write finds room.  What is
 *     left above that is for answers that OpenSSL owes while it reads (KeyUpdate): two ends that both wait for the
 *     other to read would otherwise wait for ever.
 *  2. Should SSL_write ask to be repeated nevertheless, the same bytes are offered again, and as many:
 *     committed_bytes of the queue's front do not change until that write has succeeded (urgent messages are put
 *     behind them).
 *  3. No call here calls the owner.
 *  4. OpenSSL's error queue is empty before each of its calls, so that no stream reads another's error.
 */
#include <errno.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/assert.h"
#include "link/stream_internal.h"

#define IOV_MAX_USED 64

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

/* ---- between OpenSSL and the socket --------------------------------------------------------------------- */

/* What is sealed goes to the kernel, as far as it takes it. */
static void send_sealed(struct sr_stream *stream)
{
    while (stream_sealed_bytes(stream) > 0) {
        ssize_t sent = send(stream->fd, stream->sealed + stream->sealed_start, stream_sealed_bytes(stream),
                            MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM)) {
            stream->write_blocked = true;
            return;
        }
        if (sent < 0) {
            stream_break(stream, SR_E_UNREACHABLE, "TLS write: %s", strerror(errno));
            return;
        }
        stream->sealed_start += (size_t)sent;
    }
    stream->sealed_start = stream->sealed_end = 0;
}

static int bio_write(BIO *bio, const char *from, int bytes)
{
    struct sr_stream *stream = BIO_get_data(bio);

    BIO_clear_retry_flags(bio);
    if (bytes <= 0)
        return 0;
    if (SR_STREAM_SEALED_BYTES - stream->sealed_end < (size_t)bytes) {
        memmove(stream->sealed, stream->sealed + stream->sealed_start, stream_sealed_bytes(stream));
        stream->sealed_end -= stream->sealed_start;
        stream->sealed_start = 0;
    }
    if (SR_STREAM_SEALED_BYTES - stream->sealed_end < (size_t)bytes) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(stream->sealed + stream->sealed_end, from, (size_t)bytes);
    stream->sealed_end += (size_t)bytes;
    return bytes;
}

static int bio_read(BIO *bio, char *into, int bytes)
{
    struct sr_stream *stream = BIO_get_data(bio);
    ssize_t got;

    BIO_clear_retry_flags(bio);
    if (bytes <= 0)
        return 0;
    if (stream->emptied) {
        BIO_set_retry_read(bio);
        return -1;
    }
    do
        got = recv(stream->fd, into, (size_t)bytes, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        BIO_set_retry_read(bio);
    stream->found_end = got == 0;
    stream->emptied = got > 0 && got < bytes;
    return (int)got;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    struct sr_stream *stream = BIO_get_data(bio);

    (void)number;
    (void)pointer;
    switch (command) {
    case BIO_CTRL_FLUSH: /* at the end of a turn, not of each record */
        return 1;
    case BIO_CTRL_EOF:
        return stream->found_end;
    default:
        return 0;
    }
}

static BIO_METHOD *bio_method;

static void make_bio_method(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "stream");
    if (bio_method)
        if (!BIO_meth_set_write(bio_method, bio_write) || !BIO_meth_set_read(bio_method, bio_read) ||
            !BIO_meth_set_ctrl(bio_method, bio_ctrl)) {
            BIO_meth_free(bio_method);
            bio_method = NULL;
        }
}

/* ---- beginning and end ---------------------------------------------------------------------------------- */

enum sr_error stream_tls_new(struct sr_stream *stream, SSL_CTX *context, enum sr_stream_side side)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *bio;

    pthread_once(&once, make_bio_method);
    ERR_clear_error();
    stream->sealed = malloc(SR_STREAM_SEALED_BYTES);
    stream->ssl = SSL_new(context);
    bio = bio_method ? BIO_new(bio_method) : NULL;
    if (!stream->sealed || !stream->ssl || !bio) {
        BIO_free(bio);
        stream_tls_free(stream);
        ERR_clear_error();
        return SR_E_NO_MEMORY;
    }
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    SSL_set_bio(stream->ssl, bio, bio);
    SSL_set_mode(stream->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_set_read_ahead(stream->ssl, 1);
    SSL_set_default_read_buffer_len(stream->ssl, SR_STREAM_AHEAD_BYTES);
    if (side == SR_STREAM_CLIENT)
        SSL_set_connect_state(stream->ssl);
    else
        SSL_set_accept_state(stream->ssl);
    return SR_OK;
}

void stream_tls_free(struct sr_stream *stream)
{
    SSL_free(stream->ssl);
    stream->ssl = NULL;
    free(stream->sealed);
    stream->sealed = NULL;
    stream->sealed_start = stream->sealed_end = 0;
}

void stream_tls_goodbye(struct sr_stream *stream)
{
    if (stream->mode != STREAM_TLS || stream->broken || stream->committed_bytes > 0)
        return;
    ERR_clear_error();
    SSL_shutdown(stream->ssl);
    ERR_clear_error();
    send_sealed(stream);
}

/* ---- the handshake -------------------------------------------------------------------------------------- */

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

bool stream_tls_handshake(struct sr_stream *stream)
{
    int result, error;

    if (!stream->tls_seen)
        check_speaks_tls(stream);
    if (stream->broken)
        return false;
    stream->write_blocked = false;
    ERR_clear_error();
    errno = 0;
    result = SSL_do_handshake(stream->ssl);
    error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(stream->ssl, result);
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        break_ssl(stream, "TLS handshake", error, errno);
    send_sealed(stream); /* of a handshake that failed, the alert */
    stream->handshake_wants_write = error == SSL_ERROR_WANT_WRITE || stream->write_blocked;
    return result == 1 && !stream->broken;
}

/* ---- reading ---------------------------------------------------------------------------------------------- */

static ssize_t read_failed(struct sr_stream *stream)
{
    int error = SSL_get_error(stream->ssl, 0);
    int errnum = errno;

    switch (error) {
    case SSL_ERROR_WANT_WRITE: /* more answers are owed than `sealed` can hold */
        stream->read_wants_write = true;
        return stream_found_nothing(stream);
    case SSL_ERROR_WANT_READ:
        return stream_found_nothing(stream);
    case SSL_ERROR_ZERO_RETURN:
        return stream_found_eof(stream);
    case SSL_ERROR_SSL:
        /* Many end without a close_notify.  Whoever reads has lengths of his own to see what was cut. */
        if (ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING) {
            ERR_clear_error();
            return stream_found_eof(stream);
        }
        break;
    default:
        break;
    }
    break_ssl(stream, "TLS read", error, errnum);
    send_sealed(stream); /* the alert */
    return stream_found_break(stream);
}

ssize_t stream_tls_read(struct sr_stream *stream, void *into, size_t bytes)
{
    bool ahead = bytes < sizeof stream->stash;
    size_t got = 0;

    ERR_clear_error();
    errno = 0;
    if (!SSL_read_ex(stream->ssl, ahead ? stream->stash : into, ahead ? sizeof stream->stash : bytes, &got))
        return read_failed(stream);
    stream->bytes_in += got;
    if (!ahead)
        return (ssize_t)got;
    stream->stash_start = 0;
    stream->stash_end = got;
    return stream_from_stash(stream, into, bytes);
}

/* ---- writing ---------------------------------------------------------------------------------------------- */

/* The front of the queue as one piece of at most want_bytes: where it lies if that is long enough, else copied
 * together, so that small messages share a record. */
static const uint8_t *gather(const struct sr_stream *stream, size_t want_bytes, uint8_t *scratch, size_t *bytes)
{
    struct iovec iov[IOV_MAX_USED];
    int n = stream_slices(stream, iov, IOV_MAX_USED, want_bytes);
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

/* One record more.  False: not now. */
static bool seal(struct sr_stream *stream, size_t *turn_bytes)
{
    uint8_t scratch[SR_STREAM_RECORD_BYTES];
    size_t bytes, sent = 0;
    const uint8_t *from =
        gather(stream, stream->committed_bytes ? stream->committed_bytes : sizeof scratch, scratch, &bytes);
    int error;

    SR_ASSERT(stream->committed_bytes == 0 || bytes == stream->committed_bytes);
    ERR_clear_error();
    errno = 0;
    if (SSL_write_ex(stream->ssl, from, bytes, &sent)) {
        stream->committed_bytes = 0;
        stream_consume(stream, sent);
        *turn_bytes += sent;
        return true;
    }
    error = SSL_get_error(stream->ssl, 0);
    stream->committed_bytes = bytes;
    if (error == SSL_ERROR_WANT_WRITE)
        stream->write_blocked = true;
    else if (error == SSL_ERROR_WANT_READ)
        stream->write_wants_read = true;
    else
        break_ssl(stream, "TLS write", error, errno);
    return false;
}

void stream_tls_flush(struct sr_stream *stream)
{
    size_t turn_bytes = 0;

    while (stream->head && turn_bytes < SR_STREAM_TURN_BYTES) {
        if (stream_sealed_bytes(stream) >= SR_STREAM_SEALED_FULL) {
            send_sealed(stream);
            if (stream->write_blocked || stream->broken)
                return;
        }
        if (!seal(stream, &turn_bytes))
            break;
    }
    if (!stream->broken)
        send_sealed(stream);
}
