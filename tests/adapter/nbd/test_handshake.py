"""Option haggling, well-meant and hostile."""
import socket
import struct
import time
import threading

import nbdtest
from nbdtest import *


class Handshake(nbdtest.Case):
    def test_list_and_info(self):
        server = self.server("a:1048576", "b:1048576,ro", "c:1048576,refuse")
        with server.connect() as sock:
            greet(sock)
            names = [data[4:] for kind, data in ask(sock, LIST) if kind == SERVER]
            self.assertEqual(names, [b"a", b"b", b"c"])
            self.assertEqual(ask(sock, LIST, b"x")[-1][0], ERR_INVALID)
            kind, text = ask(sock, INFO, go_data(b"c"))[-1]
            self.assertEqual((kind, text), (ERR_POLICY, b"volume c is active at site b: connect there"))
            replies = ask(sock, INFO, go_data(b"b", (1, 2, 3, 77)))
            self.assertEqual(replies[-1][0], ACK)
            infos = {struct.unpack(">H", data[:2])[0]: data[2:] for kind, data in replies if kind == REP_INFO}
            self.assertEqual(infos[1], b"b")
            self.assertEqual(infos[2], b"sparse memory")
            self.assertEqual(struct.unpack(">III", infos[3]), (1, 4096, 32 << 20))
            size, flags = struct.unpack(">QH", infos[0])
            self.assertEqual(size, 1 << 20)
            self.assertEqual(flags & 3, 3)
            self.assertEqual(ask(sock, 4)[-1][0], ERR_UNSUP)
            self.assertEqual(ask(sock, 0x4711, b"data" * 1000)[-1][0], ERR_UNSUP)
            self.assertEqual(ask(sock, STARTTLS)[-1][0], ERR_POLICY)
            self.assertEqual(ask(sock, ABORT)[-1][0], ACK)
            self.assertTrue(closed_by_server(sock))

    def test_export_name(self):
        server = self.server("a:1048576", "c:1048576,refuse")
        for flags, zeroes in ((3, 0), (1, 124), (0, 124), (2, 0)):
            with server.connect() as sock:
                greet(sock, flags)
                send_option(sock, EXPORT_NAME, b"a")
                self.assertEqual(struct.unpack(">Q", receive(sock, 8))[0], 1 << 20)
                receive(sock, 2 + zeroes)
                sock.sendall(request(0, 1, 0, 512))
                self.assertEqual(simple_reply(sock, 512)[0], 0)
        for name in b"nosuch", b"c", b"\xff\xfe", b"n" * 4097, b"n" * 20000:
            with server.connect() as sock:
                greet(sock)
                send_option(sock, EXPORT_NAME, name)
                self.assertTrue(closed_by_server(sock))

    def test_the_empty_name_is_the_only_export(self):
        for exports, kind in ((["a:1048576"], ACK), (["a:1048576", "b:1048576"], ERR_UNKNOWN), ([], ERR_UNKNOWN)):
            server = self.server(*exports)
            with server.connect() as sock:
                greet(sock)
                self.assertEqual(ask(sock, GO, go_data(b"", (1,)))[-1][0], kind)

    def test_names_that_are_no_names(self):
        server = self.server("v:1048576")
        with server.connect() as sock:
            greet(sock)
            for name, kind in ((b"\xff\xfe\xfd", ERR_INVALID), (b"v\0", ERR_INVALID), (b"\xed\xa0\x80", ERR_INVALID),
                               (b"n" * 4096, ERR_UNKNOWN), (b"n" * 4097, ERR_TOO_BIG), (b"../v", ERR_UNKNOWN),
                               ("ü".encode() * 2048, ERR_UNKNOWN), (b"%s%n\x1b[2J", ERR_UNKNOWN)):
                self.assertEqual(ask(sock, GO, go_data(name))[-1][0], kind, name[:8])
            self.assertEqual(ask(sock, GO, b"\0\0\0\xffv")[-1][0], ERR_INVALID)
            self.assertEqual(ask(sock, GO, b"")[-1][0], ERR_INVALID)
            self.assertEqual(ask(sock, GO, go_data(b"v") + b"x")[-1][0], ERR_INVALID)
            self.assertEqual(ask(sock, GO, go_data(b"v"))[-1][0], ACK)

    def test_long_options_are_skipped_or_end_it(self):
        server = self.server("v:1048576")
        with server.connect() as sock:
            greet(sock)
            self.assertEqual(ask(sock, 0x4711, bytes(1 << 20))[-1][0], ERR_TOO_BIG)
            self.assertEqual(ask(sock, GO, bytes(20000))[-1][0], ERR_TOO_BIG)
            send_option(sock, GO, b"", length=0xFFFFFFFF)
            self.assertEqual(read_replies(sock, GO)[-1][0], ERR_TOO_BIG)
            self.assertTrue(closed_by_server(sock))

    def test_strangers_are_dropped(self):
        server = self.server("v:1048576")
        for first in (struct.pack(">I", 4), b"GET / HTTP/1.1\r\n\r\n" + bytes(64), struct.pack(">IQ", 3, 1) + bytes(16)):
            with server.connect() as sock:
                receive(sock, 18)
                sock.sendall(first)
                self.assertTrue(closed_by_server(sock))
        with server.connect() as sock:  # an option of fixed newstyle from one who did not choose it
            greet(sock, 0)
            send_option(sock, LIST)
            self.assertTrue(closed_by_server(sock))

    def test_meta_contexts(self):
        server = self.server("v:1048576", "w:1048576")

        def meta(name, *queries):
            data = struct.pack(">I", len(name)) + name + struct.pack(">I", len(queries))
            return data + b"".join(struct.pack(">I", len(q)) + q for q in queries)

        with server.connect() as sock:
            greet(sock)
            self.assertEqual(ask(sock, SET_META, meta(b"v", b"base:allocation"))[-1][0], ERR_INVALID)
            self.assertEqual(ask(sock, STRUCTURED)[-1][0], ACK)
            full = [(4, struct.pack(">I", 0) + b"base:allocation"), (ACK, b"")]
            self.assertEqual(ask(sock, LIST_META, meta(b"v")), full)
            self.assertEqual(ask(sock, LIST_META, meta(b"v", b"base:")), full)
            self.assertEqual(ask(sock, LIST_META, meta(b"v", b"qemu:dirty")), [(ACK, b"")])
            self.assertEqual(ask(sock, SET_META, meta(b"v", b"base:")), [(ACK, b"")])
            self.assertEqual(ask(sock, SET_META, meta(b"v", b"nocolon"))[-1][0], ERR_INVALID)
            self.assertEqual(ask(sock, SET_META, meta(b"zz", b"base:allocation"))[-1][0], ERR_UNKNOWN)
            self.assertEqual(ask(sock, SET_META, meta(b"v")[:-4] + b"\xff\xff\xff\xff")[-1][0], ERR_INVALID)
            self.assertEqual(ask(sock, SET_META, meta(b"v", b"base:allocation"))[0][1],
                             struct.pack(">I", 1) + b"base:allocation")
            self.assertEqual(ask(sock, GO, go_data(b"w"))[-1][0], ACK)  # chosen for another export: void
            sock.sendall(request(7, 1, 0, 4096))
            magic, _, kind = struct.unpack(">IHH8x4x", receive(sock, 20))
            self.assertEqual((magic, kind), (0x668E33EF, 0x8001))

    def test_idle_and_slow_clients_do_not_keep_others_out(self):
        server = self.server("v:1048576", "--connections", "64", "--handshake-ms", "3000", "--evict-ms", "300",
                             tcp=True)
        idle = []
        for _ in range(200):
            idle.append(server.connect())
        stop = threading.Event()

        def trickle():
            with server.connect() as sock:
                try:
                    for byte in struct.pack(">I", 3) + struct.pack(">QII", IHAVEOPT, GO, 4000) + bytes(4000):
                        sock.sendall(bytes([byte]))
                        if stop.wait(0.05):
                            break
                except OSError:
                    pass

        thread = threading.Thread(target=trickle)
        thread.start()
        started = time.monotonic()

        def real_client():
            try:
                with server.connect(timeout=5) as sock:
                    go(sock)
                    sock.sendall(request(0, 1, 0, 512))
                    return simple_reply(sock, 512)[0] == 0
            except (OSError, EOFError):
                return False

        wait_until(real_client, 10)
        wait_until(lambda: server.stats()["handshaking"] == 0, 30)  # every deadline has struck
        self.assertLess(time.monotonic() - started, 30)
        stop.set()
        thread.join()
        for sock in idle:
            sock.close()
        stats = server.stats()
        self.assertGreater(stats["handshake_timeouts"], 0)
        self.assertLess(len(server.log_text().splitlines()), 100)

    def test_at_the_cap_the_oldest_handshake_makes_room(self):
        server = self.server("v:1048576", "--connections", "8", "--handshake-ms", "600000", "--evict-ms", "100")
        idle = [server.connect() for _ in range(8)]
        wait_until(lambda: server.stats()["handshaking"] == 8)
        time.sleep(0.2)  # what they must have had as a chance
        with server.connect() as sock:
            go(sock)
            self.assertEqual(server.stats()["evicted"], 1)
            self.assertEqual(server.stats()["connections"], 8)
            receive(idle[0], 18)
            self.assertTrue(closed_by_server(idle[0]))
            idle += [server.connect() for _ in range(20)]
            sock.sendall(request(0, 1, 0, 512))  # who is in stays in
            self.assertEqual(simple_reply(sock, 512)[0], 0)
        for sock in idle:
            sock.close()

    def test_churn(self):
        server = self.server("v:1048576", tcp=True)
        for i in range(2000):
            sock = server.connect()
            if i % 3 == 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset
            sock.close()
        with server.connect() as sock:
            go(sock)
            sock.sendall(request(0, 1, 0, 512))
            self.assertEqual(simple_reply(sock, 512)[0], 0)
        wait_until(lambda: server.stats()["connections"] == 0)
        self.assertLess(len(server.log_text().splitlines()), 100)

    def test_stop_in_the_middle_of_handshakes(self):
        server = self.server("v:1048576")
        socks = [server.connect() for _ in range(50)]
        for sock in socks[:25]:
            greet(sock)
        started = time.monotonic()
        server.process.send_signal(nbdtest.signal.SIGTERM)
        self.assertEqual(server.process.wait(timeout=20), 0)
        self.assertLess(time.monotonic() - started, 10)
        for sock in socks:
            sock.close()


nbdtest.main()
