/* nbd_internal.h - what the files of sr_nbd share.
 *
 *   listen.c        sockets that accept
 *   server.c        life, limits, timers, log
 *   conn.c          life of a connection, its bounds
 *   handshake.c     from the greeting to the transmission phase
 *   transmission.c  requests in
 *   reply.c         requests in flight, replies out
 *
 * Phases of a connection (only forwards, but for TLS back to OPTION):
 *
 *   FLAGS -> OPTION <-> OPTION_DATA / OPTION_SKIP      handshake list, deadline
 *              |   \-> TLS_ACK -> TLS -> OPTION
 *              v
 *          TRANSMISSION -> LEAVING                      LEAVING: nothing more is read; closes when the last
 *                                                       request is answered, or at a deadline
 *   any -> DEAD                                         closed; the memory goes when no call is inside it
 */
#ifndef SR_NBD_INTERNAL_H
#define SR_NBD_INTERNAL_H

#include <sys/queue.h>
#include <sys/types.h>

#include "codec/nbd_proto.h"
#include "link/stream.h"
#include "nbd/nbd.h"

#define CLOSE_FLUSH_MS 2000u /* for the last replies of a connection that is closed */
#define TICK_MS        100u
#define STALL_RETRY_MS 5u

enum phase {
    PHASE_FLAGS,
    PHASE_OPTION,
    PHASE_OPTION_DATA,
    PHASE_OPTION_SKIP,
    PHASE_TLS_ACK, /* the acknowledgement of STARTTLS is leaving */
    PHASE_TLS,
    PHASE_TRANSMISSION,
    PHASE_LEAVING,
    PHASE_DEAD
};

enum intake { /* of a connection in the transmission phase */
    INTAKE_HEADER,
    INTAKE_ADMIT,   /* header decoded; waits for room, memory or a slot */
    INTAKE_PAYLOAD, /* of an admitted write, into receiving->buf */
    INTAKE_DRAIN    /* payload of a refused write is skipped, then the error goes out */
};

/* A submitted request.  conn is NULL once its connection is gone. */
struct inflight {
    uint32_t index, generation; /* make the tag; the generation changes whenever the slot is freed */
    bool used;
    struct conn *conn;
    void *export;
    struct sr_nbd_request_header header;
    struct sr_buf *buf;
    LIST_ENTRY(inflight) of_conn;
    struct inflight *next_free;
};

struct conn {
    struct sr_nbd_server *server;
    struct sr_stream *stream; /* NULL when DEAD */
    enum phase phase;
    enum sr_nbd_tls tls_mode;
    unsigned entered; /* calls that are inside; freed when DEAD and 0 */
    uint64_t since_ms, deadline_ms;
    TAILQ_ENTRY(conn) link; /* all connections, oldest first */

    /* negotiated */
    struct sr_nbd_client_flags client;
    bool tls, structured;
    bool meta_base; /* base:allocation was selected ... */
    void *meta_export; /* ... for this export */
    struct sr_nbd_option option;
    uint32_t skip_bytes;
    void *export;
    struct sr_nbd_terms terms;

    /* intake.  in[have_from .. have): bytes read and not used yet */
    enum intake intake;
    struct sr_nbd_request_header request;
    enum sr_nbd_errno request_error;
    struct inflight *receiving; /* the write whose payload comes in; not submitted yet */
    uint32_t received_bytes;
    uint32_t drain_bytes;
    bool paused, stalled;
    TAILQ_ENTRY(conn) stall_link;
    bool retiring; /* reads what was sent already, then leaves */
    uint64_t moved_ms, moved_bytes; /* when and where its byte counters were last seen to move */

    /* in work and replies not sent */
    LIST_HEAD(, inflight) requests;
    uint32_t n_requests;
    size_t request_bytes; /* payload of them */
    uint64_t queued_total; /* bytes ever given to the stream in this phase */
    uint64_t *reply_ends;  /* ring of queued_total after each reply that may not have left; queue_depth + 1 */
    uint32_t replies_first, n_replies;

    size_t have_from, have;
    uint8_t in[SR_NBD_OPTION_MAX_BYTES];
};

struct listener {
    struct sr_nbd_server *server;
    int fd;
    uv_poll_t poll;
    enum sr_nbd_tls tls_mode;
    bool is_unix, paused;
    char *path; /* Unix: removed at the end if it is still ours */
    dev_t dev;
    ino_t ino;
    LIST_ENTRY(listener) link;
};

/* An export whose connections read what their clients had sent, and no more. */
struct retiring {
    LIST_ENTRY(retiring) link;
    void *export;
    uint64_t deadline_ms;
};

struct sr_nbd_server {
    uv_loop_t *loop;
    struct sr_nbd_config config;
    struct sr_nbd_callbacks callbacks;
    void *arg;
    SSL_CTX *tls;
    int spare_fd; /* given up for a moment when descriptors run out; -1: gone */
    uint64_t listen_again_ms;
    uv_timer_t tick;  /* deadlines; runs while there is a listener or a connection */
    uv_timer_t retry; /* runs while a connection waits for memory */
    LIST_HEAD(, listener) listeners;
    TAILQ_HEAD(conn_list, conn) conns;
    TAILQ_HEAD(stall_list, conn) stalled; /* first come, first served */

    LIST_HEAD(, retiring) retiring;

    struct inflight **table;
    uint32_t n_table;
    struct inflight *free_list;

    struct sr_nbd_stats stats;
    uint64_t log_window_ms;
    uint32_t log_lines;
    uint64_t log_skipped;

    bool closing;
    uint64_t close_deadline_ms;
    void (*closed)(void *closed_arg);
    void *closed_arg;
    unsigned open_handles;
};

/* ---- server.c ---- */
void nbd_server_log(struct sr_nbd_server *server, enum sr_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
uint64_t nbd_server_now(const struct sr_nbd_server *server);
void nbd_server_kick_stalled(struct sr_nbd_server *server); /* memory or a slot may be free */
void nbd_server_need_tick(struct sr_nbd_server *server);
void nbd_server_need_retry(struct sr_nbd_server *server);
void nbd_server_retry_now(struct sr_nbd_server *server);
void nbd_server_close_step(struct sr_nbd_server *server);
void nbd_server_release_handle(struct sr_nbd_server *server); /* a handle is closed */

/* ---- retire.c ---- */
void nbd_retire_turn(struct sr_nbd_server *server);   /* from the loop */
void nbd_retire_forget(struct sr_nbd_server *server); /* at the end */

/* ---- listen.c ---- */
void nbd_listener_close(struct listener *listener);
void nbd_listeners_resume(struct sr_nbd_server *server);
bool nbd_spare_open(struct sr_nbd_server *server);

/* ---- conn.c ---- */
/* Takes fd over in any case. */
void nbd_conn_new(struct sr_nbd_server *server, int fd, enum sr_nbd_tls tls_mode);
void nbd_conn_enter(struct conn *conn);
void nbd_conn_leave(struct conn *conn);
/* Close now; requests in flight go on without it.  The caller is inside (nbd_conn_enter) or forgets conn. */
void nbd_conn_abort(struct conn *conn);
/* Close, but let what is queued go out first. */
void nbd_conn_close_flushed(struct conn *conn);
/* The client has said goodbye: answer what is in flight, then close. */
void nbd_conn_finish(struct conn *conn);
void nbd_conn_finish_if_idle(struct conn *conn);
/* Is there room for one more request with so many bytes of payload? */
bool nbd_conn_has_room(struct conn *conn, size_t payload_bytes);
void nbd_conn_stall(struct conn *conn);
void nbd_conn_unstall(struct conn *conn);
bool nbd_conn_queue(struct conn *conn, const void *header, size_t bytes, struct sr_buf *payload,
                    size_t payload_bytes);
bool nbd_conn_alive(const struct conn *conn);
/* Up to max_bytes (> 0) bytes; 0: there are none now, or the connection was finished or closed. */
size_t nbd_conn_read(struct conn *conn, void *into, size_t max_bytes);
void nbd_conn_pause(struct conn *conn);
void nbd_conn_resume(struct conn *conn);

/* ---- handshake.c ---- */
void nbd_handshake_readable(struct conn *conn);
void nbd_handshake_drained(struct conn *conn);
void nbd_handshake_tls_ready(struct conn *conn);

/* ---- transmission.c ---- */
void nbd_transmission_start(struct conn *conn);
void nbd_transmission_readable(struct conn *conn);

/* ---- reply.c ---- */
/* NULL: the bound is reached. */
struct inflight *nbd_inflight_new(struct conn *conn, const struct sr_nbd_request_header *header, struct sr_buf *buf);
uint64_t nbd_inflight_tag(const struct inflight *inflight);
void nbd_inflight_free(struct sr_nbd_server *server, struct inflight *inflight); /* with its buffer reference */
void nbd_inflight_orphan(struct inflight *inflight); /* its connection is gone; it stays until it is completed */
void nbd_reply_plain(struct conn *conn, const struct sr_nbd_request_header *header, enum sr_nbd_errno error);
void nbd_reply_status(struct conn *conn, const struct sr_nbd_request_header *header);

#endif
