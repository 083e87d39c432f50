/* image.c - making and deleting the image files of a pool.
 *
 *   create:  .new-UUID, sized, marked, zeroes written, fsync  -->  renamed to NAME.img (never over anything), fsync
 * DIR delete:  NAME.img  -->  renamed to .deleted-UUID, fsync DIR  -->  unlinked, fsync DIR
 *
 * Invariants
 *   1. NAME.img is complete whenever it exists, and what is left of an unfinished creation or deletion has a name
 *      that no volume can have.
 *   2. An existing file is never opened for a new volume, truncated or replaced.
 * A crash is harmless: what it leaves is swept at the next sr_pool_open; an image that was finished but not reported
 * carries its volume's mark, so that the same volume may delete it and no other may use it.
 */
#include "store/pool_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/names.h"
#include "base/units.h"
#include "store/mark.h"

#define ZERO_CHUNK_BYTES ((size_t)SR_MIB)

struct making {
    struct sr_pool *pool;
    const struct sr_pool_image *image;
    sr_pool_progress_fn progress;
    void *arg;
    char *text;
    size_t text_bytes;
    char final[SR_POOL_ENTRY_BYTES], new[SR_POOL_ENTRY_BYTES];
    int fd;
};

static enum sr_error say(const struct making *making, int error, const char *what)
{
    if (error == EEXIST)
        return sr_pool_fail(making->text, making->text_bytes, SR_E_EXISTS,
                            "%s/%s exists already and is not touched; move it away, or choose another name",
                            making->pool->directory, making->final);
    return sr_pool_fail(making->text, making->text_bytes, sr_error_from_errno(error), "cannot %s %s/%s: %s", what,
                        making->pool->directory, making->final, strerror(error));
}

static enum sr_error too_large(const struct making *making)
{
    return sr_pool_fail(making->text, making->text_bytes, SR_E_TOO_LARGE,
                        "%s/%s: a file of %llu bytes is larger than the file system of the pool takes (ext4: 16 TiB less a "
                        "block); make a smaller volume, or the pool on XFS",
                        making->pool->directory, making->final, (unsigned long long)making->image->size_bytes);
}

/* ---- zeroes ------------------------------------------------------------------------------------------------ */

static int write_zeroes_at(int fd, const uint8_t *zeroes, uint64_t at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = pwrite(fd, zeroes, bytes, (off_t)at);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EINVAL && (fcntl(fd, F_GETFL) & O_DIRECT)) {
            if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_DIRECT) < 0)
                return errno;
            continue;
        }
        if (n <= 0)
            return n < 0 ? errno : EIO;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return 0;
}

static enum sr_error write_zeroes(const struct making *making, const uint8_t *zeroes)
{
    uint64_t size = making->image->size_bytes;

    for (uint64_t at = 0; at < size;) {
        size_t bytes = size - at < ZERO_CHUNK_BYTES ? (size_t)(size - at) : ZERO_CHUNK_BYTES;
        int error = write_zeroes_at(making->fd, zeroes, at, bytes);

        if (error)
            return say(making, error, "write zeroes through");
        at += bytes;
        if (making->progress && !making->progress(making->arg, at, size))
            return sr_pool_fail(making->text, making->text_bytes, SR_E_CANCELLED, "creating %s/%s was cancelled",
                                making->pool->directory, making->final);
    }
    return SR_OK;
}

/* Reserved first, so that a lack of room shows at once; then written, since only reserved extents would make the
 * first real write of each pay for a journal commit. */
static enum sr_error preallocate(const struct making *making)
{
    enum sr_error error;
    uint8_t *zeroes;
    struct statvfs room;

    /* Asked first: reserving more than there is would take all there is until it fails, and hosts of other volumes
     * in the pool would be told that it is full. */
    if (fstatvfs(making->fd, &room) == 0 && making->image->size_bytes / room.f_frsize > room.f_bavail)
        return say(making, ENOSPC, "reserve room for");
    if (fallocate(making->fd, 0, 0, (off_t)making->image->size_bytes) < 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        return say(making, errno, "reserve room for");
    zeroes = mmap(NULL, ZERO_CHUNK_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (zeroes == MAP_FAILED)
        return say(making, errno, "write zeroes through");
    /* Past the page cache, where the file system can do that: hosts' data is of more use there. */
    (void)!fcntl(making->fd, F_SETFL, fcntl(making->fd, F_GETFL) | O_DIRECT);
    error = write_zeroes(making, zeroes);
    munmap(zeroes, ZERO_CHUNK_BYTES);
    return error;
}

/* ---- creating ------------------------------------------------------------------------------------------------ */

static enum sr_error fill(const struct making *making)
{
    enum sr_error error;

    if (ftruncate(making->fd, (off_t)making->image->size_bytes) < 0)
        return errno == EFBIG ? too_large(making) : say(making, errno, "set the size of");
    error = sr_mark_write(making->fd, &making->image->volume);
    if (error)
        return sr_pool_fail(making->text, making->text_bytes, error, "cannot mark %s/%s with its volume: %s",
                            making->pool->directory, making->final, sr_error_text(error));
    if (making->image->preallocate) {
        error = preallocate(making);
        if (error)
            return error;
    }
    if (fsync(making->fd) < 0)
        return say(making, errno, "make durable");
    return SR_OK;
}

static enum sr_error publish(const struct making *making)
{
    int error = sr_pool_rename_new(making->pool->fd, making->new, making->final);

    if (error)
        return say(making, error, "create");
    if (fsync(making->pool->fd) == 0)
        return SR_OK;
    error = errno;
    unlinkat(making->pool->fd, making->final, 0); /* it is ours: just made, not yet told to anyone */
    return say(making, error, "make the directory entry durable of");
}

enum sr_error sr_pool_image_create(struct sr_pool *pool, const struct sr_pool_image *image,
                                   sr_pool_progress_fn progress, void *arg, char *text, size_t text_bytes)
{
    struct making making = {.pool = pool, .image = image, .progress = progress, .arg = arg};
    enum sr_error error;
    struct stat st;

    making.text = text;
    making.text_bytes = text_bytes;
    if (!sr_name_valid(image->volume_name, NULL) || image->size_bytes % SR_BLOCK_BYTES != 0 ||
        image->size_bytes < SR_VOLUME_MIN_BYTES || image->size_bytes > SR_VOLUME_MAX_BYTES)
        return sr_pool_fail(text, text_bytes, SR_E_INVALID,
                            "volume %s: the name or the size (%llu bytes) is not one that a volume can have",
                            image->volume_name, (unsigned long long)image->size_bytes);
    snprintf(making.final, sizeof(making.final), "%s.img", image->volume_name);
    sr_pool_entry(making.new, SR_POOL_NEW_PREFIX, &image->volume);
    /* Said early; the rename below is what makes sure. */
    if (fstatat(pool->fd, making.final, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return say(&making, EEXIST, "create");
    making.fd = openat(pool->fd, making.new, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
    if (making.fd < 0 && errno == EEXIST)
        return sr_pool_fail(text, text_bytes, SR_E_BUSY, "volume %s is being created in %s already",
                            image->volume_name, pool->directory);
    if (making.fd < 0)
        return say(&making, errno, "create");
    error = fill(&making);
    if (!error)
        error = publish(&making);
    close(making.fd);
    if (error)
        unlinkat(pool->fd, making.new, 0);
    return error;
}

/* ---- deleting ------------------------------------------------------------------------------------------------ */

static enum sr_error check_deletable(const struct sr_pool *pool, const char *entry, const struct sr_uuid *volume,
                                     char *text, size_t text_bytes)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct sr_uuid found;
    enum sr_error error = SR_OK;
    int fd = openat(pool->fd, entry, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return sr_pool_fail(text, text_bytes, sr_error_from_errno(errno), "cannot open %s/%s: %s", pool->directory,
                            entry, strerror(errno));
    if (sr_mark_read(fd, &found) && !sr_uuid_equal(&found, volume))
        error = sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                             "%s/%s is the copy of another volume and is not deleted", pool->directory, entry);
    else if (sr_mark_missing(fd)) /* in the way of a creation that is undone, perhaps: somebody's data */
        error = sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                             "%s/%s does not carry the mark of a volume and is not deleted", pool->directory, entry);
    else if (fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK)
        error =
            sr_pool_fail(text, text_bytes, SR_E_LOCKED, "%s/%s is in use and is not deleted", pool->directory, entry);
    close(fd);
    return error;
}

enum sr_error sr_pool_image_delete(struct sr_pool *pool, const char *volume_name, const struct sr_uuid *volume,
                                   char *text, size_t text_bytes)
{
    char entry[SR_POOL_ENTRY_BYTES], doomed[SR_POOL_ENTRY_BYTES];
    enum sr_error error;

    if (!sr_name_valid(volume_name, NULL))
        return sr_pool_fail(text, text_bytes, SR_E_INVALID, "%s is not a volume's name", volume_name);
    snprintf(entry, sizeof(entry), "%s.img", volume_name);
    sr_pool_entry(doomed, SR_POOL_DELETED_PREFIX, volume);
    error = check_deletable(pool, entry, volume, text, text_bytes);
    if (error == SR_E_NOT_FOUND) {
        /* Perhaps the deletion that a crash interrupted; its other half. */
        if (unlinkat(pool->fd, doomed, 0) == 0)
            fsync(pool->fd);
        return error;
    }
    if (error)
        return error;
    /* Plain rename: an older .deleted-UUID of the same volume may be replaced. */
    if (renameat(pool->fd, entry, pool->fd, doomed) < 0 || fsync(pool->fd) < 0 || unlinkat(pool->fd, doomed, 0) < 0 ||
        fsync(pool->fd) < 0)
        return sr_pool_fail(text, text_bytes, sr_error_from_errno(errno), "cannot delete %s/%s: %s", pool->directory,
                            entry, strerror(errno));
    return SR_OK;
}
