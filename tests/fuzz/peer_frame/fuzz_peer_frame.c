/* fuzz_peer_frame.c - a peer that sends anything.
 *
 * The checksum would keep a fuzzer out, so frames are signed here before they are decoded.  What the decoder
 * takes must be encodable again, to something that decodes to the same bytes.
 * A corpus file is a frame without its payload; the payload is as many zero bytes as the header says.
 */
#include <endian.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "codec/peer_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sign(uint8_t *frame, uint32_t header_bytes, uint32_t payload_crc)
{
    struct sr_frame_wire wire;
    uint32_t crc;

    memcpy(&wire, frame, sizeof wire);
    wire.header_crc = 0;
    wire.payload_crc = 0;
    crc = sr_crc32c(0, &wire, sizeof wire);
    wire.header_crc = htole32(sr_crc32c(crc, frame + sizeof wire, header_bytes));
    wire.payload_crc = htole32(payload_crc);
    memcpy(frame, &wire, sizeof wire);
}

static size_t encode(const struct sr_frame *frame, uint8_t *out, size_t capacity, uint16_t version)
{
    if (frame->kind == SR_FRAME_PEER)
        return sr_frame_encode_msg(out, capacity, version, &frame->collection, frame->msg);
    return sr_frame_encode_site(out, capacity, version, frame->site);
}

static void check_again(const struct sr_frame *frame, uint16_t version)
{
    static uint8_t first[SR_FRAME_FIXED_BYTES + SR_FRAME_HEADER_MAX_BYTES], second[sizeof first];
    char text[SR_FRAME_TEXT_BYTES];
    size_t bytes = encode(frame, first, sizeof first, version);
    struct sr_frame_fixed fixed;
    struct sr_frame again;

    if (bytes == 0 || sr_frame_fixed_decode(first, &fixed, text) != SR_OK ||
        sr_frame_header_decode(&fixed, first + SR_FRAME_FIXED_BYTES, &again, text) != SR_OK)
        abort();
    if (frame->kind == SR_FRAME_PEER && frame->msg->payload &&
        sr_frame_payload_attach(&fixed, &again, frame->msg->payload, text) != SR_OK)
        abort();
    if (encode(&again, second, sizeof second, version) != bytes || memcmp(first, second, bytes) != 0)
        abort();
    sr_frame_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[SR_FRAME_FIXED_BYTES + SR_FRAME_HEADER_MAX_BYTES];
    char text[SR_FRAME_TEXT_BYTES];
    struct sr_buf *payload = NULL;
    struct sr_frame_fixed fixed;
    struct sr_frame frame;

    if (size < SR_FRAME_FIXED_BYTES || size > sizeof bytes)
        return 0;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, data, size);
    if (sr_frame_fixed_decode(bytes, &fixed, text) != SR_OK || fixed.header_bytes > size - SR_FRAME_FIXED_BYTES)
        return 0;
    if (fixed.payload_bytes && fixed.payload_bytes <= SR_MIB) {
        payload = sr_buf_alloc(NULL, fixed.payload_bytes);
        memset(payload->data, 0, fixed.payload_bytes);
    }
    sign(bytes, fixed.header_bytes, payload ? sr_crc32c(0, payload->data, fixed.payload_bytes) : 0);
    if (sr_frame_fixed_decode(bytes, &fixed, text) != SR_OK)
        abort();
    if (sr_frame_header_decode(&fixed, bytes + SR_FRAME_FIXED_BYTES, &frame, text) == SR_OK) {
        if (payload && sr_frame_payload_attach(&fixed, &frame, payload, text) != SR_OK)
            abort();
        if (frame.kind != SR_FRAME_SKIPPED && (payload || fixed.payload_bytes == 0))
            check_again(&frame, fixed.version);
        sr_frame_free(&frame);
    }
    sr_buf_unref(payload);
    return 0;
}
