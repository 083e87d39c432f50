/* site.h - one running site: everything that the top level of the daemon wires together.
 *
 *     hosts --NBD--> hosts.c --+                                        +--> store (pools)
 *                              +--> driver.c (one core a collection) ---+--> meta (LMDB)
 *     admin --control--> commands.c / catalog.c --+                     +--> link (peer)
 *
 * A struct sr_collection is a core and what it needs; every LIVE volume is in one, also one whose copy cannot be opened
 * (core NULL, `fault` says why: the whole collection cannot be used then).  A struct sr_volume
 * is a record of the catalogue (PENDING, LIVE or DELETING) and, while it is usable, its opened copy.
 *
 * Everything here belongs to the loop thread.  No globals: all hangs off a struct sr_site.
 */
#ifndef SR_SITE_H
#define SR_SITE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

#include "base/buffer.h"
#include "base/log.h"
#include "base/names.h"
#include "base/uuid.h"
#include "codec/site_msg.h"
#include "config/config.h"
#include "control/control.h"
#include "core/core.h"
#include "link/tls.h"
#include "meta/meta.h"
#include "nbd/nbd.h"
#include "store/pool.h"
#include "store/store.h"

struct sr_link;
struct sr_site;
struct sr_collection;
struct sr_operation;
struct sr_move;

#define SR_SITE_TEXT         320
#define SR_CATALOG_MAX       65536u /* volumes that a peer may name */
#define SR_SITE_BUCKETS      256u   /* of the table of collections */
#define SR_RANDOM_POOL_BYTES 4096u
#define SR_STOP_DEADLINE_MS  15000u
#define SR_LOCK_WAIT_MS      30000u /* for the lock that a killed predecessor's I/O still holds */

/* Exit codes of syncrepd. */
#define SR_EXIT_RUNTIME 1
#define SR_EXIT_USAGE   2
#define SR_EXIT_LOCKED  3
#define SR_EXIT_META    70

enum sr_site_pool_state { SR_POOL_OK, SR_POOL_MISSING, SR_POOL_FOREIGN, SR_POOL_BAD };

struct sr_site_pool {
    const char *name, *directory; /* of the configuration */
    struct sr_pool *pool;         /* NULL unless OK */
    enum sr_site_pool_state state;
    struct sr_uuid uuid; /* as recorded or as opened */
    char detail[SR_SITE_TEXT];
    bool renewing; /* pool_create.c */
};

/* A host's request that waits until members have changed. */
struct sr_gated {
    STAILQ_ENTRY(sr_gated) link;
    struct sr_host_request request;
};
STAILQ_HEAD(sr_gated_list, sr_gated);

struct sr_volume {
    TAILQ_ENTRY(sr_volume) link;
    struct sr_site *site;
    struct sr_meta_volume meta;       /* what is durable; DELETING from when that commit is on its way */
    struct sr_site_pool *pool;        /* NULL: not configured any more */
    struct sr_collection *collection; /* NULL unless LIVE */
    uint32_t index;                   /* in the collection */
    struct sr_store *store;
    struct sr_operation *operation; /* what is being done to it (catalog.c), at most one */
    bool peer_has;                  /* as far as known on this link: the other site has it LIVE */
    bool peer_gone;                 /* on this link: the other site does not have it, or is deleting it too */
    bool busy_there;                /* ... it could not delete it just now: asked again soon (removal.c) */
    bool peer_agreed;               /* the other site was asked, and agreed that it is deleted */
    bool undurable;                 /* at the last attempt to open it: fsync failed */
    bool closing;                   /* about to be deleted: no new hosts */
    bool has_gate;                  /* requests of hosts wait in `gated` */
    struct sr_gated_list gated;
};
TAILQ_HEAD(sr_volume_list, sr_volume);

struct sr_watch { /* what was told to those who follow events */
    bool known;
    enum sr_sync sync;
    enum sr_verdict verdict;
    enum sr_cause cause;
    enum sr_role role;
    bool serving;
    struct sr_uuid gen;
    bool full; /* the warning of a full pool */
};

struct sr_collection {
    TAILQ_ENTRY(sr_collection) link;
    struct sr_collection *bucket_next;
    struct sr_site *site;
    struct sr_uuid uuid;
    char name[SR_NAME_BYTES];
    struct sr_record loaded; /* from the metadata; the core has the present one */
    bool continues;          /* the core that is started next carries on what this process did: sr_core_config */
    uint32_t n_volumes;
    struct sr_volume **volumes;
    struct sr_uuid *volume_uuids;

    struct sr_core *core; /* NULL: cannot be used, see fault */
    char fault[SR_SITE_TEXT];
    char peer_fault[SR_SITE_TEXT]; /* why the peer's half is not spoken to; "" if it is */

    uv_timer_t timer;
    bool timer_open;
    uint64_t timer_us; /* when the core wants TIME; 0: not at all */
    uint64_t armed_us; /* for when the loop's timer is set, not after timer_us; 0: it is not */

    bool link_up;                                                 /* the core was told LINK_UP */
    bool serving;                                                 /* the core said SERVE */
    uint32_t n_retiring;                                          /* volumes whose hosts are still read */
    bool dead;                                                    /* its core gets no event any more */
    bool suspended;                                               /* ... and another one follows: keep what is open */
    struct sr_core_status shown;                                  /* while suspended */
    uint64_t steady_until_us;                                     /* members change: nothing else is shown until then */
    uint64_t session_floor;                                       /* for the core that is started next */
    bool members_differ;                                          /* on this link: the other site's list is another one */
    uint32_t n_ios, n_commits;                                    /* not answered yet */
    void (*idle_fn)(struct sr_collection *collection, void *arg); /* once, when dead and both are 0 */
    void *idle_arg;
    struct sr_watch watch;
};
TAILQ_HEAD(sr_collection_list, sr_collection);

/* An administrative command given to a core, until its SR_ACT_ADMIN. */
typedef void (*sr_admin_fn)(void *arg, struct sr_collection *collection, enum sr_error error, const char *text);
struct sr_admin {
    STAILQ_ENTRY(sr_admin) link;
    uint64_t id;
    struct sr_collection *collection;
    sr_admin_fn fn;
    void *arg;
    bool answered;
    enum sr_error error;
    char text[200];
};
STAILQ_HEAD(sr_admin_list, sr_admin);

struct sr_postponed;
struct sr_rpc; /* peer_rpc.c */
TAILQ_HEAD(sr_rpc_list, sr_rpc);

struct role_call; /* roles.c */

struct sr_site {
    uv_loop_t *loop;
    struct role_call *role_waits; /* failbacks that wait for in-sync */
    struct sr_config *config;
    struct sr_core_tuning tuning; /* of the daemon: configuration and later Tune commands */
    struct sr_meta *meta;
    struct sr_store_engine *engine;
    struct sr_link *link;
    struct sr_nbd_server *nbd;
    struct sr_control *control;
    struct sr_tls *tls, *nbd_tls;
    struct sr_budget host_budget, peer_budget, resync_budget; /* apart, so that none can starve the others */
    uint64_t started_wall_ms;
    char refusal[SR_SITE_TEXT + 2 * SR_NAME_BYTES]; /* told the host that asks now */

    size_t n_pools;
    struct sr_site_pool pools[SR_CONFIG_POOLS_MAX];
    struct sr_volume_list volumes;
    uint32_t n_volumes;
    struct sr_collection_list collections;
    uint32_t n_collections;
    struct sr_collection *buckets[SR_SITE_BUCKETS];

    /* driver.c */
    struct sr_actions actions;
    bool stepping;
    struct sr_admin_list admins;   /* not answered yet */
    struct sr_admin_list answered; /* their fn is due when the step is over */
    uint64_t next_admin;
    uint8_t random[SR_RANDOM_POOL_BYTES];
    size_t random_left;

    /* link */
    bool link_is_up;
    uint64_t link_number; /* raised each time it comes up */
    bool catalog_wanted;  /* ours is to be sent when no decision is on its way to the disk */
    bool catalog_sent, peer_listed;
    bool exchanged;     /* both catalogues are known: volumes may be created and deleted */
    bool draining;      /* the link waits for the end of the old connection's disk work */
    uint32_t decisions; /* commits of the catalogue on their way */
    struct sr_catalog_volume *peer_volumes, *sent_volumes;
    uint32_t n_peer_volumes, peer_part, n_sent_volumes;
    uint64_t link_since_wall_ms;
    uint64_t peer_features; /* that both sites have; of the last connection */
    char link_error[SR_SITE_TEXT];
    char peer_refusal[SR_SITE_TEXT];
    uv_timer_t watch_timer; /* one shot: the peer has been away for the stall budget */
    bool watch_timer_open;

    /* peer_rpc.c */
    struct sr_rpc_list rpcs;
    uint64_t next_rpc;

    struct sr_postponed *postponed; /* accept.c */
    uv_timer_t retry_timer;         /* removal.c */
    bool retry_timer_open;

    struct sr_move *move;     /* members.c: at most one at a time */
    uv_timer_t members_timer; /* member_peer.c */
    bool members_timer_open;

    bool stopping;
    void *shutdown; /* shutdown.c */
    bool finished;  /* everything was closed and freed */
    bool halted;    /* nothing is acknowledged or sent any more */
    int exit_code;
    void (*stop_fn)(struct sr_site *site); /* main.c: leave the loop */
    void *main;
};

/* ---- table.c: the catalogue in memory ------------------------------------------------------------------ */

struct sr_volume *sr_table_add_volume(struct sr_site *site, const struct sr_meta_volume *meta); /* NULL: no memory */
void sr_table_drop_volume(struct sr_volume *volume); /* closed and without collection */
struct sr_volume *sr_table_volume(struct sr_site *site, const struct sr_uuid *uuid);
struct sr_volume *sr_table_volume_named(struct sr_site *site, const char *name); /* any state */
/* Without members yet; NULL: no memory. */
struct sr_collection *sr_table_add_collection(struct sr_site *site, const struct sr_uuid *uuid, const char *name);
/* Members join and leave while there is no core.  False: no memory. */
bool sr_table_add_member(struct sr_collection *collection, struct sr_volume *volume);
void sr_table_drop_member(struct sr_volume *volume);
/* Its core must have ended (sr_driver_end) or never been. */
void sr_table_drop_collection(struct sr_collection *collection);
struct sr_collection *sr_table_collection(struct sr_site *site, const struct sr_uuid *uuid);
struct sr_collection *sr_table_collection_called(struct sr_site *site, const char *name); /* by its own name */
/* By its name, or by that of a volume in it. */
struct sr_collection *sr_table_collection_named(struct sr_site *site, const char *name);
struct sr_site_pool *sr_table_pool_named(struct sr_site *site, const char *name);

/* ---- pool_memory.c: which pools this site has had ------------------------------------------------------------ */

/* None: never had one of that name.  SR_E_CORRUPT, SR_E_IO: the file cannot be used; text says why. */
enum sr_error sr_pool_memory_find(const struct sr_site *site, const char *name, struct sr_uuid *uuid, char *text,
                                  size_t text_bytes);
/* Durable when it returns OK. */
enum sr_error sr_pool_memory_add(const struct sr_site *site, const char *name, const struct sr_uuid *uuid, char *text,
                                 size_t text_bytes);

/* ---- pool_create.c ------------------------------------------------------------------------------------------------- */

void sr_pool_create(struct sr_site *site, struct sr_control_call *call, const char *name, bool force);

/* ---- driver.c: cores ------------------------------------------------------------------------------------- */

/* Opens the volume's copy if it is not open; blocks. */
enum sr_error sr_driver_open(struct sr_volume *volume, uint32_t lock_wait_ms, char text[SR_SITE_TEXT]);
/* Opens the copy, loads the map and starts the core.  On failure collection->fault says why and core stays NULL.
 * Blocks. */
enum sr_error sr_driver_start(struct sr_collection *collection, uint32_t lock_wait_ms);
/* No event of the collection may follow.  Stops serving; idle_fn is called once nothing is in flight (perhaps at
 * once), with the core freed and the copies closed. */
void sr_driver_end(struct sr_collection *collection, void (*idle_fn)(struct sr_collection *collection, void *arg),
                   void *arg);
/* The same, but a core that carries on follows soon: the copies stay open and hosts stay connected (their requests are
 * to be gated). */
void sr_driver_suspend(struct sr_collection *collection, void (*idle_fn)(struct sr_collection *collection, void *arg),
                       void *arg);
/* Fills in time and random numbers, steps, carries the actions out.  Never from inside itself.  A collection without
 * core or dead swallows the event (and the message with it). */
void sr_driver_step(struct sr_collection *collection, struct sr_event *event);
void sr_driver_admin(struct sr_collection *collection, enum sr_admin_command command, bool force, sr_admin_fn fn,
                     void *arg);
void sr_driver_link(struct sr_collection *collection, bool up); /* tells the core, once */
void sr_driver_retired(struct sr_collection *collection); /* hosts of one more volume are read no more */
void sr_driver_tune(struct sr_site *site);                      /* site->tuning to all cores */
void sr_driver_status(const struct sr_collection *collection, struct sr_core_status *status);
void sr_driver_watch_all(struct sr_site *site); /* time alone may have changed what is shown */
uint64_t sr_driver_now_us(void);
uint64_t sr_driver_wall_ms(void);
/* Stop at once: nothing is acknowledged, sent or committed after that. */
void sr_driver_halt(struct sr_site *site, const char *text);
bool sr_driver_peer_work(const struct sr_site *site); /* is disk work in flight that the peer may have asked for? */

/* ---- hosts.c --------------------------------------------------------------------------------------------- */

enum sr_error sr_hosts_start(struct sr_site *site, char *text, size_t text_bytes);
enum sr_error sr_hosts_load_tls(struct sr_site *site, const struct sr_config *config, char *text, size_t text_bytes);
void sr_hosts_reply(struct sr_site *site, uint64_t id, enum sr_error error);
void sr_hosts_drop(struct sr_volume *volume);
void sr_hosts_gate(struct sr_volume *volume, bool on); /* requests wait; off: they go to the core that is there then */
void sr_hosts_retire(struct sr_volume *volume); /* see sr_nbd_retire_export; ends with sr_driver_retired */

/* ---- catalog.c, catalog_peer.c, removal.c, reconcile.c ------------------------------------------------------ */

struct sr_create {
    const char *name, *pool, *peer_pool, *import_path;
    uint64_t size_bytes;
    bool preallocate;
    bool peer_active;
    bool write_back;
};
void sr_catalog_create(struct sr_site *site, struct sr_control_call *call, const struct sr_create *create);
void sr_catalog_delete(struct sr_site *site, struct sr_control_call *call, struct sr_volume *volume, bool forced);
void sr_catalog_request(struct sr_site *site, const struct sr_volume_rpc *request); /* of the peer */
void sr_catalog_link_down(struct sr_site *site);
/* A commit of the catalogue that the other site must not be told before it is durable. */
void sr_catalog_commit(struct sr_site *site, const struct sr_meta_change *change, sr_meta_done_fn done, void *arg);

/* import_twice.c: the volume whose copy it is already, NULL: none.  Blocks. */
const struct sr_volume *sr_import_twice(const struct sr_site *site, const char *path);

typedef void (*sr_removed_fn)(void *arg, enum sr_error error, const char *text);
/* Ends the volume at this site, for good: tombstone if it is LIVE, image, record.  fn (may be NULL) is called once
 * this site has nothing left but perhaps the tombstone that waits for the peer (SR_OK), or cannot go on (the error).
 * Whatever happens, the next start goes on with it. */
void sr_removal_start(struct sr_volume *volume, sr_removed_fn fn, void *arg);
void sr_removal_peer_gone(struct sr_volume *volume); /* the tombstone may go */
bool sr_removal_running(const struct sr_volume *volume);
/* Nobody stays unanswered when it is over: fn is called like that of sr_removal_start.  False: none is running. */
bool sr_removal_join(struct sr_volume *volume, sr_removed_fn fn, void *arg);

void sr_reconcile_send(struct sr_site *site); /* our catalogue, as soon as it may be */
void sr_reconcile_part(struct sr_site *site, const struct sr_site_catalog *catalog);
void sr_reconcile_reset(struct sr_site *site);
void sr_reconcile_members(struct sr_site *site); /* settles once more what could not be settled when the sites met */

/* ---- peer_rpc.c ----------------------------------------------------------------------------------------- */

typedef void (*sr_rpc_fn)(void *arg, enum sr_error error, const struct sr_volume_rpc *reply);
/* fn is called exactly once, never from inside: with the reply, or with SR_E_UNREACHABLE when the link goes down
 * (reply NULL).  request is copied. */
void sr_rpc_call(struct sr_site *site, const struct sr_volume_rpc *request, sr_rpc_fn fn, void *arg);
void sr_rpc_reply(struct sr_site *site, const struct sr_volume_rpc *request, enum sr_error error, const char *text);
void sr_rpc_on_reply(struct sr_site *site, const struct sr_volume_rpc *reply);
void sr_rpc_link_down(struct sr_site *site);

/* ---- link_events.c -------------------------------------------------------------------------------------- */

enum sr_error sr_link_events_start(struct sr_site *site, char *text, size_t text_bytes);
void sr_link_events_send(struct sr_site *site, const struct sr_uuid *collection,
                         struct sr_peer_msg *msg);                            /* takes msg */
void sr_link_events_send_site(struct sr_site *site, struct sr_site_msg *msg); /* takes msg */
void sr_link_events_fault(struct sr_site *site, const char *text);
void sr_link_events_watch_in(struct sr_site *site, uint64_t ms); /* looks then at what is shown, unless it will anyway */
void sr_link_events_work_ended(struct sr_site *site); /* disk work that the peer may have asked for has ended */
void sr_link_events_close(struct sr_site *site, void (*closed)(void *arg), void *arg);
struct sr_link_view {
    Syncrep__Control__LinkState state;
    uint64_t rtt_us, reconnects;
    bool tls;
    char peer_address[80];
    char last_error[SR_SITE_TEXT];
};
void sr_link_events_view(struct sr_site *site, struct sr_link_view *view);
enum sr_error sr_link_events_load_tls(struct sr_site *site, const struct sr_config *config, char *text,
                                      size_t text_bytes);

/* ---- commands.c, status_fill.c, replace.c, reload.c
 * ------------------------------------------------------------------- */

enum sr_error sr_commands_start(struct sr_site *site, char *text, size_t text_bytes);
void sr_commands_watch(struct sr_collection *collection); /* after a step: tells followers and waiters what changed */
/* By name; NULL: the call was answered with "not found". */
struct sr_collection *sr_commands_find(struct sr_site *site, struct sr_control_call *call, const char *name);
void sr_status_request(struct sr_site *site, struct sr_control_call *call, const Syncrep__Control__Request *req);
const char *sr_status_next_command(const struct sr_collection *collection, const struct sr_core_status *status,
                                   char *out, size_t out_bytes);
void sr_status_shown(const struct sr_collection *collection, struct sr_core_status *status); /* for people */
/* What an operator should know although hosts are served and copies may be in sync: the pool is full here; "" if it is not. */
const char *sr_status_warning(const struct sr_collection *collection, const struct sr_core_status *status, char *out,
                              size_t out_bytes);
const char *sr_sync_word(enum sr_sync sync);
const char *sr_made_by_word(enum sr_made_by made_by);
uint64_t sr_status_synced_wall_ms(const struct sr_core_status *status); /* now, if in sync; 0: never known */
const char *sr_verdict_word(enum sr_verdict verdict);
void sr_replace(struct sr_collection *collection, struct sr_control_call *call, bool force);
/* certificates.c: those that the configuration names, in addition to what sr_config_load checks.  False: faults were added. */
bool sr_certificates_check(const struct sr_config *config, struct sr_config_faults *faults);
/* Reads the configuration again; a faulty one changes nothing.  text says what became of it. */
enum sr_error sr_reload(struct sr_site *site, char *text, size_t text_bytes);

/* ---- roles.c: the verbs that move the active role ----------------------------------------------------------------- */

void sr_roles_switchover(struct sr_site *site, struct sr_control_call *call,
                         const Syncrep__Control__SwitchoverRequest *req);
void sr_roles_failover(struct sr_site *site, struct sr_control_call *call,
                       const Syncrep__Control__FailoverRequest *req);
void sr_roles_resolve(struct sr_site *site, struct sr_control_call *call, const Syncrep__Control__ResolveRequest *req);
void sr_roles_request(struct sr_site *site, const struct sr_volume_rpc *request); /* of the peer */

/* A site that is to be active, as far as is known here. */
enum sr_target {
    SR_TARGET_ACTIVE,     /* it is */
    SR_TARGET_ARRIVING,   /* the role is on its way to it, which is this site */
    SR_TARGET_LEAVING,    /* the role is on its way from it, which is this site */
    SR_TARGET_NOT_SERVED, /* it is this one, active, but not known to be the only one: not served */
    SR_TARGET_CONFLICT,
    SR_TARGET_UNKNOWN, /* neither site is known to be active */
    SR_TARGET_MOVES    /* the other one is active, or the role is on its way: a switchover moves it, or joins in */
};
enum sr_target sr_roles_target(const struct sr_core_status *status, bool to_here);
/* Connected, and yet never in sync before an administrator has done something: no use in waiting for that. */
bool sr_roles_waits_for_somebody(const struct sr_core_status *status);
/* A failback waits for in-sync: to this site (1) or the other (0); -1: none. */
int sr_roles_pending(const struct sr_collection *collection);

/* ---- members.c: volumes join and leave collections --------------------------------------------------------------- */

#define SR_MEMBERS_BUSY "%.64s: its members are just being changed: try again"

void sr_members_create(struct sr_site *site, struct sr_control_call *call, const char *name, const char *volume);
void sr_members_add(struct sr_site *site, struct sr_control_call *call, const char *name, const char *volume);
void sr_members_remove(struct sr_site *site, struct sr_control_call *call, const char *name, const char *volume);
void sr_members_dissolve(struct sr_site *site, struct sr_control_call *call, const char *name);
void sr_members_request(struct sr_site *site, const struct sr_volume_rpc *request); /* of the peer */
/* At a contact: the other site has the volume in a collection that this one knows as pending: it is moved there. */
void sr_members_adopt(struct sr_volume *volume);
/* ... or cannot be, since this site was made active: the other one is asked to move it back. */
void sr_members_ask_yield(struct sr_volume *volume);
bool sr_members_busy(const struct sr_volume *volume); /* its collection is just being changed */
/* ... and its core ends, or has ended: commands are refused for a moment. */
bool sr_members_changing(const struct sr_collection *collection);
void sr_members_keep_steady(struct sr_collection *collection); /* what people see, for at most a second */
void sr_members_forget_pending(struct sr_volume *volume); /* the other site did not move it */

/* ---- startup.c, shutdown.c ---------------------------------------------------------------------------------- */

/* Everything up to and including the listeners.  *exit_code is set on failure; text names the cause. */
enum sr_error sr_startup(struct sr_site *site, int *exit_code, char *text, size_t text_bytes);
/* Ends cleanly within SR_STOP_DEADLINE_MS; then site->stop_fn. */
void sr_shutdown_begin(struct sr_site *site);
/* After the loop was left, whatever state things are in. */
void sr_shutdown_finish(struct sr_site *site);

#endif
