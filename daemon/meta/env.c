/* env.c - opens the LMDB environment and keeps it as long as its map.
 *
 * Invariants:
 *   E1  data.mdb is never shorter than the map size that its meta pages name: the file is lengthened (sparse),
 *       and that is durable, before a commit can record the larger map.  Hence a file that is shorter was
 *       truncated, which check.c refuses before LMDB maps it and dies of SIGBUS.  (LMDB's own last page says
 *       nothing: pages that were freed in the transaction that made them are never written.)
 *   E2  LMDB's durability switches are left alone: a commit that succeeded is on stable storage.
 *   E3  Nobody has a transaction open while the map is resized: write transactions belong to the one caller of
 *       sr_meta_env_grow, read transactions hold `readers`.
 *   E4  lock.mdb, the one file that LMDB writes through a mapping, has its blocks before LMDB maps it: on a full
 *       file system there is an error instead of SIGBUS.
 *
 * A crash at any line leaves at worst a longer sparse file.
 */
#include "meta/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"

#define LOCK_FILE_BYTES  8192 /* 126 reader slots, LMDB's default */
#define FULL_BELOW_BYTES (64 * SR_KIB)

static enum sr_error report(const struct sr_meta_env *env, int rc, const char *what, char *error_text,
                            size_t error_text_bytes)
{
    snprintf(error_text, error_text_bytes, "%s: cannot %s: %s", env->dir, what, mdb_strerror(rc));
    return sr_meta_env_error(env, rc);
}

int sr_meta_sync_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    int rc = fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return rc;
}

enum sr_error sr_meta_env_error(const struct sr_meta_env *env, int rc)
{
    struct statvfs fs;

    switch (rc) {
    case MDB_MAP_FULL:
        return SR_E_NO_SPACE;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
        return SR_E_CORRUPT;
    case MDB_VERSION_MISMATCH:
        return SR_E_VERSION;
    case EIO:
        if (statvfs(env->dir, &fs) == 0 && fs.f_bavail * fs.f_frsize < FULL_BELOW_BYTES)
            return SR_E_NO_SPACE;
        return SR_E_IO;
    case ENOSPC:
    case EDQUOT:
        return SR_E_NO_SPACE;
    case ENOMEM:
        return SR_E_NO_MEMORY;
    case EACCES:
    case EPERM:
    case EROFS:
        return SR_E_PERMISSION;
    default:
        return SR_E_IO;
    }
}

/* E1 */
static int lengthen(int fd, uint64_t bytes)
{
    struct stat st;

    if (fstat(fd, &st) != 0)
        return errno;
    if ((uint64_t)st.st_size >= bytes)
        return 0;
    if (ftruncate(fd, (off_t)bytes) != 0 || fsync(fd) != 0)
        return errno;
    return 0;
}

/* E4 */
static int prepare_lock_file(const char *dir)
{
    char path[SR_META_PATH_BYTES + 16];

    snprintf(path, sizeof(path), "%s/lock.mdb", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    int rc = posix_fallocate(fd, 0, LOCK_FILE_BYTES);
    close(fd); /* before LMDB opens it: closing would drop LMDB's record locks */
    return rc == EOPNOTSUPP || rc == EINVAL ? 0 : rc;
}

static int open_databases(struct sr_meta_env *env, unsigned flags)
{
    MDB_txn *txn;

    int rc = mdb_txn_begin(env->mdb, NULL, 0, &txn);
    if (rc != 0)
        return rc;
    for (int db = 0; db < SR_META_DB_COUNT; db++) {
        rc = mdb_dbi_open(txn, sr_meta_db_name((enum sr_meta_db)db), flags, &env->dbi[db]);
        if (rc != 0) {
            mdb_txn_abort(txn);
            return rc;
        }
    }
    return mdb_txn_commit(txn);
}

static int open_mdb(struct sr_meta_env *env)
{
    int stale;
    int rc = mdb_env_create(&env->mdb);
    if (rc != 0)
        return rc;
    if ((rc = mdb_env_set_maxdbs(env->mdb, SR_META_DB_COUNT)) != 0 ||
        (rc = mdb_env_set_mapsize(env->mdb, env->map_bytes)) != 0 ||
        (rc = mdb_env_open(env->mdb, env->dir, MDB_NOTLS, 0600)) != 0 || /* E2 */
        (rc = mdb_reader_check(env->mdb, &stale)) != 0) {
        mdb_env_close(env->mdb);
        env->mdb = NULL;
    }
    return rc;
}

static void init(struct sr_meta_env *env, const char *dir, uint64_t map_bytes)
{
    SR_ASSERT(strlen(dir) < sizeof(env->dir));
    memset(env, 0, sizeof(*env));
    strcpy(env->dir, dir);
    env->map_bytes = map_bytes;
    SR_ASSERT(pthread_mutex_init(&env->readers, NULL) == 0);
}

enum sr_error sr_meta_env_create(struct sr_meta_env *env, const char *dir, uint64_t map_bytes, char *error_text,
                                 size_t error_text_bytes)
{
    mdb_filehandle_t fd;

    init(env, dir, map_bytes);
    int rc = prepare_lock_file(dir);
    if (rc == 0)
        rc = open_mdb(env);
    if (rc == 0)
        rc = mdb_env_get_fd(env->mdb, &fd);
    if (rc == 0)
        rc = lengthen(fd, map_bytes);
    if (rc == 0)
        rc = open_databases(env, MDB_CREATE);
    if (rc == 0)
        return SR_OK;
    enum sr_error error = report(env, rc, "make the metadata", error_text, error_text_bytes);
    sr_meta_env_close(env);
    return error;
}

enum sr_error sr_meta_env_open(struct sr_meta_env *env, const char *dir, uint64_t map_bytes, char *error_text,
                               size_t error_text_bytes)
{
    char path[SR_META_PATH_BYTES + 16];

    init(env, dir, map_bytes);
    snprintf(path, sizeof(path), "%s/data.mdb", dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    int rc = fd < 0 ? errno : lengthen(fd, map_bytes);
    if (fd >= 0)
        close(fd);
    if (rc == 0)
        rc = prepare_lock_file(dir);
    if (rc == 0)
        rc = open_mdb(env);
    if (rc == 0)
        rc = open_databases(env, 0);
    if (rc == 0)
        return SR_OK;
    enum sr_error error = report(env, rc, "open the metadata", error_text, error_text_bytes);
    sr_meta_env_close(env);
    return error;
}

void sr_meta_env_close(struct sr_meta_env *env)
{
    if (env->mdb != NULL)
        mdb_env_close(env->mdb);
    env->mdb = NULL;
    pthread_mutex_destroy(&env->readers);
}

int sr_meta_env_grow(struct sr_meta_env *env)
{
    mdb_filehandle_t fd;

    if (env->map_bytes >= SR_META_MAP_MAX_BYTES)
        return MDB_MAP_FULL;
    uint64_t bytes = env->map_bytes * 2 < SR_META_MAP_MAX_BYTES ? env->map_bytes * 2 : SR_META_MAP_MAX_BYTES;
    int rc = mdb_env_get_fd(env->mdb, &fd);
    if (rc == 0)
        rc = lengthen(fd, bytes);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&env->readers);
    rc = mdb_env_set_mapsize(env->mdb, bytes);
    pthread_mutex_unlock(&env->readers);
    if (rc == 0)
        env->map_bytes = bytes;
    return rc;
}
