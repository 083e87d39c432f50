/* roles.c - the verbs that move the active role: switchover, failback, failover, resolve.
 *
 * Each is carried out by a core: a switchover by that of the active site, a failover by the one here, the giving up
 * of diverged writes by that of the losing site.  What the other site's core must do is asked for over the peer link
 * and answered by it; with the link down nothing changes.  A failback first waits here until both copies are in sync.
 *
 * The daemon owns each operation: a client that goes changes nothing.  Nothing here is durable; a crash leaves what
 * the cores' records say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "site.h"

#define WAIT_MAX_MS (UINT64_C(24) * 3600 * 1000)
#define SETTLE_MS   2000u
#define LOOK_MS     50u /* how often a call that waits looks */

/* One call, until its answer.  The collection is found again by its UUID: it may have been deleted meanwhile. */
struct role_call {
    struct sr_site *site;
    struct sr_control_call *call;
    struct sr_uuid collection;
    char name[SR_NAME_BYTES];
    enum sr_volume_verb at_peer; /* what it asks for, there or here */
    enum sr_plan_verb plan;
    bool to_here, force;
    bool looked_again; /* at what became of it after it was refused */
    /* While it waits: for both copies to be in sync (failback), for a role that is arriving, for the end of what
     * follows a conflict. */
    uv_timer_t timer;
    enum { WAIT_SYNC, WAIT_ARRIVAL, WAIT_SETTLED } wait;
    bool late, superseded;
    uint64_t until_us;
    uint64_t failback_until_us; /* 0: not a failback.  Until then a session that ends just now is waited for, too */
    struct role_call *next;     /* in site->role_waits, while it waits for in-sync */
};

static struct role_call *new_call(struct sr_collection *collection, struct sr_control_call *call)
{
    struct role_call *role = calloc(1, sizeof(*role));

    if (!role) {
        sr_control_reply_error(call, SR_E_NO_MEMORY, collection->name, NULL, "out of memory");
        return NULL;
    }
    role->site = collection->site;
    role->call = call;
    role->collection = collection->uuid;
    memcpy(role->name, collection->name, sizeof(role->name));
    return role;
}

static void end(struct role_call *role, enum sr_error error, const char *hint, const char *text)
{
    if (error == SR_OK)
        sr_control_reply_done(role->call, role->name, hint, "%s", text);
    else
        sr_control_reply_error(role->call, error, role->name, hint, "%s", text);
    free(role);
}

/* NULL: the call was answered. */
static struct sr_collection *usable(struct sr_site *site, struct sr_control_call *call, const char *name)
{
    struct sr_collection *collection = sr_commands_find(site, call, name);

    if (collection && sr_members_changing(collection)) {
        sr_control_reply_error(call, SR_E_BUSY, collection->name, NULL, SR_MEMBERS_BUSY, collection->name);
        return NULL;
    }
    if (!collection || collection->core)
        return collection;
    sr_control_reply_error(call, SR_E_REFUSED, collection->name, "syncrepctl status", "%s cannot be used here: %s",
                           collection->name, collection->fault);
    return NULL;
}

/* A site by its name: here or there; false: the call was answered. */
static bool which_site(struct sr_site *site, struct sr_control_call *call, const char *name, const char *what,
                       bool *here)
{
    *here = strcmp(what, site->config->site) == 0;
    if (*here || strcmp(what, site->config->peer_name) == 0)
        return true;
    sr_control_reply_error(call, SR_E_INVALID, name, NULL, "there is no site %.64s: the sites are %s and %s", what,
                           site->config->site, site->config->peer_name);
    return false;
}

/* ---- what a core, here or there, answers ------------------------------------------------------------------------
 */

static void hint_for(const struct role_call *role, enum sr_error error, char hint[SR_SITE_TEXT])
{
    const char *name = role->name;
    const struct sr_config *config = role->site->config;
    struct sr_collection *collection = sr_table_collection(role->site, &role->collection);
    struct sr_core_status status = {.sync = SR_SYNC_OUT_OF_SYNC};
    bool refused = error != SR_OK && error != SR_E_TIMEOUT && error != SR_E_NEEDS_FORCE;

    hint[0] = '\0';
    if (collection)
        sr_driver_status(collection, &status);
    if (role->plan == SR_PLAN_FAILOVER && error == SR_E_NEEDS_FORCE)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl failover %s --force=%s", name, name);
    else if (role->plan == SR_PLAN_FAILOVER && refused)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl failover %s --plan", name);
    else if (role->plan == SR_PLAN_SWITCHOVER && error == SR_E_TIMEOUT)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl wait %s --for %s", name, role->to_here ? "active" : "alternate");
    else if (role->plan == SR_PLAN_SWITCHOVER && refused && status.cause == SR_CAUSE_RESYNCING)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl failback %s --to %s   (waits until both are in sync)", name,
                 role->to_here ? config->site : config->peer_name);
    else if (role->plan == SR_PLAN_RESOLVE && error == SR_OK)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl wait %s --for in-sync", name);
    else if (refused && collection)
        sr_status_next_command(collection, &status, hint, SR_SITE_TEXT);
    if (refused && !hint[0])
        snprintf(hint, SR_SITE_TEXT, "syncrepctl status %s", name);
}

static bool look_again(struct role_call *role);
static bool fail_back_again(struct role_call *role, enum sr_error error);

static void answered(struct role_call *role, enum sr_error error, const char *text)
{
    char hint[SR_SITE_TEXT];

    if (error != SR_OK && role->plan == SR_PLAN_SWITCHOVER && (look_again(role) || fail_back_again(role, error)))
        return;
    hint_for(role, error, hint);
    sr_log(error == SR_OK ? SR_LOG_NOTICE : SR_LOG_WARNING, "%s", text);
    end(role, error, hint[0] ? hint : NULL, text);
}

static void core_answered(void *arg, struct sr_collection *collection, enum sr_error error, const char *text)
{
    (void)collection;
    answered(arg, error, text);
}

static void peer_answered(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct role_call *role = arg;
    char text[SR_SITE_TEXT];

    if (reply && reply->text[0])
        snprintf(text, sizeof(text), "%s", reply->text);
    else if (reply)
        snprintf(text, sizeof(text), "site %s: %s", role->site->config->peer_name, sr_error_text(error));
    else
        snprintf(text, sizeof(text),
                 "%s: the link to site %s went down before it answered; `status` says what came of it", role->name,
                 role->site->config->peer_name);
    answered(role, error, text);
}

/* The peer's core is to do it. */
static void ask_peer(struct role_call *role)
{
    struct sr_volume_rpc rpc = {.verb = role->at_peer, .uuid = role->collection};
    char text[SR_SITE_TEXT];

    if (role->site->exchanged) {
        memcpy(rpc.name, role->name, sizeof(rpc.name));
        sr_rpc_call(role->site, &rpc, peer_answered, role);
        return;
    }
    snprintf(text, sizeof(text), "%s: site %s, which has to do it, is not connected; nothing was changed", role->name,
             role->site->config->peer_name);
    end(role, SR_E_UNREACHABLE, "syncrepctl status", text);
}

/* What only this site holds is given up.  Twice is once. */
static void discard_here(struct sr_collection *collection, sr_admin_fn fn, void *arg)
{
    struct sr_core_status status;

    sr_driver_status(collection, &status);
    bool follows = status.cause != SR_CAUSE_CONFLICT && sr_roles_target(&status, false) == SR_TARGET_ACTIVE;
    if (status.record.discard || follows)
        fn(arg, collection, SR_OK, "what only the losing site held was given up already");
    else
        sr_driver_admin(collection, SR_ADMIN_DISCARD, false, fn, arg);
}

/* ---- what the other site asks for --------------------------------------------------------------------------------
 */

struct asked {
    struct sr_site *site;
    struct sr_volume_rpc request;
    uint64_t link;
};

static void tell_peer(void *arg, struct sr_collection *collection, enum sr_error error, const char *text)
{
    struct asked *asked = arg;

    (void)collection;
    if (asked->site->link_is_up && asked->link == asked->site->link_number)
        sr_rpc_reply(asked->site, &asked->request, error, text);
    free(asked);
}

void sr_roles_request(struct sr_site *site, const struct sr_volume_rpc *request)
{
    struct sr_collection *collection = sr_table_collection(site, &request->uuid);
    struct asked *asked = calloc(1, sizeof(*asked));
    char text[SR_SITE_TEXT_BYTES];

    if (collection && sr_members_changing(collection)) {
        free(asked);
        snprintf(text, sizeof(text), SR_MEMBERS_BUSY, collection->name);
        sr_rpc_reply(site, request, SR_E_BUSY, text);
        return;
    }
    if (!asked || !collection || !collection->core) {
        free(asked);
        sr_rpc_reply(site, request, collection ? SR_E_REFUSED : SR_E_NOT_FOUND,
                     collection ? collection->fault : "there is no such collection here");
        return;
    }
    *asked = (struct asked){site, *request, site->link_number};
    if (request->verb == SR_COLLECTION_DISCARD)
        discard_here(collection, tell_peer, asked);
    else
        sr_driver_admin(collection, SR_ADMIN_SWITCHOVER, false, tell_peer, asked);
}

/* ---- switchover, failback -----------------------------------------------------------------------------------------
 */

static void planned(void *arg, struct sr_collection *collection, enum sr_error error, const char *text)
{
    struct role_call *role = arg;

    (void)error; /* a peer that does not answer is what the plan shows */
    (void)text;
    sr_plan_reply(collection, role->call, role->plan, role->to_here, role->force);
    free(role);
}

/* The peer is asked how it stands, then the answer is made from that. */
static void plan(struct sr_collection *collection, struct role_call *role)
{
    sr_driver_admin(collection, SR_ADMIN_PROBE, false, planned, role);
}

enum sr_target sr_roles_target(const struct sr_core_status *status, bool to_here)
{
    bool active_here = status->record.role == SR_ROLE_ACTIVE;

    if (status->taking)
        return to_here ? SR_TARGET_ARRIVING : SR_TARGET_MOVES;
    if (status->giving)
        return to_here ? SR_TARGET_LEAVING : SR_TARGET_MOVES;
    if (status->cause == SR_CAUSE_CONFLICT)
        return SR_TARGET_CONFLICT;
    if (active_here)
        return !to_here ? SR_TARGET_MOVES : status->serving ? SR_TARGET_ACTIVE : SR_TARGET_NOT_SERVED;
    if (!status->link_up || !status->peer_known || status->peer.role != SR_ROLE_ACTIVE)
        return to_here && status->link_up ? SR_TARGET_MOVES : SR_TARGET_UNKNOWN;
    return to_here ? SR_TARGET_MOVES : SR_TARGET_ACTIVE;
}

static enum sr_target target(const struct role_call *role, const struct sr_collection *collection)
{
    struct sr_core_status status;

    sr_driver_status(collection, &status);
    return sr_roles_target(&status, role->to_here);
}

static void end_active(struct role_call *role)
{
    char text[SR_SITE_TEXT];

    snprintf(text, sizeof(text), "%s is active at %s already", role->name,
             role->to_here ? role->site->config->site : role->site->config->peer_name);
    end(role, SR_OK, NULL, text);
}

static void wait_for(struct role_call *role, int what, uint64_t wait_ms);
static void resolve(struct sr_collection *collection, struct role_call *role);

static void switch_over(struct sr_collection *collection, struct role_call *role)
{
    char text[SR_SITE_TEXT];
    const char *why = NULL;
    enum sr_error error = SR_E_REFUSED;

    role->at_peer = SR_COLLECTION_SWITCHOVER;
    switch (target(role, collection)) {
    case SR_TARGET_ACTIVE:
        end_active(role);
        return;
    case SR_TARGET_ARRIVING:
        wait_for(role, WAIT_ARRIVAL, 2 * (uint64_t)role->site->tuning.stall_budget_ms);
        return;
    case SR_TARGET_MOVES:
        if (role->to_here)
            ask_peer(role);
        else
            sr_driver_admin(collection, SR_ADMIN_SWITCHOVER, false, core_answered, role);
        return;
    case SR_TARGET_CONFLICT:
        why = "the copies are in conflict";
        break;
    case SR_TARGET_NOT_SERVED:
        why = "it is active here, but not served to hosts yet";
        break;
    case SR_TARGET_LEAVING:
        why = "the active role is on its way to the other site";
        error = SR_E_BUSY;
        break;
    case SR_TARGET_UNKNOWN:
        why = "where it is active is not known: the sites are not connected; nothing was changed";
        error = SR_E_UNREACHABLE;
        break;
    }
    role->looked_again = true;
    snprintf(text, sizeof(text), "%s cannot be switched over: %s", role->name, why);
    answered(role, error, text);
}

/* The same switchover may have been carried out for somebody else meanwhile, here or at the other site. */
static bool look_again(struct role_call *role)
{
    struct sr_collection *collection = sr_table_collection(role->site, &role->collection);

    if (role->looked_again || !collection || !collection->core)
        return false;
    role->looked_again = true;
    switch (target(role, collection)) {
    case SR_TARGET_ACTIVE:
    case SR_TARGET_ARRIVING:
        switch_over(collection, role);
        return true;
    default:
        return false;
    }
}

bool sr_roles_waits_for_somebody(const struct sr_core_status *status)
{
    return status->link_up && (status->cause == SR_CAUSE_CONFLICT || status->record.paused || status->record.failed ||
                               (status->peer_known && status->peer.failed));
}

/* In sync when it was looked at, and not any more when it was asked for, or undone: the time is not over yet. */
static bool fail_back_again(struct role_call *role, enum sr_error error)
{
    uint64_t now_us = sr_driver_now_us();

    struct sr_collection *collection = sr_table_collection(role->site, &role->collection);
    struct sr_core_status status;

    if ((error != SR_E_REFUSED && error != SR_E_UNREACHABLE) || role->site->stopping ||
        now_us >= role->failback_until_us || !collection)
        return false;
    sr_driver_status(collection, &status);
    if (sr_roles_waits_for_somebody(&status))
        return false;
    role->looked_again = false;
    wait_for(role, WAIT_SYNC, (role->failback_until_us - now_us + 999) / 1000);
    return true;
}

/* ---- failbacks that wait ----------------------------------------------------------------------------------------- */

static void forget_wait(struct role_call *role)
{
    struct role_call **at = &role->site->role_waits;

    while (*at && *at != role)
        at = &(*at)->next;
    if (*at)
        *at = role->next;
}

int sr_roles_pending(const struct sr_collection *collection)
{
    const struct role_call *role = collection->site->role_waits;

    while (role && !sr_uuid_equal(&role->collection, &collection->uuid))
        role = role->next;
    return role ? role->to_here : -1;
}

/* Another command about the role, that is not for the same move: whoever gave it knows better. */
static void supersede(const struct role_call *by)
{
    for (struct role_call *role = by->site->role_waits; role; role = role->next) {
        bool same_move = by->plan == SR_PLAN_SWITCHOVER && role->to_here == by->to_here;
        if (role != by && sr_uuid_equal(&role->collection, &by->collection) && !same_move)
            role->superseded = true;
    }
}

static void waited(uv_handle_t *handle)
{
    struct role_call *role = handle->data;
    struct sr_collection *collection = sr_table_collection(role->site, &role->collection);
    char text[SR_SITE_TEXT];

    forget_wait(role);
    if (role->site->stopping || !collection || !collection->core) {
        end(role, role->site->stopping ? SR_E_SHUTDOWN : SR_E_NOT_FOUND, NULL,
            role->site->stopping ? "the daemon is stopping" : "the collection is gone");
    } else if (role->superseded) {
        snprintf(text, sizeof(text), "%s: the failback that waited is given up: another command about its role came",
                 role->name);
        end(role, SR_E_CANCELLED, NULL, text);
    } else if (role->plan == SR_PLAN_RESOLVE) {
        resolve(collection, role);
    } else if (!role->late) {
        switch_over(collection, role);
    } else {
        role->looked_again = true;
        snprintf(text, sizeof(text),
                 role->wait == WAIT_SYNC
                     ? "%s is not in sync in time: the role stays where it is, nothing was changed"
                     : "%s: timed out, handing over",
                 role->name);
        answered(role, SR_E_TIMEOUT, text);
    }
}

/* False: the sites are connected and have not agreed yet. */
static bool settled(const struct sr_core_status *status, enum sr_target now)
{
    return !status->link_up || (now != SR_TARGET_NOT_SERVED && now != SR_TARGET_UNKNOWN);
}

static void look(uv_timer_t *timer)
{
    struct role_call *role = timer->data;
    struct sr_collection *collection = sr_table_collection(role->site, &role->collection);
    struct sr_core_status status;

    if (collection && sr_members_changing(collection) && !role->site->stopping)
        return;
    if (collection && collection->core && !role->site->stopping) {
        sr_driver_status(collection, &status);
        enum sr_target now = sr_roles_target(&status, role->to_here);
        bool in_sync = status.sync == SR_SYNC_IN_SYNC && status.link_up && status.dirty_blocks == 0;
        bool over = role->wait == WAIT_SYNC      ? in_sync || now == SR_TARGET_ACTIVE || sr_roles_waits_for_somebody(&status)
                    : role->wait == WAIT_ARRIVAL ? now != SR_TARGET_ARRIVING
                                                 : settled(&status, now);
        role->late = !over && sr_driver_now_us() >= role->until_us;
        if (!over && !role->late && !role->superseded)
            return;
    }
    uv_close((uv_handle_t *)timer, waited);
}

static void wait_for(struct role_call *role, int what, uint64_t wait_ms)
{
    role->wait = what;
    role->until_us = sr_driver_now_us() + wait_ms * 1000;
    if (what == WAIT_SYNC) {
        role->failback_until_us = role->until_us;
        role->next = role->site->role_waits;
        role->site->role_waits = role;
    }
    uv_timer_init(role->site->loop, &role->timer);
    role->timer.data = role;
    uv_timer_start(&role->timer, look, 0, LOOK_MS);
}

void sr_roles_switchover(struct sr_site *site, struct sr_control_call *call,
                         const Syncrep__Control__SwitchoverRequest *req)
{
    struct sr_collection *collection = usable(site, call, req->name);
    struct sr_core_status status;
    bool to_here = false;

    if (!collection || (req->to_site[0] && !which_site(site, call, req->name, req->to_site, &to_here)))
        return;
    struct role_call *role = new_call(collection, call);
    if (!role)
        return;
    sr_driver_status(collection, &status);
    /* Whoever comes while the role moves means the same move. */
    bool other = status.taking || (status.record.role != SR_ROLE_ACTIVE && !status.giving);
    role->to_here = req->to_site[0] ? to_here : other;
    role->plan = SR_PLAN_SWITCHOVER;
    if (!req->plan)
        supersede(role);
    if (req->plan)
        plan(collection, role);
    else if (req->sync_wait_ms)
        wait_for(role, WAIT_SYNC, req->sync_wait_ms < WAIT_MAX_MS ? req->sync_wait_ms : WAIT_MAX_MS);
    else
        switch_over(collection, role);
}

/* ---- failover, resolve --------------------------------------------------------------------------------------------
 */

void sr_roles_failover(struct sr_site *site, struct sr_control_call *call,
                       const Syncrep__Control__FailoverRequest *req)
{
    struct sr_collection *collection = usable(site, call, req->name);

    if (!collection)
        return;
    if (req->force_name[0] && strcmp(req->force_name, req->name) != 0) {
        sr_control_reply_error(call, SR_E_USAGE, req->name, NULL, "--force names %.64s, not %.64s", req->force_name,
                               req->name);
        return;
    }
    struct role_call *role = new_call(collection, call);
    if (!role)
        return;
    role->plan = SR_PLAN_FAILOVER;
    role->to_here = true;
    role->force = req->force_name[0] != '\0';
    if (!req->plan)
        supersede(role);
    if (req->plan)
        plan(collection, role);
    else
        sr_driver_admin(collection, SR_ADMIN_FAILOVER, role->force, core_answered, role);
}

static void resolve(struct sr_collection *collection, struct role_call *role)
{
    const struct sr_config *config = role->site->config;
    struct sr_core_status status;
    char text[SR_SITE_TEXT];

    sr_driver_status(collection, &status);
    enum sr_target kept = sr_roles_target(&status, role->to_here);
    if (!role->to_here && (status.record.discard || status.cause == SR_CAUSE_CONFLICT)) {
        discard_here(collection, core_answered, role);
    } else if (status.cause == SR_CAUSE_CONFLICT) {
        ask_peer(role);
    } else if (kept == SR_TARGET_ACTIVE) {
        snprintf(text, sizeof(text), "%s is not in conflict: the copy of %s is the active one", role->name,
                 role->to_here ? config->site : config->peer_name);
        end(role, SR_OK, NULL, text);
    } else if (!settled(&status, kept) && !role->looked_again) {
        role->looked_again = true;
        wait_for(role, WAIT_SETTLED, SETTLE_MS); /* somebody else may just have resolved it */
    } else {
        snprintf(text, sizeof(text), "%s is not in conflict with a connected peer: nothing was given up", role->name);
        answered(role, SR_E_REFUSED, text);
    }
}

void sr_roles_resolve(struct sr_site *site, struct sr_control_call *call, const Syncrep__Control__ResolveRequest *req)
{
    struct sr_collection *collection = usable(site, call, req->name);
    bool keep_here;

    if (!collection || !which_site(site, call, req->name, req->keep_site, &keep_here))
        return;
    struct role_call *role = new_call(collection, call);
    if (!role)
        return;
    role->plan = SR_PLAN_RESOLVE;
    role->at_peer = SR_COLLECTION_DISCARD;
    role->to_here = keep_here;
    if (!req->plan)
        supersede(role);
    if (req->plan)
        plan(collection, role);
    else
        resolve(collection, role);
}
