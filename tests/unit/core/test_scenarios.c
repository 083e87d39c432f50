/* test_scenarios.c - two cores, step by step, in situations that random schedules meet rarely.
 *
 * Each site has a disk in memory; disk work, commits and messages are carried out in order unless a test holds them
 * back; time moves only by advance(). */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/mman.h>

#include "core/core.h"

#define VOLUME_BYTES (64u << 20)
#define DISK_BYTES   (UINT64_C(40) << 30)
#define IOS_MAX      1024
#define QUEUE_MAX    65536
#define REPLIES_MAX  64
#define NO_REPLY     (-1)
#define BUDGET_US    5000000u
#define WINDOW_BYTES (4u << 20)

struct site {
    struct sr_core *core;
    struct sr_actions actions;
    uint8_t *disk;
    struct sr_disk_io ios[IOS_MAX];
    bool io_used[IOS_MAX];
    struct sr_commit *commits[64];
    uint32_t n_commits;
    struct sr_peer_msg *out[QUEUE_MAX];
    uint32_t n_out;
    uint64_t timer_us, timer_events;
    int replies[REPLIES_MAX]; /* enum sr_error, or NO_REPLY */
    int admin;                /* of the last command; NO_REPLY: not answered */
    bool serving;
    bool retires, faults_expected;
    uint32_t n_faults;
    uint64_t asked_bytes[REPLIES_MAX];
    uint32_t n_forwards, n_forwards_out;                     /* to the other site; not yet answered */
    uint64_t forwards_out_bytes, several_forwards_max_bytes; /* the most while more than one was out */
    /* what a test does to it */
    bool hold_messages;
    bool (*hold)(const struct sr_disk_io *io);
    bool (*fails)(const struct sr_disk_io *io);
};

static struct site sites[2];
static bool write_back; /* the volume */
static bool fua;        /* of what is asked for */
static uint64_t volume_bytes;
static struct sr_core_tuning tune;
static uint64_t now_us;
static bool link_is_up;
static uint32_t randoms;

/* ---- the surroundings of a core
 * --------------------------------------------------------------------------------------- */

static struct sr_event make_event(enum sr_event_type type)
{
    struct sr_event event = {.type = type, .now_us = now_us, .wall_ms = now_us / 1000};

    randoms++;
    memcpy(event.random.b, &randoms, sizeof(randoms));
    event.random.b[15] = 1;
    return event;
}

/* What a FORWARD carries, or asks for. */
static uint64_t by_content(const struct sr_peer_msg *msg)
{
    return msg->content == SR_CONTENT_DATA || msg->content == SR_CONTENT_READ ? msg->length_bytes : 0;
}

static void count_forward(struct site *site, const struct sr_peer_msg *msg)
{
    if (msg->type != SR_MSG_FORWARD)
        return;
    site->n_forwards++;
    site->forwards_out_bytes += by_content(msg);
    if (++site->n_forwards_out > 1 && site->forwards_out_bytes > site->several_forwards_max_bytes)
        site->several_forwards_max_bytes = site->forwards_out_bytes;
}

static void count_reply(struct site *site, uint64_t id)
{
    if (site->n_forwards_out == 0)
        return;
    site->n_forwards_out--;
    site->forwards_out_bytes -= site->asked_bytes[id];
}

static void take_one(struct site *site, struct sr_action *action)
{
    uint32_t i = 0;

    switch (action->type) {
    case SR_ACT_DISK:
        while (site->io_used[i])
            i++;
        assert_true(i < IOS_MAX);
        site->io_used[i] = true;
        site->ios[i] = action->disk;
        break;
    case SR_ACT_COMMIT:
        assert_true(site->n_commits < 64);
        site->commits[site->n_commits++] = action->commit;
        break;
    case SR_ACT_SEND:
        count_forward(site, action->msg);
        if (!link_is_up)
            sr_peer_msg_free(action->msg);
        else
            site->out[site->n_out++] = action->msg;
        assert_true(site->n_out < QUEUE_MAX);
        break;
    case SR_ACT_REPLY:
        site->replies[action->reply.id] = action->reply.error;
        count_reply(site, action->reply.id);
        break;
    case SR_ACT_ADMIN:
        site->admin = action->admin.error;
        break;
    case SR_ACT_TIMER:
        site->timer_us = action->timer_us;
        break;
    case SR_ACT_SERVE:
        site->serving = action->serve;
        break;
    case SR_ACT_RETIRE:
        site->retires = true;
        break;
    case SR_ACT_LINK_FAULT:
        if (site->faults_expected) {
            site->n_faults++;
            break;
        }
        fail_msg("%s", action->text);
        break;
    case SR_ACT_HALT:
        fail_msg("%s", action->text);
        break;
    default:
        break;
    }
}

static void take(struct site *site)
{
    for (uint32_t i = 0; i < site->actions.n; i++)
        take_one(site, &site->actions.list[i]);
    sr_core_check(site->core);
}

static void step(struct site *site, struct sr_event *event)
{
    sr_core_step(site->core, event, &site->actions);
    take(site);
}

static void carry_out(struct site *site, const struct sr_disk_io *io)
{
    uint8_t *at = site->disk + io->offset_bytes;

    switch (io->op) {
    case SR_DISK_READ:
        memcpy(io->buf->data + io->buf_offset, at, io->length_bytes);
        break;
    case SR_DISK_WRITE:
        memcpy(at, io->buf->data + io->buf_offset, io->length_bytes);
        break;
    case SR_DISK_ZERO:
        memset(at, 0, io->length_bytes);
        break;
    case SR_DISK_HASH: /* any digest will do that tells these tests' blocks apart */
        for (uint64_t block = 0; block < io->length_bytes / SR_BLOCK_BYTES; block++)
            memcpy(io->buf->data + io->buf_offset + block * SR_DIGEST_BYTES, at + block * SR_BLOCK_BYTES,
                   SR_DIGEST_BYTES);
        break;
    case SR_DISK_FLUSH:
        break;
    }
}

static bool run_io(struct site *site, uint32_t i)
{
    struct sr_disk_io io = site->ios[i];
    struct sr_event event = make_event(SR_EV_DISK_DONE);

    if (site->hold && site->hold(&io))
        return false;
    site->io_used[i] = false;
    event.disk.io = io.io;
    if (site->fails && site->fails(&io))
        event.disk.error = SR_E_IO;
    else
        carry_out(site, &io);
    step(site, &event);
    return true;
}

static bool run_site(struct site *site, struct site *other)
{
    bool did = false;

    for (uint32_t i = 0; i < IOS_MAX; i++)
        did |= site->io_used[i] && run_io(site, i);
    if (site->n_commits > 0) {
        struct sr_event event = make_event(SR_EV_META_DONE);
        event.meta.commit = site->commits[0]->commit;
        memmove(site->commits, site->commits + 1, --site->n_commits * sizeof(site->commits[0]));
        step(site, &event);
        did = true;
    }
    if (site->retires) {
        struct sr_event event = make_event(SR_EV_RETIRED);
        site->retires = false;
        step(site, &event);
        did = true;
    }
    if (site->n_out > 0 && !site->hold_messages) {
        struct sr_event event = make_event(SR_EV_PEER_MSG);
        event.msg = site->out[0];
        memmove(site->out, site->out + 1, --site->n_out * sizeof(site->out[0]));
        step(other, &event);
        did = true;
    }
    if (site->timer_us && site->timer_us <= now_us) {
        struct sr_event event = make_event(SR_EV_TIME);
        site->timer_us = 0;
        site->timer_events++;
        step(site, &event);
        did = true;
    }
    return did;
}

static void run(void)
{
    for (int turn = 0;; turn++) {
        bool did = run_site(&sites[0], &sites[1]);
        did |= run_site(&sites[1], &sites[0]);
        if (!did)
            return;
        assert_true(turn < 1000000);
    }
}

static void advance(uint64_t us)
{
    uint64_t end_us = now_us + us;

    run();
    while (now_us < end_us) {
        uint64_t next_us = end_us;
        for (int i = 0; i < 2; i++)
            if (sites[i].timer_us && sites[i].timer_us < next_us)
                next_us = sites[i].timer_us;
        now_us = next_us > now_us ? next_us : now_us + 1;
        run();
    }
}

static void connect_sites(bool up)
{
    link_is_up = up;
    for (int i = 0; i < 2; i++) {
        while (!up && sites[i].n_out > 0)
            sr_peer_msg_free(sites[i].out[--sites[i].n_out]);
    }
    for (int i = 0; i < 2; i++) {
        struct sr_event event = make_event(up ? SR_EV_LINK_UP : SR_EV_LINK_DOWN);
        step(&sites[i], &event);
    }
}

/* ---- what tests do
 * -------------------------------------------------------------------------------------------------------- */

static struct sr_core_tuning tuning(void)
{
    return (struct sr_core_tuning){.stall_budget_ms = BUDGET_US / 1000,
                                   .hot_regions_max = 1024,
                                   .cool_after_ms = 10000,
                                   .retry_min_ms = 1000,
                                   .retry_max_ms = 60000,
                                   .resync_parallel = 4,
                                   .resync_min_bytes_per_s = 4u << 20,
                                   .resync_latency_factor_percent = 200,
                                   .forward_window_bytes = WINDOW_BYTES};
}

static void boot(int i, const struct sr_record *record)
{
    struct sr_core_volume volume = {.uuid.b[0] = 9, .size_bytes = volume_bytes, .write_back = write_back};
    struct sr_core_config config = {
        .tuning = tune, .n_volumes = 1, .volumes = &volume, .name = "v", .peer_name = i ? "a" : "b"};
    struct sr_event event = make_event(SR_EV_TIME);

    sites[i].core = sr_core_new(&config, record);
    assert_non_null(sites[i].core);
    sites[i].admin = NO_REPLY;
    sr_core_start(sites[i].core, &event, &sites[i].actions);
    take(&sites[i]);
}

/* The process is killed, with whatever is under way. */
static void end(int i)
{
    sr_core_free(sites[i].core);
    memset(sites[i].io_used, 0, sizeof(sites[i].io_used));
    sites[i].n_commits = 0;
    sites[i].timer_us = 0;
}

static struct sr_record record_of(bool active)
{
    return (struct sr_record){.role = active ? SR_ROLE_ACTIVE : SR_ROLE_ALTERNATE, .gen.b[0] = 1, .consistent = true};
}

static int set_up(void **state)
{
    (void)state;
    memset(sites, 0, sizeof(sites));
    now_us = 1000000;
    link_is_up = write_back = fua = false;
    volume_bytes = VOLUME_BYTES;
    tune = tuning();
    for (int i = 0; i < 2; i++) { /* as large as any test's volume; what is not written takes no memory */
        sites[i].disk =
            mmap(NULL, DISK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(sites[i].disk != MAP_FAILED);
        for (int k = 0; k < REPLIES_MAX; k++)
            sites[i].replies[k] = NO_REPLY;
    }
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        while (sites[i].n_out > 0)
            sr_peer_msg_free(sites[i].out[--sites[i].n_out]);
        sr_core_free(sites[i].core);
        sr_actions_free(&sites[i].actions);
        munmap(sites[i].disk, DISK_BYTES);
    }
    return 0;
}

static void start_pair(void)
{
    struct sr_record a = record_of(true), b = record_of(false);

    boot(0, &a);
    boot(1, &b);
    connect_sites(true);
    advance(100000);
}

/* The buffer of request `id`; a read's stays for the test to look at. */
static struct sr_buf *ask(int i, int id, enum sr_host_op op, uint64_t offset, uint64_t length, int fill)
{
    struct sr_event event = make_event(SR_EV_HOST);
    bool has_data = op == SR_HOST_READ || op == SR_HOST_WRITE;
    struct sr_buf *buf = has_data ? sr_buf_alloc(NULL, length) : NULL;

    sites[i].asked_bytes[id] = has_data ? length : 0;

    if (buf)
        memset(buf->data, fill, length);
    event.host = (struct sr_host_request){
        .id = (uint64_t)id, .op = op, .fua = fua, .offset_bytes = offset, .length_bytes = length, .buf = buf};
    step(&sites[i], &event);
    if (op == SR_HOST_READ)
        return buf;
    sr_buf_unref(buf);
    return NULL;
}

static void command(int i, enum sr_admin_command what)
{
    struct sr_event event = make_event(SR_EV_ADMIN);

    sites[i].admin = NO_REPLY;
    event.admin.id = 1;
    event.admin.command = what;
    step(&sites[i], &event);
}

static struct sr_core_status status_of(int i)
{
    struct sr_core_status status;

    sr_core_status(sites[i].core, now_us, &status);
    return status;
}

static bool first_block(const struct sr_disk_io *io)
{
    return io->op == SR_DISK_WRITE && io->offset_bytes == 0;
}

static bool every_write(const struct sr_disk_io *io)
{
    return io->op == SR_DISK_WRITE;
}

/* ---- switchover
 * -------------------------------------------------------------------------------------------------------- */

/* What queued is carried out by the other site a window at a time: its memory for what the link brings is bounded,
 * and is free again only when this site has confirmed those writes. */
static void the_queue_is_forwarded_in_a_window(void **state)
{
    (void)state;
    const uint64_t length = 3u << 19;

    start_pair();
    sites[1].hold_messages = true; /* READY */
    command(0, SR_ADMIN_SWITCHOVER);
    run();
    for (int id = 0; id < 8; id++)
        assert_null(ask(0, id, SR_HOST_WRITE, (uint64_t)id * length, length, 10 + id));
    assert_null(ask(0, 8, SR_HOST_TRIM, 7 * length, length, 0));
    struct sr_buf *read = ask(0, 9, SR_HOST_READ, 6 * length, length, 0);
    assert_null(ask(0, 10, SR_HOST_WRITE, 0, SR_IO_MAX_BYTES, 99)); /* more than the window */
    run();
    sites[1].hold_messages = false;
    run();
    assert_int_equal(sites[0].admin, SR_OK);
    for (int id = 0; id < 11; id++)
        assert_int_equal(sites[0].replies[id], SR_OK);
    assert_int_equal(read->data[0], 16);
    sr_buf_unref(read);
    assert_int_equal(sites[0].n_forwards, 11);
    assert_int_equal(sites[0].n_forwards_out, 0);
    assert_int_equal(sites[0].several_forwards_max_bytes, 2 * length); /* a third would be more than the window */
    assert_true(sites[1].serving && !sites[0].serving);
    assert_int_equal(status_of(1).sync, SR_SYNC_IN_SYNC);
    assert_memory_equal(sites[0].disk, sites[1].disk, VOLUME_BYTES);
}

/* ... and a peer that forwards more than that is not waited for: the link is dropped. */
static void more_than_the_window_is_refused(void **state)
{
    (void)state;
    struct sr_event event = make_event(SR_EV_PEER_MSG);

    start_pair();
    const uint64_t session = 1; /* the first of this link */
    event.msg = sr_peer_msg_new(SR_MSG_TAKE, session);
    event.msg->n_forwards = 3;
    step(&sites[1], &event);
    sites[1].faults_expected = true;
    for (int i = 0; i < 3; i++) {
        event.msg = sr_peer_msg_new(SR_MSG_FORWARD, session);
        event.msg->content = SR_CONTENT_READ;
        event.msg->id = (uint64_t)i + 1;
        event.msg->length_bytes = SR_FORWARD_WINDOW_BYTES / 2;
        step(&sites[1], &event);
        assert_int_equal(sites[1].n_faults, i == 2);
    }
}

/* ---- who serves
 * -------------------------------------------------------------------------------------------------------- */

/* A pause holds up the copying, not the rule that one site serves: the old site stops when it hears of the failover.
 */
static void paused_and_failed_over(void **state)
{
    (void)state;
    start_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 1);
    advance(1000);
    connect_sites(false);
    advance(1000000);
    command(1, SR_ADMIN_PAUSE);
    advance(1000000);
    command(1, SR_ADMIN_FAILOVER);
    advance(3000000);
    ask(1, 2, SR_HOST_WRITE, 0, 4096, 9);
    advance(7000000);
    connect_sites(true);
    advance(3000000);
    assert_true(sites[1].serving);
    assert_false(sites[0].serving);
    command(1, SR_ADMIN_RESUME);
    advance(3000000);
    assert_int_equal(status_of(0).sync, SR_SYNC_IN_SYNC);
    assert_memory_equal(sites[0].disk, sites[1].disk, VOLUME_BYTES);
}

/* The alternate cannot know what the active site does when their session has ended: it claims nothing. */
static void the_alternate_claims_nothing(void **state)
{
    (void)state;
    start_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 1);
    advance(1000);
    assert_int_equal(status_of(1).sync, SR_SYNC_IN_SYNC);
    command(1, SR_ADMIN_PAUSE);
    run();
    ask(0, 2, SR_HOST_WRITE, 0, 4096, 2);
    run();
    assert_int_equal(sites[0].replies[2], SR_OK);
    sites[1].hold = every_write;
    command(1, SR_ADMIN_RESUME);
    run();
    assert_int_not_equal(status_of(1).sync, SR_SYNC_IN_SYNC);
    connect_sites(false);
    run();
    assert_int_not_equal(status_of(1).sync, SR_SYNC_IN_SYNC);
}

/* ---- how long hosts wait
 * -------------------------------------------------------------------------------------------------- */

/* A write behind a copy that hangs at the peer: the peer may make it wait for the budget, no longer. */
static void behind_a_copy(void **state)
{
    (void)state;
    start_pair();
    connect_sites(false);
    ask(0, 1, SR_HOST_WRITE, 0, 65536, 1);
    advance(BUDGET_US + 500000);
    sites[1].hold = every_write;
    connect_sites(true);
    advance(2000000);
    ask(0, 2, SR_HOST_WRITE, 4096, 4096, 2);
    advance(BUDGET_US + 100000);
    assert_int_equal(sites[0].replies[2], SR_OK);
    assert_int_equal(status_of(0).cause, SR_CAUSE_PEER_STALLED);
}

/* The disk here is slow, the peer is not: nobody goes alone for that. */
static void slow_disk_here(void **state)
{
    (void)state;
    start_pair();
    sites[0].hold = first_block;
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 1);
    ask(0, 2, SR_HOST_WRITE, 0, 4096, 2);
    advance(BUDGET_US + 200000);
    sites[1].hold_messages = true;
    ask(0, 3, SR_HOST_WRITE, 65536, 4096, 3);
    advance(100);
    sites[1].hold_messages = false;
    advance(1000);
    assert_int_equal(status_of(0).sync, SR_SYNC_IN_SYNC);
    sites[0].hold = NULL;
    sites[1].hold_messages = true;
    advance(500);
    sites[1].hold_messages = false;
    advance(500);
    assert_int_equal(status_of(0).sync, SR_SYNC_IN_SYNC);
    for (int id = 1; id <= 3; id++)
        assert_int_equal(sites[0].replies[id], SR_OK);
}

/* A clean stop in the middle of a resync is one: maps are saved, and it is answered. */
static void stop_in_a_resync(void **state)
{
    struct sr_event event = {0};

    (void)state;
    start_pair();
    connect_sites(false);
    ask(0, 1, SR_HOST_ZERO, 0, VOLUME_BYTES, 0);
    advance(BUDGET_US + 500000);
    event = make_event(SR_EV_TUNE);
    event.tuning = tuning();
    event.tuning.resync_max_bytes_per_s = 4u << 20;
    step(&sites[0], &event);
    connect_sites(true);
    advance(500000);
    assert_true(status_of(0).resyncing);
    command(0, SR_ADMIN_STOP);
    advance(1000000);
    assert_int_equal(sites[0].admin, SR_OK);
}

/* A stop that is taken back because a write takes too long: the write is answered, and both go on as a pair. */
static void a_stop_taken_back(void **state)
{
    (void)state;
    start_pair();
    sites[0].hold = first_block;
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 1);
    command(0, SR_ADMIN_STOP);
    advance(BUDGET_US + 2500000);
    assert_int_equal(sites[0].admin, SR_E_TIMEOUT);
    assert_int_equal(sites[0].replies[1], NO_REPLY);
    command(0, SR_ADMIN_GO_ON);
    assert_int_equal(sites[0].admin, SR_OK);
    ask(0, 2, SR_HOST_WRITE, 65536, 4096, 2);
    sites[0].hold = NULL;
    advance(3000000);
    assert_int_equal(sites[0].replies[1], SR_OK);
    assert_int_equal(sites[0].replies[2], SR_OK);
    command(0, SR_ADMIN_STOP); /* this one ends the session */
    advance(1000000);
    assert_int_equal(sites[0].admin, SR_OK);
    assert_true(status_of(0).settled);
    assert_int_not_equal(status_of(1).sync, SR_SYNC_IN_SYNC);
    command(0, SR_ADMIN_GO_ON);
    ask(0, 3, SR_HOST_WRITE, 0, 4096, 3);
    advance(3000000);
    assert_int_equal(sites[0].replies[3], SR_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(status_of(i).sync, SR_SYNC_IN_SYNC);
    assert_memory_equal(sites[0].disk, sites[1].disk, VOLUME_BYTES);
}

/* ---- blocks that cannot be read
 * -------------------------------------------------------------------------------------------- */

static uint64_t bad_from, bad_to;

static bool bad_read(const struct sr_disk_io *io)
{
    bool reads = io->op == SR_DISK_READ || io->op == SR_DISK_HASH;

    return reads && io->offset_bytes < bad_to && io->offset_bytes + io->length_bytes > bad_from;
}

/* One bad block in a long read: the host gets all of it, and only that block is rewritten. */
static void one_bad_block(void **state)
{
    struct sr_buf *buf;

    (void)state;
    start_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 1 << 20, 7);
    advance(1000);
    bad_from = 8192;
    bad_to = 12288;
    sites[0].fails = bad_read;
    buf = ask(0, 2, SR_HOST_READ, 0, 1 << 20, 0);
    advance(1000);
    assert_int_equal(sites[0].replies[2], SR_OK);
    for (uint32_t i = 0; i < 1 << 20; i += 512)
        assert_int_equal(buf->data[i], 7);
    sr_buf_unref(buf);
    assert_int_equal(status_of(0).sync, SR_SYNC_IN_SYNC);
}

/* The last good copy is not given up for what cannot be read of it. */
static void more_bad_blocks_than_are_listed(void **state)
{
    struct sr_record a = record_of(true), b = {0};
    struct sr_buf *buf;

    (void)state;
    bad_from = 32u << 20;
    bad_to = VOLUME_BYTES;
    memset(sites[0].disk, 5, bad_from);
    boot(0, &a);
    boot(1, &b);
    sites[0].fails = bad_read;
    connect_sites(true);
    advance(60000000);
    assert_true(sites[0].serving);
    assert_false(status_of(0).record.failed);
    assert_int_equal(status_of(0).cause, SR_CAUSE_ACTIVE_IO_ERROR);
    buf = ask(0, 1, SR_HOST_READ, 0, 4096, 0);
    advance(1000);
    assert_int_equal(sites[0].replies[1], SR_OK);
    assert_int_equal(buf->data[0], 5);
    sr_buf_unref(buf);
    assert_memory_equal(sites[0].disk, sites[1].disk, bad_from);
}

/* While only unreadable blocks are left nothing is polled. */
static void nothing_left_to_copy(void **state)
{
    (void)state;
    start_pair();
    connect_sites(false);
    ask(0, 1, SR_HOST_WRITE, 0, 1 << 20, 1);
    advance(BUDGET_US + 500000);
    bad_from = 8192;
    bad_to = 12288;
    sites[0].fails = bad_read;
    connect_sites(true);
    advance(20000000);
    uint64_t before = sites[0].timer_events;
    advance(10000000);
    assert_in_range(sites[0].timer_events - before, 0, 50);
}

/* A read fails and waits for its lock; meanwhile the copy that held the block is replaced by an empty one. */
static void the_copy_that_held_it_is_gone(void **state)
{
    struct sr_record blank = {0};
    struct sr_buf *buf;

    (void)state;
    start_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 8192, 1);
    advance(1000);
    bad_from = 4096;
    bad_to = 8192;
    sites[0].hold = first_block;
    ask(0, 2, SR_HOST_WRITE, 0, 4096, 2); /* holds the lock */
    run();
    connect_sites(false);
    buf = ask(0, 3, SR_HOST_READ, 4096, 4096, 0xee);
    sites[0].fails = bad_read;
    advance(BUDGET_US + 100000);
    sr_core_free(sites[1].core);
    memset(sites[1].disk, 0, VOLUME_BYTES);
    boot(1, &blank);
    connect_sites(true);
    sites[0].hold = NULL;
    advance(10000000);
    if (sites[0].replies[3] == SR_OK) /* an error is right, data that nobody wrote last is not */
        assert_int_equal(buf->data[0], 1);
    sr_buf_unref(buf);
    assert_int_equal(sites[0].disk[4096], 1);
}

/* ---- write-back --------------------------------------------------------------------------------------------- */

static bool every_flush(const struct sr_disk_io *io)
{
    return io->op == SR_DISK_FLUSH;
}

static uint32_t cached_writes, stable_writes;

static bool count_writes(const struct sr_disk_io *io)
{
    cached_writes += io->op == SR_DISK_WRITE && io->cached;
    stable_writes += io->op == SR_DISK_WRITE && !io->cached;
    return false;
}

static void start_write_back_pair(void)
{
    write_back = true;
    start_pair();
    cached_writes = stable_writes = 0;
    sites[0].hold = sites[1].hold = count_writes;
}

static void a_flush_waits_for_both_disks(void **state)
{
    (void)state;
    start_write_back_pair();
    for (int slow = 0; slow < 2; slow++) {
        ask(0, 1, SR_HOST_WRITE, 0, 4096, 7);
        run();
        assert_int_equal(sites[0].replies[1], SR_OK);
        assert_int_equal(sr_core_volume_cached(sites[0].core, 0), 1);
        sites[slow].hold = every_flush;
        ask(0, 2, SR_HOST_FLUSH, 0, 0, 0);
        advance(1000000);
        assert_int_equal(sites[0].replies[2], NO_REPLY);
        sites[slow].hold = count_writes;
        run();
        assert_int_equal(sites[0].replies[2], SR_OK);
        assert_int_equal(sr_core_volume_cached(sites[0].core, 0), 0);
        sites[0].replies[1] = sites[0].replies[2] = NO_REPLY;
    }
    assert_int_equal(cached_writes, 4);
    assert_int_equal(stable_writes, 0);
}

static void fua_is_stable_at_both_sites(void **state)
{
    (void)state;
    start_write_back_pair();
    fua = true;
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 7);
    run();
    assert_int_equal(sites[0].replies[1], SR_OK);
    assert_int_equal(stable_writes, 2);
    assert_int_equal(cached_writes, 0);
    assert_int_equal(sr_core_volume_cached(sites[0].core, 0), 0);
}

/* What was written behind the beginning of a flush waits for the next one. */
static void later_writes_wait_for_the_next_flush(void **state)
{
    (void)state;
    start_write_back_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 7);
    run();
    sites[1].hold = every_flush;
    ask(0, 2, SR_HOST_FLUSH, 0, 0, 0);
    run();
    ask(0, 3, SR_HOST_WRITE, 8192, 4096, 8);
    ask(0, 4, SR_HOST_FLUSH, 0, 0, 0);
    run();
    assert_int_equal(sites[0].replies[3], SR_OK);
    uint64_t before = status_of(0).flushes;
    sites[1].hold = count_writes;
    run();
    assert_int_equal(sites[0].replies[4], SR_OK);
    assert_int_equal(status_of(0).flushes, before + 2);
}

/* The peer may make a FLUSH wait for the stall budget, as it may a write; its own disk's time does not count. */
static void a_flush_that_the_peer_holds_up_goes_alone(void **state)
{
    (void)state;
    start_write_back_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 8192, 7);
    run();
    sites[0].hold = sites[1].hold = every_flush;
    ask(0, 2, SR_HOST_FLUSH, 0, 0, 0);
    advance(2 * BUDGET_US);
    assert_string_equal(status_of(0).mode, "mirroring");
    sites[0].hold = count_writes;
    advance(BUDGET_US - 100000);
    assert_int_equal(sites[0].replies[2], NO_REPLY);
    advance(200000);
    assert_int_equal(sites[0].replies[2], SR_OK);
    assert_string_equal(status_of(0).mode, "alone");
    assert_int_equal(status_of(0).dirty_blocks, 2); /* which are in the peer's cache only */
    sites[1].hold = count_writes;
    advance(30000000);
    assert_string_equal(status_of(0).mode, "mirroring");
    assert_int_equal(status_of(0).equal_blocks, 2);
    assert_int_equal(status_of(0).copied_bytes, 0);
}

/* It had confirmed the writes, and its machine lost them. */
static void a_peer_that_restarts_gets_what_was_cached(void **state)
{
    struct sr_record b = record_of(false);

    (void)state;
    start_write_back_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 6);
    run();
    ask(0, 2, SR_HOST_FLUSH, 0, 0, 0);
    run();
    ask(0, 3, SR_HOST_WRITE, 3u << 20, 8192, 7); /* of the region, these are in doubt */
    run();
    connect_sites(false);
    end(1);
    memset(sites[1].disk + (3u << 20), 0, 4096);
    boot(1, &b);
    sites[1].hold_messages = true;
    connect_sites(true);
    ask(0, 4, SR_HOST_FLUSH, 0, 0, 0);
    advance(1000000);
    assert_int_equal(sites[0].replies[4], NO_REPLY);
    sites[1].hold_messages = false;
    advance(1000000);
    assert_int_equal(sites[0].replies[4], SR_OK);
    assert_string_equal(status_of(0).mode, "mirroring");
    assert_int_equal(status_of(0).compared_blocks, 2);
    assert_int_equal(status_of(0).copied_bytes, 4096);
    assert_memory_equal(sites[0].disk, sites[1].disk, VOLUME_BYTES);
}

/* The same process with the same caches: nothing is in doubt, and its caches are empty when it greets again. */
static void a_cut_puts_nothing_in_doubt(void **state)
{
    (void)state;
    start_write_back_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 6);
    run();
    sites[1].hold = every_flush;
    connect_sites(false);
    connect_sites(true);
    advance(1000000);
    assert_string_equal(status_of(0).mode, "holding");
    sites[1].hold = count_writes;
    advance(1000000);
    assert_string_equal(status_of(0).mode, "mirroring");
    assert_int_equal(status_of(0).compared_blocks, 0);
}

static void caches_empty_themselves(void **state)
{
    (void)state;
    start_write_back_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 6);
    advance(20000000);
    assert_int_equal(sr_core_volume_cached(sites[0].core, 0), 0);
    assert_int_equal(status_of(0).flushes, 1);
}

/* More regions than intents: a flush, not the administrator, makes room, and hosts only wait for it. */
static void cached_regions_are_bounded(void **state)
{
    const int regions = 9000;

    (void)state;
    volume_bytes = (uint64_t)regions * SR_REGION_BYTES;
    tune.hot_regions_max = UINT32_MAX;
    start_write_back_pair();
    for (int i = 0; i < regions; i++) {
        ask(0, 1, SR_HOST_WRITE, (uint64_t)i * SR_REGION_BYTES, 4096, 1 + i % 100);
        run();
        assert_int_equal(sites[0].replies[1], SR_OK);
        sites[0].replies[1] = NO_REPLY;
    }
    assert_int_equal(status_of(0).flushes, 1);
    assert_int_equal(sr_core_volume_cached(sites[0].core, 0), (uint64_t)regions - 8192);
}

static void a_stop_leaves_nothing_in_caches(void **state)
{
    (void)state;
    start_write_back_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 6);
    run();
    sites[1].hold = every_flush;
    command(0, SR_ADMIN_STOP);
    advance(1000000);
    assert_int_equal(sites[0].admin, NO_REPLY);
    sites[1].hold = count_writes;
    run();
    assert_int_equal(sites[0].admin, SR_OK);
    assert_int_equal(status_of(0).dirty_blocks, 0);
}

/* The session ends while the last flush is at the peer: this site's part is enough then, and nothing more is waited
 * for. */
static void a_stop_goes_on_when_the_peer_goes(void **state)
{
    (void)state;
    start_write_back_pair();
    ask(0, 1, SR_HOST_WRITE, 0, 4096, 6);
    run();
    sites[1].hold = every_flush;
    command(0, SR_ADMIN_STOP);
    run();
    connect_sites(false);
    run();
    assert_int_equal(sites[0].admin, SR_OK);
    assert_int_equal(status_of(0).dirty_blocks, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_queue_is_forwarded_in_a_window, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_than_the_window_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(paused_and_failed_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_alternate_claims_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(behind_a_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(slow_disk_here, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stop_in_a_resync, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_taken_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_bad_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_bad_blocks_than_are_listed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nothing_left_to_copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_copy_that_held_it_is_gone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_flush_waits_for_both_disks, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fua_is_stable_at_both_sites, set_up, tear_down),
        cmocka_unit_test_setup_teardown(later_writes_wait_for_the_next_flush, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_flush_that_the_peer_holds_up_goes_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_peer_that_restarts_gets_what_was_cached, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_cut_puts_nothing_in_doubt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(caches_empty_themselves, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cached_regions_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_leaves_nothing_in_caches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_goes_on_when_the_peer_goes, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
