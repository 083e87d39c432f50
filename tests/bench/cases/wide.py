"""Random writes all over a large sparse volume, against writes within the regions that stay marked.

A round: 4 KiB writes at depth 32 over the first part, which was written before; then over all of it, where nearly every write
touches a region that is not marked, and a block that has no place in the file yet.  How much of the difference is the file
system's is shown by the same on a plain file (O_DIRECT, O_DSYNC).
"""
import os

import rig


def arguments(parser):
    parser.add_argument("--size-gib", type=int, default=64)
    parser.add_argument("--hot-mib", type=int, help="1024, with --quick 128; at most 4096: the regions that stay marked")
    parser.add_argument("--preallocate", action="store_true", help="give every block its place first; takes twice the size")


def make_plain_file(path, size, hot, preallocate):
    with open(path, "wb") as file:
        if preallocate:
            os.posix_fallocate(file.fileno(), 0, size)
        file.truncate(size)
    rig.fio(path, rw="write", bs="1m", iodepth=4, size=hot, filesize=size)


def commits(p):
    counters = p.status("a", "v")["counters"]
    return counters["meta_commits"], counters["writes"]


def one_round(p, plain, size, hot, secs):
    one = {}
    for where, target in (("syncrep", rig.uri(p, "v")), ("file", plain)):
        for name, span in (("hot", hot), ("wide", size)):
            if where == "syncrep" and name == "hot":
                rig.touch_regions(p, "v", hot)
            before = commits(p)
            seen = rig.fio(target, rw="randwrite", bs="4k", iodepth=32, size=span, norandommap=1, seconds=secs,
                           filesize=size if where == "file" else None)
            after = commits(p)
            if where == "syncrep":
                seen["commits_per_write"] = (after[0] - before[0]) / max(after[1] - before[1], 1)
            one[f"{where}_{name}"] = seen
    return one


def measure(options):
    size, hot = options.size_gib * rig.GIB, (options.hot_mib or (128 if options.quick else 1024)) * rig.MIB
    create = (str(size), "--preallocate", "--wait=2h") if options.preallocate else str(size)
    rounds = []
    with rig.make({"v": create}) as p:
        plain = os.path.join(p.folder, "plain.img")
        make_plain_file(plain, size, hot, options.preallocate)
        rig.fill(rig.uri(p, "v"), hot)
        for _ in range(options.rounds):
            one = one_round(p, plain, size, hot, options.secs)
            rounds.append(one)
            rig.say(f"wide: hot {one['syncrep_hot']['iops']:.0f}, wide {one['syncrep_wide']['iops']:.0f}; plain file: hot "
                    f"{one['file_hot']['iops']:.0f}, wide {one['file_wide']['iops']:.0f} IOPS")
    summary = {f"{key}_{what}": rig.median(rounds, lambda one: one[key][what])
               for key in ("syncrep_hot", "syncrep_wide", "file_hot", "file_wide") for what in ("iops", "p99_us")}
    for where in "syncrep", "file":
        summary[where + "_wide_to_hot"] = rig.median(
            rounds, lambda one: one[where + "_wide"]["iops"] / one[where + "_hot"]["iops"])
    for name in "hot", "wide":
        summary[name + "_commits_per_write"] = rig.median(rounds, lambda one: one["syncrep_" + name]["commits_per_write"])
    goals = [rig.goal("writes all over / within marked regions", summary["syncrep_wide_to_hot"], ">=", 0.5)]
    line = "hot {syncrep_hot_iops:.0f}, all over {syncrep_wide_iops:.0f} IOPS ({syncrep_wide_to_hot:.2f}); a plain file: " \
           "{file_wide_to_hot:.2f}".format(**summary)
    return rounds, summary, goals, line
