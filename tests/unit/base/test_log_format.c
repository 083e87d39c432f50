/* Log lines: one line whatever the bytes, valid JSON whatever the bytes; repeated reasons. */
#include "cmocka_all.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/log_internal.h"

static char line[SR_LOG_LINE_BYTES + 1];

static const char *format(enum sr_log_level level, enum sr_log_format how, const char *message)
{
    size_t n = sr_log_format_line(line, level, how, UINT64_C(1767225599123), message);

    assert_true(n > 0 && n <= SR_LOG_LINE_BYTES);
    line[n] = '\0';
    assert_int_equal(strlen(line), n);
    assert_ptr_equal(strchr(line, '\n'), line + n - 1); /* exactly one line */
    return line;
}

static void text_lines_carry_the_priority(void **state)
{
    (void)state;
    assert_string_equal(format(SR_LOG_ERROR, SR_LOG_TEXT, "disk died"), "<3>disk died\n");
    assert_string_equal(format(SR_LOG_WARNING, SR_LOG_TEXT, "x"), "<4>x\n");
    assert_string_equal(format(SR_LOG_NOTICE, SR_LOG_TEXT, "x"), "<5>x\n");
    assert_string_equal(format(SR_LOG_INFO, SR_LOG_TEXT, ""), "<6>\n");
    assert_string_equal(format(SR_LOG_DEBUG, SR_LOG_TEXT, "x"), "<7>x\n");
}

static void nobody_forges_a_second_line(void **state)
{
    (void)state;
    assert_string_equal(format(SR_LOG_INFO, SR_LOG_TEXT, "a\n<0>b\r\t\x1b[31m\x7f \xff\xc3\xa4"),
                        "<6>a\\n<0>b\\x0d\\t\\x1b[31m\\x7f \\xff\xc3\xa4\n");
}

static void json_lines_have_three_members(void **state)
{
    (void)state;
    assert_string_equal(format(SR_LOG_ERROR, SR_LOG_JSON, "a \"b\" \\ \n\x01 \xc3\xa4 \xed\xa0\x80."),
                        "{\"ts\":\"2025-12-31T23:59:59.123Z\",\"level\":\"error\","
                        "\"msg\":\"a \\\"b\\\" \\\\ \\n\\u0001 \xc3\xa4 \\ufffd\\ufffd\\ufffd.\"}\n");
}

static void json_is_valid_for_any_bytes_and_any_cut(void **state)
{
    char message[6000];
    uint32_t random = 12345;

    (void)state;
    for (int round = 0; round < 300; round++) {
        size_t n = (size_t)round * 20;
        for (size_t i = 0; i < n; i++) {
            random = random * 1664525u + 1013904223u;
            message[i] = (char)(random >> 24);
            if (message[i] == '\0')
                message[i] = '"';
            if (round % 3 == 0 && i % 2 == 0)
                message[i] = (char)(round % 2 ? 0xc3 : 0x01);
        }
        message[n] = '\0';
        json_error_t error;
        json_t *parsed = json_loads(format(SR_LOG_INFO, SR_LOG_JSON, message), JSON_REJECT_DUPLICATES, &error);
        assert_non_null(parsed);
        assert_true(json_is_string(json_object_get(parsed, "msg")));
        json_decref(parsed);
    }
}

static void level_names_round_trip(void **state)
{
    enum sr_log_level level;

    (void)state;
    for (int i = SR_LOG_ERROR; i <= SR_LOG_DEBUG; i++) {
        assert_true(sr_log_level_parse(sr_log_level_name((enum sr_log_level)i), &level));
        assert_int_equal(level, i);
    }
    assert_false(sr_log_level_parse("loud", &level));
    assert_null(sr_log_level_name((enum sr_log_level)9));
}

/* ---- repeated reasons ---- */

static struct sr_log_limits limits;

static bool hit(uint64_t now_ms, const char *key, uint64_t *repeats, struct sr_log_limit_entry *evicted)
{
    return sr_log_limits_hit(&limits, now_ms, SR_LOG_INFO, key, "text", repeats, evicted);
}

static void a_repeated_reason_appears_once_a_minute(void **state)
{
    struct sr_log_limit_entry entry;
    uint64_t repeats, next;
    int lines = 0;

    (void)state;
    memset(&limits, 0, sizeof(limits));
    for (uint64_t now = 1000; now < 1000 + 3 * 60000; now += 10)
        lines += hit(now, "refused", &repeats, &entry);
    assert_int_equal(lines, 3);
    assert_true(hit(1000 + 3 * 60000, "refused", &repeats, &entry));
    assert_int_equal(repeats, 5999);
    assert_true(hit(1000 + 3 * 60000, "another", &repeats, &entry));
    assert_int_equal(repeats, 0);
    assert_false(sr_log_limits_due(&limits, 1000 + 4 * 60000, &entry, &next));
    assert_true(next == UINT64_MAX);
}

static void a_count_is_told_even_if_the_reason_stops(void **state)
{
    struct sr_log_limit_entry entry;
    uint64_t repeats, next;

    (void)state;
    memset(&limits, 0, sizeof(limits));
    assert_true(hit(5000, "k", &repeats, &entry));
    assert_false(hit(6000, "k", &repeats, &entry));
    assert_false(sr_log_limits_due(&limits, 7000, &entry, &next));
    assert_int_equal(next, 65000);
    assert_true(sr_log_limits_due(&limits, 65000, &entry, &next));
    assert_int_equal(entry.repeats, 1);
    assert_false(sr_log_limits_due(&limits, 65000, &entry, &next));
}

static void clearing_a_reason_lets_it_appear_again(void **state)
{
    struct sr_log_limit_entry entry;
    uint64_t repeats;

    (void)state;
    memset(&limits, 0, sizeof(limits));
    assert_true(hit(0, "k", &repeats, &entry));
    assert_false(sr_log_limits_clear(&limits, "k", &entry)); /* nothing untold */
    assert_true(hit(1, "k", &repeats, &entry));
    assert_false(hit(2, "k", &repeats, &entry));
    assert_true(sr_log_limits_clear(&limits, "k", &entry));
    assert_int_equal(entry.repeats, 1);
    assert_false(sr_log_limits_clear(&limits, "k", &entry));
}

static void the_table_is_bounded_and_loses_no_count(void **state)
{
    struct sr_log_limit_entry entry;
    uint64_t repeats, told = 0, counted = 0;
    char key[32];

    (void)state;
    memset(&limits, 0, sizeof(limits));
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(key, sizeof(key), "key-%u", i);
        assert_true(hit(i, key, &repeats, &entry));
        told += entry.used ? entry.repeats : 0;
        counted += !hit(i, key, &repeats, &entry);
    }
    for (unsigned i = 0; i < SR_LOG_LIMIT_KEYS; i++)
        told += limits.entries[i].repeats;
    assert_int_equal(counted, 1000);
    assert_int_equal(told, counted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_lines_carry_the_priority),
        cmocka_unit_test(nobody_forges_a_second_line),
        cmocka_unit_test(json_lines_have_three_members),
        cmocka_unit_test(json_is_valid_for_any_bytes_and_any_cut),
        cmocka_unit_test(level_names_round_trip),
        cmocka_unit_test(a_repeated_reason_appears_once_a_minute),
        cmocka_unit_test(a_count_is_told_even_if_the_reason_stops),
        cmocka_unit_test(clearing_a_reason_lets_it_appear_again),
        cmocka_unit_test(the_table_is_bounded_and_loses_no_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
