/* slots.c - see slots.h.  A number is (round << 32 | index + 1); the round changes each time a slot is given back. */
#include "core/slots.h"

#include <stdlib.h>

#include "base/assert.h"

void sr_slots_free(struct sr_slots *slots)
{
    free(slots->slots);
    *slots = (struct sr_slots){0};
}

uint64_t sr_slots_take(struct sr_slots *slots, uint32_t kind, void *owner)
{
    SR_ASSERT(owner != NULL);
    if (!slots->free) {
        if (slots->n == slots->cap) {
            uint32_t cap = slots->cap ? slots->cap * 2 : 16;
            struct sr_slot *grown = realloc(slots->slots, cap * sizeof *grown);
            SR_ASSERT(grown != NULL);
            slots->slots = grown;
            slots->cap = cap;
        }
        slots->slots[slots->n] = (struct sr_slot){0};
        slots->free = ++slots->n;
    }
    uint32_t index = slots->free - 1;
    struct sr_slot *slot = &slots->slots[index];
    slots->free = slot->next_free;
    slot->owner = owner;
    slot->kind = kind;
    return (uint64_t)slot->round << 32 | (index + 1);
}

void *sr_slots_find(const struct sr_slots *slots, uint64_t number, uint32_t *kind)
{
    uint32_t index = (uint32_t)number - 1;
    if (index >= slots->n || !slots->slots[index].owner || slots->slots[index].round != (uint32_t)(number >> 32))
        return NULL;
    *kind = slots->slots[index].kind;
    return slots->slots[index].owner;
}

void sr_slots_give(struct sr_slots *slots, uint64_t number)
{
    uint32_t kind, index = (uint32_t)number - 1;
    SR_ASSERT(sr_slots_find(slots, number, &kind) != NULL);
    slots->slots[index].owner = NULL;
    slots->slots[index].round++;
    slots->slots[index].next_free = slots->free;
    slots->free = index + 1;
}
