/* internal.h - the state of a collection's core, shared by the files of core/ and by nobody else.
 *
 * The state machine (mode x stage)
 *
 *   mode of the copy                              stage of the session with the peer
 *     STANDBY      hosts are not served             NONE      no session; a greeting may be due
 *     HOLDING      serves, the peer is away:        HELLO     mine sent, waiting for the peer's
 *                  writes run here, none is         MAP       I lead: waiting for the follower's map
 *                  acknowledged                     START     I lead: the map is being committed
 *     ALONE        serves and acknowledges alone    STARTED   I lead: waiting for STARTED
 *     RESYNCING    serves, leads; the peer lacks    OPENING   I lead: `base = gen` is being committed
 *                  the blocks of the map            JOINING   I follow: end disk work, send the map, wait for START
 *     MIRRORING    serves, leads; in sync           ADOPTING  I follow: the leader's lineage is being committed
 *     HANDING_OVER as MIRRORING, but requests that  OPEN      writes, copies
 *                  did not begin yet queue          PAUSED, CONFLICT, WAIT   greeted; nothing is copied
 *     HANDED_OVER  gave the role away, waits for
 *                  TAKEN; hosts' requests queue
 *     CATCHING_UP  follows; lacks some blocks
 *     FOLLOWING    follows; holds everything
 *
 *   STANDBY -> CATCHING_UP -> FOLLOWING                     by START, COMPLETE
 *   STANDBY/HOLDING/ALONE -> RESYNCING -> MIRRORING         by STARTED, COMPLETED
 *   RESYNCING/MIRRORING/HANDING_OVER -> HOLDING             the session ended
 *   MIRRORING -> HANDING_OVER -> HANDED_OVER -> FOLLOWING   switchover, at the site that was active
 *   HANDING_OVER -> MIRRORING                               ... undone before it was committed
 *   FOLLOWING -> MIRRORING                                  ... at the site that takes the role
 *   HANDED_OVER -> STANDBY                                  the session ended: the next handshake finishes it
 *   STANDBY -> ALONE                                        failover
 *   HOLDING/RESYNCING/MIRRORING -> ALONE                    going alone (stall, pause, refused writes)
 *   CATCHING_UP/FOLLOWING -> STANDBY                        the session ended
 *   any -> STANDBY                                          the replica failed, or the peer leads
 *
 * Invariants (sr_core_check)
 *   C1  RESYNCING, MIRRORING, HANDING_OVER, HANDED_OVER, CATCHING_UP and FOLLOWING have stage OPEN (or OPENING), and
 *       only they do.
 *   C2  serving exactly in HOLDING, ALONE, RESYNCING, MIRRORING, HANDING_OVER, and then role is active and the copy
 *       consistent.
 *   C3  MIRRORING: the map is empty, base none.
 *   C4  A piece in flight holds an exclusive lock and an intent reference on each of its regions.
 *   C5  At most one commit is out; commits are numbered in order.
 *   C6  Nothing is said to the peer, a host or an administrator that rests on a record not yet durable.
 *
 * A crash at any line is harmless: memory is a cache of what commits said, plus bits and locks whose absence
 * after a restart is covered by durable intents.
 */
#ifndef SR_CORE_INTERNAL_H
#define SR_CORE_INTERNAL_H

#include <stdarg.h>
#include <string.h>
#include <sys/queue.h>

#include "base/assert.h"
#include "core/core.h"
#include "core/dirtymap.h"
#include "core/intents.h"
#include "core/planted.h"
#include "core/rangelock.h"
#include "core/slots.h"
#include "core/throttle.h"

enum mode {
    MODE_STANDBY,
    MODE_HOLDING,
    MODE_ALONE,
    MODE_RESYNCING,
    MODE_MIRRORING,
    MODE_HANDING_OVER,
    MODE_HANDED_OVER,
    MODE_CATCHING_UP,
    MODE_FOLLOWING
};

enum stage {
    STAGE_NONE,
    STAGE_HELLO,
    STAGE_MAP,
    STAGE_START,
    STAGE_STARTED,
    STAGE_OPENING,
    STAGE_JOINING,
    STAGE_ADOPTING,
    STAGE_OPEN,
    STAGE_PAUSED,
    STAGE_CONFLICT,
    STAGE_WAIT
};

#define PIECE_MAX_BYTES ((uint64_t)64 * SR_REGION_BYTES)
#define FIX_CHUNK_BYTES ((uint64_t)SR_MIB)
#define INTENTS_MAX     8192u /* regions with an intent at once, hot ones included */
#define BAD_BLOCKS_MAX  4096u /* unreadable blocks of one volume; past it the replica has failed */
#define FOLLOW_OPS_MAX                                                                                               \
    16384u /* operations a leader may have under way at the follower: all hosts' requests (8192), copies */
#define SAVES_PER_COMMIT 1024u /* stale regions brought up to date by one background commit */
#define COPIES_MAX       64u
#define MEMORY_RETRY_US  5000u /* the buffer budget was used up: ask again then */

/* Where a host request (its present piece) stands. */
enum piece_state {
    PIECE_QUEUED,     /* not begun: waits to be admitted */
    PIECE_LOCKING,    /* waits for its range lock */
    PIECE_SUSPECT,    /* READ: waits, without a lock, until its blocks are settled at the peer */
    PIECE_INTENT,     /* waits for room for its intents, or for their commit */
    PIECE_RUNNING,    /* disk and peer at work */
    PIECE_FIX_READ,   /* ENOSPC here: reading what this copy holds now */
    PIECE_FIX_SENT,   /* ... and the peer writes it */
    PIECE_FETCH_LOCK, /* unreadable here: waits for the write lock */
    PIECE_FETCH_READ, /* ... block by block: is it this one? */
    PIECE_FETCHING,   /* ... the peer reads for us */
    PIECE_BAD_COMMIT, /* ... the blocks are being committed as bad */
    PIECE_REWRITING,  /* ... and are rewritten here */
    PIECE_GOOD_COMMIT,
    PIECE_FORWARDED, /* the peer, active now, carries the whole request out */
    PIECE_FLUSHING   /* FLUSH of a write-back volume: waits for flush number `flush` */
};

struct request {
    TAILQ_ENTRY(request) all;
    TAILQ_ENTRY(request) peer_wait; /* in core->peer_wait while `waits_for_peer` */
    TAILQ_ENTRY(request) commit_wait;
    TAILQ_ENTRY(request) ready; /* in core->ready: to be looked at */
    struct sr_host_request host;
    struct volume *volume;
    enum piece_state state;
    uint64_t next_offset;    /* where the piece after this one begins */
    uint64_t offset, length; /* of this piece */
    enum sr_error error;
    struct sr_lock lock;
    bool is_ready, waits_for_commit, waits_for_peer, has_intents;
    bool held;                          /* re-sent to a new session, not yet confirmed there */
    bool replied;                       /* by a planted bug */
    bool refused;                       /* its connection was closed; only the disk I/O is waited for */
    bool begun;                         /* admitted: a switchover waits for its end */
    uint64_t granted_us, local_done_us; /* of its piece: the lock; the disk here */
    uint64_t forwarded;  /* of the other site's host: sessions_ended when it came, plus one; 0: of a host here */
    uint32_t buf_offset; /* where in the buffer its data begin */
    uint64_t wait_commit;
    uint64_t flush;
    uint64_t peer_wait_since_us;
    uint64_t began_us;
    /* this copy */
    uint64_t io; /* 0: none in flight */
    bool local_done;
    enum sr_error local_error;
    /* the peer's */
    uint64_t message; /* slot of the WRITE or FETCH that is out; 0: none */
    bool peer_done;
    /* the correction after ENOSPC, and the repair after a read error, in chunks */
    uint64_t chunk_offset, chunk_length;
    struct sr_buf *chunk;
};

TAILQ_HEAD(request_list, request);

/* Making durable what is in caches: one flush at a time, for all who wait (flush.c). */
struct flush {
    uint64_t begun, done; /* numbers of the last one that began, that succeeded */
    bool running;
    bool again;       /* somebody waits for one that begins later */
    bool here, there; /* this site's part, the peer's part has succeeded */
    uint64_t io;      /* of this site; may be left over from one that was given up */
    uint64_t message; /* FLUSH that is out */
    bool doubt;       /* the map may hold acknowledged blocks that the peer lost when it restarted */
    bool doubt_all;   /* ... which of those in the map is not known any more */
};

struct volume {
    struct sr_core *core;
    uint32_t index;
    struct sr_uuid uuid;
    char *name; /* for messages */
    uint64_t size_bytes, n_blocks;
    bool write_back;
    struct flush flush;
    /* As follower: cached writes that ended, how many of them are stable; of the flush under way at the session's end
     */
    uint64_t applied, stable, securing;
    struct sr_dirtymap map;
    struct sr_rangelock locks;
    uint64_t *bad; /* sorted block numbers */
    uint32_t n_bad;
    uint64_t full_offset, full_length; /* a write there found no space here; 0: none did, or one has succeeded since */
    bool too_bad; /* more unreadable blocks than are listed: the resync leaves the rest of it dirty */
};

/* One run of a resync. */
enum copy_state { COPY_LOCKING, COPY_HASHING, COPY_COMPARING, COPY_READING, COPY_SENT };

struct copy {
    TAILQ_ENTRY(copy) link;
    struct volume *volume;
    enum copy_state state;
    uint64_t first, n; /* blocks */
    struct sr_lock lock;
    bool cancelled; /* the session ended while the disk was at work */
    uint64_t io;
    uint64_t message; /* HASH that is out */
    uint64_t granted_us;
    uint64_t peer_since_us;              /* COMPARING, SENT: the peer has had it since */
    uint32_t n_out;                      /* COPY segments not yet confirmed */
    uint8_t send[SR_RUN_MAX_BLOCKS / 8]; /* blocks to send: all, or those that differ */
    struct sr_buf *buf;
};

TAILQ_HEAD(copy_list, copy);

/* One operation of the leader at this follower. */
struct follow_op {
    TAILQ_ENTRY(follow_op) link;
    struct volume *volume;
    enum sr_peer_msg_type type; /* what asked for it */
    uint64_t session, id;
    uint64_t offset, length;
    uint64_t io;
    struct sr_buf *buf;     /* data, or digests computed here */
    struct sr_buf *digests; /* HASH: the leader's */
    uint32_t digests_offset;
    uint8_t differs[SR_RUN_MAX_BLOCKS / 8];
    bool flushing;
    bool cached;     /* WRITE: not stable when it ends */
    uint64_t covers; /* FLUSH: cached writes that had ended when it began */
};

TAILQ_HEAD(follow_list, follow_op);

struct admin {
    TAILQ_ENTRY(admin) link;
    uint64_t id;
    enum sr_admin_command command;
    uint64_t commit;      /* answered when durable */
    uint64_t deadline_us; /* answered at the latest then */
    bool waits_for_disk;  /* REPLACE, FAILOVER: not begun yet */
    bool needs_peer;      /* also wait until the peer has adopted it */
    bool force;
    uint64_t probe; /* waits for that PROBED until probe_until_us; 0: for none */
    uint64_t probe_until_us;
};

TAILQ_HEAD(admin_list, admin);

enum io_owner {
    IO_REQUEST = 1,
    IO_COPY,
    IO_FOLLOW,
    IO_SECURE, /* a follower's volume: for COMPLETE, and when its session has ended */
    IO_FLUSH,  /* of a volume's struct flush */
    MSG_REQUEST,
    MSG_COPY,
    MSG_FORWARD,
    MSG_FLUSH
};

struct sr_core {
    struct sr_core_tuning tune;
    char *name, *peer_name;
    struct sr_budget *budget;
    uint32_t n_volumes;
    struct volume *volumes;

    /* of the step under way */
    struct sr_actions *out;
    uint64_t now_us, wall_ms;
    struct sr_uuid random;
    bool random_used;

    struct sr_record rec;
    uint64_t rec_commit; /* the commit that makes it durable */

    struct sr_commit *building, *flying; /* C5 */
    uint64_t next_commit, durable;

    enum mode mode;
    enum stage stage;
    bool halted, stopping;
    uint64_t alone_commit; /* the commit of the last going alone */
    bool serve_told;       /* what the last SERVE said */
    bool retired;          /* RETIRE was said, SERVE not again since */
    bool refuse_pending;   /* requests to be closed once the record is durable */

    bool link_up;
    uint64_t session, session_seen; /* highest opened here / seen from the peer, on this link */
    uint64_t sessions_ended;
    bool greet_back; /* the peer greeted: answer when disk work has ended */
    bool hello_sent;
    bool sent_map_empty;
    bool peer_known;
    struct sr_greeting peer, mine; /* of this session */
    struct sr_uuid boot;           /* of this core, fresh at each start; none: no volume is write-back */
    uint64_t flushes_done;         /* FLUSHes of the peer that were answered since */
    struct sr_uuid peer_boot;      /* as it greeted last */
    uint64_t peer_flushes;         /* FLUSHes that it had answered then, and has since */
 bool flushing;            /* of some volume */
    bool flushes_alone;            /* stopping without a session: what is in caches is in the map too */
    struct sr_dirtymap *peer_maps; /* MAP frames so far; one a volume */
    bool peer_everything;
    uint64_t retry_at_us;
    uint32_t retry_ms;  /* 0: none failed of late */
    uint32_t held_left; /* re-sent writes not yet confirmed */
    bool map_sent;
    bool complete_sent, complete_pending; /* leader: the commit before COMPLETE is out */
    bool completed;                       /* leader: base = none is out; follower: consistent = true is */
    bool completing_flush;                /* follower: flushing for COMPLETE */
    uint32_t flushes_left;
    struct sr_record complete_lineage;
    bool peer_failed;
    struct sr_greeting shown_peer; /* the latest word of it, by a greeting or a probe */
    uint64_t next_probe;
    bool claim_crossed;  /* the peer probed while a failover of a copy without a generation was under way here */
    uint64_t probe_owed; /* the peer's, to be answered; 0: none */
    bool probe_answered;

    /* handover.c */
    uint64_t handover_id; /* of the last attempt */
    bool peer_ready;      /* READY came for it */
    bool take_sent;
    bool hosts_read;         /* RETIRED: all that hosts had sent is here */
    bool taking;             /* the other side: role = active is being committed */
    uint32_t n_forwards_out; /* requests that the peer carries out for hosts here */
    uint32_t forwards_unsent; /* ... or will: promised with TAKE */
    uint32_t forwards_left;  /* of the other site's waiting requests, still to come: hosts here wait for them */
    uint64_t forward_bytes_out; /* H4: of what is out */
    uint64_t forwarded_bytes;   /* H4: of the other site's that are not answered yet, in this session */
    uint64_t handover_began_us, handover_deadline_us, handover_took_us;
    uint64_t commit_took_us, flying_since_us; /* a commit's duration, smoothed */
    char handover_why[120];                   /* why the last attempt was undone */
    bool continues;                           /* see sr_core_config */
    bool failover_pending;                    /* no session is opened while it waits for the disk */

    enum sr_cause cause;
    uint64_t since_wall_ms, in_sync_us, in_sync_wall_ms;
    enum sr_sync last_sync;
    char detail[160];

    struct request_list requests, peer_wait, commit_wait, ready;
    uint32_t n_requests, n_begun;
    struct sr_slots ios, messages;
    uint32_t n_session_ios; /* disk work for the peer or for a resync */
    uint32_t n_ios;

    struct sr_intents intents;
    uint64_t cool_at_us, save_at_us, memory_at_us;
    bool intents_wanted;      /* a request waits until others give theirs back */
    uint64_t unlock_local_us; /* of the unlock under way: so long its holder was busy with the disk here */

    struct copy_list copies;
    uint32_t n_copies;
    uint32_t cursor_volume;
    uint64_t cursor_block;
    bool compare_all;
    const char *full_reason;
    uint64_t resync_total, resync_began_us;
    uint64_t resync_done;
    struct sr_throttle throttle;
    bool throttled; /* a run was chosen in this step, and may not start yet */

    struct follow_list follow_ops;
    uint32_t n_follow_ops;

    struct admin_list admins;
    uint64_t timer_us;

    struct sr_core_status count; /* the counters of the status */
};

/* ---- actions.c: everything that leaves the core ---------------------------------------------------------- */
struct sr_action *core_act(struct sr_core *core, enum sr_action_type type);
void core_say(struct sr_core *core, enum sr_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void core_fault_link(struct sr_core *core, const char *format, ...) __attribute__((format(printf, 2, 3)));
void core_halt(struct sr_core *core, const char *text);
uint64_t core_start_io(struct sr_core *core, enum io_owner kind, void *owner, struct volume *volume,
                       struct sr_disk_io io);
void core_send_msg(struct sr_core *core, struct sr_peer_msg *msg);
struct sr_peer_msg *core_new_msg(struct sr_core *core, enum sr_peer_msg_type type);
void core_reply_request(struct sr_core *core, const struct request *request, enum sr_error error);
void core_reply_host(struct sr_core *core, uint64_t id, enum sr_error error); /* one that was never taken in */
void core_answer_admin(struct sr_core *core, uint64_t id, enum sr_error error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- commits.c: what becomes durable ------------------------------------------------------------------- */
uint64_t core_next_commit(struct sr_core *core);   /* the number of the commit being built */
uint64_t core_commit_record(struct sr_core *core); /* core->rec becomes durable with that commit */
struct sr_meta_op *core_commit_op(struct sr_core *core, enum sr_meta_op_type type, uint32_t volume);
void core_commit_region(struct sr_core *core, struct volume *volume, uint32_t region); /* exact bits, or CLEAN */
void core_commit_clear_maps(struct sr_core *core); /* no blocks, no intents but those in use */
void core_commit_flush(struct sr_core *core);      /* emit what was built, if none is out */
bool core_settled(const struct sr_core *core);     /* the record is durable */
void core_on_meta_done(struct sr_core *core, uint64_t commit, enum sr_error error);
void core_free_commit(struct sr_commit *commit);

/* ---- requests.c ---------------------------------------------------------------------------------------- */
void core_on_host(struct sr_core *core, const struct sr_host_request *host);
void core_make_ready(struct sr_core *core, struct request *request);
void core_make_all_ready(struct sr_core *core);
void core_run_ready(struct sr_core *core);
void core_request_io_done(struct sr_core *core, struct request *request, enum sr_error error);
void core_request_peer_done(struct sr_core *core, struct request *request, const struct sr_peer_msg *msg);
void core_requests_session_ended(struct sr_core *core);
void core_requests_session_open(struct sr_core *core); /* re-send what is held */
void core_requests_forgive_peer(struct sr_core *core);
void core_requests_mark_unfinished(struct sr_core *core);
void core_requests_refuse_all(struct sr_core *core);
void core_requests_commits_done(struct sr_core *core);
void core_wait_for_peer(struct sr_core *core, struct request *request);
void core_stop_waiting_for_peer(struct sr_core *core, struct request *request);
void core_unlock(struct volume *volume, struct sr_lock *lock);
void core_leave(struct sr_core *core, struct request *request, enum sr_error error);
struct request *core_new_request(struct sr_core *core, const struct sr_host_request *host);
void core_forget_request(struct sr_core *core, struct request *request);
uint64_t core_first_block(uint64_t offset);
uint64_t core_end_block(uint64_t offset, uint64_t length);

/* ---- flush.c: write-back volumes ------------------------------------------------------------------------- */
uint64_t core_flush_want(struct sr_core *core, struct volume *volume); /* the number of the flush to wait for */
void core_flush_all(struct sr_core *core); /* begins one wherever something is in a cache and none is under way */
bool core_flush_clean(const struct sr_core *core); /* nothing is in a cache, as far as this site knows */
void core_flush_io_done(struct sr_core *core, struct volume *volume, enum sr_error error);
void core_flush_peer_done(struct sr_core *core, struct volume *volume, enum sr_error error);
void core_flush_pump(struct sr_core *core);
void core_flush_session_open(struct sr_core *core);
void core_flush_session_ended(struct sr_core *core);
void core_flush_greeted(struct sr_core *core);  /* has the peer lost what was in its caches? */
void core_flush_to_maps(struct sr_core *core);  /* what is in caches counts as out of sync */
void core_flush_alone(struct sr_core *core);    /* stopping, and the session has ended */
void core_flush_forget(struct sr_core *core);   /* what was in caches is of no interest any more */
void core_flush_given_up(struct sr_core *core); /* ... to hosts; it is made stable when the session ends */
/* No flush of it is done until the doubtful blocks are copied / are there any in this region? */
bool core_flush_blocked(const struct sr_core *core, const struct volume *volume);
bool core_flush_doubts(const struct volume *volume, const struct sr_intent *intent);
bool core_cached_write(const struct request *request); /* not stable when it ends */
void core_secure_start(struct sr_core *core, struct volume *volume);
void core_secure_io_done(struct sr_core *core, struct volume *volume, enum sr_error error);
void core_secure_pump(struct sr_core *core);
bool core_secure(const struct sr_core *core); /* as follower: nothing is in a cache here */

/* ---- repair.c: ENOSPC and read errors at the active ---------------------------------------------------- */
void core_fix_begin(struct sr_core *core, struct request *request);
void core_fix_step(struct sr_core *core, struct request *request);
void core_fetch_begin(struct sr_core *core, struct request *request);
void core_fetch_step(struct sr_core *core, struct request *request);
void core_repair_drop(struct sr_core *core, struct request *request);
bool core_is_bad(const struct volume *volume, uint64_t first, uint64_t end);
bool core_add_bad(struct volume *volume, uint64_t block);
void core_drop_bad(struct sr_core *core, struct volume *volume, uint64_t first, uint64_t end);

/* ---- session.c ----------------------------------------------------------------------------------------- */
void core_session_pump(struct sr_core *core);
void core_end_session(struct sr_core *core, enum sr_cause cause); /* NONE: the peer knows already */
void core_on_msg(struct sr_core *core, struct sr_peer_msg *msg);
void core_on_link(struct sr_core *core, bool up);
bool core_leads_open(const struct sr_core *core); /* writes go to the peer now */
struct sr_greeting core_greeting(const struct sr_core *core);
bool core_serving(const struct sr_core *core);

/* ---- lead.c: the leader's stages of a session ----------------------------------------------------------- */
void core_lead_map(struct sr_core *core, const struct sr_peer_msg *msg);
void core_lead_started(struct sr_core *core);
void core_lead_completed(struct sr_core *core);
void core_lead_pump(struct sr_core *core);
void core_free_peer_maps(struct sr_core *core); /* of session.c: what came of the follower's map */
void core_everything_differs(struct sr_core *core);
void core_in_sync(struct sr_core *core); /* from here on this site mirrors */

/* ---- handover.c: switchover, both sides -------------------------------------------------------------------- */
void core_handover_command(struct sr_core *core, uint64_t id);
void core_handover_undo(struct sr_core *core, const char *why); /* HANDING_OVER only */
void core_handover_session_ended(struct sr_core *core);
void core_handover_pump(struct sr_core *core);
void core_forward_ended(struct sr_core *core, const struct request *request);
bool core_forwards_due(const struct sr_core *core); /* hosts' requests that the peer carries out, or will */
void core_handover_msg(struct sr_core *core, struct sr_peer_msg *msg);
uint64_t core_handover_next_us(const struct sr_core *core);
uint64_t core_handover_estimate_us(const struct sr_core *core);

/* ---- failover.c: failover, discard, probes ------------------------------------------------------------------ */
void core_failover_command(struct sr_core *core, uint64_t id, bool force);
void core_discard_command(struct sr_core *core, uint64_t id);
void core_probe_command(struct sr_core *core, uint64_t id);
void core_failover_pump(struct sr_core *core, struct admin *admin);
void core_on_probe(struct sr_core *core, const struct sr_peer_msg *msg);
void core_probe_pump(struct sr_core *core);

/* ---- alone.c: leaving the pair, standing down ----------------------------------------------------------- */
void core_go_alone(struct sr_core *core, enum sr_cause cause);
void core_go_alone_for(struct sr_core *core, enum sr_cause cause,
                       const struct volume *volume); /* the member that caused it */
void core_stop_serving(struct sr_core *core);
const char *core_failed_name(const struct sr_core *core, const struct sr_record *record);
void core_replica_failed(struct sr_core *core, struct volume *volume, const char *what, enum sr_error error);
void core_back_off(struct sr_core *core);
void core_set_cause(struct sr_core *core, enum sr_cause cause, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- resync.c ------------------------------------------------------------------------------------------ */
void core_resync_begin(struct sr_core *core);
void core_resync_pump(struct sr_core *core);
void core_resync_session_ended(struct sr_core *core);
void core_copy_io_done(struct sr_core *core, struct copy *copy, enum sr_error error, bool all_zero);
void core_copy_compared(struct sr_core *core, struct copy *copy, const struct sr_peer_msg *msg);
void core_copy_confirmed(struct sr_core *core, struct copy *copy, const struct sr_peer_msg *msg);
void core_copy_granted(struct sr_core *core, struct copy *copy);
uint64_t core_copy_peer_since_us(const struct sr_core *core, const struct request *request);
bool core_reads_must_wait(const struct sr_core *core); /* dirty blocks are suspect for hosts */
uint64_t core_dirty_blocks(const struct sr_core *core);
uint64_t core_resync_next_us(const struct sr_core *core);
void core_resync_retry_memory(struct sr_core *core);

/* ---- status.c ------------------------------------------------------------------------------------------ */
bool core_copies_equal(const struct sr_core *core); /* as far as this site knows */
enum sr_sync core_sync(const struct sr_core *core, uint64_t now_us);

/* ---- follow.c ------------------------------------------------------------------------------------------ */
void core_follow_msg(struct sr_core *core, struct sr_peer_msg *msg);
void core_follow_retry_memory(struct sr_core *core);
void core_follow_io_done(struct sr_core *core, struct follow_op *op, enum sr_error error);

/* ---- admin.c ------------------------------------------------------------------------------------------- */
void core_on_admin(struct sr_core *core, uint64_t id, enum sr_admin_command command, bool force);
struct admin *core_remember_admin(struct sr_core *core, uint64_t id, enum sr_admin_command command,
                                  uint64_t deadline_us);
void core_end_admin(struct sr_core *core, struct admin *admin); /* it was answered */
void core_admins_pump(struct sr_core *core);

/* ---- background.c: cooling and saving maps ------------------------------------------------------------ */
void core_background_pump(struct sr_core *core);
void core_cool_all(struct sr_core *core);
void core_save_region(struct sr_core *core, struct volume *volume, uint32_t region);
void core_intents_commits_done(struct sr_core *core);
bool core_intents_take(struct sr_core *core, struct request *request); /* false: no room now */
void core_intents_give(struct sr_core *core, struct request *request);
void core_intents_write_cached(struct sr_core *core, struct request *request); /* it begins */
void core_intents_flushed(struct sr_core *core);                               /* some are not cached any more */

#endif
