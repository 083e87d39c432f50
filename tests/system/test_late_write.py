#!/usr/bin/python3
"""B03: a write whose connection is gone never lands over a newer one."""
import time

import pair

BLOCK = pair.BLOCK


class LateWrite(pair.Case):
    def send(self, h, data, offset):
        """Sends a write without waiting for its answer."""
        cookie = h.aio_pwrite(pair.nbd.Buffer.from_bytearray(bytearray(data)), offset)
        while h.aio_get_direction() & pair.nbd.AIO_DIRECTION_WRITE:
            h.poll(10)
        return cookie

    def late(self, budget_ms, released_after):
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": f"{int(budget_ms * pair.SLOW)}ms"})
        first, second = p.nbd("a", "v"), p.try_nbd("a", "v")
        p.hold("b")
        self.send(first, b"X" * BLOCK, 7 * BLOCK)
        time.sleep(0.1)
        del first
        p.handles.clear()  # and thereby its socket is closed
        cookies = {self.send(second, data * BLOCK, 7 * BLOCK) for data in (b"X", b"Y")}
        released = time.monotonic() + released_after * pair.SLOW
        while cookies:
            second.poll(20)
            cookies = {cookie for cookie in cookies if not second.aio_command_completed(cookie)}
            if p.sites["b"].held and time.monotonic() > released:
                p.release("b")
        if p.sites["b"].held:
            p.release("b")
        # NBD does not order the two: both were in flight.  A third one, sent after their answers, is ordered.
        second.pwrite(b"Z" * BLOCK, 7 * BLOCK)
        self.assertEqual(second.pread(BLOCK, 7 * BLOCK), b"Z" * BLOCK)
        p.compare("v")
        for site in pair.SITES:
            with open(p.image(site, "v"), "rb") as image:
                image.seek(7 * BLOCK)
                self.assertEqual(image.read(BLOCK), b"Z" * BLOCK)

    def in_order(self, budget_ms, released_after):
        """As the case has it: Y is sent once X was answered on the second connection."""
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": f"{int(budget_ms * pair.SLOW)}ms"})
        first, second = p.nbd("a", "v"), p.try_nbd("a", "v")
        p.hold("b")
        self.send(first, b"X" * BLOCK, 7 * BLOCK)
        time.sleep(0.1)
        del first
        p.handles.clear()
        cookie = self.send(second, b"X" * BLOCK, 7 * BLOCK)
        released = time.monotonic() + released_after * pair.SLOW
        while not second.aio_command_completed(cookie):
            second.poll(20)
            if p.sites["b"].held and time.monotonic() > released:
                p.release("b")
        second.pwrite(b"Y" * BLOCK, 7 * BLOCK)
        if p.sites["b"].held:
            p.release("b")
        p.compare("v")
        self.assertEqual(second.pread(BLOCK, 7 * BLOCK), b"Y" * BLOCK)
        for site in pair.SITES:
            with open(p.image(site, "v"), "rb") as image:
                image.seek(7 * BLOCK)
                self.assertEqual(image.read(BLOCK), b"Y" * BLOCK)

    def test_released_within_the_budget(self):
        self.in_order(5000, 0.5)

    def test_released_after_going_alone(self):
        self.in_order(500, 30)

    def test_in_flight_together(self):
        self.late(5000, 0.5)

    def test_in_flight_together_and_alone(self):
        self.late(500, 1.5)


if __name__ == "__main__":
    pair.main()
