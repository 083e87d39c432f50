"""Many volumes: the time from the start of both daemons until all are in sync and served, and the memory of the daemons.

The volumes are made once; a round stops both daemons in order and starts both at the same moment.
"""
import time

import rig


def arguments(parser):
    parser.add_argument("--volumes", type=int, help="1000, with --quick 50")


def all_ready(p, count):
    shown = [p.ctl(name, "status") for name in rig.pair.SITES]
    if any(one.code != 0 for one in shown):
        return False
    here, there = (one.doc["collections"] for one in shown)
    return (len(here) == len(there) == count and all(one["sync"] == "in-sync" and one["serving"] for one in here) and
            all(one["sync"] == "in-sync" for one in there))


def one_round(p, count):
    for name in rig.pair.SITES:
        p.stop(name, timeout=60)
    begun = time.monotonic()
    for name in rig.pair.SITES:
        p.start(name, wait=False)
    answers = rig.pair.wait_for(lambda: p.answers(p.sites["a"]) and time.monotonic() - begun, 60, "site a answers")
    p.ctl("a", "wait", "--all", "--for", "in-sync", "--timeout", "120s", timeout=130)
    ready = rig.pair.wait_for(lambda: all_ready(p, count) and time.monotonic() - begun, 120, "all volumes are in sync")
    memory = {name: rig.memory_bytes(pid) / rig.MIB for name, pid in rig.pids(p).items()}
    return {"answers_s": answers, "ready_s": ready, "memory_mib": memory}


def measure(options):
    count = options.volumes or (50 if options.quick else 1000)
    rounds = []
    with rig.make(settings={"both.limits.max_volumes": str(max(count, 1024))}) as p:
        empty = {name: rig.memory_bytes(pid) / rig.MIB for name, pid in rig.pids(p).items()}
        begun = time.monotonic()
        for number in range(count):
            p.ctl_ok("a", "volume", "create", f"v{number}", "--size", "1MiB")
        p.ctl_ok("a", "wait", "--all", "--for", "in-sync", "--timeout", "120s", timeout=130)
        created_s = time.monotonic() - begun
        for _ in range(options.rounds):
            rounds.append(one_round(p, count))
            rig.say(f"many: {count} volumes, ready after {rounds[-1]['ready_s']:.2f} s")
    summary = {"volumes": count, "ready_s": rig.median(rounds, "ready_s"), "answers_s": rig.median(rounds, "answers_s"),
               "create_ms": created_s * 1000 / count, "memory_mib": max(max(one["memory_mib"].values()) for one in rounds),
               "empty_memory_mib": max(empty.values())}
    summary["memory_per_volume_kib"] = (summary["memory_mib"] - summary["empty_memory_mib"]) * 1024 / count
    goals = [rig.goal(f"start-up with {count} volumes, s", summary["ready_s"], "<=", 5)]
    line = "{volumes} volumes: ready after {ready_s:.2f} s, {memory_mib:.0f} MiB ({memory_per_volume_kib:.0f} KiB a volume), " \
           "{create_ms:.0f} ms to make one".format(**summary)
    return rounds, summary, goals, line
