/* pool.c - opening a directory as a pool, and the file that proves whose it is.
 *
 * The identity file is text, one `key value` a line, the last of them the CRC-32C of all bytes before its line:
 *
 *     syncrep-pool 1
 *     pool 8c7e...           UUID
 *     name main
 *     group 0f3a...          UUID
 *     site 51d0...           UUID
 *     crc32c 89abcdef
 *
 * Invariants
 *   1. A directory becomes a pool only if it is empty (lost+found and our own unfinished identity aside), the caller
 *      allows it, and the site never knew a pool of this name, or an administrator says that its disk was exchanged.
 *   2. The identity file is complete and durable, or absent.
 *   3. Only names that we alone make (.new-UUID, .deleted-UUID) are swept, and only in a proven pool.
 * A crash is harmless: before the rename the directory still counts as empty; after it the pool is there.
 */
#include "store/pool_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/names.h"

#define IDENTITY_BYTES_MAX 1024
#define IDENTITY_VERSION   1

struct identity {
    struct sr_uuid pool, group, site;
    char name[SR_NAME_BYTES];
};

enum sr_error sr_pool_fail(char *text, size_t text_bytes, enum sr_error error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (text && text_bytes > 0)
        vsnprintf(text, text_bytes, format, args);
    va_end(args);
    return error;
}

int sr_pool_rename_new(int directory_fd, const char *from, const char *to)
{
    if (renameat2(directory_fd, from, directory_fd, to, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* A file system that does not know that flag: link refuses an existing name too. */
    if (linkat(directory_fd, from, directory_fd, to, 0) < 0)
        return errno;
    return unlinkat(directory_fd, from, 0) < 0 ? errno : 0;
}

void sr_pool_entry(char entry[SR_POOL_ENTRY_BYTES], const char *prefix, const struct sr_uuid *uuid)
{
    char uuid_text[SR_UUID_TEXT_BYTES];

    snprintf(entry, SR_POOL_ENTRY_BYTES, "%s%s", prefix, sr_uuid_format(uuid, uuid_text));
}

/* ---- the identity file ---------------------------------------------------------------------------------- */

static size_t identity_format(const struct identity *id, char *out, size_t out_bytes)
{
    char pool[SR_UUID_TEXT_BYTES], group[SR_UUID_TEXT_BYTES], site[SR_UUID_TEXT_BYTES];
    int n = snprintf(out, out_bytes, "syncrep-pool %d\npool %s\nname %s\ngroup %s\nsite %s\n", IDENTITY_VERSION,
                     sr_uuid_format(&id->pool, pool), id->name, sr_uuid_format(&id->group, group),
                     sr_uuid_format(&id->site, site));

    n += snprintf(out + n, out_bytes - (size_t)n, "crc32c %08x\n", sr_crc32c(0, out, (size_t)n));
    return (size_t)n;
}

/* Takes `key value\n` off *at; the value, or NULL. */
static char *take_line(char **at, const char *key)
{
    size_t key_bytes = strlen(key);
    char *value, *end;

    if (strncmp(*at, key, key_bytes) != 0 || (*at)[key_bytes] != ' ')
        return NULL;
    value = *at + key_bytes + 1;
    end = strchr(value, '\n');
    if (!end)
        return NULL;
    *end = 0;
    *at = end + 1;
    return value;
}

static bool take_uuid(char **at, const char *key, struct sr_uuid *uuid)
{
    char *value = take_line(at, key);

    return value && sr_uuid_parse(value, uuid);
}

static enum sr_error identity_parse(char *content, size_t bytes, struct identity *id)
{
    static const char crc_key[] = "\ncrc32c ";
    char *crc_line = strstr(content, crc_key), *at = content, *version, *name;
    char expected[32];

    if (strlen(content) != bytes)
        return SR_E_CORRUPT;
    /* The version first: what follows may look different in a later one. */
    if (strncmp(content, "syncrep-pool ", 13) == 0 && strtol(content + 13, NULL, 10) > IDENTITY_VERSION)
        return SR_E_VERSION;
    if (!crc_line)
        return SR_E_CORRUPT;
    snprintf(expected, sizeof(expected), "%s%08x\n", crc_key,
             sr_crc32c(0, content, (size_t)(crc_line + 1 - content)));
    if (strcmp(crc_line, expected) != 0)
        return SR_E_CORRUPT;
    version = take_line(&at, "syncrep-pool");
    if (!version || strcmp(version, "1") != 0 || !take_uuid(&at, "pool", &id->pool))
        return SR_E_CORRUPT;
    name = take_line(&at, "name");
    if (!name || !sr_name_valid(name, NULL))
        return SR_E_CORRUPT;
    snprintf(id->name, sizeof(id->name), "%s", name);
    if (!take_uuid(&at, "group", &id->group) || !take_uuid(&at, "site", &id->site))
        return SR_E_CORRUPT;
    return SR_OK;
}

static enum sr_error identity_read(int directory_fd, struct identity *id)
{
    char content[IDENTITY_BYTES_MAX + 1];
    size_t bytes = 0;
    ssize_t n;
    int fd = openat(directory_fd, SR_POOL_IDENTITY_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return errno == ENOENT ? SR_E_NOT_FOUND : sr_error_from_errno(errno);
    while ((n = read(fd, content + bytes, sizeof(content) - 1 - bytes)) > 0)
        bytes += (size_t)n;
    close(fd);
    if (n < 0)
        return SR_E_IO;
    if (bytes == sizeof(content) - 1)
        return SR_E_CORRUPT;
    content[bytes] = 0;
    return identity_parse(content, bytes, id);
}

static int write_new_file(int directory_fd, const char *name, const char *content, size_t bytes)
{
    int error = 0;
    int fd = openat(directory_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0640);

    if (fd < 0)
        return errno;
    errno = EIO;
    if (write(fd, content, bytes) != (ssize_t)bytes || fsync(fd) < 0)
        error = errno;
    close(fd);
    return error;
}

static int identity_write(int directory_fd, const struct identity *id)
{
    char content[IDENTITY_BYTES_MAX];
    size_t bytes = identity_format(id, content, sizeof(content));
    int error = write_new_file(directory_fd, SR_POOL_IDENTITY_NEW, content, bytes);

    if (!error)
        error = sr_pool_rename_new(directory_fd, SR_POOL_IDENTITY_NEW, SR_POOL_IDENTITY_FILE);
    if (!error && fsync(directory_fd) < 0)
        error = errno;
    if (error)
        unlinkat(directory_fd, SR_POOL_IDENTITY_NEW, 0);
    return error;
}

/* ---- the directory ---------------------------------------------------------------------------------------- */

static DIR *list_directory(int directory_fd)
{
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);

    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

/* Something in it that is not ours to ignore, into entry; false: empty.  An unreadable one is not empty. */
static bool has_foreign_entry(int directory_fd, char *found, size_t found_bytes)
{
    static const char *const ignored[] = {".", "..", "lost+found", SR_POOL_IDENTITY_NEW};
    DIR *dir = list_directory(directory_fd);
    struct dirent *entry;
    bool foreign = false;

    snprintf(found, found_bytes, "unreadable");
    if (!dir)
        return true;
    while (!foreign && (entry = readdir(dir))) {
        foreign = true;
        for (unsigned i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
            if (strcmp(entry->d_name, ignored[i]) == 0)
                foreign = false;
        if (foreign)
            snprintf(found, found_bytes, "%s", entry->d_name);
    }
    closedir(dir);
    return foreign;
}

static bool is_ours(const char *name, const char *prefix)
{
    struct sr_uuid uuid;
    size_t prefix_bytes = strlen(prefix);

    return strncmp(name, prefix, prefix_bytes) == 0 && sr_uuid_parse(name + prefix_bytes, &uuid);
}

/* What a crash left of creations and deletions. */
static void sweep(int directory_fd)
{
    DIR *dir = list_directory(directory_fd);
    struct dirent *entry;
    bool removed = false;

    if (!dir)
        return;
    while ((entry = readdir(dir)))
        if (is_ours(entry->d_name, SR_POOL_NEW_PREFIX) || is_ours(entry->d_name, SR_POOL_DELETED_PREFIX))
            removed |= unlinkat(directory_fd, entry->d_name, 0) == 0;
    closedir(dir);
    if (removed)
        fsync(directory_fd);
}

/* ---- opening ------------------------------------------------------------------------------------------------ */

static enum sr_error found_another(const char *directory, const struct sr_pool_identity *wanted,
                                   const struct identity *id, char *text, size_t text_bytes)
{
    char found[SR_UUID_TEXT_BYTES], expected[SR_UUID_TEXT_BYTES];

    if (!sr_uuid_equal(&id->group, &wanted->group))
        return sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                            "pool %s: %s belongs to another group (%s); correct the pool's path or the group",
                            wanted->name, directory, sr_uuid_format(&id->group, found));
    if (!sr_uuid_equal(&id->site, &wanted->site))
        return sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                            "pool %s: %s belongs to another site (%s); correct the pool's path, or use the state "
                            "folder that this pool was made with",
                            wanted->name, directory, sr_uuid_format(&id->site, found));
    if (strcmp(id->name, wanted->name) != 0)
        return sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                            "pool %s: %s is the pool %s; correct the name or the path in the configuration",
                            wanted->name, directory, id->name);
    if (!sr_uuid_is_none(&wanted->expected) && !sr_uuid_equal(&id->pool, &wanted->expected))
        return sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                            "pool %s: %s holds another pool (%s, not %s): the wrong disk is mounted there",
                            wanted->name, directory, sr_uuid_format(&id->pool, found),
                            sr_uuid_format(&wanted->expected, expected));
    return SR_OK;
}

static enum sr_error make_identity(int directory_fd, const char *directory, const struct sr_pool_identity *wanted,
                                   struct identity *id, char *text, size_t text_bytes)
{
    char foreign[256];
    int error;

    if (!sr_uuid_is_none(&wanted->expected) || !wanted->create_allowed)
        return sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                            "pool %s: %s has no %s: is its file system mounted? Mount it and start again; if its disk "
                            "was exchanged: syncrepctl pool create %s",
                            wanted->name, directory, SR_POOL_IDENTITY_FILE, wanted->name);
    if (has_foreign_entry(directory_fd, foreign, sizeof(foreign)))
        return sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                            "pool %s: %s is not a pool and not empty (%s); name an empty directory", wanted->name,
                            directory, foreign);
    sr_uuid_generate(&id->pool);
    id->group = wanted->group;
    id->site = wanted->site;
    snprintf(id->name, sizeof(id->name), "%s", wanted->name);
    error = identity_write(directory_fd, id);
    if (error)
        return sr_pool_fail(text, text_bytes, sr_error_from_errno(error), "pool %s: cannot write %s/%s: %s",
                            wanted->name, directory, SR_POOL_IDENTITY_FILE, strerror(error));
    return SR_OK;
}

static enum sr_error prove_identity(int directory_fd, const char *directory, const struct sr_pool_identity *wanted,
                                    struct identity *id, char *text, size_t text_bytes)
{
    enum sr_error error = identity_read(directory_fd, id);

    switch (error) {
    case SR_OK:
        return found_another(directory, wanted, id, text, text_bytes);
    case SR_E_NOT_FOUND:
        return make_identity(directory_fd, directory, wanted, id, text, text_bytes);
    case SR_E_VERSION:
        return sr_pool_fail(text, text_bytes, error, "pool %s: %s was made by a newer version of syncrep; upgrade",
                            wanted->name, directory);
    case SR_E_CORRUPT:
        return sr_pool_fail(text, text_bytes, error, "pool %s: %s/%s is damaged; restore that file", wanted->name,
                            directory, SR_POOL_IDENTITY_FILE);
    default:
        return sr_pool_fail(text, text_bytes, error, "pool %s: cannot read %s/%s: %s", wanted->name, directory,
                            SR_POOL_IDENTITY_FILE, sr_error_text(error));
    }
}

static struct sr_pool *pool_new(int fd, const char *directory, const struct identity *id)
{
    struct sr_pool *pool = calloc(1, sizeof(*pool));

    if (!pool)
        return NULL;
    pool->directory = strdup(directory);
    pool->name = strdup(id->name);
    if (!pool->directory || !pool->name) {
        free(pool->directory);
        free(pool->name);
        free(pool);
        return NULL;
    }
    pool->fd = fd;
    pool->uuid = id->pool;
    return pool;
}

enum sr_error sr_pool_open(const char *directory, const struct sr_pool_identity *identity, struct sr_pool **pool,
                           char *text, size_t text_bytes)
{
    const char *bad;
    struct identity id;
    enum sr_error error;
    int fd;

    if (!sr_name_valid(identity->name, &bad))
        return sr_pool_fail(text, text_bytes, SR_E_INVALID, "pool %s: %s", identity->name, bad);
    fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return sr_pool_fail(text, text_bytes, errno == ENOTDIR ? SR_E_INVALID : sr_error_from_errno(errno),
                            "pool %s: cannot open the directory %s: %s", identity->name, directory, strerror(errno));
    error = prove_identity(fd, directory, identity, &id, text, text_bytes);
    if (error)
        goto fail_fd;
    *pool = pool_new(fd, directory, &id);
    if (!*pool) {
        error = sr_pool_fail(text, text_bytes, SR_E_NO_MEMORY, "pool %s: out of memory", identity->name);
        goto fail_fd;
    }
    sweep(fd);
    return SR_OK;

fail_fd:
    close(fd);
    return error;
}

/* ---- made anew -------------------------------------------------------------------------------------------- */

static int open_directory(const char *directory, const struct sr_pool_identity *identity, enum sr_error *error, char *text,
                          size_t text_bytes)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        *error = sr_pool_fail(text, text_bytes, errno == ENOTDIR ? SR_E_INVALID : sr_error_from_errno(errno),
                              "pool %s: cannot open the directory %s: %s", identity->name, directory, strerror(errno));
    return fd;
}

enum sr_error sr_pool_renew_prepare(const char *directory, const struct sr_pool_identity *identity, char *text,
                                    size_t text_bytes)
{
    struct identity id = {.pool = identity->expected, .group = identity->group, .site = identity->site}, found;
    char foreign[256], content[IDENTITY_BYTES_MAX];
    enum sr_error error = SR_OK;
    int fd = open_directory(directory, identity, &error, text, text_bytes);

    if (fd < 0)
        return error;
    if (identity_read(fd, &found) != SR_E_NOT_FOUND) {
        error = sr_pool_fail(text, text_bytes, SR_E_EXISTS,
                             "pool %s: %s has a %s already and is not touched; restart syncrepd if it is the right disk",
                             identity->name, directory, SR_POOL_IDENTITY_FILE);
    } else if (has_foreign_entry(fd, foreign, sizeof(foreign))) {
        error = sr_pool_fail(text, text_bytes, SR_E_IDENTITY,
                             "pool %s: %s is not a pool and not empty (%s), and is not touched; name an empty directory",
                             identity->name, directory, foreign);
    } else {
        snprintf(id.name, sizeof(id.name), "%s", identity->name);
        size_t bytes = identity_format(&id, content, sizeof(content));
        int failed = write_new_file(fd, SR_POOL_IDENTITY_NEW, content, bytes);
        if (failed)
            error = sr_pool_fail(text, text_bytes, sr_error_from_errno(failed), "pool %s: cannot write %s/%s: %s",
                                 identity->name, directory, SR_POOL_IDENTITY_NEW, strerror(failed));
    }
    close(fd);
    return error;
}

enum sr_error sr_pool_renew(const char *directory, const struct sr_pool_identity *identity, struct sr_pool **pool,
                            char *text, size_t text_bytes)
{
    enum sr_error error = SR_OK;
    int failed, fd = open_directory(directory, identity, &error, text, text_bytes);

    if (fd < 0)
        return error;
    failed = sr_pool_rename_new(fd, SR_POOL_IDENTITY_NEW, SR_POOL_IDENTITY_FILE);
    if (!failed && fsync(fd) < 0)
        failed = errno;
    close(fd);
    if (failed)
        return sr_pool_fail(text, text_bytes, sr_error_from_errno(failed), "pool %s: cannot write %s/%s: %s", identity->name,
                            directory, SR_POOL_IDENTITY_FILE, strerror(failed));
    return sr_pool_open(directory, identity, pool, text, text_bytes);
}

void sr_pool_close(struct sr_pool *pool)
{
    close(pool->fd);
    free(pool->directory);
    free(pool->name);
    free(pool);
}

const char *sr_pool_name(const struct sr_pool *pool)
{
    return pool->name;
}

const char *sr_pool_directory(const struct sr_pool *pool)
{
    return pool->directory;
}

const struct sr_uuid *sr_pool_uuid(const struct sr_pool *pool)
{
    return &pool->uuid;
}

enum sr_error sr_pool_space(const struct sr_pool *pool, uint64_t *free_bytes, uint64_t *total_bytes)
{
    struct statvfs st;

    if (fstatvfs(pool->fd, &st) < 0)
        return sr_error_from_errno(errno);
    *free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
    *total_bytes = (uint64_t)st.f_blocks * st.f_frsize;
    return SR_OK;
}

enum sr_error sr_pool_image_path(const struct sr_pool *pool, const char *volume_name, char path[SR_POOL_PATH_BYTES])
{
    int n;

    if (!sr_name_valid(volume_name, NULL))
        return SR_E_INVALID;
    n = snprintf(path, SR_POOL_PATH_BYTES, "%s/%s.img", pool->directory, volume_name);
    return n < 0 || n >= SR_POOL_PATH_BYTES ? SR_E_TOO_LARGE : SR_OK;
}

bool sr_pool_image_present(const struct sr_pool *pool, const char *volume_name)
{
    char path[SR_POOL_PATH_BYTES];
    struct stat info;

    return sr_pool_image_path(pool, volume_name, path) == SR_OK && lstat(path, &info) == 0;
}
