"""What the measurements share: a pair, fio, a longer wire, medians, goals.

A measurement is a module of cases/ with

    arguments(parser)     options of its own
    measure(options)      -> (rounds, summary, goals, line)

rounds: what was seen, one dictionary a round; summary: medians over the rounds, of ratios that were formed within a round;
goals: a list of goal(); line: a sentence for people.
"""
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TOP, "tests", "system"))
import pair  # noqa: E402

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
REGION = 4 * MIB
DELAY = os.path.join(pair.BIN, "bench-delay")


# ---- the pair

def make(volumes=None, settings=None):
    """A pair that is stopped and removed at the end of the `with`, or when this program is killed."""
    return pair.Pair(volumes=volumes or {}, set=settings or {})


def uri(p, volume, site="a"):
    """Over TCP, as hosts of another machine would come."""
    with open(os.path.join(p.folder, "ports")) as file:
        port = file.read().split()[{"a": 2, "b": 3}[site]]
    return f"nbd://{p.host}:{port}/{volume}"


def wait_sync(p, volume, timeout_s=600):
    p.ctl_ok("a", "wait", volume, "--for", "in-sync", "--timeout", f"{timeout_s}s", timeout=timeout_s + 10)


def pause(p, volume):
    p.ctl_ok("a", "pause", volume, "--wait")


def resume(p, volume, wait_s=600):
    p.ctl_ok("a", "resume", volume, *([f"--wait={wait_s}s"] if wait_s else []), timeout=wait_s + 30)


def touch_regions(p, volume, size):
    """One write to each region: all of them are marked then, and stay so if they are no more than limits.hot_regions."""
    host = p.nbd("a", volume)
    for at in range(0, size, REGION):
        host.pwrite(os.urandom(4096), at)
    host.shutdown()
    p.handles.remove(host)


def resync_seconds(p, volume):
    """How long the last resync took, from the time stamps of the daemon's events."""
    events = [event for event in p.ctl_ok("a", "events").doc["events"]
              if event["kind"] == "sync" and event["object"] == volume]
    ended = max(i for i, event in enumerate(events) if "in-sync" in event["text"])
    began = max(i for i, event in enumerate(events[:ended]) if "(resyncing)" in event["text"])
    return max(events[ended]["wall_ms"] - events[began]["wall_ms"], 1) / 1000


def memory_bytes(pid, field="VmRSS"):
    """VmRSS now, VmHWM: the most so far."""
    with open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise KeyError(field)


def pids(p):
    return {name: site.pid for name, site in p.sites.items()}


# ---- fio

def fio_command(target, **job):
    """target: an NBD URI, or the path of a local file (O_DIRECT, O_DSYNC).  job: fio options; `seconds` makes it time-based."""
    if target.startswith("nbd"):
        engine = ["--ioengine=nbd", f"--uri={target}"]
    else:
        engine = ["--ioengine=io_uring", "--direct=1", "--sync=dsync", f"--filename={target}"]
    seconds = job.pop("seconds", None)
    if seconds:
        job.update(runtime=f"{seconds}s", time_based=1)
    options = [f"--{key}={value}" for key, value in job.items() if value is not None]
    return ["fio", "--name=x", "--output-format=json", "--randrepeat=0", "--group_reporting", *engine, *options]


def fio_result(text):
    job = json.loads(text[text.index("{"):])["jobs"][0]
    if job["error"]:
        raise pair.Failure(f"fio: error {job['error']}")
    part = max((job["write"], job["read"]), key=lambda one: one["total_ios"])
    share = part["clat_ns"].get("percentile", {})
    return {"iops": part["iops"], "mib_s": part["bw_bytes"] / MIB, "mean_us": part["lat_ns"]["mean"] / 1000,
            "p50_us": share.get("50.000000", 0) / 1000, "p99_us": share.get("99.000000", 0) / 1000, "ios": part["total_ios"]}


def fio_start(target, **job):
    return subprocess.Popen(fio_command(target, **job), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def fio_end(process):
    text, _ = process.communicate()
    if process.returncode != 0:
        raise pair.Failure(f"fio: {process.returncode}\n{text[-2000:]}")
    return fio_result(text)


def fio(target, **job):
    return fio_end(fio_start(target, **job))


def fill(target, size, offset=0):
    """Writes all of it once."""
    return fio(target, rw="write", bs="1m", iodepth=4, size=size, offset=offset)


# ---- a longer wire

class Delay:
    """bench-delay between LISTEN, TARGET, LISTEN, TARGET ...; .addresses: where it really listens."""

    def __init__(self, addresses, one_way_us):
        self.process = subprocess.Popen([DELAY, f"{one_way_us:.0f}", *addresses], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.addresses = []
        for _ in addresses[::2]:
            words = self.process.stdout.readline().split()
            if len(words) != 2:
                raise pair.Failure(f"{DELAY} does not start")
            self.addresses.append(words[1])

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Wire:
    """Each site of a pair dials the other through bench-delay; the pair is restarted for it."""

    def __init__(self, p):
        with open(os.path.join(p.folder, "env")) as file:
            places = dict(line.strip().split("=", 1) for line in file)
        self.targets = [places["SR_B_PEER"], places["SR_A_PEER"]]
        self.listen = ["127.0.0.1:0", "127.0.0.1:0"]
        self.delay = None
        self.set(0)
        try:
            self.put_between(p)
        except BaseException:
            self.delay.end()
            raise

    def put_between(self, p):
        for name in pair.SITES:
            p.stop(name)
        command = [pair.LOCALPAIR, "up", p.folder, "--set", f"a.peer.address={self.listen[0]}",
                   "--set", f"b.peer.address={self.listen[1]}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "SYNCREP_BIN": pair.BIN})
        if done.returncode != 0:
            raise pair.Failure(done.stdout)
        for name in pair.SITES:
            p.adopt(name)

    def set(self, one_way_us):
        """Breaks the connections; new ones take that long each way."""
        if self.delay:
            self.delay.end()
        self.delay = Delay([word for both in zip(self.listen, self.targets) for word in both], one_way_us)
        self.listen = self.delay.addresses

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.delay.end()


# ---- figures

def median(rounds, key):
    """key: a name, or a function of a round."""
    values = [key(one) if callable(key) else one[key] for one in rounds]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def goal(what, value, sense, bound):
    """sense: ">=" or "<="."""
    met = value is not None and (value >= bound if sense == ">=" else value <= bound)
    return {"what": what, "value": value, "sense": sense, "bound": bound, "met": met}


def say(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def machine(folder):
    found = subprocess.run(["findmnt", "-no", "FSTYPE,OPTIONS", "-T", folder], stdout=subprocess.PIPE, text=True).stdout.strip()
    with open("/proc/meminfo") as file:
        memory = int(file.readline().split()[1]) * 1024
    return {"kernel": platform.release().split("-")[0], "cpus": os.cpu_count(), "memory_bytes": memory, "file_system": found,
            "load": os.getloadavg()[0]}


@contextlib.contextmanager
def document(name, options, folder):
    """Collects what a measurement gives; the result is complete at the end of the `with`."""
    doc = {"name": name, "began": time.strftime("%F %T"), "machine": machine(folder),
           "options": {key: value for key, value in vars(options).items() if isinstance(value, (int, float, str, list, bool))}}
    begun = time.monotonic()
    yield doc
    doc["took_s"] = round(time.monotonic() - begun, 1)
    doc["load_after"] = os.getloadavg()[0]
