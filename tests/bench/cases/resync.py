"""Resync of an idle volume: how fast blocks are copied, against writing; how fast equal blocks are compared, against copying.

A round: sequential writes and reads of 1 MiB at depth 4 while in sync; pause, write everything, resume: the time until in
sync; one write to each region, kill -9 of the active site and its restart: all of it is suspect, and equal, so it is compared
by hash.  Comparing reads both copies: where they are on one disk it cannot be faster than half of what that reads.
"""
import rig


def arguments(parser):
    parser.add_argument("--size-mib", type=int, help="1024, with --quick 128; at most 4096: the regions that stay marked")


def one_round(p, size, secs):
    target = rig.uri(p, "v")
    rig.touch_regions(p, "v", size)
    write = rig.fio(target, rw="write", bs="1m", iodepth=4, size=size, seconds=secs)
    read = rig.fio(target, rw="read", bs="1m", iodepth=4, size=size, seconds=secs)
    rig.pause(p, "v")
    alone = rig.fill(target, size)
    dirty = p.status("a", "v")["dirty_bytes"]
    rig.resume(p, "v")
    copy_s = rig.resync_seconds(p, "v")
    rig.touch_regions(p, "v", size)
    p.kill9("a")
    p.start("a")
    rig.wait_sync(p, "v")
    counters = p.status("a", "v")["counters"]
    compared, equal = counters["compared_blocks"] * 4096, counters["equal_blocks"] * 4096
    compare_s = rig.resync_seconds(p, "v")
    return {"write_mib_s": write["mib_s"], "read_mib_s": read["mib_s"], "alone_write_mib_s": alone["mib_s"],
            "copied_mib": dirty / rig.MIB, "copy_s": copy_s, "copy_mib_s": dirty / rig.MIB / copy_s,
            "compared_mib": compared / rig.MIB, "equal_mib": equal / rig.MIB,
            "compare_s": compare_s, "compare_mib_s": compared / rig.MIB / compare_s}


def measure(options):
    size = (options.size_mib or (128 if options.quick else 1024)) * rig.MIB
    with rig.make({"v": str(size)}) as p:
        rig.fill(rig.uri(p, "v"), size)
        rounds = []
        for _ in range(options.rounds):
            rounds.append(one_round(p, size, options.secs))
            rig.say(f"resync: write {rounds[-1]['write_mib_s']:.0f}, copy {rounds[-1]['copy_mib_s']:.0f}, "
                    f"compare {rounds[-1]['compare_mib_s']:.0f} MiB/s")
    summary = {key: rig.median(rounds, key) for key in ("write_mib_s", "read_mib_s", "copy_mib_s", "compare_mib_s")}
    summary["copy_to_write"] = rig.median(rounds, lambda one: one["copy_mib_s"] / one["write_mib_s"])
    summary["compare_to_half_of_reads"] = rig.median(rounds, lambda one: one["compare_mib_s"] * 2 / one["read_mib_s"])
    summary["compare_to_copy"] = rig.median(rounds, lambda one: one["compare_mib_s"] / one["copy_mib_s"])
    goals = [rig.goal("resync rate / sequential writes", summary["copy_to_write"], ">=", 0.7),
             rig.goal("rate of comparing equal data / copying", summary["compare_to_copy"], ">=", 3)]
    line = "writes {write_mib_s:.0f}, resync {copy_mib_s:.0f} ({copy_to_write:.2f} of it), comparing {compare_mib_s:.0f} " \
           "MiB/s ({compare_to_copy:.1f} times copying, {compare_to_half_of_reads:.2f} of half of the reads)".format(**summary)
    return rounds, summary, goals, line
