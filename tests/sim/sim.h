/* sim.h - the deterministic simulator of a pair: two cores, two disks, two metadata stores, one wire.
 *
 * Everything here happens in virtual time and comes out of one seed.  The world (world.c) keeps a heap of events;
 * each module owns one part of the surroundings of a core and turns actions into later events:
 *
 *     disk.c    blocks, errors, full disks, what a crash leaves of writes in flight
 *     meta.c    the durable record and maps; a crash keeps a prefix of the commits in flight
 *     wire.c    the link: order, delay, stalls, cuts, LINK_UP and LINK_DOWN
 *     host.c    hosts that read and write
 *     admin.c   an administrator, and the one who cleans up at the end
 *     faults.c  what breaks, and when
 *     model.c   what a host may read: the reference for every 512-byte sector
 *     check.c   the checkers
 *     layout.c  where the data lies, and the state at the start
 *     edges.c   which edges between the modes of a core are allowed
 *
 * The checkers look at actions, replies, contents of disks, durable metadata and sr_core_status only, never into
 * a core.
 *
 * Only the blocks of a few small areas of each volume ever hold anything but zeroes ("hot" blocks, numbered
 * from 0 over all volumes), so that a disk is an array of a few hundred words: one stamp for each 512-byte
 * sector, 0 for zeroes, else the number of the write that put it there.  Some schedules have write-back volumes: then
 * a second array holds what a loss of power leaves.
 */
#ifndef SR_SIM_SIM_H
#define SR_SIM_SIM_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buffer.h"
#include "core/core.h"

#define SIM_SECTOR_BYTES  512u
#define SIM_BLOCK_SECTORS (SR_BLOCK_BYTES / SIM_SECTOR_BYTES)

#define SIM_VOLUMES_MAX     4
#define SIM_REGIONS_MAX     80 /* of one volume: 320 MiB */
#define SIM_AREAS_MAX       10
#define SIM_AREA_BLOCKS_MAX 12
#define SIM_HOT_MAX         (SIM_AREAS_MAX * SIM_AREA_BLOCKS_MAX)
#define SIM_HOT_SECTORS_MAX (SIM_HOT_MAX * SIM_BLOCK_SECTORS)

#define SIM_IOS_MAX      512  /* disk I/Os in flight at a site */
#define SIM_COMMITS_MAX  256  /* commits in flight at a site */
#define SIM_MESSAGES_MAX 4096 /* messages on their way in one direction */
#define SIM_HOSTS        4
#define SIM_PIECE_BYTES  (UINT64_C(64) * SR_REGION_BYTES) /* a longer request is carried out in so many */
#define SIM_REQUESTS_MAX 32
#define SIM_BAD_MAX      2048
#define SIM_MODES_MAX    24

#define SIM_FOREVER UINT64_MAX

/* ---- random numbers (layout.c) ------------------------------------------------------------------------ */

struct sim_rng {
    uint64_t state;
    bool fixed; /* delays are the typical ones */
};

uint64_t sim_random(struct sim_rng *rng);
uint64_t sim_below(struct sim_rng *rng, uint64_t n);                    /* 0 .. n-1; n > 0 */
uint64_t sim_between(struct sim_rng *rng, uint64_t low, uint64_t high); /* both included */
bool sim_chance(struct sim_rng *rng, unsigned permille);
uint64_t sim_delay(struct sim_rng *rng, uint64_t typical_us); /* around that, sometimes up to eight times */
uint64_t sim_mix(uint64_t x);                                 /* a good 64-bit hash of x */

/* ---- parameters of a schedule (faults.c) ------------------------------------------------------------- */

enum sim_profile {
    SIM_PROFILE_QUICK,
    SIM_PROFILE_CRASH,
    SIM_PROFILE_DISK,
    SIM_PROFILE_ADMIN,
    SIM_PROFILE_ROLES,
    SIM_PROFILE_ALL,
    SIM_PROFILE_EXHAUSTIVE, /* exhaustive.c */
    SIM_PROFILES
};

/* Weights are chances in a thousand at each visit of the actor; 0 switches the fault off. */
struct sim_params {
    enum sim_profile profile;
    uint32_t steps; /* of both cores, before things are mended */
    uint64_t disk_us, meta_us, wire_us, host_us, fault_us, admin_us, restart_us, notice_us, fault_length_us;
    uint64_t heartbeat_us; /* so long messages may vanish in one direction before the link is given up */
    uint64_t faults_us;    /* virtual time after which mending begins, whatever the steps */
    unsigned crash, crash_both, cut, one_way, ambush, stall, freeze, slow_disk, write_error, read_error, flush_error, unreadable;
    unsigned no_space, meta_error, budget, spurious_timer;
    unsigned drop; /* hosts that close their connection: a chance in a thousand at each visit of one */
    unsigned pause, resume, replace, stop, tune, switchover, failover, discard, probe;
    unsigned crash_every, cut_every; /* steps, on average; 0: never */
    unsigned write_percent, big_percent, partial_percent;
    bool calm;   /* nothing breaks, and the administrator pauses and resumes with sense */
    bool import; /* one site has data, the other never had a copy */
    struct sr_core_tuning tuning;
};

void sim_params_choose(struct sim_params *params, struct sim_rng *rng, enum sim_profile profile, uint32_t steps);
const char *sim_profile_name(enum sim_profile profile);
void sim_tuning_choose(struct sr_core_tuning *tuning, struct sim_rng *rng);

/* ---- where the hot blocks lie (layout.c) --------------------------------------------------------------- */

struct sim_area {
    uint32_t volume;
    uint32_t n_blocks;
    uint64_t first_block;
    uint32_t hot; /* number of its first block */
};

struct sim_layout {
    uint32_t n_volumes, n_areas, n_hot;
    uint64_t blocks[SIM_VOLUMES_MAX]; /* size of each volume */
    bool write_back[SIM_VOLUMES_MAX];
    bool any_write_back;
    struct sim_area areas[SIM_AREAS_MAX];
    uint32_t hot_volume[SIM_HOT_MAX];
    uint64_t hot_block[SIM_HOT_MAX];
};

/* A run of hot sectors inside a range of bytes. */
struct sim_span {
    uint32_t area;         /* cursor: set to 0 before the first call */
    uint32_t sector, n;    /* hot sectors [sector, sector + n) */
    uint64_t offset_bytes; /* of the first, in the volume */
};

/* The next run of hot sectors within [offset, offset + length) of the volume; false: no more. */
bool sim_layout_next(const struct sim_layout *layout, uint32_t volume, uint64_t offset_bytes, uint64_t length_bytes,
                     struct sim_span *span);

struct sim_world;
struct sim_site;

void sim_layout_choose(struct sim_world *world);
void sim_layout_choose_durability(struct sim_world *world);
bool sim_layout_write_back(const struct sim_layout *layout, uint32_t sector); /* of a hot sector's volume */
void sim_layout_reset(struct sim_site *site);  /* a blank one */
void sim_layout_fill(struct sim_world *world); /* records and data of an earlier life; the model starts with them */

/* ---- disk.c ---------------------------------------------------------------------------------------------- */

/* What a sector held at some time; a later content has a higher rank. */
struct sim_version {
    uint64_t stamp, rank;
};

struct sim_io {
    bool used, applied;
    struct sr_disk_io io;
    struct sim_version *seen; /* FLUSH of a write-back volume: what every hot sector held when it began */
};

struct sim_disk {
    uint64_t sector[SIM_HOT_SECTORS_MAX];
    uint64_t rank[SIM_HOT_SECTORS_MAX], last_rank;
    struct sim_version stable[SIM_HOT_SECTORS_MAX]; /* the rest is in a cache that a loss of power empties */
    bool unreadable[SIM_HOT_MAX]; /* until written */
    struct sim_io ios[SIM_IOS_MAX];
    uint32_t n_ios, n_writes, ios_end;              /* in flight; slots from ios_end on were never used */
    unsigned fail_writes, fail_reads, fail_flushes; /* so many of the next ones */
    uint64_t full_until_us, slow_until_us;
    bool had_error;    /* since it was replaced: its copy may be called failed */
    bool had_no_space; /* ever */
    bool told_error;   /* this process was told of a failed write or flush */
};

void sim_disk_submit(struct sim_world *world, unsigned site, const struct sr_disk_io *io);
void sim_disk_complete(struct sim_world *world, unsigned site, uint32_t slot);
void sim_disk_crash(struct sim_world *world, unsigned site,
                    bool power);             /* settles what was in flight; power: caches too */
void sim_disk_secure(struct sim_disk *disk); /* nothing is in a cache any more */
bool sim_disk_is_secure(const struct sim_world *world, unsigned site);
void sim_disk_replaced(struct sim_world *world, unsigned site); /* another disk, with whatever is on it */
bool sim_disk_writing(const struct sim_world *world, unsigned site, uint32_t volume, uint64_t offset_bytes,
                      uint64_t length_bytes);
void sim_sector_fill(uint8_t *bytes, uint32_t volume, uint64_t sector, uint64_t stamp);
/* False: not what sim_sector_fill makes for that place. */
bool sim_sector_parse(const uint8_t *bytes, uint32_t volume, uint64_t sector, uint64_t *stamp);

/* ---- meta.c ---------------------------------------------------------------------------------------------- */

enum sim_entry { SIM_ENTRY_NONE, SIM_ENTRY_INTENT, SIM_ENTRY_EXACT };

struct sim_volume_map {
    uint8_t entry[SIM_REGIONS_MAX];
    uint8_t map[SIM_REGIONS_MAX][SR_REGION_MAP_BYTES];
    uint64_t from;
};

struct sim_meta {
    struct sr_record record;
    struct sim_volume_map volumes[SIM_VOLUMES_MAX];
    uint32_t n_bad;
    struct {
        uint32_t volume;
        uint64_t block;
    } bad[SIM_BAD_MAX];
    struct {
        struct sr_commit *commit;
        uint64_t checksum;
    } queue[SIM_COMMITS_MAX];
    uint32_t head, n; /* in flight, in order */
    uint64_t last_due_us;
    uint64_t next_commit; /* the number that must come next */
    bool fail_next;
    bool failed; /* one did fail: the core must halt */
};

void sim_meta_submit(struct sim_world *world, unsigned site, struct sr_commit *commit);
void sim_meta_complete(struct sim_world *world, unsigned site);
void sim_meta_crash(struct sim_world *world, unsigned site); /* some first ones of those in flight are durable */
void sim_meta_load(struct sim_world *world, unsigned site, struct sr_core *core);
bool sim_meta_dirty(const struct sim_meta *meta, uint32_t volume,
                    uint64_t block);              /* would count as dirty at a start */
bool sim_meta_alone(const struct sim_meta *meta); /* the durable record says so */

/* ---- wire.c ---------------------------------------------------------------------------------------------- */

struct sim_lane { /* to one site */
    struct sr_peer_msg *queue[SIM_MESSAGES_MAX];
    uint32_t head, n;
    uint64_t last_due_us, stalled_until_us;
    uint64_t trouble_us; /* until then it stalled, the last time */
};

struct sim_wire {
    bool connected;        /* one connection exists; a site may not know yet, or not know any more */
    uint32_t connection;   /* its number: events of older ones are void */
    uint64_t cut_until_us; /* no new one before */
    uint64_t dead_us;      /* one direction is dead, and the heartbeat finds out then; 0: no */
    bool pivotal;          /* a message is out that moves a lineage or a role: faults wait for it */
    uint64_t up_since_us;  /* both sites know of the connection since then */
    struct sim_lane lane[2];
};

void sim_wire_send(struct sim_world *world, unsigned from, struct sr_peer_msg *msg);
void sim_wire_deliver(struct sim_world *world, unsigned to, uint32_t connection);
void sim_wire_cut(struct sim_world *world);
void sim_wire_connect(struct sim_world *world); /* if it is possible now */
void sim_wire_up(struct sim_world *world, unsigned site, uint32_t connection);
void sim_wire_down(struct sim_world *world, unsigned site);
bool sim_wire_quiet(const struct sim_world *world);
/* Since then both sites could talk to each other all the time, and nothing held either up. */
bool sim_wire_clear_since(const struct sim_world *world, uint64_t since_us);

/* ---- model.c --------------------------------------------------------------------------------------------- */

#define SIM_WRITES_MAX     8192
#define SIM_CANDIDATES_MAX (1u << 18)
#define SIM_TICK_MAX       UINT32_MAX
#define SIM_GARBAGE        UINT32_C(0x80000000) /* stamps from here on are of no write */

/* A host's write (or zero, or trim).  Ticks count what hosts can see: requests issued and answered. */
struct sim_write {
    uint32_t start; /* tick of issue */
    uint32_t end;   /* tick when it was answered or abandoned; SIM_TICK_MAX: neither yet */
    bool acked;     /* end is when it was acknowledged */
    bool stable;    /* no loss of a cache can undo it */
    bool lost;      /* it was not when one was lost */
    bool zero;
    uint32_t volume;
    uint64_t offset_bytes, length_bytes;
};

struct sim_candidate {
    uint32_t write;
    uint32_t removed; /* tick since which the sector cannot hold this value; SIM_TICK_MAX: it may */
    bool gone;        /* ... and never can again; else (write-back) it can when a cache was lost */
};

struct sim_sector {
    uint32_t first, n, cap; /* candidates, in the order of issue */
};

struct sim_line {
    struct sim_write writes[SIM_WRITES_MAX];
    struct sim_sector sectors[SIM_HOT_SECTORS_MAX];
    uint32_t n_candidates;
    struct sim_candidate candidates[SIM_CANDIDATES_MAX];
};

struct sim_model {
    uint32_t tick;
    uint32_t n_writes; /* numbers are the same in both lines; one that a line does not know has start 0 there */
    uint8_t of[2];     /* which line is a site's; equal: both share it */
    struct sim_line line[2];
};

void sim_model_init(struct sim_world *world);
bool sim_model_full(const struct sim_world *world);
bool sim_model_joined(const struct sim_world *world);
void sim_model_fork(struct sim_world *world, unsigned stays); /* that site's line stays as it is now */
void sim_model_join(struct sim_world *world, unsigned follower);
/* Writes acknowledged in this site's line that the other one's lacks. */
uint32_t sim_model_only_here(const struct sim_world *world, unsigned site, uint32_t *example);
uint32_t sim_model_begin(struct sim_world *world, unsigned site, uint32_t volume, uint64_t offset_bytes,
                         uint64_t length_bytes, bool zero);
/* mirrored: the peer holds it too; stable: no loss of a cache can undo it. */
void sim_model_acked(struct sim_world *world, unsigned site, uint32_t write, bool mirrored, bool stable);
void sim_model_flushed(struct sim_world *world, unsigned site, uint32_t start, uint32_t volume, bool mirrored);
void sim_model_lost(struct sim_world *world, unsigned site); /* its line may have lost what was not flushed */
void sim_model_stable(struct sim_world *world,
                      unsigned site); /* its disk holds what was flushed, whatever is in its cache */
void sim_model_refused(struct sim_world *world, unsigned site, uint32_t write); /* answered with an error: it ends here */
void sim_model_abandoned(struct sim_world *world, uint32_t write);              /* its connection is gone */
void sim_model_read(struct sim_world *world, unsigned site, uint32_t start, uint32_t volume, uint64_t offset_bytes,
                    uint64_t length_bytes, const uint8_t *bytes);
void sim_model_rebase(struct sim_world *world, unsigned site); /* its line is now what its disk holds */
bool sim_model_after(const struct sim_world *world, unsigned site, uint64_t stamp,
                     uint32_t write);                         /* not certainly older, in that site's line */
void sim_model_holds(struct sim_world *world, unsigned site); /* the copy lacks nothing of its line */
/* The copy is what a crash at one moment could have left; that moment not before tick `since`. */
void sim_model_image(struct sim_world *world, unsigned site, uint32_t since);

/* ---- host.c ---------------------------------------------------------------------------------------------- */

struct sim_request {
    bool used;
    uint64_t id;
    unsigned site, host;
    enum sr_host_op op;
    uint32_t volume;
    uint64_t offset_bytes, length_bytes;
    struct sr_buf *buf;
    uint64_t start_us;
    uint32_t start;  /* tick */
    uint32_t write;  /* of the model */
    bool dropped;    /* its host closed the connection */
    bool switched;   /* waited in a switchover: the other site may carry it out */
    bool fua;
    uint32_t pieces; /* after the first, that it may have to wait for: its own, and of requests before it */
};

struct sim_hosts {
    struct sim_request requests[SIM_REQUESTS_MAX];
    uint32_t n;
    uint32_t in_flight[SIM_HOSTS];
    uint64_t next_id;
    uint32_t sweep_area; /* the final reads: areas asked for */
    uint64_t answered;
};

void sim_host_visit(struct sim_world *world, unsigned host);
bool sim_host_issue(struct sim_world *world, unsigned host, unsigned site, enum sr_host_op op, uint32_t volume,
                    uint64_t offset_bytes, uint64_t length_bytes);
void sim_host_reply(struct sim_world *world, unsigned site, uint64_t id, enum sr_error error);
void sim_host_retired(struct sim_world *world, unsigned site);
void sim_host_late(struct sim_world *world, unsigned site); /* what hosts had sent before they knew */
bool sim_host_forwards(const struct sim_world *world); /* a site works on requests of hosts of the other one */
void sim_host_crash(struct sim_world *world, unsigned site); /* every connection to the site is gone */
bool sim_host_sweep(struct sim_world *world);                /* reads every hot block once; true: all asked for */

/* ---- admin.c --------------------------------------------------------------------------------------------- */

#define SIM_COMMANDS_MAX 4 /* open at a site at once */

struct sim_command {
    bool open, force;
    bool late; /* answered as timed out: it may take effect all the same */
    uint64_t id, start_us;
    enum sr_admin_command command;
};

struct sim_admin {
    struct sim_command commands[2][SIM_COMMANDS_MAX];
    uint64_t next_id;
};

void sim_admin_visit(struct sim_world *world);
void sim_admin_ambush(struct sim_world *world); /* a lineage or a role is just on the move */
void sim_admin_mend(struct sim_world *world); /* one look around: resume, replace, failover, discard */
/* False: it was not given, the site is down or has too many to answer. */
bool sim_admin_command(struct sim_world *world, unsigned site, enum sr_admin_command what, bool force);
void sim_admin_reply(struct sim_world *world, unsigned site, uint64_t id, enum sr_error error, const char *text);
void sim_admin_crash(struct sim_world *world, unsigned site);
unsigned sim_admin_busy(const struct sim_world *world, unsigned site); /* open commands */
/* The oldest one of that kind that may take effect; NULL: none. */
const struct sim_command *sim_admin_open(const struct sim_world *world, unsigned site, enum sr_admin_command command);
bool sim_admin_forced(const struct sim_world *world, unsigned site); /* a forced failover is open */

/* ---- faults.c -------------------------------------------------------------------------------------------- */

void sim_fault_visit(struct sim_world *world);
void sim_fault_step(struct sim_world *world); /* after each event: faults that are counted in steps */
void sim_fault_end_all(struct sim_world *world);

/* ---- exhaustive.c ---------------------------------------------------------------------------------------- */

#define SIM_SCRIPT_MAX 3

/* A schedule of the profile `exhaustive`: operations and when they come. */
struct sim_script {
    unsigned n, done;
    uint8_t op[SIM_SCRIPT_MAX];
    uint32_t at[SIM_SCRIPT_MAX]; /* steps after first_step */
    uint32_t first_step;
    unsigned writes; /* of the base schedule, issued */
    bool began;
    bool pointless; /* another schedule is the same */
};

void sim_exhaustive_begin(struct sim_world *world); /* parameters, layout, operations of world->seed */
bool sim_exhaustive_next(struct sim_world *world);
void sim_exhaustive_mend(struct sim_world *world);

/* ---- check.c --------------------------------------------------------------------------------------------- */

/* From a PAUSE of a pair in sync on. */
struct sim_pause {
    bool tracking;
    bool answered; /* the command was answered with OK */
    bool clean;    /* nothing broke since: a resume copies what was written, no more */
    bool image;    /* both sites are durably paused: the alternate's copy must not change */
    bool resumed;  /* the administrator said RESUME */
    unsigned site, alternate;
    uint32_t since; /* tick of the command */
    uint64_t copied_before;
    bool written[SIM_HOT_MAX];
    uint64_t written_others; /* blocks that are not hot */
};

struct sim_checks {
    struct sim_pause pause;
    bool ever_lost;     /* the only complete copy was lost */
    uint32_t failovers; /* that became durable */
    uint64_t met_us;    /* since then both sites know of a conflict, and serve; 0: they do not */
};

bool sim_check_reply(struct sim_world *world, unsigned site, const struct sim_request *request);
void sim_check_flushed(struct sim_world *world, unsigned site, bool mirrored); /* after the model knows */
void sim_check_step(struct sim_world *world, unsigned site);
void sim_check_serve(struct sim_world *world, unsigned site);
void sim_check_record(struct sim_world *world, unsigned site, const struct sr_record *before,
                      const struct sr_record *after);
void sim_check_disk_write(struct sim_world *world, unsigned site);
void sim_check_waits(struct sim_world *world);
void sim_check_written(struct sim_world *world, uint32_t volume, uint64_t offset_bytes, uint64_t length_bytes);
void sim_check_command(struct sim_world *world, unsigned site, enum sr_admin_command command);
void sim_check_command_done(struct sim_world *world, unsigned site, enum sr_admin_command command,
                            enum sr_error error);
void sim_check_disturbed(struct sim_world *world); /* a fault: what was measured is void */
bool sim_check_both_in_sync(struct sim_world *world);
void sim_check_end(struct sim_world *world);

/* ---- edges.c --------------------------------------------------------------------------------------------- */

struct sim_stats;

bool sim_edge_allowed(const char *from, const char *to);
unsigned sim_edges_print(const struct sim_stats *stats); /* returns how many of the allowed ones were never taken */

/* ---- world.c --------------------------------------------------------------------------------------------- */

enum sim_event_kind {
    SIM_EV_DISK,
    SIM_EV_META,
    SIM_EV_WIRE,
    SIM_EV_TIMER,
    SIM_EV_LINK_UP,
    SIM_EV_LINK_DOWN,
    SIM_EV_RETIRED,
    SIM_EV_RESTART,
    SIM_EV_CONNECT,
    SIM_EV_HOST,
    SIM_EV_ADMIN,
    SIM_EV_FAULT,
    SIM_EV_KINDS
};

struct sim_event {
    uint64_t at_us, order;
    uint8_t kind, site;
    uint32_t epoch; /* of the site; checked for the kinds that die with it */
    uint32_t arg;
};

struct sim_site {
    bool up, serving, stopping;
    uint32_t epoch;
    struct sr_core *core;
    struct sr_actions actions;
    struct sr_budget budget;
    uint64_t frozen_until_us, started_us;
    enum sr_cause cause; /* before its last step */
    uint64_t disturbed_until_us; /* local trouble that may delay hosts */
    uint32_t timer;              /* number of the timer that counts */
    bool link_up;                /* LINK_UP was handed in, LINK_DOWN not yet */
    bool met_peer;               /* a message of the peer arrived since the start */
    bool lossy;                  /* its cache was lost since it was in sync the last time */
    uint64_t link_up_due_us, link_up_us; /* when LINK_UP is, and was, handed in */
    struct sr_core_status status; /* after its last step */
    uint8_t mode, watched_mode; /* numbers of stats.modes; the second lags behind, for faults */
    uint64_t budget_taken; /* by somebody else, for a while */
    struct sim_disk disk;
    struct sim_meta meta;
};

/* Counts over all schedules of a process; a plain block of memory, so that a child can hand it over in a pipe. */
struct sim_stats {
    uint64_t schedules, steps, settle_steps;
    uint64_t events[SIM_EV_KINDS];
    uint64_t crashes, cuts, stalls, freezes, disk_errors, no_space, meta_errors, budget_shortages, spurious_timers;
    uint64_t commands[SR_ADMIN_GO_ON + 1], tunes, replies, reply_errors, reads, writes, messages, commits, ios;
    uint64_t images, exact_resyncs, equal_checks, only_copies_lost;
    uint64_t failovers, forced, partings, adoptions, given_up, one_way;
    uint64_t flushes, fuas, power_cuts;
    uint64_t without_effect, after_rest; /* exhaustive: schedules that equal another one */
    uint32_t n_modes;
    char modes[SIM_MODES_MAX][24];
    uint64_t edges[SIM_MODES_MAX][SIM_MODES_MAX];
};

struct sim_world {
    uint64_t seed, now_us, order;
    struct sim_rng rng;
    struct sim_params params;
    struct sim_layout layout;
    struct sim_site site[2];
    struct sim_wire wire;
    struct sim_model model;
    struct sim_hosts hosts;
    struct sim_admin admin;
    struct sim_checks checks;
    struct sim_script script;
    struct sim_event *heap;
    uint32_t n_events, cap_events;
    uint32_t steps, crash_step, cut_step; /* done; when the next crash and cut come */
    bool verbose;
    bool write_back; /* every volume, in every schedule */
    bool mending;  /* faults are over */
    bool sweeping; /* ... and the pair is in sync: the final reads */
    bool failed;
    char failure[512];
    struct sim_stats *stats;
};

/* One world serves many schedules, one after the other. */
struct sim_world *sim_world_new(struct sim_stats *stats);
void sim_world_free(struct sim_world *world);

/* Runs one schedule; false: a checker found something, world->failure says what. */
bool sim_world_run(struct sim_world *world, uint64_t seed, enum sim_profile profile, uint32_t steps);

void sim_world_push(struct sim_world *world, enum sim_event_kind kind, unsigned site, uint64_t at_us, uint32_t arg);
void sim_world_step(struct sim_world *world, unsigned site, struct sr_event *event);
void sim_world_crash(struct sim_world *world, unsigned site, uint64_t restart_after_us);
void sim_world_start(struct sim_world *world, unsigned site);

/* The first one counts; the schedule stops. */
void sim_fail(struct sim_world *world, const char *checker, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sim_trace(struct sim_world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
