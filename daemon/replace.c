/* replace.c - `replace`: a failed copy at this site is given up, opened anew and filled from the other site.
 *
 *   refused by the core (not failed, needs --force), or:
 *   core ended, copy closed -> image made if it is gone -> "failed" durable -> copy opened, core begun -> REPLACE
 *   -> the other site's core begins a session with the new one
 *
 * A copy that could not even be opened (disk exchanged, image gone) counts as failed.  What replace commits is the
 * core's business.  A crash at any line is harmless: until the core's commit the record says "failed", and replace
 * can be repeated.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "operation.h"

struct replacing {
    struct sr_operation operation; /* first */
    struct sr_control_call *call;
    struct sr_collection *collection;
    bool force;
    uint32_t looked_at; /* members whose image is there */
    struct sr_pool_job *job;
};

static void finish(struct replacing *replacing, enum sr_error error, const char *text)
{
    struct sr_collection *collection = replacing->collection;
    const char *hint = error == SR_OK ? "syncrepctl wait" : NULL;
    char command[2 * SR_NAME_BYTES + 64];

    if (error == SR_OK) {
        snprintf(command, sizeof(command), "%s %s --for in-sync", hint, collection->name);
        sr_control_reply_done(replacing->call, collection->name, command, "%s", text);
    } else {
        snprintf(command, sizeof(command), "syncrepctl replace %s --force=%s", collection->name, collection->name);
        sr_control_reply_error(replacing->call, error, collection->name, error == SR_E_NEEDS_FORCE ? command : NULL,
                               "%s", text);
    }
    replacing->operation.volume->operation = NULL;
    free(replacing);
}

static void replaced(void *arg, struct sr_collection *collection, enum sr_error error, const char *text)
{
    struct replacing *replacing = arg;
    struct sr_site *site = collection->site;

    if (error == SR_OK && site->exchanged && !collection->link_up)
        sr_operation_commit_at_peer(replacing->operation.volume, NULL, NULL);
    finish(replacing, error, text);
}

static void failed_recorded(void *arg, uint64_t tag, enum sr_error error)
{
    struct replacing *replacing = arg;
    struct sr_collection *collection = replacing->collection;
    char text[SR_SITE_TEXT + 2 * SR_NAME_BYTES];

    (void)tag;
    if (error != SR_OK) {
        sr_driver_halt(collection->site, sr_meta_failure(collection->site->meta));
        return;
    }
    error = sr_driver_start(collection, SR_LOCK_WAIT_MS / 10);
    if (error != SR_OK) {
        snprintf(text, sizeof(text), "%s cannot be replaced: %s", collection->name, collection->fault);
        finish(replacing, error, text);
        return;
    }
    sr_driver_admin(collection, SR_ADMIN_REPLACE, replacing->force, replaced, replacing);
}

static void record_failed(struct replacing *replacing)
{
    struct sr_collection *collection = replacing->collection;
    struct sr_meta_collection record = {.uuid = collection->uuid};
    struct sr_meta_change change = {.put_collection = &record};

    collection->loaded.failed = true;
    collection->loaded.consistent = false;
    memcpy(record.name, collection->name, sizeof(record.name));
    record.record = collection->loaded;
    sr_meta_commit_change(collection->site->meta, &change, failed_recorded, replacing, 0);
}

static void make_images(struct replacing *replacing);

static void image_made(void *arg, enum sr_error error, const char *text)
{
    struct replacing *replacing = arg;

    if (error != SR_OK) {
        finish(replacing, error, text);
        return;
    }
    replacing->looked_at++;
    make_images(replacing);
}

static bool has_image(const struct sr_volume *volume)
{
    char path[SR_POOL_PATH_BYTES];
    struct stat st;

    return volume->meta.imported || sr_pool_image_path(volume->pool->pool, volume->meta.name, path) != SR_OK ||
           stat(path, &st) == 0;
}

/* One after the other; then it goes on. */
static void make_images(struct replacing *replacing)
{
    struct sr_collection *collection = replacing->collection;

    while (replacing->looked_at < collection->n_volumes && has_image(collection->volumes[replacing->looked_at]))
        replacing->looked_at++;
    if (replacing->looked_at == collection->n_volumes) {
        record_failed(replacing);
        return;
    }
    const struct sr_volume *volume = collection->volumes[replacing->looked_at];
    struct sr_pool_image image = {volume->meta.name, volume->meta.uuid, volume->meta.size_bytes, false};
    sr_log(SR_LOG_NOTICE, "volume %s: its image is gone and made anew", volume->meta.name);
    enum sr_error error = sr_pool_create_start(volume->pool->pool, collection->site->loop, &image, NULL, image_made,
                                               replacing, &replacing->job);
    if (error != SR_OK)
        finish(replacing, error, sr_error_text(error));
}

static void closed(struct sr_collection *collection, void *arg)
{
    collection->dead = false;
    make_images(arg);
}

/* The core's own rules, asked before anything is touched. */
static enum sr_error may_replace(const struct sr_collection *collection, bool force, char *text)
{
    struct sr_core_status status;

    sr_driver_status(collection, &status);
    if (collection->core && !status.record.failed) {
        snprintf(text, SR_SITE_TEXT, "the copy of %s here has not failed; nothing is replaced", collection->name);
        return SR_E_REFUSED;
    }
    if (status.record.base_kind != SR_BASE_NONE && !force) {
        snprintf(text, SR_SITE_TEXT,
                 "the failed copy of %s here may hold writes that the other site lacks: replacing it gives them up",
                 collection->name);
        return SR_E_NEEDS_FORCE;
    }
    for (uint32_t i = 0; i < collection->n_volumes; i++) {
        const struct sr_site_pool *pool = collection->volumes[i]->pool;
        if (pool && pool->pool)
            continue;
        snprintf(text, SR_SITE_TEXT, "%.280s; then restart syncrepd",
                 pool ? pool->detail : "its pool is not configured");
        return SR_E_REFUSED;
    }
    return SR_OK;
}

void sr_replace(struct sr_collection *collection, struct sr_control_call *call, bool force)
{
    struct sr_volume *volume = collection->volumes[0];
    char text[SR_SITE_TEXT] = "another operation on it is under way";
    struct replacing *replacing = volume->operation || sr_members_busy(volume) ? NULL : calloc(1, sizeof(*replacing));
    struct sr_core_status status;

    if (!replacing) {
        sr_control_reply_error(call, SR_E_BUSY, collection->name, NULL, "%s: %s", collection->name, text);
        return;
    }
    replacing->operation = (struct sr_operation){.kind = SR_OP_REPLACE, .volume = volume};
    replacing->call = call;
    replacing->collection = collection;
    replacing->force = force;
    volume->operation = &replacing->operation;
    enum sr_error error = may_replace(collection, force, text);
    if (error != SR_OK) {
        finish(replacing, error, text);
        return;
    }
    sr_driver_status(collection, &status);
    collection->loaded = status.record;
    sr_driver_end(collection, closed, replacing);
}
