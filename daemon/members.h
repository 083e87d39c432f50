/* members.h - a volume moves to another collection: shared by members.c, which does it, member_commands.c, which is
 * asked to by administrators, and member_peer.c, by the other site. */
#ifndef SR_MEMBERS_H
#define SR_MEMBERS_H

#include "site.h"

/* SR_OK: it is there; text may say that the other site has still to follow. */
typedef void (*sr_moved_fn)(void *arg, enum sr_error error, const char *text);

/* To `to`, or (NULL) to a new collection called `name`.  This site is active for both; if members cannot change now
 * fn is called at once, with the reason. */
void sr_members_coordinate(struct sr_volume *volume, struct sr_collection *to, const char *name, sr_moved_fn fn,
                           void *arg);

/* As the other site has: to the volume's pending collection. */
void sr_members_follow(struct sr_volume *volume, sr_moved_fn fn, void *arg);

/* The other site cannot follow: back to the collection that it has the volume in.  counts_from: see member_rules.h. */
void sr_members_yield(struct sr_volume *volume, const struct sr_uuid *to, const char *name,
                      const struct sr_uuid *counts_from, sr_moved_fn fn, void *arg);

/* Why the collection's members cannot change now, as a verb phrase; NULL: they can.  role: what this site must be. */
const char *sr_members_unfit(const struct sr_collection *collection, enum sr_role role);

/* Something else is being done to one of its volumes. */
bool sr_members_under_operation(const struct sr_collection *collection);

#endif
