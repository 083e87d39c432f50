/* fixture.h - a state folder of its own for each test, and a core that only remembers what it was told. */
#ifndef TEST_META_FIXTURE_H
#define TEST_META_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <uv.h>

#include "meta/meta.h"

#define LOADED_MAX 200000

struct fixture {
    uv_loop_t loop;
    char root[64];       /* removed at the end */
    char state_dir[128]; /* root/state, not made yet */
    struct sr_meta *meta;
    struct sr_uuid group;
    char text[512]; /* of the last open or load */
    /* completions */
    uint64_t n_done, n_failed, last_tag;
    enum sr_error last_error;
    bool out_of_order; /* tags did not ascend */
};

/* What was loaded since the last loaded_reset. */
struct loaded {
    uint32_t n_intents, n_regions, n_bad;
    uint64_t from; /* UINT64_MAX: none */
    uint32_t last_region;
    bool ascending;
    uint8_t last_map[SR_REGION_MAP_BYTES];
    uint64_t last_bad;
    uint8_t *seen; /* by region: 1 intent, 2 exact */
};
extern struct loaded loaded;
void loaded_reset(void);

void fixture_init(struct fixture *f);
void fixture_free(struct fixture *f); /* closes if open; removes everything */

enum sr_error fixture_open(struct fixture *f);
enum sr_error fixture_open_map(struct fixture *f, uint64_t map_bytes);
void fixture_close(struct fixture *f);

void fixture_done(void *arg, uint64_t tag, enum sr_error error); /* arg: the fixture */
void fixture_wait(struct fixture *f, uint64_t n_done);           /* runs the loop until that many are done */

struct sr_uuid make_uuid(uint8_t seed);
struct sr_meta_volume make_volume(uint8_t seed);
struct sr_meta_collection make_collection(uint8_t seed); /* uuid: make_uuid(seed + 100) */

/* Hand in and wait. */
enum sr_error put_volume(struct fixture *f, const struct sr_meta_volume *volume);
enum sr_error put_collection(struct fixture *f, const struct sr_meta_collection *collection);
enum sr_error drop_volume(struct fixture *f, const struct sr_uuid *volume);
enum sr_error load_map(struct fixture *f, const struct sr_uuid *volume);

/* A commit of n ops on volume 0, to be filled in; freed with commit_free. */
struct sr_commit *commit_new(uint32_t n_ops, uint32_t n_maps);
void commit_free(struct sr_commit *commit);
enum sr_error run_commit(struct fixture *f, const struct sr_uuid *collection, const struct sr_uuid *volume,
                         struct sr_commit *commit);
enum sr_error run_op(struct fixture *f, const struct sr_uuid *volume, struct sr_meta_op op);

uint8_t *read_file(const char *path, size_t *bytes);
void write_file(const char *path, const void *data, size_t bytes);
void copy_folder(const char *from, const char *to); /* plain files only, sparse ones stay sparse */
void remove_tree(const char *path);

#endif
