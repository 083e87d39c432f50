#!/usr/bin/python3
"""The peer link under large requests (B20), and that both copies of a write start at the same time."""
import os
import random
import statistics
import time

import nbd

import pair
import tools

BIG = 32 << 20


class BigWrites(pair.Case):
    def test_large_requests_over_a_slow_tls_link(self):
        """32 MiB at depth 16 through a proxy that takes a little at a time: no stall, no record error, bounded memory."""
        p = self.pair(volumes={"v": "256MiB"}, link=True,
                      set={"both.limits.buffer_memory": "160MiB", "both.limits.peer_window": "64MiB",
                           "both.stall_budget": "60s", "both.heartbeat.timeout": "20s"})
        self.assertTrue(p.site_status("a")["link"]["tls"])
        reconnects = [p.site_status(site)["link"]["reconnects"] for site in pair.SITES]
        p.link.rate(48 << 20)
        h = p.nbd("a", "v")
        rng = random.Random(7)
        data = [nbd.Buffer.from_bytearray(bytearray(rng.randbytes(BIG))) for _ in range(3)]
        pending, owner = [], {}
        for i in range(16):
            at = i % 8 * BIG
            owner[at] = i % 3
            pending.append(h.aio_pwrite(data[i % 3], at))
            if i == 7:  # the second round lies over the first one: in order, so that the end is known
                self.finish(h, pending)
        begun = time.monotonic()
        self.finish(h, pending)
        print(f"\n   {8 * BIG >> 20} MiB in {time.monotonic() - begun:.1f} s")
        for site in pair.SITES:
            used = tools.rss_bytes(p.sites[site].pid)
            print(f"   memory of {site}: {used >> 20} MiB")
            if pair.SLOW == 1:  # a sanitizer keeps what was freed
                self.assertLess(used, (160 + 96) << 20)
        p.link.rate(0)
        buffers = {at: nbd.Buffer(BIG) for at in owner}
        reads = [h.aio_pread(buffers[at], at) for at in owner]
        self.finish(h, reads)
        for at, i in owner.items():
            self.assertEqual(buffers[at].to_bytearray(), data[i].to_bytearray(), f"at {at}")
        self.assertEqual([p.site_status(site)["link"]["reconnects"] for site in pair.SITES], reconnects)
        self.assertNotRegex(p.log("a") + p.log("b"), r"peer link: down|bad record")
        h.shutdown()
        p.compare("v")

    def finish(self, h, cookies):
        end = time.monotonic() + 60 * pair.SLOW
        while cookies:
            self.assertLess(time.monotonic(), end, "requests hang")
            h.poll(1000)
            cookies[:] = [cookie for cookie in cookies if not h.aio_command_completed(cookie)]


class Latency(pair.Case):
    def test_both_copies_start_in_the_same_turn(self):
        """With each disk 200 ms late a write takes about 200 ms: the copies wait for neither each other nor a hop."""
        p = self.pair(volumes={"v": "16MiB"}, faults=True)
        h = p.nbd("a", "v")
        for i in range(4):  # the regions are warm: no commit of an intent in the way
            h.pwrite(os.urandom(4096), i << 22)
        p.fault("* op=write delay_ms=200")
        times = []
        for i in range(8):
            begun = time.monotonic()
            h.pwrite(os.urandom(4096), (i % 4 << 22) + 8192 * i)
            times.append(time.monotonic() - begun)
        p.fault()
        print(f"\n   ms: {[round(1000 * t) for t in times]}")
        self.assertGreaterEqual(min(times), 0.19, "answered before both copies were there")
        self.assertLess(statistics.median(times), 0.3 * pair.SLOW, "one copy waits for the other")
        h.shutdown()
        p.compare("v")

    def test_each_disk_alone_is_waited_for(self):
        p = self.pair(volumes={"v": "16MiB"}, faults=True)
        h = p.nbd("a", "v")
        h.pwrite(os.urandom(4096), 0)
        for site in pair.SITES:
            p.fault(p.rule(site, "v", "op=write delay_ms=200"))
            begun = time.monotonic()
            h.pwrite(os.urandom(4096), 0)
            self.assertGreaterEqual(time.monotonic() - begun, 0.19, f"answered before the copy of {site} was there")
        p.fault()


if __name__ == "__main__":
    pair.main()
