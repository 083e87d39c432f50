#!/usr/bin/python3
"""A silent peer: hosts wait for at most stall_budget, whatever the reason; short blips go unnoticed (also case B06)."""
import os
import time

import pair
import stamp

BLOCK = pair.BLOCK
BUDGET = 1.0 * pair.SLOW
SLACK = 1.0 * pair.SLOW


class Stall(pair.Case):
    def timed_write(self, h, block):
        begun = time.monotonic()
        h.pwrite(os.urandom(BLOCK), block * BLOCK)
        return time.monotonic() - begun

    def test_the_peer_is_held(self):
        p = self.pair(volumes={"v": "16MiB", "w": "1MiB"}, set={"both.stall_budget": f"{int(BUDGET * 1000)}ms"})
        h = p.nbd("a", "v")
        h.pwrite(os.urandom(BLOCK), 0)
        p.hold("b")
        waited = self.timed_write(h, 1)
        self.assertGreater(waited, BUDGET * 0.8, "acknowledged before the peer could have it")
        self.assertLess(waited, BUDGET + SLACK)
        shown = p.status("a", "v")
        self.assertEqual((shown["sync"], shown["cause"], shown["verdict"]), ("out-of-sync", "peer-stalled", "exposed"))
        self.assertGreaterEqual(shown["dirty_blocks"], 1)
        for block in range(2, 50):
            self.assertLess(self.timed_write(h, block), 0.5 * pair.SLOW)
        p.release("b")
        p.compare("v")
        p.wait_sync("w")

    def cut_and_kill(self, direction):
        """B06: the first acknowledgement after the cut comes within the budget, and what makes it safe is durable."""
        p = self.pair(volumes={"v": "16MiB"}, link=True, set={"both.stall_budget": f"{int(BUDGET * 1000)}ms"})
        writer = stamp.Stamp(p, "v", connections=2, depth=2, read_share=0, flush_share=0.3).start()
        writer.wait_acknowledged(100)
        p.link.cut(direction)
        cut = time.monotonic()
        after = pair.wait_for(lambda: any(sent > cut for sent, _ in writer.latencies[-50:]), 10, "a write after the cut",
                              every=0.002)
        self.assertTrue(after)
        time.sleep(0.01)
        p.kill9("a")
        self.assertLess(writer.latency_max(), BUDGET + SLACK)
        p.start("a")
        shown = p.wait_status("a", "v", serving=True)
        self.assertEqual(shown["sync"], "out-of-sync")
        self.assertGreater(shown["dirty_blocks"], 0)
        writer.wait_acknowledged(50)
        writer.quiesce()
        writer.check()
        writer.start()
        p.link.heal()
        p.wait_sync("v")
        writer.stop()
        p.compare("v")
        writer.check()

    def test_the_link_is_cut(self):
        self.cut_and_kill("both")

    def test_nothing_reaches_the_alternate(self):
        self.cut_and_kill("ab")

    def test_nothing_comes_back(self):
        self.cut_and_kill("ba")

    def test_short_blips(self):
        """Neither a second of silence nor a reset is noticed by hosts, and nobody goes alone."""
        p = self.pair(volumes={"v": "16MiB"}, link=True, set={"both.stall_budget": f"{int(8 * pair.SLOW)}s"})
        before = p.status("a", "v")["generation"]
        writer = stamp.Stamp(p, "v", zero_share=0.1).start()
        for blip in ("both", "ab", "ba", "reset", "reset"):
            writer.wait_acknowledged(100)
            begun = time.monotonic()
            if blip == "reset":
                p.link.drop()
            else:
                p.link.cut(blip)
                time.sleep(1)
                p.link.heal()
            writer.wait_acknowledged(100)
            self.assertLess(writer.latency_max(begun - 0.5), 1.0 + 3 * SLACK, blip)
        p.wait_sync("v")
        writer.stop()
        p.compare("v")
        writer.check()
        self.assertFalse(writer.errors)
        for site in pair.SITES:
            self.assertEqual(p.status(site, "v")["generation"], before, "somebody went alone")

    def test_a_slow_link_is_no_fault(self):
        p = self.pair(volumes={"v": "16MiB"}, link=True)
        before = p.status("a", "v")["generation"]
        p.link.delay(50)
        writer = stamp.Stamp(p, "v", connections=4, depth=8).start()
        writer.wait_acknowledged(200)
        writer.stop()
        self.assertGreater(min(seconds for _, seconds in writer.latencies), 0.05)
        p.compare("v")
        writer.check()
        self.assertEqual(p.status("a", "v")["generation"], before)


if __name__ == "__main__":
    pair.main()
