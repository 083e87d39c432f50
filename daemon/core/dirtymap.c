/* dirtymap.c - see dirtymap.h.
 *
 * Two levels: pages of 512 region entries, both made on demand.
 *
 * Invariants
 *   D1  n_listed is the sum of n_dirty; every listed block lies below `from`.
 *   D2  n_dirty of an entry is the number of bits in its map.
 *   D3  An entry without blocks is on the stale list (else it is freed).
 */
#include "core/dirtymap.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define PAGE_REGIONS 512u

struct sr_dirty_page {
    uint32_t used;
    struct sr_dirty_region *region[PAGE_REGIONS];
};

/* The map must not lose a block for want of memory: the core cannot go on without it. */
static void *must_have(void *memory)
{
    SR_ASSERT(memory != NULL);
    return memory;
}

bool sr_dirtymap_init(struct sr_dirtymap *map, uint64_t n_blocks)
{
    memset(map, 0, sizeof *map);
    map->n_blocks = n_blocks;
    map->n_regions = (uint32_t)((n_blocks + SR_REGION_BLOCKS - 1) / SR_REGION_BLOCKS);
    map->n_pages = (map->n_regions + PAGE_REGIONS - 1) / PAGE_REGIONS;
    map->pages = calloc(map->n_pages ? map->n_pages : 1, sizeof *map->pages);
    map->from = map->disk_from = SR_DIRTYMAP_NOWHERE;
    return map->pages != NULL;
}

static struct sr_dirty_region *find(const struct sr_dirtymap *map, uint32_t region)
{
    SR_ASSERT(region < map->n_regions);
    const struct sr_dirty_page *page = map->pages[region / PAGE_REGIONS];
    return page ? page->region[region % PAGE_REGIONS] : NULL;
}

static struct sr_dirty_region *make(struct sr_dirtymap *map, uint32_t region)
{
    struct sr_dirty_region *entry = find(map, region);
    if (entry)
        return entry;
    struct sr_dirty_page **page = &map->pages[region / PAGE_REGIONS];
    if (!*page)
        *page = must_have(calloc(1, sizeof **page));
    entry = must_have(calloc(1, sizeof *entry));
    entry->region = region;
    (*page)->region[region % PAGE_REGIONS] = entry;
    (*page)->used++;
    map->n_entries++;
    return entry;
}

static void drop(struct sr_dirtymap *map, struct sr_dirty_region *entry)
{
    struct sr_dirty_page **page = &map->pages[entry->region / PAGE_REGIONS];
    SR_ASSERT(!entry->stale);
    (*page)->region[entry->region % PAGE_REGIONS] = NULL;
    if (--(*page)->used == 0) {
        free(*page);
        *page = NULL;
    }
    map->n_entries--;
    map->n_listed -= entry->n_dirty;
    free(entry);
}

void sr_dirtymap_clear_all(struct sr_dirtymap *map)
{
    for (uint32_t p = 0; p < map->n_pages; p++) {
        if (!map->pages[p])
            continue;
        for (uint32_t i = 0; i < PAGE_REGIONS; i++)
            free(map->pages[p]->region[i]);
        free(map->pages[p]);
        map->pages[p] = NULL;
    }
    map->stale = NULL;
    map->n_entries = 0;
    map->n_listed = 0;
    map->from = map->disk_from = SR_DIRTYMAP_NOWHERE;
    map->from_suspect = false;
}

void sr_dirtymap_free(struct sr_dirtymap *map)
{
    if (!map->pages)
        return;
    sr_dirtymap_clear_all(map);
    free(map->pages);
    map->pages = NULL;
}

/* Past the bound the upper half of the entries becomes "every block from N on". */
static void coarsen(struct sr_dirtymap *map)
{
    uint32_t upper = 0, page = map->n_pages;
    while (page > 1 && upper < map->n_entries / 2) {
        page--;
        if (map->pages[page])
            upper += map->pages[page]->used;
    }
    sr_dirtymap_set_from(map, (uint64_t)page * PAGE_REGIONS * SR_REGION_BLOCKS, false);
}

static void set_bits(struct sr_dirtymap *map, struct sr_dirty_region *entry, uint32_t first, uint32_t end)
{
    for (uint32_t bit = first; bit < end; bit++) {
        uint8_t mask = (uint8_t)(1u << (bit % 8));
        if (entry->map[bit / 8] & mask)
            continue;
        entry->map[bit / 8] |= mask;
        entry->n_dirty++;
        map->n_listed++;
    }
}

static uint32_t region_blocks(const struct sr_dirtymap *map, uint32_t region)
{
    uint64_t left = map->n_blocks - (uint64_t)region * SR_REGION_BLOCKS;
    return left < SR_REGION_BLOCKS ? (uint32_t)left : SR_REGION_BLOCKS;
}

void sr_dirtymap_set(struct sr_dirtymap *map, uint64_t first, uint64_t n_blocks)
{
    SR_ASSERT(n_blocks <= map->n_blocks && first <= map->n_blocks - n_blocks);
    uint64_t end = first + n_blocks;
    if (end > map->from)
        end = map->from;
    while (first < end) {
        uint32_t region = (uint32_t)(first / SR_REGION_BLOCKS);
        uint64_t region_end = (uint64_t)(region + 1) * SR_REGION_BLOCKS;
        uint64_t stop = end < region_end ? end : region_end;
        struct sr_dirty_region *entry = make(map, region);
        set_bits(map, entry, (uint32_t)(first % SR_REGION_BLOCKS),
                 (uint32_t)(stop - (uint64_t)region * SR_REGION_BLOCKS));
        first = stop;
    }
    if (map->n_entries > SR_DIRTYMAP_REGIONS_MAX)
        coarsen(map);
}

void sr_dirtymap_set_region(struct sr_dirtymap *map, uint32_t region, const uint8_t bits[SR_REGION_MAP_BYTES])
{
    uint64_t start = (uint64_t)region * SR_REGION_BLOCKS;
    uint32_t n = region_blocks(map, region);
    for (uint32_t bit = 0; bit < n; bit++) {
        uint32_t run = bit;
        while (run < n && (bits[run / 8] >> (run % 8) & 1))
            run++;
        if (run > bit) {
            sr_dirtymap_set(map, start + bit, run - bit);
            bit = run;
        }
    }
}

void sr_dirtymap_set_suspect(struct sr_dirtymap *map, uint32_t region)
{
    struct sr_dirty_region *entry = find(map, region);
    bool known = entry && entry->n_dirty && !entry->suspect; /* blocks known to differ: nothing to gain */
    sr_dirtymap_set(map, (uint64_t)region * SR_REGION_BLOCKS, region_blocks(map, region));
    entry = find(map, region);
    if (entry && !known)
        entry->suspect = true;
}

void sr_dirtymap_set_suspect_blocks(struct sr_dirtymap *map, uint32_t region, const uint8_t bits[SR_REGION_MAP_BYTES])
{
    struct sr_dirty_region *entry = find(map, region);
    bool known = entry && entry->n_dirty && !entry->suspect;
    sr_dirtymap_set_region(map, region, bits);
    entry = find(map, region);
    if (entry && entry->n_dirty && !known)
        entry->suspect = true;
}

void sr_dirtymap_set_from(struct sr_dirtymap *map, uint64_t block, bool suspect)
{
    block -= block % SR_REGION_BLOCKS;
    if (block >= map->from || block >= map->n_blocks)
        return;
    map->from_suspect = suspect && (map->from == SR_DIRTYMAP_NOWHERE || map->from_suspect);
    map->from = block;
    /* entries above are covered now; stale ones stay, for their metadata */
    for (uint32_t p = (uint32_t)(block / SR_REGION_BLOCKS / PAGE_REGIONS); p < map->n_pages; p++) {
        for (uint32_t i = 0; map->pages[p] && i < PAGE_REGIONS; i++) {
            struct sr_dirty_region *entry = map->pages[p]->region[i];
            if (!entry || (uint64_t)entry->region * SR_REGION_BLOCKS < block)
                continue;
            map->n_listed -= entry->n_dirty;
            entry->n_dirty = 0;
            memset(entry->map, 0, sizeof entry->map);
            if (!entry->stale)
                drop(map, entry);
        }
    }
}

void sr_dirtymap_clear(struct sr_dirtymap *map, uint64_t first, uint64_t n_blocks)
{
    uint64_t end = first + n_blocks;
    SR_ASSERT(end <= map->n_blocks && end <= map->from);
    for (; first < end; first++) {
        struct sr_dirty_region *entry = find(map, (uint32_t)(first / SR_REGION_BLOCKS));
        uint32_t bit = (uint32_t)(first % SR_REGION_BLOCKS);
        if (!entry || !(entry->map[bit / 8] >> (bit % 8) & 1))
            continue;
        entry->map[bit / 8] &= (uint8_t) ~(1u << (bit % 8));
        entry->n_dirty--;
        map->n_listed--;
        sr_dirtymap_mark_stale(map, entry->region);
    }
}

bool sr_dirtymap_any(const struct sr_dirtymap *map, uint64_t first, uint64_t n_blocks)
{
    uint64_t at, end = first + n_blocks;
    return end > map->from || (sr_dirtymap_next_run(map, first, 1, &at) && at < end);
}

bool sr_dirtymap_is_empty(const struct sr_dirtymap *map)
{
    return map->n_listed == 0 && map->from >= map->n_blocks;
}

uint64_t sr_dirtymap_count(const struct sr_dirtymap *map)
{
    return map->n_listed + (map->from < map->n_blocks ? map->n_blocks - map->from : 0);
}

/* The first set bit at or after `bit`, SR_REGION_BLOCKS if none. */
static uint32_t next_bit(const struct sr_dirty_region *entry, uint32_t bit)
{
    while (bit < SR_REGION_BLOCKS) {
        uint8_t rest = (uint8_t)(entry->map[bit / 8] >> (bit % 8));
        if (rest)
            return bit + (uint32_t)__builtin_ctz(rest);
        bit = (bit / 8 + 1) * 8;
    }
    return SR_REGION_BLOCKS;
}

uint32_t sr_dirtymap_next_region(const struct sr_dirtymap *map, uint32_t region)
{
    while (region < map->n_regions) {
        const struct sr_dirty_page *page = map->pages[region / PAGE_REGIONS];
        if (!page) {
            region = (region / PAGE_REGIONS + 1) * PAGE_REGIONS;
            continue;
        }
        const struct sr_dirty_region *entry = page->region[region % PAGE_REGIONS];
        if (entry && entry->n_dirty)
            return region;
        region++;
    }
    return map->n_regions;
}

uint64_t sr_dirtymap_next_run(const struct sr_dirtymap *map, uint64_t at, uint64_t max_blocks, uint64_t *first)
{
    uint32_t start = (uint32_t)(at / SR_REGION_BLOCKS);
    for (uint32_t region = sr_dirtymap_next_region(map, start); map->n_listed && region < map->n_regions;
         region = sr_dirtymap_next_region(map, region + 1)) {
        const struct sr_dirty_region *entry = find(map, region);
        uint32_t bit = next_bit(entry, region == start ? (uint32_t)(at % SR_REGION_BLOCKS) : 0);
        if (bit == SR_REGION_BLOCKS)
            continue;
        uint64_t n = 0;
        *first = (uint64_t)region * SR_REGION_BLOCKS + bit;
        while (n < max_blocks && bit < SR_REGION_BLOCKS && (entry->map[bit / 8] >> (bit % 8) & 1))
            n++, bit++;
        return n;
    }
    if (map->from >= map->n_blocks)
        return 0;
    *first = at > map->from ? at : map->from;
    if (*first >= map->n_blocks)
        return 0;
    uint64_t n = SR_REGION_BLOCKS - *first % SR_REGION_BLOCKS;
    if (n > map->n_blocks - *first)
        n = map->n_blocks - *first;
    return n < max_blocks ? n : max_blocks;
}

bool sr_dirtymap_materialize(struct sr_dirtymap *map, uint64_t end)
{
    bool changed = false;
    while (map->from < end && map->from < map->n_blocks) {
        uint32_t region = (uint32_t)(map->from / SR_REGION_BLOCKS);
        struct sr_dirty_region *entry = make(map, region);
        map->from = (uint64_t)(region + 1) * SR_REGION_BLOCKS;
        set_bits(map, entry, 0, region_blocks(map, region));
        entry->suspect = map->from_suspect;
        sr_dirtymap_mark_stale(map, region);
        changed = true;
    }
    if (map->from >= map->n_blocks)
        map->from = SR_DIRTYMAP_NOWHERE;
    return changed;
}

uint32_t sr_dirtymap_region_bits(const struct sr_dirtymap *map, uint32_t region, uint8_t bits[SR_REGION_MAP_BYTES])
{
    const struct sr_dirty_region *entry = find(map, region);
    memset(bits, 0, SR_REGION_MAP_BYTES);
    if ((uint64_t)region * SR_REGION_BLOCKS >= map->from) {
        uint32_t n = region_blocks(map, region);
        for (uint32_t bit = 0; bit < n; bit++)
            bits[bit / 8] |= (uint8_t)(1u << (bit % 8));
        return n;
    }
    if (!entry)
        return 0;
    memcpy(bits, entry->map, SR_REGION_MAP_BYTES);
    return entry->n_dirty;
}

bool sr_dirtymap_is_suspect(const struct sr_dirtymap *map, uint64_t block)
{
    if (block >= map->from)
        return map->from_suspect;
    const struct sr_dirty_region *entry = find(map, (uint32_t)(block / SR_REGION_BLOCKS));
    return entry && entry->suspect;
}

void sr_dirtymap_mark_stale(struct sr_dirtymap *map, uint32_t region)
{
    struct sr_dirty_region *entry = make(map, region);
    if (entry->stale)
        return;
    entry->stale = true;
    entry->next_stale = map->stale;
    map->stale = entry;
}

bool sr_dirtymap_take_stale(struct sr_dirtymap *map, uint32_t *region)
{
    struct sr_dirty_region *entry = map->stale;
    if (!entry)
        return false;
    map->stale = entry->next_stale;
    entry->stale = false;
    *region = entry->region;
    if (entry->n_dirty == 0)
        drop(map, entry);
    return true;
}
