/* accept.c - creating a volume at both sites, seen from the site that the coordinator asks.
 *
 *   PREPARE_CREATE   PENDING made durable, image made: answered when both are there
 *   COMMIT_CREATE    LIVE and the collection's record in one transaction: answered when durable; may come again
 *   ABORT_CREATE     image and record go (removal.c); may come again
 *
 * Invariants
 *   A1  PENDING stays until the creator has decided; it never becomes LIVE by this site's own decision.
 *   A2  The core is told LINK_UP right behind the answer to COMMIT_CREATE: the coordinator's core is told when it
 * gets that answer, and so neither core's greeting can come too early.
 *   A3  Of two creations of one name, asked for at both sites at once, the site's goes on whose name comes first; the other one
 *       is refused there, undone, and what it kept waiting here is taken up.
 *
 * A crash at any line is harmless: PENDING is found at the next start, and the catalogues say what becomes of it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"

struct accept {
    struct sr_operation operation; /* first */
    struct sr_volume_rpc request;
    uint64_t link; /* the connection that the answer belongs to */
    struct sr_pool_job *job;
    struct sr_record record; /* COMMIT */
    bool give_way;
    sr_removed_fn removed_fn;
    void *removed_arg;
};

static void give_way(struct sr_operation *operation, sr_removed_fn fn, void *arg)
{
    struct accept *accept = (struct accept *)operation;

    if (accept->give_way) { /* somebody waits for it already */
        if (fn)
            fn(arg, SR_E_BUSY, "its creation is being undone");
        return;
    }
    accept->give_way = true;
    accept->removed_fn = fn;
    accept->removed_arg = arg;
    if (accept->job)
        sr_pool_job_cancel(accept->job);
}

static void reply(struct accept *accept, enum sr_error error, const char *text)
{
    struct sr_site *site = accept->operation.volume->site;

    if (site->link_is_up && accept->link == site->link_number)
        sr_rpc_reply(site, &accept->request, error, text);
}

/* The operation is over; whoever wants the volume removed has its turn. */
static void end(struct accept *accept)
{
    struct sr_volume *volume = accept->operation.volume;
    bool remove = accept->give_way;
    sr_removed_fn fn = accept->removed_fn;
    void *arg = accept->removed_arg;

    volume->operation = NULL;
    free(accept);
    if (remove)
        sr_removal_start(volume, fn, arg);
}

static void failed(struct accept *accept, enum sr_error error, const char *text)
{
    reply(accept, error, text);
    accept->give_way = true; /* nothing of it stays */
    end(accept);
}

/* ---- PREPARE_CREATE ----------------------------------------------------------------------------------------- */

static void image_made(void *arg, enum sr_error error, const char *text)
{
    struct accept *accept = arg;
    struct sr_volume *volume = accept->operation.volume;
    char why[SR_SITE_TEXT] = "";

    accept->job = NULL;
    if (error == SR_OK && !accept->give_way) {
        error = sr_driver_open(volume, 0, why);
        text = why;
    }
    if (error != SR_OK || accept->give_way) {
        failed(accept, error != SR_OK ? error : SR_E_CANCELLED, text);
        return;
    }
    reply(accept, SR_OK, NULL);
    end(accept);
}

static void recorded(void *arg, uint64_t tag, enum sr_error error)
{
    struct accept *accept = arg;
    struct sr_volume *volume = accept->operation.volume;
    struct sr_pool_image image = {volume->meta.name, volume->meta.uuid, volume->meta.size_bytes,
                                  accept->request.preallocate};

    (void)tag;
    if (error != SR_OK) {
        sr_driver_halt(volume->site, sr_meta_failure(volume->site->meta));
        return;
    }
    if (!accept->give_way)
        error = sr_pool_create_start(volume->pool->pool, volume->site->loop, &image, NULL, image_made, accept,
                                     &accept->job);
    if (error != SR_OK || accept->give_way)
        failed(accept, error != SR_OK ? error : SR_E_CANCELLED, sr_error_text(error));
}

static struct sr_site_pool *choose_pool(struct sr_site *site, const struct sr_volume_rpc *request)
{
    struct sr_site_pool *pool = sr_table_pool_named(site, request->pool);
    struct sr_volume_rpc answer = *request;
    char text[SR_SITE_TEXT_BYTES];

    if (pool && pool->pool)
        return pool;
    if (pool) {
        snprintf(text, sizeof(text), "pool %s cannot be used: %.180s", pool->name, pool->detail);
        sr_rpc_reply(site, request, SR_E_REFUSED, text);
        return NULL;
    }
    answer.pool[0] = '\0';
    if (site->n_pools == 1) /* the coordinator may take it, unless a pool was asked for by name */
        snprintf(answer.pool, sizeof(answer.pool), "%s", site->pools[0].name);
    snprintf(text, sizeof(text), "there is no pool %s", request->pool);
    sr_rpc_reply(site, &answer, SR_E_NOT_FOUND, text);
    return NULL;
}

/* ---- requests that wait until a volume of that name is gone ------------------------------------------------- */

struct sr_postponed {
    struct sr_postponed *next;
    struct sr_volume_rpc request;
};

/* It is being removed, or created here and second to the other site's (A3). */
static bool ends_soon(const struct sr_volume *volume)
{
    const struct sr_config *config = volume->site->config;
    bool second = volume->meta.state == SR_VOLUME_PENDING && strcmp(config->site, config->peer_name) > 0;

    return sr_removal_running(volume) || (second && volume->operation && volume->operation->kind == SR_OP_CREATE);
}

static void postpone(struct sr_site *site, const struct sr_volume_rpc *request)
{
    struct sr_postponed *postponed = calloc(1, sizeof(*postponed));

    if (!postponed) {
        sr_rpc_reply(site, request, SR_E_NO_MEMORY, "out of memory");
        return;
    }
    postponed->request = *request;
    postponed->next = site->postponed;
    site->postponed = postponed;
}

void sr_accept_postponed(struct sr_site *site, const char *name)
{
    struct sr_postponed **at = &site->postponed, *due = NULL;

    while (*at) {
        struct sr_postponed *one = *at;
        if (strcmp(one->request.name, name) != 0) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        one->next = due;
        due = one;
    }
    while (due) {
        struct sr_postponed *one = due;
        due = one->next;
        if (site->stopping)
            sr_rpc_reply(site, &one->request, SR_E_SHUTDOWN, "the daemon is stopping");
        else
            sr_accept_prepare(site, &one->request);
        free(one);
    }
}

/* Its creator has given it up. */
static void forget_postponed(struct sr_site *site, const struct sr_uuid *uuid)
{
    struct sr_postponed **at = &site->postponed;

    while (*at) {
        struct sr_postponed *one = *at;
        if (!sr_uuid_equal(&one->request.uuid, uuid)) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        sr_rpc_reply(site, &one->request, SR_E_CANCELLED, NULL);
        free(one);
    }
}

void sr_accept_link_down(struct sr_site *site)
{
    while (site->postponed) {
        struct sr_postponed *one = site->postponed;
        site->postponed = one->next;
        free(one);
    }
}

/* ---- PREPARE_CREATE, checked --------------------------------------------------------------------------------- */

static bool may_accept(struct sr_site *site, const struct sr_volume_rpc *request)
{
    const struct sr_volume *same = sr_table_volume_named(site, request->name), *other;
    char text[SR_SITE_TEXT_BYTES];

    bool known = sr_table_collection(site, &request->collection) != NULL;
    TAILQ_FOREACH (other, &site->volumes, link)
        known = known || sr_uuid_equal(&other->meta.collection, &request->collection);
    if (known) {
        sr_rpc_reply(site, request, SR_E_EXISTS, "that collection exists already");
    } else if (sr_table_volume(site, &request->uuid)) {
        sr_rpc_reply(site, request, SR_E_EXISTS, "that volume exists already");
    } else if (same && ends_soon(same)) {
        postpone(site, request);
    } else if (same) {
        snprintf(text, sizeof(text), "a volume %s exists there %s", same->meta.name,
                 same->meta.state == SR_VOLUME_LIVE      ? "already, and not here: delete it there first"
                 : same->meta.state == SR_VOLUME_PENDING ? "and is still being created"
                                                         : "and is still being deleted");
        sr_rpc_reply(site, request, same->meta.state == SR_VOLUME_LIVE ? SR_E_EXISTS : SR_E_BUSY, text);
    } else if (sr_table_collection_called(site, request->name)) {
        sr_rpc_reply(site, request, SR_E_EXISTS, "a collection of that name exists there");
    } else if (site->n_volumes >= site->config->max_volumes) {
        sr_rpc_reply(site, request, SR_E_REFUSED, "it has as many volumes as its limits.max_volumes allows");
    } else {
        return true;
    }
    return false;
}

static struct accept *begin(struct sr_volume *volume, const struct sr_volume_rpc *request)
{
    struct accept *accept = calloc(1, sizeof(*accept));

    if (!accept)
        return NULL;
    accept->operation = (struct sr_operation){.kind = SR_OP_ACCEPT, .volume = volume, .give_way = give_way};
    accept->request = *request;
    accept->link = volume->site->link_number;
    volume->operation = &accept->operation;
    return accept;
}

void sr_accept_prepare(struct sr_site *site, const struct sr_volume_rpc *request)
{
    struct sr_meta_volume meta = {.uuid = request->uuid,
                                  .collection = request->collection,
                                  .state = SR_VOLUME_PENDING,
                                  .size_bytes = request->size_bytes,
                                  .write_back = request->write_back,
                                  .created_wall_ms = sr_driver_wall_ms()};
    struct sr_site_pool *pool;

    if (!may_accept(site, request))
        return;
    pool = choose_pool(site, request);
    if (!pool)
        return;
    if (sr_pool_image_present(pool->pool, request->name)) {
        char text[SR_SITE_TEXT_BYTES];
        snprintf(text, sizeof(text), "%.120s/%.64s.img is there already and is not touched: move it away", pool->directory,
                 request->name);
        sr_rpc_reply(site, request, SR_E_EXISTS, text);
        return;
    }
    memcpy(meta.name, request->name, sizeof(meta.name));
    snprintf(meta.pool, sizeof(meta.pool), "%s", pool->name);
    meta.pool_uuid = pool->uuid;
    struct sr_volume *volume = sr_table_add_volume(site, &meta);
    struct accept *accept = volume ? begin(volume, request) : NULL;
    if (!accept) {
        if (volume)
            sr_table_drop_volume(volume);
        sr_rpc_reply(site, request, SR_E_NO_MEMORY, "out of memory");
        return;
    }
    struct sr_meta_change change = {.put_volume = &volume->meta};
    sr_catalog_commit(site, &change, recorded, accept);
}

/* ---- COMMIT_CREATE ------------------------------------------------------------------------------------------ */

static void live(void *arg, uint64_t tag, enum sr_error error)
{
    struct accept *accept = arg;
    struct sr_volume *volume = accept->operation.volume;
    struct sr_site *site = volume->site;

    (void)tag;
    if (error != SR_OK) {
        sr_driver_halt(site, sr_meta_failure(site->meta));
        return;
    }
    volume->meta.state = SR_VOLUME_LIVE;
    sr_operation_bring_up(volume, &accept->record);
    sr_log(SR_LOG_NOTICE, "volume %s: created together with site %s", volume->meta.name, site->config->peer_name);
    bool same_link = site->link_is_up && accept->link == site->link_number;
    reply(accept, SR_OK, NULL);
    end(accept);
    if (!same_link || !volume->collection)
        return;
    volume->peer_has = true;
    sr_driver_link(volume->collection, true); /* A2 */
}

/* What this copy starts with: the same generation (both are all zeroes), or nothing. */
static void first_record(const struct sr_volume_rpc *request, struct sr_record *record)
{
    memset(record, 0, sizeof(*record));
    record->gen = request->generation;
    record->made_by = SR_MADE_CREATED;
    record->gen_wall_ms = sr_driver_wall_ms();
    record->consistent = !sr_uuid_is_none(&request->generation);
    record->role = request->active && record->consistent ? SR_ROLE_ACTIVE : SR_ROLE_ALTERNATE;
}

void sr_accept_commit(struct sr_site *site, const struct sr_volume_rpc *request)
{
    struct sr_volume *volume = sr_table_volume(site, &request->uuid);

    if (!volume || volume->meta.state == SR_VOLUME_DELETING) {
        sr_rpc_reply(site, request, SR_E_NOT_FOUND, "no such volume");
        return;
    }
    if (volume->meta.state ==
        SR_VOLUME_LIVE) { /* told again: the other site's core began anew, so this one's session ends */
        if (volume->collection)
            sr_driver_link(volume->collection, false);
        sr_rpc_reply(site, request, SR_OK, NULL);
        volume->peer_has = true;
        if (volume->collection)
            sr_driver_link(volume->collection, true);
        return;
    }
    struct accept *accept = volume->operation ? NULL : begin(volume, request);
    if (!accept) {
        sr_rpc_reply(site, request, SR_E_BUSY, "another operation on it is under way there");
        return;
    }
    accept->operation.give_way = NULL; /* decided */
    first_record(request, &accept->record);
    struct sr_meta_volume meta = volume->meta;
    struct sr_meta_collection collection = {.uuid = meta.collection, .record = accept->record};
    struct sr_meta_change change = {.put_volume = &meta, .put_collection = &collection};
    meta.state = SR_VOLUME_LIVE;
    meta.creator = volume->meta.creator = false;
    memcpy(collection.name, meta.name, sizeof(collection.name));
    sr_catalog_commit(site, &change, live, accept);
}

/* ---- ABORT_CREATE ------------------------------------------------------------------------------------------- */

struct aborting {
    struct sr_site *site;
    struct sr_volume_rpc request;
    uint64_t link;
};

static void aborted(void *arg, enum sr_error error, const char *text)
{
    struct aborting *aborting = arg;

    if (aborting->site->link_is_up && aborting->link == aborting->site->link_number)
        sr_rpc_reply(aborting->site, &aborting->request, error, text);
    free(aborting);
}

void sr_accept_abort(struct sr_site *site, const struct sr_volume_rpc *request)
{
    struct sr_volume *volume = sr_table_volume(site, &request->uuid);

    forget_postponed(site, &request->uuid);
    if (!volume) {
        sr_rpc_reply(site, request, SR_OK, NULL);
        return;
    }
    if (volume->meta.state != SR_VOLUME_PENDING) {
        sr_rpc_reply(site, request, SR_E_REFUSED, "it is not being created");
        return;
    }
    struct aborting *aborting = calloc(1, sizeof(*aborting));
    if (!aborting) {
        sr_rpc_reply(site, request, SR_E_NO_MEMORY, "out of memory");
        return;
    }
    *aborting = (struct aborting){site, *request, site->link_number};
    sr_removal_start(volume, aborted, aborting);
}
