/* dirtymap.h - the out-of-sync blocks of one volume: those that the peer lacks.
 *
 * Pure data structure, exact in memory and sparse: a region has an entry only while one of its blocks is out
 * of sync or its metadata is not up to date.  A volume that differs everywhere is a single number ("every
 * block from N on").  Memory is bounded: past SR_DIRTYMAP_REGIONS_MAX entries the upper part is coarsened into that
 * number, which only ever adds blocks.
 *
 * It also remembers, a bit per region each, what the metadata holds of it and whether the blocks are
 * *suspect* (an intent after a crash: equal until compared otherwise) or known to differ.
 */
#ifndef SR_CORE_DIRTYMAP_H
#define SR_CORE_DIRTYMAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/units.h"

#define SR_DIRTYMAP_REGIONS_MAX (1u << 18) /* 1 TiB worth of regions, 48 MiB of memory */
#define SR_DIRTYMAP_NOWHERE     UINT64_MAX

struct sr_dirty_region {
    uint8_t map[SR_REGION_MAP_BYTES];
    uint32_t region;
    uint16_t n_dirty;
    bool suspect; /* compare before copying */
    bool stale;   /* the metadata lists more blocks than `map` (safe); in the stale list */
    struct sr_dirty_region *next_stale;
};

struct sr_dirty_page;

struct sr_dirtymap {
    uint64_t n_blocks;
    uint32_t n_regions;
    uint64_t from;      /* every block >= from is out of sync; NOWHERE: none */
    uint64_t disk_from; /* what the metadata says of it */
    bool from_suspect;  /* compare those before copying */
    uint64_t n_listed;  /* blocks set below from */
    uint32_t n_entries;
    uint32_t n_pages;
    struct sr_dirty_page **pages;
    struct sr_dirty_region *stale;
};

/* False without memory. */
bool sr_dirtymap_init(struct sr_dirtymap *map, uint64_t n_blocks);
void sr_dirtymap_free(struct sr_dirtymap *map);

/* Forget everything (the metadata must be cleared with it). */
void sr_dirtymap_clear_all(struct sr_dirtymap *map);

void sr_dirtymap_set(struct sr_dirtymap *map, uint64_t first, uint64_t n_blocks);
void sr_dirtymap_set_region(struct sr_dirtymap *map, uint32_t region, const uint8_t bits[SR_REGION_MAP_BYTES]);
void sr_dirtymap_set_suspect(struct sr_dirtymap *map, uint32_t region); /* all blocks of the region */
void sr_dirtymap_set_suspect_blocks(struct sr_dirtymap *map, uint32_t region,
                                    const uint8_t bits[SR_REGION_MAP_BYTES]);
void sr_dirtymap_set_from(struct sr_dirtymap *map, uint64_t block, bool suspect);

/* The blocks must lie below `from` (take them out with materialize first). */
void sr_dirtymap_clear(struct sr_dirtymap *map, uint64_t first, uint64_t n_blocks);

bool sr_dirtymap_any(const struct sr_dirtymap *map, uint64_t first, uint64_t n_blocks);
bool sr_dirtymap_is_empty(const struct sr_dirtymap *map);
uint64_t sr_dirtymap_count(const struct sr_dirtymap *map);

/* The next run of out-of-sync blocks at or after `at`: at most max blocks, within one region.  Returns 0: none. */
uint64_t sr_dirtymap_next_run(const struct sr_dirtymap *map, uint64_t at, uint64_t max_blocks, uint64_t *first);

/* Turns the blocks up to `end` that are only covered by `from` into listed ones (whole regions); true if it
 * changed `from`. */
bool sr_dirtymap_materialize(struct sr_dirtymap *map, uint64_t end);

/* The region's bits, those covered by `from` included; returns how many are set. */
uint32_t sr_dirtymap_region_bits(const struct sr_dirtymap *map, uint32_t region, uint8_t bits[SR_REGION_MAP_BYTES]);
bool sr_dirtymap_is_suspect(const struct sr_dirtymap *map, uint64_t block);

/* The next region at or after `region` that has an entry with blocks set; n_regions: none. */
uint32_t sr_dirtymap_next_region(const struct sr_dirtymap *map, uint32_t region);

/* Mark that the metadata holds a superset of this region's bits / that it now holds exactly these bits: an
 * entry without blocks is freed by the latter. */
void sr_dirtymap_mark_stale(struct sr_dirtymap *map, uint32_t region);
/* Takes one region off the stale list; false: empty. */
bool sr_dirtymap_take_stale(struct sr_dirtymap *map, uint32_t *region);

#endif
