/* nbd_proto.c - the NBD protocol, server side: bytes <-> structs.
 *
 * Pure functions over the caller's memory (invariants in the header), so a crash of the daemon at any line
 * loses nothing that was durable.  tests/unit/nbd pins the bytes, tests/fuzz/nbd_* feeds the get_ functions.
 */
#include "codec/nbd_proto.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"

static const char base_allocation[] = "base:allocation";

/* ---- integers ------------------------------------------------------------------------------------------- */

static uint16_t get16(const uint8_t *in)
{
    return (uint16_t)(in[0] << 8 | in[1]);
}

static uint32_t get32(const uint8_t *in)
{
    return (uint32_t)get16(in) << 16 | get16(in + 2);
}

static uint64_t get64(const uint8_t *in)
{
    return (uint64_t)get32(in) << 32 | get32(in + 4);
}

static uint8_t *put16(uint8_t *out, uint16_t value)
{
    out[0] = (uint8_t)(value >> 8);
    out[1] = (uint8_t)value;
    return out + 2;
}

static uint8_t *put32(uint8_t *out, uint32_t value)
{
    return put16(put16(out, (uint16_t)(value >> 16)), (uint16_t)value);
}

static uint8_t *put64(uint8_t *out, uint64_t value)
{
    return put32(put32(out, (uint32_t)(value >> 32)), (uint32_t)value);
}

/* What is left of an option's data; every length in it is checked against `left` before it is believed. */
struct reader {
    const uint8_t *at;
    size_t left;
};

static bool read16(struct reader *reader, uint16_t *value)
{
    if (reader->left < 2)
        return false;
    *value = get16(reader->at);
    reader->at += 2;
    reader->left -= 2;
    return true;
}

static bool read32(struct reader *reader, uint32_t *value)
{
    if (reader->left < 4)
        return false;
    *value = get32(reader->at);
    reader->at += 4;
    reader->left -= 4;
    return true;
}

/* A length and that many bytes. */
static bool read_counted(struct reader *reader, const uint8_t **bytes, uint32_t *length_bytes)
{
    if (!read32(reader, length_bytes) || *length_bytes > reader->left)
        return false;
    *bytes = reader->at;
    reader->at += *length_bytes;
    reader->left -= *length_bytes;
    return true;
}

/* ---- handshake ------------------------------------------------------------------------------------------ */

void sr_nbd_put_greeting(uint8_t out[SR_NBD_GREETING_BYTES])
{
    uint8_t *at = put64(out, SR_NBD_MAGIC);

    at = put64(at, SR_NBD_OPTION_MAGIC);
    put16(at, SR_NBD_FLAG_FIXED_NEWSTYLE | SR_NBD_FLAG_NO_ZEROES);
}

enum sr_error sr_nbd_get_client_flags(const uint8_t in[SR_NBD_CLIENT_FLAGS_BYTES], struct sr_nbd_client_flags *flags)
{
    uint32_t bits = get32(in);

    if (bits & ~(uint32_t)(SR_NBD_FLAG_FIXED_NEWSTYLE | SR_NBD_FLAG_NO_ZEROES))
        return SR_E_PROTOCOL;
    flags->fixed_newstyle = bits & SR_NBD_FLAG_FIXED_NEWSTYLE;
    flags->no_zeroes = bits & SR_NBD_FLAG_NO_ZEROES;
    return SR_OK;
}

enum sr_error sr_nbd_get_option(const uint8_t in[SR_NBD_OPTION_HEADER_BYTES], struct sr_nbd_option *option)
{
    if (get64(in) != SR_NBD_OPTION_MAGIC)
        return SR_E_PROTOCOL;
    option->option = get32(in + 8);
    option->length_bytes = get32(in + 12);
    return SR_OK;
}

/* Bytes of the character that starts here, 0 if none does (RFC 3629: no overlong forms, no surrogates,
 * nothing above U+10FFFF). */
static size_t utf8_character(const uint8_t *in, size_t left)
{
    uint8_t first = in[0], low = 0x80, high = 0xbf;
    size_t length;

    if (first >= 0x01 && first <= 0x7f)
        return 1;
    if (first >= 0xc2 && first <= 0xdf)
        length = 2;
    else if (first >= 0xe0 && first <= 0xef)
        length = 3;
    else if (first >= 0xf0 && first <= 0xf4)
        length = 4;
    else
        return 0;
    if (length > left)
        return 0;
    if (first == 0xe0)
        low = 0xa0;
    else if (first == 0xed)
        high = 0x9f;
    else if (first == 0xf0)
        low = 0x90;
    else if (first == 0xf4)
        high = 0x8f;
    if (in[1] < low || in[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((in[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

bool sr_nbd_string_valid(const uint8_t *bytes, size_t length_bytes)
{
    if (length_bytes > SR_NBD_STRING_MAX_BYTES)
        return false;
    for (size_t at = 0, step; at < length_bytes; at += step) {
        step = utf8_character(bytes + at, length_bytes - at);
        if (step == 0)
            return false;
    }
    return true;
}

/* An export name out of option data. */
static enum sr_error read_name(struct reader *reader, const char **name, uint32_t *name_bytes)
{
    const uint8_t *bytes;

    if (!read_counted(reader, &bytes, name_bytes))
        return SR_E_INVALID;
    if (*name_bytes > SR_NBD_STRING_MAX_BYTES)
        return SR_E_TOO_LARGE;
    if (!sr_nbd_string_valid(bytes, *name_bytes))
        return SR_E_INVALID;
    *name = (const char *)bytes;
    return SR_OK;
}

enum sr_error sr_nbd_get_go(const uint8_t *data, size_t data_bytes, struct sr_nbd_go *go)
{
    struct reader reader = {data, data_bytes};
    uint16_t n_infos, info;
    enum sr_error error;

    memset(go, 0, sizeof *go);
    error = read_name(&reader, &go->name, &go->name_bytes);
    if (error)
        return error;
    if (!read16(&reader, &n_infos) || reader.left != 2u * n_infos)
        return SR_E_INVALID;
    while (read16(&reader, &info)) {
        if (info == SR_NBD_INFO_NAME)
            go->wants_name = true;
        else if (info == SR_NBD_INFO_DESCRIPTION)
            go->wants_description = true;
        else if (info == SR_NBD_INFO_BLOCK_SIZE)
            go->wants_block_size = true;
    }
    return SR_OK;
}

static bool equals(const uint8_t *bytes, size_t length_bytes, const char *text)
{
    return length_bytes == strlen(text) && memcmp(bytes, text, length_bytes) == 0;
}

enum sr_error sr_nbd_get_meta(const uint8_t *data, size_t data_bytes, bool list, struct sr_nbd_meta *meta)
{
    struct reader reader = {data, data_bytes};
    uint32_t n_queries, query_bytes;
    const uint8_t *query;
    enum sr_error error;

    memset(meta, 0, sizeof *meta);
    error = read_name(&reader, &meta->name, &meta->name_bytes);
    if (error)
        return error;
    if (!read32(&reader, &n_queries))
        return SR_E_INVALID;
    if (n_queries == 0 && list)
        meta->base_allocation = true;
    for (uint32_t i = 0; i < n_queries; i++) { /* ends with the data at the latest: 4 bytes at least a turn */
        if (!read_counted(&reader, &query, &query_bytes))
            return SR_E_INVALID;
        if (query_bytes > SR_NBD_STRING_MAX_BYTES)
            return SR_E_TOO_LARGE;
        if (!sr_nbd_string_valid(query, query_bytes) || !memchr(query, ':', query_bytes))
            return SR_E_INVALID; /* a query must begin with a namespace */
        if (equals(query, query_bytes, base_allocation) || (list && equals(query, query_bytes, "base:")))
            meta->base_allocation = true;
    }
    return reader.left == 0 ? SR_OK : SR_E_INVALID;
}

void sr_nbd_put_option_reply(uint8_t out[SR_NBD_OPTION_REPLY_BYTES], uint32_t option, uint32_t reply,
                             uint32_t data_bytes)
{
    uint8_t *at = put64(out, SR_NBD_OPTION_REPLY_MAGIC);

    put32(put32(put32(at, option), reply), data_bytes);
}

/* Length of text as a protocol string, cut off between characters if it is too long. */
static uint32_t string_bytes(const char *text)
{
    size_t length = text ? strlen(text) : 0;

    if (length > SR_NBD_STRING_MAX_BYTES) {
        length = SR_NBD_STRING_MAX_BYTES;
        while (length > 0 && ((uint8_t)text[length] & 0xc0) == 0x80)
            length--;
    }
    return (uint32_t)length;
}

static size_t put_string(uint8_t *out, const uint8_t *start, const char *text, uint32_t length_bytes)
{
    if (length_bytes > 0)
        memcpy(out, text, length_bytes);
    return (size_t)(out - start) + length_bytes;
}

size_t sr_nbd_put_rep_text(uint8_t *out, uint32_t option, uint32_t reply, const char *text)
{
    uint32_t length = string_bytes(text);

    sr_nbd_put_option_reply(out, option, reply, length);
    return put_string(out + SR_NBD_OPTION_REPLY_BYTES, out, text, length);
}

size_t sr_nbd_put_rep_server(uint8_t *out, const char *name)
{
    uint32_t length = string_bytes(name);

    sr_nbd_put_option_reply(out, SR_NBD_OPT_LIST, SR_NBD_REP_SERVER, 4 + length);
    return put_string(put32(out + SR_NBD_OPTION_REPLY_BYTES, length), out, name, length);
}

size_t sr_nbd_put_rep_info_export(uint8_t *out, uint32_t option, uint64_t size_bytes, uint16_t flags)
{
    uint8_t *at = out + SR_NBD_OPTION_REPLY_BYTES;

    sr_nbd_put_option_reply(out, option, SR_NBD_REP_INFO, 12);
    at = put16(put64(put16(at, SR_NBD_INFO_EXPORT), size_bytes), flags);
    return (size_t)(at - out);
}

size_t sr_nbd_put_rep_info_block_size(uint8_t *out, uint32_t option)
{
    uint8_t *at = out + SR_NBD_OPTION_REPLY_BYTES;

    sr_nbd_put_option_reply(out, option, SR_NBD_REP_INFO, 14);
    at = put32(put16(at, SR_NBD_INFO_BLOCK_SIZE), 1);
    at = put32(put32(at, SR_NBD_PREFERRED_BLOCK_BYTES), SR_NBD_IO_MAX_BYTES);
    return (size_t)(at - out);
}

size_t sr_nbd_put_rep_info_text(uint8_t *out, uint32_t option, uint16_t info, const char *text)
{
    uint32_t length = string_bytes(text);

    sr_nbd_put_option_reply(out, option, SR_NBD_REP_INFO, 2 + length);
    return put_string(put16(out + SR_NBD_OPTION_REPLY_BYTES, info), out, text, length);
}

size_t sr_nbd_put_rep_meta_context(uint8_t *out, uint32_t option, uint32_t id)
{
    uint32_t length = sizeof base_allocation - 1;

    sr_nbd_put_option_reply(out, option, SR_NBD_REP_META_CONTEXT, 4 + length);
    return put_string(put32(out + SR_NBD_OPTION_REPLY_BYTES, id), out, base_allocation, length);
}

size_t sr_nbd_put_export_name_reply(uint8_t out[SR_NBD_EXPORT_NAME_REPLY_BYTES], uint64_t size_bytes, uint16_t flags,
                                    bool no_zeroes)
{
    uint8_t *at = put16(put64(out, size_bytes), flags);

    if (no_zeroes)
        return (size_t)(at - out);
    memset(at, 0, SR_NBD_EXPORT_NAME_REPLY_BYTES - (size_t)(at - out));
    return SR_NBD_EXPORT_NAME_REPLY_BYTES;
}

/* ---- transmission --------------------------------------------------------------------------------------- */

enum sr_error sr_nbd_get_request(const uint8_t in[SR_NBD_REQUEST_BYTES], struct sr_nbd_request_header *request)
{
    if (get32(in) != SR_NBD_REQUEST_MAGIC)
        return SR_E_PROTOCOL;
    request->flags = get16(in + 4);
    request->command = get16(in + 6);
    request->cookie = get64(in + 8);
    request->offset_bytes = get64(in + 16);
    request->length_bytes = get32(in + 24);
    return SR_OK;
}

uint16_t sr_nbd_transmission_flags(const struct sr_nbd_terms *terms, bool multi_conn)
{
    unsigned flags = SR_NBD_FLAG_HAS_FLAGS | SR_NBD_FLAG_SEND_FLUSH | SR_NBD_FLAG_SEND_FUA | SR_NBD_FLAG_SEND_CACHE;

    if (terms->read_only)
        flags |= SR_NBD_FLAG_READ_ONLY;
    else
        flags |= SR_NBD_FLAG_SEND_TRIM | SR_NBD_FLAG_SEND_WRITE_ZEROES;
    if (!terms->read_only && terms->fast_zero)
        flags |= SR_NBD_FLAG_SEND_FAST_ZERO;
    if (terms->structured)
        flags |= SR_NBD_FLAG_SEND_DF;
    if (multi_conn)
        flags |= SR_NBD_FLAG_CAN_MULTI_CONN;
    return (uint16_t)flags;
}

/* What each command may do; a command without an entry is unknown. */
static const struct {
    bool known;
    bool has_range;  /* offset and length name a part of the export; else they must be zero */
    bool changes;    /* refused on a read-only export */
    bool moves_data; /* length is limited to SR_NBD_IO_MAX_BYTES */
    uint16_t flags;  /* besides FUA, which must be accepted with every command */
    enum sr_nbd_errno beyond_end;
} commands[] = {
    [SR_NBD_CMD_READ] = {true, true, false, true, SR_NBD_CMD_FLAG_DF, SR_NBD_EINVAL},
    [SR_NBD_CMD_WRITE] = {true, true, true, true, 0, SR_NBD_ENOSPC},
    [SR_NBD_CMD_DISC] = {true, false, false, false, 0, SR_NBD_EINVAL},
    [SR_NBD_CMD_FLUSH] = {true, false, false, false, 0, SR_NBD_EINVAL},
    [SR_NBD_CMD_TRIM] = {true, true, true, false, 0, SR_NBD_EINVAL},
    [SR_NBD_CMD_CACHE] = {true, true, false, false, 0, SR_NBD_EINVAL},
    [SR_NBD_CMD_WRITE_ZEROES] = {true, true, true, false, SR_NBD_CMD_FLAG_NO_HOLE | SR_NBD_CMD_FLAG_FAST_ZERO,
                                 SR_NBD_EINVAL},
    [SR_NBD_CMD_BLOCK_STATUS] = {true, true, false, false, SR_NBD_CMD_FLAG_REQ_ONE, SR_NBD_EINVAL},
};

static enum sr_nbd_errno check_flags(const struct sr_nbd_request_header *request, const struct sr_nbd_terms *terms)
{
    if (request->flags & ~(unsigned)(commands[request->command].flags | SR_NBD_CMD_FLAG_FUA))
        return SR_NBD_EINVAL;
    if ((request->flags & SR_NBD_CMD_FLAG_DF) && !terms->structured)
        return SR_NBD_EINVAL;
    if (request->flags & SR_NBD_CMD_FLAG_FAST_ZERO) {
        if (!terms->fast_zero)
            return SR_NBD_EINVAL; /* never offered */
        if (request->flags & SR_NBD_CMD_FLAG_NO_HOLE)
            return SR_NBD_ENOTSUP; /* only punching holes is fast */
    }
    return SR_NBD_OK;
}

enum sr_nbd_errno sr_nbd_check_request(const struct sr_nbd_request_header *request, const struct sr_nbd_terms *terms)
{
    uint16_t command = request->command;
    enum sr_nbd_errno error;

    if (command >= sizeof commands / sizeof commands[0] || !commands[command].known)
        return SR_NBD_EINVAL;
    if (command == SR_NBD_CMD_BLOCK_STATUS && !(terms->structured && terms->base_allocation))
        return SR_NBD_EINVAL;
    if (commands[command].changes && terms->read_only)
        return SR_NBD_EPERM;
    error = check_flags(request, terms);
    if (error == SR_NBD_EINVAL)
        return error;
    if (!commands[command].has_range)
        return request->offset_bytes == 0 && request->length_bytes == 0 ? error : SR_NBD_EINVAL;
    if (request->length_bytes == 0)
        return SR_NBD_EINVAL;
    if (!sr_range_ok(request->offset_bytes, request->length_bytes, terms->size_bytes))
        return commands[command].beyond_end;
    if (commands[command].moves_data && request->length_bytes > SR_NBD_IO_MAX_BYTES)
        return SR_NBD_EOVERFLOW;
    return error;
}

uint32_t sr_nbd_request_payload_bytes(const struct sr_nbd_request_header *request)
{
    return request->command == SR_NBD_CMD_WRITE ? request->length_bytes : 0;
}

enum sr_nbd_errno sr_nbd_errno_from(enum sr_error error)
{
    switch (error) {
    case SR_OK:
        return SR_NBD_OK;
    case SR_E_INVALID:
    case SR_E_USAGE:
        return SR_NBD_EINVAL;
    case SR_E_NO_MEMORY:
        return SR_NBD_ENOMEM;
    case SR_E_NO_SPACE:
        return SR_NBD_ENOSPC;
    case SR_E_PERMISSION:
        return SR_NBD_EPERM;
    case SR_E_UNSUPPORTED:
        return SR_NBD_ENOTSUP;
    case SR_E_TOO_LARGE:
        return SR_NBD_EOVERFLOW;
    case SR_E_SHUTDOWN:
        return SR_NBD_ESHUTDOWN;
    default:
        return SR_NBD_EIO;
    }
}

void sr_nbd_put_simple_reply(uint8_t out[SR_NBD_SIMPLE_REPLY_BYTES], enum sr_nbd_errno error, uint64_t cookie)
{
    put64(put32(put32(out, SR_NBD_SIMPLE_REPLY_MAGIC), error), cookie);
}

static uint8_t *put_chunk(uint8_t *out, bool done, uint16_t type, uint64_t cookie, uint32_t payload_bytes)
{
    uint8_t *at = put32(out, SR_NBD_STRUCTURED_REPLY_MAGIC);

    at = put16(put16(at, done ? SR_NBD_REPLY_FLAG_DONE : 0), type);
    return put32(put64(at, cookie), payload_bytes);
}

void sr_nbd_put_none_chunk(uint8_t out[SR_NBD_CHUNK_BYTES], uint64_t cookie)
{
    put_chunk(out, true, SR_NBD_REPLY_TYPE_NONE, cookie, 0);
}

void sr_nbd_put_data_chunk(uint8_t out[SR_NBD_DATA_CHUNK_BYTES], uint64_t cookie, bool done, uint64_t offset_bytes,
                           uint32_t data_bytes)
{
    SR_ASSERT(data_bytes > 0 && data_bytes <= SR_NBD_IO_MAX_BYTES);
    put64(put_chunk(out, done, SR_NBD_REPLY_TYPE_OFFSET_DATA, cookie, 8 + data_bytes), offset_bytes);
}

void sr_nbd_put_hole_chunk(uint8_t out[SR_NBD_HOLE_CHUNK_BYTES], uint64_t cookie, bool done, uint64_t offset_bytes,
                           uint32_t hole_bytes)
{
    SR_ASSERT(hole_bytes > 0);
    put32(put64(put_chunk(out, done, SR_NBD_REPLY_TYPE_OFFSET_HOLE, cookie, 12), offset_bytes), hole_bytes);
}

void sr_nbd_put_error_chunk(uint8_t out[SR_NBD_ERROR_CHUNK_BYTES], uint64_t cookie, enum sr_nbd_errno error,
                            uint16_t text_bytes)
{
    SR_ASSERT(error != SR_NBD_OK && text_bytes <= SR_NBD_STRING_MAX_BYTES);
    put16(put32(put_chunk(out, true, SR_NBD_REPLY_TYPE_ERROR, cookie, 6u + text_bytes), error), text_bytes);
}

void sr_nbd_put_status_chunk(uint8_t out[SR_NBD_STATUS_CHUNK_BYTES], uint64_t cookie, uint32_t n_extents)
{
    SR_ASSERT(n_extents > 0 && n_extents <= SR_NBD_IO_MAX_BYTES / SR_NBD_STATUS_EXTENT_BYTES);
    put32(put_chunk(out, true, SR_NBD_REPLY_TYPE_BLOCK_STATUS, cookie, 4 + n_extents * SR_NBD_STATUS_EXTENT_BYTES),
          SR_NBD_META_BASE_ALLOCATION_ID);
}

void sr_nbd_put_status_extent(uint8_t out[SR_NBD_STATUS_EXTENT_BYTES], uint32_t length_bytes, bool hole)
{
    SR_ASSERT(length_bytes > 0);
    put32(put32(out, length_bytes), hole ? SR_NBD_STATE_HOLE | SR_NBD_STATE_ZERO : 0);
}
