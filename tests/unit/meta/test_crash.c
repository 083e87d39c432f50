/* test_crash.c - kill -9 in the middle of commits, again and again: everything that was reported is there (W2).
 *
 * The child commits with several changes in flight and writes the number of each that is done into a pipe.  One
 * commit sets region n and the pause counter n together, so both must always agree.
 */
#include "fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS    15
#define IN_FLIGHT 8

struct child {
    struct fixture *f;
    int pipe;
    struct sr_meta_volume volume;
    struct sr_meta_collection collection;
    uint64_t next;
    struct sr_commit *commits[IN_FLIGHT];
};

static void on_done(void *arg, uint64_t tag, enum sr_error error);

static void submit(struct child *child)
{
    struct sr_commit *commit = child->commits[child->next % IN_FLIGHT];
    commit->ops[0] = (struct sr_meta_op){.type = SR_META_INTENT, .region = (uint32_t)child->next};
    commit->has_record = true;
    commit->record = child->collection.record;
    commit->record.pause_counter = child->next;
    sr_meta_commit_core(child->f->meta, &child->collection.uuid, &child->volume.uuid, 1, commit, on_done, child,
                        child->next);
    child->next++;
}

static void on_done(void *arg, uint64_t tag, enum sr_error error)
{
    struct child *child = arg;
    if (error != SR_OK || write(child->pipe, &tag, sizeof(tag)) != sizeof(tag))
        _exit(3);
    submit(child);
}

static void run_child(struct fixture *f, uint64_t first, int pipe)
{
    struct child child = {.f = f, .pipe = pipe, .volume = make_volume(1), .collection = make_collection(1)};

    if (fixture_open_map(f, SR_MIB / 4) != SR_OK)
        _exit(2);
    put_volume(f, &child.volume);
    if (first == 1)
        put_collection(f, &child.collection);
    child.next = first;
    for (int i = 0; i < IN_FLIGHT; i++)
        child.commits[i] = commit_new(1, 0);
    for (int i = 0; i < IN_FLIGHT; i++)
        submit(&child);
    uv_run(&f->loop, UV_RUN_DEFAULT);
    _exit(4);
}

static uint64_t pause_counter;

static enum sr_error on_collection(void *arg, const struct sr_meta_collection *collection)
{
    (void)arg;
    pause_counter = collection->record.pause_counter;
    return SR_OK;
}

/* Reads reports until `enough` of them came, kills, and reads what is left.  Returns the last one. */
static uint64_t kill_after(pid_t pid, int fd, uint64_t enough)
{
    uint64_t tag, last = 0, n = 0;

    while (n < enough && read(fd, &tag, sizeof(tag)) == sizeof(tag)) {
        last = tag;
        n++;
    }
    kill(pid, SIGKILL);
    while (read(fd, &tag, sizeof(tag)) == sizeof(tag))
        last = tag;
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    return last;
}

static void everything_reported_survives_kill_9(void **state)
{
    struct fixture f;
    struct sr_meta_volume volume = make_volume(1);
    uint64_t first = 1;
    int ends[2];

    (void)state;
    fixture_init(&f);
    for (int round = 0; round < ROUNDS; round++) {
        assert_int_equal(pipe(ends), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(ends[0]);
            run_child(&f, first, ends[1]);
        }
        close(ends[1]);
        uint64_t last = kill_after(pid, ends[0], 5 + (uint64_t)round * 17);
        close(ends[0]);
        assert_true(last >= first);
        /* Looked at by a child too: this process must not start threads before the next fork. */
        pid = fork();
        if (pid == 0) {
            if (fixture_open_map(&f, SR_MIB / 4) != SR_OK || load_map(&f, &volume.uuid) != SR_OK ||
                sr_meta_each_collection(f.meta, on_collection, NULL, f.text, sizeof(f.text)) != SR_OK)
                _exit(1);
            for (uint64_t region = 1; region <= last; region++) {
                if (loaded.seen[region] != 1)
                    _exit(2);
            }
            if (pause_counter < last || pause_counter != loaded.last_region)
                _exit(3);
            fixture_close(&f);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        first = last + IN_FLIGHT + 1;
        /* regions between were perhaps written, perhaps not: fill them so that the next check can be strict */
        pid = fork();
        if (pid == 0) {
            fixture_open_map(&f, SR_MIB / 4);
            for (uint64_t region = last + 1; region < first; region++)
                run_op(&f, &volume.uuid, (struct sr_meta_op){.type = SR_META_INTENT, .region = (uint32_t)region});
            fixture_close(&f);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(everything_reported_survives_kill_9)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
