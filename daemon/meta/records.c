/* records.c - Site, Volume and Collection to and from protobuf (store.proto).
 *
 * protobuf-c bounds neither memory nor unknown fields when it unpacks: an allocator with a budget does the
 * first (F4), a look at n_unknown_fields the second (F3).  The messages do not nest recursively.  Packing
 * borrows every string and UUID from the struct, so it allocates nothing.
 *
 * Pure functions: nothing here can be interrupted by a crash.
 */
#include "meta/records.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/names.h"
#include "store.pb-c.h"

#define BODY_MAX_BYTES (SR_META_VALUE_MAX_BYTES - SR_META_HEADER_BYTES)

_Static_assert(SR_NAME_MAX == SR_NAME_MAX_BYTES, "one bound for names");
_Static_assert((int)SR_VOLUME_PENDING == SYNCREP__STORE__VOLUME_STATE__VOLUME_STATE_PENDING, "disk number");
_Static_assert((int)SR_VOLUME_LIVE == SYNCREP__STORE__VOLUME_STATE__VOLUME_STATE_LIVE, "disk number");
_Static_assert((int)SR_VOLUME_DELETING == SYNCREP__STORE__VOLUME_STATE__VOLUME_STATE_DELETING, "disk number");
_Static_assert((int)SR_ROLE_ALTERNATE == SYNCREP__STORE__ROLE__ROLE_ALTERNATE, "disk number");
_Static_assert((int)SR_ROLE_ACTIVE == SYNCREP__STORE__ROLE__ROLE_ACTIVE, "disk number");
_Static_assert((int)SR_MADE_CREATED == SYNCREP__STORE__MADE_BY__MADE_BY_CREATED, "disk number");
_Static_assert((int)SR_MADE_ALONE == SYNCREP__STORE__MADE_BY__MADE_BY_ALONE, "disk number");
_Static_assert((int)SR_MADE_FAILOVER == SYNCREP__STORE__MADE_BY__MADE_BY_FAILOVER, "disk number");
_Static_assert((int)SR_MADE_FORCED == SYNCREP__STORE__MADE_BY__MADE_BY_FORCED, "disk number");
_Static_assert((int)SR_BASE_NONE == SYNCREP__STORE__BASE_KIND__BASE_KIND_NONE, "disk number");
_Static_assert((int)SR_BASE_KNOWN == SYNCREP__STORE__BASE_KIND__BASE_KIND_KNOWN, "disk number");
_Static_assert((int)SR_BASE_UNKNOWN == SYNCREP__STORE__BASE_KIND__BASE_KIND_UNKNOWN, "disk number");

/* ---- an allocator with a budget -------------------------------------------------------------------- */

struct budget {
    size_t left_bytes;
};

static void *budget_alloc(void *arg, size_t bytes)
{
    struct budget *budget = arg;
    if (bytes > budget->left_bytes)
        return NULL;
    budget->left_bytes -= bytes; /* never given back: it bounds the whole message */
    return malloc(bytes > 0 ? bytes : 1);
}

static void budget_free(void *arg, void *memory)
{
    (void)arg;
    free(memory);
}

/* NULL: malformed, or more memory than any genuine record needs. */
static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *descriptor, const uint8_t *body, size_t bytes)
{
    struct budget budget = {.left_bytes = SR_META_PARSE_BUDGET_BYTES};
    ProtobufCAllocator allocator = {.alloc = budget_alloc, .free = budget_free, .allocator_data = &budget};

    if (bytes > BODY_MAX_BYTES)
        return NULL;
    return protobuf_c_message_unpack(descriptor, &allocator, bytes, body);
}

static void free_unpacked(ProtobufCMessage *message)
{
    struct budget budget = {0};
    ProtobufCAllocator allocator = {.alloc = budget_alloc, .free = budget_free, .allocator_data = &budget};
    protobuf_c_message_free_unpacked(message, &allocator);
}

static enum sr_error corrupt(const char **why, const char *text)
{
    *why = text;
    return SR_E_CORRUPT;
}

static enum sr_error newer(const char **why)
{
    *why = "written by a newer syncrep";
    return SR_E_VERSION;
}

/* ---- fields ---------------------------------------------------------------------------------------- */

/* Borrows the UUID: it must outlive the packing.  None is stored as empty. */
static ProtobufCBinaryData put_uuid(const struct sr_uuid *uuid)
{
    ProtobufCBinaryData data = {0};
    if (!sr_uuid_is_none(uuid)) {
        data.len = SR_UUID_BYTES;
        data.data = (uint8_t *)uuid->b;
    }
    return data;
}

/* Sixteen zeroes are not a second spelling of "none". */
static bool get_uuid(const ProtobufCBinaryData *data, struct sr_uuid *uuid)
{
    memset(uuid, 0, sizeof(*uuid));
    if (data->len == 0)
        return true;
    if (data->len != SR_UUID_BYTES)
        return false;
    memcpy(uuid->b, data->data, SR_UUID_BYTES);
    return !sr_uuid_is_none(uuid);
}

/* protobuf-c ends a string at its first NUL; bytes hidden behind one are lost, which the CRC has ruled out for
 * anything but a foreign writer. */
static bool get_text(const char *text, char *out, size_t out_bytes)
{
    size_t length = strlen(text);
    if (length >= out_bytes)
        return false;
    memcpy(out, text, length + 1);
    return true;
}

static bool get_name(const char *text, char *out)
{
    return get_text(text, out, SR_NAME_MAX + 1) && sr_name_valid(out, NULL);
}

static size_t pack(const ProtobufCMessage *message, uint8_t *body)
{
    size_t bytes = protobuf_c_message_get_packed_size(message);
    SR_ASSERT(bytes <= BODY_MAX_BYTES);
    SR_ASSERT(protobuf_c_message_pack(message, body) == bytes);
    return bytes;
}

/* ---- site ------------------------------------------------------------------------------------------ */

size_t sr_meta_pack_site(const struct sr_meta_site *site, uint8_t *body)
{
    Syncrep__Store__Site message = SYNCREP__STORE__SITE__INIT;
    message.uuid = put_uuid(&site->uuid);
    message.group = put_uuid(&site->group);
    message.peer = put_uuid(&site->peer);
    message.boot = site->boot;
    message.name = (char *)site->name;
    return pack(&message.base, body);
}

static enum sr_error take_site(const Syncrep__Store__Site *message, struct sr_meta_site *site, const char **why)
{
    if (message->base.n_unknown_fields != 0)
        return newer(why);
    if (!get_uuid(&message->uuid, &site->uuid) || sr_uuid_is_none(&site->uuid))
        return corrupt(why, "invalid uuid");
    if (!get_uuid(&message->group, &site->group))
        return corrupt(why, "invalid group");
    if (!get_uuid(&message->peer, &site->peer))
        return corrupt(why, "invalid peer");
    if (!get_name(message->name, site->name))
        return corrupt(why, "invalid name");
    site->boot = message->boot;
    return SR_OK;
}

enum sr_error sr_meta_unpack_site(const uint8_t *body, size_t bytes, struct sr_meta_site *site, const char **why)
{
    ProtobufCMessage *message = unpack(&syncrep__store__site__descriptor, body, bytes);
    if (message == NULL)
        return corrupt(why, "malformed record");
    enum sr_error error = take_site((Syncrep__Store__Site *)message, site, why);
    free_unpacked(message);
    return error;
}

/* ---- volume ---------------------------------------------------------------------------------------- */

size_t sr_meta_pack_volume(const struct sr_meta_volume *volume, uint8_t *body)
{
    Syncrep__Store__Volume message = SYNCREP__STORE__VOLUME__INIT;
    message.collection = put_uuid(&volume->collection);
    message.state = (Syncrep__Store__VolumeState)volume->state;
    message.name = (char *)volume->name;
    message.pool = (char *)volume->pool;
    message.pool_uuid = put_uuid(&volume->pool_uuid);
    message.path = (char *)volume->path;
    message.size_bytes = volume->size_bytes;
    message.imported = volume->imported;
    message.creator = volume->creator;
    message.created_wall_ms = volume->created_wall_ms;
    message.pending_collection = put_uuid(&volume->pending_collection);
    message.pending_name = (char *)volume->pending_name;
    message.device = (char *)volume->device;
    message.write_back = volume->write_back;
    return pack(&message.base, body);
}

static enum sr_error take_volume(const Syncrep__Store__Volume *message, struct sr_meta_volume *volume,
                                 const char **why)
{
    if (message->base.n_unknown_fields != 0)
        return newer(why);
    if (!get_uuid(&message->collection, &volume->collection) || sr_uuid_is_none(&volume->collection))
        return corrupt(why, "invalid collection");
    if ((int)message->state < SR_VOLUME_PENDING || (int)message->state > SR_VOLUME_DELETING)
        return corrupt(why, "invalid state");
    if (!get_name(message->name, volume->name))
        return corrupt(why, "invalid name");
    if (message->pool[0] != '\0' && !get_name(message->pool, volume->pool))
        return corrupt(why, "invalid pool");
    if (!get_uuid(&message->pool_uuid, &volume->pool_uuid))
        return corrupt(why, "invalid pool_uuid");
    if (!get_text(message->path, volume->path, sizeof(volume->path)) ||
        (volume->path[0] != '\0' && volume->path[0] != '/'))
        return corrupt(why, "invalid path");
    if (message->size_bytes < SR_VOLUME_MIN_BYTES || message->size_bytes > SR_VOLUME_MAX_BYTES ||
        message->size_bytes % SR_BLOCK_BYTES != 0)
        return corrupt(why, "invalid size_bytes");
    volume->state = (enum sr_volume_state)message->state;
    volume->size_bytes = message->size_bytes;
    volume->imported = message->imported != 0;
    volume->write_back = message->write_back != 0;
    volume->creator = message->creator != 0;
    volume->created_wall_ms = message->created_wall_ms;
    if (!get_uuid(&message->pending_collection, &volume->pending_collection))
        return corrupt(why, "invalid pending_collection");
    bool pending = !sr_uuid_is_none(&volume->pending_collection);
    if (pending ? !get_name(message->pending_name, volume->pending_name) : message->pending_name[0] != '\0')
        return corrupt(why, "invalid pending_name");
    if (!get_text(message->device, volume->device, sizeof(volume->device)))
        return corrupt(why, "invalid device");
    return SR_OK;
}

enum sr_error sr_meta_unpack_volume(const uint8_t *body, size_t bytes, struct sr_meta_volume *volume,
                                    const char **why)
{
    ProtobufCMessage *message = unpack(&syncrep__store__volume__descriptor, body, bytes);
    if (message == NULL)
        return corrupt(why, "malformed record");
    enum sr_error error = take_volume((Syncrep__Store__Volume *)message, volume, why);
    free_unpacked(message);
    return error;
}

/* ---- collection ------------------------------------------------------------------------------------ */

size_t sr_meta_pack_collection(const struct sr_meta_collection *collection, uint8_t *body)
{
    const struct sr_record *record = &collection->record;
    ProtobufCBinaryData ancestors[SR_ANCESTORS_MAX];
    Syncrep__Store__Collection message = SYNCREP__STORE__COLLECTION__INIT;
    Syncrep__Store__Lineage lineage = SYNCREP__STORE__LINEAGE__INIT;

    SR_ASSERT(record->n_ancestors <= SR_ANCESTORS_MAX);
    for (uint32_t i = 0; i < record->n_ancestors; i++)
        ancestors[i] = put_uuid(&record->ancestors[i]);
    lineage.role = (Syncrep__Store__Role)record->role;
    lineage.gen = put_uuid(&record->gen);
    lineage.made_by = (Syncrep__Store__MadeBy)record->made_by;
    lineage.base_kind = (Syncrep__Store__BaseKind)record->base_kind;
    lineage.base_gen = put_uuid(&record->base);
    lineage.n_ancestors = record->n_ancestors;
    lineage.ancestors = ancestors;
    lineage.consistent = record->consistent;
    lineage.failed = record->failed;
    lineage.completing = record->completing;
    lineage.handover = record->handover;
    lineage.discard = record->discard;
    lineage.discard_mine = put_uuid(&record->discard_mine);
    lineage.discard_peer = put_uuid(&record->discard_peer);
    lineage.paused = record->paused;
    lineage.pause_counter = record->pause_counter;
    lineage.gen_wall_ms = record->gen_wall_ms;
    lineage.synced_wall_ms = record->synced_wall_ms;
    lineage.failed_volume = put_uuid(&record->failed_volume);
    message.name = (char *)collection->name;
    message.lineage = &lineage;
    return pack(&message.base, body);
}

static enum sr_error take_lineage(const Syncrep__Store__Lineage *message, struct sr_record *record, const char **why)
{
    if (message->base.n_unknown_fields != 0)
        return newer(why);
    if (message->n_ancestors > SR_ANCESTORS_MAX)
        return corrupt(why, "too many ancestors");
    record->n_ancestors = (uint32_t)message->n_ancestors;
    for (uint32_t i = 0; i < record->n_ancestors; i++) {
        if (!get_uuid(&message->ancestors[i], &record->ancestors[i]) || sr_uuid_is_none(&record->ancestors[i]))
            return corrupt(why, "invalid ancestor");
    }
    if (!get_uuid(&message->gen, &record->gen) || !get_uuid(&message->base_gen, &record->base) ||
        !get_uuid(&message->discard_mine, &record->discard_mine) ||
        !get_uuid(&message->discard_peer, &record->discard_peer) ||
        !get_uuid(&message->failed_volume, &record->failed_volume))
        return corrupt(why, "invalid generation");
    record->role = (enum sr_role)message->role;
    record->made_by = (enum sr_made_by)message->made_by;
    record->base_kind = (enum sr_base_kind)message->base_kind;
    record->consistent = message->consistent != 0;
    record->failed = message->failed != 0;
    record->completing = message->completing != 0;
    record->handover = message->handover != 0;
    record->discard = message->discard != 0;
    record->paused = message->paused != 0;
    record->pause_counter = message->pause_counter;
    record->gen_wall_ms = message->gen_wall_ms;
    record->synced_wall_ms = message->synced_wall_ms;
    return sr_record_valid(record, why) ? SR_OK : SR_E_CORRUPT;
}

static enum sr_error take_collection(const Syncrep__Store__Collection *message, struct sr_meta_collection *collection,
                                     const char **why)
{
    if (message->base.n_unknown_fields != 0)
        return newer(why);
    if (!get_name(message->name, collection->name))
        return corrupt(why, "invalid name");
    if (message->lineage == NULL)
        return corrupt(why, "no lineage");
    return take_lineage(message->lineage, &collection->record, why);
}

enum sr_error sr_meta_unpack_collection(const uint8_t *body, size_t bytes, struct sr_meta_collection *collection,
                                        const char **why)
{
    ProtobufCMessage *message = unpack(&syncrep__store__collection__descriptor, body, bytes);
    if (message == NULL)
        return corrupt(why, "malformed record");
    enum sr_error error = take_collection((Syncrep__Store__Collection *)message, collection, why);
    free_unpacked(message);
    return error;
}
