#!/usr/bin/python3
"""Resync: it always ends, whatever the link does (B29); zeroes, trims and holes (B35)."""
import os
import random
import time

import pair
import stamp

MIB, BLOCK = pair.MIB, pair.BLOCK
REGION = 4 * MIB
ROUNDS = 20 if pair.LONG else 3


class Resync(pair.Case):
    def test_the_link_flaps_near_the_end(self):
        """Hosts write the blocks that are copied last while the link comes and goes."""
        dice = random.Random(29)
        p = self.pair(volumes={"v": "32MiB"}, link=True,
                      set={"both.limits.resync_max_rate": "32MiB", "both.stall_budget": f"{int(500 * pair.SLOW)}ms"})
        writer = stamp.Stamp(p, "v", hot=2048, hot_share=0.5, zero_share=0.1, rate=600).start()
        for round_number in range(ROUNDS):
            p.ctl_ok("a", "pause", "v")
            writer.wait_acknowledged(300)
            p.ctl_ok("a", "resume", "v")
            for flap in range(6):
                pair.wait_for(lambda: self.nearly_done(p), 60, "the resync is nearly done")
                kind = dice.choice(("drop", "cut", "ab", "ba", "long"))
                if kind == "drop":
                    p.link.drop()
                else:
                    p.link.cut(kind if kind in ("ab", "ba") else "both")
                    time.sleep(1.0 * pair.SLOW if kind == "long" else dice.random() * 0.3)
                    p.link.heal()
                writer.raise_problem()
            p.wait_sync("v")
            writer.wait_acknowledged(50)
            writer.quiesce()
            p.compare("v")
            writer.check()
            writer.start()
        writer.stop()

    def nearly_done(self, p):
        shown = p.status("a", "v")
        return shown["sync"] == "in-sync" or (shown["resync"]["running"] and shown["dirty_bytes"] < MIB)

    def test_restarts_while_resyncing(self):
        """It goes on where it was: both daemons stopped in order and killed, all the bytes are sent about once."""
        p = self.pair(volumes={"v": "64MiB"}, set={"both.limits.resync_max_rate": "16MiB"})
        h = p.nbd("a", "v")
        p.ctl_ok("a", "pause", "v", "--wait")
        for at in range(0, 48, 4):
            h.pwrite(os.urandom(4 * MIB), at * MIB)
        p.ctl_ok("a", "resume", "v")
        sent = 0
        for name, kill in (("b", False), ("a", False), ("b", True)):
            pair.wait_for(lambda: p.status("a", "v")["resync"]["done_blocks"] > 1500, 30, "some is copied")
            if name == "a":
                sent += p.status("a", "v")["counters"]["sent_payload_bytes"]
            if kill:
                p.kill9(name)
                p.start(name)
            else:
                p.restart(name)
        p.ctl_ok("a", "tune", "resync_max_rate=0")
        p.compare("v")
        sent += p.status("a", "v")["counters"]["sent_payload_bytes"]
        self.assertLess(sent, 48 * MIB + 14 * MIB, "much was copied twice")

    def test_trims_and_zeroes_at_the_edges(self):
        """Just what was asked for is zero, on both copies; around it, everything is as it was."""
        p = self.pair(volumes={"v": "24MiB"})
        h = p.nbd("a", "v")
        size = h.get_size()
        model = bytearray(os.urandom(size))
        for at in range(0, size, 4 * MIB):
            h.pwrite(model[at:at + 4 * MIB], at)
        paused = False
        cases = [(edge + shift, length) for edge in (REGION, 2 * REGION, 3 * REGION) for shift in (-BLOCK, -512, 0, 512)
                 for length in (512, BLOCK, 2 * BLOCK + 512)]
        cases += [(REGION - 512, REGION + 1024), (3 * REGION, 2 * REGION), (0, BLOCK), (size - BLOCK, BLOCK)]
        for i, (offset, length) in enumerate(cases):
            if i % 9 == 4:  # some of them only at one site, to be copied as zeroes later
                p.ctl_ok("a", "resume" if paused else "pause", "v")
                paused = not paused
            if i % 3 == 0:
                h.trim(length, offset)
            else:
                h.zero(length, offset, pair.nbd.CMD_FLAG_NO_HOLE if i % 3 == 1 else 0)
            # Trimmed blocks read as zeroes here (the volume's promise), unaligned ends of a trim too.
            model[offset:offset + length] = bytes(length)
            span = slice(max(0, offset - 8192), min(size, offset + length + 8192))
            self.assertEqual(h.pread(span.stop - span.start, span.start), model[span], (offset, length))
        if paused:
            p.ctl_ok("a", "resume", "v")
        p.compare("v")
        for at in range(0, size, 4 * MIB):
            self.assertEqual(h.pread(4 * MIB, at), model[at:at + 4 * MIB])

    def test_trims_race_with_writes(self):
        p = self.pair(volumes={"v": "16MiB"})
        # Eight blocks on both sides of a region's edge, hammered from four connections.
        edge = REGION // BLOCK
        writer = stamp.Stamp(p, "v", connections=4, depth=8, zero_share=0.5, read_share=0.2, blocks_max=6)
        writer.choose = lambda: (edge - 8 + writer.random.randrange(16), writer.random.randint(1, 6))
        writer.start()
        writer.wait_acknowledged(1500)
        p.ctl_ok("a", "pause", "v")
        writer.wait_acknowledged(500)
        p.ctl_ok("a", "resume", "v")
        writer.wait_acknowledged(500)
        p.wait_sync("v")
        writer.stop()
        p.compare("v")
        writer.check()

    def test_a_large_trim_frees_space_at_both(self):
        p = self.pair(volumes={"v": "8GiB"})
        h = p.nbd("a", "v")
        for at in range(0, 8 << 30, 1 << 30):
            h.pwrite(os.urandom(2 * MIB), at + 12345 * 512)
        before = {site: p.allocated(site, "v") for site in pair.SITES}
        begun = time.monotonic()
        for at in range(0, 8 << 30, 1 << 30):
            h.trim(1 << 30, at)
        self.assertLess(time.monotonic() - begun, 20 * pair.SLOW)
        for site in pair.SITES:
            self.assertGreaterEqual(before[site], 16 * MIB)
            self.assertLess(p.allocated(site, "v"), MIB, site)
        self.assertEqual(h.pread(4 * MIB, 12345 * 512), bytes(4 * MIB))
        p.wait_sync("v")

    def test_an_emptied_volume_is_copied_as_holes(self):
        p = self.pair(volumes={"v": "64MiB"})
        h = p.nbd("a", "v")
        for at in range(0, 64, 4):
            h.pwrite(os.urandom(4 * MIB), at * MIB)
        p.ctl_ok("a", "pause", "v", "--wait")
        h.trim(60 * MIB, 2 * MIB)
        sent = p.status("a", "v")["counters"]["sent_payload_bytes"]
        p.ctl_ok("a", "resume", "v", "--wait")
        p.compare("v")
        self.assertEqual(p.status("a", "v")["counters"]["sent_payload_bytes"], sent, "zeroes need no payload")
        self.assertLess(abs(p.allocated("a", "v") - p.allocated("b", "v")), MIB)
        self.assertLess(p.allocated("b", "v"), 6 * MIB)


if __name__ == "__main__":
    pair.main()
