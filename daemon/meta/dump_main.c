/* dump_main.c - syncrep-dumpmeta STATE_DIR: prints all metadata of a site, one JSON object a line.
 *
 * For people who debug, and for tests.  Only reads, and works beside a running daemon: there it holds an LMDB
 * read transaction, so that the pages of the snapshot it prints stay as they are.  Damaged records are printed
 * with what is wrong with them; a damaged file is printed as far as it can be trusted.
 *
 * Exit: 0 all is well, 1 something is damaged or cannot be read, 2 usage.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "meta/check.h"
#include "meta/folder.h"

#define PATH_BYTES 4096
#define TRIES      20 /* a busy daemon may overwrite the newest snapshot before it is held */

struct dump {
    const char *state_dir;
    char env_dir[PATH_BYTES];
    uint64_t records, bad;
};

/* ---- values ---------------------------------------------------------------------------------------- */

static json_t *uuid_json(const struct sr_uuid *uuid)
{
    char text[SR_UUID_TEXT_BYTES];
    return sr_uuid_is_none(uuid) ? json_null() : json_string(sr_uuid_format(uuid, text));
}

static json_t *u64_json(uint64_t number)
{
    return json_integer((json_int_t)number);
}

static void print_line(json_t *object)
{
    json_dumpf(object, stdout, JSON_COMPACT | JSON_ENSURE_ASCII);
    putchar('\n');
    json_decref(object);
}

static void add_site(json_t *object, const struct sr_meta_site *site)
{
    json_object_set_new(object, "uuid", uuid_json(&site->uuid));
    json_object_set_new(object, "group", uuid_json(&site->group));
    json_object_set_new(object, "peer", uuid_json(&site->peer));
    json_object_set_new(object, "boot", u64_json(site->boot));
    json_object_set_new(object, "name", json_string(site->name));
}

static void add_volume(json_t *object, const struct sr_meta_volume *volume)
{
    static const char *const states[] = {"", "pending", "live", "deleting"};

    json_object_set_new(object, "uuid", uuid_json(&volume->uuid));
    json_object_set_new(object, "name", json_string(volume->name));
    json_object_set_new(object, "collection", uuid_json(&volume->collection));
    json_object_set_new(object, "state", json_string(states[volume->state]));
    json_object_set_new(object, "pool", json_string(volume->pool));
    json_object_set_new(object, "pool_uuid", uuid_json(&volume->pool_uuid));
    json_t *path = json_string(volume->path); /* NULL if it is not UTF-8 */
    json_object_set_new(object, "path", path != NULL ? path : json_string("(not UTF-8)"));
    json_object_set_new(object, "size_bytes", u64_json(volume->size_bytes));
    json_object_set_new(object, "imported", json_boolean(volume->imported));
    json_object_set_new(object, "durability", json_string(volume->write_back ? "write-back" : "write-through"));
    json_object_set_new(object, "creator", json_boolean(volume->creator));
    json_object_set_new(object, "created_wall_ms", u64_json(volume->created_wall_ms));
    if (!sr_uuid_is_none(&volume->pending_collection)) {
        char pending[SR_UUID_TEXT_BYTES];
        json_object_set_new(object, "pending_collection",
                            json_string(sr_uuid_format(&volume->pending_collection, pending)));
        json_object_set_new(object, "pending_name", json_string(volume->pending_name));
    }
}

static void add_collection(json_t *object, const struct sr_meta_collection *collection)
{
    static const char *const made_by[] = {"created", "alone", "failover", "forced"};
    static const char *const base_kind[] = {"none", "known", "unknown"};
    const struct sr_record *record = &collection->record;

    json_object_set_new(object, "uuid", uuid_json(&collection->uuid));
    json_object_set_new(object, "name", json_string(collection->name));
    json_object_set_new(object, "role", json_string(record->role == SR_ROLE_ACTIVE ? "active" : "alternate"));
    json_object_set_new(object, "gen", uuid_json(&record->gen));
    json_object_set_new(object, "made_by", json_string(made_by[record->made_by]));
    json_object_set_new(object, "base_kind", json_string(base_kind[record->base_kind]));
    json_object_set_new(object, "base", uuid_json(&record->base));
    json_t *ancestors = json_array();
    for (uint32_t i = 0; i < record->n_ancestors; i++)
        json_array_append_new(ancestors, uuid_json(&record->ancestors[i]));
    json_object_set_new(object, "ancestors", ancestors);
    json_object_set_new(object, "consistent", json_boolean(record->consistent));
    json_object_set_new(object, "failed", json_boolean(record->failed));
    json_object_set_new(object, "completing", json_boolean(record->completing));
    json_object_set_new(object, "handover", json_boolean(record->handover));
    json_object_set_new(object, "discard", json_boolean(record->discard));
    json_object_set_new(object, "discard_mine", uuid_json(&record->discard_mine));
    json_object_set_new(object, "discard_peer", uuid_json(&record->discard_peer));
    json_object_set_new(object, "paused", json_boolean(record->paused));
    json_object_set_new(object, "pause_counter", u64_json(record->pause_counter));
    json_object_set_new(object, "gen_wall_ms", u64_json(record->gen_wall_ms));
    json_object_set_new(object, "synced_wall_ms", u64_json(record->synced_wall_ms));
    json_object_set_new(object, "failed_volume", uuid_json(&record->failed_volume));
}

static void add_map(json_t *object, const struct sr_meta_entry *entry)
{
    char hex[2 * SR_REGION_MAP_BYTES + 1];
    int dirty = 0;

    json_object_set_new(object, "volume", uuid_json(&entry->map.volume));
    switch (entry->kind) {
    case SR_META_KIND_INTENT:
    case SR_META_KIND_EXACT:
        json_object_set_new(object, "region", u64_json(entry->map.region));
        json_object_set_new(object, "kind", json_string(entry->kind == SR_META_KIND_INTENT ? "intent" : "exact"));
        break;
    default:
        json_object_set_new(object, "block", u64_json(entry->map.block));
        break;
    }
    if (entry->kind != SR_META_KIND_EXACT)
        return;
    for (size_t i = 0; i < SR_REGION_MAP_BYTES; i++) {
        dirty += __builtin_popcount(entry->map.map[i]);
        snprintf(hex + 2 * i, 3, "%02x", entry->map.map[i]);
    }
    json_object_set_new(object, "dirty_blocks", json_integer(dirty));
    json_object_set_new(object, "map", json_string(hex));
}

static enum sr_error print_record(void *arg, enum sr_meta_db db, const void *key, size_t key_bytes, const void *value,
                                  size_t value_bytes)
{
    struct dump *dump = arg;
    struct sr_meta_entry entry;
    char key_text[SR_META_KEY_TEXT_BYTES];
    const char *why;

    json_t *object = json_object();
    json_object_set_new(object, "db", json_string(sr_meta_db_name(db)));
    dump->records++;
    if (sr_meta_parse(db, key, key_bytes, value, value_bytes, &entry, &why) != SR_OK) {
        dump->bad++;
        json_object_set_new(object, "key", json_string(sr_meta_key_text(db, key, key_bytes, key_text)));
        json_object_set_new(object, "error", json_string(why));
        print_line(object);
        return SR_OK; /* the others may be whole */
    }
    if (entry.kind == SR_META_KIND_SITE)
        add_site(object, &entry.site);
    else if (entry.kind == SR_META_KIND_VOLUME)
        add_volume(object, &entry.volume);
    else if (entry.kind == SR_META_KIND_COLLECTION)
        add_collection(object, &entry.collection);
    else
        add_map(object, &entry);
    print_line(object);
    return SR_OK;
}

/* ---- files ----------------------------------------------------------------------------------------- */

static bool daemon_runs(const struct dump *dump)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    char path[PATH_BYTES + 16];

    snprintf(path, sizeof(path), "%s/lock", dump->state_dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool runs = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
    close(fd);
    return runs;
}

static int open_env(const struct dump *dump, MDB_env **env)
{
    int rc = mdb_env_create(env);
    if (rc != 0)
        return rc;
    rc = mdb_env_open(*env, dump->env_dir, MDB_RDONLY | MDB_NOTLS, 0600);
    if (rc != 0)
        mdb_env_close(*env);
    return rc;
}

static int print_snapshot(struct dump *dump, MDB_env *env, int fd)
{
    char text[512];
    MDB_txn *txn = NULL;
    struct sr_meta_check check = {.path = dump->env_dir,
                                  .visit = print_record,
                                  .arg = dump,
                                  .error_text = text,
                                  .error_text_bytes = sizeof(text)};
    enum sr_error error;

    for (int i = 0;; i++) {
        int rc = env != NULL ? mdb_txn_begin(env, NULL, MDB_RDONLY, &txn) : 0;
        if (rc == MDB_MAP_RESIZED && mdb_env_set_mapsize(env, 0) == 0 && i < TRIES)
            continue;
        check.txnid = rc == 0 && txn != NULL ? mdb_txn_id(txn) : 0;
        error = sr_meta_check_file(fd, &check);
        if (txn != NULL)
            mdb_txn_abort(txn);
        txn = NULL;
        if (error == SR_OK || env == NULL || dump->records > 0 || i >= TRIES)
            break;
        usleep(1000);
    }
    if (error != SR_OK) {
        fprintf(stderr, "syncrep-dumpmeta: %s\n", text);
        return 1;
    }
    print_line(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "file", "data.mdb", "records", (json_int_t)dump->records,
                         "damaged_records", (json_int_t)dump->bad, "used_pages", (json_int_t)check.used_pages,
                         "free_pages", (json_int_t)check.free_pages, "map_bytes", (json_int_t)check.map_bytes));
    return dump->bad > 0 ? 1 : 0;
}

static int print_marker(const struct dump *dump)
{
    struct sr_uuid site;
    char text[512], uuid_text[SR_UUID_TEXT_BYTES];

    enum sr_error error = sr_meta_folder_read_site(dump->state_dir, &site, text, sizeof(text));
    if (error == SR_E_NOT_FOUND)
        return 0; /* the first start was cut short: the next one writes it */
    if (error != SR_OK) {
        fprintf(stderr, "syncrep-dumpmeta: %s\n", text);
        return 1;
    }
    print_line(json_pack("{s:s, s:s}", "file", "site", "uuid", sr_uuid_format(&site, uuid_text)));
    return 0;
}

static int dump_all(struct dump *dump)
{
    char path[PATH_BYTES + 16];
    MDB_env *env = NULL;

    snprintf(path, sizeof(path), "%s/data.mdb", dump->env_dir);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        fprintf(stderr, "syncrep-dumpmeta: %s: %s\n", path, strerror(errno));
        return 1;
    }
    int status = print_marker(dump);
    if (daemon_runs(dump)) {
        int rc = open_env(dump, &env);
        if (rc != 0) {
            fprintf(stderr, "syncrep-dumpmeta: %s: a daemon is running, and its metadata cannot be held: %s\n",
                    dump->env_dir, mdb_strerror(rc));
            close(fd);
            return 1;
        }
    }
    if (print_snapshot(dump, env, fd) != 0)
        status = 1;
    if (env != NULL)
        mdb_env_close(env);
    close(fd);
    return status;
}

int main(int argc, char **argv)
{
    struct dump dump = {0};

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        puts("usage: syncrep-dumpmeta STATE_DIR\n"
             "Prints all metadata of a site, one JSON object a line; changes nothing.  A daemon may be running.\n"
             "Example: syncrep-dumpmeta /var/lib/syncrep | jq 'select(.db == \"collections\")'\n"
             "Exit: 0 all is well, 1 something is damaged or cannot be read, 2 usage");
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-' || strlen(argv[1]) > 1000) {
        fprintf(stderr, "usage: syncrep-dumpmeta STATE_DIR\n");
        return 2;
    }
    dump.state_dir = argv[1];
    snprintf(dump.env_dir, sizeof(dump.env_dir), "%s/" SR_META_ENV_NAME, argv[1]);
    int status = dump_all(&dump);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "syncrep-dumpmeta: cannot write: %s\n", strerror(errno));
        return 1;
    }
    return status;
}
