"""Resident memory: what a clean 16 TiB volume adds, and the most under full load against limits.buffer_memory.

A round: a new pair without volumes, then with the large sparse one (on a file system that takes none of 16 TiB: the largest it
takes); then for each buffer_memory a new pair under 4 KiB and 1 MiB writes at depth 128 on each of several connections.
"""
import rig

LARGE = (16 * rig.TIB, 16 * rig.TIB - rig.MIB, 8 * rig.TIB, 2 * rig.TIB)


def arguments(parser):
    parser.add_argument("--buffers-mib", type=int, nargs="+", default=[128, 512], help="128 512")
    parser.add_argument("--connections", type=int, default=4)


def memory_mib(p, field="VmRSS"):
    return {name: rig.memory_bytes(pid, field) / rig.MIB for name, pid in rig.pids(p).items()}


def clean_volume():
    with rig.make() as p:
        before = memory_mib(p)
        for size in LARGE:
            made = p.ctl("a", "volume", "create", "v", "--size", str(size), "--wait=60s")
            if made.code == 0:
                break
        else:
            raise rig.pair.Failure(f"no large volume can be made: {made!r}")
        host = p.nbd("a", "v")  # one that is used a little, at its ends and in the middle
        for at in (0, size // 2, size - 4096):
            host.pwrite(b"x" * 4096, at)
        p.wait_sync("v")
        after = memory_mib(p)
        host.shutdown()
        p.handles.clear()
    return {"size_tib": size / rig.TIB, "before_mib": before, "after_mib": after,
            "added_mib": max(after[name] - before[name] for name in after)}


def full_load(buffer_mib, options):
    size = rig.GIB
    with rig.make({"v": str(size)}, {"both.limits.buffer_memory": f"{buffer_mib}MiB"}) as p:
        for bs in "4k", "1m":
            rig.fio(rig.uri(p, "v"), rw="randwrite", bs=bs, iodepth=128, numjobs=options.connections, size=size,
                    norandommap=1, seconds=options.secs)
        rig.wait_sync(p, "v")
        most = memory_mib(p, "VmHWM")
    return {"most_mib": most, "above_buffer_mib": max(most.values()) - buffer_mib}


def measure(options):
    rounds = []
    for _ in range(options.rounds):
        one = {"clean": clean_volume(), "load": {str(buffer): full_load(buffer, options) for buffer in options.buffers_mib}}
        rounds.append(one)
        rig.say(f"memory: {one['clean']['size_tib']:.0f} TiB add {one['clean']['added_mib']:.1f} MiB; " + ", ".join(
            f"buffer {buffer}: at most {max(seen['most_mib'].values()):.0f} MiB" for buffer, seen in one["load"].items()))
    clean = {"size_tib": rounds[0]["clean"]["size_tib"], "added_mib": rig.median(rounds, lambda one: one["clean"]["added_mib"])}
    load = {buffer: max(max(one["load"][buffer]["most_mib"].values()) for one in rounds) for buffer in rounds[0]["load"]}
    goals = [rig.goal(f"what a clean volume of {clean['size_tib']:.4g} TiB adds, MiB", clean["added_mib"], "<=", 64)]
    goals += [rig.goal(f"buffer_memory {buffer} MiB: most memory of a daemon under load, MiB", most, "<=", int(buffer) + 64)
              for buffer, most in load.items()]
    line = f"a clean volume of {clean['size_tib']:.4g} TiB adds {clean['added_mib']:.1f} MiB; under load " + \
           ", ".join(f"{most:.0f} MiB with buffer_memory {buffer} MiB" for buffer, most in load.items())
    return rounds, {"clean": clean, "load_mib": load}, goals, line
