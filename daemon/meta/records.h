/* records.h - inside meta/: the protobuf bodies of records, behind the common header (format.h). */
#ifndef SR_META_RECORDS_H
#define SR_META_RECORDS_H

#include "meta/format.h"

/* Body bytes written; at most SR_META_VALUE_MAX_BYTES - SR_META_HEADER_BYTES. */
size_t sr_meta_pack_site(const struct sr_meta_site *site, uint8_t *body);
size_t sr_meta_pack_volume(const struct sr_meta_volume *volume, uint8_t *body);
size_t sr_meta_pack_collection(const struct sr_meta_collection *collection, uint8_t *body);

/* Errors as sr_meta_parse.  The uuid of a volume or collection is its key: left alone here. */
enum sr_error sr_meta_unpack_site(const uint8_t *body, size_t bytes, struct sr_meta_site *site, const char **why);
enum sr_error sr_meta_unpack_volume(const uint8_t *body, size_t bytes, struct sr_meta_volume *volume,
                                    const char **why);
enum sr_error sr_meta_unpack_collection(const uint8_t *body, size_t bytes, struct sr_meta_collection *collection,
                                        const char **why);

#endif
