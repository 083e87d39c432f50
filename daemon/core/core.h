/* core.h - the replication state machine of one collection: events in, actions out.
 *
 * Sans-I/O: no clock, no socket, no file, no thread, no allocation that the caller cannot refuse.  Time and
 * random numbers arrive inside events.  The driver and the simulator are the only callers.
 *
 *     sr_core_step(core, &event, &actions);   then carry out `actions` in order
 *
 * Whatever must be durable first is awaited as an event before the core emits the action that depends on it.
 * Nothing in the list of actions of one step depends on another action of the same step having finished.
 *
 * What the caller promises:
 *   - every DISK_* and COMMIT action is answered by exactly one DISK_DONE / META_DONE, commits in the order
 *     in which they were emitted; never from inside sr_core_step;
 *   - a disk write answered with success is on stable storage (not in a cache) unless it was `cached`, a commit too;
 *   - when the process starts, whatever the replicas hold is stable before the core is made;
 *   - messages handed in with PEER_MSG come in the order in which the peer's core sent them, each at most
 *     once; after LINK_DOWN none of the old connection comes;
 *   - the buffer of a host request stays referenced until its REPLY.
 */
#ifndef SR_CORE_CORE_H
#define SR_CORE_CORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/units.h"
#include "base/uuid.h"
#include "core/lineage.h"
#include "core/peer_msg.h"

struct sr_core;

/* ---- configuration, fixed at creation unless a TUNE event changes it ------------------------------- */

struct sr_core_tuning {
    uint32_t stall_budget_ms;               /* how long the peer can make a host wait; default 5000 */
    uint32_t hot_regions_max;               /* idle regions that keep their intent; default 1024 */
    uint32_t cool_after_ms;                 /* a region idle that long loses its intent in the background; 10000 */
    uint32_t retry_min_ms;                  /* first wait before a new handshake after going alone; 1000 */
    uint32_t retry_max_ms;                  /* it doubles up to this; 60000 */
    uint32_t resync_parallel;               /* runs in flight; 4 */
    uint64_t resync_min_bytes_per_s;        /* never slower than this; 4 MiB */
    uint64_t resync_max_bytes_per_s;        /* 0: no limit */
    uint32_t resync_latency_factor_percent; /* host write latency under resync against before; 200 */
    uint32_t forward_window_bytes;          /* under way at the peer for hosts here, at most 32 MiB; 0: one request */
};

struct sr_core_volume {
    struct sr_uuid uuid;
    uint64_t size_bytes; /* multiple of SR_BLOCK_BYTES */
    const char *name;    /* for messages; copied; NULL: that of the collection */
    bool write_back;     /* what is acknowledged may be in caches at both sites until a FLUSH */
};

struct sr_core_config {
    struct sr_core_tuning tuning;
    uint32_t n_volumes;
    const struct sr_core_volume *volumes; /* copied */
    struct sr_budget *budget;             /* for resync reads; not owned */
    const char *name;                     /* for messages; copied */
    const char *peer_name;                /* the other site, for messages; copied */
    /* This process has carried the same role on without a break (members changed): an active site goes on serving,
     * as after the end of a session, instead of waiting for a handshake as at a start. */
    bool continues;
    uint64_t session_floor; /* sessions of this link so far: the next one gets a higher number */
};

/* ---- events ----------------------------------------------------------------------------------------- */

enum sr_host_op { SR_HOST_READ, SR_HOST_WRITE, SR_HOST_TRIM, SR_HOST_ZERO, SR_HOST_FLUSH };

struct sr_host_request {
    uint64_t id; /* chosen by the caller, unique among its unanswered requests */
    uint32_t volume;
    enum sr_host_op op;
    bool no_hole;          /* ZERO: must not free space */
    bool fua; /* WRITE, TRIM, ZERO: stable at both sites when it is answered, in a write-back volume too */
    uint64_t offset_bytes; /* within the volume; checked by the caller */
    uint64_t length_bytes; /* > 0 but for FLUSH; READ and WRITE at most SR_IO_MAX_BYTES */
    struct sr_buf *buf;    /* READ: filled; WRITE: the data.  The core takes its own reference */
};

enum sr_admin_command {
    SR_ADMIN_PAUSE,
    SR_ADMIN_RESUME,
    SR_ADMIN_REPLACE,    /* force: also if that copy had gone alone */
    SR_ADMIN_SWITCHOVER, /* at the active site: the peer becomes active */
    SR_ADMIN_FAILOVER,   /* at the site that is to serve; force: also on an inconsistent copy */
    SR_ADMIN_DISCARD,    /* in a conflict, at the site that loses: its diverged writes are given up */
    SR_ADMIN_PROBE,      /* asks the peer's core for its record; answered within a second, see status.probed_us */
    SR_ADMIN_STOP,       /* clean shutdown: cool every region; answered when it is done */
    SR_ADMIN_GO_ON       /* there is no shutdown after all: requests and sessions go on */
};

enum sr_event_type {
    SR_EV_TIME,      /* a timer armed by the core may be due */
    SR_EV_HOST,      /* .host */
    SR_EV_DISK_DONE, /* .disk */
    SR_EV_META_DONE, /* .meta */
    SR_EV_PEER_MSG,  /* .msg: the core takes over the message's payload reference */
    SR_EV_LINK_UP,   /* the peer was authenticated and has this collection */
    SR_EV_LINK_DOWN,
    SR_EV_RETIRED, /* after RETIRE: what hosts had sent by then was handed in as HOST; no more will come */
    SR_EV_ADMIN,   /* .admin */
    SR_EV_TUNE     /* .tuning */
};

struct sr_event {
    enum sr_event_type type;
    uint64_t now_us;       /* monotonic; never goes back */
    uint64_t wall_ms;      /* since 1970, for what people read */
    struct sr_uuid random; /* 128 fresh random bits: the next generation, if one is made in this step */
    union {
        struct sr_host_request host;
        struct {
            uint64_t io;
            enum sr_error error; /* NO_SPACE and everything else are told apart; a short write is IO */
            bool all_zero;       /* READ with probe: the range is a hole */
        } disk;
        struct {
            uint64_t commit;
            enum sr_error error; /* anything but OK: the core halts (SR_ACT_HALT) */
        } meta;
        struct sr_peer_msg *msg;
        struct {
            uint64_t id;
            enum sr_admin_command command;
            bool force;
        } admin;
        struct sr_core_tuning tuning;
    };
};

/* ---- actions ---------------------------------------------------------------------------------------- */

enum sr_disk_op {
    SR_DISK_READ,  /* into buf from buf_offset */
    SR_DISK_WRITE, /* from buf; stable when done unless `cached` */
    SR_DISK_ZERO,  /* reads back as zeroes, stable when done unless `cached`; may_trim: may free space */
    SR_DISK_FLUSH, /* every write that had ended before is stable when done; offset and length unused */
    SR_DISK_HASH   /* block digests of the range into buf, SR_DIGEST_BYTES each */
};

struct sr_disk_io {
    uint64_t io; /* the core's number, given back in DISK_DONE */
    uint32_t volume;
    enum sr_disk_op op;
    bool may_trim;
    bool cached; /* WRITE, ZERO: need not be stable when done, a FLUSH will come */
    bool probe;  /* READ: if the range is a hole say all_zero instead of filling buf */
    uint64_t offset_bytes, length_bytes;
    struct sr_buf *buf; /* borrowed: the core holds a reference until DISK_DONE */
    uint32_t buf_offset;
};

enum sr_meta_op_type {
    SR_META_RECORD, /* the collection's record becomes commit->record */
    SR_META_INTENT, /* region: may have writes in flight; all its blocks suspect after a crash */
    SR_META_REGION, /* region: exactly the blocks of commit->maps[map] are out of sync */
    SR_META_CLEAN,  /* region: no entry */
    SR_META_FROM,   /* volume: every block from `block` on is out of sync (UINT64_MAX: none) */
    SR_META_CLEAR,  /* volume: no entries at all, FROM none */
    SR_META_BAD,    /* block: could not be read, never copy from it */
    SR_META_GOOD    /* block: rewritten */
};

struct sr_meta_op {
    enum sr_meta_op_type type;
    uint32_t volume;
    uint32_t region;
    uint32_t map;
    uint64_t block;
};

/* One atomic, durable change; ops apply in order.  Belongs to the core until META_DONE is handed in: the
 * caller reads it (from another thread too) and keeps no pointer afterwards. */
struct sr_commit {
    uint64_t commit; /* 1, 2, 3 ... */
    bool has_record;
    struct sr_record record;
    uint32_t n_ops, cap_ops;
    struct sr_meta_op *ops;
    uint32_t n_maps, cap_maps;
    uint8_t (*maps)[SR_REGION_MAP_BYTES];
};

enum sr_log_level { SR_LOG_ERROR, SR_LOG_WARNING, SR_LOG_NOTICE, SR_LOG_INFO, SR_LOG_DEBUG };

enum sr_action_type {
    SR_ACT_DISK,   /* .disk */
    SR_ACT_COMMIT, /* .commit */
    SR_ACT_SEND,   /* .msg: the caller frees it with sr_peer_msg_free once it is sent or dropped */
    SR_ACT_REPLY,  /* .reply: answer host request `id`; SR_E_SHUTDOWN: close its connection unanswered */
    SR_ACT_ADMIN,  /* .admin: answer the administrator */
    SR_ACT_TIMER,  /* .timer: hand in TIME at or after this; replaces the one before; 0: none */
    SR_ACT_SERVE,  /* .serve: hosts may use the volumes here from now on, or not: close their connections */
    SR_ACT_RETIRE, /* no new hosts; hand in what hosts have sent by now, then RETIRED; a connection closes once all
                    * of its requests were answered */
    SR_ACT_LINK_FAULT, /* .text: the peer broke the protocol: drop the link, log the text */
    SR_ACT_LOG,        /* .log */
    SR_ACT_HALT        /* .text: stop the daemon now, acknowledge nothing more */
};

struct sr_action {
    enum sr_action_type type;
    union {
        struct sr_disk_io disk;
        struct sr_commit *commit;
        struct sr_peer_msg *msg;
        struct {
            uint64_t id;
            enum sr_error error;
        } reply;
        struct {
            uint64_t id;
            enum sr_error error;
            char text[200];
        } admin;
        uint64_t timer_us;
        bool serve;
        char text[240];
        struct {
            enum sr_log_level level;
            char text[232];
        } log;
    };
};

struct sr_actions {
    uint32_t n, cap;
    struct sr_action *list; /* grows; reused from step to step */
};

void sr_actions_free(struct sr_actions *actions);
void sr_peer_msg_free(struct sr_peer_msg *msg); /* with its payload reference; NULL is fine */
struct sr_peer_msg *sr_peer_msg_new(enum sr_peer_msg_type type, uint64_t session);

/* ---- life ------------------------------------------------------------------------------------------- */

/* NULL without memory. */
struct sr_core *sr_core_new(const struct sr_core_config *config, const struct sr_record *record);

/* What the metadata holds of a volume's map, between new and start. */
void sr_core_load_intent(struct sr_core *core, uint32_t volume, uint32_t region);
void sr_core_load_region(struct sr_core *core, uint32_t volume, uint32_t region,
                         const uint8_t map[SR_REGION_MAP_BYTES]);
void sr_core_load_from(struct sr_core *core, uint32_t volume, uint64_t block);
void sr_core_load_bad(struct sr_core *core, uint32_t volume, uint64_t block);

/* Serves at once if the record allows it, else waits for a handshake.  Clears actions first. */
void sr_core_start(struct sr_core *core, const struct sr_event *now, struct sr_actions *actions);

/* The one function.  Clears actions first. */
void sr_core_step(struct sr_core *core, const struct sr_event *event, struct sr_actions *actions);

/* Frees the core; references to the buffers of unfinished operations are dropped.  No event may follow. */
void sr_core_free(struct sr_core *core);

/* ---- what an operator sees --------------------------------------------------------------------------- */

enum sr_sync { SR_SYNC_IN_SYNC, SR_SYNC_PAUSED, SR_SYNC_OUT_OF_SYNC };

enum sr_verdict { SR_VERDICT_PROTECTED, SR_VERDICT_EXPOSED, SR_VERDICT_OFFLINE };

/* Wire numbers (BYE, control): never reused. */
#define SR_CAUSES(X)                                                                                                 \
    X(NONE, 0, "")                                                                                                   \
    X(PAUSED, 1, "paused")                                                                                           \
    X(PEER_UNREACHABLE, 2, "peer-unreachable")                                                                       \
    X(PEER_STALLED, 3, "peer-stalled")                                                                               \
    X(ALTERNATE_NO_SPACE, 4, "alternate-no-space")                                                                   \
    X(ALTERNATE_IO_ERROR, 5, "alternate-io-error")                                                                   \
    X(ACTIVE_IO_ERROR, 6, "active-io-error")                                                                         \
    X(RESYNCING, 7, "resyncing")                                                                                     \
    X(CONFLICT, 8, "conflict")                                                                                       \
    X(NEVER_SYNCED, 9, "never-synced")                                                                               \
    X(CONNECTING, 10, "connecting")                                                                                  \
    X(WAITING_FOR_FAILOVER, 11, "waiting-for-failover")                                                              \
    X(SHUTDOWN, 12, "shutdown")                                                                                      \
    X(PROTOCOL, 13, "protocol-error")                                                                                \
    X(HANDING_OVER, 14, "handing-over")                                                                              \
    X(FAILOVER, 15, "failover")

enum sr_cause {
#define SR_CAUSE_ENUM(name, number, text) SR_CAUSE_##name = number,
    SR_CAUSES(SR_CAUSE_ENUM)
#undef SR_CAUSE_ENUM
};

const char *sr_cause_name(enum sr_cause cause); /* "unknown" for a number that is not listed */

struct sr_core_status {
    struct sr_record record;
    enum sr_sync sync;
    enum sr_verdict verdict;
    enum sr_cause cause;
    const char *mode; /* the state machine's own word, for people who debug */
    char detail[160]; /* why, in a sentence; may be empty */
    bool link_up, serving;
    bool peer_known;              /* a greeting of the peer was seen on this link */
    struct sr_record peer;        /* valid with peer_known */
    uint64_t peer_dirty_blocks;   /* as it counted when it greeted or answered a probe */
    bool probe_answered;          /* the last SR_ADMIN_PROBE got an answer */
    bool peer_usable;             /* as far as known the peer's copy could be promoted unforced */
    uint64_t dirty_blocks;        /* out-of-sync blocks of all volumes, as this site counts them */
    uint64_t full_copy_blocks;    /* of these, blocks that count because nothing narrower is known */
    const char *full_copy_reason; /* "" unless a full copy is needed or under way */
    bool resyncing;
    uint64_t resync_done_blocks, resync_total_blocks; /* since this resync began */
    uint64_t resync_bytes_per_s;
    uint64_t resync_eta_s;  /* UINT64_MAX: unknown */
    uint64_t since_wall_ms; /* when the present sync state began */
    uint64_t requests;      /* unanswered host requests */
    bool settled;           /* nothing of the record or the maps is on its way to the metadata */
    bool giving; /* a switchover is under way, or waits for the next handshake: the role goes to the peer */
    bool taking; /* ... comes here */
    uint64_t handover_estimate_us; /* how long hosts would wait in a switchover now */
    uint64_t handover_took_us;     /* ... and did in the last one that began here; 0: none yet */
    /* counters since start */
    uint64_t writes, written_bytes, reads, read_bytes;
    uint64_t sent_payload_bytes; /* to the peer: writes and copies */
    uint64_t copied_bytes;       /* of these, by resync */
    uint64_t compared_blocks, equal_blocks;
    uint64_t flushes; /* of write-back volumes, completed at both sites or, alone, here */
    uint64_t meta_commits;
};

void sr_core_status(const struct sr_core *core, uint64_t now_us, struct sr_core_status *status);

/* Why the command would be refused now, a phrase, and with which error; NULL: it would begin.  Failover goes by the
 * last SR_ADMIN_PROBE. */
const char *sr_core_switchover_refusal(const struct sr_core *core, enum sr_error *error);
const char *sr_core_replace_refusal(const struct sr_core *core, bool force, enum sr_error *error);
const char *sr_core_failover_refusal(const struct sr_core *core, bool force, enum sr_error *error);
const char *sr_core_discard_refusal(const struct sr_core *core, enum sr_error *error);

/* The highest number of a session so far on this link, for session_floor of the core that follows. */
uint64_t sr_core_session(const struct sr_core *core);

/* Out-of-sync blocks of one volume. */
uint64_t sr_core_volume_dirty(const struct sr_core *core, uint32_t volume);

/* Blocks of a write-back volume that may be in caches only: written since the last flush of their region. */
uint64_t sr_core_volume_cached(const struct sr_core *core, uint32_t volume);

/* A host's write of so many bytes found no space in this site's pool, and none there has succeeded since; 0: none. */
uint64_t sr_core_volume_no_space(const struct sr_core *core, uint32_t volume);

/* Aborts if an invariant of the state table is broken; tests call it after every step. */
void sr_core_check(const struct sr_core *core);

#endif
