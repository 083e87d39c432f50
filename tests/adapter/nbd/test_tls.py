"""STARTTLS, and large requests through small socket buffers."""
import os
import socket
import ssl
import struct
import threading

import nbdtest
from nbdtest import *

MIB = 1 << 20


class Tls(nbdtest.Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="sr-nbd-tls-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.cert, cls.key = os.path.join(cls.folder, "ca-cert.pem"), os.path.join(cls.folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", cls.key, "-out", cls.cert], check=True, capture_output=True)

    def tls_server(self, *args):
        return self.server("--tls", self.cert, self.key, *args, tcp=True)

    def upgrade(self, sock):
        self.assertEqual(ask(sock, STARTTLS), [(ACK, b"")])
        context = ssl.create_default_context(cafile=self.cert)
        return context.wrap_socket(sock, server_hostname="localhost")

    def test_libnbd(self):
        import nbd
        server = self.tls_server("--require-tls", "v:1048576")
        handle = nbd.NBD()
        handle.set_tls(nbd.TLS_REQUIRE)
        handle.set_tls_certificates(self.folder)
        handle.connect_uri(f"nbds://127.0.0.1:{server.port}/v")
        handle.pwrite(b"secret" * 100, 7)
        self.assertEqual(bytes(handle.pread(600, 7)), b"secret" * 100)
        handle.shutdown()

    def test_required_means_required(self):
        server = self.tls_server("--require-tls", "v:1048576")
        with server.connect() as sock:
            greet(sock)
            for option, data in ((LIST, b""), (GO, go_data(b"v")), (INFO, go_data(b"v")), (STRUCTURED, b"")):
                self.assertEqual(ask(sock, option, data)[-1][0], ERR_TLS_REQD)
            with self.upgrade(sock) as secure:
                self.assertEqual(ask(secure, STARTTLS)[-1][0], ERR_INVALID)
                self.assertEqual(ask(secure, GO, go_data(b"v"))[-1][0], ACK)
        with server.connect() as sock:
            greet(sock)
            send_option(sock, EXPORT_NAME, b"v")
            self.assertTrue(closed_by_server(sock))

    def test_what_was_negotiated_in_the_clear_is_forgotten(self):
        server = self.tls_server("v:1048576")
        with server.connect() as sock:
            greet(sock)
            self.assertEqual(ask(sock, STRUCTURED)[-1][0], ACK)
            with self.upgrade(sock) as secure:
                replies = ask(secure, GO, go_data(b"v"))
                flags = [struct.unpack(">HQH", data)[2] for kind, data in replies if len(data) == 12][0]
                self.assertEqual(flags & 0x80, 0)  # no DF: structured replies are off again
                secure.sendall(request(0, 1, 0, 512))
                self.assertEqual(simple_reply(secure, 512)[0], 0)

    def test_bytes_pipelined_behind_starttls(self):
        server = self.tls_server("v:1048576")
        with server.connect() as sock:
            receive(sock, 18)
            sock.sendall(struct.pack(">I", 3) + struct.pack(">QII", IHAVEOPT, STARTTLS, 0) +
                         struct.pack(">QII", IHAVEOPT, LIST, 0))
            got = b""
            try:
                while part := sock.recv(4096):
                    got += part
            except ConnectionResetError:
                pass
            self.assertNotIn(struct.pack(">II", LIST, ACK), got)

    def test_no_tls_handshake_in_time(self):
        server = self.tls_server("v:1048576", "--handshake-ms", "500")
        with server.connect() as sock:
            greet(sock)
            self.assertEqual(ask(sock, STARTTLS)[-1][0], ACK)
            self.assertTrue(closed_by_server(sock))
        self.assertEqual(server.stats()["handshake_timeouts"], 1)

    def test_large_requests_small_buffers_slow_reader(self):
        size, depth = 32 * MIB, 16
        server = self.tls_server(f"v:{size}", "--budget", str(512 * MIB))
        raw = server.connect(rcvbuf=65536)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        greet(raw)
        secure = self.upgrade(raw)
        self.assertEqual(secure.version(), "TLSv1.3")
        self.assertEqual(ask(secure, GO, go_data(b"v"))[-1][0], ACK)
        data = os.urandom(MIB) * 32
        secure.sendall(request(1, 1, 0, size, data=data))
        self.assertEqual(simple_reply(secure)[0], 0)
        for i in range(depth):
            secure.sendall(request(0, i, 0, size))
        received = threading.Event()
        for i in range(depth):
            received.wait(0.05)  # slow
            error, cookie, got = self.fast_reply(secure, size)
            self.assertEqual((error, cookie), (0, i))
            self.assertTrue(got == data)
        secure.sendall(request(3, 99))
        self.assertEqual(simple_reply(secure), (0, 99, b""))
        self.assertLessEqual(server.stats()["budget_peak"], 96 * MIB)
        secure.close()

    def fast_reply(self, sock, size):
        error, cookie, _ = simple_reply(sock)
        data, at = bytearray(size), 0
        view = memoryview(data)
        while at < size:
            got = sock.recv_into(view[at:])
            self.assertGreater(got, 0)
            at += got
        return error, cookie, data


nbdtest.main()
