/* store.h - the data of one replica, behind one asynchronous interface with two engines (io_uring, threads).
 *
 * A store_engine belongs to a libuv loop; completions are called from that loop, never from inside a submit.
 * All calls on the loop thread.  Data is on stable storage when WRITE, ZERO or FLUSH reports success.
 * Unaligned offsets and lengths are fine (the engine reads, merges and writes whole 4 KiB blocks); the caller
 * guarantees that no two writes touching the same 4 KiB block are in flight at once.
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

struct sr_store_engine; /* a set of workers or a ring on a loop */
struct sr_store;        /* one opened replica */

enum sr_store_engine_kind { SR_ENGINE_AUTO, SR_ENGINE_URING, SR_ENGINE_THREADS };

/* io is the number from the request; all_zero as in SR_EV_DISK_DONE. */
typedef void (*sr_store_done_fn)(void *arg, uint64_t io, enum sr_error error, bool all_zero);

/* AUTO takes io_uring where the kernel allows it, else threads.  why (may be NULL, why_bytes) says which and
 * why, for the log. */
enum sr_error sr_store_engine_new(uv_loop_t *loop, enum sr_store_engine_kind kind, struct sr_store_engine **engine,
                                  char *why, size_t why_bytes);
const char *sr_store_engine_name(const struct sr_store_engine *engine); /* "io_uring" or "threads" */
/* Every store must be closed.  Frees asynchronously on the loop: run the loop until closed_cb. */
void sr_store_engine_close(struct sr_store_engine *engine, void (*closed_cb)(void *arg), void *arg);

/* Opens, locks and makes durable (fsync) the replica at path; blocks; for start-up and volume creation.
 * size_bytes must fit the file exactly (block devices: at least).  SR_E_LOCKED: another process has it.
 * error_text (may be NULL) gets one sentence naming the path. */
enum sr_error sr_store_open(struct sr_store_engine *engine, const char *path, uint64_t size_bytes, struct sr_store **store,
                            char *error_text, size_t error_text_bytes);

/* Submits; done is called later, exactly once.  io->volume is ignored. */
void sr_store_submit(struct sr_store *store, const struct sr_disk_io *io, sr_store_done_fn done, void *arg);

/* No I/O may be in flight.  Closes the descriptor (and so drops the lock). */
void sr_store_close(struct sr_store *store);

uint64_t sr_store_size(const struct sr_store *store);

/* For status: allocated bytes of the replica (st_blocks), blocking. */
uint64_t sr_store_allocated_bytes(const struct sr_store *store);

/* Next boundary in the allocation status at offset (NBD base:allocation): sets *hole for the extent that starts
 * at offset and returns its length in bytes, at most limit.  Non-blocking enough for the loop (lseek). */
uint64_t sr_store_extent(struct sr_store *store, uint64_t offset, uint64_t limit, bool *hole);

#endif
