/* link.h - the one connection to the peer site: dialling, accepting, TLS, who-are-you, heartbeats, frames.
 *
 * Both sites listen.  The one with the lower UUID dials; until the peer's UUID is known both do.  Of two
 * authenticated connections the one with the higher number stays, (boot, connection) of the site with the lower UUID:
 * both ends see the same two numbers and keep the same connection.
 *
 *     on_up ... messages ... on_down   sr_link_drained   on_up ...
 *
 * After on_down the owner finishes all disk work of that connection and then calls sr_link_drained.  Only
 * then does this site answer the greeting of a new connection (its HELLO was read, nothing behind it).
 *
 * All functions on the loop thread.  Callbacks come from the loop, never from inside a call of the owner, and none
 * but `closed` after sr_link_close; any function may be called from them.
 */
#ifndef SR_LINK_LINK_H
#define SR_LINK_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/uuid.h"
#include "codec/peer_frame.h"
#include "link/tls.h"

struct sr_link;

#define SR_LINK_TEXT_BYTES 512
#define SR_LINK_LISTEN_MAX 16

struct sr_link_address {
    const char *host; /* a name or a numeric address, IPv6 without brackets */
    uint16_t port;    /* 0 (listening, for tests): any free one, see sr_link_port */
};

/* Everything is copied (tls and budget: referenced; the budget outlives the link). */
struct sr_link_config {
    const char *site_name, *peer_name;
    struct sr_uuid site, group;
    struct sr_uuid peer; /* the peer's site UUID if it is known: another one is then refused; else none */
    uint64_t boot;       /* > 0 */

    size_t n_listen; /* at most SR_LINK_LISTEN_MAX */
    const struct sr_link_address *listen;
    struct sr_link_address peer_address; /* host NULL: never dials */

    struct sr_tls *tls; /* SR_TLS_PEER */
    bool insecure;      /* plain TCP, and tls is NULL */

    struct sr_budget *budget; /* for payloads that arrive */
    uint64_t features;        /* offered */
    uint32_t heartbeat_interval_ms, heartbeat_timeout_ms;
    uint32_t handshake_timeout_ms;            /* 0: 10 s */
    uint32_t retry_min_ms, retry_max_ms;      /* 0: 50 ms, 5 s */
    uint32_t unauthenticated_max;             /* accepted connections that have not said who they are; 0: 16 */
    size_t queue_low_bytes, queue_high_bytes; /* for on_writable; 0: 4 MiB, 16 MiB */

    /* for tests */
    uint16_t version_min, version_max; /* 0: what this build speaks */
    int socket_buffer_bytes;           /* SO_SNDBUF and SO_RCVBUF; 0: the system's */
};

/* What on_up tells. */
struct sr_link_peer {
    struct sr_site_hello hello;
    uint16_t version;
    uint64_t features; /* what both ends offered */
    bool dialled;      /* by this site */
    char address[64];
};

enum sr_link_cause {
    SR_LINK_CLOSED_BY_PEER, /* or by the network */
    SR_LINK_SILENT,         /* no byte within the heartbeat's timeout */
    SR_LINK_REPLACED,       /* the peer opened a newer connection */
    SR_LINK_FAULTY          /* a frame was wrong, or the owner called sr_link_fault */
};

struct sr_link_callbacks {
    void (*on_up)(void *arg, const struct sr_link_peer *peer);
    void (*on_down)(void *arg, enum sr_link_cause cause, const char *text);
    /* msg is the callee's, who frees it with sr_peer_msg_free. */
    void (*on_msg)(void *arg, const struct sr_uuid *collection, struct sr_peer_msg *msg);
    /* CATALOG, VOLUME_REQUEST, VOLUME_REPLY, COLLECTION_ABSENT.  msg is the callee's (sr_site_msg_free). */
    void (*on_site_msg)(void *arg, struct sr_site_msg *msg);
    /* The send queue was over its high mark and is now below the low one.  May be NULL. */
    void (*on_writable)(void *arg);
    /* May be NULL.  Is this site the peer?  Group, name and config.peer have been checked.  False: refused with
     * text (SR_SITE_TEXT_BYTES). */
    bool (*check_identity)(void *arg, const struct sr_site_hello *hello, char *text);
    void (*log)(void *arg, enum sr_log_level level, const char *text);
};

/* Binds the listening sockets; nobody is accepted or dialled before sr_link_start.  Names in `listen` are resolved
 * now, so it may block.  On failure text (SR_LINK_TEXT_BYTES) names the address. */
enum sr_error sr_link_new(uv_loop_t *loop, const struct sr_link_config *config,
                          const struct sr_link_callbacks *callbacks, void *arg, struct sr_link **link, char *text);

void sr_link_start(struct sr_link *link);

/* The port that listen[index] got. */
uint16_t sr_link_port(const struct sr_link *link, size_t index);

/* For a test that learns the port late, and for a changed configuration: the next dial goes there. */
enum sr_error sr_link_set_peer_address(struct sr_link *link, const struct sr_link_address *address);

/* New connections use this set (not with insecure). */
void sr_link_set_tls(struct sr_link *link, struct sr_tls *tls);

bool sr_link_is_up(const struct sr_link *link);

/* Both take over msg whatever the answer.  False: the link is not up, msg was dropped. A peer message's payload must
 * not change until the peer's answer or on_down.  Nothing limits the queue here: see sr_link_status and on_writable.
 */
bool sr_link_send_msg(struct sr_link *link, const struct sr_uuid *collection, struct sr_peer_msg *msg);
bool sr_link_send_site(struct sr_link *link, struct sr_site_msg *msg);

size_t sr_link_queue_bytes(const struct sr_link *link); /* 0 while it is down */

/* The peer broke the protocol: logs text, drops the connection; on_down follows from the loop.  Nothing happens when
 * the link is not up. */
void sr_link_fault(struct sr_link *link, const char *text);

/* All work of the connection that on_down reported is finished. */
void sr_link_drained(struct sr_link *link);

/* Backpressure; a peer that is not read is not taken for silent. */
void sr_link_pause_reading(struct sr_link *link);
void sr_link_resume_reading(struct sr_link *link);

/* The budget has room again: a payload that found none is tried again at once (it is anyway, every 10 ms). */
void sr_link_budget_freed(struct sr_link *link);

enum sr_link_state {
    SR_LINK_IDLE,       /* waits for the peer to dial, or for the next attempt */
    SR_LINK_CONNECTING, /* a connection is being made and greeted */
    SR_LINK_DRAINING,   /* the peer is there; work of the old connection is still under way, here or there */
    SR_LINK_UP
};

const char *sr_link_state_name(enum sr_link_state state);

struct sr_link_status {
    enum sr_link_state state;
    uint64_t since_wall_ms;              /* the state */
    char last_error[SR_LINK_TEXT_BYTES]; /* "" if there was none */
    uint64_t rtt_us;                     /* of the last heartbeat; 0: unknown */
    uint64_t bytes_in, bytes_out;        /* since the start, over all connections */
    size_t queue_bytes;
    uint64_t connects;     /* how often it came up */
    uint64_t refused;      /* connections that failed before they were authenticated */
    uint64_t budget_waits; /* payloads that found no room at first */
    bool secure;
    int64_t peer_certificate_expires_s; /* 0: unknown */
    struct sr_link_peer peer;           /* of the present or last connection */
};

void sr_link_status(const struct sr_link *link, struct sr_link_status *status);

/* Sends what is queued (for at most a second) and closes; then closed(arg) is called, from the loop.  The link may
 * not be used afterwards.  The loop must run until no handle is left. */
void sr_link_close(struct sr_link *link, void (*closed)(void *arg), void *arg);

#endif
