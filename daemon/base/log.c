/* log.c - the ring between those who log and the one thread that writes.
 *
 *     sr_log  ->  ring (bounded)  ->  writer thread  ->  sink
 *
 * Invariants
 *   1. No caller waits for the sink: they hold the lock to copy one line and for nothing else.  The writer holds
 *      it to copy one line out, never across a system call that can wait.
 *   2. A line that does not reach the sink is counted in `dropped`; the writer tells the count once a line got
 * through.
 *   3. The writer blocks every signal, so a broken pipe is an error code here and no SIGPIPE.
 *   4. The descriptor is the log's own duplicate.
 *
 * A crash loses the lines still in the ring, at most RING_BYTES; nothing else depends on them.
 */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log_internal.h"

#define RING_BYTES       (256 * 1024)
#define NOTE_INTERVAL_MS 1000 /* while lines go on being dropped, tell so once in that time */
#define CLOSE_GRACE_MS   200  /* for the writer to notice the deadline; past it, it is left behind */

enum state { STATE_OFF, STATE_ON, STATE_CLOSING, STATE_LEFT_BEHIND };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake; /* on CLOCK_MONOTONIC */
    pthread_t writer;
    enum state state;
    bool finished; /* the writer has ended */
    uint64_t deadline_ms;
    int fd, stop_fd;
    enum sr_log_format format;
    size_t head, used; /* ring: each line is a 16-bit length and its bytes */
    uint64_t told, noted_ms;
    bool torn; /* part of a line went out before the sink failed */
    struct sr_log_limits limits;
    char ring[RING_BYTES];
} the_log = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .stop_fd = -1};

static atomic_int max_level = SR_LOG_INFO;
static atomic_uint_fast64_t dropped;

static uint64_t clock_ms(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- the ring; all with the lock held ---- */

static void ring_copy_in(size_t at, const void *from, size_t bytes)
{
    size_t first = RING_BYTES - at < bytes ? RING_BYTES - at : bytes;

    memcpy(the_log.ring + at, from, first);
    memcpy(the_log.ring, (const char *)from + first, bytes - first);
}

static void ring_copy_out(size_t at, void *to, size_t bytes)
{
    size_t first = RING_BYTES - at < bytes ? RING_BYTES - at : bytes;

    memcpy(to, the_log.ring + at, first);
    memcpy((char *)to + first, the_log.ring, bytes - first);
}

static bool ring_push(const char *line, size_t bytes)
{
    uint16_t length = (uint16_t)bytes;

    SR_ASSERT(bytes <= SR_LOG_LINE_BYTES);
    if (RING_BYTES - the_log.used < sizeof(length) + bytes)
        return false;
    size_t at = (the_log.head + the_log.used) % RING_BYTES;
    ring_copy_in(at, &length, sizeof(length));
    ring_copy_in((at + sizeof(length)) % RING_BYTES, line, bytes);
    the_log.used += sizeof(length) + bytes;
    return true;
}

static size_t ring_pop(char line[SR_LOG_LINE_BYTES])
{
    uint16_t length;

    if (the_log.used == 0)
        return 0;
    ring_copy_out(the_log.head, &length, sizeof(length));
    SR_ASSERT(length <= SR_LOG_LINE_BYTES);
    ring_copy_out((the_log.head + sizeof(length)) % RING_BYTES, line, length);
    the_log.head = (the_log.head + sizeof(length) + length) % RING_BYTES;
    the_log.used -= sizeof(length) + length;
    return length;
}

/* ---- the writer ---- */

/* Waits until the sink takes bytes; false once closing and past the deadline.  The lock is not held. */
static bool wait_writable(void)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = the_log.fd, .events = POLLOUT}, {.fd = the_log.stop_fd, .events = POLLIN}};
        int timeout_ms = -1;
        pthread_mutex_lock(&the_log.lock);
        bool closing = the_log.state == STATE_CLOSING;
        uint64_t deadline_ms = the_log.deadline_ms;
        pthread_mutex_unlock(&the_log.lock);
        if (closing) {
            uint64_t now_ms = clock_ms(CLOCK_MONOTONIC);
            if (now_ms >= deadline_ms)
                timeout_ms = 0;
            else
                timeout_ms = deadline_ms - now_ms > 1000 ? 1000 : (int)(deadline_ms - now_ms);
        }
        int n = poll(fds, closing ? 1 : 2, timeout_ms);
        if (n < 0 && errno != EINTR)
            return true; /* let write() find out */
        if (n > 0 && fds[0].revents != 0)
            return true; /* an error shows in write() */
        if (closing && timeout_ms == 0)
            return false;
    }
}

/* The whole line, or false.  The lock is not held. */
static bool write_whole(const char *bytes, size_t n)
{
    size_t done = 0;

    while (done < n) {
        if (the_log.fd < 0 || !wait_writable())
            break;
        ssize_t written = write(the_log.fd, bytes + done, n - done);
        if (written < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (written <= 0)
            break;
        done += (size_t)written;
    }
    if (done > 0)
        the_log.torn = done < n;
    return done == n;
}

static bool write_line(const char *line, size_t bytes)
{
    if (the_log.torn && !write_whole("\n", 1))
        return false;
    return write_whole(line, bytes);
}

/* After a line got through: tell how many did not.  Not for each while they go on being dropped. */
static void tell_dropped(bool ring_empty)
{
    uint64_t count = atomic_load(&dropped) - the_log.told;
    uint64_t now_ms = clock_ms(CLOCK_MONOTONIC);
    char message[96], line[SR_LOG_LINE_BYTES];

    if (count == 0 || (!ring_empty && now_ms - the_log.noted_ms < NOTE_INTERVAL_MS))
        return;
    snprintf(message, sizeof(message), "%llu log lines were dropped because the log did not take them",
             (unsigned long long)count);
    size_t bytes = sr_log_format_line(line, SR_LOG_WARNING, the_log.format, clock_ms(CLOCK_REALTIME), message);
    if (!write_line(line, bytes))
        return;
    the_log.told += count;
    the_log.noted_ms = now_ms;
}

static void push_repeats(const struct sr_log_limit_entry *entry)
{
    char message[SR_LOG_MESSAGE_BYTES], line[SR_LOG_LINE_BYTES];

    snprintf(message, sizeof(message), "%s (repeated %llu times)", entry->text, (unsigned long long)entry->repeats);
    size_t bytes = sr_log_format_line(line, entry->level, the_log.format, clock_ms(CLOCK_REALTIME), message);
    if (!ring_push(line, bytes))
        atomic_fetch_add(&dropped, 1);
}

/* Sleeps until there is a line, a count of repeats is due, or the log closes.  The lock is held. */
static void wait_for_work(void)
{
    while (the_log.used == 0 && the_log.state == STATE_ON) {
        struct sr_log_limit_entry due;
        uint64_t next_ms;
        if (sr_log_limits_due(&the_log.limits, clock_ms(CLOCK_MONOTONIC), &due, &next_ms)) {
            push_repeats(&due);
        } else if (next_ms == UINT64_MAX) {
            pthread_cond_wait(&the_log.wake, &the_log.lock);
        } else {
            struct timespec until = {.tv_sec = (time_t)(next_ms / 1000), .tv_nsec = (long)(next_ms % 1000) * 1000000};
            pthread_cond_timedwait(&the_log.wake, &the_log.lock, &until);
        }
    }
}

static void *writer_main(void *unused)
{
    char line[SR_LOG_LINE_BYTES];

    (void)unused;
    pthread_mutex_lock(&the_log.lock);
    for (;;) {
        wait_for_work();
        size_t bytes = ring_pop(line);
        if (bytes == 0)
            break; /* closing, and everything is written */
        bool ring_empty = the_log.used == 0;
        pthread_mutex_unlock(&the_log.lock);
        if (write_line(line, bytes))
            tell_dropped(ring_empty);
        else
            atomic_fetch_add(&dropped, 1);
        pthread_mutex_lock(&the_log.lock);
    }
    the_log.finished = true;
    pthread_cond_broadcast(&the_log.wake);
    pthread_mutex_unlock(&the_log.lock);
    return NULL;
}

/* ---- life ---- */

static int start_writer(void)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int fault = pthread_create(&the_log.writer, NULL, writer_main, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return fault;
}

static enum sr_error prepare(enum sr_log_format format, int fd)
{
    pthread_condattr_t attributes;

    /* First, before anything of ours takes a closed fd's number.  -1: no sink, all lines are dropped and counted. */
    the_log.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    the_log.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (the_log.stop_fd < 0) {
        int errnum = errno;
        close(the_log.fd);
        the_log.fd = -1;
        return sr_error_from_errno(errnum);
    }
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&the_log.wake, &attributes);
    pthread_condattr_destroy(&attributes);
    the_log.format = format;
    the_log.head = the_log.used = 0;
    the_log.torn = the_log.finished = false;
    the_log.told = atomic_load(&dropped);
    the_log.noted_ms = 0;
    memset(&the_log.limits, 0, sizeof(the_log.limits));
    return SR_OK;
}

static void release(void)
{
    if (the_log.fd >= 0)
        close(the_log.fd);
    close(the_log.stop_fd);
    the_log.fd = the_log.stop_fd = -1;
    pthread_cond_destroy(&the_log.wake);
    the_log.state = STATE_OFF;
}

enum sr_error sr_log_init(enum sr_log_level level, enum sr_log_format format, int fd)
{
    enum sr_error error = SR_E_BUSY;

    pthread_mutex_lock(&the_log.lock);
    if (the_log.state != STATE_OFF)
        goto out;
    error = prepare(format, fd);
    if (error != SR_OK)
        goto out;
    the_log.state = STATE_ON;
    int fault = start_writer();
    if (fault != 0) {
        error = sr_error_from_errno(fault);
        release();
        goto out;
    }
    atomic_store(&max_level, (int)level);
out:
    pthread_mutex_unlock(&the_log.lock);
    return error;
}

void sr_log_close(uint32_t timeout_ms)
{
    pthread_mutex_lock(&the_log.lock);
    if (the_log.state != STATE_ON) {
        pthread_mutex_unlock(&the_log.lock);
        return;
    }
    for (size_t i = 0; i < SR_LOG_LIMIT_KEYS; i++)
        if (the_log.limits.entries[i].used && the_log.limits.entries[i].repeats > 0)
            push_repeats(&the_log.limits.entries[i]);
    the_log.state = STATE_CLOSING;
    the_log.deadline_ms = clock_ms(CLOCK_MONOTONIC) + timeout_ms;
    ssize_t n = write(the_log.stop_fd, &(uint64_t){1}, sizeof(uint64_t));
    SR_ASSERT(n == (ssize_t)sizeof(uint64_t));
    pthread_cond_broadcast(&the_log.wake);

    uint64_t until_ms = the_log.deadline_ms + CLOSE_GRACE_MS;
    struct timespec until = {.tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (long)(until_ms % 1000) * 1000000};
    int waited = 0;
    while (!the_log.finished && waited == 0)
        waited = pthread_cond_timedwait(&the_log.wake, &the_log.lock, &until);
    if (!the_log.finished) {
        /* it sits in a write() that nothing ends; what it uses is static, so it may stay behind */
        the_log.state = STATE_LEFT_BEHIND;
        pthread_detach(the_log.writer);
        pthread_mutex_unlock(&the_log.lock);
        return;
    }
    pthread_mutex_unlock(&the_log.lock);
    pthread_join(the_log.writer, NULL);
    pthread_mutex_lock(&the_log.lock);
    release();
    pthread_mutex_unlock(&the_log.lock);
}

void sr_log_set_level(enum sr_log_level level)
{
    atomic_store(&max_level, (int)level);
}

bool sr_log_enabled(enum sr_log_level level)
{
    return (int)level <= atomic_load_explicit(&max_level, memory_order_relaxed);
}

uint64_t sr_log_dropped(void)
{
    return atomic_load(&dropped);
}

/* ---- lines ---- */

/* Without a writer: to stderr, if it takes the line at once.  SIGPIPE would end the process, so it is held off and
 * taken back. */
static void write_directly(const char *line, size_t bytes)
{
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    sigset_t pipe_only, pending, before;
    bool written = false;

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    if (poll(&fd, 1, 0) == 1 && (fd.revents & POLLOUT) != 0) {
        written = write(STDERR_FILENO, line, bytes) == (ssize_t)bytes;
        if (!written && errno == EPIPE && !sigismember(&pending, SIGPIPE))
            sigtimedwait(&pipe_only, NULL, &(struct timespec){0});
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!written)
        atomic_fetch_add(&dropped, 1);
}

static void submit(enum sr_log_level level, const char *message)
{
    char line[SR_LOG_LINE_BYTES];

    pthread_mutex_lock(&the_log.lock);
    enum state state = the_log.state;
    size_t bytes = sr_log_format_line(line, level, the_log.format, clock_ms(CLOCK_REALTIME), message);
    if (state == STATE_ON) {
        if (ring_push(line, bytes))
            pthread_cond_signal(&the_log.wake);
        else
            atomic_fetch_add(&dropped, 1);
    }
    pthread_mutex_unlock(&the_log.lock);
    if (state != STATE_ON)
        write_directly(line, bytes);
}

static void format_message(char message[SR_LOG_MESSAGE_BYTES], const char *format, va_list args)
{
    int n = vsnprintf(message, SR_LOG_MESSAGE_BYTES, format, args);

    if (n < 0)
        snprintf(message, SR_LOG_MESSAGE_BYTES, "unprintable message \"%s\"", format);
    else if (n >= SR_LOG_MESSAGE_BYTES)
        memcpy(message + SR_LOG_MESSAGE_BYTES - sizeof("..."), "...", sizeof("..."));
}

void sr_log_va(enum sr_log_level level, const char *format, va_list args)
{
    char message[SR_LOG_MESSAGE_BYTES];

    if (!sr_log_enabled(level))
        return;
    format_message(message, format, args);
    submit(level, message);
}

void sr_log(enum sr_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    sr_log_va(level, format, args);
    va_end(args);
}

void sr_log_limited(enum sr_log_level level, const char *key, const char *format, ...)
{
    char message[SR_LOG_MESSAGE_BYTES];
    struct sr_log_limit_entry evicted;
    uint64_t repeats;
    va_list args;

    if (!sr_log_enabled(level))
        return;
    va_start(args, format);
    format_message(message, format, args);
    va_end(args);

    pthread_mutex_lock(&the_log.lock);
    bool now = sr_log_limits_hit(&the_log.limits, clock_ms(CLOCK_MONOTONIC), level, key, message, &repeats, &evicted);
    if (evicted.used && the_log.state == STATE_ON)
        push_repeats(&evicted);
    if (!now && the_log.state == STATE_ON)
        pthread_cond_signal(&the_log.wake); /* so that it knows when the count is due */
    pthread_mutex_unlock(&the_log.lock);
    if (now && repeats > 0) {
        size_t length = strlen(message);
        snprintf(message + length, sizeof(message) - length, " (repeated %llu times)", (unsigned long long)repeats);
    }
    if (now)
        submit(level, message);
}

void sr_log_limited_clear(const char *key)
{
    struct sr_log_limit_entry cleared;

    pthread_mutex_lock(&the_log.lock);
    if (sr_log_limits_clear(&the_log.limits, key, &cleared) && the_log.state == STATE_ON) {
        push_repeats(&cleared);
        pthread_cond_signal(&the_log.wake);
    }
    pthread_mutex_unlock(&the_log.lock);
}
