/* format.c - the common header, the keys and the fixed layouts; protobuf bodies are in records.c.
 *
 * Pure functions on bytes: nothing here can be interrupted by a crash.  Invariants F1 to F4: format.h.
 */
#include "meta/format.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "meta/records.h"

struct disk_header {
    uint8_t version;
    uint8_t kind;
    uint16_t reserved;
    uint32_t crc_le;
};

struct disk_exact {
    struct disk_header header;
    uint8_t map[SR_REGION_MAP_BYTES];
};

struct disk_from {
    struct disk_header header;
    uint64_t block_le;
};

struct disk_map_key {
    uint8_t volume[SR_UUID_BYTES];
    uint32_t region_be;
};

struct disk_bad_key {
    uint8_t volume[SR_UUID_BYTES];
    uint64_t block_be;
};

_Static_assert(sizeof(struct disk_header) == SR_META_HEADER_BYTES, "header");
_Static_assert(offsetof(struct disk_header, version) == 0, "header");
_Static_assert(offsetof(struct disk_header, kind) == 1, "header");
_Static_assert(offsetof(struct disk_header, crc_le) == 4, "header");
_Static_assert(SR_META_INTENT_BYTES == sizeof(struct disk_header), "an intent is a header");
_Static_assert(sizeof(struct disk_exact) == SR_META_EXACT_BYTES, "exact map");
_Static_assert(SR_META_EXACT_BYTES == 136, "exact map");
_Static_assert(offsetof(struct disk_exact, map) == 8, "exact map");
_Static_assert(sizeof(struct disk_from) == SR_META_FROM_BYTES, "from block");
_Static_assert(offsetof(struct disk_from, block_le) == 8, "from block");
_Static_assert(SR_META_BAD_BYTES == sizeof(struct disk_header), "a bad block is a header");
_Static_assert(sizeof(struct disk_map_key) == SR_META_MAP_KEY_BYTES, "map key");
_Static_assert(sizeof(struct disk_bad_key) == SR_META_BAD_KEY_BYTES, "bad key");
_Static_assert(sizeof(struct sr_uuid) == SR_META_UUID_KEY_BYTES, "uuid key");
_Static_assert(SR_META_HEADER_BYTES == 8 && SR_META_VERSION == 2 && SR_META_VERSION_WRITE_BACK == 3,
               "ONDISK.md describes these versions");

static const char *const db_names[SR_META_DB_COUNT] = {
    [SR_META_DB_SITE] = "site", [SR_META_DB_VOLUMES] = "volumes", [SR_META_DB_COLLECTIONS] = "collections",
    [SR_META_DB_MAPS] = "maps", [SR_META_DB_FROM] = "fromblocks", [SR_META_DB_BAD] = "bad",
};

const char *sr_meta_db_name(enum sr_meta_db db)
{
    SR_ASSERT(db < SR_META_DB_COUNT);
    return db_names[db];
}

enum sr_meta_db sr_meta_db_from_name(const void *name, size_t bytes)
{
    for (int db = 0; db < SR_META_DB_COUNT; db++) {
        if (bytes == strlen(db_names[db]) && memcmp(name, db_names[db], bytes) == 0)
            return (enum sr_meta_db)db;
    }
    return SR_META_DB_COUNT;
}

/* ---- keys ----------------------------------------------------------------------------------------- */

void sr_meta_format_map_key(const struct sr_uuid *volume, uint32_t region, uint8_t key[SR_META_MAP_KEY_BYTES])
{
    struct disk_map_key disk;
    memcpy(disk.volume, volume->b, SR_UUID_BYTES);
    disk.region_be = htobe32(region);
    memcpy(key, &disk, sizeof(disk));
}

void sr_meta_format_bad_key(const struct sr_uuid *volume, uint64_t block, uint8_t key[SR_META_BAD_KEY_BYTES])
{
    struct disk_bad_key disk;
    memcpy(disk.volume, volume->b, SR_UUID_BYTES);
    disk.block_be = htobe64(block);
    memcpy(key, &disk, sizeof(disk));
}

/* ---- the header ------------------------------------------------------------------------------------ */

static uint32_t record_crc(const void *key, size_t key_bytes, const uint8_t *value, size_t value_bytes)
{
    uint32_t crc = sr_crc32c(0, key, key_bytes);
    crc = sr_crc32c(crc, value, offsetof(struct disk_header, crc_le));
    return sr_crc32c(crc, value + SR_META_HEADER_BYTES, value_bytes - SR_META_HEADER_BYTES);
}

/* A kind of record whose fields were never added to keeps its version, so that an older daemon still reads it. */
static uint8_t version_written(enum sr_meta_kind kind)
{
    bool known = kind >= SR_META_KIND_SITE && kind <= SR_META_KIND_BAD;

    return known && kind != SR_META_KIND_VOLUME && kind != SR_META_KIND_COLLECTION ? 1 : SR_META_VERSION;
}

static uint8_t version_read(enum sr_meta_kind kind)
{
    bool known = kind >= SR_META_KIND_SITE && kind <= SR_META_KIND_BAD;

    return known && kind != SR_META_KIND_VOLUME ? version_written(kind) : SR_META_VERSION_WRITE_BACK;
}

/* The body is in place behind the header.  Returns the size of the whole value. */
static size_t seal_as(uint8_t version, enum sr_meta_kind kind, const void *key, size_t key_bytes, uint8_t *value,
                      size_t body_bytes)
{
    size_t value_bytes = SR_META_HEADER_BYTES + body_bytes;
    struct disk_header header = {.version = version, .kind = (uint8_t)kind};

    SR_ASSERT(value_bytes <= SR_META_VALUE_MAX_BYTES);
    memcpy(value, &header, sizeof(header));
    header.crc_le = htole32(record_crc(key, key_bytes, value, value_bytes));
    memcpy(value, &header, sizeof(header));
    return value_bytes;
}

static size_t seal(enum sr_meta_kind kind, const void *key, size_t key_bytes, uint8_t *value, size_t body_bytes)
{
    return seal_as(version_written(kind), kind, key, key_bytes, value, body_bytes);
}

/* The CRC comes first: only an undamaged version is worth naming. */
static enum sr_error open_header(const void *key, size_t key_bytes, const uint8_t *value, size_t value_bytes,
                                 enum sr_meta_kind *kind, const char **why)
{
    struct disk_header header;

    if (value_bytes < SR_META_HEADER_BYTES || value_bytes > SR_META_VALUE_MAX_BYTES) {
        *why = "impossible length";
        return SR_E_CORRUPT;
    }
    memcpy(&header, value, sizeof(header));
    if (le32toh(header.crc_le) != record_crc(key, key_bytes, value, value_bytes)) {
        *why = "checksum mismatch";
        return SR_E_CORRUPT;
    }
    if (header.version > version_read((enum sr_meta_kind)header.kind)) {
        *why = "written by a newer syncrep";
        return SR_E_VERSION;
    }
    if (header.version == 0 || header.reserved != 0) {
        *why = "malformed header";
        return SR_E_CORRUPT;
    }
    *kind = (enum sr_meta_kind)header.kind;
    return SR_OK;
}

/* ---- formatting ------------------------------------------------------------------------------------ */

size_t sr_meta_format_site(const struct sr_meta_site *site, uint8_t value[SR_META_VALUE_MAX_BYTES])
{
    size_t body = sr_meta_pack_site(site, value + SR_META_HEADER_BYTES);
    return seal(SR_META_KIND_SITE, SR_META_SITE_KEY, strlen(SR_META_SITE_KEY), value, body);
}

size_t sr_meta_format_volume(const struct sr_meta_volume *volume, uint8_t value[SR_META_VALUE_MAX_BYTES])
{
    size_t body = sr_meta_pack_volume(volume, value + SR_META_HEADER_BYTES);
    uint8_t version = volume->write_back ? SR_META_VERSION_WRITE_BACK : SR_META_VERSION;
    return seal_as(version, SR_META_KIND_VOLUME, volume->uuid.b, SR_UUID_BYTES, value, body);
}

size_t sr_meta_format_collection(const struct sr_meta_collection *collection, uint8_t value[SR_META_VALUE_MAX_BYTES])
{
    size_t body = sr_meta_pack_collection(collection, value + SR_META_HEADER_BYTES);
    return seal(SR_META_KIND_COLLECTION, collection->uuid.b, SR_UUID_BYTES, value, body);
}

size_t sr_meta_format_map(const uint8_t key[SR_META_MAP_KEY_BYTES], const uint8_t *map,
                          uint8_t value[SR_META_EXACT_BYTES])
{
    if (map == NULL)
        return seal(SR_META_KIND_INTENT, key, SR_META_MAP_KEY_BYTES, value, 0);
    memcpy(value + SR_META_HEADER_BYTES, map, SR_REGION_MAP_BYTES);
    return seal(SR_META_KIND_EXACT, key, SR_META_MAP_KEY_BYTES, value, SR_REGION_MAP_BYTES);
}

size_t sr_meta_format_from(const struct sr_uuid *volume, uint64_t block, uint8_t value[SR_META_FROM_BYTES])
{
    uint64_t block_le = htole64(block);
    memcpy(value + SR_META_HEADER_BYTES, &block_le, sizeof(block_le));
    return seal(SR_META_KIND_FROM, volume->b, SR_UUID_BYTES, value, sizeof(block_le));
}

size_t sr_meta_format_bad(const uint8_t key[SR_META_BAD_KEY_BYTES], uint8_t value[SR_META_BAD_BYTES])
{
    return seal(SR_META_KIND_BAD, key, SR_META_BAD_KEY_BYTES, value, 0);
}

/* ---- parsing --------------------------------------------------------------------------------------- */

static bool db_takes(enum sr_meta_db db, enum sr_meta_kind kind)
{
    switch (db) {
    case SR_META_DB_SITE:
        return kind == SR_META_KIND_SITE;
    case SR_META_DB_VOLUMES:
        return kind == SR_META_KIND_VOLUME;
    case SR_META_DB_COLLECTIONS:
        return kind == SR_META_KIND_COLLECTION;
    case SR_META_DB_MAPS:
        return kind == SR_META_KIND_INTENT || kind == SR_META_KIND_EXACT;
    case SR_META_DB_FROM:
        return kind == SR_META_KIND_FROM;
    case SR_META_DB_BAD:
        return kind == SR_META_KIND_BAD;
    case SR_META_DB_COUNT:
        break;
    }
    return false;
}

static bool key_ok(enum sr_meta_db db, const void *key, size_t bytes)
{
    switch (db) {
    case SR_META_DB_SITE:
        return bytes == strlen(SR_META_SITE_KEY) && memcmp(key, SR_META_SITE_KEY, bytes) == 0;
    case SR_META_DB_VOLUMES:
    case SR_META_DB_COLLECTIONS:
    case SR_META_DB_FROM:
        return bytes == SR_META_UUID_KEY_BYTES;
    case SR_META_DB_MAPS:
        return bytes == SR_META_MAP_KEY_BYTES;
    case SR_META_DB_BAD:
        return bytes == SR_META_BAD_KEY_BYTES;
    case SR_META_DB_COUNT:
        break;
    }
    return false;
}

static enum sr_error parse_fixed(const void *key, const uint8_t *value, size_t value_bytes,
                                 struct sr_meta_entry *entry, const char **why)
{
    struct disk_map_key map_key;
    struct disk_bad_key bad_key;
    struct disk_from from;
    size_t want = SR_META_HEADER_BYTES;

    if (entry->kind == SR_META_KIND_EXACT)
        want = SR_META_EXACT_BYTES;
    else if (entry->kind == SR_META_KIND_FROM)
        want = SR_META_FROM_BYTES;
    if (value_bytes != want) {
        *why = "wrong length";
        return SR_E_CORRUPT;
    }
    memcpy(entry->map.volume.b, key, SR_UUID_BYTES);
    switch (entry->kind) {
    case SR_META_KIND_EXACT:
        memcpy(entry->map.map, value + SR_META_HEADER_BYTES, SR_REGION_MAP_BYTES);
        /* fall through */
    case SR_META_KIND_INTENT:
        memcpy(&map_key, key, sizeof(map_key));
        entry->map.region = be32toh(map_key.region_be);
        break;
    case SR_META_KIND_FROM:
        memcpy(&from, value, sizeof(from));
        entry->map.block = le64toh(from.block_le);
        break;
    default:
        memcpy(&bad_key, key, sizeof(bad_key));
        entry->map.block = be64toh(bad_key.block_be);
        break;
    }
    return SR_OK;
}

enum sr_error sr_meta_parse(enum sr_meta_db db, const void *key, size_t key_bytes, const void *value,
                            size_t value_bytes, struct sr_meta_entry *entry, const char **why)
{
    const uint8_t *body = (const uint8_t *)value + SR_META_HEADER_BYTES;
    enum sr_meta_kind kind = 0;

    *why = "";
    memset(entry, 0, sizeof(*entry));
    enum sr_error error = open_header(key, key_bytes, value, value_bytes, &kind, why);
    if (error != SR_OK)
        return error;
    if (!db_takes(db, kind)) {
        *why = "a record of another kind";
        return SR_E_CORRUPT;
    }
    if (!key_ok(db, key, key_bytes)) {
        *why = "malformed key";
        return SR_E_CORRUPT;
    }
    entry->kind = kind;
    switch (kind) {
    case SR_META_KIND_SITE:
        return sr_meta_unpack_site(body, value_bytes - SR_META_HEADER_BYTES, &entry->site, why);
    case SR_META_KIND_VOLUME:
        memcpy(entry->volume.uuid.b, key, SR_UUID_BYTES);
        return sr_meta_unpack_volume(body, value_bytes - SR_META_HEADER_BYTES, &entry->volume, why);
    case SR_META_KIND_COLLECTION:
        memcpy(entry->collection.uuid.b, key, SR_UUID_BYTES);
        return sr_meta_unpack_collection(body, value_bytes - SR_META_HEADER_BYTES, &entry->collection, why);
    default:
        return parse_fixed(key, value, value_bytes, entry, why);
    }
}

/* ---- for people ------------------------------------------------------------------------------------ */

static void hex_text(const uint8_t *key, size_t bytes, char text[SR_META_KEY_TEXT_BYTES])
{
    size_t shown = bytes < 40 ? bytes : 40;
    for (size_t i = 0; i < shown; i++)
        snprintf(text + 2 * i, 3, "%02x", key[i]);
    if (shown == 0)
        snprintf(text, SR_META_KEY_TEXT_BYTES, "(empty)");
    else if (bytes > shown)
        snprintf(text + 2 * shown, 4, "...");
}

const char *sr_meta_key_text(enum sr_meta_db db, const void *key, size_t key_bytes, char text[SR_META_KEY_TEXT_BYTES])
{
    char uuid_text[SR_UUID_TEXT_BYTES];
    struct disk_map_key map_key;
    struct disk_bad_key bad_key;
    struct sr_uuid uuid;

    if (!key_ok(db, key, key_bytes)) {
        hex_text(key, key_bytes, text);
        return text;
    }
    if (db == SR_META_DB_SITE) {
        snprintf(text, SR_META_KEY_TEXT_BYTES, "%s", SR_META_SITE_KEY);
        return text;
    }
    memcpy(uuid.b, key, SR_UUID_BYTES);
    sr_uuid_format(&uuid, uuid_text);
    if (db == SR_META_DB_MAPS) {
        memcpy(&map_key, key, sizeof(map_key));
        snprintf(text, SR_META_KEY_TEXT_BYTES, "%s region %u", uuid_text, be32toh(map_key.region_be));
    } else if (db == SR_META_DB_BAD) {
        memcpy(&bad_key, key, sizeof(bad_key));
        snprintf(text, SR_META_KEY_TEXT_BYTES, "%s block %llu", uuid_text,
                 (unsigned long long)be64toh(bad_key.block_be));
    } else {
        snprintf(text, SR_META_KEY_TEXT_BYTES, "%s", uuid_text);
    }
    return text;
}
