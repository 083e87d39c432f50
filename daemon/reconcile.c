/* reconcile.c - at each link-up the sites tell each other their catalogues, and every volume ends at both or at
 * neither.
 *
 *        here       there      what this site does
 *        LIVE       LIVE       link the cores, if size, collection and the collection's other members agree; a change
 *                              of members that was cut off is settled first (members.c)
 *        LIVE       PENDING    COMMIT_CREATE there (it was decided here)
 *        LIVE       DELETING   nothing: the other site asks for it
 *        LIVE       absent     nothing, ever: shown as missing at the peer
 *        PENDING    LIVE       nothing: the other site sends COMMIT_CREATE
 *        PENDING    PENDING    it goes: the creator would be LIVE if it had decided
 *        PENDING    absent     it goes
 *        DELETING   LIVE, PENDING   DELETE there
 *        DELETING   absent, DELETING   the tombstone goes
 *
 * Invariants
 *   E1  A catalogue says only what is durable: it waits until no commit of the catalogue is on its way.
 *   E2  Both sites decide about linking from the two lists as they were sent, so both come to the same answer, and a
 *       catalogue is always sent before the first core is linked up.
 *   E3  A volume that is LIVE here is never deleted because the other site does not have it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "member_rules.h"
#include "operation.h"

void sr_reconcile_reset(struct sr_site *site)
{
    struct sr_collection *collection;
    struct sr_volume *volume;

    free(site->peer_volumes);
    free(site->sent_volumes);
    site->peer_volumes = site->sent_volumes = NULL;
    site->n_peer_volumes = site->n_sent_volumes = site->peer_part = 0;
    site->catalog_wanted = site->catalog_sent = site->peer_listed = site->exchanged = false;
    TAILQ_FOREACH (volume, &site->volumes, link)
        volume->peer_has = false;
    TAILQ_FOREACH (collection, &site->collections, link)
        collection->members_differ = false;
}

/* ---- ours ------------------------------------------------------------------------------------------------ */

static bool snapshot(struct sr_site *site)
{
    const struct sr_volume *volume;
    struct sr_catalog_volume *list = calloc(site->n_volumes + 1, sizeof(*list));

    if (!list)
        return false;
    uint32_t n = 0;
    TAILQ_FOREACH (volume, &site->volumes, link) {
        struct sr_catalog_volume *entry = &list[n++];
        entry->uuid = volume->meta.uuid;
        entry->collection = volume->meta.collection;
        entry->pending_collection = volume->meta.pending_collection;
        memcpy(entry->name, volume->meta.name, sizeof(entry->name));
        entry->size_bytes = volume->meta.size_bytes;
        entry->state = volume->meta.state;
        entry->creator = volume->meta.creator;
        entry->imported = volume->meta.imported;
        entry->write_back = volume->meta.write_back;
    }
    free(site->sent_volumes);
    site->sent_volumes = list;
    site->n_sent_volumes = n;
    return true;
}

static bool send_part(struct sr_site *site, uint32_t part, uint32_t first)
{
    uint32_t n = site->n_sent_volumes - first;
    struct sr_site_msg *msg = sr_site_msg_new(SR_SITE_CATALOG);

    if (n > SR_CATALOG_PART_MAX)
        n = SR_CATALOG_PART_MAX;
    if (!msg)
        return false;
    msg->catalog.part = part;
    msg->catalog.last = first + n == site->n_sent_volumes;
    msg->catalog.n_volumes = n;
    msg->catalog.volumes = n ? calloc(n, sizeof(*msg->catalog.volumes)) : NULL;
    if (n && !msg->catalog.volumes) {
        msg->catalog.n_volumes = 0;
        sr_site_msg_free(msg);
        return false;
    }
    if (n)
        memcpy(msg->catalog.volumes, site->sent_volumes + first, n * sizeof(*msg->catalog.volumes));
    sr_link_events_send_site(site, msg);
    return true;
}

static void reconcile(struct sr_site *site);

void sr_reconcile_send(struct sr_site *site)
{
    uint32_t part = 0, first = 0;

    if (!site->link_is_up || site->catalog_sent)
        return;
    site->catalog_wanted = true;
    if (site->decisions > 0) /* E1 */
        return;
    bool sent = snapshot(site);
    do {
        sent = sent && send_part(site, part++, first);
        first += SR_CATALOG_PART_MAX;
    } while (sent && first < site->n_sent_volumes);
    if (!sent) {
        sr_link_events_fault(site, "out of memory for the catalogue");
        return;
    }
    site->catalog_wanted = false;
    site->catalog_sent = true;
    if (site->peer_listed)
        reconcile(site);
}

/* ---- both ------------------------------------------------------------------------------------------------- */

static const struct sr_catalog_volume *find(const struct sr_catalog_volume *list, uint32_t n,
                                            const struct sr_uuid *uuid)
{
    for (uint32_t i = 0; i < n; i++) {
        if (sr_uuid_equal(&list[i].uuid, uuid))
            return &list[i];
    }
    return NULL;
}

static void say_differs(struct sr_collection *collection, const char *volume)
{
    collection->members_differ = true;
    snprintf(collection->peer_fault, sizeof(collection->peer_fault),
             "members differ: volume %s is in another collection at site %s; nothing is copied", volume,
             collection->site->config->peer_name);
}

/* A change of members was cut off (member_rules.h).  Whoever changes its list says when it has. */
static void settle_members(struct sr_volume *volume, const struct sr_catalog_volume *theirs)
{
    struct sr_collection *to = sr_table_collection(volume->site, &theirs->collection);
    struct sr_catalog_volume mine = {.collection = volume->meta.collection,
                                     .pending_collection = volume->meta.pending_collection};
    struct sr_core_status left, joined;

    say_differs(volume->collection, volume->meta.name);
    sr_driver_status(volume->collection, &left);
    if (to) {
        say_differs(to, volume->meta.name);
        sr_driver_status(to, &joined);
    }
    switch (sr_member_settle(&mine, theirs, &left.record, to ? &joined.record : NULL)) {
    case SR_SETTLE_ADOPT:
        sr_members_adopt(volume);
        break;
    case SR_SETTLE_YIELD:
        sr_members_ask_yield(volume);
        break;
    case SR_SETTLE_AWAIT:
        break;
    case SR_SETTLE_DIFFER:
        sr_log(SR_LOG_ERROR, "volume %s: %s", volume->meta.name, volume->collection->peer_fault);
        break;
    }
}

void sr_reconcile_members(struct sr_site *site)
{
    for (uint32_t i = 0; i < site->n_sent_volumes; i++) {
        struct sr_volume *volume = sr_table_volume(site, &site->sent_volumes[i].uuid);
        const struct sr_catalog_volume *theirs =
            find(site->peer_volumes, site->n_peer_volumes, &site->sent_volumes[i].uuid);
        bool differs = volume && volume->collection && theirs && volume->meta.state == SR_VOLUME_LIVE &&
                       theirs->state == SR_VOLUME_LIVE &&
                       !sr_uuid_equal(&theirs->collection, &volume->meta.collection);
        if (differs && volume->collection->members_differ)
            settle_members(volume, theirs);
    }
}

static void both_live(struct sr_volume *volume, const struct sr_catalog_volume *theirs)
{
    struct sr_collection *collection = volume->collection;
    const char *peer = volume->site->config->peer_name;

    volume->peer_has = true;
    if (!collection)
        return;
    if (theirs->size_bytes != volume->meta.size_bytes) {
        collection->members_differ = true;
        snprintf(collection->peer_fault, sizeof(collection->peer_fault),
                 "site %s has volume %s with %llu bytes, which does not agree with this site: nothing is copied",
                 peer, theirs->name, (unsigned long long)theirs->size_bytes);
        sr_log(SR_LOG_ERROR, "volume %s: %s", volume->meta.name, collection->peer_fault);
    } else if (theirs->write_back != volume->meta.write_back && volume->site->peer_features & SR_FEATURE_WRITE_BACK) {
        collection->members_differ = true;
        snprintf(collection->peer_fault, sizeof(collection->peer_fault),
                 "volume %s is %s at site %s, which does not agree with this site: nothing is copied", theirs->name,
                 theirs->write_back ? "write-back" : "write-through", peer);
        sr_log(SR_LOG_ERROR, "volume %s: %s", volume->meta.name, collection->peer_fault);
    } else if (!sr_uuid_equal(&theirs->collection, &volume->meta.collection)) {
        settle_members(volume, theirs);
    } else if (!sr_uuid_is_none(&volume->meta.pending_collection)) {
        sr_members_forget_pending(volume); /* it was not decided */
    }
}

/* Those whose members are the same at both sites. */
static void link_up(struct sr_site *site)
{
    struct sr_collection *collection;

    TAILQ_FOREACH (collection, &site->collections, link) {
        bool agrees = !collection->members_differ && collection->n_volumes > 0;
        for (uint32_t i = 0; i < collection->n_volumes; i++)
            agrees = agrees && collection->volumes[i]->peer_has;
        if (agrees)
            sr_driver_link(collection, true);
    }
}

static void missing_there(struct sr_volume *volume)
{
    struct sr_collection *collection = volume->collection;
    const char *peer = volume->site->config->peer_name;

    sr_log(SR_LOG_WARNING, "volume %s: site %s does not have it", volume->meta.name, peer);
    if (collection)
        snprintf(collection->peer_fault, sizeof(collection->peer_fault),
                 "missing at site %s: delete it here, or bring that site's state folder and pools back", peer);
}

/* state: as we sent it, which may be older than what is true now (E2). */
static void settle(struct sr_volume *volume, uint32_t state, const struct sr_catalog_volume *theirs)
{
    uint32_t there = theirs ? theirs->state : 0;

    bool deletes = volume->meta.state == SR_VOLUME_DELETING; /* perhaps only since the list was sent */
    if (deletes && state == SR_VOLUME_LIVE && theirs && there != SR_VOLUME_DELETING) {
        sr_removal_tell_peer(volume);
    } else if (state == SR_VOLUME_LIVE && volume->meta.state == SR_VOLUME_LIVE) {
        if (there == SR_VOLUME_LIVE)
            both_live(volume, theirs);
        else if (there == SR_VOLUME_PENDING)
            sr_operation_commit_at_peer(volume, NULL, NULL);
        else if (there == SR_VOLUME_DELETING && volume->collection)
            snprintf(volume->collection->peer_fault, sizeof(volume->collection->peer_fault),
                     "site %s deletes it: if that is refused here because this site has gone on, delete it here too, or "
                     "copy its data away first",
                     volume->site->config->peer_name);
        else if (!theirs)
            missing_there(volume); /* E3 */
    } else if (state == SR_VOLUME_PENDING && there != SR_VOLUME_LIVE && there != SR_VOLUME_DELETING) {
        if (!volume->operation || volume->operation->kind == SR_OP_ACCEPT)
            sr_removal_start(volume, NULL, NULL);
    } else if (state == SR_VOLUME_DELETING) {
        if (there == SR_VOLUME_LIVE || there == SR_VOLUME_PENDING)
            sr_removal_tell_peer(volume);
        else
            sr_removal_peer_gone(volume);
    }
}

/* What only the other site has: nothing can be done about it here but to say so. */
static void missing_here(struct sr_site *site)
{
    for (uint32_t i = 0; i < site->n_peer_volumes; i++) {
        const struct sr_catalog_volume *theirs = &site->peer_volumes[i];
        if (theirs->state != SR_VOLUME_LIVE || find(site->sent_volumes, site->n_sent_volumes, &theirs->uuid))
            continue;
        sr_log(SR_LOG_WARNING, "volume %s: site %s has it, this site does not", theirs->name,
               site->config->peer_name);
        struct sr_collection *collection = sr_table_collection(site, &theirs->collection);
        if (collection)
            say_differs(collection, theirs->name);
    }
}

static void reconcile(struct sr_site *site)
{
    site->exchanged = true;
    for (uint32_t i = 0; i < site->n_sent_volumes; i++) {
        struct sr_volume *volume = sr_table_volume(site, &site->sent_volumes[i].uuid);
        if (volume)
            settle(volume, site->sent_volumes[i].state,
                   find(site->peer_volumes, site->n_peer_volumes, &site->sent_volumes[i].uuid));
    }
    missing_here(site);
    link_up(site);
    sr_driver_watch_all(site);
}

void sr_reconcile_part(struct sr_site *site, const struct sr_site_catalog *catalog)
{
    if (site->peer_listed || catalog->part != site->peer_part ||
        site->n_peer_volumes + catalog->n_volumes > SR_CATALOG_MAX) {
        sr_link_events_fault(site, "a part of the catalogue out of turn, or too many volumes");
        return;
    }
    size_t n = site->n_peer_volumes + catalog->n_volumes;
    struct sr_catalog_volume *grown = realloc(site->peer_volumes, (n + 1) * sizeof(*grown));
    if (!grown) {
        sr_link_events_fault(site, "out of memory for the catalogue");
        return;
    }
    if (catalog->n_volumes)
        memcpy(grown + site->n_peer_volumes, catalog->volumes, catalog->n_volumes * sizeof(*grown));
    site->peer_volumes = grown;
    site->n_peer_volumes = (uint32_t)n;
    site->peer_part++;
    if (!catalog->last)
        return;
    site->peer_listed = true;
    if (site->catalog_sent)
        reconcile(site);
}
