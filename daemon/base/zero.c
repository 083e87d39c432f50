/* zero.c - find out fast whether a block is empty.
 *
 * The first 16 bytes are looked at one by one, which answers for most data; if they are zero, the rest is zero
 * exactly if the memory equals itself shifted by 16, and memcmp does that with the widest registers there are.
 */
#include "base/zero.h"

#include <string.h>

bool sr_is_zero(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    size_t head = bytes < 16 ? bytes : 16;

    for (size_t i = 0; i < head; i++)
        if (at[i] != 0)
            return false;
    return bytes <= 16 || memcmp(at, at + 16, bytes - 16) == 0;
}
