/* disk.c - the simulated disk of a site.
 *
 * It holds one stamp for each hot 512-byte sector; all other sectors are zero for ever, and a write that would
 * change that is a violation.  I/Os end in any order.  The bytes of a write are taken from the core's buffer
 * when it is submitted or when it ends, and a read sees the disk as it is when it ends.
 *
 * Invariants
 *   D1  A WRITE or ZERO that ended well is stable, unless it was `cached`: no crash changes it.  What is cached is
 *       lost with the power, sector by sector, unless it was written back by chance, or a FLUSH that began after its
 *       end ended well.  A killed process loses nothing, and the next one makes it stable before all else.
 *   D2  A crash leaves each write in flight done, not done, or done for some of its 512-byte sectors.  A write
 *       that ends with an error leaves the same three.
 *   D3  Two writes in flight never share a 4 KiB block: the core promises it (a violation if not).
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/zero.h"

#define WORDS (SIM_SECTOR_BYTES / 8)

/* ---- sectors as bytes --------------------------------------------------------------------------------------- */

static uint64_t sector_key(uint32_t volume, uint64_t sector)
{
    return sim_mix(sector + 1) ^ ((uint64_t)(volume + 1) << 48);
}

void sim_sector_fill(uint8_t *bytes, uint32_t volume, uint64_t sector, uint64_t stamp)
{
    uint64_t words[WORDS], key = sector_key(volume, sector);

    if (stamp == 0) {
        memset(bytes, 0, SIM_SECTOR_BYTES);
        return;
    }
    words[0] = stamp;
    for (uint64_t i = 1; i < WORDS; i++)
        words[i] = key + i * stamp;
    memcpy(bytes, words, sizeof(words));
}

bool sim_sector_parse(const uint8_t *bytes, uint32_t volume, uint64_t sector, uint64_t *stamp)
{
    uint64_t words[WORDS], key = sector_key(volume, sector), wrong = 0;

    memcpy(words, bytes, sizeof(words));
    *stamp = words[0];
    if (words[0] == 0)
        return sr_is_zero(bytes, SIM_SECTOR_BYTES);
    for (uint64_t i = 1; i < WORDS; i++)
        wrong |= words[i] ^ (key + i * words[0]);
    return wrong == 0;
}

/* ---- submitting -------------------------------------------------------------------------------------------------
 */

static bool is_write(const struct sr_disk_io *io)
{
    return io->op == SR_DISK_WRITE || io->op == SR_DISK_ZERO;
}

static uint64_t block_end(const struct sr_disk_io *io)
{
    return (io->offset_bytes + io->length_bytes + SR_BLOCK_BYTES - 1) / SR_BLOCK_BYTES;
}

bool sim_disk_writing(const struct sim_world *world, unsigned site, uint32_t volume, uint64_t offset_bytes,
                      uint64_t length_bytes)
{
    const struct sim_disk *disk = &world->site[site].disk;
    uint64_t first = offset_bytes / SR_BLOCK_BYTES;
    uint64_t end = (offset_bytes + length_bytes + SR_BLOCK_BYTES - 1) / SR_BLOCK_BYTES;

    for (uint32_t i = 0; i < disk->ios_end && disk->n_writes > 0; i++) {
        const struct sr_disk_io *io = &disk->ios[i].io;
        if (disk->ios[i].used && is_write(io) && io->volume == volume && io->offset_bytes / SR_BLOCK_BYTES < end &&
            first < block_end(io))
            return true;
    }
    return false;
}

static void check_shape(struct sim_world *world, unsigned site, const struct sr_disk_io *io)
{
    if (io->volume >= world->layout.n_volumes) {
        sim_fail(world, "disk", "site %u: I/O on volume %u", site, io->volume);
        return;
    }
    if (io->op == SR_DISK_FLUSH)
        return;
    uint64_t size = world->layout.blocks[io->volume] * SR_BLOCK_BYTES, needed = io->length_bytes;
    if (io->length_bytes == 0 || io->offset_bytes > size || io->length_bytes > size - io->offset_bytes ||
        (io->offset_bytes | io->length_bytes) % SIM_SECTOR_BYTES != 0)
        sim_fail(world, "disk", "site %u: I/O at %llu, %llu bytes, on a volume of %llu", site,
                 (unsigned long long)io->offset_bytes, (unsigned long long)io->length_bytes,
                 (unsigned long long)size);
    if (io->op == SR_DISK_HASH) {
        needed = io->length_bytes / SR_BLOCK_BYTES * SR_DIGEST_BYTES;
        if ((io->offset_bytes | io->length_bytes) % SR_BLOCK_BYTES != 0)
            sim_fail(world, "disk", "site %u: HASH of parts of blocks", site);
    }
    if (io->op != SR_DISK_ZERO &&
        (io->buf == NULL || io->buf->refs == 0 || io->buf_offset + needed > io->buf->capacity))
        sim_fail(world, "disk", "site %u: I/O without the memory for it", site);
    if (io->cached && !world->layout.write_back[io->volume])
        sim_fail(world, "disk", "site %u: a cached write of volume %u, which is write-through", site, io->volume);
    if (is_write(io) && sim_disk_writing(world, site, io->volume, io->offset_bytes, io->length_bytes))
        sim_fail(world, "disk", "site %u: two writes of the same block in flight at %llu", site,
                 (unsigned long long)io->offset_bytes);
}

static uint64_t duration_us(struct sim_world *world, unsigned site, const struct sr_disk_io *io)
{
    uint64_t us = sim_delay(&world->rng, world->params.disk_us);

    us += io->op == SR_DISK_FLUSH || io->op == SR_DISK_ZERO ? 0 : io->length_bytes / 2000;
    if (world->site[site].disk.slow_until_us > world->now_us) {
        us = us * 50 + sim_delay(&world->rng, 5000);
        if (world->site[site].disturbed_until_us < world->now_us + us)
            world->site[site].disturbed_until_us = world->now_us + us;
    }
    return us;
}

/* ---- caches ---------------------------------------------------------------------------------------------------- */

static void write_sector_back(struct sim_disk *disk, uint32_t sector)
{
    disk->stable[sector] = (struct sim_version){disk->sector[sector], disk->rank[sector]};
}

static void set_sector(struct sim_world *world, struct sim_disk *disk, uint32_t sector, uint64_t stamp, bool cached)
{
    disk->sector[sector] = stamp;
    disk->rank[sector] = ++disk->last_rank;
    if (!cached || sim_chance(&world->rng, 200))
        write_sector_back(disk, sector);
}

void sim_disk_secure(struct sim_disk *disk)
{
    for (uint32_t s = 0; s < SIM_HOT_SECTORS_MAX; s++)
        write_sector_back(disk, s);
}

bool sim_disk_is_secure(const struct sim_world *world, unsigned site)
{
    const struct sim_disk *disk = &world->site[site].disk;

    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++)
        if (disk->stable[s].stamp != disk->sector[s])
            return false;
    return true;
}

static void begin_flush(const struct sim_world *world, const struct sim_disk *disk, struct sim_io *flight)
{
    uint32_t n = world->layout.n_hot * SIM_BLOCK_SECTORS;

    flight->seen = calloc(n, sizeof(*flight->seen));
    SR_ASSERT(flight->seen != NULL);
    for (uint32_t s = 0; s < n; s++)
        flight->seen[s] = (struct sim_version){disk->sector[s], disk->rank[s]};
}

/* What was there when it began, but for sectors whose later content was written back already. */
static void end_flush(const struct sim_world *world, struct sim_disk *disk, const struct sim_io *flight)
{
    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++)
        if (world->layout.hot_volume[s / SIM_BLOCK_SECTORS] == flight->io.volume &&
            flight->seen[s].rank > disk->stable[s].rank)
            disk->stable[s] = flight->seen[s];
}

static void forget_flush(struct sim_io *flight)
{
    free(flight->seen);
    flight->seen = NULL;
}

static void lose_cache(struct sim_world *world, struct sim_disk *disk)
{
    unsigned kept = (unsigned[]){0, 0, 500, 900}[sim_below(&world->rng, 4)];

    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++) {
        if (disk->stable[s].rank != disk->rank[s] && sim_chance(&world->rng, kept))
            write_sector_back(disk, s);
        disk->sector[s] = disk->stable[s].stamp;
        disk->rank[s] = disk->stable[s].rank;
    }
}

/* Sectors of a write, taken from the core's buffer: all, or (torn) some of them. */
static void apply(struct sim_world *world, unsigned site, const struct sr_disk_io *io, bool torn)
{
    struct sim_disk *disk = &world->site[site].disk;
    struct sim_span span = {0};
    uint64_t stamp = 0;

    while (sim_layout_next(&world->layout, io->volume, io->offset_bytes, io->length_bytes, &span)) {
        for (uint32_t i = 0; i < span.n; i++) {
            uint64_t at = span.offset_bytes + (uint64_t)i * SIM_SECTOR_BYTES;
            if (torn && sim_chance(&world->rng, 500))
                continue;
            if (io->op == SR_DISK_WRITE && !sim_sector_parse(io->buf->data + io->buf_offset + (at - io->offset_bytes),
                                                             io->volume, at / SIM_SECTOR_BYTES, &stamp)) {
                sim_fail(world, "disk", "site %u writes bytes at %llu that no host sent", site,
                         (unsigned long long)at);
                return;
            }
            set_sector(world, disk, span.sector + i, stamp, io->cached);
            disk->unreadable[(span.sector + i) / SIM_BLOCK_SECTORS] = false;
        }
    }
}

/* What is not hot must be zero.  Long writes are looked at now and then only: it is most of the time they take. */
static void check_zero_elsewhere(struct sim_world *world, unsigned site, const struct sr_disk_io *io)
{
    uint64_t at = io->offset_bytes, end = io->offset_bytes + io->length_bytes;
    struct sim_span span = {0};
    bool more = true;

    if (io->length_bytes > 64 * SR_KIB && !sim_chance(&world->rng, 100))
        return;
    while (at < end) {
        more = more && sim_layout_next(&world->layout, io->volume, io->offset_bytes, io->length_bytes, &span);
        uint64_t stop = more ? span.offset_bytes : end;
        if (!sr_is_zero(io->buf->data + io->buf_offset + (at - io->offset_bytes), stop - at))
            sim_fail(world, "disk", "site %u writes data near %llu, where no host wrote", site,
                     (unsigned long long)at);
        at = more ? span.offset_bytes + (uint64_t)span.n * SIM_SECTOR_BYTES : end;
    }
}

void sim_disk_submit(struct sim_world *world, unsigned site, const struct sr_disk_io *io)
{
    static const char *const names[] = {"READ", "WRITE", "ZERO", "FLUSH", "HASH"};
    struct sim_disk *disk = &world->site[site].disk;
    uint32_t slot = 0;

    sim_trace(world, "%u    disk %s #%llu vol %u block %llu+%llu", site, names[io->op], (unsigned long long)io->io,
              io->volume, (unsigned long long)(io->offset_bytes / SR_BLOCK_BYTES),
              (unsigned long long)((io->length_bytes + SR_BLOCK_BYTES - 1) / SR_BLOCK_BYTES));
    check_shape(world, site, io);
    if (world->failed)
        return;
    if (is_write(io))
        sim_check_disk_write(world, site);
    for (uint32_t i = 0; i < disk->ios_end; i++)
        if (disk->ios[i].used && disk->ios[i].io.io == io->io)
            sim_fail(world, "disk", "site %u: I/O number %llu twice", site, (unsigned long long)io->io);
    while (slot < disk->ios_end && disk->ios[slot].used)
        slot++;
    if (slot == SIM_IOS_MAX) {
        sim_fail(world, "disk", "site %u has more than %u I/Os in flight", site, SIM_IOS_MAX);
        return;
    }
    disk->ios_end = slot == disk->ios_end ? slot + 1 : disk->ios_end;
    disk->ios[slot] = (struct sim_io){.used = true, .io = *io};
    disk->n_ios++;
    disk->n_writes += is_write(io);
    world->stats->ios++;
    if (io->op == SR_DISK_FLUSH && world->layout.write_back[io->volume])
        begin_flush(world, disk, &disk->ios[slot]);
    if (io->op == SR_DISK_WRITE)
        check_zero_elsewhere(world, site, io);
    if (is_write(io) && disk->fail_writes == 0 && disk->full_until_us <= world->now_us &&
        sim_chance(&world->rng, 300)) {
        apply(world, site, io, false); /* early: others may see it before the core knows */
        disk->ios[slot].applied = true;
    }
    sim_world_push(world, SIM_EV_DISK, site, world->now_us + duration_us(world, site, io), slot);
}

/* ---- ending -------------------------------------------------------------------------------------------------------
 */

static bool all_zero(const struct sim_world *world, unsigned site, const struct sr_disk_io *io)
{
    const struct sim_disk *disk = &world->site[site].disk;
    struct sim_span span = {0};

    while (sim_layout_next(&world->layout, io->volume, io->offset_bytes, io->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++)
            if (disk->sector[span.sector + i] != 0)
                return false;
    return true;
}

static void fill(const struct sim_world *world, unsigned site, const struct sr_disk_io *io)
{
    const struct sim_disk *disk = &world->site[site].disk;
    uint8_t *out = io->buf->data + io->buf_offset;
    struct sim_span span = {0};

    memset(out, 0, io->length_bytes);
    while (sim_layout_next(&world->layout, io->volume, io->offset_bytes, io->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++) {
            uint64_t at = span.offset_bytes + (uint64_t)i * SIM_SECTOR_BYTES;
            sim_sector_fill(out + (at - io->offset_bytes), io->volume, at / SIM_SECTOR_BYTES,
                            disk->sector[span.sector + i]);
        }
}

/* Any function of the contents will do, if both sites use the same. */
static void hash(const struct sim_world *world, unsigned site, const struct sr_disk_io *io)
{
    const struct sim_disk *disk = &world->site[site].disk;
    uint8_t *out = io->buf->data + io->buf_offset;
    struct sim_span span = {0};

    memset(out, 0, io->length_bytes / SR_BLOCK_BYTES * SR_DIGEST_BYTES);
    while (sim_layout_next(&world->layout, io->volume, io->offset_bytes, io->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i += SIM_BLOCK_SECTORS) {
            uint64_t digest[2] = {0, 0}, bits = 0;
            for (uint32_t s = 0; s < SIM_BLOCK_SECTORS; s++) {
                digest[0] = sim_mix(digest[0] * 31 + disk->sector[span.sector + i + s]);
                bits |= disk->sector[span.sector + i + s];
            }
            digest[1] = ~digest[0];
            uint64_t block = (span.offset_bytes - io->offset_bytes) / SR_BLOCK_BYTES + i / SIM_BLOCK_SECTORS;
            if (bits != 0) /* a block of zeroes is a block of zeroes, hot or not */
                memcpy(out + block * SR_DIGEST_BYTES, digest, SR_DIGEST_BYTES);
        }
}

static bool meets_unreadable(const struct sim_world *world, unsigned site, const struct sr_disk_io *io)
{
    const struct sim_disk *disk = &world->site[site].disk;
    struct sim_span span = {0};

    while (sim_layout_next(&world->layout, io->volume, io->offset_bytes, io->length_bytes, &span))
        for (uint32_t i = 0; i < span.n; i++)
            if (disk->unreadable[(span.sector + i) / SIM_BLOCK_SECTORS])
                return true;
    return false;
}

/* How the I/O ends; takes its share of the errors that were planned. */
static enum sr_error outcome(struct sim_world *world, unsigned site, const struct sim_io *flight)
{
    struct sim_disk *disk = &world->site[site].disk;
    const struct sr_disk_io *io = &flight->io;
    bool reads = io->op == SR_DISK_READ || io->op == SR_DISK_HASH;
    unsigned *planned = io->op == SR_DISK_FLUSH ? &disk->fail_flushes
                        : is_write(io)          ? &disk->fail_writes
                                                : &disk->fail_reads;

    if (flight->applied)
        return SR_OK;
    if (*planned > 0) {
        --*planned;
        disk->had_error |= !reads || disk->had_no_space; /* what a refused write left must be read back */
        disk->told_error |= !reads;
        world->stats->disk_errors++;
        return SR_E_IO;
    }
    if (reads && meets_unreadable(world, site, io)) {
        disk->had_error |= disk->had_no_space;
        return SR_E_IO;
    }
    if (is_write(io) && !(io->op == SR_DISK_ZERO && io->may_trim) && disk->full_until_us > world->now_us &&
        sim_chance(&world->rng, 700)) {
        disk->had_no_space = true;
        world->stats->no_space++;
        return SR_E_NO_SPACE;
    }
    return SR_OK;
}

void sim_disk_complete(struct sim_world *world, unsigned site, uint32_t slot)
{
    struct sim_disk *disk = &world->site[site].disk;
    struct sim_io *flight = &disk->ios[slot];
    struct sr_event event = {.type = SR_EV_DISK_DONE};
    const struct sr_disk_io *io = &flight->io;

    SR_ASSERT(flight->used);
    event.disk.io = io->io;
    event.disk.error = outcome(world, site, flight);
    if (is_write(io) && !flight->applied && (event.disk.error == SR_OK || sim_chance(&world->rng, 600)))
        apply(world, site, io, event.disk.error != SR_OK);
    if (io->op == SR_DISK_READ && event.disk.error == SR_OK) {
        event.disk.all_zero = io->probe && all_zero(world, site, io) && sim_chance(&world->rng, 950);
        if (!event.disk.all_zero)
            fill(world, site, io);
    }
    if (io->op == SR_DISK_HASH && event.disk.error == SR_OK)
        hash(world, site, io);
    if (flight->seen && event.disk.error == SR_OK)
        end_flush(world, disk, flight);
    forget_flush(flight);
    flight->used = false;
    disk->n_ios--;
    disk->n_writes -= is_write(io);
    sim_trace(world, "%u disk #%llu ends: %s", site, (unsigned long long)io->io, sr_error_name(event.disk.error));
    sim_world_step(world, site, &event);
}

void sim_disk_crash(struct sim_world *world, unsigned site, bool power)
{
    struct sim_disk *disk = &world->site[site].disk;

    for (uint32_t i = 0; i < disk->ios_end; i++) {
        struct sim_io *flight = &disk->ios[i];
        if (!flight->used)
            continue;
        flight->used = false;
        forget_flush(flight);
        if (is_write(&flight->io) && !flight->applied && sim_chance(&world->rng, 650))
            apply(world, site, &flight->io, sim_chance(&world->rng, 500));
    }
    disk->n_ios = disk->n_writes = disk->ios_end = 0;
    disk->told_error = false;
    if (power)
        lose_cache(world, disk);
}

void sim_disk_replaced(struct sim_world *world, unsigned site)
{
    struct sim_disk *disk = &world->site[site].disk;
    uint64_t kind = sim_below(&world->rng, 3); /* empty, what was there before, something else */

    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++) {
        if (kind == 0)
            disk->sector[s] = 0;
        else if (kind == 2)
            disk->sector[s] = sim_chance(&world->rng, 500) ? 0 : SIM_GARBAGE + s;
    }
    for (uint32_t s = 0; s < world->layout.n_hot * SIM_BLOCK_SECTORS; s++)
        disk->rank[s] = ++disk->last_rank;
    sim_disk_secure(disk);
    memset(disk->unreadable, 0, sizeof(disk->unreadable));
    disk->had_error = disk->told_error = false;
}
