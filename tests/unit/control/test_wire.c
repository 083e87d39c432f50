/* Frames of the control socket: golden bytes, and everything that a request may not be (wire.c, invariants 1-3). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "control/wire.h"
#include "control/words.h"

static Syncrep__Control__Request *request;
static uint64_t id;
static char why[SR_CONTROL_WHY_BYTES];

/* From a heap block of exactly that size, so that a sanitizer sees each byte too many (invariant 1). */
static enum sr_error decode(const void *bytes, size_t n)
{
    uint8_t *exact = malloc(n > 0 ? n : 1);

    memcpy(exact, bytes, n);
    sr_control_request_free(request);
    enum sr_error error = sr_control_request_decode(exact, n, &request, &id, why);
    free(exact);
    assert_true((error == SR_OK) == (request != NULL));
    assert_true((error == SR_OK) == (why[0] == '\0'));
    return error;
}

#define DECODE(literal) decode(literal, sizeof(literal) - 1)

static void headers_are_little_endian(void **state)
{
    uint8_t header[4];

    (void)state;
    sr_control_header_put(header, 0x01020304);
    assert_memory_equal(header, "\x04\x03\x02\x01", 4);
    assert_int_equal(sr_control_header_get(header), 0x01020304);
    sr_control_header_put(header, UINT32_MAX);
    assert_int_equal(sr_control_header_get(header), UINT32_MAX);
}

/* These bytes are the protocol: other programs send them. */
static void golden_requests(void **state)
{
    (void)state;
    assert_int_equal(DECODE("\x08\x01\x10\x07\x52\x00"), SR_OK);
    assert_int_equal(request->op_case, SYNCREP__CONTROL__REQUEST__OP_PING);
    assert_int_equal(id, 7);
    assert_int_equal(DECODE("\x08\x01\x10\x01\x18\xe8\x07\x9a\x01\x05\x0a\x03vm1"), SR_OK);
    assert_int_equal(request->op_case, SYNCREP__CONTROL__REQUEST__OP_PAUSE);
    assert_int_equal(request->deadline_ms, 1000);
    assert_string_equal(request->pause->name, "vm1");
    assert_int_equal(DECODE("\x08\x01\xc2\x01\x0a\x0a\x03vm1\x10\x01\x18\xe8\x07"), SR_OK);
    assert_int_equal(request->op_case, SYNCREP__CONTROL__REQUEST__OP_WAIT);
    assert_int_equal(request->wait->condition, SYNCREP__CONTROL__CONDITION__CONDITION_IN_SYNC);
    assert_int_equal(DECODE("\x08\x01\x6a\x16\x0a\x01v\x10\x80\x80\x40\x1a\x01p\x22\x01q\x28\x01\x32\x02/x\x3a\x01s"),
                     SR_OK);
    assert_int_equal(request->op_case, SYNCREP__CONTROL__REQUEST__OP_VOLUME_CREATE);
    assert_int_equal(request->volume_create->size_bytes, 1 << 20);
    assert_true(request->volume_create->preallocate);
    assert_string_equal(request->volume_create->peer_pool, "q");
    assert_string_equal(request->volume_create->import_path, "/x");
}

/* The verbs that move the active role. */
static void golden_role_requests(void **state)
{
    (void)state;
    assert_int_equal(DECODE("\x08\x01\x10\x01\x18\xb0\xea\x01\xda\x01\x0c\x0a\x03vm1\x12\x05paris"), SR_OK);
    assert_int_equal(request->op_case, SYNCREP__CONTROL__REQUEST__OP_SWITCHOVER);
    assert_string_equal(request->switchover->name, "vm1");
    assert_string_equal(request->switchover->to_site, "paris");
    assert_false(request->switchover->plan);
    assert_int_equal(DECODE("\x08\x01\x10\x01\xda\x01\x09\x0a\x03vm1\x20\xe0\xd4\x03"), SR_OK);
    assert_int_equal(request->switchover->sync_wait_ms, 60000);
    assert_int_equal(DECODE("\x08\x01\x10\x01\xb2\x01\x0c\x0a\x03vm1\x12\x03vm1\x18\x01"), SR_OK);
    assert_int_equal(request->op_case, SYNCREP__CONTROL__REQUEST__OP_FAILOVER);
    assert_string_equal(request->failover->force_name, "vm1");
    assert_true(request->failover->plan);
    assert_int_equal(DECODE("\x08\x01\x10\x01\xe2\x01\x0e\x0a\x03vm1\x12\x05paris\x18\x01"), SR_OK);
    assert_int_equal(request->op_case, SYNCREP__CONTROL__REQUEST__OP_RESOLVE);
    assert_string_equal(request->resolve->keep_site, "paris");
    assert_true(request->resolve->plan);
    assert_string_equal(sr_control_op_name(request->op_case), "resolve");
    assert_string_equal(sr_control_op_object(request), "vm1");
    /* an option of a later version is not ignored: it might say "only if" */
    assert_int_equal(DECODE("\x08\x01\x10\x01\xda\x01\x08\x0a\x03vm1\xf8\x01\x01"), SR_E_UNSUPPORTED);
    assert_int_equal(sr_control_condition_parse("active"), SYNCREP__CONTROL__CONDITION__CONDITION_ACTIVE);
    assert_int_equal(sr_control_condition_parse("alternate"), SYNCREP__CONTROL__CONDITION__CONDITION_ALTERNATE);
}

static void what_is_no_message_is_a_protocol_error(void **state)
{
    (void)state;
    assert_int_equal(DECODE("\xff"), SR_E_PROTOCOL);
    assert_int_equal(DECODE("\x08"), SR_E_PROTOCOL);
    assert_int_equal(DECODE("\x08\x01\x9a\x01\xff\xff\xff\xff\x0f"), SR_E_PROTOCOL);
    assert_int_equal(DECODE("\x08\x01\x9a\x01\x05\x0a\x7fvm1"), SR_E_PROTOCOL);
    assert_int_equal(DECODE("\x08\x01\x0b"), SR_E_PROTOCOL); /* a group */
    assert_int_equal(DECODE("\x00\x01"), SR_E_PROTOCOL);     /* field 0 */
    assert_int_equal(DECODE("\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), SR_E_PROTOCOL);
    /* A message where a string belongs to, wrongly typed */
    assert_int_equal(DECODE("\x08\x01\x98\x01\x05"), SR_E_PROTOCOL);
}

static void another_version_is_refused_by_name(void **state)
{
    (void)state;
    assert_int_equal(DECODE(""), SR_E_VERSION);
    assert_int_equal(DECODE("\x08\x02\x10\x09\x52\x00"), SR_E_VERSION);
    assert_int_equal(id, 9);
    assert_non_null(strstr(why, "2"));
}

static void an_unknown_option_is_never_ignored(void **state)
{
    (void)state;
    /* invariant 2: in the request, and in the operation */
    assert_int_equal(DECODE("\x08\x01\x10\x05\x52\x00\xf8\x07\x01"), SR_E_UNSUPPORTED);
    assert_int_equal(id, 5);
    assert_int_equal(DECODE("\x08\x01\x10\x05\x9a\x01\x08\x0a\x03vm1\x98\x06\x01"), SR_E_UNSUPPORTED);
    assert_non_null(strstr(why, "PauseRequest"));
    /* an operation that is not known, or none */
    assert_int_equal(DECODE("\x08\x01\x10\x05\xfa\x07\x00"), SR_E_UNSUPPORTED);
    assert_int_equal(DECODE("\x08\x01\x10\x05"), SR_E_UNSUPPORTED);
}

static void strings_are_utf8_without_nul(void **state)
{
    (void)state;
    assert_int_equal(DECODE("\x08\x01\x10\x05\x9a\x01\x06\x0a\x04vm1\x00"), SR_E_INVALID);
    assert_int_equal(id, 5);
    assert_non_null(strstr(why, "name"));
    assert_int_equal(DECODE("\x08\x01\x9a\x01\x04\x0a\x02\xc0\x80"), SR_E_INVALID);
    assert_int_equal(DECODE("\x08\x01\x9a\x01\x05\x0a\x03\xed\xa0\x80"), SR_E_INVALID);
    assert_int_equal(DECODE("\x08\x01\x9a\x01\x03\x0a\x01\xc3"), SR_E_INVALID);
    assert_int_equal(DECODE("\x08\x01\x9a\x01\x06\x0a\x04\xf4\x90\x80\x80"), SR_E_INVALID);
    assert_int_equal(DECODE("\x08\x01\x9a\x01\x04\x0a\x02\xc3\xa9"), SR_OK);
    assert_int_equal(DECODE("\x08\x01\x9a\x01\x06\x0a\x04\xf0\x9f\x92\xbe"), SR_OK);
}

static void memory_is_bounded(void **state)
{
    static uint8_t bytes[SR_CONTROL_REQUEST_MAX_BYTES];

    (void)state;
    /* invariant 3: the same string field again and again, and many unknown fields */
    bytes[0] = 0x08;
    bytes[1] = 0x01;
    for (size_t i = 2; i + 2 <= sizeof(bytes); i += 2)
        memcpy(bytes + i, "\x52\x00", 2);
    enum sr_error error = decode(bytes, sizeof(bytes));
    assert_true(error == SR_OK || error == SR_E_NO_MEMORY);
    for (size_t i = 2; i + 3 <= sizeof(bytes); i += 3)
        memcpy(bytes + i, "\xfa\x07\x00", 3);
    error = decode(bytes, 2 + (sizeof(bytes) - 2) / 3 * 3);
    assert_int_equal(error, SR_E_NO_MEMORY);
}

static void responses_are_read_leniently(void **state)
{
    Syncrep__Control__Response *response;

    (void)state;
    response =
        sr_control_response_decode((const uint8_t *)"\x08\x01\x10\x05\x18\x01\x5a\x06\x0a\x01x\xf8\x07\x01", 14);
    assert_non_null(response);
    assert_true(response->last);
    assert_string_equal(response->done->text, "x");
    sr_control_response_free(response);
    assert_null(sr_control_response_decode((const uint8_t *)"\x08", 1));
    sr_control_response_free(NULL);
}

static void cleaned_text_is_safe(void **state)
{
    char text[] = "a\x1b[31mb\n\xff\xc3\xa9\xc2\x9b\x7f\xc3";

    (void)state;
    assert_string_equal(sr_control_text_clean(text), "a?[31mb??\xc3\xa9????");
}

static void each_error_has_an_exit_class(void **state)
{
    (void)state;
#define CHECK(code, wire, text)                                                                                      \
    assert_true(code == SR_OK || (sr_control_exit_class(code) >= 1 && sr_control_exit_class(code) <= 5));
    SR_ERRORS(CHECK)
#undef CHECK
    assert_int_equal(sr_control_exit_class(SR_OK), 0);
    assert_int_equal(sr_control_exit_class(SR_E_REFUSED), 1);
    assert_int_equal(sr_control_exit_class(SR_E_NOT_FOUND), 1);
    assert_int_equal(sr_control_exit_class(SR_E_INVALID), 2);
    assert_int_equal(sr_control_exit_class(SR_E_UNREACHABLE), 3);
    assert_int_equal(sr_control_exit_class(SR_E_TIMEOUT), 4);
    assert_int_equal(sr_control_exit_class(SR_E_NEEDS_FORCE), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_little_endian),
        cmocka_unit_test(golden_requests),
        cmocka_unit_test(golden_role_requests),
        cmocka_unit_test(what_is_no_message_is_a_protocol_error),
        cmocka_unit_test(another_version_is_refused_by_name),
        cmocka_unit_test(an_unknown_option_is_never_ignored),
        cmocka_unit_test(strings_are_utf8_without_nul),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(responses_are_read_leniently),
        cmocka_unit_test(cleaned_text_is_safe),
        cmocka_unit_test(each_error_has_an_exit_class),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sr_control_request_free(request);
    return failed;
}
