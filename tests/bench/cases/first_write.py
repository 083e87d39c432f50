"""The first write to a block: into a sparse volume, into one made with --preallocate, and overwriting.

A round: new volumes; 4 KiB random writes, each to another block, at depth 1 in one half and at depth 32 in the other.
Each region was touched before, so that marking it is not in the figures.
"""
import rig

KINDS = ("sparse", "preallocated", "overwriting")


def arguments(parser):
    parser.add_argument("--size-mib", type=int, help="of each volume; 2048, with --quick 256")


def one_round(p, size, number, secs):
    names = {kind: f"{kind}{number}" for kind in KINDS[:2]}
    p.ctl_ok("a", "volume", "create", names["sparse"], "--size", str(size), "--wait=60s")
    p.ctl_ok("a", "volume", "create", names["preallocated"], "--size", str(size), "--preallocate", "--wait=600s", timeout=700)
    names["overwriting"] = "overwriting"
    one = {}
    for kind in KINDS:
        rig.touch_regions(p, names[kind], size)
        for depth, offset in ((1, 0), (32, size // 2)):
            one[f"{kind}_q{depth}"] = rig.fio(rig.uri(p, names[kind]), rw="randwrite", bs="4k", iodepth=depth, offset=offset,
                                              size=size // 2, seconds=secs)
    for kind in KINDS[:2]:
        p.ctl_ok("a", "volume", "delete", names[kind], f"--force={names[kind]}")
    return one


def measure(options):
    size = (options.size_mib or (256 if options.quick else 2048)) * rig.MIB
    rounds = []
    with rig.make({"overwriting": str(size)}) as p:
        rig.fill(rig.uri(p, "overwriting"), size)
        for number in range(options.rounds):
            one = one_round(p, size, number, options.secs)
            rounds.append(one)
            rig.say("first_write: " + ", ".join(f"{kind} {one[kind + '_q1']['mean_us']:.0f} us" for kind in KINDS))
    summary = {}
    for kind in KINDS:
        for depth in 1, 32:
            key = f"{kind}_q{depth}"
            summary[key + "_us"] = rig.median(rounds, lambda one: one[key]["mean_us"])
            summary[key + "_iops"] = rig.median(rounds, lambda one: one[key]["iops"])
            summary[key + "_to_overwriting"] = rig.median(
                rounds, lambda one: one[key]["mean_us"] / one[f"overwriting_q{depth}"]["mean_us"])
    line = ", ".join(f"{kind} {summary[kind + '_q1_us']:.0f} us ({summary[kind + '_q1_to_overwriting']:.2f})" for kind in KINDS)
    return rounds, summary, [], line + " at depth 1"
