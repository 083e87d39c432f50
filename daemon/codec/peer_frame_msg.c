/* peer_frame_msg.c - the messages of a collection: sr_peer_msg <-> protobuf header.
 *
 * The rules of each type stand once, in sr_frame_msg_check; the encoder asserts on them and the decoder refuses by
 * them, so the two cannot drift apart.
 */
#include "codec/peer_frame_internal.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/crc32c.h"

/* ---- the rules ---------------------------------------------------------------------------------------- */

uint32_t sr_frame_msg_payload_bytes(const struct sr_peer_msg *msg)
{
    switch (msg->type) {
    case SR_MSG_MAP:
        return msg->n_entries * SR_MAP_ENTRY_BYTES;
    case SR_MSG_WRITE:
    case SR_MSG_COPY:
    case SR_MSG_FORWARD:
        return msg->content == SR_CONTENT_DATA ? (uint32_t)msg->length_bytes : 0;
    case SR_MSG_HASH:
        return (uint32_t)(msg->length_bytes / SR_BLOCK_BYTES) * SR_DIGEST_BYTES;
    case SR_MSG_FETCHED: /* see check_fetched */
        return msg->error == SR_OK ? msg->payload_bytes : 0;
    case SR_MSG_FORWARDED: /* of a read: the core knows what it asked for */
        return msg->error == SR_OK ? msg->payload_bytes : 0;
    default:
        return 0;
    }
}

static const char *check_range(const struct sr_peer_msg *msg, uint64_t length_max_bytes)
{
    if (msg->length_bytes == 0)
        return "length_bytes: is zero";
    if (msg->length_bytes > length_max_bytes)
        return "length_bytes: more than this message may carry";
    if (!sr_range_ok(msg->offset_bytes, msg->length_bytes, SR_VOLUME_MAX_BYTES))
        return "offset_bytes: range ends beyond the largest volume";
    return NULL;
}

/* Resync goes by whole blocks. */
static const char *check_run(const struct sr_peer_msg *msg)
{
    if (msg->offset_bytes % SR_BLOCK_BYTES != 0)
        return "offset_bytes: not at a block";
    if (msg->length_bytes % SR_BLOCK_BYTES != 0)
        return "length_bytes: not whole blocks";
    return check_range(msg, SR_FRAME_RUN_MAX_BYTES);
}

static const char *check_write(const struct sr_peer_msg *msg)
{
    if (msg->content != SR_CONTENT_DATA && msg->content != SR_CONTENT_ZERO && msg->content != SR_CONTENT_TRIM)
        return "content: unknown number";
    return check_range(msg, msg->content == SR_CONTENT_DATA ? SR_IO_MAX_BYTES : SR_FRAME_RANGE_MAX_BYTES);
}

/* A host's request, which may be longer than a piece of it. */
static const char *check_forward(const struct sr_peer_msg *msg)
{
    bool by_content = msg->content == SR_CONTENT_DATA || msg->content == SR_CONTENT_READ;

    if (msg->content > SR_CONTENT_READ)
        return "content: unknown number";
    return check_range(msg, by_content ? SR_IO_MAX_BYTES : SR_VOLUME_MAX_BYTES);
}

static const char *check_copy(const struct sr_peer_msg *msg)
{
    if (msg->content != SR_CONTENT_DATA && msg->content != SR_CONTENT_ZERO)
        return "content: a copy is data or zero";
    return check_run(msg);
}

/* An answer repeats the range of its question, or leaves it out; the core goes by id. */
static const char *check_answer(const struct sr_peer_msg *msg)
{
    if (msg->length_bytes > SR_FRAME_RANGE_MAX_BYTES)
        return "length_bytes: more than any question had";
    if (!sr_range_ok(msg->offset_bytes, msg->length_bytes, SR_VOLUME_MAX_BYTES))
        return "offset_bytes: range ends beyond the largest volume";
    return NULL;
}

/* The data that was asked for: its length may be left out of the header, as that of any answer. */
static const char *check_fetched(const struct sr_peer_msg *msg)
{
    if (msg->error == SR_OK && msg->payload_bytes == 0)
        return "payload_len: no data";
    if (msg->error == SR_OK && msg->length_bytes != 0 && msg->payload_bytes != msg->length_bytes)
        return "payload_len: does not match the header";
    return check_answer(msg);
}

static const char *check_start(const struct sr_peer_msg *msg)
{
    if (sr_uuid_is_none(&msg->lineage.gen))
        return "gen: missing";
    if (msg->lineage.made_by > SR_MADE_FORCED)
        return "made_by: unknown number";
    return NULL;
}

static const char *check_complete(const struct sr_peer_msg *msg)
{
    if (msg->lineage.n_ancestors > SR_ANCESTORS_MAX)
        return "ancestors: more than 64";
    for (uint32_t i = 0; i < msg->lineage.n_ancestors; i++)
        if (sr_uuid_is_none(&msg->lineage.ancestors[i]))
            return "ancestors: one is none";
    return NULL;
}

static const char *check_fields(const struct sr_peer_msg *msg)
{
    const char *why = "record: invalid";

    switch (msg->type) {
    case SR_MSG_HELLO:
    case SR_MSG_PROBED:
        return sr_record_valid(&msg->greeting.record, &why) ? NULL : why;
    case SR_MSG_MAP:
        return msg->n_entries > SR_MAP_ENTRIES_MAX ? "n_entries: more than 4096" : NULL;
    case SR_MSG_START:
        return check_start(msg);
    case SR_MSG_WRITE:
        return check_write(msg);
    case SR_MSG_COPY:
        return check_copy(msg);
    case SR_MSG_HASH:
        return check_run(msg);
    case SR_MSG_FETCH:
        return check_range(msg, SR_IO_MAX_BYTES);
    case SR_MSG_FETCHED:
        return check_fetched(msg);
    case SR_MSG_WRITTEN:
    case SR_MSG_COPIED:
    case SR_MSG_HASHED:
    case SR_MSG_FLUSH:
    case SR_MSG_FLUSHED:
        return check_answer(msg);
    case SR_MSG_FORWARD:
        return check_forward(msg);
    case SR_MSG_FORWARDED:
        return msg->payload_bytes > SR_IO_MAX_BYTES ? "payload_len: more than any question had" : NULL;
    case SR_MSG_COMPLETE:
        return check_complete(msg);
    case SR_MSG_BYE:
    case SR_MSG_STARTED:
    case SR_MSG_COMPLETED:
    case SR_MSG_PREPARE:
    case SR_MSG_READY:
    case SR_MSG_TAKE:
    case SR_MSG_TAKEN:
    case SR_MSG_PROBE:
        return NULL;
    }
    return "type: unknown number";
}

const char *sr_frame_msg_check(const struct sr_peer_msg *msg)
{
    const char *wrong = check_fields(msg);

    if (wrong)
        return wrong;
    if (msg->payload_bytes != sr_frame_msg_payload_bytes(msg))
        return "payload_len: does not match the header";
    return NULL;
}

/* ---- encoding ----------------------------------------------------------------------------------------- */

static void give_record(Syncrep__Peer__Record *to, const struct sr_record *from)
{
    syncrep__peer__record__init(to);
    to->role = from->role;
    to->gen = sr_frame_give_uuid(&from->gen);
    to->made_by = from->made_by;
    to->base_kind = from->base_kind;
    to->base_gen = sr_frame_give_uuid(&from->base);
    to->ancestors.len = (size_t)from->n_ancestors * SR_UUID_BYTES;
    to->ancestors.data = (uint8_t *)from->ancestors[0].b;
    to->consistent = from->consistent;
    to->failed = from->failed;
    to->completing = from->completing;
    to->handover = from->handover;
    to->discard = from->discard;
    to->discard_mine = sr_frame_give_uuid(&from->discard_mine);
    to->discard_peer = sr_frame_give_uuid(&from->discard_peer);
    to->paused = from->paused;
    to->pause_counter = from->pause_counter;
    to->gen_wall_ms = from->gen_wall_ms;
    to->synced_wall_ms = from->synced_wall_ms;
    to->failed_volume = sr_frame_give_uuid(&from->failed_volume);
}

/* Packs the protobuf message m into out and answers its length. */
static size_t pack(const ProtobufCMessage *m, uint8_t *out, size_t capacity)
{
    SR_ASSERT(protobuf_c_message_get_packed_size(m) <= capacity);
    return protobuf_c_message_pack(m, out);
}

/* What all messages have in common. */
#define PB_BEGIN(m, init)                                                                                            \
    init(&(m));                                                                                                      \
    (m).collection = sr_frame_give_uuid(collection);                                                                 \
    (m).session = msg->session

static size_t pack_hello(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out,
                         size_t capacity)
{
    Syncrep__Peer__Hello m;
    Syncrep__Peer__Record record;

    PB_BEGIN(m, syncrep__peer__hello__init);
    give_record(&record, &msg->greeting.record);
    m.record = &record;
    m.map_empty = msg->greeting.map_empty;
    m.dirty_blocks = msg->greeting.dirty_blocks;
    m.id = msg->id;
    m.boot = sr_frame_give_uuid(&msg->greeting.boot);
    m.flushes = msg->greeting.flushes;
    return pack(&m.base, out, capacity);
}

static size_t pack_io(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out, size_t capacity)
{
    Syncrep__Peer__Io m;

    PB_BEGIN(m, syncrep__peer__io__init);
    m.id = msg->id;
    m.volume = msg->volume;
    m.offset_bytes = msg->offset_bytes;
    m.length_bytes = msg->length_bytes;
    m.content = msg->content;
    m.may_trim = msg->may_trim;
    m.cached = msg->cached;
    m.fua = msg->fua;
    return pack(&m.base, out, capacity);
}

static size_t pack_io_done(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out,
                           size_t capacity)
{
    static const uint8_t no_bits[sizeof msg->differs];
    Syncrep__Peer__IoDone m;

    PB_BEGIN(m, syncrep__peer__io_done__init);
    m.id = msg->id;
    m.volume = msg->volume;
    m.offset_bytes = msg->offset_bytes;
    m.length_bytes = msg->length_bytes;
    m.error = msg->error;
    if (msg->type == SR_MSG_HASHED && memcmp(msg->differs, no_bits, sizeof no_bits) != 0) {
        m.differs.len = sizeof msg->differs;
        m.differs.data = (uint8_t *)msg->differs;
    }
    return pack(&m.base, out, capacity);
}

static size_t pack_map(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out, size_t capacity)
{
    Syncrep__Peer__Map m;

    PB_BEGIN(m, syncrep__peer__map__init);
    m.last = msg->last;
    m.n_entries = msg->n_entries;
    m.everything = msg->everything;
    return pack(&m.base, out, capacity);
}

static size_t pack_start(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out,
                         size_t capacity)
{
    Syncrep__Peer__Start m;

    PB_BEGIN(m, syncrep__peer__start__init);
    m.gen = sr_frame_give_uuid(&msg->lineage.gen);
    m.made_by = msg->lineage.made_by;
    m.paused = msg->lineage.paused;
    m.pause_counter = msg->lineage.pause_counter;
    m.gen_wall_ms = msg->lineage.gen_wall_ms;
    return pack(&m.base, out, capacity);
}

static size_t pack_complete(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out,
                            size_t capacity)
{
    Syncrep__Peer__Complete m;

    PB_BEGIN(m, syncrep__peer__complete__init);
    m.ancestors.len = (size_t)msg->lineage.n_ancestors * SR_UUID_BYTES;
    m.ancestors.data = (uint8_t *)msg->lineage.ancestors[0].b;
    return pack(&m.base, out, capacity);
}

static size_t pack_bye(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out, size_t capacity)
{
    Syncrep__Peer__Bye m;

    PB_BEGIN(m, syncrep__peer__bye__init);
    m.cause = msg->cause;
    return pack(&m.base, out, capacity);
}

static size_t pack_started(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out,
                           size_t capacity)
{
    Syncrep__Peer__Started m;

    PB_BEGIN(m, syncrep__peer__started__init);
    return pack(&m.base, out, capacity);
}

static size_t pack_completed(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out,
                             size_t capacity)
{
    Syncrep__Peer__Completed m;

    PB_BEGIN(m, syncrep__peer__completed__init);
    m.error = msg->error;
    return pack(&m.base, out, capacity);
}

static size_t pack_role(const struct sr_uuid *collection, const struct sr_peer_msg *msg, uint8_t *out,
                        size_t capacity)
{
    Syncrep__Peer__Role m;

    PB_BEGIN(m, syncrep__peer__role__init);
    m.id = msg->id;
    m.error = msg->error;
    m.n_forwards = msg->n_forwards;
    return pack(&m.base, out, capacity);
}

size_t sr_frame_encode_msg(uint8_t *out, size_t capacity, uint16_t version, const struct sr_uuid *collection,
                           const struct sr_peer_msg *msg)
{
    size_t (*pack_fn)(const struct sr_uuid *, const struct sr_peer_msg *, uint8_t *, size_t) = NULL;
    uint32_t payload_crc = 0;
    size_t header_bytes;

    SR_ASSERT(!sr_uuid_is_none(collection) && capacity > SR_FRAME_FIXED_BYTES);
    SR_ASSERT(sr_frame_msg_check(msg) == NULL);
    switch (msg->type) {
    case SR_MSG_HELLO:
    case SR_MSG_PROBED:
        pack_fn = pack_hello;
        break;
    case SR_MSG_BYE:
        pack_fn = pack_bye;
        break;
    case SR_MSG_MAP:
        pack_fn = pack_map;
        break;
    case SR_MSG_START:
        pack_fn = pack_start;
        break;
    case SR_MSG_STARTED:
        pack_fn = pack_started;
        break;
    case SR_MSG_WRITE:
    case SR_MSG_COPY:
    case SR_MSG_HASH:
    case SR_MSG_FETCH:
    case SR_MSG_FLUSH:
    case SR_MSG_FORWARD:
        pack_fn = pack_io;
        break;
    case SR_MSG_WRITTEN:
    case SR_MSG_COPIED:
    case SR_MSG_HASHED:
    case SR_MSG_FETCHED:
    case SR_MSG_FLUSHED:
    case SR_MSG_FORWARDED:
        pack_fn = pack_io_done;
        break;
    case SR_MSG_COMPLETE:
        pack_fn = pack_complete;
        break;
    case SR_MSG_COMPLETED:
        pack_fn = pack_completed;
        break;
    case SR_MSG_PREPARE:
    case SR_MSG_READY:
    case SR_MSG_TAKE:
    case SR_MSG_TAKEN:
    case SR_MSG_PROBE:
        pack_fn = pack_role;
        break;
    }
    header_bytes = pack_fn(collection, msg, out + SR_FRAME_FIXED_BYTES, capacity - SR_FRAME_FIXED_BYTES);
    if (msg->payload_bytes) {
        SR_ASSERT(msg->payload && msg->payload->capacity >= (size_t)msg->payload_offset + msg->payload_bytes);
        payload_crc = sr_crc32c(0, msg->payload->data + msg->payload_offset, msg->payload_bytes);
    }
    return sr_frame_seal(out, version, (uint16_t)msg->type, header_bytes, msg->payload_bytes, payload_crc);
}

/* ---- decoding ----------------------------------------------------------------------------------------- */

static const char *take_ancestors(const ProtobufCBinaryData *from, struct sr_record *to)
{
    if (from->len % SR_UUID_BYTES != 0)
        return "ancestors: not a multiple of 16 bytes";
    if (from->len > SR_ANCESTORS_MAX * SR_UUID_BYTES)
        return "ancestors: more than 64";
    to->n_ancestors = (uint32_t)(from->len / SR_UUID_BYTES);
    if (from->len)
        memcpy(to->ancestors, from->data, from->len);
    return NULL;
}

static const char *take_record(const Syncrep__Peer__Record *from, struct sr_record *to)
{
    if (from->role > SR_ROLE_ACTIVE)
        return "role: unknown number";
    if (from->made_by > SR_MADE_FORCED)
        return "made_by: unknown number";
    if (from->base_kind > SR_BASE_UNKNOWN)
        return "base_kind: unknown number";
    if (!sr_frame_take_uuid(&from->gen, &to->gen))
        return "gen: not 16 bytes";
    if (!sr_frame_take_uuid(&from->base_gen, &to->base))
        return "base_gen: not 16 bytes";
    if (!sr_frame_take_uuid(&from->discard_mine, &to->discard_mine))
        return "discard_mine: not 16 bytes";
    if (!sr_frame_take_uuid(&from->discard_peer, &to->discard_peer))
        return "discard_peer: not 16 bytes";
    if (!sr_frame_take_uuid(&from->failed_volume, &to->failed_volume))
        return "failed_volume: not 16 bytes";
    to->role = (enum sr_role)from->role;
    to->made_by = (enum sr_made_by)from->made_by;
    to->base_kind = (enum sr_base_kind)from->base_kind;
    to->consistent = from->consistent;
    to->failed = from->failed;
    to->completing = from->completing;
    to->handover = from->handover;
    to->discard = from->discard;
    to->paused = from->paused;
    to->pause_counter = from->pause_counter;
    to->gen_wall_ms = from->gen_wall_ms;
    to->synced_wall_ms = from->synced_wall_ms;
    return take_ancestors(&from->ancestors, to);
}

static const char *take_hello(const void *from, struct sr_peer_msg *msg)
{
    const Syncrep__Peer__Hello *m = from;

    if (!m->record)
        return "record: missing";
    msg->id = m->id;
    msg->greeting.map_empty = m->map_empty;
    msg->greeting.dirty_blocks = m->dirty_blocks;
    msg->greeting.flushes = m->flushes;
    if (!sr_frame_take_uuid(&m->boot, &msg->greeting.boot))
        return "boot: not 16 bytes";
    return take_record(m->record, &msg->greeting.record);
}

static const char *take_bye(const void *from, struct sr_peer_msg *msg)
{
    const Syncrep__Peer__Bye *m = from;

    msg->cause = m->cause;
    return NULL;
}

static const char *take_map(const void *from, struct sr_peer_msg *msg)
{
    const Syncrep__Peer__Map *m = from;

    msg->last = m->last;
    msg->n_entries = m->n_entries;
    msg->everything = m->everything;
    return NULL;
}

static const char *take_start(const void *from, struct sr_peer_msg *msg)
{
    const Syncrep__Peer__Start *m = from;

    if (m->made_by > SR_MADE_FORCED)
        return "made_by: unknown number";
    msg->lineage.made_by = (enum sr_made_by)m->made_by;
    msg->lineage.paused = m->paused;
    msg->lineage.pause_counter = m->pause_counter;
    msg->lineage.gen_wall_ms = m->gen_wall_ms;
    return sr_frame_take_uuid(&m->gen, &msg->lineage.gen) ? NULL : "gen: not 16 bytes";
}

static const char *take_nothing(const void *from, struct sr_peer_msg *msg)
{
    (void)from;
    (void)msg;
    return NULL;
}

static const char *take_io(const void *from, struct sr_peer_msg *msg)
{
    const Syncrep__Peer__Io *m = from;

    if (m->content > SR_CONTENT_READ)
        return "content: unknown number";
    msg->id = m->id;
    msg->volume = m->volume;
    msg->offset_bytes = m->offset_bytes;
    msg->length_bytes = m->length_bytes;
    msg->content = (enum sr_content)m->content;
    msg->may_trim = m->may_trim;
    msg->cached = m->cached;
    msg->fua = m->fua;
    return NULL;
}

static const char *take_io_done(const void *from, struct sr_peer_msg *msg)
{
    const Syncrep__Peer__IoDone *m = from;

    if (m->differs.len != 0 && (msg->type != SR_MSG_HASHED || m->differs.len != sizeof msg->differs))
        return "differs: not 32 bytes of a HASHED";
    if (m->differs.len)
        memcpy(msg->differs, m->differs.data, sizeof msg->differs);
    msg->id = m->id;
    msg->volume = m->volume;
    msg->offset_bytes = m->offset_bytes;
    msg->length_bytes = m->length_bytes;
    msg->error = sr_error_from_wire(m->error);
    return NULL;
}

static const char *take_complete(const void *from, struct sr_peer_msg *msg)
{
    const Syncrep__Peer__Complete *m = from;

    return take_ancestors(&m->ancestors, &msg->lineage);
}

static const char *take_completed(const void *from, struct sr_peer_msg *msg)
{
    const Syncrep__Peer__Completed *m = from;

    msg->error = sr_error_from_wire(m->error);
    return NULL;
}

static const char *take_role(const void *from, struct sr_peer_msg *msg)
{
    const Syncrep__Peer__Role *m = from;

    msg->id = m->id;
    msg->error = sr_error_from_wire(m->error);
    msg->n_forwards = m->n_forwards;
    return NULL;
}

/* Every message of a collection begins alike. */
struct pb_common {
    ProtobufCMessage base;
    ProtobufCBinaryData collection;
    uint64_t session;
};

#define PB_COMMON(type)                                                                                              \
    _Static_assert(offsetof(type, collection) == offsetof(struct pb_common, collection) &&                           \
                       offsetof(type, session) == offsetof(struct pb_common, session),                               \
                   "collection and session come first")
PB_COMMON(Syncrep__Peer__Hello);
PB_COMMON(Syncrep__Peer__Bye);
PB_COMMON(Syncrep__Peer__Map);
PB_COMMON(Syncrep__Peer__Start);
PB_COMMON(Syncrep__Peer__Started);
PB_COMMON(Syncrep__Peer__Io);
PB_COMMON(Syncrep__Peer__IoDone);
PB_COMMON(Syncrep__Peer__Complete);
PB_COMMON(Syncrep__Peer__Completed);
PB_COMMON(Syncrep__Peer__Role);

struct decoder {
    uint16_t type;
    const ProtobufCMessageDescriptor *descriptor;
    const char *(*take)(const void *from, struct sr_peer_msg *msg);
};

static const struct decoder decoders[] = {
    {SR_MSG_HELLO, &syncrep__peer__hello__descriptor, take_hello},
    {SR_MSG_BYE, &syncrep__peer__bye__descriptor, take_bye},
    {SR_MSG_MAP, &syncrep__peer__map__descriptor, take_map},
    {SR_MSG_START, &syncrep__peer__start__descriptor, take_start},
    {SR_MSG_STARTED, &syncrep__peer__started__descriptor, take_nothing},
    {SR_MSG_WRITE, &syncrep__peer__io__descriptor, take_io},
    {SR_MSG_WRITTEN, &syncrep__peer__io_done__descriptor, take_io_done},
    {SR_MSG_COPY, &syncrep__peer__io__descriptor, take_io},
    {SR_MSG_COPIED, &syncrep__peer__io_done__descriptor, take_io_done},
    {SR_MSG_HASH, &syncrep__peer__io__descriptor, take_io},
    {SR_MSG_HASHED, &syncrep__peer__io_done__descriptor, take_io_done},
    {SR_MSG_FETCH, &syncrep__peer__io__descriptor, take_io},
    {SR_MSG_FETCHED, &syncrep__peer__io_done__descriptor, take_io_done},
    {SR_MSG_COMPLETE, &syncrep__peer__complete__descriptor, take_complete},
    {SR_MSG_COMPLETED, &syncrep__peer__completed__descriptor, take_completed},
    {SR_MSG_FLUSH, &syncrep__peer__io__descriptor, take_io},
    {SR_MSG_FLUSHED, &syncrep__peer__io_done__descriptor, take_io_done},
    {SR_MSG_PREPARE, &syncrep__peer__role__descriptor, take_role},
    {SR_MSG_READY, &syncrep__peer__role__descriptor, take_role},
    {SR_MSG_TAKE, &syncrep__peer__role__descriptor, take_role},
    {SR_MSG_TAKEN, &syncrep__peer__role__descriptor, take_role},
    {SR_MSG_FORWARD, &syncrep__peer__io__descriptor, take_io},
    {SR_MSG_FORWARDED, &syncrep__peer__io_done__descriptor, take_io_done},
    {SR_MSG_PROBE, &syncrep__peer__role__descriptor, take_role},
    {SR_MSG_PROBED, &syncrep__peer__hello__descriptor, take_hello},
};

#define COUNT_ONE(name, number) +1
_Static_assert(sizeof decoders / sizeof decoders[0] == 0 SR_PEER_MSGS(COUNT_ONE), "a decoder for each message");
#undef COUNT_ONE

static enum sr_error take(const struct decoder *decoder, const struct pb_common *m,
                          const struct sr_frame_fixed *fixed, struct sr_frame *frame, const char **wrong)
{
    struct sr_peer_msg *msg;

    if (!sr_frame_take_uuid(&m->collection, &frame->collection) || sr_uuid_is_none(&frame->collection)) {
        *wrong = "collection: not 16 bytes, or none";
        return SR_E_PROTOCOL;
    }
    msg = frame->msg = sr_peer_msg_new((enum sr_peer_msg_type)fixed->type, m->session);
    if (!msg) {
        *wrong = "no memory";
        return SR_E_NO_MEMORY;
    }
    *wrong = decoder->take(m, msg);
    if (*wrong)
        return SR_E_PROTOCOL;
    msg->payload_bytes = fixed->payload_bytes;
    *wrong = sr_frame_msg_check(msg);
    return *wrong ? SR_E_PROTOCOL : SR_OK;
}

enum sr_error sr_frame_unpack_msg(const struct sr_frame_fixed *fixed, const uint8_t *header,
                                  ProtobufCAllocator *memory, struct sr_frame *frame, const char **wrong)
{
    const struct decoder *decoder = decoders;
    ProtobufCMessage *m;
    enum sr_error error;

    while (decoder->type != fixed->type)
        decoder++;
    m = protobuf_c_message_unpack(decoder->descriptor, memory, fixed->header_bytes, header);
    if (!m) {
        *wrong = "protobuf header: malformed, or asks for too much memory";
        return SR_E_PROTOCOL;
    }
    error = take(decoder, (const struct pb_common *)m, fixed, frame, wrong);
    protobuf_c_message_free_unpacked(m, memory);
    return error;
}
