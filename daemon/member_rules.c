/* member_rules.c - see member_rules.h. */
#include <string.h>

#include "member_rules.h"

/* Nothing was written to this copy that the other site did not send. */
static bool follows(const struct sr_record *record)
{
    return record->role == SR_ROLE_ALTERNATE && record->base_kind == SR_BASE_NONE && !record->handover;
}

bool sr_member_may_follow(const struct sr_record *from, const struct sr_record *to)
{
    return follows(from) && (!to || follows(to));
}

enum sr_settle sr_member_settle(const struct sr_catalog_volume *mine, const struct sr_catalog_volume *theirs,
                                const struct sr_record *from, const struct sr_record *to)
{
    if (sr_uuid_equal(&mine->pending_collection, &theirs->collection))
        return sr_member_may_follow(from, to)        ? SR_SETTLE_ADOPT
               : sr_member_counts_from(from) != NULL ? SR_SETTLE_YIELD
                                                     : SR_SETTLE_DIFFER;
    if (sr_uuid_equal(&theirs->pending_collection, &mine->collection))
        return SR_SETTLE_AWAIT;
    return SR_SETTLE_DIFFER;
}

/* A copy that has failed, or holds nothing, makes the whole collection such a one: it is replaced, or filled, as one.
 */
void sr_member_follow_record(const struct sr_record *from, const struct sr_record *to, struct sr_record *result)
{
    *result = to ? *to : *from;
    if (!to || (from->consistent && to->consistent))
        return;
    bool failed = from->failed || to->failed;
    if (!failed)
        sr_lineage_replace(result);
    result->failed = failed;
    result->failed_volume = from->failed ? from->failed_volume : to->failed_volume;
    result->consistent = false;
}

const struct sr_uuid *sr_member_counts_from(const struct sr_record *record)
{
    bool resyncing = record->base_kind == SR_BASE_KNOWN && sr_uuid_equal(&record->base, &record->gen);

    if (resyncing || record->base_kind == SR_BASE_UNKNOWN || sr_uuid_is_none(&record->gen))
        return NULL;
    return record->base_kind == SR_BASE_KNOWN ? &record->base : &record->gen;
}

/* Complete, and either as it was when the sites were in sync, or gone on from there. */
static bool sound(const struct sr_record *record)
{
    return record->consistent && !record->failed && !record->handover && sr_member_counts_from(record);
}

/* The volume brings its own lineage, said in F's words: `left` may be another collection's, whose generations F's
 * record of this one does not know. */
static void of_its_own(const struct sr_record *left, const struct sr_uuid *counts_from, struct sr_record *result)
{
    bool alone = left->base_kind == SR_BASE_KNOWN;

    *result = *left;
    result->completing = result->discard = false;
    memset(&result->discard_mine, 0, sizeof(result->discard_mine));
    memset(&result->discard_peer, 0, sizeof(result->discard_peer));
    if (sr_uuid_equal(sr_member_counts_from(left), counts_from))
        return;
    memset(result->ancestors, 0, sizeof(result->ancestors));
    result->n_ancestors = alone ? 1 : 0;
    if (alone)
        result->base = result->ancestors[0] = *counts_from;
    else
        result->gen = *counts_from;
}

bool sr_member_yield_record(const struct sr_record *left, const struct sr_record *dest,
                            const struct sr_uuid *counts_from, const struct sr_uuid *fresh, struct sr_record *result)
{
    if (!sound(left) || (dest && !sound(dest)) || sr_uuid_is_none(counts_from))
        return false;
    if (!dest) {
        of_its_own(left, counts_from, result);
        return true;
    }
    if (!sr_uuid_equal(sr_member_counts_from(dest), counts_from) || dest->role != left->role)
        return false;
    *result = *dest;
    if (left->base_kind == SR_BASE_KNOWN && dest->base_kind == SR_BASE_NONE)
        sr_lineage_go_alone(result, fresh); /* with what only this site's copy of the volume holds */
    return true;
}
