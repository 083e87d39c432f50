/* stream_internal.h - the insides of a stream, shared by stream.c (life, loop, queue), stream_io.c
 * (bytes, plain) and stream_tls.c (bytes through OpenSSL). */
#ifndef SR_LINK_STREAM_INTERNAL_H
#define SR_LINK_STREAM_INTERNAL_H

#include <sys/uio.h>

#include "link/stream.h"

#define SR_STREAM_STASH_BYTES  32768        /* read ahead behind a small read */
#define SR_STREAM_RECORD_BYTES 16384        /* the largest TLS record */
#define SR_STREAM_AHEAD_BYTES  (64u << 10)  /* of TLS ciphertext: several records in one call of the kernel */
#define SR_STREAM_SEALED_FULL  (128u << 10) /* of ciphertext that waits for the kernel: no more is made */
#define SR_STREAM_SEALED_BYTES (SR_STREAM_SEALED_FULL + 20480) /* one record more, and answers owed while reading */
#define SR_STREAM_TURN_BYTES   (4u << 20)                      /* sent by one stream before others have their turn */
#define SR_STREAM_TEXT_BYTES   256

enum stream_mode {
    STREAM_CONNECTING, /* connect() under way */
    STREAM_PLAIN,
    STREAM_HANDSHAKE, /* of TLS */
    STREAM_TLS
};

/* One queued message: header bytes owned, payload referenced. */
struct stream_message {
    struct stream_message *next;
    struct sr_buf *payload;
    size_t payload_offset, payload_bytes;
    size_t header_bytes;
    size_t sent_bytes; /* of header and payload together */
    bool urgent;
    uint8_t header[];
};

struct sr_stream {
    uv_poll_t poll;
    uv_idle_t idle;   /* runs when something is left to do without waiting: see stream_settle */
    uv_timer_t timer; /* deadline of close_flushed */
    unsigned open_handles;
    int fd;
    struct sr_stream_callbacks callbacks;
    void *arg;

    enum stream_mode mode;
    SSL *ssl;
    bool closed;   /* by its owner: no callback any more */
    bool flushing; /* close_flushed: closed, but the queue still goes out */
    bool said_goodbye;

    /* reading */
    bool paused;
    bool read_blocked; /* the last read answered AGAIN */
    bool eof;
    bool emptied;   /* the last read took all there was: do not ask the kernel again before poll says so */
    bool found_end; /* TLS: the kernel said end of file */
    bool read_wants_write;
    size_t stash_start, stash_end;
    uint64_t bytes_in;

    /* writing */
    struct stream_message *head, *tail;
    size_t queue_bytes;
    unsigned urgents;
    size_t low_bytes, high_bytes;
    bool was_high;
    bool write_blocked;
    bool write_wants_read;
    size_t committed_bytes; /* TLS: the write that OpenSSL wants repeated began with so many bytes of the queue */
    uint8_t *sealed;        /* TLS: what OpenSSL has made and the kernel has not taken; SR_STREAM_SEALED_BYTES */
    size_t sealed_start, sealed_end;
    uint64_t bytes_out;

    bool handshake_wants_write;
    bool tls_seen;
    int polled; /* what uv_poll watches now */

    bool broken;
    bool error_due; /* broken, and the owner does not know yet */
    enum sr_error error;
    char error_text[SR_STREAM_TEXT_BYTES];
    uint8_t stash[SR_STREAM_STASH_BYTES];
};

/* stream_io.c: each may break the stream (stream->broken), none calls the owner. */
void stream_flush(struct sr_stream *stream);
void stream_break(struct sr_stream *stream, enum sr_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Swallows and forgets what comes in; false: the other end has closed. */
bool stream_swallow(struct sr_stream *stream);

/* stream_tls.c: the same. */
enum sr_error stream_tls_new(struct sr_stream *stream, SSL_CTX *context, enum sr_stream_side side);
void stream_tls_free(struct sr_stream *stream);
/* True: done. */
bool stream_tls_handshake(struct sr_stream *stream);
ssize_t stream_tls_read(struct sr_stream *stream, void *into, size_t bytes);
void stream_tls_flush(struct sr_stream *stream);
/* Says that nothing will follow, if the kernel takes it now. */
void stream_tls_goodbye(struct sr_stream *stream);

/* stream_io.c, for stream_tls.c: the slices of the queue's front, at most max of them and about limit bytes. */
int stream_slices(const struct sr_stream *stream, struct iovec *iov, int max, size_t limit_bytes);
/* `bytes` more bytes of the queue's front are on their way. */
void stream_consume(struct sr_stream *stream, size_t bytes);
ssize_t stream_found_eof(struct sr_stream *stream);
ssize_t stream_found_nothing(struct sr_stream *stream);
ssize_t stream_found_break(struct sr_stream *stream);
ssize_t stream_from_stash(struct sr_stream *stream, void *into, size_t bytes);

static inline size_t stream_sealed_bytes(const struct sr_stream *stream)
{
    return stream->sealed_end - stream->sealed_start;
}

static inline size_t stream_message_left(const struct stream_message *message)
{
    return message->header_bytes + message->payload_bytes - message->sent_bytes;
}

#endif
