"""A real pair of daemons for a test: start, break, look, compare.  See README.md.

    class MyTest(pair.Case):
        def test_it(self):
            p = self.pair(volumes={"v": "64MiB"}, link=True)
            h = p.nbd("a", "v")
            ...
            p.compare("v")

Everything lives in a folder of its own with free ports; Pair ends what it started, also when the test fails, and a
guardian process does so when the test itself is killed.
"""
import ctypes
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import nbd

import guardian
import proxy

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("SYNCREP_BIN", os.path.join(TOP, "build", "bin"))
SYNCREPD = os.path.join(BIN, "syncrepd")
SYNCREPCTL = os.path.join(BIN, "syncrepctl")
LOCALPAIR = os.path.join(TOP, "deploy", "localpair")
LONG = os.environ.get("SYNCREP_LONG", "0") not in ("", "0")
SLOW = float(os.environ.get("SYNCREP_SLOW", "1"))  # stretches waiting times: builds with sanitizers
SANITIZED = SLOW > 1  # such a build looks for other faults than lost writes: fewer rounds of the same
SITES = ("a", "b")
BLOCK = 4096
MIB = 1 << 20
SKIPPED = 77


class Failure(AssertionError):
    pass


def wait_for(condition, timeout=30, what="the condition", every=0.02):
    """Polls until `condition` returns something true, and returns that."""
    end = time.monotonic() + timeout * SLOW
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what}: not within {timeout * SLOW:g} s (last value {value!r})")
        time.sleep(every)


def alive(pid):
    return guardian.start_time(pid) is not None


class Ctl:
    """What a syncrepctl command gave: `code` (exit code) and `doc` (its JSON)."""

    def __init__(self, code, text, args):
        self.code, self.args = code, args
        try:
            self.doc = json.loads(text)
        except ValueError:
            raise Failure(f"syncrepctl {' '.join(args)}: exit {code}, not JSON: {text!r}")
        if self.doc["ok"] != (code == 0):
            raise Failure(f"syncrepctl {' '.join(args)}: exit {code} but ok is {self.doc['ok']}")

    @property
    def error(self):
        """The error of the document, or that of the first result that has one."""
        if "error" in self.doc:
            return self.doc["error"]
        for result in self.doc.get("results", ()):
            if "error" in result:
                return result["error"]
        return {}

    def __repr__(self):
        return f"<syncrepctl {' '.join(self.args)}: {self.code} {json.dumps(self.doc)}>"


class Site:
    """What a Pair knows of one site."""

    def __init__(self, name, folder):
        self.name = name
        self.folder = os.path.join(folder, name)
        self.config = os.path.join(self.folder, "config.yaml")
        self.log = os.path.join(self.folder, "log")
        self.ctl = self.nbd = self.pool = None
        self.pid = None
        self.process = None  # of the daemon, once the test itself started it
        self.held = False
        self.env = {}
        self.last_exit = None


class Pair:
    """volumes: {name: size}, made with site a active unless the size is (size, *more arguments of volume create).
    set: {"both.stall_budget": "2s", "a.log.level": "debug"}.  link: through a Proxy, as .link.
    env: {"both.NAME": value, "a.NAME": value} of the daemons.  faults: allow fault().  prepare(pair) is called before
    anything is started; at_end(function) registers what is called when all has ended."""

    def __init__(self, volumes=None, set=None, link=False, env=None, faults=False, prepare=None):
        self.folder = tempfile.mkdtemp(prefix="sr-")
        self.sites = {name: Site(name, self.folder) for name in SITES}
        self.guardian = subprocess.Popen([sys.executable, "-B", guardian.__file__], stdin=subprocess.PIPE, text=True)
        self.tell_guardian(f"dir {self.folder}")
        self.link = None
        self.handles = []
        self.endings = []
        self.closed = False
        env = dict(env or {})
        if faults:
            env["both.SYNCREP_FAULT_FILE"] = self.fault_file()
        for key, value in env.items():
            where, _, name = key.partition(".")
            for site in SITES if where == "both" else (where,):
                self.sites[site].env[name] = value
        try:
            if prepare:
                prepare(self)
            self.up(dict(set or {}), link)
            if env:
                for name in SITES:
                    self.restart(name)
                self.ctl_ok("a", "wait", "--for", "connected", "--timeout", "30s")
            self.make(volumes or {})
        except BaseException:
            self.report()
            self.close(check=False)
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind:
            self.report()
        self.close(check=kind is None)

    # ---- start and end

    def up(self, settings, link):
        defaults = {"both.retry.min": "100ms", "both.retry.max": "1s", "both.stall_budget": f"{int(5000 * SLOW)}ms"}
        settings = {**defaults, **settings}
        if link:
            self.link = proxy.Proxy(self.sites["a"].config, self.sites["b"].config)
            settings["a.peer.address"] = f"127.0.0.1:{self.link.to_b}"
            settings["b.peer.address"] = f"127.0.0.1:{self.link.to_a}"
        # A loopback address of its own: another process can never take the port of a site that is down for a moment.
        self.host = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.{random.randint(1, 254)}"
        command = [LOCALPAIR, "up", self.folder, "--host", self.host]
        for key, value in settings.items():
            where, _, name = key.partition(".")
            for site in SITES if where == "both" else (where,):
                command += ["--set", f"{site}.{name}={value}"]
        environment = {**os.environ, "SYNCREP_BIN": BIN}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                              timeout=60 * SLOW, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Failure(f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")
        values = dict(line.split("=", 1) for line in done.stdout.split() if line.startswith("SR_"))
        for name, site in self.sites.items():
            key = f"SR_{name.upper()}_"
            site.ctl, site.nbd, site.pool = (values[key + what] for what in ("CTL", "NBD", "POOL"))
            self.set_pid(site, int(values[key + "PID"]))

    def make(self, volumes):
        for name, size in volumes.items():
            size, *more = size if isinstance(size, (tuple, list)) else (size,)
            self.ctl_ok("a", "volume", "create", name, "--size", size, *more)
        for name in volumes:
            self.wait_sync(name)

    def at_end(self, ending):
        self.endings.append(ending)

    def set_pid(self, site, pid):
        site.pid = pid
        started = guardian.start_time(pid)
        if started is not None:
            self.tell_guardian(f"pid {pid} {started}")

    def tell_guardian(self, line):
        self.guardian.stdin.write(line + "\n")
        self.guardian.stdin.flush()

    def close(self, check=True):
        """Ends everything.  With `check` the daemons are stopped in order, and must do so without a complaint."""
        if self.closed:
            return
        self.closed = True
        problems = []
        self.handles.clear()
        try:
            for site in self.sites.values():
                if site.held:
                    self.release(site.name)
            if check:
                problems = self.stop_all()
        finally:
            for site in self.sites.values():
                if site.pid and alive(site.pid):
                    os.kill(site.pid, signal.SIGKILL)
                if site.process:
                    site.process.wait()
            if self.link:
                self.link.close()
            if problems:
                self.report()
            problems += self.complaints()
            for ending in self.endings:
                ending()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.tell_guardian("done")
            self.guardian.stdin.close()
            self.guardian.wait()
        if problems:
            raise Failure("; ".join(problems))

    def stop_all(self):
        problems = []
        running = [site for site in self.sites.values() if site.pid and alive(site.pid)]
        for site in running:
            os.kill(site.pid, signal.SIGTERM)
        for site in running:
            try:
                wait_for(lambda: self.ended(site), 20, f"site {site.name} stops")
            except Failure as failure:
                problems.append(str(failure))
                continue
            if site.last_exit not in (0, None):
                problems.append(f"site {site.name} ended with {site.last_exit}")
        return problems

    def complaints(self):
        """What the logs hold that no run may cause."""
        found = []
        for site in self.sites.values():
            for line in self.log(site.name).splitlines():
                if re.search(r"Sanitizer|runtime error|assertion|protocol error|broke the protocol", line, re.I):
                    found.append(f"log of site {site.name}: {line}")
        return found[:5]

    # ---- processes

    def ended(self, site):
        """True once the daemon is gone; its exit code is then in last_exit if it was ours."""
        if site.process:
            if site.process.poll() is None:
                return False
            site.last_exit = site.process.returncode
            return True
        return not alive(site.pid)

    def kill9(self, *names):
        """SIGKILL, of all named at the same moment; returns once they are gone."""
        sites = [self.sites[name] for name in names]
        for site in sites:
            os.kill(site.pid, signal.SIGKILL)
        for site in sites:
            wait_for(lambda: self.ended(site), 30, f"site {site.name} dies")
            site.held = False

    def start(self, name, wait=True):
        """Starts the daemon of a site; with `wait` returns when it answers."""
        site = self.sites[name]
        if site.pid and not self.ended(site):
            raise Failure(f"site {name} is running")
        with open(site.log, "ab") as log:
            site.process = subprocess.Popen([SYNCREPD, "--config", site.config], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env={**os.environ, **site.env}, start_new_session=True)
        self.set_pid(site, site.process.pid)
        with open(os.path.join(site.folder, "pid"), "w") as file:  # as localpair does
            file.write(f"{site.pid}\n")
        site.last_exit = None
        if wait:
            wait_for(lambda: self.answers(site) or self.died(site), 30, f"site {name} starts")

    def answers(self, site):
        return subprocess.run([SYNCREPCTL, "--control", site.ctl, "--timeout", "5s", "pool", "list"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def died(self, site):
        if self.ended(site):
            raise Failure(f"site {site.name} ended with {site.last_exit} at its start")
        return False

    def stop(self, name, timeout=20):
        """SIGTERM; returns the exit code (None if the daemon was not started by this test)."""
        site = self.sites[name]
        os.kill(site.pid, signal.SIGTERM)
        wait_for(lambda: self.ended(site), timeout, f"site {name} stops")
        return site.last_exit

    def restart(self, name, wait=True):
        code = self.stop(name)
        if code not in (0, None):
            raise Failure(f"site {name} ended with {code}")
        self.start(name, wait)

    def adopt(self, name):
        """A daemon that something else started (localpair) becomes the pair's."""
        site = self.sites[name]
        if site.process:
            site.process.wait()
        site.process = None
        with open(os.path.join(site.folder, "pid")) as file:
            self.set_pid(site, int(file.read()))

    def hold(self, name):
        site = self.sites[name]
        os.kill(site.pid, signal.SIGSTOP)
        site.held = True
        wait_for(lambda: self.process_state(site.pid) == "T", 10, f"site {name} is held")

    def release(self, name):
        self.sites[name].held = False
        if alive(self.sites[name].pid):
            os.kill(self.sites[name].pid, signal.SIGCONT)

    @staticmethod
    def process_state(pid):
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]

    # ---- what administrators do and see

    def ctl(self, name, *args, timeout=60):
        done = subprocess.run([SYNCREPCTL, "--control", self.sites[name].ctl, "--json", *args], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=timeout * SLOW)
        return Ctl(done.returncode, done.stdout, args)

    def replace(self, name, what):
        """Once that site has met the other one: before, it cannot know that its copy is not the last, and asks for force."""
        def done():
            result = self.ctl(name, "replace", what)
            if result.code not in (0, 5):
                raise Failure(f"at site {name}: {result!r}")
            return result.code == 0
        wait_for(done, 30, f"replace {what} at {name}")

    def ctl_ok(self, name, *args, timeout=60):
        result = self.ctl(name, *args, timeout=timeout)
        if result.code != 0:
            raise Failure(f"at site {name}: {result!r}")
        return result

    def status(self, name, volume):
        """The collection of the volume as that site shows it."""
        return self.ctl_ok(name, "collection", "show", volume).doc["collection"]

    def site_status(self, name):
        return self.ctl_ok(name, "status").doc["site"]

    def serving(self, volume):
        """Name of the site that serves the volume to hosts now, None if none does.  Two are an error: both said so again
        and again, for the role may have moved between the question to one and that to the other."""
        for _ in range(5):
            found = [name for name, site in self.sites.items()
                     if not site.held and not self.ended(site) and self.serves(name, volume)]
            if len(found) < 2:
                return found[0] if found else None
        raise Failure(f"both sites serve {volume}")

    def serves(self, name, volume):
        shown = self.ctl(name, "collection", "show", volume)
        return shown.code == 0 and shown.doc["collection"]["serving"]

    def in_sync(self, volume):
        """True if both sites say so; then nothing may be dirty."""
        shown = []
        for name in SITES:
            result = self.ctl(name, "collection", "show", volume)
            if result.code == 3 and not self.ended(self.sites[name]):
                return False  # it was started and does not listen yet
            if result.code != 0:
                raise Failure(f"at site {name}: {result!r}")
            shown.append(result.doc["collection"])
        if any(one["sync"] != "in-sync" for one in shown):
            return False
        for one in shown:
            if one["dirty_blocks"] != 0 or one["dirty_bytes"] != 0:
                raise Failure(f"in sync with dirty blocks: {json.dumps(one)}")
        return True

    def wait_sync(self, volume, timeout=60):
        try:
            wait_for(lambda: self.in_sync(volume), timeout, f"{volume} is in sync")
        except Failure as failure:
            raise Failure(f"{failure}; a: {self.brief('a', volume)}; b: {self.brief('b', volume)}")

    def brief(self, name, volume):
        try:
            one = self.status(name, volume)
        except (Failure, OSError) as failure:
            return str(failure)
        return {key: one[key] for key in ("sync", "cause", "detail", "role", "mode", "verdict", "dirty_blocks", "serving")}

    def wait_status(self, name, volume, timeout=30, **wanted):
        """Waits until the fields have these values: wait_status("a", "v", sync="paused"); returns the status."""
        def reached():
            one = self.status(name, volume)
            return all(one[key] == value for key, value in wanted.items()) and one
        try:
            return wait_for(reached, timeout, f"{volume} at {name}: {wanted}")
        except Failure as failure:
            raise Failure(f"{failure}: {self.brief(name, volume)}")

    def log(self, name):
        try:
            with open(self.sites[name].log, errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    # ---- what hosts do

    def nbd(self, name, volume, timeout=30):
        """A connected libnbd handle.  Retries until the site serves the volume."""
        return self.track(wait_for(lambda: self.try_nbd(name, volume), timeout, f"{volume} is served at {name}"))

    def try_nbd(self, name, volume):
        """A connected handle, or None if that site does not serve the volume now."""
        handle = nbd.NBD()
        handle.set_export_name(volume)
        try:
            handle.connect_unix(self.sites[name].nbd)
        except nbd.Error:
            return None
        return handle

    def track(self, handle):
        self.handles.append(handle)
        return handle

    # ---- the copies

    def image(self, name, volume):
        """Path of the copy at that site."""
        usual = os.path.join(self.sites[name].pool, volume + ".img")
        if os.path.exists(usual):
            return usual
        shown = self.ctl(name, "volume", "show", volume)  # imported?
        return shown.doc["volume"]["path"] if shown.code == 0 else usual

    def allocated(self, name, volume):
        return os.stat(self.image(name, volume)).st_blocks * 512

    def compare(self, volume, timeout=60):
        """Once in sync (and hosts quiet) both copies are equal byte for byte, and nothing is dirty."""
        self.wait_sync(volume, timeout)
        at = difference(self.image("a", volume), self.image("b", volume))
        if at is not None:
            raise Failure(f"the copies of {volume} differ at block {at // BLOCK} (byte {at})")
        if not self.in_sync(volume):
            raise Failure(f"{volume} did not stay in sync: {self.brief('a', volume)}")

    def fault(self, *lines):
        """Replaces the injected disk faults (rules as in daemon/store/fault.h); none: all is well again.  For a pair made
        with faults=True.  Such as p.fault(p.rule("b", "v", "op=flush error=EIO"))."""
        path = self.fault_file()
        with open(path + ".new", "w") as file:
            file.write("".join(line + "\n" for line in lines))
        os.rename(path + ".new", path)

    def fault_file(self):
        return os.path.join(self.folder, "faults")

    def rule(self, name, volume, what):
        return f"{self.image(name, volume)} {what}"

    def report(self):
        """What a person needs who finds the test failed."""
        for name, site in self.sites.items():
            text = self.log(name)
            lines = text.splitlines()
            print(f"---- log of site {name} ({site.log}), {len(lines)} lines", file=sys.stderr)
            print("\n".join(lines[-120:]), file=sys.stderr)
        sys.stderr.flush()


def difference(path_a, path_b):
    """Offset of the first byte that differs, or None."""
    with open(path_a, "rb") as a, open(path_b, "rb") as b:
        at = 0
        while True:
            one, other = a.read(MIB), b.read(MIB)
            if one != other:
                for i in range(0, max(len(one), len(other)), 512):
                    if one[i:i + 512] != other[i:i + 512]:
                        return at + i
            if not one:
                return None
            at += len(one)


class Case(unittest.TestCase):
    """A test with pairs: logs are printed when it fails, everything is ended in any case."""

    def pair(self, *args, **kwargs):
        made = Pair(*args, **kwargs)
        self.addCleanup(self.end, made)
        return made

    test_failed = False

    def _callTestMethod(self, method):  # what ran into trouble is known to cleanups only this way
        try:
            super()._callTestMethod(method)
        except BaseException:
            self.test_failed = True
            raise

    def end(self, made):
        if self.test_failed:
            made.report()
        made.close(check=not self.test_failed)


def own_mounts():
    """Gives the process mounts of its own, which end with it; ends the test as skipped where that is not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    clone_newns, ms_rec, ms_private = 0x20000, 0x4000, 0x40000
    if libc.unshare(clone_newns) != 0 or libc.mount(None, b"/", None, ms_rec | ms_private, None) != 0:
        skip(f"no mounts of its own: {os.strerror(ctypes.get_errno())}")


def skip(why):
    print("skipped:", why)
    sys.exit(SKIPPED)


def mount_small(folder, size_bytes, kind="ext4"):
    """Mounts a new file system of that size on `folder` (made if missing); kind: ext4 (in a loop device) or tmpfs."""
    os.makedirs(folder, exist_ok=True)
    if kind == "tmpfs":
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", folder]
    else:
        with tempfile.NamedTemporaryFile(prefix="sr-fs-", delete=False) as image:
            image.truncate(size_bytes)
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", image.name], check=True, stdin=subprocess.DEVNULL)
        command = ["mount", "-o", "loop", image.name, folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if kind != "tmpfs":
        os.unlink(image.name)  # lives on while it is mounted
    if done.returncode != 0:
        skip(f"{' '.join(command)}: {done.stdout}")


def unmount(folder):
    subprocess.run(["umount", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def fill(folder, keep_bytes=0):
    """Fills the file system of `folder` but for about keep_bytes; returns the path of the file to remove again."""
    path = os.path.join(folder, "ballast")
    with open(path, "wb", buffering=0) as file:
        for chunk in (MIB, 65536, BLOCK):
            room = os.statvfs(folder)
            while room.f_bavail * room.f_frsize > keep_bytes + chunk:
                try:
                    if file.write(b"\xaa" * chunk) != chunk:
                        break
                except OSError:
                    break
                room = os.statvfs(folder)
        os.fsync(file.fileno())
    return path


def main():
    unittest.main(verbosity=2)
