#!/usr/bin/python3
"""Switchover: hosts see a pause and never an error; the role moves as a whole, or not at all."""
import threading

import pair
import stamp


def plan(p, site, *args):
    return p.ctl(site, *args, "--plan").doc["plan"]


class Switchover(pair.Case):
    def roles(self, p, active, volume="v"):
        other = "b" if active == "a" else "a"
        p.wait_status(active, volume, role="active", serving=True)
        p.wait_status(other, volume, role="alternate", serving=False)

    def test_there_and_back_under_load(self):
        p = self.pair(volumes={"v": "64MiB"})
        writer = stamp.Stamp(p, "v", site=lambda: p.serving("v"), connections=4, depth=8, zero_share=0.1).start()
        writer.wait_acknowledged(200)
        for round_ in range(6):
            here, to = ("a", "b") if round_ % 2 == 0 else ("b", "a")
            shown = plan(p, here, "switchover", "v")
            self.assertTrue(shown["possible"], shown)
            self.assertGreater(shown["pause_estimate_us"], 0)
            asked = "ab"[round_ // 2 % 2]  # from either site
            done = p.ctl_ok(asked, "switchover", "v", "--to", to)
            self.assertRegex(done.doc["results"][0]["text"], r"hosts waited \d+ ms")
            self.roles(p, to)
            again = p.ctl_ok(asked, "switchover", "v", "--to", to)
            self.assertIn("already", again.doc["results"][0]["text"])
            p.wait_sync("v")
            writer.wait_acknowledged(200)
        writer.stop()
        self.assertFalse(writer.errors, writer.errors)
        p.compare("v")
        writer.check()

    def test_connections_end_cleanly(self):
        """Every request that was sent before is answered without an error, then the connection closes."""
        p = self.pair(volumes={"v": "64MiB"}, link=True)
        h = p.nbd("a", "v")
        p.link.delay(100)  # so that none is answered before the switchover begins
        cookies = [h.aio_pwrite(pair.nbd.Buffer.from_bytearray(bytearray([i]) * 16384), i * 65536) for i in range(64)]
        while h.aio_get_direction() & pair.nbd.AIO_DIRECTION_WRITE:
            h.poll(100)
        results = []
        admin = threading.Thread(target=lambda: results.append(p.ctl("b", "switchover", "v")))
        admin.start()
        left = set(cookies)
        while left:
            h.poll(100)
            left -= {cookie for cookie in left if h.aio_command_completed(cookie)}  # raises on an error
        pair.wait_for(lambda: h.aio_is_dead() or h.aio_is_closed() or h.poll(100) < -1, 20, "the connection closes")
        admin.join()
        self.assertEqual(results[0].code, 0, results)
        other = p.nbd("b", "v")
        for i in range(64):
            self.assertEqual(other.pread(16384, i * 65536), bytes([i]) * 16384)
        self.assertIsNone(p.try_nbd("a", "v"))
        p.compare("v")

    def test_a_queue_of_more_than_the_peer_has_room_for(self):
        """Requests that queued are forwarded as the peer frees memory; the link never fills up with them."""
        p = self.pair(volumes={"v": "128MiB"}, link=True,
                      set={"both.limits.buffer_memory": "256MiB", "both.limits.peer_window": "32MiB"})
        hosts = [p.nbd("a", "v") for _ in range(8)]
        blocks = [bytes([1 + i]) * (1 << 20) for i in range(128)]
        p.link.delay(int(400 * pair.SLOW))  # the peer's READY takes that long, twice
        results = []
        admin = threading.Thread(target=lambda: results.append(p.ctl("a", "switchover", "v")))
        admin.start()
        pair.wait_for(lambda: "switchover to b begins" in p.log("a"), 20, "the switchover begins")
        left = {}
        for i, data in enumerate(blocks):
            h = hosts[i % 8]
            left[i] = h, h.aio_pwrite(pair.nbd.Buffer.from_bytearray(bytearray(data)), i << 20)
        while any(h.aio_get_direction() & pair.nbd.AIO_DIRECTION_WRITE for h in hosts):
            for h in hosts:
                h.poll(1)
        p.link.delay(0)
        while left:
            for h in hosts:
                if h.aio_get_direction():
                    h.poll(1)
            left = {i: at for i, at in left.items() if not at[0].aio_command_completed(at[1])}  # raises on an error
        admin.join()
        self.assertEqual(results[0].code, 0, results)
        p.wait_status("b", "v", role="active", sync="in-sync")
        other = p.nbd("b", "v")
        for i, data in enumerate(blocks):
            self.assertEqual(other.pread(1 << 20, i << 20), data, i)
        p.compare("v")

    def test_refused_when_not_in_sync(self):
        p = self.pair(volumes={"v": "64MiB"}, set={"both.stall_budget": "1s"})
        p.ctl_ok("a", "pause", "v")
        for site in "a", "b":
            refused = p.ctl(site, "switchover", "v")
            self.assertEqual(refused.code, 1, refused)
            self.assertIn("paused", refused.error["message"])
            self.assertFalse(plan(p, site, "switchover", "v")["possible"])
        self.roles(p, "a")
        p.ctl_ok("b", "resume", "v")
        p.wait_sync("v")
        p.kill9("b")
        refused = p.ctl("a", "switchover", "v")
        self.assertEqual(refused.code, 3 if "not connected" in str(refused) else 1, refused)
        p.start("b")
        p.wait_sync("v")
        self.assertEqual(p.ctl("a", "switchover", "nix").code, 1)
        self.assertEqual(p.ctl("a", "switchover", "v", "--to", "c").code, 2)

    def test_undone_when_the_peer_is_held(self):
        p = self.pair(volumes={"v": "64MiB"}, set={"both.stall_budget": "4s"})
        writer = stamp.Stamp(p, "v", site="a").start()
        writer.wait_acknowledged(100)
        p.hold("b")
        refused = p.ctl("a", "switchover", "v")
        self.assertEqual(refused.code, 1, refused)
        p.wait_status("a", "v", role="active", serving=True)
        writer.wait_acknowledged(50)
        p.release("b")
        p.wait_sync("v")
        writer.stop()
        self.assertFalse(writer.errors, writer.errors)
        p.compare("v")
        writer.check("a")
        p.ctl_ok("a", "switchover", "v", "--to", "b")
        self.roles(p, "b")


if __name__ == "__main__":
    pair.main()
