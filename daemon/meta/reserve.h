/* reserve.h - inside meta/: space set aside so that a full file system can still be tidied up.
 *
 * A metadata commit needs a few free blocks, also one that deletes.  The file `reserve` really occupies its
 * blocks; a start that finds the file system full (less free than a slice) gives one slice of it back, so that
 * the daemon comes up and an administrator can delete something.  Slices, so that a daemon that is restarted over
 * and over (and writes intents each time) does not eat all of it at the first try.  It is filled up again at a
 * start with room to spare.
 */
#ifndef SR_META_RESERVE_H
#define SR_META_RESERVE_H

#include <stdbool.h>

#include "base/units.h"

#define SR_META_RESERVE_BYTES       (4 * SR_MIB)
#define SR_META_RESERVE_SLICE_BYTES SR_MIB

/* True if the file system has less than a slice free. */
bool sr_meta_reserve_needed(const char *state_dir);

/* True if a slice was given back.  Blocks. */
bool sr_meta_reserve_release(const char *state_dir);

/* Makes or refills the reserve if the file system has room for four of them; else leaves it as it is.  No failure
 * matters.  Blocks. */
void sr_meta_reserve_fill(const char *state_dir);

#endif
