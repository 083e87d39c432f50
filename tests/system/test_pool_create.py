#!/usr/bin/python3
"""A pool's disk was exchanged: `pool create` makes the empty one the pool anew, `replace` fills it, the other site serves."""
import os
import shutil

import pair

MIB = pair.MIB


class PoolCreate(pair.Case):
    def exchanged(self, p, name):
        """The site finds an empty disk in place of its pool."""
        site = p.sites[name]
        p.kill9(name)
        os.rename(site.pool, site.pool + ".old")
        os.mkdir(site.pool)
        p.start(name)
        p.ctl_ok(name, "wait", "--for", "connected", "--timeout", "30s")
        self.assertEqual(p.ctl_ok(name, "pool", "list").doc["pools"][0]["state"], "missing")

    def write(self, p, name, data, offset):
        h = p.nbd(name, "v")
        h.pwrite(data, offset)
        h.shutdown()

    def read(self, p, name, length, offset):
        h = p.nbd(name, "v")
        data = bytes(h.pread(length, offset))
        h.shutdown()
        return data

    def refused(self, p, name, code, *words):
        result = p.ctl(name, "pool", "create", "pool", *words)
        self.assertEqual(result.code, code, result)
        return result.error

    def test_at_the_active_site(self):
        p = self.pair(volumes={"v": "16MiB"})
        self.write(p, "a", b"before" * 1000, 4096)
        self.exchanged(p, "a")
        self.assertIn("pool create pool", p.status("a", "v")["next_command"])
        error = self.refused(p, "a", 5)
        self.assertIn("--force=pool", error["hint"])
        self.assertEqual(os.listdir(p.sites["a"].pool), [], "touched without force")
        done = p.ctl_ok("a", "pool", "create", "pool", "--force=pool").doc["results"][0]
        self.assertEqual(done["hint"], "syncrepctl replace v")
        self.assertEqual(p.ctl_ok("a", "pool", "list").doc["pools"][0]["state"], "ok")
        self.assertIn("replace v", p.status("a", "v")["next_command"])
        self.assertIsNone(p.try_nbd("a", "v"), "an empty disk is served")
        # A restart in between changes nothing: the pool is proven, the copy is gone.
        p.restart("a")
        self.assertEqual(p.ctl_ok("a", "pool", "list").doc["pools"][0]["state"], "ok")
        self.assertIsNone(p.try_nbd("a", "v"), "an empty disk is served")
        p.ctl_ok("a", "replace", "v")
        pair.wait_for(lambda: p.serving("v") == "b", 30, "the other site serves")
        self.assertEqual(self.read(p, "b", 6000, 4096), b"before" * 1000)
        self.write(p, "b", b"after!" * 1000, 8 * MIB)
        p.compare("v")
        p.restart("a")
        p.compare("v")
        p.ctl_ok("a", "switchover", "v", "--to", "a", "--wait=60s")
        self.assertEqual(self.read(p, "a", 6000, 8 * MIB), b"after!" * 1000)
        # And it is a pool like any other.
        p.ctl_ok("a", "volume", "create", "w", "--size", "1MiB")
        p.ctl_ok("a", "volume", "delete", "w", "--force=w")

    def test_served_by_the_other_site_at_once(self):
        p = self.pair(volumes={"v": "16MiB"})
        self.write(p, "a", b"before" * 1000, 0)
        self.exchanged(p, "a")
        p.ctl_ok("b", "failover", "v", "--wait=30s")
        self.write(p, "b", b"during" * 1000, 8 * MIB)
        p.ctl_ok("a", "pool", "create", "pool", "--force=pool")
        p.ctl_ok("a", "replace", "v")
        self.assertEqual(p.serving("v"), "b")
        p.compare("v")
        self.assertEqual(self.read(p, "b", 6000, 0), b"before" * 1000)

    def test_at_the_alternate_site(self):
        """Hosts do not notice; what lay elsewhere (imported) comes back by itself, what was being deleted is gone."""
        p = self.pair(volumes={"v": "16MiB", "old": "1MiB"})
        data = os.path.join(p.folder, "data")
        with open(data, "wb") as file:
            file.write(os.urandom(MIB))
        p.ctl_ok("b", "volume", "create", "brought", "--import", data)
        p.wait_sync("brought")
        h = p.nbd("a", "v")
        h.pwrite(b"before" * 1000, 0)
        self.exchanged(p, "b")
        p.ctl("b", "volume", "delete", "old", "--force=old")
        h.pwrite(b"during" * 1000, 8192)
        p.ctl_ok("b", "pool", "create", "pool", "--force=pool")
        p.wait_sync("brought")
        p.ctl_ok("b", "replace", "v", "--wait=60s")
        p.compare("v")
        h.shutdown()
        gone = lambda: all("old" not in [one["name"] for one in p.ctl_ok(site, "volume", "list").doc["volumes"]]
                           for site in pair.SITES)
        pair.wait_for(gone, 30, "the volume that was being deleted is gone")

    def test_what_it_refuses(self):
        p = self.pair(volumes={"v": "1MiB"})
        pool = p.sites["a"].pool
        self.assertEqual(self.refused(p, "a", 1)["code"], "refused")
        self.assertEqual(p.ctl("a", "pool", "create", "nowhere").code, 1)
        self.refused(p, "a", 2, "--force=other")
        self.exchanged(p, "a")

        # Any file
        with open(os.path.join(pool, "photo.jpg"), "w") as file:
            file.write("precious")
        self.assertIn("photo.jpg", self.refused(p, "a", 1, "--force=pool")["message"])
        self.assertEqual(os.listdir(pool), ["photo.jpg"])
        os.unlink(os.path.join(pool, "photo.jpg"))

        # Any identity: another site's, a damaged one, and its own that came back
        identity = os.path.join(pool, ".syncrep-pool")
        for source, cut in ((p.sites["b"].pool, 1000), (pool + ".old", 30), (pool + ".old", 1000)):
            with open(os.path.join(source, ".syncrep-pool")) as file:
                text = file.read()[:cut]
            with open(identity, "w") as file:
                file.write(text)
            self.assertIn("not touched", self.refused(p, "a", 1, "--force=pool")["message"])
            with open(identity) as file:
                self.assertEqual(file.read(), text)
            self.assertEqual(os.listdir(pool), [".syncrep-pool"])
            os.unlink(identity)

        # No directory at all
        os.rmdir(pool)
        self.refused(p, "a", 1, "--force=pool")
        self.assertFalse(os.path.exists(pool))
        # Nothing was changed: the old disk is still the right one.
        p.stop("a")
        os.rename(pool + ".old", pool)
        p.start("a")
        p.compare("v")

    def test_lost_and_found_is_empty(self):
        p = self.pair()
        self.exchanged(p, "b")
        os.mkdir(os.path.join(p.sites["b"].pool, "lost+found"))
        p.ctl_ok("b", "pool", "create", "pool")  # no volume: no force
        p.ctl_ok("a", "volume", "create", "v", "--size", "1MiB")
        p.compare("v")
        shutil.rmtree(p.sites["b"].pool + ".old")


if __name__ == "__main__":
    pair.main()
