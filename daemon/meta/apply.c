/* apply.c - one change into an open LMDB transaction.
 *
 * Nothing here is durable or visible before the transaction is committed, so a crash at any line leaves the
 * state before; a transaction that must be repeated (a full map) starts from there too, hence:
 *   A1  Applying only reads the job (but for job->error, which it sets anew each time).
 */
#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "meta/internal.h"

static int put(struct sr_meta_env *env, MDB_txn *txn, enum sr_meta_db db, const void *key, size_t key_bytes,
               const void *value, size_t value_bytes)
{
    MDB_val k = {.mv_size = key_bytes, .mv_data = (void *)key};
    MDB_val v = {.mv_size = value_bytes, .mv_data = (void *)value};
    return mdb_put(txn, env->dbi[db], &k, &v, 0);
}

/* One that is not there is fine. */
static int del(struct sr_meta_env *env, MDB_txn *txn, enum sr_meta_db db, const void *key, size_t key_bytes)
{
    MDB_val k = {.mv_size = key_bytes, .mv_data = (void *)key};
    int rc = mdb_del(txn, env->dbi[db], &k, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Everything whose key begins with the volume's UUID. */
static int del_volume_range(struct sr_meta_env *env, MDB_txn *txn, enum sr_meta_db db, const struct sr_uuid *volume)
{
    MDB_val key = {.mv_size = SR_UUID_BYTES, .mv_data = (void *)volume->b};
    MDB_val value;
    MDB_cursor *cursor;

    int rc = mdb_cursor_open(txn, env->dbi[db], &cursor);
    if (rc != 0)
        return rc;
    rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
    while (rc == 0 && key.mv_size >= SR_UUID_BYTES && memcmp(key.mv_data, volume->b, SR_UUID_BYTES) == 0) {
        rc = mdb_cursor_del(cursor, 0);
        if (rc == 0)
            rc = mdb_cursor_get(cursor, &key, &value, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* ---- a core's commit ------------------------------------------------------------------------------- */

/* MDB_NOTFOUND: no such collection. */
static int read_collection(struct sr_meta_env *env, MDB_txn *txn, const struct sr_uuid *uuid,
                           struct sr_meta_entry *entry)
{
    MDB_val key = {.mv_size = SR_UUID_BYTES, .mv_data = (void *)uuid->b};
    MDB_val value;
    const char *why;

    int rc = mdb_get(txn, env->dbi[SR_META_DB_COLLECTIONS], &key, &value);
    if (rc != 0)
        return rc;
    enum sr_error error =
        sr_meta_parse(SR_META_DB_COLLECTIONS, uuid->b, SR_UUID_BYTES, value.mv_data, value.mv_size, entry, &why);
    return error == SR_OK ? 0 : MDB_CORRUPTED;
}

/* The name is the catalogue's, the record is the core's. */
static int put_record(struct sr_meta_env *env, MDB_txn *txn, struct sr_meta_collection *collection,
                      const struct sr_record *record)
{
    uint8_t value[SR_META_VALUE_MAX_BYTES];

    collection->record = *record;
    size_t bytes = sr_meta_format_collection(collection, value);
    return put(env, txn, SR_META_DB_COLLECTIONS, collection->uuid.b, SR_UUID_BYTES, value, bytes);
}

static int put_map(struct sr_meta_env *env, MDB_txn *txn, const struct sr_uuid *volume, uint32_t region,
                   const uint8_t *map)
{
    uint8_t key[SR_META_MAP_KEY_BYTES];
    uint8_t value[SR_META_EXACT_BYTES];

    sr_meta_format_map_key(volume, region, key);
    size_t bytes = sr_meta_format_map(key, map, value);
    return put(env, txn, SR_META_DB_MAPS, key, sizeof(key), value, bytes);
}

static int put_from(struct sr_meta_env *env, MDB_txn *txn, const struct sr_uuid *volume, uint64_t block)
{
    uint8_t value[SR_META_FROM_BYTES];

    if (block == UINT64_MAX)
        return del(env, txn, SR_META_DB_FROM, volume->b, SR_UUID_BYTES);
    size_t bytes = sr_meta_format_from(volume, block, value);
    return put(env, txn, SR_META_DB_FROM, volume->b, SR_UUID_BYTES, value, bytes);
}

static int put_bad(struct sr_meta_env *env, MDB_txn *txn, const struct sr_uuid *volume, uint64_t block, bool bad)
{
    uint8_t key[SR_META_BAD_KEY_BYTES];
    uint8_t value[SR_META_BAD_BYTES];

    sr_meta_format_bad_key(volume, block, key);
    if (!bad)
        return del(env, txn, SR_META_DB_BAD, key, sizeof(key));
    size_t bytes = sr_meta_format_bad(key, value);
    return put(env, txn, SR_META_DB_BAD, key, sizeof(key), value, bytes);
}

/* The map, not the bad blocks: what could not be read stays unfit to copy from until it was rewritten. */
static int clear_volume(struct sr_meta_env *env, MDB_txn *txn, const struct sr_uuid *volume)
{
    int rc = del_volume_range(env, txn, SR_META_DB_MAPS, volume);
    return rc != 0 ? rc : del(env, txn, SR_META_DB_FROM, volume->b, SR_UUID_BYTES);
}

static int apply_op(struct sr_meta_env *env, MDB_txn *txn, const struct sr_meta_job *job, const struct sr_meta_op *op)
{
    uint8_t key[SR_META_MAP_KEY_BYTES];

    if (op->type == SR_META_RECORD)
        return 0; /* done with the whole commit */
    SR_ASSERT(op->volume < job->n_volumes);
    const struct sr_uuid *volume = &job->volumes[op->volume];
    switch (op->type) {
    case SR_META_INTENT:
        return put_map(env, txn, volume, op->region, NULL);
    case SR_META_REGION:
        SR_ASSERT(op->map < job->commit->n_maps);
        return put_map(env, txn, volume, op->region, job->commit->maps[op->map]);
    case SR_META_CLEAN:
        sr_meta_format_map_key(volume, op->region, key);
        return del(env, txn, SR_META_DB_MAPS, key, sizeof(key));
    case SR_META_FROM:
        return put_from(env, txn, volume, op->block);
    case SR_META_CLEAR:
        return clear_volume(env, txn, volume);
    case SR_META_BAD:
        return put_bad(env, txn, volume, op->block, true);
    case SR_META_GOOD:
        return put_bad(env, txn, volume, op->block, false);
    case SR_META_RECORD:
        break;
    }
    SR_UNREACHABLE();
}

static int apply_core(struct sr_meta_env *env, MDB_txn *txn, struct sr_meta_job *job)
{
    const struct sr_commit *commit = job->commit;
    struct sr_meta_entry entry;
    int rc = 0;

    if (commit->has_record) {
        rc = read_collection(env, txn, &job->collection, &entry);
        if (rc == MDB_NOTFOUND) {
            job->error = SR_E_NOT_FOUND;
            return 0;
        }
        if (rc == 0 && job->last_record)
            rc = put_record(env, txn, &entry.collection, &commit->record);
    }
    for (uint32_t i = 0; i < commit->n_ops && rc == 0; i++)
        rc = apply_op(env, txn, job, &commit->ops[i]);
    return rc;
}

/* ---- a change of the catalogue --------------------------------------------------------------------- */

static int drop_volume(struct sr_meta_env *env, MDB_txn *txn, const struct sr_uuid *volume)
{
    int rc = del(env, txn, SR_META_DB_VOLUMES, volume->b, SR_UUID_BYTES);
    if (rc == 0)
        rc = clear_volume(env, txn, volume);
    if (rc == 0)
        rc = del_volume_range(env, txn, SR_META_DB_BAD, volume);
    return rc;
}

static int apply_change(struct sr_meta_env *env, MDB_txn *txn, const struct sr_meta_job *job)
{
    int rc = 0;

    if (job->put_site.bytes > 0)
        rc = put(env, txn, SR_META_DB_SITE, SR_META_SITE_KEY, strlen(SR_META_SITE_KEY), job->put_site.value,
                 job->put_site.bytes);
    if (rc == 0 && job->put_collection.bytes > 0)
        rc = put(env, txn, SR_META_DB_COLLECTIONS, job->collection.b, SR_UUID_BYTES, job->put_collection.value,
                 job->put_collection.bytes);
    if (rc == 0 && job->put_volume.bytes > 0)
        rc = put(env, txn, SR_META_DB_VOLUMES, job->volume.b, SR_UUID_BYTES, job->put_volume.value,
                 job->put_volume.bytes);
    if (rc == 0 && job->drop_volume)
        rc = drop_volume(env, txn, &job->dropped_volume);
    if (rc == 0 && job->drop_collection)
        rc = del(env, txn, SR_META_DB_COLLECTIONS, job->dropped_collection.b, SR_UUID_BYTES);
    return rc;
}

int sr_meta_apply(struct sr_meta_env *env, MDB_txn *txn, struct sr_meta_job *job)
{
    job->error = job->refused;
    return job->commit != NULL ? apply_core(env, txn, job) : apply_change(env, txn, job);
}
