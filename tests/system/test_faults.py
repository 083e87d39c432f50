#!/usr/bin/python3
"""B05: one failed call of a disk, and the copy is not believed until it was replaced; nothing acknowledged is lost."""
import time

import pair
import stamp


class Faults(pair.Case):
    def state(self, p, name):
        return p.ctl_ok(name, "volume", "show", "v").doc["volume"]["state"]

    def writer(self, p, **more):
        return stamp.Stamp(p, "v", site=lambda: p.serving("v"), rate=800, zero_share=0.2, flush_share=0.1, **more)

    def replace_and_compare(self, p, name, writer):
        """Only replace brings the copy back, by a full copy whose reason is shown and logged."""
        p.fault()
        writer.wait_acknowledged(50)
        self.assertEqual(self.state(p, name), "failed", "believed again without being replaced")
        p.ctl_ok(name, "replace", "v", timeout=90)
        p.wait_sync("v")
        writer.stop()
        p.compare("v")
        writer.check(p.serving("v"))
        self.assertEqual(self.state(p, name), "live")
        other = "b" if name == "a" else "a"
        self.assertRegex(p.log(other) + p.log(name), "(?i)full copy")

    def alternate_fails(self, op):
        p = self.pair(volumes={"v": "16MiB"}, faults=True)
        writer = self.writer(p).start()
        writer.wait_acknowledged(200)
        p.fault(p.rule("b", "v", f"op={op} error=EIO count=1"))
        p.wait_status("a", "v", sync="out-of-sync", cause="alternate-io-error", verdict="exposed")
        self.assertEqual(self.state(p, "b"), "failed")
        writer.wait_acknowledged(50)
        p.kill9("b")
        p.start("b")
        self.assertEqual(self.state(p, "b"), "failed", "a restart must not heal it")
        shown = p.wait_status("a", "v", sync="out-of-sync", cause="alternate-io-error", serving=True)
        self.assertFalse(shown["peer_usable"])
        self.assertIn("replace", shown["next_command"])
        self.replace_and_compare(p, "b", writer)

    def test_a_write_at_the_alternate(self):
        self.alternate_fails("write")

    def test_a_flush_at_the_alternate(self):
        self.alternate_fails("flush")

    def active_fails(self, op):
        p = self.pair(volumes={"v": "16MiB"}, faults=True)
        # What is under way when the disk fails may be answered with an error.
        writer = self.writer(p, allow={pair.errno.EIO}).start()
        writer.wait_acknowledged(200)
        p.fault(p.rule("a", "v", f"op={op} error=EIO count=1"))
        p.wait_status("b", "v", role="active", serving=True)
        self.assertEqual(self.state(p, "a"), "failed")
        writer.wait_acknowledged(100)
        self.assertEqual(p.serving("v"), "b")
        p.restart("a")
        self.assertEqual(self.state(p, "a"), "failed")
        self.assertEqual(p.serving("v"), "b")
        self.replace_and_compare(p, "a", writer)

    def test_a_write_at_the_active_site(self):
        self.active_fails("write")

    def test_a_flush_at_the_active_site(self):
        self.active_fails("flush")

    def test_an_unreadable_block_at_the_active_site(self):
        """It is answered from the peer and rewritten; hosts see nothing."""
        p = self.pair(volumes={"v": "16MiB"}, faults=True)
        writer = stamp.Stamp(p, "v", hot=4, hot_share=0.5, read_share=0.5).start()
        writer.wait_acknowledged(200)
        p.fault(p.rule("a", "v", "op=read error=EIO count=5"))
        writer.wait_acknowledged(300)
        writer.quiesce()
        p.fault()
        writer.check()
        self.assertEqual(self.state(p, "a"), "live")
        writer.stop()
        p.compare("v")

    def test_an_unreadable_block_while_resyncing(self):
        """It stays dirty with the cause shown, and heals when it is overwritten."""
        p = self.pair(volumes={"v": "16MiB"}, faults=True)
        h = p.nbd("a", "v")
        p.ctl_ok("a", "pause", "v", "--wait")
        for at in range(8):
            h.pwrite(bytes([at + 1]) * pair.MIB, at * pair.MIB)
        p.fault(p.rule("a", "v", f"op=read error=EIO offset={3 * pair.MIB + 8192}"))
        p.ctl_ok("a", "resume", "v")
        shown = p.wait_status("a", "v", sync="out-of-sync", cause="active-io-error")
        self.assertGreaterEqual(shown["dirty_blocks"], 1)
        time.sleep(0.5)
        self.assertEqual(p.status("a", "v")["sync"], "out-of-sync")
        self.assertLess(p.status("a", "v")["dirty_blocks"], 1024, "what can be read is copied all the same")
        p.fault()  # first: a copy that meets the fault after the write would find the block bad once more
        h.pwrite(b"healed! " * 512, 3 * pair.MIB + 8192)
        p.compare("v")
        self.assertEqual(h.pread(8, 3 * pair.MIB + 8192), b"healed! ")

    def test_a_slow_disk_at_the_alternate(self):
        """Slower than the budget: hosts go on alone, and it is shown as stalled."""
        p = self.pair(volumes={"v": "8MiB"}, faults=True, set={"both.stall_budget": f"{int(1000 * pair.SLOW)}ms"})
        writer = stamp.Stamp(p, "v").start()
        writer.wait_acknowledged(100)
        p.fault(p.rule("b", "v", f"op=write delay_ms={int(3000 * pair.SLOW)}"))
        p.wait_status("a", "v", sync="out-of-sync", cause="peer-stalled")
        self.assertLess(writer.latency_max(), 2.0 * pair.SLOW)
        writer.wait_acknowledged(100)
        p.fault()
        p.wait_sync("v")
        writer.stop()
        p.compare("v")
        writer.check()


if __name__ == "__main__":
    pair.main()
