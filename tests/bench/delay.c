/* delay.c - bench-delay: a longer wire.  A TCP proxy that hands on every byte a fixed time after it came, each way.
 *
 *   bench-delay MICROSECONDS LISTEN TARGET [LISTEN TARGET]...      addresses: IPV4:PORT; port 0 of LISTEN: any
 *
 * Prints "listening IPV4:PORT" for each pair of addresses, in their order.  Ends with SIGTERM, or when its standard
 * input ends (one that cannot be waited for, such as /dev/null, is not looked at), so that it never outlives a script
 * that holds the other end of a pipe.
 *
 * One thread waits for whatever is readable, writable or due next.  What a read gave is a *mark*: its end in the
 * stream and the moment at which it is due.  A direction holds its bytes in a ring of 64 MiB, which is the bytes in
 * flight of 5 ms at 12 GB/s, so the throughput is that of copying, not of a window.
 *
 * Invariants
 *   D1  Order and content are those of the source: one ring, written and read at growing positions only.
 *   D2  No byte leaves before its mark is due.  Marks of a direction are due in their order, for the delay is fixed.
 *   D3  Memory is bounded: when the ring or its marks are full the source is not read, and its sender has to wait.
 *   D4  The end of a source is a mark like any other: it is passed on after all bytes, and as late.  When both ends
 *       have been passed on, or when a socket fails, the connection is over and both sockets are closed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define RING_BYTES      ((uint64_t)64 << 20)
#define MARKS_MAX       16384u
#define READ_MAX        ((uint64_t)1 << 20) /* of one direction at a time, so that the others are not late */
#define CONNECTIONS_MAX 64u
#define FORWARDS_MAX    16u
#define EVENTS_MAX      64
#define DELAY_MAX_US    10000000ul

#define NEVER UINT64_MAX

/* What an epoll event is about: a kind and an index. */
enum kind { KIND_STDIN, KIND_FORWARD, KIND_SOCKET };

struct mark {
    uint64_t end; /* position in the stream behind its last byte */
    uint64_t due_ns;
};

/* One direction.  Positions count bytes since the ring was last empty. */
struct pipe {
    uint8_t *ring;
    struct mark *marks;
    uint64_t head, tail; /* bytes [tail, head) are held */
    uint64_t mark_head, mark_tail;
    uint64_t end_due_ns; /* of the source's end; NEVER: it has not come */
    bool end_passed;
    bool blocked; /* the sink takes nothing at present */
};

/* pipes[i] leads from sockets[i] to the other one. */
struct connection {
    bool used, connecting;
    int sockets[2];
    uint32_t interest[2];
    struct pipe pipes[2];
};

struct forward {
    int listener;
    struct sockaddr_in target;
};

static struct connection connections[CONNECTIONS_MAX];
static struct forward forwards[FORWARDS_MAX];
static unsigned n_forwards;
static uint64_t delay_ns;
static int poller;

static _Noreturn void fail(const char *what)
{
    fprintf(stderr, "bench-delay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t tag(enum kind kind, unsigned index)
{
    return (uint64_t)kind << 32 | index;
}

static bool watch(int operation, int fd, uint32_t events, uint64_t data)
{
    struct epoll_event event = {.events = events, .data.u64 = data};
    return epoll_ctl(poller, operation, fd, &event) == 0;
}

/* ---- one direction --------------------------------------------------------------------------------------------- */

static bool pipe_has_room(const struct pipe *pipe)
{
    return pipe->end_due_ns == NEVER && pipe->head - pipe->tail < RING_BYTES &&
           pipe->mark_head - pipe->mark_tail < MARKS_MAX;
}

/* When there is something to do for the sink; NEVER while there is nothing, or while it takes nothing. */
static uint64_t pipe_due_ns(const struct pipe *pipe)
{
    if (pipe->blocked)
        return NEVER;
    if (pipe->mark_tail < pipe->mark_head)
        return pipe->marks[pipe->mark_tail % MARKS_MAX].due_ns;
    return pipe->end_passed ? NEVER : pipe->end_due_ns;
}

/* Takes what the source has, READ_MAX at most.  False: the socket failed. */
static bool pipe_read(struct pipe *pipe, int source)
{
    uint64_t taken = 0;
    while (taken < READ_MAX && pipe_has_room(pipe)) {
        if (pipe->head == pipe->tail) /* begin at the front again: memory that is in the cache */
            pipe->head = pipe->tail = 0;
        uint64_t at = pipe->head % RING_BYTES, room = RING_BYTES - (pipe->head - pipe->tail);
        if (room > RING_BYTES - at)
            room = RING_BYTES - at;
        ssize_t got = recv(source, pipe->ring + at, room < READ_MAX ? room : READ_MAX, 0);
        if (got < 0)
            return errno == EAGAIN || errno == EINTR;
        uint64_t due_ns = now_ns() + delay_ns;
        if (got == 0) {
            pipe->end_due_ns = due_ns;
            return true;
        }
        pipe->head += (uint64_t)got;
        taken += (uint64_t)got;
        pipe->marks[pipe->mark_head++ % MARKS_MAX] = (struct mark){.end = pipe->head, .due_ns = due_ns};
    }
    return true;
}

/* Hands on what is due.  False: the socket failed. */
static bool pipe_write(struct pipe *pipe, int sink, uint64_t time_ns)
{
    while (pipe_due_ns(pipe) <= time_ns) {
        if (pipe->mark_tail == pipe->mark_head) {
            pipe->end_passed = true;
            return shutdown(sink, SHUT_WR) == 0;
        }
        uint64_t end = pipe->tail, at = pipe->tail % RING_BYTES; /* all marks that are due, in one call */
        for (uint64_t m = pipe->mark_tail; m < pipe->mark_head && pipe->marks[m % MARKS_MAX].due_ns <= time_ns; m++)
            end = pipe->marks[m % MARKS_MAX].end;
        uint64_t length = end - pipe->tail;
        if (length > RING_BYTES - at)
            length = RING_BYTES - at;
        ssize_t sent = send(sink, pipe->ring + at, length, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN) {
            pipe->blocked = true;
            return true;
        }
        if (sent < 0)
            return false;
        pipe->tail += (uint64_t)sent;
        while (pipe->mark_tail < pipe->mark_head && pipe->marks[pipe->mark_tail % MARKS_MAX].end <= pipe->tail)
            pipe->mark_tail++;
    }
    return true;
}

static bool pipe_init(struct pipe *pipe)
{
    *pipe = (struct pipe){.end_due_ns = NEVER};
    pipe->marks = malloc(MARKS_MAX * sizeof(*pipe->marks));
    void *ring = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pipe->ring = ring == MAP_FAILED ? NULL : ring;
    return pipe->marks && pipe->ring;
}

static void pipe_free(struct pipe *pipe)
{
    free(pipe->marks);
    if (pipe->ring)
        munmap(pipe->ring, RING_BYTES);
}

/* ---- connections ----------------------------------------------------------------------------------------------- */

static void connection_end(struct connection *connection)
{
    for (int i = 0; i < 2; i++) {
        if (connection->sockets[i] >= 0)
            close(connection->sockets[i]);
        pipe_free(&connection->pipes[i]);
    }
    memset(connection, 0, sizeof(*connection));
}

/* Asks epoll for just what can be used: a full or blocked direction must not wake us again and again. */
static bool connection_watch(struct connection *connection)
{
    for (int i = 0; i < 2; i++) {
        bool out = connection->pipes[1 - i].blocked || (i == 1 && connection->connecting);
        uint32_t events = (pipe_has_room(&connection->pipes[i]) ? EPOLLIN : 0u) | (out ? EPOLLOUT : 0u);
        unsigned index = (unsigned)(connection - connections) * 2 + (unsigned)i;
        if (events != connection->interest[i] &&
            !watch(EPOLL_CTL_MOD, connection->sockets[i], events, tag(KIND_SOCKET, index)))
            return false;
        connection->interest[i] = events;
    }
    return true;
}

static bool connection_start(struct connection *connection, int client, const struct sockaddr_in *target)
{
    int one = 1;
    unsigned index = (unsigned)(connection - connections) * 2;
    connection->used = connection->connecting = true;
    connection->sockets[0] = client;
    connection->sockets[1] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool sound = pipe_init(&connection->pipes[0]);
    sound = pipe_init(&connection->pipes[1]) && sound && connection->sockets[1] >= 0;
    for (int i = 0; i < 2 && sound; i++)
        sound = setsockopt(connection->sockets[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0 &&
                watch(EPOLL_CTL_ADD, connection->sockets[i], 0, tag(KIND_SOCKET, index + (unsigned)i));
    if (!sound)
        return false;
    connection->pipes[0].blocked = true; /* until connected */
    if (connect(connection->sockets[1], (const struct sockaddr *)target, sizeof(*target)) < 0 && errno != EINPROGRESS)
        return false;
    return connection_watch(connection);
}

static void accept_one(const struct forward *forward)
{
    int client = accept4(forward->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client < 0)
        return; /* it has gone again */
    struct connection *connection = connections;
    while (connection < connections + CONNECTIONS_MAX && connection->used)
        connection++;
    if (connection == connections + CONNECTIONS_MAX)
        close(client);
    else if (!connection_start(connection, client, &forward->target))
        connection_end(connection);
}

/* Something happened at one of its sockets. */
static bool connection_event(struct connection *connection, int side, uint32_t events)
{
    if (side == 1 && connection->connecting && events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
        int error = 0;
        socklen_t size = sizeof(error);
        if (getsockopt(connection->sockets[1], SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)
            return false;
        connection->connecting = false;
    }
    if (events & EPOLLERR)
        return false;
    if (events & EPOLLHUP && connection->pipes[side].end_due_ns != NEVER) /* ended both ways: says so for ever */
        epoll_ctl(poller, EPOLL_CTL_DEL, connection->sockets[side], NULL);
    if (events & EPOLLOUT && !connection->connecting)
        connection->pipes[1 - side].blocked = false;
    if (events & EPOLLIN && !pipe_read(&connection->pipes[side], connection->sockets[side]))
        return false;
    return true;
}

/* Hands on what is due; the connection may be over then. */
static bool connection_pass(struct connection *connection, uint64_t time_ns)
{
    for (int i = 0; i < 2; i++)
        if (!pipe_write(&connection->pipes[i], connection->sockets[1 - i], time_ns))
            return false;
    if (connection->pipes[0].end_passed && connection->pipes[1].end_passed)
        return false;
    return connection_watch(connection);
}

/* ---- the loop -------------------------------------------------------------------------------------------------- */

static void handle(const struct epoll_event *event)
{
    unsigned index = (unsigned)(event->data.u64 & UINT32_MAX);
    char ignored[256];
    switch ((enum kind)(event->data.u64 >> 32)) {
    case KIND_STDIN:
        if (read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0)
            exit(0);
        return;
    case KIND_FORWARD:
        accept_one(&forwards[index]);
        return;
    case KIND_SOCKET: {
        struct connection *connection = &connections[index / 2];
        if (connection->used && !connection_event(connection, (int)(index % 2), event->events))
            connection_end(connection);
        return;
    }
    }
}

/* Hands on all that is due; returns when the next is. */
static uint64_t pass_all(void)
{
    uint64_t next_ns = NEVER, time_ns = now_ns();
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &connections[i];
        if (!connection->used)
            continue;
        if (!connection_pass(connection, time_ns)) {
            connection_end(connection);
            continue;
        }
        for (int side = 0; side < 2; side++) {
            uint64_t due_ns = pipe_due_ns(&connection->pipes[side]);
            if (due_ns < next_ns)
                next_ns = due_ns;
        }
    }
    return next_ns;
}

static _Noreturn void run(void)
{
    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        uint64_t next_ns = pass_all(), time_ns = now_ns();
        uint64_t wait_ns = next_ns > time_ns ? next_ns - time_ns : 0;
        struct timespec wait = {.tv_sec = (time_t)(wait_ns / 1000000000u), .tv_nsec = (long)(wait_ns % 1000000000u)};
        int n = epoll_pwait2(poller, events, EVENTS_MAX, next_ns == NEVER ? NULL : &wait, NULL);
        if (n < 0 && errno != EINTR)
            fail("epoll_pwait2");
        for (int i = 0; i < n; i++)
            handle(&events[i]);
    }
}

/* ---- start ----------------------------------------------------------------------------------------------------- */

static _Noreturn void misuse(const char *word)
{
    fprintf(stderr,
            "bench-delay: '%s' cannot be used\n"
            "usage: bench-delay MICROSECONDS LISTEN TARGET [LISTEN TARGET]...   addresses: IPV4:PORT\n",
            word);
    exit(2);
}

static unsigned long parse_number(const char *text, unsigned long most, const char *word)
{
    char *end;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    if (errno || end == text || *end || value > most || text[0] < '0' || text[0] > '9')
        misuse(word);
    return value;
}

static struct sockaddr_in parse_address(const char *word)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    char host[INET_ADDRSTRLEN];
    const char *colon = strrchr(word, ':');
    if (!colon || (size_t)(colon - word) >= sizeof(host))
        misuse(word);
    memcpy(host, word, (size_t)(colon - word));
    host[colon - word] = '\0';
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        misuse(word);
    address.sin_port = htons((uint16_t)parse_number(colon + 1, UINT16_MAX, word));
    return address;
}

static void listen_at(const char *word, const char *target)
{
    struct forward *forward = &forwards[n_forwards];
    struct sockaddr_in address = parse_address(word);
    socklen_t size = sizeof(address);
    char host[INET_ADDRSTRLEN];
    int one = 1;
    forward->target = parse_address(target);
    forward->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (forward->listener < 0 || setsockopt(forward->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(forward->listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(forward->listener, SOMAXCONN) < 0 ||
        getsockname(forward->listener, (struct sockaddr *)&address, &size) < 0 ||
        !watch(EPOLL_CTL_ADD, forward->listener, EPOLLIN, tag(KIND_FORWARD, n_forwards)))
        fail(word);
    inet_ntop(AF_INET, &address.sin_addr, host, sizeof(host));
    printf("listening %s:%u\n", host, (unsigned)ntohs(address.sin_port));
    n_forwards++;
}

int main(int argc, char **argv)
{
    if (argc < 4 || argc % 2 || (unsigned)argc / 2 - 1 > FORWARDS_MAX)
        misuse(argc < 2 ? "" : argv[argc - 1]);
    delay_ns = parse_number(argv[1], DELAY_MAX_US, argv[1]) * 1000u;
    poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0)
        fail("epoll_create1");
    prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul); /* ns; the usual 50 us would be most of a short delay */
    for (int i = 2; i < argc; i += 2)
        listen_at(argv[i], argv[i + 1]);
    if (!watch(EPOLL_CTL_ADD, STDIN_FILENO, EPOLLIN, tag(KIND_STDIN, 0)) && errno != EPERM && errno != EBADF)
        fail("standard input");
    fflush(stdout);
    run();
}
