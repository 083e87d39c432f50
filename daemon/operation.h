/* operation.h - what is being done to a volume, shared by the files of the catalogue (catalog.c, accept.c,
 * deletion.c, removal.c, reconcile.c).
 *
 * A volume has at most one operation.  It hangs off the volume, frees itself when it is over, and can be asked to
 * give way to a removal: it then finishes or undoes what is under way and calls sr_removal_start itself.
 */
#ifndef SR_OPERATION_H
#define SR_OPERATION_H

#include "site.h"

enum sr_operation_kind { SR_OP_CREATE, SR_OP_ACCEPT, SR_OP_DELETE, SR_OP_REMOVE, SR_OP_REPLACE };

struct sr_operation {
    enum sr_operation_kind kind;
    struct sr_volume *volume;
    /* NULL: cannot give way now (a decision is on its way); the removal is then refused with SR_E_BUSY. */
    void (*give_way)(struct sr_operation *operation, sr_removed_fn fn, void *arg);
};

/* The message to the other site about this volume, without a number. */
void sr_operation_rpc(const struct sr_volume *volume, enum sr_volume_verb verb, struct sr_volume_rpc *rpc);

/* Both sites now have it LIVE: a collection with a started core. */
enum sr_error sr_operation_bring_up(struct sr_volume *volume, const struct sr_record *record);

/* Asks the other site to finish the creation that is decided here; with its answer the collection is linked up. */
typedef void (*sr_confirmed_fn)(void *arg, enum sr_error error, const char *text);
void sr_operation_commit_at_peer(struct sr_volume *volume, sr_confirmed_fn fn, void *arg);

/* Tells the other site to delete its half of a tombstone. */
void sr_removal_tell_peer(struct sr_volume *volume);

/* accept.c, removal.c: the other site's requests. */
void sr_accept_prepare(struct sr_site *site, const struct sr_volume_rpc *request);
void sr_accept_commit(struct sr_site *site, const struct sr_volume_rpc *request);
void sr_accept_abort(struct sr_site *site, const struct sr_volume_rpc *request);
/* What was done to the volume of that name has ended: requests that wait for it are taken up. */
void sr_accept_postponed(struct sr_site *site, const char *name);
void sr_accept_link_down(struct sr_site *site);
void sr_removal_request(struct sr_site *site, const struct sr_volume_rpc *request);
void sr_removal_link_down(struct sr_site *site);

#endif
