/* Histograms: every value lands in a bucket that covers it, percentiles are never too low. */
#include "cmocka_all.h"

#include <string.h>

#include "base/histogram.h"

static struct sr_histogram histogram, other; /* too large for a stack frame */

static void buckets_cover_every_value_once(void **state)
{
    (void)state;
    for (unsigned i = 1; i < SR_HISTOGRAM_BUCKETS; i++)
        assert_true(sr_histogram_bucket_top(i) > sr_histogram_bucket_top(i - 1));
    assert_true(sr_histogram_bucket_top(SR_HISTOGRAM_BUCKETS - 1) == UINT64_MAX);
    for (unsigned i = 0; i < SR_HISTOGRAM_BUCKETS; i++) {
        uint64_t top = sr_histogram_bucket_top(i);
        sr_histogram_reset(&histogram);
        sr_histogram_add(&histogram, top);
        assert_int_equal(histogram.buckets[i], 1);
        if (i > 0) {
            sr_histogram_add(&histogram, sr_histogram_bucket_top(i - 1) + 1);
            assert_int_equal(histogram.buckets[i], 2);
        }
    }
}

static void percentiles_are_close_and_not_too_low(void **state)
{
    (void)state;
    sr_histogram_reset(&histogram);
    assert_int_equal(sr_histogram_percentile(&histogram, 500), 0);
    for (uint64_t i = 1; i <= 3; i++)
        sr_histogram_add(&histogram, i);
    assert_int_equal(sr_histogram_percentile(&histogram, 500), 2); /* one of three is not half of them */
    assert_int_equal(sr_histogram_percentile(&histogram, 667), 3);
    sr_histogram_reset(&histogram);
    for (uint64_t i = 1; i <= 100000; i++)
        sr_histogram_add(&histogram, i);
    for (unsigned permille = 1; permille <= 1000; permille++) {
        uint64_t exact = UINT64_C(100) * permille, found = sr_histogram_percentile(&histogram, permille);
        assert_true(found >= exact && found <= exact + exact / 16 + 1);
    }
    assert_int_equal(sr_histogram_percentile(&histogram, 0), 1);
    assert_int_equal(sr_histogram_percentile(&histogram, 1000), 100000);
    assert_int_equal(histogram.sum, UINT64_C(100000) * 100001 / 2);
}

static void merging_adds_up(void **state)
{
    (void)state;
    sr_histogram_reset(&histogram);
    sr_histogram_reset(&other);
    sr_histogram_merge(&histogram, &other);
    assert_int_equal(histogram.count, 0);
    sr_histogram_add(&other, 5);
    sr_histogram_add(&other, 5000);
    sr_histogram_merge(&histogram, &other);
    sr_histogram_add(&histogram, 3);
    assert_int_equal(histogram.count, 3);
    assert_int_equal(histogram.min, 3);
    assert_int_equal(histogram.max, 5000);
    assert_int_equal(sr_histogram_count_to(&histogram, 5), 2);
    assert_int_equal(sr_histogram_count_to(&histogram, UINT64_MAX), 3);
}

static void the_sum_saturates(void **state)
{
    (void)state;
    sr_histogram_reset(&histogram);
    sr_histogram_add(&histogram, UINT64_MAX);
    sr_histogram_add(&histogram, UINT64_MAX);
    assert_true(histogram.sum == UINT64_MAX);
    assert_true(sr_histogram_percentile(&histogram, 999) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_cover_every_value_once),
        cmocka_unit_test(percentiles_are_close_and_not_too_low),
        cmocka_unit_test(merging_adds_up),
        cmocka_unit_test(the_sum_saturates),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
