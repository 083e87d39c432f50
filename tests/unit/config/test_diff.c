/* What changed, and what of it may be applied while running. */
#include "helper.h"

static void the_same_file_differs_in_nothing(void **state)
{
    struct sr_config *a = parse_good(GOOD), *b = parse_good(GOOD);
    struct sr_config_diff diff;

    (void)state;
    sr_config_diff_live(a, b, &diff);
    assert_int_equal(diff.n_live, 0);
    assert_int_equal(diff.n_restart, 0);
    sr_config_free(a);
    sr_config_free(b);
}

static void live_and_restart_keys_are_told_apart(void **state)
{
    struct sr_config *a = parse_good(GOOD);
    struct sr_config *b = parse_good(
        "site: site-a\n" GROUP "peer: {name: site-c, address: 10.0.0.2:7701}\n"
        "listen: [10.0.0.1:7700, 10.0.0.1:7701]\n"
        "tls: {ca: /a, certificate: /b, key: /c}\n"
        "pools: [{name: p, directory: /srv/q}]\n"
        "nbd: {listen: 'unix:/run/nbd2.sock', max_connections: 5}\n"
        "state: /srv/state\n"
        "log: {level: debug, format: json}\n"
        "stall_budget: 2s\n"
        "limits: {hot_regions: 5, queue_depth: 5, resync_parallel: 8, resync_min_rate: 1M, resync_max_rate: 2M, "
        "resync_latency_factor: 3}\n");
    struct sr_config_diff diff;
    char joined[400];

    (void)state;
    sr_config_diff_live(a, b, &diff);
    assert_string_equal(sr_config_names_join(diff.live, diff.n_live, joined, sizeof(joined)),
                        "limits.hot_regions, limits.resync_parallel, limits.resync_min_rate, "
                        "limits.resync_max_rate, limits.resync_latency_factor, stall_budget and log.level");
    assert_string_equal(sr_config_names_join(diff.restart, diff.n_restart, joined, sizeof(joined)),
                        "peer.name, peer.address, listen, insecure, tls.ca, tls.certificate, tls.key, pools, "
                        "nbd.listen, nbd.max_connections, limits.queue_depth and log.format");
    sr_config_apply_live(a, b);
    assert_int_equal(a->stall_budget_ms, 2000);
    assert_int_equal(a->hot_regions, 5);
    assert_int_equal(a->log_level, SR_LOG_DEBUG);
    assert_int_equal(a->queue_depth, 128);
    assert_string_equal(a->peer_name, "site-b");
    sr_config_diff_live(a, b, &diff);
    assert_int_equal(diff.n_live, 0);
    assert_int_equal(diff.n_restart, 12);
    sr_config_free(a);
    sr_config_free(b);
}

static void joined_names_are_cut_not_overrun(void **state)
{
    static const char *const names[] = {"alpha", "beta"};
    char out[8];

    (void)state;
    assert_string_equal(sr_config_names_join(names, 2, out, sizeof(out)), "alpha a");
    assert_string_equal(sr_config_names_join(names, 0, out, sizeof(out)), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_file_differs_in_nothing),
        cmocka_unit_test(live_and_restart_keys_are_told_apart),
        cmocka_unit_test(joined_names_are_cut_not_overrun),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
