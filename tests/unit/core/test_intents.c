/* Intents: references, the idle list, and setting an intent again while it is being removed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/intents.h"

static void coldest_goes_first(void **state)
{
    (void)state;
    struct sr_intents intents;
    assert_true(sr_intents_init(&intents));
    for (uint32_t region = 0; region < 10; region++)
        sr_intents_take(&intents, 0, region)->state = SR_INTENT_DURABLE;
    assert_null(sr_intents_coldest(&intents)); /* all in use */
    for (uint32_t region = 0; region < 10; region++)
        sr_intents_give(&intents, sr_intents_find(&intents, 0, region), region, 0);
    sr_intents_take(&intents, 0, 0); /* in use again: no longer the coldest */
    assert_int_equal(sr_intents_coldest(&intents)->region, 1);
    assert_int_equal(intents.n_idle, 9);
    sr_intents_free(&intents);
}

static void a_write_during_cooling_sets_it_again(void **state)
{
    (void)state;
    struct sr_intents intents;
    assert_true(sr_intents_init(&intents));
    struct sr_intent *intent = sr_intents_take(&intents, 3, 77);
    assert_int_equal(intent->state, SR_INTENT_SETTING);
    intent->state = SR_INTENT_DURABLE;
    sr_intents_give(&intents, intent, 5, 0);
    sr_intents_cool(&intents, intent, 9);
    assert_null(sr_intents_coldest(&intents));
    assert_ptr_equal(sr_intents_take(&intents, 3, 77), intent);
    assert_int_equal(intent->state, SR_INTENT_SETTING); /* it must become durable once more */
    assert_int_equal(intent->commit, 0);
    assert_int_equal(sr_intents_missing(&intents, 3, 76, 78), 2);
    sr_intents_free(&intents);
}

/* A region whose blocks may be in caches only does not cool, however long it is idle. */
static void a_cached_region_is_no_candidate(void **state)
{
    (void)state;
    struct sr_intents intents;
    assert_true(sr_intents_init(&intents));
    for (uint32_t region = 0; region < 3; region++) {
        struct sr_intent *intent = sr_intents_take(&intents, 0, region);
        intent->state = SR_INTENT_DURABLE;
        if (region < 2)
            sr_intents_write_cached(intent, 1020, SR_REGION_BLOCKS);
        sr_intents_give(&intents, intent, 10 + region, region);
    }
    assert_int_equal(intents.n_cached, 2);
    assert_int_equal(intents.n_idle, 1);
    assert_int_equal(sr_intents_coldest(&intents)->region, 2);
    struct sr_intent *first = sr_intents_find(&intents, 0, 0);
    assert_int_equal(first->cached[127], 0xf0);
    sr_intents_flushed(&intents, first);
    assert_int_equal(first->cached[127], 0);
    assert_int_equal(intents.n_cached, 1);
    assert_int_equal(sr_intents_coldest(&intents)->region, 0); /* in its place by age */
    sr_intents_cool(&intents, first, 3);
    assert_int_equal(intents.n_cooling, 1);
    sr_intents_remove(&intents, first);
    assert_int_equal(intents.n_cooling, 0);
    struct sr_intent *second = sr_intents_take(&intents, 0, 1); /* in use: flushed it may be, idle it is not */
    sr_intents_flushed(&intents, second);
    assert_int_equal(intents.n_cached, 0);
    assert_int_equal(intents.n_idle, 1);
    sr_intents_give(&intents, second, 20, 4);
    assert_int_equal(intents.n_idle, 2);
    sr_intents_clear(&intents);
    sr_intents_free(&intents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coldest_goes_first),
        cmocka_unit_test(a_write_during_cooling_sets_it_again),
        cmocka_unit_test(a_cached_region_is_no_candidate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
