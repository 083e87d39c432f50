/* client.c - the connection to the daemon: connect, send a request, receive responses, never longer than asked.
 *
 * The socket is non-blocking and every wait is a poll() with what is left of a deadline, so a daemon that hangs (its
 * kernel still accepts) costs the time limit and no more.
 */
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/size.h"
#include "control/wire.h"
#include "control/words.h"

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

uint64_t cli_deadline(uint64_t timeout_ms)
{
    return now_ms() + timeout_ms;
}

void cli_disconnect(struct cli *cli)
{
    if (cli->fd >= 0)
        close(cli->fd);
    cli->fd = -1;
}

static void lost(struct cli *cli, struct failure *why)
{
    cli_failure(why, CLI_UNREACHABLE, "unreachable", cli->control_path, "syncrepctl status",
                "the daemon at %s closed the connection before it had answered", cli->control_path);
    cli_disconnect(cli);
}

static void timed_out(struct cli *cli, struct failure *why)
{
    cli_failure(why, CLI_TIMED_OUT, "timeout", cli->control_path, "syncrepctl status",
                "the daemon at %s does not answer; what was asked may still happen", cli->control_path);
    cli_disconnect(cli);
}

/* Waits for events on the socket.  False: the deadline passed. */
static bool ready(const struct cli *cli, short events, uint64_t deadline_ms)
{
    for (;;) {
        uint64_t now = now_ms();
        struct pollfd p = {.fd = cli->fd, .events = events};
        uint64_t left = deadline_ms > now ? deadline_ms - now : 0;
        int result = poll(&p, 1, deadline_ms == UINT64_MAX ? -1 : left > 3600000 ? 3600000 : (int)left);

        if (result > 0)
            return true;
        if (result == 0 && left <= 3600000)
            return false;
        if (result < 0 && errno != EINTR)
            return true; /* the next call on the socket says what is wrong */
    }
}

static bool connect_failed(struct cli *cli, int errnum, struct failure *why)
{
    const char *advice = "is syncrepd running?";
    const char *hint = "systemctl status syncrepd";

    if (errnum == EACCES || errnum == EPERM) {
        advice = "run as root or as a member of the socket's group";
        hint = "";
    }
    cli_failure(why, CLI_UNREACHABLE, "unreachable", cli->control_path, hint, "no daemon at %s: %s; %s",
                cli->control_path, strerror(errnum), advice);
    cli_disconnect(cli);
    return false;
}

static bool connect_to_daemon(struct cli *cli, uint64_t deadline_ms, struct failure *why)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (cli->fd >= 0)
        return true;
    if (strlen(cli->control_path) >= sizeof(address.sun_path)) {
        cli_failure(why, CLI_USAGE, "usage", cli->control_path, "", "--control: '%s' is longer than %zu bytes",
                    cli->control_path, sizeof(address.sun_path) - 1);
        return false;
    }
    strcpy(address.sun_path, cli->control_path);
    cli->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (cli->fd < 0)
        return connect_failed(cli, errno, why);
    while (connect(cli->fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return connect_failed(cli, errno, why);
        /* Its queue of newcomers is full, which no poll() tells the end of. */
        if (now_ms() >= deadline_ms) {
            timed_out(cli, why);
            return false;
        }
        poll(NULL, 0, 20);
    }
    return true;
}

/* An operation gets a little less time than we have, so that the daemon's own answer comes in time. */
static uint32_t deadline_for_daemon(uint64_t timeout_ms)
{
    uint64_t margin = timeout_ms / 10 < 500 ? timeout_ms / 10 : 500;
    uint64_t ms = timeout_ms - margin;

    return ms == 0 ? 1 : ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX;
}

bool cli_send(struct cli *cli, Syncrep__Control__Request *request, uint64_t timeout_ms, struct failure *why)
{
    uint64_t deadline_ms = cli_deadline(timeout_ms);
    size_t length, sent = 0;
    uint8_t *frame;

    request->version = SR_CONTROL_VERSION;
    request->id = ++cli->next_id;
    if (request->op_case != SYNCREP__CONTROL__REQUEST__OP_WAIT &&
        request->op_case != SYNCREP__CONTROL__REQUEST__OP_EVENTS)
        request->deadline_ms = deadline_for_daemon(timeout_ms);
    length = syncrep__control__request__get_packed_size(request);
    if (length > SR_CONTROL_REQUEST_MAX_BYTES) {
        cli_failure(why, CLI_USAGE, "usage", "", "", "the arguments are too long");
        return false;
    }
    if (!connect_to_daemon(cli, deadline_ms, why))
        return false;
    frame = malloc(SR_CONTROL_HEADER_BYTES + length);
    if (!frame) {
        cli_failure(why, CLI_REFUSED, "no-memory", "", "", "out of memory");
        return false;
    }
    sr_control_header_put(frame, (uint32_t)length);
    syncrep__control__request__pack(request, frame + SR_CONTROL_HEADER_BYTES);
    length += SR_CONTROL_HEADER_BYTES;
    while (sent < length) {
        ssize_t n = send(cli->fd, frame + sent, length - sent, MSG_NOSIGNAL);
        if (n >= 0)
            sent += (size_t)n;
        else if (errno == EAGAIN && !ready(cli, POLLOUT, deadline_ms))
            break;
        else if (errno != EAGAIN && errno != EINTR)
            break; /* it may have said why before it hung up: read that */
    }
    free(frame);
    return true;
}

static bool receive_bytes(struct cli *cli, uint8_t *bytes, size_t length, uint64_t deadline_ms, struct failure *why)
{
    size_t got = 0;

    while (got < length) {
        ssize_t n = recv(cli->fd, bytes + got, length - got, 0);
        if (n > 0) {
            got += (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            lost(cli, why);
            return false;
        } else if (errno == EAGAIN && !ready(cli, POLLIN, deadline_ms)) {
            timed_out(cli, why);
            return false;
        }
    }
    return true;
}

static void not_understood(struct cli *cli, struct failure *why)
{
    cli_failure(why, CLI_UNREACHABLE, "protocol", cli->control_path, "syncrepctl --version",
                "what answers at %s is not a syncrepd of a version that this syncrepctl understands",
                cli->control_path);
    cli_disconnect(cli);
}

static void take_error(const Syncrep__Control__Error *error, struct failure *why)
{
    unsigned exit =
        error->exit >= 1 && error->exit <= 5 ? error->exit : sr_control_exit_class(sr_error_from_wire(error->code));

    cli_failure(why, exit > 0 ? (int)exit : CLI_REFUSED,
                error->name[0] ? error->name : sr_error_name(sr_error_from_wire(error->code)), error->object,
                error->hint, "%s", error->text[0] ? error->text : sr_error_text(sr_error_from_wire(error->code)));
}

Syncrep__Control__Response *cli_receive(struct cli *cli, uint64_t deadline_ms, struct failure *why)
{
    uint8_t header[SR_CONTROL_HEADER_BYTES];
    Syncrep__Control__Response *response = NULL;
    uint8_t *body = NULL;
    uint32_t length;

    if (!receive_bytes(cli, header, sizeof(header), deadline_ms, why))
        return NULL;
    length = sr_control_header_get(header);
    if (length <= SR_CONTROL_RESPONSE_MAX_BYTES)
        body = malloc(length > 0 ? length : 1);
    if (!body) {
        not_understood(cli, why);
        return NULL;
    }
    if (receive_bytes(cli, body, length, deadline_ms, why)) {
        response = sr_control_response_decode(body, length);
        if (!response || response->version != SR_CONTROL_VERSION) {
            sr_control_response_free(response);
            response = NULL;
            not_understood(cli, why);
        }
    }
    free(body);
    if (response && response->body_case == SYNCREP__CONTROL__RESPONSE__BODY_ERROR) {
        take_error(response->error, why);
        if (response->id != cli->next_id)
            cli_disconnect(cli);
        sr_control_response_free(response);
        return NULL;
    }
    if (response && response->id != cli->next_id) {
        sr_control_response_free(response);
        not_understood(cli, why);
        return NULL;
    }
    if (response && !cli->json)
        cli_clean_message(&response->base);
    return response;
}

Syncrep__Control__Response *cli_ask(struct cli *cli, Syncrep__Control__Request *request, uint64_t timeout_ms,
                                    Syncrep__Control__Response__BodyCase wanted, struct failure *why)
{
    uint64_t deadline_ms = cli_deadline(timeout_ms);

    if (!cli_send(cli, request, timeout_ms, why))
        return NULL;
    Syncrep__Control__Response *response = cli_receive(cli, deadline_ms, why);
    if (response && (response->body_case != wanted || !response->last)) {
        sr_control_response_free(response);
        not_understood(cli, why);
        return NULL;
    }
    return response;
}

void cli_parts_free(struct cli_parts *parts)
{
    for (size_t i = 0; i < parts->n; i++)
        sr_control_response_free(parts->list[i]);
    free(parts->list);
    *parts = (struct cli_parts){NULL, 0};
}

bool cli_ask_parts(struct cli *cli, Syncrep__Control__Request *request, uint64_t timeout_ms,
                   Syncrep__Control__Response__BodyCase wanted, struct cli_parts *parts, struct failure *why)
{
    uint64_t deadline_ms = cli_deadline(timeout_ms);
    bool last = false;

    *parts = (struct cli_parts){NULL, 0};
    if (!cli_send(cli, request, timeout_ms, why))
        return false;
    while (!last) {
        Syncrep__Control__Response *response = cli_receive(cli, deadline_ms, why);
        if (!response)
            goto fail;
        Syncrep__Control__Response **larger = realloc(parts->list, (parts->n + 1) * sizeof(*larger));
        if (larger)
            parts->list = larger;
        if (!larger || response->body_case != wanted) {
            sr_control_response_free(response);
            not_understood(cli, why);
            goto fail;
        }
        parts->list[parts->n++] = response;
        last = response->last;
    }
    return true;

fail:
    cli_parts_free(parts);
    return false;
}
