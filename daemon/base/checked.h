/* checked.h - arithmetic on numbers from outside.
 *
 * Every sum or product of lengths and offsets that a peer, host, disk, file or operator sent goes through
 * these: false means that it does not fit, and the result is then not to be used.
 */
#ifndef SR_BASE_CHECKED_H
#define SR_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool sr_add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool sr_sub_u64(uint64_t a, uint64_t b, uint64_t *difference)
{
    return !__builtin_sub_overflow(a, b, difference);
}

static inline bool sr_mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static inline bool sr_add_size(size_t a, size_t b, size_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

static inline bool sr_mul_size(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

/* True if [offset, offset + length) lies inside [0, size).  An empty range at the very end is inside. */
static inline bool sr_range_ok(uint64_t offset, uint64_t length, uint64_t size)
{
    return length <= size && offset <= size - length;
}

#endif
