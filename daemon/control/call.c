/* call.c - a request while it is being answered: from a decoded frame to its last reply.
 *
 *      call_start ---> open ---- last reply ---------------------------> freed
 *                        |
 *                        +-- client gone, or its deadline passed --> alone ---- last reply ---> freed
 *
 * Waiters and followers (owned by the server itself) are freed at once instead of becoming "alone".
 *
 * Invariants
 *   1. call->client->call == call, or call->client is NULL.
 *   2. A call handed to callbacks->request exists until its last reply, whatever happens to client and server.
 *   3. gone_fn is called at most once, and never after the last reply began.
 *   4. At most OPEN_CALLS_MAX calls are handed out; at most LONG_CALLS_MAX clients wait or follow.
 *
 * No durable state: an operation belongs to the module that carries it out.
 */
#include "control/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void client_refuse(struct client *client, uint64_t id, enum sr_error error, const char *text)
{
    client_refuse_about(client, id, error, "", text);
}

void client_refuse_about(struct client *client, uint64_t id, enum sr_error error, const char *object, const char *text)
{
    Syncrep__Control__Error body = SYNCREP__CONTROL__ERROR__INIT;
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    char clean[400], hint[OBJECT_BYTES + 32], about[OBJECT_BYTES];

    snprintf(clean, sizeof(clean), "%s", text);
    snprintf(about, sizeof(about), "%s", object);
    snprintf(hint, sizeof(hint), "syncrepctl status %s", object);
    body.object = about;
    body.hint = object[0] ? hint : (char *)"";
    body.code = error;
    body.name = (char *)sr_error_name(error);
    body.exit = sr_control_exit_class(error);
    body.text = sr_control_text_clean(clean);
    response.version = SR_CONTROL_VERSION;
    response.id = id;
    response.last = true;
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_ERROR;
    response.error = &body;
    client_send(client, &response);
}

static void answer_ping(struct client *client, uint64_t id)
{
    Syncrep__Control__Pong pong = SYNCREP__CONTROL__PONG__INIT;
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;

    pong.daemon_version = (char *)SYNCREP_VERSION;
    pong.protocol_version = SR_CONTROL_VERSION;
    pong.site = client->control->site;
    pong.pid = (uint64_t)getpid();
    response.version = SR_CONTROL_VERSION;
    response.id = id;
    response.last = true;
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_PONG;
    response.pong = &pong;
    client_send(client, &response);
}

static enum call_kind kind_of(Syncrep__Control__Request__OpCase op)
{
    if (op == SYNCREP__CONTROL__REQUEST__OP_WAIT)
        return CALL_WAIT;
    if (op == SYNCREP__CONTROL__REQUEST__OP_EVENTS)
        return CALL_FOLLOW;
    return CALL_DRIVER;
}

static struct sr_control_call *call_new(struct client *client, const Syncrep__Control__Request *request)
{
    struct sr_control *control = client->control;
    struct sr_control_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->control = control;
    call->client = client;
    call->kind = kind_of(request->op_case);
    call->id = request->id;
    call->op = request->op_case;
    call->pid = client->pid;
    call->uid = client->uid;
    call->started_ms = uv_now(control->loop);
    snprintf(call->object, sizeof(call->object), "%s", sr_control_op_object(request));
    sr_control_text_clean(call->object);
    if (call->kind == CALL_DRIVER) {
        uint64_t deadline = request->deadline_ms > 0 ? request->deadline_ms : control->request_deadline_ms;
        call->deadline_ms = call->started_ms + (deadline < DEADLINE_MAX_MS ? deadline : DEADLINE_MAX_MS);
    }
    TAILQ_INSERT_TAIL(&control->calls[call->kind], call, entry);
    control->n_calls[call->kind]++;
    client->call = call;
    return call;
}

static bool changes_something(Syncrep__Control__Request__OpCase op)
{
    switch (op) {
    case SYNCREP__CONTROL__REQUEST__OP_STATUS:
    case SYNCREP__CONTROL__REQUEST__OP_POOL_LIST:
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_LIST:
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW:
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_LIST:
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_SHOW:
    case SYNCREP__CONTROL__REQUEST__OP_WAIT:
    case SYNCREP__CONTROL__REQUEST__OP_EVENTS:
        return false;
    default:
        return true;
    }
}

void call_start(struct client *client, const Syncrep__Control__Request *request)
{
    struct sr_control *control = client->control;
    enum call_kind kind = kind_of(request->op_case);

    SR_ASSERT(!client->call);
    if (control->closing) {
        client_refuse(client, request->id, SR_E_SHUTDOWN, "the daemon is shutting down");
        return;
    }
    if (request->op_case == SYNCREP__CONTROL__REQUEST__OP_PING) {
        answer_ping(client, request->id);
        return;
    }
    if (kind == CALL_DRIVER ? control->n_calls[CALL_DRIVER] >= OPEN_CALLS_MAX
                            : control->n_calls[CALL_WAIT] + control->n_calls[CALL_FOLLOW] >= LONG_CALLS_MAX) {
        client_refuse(client, request->id, SR_E_BUSY,
                      kind == CALL_DRIVER ? "the daemon has as many unfinished operations as it takes; try again"
                                          : "as many clients wait or follow events as the daemon takes; try again");
        return;
    }
    struct sr_control_call *call = call_new(client, request);
    if (!call) {
        client_refuse(client, request->id, SR_E_NO_MEMORY, "the daemon is out of memory");
        return;
    }
    control_log(control, changes_something(call->op) ? SR_LOG_INFO : SR_LOG_DEBUG,
                "control: %s%s%s (pid %ld, uid %ld)", sr_control_op_name(call->op), call->object[0] ? " " : "",
                call->object, (long)call->pid, (long)call->uid);
    if (kind == CALL_WAIT)
        wait_start(call, request->wait);
    else if (kind == CALL_FOLLOW)
        events_start(call, request->events);
    else
        control->callbacks.request(control->arg, call, request);
}

static void unlist(struct sr_control_call *call)
{
    if (!call->control)
        return;
    TAILQ_REMOVE(&call->control->calls[call->kind], call, entry);
    call->control->n_calls[call->kind]--;
    call->control = NULL;
}

void call_detach(struct sr_control_call *call)
{
    void (*gone_fn)(void *) = call->gone_fn;

    SR_ASSERT(call->client && call->client->call == call);
    call->client->call = NULL;
    call->client = NULL;
    if (call->kind != CALL_DRIVER) {
        unlist(call);
        free(call);
        return;
    }
    call->gone_fn = NULL;
    if (gone_fn)
        gone_fn(call->gone_arg); /* may reply: call is not to be touched any more */
}

void call_end(struct sr_control_call *call)
{
    struct client *client = call->client;

    unlist(call);
    if (client)
        client->call = NULL;
    free(call);
    if (client)
        client_continue(client);
}

void call_deadline(struct sr_control_call *call)
{
    struct client *client = call->client;
    uint64_t id = call->id;
    char text[400], object[OBJECT_BYTES];

    SR_ASSERT(call->kind != CALL_FOLLOW);
    if (call->kind == CALL_WAIT) {
        wait_timed_out(call);
        return;
    }
    snprintf(text, sizeof(text), "%s%s%s is not finished after %llu ms; the daemon goes on with it",
             sr_control_op_name(call->op), call->object[0] ? " " : "", call->object,
             (unsigned long long)(call->deadline_ms - call->started_ms));
    memcpy(object, call->object, sizeof(object));
    /* Let go first: whoever is told that the call is gone may reply into it. */
    call_detach(call);
    client_refuse_about(client, id, SR_E_TIMEOUT, object, text);
    client_continue(client);
}

void call_orphan_all(struct sr_control *control)
{
    for (int kind = 0; kind < 3; kind++) {
        struct sr_control_call *call;
        while ((call = TAILQ_FIRST(&control->calls[kind])) != NULL) {
            struct client *client = call->client;
            uint64_t id = call->id;
            if (!client) {
                unlist(call);
                continue;
            }
            if (kind == CALL_DRIVER)
                unlist(call);
            call_detach(call);
            client_refuse(client, id, SR_E_SHUTDOWN, "the daemon is shutting down");
        }
    }
}

/* ---- what the daemon asks about a call ---- */

bool sr_control_call_gone(const struct sr_control_call *call)
{
    return !call->client;
}

void sr_control_call_on_gone(struct sr_control_call *call, void (*fn)(void *arg), void *arg)
{
    SR_ASSERT(call->client);
    call->gone_fn = fn;
    call->gone_arg = arg;
}

uint64_t sr_control_call_left_ms(const struct sr_control_call *call)
{
    if (!call->control)
        return 0;
    uint64_t now = uv_now(call->control->loop);
    return call->deadline_ms > now ? call->deadline_ms - now : 0;
}

void sr_control_call_peer(const struct sr_control_call *call, pid_t *pid, uid_t *uid)
{
    *pid = call->pid;
    *uid = call->uid;
}
