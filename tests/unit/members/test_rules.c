/* What becomes of two lists that differ, and of the records; judged by what the handshake then decides. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "member_rules.h"

static struct sr_uuid id(int number)
{
    struct sr_uuid uuid = {{0}};
    uuid.b[15] = (uint8_t)number;
    return uuid;
}

/* In sync with generation `gen`. */
static struct sr_record in_sync(enum sr_role role, int gen)
{
    return (struct sr_record){.role = role, .gen = id(gen), .consistent = true};
}

/* In sync with generation `from`, then gone on as `gen`. */
static struct sr_record gone_on(enum sr_role role, int from, int gen, bool failover)
{
    struct sr_record record = in_sync(role, from);
    struct sr_uuid fresh = id(gen);

    if (failover)
        sr_lineage_take_over(&record, &fresh, false);
    else
        sr_lineage_go_alone(&record, &fresh);
    return record;
}

static enum sr_decision met(const struct sr_record *me, bool my_map, const struct sr_record *peer, bool its_map)
{
    struct sr_greeting mine = {.record = *me, .map_empty = !my_map}, its = {.record = *peer, .map_empty = !its_map};
    const char *why;

    assert_true(sr_record_valid(me, &why));
    assert_true(sr_record_valid(peer, &why));
    return sr_lineage_decide(&mine, &its);
}

static bool same(const struct sr_record *a, const struct sr_record *b)
{
    return sr_uuid_equal(&a->gen, &b->gen) && a->base_kind == b->base_kind && sr_uuid_equal(&a->base, &b->base) &&
           a->n_ancestors == b->n_ancestors && a->role == b->role && a->consistent == b->consistent &&
           a->failed == b->failed;
}

/* ---- what is done ----------------------------------------------------------------------------------------------- */

static void who_promised_follows_or_makes_the_other_yield(void **state)
{
    (void)state;
    struct sr_catalog_volume here = {.collection = id(1), .pending_collection = id(2)}, there = {.collection = id(2)};
    struct sr_record alternate = in_sync(SR_ROLE_ALTERNATE, 10), active = gone_on(SR_ROLE_ALTERNATE, 10, 11, true);
    struct sr_record forced = in_sync(SR_ROLE_ALTERNATE, 10);
    struct sr_uuid fresh = id(12);

    forced.consistent = false;
    sr_lineage_take_over(&forced, &fresh, true);
    assert_int_equal(sr_member_settle(&here, &there, &alternate, NULL), SR_SETTLE_ADOPT);
    assert_int_equal(sr_member_settle(&here, &there, &alternate, &alternate), SR_SETTLE_ADOPT);
    assert_int_equal(sr_member_settle(&here, &there, &active, NULL), SR_SETTLE_YIELD);
    active = in_sync(SR_ROLE_ACTIVE, 10);
    assert_int_equal(sr_member_settle(&here, &there, &active, NULL), SR_SETTLE_YIELD);
    assert_int_equal(sr_member_settle(&here, &there, &alternate, &active), SR_SETTLE_YIELD);
    assert_int_equal(sr_member_settle(&here, &there, &forced, NULL), SR_SETTLE_DIFFER);
    assert_int_equal(sr_member_settle(&there, &here, &active, &active), SR_SETTLE_AWAIT);
}

static void without_a_promise_members_differ(void **state)
{
    (void)state;
    struct sr_catalog_volume here = {.collection = id(1)}, there = {.collection = id(2)};
    struct sr_record alternate = in_sync(SR_ROLE_ALTERNATE, 10), active = in_sync(SR_ROLE_ACTIVE, 10);

    assert_int_equal(sr_member_settle(&here, &there, &alternate, NULL), SR_SETTLE_DIFFER);
    here.pending_collection = id(3); /* an older promise */
    assert_int_equal(sr_member_settle(&here, &there, &alternate, NULL), SR_SETTLE_DIFFER);
    assert_int_equal(sr_member_settle(&there, &here, &active, NULL), SR_SETTLE_DIFFER);
}

/* ---- following --------------------------------------------------------------------------------------------------- */

static void a_new_collection_begins_with_the_volumes_own_lineage(void **state)
{
    (void)state;
    struct sr_record from = in_sync(SR_ROLE_ALTERNATE, 10), to = in_sync(SR_ROLE_ALTERNATE, 20), result;

    sr_member_follow_record(&from, NULL, &result);
    assert_true(same(&result, &from));
    sr_member_follow_record(&from, &to, &result);
    assert_true(same(&result, &to));
}

static void one_bad_copy_is_the_whole_collections(void **state)
{
    (void)state;
    struct sr_record good = in_sync(SR_ROLE_ALTERNATE, 10), failed = good, empty = good, result;
    struct sr_record leader = in_sync(SR_ROLE_ACTIVE, 10);

    failed.failed = true;
    failed.consistent = false;
    sr_lineage_replace(&empty);
    const struct sr_record *pairs[][2] = {{&failed, &good}, {&good, &failed}, {&failed, &empty}, {&empty, &failed}};
    for (int i = 0; i < 4; i++) {
        sr_member_follow_record(pairs[i][0], pairs[i][1], &result);
        assert_true(result.failed && !result.consistent);
        assert_int_equal(met(&result, false, &leader, false), SR_DECIDE_FOLLOW);
        assert_false(sr_lineage_maps_suffice(&leader, &result)); /* all of it is copied */
    }
    sr_member_follow_record(&empty, &good, &result);
    assert_true(!result.failed && !result.consistent && sr_uuid_is_none(&result.gen));
    assert_false(sr_lineage_maps_suffice(&leader, &result));
}

/* ---- yielding ---------------------------------------------------------------------------------------------------- */

/* The other site: failed over in the collection that the volume goes back to, whose copies had generation 10. */
static const struct sr_uuid fresh = {{1}};

static void back_as_if_nothing_had_happened(void **state)
{
    (void)state;
    struct sr_record left = in_sync(SR_ROLE_ACTIVE, 20), dest = in_sync(SR_ROLE_ACTIVE, 10), result;
    struct sr_record other = gone_on(SR_ROLE_ALTERNATE, 10, 11, true);
    const struct sr_uuid *counts = sr_member_counts_from(&other);

    assert_true(sr_member_yield_record(&left, NULL, counts, &fresh, &result));
    assert_int_equal(met(&result, false, &other, true), SR_DECIDE_FOLLOW);
    assert_true(sr_lineage_maps_suffice(&other, &result));
    assert_true(sr_member_yield_record(&left, &dest, counts, &fresh, &result));
    assert_true(same(&result, &dest));
    assert_int_equal(met(&result, false, &other, true), SR_DECIDE_FOLLOW);
}

static void back_to_a_site_that_never_went_on(void **state)
{
    (void)state;
    struct sr_record left = in_sync(SR_ROLE_ACTIVE, 20), other = in_sync(SR_ROLE_ALTERNATE, 10), result;

    assert_true(sr_member_yield_record(&left, NULL, sr_member_counts_from(&other), &fresh, &result));
    assert_int_equal(met(&result, false, &other, false), SR_DECIDE_LEAD);
    left = gone_on(SR_ROLE_ACTIVE, 20, 21, false);
    assert_true(sr_member_yield_record(&left, NULL, sr_member_counts_from(&other), &fresh, &result));
    assert_int_equal(met(&result, true, &other, false), SR_DECIDE_LEAD);
    assert_true(sr_lineage_maps_suffice(&result, &other));
}

static void writes_of_both_sites_are_a_conflict(void **state)
{
    (void)state;
    struct sr_record other = gone_on(SR_ROLE_ALTERNATE, 10, 11, true), result;
    const struct sr_uuid *counts = sr_member_counts_from(&other);
    struct sr_record alone = gone_on(SR_ROLE_ACTIVE, 20, 21, false), copy_alone = gone_on(SR_ROLE_ACTIVE, 10, 21, false);
    struct sr_record dest = in_sync(SR_ROLE_ACTIVE, 10), dest_alone = gone_on(SR_ROLE_ACTIVE, 10, 12, false);
    struct sr_record quiet = in_sync(SR_ROLE_ACTIVE, 20);
    const struct sr_record *pairs[][2] = {
        {&alone, NULL}, {&copy_alone, NULL}, {&alone, &dest}, {&alone, &dest_alone}, {&quiet, &dest_alone}};

    for (int i = 0; i < 5; i++) {
        assert_true(sr_member_yield_record(pairs[i][0], pairs[i][1], counts, &fresh, &result));
        assert_int_equal(met(&result, true, &other, true), SR_DECIDE_CONFLICT);
        assert_int_equal(met(&other, true, &result, true), SR_DECIDE_CONFLICT);
        assert_int_not_equal(met(&result, true, &other, false), SR_DECIDE_FOLLOW); /* only this site wrote */
        assert_int_equal(met(&result, false, &other, true), SR_DECIDE_FOLLOW);     /* only the other one did */
    }
}

static void nothing_that_is_not_known_is_said(void **state)
{
    (void)state;
    struct sr_record good = in_sync(SR_ROLE_ACTIVE, 10), bad[6], result;
    struct sr_uuid counts = id(10), other = id(9), none = {{0}};

    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].consistent = false;
    bad[1].failed = true;
    bad[2].base_kind = SR_BASE_UNKNOWN;
    bad[3].base_kind = SR_BASE_KNOWN; /* a resync is under way */
    bad[3].base = bad[3].gen;
    bad[4].handover = true;
    sr_lineage_replace(&bad[5]);
    for (int i = 0; i < 6; i++) {
        assert_false(sr_member_yield_record(&bad[i], NULL, &counts, &fresh, &result));
        assert_false(sr_member_yield_record(&good, &bad[i], &counts, &fresh, &result));
    }
    assert_false(sr_member_yield_record(&good, NULL, &none, &fresh, &result));
    assert_false(sr_member_yield_record(&good, &good, &other, &fresh, &result));
    bad[0] = in_sync(SR_ROLE_ALTERNATE, 10);
    assert_false(sr_member_yield_record(&good, &bad[0], &counts, &fresh, &result));
    assert_true(sr_member_yield_record(&good, &good, &counts, &fresh, &result));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_promised_follows_or_makes_the_other_yield),
        cmocka_unit_test(without_a_promise_members_differ),
        cmocka_unit_test(a_new_collection_begins_with_the_volumes_own_lineage),
        cmocka_unit_test(one_bad_copy_is_the_whole_collections),
        cmocka_unit_test(back_as_if_nothing_had_happened),
        cmocka_unit_test(back_to_a_site_that_never_went_on),
        cmocka_unit_test(writes_of_both_sites_are_a_conflict),
        cmocka_unit_test(nothing_that_is_not_known_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
