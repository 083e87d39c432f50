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
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The images are there; what is on them is given up already, durably. */
static void go_on(struct replacing *replacing)
{
    struct sr_collection *collection = replacing->collection;
    char text[SR_SITE_TEXT + 2 * SR_NAME_BYTES + 64];
    enum sr_error error = sr_driver_start(collection, SR_LOCK_WAIT_MS / 10);

    if (error != SR_OK) {
        bool in_the_way = error == SR_E_CORRUPT || error == SR_E_IDENTITY;
        snprintf(text, sizeof(text), "%s cannot be replaced: %s%s", collection->name, collection->fault,
                 in_the_way ? ": move that file away, and replace again makes it anew" : "");
        finish(replacing, error, text);
        return;
    }
    /* The core before was asked (may_replace), which knew the other site; this one has not met it yet. */
    sr_driver_admin(collection, SR_ADMIN_REPLACE, true, replaced, replacing);
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

    return sr_pool_image_path(volume->pool->pool, volume->meta.name, path) != SR_OK || stat(path, &st) == 0;
}

/* A file or device that was imported may have been exchanged: from here on this one is meant. */
static enum sr_error take_import(struct sr_volume *volume, char text[SR_SITE_TEXT])
{
    char *device = volume->meta.device;
    enum sr_error error = sr_pool_import_mark(volume->meta.path, &volume->meta.uuid, text, SR_SITE_TEXT);
    int fd = error == SR_OK ? open(volume->meta.path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;

    if (fd >= 0) {
        sr_device_identity(fd, device);
        close(fd);
    }
    return error;
}

/* One after the other; then it goes on. */
static void make_images(struct replacing *replacing)
{
    struct sr_collection *collection = replacing->collection;
    char text[SR_SITE_TEXT] = "";

    for (; replacing->looked_at < collection->n_volumes; replacing->looked_at++) {
        struct sr_volume *volume = collection->volumes[replacing->looked_at];
        struct sr_pool_image image = {volume->meta.name, volume->meta.uuid, volume->meta.size_bytes, false};
        if (volume->meta.imported || has_image(volume))
            continue;
        sr_log(SR_LOG_NOTICE, "volume %s: its image is gone and made anew", volume->meta.name);
        enum sr_error error = sr_pool_create_start(volume->pool->pool, collection->site->loop, &image, NULL,
                                                   image_made, replacing, &replacing->job);
        if (error != SR_OK) {
            snprintf(text, sizeof(text), "%s", sr_error_text(error));
            finish(replacing, error, text);
        }
        return;
    }
    go_on(replacing);
}

static void device_recorded(void *arg, uint64_t tag, enum sr_error error)
{
    struct sr_site *site = arg;

    (void)tag;
    if (error != SR_OK)
        sr_driver_halt(site, sr_meta_failure(site->meta));
}

static void failed_recorded(void *arg, uint64_t tag, enum sr_error error)
{
    struct replacing *replacing = arg;
    struct sr_collection *collection = replacing->collection;
    struct sr_site *site = collection->site;
    char text[SR_SITE_TEXT] = "";

    (void)tag;
    if (error != SR_OK) {
        sr_driver_halt(site, sr_meta_failure(site->meta));
        return;
    }
    for (uint32_t i = 0; i < collection->n_volumes && error == SR_OK; i++) {
        struct sr_meta_change change = {.put_volume = &collection->volumes[i]->meta};
        if (!collection->volumes[i]->meta.imported)
            continue;
        error = take_import(collection->volumes[i], text);
        if (error == SR_OK)
            sr_meta_commit_change(site->meta, &change, device_recorded, site, 0);
    }
    if (error != SR_OK)
        finish(replacing, error, text);
    else
        make_images(replacing);
}

/* First of all, and durable before anything is made: else a crash would leave a fresh, empty image under a record
 * that says that this copy is complete. */
static void closed(struct sr_collection *collection, void *arg)
{
    struct sr_meta_collection record = {.uuid = collection->uuid};
    struct sr_meta_change change = {.put_collection = &record};

    collection->dead = false;
    collection->loaded.failed = true;
    collection->loaded.consistent = false;
    memcpy(record.name, collection->name, sizeof(record.name));
    record.record = collection->loaded;
    sr_meta_commit_change(collection->site->meta, &change, failed_recorded, arg, 0);
}

/* The core's own rules, asked before anything is touched. */
static enum sr_error may_replace(const struct sr_collection *collection, bool force, char *text)
{
    enum sr_error error = SR_OK;
    const char *why = NULL;

    if (collection->core) {
        why = sr_core_replace_refusal(collection->core, force, &error);
    } else if (collection->loaded.base_kind != SR_BASE_NONE && !force) {
        error = SR_E_NEEDS_FORCE;
        why = "the copy here may hold writes that the other site lacks: replacing it gives them up";
    }
    if (why) {
        snprintf(text, SR_SITE_TEXT, "%s: nothing is replaced: %s", collection->name, why);
        return error;
    }
    for (uint32_t i = 0; i < collection->n_volumes; i++) {
        const struct sr_site_pool *pool = collection->volumes[i]->pool;
        if (pool && pool->pool)
            continue;
        snprintf(text, SR_SITE_TEXT, "%.300s", pool ? pool->detail : "its pool is not configured");
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
    if (collection->core && !status.record.failed) { /* or somebody has done it already: idempotent */
        snprintf(text, sizeof(text), "%s: the copy here has not failed: nothing was replaced", collection->name);
        finish(replacing, SR_OK, text);
        return;
    }
    collection->loaded = status.record;
    sr_driver_end(collection, closed, replacing);
}
