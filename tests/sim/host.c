/* host.c - hosts that use the volumes: reads, writes of whole and partial blocks, zeroes, trims, flushes.
 *
 * Each host keeps a few requests in flight; some wait for each answer before the next one, so that later writes
 * depend on earlier ones.  Requests go only to a site that serves.
 *
 * Invariants
 *   H1  Every request is answered exactly once, or its connection ends: by SR_E_SHUTDOWN or with the process.
 *   H2  The buffer of a request is referenced until its answer, and not a moment longer.
 */
#include "sim.h"

#include <string.h>

#include "base/assert.h"

static const unsigned depth[SIM_HOSTS] = {1, 1, 3, 4};

/* ---- issuing -----------------------------------------------------------------------------------------------------
 */

static bool is_write(enum sr_host_op op)
{
    return op == SR_HOST_WRITE || op == SR_HOST_ZERO || op == SR_HOST_TRIM;
}

/* Only a stamped write brings data: everything outside hot sectors is zero. */
static void fill(struct sim_world *world, const struct sim_request *r)
{
    struct sim_span span = {0};

    memset(r->buf->data, 0, r->length_bytes);
    while (sim_layout_next(&world->layout, r->volume, r->offset_bytes, r->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++) {
            uint64_t at = span.offset_bytes + (uint64_t)i * SIM_SECTOR_BYTES;
            sim_sector_fill(r->buf->data + (at - r->offset_bytes), r->volume, at / SIM_SECTOR_BYTES, r->write);
        }
}

/* Pieces after the first of the request itself and of those before it that share a block and are still open. */
static uint32_t count_pieces(const struct sim_world *world, uint32_t volume, uint64_t offset_bytes,
                             uint64_t length_bytes)
{
    uint64_t first = offset_bytes / SR_BLOCK_BYTES;
    uint64_t end = (offset_bytes + length_bytes + SR_BLOCK_BYTES - 1) / SR_BLOCK_BYTES;
    uint32_t n = (uint32_t)(length_bytes / SIM_PIECE_BYTES);

    for (const struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++)
        if (r->used && r->volume == volume && r->offset_bytes / SR_BLOCK_BYTES < end &&
            first * SR_BLOCK_BYTES < r->offset_bytes + r->length_bytes)
            n += r->pieces;
    return n;
}

bool sim_host_issue(struct sim_world *world, unsigned host, unsigned site, enum sr_host_op op, uint32_t volume,
                    uint64_t offset_bytes, uint64_t length_bytes)
{
    static const char *const names[] = {"READ", "WRITE", "TRIM", "ZERO", "FLUSH"};
    struct sim_site *me = &world->site[site];
    struct sr_event event = {.type = SR_EV_HOST};
    struct sim_request *r = world->hosts.requests;
    bool has_data = op == SR_HOST_READ || op == SR_HOST_WRITE;
    struct sr_buf *buf = NULL;

    while (r < world->hosts.requests + SIM_REQUESTS_MAX && r->used)
        r++;
    if (r == world->hosts.requests + SIM_REQUESTS_MAX || (is_write(op) && sim_model_full(world)))
        return false;
    if (has_data && (buf = sr_buf_alloc(&me->budget, length_bytes)) == NULL)
        return false; /* over budget: the daemon would not read from the socket now */
    bool cacheable = is_write(op) && world->layout.write_back[volume];
    *r = (struct sim_request){.used = true,
                              .fua = cacheable && sim_chance(&world->rng, 120),
                              .id = ++world->hosts.next_id,
                              .site = site,
                              .host = host,
                              .op = op,
                              .volume = volume,
                              .offset_bytes = offset_bytes,
                              .length_bytes = length_bytes,
                              .buf = buf,
                              .start_us = world->now_us,
                              .pieces = count_pieces(world, volume, offset_bytes, length_bytes)};
    world->hosts.n++;
    world->hosts.in_flight[host]++;
    if (is_write(op)) {
        r->write = sim_model_begin(world, site, volume, offset_bytes, length_bytes, op != SR_HOST_WRITE);
        sim_check_written(world, volume, offset_bytes, length_bytes);
        world->stats->writes++;
    } else {
        world->stats->reads += op == SR_HOST_READ;
        world->stats->flushes += op == SR_HOST_FLUSH && world->layout.write_back[volume];
    }
    world->stats->fuas += r->fua;
    r->start = ++world->model.tick;
    if (op == SR_HOST_WRITE)
        fill(world, r);
    else if (op == SR_HOST_READ)
        memset(buf->data, 0xa5, length_bytes);
    sim_trace(
        world, "%u host %u %s request %llu write %u vol %u sector %llu+%llu (block %llu)", site, host, names[op],
        (unsigned long long)r->id, r->write, volume, (unsigned long long)(offset_bytes / SIM_SECTOR_BYTES),
        (unsigned long long)(length_bytes / SIM_SECTOR_BYTES), (unsigned long long)(offset_bytes / SR_BLOCK_BYTES));
    event.host = (struct sr_host_request){.id = r->id,
                                          .volume = volume,
                                          .op = op,
                                          .offset_bytes = offset_bytes,
                                          .length_bytes = length_bytes,
                                          .buf = buf,
                                          .fua = r->fua,
                                          .no_hole = op == SR_HOST_ZERO && sim_chance(&world->rng, 500)};
    sim_world_step(world, site, &event);
    return true;
}

/* ---- answers ------------------------------------------------------------------------------------------------------
 */

static void forget(struct sim_world *world, struct sim_request *r)
{
    sr_buf_unref(r->buf);
    world->hosts.in_flight[r->host] -= !r->dropped;
    world->hosts.n--;
    r->used = false;
}

void sim_host_reply(struct sim_world *world, unsigned site, uint64_t id, enum sr_error error)
{
    struct sim_request *r = world->hosts.requests;

    while (r < world->hosts.requests + SIM_REQUESTS_MAX && !(r->used && r->id == id && r->site == site))
        r++;
    if (r == world->hosts.requests + SIM_REQUESTS_MAX) {
        sim_fail(world, "answers", "site %u answers request %llu, which is not open", site, (unsigned long long)id);
        return;
    }
    sim_trace(world, "%u    reply %llu: %s", site, (unsigned long long)id, sr_error_name(error));
    world->stats->replies++;
    world->stats->reply_errors += error != SR_OK;
    world->hosts.answered++;
    if (r->dropped) {
        forget(world, r);
        return;
    }
    if (error == SR_OK) {
        bool mirrored = sim_check_reply(world, site, r);
        bool write_back = world->layout.write_back[r->volume];
        if (is_write(r->op))
            sim_model_acked(world, site, r->write, mirrored, !write_back || r->fua);
        else if (r->op == SR_HOST_FLUSH && write_back)
            sim_model_flushed(world, site, r->start, r->volume, mirrored);
        if (write_back && (r->op == SR_HOST_FLUSH || r->fua))
            sim_check_flushed(world, site, mirrored);
        if (r->op == SR_HOST_READ)
            sim_model_read(world, site, r->start, r->volume, r->offset_bytes, r->length_bytes, r->buf->data);
    } else if (is_write(r->op)) {
        if (error == SR_E_SHUTDOWN)
            sim_model_abandoned(world, r->write);
        else
            sim_model_refused(world, site, r->write);
    }
    forget(world, r);
}

void sim_host_retired(struct sim_world *world, unsigned site)
{
    for (struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++)
        r->switched |= r->used && r->site == site;
}

bool sim_host_forwards(const struct sim_world *world)
{
    uint64_t own[2] = {0, 0};

    for (const struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++)
        own[r->site] += r->used;
    for (unsigned i = 0; i < 2; i++)
        if (world->site[i].up && world->site[i].status.requests > own[i])
            return true;
    return false;
}

void sim_host_crash(struct sim_world *world, unsigned site)
{
    for (struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++) {
        if (!r->used || r->site != site)
            continue;
        if (is_write(r->op) && !r->dropped)
            sim_model_abandoned(world, r->write);
        forget(world, r);
    }
}

static bool waits_in_switchover(const struct sim_world *world, unsigned host)
{
    for (const struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++)
        if (r->used && r->host == host && r->switched && !r->dropped)
            return true;
    return false;
}

/* A host closes its connections: the daemon goes on with what it took in, and answers nobody. */
static void drop(struct sim_world *world, unsigned host)
{
    for (struct sim_request *r = world->hosts.requests; r < world->hosts.requests + SIM_REQUESTS_MAX; r++) {
        if (!r->used || r->host != host || r->dropped)
            continue;
        sim_trace(world, "%u host %u closes its connection, request %llu is open", r->site, host,
                  (unsigned long long)r->id);
        r->dropped = true;
        world->hosts.in_flight[host]--;
        if (is_write(r->op))
            sim_model_abandoned(world, r->write);
    }
}

/* ---- what hosts want
 * ------------------------------------------------------------------------------------------------ */

/* Both may serve, after a failover: `first` is looked at before the other one. */
static bool serving_site(const struct sim_world *world, unsigned first, unsigned *site)
{
    for (unsigned i = 0; i < 2; i++) {
        const struct sim_site *me = &world->site[first ^ i];
        if (me->up && me->serving && me->frozen_until_us <= world->now_us) {
            *site = first ^ i;
            return true;
        }
    }
    return false;
}

/* A range that meets an area: some blocks of it, or parts of blocks, sometimes a little beyond its ends. */
static void choose_range(struct sim_world *world, const struct sim_area *area, uint64_t *offset_bytes,
                         uint64_t *length_bytes)
{
    struct sim_rng *rng = &world->rng;
    uint64_t first = sim_below(rng, area->n_blocks), n = sim_between(rng, 1, area->n_blocks - first);

    if (sim_chance(rng, 600) && n > 2)
        n = sim_between(rng, 1, 2);
    *offset_bytes = (area->first_block + first) * SR_BLOCK_BYTES;
    *length_bytes = n * SR_BLOCK_BYTES;
    if (sim_below(rng, 100) >= world->params.partial_percent)
        return;
    uint64_t skip = sim_below(rng, SIM_BLOCK_SECTORS), less = sim_below(rng, SIM_BLOCK_SECTORS - (n == 1 ? skip : 0));
    *offset_bytes += skip * SIM_SECTOR_BYTES;
    *length_bytes -= (skip + less) * SIM_SECTOR_BYTES;
}

/* Zeroes and trims can be long: whole regions, or everything. */
static void choose_long_range(struct sim_world *world, const struct sim_area *area, uint64_t *offset_bytes,
                              uint64_t *length_bytes)
{
    struct sim_rng *rng = &world->rng;
    uint64_t blocks = world->layout.blocks[area->volume];
    uint64_t first = sim_chance(rng, 300) ? 0 : sim_below(rng, area->first_block + 1);
    uint64_t end = sim_chance(rng, 300) ? blocks : sim_between(rng, area->first_block + 1, blocks);

    *offset_bytes = first * SR_BLOCK_BYTES;
    *length_bytes = (end - first) * SR_BLOCK_BYTES;
}

void sim_host_visit(struct sim_world *world, unsigned host)
{
    struct sim_rng *rng = &world->rng;
    uint64_t offset_bytes, length_bytes;
    unsigned site = 0;

    bool served = serving_site(world, (unsigned)sim_below(rng, 2), &site);
    uint64_t pause_us = world->mending ? 20000 : served ? world->params.host_us : 8 * world->params.host_us;
    sim_world_push(world, SIM_EV_HOST, 0, world->now_us + sim_delay(rng, pause_us), host);
    if (world->mending) { /* only what repairs a block that cannot be read */
        if (host == 0 && world->hosts.n == 0 && !world->sweeping && served &&
            world->site[site].meta.n_bad > 0 && sim_chance(rng, 200)) {
            struct sim_meta *meta = &world->site[site].meta;
            uint64_t which = sim_below(rng, meta->n_bad);
            sim_host_issue(world, host, site, SR_HOST_ZERO, meta->bad[which].volume,
                           meta->bad[which].block * SR_BLOCK_BYTES, SR_BLOCK_BYTES);
        }
        return;
    }
    if (world->params.drop > 0 &&
        sim_chance(rng, waits_in_switchover(world, host) ? 300 : world->params.drop)) /* the new site is there already */
        drop(world, host);
    if (world->hosts.in_flight[host] >= depth[host] || !served)
        return;
    const struct sim_area *area = &world->layout.areas[sim_below(rng, world->layout.n_areas)];
    uint64_t dice = sim_below(rng, 100);
    choose_range(world, area, &offset_bytes, &length_bytes);
    enum sr_host_op op = SR_HOST_READ;
    if (dice < world->params.write_percent)
        op = SR_HOST_WRITE;
    else if (dice < world->params.write_percent + 12)
        op = dice % 2 == 0 ? SR_HOST_ZERO : SR_HOST_TRIM;
    else if (dice >= 95 || (world->layout.write_back[area->volume] && sim_chance(rng, 300)))
        op = SR_HOST_FLUSH;
    if ((op == SR_HOST_ZERO || op == SR_HOST_TRIM) && sim_below(rng, 100) < world->params.big_percent)
        choose_long_range(world, area, &offset_bytes, &length_bytes);
    if (op == SR_HOST_FLUSH)
        offset_bytes = length_bytes = 0;
    sim_host_issue(world, host, site, op, area->volume, offset_bytes, length_bytes);
}

void sim_host_late(struct sim_world *world, unsigned site)
{
    struct sim_rng *rng = &world->rng;
    uint64_t offset_bytes, length_bytes;

    for (unsigned n = (unsigned)sim_below(rng, 3); n > 0 && world->site[site].up && !world->mending; n--) {
        const struct sim_area *area = &world->layout.areas[sim_below(rng, world->layout.n_areas)];
        choose_range(world, area, &offset_bytes, &length_bytes);
        sim_host_issue(world, 3, site, sim_chance(rng, 700) ? SR_HOST_WRITE : SR_HOST_READ, area->volume, offset_bytes,
                       length_bytes);
        sim_host_retired(world, site);
    }
}

bool sim_host_sweep(struct sim_world *world)
{
    unsigned site;

    if (!serving_site(world, 0, &site))
        return false;
    for (uint32_t *next = &world->hosts.sweep_area; *next < world->layout.n_areas && !world->failed; ++*next) {
        const struct sim_area *area = &world->layout.areas[*next];
        if (!world->site[site].serving ||
            !sim_host_issue(world, 0, site, SR_HOST_READ, area->volume, area->first_block * SR_BLOCK_BYTES,
                            (uint64_t)area->n_blocks * SR_BLOCK_BYTES))
            return false;
    }
    return true;
}
