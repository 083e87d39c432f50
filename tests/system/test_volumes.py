#!/usr/bin/python3
"""Volumes exist at both sites or at neither, whoever is killed when; what was deleted never shines through a new one."""
import os
import random
import subprocess
import threading
import time

import pair

MIB = pair.MIB
ROUNDS = 60 if pair.LONG else 4 if pair.SANITIZED else 10


class Volumes(pair.Case):
    def names(self, p, site):
        return sorted(one["name"] for one in p.ctl_ok(site, "volume", "list").doc["volumes"])

    def settled(self, p):
        """Both sites know the same volumes, all of them live, and hold exactly their images."""
        lists = [p.ctl_ok(site, "volume", "list").doc["volumes"] for site in pair.SITES]
        if any(one["state"] != "live" for volumes in lists for one in volumes):
            return None
        names = [sorted(one["name"] for one in volumes) for volumes in lists]
        images = [sorted(entry[:-4] for entry in os.listdir(p.sites[site].pool) if not entry.startswith("."))
                  for site in pair.SITES]
        return [names[0]] if names[0] == names[1] == images[0] == images[1] else None

    def interrupted(self, p, victim, delay, *command):
        """Runs a command at site a (at b if a is the victim: somebody must live to tell) and kills the victim meanwhile."""
        at = "a" if victim != "a" or delay < 0 else "b"
        client = subprocess.Popen([pair.SYNCREPCTL, "--control", p.sites[at].ctl, "--timeout", "20s", *command],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(abs(delay))
        p.kill9(*victim)
        client.wait(timeout=60)
        for name in victim:
            p.start(name)
        p.ctl_ok("a", "wait", "--for", "connected")

    def test_killed_while_creating_and_deleting(self):
        dice = random.Random(11)
        p = self.pair(volumes={"keep": "1MiB"})
        for round_number in range(ROUNDS):
            victim = dice.choice(("a", "b", "ab"))
            delay = dice.uniform(-0.03, 0.03)
            self.interrupted(p, victim, delay, "volume", "create", "v", "--size", "8MiB",
                             *(["--preallocate"] if dice.random() < 0.5 else []))
            names = pair.wait_for(lambda: self.settled(p), 30, "both sites agree after a creation")[0]
            self.assertIn(names, (["keep"], ["keep", "v"]))
            if "v" not in names:
                p.ctl_ok("a", "volume", "create", "v", "--size", "8MiB")
            active = pair.wait_for(lambda: p.serving("v"), 30, "v is served")
            h = p.nbd(active, "v")
            self.assertEqual(h.pread(8 * MIB, 0), bytes(8 * MIB), "a new volume is empty")
            h.pwrite(b"old data" * (MIB // 8), dice.randrange(7) * MIB)
            h.shutdown()
            p.compare("v")
            victim = dice.choice(("a", "b", "ab"))
            self.interrupted(p, victim, dice.uniform(-0.03, 0.03), "volume", "delete", "v", "--force=v")
            names = pair.wait_for(lambda: self.settled(p), 30, "both sites agree after a deletion")[0]
            if "v" in names:
                p.wait_sync("v")
                p.ctl_ok("b", "volume", "delete", "v", "--force=v")
                pair.wait_for(lambda: self.settled(p) == [["keep"]], 30, "v is gone")
            p.ctl_ok("b", "volume", "create", "v", "--size", "8MiB")
            h = p.nbd("b", "v")
            self.assertEqual(h.pread(8 * MIB, 0), bytes(8 * MIB), "a new volume of an old name is empty")
            h.shutdown()
            p.compare("v")
            p.ctl_ok("a", "volume", "delete", "v", "--force=v")
            pair.wait_for(lambda: self.settled(p) == [["keep"]], 30, "v is gone")
        p.compare("keep")

    def test_a_stale_image_is_refused(self):
        """B38: a file that is there already is never taken for a copy, nor touched."""
        p = self.pair(volumes={"other": "1MiB"})
        for site in pair.SITES:
            stale = os.path.join(p.sites[site].pool, "v.img")
            with open(stale, "wb") as file:
                file.write(b"stale" * 1000)
                file.truncate(8 * MIB)
            refused = p.ctl("a", "volume", "create", "v", "--size", "8MiB")
            self.assertEqual(refused.code, 1, refused)
            self.assertEqual(refused.error["code"], "exists", refused)
            self.assertIn("v.img", refused.error["message"])
            for name in pair.SITES:
                self.assertEqual(self.names(p, name), ["other"])
            with open(stale, "rb") as file:
                self.assertEqual(file.read(5000), b"stale" * 1000)
            other = "b" if site == "a" else "a"
            self.assertFalse(os.path.exists(os.path.join(p.sites[other].pool, "v.img")))
            os.unlink(stale)
        p.ctl_ok("a", "volume", "create", "v", "--size", "8MiB")
        p.compare("v")

    def test_not_without_the_peer(self):
        p = self.pair(volumes={"v": "1MiB"})
        p.kill9("b")
        refused = p.ctl("a", "volume", "create", "w", "--size", "1MiB")
        self.assertEqual((refused.code, refused.error["code"]), (3, "unreachable"), refused)
        self.assertEqual(self.names(p, "a"), ["v"])
        self.assertFalse(os.path.exists(os.path.join(p.sites["a"].pool, "w.img")))
        p.start("b")
        p.ctl_ok("a", "wait", "--for", "connected")
        self.assertEqual(self.names(p, "b"), ["v"])

    def test_deleted_while_in_use_or_syncing(self):
        p = self.pair(volumes={"v": "32MiB"}, set={"both.limits.resync_max_rate": "8MiB"})
        h = p.nbd("a", "v")
        p.ctl_ok("a", "pause", "v", "--wait")
        h.pwrite(os.urandom(16 * MIB), 0)
        p.ctl_ok("a", "resume", "v")
        p.wait_status("a", "v", cause="resyncing")
        for site in pair.SITES:
            refused = p.ctl(site, "volume", "delete", "v", "--force=v")
            self.assertEqual((refused.code, refused.error["code"]), (1, "refused"), refused)
            self.assertIn("disconnect", refused.error["message"])
        h.pwrite(b"still in use".ljust(512), 0)
        h.shutdown()
        pair.wait_for(lambda: p.ctl_ok("a", "volume", "show", "v").doc["volume"]["connections"] == 0, 10, "it is gone")
        self.assertEqual(p.status("a", "v")["sync"], "out-of-sync")
        p.ctl_ok("b", "volume", "delete", "v", "--force=v")
        pair.wait_for(lambda: self.settled(p) == [[]], 30, "v is gone")

    def test_many_at_once(self):
        """Created and deleted from both sites at the same time."""
        p = self.pair()
        failed = []

        def work(site, numbers):
            for number in numbers:
                made = p.ctl(site, "volume", "create", f"v{number}", "--size", "1MiB")
                if made.code != 0:
                    failed.append(made)
                elif number % 3 == 0:
                    gone = p.ctl("b" if site == "a" else "a", "volume", "delete", f"v{number}", f"--force=v{number}")
                    if gone.code != 0:
                        failed.append(gone)
        threads = [threading.Thread(target=work, args=(site, range(first, 24, 4)))
                   for first, site in enumerate(("a", "b", "a", "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failed, [])
        expected = sorted(f"v{number}" for number in range(24) if number % 3)
        pair.wait_for(lambda: self.settled(p) == [expected], 30, "both sites agree")
        for name in expected:
            p.compare(name)

    def test_one_name_from_both_sites(self):
        """Whoever wins: there is one volume of that name, at both sites."""
        p = self.pair()
        for round_number in range(5):
            results = []
            threads = [threading.Thread(target=lambda site=site: results.append(
                p.ctl(site, "volume", "create", "v", "--size", f"{1 + 'ab'.index(site)}MiB"))) for site in pair.SITES]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(sum(result.code == 0 for result in results), 1, results)
            names = pair.wait_for(lambda: self.settled(p), 30, "both sites agree")[0]
            self.assertEqual(names, ["v"], results)
            p.compare("v")
            sizes = {p.ctl_ok(site, "volume", "show", "v").doc["volume"]["size_bytes"] for site in pair.SITES}
            self.assertEqual(len(sizes), 1)
            p.ctl_ok("a", "volume", "delete", "v", "--force=v")
            pair.wait_for(lambda: self.settled(p) == [[]], 30, "v is gone")

    def both_delete(self, p, apart):
        """Deletes v at site a, and `apart` seconds later at b; both must say that it is gone, and it is, at once."""
        p.ctl_ok("a", "volume", "create", "v", "--size", "1MiB")
        p.wait_sync("v")
        results = {}

        def work(site, delay):
            time.sleep(delay)
            results[site] = p.ctl(site, "volume", "delete", "v", "--force=v")
        threads = [threading.Thread(target=work, args=pair_) for pair_ in (("a", 0), ("b", apart))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results.values():
            self.assertIn(result.code, (0, 1), result)
            if result.code == 0:
                self.assertIn("deleted at both sites", result.doc["results"][0]["text"])
            else:  # it was gone when this one was asked
                self.assertEqual(result.error["code"], "not-found", result)
        self.assertIn(0, [result.code for result in results.values()], results)
        pair.wait_for(lambda: self.settled(p) == [[]], 5, "v is gone")

    def test_deleted_at_both_sites_at_once(self):
        """Each question takes a while on its way, so that every order of the four messages is met."""
        p = self.pair(link=True, set={"both.heartbeat.interval": "1s", "both.heartbeat.timeout": "10s"})
        p.link.delay(150)
        for apart in (0, 0.1, 0.25, 0.35, 0.5):
            self.both_delete(p, apart * pair.SLOW)
        p.link.delay(0)
        for round_number in range(10):
            self.both_delete(p, 0)


class Created(pair.Case):
    def test_the_peer_dies_just_after(self):
        """The site that made it goes on alone: nobody can have been made active elsewhere meanwhile."""
        p = self.pair(set={"both.stall_budget": "1s"})
        for name in "r0", "r1", "r2":
            p.ctl_ok("a", "volume", "create", name, "--size", "1M")
            p.kill9("b")
            p.nbd("a", name).pwrite(b"x" * 512, 0)
            p.wait_status("a", name, verdict="exposed", serving=True)
            p.start("b")
            p.compare(name)


class Resized(pair.Case):
    def test_sizes_do_not_change(self):
        """B21: there is no resize: asked for it is refused, and an image of another size is not used."""
        p = self.pair(volumes={"v": "16MiB"})
        self.assertEqual(p.ctl("a", "volume", "resize", "v", "--size", "32MiB").code, 2)
        for size in 8 << 20, 32 << 20:
            p.stop("b")
            os.truncate(p.image("b", "v"), size)
            p.start("b")
            shown = p.wait_status("b", "v", mode="closed")
            self.assertIn(str(16 << 20), shown["detail"])
            p.wait_status("a", "v", serving=True, verdict="exposed")
            handle = p.nbd("a", "v")
            self.assertEqual(handle.get_size(), 16 << 20)
            handle.pwrite(b"x" * 4096, (16 << 20) - 4096)
            refused = p.ctl("b", "replace", "v")
            self.assertIn("move that file away", refused.error["message"])
            p.stop("b")
            os.unlink(p.image("b", "v"))
            p.start("b")
            p.ctl_ok("b", "replace", "v")
            p.compare("v")


class Replaced(pair.Case):
    def test_killed_while_it_is_replaced(self):
        """An image that is gone: whenever the site dies in a replace, it never comes up in sync with an empty copy."""
        p = self.pair(volumes={"v": "16MiB"})
        data = os.urandom(4 << 20)
        p.nbd("a", "v").pwrite(data, 0)
        dice = random.Random(3)
        for number in range(40 if pair.LONG else 8):
            p.stop("b")
            os.unlink(p.image("b", "v"))
            p.start("b")
            p.wait_status("b", "v", mode="closed")
            admin = threading.Thread(target=p.ctl, args=("b", "replace", "v"))
            admin.start()
            time.sleep(dice.random() * 0.01)
            p.kill9("b")
            admin.join()
            p.start("b")
            shown = p.status("b", "v")
            if shown["mode"] == "closed" or shown["cause"] == "alternate-io-error":
                p.replace("b", "v")
            p.compare("v")
            with open(p.image("b", "v"), "rb") as file:
                self.assertEqual(file.read(len(data)), data, f"round {number}")

    def test_an_image_without_a_mark(self):
        """A fresh file, or one that was restored by hand, is not taken for the copy that was here."""
        p = self.pair(volumes={"v": "16MiB"})
        p.nbd("a", "v").pwrite(b"x" * 65536, 0)
        p.stop("b")
        os.unlink(p.image("b", "v"))
        image = os.path.join(p.sites["b"].pool, "v.img")
        with open(image, "wb") as file:
            file.truncate(16 << 20)
        p.start("b")
        shown = p.wait_status("b", "v", mode="closed")
        if "mark" not in shown["detail"]:
            self.skipTest("this file system keeps no extended attributes")
        os.unlink(image)
        p.ctl_ok("b", "replace", "v")
        p.compare("v")

    def test_deleted_by_a_site_that_was_left_behind(self):
        """A forced delete decided without the other site does not take the copy from under its hosts."""
        p = self.pair(volumes={"v": "16MiB"}, link=True, set={"both.stall_budget": "1s"})
        p.nbd("a", "v").shutdown()
        p.link.cut()
        p.wait_status("b", "v", cause="peer-unreachable")
        p.ctl_ok("b", "failover", "v")
        handle = p.nbd("b", "v")
        handle.pwrite(b"y" * 65536, 0)
        p.ctl_ok("a", "volume", "delete", "v", "--force=v")
        p.link.heal()
        pair.wait_for(lambda: "has gone on: it stays" in p.log("b"), 30, "b refuses")
        self.assertEqual(handle.pread(65536, 0), b"y" * 65536)
        handle.shutdown()
        p.ctl_ok("b", "volume", "delete", "v", "--force=v")
        pair.wait_for(lambda: not p.ctl_ok("b", "volume", "list").doc["volumes"], 30, "it is gone")


if __name__ == "__main__":
    pair.main()
