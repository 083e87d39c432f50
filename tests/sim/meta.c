/* meta.c - the simulated metadata of a site: what is durable of the record and the maps.
 *
 * Invariants
 *   M1  Commits become durable in the order in which they were given, one after the other, each as a whole.
 *   M2  A crash makes the first few of those in flight durable (none, some, all) and loses the others.
 *   M3  A commit does not change between its action and its META_DONE: a checksum shows it.
 */
#include "sim.h"

#include <string.h>

#include "base/assert.h"

static uint64_t checksum_bytes(uint64_t sum, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    uint64_t word;

    for (; bytes >= sizeof(word); p += sizeof(word), bytes -= sizeof(word)) {
        memcpy(&word, p, sizeof(word));
        sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        sum ^= sum >> 29;
    }
    for (; bytes > 0; p++, bytes--)
        sum = (sum ^ *p) * UINT64_C(0x9e3779b97f4a7c15);
    return sum;
}

static uint64_t checksum(const struct sr_commit *commit)
{
    uint64_t sum = checksum_bytes(commit->commit, &commit->has_record, sizeof(commit->has_record));

    if (commit->has_record)
        sum = checksum_bytes(sum, &commit->record, sizeof(commit->record));
    if (commit->n_ops > 0)
        sum = checksum_bytes(sum, commit->ops, commit->n_ops * sizeof(*commit->ops));
    if (commit->n_maps > 0)
        sum = checksum_bytes(sum, commit->maps, commit->n_maps * (size_t)SR_REGION_MAP_BYTES);
    return sum;
}

/* ---- what a commit does ------------------------------------------------------------------------------------- */

static void mark_bad(struct sim_meta *meta, uint32_t volume, uint64_t block, bool bad)
{
    uint32_t i;

    for (i = 0; i < meta->n_bad; i++)
        if (meta->bad[i].volume == volume && meta->bad[i].block == block)
            break;
    if (bad && i == meta->n_bad) {
        SR_ASSERT(meta->n_bad < SIM_BAD_MAX);
        meta->bad[meta->n_bad].volume = volume;
        meta->bad[meta->n_bad++].block = block;
    } else if (!bad && i < meta->n_bad) {
        meta->bad[i] = meta->bad[--meta->n_bad];
    }
}

static void apply_op(struct sim_world *world, unsigned site, const struct sr_commit *commit,
                     const struct sr_meta_op *op)
{
    struct sim_meta *meta = &world->site[site].meta;
    const struct sim_layout *layout = &world->layout;

    if (op->volume >= layout->n_volumes) {
        sim_fail(world, "meta", "site %u: a commit names volume %u", site, op->volume);
        return;
    }
    struct sim_volume_map *map = &meta->volumes[op->volume];
    uint64_t blocks = layout->blocks[op->volume], regions = (blocks + SR_REGION_BLOCKS - 1) / SR_REGION_BLOCKS;
    bool names_region = op->type == SR_META_INTENT || op->type == SR_META_REGION || op->type == SR_META_CLEAN;
    bool names_block = op->type == SR_META_BAD || op->type == SR_META_GOOD;
    if ((names_region && op->region >= regions) || (names_block && op->block >= blocks) ||
        (op->type == SR_META_REGION && op->map >= commit->n_maps)) {
        sim_fail(world, "meta", "site %u: a commit names region %u, block %llu, map %u", site, op->region,
                 (unsigned long long)op->block, op->map);
        return;
    }
    switch (op->type) {
    case SR_META_RECORD:
        break;
    case SR_META_INTENT:
        map->entry[op->region] = SIM_ENTRY_INTENT;
        break;
    case SR_META_REGION:
        map->entry[op->region] = SIM_ENTRY_EXACT;
        memcpy(map->map[op->region], commit->maps[op->map], SR_REGION_MAP_BYTES);
        break;
    case SR_META_CLEAN:
        map->entry[op->region] = SIM_ENTRY_NONE;
        break;
    case SR_META_FROM:
        map->from = op->block;
        break;
    case SR_META_CLEAR:
        memset(map->entry, SIM_ENTRY_NONE, sizeof(map->entry));
        map->from = UINT64_MAX;
        break;
    case SR_META_BAD:
    case SR_META_GOOD:
        mark_bad(meta, op->volume, op->block, op->type == SR_META_BAD);
        break;
    }
}

static void apply(struct sim_world *world, unsigned site, const struct sr_commit *commit)
{
    struct sim_meta *meta = &world->site[site].meta;
    const char *why = "";

    for (uint32_t i = 0; i < commit->n_ops; i++)
        apply_op(world, site, commit, &commit->ops[i]);
    if (!commit->has_record)
        return;
    if (!sr_record_valid(&commit->record, &why))
        sim_fail(world, "meta", "site %u commits an invalid record: %s", site, why);
    struct sr_record before = meta->record;
    meta->record = commit->record;
    sim_check_record(world, site, &before, &meta->record);
    if (sr_uuid_is_none(&meta->record.gen) && !meta->record.failed &&
        (before.failed || !sr_uuid_is_none(&before.gen)))
        sim_disk_replaced(world, site);
}

/* ---- the queue ------------------------------------------------------------------------------------------------- */

void sim_meta_submit(struct sim_world *world, unsigned site, struct sr_commit *commit)
{
    struct sim_meta *meta = &world->site[site].meta;

    sim_trace(world, "%u    commit #%llu%s, %u ops", site, (unsigned long long)commit->commit,
              commit->has_record ? " record" : "", commit->n_ops);
    for (uint32_t i = 0; world->verbose && i < commit->n_ops; i++)
        sim_trace(world, "%u       op %u vol %u region %u block %llu", site, commit->ops[i].type,
                  commit->ops[i].volume, commit->ops[i].region, (unsigned long long)commit->ops[i].block);
    if (meta->n == SIM_COMMITS_MAX) {
        sim_fail(world, "meta", "site %u has more than %u commits in flight", site, SIM_COMMITS_MAX);
        return;
    }
    if (commit->commit != meta->next_commit)
        sim_fail(world, "meta", "site %u: commit number %llu instead of %llu", site,
                 (unsigned long long)commit->commit, (unsigned long long)meta->next_commit);
    meta->next_commit = commit->commit + 1;
    uint32_t slot = (meta->head + meta->n++) % SIM_COMMITS_MAX;
    meta->queue[slot].commit = commit;
    meta->queue[slot].checksum = checksum(commit);
    world->stats->commits++;
    uint64_t due_us = world->now_us + sim_delay(&world->rng, world->params.meta_us);
    if (due_us < meta->last_due_us) /* several may end together: a group */
        due_us = meta->last_due_us;
    meta->last_due_us = due_us;
    sim_world_push(world, SIM_EV_META, site, due_us, 0);
}

static struct sr_commit *take(struct sim_world *world, unsigned site)
{
    struct sim_meta *meta = &world->site[site].meta;
    struct sr_commit *commit = meta->queue[meta->head].commit;

    SR_ASSERT(meta->n > 0);
    if (checksum(commit) != meta->queue[meta->head].checksum)
        sim_fail(world, "meta", "site %u changed commit %llu while it was in flight", site,
                 (unsigned long long)commit->commit);
    meta->head = (meta->head + 1) % SIM_COMMITS_MAX;
    meta->n--;
    return commit;
}

void sim_meta_complete(struct sim_world *world, unsigned site)
{
    struct sim_meta *meta = &world->site[site].meta;
    struct sr_event event = {.type = SR_EV_META_DONE};
    struct sr_commit *commit = take(world, site);

    event.meta.commit = commit->commit;
    event.meta.error = SR_OK;
    if (meta->fail_next) {
        meta->fail_next = false;
        meta->failed = true;
        world->stats->meta_errors++;
        event.meta.error = SR_E_IO;
    }
    if (!meta->failed || sim_chance(&world->rng, 500)) /* a failed one may be durable all the same */
        apply(world, site, commit);
    sim_trace(world, "%u commit #%llu ends: %s", site, (unsigned long long)commit->commit,
              sr_error_name(event.meta.error));
    sim_world_step(world, site, &event);
}

void sim_meta_crash(struct sim_world *world, unsigned site)
{
    struct sim_meta *meta = &world->site[site].meta;
    uint64_t durable = meta->failed ? 0 : sim_below(&world->rng, meta->n + 1);

    if (sim_chance(&world->rng, 300))
        durable = 0;
    for (; meta->n > 0; durable -= durable > 0) {
        struct sr_commit *commit = take(world, site);
        if (durable > 0)
            apply(world, site, commit);
    }
    meta->fail_next = meta->failed = false;
    meta->last_due_us = 0;
}

/* ---- reading --------------------------------------------------------------------------------------------------- */

void sim_meta_load(struct sim_world *world, unsigned site, struct sr_core *core)
{
    struct sim_meta *meta = &world->site[site].meta;
    bool from_first = sim_chance(&world->rng, 500);

    meta->next_commit = 1;
    for (uint32_t v = 0; v < world->layout.n_volumes; v++) {
        struct sim_volume_map *map = &meta->volumes[v];
        if (from_first && map->from != UINT64_MAX)
            sr_core_load_from(core, v, map->from);
        for (uint32_t r = 0; r < SIM_REGIONS_MAX; r++) {
            if (map->entry[r] == SIM_ENTRY_INTENT)
                sr_core_load_intent(core, v, r);
            else if (map->entry[r] == SIM_ENTRY_EXACT)
                sr_core_load_region(core, v, r, map->map[r]);
        }
        if (!from_first && map->from != UINT64_MAX)
            sr_core_load_from(core, v, map->from);
    }
    for (uint32_t i = 0; i < meta->n_bad; i++)
        sr_core_load_bad(core, meta->bad[i].volume, meta->bad[i].block);
}

bool sim_meta_dirty(const struct sim_meta *meta, uint32_t volume, uint64_t block)
{
    const struct sim_volume_map *map = &meta->volumes[volume];
    uint32_t region = (uint32_t)(block / SR_REGION_BLOCKS), bit = (uint32_t)(block % SR_REGION_BLOCKS);

    if (block >= map->from || map->entry[region] == SIM_ENTRY_INTENT)
        return true;
    return map->entry[region] == SIM_ENTRY_EXACT && (map->map[region][bit / 8] >> (bit % 8) & 1);
}

bool sim_meta_alone(const struct sim_meta *meta)
{
    const struct sr_record *record = &meta->record;

    return record->base_kind == SR_BASE_UNKNOWN ||
           (record->base_kind == SR_BASE_KNOWN && !sr_uuid_equal(&record->base, &record->gen));
}
