/* histogram.h - how long things took: counts in log-linear buckets.
 *
 * Values up to 15 have a bucket each; above, each power of two is cut into 16, so that a percentile is at most
 * 1/16 too high and never too low.  Fixed size, any 64-bit value.  The struct may be copied and zeroed.
 */
#ifndef SR_BASE_HISTOGRAM_H
#define SR_BASE_HISTOGRAM_H

#include <stdint.h>

#define SR_HISTOGRAM_SUB 16
#define SR_HISTOGRAM_BUCKETS ((64 - 4 + 1) * SR_HISTOGRAM_SUB)

struct sr_histogram {
    uint64_t count, sum, min, max; /* min and max are valid once count > 0; sum saturates */
    uint64_t buckets[SR_HISTOGRAM_BUCKETS];
};

void sr_histogram_reset(struct sr_histogram *histogram);

void sr_histogram_add(struct sr_histogram *histogram, uint64_t value);

/* into += from */
void sr_histogram_merge(struct sr_histogram *into, const struct sr_histogram *from);

/* The smallest value that `permille` thousandths of the values do not exceed, rounded up to the end of its bucket
 * and never above max: 500 is the median, 999 the 99.9th percentile.  0 if there are no values. */
uint64_t sr_histogram_percentile(const struct sr_histogram *histogram, unsigned permille);

/* Values counted in buckets that lie wholly at or below `bound`; for cumulative metrics. */
uint64_t sr_histogram_count_to(const struct sr_histogram *histogram, uint64_t bound);

/* The largest value of a bucket. */
uint64_t sr_histogram_bucket_top(unsigned bucket);

#endif
