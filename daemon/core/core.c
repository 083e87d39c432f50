/* core.c - the one function, and the life of a core.  The state table is in internal.h. */
#include "core/core.h"

#include <stdlib.h>

#include "core/internal.h"

#ifdef SR_PLANTED_BUGS
enum sr_planted sr_planted_bug = SR_BUG_NONE;
#endif

/* ---- life ---------------------------------------------------------------------------------------------------- */

static bool init_volumes(struct sr_core *core, const struct sr_core_config *config)
{
    core->volumes = calloc(config->n_volumes, sizeof *core->volumes);
    core->peer_maps = calloc(config->n_volumes, sizeof *core->peer_maps);
    if (!core->volumes || !core->peer_maps)
        return false;
    core->n_volumes = config->n_volumes;
    for (uint32_t i = 0; i < config->n_volumes; i++) {
        struct volume *volume = &core->volumes[i];
        SR_ASSERT(config->volumes[i].size_bytes % SR_BLOCK_BYTES == 0 && config->volumes[i].size_bytes > 0);
        volume->core = core;
        volume->index = i;
        volume->uuid = config->volumes[i].uuid;
        volume->size_bytes = config->volumes[i].size_bytes;
        volume->write_back = config->volumes[i].write_back;
        volume->name = strdup(config->volumes[i].name ? config->volumes[i].name : config->name);
        volume->n_blocks = volume->size_bytes / SR_BLOCK_BYTES;
        sr_rangelock_init(&volume->locks);
        if (!volume->name || !sr_dirtymap_init(&volume->map, volume->n_blocks) ||
            !sr_dirtymap_init(&core->peer_maps[i], volume->n_blocks))
            return false;
    }
    return true;
}

struct sr_core *sr_core_new(const struct sr_core_config *config, const struct sr_record *record)
{
    struct sr_core *core = calloc(1, sizeof *core);
    if (!core)
        return NULL;
    core->tune = config->tuning;
    core->budget = config->budget;
    core->name = strdup(config->name);
    core->peer_name = strdup(config->peer_name);
    core->rec = *record;
    core->session_seen = config->session_floor;
    core->continues = config->continues;
    core->full_reason = "";
    core->last_sync = SR_SYNC_OUT_OF_SYNC;
    TAILQ_INIT(&core->requests);
    TAILQ_INIT(&core->peer_wait);
    TAILQ_INIT(&core->commit_wait);
    TAILQ_INIT(&core->ready);
    TAILQ_INIT(&core->copies);
    TAILQ_INIT(&core->follow_ops);
    TAILQ_INIT(&core->admins);
    if (!core->name || !core->peer_name || !sr_intents_init(&core->intents) || !init_volumes(core, config)) {
        sr_core_free(core);
        return NULL;
    }
    return core;
}

static void free_lists(struct sr_core *core)
{
    struct request *request;
    while ((request = TAILQ_FIRST(&core->requests))) {
        TAILQ_REMOVE(&core->requests, request, all);
        sr_buf_unref(request->host.buf);
        sr_buf_unref(request->chunk);
        free(request);
    }
    struct copy *copy;
    while ((copy = TAILQ_FIRST(&core->copies))) {
        TAILQ_REMOVE(&core->copies, copy, link);
        sr_buf_unref(copy->buf);
        free(copy);
    }
    struct follow_op *op;
    while ((op = TAILQ_FIRST(&core->follow_ops))) {
        TAILQ_REMOVE(&core->follow_ops, op, link);
        sr_buf_unref(op->buf);
        sr_buf_unref(op->digests);
        free(op);
    }
    struct admin *admin;
    while ((admin = TAILQ_FIRST(&core->admins))) {
        TAILQ_REMOVE(&core->admins, admin, link);
        free(admin);
    }
}

void sr_core_free(struct sr_core *core)
{
    if (!core)
        return;
    free_lists(core);
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        sr_dirtymap_free(&core->volumes[i].map);
        sr_dirtymap_free(&core->peer_maps[i]);
        free(core->volumes[i].bad);
        free(core->volumes[i].name);
    }
    sr_intents_free(&core->intents);
    sr_slots_free(&core->ios);
    sr_slots_free(&core->messages);
    core_free_commit(core->building);
    core_free_commit(core->flying);
    free(core->volumes);
    free(core->peer_maps);
    free(core->name);
    free(core->peer_name);
    free(core);
}

uint64_t sr_core_session(const struct sr_core *core)
{
    return core->session > core->session_seen ? core->session : core->session_seen;
}

/* ---- what the metadata held ----------------------------------------------------------------------------------- */

void sr_core_load_intent(struct sr_core *core, uint32_t volume, uint32_t region)
{
    SR_ASSERT(volume < core->n_volumes && region < core->volumes[volume].map.n_regions);
    sr_dirtymap_set_suspect(&core->volumes[volume].map, region);
    struct sr_intent *intent = sr_intents_take(&core->intents, volume, region);
    intent->state = SR_INTENT_DURABLE;
    sr_intents_give(&core->intents, intent, 0, 0);
}

void sr_core_load_region(struct sr_core *core, uint32_t volume, uint32_t region,
                         const uint8_t map[SR_REGION_MAP_BYTES])
{
    SR_ASSERT(volume < core->n_volumes && region < core->volumes[volume].map.n_regions);
    sr_dirtymap_set_region(&core->volumes[volume].map, region, map);
}

void sr_core_load_from(struct sr_core *core, uint32_t volume, uint64_t block)
{
    SR_ASSERT(volume < core->n_volumes);
    sr_dirtymap_set_from(&core->volumes[volume].map, block, false);
    core->volumes[volume].map.disk_from = core->volumes[volume].map.from;
}

void sr_core_load_bad(struct sr_core *core, uint32_t volume, uint64_t block)
{
    SR_ASSERT(volume < core->n_volumes);
    core_add_bad(&core->volumes[volume], block);
}

/* ---- the step -------------------------------------------------------------------------------------------------- */

static void begin_step(struct sr_core *core, const struct sr_event *event, struct sr_actions *actions)
{
    actions->n = 0;
    core->out = actions;
    SR_ASSERT(event->now_us >= core->now_us);
    core->now_us = event->now_us;
    core->wall_ms = event->wall_ms;
    core->random = event->random;
    core->random_used = false;
}

static void tell_hosts(struct sr_core *core)
{
    if (core->refuse_pending && core_settled(core)) {
        core->refuse_pending = false;
        core_requests_refuse_all(core);
    }
    bool serve = core_serving(core) && (core->forwards_left == 0 || SR_BUG(FORWARDS_UNFENCED)); /* H3 */
    bool answers_due = core->mode == MODE_HANDED_OVER || core_forwards_due(core); /* to hosts that leave */
    if (core->refuse_pending || !core_settled(core) || (core->retired && answers_due))
        return;
    if (core->retired) {
        core->retired = core->serve_told = false;
        core_act(core, SR_ACT_SERVE)->serve = false;
    }
    if (serve == core->serve_told)
        return;
    core->serve_told = serve;
    core_act(core, SR_ACT_SERVE)->serve = core->serve_told;
}

static uint64_t stall_deadline(const struct sr_core *core, const struct request *oldest)
{
    return oldest->peer_wait_since_us + (uint64_t)core->tune.stall_budget_ms * 1000;
}

/* Who waits for a lock waits for the peer only if its holder does: another request, which is in the list itself, or a
 * copy. */
static uint64_t peer_deadline(const struct sr_core *core, const struct request *request)
{
    if (request->state != PIECE_LOCKING)
        return stall_deadline(core, request);
    uint64_t since_us = core_copy_peer_since_us(core, request);
    if (!since_us)
        return UINT64_MAX;
    if (since_us < request->peer_wait_since_us)
        since_us = request->peer_wait_since_us;
    return since_us + (uint64_t)core->tune.stall_budget_ms * 1000;
}

/* The peer may make a host wait for the stall budget and no longer, whatever the reason. */
static void check_stall(struct sr_core *core)
{
    const struct request *oldest = TAILQ_FIRST(&core->peer_wait);
    if (!oldest || !core_serving(core) || core->mode == MODE_ALONE)
        return;
    while (oldest && core->now_us < peer_deadline(core, oldest))
        oldest = TAILQ_NEXT(oldest, peer_wait);
    if (!oldest)
        return;
    core_go_alone(core, core->link_up ? SR_CAUSE_PEER_STALLED : SR_CAUSE_PEER_UNREACHABLE);
}

static void sooner(uint64_t *timer, uint64_t at)
{
    if (at && (!*timer || at < *timer))
        *timer = at;
}

static void set_timer(struct sr_core *core)
{
    uint64_t timer = 0;
    const struct request *oldest = TAILQ_FIRST(&core->peer_wait);
    bool counts = core_serving(core) && core->mode != MODE_ALONE;
    /* The first whose own time is still to come bounds those behind it; the overdue ones wait for a lock. */
    for (; oldest && counts; oldest = TAILQ_NEXT(oldest, peer_wait)) {
        uint64_t at_us =
            stall_deadline(core, oldest) > core->now_us ? stall_deadline(core, oldest) : peer_deadline(core, oldest);
        if (at_us != UINT64_MAX)
            sooner(&timer, at_us);
        if (stall_deadline(core, oldest) > core->now_us)
            break;
    }
    if (core->link_up && core->stage == STAGE_NONE && core->retry_at_us > core->now_us)
        sooner(&timer, core->retry_at_us);
    sooner(&timer, core->cool_at_us);
    sooner(&timer, core->save_at_us);
    sooner(&timer, core->memory_at_us);
    sooner(&timer, core_resync_next_us(core));
    sooner(&timer, core_handover_next_us(core));
    const struct admin *admin;
    TAILQ_FOREACH (admin, &core->admins, link) {
        sooner(&timer, admin->deadline_us);
        sooner(&timer, admin->probe_until_us);
    }
    if (timer == core->timer_us)
        return;
    core->timer_us = timer;
    core_act(core, SR_ACT_TIMER)->timer_us = timer;
}

static void watch_sync(struct sr_core *core)
{
    if (core_copies_equal(core)) {
        core->in_sync_us = core->now_us;
        core->in_sync_wall_ms = core->wall_ms;
    }
    enum sr_sync sync = core_sync(core, core->now_us);
    if (sync == core->last_sync && core->since_wall_ms)
        return;
    core->last_sync = sync;
    core->since_wall_ms = core->wall_ms;
}

/* Everything that may have become possible; each part does nothing where there is nothing to do. */
static void pump(struct sr_core *core)
{
    check_stall(core);
    tell_hosts(core);
    core_secure_pump(core);
    core_session_pump(core);
    core_handover_pump(core);
    if (core->memory_at_us && core->now_us >= core->memory_at_us) {
        core->memory_at_us = 0;
        core_resync_retry_memory(core);
        core_follow_retry_memory(core);
        core_make_all_ready(core);
    }
    core_flush_pump(core);
    core_run_ready(core);
    core_resync_pump(core);
    core_run_ready(core);
    core_background_pump(core);
    core_handover_pump(core);
    core_admins_pump(core);
    core_probe_pump(core);
    core_session_pump(core); /* a role that was taken, a failover that was given up: the peer may be greeted now */
    core_commit_flush(core);
    tell_hosts(core);
}

static void disk_done(struct sr_core *core, const struct sr_event *event)
{
    uint32_t kind = 0;
    void *owner = sr_slots_find(&core->ios, event->disk.io, &kind);
    SR_ASSERT(owner != NULL);
    sr_slots_give(&core->ios, event->disk.io);
    core->n_ios--;
    if (kind != IO_REQUEST && kind != IO_FLUSH)
        core->n_session_ios--;
    switch (kind) {
    case IO_REQUEST:
        core_request_io_done(core, owner, event->disk.error);
        break;
    case IO_COPY:
        core_copy_io_done(core, owner, event->disk.error, event->disk.all_zero);
        break;
    case IO_FOLLOW:
        core_follow_io_done(core, owner, event->disk.error);
        break;
    case IO_FLUSH:
        core_flush_io_done(core, owner, event->disk.error);
        break;
    default:
        SR_ASSERT(kind == IO_SECURE);
        core_secure_io_done(core, owner, event->disk.error);
        break;
    }
}

static void handle(struct sr_core *core, const struct sr_event *event)
{
    switch (event->type) {
    case SR_EV_TIME:
        if (core->timer_us && core->now_us >= core->timer_us)
            core->timer_us = 0; /* it went off: set_timer arms the next one */
        break;
    case SR_EV_HOST:
        core_on_host(core, &event->host);
        break;
    case SR_EV_DISK_DONE:
        disk_done(core, event);
        break;
    case SR_EV_META_DONE:
        core_on_meta_done(core, event->meta.commit, event->meta.error);
        break;
    case SR_EV_PEER_MSG:
        core_on_msg(core, event->msg);
        break;
    case SR_EV_LINK_UP:
        core_on_link(core, true);
        break;
    case SR_EV_LINK_DOWN:
        core_on_link(core, false);
        break;
    case SR_EV_RETIRED:
        core->hosts_read = true;
        break;
    case SR_EV_ADMIN:
        core_on_admin(core, event->admin.id, event->admin.command, event->admin.force);
        break;
    case SR_EV_TUNE:
        core->tune = event->tuning;
        break;
    }
}

void sr_core_step(struct sr_core *core, const struct sr_event *event, struct sr_actions *actions)
{
    begin_step(core, event, actions);
    if (core->halted) {
        if (event->type == SR_EV_PEER_MSG)
            sr_peer_msg_free(event->msg);
        return;
    }
    handle(core, event);
    if (!core->halted)
        pump(core);
    watch_sync(core);
    if (!core->halted)
        set_timer(core);
}

void sr_core_start(struct sr_core *core, const struct sr_event *now, struct sr_actions *actions)
{
    begin_step(core, now, actions);
    for (uint32_t i = 0; i < core->n_volumes && !core->random_used; i++) {
        if (!core->volumes[i].write_back)
            continue;
        core->boot = core->random;
        core->random_used = true;
    }
    core->mode = MODE_STANDBY;
    if (sr_lineage_serves_at_start(&core->rec))
        core->mode = MODE_ALONE;
    else if (core->continues && core->rec.role == SR_ROLE_ACTIVE && core->rec.consistent && !core->rec.discard)
        core->mode = MODE_HOLDING;
    if (core->rec.failed)
        core_set_cause(core, SR_CAUSE_ACTIVE_IO_ERROR,
                       "the copy of %s at this site has failed: repair the disk, then replace it",
                       core_failed_name(core, &core->rec));
    else if (core->rec.role == SR_ROLE_ACTIVE && core->mode != MODE_ALONE)
        core_set_cause(core, SR_CAUSE_PEER_UNREACHABLE,
                       "serves hosts once %s was heard: it may have become active meanwhile", core->peer_name);
    else
        core_set_cause(core, SR_CAUSE_PEER_UNREACHABLE, "not connected to %s since the start", core->peer_name);
    struct sr_intent *intent;
    TAILQ_FOREACH (intent, &core->intents.all, all)
        intent->idle_since_us = core->now_us;
    if (core->intents.n)
        core->cool_at_us = core->now_us + 1000000;
    pump(core);
    watch_sync(core);
    set_timer(core);
}

/* ---- invariants --------------------------------------------------------------------------------------------------
 */

static void check_locks(const struct sr_core *core)
{
    const struct request *request;
    TAILQ_FOREACH (request, &core->requests, all) {
        if (request->host.op == SR_HOST_READ || !request->io || request->state != PIECE_RUNNING)
            continue;
        SR_ASSERT(sr_lock_granted(&request->lock) && !request->lock.shared); /* C4 */
        SR_ASSERT(request->has_intents);
        for (uint64_t region = request->offset / SR_REGION_BYTES;
             region <= (request->offset + request->length - 1) / SR_REGION_BYTES; region++) {
            const struct sr_intent *intent =
                sr_intents_find(&core->intents, request->volume->index, (uint32_t)region);
            SR_ASSERT(intent && (intent->state == SR_INTENT_DURABLE || SR_BUG(WRITE_BEFORE_INTENT)));
        }
    }
}

static void check_cached(const struct sr_core *core)
{
    const struct sr_intent *intent;
    TAILQ_FOREACH (intent, &core->intents.all, all) {
        SR_ASSERT(!intent->is_cached || core->volumes[intent->volume].write_back);
        SR_ASSERT(!intent->is_cached || intent->state != SR_INTENT_COOLING); /* F2 */
    }
    if (core->mode == MODE_HANDED_OVER || core->mode == MODE_FOLLOWING)
        SR_ASSERT(core_flush_clean(core)); /* F5 */
}

void sr_core_check(const struct sr_core *core)
{
    bool paired = core->mode == MODE_RESYNCING || core->mode == MODE_MIRRORING || core->mode == MODE_HANDING_OVER ||
                  core->mode == MODE_HANDED_OVER || core->mode == MODE_CATCHING_UP || core->mode == MODE_FOLLOWING;
    bool open = core->stage == STAGE_OPEN || core->stage == STAGE_OPENING;
    SR_ASSERT(paired == open || SR_BUG(ALONE_KEEPS_SESSION) || SR_BUG(MEMBER_LEFT_BEHIND)); /* C1 */
    if (core_serving(core) && !core->halted)
        SR_ASSERT(core->rec.role == SR_ROLE_ACTIVE && core->rec.consistent); /* C2 */
    if (core->mode == MODE_MIRRORING || core->mode == MODE_HANDING_OVER)
        SR_ASSERT(core->rec.base_kind == SR_BASE_NONE && core_dirty_blocks(core) == 0);                /* C3 */
    SR_ASSERT(!core->building || !core->flying || core->building->commit == core->flying->commit + 1); /* C5 */
    check_locks(core);
    check_cached(core);
    const char *why;
    SR_ASSERT(sr_record_valid(&core->rec, &why) || SR_BUG(ALONE_KEEPS_GENERATION));
}
