/* peer_frame.h - frames of the peer link: bytes <-> structs.  Pure functions (docs/PROTOCOL.md has the layout).
 *
 * A frame is a fixed header of 32 bytes, a protobuf header (proto/peer.proto), and raw payload.
 * Decoding goes in the order in which a reader gets the bytes, so that nothing is allocated for a stranger's
 * promises:
 *
 *     sr_frame_fixed_decode    the 32 bytes: how long is the rest?
 *     sr_frame_header_decode   the protobuf header, CRC checked: every field validated, against the payload's
 *                              length too
 *     sr_frame_payload_attach  the payload, CRC checked
 *
 * Whatever is wrong is an error code and a text that names the field; nothing here asserts on input.
 */
#ifndef SR_CODEC_PEER_FRAME_H
#define SR_CODEC_PEER_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/units.h"
#include "base/uuid.h"
#include "codec/site_msg.h"
#include "core/core.h"

#define SR_FRAME_FIXED_BYTES       32
#define SR_FRAME_HEADER_MAX_BYTES  (64u << 10) /* the protobuf header */
#define SR_FRAME_PAYLOAD_MAX_BYTES SR_IO_MAX_BYTES
#define SR_FRAME_UNPACK_MAX_BYTES  (1u << 20) /* memory that unpacking one header may take */
#define SR_FRAME_TEXT_BYTES        160

/* Protocol versions that this build speaks. */
#define SR_WIRE_VERSION_MIN   2 /* 1 could not change roles */
#define SR_WIRE_VERSION_MAX   2
#define SR_WIRE_VERSION_HELLO 1 /* HELLO, HELLO_ACK and REFUSED are sent as this version for ever */

/* Types from here on that a reader does not know are skipped, any other unknown one is a fault. */
#define SR_FRAME_TYPE_OPTIONAL 0x8000u

/* The fixed header as it lies on the wire, every field little-endian. */
struct sr_frame_wire {
    uint8_t magic[4]; /* "SRP1" */
    uint16_t version;
    uint16_t type;
    uint32_t header_bytes;
    uint32_t payload_bytes;
    uint32_t header_crc;  /* CRC-32C of these 32 bytes with both CRC fields zero, and of the protobuf header */
    uint32_t payload_crc; /* CRC-32C of the payload; of none it is 0 */
    uint64_t reserved;    /* 0 */
};
_Static_assert(sizeof(struct sr_frame_wire) == SR_FRAME_FIXED_BYTES, "wire layout");
_Static_assert(offsetof(struct sr_frame_wire, version) == 4, "wire layout");
_Static_assert(offsetof(struct sr_frame_wire, type) == 6, "wire layout");
_Static_assert(offsetof(struct sr_frame_wire, header_bytes) == 8, "wire layout");
_Static_assert(offsetof(struct sr_frame_wire, payload_bytes) == 12, "wire layout");
_Static_assert(offsetof(struct sr_frame_wire, header_crc) == 16, "wire layout");
_Static_assert(offsetof(struct sr_frame_wire, payload_crc) == 20, "wire layout");
_Static_assert(offsetof(struct sr_frame_wire, reserved) == 24, "wire layout");

/* The fixed header in host order. */
struct sr_frame_fixed {
    uint16_t version, type;
    uint32_t header_bytes, payload_bytes;
    uint32_t header_crc, payload_crc;
};

enum sr_frame_kind {
    SR_FRAME_SITE,   /* .site */
    SR_FRAME_PEER,   /* .collection, .msg */
    SR_FRAME_SKIPPED /* an optional type that this build does not know */
};

struct sr_frame {
    enum sr_frame_kind kind;
    struct sr_uuid collection;
    struct sr_peer_msg *msg;
    struct sr_site_msg *site;
};

/* Both encoders write the fixed and the protobuf header to out and return their length together; the payload of a
 * peer message follows on the wire as it is (msg->payload, payload_offset, payload_bytes).  Messages come from our
 * own code: one that breaks the rules of its type is asserted on.  capacity: at least SR_FRAME_FIXED_BYTES plus the
 * protobuf header; SR_FRAME_MSG_MAX_BYTES suffices for any sr_peer_msg. */
#define SR_FRAME_MSG_MAX_BYTES 4096
size_t sr_frame_encode_msg(uint8_t *out, size_t capacity, uint16_t version, const struct sr_uuid *collection,
                           const struct sr_peer_msg *msg);
/* 0: the message does not fit into capacity or into SR_FRAME_HEADER_MAX_BYTES. */
size_t sr_frame_encode_site(uint8_t *out, size_t capacity, uint16_t version, const struct sr_site_msg *msg);

/* SR_E_PROTOCOL: not a frame (magic, reserved); SR_E_TOO_LARGE: a length is over its cap.  The version is for the
 * caller to judge.  text (SR_FRAME_TEXT_BYTES) gets what is wrong. */
enum sr_error sr_frame_fixed_decode(const uint8_t bytes[SR_FRAME_FIXED_BYTES], struct sr_frame_fixed *fixed,
                                    char *text);

/* header: fixed->header_bytes bytes.  On success frame holds a message that the caller frees (sr_peer_msg_free,
 * sr_site_msg_free); a peer message has payload_bytes set but payload still NULL.
 * SR_E_CORRUPT: the CRC does not match; SR_E_PROTOCOL: a field is not what its type allows; SR_E_UNSUPPORTED: unknown
 * type; SR_E_NO_MEMORY: ours, or the header asks for more than SR_FRAME_UNPACK_MAX_BYTES. */
enum sr_error sr_frame_header_decode(const struct sr_frame_fixed *fixed, const uint8_t *header,
                                     struct sr_frame *frame, char *text);

/* payload: fixed->payload_bytes bytes from its beginning on.  On success the message took a reference of its own.
 * SR_E_CORRUPT: the CRC does not match. */
enum sr_error sr_frame_payload_attach(const struct sr_frame_fixed *fixed, struct sr_frame *frame,
                                      struct sr_buf *payload, char *text);

/* Frees what the frame holds. */
void sr_frame_free(struct sr_frame *frame);

#endif
