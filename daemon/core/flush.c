/* flush.c - write-back volumes: what is acknowledged may be in caches, at both sites, until a flush.
 *
 * A write (without FUA) is answered when both sites have applied it.  Its blocks are *cached* then, which the intent
 * of the region remembers; the region is in flight until a flush that began later has succeeded at both sites.  One
 * flush of a volume is under way at a time: this site's disk and the peer's at once.  Who comes meanwhile waits for
 * the next one.
 *
 *   leader    begin: FLUSH ->, fdatasync here    done when both have succeeded (alone: this site's)
 *   follower  fdatasync; FLUSHED
 *
 * The follower does not know what is in flight.  Whenever its session ends it makes all it wrote stable (*secure*),
 * before it greets or is promoted: so the only way to lose what it confirmed is that its process, or its machine,
 * goes down.  The leader sees that by the `boot` of the next greeting.
 *
 * Invariants
 *   F1  A flush succeeds at both sites, or here and this site is alone.  It covers the writes that were answered
 *       before it began, and no others.
 *   F2  A region with cached blocks keeps its durable intent.
 *   F3  When the peer may have lost its cache (another boot), and when this site leaves the pair (alone, stops
 *       serving, stops without a session), the cached blocks are in the map: the peer is taken to lack them.  From
 *       then on a flush here is enough for F2.
 *   F4  While a peer that restarted could be promoted, no flush is done before the peer has those of the cached
 *       blocks that had been acknowledged to hosts.
 *   F5  The active role is given away, or taken by a failover, only when nothing is cached at that site, nor at the
 *       peer if it is there.
 *
 * A crash of this site at any line is harmless: by F2 every cached block is in a region with an intent, and
 * counts as suspect.  A flush that failed has failed the replica.
 */
#include "core/internal.h"

bool core_cached_write(const struct request *request)
{
    return request->volume->write_back && (!request->host.fua || SR_BUG(FUA_CACHED));
}

/* ---- what is cached ---------------------------------------------------------------------------------------------- */

static bool any_cached(const struct sr_core *core, const struct volume *volume)
{
    const struct sr_intent *intent;
    TAILQ_FOREACH (intent, &core->intents.cached, idle)
        if (intent->volume == volume->index)
            return true;
    return false;
}

bool core_flush_clean(const struct sr_core *core)
{
    const struct sr_intent *intent;
    TAILQ_FOREACH (intent, &core->intents.all, all)
        if (intent->is_cached)
            return false;
    return true;
}

void core_flush_to_maps(struct sr_core *core)
{
    struct sr_intent *intent;
    TAILQ_FOREACH (intent, &core->intents.all, all) /* F3 */
        if (intent->is_cached)
            sr_dirtymap_set_suspect_blocks(&core->volumes[intent->volume].map, intent->region, intent->cached);
}

void core_flush_forget(struct sr_core *core)
{
    struct sr_intent *intent;
    TAILQ_FOREACH (intent, &core->intents.all, all)
        if (intent->is_cached)
            sr_intents_flushed(&core->intents, intent);
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        struct flush *flush = &core->volumes[i].flush;
        flush->running = flush->again = flush->doubt = flush->doubt_all = false;
    }
}

void core_flush_given_up(struct sr_core *core)
{
    const struct sr_intent *intent;
    TAILQ_FOREACH (intent, &core->intents.all, all)
        core->volumes[intent->volume].applied += intent->is_cached;
    core_flush_forget(core);
}

/* Should the stop be taken back, a FLUSH is not answered before the peer has what is in the map. */
void core_flush_alone(struct sr_core *core)
{
    if (core->flushes_alone)
        return;
    core_flush_to_maps(core);
    core->flushes_alone = true;
    for (uint32_t i = 0; i < core->n_volumes; i++)
        core->volumes[i].flush.doubt_all = core->volumes[i].write_back;
}

static bool overlap(const uint8_t *a, const uint8_t *b)
{
    for (uint32_t i = 0; i < SR_REGION_MAP_BYTES; i++)
        if (a[i] & b[i])
            return true;
    return false;
}

bool core_flush_doubts(const struct volume *volume, const struct sr_intent *intent)
{
    uint8_t bits[SR_REGION_MAP_BYTES];
    return intent->is_doubtful && intent->volume == volume->index &&
           sr_dirtymap_region_bits(&volume->map, intent->region, bits) && overlap(bits, intent->doubtful);
}

/* F4 */
bool core_flush_blocked(const struct sr_core *core, const struct volume *volume)
{
    const struct sr_intent *intent;
    if (core->flushes_alone || !core_reads_must_wait(core) || SR_BUG(FLUSH_BEFORE_DOUBT_IS_OVER))
        return false;
    if (volume->flush.doubt_all)
        return !sr_dirtymap_is_empty(&volume->map);
    if (!volume->flush.doubt)
        return false;
    TAILQ_FOREACH (intent, &core->intents.all, all)
        if (core_flush_doubts(volume, intent))
            return true;
    return false;
}

/* ---- one flush --------------------------------------------------------------------------------------------------- */

/* Alone, and where nobody is served, the peer's part is in the map (F3). */
static bool needs_peer(const struct sr_core *core)
{
    return core_serving(core) && core->mode != MODE_ALONE && !core->flushes_alone && !SR_BUG(FLUSH_HERE_ONLY);
}

static void send_flush(struct sr_core *core, struct volume *volume)
{
    struct sr_peer_msg *msg = core_new_msg(core, SR_MSG_FLUSH);
    SR_ASSERT(!volume->flush.message);
    msg->id = volume->flush.message = sr_slots_take(&core->messages, MSG_FLUSH, volume);
    msg->volume = volume->index;
    core_send_msg(core, msg);
}

static void begin(struct sr_core *core, struct volume *volume)
{
    struct flush *flush = &volume->flush;
    SR_ASSERT(!flush->running && !flush->io && !flush->message);
    core->flushing = true;
    flush->begun++;
    flush->running = true;
    flush->again = flush->there = false;
    flush->here = SR_BUG(FLUSH_THERE_ONLY) && core_leads_open(core);
    flush->io = core_start_io(core, IO_FLUSH, volume, volume, (struct sr_disk_io){.op = SR_DISK_FLUSH});
    if (core_leads_open(core) && !SR_BUG(FLUSH_HERE_ONLY))
        send_flush(core, volume);
}

uint64_t core_flush_want(struct sr_core *core, struct volume *volume)
{
    struct flush *flush = &volume->flush;
    if (flush->running || flush->io) {
        flush->again = true;
        return flush->begun + 1;
    }
    begin(core, volume);
    return flush->begun;
}

void core_flush_all(struct sr_core *core)
{
    for (uint32_t i = 0; core->intents.n_cached && i < core->n_volumes; i++) {
        struct volume *volume = &core->volumes[i];
        if (!volume->flush.running && any_cached(core, volume))
            core_flush_want(core, volume);
    }
}

/* Regions whose last write was answered before it began. */
static void settle(struct sr_core *core, struct volume *volume)
{
    struct sr_intent *intent, *next;
    for (intent = TAILQ_FIRST(&core->intents.cached); intent; intent = next) {
        next = TAILQ_NEXT(intent, idle);
        bool covered = intent->last_flush < volume->flush.begun || SR_BUG(FLUSH_COVERS_LATER_WRITES);
        if (intent->volume == volume->index && covered)
            sr_intents_flushed(&core->intents, intent);
    }
}

static void wake_flushing(struct sr_core *core, const struct volume *volume)
{
    struct request *request;
    TAILQ_FOREACH (request, &core->requests, all)
        if (request->volume == volume && request->state == PIECE_FLUSHING)
            core_make_ready(core, request);
}

static void try_end(struct sr_core *core, struct volume *volume)
{
    struct flush *flush = &volume->flush;
    if (!flush->running || !flush->here || (!flush->there && needs_peer(core))) /* F1 */
        return;
    if (core_flush_blocked(core, volume))
        return;
    flush->running = flush->doubt = false;
    flush->doubt_all = flush->doubt_all && core->flushes_alone;
    flush->done = flush->begun;
    core->count.flushes++;
    settle(core, volume);
    wake_flushing(core, volume);
    core_intents_flushed(core);
}

void core_flush_io_done(struct sr_core *core, struct volume *volume, enum sr_error error)
{
    volume->flush.io = 0;
    if (error != SR_OK) {
        core_replica_failed(core, volume, "flush", error);
        return;
    }
    volume->flush.here = true;
    wake_flushing(core, volume); /* from here on they wait for the peer */
}

void core_flush_peer_done(struct sr_core *core, struct volume *volume, enum sr_error error)
{
    volume->flush.message = 0;
    if (error != SR_OK) {
        core_go_alone_for(core, SR_CAUSE_ALTERNATE_IO_ERROR, volume);
        return;
    }
    core->peer_flushes++;
    volume->flush.there = true;
}

/* What may have become possible: by an answer, by going alone, by a block that was copied. */
void core_flush_pump(struct sr_core *core)
{
    uint32_t n = core->flushing ? core->n_volumes : 0;
    core->flushing = false; /* what begins below, of whatever volume, sets it again */
    for (uint32_t i = 0; i < n; i++) {
        struct volume *volume = &core->volumes[i];
        struct flush *flush = &volume->flush;
        if (flush->running)
            try_end(core, volume);
        if (!flush->running && !flush->io && flush->again)
            begin(core, volume);
        core->flushing |= flush->running || flush->io;
    }
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

void core_flush_session_open(struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes; i++)
        if (core->volumes[i].flush.running && !core->volumes[i].flush.there && !SR_BUG(FLUSH_HERE_ONLY))
            send_flush(core, &core->volumes[i]);
}

void core_flush_session_ended(struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        struct flush *flush = &core->volumes[i].flush;
        if (flush->message)
            sr_slots_give(&core->messages, flush->message);
        flush->message = 0;
    }
}

static void doubt_cached(struct sr_core *core)
{
    struct sr_intent *intent;
    TAILQ_FOREACH (intent, &core->intents.all, all) {
        if (!intent->is_cached)
            continue;
        core->volumes[intent->volume].flush.doubt = intent->is_doubtful = true;
        memcpy(intent->doubtful, intent->cached, sizeof intent->doubtful);
    }
}

void core_flush_greeted(struct sr_core *core)
{
    const struct sr_greeting *peer = &core->peer;
    bool same = !sr_uuid_is_none(&peer->boot) && sr_uuid_equal(&peer->boot, &core->peer_boot) &&
                peer->flushes >= core->peer_flushes;
    core->peer_boot = peer->boot;
    core->peer_flushes = peer->flushes;
    if (same || SR_BUG(PEER_RESTART_UNNOTICED))
        return;
    core_flush_to_maps(core);
    doubt_cached(core);
}

/* ---- the follower ------------------------------------------------------------------------------------------------ */

bool core_secure(const struct sr_core *core)
{
    for (uint32_t i = 0; i < core->n_volumes && !core->rec.failed; i++)
        if (core->volumes[i].applied != core->volumes[i].stable)
            return false;
    return true;
}

void core_secure_start(struct sr_core *core, struct volume *volume)
{
    volume->securing = volume->applied;
    core->flushes_left++;
    core_start_io(core, IO_SECURE, volume, volume, (struct sr_disk_io){.op = SR_DISK_FLUSH});
}

void core_secure_io_done(struct sr_core *core, struct volume *volume, enum sr_error error)
{
    core->flushes_left--;
    if (error != SR_OK)
        core_replica_failed(core, volume, "flush", error);
    else if (volume->securing > volume->stable) /* a later one may have ended first */
        volume->stable = volume->securing;
}

/* The session has ended, and so have its writes. */
void core_secure_pump(struct sr_core *core)
{
    if (core->stage != STAGE_NONE || core->n_session_ios || core->rec.failed)
        return;
    for (uint32_t i = 0; i < core->n_volumes; i++) {
        struct volume *volume = &core->volumes[i];
        if (volume->applied == volume->stable)
            continue;
        if (SR_BUG(CACHED_WHEN_PROMOTED))
            volume->stable = volume->applied;
        else
            core_secure_start(core, volume);
    }
}
