"""The log never stops I/O (B49): its reader dies, its pipe is full, its format is JSON."""
import json
import os
import signal
import subprocess
import time

import pair


class Logs(pair.Case):
    def with_stderr_in_a_pipe(self, p):
        """Restarts site a with its log in a pipe; returns the end to read from."""
        site = p.sites["a"]
        p.stop("a")
        reader, writer = os.pipe()
        site.process = subprocess.Popen([pair.SYNCREPD, "--config", site.config], stdin=subprocess.DEVNULL,
                                        stdout=writer, stderr=writer, start_new_session=True)
        os.close(writer)
        p.set_pid(site, site.process.pid)
        pair.wait_for(lambda: p.answers(site), 30, "site a starts")
        return reader

    def writes_go_on(self, p, n=200):
        h = p.nbd("a", "v")
        began = time.monotonic()
        for i in range(n):
            h.pwrite(bytes([i % 251]) * pair.BLOCK, i * pair.BLOCK)
        self.assertLess(time.monotonic() - began, 20 * pair.SLOW)
        h.shutdown()

    def noise(self, p):
        """Things that are worth log lines."""
        for _ in range(400):
            p.ctl("a", "pause", "v")
            p.ctl("a", "resume", "v")
            if p.ended(p.sites["a"]):
                self.fail("the daemon died")

    def test_the_reader_dies(self):
        p = self.pair(volumes={"v": "16MiB"})
        os.close(self.with_stderr_in_a_pipe(p))
        p.kill9("b")
        p.start("b")
        self.writes_go_on(p)
        p.compare("v")

    def test_nobody_reads(self):
        p = self.pair(volumes={"v": "16MiB"})
        reader = self.with_stderr_in_a_pipe(p)
        self.noise(p)  # far more than a pipe and the ring hold
        self.writes_go_on(p)
        p.compare("v")
        os.kill(p.sites["a"].pid, signal.SIGTERM)  # and it can still be stopped
        pair.wait_for(lambda: p.ended(p.sites["a"]), 20, "site a stops although its log is stuck")
        os.close(reader)

    def test_json_lines(self):
        p = self.pair(volumes={"v": "16MiB"}, set={"both.log.format": "json"})
        p.kill9("b")
        p.start("b")
        p.compare("v")
        lines = p.log("a").splitlines()
        self.assertTrue(lines)
        for line in lines:
            self.assertIn("msg", json.loads(line))


if __name__ == "__main__":
    pair.main()
