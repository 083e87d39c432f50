/* test_space.c - a full file system under the metadata: nothing is acknowledged, a restart works again (W3).
 *
 * Needs a small tmpfs of its own, in a mount namespace of its own; without the right to make one it is skipped.
 */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "meta/reserve.h"

static bool have_namespace;

static int group_setup(void **state)
{
    (void)state;
    have_namespace = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    return 0;
}

static void space_init(struct fixture *f, const char *options)
{
    fixture_init(f);
    if (!have_namespace || mount("none", f->root, "tmpfs", 0, options) != 0) {
        print_message("skipped: no right to mount a tmpfs (%s)\n", strerror(errno));
        fixture_free(f);
        skip();
    }
}

static void space_free(struct fixture *f)
{
    if (f->meta != NULL)
        fixture_close(f);
    assert_int_equal(umount(f->root), 0);
    fixture_free(f);
}

/* Takes all space that is left. */
static void fill(struct fixture *f)
{
    static uint8_t data[4096];
    char path[256];
    ssize_t n;

    snprintf(path, sizeof(path), "%s/filler", f->root);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    do
        n = write(fd, data, sizeof(data));
    while (n > 0);
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

static void unfill(struct fixture *f)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/filler", f->root);
    assert_int_equal(unlink(path), 0);
}

static off_t reserve_bytes(struct fixture *f)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof(path), "%s/reserve", f->state_dir);
    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* 1000 regions from `first` on; returns the result. */
static enum sr_error commit_regions(struct fixture *f, const struct sr_uuid *volume, uint32_t first)
{
    struct sr_uuid none = {0};
    struct sr_commit *commit = commit_new(1000, 1);
    for (uint32_t i = 0; i < 1000; i++)
        commit->ops[i] = (struct sr_meta_op){.type = SR_META_REGION, .region = first + i};
    enum sr_error error = run_commit(f, &none, volume, commit);
    commit_free(commit);
    return error;
}

static void full_file_system_stops_commits_and_a_restart_works(void **state)
{
    struct fixture f;
    struct sr_meta_volume volume = make_volume(1), second = make_volume(2);
    uint32_t durable = 0;

    (void)state;
    space_init(&f, "size=40m");
    assert_int_equal(fixture_open_map(&f, SR_MIB), SR_OK);
    assert_int_equal(reserve_bytes(&f), SR_META_RESERVE_BYTES);
    assert_string_equal(sr_meta_notice(f.meta), "");
    assert_int_equal(put_volume(&f, &volume), SR_OK);
    fill(&f);
    while (commit_regions(&f, &volume.uuid, durable) == SR_OK)
        durable += 1000;
    assert_int_equal(f.last_error, SR_E_NO_SPACE);
    assert_non_null(strstr(sr_meta_failure(f.meta), f.state_dir));
    unfill(&f); /* latched: space that comes back changes nothing for this process */
    assert_int_equal(put_volume(&f, &second), SR_E_NO_SPACE);
    fill(&f);
    fixture_close(&f);

    /* Restart on the full file system: what was durable is there, and deleting works. */
    assert_int_equal(fixture_open_map(&f, SR_MIB), SR_OK);
    assert_int_equal(load_map(&f, &volume.uuid), SR_OK);
    assert_int_equal(loaded.n_regions, durable);
    assert_int_equal(drop_volume(&f, &volume.uuid), SR_OK);
    fixture_close(&f);

    unfill(&f);
    assert_int_equal(fixture_open_map(&f, SR_MIB), SR_OK);
    assert_string_equal(sr_meta_notice(f.meta), "");
    assert_int_equal(reserve_bytes(&f), SR_META_RESERVE_BYTES); /* filled up again */
    assert_int_equal(put_volume(&f, &second), SR_OK);
    assert_int_equal(commit_regions(&f, &second.uuid, 0), SR_OK);
    space_free(&f);
}

/* Each start that finds no block at all takes a slice of the reserve; then it says what is wrong. */
static void reserve_is_used_in_slices_then_the_start_is_refused(void **state)
{
    struct fixture f;
    struct sr_meta_volume volume = make_volume(1);
    int started = 0;

    (void)state;
    space_init(&f, "size=40m");
    assert_int_equal(fixture_open_map(&f, SR_MIB), SR_OK);
    assert_int_equal(put_volume(&f, &volume), SR_OK);
    for (;; started++) {
        off_t before = reserve_bytes(&f);
        uint32_t first = 0;
        fill(&f);
        while (commit_regions(&f, &volume.uuid, first % 200000) == SR_OK) /* no free page is left */
            first += 1000;
        assert_int_equal(f.last_error, SR_E_NO_SPACE);
        fixture_close(&f);
        fill(&f);
        enum sr_error error = fixture_open_map(&f, SR_MIB);
        if (error != SR_OK) {
            assert_int_equal(error, SR_E_NO_SPACE);
            assert_non_null(strstr(f.text, "full"));
            assert_non_null(strstr(f.text, f.state_dir));
            break;
        }
        assert_true(before == 0 || reserve_bytes(&f) == before - (off_t)SR_META_RESERVE_SLICE_BYTES);
        assert_true(before == 0 || strstr(sr_meta_notice(f.meta), "full") != NULL);
        if (started > 20) /* LMDB finds pages of its own each time: nothing more to see */
            break;
    }
    print_message("%d starts on a full file system\n", started);
    assert_true(started >= 4);
    if (f.meta != NULL)
        fixture_close(&f);
    unfill(&f);
    assert_int_equal(fixture_open_map(&f, SR_MIB), SR_OK);
    assert_int_equal(put_volume(&f, &volume), SR_OK);
    space_free(&f);
}

/* The very first start on a full file system leaves nothing that a later one would take for damage. */
static void first_start_on_a_full_file_system_can_be_repeated(void **state)
{
    struct fixture f;

    (void)state;
    space_init(&f, "size=1m");
    fill(&f);
    assert_int_not_equal(fixture_open_map(&f, SR_MIB), SR_OK);
    assert_non_null(strstr(f.text, f.state_dir));
    unfill(&f);
    assert_int_equal(fixture_open_map(&f, SR_MIB), SR_OK);
    assert_int_equal(sr_meta_site(f.meta)->boot, 1);
    assert_int_equal(reserve_bytes(&f), 0); /* no room for one here */
    space_free(&f);
}

static void lock_file_of_lmdb_lost_on_a_full_file_system(void **state)
{
    struct fixture f;
    char path[256];

    (void)state;
    space_init(&f, "size=4m");
    assert_int_equal(fixture_open_map(&f, SR_MIB), SR_OK);
    fixture_close(&f);
    snprintf(path, sizeof(path), "%s/meta/lock.mdb", f.state_dir);
    assert_int_equal(unlink(path), 0);
    fill(&f);
    assert_int_equal(fixture_open_map(&f, SR_MIB), SR_E_NO_SPACE); /* no SIGBUS */
    space_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_file_system_stops_commits_and_a_restart_works),
        cmocka_unit_test(reserve_is_used_in_slices_then_the_start_is_refused),
        cmocka_unit_test(first_start_on_a_full_file_system_can_be_repeated),
        cmocka_unit_test(lock_file_of_lmdb_lost_on_a_full_file_system),
    };
    return cmocka_run_group_tests(tests, group_setup, NULL);
}
