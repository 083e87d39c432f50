/* log.h - the daemon's log: lines that never stop I/O.
 *
 * A line goes into a bounded ring in memory; one thread of its own writes the ring to the sink.  The descriptor is
 * not made non-blocking (stderr is shared with others), so only that thread can ever wait for it.  A sink that
 * is full, blocked or gone costs lines, never the daemon: they are dropped, counted, and the count is logged when
 * the sink takes lines again.
 *
 * Until sr_log_init and after sr_log_close a line is written to stderr directly, if that takes it at once.
 *
 * Every function may be called from any thread, none of them blocks (sr_log_close: at most as long as it is told to).
 */
#ifndef SR_BASE_LOG_H
#define SR_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "core/core.h" /* enum sr_log_level */

enum sr_log_format {
    SR_LOG_TEXT, /* "<3>message": the priorities of sd-daemon(3) */
    SR_LOG_JSON  /* {"ts":"2026-01-31T12:00:00.000Z","level":"error","msg":"message"} */
};

/* A longer message is cut and ends in "...". */
#define SR_LOG_MESSAGE_BYTES 1024

/* Starts the writer.  The descriptor is duplicated: the log stays away from whatever its number is reused for.  If
 * fd is closed all lines are dropped and counted, and init still succeeds.  SR_E_BUSY: initialised already. */
enum sr_error sr_log_init(enum sr_log_level level, enum sr_log_format format, int fd);

/* Writes out what the ring holds, for at most timeout_ms, and stops the writer. */
void sr_log_close(uint32_t timeout_ms);

void sr_log_set_level(enum sr_log_level level);

bool sr_log_enabled(enum sr_log_level level);

/* One line.  Line breaks, control characters and bytes that are not UTF-8 are escaped. */
void sr_log(enum sr_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void sr_log_va(enum sr_log_level level, const char *format, va_list args) __attribute__((format(printf, 2, 0)));

/* For reasons that repeat: the first line of a key appears at once, later ones are counted; each 60 s at most one
 * line tells how many there were (with the text of the last).  `key` names the reason ("peer site-b: refused"); at
 * most 63 bytes of it count.  Past 64 keys the one quiet for longest is forgotten. */
void sr_log_limited(enum sr_log_level level, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The reason is gone: reports a count not reported yet, and the next line of this key appears at once. */
void sr_log_limited_clear(const char *key);

/* Lines lost since the process started. */
uint64_t sr_log_dropped(void);

/* "error", "warning", "notice", "info", "debug"; NULL or false for others. */
const char *sr_log_level_name(enum sr_log_level level);
bool sr_log_level_parse(const char *name, enum sr_log_level *level);

#endif
