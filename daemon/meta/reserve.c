/* reserve.c - see reserve.h.
 *
 * The file holds nothing anybody reads, so a crash at any line costs at most a slice of the reserve.
 */
#include "meta/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "meta/env.h"

#define CHUNK_BYTES (64 * SR_KIB)

static int open_reserve(const char *state_dir, int flags)
{
    char path[SR_META_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/reserve", state_dir);
    return open(path, flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
}

bool sr_meta_reserve_needed(const char *state_dir)
{
    struct statvfs fs;
    return statvfs(state_dir, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < SR_META_RESERVE_SLICE_BYTES;
}

bool sr_meta_reserve_release(const char *state_dir)
{
    struct stat st;
    bool released = false;

    int fd = open_reserve(state_dir, 0);
    if (fd < 0)
        return false;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        off_t keep =
            (uint64_t)st.st_size > SR_META_RESERVE_SLICE_BYTES ? st.st_size - (off_t)SR_META_RESERVE_SLICE_BYTES : 0;
        released = ftruncate(fd, keep) == 0 && fsync(fd) == 0;
    }
    close(fd);
    return released;
}

void sr_meta_reserve_fill(const char *state_dir)
{
    /* Not zeroes: a file system that compresses or finds holes would keep none of them. */
    uint8_t chunk[CHUNK_BYTES];
    uint32_t state = 2463534242u;
    struct statvfs fs;
    struct stat st;

    int fd = open_reserve(state_dir, O_CREAT);
    if (fd < 0)
        return;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || (uint64_t)st.st_size >= SR_META_RESERVE_BYTES ||
        fstatvfs(fd, &fs) != 0 || (uint64_t)fs.f_bavail * fs.f_frsize < 4 * SR_META_RESERVE_BYTES)
        goto out;
    for (uint64_t at = 0; at < SR_META_RESERVE_BYTES; at += CHUNK_BYTES) {
        for (size_t i = 0; i < CHUNK_BYTES; i += sizeof(state)) {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            memcpy(chunk + i, &state, sizeof(state));
        }
        if (pwrite(fd, chunk, CHUNK_BYTES, (off_t)at) != (ssize_t)CHUNK_BYTES)
            goto out;
    }
    (void)fsync(fd);
out:
    close(fd);
}
