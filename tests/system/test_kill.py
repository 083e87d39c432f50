#!/usr/bin/python3
"""kill -9 of the alternate, of the active site, of both, again and again under the stamping writer, with CHECK after each."""
import random
import time

import pair
import stamp

ROUNDS = 60 if pair.LONG else 5


class Kill(pair.Case):
    def rounds(self, victims, seed, zero_share=0.0, link=False):
        dice = random.Random(seed)
        p = self.pair(volumes={"v": "16MiB"}, link=link)
        writer = stamp.Stamp(p, "v", seed=seed, zero_share=zero_share).start()
        for round_number in range(ROUNDS):
            writer.wait_acknowledged(dice.randrange(20, 200))
            p.kill9(*victims)
            if victims == "b" and dice.random() < 0.5:
                writer.wait_acknowledged(20)  # goes on alone
            order = list(victims)
            dice.shuffle(order)
            for name in order:
                time.sleep(dice.random() * 0.05)
                p.start(name, wait=False)
            writer.wait_acknowledged(20)
            if dice.random() < 0.3:
                continue  # killed again while it resyncs
            p.wait_sync("v")
            writer.quiesce()
            p.compare("v")
            writer.check()
            writer.start()
        writer.stop()
        p.compare("v")
        writer.check()

    def test_the_alternate(self):
        self.rounds("b", 1)

    def test_the_active(self):
        self.rounds("a", 2)

    def test_both(self):
        self.rounds("ab", 3)

    def test_both_with_zeroes_and_trims(self):
        self.rounds("ab", 4, zero_share=0.3)


if __name__ == "__main__":
    pair.main()
