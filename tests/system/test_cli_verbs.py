#!/usr/bin/python3
"""Every verb of syncrepctl against real daemons: done, refused, no daemon, no peer, too late; as text and as JSON (B32)."""
import json
import os
import signal
import subprocess
import time

import nbd

import pair
import tools

DONE, REFUSED, USAGE, UNREACHABLE, TIMED_OUT, NEEDS_FORCE = range(6)
ERRORS = set("usage invalid no-memory io no-space not-found exists busy protocol version corrupt timeout unreachable refused "
             "needs-force permission cancelled unsupported too-large locked identity shutdown unknown".split())


class Cli(pair.Case):
    def check(self, code, name, *args, error=None, control=None, timeout=60):
        """Runs it as text and with --json: the same exit code, an error with a name on the right stream."""
        control = control or self.p.sites[name].ctl
        done, out, err = tools.plain_ctl(self.p, name, *args, control=control, timeout=timeout)
        text = f"{' '.join(args)} at {name}: {done}\n{out}{err}"
        self.assertEqual(done, code, text)
        if code in (DONE,):
            self.assertEqual(err, "", text)
        elif args[0] != "status" or code >= UNREACHABLE:
            self.assertRegex(err, r"\S", text)
            self.assertNotRegex(err, r"(?i)assert|\(null\)|\?\?\?", text)
        result = subprocess.run([pair.SYNCREPCTL, "--control", control, "--json", *args], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, timeout=timeout * pair.SLOW,
                                stdin=subprocess.DEVNULL)
        text = f"{' '.join(args)} --json at {name}: {result.returncode}\n{result.stdout}{result.stderr}"
        self.assertEqual(result.returncode, code, text)
        self.assertEqual(result.stderr, "", text)
        doc = json.loads(result.stdout)
        self.assertEqual(doc["version"], 1, text)
        self.assertEqual(doc["ok"], code == DONE or "check" in doc, text)
        if not doc["ok"]:
            found = pair.Ctl(code, result.stdout, args).error
            self.assertIn(found["code"], ERRORS, text)
            self.assertEqual(found["exit"], code, text)
            self.assertTrue(found["message"], text)
            if error:
                self.assertEqual(found["code"], error, text)
        return doc

    def test_both_ways_of_each_verb(self):
        p = self.p = self.pair(volumes={"v": "8MiB", "w": "4MiB"})
        for site in pair.SITES:
            for args in (["status"], ["status", "-x"], ["status", "v"], ["status", "--check"], ["volume", "list"],
                         ["volume", "show", "v"], ["collection", "list"], ["collection", "show", "v"], ["pool", "list"],
                         ["events"], ["wait", "v", "--for", "in-sync"], ["wait", "--all", "--for", "protected"],
                         ["wait", "--for", "connected"], ["tune", "resync_min_rate=8MiB"], ["reload"],
                         ["pause", "v", "--wait=20s"], ["wait", "v", "--for", "paused"], ["resume", "v", "--wait=20s"],
                         ["pause", "--all", "--wait"], ["resume", "--all", "--wait"],
                         ["pause", "v", "w"], ["resume", "v", "w", "--wait"]):
                with self.subTest(site=site, args=args):
                    self.check(DONE, site, *args)
        self.check(DONE, "a", "wait", "v", "--for", "active")
        self.check(DONE, "b", "wait", "v", "--for", "alternate")
        p.compare("v")

    def test_refusals(self):
        p = self.p = self.pair(volumes={"v": "8MiB", "empty": "1MiB"})
        p.ctl_ok("b", "volume", "delete", "empty")  # nothing is lost
        h = p.nbd("a", "v")
        h.pwrite(b"precious", 0)
        for site in pair.SITES:
            doc = self.check(REFUSED, site, "volume", "delete", "v", "--force=v")
            self.assertIn("host", doc["results"][0]["error"]["message"])
        h.shutdown()
        for site in pair.SITES:
            for args, error in ((["status", "nix"], "not-found"), (["volume", "show", "nix"], "not-found"),
                                (["collection", "show", "nix"], "not-found"), (["pause", "nix"], "not-found"),
                                (["resume", "nix"], "not-found"), (["replace", "nix"], "not-found"),
                                (["volume", "delete", "nix"], "not-found"),
                                (["wait", "nix", "--for", "in-sync", "--timeout", "1s"], "not-found"),
                                (["volume", "create", "v", "--size", "8MiB"], "exists"),
                                (["volume", "create", "n", "--import", "/no/such/file"], None)):
                with self.subTest(site=site, args=args):
                    self.check(REFUSED, site, *args, error=error)
            for option in "--active-site", "--pool", "--peer-pool":
                self.check(USAGE, site, "volume", "create", "n", "--size", "8MiB", option, "nix")
            self.check(NEEDS_FORCE, site, "volume", "delete", "v", error="needs-force")
            self.check(USAGE, site, "volume", "delete", "v", "--force=w")
        doc = self.check(REFUSED, "a", "pause", "v", "nix")
        self.assertEqual([(one["name"], one["ok"]) for one in doc["results"]], [("v", True), ("nix", False)])
        p.ctl_ok("a", "resume", "v", "--wait")
        for site in pair.SITES:
            self.assertEqual(sorted(os.listdir(p.sites[site].pool)), sorted(os.listdir(p.sites["a"].pool)))
            self.assertEqual([one["name"] for one in p.ctl_ok(site, "volume", "list").doc["volumes"]], ["v"])
        p.compare("v")

    def test_usage(self):
        self.p = self.pair()
        create = ["volume", "create"]
        for args in ([], ["nix"], ["volume"], ["volume", "nix"], ["status", "--nix"], ["status", "a", "b"],
                     ["pause"], ["resume"], ["wait", "v"], ["wait", "v", "--for", "nix"], ["wait", "--for", "in-sync"],
                     ["tune"], ["tune", "nix=1"], ["tune", "stall_budget=soon"], ["reload", "now"], ["events", "v"],
                     [*create, "v"], [*create, "v", "--size", "8"], [*create, "v", "--size", "1023KiB"],
                     [*create, "v", "--size", "65TiB"], [*create, "v", "--size", "8MB"], [*create, "v", "--size", "1.5G"],
                     [*create, "v", "--size", "-8M"], [*create, "v", "--size", ""], [*create, "v", "--size", "1048577"],
                     [*create, "v", "--size", "99999999999999999999"], [*create, "--size", "8MiB"],
                     [*create, ".v", "--size", "8MiB"], [*create, "a/b", "--size", "8MiB"], [*create, "", "--size", "8MiB"],
                     [*create, "..", "--size", "8MiB"], [*create, "v" * 65, "--size", "8MiB"],
                     [*create, "v w", "--size", "8MiB"], [*create, "v\n", "--size", "8MiB"],
                     [*create, "v\u00e4", "--size", "8MiB"], [*create, "v", "--size", "8MiB", "--size", "9MiB"],
                     [*create, "v", "--import", "relative"], ["pause", "v", "--wait=soon"],
                     ["--control", "", "status"], ["status", "--control", ""],
                     ["--timeout", "0", "status"], ["--timeout", "5", "status"]):
            with self.subTest(args=args):
                done, out, err = tools.plain_ctl(self.p, "a", *args)
                self.assertEqual((done, out), (USAGE, ""), err)
                self.assertRegex(err, r"\S")
                done, out, err = tools.plain_ctl(self.p, "a", "--json", *args)
                self.assertEqual((done, err), (USAGE, ""), out)
                self.assertEqual(json.loads(out)["error"]["exit"], USAGE)
        self.assertEqual(self.p.ctl_ok("a", "volume", "list").doc["volumes"], [])

    def test_help_needs_no_daemon(self):
        self.p = self.pair()
        for verb in ([], *(line.split() for line in "status wait pause resume replace events tune reload".split()),
                     ["volume", "create"], ["volume", "list"], ["volume", "show"], ["volume", "delete"], ["pool", "list"],
                     ["pool", "create"],
                     ["collection", "list"], ["collection", "show"]):
            done, out, err = tools.plain_ctl(self.p, "a", *verb, "--help", control="/nonexistent")
            self.assertEqual((done, err), (DONE, ""), verb)
            self.assertIn("usage: syncrepctl", out)
            if verb:
                self.assertIn("Example", out, verb)

    def every_verb(self):
        return (["status"], ["status", "--check"], ["status", "v"], ["volume", "list"], ["volume", "show", "v"],
                ["volume", "create", "n", "--size", "8MiB"], ["volume", "delete", "v", "--force=v"], ["pool", "list"],
                ["collection", "list"], ["collection", "show", "v"], ["pause", "v"], ["resume", "v", "--wait=5s"],
                ["replace", "v"], ["wait", "v", "--for", "in-sync", "--timeout", "2s"], ["events"],
                ["tune", "stall_budget=5s"], ["reload"])

    def test_no_daemon(self):
        self.p = self.pair(volumes={"v": "8MiB"})
        self.p.kill9("a")
        for args in self.every_verb():
            with self.subTest(args=args):
                self.check(UNREACHABLE, "a", *args, error="unreachable")
        self.check(UNREACHABLE, "a", "status", control=os.path.join(self.p.folder, "nothing"))
        self.p.start("a")
        self.p.wait_sync("v")

    def test_a_daemon_that_hangs(self):
        self.p = self.pair(volumes={"v": "8MiB"})
        self.p.hold("a")
        for args in (["status"], ["status", "--check"], ["volume", "list"], ["pool", "list"], ["events"], ["reload"],
                     ["wait", "v", "--for", "paused"]):
            with self.subTest(args=args):
                begun = time.monotonic()
                self.check(TIMED_OUT, "a", "--timeout", "300ms", *args)
                self.assertLess(time.monotonic() - begun, 10 * pair.SLOW)  # both runs
        self.p.release("a")
        self.p.wait_sync("v")

    def test_a_daemon_that_stops(self):
        """It shows how things are as long as it listens, begins nothing new, and ends well."""
        p = self.pair(volumes={"v": "8MiB"}, faults=True)
        handle = p.nbd("a", "v")
        p.fault(p.rule("b", "v", "op=write delay_ms=2000"))
        buffer = nbd.Buffer.from_bytearray(bytearray(b"x" * 4096))
        write = handle.aio_pwrite(buffer, 0)
        pair.wait_for(lambda: p.status("a", "v")["requests"] == 1, 10, "the write is under way")
        codes = set()

        def asked():
            codes.add(p.ctl("b", "status").code)
            codes.add(("pause", p.ctl("b", "pause", "v").code))
        os.kill(p.sites["b"].pid, signal.SIGTERM)
        pair.wait_for(lambda: asked() or p.ended(p.sites["b"]), 30, "it stops")
        self.assertEqual(p.sites["b"].last_exit, 0)
        self.assertLessEqual(codes, {0, 3, ("pause", 0), ("pause", 1), ("pause", 3)})
        self.assertIn(("pause", 3), codes)
        pair.wait_for(lambda: handle.poll(100) or handle.aio_command_completed(write), 30, "the write is answered")
        p.fault()
        p.start("b")
        p.ctl_ok("a", "resume", "v")

    def test_no_peer(self):
        p = self.p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "300ms"})
        p.kill9("b")
        p.wait_status("a", "v", sync="out-of-sync")
        self.check(UNREACHABLE, "a", "volume", "create", "n", "--size", "8MiB")
        self.check(DONE, "a", "pause", "v")
        self.check(DONE, "a", "resume", "v")
        self.check(TIMED_OUT, "a", "resume", "v", "--wait=500ms", error="timeout")
        self.check(TIMED_OUT, "a", "wait", "v", "--for", "in-sync", "--timeout", "500ms", error="timeout")
        self.check(TIMED_OUT, "a", "wait", "--for", "connected", "--timeout", "500ms", error="timeout")
        code = tools.plain_ctl(p, "a", "volume", "delete", "v")[0]
        self.assertIn(code, (UNREACHABLE, NEEDS_FORCE, REFUSED))
        for args in ["status"], ["volume", "list"], ["pool", "list"], ["events"]:
            self.check(DONE, "a", *args)
        self.assertEqual([one["name"] for one in p.ctl_ok("a", "volume", "list").doc["volumes"]], ["v"])
        p.start("b")
        self.check(DONE, "a", "wait", "--for", "connected", "--timeout", "20s")
        self.check(DONE, "a", "wait", "v", "--for", "in-sync", "--timeout", "20s")
        self.assertFalse(os.path.exists(p.image("b", "n")))

    def test_status_for_monitoring(self):
        p = self.p = self.pair(set={"both.stall_budget": "300ms"})
        self.assertEqual(self.check(0, "a", "status", "--check")["check"]["exit"], 0)
        p.make({"v": "8MiB", "w": "8MiB"})
        line = tools.plain_ctl(p, "a", "status", "--check")
        self.assertEqual((line[0], line[1].count("\n")), (0, 1))
        p.ctl_ok("a", "pause", "w", "--wait")
        self.assertEqual(self.check(1, "a", "status", "--check")["check"], {"verdict": "exposed", "exit": 1})
        self.check(0, "a", "status", "--check", "v")
        self.check(1, "a", "status", "--check", "w")
        line = tools.plain_ctl(p, "a", "status", "--check")
        self.assertRegex(line[1], r"\bw\b.*paused")
        p.ctl_ok("a", "resume", "w", "--wait")
        p.stop("b")
        p.restart("a")  # in sync when it stopped, and alone: it must not serve
        self.assertEqual(self.check(2, "a", "status", "--check")["check"], {"verdict": "offline", "exit": 2})
        shown = p.status("a", "v")
        self.assertEqual((shown["verdict"], shown["serving"]), ("offline", False))
        self.assertTrue(shown["cause"] and shown["next_command"], shown)
        self.assertIsNone(p.try_nbd("a", "v"))
        p.start("b")
        p.wait_sync("v")
        p.wait_sync("w")
        self.check(0, "a", "status", "--check")

    def test_watch_and_follow(self):
        p = self.p = self.pair(volumes={"v": "8MiB"})
        for args, needle in ((["status", "--watch=1"], '"collections"'), (["events", "--follow"], '"event"')):
            process = subprocess.Popen([pair.SYNCREPCTL, "--control", p.sites["a"].ctl, "--json", *args],
                                       stdout=subprocess.PIPE, text=True)
            lines = [process.stdout.readline()]
            p.ctl_ok("a", "pause", "v", "--wait")
            while "paused" not in lines[-1]:
                lines.append(process.stdout.readline())
                self.assertTrue(lines[-1], "it ended")
            for line in lines:
                self.assertEqual(json.loads(line)["version"], 1)
                self.assertIn(needle, line)
            process.send_signal(signal.SIGINT)
            self.assertIn(process.wait(timeout=10), (0, -signal.SIGINT, 130))
            process.stdout.close()
            p.ctl_ok("a", "resume", "v", "--wait")

    def test_the_time_given_to_follow_is_over(self):
        """That is no fault of the daemon's."""
        p = self.p = self.pair()
        done, out, err = tools.plain_ctl(p, "a", "events", "--follow", "--timeout", "300ms")
        self.assertEqual(done, TIMED_OUT)
        self.assertIn("time given", err)
        self.assertNotIn("does not answer", err)

    def test_tune_is_all_or_nothing(self):
        p = self.p = self.pair()
        self.check(DONE, "a", "tune", "resync_min_rate=8MiB", "resync_max_rate=16MiB")
        for bad in ("resync_max_rate=4MiB",), ("resync_min_rate=32MiB",), ("resync_min_rate=1MiB", "nix=1"), \
                ("resync_min_rate=1MiB", "stall_budget=never"), ("resync_min_rate=64KiB", "resync_max_rate=32KiB"):
            self.check(USAGE, "a", "tune", *bad)
        log = p.log("a")
        for value in "32MiB", "1MiB", "64KiB":
            self.assertNotIn(f"resync_min_rate is {value}", log, "applied although it was refused")
        # What fits only together, whichever comes first
        doc = self.check(DONE, "a", "tune", "resync_min_rate=32MiB", "resync_max_rate=64MiB", "resync_latency_factor=3.0")
        self.assertEqual([one["name"] for one in doc["results"]],
                         ["resync_min_rate", "resync_max_rate", "resync_latency_factor"])
        self.check(DONE, "a", "tune", "resync_max_rate=8MiB", "resync_min_rate=4MiB")

    def test_shown_with_its_site(self):
        p = self.p = self.pair(volumes={"v": "8MiB"})
        for site in pair.SITES:
            for verb in "volume", "collection":
                for words in ["list"], ["show", "v"]:
                    self.assertEqual(p.ctl_ok(site, verb, *words).doc["site"], site)

    def test_a_reader_that_leaves(self):
        p = self.p = self.pair(volumes={"v": "8MiB"})
        process = subprocess.Popen([pair.SYNCREPCTL, "--control", p.sites["a"].ctl, "status", "--watch=1"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.readline()
        process.stdout.close()
        self.assertIn(process.wait(timeout=20), (REFUSED, -signal.SIGPIPE))
        with open("/dev/full", "w") as full:
            done = subprocess.run([pair.SYNCREPCTL, "--control", p.sites["a"].ctl, "status"], stdout=full,
                                  stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, REFUSED)


if __name__ == "__main__":
    pair.main()
