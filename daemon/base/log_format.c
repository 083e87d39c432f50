/* log_format.c - a message of any bytes becomes one line of text or JSON.  Pure.
 *
 * Invariants
 *   1. A line has exactly one line break, at its end; nobody can forge a second line with a name or a peer's text.
 *   2. A JSON line is valid JSON in UTF-8, whatever the bytes were and wherever the message was cut.
 */
#include "base/log_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    char priority;
} levels[] = {
    [SR_LOG_ERROR] = {"error", '3'}, [SR_LOG_WARNING] = {"warning", '4'}, [SR_LOG_NOTICE] = {"notice", '5'},
    [SR_LOG_INFO] = {"info", '6'},   [SR_LOG_DEBUG] = {"debug", '7'},
};
#define N_LEVELS (sizeof(levels) / sizeof(levels[0]))

const char *sr_log_level_name(enum sr_log_level level)
{
    return (unsigned)level < N_LEVELS ? levels[level].name : NULL;
}

bool sr_log_level_parse(const char *name, enum sr_log_level *level)
{
    for (size_t i = 0; i < N_LEVELS; i++) {
        if (strcmp(name, levels[i].name) == 0) {
            *level = (enum sr_log_level)i;
            return true;
        }
    }
    return false;
}

/* Bytes of the well-formed UTF-8 sequence at `at` (Unicode table 3-7), or 0.  The text ends with a NUL, which is no
 * continuation byte, so nothing is read behind it. */
static size_t utf8_length(const unsigned char *at)
{
    size_t n;

    if (at[0] < 0x80)
        return 1;
    if (at[0] >= 0xc2 && at[0] <= 0xdf)
        n = 2;
    else if (at[0] >= 0xe0 && at[0] <= 0xef)
        n = 3;
    else if (at[0] >= 0xf0 && at[0] <= 0xf4)
        n = 4;
    else
        return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90) ||
        (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

struct out {
    char *line;
    size_t length, limit; /* limit leaves room for the end of the line */
    bool cut;
};

static void put(struct out *out, const char *bytes, size_t n)
{
    if (out->cut || n > out->limit - out->length) {
        out->cut = true; /* an escape or a character is written whole or not at all */
        return;
    }
    memcpy(out->line + out->length, bytes, n);
    out->length += n;
}

static void put_escaped(struct out *out, enum sr_log_format format, unsigned char c, bool valid)
{
    static const char *const json_short[] = {
        ['\b'] = "\\b", ['\t'] = "\\t", ['\n'] = "\\n", ['\f'] = "\\f", ['\r'] = "\\r"};
    char escape[8];

    if (format == SR_LOG_TEXT)
        snprintf(escape, sizeof(escape), c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\x%02x", c);
    else if (!valid)
        snprintf(escape, sizeof(escape), "\\ufffd");
    else if (c < sizeof(json_short) / sizeof(json_short[0]) && json_short[c] != NULL)
        snprintf(escape, sizeof(escape), "%s", json_short[c]);
    else if (c == '"' || c == '\\')
        snprintf(escape, sizeof(escape), "\\%c", c);
    else
        snprintf(escape, sizeof(escape), "\\u%04x", c);
    put(out, escape, strlen(escape));
}

static void put_message(struct out *out, enum sr_log_format format, const char *message)
{
    const unsigned char *at = (const unsigned char *)message;

    while (*at != '\0' && !out->cut) {
        size_t n = utf8_length(at);
        bool escape = n == 0 || *at < 0x20 || *at == 0x7f || (format == SR_LOG_JSON && (*at == '"' || *at == '\\'));
        if (escape)
            put_escaped(out, format, *at, n != 0);
        else
            put(out, (const char *)at, n);
        at += n == 0 ? 1 : n;
    }
}

static void put_time(struct out *out, uint64_t wall_ms)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm utc;
    char day[40], text[64];

    if (gmtime_r(&seconds, &utc) == NULL || strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &utc) == 0)
        snprintf(day, sizeof(day), "1970-01-01T00:00:00");
    int n = snprintf(text, sizeof(text), "%s.%03uZ", day, (unsigned)(wall_ms % 1000));
    put(out, text, (size_t)n);
}

size_t sr_log_format_line(char line[SR_LOG_LINE_BYTES], enum sr_log_level level, enum sr_log_format format,
                          uint64_t wall_ms, const char *message)
{
    const char *end = format == SR_LOG_TEXT ? "\n" : "\"}\n";
    struct out out = {.line = line, .limit = SR_LOG_LINE_BYTES - strlen("...") - strlen(end)};
    unsigned index = (unsigned)level < N_LEVELS ? (unsigned)level : SR_LOG_ERROR;

    if (format == SR_LOG_TEXT) {
        char priority[3] = {'<', levels[index].priority, '>'};
        put(&out, priority, sizeof(priority));
    } else {
        put(&out, "{\"ts\":\"", 7);
        put_time(&out, wall_ms);
        put(&out, "\",\"level\":\"", 11);
        put(&out, levels[index].name, strlen(levels[index].name));
        put(&out, "\",\"msg\":\"", 9);
    }
    put_message(&out, format, message);
    if (out.cut) {
        memcpy(line + out.length, "...", 3);
        out.length += 3;
    }
    memcpy(line + out.length, end, strlen(end));
    return out.length + strlen(end);
}
