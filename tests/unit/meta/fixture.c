/* fixture.c - see fixture.h. */
#include "fixture.h"

#include <ftw.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "meta/internal.h"

/* ---- a core that remembers -------------------------------------------------------------------------- */

struct loaded loaded;

void loaded_reset(void)
{
    free(loaded.seen);
    memset(&loaded, 0, sizeof(loaded));
    loaded.from = UINT64_MAX;
    loaded.ascending = true;
    loaded.seen = calloc(1, LOADED_MAX);
    assert_non_null(loaded.seen);
}

static void saw_region(uint32_t region, uint8_t what)
{
    assert_true(region < LOADED_MAX);
    assert_int_equal(loaded.seen[region], 0);
    if (loaded.n_intents + loaded.n_regions > 0 && region <= loaded.last_region)
        loaded.ascending = false;
    loaded.last_region = region;
    loaded.seen[region] = what;
}

void sr_core_load_intent(struct sr_core *core, uint32_t volume, uint32_t region)
{
    (void)core, (void)volume;
    saw_region(region, 1);
    loaded.n_intents++;
}

void sr_core_load_region(struct sr_core *core, uint32_t volume, uint32_t region,
                         const uint8_t map[SR_REGION_MAP_BYTES])
{
    (void)core, (void)volume;
    saw_region(region, 2);
    loaded.n_regions++;
    memcpy(loaded.last_map, map, SR_REGION_MAP_BYTES);
}

void sr_core_load_from(struct sr_core *core, uint32_t volume, uint64_t block)
{
    (void)core, (void)volume;
    loaded.from = block;
}

void sr_core_load_bad(struct sr_core *core, uint32_t volume, uint64_t block)
{
    (void)core, (void)volume;
    loaded.n_bad++;
    loaded.last_bad = block;
}

/* ---- life ------------------------------------------------------------------------------------------ */

void fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof(*f));
    assert_int_equal(uv_loop_init(&f->loop), 0);
    strcpy(f->root, "/tmp/syncrep-meta-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    snprintf(f->state_dir, sizeof(f->state_dir), "%s/state", f->root);
    f->group = make_uuid(77);
    loaded_reset();
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

void fixture_free(struct fixture *f)
{
    if (f->meta != NULL)
        fixture_close(f);
    assert_int_equal(uv_loop_close(&f->loop), 0);
    remove_tree(f->root);
    free(loaded.seen);
    loaded.seen = NULL;
}

enum sr_error fixture_open_map(struct fixture *f, uint64_t map_bytes)
{
    assert_null(f->meta);
    return sr_meta_open_with(&f->loop, f->state_dir, "left", &f->group, map_bytes, &f->meta, f->text,
                             sizeof(f->text));
}

enum sr_error fixture_open(struct fixture *f)
{
    assert_null(f->meta);
    return sr_meta_open(&f->loop, f->state_dir, "left", &f->group, &f->meta, f->text, sizeof(f->text));
}

void fixture_close(struct fixture *f)
{
    sr_meta_close(f->meta);
    f->meta = NULL;
    uv_run(&f->loop, UV_RUN_DEFAULT);
}

void fixture_done(void *arg, uint64_t tag, enum sr_error error)
{
    struct fixture *f = arg;
    if (f->n_done > 0 && tag < f->last_tag)
        f->out_of_order = true;
    f->n_done++;
    f->n_failed += error != SR_OK;
    f->last_tag = tag;
    f->last_error = error;
}

void fixture_wait(struct fixture *f, uint64_t n_done)
{
    while (f->n_done < n_done)
        assert_true(uv_run(&f->loop, UV_RUN_ONCE) != 0 || f->n_done >= n_done);
}

/* ---- records --------------------------------------------------------------------------------------- */

struct sr_uuid make_uuid(uint8_t seed)
{
    struct sr_uuid uuid;
    for (int i = 0; i < SR_UUID_BYTES; i++)
        uuid.b[i] = (uint8_t)(seed + 7 * i + 1);
    return uuid;
}

struct sr_meta_volume make_volume(uint8_t seed)
{
    struct sr_meta_volume volume = {.uuid = make_uuid(seed),
                                    .collection = make_uuid((uint8_t)(seed + 100)),
                                    .state = SR_VOLUME_LIVE,
                                    .pool = "main",
                                    .pool_uuid = make_uuid(200),
                                    .size_bytes = SR_TIB,
                                    .created_wall_ms = 1700000000000};
    snprintf(volume.name, sizeof(volume.name), "vol%u", seed);
    return volume;
}

struct sr_meta_collection make_collection(uint8_t seed)
{
    struct sr_meta_collection collection = {.uuid = make_uuid((uint8_t)(seed + 100))};
    snprintf(collection.name, sizeof(collection.name), "vol%u", seed);
    collection.record.role = SR_ROLE_ACTIVE;
    collection.record.gen = make_uuid((uint8_t)(seed + 50));
    collection.record.consistent = true;
    return collection;
}

static enum sr_error change(struct fixture *f, const struct sr_meta_change *what)
{
    uint64_t want = f->n_done + 1;
    sr_meta_commit_change(f->meta, what, fixture_done, f, f->last_tag);
    fixture_wait(f, want);
    return f->last_error;
}

enum sr_error put_volume(struct fixture *f, const struct sr_meta_volume *volume)
{
    return change(f, &(struct sr_meta_change){.put_volume = volume});
}

enum sr_error put_collection(struct fixture *f, const struct sr_meta_collection *collection)
{
    return change(f, &(struct sr_meta_change){.put_collection = collection});
}

enum sr_error drop_volume(struct fixture *f, const struct sr_uuid *volume)
{
    return change(f, &(struct sr_meta_change){.drop_volume = volume});
}

enum sr_error load_map(struct fixture *f, const struct sr_uuid *volume)
{
    loaded_reset();
    return sr_meta_load_map(f->meta, volume, NULL, 0, f->text, sizeof(f->text));
}

struct sr_commit *commit_new(uint32_t n_ops, uint32_t n_maps)
{
    struct sr_commit *commit = calloc(1, sizeof(*commit));
    assert_non_null(commit);
    commit->n_ops = n_ops;
    commit->ops = calloc(n_ops + 1, sizeof(*commit->ops));
    commit->n_maps = n_maps;
    commit->maps = calloc(n_maps + 1, sizeof(*commit->maps));
    return commit;
}

void commit_free(struct sr_commit *commit)
{
    free(commit->ops);
    free(commit->maps);
    free(commit);
}

enum sr_error run_commit(struct fixture *f, const struct sr_uuid *collection, const struct sr_uuid *volume,
                         struct sr_commit *commit)
{
    uint64_t want = f->n_done + 1;
    sr_meta_commit_core(f->meta, collection, volume, 1, commit, fixture_done, f, f->last_tag);
    fixture_wait(f, want);
    return f->last_error;
}

enum sr_error run_op(struct fixture *f, const struct sr_uuid *volume, struct sr_meta_op op)
{
    struct sr_uuid none = {0};
    struct sr_commit *commit = commit_new(1, 1);
    commit->ops[0] = op;
    memset(commit->maps[0], 0x5a, SR_REGION_MAP_BYTES);
    enum sr_error error = run_commit(f, &none, volume, commit);
    commit_free(commit);
    return error;
}

/* ---- files ----------------------------------------------------------------------------------------- */

uint8_t *read_file(const char *path, size_t *bytes)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    *bytes = (size_t)st.st_size;
    uint8_t *data = malloc(*bytes + 1);
    assert_non_null(data);
    assert_int_equal(pread(fd, data, *bytes, 0), (ssize_t)*bytes);
    close(fd);
    return data;
}

void write_file(const char *path, const void *data, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    close(fd);
}

void copy_folder(const char *from, const char *to)
{
    char command[512];
    snprintf(command, sizeof(command), "rm -rf '%s' && cp -a --sparse=always '%s' '%s'", to, from, to);
    assert_int_equal(system(command), 0);
}
