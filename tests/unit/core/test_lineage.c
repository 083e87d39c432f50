/* The decision table against the executable model, the edges of the record, and L1, L2 over random pairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/lineage.h"

static const char *folder;

static struct sr_uuid gen_of(int number)
{
    struct sr_uuid uuid = {{0}};
    uuid.b[15] = (uint8_t)number;
    return uuid;
}

static struct sr_greeting parse(const char *text)
{
    char role[16], made_by[16], ancestors[64], discard[16];
    int gen, base, consistent, handover, empty;
    struct sr_greeting g = {0};
    assert_int_equal(sscanf(text, "%15s %d %15s %d %63s %d %d %15s %d", role, &gen, made_by, &base, ancestors, &consistent,
                            &handover, discard, &empty),
                     9);
    g.record.role = strcmp(role, "active") == 0 ? SR_ROLE_ACTIVE : SR_ROLE_ALTERNATE;
    g.record.gen = gen_of(gen);
    g.record.made_by = strcmp(made_by, "created") == 0    ? SR_MADE_CREATED
                       : strcmp(made_by, "alone") == 0    ? SR_MADE_ALONE
                       : strcmp(made_by, "failover") == 0 ? SR_MADE_FAILOVER
                                                          : SR_MADE_FORCED;
    g.record.base_kind = base == 0 ? SR_BASE_NONE : base < 0 ? SR_BASE_UNKNOWN : SR_BASE_KNOWN;
    if (base > 0)
        g.record.base = gen_of(base);
    for (char *part = strtok(ancestors, ","); part && *part != '-'; part = strtok(NULL, ","))
        g.record.ancestors[g.record.n_ancestors++] = gen_of(atoi(part));
    g.record.consistent = consistent;
    g.record.handover = handover;
    if (discard[0] != '-') {
        int mine, theirs;
        assert_int_equal(sscanf(discard, "%d:%d", &mine, &theirs), 2);
        g.record.discard = true;
        g.record.discard_mine = gen_of(mine);
        g.record.discard_peer = gen_of(theirs);
    }
    g.map_empty = empty;
    return g;
}

static void decides_as_the_model(void **state)
{
    (void)state;
    char path[512], line[512];
    snprintf(path, sizeof path, "%s/decisions.txt", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    int n = 0;
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#')
            continue;
        char decision[16];
        int suffice;
        char *peer = strchr(line, '|'), *rest = strrchr(line, '|');
        *peer++ = *rest++ = 0;
        struct sr_greeting a = parse(line), b = parse(peer);
        assert_int_equal(sscanf(rest, "%15s %d", decision, &suffice), 2);
        assert_string_equal(sr_decision_name(sr_lineage_decide(&a, &b)), decision);
        if (a.record.base_kind != SR_BASE_UNKNOWN) /* an unknown base: everything is in the map already */
            assert_int_equal(sr_lineage_maps_suffice(&a.record, &b.record), suffice);
        n++;
    }
    fclose(file);
    assert_true(n >= 4000);
}

static void both_sites_agree(void **state)
{
    (void)state;
    static const enum sr_decision mirror[] = {[SR_DECIDE_CONFLICT] = SR_DECIDE_CONFLICT,
                                              [SR_DECIDE_WAIT] = SR_DECIDE_WAIT,
                                              [SR_DECIDE_LEAD] = SR_DECIDE_FOLLOW,
                                              [SR_DECIDE_TAKE] = SR_DECIDE_FOLLOW};
    char path[512], line[512];
    snprintf(path, sizeof path, "%s/decisions.txt", folder);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (line[0] == '#')
            continue;
        char *peer = strchr(line, '|');
        *peer++ = 0;
        *strchr(peer, '|') = 0;
        struct sr_greeting a = parse(line), b = parse(peer);
        enum sr_decision mine = sr_lineage_decide(&a, &b), theirs = sr_lineage_decide(&b, &a);
        if (mine == SR_DECIDE_FOLLOW)
            assert_true(theirs == SR_DECIDE_LEAD || theirs == SR_DECIDE_TAKE);
        else
            assert_int_equal(theirs, mirror[mine]);
        if (mine == SR_DECIDE_LEAD || mine == SR_DECIDE_TAKE)
            assert_true(a.record.consistent);
    }
    fclose(file);
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

int main(int argc, char **argv)
{
    folder = argc > 1 ? argv[1] : ".";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decides_as_the_model),
        cmocka_unit_test(both_sites_agree),
        cmocka_unit_test(going_alone_makes_a_generation),
        cmocka_unit_test(ancestors_are_bounded),
        cmocka_unit_test(higher_pause_counter_wins),
        cmocka_unit_test(an_active_site_in_sync_does_not_serve_at_start),
        cmocka_unit_test(broken_records_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
