/* folder.c - lock and site marker of the state folder.
 *
 *   state_dir/lock   an empty file but for the pid of the holder, locked (OFD) as long as a daemon lives
 *   state_dir/site   "syncrep-site 1 UUID\n", written once, after the metadata exists
 *
 * A crash: the lock goes with the process; the marker appears whole (temporary name, fsync, rename) or not at all.
 */
#include "meta/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "meta/env.h"

#define MARKER_PREFIX "syncrep-site 1 "
#define MARKER_BYTES  (sizeof(MARKER_PREFIX) - 1 + SR_UUID_TEXT_BYTES - 1 + 1)
_Static_assert(MARKER_BYTES == 52, "the site marker (ONDISK.md)");

static enum sr_error failed(int errnum, const char *what, const char *path, char *error_text, size_t error_text_bytes)
{
    snprintf(error_text, error_text_bytes, "%s: cannot %s: %s", path, what, strerror(errnum));
    return sr_error_from_errno(errnum);
}

#define LOCK_WAIT_MS  1000
#define LOCK_RETRY_MS 20

/* ---- the lock -------------------------------------------------------------------------------------- */

static enum sr_error make_folder(const char *state_dir, char *error_text, size_t error_text_bytes)
{
    char parent[SR_META_PATH_BYTES + 4];
    struct stat st;

    if (mkdir(state_dir, 0700) == 0) {
        snprintf(parent, sizeof(parent), "%s/..", state_dir);
        int rc = sr_meta_sync_dir(parent);
        return rc == 0 ? SR_OK : failed(rc, "make the state folder durable", state_dir, error_text, error_text_bytes);
    }
    if (errno == ENOENT) {
        snprintf(error_text, error_text_bytes, "%s: cannot make the state folder: its parent folder does not exist",
                 state_dir);
        return SR_E_NOT_FOUND;
    }
    if (errno != EEXIST)
        return failed(errno, "make the state folder", state_dir, error_text, error_text_bytes);
    if (stat(state_dir, &st) != 0)
        return failed(errno, "open the state folder", state_dir, error_text, error_text_bytes);
    if (!S_ISDIR(st.st_mode)) {
        snprintf(error_text, error_text_bytes, "%s: the state folder is not a directory", state_dir);
        return SR_E_INVALID;
    }
    return SR_OK;
}

static enum sr_error locked_by_other(const char *state_dir, int fd, char *error_text, size_t error_text_bytes)
{
    char pid[24] = "";

    ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
    long number = n > 0 ? strtol(pid, NULL, 10) : 0;
    if (number > 0)
        snprintf(error_text, error_text_bytes, "%s: another syncrepd (pid %ld) uses this state folder", state_dir,
                 number);
    else
        snprintf(error_text, error_text_bytes, "%s: another process uses this state folder", state_dir);
    return SR_E_LOCKED;
}

/* For people and for the refusal of the next one; the lock itself does not depend on it. */
static void write_pid(int fd)
{
    char pid[24];
    int n = snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());

    if (ftruncate(fd, 0) == 0 && pwrite(fd, pid, (size_t)n, 0) != n)
        (void)!ftruncate(fd, 0);
}

/* A daemon that was killed holds the lock until the kernel has taken it apart, which a restart may well overtake. */
static int take_lock(int fd, struct flock *lock)
{
    const struct timespec pause = {.tv_nsec = LOCK_RETRY_MS * 1000000L};
    int failed;

    for (int i = 0; (failed = fcntl(fd, F_OFD_SETLK, lock)) != 0 && i < LOCK_WAIT_MS / LOCK_RETRY_MS; i++) {
        if (errno != EAGAIN && errno != EACCES)
            break;
        nanosleep(&pause, NULL);
    }
    return failed;
}

enum sr_error sr_meta_folder_lock(const char *state_dir, int *fd_out, char *error_text, size_t error_text_bytes)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    char path[SR_META_PATH_BYTES + 8];

    enum sr_error error = make_folder(state_dir, error_text, error_text_bytes);
    if (error != SR_OK)
        return error;
    snprintf(path, sizeof(path), "%s/lock", state_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return failed(errno, "open", path, error_text, error_text_bytes);
    if (take_lock(fd, &lock) != 0) {
        error = errno == EAGAIN || errno == EACCES ? locked_by_other(state_dir, fd, error_text, error_text_bytes)
                                                   : failed(errno, "lock", path, error_text, error_text_bytes);
        close(fd);
        return error;
    }
    write_pid(fd);
    *fd_out = fd;
    return SR_OK;
}

/* ---- the marker ------------------------------------------------------------------------------------ */

enum sr_error sr_meta_folder_read_site(const char *state_dir, struct sr_uuid *site, char *error_text,
                                       size_t error_text_bytes)
{
    char path[SR_META_PATH_BYTES + 8];
    char text[MARKER_BYTES + 2] = "";
    const size_t prefix_bytes = strlen(MARKER_PREFIX);

    snprintf(path, sizeof(path), "%s/site", state_dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return SR_E_NOT_FOUND;
    if (fd < 0)
        return failed(errno, "open", path, error_text, error_text_bytes);
    ssize_t n = pread(fd, text, MARKER_BYTES + 1, 0);
    int errnum = errno;
    close(fd);
    if (n < 0)
        return failed(errnum, "read", path, error_text, error_text_bytes);
    if ((size_t)n == MARKER_BYTES && text[n - 1] == '\n') {
        text[n - 1] = '\0';
        if (strncmp(text, MARKER_PREFIX, prefix_bytes) == 0 && sr_uuid_parse(text + prefix_bytes, site))
            return SR_OK;
    }
    snprintf(error_text, error_text_bytes, "%s: the file that names the site is damaged", path);
    return SR_E_CORRUPT;
}

static int write_file(const char *path, const char *text, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno;
    ssize_t n = write(fd, text, bytes);
    int rc = n < 0 ? errno : (size_t)n != bytes ? ENOSPC : fsync(fd) != 0 ? errno : 0;
    close(fd);
    return rc;
}

enum sr_error sr_meta_folder_write_site(const char *state_dir, const struct sr_uuid *site, char *error_text,
                                        size_t error_text_bytes)
{
    char path[SR_META_PATH_BYTES + 16], temporary[SR_META_PATH_BYTES + 16];
    char uuid_text[SR_UUID_TEXT_BYTES], text[MARKER_BYTES + 1];

    snprintf(path, sizeof(path), "%s/site", state_dir);
    snprintf(temporary, sizeof(temporary), "%s/site.new", state_dir);
    snprintf(text, sizeof(text), MARKER_PREFIX "%s\n", sr_uuid_format(site, uuid_text));
    int rc = write_file(temporary, text, MARKER_BYTES);
    if (rc == 0 && rename(temporary, path) != 0)
        rc = errno;
    if (rc == 0)
        rc = sr_meta_sync_dir(state_dir);
    return rc == 0 ? SR_OK : failed(rc, "write", path, error_text, error_text_bytes);
}

enum sr_error sr_meta_folder_remove_new(const char *state_dir, char *error_text, size_t error_text_bytes)
{
    static const char *const names[] = {"/data.mdb", "/lock.mdb", ""};
    char path[SR_META_PATH_BYTES + 32];

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/" SR_META_ENV_NEW_NAME "%s", state_dir, names[i]);
        int rc = names[i][0] != '\0' ? unlink(path) : rmdir(path);
        if (rc != 0 && errno != ENOENT && errno != ENOTDIR)
            return failed(errno, "remove", path, error_text, error_text_bytes);
    }
    return SR_OK;
}
