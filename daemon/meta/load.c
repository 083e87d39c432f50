/* load.c - reads the metadata back at start-up.
 *
 * Only reads, so a crash at any line is harmless.  Each read transaction is short and holds `readers`, so that
 * the map cannot be resized under it (E3).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "meta/internal.h"

typedef enum sr_error (*entry_fn)(void *arg, const struct sr_meta_entry *entry);

struct scan {
    struct sr_meta *meta;
    enum sr_meta_db db;
    const struct sr_uuid *volume; /* only keys that begin with it; NULL: all */
    entry_fn fn;
    void *arg;
    char *error_text;
    size_t error_text_bytes;
};

static enum sr_error lmdb_failed(const struct scan *scan, int rc)
{
    snprintf(scan->error_text, scan->error_text_bytes, "%s: cannot read the metadata (database %s): %s",
             scan->meta->env.dir, sr_meta_db_name(scan->db), mdb_strerror(rc));
    return sr_meta_env_error(&scan->meta->env, rc);
}

static enum sr_error take(const struct scan *scan, const MDB_val *key, const MDB_val *value)
{
    char key_text[SR_META_KEY_TEXT_BYTES];
    struct sr_meta_entry entry;
    const char *why;

    enum sr_error error =
        sr_meta_parse(scan->db, key->mv_data, key->mv_size, value->mv_data, value->mv_size, &entry, &why);
    if (error == SR_OK)
        return scan->fn(scan->arg, &entry);
    snprintf(scan->error_text, scan->error_text_bytes, "%s: database %s, key %s: %s", scan->meta->env.dir,
             sr_meta_db_name(scan->db), sr_meta_key_text(scan->db, key->mv_data, key->mv_size, key_text), why);
    return error;
}

static enum sr_error scan_cursor(const struct scan *scan, MDB_cursor *cursor)
{
    MDB_val key = {0}, value = {0};
    MDB_cursor_op op = MDB_FIRST;

    if (scan->volume != NULL) {
        key.mv_size = SR_UUID_BYTES;
        key.mv_data = (void *)scan->volume->b;
        op = MDB_SET_RANGE;
    }
    for (;; op = MDB_NEXT) {
        int rc = mdb_cursor_get(cursor, &key, &value, op);
        if (rc == MDB_NOTFOUND)
            return SR_OK;
        if (rc != 0)
            return lmdb_failed(scan, rc);
        if (scan->volume != NULL &&
            (key.mv_size < SR_UUID_BYTES || memcmp(key.mv_data, scan->volume->b, SR_UUID_BYTES) != 0))
            return SR_OK;
        enum sr_error error = take(scan, &key, &value);
        if (error != SR_OK)
            return error;
    }
}

static enum sr_error run_scan(const struct scan *scan)
{
    struct sr_meta_env *env = &scan->meta->env;
    MDB_cursor *cursor;
    MDB_txn *txn;
    enum sr_error error;

    if (scan->error_text_bytes > 0)
        scan->error_text[0] = '\0';
    pthread_mutex_lock(&env->readers);
    int rc = mdb_txn_begin(env->mdb, NULL, MDB_RDONLY, &txn);
    if (rc != 0) {
        error = lmdb_failed(scan, rc);
        goto out;
    }
    rc = mdb_cursor_open(txn, env->dbi[scan->db], &cursor);
    if (rc != 0) {
        error = lmdb_failed(scan, rc);
    } else {
        error = scan_cursor(scan, cursor);
        mdb_cursor_close(cursor);
    }
    mdb_txn_abort(txn);
out:
    pthread_mutex_unlock(&env->readers);
    return error;
}

/* ---- the catalogue --------------------------------------------------------------------------------- */

struct volume_arg {
    sr_meta_volume_fn fn;
    void *arg;
};

static enum sr_error on_volume(void *arg, const struct sr_meta_entry *entry)
{
    const struct volume_arg *to = arg;
    return to->fn(to->arg, &entry->volume);
}

enum sr_error sr_meta_each_volume(struct sr_meta *meta, sr_meta_volume_fn fn, void *arg, char *error_text,
                                  size_t error_text_bytes)
{
    struct volume_arg to = {.fn = fn, .arg = arg};
    struct scan scan = {meta, SR_META_DB_VOLUMES, NULL, on_volume, &to, error_text, error_text_bytes};
    return run_scan(&scan);
}

struct collection_arg {
    sr_meta_collection_fn fn;
    void *arg;
};

static enum sr_error on_collection(void *arg, const struct sr_meta_entry *entry)
{
    const struct collection_arg *to = arg;
    return to->fn(to->arg, &entry->collection);
}

enum sr_error sr_meta_each_collection(struct sr_meta *meta, sr_meta_collection_fn fn, void *arg, char *error_text,
                                      size_t error_text_bytes)
{
    struct collection_arg to = {.fn = fn, .arg = arg};
    struct scan scan = {meta, SR_META_DB_COLLECTIONS, NULL, on_collection, &to, error_text, error_text_bytes};
    return run_scan(&scan);
}

/* ---- the map of a volume --------------------------------------------------------------------------- */

struct map_arg {
    struct sr_core *core;
    uint32_t index;
    uint64_t n_blocks; /* of the volume; 0: no such volume */
    const char *why;
};

static enum sr_error on_size(void *arg, const struct sr_meta_entry *entry)
{
    struct map_arg *to = arg;
    to->n_blocks = entry->volume.size_bytes / SR_BLOCK_BYTES;
    return SR_OK;
}

/* The core need not expect numbers behind the end of the volume. */
static bool in_range(const struct map_arg *to, const struct sr_meta_entry *entry)
{
    switch (entry->kind) {
    case SR_META_KIND_INTENT:
    case SR_META_KIND_EXACT:
        return (uint64_t)entry->map.region * SR_REGION_BLOCKS < to->n_blocks;
    default:
        return entry->map.block < to->n_blocks;
    }
}

static enum sr_error on_map_entry(void *arg, const struct sr_meta_entry *entry)
{
    struct map_arg *to = arg;

    if (!in_range(to, entry)) {
        to->why = "an entry lies behind the end of the volume";
        return SR_E_CORRUPT;
    }
    switch (entry->kind) {
    case SR_META_KIND_INTENT:
        sr_core_load_intent(to->core, to->index, entry->map.region);
        return SR_OK;
    case SR_META_KIND_EXACT:
        sr_core_load_region(to->core, to->index, entry->map.region, entry->map.map);
        return SR_OK;
    case SR_META_KIND_FROM:
        sr_core_load_from(to->core, to->index, entry->map.block);
        return SR_OK;
    case SR_META_KIND_BAD:
        sr_core_load_bad(to->core, to->index, entry->map.block);
        return SR_OK;
    default:
        SR_UNREACHABLE();
    }
}

enum sr_error sr_meta_load_map(struct sr_meta *meta, const struct sr_uuid *volume, struct sr_core *core,
                               uint32_t index, char *error_text, size_t error_text_bytes)
{
    static const enum sr_meta_db dbs[] = {SR_META_DB_FROM, SR_META_DB_MAPS, SR_META_DB_BAD};
    struct map_arg to = {.core = core, .index = index};
    char uuid_text[SR_UUID_TEXT_BYTES];

    struct scan size = {meta, SR_META_DB_VOLUMES, volume, on_size, &to, error_text, error_text_bytes};
    enum sr_error error = run_scan(&size);
    if (error != SR_OK)
        return error;
    if (to.n_blocks == 0) {
        snprintf(error_text, error_text_bytes, "%s: no volume %s", meta->env.dir, sr_uuid_format(volume, uuid_text));
        return SR_E_NOT_FOUND;
    }
    for (size_t i = 0; i < sizeof(dbs) / sizeof(dbs[0]); i++) {
        struct scan scan = {meta, dbs[i], volume, on_map_entry, &to, error_text, error_text_bytes};
        error = run_scan(&scan);
        if (error != SR_OK && to.why != NULL)
            snprintf(error_text, error_text_bytes, "%s: database %s, volume %s: %s", meta->env.dir,
                     sr_meta_db_name(dbs[i]), sr_uuid_format(volume, uuid_text), to.why);
        if (error != SR_OK)
            return error;
    }
    return SR_OK;
}
