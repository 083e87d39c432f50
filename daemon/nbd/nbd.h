/* nbd.h - the host front end: an NBD server whose exports live behind callbacks.
 *
 * The server owns sockets, negotiation, framing, bounds and fairness.  It knows nothing about replication:
 * the owner finds exports, carries requests out and answers each with sr_nbd_complete.
 *
 * What a host may rely on
 *   1. Every request is answered exactly once, or its connection is closed.
 *   2. An error answers its own request and leaves the stream in step.
 *   3. A request that was submitted is carried out whatever becomes of its connection.
 *   4. At a bound (depth, bytes, memory, replies not read) the server stops reading; it never drops and never
 *      grows.
 *
 * Everything on the loop thread.  No callback is made from inside a call of the owner, but for `log` and those of
 * sr_nbd_server_close.
 */
#ifndef SR_NBD_NBD_H
#define SR_NBD_NBD_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/error.h"
#include "core/core.h" /* enum sr_host_op, enum sr_log_level */

struct sr_nbd_server;

/* Zero means the default. */
struct sr_nbd_config {
    uint32_t handshake_timeout_ms; /* from accept to the transmission phase, TLS included; 10000 */
    uint32_t max_connections;      /* 256.  At the cap the oldest handshake that is over evict_after_ms old goes */
    uint32_t evict_after_ms;       /* 1000 */
    uint32_t queue_depth;          /* requests of a connection whose replies have not left; 128 */
    size_t queue_bytes;            /* payload of a connection, in work and in replies not sent; 64 MiB */
    uint32_t max_requests;         /* unanswered requests of all connections; 8192 */
    uint32_t linger_ms;            /* how long a client that has left is waited for; 30000 */
    uint32_t hold_timeout_ms;      /* while others wait for memory, a connection that holds some and does not
                                    * move its bytes for so long is closed; 10000 */
    struct sr_budget *budget;      /* of all payload; shared, not owned; NULL: no limit */
};

/* What a connection learns about an export.  Strings belong to the owner and need only live until the next call. */
struct sr_nbd_export_info {
    const char *name;
    const char *description; /* may be NULL */
    uint64_t size_bytes;
    bool read_only;
    bool fast_zero;      /* zeroes are written by punching holes, faster than data */
    bool available;      /* false: `refusal` is sent with a policy error */
    const char *refusal; /* "volume X is active at site B: connect there" */
};

/* A checked request: within the export, not empty but for FLUSH, data at most SR_IO_MAX_BYTES. */
struct sr_nbd_request {
    uint64_t tag;
    enum sr_host_op op;
    bool fua;     /* durable before it is answered; may come with any op */
    bool no_hole; /* ZERO: must not free space */
    uint64_t offset_bytes, length_bytes;
    struct sr_buf *buf; /* READ: to be filled; WRITE: the data; else NULL.  Lent until sr_nbd_complete; who needs
                         * it longer (or after sr_nbd_drop_export) takes a reference of its own */
};

struct sr_nbd_callbacks {
    /* The export of that name, or NULL.  name is valid UTF-8 without NUL, not terminated, never empty. */
    void *(*find)(void *arg, const char *name, size_t name_bytes, struct sr_nbd_export_info *info);
    /* The export number index, counting from 0; false: there are no more. */
    bool (*list)(void *arg, uint32_t index, struct sr_nbd_export_info *info);
    /* Start the request; answer it with sr_nbd_complete, now or later. */
    void (*submit)(void *arg, void *export, const struct sr_nbd_request *request);
    /* How far from offset_bytes on the export is of one kind: 1 .. limit_bytes, and whether it is a hole that reads
     * as zeroes.  0: cannot be told now (counts as data).  May be NULL: everything is data. */
    uint64_t (*extent)(void *arg, void *export, uint64_t offset_bytes, uint64_t limit_bytes, bool *hole);
    /* See sr_nbd_retire_export.  May be NULL if that is not used. */
    void (*retired)(void *arg, void *export);
    /* One line, already limited in rate.  May be NULL. */
    void (*log)(void *arg, enum sr_log_level level, const char *text);
};

struct sr_nbd_stats {
    uint32_t connections;   /* now, of these */
    uint32_t handshaking;   /*   not yet in the transmission phase */
    uint32_t stalled;       /*   waiting for memory */
    uint32_t requests_open; /* submitted and not answered, those of dead connections included */
    uint64_t accepted, refused_cap, refused_fds, evicted, handshake_timeouts, handshake_failures;
    uint64_t requests, request_errors, late_completions;
    uint64_t read_bytes, written_bytes;
    uint64_t log_suppressed;
};

/* NULL without memory or descriptors.  config and callbacks are copied. */
struct sr_nbd_server *sr_nbd_server_new(uv_loop_t *loop, const struct sr_nbd_config *config,
                                        const struct sr_nbd_callbacks *callbacks, void *arg);

/* The context for connections that start TLS from now on (those that have keep theirs); referenced.  NULL: STARTTLS
 * is refused, and listeners that require it let nobody in. */
void sr_nbd_server_set_tls(struct sr_nbd_server *server, SSL_CTX *context);

enum sr_nbd_tls { SR_NBD_TLS_OFF, SR_NBD_TLS_OPTIONAL, SR_NBD_TLS_REQUIRED };

/* Listen on every address that host (NULL: all) resolves to.  port 0: one is chosen; *bound_port (may be NULL) tells.
 * Blocks for the name service: give addresses.  On failure `why` (size why_bytes) says it for people. */
enum sr_error sr_nbd_listen_tcp(struct sr_nbd_server *server, const char *host, uint16_t port, enum sr_nbd_tls tls,
                                uint16_t *bound_port, char *why, size_t why_bytes);

/* Listen on a Unix socket, mode 0660.  A socket that nobody listens on is replaced; SR_E_BUSY if somebody does,
 * SR_E_EXISTS if something else has that name. */
enum sr_error sr_nbd_listen_unix(struct sr_nbd_server *server, const char *path, enum sr_nbd_tls tls, char *why,
                                 size_t why_bytes);

/* Answer a request.  An unknown, late or repeated tag is counted and ignored.  SR_E_SHUTDOWN: its connection is
 * closed without an answer (replies already given still go out).  Allowed from inside submit. */
void sr_nbd_complete(struct sr_nbd_server *server, uint64_t tag, enum sr_error error);

/* Close all connections of the export; replies already given still go out.  Its open requests are abandoned: their
 * buffers are released and completions for them ignored.  No callback names the export again unless find
 * gives it out again. */
void sr_nbd_drop_export(struct sr_nbd_server *server, void *export);

/* The export's connections read what their clients have sent by now, submit it, and read no more; each closes when all
 * of it was answered.  callbacks->retired is called when the reading has ended, a quarter of a second later at the latest. */
void sr_nbd_retire_export(struct sr_nbd_server *server, void *export);

/* server NULL (it was closed): none. */
uint32_t sr_nbd_export_connections(const struct sr_nbd_server *server, const void *export);

/* Memory of the shared budget was freed elsewhere: connections that wait for it try again.  Optional: they also
 * try every few milliseconds. */
void sr_nbd_memory_freed(struct sr_nbd_server *server);

void sr_nbd_server_stats(const struct sr_nbd_server *server, struct sr_nbd_stats *stats);

/* Stop listening, let submitted requests be answered for at most deadline_ms, close every connection, free the server
 * and call closed(closed_arg) from the loop: sr_nbd_complete must not be called after that. */
void sr_nbd_server_close(struct sr_nbd_server *server, uint32_t deadline_ms, void (*closed)(void *closed_arg),
                         void *closed_arg);

#endif
