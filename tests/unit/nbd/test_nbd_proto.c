/* test_nbd_proto.c - the bytes of the NBD protocol, and which requests are refused with what. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "codec/nbd_proto.h"

#define BYTES(text) ((const uint8_t *)(text)), (sizeof(text) - 1)

/* ---- handshake ------------------------------------------------------------------------------------------ */

static void greeting_is_fixed_newstyle(void **state)
{
    uint8_t out[SR_NBD_GREETING_BYTES];

    (void)state;
    sr_nbd_put_greeting(out);
    assert_memory_equal(out, "NBDMAGICIHAVEOPT\0\3", 18);
}

static void client_flags_that_were_never_offered_are_refused(void **state)
{
    struct sr_nbd_client_flags flags;

    (void)state;
    assert_int_equal(sr_nbd_get_client_flags((const uint8_t *)"\0\0\0\3", &flags), SR_OK);
    assert_true(flags.fixed_newstyle && flags.no_zeroes);
    assert_int_equal(sr_nbd_get_client_flags((const uint8_t *)"\0\0\0\0", &flags), SR_OK);
    assert_false(flags.fixed_newstyle || flags.no_zeroes);
    assert_int_equal(sr_nbd_get_client_flags((const uint8_t *)"\0\0\0\4", &flags), SR_E_PROTOCOL);
    assert_int_equal(sr_nbd_get_client_flags((const uint8_t *)"\x80\0\0\1", &flags), SR_E_PROTOCOL);
}

static void option_header(void **state)
{
    struct sr_nbd_option option;

    (void)state;
    assert_int_equal(sr_nbd_get_option((const uint8_t *)"IHAVEOPT\0\0\0\7\xff\xff\xff\xff", &option), SR_OK);
    assert_int_equal(option.option, SR_NBD_OPT_GO);
    assert_int_equal(option.length_bytes, UINT32_MAX);
    assert_int_equal(sr_nbd_get_option((const uint8_t *)"IHAVEOPS\0\0\0\7\0\0\0\0", &option), SR_E_PROTOCOL);
}

static void strings_are_utf8_without_nul(void **state)
{
    static const struct {
        const char *bytes;
        size_t length;
        bool valid;
    } cases[] = {
        {"", 0, true},
        {"plain", 5, true},
        {"\xc3\xbc", 2, true},
        {"\xe2\x82\xac", 3, true},
        {"\xf4\x8f\xbf\xbf", 4, true},
        {"a\0b", 3, false},
        {"\xff", 1, false},
        {"\xc3", 1, false},
        {"\xc0\x80", 2, false},         /* overlong */
        {"\xe0\x80\x80", 3, false},     /* overlong */
        {"\xed\xa0\x80", 3, false},     /* surrogate */
        {"\xf4\x90\x80\x80", 4, false}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 4, false},
        {"\xe2\x82", 2, false},
        {"\xe2\x28\xa1", 3, false},
        {"\x80", 1, false},
    };
    uint8_t longest[SR_NBD_STRING_MAX_BYTES + 1];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(sr_nbd_string_valid((const uint8_t *)cases[i].bytes, cases[i].length), cases[i].valid);
    memset(longest, 'n', sizeof longest);
    assert_true(sr_nbd_string_valid(longest, SR_NBD_STRING_MAX_BYTES));
    assert_false(sr_nbd_string_valid(longest, SR_NBD_STRING_MAX_BYTES + 1));
}

static void go_with_wishes(void **state)
{
    struct sr_nbd_go go;

    (void)state;
    assert_int_equal(sr_nbd_get_go(BYTES("\0\0\0\3vol\0\3\0\1\0\3\0\x63"), &go), SR_OK);
    assert_int_equal(go.name_bytes, 3);
    assert_memory_equal(go.name, "vol", 3);
    assert_true(go.wants_name && go.wants_block_size && !go.wants_description);
    assert_int_equal(sr_nbd_get_go(BYTES("\0\0\0\0\0\0"), &go), SR_OK);
    assert_int_equal(go.name_bytes, 0);
}

static void go_whose_lengths_do_not_add_up(void **state)
{
    uint8_t data[8000] = {0};
    struct sr_nbd_go go;

    (void)state;
    assert_int_equal(sr_nbd_get_go(data, 0, &go), SR_E_INVALID);
    assert_int_equal(sr_nbd_get_go(BYTES("\0\0\0"), &go), SR_E_INVALID);
    assert_int_equal(sr_nbd_get_go(BYTES("\0\0\0\4vol\0\0"), &go), SR_E_INVALID);
    assert_int_equal(sr_nbd_get_go(BYTES("\xff\xff\xff\xffvol\0\0"), &go), SR_E_INVALID);
    assert_int_equal(sr_nbd_get_go(BYTES("\0\0\0\3vol\0"), &go), SR_E_INVALID);
    assert_int_equal(sr_nbd_get_go(BYTES("\0\0\0\3vol\0\2\0\1"), &go), SR_E_INVALID);
    assert_int_equal(sr_nbd_get_go(BYTES("\0\0\0\3vol\0\0x"), &go), SR_E_INVALID);
    assert_int_equal(sr_nbd_get_go(BYTES("\0\0\0\3v\xffl\0\0"), &go), SR_E_INVALID);
    memset(data, 'n', sizeof data);
    memcpy(data, "\0\0\x10\1", 4);
    assert_int_equal(sr_nbd_get_go(data, 4 + 4097 + 2, &go), SR_E_TOO_LARGE);
}

static void meta_queries(void **state)
{
    static const char prefix[] = "\0\0\0\1v";
    struct {
        const char *queries;
        size_t length;
        bool list;
        enum sr_error error;
        bool selected;
    } cases[] = {
        {"\0\0\0\0", 4, true, SR_OK, true},
        {"\0\0\0\0", 4, false, SR_OK, false},
        {"\0\0\0\1\0\0\0\5base:", 13, true, SR_OK, true},
        {"\0\0\0\1\0\0\0\5base:", 13, false, SR_OK, false},
        {"\0\0\0\1\0\0\0\x0f" "base:allocation", 23, false, SR_OK, true},
        {"\0\0\0\2\0\0\0\2x:\0\0\0\x0f" "base:allocation", 29, false, SR_OK, true},
        {"\0\0\0\1\0\0\0\x10" "base:allocations", 24, false, SR_OK, false},
        {"\0\0\0\1\0\0\0\4base", 12, false, SR_E_INVALID, false},
        {"\0\0\0\1\0\0\0\0", 8, false, SR_E_INVALID, false},
        {"\0\0\0\2\0\0\0\2x:", 10, false, SR_E_INVALID, false},
        {"\xff\xff\xff\xff\0\0\0\2x:", 10, false, SR_E_INVALID, false},
        {"\0\0\0\1\0\0\0\2x:y", 11, false, SR_E_INVALID, false},
        {"\0\0\0", 3, false, SR_E_INVALID, false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sr_nbd_meta meta;
        uint8_t data[64];

        memcpy(data, prefix, 5);
        memcpy(data + 5, cases[i].queries, cases[i].length);
        assert_int_equal(sr_nbd_get_meta(data, 5 + cases[i].length, cases[i].list, &meta), cases[i].error);
        if (!cases[i].error)
            assert_int_equal(meta.base_allocation, cases[i].selected);
    }
}

static void option_replies(void **state)
{
    static const char magic[] = "\0\3\xe8\x89\4\x55\x65\xa9";
    uint8_t out[SR_NBD_OPTION_REPLY_MAX_BYTES];

    (void)state;
    assert_int_equal(sr_nbd_put_rep_text(out, 7, SR_NBD_REP_ERR_POLICY, "no"), 22);
    assert_memory_equal(out, magic, 8);
    assert_memory_equal(out + 8, "\0\0\0\7\x80\0\0\2\0\0\0\2no", 14);
    assert_int_equal(sr_nbd_put_rep_text(out, 3, SR_NBD_REP_ACK, NULL), 20);
    assert_memory_equal(out + 8, "\0\0\0\3\0\0\0\1\0\0\0\0", 12);
    assert_int_equal(sr_nbd_put_rep_server(out, "v1"), 26);
    assert_memory_equal(out + 8, "\0\0\0\3\0\0\0\2\0\0\0\6\0\0\0\2v1", 18);
    assert_int_equal(sr_nbd_put_rep_info_export(out, 6, UINT64_C(0x0102030405060708), 0x0ded), 32);
    assert_memory_equal(out + 8, "\0\0\0\6\0\0\0\3\0\0\0\x0c\0\0\1\2\3\4\5\6\7\x08\x0d\xed", 24);
    assert_int_equal(sr_nbd_put_rep_info_block_size(out, 7), 34);
    assert_memory_equal(out + 16, "\0\0\0\x0e\0\3\0\0\0\1\0\0\x10\0\2\0\0\0", 18);
    assert_int_equal(sr_nbd_put_rep_info_text(out, 7, SR_NBD_INFO_NAME, "n"), 23);
    assert_memory_equal(out + 16, "\0\0\0\3\0\1n", 7);
    assert_int_equal(sr_nbd_put_rep_meta_context(out, SR_NBD_OPT_SET_META_CONTEXT, 1), 39);
    assert_memory_equal(out + 8, "\0\0\0\x0a\0\0\0\4\0\0\0\x13\0\0\0\1base:allocation", 31);
}

static void text_that_is_too_long_is_cut_between_characters(void **state)
{
    uint8_t out[SR_NBD_OPTION_REPLY_MAX_BYTES];
    char text[5002] = "x";

    (void)state;
    for (size_t i = 1; i < 5001; i += 2)
        memcpy(text + i, "\xc3\xbc", 2);
    assert_int_equal(sr_nbd_put_rep_text(out, 7, SR_NBD_REP_ERR_POLICY, text), 20 + 4095);
    assert_true(sr_nbd_string_valid(out + 20, 4095));
}

static void export_name_reply(void **state)
{
    uint8_t out[SR_NBD_EXPORT_NAME_REPLY_BYTES];
    static const uint8_t zeroes[124];

    (void)state;
    memset(out, 0xaa, sizeof out);
    assert_int_equal(sr_nbd_put_export_name_reply(out, 4096, 3, true), 10);
    assert_memory_equal(out, "\0\0\0\0\0\0\x10\0\0\3", 10);
    assert_int_equal(out[10], 0xaa);
    assert_int_equal(sr_nbd_put_export_name_reply(out, 4096, 3, false), 134);
    assert_memory_equal(out + 10, zeroes, 124);
}

/* ---- transmission --------------------------------------------------------------------------------------- */

static void request_header(void **state)
{
    static const char bytes[] = "\x25\x60\x95\x13\0\1\0\6\1\2\3\4\5\6\7\x08\0\0\0\0\0\0\x10\0\0\0\x20\0";
    struct sr_nbd_request_header request;
    uint8_t bad[28];

    (void)state;
    assert_int_equal(sr_nbd_get_request((const uint8_t *)bytes, &request), SR_OK);
    assert_int_equal(request.flags, SR_NBD_CMD_FLAG_FUA);
    assert_int_equal(request.command, SR_NBD_CMD_WRITE_ZEROES);
    assert_int_equal(request.cookie, UINT64_C(0x0102030405060708));
    assert_int_equal(request.offset_bytes, 4096);
    assert_int_equal(request.length_bytes, 8192);
    memcpy(bad, bytes, 28);
    bad[3]++;
    assert_int_equal(sr_nbd_get_request(bad, &request), SR_E_PROTOCOL);
}

static void replies(void **state)
{
    uint8_t out[64];

    (void)state;
    sr_nbd_put_simple_reply(out, SR_NBD_ENOSPC, 7);
    assert_memory_equal(out, "\x67\x44\x66\x98\0\0\0\x1c\0\0\0\0\0\0\0\7", 16);
    sr_nbd_put_none_chunk(out, 7);
    assert_memory_equal(out, "\x66\x8e\x33\xef\0\1\0\0\0\0\0\0\0\0\0\7\0\0\0\0", 20);
    sr_nbd_put_data_chunk(out, 7, false, 4096, 512);
    assert_memory_equal(out, "\x66\x8e\x33\xef\0\0\0\1\0\0\0\0\0\0\0\7\0\0\2\x08\0\0\0\0\0\0\x10\0", 28);
    sr_nbd_put_hole_chunk(out, 7, true, 4096, 512);
    assert_memory_equal(out, "\x66\x8e\x33\xef\0\1\0\2\0\0\0\0\0\0\0\7\0\0\0\x0c\0\0\0\0\0\0\x10\0\0\0\2\0", 32);
    sr_nbd_put_error_chunk(out, 7, SR_NBD_EIO, 3);
    assert_memory_equal(out, "\x66\x8e\x33\xef\0\1\x80\1\0\0\0\0\0\0\0\7\0\0\0\x09\0\0\0\5\0\3", 26);
    sr_nbd_put_status_chunk(out, 7, 2);
    assert_memory_equal(out, "\x66\x8e\x33\xef\0\1\0\5\0\0\0\0\0\0\0\7\0\0\0\x14\0\0\0\1", 24);
    sr_nbd_put_status_extent(out, 4096, true);
    assert_memory_equal(out, "\0\0\x10\0\0\0\0\3", 8);
    sr_nbd_put_status_extent(out, 4096, false);
    assert_memory_equal(out, "\0\0\x10\0\0\0\0\0", 8);
}

static void transmission_flags(void **state)
{
    struct sr_nbd_terms terms = {.size_bytes = 4096};

    (void)state;
    assert_int_equal(sr_nbd_transmission_flags(&terms, false), 0x46d);
    assert_int_equal(sr_nbd_transmission_flags(&terms, true), 0x56d);
    terms.structured = terms.fast_zero = true;
    assert_int_equal(sr_nbd_transmission_flags(&terms, true), 0xded);
    terms.read_only = true;
    assert_int_equal(sr_nbd_transmission_flags(&terms, true), 0x58f);
}

static void requests_get_their_own_error(void **state)
{
    static const struct sr_nbd_terms plain = {.size_bytes = SR_MIB};
    static const struct sr_nbd_terms read_only = {.size_bytes = SR_MIB, .read_only = true};
    static const struct sr_nbd_terms full = {
        .size_bytes = 64 * SR_GIB, .structured = true, .base_allocation = true, .fast_zero = true};
    static const struct {
        const struct sr_nbd_terms *terms;
        uint16_t command, flags;
        uint64_t offset;
        uint32_t length;
        enum sr_nbd_errno error;
    } cases[] = {
        {&plain, SR_NBD_CMD_READ, 0, 0, 4096, SR_NBD_OK},
        {&plain, SR_NBD_CMD_READ, 0, SR_MIB - 1, 1, SR_NBD_OK},
        {&plain, SR_NBD_CMD_READ, 0, SR_MIB, 1, SR_NBD_EINVAL},
        {&plain, SR_NBD_CMD_READ, 0, UINT64_MAX, UINT32_MAX, SR_NBD_EINVAL},
        {&plain, SR_NBD_CMD_READ, 0, 0, 0, SR_NBD_EINVAL},
        {&plain, SR_NBD_CMD_READ, SR_NBD_CMD_FLAG_FUA, 0, 512, SR_NBD_OK},
        {&plain, SR_NBD_CMD_READ, SR_NBD_CMD_FLAG_DF, 0, 512, SR_NBD_EINVAL},
        {&full, SR_NBD_CMD_READ, SR_NBD_CMD_FLAG_DF, 0, 512, SR_NBD_OK},
        {&full, SR_NBD_CMD_READ, 0, 0, SR_IO_MAX_BYTES, SR_NBD_OK},
        {&full, SR_NBD_CMD_READ, 0, 0, SR_IO_MAX_BYTES + 1, SR_NBD_EOVERFLOW},
        {&plain, SR_NBD_CMD_WRITE, SR_NBD_CMD_FLAG_FUA, 1, 4096, SR_NBD_OK},
        {&plain, SR_NBD_CMD_WRITE, 0, SR_MIB, 4096, SR_NBD_ENOSPC},
        {&plain, SR_NBD_CMD_WRITE, 0, UINT64_MAX - 4095, 4096, SR_NBD_ENOSPC},
        {&plain, SR_NBD_CMD_WRITE, SR_NBD_CMD_FLAG_NO_HOLE, 0, 4096, SR_NBD_EINVAL},
        {&plain, SR_NBD_CMD_WRITE, 0, 0, 0, SR_NBD_EINVAL},
        {&read_only, SR_NBD_CMD_WRITE, 0, 0, 4096, SR_NBD_EPERM},
        {&read_only, SR_NBD_CMD_WRITE, 0, SR_MIB, 4096, SR_NBD_EPERM},
        {&read_only, SR_NBD_CMD_TRIM, 0, 0, 4096, SR_NBD_EPERM},
        {&read_only, SR_NBD_CMD_WRITE_ZEROES, 0, 0, 4096, SR_NBD_EPERM},
        {&read_only, SR_NBD_CMD_FLUSH, 0, 0, 0, SR_NBD_OK},
        {&plain, SR_NBD_CMD_FLUSH, SR_NBD_CMD_FLAG_FUA, 0, 0, SR_NBD_OK},
        {&plain, SR_NBD_CMD_FLUSH, 0, 0, 4096, SR_NBD_EINVAL},
        {&full, SR_NBD_CMD_TRIM, 0, 0, UINT32_MAX, SR_NBD_OK},
        {&plain, SR_NBD_CMD_TRIM, 0, SR_MIB, 1, SR_NBD_EINVAL},
        {&full, SR_NBD_CMD_WRITE_ZEROES, SR_NBD_CMD_FLAG_NO_HOLE, 0, UINT32_MAX, SR_NBD_OK},
        {&full, SR_NBD_CMD_WRITE_ZEROES, SR_NBD_CMD_FLAG_FAST_ZERO, 0, 4096, SR_NBD_OK},
        {&full, SR_NBD_CMD_WRITE_ZEROES, SR_NBD_CMD_FLAG_FAST_ZERO | SR_NBD_CMD_FLAG_NO_HOLE, 0, 4096,
         SR_NBD_ENOTSUP},
        {&plain, SR_NBD_CMD_WRITE_ZEROES, SR_NBD_CMD_FLAG_FAST_ZERO, 0, 4096, SR_NBD_EINVAL},
        {&full, SR_NBD_CMD_BLOCK_STATUS, SR_NBD_CMD_FLAG_REQ_ONE, 0, UINT32_MAX, SR_NBD_OK},
        {&plain, SR_NBD_CMD_BLOCK_STATUS, 0, 0, 4096, SR_NBD_EINVAL},
        {&full, SR_NBD_CMD_CACHE, 0, 0, 4096, SR_NBD_OK},
        {&full, 8, 0, 0, 4096, SR_NBD_EINVAL},
        {&full, UINT16_MAX, 0, 0, 4096, SR_NBD_EINVAL},
        {&full, SR_NBD_CMD_READ, 0x20, 0, 4096, SR_NBD_EINVAL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sr_nbd_request_header request = {
            .flags = cases[i].flags,
            .command = cases[i].command,
            .offset_bytes = cases[i].offset,
            .length_bytes = cases[i].length,
        };

        if (sr_nbd_check_request(&request, cases[i].terms) != cases[i].error)
            fail_msg("case %zu: %d instead of %d", i, sr_nbd_check_request(&request, cases[i].terms), cases[i].error);
    }
}

static void only_writes_carry_payload(void **state)
{
    struct sr_nbd_request_header request = {.length_bytes = 77};

    (void)state;
    for (request.command = 0; request.command < 10; request.command++)
        assert_int_equal(sr_nbd_request_payload_bytes(&request), request.command == SR_NBD_CMD_WRITE ? 77 : 0);
}

static void our_errors_become_the_protocols(void **state)
{
    (void)state;
    assert_int_equal(sr_nbd_errno_from(SR_OK), 0);
    assert_int_equal(sr_nbd_errno_from(SR_E_NO_SPACE), 28);
    assert_int_equal(sr_nbd_errno_from(SR_E_IO), 5);
    assert_int_equal(sr_nbd_errno_from(SR_E_INVALID), 22);
    assert_int_equal(sr_nbd_errno_from(SR_E_PERMISSION), 1);
    assert_int_equal(sr_nbd_errno_from(SR_E_SHUTDOWN), 108);
    assert_int_equal(sr_nbd_errno_from(SR_E_CORRUPT), 5); /* anything else is an I/O error, never success */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greeting_is_fixed_newstyle),
        cmocka_unit_test(client_flags_that_were_never_offered_are_refused),
        cmocka_unit_test(option_header),
        cmocka_unit_test(strings_are_utf8_without_nul),
        cmocka_unit_test(go_with_wishes),
        cmocka_unit_test(go_whose_lengths_do_not_add_up),
        cmocka_unit_test(meta_queries),
        cmocka_unit_test(option_replies),
        cmocka_unit_test(text_that_is_too_long_is_cut_between_characters),
        cmocka_unit_test(export_name_reply),
        cmocka_unit_test(request_header),
        cmocka_unit_test(replies),
        cmocka_unit_test(transmission_flags),
        cmocka_unit_test(requests_get_their_own_error),
        cmocka_unit_test(only_writes_carry_payload),
        cmocka_unit_test(our_errors_become_the_protocols),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
