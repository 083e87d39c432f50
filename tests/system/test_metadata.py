#!/usr/bin/python3
"""B19: metadata that cannot be written or cannot be trusted: nothing is acknowledged on it, and nothing is assumed clean."""
import errno
import os
import shutil

import pair
import stamp

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class MetadataFull(pair.Case):
    def small_pair(self, name, kind):
        def mount(p):
            pair.mount_small(os.path.join(p.sites[name].folder, "state"), 40 * MIB, kind)
        p = self.pair(prepare=mount)
        p.at_end(lambda: pair.unmount(os.path.join(p.sites[name].folder, "state")))
        # Far more regions than room for their records.
        p.ctl_ok("a", "volume", "create", "v", "--size", "512GiB")
        p.wait_sync("v")
        return p

    def run_full(self, name, kind):
        p = self.small_pair(name, kind)
        writer = stamp.Stamp(p, "v", hot_share=0, blocks_max=1, connections=4, depth=16, read_share=0.05, seed=5,
                             allow={errno.ENOSPC}).start()  # ext4 says so now and then of huge sparse files
        writer.wait_acknowledged(200)
        ballast = pair.fill(os.path.join(p.sites[name].folder, "state"), 64 * KIB)
        site = p.sites[name]
        if name == "b":
            p.ctl_ok("a", "pause", "v")  # now a's map grows; b's when it learns of it
            p.ctl("b", "volume", "create", "w", "--size", "1MiB")
            writer.wait_acknowledged(500)
            p.ctl_ok("a", "resume", "v")
        else:
            p.kill9("b")  # out of sync: each region needs a record
            pair.wait_for(lambda: p.ended(site) or writer.problem, 90, "the daemon stops")
            writer.raise_problem()
            if site.process:
                self.assertEqual(site.last_exit, 70)
            self.assertRegex(p.log(name), "(?i)no space|ENOSPC|full")
            p.start("b")
        os.unlink(ballast)
        if p.ended(site):
            p.start(name)
        writer.wait_acknowledged(50)
        writer.quiesce()  # else the resync gives way to it for long
        p.wait_sync("v")
        writer.start()
        writer.wait_acknowledged(50)
        writer.stop()
        p.wait_sync("v")
        writer.check()
        self.compare_stamps(p, writer)

    def compare_stamps(self, p, writer):
        """The copies are too large to be compared whole: the blocks that were touched."""
        with open(p.image("a", "v"), "rb") as a, open(p.image("b", "v"), "rb") as b:
            for number in writer.blocks:
                a.seek(number * pair.BLOCK)
                b.seek(number * pair.BLOCK)
                self.assertEqual(a.read(pair.BLOCK), b.read(pair.BLOCK), f"block {number}")

    def test_at_the_active_site(self):
        self.run_full("a", "ext4")

    def test_at_the_active_site_in_memory(self):
        self.run_full("a", "tmpfs")

    def test_at_the_alternate(self):
        self.run_full("b", "ext4")

    def test_it_starts_while_full(self):
        """A site whose metadata file system is full starts, shows its volumes, and lets a volume be deleted."""
        p = self.small_pair("a", "ext4")
        p.ctl_ok("a", "volume", "create", "w", "--size", "1MiB")
        pair.fill(os.path.join(p.sites["a"].folder, "state"), 0)
        p.kill9("a")
        p.start("a")
        p.wait_sync("w")
        p.ctl_ok("a", "volume", "delete", "w", "--force=w")


class MetadataDamaged(pair.Case):
    def test_a_damaged_file_is_refused(self):
        p = self.pair(volumes={"v": "64MiB"})
        writer = stamp.Stamp(p, "v").start()
        writer.wait_acknowledged(300)
        p.kill9("b")
        writer.wait_acknowledged(300)  # there is something to lose
        writer.stop()
        p.kill9("a")
        site = p.sites["a"]
        state = os.path.join(site.folder, "state")
        file = os.path.join(state, "meta", "data.mdb")
        whole = os.path.join(p.folder, "whole.mdb")
        shutil.copy(file, whole)
        size = os.path.getsize(whole)
        used = os.stat(whole).st_blocks * 512

        def cut(length):
            def damage(handle):
                handle.truncate(length)
            return damage

        def scribble(at, count):
            def damage(handle):
                handle.seek(at)
                handle.write(os.urandom(count))
            return damage

        damages = [("empty", cut(0)), ("one page", cut(4096)), ("half of what is used", cut(used // 2 & ~4095)),
                   ("odd length", cut(used // 2 + 100)), ("both meta pages", scribble(0, 8192)),
                   ("all the rest", scribble(8192, max(used - 8192, 4096)))]
        for what, damage in damages:
            with self.subTest(what):
                shutil.copy(whole, file)
                with open(file, "r+b") as handle:
                    damage(handle)
                log_before = len(p.log("a"))
                p.start("a", wait=False)
                pair.wait_for(lambda: p.ended(site), 20, f"refused: {what}")
                self.assertEqual(site.last_exit, 70)
                said = p.log("a")[log_before:]
                self.assertIn(state, said)
                self.assertRegex(said, "(?i)damaged|corrupt|truncated|not a|too short|shorter|invalid|missing")
        shutil.copy(whole, file)
        self.assertEqual(os.path.getsize(file), size)
        p.start("a")
        p.start("b")
        p.compare("v")
        writer.check()

    def test_a_missing_file_is_no_clean_start(self):
        """The folder is emptied: the site does not pretend to hold a copy, and the images are left alone."""
        p = self.pair(volumes={"v": "8MiB"})
        h = p.nbd("a", "v")
        h.pwrite(b"data" * 1024, 0)
        p.compare("v")
        p.kill9("b")
        h.pwrite(b"more" * 1024, 0)
        shutil.rmtree(os.path.join(p.sites["b"].folder, "state"))
        try:
            p.start("b")
        except pair.Failure:
            pass  # it may refuse
        self.assertTrue(os.path.exists(p.image("b", "v")))
        shown = p.status("a", "v")
        self.assertNotEqual((shown["sync"], shown["verdict"]), ("in-sync", "protected"))
        self.assertEqual(h.pread(4096, 0), b"more" * 1024)
        with open(p.image("b", "v"), "rb") as image:
            self.assertEqual(image.read(4096), b"data" * 1024)


if __name__ == "__main__":
    pair.own_mounts()
    pair.main()
