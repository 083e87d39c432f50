/* log_limit.c - the table behind sr_log_limited.  Pure: the time comes in.
 *
 * Invariants
 *   1. A key has at most one entry.
 *   2. Between two lines of one key lie at least SR_LOG_LIMIT_INTERVAL_MS, unless it was cleared or forgotten.
 *   3. A repeat is told once: with the next line, when due, when cleared, or when its entry is forgotten.
 */
#include "base/log_internal.h"

#include <stdio.h>
#include <string.h>

static struct sr_log_limit_entry *find(struct sr_log_limits *limits, const char *key)
{
    for (size_t i = 0; i < SR_LOG_LIMIT_KEYS; i++) {
        struct sr_log_limit_entry *entry = &limits->entries[i];
        if (entry->used && strncmp(entry->key, key, SR_LOG_LIMIT_KEY_BYTES - 1) == 0)
            return entry;
    }
    return NULL;
}

/* A free entry, else the one quiet for longest. */
static struct sr_log_limit_entry *pick(struct sr_log_limits *limits)
{
    struct sr_log_limit_entry *oldest = &limits->entries[0];

    for (size_t i = 0; i < SR_LOG_LIMIT_KEYS; i++) {
        struct sr_log_limit_entry *entry = &limits->entries[i];
        if (!entry->used)
            return entry;
        if (entry->logged_ms < oldest->logged_ms)
            oldest = entry;
    }
    return oldest;
}

static bool is_due(const struct sr_log_limit_entry *entry, uint64_t now_ms)
{
    return now_ms >= entry->logged_ms && now_ms - entry->logged_ms >= SR_LOG_LIMIT_INTERVAL_MS;
}

bool sr_log_limits_hit(struct sr_log_limits *limits, uint64_t now_ms, enum sr_log_level level, const char *key,
                       const char *text, uint64_t *repeats, struct sr_log_limit_entry *evicted)
{
    struct sr_log_limit_entry *entry = find(limits, key);

    *repeats = 0;
    evicted->used = false;
    if (entry != NULL && !is_due(entry, now_ms)) {
        entry->repeats++;
        entry->level = level;
        snprintf(entry->text, sizeof(entry->text), "%s", text);
        return false;
    }
    if (entry == NULL) {
        entry = pick(limits);
        if (entry->used && entry->repeats > 0)
            *evicted = *entry;
        entry->used = true;
        entry->repeats = 0;
        snprintf(entry->key, sizeof(entry->key), "%s", key);
    }
    *repeats = entry->repeats;
    entry->repeats = 0;
    entry->level = level;
    entry->logged_ms = now_ms;
    return true;
}

bool sr_log_limits_due(struct sr_log_limits *limits, uint64_t now_ms, struct sr_log_limit_entry *due,
                       uint64_t *next_ms)
{
    *next_ms = UINT64_MAX;
    for (size_t i = 0; i < SR_LOG_LIMIT_KEYS; i++) {
        struct sr_log_limit_entry *entry = &limits->entries[i];
        if (!entry->used || entry->repeats == 0)
            continue;
        if (is_due(entry, now_ms)) {
            *due = *entry;
            entry->repeats = 0;
            entry->logged_ms = now_ms;
            return true;
        }
        if (entry->logged_ms + SR_LOG_LIMIT_INTERVAL_MS < *next_ms)
            *next_ms = entry->logged_ms + SR_LOG_LIMIT_INTERVAL_MS;
    }
    return false;
}

bool sr_log_limits_clear(struct sr_log_limits *limits, const char *key, struct sr_log_limit_entry *cleared)
{
    struct sr_log_limit_entry *entry = find(limits, key);

    if (entry == NULL)
        return false;
    *cleared = *entry;
    entry->used = false;
    return cleared->repeats > 0;
}
