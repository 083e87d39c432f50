/* buffer.h - reference-counted, page-aligned payload memory.
 *
 * A payload is read once from a socket, written to disk from that memory and sent to the peer from that
 * memory.  Every buffer is charged to a budget; at the bound an allocation fails and the caller stops
 * reading from its socket (or waits): the daemon never grows and never drops.
 *
 * Thread rule: a budget and the reference counts of its buffers belong to the loop thread.  Engine threads
 * touch only the bytes of a buffer for which the loop thread holds a reference.
 */
#ifndef SR_BASE_BUFFER_H
#define SR_BASE_BUFFER_H

#include <stddef.h>
#include <stdint.h>

#define SR_BUF_ALIGN 4096

struct sr_budget {
    size_t limit_bytes; /* 0: no limit */
    size_t used_bytes;
    size_t peak_bytes;
};

struct sr_buf {
    uint8_t *data;   /* SR_BUF_ALIGN-aligned */
    size_t capacity; /* multiple of SR_BUF_ALIGN */
    size_t length;   /* bytes in use, set by the owner */
    uint32_t refs;
    struct sr_budget *budget;
    struct sr_buf *next; /* for lists of whoever owns the only reference, and for the free list */
};

/* A buffer of at least `bytes` (> 0) with one reference, length = bytes, contents undefined; NULL when over
 * budget, out of memory or over 1 GiB.  budget may be NULL (not charged). */
struct sr_buf *sr_buf_alloc(struct sr_budget *budget, size_t bytes);

struct sr_buf *sr_buf_ref(struct sr_buf *buf); /* returns buf; NULL stays NULL */

void sr_buf_unref(struct sr_buf *buf); /* frees at the last reference; NULL is fine */

/* From now on the buffer counts in that budget (NULL: in none), even beyond its limit: it exists already.  For one
 * that stays longer than those that its first budget is for. */
void sr_buf_recharge(struct sr_buf *buf, struct sr_budget *budget);

/* Give cached free buffers back to the system (small caches of common sizes are kept per thread of use). */
void sr_buf_trim_cache(void);

#endif
