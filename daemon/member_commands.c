/* member_commands.c - what administrators ask for: collection create, add, remove, delete.
 *
 * Each is one move of a volume, or several, one after the other (members.c); it is carried out where the volume is
 * active. Nothing here is durable.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "members.h"

/* One command.  `dissolve` goes on with the next volume. */
struct change {
    struct sr_site *site;
    struct sr_control_call *call;
    char name[SR_NAME_BYTES], volume[SR_NAME_BYTES];
    const char *done; /* what has happened, with the volume and the collection in front */
    bool dissolve;
};

static void next_of(struct change *change);

static void changed(void *arg, enum sr_error error, const char *text)
{
    struct change *change = arg;

    if (error == SR_OK && change->dissolve) {
        next_of(change);
        return;
    }
    if (error == SR_OK)
        sr_control_reply_done(change->call, change->name, NULL, "volume %s: %s %s%s%s", change->volume, change->done,
                              change->name, text[0] ? "; " : "", text);
    else
        sr_control_reply_error(change->call, error, change->name, "syncrepctl status",
                               "volume %s stays where it is: %s", change->volume, text);
    free(change);
}

static void asked(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    changed(arg, error,
            reply && (reply->text[0] || error == SR_OK) ? reply->text : "the link to the other site went down");
}

/* To `to`, or to a new collection called `name`; here, or where it is active. */
static void move_to(struct sr_volume *volume, struct sr_collection *to, const char *name, sr_moved_fn fn,
                    struct change *change)
{
    struct sr_core_status status;
    struct sr_volume_rpc rpc = {.verb = SR_MEMBER_MOVE, .uuid = volume->meta.uuid, .active = to == NULL};

    sr_driver_status(volume->collection, &status);
    if (status.record.role == SR_ROLE_ACTIVE || !volume->site->exchanged) {
        sr_members_coordinate(volume, to, name, fn, change);
        return;
    }
    if (to)
        rpc.collection = to->uuid;
    snprintf(rpc.name, sizeof(rpc.name), "%s", to ? to->name : name);
    sr_rpc_call(volume->site, &rpc, asked, change);
}

static void refuse(struct sr_control_call *call, enum sr_error error, const char *name, const char *hint,
                   const char *text)
{
    sr_control_reply_error(call, error, name, hint, "%s", text);
}

/* NULL: the call was answered. */
static struct sr_volume *find_volume(struct sr_site *site, struct sr_control_call *call, const char *name)
{
    struct sr_volume *volume = sr_table_volume_named(site, name);
    char text[SR_SITE_TEXT];

    if (volume && volume->collection && volume->meta.state == SR_VOLUME_LIVE)
        return volume;
    snprintf(text, sizeof(text), "there is no volume %.64s here", name);
    refuse(call, SR_E_NOT_FOUND, name, "syncrepctl volume list", text);
    return NULL;
}

static struct sr_collection *find_collection(struct sr_site *site, struct sr_control_call *call, const char *name)
{
    struct sr_collection *collection = sr_table_collection_called(site, name);
    char text[SR_SITE_TEXT];

    if (collection)
        return collection;
    snprintf(text, sizeof(text), "there is no collection %.64s here", name);
    refuse(call, SR_E_NOT_FOUND, name, "syncrepctl collection list", text);
    return NULL;
}

static struct change *new_change(struct sr_site *site, struct sr_control_call *call, const char *name,
                                 const char *volume, const char *done)
{
    struct change *change = calloc(1, sizeof(*change));

    if (!change) {
        refuse(call, SR_E_NO_MEMORY, name, NULL, "out of memory");
        return NULL;
    }
    change->site = site;
    change->call = call;
    change->done = done;
    snprintf(change->name, sizeof(change->name), "%s", name);
    snprintf(change->volume, sizeof(change->volume), "%s", volume);
    return change;
}

void sr_members_create(struct sr_site *site, struct sr_control_call *call, const char *name, const char *volume_name)
{
    struct sr_volume *volume = find_volume(site, call, volume_name);
    const char *why;
    char text[SR_SITE_TEXT];

    if (!volume)
        return;
    if (strcmp(volume->collection->name, name) == 0) {
        sr_control_reply_done(call, name, NULL, "volume %s is in collection %s already", volume->meta.name, name);
        return;
    }
    if (!sr_name_valid(name, &why)) {
        snprintf(text, sizeof(text), "collection '%.64s': %s", name, why);
        refuse(call, SR_E_INVALID, name, NULL, text);
        return;
    }
    if (sr_table_collection_called(site, name) || sr_table_volume_named(site, name)) {
        snprintf(text, sizeof(text), "there is a collection or a volume %.64s already", name);
        refuse(call, SR_E_EXISTS, name, "syncrepctl collection list", text);
        return;
    }
    struct change *change = new_change(site, call, name, volume->meta.name, "member of the new collection");
    if (change)
        move_to(volume, NULL, name, changed, change);
}

void sr_members_add(struct sr_site *site, struct sr_control_call *call, const char *name, const char *volume_name)
{
    char text[SR_SITE_TEXT], hint[SR_SITE_TEXT];
    struct sr_collection *to = find_collection(site, call, name);
    struct sr_volume *volume = to ? find_volume(site, call, volume_name) : NULL;

    if (!volume)
        return;
    if (volume->collection == to) {
        sr_control_reply_done(call, name, NULL, "volume %s is in collection %s already", volume->meta.name, name);
        return;
    }
    if (sr_table_volume_named(site, name)) { /* else that volume could never leave it */
        snprintf(text, sizeof(text), "collection %.64s is that volume's own: make one for both", name);
        snprintf(hint, sizeof(hint), "syncrepctl collection create NEW %s %s", name, volume->meta.name);
        refuse(call, SR_E_REFUSED, name, hint, text);
        return;
    }
    struct change *change = new_change(site, call, name, volume->meta.name, "member of collection");
    if (change)
        move_to(volume, to, name, changed, change);
}

void sr_members_remove(struct sr_site *site, struct sr_control_call *call, const char *name, const char *volume_name)
{
    struct sr_collection *from = find_collection(site, call, name);
    struct sr_volume *volume = from ? find_volume(site, call, volume_name) : NULL;

    if (!volume)
        return;
    if (volume->collection != from || strcmp(from->name, volume->meta.name) == 0) {
        sr_control_reply_done(call, name, NULL, "volume %s is in collection %s already", volume->meta.name,
                              volume->collection->name);
        return;
    }
    struct change *change = new_change(site, call, name, volume->meta.name, "in a collection of its own, no more in");
    if (change)
        move_to(volume, NULL, volume->meta.name, changed, change);
}

/* Volumes leave one by one; with the last one the collection is gone. */
static void next_of(struct change *change)
{
    struct sr_collection *collection = sr_table_collection_called(change->site, change->name);

    if (!collection) {
        sr_control_reply_done(change->call, change->name, NULL,
                              "collection %s is deleted; its volumes are in collections of their own", change->name);
        free(change);
        return;
    }
    struct sr_volume *volume = collection->volumes[0];
    memcpy(change->volume, volume->meta.name, sizeof(change->volume));
    move_to(volume, NULL, volume->meta.name, changed, change);
}

void sr_members_dissolve(struct sr_site *site, struct sr_control_call *call, const char *name)
{
    struct sr_collection *collection = find_collection(site, call, name);

    if (!collection)
        return;
    if (collection->n_volumes == 1 && strcmp(collection->name, collection->volumes[0]->meta.name) == 0) {
        refuse(call, SR_E_REFUSED, name, "syncrepctl volume delete", "it is the volume's own: delete the volume");
        return;
    }
    struct change *change = new_change(site, call, name, "", "");
    if (!change)
        return;
    change->dissolve = true;
    next_of(change);
}
