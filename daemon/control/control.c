/* control.c - the control socket: life of the server, and accepting clients.
 *
 * Raw descriptors under uv_poll rather than uv_pipe: its write queue and its reading have no bound.
 *
 * Invariants
 *   1. At most CLIENTS_MAX clients.  At the bound the one idle longest makes room; if none is idle the newcomer gets
 *      one "busy" error.
 *   2. Running out of descriptors stops accepting for ACCEPT_RETRY_MS; it never spins.
 *   3. The socket file is removed only if it is the one that this server made.
 *   4. Nothing a client sends or leaves undone can block the loop.
 *
 * No durable state: after a crash the next start replaces the stale socket; operations belong to their modules.
 */
#include "control/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* ---- log ---- */

void control_log(struct sr_control *control, enum sr_log_level level, const char *format, ...)
{
    char text[400];
    va_list ap;

    if (!control->callbacks.log)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    control->callbacks.log(control->arg, level, text);
}

/* Complaints about clients: a looping script must not fill the log. */
void control_log_bad(struct sr_control *control, const char *format, ...)
{
    uint64_t now = uv_now(control->loop);
    char text[400];
    va_list ap;

    if (now - control->bad_window_ms >= 10000) {
        if (control->bad_unlogged > 0)
            control_log(control, SR_LOG_WARNING, "control: %u more complaints about clients were not logged",
                        control->bad_unlogged);
        control->bad_window_ms = now;
        control->bad_logged = control->bad_unlogged = 0;
    }
    if (control->bad_logged >= BAD_LOGS_PER_10_S) {
        control->bad_unlogged++;
        return;
    }
    control->bad_logged++;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    control_log(control, SR_LOG_WARNING, "control: %s", text);
}

/* ---- the socket file ---- */

static enum sr_error make_parent(const char *path, char *error_text, size_t error_text_bytes)
{
    char folder[108];

    snprintf(folder, sizeof(folder), "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0755) != 0 && errno != EEXIST) {
            snprintf(error_text, error_text_bytes, "control socket %s: cannot make folder %s: %s", path, folder,
                     strerror(errno));
            return sr_error_from_errno(errno);
        }
        *slash = '/';
    }
    return SR_OK;
}

static int unix_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Makes way at the path: nothing there, or a socket on which nobody answers. */
static enum sr_error clear_path(const struct sockaddr_un *address, char *error_text, size_t error_text_bytes)
{
    const char *path = address->sun_path;
    struct stat st;
    int fd, result, errnum;

    if (lstat(path, &st) != 0) {
        if (errno == ENOENT)
            return SR_OK;
        snprintf(error_text, error_text_bytes, "control socket %s: %s", path, strerror(errno));
        return sr_error_from_errno(errno);
    }
    if (!S_ISSOCK(st.st_mode)) {
        snprintf(error_text, error_text_bytes,
                 "control socket %s: something that is not a socket is there; move it away or configure another path",
                 path);
        return SR_E_EXISTS;
    }
    fd = unix_socket();
    if (fd < 0) {
        snprintf(error_text, error_text_bytes, "control socket %s: %s", path, strerror(errno));
        return sr_error_from_errno(errno);
    }
    result = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    errnum = errno;
    close(fd);
    /* EAGAIN: somebody listens, with a full backlog. */
    if (result == 0 || errnum == EAGAIN || errnum == EINPROGRESS) {
        snprintf(error_text, error_text_bytes, "control socket %s: another daemon answers there", path);
        return SR_E_LOCKED;
    }
    if (errnum != ECONNREFUSED) {
        snprintf(error_text, error_text_bytes, "control socket %s: cannot tell whether it is in use: %s", path,
                 strerror(errnum));
        return sr_error_from_errno(errnum);
    }
    if (unlink(path) != 0 && errno != ENOENT) {
        snprintf(error_text, error_text_bytes, "control socket %s: cannot remove the stale one: %s", path,
                 strerror(errno));
        return sr_error_from_errno(errno);
    }
    return SR_OK;
}

static enum sr_error listen_at(struct sr_control *control, const struct sr_control_options *options, char *error_text,
                               size_t error_text_bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    enum sr_error error;

    if (options->path[0] != '/' || strlen(options->path) >= sizeof(address.sun_path)) {
        snprintf(error_text, error_text_bytes, "control socket %s: not an absolute path of at most %zu bytes",
                 options->path, sizeof(address.sun_path) - 1);
        return SR_E_INVALID;
    }
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", options->path);
    snprintf(control->path, sizeof(control->path), "%s", options->path);
    error = make_parent(options->path, error_text, error_text_bytes);
    if (error == SR_OK)
        error = clear_path(&address, error_text, error_text_bytes);
    if (error != SR_OK)
        return error;
    control->listen_fd = unix_socket();
    /* The mode of the descriptor becomes that of the file, so at no time can others connect. */
    if (control->listen_fd < 0 || fchmod(control->listen_fd, 0660) != 0 ||
        bind(control->listen_fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        goto fail;
    if (options->group != (gid_t)-1 && chown(control->path, (uid_t)-1, options->group) != 0)
        goto fail_bound;
    if (chmod(control->path, 0660) != 0 || listen(control->listen_fd, 64) != 0 || stat(control->path, &st) != 0)
        goto fail_bound;
    control->socket_dev = st.st_dev;
    control->socket_ino = st.st_ino;
    return SR_OK;

fail_bound:
    error = sr_error_from_errno(errno);
    snprintf(error_text, error_text_bytes, "control socket %s: %s", control->path, strerror(errno));
    unlink(control->path);
    close(control->listen_fd);
    return error;
fail:
    error = sr_error_from_errno(errno);
    snprintf(error_text, error_text_bytes, "control socket %s: %s", control->path, strerror(errno));
    if (control->listen_fd >= 0)
        close(control->listen_fd);
    return error;
}

/* ---- accepting ---- */

static void on_listen(uv_poll_t *poll, int status, int events);

static void on_accept_again(uv_timer_t *timer)
{
    struct sr_control *control = timer->data;

    control->accept_paused = false;
    uv_poll_start(&control->listen_poll, UV_READABLE, on_listen);
}

static void pause_accepting(struct sr_control *control, int errnum)
{
    control_log_bad(control, "cannot accept a client: %s; trying again", strerror(errnum));
    control->accept_paused = true;
    uv_poll_stop(&control->listen_poll);
    uv_timer_start(&control->accept_timer, on_accept_again, ACCEPT_RETRY_MS, 0);
}

/* Best effort: the newcomer has an empty socket buffer, so one short frame fits. */
static void turn_away(int fd)
{
    Syncrep__Control__Error error = SYNCREP__CONTROL__ERROR__INIT;
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    uint8_t frame[512];

    error.code = SR_E_BUSY;
    error.name = (char *)sr_error_name(SR_E_BUSY);
    error.exit = sr_control_exit_class(SR_E_BUSY);
    error.text = (char *)"the daemon serves as many control clients as it can; try again";
    response.version = SR_CONTROL_VERSION;
    response.last = true;
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_ERROR;
    response.error = &error;
    size_t length = syncrep__control__response__get_packed_size(&response);
    SR_ASSERT(length + SR_CONTROL_HEADER_BYTES <= sizeof(frame));
    sr_control_header_put(frame, (uint32_t)length);
    syncrep__control__response__pack(&response, frame + SR_CONTROL_HEADER_BYTES);
    (void)!send(fd, frame, length + SR_CONTROL_HEADER_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void on_listen(uv_poll_t *poll, int status, int events)
{
    struct sr_control *control = poll->data;

    (void)status;
    (void)events;
    /* A few at a time: others on this loop have a turn in between, and the poll is level-triggered. */
    for (int i = 0; i < 8; i++) {
        int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                pause_accepting(control, errno);
            return;
        }
        if (control->n_clients >= CLIENTS_MAX && !client_evict_idle(control)) {
            control_log_bad(control, "%u clients are busy, a new one was turned away", CLIENTS_MAX);
            turn_away(fd);
            continue;
        }
        client_new(control, fd);
    }
}

/* ---- life ---- */

static uint64_t or_default(uint32_t value, uint64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static void init_handles(struct sr_control *control)
{
    uv_timer_t *timers[] = {&control->accept_timer, &control->wait_timer, &control->recheck_timer};

    for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++) {
        uv_timer_init(control->loop, timers[i]);
        timers[i]->data = control;
        control->open_handles++;
    }
    control->listen_poll.data = control;
    control->open_handles++;
    uv_poll_start(&control->listen_poll, UV_READABLE, on_listen);
}

enum sr_error sr_control_open(uv_loop_t *loop, const struct sr_control_options *options,
                              const struct sr_control_callbacks *callbacks, void *arg, struct sr_control **control,
                              char *error_text, size_t error_text_bytes)
{
    struct sr_control *c = calloc(1, sizeof(*c));
    enum sr_error error = SR_E_NO_MEMORY;

    SR_ASSERT(callbacks->request);
    snprintf(error_text, error_text_bytes, "control socket %s: out of memory", options->path);
    if (!c)
        return error;
    c->events = calloc(EVENTS_KEPT, sizeof(*c->events));
    if (!c->events)
        goto fail;
    c->loop = loop;
    c->callbacks = *callbacks;
    c->arg = arg;
    c->request_deadline_ms = or_default(options->request_deadline_ms, 30000);
    c->idle_ms = or_default(options->idle_ms, 60000);
    c->stuck_ms = or_default(options->stuck_ms, 10000);
    snprintf(c->site, sizeof(c->site), "%s", options->site);
    TAILQ_INIT(&c->clients);
    for (size_t i = 0; i < 3; i++)
        TAILQ_INIT(&c->calls[i]);
    error = listen_at(c, options, error_text, error_text_bytes);
    if (error != SR_OK)
        goto fail;
    if (uv_poll_init(loop, &c->listen_poll, c->listen_fd) != 0) {
        snprintf(error_text, error_text_bytes, "control socket %s: cannot be watched", c->path);
        error = SR_E_IO;
        goto fail_listening;
    }
    init_handles(c);
    *control = c;
    return SR_OK;

fail_listening:
    unlink(c->path);
    close(c->listen_fd);
fail:
    free(c->events);
    free(c);
    return error;
}

void control_handle_closed(struct sr_control *control)
{
    SR_ASSERT(control->open_handles > 0);
    if (--control->open_handles > 0)
        return;
    SR_ASSERT(control->closing && control->n_clients == 0);
    if (control->closed_cb)
        control->closed_cb(control->closed_arg);
    free(control->events);
    free(control);
}

static void on_closed(uv_handle_t *handle)
{
    control_handle_closed(handle->data);
}

void sr_control_close(struct sr_control *control, void (*closed_cb)(void *arg), void *closed_arg)
{
    struct stat st;

    SR_ASSERT(!control->closing);
    control->closing = true;
    control->closed_cb = closed_cb;
    control->closed_arg = closed_arg;
    uv_close((uv_handle_t *)&control->listen_poll, on_closed);
    close(control->listen_fd);
    if (lstat(control->path, &st) == 0 && st.st_dev == control->socket_dev && st.st_ino == control->socket_ino)
        unlink(control->path);
    call_orphan_all(control);
    while (!TAILQ_EMPTY(&control->clients))
        client_close(TAILQ_FIRST(&control->clients));
    uv_close((uv_handle_t *)&control->accept_timer, on_closed);
    uv_close((uv_handle_t *)&control->wait_timer, on_closed);
    uv_close((uv_handle_t *)&control->recheck_timer, on_closed);
}
