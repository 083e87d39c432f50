/* Two cores and the executable model, over random pairs of records that tests/model/export_pairs.py writes:
 *
 *     tests/model/export_pairs.py --seed 7 | test_core_pairs
 *
 * For each pair both cores start with the two records, are connected, and carry out the handshake up to STARTED:
 * decision, who serves, both records and the map of the leader must be those of the model, and so must the pure
 * functions of core/lineage.h.  The driver here completes commits at once and never a disk operation, so nothing is
 * copied.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/core.h"

#define N_REGIONS 3u /* two that the model knows as its blocks, and one that differs only when everything does */
#define NEW       99 /* how the model shows a generation that was made after the start */
#define QUEUE_MAX 64u
#define PAIRS_MIN 20000u
#define SHOWN_MAX 320u
#define FIELDS    7 /* of a line, see export_pairs.py */

static const uint64_t block_of[2] = {5, SR_REGION_BLOCKS + 9}; /* in the volume, of the model's blocks */

/* What is durable of a map. */
struct map {
    bool everything, dirty[2];
};

struct site {
    struct sr_core *core;
    struct sr_actions actions;
    struct sr_record record; /* durable */
    struct map map;
    struct sr_commit *flying;
    struct sr_peer_msg *queue[QUEUE_MAX]; /* to this site */
    uint32_t head, n;
    bool serving, led, gave_up; /* led: it sent START */
    struct sr_record at_start;  /* durable then */
    struct map map_at_start;
};

static unsigned long line_number, n_new;
static const char *the_line;
static char seed[80];

static void mismatch(const char *what, const char *core, const char *model)
{
    fprintf(stderr, "line %lu (%s): %s\n  pair  %s\n  core  %s\n  model %s\n", line_number, seed, what, the_line,
            core, model);
    exit(1);
}

/* ---- a record as the model shows it ------------------------------------------------------------------------------
 */

static struct sr_uuid gen_of(int number)
{
    struct sr_uuid uuid = {{0}};
    uuid.b[15] = (uint8_t)number;
    return uuid;
}

static struct sr_uuid fresh(void)
{
    struct sr_uuid uuid = {{0xff}};
    n_new++;
    memcpy(&uuid.b[4], &n_new, sizeof n_new);
    return uuid;
}

static int number_of(const struct sr_uuid *gen)
{
    return gen->b[0] == 0xff ? NEW : gen->b[15];
}

static enum sr_made_by made_by_of(const char *word)
{
    return strcmp(word, "created") == 0    ? SR_MADE_CREATED
           : strcmp(word, "alone") == 0    ? SR_MADE_ALONE
           : strcmp(word, "failover") == 0 ? SR_MADE_FAILOVER
                                           : SR_MADE_FORCED;
}

static void parse(const char *text, struct sr_record *r, struct map *map)
{
    char role[16], made_by[16], ancestors[64], discard[16], dirty[4];
    int gen, base, consistent, failed, completing, handover, counter, paused, mine, theirs;
    const char *why;

    memset(r, 0, sizeof *r);
    if (sscanf(text, "%15s %d %15s %d %63s %d %d %d %d %15s %d:%d %3s", role, &gen, made_by, &base, ancestors,
               &consistent, &failed, &completing, &handover, discard, &counter, &paused, dirty) != 13)
        mismatch("cannot be read", text, "");
    r->role = strcmp(role, "active") == 0 ? SR_ROLE_ACTIVE : SR_ROLE_ALTERNATE;
    r->gen = gen_of(gen);
    r->made_by = made_by_of(made_by);
    r->base_kind = base == 0 ? SR_BASE_NONE : base < 0 ? SR_BASE_UNKNOWN : SR_BASE_KNOWN;
    if (base > 0)
        r->base = gen_of(base);
    for (char *part = strtok(ancestors, ","); part && *part != '-'; part = strtok(NULL, ","))
        r->ancestors[r->n_ancestors++] = gen_of(atoi(part));
    r->consistent = consistent;
    r->failed = failed;
    r->completing = completing;
    r->handover = handover;
    r->pause_counter = (uint64_t)counter;
    r->paused = paused;
    if (sscanf(discard, "%d:%d", &mine, &theirs) == 2) {
        r->discard = true;
        r->discard_mine = gen_of(mine);
        r->discard_peer = gen_of(theirs);
    }
    if (!sr_record_valid(r, &why))
        mismatch("the model's record is not a valid one", why, text);
    *map = (struct map){.everything = base < 0, .dirty = {dirty[0] == '1', dirty[1] == '1'}};
}

static const char *show(char text[SHOWN_MAX], const struct sr_record *r, const struct map *map)
{
    static const char *const made_by[] = {"created", "alone", "failover", "forced"};
    char ancestors[128] = "-", discard[32] = "-";

    for (uint32_t i = 0, at = 0; i < r->n_ancestors; i++)
        at +=
            (uint32_t)snprintf(ancestors + at, sizeof ancestors - at, i ? ",%d" : "%d", number_of(&r->ancestors[i]));
    if (r->discard)
        snprintf(discard, sizeof discard, "%d:%d", number_of(&r->discard_mine), number_of(&r->discard_peer));
    snprintf(text, SHOWN_MAX, "%s %d %s %d %s %d %d %d %d %s %llu:%d %d%d",
             r->role == SR_ROLE_ACTIVE ? "active" : "alternate", number_of(&r->gen), made_by[r->made_by],
             r->base_kind == SR_BASE_UNKNOWN ? -1 : number_of(&r->base), ancestors, r->consistent, r->failed,
             r->completing, r->handover, discard, (unsigned long long)r->pause_counter, r->paused,
             map->everything || map->dirty[0], map->everything || map->dirty[1]);
    return text;
}

/* ---- a driver: commits are durable at once, disks never answer
 * ------------------------------------------------------ */

static void set_region(struct map *map, uint32_t region, const uint8_t *bits)
{
    if (region < 2)
        map->dirty[region] = bits && (bits[block_of[region] % SR_REGION_BLOCKS / 8] >> (block_of[region] % 8) & 1);
}

static void apply(struct site *me, const struct sr_commit *commit)
{
    for (uint32_t i = 0; i < commit->n_ops; i++) {
        const struct sr_meta_op *op = &commit->ops[i];
        if (op->type == SR_META_REGION)
            set_region(&me->map, op->region, commit->maps[op->map]);
        else if (op->type == SR_META_CLEAN)
            set_region(&me->map, op->region, NULL);
        else if (op->type == SR_META_FROM)
            me->map.everything = op->block == 0;
        else if (op->type == SR_META_CLEAR)
            me->map = (struct map){false, {false, false}};
    }
    if (commit->has_record)
        me->record = commit->record;
}

static void carry_out(struct site *pair, unsigned site)
{
    struct site *me = &pair[site], *peer = &pair[!site];

    sr_core_check(me->core);
    for (uint32_t i = 0; i < me->actions.n; i++) {
        struct sr_action *action = &me->actions.list[i];
        if (action->type == SR_ACT_COMMIT) {
            me->flying = action->commit;
        } else if (action->type == SR_ACT_SERVE) {
            me->serving = action->serve;
        } else if (action->type == SR_ACT_SEND) {
            if (action->msg->type == SR_MSG_START) {
                me->led = true;
                me->at_start = me->record;
                me->map_at_start = me->map;
            }
            if (peer->n == QUEUE_MAX)
                mismatch("messages without end", sr_peer_msg_name(action->msg->type), "");
            peer->queue[(peer->head + peer->n++) % QUEUE_MAX] = action->msg;
        } else if (action->type == SR_ACT_LINK_FAULT || action->type == SR_ACT_HALT) {
            mismatch("a core complains", action->text, "");
        }
    }
}

static void step(struct site *pair, unsigned site, struct sr_event *event)
{
    event->now_us = 1000000;
    event->random = fresh();
    sr_core_step(pair[site].core, event, &pair[site].actions);
    carry_out(pair, site);
}

static bool move_on(struct site *pair, unsigned site)
{
    struct site *me = &pair[site];
    struct sr_event event = {.type = SR_EV_META_DONE};

    if (me->flying) {
        event.meta.commit = me->flying->commit;
        apply(me, me->flying);
        me->flying = NULL;
    } else if (me->n) {
        event = (struct sr_event){.type = SR_EV_PEER_MSG, .msg = me->queue[me->head]};
        me->head = (me->head + 1) % QUEUE_MAX;
        me->n--;
    } else {
        return false;
    }
    step(pair, site, &event);
    return true;
}

static void start(struct site *pair, unsigned site, const struct sr_record *record, const struct map *map)
{
    static struct sr_budget budgets[2];
    struct site *me = &pair[site];
    struct sr_core_volume volume = {.uuid = gen_of(200), .size_bytes = N_REGIONS * SR_REGION_BYTES};
    struct sr_core_config config = {.tuning = {.stall_budget_ms = 5000,
                                               .hot_regions_max = 16,
                                               .cool_after_ms = 1000,
                                               .retry_min_ms = 1000,
                                               .retry_max_ms = 1000,
                                               .resync_parallel = 4,
                                               .resync_min_bytes_per_s = SR_MIB,
                                               .resync_latency_factor_percent = 200},
                                    .n_volumes = 1,
                                    .volumes = &volume,
                                    .budget = &budgets[site],
                                    .name = site ? "b" : "a",
                                    .peer_name = site ? "a" : "b"};
    struct sr_event now = {.type = SR_EV_TIME, .now_us = 1000000, .random = fresh()};

    *me = (struct site){.actions = me->actions, .record = *record, .map = *map};
    me->core = sr_core_new(&config, record);
    for (uint32_t i = 0; i < 2 && !map->everything; i++) {
        uint8_t bits[SR_REGION_MAP_BYTES] = {0};
        bits[block_of[i] % SR_REGION_BLOCKS / 8] = (uint8_t)(1u << (block_of[i] % 8));
        if (map->dirty[i])
            sr_core_load_region(me->core, 0, i, bits);
    }
    if (map->everything)
        sr_core_load_from(me->core, 0, 0);
    sr_core_start(me->core, &now, &me->actions);
    carry_out(pair, site);
}

static void end(struct site *pair)
{
    for (unsigned i = 0; i < 2; i++) {
        for (; pair[i].n; pair[i].n--, pair[i].head = (pair[i].head + 1) % QUEUE_MAX)
            sr_peer_msg_free(pair[i].queue[pair[i].head]);
        sr_core_free(pair[i].core);
    }
}

/* ---- the comparisons
 * ------------------------------------------------------------------------------------------------ */

static void compare(const char *what, const char *core, const char *model)
{
    if (strcmp(core, model) != 0)
        mismatch(what, core, model);
}

static void compare_handshake(const struct sr_record record[2], const struct map map[2], char *const *fields,
                              bool suffices)
{
    static struct site pair[2];
    char text[SHOWN_MAX + 8], shown[SHOWN_MAX];

    for (unsigned i = 0; i < 2; i++)
        start(pair, i, &record[i], &map[i]);
    for (unsigned i = 0; i < 2; i++)
        step(pair, i, &(struct sr_event){.type = SR_EV_LINK_UP});
    while (move_on(pair, 0) || move_on(pair, 1))
        ;
    for (unsigned i = 0; i < 2; i++) {
        struct site *me = &pair[i];
        if (me->led) { /* what follows STARTED is not the handshake's: `completing` of an empty resync */
            bool full = !suffices || map[!i].everything || record[i].base_kind == SR_BASE_UNKNOWN;
            if (i == 0 && me->map_at_start.everything != full)
                mismatch("the map of the leader", me->map_at_start.everything ? "everything" : "the two maps",
                         full ? "everything" : "the two maps");
            me->record.completing = me->at_start.completing;
            me->map = me->map_at_start;
        }
        snprintf(text, sizeof text, "%d %s", me->serving, show(shown, &me->record, &me->map));
        compare(i ? "after the handshake, B" : "after the handshake, A", text, fields[3 + i]);
    }
    end(pair);
}

static void compare_edges(const struct sr_record *a, const struct map *map, char *const *fields)
{
    struct sr_record r = *a;
    struct sr_uuid gen = fresh();
    char text[SHOWN_MAX];
    struct map full = {.everything = true};

    bool may_go_alone = !sr_uuid_is_none(&a->gen) && sr_lineage_must_go_alone(a);
    if (may_go_alone)
        sr_lineage_go_alone(&r, &gen);
    compare("going alone", may_go_alone ? show(text, &r, map) : "-", fields[5]);
    r = *a;
    if (!a->failed)
        sr_lineage_take_over(&r, &gen, !a->consistent);
    compare("failover", a->failed ? "-" : show(text, &r, a->consistent ? map : &full), fields[6]);
}

static void compare_line(char *line)
{
    char *fields[FIELDS], text[80];
    struct sr_record record[2];
    struct map map[2];
    struct sr_greeting greeting[2];

    for (int i = 0; i < FIELDS; i++) {
        fields[i] = line;
        line = i + 1 < FIELDS ? strstr(line, " | ") : NULL;
        if (i + 1 < FIELDS && !line)
            mismatch("fields are missing", "", "");
        if (line) {
            *line = '\0';
            line += 3;
        }
    }
    for (unsigned i = 0; i < 2; i++) {
        parse(fields[i], &record[i], &map[i]);
        greeting[i] = (struct sr_greeting){.record = record[i],
                                           .map_empty = !map[i].everything && !map[i].dirty[0] && !map[i].dirty[1]};
    }
    enum sr_decision mine = sr_lineage_decide(&greeting[0], &greeting[1]);
    enum sr_decision theirs = sr_lineage_decide(&greeting[1], &greeting[0]);
    bool leads[2] = {mine == SR_DECIDE_LEAD || mine == SR_DECIDE_TAKE,
                     theirs == SR_DECIDE_LEAD || theirs == SR_DECIDE_TAKE};
    if (leads[0] != (theirs == SR_DECIDE_FOLLOW) || leads[1] != (mine == SR_DECIDE_FOLLOW)) /* L1 */
        mismatch("the sites do not mirror each other", sr_decision_name(mine), sr_decision_name(theirs));
    bool suffices = sr_lineage_maps_suffice(&record[0], &record[1]);
    snprintf(text, sizeof text, "%s %s %d %d %d", sr_decision_name(mine), sr_decision_name(theirs), suffices,
             sr_lineage_serves_at_start(&record[0]), sr_lineage_serves_at_start(&record[1]));
    compare("decisions", text, fields[2]);
    compare_handshake(record, map, fields, suffices);
    compare_edges(&record[0], &map[0], fields);
}

int main(void)
{
    char line[2048], copy[2048];
    unsigned n = 0;

    while (fgets(line, sizeof line, stdin)) {
        line_number++;
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#') {
            snprintf(seed, sizeof seed, "%.70s", line + 2);
            continue;
        }
        memcpy(copy, line, sizeof copy);
        the_line = copy;
        compare_line(line);
        n++;
    }
    printf("%u pairs of records agree (%s)\n", n, seed);
    if (n < PAIRS_MIN)
        fprintf(stderr, "fewer than %u pairs\n", PAIRS_MIN);
    return n < PAIRS_MIN;
}
