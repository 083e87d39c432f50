#!/usr/bin/python3
"""A real database: PostgreSQL on ext4 on a volume, pgbench running, kill -9 of the active site, failover, the file system
mounted at the other site, recovery.  The count of committed transactions is never short.  Then back by failback."""
import glob
import os
import signal
import subprocess
import sys
import time

import guardian
import pair
import tools

ROUNDS = 5 if pair.LONG else 2
SECONDS = 20 if pair.LONG else 4  # of pgbench before the site is lost
USER = "postgres"


def programs():
    """Folder of PostgreSQL's own programs, the newest version; None: not installed."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/pg_ctl"), key=lambda path: int(path.split("/")[4]))
    return os.path.dirname(found[-1]) if found else None


class Database(pair.Case):
    def setUp(self):
        self.p = self.pair(volumes={"v": "512MiB"}, set={"both.stall_budget": "5s"})
        os.chmod(self.p.folder, 0o755)
        self.mounted = os.path.join(self.p.folder, "mounted")
        self.data = os.path.join(self.mounted, "data")
        self.run_folder = os.path.join(self.p.folder, "run")  # of the server's socket and of what pgbench writes
        for folder in self.mounted, self.run_folder:
            os.makedirs(folder)
        os.chmod(self.run_folder, 0o777)
        self.fuse = None
        self.addCleanup(self.leave)

    # ---- the volume as a file system

    def attach(self, site):
        """The volume of that site in a FUSE mount of its own; returns the path of the file."""
        folder = os.path.join(self.p.folder, f"fuse-{time.monotonic_ns()}")
        os.makedirs(folder)
        self.p.nbd(site, "v").shutdown()  # it is served
        self.fuse = subprocess.Popen(["nbdfuse", folder, tools.uri(self.p, site, "v")], stdin=subprocess.DEVNULL,
                                     stderr=subprocess.DEVNULL)
        self.p.tell_guardian(f"pid {self.fuse.pid} {guardian.start_time(self.fuse.pid)}")
        path = os.path.join(folder, "nbd")
        pair.wait_for(lambda: os.path.exists(path) or self.fuse.poll() is not None, 30, "nbdfuse mounts")
        if self.fuse.poll() is not None:
            pair.skip("nbdfuse cannot mount here")
        self.fuse_folder = folder
        return path

    def mount(self, path):
        code, out = tools.run("mount", "-o", "loop", path, self.mounted)
        self.assertEqual(code, 0, out)

    def leave(self):
        """Whatever runs on the volume ends, as on a host that was reset."""
        tools.run("pkill", "-KILL", "-f", f"^{programs()}/postgres -D {self.data}")
        pair.wait_for(lambda: tools.run("pgrep", "-f", f"^{programs()}/postgres -D {self.data}")[0] != 0, 30, "postgres is gone")
        for _ in range(2):
            if os.path.ismount(self.mounted):
                tools.run("umount", "-l", self.mounted)
        if self.fuse:
            tools.run("umount", "-l", self.fuse_folder)
            self.fuse.kill()
            self.fuse.wait()
            self.fuse = None

    # ---- the database

    def as_user(self, *command, timeout=120, **kwargs):
        return tools.run("runuser", "-u", USER, "--", *command, timeout=timeout, **kwargs)

    def program(self, name, *args, **kwargs):
        code, out = self.as_user(os.path.join(programs(), name), *args, **kwargs)
        self.assertEqual(code, 0, f"{name}: {out}")
        return out

    def make_database(self):
        os.makedirs(self.data)
        tools.run_ok("chown", USER, self.data)
        self.program("initdb", "-D", self.data, "-A", "trust")
        with open(os.path.join(self.data, "postgresql.conf"), "a") as file:
            file.write(f"listen_addresses = ''\nunix_socket_directories = '{self.run_folder}'\nshared_buffers = 16MB\n"
                       "max_wal_size = 64MB\n")
            file.flush()
            os.fsync(file.fileno())

    def start_database(self):
        for stale in [os.path.join(self.data, "postmaster.pid")] + glob.glob(os.path.join(self.run_folder, ".s.PGSQL*")):
            if os.path.exists(stale):  # of a process of the host that was lost
                os.unlink(stale)
        log = os.path.join(self.run_folder, "log")
        code, out = self.as_user(os.path.join(programs(), "pg_ctl"), "-D", self.data, "-w", "-t", "100", "-l", log, "start")
        if code != 0:
            with open(log, errors="replace") as file:
                self.fail(f"pg_ctl start: {out}\n{file.read()[-3000:]}")

    def query(self, text):
        return int(self.program("psql", "-h", self.run_folder, "-d", "postgres", "-Atqc", text))

    def start_bench(self, number):
        """pgbench until it is killed; it writes a line for each transaction whose commit it was told of."""
        self.prefix = os.path.join(self.run_folder, f"bench-{number}")
        command = ["runuser", "-u", USER, "--", os.path.join(programs(), "pgbench"), "-h", self.run_folder, "-n", "-c", "4",
                   "-j", "2", "-T", "600", "-l", f"--log-prefix={self.prefix}", "postgres"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.p.tell_guardian(f"pid {process.pid} {guardian.start_time(process.pid)}")
        return process

    def committed(self):
        lines = 0
        for path in glob.glob(self.prefix + "*"):
            with open(path, "rb") as file:
                lines += file.read().count(b"\n")
        return lines

    def lose(self, site, number, before):
        """The site is killed under pgbench; returns how many transactions were committed for certain."""
        bench = self.start_bench(number)
        pair.wait_for(lambda: self.query("select count(*) from pgbench_history") > before + 50, 60, "pgbench runs")
        time.sleep(SECONDS)
        self.p.kill9(site)
        pair.wait_for(lambda: bench.poll() is not None or self.bench_is_stuck(), 60, "the database notices")
        # pgbench ends in order, so that what it was told of is all in its files
        tools.run("pkill", "-TERM", "-f", f"^{programs()}/postgres -D {self.data}")
        self.leave()
        try:
            bench.wait(30)
        except subprocess.TimeoutExpired:
            bench.send_signal(signal.SIGTERM)
            bench.wait(30)
        return self.committed()

    def bench_is_stuck(self):
        before = self.committed()
        time.sleep(2)
        return self.committed() == before

    def test_no_transaction_is_lost(self):
        path = self.attach("a")
        tools.run_ok("mkfs.ext4", "-q", "-F", path)
        self.mount(path)
        self.make_database()
        self.start_database()
        self.program("pgbench", "-h", self.run_folder, "-i", "-q", "-s", "2", "postgres")
        active, total = "a", 0
        for number in range(ROUNDS):
            other = "b" if active == "a" else "a"
            total += self.lose(active, number, total)
            self.assertGreater(total, 50)
            self.p.ctl_ok(other, "failover", "v")
            self.mount(self.attach(other))
            self.start_database()
            there = self.query("select count(*) from pgbench_history")
            self.assertGreaterEqual(there, total, "committed transactions are missing")
            self.assertEqual(self.query("select count(*) from pgbench_accounts"), 200000)
            self.assertEqual(self.query("select (select sum(abalance) from pgbench_accounts) - "
                                        "(select sum(delta) from pgbench_history)"), 0)
            total = there
            self.p.start(active)
            self.p.wait_sync("v")
            active = other
        self.program("pg_ctl", "-D", self.data, "-w", "-m", "fast", "stop")
        tools.run_ok("umount", self.mounted)
        self.leave()
        self.p.compare("v")
        tools.run_ok("fsck.ext4", "-fn", self.p.image("a", "v"))


if __name__ == "__main__":
    if os.geteuid() != 0:
        pair.skip("mounting needs root")
    if not programs():
        pair.skip("PostgreSQL is not installed")
    for device in "/dev/fuse", "/dev/loop-control":
        if not os.path.exists(device):
            pair.skip(f"there is no {device}")
    pair.own_mounts()
    sys.exit(pair.main())
