/* planted.h - bugs that the simulator plants to prove that its checkers see them.
 *
 * Only a build with SR_PLANTED_BUGS (tests/sim) contains them; in the product SR_BUG() is the constant 0.
 */
#ifndef SR_CORE_PLANTED_H
#define SR_CORE_PLANTED_H

#define SR_PLANTED(X)                                                                                                \
    X(NONE)                                                                                                          \
    X(ACK_BEFORE_PEER)             /* a write is answered when the local copy alone is durable */                    \
    X(ACK_BEFORE_LOCAL)            /* ... when the peer's copy alone is durable */                                   \
    X(WRITE_BEFORE_INTENT)         /* a write starts before its regions' intents are durable */                      \
    X(ALONE_BEFORE_COMMIT)         /* alone: acknowledged before the record says so durably */                       \
    X(ALONE_KEEPS_GENERATION)      /* going alone makes no new generation */                                         \
    X(ALONE_KEEPS_SESSION)         /* going alone does not end the session */                                        \
    X(BIT_CLEARED_WHEN_SENT)       /* ... not when the peer confirmed it */                                          \
    X(COPY_WITHOUT_LOCK)           /* a host's write can overtake the copy of its block */                           \
    X(STARTED_BEFORE_COMMIT)       /* the follower says STARTED before it is durable */                              \
    X(ENDED_SESSION_HEARD)         /* messages of an ended session are taken */                                      \
    X(SUSPECT_READABLE)            /* hosts read suspect blocks at once */                                           \
    X(HELD_WRITES_NOT_RESENT)      /* after a blip the peer never gets the held writes */                            \
    X(OLD_CONFIRMATIONS_KEPT)      /* ... or what it confirmed in an earlier session counts */                       \
    X(COMPLETE_WITH_COPIES_LEFT)   /* COMPLETE while the last copies are under way */                                \
    X(COOLED_IN_FLIGHT)            /* an intent is cleared under a write in flight */                                \
    X(NO_SPACE_LEFT_DIFFERENT)     /* ENOSPC at the active: the peer keeps the new data */                           \
    X(FAILED_COPY_CONSISTENT)      /* a disk error does not make the copy inconsistent */                            \
    X(TRACKING_MISSED)             /* alone: the second block of a write is not tracked */                           \
    X(RESYNC_WRITES_NOT_MIRRORED)  /* while resyncing, writes to clean blocks stay local */                          \
    X(PAUSE_FORGOTTEN)             /* the pause of the peer is not adopted */                                        \
    X(START_IGNORES_COMPLETING)    /* a site serves at start although its peer may be complete */                    \
    X(PEER_MAP_IGNORED)            /* the leader does not merge the follower's map */                                \
    X(ADMITTED_WHILE_HANDING_OVER) /* requests begin while the role moves */                                         \
    X(GIVEN_WITH_WRITES_LEFT)      /* the role is given away under writes in flight */                               \
    X(ROLE_GIVEN_LATE)             /* TAKE is sent before the record says that it was given */                       \
    X(HANDOVER_NOT_RECORDED)       /* ... or the record never says so */                                             \
    X(TAKEN_BEFORE_COMMIT)         /* the new active site serves before its record is durable */                     \
    X(FORWARDS_UNFENCED)           /* hosts are let in before the forwarded requests have come */                    \
    X(FAILOVER_BESIDE_ACTIVE)      /* a failover although the active peer answers */                                 \
    X(FAILOVER_WHILE_HANDED_OVER)  /* ... or while the role is on its way, with the link up */                       \
    X(FORCED_KEEPS_LINEAGE)        /* an incomplete copy that was forced counts as a descendant */                   \
    X(OLD_DISCARD_KEPT)            /* a discard of another conflict counts */                                        \
    X(BASE_IS_DESCENT)             /* base taken for descent */                                                      \
    X(CONFLICT_BOTH_SERVE)         /* in a conflict both go on serving */                                            \
    X(FETCHED_UNCHECKED)           /* an unreadable block is read from a peer that lacks it */                       \
    X(MEMBER_LEFT_BEHIND)          /* when a collection goes alone, only its first volume does */                    \
    X(FORWARDS_UNBOUNDED)          /* a forwarded request waits for a silent peer for ever */                        \
    X(FLUSH_HERE_ONLY)             /* write-back: FLUSH is answered when this site's disk has flushed */             \
    X(FLUSH_THERE_ONLY)            /* ... when the peer's has */                                                     \
    X(COOLED_BEFORE_FLUSH)         /* ... a region cools although its writes are in caches */                        \
    X(FLUSH_COVERS_LATER_WRITES)   /* ... a flush counts for what was written after it had begun */                  \
    X(PEER_RESTART_UNNOTICED)      /* ... the peer restarted, what it had in its cache is not out of sync */         \
    X(FLUSH_BEFORE_DOUBT_IS_OVER)  /* ... FLUSH is answered while the peer lacks what its restart lost */            \
    X(GIVEN_WITHOUT_FLUSH)         /* ... the role is given away before both sites have flushed */                   \
    X(FUA_CACHED)                  /* ... FUA is answered when both sites have it in a cache */                      \
    X(FUA_CACHED_THERE)            /* ... when the peer has */                                                       \
    X(ALONE_FORGETS_CACHED)        /* ... alone: what is in the peer's cache only is not tracked */                  \
    X(CACHED_WHEN_PROMOTED)        /* ... a follower does not flush when its session ends */                         \
    X(SYNC_FORGETS_CACHED)         /* ... in sync: the intents of what is in caches are dropped */

enum sr_planted {
#define SR_PLANTED_ENUM(name) SR_BUG_##name,
    SR_PLANTED(SR_PLANTED_ENUM)
#undef SR_PLANTED_ENUM
};

#ifdef SR_PLANTED_BUGS
extern enum sr_planted sr_planted_bug;
#define SR_BUG(name) (sr_planted_bug == SR_BUG_##name)
#else
#define SR_BUG(name) 0
#endif

#endif
