/* operation.c - what the operations on volumes have in common: commits of the catalogue, bringing a volume up, and
 * the half of a creation that may have to be told the other site again.
 *
 * While a commit of the catalogue is on its way to the disk no catalogue is sent, so that what a catalogue says is
 * durable. A crash is harmless: the record that was decided is found at the next start, and the other site is told at
 * the next link.
 */
#include "operation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct catalog_commit {
    struct sr_site *site;
    sr_meta_done_fn done;
    void *arg;
};

static void committed(void *arg, uint64_t tag, enum sr_error error)
{
    struct catalog_commit commit = *(struct catalog_commit *)arg;

    free(arg);
    commit.done(commit.arg, tag, error);
    commit.site->decisions--;
    if (commit.site->catalog_wanted)
        sr_reconcile_send(commit.site);
}

void sr_catalog_commit(struct sr_site *site, const struct sr_meta_change *change, sr_meta_done_fn done, void *arg)
{
    struct catalog_commit *commit = calloc(1, sizeof(*commit));

    if (!commit) {
        sr_driver_halt(site, "out of memory");
        return;
    }
    *commit = (struct catalog_commit){site, done, arg};
    site->decisions++;
    sr_meta_commit_change(site->meta, change, committed, commit, 0);
}

void sr_operation_rpc(const struct sr_volume *volume, enum sr_volume_verb verb, struct sr_volume_rpc *rpc)
{
    memset(rpc, 0, sizeof(*rpc));
    rpc->verb = verb;
    rpc->uuid = volume->meta.uuid;
    rpc->collection = volume->meta.collection;
    memcpy(rpc->name, volume->meta.name, sizeof(rpc->name));
    rpc->size_bytes = volume->meta.size_bytes;
    rpc->imported = volume->meta.imported;
    rpc->write_back = volume->meta.write_back;
}

enum sr_error sr_operation_bring_up(struct sr_volume *volume, const struct sr_record *record)
{
    struct sr_site *site = volume->site;
    struct sr_collection *collection = sr_table_add_collection(site, &volume->meta.collection, volume->meta.name);

    if (!collection || !sr_table_add_member(collection, volume)) {
        sr_driver_halt(site, "out of memory");
        return SR_E_NO_MEMORY;
    }
    collection->loaded = *record;
    collection->continues = true; /* nobody can have been made active elsewhere: it was made only now */
    enum sr_error error = sr_driver_start(collection, 0);
    if (error != SR_OK)
        sr_log(SR_LOG_ERROR, "volume %s: cannot be used here: %s", volume->meta.name, collection->fault);
    sr_driver_tune(site);
    sr_control_emit(site->control, SR_LOG_NOTICE, "volume", volume->meta.name, sr_driver_wall_ms(), "created");
    return error;
}

/* ---- the second half, which the other site may have to be told again ------------------------------------------ */

struct confirmation {
    struct sr_site *site;
    struct sr_uuid volume;
    sr_confirmed_fn fn;
    void *arg;
};

static void confirmed(void *arg, enum sr_error error, const struct sr_volume_rpc *reply)
{
    struct confirmation confirmation = *(struct confirmation *)arg;
    struct sr_site *site = confirmation.site;
    struct sr_volume *volume = sr_table_volume(site, &confirmation.volume);

    free(arg);
    if (volume && volume->collection && error == SR_OK) {
        volume->peer_has = true;
        sr_driver_link(volume->collection, true); /* the peer's core was told just behind its answer */
    }
    if (error != SR_OK && reply)
        sr_log(SR_LOG_ERROR, "volume %s: site %s cannot finish its creation: %s", reply->name,
               site->config->peer_name, reply->text[0] ? reply->text : sr_error_text(error));
    if (confirmation.fn)
        confirmation.fn(confirmation.arg, error, reply ? reply->text : "");
}

void sr_operation_commit_at_peer(struct sr_volume *volume, sr_confirmed_fn fn, void *arg)
{
    struct sr_site *site = volume->site;
    struct confirmation *confirmation = calloc(1, sizeof(*confirmation));
    struct sr_core_status status;
    struct sr_volume_rpc rpc;

    if (!confirmation || !volume->collection) {
        free(confirmation);
        if (fn)
            fn(arg, SR_E_NO_MEMORY, "out of memory");
        return;
    }
    *confirmation = (struct confirmation){site, volume->meta.uuid, fn, arg};
    sr_operation_rpc(volume, SR_VOLUME_COMMIT_CREATE, &rpc);
    sr_driver_status(volume->collection, &status);
    bool fresh = status.record.made_by == SR_MADE_CREATED && status.record.base_kind == SR_BASE_NONE;
    if (fresh && !volume->meta.imported)
        rpc.generation = status.record.gen; /* both copies are all zeroes; else the peer's holds nothing */
    rpc.active = status.record.role != SR_ROLE_ACTIVE;
    sr_rpc_call(site, &rpc, confirmed, confirmation);
}

/* ---- what the other site says ------------------------------------------------------------------------------------
 */

void sr_catalog_request(struct sr_site *site, const struct sr_volume_rpc *request)
{
    if (site->stopping) {
        sr_rpc_reply(site, request, SR_E_SHUTDOWN, "the daemon is stopping");
        return;
    }
    switch (request->verb) {
    case SR_VOLUME_PREPARE_CREATE:
        sr_accept_prepare(site, request);
        break;
    case SR_VOLUME_COMMIT_CREATE:
        sr_accept_commit(site, request);
        break;
    case SR_VOLUME_ABORT_CREATE:
        sr_accept_abort(site, request);
        break;
    case SR_COLLECTION_SWITCHOVER:
    case SR_COLLECTION_DISCARD:
        sr_roles_request(site, request);
        break;
    case SR_MEMBER_PREPARE:
    case SR_MEMBER_COMMIT:
    case SR_MEMBER_ABORT:
    case SR_MEMBER_ADOPTED:
    case SR_MEMBER_MOVE:
    case SR_MEMBER_YIELD:
        sr_members_request(site, request);
        break;
    case SR_VOLUME_DELETE:
    case SR_VOLUME_CHECK_DELETE:
        sr_removal_request(site, request);
        break;
    }
}

void sr_catalog_link_down(struct sr_site *site)
{
    sr_accept_link_down(site);
    sr_removal_link_down(site); /* questions were answered with "unreachable" already: creations undo themselves */
}
