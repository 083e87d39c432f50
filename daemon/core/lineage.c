/* lineage.c - the handshake's decision and the edges of the durable record.
 *
 * The decision table (first row that applies) is that of docs/ARCHITECTURE.md, "Lineage".
 *
 * Invariants
 *   L1  Both sites come to mirrored decisions: lead/take against follow, conflict against conflict, wait
 *       against wait, whatever two records they greet each other with.
 *   L2  An inconsistent copy never leads.
 *   L3  Descent shows in `ancestors` alone.  `base` can be the generation of a peer that never agreed to
 *       follow: it proves nothing.
 *   L4  An alternate leads only if a handover, a discard or the other copy's unfitness says so.
 */
#include "core/lineage.h"

#include <string.h>

#include "base/assert.h"
#include "core/planted.h"

static bool gen_equal(const struct sr_record *a, const struct sr_record *b)
{
    return sr_uuid_equal(&a->gen, &b->gen);
}

static bool has_gen(const struct sr_record *r)
{
    return !sr_uuid_is_none(&r->gen);
}

static bool base_is(const struct sr_record *r, const struct sr_uuid *gen)
{
    return r->base_kind == SR_BASE_KNOWN && !sr_uuid_is_none(gen) && sr_uuid_equal(&r->base, gen);
}

static bool same_known_base(const struct sr_record *a, const struct sr_record *b)
{
    return a->base_kind == SR_BASE_KNOWN && base_is(b, &a->base);
}

static bool is_ancestor(const struct sr_uuid *gen, const struct sr_record *of)
{
    if (sr_uuid_is_none(gen))
        return false;
    for (uint32_t i = 0; i < of->n_ancestors; i++)
        if (sr_uuid_equal(gen, &of->ancestors[i]))
            return true;
    return false;
}

static bool promoted(const struct sr_record *r)
{
    return r->made_by == SR_MADE_FAILOVER || r->made_by == SR_MADE_FORCED;
}

static bool discard_matches(const struct sr_record *me, const struct sr_record *peer)
{
    if (me->discard && SR_BUG(OLD_DISCARD_KEPT))
        return true;
    return me->discard && sr_uuid_equal(&me->discard_mine, &me->gen) && sr_uuid_equal(&me->discard_peer, &peer->gen);
}

/* Which of a and b leads (NULL: nobody), and may it become active for that. */
struct leader {
    const struct sr_greeting *who;
    bool may_take;
    const char *why; /* for people, when nobody leads or the leader must wait */
};

static struct leader leads(const struct sr_greeting *who, bool may_take, const char *why)
{
    return (struct leader){who, may_take, why};
}

static struct leader by_fitness(const struct sr_greeting *a, const struct sr_greeting *b, bool *applies)
{
    *applies = true;
    if (!a->record.consistent && !b->record.consistent)
        return leads(NULL, false, "neither copy is consistent");
    const struct sr_greeting *pair[2][2] = {{a, b}, {b, a}};
    for (int i = 0; i < 2; i++) {
        const struct sr_record *one = &pair[i][0]->record, *other = &pair[i][1]->record;
        if (one->consistent && !other->consistent && (gen_equal(one, other) || !has_gen(other)))
            return leads(pair[i][0], true, "the other copy is not usable");
    }
    *applies = false;
    return leads(NULL, false, "");
}

static struct leader by_same_gen(const struct sr_greeting *a, const struct sr_greeting *b)
{
    const struct sr_record *ra = &a->record, *rb = &b->record;
    bool base_a = ra->base_kind != SR_BASE_NONE, base_b = rb->base_kind != SR_BASE_NONE;
    if (base_a && base_b)
        return leads(NULL, false, "both sites tracked writes of the same generation");
    if (base_a || base_b)
        return leads(base_a ? a : b, false, "the site that tracked writes is not active");
    if (ra->handover != rb->handover)
        return leads(ra->handover ? b : a, true, "the role was handed over");
    if (ra->role == SR_ROLE_ACTIVE && rb->role == SR_ROLE_ACTIVE)
        return leads(NULL, false, "both sites are active");
    return leads(rb->role == SR_ROLE_ACTIVE ? b : a, false, "neither site is active");
}

static struct leader by_descent(const struct sr_greeting *a, const struct sr_greeting *b, bool *applies)
{
    const struct sr_greeting *pair[2][2] = {{a, b}, {b, a}};
    *applies = true;
    for (int i = 0; i < 2; i++) {
        const struct sr_greeting *one = pair[i][0], *other = pair[i][1];
        bool by_base = SR_BUG(BASE_IS_DESCENT) && base_is(&one->record, &other->record.gen);
        if (!is_ancestor(&other->record.gen, &one->record) && !by_base)
            continue;
        if (!one->record.consistent)
            return leads(NULL, false, "the newer copy is damaged, and only it holds the newest writes");
        return leads(one, false, "metadata-older: the active site's copy is the older one");
    }
    *applies = false;
    return leads(NULL, false, "");
}

static struct leader by_unwritten(const struct sr_greeting *a, const struct sr_greeting *b)
{
    const struct sr_record *ra = &a->record, *rb = &b->record;
    if (!ra->consistent || !rb->consistent)
        return leads(NULL, false, "the copies have no common history, and one is not consistent");
    bool same = same_known_base(ra, rb);
    const struct sr_greeting *pair[2][2] = {{a, b}, {b, a}};
    for (int i = 0; i < 2; i++) {
        const struct sr_greeting *one = pair[i][0], *other = pair[i][1];
        /* the other wrote nothing since they parted, or since an unfinished handshake took its gen as base */
        if (other->map_empty && !one->map_empty && (same || base_is(&one->record, &other->record.gen)))
            return leads(one, false, "only one site wrote, and it is not active");
    }
    if (same && a->map_empty && b->map_empty && promoted(ra) != promoted(rb))
        return leads(promoted(ra) ? a : b, false, "the promoted site is not active");
    if (same && a->map_empty && b->map_empty)
        return leads(NULL, false, "both sites were made active while they were apart, though neither wrote since");
    return leads(NULL, false, "both sites wrote since they parted (split brain), or they never were a pair");
}

static struct leader by_lineage(const struct sr_greeting *a, const struct sr_greeting *b)
{
    bool applies;
    struct leader leader = by_fitness(a, b, &applies);
    if (applies)
        return leader;
    if (gen_equal(&a->record, &b->record))
        return by_same_gen(a, b);
    leader = by_descent(a, b, &applies);
    if (applies)
        return leader;
    return by_unwritten(a, b);
}

static struct leader find_leader(const struct sr_greeting *a, const struct sr_greeting *b)
{
    struct leader leader = by_lineage(a, b);
    if (leader.who)
        return leader;
    bool a_gave_up = discard_matches(&a->record, &b->record);
    bool b_gave_up = discard_matches(&b->record, &a->record);
    if (a_gave_up == b_gave_up)
        return leader;
    const struct sr_greeting *winner = a_gave_up ? b : a;
    if (!winner->record.consistent)
        return leader;
    return leads(winner, true, "the other copy was given up");
}

enum sr_decision sr_lineage_decide(const struct sr_greeting *me, const struct sr_greeting *peer)
{
    struct leader leader = find_leader(me, peer);
    if (!leader.who)
        return SR_DECIDE_CONFLICT;
    SR_ASSERT(leader.who->record.consistent); /* L2 */
    const struct sr_greeting *other = leader.who == me ? peer : me;
    if (leader.who->record.role != SR_ROLE_ACTIVE && !leader.may_take)
        return other->record.role == SR_ROLE_ACTIVE ? SR_DECIDE_CONFLICT : SR_DECIDE_WAIT; /* L4 */
    if (leader.who == peer)
        return SR_DECIDE_FOLLOW;
    return me->record.role == SR_ROLE_ACTIVE ? SR_DECIDE_LEAD : SR_DECIDE_TAKE;
}

const char *sr_lineage_explain(const struct sr_greeting *me, const struct sr_greeting *peer)
{
    return find_leader(me, peer).why;
}

const char *sr_decision_name(enum sr_decision decision)
{
    switch (decision) {
    case SR_DECIDE_CONFLICT:
        return "conflict";
    case SR_DECIDE_WAIT:
        return "wait";
    case SR_DECIDE_LEAD:
        return "lead";
    case SR_DECIDE_TAKE:
        return "take";
    case SR_DECIDE_FOLLOW:
        return "follow";
    }
    return "?";
}

bool sr_lineage_maps_suffice(const struct sr_record *me, const struct sr_record *peer)
{
    if (!has_gen(peer) || me->base_kind == SR_BASE_UNKNOWN)
        return false;
    if (gen_equal(me, peer) && !peer->consistent && me->base_kind == SR_BASE_NONE)
        return false; /* it failed, or never completed what I believe complete: nothing is known of it */
    return gen_equal(me, peer) || base_is(me, &peer->gen) || same_known_base(me, peer);
}

bool sr_lineage_must_go_alone(const struct sr_record *me)
{
    return me->base_kind == SR_BASE_NONE || base_is(me, &me->gen);
}

bool sr_lineage_serves_at_start(const struct sr_record *me)
{
    /* base = gen with `completing`: the peer may hold everything and may have been promoted */
    bool peer_maybe_complete = base_is(me, &me->gen) && me->completing && !SR_BUG(START_IGNORES_COMPLETING);
    return me->role == SR_ROLE_ACTIVE && me->base_kind != SR_BASE_NONE && !peer_maybe_complete && !me->discard &&
           !me->failed && me->consistent;
}

/* My gen becomes the newest ancestor, if there is one; with it a discard is void. */
static void push_generation(struct sr_record *me, const struct sr_uuid *fresh)
{
    me->completing = false;
    me->discard = false;
    memset(&me->discard_mine, 0, sizeof me->discard_mine);
    memset(&me->discard_peer, 0, sizeof me->discard_peer);
    if (has_gen(me)) {
        uint32_t keep = me->n_ancestors < SR_ANCESTORS_MAX ? me->n_ancestors : SR_ANCESTORS_MAX - 1;
        memmove(&me->ancestors[1], &me->ancestors[0], keep * sizeof me->ancestors[0]);
        me->ancestors[0] = me->gen;
        me->n_ancestors = keep + 1;
    }
    me->gen = *fresh;
}

void sr_lineage_go_alone(struct sr_record *me, const struct sr_uuid *fresh)
{
    SR_ASSERT(sr_lineage_must_go_alone(me));
    SR_ASSERT(has_gen(me) && !sr_uuid_is_none(fresh));
    me->base_kind = SR_BASE_KNOWN;
    me->base = me->gen;
    if (SR_BUG(ALONE_KEEPS_GENERATION)) {
        me->completing = me->discard = false;
        return;
    }
    push_generation(me, fresh);
    me->made_by = SR_MADE_ALONE;
}

void sr_lineage_take_over(struct sr_record *me, const struct sr_uuid *fresh, bool forced)
{
    SR_ASSERT(!sr_uuid_is_none(fresh) && !me->failed && (forced || me->consistent));
    if (has_gen(me) && sr_lineage_must_go_alone(me))
        sr_lineage_go_alone(me, fresh);
    else
        push_generation(me, fresh);
    me->made_by = forced ? SR_MADE_FORCED : SR_MADE_FAILOVER;
    if (forced && !SR_BUG(FORCED_KEEPS_LINEAGE)) { /* an incomplete copy descends from nothing */
        me->base_kind = SR_BASE_UNKNOWN;
        memset(&me->base, 0, sizeof me->base);
        me->n_ancestors = 0;
    }
    me->consistent = true;
    me->role = SR_ROLE_ACTIVE;
    me->handover = false;
}

void sr_lineage_replace(struct sr_record *me)
{
    bool paused = me->paused;
    uint64_t counter = me->pause_counter;
    memset(me, 0, sizeof *me); /* alternate, no gen, no base, no ancestors, not consistent, not failed */
    me->paused = paused;
    me->pause_counter = counter;
}

bool sr_lineage_merge_pause(struct sr_record *me, const struct sr_record *peer)
{
    bool newer = peer->pause_counter > me->pause_counter;
    bool tie = peer->pause_counter == me->pause_counter && peer->paused && !me->paused;
    if ((!newer && !tie) || SR_BUG(PAUSE_FORGOTTEN))
        return false;
    me->pause_counter = peer->pause_counter;
    me->paused = peer->paused;
    return true;
}

bool sr_record_valid(const struct sr_record *r, const char **why)
{
    const char *fault = NULL;
    if (r->role != SR_ROLE_ALTERNATE && r->role != SR_ROLE_ACTIVE)
        fault = "role";
    else if ((unsigned)r->made_by > SR_MADE_FORCED)
        fault = "made_by";
    else if ((unsigned)r->base_kind > SR_BASE_UNKNOWN)
        fault = "base_kind";
    else if ((r->base_kind == SR_BASE_KNOWN) == sr_uuid_is_none(&r->base))
        fault = "base";
    else if (r->n_ancestors > SR_ANCESTORS_MAX)
        fault = "ancestors";
    else if (!has_gen(r) && (r->consistent || r->role == SR_ROLE_ACTIVE || r->n_ancestors))
        fault = "gen";
    else if (r->failed && r->consistent)
        fault = "failed";
    for (uint32_t i = 0; !fault && i < r->n_ancestors; i++)
        if (sr_uuid_is_none(&r->ancestors[i]) || sr_uuid_equal(&r->ancestors[i], &r->gen))
            fault = "ancestors";
    if (why)
        *why = fault ? fault : "";
    return !fault;
}
