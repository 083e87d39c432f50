/* The io_uring engine under a ring that misbehaves: nothing is lost; and every write it submits is a stable one. */
#include "harness.h"

#include <errno.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

static int answer_next[64]; /* what the next submits answer instead; 0: really submit */
static unsigned n_answers, submits, writes_seen, writes_without_dsync;
static bool dead;

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

int __wrap_io_uring_submit(struct io_uring *ring)
{
    submits++;
    if (dead)
        return -EBADF;
    if (n_answers > 0) {
        int answer = answer_next[--n_answers];

        if (answer)
            return answer;
    }
    for (unsigned at = ring->sq.sqe_head; at != ring->sq.sqe_tail; at++) {
        const struct io_uring_sqe *sqe = &ring->sq.sqes[at & *ring->sq.kring_mask];

        if (sqe->opcode != IORING_OP_WRITE)
            continue;
        writes_seen++;
        writes_without_dsync += !(sqe->rw_flags & RWF_DSYNC);
    }
    return __real_io_uring_submit(ring);
}

static struct rig rig;

#define AT_ONCE 300

static void write_many(void)
{
    static struct op ops[AT_ONCE];
    static struct sr_buf *bufs[AT_ONCE];
    struct sr_buf *back = sr_buf_alloc(NULL, 4096);

    for (unsigned i = 0; i < AT_ONCE; i++) {
        bufs[i] = sr_buf_alloc(NULL, 4096);
        fill_random(bufs[i]->data, 4096, i + submits);
        op_start(&rig, &ops[i],
                 &(struct sr_disk_io){
                     .op = SR_DISK_WRITE, .offset_bytes = i * 4096, .length_bytes = 4096, .buf = bufs[i]});
    }
    for (unsigned i = 0; i < AT_ONCE; i++) {
        op_wait(&rig, &ops[i]);
        assert_int_equal(ops[i].error, SR_OK);
    }
    for (unsigned i = 0; i < AT_ONCE; i++) {
        assert_int_equal(do_read(&rig, i * 4096, 4096, back, 0), SR_OK);
        assert_memory_equal(back->data, bufs[i]->data, 4096);
        sr_buf_unref(bufs[i]);
    }
    sr_buf_unref(back);
}

static void every_write_of_the_ring_is_stable(void **state)
{
    (void)state;
    write_many();
    assert_true(writes_seen >= AT_ONCE);
    assert_int_equal(writes_without_dsync, 0);
}

static void a_cached_write_is_not(void **state)
{
    struct sr_buf *buf = sr_buf_alloc(NULL, 4096);
    struct op op;
    unsigned before = writes_seen;

    (void)state;
    op_start(&rig, &op, &(struct sr_disk_io){.op = SR_DISK_WRITE, .cached = true, .length_bytes = 4096, .buf = buf});
    op_wait(&rig, &op);
    assert_int_equal(op.error, SR_OK);
    assert_int_equal(writes_seen, before + 1);
    assert_int_equal(writes_without_dsync, 1);
    sr_buf_unref(buf);
}

static void a_turn_is_submitted_at_once(void **state)
{
    struct sr_buf *buf = sr_buf_alloc(NULL, 8 * 4096);
    struct op ops[8];
    unsigned before = submits;

    (void)state;
    for (unsigned i = 0; i < 8; i++)
        op_start(&rig, &ops[i],
                 &(struct sr_disk_io){.op = SR_DISK_WRITE,
                                      .offset_bytes = i * 4096,
                                      .length_bytes = 4096,
                                      .buf = buf,
                                      .buf_offset = i * 4096});
    for (unsigned i = 0; i < 8; i++)
        op_wait(&rig, &ops[i]);
    assert_int_equal(submits, before + 1);
    sr_buf_unref(buf);
}

static void a_ring_that_is_busy_is_tried_again(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 40; i++)
        answer_next[n_answers++] = i % 3 == 0 ? -EAGAIN : i % 3 == 1 ? -EBUSY : -EINTR;
    write_many();
}

/* Last: the ring stays broken. */
static void a_broken_ring_loses_nothing(void **state)
{
    (void)state;
    dead = true;
    write_many();
    assert_int_equal(do_flush(&rig), SR_OK);
    assert_int_equal(do_zero(&rig, 0, SR_MIB, true), SR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_write_of_the_ring_is_stable),
        cmocka_unit_test(a_cached_write_is_not),
        cmocka_unit_test(a_turn_is_submitted_at_once),
        cmocka_unit_test(a_ring_that_is_busy_is_tried_again),
        cmocka_unit_test(a_broken_ring_loses_nothing),
    };
    struct io_uring ring;
    int failed;

    if (io_uring_queue_init(4, &ring, 0) < 0) {
        printf("SKIPPED: io_uring cannot be had here\n");
        return TEST_SKIPPED;
    }
    io_uring_queue_exit(&ring);
    if (!place_make("folder"))
        return TEST_SKIPPED;
    rig_open(&rig, SR_ENGINE_URING, "v");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rig_close(&rig);
    place_remove();
    return failed;
}
