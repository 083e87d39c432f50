#!/usr/bin/env python3
"""Writes what the model says about random pairs of records, for tests/unit/core/test_pairs.c to compare with the core.

    export_pairs.py                            25,000 pairs, ten times as many with SYNCREP_LONG=1; another seed each time
    export_pairs.py --pairs 25000 --seed 7     those of one seed

One line a pair:

    A | B | decisions | outcome of A | outcome of B | A goes alone | A is promoted

A, B         two durable records at a start: role gen made_by base ancestors consistent failed completing handover
             discard paused map.  Generations are small numbers, 0 none, base -1 unknown; discard mine:peer; paused
             counter:yes; map one digit for each of the two blocks.
decisions    of A, of B, may the leader A use the two maps (1) or is everything different (0), does A serve at its
             start, does B.
outcome      of the handshake after both have started and connected, up to and with STARTED, when nothing has been
             copied: does it serve, and its record.  A new generation is 99; for the leader of a session the map is
             the one that was durable before START.
goes alone, is promoted    what becomes of record A, forced if its copy is incomplete; "-" where it may not.
"""
import argparse
import os
import random
import sys
import time

sys.dont_write_bytecode = True

import replication_model as model

NEW = 99                           # every generation that is made here


def some_site(rng):
    s = model.Site()
    s.gen = rng.randint(1, 4) if rng.random() > .06 else model.BLANK
    s.role, s.made_by = rng.choice((model.ACTIVE, model.ALTERNATE)), rng.choice(("created", "alone") + model.PROMOTED)
    s.base = rng.choice((0, 0, s.gen, rng.randint(1, 4), rng.randint(1, 4), model.UNKNOWN))
    s.ancestors = tuple(range(s.gen - 1, rng.randint(0, max(s.gen - 1, 0)), -1))
    s.failed = rng.random() < .1
    s.consistent = not s.failed and rng.random() < .8
    s.completing = rng.random() < .2
    s.handover = rng.random() < .2
    if rng.random() < .35:
        s.discard = (s.gen, rng.randint(1, 4)) if rng.random() < .8 else (rng.randint(1, 4), rng.randint(1, 4))
    s.paused = (rng.randint(0, 2), rng.random() < .4) if rng.random() < .25 else (0, False)
    s.dirty = frozenset(b for b in range(model.BLOCKS) if rng.random() < .35)
    if s.base == model.UNKNOWN:    # unknown is committed together with a full map
        s.dirty = frozenset(range(model.BLOCKS))
    if s.gen == model.BLANK:       # a copy that holds nothing
        s.role, s.base, s.ancestors, s.consistent, s.handover, s.dirty = model.ALTERNATE, 0, (), False, False, frozenset()
        s.discard, s.made_by, s.completing = None, "created", False
    return s


def shown(s):
    def gen(number):
        return NEW if number >= NEW else number
    discard = "%d:%d" % tuple(gen(g) for g in s.discard) if s.discard else "-"
    return "%s %d %s %d %s %d %d %d %d %s %d:%d %s" % (
        s.role, gen(s.gen), s.made_by, gen(s.base), ",".join(str(gen(g)) for g in s.ancestors if g != model.BLANK) or "-",
        s.consistent, s.failed, s.completing, s.handover, discard, s.paused[0], s.paused[1],
        "".join("1" if b in s.dirty else "0" for b in range(model.BLOCKS)))


def world_of(a, b):
    world = model.World({})
    world.site, world.next_gen = [a.clone(), b.clone()], NEW
    return world


def handshake(a, b):
    world = world_of(a, b)
    for i in (0, 1):
        if model.serves_at_once(world, i):
            world.site[i].serving, world.site[i].mode = True, "ALONE"
    world.link = True
    model.greet(world, 0)
    while any(world.wire):
        for i in (0, 1):
            if world.wire[i]:
                model.on_message(world, i)
    return world.site


def decisions(a, b):
    world, one, other = world_of(a, b), a.record(), b.record()
    everything = frozenset(range(model.BLOCKS))
    # maps that are empty show whether the rule takes everything all the same
    empty = a.clone()
    empty.dirty = frozenset()
    suffices = model.map_for(empty, other, frozenset()) != everything and a.base != model.UNKNOWN
    return "%s %s %d %d %d" % (model.decide(one, other), model.decide(other, one), suffices,
                               model.serves_at_once(world, 0), model.serves_at_once(world, 1))


def edges(a, b):
    alone, promoted = "-", "-"
    if a.gen != model.BLANK and a.base in (0, a.gen):
        world = world_of(a, b)
        model.go_alone(world, 0, "ALONE")
        alone = shown(world.site[0])
    if not a.failed:
        world = world_of(a, b)
        model.take_over(world, 0, not a.consistent)
        promoted = shown(world.site[0])
    return alone, promoted


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=250000 if os.environ.get("SYNCREP_LONG") == "1" else 25000)
    p.add_argument("--seed", type=int, default=int(time.time()))
    args = p.parse_args()
    rng = random.Random(args.seed)
    print("# seed %d" % args.seed)
    for _ in range(args.pairs):
        a, b = some_site(rng), some_site(rng)
        if rng.random() < .5:      # related ones: most random pairs are strangers
            b.gen = a.gen if model.BLANK not in (a.gen, b.gen) else b.gen
            b.ancestors = tuple(g for g in b.ancestors if g != b.gen)
        ends = ["%d %s" % (s.serving, shown(s)) for s in handshake(a, b)]
        print(" | ".join((shown(a), shown(b), decisions(a, b)) + tuple(ends) + edges(a, b)))


if __name__ == "__main__":
    main()
