/* The resync's rate: free when no host writes, bounded by the hosts' latency else, never under the minimum. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/throttle.h"

#define MIB (UINT64_C(1) << 20)

/* Runs ten seconds in which every host write takes `latency_us`; returns the bytes that might start. */
static uint64_t ten_seconds(struct sr_throttle *throttle, const struct sr_throttle_limits *limits, uint64_t *now,
                            uint64_t latency_us, bool hosts)
{
    uint64_t moved = 0;
    for (int i = 0; i < 10000; i++) {
        *now += 1000;
        if (hosts)
            sr_throttle_host_write(throttle, *now, latency_us, true);
        for (int n = 0; n < 64 && sr_throttle_may_start(throttle, limits, *now); n++) {
            sr_throttle_spend(throttle, MIB);
            moved += MIB;
        }
    }
    return moved;
}

static void hosts_come_first(void **state)
{
    (void)state;
    struct sr_throttle throttle = {0};
    struct sr_throttle_limits limits = {4 * MIB, 0, 200};
    uint64_t now = 1000000;
    for (int i = 0; i < 100; i++)
        sr_throttle_host_write(&throttle, now, 1000, false); /* calm: 1 ms */
    sr_throttle_begin(&throttle, now);
    uint64_t disturbed = ten_seconds(&throttle, &limits, &now, 5000, true); /* five times slower */
    assert_in_range(disturbed, 10 * 4 * MIB * 8 / 10, 10 * 4 * MIB * 16 / 10); /* the minimum, no more */
    uint64_t calm = ten_seconds(&throttle, &limits, &now, 1200, true);
    assert_true(calm > 3 * disturbed);
}

static void the_minimum_is_kept_at_low_rates(void **state)
{
    (void)state;
    struct sr_throttle throttle = {0};
    struct sr_throttle_limits limits = {64 * 1024, 64 * 1024, 200};
    uint64_t now = 1000000, moved = 0;
    sr_throttle_begin(&throttle, now);
    for (int i = 0; i < 1000000; i++) { /* asked every 10 us: rounding must not starve it */
        now += 10;
        if (sr_throttle_may_start(&throttle, &limits, now)) {
            sr_throttle_spend(&throttle, 4096);
            moved += 4096;
        }
    }
    assert_in_range(moved, 10 * 64 * 1024 * 8 / 10, 10 * 64 * 1024 * 12 / 10);
}

static void alone_it_runs_free_up_to_the_maximum(void **state)
{
    (void)state;
    struct sr_throttle throttle = {0};
    struct sr_throttle_limits free_limits = {4 * MIB, 0, 200}, capped = {4 * MIB, 20 * MIB, 200};
    uint64_t now = 1000000;
    sr_throttle_begin(&throttle, now);
    assert_true(ten_seconds(&throttle, &free_limits, &now, 0, false) >= 10000 * 64 * MIB);
    sr_throttle_begin(&throttle, now);
    assert_in_range(ten_seconds(&throttle, &capped, &now, 0, false), 10 * 18 * MIB, 10 * 22 * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_come_first),
        cmocka_unit_test(the_minimum_is_kept_at_low_rates),
        cmocka_unit_test(alone_it_runs_free_up_to_the_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
