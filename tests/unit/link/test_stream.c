/* test_stream.c - bytes come through whole, in order and without a stall, plain and in TLS. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ends.h"
#include "link/stream.h"

#define BIG_BYTES (32u << 20)

struct side {
    struct sr_stream *stream;
    uint8_t *got;
    size_t got_bytes, cap_bytes;
    size_t chunk_bytes;    /* asked for with each read */
    size_t per_call_bytes; /* read in one callback at most: the rest must come by itself */
    bool eof, broken, ready, failed;
    unsigned updates_left; /* KeyUpdates to ask for in the middle */
    unsigned drained;
    char error[256];
};

static uv_loop_t loop;
static struct certs certs;
static struct cert_file ca, site_a, site_b;

static void on_readable(void *arg)
{
    struct side *side = arg;
    size_t now = 0;

    while (now < side->per_call_bytes) {
        size_t room = side->cap_bytes - side->got_bytes;
        ssize_t got;

        if (room == 0) {
            sr_stream_pause_reading(side->stream);
            return;
        }
        got = sr_stream_read(side->stream, side->got + side->got_bytes,
                             room < side->chunk_bytes ? room : side->chunk_bytes);
        if (got == SR_STREAM_AGAIN)
            return;
        if (got < 0) {
            side->eof = got == SR_STREAM_EOF;
            side->broken = got == SR_STREAM_BROKEN;
            snprintf(side->error, sizeof side->error, "%s", sr_stream_error_text(side->stream));
            return;
        }
        side->got_bytes += (size_t)got;
        now += (size_t)got;
        /* OpenSSL refuses while a record waits for the socket */
        if (side->updates_left > 0 && side->got_bytes > side->cap_bytes / 4 &&
            SSL_key_update(sr_stream_ssl(side->stream), SSL_KEY_UPDATE_REQUESTED) == 1)
            side->updates_left--;
    }
}

static void on_drained(void *arg)
{
    ((struct side *)arg)->drained++;
}

static void on_ready(void *arg)
{
    ((struct side *)arg)->ready = true;
}

static void on_error(void *arg, enum sr_error error, const char *text)
{
    struct side *side = arg;

    (void)error;
    side->failed = true;
    snprintf(side->error, sizeof side->error, "%s", text);
}

static const struct sr_stream_callbacks callbacks = {on_readable, on_drained, on_ready, on_error};

static void open_pair(struct side *a, struct side *b, size_t cap_bytes, int buffer_bytes)
{
    struct side *sides[2] = {a, b};
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    for (int i = 0; i < 2; i++) {
        memset(sides[i], 0, sizeof *sides[i]);
        setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
        sides[i]->got = malloc(cap_bytes);
        sides[i]->cap_bytes = cap_bytes;
        sides[i]->chunk_bytes = sides[i]->per_call_bytes = SIZE_MAX;
        sides[i]->stream = sr_stream_new(&loop, fds[i], &callbacks, sides[i]);
        assert_non_null(sides[i]->stream);
    }
}

static void close_pair(struct side *a, struct side *b)
{
    sr_stream_close(a->stream);
    sr_stream_close(b->stream);
    free(a->got);
    free(b->got);
}

static void go_tls(struct side *client, struct side *server)
{
    struct sr_tls *tls_a = certs_load(&ca, &site_a), *tls_b = certs_load(&ca, &site_b);

    assert_int_equal(sr_stream_start_tls(client->stream, sr_tls_context(tls_a), SR_STREAM_CLIENT), SR_OK);
    assert_int_equal(sr_stream_start_tls(server->stream, sr_tls_context(tls_b), SR_STREAM_SERVER), SR_OK);
    sr_tls_unref(tls_a);
    sr_tls_unref(tls_b);
    RUN_UNTIL(&loop, client->ready && server->ready);
}

static struct sr_buf *pattern(uint32_t seed)
{
    struct sr_buf *buf = sr_buf_alloc(NULL, BIG_BYTES);
    uint32_t x = seed;

    for (size_t i = 0; i < BIG_BYTES; i += 4) {
        x = x * 1664525 + 1013904223;
        memcpy(buf->data + i, &x, 4);
    }
    return buf;
}

/* 32 MiB each way at once, through small socket buffers, with odd reads; B20. */
static void both_ways(bool tls, bool update, size_t per_call_bytes)
{
    struct sr_buf *from_a = pattern(1), *from_b = pattern(2);
    struct side a, b;

    open_pair(&a, &b, BIG_BYTES, 64 << 10);
    if (tls)
        go_tls(&a, &b);
    a.chunk_bytes = 7777;
    b.chunk_bytes = 100000;
    a.per_call_bytes = b.per_call_bytes = per_call_bytes;
    a.updates_left = b.updates_left = update ? 5 : 0;
    for (size_t at = 0; at < BIG_BYTES;) { /* messages of many sizes: some share a record, some fill many */
        size_t bytes = 1 + at % 5 * 30000 + at / 7 % 1000;

        bytes = bytes < BIG_BYTES - at ? bytes : BIG_BYTES - at;
        assert_true(sr_stream_queue(a.stream, from_a->data + at, bytes < 20 ? bytes : 20, from_a, at + 20,
                                    bytes < 20 ? 0 : bytes - 20));
        at += bytes;
    }
    assert_true(sr_stream_queue(b.stream, NULL, 0, from_b, 0, BIG_BYTES));
    RUN_UNTIL(&loop, (a.got_bytes == BIG_BYTES && b.got_bytes == BIG_BYTES) || a.failed || b.failed);
    assert_memory_equal(b.got, from_a->data, BIG_BYTES);
    assert_memory_equal(a.got, from_b->data, BIG_BYTES);
    assert_int_equal(sr_stream_queue_bytes(a.stream), 0);
    assert_int_equal(sr_stream_bytes_out(a.stream), BIG_BYTES);
    assert_int_equal(sr_stream_bytes_in(a.stream), BIG_BYTES);
    assert_int_equal(a.drained, 1);
    assert_true(a.updates_left + b.updates_left <= (update ? 5 : 0));
    close_pair(&a, &b);
    assert_int_equal(from_a->refs, 1);
    assert_int_equal(from_b->refs, 1);
    sr_buf_unref(from_a);
    sr_buf_unref(from_b);
}

static void test_plain_both_ways(void **state)
{
    (void)state;
    both_ways(false, false, SIZE_MAX);
}

static void test_tls_both_ways(void **state)
{
    (void)state;
    both_ways(true, false, SIZE_MAX);
}

static void test_tls_key_update(void **state)
{
    (void)state;
    both_ways(true, true, SIZE_MAX);
}

/* A reader that stops early is called again: nothing stays behind in OpenSSL or in the read-ahead. */
static void test_lazy_reader(void **state)
{
    (void)state;
    both_ways(false, false, 9000);
    both_ways(true, true, 9000);
}

/* One record holds many messages; the reader takes one byte a call and pauses in between. */
static void test_pause_with_pending_bytes(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        struct side a, b;

        open_pair(&a, &b, 100, 64 << 10);
        if (tls)
            go_tls(&a, &b);
        b.chunk_bytes = b.per_call_bytes = 1;
        b.cap_bytes = 1;
        assert_true(sr_stream_queue(a.stream, "0123456789", 10, NULL, 0, 0));
        for (size_t n = 1; n <= 10; n++) {
            RUN_UNTIL(&loop, b.got_bytes == n);
            b.cap_bytes = n + 1;
            sr_stream_resume_reading(b.stream);
        }
        assert_memory_equal(b.got, "0123456789", 10);
        close_pair(&a, &b);
    }
}

static void test_urgent_overtakes_between_messages(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        struct sr_buf *big = pattern(3);
        struct side a, b;
        const char *at;

        open_pair(&a, &b, BIG_BYTES + 100, 64 << 10);
        if (tls)
            go_tls(&a, &b);
        b.cap_bytes = 0; /* does not read yet */
        assert_true(sr_stream_queue(a.stream, "[", 1, big, 0, BIG_BYTES));
        run_for_ms(&loop, 20); /* the first message is under way */
        assert_true(sr_stream_queue(a.stream, "second", 6, NULL, 0, 0));
        assert_true(sr_stream_queue_urgent(a.stream, "PING1", 5));
        assert_true(sr_stream_queue_urgent(a.stream, "PING2", 5));
        assert_int_equal(sr_stream_queue_urgents(a.stream), 2);
        b.cap_bytes = BIG_BYTES + 17;
        sr_stream_resume_reading(b.stream);
        RUN_UNTIL(&loop, b.got_bytes == BIG_BYTES + 17);
        at = (const char *)b.got + 1 + BIG_BYTES;
        assert_memory_equal(at, "PING1PING2second", 16);
        assert_memory_equal(b.got + 1, big->data, BIG_BYTES);
        assert_int_equal(sr_stream_queue_urgents(a.stream), 0);
        close_pair(&a, &b);
        sr_buf_unref(big);
    }
}

/* Small messages share a record.  While such a record waits for the socket, more small and urgent ones arrive. */
static void test_urgent_never_splits_a_record(void **state)
{
    const unsigned n = 3000;

    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        unsigned plain = 0, urgent = 0;
        struct side a, b;

        open_pair(&a, &b, n * 200, 4096);
        if (tls)
            go_tls(&a, &b);
        b.per_call_bytes = 5000;
        for (unsigned i = 0; i < n; i++) {
            char text[101];

            snprintf(text, sizeof text, "M%-99u", i);
            assert_true(sr_stream_queue(a.stream, text, 100, NULL, 0, 0));
            snprintf(text, sizeof text, "U%-99u", i);
            assert_true(sr_stream_queue_urgent(a.stream, text, 100));
            if (i % 500 > 450) /* long records first, then urgent ones while they wait for the socket */
                uv_run(&loop, UV_RUN_NOWAIT);
        }
        RUN_UNTIL(&loop, b.got_bytes == b.cap_bytes);
        for (size_t at = 0; at < b.got_bytes; at += 100) {
            unsigned *next = b.got[at] == 'M' ? &plain : &urgent;
            char text[101];

            snprintf(text, sizeof text, "%c%-99u", next == &plain ? 'M' : 'U', (*next)++);
            assert_memory_equal(b.got + at, text, 100);
        }
        assert_int_equal(plain, n);
        assert_int_equal(urgent, n);
        close_pair(&a, &b);
    }
}

static void test_bytes_behind_starttls_are_refused(void **state)
{
    struct side a, b;
    struct sr_tls *tls = certs_load(&ca, &site_b);

    (void)state;
    open_pair(&a, &b, 4, 64 << 10);
    b.cap_bytes = b.chunk_bytes = 4;
    assert_true(sr_stream_queue(a.stream, "TLS!evil", 8, NULL, 0, 0));
    RUN_UNTIL(&loop, b.got_bytes == 4);
    assert_int_equal(sr_stream_start_tls(b.stream, sr_tls_context(tls), SR_STREAM_SERVER), SR_E_PROTOCOL);
    close_pair(&a, &b);
    sr_tls_unref(tls);
}

static void test_close_flushed_delivers(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        struct sr_buf *big = pattern(4);
        struct side a, b;

        open_pair(&a, &b, BIG_BYTES + 10, 64 << 10);
        if (tls)
            go_tls(&a, &b);
        /* what the other end sent and nobody read must not turn our end into a reset */
        assert_true(sr_stream_queue(b.stream, "unread", 6, NULL, 0, 0));
        a.cap_bytes = 0;
        assert_true(sr_stream_queue(a.stream, NULL, 0, big, 0, BIG_BYTES));
        sr_stream_close_flushed(a.stream, 20000);
        RUN_UNTIL(&loop, b.eof || b.broken || b.failed);
        assert_true(b.eof);
        assert_int_equal(b.got_bytes, BIG_BYTES);
        sr_stream_close(b.stream);
        RUN_UNTIL(&loop, big->refs == 1);
        free(a.got);
        free(b.got);
        sr_buf_unref(big);
    }
}

static void test_vanished_reader(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        struct sr_buf *big = pattern(5);
        struct side a, b;

        open_pair(&a, &b, 10, 64 << 10);
        if (tls)
            go_tls(&a, &b);
        b.cap_bytes = 0;
        sr_stream_pause_reading(a.stream); /* so that only the write can find out */
        assert_true(sr_stream_queue(a.stream, NULL, 0, big, 0, BIG_BYTES));
        run_for_ms(&loop, 10);
        shutdown(sr_stream_fd(b.stream), SHUT_RDWR);
        sr_stream_close(b.stream);
        RUN_UNTIL(&loop, a.failed);
        assert_true(strlen(a.error) > 0);
        assert_false(sr_stream_queue(a.stream, "x", 1, NULL, 0, 0));
        sr_stream_close(a.stream);
        RUN_UNTIL(&loop, big->refs == 1);
        free(a.got);
        free(b.got);
        sr_buf_unref(big);
    }
}

/* Messages of one loop turn leave in one piece. */
static void test_a_turn_is_one_write(void **state)
{
    struct side a, b;
    uint8_t seen[64];

    (void)state;
    open_pair(&a, &b, 64, 64 << 10);
    sr_stream_pause_reading(b.stream);
    for (int i = 0; i < 5; i++)
        assert_true(sr_stream_queue(a.stream, "abc", 3, NULL, 0, 0));
    assert_int_equal(recv(sr_stream_fd(b.stream), seen, sizeof seen, MSG_PEEK | MSG_DONTWAIT), -1);
    RUN_UNTIL(&loop, sr_stream_queue_bytes(a.stream) == 0);
    assert_int_equal(recv(sr_stream_fd(b.stream), seen, sizeof seen, MSG_DONTWAIT), 15);
    close_pair(&a, &b);
}

static int set_up(void **state)
{
    struct cert_spec spec_a = {.dns = "site-a"}, spec_b = {.dns = "site-b"};

    (void)state;
    signal(SIGPIPE, SIG_IGN);
    uv_loop_init(&loop);
    certs_make(&certs);
    certs_ca(&certs, "ca", &ca);
    certs_site(&certs, "a", &ca, &spec_a, &site_a);
    certs_site(&certs, "b", &ca, &spec_b, &site_b);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_finish(&loop);
    certs_remove(&certs);
    sr_buf_trim_cache();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_both_ways),
        cmocka_unit_test(test_tls_both_ways),
        cmocka_unit_test(test_tls_key_update),
        cmocka_unit_test(test_lazy_reader),
        cmocka_unit_test(test_pause_with_pending_bytes),
        cmocka_unit_test(test_urgent_overtakes_between_messages),
        cmocka_unit_test(test_urgent_never_splits_a_record),
        cmocka_unit_test(test_bytes_behind_starttls_are_refused),
        cmocka_unit_test(test_close_flushed_delivers),
        cmocka_unit_test(test_vanished_reader),
        cmocka_unit_test(test_a_turn_is_one_write),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
