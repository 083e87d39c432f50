/* writer.c - the one thread that writes: group commit.
 *
 *    loop thread                      writer thread
 *    sr_meta_commit_* -> queue ---->  takes all that waits, one LMDB transaction
 *    done(), in order <- async <----  finished
 *
 * Invariants:
 *   W1  Changes are applied, become durable and are reported in the order in which they were handed in.
 *   W2  done(SR_OK) is called only after the transaction that holds the change is on stable storage.
 *   W3  The first transaction that fails is the last: it fails for every change in it, and so does everything
 *       handed in later.  (A failed fsync must not be retried and believed.)
 *   W4  A job belongs to one thread at a time; the mutex hands it over.  The writer never touches a core: it
 *       reads the commit, which the core leaves alone until done.
 *
 * A crash at any line: the transaction is on disk whole or not at all, and nobody was told it was if it was not.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "meta/internal.h"

/* ---- lists of jobs --------------------------------------------------------------------------------- */

static void list_append(struct sr_meta_list *list, struct sr_meta_list *more)
{
    if (more->first == NULL)
        return;
    if (list->last == NULL)
        list->first = more->first;
    else
        list->last->next = more->first;
    list->last = more->last;
    memset(more, 0, sizeof(*more));
}

static void list_add(struct sr_meta_list *list, struct sr_meta_job *job)
{
    struct sr_meta_list one = {.first = job, .last = job};
    job->next = NULL;
    list_append(list, &one);
}

static uint64_t job_ops(const struct sr_meta_job *job)
{
    return job->commit != NULL ? 1 + (uint64_t)job->commit->n_ops : 1;
}

/* Moves the front of the queue: at least one job, and no more once there are many operations, so that the
 * first of a long queue need not wait for the last.  Returns how many. */
static size_t take_batch(struct sr_meta_list *queue, struct sr_meta_list *batch)
{
    struct sr_meta_job *job = queue->first;
    uint64_t ops = job_ops(job);
    size_t n = 1;

    while (job->next != NULL && ops + job_ops(job->next) <= SR_META_BATCH_OPS_MAX) {
        job = job->next;
        ops += job_ops(job);
        n++;
    }
    batch->first = queue->first;
    batch->last = job;
    queue->first = job->next;
    if (queue->first == NULL)
        queue->last = NULL;
    job->next = NULL;
    return n;
}

/* ---- the records that count ------------------------------------------------------------------------ */

static bool seen_add(struct sr_uuid *seen, size_t *n_seen, const struct sr_uuid *uuid)
{
    for (size_t i = 0; i < *n_seen; i++) {
        if (sr_uuid_equal(&seen[i], uuid))
            return false;
    }
    seen[(*n_seen)++] = *uuid;
    return true;
}

/* Only the last record of a collection in a batch is written: the ones before are never visible.  That holds
 * also with a change of the catalogue between them, which replaces or drops the whole collection. */
static void mark_last_records(const struct sr_meta_list *batch, size_t n)
{
    struct sr_meta_job **jobs = malloc(n * sizeof(struct sr_meta_job *));
    struct sr_uuid *seen = malloc(n * sizeof(struct sr_uuid));
    size_t i = 0, n_seen = 0;

    for (struct sr_meta_job *job = batch->first; job != NULL; job = job->next) {
        job->last_record = true;
        if (jobs != NULL)
            jobs[i++] = job;
    }
    if (jobs != NULL && seen != NULL) { /* else every one is written, which is only slower */
        while (i-- > 0) {
            struct sr_meta_job *job = jobs[i];
            if (job->commit != NULL && job->commit->has_record)
                job->last_record = seen_add(seen, &n_seen, &job->collection);
        }
    }
    free(seen);
    free(jobs);
}

/* ---- one transaction ------------------------------------------------------------------------------- */

static int try_batch(struct sr_meta_env *env, const struct sr_meta_list *batch)
{
    MDB_txn *txn;

    int rc = mdb_txn_begin(env->mdb, NULL, 0, &txn);
    if (rc != 0)
        return rc;
    for (struct sr_meta_job *job = batch->first; job != NULL; job = job->next) {
        rc = sr_meta_apply(env, txn, job);
        if (rc != 0) {
            mdb_txn_abort(txn);
            return rc;
        }
    }
    return mdb_txn_commit(txn); /* frees txn, also when it fails */
}

/* On a full map: first let go of what readers that died still hold, then grow, and redo it all. */
static int commit_batch(struct sr_meta_env *env, const struct sr_meta_list *batch)
{
    for (;;) {
        int stale = 0;
        int rc = try_batch(env, batch);
        if (rc != MDB_MAP_FULL)
            return rc;
        rc = mdb_reader_check(env->mdb, &stale);
        if (rc == 0)
            rc = sr_meta_env_grow(env);
        if (rc != 0)
            return rc;
    }
}

static void fail_batch(const struct sr_meta_list *batch, enum sr_error error)
{
    for (struct sr_meta_job *job = batch->first; job != NULL; job = job->next)
        job->error = error;
}

static void run_batch(struct sr_meta *meta, struct sr_meta_list *batch, size_t n)
{
    enum sr_error dead = meta->dead; /* only this thread sets it */
    int rc = 0;

    if (dead == SR_OK) {
        mark_last_records(batch, n);
        rc = commit_batch(&meta->env, batch);
    }
    if (rc != 0)
        dead = sr_meta_env_error(&meta->env, rc);
    if (dead != SR_OK)
        fail_batch(batch, dead); /* W3 */

    pthread_mutex_lock(&meta->mutex);
    if (rc != 0) {
        meta->dead = dead;
        snprintf(meta->failure, sizeof(meta->failure), "%.300s: cannot commit metadata: %s", meta->env.dir,
                 dead == SR_E_NO_SPACE && rc != MDB_MAP_FULL ? "the file system is full" : mdb_strerror(rc));
    }
    list_append(&meta->finished, batch);
    pthread_cond_signal(&meta->news);
    pthread_mutex_unlock(&meta->mutex);
    uv_async_send(meta->async);
}

static void *writer_main(void *arg)
{
    struct sr_meta *meta = arg;
    struct sr_meta_list batch = {0};

    pthread_mutex_lock(&meta->mutex);
    for (;;) {
        while (meta->queue.first == NULL && !meta->stop)
            pthread_cond_wait(&meta->work, &meta->mutex);
        if (meta->queue.first == NULL)
            break;
        size_t n = take_batch(&meta->queue, &batch);
        pthread_mutex_unlock(&meta->mutex);
        run_batch(meta, &batch, n);
        pthread_mutex_lock(&meta->mutex);
    }
    pthread_mutex_unlock(&meta->mutex);
    return NULL;
}

/* ---- the loop's side ------------------------------------------------------------------------------- */

static void job_free(struct sr_meta_job *job)
{
    free(job->put_volume.value);
    free(job->put_collection.value);
    free(job->put_site.value);
    free(job);
}

static void report_finished(struct sr_meta *meta)
{
    struct sr_meta_list finished = {0};

    pthread_mutex_lock(&meta->mutex);
    list_append(&finished, &meta->finished);
    pthread_mutex_unlock(&meta->mutex);
    for (struct sr_meta_job *job = finished.first, *next; job != NULL; job = next) {
        next = job->next;
        if (job->error == SR_OK && job->put_site.bytes > 0)
            meta->site = job->site;
        SR_ASSERT(meta->unfinished > 0);
        if (--meta->unfinished == 0)
            uv_unref((uv_handle_t *)meta->async);
        job->done(job->arg, job->tag, job->error);
        job_free(job);
    }
}

static void on_async(uv_async_t *async)
{
    if (async->data != NULL) /* NULL: closed meanwhile */
        report_finished(async->data);
}

static struct sr_meta_job *job_new(sr_meta_done_fn done, void *arg, uint64_t tag)
{
    struct sr_meta_job *job = calloc(1, sizeof(*job));
    SR_ASSERT(job != NULL); /* as at a failed commit: better stop than go on without */
    job->done = done;
    job->arg = arg;
    job->tag = tag;
    return job;
}

/* The async handle keeps the loop alive exactly while something is unfinished. */
static void enqueue(struct sr_meta *meta, struct sr_meta_job *job)
{
    SR_ASSERT(meta->thread_runs && meta->unfinished < SR_META_QUEUE_MAX);
    if (meta->unfinished++ == 0)
        uv_ref((uv_handle_t *)meta->async);
    pthread_mutex_lock(&meta->mutex);
    list_add(&meta->queue, job);
    pthread_cond_signal(&meta->work);
    pthread_mutex_unlock(&meta->mutex);
}

/* Reported like all others: later, and behind what was handed in before. */
static void enqueue_refused(struct sr_meta *meta, struct sr_meta_job *job)
{
    free(job->put_volume.value);
    free(job->put_collection.value);
    free(job->put_site.value);
    memset(&job->put_volume, 0, sizeof(job->put_volume));
    memset(&job->put_collection, 0, sizeof(job->put_collection));
    memset(&job->put_site, 0, sizeof(job->put_site));
    job->drop_volume = job->drop_collection = false;
    job->refused = SR_E_INVALID;
    enqueue(meta, job);
}

void sr_meta_commit_core(struct sr_meta *meta, const struct sr_uuid *collection, const struct sr_uuid *volumes,
                         uint32_t n_volumes, const struct sr_commit *commit, sr_meta_done_fn done, void *arg,
                         uint64_t tag)
{
    struct sr_meta_job *job = job_new(done, arg, tag);
    const char *why;

    /* A record that would be refused at the next start must not be written. */
    SR_ASSERT(!commit->has_record || sr_record_valid(&commit->record, &why));
    job->collection = *collection;
    job->volumes = volumes;
    job->n_volumes = n_volumes;
    job->commit = commit;
    enqueue(meta, job);
}

/* Keeps the value only if it would be accepted again. */
static bool keep(struct sr_meta_put *put, enum sr_meta_db db, const void *key, size_t key_bytes, const uint8_t *value,
                 size_t bytes)
{
    struct sr_meta_entry entry;
    const char *why;

    if (sr_meta_parse(db, key, key_bytes, value, bytes, &entry, &why) != SR_OK)
        return false;
    put->value = malloc(bytes);
    SR_ASSERT(put->value != NULL);
    memcpy(put->value, value, bytes);
    put->bytes = bytes;
    return true;
}

static bool text_ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static bool keep_puts(struct sr_meta *meta, struct sr_meta_job *job, const struct sr_meta_change *change)
{
    uint8_t value[SR_META_VALUE_MAX_BYTES];
    const struct sr_meta_volume *volume = change->put_volume;
    const struct sr_meta_collection *collection = change->put_collection;

    if (volume != NULL) {
        if (!text_ends(volume->name, sizeof(volume->name)) || !text_ends(volume->pool, sizeof(volume->pool)) ||
            !text_ends(volume->path, sizeof(volume->path)) || !text_ends(volume->device, sizeof(volume->device)) ||
            !text_ends(volume->pending_name, sizeof(volume->pending_name)))
            return false;
        job->volume = volume->uuid;
        size_t bytes = sr_meta_format_volume(volume, value);
        if (!keep(&job->put_volume, SR_META_DB_VOLUMES, volume->uuid.b, SR_UUID_BYTES, value, bytes))
            return false;
    }
    if (collection != NULL) {
        if (!text_ends(collection->name, sizeof(collection->name)) ||
            collection->record.n_ancestors > SR_ANCESTORS_MAX)
            return false;
        job->collection = collection->uuid;
        size_t bytes = sr_meta_format_collection(collection, value);
        if (!keep(&job->put_collection, SR_META_DB_COLLECTIONS, collection->uuid.b, SR_UUID_BYTES, value, bytes))
            return false;
    }
    if (change->peer != NULL) {
        job->site = meta->queued_site;
        job->site.peer = *change->peer;
        size_t bytes = sr_meta_format_site(&job->site, value);
        if (!keep(&job->put_site, SR_META_DB_SITE, SR_META_SITE_KEY, strlen(SR_META_SITE_KEY), value, bytes))
            return false;
        meta->queued_site = job->site;
    }
    return true;
}

void sr_meta_commit_change(struct sr_meta *meta, const struct sr_meta_change *change, sr_meta_done_fn done, void *arg,
                           uint64_t tag)
{
    struct sr_meta_job *job = job_new(done, arg, tag);

    if (!keep_puts(meta, job, change)) {
        enqueue_refused(meta, job);
        return;
    }
    if (change->drop_volume != NULL) {
        job->drop_volume = true;
        job->dropped_volume = *change->drop_volume;
    }
    if (change->drop_collection != NULL) {
        job->drop_collection = true;
        job->dropped_collection = *change->drop_collection;
    }
    enqueue(meta, job);
}

const char *sr_meta_failure(struct sr_meta *meta)
{
    pthread_mutex_lock(&meta->mutex); /* once set, it never changes */
    const char *text = meta->dead != SR_OK ? meta->failure : "";
    pthread_mutex_unlock(&meta->mutex);
    return text;
}

/* ---- life ------------------------------------------------------------------------------------------ */

static void free_async(uv_handle_t *handle)
{
    free(handle);
}

enum sr_error sr_meta_writer_start(struct sr_meta *meta)
{
    SR_ASSERT(pthread_mutex_init(&meta->mutex, NULL) == 0);
    SR_ASSERT(pthread_cond_init(&meta->work, NULL) == 0);
    SR_ASSERT(pthread_cond_init(&meta->news, NULL) == 0);
    meta->async = calloc(1, sizeof(*meta->async));
    if (meta->async == NULL)
        goto fail_async;
    if (uv_async_init(meta->loop, meta->async, on_async) != 0) {
        free(meta->async);
        goto fail_async;
    }
    meta->async->data = meta;
    uv_unref((uv_handle_t *)meta->async);
    if (pthread_create(&meta->thread, NULL, writer_main, meta) != 0)
        goto fail_thread;
    meta->thread_runs = true;
    return SR_OK;

fail_thread:
    meta->async->data = NULL;
    uv_close((uv_handle_t *)meta->async, free_async);
fail_async:
    meta->async = NULL;
    pthread_cond_destroy(&meta->news);
    pthread_cond_destroy(&meta->work);
    pthread_mutex_destroy(&meta->mutex);
    return SR_E_NO_MEMORY;
}

void sr_meta_writer_stop(struct sr_meta *meta)
{
    while (meta->unfinished > 0) { /* a done function may hand in more */
        pthread_mutex_lock(&meta->mutex);
        while (meta->finished.first == NULL)
            pthread_cond_wait(&meta->news, &meta->mutex);
        pthread_mutex_unlock(&meta->mutex);
        report_finished(meta);
    }
    pthread_mutex_lock(&meta->mutex);
    meta->stop = true;
    pthread_cond_signal(&meta->work);
    pthread_mutex_unlock(&meta->mutex);
    SR_ASSERT(pthread_join(meta->thread, NULL) == 0);
    meta->thread_runs = false;

    meta->async->data = NULL;
    uv_close((uv_handle_t *)meta->async, free_async);
    pthread_cond_destroy(&meta->news);
    pthread_cond_destroy(&meta->work);
    pthread_mutex_destroy(&meta->mutex);
}
