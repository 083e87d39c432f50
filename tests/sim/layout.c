/* layout.c - random numbers, where the hot blocks lie, and what a schedule finds on its disks and in its metadata.
 *
 * The areas of hot blocks are few and small and lie where things can go wrong: at the start and the end of a
 * volume, across the border of two regions, close together.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* ---- random numbers ------------------------------------------------------------------------------------- */

uint64_t sim_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t sim_random(struct sim_rng *rng)
{
    rng->state += UINT64_C(0x9e3779b97f4a7c15);
    return sim_mix(rng->state);
}

uint64_t sim_below(struct sim_rng *rng, uint64_t n)
{
    SR_ASSERT(n > 0);
    return sim_random(rng) % n;
}

uint64_t sim_between(struct sim_rng *rng, uint64_t low, uint64_t high)
{
    SR_ASSERT(low <= high);
    return low + sim_below(rng, high - low + 1);
}

bool sim_chance(struct sim_rng *rng, unsigned permille)
{
    return permille > 0 && sim_below(rng, 1000) < permille;
}

uint64_t sim_delay(struct sim_rng *rng, uint64_t typical_us)
{
    if (rng->fixed)
        return typical_us;
    uint64_t us = sim_between(rng, 1, 2 * typical_us + 1);

    return sim_chance(rng, 60) ? us * 4 : us;
}

/* ---- the layout ------------------------------------------------------------------------------------------- */

bool sim_layout_next(const struct sim_layout *layout, uint32_t volume, uint64_t offset_bytes, uint64_t length_bytes,
                     struct sim_span *span)
{
    uint64_t end = offset_bytes + length_bytes;

    for (; span->area < layout->n_areas; span->area++) {
        const struct sim_area *area = &layout->areas[span->area];
        uint64_t first = area->first_block * SR_BLOCK_BYTES;
        uint64_t last = first + (uint64_t)area->n_blocks * SR_BLOCK_BYTES;
        uint64_t from = offset_bytes > first ? offset_bytes : first, to = end < last ? end : last;
        if (area->volume != volume || from >= to)
            continue;
        span->offset_bytes = from;
        span->sector = area->hot * SIM_BLOCK_SECTORS + (uint32_t)((from - first) / SIM_SECTOR_BYTES);
        span->n = (uint32_t)((to - from) / SIM_SECTOR_BYTES);
        span->area++;
        return true;
    }
    return false;
}

void sim_layout_choose(struct sim_world *world)
{
    struct sim_layout *layout = &world->layout;
    struct sim_rng *rng = &world->rng;

    memset(layout, 0, sizeof(*layout));
    layout->n_volumes = sim_chance(rng, 600) ? 1 : sim_chance(rng, 500) ? 2 : (uint32_t)sim_between(rng, 3, SIM_VOLUMES_MAX);
    bool big = sim_chance(rng, 15);
    for (uint32_t v = 0; v < layout->n_volumes; v++)
        layout->blocks[v] = (big && v == 0 ? 66 : sim_between(rng, 3, 5)) * SR_REGION_BLOCKS -
                            (sim_chance(rng, 300) ? sim_between(rng, 1, 1000) : 0);
    uint32_t wanted = (uint32_t)sim_between(rng, 3, 6);
    for (uint32_t v = 0; v < layout->n_volumes; v++) {
        uint64_t end = 0; /* of the area before */
        for (uint32_t i = 0; i < wanted / layout->n_volumes + 1 && layout->n_areas < SIM_AREAS_MAX; i++) {
            uint64_t n = sim_between(rng, 1, SIM_AREA_BLOCKS_MAX), region = sim_between(rng, i == 0 ? 0 : 1, 3);
            uint64_t first = i == 0 && sim_chance(rng, 500) ? 0
                             : sim_chance(rng, 400)         ? region * SR_REGION_BLOCKS - (i == 0 ? 0 : n / 2)
                                                            : end + sim_below(rng, layout->blocks[v] / 3);
            if (sim_chance(rng, 150) || (i > 0 && first < end))
                first = end + sim_below(rng, 300);
            if (sim_chance(rng, 100))
                first = layout->blocks[v] - n;
            if (first < end || first + n > layout->blocks[v])
                continue;
            layout->areas[layout->n_areas++] = (struct sim_area){v, (uint32_t)n, first, layout->n_hot};
            for (uint64_t b = 0; b < n; b++) {
                layout->hot_volume[layout->n_hot] = v;
                layout->hot_block[layout->n_hot++] = first + b;
            }
            end = first + n;
        }
    }
    if (layout->n_areas == 0) /* none of the choices fitted */
        sim_layout_choose(world);
}

/* Not from world->rng: a seed whose volumes are all write-through means what it always has.  The number was chosen so that
 * those of regressions.txt are. */
void sim_layout_choose_durability(struct sim_world *world)
{
    struct sim_layout *layout = &world->layout;
    uint64_t bits = sim_mix(world->seed * UINT64_C(0x9e3779b97f4a7c15) + 81 + (uint64_t)world->params.profile);

    layout->any_write_back = world->write_back || bits % 100 < 40;
    for (uint32_t v = 0; v < layout->n_volumes; v++)
        layout->write_back[v] =
            layout->any_write_back &&
            (world->write_back || (bits >> 16) % layout->n_volumes == v || (bits >> (32 + v)) & 1);
}

bool sim_layout_write_back(const struct sim_layout *layout, uint32_t sector)
{
    return layout->write_back[layout->hot_volume[sector / SIM_BLOCK_SECTORS]];
}

/* ---- the state at the start ------------------------------------------------------------------------------ */

/* What an earlier life left: a fresh pair in sync, or one site with data and the other without a copy. */
void sim_layout_fill(struct sim_world *world)
{
    struct sim_rng *rng = &world->rng;
    unsigned active = (unsigned)sim_below(rng, 2);
    struct sr_uuid gen;
    uint64_t bits[2] = {sim_random(rng), sim_random(rng)};

    memcpy(gen.b, bits, sizeof(bits));
    for (unsigned i = 0; i < 2; i++) {
        struct sr_record *record = &world->site[i].meta.record;
        record->role = i == active ? SR_ROLE_ACTIVE : SR_ROLE_ALTERNATE;
        record->gen = gen;
        record->made_by = SR_MADE_CREATED;
        record->consistent = true;
        if (!world->params.import)
            continue;
        if (i == active) {
            record->base_kind = SR_BASE_UNKNOWN;
            for (uint32_t v = 0; v < world->layout.n_volumes; v++)
                world->site[i].meta.volumes[v].from = 0;
        } else {
            sr_lineage_replace(record);
        }
    }
    sim_model_init(world);
    for (uint32_t a = 0; world->params.import && a < world->layout.n_areas; a++) {
        const struct sim_area *area = &world->layout.areas[a];
        uint32_t write = sim_model_begin(world, active, area->volume, area->first_block * SR_BLOCK_BYTES,
                                         (uint64_t)area->n_blocks * SR_BLOCK_BYTES, false);
        for (uint32_t s = 0; s < area->n_blocks * SIM_BLOCK_SECTORS; s++)
            world->site[active].disk.sector[area->hot * SIM_BLOCK_SECTORS + s] = write;
        sim_model_acked(world, active, write, true, true);
    }
    if (world->params.import)
        sim_disk_replaced(world, !active);
    sim_disk_secure(&world->site[active].disk);
}

void sim_layout_reset(struct sim_site *me)
{
    struct sr_actions actions = me->actions; /* its memory is used again */

    memset(me, 0, offsetof(struct sim_site, disk));
    me->actions = actions;
    memset(me->disk.sector, 0, sizeof(me->disk.sector));
    memset(me->disk.rank, 0, sizeof(me->disk.rank));
    memset(me->disk.stable, 0, sizeof(me->disk.stable));
    me->disk.last_rank = 0;
    memset(me->disk.unreadable, 0, sizeof(me->disk.unreadable));
    for (uint32_t i = 0; i < me->disk.ios_end; i++) {
        me->disk.ios[i].used = false;
        free(me->disk.ios[i].seen);
        me->disk.ios[i].seen = NULL;
    }
    me->disk.n_ios = me->disk.n_writes = me->disk.ios_end = 0;
    me->disk.fail_writes = me->disk.fail_reads = me->disk.fail_flushes = 0;
    me->disk.full_until_us = me->disk.slow_until_us = 0;
    me->disk.had_error = me->disk.had_no_space = me->disk.told_error = false;
    memset(&me->meta, 0, offsetof(struct sim_meta, bad));
    for (uint32_t v = 0; v < SIM_VOLUMES_MAX; v++)
        me->meta.volumes[v].from = UINT64_MAX;
    me->meta.head = me->meta.n = 0;
    me->meta.last_due_us = 0;
    me->meta.fail_next = me->meta.failed = false;
}
