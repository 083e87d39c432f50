#!/usr/bin/python3
"""The configuration read again a hundred times under load, good and faulty files in turn (B46)."""
import os
import signal
import time

import pair
import stamp
import tools


class Reload(pair.Case):
    def write(self, text):
        path = self.p.sites["a"].config
        with open(path + ".new", "w") as file:
            file.write(text)
        os.rename(path + ".new", path)

    def test_a_hundred_times_under_load(self):
        p = self.p = self.pair(volumes={"v": "32MiB"})
        with open(p.sites["a"].config) as file:
            good = file.read()
        writer = stamp.Stamp(p, "v", connections=2).start()
        writer.wait_acknowledged(50)
        pid = p.sites["a"].pid
        reconnects = p.site_status("a")["link"]["reconnects"]
        files = [good, good + "nix: 1\n", good + "limits: {resync_min_rate: 9MiB}\n", "\0\1", good.replace("tls:", "tsl:"), "",
                 good + "log: {level: debug}\n"]
        for turn in range(100):
            self.write(files[turn % len(files)])
            os.kill(pid, signal.SIGHUP)
            if turn % 10 == 0:
                p.ctl("a", "reload")
            time.sleep(0.01)
        self.write(good + "nix: 1\n")
        refused = p.ctl("a", "reload")
        self.assertIn(refused.code, (1, 2), refused)
        self.assertRegex(refused.error["message"], r"config\.yaml:\d+:\d+: ")
        self.write(good)
        p.ctl_ok("a", "reload")
        for site in pair.SITES:
            os.kill(p.sites[site].pid, signal.SIGHUP)
        since = time.monotonic()
        writer.wait_acknowledged(200)
        writer.stop()
        self.assertEqual(sum(writer.errors.values()), 0)
        self.assertLess(writer.latency_max(), 2 * pair.SLOW)
        self.assertLess(time.monotonic() - since, 30 * pair.SLOW)
        self.assertEqual(p.site_status("a")["link"]["reconnects"], reconnects, "the link was not touched")
        p.compare("v")
        writer.check()

    def test_live_keys_are_applied_and_others_named(self):
        p = self.p = self.pair(volumes={"v": "8MiB"})
        with open(p.sites["a"].config) as file:
            good = file.read()
        self.write(good + "log: {level: debug}\n")
        text = p.ctl_ok("a", "reload").doc["results"][0]["text"]
        self.assertIn("log.level", text)
        self.write(good + "limits: {queue_depth: 64}\n")
        text = p.ctl_ok("a", "reload").doc["results"][0]["text"]
        self.assertRegex(text, r"restart.*limits\.queue_depth")
        os.unlink(p.sites["a"].config)
        self.assertNotEqual(p.ctl("a", "reload").code, 0)
        self.write(good)

    def test_broken_certificates_leave_those_in_use(self):
        """B24: a certificate that does not go with its key, or none at all, is named and changes nothing."""
        p = self.p = self.pair(volumes={"v": "8MiB"})
        certs = os.path.join(p.folder, "certs")
        path = os.path.join(certs, "a.crt")
        with open(path, "rb") as file:
            good = file.read()
        with open(os.path.join(certs, "b.crt"), "rb") as file:
            other = file.read()
        for bad in other, b"", good[:200], b"\0" * 100:
            with open(path, "wb") as file:
                file.write(bad)
            refused = p.ctl("a", "reload")
            self.assertNotEqual(refused.code, 0)
            self.assertIn(path, refused.error["message"])
            self.assertTrue(p.in_sync("v"))
        with open(path, "wb") as file:
            file.write(good)
        p.ctl_ok("a", "reload")
        environment = {"SYNCREP_BIN": pair.BIN}
        tools.run_ok(os.path.join(pair.TOP, "deploy", "make-certs"), certs, "--renew", "a", env=environment)
        p.ctl_ok("a", "reload")
        p.restart("b")
        p.wait_sync("v")

    def test_certificates_are_made_once(self):
        p = self.p = self.pair()
        certs = os.path.join(p.folder, "certs")

        def contents():
            return {name: open(os.path.join(certs, name), "rb").read() for name in sorted(os.listdir(certs))}
        before = contents()
        for _ in range(2):
            tools.run_ok(os.path.join(pair.TOP, "deploy", "make-certs"), certs, "a", "b")
            self.assertEqual(contents(), before)
        for name in before:
            mode = os.stat(os.path.join(certs, name)).st_mode & 0o777
            self.assertEqual(mode, 0o600 if name.endswith(".key") else 0o644, name)
        for args in ([certs, "a"], [certs, "a", "a"], [certs, "a", "../b"], [certs, "a", "b", "--days", "0"], []):
            self.assertEqual(tools.run(os.path.join(pair.TOP, "deploy", "make-certs"), *args)[0], 2, args)
        self.assertEqual(contents(), before)


if __name__ == "__main__":
    pair.main()
