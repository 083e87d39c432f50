/* plan.h - what a verb that moves the active role would do now, and what it may cost; nothing is changed. */
#ifndef SR_PLAN_H
#define SR_PLAN_H

#include "site.h"

enum sr_plan_verb { SR_PLAN_SWITCHOVER, SR_PLAN_FAILOVER, SR_PLAN_RESOLVE };

/* Answers the call from what the core knows; the caller has sent a probe and waited for its end.  to_here: this site
 * is to be active (switchover, failover) or kept (resolve). */
void sr_plan_reply(const struct sr_collection *collection, struct sr_control_call *call, enum sr_plan_verb verb,
                   bool to_here, bool force);

#endif
