/* buffer.c - payload buffers, their budget and small caches of common sizes.
 *
 * Invariants
 *   1. used_bytes of a budget is the sum of the capacities of its live buffers; with a limit it never
 *      exceeds it, but for what sr_buf_recharge brought.  A cached buffer is charged to nobody: the caches have
 *      bounds of their own (CACHE_BYTES a size, at least CACHE_MIN buffers: about 18 MiB in all).
 *   2. A buffer in a cache has no reference and no budget.
 *   3. Caches are per thread, so that they need no lock.
 *
 * Memory only: a crash loses nothing that was acknowledged.
 */
#include "base/buffer.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/checked.h"
#include "base/units.h"

/* Caching would hide use after free from the sanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define CACHE_ENABLED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CACHE_ENABLED 0
#endif
#endif
#ifndef CACHE_ENABLED
#define CACHE_ENABLED 1
#endif

#define BUF_MAX_BYTES SR_GIB /* no payload comes near; a wrong length must not reach the allocator */

#define CACHE_BYTES (2 * SR_MIB) /* the most that the cache of one size holds ... */
#define CACHE_MIN   4            /* ... or that many buffers */

static const size_t class_bytes[] = {4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20};
#define N_CLASSES (sizeof(class_bytes) / sizeof(class_bytes[0]))

struct cache {
    struct sr_buf *head;
    size_t n;
};

static _Thread_local struct cache caches[N_CLASSES];

/* The cache for exactly that capacity, or NULL. */
static struct cache *cache_of(size_t capacity)
{
    for (size_t i = 0; i < N_CLASSES && CACHE_ENABLED; i++)
        if (class_bytes[i] == capacity)
            return &caches[i];
    return NULL;
}

static bool has_room(const struct cache *cache, size_t capacity)
{
    return cache->n < CACHE_MIN || (cache->n + 1) * capacity <= CACHE_BYTES;
}

static struct sr_buf *buf_new(size_t capacity)
{
    struct sr_buf *buf = malloc(sizeof(*buf));
    if (buf == NULL)
        return NULL;
    buf->data = aligned_alloc(SR_BUF_ALIGN, capacity);
    if (buf->data == NULL) {
        free(buf);
        return NULL;
    }
    buf->capacity = capacity;
    return buf;
}

static void buf_destroy(struct sr_buf *buf)
{
    free(buf->data);
    free(buf);
}

static bool charge(struct sr_budget *budget, size_t bytes)
{
    size_t used;

    if (budget == NULL)
        return true;
    if (!sr_add_size(budget->used_bytes, bytes, &used))
        return false;
    if (budget->limit_bytes != 0 && used > budget->limit_bytes)
        return false;
    budget->used_bytes = used;
    if (used > budget->peak_bytes)
        budget->peak_bytes = used;
    return true;
}

static void discharge(struct sr_budget *budget, size_t bytes)
{
    if (budget == NULL)
        return;
    SR_ASSERT(budget->used_bytes >= bytes);
    budget->used_bytes -= bytes;
}

struct sr_buf *sr_buf_alloc(struct sr_budget *budget, size_t bytes)
{
    size_t capacity;

    SR_ASSERT(bytes > 0);
    if (bytes > BUF_MAX_BYTES)
        return NULL;
    capacity = (bytes + SR_BUF_ALIGN - 1) & ~(size_t)(SR_BUF_ALIGN - 1);
    if (!charge(budget, capacity))
        return NULL;

    struct cache *cache = cache_of(capacity);
    struct sr_buf *buf;
    if (cache != NULL && cache->head != NULL) {
        buf = cache->head;
        cache->head = buf->next;
        cache->n--;
        SR_ASSERT(buf->refs == 0 && buf->capacity == capacity);
    } else {
        buf = buf_new(capacity);
    }
    if (buf == NULL) {
        discharge(budget, capacity);
        return NULL;
    }
    buf->length = bytes;
    buf->refs = 1;
    buf->budget = budget;
    buf->next = NULL;
    return buf;
}

void sr_buf_recharge(struct sr_buf *buf, struct sr_budget *budget)
{
    SR_ASSERT(buf->refs > 0);
    discharge(buf->budget, buf->capacity);
    buf->budget = budget;
    if (budget == NULL)
        return;
    budget->used_bytes += buf->capacity;
    if (budget->used_bytes > budget->peak_bytes)
        budget->peak_bytes = budget->used_bytes;
}

struct sr_buf *sr_buf_ref(struct sr_buf *buf)
{
    if (buf == NULL)
        return NULL;
    SR_ASSERT(buf->refs > 0 && buf->refs < UINT32_MAX);
    buf->refs++;
    return buf;
}

void sr_buf_unref(struct sr_buf *buf)
{
    if (buf == NULL)
        return;
    SR_ASSERT(buf->refs > 0);
    if (--buf->refs > 0)
        return;
    discharge(buf->budget, buf->capacity);
    buf->budget = NULL;

    struct cache *cache = cache_of(buf->capacity);
    if (cache == NULL || !has_room(cache, buf->capacity)) {
        buf_destroy(buf);
        return;
    }
    buf->next = cache->head;
    cache->head = buf;
    cache->n++;
}

void sr_buf_trim_cache(void)
{
    for (size_t i = 0; i < N_CLASSES; i++) {
        while (caches[i].head != NULL) {
            struct sr_buf *buf = caches[i].head;
            caches[i].head = buf->next;
            buf_destroy(buf);
        }
        caches[i].n = 0;
    }
}
