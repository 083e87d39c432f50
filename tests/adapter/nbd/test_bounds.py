"""Bounds: clients that do not read, that stop in the middle, that leave; memory that runs out."""
import socket
import threading
import time

import nbdtest
from nbdtest import go, receive, request, simple_reply, wait_until

MIB = 1 << 20
READ, WRITE, DISC, FLUSH, TRIM = range(5)


def send_until_blocked(sock, piece):
    """What went out before the server stopped reading."""
    sent = 0
    sock.settimeout(1)
    try:
        while sent < 64 * MIB:
            sent += sock.send(piece)
    except socket.timeout:
        pass
    sock.settimeout(20)
    return sent


class Bounds(nbdtest.Case):
    def test_a_client_that_reads_no_replies_is_not_read_from(self):
        server = self.server(f"v:{MIB}", "--depth", "16")
        with server.connect() as sock, server.connect() as other:
            go(sock)
            sent = send_until_blocked(sock, request(FLUSH, 1) * 100)
            self.assertLess(sent, 8 * MIB)
            stats = server.stats()
            self.assertLess(stats["rss_kib"], 600 * 1024)
            go(other)  # nobody else suffers
            other.sendall(request(READ, 5, 0, 4096))
            self.assertEqual(simple_reply(other, 4096)[0], 0)
            whole = sent // 28
            sock.settimeout(20)
            for _ in range(whole):  # and all are answered in the end
                self.assertEqual(simple_reply(sock), (0, 1, b""))

    def test_reads_that_are_not_taken_hold_bounded_memory(self):
        server = self.server(f"v:{64 * MIB}", "--depth", "64")
        with server.connect(rcvbuf=65536) as sock:
            go(sock)
            sock.sendall(request(WRITE, 7, 0, 8 * MIB, data=b"d" * (8 * MIB)))
            self.assertEqual(simple_reply(sock)[0], 0)
            sock.sendall(b"".join(request(READ, i, 0, 8 * MIB) for i in range(32)))
            wait_until(lambda: server.stats()["requests"] >= 5)
            time.sleep(0.3)
            self.assertLessEqual(server.stats()["budget_used"], 72 * MIB)
            for _ in range(32):
                error, cookie, data = simple_reply(sock, 8 * MIB)
                self.assertEqual((error, data), (0, b"d" * (8 * MIB)))
            self.assertLessEqual(server.stats()["budget_peak"], 72 * MIB)

    def test_memory_that_runs_out_makes_them_wait_in_turn(self):
        server = self.server(f"v:{64 * MIB}", "--budget", str(4 * MIB), "--delay-us", "2000")
        socks = [server.connect() for _ in range(6)]
        for sock in socks:
            go(sock)
        answered = []

        def work(sock):
            for round_ in range(10):
                sock.sendall(request(READ, round_, 0, 2 * MIB if round_ % 2 else 4096))
            for round_ in range(10):
                error, cookie, _ = simple_reply(sock, 2 * MIB if round_ % 2 else 4096)
                answered.append((error, cookie))

        threads = [threading.Thread(target=work, args=(sock,)) for sock in socks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(answered), sorted((0, round_) for round_ in range(10) for _ in socks))
        stats = server.stats()
        self.assertLessEqual(stats["budget_peak"], 4 * MIB)
        self.assertEqual(stats["budget_used"], 0)
        socks[0].sendall(request(READ, 1, 0, 8 * MIB))  # more than there ever is
        self.assertEqual(simple_reply(socks[0])[0], 12)
        socks[0].sendall(request(READ, 1, 0, 4096))
        self.assertEqual(simple_reply(socks[0], 4096)[0], 0)
        for sock in socks:
            sock.close()

    def test_who_sits_on_memory_that_others_need_is_closed(self):
        server = self.server(f"v:{64 * MIB}", "--budget", str(4 * MIB), "--hold-ms", "500")
        with server.connect() as stuck, server.connect() as other:
            go(stuck)
            go(other)
            stuck.sendall(request(WRITE, 1, 0, 4 * MIB, data=b"x" * MIB))  # and no more
            wait_until(lambda: server.stats()["budget_used"] == 4 * MIB)
            other.sendall(request(READ, 2, 0, 4096))
            self.assertEqual(simple_reply(other, 4096)[0], 0)
            self.assertTrue(nbdtest.closed_by_server(stuck))

    def test_requests_of_a_client_that_left_are_carried_out(self):
        for leave in "close", "disc", "half", "reset":
            with self.subTest(leave):
                server = self.server(f"v:{MIB}", "--delay-us", "200000", tcp=True)
                sock = server.connect()
                go(sock)
                batch = b"".join(request(WRITE, i, i * 4096, 4096, data=bytes([i + 1]) * 4096) for i in range(16))
                if leave == "disc":
                    batch += request(DISC, 99)
                sock.sendall(batch)
                wait_until(lambda: server.stats()["open"] == 16)
                if leave == "half":
                    sock.shutdown(socket.SHUT_WR)
                if leave == "reset":
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, nbdtest.struct.pack("ii", 1, 0))
                if leave in ("close", "reset"):
                    sock.close()
                else:  # still there, so it gets its answers before the end
                    for i in range(16):
                        self.assertEqual(simple_reply(sock)[:2], (0, i))
                    self.assertEqual(sock.recv(1), b"")
                    sock.close()
                wait_until(lambda: server.stats()["connections"] == 0 and server.stats()["open"] == 0)
                self.assertEqual(server.stats()["budget_used"], 0)
                with server.connect() as sock:
                    go(sock)
                    sock.sendall(request(READ, 1, 0, 65536))
                    want = b"".join(bytes([i + 1]) * 4096 for i in range(16))
                    self.assertEqual(simple_reply(sock, 65536), (0, 1, want))

    def test_a_write_cut_off_in_the_middle_never_happens(self):
        server = self.server(f"v:{MIB}")
        with server.connect() as sock:
            go(sock)
            sock.sendall(request(WRITE, 1, 0, 65536, data=b"x" * 60000))
        wait_until(lambda: server.stats()["connections"] == 0)
        self.assertEqual(server.stats()["budget_used"], 0)
        with server.connect() as sock:
            go(sock)
            sock.sendall(request(READ, 1, 0, 65536))
            self.assertEqual(simple_reply(sock, 65536), (0, 1, bytes(65536)))

    def test_one_greedy_connection_does_not_starve_another(self):
        server = self.server(f"v:{64 * MIB}")
        with server.connect() as greedy, server.connect() as modest:
            go(greedy)
            go(modest)
            stop = time.monotonic() + 2

            def flood():
                payload = request(WRITE, 1, 0, MIB, data=b"z" * MIB)
                while time.monotonic() < stop:
                    greedy.sendall(payload * 4)
                    for _ in range(4):
                        simple_reply(greedy)

            thread = threading.Thread(target=flood)
            thread.start()
            worst = 0
            while time.monotonic() < stop:
                started = time.monotonic()
                modest.sendall(request(READ, 2, 32 * MIB, 4096))
                self.assertEqual(simple_reply(modest, 4096)[0], 0)
                worst = max(worst, time.monotonic() - started)
            thread.join()
            self.assertLess(worst, 1.0)

    def test_stop_abandons_what_the_backend_does_not_answer(self):
        server = self.server(f"v:{MIB}", "--delay-us", "60000000")
        with server.connect() as sock:
            go(sock)
            sock.sendall(request(WRITE, 1, 0, 4096, data=bytes(4096)))
            wait_until(lambda: server.stats()["open"] == 1)
            started = time.monotonic()
            server.process.send_signal(nbdtest.signal.SIGTERM)
            self.assertEqual(server.process.wait(timeout=20), 0)
            self.assertLess(time.monotonic() - started, 10)
            self.assertTrue(nbdtest.closed_by_server(sock))

    def test_an_export_that_goes_away_closes_its_connections_only(self):
        server = self.server(f"v:{MIB}", f"w:{MIB}", "--delay-us", "300000")
        with server.connect() as sock, server.connect() as other:
            go(sock)
            go(other, b"w")
            sock.sendall(request(READ, 1, 0, 4096))
            other.sendall(request(READ, 2, 0, 4096))
            wait_until(lambda: server.stats()["open"] == 2)
            server.process.send_signal(nbdtest.signal.SIGUSR2)  # drops v
            self.assertEqual(server.process.stdout.readline(), "connections 1, then 0\n")
            self.assertEqual(sock.recv(100), b"")  # closed, the request unanswered
            self.assertEqual(simple_reply(other, 4096), (0, 2, bytes(4096)))
            wait_until(lambda: server.stats()["late"] == 1)  # and its late completion hit nobody
            self.assertEqual(server.stats()["open"], 0)

    def test_shutdown_from_below_closes_unanswered(self):
        server = self.server(f"bad:{MIB + 4096}")
        with server.connect() as sock:
            go(sock, b"bad")
            sock.sendall(request(READ, 1, 0, 4096) + request(TRIM, 2, MIB, 4096))
            self.assertEqual(simple_reply(sock, 4096), (0, 1, bytes(4096)))  # what was answered still comes
            self.assertEqual(sock.recv(100), b"")

    def test_a_stale_socket_is_replaced_and_a_live_one_is_not(self):
        server = self.server(f"v:{MIB}")
        self.assertEqual(nbdtest.os.stat(server.path).st_mode & 0o777, 0o660)
        second = nbdtest.subprocess.run([nbdtest.MEMSERVER, "--unix", server.path, f"v:{MIB}"], capture_output=True,
                                        timeout=20, text=True)
        self.assertEqual(second.returncode, 2)
        self.assertIn("another process listens", second.stderr)
        stale = server.path + "2"
        left = socket.socket(socket.AF_UNIX)
        left.bind(stale)
        left.close()
        process = nbdtest.subprocess.Popen([nbdtest.MEMSERVER, "--unix", stale, f"v:{MIB}"],
                                           stdout=nbdtest.subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.terminate()
        self.assertEqual(process.wait(timeout=20), 0)
        process.stdout.close()
        with open(stale, "w") as file:
            file.write("precious")
        third = nbdtest.subprocess.run([nbdtest.MEMSERVER, "--unix", stale, f"v:{MIB}"], capture_output=True,
                                       timeout=20, text=True)
        self.assertEqual(third.returncode, 2)
        with open(stale) as file:
            self.assertEqual(file.read(), "precious")


nbdtest.main()
