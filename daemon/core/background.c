/* background.c - intents are set before writes and cleared lazily; maps are saved as they cool.
 *
 * Crash safety: at every moment the metadata of a region is either an intent (all blocks suspect), or lists at
 * least the blocks that are out of sync in memory.  Setting bits needs an intent first; clearing bits leaves
 * the metadata a superset ("stale") until it is saved.
 */
#include "core/internal.h"

#define COOL_CHECK_US 1000000u
#define SAVE_EVERY_US 1000000u

static void cool(struct sr_core *core, struct sr_intent *intent)
{
    struct volume *volume = &core->volumes[intent->volume];
    core_commit_region(core, volume, intent->region);
    sr_intents_cool(&core->intents, intent, core_next_commit(core));
}

/* On disk the region is (or will be, in commit order) an intent: its exact map is written when it cools. */
static bool keeps_intent(const struct sr_core *core, const struct volume *volume, uint32_t region)
{
    const struct sr_intent *intent = sr_intents_find(&core->intents, volume->index, region);
    return intent && intent->state != SR_INTENT_COOLING;
}

void core_save_region(struct sr_core *core, struct volume *volume, uint32_t region)
{
    if (!keeps_intent(core, volume, region))
        core_commit_region(core, volume, region);
}

void core_cool_all(struct sr_core *core)
{
    struct sr_intent *intent;
    while ((intent = sr_intents_coldest(&core->intents)))
        cool(core, intent);
}

void core_intents_commits_done(struct sr_core *core)
{
    struct sr_intent *intent, *next;
    for (intent = TAILQ_FIRST(&core->intents.all); intent; intent = next) {
        next = TAILQ_NEXT(intent, all);
        if (intent->commit > core->durable || intent->commit == 0)
            continue;
        if (intent->state == SR_INTENT_SETTING)
            intent->state = SR_INTENT_DURABLE;
        else if (intent->state == SR_INTENT_COOLING)
            sr_intents_remove(&core->intents, intent);
    }
}

static uint32_t first_region(const struct request *request)
{
    return (uint32_t)(request->offset / SR_REGION_BYTES);
}

static uint32_t last_region(const struct request *request)
{
    return (uint32_t)((request->offset + request->length - 1) / SR_REGION_BYTES);
}

bool core_intents_take(struct sr_core *core, struct request *request)
{
    uint32_t volume = request->volume->index, first = first_region(request), last = last_region(request);
    SR_ASSERT(!request->has_intents);
    if (core->intents.n + sr_intents_missing(&core->intents, volume, first, last) > INTENTS_MAX) {
        core_cool_all(core); /* the room comes with that commit */
        core_flush_all(core); /* ... or with the one after this */
        return false;
    }
    request->wait_commit = 0;
    for (uint32_t region = first; region <= last; region++) {
        struct sr_intent *intent = sr_intents_take(&core->intents, volume, region);
        if (intent->state == SR_INTENT_DURABLE)
            continue;
        if (intent->commit == 0) {
            core_commit_op(core, SR_META_INTENT, volume)->region = region;
            intent->commit = core_next_commit(core);
        }
        if (intent->commit > request->wait_commit)
            request->wait_commit = intent->commit;
    }
    request->has_intents = true;
    return true;
}

/* More regions are idle, or fewer of the idle ones are cached. */
static void idle_changed(struct sr_core *core)
{
    if (core->intents_wanted)
        core_requests_commits_done(core); /* there may be room now */
    while (core->intents.n_idle + core->intents.n_cached > core->tune.hot_regions_max) {
        struct sr_intent *coldest = sr_intents_coldest(&core->intents);
        if (!coldest) {
            core_flush_all(core);
            break;
        }
        cool(core, coldest);
    }
    if (!core->cool_at_us)
        core->cool_at_us = core->now_us + COOL_CHECK_US;
}

void core_intents_give(struct sr_core *core, struct request *request)
{
    if (!request->has_intents)
        return;
    request->has_intents = false;
    for (uint32_t region = first_region(request); region <= last_region(request); region++) {
        struct sr_intent *intent = sr_intents_find(&core->intents, request->volume->index, region);
        SR_ASSERT(intent != NULL);
        sr_intents_give(&core->intents, intent, core->now_us, request->volume->flush.begun);
        if (SR_BUG(COOLED_BEFORE_FLUSH) && intent->refs == 0)
            sr_intents_flushed(&core->intents, intent);
    }
    idle_changed(core);
}

void core_intents_write_cached(struct sr_core *core, struct request *request)
{
    uint64_t first = core_first_block(request->offset), end = core_end_block(request->offset, request->length);
    for (uint32_t region = first_region(request); region <= last_region(request); region++) {
        struct sr_intent *intent = sr_intents_find(&core->intents, request->volume->index, region);
        uint64_t start = (uint64_t)region * SR_REGION_BLOCKS, stop = start + SR_REGION_BLOCKS;
        SR_ASSERT(intent != NULL);
        sr_intents_write_cached(intent, (uint32_t)((first > start ? first : start) - start),
                                (uint32_t)((end < stop ? end : stop) - start));
    }
}

void core_intents_flushed(struct sr_core *core)
{
    idle_changed(core);
}

static bool cool_idle(struct sr_core *core)
{
    uint64_t age_us = (uint64_t)core->tune.cool_after_ms * 1000;
    struct sr_intent *intent;
    while ((intent = sr_intents_coldest(&core->intents)) && core->now_us - intent->idle_since_us >= age_us)
        cool(core, intent);
    const struct sr_intent *cached = TAILQ_FIRST(&core->intents.cached);
    if (cached && core->now_us - cached->idle_since_us >= age_us)
        core_flush_all(core); /* hosts need not do it: after a while nothing is in caches any more */
    return core->intents.n_idle + core->intents.n_cached > 0;
}

/* The metadata's "from block N on" may move up only together with the exact maps of the regions it passes. */
static void save_from(struct sr_core *core, struct volume *volume)
{
    struct sr_dirtymap *map = &volume->map;
    if (map->from == map->disk_from || map->disk_from == SR_DIRTYMAP_NOWHERE)
        return;
    uint64_t old = map->disk_from, new = map->from;
    if (new < old)
        return; /* coarsened in memory only: the metadata is exact */
    map->disk_from = new;
    uint32_t end = new >= map->n_blocks ? map->n_regions : (uint32_t)(new / SR_REGION_BLOCKS);
    for (uint32_t region = sr_dirtymap_next_region(map, (uint32_t)(old / SR_REGION_BLOCKS)); region < end;
         region = sr_dirtymap_next_region(map, region + 1))
        core_save_region(core, volume, region);
    core_commit_op(core, SR_META_FROM, volume->index)->block = new;
}

static bool save_stale(struct sr_core *core)
{
    bool more = false;
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        struct volume *volume = &core->volumes[i];
        uint32_t region, saved = 0;
        save_from(core, volume);
        for (; saved < SAVES_PER_COMMIT && sr_dirtymap_take_stale(&volume->map, &region); saved++)
            core_save_region(core, volume, region);
        more |= volume->map.stale != NULL;
    }
    return more;
}

static bool any_stale(const struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes; i++)
        if (core->volumes[i].map.stale)
            return true;
    return false;
}

void core_background_pump(struct sr_core *core)
{
    if (core->cool_at_us && core->now_us >= core->cool_at_us) {
        core->cool_at_us = cool_idle(core) ? core->now_us + COOL_CHECK_US : 0;
        if (!core->save_at_us && any_stale(core))
            core->save_at_us = core->now_us + SAVE_EVERY_US;
    }
    if (core->save_at_us && core->now_us >= core->save_at_us)
        core->save_at_us =
            save_stale(core) || (core->mode == MODE_RESYNCING && !core->stopping) ? core->now_us + SAVE_EVERY_US : 0;
}
