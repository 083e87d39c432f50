/* link_events.c - what happens when the peer comes, speaks and goes.
 *
 *   on_up    the peer's identity is kept, catalogues are exchanged (reconcile.c), and each collection that is LIVE at
 *            both sites, and agrees, is told LINK_UP
 *   on_down  LINK_DOWN to all cores, unfinished questions are answered; when all disk work that the peer may have
 * asked for has ended, the link may greet the peer again
 *
 * Invariants
 *   L1  A core gets messages only between its LINK_UP and its LINK_DOWN.  Messages come in order, and the peer tells
 * a core LINK_UP only after it has sent what makes this site do the same; so no greeting is lost. L2  sr_link_drained
 * is called once for each on_down, and not before that work has ended.
 *
 * A crash at any line is harmless: the peer's UUID is durable or learned again; all else is of one connection.
 */
#include <stdio.h>
#include <string.h>

#include "link/link.h"
#include "site.h"

static void peer_kept(void *arg, uint64_t tag, enum sr_error error)
{
    struct sr_site *site = arg;

    (void)tag;
    if (error != SR_OK)
        sr_driver_halt(site, "the identity of the peer could not be written to the metadata");
}

/* A peer that was learned on this very connection is kept for good. */
static void keep_peer(struct sr_site *site, const struct sr_site_hello *hello)
{
    char uuid[SR_UUID_TEXT_BYTES];

    if (!sr_uuid_is_none(&sr_meta_site(site->meta)->peer))
        return;
    struct sr_meta_change change = {.peer = &hello->site};
    sr_log(SR_LOG_NOTICE, "first contact with site %s (%s): from now on no other site is taken for it",
           hello->site_name, sr_uuid_format(&hello->site, uuid));
    sr_meta_commit_change(site->meta, &change, peer_kept, site, 0);
}

static bool check_identity(void *arg, const struct sr_site_hello *hello, char *text)
{
    struct sr_site *site = arg;
    const struct sr_uuid *peer = &sr_meta_site(site->meta)->peer;
    char known[SR_UUID_TEXT_BYTES], seen[SR_UUID_TEXT_BYTES];

    if (sr_uuid_is_none(peer) || sr_uuid_equal(peer, &hello->site))
        return true;
    snprintf(text, SR_SITE_TEXT_BYTES,
             "site %s has UUID %s, but the peer known here is %s: its state folder is another one (lost, or restored "
             "elsewhere?)",
             hello->site_name, sr_uuid_format(&hello->site, seen), sr_uuid_format(peer, known));
    snprintf(site->peer_refusal, sizeof(site->peer_refusal), "%s", text);
    return false;
}

static void on_watch(uv_timer_t *timer)
{
    sr_driver_watch_all(timer->data);
}

void sr_link_events_watch_in(struct sr_site *site, uint64_t ms)
{
    if (site->watch_timer_open && !site->stopping && !uv_is_active((uv_handle_t *)&site->watch_timer))
        uv_timer_start(&site->watch_timer, on_watch, ms, 0);
}

static void on_up(void *arg, const struct sr_link_peer *peer)
{
    struct sr_site *site = arg;

    site->link_is_up = true;
    site->link_number++;
    site->link_since_wall_ms = sr_driver_wall_ms();
    site->peer_refusal[0] = '\0';
    site->peer_features = peer->features;
    uv_timer_stop(&site->watch_timer);
    keep_peer(site, &peer->hello);
    sr_control_emit(site->control, SR_LOG_NOTICE, "link", site->config->peer_name, site->link_since_wall_ms,
                    "connected to %s at %s", site->config->peer_name, peer->address);
    sr_reconcile_send(site);
    sr_control_state_changed(site->control);
}

static void on_down(void *arg, enum sr_link_cause cause, const char *text)
{
    struct sr_site *site = arg;
    struct sr_collection *collection;

    (void)cause;
    site->link_is_up = false;
    site->link_since_wall_ms = sr_driver_wall_ms();
    sr_reconcile_reset(site);
    TAILQ_FOREACH (collection, &site->collections, link)
        sr_driver_link(collection, false);
    sr_rpc_link_down(site);
    sr_catalog_link_down(site);
    site->draining = true;
    sr_link_events_work_ended(site);
    sr_control_emit(site->control, SR_LOG_WARNING, "link", site->config->peer_name, site->link_since_wall_ms,
                    "the link to %s is down: %s", site->config->peer_name, text);
    sr_control_state_changed(site->control);
    if (!site->stopping) /* a blip is not shown until then */
        uv_timer_start(&site->watch_timer, on_watch, site->tuning.stall_budget_ms + 10, 0);
}

static void absent(struct sr_site *site, const struct sr_uuid *uuid)
{
    struct sr_site_msg *msg = sr_site_msg_new(SR_SITE_COLLECTION_ABSENT);

    if (!msg)
        return;
    msg->collection = *uuid;
    sr_link_events_send_site(site, msg);
}

static void on_msg(void *arg, const struct sr_uuid *uuid, struct sr_peer_msg *msg)
{
    struct sr_site *site = arg;
    struct sr_collection *collection = sr_table_collection(site, uuid);
    struct sr_event event = {.type = SR_EV_PEER_MSG, .msg = msg};

    /* A host's write stays until the peer, too, has it: by answers that come behind other messages with data, for
     * which the link must find room.  How much may stay is bounded by the window of what is forwarded. */
    if (msg->type == SR_MSG_FORWARD && msg->payload)
        sr_buf_recharge(msg->payload, &site->host_budget);
    if (collection && collection->core && collection->link_up) {
        sr_driver_step(collection, &event);
        return;
    }
    if (msg->type == SR_MSG_HELLO && (!collection || (!collection->core && !collection->suspended)))
        absent(site, uuid);
    sr_peer_msg_free(msg);
}

static void on_absent(struct sr_site *site, const struct sr_uuid *uuid)
{
    struct sr_collection *collection = sr_table_collection(site, uuid);

    if (!collection || collection->dead)
        return;
    for (uint32_t i = 0; i < collection->n_volumes; i++)
        if (!sr_uuid_is_none(&collection->volumes[i]->meta.pending_collection))
            return; /* it has moved there already: this site is about to follow */
    sr_driver_link(collection, false);
    snprintf(collection->peer_fault, sizeof(collection->peer_fault),
             "the copy at %s cannot be used now: `syncrepctl status` there says why", site->config->peer_name);
    sr_log_limited(SR_LOG_WARNING, collection->name, "%s: %s", collection->name, collection->peer_fault);
    sr_commands_watch(collection);
}

static void on_site_msg(void *arg, struct sr_site_msg *msg)
{
    struct sr_site *site = arg;

    switch (msg->type) {
    case SR_SITE_CATALOG:
        sr_reconcile_part(site, &msg->catalog);
        break;
    case SR_SITE_VOLUME_REQUEST:
        sr_catalog_request(site, &msg->rpc);
        break;
    case SR_SITE_VOLUME_REPLY:
        sr_rpc_on_reply(site, &msg->rpc);
        break;
    case SR_SITE_COLLECTION_ABSENT:
        on_absent(site, &msg->collection);
        break;
    default:
        sr_link_events_fault(site, "a message out of place");
    }
    sr_site_msg_free(msg);
}

static void log_line(void *arg, enum sr_log_level level, const char *text)
{
    (void)arg;
    sr_log(level, "%s", text);
}

/* ---- what others ask for ---------------------------------------------------------------------------- */

void sr_link_events_send(struct sr_site *site, const struct sr_uuid *collection, struct sr_peer_msg *msg)
{
    if (site->halted || !site->link)
        sr_peer_msg_free(msg);
    else
        sr_link_send_msg(site->link, collection, msg);
}

void sr_link_events_send_site(struct sr_site *site, struct sr_site_msg *msg)
{
    if (site->halted || !site->link)
        sr_site_msg_free(msg);
    else
        sr_link_send_site(site->link, msg);
}

void sr_link_events_fault(struct sr_site *site, const char *text)
{
    if (site->link)
        sr_link_fault(site->link, text);
}

void sr_link_events_work_ended(struct sr_site *site)
{
    if (!site->draining || sr_driver_peer_work(site))
        return;
    site->draining = false;
    if (site->link)
        sr_link_drained(site->link); /* L2 */
}

void sr_link_events_view(struct sr_site *site, struct sr_link_view *view)
{
    struct sr_link_status status;

    memset(view, 0, sizeof(*view));
    view->state = SYNCREP__CONTROL__LINK_STATE__LINK_DOWN;
    if (!site->link)
        return;
    sr_link_status(site->link, &status);
    if (site->link_is_up)
        view->state = SYNCREP__CONTROL__LINK_STATE__LINK_UP;
    else if (status.state == SR_LINK_CONNECTING || status.state == SR_LINK_DRAINING)
        view->state = SYNCREP__CONTROL__LINK_STATE__LINK_CONNECTING;
    view->rtt_us = status.rtt_us;
    view->reconnects = status.connects > 0 ? status.connects - 1 : 0;
    view->tls = status.secure;
    snprintf(view->peer_address, sizeof(view->peer_address), "%s", site->config->peer_address.text);
    snprintf(view->last_error, sizeof(view->last_error), "%.300s",
             site->peer_refusal[0] ? site->peer_refusal : status.last_error);
}

void sr_link_events_close(struct sr_site *site, void (*closed)(void *arg), void *arg)
{
    struct sr_link *link = site->link;

    site->link = NULL;
    site->link_is_up = false;
    sr_link_close(link, closed, arg);
}

enum sr_error sr_link_events_load_tls(struct sr_site *site, const struct sr_config *config, char *text,
                                      size_t text_bytes)
{
    struct sr_tls_files files = {config->tls.ca, config->tls.certificate, config->tls.key};
    struct sr_tls *fresh = NULL;

    if (config->insecure)
        return SR_OK;
    enum sr_error error = sr_tls_load(SR_TLS_PEER, &files, config->site, &fresh, text, text_bytes);
    if (error != SR_OK)
        return error;
    if (site->link)
        sr_link_set_tls(site->link, fresh);
    sr_tls_unref(site->tls);
    site->tls = fresh;
    return SR_OK;
}

enum sr_error sr_link_events_start(struct sr_site *site, char *text, size_t text_bytes)
{
    const struct sr_config *config = site->config;
    const struct sr_meta_site *self = sr_meta_site(site->meta);
    struct sr_link_address listen[SR_LINK_LISTEN_MAX];
    char why[SR_LINK_TEXT_BYTES] = "";
    enum sr_error error = sr_link_events_load_tls(site, config, text, text_bytes);

    _Static_assert(SR_LINK_LISTEN_MAX >= SR_CONFIG_LISTEN_MAX, "every address of the configuration fits");
    if (error != SR_OK)
        return error;
    for (size_t i = 0; i < config->n_listen; i++)
        listen[i] = (struct sr_link_address){config->listen[i].host, config->listen[i].port};
    struct sr_link_config options = {.site_name = config->site,
                                     .peer_name = config->peer_name,
                                     .site = self->uuid,
                                     .group = self->group,
                                     .peer = self->peer,
                                     .boot = self->boot,
                                     .n_listen = config->n_listen,
                                     .listen = listen,
                                     .peer_address = {config->peer_address.host, config->peer_address.port},
                                     .tls = site->tls,
                                     .insecure = config->insecure,
                                     .budget = &site->peer_budget,
                                     .features = SR_FEATURE_WRITE_BACK,
                                     .heartbeat_interval_ms = config->heartbeat_interval_ms,
                                     .heartbeat_timeout_ms = config->heartbeat_timeout_ms};
    struct sr_link_callbacks callbacks = {.on_up = on_up,
                                          .on_down = on_down,
                                          .on_msg = on_msg,
                                          .on_site_msg = on_site_msg,
                                          .check_identity = check_identity,
                                          .log = log_line};
    error = sr_link_new(site->loop, &options, &callbacks, site, &site->link, why);
    if (error != SR_OK) {
        snprintf(text, text_bytes, "%s", why);
        return error;
    }
    uv_timer_init(site->loop, &site->watch_timer);
    site->watch_timer.data = site;
    site->watch_timer_open = true;
    sr_link_start(site->link);
    return SR_OK;
}
