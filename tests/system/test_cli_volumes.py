#!/usr/bin/python3
"""Volumes made, filled beforehand, imported and deleted through syncrepctl, also when something dies meanwhile."""
import os
import signal
import subprocess

import pair
import tools

MIB = 1 << 20


class Volumes(pair.Case):
    def listed(self, p, site):
        return sorted(one["name"] for one in p.ctl_ok(site, "volume", "list").doc["volumes"])

    def settle(self, p, wanted=None):
        """Both sites have the same volumes, and a file for each and for nothing else."""
        def settled():
            volumes = [p.ctl_ok(site, "volume", "list").doc["volumes"] for site in pair.SITES]
            names = [sorted(one["name"] for one in some) for some in volumes]
            files = [sorted(one for one in os.listdir(p.sites[site].pool) if one.endswith(".img")) for site in pair.SITES]
            if any(one["state"] != "live" for some in volumes for one in some):
                return None
            if names[0] != names[1] or any(some != [name + ".img" for name in names[0]] for some in files):
                return None
            return names if wanted is None or names[0] in wanted else None
        return pair.wait_for(settled, 30, f"both sites have the same volumes and files, of {wanted}")[0]

    def test_made_and_deleted_at_either_site(self):
        p = self.pair()
        for maker, remover, active in (("a", "b", "a"), ("b", "a", "a"), ("a", "a", "b"), ("b", "b", "b")):
            p.ctl_ok(maker, "volume", "create", "v", "--size", "1MiB", "--active-site", active, "--wait=20s")
            self.assertEqual(self.settle(p), ["v"])
            h = p.nbd(active, "v")
            self.assertEqual(h.pread(MIB, 0), bytes(MIB), "nothing of an older volume of that name")
            h.pwrite(b"\xa5" * MIB, 0)
            p.compare("v")
            h.shutdown()
            self.assertEqual(p.ctl(remover, "volume", "delete", "v").code, 5)
            p.ctl_ok(remover, "volume", "delete", "v", "--force=v")
            self.assertEqual(self.settle(p), [])

    def test_the_largest_and_the_smallest(self):
        p = self.pair()
        for name, size, in_bytes in (("small", "1MiB", MIB), ("odd", "1052672", MIB + 4096), ("huge", "64TiB", 64 << 40)):
            code = p.ctl("a", "volume", "create", name, "--size", size, "--wait=30s")
            if name == "huge" and code.code == 1 and code.error["code"] == "too-large":
                print("\n   the file system of the pool holds no files of 64 TiB")
                continue
            self.assertEqual(code.code, 0, code)
            h = p.nbd("a", name)
            self.assertEqual(h.get_size(), in_bytes)
            h.pwrite(b"z" * 512, in_bytes - 512)
            for site in pair.SITES:
                with open(p.image(site, name), "rb") as image:
                    self.assertEqual(os.fstat(image.fileno()).st_size, in_bytes)
                    self.assertLess(os.fstat(image.fileno()).st_blocks * 512, 2 * MIB)
                    image.seek(in_bytes - 512)
                    self.assertEqual(image.read(), b"z" * 512)
            h.shutdown()
            self.assertTrue(p.in_sync(name))

    def test_preallocated(self):
        p = self.pair()
        p.ctl_ok("a", "volume", "create", "v", "--size", "24MiB", "--preallocate", "--wait=60s")
        for site in pair.SITES:
            self.assertGreaterEqual(os.stat(p.image(site, "v")).st_blocks * 512, 24 * MIB, site)
            self.assertFalse(tools.is_hole(p.image(site, "v"), 0, MIB), "written, not only promised")
            shown = p.ctl_ok(site, "volume", "show", "v").doc["volume"]
            self.assertGreaterEqual(shown["allocated_bytes"], 24 * MIB)
        self.assertEqual(p.status("a", "v")["counters"]["copied_bytes"], 0)
        p.compare("v")

    def test_an_imported_file(self):
        p = self.pair()
        path = os.path.join(p.folder, "old.raw")
        data = os.urandom(3 * MIB) + bytes(4 * MIB) + os.urandom(MIB)
        with open(path, "wb") as file:
            file.write(data)
        p.ctl_ok("a", "volume", "create", "v", "--import", path, "--wait=60s")
        p.wait_sync("v")
        self.assertIsNone(pair.difference(path, p.image("b", "v")))
        h = p.nbd("a", "v")
        self.assertEqual(h.pread(8 * MIB, 0), data)
        h.pwrite(b"new" * 100, 5000)
        p.wait_sync("v")
        h.shutdown()
        self.assertIsNone(pair.difference(path, p.image("b", "v")))
        again = p.ctl("a", "volume", "create", "w", "--import", path)
        self.assertNotEqual(again.code, 0, "one replica, one owner")
        self.assertIn("copy of volume v", again.error["message"])
        os.symlink(path, path + ".link")
        again = p.ctl("a", "volume", "create", "w", "--import", path + ".link")
        self.assertIn("copy of volume v", again.error["message"])
        p.ctl_ok("a", "volume", "delete", "v", "--force=v")
        self.assertTrue(os.path.exists(path), "what was imported is not ours to remove")
        self.assertFalse(os.path.exists(p.image("b", "v")))

    def test_an_imported_loop_device(self):
        if os.geteuid() != 0 or not os.path.exists("/dev/loop-control"):
            self.skipTest("loop devices need root")
        p = self.pair()
        path = os.path.join(p.folder, "backing")
        with open(path, "wb") as file:
            file.write(os.urandom(8 * MIB))
        device = tools.run_ok("losetup", "--find", "--show", path).strip()
        self.addCleanup(lambda: tools.run("losetup", "-d", device))
        p.at_end(lambda: tools.run("losetup", "-d", device))
        p.ctl_ok("a", "volume", "create", "v", "--import", device, "--wait=60s")
        p.wait_sync("v")
        self.assertIsNone(pair.difference(device, p.image("b", "v")))
        h = p.nbd("a", "v")
        h.pwrite(b"loop" * 1024, 4 * MIB)
        h.shutdown()
        p.restart("a")
        p.wait_sync("v")
        self.assertIsNone(pair.difference(device, p.image("b", "v")))
        p.ctl_ok("b", "volume", "delete", "v", "--force=v")
        self.assertEqual(self.listed(p, "a"), [])

    def test_loop_devices_that_are_refused(self):
        """Read-only; another one of the same file; one of a file that is a copy.  Halves of one file are two copies."""
        if os.geteuid() != 0 or not os.path.exists("/dev/loop-control"):
            self.skipTest("loop devices need root")
        p = self.pair(volumes={"image": "4MiB"})
        path = os.path.join(p.folder, "backing")
        with open(path, "wb") as file:
            file.write(os.urandom(8 * MIB))

        def loop(*words):
            device = tools.run_ok("losetup", "--find", "--show", *words).strip()
            p.at_end(lambda: tools.run("losetup", "-d", device))
            return device

        def refused(device, words):
            result = p.ctl("a", "volume", "create", "x", "--import", device)
            self.assertEqual(result.code, 1, result)
            self.assertIn(words, result.error["message"])

        refused(loop("--read-only", path), "read-only")
        first, second = loop("--sizelimit", str(4 * MIB), path), loop(path)
        p.ctl_ok("a", "volume", "create", "v", "--import", first, "--wait=60s")
        refused(second, "copy of volume v")
        refused(first, "copy of volume v")
        refused(loop(p.image("a", "image")), "copy of volume image")
        p.ctl_ok("a", "volume", "create", "w", "--import", loop("--offset", str(4 * MIB), path), "--wait=60s")
        p.kill9("a")  # they are not held open now
        p.start("a")
        p.ctl_ok("a", "wait", "--for", "connected", "--timeout", "30s")
        refused(second, "copy of volume")
        for name in "v", "w":
            p.wait_sync(name)
            p.ctl_ok("a", "volume", "delete", name, f"--force={name}")

    def test_a_daemon_that_dies_while_a_volume_is_made_or_deleted(self):
        """At both sites or at neither, whoever dies and whenever."""
        p = self.pair()
        for turn in range(6):
            victim = "ab"[turn % 2]
            for verb in "create", "delete":
                args = {"create": ["--size", "32MiB", "--preallocate"], "delete": ["--force=v"]}[verb]
                client = subprocess.Popen([pair.SYNCREPCTL, "--control", p.sites["a"].ctl, "--json", "volume", verb, "v",
                                           *args], stdout=subprocess.PIPE, text=True)
                try:
                    client.wait(timeout=(0.004, 0.02, 0.06)[turn // 2])
                except subprocess.TimeoutExpired:
                    pass
                p.kill9(victim)
                p.start(victim)
                out = client.communicate(timeout=60)[0]
                self.assertIn(client.returncode, (0, 1, 3, 4), out)
                done = client.returncode == 0
                p.ctl_ok("a", "wait", "--for", "connected", "--timeout", "20s")
                wanted = {"create": (["v"],) if done else ([], ["v"]), "delete": ([],) if done else ([], ["v"])}[verb]
                names = self.settle(p, wanted)
                if verb == "create" and not names:
                    p.ctl_ok("a", "volume", "create", "v", "--size", "32MiB", "--wait=20s")
                elif verb == "create":
                    p.compare("v")
                elif names:
                    p.wait_sync("v")
                    p.ctl_ok("a", "volume", "delete", "v", "--force=v")
                    self.assertEqual(self.settle(p), [])

    def test_a_site_that_is_stopped_meanwhile(self):
        """In order, and with nobody left to tell: what a creation or deletion undoes may end after the socket is closed."""
        # A job that the stop does not wait for ends with the process: not what a thread sanitizer is asked about here.
        tsan = os.environ.get("TSAN_OPTIONS", "") + ":report_thread_leaks=0"
        p = self.pair(env={"both.TSAN_OPTIONS": tsan})
        for turn in range(12):
            victim = "ab"[turn % 2]
            verb = ("create", "delete")[turn // 2 % 2]
            if verb == "delete" and not self.listed(p, "a"):
                p.ctl_ok("a", "volume", "create", "v", "--size", "32MiB", "--wait=20s")
            args = {"create": ["--size", "32MiB", "--preallocate"], "delete": ["--force=v"]}[verb]
            client = subprocess.Popen([pair.SYNCREPCTL, "--control", p.sites["a"].ctl, "volume", verb, "v", *args],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                client.wait(timeout=(0.01, 0.03, 0.08)[turn // 4])
            except subprocess.TimeoutExpired:
                pass
            p.restart(victim)  # a bad end fails the test
            self.assertIn(client.wait(timeout=60), (0, 1, 3, 4))
            p.ctl_ok("a", "wait", "--for", "connected", "--timeout", "20s")
            if self.settle(p):
                p.ctl_ok("a", "volume", "delete", "v", "--force=v")
            self.settle(p, ([],))

    def test_a_client_that_dies_changes_nothing(self):
        p = self.pair()
        client = subprocess.Popen([pair.SYNCREPCTL, "--control", p.sites["a"].ctl, "volume", "create", "v", "--size",
                                   "64MiB", "--preallocate"], stdout=subprocess.DEVNULL)
        pair.wait_for(lambda: os.path.exists(p.image("a", "v")) or client.poll() is not None, 20, "it begins")
        client.send_signal(signal.SIGKILL)
        client.wait()
        pair.wait_for(lambda: all(p.ctl(site, "collection", "show", "v").code == 0 for site in pair.SITES), 30,
                      "the volume is made all the same")
        p.compare("v")


if __name__ == "__main__":
    pair.main()
