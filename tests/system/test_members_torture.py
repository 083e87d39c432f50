#!/usr/bin/python3
"""A volume joins and leaves a collection, round after round, while anything else happens: test_torture.py has the rest.

After each round both sites have the same list, every acknowledged stamp is there, and copies are equal.  20 rounds, without
an end with SYNCREP_LONG=1 (or SYNCREP_ROUNDS).  SYNCREP_SEED reproduces what was tried, but for its timing.
"""
import os
import threading

import pair
import test_torture
from test_torture import BUDGET, SEED, other

ROUNDS = int(os.environ.get("SYNCREP_ROUNDS", 10**9 if pair.LONG else 6 if pair.SANITIZED else 20))


class Members(test_torture.Torture):
    def setUp(self):
        super().setUp()
        for site in "ab":
            self.p.restart(site)  # only of what a test itself has started is the exit code known

    def lists(self, site):
        shown = self.p.ctl(site, "collection", "list")
        return shown.code == 0 and {one["name"]: sorted(v["name"] for v in one["volumes"]) for one in shown.doc["collections"]}

    def change(self, codes=(0, 1, 3, 4)):
        """v3 goes where it is not."""
        site = self.dice.choice("ab")
        verb = "remove" if "v3" in (self.lists(site) or {}).get("grp", ()) else "add"
        result = self.p.ctl(site, "collection", verb, "grp", "v3")
        self.assertIn(result.code, codes, result)

    def beside(self, other_thing):
        admin = threading.Thread(target=self.change)
        admin.start()
        self.doze(0.03)
        try:
            other_thing()
        finally:
            admin.join()

    def settle(self):
        pair.wait_for(lambda: self.lists("a") and self.lists("a") == self.lists("b"), 60, "both sites have the same members")
        super().settle()

    # ---- rounds

    def change_done(self):
        self.change(codes=(0,))

    def change_and_kill(self):
        self.beside(lambda: self.kill(self.dice.choice(("a", "b", "ab"))))

    def change_and_cut(self):
        self.beside(self.round_cut)

    def change_and_drop(self):
        self.beside(self.round_drop)

    def change_and_hold(self):
        self.beside(lambda: self.hold(self.dice.choice("ab"), self.dice.choice((0.05, 0.3, 2 * BUDGET))))

    def change_and_switchover(self):
        self.beside(lambda: self.each(self.dice.choice("ab"), "switchover", "--to", other(self.active), codes=(0, 1, 4)))

    def change_and_pause(self):
        self.beside(lambda: self.each(self.dice.choice("ab"), "pause", codes=(0, 1)))
        self.each(self.dice.choice("ab"), "resume")

    def change_and_change(self):
        self.beside(self.change)

    def change_and_stop(self):
        def stop():
            site = self.dice.choice("ab")
            self.assertEqual(self.p.stop(site), 0)
            self.p.start(site)
        self.beside(stop)

    def change_and_failover(self):
        self.beside(self.round_failover)

    def test_rounds(self):
        kinds = sorted(name for name in dir(self) if name.startswith("change_"))
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
