#!/usr/bin/python3
"""Members of collections change, and one message is lost: whoever dies or is made active then, both sites end with one list.

The wire is cut one way at a time, so that each test stands at one step of the protocol (daemon/members.c).
"""
import os
import threading

import pair

NAMES = ("v1", "v2", "v3")


class Members(pair.Case):
    def lists(self, p, site):
        doc = p.ctl_ok(site, "collection", "list").doc
        return {one["name"]: sorted(v["name"] for v in one["volumes"]) for one in doc["collections"]}

    def agree(self, p, timeout=30):
        """Waits until both sites have the same list, and returns it."""
        return pair.wait_for(lambda: self.lists(p, "a") == self.lists(p, "b") and self.lists(p, "a"), timeout,
                             "both sites have the same members")

    def made(self, *members):
        p = self.pair(volumes={name: "8MiB" for name in NAMES}, link=True, set={"both.stall_budget": "1s"})
        p.ctl_ok("a", "collection", "create", "grp", *members)
        for name in NAMES:
            p.wait_sync(name)
            p.nbd("a", name).pwrite(name.encode() * 2048, 0)
        return p

    def begin(self, p, *words):
        """b has promised to follow; nothing that it says is heard at a."""
        seen = p.log("b").count("may move to collection")
        p.link.cut("ba")
        admin = threading.Thread(target=p.ctl, args=("a", "collection", *words))
        admin.start()
        self.addCleanup(admin.join)
        pair.wait_for(lambda: p.log("b").count("may move to collection") > seen, 10, "b has promised")

    def decide(self, p, name, collection):
        """a has decided; b does not hear of it."""
        p.link.cut("ab")
        p.link.heal("ba")
        pair.wait_for(lambda: name in self.lists(p, "a").get(collection, ()), 10, "a has decided")
        self.assertNotIn(name, self.lists(p, "b").get(collection, ()))

    def follow(self, p, name, collection):
        """b has followed; a does not hear of it."""
        p.link.cut("ba")
        p.link.heal("ab")
        pair.wait_for(lambda: name in self.lists(p, "b").get(collection, ()), 10, "b has followed")

    def check(self, p, lists):
        """In the end: one list, copies equal, and what was written is there."""
        p.link.heal()
        self.assertEqual(self.agree(p), lists)
        for name in NAMES:
            p.wait_sync(name)
            self.assertEqual(p.nbd(p.serving(name), name).pread(4096, 0), name.encode() * 2048)
            p.compare(name)

    def lose(self, p, site):
        """What is on the wire is lost with it."""
        p.kill9(site)
        p.link.drop()
        p.link.heal()

    def kill(self, p, site):
        self.lose(p, site)
        p.start(site)

    ADD = {"grp": ["v1", "v2"], "v3": ["v3"]}, {"grp": ["v1", "v2", "v3"]}
    REMOVE = {"grp": ["v1", "v2", "v3"]}, {"grp": ["v1", "v2"], "v3": ["v3"]}

    def each(self):
        """Both kinds of change: to a collection that exists, to a new one."""
        for words, name, collection, lists in ((("add", "grp", "v3"), "v3", "grp", self.ADD),
                                               (("remove", "grp", "v3"), "v3", "v3", self.REMOVE)):
            p = self.made(*lists[0]["grp"])
            yield p, words, name, collection, lists
            p.close()

    def test_promised_and_one_dies(self):
        for p, words, _, _, lists in self.each():
            for site in "ab":
                self.begin(p, *words)
                self.kill(p, site)
                self.check(p, lists[0])

    def test_promised_and_cut(self):
        for p, words, _, _, lists in self.each():
            self.begin(p, *words)
            p.link.drop()
            self.check(p, lists[0])

    def test_decided_and_one_dies(self):
        for site in "ab":
            for p, words, name, collection, lists in self.each():
                self.begin(p, *words)
                self.decide(p, name, collection)
                self.kill(p, site)
                self.check(p, lists[1])

    def test_followed_and_one_dies(self):
        for site in "ab":
            for p, words, name, collection, lists in self.each():
                self.begin(p, *words)
                self.decide(p, name, collection)
                self.follow(p, name, collection)
                self.kill(p, site)
                self.check(p, lists[1])

    def test_promised_and_failed_over(self):
        """The active site is lost before it decides; the other one goes on with the old list."""
        for p, words, name, _, lists in self.each():
            self.begin(p, *words)
            self.lose(p, "a")
            for member in "v1", "v3":
                p.ctl_ok("b", "failover", member)
            p.start("a")
            self.check(p, lists[0])
            self.assertEqual(p.serving(name), "b")

    def test_decided_and_failed_over(self):
        """The active site is lost after it decided; what the other one, which never heard of it, does then is what counts."""
        for p, words, name, collection, lists in self.each():
            self.begin(p, *words)
            self.decide(p, name, collection)
            self.lose(p, "a")
            for member in "v1", "v3":
                p.ctl_ok("b", "failover", member)
                p.nbd("b", member).pwrite(member.encode() * 2048, 4096)
            p.start("a")
            self.check(p, lists[0])
            self.assertEqual(p.serving(name), "b")
            self.assertEqual(p.nbd("b", name).pread(4096, 4096), name.encode() * 2048)

    def restarted(self, p, site):
        p.restart(site)  # only of what a test itself has started is the exit code known
        for name in NAMES:
            p.wait_sync(name)

    def test_promised_and_stopped(self):
        """A clean stop does not wait for the other site's answer, and changes nothing."""
        for site in "ab":
            for p, words, _, _, lists in self.each():
                self.restarted(p, site)
                self.begin(p, *words)
                self.assertEqual(p.stop(site), 0)
                p.link.drop()
                p.link.heal()
                p.start(site)
                self.check(p, lists[0])

    def test_decided_and_stopped(self):
        for site in "ab":
            for p, words, name, collection, lists in self.each():
                self.restarted(p, site)
                self.begin(p, *words)
                self.decide(p, name, collection)
                self.assertEqual(p.stop(site), 0)
                p.link.drop()
                p.link.heal()
                p.start(site)
                self.check(p, lists[1])

    def test_the_other_site_hangs(self):
        """Hosts are served meanwhile, the answer comes with the end of the link, and nothing has changed."""
        for p, words, name, _, lists in self.each():
            p.hold("b")
            answers = []
            admin = threading.Thread(target=lambda: answers.append(p.ctl("a", "collection", *words)))
            admin.start()
            p.nbd("a", name).pread(4096, 0)
            admin.join(30 * pair.SLOW)
            self.assertEqual([answer.code for answer in answers], [3])
            p.release("b")
            self.check(p, lists[0])

    def test_decided_and_both_go_on(self):
        """Neither list is lost, and neither are writes: with one list again it is a conflict like any other."""
        for p, words, name, collection, lists in self.each():
            self.begin(p, *words)
            self.decide(p, name, collection)
            p.link.cut()
            p.nbd("a", name).pwrite(b"a" * 4096, 8192)  # goes on alone
            for member in "v1", "v3":
                p.ctl_ok("b", "failover", member)
            p.nbd("b", name).pwrite(b"b" * 4096, 8192)
            p.link.drop()
            p.link.heal()
            self.assertEqual(self.agree(p), lists[0])
            for site in "ab":
                p.wait_status(site, name, cause="conflict")
            for site in "ab":
                with open(p.image(site, name), "rb") as image:
                    image.seek(8192)
                    self.assertEqual(image.read(4096), site.encode() * 4096)
            p.ctl_ok("a", "resolve", name, "--keep", "b")
            p.wait_sync(name)
            self.assertEqual(p.nbd("b", name).pread(4096, 8192), b"b" * 4096)
            self.check(p, lists[0])

    def test_decided_and_only_the_other_goes_on(self):
        """Nothing was written at the site that decided: the other one leads, without anybody's help."""
        for p, words, name, collection, lists in self.each():
            self.begin(p, *words)
            self.decide(p, name, collection)
            p.link.cut()
            for site in "ab":  # what is not shown at first is shown when it lasts
                p.wait_status(site, "v1", verdict="exposed")
            for member in "v1", "v3":
                p.ctl_ok("b", "failover", member)
            p.nbd("b", name).pwrite(b"b" * 4096, 8192)
            p.link.drop()
            self.check(p, lists[0])
            self.assertEqual(p.nbd("b", name).pread(4096, 8192), b"b" * 4096)

    def test_decided_and_a_copy_is_gone(self):
        """The site that is to follow has lost the volume's copy: its list follows all the same, status names the volume,
        and replace makes that one copy anew."""
        for p, words, name, collection, lists in self.each():
            self.begin(p, *words)
            self.decide(p, name, collection)
            self.lose(p, "b")
            os.rename(p.image("b", name), p.image("b", name) + ".gone")
            others = {member: os.stat(p.image("b", member)).st_ino for member in NAMES if member != name}
            p.start("b")
            self.assertEqual(self.agree(p), lists[1])
            shown = p.wait_status("b", name, verdict="offline")
            self.assertIn(name, shown["detail"])
            p.ctl_ok("b", "replace", collection)
            self.check(p, lists[1])
            self.assertEqual({member: os.stat(p.image("b", member)).st_ino for member in others}, others)


if __name__ == "__main__":
    pair.main()
