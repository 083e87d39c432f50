#!/usr/bin/python3
"""Failover, the return of the old site, failback; conflicts and their end."""
import time

import nbd

import pair
import stamp

MIB = pair.MIB


def plan(p, site, *args):
    return p.ctl(site, *args, "--plan").doc["plan"]


class Failover(pair.Case):
    def pair_in_sync(self, **kwargs):
        kwargs.setdefault("volumes", {"v": "64MiB"})
        return self.pair(set={"both.stall_budget": "2s"}, **kwargs)

    def test_site_lost_failover_and_failback(self):
        """kill -9 of the active site under load: nothing acknowledged is lost, and only differences are copied back."""
        p = self.pair_in_sync(volumes={"v": "512MiB"})
        writer = stamp.Stamp(p, "v", site=lambda: p.serving("v"), connections=3, depth=4, rate=300).start()
        writer.wait_acknowledged(300)
        refused = p.ctl("b", "failover", "v")
        self.assertEqual(refused.code, 1, refused)  # the active site answers
        self.assertIn("switchover", refused.error["message"])
        p.kill9("a")
        p.wait_status("b", "v", cause="peer-unreachable", timeout=30)
        shown = plan(p, "b", "failover", "v")
        self.assertTrue(shown["possible"], shown)
        self.assertFalse(shown["peer_answered"])
        self.assertGreater(shown["synced_wall_ms"], (time.time() - 60) * 1000)
        p.ctl_ok("b", "failover", "v")
        self.assertIn("already", p.ctl_ok("b", "failover", "v").doc["results"][0]["text"])
        p.wait_status("b", "v", role="active", serving=True)
        writer.wait_acknowledged(200)
        p.start("a")
        p.wait_status("a", "v", role="alternate", serving=False)
        p.wait_sync("v")
        copied = p.status("b", "v")["counters"]["copied_bytes"]
        self.assertLess(copied, 128 * MIB)
        done = p.ctl_ok("a", "failback", "v", "--to", "a")
        self.assertIn("active at a", done.doc["results"][0]["text"])
        p.wait_status("a", "v", role="active", serving=True)
        writer.wait_acknowledged(100)
        writer.stop()
        self.assertFalse(writer.errors)
        p.compare("v")
        writer.check()

    def test_without_writes_there_is_no_conflict(self):
        """B40: failover, no writes, the old site returns, failback: in sync, nothing copied, never a conflict."""
        p = self.pair_in_sync()
        seen = []
        p.kill9("a")
        p.ctl_ok("b", "failover", "v")
        p.start("a")

        def settled():
            for site in "a", "b":
                shown = p.status(site, "v")
                seen.append(shown["cause"])
            return p.in_sync("v")
        pair.wait_for(settled, 30, "in sync again")
        self.assertEqual(p.status("b", "v")["counters"]["copied_bytes"], 0)
        p.ctl_ok("b", "failback", "v")
        pair.wait_for(settled, 30, "in sync after the failback")
        p.wait_status("a", "v", role="active", serving=True)
        self.assertNotIn("conflict", seen)
        p.compare("v")

    def test_unfinished_copy(self):
        """B09: a copy whose resync did not finish is not switched to, and not promoted unless forced by name."""
        p = self.pair_in_sync(volumes={"v": "256MiB"})
        h = p.nbd("a", "v")
        p.ctl_ok("a", "pause", "v")
        for i in range(0, 256, 8):
            h.pwrite(bytes([i]) * (8 * MIB), i * MIB)
        for site in "a", "b":
            p.ctl_ok(site, "tune", "resync_max_rate=8MiB")
        p.ctl_ok("a", "resume", "v")
        p.wait_status("b", "v", cause="resyncing")
        self.assertEqual(p.ctl("a", "switchover", "v").code, 1)
        p.kill9("a")
        p.wait_status("b", "v", cause="peer-unreachable")
        shown = plan(p, "b", "failover", "v")
        self.assertFalse(shown["possible"])
        self.assertEqual(shown["exit"], 5)
        self.assertTrue(shown["may_be_lost"])
        refused = p.ctl("b", "failover", "v")
        self.assertEqual(refused.code, 5, refused)
        self.assertIn("--force=v", refused.error["hint"])
        self.assertEqual(p.ctl("b", "failover", "v", "--force=w").code, 2)
        p.start("a")
        p.wait_status("a", "v", role="active", serving=True)
        p.ctl_ok("b", "wait", "--for", "connected")
        refused = p.ctl("b", "failover", "v", "--force=v")  # beside a complete one that answers
        self.assertEqual(refused.code, 1, refused)
        p.kill9("a")
        p.wait_status("b", "v", cause="peer-unreachable")
        p.ctl_ok("b", "failover", "v", "--force=v")
        p.nbd("b", "v").pwrite(b"forced", 0)
        p.start("a")
        for site in "a", "b":
            p.wait_status(site, "v", cause="conflict")
        self.assertEqual(p.nbd("b", "v").pread(6, 0), b"forced")
        p.ctl_ok("b", "resolve", "v", "--keep", "a")
        p.ctl_ok("a", "tune", "resync_max_rate=0")
        p.compare("v")
        h = p.nbd("a", "v")
        self.assertEqual(h.pread(4096, 0), bytes([0]) * 4096)
        self.assertEqual(h.pread(4096, 248 * MIB), bytes([248]) * 4096)

    def test_split_brain(self):
        """B17: both sites wrote apart from each other; nothing is copied until an administrator chooses."""
        p = self.pair_in_sync(link=True)
        a = p.nbd("a", "v")
        a.pwrite(b"both" * 1024, 0)
        p.link.cut()
        a.pwrite(b"only a 1" * 512, 4096)
        a.pwrite(b"only a 2" * 1024, 8 * MIB)
        p.wait_status("b", "v", cause="peer-unreachable")
        shown = plan(p, "b", "failover", "v")
        self.assertIn("alone", shown["may_be_lost"])
        p.ctl_ok("b", "failover", "v")
        b = p.nbd("b", "v")
        b.pwrite(b"only b 1" * 512, 4096)
        p.link.heal()
        for site in "a", "b":
            p.wait_status(site, "v", cause="conflict")
        p.wait_status("a", "v", serving=False)
        p.wait_status("b", "v", serving=True)
        for site in "a", "b":
            keep_b = plan(p, site, "resolve", "v", "--keep", "b")
            self.assertTrue(keep_b["possible"], keep_b)
            self.assertIn("3 blocks", keep_b["may_be_lost"])
            keep_a = plan(p, site, "resolve", "v", "--keep", "a")
            self.assertIn("1 blocks", keep_a["may_be_lost"])
            sides = {side["site"]: side for side in keep_a["sides"]}
            self.assertEqual(sides["a"]["dirty_bytes"], 3 * 4096)
            self.assertEqual(sides["b"]["dirty_bytes"], 4096)
            self.assertEqual(sides["b"]["made_by"], "failover")
        self.assertEqual(p.ctl("a", "switchover", "v").code, 1)
        self.assertEqual(p.ctl("a", "failover", "v").code, 1)
        with open(p.image("a", "v"), "rb") as file:  # its own writes are untouched
            file.seek(4096)
            self.assertEqual(file.read(4096), b"only a 1" * 512)
        self.assertEqual(p.ctl("a", "resolve", "v", "--keep", "c").code, 2)
        self.assertEqual(p.ctl("a", "resolve", "v").code, 2)
        p.ctl_ok("b", "resolve", "v", "--keep", "a")
        p.compare("v")
        p.wait_status("a", "v", role="active", serving=True)
        a = p.nbd("a", "v")
        self.assertEqual(a.pread(4096, 4096), b"only a 1" * 512)
        self.assertEqual(a.pread(8192, 8 * MIB), b"only a 2" * 1024)
        self.assertEqual(p.ctl_ok("a", "resolve", "v", "--keep", "a").code, 0)  # nothing left to do

    def test_both_made_active_one_after_the_other(self):
        """Each by a failover while the other was dead: once they meet only the later one serves."""
        p = self.pair_in_sync()
        p.kill9("a")
        p.kill9("b")
        p.start("a")
        p.ctl_ok("a", "failover", "v")
        p.nbd("a", "v").pwrite(b"a" * 4096, 0)
        p.kill9("a")
        p.start("b")
        p.ctl_ok("b", "failover", "v")
        host = p.nbd("b", "v")
        host.pwrite(b"b" * 4096, 8192)
        p.start("a")
        for site in "a", "b":
            p.wait_status(site, "v", cause="conflict")
        p.wait_status("a", "v", serving=False)
        self.assertTrue(p.status("b", "v")["serving"])
        host.pwrite(b"c" * 4096, 8192)
        p.ctl_ok("a", "resolve", "v", "--keep", "b")
        p.compare("v")

    def test_both_copies_fail(self):
        """The last copy, damaged as it is, is not given up unless forced."""
        p = self.pair_in_sync(faults=True)
        host = p.nbd("a", "v")
        host.pwrite(b"data" * 1024, 0)
        p.fault(p.rule("a", "v", "op=write error=EIO"), p.rule("b", "v", "op=write error=EIO"))
        host.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(4096)), 0)
        host.poll(0)
        for site in "a", "b":
            pair.wait_for(lambda: p.ctl_ok(site, "volume", "show", "v").doc["volume"]["state"] == "failed", 30,
                          f"the copy of {site} has failed")
        p.fault()
        for site in "a", "b":
            refused = p.ctl(site, "replace", "v")
            self.assertEqual(refused.code, 5, refused)
            self.assertIn("Both copies have failed", p.status(site, "v")["next_command"])
        p.ctl_ok("b", "replace", "v", "--force=v")
        self.assertEqual(p.ctl("a", "replace", "v").code, 5)

    def test_restarted_active_without_its_peer(self):
        """It cannot know whether the peer took over: it waits, and serves on an administrator's word."""
        p = self.pair_in_sync()
        p.nbd("a", "v").pwrite(b"kept", 0)
        p.kill9("a", "b")
        p.start("a")
        shown = p.wait_status("a", "v", role="active", serving=False, verdict="offline")
        self.assertIn("failover", shown["next_command"])
        self.assertIsNone(p.try_nbd("a", "v"))
        p.ctl_ok("a", "failover", "v")
        h = p.nbd("a", "v")
        self.assertEqual(h.pread(4, 0), b"kept")
        h.pwrite(b"more", 4)
        p.start("b")
        p.compare("v")
        self.assertEqual(p.nbd("a", "v").pread(8, 0), b"keptmore")

    def test_failed_active_copy(self):
        """An error of the active pool hands the role to the peer; nothing acknowledged is lost; replace brings it back."""
        p = self.pair_in_sync(faults=True)
        writer = stamp.Stamp(p, "v", site=lambda: p.serving("v")).start()
        writer.wait_acknowledged(200)
        p.fault(p.rule("a", "v", "op=write error=EIO"))
        p.wait_status("b", "v", role="active", serving=True)
        p.wait_status("a", "v", cause="alternate-io-error")
        writer.wait_acknowledged(100)
        self.assertEqual(p.ctl("a", "failover", "v").code, 1)
        p.fault()
        p.ctl_ok("a", "replace", "v")
        p.wait_sync("v")
        p.ctl_ok("b", "failback", "v", "--to", "a")
        writer.wait_acknowledged(100)
        writer.stop()
        p.compare("v")
        writer.check()


if __name__ == "__main__":
    pair.main()
