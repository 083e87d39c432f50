/* refuse.c - what a peer must not send is refused, with a text that names the field, and never asserted on. */
#include <endian.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "peer.pb-c.h"
#include "samples.h"

static uint8_t frame_bytes[SR_FRAME_FIXED_BYTES + SR_FRAME_HEADER_MAX_BYTES + 8];
static char text[SR_FRAME_TEXT_BYTES];

/* Signs what is in frame_bytes, as an evil peer would. */
static void sign(void)
{
    struct sr_frame_wire wire;
    uint32_t crc;

    memcpy(&wire, frame_bytes, sizeof wire);
    wire.header_crc = 0;
    wire.payload_crc = 0;
    crc = sr_crc32c(0, &wire, sizeof wire);
    crc = htole32(sr_crc32c(crc, frame_bytes + sizeof wire, le32toh(wire.header_bytes)));
    memcpy(frame_bytes + offsetof(struct sr_frame_wire, header_crc), &crc, sizeof crc);
}

static enum sr_error decode(void)
{
    struct sr_frame_fixed fixed;
    struct sr_frame frame;
    enum sr_error error;

    text[0] = '\0';
    error = sr_frame_fixed_decode(frame_bytes, &fixed, text);
    if (error == SR_OK)
        error = sr_frame_header_decode(&fixed, frame_bytes + SR_FRAME_FIXED_BYTES, &frame, text);
    if (error == SR_OK)
        sr_frame_free(&frame);
    return error;
}

static void put(const ProtobufCMessage *m, uint16_t type, uint32_t payload_bytes)
{
    struct sr_frame_wire wire = {.magic = "SRP1",
                                 .version = htole16(1),
                                 .type = htole16(type),
                                 .header_bytes = htole32((uint32_t)protobuf_c_message_get_packed_size(m)),
                                 .payload_bytes = htole32(payload_bytes)};

    assert_true(protobuf_c_message_get_packed_size(m) <= SR_FRAME_HEADER_MAX_BYTES);
    memcpy(frame_bytes, &wire, sizeof wire);
    protobuf_c_message_pack(m, frame_bytes + sizeof wire);
    sign();
}

static void refused(enum sr_error error, const char *field)
{
    enum sr_error got = decode();

    if (got != error || !strstr(text, field))
        fail_msg("expected %s naming \"%s\", got %s: %s", sr_error_name(error), field, sr_error_name(got), text);
}

static void put_sample(enum sr_peer_msg_type type)
{
    struct sr_uuid collection = sample_uuid(0xe0);
    struct sr_peer_msg *msg = sample_msg(type);

    sr_frame_encode_msg(frame_bytes, sizeof frame_bytes, 1, &collection, msg);
    sr_peer_msg_free(msg);
}

static void test_fixed_header(void **state)
{
    uint32_t large = htole32(SR_FRAME_PAYLOAD_MAX_BYTES + 1);

    (void)state;
    put_sample(SR_MSG_STARTED);
    assert_int_equal(decode(), SR_OK);
    frame_bytes[0] = 'X';
    refused(SR_E_PROTOCOL, "magic");
    put_sample(SR_MSG_STARTED);
    frame_bytes[31] = 1;
    refused(SR_E_PROTOCOL, "reserved");
    put_sample(SR_MSG_STARTED);
    memcpy(frame_bytes + 12, &large, 4);
    refused(SR_E_TOO_LARGE, "payload_len");
    large = htole32(SR_FRAME_HEADER_MAX_BYTES + 1);
    put_sample(SR_MSG_STARTED);
    memcpy(frame_bytes + 8, &large, 4);
    refused(SR_E_TOO_LARGE, "header_len");
    put_sample(SR_MSG_STARTED);
    frame_bytes[SR_FRAME_FIXED_BYTES + 3] ^= 1;
    refused(SR_E_CORRUPT, "checksum");
    put_sample(SR_MSG_STARTED);
    frame_bytes[6] = 15;
    sign();
    refused(SR_E_UNSUPPORTED, "type");
    put_sample(SR_MSG_STARTED);
    frame_bytes[7] = 0x80;
    sign();
    assert_int_equal(decode(), SR_OK); /* optional: skipped */
}

static void test_payload_checksum(void **state)
{
    struct sr_uuid collection = sample_uuid(0xe0);
    struct sr_peer_msg *msg = sample_msg(SR_MSG_WRITE);
    struct sr_frame_fixed fixed;
    struct sr_frame frame;

    (void)state;
    sr_frame_encode_msg(frame_bytes, sizeof frame_bytes, 1, &collection, msg);
    assert_int_equal(sr_frame_fixed_decode(frame_bytes, &fixed, text), SR_OK);
    assert_int_equal(sr_frame_header_decode(&fixed, frame_bytes + SR_FRAME_FIXED_BYTES, &frame, text), SR_OK);
    msg->payload->data[100] ^= 1;
    assert_int_equal(sr_frame_payload_attach(&fixed, &frame, msg->payload, text), SR_E_CORRUPT);
    assert_null(frame.msg->payload);
    assert_int_equal(msg->payload->refs, 1);
    sr_frame_free(&frame);
    sr_peer_msg_free(msg);
}

static struct sr_uuid collection_id;

static void io_base(Syncrep__Peer__Io *m)
{
    collection_id = sample_uuid(0xe0);
    syncrep__peer__io__init(m);
    m->collection.len = 16;
    m->collection.data = collection_id.b;
    m->length_bytes = SR_BLOCK_BYTES;
}

static void test_io_fields(void **state)
{
    Syncrep__Peer__Io m;

    (void)state;
    io_base(&m);
    put(&m.base, SR_MSG_WRITE, SR_BLOCK_BYTES);
    assert_int_equal(decode(), SR_OK);
    put(&m.base, SR_MSG_WRITE, SR_BLOCK_BYTES - 1);
    refused(SR_E_PROTOCOL, "payload_len");
    put(&m.base, SR_MSG_FETCH, 1);
    refused(SR_E_PROTOCOL, "payload_len");
    m.collection.len = 15;
    put(&m.base, SR_MSG_WRITE, SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "collection");
    m.collection.len = 0;
    put(&m.base, SR_MSG_WRITE, SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "collection");
    io_base(&m);
    m.content = 3;
    put(&m.base, SR_MSG_WRITE, 0);
    refused(SR_E_PROTOCOL, "content");
    m.content = SR_CONTENT_TRIM;
    put(&m.base, SR_MSG_COPY, 0);
    refused(SR_E_PROTOCOL, "content");
    io_base(&m);
    m.length_bytes = 0;
    put(&m.base, SR_MSG_WRITE, 0);
    refused(SR_E_PROTOCOL, "length_bytes");
    m.length_bytes = UINT64_MAX;
    m.content = SR_CONTENT_ZERO;
    put(&m.base, SR_MSG_WRITE, 0);
    refused(SR_E_PROTOCOL, "length_bytes");
    m.length_bytes = UINT64_C(1) << 32; /* as 32 bits it would be 0 */
    m.content = SR_CONTENT_DATA;
    put(&m.base, SR_MSG_WRITE, 0);
    refused(SR_E_PROTOCOL, "length_bytes");
    io_base(&m);
    m.offset_bytes = UINT64_MAX - 100;
    put(&m.base, SR_MSG_WRITE, SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "offset_bytes");
    m.offset_bytes = SR_VOLUME_MAX_BYTES - SR_BLOCK_BYTES + 1;
    put(&m.base, SR_MSG_WRITE, SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "offset_bytes");
    m.offset_bytes = 1;
    put(&m.base, SR_MSG_COPY, SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "offset_bytes");
    io_base(&m);
    m.length_bytes = (SR_RUN_MAX_BLOCKS + 1) * SR_BLOCK_BYTES;
    put(&m.base, SR_MSG_COPY, (uint32_t)m.length_bytes);
    refused(SR_E_PROTOCOL, "length_bytes");
    put(&m.base, SR_MSG_HASH, (SR_RUN_MAX_BLOCKS + 1) * SR_DIGEST_BYTES);
    refused(SR_E_PROTOCOL, "length_bytes");
}

static void test_fetched_data(void **state)
{
    Syncrep__Peer__IoDone m = SYNCREP__PEER__IO_DONE__INIT;

    (void)state;
    collection_id = sample_uuid(0xe0);
    m.collection.len = 16;
    m.collection.data = collection_id.b;
    put(&m.base, SR_MSG_FETCHED, SR_BLOCK_BYTES); /* without its range */
    assert_int_equal(decode(), SR_OK);
    put(&m.base, SR_MSG_FETCHED, 0);
    refused(SR_E_PROTOCOL, "payload_len");
    m.length_bytes = SR_BLOCK_BYTES;
    put(&m.base, SR_MSG_FETCHED, SR_BLOCK_BYTES);
    assert_int_equal(decode(), SR_OK);
    put(&m.base, SR_MSG_FETCHED, 2 * SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "payload_len");
    m.length_bytes = UINT64_MAX;
    put(&m.base, SR_MSG_FETCHED, SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "payload_len");
    m.length_bytes = 0;
    m.error = SR_E_IO;
    put(&m.base, SR_MSG_FETCHED, 0);
    assert_int_equal(decode(), SR_OK);
    put(&m.base, SR_MSG_FETCHED, SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "payload_len");
    put(&m.base, SR_MSG_WRITTEN, SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "payload_len");
}

/* A host's request, whole: longer than a WRITE where it has no data. */
static void test_forward_fields(void **state)
{
    Syncrep__Peer__Io m;

    (void)state;
    io_base(&m);
    put(&m.base, SR_MSG_FORWARD, SR_BLOCK_BYTES);
    assert_int_equal(decode(), SR_OK);
    put(&m.base, SR_MSG_FORWARD, 0);
    refused(SR_E_PROTOCOL, "payload_len");
    m.content = SR_CONTENT_READ;
    put(&m.base, SR_MSG_FORWARD, 0);
    assert_int_equal(decode(), SR_OK);
    put(&m.base, SR_MSG_FORWARD, SR_BLOCK_BYTES);
    refused(SR_E_PROTOCOL, "payload_len");
    put(&m.base, SR_MSG_WRITE, 0); /* of a FORWARD only */
    refused(SR_E_PROTOCOL, "content");
    m.content = SR_CONTENT_READ + 1;
    put(&m.base, SR_MSG_FORWARD, 0);
    refused(SR_E_PROTOCOL, "content");
    m.content = SR_CONTENT_READ;
    m.length_bytes = SR_IO_MAX_BYTES + 1;
    put(&m.base, SR_MSG_FORWARD, 0);
    refused(SR_E_PROTOCOL, "length_bytes");
    m.content = SR_CONTENT_TRIM;
    m.length_bytes = SR_VOLUME_MAX_BYTES;
    put(&m.base, SR_MSG_FORWARD, 0);
    assert_int_equal(decode(), SR_OK);
    m.offset_bytes = 1;
    put(&m.base, SR_MSG_FORWARD, 0);
    refused(SR_E_PROTOCOL, "offset_bytes");
    m.offset_bytes = 0;
    m.length_bytes = 0;
    put(&m.base, SR_MSG_FORWARD, 0);
    refused(SR_E_PROTOCOL, "length_bytes");
}

static void test_forwarded_data(void **state)
{
    Syncrep__Peer__IoDone m = SYNCREP__PEER__IO_DONE__INIT;

    (void)state;
    collection_id = sample_uuid(0xe0);
    m.collection.len = 16;
    m.collection.data = collection_id.b;
    put(&m.base, SR_MSG_FORWARDED, 0); /* of a write */
    assert_int_equal(decode(), SR_OK);
    put(&m.base, SR_MSG_FORWARDED, 512); /* of a read */
    assert_int_equal(decode(), SR_OK);
    m.error = SR_E_IO;
    put(&m.base, SR_MSG_FORWARDED, 512);
    refused(SR_E_PROTOCOL, "payload_len");
}

static void test_role_fields(void **state)
{
    static const enum sr_peer_msg_type types[] = {SR_MSG_PREPARE, SR_MSG_READY, SR_MSG_TAKE, SR_MSG_TAKEN,
                                                  SR_MSG_PROBE};
    Syncrep__Peer__Role m = SYNCREP__PEER__ROLE__INIT;
    Syncrep__Peer__Hello probed = SYNCREP__PEER__HELLO__INIT;
    struct sr_frame_fixed fixed;
    struct sr_frame frame;

    (void)state;
    collection_id = sample_uuid(0xe0);
    m.collection.data = probed.collection.data = collection_id.b;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        m.collection.len = 16;
        put(&m.base, types[i], 0);
        assert_int_equal(decode(), SR_OK);
        put(&m.base, types[i], 1);
        refused(SR_E_PROTOCOL, "payload_len");
        m.collection.len = 0;
        put(&m.base, types[i], 0);
        refused(SR_E_PROTOCOL, "collection");
    }
    m.collection.len = probed.collection.len = 16;
    put(&probed.base, SR_MSG_PROBED, 0);
    refused(SR_E_PROTOCOL, "record");
    m.error = 4711; /* of a later version: an error all the same */
    put(&m.base, SR_MSG_READY, 0);
    assert_int_equal(sr_frame_fixed_decode(frame_bytes, &fixed, text), SR_OK);
    assert_int_equal(sr_frame_header_decode(&fixed, frame_bytes + SR_FRAME_FIXED_BYTES, &frame, text), SR_OK);
    assert_int_equal(frame.msg->error, SR_E_UNKNOWN);
    sr_frame_free(&frame);
}

static void test_map_entries(void **state)
{
    Syncrep__Peer__Map m = SYNCREP__PEER__MAP__INIT;

    (void)state;
    collection_id = sample_uuid(0xe0);
    m.collection.len = 16;
    m.collection.data = collection_id.b;
    m.n_entries = 2;
    put(&m.base, SR_MSG_MAP, 2 * SR_MAP_ENTRY_BYTES);
    assert_int_equal(decode(), SR_OK);
    put(&m.base, SR_MSG_MAP, 2 * SR_MAP_ENTRY_BYTES + 1);
    refused(SR_E_PROTOCOL, "payload_len");
    m.n_entries = SR_MAP_ENTRIES_MAX + 1;
    put(&m.base, SR_MSG_MAP, (SR_MAP_ENTRIES_MAX + 1) * SR_MAP_ENTRY_BYTES);
    refused(SR_E_PROTOCOL, "n_entries");
    m.n_entries = 0x1e1e1e20; /* times 136 wraps to a small number */
    put(&m.base, SR_MSG_MAP, m.n_entries * SR_MAP_ENTRY_BYTES & 0xffffff);
    refused(SR_E_PROTOCOL, "n_entries");
}

static void test_record_fields(void **state)
{
    static uint8_t bytes[65 * 16];
    Syncrep__Peer__Hello m = SYNCREP__PEER__HELLO__INIT;
    Syncrep__Peer__Record record = SYNCREP__PEER__RECORD__INIT;

    (void)state;
    memset(bytes, 7, sizeof bytes);
    m.collection.len = 16;
    m.collection.data = bytes;
    put(&m.base, SR_MSG_HELLO, 0);
    refused(SR_E_PROTOCOL, "record");
    m.record = &record;
    record.role = 2;
    put(&m.base, SR_MSG_HELLO, 0);
    refused(SR_E_PROTOCOL, "role");
    record.role = 0;
    record.made_by = 4;
    put(&m.base, SR_MSG_HELLO, 0);
    refused(SR_E_PROTOCOL, "made_by");
    record.made_by = 0;
    record.base_kind = 3;
    put(&m.base, SR_MSG_HELLO, 0);
    refused(SR_E_PROTOCOL, "base_kind");
    record.base_kind = 0;
    record.gen.data = record.ancestors.data = bytes;
    record.gen.len = 17;
    put(&m.base, SR_MSG_HELLO, 0);
    refused(SR_E_PROTOCOL, "gen");
    record.gen.len = 16;
    record.ancestors.len = 65 * 16;
    put(&m.base, SR_MSG_HELLO, 0);
    refused(SR_E_PROTOCOL, "ancestors");
    record.ancestors.len = 17;
    put(&m.base, SR_MSG_HELLO, 0);
    refused(SR_E_PROTOCOL, "ancestors");
    record.ancestors.len = 0;
    record.base_gen.data = bytes; /* a base without its kind: sr_record_valid's to find */
    record.base_gen.len = 16;
    put(&m.base, SR_MSG_HELLO, 0);
    refused(SR_E_PROTOCOL, "base");
}

static void test_site_fields(void **state)
{
    static char long_name[300];
    Syncrep__Peer__SiteHello m = SYNCREP__PEER__SITE_HELLO__INIT;

    (void)state;
    collection_id = sample_uuid(0xe0);
    m.site.len = m.group.len = 16;
    m.site.data = m.group.data = collection_id.b;
    m.site_name = "a";
    m.version_min = m.version_max = 1;
    m.boot = 1;
    put(&m.base, SR_SITE_HELLO, 0);
    assert_int_equal(decode(), SR_OK);
    put(&m.base, SR_SITE_HELLO, 1);
    refused(SR_E_PROTOCOL, "payload_len");
    m.version_max = 0;
    put(&m.base, SR_SITE_HELLO, 0);
    refused(SR_E_PROTOCOL, "version");
    m.version_max = 65536;
    put(&m.base, SR_SITE_HELLO, 0);
    refused(SR_E_PROTOCOL, "version");
    m.version_max = 1;
    m.site.len = 0;
    put(&m.base, SR_SITE_HELLO, 0);
    refused(SR_E_PROTOCOL, "site");
    m.site.len = 16;
    m.site_name = "../evil";
    put(&m.base, SR_SITE_HELLO, 0);
    refused(SR_E_PROTOCOL, "site_name");
    memset(long_name, 'x', sizeof long_name - 1);
    m.site_name = long_name;
    put(&m.base, SR_SITE_HELLO, 0);
    refused(SR_E_PROTOCOL, "site_name");
}

static void test_texts_are_made_printable(void **state)
{
    Syncrep__Peer__SiteRefused m = SYNCREP__PEER__SITE_REFUSED__INIT;
    struct sr_frame_fixed fixed;
    struct sr_frame frame;

    (void)state;
    m.code = 4711;
    m.text = "line\nbreak \x1b[31m";
    put(&m.base, SR_SITE_REFUSED, 0);
    assert_int_equal(sr_frame_fixed_decode(frame_bytes, &fixed, text), SR_OK);
    assert_int_equal(sr_frame_header_decode(&fixed, frame_bytes + SR_FRAME_FIXED_BYTES, &frame, text), SR_OK);
    assert_string_equal(frame.site->refused.text, "line?break ?[31m");
    assert_int_equal(frame.site->refused.code, SR_E_UNKNOWN);
    sr_frame_free(&frame);
}

/* library-facts: 64 KiB of empty entries would ask protobuf-c for many times as much. */
static void test_memory_of_unpacking_is_bounded(void **state)
{
    struct sr_frame_wire wire = {.magic = "SRP1",
                                 .version = htole16(1),
                                 .type = htole16(SR_SITE_CATALOG),
                                 .header_bytes = htole32(SR_FRAME_HEADER_MAX_BYTES)};

    (void)state;
    memcpy(frame_bytes, &wire, sizeof wire);
    for (size_t i = 0; i < SR_FRAME_HEADER_MAX_BYTES; i += 2) {
        frame_bytes[sizeof wire + i] = 3 << 3 | 2; /* volumes: an empty one */
        frame_bytes[sizeof wire + i + 1] = 0;
    }
    sign();
    refused(SR_E_PROTOCOL, "too much memory");
}

/* Every byte of every sample damaged in turn, signed and not: no crash, and unsigned none gets through. */
static void test_damage(void **state)
{
    (void)state;
    for (unsigned t = 0; t < n_peer_types; t++) {
        struct sr_frame_fixed fixed;

        put_sample(all_peer_types[t]);
        assert_int_equal(sr_frame_fixed_decode(frame_bytes, &fixed, text), SR_OK);
        for (size_t i = 0; i < SR_FRAME_FIXED_BYTES + fixed.header_bytes; i++)
            for (int bit = 0; bit < 8; bit++) {
                frame_bytes[i] ^= (uint8_t)(1 << bit);
                if (i < 20 || i >= 24) /* the payload's checksum is compared with the payload */
                    assert_int_not_equal(decode(), SR_OK);
                if (i >= SR_FRAME_FIXED_BYTES) {
                    uint8_t kept[4];

                    memcpy(kept, frame_bytes + 16, 4);
                    sign();
                    (void)decode();
                    memcpy(frame_bytes + 16, kept, 4);
                }
                frame_bytes[i] ^= (uint8_t)(1 << bit);
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixed_header),
        cmocka_unit_test(test_payload_checksum),
        cmocka_unit_test(test_io_fields),
        cmocka_unit_test(test_fetched_data),
        cmocka_unit_test(test_forward_fields),
        cmocka_unit_test(test_forwarded_data),
        cmocka_unit_test(test_role_fields),
        cmocka_unit_test(test_map_entries),
        cmocka_unit_test(test_record_fields),
        cmocka_unit_test(test_site_fields),
        cmocka_unit_test(test_texts_are_made_printable),
        cmocka_unit_test(test_memory_of_unpacking_is_bounded),
        cmocka_unit_test(test_damage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
