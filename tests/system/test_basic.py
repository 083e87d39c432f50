#!/usr/bin/python3
"""The daily life of a volume: made, written, read, equal at both sites, deleted; also through localpair's own restart."""
import os
import subprocess

import pair
import stamp


class Basic(pair.Case):
    def test_a_volume_lives_and_goes(self):
        p = self.pair()
        p.ctl_ok("b", "volume", "create", "v", "--size", "8MiB", "--active-site", "a")
        p.wait_sync("v")
        for site in pair.SITES:
            shown = p.ctl_ok(site, "volume", "list").doc["volumes"]
            self.assertEqual([(one["name"], one["size_bytes"], one["state"]) for one in shown], [("v", 8 << 20, "live")])
        self.assertEqual(p.status("a", "v")["role"], "active")
        self.assertEqual(p.status("b", "v")["role"], "alternate")
        self.assertEqual(p.status("a", "v")["verdict"], "protected")

        h = p.nbd("a", "v")
        self.assertEqual(h.get_size(), 8 << 20)
        self.assertEqual(h.pread(8 << 20, 0), bytes(8 << 20))
        data = os.urandom(100000)
        h.pwrite(data, 12345)
        self.assertEqual(h.pread(len(data), 12345), data)
        self.assertIsNone(p.try_nbd("b", "v"), "the alternate site must not serve it")
        p.compare("v")
        with open(p.image("b", "v"), "rb") as image:
            image.seek(12345)
            self.assertEqual(image.read(len(data)), data)

        exists = p.ctl("a", "volume", "create", "v", "--size", "8MiB")
        self.assertEqual((exists.code, exists.error["code"]), (1, "exists"))
        h.shutdown()
        refused = p.ctl("a", "volume", "delete", "v")
        if refused.code != 0:
            self.assertEqual((refused.code, refused.error["code"]), (5, "needs-force"))
            p.ctl_ok("a", "volume", "delete", "v", "--force=v")
        for site in pair.SITES:
            pair.wait_for(lambda: p.ctl_ok(site, "volume", "list").doc["volumes"] == [], 10, f"v is gone at {site}")
            self.assertFalse(os.path.exists(p.image(site, "v")))

    def test_restarts_keep_it_in_sync(self):
        """Stops in order, and localpair's restart: afterwards in sync without a copy."""
        p = self.pair(volumes={"v": "16MiB"})
        writer = stamp.Stamp(p, "v").start()
        writer.wait_acknowledged(300)
        writer.stop()
        p.restart("b")
        p.compare("v")
        p.restart("a")
        p.compare("v")
        for site in pair.SITES:
            subprocess.run([pair.LOCALPAIR, "restart", p.folder, site], check=True, stdout=subprocess.DEVNULL,
                           env={**os.environ, "SYNCREP_BIN": pair.BIN}, timeout=60)
            p.adopt(site)
        p.compare("v")
        writer.check()
        for site in pair.SITES:
            self.assertEqual(p.status(site, "v")["counters"]["copied_bytes"], 0)


if __name__ == "__main__":
    pair.main()
