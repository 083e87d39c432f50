#!/usr/bin/python3
"""Clients that err or attack (B16, B27, B28): each error answers its own request, and the others notice nothing."""
import errno
import random
import resource
import socket
import threading
import time

import pair
import stamp
import tools
from tools import raw

SIZE = 16 << 20
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES, STATUS = range(8)
PATTERN = bytes(range(256)) * 16


def connect(p, name="a", tcp=False, timeout=20):
    sock = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
    sock.settimeout(timeout)
    sock.connect((p.host, tools.tcp_port(p, name)) if tcp else p.sites[name].nbd)
    return sock


class Errors(pair.Case):
    def setUp(self):
        self.p = self.pair(volumes={"v": "16MiB"})
        self.sock = connect(self.p)
        self.addCleanup(self.sock.close)
        self.cookie = 0
        raw.go(self.sock)
        self.assertEqual(self.call(WRITE, 0, 4096, data=PATTERN), 0)

    def call(self, command, offset, length, flags=0, data=b""):
        self.cookie += 1
        self.sock.sendall(raw.request(command, self.cookie, offset, length, flags, data))
        error, cookie, _ = raw.simple_reply(self.sock, length if command == READ else 0)
        self.assertEqual(cookie, self.cookie)
        return error

    def expect(self, error, *args, **kwargs):
        self.assertEqual(self.call(*args, **kwargs), error)
        self.cookie += 1
        self.sock.sendall(raw.request(READ, self.cookie, 0, 4096))
        self.assertEqual(raw.simple_reply(self.sock, 4096), (0, self.cookie, PATTERN))

    def test_each_wrong_request_has_its_own_answer(self):
        self.expect(errno.ENOSPC, WRITE, SIZE - 4096, 8192, data=b"x" * 8192)
        self.expect(errno.ENOSPC, WRITE, 2**64 - 4096, 8192, data=b"x" * 8192)
        for command in READ, TRIM, ZEROES, CACHE:
            self.expect(errno.EINVAL, command, SIZE - 4096, 8192)
            self.expect(errno.EINVAL, command, 2**64 - 1, 2**32 - 1)
            self.expect(errno.EINVAL, command, 0, 4096, flags=0x8000)
        for command in READ, WRITE, TRIM, ZEROES, CACHE, STATUS:
            self.expect(errno.EINVAL, command, 0, 0)
        for command in 8, 255, 0xFFFF:
            self.expect(errno.EINVAL, command, 0, 4096)
        self.expect(errno.EINVAL, WRITE, 0, 4096, flags=0x8000, data=b"x" * 4096)
        self.expect(errno.EINVAL, FLUSH, 0, 0, flags=0x20)
        self.expect(errno.EINVAL, STATUS, 0, 4096)
        big = (32 << 20) + 1
        self.expect(errno.ENOSPC, WRITE, 0, big, data=bytes(big))
        self.expect(errno.EINVAL, READ, 0, big)
        self.sock.close()
        self.p.compare("v")

    def test_wrong_requests_among_good_ones(self):
        """All at once, out of order: each cookie is answered once, with its own result."""
        rng = random.Random(5)
        wanted, stream = {}, b""
        for cookie in range(100, 400):
            kind = rng.randrange(4)
            at = 4096 * rng.randrange(1, SIZE // 4096)
            if kind == 0:
                wanted[cookie], stream = 0, stream + raw.request(WRITE, cookie, at, 4096, 0, PATTERN)
            elif kind == 1:
                wanted[cookie], stream = errno.ENOSPC, stream + raw.request(WRITE, cookie, SIZE, 4096, 0, PATTERN)
            elif kind == 2:
                wanted[cookie], stream = errno.EINVAL, stream + raw.request(99, cookie, at, 4096)
            else:
                wanted[cookie], stream = 0, stream + raw.request(FLUSH, cookie)
        sender = threading.Thread(target=self.sock.sendall, args=(stream,))
        sender.start()
        answers = {}
        for _ in wanted:
            error, cookie, _ = raw.simple_reply(self.sock)
            self.assertNotIn(cookie, answers)
            answers[cookie] = error
        sender.join()
        self.assertEqual(answers, wanted)
        self.sock.close()
        self.p.compare("v")


class Handshakes(pair.Case):
    def test_strangers_do_not_disturb_and_do_not_hold_the_stop_up(self):
        p = self.pair(volumes={"v": "16MiB"}, set={"both.nbd.handshake_timeout": "3s", "both.nbd.max_connections": "150"})
        writer = stamp.Stamp(p, "v", connections=2, rate=300).start()
        writer.wait_acknowledged(20)
        before = len(p.log("a").splitlines())
        begun = time.monotonic()
        slow = connect(p)
        raw.receive(slow, 18)
        drip = threading.Thread(target=self.drip, args=(slow,))
        drip.start()
        idle = [connect(p, tcp=True) for _ in range(200)]
        names = [b"x" * 4096, b"x" * 5000, b"\xff\xfe\xff", b"a\0b", "\u00e4".encode() * 100, b"%s%n" * 20, b"\x1b[2J\n"]
        for name in names:
            with self.greeted(p) as sock:
                self.assertTrue(raw.ask(sock, raw.GO, raw.go_data(name))[-1][0] & 0x80000000)
        with self.greeted(p) as sock:
            raw.send_option(sock, raw.GO, b"", length=0xFFFFFFFF)
            kind = self.reply_or_end(sock)
            self.assertIn(kind, (None, raw.ERR_TOO_BIG, raw.ERR_INVALID))
        for _ in range(300):
            connect(p, tcp=True).close()
        self.assertIsNotNone(p.nbd("a", "v", timeout=10), "a real client gets in")
        writer.wait_acknowledged(100)
        self.assertTrue(raw.closed_by_server(slow))
        drip.join()
        slow.close()
        for sock in idle:
            self.assertTrue(raw.closed_by_server(sock))
            sock.close()
        self.assertLess(time.monotonic() - begun, 20 * pair.SLOW)
        self.assertLess(len(p.log("a").splitlines()) - before, 60, "the log is limited in rate")
        self.assertNotIn("\x1b", p.log("a"))
        writer.wait_acknowledged(50)
        writer.stop()
        crowd = [connect(p, tcp=True) for _ in range(100)]
        begun = time.monotonic()
        p.stop("a")
        self.assertLess(time.monotonic() - begun, 8 * pair.SLOW, "strangers hold the stop up")
        for sock in crowd:
            self.assertTrue(raw.closed_by_server(sock))
            sock.close()
        p.start("a")
        p.compare("v")
        writer.check()

    @staticmethod
    def drip(sock):
        """A byte now and then does not keep a handshake alive: returns once the server has ended it."""
        for _ in range(100):
            try:
                sock.sendall(b"\0")
            except OSError:
                return
            time.sleep(0.4)

    @staticmethod
    def greeted(p):
        """A connection that got through: at the cap a newcomer is turned away until the oldest stranger is 1 s old."""
        def attempt():
            sock = connect(p)
            try:
                raw.greet(sock)
                return sock
            except (EOFError, OSError):
                sock.close()
                return None
        return pair.wait_for(attempt, 10, "a real client gets in")

    @staticmethod
    def reply_or_end(sock):
        try:
            return int.from_bytes(raw.receive(sock, 20)[12:16], "big")
        except (EOFError, ConnectionError):
            return None


class Descriptors(pair.Case):
    def test_a_full_table_harms_only_newcomers(self):
        """B28: 64 descriptors and 200 clients: no spin, those at work and the peer link go on, and it recovers."""
        p = self.pair(volumes={"v": "16MiB"})
        p.stop("a")
        old = resource.getrlimit(resource.RLIMIT_NOFILE)
        soft = max(old[0], 1024)
        p.start("a")
        pid = p.sites["a"].pid
        p.wait_sync("v")
        self.assertIn("RLIMIT_NOFILE", p.log("a"))
        h = p.nbd("a", "v")
        h.pwrite(PATTERN, 0)
        used = tools.descriptors(pid)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (max(64, used + 4), soft))
        crowd = []
        for _ in range(200):
            crowd.append(connect(p, tcp=True))
        time.sleep(0.5)
        share = tools.cpu_share([pid], 2)
        print(f"\n   CPU with a full table: {100 * share:.1f} % of a core")
        self.assertLess(share, 0.3, "it spins")
        h.pwrite(PATTERN, 4096)
        self.assertEqual(h.pread(4096, 4096), PATTERN)
        self.assertEqual(p.status("b", "v")["sync"], "in-sync")
        p.restart("b")  # the peer comes back while the table is full
        p.wait_sync("v", 20)
        h.pwrite(PATTERN, 8192)
        for sock in crowd:
            sock.close()
        again = p.nbd("a", "v", timeout=20)
        self.assertEqual(again.pread(4096, 8192), PATTERN)
        pair.wait_for(lambda: tools.descriptors(pid) <= used + 2, 20, "descriptors are given back")
        p.ctl_ok("a", "volume", "create", "w", "--size", "1MiB")
        h.shutdown()
        again.shutdown()
        p.compare("v")


if __name__ == "__main__":
    pair.main()
