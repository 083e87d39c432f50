"""Distance: writes over a wire that is longer by a given round trip, against the same pair without it.

A round: 4 KiB writes at depth 1 and 32 on a pair without, then on another one with each of the round trips (bench-delay in both
directions).  Each region is touched before, so that marking it is not in the figures.  What the longer wire adds is measured,
too: the round trip of a byte through the same proxy, less that without.
"""
import socket
import statistics
import threading
import time

import rig

PINGS = 200


def arguments(parser):
    parser.add_argument("--rtt-ms", type=float, nargs="+", default=[0.2, 1, 5], help="0.2 1 5")
    parser.add_argument("--size-mib", type=int, default=256)


def echo(server):
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peer:
            while data := peer.recv(64):
                peer.sendall(data)


def ping_us(address):
    """Median round trip of a byte."""
    taken = []
    with socket.create_connection(address) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(PINGS):
            begun = time.perf_counter()
            sock.sendall(b"x")
            sock.recv(1)
            taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e6


def added_us(rtt_ms):
    """What bench-delay really adds to a round trip."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        near = server.getsockname()
        wire = rig.Delay(["127.0.0.1:0", f"127.0.0.1:{near[1]}"], rtt_ms * 500)
        try:
            host, port = wire.addresses[0].split(":")
            added = ping_us((host, int(port))) - ping_us(near)
        finally:
            wire.end()
        server.shutdown(socket.SHUT_RDWR)
    return added


def both_depths(p, options):
    job = {"rw": "randwrite", "bs": "4k", "size": options.size_mib * rig.MIB, "norandommap": 1, "seconds": options.secs}
    rig.touch_regions(p, "v", job["size"])
    return {f"q{depth}": rig.fio(rig.uri(p, "v"), iodepth=depth, **job) for depth in (1, 32)}


def one_round(near, far, wire, options):
    one = {"local": both_depths(near, options), "far": {}}
    for rtt_ms in options.rtt_ms:
        wire.set(rtt_ms * 500)
        far.ctl_ok("a", "wait", "--for", "connected", "--timeout", "30s")
        rig.wait_sync(far, "v")
        seen = both_depths(far, options)
        seen["added_us"] = added_us(rtt_ms)
        seen["sync_afterwards"] = far.status("a", "v")["sync"]
        one["far"][f"{rtt_ms:g}"] = seen
        rig.say(f"distance: {rtt_ms:g} ms (measured {seen['added_us']:.0f} us): {one['local']['q1']['mean_us']:.0f} -> "
                f"{seen['q1']['mean_us']:.0f} us, depth 32: {seen['q32']['iops']:.0f} IOPS")
    return one


def measure(options):
    size = options.size_mib * rig.MIB
    rounds = []
    with rig.make({"v": str(size)}) as near, rig.make({"v": str(size)}) as far:
        for p in near, far:
            rig.fill(rig.uri(p, "v"), size)
        with rig.Wire(far) as wire:
            for _ in range(options.rounds):
                rounds.append(one_round(near, far, wire, options))
    summary = {"local_us": rig.median(rounds, lambda one: one["local"]["q1"]["mean_us"]),
               "local_q32_iops": rig.median(rounds, lambda one: one["local"]["q32"]["iops"]), "far": {}}
    goals = []
    for rtt in rounds[0]["far"]:
        summary["far"][rtt] = {
            "added_us": rig.median(rounds, lambda one: one["far"][rtt]["added_us"]),
            "mean_us": rig.median(rounds, lambda one: one["far"][rtt]["q1"]["mean_us"]),
            "to_expected": rig.median(rounds, lambda one: one["far"][rtt]["q1"]["mean_us"] /
                                      (one["local"]["q1"]["mean_us"] + one["far"][rtt]["added_us"])),
            "q32_iops": rig.median(rounds, lambda one: one["far"][rtt]["q32"]["iops"]),
            "q32_mean_us": rig.median(rounds, lambda one: one["far"][rtt]["q32"]["mean_us"]),
        }
    for rtt, seen in summary["far"].items():
        goals.append(rig.goal(f"{rtt} ms: latency / (local latency + round trip)", seen["to_expected"], "<=", 1.15))
    line = f"local {summary['local_us']:.0f} us; " + ", ".join(
        f"{rtt} ms: {seen['mean_us']:.0f} us ({seen['to_expected']:.2f} of local + round trip), "
        f"depth 32: {seen['q32_iops']:.0f} IOPS" for rtt, seen in summary["far"].items())
    return rounds, summary, goals, line
