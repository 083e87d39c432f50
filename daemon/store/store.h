/* store.h - the data of one replica, behind one asynchronous interface with two engines (io_uring, threads).
 *
 * A store_engine belongs to a libuv loop; completions are called from that loop, never from inside a submit.
 * All calls on the loop thread.  Data is on stable storage when WRITE, ZERO or FLUSH reports success; that of a
 * `cached` WRITE or ZERO when a FLUSH does that was submitted after its end.
 * Unaligned offsets and lengths are fine (the engine reads, merges and writes whole 4 KiB blocks); the caller
 * guarantees that no two writes touching the same 4 KiB block are in flight at once.
 *
 * Errors of an operation: SR_E_NO_SPACE (the file system or quota is full: the range may hold old, new or mixed
 * content, everything else is untouched), SR_E_INVALID (the range lies outside of the replica), SR_E_IO (all
 * the rest).  After a WRITE, ZERO or FLUSH that ended with SR_E_IO the replica has *failed*: nobody knows any more
 * what the disk holds, so every later WRITE, ZERO and FLUSH answers SR_E_IO until sr_store_recover or until it
 * is opened anew.  Reads go on.
 *
 * Each replica is opened once and locked (OFD lock) on the very descriptor that its I/O uses.
 */
#ifndef SR_STORE_STORE_H
#define SR_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/error.h"
#include "core/core.h"
#include "store/device.h"

struct sr_store_engine; /* a set of workers or a ring on a loop */
struct sr_store;        /* one opened replica */

enum sr_store_engine_kind { SR_ENGINE_AUTO, SR_ENGINE_URING, SR_ENGINE_THREADS };

/* io is the number from the request; all_zero as in SR_EV_DISK_DONE. */
typedef void (*sr_store_done_fn)(void *arg, uint64_t io, enum sr_error error, bool all_zero);

/* AUTO takes io_uring where the kernel allows it, else threads.  why (may be NULL, why_bytes) says which and
 * why, for the log.  On the thread that runs the loop.  SR_E_UNSUPPORTED: io_uring was asked for and cannot be had.
 */
enum sr_error sr_store_engine_new(uv_loop_t *loop, enum sr_store_engine_kind kind, struct sr_store_engine **engine,
                                  char *why, size_t why_bytes);
const char *sr_store_engine_name(const struct sr_store_engine *engine); /* "io_uring" or "threads" */
/* Every store must be closed.  Frees asynchronously on the loop: run the loop until closed_cb. */
void sr_store_engine_close(struct sr_store_engine *engine, void (*closed_cb)(void *arg), void *arg);

/* Opens, locks and makes durable (fsync) the replica at path; blocks; for start-up and volume creation.
 * size_bytes must fit the file exactly (block devices: at least).  SR_E_LOCKED: another process has it (a block
 * device: or it is mounted).  error_text (may be NULL) gets one sentence naming the path. */
enum sr_error sr_store_open(struct sr_store_engine *engine, const char *path, uint64_t size_bytes,
                            struct sr_store **store, char *error_text, size_t error_text_bytes);

struct sr_store_open_options {
    uint32_t lock_wait_ms; /* wait that long for the lock: what a killed daemon had submitted still lands, and
                              holds the lock until it has */
    struct sr_uuid volume; /* an image that is marked with another volume, or could be marked and is not: SR_E_IDENTITY.
                              None: any will do */
    const char *device; /* of sr_device_identity, when it was imported; another block device: SR_E_IDENTITY.  NULL or
                           "": any */
    bool *undurable;    /* may be NULL; set if it cannot be made durable: nobody knows what it holds, now or at any later
                           open */
};

/* As sr_store_open.  options may be NULL: no wait, any volume. */
enum sr_error sr_store_open_with(struct sr_store_engine *engine, const char *path, uint64_t size_bytes,
                                 const struct sr_store_open_options *options, struct sr_store **store,
                                 char *error_text, size_t error_text_bytes);

/* The identity of the device that is open; "" for an image. */
void sr_store_device(const struct sr_store *store, char identity[SR_DEVICE_IDENTITY_BYTES]);

/* Submits; done is called later, exactly once.  io->volume is ignored.  HASH wants whole blocks. */
void sr_store_submit(struct sr_store *store, const struct sr_disk_io *io, sr_store_done_fn done, void *arg);

/* No I/O may be in flight.  Closes the descriptor (and so drops the lock). */
void sr_store_close(struct sr_store *store);

uint64_t sr_store_size(const struct sr_store *store);

/* Has a WRITE, ZERO or FLUSH failed since it was opened? */
bool sr_store_failed(const struct sr_store *store);

/* For `replace`, when everything the replica holds has been given up and will be copied anew: forgets the failure
 * if the disk answers an fsync now.  No I/O may be in flight; blocks. */
enum sr_error sr_store_recover(struct sr_store *store);

/* "direct", or "buffered: ..." with the reason, for the log. */
const char *sr_store_access(const struct sr_store *store);

/* For status: allocated bytes of the replica (st_blocks), blocking. */
uint64_t sr_store_allocated_bytes(const struct sr_store *store);

/* Next boundary in the allocation status at offset (NBD base:allocation): sets *hole for the extent that starts
 * at offset and returns its length in bytes, at most limit.  Non-blocking enough for the loop (lseek).
 * 0 only if offset is not inside of the replica or limit is 0. */
uint64_t sr_store_extent(struct sr_store *store, uint64_t offset, uint64_t limit, bool *hole);

#endif
