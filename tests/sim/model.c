/* model.c - the reference: which values may a host read from a sector?
 *
 * Every 512-byte sector is a register.  A write takes effect at one moment between its issue and its end: when
 * it was answered, or, if its connection died, when no trace of it can still be on its way to a disk.  For each
 * sector there is a list of candidates, the writes whose value it may hold now.  Ticks count what hosts see.
 *
 *   acknowledged w        every candidate that ended before w was issued is out: w came later
 *   a read returned v     v must be a candidate (or have been one since the read was issued); every other
 *                         candidate that ended before the read was issued is out: it is older than v
 *
 * Both rules remove only what no order of the operations allows, so there is no false alarm; together they say:
 * a read sees the newest acknowledged value or one that competes with it, and once a value was acknowledged or
 * read nothing older is ever read again.
 *
 * Zeroes carry no stamp: a sector of zeroes stands for any candidate that writes zeroes.
 */
#include "sim.h"

#include <string.h>

#include "base/assert.h"
#include "base/zero.h"

static struct sim_candidate *candidates(struct sim_world *world, uint32_t sector)
{
    return &world->model.candidates[world->model.sectors[sector].first];
}

static void add(struct sim_world *world, uint32_t sector, uint32_t write)
{
    struct sim_model *model = &world->model;
    struct sim_sector *list = &model->sectors[sector];

    if (list->n == list->cap) { /* move to the end; the old place is left behind until the next schedule */
        uint32_t cap = list->cap == 0 ? 8 : list->cap * 2, first = model->n_candidates;
        SR_ASSERT(first + cap <= SIM_CANDIDATES_MAX);
        if (list->n > 0)
            memcpy(&model->candidates[first], &model->candidates[list->first],
                   list->n * sizeof(struct sim_candidate));
        model->n_candidates += cap;
        list->first = first;
        list->cap = cap;
    }
    model->candidates[list->first + list->n++] = (struct sim_candidate){write, SIM_TICK_MAX};
}

/* Write 0 is the zeroes that were there before everything. */
void sim_model_init(struct sim_world *world)
{
    struct sim_model *model = &world->model;

    model->tick = 1;
    model->n_writes = 1;
    model->n_limbo = 0;
    model->n_candidates = 0;
    model->writes[0] = (struct sim_write){.acked = true, .zero = true};
    memset(model->sectors, 0, sizeof(model->sectors));
    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++)
        add(world, s, 0);
}

/* No room for another request: hosts stop writing. */
bool sim_model_full(const struct sim_model *model)
{
    return model->n_writes == SIM_WRITES_MAX || model->n_candidates > SIM_CANDIDATES_MAX / 2;
}

/* ---- writes ---------------------------------------------------------------------------------------------------- */

uint32_t sim_model_begin(struct sim_world *world, uint32_t volume, uint64_t offset_bytes, uint64_t length_bytes,
                         bool zero)
{
    struct sim_model *model = &world->model;
    struct sim_span span = {0};
    uint32_t write = model->n_writes++;

    SR_ASSERT(write < SIM_WRITES_MAX);
    model->writes[write] = (struct sim_write){.start = ++model->tick,
                                              .end = SIM_TICK_MAX,
                                              .zero = zero,
                                              .volume = volume,
                                              .offset_bytes = offset_bytes,
                                              .length_bytes = length_bytes};
    while (sim_layout_next(&world->layout, volume, offset_bytes, length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++)
            add(world, span.sector + i, write);
    return write;
}

void sim_model_acked(struct sim_world *world, uint32_t write)
{
    struct sim_model *model = &world->model;
    struct sim_write *w = &model->writes[write];
    struct sim_span span = {0};

    w->end = ++model->tick;
    w->acked = true;
    while (sim_layout_next(&world->layout, w->volume, w->offset_bytes, w->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++) {
            struct sim_candidate *c = candidates(world, span.sector + i);
            for (uint32_t k = 0; k < model->sectors[span.sector + i].n; k++)
                if (c[k].removed == SIM_TICK_MAX && model->writes[c[k].write].end < w->start)
                    c[k].removed = model->tick;
        }
}

void sim_model_refused(struct sim_world *world, uint32_t write)
{
    world->model.writes[write].end = ++world->model.tick;
}

void sim_model_abandoned(struct sim_world *world, uint32_t write)
{
    world->model.writes[write].limbo = true;
    world->model.n_limbo++;
}

void sim_model_expire(struct sim_world *world)
{
    struct sim_model *model = &world->model;

    if (model->n_limbo > 0 && sim_host_forwards(world))
        return; /* the request may be waiting inside a core */
    for (uint32_t i = 1; i < model->n_writes && model->n_limbo > 0; i++) {
        struct sim_write *w = &model->writes[i];
        if (!w->limbo || sim_disk_writing(world, 0, w->volume, w->offset_bytes, w->length_bytes) ||
            sim_disk_writing(world, 1, w->volume, w->offset_bytes, w->length_bytes) ||
            sim_wire_carries_write(world, w->volume, w->offset_bytes, w->length_bytes))
            continue;
        w->limbo = false;
        w->end = ++model->tick;
        model->n_limbo--;
    }
}

/* ---- reads ------------------------------------------------------------------------------------------------------
 */

static bool is_value_of(const struct sim_model *model, const struct sim_candidate *candidate, uint64_t stamp)
{
    return stamp == 0 ? model->writes[candidate->write].zero : candidate->write == stamp;
}

static void read_sector(struct sim_world *world, uint32_t start, uint32_t sector, uint64_t stamp)
{
    struct sim_model *model = &world->model;
    struct sim_candidate *c = candidates(world, sector);
    uint32_t n = model->sectors[sector].n;
    bool found = false;

    for (uint32_t k = 0; k < n; k++)
        found |= is_value_of(model, &c[k], stamp) && c[k].removed > start;
    if (!found) {
        uint32_t hot = sector / SIM_BLOCK_SECTORS, newest = 0;
        for (uint32_t k = 0; k < n; k++)
            if (c[k].removed == SIM_TICK_MAX)
                newest = c[k].write;
        sim_fail(world, "reads",
                 "volume %u block %llu sector %u reads as write %llu, which is older than a value "
                 "acknowledged or read before (write %u is possible)",
                 world->layout.hot_volume[hot], (unsigned long long)world->layout.hot_block[hot],
                 sector % SIM_BLOCK_SECTORS, (unsigned long long)stamp, newest);
        return;
    }
    for (uint32_t k = 0; k < n; k++)
        if (c[k].removed == SIM_TICK_MAX && !is_value_of(model, &c[k], stamp) &&
            model->writes[c[k].write].end < start)
            c[k].removed = model->tick;
}

void sim_model_read(struct sim_world *world, uint32_t start, uint32_t volume, uint64_t offset_bytes,
                    uint64_t length_bytes, const uint8_t *bytes)
{
    struct sim_span span = {0};
    uint64_t at = offset_bytes, end = offset_bytes + length_bytes, stamp;
    bool more = true;

    world->model.tick++;
    while (at < end && !world->failed) {
        more = more && sim_layout_next(&world->layout, volume, offset_bytes, length_bytes, &span);
        uint64_t stop = more ? span.offset_bytes : end;
        if (!sr_is_zero(bytes + (at - offset_bytes), stop - at))
            sim_fail(world, "reads", "volume %u reads data near %llu, where no host wrote", volume,
                     (unsigned long long)at);
        at = stop;
        for (uint32_t i = 0; more && i < span.n && !world->failed; i++, at += SIM_SECTOR_BYTES) {
            if (sim_sector_parse(bytes + (at - offset_bytes), volume, at / SIM_SECTOR_BYTES, &stamp))
                read_sector(world, start, span.sector + i, stamp);
            else
                sim_fail(world, "reads", "volume %u offset %llu reads bytes that belong nowhere", volume,
                         (unsigned long long)at);
        }
    }
}

/* ---- the rest -----------------------------------------------------------------------------------------------------
 */

/* The only copy with the newest writes is gone: hosts go on from what the other copy holds. */
void sim_model_rebase(struct sim_world *world, unsigned site)
{
    struct sim_model *model = &world->model;

    model->tick++;
    for (uint32_t i = 0; i < model->n_writes; i++)
        model->writes[i].acked = false; /* what was promised before counts no more */
    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++) {
        struct sim_candidate *c = candidates(world, s);
        uint64_t stamp = world->site[site].disk.sector[s];
        for (uint32_t k = 0; k < model->sectors[s].n; k++) {
            const struct sim_write *w = &model->writes[c[k].write];
            c[k].removed = is_value_of(model, &c[k], stamp) || w->end == SIM_TICK_MAX ? SIM_TICK_MAX : model->tick;
        }
    }
}

bool sim_model_after(const struct sim_world *world, uint64_t stamp, uint32_t write)
{
    const struct sim_model *model = &world->model;

    if (stamp == 0 && write != 0) { /* zeroes do not say whose they are */
        const struct sim_write *w = &model->writes[write];
        for (uint32_t i = 1; i < model->n_writes; i++) {
            const struct sim_write *z = &model->writes[i];
            if (z->zero && z->end >= w->start && z->volume == w->volume &&
                z->offset_bytes < w->offset_bytes + w->length_bytes &&
                w->offset_bytes < z->offset_bytes + z->length_bytes)
                return true;
        }
        return false;
    }
    return stamp == write || (stamp < model->n_writes && model->writes[stamp].end >= model->writes[write].start);
}

/* The moment of the image is after the issue of every write that shows in it; every write acknowledged before
 * that moment must show, or one that may have come after it. */
void sim_model_image(struct sim_world *world, unsigned site, uint32_t since)
{
    const struct sim_model *model = &world->model;
    const uint64_t *sector = world->site[site].disk.sector;
    uint32_t n = world->layout.n_hot * SIM_BLOCK_SECTORS, moment = since;

    world->stats->images++;
    for (uint32_t s = 0; s < n; s++)
        if (sector[s] != 0 && sector[s] < model->n_writes && model->writes[sector[s]].start > moment)
            moment = model->writes[sector[s]].start;
    for (uint32_t s = 0; s < n; s++) {
        const struct sim_candidate *c = candidates(world, s);
        uint32_t latest_end = 0; /* of the writes that the content can stand for */
        bool known = false;
        for (uint32_t k = 0; k < model->sectors[s].n; k++)
            if (is_value_of(model, &c[k], sector[s])) {
                known = true;
                if (model->writes[c[k].write].end > latest_end)
                    latest_end = model->writes[c[k].write].end;
            }
        for (uint32_t k = 0; k < model->sectors[s].n && known; k++) {
            const struct sim_write *w = &model->writes[c[k].write];
            if (w->acked && w->end < moment && latest_end < w->start)
                known = false;
        }
        if (!known) {
            uint32_t hot = s / SIM_BLOCK_SECTORS;
            sim_fail(world, "image",
                     "the copy at site %u is no image of one moment: volume %u block %llu sector %u holds "
                     "write %llu, yet a later write was acknowledged before another one that shows was issued",
                     site, world->layout.hot_volume[hot], (unsigned long long)world->layout.hot_block[hot],
                     s % SIM_BLOCK_SECTORS, (unsigned long long)sector[s]);
            return;
        }
    }
}
