"""Resync under load: what it does to the writes of a host, and whether it still moves.

A round: 4 KiB writes at depth 1, undisturbed; then the same while blocks elsewhere in the volume are resynced.  The samples of
the second begin when the resync has been running for a second.
"""
import time

import rig

RAMP_S = 2  # fio is up; the resync begins in the middle of it


def arguments(parser):
    parser.add_argument("--host-mib", type=int, default=256, help="the part that the host writes to; 256")
    parser.add_argument("--dirty-mib", type=int, help="the part that is resynced; 2048, with --quick 512")
    parser.add_argument("--iops", type=int, help="limit of the host; none")


def one_round(p, options, host_size, dirty_size):
    target = rig.uri(p, "v")
    job = {"rw": "randwrite", "bs": "4k", "iodepth": 1, "size": host_size, "norandommap": 1, "seconds": options.secs,
           "rate_iops": options.iops}
    rig.touch_regions(p, "v", host_size)
    calm = rig.fio(target, ramp_time=f"{RAMP_S}s", **job)
    rig.pause(p, "v")
    rig.fill(target, dirty_size, offset=host_size)
    host = rig.fio_start(target, ramp_time=f"{RAMP_S}s", **job)
    time.sleep(RAMP_S / 2)
    rig.resume(p, "v", wait_s=0)
    time.sleep(RAMP_S / 2)
    began, before = time.monotonic(), p.status("a", "v")
    time.sleep(options.secs * 0.9)
    ended, after = time.monotonic(), p.status("a", "v")
    busy = rig.fio_end(host)
    running = before["resync"]["running"] and after["resync"]["running"]
    rig.wait_sync(p, "v")
    copied = after["counters"]["copied_bytes"] - before["counters"]["copied_bytes"]
    return {"calm": calm, "busy": busy, "resync_mib_s": copied / rig.MIB / (ended - began), "all_the_time": running,
            "left_mib": after["dirty_bytes"] / rig.MIB}


def measure(options):
    host_size = options.host_mib * rig.MIB
    dirty_size = (options.dirty_mib or (512 if options.quick else 2048)) * rig.MIB
    with rig.make({"v": str(host_size + dirty_size)}) as p:
        rig.fill(rig.uri(p, "v"), host_size + dirty_size)
        rounds = []
        for _ in range(options.rounds):
            one = one_round(p, options, host_size, dirty_size)
            rounds.append(one)
            rig.say(f"loaded: p99 {one['calm']['p99_us']:.0f} -> {one['busy']['p99_us']:.0f} us, "
                    f"resync {one['resync_mib_s']:.0f} MiB/s" +
                    ("" if one["all_the_time"] else "; it did not run all the time: take more --dirty-mib"))
    summary = {f"{when}_{key}": rig.median(rounds, lambda one: one[when][key])
               for when in ("calm", "busy") for key in ("p99_us", "p50_us", "mean_us", "iops")}
    for key in "p99_us", "p50_us", "mean_us":
        summary["ratio_" + key] = rig.median(rounds, lambda one: one["busy"][key] / one["calm"][key])
    summary["resync_mib_s"] = rig.median(rounds, "resync_mib_s")
    summary["resync_ran_all_the_time"] = all(one["all_the_time"] for one in rounds)
    goals = [rig.goal("p99 of writes during a resync / undisturbed", summary["ratio_p99_us"], "<=", 2),
             rig.goal("rate of the resync meanwhile, MiB/s", summary["resync_mib_s"], ">=", 4)]
    line = "p99 {calm_p99_us:.0f} us undisturbed, {busy_p99_us:.0f} us during a resync ({ratio_p99_us:.2f} times; p50 " \
           "{ratio_p50_us:.2f} times) of {resync_mib_s:.0f} MiB/s".format(**summary)
    return rounds, summary, goals, line
