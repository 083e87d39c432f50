/* commands.c - what administrators ask for over the control socket, and what those learn who watch.
 *
 * Each request is answered exactly once: here at once, or later by whoever took the call (catalog.c, deletion.c,
 * replace.c, or the answer of a core).  A client that has gone changes nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "control/tune.h"
#include "site.h"

typedef Syncrep__Control__Request request_t;

static void not_found(struct sr_control_call *call, const char *what, const char *name, const char *hint)
{
    sr_control_reply_error(call, SR_E_NOT_FOUND, name, hint, "there is no %s %.64s here", what, name);
}

struct sr_collection *sr_commands_find(struct sr_site *site, struct sr_control_call *call, const char *name)
{
    struct sr_collection *collection = sr_table_collection_named(site, name);

    if (!collection)
        not_found(call, "volume or collection", name, "syncrepctl status");
    return collection;
}

/* ---- pause, resume -------------------------------------------------------------------------------------- */

static void core_answered(void *arg, struct sr_collection *collection, enum sr_error error, const char *text)
{
    struct sr_control_call *call = arg;

    if (error == SR_OK)
        sr_control_reply_done(call, collection->name, NULL, "%s", text);
    else
        sr_control_reply_error(call, error, collection->name, NULL, "%s", text);
}

static void command(struct sr_site *site, struct sr_control_call *call, const char *name, enum sr_admin_command what)
{
    struct sr_collection *collection = sr_commands_find(site, call, name);

    if (!collection)
        return;
    if (sr_members_changing(collection))
        sr_control_reply_error(call, SR_E_BUSY, collection->name, NULL, SR_MEMBERS_BUSY, collection->name);
    else if (!collection->core)
        sr_control_reply_error(call, SR_E_REFUSED, collection->name, "syncrepctl status",
                               "%s cannot be used here: %s", collection->name, collection->fault);
    else
        sr_driver_admin(collection, what, false, core_answered, call);
}

static void replace(struct sr_site *site, struct sr_control_call *call, const Syncrep__Control__ReplaceRequest *req)
{
    struct sr_collection *collection = sr_commands_find(site, call, req->name);

    if (!collection)
        return;
    if (req->force_name[0] && strcmp(req->force_name, req->name) != 0)
        sr_control_reply_error(call, SR_E_USAGE, req->name, NULL, "--force names %.64s, not %.64s", req->force_name,
                               req->name);
    else
        sr_replace(collection, call, req->force_name[0] != '\0');
}

static void pool_create(struct sr_site *site, struct sr_control_call *call,
                        const Syncrep__Control__PoolCreateRequest *req)
{
    const char *why;

    if (!sr_name_valid(req->name, &why))
        sr_control_reply_error(call, SR_E_INVALID, req->name, NULL, "pool '%.64s': %s", req->name, why);
    else if (req->force_name[0] && strcmp(req->force_name, req->name) != 0)
        sr_control_reply_error(call, SR_E_USAGE, req->name, NULL, "--force names %.64s, not %.64s", req->force_name,
                               req->name);
    else
        sr_pool_create(site, call, req->name, req->force_name[0] != '\0');
}

/* ---- volumes -------------------------------------------------------------------------------------------- */

static void create(struct sr_site *site, struct sr_control_call *call,
                   const Syncrep__Control__VolumeCreateRequest *req)
{
    struct sr_create want = {.name = req->name,
                             .pool = req->pool,
                             .peer_pool = req->peer_pool,
                             .import_path = req->import_path,
                             .size_bytes = req->size_bytes,
                             .preallocate = req->preallocate};
    const char *why;

    if (strcmp(req->durability, "write-back") == 0) {
        want.write_back = true;
    } else if (req->durability[0] && strcmp(req->durability, "write-through") != 0) {
        sr_control_reply_error(call, SR_E_INVALID, req->name, NULL,
                               "volume %.64s: durability '%.64s': it is write-through or write-back", req->name,
                               req->durability);
        return;
    }
    if (req->peer_pool[0] && !sr_name_valid(req->peer_pool, &why)) {
        sr_control_reply_error(call, SR_E_INVALID, req->name, NULL, "pool '%.64s': %s", req->peer_pool, why);
        return;
    }
    if (req->active_site[0] && strcmp(req->active_site, site->config->peer_name) == 0) {
        want.peer_active = true;
    } else if (req->active_site[0] && strcmp(req->active_site, site->config->site) != 0) {
        sr_control_reply_error(call, SR_E_INVALID, req->name, NULL, "there is no site %.64s: the sites are %s and %s",
                               req->active_site, site->config->site, site->config->peer_name);
        return;
    }
    sr_catalog_create(site, call, &want);
}

static void delete (struct sr_site *site, struct sr_control_call *call,
                    const Syncrep__Control__VolumeDeleteRequest *req)
{
    struct sr_volume *volume = sr_table_volume_named(site, req->name);

    if (!volume)
        not_found(call, "volume", req->name, "syncrepctl volume list");
    else if (req->force_name[0] && strcmp(req->force_name, req->name) != 0)
        sr_control_reply_error(call, SR_E_USAGE, req->name, NULL, "--force names %.64s, not %.64s", req->force_name,
                               req->name);
    else
        sr_catalog_delete(site, call, volume, req->force_name[0] != '\0');
}

/* ---- limits, configuration ---------------------------------------------------------------------------------- */

/* Into `tuning`, which is not applied yet.  False: the call was answered. */
static bool set_limit(struct sr_control_call *call, const char *name, const char *value, struct sr_core_tuning *tuning)
{
    enum sr_tune_key key;
    uint64_t number;
    char text[SR_SITE_TEXT];
    enum sr_error error = sr_tune_parse(name, value, &key, &number, text, sizeof(text));

    if (error != SR_OK) {
        sr_control_reply_error(call, error, name, NULL, "%s", text);
        return false;
    }
    switch (key) {
    case SR_TUNE_RESYNC_MIN_RATE:
        tuning->resync_min_bytes_per_s = number;
        break;
    case SR_TUNE_RESYNC_MAX_RATE:
        tuning->resync_max_bytes_per_s = number;
        break;
    case SR_TUNE_RESYNC_LATENCY_FACTOR:
        tuning->resync_latency_factor_percent = (uint32_t)number;
        break;
    case SR_TUNE_STALL_BUDGET:
        tuning->stall_budget_ms = (uint32_t)number;
        break;
    }
    return true;
}

static void tune(struct sr_site *site, struct sr_control_call *call, const Syncrep__Control__TuneRequest *req)
{
    struct sr_core_tuning tuning = site->tuning;
    bool good = set_limit(call, req->key, req->value, &tuning);
    char min[SR_SIZE_TEXT_BYTES], max[SR_SIZE_TEXT_BYTES];

    for (size_t i = 0; good && i < req->n_more; i++)
        good = set_limit(call, req->more[i]->key, req->more[i]->value, &tuning);
    if (!good)
        return;
    if (tuning.resync_max_bytes_per_s != 0 && tuning.resync_max_bytes_per_s < tuning.resync_min_bytes_per_s) {
        sr_control_reply_error(call, SR_E_INVALID, req->key, NULL,
                               "resync_max_rate (%s) would be below resync_min_rate (%s): it is at least that, or 0 for no "
                               "limit",
                               sr_size_format(tuning.resync_max_bytes_per_s, max),
                               sr_size_format(tuning.resync_min_bytes_per_s, min));
        return;
    }
    site->tuning = tuning;
    sr_driver_tune(site);
    sr_log(SR_LOG_NOTICE, "%s is %s until the next restart", req->key, req->value);
    for (size_t i = 0; i < req->n_more; i++)
        sr_log(SR_LOG_NOTICE, "%s is %s until the next restart", req->more[i]->key, req->more[i]->value);
    sr_control_reply_done(call, req->key, NULL, "%s is %s until the next restart", req->key, req->value);
}

static void reload(struct sr_site *site, struct sr_control_call *call)
{
    char text[1024];
    enum sr_error error = sr_reload(site, text, sizeof(text));

    if (error == SR_OK)
        sr_control_reply_done(call, "", NULL, "%s", text);
    else
        sr_control_reply_error(call, error, site->config->file, NULL, "%s", text);
}

/* ---- the socket ---------------------------------------------------------------------------------------------- */

static bool only_looks(const request_t *req)
{
    return req->op_case == SYNCREP__CONTROL__REQUEST__OP_STATUS ||
           req->op_case == SYNCREP__CONTROL__REQUEST__OP_POOL_LIST ||
           req->op_case == SYNCREP__CONTROL__REQUEST__OP_VOLUME_LIST ||
           req->op_case == SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW ||
           req->op_case == SYNCREP__CONTROL__REQUEST__OP_COLLECTION_LIST ||
           req->op_case == SYNCREP__CONTROL__REQUEST__OP_COLLECTION_SHOW;
}

static void on_request(void *arg, struct sr_control_call *call, const request_t *req)
{
    struct sr_site *site = arg;

    if (site->stopping && !only_looks(req)) {
        sr_control_reply_error(call, SR_E_SHUTDOWN, NULL, NULL, "the daemon is stopping");
        return;
    }
    switch (req->op_case) {
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_CREATE:
        create(site, call, req->volume_create);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_DELETE:
        delete (site, call, req->volume_delete);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_PAUSE:
        command(site, call, req->pause->name, SR_ADMIN_PAUSE);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_RESUME:
        command(site, call, req->resume->name, SR_ADMIN_RESUME);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_REPLACE:
        replace(site, call, req->replace);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_POOL_CREATE:
        pool_create(site, call, req->pool_create);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_SWITCHOVER:
        sr_roles_switchover(site, call, req->switchover);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_FAILOVER:
        sr_roles_failover(site, call, req->failover);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_RESOLVE:
        sr_roles_resolve(site, call, req->resolve);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_CREATE:
        sr_members_create(site, call, req->collection_create->name, req->collection_create->volume);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_ADD:
        sr_members_add(site, call, req->collection_add->name, req->collection_add->volume);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_REMOVE:
        sr_members_remove(site, call, req->collection_remove->name, req->collection_remove->volume);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_DELETE:
        sr_members_dissolve(site, call, req->collection_delete->name);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_TUNE:
        tune(site, call, req->tune);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_RELOAD:
        reload(site, call);
        break;
    case SYNCREP__CONTROL__REQUEST__OP_STATUS:
    case SYNCREP__CONTROL__REQUEST__OP_POOL_LIST:
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_LIST:
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW:
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_LIST:
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_SHOW:
        sr_status_request(site, call, req);
        break;
    default:
        sr_control_reply_error(call, SR_E_UNSUPPORTED, NULL, NULL, "this version of syncrepd does not know how to %s",
                               sr_control_op_name(req->op_case));
    }
}

static bool holds(const struct sr_core_status *status, Syncrep__Control__Condition condition)
{
    switch (condition) {
    case SYNCREP__CONTROL__CONDITION__CONDITION_IN_SYNC:
        return status->sync == SR_SYNC_IN_SYNC && status->link_up && status->dirty_blocks == 0;
    case SYNCREP__CONTROL__CONDITION__CONDITION_PAUSED:
        return status->sync == SR_SYNC_PAUSED;
    case SYNCREP__CONTROL__CONDITION__CONDITION_OUT_OF_SYNC:
        return status->sync != SR_SYNC_IN_SYNC;
    case SYNCREP__CONTROL__CONDITION__CONDITION_PROTECTED:
        return status->verdict == SR_VERDICT_PROTECTED;
    case SYNCREP__CONTROL__CONDITION__CONDITION_ACTIVE:
        return status->serving;
    case SYNCREP__CONTROL__CONDITION__CONDITION_ALTERNATE:
        return status->record.role == SR_ROLE_ALTERNATE;
    default:
        return status->link_up;
    }
}

static enum sr_control_wait wait_check(void *arg, const char *name, Syncrep__Control__Condition condition,
                                       struct sr_control_wait_info *info)
{
    struct sr_site *site = arg;
    struct sr_core_status status;

    info->error = SR_OK;
    info->hint[0] = '\0';
    if (name[0] == '\0') {
        snprintf(info->text, sizeof(info->text), "site %s is %sconnected", site->config->peer_name,
                 site->exchanged ? "" : "not ");
        return site->exchanged ? SR_CONTROL_WAIT_DONE : SR_CONTROL_WAIT_PENDING;
    }
    struct sr_collection *collection = sr_table_collection_named(site, name);
    if (!collection) {
        info->error = SR_E_NOT_FOUND;
        snprintf(info->text, sizeof(info->text), "there is no volume or collection %s here", name);
        snprintf(info->hint, sizeof(info->hint), "syncrepctl status");
        return SR_CONTROL_WAIT_FAILED;
    }
    sr_driver_status(collection, &status);
    snprintf(info->text, sizeof(info->text), "%s is %s%s%s%s%s", collection->name, sr_sync_word(status.sync),
             status.cause != SR_CAUSE_NONE ? " (" : "", sr_cause_name(status.cause),
             status.cause != SR_CAUSE_NONE ? ")" : "", status.serving ? ", served here" : "");
    sr_status_next_command(collection, &status, info->hint, sizeof(info->hint));
    return holds(&status, condition) ? SR_CONTROL_WAIT_DONE : SR_CONTROL_WAIT_PENDING;
}

static void log_line(void *arg, enum sr_log_level level, const char *text)
{
    (void)arg;
    sr_log(level, "%s", text);
}

enum sr_error sr_commands_start(struct sr_site *site, char *text, size_t text_bytes)
{
    struct sr_control_options options = {
        .path = site->config->control_socket, .site = site->config->site, .group = (gid_t)-1};
    struct sr_control_callbacks callbacks = {.request = on_request, .wait_check = wait_check, .log = log_line};

    return sr_control_open(site->loop, &options, &callbacks, site, &site->control, text, text_bytes);
}

/* ---- what changed ---------------------------------------------------------------------------------------------- */

static void emit(struct sr_collection *collection, const char *kind, enum sr_log_level level, const char *text)
{
    sr_control_emit(collection->site->control, level, kind, collection->name, sr_driver_wall_ms(), "%s", text);
}

/* Why the role is what it is now, or why hosts are served, or not. */
static const char *role_cause(const struct sr_collection *collection, const struct sr_core_status *status, char *text,
                              size_t text_bytes)
{
    const struct sr_watch *told = &collection->watch;
    const char *peer = collection->site->config->peer_name;
    bool new_gen = told->known && !sr_uuid_equal(&told->gen, &status->record.gen);
    bool made_here = status->record.made_by == SR_MADE_FAILOVER || status->record.made_by == SR_MADE_FORCED;

    text[0] = '\0';
    if (status->record.role == SR_ROLE_ACTIVE && new_gen && made_here)
        snprintf(text, text_bytes, ": %sfailover by an administrator",
                 status->record.made_by == SR_MADE_FORCED ? "forced " : "");
    else if (status->taking)
        snprintf(text, text_bytes, ": handed over by %s", peer);
    else if (status->giving)
        snprintf(text, text_bytes, ": handed over to %s", peer);
    else if (status->cause == SR_CAUSE_CONFLICT)
        snprintf(text, text_bytes, ": in conflict with the copy of %s", peer);
    else if (told->known && told->role != status->record.role)
        snprintf(text, text_bytes, ": agreed with %s when the sites met", peer);
    return text;
}

static void watch_space(struct sr_collection *collection, const struct sr_core_status *status)
{
    struct sr_watch *told = &collection->watch;
    char text[SR_SITE_TEXT];
    bool full = sr_status_warning(collection, status, text, sizeof(text))[0] != '\0';

    if (full == told->full)
        return;
    told->full = full;
    emit(collection, "pool", full ? SR_LOG_WARNING : SR_LOG_NOTICE, full ? text : "there is space in the pool again");
    sr_control_state_changed(collection->site->control);
}

void sr_commands_watch(struct sr_collection *collection)
{
    struct sr_watch *told = &collection->watch;
    struct sr_core_status status;
    char text[SR_SITE_TEXT], role_why[120];

    if (!collection->site->control)
        return;
    sr_status_shown(collection, &status);
    bool sync =
        !told->known || told->sync != status.sync || told->cause != status.cause || told->verdict != status.verdict;
    watch_space(collection, &status);
    bool role = !told->known || told->role != status.record.role || told->serving != status.serving;
    if (!sync && !role)
        return;
    role_cause(collection, &status, role_why, sizeof(role_why));
    *told = (struct sr_watch){true,          status.sync,        status.verdict,
                              status.cause,  status.record.role, status.serving,
                              status.record.gen, told->full};
    if (sync) {
        snprintf(text, sizeof(text), "%s%s%s%s, %s%s%s", sr_sync_word(status.sync),
                 status.cause != SR_CAUSE_NONE ? " (" : "", sr_cause_name(status.cause),
                 status.cause != SR_CAUSE_NONE ? ")" : "", sr_verdict_word(status.verdict),
                 status.detail[0] ? ": " : "", status.detail);
        emit(collection, "sync", status.verdict == SR_VERDICT_PROTECTED ? SR_LOG_NOTICE : SR_LOG_WARNING, text);
        sr_log(SR_LOG_INFO, "%s: %s", collection->name, text);
    }
    if (role) {
        snprintf(text, sizeof(text), "%s here, %s%s", status.record.role == SR_ROLE_ACTIVE ? "active" : "alternate",
                 status.serving ? "served to hosts" : "not served to hosts", role_why);
        emit(collection, "role", SR_LOG_NOTICE, text);
    }
    sr_control_state_changed(collection->site->control);
}
