/* rangelock.h - locks on ranges of whole 4 KiB blocks of one volume, granted in order of arrival.
 *
 * Pure data structure.  A lock waits for every earlier lock (held or waiting) that conflicts with it; two
 * shared locks never conflict.  So nobody starves, and overlapping writes run one after the other in the
 * order in which they came.  The lock is embedded in its owner.
 */
#ifndef SR_CORE_RANGELOCK_H
#define SR_CORE_RANGELOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct sr_lock {
    TAILQ_ENTRY(sr_lock) link;
    uint64_t first, end; /* blocks [first, end) */
    uint32_t blockers;   /* earlier conflicting locks; granted when 0 */
    bool shared;
    bool queued; /* between acquire and release */
    void *owner;
};

TAILQ_HEAD(sr_lock_list, sr_lock);

struct sr_rangelock {
    struct sr_lock_list all; /* in order of arrival */
};

void sr_rangelock_init(struct sr_rangelock *table);

/* True: granted at once.  Else a later release grants it. */
bool sr_rangelock_acquire(struct sr_rangelock *table, struct sr_lock *lock, uint64_t first, uint64_t end, bool shared,
                          void *owner);

/* Gives a lock back, held or still waiting.  Calls granted(arg, owner) for each lock that became free to go;
 * granted must not touch the table (note the owner, act later). */
void sr_rangelock_release(struct sr_rangelock *table, struct sr_lock *lock, void (*granted)(void *arg, void *owner),
                          void *arg);

static inline bool sr_lock_granted(const struct sr_lock *lock)
{
    return lock->queued && lock->blockers == 0;
}

#endif
