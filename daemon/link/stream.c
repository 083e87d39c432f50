/* stream.c - the life of a stream: its handles on the loop, its queue, its end.
 *
 *     CONNECTING --> PLAIN --> HANDSHAKE --> TLS
 *
 * What is queued in a loop turn goes out from the idle handle, that is, once all callbacks of the turn have run.
 * The idle handle also asks the owner to read on where he stopped early; while it is active the loop does not
 * sleep, so nothing waits for an event that will not come.
 *
 * Invariants
 *  1. After each callback and call, stream_settle: poll watches exactly what can make progress, and the idle
 *     handle is active exactly if something can be done at once.
 *  2. The owner is called from on_poll and on_idle only, and not once `closed` is set.
 *  3. A failure is told once: by sr_stream_read or by on_error.
 *  4. The memory lives until the loop has closed all handles, so a callback may close the stream.
 *
 * Nothing here is durable: a crash loses bytes that nobody was promised.
 */
#include "link/stream_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"

#define LOW_BYTES_DEFAULT  (256u << 10)
#define HIGH_BYTES_DEFAULT (1u << 20)

static void on_poll(uv_poll_t *handle, int status, int events);
static void on_idle(uv_idle_t *handle);

/* ---- the loop ----------------------------------------------------------------------------------------- */

static bool transfers(const struct sr_stream *stream)
{
    return stream->mode == STREAM_PLAIN || stream->mode == STREAM_TLS;
}

/* May the owner be asked to read, without waiting for the kernel? */
static bool may_read(const struct sr_stream *stream)
{
    return !stream->closed && !stream->broken && transfers(stream) && !stream->paused && !stream->read_blocked;
}

static bool has_to_send(const struct sr_stream *stream)
{
    return stream->head || stream_sealed_bytes(stream) > 0;
}

static bool may_write(const struct sr_stream *stream)
{
    return !stream->broken && transfers(stream) && has_to_send(stream) && !stream->write_blocked &&
           !stream->write_wants_read;
}

static int wanted_events(const struct sr_stream *stream)
{
    int events = 0;

    if (stream->flushing && (stream->said_goodbye || stream->broken))
        return UV_READABLE;
    if (stream->broken)
        return 0;
    if (stream->mode == STREAM_CONNECTING)
        return UV_WRITABLE;
    if (stream->mode == STREAM_HANDSHAKE)
        return stream->handshake_wants_write ? UV_WRITABLE : UV_READABLE;
    if (!stream->paused && !stream->eof && !stream->closed)
        events |= UV_READABLE;
    if (stream->write_wants_read)
        events |= UV_READABLE;
    if (stream->write_blocked || stream->read_wants_write)
        events |= UV_WRITABLE;
    return events;
}

/* Invariant 1. */
static void stream_settle(struct sr_stream *stream)
{
    int events;

    if (stream->closed && !stream->flushing)
        return;
    events = wanted_events(stream);
    if (events != stream->polled) {
        stream->polled = events;
        if (events)
            uv_poll_start(&stream->poll, events, on_poll);
        else
            uv_poll_stop(&stream->poll);
    }
    if (may_read(stream) || may_write(stream) || (stream->error_due && !stream->closed) ||
        (stream->flushing && !has_to_send(stream) && !stream->said_goodbye && transfers(stream)))
        uv_idle_start(&stream->idle, on_idle);
    else
        uv_idle_stop(&stream->idle);
}

static void free_queue(struct sr_stream *stream)
{
    while (stream->head) {
        struct stream_message *message = stream->head;

        stream->head = message->next;
        sr_buf_unref(message->payload);
        free(message);
    }
    stream->tail = NULL;
    stream->queue_bytes = 0;
    stream->urgents = 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct sr_stream *stream = handle->data;

    if (--stream->open_handles == 0)
        free(stream);
}

/* Invariant 4: everything but the memory goes now. */
static void finish(struct sr_stream *stream)
{
    stream->closed = true;
    stream->flushing = false;
    free_queue(stream);
    uv_close((uv_handle_t *)&stream->poll, on_handle_closed);
    uv_close((uv_handle_t *)&stream->idle, on_handle_closed);
    uv_close((uv_handle_t *)&stream->timer, on_handle_closed);
    stream_tls_free(stream);
    close(stream->fd);
    stream->fd = -1;
}

/* ---- events ------------------------------------------------------------------------------------------- */

static void say_goodbye(struct sr_stream *stream)
{
    stream->said_goodbye = true;
    stream_tls_goodbye(stream);
    shutdown(stream->fd, SHUT_WR);
}

/* close_flushed: the owner is gone; what is queued goes out, then we wait for the other end to close. */
static void step_flushing(struct sr_stream *stream, bool readable)
{
    stream_flush(stream);
    if (!stream->said_goodbye && (!has_to_send(stream) || stream->broken))
        say_goodbye(stream);
    if (stream->said_goodbye && readable && !stream_swallow(stream)) {
        finish(stream);
        return;
    }
    stream_settle(stream);
}

static void check_drained(struct sr_stream *stream)
{
    if (stream->closed || stream->broken || !stream->was_high || stream->queue_bytes > stream->low_bytes)
        return;
    stream->was_high = false;
    if (stream->callbacks.on_drained)
        stream->callbacks.on_drained(stream->arg);
}

static void report_error(struct sr_stream *stream)
{
    if (stream->closed || !stream->error_due)
        return;
    stream->error_due = false;
    stream->callbacks.on_error(stream->arg, stream->error, stream->error_text);
}

static void become_ready(struct sr_stream *stream, enum stream_mode mode)
{
    stream->mode = mode;
    stream->read_blocked = false; /* bytes may have come along with the handshake */
    if (stream->callbacks.on_ready)
        stream->callbacks.on_ready(stream->arg);
}

static void step_connect(struct sr_stream *stream)
{
    int error = 0;
    socklen_t bytes = sizeof error;

    if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error == EINPROGRESS || error == EALREADY)
        return;
    if (error)
        stream_break(stream, SR_E_UNREACHABLE, "connect: %s", strerror(error));
    else
        become_ready(stream, STREAM_PLAIN);
}

static void step_transfer(struct sr_stream *stream, int events)
{
    if (events & UV_WRITABLE) {
        stream->write_blocked = false;
        if (stream->read_wants_write)
            stream->read_wants_write = stream->read_blocked = false;
    }
    if (events & UV_READABLE) {
        stream->write_wants_read = false;
        stream->emptied = false;
        stream->read_blocked = stream->eof;
    }
    stream_flush(stream);
    check_drained(stream);
    if (may_read(stream))
        stream->callbacks.on_readable(stream->arg);
}

/* libuv stopped watching because the socket has an error.  Whoever reads next learns which, behind the last bytes
 * that came (perhaps the other end's reasons); if nobody is going to read, ask the socket. */
static int poll_failed(struct sr_stream *stream)
{
    int error = 0;
    socklen_t bytes = sizeof error;

    stream->polled = 0;
    if (stream->flushing || !transfers(stream) || (!stream->paused && !stream->eof))
        return UV_READABLE | UV_WRITABLE;
    getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
    stream_break(stream, SR_E_UNREACHABLE, "%s", error ? strerror(error) : "the connection broke");
    return 0;
}

static bool step_handshake(struct sr_stream *stream)
{
    stream->emptied = false;
    return stream_tls_handshake(stream);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct sr_stream *stream = handle->data;

    if (status < 0)
        events = poll_failed(stream);
    if (stream->flushing) {
        if (events & UV_WRITABLE)
            stream->write_blocked = false;
        stream->write_wants_read = false;
        step_flushing(stream, true);
        return;
    }
    if (stream->broken)
        events = 0;
    else if (stream->mode == STREAM_CONNECTING)
        step_connect(stream);
    else if (stream->mode == STREAM_HANDSHAKE && step_handshake(stream))
        become_ready(stream, STREAM_TLS);
    else if (transfers(stream))
        step_transfer(stream, events);
    report_error(stream);
    stream_settle(stream);
}

static void on_idle(uv_idle_t *handle)
{
    struct sr_stream *stream = handle->data;

    if (stream->flushing) {
        step_flushing(stream, false);
        return;
    }
    if (transfers(stream))
        step_transfer(stream, 0);
    report_error(stream);
    stream_settle(stream);
}

static void on_close_deadline(uv_timer_t *handle)
{
    finish(handle->data);
}

/* ---- what the owner calls ----------------------------------------------------------------------------- */

struct sr_stream *sr_stream_new(uv_loop_t *loop, int fd, const struct sr_stream_callbacks *callbacks, void *arg)
{
    struct sr_stream *stream = malloc(sizeof *stream);
    int one = 1;

    if (!stream)
        return NULL;
    memset(stream, 0, offsetof(struct sr_stream, stash)); /* which costs memory only where it is used */
    if (uv_poll_init(loop, &stream->poll, fd) != 0) {
        free(stream);
        return NULL;
    }
    uv_idle_init(loop, &stream->idle);
    uv_timer_init(loop, &stream->timer);
    stream->poll.data = stream->idle.data = stream->timer.data = stream;
    stream->open_handles = 3;
    stream->fd = fd;
    stream->callbacks = *callbacks;
    stream->arg = arg;
    stream->mode = STREAM_PLAIN;
    stream->read_blocked = true;
    stream->low_bytes = LOW_BYTES_DEFAULT;
    stream->high_bytes = HIGH_BYTES_DEFAULT;
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* fails on a Unix socket, which needs none */
    stream_settle(stream);
    return stream;
}

void sr_stream_await_connect(struct sr_stream *stream)
{
    SR_ASSERT(stream->mode == STREAM_PLAIN && !stream->head && stream->bytes_in == 0);
    stream->mode = STREAM_CONNECTING;
    stream_settle(stream);
}

enum sr_error sr_stream_start_tls(struct sr_stream *stream, SSL_CTX *context, enum sr_stream_side side)
{
    enum sr_error error;

    SR_ASSERT(stream->mode == STREAM_PLAIN && stream->queue_bytes == 0);
    if (stream->stash_end > 0)
        return SR_E_PROTOCOL;
    error = stream_tls_new(stream, context, side);
    if (error != SR_OK)
        return error;
    stream->mode = STREAM_HANDSHAKE;
    stream->handshake_wants_write = side == SR_STREAM_CLIENT; /* the first event sends the ClientHello */
    stream->emptied = false;
    stream_settle(stream);
    return SR_OK;
}

void sr_stream_pause_reading(struct sr_stream *stream)
{
    stream->paused = true;
    stream_settle(stream);
}

void sr_stream_resume_reading(struct sr_stream *stream)
{
    if (!stream->paused)
        return;
    stream->paused = false;
    stream->emptied = false;
    stream->read_blocked = stream->eof;
    stream_settle(stream);
}

/* Behind whatever has begun or is committed to OpenSSL, and behind other urgent messages. */
static void insert_urgent(struct sr_stream *stream, struct stream_message *message)
{
    struct stream_message *before = NULL, *next = stream->head;
    size_t committed = stream->committed_bytes;

    while (next && (next->sent_bytes > 0 || committed > 0 || next->urgent)) {
        size_t left = stream_message_left(next);

        committed -= committed < left ? committed : left;
        before = next;
        next = next->next;
    }
    message->next = next;
    if (before)
        before->next = message;
    else
        stream->head = message;
    if (!next)
        stream->tail = message;
}

static struct stream_message *message_new(struct sr_stream *stream, const void *header, size_t bytes)
{
    struct stream_message *message;

    SR_ASSERT(!stream->closed);
    if (stream->broken || bytes > SIZE_MAX - sizeof *message)
        return NULL;
    message = malloc(sizeof *message + bytes);
    if (!message)
        return NULL;
    memset(message, 0, sizeof *message);
    message->header_bytes = bytes;
    if (bytes)
        memcpy(message->header, header, bytes);
    return message;
}

static void queued(struct sr_stream *stream, size_t bytes)
{
    stream->queue_bytes += bytes;
    if (stream->queue_bytes >= stream->high_bytes)
        stream->was_high = true;
    stream_settle(stream);
}

bool sr_stream_queue(struct sr_stream *stream, const void *header, size_t bytes, struct sr_buf *payload,
                     size_t payload_offset, size_t payload_bytes)
{
    struct stream_message *message;

    SR_ASSERT(!payload ||
              (payload_offset <= payload->capacity && payload_bytes <= payload->capacity - payload_offset));
    if (!payload)
        payload_bytes = 0;
    if (bytes + payload_bytes == 0)
        return !stream->broken;
    message = message_new(stream, header, bytes);
    if (!message)
        return false;
    if (payload_bytes) {
        message->payload = sr_buf_ref(payload);
        message->payload_offset = payload_offset;
        message->payload_bytes = payload_bytes;
    }
    if (stream->tail)
        stream->tail->next = message;
    else
        stream->head = message;
    stream->tail = message;
    queued(stream, bytes + payload_bytes);
    return true;
}

bool sr_stream_queue_urgent(struct sr_stream *stream, const void *header, size_t bytes)
{
    struct stream_message *message;

    SR_ASSERT(bytes > 0);
    message = message_new(stream, header, bytes);
    if (!message)
        return false;
    message->urgent = true;
    stream->urgents++;
    insert_urgent(stream, message);
    queued(stream, bytes);
    return true;
}

size_t sr_stream_queue_bytes(const struct sr_stream *stream)
{
    return stream->queue_bytes + stream_sealed_bytes(stream);
}

unsigned sr_stream_queue_urgents(const struct sr_stream *stream)
{
    return stream->urgents;
}

void sr_stream_set_water(struct sr_stream *stream, size_t low_bytes, size_t high_bytes)
{
    SR_ASSERT(low_bytes < high_bytes);
    stream->low_bytes = low_bytes;
    stream->high_bytes = high_bytes;
    if (stream->queue_bytes >= high_bytes)
        stream->was_high = true;
}

uint64_t sr_stream_bytes_in(const struct sr_stream *stream)
{
    return stream->bytes_in;
}

uint64_t sr_stream_bytes_out(const struct sr_stream *stream)
{
    return stream->bytes_out;
}

const char *sr_stream_error_text(const struct sr_stream *stream)
{
    return stream->error_text;
}

SSL *sr_stream_ssl(struct sr_stream *stream)
{
    return stream->ssl;
}

int sr_stream_fd(const struct sr_stream *stream)
{
    return stream->fd;
}

void sr_stream_close(struct sr_stream *stream)
{
    if (!stream)
        return;
    SR_ASSERT(!stream->closed);
    stream_tls_goodbye(stream);
    finish(stream);
}

void sr_stream_close_flushed(struct sr_stream *stream, unsigned deadline_ms)
{
    SR_ASSERT(!stream->closed);
    if (stream->mode == STREAM_CONNECTING || (stream->mode == STREAM_HANDSHAKE && !stream->broken)) {
        finish(stream); /* nobody there to say goodbye to */
        return;
    }
    stream->closed = true;
    stream->flushing = true;
    uv_timer_start(&stream->timer, on_close_deadline, deadline_ms, 0);
    step_flushing(stream, false);
}
