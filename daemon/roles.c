/* roles.c - the verbs that move the active role: switchover, failback, failover, resolve.
 *
 * Each is carried out by a core: a switchover by that of the active site, a failover by the one here, the giving up of
 * diverged writes by that of the losing site.  What the other site's core must do is asked for over the peer link and
 * answered by it; with the link down nothing changes.  A failback first waits here until both copies are in sync.
 *
 * The daemon owns each operation: a client that goes changes nothing.  Nothing here is durable; a crash leaves what the
 * cores' records say.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"
#include "site.h"

#define FAILBACK_LOOK_MS 50u

/* One call, until its answer.  The collection is found again by its UUID: it may have been deleted meanwhile. */
struct role_call {
    struct sr_site *site;
    struct sr_control_call *call;
    struct sr_uuid collection;
    char name[SR_NAME_BYTES];
    enum sr_volume_verb at_peer; /* what it asks for, there or here */
    enum sr_plan_verb plan;
    bool to_here, force;
    uv_timer_t timer; /* failback */
    uint64_t until_us;
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

    if (!collection || collection->core)
        return collection;
    sr_control_reply_error(call, SR_E_REFUSED, collection->name, "syncrepctl status", "%s cannot be used here: %s",
                           collection->name, collection->fault);
    return NULL;
}

/* A site by its name: here or there; false: the call was answered. */
static bool which_site(struct sr_site *site, struct sr_control_call *call, const char *name, const char *what, bool *here)
{
    *here = strcmp(what, site->config->site) == 0;
    if (*here || strcmp(what, site->config->peer_name) == 0)
        return true;
    sr_control_reply_error(call, SR_E_INVALID, name, NULL, "there is no site %.64s: the sites are %s and %s", what,
                           site->config->site, site->config->peer_name);
    return false;
}

/* ---- what a core, here or there, answers ------------------------------------------------------------------------ */

static void hint_for(const struct role_call *role, enum sr_error error, char hint[SR_SITE_TEXT])
{
    const char *name = role->name;

    hint[0] = '\0';
    if (role->plan == SR_PLAN_FAILOVER && error == SR_E_NEEDS_FORCE)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl failover %s --force=%s", name, name);
    else if (role->plan == SR_PLAN_FAILOVER && error == SR_E_REFUSED)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl failover %s --plan", name);
    else if (role->plan == SR_PLAN_FAILOVER && error == SR_OK)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl status %s", name);
    else if (role->plan == SR_PLAN_SWITCHOVER && error == SR_E_TIMEOUT)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl wait %s --for %s   (or: syncrepctl status %s)", name,
                 role->to_here ? "active" : "alternate", name);
    else if (role->plan == SR_PLAN_SWITCHOVER && error == SR_E_REFUSED)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl status %s", name);
    else if (role->plan == SR_PLAN_RESOLVE && error == SR_OK)
        snprintf(hint, SR_SITE_TEXT, "syncrepctl wait %s --for in-sync", name);
}

static void answered(struct role_call *role, enum sr_error error, const char *text)
{
    char hint[SR_SITE_TEXT];

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

static enum sr_admin_command command_of(enum sr_volume_verb verb)
{
    return verb == SR_COLLECTION_SWITCHOVER ? SR_ADMIN_SWITCHOVER : SR_ADMIN_DISCARD;
}

/* ---- what the other site asks for -------------------------------------------------------------------------------- */

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

    if (!asked || !collection || !collection->core) {
        free(asked);
        sr_rpc_reply(site, request, collection ? SR_E_REFUSED : SR_E_NOT_FOUND,
                     collection ? collection->fault : "there is no such collection here");
        return;
    }
    *asked = (struct asked){site, *request, site->link_number};
    sr_driver_admin(collection, command_of(request->verb), false, tell_peer, asked);
}

/* ---- switchover, failback ----------------------------------------------------------------------------------------- */

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

static bool active_already(const struct sr_collection *collection, bool here)
{
    struct sr_core_status status;

    sr_driver_status(collection, &status);
    if (here)
        return status.record.role == SR_ROLE_ACTIVE;
    return status.record.role != SR_ROLE_ACTIVE && !status.record.handover && status.link_up && status.peer_known &&
           status.peer.role == SR_ROLE_ACTIVE;
}

static void switch_over(struct sr_collection *collection, struct role_call *role)
{
    const struct sr_config *config = role->site->config;
    char text[SR_SITE_TEXT];

    role->plan = SR_PLAN_SWITCHOVER;
    role->at_peer = SR_COLLECTION_SWITCHOVER;
    if (active_already(collection, role->to_here)) {
        snprintf(text, sizeof(text), "%s is active at %s already", role->name,
                 role->to_here ? config->site : config->peer_name);
        end(role, SR_OK, NULL, text);
    } else if (role->to_here) {
        ask_peer(role);
    } else {
        sr_driver_admin(collection, SR_ADMIN_SWITCHOVER, false, core_answered, role);
    }
}

static void freed_timer(uv_handle_t *handle)
{
    struct role_call *role = handle->data;
    struct sr_collection *collection = sr_table_collection(role->site, &role->collection);

    if (role->site->stopping || !collection || !collection->core)
        end(role, role->site->stopping ? SR_E_SHUTDOWN : SR_E_NOT_FOUND, NULL,
            role->site->stopping ? "the daemon is stopping" : "the collection is gone");
    else if (role->until_us != 0)
        end(role, SR_E_TIMEOUT, "syncrepctl status",
            "not in sync in time: the role stays where it is; nothing was changed");
    else
        switch_over(collection, role);
}

/* until_us 0: both copies are in sync. */
static void failback_look(uv_timer_t *timer)
{
    struct role_call *role = timer->data;
    struct sr_collection *collection = sr_table_collection(role->site, &role->collection);
    struct sr_core_status status;

    if (collection && collection->core && !role->site->stopping) {
        sr_driver_status(collection, &status);
        bool in_sync = status.sync == SR_SYNC_IN_SYNC && status.link_up && status.dirty_blocks == 0;
        if (in_sync || active_already(collection, role->to_here))
            role->until_us = 0;
        else if (sr_driver_now_us() < role->until_us)
            return;
    }
    uv_close((uv_handle_t *)timer, freed_timer);
}

static void fail_back(struct role_call *role, uint64_t wait_ms)
{
    role->until_us = sr_driver_now_us() + wait_ms * 1000;
    uv_timer_init(role->site->loop, &role->timer);
    role->timer.data = role;
    uv_timer_start(&role->timer, failback_look, 0, FAILBACK_LOOK_MS);
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
    role->to_here = req->to_site[0] ? to_here : status.record.role != SR_ROLE_ACTIVE && !status.record.handover;
    role->plan = SR_PLAN_SWITCHOVER;
    if (req->plan)
        plan(collection, role);
    else if (req->sync_wait_ms)
        fail_back(role, req->sync_wait_ms);
    else
        switch_over(collection, role);
}

/* ---- failover, resolve -------------------------------------------------------------------------------------------- */

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
    if (req->plan)
        plan(collection, role);
    else
        sr_driver_admin(collection, SR_ADMIN_FAILOVER, role->force, core_answered, role);
}

static bool in_conflict(const struct sr_collection *collection)
{
    struct sr_core_status status;

    sr_driver_status(collection, &status);
    return status.cause == SR_CAUSE_CONFLICT;
}

void sr_roles_resolve(struct sr_site *site, struct sr_control_call *call, const Syncrep__Control__ResolveRequest *req)
{
    struct sr_collection *collection = usable(site, call, req->name);
    bool keep_here;
    char text[SR_SITE_TEXT];

    if (!collection || !which_site(site, call, req->name, req->keep_site, &keep_here))
        return;
    struct role_call *role = new_call(collection, call);
    if (!role)
        return;
    role->plan = SR_PLAN_RESOLVE;
    role->at_peer = SR_COLLECTION_DISCARD;
    role->to_here = keep_here;
    if (req->plan) {
        plan(collection, role);
    } else if (!in_conflict(collection)) {
        bool kept = active_already(collection, keep_here);
        snprintf(text, sizeof(text), "%s is not in conflict%s", role->name,
                 kept ? ", and active at that site" : ", or the sites are not connected: nothing was given up");
        end(role, kept ? SR_OK : SR_E_REFUSED, "syncrepctl status", text);
    } else if (keep_here) {
        ask_peer(role);
    } else {
        sr_driver_admin(collection, SR_ADMIN_DISCARD, false, core_answered, role);
    }
}
