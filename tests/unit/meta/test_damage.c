/* test_damage.c - a damaged, truncated, missing or foreign state folder is refused: no crash, never "clean". */
#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "meta/check.h"
#include "meta/internal.h"

#define MAP_BYTES SR_MIB

struct damage {
    struct fixture f;
    char data_path[256];
    uint8_t *data; /* of data.mdb, undamaged */
    size_t bytes;
};

/* A store with trees of two levels, free pages and every kind of record, closed. */
static int setup(void **state)
{
    struct damage *d = calloc(1, sizeof(*d));
    struct fixture *f = &d->f;
    struct sr_meta_volume volume = make_volume(1), second = make_volume(2);
    struct sr_meta_collection collection = make_collection(1);
    struct sr_commit *commit = commit_new(300, 1);
    struct sr_uuid none = {0};

    fixture_init(f);
    assert_int_equal(fixture_open_map(f, MAP_BYTES), SR_OK);
    put_volume(f, &volume);
    put_volume(f, &second);
    put_collection(f, &collection);
    memset(commit->maps[0], 0xa5, SR_REGION_MAP_BYTES);
    for (uint32_t i = 0; i < 300; i++)
        commit->ops[i] = (struct sr_meta_op){.type = i % 3 ? SR_META_REGION : SR_META_INTENT, .region = i};
    run_commit(f, &none, &volume.uuid, commit);
    run_commit(f, &none, &second.uuid, commit);
    run_op(f, &second.uuid, (struct sr_meta_op){.type = SR_META_CLEAR});
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_FROM, .block = 1000});
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_BAD, .block = 77});
    assert_int_equal(f->n_failed, 0);
    fixture_close(f);
    commit_free(commit);
    snprintf(d->data_path, sizeof(d->data_path), "%s/meta/data.mdb", f->state_dir);
    d->data = read_file(d->data_path, &d->bytes);
    assert_int_equal(d->bytes, MAP_BYTES);
    *state = d;
    return 0;
}

static int teardown(void **state)
{
    struct damage *d = *state;
    fixture_free(&d->f);
    free(d->data);
    free(d);
    return 0;
}

static void assert_refused(struct damage *d)
{
    enum sr_error error = fixture_open_map(&d->f, MAP_BYTES);
    assert_int_not_equal(error, SR_OK);
    assert_null(d->f.meta);
    assert_non_null(strstr(d->f.text, d->f.state_dir)); /* the text names the place */
}

static void assert_opens(struct damage *d)
{
    enum sr_error error = fixture_open_map(&d->f, MAP_BYTES);
    if (error != SR_OK)
        print_error("%s\n", d->f.text);
    assert_int_equal(error, SR_OK);
    fixture_close(&d->f);
}

/* ---- the file ---------------------------------------------------------------------------------------- */

static void truncated_file_is_refused(void **state)
{
    struct damage *d = *state;

    for (size_t n = 0; n < d->bytes; n += n < 20000 ? 509 : 4096) {
        write_file(d->data_path, d->data, n);
        assert_refused(d);
        assert_non_null(strstr(d->f.text, n < 512 ? "truncated" : "metadata is"));
    }
    write_file(d->data_path, d->data, d->bytes - 1);
    assert_refused(d);
    write_file(d->data_path, d->data, d->bytes);
    assert_opens(d);
}

/* The end of the file came back as zeroes, as after a crash of some file systems. */
static void file_that_ends_in_zeroes_is_refused(void **state)
{
    struct damage *d = *state;
    size_t used = d->bytes;

    while (d->data[used - 1] == 0)
        used--;
    uint8_t *copy = calloc(1, d->bytes);
    for (size_t n = 4096; n + 4096 <= used; n += 4096) {
        memcpy(copy, d->data, n);
        write_file(d->data_path, copy, d->bytes);
        assert_refused(d);
    }
    free(copy);
}

static enum sr_error sum_record(void *arg, enum sr_meta_db db, const void *key, size_t key_bytes, const void *value,
                                size_t value_bytes)
{
    uint32_t *sum = arg;
    struct sr_meta_entry entry;
    const char *why;

    enum sr_error error = sr_meta_parse(db, key, key_bytes, value, value_bytes, &entry, &why);
    *sum = sr_crc32c(*sum, &db, sizeof(db));
    *sum = sr_crc32c(sr_crc32c(*sum, key, key_bytes), value, value_bytes);
    return error;
}

static enum sr_error check(int fd, uint32_t *sum)
{
    char text[512] = "";
    struct sr_meta_check check = {
        .path = "x", .visit = sum_record, .arg = sum, .error_text = text, .error_text_bytes = sizeof(text)};
    *sum = 0;
    return sr_meta_check_file(fd, &check);
}

/* C1 to C5, F2: a changed byte is found, or it did not matter: the very same records are there. */
static void each_changed_byte_is_refused_or_harmless(void **state)
{
    struct damage *d = *state;
    uint32_t good, sum;
    size_t used = d->bytes, refused = 0, tried = 0;

    while (d->data[used - 1] == 0)
        used--;
    int fd = open(d->data_path, O_RDWR | O_CLOEXEC);
    assert_int_equal(check(fd, &good), SR_OK);
    for (size_t at = 0; at < used; at++) {
        bool header = at < 8192 ? at % 4096 < 160 : at % 4096 < 20; /* of a page: each bit; else a sample */
        for (unsigned bit = header ? 0 : at % 8; bit < 8 && (header || at % 13 == 0); bit += header ? 1 : 8) {
            uint8_t bad = d->data[at] ^ (uint8_t)(1u << bit);
            assert_int_equal(pwrite(fd, &bad, 1, (off_t)at), 1);
            tried++;
            if (check(fd, &sum) != SR_OK)
                refused++;
            else if (sum != good)
                fail_msg("byte %zu changed the records unnoticed", at);
            assert_int_equal(pwrite(fd, d->data + at, 1, (off_t)at), 1);
        }
    }
    assert_int_equal(check(fd, &sum), SR_OK);
    assert_true(sum == good);
    assert_true(refused > tried / 4); /* the rest is unused space and the snapshot before */
    close(fd);
}

static uint64_t u64_at(const struct damage *d, size_t at)
{
    uint64_t number;
    memcpy(&number, d->data + at, sizeof(number));
    return number;
}

static uint16_t u16_at(const struct damage *d, size_t at)
{
    uint16_t number;
    memcpy(&number, d->data + at, sizeof(number));
    return number;
}

/* Where the newest meta page begins. */
static size_t newest_meta(const struct damage *d)
{
    return u64_at(d, 144) > u64_at(d, 4096 + 144) ? 0 : 4096;
}

static void assert_write_refused(struct damage *d, size_t at, const void *bytes, size_t n)
{
    uint32_t sum;
    int fd = open(d->data_path, O_RDWR | O_CLOEXEC);
    assert_int_equal(check(fd, &sum), SR_OK);
    assert_int_equal(pwrite(fd, bytes, n, (off_t)at), (ssize_t)n);
    assert_int_equal(check(fd, &sum), SR_E_CORRUPT);
    assert_int_equal(pwrite(fd, d->data + at, n, (off_t)at), (ssize_t)n);
    close(fd);
}

/* C1: the numbers of the meta pages exchanged: each is where the other belongs. */
static void exchanged_meta_pages_are_refused(void **state)
{
    struct damage *d = *state;
    uint8_t pages[8192];

    memcpy(pages, d->data, sizeof(pages));
    memcpy(pages + 144, d->data + 4096 + 144, 8);
    memcpy(pages + 4096 + 144, d->data + 144, 8);
    write_file(d->data_path, d->data, d->bytes);
    assert_write_refused(d, 0, pages, sizeof(pages));
}

/* C3: LMDB would hand a page that is in use out again. */
static void free_list_that_names_a_used_page_is_refused(void **state)
{
    struct damage *d = *state;
    size_t meta = newest_meta(d);
    size_t leaf = u64_at(d, meta + 40 + 40) * 4096; /* root of the free list: a single leaf here */
    uint64_t main_root = u64_at(d, meta + 40 + 48 + 40);

    assert_int_equal(u16_at(d, leaf + 10) & 2, 2);
    size_t node = leaf + u16_at(d, leaf + 16);
    assert_true(u64_at(d, node + 16) > 0); /* count; then the pages */
    assert_write_refused(d, node + 24, &main_root, sizeof(main_root));
}

/* C4: the walk would still find every record, but a lookup would not. */
static void separator_above_its_child_is_refused(void **state)
{
    struct damage *d = *state;
    uint32_t sum;
    int refused = 0, branches = 0;

    int fd = open(d->data_path, O_RDWR | O_CLOEXEC);
    for (size_t page = 8192; page < d->bytes; page += 4096) {
        if (u16_at(d, page + 10) != 1)
            continue;
        branches++; /* perhaps one of an older snapshot */
        size_t last = page + u16_at(d, page + 18) + 8 + SR_META_MAP_KEY_BYTES - 1;
        uint8_t bad = d->data[last] + 1;
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)last), 1);
        refused += check(fd, &sum) == SR_E_CORRUPT;
        assert_int_equal(pwrite(fd, d->data + last, 1, (off_t)last), 1);
    }
    close(fd);
    assert_true(branches > 0);
    assert_int_equal(refused, 1);
}

static void each_zeroed_sector_is_refused_or_harmless(void **state)
{
    struct damage *d = *state;
    static const uint8_t zeroes[512];
    uint32_t good, sum;

    int fd = open(d->data_path, O_RDWR | O_CLOEXEC);
    assert_int_equal(check(fd, &good), SR_OK);
    for (size_t at = 0; at + 512 <= d->bytes; at += 512) {
        assert_int_equal(pwrite(fd, zeroes, 512, (off_t)at), 512);
        if (check(fd, &sum) == SR_OK)
            assert_true(sum == good);
        assert_int_equal(pwrite(fd, d->data + at, 512, (off_t)at), 512);
    }
    close(fd);
}

static void random_garbage_is_refused(void **state)
{
    struct damage *d = *state;
    uint8_t *copy = malloc(d->bytes);
    uint32_t sum, seed = 12345;

    for (int round = 0; round < 300; round++) {
        memcpy(copy, d->data, d->bytes);
        for (int i = 0; i < 40; i++) {
            seed = seed * 1664525u + 1013904223u;
            copy[(seed >> 4) % 120000] = (uint8_t)(seed >> 24);
        }
        write_file(d->data_path, copy, d->bytes);
        int fd = open(d->data_path, O_RDONLY | O_CLOEXEC);
        (void)check(fd, &sum); /* must not crash; refuses nearly always */
        close(fd);
    }
    free(copy);
    write_file(d->data_path, d->data, d->bytes);
    assert_opens(d);
}

/* The other side of all these refusals: whatever LMDB makes of a random history, with readers that hold old
 * snapshots, large deletions and growth, it passes. */
static void healthy_file_always_passes(void **state)
{
    struct damage *d = *state;
    struct fixture *f = &d->f;
    struct sr_meta_volume volumes[2] = {make_volume(1), make_volume(2)};
    struct sr_uuid none = {0};
    MDB_txn *reader = NULL;
    uint32_t seed = 99, sum;

    assert_int_equal(fixture_open_map(f, MAP_BYTES), SR_OK);
    int fd = open(d->data_path, O_RDONLY | O_CLOEXEC);
    for (int round = 0; round < 400; round++) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t n = (seed >> 8) % 16 == 0 ? 4000 : (seed >> 8) % 40;
        struct sr_commit *commit = commit_new(n, 1);
        for (uint32_t i = 0; i < n; i++) {
            seed = seed * 1664525u + 1013904223u;
            static const enum sr_meta_op_type types[] = {SR_META_INTENT, SR_META_REGION, SR_META_REGION,
                                                         SR_META_CLEAN};
            commit->ops[i] = (struct sr_meta_op){.type = types[(seed >> 12) % 4], .region = (seed >> 14) % 20000};
            if (i == 20 && seed % 4 == 0)
                commit->ops[i].type = SR_META_CLEAR;
        }
        assert_int_equal(run_commit(f, &none, &volumes[round & 1].uuid, commit), SR_OK);
        commit_free(commit);
        if (round % 40 == 10)
            assert_int_equal(mdb_txn_begin(f->meta->env.mdb, NULL, MDB_RDONLY, &reader), 0);
        if (round % 40 == 30)
            mdb_txn_abort(reader);
        if (round % 50 == 49 && round % 40 < 10) {
            fixture_close(f);
            assert_int_equal(fixture_open_map(f, MAP_BYTES), SR_OK);
        }
        assert_int_equal(check(fd, &sum), SR_OK);
    }
    close(fd);
}

/* ---- records: names database and key ---------------------------------------------------------------- */

/* Changes a record through LMDB, so that only its own CRC can tell. */
static void damage_record(struct damage *d, enum sr_meta_db db, const void *key, size_t key_bytes, size_t at,
                          bool newer)
{
    struct sr_meta_env env;
    char dir[256], text[512];
    uint8_t copy[SR_META_VALUE_MAX_BYTES];
    MDB_val k = {.mv_size = key_bytes, .mv_data = (void *)key}, v;
    MDB_txn *txn;

    snprintf(dir, sizeof(dir), "%s/meta", d->f.state_dir);
    assert_int_equal(sr_meta_env_open(&env, dir, MAP_BYTES, text, sizeof(text)), SR_OK);
    assert_int_equal(mdb_txn_begin(env.mdb, NULL, 0, &txn), 0);
    assert_int_equal(mdb_get(txn, env.dbi[db], &k, &v), 0);
    memcpy(copy, v.mv_data, v.mv_size);
    v.mv_data = copy;
    copy[at] = newer ? (uint8_t)(copy[at] + 2) : copy[at] ^ 1; /* the next version of a volume's is known */
    if (newer) {
        uint32_t crc = sr_crc32c(0, key, key_bytes);
        crc = sr_crc32c(sr_crc32c(crc, copy, 4), copy + 8, v.mv_size - 8);
        memcpy(copy + 4, &crc, 4);
    }
    assert_int_equal(mdb_put(txn, env.dbi[db], &k, &v, 0), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    sr_meta_env_close(&env);
}

static void damaged_record_is_refused_by_database_and_key(void **state)
{
    struct damage *d = *state;
    struct sr_uuid volume = make_uuid(1), collection = make_uuid(101);
    char uuid_text[SR_UUID_TEXT_BYTES];
    uint8_t map_key[SR_META_MAP_KEY_BYTES], bad_key[SR_META_BAD_KEY_BYTES];

    sr_meta_format_map_key(&volume, 17, map_key);
    sr_meta_format_bad_key(&volume, 77, bad_key);
    struct {
        enum sr_meta_db db;
        const void *key;
        size_t key_bytes;
        const char *name;
    } records[] = {
        {SR_META_DB_SITE, "site", 4, "database site, key site"},
        {SR_META_DB_VOLUMES, volume.b, 16, sr_uuid_format(&volume, uuid_text)},
        {SR_META_DB_COLLECTIONS, collection.b, 16, "database collections"},
        {SR_META_DB_MAPS, map_key, sizeof(map_key), "region 17"},
        {SR_META_DB_FROM, volume.b, 16, "database fromblocks"},
        {SR_META_DB_BAD, bad_key, sizeof(bad_key), "block 77"},
    };
    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++) {
        damage_record(d, records[i].db, records[i].key, records[i].key_bytes, 7, false);
        assert_refused(d);
        assert_non_null(strstr(d->f.text, records[i].name));
        assert_non_null(strstr(d->f.text, sr_meta_db_name(records[i].db)));
        write_file(d->data_path, d->data, d->bytes);
        damage_record(d, records[i].db, records[i].key, records[i].key_bytes, 0, true);
        assert_int_equal(fixture_open_map(&d->f, MAP_BYTES), SR_E_VERSION);
        assert_non_null(strstr(d->f.text, "newer syncrep"));
        write_file(d->data_path, d->data, d->bytes);
    }
    assert_opens(d);
}

static void database_of_a_newer_version_is_refused(void **state)
{
    struct damage *d = *state;
    char dir[256];
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;

    snprintf(dir, sizeof(dir), "%s/meta", d->f.state_dir);
    assert_int_equal(mdb_env_create(&env), 0);
    assert_int_equal(mdb_env_set_maxdbs(env, 10), 0);
    assert_int_equal(mdb_env_open(env, dir, 0, 0600), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &txn), 0);
    assert_int_equal(mdb_dbi_open(txn, "snapshots", MDB_CREATE, &dbi), 0);
    assert_int_equal(mdb_txn_commit(txn), 0);
    mdb_env_close(env);
    assert_int_equal(fixture_open_map(&d->f, MAP_BYTES), SR_E_VERSION);
    assert_non_null(strstr(d->f.text, "newer syncrep"));
}

/* ---- missing files ----------------------------------------------------------------------------------- */

static void lost_metadata_is_not_a_new_site(void **state)
{
    struct damage *d = *state;
    char meta[256], away[256], command[600];

    snprintf(meta, sizeof(meta), "%s/meta", d->f.state_dir);
    snprintf(away, sizeof(away), "%s/away", d->f.root);
    assert_int_equal(rename(meta, away), 0);
    assert_refused(d);
    assert_non_null(strstr(d->f.text, "missing"));
    assert_int_equal(access(meta, F_OK), -1);

    assert_int_equal(mkdir(meta, 0700), 0); /* an empty folder, as of a file system that is not mounted */
    assert_refused(d);
    assert_int_equal(rmdir(meta), 0);
    assert_int_equal(rename(away, meta), 0);
    assert_opens(d);
    snprintf(command, sizeof(command), "rm %s", d->data_path);
    assert_int_equal(system(command), 0);
    assert_refused(d);
}

static void marker_of_another_site_is_refused(void **state)
{
    struct damage *d = *state;
    char path[256];
    size_t bytes;

    snprintf(path, sizeof(path), "%s/site", d->f.state_dir);
    uint8_t *marker = read_file(path, &bytes);
    assert_int_equal(bytes, 52);
    marker[20] = marker[20] == 'a' ? 'b' : 'a';
    write_file(path, marker, bytes);
    assert_int_equal(fixture_open_map(&d->f, MAP_BYTES), SR_E_IDENTITY);
    for (size_t n = 0; n < bytes; n++) {
        write_file(path, marker, n);
        assert_int_equal(fixture_open_map(&d->f, MAP_BYTES), SR_E_CORRUPT);
    }
    free(marker);
}

static void damaged_lock_file_of_lmdb_is_harmless(void **state)
{
    struct damage *d = *state;
    uint8_t garbage[9000];
    char path[256];

    snprintf(path, sizeof(path), "%s/meta/lock.mdb", d->f.state_dir);
    memset(garbage, 0xc3, sizeof(garbage));
    for (size_t n = 0; n <= sizeof(garbage); n += 1500) {
        write_file(path, garbage, n);
        assert_opens(d);
    }
    assert_int_equal(unlink(path), 0);
    assert_opens(d);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(truncated_file_is_refused),
        T(file_that_ends_in_zeroes_is_refused),
        T(each_changed_byte_is_refused_or_harmless),
        T(each_zeroed_sector_is_refused_or_harmless),
        T(healthy_file_always_passes),
        T(exchanged_meta_pages_are_refused),
        T(free_list_that_names_a_used_page_is_refused),
        T(separator_above_its_child_is_refused),
        T(random_garbage_is_refused),
        T(damaged_record_is_refused_by_database_and_key),
        T(database_of_a_newer_version_is_refused),
        T(lost_metadata_is_not_a_new_site),
        T(marker_of_another_site_is_refused),
        T(damaged_lock_file_of_lmdb_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
