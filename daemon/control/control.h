/* control.h - the control socket: a server for control.proto.
 *
 * The daemon owns each operation.  A request becomes a *call*, handed to callbacks->request; whoever takes it owes
 * exactly one sr_control_reply*() with last = true, now or later.  If the client has gone, or its deadline has
 * passed, the reply is dropped and the operation goes on.  Ping, Wait and Events are answered by the server itself:
 * Wait through callbacks->wait_check, Events from what sr_control_emit was told.
 *
 * Everything runs on the loop thread; nothing blocks but sr_control_open.  Clients, their memory and the calls are
 * bounded (control.c lists the bounds); a bad frame costs its sender one clear error and the connection.
 */
#ifndef SR_CONTROL_CONTROL_H
#define SR_CONTROL_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/error.h"
#include "control.pb-c.h"
#include "control/words.h"
#include "core/core.h"

struct sr_control;
struct sr_control_call;

enum sr_control_wait { SR_CONTROL_WAIT_PENDING, SR_CONTROL_WAIT_DONE, SR_CONTROL_WAIT_FAILED };

/* What wait_check says beside its verdict.  PENDING: text is the present state, for the message of a wait that
 * times out.  DONE: text says what holds now.  FAILED: the error that ends the wait. */
struct sr_control_wait_info {
    enum sr_error error;
    char text[240];
    char hint[160]; /* command to run next */
};

struct sr_control_callbacks {
    /* A request with its op set (never Ping, Wait, Events); known options only; strings are UTF-8.  req is
     * valid during the call of this function only.  Names are not checked yet: they are whatever was sent. */
    void (*request)(void *arg, struct sr_control_call *call, const Syncrep__Control__Request *req);
    /* Does the condition hold for the collection (or volume) `name`?  name is "" only with CONNECTED.  NULL: Wait
     * is unsupported.  Must be cheap: called for each waiter after sr_control_state_changed. */
    enum sr_control_wait (*wait_check)(void *arg, const char *name, Syncrep__Control__Condition condition,
                                       struct sr_control_wait_info *info);
    /* May be NULL. */
    void (*log)(void *arg, enum sr_log_level level, const char *text);
};

struct sr_control_options {
    const char *path;             /* of the Unix socket */
    const char *site;             /* this site's name, for Pong; copied */
    gid_t group;                  /* that owns the socket; (gid_t)-1: leave as is */
    uint32_t request_deadline_ms; /* when the client names none; 0: 30000 */
    uint32_t idle_ms;             /* a client that sends no request; 0: 60000 */
    uint32_t stuck_ms;            /* a client that does not take its answer, or leaves a frame half sent; 0: 10000 */
};

/* Makes the parent folder if it is missing, replaces a stale socket only if nobody answers on it (SR_E_LOCKED if
 * somebody does), listens with mode 0660.  error_text gets one sentence that names the path.  Blocks briefly. */
enum sr_error sr_control_open(uv_loop_t *loop, const struct sr_control_options *options,
                              const struct sr_control_callbacks *callbacks, void *arg, struct sr_control **control,
                              char *error_text, size_t error_text_bytes);

/* Stops listening, removes the socket, answers open calls with SR_E_SHUTDOWN and closes the clients, giving up on
 * what cannot be written at once.  closed_cb (may be NULL) is called from the loop when the last handle is closed and
 * control is freed; until then run the loop.  Calls that were handed out stay valid until their last reply, which
 * may come even after that. */
void sr_control_close(struct sr_control *control, void (*closed_cb)(void *arg), void *closed_arg);

/* Some state may have changed: waiters are looked at again soon (calls are merged).  Cheap without waiters.  control
 * may be NULL, as for sr_control_emit. */
void sr_control_state_changed(struct sr_control *control);

/* An event for Events: kept among the recent ones, sent to followers.  kind is one of the words in control.proto;
 * object may be "".  A follower that does not keep up loses events, never delays anybody.  control may be NULL: what
 * ends after the socket was closed, while the site stops, has nobody left to tell. */
void sr_control_emit(struct sr_control *control, enum sr_log_level level, const char *kind, const char *object,
                     uint64_t wall_ms, const char *format, ...) __attribute__((format(printf, 6, 7)));

/* ---- calls ------------------------------------------------------------------------------------------- */

/* Sends response (version, id and last are filled in; body stays the caller's).  Statuses and lists too long for
 * one frame are split.  With last = true the call is used up: the caller forgets it. */
void sr_control_reply(struct sr_control_call *call, Syncrep__Control__Response *response, bool last);

/* Final reply: Done.  hint may be NULL. */
void sr_control_reply_done(struct sr_control_call *call, const char *object, const char *hint, const char *format,
                           ...) __attribute__((format(printf, 4, 5)));

/* Final reply: Error.  object and hint may be NULL; format is the sentence. */
void sr_control_reply_error(struct sr_control_call *call, enum sr_error error, const char *object, const char *hint,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));

/* True once nobody waits for the reply any more.  The final reply is owed all the same. */
bool sr_control_call_gone(const struct sr_control_call *call);

/* fn is called once when the call becomes "gone", and not after its final reply.  It may reply. */
void sr_control_call_on_gone(struct sr_control_call *call, void (*fn)(void *arg), void *arg);

/* Milliseconds until the client's deadline; 0 when it has passed. */
uint64_t sr_control_call_left_ms(const struct sr_control_call *call);

/* Who asked: from SO_PEERCRED when the client connected. */
void sr_control_call_peer(const struct sr_control_call *call, pid_t *pid, uid_t *uid);

#endif
