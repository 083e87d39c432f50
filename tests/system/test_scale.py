"""Many volumes (B47) and many connections: what a pair costs while nothing happens, and how soon it is ready."""
import os
import resource
import socket
import time

import pair

VOLUMES = 200
RSS_MAX = 64 * pair.MIB


def memory(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


class Scale(pair.Case):
    def all_in_sync(self, p, site):
        shown = p.ctl_ok(site, "status").doc["collections"]
        return len(shown) == VOLUMES and all(one["sync"] == "in-sync" for one in shown)

    def test_two_hundred_volumes(self):
        p = self.pair(set={"both.stall_budget": f"{int(500 * pair.SLOW)}ms"})
        began = time.monotonic()
        for i in range(VOLUMES):
            p.ctl_ok("a", "volume", "create", f"v{i}", "--size", "16MiB")
        pair.wait_for(lambda: self.all_in_sync(p, "a"), 60, "all volumes are in sync")
        print(f"   {VOLUMES} volumes created in {time.monotonic() - began:.1f} s")
        self.idle_costs_nothing(p)
        p.kill9("b")
        for i in range(20):
            h = p.nbd("a", f"v{i}")
            h.pwrite(bytes([i + 1]) * pair.BLOCK, i * pair.BLOCK)
            h.shutdown()
        began = time.monotonic()
        p.start("b")
        pair.wait_for(lambda: self.all_in_sync(p, "a") and self.all_in_sync(p, "b"), 60, "all are in sync again")
        print(f"   ready {time.monotonic() - began:.1f} s after the restart of b")
        began = time.monotonic()
        p.ctl_ok("a", "status")
        took = time.monotonic() - began
        print(f"   status answers in {took * 1000:.0f} ms")
        self.assertLess(took, 1 * pair.SLOW)
        for i in range(20):
            p.compare(f"v{i}")

    def idle_costs_nothing(self, p):
        seconds = 5
        time.sleep(1)  # not a wait for anything: what was begun by the creations is to be over
        before = {name: cpu_seconds(site.pid) for name, site in p.sites.items()}
        time.sleep(seconds)
        for name, site in p.sites.items():
            used, rss = cpu_seconds(site.pid) - before[name], memory(site.pid)
            print(f"   idle, site {name}: {100 * used / seconds:.1f} % of a processor, {rss / pair.MIB:.1f} MiB, "
                  f"{descriptors(site.pid)} descriptors")
            self.assertLessEqual(used, 0.02 * seconds * pair.SLOW)
            if pair.SLOW == 1:
                self.assertLess(rss, RSS_MAX)

    def test_connections_come_and_go(self):
        p = self.pair(volumes={"v": "16MiB"})
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
        pid = p.sites["a"].pid
        h = p.nbd("a", "v")
        h.pwrite(b"x" * pair.BLOCK, 0)
        h.shutdown()
        self.churn(p, 200)
        fds, rss = descriptors(pid), memory(pid)
        self.churn(p, 2000)
        pair.wait_for(lambda: descriptors(pid) <= fds, 20, "descriptors are given back")
        print(f"   2000 connections: {(memory(pid) - rss) / 1024:.0f} KiB more memory")
        if pair.SLOW == 1:
            self.assertLess(memory(pid) - rss, 4 * pair.MIB)
        h = p.nbd("a", "v")
        self.assertEqual(bytes(h.pread(pair.BLOCK, 0)), b"x" * pair.BLOCK)

    def churn(self, p, n):
        for i in range(n):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(p.sites["a"].nbd)
                if i % 3 == 0:
                    s.recv(18)
                if i % 3 == 1:
                    s.sendall(b"\0\0\0\3IHAVEOPT")


if __name__ == "__main__":
    pair.main()
