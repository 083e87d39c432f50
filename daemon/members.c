/* members.c - volumes move between collections, one at a time, without their hosts seeing more than a pause.
 *
 * Everything is a move of one volume: `add` to a collection that exists, `create` and `remove` to a new one, which
 * begins with a copy of the lineage that the volume had.  A collection that is left empty vanishes.  A move needs
 * both collections in sync, connected and active at the same site, so that the moved volume's copies are equal then.
 *
 *   active site (coordinator)                                  other site
 *   ASK       MEMBER_PREPARE                                ->  `pending` in the volume's record, durable
 *   QUIET     hosts' requests are held back; both cores
 *             finish what is under way and end
 *   DECIDE    one commit: the volume's collection, the
 *             new collection's record, an empty one's end
 *   (go on)   new cores serve; requests go on
 *   TELL      MEMBER_COMMIT                                 ->  cores end; the same commit; new cores
 *             links up                                      <-  done
 *
 * Invariants
 *   M1  Before DECIDE anything that goes wrong leaves all as it was: the old cores go on, or others with their records
 *       begin, and the other site drops what is pending (MEMBER_ABORT, or at the next contact, when it sees the volume
 *       where it was).
 *   M2  After DECIDE the other site follows: by MEMBER_COMMIT, or at the next contact, when it sees the volume where its
 *       pending entry says (sr_members_adopt).  Only if it was made active in between the decision is taken back here
 *       (sr_members_yield).  Cores are linked up only when both sites have the same members.
 *   M3  A new core gets a higher session floor than any before it, so nothing of an old core's session is taken for its.
 *   M4  A core ends only when it has answered all its requests and all that it committed is durable.
 *
 * A crash at any line is harmless: the volume's record says where it is, and `pending` where it may have gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "member_rules.h"
#include "members.h"

#define SETTLE_LOOK_MS 3u

struct sr_move {
    struct sr_site *site;
    struct sr_uuid volume, from, to;
    char volume_name[SR_NAME_BYTES], to_name[SR_NAME_BYTES];
    bool to_is_new, leaves_empty;
    bool coordinates; /* this site is active, and decides */
    bool yields;      /* it had decided, and takes that back (member_rules.h); else it follows */
    struct sr_uuid counts_from;
    bool quiet;       /* hosts' requests are held back: the cores end, or have ended */
    bool decided;
    uint64_t link;           /* the connection on which the other site was asked */
    bool compare_again;      /* the sites are to meet anew, since only then lists are settled */
    struct sr_record left, joined; /* the records of both, when their cores end; joined: if it exists */
    struct sr_record record;       /* ... and that of the one that it joins, afterwards */
    uint64_t floor;
    uint32_t cores_left;
    uv_timer_t settling; /* until both are in sync again, so that another move may follow */
    uint64_t settle_until_us;
    enum sr_error error; /* the first one */
    char text[SR_SITE_TEXT];
    sr_moved_fn fn;
    void *arg;
};

/* ---- parts of a move --------------------------------------------------------------------------------------------
 */

static struct sr_volume *volume_of(const struct sr_move *move)
{
    return sr_table_volume(move->site, &move->volume);
}

static void failed(struct sr_move *move, enum sr_error error, const char *text)
{
    if (move->error != SR_OK)
        return;
    move->error = error;
    snprintf(move->text, sizeof(move->text), "%s", text);
}

/* The collections whose members change: the one that is left, and the one that is joined if it exists. */
static uint32_t concerned(const struct sr_move *move, struct sr_collection *list[2])
{
    uint32_t n = 0;

    list[0] = sr_table_collection(move->site, &move->from);
    n += list[0] != NULL;
    list[n] = sr_table_collection(move->site, &move->to);
    return n + (list[n] != NULL);
}

static void gate(struct sr_move *move, bool on)
{
    struct sr_collection *list[2];
    uint32_t n = concerned(move, list);

    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = 0; i < list[k]->n_volumes; i++)
            sr_hosts_gate(list[k]->volumes[i], on);
}

static void rpc_for(const struct sr_move *move, enum sr_volume_verb verb, struct sr_volume_rpc *rpc)
{
    memset(rpc, 0, sizeof(*rpc));
    rpc->verb = verb;
    rpc->uuid = move->volume;
    rpc->collection = move->to;
    rpc->active = move->to_is_new;
    rpc->generation = move->from; /* the collection that it leaves */
    memcpy(rpc->name, move->to_name, sizeof(rpc->name));
}

static void end(struct sr_move *move)
{
    struct sr_move ended = *move;

    ended.site->move = NULL;
    free(move);
    if (ended.site->link_is_up && (ended.compare_again || ended.link != ended.site->link_number))
        /* it came up while there were no cores */
        sr_link_events_fault(ended.site,
                             "members of a collection changed: the sites are to compare their lists again");
    sr_control_state_changed(ended.site->control);
    if (ended.fn)
        ended.fn(ended.arg, ended.error, ended.text);
}

static void start_core(struct sr_collection *collection, const struct sr_move *move)
{
    collection->continues = collection->serving;
    if (collection->session_floor < move->floor)
        collection->session_floor = move->floor; /* M3 */
    if (sr_driver_start(collection, SR_LOCK_WAIT_MS / 10) != SR_OK)
        sr_log(SR_LOG_ERROR, "%s cannot be used here: %s", collection->name, collection->fault);
}

/* The tables follow what is durable; then cores with the members of now. */
static void retable(struct sr_move *move)
{
    struct sr_site *site = move->site;
    struct sr_volume *volume = volume_of(move);
    struct sr_collection *from = volume->collection, *to = sr_table_collection(site, &move->to);

    sr_table_drop_member(volume);
    volume->meta.collection = move->to;
    memset(&volume->meta.pending_collection, 0, sizeof(volume->meta.pending_collection));
    volume->meta.pending_name[0] = '\0';
    if (!to) {
        to = sr_table_add_collection(site, &move->to, move->to_name);
        if (to) {
            to->serving = from->serving;
            to->steady_until_us = from->steady_until_us;
            to->suspended = true;
        }
    }
    if (!to || !sr_table_add_member(to, volume)) {
        sr_driver_halt(site, "out of memory");
        return;
    }
    to->loaded = move->record;
    if (from->n_volumes == 0)
        sr_table_drop_collection(from);
    else
        start_core(from, move);
    start_core(to, move);
    sr_driver_tune(site); /* hot regions are shared out */
    move->quiet = false;
    sr_hosts_gate(volume, false);
    gate(move, false);
    sr_log(SR_LOG_NOTICE, "volume %s: member of collection %s now", volume->meta.name, to->name);
    sr_control_emit(site->control, SR_LOG_NOTICE, "collection", to->name, sr_driver_wall_ms(), "volume %s joined",
                    volume->meta.name);
}

static void gone_on(void *arg, struct sr_collection *collection, enum sr_error error, const char *text)
{
    (void)arg;
    (void)collection;
    (void)error;
    (void)text;
}

static void as_before(struct sr_move *move)
{
    struct sr_collection *list[2];
    uint32_t n = concerned(move, list);

    for (uint32_t k = 0; k < n; k++) {
        if (!list[k]->core && list[k]->suspended) {
            start_core(list[k], move);
        } else if (list[k]->core && !move->site->stopping) { /* perhaps with requests that are not answered yet (M4) */
            sr_driver_link(list[k], false);
            sr_driver_admin(list[k], SR_ADMIN_GO_ON, false, gone_on, NULL);
        }
    }
    move->quiet = false;
    gate(move, false);
}

/* ---- the end of the old cores, and the decision
 * --------------------------------------------------------------------- */

static void link_both(struct sr_move *move)
{
    struct sr_collection *list[2];
    uint32_t n = concerned(move, list);

    for (uint32_t k = 0; k < n; k++)
        sr_driver_link(list[k], true);
}

static void settled(uv_handle_t *handle)
{
    end(handle->data);
}

static void look(uv_timer_t *timer)
{
    struct sr_move *move = timer->data;
    struct sr_collection *list[2];
    struct sr_core_status status;
    uint32_t n = concerned(move, list), in_sync = 0;

    for (uint32_t k = 0; k < n; k++) {
        sr_driver_status(list[k], &status);
        in_sync +=
            status.sync == SR_SYNC_IN_SYNC && status.dirty_blocks == 0 && strcmp(status.mode, "mirroring") == 0;
    }
    if (in_sync == n || !move->site->link_is_up || move->site->stopping ||
        sr_driver_now_us() >= move->settle_until_us)
        uv_close((uv_handle_t *)timer, settled);
}

static void settle(struct sr_move *move)
{
    move->settle_until_us = sr_driver_now_us() + (uint64_t)move->site->tuning.stall_budget_ms * 1000;
    uv_timer_init(move->site->loop, &move->settling);
    move->settling.data = move;
    uv_timer_start(&move->settling, look, 0, SETTLE_LOOK_MS);
}

static void told(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct sr_move *move = arg;

    if (error == SR_OK) {
        link_both(move);
        settle(move);
        return;
    }
    snprintf(move->text, sizeof(move->text), "site %s follows when it is back%s%s", move->site->config->peer_name,
             reply ? ": " : "", reply ? reply->text : "");
    sr_log(SR_LOG_WARNING, "volume %s: %s", move->volume_name, move->text);
    move->compare_again = reply != NULL; /* it is there, but could not follow just then */
    end(move);
}

static void aborted_there(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct sr_move *move = arg;

    (void)reply;
    if (error == SR_OK && move->site->exchanged)
        link_both(move); /* the cores began anew: both sides' sessions do */
    end(move);
}

static void abandon(struct sr_move *move)
{
    struct sr_volume_rpc rpc;

    as_before(move); /* M1 */
    if (!move->coordinates) {
        end(move);
        return;
    }
    rpc_for(move, SR_MEMBER_ABORT, &rpc);
    sr_rpc_call(move->site, &rpc, aborted_there, move);
}

static void decided(void *arg, uint64_t tag, enum sr_error error)
{
    struct sr_move *move = arg;
    struct sr_volume_rpc rpc;

    (void)tag;
    if (error != SR_OK) {
        sr_driver_halt(move->site, sr_meta_failure(move->site->meta));
        return;
    }
    if (move->site->halted)
        return; /* the daemon has stopped meanwhile: the next start goes on from here */
    move->decided = true;
    retable(move);
    if (move->site->halted)
        return;
    if (!move->coordinates) {
        end(move);
        return;
    }
    rpc_for(move, SR_MEMBER_COMMIT, &rpc);
    sr_rpc_call(move->site, &rpc, told, move); /* M2 */
}

static void decide(struct sr_move *move)
{
    struct sr_volume *volume = volume_of(move);
    struct sr_meta_volume meta = volume->meta;
    struct sr_meta_collection fresh = {.uuid = move->to, .record = move->record};
    struct sr_meta_change change = {.put_volume = &meta};

    meta.collection = move->to;
    memset(&meta.pending_collection, 0, sizeof(meta.pending_collection));
    memset(meta.pending_name, 0, sizeof(meta.pending_name));
    memcpy(fresh.name, move->to_name, sizeof(fresh.name));
    if (!move->coordinates || !sr_table_collection(move->site, &move->to))
        change.put_collection = &fresh;
    if (volume->collection->n_volumes == 1)
        change.drop_collection = &move->from;
    sr_catalog_commit(move->site, &change, decided, move);
}

static void core_ended(struct sr_collection *collection, void *arg)
{
    struct sr_move *move = arg;
    struct sr_site *site = move->site;

    if (move->floor < collection->session_floor)
        move->floor = collection->session_floor;
    if (--move->cores_left > 0)
        return;
    if (move->coordinates && move->error == SR_OK && (!site->exchanged || move->link != site->link_number))
        failed(move, SR_E_UNREACHABLE, "the link to the other site went down");
    if (move->error == SR_OK)
        decide(move);
    else
        abandon(move);
}

/* Whatever its core did is durable: what the record says is what a new core begins with. */
static void look_at(struct sr_move *move, struct sr_collection *collection)
{
    struct sr_core_status status;
    bool leaves = sr_uuid_equal(&collection->uuid, &move->from);

    sr_driver_status(collection, &status);
    collection->loaded = status.record;
    *(leaves ? &move->left : &move->joined) = status.record;
    bool in_sync = status.record.base_kind == SR_BASE_NONE && status.record.consistent &&
                   status.record.role == SR_ROLE_ACTIVE && status.dirty_blocks == 0;
    if (move->coordinates && !in_sync)
        failed(move, SR_E_REFUSED, "a collection went out of sync meanwhile");
    else if (status.requests != 0 || (collection->core && !status.settled)) /* M4 */
        failed(move, SR_E_BUSY, "a collection has work left: try again");
}

/* With what record the volume goes on. */
static void choose_record(struct sr_move *move)
{
    const struct sr_record *joined = sr_table_collection(move->site, &move->to) ? &move->joined : NULL;
    struct sr_uuid fresh;

    sr_uuid_generate(&fresh);
    if (move->coordinates)
        move->record = joined ? *joined : move->left;
    else if (!move->yields && sr_member_may_follow(&move->left, joined))
        sr_member_follow_record(&move->left, joined, &move->record);
    else if (!move->yields)
        failed(move, SR_E_REFUSED, "this site has gone on by itself");
    else if (!sr_member_yield_record(&move->left, joined, &move->counts_from, &fresh, &move->record))
        failed(move, SR_E_REFUSED, "the copies there are not such that the decision could be taken back");
    if (sr_uuid_equal(&move->record.gen, &fresh))
        move->record.gen_wall_ms = sr_driver_wall_ms();
}

static void end_cores(struct sr_move *move)
{
    struct sr_collection *list[2];
    uint32_t n = concerned(move, list);

    move->cores_left = n;
    for (uint32_t k = 0; k < n; k++)
        look_at(move, list[k]);
    if (move->error == SR_OK)
        choose_record(move);
    if (move->error != SR_OK) {
        abandon(move);
        return;
    }
    for (uint32_t k = 0; k < n; k++)
        sr_driver_suspend(list[k], core_ended, move);
}

static void quiet(void *arg, struct sr_collection *collection, enum sr_error error, const char *text)
{
    struct sr_move *move = arg;

    (void)collection;
    if (error != SR_OK)
        failed(move, error, text);
    if (--move->cores_left == 0)
        end_cores(move);
}

static void quieten(struct sr_move *move)
{
    struct sr_collection *list[2];
    uint32_t n = concerned(move, list);

    gate(move, true);
    move->quiet = true;
    move->cores_left = n;
    for (uint32_t k = 0; k < n; k++) {
        sr_members_keep_steady(list[k]);
        if (list[k]->core)
            sr_driver_admin(list[k], SR_ADMIN_STOP, false, quiet, move);
        else
            quiet(move, list[k], SR_OK, ""); /* its copy cannot be used here: the list can change all the same */
    }
}

/* ---- asking the other site
 * -------------------------------------------------------------------------------------------- */

/* While the other site was asked, much may have happened here. */
static bool still_fit(struct sr_move *move)
{
    struct sr_collection *list[2];
    char text[SR_SITE_TEXT];
    uint32_t n = concerned(move, list);

    for (uint32_t k = 0; k < n && move->error == SR_OK; k++) {
        const char *why = sr_members_unfit(list[k], SR_ROLE_ACTIVE);
        snprintf(text, sizeof(text), "%s %s now", list[k]->name, why ? why : "");
        if (why)
            failed(move, SR_E_REFUSED, text);
    }
    return move->error == SR_OK;
}

static void prepared(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct sr_move *move = arg;
    char text[SR_SITE_TEXT];

    if (error == SR_OK && !move->site->stopping && still_fit(move)) {
        quieten(move);
        return;
    }
    if (error == SR_OK) {
        failed(move, SR_E_SHUTDOWN, "this site is stopping");
        abandon(move);
        return;
    }
    snprintf(text, sizeof(text), "site %s: %s", move->site->config->peer_name,
             reply && reply->text[0] ? reply->text : sr_error_text(error));
    failed(move, error, text);
    end(move);
}

static struct sr_move *new_move(struct sr_volume *volume, const struct sr_uuid *to, const char *to_name,
                                bool to_is_new)
{
    struct sr_site *site = volume->site;
    struct sr_move *move = calloc(1, sizeof(*move));

    if (!move)
        return NULL;
    move->site = site;
    move->volume = volume->meta.uuid;
    move->from = volume->collection->uuid;
    move->to = *to;
    memcpy(move->volume_name, volume->meta.name, sizeof(move->volume_name));
    snprintf(move->to_name, sizeof(move->to_name), "%s", to_name);
    move->to_is_new = to_is_new;
    move->link = site->link_number;
    site->move = move;
    return move;
}

void sr_members_coordinate(struct sr_volume *volume, struct sr_collection *to, const char *name, sr_moved_fn fn,
                           void *arg)
{
    struct sr_site *site = volume->site;
    struct sr_uuid fresh;
    char text[SR_SITE_TEXT];
    const char *why = sr_members_unfit(volume->collection, SR_ROLE_ACTIVE);
    const struct sr_collection *guilty = volume->collection;

    if (!why && to) {
        why = sr_members_unfit(to, SR_ROLE_ACTIVE);
        guilty = to;
    }
    if (site->move || why || !site->exchanged) {
        if (site->move || why)
            snprintf(text, sizeof(text), "%s%s%s", site->move ? "members of a collection" : guilty->name,
                     site->move ? " are just being changed: try again" : " ", site->move ? "" : why);
        else
            snprintf(text, sizeof(text), "site %s is not connected", site->config->peer_name);
        fn(arg, site->move ? SR_E_BUSY : why ? SR_E_REFUSED : SR_E_UNREACHABLE, text);
        return;
    }
    sr_uuid_generate(&fresh);
    struct sr_move *move = new_move(volume, to ? &to->uuid : &fresh, to ? to->name : name, !to);
    if (!move) {
        fn(arg, SR_E_NO_MEMORY, "out of memory");
        return;
    }
    move->coordinates = true;
    move->fn = fn;
    move->arg = arg;
    struct sr_volume_rpc rpc;
    rpc_for(move, SR_MEMBER_PREPARE, &rpc);
    sr_rpc_call(site, &rpc, prepared, move);
}

/* ---- following
 * ------------------------------------------------------------------------------------------------------- */

/* counts_from: to yield; NULL: to follow. */
static void go_where_told(struct sr_volume *volume, const struct sr_uuid *to, const char *name,
                          const struct sr_uuid *counts_from, sr_moved_fn fn, void *arg)
{
    struct sr_site *site = volume->site;
    struct sr_collection *joined = sr_table_collection(site, to);
    bool busy = site->move || sr_members_under_operation(volume->collection) || (joined && sr_members_under_operation(joined));
    struct sr_move *move = busy ? NULL : new_move(volume, to, name, !joined);

    if (!move) {
        fn(arg, busy ? SR_E_BUSY : SR_E_NO_MEMORY, busy ? "something else is being done to its collections there" : "");
        return;
    }
    move->yields = counts_from != NULL;
    if (counts_from)
        move->counts_from = *counts_from;
    move->fn = fn;
    move->arg = arg;
    quieten(move);
}

void sr_members_follow(struct sr_volume *volume, sr_moved_fn fn, void *arg)
{
    go_where_told(volume, &volume->meta.pending_collection, volume->meta.pending_name, NULL, fn, arg);
}

void sr_members_yield(struct sr_volume *volume, const struct sr_uuid *to, const char *name,
                      const struct sr_uuid *counts_from, sr_moved_fn fn, void *arg)
{
    go_where_told(volume, to, name, counts_from, fn, arg);
}

static bool concerns(const struct sr_move *move, const struct sr_collection *collection)
{
    return move && collection &&
           (sr_uuid_equal(&collection->uuid, &move->from) || sr_uuid_equal(&collection->uuid, &move->to));
}

bool sr_members_busy(const struct sr_volume *volume)
{
    return concerns(volume->site->move, volume->collection);
}

bool sr_members_changing(const struct sr_collection *collection)
{
    return concerns(collection->site->move, collection) && collection->site->move->quiet;
}
