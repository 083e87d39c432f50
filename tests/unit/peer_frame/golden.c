/* golden.c - the bytes of a frame of each type are those of golden.txt: nobody may change them by accident.
 *
 * "peer_frame_golden --write FILE" writes the file anew, for a type that was added.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "samples.h"

static const char *golden_file = GOLDEN_FILE;

static void print_frame(FILE *file, const char *name, const struct sr_peer_msg *msg, const struct sr_site_msg *site)
{
    static uint8_t out[SR_FRAME_FIXED_BYTES + SR_FRAME_HEADER_MAX_BYTES];
    struct sr_uuid collection = sample_uuid(0xe0);
    size_t bytes = encode_any(out, sizeof out, &collection, msg, site);

    fprintf(file, "%s ", name);
    for (size_t i = 0; i < bytes; i++)
        fprintf(file, "%02x", out[i]);
    fprintf(file, "\n");
}

static void print_role_request(FILE *file, const char *name, enum sr_volume_verb verb)
{
    struct sr_site_msg *site = sr_site_msg_new(SR_SITE_VOLUME_REQUEST);

    site->rpc.request = 9;
    site->rpc.verb = verb;
    site->rpc.uuid = sample_uuid(0x80);
    snprintf(site->rpc.name, sizeof site->rpc.name, "vol-1");
    print_frame(file, name, NULL, site);
    sr_site_msg_free(site);
}

/* A host's read goes without data, and its answer with them. */
static void print_forwarded_read(FILE *file)
{
    struct sr_peer_msg *question = sample_msg(SR_MSG_FORWARD), *answer = sample_msg(SR_MSG_FORWARDED);

    answer->error = SR_OK;
    answer->payload = question->payload;
    answer->payload_bytes = question->payload_bytes;
    question->content = SR_CONTENT_READ;
    question->payload = NULL;
    question->payload_bytes = 0;
    print_frame(file, "FORWARD.read", question, NULL);
    print_frame(file, "FORWARDED.read", answer, NULL);
    sr_peer_msg_free(question);
    sr_peer_msg_free(answer);
}

static void print_member_request(FILE *file)
{
    struct sr_site_msg *site = sr_site_msg_new(SR_SITE_VOLUME_REQUEST);

    site->rpc.request = 9;
    site->rpc.verb = SR_MEMBER_PREPARE;
    site->rpc.uuid = sample_uuid(0x80);
    site->rpc.collection = sample_uuid(0x90);
    site->rpc.generation = sample_uuid(0xa0);
    site->rpc.active = true;
    snprintf(site->rpc.name, sizeof site->rpc.name, "group-1");
    print_frame(file, "site.VOLUME_REQUEST.member", NULL, site);
    sr_site_msg_free(site);
}

/* What write-back volumes add to messages that there were before them. */
static void print_write_back(FILE *file)
{
    struct sr_peer_msg *hello = sample_msg(SR_MSG_HELLO), *write = sample_msg(SR_MSG_WRITE);
    struct sr_peer_msg *forward = sample_msg(SR_MSG_FORWARD);
    struct sr_site_msg *request = sample_site(SR_SITE_VOLUME_REQUEST), *catalog = sample_site(SR_SITE_CATALOG);

    hello->greeting.boot = sample_uuid(0xb0);
    hello->greeting.flushes = 77;
    write->cached = true;
    forward->fua = true;
    request->rpc.write_back = true;
    catalog->catalog.volumes[0].write_back = true;
    print_frame(file, "HELLO.write-back", hello, NULL);
    print_frame(file, "WRITE.cached", write, NULL);
    print_frame(file, "FORWARD.fua", forward, NULL);
    print_frame(file, "site.VOLUME_REQUEST.write-back", NULL, request);
    print_frame(file, "site.CATALOG.write-back", NULL, catalog);
    sr_peer_msg_free(hello);
    sr_peer_msg_free(write);
    sr_peer_msg_free(forward);
    sr_site_msg_free(request);
    sr_site_msg_free(catalog);
}

static void print_all(FILE *file)
{
    for (unsigned i = 0; i < n_site_types; i++) {
        struct sr_site_msg *site = sample_site(all_site_types[i]);
        char name[64];

        snprintf(name, sizeof name, "site.%s", sr_site_msg_name(site->type));
        print_frame(file, name, NULL, site);
        sr_site_msg_free(site);
    }
    for (unsigned i = 0; i < n_peer_types; i++) {
        struct sr_peer_msg *msg = sample_msg(all_peer_types[i]);

        print_frame(file, sr_peer_msg_name(msg->type), msg, NULL);
        sr_peer_msg_free(msg);
    }
    print_role_request(file, "site.VOLUME_REQUEST.switchover", SR_COLLECTION_SWITCHOVER);
    print_role_request(file, "site.VOLUME_REQUEST.discard", SR_COLLECTION_DISCARD);
    print_forwarded_read(file);
    print_member_request(file);
    print_write_back(file);
}

static char *slurp(FILE *file)
{
    static char text[1 << 16];
    size_t bytes = fread(text, 1, sizeof text - 1, file);

    text[bytes] = '\0';
    return text;
}

static void test_bytes_are_golden(void **state)
{
    FILE *golden = fopen(golden_file, "r");
    FILE *file = tmpfile();
    char *want, *have, *want_save, *have_save, *want_line, *have_line;

    (void)state;
    assert_non_null(golden);
    assert_non_null(file);
    want = strdup(slurp(golden));
    print_all(file);
    rewind(file);
    have = strdup(slurp(file));
    fclose(file);
    fclose(golden);
    want_line = strtok_r(want, "\n", &want_save);
    have_line = strtok_r(have, "\n", &have_save);
    while (want_line && have_line) {
        assert_string_equal(want_line, have_line);
        want_line = strtok_r(NULL, "\n", &want_save);
        have_line = strtok_r(NULL, "\n", &have_save);
    }
    assert_null(want_line);
    assert_null(have_line);
    free(want);
    free(have);
}

/* The first 32 bytes against the description, not against our own code. */
static void test_fixed_header_layout(void **state)
{
    uint8_t out[SR_FRAME_FIXED_BYTES + 64];
    struct sr_site_msg msg = {.type = SR_SITE_PING, .stamp = 1};
    size_t bytes = sr_frame_encode_site(out, sizeof out, 0x0102, &msg);

    (void)state;
    assert_int_equal(bytes, 32 + 9);
    assert_memory_equal(out, "SRP1", 4);
    assert_int_equal(out[4], 0x02);
    assert_int_equal(out[5], 0x01);
    assert_int_equal(out[6], 4);
    assert_int_equal(out[7], 0);
    assert_memory_equal(out + 8, "\x09\0\0\0\0\0\0\0", 8);
    assert_memory_equal(out + 20, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
    assert_memory_equal(out + 32, "\x09\x01\0\0\0\0\0\0\0", 9);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_are_golden),
        cmocka_unit_test(test_fixed_header_layout),
    };

    if (argc == 3 && strcmp(argv[1], "--write") == 0) {
        FILE *file = fopen(argv[2], "w");

        if (!file)
            return 1;
        print_all(file);
        return fclose(file) ? 1 : 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
