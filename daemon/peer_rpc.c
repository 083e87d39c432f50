/* peer_rpc.c - questions to the other site about volumes, and their answers.
 *
 * A question is answered by the peer or by the end of the link, whichever comes first, and never by both: answers
 * carry the question's number, and numbers are not reused while the daemon runs.  There is no deadline of its own: a
 * peer that is silent loses the link by its heartbeat.
 *
 * Nothing here is durable: whoever asked finds out by the exchange of catalogues at the next link.
 */
#include <stdlib.h>
#include <stdio.h>

#include "site.h"

struct sr_rpc {
    TAILQ_ENTRY(sr_rpc) link;
    struct sr_volume_rpc request;
    sr_rpc_fn fn;
    void *arg;
};

static void on_unsent(uv_handle_t *handle)
{
    free(handle);
}

/* The link is down already: the answer comes from the loop all the same. */
struct unsent {
    uv_timer_t timer;
    sr_rpc_fn fn;
    void *arg;
};

static void answer_unsent(uv_timer_t *timer)
{
    struct unsent *unsent = (struct unsent *)timer;

    unsent->fn(unsent->arg, SR_E_UNREACHABLE, NULL);
    uv_close((uv_handle_t *)timer, on_unsent);
}

static void fail_later(struct sr_site *site, sr_rpc_fn fn, void *arg)
{
    struct unsent *unsent = calloc(1, sizeof(*unsent));

    if (!unsent) {
        sr_driver_halt(site, "out of memory");
        return;
    }
    unsent->fn = fn;
    unsent->arg = arg;
    uv_timer_init(site->loop, &unsent->timer);
    uv_timer_start(&unsent->timer, answer_unsent, 0, 0);
}

void sr_rpc_call(struct sr_site *site, const struct sr_volume_rpc *request, sr_rpc_fn fn, void *arg)
{
    struct sr_rpc *rpc = calloc(1, sizeof(*rpc));
    struct sr_site_msg *msg = sr_site_msg_new(SR_SITE_VOLUME_REQUEST);

    if (!rpc || !msg || !site->link_is_up) {
        free(rpc);
        sr_site_msg_free(msg);
        fail_later(site, fn, arg);
        return;
    }
    rpc->request = *request;
    rpc->request.request = ++site->next_rpc;
    rpc->fn = fn;
    rpc->arg = arg;
    msg->rpc = rpc->request;
    TAILQ_INSERT_TAIL(&site->rpcs, rpc, link);
    sr_link_events_send_site(site, msg);
}

void sr_rpc_reply(struct sr_site *site, const struct sr_volume_rpc *request, enum sr_error error, const char *text)
{
    struct sr_site_msg *msg = sr_site_msg_new(SR_SITE_VOLUME_REPLY);

    if (!msg) {
        sr_link_events_fault(site, "out of memory");
        return;
    }
    msg->rpc = *request;
    msg->rpc.error = error;
    snprintf(msg->rpc.text, sizeof(msg->rpc.text), "%s", text ? text : "");
    sr_link_events_send_site(site, msg);
}

void sr_rpc_on_reply(struct sr_site *site, const struct sr_volume_rpc *reply)
{
    struct sr_rpc *rpc;

    TAILQ_FOREACH (rpc, &site->rpcs, link) {
        if (rpc->request.request == reply->request)
            break;
    }
    if (!rpc || rpc->request.verb != reply->verb || !sr_uuid_equal(&rpc->request.uuid, &reply->uuid)) {
        sr_link_events_fault(site, "an answer about a volume that nobody asked for");
        return;
    }
    TAILQ_REMOVE(&site->rpcs, rpc, link);
    rpc->fn(rpc->arg, reply->error, reply);
    free(rpc);
}

void sr_rpc_link_down(struct sr_site *site)
{
    struct sr_rpc_list ended = TAILQ_HEAD_INITIALIZER(ended);
    struct sr_rpc *rpc;

    TAILQ_CONCAT(&ended, &site->rpcs, link);
    while ((rpc = TAILQ_FIRST(&ended))) {
        TAILQ_REMOVE(&ended, rpc, link);
        rpc->fn(rpc->arg, SR_E_UNREACHABLE, NULL);
        free(rpc);
    }
}
