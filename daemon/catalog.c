/* catalog.c - creating a volume at both sites, seen from the site that was asked to (the coordinator).
 *
 *   RECORD    PENDING (creator) is being made durable
 *   PREPARE   at the same time: image here; PREPARE_CREATE at the other site (PENDING and image there)
 *   DECIDE    LIVE and the collection's record, in one transaction: from here on the volume exists
 *   COMMIT    COMMIT_CREATE at the other site; with its answer both cores meet
 *   UNDO      something failed before the decision: ABORT_CREATE there, image and record here go
 *
 * Invariants
 *   N1  The other site is told COMMIT_CREATE only when the decision is durable here.
 *   N2  While a decision is on its way to the disk no catalogue is sent (sr_catalog_commit): what a catalogue says is
 * durable. N3  A coordinator that finds PENDING (creator) at its start has not decided: it undoes.  A site that is
 * not the creator keeps PENDING until the creator says LIVE (COMMIT_CREATE) or does not have it LIVE (reconcile.c).
 *
 * So a crash of either site at any line ends, after restarts and a new link, with the volume at both sites or at
 * neither.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/size.h"
#include "operation.h"

struct creation {
    struct sr_operation operation; /* first */
    struct sr_control_call *call;
    struct sr_record record;
    struct sr_pool_job *job;
    char peer_pool[SR_NAME_BYTES];
    char name[SR_NAME_BYTES]; /* outlives the volume */
    bool peer_pool_named, preallocate, peer_active;
    uint64_t link; /* the connection on which the other site was asked */
    bool local_ended, peer_ended;
    enum sr_error error; /* the first one */
    char text[SR_SITE_TEXT];
};

/* ---- the coordinator ---------------------------------------------------------------------------------------- */

static void created(void *arg, enum sr_error error, const char *text)
{
    struct creation *creation = arg;
    struct sr_volume *volume = creation->operation.volume;
    const char *peer = volume->site->config->peer_name;
    char size[SR_SIZE_TEXT_BYTES];
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    Syncrep__Control__Done done = SYNCREP__CONTROL__DONE__INIT;
    char line[SR_SITE_TEXT + 3 * SR_NAME_BYTES];

    sr_size_format(volume->meta.size_bytes, size);
    if (error == SR_OK)
        snprintf(line, sizeof(line), "volume %s (%s) created at both sites", volume->meta.name, size);
    else
        snprintf(line, sizeof(line), "volume %s (%s) created; site %s has not confirmed it yet (%s)",
                 volume->meta.name, size, peer, text[0] ? text : sr_error_text(error));
    done.text = line;
    done.object = volume->meta.name;
    done.collection = volume->meta.name;
    done.hint = "";
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_DONE;
    response.done = &done;
    sr_control_reply(creation->call, &response, true);
    sr_log(SR_LOG_NOTICE, "%s", line);
    volume->operation = NULL;
    sr_accept_postponed(volume->site, volume->meta.name);
    free(creation);
}

static void undone(void *arg, enum sr_error error, const char *text)
{
    struct creation *creation = arg; /* its volume is gone by now */

    if (error != SR_OK)
        sr_log(SR_LOG_WARNING, "volume %s: undoing its creation: %s", creation->name, text);
    sr_control_reply_error(creation->call, creation->error, creation->name, NULL, "volume %s was not created: %s",
                           creation->name, creation->text);
    free(creation);
}

static void undo_here(struct creation *creation)
{
    struct sr_volume *volume = creation->operation.volume;

    if (volume->meta.imported)
        sr_pool_import_release(volume->meta.path, &volume->meta.uuid);
    volume->operation = NULL;
    sr_removal_start(volume, undone, creation);
}

static void aborted_there(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    (void)error;
    (void)reply;
    undo_here(arg); /* whatever it said: it will not find the volume LIVE here */
}

static void undo(struct creation *creation)
{
    struct sr_volume *volume = creation->operation.volume;
    struct sr_volume_rpc rpc;

    sr_operation_rpc(volume, SR_VOLUME_ABORT_CREATE, &rpc);
    sr_rpc_call(volume->site, &rpc, aborted_there, creation);
}

static void decided(void *arg, uint64_t tag, enum sr_error error)
{
    struct creation *creation = arg;
    struct sr_volume *volume = creation->operation.volume;
    struct sr_site *site = volume->site;

    (void)tag;
    if (error != SR_OK) {
        sr_driver_halt(site, sr_meta_failure(site->meta));
        return;
    }
    volume->meta.state = SR_VOLUME_LIVE;
    sr_operation_bring_up(volume, &creation->record);
    if (site->exchanged)
        sr_operation_commit_at_peer(volume, created, creation); /* N1 */
    else
        created(creation, SR_E_UNREACHABLE, "the link went down");
}

static void decide(struct creation *creation)
{
    struct sr_volume *volume = creation->operation.volume;
    struct sr_meta_collection collection = {.uuid = volume->meta.collection, .record = creation->record};
    struct sr_meta_volume live = volume->meta;
    struct sr_meta_change change = {.put_volume = &live, .put_collection = &collection};

    live.state = SR_VOLUME_LIVE;
    live.creator = false;
    memcpy(collection.name, volume->meta.name, sizeof(collection.name));
    volume->meta.creator = false;
    sr_catalog_commit(volume->site, &change, decided, creation);
}

static void failed(struct creation *creation, enum sr_error error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void failed(struct creation *creation, enum sr_error error, const char *format, ...)
{
    va_list args;

    if (creation->error != SR_OK)
        return;
    creation->error = error;
    va_start(args, format);
    vsnprintf(creation->text, sizeof(creation->text), format, args);
    va_end(args);
}

/* Both halves have ended, well or not. */
static void join(struct creation *creation)
{
    struct sr_site *site = creation->operation.volume->site;

    if (!creation->local_ended && creation->error != SR_OK && creation->job)
        sr_pool_job_cancel(creation->job); /* do not make it wait for minutes of zeroes */
    if (!creation->local_ended || !creation->peer_ended) {
        if (creation->local_ended && creation->error != SR_OK && creation->preallocate)
            creation->peer_ended = true; /* nor the other half: ABORT_CREATE stops it */
        else
            return;
    }
    if (creation->error == SR_OK && (!site->exchanged || site->stopping || creation->link != site->link_number))
        failed(creation, SR_E_UNREACHABLE, "the link to site %s went down", site->config->peer_name);
    if (creation->error == SR_OK)
        decide(creation);
    else
        undo(creation);
}

static void ask_peer(struct creation *creation);

/* The creation may be over before the answer comes: it is found again by the volume's UUID. */
struct asked {
    struct sr_site *site;
    struct sr_uuid volume;
};

static void prepared(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct asked asked = *(struct asked *)arg;
    struct sr_site *site = asked.site;
    struct sr_volume *volume = sr_table_volume(site, &asked.volume);

    free(arg);
    if (!volume || !volume->operation || volume->operation->kind != SR_OP_CREATE)
        return; /* given up meanwhile */
    struct creation *creation = (struct creation *)volume->operation;
    if (creation->peer_ended)
        return;
    bool other_pool = reply && error == SR_E_NOT_FOUND && !creation->peer_pool_named && reply->pool[0] &&
                      strcmp(reply->pool, creation->peer_pool) != 0;
    if (other_pool) { /* it has no pool of that name, and names the only one that it has */
        creation->peer_pool_named = true;
        memcpy(creation->peer_pool, reply->pool, sizeof(creation->peer_pool));
        ask_peer(creation);
        return;
    }
    creation->peer_ended = true;
    if (error != SR_OK)
        failed(creation, reply && error == SR_E_NOT_FOUND ? SR_E_INVALID : error, "site %s: %s", site->config->peer_name,
               reply && reply->text[0] ? reply->text
               : reply                 ? sr_error_text(error)
                                       : "the link went down");
    join(creation);
}

static void ask_peer(struct creation *creation)
{
    struct sr_volume *volume = creation->operation.volume;
    struct sr_volume_rpc rpc;
    struct asked *asked = calloc(1, sizeof(*asked));

    if (!asked) {
        creation->peer_ended = true;
        failed(creation, SR_E_NO_MEMORY, "out of memory");
        join(creation);
        return;
    }
    *asked = (struct asked){volume->site, volume->meta.uuid};
    sr_operation_rpc(volume, SR_VOLUME_PREPARE_CREATE, &rpc);
    memcpy(rpc.pool, creation->peer_pool, sizeof(rpc.pool));
    rpc.preallocate = creation->preallocate;
    rpc.active = creation->peer_active;
    sr_rpc_call(volume->site, &rpc, prepared, asked);
}

static void open_copy(struct creation *creation)
{
    struct sr_volume *volume = creation->operation.volume;
    char text[SR_SITE_TEXT] = "";
    enum sr_error error = sr_driver_open(volume, 0, text);

    if (error != SR_OK)
        failed(creation, error, "%s", text);
}

static void image_made(void *arg, enum sr_error error, const char *text)
{
    struct creation *creation = arg;

    creation->job = NULL;
    creation->local_ended = true;
    if (error != SR_OK)
        failed(creation, error, "%s", text[0] ? text : sr_error_text(error));
    else
        open_copy(creation);
    join(creation);
}

static void on_progress(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    struct creation *creation = arg;

    sr_log_limited(SR_LOG_INFO, creation->operation.volume->meta.name, "volume %s: zeroes written: %llu of %llu MiB",
                   creation->operation.volume->meta.name, (unsigned long long)(done_bytes >> 20),
                   (unsigned long long)(total_bytes >> 20));
}

static void make_copy(struct creation *creation)
{
    struct sr_volume *volume = creation->operation.volume;
    struct sr_pool_image image = {volume->meta.name, volume->meta.uuid, volume->meta.size_bytes,
                                  creation->preallocate};
    char text[SR_SITE_TEXT] = "";

    if (!volume->meta.imported) {
        enum sr_error error = sr_pool_create_start(volume->pool->pool, volume->site->loop, &image, on_progress,
                                                   image_made, creation, &creation->job);
        if (error != SR_OK) {
            creation->local_ended = true;
            failed(creation, error, "%s", sr_error_text(error));
        }
        return;
    }
    enum sr_error error = sr_pool_import_mark(volume->meta.path, &volume->meta.uuid, text, sizeof(text));
    creation->local_ended = true;
    if (error != SR_OK)
        failed(creation, error, "%s", text);
    else
        open_copy(creation);
    if (volume->store)
        sr_store_device(volume->store, volume->meta.device); /* durable with the decision */
}

static void recorded(void *arg, uint64_t tag, enum sr_error error)
{
    struct creation *creation = arg;
    struct sr_site *site = creation->operation.volume->site;

    (void)tag;
    if (error != SR_OK) {
        sr_driver_halt(site, sr_meta_failure(site->meta));
        return;
    }
    make_copy(creation);
    if (creation->error != SR_OK) {
        undo(creation);
        return;
    }
    ask_peer(creation);
}

/* ---- what was asked for ------------------------------------------------------------------------------------ */

static bool refuse(struct sr_control_call *call, const char *name, enum sr_error error, const char *hint,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

static bool refuse(struct sr_control_call *call, const char *name, enum sr_error error, const char *hint,
                   const char *format, ...)
{
    char text[SR_SITE_TEXT + 2 * SR_NAME_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    sr_control_reply_error(call, error, name, hint, "%s", text);
    return false;
}

static bool size_fits(struct sr_control_call *call, const char *name, uint64_t bytes)
{
    char exact[SR_SIZE_TEXT_BYTES];

    if (bytes < SR_VOLUME_MIN_BYTES || bytes > SR_VOLUME_MAX_BYTES)
        return refuse(call, name, SR_E_INVALID, NULL, "volume %s: %llu bytes: a volume has 1 MiB to 64 TiB", name,
                      (unsigned long long)bytes);
    if (bytes % SR_BLOCK_BYTES != 0) {
        uint64_t next = (bytes / SR_BLOCK_BYTES + 1) * SR_BLOCK_BYTES;
        return refuse(call, name, SR_E_INVALID, NULL,
                      "volume %s: %llu bytes are not a multiple of 4096; the next valid size is %s", name,
                      (unsigned long long)bytes, sr_size_format_exact(next, exact));
    }
    return true;
}

static struct sr_site_pool *choose_pool(struct sr_site *site, struct sr_control_call *call,
                                        const struct sr_create *create)
{
    struct sr_site_pool *pool = create->pool[0]      ? sr_table_pool_named(site, create->pool)
                                : site->n_pools == 1 ? &site->pools[0]
                                                     : NULL;

    if (!pool && create->pool[0])
        refuse(call, create->name, SR_E_INVALID, "syncrepctl pool list", "site %s has no pool %s",
               site->config->site, create->pool);
    else if (!pool)
        refuse(call, create->name, SR_E_USAGE, "syncrepctl pool list", "site %s has %zu pools: name one with --pool",
               site->config->site, site->n_pools);
    else if (!pool->pool)
        refuse(call, create->name, SR_E_REFUSED, "syncrepctl pool list", "pool %s cannot be used: %s", pool->name,
               pool->detail);
    return pool && pool->pool ? pool : NULL;
}

static bool may_create(struct sr_site *site, struct sr_control_call *call, const struct sr_create *create)
{
    const struct sr_volume *same = sr_table_volume_named(site, create->name);
    const char *why;

    if (!sr_name_valid(create->name, &why))
        return refuse(call, create->name, SR_E_INVALID, NULL, "volume '%.64s': %s", create->name, why);
    if (same && same->meta.state != SR_VOLUME_LIVE)
        return refuse(call, create->name, SR_E_BUSY, "syncrepctl volume list",
                      "a volume %s is still being %s; try again when that has ended", create->name,
                      same->meta.state == SR_VOLUME_PENDING ? "created" : "deleted");
    if (same)
        return refuse(call, create->name, SR_E_EXISTS, "syncrepctl volume list", "volume %s exists already",
                      create->name);
    if (sr_table_collection_called(site, create->name))
        return refuse(call, create->name, SR_E_EXISTS, "syncrepctl collection list",
                      "a collection %s exists: a volume's own collection would have that name too", create->name);
    if (site->n_volumes >= site->config->max_volumes)
        return refuse(call, create->name, SR_E_REFUSED, NULL,
                      "site %s has %u volumes, as many as limits.max_volumes allows", site->config->site,
                      site->n_volumes);
    if (site->stopping)
        return refuse(call, create->name, SR_E_SHUTDOWN, NULL, "the daemon is stopping");
    if (!site->exchanged)
        return refuse(call, create->name, SR_E_UNREACHABLE, "syncrepctl status",
                      "volume %s: site %s is not connected, and a volume is created at both sites or at neither",
                      create->name, site->config->peer_name);
    if (create->write_back && !(site->peer_features & SR_FEATURE_WRITE_BACK))
        return refuse(call, create->name, SR_E_UNSUPPORTED, NULL,
                      "volume %s: site %s runs an older version, without write-back volumes: upgrade it first, or "
                      "leave --durability out",
                      create->name, site->config->peer_name);
    return true;
}

static bool take_import(struct sr_site *site, struct sr_control_call *call, const struct sr_create *create,
                        uint64_t *size_bytes)
{
    char text[SR_SITE_TEXT] = "";
    uint64_t found = 0;
    const struct sr_volume *twice;

    if (create->peer_active)
        return refuse(call, create->name, SR_E_USAGE, NULL,
                      "volume %s: the site that imports data must be active for it at first", create->name);
    if (create->import_path[0] != '/' || strlen(create->import_path) >= sizeof(((struct sr_meta_volume *)0)->path))
        return refuse(call, create->name, SR_E_INVALID, NULL, "volume %s: '%.200s' is not an absolute path",
                      create->name, create->import_path);
    twice = sr_import_twice(site, create->import_path);
    if (twice)
        return refuse(call, create->name, SR_E_IDENTITY, NULL, "volume %s: %s is the copy of volume %s already", create->name,
                      create->import_path, twice->meta.name);
    enum sr_error error = sr_pool_import_check(create->import_path, &found, text, sizeof(text));
    if (error != SR_OK)
        return refuse(call, create->name, error, NULL, "volume %s: %s", create->name, text);
    if (*size_bytes && *size_bytes != found)
        return refuse(call, create->name, SR_E_INVALID, NULL, "volume %s: %s has %llu bytes, not %llu", create->name,
                      create->import_path, (unsigned long long)found, (unsigned long long)*size_bytes);
    *size_bytes = found;
    return true;
}

void sr_catalog_create(struct sr_site *site, struct sr_control_call *call, const struct sr_create *create)
{
    struct sr_meta_volume meta = {.state = SR_VOLUME_PENDING, .creator = true, .size_bytes = create->size_bytes};
    struct sr_site_pool *pool;

    if (!may_create(site, call, create))
        return;
    pool = choose_pool(site, call, create);
    if (pool && !create->import_path[0] && sr_pool_image_present(pool->pool, create->name)) {
        refuse(call, create->name, SR_E_EXISTS, NULL, "volume %s: %s/%s.img is there already and is not touched: move it away",
               create->name, pool->directory, create->name);
        return;
    }
    if (!pool || (create->import_path[0] && !take_import(site, call, create, &meta.size_bytes)) ||
        !size_fits(call, create->name, meta.size_bytes))
        return;
    sr_uuid_generate(&meta.uuid);
    sr_uuid_generate(&meta.collection);
    snprintf(meta.name, sizeof(meta.name), "%s", create->name);
    snprintf(meta.pool, sizeof(meta.pool), "%s", pool->name);
    snprintf(meta.path, sizeof(meta.path), "%s", create->import_path);
    meta.pool_uuid = pool->uuid;
    meta.imported = create->import_path[0] != '\0';
    meta.write_back = create->write_back;
    meta.created_wall_ms = sr_driver_wall_ms();
    struct creation *creation = calloc(1, sizeof(*creation));
    struct sr_volume *volume = creation ? sr_table_add_volume(site, &meta) : NULL;
    if (!volume) {
        free(creation);
        refuse(call, create->name, SR_E_NO_MEMORY, NULL, "out of memory");
        return;
    }
    creation->operation = (struct sr_operation){.kind = SR_OP_CREATE, .volume = volume};
    memcpy(creation->name, meta.name, sizeof(creation->name));
    creation->link = site->link_number;
    creation->call = call;
    creation->preallocate = create->preallocate;
    creation->peer_active = create->peer_active;
    creation->peer_pool_named = create->peer_pool[0] != '\0';
    snprintf(creation->peer_pool, sizeof(creation->peer_pool), "%s",
             create->peer_pool[0] ? create->peer_pool : pool->name);
    creation->record.role = create->peer_active ? SR_ROLE_ALTERNATE : SR_ROLE_ACTIVE;
    creation->record.made_by = SR_MADE_CREATED;
    creation->record.gen_wall_ms = sr_driver_wall_ms();
    creation->record.consistent = true;
    sr_uuid_generate(&creation->record.gen);
    volume->operation = &creation->operation;
    struct sr_meta_change change = {.put_volume = &volume->meta};
    sr_catalog_commit(site, &change, recorded, creation);
}
