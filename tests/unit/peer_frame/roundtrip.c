/* roundtrip.c - whatever is encoded is decoded to the same message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "samples.h"

#define ROUNDS 4000

static uint8_t frame_bytes[SR_FRAME_FIXED_BYTES + SR_FRAME_HEADER_MAX_BYTES];

static void check_msg(const struct sr_peer_msg *a, const struct sr_peer_msg *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->session, b->session);
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->volume, b->volume);
    assert_int_equal(a->offset_bytes, b->offset_bytes);
    assert_int_equal(a->length_bytes, b->length_bytes);
    assert_int_equal(a->content, b->content);
    assert_int_equal(a->may_trim, b->may_trim);
    assert_int_equal(a->cached, b->cached);
    assert_int_equal(a->fua, b->fua);
    assert_int_equal(a->error, b->error);
    assert_memory_equal(a->differs, b->differs, sizeof a->differs);
    assert_int_equal(a->cause, b->cause);
    assert_int_equal(a->last, b->last);
    assert_int_equal(a->n_entries, b->n_entries);
    assert_int_equal(a->everything, b->everything);
    assert_int_equal(a->payload_bytes, b->payload_bytes);
    assert_int_equal(a->n_forwards, b->n_forwards);
    if (a->type == SR_MSG_HELLO || a->type == SR_MSG_PROBED) {
        assert_int_equal(a->greeting.dirty_blocks, b->greeting.dirty_blocks);
        assert_memory_equal(&a->greeting.record, &b->greeting.record, sizeof a->greeting.record);
        assert_int_equal(a->greeting.map_empty, b->greeting.map_empty);
        assert_memory_equal(&a->greeting.boot, &b->greeting.boot, sizeof a->greeting.boot);
        assert_int_equal(a->greeting.flushes, b->greeting.flushes);
    } else if (a->type == SR_MSG_START || a->type == SR_MSG_COMPLETE) {
        assert_memory_equal(&a->lineage, &b->lineage, sizeof a->lineage);
    }
    if (a->payload_bytes)
        assert_memory_equal(a->payload->data + a->payload_offset, b->payload->data + b->payload_offset,
                            a->payload_bytes);
}

static void check_site(const struct sr_site_msg *a, const struct sr_site_msg *b)
{
    assert_int_equal(a->type, b->type);
    if (a->type != SR_SITE_CATALOG) {
        assert_memory_equal(a, b, sizeof *a);
        return;
    }
    assert_int_equal(a->catalog.part, b->catalog.part);
    assert_int_equal(a->catalog.last, b->catalog.last);
    assert_int_equal(a->catalog.n_volumes, b->catalog.n_volumes);
    assert_memory_equal(a->catalog.volumes, b->catalog.volumes, a->catalog.n_volumes * sizeof a->catalog.volumes[0]);
}

static void roundtrip(const struct sr_uuid *collection, const struct sr_peer_msg *msg, const struct sr_site_msg *site)
{
    char text[SR_FRAME_TEXT_BYTES];
    size_t bytes = encode_any(frame_bytes, sizeof frame_bytes, collection, msg, site);
    struct sr_frame_fixed fixed;
    struct sr_frame frame;

    assert_true(bytes >= SR_FRAME_FIXED_BYTES);
    assert_int_equal(sr_frame_fixed_decode(frame_bytes, &fixed, text), SR_OK);
    assert_int_equal(fixed.header_bytes, bytes - SR_FRAME_FIXED_BYTES);
    assert_int_equal(sr_frame_header_decode(&fixed, frame_bytes + SR_FRAME_FIXED_BYTES, &frame, text), SR_OK);
    if (fixed.payload_bytes) {
        struct sr_buf *payload = sr_buf_alloc(NULL, fixed.payload_bytes);

        memcpy(payload->data, msg->payload->data + msg->payload_offset, fixed.payload_bytes);
        assert_int_equal(sr_frame_payload_attach(&fixed, &frame, payload, text), SR_OK);
        assert_ptr_equal(frame.msg->payload, payload);
        sr_buf_unref(payload);
    }
    if (msg) {
        assert_int_equal(frame.kind, SR_FRAME_PEER);
        assert_true(sr_uuid_equal(&frame.collection, collection));
        check_msg(msg, frame.msg);
    } else {
        assert_int_equal(frame.kind, SR_FRAME_SITE);
        check_site(site, frame.site);
    }
    sr_frame_free(&frame);
}

static void test_random_messages_survive(void **state)
{
    struct random random = {20261201};
    struct sr_uuid collection = sample_uuid(0xe0);

    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        struct sr_peer_msg *msg = random_msg(&random);
        struct sr_site_msg *site = random_site(&random);

        roundtrip(&collection, msg, NULL);
        roundtrip(&collection, NULL, site);
        sr_peer_msg_free(msg);
        sr_site_msg_free(site);
    }
}

static void test_largest_messages_fit(void **state)
{
    struct sr_uuid collection = sample_uuid(0xe0);
    struct sr_peer_msg *msg = sample_msg(SR_MSG_HELLO);
    struct sr_site_msg *site = sr_site_msg_new(SR_SITE_CATALOG);

    (void)state;
    msg->greeting.record.n_ancestors = SR_ANCESTORS_MAX;
    for (int i = 0; i < SR_ANCESTORS_MAX; i++)
        msg->greeting.record.ancestors[i] = sample_uuid((uint8_t)(0x20 + i));
    roundtrip(&collection, msg, NULL);
    site->catalog.n_volumes = SR_CATALOG_PART_MAX;
    site->catalog.volumes = calloc(SR_CATALOG_PART_MAX, sizeof *site->catalog.volumes);
    for (int i = 0; i < SR_CATALOG_PART_MAX; i++) {
        struct sr_catalog_volume *volume = &site->catalog.volumes[i];

        volume->uuid = sample_uuid(1);
        volume->collection = sample_uuid(2);
        memset(volume->name, 'x', SR_NAME_MAX_BYTES);
        volume->size_bytes = SR_VOLUME_MAX_BYTES;
        volume->state = 3;
        volume->creator = volume->imported = volume->write_back = true;
    }
    roundtrip(&collection, NULL, site);
    sr_peer_msg_free(msg);
    sr_site_msg_free(site);
}

static void largest_payload(enum sr_peer_msg_type type)
{
    struct sr_uuid collection = sample_uuid(0xe0);
    struct sr_peer_msg *msg = sr_peer_msg_new(type, 1);

    msg->length_bytes = msg->payload_bytes = SR_IO_MAX_BYTES;
    msg->payload = sr_buf_alloc(NULL, SR_IO_MAX_BYTES);
    memset(msg->payload->data, 0x5a, SR_IO_MAX_BYTES);
    roundtrip(&collection, msg, NULL);
    sr_peer_msg_free(msg);
}

static void test_largest_payload(void **state)
{
    (void)state;
    largest_payload(SR_MSG_WRITE);
    largest_payload(SR_MSG_FORWARD);
    largest_payload(SR_MSG_FORWARDED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_messages_survive),
        cmocka_unit_test(test_largest_messages_fit),
        cmocka_unit_test(test_largest_payload),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
