/* tune.c - the limits that can be changed while the daemon runs.  Pure: text in, number out. */
#include "control/tune.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "base/units.h"

enum kind { RATE, PERCENT, DURATION };

struct key {
    enum sr_tune_key which;
    enum kind kind;
    const char *name;
    uint64_t least, most;
    bool zero_too; /* 0 means "no limit" */
    const char *expected;
};

static const struct key keys[] = {
    {SR_TUNE_RESYNC_MIN_RATE, RATE, "resync_min_rate", 64 * SR_KIB, SR_TIB, false,
     "bytes a second from 64KiB to 1TiB, such as 4MiB"},
    {SR_TUNE_RESYNC_MAX_RATE, RATE, "resync_max_rate", 64 * SR_KIB, SR_TIB, true,
     "bytes a second from 64KiB to 1TiB, such as 200MiB, or 0 for no limit"},
    {SR_TUNE_RESYNC_LATENCY_FACTOR, PERCENT, "resync_latency_factor", 100, 10000, false,
     "a factor from 1.0 to 100.0, such as 2.0, or percent from 100 to 10000, such as 200"},
    {SR_TUNE_STALL_BUDGET, DURATION, "stall_budget", 100, 600000, false, "a duration from 100ms to 10m, such as 5s"},
};

/* "2", "2.0", "2.75": with a point, or below any percentage that is allowed. */
static bool parse_factor(const char *text, uint64_t *percent)
{
    uint64_t whole = 0, parts = 0;
    size_t n = 0, places = 0;

    for (; text[n] >= '0' && text[n] <= '9' && n < 4; n++)
        whole = whole * 10 + (uint64_t)(text[n] - '0');
    if (n == 0)
        return false;
    bool point = text[n] == '.';
    for (n += point; point && text[n] >= '0' && text[n] <= '9' && places < 2; n++, places++)
        parts = parts * 10 + (uint64_t)(text[n] - '0');
    if (text[n] != '\0' || (point && places == 0) || (!point && whole >= 100))
        return false;
    *percent = whole * 100 + (places == 1 ? parts * 10 : parts);
    return true;
}

static bool parse_percent(const char *text, uint64_t *number)
{
    uint64_t sum = 0;
    size_t n = 0;

    for (; text[n] >= '0' && text[n] <= '9' && n < 7; n++)
        sum = sum * 10 + (uint64_t)(text[n] - '0');
    if (n == 0 || (text[n] != '\0' && strcmp(text + n, "%") != 0))
        return false;
    *number = sum;
    return true;
}

enum sr_error sr_tune_parse(const char *key, const char *value, enum sr_tune_key *which, uint64_t *number,
                            char *error_text, size_t error_text_bytes)
{
    const struct key *found = NULL;
    uint64_t parsed = 0;
    bool ok = false;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (strcmp(keys[i].name, key) == 0)
            found = &keys[i];
    if (!found) {
        snprintf(error_text, error_text_bytes,
                 "'%.64s' cannot be tuned; known: resync_min_rate, resync_max_rate, resync_latency_factor, "
                 "stall_budget",
                 key);
        return SR_E_INVALID;
    }
    if (found->kind == RATE)
        ok = sr_size_parse(value, &parsed, NULL);
    else if (found->kind == DURATION)
        ok = sr_duration_parse(value, &parsed, NULL);
    else
        ok = parse_factor(value, &parsed) || parse_percent(value, &parsed);
    if (!ok || !((parsed >= found->least && parsed <= found->most) || (parsed == 0 && found->zero_too))) {
        snprintf(error_text, error_text_bytes, "%s: '%.64s' is not %s", found->name, value, found->expected);
        return SR_E_INVALID;
    }
    *which = found->which;
    *number = parsed;
    return SR_OK;
}
