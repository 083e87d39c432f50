#!/usr/bin/python3
"""B11: a full pool at either site: hosts go on, or get ENOSPC; both recover by themselves once there is room."""
import errno
import os

import pair
import stamp
import tools

MIB = pair.MIB
POOL = 96 * MIB


class PoolFull(pair.Case):
    def full_pair(self, *sites, **more):
        def mount(p):
            for name in sites:
                pair.mount_small(os.path.join(p.sites[name].folder, "pool"), POOL)
        p = self.pair(prepare=mount, volumes={"v": "64MiB"}, **more)
        for name in sites:
            p.at_end(lambda folder=p.sites[name].pool: pair.unmount(folder))
        return p

    def fill_up(self, p, name, keep=3 * MIB):
        return pair.fill(p.sites[name].pool, keep)

    def test_the_alternate(self):
        p = self.full_pair("b")
        writer = stamp.Stamp(p, "v", zero_share=0.05).start()
        writer.wait_acknowledged(200)
        ballast = self.fill_up(p, "b")
        shown = p.wait_status("a", "v", 60, sync="out-of-sync", cause="alternate-no-space", verdict="exposed")
        self.assertTrue(shown["serving"])
        writer.wait_acknowledged(200)
        self.assertEqual(p.ctl_ok("b", "volume", "show", "v").doc["volume"]["state"], "live", "full is not failed")
        os.unlink(ballast)
        p.wait_sync("v")
        writer.wait_acknowledged(50)
        writer.stop()
        p.compare("v")
        writer.check()

    def test_the_active_site(self):
        p = self.full_pair("a")
        writer = stamp.Stamp(p, "v", allow={errno.ENOSPC}, read_share=0.3).start()
        writer.wait_acknowledged(200)
        pid = p.sites["a"].pid
        ballast = self.fill_up(p, "a")
        pair.wait_for(lambda: writer.errors[errno.ENOSPC] or writer.problem, 60, "a host gets ENOSPC")
        handles = [connection.handle for connection in writer.connections]
        pair.wait_for(lambda: writer.errors[errno.ENOSPC] > 20 or writer.problem, 30, "hosts get ENOSPC")
        writer.quiesce()
        writer.check()  # reads work
        self.assertEqual(p.ctl_ok("a", "volume", "show", "v").doc["volume"]["state"], "live")
        self.assert_warned(p)
        os.unlink(ballast)
        pair.wait_for(lambda: not p.status("a", "v")["warning"], 10, "the warning goes with its cause")
        self.assertEqual(p.ctl_ok("a", "pool", "list").doc["pools"][0]["detail"], "")
        writer.errors.clear()
        writer.start()
        writer.wait_acknowledged(500)
        self.assertEqual([connection.handle for connection in writer.connections], handles, "a connection was lost")
        self.assertEqual(p.sites["a"].pid, pid)
        writer.stop()
        self.assertEqual(writer.errors[errno.ENOSPC], 0)
        p.compare("v")
        writer.check()

    def assert_warned(self, p):
        """In sync and protected, and yet everybody who asks learns why writes fail."""
        shown = p.status("a", "v")
        self.assertEqual((shown["verdict"], shown["cause"]), ("protected", ""))
        self.assertIn("pool pool is full", shown["warning"])
        self.assertIn("pool list", shown["next_command"])
        self.assertEqual(p.status("b", "v")["warning"], "")
        self.assertIn("full", p.ctl_ok("a", "pool", "list").doc["pools"][0]["detail"])
        for verb in (["status"], ["status", "v"], ["pool", "list"], ["events"]):
            self.assertIn("full", tools.plain_ctl(p, "a", *verb)[1], verb)

    def test_both(self):
        p = self.full_pair("a", "b")
        writer = stamp.Stamp(p, "v", allow={errno.ENOSPC}).start()
        writer.wait_acknowledged(200)
        ballast_a, ballast_b = self.fill_up(p, "a"), self.fill_up(p, "b")
        pair.wait_for(lambda: writer.errors[errno.ENOSPC] > 20 or writer.problem, 60, "hosts get ENOSPC")
        os.unlink(ballast_b)
        os.unlink(ballast_a)
        p.wait_sync("v")
        writer.wait_acknowledged(200)
        writer.stop()
        p.compare("v")
        writer.check()

    def test_no_room_for_a_new_volume(self):
        """Preallocated at a site that is full: refused with the cause, nothing left at either site."""
        p = self.full_pair("b")
        ballast = self.fill_up(p, "b")
        refused = p.ctl("a", "volume", "create", "w", "--size", "32MiB", "--preallocate")
        self.assertEqual((refused.code, refused.error["code"]), (1, "no-space"), refused)
        for site in pair.SITES:
            self.assertEqual([one["name"] for one in p.ctl_ok(site, "volume", "list").doc["volumes"]], ["v"])
            self.assertFalse(os.path.exists(os.path.join(p.sites[site].pool, "w.img")))
        os.unlink(ballast)
        p.ctl_ok("a", "volume", "create", "w", "--size", "16MiB", "--preallocate")
        p.compare("w")


if __name__ == "__main__":
    pair.own_mounts()
    pair.main()
