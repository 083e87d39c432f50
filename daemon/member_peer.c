/* member_peer.c - what the other site says about members, and what a contact settles (members.c has the protocol).
 *
 * Whoever answers and then links cores up does it in that order: the other site links its own up when the answer
 * comes, and a greeting that comes before is lost.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "member_rules.h"
#include "members.h"

#define SETTLE_AGAIN_MS 200u

struct answer {
    struct sr_site *site;
    struct sr_volume_rpc request;
    uint64_t link;
    bool relink; /* behind the answer both collections are linked up: the other site's cores began anew */
    struct sr_uuid left;
};

static struct answer *answer_later(struct sr_site *site, const struct sr_volume_rpc *request)
{
    struct answer *answer = calloc(1, sizeof(*answer));

    if (!answer)
        sr_rpc_reply(site, request, SR_E_NO_MEMORY, "out of memory");
    else
        *answer = (struct answer){site, *request, site->link_number, false, request->generation};
    return answer;
}

/* Of the collection that a volume leaves and of the one that it joins. */
static void link_pair(struct sr_site *site, const struct sr_uuid *joined, const struct sr_uuid *left, bool up)
{
    const struct sr_uuid *uuids[2] = {joined, left};

    for (int i = 0; i < 2; i++) {
        struct sr_collection *collection = sr_table_collection(site, uuids[i]);
        if (collection && !collection->dead) {
            collection->members_differ = false;
            sr_driver_link(collection, up);
        }
    }
}

static void give(void *arg, enum sr_error error, const char *text)
{
    struct answer *answer = arg;

    if (answer->site->link_is_up && answer->link == answer->site->link_number) {
        sr_rpc_reply(answer->site, &answer->request, error, text);
        if (answer->relink && error == SR_OK)
            link_pair(answer->site, &answer->request.collection, &answer->left, true);
    }
    free(answer);
}

static void pending_kept(void *arg, uint64_t tag, enum sr_error error)
{
    struct answer *answer = arg;

    (void)tag;
    if (error != SR_OK)
        sr_driver_halt(answer->site, sr_meta_failure(answer->site->meta));
    else
        give(answer, SR_OK, "");
}

static void promised(void *arg, uint64_t tag, enum sr_error error)
{
    struct answer *answer = arg;

    if (error == SR_OK)
        sr_log(SR_LOG_INFO, "a volume may move to collection %s: site %s decides", answer->request.name,
               answer->site->config->peer_name);
    pending_kept(arg, tag, error);
}

static void put_pending(struct sr_volume *volume, const struct sr_uuid *to, const char *name, struct answer *answer)
{
    struct sr_meta_change change = {.put_volume = &volume->meta};

    volume->meta.pending_collection = *to;
    memset(volume->meta.pending_name, 0, sizeof(volume->meta.pending_name));
    memcpy(volume->meta.pending_name, name, strlen(name));
    sr_catalog_commit(volume->site, &change, name[0] ? promised : pending_kept, answer);
}

static void on_prepare(struct sr_volume *volume, const struct sr_volume_rpc *request)
{
    struct sr_site *site = volume->site;
    struct sr_collection *to = sr_table_collection(site, &request->collection);
    const char *why = site->move ? "members of a collection are just being changed"
                                 : sr_members_unfit(volume->collection, SR_ROLE_ALTERNATE);
    const struct sr_volume *namesake = sr_table_volume_named(site, request->name);
    char text[SR_SITE_TEXT_BYTES];

    if (!why && ((to != NULL) == request->active || !sr_uuid_equal(&volume->meta.collection, &request->generation)))
        why = "knows other collections than the active site: the sites must meet again first";
    else if (!why && to)
        why = sr_members_unfit(to, SR_ROLE_ALTERNATE);
    else if (!why && (sr_table_collection_called(site, request->name) || (namesake && namesake != volume)))
        why = "finds that name taken";
    if (why) {
        snprintf(text, sizeof(text), "%.64s %s", volume->collection->name, why);
        sr_rpc_reply(site, request, SR_E_REFUSED, text);
        return;
    }
    struct answer *answer = answer_later(site, request);
    if (!answer)
        return;
    sr_members_keep_steady(volume->collection); /* the active site's cores are about to end their sessions */
    if (to)
        sr_members_keep_steady(to);
    put_pending(volume, &request->collection, request->name, answer);
}

static void on_commit(struct sr_volume *volume, const struct sr_volume_rpc *request)
{
    struct answer *answer;

    if (sr_uuid_equal(&volume->meta.collection, &request->collection)) {
        sr_rpc_reply(volume->site, request, SR_OK, NULL);
        return;
    }
    if (!sr_uuid_equal(&volume->meta.pending_collection, &request->collection)) {
        sr_rpc_reply(volume->site, request, SR_E_REFUSED, "that is not what was prepared");
        return;
    }
    answer = answer_later(volume->site, request);
    if (!answer)
        return;
    answer->relink = true;
    sr_members_follow(volume, give, answer);
}

static void on_abort(struct sr_volume *volume, const struct sr_volume_rpc *request)
{
    static const struct sr_uuid none;
    struct answer *answer = volume->site->move ? NULL : answer_later(volume->site, request);

    if (volume->site->move)
        sr_rpc_reply(volume->site, request, SR_E_BUSY, "members of a collection are just being changed");
    if (!answer)
        return;
    answer->relink = true;
    link_pair(volume->site, &request->collection, &request->generation, false);
    put_pending(volume, &none, "", answer);
}

/* ---- at a contact
 * ---------------------------------------------------------------------------------------------------- */

static void forgotten(void *arg, uint64_t tag, enum sr_error error)
{
    struct sr_site *site = arg;

    (void)tag;
    if (error != SR_OK)
        sr_driver_halt(site, sr_meta_failure(site->meta));
}

void sr_members_forget_pending(struct sr_volume *volume)
{
    struct sr_meta_change change = {.put_volume = &volume->meta};

    memset(&volume->meta.pending_collection, 0, sizeof(volume->meta.pending_collection));
    memset(volume->meta.pending_name, 0, sizeof(volume->meta.pending_name));
    sr_catalog_commit(volume->site, &change, forgotten, volume->site);
}

/* Something else was being done, here or there. */
static void on_settle(uv_timer_t *timer)
{
    struct sr_site *site = timer->data;

    if (site->exchanged && !site->stopping)
        sr_reconcile_members(site);
}

static void settle_later(struct sr_site *site)
{
    if (site->stopping)
        return;
    if (!site->members_timer_open)
        uv_timer_init(site->loop, &site->members_timer);
    site->members_timer_open = true;
    site->members_timer.data = site;
    uv_timer_start(&site->members_timer, on_settle, SETTLE_AGAIN_MS, 0);
}

struct adoption {
    struct sr_site *site;
    struct sr_volume_rpc rpc;
};

static void confirmed(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct adoption *adoption = arg;

    (void)reply;
    if (error == SR_OK)
        link_pair(adoption->site, &adoption->rpc.collection, &adoption->rpc.generation, true);
    free(adoption);
}

static void adopted(void *arg, enum sr_error error, const char *text)
{
    struct adoption *adoption = arg;

    if (error == SR_OK && adoption->site->exchanged) {
        sr_rpc_call(adoption->site, &adoption->rpc, confirmed, adoption);
        return;
    }
    if (error == SR_E_BUSY)
        settle_later(adoption->site);
    else if (error != SR_OK)
        sr_log(SR_LOG_ERROR, "volume %s: cannot follow the other site into collection %s: %s; nothing is copied",
               adoption->rpc.name, adoption->rpc.name, text);
    free(adoption);
}

void sr_members_adopt(struct sr_volume *volume)
{
    struct adoption *adoption = calloc(1, sizeof(*adoption));

    if (!adoption) {
        sr_link_events_fault(volume->site, "out of memory");
        return;
    }
    adoption->site = volume->site;
    adoption->rpc = (struct sr_volume_rpc){.verb = SR_MEMBER_ADOPTED,
                                           .uuid = volume->meta.uuid,
                                           .collection = volume->meta.pending_collection,
                                           .generation = volume->collection->uuid};
    memcpy(adoption->rpc.name, volume->meta.pending_name, sizeof(adoption->rpc.name));
    sr_members_follow(volume, adopted, adoption);
}

static void on_adopted(struct sr_volume *volume, const struct sr_volume_rpc *request)
{
    sr_rpc_reply(volume->site, request, SR_OK, NULL);
    link_pair(volume->site, &request->collection, &request->generation, true);
}

/* It was decided here, and the other site has gone on without having heard of it. */
static void on_yield(struct sr_volume *volume, const struct sr_volume_rpc *request)
{
    struct sr_site *site = volume->site;
    const struct sr_volume *namesake = sr_table_volume_named(site, request->name);
    bool known = sr_table_collection(site, &request->collection) != NULL;
    bool taken = !known && (sr_table_collection_called(site, request->name) || (namesake && namesake != volume));
    struct answer *answer;

    if (sr_uuid_equal(&volume->meta.collection, &request->collection)) {
        sr_rpc_reply(site, request, SR_OK, NULL);
        return;
    }
    if (volume->operation || taken) {
        sr_rpc_reply(site, request, taken ? SR_E_EXISTS : SR_E_BUSY,
                     taken ? "its name is taken there" : "another operation on it is under way there");
        return;
    }
    answer = answer_later(site, request);
    if (!answer)
        return;
    answer->relink = true;
    answer->left = volume->meta.collection;
    sr_log(SR_LOG_WARNING,
           "volume %s: site %s was made active before it heard that it is in collection %s: back to %s",
           volume->meta.name, site->config->peer_name, volume->collection->name, request->name);
    sr_members_yield(volume, &request->collection, request->name, &request->generation, give, answer);
}

struct yielding {
    struct sr_site *site;
    struct sr_uuid volume, here, there; /* in which collections it is */
};

static void yielded(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct yielding *yielding = arg;
    struct sr_site *site = yielding->site;
    struct sr_volume *volume = sr_table_volume(site, &yielding->volume);

    if (error == SR_OK && volume) {
        sr_members_forget_pending(volume);
        link_pair(site, &yielding->here, &yielding->there, true);
    } else if (reply && error == SR_E_BUSY) {
        settle_later(site);
    } else if (reply && volume) {
        sr_log(SR_LOG_ERROR, "volume %s: members differ, and site %s cannot take its decision back: %s",
               volume->meta.name, site->config->peer_name, reply->text);
    }
    free(yielding);
}

void sr_members_ask_yield(struct sr_volume *volume)
{
    struct sr_site *site = volume->site;
    struct yielding *yielding = calloc(1, sizeof(*yielding));
    struct sr_volume_rpc rpc = {
        .verb = SR_MEMBER_YIELD, .uuid = volume->meta.uuid, .collection = volume->collection->uuid};
    struct sr_core_status status;

    if (!yielding) {
        sr_link_events_fault(site, "out of memory");
        return;
    }
    *yielding =
        (struct yielding){site, volume->meta.uuid, volume->collection->uuid, volume->meta.pending_collection};
    sr_driver_status(volume->collection, &status);
    rpc.generation = *sr_member_counts_from(&status.record);
    memcpy(rpc.name, volume->collection->name, sizeof(rpc.name));
    sr_rpc_call(site, &rpc, yielded, yielding);
}

static void on_move(struct sr_volume *volume, const struct sr_volume_rpc *request)
{
    struct sr_collection *to = request->active ? NULL : sr_table_collection(volume->site, &request->collection);
    struct answer *answer;

    if (!request->active && !to) {
        sr_rpc_reply(volume->site, request, SR_E_NOT_FOUND, "the active site does not have that collection");
        return;
    }
    answer = answer_later(volume->site, request);
    if (answer)
        sr_members_coordinate(volume, to, request->name, give, answer);
}

void sr_members_request(struct sr_site *site, const struct sr_volume_rpc *request)
{
    struct sr_volume *volume = sr_table_volume(site, &request->uuid);

    if (!volume || !volume->collection || volume->meta.state != SR_VOLUME_LIVE) {
        sr_rpc_reply(site, request, SR_E_NOT_FOUND, "no such volume");
        return;
    }
    bool nowhere = sr_uuid_is_none(&request->collection) && request->verb != SR_MEMBER_MOVE;
    if (!request->name[0] || nowhere) {
        sr_rpc_reply(site, request, SR_E_INVALID, "where it is to go is not said");
        return;
    }
    switch (request->verb) {
    case SR_MEMBER_PREPARE:
        on_prepare(volume, request);
        break;
    case SR_MEMBER_COMMIT:
        on_commit(volume, request);
        break;
    case SR_MEMBER_ABORT:
        on_abort(volume, request);
        break;
    case SR_MEMBER_ADOPTED:
        on_adopted(volume, request);
        break;
    case SR_MEMBER_YIELD:
        on_yield(volume, request);
        break;
    default:
        on_move(volume, request);
        break;
    }
}
