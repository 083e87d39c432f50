/* crc32c.h - CRC-32C (Castagnoli, RFC 3720 appendix B.4): of peer frames, metadata records and identity files. */
#ifndef SR_BASE_CRC32C_H
#define SR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of `bytes` at data, continued from crc: start with 0, hand the result in to go on with the next
 * piece.  Of "123456789" it is 0xe3069283.  Any thread. */
uint32_t sr_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same without the processor's help, for tests and for machines that have none. */
uint32_t sr_crc32c_portable(uint32_t crc, const void *data, size_t bytes);

#endif
