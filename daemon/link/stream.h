/* stream.h - a non-blocking byte stream over a socket, plain or TLS, on a libuv loop.
 *
 * The peer link and the NBD front end both sit on it.  A stream may start plain and turn to TLS later
 * (STARTTLS).  What OpenSSL has made and the kernel has not taken lies in memory of a fixed size.
 *
 * Reading is pulled: on_readable says that a read may succeed, and is called again until a read has answered
 * SR_STREAM_AGAIN or reading was paused - so bytes that wait inside OpenSSL are never forgotten, and a reader may
 * stop early to let others run.  Writing is queued: messages of one loop turn go out together when the turn ends.
 *
 * All functions on the loop thread.  Callbacks come from the loop, never from inside a call of the owner, and never
 * after sr_stream_close.  Closing from inside a callback is fine.
 */
#ifndef SR_LINK_STREAM_H
#define SR_LINK_STREAM_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/error.h"

struct sr_stream;

enum sr_stream_side { SR_STREAM_CLIENT, SR_STREAM_SERVER };

struct sr_stream_callbacks {
    /* A read may succeed.  Not called while reading is paused or a connect or TLS handshake is under way. */
    void (*on_readable)(void *arg);
    /* The write queue was at or above the high-water mark and is now at or below the low one.  May be NULL. */
    void (*on_drained)(void *arg);
    /* sr_stream_await_connect or sr_stream_start_tls succeeded.  May be NULL if neither is used. */
    void (*on_ready)(void *arg);
    /* The stream broke while nobody read: on a write, in the connect or in the handshake.  Once.  The owner closes
     * it.  A failure found by sr_stream_read is returned there and not repeated here. */
    void (*on_error)(void *arg, enum sr_error error, const char *text);
};

/* Takes over fd, a connected or connecting socket, on success: it becomes non-blocking, close-on-exec and (TCP)
 * NODELAY. On failure (NULL: no memory, or the loop refused the descriptor) fd still belongs to the caller. Reading
 * is on. callbacks is copied. */
struct sr_stream *sr_stream_new(uv_loop_t *loop, int fd, const struct sr_stream_callbacks *callbacks, void *arg);

/* connect() answered EINPROGRESS: on_ready follows when it has succeeded, else on_error. */
void sr_stream_await_connect(struct sr_stream *stream);

/* From here on the stream is TLS; on_ready follows when the handshake is done (and certificates passed the context's
 * checks), else on_error.  The write queue must have been flushed (sr_stream_queue_bytes 0).  Refused with
 * SR_E_PROTOCOL if bytes that came in the clear are still unread: whatever was pipelined behind STARTTLS must not
 * survive it. context is referenced. */
enum sr_error sr_stream_start_tls(struct sr_stream *stream, SSL_CTX *context, enum sr_stream_side side);

#define SR_STREAM_AGAIN  0    /* nothing there now: on_readable will follow */
#define SR_STREAM_EOF    (-1) /* the other end finished in an orderly way */
#define SR_STREAM_BROKEN (-2) /* see sr_stream_error_text; nothing more will come */

/* Up to `bytes` (> 0) bytes; their number, or one of the three above. */
ssize_t sr_stream_read(struct sr_stream *stream, void *into, size_t bytes);

/* Backpressure: no on_readable while paused.  Resuming asks again even if no new bytes arrive. */
void sr_stream_pause_reading(struct sr_stream *stream);
void sr_stream_resume_reading(struct sr_stream *stream);

/* One message to send: `bytes` bytes of header, copied (may be 0), then payload_bytes bytes of payload from
 * payload_offset (payload may be NULL; the stream takes its own reference and drops it when they are sent or the
 * stream closes; nobody may change the bytes meanwhile).  False without memory, or if the stream is broken (on_error
 * has been or will be called, or a read said so): nothing was queued.
 * The queue itself has no limit: the owner looks at sr_stream_queue_bytes and stops reading. */
bool sr_stream_queue(struct sr_stream *stream, const void *header, size_t bytes, struct sr_buf *payload,
                     size_t payload_offset, size_t payload_bytes);

/* The same, but sent as soon as the message that is now under way is finished, before all others.  Meant for
 * heartbeats. */
bool sr_stream_queue_urgent(struct sr_stream *stream, const void *header, size_t bytes);

size_t sr_stream_queue_bytes(const struct sr_stream *stream);     /* accepted and not yet given to the kernel */
unsigned sr_stream_queue_urgents(const struct sr_stream *stream); /* urgent messages among them */

/* Marks for on_drained; the default is low 256 KiB, high 1 MiB.  low < high. */
void sr_stream_set_water(struct sr_stream *stream, size_t low_bytes, size_t high_bytes);

uint64_t sr_stream_bytes_in(const struct sr_stream *stream); /* payload of the stream, without TLS overhead */
uint64_t sr_stream_bytes_out(const struct sr_stream *stream);

/* Why it broke; "" while it has not.  Valid until the stream is closed. */
const char *sr_stream_error_text(const struct sr_stream *stream);

SSL *sr_stream_ssl(struct sr_stream *stream); /* NULL while plain */
int sr_stream_fd(const struct sr_stream *stream);

/* Closes at once; what is queued is dropped.  The memory goes when the loop has closed its handles.  NULL is fine. */
void sr_stream_close(struct sr_stream *stream);

/* Sends what is queued, says goodbye, swallows what still comes (so that no reset destroys the last message on its
 * way), and closes: when the other end has closed, or after deadline_ms.  No callback comes any more; the owner
 * forgets the stream. */
void sr_stream_close_flushed(struct sr_stream *stream, unsigned deadline_ms);

#endif
