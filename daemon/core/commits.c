/* commits.c - what becomes durable, in numbered commits.
 *
 * One commit is out at a time; all that is asked for meanwhile goes into the next one together (group
 * commit within the collection; the metadata thread groups across collections).  So commits become durable in
 * order, and whoever waits for commit n only compares n with core->durable.
 */
#include <stdlib.h>

#include "core/internal.h"

static struct sr_commit *building(struct sr_core *core)
{
    if (!core->building) {
        core->building = calloc(1, sizeof *core->building);
        SR_ASSERT(core->building != NULL);
        core->building->commit = ++core->next_commit;
    }
    return core->building;
}

uint64_t core_next_commit(struct sr_core *core)
{
    return building(core)->commit;
}

uint64_t core_commit_record(struct sr_core *core)
{
    building(core)->has_record = true; /* its contents are taken when the commit is emitted */
    core->rec_commit = building(core)->commit;
    return core->rec_commit;
}

struct sr_meta_op *core_commit_op(struct sr_core *core, enum sr_meta_op_type type, uint32_t volume)
{
    struct sr_commit *commit = building(core);
    if (commit->n_ops == commit->cap_ops) {
        uint32_t cap = commit->cap_ops ? commit->cap_ops * 2 : 8;
        struct sr_meta_op *grown = realloc(commit->ops, cap * sizeof *grown);
        SR_ASSERT(grown != NULL);
        commit->ops = grown;
        commit->cap_ops = cap;
    }
    struct sr_meta_op *op = &commit->ops[commit->n_ops++];
    *op = (struct sr_meta_op){.type = type, .volume = volume};
    return op;
}

void core_commit_region(struct sr_core *core, struct volume *volume, uint32_t region)
{
    uint8_t bits[SR_REGION_MAP_BYTES];
    bool covered = (uint64_t)region * SR_REGION_BLOCKS >= volume->map.disk_from;
    if (covered || sr_dirtymap_region_bits(&volume->map, region, bits) == 0) {
        core_commit_op(core, SR_META_CLEAN, volume->index)->region = region;
        return;
    }
    struct sr_commit *commit = building(core);
    if (commit->n_maps == commit->cap_maps) {
        uint32_t cap = commit->cap_maps ? commit->cap_maps * 2 : 8;
        void *grown = realloc(commit->maps, cap * sizeof *commit->maps);
        SR_ASSERT(grown != NULL);
        commit->maps = grown;
        commit->cap_maps = cap;
    }
    memcpy(commit->maps[commit->n_maps], bits, sizeof bits);
    struct sr_meta_op *op = core_commit_op(core, SR_META_REGION, volume->index);
    op->region = region;
    op->map = commit->n_maps++;
}

void core_commit_clear_maps(struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        core_commit_op(core, SR_META_CLEAR, i);
        sr_dirtymap_clear_all(&core->volumes[i].map);
    }
    struct sr_intent *intent, *next;
    for (intent = TAILQ_FIRST(&core->intents.all); intent; intent = next) {
        next = TAILQ_NEXT(intent, all);
        bool in_use = intent->refs > 0 || (intent->is_cached && !SR_BUG(SYNC_FORGETS_CACHED)); /* F2 */
        if (!in_use)
            sr_intents_remove(&core->intents, intent);
        else
            core_commit_op(core, SR_META_INTENT, intent->volume)->region = intent->region;
    }
}

void core_commit_flush(struct sr_core *core)
{
    if (!core->building || core->flying || core->halted)
        return;
    core->flying = core->building;
    core->building = NULL;
    if (core->flying->has_record)
        core->flying->record = core->rec;
    core->flying_since_us = core->now_us;
    core->count.meta_commits++;
    core_act(core, SR_ACT_COMMIT)->commit = core->flying;
}

bool core_settled(const struct sr_core *core)
{
    return core->durable >= core->rec_commit;
}

void core_free_commit(struct sr_commit *commit)
{
    if (!commit)
        return;
    free(commit->ops);
    free(commit->maps);
    free(commit);
}

void core_on_meta_done(struct sr_core *core, uint64_t number, enum sr_error error)
{
    SR_ASSERT(core->flying && core->flying->commit == number);
    core_free_commit(core->flying);
    core->flying = NULL;
    if (error != SR_OK) {
        core_halt(core, "the metadata could not be written; nothing more is acknowledged");
        return;
    }
    core->durable = number;
    uint64_t took_us = core->now_us - core->flying_since_us;
    core->commit_took_us = core->commit_took_us ? (core->commit_took_us * 7 + took_us) / 8 : took_us;
    core_intents_commits_done(core);
    core_requests_commits_done(core);
}
