/* peer_frame_internal.h - shared by the halves of the peer frame codec; nobody else includes it. */
#ifndef SR_CODEC_PEER_FRAME_INTERNAL_H
#define SR_CODEC_PEER_FRAME_INTERNAL_H

#include "codec/peer_frame.h"
#include "peer.pb-c.h"

_Static_assert(SR_SITE_COLLECTION_ABSENT < 16, "site messages use the numbers below those of core/peer_msg.h");
_Static_assert(SR_MSG_HELLO == 16, "core/peer_msg.h uses 16 and up");

/* The largest length of a request without data (zero, trim): the core cuts pieces of 64 regions. */
#define SR_FRAME_RANGE_MAX_BYTES (64u * SR_REGION_BYTES)
#define SR_FRAME_RUN_MAX_BYTES   (SR_RUN_MAX_BLOCKS * SR_BLOCK_BYTES)

struct sr_unpack; /* where a decoder says what is wrong */

/* The bytes of the payload that this message must have, by its type and fields. */
uint32_t sr_frame_msg_payload_bytes(const struct sr_peer_msg *msg);

/* NULL if the fields of msg are what its type allows (payload_bytes is looked at, payload is not), else what is
 * wrong.  Both directions use it: the encoder asserts on it, the decoder refuses by it. */
const char *sr_frame_msg_check(const struct sr_peer_msg *msg);
const char *sr_frame_site_check(const struct sr_site_msg *msg);

/* The decoders of the protobuf headers (peer_frame_unpack.c, peer_frame_site.c).  *wrong says what is wrong (static
 * text). */
enum sr_error sr_frame_unpack_msg(const struct sr_frame_fixed *fixed, const uint8_t *header,
                                  ProtobufCAllocator *memory, struct sr_frame *frame, const char **wrong);
enum sr_error sr_frame_unpack_site(const struct sr_frame_fixed *fixed, const uint8_t *header,
                                   ProtobufCAllocator *memory, struct sr_frame *frame, const char **wrong);

/* Fills in the fixed header in front of header_bytes bytes at out + SR_FRAME_FIXED_BYTES; the length of both. */
size_t sr_frame_seal(uint8_t *out, uint16_t version, uint16_t type, size_t header_bytes, uint32_t payload_bytes,
                     uint32_t payload_crc);

/* 16 bytes, or none at all for "none".  False: any other length. */
static inline bool sr_frame_take_uuid(const ProtobufCBinaryData *from, struct sr_uuid *to)
{
    if (from->len != 0 && from->len != SR_UUID_BYTES)
        return false;
    memset(to, 0, sizeof *to);
    if (from->len)
        memcpy(to->b, from->data, SR_UUID_BYTES);
    return true;
}

static inline ProtobufCBinaryData sr_frame_give_uuid(const struct sr_uuid *from)
{
    ProtobufCBinaryData data = {0, NULL};

    if (!sr_uuid_is_none(from)) {
        data.len = SR_UUID_BYTES;
        data.data = (uint8_t *)from->b; /* packing only reads it */
    }
    return data;
}

#endif
