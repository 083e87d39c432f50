/* member_rules.h - what a contact makes of two lists of members that differ, and what record a volume that has moved
 * is under then.  Pure functions; member_peer.c and reconcile.c carry out what they say.
 *
 * A volume V is in collection N here and in collection M there.  That can only be because a move from N to M (or from
 * M to N) was decided at one site, L, and not heard of at the other one, F, which has promised it: F has the
 * collection that V is in at L as `pending` (members.c).  While the lists differ no core of N or M is linked up, so
 * what L has acknowledged since it decided is either in F's copies too, or L has gone alone.
 *
 *     F may follow (alternate in both, its maps empty)      F adopts L's list
 *     F may not (made active by a failover meanwhile)       L takes its decision back: it yields to F's list
 *     nobody has promised anything                          the members differ, and nothing is copied
 *
 * Invariant: a record never says more of a volume's copy than is true.  So the table of lineage.h decides what
 * becomes of the data as if the lists had never differed; a list is never a reason to give up a write.
 */
#ifndef SR_MEMBER_RULES_H
#define SR_MEMBER_RULES_H

#include <stdbool.h>

#include "codec/site_msg.h"
#include "core/lineage.h"

enum sr_settle {
    SR_SETTLE_ADOPT, /* this site follows */
    SR_SETTLE_YIELD, /* the other site is asked to take its decision back */
    SR_SETTLE_AWAIT, /* the other site has promised: it does one of these */
    SR_SETTLE_DIFFER /* neither can: people must */
};

/* Of a volume that is LIVE at both sites in different collections; from: the record of its collection here, to: of
 * the one it has there, as this site has it (NULL: not at all). */
enum sr_settle sr_member_settle(const struct sr_catalog_volume *mine, const struct sr_catalog_volume *theirs,
                                const struct sr_record *from, const struct sr_record *to);

/* May this site follow a move from one to the other?  to NULL: a new collection. */
bool sr_member_may_follow(const struct sr_record *from, const struct sr_record *to);

/* The record of the collection that the volume joins, at a site that follows. */
void sr_member_follow_record(const struct sr_record *from, const struct sr_record *to, struct sr_record *result);

/* The generation that both copies of a volume had when they last were the same: what a map counts from.  NULL: that
 * is not known. */
const struct sr_uuid *sr_member_counts_from(const struct sr_record *record);

/* The record of the collection `dest` (NULL: a new one) to which the volume goes back from one with the record
 * `left`.  counts_from: as F says.  fresh: for a generation, if one must be made.  False: it cannot. */
bool sr_member_yield_record(const struct sr_record *left, const struct sr_record *dest,
                            const struct sr_uuid *counts_from, const struct sr_uuid *fresh, struct sr_record *result);

#endif
