/* internal.h - what the files of the control server share; nobody outside daemon/control includes it.
 *
 * Objects and who owns whom:
 *
 *   sr_control   one listening socket; owns clients and the lists of calls
 *   client       one connection (client.c): bytes in, bytes out, at most one call at a time
 *   call         one request being answered (call.c).  Between client and call the pointers go both ways until either
 *                side lets go (detach): then the client takes its next request, and the call - if somebody outside
 *                still owes its reply - lives on alone.
 */
#ifndef SR_CONTROL_INTERNAL_H
#define SR_CONTROL_INTERNAL_H

#include <sys/queue.h>

#include "base/assert.h"
#include "control/control.h"
#include "control/wire.h"

/* ---- bounds ---- */
#define CLIENTS_MAX       64u
#define LONG_CALLS_MAX    48u          /* waiters and followers, so that short requests always find a place */
#define OPEN_CALLS_MAX    256u         /* handed out and not answered, their clients gone or not */
#define OUT_PAUSE_BYTES   (64u << 10)  /* a follower with that much unsent gets no more for now */
#define CHUNK_BYTES       (256u << 10) /* of a long status or list, in one response */
#define EVENTS_KEPT       256u
#define ACCEPT_RETRY_MS   200u /* after running out of descriptors */
#define WAIT_MERGE_MS     5u
#define WAIT_RECHECK_MS   1000u
#define WAIT_MAX_MS       (UINT64_C(30) * 24 * 3600 * 1000)
#define DEADLINE_MAX_MS   (UINT64_C(24) * 3600 * 1000)
#define BAD_LOGS_PER_10_S 10u
#define OBJECT_BYTES      128

enum call_kind { CALL_DRIVER, CALL_WAIT, CALL_FOLLOW };

struct client;

struct sr_control_call {
    TAILQ_ENTRY(sr_control_call) entry; /* in control->calls[kind]; on no list once control is NULL */
    struct sr_control *control;         /* NULL: the server is closed */
    struct client *client;              /* NULL: nobody waits any more */
    enum call_kind kind;
    uint64_t id;
    Syncrep__Control__Request__OpCase op;
    char object[OBJECT_BYTES];        /* shortened, for messages */
    uint64_t started_ms, deadline_ms; /* loop time; 0: no deadline */
    pid_t pid;
    uid_t uid;
    void (*gone_fn)(void *arg);
    void *gone_arg;
    uint64_t round; /* of the last look at it, see wait.c and events.c */
    /* CALL_WAIT */
    Syncrep__Control__Condition condition;
    /* CALL_FOLLOW */
    bool follow;
    uint64_t next_sequence, final_sequence; /* final: without follow, the last one to send */
    uint64_t sent;
};

TAILQ_HEAD(call_list, sr_control_call);

struct event {
    uint64_t sequence, wall_ms;
    enum sr_log_level level;
    char kind[16];
    char object[72];
    char text[256];
};

struct client {
    TAILQ_ENTRY(client) entry;
    struct sr_control *control;
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;
    unsigned open_handles;
    pid_t pid;
    uid_t uid;
    uint8_t *in;
    size_t in_length, in_capacity;
    uint8_t *out;
    size_t out_start, out_length, out_capacity; /* unsent: [out_start, out_start + out_length) */
    struct sr_control_call *call;
    uint64_t idle_since_ms;  /* nothing asked since */
    uint64_t frame_since_ms; /* a frame is half read since; 0: none */
    uint64_t stuck_since_ms; /* no unsent byte was taken since; 0: none unsent */
    bool processing;         /* client_process is on the stack */
    bool input_ended;        /* it will ask nothing more */
    bool disconnect_seen;    /* it shut its sending side; what it sent before may be unread */
    bool close_when_sent;    /* it broke the protocol: only the error is still to go */
    bool closing;
};

TAILQ_HEAD(client_list, client);

struct sr_control {
    uv_loop_t *loop;
    struct sr_control_callbacks callbacks;
    void *arg;
    char path[108];
    char site[72];
    uint64_t request_deadline_ms, idle_ms, stuck_ms;
    int listen_fd;
    dev_t socket_dev; /* of the socket file that we made */
    ino_t socket_ino;
    uv_poll_t listen_poll;
    uv_timer_t accept_timer, wait_timer, recheck_timer;
    unsigned open_handles; /* of control and of all clients */
    unsigned n_clients;
    struct client_list clients;
    struct call_list calls[3]; /* by enum call_kind */
    unsigned n_calls[3];
    uint64_t round;
    struct event *events; /* ring of EVENTS_KEPT */
    uint64_t last_sequence;
    uint64_t bad_window_ms; /* rate limit of complaints about clients */
    unsigned bad_logged, bad_unlogged;
    bool accept_paused;
    bool closing;
    void (*closed_cb)(void *arg);
    void *closed_arg;
};

/* ---- control.c ---- */
void control_log(struct sr_control *control, enum sr_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void control_log_bad(struct sr_control *control, const char *format, ...) __attribute__((format(printf, 2, 3)));
void control_handle_closed(struct sr_control *control); /* may free control */

/* ---- client.c ---- */
void client_new(struct sr_control *control, int fd); /* takes fd over */
void client_close(struct client *client);            /* safe to call twice; memory goes later, from the loop */
bool client_evict_idle(struct sr_control *control);  /* makes room; false if nobody is idle */
/* Appends one frame and tries to send at once.  False: the client is closing now. */
bool client_send(struct client *client, const Syncrep__Control__Response *response);
/* Looks at what is buffered and at the deadlines again, after a call of the client ended. */
void client_continue(struct client *client);

/* ---- call.c ---- */
void call_start(struct client *client, const Syncrep__Control__Request *request);
void call_detach(struct sr_control_call *call); /* nobody waits any more; a waiter or follower is freed */
void call_deadline(struct sr_control_call *call);
void call_end(struct sr_control_call *call); /* after the last reply: frees it, lets its client go on */
void call_orphan_all(struct sr_control *control);
void client_refuse(struct client *client, uint64_t id, enum sr_error error, const char *text); /* no call involved */
/* The same with the command to run next: status of the object, if it has a name. */
void client_refuse_about(struct client *client, uint64_t id, enum sr_error error, const char *object, const char *text);

/* ---- wait.c, events.c ---- */
void wait_start(struct sr_control_call *call, const Syncrep__Control__WaitRequest *request);
void wait_timed_out(struct sr_control_call *call);
void wait_check_all(struct sr_control *control);
void events_start(struct sr_control_call *call, const Syncrep__Control__EventsRequest *request);
void events_pump(struct sr_control_call *call);

#endif
