"""PostgreSQL: pgbench with 4 clients on ext4 on a loop device on nbdfuse, by peerbench: nbdkit with one copy, mirrored, paused.

nbdkit-wt is one copy, each write forced to stable storage before it is answered; syncrep-paused is the same daemon without
replication.  Needs root and peerbench (--peerbench PATH or $PEERBENCH).
"""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import rig

TARGETS = "nbdkit-wt,syncrep,syncrep-paused"


def arguments(parser):
    parser.add_argument("--peerbench", metavar="PATH", help="else $PEERBENCH")
    parser.add_argument("--targets", default=TARGETS, help=TARGETS)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--raw", metavar="BASE", help="keep what peerbench writes: BASE.json and BASE.md")


@contextlib.contextmanager
def work_folder():
    """A folder of peerbench's own.  What is still mounted in it at the end (something had it in use) is unmounted first."""
    folder = tempfile.mkdtemp(prefix="sr-pg-")
    try:
        yield folder
    finally:
        with open("/proc/self/mounts") as mounts:
            inside = [line.split()[1] for line in mounts if line.split()[1].startswith(folder + "/")]
        for mounted in reversed(inside):
            subprocess.run(["umount", "-l", mounted])
        shutil.rmtree(folder, ignore_errors=True)


def run(options, base):
    command = [os.path.join(rig.HERE, "peers"), "pg", "-t", options.targets, "--out", base]
    if options.peerbench:
        command += ["--peerbench", options.peerbench]
    command += ["--", f"--pg-rounds={options.rounds}", f"--pg-secs={options.secs * 3}", f"--pg-clients={options.clients}"]
    if options.quick:
        command += ["--quick", "--pg-size-mib=1024"]
    with work_folder() as folder:
        os.chmod(folder, 0o755)  # the database runs as another user
        env = {**os.environ, "PEERBENCH_WORK": folder}
        if subprocess.run(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=env).returncode != 0:
            raise rig.pair.Failure("peerbench failed")
    with open(base + ".json") as file:
        return json.load(file)[0]


def measure(options):
    with tempfile.TemporaryDirectory(prefix="sr-pg-out-") as folder:
        raw = run(options, os.path.abspath(options.raw) if options.raw else os.path.join(folder, "pg"))
    rounds = {}
    for sample in raw["samples"]:
        rounds.setdefault(sample["round"], {})[sample["target"]] = sample
    rounds = [rounds[number] for number in sorted(rounds)]

    def seen(one, name):
        return one[name]["tps"] if name in one else None

    def ratio(target, other):
        return rig.median([one for one in rounds if target in one and other in one],
                          lambda one: seen(one, target) / seen(one, other))

    tps = {name: rig.median(rounds, lambda one: seen(one, name)) for name in options.targets.split(",")}
    summary = {"tps": tps, "to_nbdkit": ratio("syncrep", "nbdkit-wt"), "to_paused": ratio("syncrep", "syncrep-paused"),
               "copies_equal": raw["verified"].get("syncrep"), "errors": raw["errors"], "secs": raw["secs"]}
    goals = [rig.goal("mirrored / one copy in nbdkit", summary["to_nbdkit"], ">=", 1.0),
             rig.goal("mirrored / paused", summary["to_paused"], ">=", 0.9)]
    line = ", ".join(f"{name} {value:.0f}" for name, value in tps.items() if value) + " transactions/s"
    return rounds, summary, goals, line
