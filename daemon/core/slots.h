/* slots.h - numbers for operations that are out, such that an answer finds its owner and an answer that
 * nobody waits for any more finds nobody. */
#ifndef SR_CORE_SLOTS_H
#define SR_CORE_SLOTS_H

#include <stdint.h>

struct sr_slot {
    void *owner; /* NULL: free */
    uint32_t kind;
    uint32_t round;
    uint32_t next_free;
};

struct sr_slots {
    struct sr_slot *slots;
    uint32_t n, cap, free; /* free: index + 1 of the first free one */
};

void sr_slots_free(struct sr_slots *slots);

/* A number (never 0) for the owner. */
uint64_t sr_slots_take(struct sr_slots *slots, uint32_t kind, void *owner);

/* The owner and kind of a number, NULL if it is not out. */
void *sr_slots_find(const struct sr_slots *slots, uint64_t number, uint32_t *kind);

/* The number must be out. */
void sr_slots_give(struct sr_slots *slots, uint64_t number);

#endif
