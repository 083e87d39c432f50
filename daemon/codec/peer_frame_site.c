/* peer_frame_site.c - the messages between sites: sr_site_msg <-> protobuf header.
 *
 * Names and texts of a peer end up in logs, on terminals and in file names: a name obeys base/names.h or the frame
 * is refused, and a text is made printable and cut.
 */
#include "codec/peer_frame_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- the rules ---------------------------------------------------------------------------------------- */

static const char *check_hello(const struct sr_site_hello *hello)
{
    if (hello->version_min < 1 || hello->version_min > hello->version_max)
        return "version_min: zero, or more than version_max";
    if (sr_uuid_is_none(&hello->site))
        return "site: missing";
    if (sr_uuid_is_none(&hello->group))
        return "group: missing";
    if (!sr_name_valid(hello->site_name, NULL))
        return "site_name: not a valid name";
    if (hello->boot == 0)
        return "boot: is zero";
    return NULL;
}

static const char *check_size(uint64_t size_bytes)
{
    if (size_bytes < SR_VOLUME_MIN_BYTES || size_bytes > SR_VOLUME_MAX_BYTES || size_bytes % SR_BLOCK_BYTES != 0)
        return "size_bytes: not whole blocks between 1 MiB and 64 TiB";
    return NULL;
}

static const char *check_catalog_volume(const struct sr_catalog_volume *volume)
{
    if (sr_uuid_is_none(&volume->uuid) || sr_uuid_is_none(&volume->collection))
        return "volumes: one without uuid or collection";
    if (!sr_name_valid(volume->name, NULL))
        return "volumes: one whose name is not valid";
    if (volume->state < 1 || volume->state > 3)
        return "volumes: one whose state is an unknown number";
    return check_size(volume->size_bytes);
}

static const char *check_catalog(const struct sr_site_catalog *catalog)
{
    if (catalog->n_volumes > SR_CATALOG_PART_MAX)
        return "volumes: more than 256 in one part";
    for (uint32_t i = 0; i < catalog->n_volumes; i++) {
        const char *wrong = check_catalog_volume(&catalog->volumes[i]);

        if (wrong)
            return wrong;
    }
    return NULL;
}

static const char *check_rpc(const struct sr_site_msg *msg)
{
    const struct sr_volume_rpc *rpc = &msg->rpc;

    if (rpc->verb < SR_VOLUME_PREPARE_CREATE || rpc->verb > SR_VOLUME_VERB_LAST)
        return "verb: unknown number";
    if (sr_uuid_is_none(&rpc->uuid))
        return "uuid: missing";
    if (rpc->name[0] && !sr_name_valid(rpc->name, NULL))
        return "name: not a valid name";
    if (rpc->pool[0] && !sr_name_valid(rpc->pool, NULL))
        return "pool: not a valid name";
    if (rpc->size_bytes > SR_VOLUME_MAX_BYTES || rpc->size_bytes % SR_BLOCK_BYTES != 0)
        return "size_bytes: not whole blocks up to 64 TiB";
    if (msg->type == SR_SITE_VOLUME_REQUEST && rpc->verb == SR_VOLUME_PREPARE_CREATE) {
        if (!rpc->name[0] || !rpc->pool[0] || sr_uuid_is_none(&rpc->collection))
            return "name, pool, collection: missing";
        return check_size(rpc->size_bytes);
    }
    return NULL;
}

const char *sr_frame_site_check(const struct sr_site_msg *msg)
{
    switch (msg->type) {
    case SR_SITE_HELLO:
        return check_hello(&msg->hello);
    case SR_SITE_HELLO_ACK:
        return msg->ack.version < 1 ? "version: is zero" : NULL;
    case SR_SITE_REFUSED:
    case SR_SITE_PING:
    case SR_SITE_PONG:
        return NULL;
    case SR_SITE_CATALOG:
        return check_catalog(&msg->catalog);
    case SR_SITE_VOLUME_REQUEST:
    case SR_SITE_VOLUME_REPLY:
        return check_rpc(msg);
    case SR_SITE_COLLECTION_ABSENT:
        return sr_uuid_is_none(&msg->collection) ? "collection: missing" : NULL;
    }
    return "type: unknown number";
}

/* ---- encoding ----------------------------------------------------------------------------------------- */

/* 0: does not fit. */
static size_t pack(const ProtobufCMessage *m, uint8_t *out, size_t capacity)
{
    size_t bytes = protobuf_c_message_get_packed_size(m);

    if (bytes > SR_FRAME_HEADER_MAX_BYTES || SR_FRAME_FIXED_BYTES + bytes > capacity)
        return 0;
    return SR_FRAME_FIXED_BYTES + protobuf_c_message_pack(m, out + SR_FRAME_FIXED_BYTES);
}

static size_t pack_hello(const struct sr_site_hello *hello, uint8_t *out, size_t capacity)
{
    Syncrep__Peer__SiteHello m = SYNCREP__PEER__SITE_HELLO__INIT;

    m.version_min = hello->version_min;
    m.version_max = hello->version_max;
    m.features = hello->features;
    m.site = sr_frame_give_uuid(&hello->site);
    m.group = sr_frame_give_uuid(&hello->group);
    m.site_name = (char *)hello->site_name;
    m.boot = hello->boot;
    m.connection = hello->connection;
    m.software = (char *)hello->software;
    return pack(&m.base, out, capacity);
}

static size_t pack_catalog(const struct sr_site_catalog *catalog, uint8_t *out, size_t capacity)
{
    Syncrep__Peer__SiteCatalog m = SYNCREP__PEER__SITE_CATALOG__INIT;
    Syncrep__Peer__CatalogVolume volumes[SR_CATALOG_PART_MAX];
    Syncrep__Peer__CatalogVolume *pointers[SR_CATALOG_PART_MAX];

    for (uint32_t i = 0; i < catalog->n_volumes; i++) {
        const struct sr_catalog_volume *from = &catalog->volumes[i];
        Syncrep__Peer__CatalogVolume *to = pointers[i] = &volumes[i];

        syncrep__peer__catalog_volume__init(to);
        to->uuid = sr_frame_give_uuid(&from->uuid);
        to->collection = sr_frame_give_uuid(&from->collection);
        to->name = (char *)from->name;
        to->size_bytes = from->size_bytes;
        to->state = from->state;
        to->creator = from->creator;
        to->imported = from->imported;
        to->write_back = from->write_back;
        to->pending_collection = sr_frame_give_uuid(&from->pending_collection);
    }
    m.part = catalog->part;
    m.last = catalog->last;
    m.n_volumes = catalog->n_volumes;
    m.volumes = pointers;
    return pack(&m.base, out, capacity);
}

static size_t pack_rpc(const struct sr_volume_rpc *rpc, uint8_t *out, size_t capacity)
{
    Syncrep__Peer__SiteVolumeRpc m = SYNCREP__PEER__SITE_VOLUME_RPC__INIT;

    m.request = rpc->request;
    m.verb = rpc->verb;
    m.uuid = sr_frame_give_uuid(&rpc->uuid);
    m.collection = sr_frame_give_uuid(&rpc->collection);
    m.name = (char *)rpc->name;
    m.size_bytes = rpc->size_bytes;
    m.imported = rpc->imported;
    m.pool = (char *)rpc->pool;
    m.generation = sr_frame_give_uuid(&rpc->generation);
    m.preallocate = rpc->preallocate;
    m.active = rpc->active;
    m.write_back = rpc->write_back;
    m.error = rpc->error;
    m.text = (char *)rpc->text;
    return pack(&m.base, out, capacity);
}

static size_t pack_small(const struct sr_site_msg *msg, uint8_t *out, size_t capacity)
{
    Syncrep__Peer__SiteHelloAck ack = SYNCREP__PEER__SITE_HELLO_ACK__INIT;
    Syncrep__Peer__SiteRefused refused = SYNCREP__PEER__SITE_REFUSED__INIT;
    Syncrep__Peer__SitePing ping = SYNCREP__PEER__SITE_PING__INIT;
    Syncrep__Peer__SiteCollectionAbsent absent = SYNCREP__PEER__SITE_COLLECTION_ABSENT__INIT;

    switch (msg->type) {
    case SR_SITE_HELLO_ACK:
        ack.version = msg->ack.version;
        ack.features = msg->ack.features;
        return pack(&ack.base, out, capacity);
    case SR_SITE_REFUSED:
        refused.code = msg->refused.code;
        refused.text = (char *)msg->refused.text;
        return pack(&refused.base, out, capacity);
    case SR_SITE_PING:
    case SR_SITE_PONG:
        ping.stamp = msg->stamp;
        return pack(&ping.base, out, capacity);
    case SR_SITE_COLLECTION_ABSENT:
        absent.collection = sr_frame_give_uuid(&msg->collection);
        return pack(&absent.base, out, capacity);
    default:
        SR_UNREACHABLE();
    }
}

size_t sr_frame_encode_site(uint8_t *out, size_t capacity, uint16_t version, const struct sr_site_msg *msg)
{
    size_t bytes;

    SR_ASSERT(sr_frame_site_check(msg) == NULL);
    switch (msg->type) {
    case SR_SITE_HELLO:
        bytes = pack_hello(&msg->hello, out, capacity);
        break;
    case SR_SITE_CATALOG:
        bytes = pack_catalog(&msg->catalog, out, capacity);
        break;
    case SR_SITE_VOLUME_REQUEST:
    case SR_SITE_VOLUME_REPLY:
        bytes = pack_rpc(&msg->rpc, out, capacity);
        break;
    default:
        bytes = pack_small(msg, out, capacity);
        break;
    }
    if (bytes == 0)
        return 0;
    return sr_frame_seal(out, version, (uint16_t)msg->type, bytes - SR_FRAME_FIXED_BYTES, 0, 0);
}

/* ---- decoding ----------------------------------------------------------------------------------------- */

/* A name that is too long to be one fails the check behind it: it is taken as "". */
static bool take_name(const char *from, char to[SR_NAME_BYTES])
{
    size_t bytes = strlen(from);

    if (bytes >= SR_NAME_BYTES)
        return false;
    memcpy(to, from, bytes + 1);
    return true;
}

/* Texts are for people: cut, and every byte that is not printable ASCII becomes '?'. */
static void take_text(const char *from, char *to, size_t to_bytes)
{
    size_t i;

    for (i = 0; from[i] && i + 1 < to_bytes; i++)
        to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
    to[i] = '\0';
}

static const char *take_hello(const void *from, struct sr_site_msg *msg)
{
    const Syncrep__Peer__SiteHello *m = from;
    struct sr_site_hello *hello = &msg->hello;

    if (m->version_min > UINT16_MAX || m->version_max > UINT16_MAX)
        return "version_max: more than 65535";
    if (!sr_frame_take_uuid(&m->site, &hello->site))
        return "site: not 16 bytes";
    if (!sr_frame_take_uuid(&m->group, &hello->group))
        return "group: not 16 bytes";
    if (!take_name(m->site_name, hello->site_name))
        return "site_name: too long";
    hello->version_min = (uint16_t)m->version_min;
    hello->version_max = (uint16_t)m->version_max;
    hello->features = m->features;
    hello->boot = m->boot;
    hello->connection = m->connection;
    take_text(m->software, hello->software, sizeof hello->software);
    return NULL;
}

static const char *take_ack(const void *from, struct sr_site_msg *msg)
{
    const Syncrep__Peer__SiteHelloAck *m = from;

    if (m->version > UINT16_MAX)
        return "version: more than 65535";
    msg->ack.version = (uint16_t)m->version;
    msg->ack.features = m->features;
    return NULL;
}

static const char *take_refused(const void *from, struct sr_site_msg *msg)
{
    const Syncrep__Peer__SiteRefused *m = from;

    msg->refused.code = sr_error_from_wire(m->code);
    take_text(m->text, msg->refused.text, sizeof msg->refused.text);
    return NULL;
}

static const char *take_ping(const void *from, struct sr_site_msg *msg)
{
    const Syncrep__Peer__SitePing *m = from;

    msg->stamp = m->stamp;
    return NULL;
}

static const char *take_catalog(const void *from, struct sr_site_msg *msg)
{
    const Syncrep__Peer__SiteCatalog *m = from;
    struct sr_site_catalog *catalog = &msg->catalog;

    if (m->n_volumes > SR_CATALOG_PART_MAX)
        return "volumes: more than 256 in one part";
    catalog->part = m->part;
    catalog->last = m->last;
    if (m->n_volumes == 0)
        return NULL;
    catalog->volumes = calloc(m->n_volumes, sizeof *catalog->volumes);
    if (!catalog->volumes)
        return "no memory";
    catalog->n_volumes = (uint32_t)m->n_volumes;
    for (size_t i = 0; i < m->n_volumes; i++) {
        const Syncrep__Peer__CatalogVolume *v = m->volumes[i];
        struct sr_catalog_volume *to = &catalog->volumes[i];

        if (!sr_frame_take_uuid(&v->uuid, &to->uuid) || !sr_frame_take_uuid(&v->collection, &to->collection))
            return "volumes: an identity that is not 16 bytes";
        if (!sr_frame_take_uuid(&v->pending_collection, &to->pending_collection))
            return "volumes: a pending collection that is not 16 bytes";
        if (!take_name(v->name, to->name))
            return "volumes: one whose name is too long";
        to->size_bytes = v->size_bytes;
        to->state = v->state;
        to->creator = v->creator;
        to->imported = v->imported;
        to->write_back = v->write_back;
    }
    return NULL;
}

static const char *take_rpc(const void *from, struct sr_site_msg *msg)
{
    const Syncrep__Peer__SiteVolumeRpc *m = from;
    struct sr_volume_rpc *rpc = &msg->rpc;

    if (m->verb > SR_VOLUME_VERB_LAST)
        return "verb: unknown number";
    if (!sr_frame_take_uuid(&m->uuid, &rpc->uuid))
        return "uuid: not 16 bytes";
    if (!sr_frame_take_uuid(&m->collection, &rpc->collection))
        return "collection: not 16 bytes";
    if (!sr_frame_take_uuid(&m->generation, &rpc->generation))
        return "generation: not 16 bytes";
    if (!take_name(m->name, rpc->name))
        return "name: too long";
    if (!take_name(m->pool, rpc->pool))
        return "pool: too long";
    rpc->request = m->request;
    rpc->verb = (enum sr_volume_verb)m->verb;
    rpc->size_bytes = m->size_bytes;
    rpc->imported = m->imported;
    rpc->preallocate = m->preallocate;
    rpc->active = m->active;
    rpc->write_back = m->write_back;
    rpc->error = sr_error_from_wire(m->error);
    take_text(m->text, rpc->text, sizeof rpc->text);
    return NULL;
}

static const char *take_absent(const void *from, struct sr_site_msg *msg)
{
    const Syncrep__Peer__SiteCollectionAbsent *m = from;

    return sr_frame_take_uuid(&m->collection, &msg->collection) ? NULL : "collection: not 16 bytes";
}

struct decoder {
    uint16_t type;
    const ProtobufCMessageDescriptor *descriptor;
    const char *(*take)(const void *from, struct sr_site_msg *msg);
};

static const struct decoder decoders[] = {
    {SR_SITE_HELLO, &syncrep__peer__site_hello__descriptor, take_hello},
    {SR_SITE_HELLO_ACK, &syncrep__peer__site_hello_ack__descriptor, take_ack},
    {SR_SITE_REFUSED, &syncrep__peer__site_refused__descriptor, take_refused},
    {SR_SITE_PING, &syncrep__peer__site_ping__descriptor, take_ping},
    {SR_SITE_PONG, &syncrep__peer__site_ping__descriptor, take_ping},
    {SR_SITE_CATALOG, &syncrep__peer__site_catalog__descriptor, take_catalog},
    {SR_SITE_VOLUME_REQUEST, &syncrep__peer__site_volume_rpc__descriptor, take_rpc},
    {SR_SITE_VOLUME_REPLY, &syncrep__peer__site_volume_rpc__descriptor, take_rpc},
    {SR_SITE_COLLECTION_ABSENT, &syncrep__peer__site_collection_absent__descriptor, take_absent},
};

#define COUNT_ONE(name, number) +1
_Static_assert(sizeof decoders / sizeof decoders[0] == 0 SR_SITE_MSGS(COUNT_ONE), "a decoder for each message");
#undef COUNT_ONE

enum sr_error sr_frame_unpack_site(const struct sr_frame_fixed *fixed, const uint8_t *header,
                                   ProtobufCAllocator *memory, struct sr_frame *frame, const char **wrong)
{
    const struct decoder *decoder = decoders;
    ProtobufCMessage *m;

    if (fixed->payload_bytes != 0) {
        *wrong = "payload_len: this message has none";
        return SR_E_PROTOCOL;
    }
    while (decoder->type != fixed->type)
        decoder++;
    frame->site = sr_site_msg_new((enum sr_site_msg_type)fixed->type);
    if (!frame->site) {
        *wrong = "no memory";
        return SR_E_NO_MEMORY;
    }
    m = protobuf_c_message_unpack(decoder->descriptor, memory, fixed->header_bytes, header);
    if (!m) {
        *wrong = "protobuf header: malformed, or asks for too much memory";
        return SR_E_PROTOCOL;
    }
    *wrong = decoder->take(m, frame->site);
    if (!*wrong)
        *wrong = sr_frame_site_check(frame->site);
    protobuf_c_message_free_unpacked(m, memory);
    return *wrong ? SR_E_PROTOCOL : SR_OK;
}
