/* wire.c - frames of the control socket: bytes <-> messages.
 *
 * protobuf-c has no limit on memory when it unpacks and cuts strings at a NUL without a word, so a request is
 * first walked over here (check_message) and then unpacked with an allocator that counts.
 *
 * Invariants
 *   1. Nothing outside [bytes, bytes + length) is read, whatever the bytes are.
 *   2. A request that was accepted has no field that this build does not know: an option is never ignored.
 *   3. Decoding one message never holds more than its memory bound.
 *
 * No state: a crash loses nothing.
 */
#include "control/wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Request -> operation: the schema is two deep and has no recursion.  More is a change to the schema. */
#define DEPTH_MAX 3

uint32_t sr_control_header_get(const uint8_t header[SR_CONTROL_HEADER_BYTES])
{
    return (uint32_t)header[0] | (uint32_t)header[1] << 8 | (uint32_t)header[2] << 16 | (uint32_t)header[3] << 24;
}

void sr_control_header_put(uint8_t header[SR_CONTROL_HEADER_BYTES], uint32_t length_bytes)
{
    header[0] = (uint8_t)length_bytes;
    header[1] = (uint8_t)(length_bytes >> 8);
    header[2] = (uint8_t)(length_bytes >> 16);
    header[3] = (uint8_t)(length_bytes >> 24);
}

/* ---- an allocator that counts ---- */

struct memory {
    size_t left_bytes;
    bool exhausted;
};

static void *counting_alloc(void *data, size_t size)
{
    struct memory *memory = data;
    /* A small block costs more than its size; many of them are the attack. */
    size_t cost = size + 16;

    if (cost < size || cost > memory->left_bytes) {
        memory->exhausted = true;
        return NULL;
    }
    memory->left_bytes -= cost;
    return malloc(size > 0 ? size : 1);
}

static void plain_free(void *data, void *pointer)
{
    (void)data;
    free(pointer);
}

static void *plain_alloc(void *data, size_t size)
{
    (void)data;
    return malloc(size > 0 ? size : 1);
}

/* What was allocated while counting is freed without. */
static ProtobufCAllocator plain_allocator = {plain_alloc, plain_free, NULL};

/* ---- a walk over the bytes before they are unpacked ---- */

struct cursor {
    const uint8_t *at, *end;
};

static bool read_varint(struct cursor *cursor, uint64_t *value)
{
    uint64_t sum = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (cursor->at == cursor->end)
            return false;
        uint8_t byte = *cursor->at++;
        if (shift == 63 && byte > 1)
            return false;
        sum |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = sum;
            return true;
        }
    }
    return false;
}

/* Length of the UTF-8 sequence (RFC 3629) at s; 0 if it is none, is cut off, or is NUL. */
static size_t utf8_length(const uint8_t *s, size_t n)
{
    static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    uint8_t c = s[0];
    size_t more = c < 0x80 ? 0 : (c & 0xe0) == 0xc0 ? 1 : (c & 0xf0) == 0xe0 ? 2 : (c & 0xf8) == 0xf0 ? 3 : SIZE_MAX;

    if (c == 0 || more > n - 1)
        return 0;
    uint32_t point = more == 0 ? c : c & (0x3fu >> more);
    for (size_t k = 1; k <= more; k++) {
        if ((s[k] & 0xc0) != 0x80)
            return 0;
        point = point << 6 | (s[k] & 0x3f);
    }
    if (point < least[more] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
        return 0;
    return more + 1;
}

static bool text_valid(const uint8_t *s, size_t n)
{
    for (size_t i = 0, step; i < n; i += step) {
        step = utf8_length(s + i, n - i);
        if (step == 0)
            return false;
    }
    return true;
}

char *sr_control_text_clean(char *text)
{
    size_t n = strlen(text);

    for (size_t i = 0, step; i < n; i += step) {
        uint8_t c = (uint8_t)text[i];
        step = utf8_length((const uint8_t *)text + i, n - i);
        bool c1 = step == 2 && c == 0xc2 && (uint8_t)text[i + 1] < 0xa0; /* terminals obey these too */
        if (step == 0 || c < 0x20 || c == 0x7f || c1) {
            text[i] = '?';
            if (c1)
                text[i + 1] = '?';
            step = c1 ? 2 : 1;
        }
    }
    return text;
}

static enum sr_error refuse(char why[SR_CONTROL_WHY_BYTES], enum sr_error error, const char *what, const char *where)
{
    snprintf(why, SR_CONTROL_WHY_BYTES, "%s%s%s", what, where[0] ? " in " : "", where);
    return error;
}

static enum sr_error check_message(const ProtobufCMessageDescriptor *descriptor, struct cursor cursor, unsigned depth,
                                   char why[SR_CONTROL_WHY_BYTES]);

static enum sr_error check_field(const ProtobufCMessageDescriptor *message, const ProtobufCFieldDescriptor *field,
                                 struct cursor value, unsigned depth, char why[SR_CONTROL_WHY_BYTES])
{
    if (field->type == PROTOBUF_C_TYPE_STRING && !text_valid(value.at, (size_t)(value.end - value.at))) {
        snprintf(why, SR_CONTROL_WHY_BYTES, "'%s' of %s is not UTF-8 text", field->name, message->short_name);
        return SR_E_INVALID;
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE)
        return check_message(field->descriptor, value, depth + 1, why);
    return SR_OK;
}

/* Steps over one field.  Sets *value to its bytes if it is length-delimited. */
static bool skip_field(struct cursor *cursor, unsigned wire_type, struct cursor *value)
{
    uint64_t length;

    *value = (struct cursor){NULL, NULL};
    switch (wire_type) {
    case 0:
        return read_varint(cursor, &length);
    case 1:
    case 5:
        length = wire_type == 1 ? 8 : 4;
        break;
    case 2:
        if (!read_varint(cursor, &length))
            return false;
        break;
    default:
        return false;
    }
    if (length > (uint64_t)(cursor->end - cursor->at))
        return false;
    if (wire_type == 2)
        *value = (struct cursor){cursor->at, cursor->at + length};
    cursor->at += length;
    return true;
}

/* The first problem that is not fatal is reported only if no fatal one follows. */
static enum sr_error check_message(const ProtobufCMessageDescriptor *descriptor, struct cursor cursor, unsigned depth,
                                   char why[SR_CONTROL_WHY_BYTES])
{
    enum sr_error first = SR_OK;

    if (depth > DEPTH_MAX)
        return refuse(why, SR_E_PROTOCOL, "nested too deeply", descriptor->short_name);
    while (cursor.at < cursor.end) {
        uint64_t tag;
        struct cursor value;
        char scratch[SR_CONTROL_WHY_BYTES];

        if (!read_varint(&cursor, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff ||
            !skip_field(&cursor, tag & 7, &value))
            return refuse(why, SR_E_PROTOCOL, "bytes that are no message", descriptor->short_name);
        const ProtobufCFieldDescriptor *field =
            protobuf_c_message_descriptor_get_field(descriptor, (unsigned)(tag >> 3));
        enum sr_error error = SR_OK;
        if (!field) {
            snprintf(scratch, sizeof(scratch), "this daemon does not know field %u of %s; is the client newer?",
                     (unsigned)(tag >> 3), descriptor->short_name);
            error = SR_E_UNSUPPORTED;
        } else if (value.at) {
            error = check_field(descriptor, field, value, depth, scratch);
        }
        if (error == SR_OK || (first != SR_OK && error != SR_E_PROTOCOL))
            continue;
        memcpy(why, scratch, sizeof(scratch));
        first = error;
        if (error == SR_E_PROTOCOL)
            return error;
    }
    return first;
}

/* ---- requests ---- */

enum sr_error sr_control_request_decode(const uint8_t *bytes, size_t length_bytes,
                                        Syncrep__Control__Request **request, uint64_t *id,
                                        char why[SR_CONTROL_WHY_BYTES])
{
    struct memory memory = {SR_CONTROL_REQUEST_MEMORY_BYTES, false};
    ProtobufCAllocator allocator = {counting_alloc, plain_free, &memory};
    enum sr_error error;

    *request = NULL;
    *id = 0;
    why[0] = '\0';
    error =
        check_message(&syncrep__control__request__descriptor, (struct cursor){bytes, bytes + length_bytes}, 0, why);
    if (error == SR_E_PROTOCOL)
        return error;
    Syncrep__Control__Request *message = syncrep__control__request__unpack(&allocator, length_bytes, bytes);
    if (!message && memory.exhausted)
        return refuse(why, SR_E_NO_MEMORY, "the request would take too much memory", "");
    if (!message)
        return refuse(why, SR_E_PROTOCOL, "the request does not decode", "");
    *id = message->id;
    if (message->version != SR_CONTROL_VERSION) {
        snprintf(why, SR_CONTROL_WHY_BYTES, "this daemon speaks control protocol version %d, the client version %u",
                 SR_CONTROL_VERSION, (unsigned)message->version);
        error = SR_E_VERSION;
    } else if (error == SR_OK && message->op_case == SYNCREP__CONTROL__REQUEST__OP__NOT_SET) {
        error = refuse(why, SR_E_UNSUPPORTED, "the request names no operation that this daemon knows", "");
    }
    if (error != SR_OK) {
        sr_control_request_free(message);
        return error;
    }
    *request = message;
    return SR_OK;
}

void sr_control_request_free(Syncrep__Control__Request *request)
{
    if (request)
        syncrep__control__request__free_unpacked(request, &plain_allocator);
}

/* ---- responses ---- */

Syncrep__Control__Response *sr_control_response_decode(const uint8_t *bytes, size_t length_bytes)
{
    struct memory memory = {SR_CONTROL_RESPONSE_MEMORY_BYTES, false};
    ProtobufCAllocator allocator = {counting_alloc, plain_free, &memory};

    return syncrep__control__response__unpack(&allocator, length_bytes, bytes);
}

void sr_control_response_free(Syncrep__Control__Response *response)
{
    if (response)
        syncrep__control__response__free_unpacked(response, &plain_allocator);
}
