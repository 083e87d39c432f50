/* zero.h - is this memory all zeroes? */
#ifndef SR_BASE_ZERO_H
#define SR_BASE_ZERO_H

#include <stdbool.h>
#include <stddef.h>

/* True if all `bytes` at data are zero; of no bytes it is true.  Any thread; stops at the first difference. */
bool sr_is_zero(const void *data, size_t bytes);

#endif
