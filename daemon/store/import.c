/* import.c - may an existing block device or file become a replica?
 *
 * Nothing is written to it here but a file's mark.  A crash is harmless: a mark without a volume is shown by name at
 * the next import, and taken off with the release of that volume.
 */
#include "store/pool_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/units.h"
#include "store/mark.h"

/* A folder above path that is a pool, or NULL. */
static const char *pool_above(const char *real, char folder[PATH_MAX])
{
    snprintf(folder, PATH_MAX, "%s", real);
    for (;;) {
        char *slash = strrchr(folder, '/');
        char identity[PATH_MAX + sizeof(SR_POOL_IDENTITY_FILE) + 1];

        if (!slash)
            return NULL;
        *slash = 0;
        snprintf(identity, sizeof(identity), "%s/%s", folder, SR_POOL_IDENTITY_FILE);
        if (access(identity, F_OK) == 0)
            return folder[0] ? folder : "/";
    }
}

/* A write lease is granted only while nobody else has the file open (a loop device or a guest, say). */
static bool open_elsewhere(int fd)
{
    fcntl(fd, F_SETSIG, SIGURG); /* should somebody open it right now: a signal that is ignored by default */
    if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) {
        fcntl(fd, F_SETLEASE, F_UNLCK);
        return false;
    }
    return errno == EAGAIN;
}

static enum sr_error check_in_use(int fd, const char *path, bool block_device, char *text, size_t text_bytes)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct sr_uuid volume;
    char volume_text[SR_UUID_TEXT_BYTES];

    if (sr_mark_read(fd, &volume))
        return sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                            "%s is the copy of volume %s already; if that volume is gone: setfattr -x %s %s", path,
                            sr_uuid_format(&volume, volume_text), SR_MARK_ATTRIBUTE, path);
    if ((!block_device && open_elsewhere(fd)) || (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK))
        return sr_pool_fail(text, text_bytes, SR_E_BUSY, "%s is open in another program; stop that first", path);
    return SR_OK;
}

static enum sr_error check_size(int fd, const char *path, const struct stat *st, uint64_t *size_bytes, char *text,
                                size_t text_bytes)
{
    uint64_t bytes = (uint64_t)st->st_size;

    if (S_ISBLK(st->st_mode) && ioctl(fd, BLKGETSIZE64, &bytes) < 0)
        return sr_pool_fail(text, text_bytes, SR_E_IO, "cannot tell the size of %s: %s", path, strerror(errno));
    if (bytes % SR_BLOCK_BYTES != 0)
        return sr_pool_fail(text, text_bytes, SR_E_INVALID,
                            "%s has %llu bytes, which is not a multiple of %u; make it %llu", path,
                            (unsigned long long)bytes, SR_BLOCK_BYTES,
                            (unsigned long long)((bytes / SR_BLOCK_BYTES + 1) * SR_BLOCK_BYTES));
    if (bytes < SR_VOLUME_MIN_BYTES || bytes > SR_VOLUME_MAX_BYTES)
        return sr_pool_fail(text, text_bytes, SR_E_INVALID, "%s has %llu bytes; a volume has 1 MiB to 64 TiB", path,
                            (unsigned long long)bytes);
    *size_bytes = bytes;
    return SR_OK;
}

static enum sr_error check_place(const char *path, struct stat *st, char *text, size_t text_bytes)
{
    char real[PATH_MAX], folder[PATH_MAX];
    const char *pool;

    if (path[0] != '/')
        return sr_pool_fail(text, text_bytes, SR_E_INVALID, "%s is not an absolute path", path);
    if (!realpath(path, real) || stat(real, st) < 0)
        return sr_pool_fail(text, text_bytes, sr_error_from_errno(errno), "cannot find %s: %s", path,
                            strerror(errno));
    if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode))
        return sr_pool_fail(text, text_bytes, SR_E_INVALID, "%s is neither a regular file nor a block device", path);
    pool = S_ISREG(st->st_mode) ? pool_above(real, folder) : NULL;
    if (pool)
        return sr_pool_fail(text, text_bytes, SR_E_REFUSED,
                            "%s lies inside the pool %s; move it to a folder that is no pool", path, pool);
    return SR_OK;
}

/* A read-only device opens for writing all the same, and fails at the first write. */
static enum sr_error check_writable(int fd, const char *path, bool block_device, char *text, size_t text_bytes)
{
    int read_only = 0;

    if (block_device && ioctl(fd, BLKROGET, &read_only) == 0 && read_only)
        return sr_pool_fail(text, text_bytes, SR_E_PERMISSION, "%s is read-only; a copy must be writable", path);
    return SR_OK;
}

enum sr_error sr_pool_import_check(const char *path, uint64_t *size_bytes, char *text, size_t text_bytes)
{
    struct stat st;
    enum sr_error error = check_place(path, &st, text, text_bytes);
    bool block_device;
    int fd;

    if (error)
        return error;
    block_device = S_ISBLK(st.st_mode);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | (block_device ? O_EXCL : 0));
    if (fd < 0 && errno == EBUSY)
        return sr_pool_fail(text, text_bytes, SR_E_BUSY, "%s is mounted or in use; unmount it first", path);
    if (fd < 0)
        return sr_pool_fail(text, text_bytes, errno == EROFS ? SR_E_PERMISSION : sr_error_from_errno(errno),
                            "cannot open %s for writing: %s", path, strerror(errno));
    error = check_writable(fd, path, block_device, text, text_bytes);
    if (!error)
        error = check_size(fd, path, &st, size_bytes, text, text_bytes);
    if (!error)
        error = check_in_use(fd, path, block_device, text, text_bytes);
    close(fd);
    return error;
}

static void loop_backing(int fd, struct sr_pool_backing *backing)
{
    struct loop_info64 info;
    uint64_t bytes = 0;

    if (ioctl(fd, LOOP_GET_STATUS64, &info) < 0 || ioctl(fd, BLKGETSIZE64, &bytes) < 0)
        return;
    backing->device = info.lo_rdevice != 0;
    backing->dev = backing->device ? info.lo_rdevice : info.lo_device;
    backing->ino = backing->device ? 0 : info.lo_inode;
    backing->begin_bytes = info.lo_offset;
    backing->end_bytes = info.lo_offset + bytes;
}

bool sr_pool_import_backing(const char *path, struct sr_pool_backing *backing)
{
    struct stat st;

    if (stat(path, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode)))
        return false;
    bool device = S_ISBLK(st.st_mode);
    *backing = (struct sr_pool_backing){
        .device = device, .dev = device ? st.st_rdev : st.st_dev, .ino = device ? 0 : st.st_ino, .end_bytes = UINT64_MAX};
    if (!device || major(st.st_rdev) != LOOP_MAJOR)
        return true;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return true;
    loop_backing(fd, backing);
    close(fd);
    return true;
}

bool sr_pool_backings_meet(const struct sr_pool_backing *a, const struct sr_pool_backing *b)
{
    return a->device == b->device && a->dev == b->dev && a->ino == b->ino && a->begin_bytes < b->end_bytes &&
           b->begin_bytes < a->end_bytes;
}

enum sr_error sr_pool_import_mark(const char *path, const struct sr_uuid *volume, char *text, size_t text_bytes)
{
    struct sr_uuid found;
    enum sr_error error = SR_OK;
    struct stat st;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return sr_pool_fail(text, text_bytes, sr_error_from_errno(errno), "cannot open %s: %s", path,
                            strerror(errno));
    if (sr_mark_read(fd, &found) && !sr_uuid_equal(&found, volume))
        error = sr_pool_fail(text, text_bytes, SR_E_IDENTITY, "%s is the copy of another volume", path);
    else if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        error = sr_mark_write(fd, volume);
    if (error && error != SR_E_IDENTITY)
        sr_pool_fail(text, text_bytes, error, "cannot mark %s: %s", path, sr_error_text(error));
    if (!error && fsync(fd) < 0)
        error = sr_pool_fail(text, text_bytes, SR_E_IO, "cannot make %s durable: %s", path, strerror(errno));
    close(fd);
    return error;
}

void sr_pool_import_release(const char *path, const struct sr_uuid *volume)
{
    struct sr_uuid found;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return;
    if (sr_mark_read(fd, &found) && sr_uuid_equal(&found, volume)) {
        sr_mark_remove(fd);
        fsync(fd);
    }
    close(fd);
}
