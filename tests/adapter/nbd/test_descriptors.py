"""A full descriptor table: no spin, work goes on, and it recovers."""
import time

import nbdtest
from nbdtest import go, request, simple_reply, wait_until


class Descriptors(nbdtest.Case):
    def test_a_full_table(self):
        server = self.server("v:1048576", "--evict-ms", "600000", tcp=True, nofile=64)
        established = server.connect()
        go(established)
        crowd = [server.connect() for _ in range(200)]
        wait_until(lambda: server.stats()["refused_fds"] > 0)
        wait_until(lambda: server.stats()["refused_fds"] + server.stats()["connections"] >= 200)
        before = server.stats()["cpu_ms"]
        time.sleep(2)
        self.assertLess(server.stats()["cpu_ms"] - before, 300)  # it does not spin
        established.sendall(request(0, 1, 0, 4096))  # who is at work goes on
        self.assertEqual(simple_reply(established, 4096)[0], 0)
        for sock in crowd:
            sock.close()
        wait_until(lambda: server.stats()["connections"] == 1)
        with server.connect() as sock:
            go(sock)
            sock.sendall(request(0, 1, 0, 4096))
            self.assertEqual(simple_reply(sock, 4096)[0], 0)
        established.close()
        self.assertIn("RLIMIT_NOFILE", server.log_text())
        self.assertLess(len(server.log_text().splitlines()), 60)

    def test_strangers_make_room_for_a_real_client(self):
        server = self.server("v:1048576", "--evict-ms", "200", tcp=True, nofile=64)
        crowd = [server.connect() for _ in range(200)]

        def real_client():
            try:
                with server.connect(timeout=5) as sock:
                    go(sock)
                    return True
            except (OSError, EOFError):
                return False

        wait_until(real_client, 10)
        for sock in crowd:
            sock.close()


nbdtest.main()
