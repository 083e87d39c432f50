/* Limits that can be tuned: units, bounds, and messages that say what was expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "control/tune.h"

static char text[200];

static void accepts(const char *key, const char *value, enum sr_tune_key which, uint64_t number)
{
    enum sr_tune_key got_which = (enum sr_tune_key)99;
    uint64_t got = 0;

    assert_int_equal(sr_tune_parse(key, value, &got_which, &got, text, sizeof(text)), SR_OK);
    assert_int_equal(got_which, which);
    assert_int_equal(got, number);
}

static void refuses(const char *key, const char *value, const char *words)
{
    enum sr_tune_key which;
    uint64_t number = 7;

    assert_int_equal(sr_tune_parse(key, value, &which, &number, text, sizeof(text)), SR_E_INVALID);
    assert_int_equal(number, 7);
    assert_non_null(strstr(text, words));
}

static void units_are_understood(void **state)
{
    (void)state;
    accepts("resync_min_rate", "4MiB", SR_TUNE_RESYNC_MIN_RATE, 4 << 20);
    accepts("resync_max_rate", "0", SR_TUNE_RESYNC_MAX_RATE, 0);
    accepts("resync_latency_factor", "200", SR_TUNE_RESYNC_LATENCY_FACTOR, 200);
    accepts("resync_latency_factor", "150%", SR_TUNE_RESYNC_LATENCY_FACTOR, 150);
    accepts("resync_latency_factor", "100", SR_TUNE_RESYNC_LATENCY_FACTOR, 100);
    accepts("resync_latency_factor", "2.0", SR_TUNE_RESYNC_LATENCY_FACTOR, 200);
    accepts("resync_latency_factor", "2", SR_TUNE_RESYNC_LATENCY_FACTOR, 200);
    accepts("resync_latency_factor", "1.05", SR_TUNE_RESYNC_LATENCY_FACTOR, 105);
    accepts("resync_latency_factor", "100.0", SR_TUNE_RESYNC_LATENCY_FACTOR, 10000);
    accepts("stall_budget", "1500ms", SR_TUNE_STALL_BUDGET, 1500);
}

static void nonsense_is_refused_with_what_was_expected(void **state)
{
    (void)state;
    refuses("nokey", "1", "stall_budget");
    refuses("resync_min_rate", "0", "64KiB");
    refuses("resync_min_rate", "fast", "4MiB");
    refuses("resync_max_rate", "2TiB", "no limit");
    refuses("resync_latency_factor", "0.9", "percent");
    refuses("resync_latency_factor", "99%", "factor from 1.0");
    refuses("resync_latency_factor", "100.1", "percent");
    refuses("resync_latency_factor", "2.", "percent");
    refuses("resync_latency_factor", ".5", "percent");
    refuses("resync_latency_factor", "2.000", "percent");
    refuses("resync_latency_factor", "99999999999999999999", "percent");
    refuses("resync_latency_factor", "", "percent");
    refuses("stall_budget", "5", "duration");
    refuses("stall_budget", "0", "100ms");
    refuses("stall_budget", "11m", "10m");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_are_understood),
        cmocka_unit_test(nonsense_is_refused_with_what_was_expected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
