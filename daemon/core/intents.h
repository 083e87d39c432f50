/* intents.h - the regions of a collection that may have writes in flight.
 *
 * Pure data structure that returns obligations: it does no I/O.  An intent is durable before the first write
 * of its region starts on either copy, and stays while a write is in flight there.  Idle ones ("hot regions")
 * are kept, oldest first out, so that a warm working set costs no commits.
 */
#ifndef SR_CORE_INTENTS_H
#define SR_CORE_INTENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum sr_intent_state {
    SR_INTENT_SETTING, /* the commit `commit` makes it durable */
    SR_INTENT_DURABLE,
    SR_INTENT_COOLING /* the commit `commit` removes it */
};

struct sr_intent {
    TAILQ_ENTRY(sr_intent) idle; /* in the idle list while refs == 0 and state is not COOLING */
    TAILQ_ENTRY(sr_intent) all;
    struct sr_intent *next_in_bucket;
    uint32_t volume, region;
    enum sr_intent_state state;
    uint32_t refs; /* pieces in flight */
    uint64_t commit;
    uint64_t idle_since_us;
};

TAILQ_HEAD(sr_intent_list, sr_intent);

struct sr_intents {
    struct sr_intent_list idle; /* longest idle first */
    struct sr_intent_list all;
    uint32_t n, n_idle;
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

/* Gives one reference back. */
void sr_intents_give(struct sr_intents *intents, struct sr_intent *intent, uint64_t now_us);

/* The longest idle entry that is durable, or NULL. */
struct sr_intent *sr_intents_coldest(struct sr_intents *intents);

/* The entry leaves the idle list: `commit` removes it. */
void sr_intents_cool(struct sr_intents *intents, struct sr_intent *intent, uint64_t commit);

void sr_intents_remove(struct sr_intents *intents, struct sr_intent *intent);

#endif
