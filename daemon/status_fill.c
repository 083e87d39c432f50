/* status_fill.c - the state of the site, its pools, collections and volumes, as messages for the control socket.
 *
 * A message is built from a list of small allocations that are freed together when it was sent; strings of the site
 * are pointed to, not copied.  Nothing here changes anything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "site.h"

struct block {
    struct block *next;
    max_align_t bytes[];
};

struct arena {
    struct block *blocks;
    bool failed;
};

static void *take(struct arena *arena, size_t bytes)
{
    struct block *block = calloc(1, sizeof(*block) + bytes + sizeof(max_align_t));

    if (!block) {
        arena->failed = true;
        return NULL;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    return block->bytes;
}

static char *text_of(struct arena *arena, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = take(arena, bytes);

    return copy ? memcpy(copy, text, bytes) : (char *)"";
}

static char *uuid_of(struct arena *arena, const struct sr_uuid *uuid)
{
    char text[SR_UUID_TEXT_BYTES];

    return sr_uuid_is_none(uuid) ? (char *)"" : text_of(arena, sr_uuid_format(uuid, text));
}

static void release(struct arena *arena)
{
    while (arena->blocks) {
        struct block *next = arena->blocks->next;
        free(arena->blocks);
        arena->blocks = next;
    }
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

const char *sr_sync_word(enum sr_sync sync)
{
    return sync == SR_SYNC_IN_SYNC ? "in-sync" : sync == SR_SYNC_PAUSED ? "paused" : "out-of-sync";
}

const char *sr_verdict_word(enum sr_verdict verdict)
{
    return verdict == SR_VERDICT_PROTECTED ? "protected" : verdict == SR_VERDICT_EXPOSED ? "exposed" : "offline";
}

const char *sr_made_by_word(enum sr_made_by made_by)
{
    static const char *const words[] = {"created", "alone", "failover", "forced"};

    return made_by <= SR_MADE_FORCED ? words[made_by] : "unknown";
}

uint64_t sr_status_synced_wall_ms(const struct sr_core_status *status)
{
    return status->sync == SR_SYNC_IN_SYNC ? sr_driver_wall_ms() : status->record.synced_wall_ms;
}

/* A change of members ends sessions and begins others, and nothing is lost or stands still for long: it is not shown. */
void sr_status_shown(const struct sr_collection *collection, struct sr_core_status *status)
{
    sr_driver_status(collection, status);
    bool passing = status->cause == SR_CAUSE_CONNECTING || status->cause == SR_CAUSE_PEER_UNREACHABLE ||
                   status->cause == SR_CAUSE_SHUTDOWN || status->cause == SR_CAUSE_RESYNCING;
    if (!passing || status->dirty_blocks != 0 || status->record.base_kind != SR_BASE_NONE || !status->record.consistent ||
        !collection->site->link_is_up || collection->peer_fault[0] ||
        sr_driver_now_us() >= collection->steady_until_us)
        return;
    status->sync = SR_SYNC_IN_SYNC;
    status->verdict = SR_VERDICT_PROTECTED;
    status->cause = SR_CAUSE_NONE;
    status->detail[0] = '\0';
}

static Syncrep__Control__Role role_word(enum sr_role role)
{
    return role == SR_ROLE_ACTIVE ? SYNCREP__CONTROL__ROLE__ROLE_ACTIVE : SYNCREP__CONTROL__ROLE__ROLE_ALTERNATE;
}

const char *sr_status_next_command(const struct sr_collection *collection, const struct sr_core_status *status,
                                   char *out, size_t out_bytes)
{
    const char *name = collection->name, *site = collection->site->config->site,
               *peer = collection->site->config->peer_name;

    out[0] = '\0';
    if (status->sync == SR_SYNC_IN_SYNC && sr_roles_pending(collection) < 0 &&
        sr_status_warning(collection, status, out, out_bytes)[0])
        snprintf(out, out_bytes, "syncrepctl pool list   (free space at site %s; hosts go on by themselves)", site);
    if (status->sync == SR_SYNC_IN_SYNC)
        return out;
    const struct sr_volume *homeless = NULL;
    for (uint32_t i = 0; i < collection->n_volumes; i++)
        if (!collection->volumes[i]->pool || !collection->volumes[i]->pool->pool)
            homeless = collection->volumes[i];
    if (!collection->core && !collection->suspended && homeless)
        snprintf(out, out_bytes,
                 "systemctl restart syncrepd   (at site %s, when its pool %s is mounted again); if its disk was exchanged: "
                 "syncrepctl pool create %s",
                 site, homeless->meta.pool, homeless->meta.pool);
    else if (status->record.failed && status->peer_known && status->peer.failed)
        snprintf(out, out_bytes, "docs/OPERATIONS.md, \"Both copies have failed\": do not replace one before it is read");
    else if (status->cause == SR_CAUSE_CONFLICT)
        snprintf(out, out_bytes, "syncrepctl resolve %s --keep %s --plan   (shows what keeping either copy costs)", name,
                 status->record.failed ? peer : site);
    else if ((!collection->core && !collection->suspended) || status->record.failed)
        snprintf(out, out_bytes, "syncrepctl replace %s   (at site %s, when its disk is in order again)", name, site);
    else if (status->cause == SR_CAUSE_PAUSED)
        snprintf(out, out_bytes, "syncrepctl resume %s", name);
    else if (collection->peer_fault[0])
        snprintf(out, out_bytes, "syncrepctl status %s   (at site %s)", name, peer);
    else if ((status->cause == SR_CAUSE_PEER_UNREACHABLE && !status->serving) ||
             (status->cause == SR_CAUSE_HANDING_OVER && !status->link_up))
        snprintf(out, out_bytes,
                 "systemctl status syncrepd   (at site %s); if that site is lost: syncrepctl failover %s --plan", peer,
                 name);
    else if (status->cause == SR_CAUSE_PEER_UNREACHABLE)
        snprintf(out, out_bytes, "systemctl status syncrepd   (at site %s: is it running and reachable?)", peer);
    else if (status->cause == SR_CAUSE_ALTERNATE_NO_SPACE)
        snprintf(out, out_bytes,
                 "syncrepctl pool list   (free space where the alternate copy is; it goes on by itself)");
    else if (status->cause == SR_CAUSE_ALTERNATE_IO_ERROR)
        snprintf(out, out_bytes, "syncrepctl replace %s   (at the site of the alternate copy)", name);
    else if (status->cause == SR_CAUSE_WAITING_FOR_FAILOVER)
        snprintf(out, out_bytes, "syncrepctl failover %s --plan   (at the site that is to serve)", name);
    else
        snprintf(out, out_bytes, "syncrepctl wait %s --for in-sync", name);
    return out;
}

/* ---- a full pool ------------------------------------------------------------------------------------------------- */

#define ROOM_BYTES SR_MIB /* beyond what was asked for: file systems need some for themselves */

/* The core knows that a write failed, the file system whether there is room again. */
static bool is_full(const struct sr_volume *volume)
{
    const struct sr_collection *collection = volume->collection;
    uint64_t wanted, free_bytes, total_bytes;

    if (!collection || !collection->core || !collection->serving)
        return false;
    wanted = sr_core_volume_no_space(collection->core, volume->index);
    if (wanted == 0 || volume->meta.imported || !volume->pool || !volume->pool->pool)
        return wanted > 0;
    return sr_pool_space(volume->pool->pool, &free_bytes, &total_bytes) != SR_OK || free_bytes < wanted + ROOM_BYTES;
}

const char *sr_status_warning(const struct sr_collection *collection, const struct sr_core_status *status, char *out,
                              size_t out_bytes)
{
    int pending = sr_roles_pending(collection);

    out[0] = '\0';
    if (pending >= 0)
        snprintf(out, out_bytes,
                 "a failback to site %s waits until both copies are in sync; `syncrepctl switchover %s --to %s` ends it",
                 pending ? collection->site->config->site : collection->site->config->peer_name, collection->name,
                 pending ? collection->site->config->peer_name : collection->site->config->site);
    for (uint32_t i = 0; i < collection->n_volumes && !out[0] && status->serving; i++) {
        const struct sr_volume *volume = collection->volumes[i];
        if (is_full(volume))
            snprintf(out, out_bytes, "%s %s is full here: hosts of volume %s get \"no space left\" for writes that need new space",
                     volume->meta.imported ? "the device" : "pool",
                     volume->meta.imported ? volume->meta.path : volume->meta.pool, volume->meta.name);
    }
    return out;
}

/* ---- pools ------------------------------------------------------------------------------------------------------
 */

static void fill_pool(struct arena *arena, struct sr_site *site, const struct sr_site_pool *pool,
                      Syncrep__Control__Pool *out)
{
    static const Syncrep__Control__PoolState states[] = {
        [SR_POOL_OK] = SYNCREP__CONTROL__POOL_STATE__POOL_OK,
        [SR_POOL_MISSING] = SYNCREP__CONTROL__POOL_STATE__POOL_MISSING,
        [SR_POOL_FOREIGN] = SYNCREP__CONTROL__POOL_STATE__POOL_FOREIGN,
        [SR_POOL_BAD] = SYNCREP__CONTROL__POOL_STATE__POOL_ERROR,
    };
    const struct sr_volume *volume;

    syncrep__control__pool__init(out);
    out->name = (char *)pool->name;
    out->directory = (char *)pool->directory;
    out->state = states[pool->state];
    out->uuid = uuid_of(arena, &pool->uuid);
    out->detail = (char *)pool->detail;
    if (pool->pool)
        sr_pool_space(pool->pool, &out->free_bytes, &out->total_bytes);
    TAILQ_FOREACH (volume, &site->volumes, link)
        out->volumes += volume->pool == pool;
    TAILQ_FOREACH (volume, &site->volumes, link)
        if (volume->pool == pool && !volume->meta.imported && is_full(volume))
            out->detail = (char *)"full: hosts get \"no space left\" for writes that need new space";
}

static size_t fill_pools(struct arena *arena, struct sr_site *site, Syncrep__Control__Pool ***list)
{
    *list = take(arena, site->n_pools * sizeof(**list));
    Syncrep__Control__Pool *pools = take(arena, site->n_pools * sizeof(*pools));

    if (!*list || !pools)
        return 0;
    for (size_t i = 0; i < site->n_pools; i++) {
        fill_pool(arena, site, &site->pools[i], &pools[i]);
        (*list)[i] = &pools[i];
    }
    return site->n_pools;
}

/* ---- volumes ------------------------------------------------------------------------------------------------------
 */

static const char *state_word(const struct sr_volume *volume)
{
    struct sr_core_status status;

    if (volume->meta.state == SR_VOLUME_PENDING)
        return "pending";
    if (volume->meta.state == SR_VOLUME_DELETING)
        return "deleting";
    if (!volume->collection || (!volume->collection->core && !volume->collection->suspended))
        return "failed";
    sr_driver_status(volume->collection, &status);
    bool other = !sr_uuid_is_none(&status.record.failed_volume) &&
                 !sr_uuid_equal(&status.record.failed_volume, &volume->meta.uuid);
    return status.record.failed && !other ? "failed" : "live";
}

static void fill_exports(struct arena *arena, const struct sr_volume *volume, Syncrep__Control__Volume *out)
{
    const struct sr_config *config = volume->site->config;
    char uri[512];

    out->exports = take(arena, config->n_nbd_listen * sizeof(char *));
    for (size_t i = 0; out->exports && i < config->n_nbd_listen; i++) {
        const struct sr_config_address *address = &config->nbd_listen[i];
        const char *tls = config->nbd_tls.ca ? "nbds" : "nbd";
        if (address->path)
            snprintf(uri, sizeof(uri), "nbd+unix:///%s?socket=%s", volume->meta.name, address->path);
        else if (strchr(address->host, ':'))
            snprintf(uri, sizeof(uri), "%s://[%s]:%u/%s", tls, address->host, address->port, volume->meta.name);
        else
            snprintf(uri, sizeof(uri), "%s://%s:%u/%s", tls, address->host, address->port, volume->meta.name);
        out->exports[out->n_exports++] = text_of(arena, uri);
    }
}

static char *path_of(struct arena *arena, const struct sr_volume *volume)
{
    char path[SR_POOL_PATH_BYTES];

    if (volume->meta.path[0])
        return (char *)volume->meta.path;
    if (volume->pool && volume->pool->pool &&
        sr_pool_image_path(volume->pool->pool, volume->meta.name, path) == SR_OK)
        return text_of(arena, path);
    return (char *)"";
}

static void fill_volume(struct arena *arena, const struct sr_volume *volume, Syncrep__Control__Volume *out)
{
    const struct sr_collection *collection = volume->collection;
    struct sr_core_status status;

    syncrep__control__volume__init(out);
    out->name = (char *)volume->meta.name;
    out->uuid = uuid_of(arena, &volume->meta.uuid);
    out->size_bytes = volume->meta.size_bytes;
    out->pool = (char *)volume->meta.pool;
    out->path = path_of(arena, volume);
    out->state = (char *)state_word(volume);
    out->imported = volume->meta.imported;
    out->durability = (char *)(volume->meta.write_back ? "write-back" : "write-through");
    out->created_wall_ms = volume->meta.created_wall_ms;
    if (volume->store)
        out->allocated_bytes = sr_store_allocated_bytes(volume->store);
    if (collection) {
        out->collection = (char *)collection->name;
        out->connections = sr_nbd_export_connections(volume->site->nbd, volume);
    }
    if (collection && collection->core) {
        sr_driver_status(collection, &status);
        out->requests = (uint32_t)status.requests;
        out->dirty_bytes = sr_core_volume_dirty(collection->core, volume->index) * SR_BLOCK_BYTES;
        out->cached_bytes = sr_core_volume_cached(collection->core, volume->index) * SR_BLOCK_BYTES;
    }
    fill_exports(arena, volume, out);
}

/* ---- collections
 * --------------------------------------------------------------------------------------------------- */

static void fill_counters(const struct sr_core_status *status, Syncrep__Control__Counters *out)
{
    syncrep__control__counters__init(out);
    out->writes = status->writes;
    out->written_bytes = status->written_bytes;
    out->reads = status->reads;
    out->read_bytes = status->read_bytes;
    out->sent_payload_bytes = status->sent_payload_bytes;
    out->copied_bytes = status->copied_bytes;
    out->compared_blocks = status->compared_blocks;
    out->equal_blocks = status->equal_blocks;
    out->meta_commits = status->meta_commits;
    out->flushes = status->flushes;
}

static void fill_resync(const struct sr_core_status *status, Syncrep__Control__Resync *out)
{
    syncrep__control__resync__init(out);
    out->running = status->resyncing;
    out->done_blocks = status->resync_done_blocks;
    out->total_blocks = status->resync_total_blocks;
    out->bytes_per_s = status->resync_bytes_per_s;
    out->eta_known = status->resync_eta_s != UINT64_MAX;
    out->eta_s = out->eta_known ? status->resync_eta_s : 0;
}

static void fill_sync(const struct sr_core_status *status, Syncrep__Control__Collection *out)
{
    out->sync = status->sync == SR_SYNC_IN_SYNC  ? SYNCREP__CONTROL__SYNC__SYNC_IN_SYNC
                : status->sync == SR_SYNC_PAUSED ? SYNCREP__CONTROL__SYNC__SYNC_PAUSED
                                                 : SYNCREP__CONTROL__SYNC__SYNC_OUT_OF_SYNC;
    out->verdict = status->verdict == SR_VERDICT_PROTECTED ? SYNCREP__CONTROL__VERDICT__VERDICT_PROTECTED
                   : status->verdict == SR_VERDICT_EXPOSED ? SYNCREP__CONTROL__VERDICT__VERDICT_EXPOSED
                                                           : SYNCREP__CONTROL__VERDICT__VERDICT_OFFLINE;
    out->cause = (char *)sr_cause_name(status->cause);
    out->mode = (char *)status->mode;
    out->since_wall_ms = status->since_wall_ms;
    out->dirty_blocks = status->dirty_blocks;
    out->dirty_bytes = status->dirty_blocks * SR_BLOCK_BYTES;
    out->full_copy = status->full_copy_reason[0] != '\0';
    out->full_copy_reason = (char *)status->full_copy_reason;
    out->serving = status->serving;
    out->paused = status->record.paused;
    out->requests = status->requests;
    out->peer_usable = status->peer_usable;
}

static bool fill_collection(struct arena *arena, struct sr_collection *collection, Syncrep__Control__Collection *out)
{
    struct sr_core_status status;
    char next[SR_SITE_TEXT];
    Syncrep__Control__Resync *resync = take(arena, sizeof(*resync));
    Syncrep__Control__Counters *counters = take(arena, sizeof(*counters));
    Syncrep__Control__Volume *volumes = take(arena, collection->n_volumes * sizeof(*volumes));

    syncrep__control__collection__init(out);
    out->volumes = take(arena, collection->n_volumes * sizeof(*out->volumes));
    if (arena->failed)
        return false;
    sr_status_shown(collection, &status);
    out->name = collection->name;
    out->uuid = uuid_of(arena, &collection->uuid);
    out->role = role_word(status.record.role);
    out->peer_role = status.peer_known ? role_word(status.peer.role) : SYNCREP__CONTROL__ROLE__ROLE_UNKNOWN;
    out->site = collection->site->config->site;
    out->peer_site = collection->site->config->peer_name;
    out->generation = uuid_of(arena, &status.record.gen);
    out->made_by = (char *)sr_made_by_word(status.record.made_by);
    out->generation_wall_ms = status.record.gen_wall_ms;
    out->synced_wall_ms = sr_status_synced_wall_ms(&status);
    out->handing_over = status.giving || status.taking;
    out->switchover_pause_us = status.handover_took_us;
    fill_sync(&status, out);
    out->detail = text_of(arena, collection->peer_fault[0] ? collection->peer_fault : status.detail);
    out->warning = text_of(arena, sr_status_warning(collection, &status, next, sizeof(next)));
    out->next_command = text_of(arena, sr_status_next_command(collection, &status, next, sizeof(next)));
    fill_resync(&status, resync);
    fill_counters(&status, counters);
    out->resync = resync;
    out->counters = counters;
    for (uint32_t i = 0; i < collection->n_volumes; i++) {
        fill_volume(arena, collection->volumes[i], &volumes[i]);
        out->volumes[out->n_volumes++] = &volumes[i];
    }
    return !arena->failed;
}

/* only: this collection, or NULL for all. */
static size_t fill_collections(struct arena *arena, struct sr_site *site, struct sr_collection *only,
                               Syncrep__Control__Collection ***list)
{
    uint32_t n = only ? 1 : site->n_collections;
    Syncrep__Control__Collection *all = take(arena, n * sizeof(*all));
    struct sr_collection *collection;
    size_t at = 0;

    *list = take(arena, n * sizeof(**list));
    if (arena->failed)
        return 0;
    TAILQ_FOREACH (collection, &site->collections, link) {
        if (only && collection != only)
            continue;
        if (!fill_collection(arena, collection, &all[at]))
            return 0;
        (*list)[at] = &all[at];
        at++;
    }
    return at;
}

/* ---- answers ----------------------------------------------------------------------------------------------------
 */

static void fill_link(struct arena *arena, struct sr_site *site, Syncrep__Control__Link *out)
{
    struct sr_link_view view;

    sr_link_events_view(site, &view);
    syncrep__control__link__init(out);
    out->state = view.state;
    out->since_wall_ms = site->link_since_wall_ms ? site->link_since_wall_ms : site->started_wall_ms;
    out->last_error = text_of(arena, view.last_error);
    out->rtt_us = view.rtt_us;
    out->tls = view.tls;
    out->peer_address = text_of(arena, view.peer_address);
    out->reconnects = view.reconnects;
}

static void reply_status(struct arena *arena, struct sr_site *site, struct sr_control_call *call,
                         struct sr_collection *only)
{
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    Syncrep__Control__Status status = SYNCREP__CONTROL__STATUS__INIT;
    Syncrep__Control__Link link;

    status.site = site->config->site;
    status.site_uuid = uuid_of(arena, &sr_meta_site(site->meta)->uuid);
    status.peer = site->config->peer_name;
    fill_link(arena, site, &link);
    status.link = &link;
    status.n_pools = fill_pools(arena, site, &status.pools);
    status.engine = (char *)sr_store_engine_name(site->engine);
    status.daemon_version = (char *)SYNCREP_VERSION;
    status.buffer_used_bytes =
        site->host_budget.used_bytes + site->peer_budget.used_bytes + site->resync_budget.used_bytes;
    status.buffer_limit_bytes = site->config->buffer_memory_bytes;
    status.log_lines_dropped = sr_log_dropped();
    status.started_wall_ms = site->started_wall_ms;
    status.pid = (uint64_t)getpid();
    status.n_collections = fill_collections(arena, site, only, &status.collections);
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_STATUS;
    response.status = &status;
    if (!arena->failed)
        sr_control_reply(call, &response, true);
}

static void reply_pools(struct arena *arena, struct sr_site *site, struct sr_control_call *call)
{
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    Syncrep__Control__PoolList pools = SYNCREP__CONTROL__POOL_LIST__INIT;

    pools.site = site->config->site;
    pools.n_pools = fill_pools(arena, site, &pools.pools);
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_POOLS;
    response.pools = &pools;
    if (!arena->failed)
        sr_control_reply(call, &response, true);
}

static void reply_volumes(struct arena *arena, struct sr_site *site, struct sr_control_call *call,
                          const struct sr_volume *only)
{
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    Syncrep__Control__VolumeList list = SYNCREP__CONTROL__VOLUME_LIST__INIT;
    Syncrep__Control__Volume *all = take(arena, site->n_volumes * sizeof(*all));
    const struct sr_volume *volume;

    list.site = site->config->site;
    list.volumes = take(arena, site->n_volumes * sizeof(*list.volumes));
    if (arena->failed)
        return;
    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (only && volume != only)
            continue;
        fill_volume(arena, volume, &all[list.n_volumes]);
        list.volumes[list.n_volumes] = &all[list.n_volumes];
        list.n_volumes++;
    }
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_VOLUMES;
    response.volumes = &list;
    if (!arena->failed)
        sr_control_reply(call, &response, true);
}

static void reply_collections(struct arena *arena, struct sr_site *site, struct sr_control_call *call,
                              struct sr_collection *only)
{
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    Syncrep__Control__CollectionList list = SYNCREP__CONTROL__COLLECTION_LIST__INIT;

    list.site = site->config->site;
    list.n_collections = fill_collections(arena, site, only, &list.collections);
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_COLLECTIONS;
    response.collections = &list;
    if (!arena->failed)
        sr_control_reply(call, &response, true);
}

static const char *name_of(const Syncrep__Control__Request *req)
{
    switch (req->op_case) {
    case SYNCREP__CONTROL__REQUEST__OP_STATUS:
        return req->status->name;
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW:
        return req->volume_show->name;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_SHOW:
        return req->collection_show->name;
    default:
        return "";
    }
}

void sr_status_request(struct sr_site *site, struct sr_control_call *call, const Syncrep__Control__Request *req)
{
    struct arena arena = {0};
    const char *name = name_of(req);
    bool of_volume = req->op_case == SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW;
    bool required = of_volume || req->op_case == SYNCREP__CONTROL__REQUEST__OP_COLLECTION_SHOW || name[0];
    struct sr_volume *volume = sr_table_volume_named(site, name);
    struct sr_collection *collection = sr_table_collection_named(site, name);

    if (required && !(of_volume ? (void *)volume : (void *)collection)) {
        sr_control_reply_error(call, SR_E_NOT_FOUND, name, "syncrepctl status",
                               "there is no volume or collection %.64s here", name);
        return;
    }
    switch (req->op_case) {
    case SYNCREP__CONTROL__REQUEST__OP_STATUS:
        reply_status(&arena, site, call, collection);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_POOL_LIST:
        reply_pools(&arena, site, call);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_LIST:
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW:
        reply_volumes(&arena, site, call, of_volume ? volume : NULL);
        break;
    default:
        reply_collections(&arena, site, call, collection);
    }
    if (arena.failed)
        sr_control_reply_error(call, SR_E_NO_MEMORY, NULL, NULL, "out of memory for the answer");
    release(&arena);
}
