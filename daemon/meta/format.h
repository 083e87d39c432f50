/* format.h - the bytes of every metadata record, and nothing else: pure functions, fuzzed (ONDISK.md).
 *
 * Every value in every database begins with the same header, which keeps its meaning in all versions:
 *
 *     0   u8   version    of the record, SR_META_VERSION
 *     1   u8   kind       enum sr_meta_kind
 *     2   u16  reserved   0
 *     4   u32  crc        little-endian CRC-32C over the key, then the value without these four bytes
 *     8   ...             by kind: protobuf (store.proto) or a fixed layout
 *
 * The key is part of the CRC, so that a value under a damaged or wrong key is noticed too.
 *
 * Invariants:
 *   F1  What a parse function accepts, it gives back exactly: format(parse(x)) describes the same record.
 *   F2  One changed byte of key or value is refused (CRC-32C finds every error burst up to 32 bits).
 *   F3  A record of a newer version, or with a field this version does not know, is SR_E_VERSION, never
 *       partly used.
 *   F4  Parsing allocates at most SR_META_PARSE_BUDGET_BYTES, whatever the input says.
 */
#ifndef SR_META_FORMAT_H
#define SR_META_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/units.h"
#include "meta/meta.h"

#define SR_META_VERSION            2 /* of volumes and collections; 1: all others, and these without the fields added since */
#define SR_META_VERSION_WRITE_BACK 3 /* of a volume that is write-back: an older daemon would not keep that */
#define SR_META_HEADER_BYTES       8
#define SR_META_VALUE_MAX_BYTES    8192  /* of any record; what parses is shorter than that */
#define SR_META_PARSE_BUDGET_BYTES 65536 /* what protobuf-c may allocate for one record */

/* On disk, in every value: never reused. */
enum sr_meta_kind {
    SR_META_KIND_SITE = 1,
    SR_META_KIND_VOLUME = 2,
    SR_META_KIND_COLLECTION = 3,
    SR_META_KIND_INTENT = 4,
    SR_META_KIND_EXACT = 5,
    SR_META_KIND_FROM = 6,
    SR_META_KIND_BAD = 7
};

/* The databases of the environment, in the order of their handles. */
enum sr_meta_db {
    SR_META_DB_SITE,
    SR_META_DB_VOLUMES,
    SR_META_DB_COLLECTIONS,
    SR_META_DB_MAPS,
    SR_META_DB_FROM,
    SR_META_DB_BAD,
    SR_META_DB_COUNT
};

/* "site", "volumes" ...: the names in the environment. */
const char *sr_meta_db_name(enum sr_meta_db db);
/* SR_META_DB_COUNT if there is no database of that name. */
enum sr_meta_db sr_meta_db_from_name(const void *name, size_t bytes);

/* ---- keys ----------------------------------------------------------------------------------------- */

#define SR_META_SITE_KEY       "site"
#define SR_META_UUID_KEY_BYTES 16
#define SR_META_MAP_KEY_BYTES  20 /* volume, region as big-endian u32: regions of a volume lie in order */
#define SR_META_BAD_KEY_BYTES  24 /* volume, block as big-endian u64 */

void sr_meta_format_map_key(const struct sr_uuid *volume, uint32_t region, uint8_t key[SR_META_MAP_KEY_BYTES]);
void sr_meta_format_bad_key(const struct sr_uuid *volume, uint64_t block, uint8_t key[SR_META_BAD_KEY_BYTES]);

/* ---- values: format functions return the number of bytes written ---------------------------------- */

#define SR_META_INTENT_BYTES 8
#define SR_META_EXACT_BYTES  (SR_META_HEADER_BYTES + SR_REGION_MAP_BYTES)
#define SR_META_FROM_BYTES   16
#define SR_META_BAD_BYTES    8

size_t sr_meta_format_site(const struct sr_meta_site *site, uint8_t value[SR_META_VALUE_MAX_BYTES]);
size_t sr_meta_format_volume(const struct sr_meta_volume *volume, uint8_t value[SR_META_VALUE_MAX_BYTES]);
size_t sr_meta_format_collection(const struct sr_meta_collection *collection, uint8_t value[SR_META_VALUE_MAX_BYTES]);
/* map NULL: an intent. */
size_t sr_meta_format_map(const uint8_t key[SR_META_MAP_KEY_BYTES], const uint8_t *map,
                          uint8_t value[SR_META_EXACT_BYTES]);
size_t sr_meta_format_from(const struct sr_uuid *volume, uint64_t block, uint8_t value[SR_META_FROM_BYTES]);
size_t sr_meta_format_bad(const uint8_t key[SR_META_BAD_KEY_BYTES], uint8_t value[SR_META_BAD_BYTES]);

/* What one record says. */
struct sr_meta_entry {
    enum sr_meta_kind kind;
    union {
        struct sr_meta_site site;
        struct sr_meta_volume volume;
        struct sr_meta_collection collection;
        struct {
            struct sr_uuid volume;
            uint32_t region;                  /* INTENT, EXACT */
            uint64_t block;                   /* FROM, BAD */
            uint8_t map[SR_REGION_MAP_BYTES]; /* EXACT; bit i of byte j is block 8 * j + i */
        } map;
    };
};

/* Any record of database db.  SR_E_CORRUPT or SR_E_VERSION; *why then is a phrase ("checksum mismatch").  Allocates
 * and frees; blocks on nothing.  Any thread. */
enum sr_error sr_meta_parse(enum sr_meta_db db, const void *key, size_t key_bytes, const void *value,
                            size_t value_bytes, struct sr_meta_entry *entry, const char **why);

#define SR_META_KEY_TEXT_BYTES 128
/* The key as people read it: UUID, then region or block; hex if it has no such form. */
const char *sr_meta_key_text(enum sr_meta_db db, const void *key, size_t key_bytes,
                             char text[SR_META_KEY_TEXT_BYTES]);

#endif
