/* deletion.c - deleting a volume at both sites, seen from the site that was asked to.
 *
 *   checks here -> CHECK_DELETE at the other site -> removal.c (tombstone, DELETE there, image, record) -> answer
 *
 * The checks come first because a tombstone cannot be taken back.  Between the other site's consent and its DELETE a
 * host may still connect there; it is disconnected then.  With the other site away a deletion must be forced; the
 * tombstone then stays until that site has been told.
 *
 * When both sites are asked at the same time, the other one's DELETE may come while its consent is on the way: it has decided,
 * so whatever the answer is then, this deletion goes on, and its removal answers both.
 *
 * A crash before the tombstone changes nothing; after it the next start and the next link go on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "operation.h"

struct deletion {
    struct sr_operation operation; /* first; only until the removal takes over */
    struct sr_control_call *call;
    char name[SR_NAME_BYTES];
    const char *peer;
    bool forced;
    bool decided_there;     /* the other site has its tombstone, and waits for this one's: */
    sr_removed_fn other_fn; /* NULL: nobody does */
    void *other_arg;
};

static void refuse(struct deletion *deletion, enum sr_error error, const char *text)
{
    char hint[2 * SR_NAME_BYTES + 64] = "";

    if (error == SR_E_NEEDS_FORCE)
        snprintf(hint, sizeof(hint), "syncrepctl volume delete %s --force=%s", deletion->name, deletion->name);
    sr_control_reply_error(deletion->call, error, deletion->name, hint, "volume %s is not deleted: %s",
                           deletion->name, text);
    deletion->operation.volume->operation = NULL;
    free(deletion);
}

static void removed(void *arg, enum sr_error error, const char *text)
{
    struct deletion *deletion = arg;

    if (deletion->other_fn)
        deletion->other_fn(deletion->other_arg, error, text);
    if (error != SR_OK)
        sr_control_reply_error(deletion->call, error, deletion->name, NULL,
                               "volume %s is being deleted, but not finished: %s", deletion->name, text);
    else if (text[0])
        sr_control_reply_done(deletion->call, deletion->name, NULL, "volume %s deleted here; %s", deletion->name,
                              text);
    else
        sr_control_reply_done(deletion->call, deletion->name, NULL, "volume %s deleted at both sites",
                              deletion->name);
    free(deletion);
}

static void go(struct deletion *deletion)
{
    struct sr_volume *volume = deletion->operation.volume;

    volume->operation = NULL;
    sr_log(SR_LOG_NOTICE, "volume %s: an administrator deletes it", volume->meta.name);
    sr_removal_start(volume, removed, deletion);
}

static void checked(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct deletion *deletion = arg;
    char text[SR_SITE_TEXT + SR_NAME_BYTES];
    bool away = !reply && error == SR_E_UNREACHABLE;

    if (deletion->decided_there || error == SR_OK || error == SR_E_NOT_FOUND ||
        (deletion->forced && (away || error == SR_E_NEEDS_FORCE))) {
        deletion->operation.volume->peer_agreed = !away;
        go(deletion);
        return;
    }
    if (away)
        snprintf(text, sizeof(text), "the link to site %s went down", deletion->peer);
    else
        snprintf(text, sizeof(text), "site %s: %s", deletion->peer,
                 reply && reply->text[0] ? reply->text : sr_error_text(error));
    refuse(deletion, error, text);
}

static void give_way(struct sr_operation *operation, sr_removed_fn fn, void *arg)
{
    struct deletion *deletion = (struct deletion *)operation;

    if (deletion->decided_there) {
        if (fn)
            fn(arg, SR_E_BUSY, "it is just being deleted");
        return;
    }
    deletion->decided_there = true;
    deletion->other_fn = fn;
    deletion->other_arg = arg;
}

static uint32_t hosts_of(const struct sr_volume *volume)
{
    return volume->collection ? sr_nbd_export_connections(volume->site->nbd, volume) : 0;
}

static bool holds_data(const struct sr_volume *volume)
{
    return volume->meta.imported || !volume->store || sr_store_allocated_bytes(volume->store) > 0;
}

/* What stands against it at this site; false: refused and answered. */
static bool may_delete(struct deletion *deletion)
{
    const struct sr_volume *volume = deletion->operation.volume;
    uint32_t hosts = hosts_of(volume);
    char text[SR_SITE_TEXT];

    if (hosts > 0) {
        snprintf(text, sizeof(text), "%u host%s use%s it: disconnect first", hosts, hosts == 1 ? "" : "s",
                 hosts == 1 ? "s" : "");
        refuse(deletion, SR_E_REFUSED, text);
        return false;
    }
    if (!deletion->forced && holds_data(volume)) {
        refuse(deletion, SR_E_NEEDS_FORCE, "it may hold data; repeat its name with --force if that is to go");
        return false;
    }
    if (!deletion->forced && !volume->site->exchanged) {
        snprintf(text, sizeof(text), "site %s is not connected, and a volume is deleted at both sites or at neither",
                 deletion->peer);
        refuse(deletion, SR_E_UNREACHABLE, text);
        return false;
    }
    return true;
}

/* The other site, or another command, was first: its removal answers both. */
static bool join(struct sr_site *site, struct sr_control_call *call, struct sr_volume *volume)
{
    struct deletion *deletion = calloc(1, sizeof(*deletion));

    if (!deletion)
        return false;
    deletion->call = call;
    deletion->peer = site->config->peer_name;
    memcpy(deletion->name, volume->meta.name, sizeof(deletion->name));
    if (sr_removal_join(volume, removed, deletion))
        return true;
    free(deletion);
    return false;
}

void sr_catalog_delete(struct sr_site *site, struct sr_control_call *call, struct sr_volume *volume, bool forced)
{
    struct deletion *deletion;
    struct sr_volume_rpc rpc;
    char hint[2 * SR_NAME_BYTES + 64];

    if (volume->meta.state == SR_VOLUME_DELETING) {
        if (join(site, call, volume))
            return;
        sr_control_reply_error(call, SR_E_BUSY, volume->meta.name, "syncrepctl volume list",
                               "volume %s is being deleted already%s", volume->meta.name,
                               site->exchanged ? "" : "; it goes when the other site is back");
        return;
    }
    if (volume->collection && (volume->collection->n_volumes > 1 || sr_members_busy(volume))) {
        snprintf(hint, sizeof(hint), "syncrepctl collection remove %s %s", volume->collection->name, volume->meta.name);
        sr_control_reply_error(call, SR_E_REFUSED, volume->meta.name, hint,
                               "volume %s is not deleted: it is a member of collection %s, take it out first",
                               volume->meta.name, volume->collection->name);
        return;
    }
    deletion = volume->operation || volume->meta.state != SR_VOLUME_LIVE ? NULL : calloc(1, sizeof(*deletion));
    if (!deletion) {
        sr_control_reply_error(call, SR_E_BUSY, volume->meta.name, "syncrepctl volume list",
                               "volume %s: another operation on it is under way", volume->meta.name);
        return;
    }
    deletion->operation = (struct sr_operation){.kind = SR_OP_DELETE, .volume = volume, .give_way = give_way};
    deletion->call = call;
    deletion->forced = forced;
    deletion->peer = site->config->peer_name;
    memcpy(deletion->name, volume->meta.name, sizeof(deletion->name));
    volume->operation = &deletion->operation;
    if (!may_delete(deletion))
        return;
    if (!site->exchanged) {
        go(deletion);
        return;
    }
    sr_operation_rpc(volume, SR_VOLUME_CHECK_DELETE, &rpc);
    sr_rpc_call(site, &rpc, checked, deletion);
}
