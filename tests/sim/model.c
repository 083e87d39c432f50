/* model.c - the reference: which values may a host read from a sector?
 *
 * Every 512-byte sector is a register.  A write takes effect, if at all, at one moment between its issue and its end:
 * when it was answered, or when its connection died.  What is left of it after that (in a queue, on the wire, on its
 * way to a disk) comes before whatever hosts ask for later: no stale late write.  For each sector there is a list of
 * candidates, the writes whose value it may hold now.  Ticks count what hosts see.
 *
 *   acknowledged w        every candidate that ended before w was issued is out: w came later
 *   a read returned v     v must be a candidate (or have been one since the read was issued); every other
 *                         candidate that ended before the read was issued is out: it is older than v
 *
 * Both rules remove only what no order of the operations allows, so there is no false alarm; together they say:
 * a read sees the newest acknowledged value or one that competes with it, and once a value was acknowledged or
 * read nothing older is ever read again.
 *
 * Lines of truth.  Each site has one: what hosts may read there, should it serve as the records allow.  While both
 * copies have the same generation it is one and the same line.  A new generation forks it:
 *
 *   going alone      the line of the site that goes on; the other copy's line stays as it was at that moment
 *   failover         the line of the copy that was promoted goes on from there; the other site keeps its own
 *   forced           ... from whatever that copy, which was not consistent, holds: its promises are void
 *   a copy follows   (adopts the leader's generation) from there on its line is the leader's.  Whatever was
 *                    acknowledged in its old line only is overwritten: check.c wants a reason for that
 *
 * Zeroes carry no stamp: a sector of zeroes stands for any candidate that writes zeroes.
 *
 * Write-back volumes.  What is out by the rules above comes back in when a cache was lost: when the active site's
 * process ends, or a site is promoted whose own cache was lost since it was in sync.  It is *gone* for good when a
 * FLUSH is acknowledged that was asked for after it was out, when a write with FUA says so, or when the role moves.
 */
#include "sim.h"

#include <string.h>

#include "base/assert.h"
#include "base/zero.h"

static struct sim_line *line_of(struct sim_world *world, unsigned site)
{
    return &world->model.line[world->model.of[site]];
}

static const struct sim_line *view(const struct sim_world *world, unsigned site)
{
    return &world->model.line[world->model.of[site]];
}

bool sim_model_joined(const struct sim_world *world)
{
    return world->model.of[0] == world->model.of[1];
}

/* Stamps that no host wrote, on a disk that came from elsewhere, are older than everything. */
static const struct sim_write *write_of(const struct sim_line *line, uint32_t number)
{
    static const struct sim_write garbage = {.acked = true, .stable = true};

    return number < SIM_WRITES_MAX ? &line->writes[number] : &garbage;
}

static void add(struct sim_line *line, uint32_t sector, uint32_t write)
{
    struct sim_sector *list = &line->sectors[sector];

    if (list->n == list->cap) { /* move to the end; the old place is left behind until the next schedule */
        uint32_t cap = list->cap == 0 ? 8 : list->cap * 2, first = line->n_candidates;
        SR_ASSERT(first + cap <= SIM_CANDIDATES_MAX);
        if (list->n > 0)
            memcpy(&line->candidates[first], &line->candidates[list->first], list->n * sizeof(struct sim_candidate));
        line->n_candidates += cap;
        list->first = first;
        list->cap = cap;
    }
    line->candidates[list->first + list->n++] = (struct sim_candidate){write, SIM_TICK_MAX, false};
}

/* Write 0 is the zeroes that were there before everything. */
void sim_model_init(struct sim_world *world)
{
    struct sim_model *model = &world->model;
    struct sim_line *line = &model->line[0];

    model->tick = 1;
    model->n_writes = 1;
    model->of[0] = model->of[1] = 0;
    line->n_candidates = 0;
    line->writes[0] = (struct sim_write){.acked = true, .stable = true, .zero = true};
    memset(line->sectors, 0, sizeof(line->sectors));
    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++)
        add(line, s, 0);
}

/* No room for another request: hosts stop writing. */
bool sim_model_full(const struct sim_world *world)
{
    const struct sim_model *model = &world->model;
    uint32_t most = 0;

    for (unsigned i = 0; i < 2; i++)
        if (view(world, i)->n_candidates > most)
            most = view(world, i)->n_candidates;
    return model->n_writes == SIM_WRITES_MAX || most > SIM_CANDIDATES_MAX / 2;
}

/* ---- lines --------------------------------------------------------------------------------------------------- */

/* What is not answered in a line that its host cannot reach any more ends here. */
static void abandon_all(struct sim_world *world, unsigned site)
{
    struct sim_line *line = line_of(world, site);

    for (uint32_t i = 1; i < world->model.n_writes; i++)
        if (line->writes[i].end == SIM_TICK_MAX)
            line->writes[i].end = world->model.tick;
}

void sim_model_fork(struct sim_world *world, unsigned stays)
{
    struct sim_model *model = &world->model;

    model->tick++;
    if (sim_model_joined(world)) {
        struct sim_line *from = line_of(world, 0), *to = &model->line[!model->of[0]];
        to->n_candidates = from->n_candidates;
        memcpy(to->writes, from->writes, model->n_writes * sizeof(to->writes[0]));
        memcpy(to->sectors, from->sectors, sizeof(to->sectors));
        memcpy(to->candidates, from->candidates, from->n_candidates * sizeof(to->candidates[0]));
        model->of[stays] = !model->of[stays];
        sim_trace(world, "  the line of truth forks");
    }
    abandon_all(world, stays);
}

void sim_model_join(struct sim_world *world, unsigned follower)
{
    if (!sim_model_joined(world))
        sim_trace(world, "  site %u joins the other one's line of truth", follower);
    world->model.of[follower] = world->model.of[!follower];
}

uint32_t sim_model_only_here(const struct sim_world *world, unsigned site, uint32_t *example)
{
    const struct sim_line *mine = view(world, site), *theirs = view(world, !site);
    uint32_t n = 0;

    for (uint32_t i = 1; i < world->model.n_writes; i++)
        if (mine->writes[i].acked && !theirs->writes[i].acked) {
            *example = i;
            n++;
        }
    return n;
}

/* ---- writes ---------------------------------------------------------------------------------------------------- */

static void begin(struct sim_world *world, struct sim_line *line, uint32_t write)
{
    const struct sim_write *w = &line->writes[write];
    struct sim_span span = {0};

    while (sim_layout_next(&world->layout, w->volume, w->offset_bytes, w->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++)
            add(line, span.sector + i, write);
}

uint32_t sim_model_begin(struct sim_world *world, unsigned site, uint32_t volume, uint64_t offset_bytes,
                         uint64_t length_bytes, bool zero)
{
    struct sim_model *model = &world->model;
    uint32_t write = model->n_writes++;

    SR_ASSERT(write < SIM_WRITES_MAX);
    line_of(world, !site)->writes[write] = (struct sim_write){.zero = zero}; /* unknown there, if that is another line */
    line_of(world, site)->writes[write] = (struct sim_write){.start = ++model->tick,
                                                             .end = SIM_TICK_MAX,
                                                             .zero = zero,
                                                             .volume = volume,
                                                             .offset_bytes = offset_bytes,
                                                             .length_bytes = length_bytes};
    begin(world, line_of(world, site), write);
    return write;
}

static void take_out(const struct sim_world *world, uint32_t sector, struct sim_candidate *c, bool stable)
{
    if (c->removed == SIM_TICK_MAX)
        c->removed = world->model.tick;
    c->gone |= stable || !sim_layout_write_back(&world->layout, sector);
}

static void acked(struct sim_world *world, struct sim_line *line, uint32_t write, bool stable)
{
    struct sim_write *w = &line->writes[write];
    struct sim_span span = {0};

    if (w->start == 0)
        return; /* not of this line */
    if (w->end == SIM_TICK_MAX)
        w->end = world->model.tick;
    w->acked = true;
    w->stable |= stable;
    while (sim_layout_next(&world->layout, w->volume, w->offset_bytes, w->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++) {
            struct sim_sector *sector = &line->sectors[span.sector + i];
            struct sim_candidate *c = &line->candidates[sector->first];
            for (uint32_t k = 0; k < sector->n; k++)
                if (write_of(line, c[k].write)->end < w->start)
                    take_out(world, span.sector + i, &c[k], stable);
        }
}

void sim_model_acked(struct sim_world *world, unsigned site, uint32_t write, bool mirrored, bool stable)
{
    world->model.tick++;
    acked(world, line_of(world, site), write, stable);
    if (mirrored && !sim_model_joined(world))
        acked(world, line_of(world, !site), write, stable);
}

static void flushed(struct sim_world *world, struct sim_line *line, uint32_t start, uint32_t volume)
{
    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++) {
        struct sim_candidate *c = &line->candidates[line->sectors[s].first];
        for (uint32_t k = 0; world->layout.hot_volume[s / SIM_BLOCK_SECTORS] == volume && k < line->sectors[s].n; k++)
            c[k].gone |= c[k].removed <= start;
    }
    for (uint32_t i = 1; i < world->model.n_writes; i++)
        line->writes[i].stable |=
            line->writes[i].acked && line->writes[i].volume == volume && line->writes[i].end <= start;
}

void sim_model_flushed(struct sim_world *world, unsigned site, uint32_t start, uint32_t volume, bool mirrored)
{
    world->model.tick++;
    flushed(world, line_of(world, site), start, volume);
    if (mirrored && !sim_model_joined(world))
        flushed(world, line_of(world, !site), start, volume);
}

void sim_model_lost(struct sim_world *world, unsigned site)
{
    struct sim_line *line = line_of(world, site);

    world->model.tick++;
    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++) {
        struct sim_candidate *c = &line->candidates[line->sectors[s].first];
        for (uint32_t k = 0; k < line->sectors[s].n; k++)
            if (!c[k].gone)
                c[k].removed = SIM_TICK_MAX;
    }
    for (uint32_t i = 1; i < world->model.n_writes; i++)
        line->writes[i].lost |= line->writes[i].acked && !line->writes[i].stable;
}

void sim_model_refused(struct sim_world *world, unsigned site, uint32_t write)
{
    line_of(world, site)->writes[write].end = ++world->model.tick;
}

void sim_model_abandoned(struct sim_world *world, uint32_t write)
{
    world->model.tick++;
    for (unsigned i = 0; i < 2; i++) {
        struct sim_write *w = &line_of(world, i)->writes[write];
        if (w->end == SIM_TICK_MAX)
            w->end = world->model.tick;
    }
}

/* ---- reads ------------------------------------------------------------------------------------------------------
 */

static bool is_value_of(const struct sim_line *line, const struct sim_candidate *candidate, uint64_t stamp)
{
    return stamp == 0 ? write_of(line, candidate->write)->zero : candidate->write == stamp;
}

static void read_sector(struct sim_world *world, struct sim_line *line, uint32_t start, uint32_t sector, uint64_t stamp)
{
    struct sim_candidate *c = &line->candidates[line->sectors[sector].first];
    uint32_t n = line->sectors[sector].n;
    bool found = false;

    for (uint32_t k = 0; k < n; k++)
        found |= is_value_of(line, &c[k], stamp) && c[k].removed > start;
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
        if (c[k].removed == SIM_TICK_MAX && !is_value_of(line, &c[k], stamp) &&
            write_of(line, c[k].write)->end < start)
            take_out(world, sector, &c[k], false);
}

void sim_model_read(struct sim_world *world, unsigned site, uint32_t start, uint32_t volume, uint64_t offset_bytes,
                    uint64_t length_bytes, const uint8_t *bytes)
{
    struct sim_line *line = line_of(world, site);
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
                read_sector(world, line, start, span.sector + i, stamp);
            else
                sim_fail(world, "reads", "volume %u offset %llu reads bytes that belong nowhere", volume,
                         (unsigned long long)at);
        }
    }
}

/* ---- copies ---------------------------------------------------------------------------------------------------- */

/* A copy that was not consistent was promoted all the same: hosts go on from what it holds. */
void sim_model_rebase(struct sim_world *world, unsigned site)
{
    struct sim_line *line = line_of(world, site);

    world->model.tick++;
    for (uint32_t i = 0; i < world->model.n_writes; i++)
        line->writes[i].acked = false; /* what was promised before counts no more */
    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++) {
        uint64_t stamp = world->site[site].disk.sector[s];
        bool found = false;
        for (uint32_t k = 0; k < line->sectors[s].n; k++) {
            struct sim_candidate *c = &line->candidates[line->sectors[s].first + k];
            bool is = is_value_of(line, c, stamp);
            found |= is;
            c->gone = !is && write_of(line, c->write)->end != SIM_TICK_MAX;
            c->removed = c->gone ? world->model.tick : SIM_TICK_MAX;
        }
        if (!found)
            add(line, s, (uint32_t)stamp);
    }
}

bool sim_model_after(const struct sim_world *world, unsigned site, uint64_t stamp, uint32_t write)
{
    const struct sim_line *line = view(world, site);
    const struct sim_write *w = &line->writes[write];

    if (stamp == 0 && write != 0) { /* zeroes do not say whose they are */
        for (uint32_t i = 1; i < world->model.n_writes; i++) {
            const struct sim_write *z = &line->writes[i];
            if (z->zero && z->end >= w->start && z->volume == w->volume &&
                z->offset_bytes < w->offset_bytes + w->length_bytes &&
                w->offset_bytes < z->offset_bytes + z->length_bytes)
                return true;
        }
        return false;
    }
    return stamp == write || (stamp < world->model.n_writes && line->writes[stamp].end >= w->start);
}

static void explain(struct sim_world *world, unsigned site, uint32_t sector, const char *what)
{
    uint32_t hot = sector / SIM_BLOCK_SECTORS;

    sim_fail(world, "image", "the copy at site %u %s: volume %u block %llu sector %u holds write %llu", site, what,
             world->layout.hot_volume[hot], (unsigned long long)world->layout.hot_block[hot],
             sector % SIM_BLOCK_SECTORS, (unsigned long long)world->site[site].disk.sector[sector]);
}

void sim_model_holds(struct sim_world *world, unsigned site)
{
    const struct sim_line *line = view(world, site);
    const uint64_t *sector = world->site[site].disk.sector;

    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++) {
        const struct sim_candidate *c = &line->candidates[line->sectors[s].first];
        bool known = false;
        for (uint32_t k = 0; k < line->sectors[s].n && !known; k++)
            known = (c[k].removed == SIM_TICK_MAX || (world->site[site].lossy && !c[k].gone)) &&
                    is_value_of(line, &c[k], sector[s]);
        if (!known) {
            explain(world, site, s, "lacks what was acknowledged or read while both copies were one");
            return;
        }
    }
}

void sim_model_stable(struct sim_world *world, unsigned site)
{
    const struct sim_line *line = view(world, site);
    const struct sim_version *stable = world->site[site].disk.stable;

    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++) {
        const struct sim_candidate *c = &line->candidates[line->sectors[s].first];
        uint32_t hot = s / SIM_BLOCK_SECTORS;
        bool known = false;
        for (uint32_t k = 0; k < line->sectors[s].n && !known; k++)
            known = !c[k].gone && is_value_of(line, &c[k], stable[s].stamp);
        if (known)
            continue;
        sim_fail(world, "flushed",
                 "a loss of power now would leave write %llu in volume %u block %llu sector %u at site %u, "
                 "which is older than what was flushed",
                 (unsigned long long)stable[s].stamp, world->layout.hot_volume[hot],
                 (unsigned long long)world->layout.hot_block[hot], s % SIM_BLOCK_SECTORS, site);
        return;
    }
}

/* The moment of the image is after the issue of every write that shows in it; every write acknowledged before
 * that moment must show, or one that may have come after it. */
void sim_model_image(struct sim_world *world, unsigned site, uint32_t since)
{
    const struct sim_line *line = view(world, site);
    const uint64_t *sector = world->site[site].disk.sector;
    uint32_t n = world->layout.n_hot * SIM_BLOCK_SECTORS, moment = since;

    world->stats->images++;
    for (uint32_t s = 0; s < n; s++)
        if (sector[s] != 0 && sector[s] < world->model.n_writes && line->writes[sector[s]].start > moment)
            moment = line->writes[sector[s]].start;
    for (uint32_t s = 0; s < n; s++) {
        const struct sim_candidate *c = &line->candidates[line->sectors[s].first];
        uint32_t latest_end = 0; /* of the writes that the content can stand for */
        bool known = false;
        for (uint32_t k = 0; k < line->sectors[s].n; k++)
            if (is_value_of(line, &c[k], sector[s])) {
                known = true;
                if (write_of(line, c[k].write)->end > latest_end)
                    latest_end = write_of(line, c[k].write)->end;
            }
        for (uint32_t k = 0; k < line->sectors[s].n && known; k++) {
            const struct sim_write *w = write_of(line, c[k].write);
            bool lost = w->lost || (world->site[site].lossy && !w->stable);
            if (w->acked && !lost && w->end < moment && latest_end < w->start)
                known = false;
        }
        if (!known) {
            explain(world, site, s,
                    "is no image of one moment (another write shows that was issued after a later one was acknowledged)");
            return;
        }
    }
}
