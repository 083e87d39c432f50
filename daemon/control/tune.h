/* tune.h - the limits that can be changed while the daemon runs: their names, units and bounds.  Pure. */
#ifndef SR_CONTROL_TUNE_H
#define SR_CONTROL_TUNE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum sr_tune_key {
    SR_TUNE_RESYNC_MIN_RATE,       /* bytes a second */
    SR_TUNE_RESYNC_MAX_RATE,       /* bytes a second; 0: no limit */
    SR_TUNE_RESYNC_LATENCY_FACTOR, /* percent of the latency without resync */
    SR_TUNE_STALL_BUDGET           /* milliseconds */
};

/* Reads "key" and "value" of a Tune request.  SR_E_INVALID: unknown key, or a value that is not one or is out of
 * bounds; error_text is then a sentence that says what was expected. */
enum sr_error sr_tune_parse(const char *key, const char *value, enum sr_tune_key *which, uint64_t *number,
                            char *error_text, size_t error_text_bytes);

#endif
