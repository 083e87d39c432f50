/* fuzz_meta_record.c - bytes to a metadata record, with the checksum made right so that the rest is reached.
 *
 * Input: u8 database, u8 key length, key, value.  What is accepted must survive formatting and parsing (F1).
 */
#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "meta/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static size_t format_again(const struct sr_meta_entry *entry, const uint8_t *key, uint8_t *value)
{
    switch (entry->kind) {
    case SR_META_KIND_SITE:
        return sr_meta_format_site(&entry->site, value);
    case SR_META_KIND_VOLUME:
        return sr_meta_format_volume(&entry->volume, value);
    case SR_META_KIND_COLLECTION:
        return sr_meta_format_collection(&entry->collection, value);
    case SR_META_KIND_INTENT:
        return sr_meta_format_map(key, NULL, value);
    case SR_META_KIND_EXACT:
        return sr_meta_format_map(key, entry->map.map, value);
    case SR_META_KIND_FROM:
        return sr_meta_format_from(&entry->map.volume, entry->map.block, value);
    case SR_META_KIND_BAD:
        return sr_meta_format_bad(key, value);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct sr_meta_entry *entry = calloc(1, sizeof(*entry)), *again = calloc(1, sizeof(*again));
    uint8_t formatted[SR_META_VALUE_MAX_BYTES];
    char text[SR_META_KEY_TEXT_BYTES];
    const char *why;

    if (entry == NULL || again == NULL || bytes < 2 || bytes - 2 < data[1])
        goto out;
    enum sr_meta_db db = (enum sr_meta_db)(data[0] % SR_META_DB_COUNT);
    size_t key_bytes = data[1], value_bytes = bytes - 2 - key_bytes;
    const uint8_t *key = data + 2;
    uint8_t *value = malloc(value_bytes + 1);
    if (value == NULL)
        goto out;
    memcpy(value, key + key_bytes, value_bytes);
    if (value_bytes >= SR_META_HEADER_BYTES) {
        uint32_t crc = sr_crc32c(sr_crc32c(0, key, key_bytes), value, 4);
        crc = htole32(sr_crc32c(crc, value + 8, value_bytes - 8));
        memcpy(value + 4, &crc, 4);
    }
    (void)sr_meta_key_text(db, key, key_bytes, text);
    if (sr_meta_parse(db, key, key_bytes, value, value_bytes, entry, &why) == SR_OK) {
        size_t n = format_again(entry, key, formatted);
        SR_ASSERT(sr_meta_parse(db, key, key_bytes, formatted, n, again, &why) == SR_OK);
        SR_ASSERT(memcmp(entry, again, sizeof(*entry)) == 0);
    }
    free(value);
out:
    free(entry);
    free(again);
    return 0;
}
