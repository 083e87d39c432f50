/* The control server on a real socket: calls that outlive clients, clients that misbehave, bounds (control.c,
 * client.c, call.c, wait.c, events.c).  Server and clients share one thread: a client's step is "turn the loop until
 * ...". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "control/control.h"
#include "control/wire.h"

#define TURNS_MAX 20000

static uv_loop_t loop;
static uv_timer_t tick; /* keeps uv_run(ONCE) from sleeping for ever */
static struct sr_control *control;
static char folder[64], path[100];
static struct sr_control_call *held[300];
static unsigned n_begun, n_held, n_gone, n_logged;
static bool closed, condition_holds, reply_when_gone;

static void on_gone(void *arg)
{
    n_gone++;
    if (reply_when_gone)
        sr_control_reply_error(arg, SR_E_CANCELLED, NULL, NULL, "given up");
}

static void on_request(void *arg, struct sr_control_call *call, const Syncrep__Control__Request *request)
{
    const char *name = sr_control_op_object(request);

    (void)arg;
    n_begun++;
    if (strcmp(name, "now") == 0) {
        sr_control_reply_done(call, name, NULL, "done %s", name);
    } else if (strcmp(name, "big") == 0) {
        char *text = malloc(600000);
        memset(text, 'x', 600000);
        text[599999] = '\0';
        Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
        Syncrep__Control__Done done = SYNCREP__CONTROL__DONE__INIT;
        done.text = text;
        response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_DONE;
        response.done = &done;
        sr_control_reply(call, &response, false);
        sr_control_reply(call, &response, true);
        free(text);
    } else {
        sr_control_call_on_gone(call, on_gone, call);
        held[n_held++] = call;
    }
}

static enum sr_control_wait on_wait(void *arg, const char *name, Syncrep__Control__Condition condition,
                                    struct sr_control_wait_info *info)
{
    (void)arg;
    (void)name;
    (void)condition;
    snprintf(info->text, sizeof(info->text), "looked at");
    return condition_holds ? SR_CONTROL_WAIT_DONE : SR_CONTROL_WAIT_PENDING;
}

static void on_log(void *arg, enum sr_log_level level, const char *text)
{
    (void)arg;
    (void)text;
    n_logged += level <= SR_LOG_WARNING;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void on_closed(void *arg)
{
    (void)arg;
    closed = true;
}

static int open_server(uint32_t idle_ms, uint32_t stuck_ms)
{
    struct sr_control_options options = {
        .path = path, .site = "here", .group = (gid_t)-1, .idle_ms = idle_ms, .stuck_ms = stuck_ms};
    struct sr_control_callbacks callbacks = {on_request, on_wait, on_log};
    char text[300];

    n_begun = n_held = n_gone = n_logged = 0;
    closed = condition_holds = reply_when_gone = false;
    snprintf(folder, sizeof(folder), "/tmp/srcontrol-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/deep/er/control.sock", folder);
    uv_loop_init(&loop);
    uv_timer_init(&loop, &tick);
    uv_timer_start(&tick, on_tick, 1, 1);
    assert_int_equal(sr_control_open(&loop, &options, &callbacks, NULL, &control, text, sizeof(text)), SR_OK);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return open_server(0, 0);
}

static int setup_quick(void **state)
{
    (void)state;
    return open_server(100, 50);
}

static int teardown(void **state)
{
    char command[120];

    (void)state;
    if (control)
        sr_control_close(control, on_closed, NULL);
    control = NULL;
    for (int i = 0; i < TURNS_MAX && !closed; i++)
        uv_run(&loop, UV_RUN_ONCE);
    assert_true(closed);
    assert_int_equal(access(path, F_OK), -1);
    for (unsigned i = 0; i < n_held; i++)
        if (held[i])
            sr_control_reply_error(held[i], SR_E_CANCELLED, NULL, NULL, "too late");
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

/* ---- a client ---- */

static void turn(unsigned times)
{
    while (times-- > 0)
        uv_run(&loop, UV_RUN_ONCE);
}

#define TURN_UNTIL(condition)                                                                                        \
    do {                                                                                                             \
        int turns_ = 0;                                                                                              \
        while (!(condition) && turns_++ < TURNS_MAX)                                                                 \
            uv_run(&loop, UV_RUN_ONCE);                                                                              \
        assert_true(condition);                                                                                      \
    } while (0)

static int dial(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void ask(int fd, Syncrep__Control__Request *request)
{
    uint8_t frame[1000];
    size_t n = syncrep__control__request__get_packed_size(request);

    request->version = 1;
    n = syncrep__control__request__get_packed_size(request);
    sr_control_header_put(frame, (uint32_t)n);
    syncrep__control__request__pack(request, frame + 4);
    assert_int_equal(send(fd, frame, n + 4, MSG_NOSIGNAL), n + 4);
}

static void ask_pause(int fd, uint64_t id, const char *name, uint32_t deadline_ms)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__PauseRequest pause = SYNCREP__CONTROL__PAUSE_REQUEST__INIT;

    request.id = id;
    request.deadline_ms = deadline_ms;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_PAUSE;
    request.pause = &pause;
    pause.name = (char *)name;
    ask(fd, &request);
}

static void ask_wait(int fd, uint64_t id, uint64_t timeout_ms)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__WaitRequest wait = SYNCREP__CONTROL__WAIT_REQUEST__INIT;

    request.id = id;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_WAIT;
    request.wait = &wait;
    wait.name = (char *)"vm1";
    wait.condition = SYNCREP__CONTROL__CONDITION__CONDITION_IN_SYNC;
    wait.timeout_ms = timeout_ms;
    ask(fd, &request);
}

static void ask_events(int fd, bool follow)
{
    Syncrep__Control__Request request = SYNCREP__CONTROL__REQUEST__INIT;
    Syncrep__Control__EventsRequest events = SYNCREP__CONTROL__EVENTS_REQUEST__INIT;

    request.id = 1;
    request.op_case = SYNCREP__CONTROL__REQUEST__OP_EVENTS;
    request.events = &events;
    events.follow = follow;
    ask(fd, &request);
}

static void read_all(int fd, uint8_t *bytes, size_t n)
{
    size_t got = 0;

    for (int i = 0; got < n && i < TURNS_MAX; i++) {
        ssize_t r = recv(fd, bytes + got, n - got, MSG_DONTWAIT);
        if (r > 0)
            got += (size_t)r;
        else if (r == 0)
            fail_msg("closed after %zu of %zu bytes", got, n);
        else
            uv_run(&loop, UV_RUN_ONCE);
    }
    assert_int_equal(got, n);
}

/* The caller's: sr_control_response_free. */
static Syncrep__Control__Response *answer(int fd)
{
    uint8_t header[4];

    read_all(fd, header, 4);
    uint32_t n = sr_control_header_get(header);
    assert_true(n <= SR_CONTROL_RESPONSE_MAX_BYTES);
    uint8_t *body = malloc(n + 1);
    read_all(fd, body, n);
    Syncrep__Control__Response *response = sr_control_response_decode(body, n);
    free(body);
    assert_non_null(response);
    assert_int_equal(response->version, 1);
    return response;
}

static void expect_done(int fd, uint64_t id)
{
    Syncrep__Control__Response *response = answer(fd);

    assert_int_equal(response->body_case, SYNCREP__CONTROL__RESPONSE__BODY_DONE);
    assert_int_equal(response->id, id);
    assert_true(response->last);
    sr_control_response_free(response);
}

static void expect_error(int fd, uint64_t id, enum sr_error error)
{
    Syncrep__Control__Response *response = answer(fd);

    assert_int_equal(response->body_case, SYNCREP__CONTROL__RESPONSE__BODY_ERROR);
    assert_int_equal(response->error->code, error);
    assert_string_equal(response->error->name, sr_error_name(error));
    assert_int_equal(response->error->exit, sr_control_exit_class(error));
    assert_true(response->error->text[0] != '\0');
    assert_int_equal(response->id, id);
    assert_true(response->last);
    sr_control_response_free(response);
}

static bool is_closed(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);

    return n == 0 || (n < 0 && errno != EAGAIN);
}

static void still_serves(void)
{
    int fd = dial();

    ask_pause(fd, 77, "now", 0);
    expect_done(fd, 77);
    close(fd);
}

/* ---- tests ---- */

static void answers_now_and_later(void **state)
{
    int fd = dial();
    struct stat st;

    (void)state;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0660);
    ask_pause(fd, 1, "now", 0);
    expect_done(fd, 1);
    ask_pause(fd, 2, "later", 0);
    TURN_UNTIL(n_held == 1);
    assert_false(sr_control_call_gone(held[0]));
    assert_true(sr_control_call_left_ms(held[0]) > 1000);
    pid_t pid;
    uid_t uid;
    sr_control_call_peer(held[0], &pid, &uid);
    assert_int_equal(pid, getpid());
    assert_int_equal(uid, getuid());
    sr_control_reply_done(held[0], "later", NULL, "done");
    held[0] = NULL;
    expect_done(fd, 2);
    close(fd);
    assert_int_equal(n_gone, 0);
}

static void pipelined_requests_are_answered_in_order_one_at_a_time(void **state)
{
    int fd = dial();

    (void)state;
    ask_pause(fd, 1, "later", 0);
    ask_pause(fd, 2, "now", 0);
    ask_pause(fd, 3, "later", 0);
    TURN_UNTIL(n_held == 1);
    turn(20);
    assert_int_equal(n_held, 1);
    sr_control_reply_done(held[0], NULL, NULL, "done");
    held[0] = NULL;
    expect_done(fd, 1);
    expect_done(fd, 2);
    TURN_UNTIL(n_held == 2);
    close(fd);
}

static void a_client_that_goes_changes_nothing(void **state)
{
    int fd = dial();

    (void)state;
    ask_pause(fd, 1, "later", 0);
    TURN_UNTIL(n_held == 1);
    close(fd);
    TURN_UNTIL(n_gone == 1);
    assert_true(sr_control_call_gone(held[0]));
    sr_control_reply_done(held[0], NULL, NULL, "dropped");
    held[0] = NULL;
    still_serves();
}

static void a_reply_that_finds_the_client_gone_is_the_last(void **state)
{
    int fd = dial();

    (void)state;
    reply_when_gone = true;
    ask_pause(fd, 1, "later", 0);
    TURN_UNTIL(n_held == 1);
    close(fd); /* the server has not noticed yet */
    sr_control_reply_done(held[0], NULL, NULL, "done");
    held[0] = NULL;
    assert_int_equal(n_gone, 0);
    still_serves();
}

static void whoever_is_told_that_the_client_went_may_reply(void **state)
{
    int fd = dial();

    (void)state;
    reply_when_gone = true;
    ask_pause(fd, 1, "later", 0);
    TURN_UNTIL(n_held == 1);
    held[0] = NULL; /* answered by on_gone */
    close(fd);
    TURN_UNTIL(n_gone == 1);
    fd = dial();
    ask_pause(fd, 2, "later", 20);
    expect_error(fd, 2, SR_E_TIMEOUT);
    held[1] = NULL;
    assert_int_equal(n_gone, 2);
    close(fd);
}

/* Turns of the loop in 100 ms; the tick alone makes 100. */
static unsigned turns_in_100_ms(void)
{
    uint64_t start = uv_hrtime();
    unsigned turns = 0;

    for (; uv_hrtime() - start < 100000000; turns++)
        uv_run(&loop, UV_RUN_ONCE);
    return turns;
}

static void a_half_closed_client_gets_its_answers(void **state)
{
    int fd = dial();

    (void)state;
    /* more than is read at a time, so that the end is far behind what was read */
    ask_pause(fd, 1, "later", 0);
    for (uint64_t id = 2; id <= 250; id++)
        ask_pause(fd, id, "now", 0);
    shutdown(fd, SHUT_WR);
    TURN_UNTIL(n_held == 1);
    assert_true(turns_in_100_ms() < 400);
    assert_int_equal(n_gone, 0);
    sr_control_reply_done(held[0], NULL, NULL, "done");
    held[0] = NULL;
    for (uint64_t id = 1; id <= 250; id++)
        expect_done(fd, id);
    TURN_UNTIL(is_closed(fd));
    close(fd);
}

static void nothing_is_begun_while_an_answer_is_not_taken(void **state)
{
    int fd = dial();

    (void)state;
    for (uint64_t id = 1; id <= 5; id++)
        ask_pause(fd, id, "big", 0);
    turn(100);
    assert_int_equal(n_begun, 1);
    for (int i = 0; i < 10; i++)
        sr_control_response_free(answer(fd));
    assert_int_equal(n_begun, 5);
    close(fd);
}

static void the_deadline_answers_and_the_operation_goes_on(void **state)
{
    int fd = dial();

    (void)state;
    ask_pause(fd, 1, "later", 30);
    expect_error(fd, 1, SR_E_TIMEOUT);
    assert_int_equal(n_gone, 1);
    assert_true(sr_control_call_gone(held[0]));
    ask_pause(fd, 2, "now", 0);
    expect_done(fd, 2);
    sr_control_reply_done(held[0], NULL, NULL, "dropped");
    held[0] = NULL;
    close(fd);
}

static void a_bad_frame_costs_one_error_and_its_connection(void **state)
{
    static const struct {
        const char *bytes;
        size_t n;
        enum sr_error error;
    } bad[] = {{"\xff\xff\xff\xff", 4, SR_E_TOO_LARGE},
               {"\x01\x00\x01\x00", 4, SR_E_TOO_LARGE}, /* 64 KiB + 1 */
               {"\x02\x00\x00\x00\xff\xff", 6, SR_E_PROTOCOL},
               {"GET / HTTP/1.1\r\n", 16, SR_E_TOO_LARGE}};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int fd = dial();
        send(fd, bad[i].bytes, bad[i].n, MSG_NOSIGNAL);
        expect_error(fd, 0, bad[i].error);
        TURN_UNTIL(is_closed(fd));
        close(fd);
        still_serves();
    }
    /* well formed but not acceptable: the connection goes on */
    int fd = dial();
    send(fd, "\x04\x00\x00\x00\x08\x63\x10\x05", 8, MSG_NOSIGNAL);
    expect_error(fd, 5, SR_E_VERSION);
    ask_pause(fd, 2, "now", 0);
    expect_done(fd, 2);
    close(fd);
}

static void complaints_are_not_logged_without_bound(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        int fd = dial();
        send(fd, "\xff\xff\xff\xff", 4, MSG_NOSIGNAL);
        expect_error(fd, 0, SR_E_TOO_LARGE);
        close(fd);
    }
    assert_true(n_logged <= 12);
}

static void a_frame_may_come_byte_by_byte(void **state)
{
    char bytes[] = "\x0b\x00\x00\x00\x08\x01\x10\x05\x9a\x01\x05\x0a\x03now";
    int fd = dial();

    (void)state;
    sr_control_header_put((uint8_t *)bytes, sizeof(bytes) - 1 - 4);
    for (size_t i = 0; i < sizeof(bytes) - 1; i++) {
        turn(2);
        send(fd, bytes + i, 1, MSG_NOSIGNAL);
    }
    Syncrep__Control__Response *response = answer(fd);
    assert_int_equal(response->id, 5);
    sr_control_response_free(response);
    close(fd);
}

static void clients_that_do_nothing_are_closed(void **state)
{
    int idle = dial(), half = dial(), deaf = dial();

    (void)state;
    send(half, "\x10\x00", 2, MSG_NOSIGNAL);
    ask_pause(deaf, 1, "big", 0);
    TURN_UNTIL(is_closed(half));
    TURN_UNTIL(is_closed(idle));
    /* what was sent before is still there to read, then the end comes */
    static uint8_t sink[65536];
    turn(200);
    size_t got = 0;
    for (ssize_t n; (n = recv(deaf, sink, sizeof(sink), MSG_DONTWAIT)) > 0;)
        got += (size_t)n;
    assert_true(got < 1200000);
    assert_true(is_closed(deaf));
    close(idle);
    close(half);
    close(deaf);
    still_serves();
}

static void a_long_answer_waits_for_its_reader(void **state)
{
    int fd = dial();

    (void)state;
    ask_pause(fd, 1, "big", 0);
    turn(50);
    Syncrep__Control__Response *response = answer(fd);
    assert_false(response->last);
    assert_int_equal(strlen(response->done->text), 599999);
    sr_control_response_free(response);
    response = answer(fd);
    assert_true(response->last);
    sr_control_response_free(response);
    ask_pause(fd, 2, "now", 0);
    expect_done(fd, 2);
    close(fd);
}

static void an_idle_client_makes_room_for_a_new_one(void **state)
{
    int fds[64];

    (void)state;
    for (int i = 0; i < 64; i++) {
        fds[i] = dial();
        turn(2);
    }
    still_serves(); /* the 65th */
    assert_true(is_closed(fds[0]) || is_closed(fds[1]));
    for (int i = 0; i < 64; i++)
        close(fds[i]);
}

static void waiters_leave_room_for_others_and_are_bounded(void **state)
{
    int fds[49];

    (void)state;
    for (int i = 0; i < 48; i++) {
        fds[i] = dial();
        ask_wait(fds[i], 1, 60000);
        turn(2);
    }
    fds[48] = dial();
    ask_wait(fds[48], 1, 60000);
    expect_error(fds[48], 1, SR_E_BUSY);
    still_serves();
    condition_holds = true;
    sr_control_state_changed(control);
    sr_control_state_changed(control);
    for (int i = 0; i < 48; i++)
        expect_done(fds[i], 1);
    for (int i = 0; i < 49; i++)
        close(fds[i]);
}

static void when_all_are_busy_a_new_one_is_turned_away(void **state)
{
    int fds[64];

    (void)state;
    for (int i = 0; i < 64; i++) {
        fds[i] = dial();
        ask_pause(fds[i], 1, "later", 0);
        TURN_UNTIL(n_held == (unsigned)i + 1);
    }
    int fd = dial();
    expect_error(fd, 0, SR_E_BUSY);
    TURN_UNTIL(is_closed(fd));
    close(fd);
    for (int i = 0; i < 64; i++)
        close(fds[i]);
    TURN_UNTIL(n_gone == 64);
    still_serves();
}

static void operations_without_clients_are_bounded(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 256; i++) {
        int fd = dial();
        ask_pause(fd, 1, "later", 0);
        TURN_UNTIL(n_held == i + 1);
        close(fd);
        TURN_UNTIL(n_gone == i + 1);
    }
    int fd = dial();
    ask_pause(fd, 1, "later", 0);
    expect_error(fd, 1, SR_E_BUSY);
    for (unsigned i = 0; i < 256; i++) {
        sr_control_reply_done(held[i], NULL, NULL, "dropped");
        held[i] = NULL;
    }
    ask_pause(fd, 2, "now", 0);
    expect_done(fd, 2);
    close(fd);
}

static void a_wait_ends_by_state_or_time(void **state)
{
    int fd = dial();

    (void)state;
    ask_wait(fd, 1, 40);
    expect_error(fd, 1, SR_E_TIMEOUT);
    ask_wait(fd, 2, 0);
    expect_error(fd, 2, SR_E_TIMEOUT);
    ask_wait(fd, 3, 60000);
    turn(20);
    assert_int_equal(recv(fd, (char[1]){0}, 1, MSG_DONTWAIT), -1);
    condition_holds = true;
    uint64_t start = uv_hrtime();
    sr_control_state_changed(control);
    expect_done(fd, 3);
    assert_true(uv_hrtime() - start < 800000000); /* not by the look that is taken each second */
    ask_wait(fd, 4, 0);
    expect_done(fd, 4);
    close(fd);
}

static void followers_get_what_happens_and_gaps_when_slow(void **state)
{
    int fd = dial();
    uint64_t before = 0;
    bool gap = false;

    (void)state;
    sr_control_emit(control, SR_LOG_NOTICE, "daemon", "", 1, "first");
    ask_events(fd, true);
    Syncrep__Control__Response *response = answer(fd);
    assert_string_equal(response->event->text, "first");
    assert_false(response->last);
    sr_control_response_free(response);
    /* far more than the socket and the pause bound hold, unread */
    for (int i = 0; i < 5000; i++)
        sr_control_emit(control, SR_LOG_NOTICE, "sync", "vm1", 2, "event %d %0200d", i, 0);
    do {
        response = answer(fd);
        gap = gap || (before > 0 && response->event->sequence != before + 1);
        assert_true(response->event->sequence > before);
        before = response->event->sequence;
        sr_control_response_free(response);
    } while (before < 5001);
    assert_true(gap);
    close(fd);
    turn(10);
    sr_control_emit(control, SR_LOG_NOTICE, "sync", "vm1", 2, "nobody listens");
    fd = dial();
    ask_events(fd, false);
    for (unsigned n = 0;; n++) {
        response = answer(fd);
        bool last = response->last;
        sr_control_response_free(response);
        if (last) {
            assert_int_equal(n, 256);
            break;
        }
    }
    close(fd);
}

static void closing_answers_everybody(void **state)
{
    int waiting = dial(), asking = dial(), following = dial();

    (void)state;
    ask_wait(waiting, 1, 60000);
    ask_pause(asking, 2, "later", 0);
    ask_events(following, true);
    TURN_UNTIL(n_held == 1);
    turn(10);
    sr_control_close(control, on_closed, NULL);
    control = NULL;
    expect_error(waiting, 1, SR_E_SHUTDOWN);
    expect_error(asking, 2, SR_E_SHUTDOWN);
    expect_error(following, 1, SR_E_SHUTDOWN);
    assert_int_equal(n_gone, 1);
    TURN_UNTIL(closed);
    /* the call outlives the server */
    assert_true(sr_control_call_gone(held[0]));
    assert_int_equal(sr_control_call_left_ms(held[0]), 0);
    sr_control_reply_done(held[0], NULL, NULL, "too late");
    held[0] = NULL;
    close(waiting);
    close(asking);
    close(following);
}

static void running_out_of_descriptors_does_not_spin(void **state)
{
    struct rlimit before, tight;
    int probe = dup(0);

    (void)state;
    close(probe);
    getrlimit(RLIMIT_NOFILE, &before);
    tight = before;
    tight.rlim_cur = (rlim_t)probe + 1; /* the client's own descriptor is the last */
    setrlimit(RLIMIT_NOFILE, &tight);
    int fd = dial();
    ask_pause(fd, 1, "now", 0);
    assert_true(turns_in_100_ms() < 400);
    setrlimit(RLIMIT_NOFILE, &before);
    expect_done(fd, 1);
    close(fd);
}

static void a_daemon_that_answers_keeps_its_socket(void **state)
{
    struct sr_control_options options = {.path = path, .site = "x", .group = (gid_t)-1};
    struct sr_control_callbacks callbacks = {on_request, on_wait, on_log};
    struct sr_control *second = NULL;
    char text[300] = "";

    (void)state;
    assert_int_equal(sr_control_open(&loop, &options, &callbacks, NULL, &second, text, sizeof(text)), SR_E_LOCKED);
    assert_non_null(strstr(text, path));
    still_serves();
    options.path = "relative.sock";
    assert_int_equal(sr_control_open(&loop, &options, &callbacks, NULL, &second, text, sizeof(text)), SR_E_INVALID);
    options.path = "/dev/null/x";
    assert_int_not_equal(sr_control_open(&loop, &options, &callbacks, NULL, &second, text, sizeof(text)), SR_OK);
}

#define TEST(name)       cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_QUICK(name) cmocka_unit_test_setup_teardown(name, setup_quick, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers_now_and_later),
        TEST(pipelined_requests_are_answered_in_order_one_at_a_time),
        TEST(a_client_that_goes_changes_nothing),
        TEST(a_reply_that_finds_the_client_gone_is_the_last),
        TEST(whoever_is_told_that_the_client_went_may_reply),
        TEST(a_half_closed_client_gets_its_answers),
        TEST(nothing_is_begun_while_an_answer_is_not_taken),
        TEST(the_deadline_answers_and_the_operation_goes_on),
        TEST(a_bad_frame_costs_one_error_and_its_connection),
        TEST(complaints_are_not_logged_without_bound),
        TEST(a_frame_may_come_byte_by_byte),
        TEST_QUICK(clients_that_do_nothing_are_closed),
        TEST(a_long_answer_waits_for_its_reader),
        TEST(an_idle_client_makes_room_for_a_new_one),
        TEST(waiters_leave_room_for_others_and_are_bounded),
        TEST(when_all_are_busy_a_new_one_is_turned_away),
        TEST(operations_without_clients_are_bounded),
        TEST(a_wait_ends_by_state_or_time),
        TEST(followers_get_what_happens_and_gaps_when_slow),
        TEST(closing_answers_everybody),
        TEST(running_out_of_descriptors_does_not_spin),
        TEST(a_daemon_that_answers_keeps_its_socket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
