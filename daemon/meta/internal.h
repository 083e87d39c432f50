/* internal.h - inside meta/: the handle, and a change on its way through the writer. */
#ifndef SR_META_INTERNAL_H
#define SR_META_INTERNAL_H

#include <pthread.h>

#include "meta/env.h"
#include "meta/meta.h"

#define SR_META_QUEUE_MAX     (1u << 20) /* unfinished changes; callers keep far below */
#define SR_META_BATCH_OPS_MAX (1u << 16) /* a batch takes no further change beyond that */
#define SR_META_TEXT_BYTES    512

/* A value that was formatted when the change was handed in. */
struct sr_meta_put {
    size_t bytes; /* 0: not changed */
    uint8_t *value;
};

/* One change.  The loop thread makes and frees it; in between it belongs to the writer thread. */
struct sr_meta_job {
    struct sr_meta_job *next;
    sr_meta_done_fn done;
    void *arg;
    uint64_t tag;
    enum sr_error error;
    enum sr_error refused; /* not SR_OK: holds nothing to apply, only its place in the order */
    bool last_record;      /* no later change of this batch replaces the record again */

    /* of a core; commit NULL: of the catalogue */
    const struct sr_commit *commit;
    const struct sr_uuid *volumes;
    uint32_t n_volumes;

    struct sr_uuid collection; /* of a core, or put_collection */
    struct sr_uuid volume;     /* put_volume */
    struct sr_meta_put put_volume, put_collection, put_site;
    bool drop_volume, drop_collection;
    struct sr_uuid dropped_volume, dropped_collection;
    struct sr_meta_site site; /* with put_site: what the handle shows from then on */
};

struct sr_meta_list {
    struct sr_meta_job *first, *last;
};

struct sr_meta {
    uv_loop_t *loop;
    char state_dir[SR_META_PATH_BYTES];
    int lock_fd;
    struct sr_meta_env env;
    struct sr_meta_site site;        /* durable; loop thread */
    struct sr_meta_site queued_site; /* as it will be when the queue has run; loop thread */
    char notice[SR_META_TEXT_BYTES];

    uint32_t unfinished; /* loop thread */
    uv_async_t *async;   /* its own memory: it outlives the handle until the loop has closed it */
    pthread_t thread;
    bool thread_runs;

    pthread_mutex_t mutex; /* all below */
    pthread_cond_t work;   /* queue or stop changed */
    pthread_cond_t news;   /* finished changed */
    struct sr_meta_list queue, finished;
    bool stop;
    enum sr_error dead; /* the error of the transaction that failed; everything after fails with it */
    char failure[SR_META_TEXT_BYTES];
};

/* sr_meta_open with a smaller map, for tests of its growth. */
enum sr_error sr_meta_open_with(uv_loop_t *loop, const char *state_dir, const char *site_name,
                                const struct sr_uuid *group, uint64_t map_start_bytes, struct sr_meta **meta,
                                char *error_text, size_t error_text_bytes);

/* Starts the writer thread.  After it only the writer opens write transactions. */
enum sr_error sr_meta_writer_start(struct sr_meta *meta);
/* Runs and reports everything queued, ends the thread.  Loop thread, not from a done function. */
void sr_meta_writer_stop(struct sr_meta *meta);

/* One change into an open transaction.  0 or what LMDB returned; a change that cannot be made although the
 * transaction is fine sets job->error and has changed nothing. */
int sr_meta_apply(struct sr_meta_env *env, MDB_txn *txn, struct sr_meta_job *job);

#endif
