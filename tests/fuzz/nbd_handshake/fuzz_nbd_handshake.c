/* fuzz_nbd_handshake.c - whatever a stranger may send before it has chosen an export.
 *
 * The input is what follows the greeting: client flags, then options.  Each decoded value must lie within the input.
 */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "codec/nbd_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(const uint8_t *data, size_t size, const char *name, uint32_t name_bytes)
{
    const uint8_t *bytes = (const uint8_t *)name;

    SR_ASSERT(bytes >= data && name_bytes <= SR_NBD_STRING_MAX_BYTES && name_bytes <= size &&
              (size_t)(bytes - data) <= size - name_bytes);
    SR_ASSERT(sr_nbd_string_valid(bytes, name_bytes));
    SR_ASSERT(memchr(bytes, 0, name_bytes) == NULL);
}

static void decode_data(const uint8_t *data, size_t size)
{
    struct sr_nbd_meta meta;
    struct sr_nbd_go go;

    sr_nbd_string_valid(data, size);
    if (sr_nbd_get_go(data, size, &go) == SR_OK)
        check_name(data, size, go.name, go.name_bytes);
    for (int list = 0; list < 2; list++)
        if (sr_nbd_get_meta(data, size, list, &meta) == SR_OK)
            check_name(data, size, meta.name, meta.name_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sr_nbd_client_flags flags;
    struct sr_nbd_option option;

    if (size < SR_NBD_CLIENT_FLAGS_BYTES || sr_nbd_get_client_flags(data, &flags))
        return 0;
    data += SR_NBD_CLIENT_FLAGS_BYTES;
    size -= SR_NBD_CLIENT_FLAGS_BYTES;
    while (size >= SR_NBD_OPTION_HEADER_BYTES && sr_nbd_get_option(data, &option) == SR_OK) {
        data += SR_NBD_OPTION_HEADER_BYTES;
        size -= SR_NBD_OPTION_HEADER_BYTES;
        if (option.length_bytes > size)
            break;
        decode_data(data, option.length_bytes);
        data += option.length_bytes;
        size -= option.length_bytes;
    }
    decode_data(data, size); /* the rest too, so that mutations need not keep the framing */
    return 0;
}
