"""What tests share besides the pair: other people's clients, a raw NBD client, what the kernel knows of a daemon."""
import os
import re
import resource
import subprocess
import sys
import time

import pair

os.environ.setdefault("MEMSERVER", "")  # nbdtest has the raw client, and wants to know a server for its other half
sys.path.insert(0, os.path.join(pair.TOP, "tests", "adapter", "nbd"))
import nbdtest as raw  # noqa: E402

HZ = os.sysconf("SC_CLK_TCK")


def run(*command, timeout=120, env=None, data=None):
    """(exit code, what it printed on either stream)"""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, input=data,
                          timeout=timeout * pair.SLOW, env={**os.environ, **(env or {})},
                          **({} if data is not None else {"stdin": subprocess.DEVNULL}))
    return done.returncode, done.stdout


def run_ok(*command, **kwargs):
    code, out = run(*command, **kwargs)
    if code != 0:
        raise pair.Failure(f"{' '.join(command)}: {code}\n{out}")
    return out


def tcp_port(p, name):
    """TCP port of a site's NBD server."""
    with open(os.path.join(p.folder, "ports")) as file:
        return int(file.read().split()[{"a": 2, "b": 3}[name]])


def uri(p, name, volume, tcp=False):
    if tcp:
        return f"nbd://{p.host}:{tcp_port(p, name)}/{volume}"
    return f"nbd+unix:///{volume}?socket={p.sites[name].nbd}"


# ---- what the kernel knows of a process

def rss_bytes(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1)) * 1024


def cpu_seconds(pid):
    """User and system time of all threads so far."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HZ


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu_share(pids, seconds):
    """The share of one core that these processes use together, over that time."""
    before = sum(cpu_seconds(pid) for pid in pids)
    begun = time.monotonic()
    time.sleep(seconds)
    return (sum(cpu_seconds(pid) for pid in pids) - before) / (time.monotonic() - begun)


def is_hole(path, offset, length):
    """True if nothing of that part of the file takes space."""
    with open(path, "rb") as file:
        try:
            at = os.lseek(file.fileno(), offset, os.SEEK_DATA)
        except OSError:
            return True
        return at >= offset + length


def open_limit(at_least):
    """Raises the number of files that this process may open; False if it cannot."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < at_least and (hard == resource.RLIM_INFINITY or hard >= at_least):
        resource.setrlimit(resource.RLIMIT_NOFILE, (at_least, hard))
        soft = at_least
    return soft >= at_least


def plain_ctl(p, name, *args, timeout=60, control=None):
    """syncrepctl without --json: (exit code, stdout, stderr)"""
    done = subprocess.run([pair.SYNCREPCTL, "--control", control or p.sites[name].ctl, *args], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout * pair.SLOW,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr
