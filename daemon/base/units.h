/* units.h - the sizes that everything counts in. */
#ifndef SR_BASE_UNITS_H
#define SR_BASE_UNITS_H

#include <stdint.h>

#define SR_KIB (UINT64_C(1) << 10)
#define SR_MIB (UINT64_C(1) << 20)
#define SR_GIB (UINT64_C(1) << 30)
#define SR_TIB (UINT64_C(1) << 40)

#define SR_BLOCK_BYTES 4096u              /* dirty tracking and range locks */
#define SR_REGION_BYTES (4u << 20)        /* intents and metadata */
#define SR_REGION_BLOCKS (SR_REGION_BYTES / SR_BLOCK_BYTES) /* 1024 */
#define SR_REGION_MAP_BYTES (SR_REGION_BLOCKS / 8)          /* 128 */

#define SR_VOLUME_MIN_BYTES SR_MIB
#define SR_VOLUME_MAX_BYTES (64 * SR_TIB)
#define SR_IO_MAX_BYTES (32u << 20) /* largest payload of one request or frame */

_Static_assert(SR_REGION_MAP_BYTES == 128, "a region's map is 128 bytes on disk and on the wire");

#endif
