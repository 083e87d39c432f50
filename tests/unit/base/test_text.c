/* Names, sizes and durations. */
#include "cmocka_all.h"

#include <string.h>

#include "base/names.h"
#include "base/size.h"
#include "base/units.h"

static void good_names_pass(void **state)
{
    char longest[SR_NAME_BYTES];

    (void)state;
    memset(longest, 'x', SR_NAME_MAX_BYTES);
    longest[SR_NAME_MAX_BYTES] = '\0';
    assert_true(sr_name_valid("a", NULL));
    assert_true(sr_name_valid("vm-1.root_DISK", NULL));
    assert_true(sr_name_valid("_x", NULL));
    assert_true(sr_name_valid("9", NULL));
    assert_true(sr_name_valid(longest, NULL));
}

static void names_that_are_unsafe_as_files_are_refused(void **state)
{
    static const char *const bad[] = {"",    ".",   "..",       ".x",  "-x", "a/b",
                                      "a b", "a\n", "\xc3\xa4", "a:b", "a%", "a\x7f"};
    char too_long[SR_NAME_MAX_BYTES + 2];
    const char *why;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        why = NULL;
        assert_false(sr_name_valid(bad[i], &why));
        assert_non_null(why);
    }
    memset(too_long, 'x', sizeof(too_long) - 1);
    too_long[sizeof(too_long) - 1] = '\0';
    assert_false(sr_name_valid(too_long, &why));
    assert_string_equal(why, "a name has at most 64 characters");
}

static void sizes_are_binary(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"4096", 4096},
        {"4096B", 4096},
        {"1K", 1024},
        {"512M", 512 * SR_MIB},
        {"10GiB", 10 * SR_GIB},
        {"10 gib", 10 * SR_GIB},
        {"64TiB", 64 * SR_TIB},
        {"16777215T", 16777215 * SR_TIB},
        {"18446744073709551615", UINT64_MAX},
    };
    uint64_t bytes;

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(sr_size_parse(good[i].text, &bytes, NULL));
        assert_true(bytes == good[i].bytes);
    }
}

static void bad_sizes_say_what_was_expected(void **state)
{
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "not a size"},
        {"GiB", "not a size"},
        {" 1", "not a size"},
        {"0x10", "unknown unit"},
        {"-1", "sign"},
        {"+1", "sign"},
        {"1.5GiB", "whole number"},
        {"1,5G", "whole number"},
        {"1KB", "decimal units"},
        {"1gb", "decimal units"},
        {"1P", "unknown unit"},
        {"1 ", "unknown unit"},
        {"1  K", "unknown unit"},
        {"1KiBx", "unknown unit"},
        {"1 K ", "unknown unit"},
        {"1e3", "unknown unit"},
        {"16777216T", "64 bits"},
        {"18446744073709551616", "64 bits"},
    };
    uint64_t bytes = 77;
    const char *why;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(sr_size_parse(bad[i].text, &bytes, &why));
        assert_non_null(strstr(why, bad[i].why));
    }
    assert_int_equal(bytes, 77);
}

static void durations_need_a_unit(void **state)
{
    uint64_t ms = 0;
    const char *why;

    (void)state;
    assert_true(sr_duration_parse("500ms", &ms, NULL) && ms == 500);
    assert_true(sr_duration_parse("5s", &ms, NULL) && ms == 5000);
    assert_true(sr_duration_parse("5 s", &ms, NULL) && ms == 5000);
    assert_true(sr_duration_parse("1m", &ms, NULL) && ms == 60000);
    assert_true(sr_duration_parse("2min", &ms, NULL) && ms == 120000);
    assert_true(sr_duration_parse("1h", &ms, NULL) && ms == 3600000);
    assert_true(sr_duration_parse("0", &ms, NULL) && ms == 0);
    assert_false(sr_duration_parse("5", &ms, &why));
    assert_non_null(strstr(why, "missing unit"));
    assert_false(sr_duration_parse("1.5s", &ms, &why));
    assert_non_null(strstr(why, "whole number"));
    assert_false(sr_duration_parse("5sec", &ms, NULL));
    assert_false(sr_duration_parse("-5s", &ms, NULL));
    assert_false(sr_duration_parse("99999999999999999h", &ms, &why));
    assert_non_null(strstr(why, "64 bits"));
}

static void sizes_print_for_people(void **state)
{
    char text[SR_SIZE_TEXT_BYTES];

    (void)state;
    assert_string_equal(sr_size_format(0, text), "0 B");
    assert_string_equal(sr_size_format(1023, text), "1023 B");
    assert_string_equal(sr_size_format(1024, text), "1 KiB");
    assert_string_equal(sr_size_format(1536 * SR_MIB, text), "1.5 GiB");
    assert_string_equal(sr_size_format(SR_GIB - 1, text), "1023.9 MiB");
    assert_string_equal(sr_size_format(64 * SR_TIB, text), "64 TiB");
    assert_string_equal(sr_size_format(UINT64_MAX, text), "15.9 EiB");
}

static void durations_print_for_people(void **state)
{
    char text[SR_SIZE_TEXT_BYTES];

    (void)state;
    assert_string_equal(sr_duration_format(0, text), "0 ms");
    assert_string_equal(sr_duration_format(250, text), "250 ms");
    assert_string_equal(sr_duration_format(1500, text), "1.5 s");
    assert_string_equal(sr_duration_format(5000, text), "5 s");
    assert_string_equal(sr_duration_format(59999, text), "59 s");
    assert_string_equal(sr_duration_format(125000, text), "2 m 5 s");
    assert_string_equal(sr_duration_format(12000000, text), "3 h 20 m");
    assert_string_equal(sr_duration_format(UINT64_C(98) * 3600000, text), "4 d 2 h");
    sr_duration_format(UINT64_MAX, text);
    assert_true(strlen(text) < SR_SIZE_TEXT_BYTES - 1);
}

static void exact_forms_read_back_as_the_same_number(void **state)
{
    static const uint64_t numbers[] = {0, 1, 999, 1000, 1024, 1500, 60000, 61000, 4096, 512 * SR_MIB, UINT64_MAX};
    char text[SR_SIZE_TEXT_BYTES];
    uint64_t back;

    (void)state;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        assert_true(sr_size_parse(sr_size_format_exact(numbers[i], text), &back, NULL));
        assert_true(back == numbers[i]);
        assert_true(sr_duration_parse(sr_duration_format_exact(numbers[i], text), &back, NULL));
        assert_true(back == numbers[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_names_pass),
        cmocka_unit_test(names_that_are_unsafe_as_files_are_refused),
        cmocka_unit_test(sizes_are_binary),
        cmocka_unit_test(bad_sizes_say_what_was_expected),
        cmocka_unit_test(durations_need_a_unit),
        cmocka_unit_test(sizes_print_for_people),
        cmocka_unit_test(durations_print_for_people),
        cmocka_unit_test(exact_forms_read_back_as_the_same_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
