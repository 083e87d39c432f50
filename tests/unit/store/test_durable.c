/* Durability shown, not assumed: no completion before the stable-storage call has returned (thread engine; the
 * ring's entries are looked at in test_ring.c).  The calls are wrapped at link time and made slow. */
#include "harness.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_uint writes_entered, writes_returned, writes_without_dsync, syncs_returned, changes_returned;

ssize_t __real_pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags);
ssize_t __wrap_pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __real_fallocate(int fd, int mode, off_t offset, off_t length);
int __wrap_fallocate(int fd, int mode, off_t offset, off_t length);

ssize_t __wrap_pwritev2(int fd, const struct iovec *iov, int n, off_t offset, int flags)
{
    ssize_t result;

    atomic_fetch_add(&writes_entered, 1);
    result = __real_pwritev2(fd, iov, n, offset, flags);
    usleep(20000);
    if (!(flags & RWF_DSYNC))
        atomic_fetch_add(&writes_without_dsync, 1);
    atomic_fetch_add(&writes_returned, 1);
    return result;
}

int __wrap_fdatasync(int fd)
{
    int result = __real_fdatasync(fd);

    usleep(20000);
    atomic_fetch_add(&syncs_returned, 1);
    return result;
}

int __wrap_fallocate(int fd, int mode, off_t offset, off_t length)
{
    int result = __real_fallocate(fd, mode, offset, length);

    atomic_fetch_add(&changes_returned, 1);
    return result;
}

static struct rig rig;

static void a_write_is_answered_after_its_stable_write_returned(void **state)
{
    struct sr_buf *buf = sr_buf_alloc(NULL, SR_MIB);

    (void)state;
    for (unsigned i = 0; i < 5; i++) {
        uint64_t offset = i * SR_MIB + (i % 2) * 100; /* whole blocks and merged ones */
        unsigned before = atomic_load(&writes_returned);

        assert_int_equal(do_write(&rig, offset, SR_MIB / 2, buf, 0), SR_OK);
        assert_true(atomic_load(&writes_returned) > before);
        assert_int_equal(atomic_load(&writes_returned), atomic_load(&writes_entered));
        assert_int_equal(atomic_load(&writes_without_dsync), 0);
    }
    sr_buf_unref(buf);
}

static void zeroes_are_answered_after_a_later_fdatasync_returned(void **state)
{
    (void)state;
    for (int may_trim = 0; may_trim < 2; may_trim++) {
        unsigned syncs = atomic_load(&syncs_returned), changes = atomic_load(&changes_returned);

        assert_int_equal(do_zero(&rig, 0, SR_MIB, may_trim), SR_OK);
        assert_int_equal(atomic_load(&changes_returned), changes + 1);
        assert_int_equal(atomic_load(&syncs_returned), syncs + 1);
    }
}

static void a_flush_is_answered_after_an_fdatasync_that_began_later(void **state)
{
    unsigned before = atomic_load(&syncs_returned);
    struct op ops[3];

    (void)state;
    assert_int_equal(do_flush(&rig), SR_OK);
    assert_int_equal(atomic_load(&syncs_returned), before + 1);
    for (int i = 0; i < 3; i++)
        op_start(&rig, &ops[i], &(struct sr_disk_io){.op = SR_DISK_FLUSH});
    op_wait(&rig, &ops[0]);
    assert_true(atomic_load(&syncs_returned) >= before + 2);
    op_wait(&rig, &ops[1]);
    op_wait(&rig, &ops[2]);
    assert_int_equal(atomic_load(&syncs_returned), before + 3);
}

/* Of a write-back volume: nothing is made stable before the flush. */
static void cached_changes_leave_it_to_the_flush(void **state)
{
    unsigned without_dsync = atomic_load(&writes_without_dsync), syncs = atomic_load(&syncs_returned);
    struct sr_buf *buf = sr_buf_alloc(NULL, SR_MIB);
    struct sr_disk_io changes[] = {
        {.op = SR_DISK_WRITE, .cached = true, .offset_bytes = SR_MIB, .length_bytes = SR_MIB, .buf = buf},
        {.op = SR_DISK_WRITE, .cached = true, .offset_bytes = SR_MIB + 100, .length_bytes = 600, .buf = buf},
        {.op = SR_DISK_ZERO, .cached = true, .offset_bytes = SR_MIB, .length_bytes = SR_MIB, .may_trim = true},
        {.op = SR_DISK_ZERO, .cached = true, .offset_bytes = SR_MIB, .length_bytes = 512},
    };
    struct op op;

    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        op_start(&rig, &op, &changes[i]);
        op_wait(&rig, &op);
        assert_int_equal(op.error, SR_OK);
    }
    assert_int_equal(atomic_load(&writes_without_dsync), without_dsync + 3);
    assert_int_equal(atomic_load(&syncs_returned), syncs);
    assert_int_equal(do_flush(&rig), SR_OK);
    assert_int_equal(atomic_load(&syncs_returned), syncs + 1);
    sr_buf_unref(buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_is_answered_after_its_stable_write_returned),
        cmocka_unit_test(zeroes_are_answered_after_a_later_fdatasync_returned),
        cmocka_unit_test(a_flush_is_answered_after_an_fdatasync_that_began_later),
        cmocka_unit_test(cached_changes_leave_it_to_the_flush),
    };
    int failed;

    if (!place_make("folder"))
        return TEST_SKIPPED;
    rig_open(&rig, SR_ENGINE_THREADS, "v");
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    rig_close(&rig);
    place_remove();
    return failed;
}
