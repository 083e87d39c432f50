/* open.c - opening, locking and closing a replica.
 *
 * Invariants
 *   1. One descriptor a replica: the lock is on it, and all I/O goes through it (io_uring takes a reference to the
 *      same open file), so the lock lasts until the last write of a killed daemon has landed.
 *   2. When open has succeeded, everything written to the replica before is durable.
 *   3. Nothing is read or written before the lock is held.
 * A crash is harmless: opening changes nothing on disk.
 */
#include "store/store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "store/fault.h"
#include "store/mark.h"

#define LOCK_RETRY_MS 10

struct attempt {
    const char *path;
    uint64_t size_bytes;
    struct sr_store_open_options options;
    char *text;
    size_t text_bytes;
    int fd;
    bool direct, block_device;
    const char *access;
};

__attribute__((format(printf, 3, 4))) static enum sr_error fail(const struct attempt *attempt, enum sr_error error,
                                                                const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (attempt->text && attempt->text_bytes > 0)
        vsnprintf(attempt->text, attempt->text_bytes, format, args);
    va_end(args);
    return error;
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void pause_ms(long ms)
{
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

/* ---- descriptor and lock ------------------------------------------------------------------------------- */

static enum sr_error check_kind(struct attempt *attempt)
{
    struct stat st;

    /* Before open: a FIFO would hang it, a tape would rewind. */
    if (stat(attempt->path, &st) < 0)
        return fail(attempt, errno == ENOENT ? SR_E_NOT_FOUND : sr_error_from_errno(errno),
                    "cannot open replica %s: %s", attempt->path, strerror(errno));
    attempt->block_device = S_ISBLK(st.st_mode);
    if (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode))
        return fail(attempt, SR_E_INVALID, "replica %s is neither a regular file nor a block device", attempt->path);
    return SR_OK;
}

static int open_once(struct attempt *attempt)
{
    /* O_EXCL without O_CREAT: the kernel refuses a device that is mounted or otherwise claimed. */
    int flags = O_RDWR | O_CLOEXEC | (attempt->block_device ? O_EXCL : 0);
    int fd = open(attempt->path, flags | O_DIRECT);

    attempt->direct = fd >= 0;
    if (fd < 0 && errno == EINVAL)
        fd = open(attempt->path, flags);
    attempt->access = attempt->direct ? "direct" : "buffered: the file system refuses O_DIRECT";
    return fd;
}

/* 0, or the errno; EAGAIN: somebody else holds it. */
static int open_and_lock(struct attempt *attempt)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int error;

    attempt->fd = open_once(attempt);
    if (attempt->fd < 0)
        return errno == EBUSY ? EAGAIN : errno;
    if (fcntl(attempt->fd, F_OFD_SETLK, &lock) == 0)
        return 0;
    error = errno == EACCES ? EAGAIN : errno;
    close(attempt->fd);
    attempt->fd = -1;
    return error;
}

static enum sr_error open_locked(struct attempt *attempt)
{
    uint64_t deadline_ms = now_ms() + attempt->options.lock_wait_ms;

    for (;;) {
        int error = open_and_lock(attempt);

        if (error == 0)
            return SR_OK;
        if (error != EAGAIN)
            return fail(attempt, sr_error_from_errno(error), "cannot open replica %s: %s", attempt->path,
                        strerror(error));
        if (now_ms() >= deadline_ms)
            break;
        pause_ms(LOCK_RETRY_MS);
    }
    return fail(attempt, SR_E_LOCKED, "replica %s is in use by another process%s", attempt->path,
                attempt->block_device ? ", or mounted" : "");
}

/* ---- checks ---------------------------------------------------------------------------------------------- */

static enum sr_error check_size(struct attempt *attempt)
{
    struct stat st;
    uint64_t bytes;

    if (fstat(attempt->fd, &st) < 0)
        return fail(attempt, SR_E_IO, "cannot examine replica %s: %s", attempt->path, strerror(errno));
    if (S_ISBLK(st.st_mode) != attempt->block_device)
        return fail(attempt, SR_E_IO, "replica %s changed while it was opened", attempt->path);
    bytes = (uint64_t)st.st_size;
    if (attempt->block_device && ioctl(attempt->fd, BLKGETSIZE64, &bytes) < 0)
        return fail(attempt, SR_E_IO, "cannot tell the size of %s: %s", attempt->path, strerror(errno));
    if (bytes < attempt->size_bytes || (bytes > attempt->size_bytes && !attempt->block_device))
        return fail(attempt, SR_E_CORRUPT, "replica %s has %llu bytes, its volume has %llu", attempt->path,
                    (unsigned long long)bytes, (unsigned long long)attempt->size_bytes);
    return SR_OK;
}

static enum sr_error check_mark(struct attempt *attempt)
{
    struct sr_uuid found;
    char found_text[SR_UUID_TEXT_BYTES], wanted_text[SR_UUID_TEXT_BYTES];

    if (sr_uuid_is_none(&attempt->options.volume))
        return SR_OK;
    if (!sr_mark_read(attempt->fd, &found)) {
        if (attempt->block_device || !sr_mark_missing(attempt->fd))
            return SR_OK;
        return fail(attempt, SR_E_IDENTITY,
                    "%s is not the copy that was here: it carries no mark (%s), as a new or restored file; move it away, then "
                    "`syncrepctl replace`",
                    attempt->path, SR_MARK_ATTRIBUTE);
    }
    if (sr_uuid_equal(&found, &attempt->options.volume))
        return SR_OK;
    return fail(attempt, SR_E_IDENTITY, "%s is the copy of another volume (%s, not %s); move it away", attempt->path,
                sr_uuid_format(&found, found_text), sr_uuid_format(&attempt->options.volume, wanted_text));
}

static enum sr_error check_device(struct attempt *attempt)
{
    char found[SR_DEVICE_IDENTITY_BYTES];
    const char *wanted = attempt->options.device;

    if (!wanted || !wanted[0] || !attempt->block_device)
        return SR_OK;
    sr_device_identity(attempt->fd, found);
    if (strcmp(found, wanted) == 0)
        return SR_OK;
    return fail(attempt, SR_E_IDENTITY,
                "%s is another device than the one that was imported (%.200s, not %.200s); if its disk was exchanged: "
                "`syncrepctl replace`",
                attempt->path, found, wanted);
}

/* Some file systems take O_DIRECT at open and refuse it at the first read. */
static enum sr_error check_direct(struct attempt *attempt)
{
    void *block;
    int flags;

    if (!attempt->direct)
        return SR_OK;
    if (posix_memalign(&block, SR_BUF_ALIGN, SR_BLOCK_BYTES))
        return fail(attempt, SR_E_NO_MEMORY, "out of memory while opening %s", attempt->path);
    if (pread(attempt->fd, block, SR_BLOCK_BYTES, 0) < 0 && (errno == EINVAL || errno == EOPNOTSUPP)) {
        attempt->direct = false;
        attempt->access = "buffered: the file system or device refuses direct reads of 4 KiB blocks";
        flags = fcntl(attempt->fd, F_GETFL);
        if (flags < 0 || fcntl(attempt->fd, F_SETFL, flags & ~O_DIRECT) < 0) {
            free(block);
            return fail(attempt, SR_E_IO, "cannot switch %s to buffered I/O: %s", attempt->path, strerror(errno));
        }
    }
    free(block); /* any other error is for the first real read to meet */
    return SR_OK;
}

static enum sr_error make_durable(struct attempt *attempt)
{
    struct sr_fault_hit hit;
    int failed;

    if (sr_fault_check(attempt->path, SR_FAULT_OPEN, 0, attempt->size_bytes, &hit) && hit.result <= 0) {
        failed = (int)-hit.result;
    } else {
        while ((failed = fsync(attempt->fd) < 0 ? errno : 0) == EINTR)
            ;
    }
    if (!failed)
        return SR_OK;
    if (attempt->options.undurable)
        *attempt->options.undurable = true;
    return fail(attempt, SR_E_IO, "cannot make %s durable: %s; what it holds cannot be trusted", attempt->path,
                strerror(failed));
}

/* ---- the interface ------------------------------------------------------------------------------------- */

static struct sr_store *store_new(struct sr_store_engine *engine, const struct attempt *attempt)
{
    struct sr_store *store = calloc(1, sizeof(*store));

    if (!store)
        return NULL;
    store->path = strdup(attempt->path);
    if (!store->path) {
        free(store);
        return NULL;
    }
    store->engine = engine;
    store->fd = attempt->fd;
    store->size_bytes = attempt->size_bytes;
    store->direct = attempt->direct;
    store->block_device = attempt->block_device;
    store->access = attempt->access;
    engine->stores++;
    return store;
}

enum sr_error sr_store_open_with(struct sr_store_engine *engine, const char *path, uint64_t size_bytes,
                                 const struct sr_store_open_options *options, struct sr_store **store,
                                 char *error_text, size_t error_text_bytes)
{
    struct attempt attempt = {.path = path, .size_bytes = size_bytes, .fd = -1};
    enum sr_error error;

    attempt.text = error_text;
    attempt.text_bytes = error_text_bytes;
    if (options)
        attempt.options = *options;
    if (size_bytes == 0 || !sr_block_aligned(size_bytes) || size_bytes > SR_VOLUME_MAX_BYTES)
        return fail(&attempt, SR_E_INVALID, "replica %s: %llu bytes is not a size that a volume can have", path,
                    (unsigned long long)size_bytes);
    error = check_kind(&attempt);
    if (!error)
        error = open_locked(&attempt);
    if (!error)
        error = check_size(&attempt);
    if (!error)
        error = check_mark(&attempt);
    if (!error)
        error = check_device(&attempt);
    if (!error)
        error = check_direct(&attempt);
    if (!error)
        error = make_durable(&attempt);
    if (!error) {
        *store = store_new(engine, &attempt);
        if (!*store)
            error = fail(&attempt, SR_E_NO_MEMORY, "out of memory while opening %s", path);
    }
    if (error && attempt.fd >= 0)
        close(attempt.fd);
    return error;
}

enum sr_error sr_store_open(struct sr_store_engine *engine, const char *path, uint64_t size_bytes,
                            struct sr_store **store, char *error_text, size_t error_text_bytes)
{
    return sr_store_open_with(engine, path, size_bytes, NULL, store, error_text, error_text_bytes);
}

void sr_store_close(struct sr_store *store)
{
    struct flock unlock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

    SR_ASSERT(store->in_flight == 0 && !store->syncing);
    SR_ASSERT(store->engine->stores > 0);
    store->engine->stores--;
    /* By hand: the kernel may let go of the ring's last reference to the file a moment later. */
    fcntl(store->fd, F_OFD_SETLK, &unlock);
    close(store->fd);
    free(store->path);
    free(store);
}

void sr_store_device(const struct sr_store *store, char identity[SR_DEVICE_IDENTITY_BYTES])
{
    sr_device_identity(store->fd, identity);
}

uint64_t sr_store_size(const struct sr_store *store)
{
    return store->size_bytes;
}

bool sr_store_failed(const struct sr_store *store)
{
    return store->failed;
}

enum sr_error sr_store_recover(struct sr_store *store)
{
    struct attempt attempt = {.path = store->path, .size_bytes = store->size_bytes, .fd = store->fd};
    enum sr_error error;

    SR_ASSERT(store->in_flight == 0);
    error = make_durable(&attempt);
    store->failed = error != SR_OK;
    return error;
}

const char *sr_store_access(const struct sr_store *store)
{
    return store->access;
}

uint64_t sr_store_allocated_bytes(const struct sr_store *store)
{
    struct stat st;

    if (store->block_device || fstat(store->fd, &st) < 0)
        return store->size_bytes;
    return (uint64_t)st.st_blocks * 512;
}

uint64_t sr_store_extent(struct sr_store *store, uint64_t offset, uint64_t limit, bool *hole)
{
    off_t next;

    *hole = false;
    if (offset >= store->size_bytes)
        return 0;
    if (limit > store->size_bytes - offset)
        limit = store->size_bytes - offset;
    next = lseek(store->fd, (off_t)offset, SEEK_DATA);
    if (next < 0) {
        *hole = errno == ENXIO; /* none up to the end; else the file system does not say: data */
        return limit;
    }
    *hole = (uint64_t)next > offset;
    if (!*hole)
        next = lseek(store->fd, (off_t)offset, SEEK_HOLE);
    if (next <= (off_t)offset)
        return limit;
    return (uint64_t)next - offset < limit ? (uint64_t)next - offset : limit;
}
