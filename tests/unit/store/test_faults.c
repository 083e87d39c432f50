/* Errors of the disk, injected behind the interface: what is answered, and what is never believed again. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum sr_store_engine_kind kind;

static int setup(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));

    faults_set("");
    rig_open(rig, kind, "v");
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    rig_close(*state);
    free(*state);
    return 0;
}

static struct sr_buf *data(size_t bytes, uint32_t seed)
{
    struct sr_buf *buf = sr_buf_alloc(NULL, bytes);

    fill_random(buf->data, bytes, seed);
    return buf;
}

static void check_content(struct rig *rig, uint64_t offset, const struct sr_buf *expected)
{
    struct sr_buf *buf = sr_buf_alloc(NULL, expected->length);

    assert_int_equal(do_read(rig, offset, expected->length, buf, 0), SR_OK);
    assert_memory_equal(buf->data, expected->data, expected->length);
    sr_buf_unref(buf);
}

static void a_failed_fsync_is_never_believed_again(void **state)
{
    struct rig *rig = *state;
    struct sr_buf *buf = data(4096, 1);

    faults_set("v.img op=flush error=EIO count=1\n");
    assert_int_equal(do_flush(rig), SR_E_IO);
    assert_true(sr_store_failed(rig->store));
    assert_int_equal(do_flush(rig), SR_E_IO);
    assert_int_equal(do_write(rig, 0, 4096, buf, 0), SR_E_IO);
    assert_int_equal(do_zero(rig, 0, 4096, true), SR_E_IO);
    assert_int_equal(do_read(rig, 0, 4096, buf, 0), SR_OK);
    rig_reopen(rig);
    assert_int_equal(do_flush(rig), SR_OK);
    sr_buf_unref(buf);
}

static void recover_forgets_the_failure_once_the_disk_answers(void **state)
{
    struct rig *rig = *state;

    faults_set("v.img op=flush error=EIO count=1\nv.img op=open error=EIO count=1\n");
    assert_int_equal(do_flush(rig), SR_E_IO);
    assert_int_equal(sr_store_recover(rig->store), SR_E_IO);
    assert_int_equal(do_flush(rig), SR_E_IO);
    assert_int_equal(sr_store_recover(rig->store), SR_OK);
    assert_int_equal(do_flush(rig), SR_OK);
}

static void a_failed_fsync_fails_all_who_wait(void **state)
{
    struct rig *rig = *state;
    struct op ops[5];

    /* The first is in flight, held back; the others wait for the next, which must not be tried. */
    faults_set("v.img op=flush error=EIO delay_ms=30 count=1\n");
    for (int i = 0; i < 4; i++)
        op_start(rig, &ops[i], &(struct sr_disk_io){.op = SR_DISK_FLUSH});
    op_start(rig, &ops[4], &(struct sr_disk_io){.op = SR_DISK_ZERO, .length_bytes = SR_MIB, .may_trim = true});
    for (int i = 0; i < 5; i++) {
        op_wait(rig, &ops[i]);
        assert_int_equal(ops[i].error, SR_E_IO);
    }
}

static void flushes_share_one_fdatasync(void **state)
{
    struct rig *rig = *state;
    struct op ops[20];

    /* The first goes alone, the other 19 share the second: a third would fail. */
    faults_set("v.img op=flush error=EIO after=2\n");
    for (int i = 0; i < 20; i++)
        op_start(rig, &ops[i], &(struct sr_disk_io){.op = SR_DISK_FLUSH});
    for (int i = 0; i < 20; i++) {
        op_wait(rig, &ops[i]);
        assert_int_equal(ops[i].error, SR_OK);
    }
    assert_int_equal(do_flush(rig), SR_E_IO);
}

static void a_flush_is_not_answered_by_an_earlier_fdatasync(void **state)
{
    struct rig *rig = *state;
    struct op first, second;

    faults_set("v.img op=flush delay_ms=30 count=1\nv.img op=flush error=EIO\n");
    op_start(rig, &first, &(struct sr_disk_io){.op = SR_DISK_FLUSH});
    op_start(rig, &second, &(struct sr_disk_io){.op = SR_DISK_FLUSH});
    op_wait(rig, &first);
    assert_int_equal(first.error, SR_OK);
    op_wait(rig, &second);
    assert_int_equal(second.error, SR_E_IO);
}

static void an_fsync_without_space_is_a_failure(void **state)
{
    faults_set("v.img op=flush error=ENOSPC count=1\n");
    assert_int_equal(do_flush(*state), SR_E_IO);
    assert_int_equal(do_flush(*state), SR_E_IO);
}

static void short_transfers_are_continued(void **state)
{
    struct rig *rig = *state;
    struct sr_buf *buf = data(SR_MIB, 2);

    faults_set("v.img op=write error=short count=3\nv.img op=read error=short count=3\n");
    assert_int_equal(do_write(rig, SR_MIB, SR_MIB, buf, 0), SR_OK);
    check_content(rig, SR_MIB, buf);
    sr_buf_unref(buf);
}

/* Writing behind the end of what is left would leave zeroes between that nobody wrote. */
static void a_copy_that_was_cut_off_takes_no_more_writes(void **state)
{
    struct rig *rig = *state;
    struct sr_buf *buf = data(SR_MIB, 3);

    faults_set("");
    assert_int_equal(truncate(rig->path, (off_t)(SR_MIB / 2)), 0);
    assert_int_equal(do_read(rig, SR_MIB / 2, SR_BLOCK_BYTES, buf, 0), SR_E_IO);
    assert_true(sr_store_failed(rig->store));
    assert_int_equal(do_write(rig, SR_MIB - SR_BLOCK_BYTES, SR_BLOCK_BYTES, buf, 0), SR_E_IO);
    sr_buf_unref(buf);
}

static void a_transfer_that_stops_is_an_error(void **state)
{
    struct rig *rig = *state;
    struct sr_buf *buf = data(SR_MIB, 3);

    faults_set("v.img op=read error=zero count=1\n");
    assert_int_equal(do_read(rig, 0, SR_MIB, buf, 0), SR_E_IO);
    faults_set("v.img op=read error=short count=1\nv.img op=read error=zero count=1\n");
    assert_int_equal(do_read(rig, 0, SR_MIB, buf, 0), SR_E_IO);
    assert_false(sr_store_failed(rig->store));
    faults_set("v.img op=write error=short count=1\nv.img op=write error=zero count=1\n");
    assert_int_equal(do_write(rig, 0, SR_MIB, buf, 0), SR_E_IO);
    assert_true(sr_store_failed(rig->store));
    sr_buf_unref(buf);
}

static void a_write_error_fails_the_store_but_no_space_does_not(void **state)
{
    struct rig *rig = *state;
    struct sr_buf *buf = data(SR_MIB, 4);

    faults_set("v.img op=write error=ENOSPC count=1\n");
    assert_int_equal(do_write(rig, 0, SR_MIB, buf, 0), SR_E_NO_SPACE);
    faults_set("v.img op=write error=EDQUOT count=1\n");
    assert_int_equal(do_write(rig, 0, SR_MIB, buf, 0), SR_E_NO_SPACE);
    faults_set("v.img op=write error=short count=1\nv.img op=write error=ENOSPC count=1\n");
    assert_int_equal(do_write(rig, 0, SR_MIB, buf, 0), SR_E_NO_SPACE);
    assert_int_equal(do_write(rig, 0, SR_MIB, buf, 0), SR_OK);
    faults_set("v.img op=write error=EIO count=1\n");
    assert_int_equal(do_write(rig, 0, SR_MIB, buf, 0), SR_E_IO);
    assert_int_equal(do_write(rig, 0, SR_MIB, buf, 0), SR_E_IO);
    sr_buf_unref(buf);
}

static void an_unaligned_write_fails_when_its_block_cannot_be_read(void **state)
{
    struct rig *rig = *state;
    struct sr_buf *buf = data(100, 5);

    if (strncmp(sr_store_access(rig->store), "direct", 6) != 0) {
        printf("SKIPPED here: buffered I/O merges in the kernel\n");
        sr_buf_unref(buf);
        return;
    }
    faults_set("v.img op=read error=EIO count=1 offset=4096\n");
    assert_int_equal(do_write(rig, 4096 + 7, 100, buf, 0), SR_E_IO);
    sr_buf_unref(buf);
}

static void zeroing_falls_back_to_writing(void **state)
{
    struct rig *rig = *state;
    struct sr_buf *buf = data(4 * SR_MIB, 6);

    assert_int_equal(do_write(rig, 0, 4 * SR_MIB, buf, 0), SR_OK);
    faults_set("v.img op=zero error=EOPNOTSUPP after=2 count=2\n"); /* both edges; punch, zero range */
    assert_int_equal(do_zero(rig, 100, 3 * SR_MIB, true), SR_OK);
    memset(buf->data + 100, 0, 3 * SR_MIB);
    check_content(rig, 0, buf);
    /* It remembers: no fallocate any more, so one MiB is one write. */
    faults_set("v.img op=zero error=EIO after=1\nv.img op=flush error=EIO\n");
    assert_int_equal(do_zero(rig, 3 * SR_MIB, SR_MIB, true), SR_OK);
    assert_int_equal(do_zero(rig, 3 * SR_MIB, SR_MIB, false), SR_E_IO);
    sr_buf_unref(buf);
}

static void zeroing_is_answered_after_its_fdatasync(void **state)
{
    struct rig *rig = *state;

    faults_set("v.img op=flush error=EIO count=1\n");
    assert_int_equal(do_zero(rig, 0, 2 * SR_MIB, true), SR_E_IO);
    assert_true(sr_store_failed(rig->store));
}

static void zeroing_without_space_says_so(void **state)
{
    faults_set("v.img op=zero error=ENOSPC count=1\n");
    assert_int_equal(do_zero(*state, 0, SR_MIB, false), SR_E_NO_SPACE);
    assert_int_equal(do_zero(*state, 0, SR_MIB, false), SR_OK);
}

static void a_delay_holds_back_only_the_replica_it_names(void **state)
{
    struct rig *rig = *state;
    struct sr_buf *buf = data(4096, 7);
    struct sr_disk_io io = {.op = SR_DISK_WRITE, .length_bytes = 4096, .buf = buf};
    uint64_t before = uv_hrtime();
    struct op slow, fast;

    faults_set("other.img op=write delay_ms=5000\nv.img op=write delay_ms=150 count=1 offset=0\n");
    op_start(rig, &slow, &io);
    io.offset_bytes = 8192;
    op_start(rig, &fast, &io);
    op_wait(rig, &slow);
    assert_true(fast.done && fast.order < slow.order);
    assert_true(uv_hrtime() - before >= 140 * 1000000);
    assert_true(uv_hrtime() - before < UINT64_C(4000) * 1000000);
    sr_buf_unref(buf);
}

static void a_hash_reports_a_read_error(void **state)
{
    struct rig *rig = *state;
    struct sr_buf *buf = sr_buf_alloc(NULL, 3 * 256 * 16);
    struct op op;

    faults_set("v.img op=read error=EIO offset=2097152\n"); /* in the third chunk */
    op_start(rig, &op, &(struct sr_disk_io){.op = SR_DISK_HASH, .length_bytes = 3 * SR_MIB, .buf = buf});
    op_wait(rig, &op);
    assert_int_equal(op.error, SR_E_IO);
    sr_buf_unref(buf);
}

static void a_replica_that_cannot_be_made_durable_is_not_opened(void **state)
{
    struct rig *rig = *state;
    struct sr_store *store;
    char text[256] = "";

    sr_store_close(rig->store);
    rig->store = NULL;
    faults_set("# start\nv.img op=open error=EIO\n");
    assert_int_equal(sr_store_open(rig->engine, rig->path, VOLUME_BYTES, &store, text, sizeof(text)), SR_E_IO);
    assert_non_null(strstr(text, rig->path));
}

int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_failed_fsync_is_never_believed_again),
        TEST(recover_forgets_the_failure_once_the_disk_answers),
        TEST(a_failed_fsync_fails_all_who_wait),
        TEST(flushes_share_one_fdatasync),
        TEST(a_flush_is_not_answered_by_an_earlier_fdatasync),
        TEST(an_fsync_without_space_is_a_failure),
        TEST(short_transfers_are_continued),
        TEST(a_copy_that_was_cut_off_takes_no_more_writes),
        TEST(a_transfer_that_stops_is_an_error),
        TEST(a_write_error_fails_the_store_but_no_space_does_not),
        TEST(an_unaligned_write_fails_when_its_block_cannot_be_read),
        TEST(zeroing_falls_back_to_writing),
        TEST(zeroing_is_answered_after_its_fdatasync),
        TEST(zeroing_without_space_says_so),
        TEST(a_delay_holds_back_only_the_replica_it_names),
        TEST(a_hash_reports_a_read_error),
        TEST(a_replica_that_cannot_be_made_durable_is_not_opened),
    };
    int failed;

    if (argc != 3)
        return 2;
    kind = strcmp(argv[1], "uring") == 0 ? SR_ENGINE_URING : SR_ENGINE_THREADS;
    if (!place_make(argv[2]))
        return TEST_SKIPPED;
    faults_enable();
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    place_remove();
    return failed;
}
