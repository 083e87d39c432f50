/* test_hostile.c - strangers, liars and the half-dead: a raw socket plays the peer of site-b. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ends.h"

static uv_loop_t loop;
static struct end b;
static struct sr_link_config config;
static struct sr_uuid collection = {{3}};

static int set_up(void **state)
{
    (void)state;
    uv_loop_init(&loop);
    memset(&b, 0, sizeof b);
    end_config(&config, false, NULL);
    config.heartbeat_timeout_ms = 400;
    config.handshake_timeout_ms = 600;
    return 0;
}

static void start(void)
{
    end_open(&b, &loop, &config);
    sr_link_start(b.link);
}

static void finish(void)
{
    end_close(&b, &loop);
    loop_finish(&loop);
}

/* ---- the raw peer ------------------------------------------------------------------------------------- */

struct raw {
    int fd;
    uint8_t got[1 << 16];
    size_t got_bytes;
    bool closed;
};

static int raw_receive_bytes; /* SO_RCVBUF; 0: the system's */

static void raw_open(struct raw *raw)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(sr_link_port(b.link, 0))};

    memset(raw, 0, sizeof *raw);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    raw->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(raw->fd >= 0);
    if (raw_receive_bytes)
        setsockopt(raw->fd, SOL_SOCKET, SO_RCVBUF, &raw_receive_bytes, sizeof raw_receive_bytes);
    assert_int_equal(connect(raw->fd, (struct sockaddr *)&to, sizeof to), 0);
    fcntl(raw->fd, F_SETFL, O_NONBLOCK);
}

static void raw_send(struct raw *raw, const void *data, size_t bytes)
{
    assert_int_equal(send(raw->fd, data, bytes, MSG_NOSIGNAL), bytes);
}

/* Takes what has come; true: the other end has closed. */
static bool raw_poll(struct raw *raw)
{
    for (;;) {
        ssize_t got = recv(raw->fd, raw->got + raw->got_bytes, sizeof raw->got - raw->got_bytes, MSG_DONTWAIT);

        if (got > 0)
            raw->got_bytes += (size_t)got;
        if (got == 0 || (got < 0 && errno != EAGAIN))
            raw->closed = true;
        if (got <= 0)
            return raw->closed;
        if (raw->got_bytes == sizeof raw->got)
            raw->got_bytes = 0;
    }
}

/* The next message that came, heartbeats left out; NULL: none yet. */
static struct sr_site_msg *raw_next(struct raw *raw)
{
    char text[SR_FRAME_TEXT_BYTES];

    raw_poll(raw);
    while (raw->got_bytes >= SR_FRAME_FIXED_BYTES) {
        struct sr_frame_fixed fixed;
        struct sr_frame frame;
        size_t bytes;

        assert_int_equal(sr_frame_fixed_decode(raw->got, &fixed, text), SR_OK);
        bytes = SR_FRAME_FIXED_BYTES + fixed.header_bytes;
        if (raw->got_bytes < bytes)
            return NULL;
        assert_int_equal(sr_frame_header_decode(&fixed, raw->got + SR_FRAME_FIXED_BYTES, &frame, text), SR_OK);
        memmove(raw->got, raw->got + bytes, raw->got_bytes - bytes);
        raw->got_bytes -= bytes;
        if (frame.kind == SR_FRAME_SITE && frame.site->type != SR_SITE_PING && frame.site->type != SR_SITE_PONG)
            return frame.site;
        sr_frame_free(&frame);
    }
    return NULL;
}

static void raw_send_site(struct raw *raw, const struct sr_site_msg *msg)
{
    uint8_t out[4096];

    bool greeting = msg->type == SR_SITE_HELLO || msg->type == SR_SITE_HELLO_ACK || msg->type == SR_SITE_REFUSED;

    raw_send(raw, out,
             sr_frame_encode_site(out, sizeof out, greeting ? SR_WIRE_VERSION_HELLO : SR_WIRE_VERSION_MAX, msg));
}

static void raw_hello(struct raw *raw, uint64_t boot, uint64_t connection)
{
    struct sr_site_msg msg = {.type = SR_SITE_HELLO};

    msg.hello.version_min = SR_WIRE_VERSION_MIN;
    msg.hello.version_max = SR_WIRE_VERSION_MAX;
    msg.hello.site.b[0] = 1;
    msg.hello.group.b[0] = 77;
    strcpy(msg.hello.site_name, "site-a");
    msg.hello.boot = boot;
    msg.hello.connection = connection;
    raw_send_site(raw, &msg);
}

static void raw_expect(struct raw *raw, enum sr_site_msg_type type, const char *text)
{
    struct sr_site_msg *msg = NULL;

    RUN_UNTIL(&loop, (msg = raw_next(raw)) != NULL || raw->closed);
    assert_non_null(msg);
    assert_int_equal(msg->type, type);
    if (text && !strstr(msg->refused.text, text))
        fail_msg("expected \"%s\" in \"%s\"", text, msg->refused.text);
    sr_site_msg_free(msg);
}

static void raw_come_up(struct raw *raw, uint64_t boot, uint64_t connection)
{
    struct sr_site_msg ack = {.type = SR_SITE_HELLO_ACK, .ack = {.version = SR_WIRE_VERSION_MAX}};
    unsigned ups = b.ups;

    raw_open(raw);
    raw_hello(raw, boot, connection);
    raw_expect(raw, SR_SITE_HELLO, NULL);
    raw_expect(raw, SR_SITE_HELLO_ACK, NULL);
    raw_send_site(raw, &ack);
    RUN_UNTIL(&loop, b.ups == ups + 1);
}

static void raw_closes(struct raw *raw)
{
    RUN_UNTIL(&loop, raw_poll(raw));
    close(raw->fd);
}

/* ---- strangers ---------------------------------------------------------------------------------------- */

static void garbage(const void *data, size_t bytes, const char *reason)
{
    struct raw raw;
    unsigned lines = b.log_lines;

    raw_open(&raw);
    raw_send(&raw, data, bytes);
    RUN_UNTIL(&loop, b.log_lines > lines);
    raw_closes(&raw);
    if (!strstr(b.log, reason))
        fail_msg("expected \"%s\" in:\n%s", reason, b.log);
    assert_int_equal(b.log_lines, lines + 1);
}

static void test_garbage_is_one_line(void **state)
{
    uint8_t frame[256];
    struct sr_site_msg ping = {.type = SR_SITE_PING};
    size_t bytes = sr_frame_encode_site(frame, sizeof frame, SR_WIRE_VERSION_MAX, &ping);

    (void)state;
    start();
    garbage("GET / HTTP/1.1\r\nHost: x\r\n\r\n........", 36, "magic");
    garbage(frame, bytes, "not a greeting");
    memset(frame + 8, 0xff, 4);
    garbage(frame, SR_FRAME_FIXED_BYTES, "header_len");
    {
        struct sr_peer_msg *write = write_msg(4096, 1, NULL);

        sr_frame_encode_msg(frame, sizeof frame, SR_WIRE_VERSION_MAX, &collection, write);
        garbage(frame, SR_FRAME_FIXED_BYTES, "not a greeting");
        sr_peer_msg_free(write);
    }
    finish();
}

static void test_strangers_cannot_fill_the_log(void **state)
{
    struct sr_link_status status;
    struct raw raw;

    (void)state;
    start();
    for (int i = 0; i < 100; i++) {
        uint8_t junk[40];

        memset(junk, 'A' + i, sizeof junk);
        raw_open(&raw);
        raw_send(&raw, junk, sizeof junk);
        raw_closes(&raw);
    }
    RUN_UNTIL(&loop, (sr_link_status(b.link, &status), status.refused == 100));
    assert_true(b.log_lines <= 12);
    finish();
}

static void test_slow_loris(void **state)
{
    struct raw raw;
    uint64_t start_ns;

    (void)state;
    start();
    raw_open(&raw);
    start_ns = uv_hrtime();
    for (int i = 0; i < 30 && !raw_poll(&raw); i++) {
        (void)!send(raw.fd, i < 4 ? &"SRP1"[i] : "\1", 1, MSG_NOSIGNAL);
        run_for_ms(&loop, 50);
    }
    raw_closes(&raw);
    assert_true(uv_hrtime() - start_ns >= 500000000);
    assert_non_null(strstr(b.log, "no greeting within 600 ms"));
    finish();
}

/* 200 connections that say nothing: few are kept, and the peer still gets in. */
static void test_idle_crowd(void **state)
{
    static struct raw crowd[200];
    struct raw peer;
    int open = 0;

    (void)state;
    config.handshake_timeout_ms = 20000;
    start();
    for (int i = 0; i < 200; i++) {
        raw_open(&crowd[i]);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    run_for_ms(&loop, 100);
    for (int i = 0; i < 200; i++)
        open += !raw_poll(&crowd[i]);
    assert_int_equal(open, 16);
    run_for_ms(&loop, 1000); /* the grace of those that were taken */
    raw_come_up(&peer, 1, 1);
    for (int i = 0; i < 200; i++)
        close(crowd[i].fd);
    close(peer.fd);
    RUN_UNTIL(&loop, b.downs == 1);
    finish();
}

static void test_connect_and_close(void **state)
{
    struct raw raw, peer;

    (void)state;
    start();
    for (int i = 0; i < 500; i++) {
        raw_open(&raw);
        close(raw.fd);
        uv_run(&loop, UV_RUN_NOWAIT);
    }
    raw_come_up(&peer, 1, 1);
    assert_true(b.log_lines < 12);
    close(peer.fd);
    finish();
}

/* Without a free descriptor the loop does not spin, and the peer gets the one that is kept back. */
static void test_no_descriptors(void **state)
{
    struct rlimit old, low;
    struct raw raws[5], peer;
    int fill[64], n = 0;
    unsigned turns = 0;
    uint64_t until_ns;

    (void)state;
    start();
    memset(raws, 0, sizeof raws);
    /* sockets for the clients first; then nothing is left */
    raw_open(&peer);
    RUN_UNTIL(&loop, raw_poll(&peer) || peer.got_bytes > 0);
    close(peer.fd);
    run_for_ms(&loop, 20);
    for (int i = 0; i < 5; i++)
        raws[i].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    getrlimit(RLIMIT_NOFILE, &old);
    low = old;
    low.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &low);
    while (n < 64 && (fill[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    for (int i = 0; i < 5; i++) {
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(sr_link_port(b.link, 0))};

        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        assert_int_equal(connect(raws[i].fd, (struct sockaddr *)&to, sizeof to), 0);
    }
    until_ns = uv_hrtime() + 300000000;
    while (uv_hrtime() < until_ns) {
        uv_run(&loop, UV_RUN_NOWAIT);
        usleep(1000);
        turns++;
    }
    /* the first of them was accepted on the reserve: greet on it */
    raw_hello(&raws[0], 1, 1);
    {
        struct sr_site_msg ack = {.type = SR_SITE_HELLO_ACK, .ack = {.version = SR_WIRE_VERSION_MAX}};

        fcntl(raws[0].fd, F_SETFL, O_NONBLOCK);
        raw_expect(&raws[0], SR_SITE_HELLO, NULL);
        raw_expect(&raws[0], SR_SITE_HELLO_ACK, NULL);
        raw_send_site(&raws[0], &ack);
        RUN_UNTIL(&loop, b.ups == 1);
    }
    assert_true(turns > 10);
    assert_true(b.log_lines < 20);
    while (n > 0)
        close(fill[--n]);
    setrlimit(RLIMIT_NOFILE, &old);
    for (int i = 0; i < 5; i++)
        close(raws[i].fd);
    RUN_UNTIL(&loop, b.downs == 1);
    /* and all is well again */
    raw_come_up(&peer, 2, 1);
    close(peer.fd);
    finish();
}

/* ---- the peer, misbehaving ---------------------------------------------------------------------------- */

static void test_silent_peer_is_dead(void **state)
{
    struct raw raw;
    uint64_t start_ns;

    (void)state;
    start();
    raw_come_up(&raw, 1, 1);
    start_ns = uv_hrtime();
    RUN_UNTIL(&loop, b.downs == 1); /* no reset, no end: only nothing */
    assert_int_equal(b.cause, SR_LINK_SILENT);
    assert_true(uv_hrtime() - start_ns < UINT64_C(3000000000));
    assert_non_null(strstr(b.down_text, "silent"));
    close(raw.fd);
    finish();
}

/* Any byte is life, also half a frame. */
static void test_bytes_are_life(void **state)
{
    struct sr_peer_msg *write = write_msg(1 << 20, 1, NULL);
    uint8_t frame[4096];
    struct raw raw;

    (void)state;
    start();
    raw_come_up(&raw, 1, 1);
    raw_send(&raw, frame, sr_frame_encode_msg(frame, sizeof frame, SR_WIRE_VERSION_MAX, &collection, write));
    for (int i = 0; i < 10; i++) {
        raw_send(&raw, write->payload->data + i, 1);
        run_for_ms(&loop, 100);
        assert_int_equal(b.downs, 0);
    }
    sr_peer_msg_free(write);
    close(raw.fd);
    RUN_UNTIL(&loop, b.downs == 1);
    assert_int_equal(b.cause, SR_LINK_CLOSED_BY_PEER);
    finish();
}

static void faulty(void (*misbehave)(struct raw *raw), const char *reason)
{
    struct raw raw;
    unsigned downs = b.downs;
    static uint64_t connection = 1;

    raw_come_up(&raw, 1, ++connection);
    misbehave(&raw);
    RUN_UNTIL(&loop, b.downs == downs + 1);
    assert_int_equal(b.cause, SR_LINK_FAULTY);
    if (!strstr(b.down_text, reason))
        fail_msg("expected \"%s\" in \"%s\"", reason, b.down_text);
    raw_closes(&raw);
}

static void send_damaged_payload(struct raw *raw)
{
    struct sr_peer_msg *write = write_msg(4096, 1, NULL);
    uint8_t frame[4096];

    raw_send(raw, frame, sr_frame_encode_msg(frame, sizeof frame, SR_WIRE_VERSION_MAX, &collection, write));
    write->payload->data[7] ^= 1;
    raw_send(raw, write->payload->data, 4096);
    sr_peer_msg_free(write);
}

static void send_wrong_version(struct raw *raw)
{
    uint8_t frame[4096];
    struct sr_site_msg msg = {.type = SR_SITE_PING};

    raw_send(raw, frame, sr_frame_encode_site(frame, sizeof frame, SR_WIRE_VERSION_MAX + 1, &msg));
}

static void send_second_hello(struct raw *raw)
{
    raw_hello(raw, 1, 9);
}

static void send_second_ack(struct raw *raw)
{
    struct sr_site_msg ack = {.type = SR_SITE_HELLO_ACK, .ack = {.version = SR_WIRE_VERSION_MAX}};

    raw_send_site(raw, &ack);
}

static void send_noise(struct raw *raw)
{
    raw_send(raw, "................................................", 48);
}

static void test_faults_of_the_peer(void **state)
{
    (void)state;
    start();
    faulty(send_damaged_payload, "payload: checksum");
    faulty(send_wrong_version, "protocol version 3, expected 2");
    faulty(send_second_hello, "second HELLO");
    faulty(send_second_ack, "HELLO_ACK");
    faulty(send_noise, "magic");
    assert_int_equal(b.msgs, 0);
    finish();
}

/* A peer that asks and never listens cannot make us grow. */
static void test_ping_flood(void **state)
{
    static uint8_t pings[41 * 1000];
    struct sr_site_msg ping = {.type = SR_SITE_PING, .stamp = 1};
    size_t bytes = 0, at = 0;
    struct raw raw;

    (void)state;
    start();
    raw_receive_bytes = 4096;
    raw_come_up(&raw, 1, 1);
    raw_receive_bytes = 0;
    for (int i = 0; i < 1000; i++)
        bytes += sr_frame_encode_site(pings + bytes, sizeof pings - bytes, SR_WIRE_VERSION_MAX, &ping);
    /* until the sockets' buffers are full of answers, and then on */
    for (int more = 300; more > 0; more -= sr_link_queue_bytes(b.link) > 0) {
        ssize_t sent = send(raw.fd, pings + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (sent > 0)
            at = (at + (size_t)sent) % bytes;
        uv_run(&loop, UV_RUN_NOWAIT);
        assert_true(sr_link_is_up(b.link));
        assert_true(sr_link_queue_bytes(b.link) < 4096);
    }
    close(raw.fd);
    finish();
}

/* ---- which connection stays --------------------------------------------------------------------------- */

static void test_higher_connection_replaces(void **state)
{
    struct raw first, second, late;

    (void)state;
    b.hold_drain = true;
    start();
    raw_come_up(&first, 7, 10);
    raw_open(&second);
    raw_hello(&second, 7, 11);
    RUN_UNTIL(&loop, b.downs == 1);
    assert_int_equal(b.cause, SR_LINK_REPLACED);
    raw_expect(&second, SR_SITE_HELLO, NULL);
    run_for_ms(&loop, 100);
    assert_null(raw_next(&second)); /* the old one's work is not done: no answer yet */
    assert_int_equal(b.ups, 1);
    raw_expect(&first, SR_SITE_REFUSED, "newer connection");
    raw_closes(&first);
    /* one that is older than the waiting one is turned away */
    raw_open(&late);
    raw_hello(&late, 7, 9);
    raw_expect(&late, SR_SITE_HELLO, NULL);
    raw_expect(&late, SR_SITE_REFUSED, "newer connection");
    raw_closes(&late);
    {
        struct sr_site_msg ack = {.type = SR_SITE_HELLO_ACK, .ack = {.version = SR_WIRE_VERSION_MAX}};

        raw_send_site(&second, &ack);
        run_for_ms(&loop, 50);
        assert_int_equal(b.ups, 1);
        sr_link_drained(b.link);
        RUN_UNTIL(&loop, b.ups == 2);
        raw_expect(&second, SR_SITE_HELLO_ACK, NULL);
    }
    close(second.fd);
    RUN_UNTIL(&loop, b.downs == 2);
    sr_link_drained(b.link);
    finish();
}

/* A restarted peer counts its connections from one again: the boot number decides. */
static void test_higher_boot_replaces(void **state)
{
    struct raw first, second;

    (void)state;
    start();
    raw_come_up(&first, 7, 1000);
    raw_come_up(&second, 8, 1);
    assert_int_equal(b.downs, 1);
    raw_closes(&first);
    close(second.fd);
    RUN_UNTIL(&loop, b.downs == 2);
    finish();
}

static int group_set_up(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_garbage_is_one_line),
        TEST(test_strangers_cannot_fill_the_log),
        TEST(test_slow_loris),
        TEST(test_idle_crowd),
        TEST(test_connect_and_close),
        TEST(test_no_descriptors),
        TEST(test_silent_peer_is_dead),
        TEST(test_bytes_are_life),
        TEST(test_faults_of_the_peer),
        TEST(test_ping_flood),
        TEST(test_higher_connection_replaces),
        TEST(test_higher_boot_replaces),
    };

    return cmocka_run_group_tests(tests, group_set_up, NULL);
}
