/* stream_io.c - how the bytes of a plain stream get in and out of the kernel, and the queue of what is to be sent.
 *
 * No call here calls the owner.
 */
#include "link/stream_internal.h"

#include <errno.h>
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

/* ---- reading ------------------------------------------------------------------------------------------ */

ssize_t stream_found_eof(struct sr_stream *stream)
{
    stream->eof = true;
    stream->read_blocked = true;
    return SR_STREAM_EOF;
}

ssize_t stream_found_nothing(struct sr_stream *stream)
{
    stream->read_blocked = true;
    return SR_STREAM_AGAIN;
}

ssize_t stream_found_break(struct sr_stream *stream)
{
    stream->error_due = false; /* the reader learns it here */
    return SR_STREAM_BROKEN;
}

ssize_t stream_from_stash(struct sr_stream *stream, void *into, size_t bytes)
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
        return stream_found_nothing(stream);
    if (got < 0) {
        break_errno(stream, "read", errno);
        return stream_found_break(stream);
    }
    if (got == 0)
        return stream_found_eof(stream);
    stream->emptied = (size_t)got < asked;
    stream->bytes_in += (uint64_t)got;
    if ((size_t)got <= bytes)
        return got;
    stream->stash_start = 0;
    stream->stash_end = (size_t)got - bytes;
    return (ssize_t)bytes;
}

ssize_t sr_stream_read(struct sr_stream *stream, void *into, size_t bytes)
{
    SR_ASSERT(bytes > 0 && !stream->closed);
    if (bytes > SSIZE_MAX / 2)
        bytes = SSIZE_MAX / 2;
    if (stream->stash_end > 0)
        return stream_from_stash(stream, into, bytes);
    if (stream->broken)
        return stream_found_break(stream);
    if (stream->eof)
        return SR_STREAM_EOF;
    if (stream->mode == STREAM_TLS)
        return stream_tls_read(stream, into, bytes);
    if (stream->mode != STREAM_PLAIN || stream->emptied)
        return stream_found_nothing(stream);
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

void stream_consume(struct sr_stream *stream, size_t bytes)
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

int stream_slices(const struct sr_stream *stream, struct iovec *iov, int max, size_t limit_bytes)
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

        message.msg_iovlen = (size_t)stream_slices(stream, iov, IOV_MAX_USED, SR_STREAM_TURN_BYTES);
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
        stream_consume(stream, (size_t)sent);
        turn_bytes += (size_t)sent;
    }
}

void stream_flush(struct sr_stream *stream)
{
    if (stream->broken || stream->write_blocked || stream->write_wants_read)
        return;
    if (stream->mode == STREAM_TLS)
        stream_tls_flush(stream);
    else if (stream->mode == STREAM_PLAIN)
        flush_plain(stream);
}
