/* fuzz_nbd_request.c - whatever a client may send in the transmission phase.
 *
 * Two bytes choose the terms, then requests follow.  What passes the check must satisfy what the backend is promised.
 */
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"
#include "codec/nbd_proto.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct sr_nbd_request_header *request, const struct sr_nbd_terms *terms)
{
    unsigned __int128 end = (unsigned __int128)request->offset_bytes + request->length_bytes;

    if (sr_nbd_check_request(request, terms) != SR_NBD_OK)
        return;
    SR_ASSERT(request->command <= SR_NBD_CMD_BLOCK_STATUS);
    if (request->command == SR_NBD_CMD_FLUSH || request->command == SR_NBD_CMD_DISC) {
        SR_ASSERT(end == 0);
        return;
    }
    SR_ASSERT(request->length_bytes > 0 && end <= terms->size_bytes);
    if (request->command == SR_NBD_CMD_READ || request->command == SR_NBD_CMD_WRITE)
        SR_ASSERT(request->length_bytes <= SR_NBD_IO_MAX_BYTES);
    if (terms->read_only)
        SR_ASSERT(request->command == SR_NBD_CMD_READ || request->command == SR_NBD_CMD_CACHE ||
                  request->command == SR_NBD_CMD_BLOCK_STATUS);
    SR_ASSERT(sr_nbd_request_payload_bytes(request) <= SR_NBD_IO_MAX_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sr_nbd_request_header request;
    struct sr_nbd_terms terms;

    if (size < 2)
        return 0;
    terms = (struct sr_nbd_terms){
        .size_bytes = UINT64_C(1) << (20 + data[0] % 27),
        .read_only = data[1] & 1,
        .structured = data[1] & 2,
        .base_allocation = data[1] & 4,
        .fast_zero = data[1] & 8,
    };
    data += 2;
    size -= 2;
    while (size >= SR_NBD_REQUEST_BYTES && sr_nbd_get_request(data, &request) == SR_OK) {
        check(&request, &terms);
        data += SR_NBD_REQUEST_BYTES;
        size -= SR_NBD_REQUEST_BYTES;
    }
    return 0;
}
