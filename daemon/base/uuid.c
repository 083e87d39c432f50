/* uuid.c - random identities and their text form (RFC 4122). */
#include "base/uuid.h"

#include <errno.h>
#include <sys/random.h>

#include "base/assert.h"

static const char hex_digits[] = "0123456789abcdef";

/* Is a dash due before byte `i`? */
static bool dash_before(int i)
{
    return i == 4 || i == 6 || i == 8 || i == 10;
}

const char *sr_uuid_format(const struct sr_uuid *uuid, char text[SR_UUID_TEXT_BYTES])
{
    char *at = text;

    for (int i = 0; i < SR_UUID_BYTES; i++) {
        if (dash_before(i))
            *at++ = '-';
        *at++ = hex_digits[uuid->b[i] >> 4];
        *at++ = hex_digits[uuid->b[i] & 15];
    }
    *at = '\0';
    return text;
}

/* -1 if c is no hexadecimal digit; locale plays no part. */
static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

bool sr_uuid_parse(const char *text, struct sr_uuid *uuid)
{
    struct sr_uuid parsed;

    for (int i = 0; i < SR_UUID_BYTES; i++) {
        if (dash_before(i) && *text++ != '-')
            return false;
        int high = hex_value(text[0]);
        if (high < 0)
            return false; /* also at the end of text: text[1] is never read then */
        int low = hex_value(text[1]);
        if (low < 0)
            return false;
        parsed.b[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    if (*text != '\0')
        return false;
    *uuid = parsed;
    return true;
}

void sr_uuid_generate(struct sr_uuid *uuid)
{
    ssize_t n;

    do
        n = getrandom(uuid->b, SR_UUID_BYTES, 0); /* up to 256 bytes come whole */
    while (n < 0 && errno == EINTR);
    SR_ASSERT(n == SR_UUID_BYTES);
    uuid->b[6] = (uint8_t)((uuid->b[6] & 0x0f) | 0x40); /* version 4 */
    uuid->b[8] = (uint8_t)((uuid->b[8] & 0x3f) | 0x80); /* variant of RFC 4122 */
}
