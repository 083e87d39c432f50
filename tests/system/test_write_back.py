#!/usr/bin/python3
"""Write-back volumes: what a FLUSH covers is never lost, what is in doubt is compared and copied, whoever dies.

Killing a process loses no cache of the kernel.  Where a test wants one lost it writes the old content back into the image
while the daemon is down, as if the machine had lost its power.
"""
import os
import time

import pair
import stamp

BLOCK = pair.BLOCK
WRITE_BACK = ("16MiB", "--durability", "write-back")


def fill(text):
    return (text.encode() * BLOCK)[:BLOCK]


class WriteBack(pair.Case):
    def make(self, **kwargs):
        return self.pair(volumes={"v": WRITE_BACK}, **kwargs)

    def volume(self, p, name):
        return p.ctl_ok(name, "volume", "show", "v").doc["volume"]

    def put_back(self, p, name, block, data):
        with open(p.image(name, "v"), "r+b") as image:
            image.seek(block * BLOCK)
            image.write(data)
            os.fsync(image.fileno())

    def test_it_is_shown_at_both_sites_and_outlives_restarts(self):
        p = self.make()
        p.ctl_ok("a", "volume", "create", "plain", "--size", "16MiB", "--durability", "write-through")
        for name in pair.SITES:
            listed = {one["name"]: one["durability"] for one in p.ctl_ok(name, "volume", "list").doc["volumes"]}
            self.assertEqual(listed, {"v": "write-back", "plain": "write-through"})
            self.assertEqual(p.status(name, "v")["volumes"][0]["durability"], "write-back")
        for name in pair.SITES:
            p.restart(name)
        p.wait_sync("v")
        for name in pair.SITES:
            self.assertEqual(self.volume(p, name)["durability"], "write-back")

    def test_a_wrong_word_is_refused(self):
        p = self.pair()
        refused = p.ctl("a", "volume", "create", "w", "--size", "16MiB", "--durability", "fast")
        self.assertEqual(refused.code, 2)

    def test_an_import(self):
        p = self.pair()
        data = os.urandom(4 * pair.MIB)
        path = os.path.join(p.folder, "old")
        with open(path, "wb") as file:
            file.write(data)
        p.ctl_ok("a", "volume", "create", "v", "--import", path, "--durability", "write-back")
        p.compare("v")
        self.assertEqual(p.nbd("a", "v").pread(len(data), 0), data)
        for name in pair.SITES:
            self.assertEqual(self.volume(p, name)["durability"], "write-back")

    def test_the_count_of_what_is_not_flushed(self):
        p = self.make()
        h = p.nbd("a", "v")
        h.pwrite(fill("x"), 5 * BLOCK)
        h.zero(2 * BLOCK, 40 * BLOCK)
        self.assertEqual(self.volume(p, "a")["cached_bytes"], 3 * BLOCK)
        h.pwrite(fill("y"), 9 * BLOCK, pair.nbd.CMD_FLAG_FUA)
        self.assertEqual(self.volume(p, "a")["cached_bytes"], 3 * BLOCK)
        h.flush()
        self.assertEqual(self.volume(p, "a")["cached_bytes"], 0)
        self.assertGreaterEqual(p.status("a", "v")["counters"]["flushes"], 1)
        h.trim(BLOCK, 5 * BLOCK)
        pair.wait_for(lambda: self.volume(p, "a")["cached_bytes"] == 0, 30, "idle regions are flushed")
        self.assertEqual(h.pread(BLOCK, 5 * BLOCK), bytes(BLOCK))

    def test_the_alternate_loses_its_cache(self):
        p = self.make()
        h = p.nbd("a", "v")
        h.pwrite(fill("flushed"), 0)
        h.flush()
        h.pwrite(fill("cached"), 7 * BLOCK)
        h.pwrite(fill("cached too"), 9 * BLOCK)
        p.kill9("b")
        self.put_back(p, "b", 7, bytes(BLOCK))
        before = p.status("a", "v")["counters"]
        p.start("b")
        p.compare("v")
        after = p.status("a", "v")["counters"]
        self.assertEqual(after["compared_blocks"] - before["compared_blocks"], 2)
        self.assertEqual(after["copied_bytes"] - before["copied_bytes"], BLOCK)
        for block, text in ((0, "flushed"), (7, "cached"), (9, "cached too")):
            self.assertEqual(h.pread(BLOCK, block * BLOCK), fill(text))

    def test_the_active_site_loses_its_cache(self):
        p = self.make()
        h = p.nbd("a", "v")
        h.pwrite(fill("flushed"), 0)
        h.flush()
        h.pwrite(fill("cached"), 7 * BLOCK)
        p.kill9("a")
        self.put_back(p, "a", 7, bytes(BLOCK))  # the alternate still has it
        p.start("a")
        p.compare("v")
        h = p.nbd("a", "v")
        self.assertEqual(h.pread(BLOCK, 0), fill("flushed"))
        self.assertEqual(h.pread(BLOCK, 7 * BLOCK), bytes(BLOCK))

    def test_flushed_and_failed_over(self):
        """What was flushed is at the other site, whatever becomes of this one; what was not is there too, as long as that site
        did not lose its own cache."""
        p = self.make()
        h = p.nbd("a", "v")
        h.pwrite(fill("flushed"), 0)
        h.flush()
        h.pwrite(fill("fua"), BLOCK, pair.nbd.CMD_FLAG_FUA)
        h.pwrite(fill("cached"), 7 * BLOCK)
        p.kill9("a")
        p.ctl_ok("b", "failover", "v")
        other = p.nbd("b", "v")
        for block, text in ((0, "flushed"), (1, "fua"), (7, "cached")):
            self.assertEqual(other.pread(BLOCK, block * BLOCK), fill(text))
        other.pwrite(fill("new"), 0)
        p.start("a")
        p.compare("v")

    def test_switchover_flushes_first(self):
        """Nothing is in doubt afterwards: the old site may lose its cache, and nothing is compared but what was written since."""
        p = self.make()
        h = p.nbd("a", "v")
        h.pwrite(fill("cached"), 7 * BLOCK)
        p.ctl_ok("a", "switchover", "v", "--wait=60s")
        self.assertEqual(self.volume(p, "a")["cached_bytes"], 0)
        p.kill9("a")
        p.start("a")
        p.compare("v")
        self.assertEqual(p.status("b", "v")["counters"]["compared_blocks"], 0)
        self.assertEqual(p.nbd("b", "v").pread(BLOCK, 7 * BLOCK), fill("cached"))

    def test_a_stop_flushes(self):
        p = self.make()
        p.nbd("a", "v").pwrite(fill("cached"), 7 * BLOCK)
        p.restart("a")
        p.wait_sync("v")
        self.assertEqual(p.status("a", "v")["counters"]["compared_blocks"], 0)
        p.compare("v")

    def test_pause_and_resume(self):
        p = self.make()
        h = p.nbd("a", "v")
        h.pwrite(fill("before"), 7 * BLOCK)
        p.ctl_ok("a", "pause", "v")
        h.pwrite(fill("meanwhile"), 9 * BLOCK)
        h.flush()
        before = p.status("a", "v")["counters"]["copied_bytes"]
        p.ctl_ok("a", "resume", "v")
        p.compare("v")
        self.assertEqual(p.status("a", "v")["counters"]["copied_bytes"] - before, BLOCK)

    def test_a_flush_that_fails_here(self):
        """As any error of a disk: the copy here has failed, the other site serves, and nothing acknowledged is missing there."""
        p = self.make(faults=True)
        h = p.nbd("a", "v")
        h.pwrite(fill("cached"), 7 * BLOCK)
        p.fault(p.rule("a", "v", "op=flush error=EIO count=1"))
        with self.assertRaises(pair.nbd.Error):
            h.flush()
        p.wait_status("b", "v", serving=True)
        self.assertEqual(p.nbd("b", "v").pread(BLOCK, 7 * BLOCK), fill("cached"))
        p.fault()
        p.ctl_ok("a", "replace", "v")
        p.compare("v")

    def test_a_flush_that_fails_there(self):
        p = self.make(faults=True)
        h = p.nbd("a", "v")
        h.pwrite(fill("cached"), 7 * BLOCK)
        p.fault(p.rule("b", "v", "op=flush error=EIO count=1"))
        h.flush()
        status = p.wait_status("a", "v", sync="out-of-sync", cause="alternate-io-error")
        self.assertGreaterEqual(status["dirty_blocks"], 1)
        p.fault()
        p.ctl_ok("b", "replace", "v")
        p.compare("v")
        self.assertEqual(h.pread(BLOCK, 7 * BLOCK), fill("cached"))

    def rounds(self, victims, seed):
        """As test_kill.py; no cache is lost, so all that was acknowledged must still be there, and both copies be equal."""
        p = self.make()
        writer = stamp.Stamp(p, "v", seed=seed, zero_share=0.1, flush_share=0.05).start()
        for _ in range(30 if pair.LONG else 4):
            writer.wait_acknowledged(200)
            p.kill9(*victims)
            for name in victims:
                time.sleep(0.02)
                p.start(name, wait=False)
            writer.wait_acknowledged(50)
            p.wait_sync("v")
            writer.quiesce()
            p.compare("v")
            writer.check()
            writer.start()
        writer.stop()
        p.compare("v")
        writer.check()

    def test_kill_the_alternate(self):
        self.rounds("b", 1)

    def test_kill_the_active(self):
        self.rounds("a", 2)

    def test_kill_both(self):
        self.rounds("ab", 3)

    def test_switchovers_under_load(self):
        p = self.make()
        writer = stamp.Stamp(p, "v", site=lambda: p.serving("v"), seed=5, zero_share=0.1, flush_share=0.05).start()
        for source in "abab":
            writer.wait_acknowledged(100)
            p.ctl_ok(source, "switchover", "v", "--wait=60s")
        writer.wait_acknowledged(100)
        writer.stop()
        p.compare("v")
        writer.check()


if __name__ == "__main__":
    pair.main()
