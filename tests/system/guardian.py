#!/usr/bin/env python3
"""Cleans up after a test that was killed: ends its daemons and removes its folder.

Reads lines from stdin: "pid NUMBER START-TIME", "dir PATH", "done".  When stdin ends without "done", the test is gone:
every process named (if it is still the same one) is killed and the folder removed.  Thus no test leaves a stray process,
not even when ctest kills it at its time limit.
"""
import os
import shutil
import signal
import subprocess
import sys


def start_time(pid):
    """When the process was started, in ticks since boot; None if there is none (or only its zombie)."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def main():
    os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pids, folders = {}, []
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "pid":
            pid, started = rest.split()
            pids[int(pid)] = int(started)
        elif word == "dir":
            folders.append(rest)
        elif word == "done":
            return
    for pid, started in pids.items():
        if start_time(pid) == started:
            os.kill(pid, signal.SIGKILL)
    for folder in folders:
        with open("/proc/self/mounts") as mounts:
            inside = [line.split()[1] for line in mounts if line.split()[1].startswith(folder + "/")]
        for mount in inside:
            subprocess.run(["umount", "-l", mount], stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
