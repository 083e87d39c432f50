/* env.h - inside meta/: the LMDB environment of a site, and how it grows. */
#ifndef SR_META_ENV_H
#define SR_META_ENV_H

#include <lmdb.h>
#include <pthread.h>
#include <stdbool.h>

#include "meta/format.h"

#define SR_META_MAP_START_BYTES (64 * SR_MIB)
#define SR_META_MAP_MAX_BYTES   (64 * SR_GIB)
#define SR_META_PATH_BYTES      4096

struct sr_meta_env {
    char dir[SR_META_PATH_BYTES]; /* of data.mdb and lock.mdb */
    MDB_env *mdb;
    MDB_dbi dbi[SR_META_DB_COUNT];
    uint64_t map_bytes;
    pthread_mutex_t readers; /* held by a read transaction, and while the map is resized */
};

/* An empty environment with all its databases, in a directory that exists and is empty.  Blocks; not durable
 * before the first commit and an fsync of the directory.  On error nothing stays open. */
enum sr_error sr_meta_env_create(struct sr_meta_env *env, const char *dir, uint64_t map_bytes, char *error_text,
                                 size_t error_text_bytes);

/* One that sr_meta_check_file found whole; map_bytes is at least what it found.  Blocks. */
enum sr_error sr_meta_env_open(struct sr_meta_env *env, const char *dir, uint64_t map_bytes, char *error_text,
                               size_t error_text_bytes);

void sr_meta_env_close(struct sr_meta_env *env);

/* After MDB_MAP_FULL: makes room.  No write transaction may be open; waits for read transactions.
 * 0, MDB_MAP_FULL at the largest size, or an errno. */
int sr_meta_env_grow(struct sr_meta_env *env);

/* The code for what LMDB returned (not 0).  A short write, which LMDB calls EIO, is told from a bad disk by
 * looking at the file system. */
enum sr_error sr_meta_env_error(const struct sr_meta_env *env, int rc);

/* fsync of a directory: its entries are durable.  0 or an errno. */
int sr_meta_sync_dir(const char *dir);

#endif
