#!/usr/bin/python3
"""Many switchovers in a row, and requests of connections that are gone or stayed behind."""
import os
import threading
import time

import pair
import stamp
import tools

ROUNDS = 1000 if pair.LONG else 100


class Many(pair.Case):
    def test_back_to_back_under_load(self):
        """They end in sync; metadata, memory and what is remembered of the past stay bounded."""
        p = self.pair(volumes={"v": "32MiB"})
        writer = stamp.Stamp(p, "v", site=lambda: self.turn(p), connections=4, depth=8).start()
        writer.wait_acknowledged(100)
        active, generation = "a", p.status("a", "v")["generation"]
        sizes = []
        for number in range(ROUNDS):
            active = "b" if active == "a" else "a"

            def moved():
                result = p.ctl("ab"[number % 3 % 2], "switchover", "v", "--to", active)
                if result.code == 1 and "not in sync" in result.error["message"]:
                    return False  # the records of the last one are still on their way
                if result.code != 0:
                    raise pair.Failure(repr(result))
                return True
            pair.wait_for(moved, 20, "it is in sync again")
            if number % 10 == 9:
                writer.wait_acknowledged(10)
                sizes.append(max(self.size(p, site) for site in "ab"))
        p.wait_sync("v")
        self.assertEqual(p.status("a", "v")["generation"], generation)  # nobody went alone
        writer.stop()
        self.assertFalse(writer.errors, writer.errors)
        p.compare("v")
        writer.check(active)
        if pair.SLOW == 1:  # a sanitizer keeps what was freed
            self.assertLess(max(sizes), 2 * sizes[0] + (8 << 20))

    def turn(self, p):
        self.last = "b" if getattr(self, "last", "b") == "a" else "a"
        return self.last

    def size(self, p, site):
        """Bytes of metadata and of memory."""
        folder = os.path.join(p.sites[site].folder, "state")
        on_disk = sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in os.listdir(folder))
        return on_disk + tools.rss_bytes(p.sites[site].pid)


class LateWrites(pair.Case):
    """B03: requests of a dead connection or of the old role are finished or fenced before newer ones are acknowledged."""

    def test_a_connection_left_at_the_old_site(self):
        p = self.pair(volumes={"v": "16MiB"}, link=True)
        p.link.delay(40)  # so that there is time to be in the middle of it
        active = "a"
        for number in range(8):
            to = "b" if active == "a" else "a"
            stays, dies = p.nbd(active, "v"), p.try_nbd(active, "v")
            admin = threading.Thread(target=p.ctl_ok, args=(active, "switchover", "v", "--to", to))
            admin.start()
            time.sleep(number * 0.025)
            old = [pair.nbd.Buffer.from_bytearray(bytearray(b"old" + bytes([number])) * 1024) for _ in range(2)]
            cookies = []
            for handle, buffer in zip((stays, dies), old):
                try:
                    cookies.append(handle.aio_pwrite(buffer, 0))
                except pair.nbd.Error:
                    cookies.append(None)  # closed already
            dies = None  # its connection is gone, the request may be queued at either site
            p.handles.clear()
            new = p.nbd(to, "v")
            newer = bytes([number + 1]) * 4096
            new.pwrite(newer, 0)
            self.assertEqual(new.pread(4096, 0), newer)
            try:
                while cookies[0] is not None and not stays.aio_command_completed(cookies[0]):
                    stays.poll(20)
            except pair.nbd.Error:
                pass
            admin.join()
            p.compare("v")
            self.assertEqual(new.pread(4096, 0), newer, f"round {number}: an older write came back")
            new.shutdown()
            active = to


if __name__ == "__main__":
    pair.main()
