/* store_impl.h - inside of store/: how an operation is cut into primitives, and who carries those out.
 *
 *   sr_store_submit          request.c   one sr_disk_io becomes a request
 *     read, write            request.c   whole transfers; short ones are continued
 *     unaligned, bounce      bounce.c    through aligned memory, read-merge-write
 *     zero                   zero.c      punch or zero a range, the edges by writing
 *     flush                  sync.c      one fdatasync for all who wait
 *     hash                   hash.c      read a chunk, digest it on a worker
 *       sr_engine_submit     engine.c    one primitive; injected faults happen here
 *         uring.c | threads.c            the two tables of operations
 *           workers.c                    the threads (the ring lends them what would block the loop)
 *
 * A request has at most one primitive in flight and lives in exactly one place: in its primitive, in a list of
 * waiters (for bounce memory, for an fdatasync), or finished.  Everything here runs on the loop thread but
 * sr_prim_execute and the `work` functions.
 */
#ifndef SR_STORE_STORE_IMPL_H
#define SR_STORE_STORE_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/assert.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/units.h"
#include "store/store.h"
#include "store/workers.h"

#define SR_STORE_CHUNK_BYTES    ((size_t)SR_MIB) /* bounces, zero writes and hashes go by this */
#define SR_STORE_CALL_BYTES     (256 * SR_MIB)   /* most of one read or write call; they take 32-bit lengths */
#define SR_STORE_BOUNCE_BYTES   (16 * SR_MIB)    /* bounce memory of one engine; who finds none waits */
#define SR_STORE_WORKERS        8                /* threads of one engine, started when needed */
#define SR_STORE_REQUESTS_SPARE 64               /* finished requests kept for the next */

struct sr_request;
typedef void (*sr_request_fn)(struct sr_request *request, enum sr_error error);

struct sr_uring;

/* ---- the two engines --------------------------------------------------------------------------------- */

struct sr_engine_ops {
    const char *name;
    /* why gets the reason when it cannot be had. */
    enum sr_error (*start)(struct sr_store_engine *engine, char *why, size_t why_bytes);
    /* READ, WRITE, FALLOCATE, SYNC.  Exactly one sr_engine_complete follows, later, on the loop. */
    void (*submit)(struct sr_store_engine *engine, struct sr_prim *prim);
    /* Closes what start opened; calls sr_engine_handle_closed for each handle it counted in handles_open. */
    void (*stop)(struct sr_store_engine *engine);
};

extern const struct sr_engine_ops sr_engine_uring_ops;
extern const struct sr_engine_ops sr_engine_threads_ops;

struct sr_request_list {
    struct sr_request *head, *tail;
};

struct sr_store_engine {
    const struct sr_engine_ops *ops;
    uv_loop_t *loop;
    uv_async_t wake; /* from workers, and from ourselves for `soon`; keeps the loop alive while busy */
    struct sr_workers workers;
    struct sr_uring *uring;
    struct sr_prim_list soon; /* their result is known without I/O; delivered in the next turn */
    uint32_t stores;
    uint32_t outstanding; /* requests not yet finished */

    struct sr_budget bounce_budget;
    struct sr_buf *reserve; /* a bounce for when memory is short: there is always progress */
    bool reserve_used;
    struct sr_request_list bounce_waiters;

    uint8_t *zeroes; /* SR_STORE_CHUNK_BYTES of them, never written */
    struct sr_request *spare;
    uint32_t spares;

    bool closing;
    uint32_t handles_open; /* while closing */
    void (*closed_cb)(void *arg);
    void *closed_arg;
};

struct sr_store {
    struct sr_store_engine *engine;
    char *path;
    int fd;
    uint64_t size_bytes;
    bool direct;
    bool block_device;
    bool failed;
    bool no_punch, no_zero_range; /* the file system refused it once */
    const char *access;
    uint32_t in_flight;

    struct sr_prim sync_prim;
    bool syncing;
    struct sr_request_list sync_running; /* share the fdatasync in flight */
    struct sr_request_list sync_waiting; /* came too late for it: share the next */
};

struct sr_request {
    struct sr_prim prim; /* first: the primitive's pointer is the request's */
    struct sr_store *store;
    struct sr_disk_io io;
    sr_store_done_fn done;
    void *arg;
    struct sr_request *next;
    sr_request_fn resume; /* of a waiter */
    bool all_zero;        /* a probe found a hole */

    struct { /* one contiguous transfer, until complete or failed */
        uint8_t *data;
        uint64_t offset;
        size_t length, done;
        int rw_flags;
        sr_request_fn then;
    } transfer;

    struct { /* a range that goes through aligned memory, chunk by chunk */
        struct sr_buf *buf;
        size_t need;
        bool is_reserve;
        bool writing;
        uint64_t at, end;     /* what is left of the range */
        uint64_t first, last; /* the chunk: whole blocks from first up to last */
        uint8_t *memory;      /* the caller's bytes for `at`; NULL: zeroes */
        sr_request_fn then;
    } bounce;

    struct { /* ZERO, and the chunks of HASH */
        uint64_t at, end;
        bool need_sync;
    } range;
};

/* ---- engine.c ---------------------------------------------------------------------------------------- */

/* Starts prim on store (its fd, done and the rest are set).  Injected faults apply. */
void sr_engine_submit(struct sr_store *store, struct sr_prim *prim);
/* A primitive has ended with result (a count or -errno): calls its done, after an injected delay if there is one. */
void sr_engine_complete(struct sr_store_engine *engine, struct sr_prim *prim, int64_t result);
/* The same, but in the next turn of the loop. */
void sr_engine_complete_soon(struct sr_store_engine *engine, struct sr_prim *prim, int64_t result);
void sr_engine_handle_closed(struct sr_store_engine *engine);

/* ---- request.c --------------------------------------------------------------------------------------- */

/* Of the writes of a WRITE or ZERO: RWF_DSYNC, or 0 if it is `cached`. */
int sr_request_rw_flags(const struct sr_request *request);

/* Reads or (rw_flags, usually RWF_DSYNC) writes all of it, then calls then; SR_E_IO if it stops making progress. */
void sr_request_read(struct sr_request *request, uint8_t *data, uint64_t offset, size_t length, sr_request_fn then);
void sr_request_write(struct sr_request *request, const uint8_t *data, uint64_t offset, size_t length, int rw_flags,
                      sr_request_fn then);
/* Tells the caller and frees the request.  Never from inside sr_store_submit. */
void sr_request_finish(struct sr_request *request, enum sr_error error);
/* The error of an operation for a result below 0. */
enum sr_error sr_request_error(int64_t result);

static inline bool sr_block_aligned(uint64_t n)
{
    return n % SR_BLOCK_BYTES == 0;
}

static inline uint64_t sr_block_floor(uint64_t n)
{
    return n - n % SR_BLOCK_BYTES;
}

static inline uint64_t sr_block_ceil(uint64_t n)
{
    return sr_block_floor(n + SR_BLOCK_BYTES - 1);
}

void sr_request_list_push(struct sr_request_list *list, struct sr_request *request);
struct sr_request *sr_request_list_pop(struct sr_request_list *list);

/* ---- bounce.c ---------------------------------------------------------------------------------------- */

/* Takes bounce memory of at least bytes (<= SR_STORE_CHUNK_BYTES), waiting for it if need be; then resume(OK). */
void sr_bounce_acquire(struct sr_request *request, size_t bytes, sr_request_fn resume);
void sr_bounce_release(struct sr_request *request);
/* Any range, from or to any memory (write: NULL writes zeroes), through whole blocks. */
void sr_bounce_read(struct sr_request *request, uint8_t *memory, uint64_t offset, uint64_t length,
                    sr_request_fn then);
void sr_bounce_write(struct sr_request *request, const uint8_t *memory, uint64_t offset, uint64_t length,
                     sr_request_fn then);

/* ---- zero.c, sync.c, hash.c -------------------------------------------------------------------------- */

void sr_zero_start(struct sr_request *request);
/* Finishes the request when a fdatasync that began after this call has ended. */
void sr_sync_join(struct sr_request *request);
void sr_hash_start(struct sr_request *request);

#endif
