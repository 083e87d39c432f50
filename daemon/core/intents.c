/* intents.c - see intents.h.
 *
 * Invariants
 *   I1  An entry with refs > 0 is SETTING or DURABLE, never COOLING.
 *   I2  The idle list and the cached list hold exactly the entries with refs == 0 that are not COOLING: those
 *       that are not cached, by idle_since_us, and those that are.
 */
#include "core/intents.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define BUCKETS 1024u

bool sr_intents_init(struct sr_intents *intents)
{
    memset(intents, 0, sizeof *intents);
    TAILQ_INIT(&intents->idle);
    TAILQ_INIT(&intents->cached);
    TAILQ_INIT(&intents->all);
    intents->n_buckets = BUCKETS;
    return true; /* the table is made with the first entry: an idle collection costs nothing */
}

void sr_intents_clear(struct sr_intents *intents)
{
    struct sr_intent *intent;
    while ((intent = TAILQ_FIRST(&intents->all))) {
        SR_ASSERT(intent->refs == 0);
        sr_intents_remove(intents, intent);
    }
}

void sr_intents_free(struct sr_intents *intents)
{
    struct sr_intent *intent;
    while ((intent = TAILQ_FIRST(&intents->all))) {
        TAILQ_REMOVE(&intents->all, intent, all);
        free(intent);
    }
    free(intents->buckets);
    intents->buckets = NULL;
}

static void leave_idle(struct sr_intents *intents, struct sr_intent *intent)
{
    if (intent->is_cached) {
        TAILQ_REMOVE(&intents->cached, intent, idle);
        intents->n_cached--;
    } else {
        TAILQ_REMOVE(&intents->idle, intent, idle);
        intents->n_idle--;
    }
}

static uint32_t bucket_of(const struct sr_intents *intents, uint32_t volume, uint32_t region)
{
    uint64_t key = ((uint64_t)volume << 32 | region) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(key >> 40) & (intents->n_buckets - 1);
}

struct sr_intent *sr_intents_find(const struct sr_intents *intents, uint32_t volume, uint32_t region)
{
    if (!intents->buckets)
        return NULL;
    struct sr_intent *intent = intents->buckets[bucket_of(intents, volume, region)];
    while (intent && (intent->volume != volume || intent->region != region))
        intent = intent->next_in_bucket;
    return intent;
}

uint32_t sr_intents_missing(const struct sr_intents *intents, uint32_t volume, uint32_t first, uint32_t last)
{
    uint32_t missing = 0;
    for (uint32_t region = first; region <= last; region++)
        missing += !sr_intents_find(intents, volume, region);
    return missing;
}

struct sr_intent *sr_intents_take(struct sr_intents *intents, uint32_t volume, uint32_t region)
{
    struct sr_intent *intent = sr_intents_find(intents, volume, region);
    if (!intent) {
        if (!intents->buckets)
            intents->buckets = calloc(intents->n_buckets, sizeof *intents->buckets);
        intent = calloc(1, sizeof *intent);
        SR_ASSERT(intent && intents->buckets);
        intent->volume = volume;
        intent->region = region;
        intent->state = SR_INTENT_SETTING;
        struct sr_intent **bucket = &intents->buckets[bucket_of(intents, volume, region)];
        intent->next_in_bucket = *bucket;
        *bucket = intent;
        TAILQ_INSERT_TAIL(&intents->all, intent, all);
        intents->n++;
    } else if (intent->state == SR_INTENT_COOLING) {
        intent->state = SR_INTENT_SETTING; /* set again, after the commit that removes it */
        intent->commit = 0;
        intents->n_cooling--;
    } else if (intent->refs == 0) {
        leave_idle(intents, intent);
    }
    intent->refs++;
    return intent;
}

/* Those that come from the cached list have been idle for longer than some that are there already. */
static void insert_idle(struct sr_intents *intents, struct sr_intent *intent)
{
    struct sr_intent *later = TAILQ_LAST(&intents->idle, sr_intent_list);
    while (later && later->idle_since_us > intent->idle_since_us)
        later = TAILQ_PREV(later, sr_intent_list, idle);
    if (later)
        TAILQ_INSERT_AFTER(&intents->idle, later, intent, idle);
    else
        TAILQ_INSERT_HEAD(&intents->idle, intent, idle);
    intents->n_idle++;
}

void sr_intents_give(struct sr_intents *intents, struct sr_intent *intent, uint64_t now_us, uint64_t flush)
{
    SR_ASSERT(intent->refs > 0 && intent->state != SR_INTENT_COOLING);
    if (--intent->refs)
        return;
    intent->idle_since_us = now_us;
    intent->last_flush = flush;
    if (!intent->is_cached) {
        insert_idle(intents, intent);
        return;
    }
    TAILQ_INSERT_TAIL(&intents->cached, intent, idle);
    intents->n_cached++;
}

void sr_intents_write_cached(struct sr_intent *intent, uint32_t first, uint32_t end)
{
    SR_ASSERT(intent->refs > 0 && first < end && end <= SR_REGION_BLOCKS);
    intent->is_cached = true;
    for (uint32_t bit = first; bit < end; bit++)
        intent->cached[bit / 8] |= (uint8_t)(1u << (bit % 8));
}

void sr_intents_flushed(struct sr_intents *intents, struct sr_intent *intent)
{
    bool idle = intent->is_cached && intent->refs == 0;
    if (idle)
        leave_idle(intents, intent);
    intent->is_cached = intent->is_doubtful = false;
    memset(intent->cached, 0, sizeof intent->cached);
    memset(intent->doubtful, 0, sizeof intent->doubtful);
    if (idle)
        insert_idle(intents, intent);
}

struct sr_intent *sr_intents_coldest(struct sr_intents *intents)
{
    struct sr_intent *intent;
    TAILQ_FOREACH (intent, &intents->idle, idle)
        if (intent->state == SR_INTENT_DURABLE)
            return intent;
    return NULL;
}

void sr_intents_cool(struct sr_intents *intents, struct sr_intent *intent, uint64_t commit)
{
    SR_ASSERT(intent->refs == 0 && intent->state == SR_INTENT_DURABLE && !intent->is_cached);
    leave_idle(intents, intent);
    intents->n_cooling++;
    intent->state = SR_INTENT_COOLING;
    intent->commit = commit;
}

void sr_intents_remove(struct sr_intents *intents, struct sr_intent *intent)
{
    SR_ASSERT(intent->refs == 0);
    if (intent->state != SR_INTENT_COOLING)
        leave_idle(intents, intent);
    else
        intents->n_cooling--;
    struct sr_intent **link = &intents->buckets[bucket_of(intents, intent->volume, intent->region)];
    while (*link != intent)
        link = &(*link)->next_in_bucket;
    *link = intent->next_in_bucket;
    TAILQ_REMOVE(&intents->all, intent, all);
    intents->n--;
    free(intent);
}
