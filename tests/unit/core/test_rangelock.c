/* Range locks: order of arrival, readers together, writers alone - over random operations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/rangelock.h"

#define LOCKS 64

static struct sr_rangelock table;
static struct sr_lock locks[LOCKS];
static unsigned order[LOCKS], now;
static unsigned seed = 7;

static unsigned below(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 8) % n;
}

static void granted(void *arg, void *owner)
{
    (void)arg;
    assert_true(sr_lock_granted(owner));
}

static int overlap(const struct sr_lock *a, const struct sr_lock *b)
{
    return a->first < b->end && b->first < a->end;
}

static void check_all(void)
{
    for (int i = 0; i < LOCKS; i++) {
        if (!locks[i].queued)
            continue;
        int blocked = 0;
        for (int j = 0; j < LOCKS; j++) {
            if (i == j || !locks[j].queued || !overlap(&locks[i], &locks[j]) || (locks[i].shared && locks[j].shared))
                continue;
            blocked |= order[j] < order[i]; /* whoever came earlier goes first */
        }
        assert_int_equal(sr_lock_granted(&locks[i]), !blocked);
    }
}

static void order_of_arrival(void **state)
{
    (void)state;
    sr_rangelock_init(&table);
    for (int round = 0; round < 20000; round++) {
        struct sr_lock *lock = &locks[below(LOCKS)];
        if (lock->queued) {
            if (sr_lock_granted(lock) || below(4) == 0)
                sr_rangelock_release(&table, lock, granted, NULL);
        } else {
            unsigned first = below(40);
            order[lock - locks] = ++now;
            int at_once = sr_rangelock_acquire(&table, lock, first, first + 1 + below(8), below(2), lock);
            assert_int_equal(at_once, sr_lock_granted(lock));
        }
        check_all();
    }
    for (int i = 0; i < LOCKS; i++)
        if (locks[i].queued)
            sr_rangelock_release(&table, &locks[i], granted, NULL);
    assert_true(TAILQ_EMPTY(&table.all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(order_of_arrival)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
