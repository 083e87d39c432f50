/* The log never stops anybody: blocked, full, closed and vanished sinks (case B49). */
#include "cmocka_all.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Reads until `needle` was seen (true) or nothing came for that long; appends to text. */
static bool read_for(int fd, char *text, size_t bytes, const char *needle, int idle_ms)
{
    size_t n = strlen(text);

    while (strstr(text, needle) == NULL) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        if (n + 1 >= bytes || poll(&poll_fd, 1, idle_ms) != 1)
            return false;
        ssize_t got = read(fd, text + n, bytes - 1 - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
        text[n] = '\0';
    }
    return true;
}

static bool read_until(int fd, char *text, size_t bytes, const char *needle)
{
    return read_for(fd, text, bytes, needle, 10000);
}

/* All lines that the log itself says were dropped. */
static uint64_t sum_of_notes(const char *text)
{
    uint64_t sum = 0;

    for (const char *note = text; (note = strstr(note, "<4>")) != NULL; note++)
        if (strstr(note, " log lines were dropped") != NULL)
            sum += strtoull(note + 3, NULL, 10);
    return sum;
}

static void lines_arrive_in_order_and_by_level(void **state)
{
    char text[4096] = "";
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(sr_log_init(SR_LOG_INFO, SR_LOG_TEXT, fds[1]), SR_OK);
    assert_int_equal(sr_log_init(SR_LOG_INFO, SR_LOG_TEXT, fds[1]), SR_E_BUSY);
    sr_log(SR_LOG_ERROR, "one %d", 1);
    sr_log(SR_LOG_DEBUG, "hidden");
    sr_log_set_level(SR_LOG_DEBUG);
    sr_log(SR_LOG_DEBUG, "two");
    sr_log_limited(SR_LOG_NOTICE, "k", "three");
    sr_log_limited(SR_LOG_NOTICE, "k", "three");
    sr_log_limited_clear("k");
    sr_log_close(5000);
    close(fds[1]);
    assert_true(read_until(fds[0], text, sizeof(text), "times)\n"));
    assert_string_equal(text, "<3>one 1\n<7>two\n<5>three\n<5>three (repeated 1 times)\n");
    close(fds[0]);
}

static void a_long_message_is_cut(void **state)
{
    char text[4096] = "", message[3000];
    int fds[2];

    (void)state;
    memset(message, 'x', sizeof(message) - 1);
    message[sizeof(message) - 1] = '\0';
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(sr_log_init(SR_LOG_INFO, SR_LOG_TEXT, fds[1]), SR_OK);
    sr_log(SR_LOG_INFO, "%s", message);
    sr_log_close(5000);
    assert_true(read_until(fds[0], text, sizeof(text), "...\n"));
    assert_int_equal(strlen(text), 3 + SR_LOG_MESSAGE_BYTES - 1 + 1);
    close(fds[0]);
    close(fds[1]);
}

static void a_blocked_sink_costs_lines_and_tells_how_many(void **state)
{
    static char text[2 * 1024 * 1024];
    uint64_t before = sr_log_dropped(), start = now_ms();
    int fds[2];

    (void)state;
    text[0] = '\0';
    assert_int_equal(pipe(fds), 0); /* nobody reads */
    assert_int_equal(sr_log_init(SR_LOG_INFO, SR_LOG_TEXT, fds[1]), SR_OK);
    for (int i = 0; i < 20000; i++)
        sr_log(SR_LOG_INFO, "line %d of a flood that nobody reads", i);
    uint64_t lost = sr_log_dropped() - before;
    assert_true(lost > 0 && lost < 20000);
    assert_true(now_ms() - start < 10000);

    assert_true(read_until(fds[0], text, sizeof(text), "log lines were dropped"));
    do /* until the ring has room for it */
        sr_log(SR_LOG_INFO, "the sink works again");
    while (!read_for(fds[0], text, sizeof(text), "<6>the sink works again\n", 200));
    sr_log_close(5000);
    close(fds[1]);
    read_until(fds[0], text, sizeof(text), "no such text: read to the end");
    assert_non_null(strstr(text, "<6>line 0 of a flood"));
    assert_int_equal(sum_of_notes(text), sr_log_dropped() - before);
    close(fds[0]);
}

static void closing_waits_no_longer_than_it_is_told(void **state)
{
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(sr_log_init(SR_LOG_INFO, SR_LOG_TEXT, fds[1]), SR_OK);
    for (int i = 0; i < 20000; i++)
        sr_log(SR_LOG_INFO, "line %d of a flood that nobody reads", i);
    uint64_t start = now_ms(), before = sr_log_dropped();
    sr_log_close(300);
    assert_true(now_ms() - start >= 250);
    assert_true(now_ms() - start < 5000);
    assert_true(sr_log_dropped() > before); /* what the ring still held */
    close(fds[0]);
    close(fds[1]);
}

static void a_broken_pipe_kills_nobody(void **state)
{
    uint64_t before = sr_log_dropped();
    int fds[2];

    (void)state;
    signal(SIGPIPE, SIG_DFL); /* the log does not rely on main() ignoring it */
    assert_int_equal(pipe(fds), 0);
    close(fds[0]);
    assert_int_equal(sr_log_init(SR_LOG_INFO, SR_LOG_TEXT, fds[1]), SR_OK);
    for (int i = 0; i < 100; i++)
        sr_log(SR_LOG_ERROR, "nobody hears line %d", i);
    sr_log_close(5000);
    assert_int_equal(sr_log_dropped() - before, 100);
    close(fds[1]);
}

static void a_closed_descriptor_is_never_somebody_elses(void **state)
{
    uint64_t before = sr_log_dropped();
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    int number = fds[1];
    close(fds[1]);
    assert_int_equal(sr_log_init(SR_LOG_INFO, SR_LOG_TEXT, number), SR_OK);
    sr_log(SR_LOG_ERROR, "must go nowhere");
    sr_log_close(5000);
    assert_int_equal(sr_log_dropped() - before, 1);
    close(fds[0]);
}

static void a_full_disk_recovers_and_the_torn_line_ends(void **state)
{
    char path[] = "/tmp/sr-log-XXXXXX", text[4096] = "", filler[900];
    struct rlimit before, tight;
    ssize_t n;

    (void)state;
    memset(filler, 'f', sizeof(filler) - 1);
    filler[sizeof(filler) - 1] = '\0';
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(unlink(path), 0);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    tight = (struct rlimit){.rlim_cur = 1000, .rlim_max = before.rlim_max}; /* stands for a full disk */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    assert_int_equal(sr_log_init(SR_LOG_INFO, SR_LOG_TEXT, fd), SR_OK);
    uint64_t dropped = sr_log_dropped();
    sr_log(SR_LOG_INFO, "%s", filler);
    sr_log(SR_LOG_INFO, "%s", filler); /* only its start fits */
    while (sr_log_dropped() == dropped)
        usleep(1000);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    sr_log(SR_LOG_INFO, "room again");
    sr_log_close(5000);
    assert_true((n = pread(fd, text, sizeof(text) - 1, 0)) > 0);
    text[n] = '\0';
    assert_non_null(strstr(text, "fff\n<6>room again\n<4>1 log lines were dropped"));
    close(fd);
}

static void *flood(void *arg)
{
    for (int i = 0; i < 500; i++)
        sr_log_limited(SR_LOG_INFO, (const char *)arg, "thread %s line %d", (const char *)arg, i);
    for (int i = 0; i < 200; i++)
        sr_log(SR_LOG_INFO, "plain %s", (const char *)arg);
    return NULL;
}

static void many_threads_log_whole_lines(void **state)
{
    static char text[256 * 1024];
    static char names[4][4] = {"a", "b", "c", "d"};
    pthread_t threads[4];
    int fds[2], plain = 0;

    (void)state;
    text[0] = '\0';
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(sr_log_init(SR_LOG_INFO, SR_LOG_TEXT, fds[1]), SR_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, flood, names[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    sr_log(SR_LOG_INFO, "end of test");
    sr_log_close(5000);
    assert_true(read_until(fds[0], text, sizeof(text), "end of test\n"));
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_memory_equal(line, "<6>", 3);
        plain += strncmp(line, "<6>plain ", 9) == 0;
    }
    assert_int_equal(plain, 800);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_arrive_in_order_and_by_level),
        cmocka_unit_test(a_long_message_is_cut),
        cmocka_unit_test(a_blocked_sink_costs_lines_and_tells_how_many),
        cmocka_unit_test(closing_waits_no_longer_than_it_is_told),
        cmocka_unit_test(a_broken_pipe_kills_nobody),
        cmocka_unit_test(a_closed_descriptor_is_never_somebody_elses),
        cmocka_unit_test(a_full_disk_recovers_and_the_torn_line_ends),
        cmocka_unit_test(many_threads_log_whole_lines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
