/* peer_frame.c - the outside of a peer frame: fixed header, checksums, memory for unpacking.
 *
 * Invariants
 *  1. Nothing is read from the protobuf header before its CRC matched, and nothing from the payload either.
 *  2. Unpacking a header takes at most SR_FRAME_UNPACK_MAX_BYTES, whatever it says; usually it takes no malloc at
 *     all, but a few kilobytes of the stack.
 *  3. A message that leaves the decoder obeys sr_frame_msg_check or sr_frame_site_check.
 *
 * Pure functions: a crash leaves nothing behind.
 */
#include "codec/peer_frame_internal.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crc32c.h"

static const uint8_t frame_magic[4] = {'S', 'R', 'P', '1'};

/* ---- memory for unpacking ----------------------------------------------------------------------------- */

#define ARENA_BYTES 8192

/* A bump allocator on the stack; what does not fit goes to malloc, and all together is bounded. */
struct arena {
    size_t used_bytes;  /* of memory */
    size_t total_bytes; /* ever handed out */
    _Alignas(max_align_t) uint8_t memory[ARENA_BYTES];
};

static void *arena_alloc(void *arg, size_t bytes)
{
    struct arena *arena = arg;
    size_t rounded;
    void *result;

    if (bytes > SR_FRAME_UNPACK_MAX_BYTES)
        return NULL;
    rounded = (bytes + _Alignof(max_align_t) - 1) & ~(_Alignof(max_align_t) - 1);
    if (rounded > SR_FRAME_UNPACK_MAX_BYTES - arena->total_bytes)
        return NULL;
    arena->total_bytes += rounded;
    if (rounded > ARENA_BYTES - arena->used_bytes)
        return malloc(rounded ? rounded : 1);
    result = arena->memory + arena->used_bytes;
    arena->used_bytes += rounded;
    return result;
}

static void arena_free(void *arg, void *pointer)
{
    const struct arena *arena = arg;
    uintptr_t p = (uintptr_t)pointer;
    uintptr_t start = (uintptr_t)arena->memory;

    if (p >= start && p <= start + ARENA_BYTES)
        return;
    free(pointer);
}

/* ---- the fixed header --------------------------------------------------------------------------------- */

static uint32_t header_crc(struct sr_frame_wire wire, const uint8_t *header, size_t header_bytes)
{
    uint32_t crc;

    wire.header_crc = 0;
    wire.payload_crc = 0;
    crc = sr_crc32c(0, &wire, sizeof wire);
    return sr_crc32c(crc, header, header_bytes);
}

size_t sr_frame_seal(uint8_t *out, uint16_t version, uint16_t type, size_t header_bytes, uint32_t payload_bytes,
                     uint32_t payload_crc)
{
    struct sr_frame_wire wire = {
        .version = htole16(version),
        .type = htole16(type),
        .header_bytes = htole32((uint32_t)header_bytes),
        .payload_bytes = htole32(payload_bytes),
    };

    SR_ASSERT(header_bytes <= SR_FRAME_HEADER_MAX_BYTES);
    SR_ASSERT(payload_bytes <= SR_FRAME_PAYLOAD_MAX_BYTES);
    memcpy(wire.magic, frame_magic, sizeof frame_magic);
    wire.header_crc = htole32(header_crc(wire, out + SR_FRAME_FIXED_BYTES, header_bytes));
    wire.payload_crc = htole32(payload_crc);
    memcpy(out, &wire, sizeof wire);
    return SR_FRAME_FIXED_BYTES + header_bytes;
}

enum sr_error sr_frame_fixed_decode(const uint8_t bytes[SR_FRAME_FIXED_BYTES], struct sr_frame_fixed *fixed,
                                    char *text)
{
    struct sr_frame_wire wire;

    memcpy(&wire, bytes, sizeof wire);
    if (memcmp(wire.magic, frame_magic, sizeof frame_magic) != 0) {
        snprintf(text, SR_FRAME_TEXT_BYTES, "frame magic: %02x %02x %02x %02x is not \"SRP1\"", wire.magic[0],
                 wire.magic[1], wire.magic[2], wire.magic[3]);
        return SR_E_PROTOCOL;
    }
    if (wire.reserved != 0) {
        snprintf(text, SR_FRAME_TEXT_BYTES, "frame reserved: not zero");
        return SR_E_PROTOCOL;
    }
    fixed->version = le16toh(wire.version);
    fixed->type = le16toh(wire.type);
    fixed->header_bytes = le32toh(wire.header_bytes);
    fixed->payload_bytes = le32toh(wire.payload_bytes);
    fixed->header_crc = le32toh(wire.header_crc);
    fixed->payload_crc = le32toh(wire.payload_crc);
    if (fixed->header_bytes > SR_FRAME_HEADER_MAX_BYTES) {
        snprintf(text, SR_FRAME_TEXT_BYTES, "frame header_len: %u is more than %u", fixed->header_bytes,
                 SR_FRAME_HEADER_MAX_BYTES);
        return SR_E_TOO_LARGE;
    }
    if (fixed->payload_bytes > SR_FRAME_PAYLOAD_MAX_BYTES) {
        snprintf(text, SR_FRAME_TEXT_BYTES, "frame payload_len: %u is more than %u", fixed->payload_bytes,
                 SR_FRAME_PAYLOAD_MAX_BYTES);
        return SR_E_TOO_LARGE;
    }
    return SR_OK;
}

/* ---- the whole ---------------------------------------------------------------------------------------- */

static bool header_crc_matches(const struct sr_frame_fixed *fixed, const uint8_t *header)
{
    struct sr_frame_wire wire = {
        .version = htole16(fixed->version),
        .type = htole16(fixed->type),
        .header_bytes = htole32(fixed->header_bytes),
        .payload_bytes = htole32(fixed->payload_bytes),
    };

    memcpy(wire.magic, frame_magic, sizeof frame_magic);
    return header_crc(wire, header, fixed->header_bytes) == fixed->header_crc;
}

static bool is_site_type(uint16_t type)
{
    switch (type) {
#define IS_SITE_MSG(name, number) case number:
        SR_SITE_MSGS(IS_SITE_MSG)
#undef IS_SITE_MSG
        return true;
    default:
        return false;
    }
}

static bool is_peer_type(uint16_t type)
{
    switch (type) {
#define IS_PEER_MSG(name, number) case number:
        SR_PEER_MSGS(IS_PEER_MSG)
#undef IS_PEER_MSG
        return true;
    default:
        return false;
    }
}

enum sr_error sr_frame_header_decode(const struct sr_frame_fixed *fixed, const uint8_t *header,
                                     struct sr_frame *frame, char *text)
{
    struct arena arena;
    ProtobufCAllocator memory = {.alloc = arena_alloc, .free = arena_free, .allocator_data = &arena};
    const char *name, *wrong = "?";
    enum sr_error error;

    memset(frame, 0, sizeof *frame);
    if (!header_crc_matches(fixed, header)) {
        snprintf(text, SR_FRAME_TEXT_BYTES, "frame header: checksum does not match (type %u)", fixed->type);
        return SR_E_CORRUPT;
    }
    arena.used_bytes = arena.total_bytes = 0;
    if (is_site_type(fixed->type)) {
        name = sr_site_msg_name((enum sr_site_msg_type)fixed->type);
        frame->kind = SR_FRAME_SITE;
        error = sr_frame_unpack_site(fixed, header, &memory, frame, &wrong);
    } else if (is_peer_type(fixed->type)) {
        name = sr_peer_msg_name((enum sr_peer_msg_type)fixed->type);
        frame->kind = SR_FRAME_PEER;
        error = sr_frame_unpack_msg(fixed, header, &memory, frame, &wrong);
    } else if (fixed->type >= SR_FRAME_TYPE_OPTIONAL) {
        frame->kind = SR_FRAME_SKIPPED;
        return SR_OK;
    } else {
        snprintf(text, SR_FRAME_TEXT_BYTES, "frame type: %u is unknown", fixed->type);
        return SR_E_UNSUPPORTED;
    }
    if (error != SR_OK) {
        snprintf(text, SR_FRAME_TEXT_BYTES, "%s frame: %s", name, wrong);
        sr_frame_free(frame);
    }
    return error;
}

enum sr_error sr_frame_payload_attach(const struct sr_frame_fixed *fixed, struct sr_frame *frame,
                                      struct sr_buf *payload, char *text)
{
    SR_ASSERT(fixed->payload_bytes > 0 && payload->capacity >= fixed->payload_bytes);
    if (sr_crc32c(0, payload->data, fixed->payload_bytes) != fixed->payload_crc) {
        snprintf(text, SR_FRAME_TEXT_BYTES, "frame payload: checksum does not match (type %u, %u bytes)", fixed->type,
                 fixed->payload_bytes);
        return SR_E_CORRUPT;
    }
    if (frame->kind == SR_FRAME_PEER) {
        SR_ASSERT(frame->msg->payload_bytes == fixed->payload_bytes && !frame->msg->payload);
        frame->msg->payload = sr_buf_ref(payload);
        frame->msg->payload_offset = 0;
    }
    return SR_OK;
}

void sr_frame_free(struct sr_frame *frame)
{
    sr_peer_msg_free(frame->msg);
    sr_site_msg_free(frame->site);
    memset(frame, 0, sizeof *frame);
}
