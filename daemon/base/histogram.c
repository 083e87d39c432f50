/* histogram.c - log-linear buckets.
 *
 * bucket = 16 * (position of the highest bit - 3) + the four bits below it; values under 16 are their own bucket.
 */
#include "base/histogram.h"

#include <string.h>

#include "base/assert.h"
#include "base/checked.h"

static unsigned bucket_of(uint64_t value)
{
    if (value < SR_HISTOGRAM_SUB)
        return (unsigned)value;
    unsigned top_bit = 63 - (unsigned)__builtin_clzll(value);
    return SR_HISTOGRAM_SUB * (top_bit - 3) + (unsigned)(value >> (top_bit - 4) & (SR_HISTOGRAM_SUB - 1));
}

uint64_t sr_histogram_bucket_top(unsigned bucket)
{
    SR_ASSERT(bucket < SR_HISTOGRAM_BUCKETS);
    if (bucket < SR_HISTOGRAM_SUB)
        return bucket;
    unsigned top_bit = bucket / SR_HISTOGRAM_SUB + 3;
    uint64_t start = (UINT64_C(1) << top_bit) + ((uint64_t)(bucket % SR_HISTOGRAM_SUB) << (top_bit - 4));
    return start + ((UINT64_C(1) << (top_bit - 4)) - 1);
}

void sr_histogram_reset(struct sr_histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
}

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return sr_add_u64(a, b, &sum) ? sum : UINT64_MAX;
}

void sr_histogram_add(struct sr_histogram *histogram, uint64_t value)
{
    if (histogram->count == 0 || value < histogram->min)
        histogram->min = value;
    if (histogram->count == 0 || value > histogram->max)
        histogram->max = value;
    histogram->count++;
    histogram->sum = add_saturating(histogram->sum, value);
    histogram->buckets[bucket_of(value)]++;
}

void sr_histogram_merge(struct sr_histogram *into, const struct sr_histogram *from)
{
    if (from->count == 0)
        return;
    if (into->count == 0 || from->min < into->min)
        into->min = from->min;
    if (into->count == 0 || from->max > into->max)
        into->max = from->max;
    into->count += from->count;
    into->sum = add_saturating(into->sum, from->sum);
    for (unsigned i = 0; i < SR_HISTOGRAM_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

uint64_t sr_histogram_percentile(const struct sr_histogram *histogram, unsigned permille)
{
    SR_ASSERT(permille <= 1000);
    if (histogram->count == 0)
        return 0;
    /* how many values must be covered, rounded up, without overflow */
    uint64_t need = histogram->count / 1000 * permille + (histogram->count % 1000 * permille + 999) / 1000;
    uint64_t seen = 0;
    if (need == 0)
        return histogram->min;
    for (unsigned i = 0; i < SR_HISTOGRAM_BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= need) {
            uint64_t top = sr_histogram_bucket_top(i);
            return top < histogram->max ? top : histogram->max;
        }
    }
    return histogram->max;
}

uint64_t sr_histogram_count_to(const struct sr_histogram *histogram, uint64_t bound)
{
    uint64_t seen = 0;

    for (unsigned i = 0; i < SR_HISTOGRAM_BUCKETS && sr_histogram_bucket_top(i) <= bound; i++)
        seen += histogram->buckets[i];
    return seen;
}
