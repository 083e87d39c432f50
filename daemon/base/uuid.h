/* uuid.h - 128-bit identities: of sites, pools, volumes, collections and generations.
 *
 * All zero means "none".  Text form: RFC 4122, lower case.
 */
#ifndef SR_BASE_UUID_H
#define SR_BASE_UUID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SR_UUID_BYTES 16
#define SR_UUID_TEXT_BYTES 37 /* with the final NUL */

struct sr_uuid {
    uint8_t b[SR_UUID_BYTES];
};

static inline bool sr_uuid_equal(const struct sr_uuid *a, const struct sr_uuid *b)
{
    return memcmp(a->b, b->b, SR_UUID_BYTES) == 0;
}

static inline bool sr_uuid_is_none(const struct sr_uuid *a)
{
    static const struct sr_uuid none;
    return sr_uuid_equal(a, &none);
}

/* Order of the bytes, as memcmp. */
static inline int sr_uuid_compare(const struct sr_uuid *a, const struct sr_uuid *b)
{
    return memcmp(a->b, b->b, SR_UUID_BYTES);
}

/* Writes the text form into text and returns it. */
const char *sr_uuid_format(const struct sr_uuid *uuid, char text[SR_UUID_TEXT_BYTES]);

/* False, and uuid untouched, unless text is exactly one UUID. */
bool sr_uuid_parse(const char *text, struct sr_uuid *uuid);

/* A fresh random (version 4) UUID from the kernel; aborts only if the kernel has no entropy source at all.
 * Not for core/: there random numbers arrive inside events. */
void sr_uuid_generate(struct sr_uuid *uuid);

#endif
