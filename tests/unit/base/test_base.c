/* Error codes, UUIDs, checked arithmetic, zero detection, assertions. */
#include "cmocka_all.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/uuid.h"
#include "base/zero.h"

static void every_error_has_its_name_and_text(void **state)
{
    (void)state;
    /* the name is the code without prefix, in lower case with dashes: what scripts see must not drift */
#define CHECK(code, wire, text)                                                                                      \
    do {                                                                                                             \
        char name[64];                                                                                               \
        const char *from = strcmp(#code, "SR_OK") == 0 ? "OK" : &#code[strlen("SR_E_")];                             \
        size_t i = 0;                                                                                                \
        for (; from[i] != '\0'; i++)                                                                                 \
            name[i] = from[i] == '_' ? '-' : (char)(from[i] + 32);                                                   \
        name[i] = '\0';                                                                                              \
        assert_string_equal(sr_error_name(code), name);                                                              \
        assert_string_equal(sr_error_text(code), text);                                                              \
        assert_int_equal(sr_error_from_wire(wire), code);                                                            \
    } while (0);
    SR_ERRORS(CHECK)
#undef CHECK
}

static void unknown_wire_numbers_read_as_unknown(void **state)
{
    (void)state;
    assert_int_equal(sr_error_from_wire(24), SR_E_UNKNOWN);
    assert_int_equal(sr_error_from_wire(UINT32_MAX), SR_E_UNKNOWN);
    assert_string_equal(sr_error_text((enum sr_error)4711), "unknown error");
    assert_string_equal(sr_error_name((enum sr_error)4711), "unknown");
}

static void errno_values_map_to_codes(void **state)
{
    (void)state;
    assert_int_equal(sr_error_from_errno(0), SR_OK);
    assert_int_equal(sr_error_from_errno(ENOSPC), SR_E_NO_SPACE);
    assert_int_equal(sr_error_from_errno(EDQUOT), SR_E_NO_SPACE);
    assert_int_equal(sr_error_from_errno(EIO), SR_E_IO);
    assert_int_equal(sr_error_from_errno(ECONNRESET), SR_E_UNREACHABLE);
    assert_int_equal(sr_error_from_errno(12345), SR_E_IO);
}

static void uuid_text_round_trips(void **state)
{
    static const char text[] = "6f1c0c1e-9b7a-4e52-8d35-00ff10a0b0c0";
    char back[SR_UUID_TEXT_BYTES];
    struct sr_uuid uuid;

    (void)state;
    assert_true(sr_uuid_parse(text, &uuid));
    assert_int_equal(uuid.b[0], 0x6f);
    assert_int_equal(uuid.b[15], 0xc0);
    assert_string_equal(sr_uuid_format(&uuid, back), text);
    assert_true(sr_uuid_parse("6F1C0C1E-9B7A-4E52-8D35-00FF10A0B0C0", &uuid));
    assert_string_equal(sr_uuid_format(&uuid, back), text);
}

static void uuid_refuses_everything_else(void **state)
{
    static const char *const bad[] = {
        "",
        "6",
        "6f1c0c1e",
        "6f1c0c1e-9b7a-4e52-8d35-00ff10a0b0c",
        "6f1c0c1e-9b7a-4e52-8d35-00ff10a0b0c00",
        "6f1c0c1e-9b7a-4e52-8d35-00ff10a0b0c0 ",
        " 6f1c0c1e-9b7a-4e52-8d35-00ff10a0b0c0",
        "6f1c0c1e09b7a-4e52-8d35-00ff10a0b0c0",
        "6f1c0c1e-9b7a-4e52-8d35-00ff10a0b0cg",
        "6f1c0c1e9b7a4e528d3500ff10a0b0c0",
        "{6f1c0c1e-9b7a-4e52-8d35-00ff10a0b0c0}",
    };
    struct sr_uuid uuid;

    (void)state;
    memset(&uuid, 0x5a, sizeof(uuid));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *copy = strdup(bad[i]); /* so that the sanitizer sees a read behind the end */
        assert_false(sr_uuid_parse(copy, &uuid));
        free(copy);
    }
    assert_int_equal(uuid.b[3], 0x5a);
}

static void fresh_uuids_are_version_4_and_differ(void **state)
{
    struct sr_uuid a, b;

    (void)state;
    sr_uuid_generate(&a);
    sr_uuid_generate(&b);
    assert_int_equal(a.b[6] >> 4, 4);
    assert_int_equal(a.b[8] >> 6, 2);
    assert_false(sr_uuid_equal(&a, &b));
    assert_false(sr_uuid_is_none(&a));
}

static void arithmetic_notices_overflow(void **state)
{
    uint64_t result;

    (void)state;
    assert_true(sr_add_u64(UINT64_MAX - 1, 1, &result));
    assert_true(result == UINT64_MAX);
    assert_false(sr_add_u64(UINT64_MAX, 1, &result));
    assert_false(sr_sub_u64(1, 2, &result));
    assert_true(sr_mul_u64(UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1, &result));
    assert_false(sr_mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &result));
}

static void ranges_never_wrap(void **state)
{
    (void)state;
    assert_true(sr_range_ok(0, 100, 100));
    assert_true(sr_range_ok(100, 0, 100));
    assert_true(sr_range_ok(99, 1, 100));
    assert_false(sr_range_ok(99, 2, 100));
    assert_false(sr_range_ok(101, 0, 100));
    assert_false(sr_range_ok(UINT64_MAX, 2, 100));
    assert_false(sr_range_ok(2, UINT64_MAX, 100));
    assert_true(sr_range_ok(0, UINT64_MAX, UINT64_MAX));
}

static void one_set_byte_anywhere_is_not_zero(void **state)
{
    uint8_t data[4096 + 3] = {0};

    (void)state;
    assert_true(sr_is_zero(data, 0));
    for (size_t length = 1; length < 80; length++) {
        assert_true(sr_is_zero(data + 1, length));
        for (size_t i = 0; i < length; i++) {
            data[1 + i] = 1;
            assert_false(sr_is_zero(data + 1, length));
            data[1 + i] = 0;
        }
        data[1 + length] = 1; /* just behind: of no account */
        assert_true(sr_is_zero(data + 1, length));
        data[1 + length] = 0;
    }
    assert_true(sr_is_zero(data, 4096));
    for (size_t i = 0; i < 4096; i++) {
        data[i] = 0x80;
        assert_false(sr_is_zero(data, 4096));
        data[i] = 0;
    }
}

static void a_failed_assertion_aborts(void **state)
{
    int status, nothing = 0;

    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        SR_ASSERT(nothing == 1);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_its_name_and_text), cmocka_unit_test(unknown_wire_numbers_read_as_unknown),
        cmocka_unit_test(errno_values_map_to_codes),         cmocka_unit_test(uuid_text_round_trips),
        cmocka_unit_test(uuid_refuses_everything_else),      cmocka_unit_test(fresh_uuids_are_version_4_and_differ),
        cmocka_unit_test(arithmetic_notices_overflow),       cmocka_unit_test(ranges_never_wrap),
        cmocka_unit_test(one_set_byte_anywhere_is_not_zero), cmocka_unit_test(a_failed_assertion_aborts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
