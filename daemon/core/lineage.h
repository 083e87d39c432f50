/* lineage.h - the durable record of a collection at a site, and the handshake's decision.
 *
 * Pure functions.  The table is the one under "Lineage" in docs/ARCHITECTURE.md; its executable model has the
 * same names.  Both sites compute the decision from the same two records and come to mirrored answers.
 */
#ifndef SR_CORE_LINEAGE_H
#define SR_CORE_LINEAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/uuid.h"

#define SR_ANCESTORS_MAX 64

enum sr_role { SR_ROLE_ALTERNATE = 0, SR_ROLE_ACTIVE = 1 };

enum sr_made_by { SR_MADE_CREATED = 0, SR_MADE_ALONE = 1, SR_MADE_FAILOVER = 2, SR_MADE_FORCED = 3 };

enum sr_base_kind {
    SR_BASE_NONE = 0,   /* in sync: the map holds intents only and counts from gen */
    SR_BASE_KNOWN = 1,  /* the map counts from `base`; equal to gen: a resync is under way */
    SR_BASE_UNKNOWN = 2 /* equals nothing: everything differs */
};

/* Durable, per collection and site (ONDISK.md). */
struct sr_record {
    enum sr_role role;
    struct sr_uuid gen; /* none: this copy was replaced or never filled, it holds nothing */
    enum sr_made_by made_by;
    enum sr_base_kind base_kind;
    struct sr_uuid base; /* valid with SR_BASE_KNOWN, else none */
    uint32_t n_ancestors;
    struct sr_uuid ancestors[SR_ANCESTORS_MAX]; /* newest first */
    bool consistent;
    bool failed; /* some volume's replica had an error and was not replaced */
    bool completing;
    bool handover;
    bool discard;                              /* my diverged writes were given up ... */
    struct sr_uuid discard_mine, discard_peer; /* ... while these were the two gens */
    bool paused;
    uint64_t pause_counter;
    struct sr_uuid failed_volume; /* with failed: the first one that did; none: not known.  For people, as what follows: */
    /* No decision rests on them, clocks may be wrong. */
    uint64_t gen_wall_ms;    /* when `gen` was made; 0: not known */
    uint64_t synced_wall_ms; /* the last time this site knew that both copies held everything; 0: never */
};

/* What a HELLO carries: the record and whether the map is empty (no out-of-sync block, no write in flight). */
struct sr_greeting {
    struct sr_record record;
    bool map_empty;
    uint64_t dirty_blocks; /* in the map, for people */
    /* What a site holds in its caches is lost at most when it starts anew.  None: it has no such writes. */
    struct sr_uuid boot;
    uint64_t flushes; /* of the other site's FLUSHes, completed since then */
};

enum sr_decision {
    SR_DECIDE_CONFLICT, /* the copies diverged, or nothing says which is newer: nothing is copied */
    SR_DECIDE_WAIT,     /* the leader is known, but nothing says it may become active: a failover will */
    SR_DECIDE_LEAD,     /* I lead the (possibly empty) resync, and am active */
    SR_DECIDE_TAKE,     /* I lead, and become active first */
    SR_DECIDE_FOLLOW    /* the peer leads */
};

const char *sr_decision_name(enum sr_decision decision);

/* The decision of the site whose greeting is `me`. */
enum sr_decision sr_lineage_decide(const struct sr_greeting *me, const struct sr_greeting *peer);

/* Why a decision is CONFLICT or WAIT, as a short phrase for status and log. */
const char *sr_lineage_explain(const struct sr_greeting *me, const struct sr_greeting *peer);

/* As the leader: do my map and the peer's together cover every difference?  False: everything must be
 * taken for different. */
bool sr_lineage_maps_suffice(const struct sr_record *me, const struct sr_record *peer);

/* May a site with this record serve before any handshake?  Only if its peer cannot have been promoted
 * unforced. */
bool sr_lineage_serves_at_start(const struct sr_record *me);

/* Before the first acknowledgement of a write that the peer does not hold: true if the record must change
 * first (base none or equal to gen), and then does it: ancestors += gen, base = gen, gen = fresh. */
bool sr_lineage_must_go_alone(const struct sr_record *me);
void sr_lineage_go_alone(struct sr_record *me, const struct sr_uuid *fresh);

/* Failover: base = gen (if none or equal to gen), ancestors += gen, gen = fresh, active, no handover, no discard.
 * `forced` (an inconsistent copy): base unknown, no ancestors, consistent; the caller marks every block. */
void sr_lineage_take_over(struct sr_record *me, const struct sr_uuid *fresh, bool forced);

/* failed replica replaced: no gen, alternate, no base, no ancestors, nothing held */
void sr_lineage_replace(struct sr_record *me);

/* The higher counter wins, on a tie paused wins.  Returns true if `me` changed. */
bool sr_lineage_merge_pause(struct sr_record *me, const struct sr_record *peer);

/* False if a record from a peer or from disk breaks an invariant (unknown enum, too many ancestors, base
 * without kind ...); `why` then names the field. */
bool sr_record_valid(const struct sr_record *record, const char **why);

#endif
