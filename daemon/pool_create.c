/* pool_create.c - `pool create`: the disk of a configured pool was exchanged, and the empty folder becomes the pool anew.
 *
 *   refused (in use, not empty, any identity, needs --force), or:
 *   new identity written under a temporary name -> its UUID durable in STATE/pools and in the records of the pool's volumes
 *   -> renamed -> pool opened -> what waited for it goes on: deletions, copies that lie elsewhere (imported)
 *
 * Copies that were in the old pool are gone: they stay offline here, with the cause, until each is replaced.
 *
 * Invariants
 *   P1  The folder gets its identity only when everything here expects that identity.
 *   P2  Nothing is written to a folder that carries an identity, whosever it is, or any file.
 *   P3  No operation on a volume of the pool is under way: its record has one writer.
 *
 * A crash before the rename leaves a folder that still counts as empty: the command is given once more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"

struct renewal {
    struct sr_site *site;
    struct sr_site_pool *pool;
    struct sr_control_call *call;
    uint32_t left; /* commits on their way, and one for whoever starts them */
};

static struct sr_pool_identity identity_of(const struct sr_site *site, const struct sr_site_pool *pool)
{
    const struct sr_meta_site *self = sr_meta_site(site->meta);

    return (struct sr_pool_identity){
        .name = pool->name, .group = self->group, .site = self->uuid, .expected = pool->uuid};
}

/* ---- the pool is there ---------------------------------------------------------------------------------------- */

static void go_on(struct sr_site *site, const struct sr_site_pool *pool)
{
    struct sr_volume *volume, *next;
    struct sr_collection *collection;

    TAILQ_FOREACH (collection, &site->collections, link) {
        bool here = false, busy = false;
        for (uint32_t i = 0; i < collection->n_volumes; i++) {
            here = here || collection->volumes[i]->pool == pool;
            busy = busy || collection->volumes[i]->operation || sr_members_busy(collection->volumes[i]);
        }
        if (collection->core || !here || busy)
            continue;
        if (sr_driver_start(collection, 0) != SR_OK) /* its fault now says that the image is gone */
            sr_log(SR_LOG_WARNING, "%s cannot be used: %s", collection->name, collection->fault);
        else if (site->exchanged)
            sr_operation_commit_at_peer(collection->volumes[0], NULL, NULL);
        sr_commands_watch(collection);
    }
    for (volume = TAILQ_FIRST(&site->volumes); volume; volume = next) {
        next = TAILQ_NEXT(volume, link);
        if (volume->pool == pool && volume->meta.state == SR_VOLUME_DELETING && !volume->operation)
            sr_removal_start(volume, NULL, NULL);
    }
}

static const struct sr_volume *first_lost(const struct sr_site *site, const struct sr_site_pool *pool, uint32_t *n)
{
    const struct sr_volume *volume, *first = NULL;

    *n = 0;
    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (volume->pool != pool || volume->meta.imported || volume->meta.state != SR_VOLUME_LIVE)
            continue;
        first = first ? first : volume;
        (*n)++;
    }
    return first;
}

static void finish(struct renewal *renewal)
{
    struct sr_site *site = renewal->site;
    struct sr_site_pool *pool = renewal->pool;
    struct sr_pool_identity identity = identity_of(site, pool);
    char uuid[SR_UUID_TEXT_BYTES], hint[SR_NAME_BYTES + 32] = "";
    uint32_t lost;
    const struct sr_volume *first = first_lost(site, pool, &lost);
    enum sr_error error = sr_pool_renew(pool->directory, &identity, &pool->pool, pool->detail, sizeof(pool->detail));

    pool->renewing = false;
    if (error != SR_OK) {
        pool->pool = NULL;
        sr_log(SR_LOG_ERROR, "pool %s is not made anew: %s", pool->name, pool->detail);
        sr_control_reply_error(renewal->call, error, pool->name, NULL, "%s", pool->detail);
        free(renewal);
        return;
    }
    pool->state = SR_POOL_OK;
    pool->detail[0] = '\0';
    sr_uuid_format(&pool->uuid, uuid);
    sr_log(SR_LOG_NOTICE, "pool %s: %s is made anew by an administrator (%s)", pool->name, pool->directory, uuid);
    sr_control_emit(site->control, SR_LOG_NOTICE, "pool", pool->name, sr_driver_wall_ms(), "made anew");
    go_on(site, pool);
    if (first)
        snprintf(hint, sizeof(hint), "syncrepctl replace %s",
                 first->collection ? first->collection->name : first->meta.name);
    if (lost > 0)
        sr_control_reply_done(renewal->call, pool->name, hint,
                              "pool %s is made anew in %s; %u volume%s had %s here: replace each", pool->name,
                              pool->directory, lost, lost == 1 ? "" : "s", lost == 1 ? "its copy" : "their copies");
    else
        sr_control_reply_done(renewal->call, pool->name, NULL, "pool %s is made in %s", pool->name, pool->directory);
    sr_control_state_changed(site->control);
    free(renewal);
}

static void recorded(void *arg, uint64_t tag, enum sr_error error)
{
    struct renewal *renewal = arg;

    (void)tag;
    if (error != SR_OK)
        sr_driver_halt(renewal->site, sr_meta_failure(renewal->site->meta));
    else if (--renewal->left == 0)
        finish(renewal); /* P1 */
}

/* ---- what was asked for ------------------------------------------------------------------------------------------ */

static bool may_create(struct sr_site *site, struct sr_control_call *call, const struct sr_site_pool *pool, bool force)
{
    char hint[2 * SR_NAME_BYTES + 64];
    const struct sr_volume *volume;
    uint32_t lost;

    if (pool->pool) {
        sr_control_reply_error(call, SR_E_REFUSED, pool->name, "syncrepctl pool list",
                               "pool %s is in use in %s; if its disk was exchanged, restart syncrepd first", pool->name,
                               pool->directory);
        return false;
    }
    TAILQ_FOREACH (volume, &site->volumes, link) { /* P3 */
        if (volume->pool != pool || (!volume->operation && !sr_members_busy(volume)))
            continue;
        sr_control_reply_error(call, SR_E_BUSY, pool->name, NULL, "pool %s: an operation on volume %s is under way",
                               pool->name, volume->meta.name);
        return false;
    }
    if (pool->renewing || site->stopping) {
        sr_control_reply_error(call, pool->renewing ? SR_E_BUSY : SR_E_SHUTDOWN, pool->name, NULL, "pool %s: %s",
                               pool->name, pool->renewing ? "it is just being made" : "the daemon is stopping");
        return false;
    }
    volume = first_lost(site, pool, &lost);
    if (volume && !force) {
        snprintf(hint, sizeof(hint), "syncrepctl pool create %s --force=%s", pool->name, pool->name);
        sr_control_reply_error(call, SR_E_NEEDS_FORCE, pool->name, hint,
                               "pool %s had the copies of %u volume%s (%s%s): a new pool in %s gives them up here", pool->name,
                               lost, lost == 1 ? "" : "s", volume->meta.name, lost == 1 ? "" : ", ...", pool->directory);
        return false;
    }
    return true;
}

void sr_pool_create(struct sr_site *site, struct sr_control_call *call, const char *name, bool force)
{
    struct sr_site_pool *pool = sr_table_pool_named(site, name);
    struct sr_volume *volume;
    char text[SR_SITE_TEXT] = "";
    struct sr_uuid before;

    if (!pool) {
        sr_control_reply_error(call, SR_E_NOT_FOUND, name, "syncrepctl pool list",
                               "the configuration of site %s has no pool %s", site->config->site, name);
        return;
    }
    if (!may_create(site, call, pool, force))
        return;
    struct renewal *renewal = calloc(1, sizeof(*renewal));
    if (!renewal) {
        sr_control_reply_error(call, SR_E_NO_MEMORY, name, NULL, "out of memory");
        return;
    }
    *renewal = (struct renewal){site, pool, call, 1};
    before = pool->uuid;
    sr_uuid_generate(&pool->uuid);
    struct sr_pool_identity identity = identity_of(site, pool);
    enum sr_error error = sr_pool_renew_prepare(pool->directory, &identity, text, sizeof(text));
    if (error == SR_OK)
        error = sr_pool_memory_add(site, pool->name, &pool->uuid, text, sizeof(text));
    if (error != SR_OK) {
        pool->uuid = before;
        sr_control_reply_error(call, error, name, NULL, "%s", text);
        free(renewal);
        return;
    }
    pool->renewing = true;
    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (volume->pool != pool)
            continue;
        volume->meta.pool_uuid = pool->uuid;
        struct sr_meta_change change = {.put_volume = &volume->meta};
        renewal->left++;
        sr_meta_commit_change(site->meta, &change, recorded, renewal, 0);
    }
    recorded(renewal, 0, SR_OK);
}
