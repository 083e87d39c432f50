/* test_link.c - two sites find, greet, use and lose each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ends.h"

static uv_loop_t loop;
static struct certs certs;
static struct cert_file ca, site_a, site_b;
static struct sr_tls *tls_a, *tls_b;
static struct end a, b;
static struct sr_link_config config_a, config_b;
static struct sr_uuid collection = {{9, 8, 7}};

static int set_up(void **state)
{
    (void)state;
    uv_loop_init(&loop);
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    end_config(&config_a, true, tls_a);
    end_config(&config_b, false, tls_b);
    return 0;
}

static void insecure(void)
{
    end_config(&config_a, true, NULL);
    end_config(&config_b, false, NULL);
}

static void start(void)
{
    ends_start(&a, &config_a, &b, &config_b, &loop);
}

static bool both_up(void)
{
    return sr_link_is_up(a.link) && sr_link_is_up(b.link);
}

static void start_up(void)
{
    start();
    RUN_UNTIL(&loop, both_up());
}

static void finish(void)
{
    end_close(&a, &loop);
    end_close(&b, &loop);
    loop_finish(&loop);
}

static void greet_and_talk(void)
{
    struct sr_site_msg *absent = sr_site_msg_new(SR_SITE_COLLECTION_ABSENT);

    absent->collection = collection;
    assert_string_equal(a.peer.hello.site_name, "site-b");
    assert_string_equal(b.peer.hello.site_name, "site-a");
    assert_int_equal(a.peer.version, SR_WIRE_VERSION_MAX);
    a.keep_msgs = b.keep_msgs = true;
    assert_true(sr_link_send_msg(a.link, &collection, write_msg(5000, 3, NULL)));
    assert_true(sr_link_send_site(a.link, absent));
    assert_true(sr_link_send_msg(b.link, &collection, sr_peer_msg_new(SR_MSG_STARTED, 44)));
    RUN_UNTIL(&loop, b.msgs == 1 && b.site_msgs == 1 && a.msgs == 1);
    assert_true(sr_uuid_equal(&b.last_collection, &collection));
    assert_int_equal(b.last->type, SR_MSG_WRITE);
    assert_int_equal(b.last->payload_bytes, 5000);
    for (uint32_t i = 0; i < 5000; i++)
        assert_int_equal(b.last->payload->data[i], (uint8_t)(3 + i + (i >> 12) * 3));
    assert_int_equal(a.last->session, 44);
}

static void test_tls(void **state)
{
    struct sr_link_status status;

    (void)state;
    config_a.features = 7;
    config_b.features = 0x8000000000000005;
    start_up();
    greet_and_talk();
    assert_int_equal(a.peer.features, 5);
    RUN_UNTIL(&loop, (sr_link_status(a.link, &status), status.rtt_us > 0));
    assert_int_equal(status.state, SR_LINK_UP);
    assert_true(status.secure);
    assert_true(status.bytes_in > 0 && status.bytes_out > 5000);
    assert_true(status.peer_certificate_expires_s > 0);
    finish();
}

static void test_insecure(void **state)
{
    (void)state;
    insecure();
    start_up();
    greet_and_talk();
    finish();
}

/* With the peer known only the lower UUID dials, and one connection is enough. */
static void test_known_peer_dials_once(void **state)
{
    (void)state;
    config_a.peer = config_b.site;
    config_b.peer = config_a.site;
    start_up();
    run_for_ms(&loop, 200);
    assert_true(both_up());
    assert_int_equal(a.ups, 1);
    assert_int_equal(b.ups, 1);
    assert_true(a.peer.dialled);
    assert_false(b.peer.dialled);
    finish();
}

/* Both dial at first contact: the two agree on one connection and stay with it. */
static void test_first_contact_settles(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        unsigned ups;

        if (i > 0)
            set_up(NULL);
        start_up();
        run_for_ms(&loop, 60);
        RUN_UNTIL(&loop, both_up());
        ups = a.ups;
        run_for_ms(&loop, 100);
        assert_true(both_up());
        assert_int_equal(a.ups, ups);
        assert_int_equal(a.peer.dialled, !b.peer.dialled);
        finish();
    }
}

/* 32 MiB both ways over 64 KiB socket buffers: every byte comes, and heartbeats do not mistake it for silence. */
static void large_both_ways(void)
{
    struct sr_budget budget = {.limit_bytes = 80u << 20};

    config_a.socket_buffer_bytes = config_b.socket_buffer_bytes = 64 << 10;
    config_a.budget = config_b.budget = &budget;
    start_up();
    for (int i = 0; i < 4; i++) {
        assert_true(sr_link_send_msg(a.link, &collection, write_msg(SR_IO_MAX_BYTES, (uint8_t)i, NULL)));
        assert_true(sr_link_send_msg(b.link, &collection, write_msg(SR_IO_MAX_BYTES, (uint8_t)(i + 50), NULL)));
    }
    assert_true(sr_link_queue_bytes(a.link) > 4u * SR_IO_MAX_BYTES);
    RUN_UNTIL(&loop, a.msgs == 4 && b.msgs == 4);
    assert_int_equal(a.downs + b.downs, 0);
    assert_int_equal(a.payload_bytes, 4ull * SR_IO_MAX_BYTES);
    assert_true(budget.peak_bytes <= budget.limit_bytes);
    RUN_UNTIL(&loop, a.writables == 1 && b.writables == 1);
    finish();
    assert_int_equal(budget.used_bytes, 0);
}

static void test_large_tls(void **state)
{
    (void)state;
    large_both_ways();
}

static void test_large_insecure(void **state)
{
    (void)state;
    insecure();
    large_both_ways();
}

/* Thousands of small messages of many collections, in order. */
static void test_many_small(void **state)
{
    (void)state;
    start_up();
    b.keep_msgs = true;
    for (uint32_t i = 0; i < 5000; i++) {
        struct sr_peer_msg *msg = sr_peer_msg_new(SR_MSG_WRITTEN, 1);

        msg->id = i;
        collection.b[5] = (uint8_t)(i % 200);
        assert_true(sr_link_send_msg(a.link, &collection, msg));
    }
    RUN_UNTIL(&loop, b.msgs == 5000);
    assert_int_equal(b.last->id, 4999);
    assert_int_equal(b.last_collection.b[5], 4999 % 200);
    finish();
}

/* ---- refusals ----------------------------------------------------------------------------------------- */

/* Both ends say why, and neither comes up. */
static void nobody_comes_up(const char *at_a, const char *at_b)
{
    start();
    RUN_UNTIL(&loop, (!at_a || strstr(a.log, at_a)) && (!at_b || strstr(b.log, at_b)));
    assert_int_equal(a.ups + b.ups, 0);
    assert_false(both_up());
    finish();
}

static void test_wrong_name(void **state)
{
    struct cert_spec spec = {.dns = "site-x", .common_name = "site-b"};
    struct cert_file file;

    (void)state;
    certs_site(&certs, "wrong", &ca, &spec, &file);
    config_b.tls = certs_load(&ca, &file);
    sr_tls_unref(tls_b);
    tls_b = config_b.tls;
    nobody_comes_up("certificate is for \"site-x\", expected \"site-b\"",
                    "refused: the other end's certificate is for");
    sr_tls_unref(tls_b);
    tls_b = certs_load(&ca, &site_b);
}

static void test_wrong_ca(void **state)
{
    struct cert_spec spec = {.dns = "site-b"};
    struct cert_file other, file;
    struct sr_tls *tls;

    (void)state;
    certs_ca(&certs, "other-ca", &other);
    certs_site(&certs, "of-other", &other, &spec, &file);
    tls = certs_load(&other, &file);
    config_b.tls = tls;
    nobody_comes_up("certificate", "certificate");
    sr_tls_unref(tls);
}

/* B's clock sees A's certificate as expired. */
static void test_expired(void **state)
{
    (void)state;
    X509_VERIFY_PARAM_set_time(SSL_CTX_get0_param(sr_tls_context(tls_b)), time(NULL) + 7200);
    nobody_comes_up("refused us (TLS alert: certificate expired)",
                    "certificate was refused: certificate has expired");
    sr_tls_unref(tls_b);
    tls_b = certs_load(&ca, &site_b);
}

static void test_tls12_is_refused(void **state)
{
    (void)state;
    SSL_CTX_set_min_proto_version(sr_tls_context(tls_b), TLS1_2_VERSION);
    SSL_CTX_set_max_proto_version(sr_tls_context(tls_b), TLS1_2_VERSION);
    nobody_comes_up("protocol", "protocol");
    sr_tls_unref(tls_b);
    tls_b = certs_load(&ca, &site_b);
}

static void test_no_client_certificate(void **state)
{
    (void)state;
    config_a.peer = config_b.site; /* so that only A dials */
    config_b.peer = config_a.site;
    /* B asks for RSA only: A has no such certificate and sends none */
    SSL_CTX_set1_client_sigalgs_list(sr_tls_context(tls_b), "RSA-PSS+SHA256");
    nobody_comes_up("certificate required", "sent no certificate");
    sr_tls_unref(tls_b);
    tls_b = certs_load(&ca, &site_b);
}

static void test_insecure_meets_tls(void **state)
{
    (void)state;
    for (int dialler_is_insecure = 0; dialler_is_insecure < 2; dialler_is_insecure++) {
        if (dialler_is_insecure)
            set_up(NULL);
        config_a.peer = config_b.site;
        config_b.peer = config_a.site;
        if (dialler_is_insecure) {
            config_a.tls = NULL;
            config_a.insecure = true;
            nobody_comes_up("the other end speaks TLS, but this site is configured with insecure: true",
                            "TLS is required here, but the other end speaks without it");
        } else {
            config_b.tls = NULL;
            config_b.insecure = true;
            nobody_comes_up("TLS is required here, but the other end speaks without it",
                            "the other end speaks TLS, but this site is configured with insecure: true");
        }
    }
}

static void test_other_group(void **state)
{
    (void)state;
    config_b.group.b[3] = 1;
    nobody_comes_up("is not group", "is not group");
}

static void test_other_peer_name(void **state)
{
    (void)state;
    insecure();
    config_b.site_name = "site-c";
    nobody_comes_up("site \"site-c\" called, but the peer of site \"site-a\" is \"site-b\"", "is \"site-b\"");
}

static void test_same_site(void **state)
{
    (void)state;
    config_b.site = config_a.site;
    nobody_comes_up("both ends are site", "both ends are site");
}

static void test_peer_with_new_uuid(void **state)
{
    (void)state;
    config_a.peer.b[0] = 99;
    nobody_comes_up("was its state folder made anew?", "was its state folder made anew?");
}

static void test_owner_refuses(void **state)
{
    (void)state;
    a.refuse_peer = true;
    nobody_comes_up("not the site of old: site-b", "refused: not the site of old");
}

static void test_no_common_version(void **state)
{
    (void)state;
    config_b.version_min = SR_WIRE_VERSION_MAX + 1;
    config_b.version_max = SR_WIRE_VERSION_MAX + 2;
    nobody_comes_up("no common protocol version", "no common protocol version");
}

/* Both say who speaks what, once for each way in which they met, however often they try. */
static void test_an_older_peer_is_refused(void **state)
{
    struct sr_link_status at_a, at_b;

    (void)state;
    config_b.version_min = 1;
    config_b.version_max = SR_WIRE_VERSION_MIN - 1;
    start();
    RUN_UNTIL(&loop, (sr_link_status(a.link, &at_a), at_a.refused >= 6));
    RUN_UNTIL(&loop, (sr_link_status(b.link, &at_b), at_b.refused >= 6));
    assert_int_equal(a.ups + b.ups, 0);
    assert_non_null(strstr(a.log, "no common protocol version: site \"site-b\" (syncrep " SYNCREP_VERSION
                                  ") speaks 1 to 1, site \"site-a\" (syncrep " SYNCREP_VERSION ") 2 to 2"));
    assert_non_null(strstr(b.log, "no common protocol version: site \"site-a\" (syncrep " SYNCREP_VERSION
                                  ") speaks 2 to 2, site \"site-b\" (syncrep " SYNCREP_VERSION ") 1 to 1"));
    assert_int_equal(a.log_lines, 2);
    assert_int_equal(b.log_lines, 2);
    finish();
}

static void test_newer_peer_speaks_the_common_version(void **state)
{
    (void)state;
    config_b.version_min = 1;
    config_b.version_max = 9;
    start_up();
    assert_int_equal(a.peer.version, SR_WIRE_VERSION_MAX);
    assert_int_equal(b.peer.version, SR_WIRE_VERSION_MAX);
    greet_and_talk();
    finish();
}

/* ---- losing and finding again ------------------------------------------------------------------------- */

static void test_reason_is_logged_once(void **state)
{
    struct sr_link_status status;
    struct sr_link_address nowhere = {"127.0.0.1", 1};
    unsigned lines;

    (void)state;
    end_open(&a, &loop, &config_a);
    end_open(&b, &loop, &config_b);
    sr_link_set_peer_address(a.link, &nowhere);
    sr_link_start(a.link);
    RUN_UNTIL(&loop, (sr_link_status(a.link, &status), status.refused >= 4));
    lines = a.log_lines;
    assert_int_equal(lines, 1);
    assert_non_null(strstr(a.log, "Connection refused"));
    assert_non_null(strstr(status.last_error, "Connection refused"));
    nowhere.port = sr_link_port(b.link, 0);
    sr_link_start(b.link);
    sr_link_set_peer_address(a.link, &nowhere);
    RUN_UNTIL(&loop, both_up());
    assert_non_null(strstr(a.log, "more times"));
    finish();
}

static void test_fault_drops_and_reconnects(void **state)
{
    (void)state;
    start_up();
    RUN_UNTIL(&loop, both_up());
    sr_link_fault(a.link, "the peer wrote outside the volume");
    assert_false(sr_link_is_up(a.link));
    assert_int_equal(a.downs, 0); /* told from the loop */
    assert_false(sr_link_send_msg(a.link, &collection, sr_peer_msg_new(SR_MSG_STARTED, 1)));
    RUN_UNTIL(&loop, a.downs == 1 && b.downs == 1);
    assert_int_equal(a.cause, SR_LINK_FAULTY);
    assert_non_null(strstr(b.down_text, "wrote outside the volume"));
    RUN_UNTIL(&loop, both_up());
    greet_and_talk();
    finish();
}

/* No on_up before the owner has finished the old connection's work. */
static void test_drained_first(void **state)
{
    struct sr_link_status status;
    unsigned ups;

    (void)state;
    a.hold_drain = true;
    start_up();
    run_for_ms(&loop, 100);
    if (a.downs) { /* first contact replaced one */
        sr_link_drained(a.link);
        RUN_UNTIL(&loop, both_up());
    }
    ups = a.ups;
    sr_link_fault(b.link, "test");
    RUN_UNTIL(&loop, (sr_link_status(a.link, &status), status.state == SR_LINK_DRAINING));
    /* far longer than the deadlines of greeting and heartbeat */
    run_for_ms(&loop, 2500);
    assert_int_equal(a.ups, ups);
    assert_false(sr_link_is_up(b.link));
    sr_link_status(b.link, &status);
    assert_int_equal(status.state, SR_LINK_DRAINING);
    sr_link_drained(a.link);
    RUN_UNTIL(&loop, both_up());
    assert_int_equal(a.ups, ups + 1);
    finish();
}

/* Reading paused by the owner for long, and budget exhausted for long: nobody is taken for silent. */
static void test_pause_is_not_silence(void **state)
{
    unsigned msgs;

    (void)state;
    config_a.heartbeat_timeout_ms = config_b.heartbeat_timeout_ms = 300;
    config_a.socket_buffer_bytes = config_b.socket_buffer_bytes = 64 << 10;
    config_a.peer = config_b.site;
    config_b.peer = config_a.site;
    start_up();
    sr_link_pause_reading(b.link);
    assert_true(sr_link_send_msg(a.link, &collection, write_msg(SR_IO_MAX_BYTES, 1, NULL)));
    run_for_ms(&loop, 1200);
    assert_int_equal(a.downs + b.downs, 0);
    msgs = b.msgs;
    assert_int_equal(msgs, 0);
    sr_link_resume_reading(b.link);
    RUN_UNTIL(&loop, b.msgs == 1);
    assert_int_equal(a.downs + b.downs, 0);
    finish();
}

static void test_budget_stops_reading(void **state)
{
    struct sr_budget budget = {.limit_bytes = 1u << 20};
    struct sr_buf *hog;
    struct sr_link_status status;

    (void)state;
    config_b.budget = &budget;
    config_a.heartbeat_timeout_ms = config_b.heartbeat_timeout_ms = 300;
    config_a.peer = config_b.site;
    config_b.peer = config_a.site;
    hog = sr_buf_alloc(&budget, 900 << 10);
    start_up();
    for (int i = 0; i < 20; i++)
        assert_true(sr_link_send_msg(a.link, &collection, write_msg(200 << 10, 1, NULL)));
    RUN_UNTIL(&loop, (sr_link_status(b.link, &status), status.budget_waits == 1));
    run_for_ms(&loop, 800);
    assert_int_equal(b.msgs, 0);
    assert_int_equal(a.downs + b.downs, 0);
    sr_buf_unref(hog);
    sr_link_budget_freed(b.link);
    RUN_UNTIL(&loop, b.msgs == 20);
    assert_true(budget.peak_bytes <= budget.limit_bytes);
    /* and by itself, when nobody says so */
    hog = sr_buf_alloc(&budget, 900 << 10);
    assert_true(sr_link_send_msg(a.link, &collection, write_msg(200 << 10, 1, NULL)));
    RUN_UNTIL(&loop, (sr_link_status(b.link, &status), status.budget_waits == 2));
    sr_buf_unref(hog);
    RUN_UNTIL(&loop, b.msgs == 21);
    /* one that can never fit is a fault, not a wait for ever */
    assert_true(sr_link_send_msg(a.link, &collection, write_msg(2 << 20, 1, NULL)));
    RUN_UNTIL(&loop, b.downs == 1);
    assert_non_null(strstr(b.down_text, "more than the whole buffer memory"));
    finish();
}

static void test_new_certificates_without_dropping(void **state)
{
    struct sr_tls *fresh = certs_load(&ca, &site_a);

    (void)state;
    config_a.peer = config_b.site;
    config_b.peer = config_a.site;
    start_up();
    sr_link_set_tls(a.link, fresh);
    sr_tls_unref(fresh);
    run_for_ms(&loop, 50);
    assert_int_equal(a.downs, 0);
    sr_link_fault(a.link, "test");
    RUN_UNTIL(&loop, both_up() && a.ups == 2);
    finish();
}

static int group_set_up(void **state)
{
    struct cert_spec spec_a = {.dns = "site-a"}, spec_b = {.dns = "site-b"};

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    certs_make(&certs);
    certs_ca(&certs, "ca", &ca);
    certs_site(&certs, "a", &ca, &spec_a, &site_a);
    certs_site(&certs, "b", &ca, &spec_b, &site_b);
    tls_a = certs_load(&ca, &site_a);
    tls_b = certs_load(&ca, &site_b);
    return 0;
}

static int group_tear_down(void **state)
{
    (void)state;
    sr_tls_unref(tls_a);
    sr_tls_unref(tls_b);
    certs_remove(&certs);
    sr_buf_trim_cache();
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tls),
        TEST(test_insecure),
        TEST(test_known_peer_dials_once),
        TEST(test_first_contact_settles),
        TEST(test_large_tls),
        TEST(test_large_insecure),
        TEST(test_many_small),
        TEST(test_wrong_name),
        TEST(test_wrong_ca),
        TEST(test_expired),
        TEST(test_tls12_is_refused),
        TEST(test_no_client_certificate),
        TEST(test_insecure_meets_tls),
        TEST(test_other_group),
        TEST(test_other_peer_name),
        TEST(test_same_site),
        TEST(test_peer_with_new_uuid),
        TEST(test_owner_refuses),
        TEST(test_no_common_version),
        TEST(test_an_older_peer_is_refused),
        TEST(test_newer_peer_speaks_the_common_version),
        TEST(test_reason_is_logged_once),
        TEST(test_fault_drops_and_reconnects),
        TEST(test_drained_first),
        TEST(test_pause_is_not_silence),
        TEST(test_budget_stops_reading),
        TEST(test_new_certificates_without_dropping),
    };

    return cmocka_run_group_tests(tests, group_set_up, group_tear_down);
}
