/* names.h - what sites, pools, volumes and collections may be called. */
#ifndef SR_BASE_NAMES_H
#define SR_BASE_NAMES_H

#include <stdbool.h>

#define SR_NAME_MAX_BYTES 64
#define SR_NAME_BYTES (SR_NAME_MAX_BYTES + 1) /* with the final NUL */

/* True for 1 to 64 bytes of [A-Za-z0-9._-] that do not start with '.' or '-': such a name is always a safe file
 * name ("NAME.img"), command argument and metric label.  Otherwise *why (may be NULL) is a sentence fragment
 * that fits behind "NAME: ". */
bool sr_name_valid(const char *name, const char **why);

#endif
