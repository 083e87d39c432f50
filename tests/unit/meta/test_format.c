/* test_format.c - the bytes of every record: golden, round trip, each byte damaged (F1 to F4 of format.h). */
#include "fixture.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "golden.h"
#include "meta/format.h"

static enum sr_error parse(enum sr_meta_db db, const void *key, size_t key_bytes, const void *value, size_t bytes,
                           struct sr_meta_entry *entry)
{
    const char *why;
    enum sr_error error = sr_meta_parse(db, key, key_bytes, value, bytes, entry, &why);
    assert_true((error == SR_OK) == (why[0] == '\0') || error == SR_OK);
    return error;
}

static void assert_hex(const uint8_t *value, size_t bytes, const char *want)
{
    char hex[2 * SR_META_VALUE_MAX_BYTES + 1] = "";
    for (size_t i = 0; i < bytes; i++)
        snprintf(hex + 2 * i, 3, "%02x", value[i]);
    assert_string_equal(hex, want);
}

/* Every single changed byte, in key and value, every other length. */
static void assert_every_damage_refused(enum sr_meta_db db, const void *key, size_t key_bytes, const uint8_t *value,
                                        size_t bytes)
{
    uint8_t k[64], v[SR_META_VALUE_MAX_BYTES + 1];
    struct sr_meta_entry entry;

    memcpy(k, key, key_bytes);
    memcpy(v, value, bytes);
    assert_int_equal(parse(db, k, key_bytes, v, bytes, &entry), SR_OK);
    for (size_t i = 0; i < bytes; i++) {
        for (int bit = 0; bit < 8; bit++) {
            v[i] ^= (uint8_t)(1 << bit);
            assert_int_equal(parse(db, k, key_bytes, v, bytes, &entry), SR_E_CORRUPT);
            v[i] ^= (uint8_t)(1 << bit);
        }
    }
    for (size_t i = 0; i < key_bytes; i++) {
        k[i] ^= 0x10;
        assert_int_equal(parse(db, k, key_bytes, v, bytes, &entry), SR_E_CORRUPT);
        k[i] ^= 0x10;
    }
    for (size_t n = 0; n < bytes; n++)
        assert_int_equal(parse(db, k, key_bytes, v, n, &entry), SR_E_CORRUPT);
    v[bytes] = 0;
    assert_int_equal(parse(db, k, key_bytes, v, bytes + 1, &entry), SR_E_CORRUPT);
}

/* Puts a right checksum on a changed record. */
static void reseal(const void *key, size_t key_bytes, uint8_t *value, size_t bytes)
{
    uint32_t crc = sr_crc32c(0, key, key_bytes);
    crc = htole32(sr_crc32c(sr_crc32c(crc, value, 4), value + 8, bytes - 8));
    memcpy(value + 4, &crc, 4);
}

static void assert_newer_refused(enum sr_meta_db db, const void *key, size_t key_bytes, const uint8_t *value,
                                 size_t bytes)
{
    uint8_t v[SR_META_VALUE_MAX_BYTES];
    struct sr_meta_entry entry;
    const char *why;

    memcpy(v, value, bytes);
    v[0] = (uint8_t)((db == SR_META_DB_VOLUMES ? SR_META_VERSION_WRITE_BACK : value[0]) + 1);
    reseal(key, key_bytes, v, bytes);
    assert_int_equal(sr_meta_parse(db, key, key_bytes, v, bytes, &entry, &why), SR_E_VERSION);
    assert_string_equal(why, "written by a newer syncrep");
    v[0] = value[0];
    v[2] = 1; /* reserved */
    reseal(key, key_bytes, v, bytes);
    assert_int_equal(parse(db, key, key_bytes, v, bytes, &entry), SR_E_CORRUPT);
    v[2] = 0;
    v[1] = 99; /* kind */
    reseal(key, key_bytes, v, bytes);
    assert_int_equal(parse(db, key, key_bytes, v, bytes, &entry), SR_E_CORRUPT);
}

static struct sr_meta_site make_site(void)
{
    struct sr_meta_site site = {.uuid = make_uuid(1), .group = make_uuid(2), .peer = make_uuid(3), .boot = 300};
    strcpy(site.name, "left");
    return site;
}

static void site_record(void **state)
{
    (void)state;
    struct sr_meta_site site = make_site();
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES];

    size_t bytes = sr_meta_format_site(&site, value);
    assert_hex(value, bytes, GOLDEN_SITE);
    assert_int_equal(parse(SR_META_DB_SITE, "site", 4, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.site, &site, sizeof(site));
    assert_every_damage_refused(SR_META_DB_SITE, "site", 4, value, bytes);
    assert_newer_refused(SR_META_DB_SITE, "site", 4, value, bytes);
}

static void volume_record(void **state)
{
    (void)state;
    struct sr_meta_volume volume = make_volume(9);
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES];

    volume.imported = volume.creator = true;
    volume.state = SR_VOLUME_DELETING;
    strcpy(volume.path, "/dev/vdb");
    size_t bytes = sr_meta_format_volume(&volume, value);
    assert_hex(value, bytes, GOLDEN_VOLUME_2);
    assert_int_equal(parse(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.volume, &volume, sizeof(volume));
    assert_every_damage_refused(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes);
    assert_newer_refused(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes);

    /* the longest there is */
    memset(volume.name, 'n', SR_NAME_MAX);
    memset(volume.pool, 'p', SR_NAME_MAX);
    memset(volume.path, '/', sizeof(volume.path) - 1);
    volume.size_bytes = SR_VOLUME_MAX_BYTES;
    volume.created_wall_ms = UINT64_MAX;
    volume.pending_collection = make_uuid(70);
    memset(volume.pending_name, 'q', SR_NAME_MAX);
    bytes = sr_meta_format_volume(&volume, value);
    assert_int_equal(parse(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.volume, &volume, sizeof(volume));
}

static void volume_record_with_impossible_field_is_refused(void **state)
{
    (void)state;
    struct sr_meta_volume good = make_volume(9), bad[10];
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES];

    for (size_t i = 0; i < 10; i++)
        bad[i] = good;
    bad[0].state = 0;
    bad[1].state = 4;
    bad[2].name[0] = '\0';
    strcpy(bad[3].name, "../etc");
    strcpy(bad[4].pool, "a/b");
    strcpy(bad[5].path, "relative");
    bad[6].size_bytes = SR_VOLUME_MIN_BYTES - 4096;
    bad[7].size_bytes = SR_VOLUME_MAX_BYTES + 4096;
    bad[8].size_bytes += 512;
    memset(&bad[9].collection, 0, sizeof(bad[9].collection));
    for (size_t i = 0; i < 10; i++) {
        size_t bytes = sr_meta_format_volume(&bad[i], value);
        assert_int_equal(parse(SR_META_DB_VOLUMES, bad[i].uuid.b, 16, value, bytes, &entry), SR_E_CORRUPT);
    }
}

static size_t from_hex(const char *hex, uint8_t *bytes)
{
    size_t n = strlen(hex) / 2;

    for (size_t i = 0; i < n; i++)
        assert_int_equal(sscanf(hex + 2 * i, "%2hhx", &bytes[i]), 1);
    return n;
}

static struct sr_meta_collection full_collection(void);

/* What a daemon before the fields were added has written is read, with the fields at their defaults. */
static void records_of_version_1_are_read(void **state)
{
    (void)state;
    struct sr_meta_volume volume = make_volume(9);
    struct sr_meta_collection collection = full_collection();
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES];
    size_t bytes = from_hex(GOLDEN_VOLUME, value);

    volume.imported = volume.creator = true;
    volume.state = SR_VOLUME_DELETING;
    strcpy(volume.path, "/dev/vdb");
    assert_int_equal(parse(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.volume, &volume, sizeof(volume));
    bytes = from_hex(GOLDEN_COLLECTION, value);
    assert_int_equal(parse(SR_META_DB_COLLECTIONS, collection.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.collection, &collection, sizeof(collection));
}

/* The times of a lineage, and where a volume may have gone. */
static void fields_of_version_2(void **state)
{
    (void)state;
    struct sr_meta_volume volume = make_volume(9);
    struct sr_meta_collection collection = full_collection();
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES];

    volume.pending_collection = make_uuid(70);
    strcpy(volume.pending_name, "grp");
    size_t bytes = sr_meta_format_volume(&volume, value);
    assert_int_equal(parse(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.volume, &volume, sizeof(volume));
    memset(volume.pending_name, 0, sizeof(volume.pending_name));
    bytes = sr_meta_format_volume(&volume, value);
    assert_int_equal(parse(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes, &entry), SR_E_CORRUPT);

    collection.record.gen_wall_ms = UINT64_C(1764547200123);
    collection.record.synced_wall_ms = UINT64_C(1764547200456);
    bytes = sr_meta_format_collection(&collection, value);
    assert_hex(value, bytes, GOLDEN_COLLECTION_TIMES);
    assert_int_equal(parse(SR_META_DB_COLLECTIONS, collection.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.collection, &collection, sizeof(collection));
    collection.record.failed = true;
    collection.record.consistent = false;
    collection.record.failed_volume = make_uuid(80);
    bytes = sr_meta_format_collection(&collection, value);
    assert_int_equal(parse(SR_META_DB_COLLECTIONS, collection.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.collection, &collection, sizeof(collection));
}

/* Only a volume that is write-back has it: all others stay readable for a daemon that does not know what that is. */
static void field_of_version_3(void **state)
{
    (void)state;
    struct sr_meta_volume volume = make_volume(9);
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES];

    volume.imported = volume.creator = volume.write_back = true;
    volume.state = SR_VOLUME_DELETING;
    strcpy(volume.path, "/dev/vdb");
    size_t bytes = sr_meta_format_volume(&volume, value);
    assert_hex(value, bytes, GOLDEN_VOLUME_WRITE_BACK);
    assert_int_equal(parse(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.volume, &volume, sizeof(volume));
    assert_every_damage_refused(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes);
    assert_newer_refused(SR_META_DB_VOLUMES, volume.uuid.b, 16, value, bytes);
}

static struct sr_meta_collection full_collection(void)
{
    struct sr_meta_collection collection = make_collection(5);
    struct sr_record *record = &collection.record;

    record->made_by = SR_MADE_ALONE;
    record->base_kind = SR_BASE_KNOWN;
    record->base = make_uuid(60);
    record->n_ancestors = 2;
    record->ancestors[0] = make_uuid(60);
    record->ancestors[1] = make_uuid(61);
    record->paused = true;
    record->pause_counter = 1000;
    return collection;
}

static void collection_record(void **state)
{
    (void)state;
    struct sr_meta_collection collection = full_collection();
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES];

    size_t bytes = sr_meta_format_collection(&collection, value);
    assert_hex(value, bytes, GOLDEN_COLLECTION_2);
    assert_int_equal(parse(SR_META_DB_COLLECTIONS, collection.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.collection, &collection, sizeof(collection));
    assert_every_damage_refused(SR_META_DB_COLLECTIONS, collection.uuid.b, 16, value, bytes);
    assert_newer_refused(SR_META_DB_COLLECTIONS, collection.uuid.b, 16, value, bytes);

    collection.record.n_ancestors = SR_ANCESTORS_MAX;
    for (uint32_t i = 0; i < SR_ANCESTORS_MAX; i++)
        collection.record.ancestors[i] = make_uuid((uint8_t)(150 + i));
    bytes = sr_meta_format_collection(&collection, value);
    assert_int_equal(parse(SR_META_DB_COLLECTIONS, collection.uuid.b, 16, value, bytes, &entry), SR_OK);
    assert_memory_equal(&entry.collection, &collection, sizeof(collection));
}

static void collection_record_that_breaks_the_lineage_is_refused(void **state)
{
    (void)state;
    struct sr_meta_collection bad[4];
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES];

    for (size_t i = 0; i < 4; i++)
        bad[i] = full_collection();
    bad[0].record.role = 7;
    bad[1].record.base_kind = SR_BASE_NONE; /* but has a base */
    bad[2].record.made_by = 9;
    memset(&bad[3].record.ancestors[1], 0, sizeof(struct sr_uuid));
    for (size_t i = 0; i < 4; i++) {
        size_t bytes = sr_meta_format_collection(&bad[i], value);
        assert_int_equal(parse(SR_META_DB_COLLECTIONS, bad[i].uuid.b, 16, value, bytes, &entry), SR_E_CORRUPT);
    }
}

static void protobuf_with_unknown_field_is_newer(void **state)
{
    (void)state;
    struct sr_meta_site site = make_site();
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES];

    size_t bytes = sr_meta_format_site(&site, value);
    value[bytes] = (15 << 3) | 0; /* field 15, a number */
    value[bytes + 1] = 1;
    reseal("site", 4, value, bytes + 2);
    assert_int_equal(parse(SR_META_DB_SITE, "site", 4, value, bytes + 2, &entry), SR_E_VERSION);
}

/* Thousands of empty ancestors ask protobuf-c for far more memory than the record has bytes. */
static void protobuf_that_asks_for_much_memory_is_refused(void **state)
{
    (void)state;
    struct sr_uuid uuid = make_uuid(1);
    struct sr_meta_entry entry;
    uint8_t value[SR_META_VALUE_MAX_BYTES] = {1, SR_META_KIND_COLLECTION};
    size_t bytes = sizeof(value) - 64;

    value[8] = (2 << 3) | 2; /* lineage */
    size_t inner = bytes - 11;
    value[9] = (uint8_t)(0x80 | (inner & 0x7f));
    value[10] = (uint8_t)(inner >> 7);
    for (size_t i = 11; i + 1 < bytes; i += 2) {
        value[i] = (6 << 3) | 2;
        value[i + 1] = 0;
    }
    bytes = 11 + (inner & ~(size_t)1);
    inner &= ~(size_t)1;
    value[9] = (uint8_t)(0x80 | (inner & 0x7f));
    value[10] = (uint8_t)(inner >> 7);
    reseal(uuid.b, 16, value, bytes);
    const char *why;
    assert_int_equal(sr_meta_parse(SR_META_DB_COLLECTIONS, uuid.b, 16, value, bytes, &entry, &why), SR_E_CORRUPT);
    assert_string_equal(why, "malformed record"); /* not "too many ancestors": it never had them all in memory */
}

static void map_records(void **state)
{
    (void)state;
    struct sr_uuid volume = make_uuid(4);
    uint8_t key[SR_META_MAP_KEY_BYTES], value[SR_META_EXACT_BYTES], map[SR_REGION_MAP_BYTES];
    struct sr_meta_entry entry;

    sr_meta_format_map_key(&volume, 0x01020304, key);
    assert_hex(key, sizeof(key),
               "050c131a21282f363d444b525960676e"
               "01020304");
    size_t bytes = sr_meta_format_map(key, NULL, value);
    assert_int_equal(bytes, 8);
    assert_hex(value, bytes, GOLDEN_INTENT);
    assert_int_equal(parse(SR_META_DB_MAPS, key, sizeof(key), value, bytes, &entry), SR_OK);
    assert_int_equal(entry.kind, SR_META_KIND_INTENT);
    assert_int_equal(entry.map.region, 0x01020304);
    assert_true(sr_uuid_equal(&entry.map.volume, &volume));
    assert_every_damage_refused(SR_META_DB_MAPS, key, sizeof(key), value, bytes);
    assert_newer_refused(SR_META_DB_MAPS, key, sizeof(key), value, bytes);

    for (size_t i = 0; i < sizeof(map); i++)
        map[i] = (uint8_t)(i * 3);
    bytes = sr_meta_format_map(key, map, value);
    assert_int_equal(bytes, 136);
    assert_hex(value, 12, GOLDEN_EXACT);
    assert_int_equal(parse(SR_META_DB_MAPS, key, sizeof(key), value, bytes, &entry), SR_OK);
    assert_int_equal(entry.kind, SR_META_KIND_EXACT);
    assert_memory_equal(entry.map.map, map, sizeof(map));
    assert_every_damage_refused(SR_META_DB_MAPS, key, sizeof(key), value, bytes);
    assert_newer_refused(SR_META_DB_MAPS, key, sizeof(key), value, bytes);
    /* the same value in another database, or under the key of another region */
    assert_int_equal(parse(SR_META_DB_BAD, key, sizeof(key), value, bytes, &entry), SR_E_CORRUPT);
    sr_meta_format_map_key(&volume, 0x01020305, key);
    assert_int_equal(parse(SR_META_DB_MAPS, key, sizeof(key), value, bytes, &entry), SR_E_CORRUPT);
}

static void from_and_bad_records(void **state)
{
    (void)state;
    struct sr_uuid volume = make_uuid(4);
    uint8_t key[SR_META_BAD_KEY_BYTES], value[SR_META_FROM_BYTES];
    struct sr_meta_entry entry;

    size_t bytes = sr_meta_format_from(&volume, 0x0102030405060708, value);
    assert_int_equal(bytes, 16);
    assert_hex(value, bytes, GOLDEN_FROM);
    assert_int_equal(parse(SR_META_DB_FROM, volume.b, 16, value, bytes, &entry), SR_OK);
    assert_true(entry.map.block == 0x0102030405060708);
    assert_every_damage_refused(SR_META_DB_FROM, volume.b, 16, value, bytes);
    assert_newer_refused(SR_META_DB_FROM, volume.b, 16, value, bytes);

    sr_meta_format_bad_key(&volume, 0x0102030405060708, key);
    assert_hex(key, sizeof(key),
               "050c131a21282f363d444b525960676e"
               "0102030405060708");
    bytes = sr_meta_format_bad(key, value);
    assert_int_equal(bytes, 8);
    assert_hex(value, bytes, GOLDEN_BAD);
    assert_int_equal(parse(SR_META_DB_BAD, key, sizeof(key), value, bytes, &entry), SR_OK);
    assert_true(entry.map.block == 0x0102030405060708);
    assert_every_damage_refused(SR_META_DB_BAD, key, sizeof(key), value, bytes);
    assert_newer_refused(SR_META_DB_BAD, key, sizeof(key), value, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(site_record),
        cmocka_unit_test(volume_record),
        cmocka_unit_test(volume_record_with_impossible_field_is_refused),
        cmocka_unit_test(records_of_version_1_are_read),
        cmocka_unit_test(fields_of_version_2),
        cmocka_unit_test(field_of_version_3),
        cmocka_unit_test(collection_record),
        cmocka_unit_test(collection_record_that_breaks_the_lineage_is_refused),
        cmocka_unit_test(protobuf_with_unknown_field_is_newer),
        cmocka_unit_test(protobuf_that_asks_for_much_memory_is_refused),
        cmocka_unit_test(map_records),
        cmocka_unit_test(from_and_bad_records),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
