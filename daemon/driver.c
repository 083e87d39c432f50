/* driver.c - carries out what a core asks for, and hands back what became of it.
 *
 *     sr_driver_step:  event + time + random numbers -> sr_core_step -> actions, in their order
 *
 * Ordering lives in the core alone: nothing here waits for anything, and every answer becomes an event of its own.
 * All answers come from the loop, so a step is never entered from inside a step; what an administrator's answer sets
 * off (which may be another step) is put off until the present one is over.
 *
 * Invariants
 *   D1  site->stepping: at most one step is under way, and its list of actions belongs to it alone.
 *   D2  Each DISK and COMMIT is counted until it is answered; a core is freed only when both counts are 0.
 *   D3  After a halt nothing is acknowledged, sent, written or committed any more.
 *   D4  The timer never fires for the core before its time: one that is early is armed again.
 *
 * A crash at any line is harmless: nothing here is state that the core does not find again in the metadata.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/assert.h"
#include "site.h"

uint64_t sr_driver_now_us(void)
{
    return uv_hrtime() / 1000;
}

uint64_t sr_driver_wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME_COARSE, &now); /* asked in every step; a few milliseconds do not matter */
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* 128 fresh random bits, from a pool that is refilled now and then. */
static void draw(struct sr_site *site, struct sr_uuid *random)
{
    if (site->random_left < SR_UUID_BYTES) {
        size_t have = 0;
        while (have < sizeof(site->random)) {
            ssize_t n = getrandom(site->random + have, sizeof(site->random) - have, 0);
            SR_ASSERT(n > 0 || errno == EINTR);
            have += n > 0 ? (size_t)n : 0;
        }
        site->random_left = sizeof(site->random);
    }
    site->random_left -= SR_UUID_BYTES;
    memcpy(random->b, site->random + site->random_left, SR_UUID_BYTES);
    memset(site->random + site->random_left, 0, SR_UUID_BYTES);
}

/* ---- answers ---------------------------------------------------------------------------------------- */

static void close_copy(struct sr_volume *volume)
{
    if (volume->store)
        sr_store_close(volume->store);
    volume->store = NULL;
}

static void end_if_idle(struct sr_collection *collection)
{
    if (!collection->dead || collection->n_ios || collection->n_commits || !collection->idle_fn)
        return;
    void (*idle_fn)(struct sr_collection *, void *) = collection->idle_fn;
    collection->idle_fn = NULL;
    if (collection->core)
        collection->session_floor = sr_core_session(collection->core);
    sr_core_free(collection->core);
    collection->core = NULL;
    for (uint32_t i = 0; i < collection->n_volumes && !collection->suspended; i++)
        close_copy(collection->volumes[i]);
    idle_fn(collection, collection->idle_arg);
}

static void disk_done(void *arg, uint64_t io, enum sr_error error, bool all_zero)
{
    struct sr_collection *collection = arg;
    struct sr_site *site = collection->site;

    collection->n_ios--;
    if (collection->dead) {
        end_if_idle(collection);
    } else {
        struct sr_event event = {.type = SR_EV_DISK_DONE, .disk = {.io = io, .error = error, .all_zero = all_zero}};
        sr_driver_step(collection, &event);
    }
    if (site->draining)
        sr_link_events_work_ended(site);
}

static void commit_done(void *arg, uint64_t tag, enum sr_error error)
{
    struct sr_collection *collection = arg;

    collection->n_commits--;
    if (collection->dead) {
        end_if_idle(collection);
        return;
    }
    if (error != SR_OK)
        sr_log(SR_LOG_ERROR, "metadata: %s", sr_meta_failure(collection->site->meta));
    struct sr_event event = {.type = SR_EV_META_DONE, .meta = {.commit = tag, .error = error}};
    sr_driver_step(collection, &event);
}

/* ---- actions ---------------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

/* The core sets its timer anew in most steps, nearly always for later.  So the loop's timer is only moved forward:
 * one that fires before its time is armed again. */
static void arm(struct sr_collection *collection, uint64_t timer_us)
{
    uint64_t now_us;

    collection->timer_us = timer_us;
    if (timer_us == 0 || (collection->armed_us != 0 && collection->armed_us <= timer_us))
        return;
    collection->armed_us = timer_us;
    now_us = sr_driver_now_us();
    uv_update_time(collection->site->loop); /* the loop's cached time would make it early */
    uv_timer_start(&collection->timer, on_timer, timer_us > now_us ? (timer_us - now_us + 999) / 1000 : 0, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct sr_collection *collection = timer->data;
    struct sr_event event = {.type = SR_EV_TIME};

    collection->armed_us = 0;
    if (collection->timer_us == 0 || collection->dead)
        return;
    if (sr_driver_now_us() < collection->timer_us) { /* D4 */
        arm(collection, collection->timer_us);
        return;
    }
    collection->timer_us = 0;
    sr_driver_step(collection, &event);
}

static void serve(struct sr_collection *collection, bool on)
{
    struct sr_site *site = collection->site;

    collection->serving = on;
    for (uint32_t i = 0; !on && i < collection->n_volumes; i++)
        sr_hosts_drop(collection->volumes[i]);
    if (site->draining)
        sr_link_events_work_ended(site);
}

/* The role goes to the other site: no new hosts, no new requests; SERVE false comes when all were answered. */
static void retire(struct sr_collection *collection)
{
    collection->serving = false;
    collection->n_retiring += collection->n_volumes;
    for (uint32_t i = 0; i < collection->n_volumes; i++)
        sr_hosts_retire(collection->volumes[i]);
}

void sr_driver_retired(struct sr_collection *collection)
{
    struct sr_event event = {.type = SR_EV_RETIRED};

    if (collection->n_retiring > 0 && --collection->n_retiring == 0)
        sr_driver_step(collection, &event);
}

/* The answer is given when the step is over. */
static void answer(struct sr_site *site, uint64_t id, enum sr_error error, const char *text)
{
    struct sr_admin *admin;

    STAILQ_FOREACH (admin, &site->admins, link) {
        if (admin->id == id)
            break;
    }
    if (!admin)
        return;
    STAILQ_REMOVE(&site->admins, admin, sr_admin, link);
    admin->error = error;
    snprintf(admin->text, sizeof(admin->text), "%s", text);
    STAILQ_INSERT_TAIL(&site->answered, admin, link);
}

static void say(const struct sr_collection *collection, const struct sr_action *action)
{
    if (action->log.level <= SR_LOG_WARNING)
        sr_log_limited(action->log.level, action->log.text, "%s", action->log.text);
    else
        sr_log(action->log.level, "%s", action->log.text);
    (void)collection;
}

void sr_driver_halt(struct sr_site *site, const char *text)
{
    if (site->halted)
        return;
    site->halted = true; /* D3 */
    site->exit_code = SR_EXIT_META;
    sr_log(SR_LOG_ERROR, "stopping at once: %s", text);
    if (site->stop_fn)
        site->stop_fn(site);
}

static void carry_out(struct sr_collection *collection, struct sr_action *action)
{
    struct sr_site *site = collection->site;

    switch (action->type) {
    case SR_ACT_DISK:
        SR_ASSERT(action->disk.volume < collection->n_volumes);
        collection->n_ios++;
        sr_store_submit(collection->volumes[action->disk.volume]->store, &action->disk, disk_done, collection);
        break;
    case SR_ACT_COMMIT:
        collection->n_commits++;
        sr_meta_commit_core(site->meta, &collection->uuid, collection->volume_uuids, collection->n_volumes,
                            action->commit, commit_done, collection, action->commit->commit);
        break;
    case SR_ACT_SEND:
        sr_link_events_send(site, &collection->uuid, action->msg);
        break;
    case SR_ACT_REPLY:
        sr_hosts_reply(site, action->reply.id, action->reply.error);
        break;
    case SR_ACT_ADMIN:
        answer(site, action->admin.id, action->admin.error, action->admin.text);
        break;
    case SR_ACT_TIMER:
        arm(collection, action->timer_us);
        break;
    case SR_ACT_SERVE:
        serve(collection, action->serve);
        break;
    case SR_ACT_RETIRE:
        retire(collection);
        break;
    case SR_ACT_LINK_FAULT:
        sr_link_events_fault(site, action->text);
        break;
    case SR_ACT_LOG:
        say(collection, action);
        break;
    case SR_ACT_HALT:
        sr_driver_halt(site, action->text);
        break;
    }
}

/* After a halt: only what must not leak. */
static void drop(struct sr_action *action)
{
    if (action->type == SR_ACT_SEND)
        sr_peer_msg_free(action->msg);
}

static void run_answered(struct sr_site *site)
{
    struct sr_admin *admin;

    while ((admin = STAILQ_FIRST(&site->answered))) {
        STAILQ_REMOVE_HEAD(&site->answered, link);
        admin->fn(admin->arg, admin->collection, admin->error, admin->text);
        free(admin);
    }
}

/* Steps that move only data change nothing that people follow, and are too many to look at. */
static bool may_change_state(const struct sr_event *event)
{
    if (event->type == SR_EV_HOST || event->type == SR_EV_DISK_DONE)
        return false;
    if (event->type == SR_EV_PEER_MSG)
        return event->msg->type < SR_MSG_WRITE ||
               (event->msg->type >= SR_MSG_COMPLETE && event->msg->type != SR_MSG_FLUSH &&
                event->msg->type != SR_MSG_FLUSHED);
    return true;
}

static void perform(struct sr_collection *collection, bool look)
{
    struct sr_site *site = collection->site;

    for (uint32_t i = 0; i < site->actions.n; i++) {
        struct sr_action *action = &site->actions.list[i];
        look = look || action->type == SR_ACT_SERVE || action->type == SR_ACT_LOG;
        if (site->halted)
            drop(action);
        else
            carry_out(collection, action);
    }
    site->stepping = false;
    if (look && !site->halted)
        sr_commands_watch(collection);
    if (!STAILQ_EMPTY(&site->answered))
        run_answered(site);
}

void sr_driver_step(struct sr_collection *collection, struct sr_event *event)
{
    struct sr_site *site = collection->site;

    if (!collection->core || collection->dead || site->halted) {
        if (event->type == SR_EV_PEER_MSG)
            sr_peer_msg_free(event->msg);
        return;
    }
    SR_ASSERT(!site->stepping); /* D1 */
    site->stepping = true;
    event->now_us = sr_driver_now_us();
    event->wall_ms = sr_driver_wall_ms();
    draw(site, &event->random);
    bool look = may_change_state(event); /* now: the core takes the message */
    sr_core_step(collection->core, event, &site->actions);
    perform(collection, look);
}

/* ---- what the rest of the daemon asks for --------------------------------------------------------------- */

void sr_driver_admin(struct sr_collection *collection, enum sr_admin_command command, bool force, sr_admin_fn fn,
                     void *arg)
{
    struct sr_site *site = collection->site;
    struct sr_admin *admin = calloc(1, sizeof(*admin));

    if (!admin || !collection->core || collection->dead) {
        free(admin);
        if (collection->suspended)
            fn(arg, collection, SR_E_BUSY, "its members are just being changed: try again");
        else
            fn(arg, collection, collection->core ? SR_E_NO_MEMORY : SR_E_REFUSED,
               collection->core ? "out of memory" : collection->fault);
        return;
    }
    admin->id = ++site->next_admin;
    admin->collection = collection;
    admin->fn = fn;
    admin->arg = arg;
    STAILQ_INSERT_TAIL(&site->admins, admin, link);
    struct sr_event event = {.type = SR_EV_ADMIN, .admin = {.id = admin->id, .command = command, .force = force}};
    sr_driver_step(collection, &event);
}

/* A write-back volume is for two sites that both know what that is. */
static bool peer_can(struct sr_collection *collection)
{
    const struct sr_site *site = collection->site;
    const struct sr_volume *volume = NULL;

    for (uint32_t i = 0; i < collection->n_volumes && !volume; i++)
        if (collection->volumes[i]->meta.write_back)
            volume = collection->volumes[i];
    if (!volume || site->peer_features & SR_FEATURE_WRITE_BACK)
        return true;
    snprintf(collection->peer_fault, sizeof(collection->peer_fault),
             "site %s runs an older version, without write-back volumes such as %s: nothing is copied until it is "
             "upgraded",
             site->config->peer_name, volume->meta.name);
    sr_log_limited(SR_LOG_ERROR, collection->name, "%s: %s", collection->name, collection->peer_fault);
    return false;
}

void sr_driver_link(struct sr_collection *collection, bool up)
{
    struct sr_event event = {.type = up ? SR_EV_LINK_UP : SR_EV_LINK_DOWN};

    if (collection->link_up == up || (up && (!collection->core || collection->dead || !peer_can(collection))))
        return;
    collection->link_up = up;
    if (up)
        collection->peer_fault[0] = '\0';
    sr_driver_step(collection, &event);
}

/* The hot regions of the daemon are shared out among its collections. */
static struct sr_core_tuning tuning_of(const struct sr_site *site)
{
    struct sr_core_tuning tuning = site->tuning;
    uint32_t share = tuning.hot_regions_max / (site->n_collections ? site->n_collections : 1);

    tuning.hot_regions_max = share > 32 ? share : 32;
    return tuning;
}

void sr_driver_tune(struct sr_site *site)
{
    struct sr_collection *collection;

    TAILQ_FOREACH (collection, &site->collections, link) {
        struct sr_event event = {.type = SR_EV_TUNE, .tuning = tuning_of(site)};
        sr_driver_step(collection, &event);
    }
}

void sr_driver_status(const struct sr_collection *collection, struct sr_core_status *status)
{
    if (collection->core) {
        sr_core_status(collection->core, sr_driver_now_us(), status);
        return;
    }
    if (collection->suspended) { /* as it was: another core carries on */
        *status = collection->shown;
        return;
    }
    memset(status, 0, sizeof(*status));
    status->record = collection->loaded;
    status->sync = SR_SYNC_OUT_OF_SYNC;
    status->verdict = SR_VERDICT_OFFLINE;
    status->cause =
        collection->loaded.role == SR_ROLE_ACTIVE ? SR_CAUSE_ACTIVE_IO_ERROR : SR_CAUSE_ALTERNATE_IO_ERROR;
    status->mode = "closed";
    status->full_copy_reason = "";
    status->resync_eta_s = UINT64_MAX;
    snprintf(status->detail, sizeof(status->detail), "%.*s", (int)sizeof(status->detail) - 1, collection->fault);
}

void sr_driver_watch_all(struct sr_site *site)
{
    struct sr_collection *collection;

    TAILQ_FOREACH (collection, &site->collections, link)
        sr_commands_watch(collection);
}

/* A site that serves a collection leads it: what its disks do then, no peer has asked for. */
bool sr_driver_peer_work(const struct sr_site *site)
{
    const struct sr_collection *collection;

    TAILQ_FOREACH (collection, &site->collections, link) {
        if (collection->n_ios > 0 && !collection->serving)
            return true;
    }
    return false;
}

/* ---- beginning and end of a collection ------------------------------------------------------------------ */

enum sr_error sr_driver_open(struct sr_volume *volume, uint32_t lock_wait_ms, char text[SR_SITE_TEXT])
{
    struct sr_store_open_options options = {.lock_wait_ms = lock_wait_ms,
                                            .volume = volume->meta.uuid,
                                            .device = volume->meta.device,
                                            .undurable = &volume->undurable};
    char image[SR_POOL_PATH_BYTES];
    const char *path = volume->meta.path;

    volume->undurable = false;
    if (volume->store)
        return SR_OK;
    if (!volume->pool) {
        snprintf(text, SR_SITE_TEXT, "the configuration has no pool %s any more", volume->meta.pool);
        return SR_E_NOT_FOUND;
    }
    if (!volume->pool->pool) {
        snprintf(text, SR_SITE_TEXT, "%s", volume->pool->detail);
        return SR_E_NOT_FOUND;
    }
    if (path[0] == '\0') {
        enum sr_error error = sr_pool_image_path(volume->pool->pool, volume->meta.name, image);
        if (error != SR_OK) {
            snprintf(text, SR_SITE_TEXT, "volume %s: the path of its image is too long", volume->meta.name);
            return error;
        }
        path = image;
    }
    return sr_store_open_with(volume->site->engine, path, volume->meta.size_bytes, &options, &volume->store, text,
                              SR_SITE_TEXT);
}

static enum sr_error make_core(struct sr_collection *collection)
{
    struct sr_site *site = collection->site;
    uint32_t n = collection->n_volumes;
    struct sr_core_volume *volumes = calloc(n, sizeof(*volumes));
    struct sr_core_config config = {.tuning = tuning_of(site),
                                    .n_volumes = n,
                                    .volumes = volumes,
                                    .budget = &site->resync_budget,
                                    .name = collection->name,
                                    .continues = collection->continues,
                                    .session_floor = collection->session_floor,
                                    .peer_name = site->config->peer_name};
    enum sr_error error = SR_OK;

    for (uint32_t i = 0; volumes && i < n; i++)
        volumes[i] = (struct sr_core_volume){.uuid = collection->volume_uuids[i],
                                             .size_bytes = collection->volumes[i]->meta.size_bytes,
                                             .name = collection->volumes[i]->meta.name,
                                             .write_back = collection->volumes[i]->meta.write_back};
    collection->core = volumes ? sr_core_new(&config, &collection->loaded) : NULL;
    free(volumes);
    if (!collection->core) {
        snprintf(collection->fault, sizeof(collection->fault), "out of memory");
        return SR_E_NO_MEMORY;
    }
    for (uint32_t i = 0; error == SR_OK && i < n; i++)
        error = sr_meta_load_map(site->meta, &collection->volume_uuids[i], collection->core, i, collection->fault,
                                 sizeof(collection->fault));
    return error;
}

/* One copy that cannot be used makes the whole collection unusable here: it changes its state as a whole. */
static enum sr_error open_copies(struct sr_collection *collection, uint32_t lock_wait_ms)
{
    char why[SR_SITE_TEXT] = "";

    for (uint32_t i = 0; i < collection->n_volumes; i++) {
        enum sr_error error = sr_driver_open(collection->volumes[i], lock_wait_ms, why);
        if (error == SR_OK)
            continue;
        if (collection->n_volumes > 1)
            snprintf(collection->fault, sizeof(collection->fault), "volume %s: %.240s",
                     collection->volumes[i]->meta.name, why);
        else
            snprintf(collection->fault, sizeof(collection->fault), "%s", why);
        return error;
    }
    return SR_OK;
}

static void failure_recorded(void *arg, uint64_t tag, enum sr_error error)
{
    struct sr_site *site = arg;

    (void)tag;
    if (error != SR_OK)
        sr_driver_halt(site, sr_meta_failure(site->meta));
}

/* A failed fsync is never retried and believed, not by the next start either: the copy has failed. */
static void record_undurable(struct sr_collection *collection)
{
    struct sr_meta_collection record = {.uuid = collection->uuid};
    struct sr_meta_change change = {.put_collection = &record};
    const struct sr_volume *undurable = NULL;

    for (uint32_t i = 0; i < collection->n_volumes && !undurable; i++)
        if (collection->volumes[i]->undurable)
            undurable = collection->volumes[i];
    if (!undurable || collection->loaded.failed)
        return;
    collection->loaded.failed_volume = undurable->meta.uuid;
    collection->loaded.failed = true;
    collection->loaded.consistent = false;
    memcpy(record.name, collection->name, sizeof(record.name));
    record.record = collection->loaded;
    sr_meta_commit_change(collection->site->meta, &change, failure_recorded, collection->site, 0);
}

enum sr_error sr_driver_start(struct sr_collection *collection, uint32_t lock_wait_ms)
{
    struct sr_site *site = collection->site;

    SR_ASSERT(!collection->core && !site->stepping && collection->n_volumes > 0);
    collection->fault[0] = '\0';
    enum sr_error error = open_copies(collection, lock_wait_ms);
    if (error == SR_OK)
        error = make_core(collection);
    if (error != SR_OK) {
        record_undurable(collection);
        sr_core_free(collection->core);
        collection->core = NULL;
        for (uint32_t i = 0; i < collection->n_volumes; i++)
            close_copy(collection->volumes[i]);
        if (collection->serving)
            serve(collection, false);
        collection->dead = collection->suspended = collection->link_up = false;
        return error;
    }
    if (!collection->timer_open) {
        uv_timer_init(site->loop, &collection->timer);
        collection->timer.data = collection;
        collection->timer_open = true;
    }
    collection->serving = collection->serving && collection->suspended;
    collection->dead = collection->suspended = collection->link_up = collection->continues = false;
    struct sr_event event = {.type = SR_EV_TIME, .now_us = sr_driver_now_us(), .wall_ms = sr_driver_wall_ms()};
    draw(site, &event.random);
    site->stepping = true;
    sr_core_start(collection->core, &event, &site->actions);
    perform(collection, true);
    struct sr_core_status status;
    sr_driver_status(collection, &status);
    if (collection->serving && !status.serving) /* the core before did */
        serve(collection, false);
    return SR_OK;
}

static void answer_ended(struct sr_collection *collection)
{
    struct sr_site *site = collection->site;
    struct sr_admin *admin, *next;
    char text[SR_NAME_BYTES + 80];

    snprintf(text, sizeof(text), "%s is just being deleted or replaced here, or its members change", collection->name);
    for (admin = STAILQ_FIRST(&site->admins); admin; admin = next) {
        next = STAILQ_NEXT(admin, link);
        if (admin->collection == collection)
            answer(site, admin->id, SR_E_CANCELLED, text);
    }
    run_answered(site);
}

static void end(struct sr_collection *collection, void (*idle_fn)(struct sr_collection *collection, void *arg),
                void *arg)
{
    SR_ASSERT(!collection->site->stepping && !collection->idle_fn);
    collection->dead = true;
    collection->idle_fn = idle_fn;
    collection->idle_arg = arg;
    if (collection->timer_open)
        uv_timer_stop(&collection->timer);
    collection->timer_us = collection->armed_us = 0;
    answer_ended(collection);
    end_if_idle(collection);
}

void sr_driver_end(struct sr_collection *collection, void (*idle_fn)(struct sr_collection *collection, void *arg),
                   void *arg)
{
    serve(collection, false);
    end(collection, idle_fn, arg);
}

void sr_driver_suspend(struct sr_collection *collection, void (*idle_fn)(struct sr_collection *collection, void *arg),
                       void *arg)
{
    sr_driver_status(collection, &collection->shown);
    collection->suspended = true;
    end(collection, idle_fn, arg);
}
