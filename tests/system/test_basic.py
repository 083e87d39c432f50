#!/usr/bin/python3
"""The daily life of a volume: made, written, read, equal at both sites, deleted; also through localpair's own restart."""
import os
import random
import shutil
import subprocess
import tempfile

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


class Localpair(pair.Case):
    def localpair(self, *words):
        return subprocess.run([pair.LOCALPAIR, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, "SYNCREP_BIN": pair.BIN}, timeout=120 * pair.SLOW)

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="sr-")
        self.folder = os.path.join(self.top, "sp ace #1: x")
        self.addCleanup(shutil.rmtree, self.top, ignore_errors=True)
        self.addCleanup(self.localpair, "down", self.folder)
        self.host = ["--host", f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.7"]

    def test_a_directory_with_a_space(self):
        """What it prints can be sourced, and tells the truth."""
        done = self.localpair("up", self.folder, "--volume", "v:1M", *self.host)
        self.assertEqual(done.returncode, 0, done.stderr)
        script = f'. "$1/env" && [ -S "$SR_A_NBD" ] && [ -e "$SR_B_POOL/v.img" ] && ' \
                 f'{pair.SYNCREPCTL} --control "$SR_A_CTL" status --check v'
        sourced = subprocess.run(["bash", "-euc", script, "-", self.folder], stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, timeout=60)
        self.assertEqual(sourced.returncode, 0, sourced.stdout)

    def test_a_mistyped_set_is_not_kept(self):
        wrong = self.localpair("up", self.folder, *self.host, "--set", "both.foo=3")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("--set is not applied", wrong.stderr)
        self.assertEqual(self.localpair("up", self.folder).returncode, 0)
        self.assertEqual(self.localpair("down", self.folder).returncode, 0)
        with open(os.path.join(self.folder, "settings"), "a") as file:
            file.write("both.foo=3\n")
        wrong = self.localpair("up", self.folder)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn(os.path.join(self.folder, "settings"), wrong.stderr)


if __name__ == "__main__":
    pair.main()
