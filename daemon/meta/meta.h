/* meta.h - durable metadata of a site, in LMDB: roles, generations, dirty maps, volume definitions.
 *
 * One writer thread with group commit: every commit waiting when the thread is free goes into one LMDB
 * transaction; then each is reported on the loop, in order.  Records are protobuf (store.proto) or fixed
 * layouts, each with a version and a CRC32C; a damaged or newer one is refused with a text that names it.
 * The map starts small (sparse) and grows by itself on MDB_MAP_FULL: abort, resize, redo.
 * Any other failure of a transaction is final: the caller stops the daemon.
 */
#ifndef SR_META_META_H
#define SR_META_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "core/core.h"

#define SR_NAME_MAX 64 /* bytes of a site, pool, volume or collection name */

struct sr_meta;

/* Made at the first start; identity of the state folder. */
struct sr_meta_site {
    struct sr_uuid uuid;  /* this site */
    struct sr_uuid group; /* from the configuration at creation; a later mismatch is refused */
    struct sr_uuid peer;  /* site UUID of the peer, learned at the first authenticated contact; none before */
    uint64_t boot;        /* raised by one and durable at each start, before anything else */
    char name[SR_NAME_MAX + 1];
};

enum sr_volume_state {
    SR_VOLUME_PENDING = 1, /* being created: exists nowhere until the creating site says so */
    SR_VOLUME_LIVE = 2,
    SR_VOLUME_DELETING = 3 /* tombstone: the peer may still have it; its image is gone or goes */
};

struct sr_meta_volume {
    struct sr_uuid uuid;
    struct sr_uuid collection;
    enum sr_volume_state state;
    char name[SR_NAME_MAX + 1];
    char pool[SR_NAME_MAX + 1]; /* at this site */
    struct sr_uuid pool_uuid;
    char path[1024]; /* --import: absolute path of the device or file; else empty: NAME.img in the pool */
    uint64_t size_bytes;
    bool imported;
    bool creator; /* PENDING: this site coordinates */
    uint64_t created_wall_ms;
    /* Its active site said that it may move it there; whether it did is settled by the commit or at the next contact. */
    struct sr_uuid pending_collection; /* none: nothing is pending */
    char pending_name[SR_NAME_MAX + 1];
    bool write_back;  /* `durability` */
    char device[256]; /* imported block device: sr_device_identity, else "" */
};

struct sr_meta_collection {
    struct sr_uuid uuid;
    char name[SR_NAME_MAX + 1];
    struct sr_record record;
};

/* Opens or makes state_dir (its parent must exist) with all in it, takes the lock on it, checks every record, and
 * raises boot.  Blocks; start-up only.  error_text gets one sentence that names the place:
 *   SR_E_LOCKED     a second daemon
 *   SR_E_CORRUPT    something is damaged, truncated or missing: never taken for new or empty
 *   SR_E_VERSION    written by a newer syncrep
 *   SR_E_IDENTITY   another site's or group's
 *   SR_E_NO_SPACE   the file system is full and the reserve is used up
 *   SR_E_PERMISSION, SR_E_NOT_FOUND, SR_E_IO, SR_E_NO_MEMORY
 * On SR_OK *meta is the caller's, to be closed with sr_meta_close. */
enum sr_error sr_meta_open(uv_loop_t *loop, const char *state_dir, const char *site_name, const struct sr_uuid *group,
                           struct sr_meta **meta, char *error_text, size_t error_text_bytes);

/* Runs what is queued and calls its done functions (which may hand in more), then closes and lets go of the
 * lock.  Blocks.  Loop thread, but not from inside a done function; the loop must run once more afterwards, for
 * the handle that it closes.  NULL is fine. */
void sr_meta_close(struct sr_meta *meta);

/* Valid until close; changes of the peer show once they are done. */
const struct sr_meta_site *sr_meta_site(const struct sr_meta *meta);

/* What the log should tell about this start ("the file system is full, the reserve was used"), else "". */
const char *sr_meta_notice(const struct sr_meta *meta);

/* Why commits fail, as a sentence that names the folder; "" while they do not.  Valid until close. */
const char *sr_meta_failure(struct sr_meta *meta);

/* ---- loading, at start-up: each calls fn for every entry; a non-OK result of fn stops and is returned ----
 *
 * On the loop thread; blocks.  fn must not call back into sr_meta.  A damaged or newer record is SR_E_CORRUPT or
 * SR_E_VERSION, and error_text then names database and key.  Sees what is durable, not what is queued. */
typedef enum sr_error (*sr_meta_volume_fn)(void *arg, const struct sr_meta_volume *volume);
typedef enum sr_error (*sr_meta_collection_fn)(void *arg, const struct sr_meta_collection *collection);
enum sr_error sr_meta_each_volume(struct sr_meta *meta, sr_meta_volume_fn fn, void *arg, char *error_text,
                                  size_t error_text_bytes);
enum sr_error sr_meta_each_collection(struct sr_meta *meta, sr_meta_collection_fn fn, void *arg, char *error_text,
                                      size_t error_text_bytes);
/* Calls sr_core_load_* on the core for everything the map of this volume holds (from, then regions, then bad
 * blocks, ascending).  SR_E_NOT_FOUND: the catalogue has no such volume. */
enum sr_error sr_meta_load_map(struct sr_meta *meta, const struct sr_uuid *volume, struct sr_core *core,
                               uint32_t index, char *error_text, size_t error_text_bytes);

/* ---- changes: asynchronous, in order, done on the loop ----------------------------------------------
 *
 * Loop thread.  done is called exactly once, later, from the loop (or from sr_meta_close), in the order of the
 * calls; SR_OK: durable.  SR_E_NOT_FOUND (no such collection) and SR_E_INVALID (a record that would be refused
 * when it is read) concern this change alone, which then changed nothing.  Anything else is final: this change
 * and every later one fails, and the caller stops the daemon (sr_meta_failure says why). */
typedef void (*sr_meta_done_fn)(void *arg, uint64_t tag, enum sr_error error);

/* A core's commit: record of `collection`, map ops of volumes[op->volume].  volumes and commit stay valid and
 * unchanged until done.  tag comes back in done. CLEAR leaves bad blocks marked: they are cleared one by one. */
void sr_meta_commit_core(struct sr_meta *meta, const struct sr_uuid *collection, const struct sr_uuid *volumes,
                         uint32_t n_volumes, const struct sr_commit *commit, sr_meta_done_fn done, void *arg,
                         uint64_t tag);

/* The site's own catalogue; any field NULL: not changed.  Copied. One transaction. */
struct sr_meta_change {
    const struct sr_meta_volume *put_volume;
    const struct sr_meta_collection *put_collection;
    const struct sr_uuid *drop_volume; /* with its whole map */
    const struct sr_uuid *drop_collection;
    const struct sr_uuid *peer; /* site UUID of the peer */
};
void sr_meta_commit_change(struct sr_meta *meta, const struct sr_meta_change *change, sr_meta_done_fn done, void *arg,
                           uint64_t tag);

#endif
