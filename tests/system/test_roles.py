#!/usr/bin/python3
"""The verbs that move the active role: from either site, twice at once, at the wrong site, with the peer gone; plans that
change nothing; one clear answer each time, and the state as it was when the answer is no."""
import signal
import subprocess
import threading
import time

import pair
import stamp
import tools

VERBS = (["switchover", "v"], ["failback", "v"], ["failover", "v"], ["resolve", "v", "--keep", "a"])


def start_ctl(p, site, *args):
    return subprocess.Popen([pair.SYNCREPCTL, "--control", p.sites[site].ctl, "--json", *args], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)


def at_once(p, *commands):
    """Runs (site, arguments...) side by side; returns what each gave."""
    running = [(start_ctl(p, site, *args), args) for site, *args in commands]
    return [pair.Ctl(one.wait(60 * pair.SLOW), one.communicate()[0], args) for one, args in running]


class Roles(pair.Case):
    def facts(self, p, *sites):
        """What a refused command must leave as it is."""
        return {site: {key: p.status(site, "v")[key] for key in ("generation", "role", "serving", "made_by", "paused")}
                for site in sites or pair.SITES}

    def check(self, p, code, site, *args, error=None):
        """Text and JSON, the same code; the plan of it, too, foretells that code."""
        result = p.ctl(site, *args)
        self.assertEqual(result.code, code, result)
        if code:
            self.assertTrue(result.error["message"], result)
            if error:
                self.assertEqual(result.error["code"], error, result)
        done, out, err = tools.plain_ctl(p, site, *args)
        self.assertEqual(done, code, out + err)
        self.assertEqual(bool(err), code != 0, out + err)
        return result

    def test_twice_at_once_from_both_sites(self):
        """Both get the one result; whoever asks for what is so already is told that."""
        p = self.pair(volumes={"v": "64MiB"})
        writer = stamp.Stamp(p, "v", site=lambda: p.serving("v"), connections=3, depth=4).start()
        writer.wait_acknowledged(100)
        for to in "b", "a", "b", "a":
            for result in at_once(p, ("a", "switchover", "v", "--to", to), ("b", "switchover", "v", "--to", to),
                                  ("b", "failback", "v", "--to", to), ("a", "switchover", "v", "--to", to)):
                self.assertEqual(result.code, 0, result)
                self.assertIn(f"active at {to}", result.doc["results"][0]["text"])
            p.wait_status(to, "v", role="active", serving=True)
            p.wait_sync("v")
            for site in pair.SITES:
                shown = p.wait_status(site, "v", handing_over=False)
                self.assertGreater(shown["switchover_pause_us"], 0)
            writer.wait_acknowledged(100)
        # Against each other: never both, and one clear answer each
        for _ in range(3):
            for result in at_once(p, ("a", "switchover", "v", "--to", "b"), ("b", "switchover", "v", "--to", "a")):
                self.assertIn(result.code, (0, 1), result)
            pair.wait_for(lambda: p.serving("v"), 20, "one site serves")
            p.wait_sync("v")
        writer.stop()
        self.assertFalse(writer.errors, writer.errors)
        p.compare("v")
        writer.check()

    def test_wrong_names_and_sites(self):
        p = self.pair(volumes={"v": "8MiB"})
        before = self.facts(p)
        for site in pair.SITES:
            for plan in [], ["--plan"]:
                for verb in VERBS:
                    self.check(p, 1, site, verb[0], "nix", *verb[2:], *plan, error="not-found")
                for args in (["switchover", "v", "--to", "c"], ["failback", "v", "--to", "c"],
                             ["resolve", "v", "--keep", "c"]):
                    result = self.check(p, 2, site, *args, *plan)
                    self.assertIn("the sites are", result.error["message"])
                self.check(p, 1, site, "resolve", "v", "--keep", "b", *plan, error="refused")
                self.check(p, 0, site, "resolve", "v", "--keep", "a", *plan)
                self.check(p, 0, site, "switchover", "v", "--to", "a", *plan)
                self.check(p, 0, site, "failback", "v", "--to", "a", *plan)
            self.check(p, 0, site, "switchover", "v", "--plan")
        for plan in [], ["--plan"]:
            served = self.check(p, 0, "a", "failover", "v", *plan)  # active and served there already
            self.assertIn("served here already", str(served.doc))
            self.check(p, 1, "b", "failover", "v", *plan, error="refused")
            self.check(p, 1, "b", "failover", "v", "--force=v", *plan, error="refused")
        self.assertEqual(self.facts(p), before)
        p.compare("v")

    def test_plans_change_nothing(self):
        p = self.pair(volumes={"v": "8MiB"})
        p.nbd("a", "v").pwrite(b"data", 0)
        before = self.facts(p)
        commits = {site: p.status(site, "v")["counters"]["meta_commits"] for site in pair.SITES}
        for site in pair.SITES:
            shown = p.ctl_ok(site, "switchover", "v", "--plan").doc["plan"]
            self.assertTrue(shown["peer_answered"] and shown["connected"], shown)
            self.assertGreater(shown["pause_estimate_us"], 0)
            self.assertEqual(shown["may_be_lost"], "")
            self.assertLess(abs(shown["synced_wall_ms"] - time.time() * 1000), 10000)
            self.assertEqual([side["role"] for side in shown["sides"]],
                             ["active", "alternate"] if site == "a" else ["alternate", "active"])
            for verb in VERBS:
                p.ctl(site, *verb, "--plan")
        self.assertEqual(self.facts(p), before)
        self.assertEqual({site: p.status(site, "v")["counters"]["meta_commits"] for site in pair.SITES}, commits)

    def test_last_in_sync_of_an_idle_pair(self):
        """Nothing was written for a while: in sync until the other site went, and not until the last write."""
        for lost, left in ("b", "a"), ("a", "b"):
            with self.subTest(lost=lost):
                p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "1s"})
                p.nbd("a", "v").pwrite(b"data", 0)
                idle_from = time.time()
                pair.wait_for(lambda: time.time() > idle_from + 4, 10, "an idle time")
                killed_ms = time.time() * 1000
                p.kill9(lost)
                p.wait_status(left, "v", cause="peer-unreachable")
                shown = p.ctl(left, "failover", "v", "--plan").doc["plan"]
                self.assertGreater(shown["synced_wall_ms"], killed_ms - 1000)
                self.assertGreater(p.status(left, "v")["synced_wall_ms"], killed_ms - 1000)

    def test_failback_does_not_wait_for_an_administrator(self):
        p = self.pair(volumes={"v": "8MiB"})
        p.ctl_ok("a", "pause", "v")
        for site in pair.SITES:
            begun = time.monotonic()
            result = self.check(p, 1, site, "failback", "v", "--to", "b", "--timeout", "60s", error="refused")
            self.assertIn("paused", result.error["message"])
            self.assertIn("resume", result.error["hint"])
            self.assertLess(time.monotonic() - begun, 20)
        p.ctl_ok("a", "resume", "v")
        self.check(p, 0, "a", "failback", "v", "--to", "b")

    def test_pending_failback_is_shown_and_superseded(self):
        """Nobody sees a client that was killed: the role must not move hours later against what was said since."""
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "1s"})
        p.kill9("b")
        p.wait_status("a", "v", cause="peer-unreachable")
        client = subprocess.Popen([pair.SYNCREPCTL, "--control", p.sites["a"].ctl, "failback", "v", "--to", "b", "--timeout",
                                   "2h"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        pair.wait_for(lambda: "failback to site b" in p.status("a", "v")["warning"], 10, "it is shown")
        client.kill()
        client.wait()
        self.assertIn("failback to site b", p.status("a", "v")["warning"])
        p.ctl_ok("a", "switchover", "v", "--to", "a")
        pair.wait_for(lambda: not p.status("a", "v")["warning"], 10, "it is gone")
        p.start("b")
        p.wait_sync("v")
        p.wait_status("a", "v", role="active", serving=True)

    def test_peer_gone(self):
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "1s"})
        p.kill9("b")
        p.wait_status("a", "v", cause="peer-unreachable")
        before = self.facts(p, "a")
        for plan in [], ["--plan"]:
            self.check(p, 3, "a", "switchover", "v", *plan, error="unreachable")
            self.check(p, 0, "a", "switchover", "v", "--to", "a", *plan)
            self.check(p, 1, "a", "resolve", "v", "--keep", "b", *plan, error="refused")
        begun = time.monotonic()
        late = p.ctl("a", "failback", "v", "--timeout", "500ms")
        self.assertEqual(late.code, 4, late)
        self.assertIn("nothing was changed", late.error["message"])
        self.assertLess(time.monotonic() - begun, 10 * pair.SLOW)
        self.assertEqual(self.facts(p, "a"), before)
        p.start("b")
        p.wait_sync("v")
        p.kill9("a")
        p.wait_status("b", "v", cause="peer-unreachable")
        before = self.facts(p, "b")
        for plan in [], ["--plan"]:
            self.check(p, 3, "b", "switchover", "v", *plan, error="unreachable")
            self.check(p, 3, "b", "switchover", "v", "--to", "b", *plan, error="unreachable")
            self.check(p, 3, "b", "switchover", "v", "--to", "a", *plan, error="unreachable")
            self.check(p, 1, "b", "resolve", "v", "--keep", "b", *plan, error="refused")
        shown = p.ctl_ok("b", "failover", "v", "--plan").doc["plan"]
        self.assertFalse(shown["peer_answered"] or shown["connected"], shown)
        self.assertGreater(shown["peer_wall_ms"], 0)
        self.assertIn("alone", shown["may_be_lost"])
        self.assertEqual(self.facts(p, "b"), before)
        p.start("a")
        p.wait_sync("v")
        p.wait_status("a", "v", role="active", serving=True)

    def test_active_site_is_held(self):
        """What the other site's core is to do is bounded; whatever came of it, one site serves in the end."""
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "2s"})
        p.hold("a")
        begun = time.monotonic()
        late = p.ctl("b", "switchover", "v", "--to", "b", "--timeout", "500ms")
        self.assertEqual(late.code, 4, late)
        self.assertEqual(late.error["hint"], "syncrepctl status v")
        self.assertLess(time.monotonic() - begun, 5 * pair.SLOW)
        gone = p.ctl("b", "switchover", "v", "--to", "b")
        self.assertEqual(gone.code, 3, gone)
        self.assertEqual(p.ctl("b", "switchover", "v", "--plan").code, 3)
        p.wait_status("b", "v", role="alternate", serving=False)
        p.release("a")
        p.wait_sync("v")
        pair.wait_for(lambda: p.serving("v"), 20, "one site serves")
        p.compare("v")

    def test_killed_client_changes_nothing(self):
        p = self.pair(volumes={"v": "8MiB"})
        p.hold("b")
        client = start_ctl(p, "a", "switchover", "v", "--to", "b")
        p.wait_status("a", "v", mode="handing-over", handing_over=True)
        client.send_signal(signal.SIGKILL)
        client.communicate()
        p.release("b")  # in time: it is done
        p.wait_status("b", "v", role="active", serving=True)
        p.wait_status("a", "v", role="alternate")
        client = start_ctl(p, "a", "failback", "v", "--to", "a")
        client.send_signal(signal.SIGKILL)
        client.communicate()
        p.wait_sync("v")
        pair.wait_for(lambda: p.serving("v"), 20, "one site serves")

    def test_pause_and_second_command_while_handing_over(self):
        p = self.pair(volumes={"v": "8MiB"})
        p.hold("b")
        results = []
        first = threading.Thread(target=lambda: results.append(p.ctl("a", "switchover", "v")))
        first.start()
        p.wait_status("a", "v", handing_over=True)
        self.assertEqual(p.ctl("a", "pause", "v").error["code"], "busy")
        second = threading.Thread(target=lambda: results.append(p.ctl("a", "switchover", "v")))
        second.start()  # the same one: no target is named, but the role is moving
        self.assertEqual(p.ctl("a", "switchover", "v", "--to", "a").error["code"], "busy")
        self.assertEqual(p.ctl("a", "failover", "v").code, 1)
        p.release("b")
        first.join()
        second.join()
        self.assertEqual([one.code for one in results], [0, 0], results)
        p.wait_status("b", "v", role="active", serving=True)
        p.compare("v")

    def test_role_on_its_way(self):
        """Once it is given away whoever asks for the same joins in; with the link cut then the answer is "timed out,
        handing over", and the next contact of the sites finishes it."""
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": f"{int(2000 * pair.SLOW)}ms"}, link=True)
        p.link.delay(250)
        clients = [start_ctl(p, "a", "switchover", "v")]
        p.wait_status("a", "v", mode="handed-over", role="alternate", handing_over=True)
        clients.append(start_ctl(p, "a", "switchover", "v"))
        self.assertEqual(p.ctl("a", "switchover", "v", "--to", "a").error["code"], "busy")
        for client in clients:
            text = client.communicate()[0]
            self.assertEqual(client.returncode, 0, text)
            self.assertIn("hosts waited", text)
        p.wait_status("b", "v", role="active", serving=True)
        p.wait_sync("v")
        client = start_ctl(p, "b", "switchover", "v", "--to", "a")
        p.wait_status("b", "v", mode="handed-over")
        p.link.cut()
        late = pair.Ctl(client.wait(60 * pair.SLOW), client.communicate()[0], ("switchover",))
        self.assertEqual(late.code, 4, late)
        self.assertIn("timed out, handing over", late.error["message"])
        self.assertEqual(late.error["hint"], "syncrepctl wait v --for alternate")
        p.wait_status("b", "v", cause="handing-over", handing_over=True, serving=False)
        pair.wait_for(lambda: "failover v --plan" in p.status("b", "v")["next_command"], 30, "the link is seen to be down")
        p.link.delay(0)
        p.link.heal()
        p.wait_status("a", "v", role="active", serving=True)
        p.wait_status("b", "v", role="alternate", handing_over=False)
        p.compare("v")

    def test_resolve_from_both_sites_at_once(self):
        for keep in "a", "b":
            with self.subTest(keep=keep):
                p = self.pair(volumes={"v": "16MiB"}, set={"both.stall_budget": "1s"}, link=True)
                h = p.nbd("a", "v")
                p.link.cut()
                h.pwrite(b"a" * 4096, 0)
                p.wait_status("b", "v", cause="peer-unreachable")
                p.ctl_ok("b", "failover", "v")
                p.nbd("b", "v").pwrite(b"b" * 4096, 0)
                p.link.heal()
                for site in pair.SITES:
                    shown = p.wait_status(site, "v", cause="conflict")
                    self.assertIn("resolve v --keep", shown["next_command"])
                    both = p.ctl_ok(site, "resolve", "v", "--keep", keep, "--plan").doc["plan"]
                    for side in both["sides"]:
                        self.assertEqual(side["dirty_blocks"], 1, both)
                        self.assertIn("1 blocks", side["lost"])
                        self.assertEqual(side["made_by"], {"a": "alone", "b": "failover"}[side["site"]])
                        self.assertLess(abs(side["since_wall_ms"] - time.time() * 1000), 60000)
                    for args in (["switchover", "v"], ["switchover", "v", "--to", "a"], ["failover", "v"]):
                        if (site, args[0]) != ("b", "failover"):
                            self.check(p, 1, site, *args)
                for result in at_once(p, ("a", "resolve", "v", "--keep", keep), ("b", "resolve", "v", "--keep", keep),
                                      ("a", "resolve", "v", "--keep", keep)):
                    self.assertEqual(result.code, 0, result)
                p.wait_status(keep, "v", role="active", serving=True)
                p.compare("v")
                self.assertEqual(p.nbd(keep, "v").pread(4096, 0), keep.encode() * 4096)
                for site in pair.SITES:
                    p.ctl_ok(site, "resolve", "v", "--keep", keep)
                    self.assertEqual(p.ctl(site, "resolve", "v", "--keep", "b" if keep == "a" else "a").code, 1)

    def test_a_volume_moves_its_collection(self):
        p = self.pair(volumes={"v": "8MiB", "w": "8MiB"})
        p.ctl_ok("a", "collection", "create", "both", "v", "w")
        p.wait_sync("both")
        for asked, name, to in (("b", "w", "b"), ("a", "both", "a"), ("a", "v", "b")):
            self.assertEqual(p.ctl_ok(asked, "switchover", name, "--plan").doc["plan"]["name"], "both")
            done = p.ctl_ok(asked, "switchover", name, "--to", to)
            self.assertIn(f"both is active at {to}", done.doc["results"][0]["text"])
            for volume in "v", "w":
                p.wait_status(to, volume, role="active", serving=True)
                p.nbd(to, volume).pwrite(to.encode() * 4096, 0)
            p.wait_sync("both")
        p.kill9("b")
        p.ctl_ok("a", "failover", "w", "--force=w")
        self.assertEqual(p.nbd("a", "v").pread(4096, 0), b"b" * 4096)

    def test_events_say_why(self):
        p = self.pair(volumes={"v": "8MiB"})
        p.ctl_ok("a", "switchover", "v")
        p.wait_sync("v")
        p.kill9("b")
        p.ctl_ok("a", "failover", "v")

        def told(site):
            return [e["text"] for e in p.ctl_ok(site, "events").doc["events"] if e["kind"] == "role" and e["object"] == "v"]
        texts = told("a")
        self.assertTrue(any("handed over to b" in text for text in texts), texts)
        self.assertTrue(any("failover by an administrator" in text for text in texts), texts)
        p.start("b")
        p.wait_sync("v")
        self.assertTrue(any("alternate here" in text and "when the sites met" in text for text in told("b")), told("b"))
        p.ctl_ok("a", "switchover", "v")
        self.assertTrue(any("handed over by a" in text for text in told("b")), told("b"))


if __name__ == "__main__":
    pair.main()
