/* digest.h - digests that decide whether two blocks are equal.
 *
 * 128 bits of SHA-256 for each 4 KiB block.  Collision-resistant, because a guest can choose what is in its
 * blocks: a weaker hash would let it make two sites keep different data unnoticed.
 */
#ifndef SR_BASE_DIGEST_H
#define SR_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

#define SR_DIGEST_BLOCK_BYTES 4096
#define SR_DIGEST_OUT_BYTES 16

/* Writes n_blocks digests of SR_DIGEST_OUT_BYTES each, of the SR_DIGEST_BLOCK_BYTES-sized blocks at data.
 * Aborts only if the library has no SHA-256.  Any thread; about 10 us a block without SHA extensions. */
void sr_digest_blocks(const uint8_t *data, size_t n_blocks, uint8_t *digests);

#endif
