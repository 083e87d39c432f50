/* removal.c - the end of a volume at this site, whatever state it is in.
 *
 *   LIVE     --tombstone durable-->  DELETING
 *   DELETING/PENDING:  core ended -> copy closed -> image renamed and unlinked (imported: only released)
 *   PENDING:           record dropped
 *   DELETING:          record dropped once the other site has it no more, or is deleting it too; else the tombstone
 * waits
 *
 * Invariants
 *   R1  Before anything of a LIVE volume is destroyed its tombstone is durable, here and at the site that asked for
 * it. R2  A tombstone is dropped only when no site can take the volume for LIVE again. R3  Data that was imported is
 * never deleted, only released.
 *
 * A crash at any line is harmless: the record stays until everything else is gone, and the next start begins again
 * from it; an image that is gone already counts as deleted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/assert.h"
#include "members.h"
#include "operation.h"

/* Somebody else who asked for it while it was under way. */
struct joined {
    SLIST_ENTRY(joined) link;
    sr_removed_fn fn;
    void *arg;
};
SLIST_HEAD(joined_list, joined);

struct removal {
    struct sr_operation operation; /* first */
    struct joined_list joined;
    bool tombstoned;               /* or never LIVE */
    bool clean;                    /* copy and image are gone */
    bool dropping;
    bool wait_peer;
    uint32_t refusals; /* by the other site, where something else was just being done to it */
    bool has_waiting; /* the peer asked too, before our tombstone was durable */
    struct sr_volume_rpc waiting;
    sr_removed_fn fn;
    void *arg;
};

#define RETRY_MS     200u
#define REFUSALS_MAX 50u /* then who asked is told that it takes longer */

/* Tells all who asked. */
static void tell(sr_removed_fn fn, void *arg, struct joined_list *list, enum sr_error error, const char *text)
{
    struct joined *joined;

    if (fn)
        fn(arg, error, text);
    while ((joined = SLIST_FIRST(list))) {
        SLIST_REMOVE_HEAD(list, link);
        joined->fn(joined->arg, error, text);
        free(joined);
    }
}

static void finish(struct removal *removal, enum sr_error error, const char *text)
{
    sr_removed_fn fn = removal->fn;
    void *arg = removal->arg;
    struct joined_list list = removal->joined;
    struct sr_volume *volume = removal->operation.volume;
    struct sr_site *site = volume->site;
    char name[SR_NAME_BYTES];

    memcpy(name, volume->meta.name, sizeof(name)); /* fn may be the end of it */
    volume->operation = NULL;
    free(removal);
    tell(fn, arg, &list, error, text);
    sr_accept_postponed(site, name);
}

static void dropped(void *arg, uint64_t tag, enum sr_error error)
{
    struct removal *removal = arg;
    struct sr_volume *volume = removal->operation.volume;
    struct sr_site *site = volume->site;
    char name[SR_NAME_BYTES];

    (void)tag;
    if (error != SR_OK && error != SR_E_NOT_FOUND) {
        sr_driver_halt(site, sr_meta_failure(site->meta));
        return;
    }
    const char *what = volume->meta.state == SR_VOLUME_PENDING ? "its creation was undone" : "deleted";
    sr_log(SR_LOG_NOTICE, "volume %s: %s", volume->meta.name, what);
    sr_control_emit(site->control, SR_LOG_NOTICE, "volume", volume->meta.name, sr_driver_wall_ms(), "%s", what);
    sr_removed_fn fn = removal->fn;
    void *fn_arg = removal->arg;
    struct joined_list list = removal->joined;
    memcpy(name, volume->meta.name, sizeof(name));
    volume->operation = NULL;
    free(removal);
    sr_table_drop_volume(volume);
    sr_driver_tune(site); /* the others share its hot regions */
    sr_control_state_changed(site->control);
    tell(fn, fn_arg, &list, SR_OK, "");
    sr_accept_postponed(site, name);
}

static void advance(struct removal *removal)
{
    struct sr_volume *volume = removal->operation.volume;

    if (!removal->clean || removal->dropping)
        return;
    if (volume->meta.state == SR_VOLUME_PENDING || volume->peer_gone) { /* R2 */
        struct sr_meta_change change = {.drop_volume = &volume->meta.uuid,
                                        .drop_collection = &volume->meta.collection};
        removal->dropping = true;
        sr_catalog_commit(volume->site, &change, dropped, removal);
    } else if (!removal->wait_peer) {
        finish(removal, SR_OK, "the other site deletes its copy when it is back");
    }
}

/* ---- copy and image ------------------------------------------------------------------------------------ */

static void image_deleted(void *arg, enum sr_error error, const char *text)
{
    struct removal *removal = arg;
    struct sr_volume *volume = removal->operation.volume;

    if (error == SR_E_IDENTITY)
        sr_log(SR_LOG_WARNING, "volume %s: %s; it is left as it is", volume->meta.name, text);
    else if (error != SR_OK && error != SR_E_NOT_FOUND) {
        sr_log(SR_LOG_ERROR, "volume %s: the image cannot be deleted: %s; tried again at the next start",
               volume->meta.name, text);
        finish(removal, error, text);
        return;
    }
    removal->clean = true;
    advance(removal);
}

static void delete_image(struct removal *removal)
{
    struct sr_volume *volume = removal->operation.volume;
    struct sr_pool_job *job;

    if (volume->store)
        sr_store_close(volume->store);
    volume->store = NULL;
    if (volume->meta.imported) {
        sr_pool_import_release(volume->meta.path, &volume->meta.uuid); /* R3 */
        removal->clean = true;
        advance(removal);
        return;
    }
    if (!volume->pool || !volume->pool->pool) {
        finish(removal, SR_E_REFUSED, "its pool is not available here; the image is deleted when it is back");
        return;
    }
    enum sr_error error = sr_pool_delete_start(volume->pool->pool, volume->site->loop, volume->meta.name,
                                               &volume->meta.uuid, image_deleted, removal, &job);
    if (error != SR_OK)
        finish(removal, error, sr_error_text(error));
}

static void core_ended(struct sr_collection *collection, void *arg)
{
    sr_table_drop_collection(collection);
    delete_image(arg);
}

static void tombstoned(void *arg, uint64_t tag, enum sr_error error)
{
    struct removal *removal = arg;
    struct sr_volume *volume = removal->operation.volume;
    struct sr_site *site = volume->site;

    (void)tag;
    if (error != SR_OK) {
        sr_driver_halt(site, sr_meta_failure(site->meta));
        return;
    }
    removal->tombstoned = true;
    if (removal->has_waiting)
        sr_rpc_reply(site, &removal->waiting, SR_OK, NULL);
    removal->has_waiting = false;
    if (removal->wait_peer)
        sr_removal_tell_peer(volume);
    if (volume->collection)
        sr_driver_end(volume->collection, core_ended, removal);
    else
        delete_image(removal);
}

/* ---- beginning ------------------------------------------------------------------------------------------- */

void sr_removal_start(struct sr_volume *volume, sr_removed_fn fn, void *arg)
{
    struct sr_site *site = volume->site;

    if (volume->operation) {
        if (volume->operation->give_way)
            volume->operation->give_way(volume->operation, fn, arg);
        else if (fn)
            fn(arg, SR_E_BUSY, "another operation on it is under way");
        return;
    }
    if (sr_members_busy(volume) || (volume->collection && volume->collection->n_volumes > 1)) {
        if (fn)
            fn(arg, SR_E_BUSY, "it is a member of a collection here, or is just becoming one");
        return;
    }
    struct removal *removal = calloc(1, sizeof(*removal));
    if (!removal) {
        if (fn)
            fn(arg, SR_E_NO_MEMORY, "out of memory");
        return;
    }
    removal->operation = (struct sr_operation){.kind = SR_OP_REMOVE, .volume = volume};
    removal->fn = fn;
    removal->arg = arg;
    removal->wait_peer = site->exchanged && !volume->peer_gone;
    volume->operation = &removal->operation;
    volume->closing = true;
    if (volume->meta.state == SR_VOLUME_LIVE) {
        volume->meta.state = SR_VOLUME_DELETING;
        struct sr_meta_change change = {.put_volume = &volume->meta};
        sr_catalog_commit(site, &change, tombstoned, removal); /* R1 */
        return;
    }
    removal->tombstoned = true;
    removal->wait_peer = removal->wait_peer && volume->meta.state == SR_VOLUME_DELETING;
    if (removal->wait_peer)
        sr_removal_tell_peer(volume);
    delete_image(removal);
}

bool sr_removal_running(const struct sr_volume *volume)
{
    return volume->operation && volume->operation->kind == SR_OP_REMOVE;
}

bool sr_removal_join(struct sr_volume *volume, sr_removed_fn fn, void *arg)
{
    struct joined *joined = sr_removal_running(volume) ? calloc(1, sizeof(*joined)) : NULL;

    if (!joined)
        return false;
    joined->fn = fn;
    joined->arg = arg;
    SLIST_INSERT_HEAD(&((struct removal *)volume->operation)->joined, joined, link);
    return true;
}

void sr_removal_peer_gone(struct sr_volume *volume)
{
    volume->peer_gone = true;
    if (sr_removal_running(volume))
        advance((struct removal *)volume->operation);
    else
        sr_removal_start(volume, NULL, NULL);
}

void sr_removal_link_down(struct sr_site *site)
{
    struct sr_volume *volume, *next;

    for (volume = TAILQ_FIRST(&site->volumes); volume; volume = next) {
        next = TAILQ_NEXT(volume, link);
        if (!sr_removal_running(volume))
            continue;
        struct removal *removal = (struct removal *)volume->operation;
        removal->wait_peer = removal->has_waiting = false;
        advance(removal);
    }
}

/* ---- the other site ------------------------------------------------------------------------------------- */

/* It was busy with something else there (a replace, a change of members): what it refused is asked again, until the link
 * goes down; then the exchange of catalogues comes back to it. */
static void on_retry(uv_timer_t *timer)
{
    struct sr_site *site = timer->data;
    struct sr_volume *volume;

    TAILQ_FOREACH (volume, &site->volumes, link) {
        bool again = volume->busy_there && site->exchanged && volume->meta.state == SR_VOLUME_DELETING;
        volume->busy_there = false;
        if (again)
            sr_removal_tell_peer(volume);
    }
}

static void retry_later(struct sr_volume *volume)
{
    struct sr_site *site = volume->site;

    volume->busy_there = true;
    if (site->stopping)
        return;
    if (!site->retry_timer_open)
        uv_timer_init(site->loop, &site->retry_timer);
    site->retry_timer_open = true;
    site->retry_timer.data = site;
    if (!uv_is_active((uv_handle_t *)&site->retry_timer))
        uv_timer_start(&site->retry_timer, on_retry, RETRY_MS, 0);
}

struct told {
    struct sr_site *site;
    struct sr_uuid uuid;
};

static void peer_deleted(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct told *told = arg;
    struct sr_site *site = told->site;
    struct sr_volume *volume = sr_table_volume(site, &told->uuid);

    free(told);
    if (!volume || volume->meta.state != SR_VOLUME_DELETING)
        return;
    if (error == SR_OK || error == SR_E_NOT_FOUND) {
        sr_removal_peer_gone(volume);
        return;
    }
    if (reply && error == SR_E_BUSY)
        retry_later(volume);
    if (reply)
        sr_log_limited(SR_LOG_WARNING, volume->meta.name, "volume %s: %s has not deleted its copy: %s", volume->meta.name,
                       site->config->peer_name, reply->text[0] ? reply->text : sr_error_text(error));
    if (!sr_removal_running(volume))
        return;
    struct removal *removal = (struct removal *)volume->operation;
    if (reply && error == SR_E_BUSY && ++removal->refusals < REFUSALS_MAX)
        return;
    removal->wait_peer = false;
    advance(removal);
}

void sr_removal_tell_peer(struct sr_volume *volume)
{
    struct told *told = calloc(1, sizeof(*told));
    struct sr_volume_rpc rpc;

    if (!told)
        return; /* the next exchange of catalogues comes back to it */
    told->site = volume->site;
    told->uuid = volume->meta.uuid;
    sr_operation_rpc(volume, SR_VOLUME_DELETE, &rpc);
    rpc.active = volume->peer_agreed;
    sr_rpc_call(volume->site, &rpc, peer_deleted, told);
}

struct answer {
    struct sr_site *site;
    struct sr_volume_rpc request;
    uint64_t link;
};

static void removed_for_peer(void *arg, enum sr_error error, const char *text)
{
    struct answer *answer = arg;

    if (answer->site->link_is_up && answer->link == answer->site->link_number)
        sr_rpc_reply(answer->site, &answer->request, error, text);
    free(answer);
}

static void check_delete(struct sr_site *site, const struct sr_volume_rpc *request, const struct sr_volume *volume)
{
    char text[SR_SITE_TEXT_BYTES];
    uint32_t hosts = sr_nbd_export_connections(site->nbd, volume);

    if (hosts > 0) {
        snprintf(text, sizeof(text), "%u host%s at site %s use%s it: disconnect first", hosts, hosts == 1 ? "" : "s",
                 site->config->site, hosts == 1 ? "s" : "");
        sr_rpc_reply(site, request, SR_E_REFUSED, text);
    } else if ((volume->operation && volume->operation->kind != SR_OP_REMOVE && volume->operation->kind != SR_OP_DELETE) ||
               sr_members_busy(volume)) {
        sr_rpc_reply(site, request, SR_E_BUSY, "another operation on it is under way there");
    } else if (volume->store && (volume->meta.imported || sr_store_allocated_bytes(volume->store) > 0)) {
        snprintf(text, sizeof(text), "its copy at site %s holds data", site->config->site);
        sr_rpc_reply(site, request, SR_E_NEEDS_FORCE, text);
    } else {
        sr_rpc_reply(site, request, SR_OK, NULL);
    }
}

/* Hosts use it here, or have since the other site was last heard of. */
static bool gone_on(const struct sr_volume *volume)
{
    struct sr_core_status status;

    if (!volume->collection || !volume->collection->core || volume->meta.state != SR_VOLUME_LIVE)
        return false;
    sr_driver_status(volume->collection, &status);
    return status.record.role == SR_ROLE_ACTIVE &&
           (status.record.base_kind != SR_BASE_NONE || sr_nbd_export_connections(volume->site->nbd, volume) > 0);
}

static void followed(void *arg, enum sr_error error, const char *text)
{
    struct answer *answer = arg;
    struct sr_volume *volume = sr_table_volume(answer->site, &answer->request.uuid);

    if (error != SR_OK || !volume) {
        removed_for_peer(answer, error != SR_OK ? error : SR_E_NOT_FOUND, text);
        return;
    }
    struct sr_site *site = answer->site;
    sr_removal_start(volume, removed_for_peer, answer);
    sr_link_events_fault(site, "members of a collection changed: the sites are to compare their lists again");
}

/* CHECK_DELETE and DELETE. */
void sr_removal_request(struct sr_site *site, const struct sr_volume_rpc *request)
{
    struct sr_volume *volume = sr_table_volume(site, &request->uuid);

    if (!volume) {
        sr_rpc_reply(site, request, SR_E_NOT_FOUND, "no such volume");
        return;
    }
    if (request->verb == SR_VOLUME_CHECK_DELETE) {
        check_delete(site, request, volume);
        return;
    }
    if (!request->active && gone_on(volume)) { /* decided there without a word of this site */
        sr_log(SR_LOG_ERROR, "volume %s: site %s has deleted it, but it is served here and has gone on: it stays",
               volume->meta.name, site->config->peer_name);
        sr_rpc_reply(site, request, SR_E_REFUSED, "it is served here, and has gone on without that site");
        return;
    }
    volume->peer_gone = true; /* its tombstone there is durable */
    if (sr_removal_running(volume)) {
        struct removal *removal = (struct removal *)volume->operation;
        if (removal->tombstoned) {
            sr_rpc_reply(site, request, SR_OK, NULL);
        } else {
            removal->waiting = *request;
            removal->has_waiting = true;
        }
        advance(removal);
        return;
    }
    struct answer *answer = calloc(1, sizeof(*answer));
    if (!answer) {
        sr_rpc_reply(site, request, SR_E_NO_MEMORY, "out of memory");
        return;
    }
    *answer = (struct answer){site, *request, site->link_number};
    if (volume->collection && volume->collection->n_volumes > 1 && !sr_uuid_is_none(&volume->meta.pending_collection)) {
        sr_members_follow(volume, followed, answer); /* it was taken out of its collection there, then deleted */
        return;
    }
    sr_log(SR_LOG_NOTICE, "volume %s: deleted at site %s, and so here", volume->meta.name, site->config->peer_name);
    sr_removal_start(volume, removed_for_peer, answer);
}
