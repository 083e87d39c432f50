/* harness.h - a loop, an engine and a replica in a temporary place, for tests of store/. */
#ifndef SR_TESTS_STORE_HARNESS_H
#define SR_TESTS_STORE_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/units.h"
#include "store/store.h"

#define TEST_SKIPPED 77
#define VOLUME_BYTES (8 * SR_MIB)

/* A fresh folder in the place ("folder": on the disk of /var/tmp, "tmpfs", "ext4", "xfs": small mounts of their
 * own, in a mount namespace of this process, for root).  false: cannot be had, and says why. */
bool place_make(const char *place);
bool place_is_small(void); /* can be filled up */
const char *place_folder(void);
void place_remove(void);

struct rig {
    uv_loop_t loop;
    struct sr_store_engine *engine;
    struct sr_store *store;
    char path[256];
};

void rig_open(struct rig *rig, enum sr_store_engine_kind kind, const char *name);
/* Closes the store and opens it again. */
void rig_reopen(struct rig *rig);
void rig_close(struct rig *rig);

struct op {
    enum sr_error error;
    bool done, all_zero;
    unsigned order; /* the how-many-eth to complete */
};

void op_start(struct rig *rig, struct op *op, const struct sr_disk_io *io);
void op_wait(struct rig *rig, struct op *op);

enum sr_error do_write(struct rig *rig, uint64_t offset, uint64_t length, struct sr_buf *buf, uint32_t buf_offset);
enum sr_error do_read(struct rig *rig, uint64_t offset, uint64_t length, struct sr_buf *buf, uint32_t buf_offset);
enum sr_error do_zero(struct rig *rig, uint64_t offset, uint64_t length, bool may_trim);
enum sr_error do_flush(struct rig *rig);

void fill_random(uint8_t *data, size_t bytes, uint32_t seed);

/* Injected faults: replaces the rules.  Before the first engine: faults_enable. */
void faults_enable(void);
void faults_set(const char *rules);

#endif
