#!/usr/bin/env python3
"""Executable model of the replication protocol: two sites, one collection, one volume of two blocks.

It exists to find holes in the rules before they are written in C, and to be the reference for the handshake's
decision table.  Random walks run thousands of short histories of
reads, writes, crashes, link cuts, stalls, disk failures, pauses, switchovers, failovers and resyncs, and
check after every step:

  * in sync means equal: with no message and no write in flight, both copies and generations are the same;
  * one active: two sites never acknowledge at once unless an administrator failed over;
  * no acknowledged write, and nothing that a host has read, is lost: not by a crash, a cut, a switchover, a resync or (with a witness)
    an automatic failover;
  * no silent overwrite: a resync never replaces an acknowledged write of the receiving site unless
    an administrator discarded that site;
  * one decision: from any two records both sites decide alike, and no unfit copy leads;
  * no false conflict: without a failover, or a failed disk that was ahead of its peer, nothing is diverged;
  * progress: when faults stop, every history without a conflict ends in sync.

    replication_model.py                        no administrator failover
    replication_model.py --failover 3           with failovers, forced ones too
    replication_model.py --witness              automatic failover through a witness
    replication_model.py --mutants [NAME]       plants known bugs one by one, or those whose name has NAME in it; each
                                                must be caught (slow: the rarest need tens of thousands of walks)

Persistent fields carry the names that docs/ARCHITECTURE.md gives them.  export_pairs.py writes what the model says about
random pairs of records, and a test compares the core with it.

What it leaves out: several volumes and members of a collection, regions and intents, suspect hashes, deadlines, the caches of
write-back volumes (tests/sim has them).
"""
import argparse
import collections
import random
import sys

BLOCKS = 2
ACTIVE, ALTERNATE = "active", "alternate"
UNKNOWN = -1                       # a base that equals no generation, itself included: a forced failover's
BLANK = 0                          # the gen of a replaced copy
PAIRED = 2                         # the witness's holder while both sites mirror
LEADING = ("MIRRORING", "RESYNCING", "HANDING_OVER")
FOLLOWING = ("JOINING", "CATCHING_UP", "FOLLOWING")
ON_ITS_OWN = ("ALONE",)
ANCESTORS_MAX = 64
ACKING = LEADING + ON_ITS_OWN
PROMOTED = ("failover", "forced")

WITNESS = False
BUG = None                         # the planted bug, see MUTANTS

Record = collections.namedtuple(   # what a HELLO carries; `empty`: my map has neither intents nor blocks
    "Record", "role gen made_by base ancestors consistent failed handover discard empty paused",
    defaults=((0, False),))


class Violation(Exception):
    pass


class Site:
    """Everything above `up` survives a crash; everything below is lost with the process.

    mode: STANDBY (does not serve), HOLDING (serves, answers no write), ALONE; with the peer MIRRORING,
    RESYNCING, HANDING_OVER or JOINING, CATCHING_UP, FOLLOWING.  stage, of the session: "" (ended), HELLO, MAP,
    STARTED (what I wait for), OPEN, or the decision that nothing is copied: PAUSED, CONFLICT, WAIT.
    """

    FIELDS = ("role", "gen", "made_by", "base", "ancestors", "consistent", "failed", "completing",
              "handover", "discard", "paused", "said_complete",
              "dirty", "data", "holds", "seen", "up", "serving", "mode", "session", "stage", "peer", "early_map", "inflight", "copying")
    __slots__ = FIELDS

    def __init__(self):
        self.role, self.gen, self.made_by, self.base, self.ancestors = ALTERNATE, 1, "created", 0, ()
        self.consistent, self.failed, self.completing, self.handover, self.discard = True, False, False, False, None
        self.paused = (0, False)   # counter, yes or no
        self.said_complete = False # ghost: COMPLETE may have reached the peer since its last START
        self.dirty, self.data = frozenset(), (0,) * BLOCKS
        self.holds = frozenset()   # ghosts, for the checks alone: acknowledged writes in this lineage,
        self.seen = frozenset()    # and what hosts have read here
        self.up, self.serving, self.mode = True, False, "STANDBY"
        self.session, self.stage, self.peer = 0, "", None
        self.early_map = None      # for one planted bug alone: my map when the session began
        self.inflight = ()         # (value, block, durable here, durable at the peer)
        self.copying = frozenset()

    def clone(self):
        twin = Site.__new__(Site)
        for name in Site.FIELDS:
            setattr(twin, name, getattr(self, name))
        return twin

    def record(self):
        return Record(self.role, self.gen, self.made_by, self.base, self.ancestors, self.consistent,
                      self.failed, self.handover, self.discard, not self.dirty, self.paused)


class World:
    def __init__(self, budget):
        self.site = [Site(), Site()]
        self.site[0].role = ACTIVE
        self.link, self.wire = False, [(), ()]        # wire[i]: messages on their way to site i
        self.next_gen, self.next_value, self.next_session = 2, 1, 1
        self.acked, self.given_up, self.failovers = (), frozenset(), 0
        self.promoted_connected = False    # a failover on this connection
        self.only_copy_lost = False    # the disk failed of a site that was, or might have been, ahead of its peer
        self.budget = dict(budget)
        self.witness = (1, PAIRED) if WITNESS else None

    def clone(self):
        twin = World.__new__(World)
        twin.__dict__.update(self.__dict__)
        twin.site = [s.clone() for s in self.site]
        twin.wire, twin.budget = list(self.wire), dict(self.budget)
        return twin

    def send(self, i, *message):
        """from site i to the other, in the session that i is in"""
        if self.link:
            self.wire[1 - i] += ((self.site[i].session,) + message,)

    def new_gen(self):
        self.next_gen += 1
        return self.next_gen - 1


# ---- lineage ------------------------------------------------------------------------------------

def decide(me, peer):
    """The handshake's decision, computed by each site from both records.

    'lead'      I lead the (possibly empty) resync, and am active
    'take'      I lead, and become active first
    'follow'    the peer leads
    'wait'      the leader is known, but nothing says that it may become active: a failover will
    'conflict'  the copies diverged, or nothing says which is newer
    """
    leader, may_take = lineage(me, peer)
    if leader is None:
        leader, may_take = discarded(me, peer), True
    if leader is None:
        return "conflict"
    other = peer if leader is me else me
    if leader.role != ACTIVE and not may_take and BUG != "an alternate leads":
        return "conflict" if other.role == ACTIVE else "wait"
    if leader is peer:
        return "follow"
    return "lead" if me.role == ACTIVE else "take"


def lineage(me, peer):
    """(the record that leads or None, may it become active for that)

    Descent shows in `ancestors` alone: `base` can be the gen of a peer that never agreed to follow.
    """
    if BUG != "failed copy leads":
        if not me.consistent and not peer.consistent:
            return None, False
        for one, other in ((me, peer), (peer, me)):
            if not other.consistent and (me.gen == peer.gen or other.gen == BLANK):
                return one, True
    if me.gen == peer.gen:
        if me.base and peer.base:
            return None, False
        if me.base or peer.base:
            return (me if me.base else peer), False
        if me.handover != peer.handover:
            return (peer if me.handover else me), True
        if me.role == peer.role == ACTIVE:
            return None, False
        return (peer if peer.role == ACTIVE else me), False
    for one, other in ((me, peer), (peer, me)):
        if other.gen in one.ancestors or (other.gen == one.base and BUG == "base taken for descent"):
            return (one if one.consistent or BUG == "failed copy leads" else None), False
    if not me.consistent or not peer.consistent or BUG == "no-writes rule left out":
        return None, False
    for one, other in ((me, peer), (peer, me)):
        # the other wrote nothing since they parted, or since an unfinished handshake took its gen as base
        if other.empty and not one.empty and (same_base(one, other) or one.base == other.gen):
            return one, False
    if same_base(me, peer):
        if me.empty and (me.made_by in PROMOTED) != (peer.made_by in PROMOTED):
            return (me if me.made_by in PROMOTED else peer), False
    return None, False


def same_base(me, peer):
    return me.base == peer.base and me.base not in (0, UNKNOWN)


def discarded(me, peer):
    """the record that leads because the other's diverged writes were given up"""
    losers = [one for one, other in ((me, peer), (peer, me))
              if one.discard == (one.gen, other.gen) or (one.discard and BUG == "old discard kept")]
    winner = peer if losers == [me] else me
    return winner if len(losers) == 1 and winner.consistent else None


def map_for(me, peer, peer_dirty):
    """The leader's map, so that it covers every difference.  A map counts from `base`, or from `gen`
    if there is no base."""
    if unknown_copy(me, peer):
        return frozenset(range(BLOCKS))
    if peer.gen == me.gen or (me.base and peer.gen == me.base) or same_base(me, peer) or BUG == "full resync skipped":
        return me.dirty if BUG == "peer's dirty map ignored" else me.dirty | peer_dirty
    return frozenset(range(BLOCKS))


def unknown_copy(me, peer):
    """It failed, or never completed what I believe complete: nothing is known of what it holds."""
    return peer.gen == me.gen and not peer.consistent and not me.base


def new_generation(world, i, made_by):
    me = world.site[i]
    if me.gen != BLANK and BUG != "ancestors not recorded":
        me.ancestors = ((me.gen,) + me.ancestors)[:ANCESTORS_MAX]
    me.gen, me.made_by = world.new_gen(), made_by
    me.completing, me.discard = False, None


def go_alone(world, i, mode):
    """Durable before the first acknowledgement of a write that the peer does not hold."""
    me = world.site[i]
    shared = (0,) if BUG == "no new generation while resyncing" else (0, me.gen)
    if BUG != "session not ended when going alone":
        end_session(world, i)
    if me.base in shared and BUG != "no new generation":
        me.base = me.gen
        new_generation(world, i, "alone")
    me.mode = mode
    if WITNESS:
        world.witness = (me.gen, i)
    acknowledge(world, i)


def take_over(world, i, forced):
    me = world.site[i]
    end_session(world, i)
    if me.base in (0, me.gen):
        me.base = me.gen
    new_generation(world, i, "forced" if forced else "failover")
    if forced and BUG != "forced failover keeps its lineage":
        me.base, me.ancestors = UNKNOWN, ()    # an incomplete copy: it descends from nothing
    if forced:
        me.dirty, me.consistent = frozenset(range(BLOCKS)), True
    me.role, me.handover = ACTIVE, False
    me.serving, me.mode = True, "ALONE"


def serves_at_once(world, i):
    """May a site that starts serve before a handshake?  Only if its peer cannot have been promoted unforced."""
    me = world.site[i]
    if WITNESS and world.witness != (me.gen, i):
        return False
    incomplete = me.base != me.gen or not me.completing or BUG == "start-up ignores completing"
    return bool(me.role == ACTIVE and me.base and incomplete and not me.discard and not me.failed and me.consistent)


# ---- sessions -----------------------------------------------------------------------------------

def greet(world, i):
    """open a session: every message of an older one is dropped from here on"""
    end_session(world, i)
    world.site[i].session, world.site[i].stage = world.next_session, "HELLO"
    world.next_session += 1
    send_hello(world, i)


def send_hello(world, i):
    me = world.site[i]
    me.early_map = me.dirty
    world.send(i, "HELLO", me.record())


def end_session(world, i):
    me = world.site[i]
    me.stage, me.peer, me.copying = "", None, frozenset()
    if BUG != "peer's acknowledgements kept":
        me.inflight = tuple((v, b, here, False) for v, b, here, _ in me.inflight)
    if me.mode in LEADING:
        me.mode = "HOLDING"
    elif me.mode in FOLLOWING:
        me.mode = "STANDBY"


def cut(world):
    world.link, world.wire, world.promoted_connected = False, [(), ()], False
    for i in (0, 1):
        if world.site[i].up:
            end_session(world, i)


def stop_serving(me):
    me.serving, me.inflight = False, ()
    if me.mode in ON_ITS_OWN + ("HOLDING",):
        me.mode = "STANDBY"


# ---- messages -----------------------------------------------------------------------------------

def on_message(world, i):
    (session, kind, *body), world.wire[i] = world.wire[i][0], world.wire[i][1:]
    me = world.site[i]
    if kind == "HELLO" and session > me.session:
        end_session(world, i)
        me.session, me.stage = session, "HELLO"
        send_hello(world, i)                   # answered only when the old session's disk work has ended
    if (session != me.session or not me.stage) and BUG != "messages of an ended session taken":
        return
    if kind == "HELLO" and me.stage == "HELLO":
        on_hello(world, i, *body)
    elif kind == "MAP" and me.stage == "MAP":
        on_map(world, i, *body)
    elif kind == "STARTED" and me.stage == "STARTED":
        on_started(world, i)
    elif kind in ("START", "COMPLETE") or (kind in ("WRITE", "COPY") and me.mode in FOLLOWING):
        follow(world, i, kind, body)
    elif kind in ("PREPARE", "READY", "TAKE", "TAKEN"):
        hand_over(world, i, kind, body)
    elif kind == "WRITTEN" and me.mode in ACKING:
        me.inflight = tuple((v, b, here, there or v == body[0]) for v, b, here, there in me.inflight)
        acknowledge(world, i)
    elif kind == "COPIED" and me.mode == "RESYNCING":
        me.dirty, me.copying = me.dirty - {body[0]}, me.copying - {body[0]}
    elif kind == "COMPLETED" and me.mode == "RESYNCING":
        me.base, me.completing, me.mode, me.copying = 0, False, "MIRRORING", frozenset()
        if WITNESS:
            world.witness = (me.gen, PAIRED)


def on_hello(world, i, peer):
    me = world.site[i]
    if me.discard != (me.gen, peer.gen) and BUG != "old discard kept":
        me.discard = None                      # it was for another conflict
    merge_pause(me, peer)
    decision = decide(me.record(), peer)
    me.peer = peer
    if me.paused[1] and decision != "conflict" and BUG != "resync while paused":
        show_paused(world, i, decision)
        return
    if decision in ("conflict", "wait"):
        me.stage = decision.upper()
        if decision == "conflict":
            on_conflict(world, i)
        elif me.mode not in ON_ITS_OWN:
            stop_serving(me)
        return
    if decision == "follow":
        stop_serving(me)                       # and end all disk work, before the map is taken
        step_down(me)
        me.mode, me.stage = "JOINING", "OPEN"
        world.send(i, "MAP", me.early_map if BUG == "map sent with the greeting" else me.dirty)
        return
    if decision == "take":
        me.role, me.handover, me.discard = ACTIVE, False, None
    me.stage = "MAP"


def merge_pause(me, peer):
    """each command at either site raised its counter; the higher one wins, on a tie paused"""
    if BUG == "pause not merged":
        return
    if BUG == "pause tie: the peer's word":
        me.paused = peer.paused if peer.paused[0] >= me.paused[0] else me.paused
        return
    me.paused = max(me.paused, peer.paused)


def step_down(me):
    """The copy failed while it was active: the peer serves from now on, and no START will say so."""
    if me.failed and BUG != "failed copy stays active":
        me.role = ALTERNATE


def show_paused(world, i, decision):
    """The pause holds up the copying, not the rule that one site serves."""
    me = world.site[i]
    if decision == "take" and BUG != "role not taken while paused":
        me.role, me.handover, me.discard = ACTIVE, False, None
        decision = "lead"
    if decision == "lead" and not me.serving:
        me.serving, me.mode = True, "HOLDING"
    if (decision == "follow" or (decision == "wait" and me.mode not in ON_ITS_OWN)) and BUG != "pause leaves both serving":
        stop_serving(me)
    if decision == "follow":
        step_down(me)
    if me.serving and me.mode not in ON_ITS_OWN:
        session = me.peer
        go_alone(world, i, "ALONE")
        me.peer = session
    me.stage = "PAUSED" if decision != "wait" else "PAUSED WAIT"


def on_conflict(world, i):
    """Nothing is copied.  The side that an administrator promoted goes on (both: the later one; here generations are
    numbered in the order in which they were made, real ones tell by the clock); else whoever was alone already."""
    me, peer = world.site[i], world.site[i].peer
    if me.discard and peer.discard == (peer.gen, me.gen):
        if BUG != "two discards kept":
            me.discard = None                  # both given up: neither counts, the administrator chooses again
    promoted = me.made_by in PROMOTED or (peer.made_by not in PROMOTED and me.role == ACTIVE)
    if me.made_by in PROMOTED and peer.made_by in PROMOTED and peer.role == ACTIVE and me.gen <= peer.gen and \
            BUG != "conflict leaves both promoted serving":
        promoted = False
    if me.discard or me.mode not in ON_ITS_OWN or (not promoted and BUG != "conflict leaves both serving"):
        stop_serving(me)


def on_map(world, i, dirty):
    me, peer = world.site[i], world.site[i].peer
    if peer.failed and BUG != "failed copy followed":
        go_alone(world, i, "ALONE")            # nothing can be copied until it is replaced
        me.serving, me.stage = True, "WAIT"
        return
    nothing_known = unknown_copy(me, peer)
    me.dirty = map_for(me, peer, dirty)        # one commit with:
    if peer.gen != me.gen:
        me.base = UNKNOWN if peer.gen == BLANK else peer.gen
    elif nothing_known:
        me.base = UNKNOWN
    if not peer.consistent or peer.gen != me.gen:
        me.said_complete = False
    if peer.gen != me.gen or (not peer.consistent and BUG != "completing outlives an incomplete copy"):
        me.completing = False                  # what follows is known to be incomplete again
    if BUG == "completing ends with the session":
        me.completing = False
    me.stage = "STARTED"
    world.send(i, "START", me.gen, me.made_by, me.holds, me.data)


def on_started(world, i):
    me = world.site[i]
    me.stage, me.mode, me.serving, me.copying = "OPEN", "RESYNCING", True, frozenset()
    if me.base:
        me.base = me.gen                       # the peer holds this generation, with holes
    for value, block, _, there in me.inflight:
        if not there:
            world.send(i, "WRITE", value, block)


def follow(world, i, kind, body):
    me = world.site[i]
    if kind == "START" and me.mode == "JOINING":
        gen, made_by, led_holds, led_data = body       # the last two for the checks alone
        lost = me.holds - led_holds - world.given_up
        if lost:
            raise Violation("site %d would silently lose writes %s" % (i, sorted(lost)))
        for value, block in me.seen - world.given_up:
            if led_data[block] < value:
                raise Violation("site %d would take back %d of block %d, which a host has read" % (i, value, block))
        me.holds, me.seen = me.holds & led_holds, frozenset()
        if gen != me.gen:
            me.ancestors, me.consistent = (), False
        me.role, me.gen, me.made_by, me.base, me.discard = ALTERNATE, gen, made_by, 0, None
        if BUG != "handover kept by the follower":
            me.handover = False
        me.completing, me.said_complete, me.dirty, me.mode = False, False, frozenset(), "CATCHING_UP"
        world.send(i, "STARTED")
    elif kind == "WRITE" and me.mode in ("CATCHING_UP", "FOLLOWING"):
        store(me, body[1], body[0])
        world.send(i, "WRITTEN", body[0])
    elif kind == "COPY" and me.mode == "CATCHING_UP":
        store(me, *body)
        world.send(i, "COPIED", body[0])
    elif kind == "COMPLETE" and me.mode == "CATCHING_UP":
        me.consistent, me.ancestors, me.mode, me.holds = True, body[0], "FOLLOWING", me.holds | body[1]
        world.send(i, "COMPLETED")


def hand_over(world, i, kind, body):
    me = world.site[i]
    if kind == "PREPARE" and me.mode == "FOLLOWING":
        world.send(i, "READY")
    elif kind == "READY" and me.mode == "HANDING_OVER" and not me.inflight:
        world.send(i, "TAKE")                  # only after the commit:
        if BUG == "role given away late":
            return
        me.role, me.handover, me.serving, me.dirty, me.mode = ALTERNATE, True, False, frozenset(), "JOINING"
    elif kind == "TAKE" and me.mode == "FOLLOWING":
        me.role, me.handover, me.discard, me.serving, me.mode = ACTIVE, False, None, True, "MIRRORING"
        world.send(i, "TAKEN")
    elif kind == "TAKEN" and me.mode == "JOINING":
        me.role, me.handover, me.mode = ALTERNATE, False, "FOLLOWING"


def store(site, block, value):
    data = list(site.data)
    data[block] = value
    site.data = tuple(data)


def acknowledge(world, i):
    me, left = world.site[i], []
    for value, block, here, there in me.inflight:
        if me.mode in ACKING and here and (there or me.mode in ON_ITS_OWN):
            world.acked += ((value, block),)
            me.holds |= {(value, block)}
            if there:
                world.site[1 - i].holds |= {(value, block)}
        else:
            left.append((value, block, here, there))
    me.inflight = tuple(left)


# ---- what can happen next -----------------------------------------------------------------------

def choices(world):
    out, left = [], collections.defaultdict(int, world.budget)
    for i in (0, 1):
        me = world.site[i]
        if not me.up:
            out.append(("restart", i))
            continue
        if world.wire[i]:
            out.append(("deliver", i))
        if world.link and not me.stage:
            out.append(("greet", i))
        if left["crash"]:
            out.append(("crash", i))
        if left["fail"] and not me.failed:
            out += [("fail", i, b) for b in range(BLOCKS)]
        if me.failed:
            out.append(("replace", i))
        busy = {block for _, block, _, _ in me.inflight}
        if me.serving and me.role == ACTIVE:
            if left["write"] and me.mode != "HANDING_OVER":
                out += [("write", i, b) for b in range(BLOCKS) if b not in busy | me.copying]
            out += [("local", i, value) for value, _, here, _ in me.inflight if not here]
            out += [("read", i, b) for b in range(BLOCKS) if b not in busy and readable(me, b)
                    and me.data[b] and (me.data[b], b) not in me.seen and not parted(world)]
        if me.mode == "RESYNCING":
            out += [("copy", i, b) for b in me.dirty - me.copying - busy]
            if not me.dirty - busy and not me.copying:
                out.append(("complete", i))
        if me.mode == "MIRRORING":
            out += [("cool", i, b) for b in me.dirty - busy]
            if left["switchover"]:
                out.append(("switchover", i))
        moving = me.mode == "HANDING_OVER" or me.handover
        if left["pause"] and not moving and not WITNESS:     # twice too: each command counts
            out.append(("pause", i))
        if me.paused[1]:
            out.append(("resume", i))
        if me.mode == "HANDING_OVER" and left["abort"]:
            out.append(("abort", i))
        if me.mode in LEADING + ("HOLDING",) and me.serving and (left["stall"] or not world.link):
            if not WITNESS or world.witness in ((me.gen, PAIRED), (me.gen, i)):
                out.append(("alone", i))
        if may_fail_over(world, i):
            out.append(("failover" if me.consistent else "force", i))
        if me.stage == "CONFLICT" and left["discard"] and not me.discard:
            out.append(("discard", i))
        if not world.link and world.site[1 - i].up:
            out.append(("connect", i))
    if world.link and left["cut"]:
        out.append(("cut",))
    return out


def readable(me, block):
    """A host must not build on data that a failover would take back: while the peer may be promoted
    unforced, a block that a crash left different is read only once the peer holds it."""
    settled = me.mode in ON_ITS_OWN + ("MIRRORING", "HANDING_OVER")
    promotable = me.base == 0 or (me.base == me.gen and me.completing and BUG != "completed resync readable")
    return settled or not promotable or block not in me.dirty or BUG == "suspect blocks readable"


def may_fail_over(world, i):
    me, peer = world.site[i], world.site[1 - i]
    beside_complete = world.link and peer.consistent and not me.consistent
    if me.serving or me.failed or (beside_complete and BUG != "forced beside a complete copy"):
        return False
    if WITNESS:
        free = world.witness == (me.gen, PAIRED) or BUG == "witness ignored"
        return free and me.consistent and not world.link
    coming = me.handover and BUG != "failover while the role is on its way"
    beside = peer.role == ACTIVE and BUG != "failover beside an active peer"
    if BUG == "failover beside an active peer that starts to serve":
        beside = peer.role == ACTIVE and peer.serving
    asking = world.link and any(world.wire)    # the probe and its answer travel behind what was sent before
    return world.budget.get("failover") and not asking and not (world.link and (beside or coming))


COSTS = {"crash": "crash", "cut": "cut", "write": "write", "switchover": "switchover", "abort": "abort",
         "pause": "pause", "discard": "discard", "fail": "fail"}


def perform(world, action):
    world = world.clone()
    kind, i = action[0], action[1] if len(action) > 1 else None
    me = world.site[i] if i is not None else None
    if kind in COSTS:
        world.budget[COSTS[kind]] -= 1
    if kind == "deliver":
        on_message(world, i)
    elif kind == "greet":
        greet(world, i)
    elif kind == "write":
        write(world, i, action[2])
    elif kind == "local":
        for value, block, _, _ in me.inflight:
            if value == action[2]:
                store(me, block, value)
        me.inflight = tuple((v, b, here or v == action[2], there) for v, b, here, there in me.inflight)
        acknowledge(world, i)
    elif kind == "read":                       # what a host has seen counts like an acknowledged write
        me.seen |= {(me.data[action[2]], action[2])}
        world.acked += ((me.data[action[2]], action[2]),)
    elif kind == "copy":
        me.copying |= {action[2]}
        world.send(i, "COPY", action[2], me.data[action[2]])
    elif kind == "complete":
        me.copying |= {-1}
        me.completing = me.said_complete = True
        world.send(i, "COMPLETE", me.ancestors, me.holds)
    elif kind == "cool":
        me.dirty -= {action[2]}
    elif kind == "crash":
        cut(world)
        me.up, me.serving, me.mode, me.inflight = False, False, "DOWN", ()
    elif kind == "restart":
        me.up, me.mode = True, "STANDBY"
        if serves_at_once(world, i):
            me.serving, me.mode = True, "ALONE"
    elif kind == "cut":
        cut(world)
    elif kind == "connect":
        world.link = True
        greet(world, i)
    elif kind == "alone":
        world.budget["stall"] = world.budget.get("stall", 0) - bool(world.link)
        go_alone(world, i, "ALONE")
    elif kind in ("pause", "resume"):
        end_session(world, i)
        me.paused = (me.paused[0] + 1, kind == "pause")
        if kind == "pause" and me.serving:
            go_alone(world, i, "ALONE")        # the same commit
    elif kind == "switchover":
        me.mode = "HANDING_OVER"
        world.send(i, "PREPARE")
    elif kind == "abort":
        me.mode = "MIRRORING"
    elif kind == "fail":
        fail(world, i, action[2])
    elif kind == "replace":
        replace(world, i)
    elif kind in ("failover", "force"):
        if not WITNESS:
            world.budget["failover"] -= 1
            world.failovers += 1
        world.promoted_connected = world.link
        if kind == "force" and world.link and world.site[1 - i].up and world.site[1 - i].consistent:
            raise Violation("an incomplete copy is promoted beside a complete one that answers")
        peer_stayed_paired = not world.site[1 - i].base
        take_over(world, i, kind == "force")
        if WITNESS:
            world.witness = (me.gen, i)
        if WITNESS or (kind == "failover" and peer_stayed_paired):
            check_holds_all(world, i, "failover")
    elif kind == "discard":
        stop_serving(me)
        me.discard = (me.gen, me.peer.gen)
        world.given_up |= me.holds | me.seen
        end_session(world, i)
    if parted(world):                          # a failover's split brain: what hosts read no longer agrees
        world.site[0].seen = world.site[1].seen = frozenset()
    check(world, action)
    return world


def fail(world, i, block):
    """A disk error: the copy is unusable from here on, durably, before anything else is answered."""
    me, peer = world.site[i], world.site[1 - i]
    if me.consistent and (not peer.consistent or (me.role == ACTIVE and me.gen != peer.gen)):
        world.only_copy_lost = True
    store(me, block, 0)
    me.failed, me.consistent = True, False
    end_session(world, i)
    stop_serving(me)


def replace(world, i):
    """An empty disk instead of the failed one.  No generation: nobody's map counts from it."""
    me = world.site[i]
    end_session(world, i)
    me.completing, me.consistent = False, False
    me.failed, me.role, me.base, me.ancestors, me.handover = False, ALTERNATE, 0, (), False
    me.discard, me.dirty, me.data = None, frozenset(), (0,) * BLOCKS
    if BUG != "replaced copy keeps its generation":
        me.gen = BLANK
    me.holds, me.seen, me.mode = frozenset(), frozenset(), "STANDBY"


def parted(world):
    """split brain: each site has a generation that the other never had"""
    a, b = world.site
    return BLANK not in (a.gen, b.gen) and a.gen != b.gen and a.gen not in b.ancestors and b.gen not in a.ancestors


def write(world, i, block):
    me = world.site[i]
    if me.mode in ON_ITS_OWN and me.base in (0, me.gen):
        go_alone(world, i, me.mode)
    elif me.mode in ON_ITS_OWN and me.stage == "HELLO" and not me.dirty and BUG != "empty map filled while greeting":
        end_session(world, i)                  # the greeting said that the map is empty
    value, world.next_value = world.next_value, world.next_value + 1
    if BUG != "no write intent":
        me.dirty |= {block}                    # durable before the write starts on either copy
    me.inflight += ((value, block, False, False),)
    if me.mode in LEADING:
        world.send(i, "WRITE", value, block)


# ---- checks -------------------------------------------------------------------------------------

def check_holds_all(world, i, what):
    if world.given_up or world.failovers > 1 or world.only_copy_lost:
        return
    newest = {block: value for value, block in sorted(world.acked)}
    for block, value in newest.items():
        if world.site[i].data[block] < value:
            raise Violation("%s at site %d misses acknowledged write %d of block %d" % (what, i, value, block))


def check(world, action):
    a, b = world.site
    active = [s for s in world.site if s.serving and s.role == ACTIVE and s.mode in ACKING]
    for one, other in ((a, b), (b, a)):
        if one.mode == "MIRRORING" and other.mode == "FOLLOWING" and one.session == other.session and not any(world.wire):
            if not one.inflight and one.data != other.data:
                raise Violation("in sync but different: %s %s" % (one.data, other.data))
            if one.gen != other.gen:
                raise Violation("in sync with different generations: %d %d" % (one.gen, other.gen))
    if world.promoted_connected and len(active) == 2:
        raise Violation("promoted beside an active peer that it can reach")
    if action[0] == "restart":
        me, peer = world.site[action[1]], world.site[1 - action[1]]
        if me.serving and me.failed:
            raise Violation("a failed copy serves")
        if me.serving and me.base == me.gen == peer.gen and peer.consistent:
            raise Violation("serves at start-up although the peer could have been promoted")
        parted_or_complete = me.base != me.gen or not me.said_complete
        if me.role == ACTIVE and me.base and me.consistent and not me.discard and parted_or_complete and not WITNESS \
                and not me.serving:
            raise Violation("does not serve at start-up although its peer cannot have been promoted")
    if a.session == b.session and not any(world.wire) and a.up and b.up:
        check_session(world, active)
    if a.stage == b.stage == "CONFLICT" and a.session == b.session:
        check_conflict(world, active)
    if world.failovers == 0 and not world.only_copy_lost:
        check_untouched(world, active)


def check_session(world, active):
    """both greeted each other, and nothing is on its way"""
    a, b = world.site
    decided = {"MAP", "STARTED", "OPEN", "PAUSED", "PAUSED WAIT", "WAIT"}
    if a.stage not in decided or b.stage not in decided:
        return
    if a.paused != b.paused or ("PAUSED" in a.stage) != ("PAUSED" in b.stage):
        raise Violation("the sites do not agree about the pause: %s %s, %s %s" % (a.paused, a.stage, b.paused, b.stage))
    if a.paused[1] and "PAUSED" not in a.stage:
        raise Violation("a session is open although both are paused")
    if a.role == b.role == ACTIVE and a.stage not in ("PAUSED", "PAUSED WAIT", "WAIT"):
        raise Violation("both records say active in an agreed session")
    if (a.failed or b.failed) and a.role == b.role == ACTIVE:
        raise Violation("a failed copy stays active beside the site that serves")
    if a.stage == b.stage == "PAUSED" and len([s for s in (a, b) if s.serving]) != 1:
        raise Violation("paused, and %d sites serve" % len([s for s in (a, b) if s.serving]))


def check_conflict(world, active):
    a, b = world.site
    if a.discard and b.discard:
        raise Violation("both copies are given up, and nobody can choose again")
    if len(active) == 2:
        raise Violation("both sites serve in a conflict that they know of")
    if same_base(a, b) and a.peer.empty != b.peer.empty and a.consistent and b.consistent:
        raise Violation("conflict, yet one site wrote nothing since they parted")


def check_untouched(world, active):
    if len(active) == 2:
        raise Violation("two active sites")
    for i, s in enumerate(world.site):
        if s in active:
            check_holds_all(world, i, "serving")
        if s.stage == "CONFLICT" or s.stage == "PAUSED WAIT" or (s.stage == "WAIT" and s.mode != "ALONE"):
            raise Violation("conflict without a failover")


def check_table(seed, pairs=20000):
    """Both sites must come to the same decision, and to a safe one, from any two records."""
    rng = random.Random(seed)
    mirror = {"lead": "follow", "take": "follow", "conflict": "conflict", "wait": "wait"}

    def some_record():
        gen = rng.randint(1, 4)
        return Record(rng.choice((ACTIVE, ALTERNATE)), gen, rng.choice(("created", "alone") + PROMOTED),
                      rng.choice((0, gen, rng.randint(1, 4), UNKNOWN)), tuple(range(gen - 1, rng.randint(0, gen - 1), -1)),
                      rng.random() < .7, False, rng.random() < .2,
                      rng.choice((None, None, (gen, rng.randint(1, 4)))), rng.random() < .5)

    for _ in range(pairs):
        a, b = some_record(), some_record()
        mine, theirs = decide(a, b), decide(b, a)
        if mine == "follow":
            a, b, mine, theirs = b, a, theirs, mine
        if mirror.get(mine) != theirs:
            raise Violation("the sites decide differently: %s %s: %s %s" % (mine, theirs, a, b))
        if mine in ("lead", "take") and not a.consistent:
            raise Violation("an inconsistent copy leads: %s %s" % (a, b))
        handed = b.handover or not b.consistent or b.discard
        if mine == "take" and not handed or mine == "lead" and a.role == ALTERNATE:
            raise Violation("an alternate leads unasked: %s %s" % (a, b))


WEIGHTS = {"crash": .05, "cut": .08, "failover": .3, "force": .2, "pause": .1, "switchover": .15, "discard": .3, "alone": .5, "local": .3, "fail": .03, "replace": .3}
BUDGET = dict(crash=4, cut=4, write=8, switchover=3, abort=1, pause=3, stall=2, discard=2, fail=1)


def walk(seed, steps, budget):
    rng, world, trace = random.Random(seed), World(budget), []
    for _ in range(steps):
        options = choices(world)
        if not options:
            break
        action = rng.choices(options, [WEIGHTS.get(o[0], 1.0) for o in options])[0]
        trace.append((action, world))
        world = perform(world, action)
    return world, trace


def settle(world):
    """No more faults, no more administrator: does it come back in sync by itself?"""
    world.budget = {}
    for _ in range(400):
        options = [o for o in choices(world) if o[0] not in ("failover", "force", "alone", "discard", "write")]
        modes = {s.mode for s in world.site}
        if not options or (modes == {"MIRRORING", "FOLLOWING"} and not any(world.wire)):
            break
        world = perform(world, options[0])
    return world


def explore(walks, steps, seed, failovers, quiet=False):
    budget, ends = dict(BUDGET, failover=failovers), collections.Counter()
    try:
        check_table(seed)
    except Violation as why:
        if not quiet:
            print("violation in the decision table: %s" % why)
        return seed, str(why)
    for n in range(walks):
        trace = []
        try:
            world, trace = walk(seed + n, steps, budget)
            if n % 10 == 0:
                end = settle(world)
                ends[tuple(sorted(s.stage if s.stage == "CONFLICT" else s.mode for s in end.site))] += 1
                if not failovers and not end.only_copy_lost and {s.mode for s in end.site} - {"MIRRORING", "FOLLOWING", "HANDING_OVER"}:
                    raise Violation("no progress: %s" % [s.mode for s in end.site])
        except Violation as why:
            if not quiet:
                print("violation at seed %d: %s" % (seed + n, why))
            return seed + n, str(why)
    if not quiet:
        print("ok: %d walks; where quiet histories end: %s" % (walks, ends.most_common(6)))
    return None


MUTANTS = [  # planted bug, failovers, with a witness
    ("no write intent", 0, False), ("peer's dirty map ignored", 2, False), ("no new generation", 2, False),
    ("no new generation while resyncing", 2, False), ("role given away late", 0, False),
    ("full resync skipped", 3, False), ("base taken for descent", 3, False), ("peer's acknowledgements kept", 3, False),
    ("forced failover keeps its lineage", 3, False), ("witness ignored", 0, True),
    ("session not ended when going alone", 0, False), ("messages of an ended session taken", 0, False),
    ("map sent with the greeting", 3, False), ("handover kept by the follower", 0, False),
    ("start-up ignores completing", 0, False), ("suspect blocks readable", 3, False),
    ("completed resync readable", 3, False), ("old discard kept", 3, False),
    ("failover beside an active peer", 3, False), ("failover while the role is on its way", 3, False),
    ("failover beside an active peer that starts to serve", 3, False), ("no-writes rule left out", 3, False),
    ("failed copy leads", 0, False), ("failed copy followed", 0, False),
    ("replaced copy keeps its generation", 0, False), ("an alternate leads", 0, False),
    ("empty map filled while greeting", 3, False), ("conflict leaves both serving", 3, False),
    ("conflict leaves both promoted serving", 3, False),
    ("pause not merged", 0, False), ("pause tie: the peer's word", 0, False), ("resync while paused", 0, False),
    ("pause leaves both serving", 3, False), ("role not taken while paused", 0, False),
    ("failed copy stays active", 0, False), ("completing outlives an incomplete copy", 0, False),
    ("completing ends with the session", 0, False), ("two discards kept", 3, False),
    ("forced beside a complete copy", 3, False), ("ancestors not recorded", 0, False),
]


def main():
    global WITNESS, BUG
    p = argparse.ArgumentParser(description="model of the two-site replication protocol")
    p.add_argument("--walks", type=int, default=20000)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--failover", type=int, default=0, help="administrator failovers allowed in a walk")
    p.add_argument("--witness", action="store_true")
    p.add_argument("--mutants", nargs="?", const="all", metavar="NAME", help="plant all bugs, or those whose name has this in it")
    p.add_argument("--trace", type=int, help="print the walk of this seed")
    args = p.parse_args()
    if args.mutants:
        missed = 0
        for BUG, failovers, WITNESS in MUTANTS:
            if args.mutants not in ("all", "") and args.mutants not in BUG:
                continue
            found = explore(max(args.walks, 60000), args.steps, args.seed, failovers, quiet=True)
            print("%-44s %s" % (BUG, "caught at seed %d: %s" % found if found else "MISSED"))
            missed += not found
        sys.exit(1 if missed else 0)
    WITNESS = args.witness
    found = explore(args.walks, args.steps, args.seed, args.failover)
    if found:
        rng, world = random.Random(found[0]), World(dict(BUDGET, failover=args.failover))
        for _ in range(args.steps):
            options = choices(world)
            if not options:
                break
            action = rng.choices(options, [WEIGHTS.get(o[0], 1.0) for o in options])[0]
            print(action)
            try:
                world = perform(world, action)
            except Violation:
                break
            for i, s in enumerate(world.site):
                print("   %d %-12s %s session %d %-8s gen %d %s base %d dirty %s data %s in flight %s" % (
                    i, s.mode, s.role, s.session, s.stage, s.gen, s.made_by, s.base, sorted(s.dirty), s.data,
                    s.inflight))
        sys.exit(1)


if __name__ == "__main__":
    main()
