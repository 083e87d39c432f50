/* client.c - one connection of the control socket: bytes in, frames out.
 *
 * Reading stops while a complete frame waits (the request before it is still being answered, or its answer is not
 * taken): at most one frame is buffered.  Going away is noticed all the same (UV_DISCONNECT).  A client that only
 * closed its sending side still gets its answers.
 *
 * Invariants
 *   1. in_length < SR_CONTROL_HEADER_BYTES + SR_CONTROL_REQUEST_MAX_BYTES + READ_STEP_BYTES.
 *   2. No request is begun while a call is open or bytes are unsent: what a client can make the daemon hold is one
 *      answer (reply.c cuts that into frames of at most SR_CONTROL_RESPONSE_MAX_BYTES).
 *   3. Each state that depends on the client has a deadline: asking nothing (idle_ms), half a frame and an answer not
 *      taken (stuck_ms); a request has its own (call.c).  Only a follower may stay behind: it loses events.
 *   4. A closing client is on no list and has no call; its memory goes when both handles are closed.
 *
 * No durable state.
 */
#include "control/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define READ_STEP_BYTES 4096u

static void on_poll(uv_poll_t *poll, int status, int events);
static void on_timer(uv_timer_t *timer);

static uint64_t now_ms(const struct client *client)
{
    return uv_now(client->control->loop);
}

/* ---- life ---- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct client *client = handle->data;
    struct sr_control *control = client->control;

    if (--client->open_handles == 0) {
        free(client->in);
        free(client->out);
        free(client);
    }
    control_handle_closed(control);
}

void client_close(struct client *client)
{
    struct sr_control *control = client->control;

    if (client->closing)
        return;
    client->closing = true;
    TAILQ_REMOVE(&control->clients, client, entry);
    control->n_clients--;
    uv_close((uv_handle_t *)&client->poll, on_handle_closed);
    uv_close((uv_handle_t *)&client->timer, on_handle_closed);
    close(client->fd);
    if (client->call)
        call_detach(client->call);
    SR_ASSERT(!client->call);
}

bool client_evict_idle(struct sr_control *control)
{
    struct client *client, *oldest = NULL;

    TAILQ_FOREACH(client, &control->clients, entry)
    {
        if (!client->call && !client->processing && (!oldest || client->idle_since_ms < oldest->idle_since_ms))
            oldest = client;
    }
    if (!oldest)
        return false;
    client_close(oldest);
    return true;
}

/* ---- what to watch for ---- */

static size_t frame_bytes(const struct client *client)
{
    if (client->in_length < SR_CONTROL_HEADER_BYTES)
        return 0;
    return (size_t)SR_CONTROL_HEADER_BYTES + sr_control_header_get(client->in);
}

static bool frame_complete(const struct client *client)
{
    size_t bytes = frame_bytes(client);

    return bytes > 0 && (client->in_length >= bytes ||
                         bytes > SR_CONTROL_HEADER_BYTES + SR_CONTROL_REQUEST_MAX_BYTES); /* to be refused */
}

static void earlier(uint64_t *due, uint64_t since, uint64_t limit)
{
    if (since + limit < *due)
        *due = since + limit;
}

static bool is_follower(const struct client *client)
{
    return client->call && client->call->kind == CALL_FOLLOW;
}

static void arm(struct client *client)
{
    const struct sr_control *control = client->control;
    uint64_t due = UINT64_MAX;
    int events = 0;

    if (client->closing)
        return;
    if (!client->input_ended && !client->close_when_sent && !frame_complete(client))
        events |= UV_READABLE;
    if (!client->disconnect_seen)
        events |= UV_DISCONNECT;
    if (client->out_length > 0)
        events |= UV_WRITABLE;
    if (events)
        uv_poll_start(&client->poll, events, on_poll);
    else
        uv_poll_stop(&client->poll);

    if (client->stuck_since_ms && !is_follower(client))
        earlier(&due, client->stuck_since_ms, control->stuck_ms);
    if (client->call && client->call->deadline_ms)
        earlier(&due, client->call->deadline_ms, 0);
    if (!client->call && client->frame_since_ms)
        earlier(&due, client->frame_since_ms, control->stuck_ms);
    if (!client->call)
        earlier(&due, client->idle_since_ms, control->idle_ms);
    if (due == UINT64_MAX)
        uv_timer_stop(&client->timer);
    else
        uv_timer_start(&client->timer, on_timer, due > now_ms(client) ? due - now_ms(client) : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct client *client = timer->data;
    const struct sr_control *control = client->control;
    uint64_t now = now_ms(client);
    const char *why = NULL;

    if (client->stuck_since_ms && !is_follower(client) && now >= client->stuck_since_ms + control->stuck_ms)
        why = "does not take its answer";
    else if (!client->call && client->frame_since_ms && now >= client->frame_since_ms + control->stuck_ms)
        why = "sent half a request";
    if (why) {
        control_log_bad(client->control, "client pid %ld uid %ld %s: closed", (long)client->pid, (long)client->uid,
                        why);
        client_close(client);
        return;
    }
    if (!client->call && now >= client->idle_since_ms + control->idle_ms) {
        client_close(client);
        return;
    }
    if (client->call && client->call->deadline_ms && now >= client->call->deadline_ms)
        call_deadline(client->call); /* its end goes on with the client */
    arm(client);
}

/* ---- out ---- */

static bool reserve(uint8_t **buffer, size_t *capacity, size_t needed)
{
    size_t bytes = *capacity > 0 ? *capacity : READ_STEP_BYTES;

    while (bytes < needed)
        bytes *= 2;
    if (bytes == *capacity)
        return true;
    uint8_t *larger = realloc(*buffer, bytes);
    if (!larger)
        return false;
    *buffer = larger;
    *capacity = bytes;
    return true;
}

/* False: closed. */
static bool flush(struct client *client)
{
    while (client->out_length > 0) {
        ssize_t n =
            send(client->fd, client->out + client->out_start, client->out_length, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!client->stuck_since_ms)
                client->stuck_since_ms = now_ms(client);
            return true;
        }
        if (n < 0) {
            client_close(client);
            return false;
        }
        client->out_start += (size_t)n;
        client->out_length -= (size_t)n;
        client->stuck_since_ms = client->out_length > 0 ? now_ms(client) : 0;
    }
    client->out_start = 0;
    client->stuck_since_ms = 0;
    if (client->out_capacity > OUT_PAUSE_BYTES) {
        free(client->out);
        client->out = NULL;
        client->out_capacity = 0;
    }
    return true;
}

bool client_send(struct client *client, const Syncrep__Control__Response *response)
{
    size_t length = syncrep__control__response__get_packed_size(response);
    size_t frame = SR_CONTROL_HEADER_BYTES + length;

    SR_ASSERT(!client->closing && length <= SR_CONTROL_RESPONSE_MAX_BYTES);
    if (client->out_start > 0 && client->out_length > 0)
        memmove(client->out, client->out + client->out_start, client->out_length);
    client->out_start = 0;
    if (!reserve(&client->out, &client->out_capacity, client->out_length + frame)) {
        control_log_bad(client->control, "out of memory for the answer to pid %ld: closed", (long)client->pid);
        client_close(client);
        return false;
    }
    sr_control_header_put(client->out + client->out_length, (uint32_t)length);
    syncrep__control__response__pack(response, client->out + client->out_length + SR_CONTROL_HEADER_BYTES);
    client->out_length += frame;
    if (!flush(client))
        return false;
    arm(client);
    return true;
}

/* ---- in ---- */

/* Takes the first frame out of the buffer and answers it or begins its call. */
static void take_frame(struct client *client)
{
    size_t bytes = frame_bytes(client);
    Syncrep__Control__Request *request = NULL;
    char why[SR_CONTROL_WHY_BYTES];
    enum sr_error error;
    uint64_t id = 0;

    if (bytes > SR_CONTROL_HEADER_BYTES + SR_CONTROL_REQUEST_MAX_BYTES) {
        snprintf(why, sizeof(why), "a frame of %zu bytes is longer than a request may be (%u)",
                 bytes - SR_CONTROL_HEADER_BYTES, SR_CONTROL_REQUEST_MAX_BYTES);
        error = SR_E_TOO_LARGE;
        client->in_length = 0;
    } else {
        error = sr_control_request_decode(client->in + SR_CONTROL_HEADER_BYTES, bytes - SR_CONTROL_HEADER_BYTES,
                                          &request, &id, why);
        client->in_length -= bytes;
        memmove(client->in, client->in + bytes, client->in_length);
    }
    client->frame_since_ms = client->in_length > 0 ? now_ms(client) : 0;
    client->idle_since_ms = now_ms(client);
    if (error == SR_OK) {
        call_start(client, request);
        sr_control_request_free(request);
        return;
    }
    control_log_bad(client->control, "client pid %ld uid %ld: %s", (long)client->pid, (long)client->uid, why);
    if (error == SR_E_TOO_LARGE || error == SR_E_PROTOCOL || error == SR_E_NO_MEMORY) {
        client->close_when_sent = true;
        client->in_length = 0;
        client->frame_since_ms = 0;
    }
    client_refuse(client, id, error, why);
}

/* May close the client; its memory stays until the loop turns. */
static void client_process(struct client *client)
{
    if (client->processing)
        return;
    client->processing = true;
    while (!client->closing && !client->call && client->out_length == 0 && !client->close_when_sent &&
           frame_complete(client))
        take_frame(client);
    client->processing = false;
    if (client->closing)
        return;
    bool finished = client->close_when_sent || (client->input_ended && !client->call);
    if (finished && client->out_length == 0)
        client_close(client);
    else
        arm(client);
}

void client_continue(struct client *client)
{
    if (client->closing)
        return;
    client->idle_since_ms = now_ms(client);
    if (client->frame_since_ms)
        client->frame_since_ms = now_ms(client);
    client_process(client);
}

/* Reads until a frame is complete, nothing more is there, or the other end closed.  False: closed. */
static bool fill(struct client *client)
{
    while (!frame_complete(client)) {
        size_t wanted = frame_bytes(client);
        if (wanted < client->in_length + READ_STEP_BYTES)
            wanted = client->in_length + READ_STEP_BYTES;
        if (!reserve(&client->in, &client->in_capacity, wanted)) {
            client_close(client);
            return false;
        }
        ssize_t n = recv(client->fd, client->in + client->in_length, wanted - client->in_length, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n < 0) {
            client_close(client);
            return false;
        }
        if (n == 0) {
            client->input_ended = true;
            client->in_length = 0; /* half a frame, at most */
            client->frame_since_ms = 0;
            return true;
        }
        if (client->in_length == 0)
            client->frame_since_ms = now_ms(client);
        client->in_length += (size_t)n;
    }
    return true;
}

/* Both directions are shut: nobody is there to read. */
static bool hung_up(const struct client *client)
{
    struct pollfd p = {.fd = client->fd, .events = 0};

    return poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct client *client = poll->data;

    if (status < 0) {
        client_close(client);
        return;
    }
    if ((events & UV_WRITABLE) && client->out_length > 0) {
        if (!flush(client))
            return;
        if (is_follower(client))
            events_pump(client->call);
    }
    if (!client->closing && (events & UV_READABLE) && !client->close_when_sent && !fill(client))
        return;
    if (!client->closing)
        client_process(client);
    if (client->closing || !(events & UV_DISCONNECT))
        return;
    /* What it asked before it went was begun above, as far as it could be. */
    if (hung_up(client)) {
        client_close(client);
        return;
    }
    /* Only its sending side is shut.  The end is read in its turn; to go on watching for it would spin. */
    client->disconnect_seen = true;
    arm(client);
}

void client_new(struct sr_control *control, int fd)
{
    struct client *client = calloc(1, sizeof(*client));
    struct ucred credentials = {.pid = -1, .uid = (uid_t)-1};
    socklen_t length = sizeof(credentials);

    if (!client || uv_poll_init(control->loop, &client->poll, fd) != 0) {
        control_log_bad(control, "no memory for a client: closed");
        free(client);
        close(fd);
        return;
    }
    uv_timer_init(control->loop, &client->timer);
    client->open_handles = 2;
    control->open_handles += 2;
    (void)!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length);
    client->control = control;
    client->poll.data = client;
    client->timer.data = client;
    client->fd = fd;
    client->pid = credentials.pid;
    client->uid = credentials.uid;
    client->idle_since_ms = now_ms(client);
    TAILQ_INSERT_TAIL(&control->clients, client, entry);
    control->n_clients++;
    arm(client);
}
