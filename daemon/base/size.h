/* size.h - sizes and durations as people write them.
 *
 *   size      digits and an optional unit: B, K or KiB, M or MiB, G or GiB, T or TiB, in any
 *             case; all of them binary: "512M" is 512 MiB
 *   duration  digits and a unit: ms, s, m (or min), h; only 0 goes without one
 *
 * No decimals, no signs, at most one space between number and unit.
 */
#ifndef SR_BASE_SIZE_H
#define SR_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SR_SIZE_TEXT_BYTES 24 /* holds what the formatters below write */

/* False, *bytes untouched and *why (may be NULL) set to what is wrong and what was expected, without the text
 * itself: the caller names it. */
bool sr_size_parse(const char *text, uint64_t *bytes, const char **why);
bool sr_duration_parse(const char *text, uint64_t *duration_ms, const char **why);

/* For people: "4096 B", "10 GiB", "1.5 GiB".  Exact if the number is a whole multiple of the unit, else rounded down
 * to one decimal.  Writes into text and returns it. */
const char *sr_size_format(uint64_t bytes, char text[SR_SIZE_TEXT_BYTES]);

/* For people: "250 ms", "5 s", "1.5 s", "2 m 5 s", "3 h 20 m", "4 d 2 h". */
const char *sr_duration_format(uint64_t duration_ms, char text[SR_SIZE_TEXT_BYTES]);

/* So that parsing gives the same number back: "512MiB", "4096", "1500ms", "5s". */
const char *sr_size_format_exact(uint64_t bytes, char text[SR_SIZE_TEXT_BYTES]);
const char *sr_duration_format_exact(uint64_t duration_ms, char text[SR_SIZE_TEXT_BYTES]);

#endif
