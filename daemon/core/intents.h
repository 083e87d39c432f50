/* intents.h - the regions of a collection that may have writes in flight.
 *
 * Pure data structure that returns obligations: it does no I/O.  An intent is durable before the first write
 * of its region starts on either copy, and stays while a write is in flight there.  Idle ones ("hot regions")
 * are kept, oldest first out, so that a warm working set costs no commits.
 *
 * In a write-back volume a write that was answered may still be in a cache: its region counts as in flight until a
 * flush that began later has succeeded at both sites.  Such a region is *cached*; flush.c says when it is flushed.
 */
#ifndef SR_CORE_INTENTS_H
#define SR_CORE_INTENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/units.h"

enum sr_intent_state {
    SR_INTENT_SETTING, /* the commit `commit` makes it durable */
    SR_INTENT_DURABLE,
    SR_INTENT_COOLING /* the commit `commit` removes it */
};

struct sr_intent {
    TAILQ_ENTRY(sr_intent) idle; /* in a list of idle ones while refs == 0 and state is not COOLING */
    TAILQ_ENTRY(sr_intent) all;
    struct sr_intent *next_in_bucket;
    uint32_t volume, region;
    enum sr_intent_state state;
    uint32_t refs; /* pieces in flight */
    uint64_t commit;
    uint64_t idle_since_us;
    bool is_cached;      /* blocks of it may be in a cache only, at either site: those of `cached` */
    uint64_t last_flush; /* of its volume, that had begun when the last reference was given back */
    bool is_doubtful;    /* the peer restarted: it may have lost those of `doubtful` */
    uint8_t cached[SR_REGION_MAP_BYTES], doubtful[SR_REGION_MAP_BYTES];
};

TAILQ_HEAD(sr_intent_list, sr_intent);

struct sr_intents {
    struct sr_intent_list idle; /* longest idle first; none is cached */
    struct sr_intent_list
        cached; /* idle, but must not cool before a flush; in the order of last_flush of each volume */
    struct sr_intent_list all;
    uint32_t n, n_idle, n_cached, n_cooling;
    uint32_t n_buckets; /* power of two */
    struct sr_intent **buckets;
};

bool sr_intents_init(struct sr_intents *intents);
void sr_intents_free(struct sr_intents *intents);
void sr_intents_clear(struct sr_intents *intents); /* no refs may be left */

struct sr_intent *sr_intents_find(const struct sr_intents *intents, uint32_t volume, uint32_t region);

/* How many of the regions first..last have no entry yet. */
uint32_t sr_intents_missing(const struct sr_intents *intents, uint32_t volume, uint32_t first, uint32_t last);

/* One reference on the region; makes the entry (SETTING, commit 0) if there is none.  An entry that is not
 * DURABLE and whose commit was set by none of this step needs one: the caller looks at state and commit. */
struct sr_intent *sr_intents_take(struct sr_intents *intents, uint32_t volume, uint32_t region);

/* Gives one reference back; `flush` is the last one of the volume that has begun. */
void sr_intents_give(struct sr_intents *intents, struct sr_intent *intent, uint64_t now_us, uint64_t flush);

/* A write to the blocks [first, end) of a region begins that is not stable when it ends; it holds a reference. */
void sr_intents_write_cached(struct sr_intent *intent, uint32_t first, uint32_t end);

/* Everything in it is stable, or is taken care of otherwise. */
void sr_intents_flushed(struct sr_intents *intents, struct sr_intent *intent);

/* The longest idle entry that is durable and not cached, or NULL. */
struct sr_intent *sr_intents_coldest(struct sr_intents *intents);

/* The entry leaves the idle list: `commit` removes it. */
void sr_intents_cool(struct sr_intents *intents, struct sr_intent *intent, uint64_t commit);

void sr_intents_remove(struct sr_intents *intents, struct sr_intent *intent);

#endif
