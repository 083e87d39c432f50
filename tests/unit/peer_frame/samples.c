/* samples.c - see samples.h */
#include "samples.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const enum sr_peer_msg_type all_peer_types[] = {
#define TYPE(name, number) SR_MSG_##name,
    SR_PEER_MSGS(TYPE)
#undef TYPE
};
const unsigned n_peer_types = sizeof all_peer_types / sizeof all_peer_types[0];

const enum sr_site_msg_type all_site_types[] = {
#define TYPE(name, number) SR_SITE_##name,
    SR_SITE_MSGS(TYPE)
#undef TYPE
};
const unsigned n_site_types = sizeof all_site_types / sizeof all_site_types[0];

struct sr_uuid sample_uuid(uint8_t first)
{
    struct sr_uuid uuid;

    for (int i = 0; i < SR_UUID_BYTES; i++)
        uuid.b[i] = (uint8_t)(first + i);
    return uuid;
}

static void give_payload(struct sr_peer_msg *msg, uint32_t bytes, uint32_t offset, uint8_t seed)
{
    msg->payload_bytes = bytes;
    msg->payload_offset = offset;
    if (bytes == 0)
        return;
    msg->payload = sr_buf_alloc(NULL, (size_t)bytes + offset);
    if (!msg->payload)
        abort();
    for (uint32_t i = 0; i < bytes; i++)
        msg->payload->data[offset + i] = (uint8_t)(seed + i * 7 + (i >> 8));
}

static void sample_record(struct sr_record *record)
{
    record->role = SR_ROLE_ACTIVE;
    record->gen = sample_uuid(0x10);
    record->made_by = SR_MADE_ALONE;
    record->base_kind = SR_BASE_KNOWN;
    record->base = sample_uuid(0x20);
    record->n_ancestors = 2;
    record->ancestors[0] = sample_uuid(0x20);
    record->ancestors[1] = sample_uuid(0x30);
    record->consistent = true;
    record->paused = true;
    record->pause_counter = 300;
}

struct sr_peer_msg *sample_msg(enum sr_peer_msg_type type)
{
    struct sr_peer_msg *msg = sr_peer_msg_new(type, 0x1122334455);

    switch (type) {
    case SR_MSG_HELLO:
        sample_record(&msg->greeting.record);
        msg->greeting.map_empty = true;
        return msg;
    case SR_MSG_BYE:
        msg->cause = 3;
        return msg;
    case SR_MSG_MAP:
        msg->last = true;
        msg->everything = true;
        msg->n_entries = 2;
        give_payload(msg, 2 * SR_MAP_ENTRY_BYTES, 0, 1);
        return msg;
    case SR_MSG_START:
        msg->lineage.gen = sample_uuid(0x40);
        msg->lineage.made_by = SR_MADE_FAILOVER;
        msg->lineage.paused = true;
        msg->lineage.pause_counter = 7;
        return msg;
    case SR_MSG_COMPLETE:
        msg->lineage.n_ancestors = 2;
        msg->lineage.ancestors[0] = sample_uuid(0x50);
        msg->lineage.ancestors[1] = sample_uuid(0x60);
        return msg;
    case SR_MSG_STARTED:
        return msg;
    case SR_MSG_COMPLETED:
        msg->error = SR_E_IO;
        return msg;
    case SR_MSG_PROBED:
        sample_record(&msg->greeting.record);
        msg->greeting.record.gen_wall_ms = 1700000000000;
        msg->greeting.record.synced_wall_ms = 1700000000001;
        msg->greeting.dirty_blocks = 500;
        msg->id = 78;
        return msg;
    case SR_MSG_TAKE:
        msg->n_forwards = 9;
        return msg;
    case SR_MSG_TAKEN:
        return msg;
    case SR_MSG_READY:
        msg->error = SR_E_BUSY;
        msg->id = 79;
        return msg;
    case SR_MSG_PREPARE:
    case SR_MSG_PROBE:
        msg->id = 79;
        return msg;
    default:
        break;
    }
    msg->id = 77;
    msg->volume = 3;
    msg->offset_bytes = 1 << 20;
    msg->length_bytes = 2 * SR_BLOCK_BYTES;
    if (type == SR_MSG_WRITE || type == SR_MSG_COPY || type == SR_MSG_FORWARD)
        give_payload(msg, 2 * SR_BLOCK_BYTES, 0, 9);
    else if (type == SR_MSG_HASH)
        give_payload(msg, 2 * SR_DIGEST_BYTES, 0, 5);
    else if (type == SR_MSG_FETCHED)
        give_payload(msg, 2 * SR_BLOCK_BYTES, 0, 4);
    else if (type != SR_MSG_FETCH && type != SR_MSG_FLUSH)
        msg->error = SR_E_NO_SPACE;
    if (type == SR_MSG_HASHED)
        msg->differs[0] = 2;
    if (type == SR_MSG_COPY)
        msg->may_trim = true;
    return msg;
}

static void sample_rpc(struct sr_volume_rpc *rpc)
{
    rpc->request = 9;
    rpc->verb = SR_VOLUME_PREPARE_CREATE;
    rpc->uuid = sample_uuid(0x70);
    rpc->collection = sample_uuid(0x80);
    snprintf(rpc->name, sizeof rpc->name, "vol-1");
    snprintf(rpc->pool, sizeof rpc->pool, "fast");
    rpc->size_bytes = 64 * SR_MIB;
    rpc->imported = rpc->preallocate = rpc->active = true;
    rpc->generation = sample_uuid(0x90);
}

static void sample_catalog(struct sr_site_catalog *catalog, uint32_t n)
{
    catalog->part = 1;
    catalog->last = true;
    catalog->n_volumes = n;
    catalog->volumes = calloc(n, sizeof *catalog->volumes);
    for (uint32_t i = 0; i < n; i++) {
        struct sr_catalog_volume *volume = &catalog->volumes[i];

        volume->uuid = sample_uuid((uint8_t)(0xa0 + i));
        volume->collection = sample_uuid((uint8_t)(0xb0 + i));
        snprintf(volume->name, sizeof volume->name, "volume-%u", i);
        volume->size_bytes = (i + 1) * SR_GIB;
        volume->state = 1 + i % 3;
        volume->creator = i % 2;
        volume->imported = !volume->creator;
    }
}

struct sr_site_msg *sample_site(enum sr_site_msg_type type)
{
    struct sr_site_msg *msg = sr_site_msg_new(type);

    switch (type) {
    case SR_SITE_HELLO:
        msg->hello.version_min = 1;
        msg->hello.version_max = 3;
        msg->hello.features = 0x8000000000000001;
        msg->hello.site = sample_uuid(1);
        msg->hello.group = sample_uuid(0xc0);
        snprintf(msg->hello.site_name, sizeof msg->hello.site_name, "site-a");
        msg->hello.boot = 12;
        msg->hello.connection = 34;
        snprintf(msg->hello.software, sizeof msg->hello.software, "syncrep 0.1.0");
        break;
    case SR_SITE_HELLO_ACK:
        msg->ack.version = 1;
        msg->ack.features = 5;
        break;
    case SR_SITE_REFUSED:
        msg->refused.code = SR_E_VERSION;
        snprintf(msg->refused.text, sizeof msg->refused.text, "too new");
        break;
    case SR_SITE_PING:
    case SR_SITE_PONG:
        msg->stamp = 0x0102030405060708;
        break;
    case SR_SITE_CATALOG:
        sample_catalog(&msg->catalog, 2);
        break;
    case SR_SITE_VOLUME_REQUEST:
        sample_rpc(&msg->rpc);
        break;
    case SR_SITE_VOLUME_REPLY:
        sample_rpc(&msg->rpc);
        msg->rpc.error = SR_E_EXISTS;
        snprintf(msg->rpc.text, sizeof msg->rpc.text, "exists already");
        break;
    case SR_SITE_COLLECTION_ABSENT:
        msg->collection = sample_uuid(0xd0);
        break;
    }
    return msg;
}

/* ---- random ------------------------------------------------------------------------------------------- */

uint64_t random_next(struct random *random)
{
    uint64_t z = (random->state += 0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

uint64_t random_below(struct random *random, uint64_t n)
{
    return random_next(random) % n;
}

/* Small and large numbers alike. */
static uint64_t random_wide(struct random *random)
{
    return random_next(random) >> random_below(random, 64);
}

static struct sr_uuid random_uuid(struct random *random)
{
    struct sr_uuid uuid;
    uint64_t halves[2] = {random_next(random), random_next(random)};

    memcpy(&uuid, halves, sizeof uuid);
    return uuid;
}

static void random_record(struct random *random, struct sr_record *record)
{
    const char *why;

    do {
        memset(record, 0, sizeof *record);
        record->role = (enum sr_role)random_below(random, 2);
        if (random_below(random, 8))
            record->gen = random_uuid(random);
        record->made_by = (enum sr_made_by)random_below(random, 4);
        record->base_kind = (enum sr_base_kind)random_below(random, 3);
        if (record->base_kind == SR_BASE_KNOWN)
            record->base = random_below(random, 2) ? record->gen : random_uuid(random);
        record->n_ancestors = (uint32_t)random_below(random, SR_ANCESTORS_MAX + 1);
        for (uint32_t i = 0; i < record->n_ancestors; i++)
            record->ancestors[i] = random_uuid(random);
        record->consistent = random_below(random, 2);
        record->failed = random_below(random, 4) == 0;
        record->completing = random_below(random, 4) == 0;
        record->handover = random_below(random, 4) == 0;
        record->discard = random_below(random, 4) == 0;
        if (record->discard) {
            record->discard_mine = random_uuid(random);
            record->discard_peer = random_uuid(random);
        }
        record->paused = random_below(random, 2);
        record->pause_counter = random_wide(random);
        record->gen_wall_ms = random_wide(random);
        record->synced_wall_ms = random_wide(random);
        if (record->failed)
            record->failed_volume = random_uuid(random);
    } while (!sr_record_valid(record, &why));
}

static void random_greeting(struct random *random, struct sr_greeting *greeting)
{
    random_record(random, &greeting->record);
    greeting->map_empty = random_below(random, 2);
    if (random_below(random, 2))
        greeting->boot = random_uuid(random);
    greeting->flushes = random_wide(random);
}

static void random_range(struct random *random, struct sr_peer_msg *msg, uint64_t unit, uint64_t max)
{
    msg->length_bytes = unit * (1 + random_below(random, max / unit));
    msg->offset_bytes = unit * random_below(random, (SR_VOLUME_MAX_BYTES - msg->length_bytes) / unit + 1);
}

struct sr_peer_msg *random_msg(struct random *random)
{
    enum sr_peer_msg_type type = all_peer_types[random_below(random, n_peer_types)];
    struct sr_peer_msg *msg = sr_peer_msg_new(type, random_wide(random));
    uint32_t offset = (uint32_t)random_below(random, 3) * 100;

    switch (type) {
    case SR_MSG_HELLO:
        random_greeting(random, &msg->greeting);
        return msg;
    case SR_MSG_BYE:
        msg->cause = (uint32_t)random_below(random, 20);
        return msg;
    case SR_MSG_MAP:
        msg->last = random_below(random, 2);
        msg->everything = random_below(random, 2);
        msg->n_entries = (uint32_t)random_below(random, 20);
        give_payload(msg, msg->n_entries * SR_MAP_ENTRY_BYTES, offset, (uint8_t)offset);
        return msg;
    case SR_MSG_START:
        msg->lineage.gen = random_uuid(random);
        msg->lineage.made_by = (enum sr_made_by)random_below(random, 4);
        msg->lineage.paused = random_below(random, 2);
        msg->lineage.pause_counter = random_wide(random);
        msg->lineage.gen_wall_ms = random_wide(random);
        return msg;
    case SR_MSG_COMPLETE:
        msg->lineage.n_ancestors = (uint32_t)random_below(random, SR_ANCESTORS_MAX + 1);
        for (uint32_t i = 0; i < msg->lineage.n_ancestors; i++)
            msg->lineage.ancestors[i] = random_uuid(random);
        return msg;
    case SR_MSG_STARTED:
        return msg;
    case SR_MSG_COMPLETED:
        msg->error = (enum sr_error)random_below(random, 24);
        return msg;
    case SR_MSG_PROBED:
        random_greeting(random, &msg->greeting);
        msg->greeting.dirty_blocks = random_wide(random);
        msg->id = random_wide(random);
        return msg;
    case SR_MSG_PREPARE:
    case SR_MSG_READY:
    case SR_MSG_TAKE:
    case SR_MSG_TAKEN:
    case SR_MSG_PROBE:
        msg->id = random_wide(random);
        msg->error = (enum sr_error)random_below(random, 24);
        msg->n_forwards = (uint32_t)random_wide(random);
        return msg;
    default:
        break;
    }
    msg->id = random_wide(random);
    msg->volume = (uint32_t)random_wide(random);
    if (type == SR_MSG_WRITE || type == SR_MSG_COPY) {
        msg->content = (enum sr_content)random_below(random, type == SR_MSG_WRITE ? 3 : 2);
        msg->may_trim = random_below(random, 2);
        msg->cached = type == SR_MSG_WRITE && random_below(random, 2);
        random_range(random, msg, type == SR_MSG_WRITE ? 1 : SR_BLOCK_BYTES, 8 * SR_BLOCK_BYTES);
    } else if (type == SR_MSG_FORWARD) {
        msg->content = (enum sr_content)random_below(random, 4);
        msg->may_trim = random_below(random, 2);
        msg->fua = random_below(random, 2);
        random_range(random, msg, 1, 8 * SR_BLOCK_BYTES);
    } else if (type == SR_MSG_FLUSH || type == SR_MSG_FLUSHED) {
        msg->length_bytes = 0;
    } else {
        random_range(random, msg, SR_BLOCK_BYTES, SR_RUN_MAX_BLOCKS * SR_BLOCK_BYTES);
    }
    if (type == SR_MSG_FETCHED || type == SR_MSG_FORWARDED)
        msg->length_bytes %= 5 * SR_BLOCK_BYTES;
    if (type == SR_MSG_WRITTEN || type == SR_MSG_COPIED || type == SR_MSG_HASHED || type == SR_MSG_FLUSHED ||
        ((type == SR_MSG_FETCHED || type == SR_MSG_FORWARDED) &&
         (msg->length_bytes == 0 || random_below(random, 4) == 0)))
        msg->error = (enum sr_error)(1 + random_below(random, 23));
    if (type == SR_MSG_HASHED)
        for (size_t i = 0; i < sizeof msg->differs; i++)
            msg->differs[i] = (uint8_t)random_next(random);
    if ((type == SR_MSG_WRITE || type == SR_MSG_COPY || type == SR_MSG_FORWARD) && msg->content == SR_CONTENT_DATA)
        give_payload(msg, (uint32_t)msg->length_bytes, offset, (uint8_t)msg->id);
    else if (type == SR_MSG_HASH)
        give_payload(msg, (uint32_t)(msg->length_bytes / SR_BLOCK_BYTES) * SR_DIGEST_BYTES, offset, (uint8_t)msg->id);
    else if ((type == SR_MSG_FETCHED || type == SR_MSG_FORWARDED) && msg->error == SR_OK)
        give_payload(msg, (uint32_t)msg->length_bytes, offset, (uint8_t)msg->id);
    if ((type == SR_MSG_FETCHED || type == SR_MSG_FORWARDED) &&
        random_below(random, 2)) /* an answer may leave its range out */
        msg->offset_bytes = msg->length_bytes = 0;
    return msg;
}

static void random_name(struct random *random, char name[SR_NAME_BYTES])
{
    static const char letters[] = "abcXYZ019_.-";
    size_t bytes = 1 + random_below(random, SR_NAME_MAX_BYTES);

    memset(name, 0, SR_NAME_BYTES);
    name[0] = 'n';
    for (size_t i = 1; i < bytes; i++)
        name[i] = letters[random_below(random, sizeof letters - 1)];
}

struct sr_site_msg *random_site(struct random *random)
{
    struct sr_site_msg *msg = sample_site(all_site_types[random_below(random, n_site_types)]);

    switch (msg->type) {
    case SR_SITE_HELLO:
        msg->hello.version_min = (uint16_t)(1 + random_below(random, 100));
        msg->hello.version_max = (uint16_t)(msg->hello.version_min + random_below(random, 60000));
        msg->hello.features = random_wide(random);
        msg->hello.boot = 1 + random_wide(random) / 2;
        msg->hello.connection = random_wide(random);
        random_name(random, msg->hello.site_name);
        break;
    case SR_SITE_CATALOG:
        free(msg->catalog.volumes);
        sample_catalog(&msg->catalog, 1 + (uint32_t)random_below(random, SR_CATALOG_PART_MAX));
        for (uint32_t i = 0; i < msg->catalog.n_volumes; i++)
            random_name(random, msg->catalog.volumes[i].name);
        msg->catalog.volumes[0].write_back = random_below(random, 2);
        break;
    case SR_SITE_VOLUME_REQUEST:
    case SR_SITE_VOLUME_REPLY:
        random_name(random, msg->rpc.name);
        random_name(random, msg->rpc.pool);
        msg->rpc.request = random_wide(random);
        msg->rpc.verb = (enum sr_volume_verb)(1 + random_below(random, SR_VOLUME_VERB_LAST));
        msg->rpc.active = random_below(random, 2);
        msg->rpc.write_back = random_below(random, 2);
        break;
    case SR_SITE_PING:
    case SR_SITE_PONG:
        msg->stamp = random_wide(random);
        break;
    default:
        break;
    }
    return msg;
}

size_t encode_any(uint8_t *out, size_t capacity, const struct sr_uuid *collection, const struct sr_peer_msg *msg,
                  const struct sr_site_msg *site)
{
    return msg ? sr_frame_encode_msg(out, capacity, 1, collection, msg)
               : sr_frame_encode_site(out, capacity, 1, site);
}
