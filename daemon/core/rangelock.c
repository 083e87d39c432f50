/* rangelock.c - see rangelock.h.
 *
 * Invariants
 *   R1  blockers counts exactly the earlier locks in the list that conflict.
 *   R2  Of two granted locks that overlap both are shared.
 *
 * The list holds the operations in flight of one volume, a few hundred at most; a linear pass over so few
 * cache lines beat a tree for them.
 */
#include "core/rangelock.h"

#include <stddef.h>

#include "base/assert.h"

void sr_rangelock_init(struct sr_rangelock *table)
{
    TAILQ_INIT(&table->all);
}

static bool conflict(const struct sr_lock *a, const struct sr_lock *b)
{
    return a->first < b->end && b->first < a->end && !(a->shared && b->shared);
}

bool sr_rangelock_acquire(struct sr_rangelock *table, struct sr_lock *lock, uint64_t first, uint64_t end, bool shared,
                          void *owner)
{
    SR_ASSERT(!lock->queued && first < end);
    lock->first = first;
    lock->end = end;
    lock->shared = shared;
    lock->owner = owner;
    lock->blockers = 0;
    const struct sr_lock *other;
    TAILQ_FOREACH (other, &table->all, link)
        if (conflict(lock, other))
            lock->blockers++;
    TAILQ_INSERT_TAIL(&table->all, lock, link);
    lock->queued = true;
    return lock->blockers == 0;
}

void sr_rangelock_release(struct sr_rangelock *table, struct sr_lock *lock, void (*granted)(void *arg, void *owner),
                          void *arg)
{
    SR_ASSERT(lock->queued);
    struct sr_lock *later = TAILQ_NEXT(lock, link);
    TAILQ_REMOVE(&table->all, lock, link);
    lock->queued = false;
    for (; later; later = TAILQ_NEXT(later, link)) {
        if (!conflict(lock, later))
            continue;
        SR_ASSERT(later->blockers > 0);
        if (--later->blockers == 0)
            granted(arg, later->owner);
    }
}
