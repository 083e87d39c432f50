#!/usr/bin/python3
"""Pause and resume: what the alternate holds meanwhile, what is copied afterwards, and that a pause survives everything."""
import hashlib
import os

import pair
import stamp

BLOCK, MIB = pair.BLOCK, pair.MIB


def checksum(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Pause(pair.Case):
    def test_the_alternate_stays_as_it_was(self):
        """Also: resume copies only what was written, from either site."""
        p = self.pair(volumes={"v": "64MiB"})
        h = p.nbd("a", "v")
        for at in range(0, 64, 4):
            h.pwrite(os.urandom(4 * MIB), at * MIB)
        for round_number, (pauser, resumer) in enumerate((("a", "a"), ("b", "b"), ("a", "b"), ("b", "a"))):
            p.ctl_ok(pauser, "pause", "v", "--wait")
            for site in pair.SITES:
                shown = p.wait_status(site, "v", 10, sync="paused", cause="paused", paused=True)
                self.assertEqual(shown["dirty_blocks"], 0)
            self.assertEqual(p.status("a", "v")["verdict"], "exposed")
            before = checksum(p.image("b", "v"))
            # Scattered single blocks, some of them twice, and one run.
            for i in range(50):
                h.pwrite(os.urandom(BLOCK), (i * 317 + round_number) * BLOCK)
            for i in range(10):
                h.pwrite(os.urandom(BLOCK), (i * 317 + round_number) * BLOCK)
            h.pwrite(os.urandom(MIB), 50 * MIB + 512)
            dirty = p.status("a", "v")["dirty_bytes"]
            run = set(range(50 * MIB // BLOCK, 51 * MIB // BLOCK + 1))
            expected = len(run | {i * 317 + round_number for i in range(50)}) * BLOCK
            self.assertEqual(dirty, expected, "the map is exact")
            self.assertEqual(checksum(p.image("b", "v")), before, "the alternate was written while paused")
            sent = p.status("a", "v")["counters"]["sent_payload_bytes"]
            p.ctl_ok(resumer, "resume", "v", "--wait")
            p.compare("v")
            sent = p.status("a", "v")["counters"]["sent_payload_bytes"] - sent
            self.assertLessEqual(sent, dirty * 1.05)
            self.assertGreaterEqual(sent, dirty)

    def test_it_survives_restarts_and_the_peer_away(self):
        p = self.pair(volumes={"v": "16MiB"})
        h = p.nbd("a", "v")
        h.pwrite(os.urandom(MIB), 0)
        p.ctl_ok("b", "pause", "v", "--wait")
        p.ctl_ok("b", "pause", "v", "--wait")  # twice in a row
        p.ctl_ok("a", "pause", "v", "--wait")
        before = checksum(p.image("b", "v"))
        h.pwrite(os.urandom(3 * BLOCK), 5 * BLOCK)
        p.restart("b")
        p.wait_status("b", "v", sync="paused", paused=True)
        p.restart("a")
        p.wait_status("a", "v", sync="paused", paused=True, serving=True)
        p.kill9("a", "b")
        p.start("a")  # alone: its peer cannot have been promoted
        p.wait_status("a", "v", sync="paused", paused=True, serving=True)
        h = p.nbd("a", "v")
        h.pwrite(os.urandom(BLOCK), 100 * BLOCK)
        p.start("b")
        p.ctl_ok("b", "wait", "--for", "connected")
        for site in pair.SITES:
            p.wait_status(site, "v", sync="paused", paused=True)
        self.assertEqual(checksum(p.image("b", "v")), before)
        p.ctl_ok("b", "resume", "v", "--wait")
        p.compare("v")

    def test_paused_with_the_peer_down(self):
        """The command holds although the other site hears of it only later; so does a resume."""
        p = self.pair(volumes={"v": "16MiB"})
        h = p.nbd("a", "v")
        h.pwrite(os.urandom(MIB), 0)
        p.kill9("b")
        p.ctl_ok("a", "pause", "v", "--wait")
        p.ctl_ok("a", "pause", "v", "--wait")
        h.pwrite(os.urandom(MIB), 2 * MIB)
        p.start("b")
        p.wait_status("b", "v", sync="paused", paused=True)
        before = checksum(p.image("b", "v"))
        h.pwrite(os.urandom(MIB), 4 * MIB)
        self.assertEqual(checksum(p.image("b", "v")), before)
        p.stop("b")
        p.ctl_ok("a", "resume", "v")
        p.start("b")
        p.compare("v")
        self.assertFalse(p.status("b", "v")["paused"])

    def test_paused_while_a_resync_runs(self):
        p = self.pair(volumes={"v": "64MiB"}, set={"both.limits.resync_max_rate": "16MiB"})
        writer = stamp.Stamp(p, "v", rate=500)
        p.ctl_ok("a", "pause", "v", "--wait")
        h = p.nbd("a", "v")
        for at in range(16, 64, 4):
            h.pwrite(b"".join(stamp.stamped(at * 256 + i, 0x7FFFFFFF) for i in range(1024)), at * MIB)
        for at in range(16 * 256, 64 * 256):
            writer.preset(at, 0x7FFFFFFF)
        h.shutdown()
        writer.start()
        for site in pair.SITES:
            p.ctl_ok(site, "resume", "v")
            pair.wait_for(lambda: p.status("a", "v")["resync"]["running"] and
                          p.status("a", "v")["resync"]["done_blocks"] > 500, 20, "the resync runs")
            p.ctl_ok(site, "pause", "v", "--wait")
            shown = p.wait_status("a", "v", sync="paused")
            self.assertFalse(shown["resync"]["running"])
            self.assertGreater(shown["dirty_blocks"], 0)
            self.assertFalse(shown["peer_usable"], "half a resync cannot take over")
            before = checksum(p.image("b", "v"))
            writer.wait_acknowledged(20)
            self.assertEqual(checksum(p.image("b", "v")), before)
        p.restart("b")
        p.restart("a")
        p.wait_status("a", "v", sync="paused")
        writer.wait_acknowledged(20)
        p.ctl_ok("b", "resume", "v")
        p.wait_sync("v")
        writer.wait_acknowledged(20)
        writer.stop()
        p.compare("v")
        writer.check()


class Resumed(pair.Case):
    def test_in_sync_is_not_shown_too_early(self):
        """Neither site says in-sync between the resume and the end of the resync, however slow that is."""
        p = self.pair(volumes={"v": "64MiB"})
        for site in "a", "b":
            p.ctl_ok(site, "tune", "resync_min_rate=64KiB", "resync_max_rate=4MiB")
        handle = p.nbd("a", "v")
        for asked in "b", "a":
            p.ctl_ok(asked, "pause", "v")
            handle.pwrite(asked.encode() * (8 << 20), 0)
            p.ctl_ok(asked, "resume", "v", "--wait=60s")
            self.assertEqual(p.ctl_ok("b", "wait", "v", "--for", "in-sync").code, 0)
            self.assertIsNone(pair.difference(p.image("a", "v"), p.image("b", "v")))


if __name__ == "__main__":
    pair.main()
