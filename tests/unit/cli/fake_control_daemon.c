/* fake_control_daemon.c - the real control server with canned answers behind it, for tests of syncrepctl.
 *
 *   fake_control_daemon SOCKET [NAME:VERDICT]...     VERDICT: protected, exposed, resyncing, offline
 *
 * Prints "ready" once it listens; ends at SIGTERM.  What a request does depends on the name in it:
 *   refused, force, peerdown, nospace, ioerror, exists, invalid, handing   that error (force: unless forced)
 *   slow      not answered              never     a wait that is never over
 *   late      answered after 100 ms     deleted   a wait that fails
 *   one of the NAMEs                    done      anything else: not found (create: made)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#include "control/control.h"
#include "control/tune.h"

#define ITEMS_MAX 1000

struct item {
    char name[80];
    char verdict[16];
    bool paused;
};

static struct item items[ITEMS_MAX];
static size_t n_items;
static struct sr_control *control;
static uv_timer_t late_timer;
static struct sr_control_call *late_call, *slow_calls[256];
static size_t n_slow;
static uv_signal_t term;

static struct item *find(const char *name)
{
    for (size_t i = 0; i < n_items; i++)
        if (strcmp(items[i].name, name) == 0)
            return &items[i];
    return NULL;
}

static void add(const char *name, const char *verdict)
{
    if (n_items == ITEMS_MAX)
        abort();
    snprintf(items[n_items].name, sizeof(items[0].name), "%s", name);
    snprintf(items[n_items++].verdict, sizeof(items[0].verdict), "%s", verdict);
}

/* ---- answers that show something ---- */

static void fill_volume(Syncrep__Control__Volume *v, const struct item *item)
{
    syncrep__control__volume__init(v);
    v->name = (char *)item->name;
    v->uuid = (char *)"0f0e0d0c-0b0a-4908-8706-050403020100";
    v->collection = (char *)item->name;
    v->state = (char *)"live";
    v->size_bytes = UINT64_C(64) << 40;
    v->pool = (char *)"main";
    v->path = (char *)"/srv/pool/with \"quotes\"\n\x1b[31m and \xff bytes.img";
    v->connections = 2;
    v->allocated_bytes = 12345678901234;
}

struct full {
    Syncrep__Control__Collection c;
    Syncrep__Control__Volume v;
    Syncrep__Control__Volume *volumes[1];
    Syncrep__Control__Resync r;
    Syncrep__Control__Counters k;
};

static void fill_collection(struct full *f, const struct item *item)
{
    bool exposed = strcmp(item->verdict, "exposed") == 0, resyncing = strcmp(item->verdict, "resyncing") == 0;
    bool offline = strcmp(item->verdict, "offline") == 0;

    syncrep__control__collection__init(&f->c);
    syncrep__control__resync__init(&f->r);
    syncrep__control__counters__init(&f->k);
    fill_volume(&f->v, item);
    f->volumes[0] = &f->v;
    f->c.volumes = f->volumes;
    f->c.n_volumes = 1;
    f->c.name = (char *)item->name;
    f->c.uuid = (char *)"10111213-1415-4617-9819-1a1b1c1d1e1f";
    f->c.generation = (char *)"20212223-2425-4627-a829-2a2b2c2d2e2f";
    f->c.site = (char *)"london";
    f->c.peer_site = (char *)"paris";
    f->c.role = SYNCREP__CONTROL__ROLE__ROLE_ACTIVE;
    f->c.peer_role = SYNCREP__CONTROL__ROLE__ROLE_ALTERNATE;
    f->c.mode = (char *)"MIRRORING";
    f->c.sync = SYNCREP__CONTROL__SYNC__SYNC_IN_SYNC;
    f->c.verdict = SYNCREP__CONTROL__VERDICT__VERDICT_PROTECTED;
    f->c.serving = !offline;
    f->c.resync = &f->r;
    f->c.counters = &f->k;
    if (exposed || offline || resyncing) {
        f->c.sync = SYNCREP__CONTROL__SYNC__SYNC_OUT_OF_SYNC;
        f->c.verdict =
            offline ? SYNCREP__CONTROL__VERDICT__VERDICT_OFFLINE : SYNCREP__CONTROL__VERDICT__VERDICT_EXPOSED;
        f->c.cause = (char *)(resyncing ? "resyncing" : "peer-unreachable");
        f->c.detail = (char *)(resyncing ? "blocks written during the outage are being copied"
                                         : "paris has not answered since 02:14");
        f->c.next_command = (char *)(resyncing ? "syncrepctl wait vm1 --for in-sync" : "systemctl status syncrepd");
        f->c.dirty_blocks = 3328;
        f->c.dirty_bytes = 3328 * 4096;
        f->r.running = resyncing;
        f->r.done_blocks = 1672;
        f->r.total_blocks = 5000;
        f->r.bytes_per_s = 4 << 20;
        f->r.eta_known = true;
        f->r.eta_s = 65;
    }
    if (item->paused) {
        f->c.sync = SYNCREP__CONTROL__SYNC__SYNC_PAUSED;
        f->c.verdict = SYNCREP__CONTROL__VERDICT__VERDICT_EXPOSED;
    }
}

static void fill_pool(Syncrep__Control__Pool *pool)
{
    syncrep__control__pool__init(pool);
    pool->name = (char *)"main";
    pool->directory = (char *)"/srv/pool";
    pool->state = SYNCREP__CONTROL__POOL_STATE__POOL_OK;
    pool->free_bytes = UINT64_C(3) << 30;
    pool->total_bytes = UINT64_C(10) << 30;
    pool->volumes = (uint32_t)n_items;
}

static void show(struct sr_control_call *call, Syncrep__Control__Response__BodyCase body, const struct item *only)
{
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    Syncrep__Control__Status status = SYNCREP__CONTROL__STATUS__INIT;
    Syncrep__Control__Link link = SYNCREP__CONTROL__LINK__INIT;
    Syncrep__Control__VolumeList volumes = SYNCREP__CONTROL__VOLUME_LIST__INIT;
    Syncrep__Control__CollectionList list = SYNCREP__CONTROL__COLLECTION_LIST__INIT;
    Syncrep__Control__Pool pool, *pools[1] = {&pool};
    size_t n = only ? 1 : n_items;
    struct full *full = calloc(n + 1, sizeof(*full));
    Syncrep__Control__Collection **cs = calloc(n + 1, sizeof(*cs));
    Syncrep__Control__Volume **vs = calloc(n + 1, sizeof(*vs));

    for (size_t i = 0; i < n; i++) {
        fill_collection(&full[i], only ? only : &items[i]);
        cs[i] = &full[i].c;
        vs[i] = &full[i].v;
    }
    fill_pool(&pool);
    link.state = SYNCREP__CONTROL__LINK_STATE__LINK_UP;
    link.tls = true;
    link.rtt_us = 213;
    status.site = volumes.site = list.site = (char *)"london";
    status.peer = (char *)"paris";
    status.link = &link;
    status.pools = pools;
    status.n_pools = 1;
    status.engine = (char *)"io_uring";
    status.daemon_version = (char *)"0.1.0";
    status.collections = list.collections = cs;
    status.n_collections = list.n_collections = n;
    volumes.volumes = vs;
    volumes.n_volumes = n;
    response.body_case = body;
    if (body == SYNCREP__CONTROL__RESPONSE__BODY_STATUS)
        response.status = &status;
    else if (body == SYNCREP__CONTROL__RESPONSE__BODY_VOLUMES)
        response.volumes = &volumes;
    else
        response.collections = &list;
    sr_control_reply(call, &response, true);
    free(full);
    free(cs);
    free(vs);
}

static void show_pools(struct sr_control_call *call)
{
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    Syncrep__Control__PoolList list = SYNCREP__CONTROL__POOL_LIST__INIT;
    Syncrep__Control__Pool pool, *pools[1] = {&pool};

    fill_pool(&pool);
    list.site = (char *)"london";
    list.pools = pools;
    list.n_pools = 1;
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_POOLS;
    response.pools = &list;
    sr_control_reply(call, &response, true);
}

/* ---- answers by name ---- */

static void on_late(uv_timer_t *timer)
{
    (void)timer;
    struct sr_control_call *call = late_call;
    late_call = NULL;
    sr_control_reply_done(call, "late", NULL, "late: done");
}

/* True: answered (or never will be). */
static bool canned(struct sr_control_call *call, const char *name, const char *force)
{
    static const struct {
        const char *name;
        enum sr_error error;
    } errors[] = {{"refused", SR_E_REFUSED}, {"peerdown", SR_E_UNREACHABLE}, {"nospace", SR_E_NO_SPACE},
                  {"ioerror", SR_E_IO},      {"exists", SR_E_EXISTS},        {"invalid", SR_E_INVALID}, {"handing", SR_E_TIMEOUT}};

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (strcmp(name, errors[i].name) == 0) {
            sr_control_reply_error(call, errors[i].error, name, "syncrepctl status", "%s: %s", name,
                                   sr_error_text(errors[i].error));
            return true;
        }
    }
    if (strcmp(name, "force") == 0 && strcmp(force, "force") != 0) {
        sr_control_reply_error(call, SR_E_NEEDS_FORCE, name, NULL, "force: its data would be lost");
        return true;
    }
    if (strcmp(name, "late") == 0) {
        late_call = call;
        uv_timer_start(&late_timer, on_late, 100, 0);
        return true;
    }
    if (strcmp(name, "slow") != 0)
        return false;
    slow_calls[n_slow++ % 256] = call; /* the server takes no more than these */
    return true;
}

static void tune(struct sr_control_call *call, const Syncrep__Control__TuneRequest *request)
{
    enum sr_tune_key key;
    uint64_t number;
    char text[200];

    if (sr_tune_parse(request->key, request->value, &key, &number, text, sizeof(text)) != SR_OK)
        sr_control_reply_error(call, SR_E_INVALID, request->key, "syncrepctl tune --help", "%s", text);
    else
        sr_control_reply_done(call, request->key, NULL, "%s is now %llu", request->key, (unsigned long long)number);
}

/* Pause, resume, replace, delete. */
static void change(struct sr_control_call *call, const Syncrep__Control__Request *request, const char *name)
{
    struct item *item = find(name);

    if (!item && strcmp(name, "force") != 0 && strcmp(name, "never") != 0) {
        sr_control_reply_error(call, SR_E_NOT_FOUND, name, "syncrepctl status", "no collection '%s'", name);
        return;
    }
    if (item)
        item->paused = request->op_case == SYNCREP__CONTROL__REQUEST__OP_PAUSE;
    sr_control_state_changed(control);
    sr_control_emit(control, SR_LOG_NOTICE, "sync", name, 1700000000000, "%s", sr_control_op_name(request->op_case));
    sr_control_reply_done(call, name, NULL, "%s: %s", name, sr_control_op_name(request->op_case));
}

/* ---- plans ---- */

static void fill_sides(Syncrep__Control__PlanSide *here, Syncrep__Control__PlanSide *there, bool conflict)
{
    syncrep__control__plan_side__init(here);
    syncrep__control__plan_side__init(there);
    here->site = (char *)"london";
    here->known = true;
    here->role = SYNCREP__CONTROL__ROLE__ROLE_ACTIVE;
    here->consistent = true;
    here->made_by = (char *)"created";
    there->site = (char *)"paris";
    if (!conflict)
        return;
    *there = *here;
    there->site = (char *)"paris";
    there->made_by = (char *)"failover";
    there->dirty_blocks = 8;
    there->dirty_bytes = 8 * 4096;
    there->lost = (char *)"8 blocks (32 KiB) that hosts wrote at paris since the copies parted";
}

/* A name that is an error is one in the plan, too.  True: answered. */
static bool planned(struct sr_control_call *call, const Syncrep__Control__Request *request, const char *name,
                    const char *force)
{
    bool failover = request->op_case == SYNCREP__CONTROL__REQUEST__OP_FAILOVER;
    bool resolve = request->op_case == SYNCREP__CONTROL__REQUEST__OP_RESOLVE;
    bool switchover = request->op_case == SYNCREP__CONTROL__REQUEST__OP_SWITCHOVER;
    enum sr_error error = strcmp(name, "refused") == 0    ? SR_E_REFUSED
                          : strcmp(name, "peerdown") == 0 ? SR_E_UNREACHABLE
                          : strcmp(name, "force") == 0    ? SR_E_NEEDS_FORCE
                                                          : SR_OK;
    Syncrep__Control__Response response = SYNCREP__CONTROL__RESPONSE__INIT;
    Syncrep__Control__Plan plan = SYNCREP__CONTROL__PLAN__INIT;
    Syncrep__Control__PlanSide sides[2], *list[2] = {&sides[0], &sides[1]};

    if (!(switchover && request->switchover->plan) && !(failover && request->failover->plan) &&
        !(resolve && request->resolve->plan))
        return false;
    if (!find(name) && error == SR_OK)
        return false;
    if (force[0])
        error = SR_OK;
    fill_sides(&sides[0], &sides[1], resolve);
    plan.name = (char *)name;
    plan.command = (char *)(switchover ? "switchover" : failover ? "failover" : "resolve");
    plan.possible = error == SR_OK;
    plan.exit = sr_control_exit_class(error);
    plan.code = (char *)(error == SR_OK ? "" : sr_error_name(error));
    plan.reason = (char *)(error == SR_OK ? "" : sr_error_text(error));
    plan.sides = list;
    plan.n_sides = 2;
    plan.peer_answered = plan.connected = switchover || resolve;
    plan.pause_estimate_us = switchover ? 4200 : 0;
    plan.may_be_lost = (char *)(failover ? "whatever hosts wrote at paris after it went on alone" : "");
    plan.hint = (char *)"syncrepctl status vm1";
    response.body_case = SYNCREP__CONTROL__RESPONSE__BODY_PLAN;
    response.plan = &plan;
    sr_control_reply(call, &response, true);
    return true;
}

static void on_request(void *arg, struct sr_control_call *call, const Syncrep__Control__Request *request)
{
    const char *name = sr_control_op_object(request), *force = "";

    (void)arg;
    if (request->op_case == SYNCREP__CONTROL__REQUEST__OP_VOLUME_DELETE)
        force = request->volume_delete->force_name;
    if (request->op_case == SYNCREP__CONTROL__REQUEST__OP_REPLACE)
        force = request->replace->force_name;
    if (request->op_case == SYNCREP__CONTROL__REQUEST__OP_FAILOVER)
        force = request->failover->force_name;
    if (planned(call, request, name, force) || canned(call, name, force))
        return;
    switch (request->op_case) {
    case SYNCREP__CONTROL__REQUEST__OP_STATUS:
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_SHOW:
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW:
        if (name[0] && !find(name)) {
            sr_control_reply_error(call, SR_E_NOT_FOUND, name, "syncrepctl status", "no volume '%s'", name);
            return;
        }
        show(call,
             request->op_case == SYNCREP__CONTROL__REQUEST__OP_STATUS ? SYNCREP__CONTROL__RESPONSE__BODY_STATUS
             : request->op_case == SYNCREP__CONTROL__REQUEST__OP_VOLUME_SHOW
                 ? SYNCREP__CONTROL__RESPONSE__BODY_VOLUMES
                 : SYNCREP__CONTROL__RESPONSE__BODY_COLLECTIONS,
             name[0] ? find(name) : NULL);
        return;
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_LIST:
        show(call, SYNCREP__CONTROL__RESPONSE__BODY_VOLUMES, NULL);
        return;
    case SYNCREP__CONTROL__REQUEST__OP_COLLECTION_LIST:
        show(call, SYNCREP__CONTROL__RESPONSE__BODY_COLLECTIONS, NULL);
        return;
    case SYNCREP__CONTROL__REQUEST__OP_POOL_LIST:
        show_pools(call);
        return;
    case SYNCREP__CONTROL__REQUEST__OP_VOLUME_CREATE:
        if (strcmp(name, "never") != 0)
            add(name, "protected");
        sr_control_reply_done(call, name, NULL, "volume '%s' made", name);
        return;
    case SYNCREP__CONTROL__REQUEST__OP_TUNE:
        tune(call, request->tune);
        return;
    case SYNCREP__CONTROL__REQUEST__OP_RELOAD:
        sr_control_reply_done(call, "", NULL, "configuration read");
        return;
    default:
        change(call, request, name);
    }
}

static enum sr_control_wait on_wait(void *arg, const char *name, Syncrep__Control__Condition condition,
                                    struct sr_control_wait_info *info)
{
    const struct item *item = find(name);

    (void)arg;
    if (strcmp(name, "never") == 0) {
        snprintf(info->text, sizeof(info->text), "it is out-of-sync (peer-unreachable)");
        return SR_CONTROL_WAIT_PENDING;
    }
    if (!item && name[0]) {
        info->error = SR_E_NOT_FOUND;
        snprintf(info->text, sizeof(info->text), "no collection '%s'", name);
        return SR_CONTROL_WAIT_FAILED;
    }
    bool paused = item && item->paused;
    if (condition == SYNCREP__CONTROL__CONDITION__CONDITION_PAUSED)
        return paused ? SR_CONTROL_WAIT_DONE : SR_CONTROL_WAIT_PENDING;
    return paused ? SR_CONTROL_WAIT_PENDING : SR_CONTROL_WAIT_DONE;
}

static void on_term(uv_signal_t *signal, int number)
{
    (void)number;
    uv_close((uv_handle_t *)signal, NULL);
    uv_close((uv_handle_t *)&late_timer, NULL);
    sr_control_close(control, NULL, NULL);
}

int main(int argc, char **argv)
{
    struct sr_control_options options = {.path = argv[1], .site = "london", .group = (gid_t)-1, .stuck_ms = 1000};
    struct sr_control_callbacks callbacks = {.request = on_request, .wait_check = on_wait};
    char error_text[300];

    for (int i = 2; i < argc; i++) {
        char *colon = strchr(argv[i], ':');
        if (!colon)
            return 2;
        *colon = '\0';
        if (strncmp(argv[i], "many", 4) == 0) {
            for (int k = 0; k < atoi(colon + 1); k++) {
                char name[80];
                snprintf(name, sizeof(name), "a-rather-long-name-of-a-volume-%04d", k);
                add(name, "protected");
            }
        } else {
            add(argv[i], colon + 1);
        }
    }
    uv_timer_init(uv_default_loop(), &late_timer);
    uv_signal_init(uv_default_loop(), &term);
    uv_signal_start(&term, on_term, SIGTERM);
    if (argc < 2 || sr_control_open(uv_default_loop(), &options, &callbacks, NULL, &control, error_text,
                                    sizeof(error_text)) != SR_OK) {
        fprintf(stderr, "%s\n", error_text);
        return 1;
    }
    sr_control_emit(control, SR_LOG_NOTICE, "daemon", "", 1700000000000, "started");
    sr_control_emit(control, SR_LOG_WARNING, "link", "paris", 1700000001000, "the peer is unreachable");
    puts("ready");
    fflush(stdout);
    uv_run(uv_default_loop(), UV_RUN_DEFAULT);
    for (size_t i = 0; i < n_slow; i++)
        sr_control_reply_error(slow_calls[i], SR_E_SHUTDOWN, "slow", NULL, "too late");
    return uv_loop_close(uv_default_loop()) == 0 ? 0 : 1;
}
