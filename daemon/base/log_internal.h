/* log_internal.h - the pure parts of the log, apart so that tests reach them without a thread or a clock. */
#ifndef SR_BASE_LOG_INTERNAL_H
#define SR_BASE_LOG_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"

/* A line never exceeds what a pipe takes in one piece (PIPE_BUF), so lines of several writers do not mix. */
#define SR_LOG_LINE_BYTES 4096

/* Formats one line with its final line break into line; returns its length.  wall_ms: since 1970, UTC. */
size_t sr_log_format_line(char line[SR_LOG_LINE_BYTES], enum sr_log_level level, enum sr_log_format format,
                          uint64_t wall_ms, const char *message);

/* ---- repeated reasons ---- */

#define SR_LOG_LIMIT_KEYS 64
#define SR_LOG_LIMIT_KEY_BYTES 64
#define SR_LOG_LIMIT_TEXT_BYTES 256
#define SR_LOG_LIMIT_INTERVAL_MS 60000

struct sr_log_limit_entry {
    bool used;
    enum sr_log_level level;
    uint64_t logged_ms; /* when a line of this key last appeared */
    uint64_t repeats;   /* since then */
    char key[SR_LOG_LIMIT_KEY_BYTES];
    char text[SR_LOG_LIMIT_TEXT_BYTES]; /* of the last repeat */
};

struct sr_log_limits {
    struct sr_log_limit_entry entries[SR_LOG_LIMIT_KEYS];
};

/* True: log the line now, with "(N more)" if *repeats > 0.  False: it was counted.  *evicted is filled (used = true)
 * when another key had to go whose repeats were not yet told. */
bool sr_log_limits_hit(struct sr_log_limits *limits, uint64_t now_ms, enum sr_log_level level, const char *key,
                       const char *text, uint64_t *repeats, struct sr_log_limit_entry *evicted);

/* Takes out one entry's untold repeats that are due; false if none is.  *next_ms: when the next will be due
 * (UINT64_MAX: nothing waits). */
bool sr_log_limits_due(struct sr_log_limits *limits, uint64_t now_ms, struct sr_log_limit_entry *due,
                       uint64_t *next_ms);

/* Forgets a key; true and *cleared filled if it had untold repeats. */
bool sr_log_limits_clear(struct sr_log_limits *limits, const char *key, struct sr_log_limit_entry *cleared);

#endif
