#!/usr/bin/python3
"""B07: a full copy that is interrupted again and again goes on, and "in-sync" is shown only after all of it."""
import os
import time

import pair

MIB = pair.MIB
SIZE = 1024 if pair.LONG else 192


class Import(pair.Case):
    def progress(self, p):
        """Share of the volume that the active site has not to copy any more."""
        shown = p.status("a", "v")
        if shown["sync"] == "in-sync":
            self.fail("in sync although it cannot be yet")
        return 1 - shown["dirty_bytes"] / (SIZE * MIB)

    def reach(self, p, share):
        pair.wait_for(lambda: self.progress(p) >= share, 60, f"{share:.0%} are copied")

    def test_interrupted_at_both_sites(self):
        p = self.pair(set={"both.limits.resync_max_rate": f"{SIZE // 4}MiB", "both.limits.resync_min_rate": "16MiB"})
        data = os.path.join(p.folder, "data")
        with open(data, "wb") as file:
            for _ in range(SIZE):
                file.write(os.urandom(MIB))
        p.ctl_ok("a", "volume", "create", "v", "--import", data)
        self.assertNotEqual(p.status("a", "v")["sync"], "in-sync")
        shown = p.wait_status("a", "v", sync="out-of-sync", verdict="exposed", serving=True)
        self.assertTrue(shown["full_copy"] and shown["full_copy_reason"])
        self.assertFalse(shown["peer_usable"])
        h = p.nbd("a", "v")

        self.reach(p, 0.4)
        p.kill9("b")
        before = self.progress(p)
        written = {}
        for at in (1 * MIB + 4096, (SIZE // 2) * MIB, (SIZE - 1) * MIB):
            written[at] = os.urandom(4096)
            h.pwrite(written[at], at)
        p.start("b")
        p.wait_status("a", "v", cause="resyncing")
        self.assertGreater(self.progress(p), before - 0.05, "began anew")
        self.assertNotEqual(p.status("b", "v")["sync"], "in-sync")

        self.reach(p, 0.6)
        before = self.progress(p)
        p.kill9("a")
        self.assertNotEqual(p.status("b", "v")["sync"], "in-sync")
        p.start("a")
        p.wait_status("a", "v", cause="resyncing")
        self.assertNotEqual(p.status("b", "v")["sync"], "in-sync")
        self.reach(p, max(before, 0.7))
        p.kill9("a", "b")
        p.start("b")
        self.assertNotEqual(p.status("b", "v")["sync"], "in-sync")
        p.start("a")
        p.ctl_ok("a", "tune", "resync_max_rate=0")
        p.compare("v", 120)
        h = p.nbd("a", "v")
        with open(data, "rb") as file:
            for at, bytes_ in written.items():
                file.seek(at)
                self.assertEqual(file.read(4096), bytes_)
                self.assertEqual(h.pread(4096, at), bytes_)
        self.assertEqual(p.status("a", "v")["verdict"], "protected")

    def test_holes_stay_holes(self):
        """B35: the full copy of a mostly empty file takes no more room at the peer, and little time."""
        p = self.pair()
        data = os.path.join(p.folder, "data")
        with open(data, "wb") as file:
            file.truncate(4 << 30)
            for at in (0, 1 << 30, (2 << 30) + 12288, (4 << 30) - MIB):
                file.seek(at)
                file.write(os.urandom(MIB))
        begun = time.monotonic()
        p.ctl_ok("a", "volume", "create", "v", "--import", data, "--wait=120s", timeout=130)
        self.assertLess(time.monotonic() - begun, 60 * pair.SLOW)
        p.wait_sync("v")
        self.assertLessEqual(p.allocated("b", "v"), p.allocated("a", "v") + 256 * 1024)
        self.assertLess(p.status("a", "v")["counters"]["sent_payload_bytes"], 8 * MIB)
        p.nbd("a", "v").pwrite(b"x" * 4096, 3 << 30)
        p.compare("v")


if __name__ == "__main__":
    pair.main()
