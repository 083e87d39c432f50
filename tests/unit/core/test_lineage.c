/* The edges of the record.  The decision table is compared with the executable model in test_pairs.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/lineage.h"

static struct sr_uuid gen_of(int number)
{
    struct sr_uuid uuid = {{0}};
    uuid.b[15] = (uint8_t)number;
    return uuid;
}

static void going_alone_makes_a_generation(void **state)
{
    (void)state;
    struct sr_record r = {.role = SR_ROLE_ACTIVE, .gen = gen_of(1), .consistent = true, .completing = true};
    struct sr_uuid fresh = gen_of(2);
    assert_true(sr_lineage_must_go_alone(&r));
    sr_lineage_go_alone(&r, &fresh);
    assert_true(sr_uuid_equal(&r.gen, &fresh));
    assert_int_equal(r.base_kind, SR_BASE_KNOWN);
    struct sr_uuid old = gen_of(1);
    assert_true(sr_uuid_equal(&r.base, &old));
    assert_int_equal(r.n_ancestors, 1);
    assert_true(sr_uuid_equal(&r.ancestors[0], &old));
    assert_false(r.completing);
    assert_false(sr_lineage_must_go_alone(&r));
    assert_true(sr_lineage_serves_at_start(&r));
}

static void ancestors_are_bounded(void **state)
{
    (void)state;
    struct sr_record r = {.role = SR_ROLE_ACTIVE, .gen = gen_of(1), .consistent = true};
    for (int i = 2; i < 200; i++) {
        struct sr_uuid fresh = gen_of(i);
        r.base_kind = SR_BASE_NONE;
        sr_lineage_go_alone(&r, &fresh);
    }
    assert_int_equal(r.n_ancestors, SR_ANCESTORS_MAX);
    struct sr_uuid newest = gen_of(198);
    assert_true(sr_uuid_equal(&r.ancestors[0], &newest));
    const char *why;
    assert_true(sr_record_valid(&r, &why));
}

static void higher_pause_counter_wins(void **state)
{
    (void)state;
    struct sr_record me = {.paused = true, .pause_counter = 4}, peer = {.paused = false, .pause_counter = 5};
    assert_true(sr_lineage_merge_pause(&me, &peer));
    assert_false(me.paused);
    peer.paused = true; /* a tie: paused wins, at both */
    assert_true(sr_lineage_merge_pause(&me, &peer));
    assert_true(me.paused);
    me.pause_counter = 9;
    peer.paused = false;
    assert_false(sr_lineage_merge_pause(&me, &peer));
    assert_true(me.paused);
}

static void an_active_site_in_sync_does_not_serve_at_start(void **state)
{
    (void)state;
    struct sr_record r = {.role = SR_ROLE_ACTIVE, .gen = gen_of(1), .consistent = true};
    assert_false(sr_lineage_serves_at_start(&r)); /* its peer may have been promoted */
    r.base_kind = SR_BASE_KNOWN;
    r.base = gen_of(1);
    assert_true(sr_lineage_serves_at_start(&r)); /* its peer is incomplete */
    r.completing = true;
    assert_false(sr_lineage_serves_at_start(&r)); /* or perhaps not any more */
    r.base = gen_of(3);
    assert_true(sr_lineage_serves_at_start(&r));
    r.consistent = false;
    r.failed = true;
    assert_false(sr_lineage_serves_at_start(&r));
}

static void broken_records_are_refused(void **state)
{
    (void)state;
    const char *why;
    struct sr_record good = {.role = SR_ROLE_ACTIVE, .gen = gen_of(1), .consistent = true}, r = good;
    assert_true(sr_record_valid(&r, &why));
    r.role = (enum sr_role)7;
    assert_false(sr_record_valid(&r, &why));
    assert_string_equal(why, "role");
    r = good;
    r.base_kind = SR_BASE_KNOWN;
    assert_false(sr_record_valid(&r, &why));
    assert_string_equal(why, "base");
    r = good;
    r.n_ancestors = 65;
    assert_false(sr_record_valid(&r, &why));
    r = good;
    r.n_ancestors = 1;
    r.ancestors[0] = gen_of(1);
    assert_false(sr_record_valid(&r, &why));
    r = good;
    r.gen = gen_of(0);
    assert_false(sr_record_valid(&r, &why));
    r = good;
    r.failed = true;
    assert_false(sr_record_valid(&r, &why));
    assert_string_equal(why, "failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(going_alone_makes_a_generation),
        cmocka_unit_test(ancestors_are_bounded),
        cmocka_unit_test(higher_pause_counter_wins),
        cmocka_unit_test(an_active_site_in_sync_does_not_serve_at_start),
        cmocka_unit_test(broken_records_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
