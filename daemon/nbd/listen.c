/* listen.c - the sockets that accept.
 *
 * Invariants
 *   1. A connection that cannot be had is taken off the queue and closed, or the listener rests for a moment: a
 *      full descriptor table or a full house never makes the loop spin.
 *   2. One descriptor is kept in reserve for just that.
 *   3. At the cap the oldest handshake makes room, never a connection that has reached the transmission phase: hosts
 *      at work keep their connection, and a host that wants in gets in among strangers that only sit there.
 *   4. A Unix socket is replaced only if nobody listens on it, and removed only if it is the one we made.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "nbd/nbd_internal.h"

#define ACCEPTS_PER_TURN 16
#define REST_MS          200u
#define BACKLOG          256

bool nbd_spare_open(struct sr_nbd_server *server)
{
    if (server->spare_fd < 0)
        server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return server->spare_fd >= 0;
}

/* ---- accepting ------------------------------------------------------------------------------------------ */

/* The oldest handshake that had its chance makes room. */
static bool evict_one(struct sr_nbd_server *server)
{
    uint64_t now = nbd_server_now(server);
    struct conn *conn;

    TAILQ_FOREACH (conn, &server->conns, link) {
        if (conn->phase >= PHASE_TRANSMISSION)
            continue;
        if (now - conn->since_ms < server->config.evict_after_ms)
            return false; /* those behind it are younger */
        server->stats.evicted++;
        nbd_conn_abort(conn);
        return true;
    }
    return false;
}

static void rest(struct listener *listener)
{
    uv_poll_stop(&listener->poll);
    listener->paused = true;
    listener->server->listen_again_ms = nbd_server_now(listener->server) + REST_MS;
    nbd_server_need_tick(listener->server);
}

/* No descriptor left: take the connection off the queue with the spare one, and refuse it. */
static bool refuse_for_lack(struct listener *listener)
{
    struct sr_nbd_server *server = listener->server;
    int fd;

    if (server->spare_fd < 0)
        return false;
    close(server->spare_fd);
    server->spare_fd = -1;
    fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        close(fd);
    nbd_spare_open(server);
    if (fd < 0)
        return false;
    server->stats.refused_fds++;
    nbd_server_log(server, SR_LOG_WARNING, "nbd: no file descriptor left (RLIMIT_NOFILE): a connection was refused");
    return true;
}

/* A host that vanished without a word is found out, and its place given to others. */
static void set_keepalive(int fd)
{
    int on = 1, idle_s = 60, every_s = 15, tries = 4;

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

static void welcome(struct listener *listener, int fd)
{
    struct sr_nbd_server *server = listener->server;

    if (server->stats.connections >= server->config.max_connections && !evict_one(server)) {
        server->stats.refused_cap++;
        nbd_server_log(server, SR_LOG_WARNING, "nbd: %u connections are open: another was refused",
                       server->stats.connections);
        close(fd);
        return;
    }
    if (!listener->is_unix)
        set_keepalive(fd);
    nbd_conn_new(server, fd, listener->tls_mode);
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = (struct listener *)((char *)poll - offsetof(struct listener, poll));
    struct sr_nbd_server *server = listener->server;

    (void)events;
    if (status < 0) {
        rest(listener);
        return;
    }
    if (!nbd_spare_open(server)) {
        rest(listener);
        return;
    }
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            welcome(listener, fd);
            continue;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO)
            continue;
        if ((errno == EMFILE || errno == ENFILE) && (evict_one(server) || refuse_for_lack(listener)))
            continue;
        rest(listener); /* ENOMEM, ENOBUFS, or no way to get one off the queue */
        return;
    }
}

/* ---- sockets -------------------------------------------------------------------------------------------- */

static enum sr_error explain(char *why, size_t why_bytes, const char *what, const char *where, int errnum)
{
    snprintf(why, why_bytes, "cannot %s %s: %s", what, where, strerror(errnum));
    return sr_error_from_errno(errnum);
}

/* Takes fd over on success. */
static struct listener *listener_new(struct sr_nbd_server *server, int fd, enum sr_nbd_tls tls)
{
    struct listener *listener = calloc(1, sizeof *listener);

    if (!listener)
        return NULL;
    listener->server = server;
    listener->fd = fd;
    listener->tls_mode = tls;
    if (uv_poll_init(server->loop, &listener->poll, fd) != 0) {
        free(listener);
        return NULL;
    }
    listener->poll.data = listener;
    uv_poll_start(&listener->poll, UV_READABLE, on_acceptable);
    LIST_INSERT_HEAD(&server->listeners, listener, link);
    server->open_handles++;
    return listener;
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;
    struct sr_nbd_server *server = listener->server;

    free(listener->path);
    free(listener);
    nbd_server_release_handle(server);
}

void nbd_listener_close(struct listener *listener)
{
    struct stat now;

    LIST_REMOVE(listener, link);
    if (listener->path && lstat(listener->path, &now) == 0 && now.st_dev == listener->dev &&
        now.st_ino == listener->ino)
        unlink(listener->path);
    uv_poll_stop(&listener->poll);
    close(listener->fd);
    uv_close((uv_handle_t *)&listener->poll, on_listener_closed);
}

void nbd_listeners_resume(struct sr_nbd_server *server)
{
    struct listener *listener;

    server->listen_again_ms = 0;
    LIST_FOREACH (listener, &server->listeners, link) {
        if (listener->paused)
            uv_poll_start(&listener->poll, UV_READABLE, on_acceptable);
        listener->paused = false;
    }
}

static enum sr_error listen_address(struct sr_nbd_server *server, const struct addrinfo *address, enum sr_nbd_tls tls,
                                    uint16_t *bound_port, char *why, size_t why_bytes)
{
    struct sockaddr_storage bound;
    socklen_t bound_bytes = sizeof bound;
    enum sr_error error;
    int on = 1, fd;

    fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return explain(why, why_bytes, "make", "a TCP socket", errno);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &bound_bytes) != 0) {
        error = explain(why, why_bytes, "listen on", "the TCP address", errno);
        goto fail;
    }
    if (!listener_new(server, fd, tls)) {
        error = explain(why, why_bytes, "listen on", "the TCP address", ENOMEM);
        goto fail;
    }
    *bound_port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                    : ((struct sockaddr_in *)&bound)->sin_port);
    return SR_OK;
fail:
    close(fd);
    return error;
}

enum sr_error sr_nbd_listen_tcp(struct sr_nbd_server *server, const char *host, uint16_t port, enum sr_nbd_tls tls,
                                uint16_t *bound_port, char *why, size_t why_bytes)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses, *at;
    enum sr_error error = SR_E_INVALID;
    struct listener *before = LIST_FIRST(&server->listeners);
    char service[8];
    int rc;

    snprintf(service, sizeof service, "%u", port);
    rc = getaddrinfo(host, service, &hints, &addresses);
    if (rc != 0) {
        snprintf(why, why_bytes, "cannot resolve %s: %s", host ? host : "the wildcard address", gai_strerror(rc));
        return SR_E_INVALID;
    }
    for (at = addresses; at; at = at->ai_next) {
        if (at->ai_family != AF_INET && at->ai_family != AF_INET6)
            continue;
        if (at->ai_family == AF_INET6) /* the same offset in both, but let the compiler see the right type */
            ((struct sockaddr_in6 *)at->ai_addr)->sin6_port = htons(port);
        else
            ((struct sockaddr_in *)at->ai_addr)->sin_port = htons(port);
        error = listen_address(server, at, tls, &port, why, why_bytes); /* a port chosen for one is used for all */
        if (error) {
            while (LIST_FIRST(&server->listeners) != before)
                nbd_listener_close(LIST_FIRST(&server->listeners));
            break;
        }
    }
    freeaddrinfo(addresses);
    if (!error && bound_port)
        *bound_port = port;
    return error;
}

/* Make way for a socket at path: nothing there, or a socket that nobody listens on. */
static enum sr_error clear_path(const struct sockaddr_un *address, char *why, size_t why_bytes)
{
    const char *path = address->sun_path;
    struct stat found;
    int fd, rc, errnum;

    if (lstat(path, &found) != 0)
        return errno == ENOENT ? SR_OK : explain(why, why_bytes, "look at", path, errno);
    if (!S_ISSOCK(found.st_mode)) {
        snprintf(why, why_bytes, "%s exists and is not a socket", path);
        return SR_E_EXISTS;
    }
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return explain(why, why_bytes, "make", "a Unix socket", errno);
    rc = connect(fd, (const struct sockaddr *)address, sizeof *address);
    errnum = errno;
    close(fd);
    if (rc == 0 || errnum == EAGAIN || errnum == EINPROGRESS) { /* EAGAIN: its backlog is full, so somebody lives */
        snprintf(why, why_bytes, "another process listens on %s", path);
        return SR_E_BUSY;
    }
    if (errnum == ENOENT)
        return SR_OK;
    if (errnum != ECONNREFUSED)
        return explain(why, why_bytes, "try the socket", path, errnum);
    if (unlink(path) != 0 && errno != ENOENT)
        return explain(why, why_bytes, "remove the stale socket", path, errno);
    return SR_OK;
}

enum sr_error sr_nbd_listen_unix(struct sr_nbd_server *server, const char *path, enum sr_nbd_tls tls, char *why,
                                 size_t why_bytes)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct listener *listener;
    enum sr_error error;
    struct stat made;
    int fd;

    if (strlen(path) == 0 || strlen(path) >= sizeof address.sun_path) {
        snprintf(why, why_bytes, "a socket's path has 1 to %zu bytes: %s", sizeof address.sun_path - 1, path);
        return SR_E_INVALID;
    }
    memcpy(address.sun_path, path, strlen(path));
    error = clear_path(&address, why, why_bytes);
    if (error)
        return error;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return explain(why, why_bytes, "make", "a Unix socket", errno);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        error = explain(why, why_bytes, "bind", path, errno);
        goto fail_fd;
    }
    /* Nobody can connect before listen, so there is no moment with the wrong mode. */
    if (chmod(path, 0660) != 0 || lstat(path, &made) != 0 || listen(fd, BACKLOG) != 0) {
        error = explain(why, why_bytes, "listen on", path, errno);
        goto fail_path;
    }
    listener = listener_new(server, fd, tls);
    if (!listener) {
        error = explain(why, why_bytes, "listen on", path, ENOMEM);
        goto fail_path;
    }
    listener->is_unix = true;
    listener->dev = made.st_dev;
    listener->ino = made.st_ino;
    listener->path = strdup(path); /* without memory the socket stays behind; the next start replaces it */
    return SR_OK;
fail_path:
    unlink(path);
fail_fd:
    close(fd);
    return error;
}
