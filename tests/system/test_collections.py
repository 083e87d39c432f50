#!/usr/bin/python3
"""Collections of several volumes: one role, one state; members come and go under load and in the middle of faults."""
import os
import random
import threading
import time

import nbd

import pair
import stamp

LOOPS = 60 if pair.LONG else 10
NAMES = ("v1", "v2", "v3", "v4", "v5")


class Collections(pair.Case):
    def members(self, p, site, name):
        shown = p.ctl(site, "collection", "show", name)
        return sorted(v["name"] for v in shown.doc["collection"]["volumes"]) if shown.code == 0 else None

    def lists(self, p, site):
        """Every collection of the site with its members."""
        doc = p.ctl_ok(site, "collection", "list").doc
        return {one["name"]: sorted(v["name"] for v in one["volumes"]) for one in doc["collections"]}

    def agree(self, p):
        lists = self.lists(p, "a")
        return lists == self.lists(p, "b") and lists

    def group(self, p, names=NAMES):
        p.ctl_ok("a", "collection", "create", "grp", *names)
        for site in "a", "b":
            pair.wait_for(lambda: self.members(p, site, "grp") == sorted(names), 20, f"all are members at {site}")
        p.wait_sync("grp")

    def test_verbs(self):
        p = self.pair(volumes={name: "8MiB" for name in NAMES})
        p.ctl_ok("b", "collection", "create", "grp", "v1", "v2")  # at the alternate: the active site does it
        p.wait_sync("grp")
        self.assertEqual(self.agree(p), {"grp": ["v1", "v2"], "v3": ["v3"], "v4": ["v4"], "v5": ["v5"]})
        p.ctl_ok("a", "collection", "create", "grp", "v1")  # again
        p.ctl_ok("a", "collection", "add", "grp", "v3")
        p.ctl_ok("b", "collection", "add", "grp", "v3")
        p.wait_sync("v3")
        self.assertEqual(p.status("a", "v3")["name"], "grp")
        for site, words, code in (("a", ("create", "grp", "v4"), 1), ("a", ("create", "v5", "v4"), 1),
                                  ("a", ("create", "new", "nix"), 1), ("b", ("add", "nix", "v4"), 1),
                                  ("a", ("add", "v5", "v4"), 1), ("b", ("add", "v5", "v4"), 1),
                                  ("a", ("add", "grp", "nix"), 1), ("a", ("delete", "nix"), 1), ("a", ("delete", "v5"), 1),
                                  ("a", ("create", "a b", "v4"), 2), ("a", ("create", "new"), 2)):
            self.assertEqual(p.ctl(site, "collection", *words).code, code, words)
        refused = p.ctl("a", "volume", "delete", "v3", "--force=v3")
        self.assertEqual(refused.code, 1)
        self.assertIn("collection remove grp v3", refused.error["hint"])
        self.assertEqual(p.ctl("a", "volume", "create", "grp", "--size", "1M").code, 1)
        p.ctl_ok("b", "collection", "remove", "grp", "v2")
        p.ctl_ok("b", "collection", "remove", "grp", "v2")
        p.wait_sync("v2")
        self.assertEqual(self.agree(p), {"grp": ["v1", "v3"], "v2": ["v2"], "v4": ["v4"], "v5": ["v5"]})
        p.restart("a")
        p.restart("b")
        p.wait_sync("grp")
        self.assertEqual(self.agree(p), {"grp": ["v1", "v3"], "v2": ["v2"], "v4": ["v4"], "v5": ["v5"]})
        p.ctl_ok("a", "collection", "delete", "grp")
        for name in NAMES:
            p.compare(name)
        self.assertEqual(self.agree(p), {name: [name] for name in NAMES})
        p.ctl_ok("a", "volume", "delete", "v3", "--force=v3")

    def test_a_slow_disk_undoes_it(self):
        """A write that takes longer than members may wait: all stays as it was, and the write is answered."""
        p = self.pair(volumes={name: "8MiB" for name in NAMES[:2]}, faults=True, set={"both.stall_budget": "1s"})
        self.group(p, NAMES[:1])
        p.wait_sync("v2")
        handles = {name: p.nbd("a", name) for name in NAMES[:2]}
        p.fault(p.rule("a", "v2", f"op=write delay_ms={int(6000 * pair.SLOW)}"))
        slow = handles["v2"].aio_pwrite(nbd.Buffer.from_bytearray(bytearray(b"b" * 4096)), 4096)
        pair.wait_for(lambda: p.status("a", "v2")["requests"] == 1, 10, "the write is under way")
        answers = []
        admin = threading.Thread(target=lambda: answers.append(p.ctl("b", "collection", "add", "grp", "v2")))
        admin.start()
        handles["v1"].pwrite(b"c" * 4096, 0)  # held back meanwhile
        admin.join()
        self.assertIn(answers[0].code, (1, 4))
        pair.wait_for(lambda: handles["v2"].poll(100) or handles["v2"].aio_command_completed(slow), 30, "the slow write is answered")
        p.fault()
        self.assertEqual(self.agree(p), {"grp": ["v1"], "v2": ["v2"]})
        p.wait_sync("v2")
        p.wait_sync("grp")
        p.ctl_ok("a", "collection", "add", "grp", "v2")
        self.assertEqual(handles["v2"].pread(4096, 4096), b"b" * 4096)
        p.compare("v2")

    def test_it_alarms_nobody(self):
        """What monitoring sees of a change of members is the change, not an outage."""
        p = self.pair(volumes={name: "8MiB" for name in NAMES[:2]})
        self.group(p, NAMES[:1])
        p.wait_sync("v2")
        last = {site: p.ctl_ok(site, "events").doc["events"][-1]["sequence"] for site in "ab"}
        stop, alarms = threading.Event(), []

        def watch(site):
            while not stop.is_set():
                for one in p.ctl_ok(site, "status").doc["collections"]:
                    if one["verdict"] != "protected" or any(volume["state"] != "live" for volume in one["volumes"]):
                        alarms.append((site, one["name"], one["verdict"], one["cause"], one["detail"]))
        watchers = [threading.Thread(target=watch, args=(site,)) for site in "ab"]
        for watcher in watchers:
            watcher.start()
        for number in range(5):
            p.ctl_ok("ab"[number % 2], "collection", "add", "grp", "v2")
            p.ctl_ok("ab"[number % 2], "collection", "remove", "grp", "v2")
        stop.set()
        for watcher in watchers:
            watcher.join()
        for site in "ab":
            events = [e for e in p.ctl_ok(site, "events").doc["events"] if e["sequence"] > last[site]]
            alarms += [(site, e["object"], e["text"]) for e in events if e["level"] in ("error", "warning")]
            self.assertEqual(sum(e["kind"] == "collection" for e in events), 10)
        self.assertEqual(alarms, [])

    def test_under_load(self):
        """Volumes join and leave while hosts write: no error, no request lost, both copies equal."""
        p = self.pair(volumes={name: "16MiB" for name in NAMES})
        writers = [stamp.Stamp(p, name, connections=2, depth=4, seed=i, zero_share=0.1).start() for i, name in enumerate(NAMES)]
        for writer in writers:
            writer.wait_acknowledged(50)
        p.ctl_ok("a", "collection", "create", "grp", "v1", "v2", "v3")
        for _ in range(3):
            for verb, name in (("add", "v4"), ("add", "v5"), ("remove", "v2"), ("add", "v2"), ("remove", "v4"), ("remove", "v5")):
                def done():
                    result = p.ctl("ab"[self.turn % 2], "collection", verb, "grp", name)
                    self.turn += 1
                    if result.code == 1 and "not in sync" in result.error["message"]:
                        return False
                    if result.code != 0:
                        raise pair.Failure(repr(result))
                    return True
                pair.wait_for(done, 30, f"{verb} {name}")
        for writer in writers:
            writer.wait_acknowledged(50)
            writer.stop()
            self.assertFalse(writer.errors, writer.errors)
            self.assertLess(writer.latency_max(), 4 * pair.SLOW)
        for name, writer in zip(NAMES, writers):
            p.compare(name)
            writer.check()

    turn = 0

    def test_one_point_of_the_write_order(self):
        """While paused the alternate holds an image of all members at one moment: never a later write without an earlier."""
        p = self.pair(volumes={name: "8MiB" for name in NAMES})
        self.group(p)
        handles = [p.nbd("a", name) for name in NAMES]
        stop, counter = threading.Event(), [0]

        def write():
            while not stop.is_set():
                counter[0] += 1
                for handle in handles:  # each only after the one before was acknowledged
                    handle.pwrite(counter[0].to_bytes(8, "little") * 512, 0)
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(8):
                pair.wait_for(lambda: counter[0] > number * 20, 30, "it writes")
                p.ctl_ok("ab"[number % 2], "pause", NAMES[number % 5])
                pair.wait_for(lambda: all(p.status(site, "grp")["sync"] == "paused" for site in "ab"), 20, "both are paused")
                seen = []
                for name in NAMES:
                    with open(p.image("b", name), "rb") as file:
                        seen.append(int.from_bytes(file.read(8), "little"))
                self.assertEqual(seen, sorted(seen, reverse=True))
                self.assertLessEqual(seen[0] - seen[-1], 1)
                p.ctl_ok("a", "resume", "grp")
                p.wait_sync("grp")
        finally:
            stop.set()
            writer.join()
        for name in NAMES:
            p.compare(name)

    def test_the_member_that_causes_it(self):
        p = self.pair(volumes={name: "8MiB" for name in NAMES[:3]}, faults=True)
        self.group(p, NAMES[:3])
        p.fault(p.rule("b", "v2", "op=write error=EIO"))
        handles = {name: p.nbd("a", name) for name in NAMES[:3]}
        for handle in handles.values():
            handle.pwrite(b"x" * 4096, 0)
        shown = p.wait_status("b", "grp", cause="alternate-io-error")
        self.assertIn("v2", shown["detail"])
        p.wait_status("a", "v3", verdict="exposed", serving=True)  # the whole collection
        p.fault()
        for site in "ba":  # by then neither knows it from having seen it
            p.restart(site)
            p.ctl_ok("a", "wait", "--for", "connected", "--timeout", "30s")
            for where in "ab":
                self.assertIn("copy of v2 at", p.wait_status(where, "grp", cause="alternate-io-error")["detail"])
            states = {v["name"]: v["state"] for v in p.status("b", "grp")["volumes"]}
            self.assertEqual(states, {"v1": "live", "v2": "failed", "v3": "live"})
        p.replace("b", "grp")
        for name in NAMES[:3]:
            p.compare(name)

    def test_refused_when_it_would_break_something(self):
        """B45: while paused, resyncing, or with the roles the other way round."""
        p = self.pair(volumes={name: "32MiB" for name in NAMES[:3]})
        self.group(p, NAMES[:2])
        p.ctl_ok("a", "pause", "v3")
        self.assertEqual(p.ctl("a", "collection", "add", "grp", "v3").code, 1)
        p.nbd("a", "v3").pwrite(os.urandom(16 << 20), 0)
        for site in "a", "b":
            p.ctl_ok(site, "tune", "resync_max_rate=4MiB")
        p.ctl_ok("a", "resume", "v3")
        p.wait_status("a", "v3", cause="resyncing")
        self.assertEqual(p.ctl("b", "collection", "add", "grp", "v3").code, 1)
        for site in "a", "b":
            p.ctl_ok(site, "tune", "resync_max_rate=0")
        p.wait_sync("v3")
        p.ctl_ok("a", "switchover", "v3", "--to", "b")
        p.wait_sync("v3")
        for site in "a", "b":
            self.assertEqual(p.ctl(site, "collection", "add", "grp", "v3").code, 1)
        p.kill9("b")
        self.assertIn(p.ctl("a", "collection", "remove", "grp", "v1").code, (1, 3))
        p.start("b")
        p.wait_sync("v3")
        p.ctl_ok("a", "switchover", "v3", "--to", "a")
        p.wait_sync("v3")
        p.ctl_ok("a", "collection", "add", "grp", "v3")
        p.wait_sync("grp")
        self.assertEqual(self.agree(p), {"grp": ["v1", "v2", "v3"]})

    def test_roles_move_as_a_whole(self):
        p = self.pair(volumes={name: "8MiB" for name in NAMES[:3]}, set={"both.stall_budget": "2s"})
        self.group(p, NAMES[:3])
        p.ctl_ok("a", "switchover", "v2", "--to", "b")
        for name in NAMES[:3]:
            p.wait_status("b", name, role="active", serving=True)
            p.nbd("b", name).pwrite(name.encode() * 512, 0)
        p.wait_sync("grp")
        p.kill9("b")
        p.ctl_ok("a", "failover", "grp")
        for name in NAMES[:3]:
            self.assertEqual(p.nbd("a", name).pread(2, 0), name.encode())
        p.start("b")
        for name in NAMES[:3]:
            p.compare(name)

    def test_killed_in_the_middle(self):
        """Whatever dies at whatever moment: in the end both sites have the same list, and no acknowledged stamp is missing."""
        p = self.pair(volumes={name: "8MiB" for name in NAMES[:3]}, set={"both.stall_budget": "1s"})
        dice = random.Random(11)
        p.ctl_ok("a", "collection", "create", "grp", "v1")
        p.wait_sync("grp")
        writers = [stamp.Stamp(p, name, connections=2, rate=300, seed=i).start() for i, name in enumerate(NAMES[:3])]
        for number in range(LOOPS):
            for writer in writers:
                writer.wait_acknowledged(5)
            name = dice.choice(NAMES[1:3])
            verb = "remove" if name in self.lists(p, "a")["grp"] else "add"
            admin = threading.Thread(target=p.ctl, args=(dice.choice("ab"), "collection", verb, "grp", name))
            admin.start()
            time.sleep(dice.random() * 0.03)
            dead = dice.choice(("a", "b", "ab"))
            p.kill9(*dead)
            for site in dead:
                p.start(site)
            admin.join()
            for writer in writers:
                writer.wait_acknowledged(5, 60)
            lists = pair.wait_for(lambda: self.agree(p), 30, f"round {number}: both sites have the same members")
            for collection in lists:
                p.wait_sync(collection)
        for writer in writers:
            writer.stop()
        for name, writer in zip(NAMES, writers):
            p.compare(name)
            writer.check()

    def test_taken_out_and_deleted_while_the_other_site_is_away(self):
        """The other site may know neither: it follows both, and its collection goes on."""
        p = self.pair(volumes={"v1": "8MiB"}, set={"both.stall_budget": "1s"})
        p.ctl_ok("a", "collection", "create", "grp", "v1")
        dice, decided = random.Random(5), 0
        for number in range(4 * LOOPS):
            name = f"w{number}"
            p.ctl_ok("a", "volume", "create", name, "--size", "4MiB", "--wait=30s")
            p.wait_sync("grp")
            p.ctl_ok("a", "collection", "add", "grp", name)
            admin = threading.Thread(target=p.ctl, args=("a", "collection", "remove", "grp", name))
            admin.start()
            time.sleep(dice.random() * 0.03)
            p.kill9("b")
            admin.join()
            if name not in self.lists(p, "a")["grp"]:
                p.ctl_ok("a", "volume", "delete", name, f"--force={name}")
                decided += 1
            p.start("b")
            lists = pair.wait_for(lambda: self.agree(p), 30, f"round {number}: both sites have the same members")
            p.wait_sync("grp")
            if name in lists["grp"]:
                p.ctl_ok("a", "collection", "remove", "grp", name)
            if name in self.lists(p, "a"):
                p.wait_sync(name)
                p.ctl_ok("a", "volume", "delete", name, f"--force={name}")
            pair.wait_for(lambda: self.agree(p) == {"grp": ["v1"]}, 30, "it is gone at both sites")
            if decided >= 3 and not pair.LONG:
                break
        p.compare("v1")


if __name__ == "__main__":
    pair.main()
