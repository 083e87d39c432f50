#!/usr/bin/python3
"""Everything at once, round after round: stamping writers on several volumes of a collection while daemons are killed and held, the wire is
cut both ways and one way, and the active role moves by switchover, failover and failback.

After each round every acknowledged stamp is there and, once in sync, both copies are equal.  100 rounds, without an end with
SYNCREP_LONG=1 (until it is stopped, or SYNCREP_ROUNDS).  SYNCREP_SEED and the number of the round reproduce what was tried.
"""
import os
import random
import threading
import time

import pair
import stamp

VOLUMES = ("v1", "v2", "v3")
ROUNDS = int(os.environ.get("SYNCREP_ROUNDS", 10**9 if pair.LONG else 20 if pair.SANITIZED else 100))
SEED = int(os.environ.get("SYNCREP_SEED", 7))
BUDGET = 1.0


def other(site):
    return "b" if site == "a" else "a"


class Torture(pair.Case):
    def setUp(self):
        self.p = self.pair(volumes={name: "8MiB" for name in VOLUMES}, link=True,
                           set={"both.stall_budget": f"{int(BUDGET * 1000 * pair.SLOW)}ms", "both.retry.min": "20ms",
                                "both.retry.max": "200ms", "both.heartbeat.interval": "100ms",
                                "both.heartbeat.timeout": f"{int(600 * pair.SLOW)}ms"})
        self.dice = random.Random(SEED)
        self.active = "a"
        self.turn = self.sure = False
        self.writers = [stamp.Stamp(self.p, name, site=self.serving, connections=2, depth=4, zero_share=0.1, seed=SEED + i,
                                    rate=400) for i, name in enumerate(VOLUMES)]
        self.p.ctl_ok("a", "collection", "create", "grp", *VOLUMES[:2])
        self.names = ("grp", VOLUMES[2])  # one with several members, and one that moves apart from it

    def serving(self):
        """Where hosts go: they try one site, and the other one when they are refused."""
        self.turn = not self.turn
        return self.active if self.turn or self.sure else other(self.active)

    # ---- helpers

    def acknowledged(self, more, timeout=60):
        for writer in self.writers:
            writer.wait_acknowledged(more, timeout)

    def each(self, site, *words, codes=(0,)):
        """The verb for every collection; words: the verb and what follows the name."""
        for name in self.names:
            result = self.p.ctl(site, words[0], name, *words[1:])
            self.assertIn(result.code, codes, result)

    def move(self, site, to):
        """A switchover of every collection.  On a busy machine a heartbeat may be late, and a session end, just now."""
        for name in self.names:
            def moved():
                result = self.p.ctl(site, "switchover", name, "--to", to)
                if result.code == 1 and "in sync" in result.error["message"]:
                    return False
                self.assertEqual(result.code, 0, result)
                return True
            pair.wait_for(moved, 60, f"{name} is switched over")

    def doze(self, most):
        time.sleep(self.dice.random() * most)  # the moment of the fault is what is varied

    def now_active(self, timeout=60):
        """Waits until all are served, brings them together at one site, and says which."""
        def served():
            where = {name: self.p.serving(name) for name in self.names}
            return all(where.values()) and where
        where = pair.wait_for(served, timeout, "all volumes are served")
        self.active = where[self.names[0]]
        for name, site in where.items():
            if site != self.active:
                self.p.ctl_ok(site, "failback", name, "--to", self.active, "--timeout", "60s", timeout=120)
        return self.active

    def settle(self):
        """In sync again, nothing acknowledged lost, both copies equal."""
        self.now_active()
        self.acknowledged(5)
        for name in VOLUMES:
            self.p.wait_sync(name)
        for writer in self.writers:
            writer.quiesce()
        for name, writer in zip(VOLUMES, self.writers):
            self.p.compare(name)
            writer.check(self.active)
        for writer in self.writers:
            writer.start()

    # ---- rounds

    def kill(self, sites):
        self.doze(0.1)
        self.p.kill9(*sites)
        self.doze(0.3 * BUDGET if self.dice.random() < 0.7 else 2 * BUDGET)
        order = list(sites)
        self.dice.shuffle(order)
        for site in order:
            self.p.start(site, wait=False)
            self.doze(0.05)

    def round_kill_active(self):
        self.kill(self.active)

    def round_kill_alternate(self):
        self.kill(other(self.active))

    def round_kill_both(self):
        self.kill("ab")

    def hold(self, site, seconds):
        self.doze(0.05)
        self.p.hold(site)
        time.sleep(seconds * pair.SLOW)
        self.p.release(site)

    def round_hold_alternate(self):
        self.hold(other(self.active), self.dice.choice((0.1, 0.5, 2 * BUDGET)))

    def round_hold_active(self):
        self.hold(self.active, self.dice.choice((0.1, 0.5, 2 * BUDGET)))

    def round_cut(self):
        self.p.link.cut(self.dice.choice(("both", "ab", "ba")))
        self.doze(0.3 if self.dice.random() < 0.6 else 2 * BUDGET)
        self.p.link.heal()

    def round_drop(self):
        self.doze(0.05)
        self.p.link.drop()

    def round_pause(self):
        self.each(self.dice.choice("ab"), "pause")
        self.acknowledged(5)
        if self.dice.random() < 0.3:
            self.kill(self.dice.choice("ab"))
            pair.wait_for(lambda: self.p.ctl("a", "wait", "--for", "connected", "--timeout", "1s").code == 0, 60, "connected")
        self.each(self.dice.choice("ab"), "resume")

    def round_switchover(self):
        self.move(self.dice.choice("ab"), other(self.active))
        self.active = other(self.active)

    def disturbed(self, disturb):
        """A switchover into which something comes: it happens or is undone, at the latest when the sites meet again."""
        admin = threading.Thread(target=self.each, args=("ab"[self.dice.randrange(2)], "switchover", "--to", other(self.active)),
                                 kwargs={"codes": (0, 1, 3, 4)})
        admin.start()
        self.doze(0.03)
        disturb()
        admin.join()

    def round_switchover_killed(self):
        self.disturbed(lambda: self.kill(self.dice.choice(("a", "b", "ab"))))

    def round_switchover_cut(self):
        self.disturbed(self.round_cut)

    def round_switchover_held(self):
        self.disturbed(lambda: self.hold(self.dice.choice("ab"), self.dice.choice((0.05, 1.5 * BUDGET))))

    def round_switchover_back_and_forth(self):
        for _ in range(3):
            self.each(self.dice.choice("ab"), "switchover", "--to", other(self.active), codes=(0, 1))
            self.now_active()

    def round_failover(self):
        """The active site is lost while in sync; the old one returns and follows; sometimes the role goes back."""
        lost, here = self.active, other(self.active)
        self.doze(0.1)
        self.p.kill9(lost)
        self.each(here, "failover")
        self.active = here
        if self.dice.random() < 0.7:
            self.acknowledged(5)
        self.p.start(lost)
        if self.dice.random() < 0.5:
            self.each(self.dice.choice("ab"), "failback", "--to", lost, "--timeout", "60s")

    def round_failover_of_the_held(self):
        """It only seemed to be lost: on contact it stops serving, and what it had not acknowledged is not missed."""
        lost, here = self.active, other(self.active)
        for writer in self.writers:
            writer.stop()  # with its connections: a held site would never close them
        self.p.hold(lost)
        self.each(here, "failover")
        self.active, self.sure = here, True
        for writer in self.writers:
            writer.start()
        self.acknowledged(5)
        self.p.release(lost)
        for name in self.names:  # until then it knows nothing of the failover, and hosts must keep away
            self.p.wait_status(lost, name, serving=False, role="alternate")
        self.sure = False

    def round_failover_beside(self):
        """Failover while the active site serves: refused as long as it answers."""
        self.each(other(self.active), "failover", codes=(1,))

    def test_rounds(self):
        kinds = sorted(name for name in dir(self) if name.startswith("round_"))
        for writer in self.writers:
            writer.start()
        for number in range(ROUNDS):
            kind = kinds[number] if number < len(kinds) else self.dice.choice(kinds)
            try:
                self.acknowledged(3)
                getattr(self, kind)()
                self.settle()
            except BaseException as error:
                raise pair.Failure(f"round {number} ({kind}), seed {SEED}: {error}") from error
        for writer in self.writers:
            writer.stop()
            self.assertFalse(writer.errors, writer.errors)


if __name__ == "__main__":
    pair.main()
