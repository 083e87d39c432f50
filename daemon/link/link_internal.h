/* link_internal.h - the insides of the peer link: link.c (the owner's side, which connection counts), conn.c (one
 * connection: greeting, heartbeat), receive.c (its frames), dial.c (sockets: listening, accepting, dialling). */
#ifndef SR_LINK_LINK_INTERNAL_H
#define SR_LINK_LINK_INTERNAL_H

#include <sys/socket.h>

#include "link/link.h"
#include "link/stream.h"

#define CONN_HEADER_INLINE_BYTES 4096 /* a header up to this, and any before the greeting */
#define CONN_GOODBYE_MS          1000
#define LINK_BUDGET_RETRY_MS     10
#define LINK_ACCEPT_BATCH        16
#define LINK_ACCEPT_GRACE_MS     1000 /* an unauthenticated connection that old may be given up for a new one */
#define LINK_ADDRESSES_MAX       8

enum conn_state {
    CONN_CONNECTING, /* dialled, TCP not there yet */
    CONN_TLS,        /* TLS handshake */
    CONN_HELLO,      /* my HELLO is sent, the peer's has not come */
    CONN_WAITING,    /* authenticated; my acknowledgement or the peer's is missing */
    CONN_UP,
    CONN_DEAD /* closed; only its memory waits for the loop */
};

enum rx_phase { RX_FIXED, RX_HEADER, RX_ALLOC, RX_PAYLOAD };

struct conn {
    struct conn *next;
    struct sr_link *link;
    struct sr_stream *stream; /* NULL when DEAD */
    uv_timer_t timer;         /* deadline of the greeting, then the heartbeat */
    enum conn_state state;
    bool dialled;
    bool ack_sent, ack_received;
    uint64_t number; /* mine: raised with each connection of this boot */
    uint64_t created_ms;
    char address[64];
    struct sr_link_peer peer;

    /* heartbeat */
    uint64_t last_rx_ms, next_ping_ms;
    bool suspect;
    uint64_t rtt_us;

    /* receiving */
    enum rx_phase phase;
    size_t have_bytes;
    bool budget_blocked;
    struct sr_frame_fixed fixed;
    struct sr_frame frame;
    struct sr_buf *payload;
    uint8_t *header; /* header_inline, or malloc'd */
    uint8_t fixed_bytes[SR_FRAME_FIXED_BYTES];
    uint8_t header_inline[CONN_HEADER_INLINE_BYTES];
};

struct listener {
    struct sr_link *link;
    uv_poll_t poll;
    int fd;
    bool open;
    uint16_t port;
};

/* A reason that repeats is logged once, and with its count when another comes. */
struct reason {
    char text[SR_LINK_TEXT_BYTES];
    uint64_t repeats;
    uint64_t last_ms;
    uint64_t tokens; /* lines that may be written now */
};

struct sr_link {
    uv_loop_t *loop;
    struct sr_link_config config; /* its strings are copies */
    struct sr_link_callbacks callbacks;
    void *arg;
    char *peer_host;
    uint16_t peer_port;

    unsigned handles; /* of the loop, and a name resolution under way */
    bool started, closed;
    void (*closed_cb)(void *arg);
    void *closed_arg;

    uv_idle_t idle; /* on_down */
    uv_timer_t dial_timer;
    uv_timer_t budget_timer;
    uv_timer_t accept_timer;
    uv_getaddrinfo_t resolve;
    bool resolving;

    size_t n_listeners;
    struct listener listeners[SR_LINK_LISTEN_MAX];
    int spare_fd, reserve_fd;

    struct conn *conns;
    struct conn *current;     /* UP */
    struct conn *waiting;     /* WAITING */
    struct conn *dialling;    /* dialled and not authenticated yet */
    unsigned unauthenticated; /* accepted and not authenticated yet */
    uint64_t next_number;

    struct sr_uuid peer; /* known or learned */
    bool paused;
    bool down_due;  /* on_down is to be called */
    bool undrained; /* on_down was or is to be called and sr_link_drained has not been */
    enum sr_link_cause down_cause;
    char down_text[SR_LINK_TEXT_BYTES];

    unsigned failures; /* in a row, for the back-off */
    uint64_t up_since_ms;
    struct sockaddr_storage addresses[LINK_ADDRESSES_MAX];
    unsigned n_addresses, next_address;

    struct reason dial_reason, accept_reason;
    enum sr_link_state last_state;
    uint64_t since_wall_ms;
    uint64_t bytes_in, bytes_out; /* of connections that ended */
    uint64_t connects, refused, budget_waits;
    char last_error[SR_LINK_TEXT_BYTES];
    struct sr_link_peer last_peer;
    int64_t peer_expires_s;
};

/* ---- link.c ---- */
void link_log(struct sr_link *link, enum sr_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* One line for a reason that repeats; of strangers, who can think of many, a few lines a second at most. */
void link_report(struct sr_link *link, struct reason *reason, bool strangers, const char *text);
/* A connection said a valid HELLO: does it stay?  False: it was ended. */
bool link_authenticated(struct sr_link *link, struct conn *conn);
void link_up(struct sr_link *link, struct conn *conn);
/* A connection ends, for this reason; quiet: not worth a line. */
void link_ended(struct sr_link *link, struct conn *conn, enum sr_link_cause cause, const char *text, bool quiet);
void link_note_state(struct sr_link *link);
void link_release(struct sr_link *link); /* one of `handles` is gone */
void link_budget_blocked(struct sr_link *link);

/* ---- conn.c ---- */
/* Takes over fd; NULL on failure, and fd is closed. */
struct conn *conn_new(struct sr_link *link, int fd, bool dialled, bool connecting, const char *address);
void conn_try_ack(struct conn *conn);
void conn_drained(struct conn *conn); /* acknowledges, from the loop */
void conn_apply_pause(struct conn *conn);
bool conn_reads(const struct conn *conn);                       /* neither paused nor without room for a payload */
void conn_got_site(struct conn *conn, struct sr_site_msg *msg); /* takes msg over */
bool conn_send_site(struct conn *conn, const struct sr_site_msg *msg);
/* Ends the connection.  refuse: with a REFUSED frame of that code and text. */
void conn_end(struct conn *conn, enum sr_error refuse, enum sr_link_cause cause, bool quiet, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* Closes without a word to anybody. */
void conn_close(struct conn *conn, bool flushed);

/* ---- receive.c ---- */
void conn_receive(struct conn *conn);
void conn_retry_payload(struct conn *conn);
void conn_forget_received(struct conn *conn);

/* ---- dial.c ---- */
enum sr_error dial_bind(struct sr_link *link, const struct sr_link_address *address, struct listener *listener,
                        char *text);
void dial_listen(struct sr_link *link);
void dial_schedule(struct sr_link *link, bool failed);
void dial_refill_reserve(struct sr_link *link);
void dial_close(struct sr_link *link);
void dial_on_timer(uv_timer_t *timer);
void dial_on_accept_timer(uv_timer_t *timer);

#endif
