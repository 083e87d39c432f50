/* test_store.c - what was committed is there after a reopening; order, batches, refusals. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "meta/internal.h"

static int setup(void **state)
{
    struct fixture *f = malloc(sizeof(*f));
    fixture_init(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture_free(*state);
    free(*state);
    return 0;
}

static void open_ok(struct fixture *f)
{
    enum sr_error error = fixture_open(f);
    if (error != SR_OK)
        print_error("%s\n", f->text);
    assert_int_equal(error, SR_OK);
}

static void reopen(struct fixture *f)
{
    fixture_close(f);
    open_ok(f);
}

/* ---- life ------------------------------------------------------------------------------------------ */

static void first_start_makes_a_site_and_each_start_raises_boot(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    open_ok(f);
    struct sr_meta_site first = *sr_meta_site(f->meta);
    assert_false(sr_uuid_is_none(&first.uuid));
    assert_true(sr_uuid_is_none(&first.peer));
    assert_true(sr_uuid_equal(&first.group, &f->group));
    assert_string_equal(first.name, "left");
    assert_int_equal(first.boot, 1);
    assert_int_equal(stat(f->state_dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    for (uint64_t boot = 2; boot < 5; boot++) {
        reopen(f);
        assert_true(sr_uuid_equal(&sr_meta_site(f->meta)->uuid, &first.uuid));
        assert_int_equal(sr_meta_site(f->meta)->boot, boot);
    }
}

static void second_daemon_is_refused_by_name_and_pid(void **state)
{
    struct fixture *f = *state;
    struct sr_meta *second = NULL;
    char text[512], pid[32];

    open_ok(f);
    snprintf(pid, sizeof(pid), "pid %ld", (long)getpid());
    assert_int_equal(sr_meta_open(&f->loop, f->state_dir, "left", &f->group, &second, text, sizeof(text)),
                     SR_E_LOCKED);
    assert_non_null(strstr(text, f->state_dir));
    assert_non_null(strstr(text, pid));
    fixture_close(f);
    open_ok(f);
}

static void another_process_is_refused(void **state)
{
    struct fixture *f = *state;
    int to_child[2], to_parent[2];
    char byte = 'x';

    assert_int_equal(pipe(to_child) | pipe(to_parent), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(to_child[1]);
        byte = fixture_open(f) == SR_OK ? 'y' : 'n';
        if (write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 0)
            _exit(1);
        _exit(0); /* without closing: the lock goes with the process */
    }
    close(to_child[0]);
    assert_int_equal(read(to_parent[0], &byte, 1), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(fixture_open(f), SR_E_LOCKED);
    close(to_child[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(to_parent[0]), close(to_parent[1]);
    open_ok(f);
    assert_int_equal(sr_meta_site(f->meta)->boot, 2);
}

static void other_site_or_group_is_refused(void **state)
{
    struct fixture *f = *state;
    struct sr_uuid other = make_uuid(5);
    struct sr_meta *meta;
    char text[512];

    open_ok(f);
    fixture_close(f);
    assert_int_equal(sr_meta_open(&f->loop, f->state_dir, "right", &f->group, &meta, text, sizeof(text)),
                     SR_E_IDENTITY);
    assert_non_null(strstr(text, "\"left\""));
    assert_int_equal(sr_meta_open(&f->loop, f->state_dir, "left", &other, &meta, text, sizeof(text)), SR_E_IDENTITY);
    assert_non_null(strstr(text, "group"));
    open_ok(f);
}

static void folder_without_parent_is_refused(void **state)
{
    struct fixture *f = *state;
    struct sr_meta *meta;
    char text[512], path[256];

    snprintf(path, sizeof(path), "%s/a/b", f->root);
    assert_int_equal(sr_meta_open(&f->loop, path, "left", &f->group, &meta, text, sizeof(text)), SR_E_NOT_FOUND);
    assert_non_null(strstr(text, path));
}

/* Killed before the environment got its name: the next start begins again. */
static void first_start_cut_short_begins_again(void **state)
{
    struct fixture *f = *state;
    char path[256];

    assert_int_equal(mkdir(f->state_dir, 0700), 0);
    snprintf(path, sizeof(path), "%s/meta.new", f->state_dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/meta.new/data.mdb", f->state_dir);
    write_file(path, "half", 4);
    open_ok(f);
    fixture_close(f);
    snprintf(path, sizeof(path), "%s/site", f->state_dir); /* killed before the marker */
    assert_int_equal(unlink(path), 0);
    open_ok(f);
    assert_int_equal(sr_meta_site(f->meta)->boot, 2);
    assert_int_equal(access(path, F_OK), 0);
}

/* ---- catalogue ------------------------------------------------------------------------------------- */

struct collected {
    int n;
    struct sr_meta_volume volumes[300];
    struct sr_meta_collection collections[300];
};

static enum sr_error on_volume(void *arg, const struct sr_meta_volume *volume)
{
    struct collected *c = arg;
    assert_true(c->n < 300);
    c->volumes[c->n++] = *volume;
    return SR_OK;
}

static enum sr_error on_collection(void *arg, const struct sr_meta_collection *collection)
{
    struct collected *c = arg;
    assert_true(c->n < 300);
    c->collections[c->n++] = *collection;
    return SR_OK;
}

static enum sr_error refuse_volume(void *arg, const struct sr_meta_volume *volume)
{
    (void)arg, (void)volume;
    return SR_E_BUSY;
}

static void catalogue_survives(void **state)
{
    struct fixture *f = *state;
    struct collected *c = calloc(1, sizeof(*c));

    open_ok(f);
    for (uint8_t i = 0; i < 50; i++) {
        struct sr_meta_volume volume = make_volume(i);
        struct sr_meta_collection collection = make_collection(i);
        assert_int_equal(put_volume(f, &volume), SR_OK);
        assert_int_equal(put_collection(f, &collection), SR_OK);
    }
    struct sr_meta_volume gone = make_volume(7);
    struct sr_meta_collection gone_too = make_collection(7);
    struct sr_uuid peer = make_uuid(123);
    struct sr_meta_change change = {.drop_volume = &gone.uuid, .drop_collection = &gone_too.uuid, .peer = &peer};
    sr_meta_commit_change(f->meta, &change, fixture_done, f, 0);
    fixture_wait(f, 101);
    assert_int_equal(f->n_failed, 0);
    assert_true(sr_uuid_equal(&sr_meta_site(f->meta)->peer, &peer));
    reopen(f);
    assert_true(sr_uuid_equal(&sr_meta_site(f->meta)->peer, &peer));
    assert_int_equal(sr_meta_each_volume(f->meta, on_volume, c, f->text, sizeof(f->text)), SR_OK);
    assert_int_equal(c->n, 49);
    for (int i = 0; i < 49; i++) {
        struct sr_meta_volume want = make_volume((uint8_t)(i < 7 ? i : i + 1));
        assert_memory_equal(&c->volumes[i], &want, sizeof(want));
    }
    c->n = 0;
    assert_int_equal(sr_meta_each_collection(f->meta, on_collection, c, f->text, sizeof(f->text)), SR_OK);
    assert_int_equal(c->n, 49);
    for (int i = 0; i < 49; i++) {
        struct sr_meta_collection want = make_collection((uint8_t)(i < 7 ? i : i + 1));
        assert_memory_equal(&c->collections[i], &want, sizeof(want));
    }
    assert_int_equal(sr_meta_each_volume(f->meta, refuse_volume, NULL, f->text, sizeof(f->text)), SR_E_BUSY);
    free(c);
}

static void invalid_change_fails_alone(void **state)
{
    struct fixture *f = *state;
    struct sr_meta_volume good = make_volume(1), bad = make_volume(2);
    struct sr_commit *commit = commit_new(0, 0);
    struct sr_uuid nobody = make_uuid(222);

    open_ok(f);
    strcpy(bad.name, "a/b");
    assert_int_equal(put_volume(f, &bad), SR_E_INVALID);
    assert_int_equal(put_volume(f, &good), SR_OK);
    commit->has_record = true;
    commit->record = make_collection(1).record;
    assert_int_equal(run_commit(f, &nobody, &good.uuid, commit), SR_E_NOT_FOUND);
    assert_int_equal(put_volume(f, &good), SR_OK);
    assert_string_equal(sr_meta_failure(f->meta), "");
    commit_free(commit);
}

/* ---- commits of a core ----------------------------------------------------------------------------- */

static void map_ops_apply_in_order(void **state)
{
    struct fixture *f = *state;
    struct sr_meta_volume volume = make_volume(1), other = make_volume(2);
    struct sr_uuid none = {0}, both[2] = {volume.uuid, other.uuid};
    struct sr_commit *commit = commit_new(9, 2);

    open_ok(f);
    put_volume(f, &volume);
    put_volume(f, &other);
    memset(commit->maps[0], 0x11, SR_REGION_MAP_BYTES);
    memset(commit->maps[1], 0x22, SR_REGION_MAP_BYTES);
    struct sr_meta_op ops[9] = {
        {.type = SR_META_INTENT, .region = 10},
        {.type = SR_META_FROM, .block = 99},
        {.type = SR_META_INTENT, .volume = 1, .region = 3},
        {.type = SR_META_CLEAR}, /* all of volume 0 so far, nothing of volume 1 */
        {.type = SR_META_INTENT, .region = 20},
        {.type = SR_META_REGION, .region = 20, .map = 0},
        {.type = SR_META_REGION, .region = 20, .map = 1},
        {.type = SR_META_INTENT, .region = 30},
        {.type = SR_META_BAD, .block = 77},
    };
    memcpy(commit->ops, ops, sizeof(ops));
    f->n_done = 0;
    sr_meta_commit_core(f->meta, &none, both, 2, commit, fixture_done, f, 1);
    fixture_wait(f, 1);
    assert_int_equal(f->last_error, SR_OK);
    commit_free(commit);
    reopen(f);
    assert_int_equal(load_map(f, &volume.uuid), SR_OK);
    assert_int_equal(loaded.n_intents, 1);
    assert_int_equal(loaded.n_regions, 1);
    assert_int_equal(loaded.seen[20], 2);
    assert_int_equal(loaded.seen[30], 1);
    assert_int_equal(loaded.last_map[5], 0x22);
    assert_true(loaded.from == UINT64_MAX);
    assert_int_equal(loaded.n_bad, 1);
    assert_int_equal(loaded.last_bad, 77);
    assert_int_equal(load_map(f, &other.uuid), SR_OK);
    assert_int_equal(loaded.n_intents, 1);
    assert_int_equal(loaded.seen[3], 1);

    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_CLEAN, .region = 20});
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_CLEAN, .region = 21}); /* not there */
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_FROM, .block = 5000});
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_GOOD, .block = 77});
    assert_int_equal(f->n_failed, 0);
    assert_int_equal(load_map(f, &volume.uuid), SR_OK);
    assert_int_equal(loaded.n_intents, 1);
    assert_int_equal(loaded.n_regions, 0);
    assert_true(loaded.from == 5000);
    assert_int_equal(loaded.n_bad, 0);
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_BAD, .block = 78});
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_FROM, .block = UINT64_MAX});
    assert_int_equal(load_map(f, &volume.uuid), SR_OK);
    assert_true(loaded.from == UINT64_MAX);
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_CLEAR});
    assert_int_equal(load_map(f, &volume.uuid), SR_OK);
    assert_int_equal(loaded.n_intents, 0);
    assert_int_equal(loaded.n_bad, 1); /* CLEAR leaves bad blocks */

    /* Nothing of a dropped volume is left for a later one. */
    assert_int_equal(drop_volume(f, &volume.uuid), SR_OK);
    assert_int_equal(load_map(f, &volume.uuid), SR_E_NOT_FOUND);
    assert_int_equal(put_volume(f, &volume), SR_OK);
    assert_int_equal(load_map(f, &volume.uuid), SR_OK);
    assert_int_equal(loaded.n_bad, 0);
    assert_int_equal(load_map(f, &other.uuid), SR_OK);
    assert_int_equal(loaded.n_intents, 1);
}

static void entry_behind_the_end_of_the_volume_is_refused(void **state)
{
    struct fixture *f = *state;
    struct sr_meta_volume volume = make_volume(1);

    open_ok(f);
    volume.size_bytes = 9 * SR_MIB; /* regions 0, 1, 2 */
    put_volume(f, &volume);
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_INTENT, .region = 2});
    assert_int_equal(load_map(f, &volume.uuid), SR_OK);
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_INTENT, .region = 3});
    assert_int_equal(load_map(f, &volume.uuid), SR_E_CORRUPT);
    assert_non_null(strstr(f->text, "maps"));
}

/* W1: many at once: reported in order, the last record wins, the name stays. */
static void group_commit_keeps_the_order(void **state)
{
    struct fixture *f = *state;
    enum { N = 3000 };
    struct sr_meta_volume volume = make_volume(1);
    struct sr_meta_collection collection = make_collection(1), renamed;
    struct sr_commit *commits[N];
    struct collected *c = calloc(1, sizeof(*c));

    open_ok(f);
    put_volume(f, &volume);
    put_collection(f, &collection);
    f->n_done = 0;
    for (uint32_t i = 0; i < N; i++) {
        commits[i] = commit_new(1, 0);
        commits[i]->ops[0] =
            (struct sr_meta_op){.type = i % 3 == 2 ? SR_META_CLEAN : SR_META_INTENT, .region = i / 3};
        commits[i]->has_record = i % 5 != 0;
        commits[i]->record = collection.record;
        commits[i]->record.pause_counter = i;
        sr_meta_commit_core(f->meta, &collection.uuid, &volume.uuid, 1, commits[i], fixture_done, f, i);
    }
    fixture_wait(f, N);
    assert_false(f->out_of_order);
    assert_int_equal(f->n_failed, 0);
    assert_int_equal(load_map(f, &volume.uuid), SR_OK);
    assert_int_equal(loaded.n_intents, 0);
    assert_int_equal(sr_meta_each_collection(f->meta, on_collection, c, f->text, sizeof(f->text)), SR_OK);
    assert_int_equal(c->collections[0].record.pause_counter, N - 1);
    assert_string_equal(c->collections[0].name, "vol1");

    /* a change of the catalogue between two records of one batch */
    f->n_done = 0;
    renamed = collection;
    strcpy(renamed.name, "other");
    sr_meta_commit_core(f->meta, &collection.uuid, &volume.uuid, 1, commits[1], fixture_done, f, 1);
    sr_meta_commit_change(f->meta, &(struct sr_meta_change){.put_collection = &renamed}, fixture_done, f, 2);
    sr_meta_commit_core(f->meta, &collection.uuid, &volume.uuid, 1, commits[2], fixture_done, f, 3);
    fixture_wait(f, 3);
    c->n = 0;
    assert_int_equal(sr_meta_each_collection(f->meta, on_collection, c, f->text, sizeof(f->text)), SR_OK);
    assert_int_equal(c->collections[0].record.pause_counter, 2);
    assert_string_equal(c->collections[0].name, "other");
    for (uint32_t i = 0; i < N; i++)
        commit_free(commits[i]);
    free(c);
}

static void close_runs_and_reports_what_is_queued(void **state)
{
    struct fixture *f = *state;
    struct sr_meta_volume volumes[100];

    open_ok(f);
    for (uint8_t i = 0; i < 100; i++) {
        volumes[i] = make_volume(i);
        sr_meta_commit_change(f->meta, &(struct sr_meta_change){.put_volume = &volumes[i]}, fixture_done, f, i);
    }
    fixture_close(f);
    assert_int_equal(f->n_done, 100);
    assert_int_equal(f->n_failed, 0);
    open_ok(f);
    struct collected *c = calloc(1, sizeof(*c));
    assert_int_equal(sr_meta_each_volume(f->meta, on_volume, c, f->text, sizeof(f->text)), SR_OK);
    assert_int_equal(c->n, 100);
    free(c);
}

static void fill_commit(struct sr_commit *commit, bool exact)
{
    for (uint32_t i = 0; i < commit->n_ops; i++) {
        commit->ops[i] = (struct sr_meta_op){.type = exact ? SR_META_REGION : SR_META_INTENT,
                                             .region = i,
                                             .map = i % (commit->n_maps + !commit->n_maps)};
    }
}

/* A map of 1 MiB takes 100,000 regions by doubling, in one commit; readers beside it are fine. */
static void map_grows_under_a_large_batch(void **state)
{
    struct fixture *f = *state;
    struct sr_meta_volume volume = make_volume(1);
    struct sr_commit *commit = commit_new(100000, 7);
    struct sr_uuid none = {0};
    char path[256];
    struct stat st;

    assert_int_equal(fixture_open_map(f, SR_MIB), SR_OK);
    put_volume(f, &volume);
    for (uint32_t i = 0; i < 7; i++)
        memset(commit->maps[i], (int)i + 1, SR_REGION_MAP_BYTES);
    fill_commit(commit, true);
    f->n_done = 0;
    sr_meta_commit_core(f->meta, &none, &volume.uuid, 1, commit, fixture_done, f, 1);
    while (f->n_done == 0) {
        assert_int_equal(load_map(f, &volume.uuid), SR_OK); /* before or after, never between */
        assert_true(loaded.n_regions == 0 || loaded.n_regions == 100000);
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(f->last_error, SR_OK);
    commit_free(commit);
    snprintf(path, sizeof(path), "%s/meta/data.mdb", f->state_dir);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size >= (off_t)(16 * SR_MIB));
    fixture_close(f);
    assert_int_equal(fixture_open_map(f, SR_MIB), SR_OK);
    assert_int_equal(load_map(f, &volume.uuid), SR_OK);
    assert_int_equal(loaded.n_regions, 100000);
    assert_true(loaded.ascending);
    assert_int_equal(run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_CLEAR}), SR_OK);
    fixture_close(f);
    assert_int_equal(fixture_open_map(f, SR_MIB), SR_OK);
    assert_int_equal(load_map(f, &volume.uuid), SR_OK);
    assert_int_equal(loaded.n_regions, 0);
}

/* ---- the dump tool --------------------------------------------------------------------------------- */

static int dump(struct fixture *f, char *output, size_t size)
{
    char command[512];
    snprintf(command, sizeof(command), "%s %s 2>&1", SR_DUMPMETA, f->state_dir);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, size - 1, pipe);
    output[n] = '\0';
    return WEXITSTATUS(pclose(pipe));
}

static void dump_shows_all_beside_a_running_daemon(void **state)
{
    struct fixture *f = *state;
    struct sr_meta_volume volume = make_volume(1);
    struct sr_meta_collection collection = make_collection(1);
    static char text[100000];

    collection.record.gen_wall_ms = UINT64_C(1764547200123);
    collection.record.synced_wall_ms = UINT64_C(1764547200456);

    open_ok(f);
    put_volume(f, &volume);
    put_collection(f, &collection);
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_REGION, .region = 4});
    run_op(f, &volume.uuid, (struct sr_meta_op){.type = SR_META_FROM, .block = 4242});
    for (int running = 1; running >= 0; running--) {
        assert_int_equal(dump(f, text, sizeof(text)), 0);
        assert_non_null(strstr(text, "\"name\":\"left\""));
        assert_non_null(strstr(text, "\"name\":\"vol1\""));
        assert_non_null(strstr(text, "\"role\":\"active\""));
        assert_non_null(strstr(text, "\"gen_wall_ms\":1764547200123"));
        assert_non_null(strstr(text, "\"synced_wall_ms\":1764547200456"));
        assert_non_null(strstr(text, "\"region\":4,\"kind\":\"exact\",\"dirty_blocks\":512"));
        assert_non_null(strstr(text, "\"block\":4242"));
        assert_non_null(strstr(text, "\"damaged_records\":0"));
        if (running)
            fixture_close(f);
    }
    open_ok(f);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(another_process_is_refused), /* first: forks */
        T(first_start_makes_a_site_and_each_start_raises_boot),
        T(second_daemon_is_refused_by_name_and_pid),
        T(other_site_or_group_is_refused),
        T(folder_without_parent_is_refused),
        T(first_start_cut_short_begins_again),
        T(catalogue_survives),
        T(invalid_change_fails_alone),
        T(map_ops_apply_in_order),
        T(entry_behind_the_end_of_the_volume_is_refused),
        T(group_commit_keeps_the_order),
        T(close_runs_and_reports_what_is_queued),
        T(map_grows_under_a_large_batch),
        T(dump_shows_all_beside_a_running_daemon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
