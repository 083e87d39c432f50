/* dial.c - the sockets of the peer link: listening, accepting, dialling, and what happens when descriptors run out.
 *
 * Two descriptors are kept back.  The reserve is for the peer: without any other free descriptor one more connection
 * is still accepted or dialled on it.  The spare is only ever used to accept a connection and close it, since one
 * that nobody accepts would wake the loop for ever.
 *
 * Invariants
 *  1. At most unauthenticated_max accepted connections have not said who they are.  A new one may push out the
 *     oldest, but not before that had LINK_ACCEPT_GRACE_MS to speak.
 *  2. At most one connection is being dialled; the next attempt waits for the back-off.
 */
#include "link/link_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/assert.h"

#define ACCEPT_REST_MS 100

static void start_dial(struct sr_link *link);

static int open_spare(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void dial_refill_reserve(struct sr_link *link)
{
    if (link->closed)
        return;
    if (link->reserve_fd < 0)
        link->reserve_fd = open_spare();
    if (link->spare_fd < 0)
        link->spare_fd = open_spare();
}

static bool out_of_descriptors(int errnum)
{
    return errnum == EMFILE || errnum == ENFILE;
}

/* "host:port", with the address as a number. */
static void format_address(const struct sockaddr_storage *address, bool with_port, char *text, size_t bytes)
{
    char host[48], port[8];
    socklen_t length = address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    bool six = address->ss_family == AF_INET6;

    if (getnameinfo((const struct sockaddr *)address, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, bytes, "an unknown address");
    else if (with_port)
        snprintf(text, bytes, "%s%s%s:%s", six ? "[" : "", host, six ? "]" : "", port);
    else
        snprintf(text, bytes, "%s", host);
}

/* ---- listening ---------------------------------------------------------------------------------------- */

static int listen_on(const struct addrinfo *at, uint16_t *port)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_storage bound;
    socklen_t length = sizeof bound;
    int one = 1, errnum;

    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (at->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, at->ai_addr, at->ai_addrlen) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &length) != 0) {
        errnum = errno;
        close(fd);
        errno = errnum;
        return -1;
    }
    *port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                              : ((struct sockaddr_in *)&bound)->sin_port);
    return fd;
}

enum sr_error dial_bind(struct sr_link *link, const struct sr_link_address *address, struct listener *listener,
                        char *text)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char service[8];
    int result;

    listener->link = link;
    snprintf(service, sizeof service, "%u", address->port);
    result = getaddrinfo(address->host, service, &hints, &found);
    if (result != 0) {
        snprintf(text, SR_LINK_TEXT_BYTES, "listen %s:%u: %s", address->host, address->port, gai_strerror(result));
        return SR_E_INVALID;
    }
    listener->fd = listen_on(found, &listener->port);
    result = errno;
    freeaddrinfo(found);
    if (listener->fd < 0) {
        snprintf(text, SR_LINK_TEXT_BYTES, "listen %s:%u: %s", address->host, address->port, strerror(result));
        return result == EADDRINUSE ? SR_E_BUSY : sr_error_from_errno(result);
    }
    return SR_OK;
}

uint16_t sr_link_port(const struct sr_link *link, size_t index)
{
    SR_ASSERT(index < link->n_listeners);
    return link->listeners[index].port;
}

/* ---- accepting ---------------------------------------------------------------------------------------- */

/* Room for one more stranger?  Invariant 1. */
static bool make_room(struct sr_link *link)
{
    struct conn *oldest = NULL;

    if (link->unauthenticated < link->config.unauthenticated_max)
        return true;
    for (struct conn *conn = link->conns; conn; conn = conn->next)
        if (conn->state < CONN_WAITING && !conn->dialled && (!oldest || conn->number < oldest->number))
            oldest = conn;
    if (!oldest || uv_now(link->loop) - oldest->created_ms < LINK_ACCEPT_GRACE_MS)
        return false;
    conn_end(oldest, SR_E_BUSY, SR_LINK_FAULTY, false,
             "gave no greeting and others wait (at most %u such connections)", link->config.unauthenticated_max);
    return true;
}

/* Accepts without a free descriptor: -1 if there is nothing to keep. */
static int accept_on_reserve(struct sr_link *link, int listener, struct sockaddr_storage *from, socklen_t *length)
{
    int fd = -1;

    if (link->reserve_fd >= 0) {
        close(link->reserve_fd);
        link->reserve_fd = -1;
        fd = accept4(listener, (struct sockaddr *)from, length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            link->reserve_fd = open_spare();
        return fd;
    }
    if (link->spare_fd >= 0) {
        close(link->spare_fd);
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            close(fd);
        link->spare_fd = open_spare();
    }
    return -1;
}

static void rest(struct sr_link *link)
{
    for (size_t i = 0; i < link->n_listeners; i++)
        if (link->listeners[i].open)
            uv_poll_stop(&link->listeners[i].poll);
    uv_timer_start(&link->accept_timer, dial_on_accept_timer, ACCEPT_REST_MS, 0);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    struct listener *listener = poll->data;
    struct sr_link *link = listener->link;

    (void)events;
    for (int i = 0; status == 0 && i < LINK_ACCEPT_BATCH && !link->closed; i++) {
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        char address[64];
        int fd;

        memset(&from, 0, sizeof from);
        fd = accept4(listener->fd, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && out_of_descriptors(errno)) {
            fd = accept_on_reserve(link, listener->fd, &from, &length);
            if (fd < 0) {
                link_log(link, SR_LOG_WARNING, "peer link: no free file descriptor for a connection (see ulimit -n)");
                rest(link);
                return;
            }
        }
        if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (fd < 0)
            continue; /* that one went away again */
        if (!make_room(link)) {
            close(fd);
            link->refused++;
            continue;
        }
        format_address(&from, false, address, sizeof address);
        conn_new(link, fd, false, false, address);
        link_note_state(link);
    }
}

void dial_on_accept_timer(uv_timer_t *timer)
{
    struct sr_link *link = timer->data;

    dial_refill_reserve(link);
    for (size_t i = 0; i < link->n_listeners; i++)
        if (link->listeners[i].open)
            uv_poll_start(&link->listeners[i].poll, UV_READABLE, on_connection);
}

void dial_listen(struct sr_link *link)
{
    for (size_t i = 0; i < link->n_listeners; i++) {
        struct listener *listener = &link->listeners[i];

        if (uv_poll_init(link->loop, &listener->poll, listener->fd) != 0) {
            link_log(link, SR_LOG_ERROR, "peer link: port %u cannot be watched", listener->port);
            continue;
        }
        listener->poll.data = listener;
        listener->open = true;
        link->handles++;
        uv_poll_start(&listener->poll, UV_READABLE, on_connection);
    }
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct listener *listener = handle->data;

    link_release(listener->link);
}

void dial_close(struct sr_link *link)
{
    for (size_t i = 0; i < link->n_listeners; i++) {
        struct listener *listener = &link->listeners[i];

        if (listener->open)
            uv_close((uv_handle_t *)&listener->poll, on_listener_closed);
        close(listener->fd);
    }
    if (link->spare_fd >= 0)
        close(link->spare_fd);
    if (link->reserve_fd >= 0)
        close(link->reserve_fd);
    if (link->resolving)
        uv_cancel((uv_req_t *)&link->resolve);
}

/* ---- dialling ----------------------------------------------------------------------------------------- */

static bool may_dial(const struct sr_link *link)
{
    if (link->closed || !link->started || !link->peer_host)
        return false;
    if (link->current || link->waiting || link->dialling || link->resolving)
        return false;
    return sr_uuid_is_none(&link->peer) || sr_uuid_compare(&link->config.site, &link->peer) < 0;
}

static uint64_t jittered(uint64_t ms)
{
    uint32_t random = 0;

    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
        random = (uint32_t)uv_hrtime();
    return ms / 2 + random % (ms / 2 + 1);
}

void dial_schedule(struct sr_link *link, bool failed)
{
    uint64_t wait_ms = link->config.retry_min_ms;

    if (failed && link->failures < 20)
        link->failures++;
    if (!may_dial(link) || uv_is_active((uv_handle_t *)&link->dial_timer))
        return;
    for (unsigned i = 1; i < link->failures && wait_ms < link->config.retry_max_ms; i++)
        wait_ms *= 2;
    if (wait_ms > link->config.retry_max_ms)
        wait_ms = link->config.retry_max_ms;
    uv_timer_start(&link->dial_timer, dial_on_timer, link->failures ? jittered(wait_ms) : 0, 0);
}

void dial_on_timer(uv_timer_t *timer)
{
    struct sr_link *link = timer->data;

    if (may_dial(link))
        start_dial(link);
    link_note_state(link);
}

static void dial_failed(struct sr_link *link, const char *text)
{
    char line[SR_LINK_TEXT_BYTES];

    snprintf(line, sizeof line, "dialling %.255s:%u: %s", link->peer_host, link->peer_port, text);
    link_report(link, &link->dial_reason, false, line);
    snprintf(link->last_error, sizeof link->last_error, "%s", line);
    link->refused++;
    dial_schedule(link, true);
}

static void take_addresses(struct sr_link *link, const struct addrinfo *found)
{
    link->n_addresses = link->next_address = 0;
    for (; found && link->n_addresses < LINK_ADDRESSES_MAX; found = found->ai_next)
        if (found->ai_addrlen <= sizeof link->addresses[0])
            memcpy(&link->addresses[link->n_addresses++], found->ai_addr, found->ai_addrlen);
}

static void connect_to(struct sr_link *link, const struct sockaddr_storage *address)
{
    socklen_t length = address->ss_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool connecting = false;
    char text[64];

    if (fd < 0 && out_of_descriptors(errno) && link->reserve_fd >= 0) {
        close(link->reserve_fd);
        link->reserve_fd = -1;
        fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    }
    if (fd < 0) {
        dial_failed(link, strerror(errno));
        return;
    }
    if (connect(fd, (const struct sockaddr *)address, length) != 0) {
        connecting = errno == EINPROGRESS || errno == EINTR;
        if (!connecting) {
            dial_failed(link, strerror(errno));
            close(fd);
            dial_refill_reserve(link);
            return;
        }
    }
    format_address(address, true, text, sizeof text);
    if (!conn_new(link, fd, true, connecting, text))
        dial_failed(link, "no memory");
}

static void on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct sr_link *link = request->data;

    link->resolving = false;
    if (!link->closed) {
        take_addresses(link, status == 0 ? found : NULL);
        if (link->n_addresses == 0)
            dial_failed(link, status ? uv_strerror(status) : "the name has no address");
        else if (may_dial(link))
            connect_to(link, &link->addresses[link->next_address++]);
        link_note_state(link);
    }
    uv_freeaddrinfo(found);
    link_release(link);
}

/* The next address of the last answer, or a new question.  A numeric address needs no thread and no descriptor. */
static void start_dial(struct sr_link *link)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    struct addrinfo *found = NULL;
    char service[8];
    int result;

    if (link->next_address < link->n_addresses) {
        connect_to(link, &link->addresses[link->next_address++]);
        return;
    }
    snprintf(service, sizeof service, "%u", link->peer_port);
    if (getaddrinfo(link->peer_host, service, &hints, &found) == 0) {
        take_addresses(link, found);
        freeaddrinfo(found);
        connect_to(link, &link->addresses[link->next_address++]);
        return;
    }
    hints.ai_flags = AI_NUMERICSERV;
    link->resolve.data = link;
    result = uv_getaddrinfo(link->loop, &link->resolve, on_resolved, link->peer_host, service, &hints);
    if (result != 0) {
        dial_failed(link, uv_strerror(result));
        return;
    }
    link->resolving = true;
    link->handles++;
}

enum sr_error sr_link_set_peer_address(struct sr_link *link, const struct sr_link_address *address)
{
    char *host = strdup(address->host);

    if (!host)
        return SR_E_NO_MEMORY;
    free(link->peer_host);
    link->peer_host = host;
    link->peer_port = address->port;
    link->n_addresses = link->next_address = 0;
    dial_schedule(link, false);
    return SR_OK;
}
