/* startup.c - from a checked configuration to a site that serves.
 *
 *   metadata opened and locked -> catalogue -> pools -> copies opened, locked, made durable; cores begun -> hosts and
 *   administrators -> peer -> what a crash left unfinished
 *
 * A pool or copy that cannot be used takes only its own volumes down: they are shown offline with the cause.  A site
 * greets its peer only when every copy that it can open is durable, and no predecessor's write can still land in one.
 * A crash at any line is harmless: nothing is written here but what metadata and pools guard themselves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "site.h"

#define RESYNC_SHARE 8 /* of the buffer memory: one part in so many */

static enum sr_error load_volume(void *arg, const struct sr_meta_volume *meta)
{
    return sr_table_add_volume(arg, meta) ? SR_OK : SR_E_NO_MEMORY;
}

static enum sr_error load_collection(void *arg, const struct sr_meta_collection *meta)
{
    struct sr_site *site = arg;
    struct sr_collection *collection = NULL;
    struct sr_volume *volume;

    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (volume->meta.state != SR_VOLUME_LIVE || !sr_uuid_equal(&volume->meta.collection, &meta->uuid))
            continue;
        if (!collection)
            collection = sr_table_add_collection(site, &meta->uuid, meta->name);
        if (!collection || !sr_table_add_member(collection, volume))
            return SR_E_NO_MEMORY;
    }
    if (collection) /* else of a volume that is being deleted */
        collection->loaded = meta->record;
    return SR_OK;
}

static enum sr_error load_catalog(struct sr_site *site, char *text, size_t text_bytes)
{
    const struct sr_volume *volume;
    enum sr_error error = sr_meta_each_volume(site->meta, load_volume, site, text, text_bytes);

    if (error == SR_OK)
        error = sr_meta_each_collection(site->meta, load_collection, site, text, text_bytes);
    if (error != SR_OK)
        return error;
    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (volume->meta.state == SR_VOLUME_LIVE && !volume->collection) {
            snprintf(text, text_bytes, "%s: volume %s has no record of its collection", site->config->state,
                     volume->meta.name);
            return SR_E_CORRUPT;
        }
    }
    return SR_OK;
}

/* ---- pools ------------------------------------------------------------------------------------------------------
 */

/* What was here before, as the volumes say, and for an empty pool the state folder (*remembered). */
static enum sr_error pool_before(const struct sr_site *site, struct sr_site_pool *pool, struct sr_uuid *uuid,
                                 bool *remembered)
{
    const struct sr_volume *volume;
    enum sr_error error = sr_pool_memory_find(site, pool->name, uuid, pool->detail, sizeof(pool->detail));

    *remembered = !sr_uuid_is_none(uuid);
    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (strcmp(volume->meta.pool, pool->name) == 0)
            *uuid = volume->meta.pool_uuid;
    }
    return error;
}

static void open_pool(struct sr_site *site, struct sr_site_pool *pool)
{
    struct sr_pool_identity identity = {
        .name = pool->name, .group = sr_meta_site(site->meta)->group, .site = sr_meta_site(site->meta)->uuid};
    bool remembered;
    enum sr_error error = pool_before(site, pool, &identity.expected, &remembered);

    identity.create_allowed = sr_uuid_is_none(&identity.expected);
    pool->uuid = identity.expected;
    if (error == SR_OK)
        error = sr_pool_open(pool->directory, &identity, &pool->pool, pool->detail, sizeof(pool->detail));
    if (error == SR_OK && !remembered) {
        error = sr_pool_memory_add(site, pool->name, sr_pool_uuid(pool->pool), pool->detail, sizeof(pool->detail));
        if (error != SR_OK)
            sr_pool_close(pool->pool);
    }
    if (error == SR_OK) {
        pool->state = SR_POOL_OK;
        pool->uuid = *sr_pool_uuid(pool->pool);
        pool->detail[0] = '\0';
        return;
    }
    pool->pool = NULL;
    char identity_file[SR_POOL_PATH_BYTES];
    snprintf(identity_file, sizeof(identity_file), "%s/.syncrep-pool", pool->directory);
    bool missing = error == SR_E_NOT_FOUND || (error == SR_E_IDENTITY && access(identity_file, F_OK) != 0);
    pool->state = missing ? SR_POOL_MISSING : error == SR_E_IDENTITY ? SR_POOL_FOREIGN : SR_POOL_BAD;
    sr_log(SR_LOG_ERROR, "pool %s cannot be used: %s", pool->name, pool->detail);
}

static void open_pools(struct sr_site *site)
{
    struct sr_volume *volume;

    for (size_t i = 0; i < site->n_pools; i++)
        open_pool(site, &site->pools[i]);
    TAILQ_FOREACH (volume, &site->volumes, link)
        volume->pool = sr_table_pool_named(site, volume->meta.pool);
}

/* ---- copies and cores
 * ---------------------------------------------------------------------------------------------- */

static void start_collections(struct sr_site *site)
{
    struct sr_collection *collection;

    TAILQ_FOREACH (collection, &site->collections, link) {
        enum sr_error error = sr_driver_start(collection, SR_LOCK_WAIT_MS);
        if (error != SR_OK)
            sr_log(SR_LOG_ERROR, "volume %s cannot be used: %s", collection->name, collection->fault);
    }
}

/* What a crash left: creations that were not decided here, and deletions. */
static void go_on(struct sr_site *site)
{
    struct sr_volume *volume, *next;

    for (volume = TAILQ_FIRST(&site->volumes); volume; volume = next) {
        next = TAILQ_NEXT(volume, link);
        bool undecided = volume->meta.state == SR_VOLUME_PENDING && volume->meta.creator;
        if (undecided || volume->meta.state == SR_VOLUME_DELETING)
            sr_removal_start(volume, NULL, NULL);
    }
}

/* Those that read are answered from the share of resyncs at the peer, which has the same configuration as a rule. */
static uint32_t forward_window_bytes(const struct sr_config *config)
{
    uint64_t share = config->buffer_memory_bytes / RESYNC_SHARE;

    return share < SR_FORWARD_WINDOW_BYTES ? (uint32_t)share : SR_FORWARD_WINDOW_BYTES;
}

static void set_tuning(struct sr_site *site)
{
    const struct sr_config *config = site->config;

    site->tuning = (struct sr_core_tuning){.stall_budget_ms = config->stall_budget_ms,
                                           .hot_regions_max = config->hot_regions,
                                           .cool_after_ms = 10000,
                                           .retry_min_ms = config->retry_min_ms,
                                           .retry_max_ms = config->retry_max_ms,
                                           .resync_parallel = config->resync_parallel,
                                           .resync_min_bytes_per_s = config->resync_min_bytes_per_s,
                                           .resync_max_bytes_per_s = config->resync_max_bytes_per_s,
                                           .resync_latency_factor_percent = config->resync_latency_percent,
                                           .forward_window_bytes = forward_window_bytes(config)};
}

/* Apart, so that neither hosts nor a resync can keep the peer's writes from being received: each site's progress may
 * depend on the other's.  The peer's share always holds the largest payload of a frame. */
static void share_memory(struct sr_site *site, uint64_t bytes, uint64_t peer_window)
{
    uint64_t slack = 4 * SR_MIB, peer = (peer_window < bytes / 2 - slack ? peer_window : bytes / 2 - slack) + slack;

    SR_ASSERT(peer >= SR_IO_MAX_BYTES + slack);

    site->peer_budget.limit_bytes = peer;
    site->resync_budget.limit_bytes = bytes / RESYNC_SHARE;
    site->host_budget.limit_bytes = bytes - peer - bytes / RESYNC_SHARE;
}

static void set_up(struct sr_site *site)
{
    const struct sr_config *config = site->config;

    TAILQ_INIT(&site->volumes);
    TAILQ_INIT(&site->collections);
    STAILQ_INIT(&site->admins);
    STAILQ_INIT(&site->answered);
    TAILQ_INIT(&site->rpcs);
    site->started_wall_ms = sr_driver_wall_ms();
    share_memory(site, config->buffer_memory_bytes, config->peer_window_bytes);
    site->n_pools = config->n_pools;
    for (size_t i = 0; i < config->n_pools; i++) {
        site->pools[i].name = config->pools[i].name;
        site->pools[i].directory = config->pools[i].directory;
    }
    set_tuning(site);
}

static enum sr_error open_metadata(struct sr_site *site, int *exit_code, char *text, size_t text_bytes)
{
    enum sr_error error = sr_meta_open(site->loop, site->config->state, site->config->site, &site->config->group,
                                       &site->meta, text, text_bytes);

    *exit_code = error == SR_E_LOCKED     ? SR_EXIT_LOCKED
                 : error == SR_E_IDENTITY ? SR_EXIT_USAGE
                                          : SR_EXIT_META;
    if (error != SR_OK)
        return error;
    if (sr_meta_notice(site->meta)[0])
        sr_log(SR_LOG_WARNING, "%s", sr_meta_notice(site->meta));
    return load_catalog(site, text, text_bytes);
}

static enum sr_error open_engine(struct sr_site *site, char *text, size_t text_bytes)
{
    static const enum sr_store_engine_kind kinds[] = {[SR_CONFIG_ENGINE_AUTO] = SR_ENGINE_AUTO,
                                                      [SR_CONFIG_ENGINE_IO_URING] = SR_ENGINE_URING,
                                                      [SR_CONFIG_ENGINE_THREADS] = SR_ENGINE_THREADS};
    char why[SR_SITE_TEXT] = "";
    enum sr_error error =
        sr_store_engine_new(site->loop, kinds[site->config->engine], &site->engine, why, sizeof(why));

    if (error != SR_OK)
        snprintf(text, text_bytes, "store.engine: %s", why[0] ? why : sr_error_text(error));
    else
        sr_log(SR_LOG_INFO, "store: %s", why[0] ? why : sr_store_engine_name(site->engine));
    return error;
}

enum sr_error sr_startup(struct sr_site *site, int *exit_code, char *text, size_t text_bytes)
{
    set_up(site);
    enum sr_error error = open_metadata(site, exit_code, text, text_bytes);
    if (error != SR_OK)
        return error;
    *exit_code = SR_EXIT_RUNTIME;
    error = open_engine(site, text, text_bytes);
    if (error != SR_OK)
        return error;
    open_pools(site);
    start_collections(site);
    error = sr_hosts_start(site, text, text_bytes);
    if (error == SR_OK)
        error = sr_commands_start(site, text, text_bytes);
    if (error == SR_OK)
        error = sr_link_events_start(site, text, text_bytes);
    if (error != SR_OK)
        return error;
    sr_driver_watch_all(site);
    go_on(site);
    sr_control_emit(site->control, SR_LOG_NOTICE, "daemon", "", site->started_wall_ms, "started");
    return SR_OK;
}
