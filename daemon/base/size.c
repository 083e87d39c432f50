/* size.c - reads and writes sizes and durations.  Pure; the locale plays no part. */
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <strings.h>

#include "base/checked.h"
#include "base/units.h"

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},       {"B", 1},        {"K", SR_KIB}, {"KiB", SR_KIB}, {"M", SR_MIB}, {"MiB", SR_MIB},
    {"G", SR_GIB}, {"GiB", SR_GIB}, {"T", SR_TIB}, {"TiB", SR_TIB}, {NULL, 0},
};

static const struct unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"min", 60 * 1000}, {"h", 3600 * 1000}, {NULL, 0},
};

struct wording {
    const char *no_number, *negative, *decimal, *decimal_unit, *bad_unit, *too_large;
};

static const struct wording size_wording = {
    .no_number = "not a size: expected a number with an optional unit K, M, G or T, like 10GiB",
    .negative = "a size cannot have a sign: expected a number with an optional unit, like 10GiB",
    .decimal = "a size must be a whole number: write 1536MiB, not 1.5GiB",
    .decimal_unit = "decimal units are not used: write KiB, MiB, GiB or TiB (or K, M, G, T; they are binary)",
    .bad_unit = "unknown unit of size: expected K, M, G or T (or KiB, MiB, GiB, TiB)",
    .too_large = "the size does not fit in 64 bits",
};

static const struct wording duration_wording = {
    .no_number = "not a duration: expected a number with a unit ms, s, m or h, like 5s",
    .negative = "a duration cannot have a sign: expected a number with a unit, like 5s",
    .decimal = "a duration must be a whole number: write 1500ms, not 1.5s",
    .decimal_unit = NULL,
    .bad_unit = "unknown or missing unit of time: expected ms, s, m or h, like 5s",
    .too_large = "the duration does not fit in 64 bits",
};

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

/* The number at *text; moves *text behind it.  NULL, or what is wrong. */
static const char *parse_number(const char **text, const struct wording *wording, uint64_t *number)
{
    const char *at = *text;
    uint64_t value = 0;

    if (*at == '-' || *at == '+')
        return wording->negative;
    if (!digit(*at))
        return wording->no_number;
    for (; digit(*at); at++)
        if (!sr_mul_u64(value, 10, &value) || !sr_add_u64(value, (uint64_t)(*at - '0'), &value))
            return wording->too_large;
    if (*at == '.' || *at == ',')
        return wording->decimal;
    *text = at;
    *number = value;
    return NULL;
}

static bool is_decimal_unit(const char *name)
{
    return strcasecmp(name, "KB") == 0 || strcasecmp(name, "MB") == 0 || strcasecmp(name, "GB") == 0 ||
           strcasecmp(name, "TB") == 0;
}

static const char *parse(const char *text, const struct unit *units, const struct wording *wording, uint64_t *result)
{
    uint64_t number = 0, value;
    const char *fault = parse_number(&text, wording, &number);

    if (fault != NULL)
        return fault;
    if (*text == ' ' && text[1] != '\0')
        text++;
    for (const struct unit *unit = units; unit->name != NULL; unit++) {
        if (strcasecmp(text, unit->name) != 0)
            continue;
        if (!sr_mul_u64(number, unit->factor, &value))
            return wording->too_large;
        *result = value;
        return NULL;
    }
    if (number == 0 && *text == '\0') {
        *result = 0;
        return NULL;
    }
    if (wording->decimal_unit != NULL && is_decimal_unit(text))
        return wording->decimal_unit;
    return wording->bad_unit;
}

bool sr_size_parse(const char *text, uint64_t *bytes, const char **why)
{
    const char *fault = parse(text, size_units, &size_wording, bytes);

    if (why != NULL)
        *why = fault;
    return fault == NULL;
}

bool sr_duration_parse(const char *text, uint64_t *duration_ms, const char **why)
{
    const char *fault = parse(text, duration_units, &duration_wording, duration_ms);

    if (why != NULL)
        *why = fault;
    return fault == NULL;
}

const char *sr_size_format(uint64_t bytes, char text[SR_SIZE_TEXT_BYTES])
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = -1;

    while (unit < 5 && bytes >> (10 * (unit + 2)) > 0)
        unit++;
    if (unit < 0) {
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 " B", bytes);
        return text;
    }
    int shift = 10 * (unit + 1);
    uint64_t whole = bytes >> shift;
    /* the ten bits below the unit are enough for one decimal */
    unsigned tenth = (unsigned)((bytes >> (shift - 10) & 1023) * 10 / 1024);
    if (tenth == 0)
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 " %s", whole, names[unit]);
    else
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 ".%u %s", whole, tenth, names[unit]);
    return text;
}

const char *sr_size_format_exact(uint64_t bytes, char text[SR_SIZE_TEXT_BYTES])
{
    static const char *const names[] = {"", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;

    while (unit < 4 && bytes != 0 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 "%s", bytes, names[unit]);
    return text;
}

const char *sr_duration_format(uint64_t duration_ms, char text[SR_SIZE_TEXT_BYTES])
{
    uint64_t s = duration_ms / 1000;
    unsigned tenth = (unsigned)(duration_ms % 1000 / 100);

    if (duration_ms < 1000)
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 " ms", duration_ms);
    else if (s < 10 && tenth != 0)
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 ".%u s", s, tenth);
    else if (s < 60)
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 " s", s);
    else if (s < 3600)
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 " m %" PRIu64 " s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 " h %" PRIu64 " m", s / 3600, s % 3600 / 60);
    else
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s % 86400 / 3600);
    return text;
}

const char *sr_duration_format_exact(uint64_t duration_ms, char text[SR_SIZE_TEXT_BYTES])
{
    if (duration_ms % 60000 == 0 && duration_ms != 0)
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 "m", duration_ms / 60000);
    else if (duration_ms % 1000 == 0)
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 "s", duration_ms / 1000);
    else
        snprintf(text, SR_SIZE_TEXT_BYTES, "%" PRIu64 "ms", duration_ms);
    return text;
}
