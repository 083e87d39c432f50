/* table.c - the catalogue in memory: volumes and collections by UUID and by name.
 *
 * Messages of the peer name a collection by UUID, so that look-up is a small hash table; names are looked up by
 * people and by handshakes of hosts, in lists.
 *
 * Invariants
 *   1. Names are unique among all volumes, whatever their state, and among all collections; a collection whose name
 * is a volume's is that volume's own.
 *   2. Members are in the order of their UUIDs, so that a number means the same volume at both sites.
 *   3. Nothing here is durable: table entries follow the records in the metadata, never the other way round.
 */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "site.h"

struct sr_volume *sr_table_add_volume(struct sr_site *site, const struct sr_meta_volume *meta)
{
    struct sr_volume *volume = calloc(1, sizeof(*volume));

    if (!volume)
        return NULL;
    SR_ASSERT(!sr_table_volume(site, &meta->uuid));
    volume->site = site;
    volume->meta = *meta;
    volume->pool = sr_table_pool_named(site, meta->pool);
    TAILQ_INSERT_TAIL(&site->volumes, volume, link);
    site->n_volumes++;
    return volume;
}

void sr_table_drop_volume(struct sr_volume *volume)
{
    SR_ASSERT(!volume->store && !volume->collection && !volume->operation);
    TAILQ_REMOVE(&volume->site->volumes, volume, link);
    volume->site->n_volumes--;
    free(volume);
}

struct sr_volume *sr_table_volume(struct sr_site *site, const struct sr_uuid *uuid)
{
    struct sr_volume *volume;

    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (sr_uuid_equal(&volume->meta.uuid, uuid))
            return volume;
    }
    return NULL;
}

struct sr_volume *sr_table_volume_named(struct sr_site *site, const char *name)
{
    struct sr_volume *volume;

    TAILQ_FOREACH (volume, &site->volumes, link) {
        if (strcmp(volume->meta.name, name) == 0)
            return volume;
    }
    return NULL;
}

static struct sr_collection **bucket_of(struct sr_site *site, const struct sr_uuid *uuid)
{
    return &site->buckets[uuid->b[0] % SR_SITE_BUCKETS];
}

struct sr_collection *sr_table_add_collection(struct sr_site *site, const struct sr_uuid *uuid, const char *name)
{
    struct sr_collection *collection = calloc(1, sizeof(*collection));

    if (!collection)
        return NULL;
    collection->site = site;
    collection->uuid = *uuid;
    strcpy(collection->name, name);
    TAILQ_INSERT_TAIL(&site->collections, collection, link);
    site->n_collections++;
    struct sr_collection **bucket = bucket_of(site, uuid);
    collection->bucket_next = *bucket;
    *bucket = collection;
    return collection;
}

static void number_members(struct sr_collection *collection)
{
    for (uint32_t i = 0; i < collection->n_volumes; i++) {
        collection->volumes[i]->index = i;
        collection->volume_uuids[i] = collection->volumes[i]->meta.uuid;
    }
}

bool sr_table_add_member(struct sr_collection *collection, struct sr_volume *volume)
{
    uint32_t n = collection->n_volumes, at = n;
    struct sr_volume **volumes = realloc(collection->volumes, (n + 1) * sizeof(*volumes));

    SR_ASSERT(!collection->core && !volume->collection);
    if (volumes)
        collection->volumes = volumes;
    struct sr_uuid *uuids = realloc(collection->volume_uuids, (n + 1) * sizeof(*uuids));
    if (uuids)
        collection->volume_uuids = uuids;
    if (!volumes || !uuids)
        return false;
    for (; at > 0 && sr_uuid_compare(&volumes[at - 1]->meta.uuid, &volume->meta.uuid) > 0; at--)
        volumes[at] = volumes[at - 1];
    volumes[at] = volume;
    collection->n_volumes = n + 1;
    volume->collection = collection;
    number_members(collection);
    return true;
}

void sr_table_drop_member(struct sr_volume *volume)
{
    struct sr_collection *collection = volume->collection;

    SR_ASSERT(!collection->core);
    for (uint32_t i = volume->index; i + 1 < collection->n_volumes; i++)
        collection->volumes[i] = collection->volumes[i + 1];
    collection->n_volumes--;
    volume->collection = NULL;
    number_members(collection);
}

static void freed(uv_handle_t *timer)
{
    struct sr_collection *collection = timer->data;

    free(collection->volumes);
    free(collection->volume_uuids);
    free(collection);
}

void sr_table_drop_collection(struct sr_collection *collection)
{
    struct sr_site *site = collection->site;
    struct sr_collection **at = bucket_of(site, &collection->uuid);

    SR_ASSERT(!collection->core && collection->n_ios == 0 && collection->n_commits == 0);
    while (*at != collection)
        at = &(*at)->bucket_next;
    *at = collection->bucket_next;
    TAILQ_REMOVE(&site->collections, collection, link);
    site->n_collections--;
    for (uint32_t i = 0; i < collection->n_volumes; i++)
        collection->volumes[i]->collection = NULL;
    collection->timer.data = collection;
    if (collection->timer_open)
        uv_close((uv_handle_t *)&collection->timer, freed);
    else
        freed((uv_handle_t *)&collection->timer);
}

struct sr_collection *sr_table_collection(struct sr_site *site, const struct sr_uuid *uuid)
{
    struct sr_collection *collection = *bucket_of(site, uuid);

    while (collection && !sr_uuid_equal(&collection->uuid, uuid))
        collection = collection->bucket_next;
    return collection;
}

struct sr_collection *sr_table_collection_called(struct sr_site *site, const char *name)
{
    struct sr_collection *collection;

    TAILQ_FOREACH (collection, &site->collections, link) {
        if (strcmp(collection->name, name) == 0)
            return collection;
    }
    return NULL;
}

struct sr_collection *sr_table_collection_named(struct sr_site *site, const char *name)
{
    struct sr_collection *collection = sr_table_collection_called(site, name);

    if (collection)
        return collection;
    struct sr_volume *volume = sr_table_volume_named(site, name);
    return volume ? volume->collection : NULL;
}

struct sr_site_pool *sr_table_pool_named(struct sr_site *site, const char *name)
{
    for (size_t i = 0; i < site->n_pools; i++) {
        if (strcmp(site->pools[i].name, name) == 0)
            return &site->pools[i];
    }
    return NULL;
}
