/* shim.c - preloaded into a daemon whose store uses threads: makes stable-storage calls slow, and writes down when they were.
 *
 * Only files below the folder SHIM_MATCH count.  Each call there is made, is held back for SHIM_DELAY_MS before it returns,
 * and leaves one line in the file SHIM_LOG:
 *
 *     NAME BEGIN END OFFSET LENGTH STABLE      times of CLOCK_MONOTONIC in ns, END as the caller sees it; STABLE is 1 if
 *                                              what was written is on stable storage when the call returns
 *
 * SHIM_LIE=1 is a planted bug: calls return at once while the log still says when they should have: like a daemon that
 * answers before its call returned.  A test that does not fail then shows nothing.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int matches(int fd)
{
    const char *match = getenv("SHIM_MATCH");
    char link[64], path[4096];

    if (!match)
        return 0;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n <= 0)
        return 0;
    path[n] = '\0';
    return strncmp(path, match, strlen(match)) == 0;
}

static void note(const char *name, uint64_t begin_ns, int64_t offset, int64_t length, int stable)
{
    const char *log = getenv("SHIM_LOG"), *delay = getenv("SHIM_DELAY_MS");
    uint64_t delay_ns = delay ? strtoull(delay, NULL, 10) * 1000000u : 0, end_ns;
    struct timespec pause = {(time_t)(delay_ns / 1000000000u), (long)(delay_ns % 1000000000u)};
    char line[256];

    if (getenv("SHIM_LIE")) {
        end_ns = now_ns() + delay_ns;
    } else {
        nanosleep(&pause, NULL);
        end_ns = now_ns();
    }
    int n = snprintf(line, sizeof(line), "%s %llu %llu %lld %lld %d\n", name, (unsigned long long)begin_ns,
                     (unsigned long long)end_ns, (long long)offset, (long long)length, stable);
    int fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        (void)!write(fd, line, (size_t)n);
        close(fd);
    }
}

static void *real(const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);

    if (!function)
        abort();
    return function;
}

static int synchronous(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && (flags & O_DSYNC) != 0;
}

ssize_t pwritev2(int fd, const struct iovec *vectors, int n, off_t offset, int flags)
{
    ssize_t (*call)(int, const struct iovec *, int, off_t, int) = real("pwritev2");
    uint64_t begin = now_ns();
    ssize_t result = call(fd, vectors, n, offset, flags);

    if (matches(fd))
        note("write", begin, offset, result, (flags & (RWF_DSYNC | RWF_SYNC)) != 0 || synchronous(fd));
    return result;
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    ssize_t (*call)(int, const void *, size_t, off_t) = real("pwrite");
    uint64_t begin = now_ns();
    ssize_t result = call(fd, bytes, length, offset);

    if (matches(fd))
        note("write", begin, offset, result, synchronous(fd));
    return result;
}

int fallocate(int fd, int mode, off_t offset, off_t length)
{
    int (*call)(int, int, off_t, off_t) = real("fallocate");
    uint64_t begin = now_ns();
    int result = call(fd, mode, offset, length);

    if (matches(fd))
        note("write", begin, offset, result == 0 ? length : -1, 0);
    return result;
}

int fdatasync(int fd)
{
    int (*call)(int) = real("fdatasync");
    uint64_t begin = now_ns();
    int result = call(fd);

    if (matches(fd))
        note("sync", begin, 0, 0, result == 0);
    return result;
}

int fsync(int fd)
{
    int (*call)(int) = real("fsync");
    uint64_t begin = now_ns();
    int result = call(fd);

    if (matches(fd))
        note("sync", begin, 0, 0, result == 0);
    return result;
}
