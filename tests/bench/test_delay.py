#!/usr/bin/python3
"""bench-delay: every byte arrives, in order, so much later and not much more, each way; the end of one end reaches the other."""
import os
import random
import socket
import subprocess
import threading
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
DELAY = os.environ.get("BENCH_DELAY", os.path.join(HERE, "..", "..", "build", "bin", "bench-delay"))
SLOW = float(os.environ.get("SYNCREP_SLOW", "1"))
DELAY_S = 0.008
LATE_S = 0.004 * SLOW  # of the fastest of several: other tests run beside this one
MIB = 1 << 20


def receive_all(sock):
    """Everything up to the end of the stream."""
    parts = []
    while part := sock.recv(MIB):
        parts.append(part)
    return b"".join(parts)


class Delay(unittest.TestCase):
    def setUp(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(30)
        self.addCleanup(self.server.close)
        target = "127.0.0.1:%d" % self.server.getsockname()[1]
        self.proxy = subprocess.Popen([DELAY, str(int(DELAY_S * 1e6)), "127.0.0.1:0", target], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        host, port = self.proxy.stdout.readline().split()[1].split(":")
        self.address = (host, int(port))

    def end(self):
        self.proxy.stdin.close()  # it ends by itself
        self.assertEqual(self.proxy.wait(30), 0)
        self.proxy.stdout.close()

    def connect(self):
        ends = [socket.create_connection(self.address, timeout=30)]
        ends.append(self.server.accept()[0])
        for end in ends:
            end.settimeout(30)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.addCleanup(end.close)
        return ends

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.proxy.pid}/fd"))

    def assert_delay(self, seconds):
        self.assertGreaterEqual(seconds, DELAY_S)
        self.assertLess(seconds, DELAY_S + LATE_S)

    def test_delay_of_each_direction(self):
        client, server = self.connect()
        for source, sink in ((client, server), (server, client)):
            taken = []
            for _ in range(8):
                begun = time.monotonic()
                source.sendall(b"x")
                self.assertEqual(sink.recv(16), b"x")
                taken.append(time.monotonic() - begun)
            self.assert_delay(min(taken))

    def test_bytes_both_ways_at_once(self):
        """More than a ring holds, so that it goes round; and not slowed down to one window a delay."""
        dice = random.Random(1)
        sent = [dice.randbytes(MIB) * 80, dice.randbytes(MIB - 1) * 70]
        ends = self.connect()
        got = [None, None]

        def send(i):
            ends[i].sendall(sent[i])
            ends[i].shutdown(socket.SHUT_WR)

        def receive(i):
            got[i] = receive_all(ends[1 - i])

        threads = [threading.Thread(target=what, args=(i,)) for what in (send, receive) for i in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i in (0, 1):
            self.assertEqual(len(got[i]), len(sent[i]))
            self.assertTrue(got[i] == sent[i], "the bytes differ")

    def test_a_reader_that_waits_stops_the_sender(self):
        """Memory is bounded: behind full rings the sender is held up, and all of it arrives later all the same."""
        client, server = self.connect()
        piece, sent = bytes(MIB), 0
        client.settimeout(0.3 * SLOW)
        try:
            while sent < 256 * MIB:
                sent += client.send(piece)
        except TimeoutError:
            pass
        self.assertLess(sent, 160 * MIB)
        client.shutdown(socket.SHUT_WR)
        self.assertEqual(len(receive_all(server)), sent)

    def test_the_end_of_one_end_reaches_the_other(self):
        idle = self.descriptors()
        for first in (0, 1):
            ends = self.connect()
            ends[first].sendall(b"last words")
            begun = time.monotonic()
            ends[first].close()
            self.assertEqual(receive_all(ends[1 - first]), b"last words")
            self.assertGreaterEqual(time.monotonic() - begun, DELAY_S / 2)
            ends[1 - first].close()
        self.gone(idle)

    def test_a_reset_ends_the_connection(self):
        idle = self.descriptors()
        client, server = self.connect()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        try:
            self.assertEqual(receive_all(server), b"")
        except ConnectionResetError:
            pass
        self.gone(idle)

    def test_nobody_at_the_target(self):
        idle = self.descriptors()
        self.server.close()
        with socket.create_connection(self.address, timeout=30) as client:
            try:
                self.assertEqual(client.recv(1), b"")
            except ConnectionResetError:
                pass
        self.gone(idle)

    def gone(self, idle):
        end = time.monotonic() + 10 * SLOW
        while self.descriptors() != idle:
            self.assertLess(time.monotonic(), end, "connections stay open")
            time.sleep(0.005)


if __name__ == "__main__":
    unittest.main(verbosity=2)
