#!/usr/bin/python3
"""What a daemon refuses to start on or to touch: faulty files, a state folder in use, a pool that is not its own."""
import os
import re
import shutil

import pair
import tools


def check(path):
    return tools.run(pair.SYNCREPD, "--check-config", "--config", path)


class Files(pair.Case):
    def test_each_fault_has_its_place(self):
        p = self.pair()
        with open(p.sites["a"].config) as file:
            good = file.read()
        self.assertEqual(check(p.sites["a"].config)[0], 0)
        faulty, garbage = os.path.join(p.folder, "faulty.yaml"), os.path.join(p.folder, "garbage.pem")
        with open(garbage, "w") as file:
            file.write("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
        cases = {"unknown key": ("\nsite: a", "\nsight: a"), "bad unit": ("\nstall_budget: .*", "\nstall_budget: 5 parsecs"),
                 "bad number": ("\nstall_budget: .*", "\nstall_budget: 1ms"), "a key twice": ("\nsite: a", "\nsite: a\nsite: a"),
                 "not a UUID": ("\ngroup: .*", "\ngroup: nothing"), "no YAML": ("\nsite: a", "\nsite: [a"),
                 "a bad name": ("\nsite: a", "\nsite: 'a b'"), "a bad port": (r"\nlisten: .*", '\nlisten: "127.0.0.1:77777"'),
                 "own peer": ("\nsite: a", "\nsite: b"), "no pool": (r"\npools: .*", "\npools: []"),
                 "an unreadable file": (r"ca: .*", "ca: /no/such/file"),
                 "a pool twice": (r"\npools: .*", "\npools: [{name: p, directory: /x}, {name: p, directory: /y}]"),
                 "relative path": (r"\nstate: .*", "\nstate: some/where"),
                 "a pool inside the state folder": (r"(directory: .*)/pool", r"\1/state/pool"),
                 "the state folder inside a pool": (r"\nstate: (.*)/state", r"\nstate: \1/pool/state"),
                 "a pool inside a pool": (r"\npools: .*", "\npools: [{name: p, directory: /x}, {name: q, directory: /x/y}]"),
                 "another site's certificate": (r"(certificate: .*)/a.crt(.*\n.*)/a.key", r"\1/b.crt\2/b.key"),
                 "a key that does not fit": (r"(key: .*)/a.key", r"\1/b.key"),
                 "a certificate that is none": (r"certificate: .*", f"certificate: {garbage}"),
                 "a key that is none": (r"key: .*", f"key: {garbage}"),
                 "a CA that is none": (r"ca: .*", f"ca: {garbage}"),
                 "the same port twice": (r"\nlisten: (.*)", r"\nlisten: [\1, \1]")}
        good = "# comment\n" + (good if "stall_budget" in good else good + "stall_budget: 5s\n")
        for what, (pattern, instead) in cases.items():
            with self.subTest(what=what):
                text, n = re.subn(pattern, instead, good, count=1)
                self.assertEqual(n, 1, what)
                with open(faulty, "w") as file:
                    file.write(text)
                code, out = check(faulty)
                self.assertEqual(code, 2, out)
                self.assertRegex(out, r"(?m)^" + re.escape(faulty) + r":\d+:\d+: \S")
                code, out = tools.run(pair.SYNCREPD, "--config", faulty, timeout=20)
                self.assertEqual(code, 2, f"it starts on it: {out}")
        code, out = check("/no/such/file")
        self.assertEqual(code, 2, out)
        self.assertIn("/no/such/file", out)

    def test_all_faults_at_once(self):
        p = self.pair()
        with open(p.sites["a"].config) as file:
            text = file.read().replace("site: a", "site: '!'", 1).replace("group: ", "group: x", 1) + "nix: 1\n"
        faulty = os.path.join(p.folder, "faulty.yaml")
        with open(faulty, "w") as file:
            file.write(text)
        self.assertEqual(len([line for line in check(faulty)[1].splitlines() if line.startswith(faulty + ":")]), 3)

    def test_options(self):
        for args in [], ["--nix"], ["--config"], ["--check-config"], ["--config", "/x", "more"]:
            self.assertEqual(tools.run(pair.SYNCREPD, *args)[0], 2, args)
        for args in ["--help"], ["--version"]:
            self.assertEqual(tools.run(pair.SYNCREPD, *args)[0], 0, args)


class Folders(pair.Case):
    def test_a_second_daemon_on_the_state_folder(self):
        """Refused with an exit code of its own, and the first one does not notice (B33)."""
        p = self.pair(volumes={"v": "8MiB"})
        with open(p.sites["a"].config) as file:
            text = file.read()
        other = os.path.join(p.folder, "other.yaml")
        with open(other, "w") as file:  # everything else is its own
            text = re.sub(re.escape(p.host) + r":\d+", lambda m: f"{p.host}:{20000 + hash(m.group()) % 9000}", text)
            file.write(text.replace("/a/nbd.sock", "/a/nbd2.sock").replace("/a/ctl.sock", "/a/ctl2.sock"))
        for config in other, p.sites["a"].config:
            code, out = tools.run(pair.SYNCREPD, "--config", config, timeout=30)
            self.assertEqual(code, 3, out)
            self.assertIn(os.path.join(p.sites["a"].folder, "state"), out)
            self.assertRegex(out, r"lock|in use|another")
        h = p.nbd("a", "v")
        h.pwrite(b"still here", 0)
        h.shutdown()
        p.ctl_ok("a", "status")
        p.compare("v")

    def test_a_state_folder_of_another_site_or_group(self):
        """A mistake in the configuration, not damage."""
        p = self.pair()
        p.stop("a")
        with open(p.sites["a"].config) as file:
            text = file.read()
        wrong = os.path.join(p.folder, "wrong.yaml")
        for pattern, instead in ((r"\nstate: .*", f"\nstate: {p.folder}/b-state"),
                                 (r"\ngroup: .*", "\ngroup: 2f1d6f0e-5c0b-4b7e-9d53-3a0f4c1b7a11")):
            shutil.copytree(os.path.join(p.sites["b"].folder, "state"), os.path.join(p.folder, "b-state"), dirs_exist_ok=True)
            with open(wrong, "w") as file:
                file.write(re.sub(pattern, instead, text, count=1))
            code, out = tools.run(pair.SYNCREPD, "--config", wrong, timeout=30)
            self.assertEqual(code, 2, out)
            self.assertIn("state folder belongs to", out)
        p.start("a")


class Pools(pair.Case):
    """Site a has two pools; one of them is what it should not be when the daemon starts again."""

    def setUp(self):
        self.second = None

        def prepare(p):
            for site in pair.SITES:
                os.makedirs(os.path.join(p.folder, site, "second"))

        folder = "{name: pool, directory: %s/pool}, {name: second, directory: %s/second}"
        self.p = self.pair(prepare=lambda p: (prepare(p), self.settings(p, folder)),
                           volumes={"good": ("8MiB", "--pool", "pool", "--peer-pool", "pool"),
                                    "moved": ("8MiB", "--pool", "second", "--peer-pool", "second")})
        self.second = os.path.join(self.p.folder, "a", "second")
        for volume in "good", "moved":
            h = self.p.nbd("a", volume)
            h.pwrite(volume.encode() * 1000, 0)
            h.shutdown()
        self.p.wait_sync("moved")

    @staticmethod
    def settings(p, folder):
        with open(os.path.join(p.folder, "settings"), "w") as file:
            for site in pair.SITES:
                base = os.path.join(p.folder, site)
                file.write(f"{site}.pools=[{folder % (base, base)}]\n")

    def refused(self, state):
        """The pool is not used; the other one is, and hosts of its volume notice nothing."""
        p = self.p
        pools = {one["name"]: one for one in p.ctl_ok("a", "pool", "list").doc["pools"]}
        self.assertEqual(pools["pool"]["state"], "ok")
        self.assertIn(pools["second"]["state"], state)
        self.assertTrue(pools["second"]["detail"])
        self.assertIn(self.second, p.log("a"))
        p.wait_sync("good")
        h = p.nbd("a", "good")
        self.assertEqual(bytes(h.pread(4000, 0)), b"good" * 1000)
        h.pwrite(b"more", 8192)
        h.shutdown()
        shown = {one["name"]: one for one in p.ctl_ok("a", "status").doc["collections"]}
        self.assertNotEqual(shown["moved"]["sync"], "in-sync")
        self.assertFalse(shown["moved"]["serving"])
        self.assertTrue(shown["moved"]["cause"])
        self.assertIsNone(p.try_nbd("a", "moved"))
        refused = p.ctl("a", "volume", "create", "fresh", "--size", "1MiB", "--pool", "second", "--peer-pool", "pool")
        self.assertNotEqual(refused.code, 0, "a volume is made in a pool that is not there")

    def test_a_pool_that_is_not_mounted_stays_empty(self):
        p = self.p
        p.stop("a")
        away = self.second + ".away"
        os.rename(self.second, away)
        os.mkdir(self.second)
        p.start("a")
        self.refused(("missing",))
        self.assertEqual(os.listdir(self.second), [], "the bare mount point was filled")
        p.stop("a")
        os.rmdir(self.second)
        os.rename(away, self.second)
        p.start("a")
        p.wait_sync("moved")
        h = p.nbd("a", "moved")
        self.assertEqual(bytes(h.pread(5000, 0)), b"moved" * 1000)
        h.shutdown()

    def test_a_pool_that_is_gone_altogether(self):
        p = self.p
        p.stop("a")
        away = self.second + ".away"
        os.rename(self.second, away)
        p.start("a")
        self.refused(("missing", "error"))
        self.assertFalse(os.path.exists(self.second))
        p.stop("a")
        os.rename(away, self.second)
        p.start("a")
        p.wait_sync("moved")

    def test_a_pool_of_another_site(self):
        p = self.p
        p.stop("a")
        away = self.second + ".away"
        os.rename(self.second, away)
        shutil.copytree(os.path.join(p.folder, "b", "second"), self.second)
        before = {name: os.stat(os.path.join(self.second, name)).st_mtime_ns for name in os.listdir(self.second)}
        p.start("a")
        self.refused(("foreign",))
        after = {name: os.stat(os.path.join(self.second, name)).st_mtime_ns for name in os.listdir(self.second)}
        self.assertEqual(after, before, "another's pool was touched")
        p.stop("a")
        shutil.rmtree(self.second)
        os.rename(away, self.second)
        p.start("a")
        p.wait_sync("moved")

    def test_swapped_pools(self):
        p = self.p
        p.stop("a")
        first = os.path.join(p.folder, "a", "pool")
        for one, other in ((first, "x"), (self.second, first), ("x", self.second)):
            os.rename(*(os.path.join(p.folder, path) for path in (one, other)))
        p.start("a")
        states = [one["state"] for one in p.ctl_ok("a", "pool", "list").doc["pools"]]
        self.assertEqual(states, ["foreign", "foreign"])
        for volume in "good", "moved":
            self.assertIsNone(p.try_nbd("a", volume))
        p.stop("a")
        for one, other in ((first, "x"), (self.second, first), ("x", self.second)):
            os.rename(*(os.path.join(p.folder, path) for path in (one, other)))
        p.start("a")
        for volume in "good", "moved":
            p.wait_sync(volume)


if __name__ == "__main__":
    pair.main()
