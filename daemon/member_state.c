/* member_state.c - whether a collection's members can change now, and what people see of it while they do.
 *
 * Nothing here changes a collection, and nothing is durable.
 */
#include "members.h"

#define STEADY_MS 1000u /* so long a change of members is not shown as anything else */

/* For people nothing has happened, unless it takes long. */
void sr_members_keep_steady(struct sr_collection *collection)
{
    struct sr_site *site = collection->site;
    uint32_t budget_ms = site->tuning.stall_budget_ms;
    uint32_t steady_ms = budget_ms < STEADY_MS ? budget_ms : STEADY_MS;

    collection->steady_until_us = sr_driver_now_us() + (uint64_t)steady_ms * 1000;
    sr_link_events_watch_in(site, steady_ms + 10);
}

bool sr_members_under_operation(const struct sr_collection *collection)
{
    for (uint32_t i = 0; i < collection->n_volumes; i++)
        if (collection->volumes[i]->operation)
            return true;
    return false;
}

/* Why its members cannot change now; NULL: they can. */
const char *sr_members_unfit(const struct sr_collection *collection, enum sr_role role)
{
    struct sr_core_status status;

    if (!collection->core || collection->dead)
        return "cannot be used here";
    if (sr_members_under_operation(collection))
        return "has a volume on which another operation is under way";
    sr_driver_status(collection, &status);
    if (status.record.role != role)
        return role == SR_ROLE_ACTIVE ? "is not active at this site" : "is active at both sites";
    if (status.record.paused)
        return "is paused";
    if (status.sync != SR_SYNC_IN_SYNC || !status.link_up || status.record.base_kind != SR_BASE_NONE)
        return "is not in sync";
    return status.giving || status.taking ? "is being switched over" : NULL;
}
