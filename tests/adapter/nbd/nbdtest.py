"""What the tests of the NBD wire share: a memserver, a raw client, and other people's clients."""
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

MEMSERVER = os.environ["MEMSERVER"]
IHAVEOPT = 0x49484156454F5054
EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED, LIST_META, SET_META = 1, 2, 3, 5, 6, 7, 8, 9, 10
ACK, SERVER, REP_INFO = 1, 2, 3
ERR_UNSUP, ERR_POLICY, ERR_INVALID, ERR_TLS_REQD, ERR_UNKNOWN, ERR_TOO_BIG = (
    0x80000001, 0x80000002, 0x80000003, 0x80000005, 0x80000006, 0x80000009)


def wait_until(condition, seconds=20):
    """Polls; the machine may be slow, so the limit is generous and only reached by a failure."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError("condition not met in time")


class MemServer:
    def __init__(self, *args, tcp=False, nofile=None):
        self.folder = tempfile.mkdtemp(prefix="sr-nbd-")
        self.path = os.path.join(self.folder, "nbd")
        self.port = None
        self.log = open(os.path.join(self.folder, "log"), "w+")
        command = [MEMSERVER, *(["--tcp"] if tcp else ["--unix", self.path]), *args]
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))) if nofile else None
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        preexec_fn=limit)
        line = self.process.stdout.readline()
        if line.startswith("port "):
            self.port = int(line.split()[1])
            line = self.process.stdout.readline()
        if line != "ready\n":
            raise AssertionError("the server did not start: " + self.log_text())

    def log_text(self):
        with open(self.log.name) as log:
            return log.read()

    def uri(self, export):
        if self.port:
            return f"nbd://127.0.0.1:{self.port}/{export}"
        return f"nbd+unix:///{export}?socket={self.path}"

    def stats(self):
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(self.process.stdout.readline())

    def connect(self, timeout=20, rcvbuf=None):
        sock = socket.socket(socket.AF_INET if self.port else socket.AF_UNIX)
        if rcvbuf:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        sock.settimeout(timeout)
        sock.connect(("127.0.0.1", self.port) if self.port else self.path)
        return sock

    def stop(self):
        """Ends the server in order; a sanitizer's finding or a failed assertion fails the test."""
        try:
            self.process.send_signal(signal.SIGTERM)
            code = self.process.wait(timeout=30)
            if code != 0:
                raise AssertionError(f"the server ended with {code}:\n{self.log_text()}")
            if os.path.exists(self.path):
                raise AssertionError("the socket was left behind")
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self.process.stdout.close()
            self.log.close()
            shutil.rmtree(self.folder)


class Case(unittest.TestCase):
    def server(self, *args, **kwargs):
        server = MemServer(*args, **kwargs)
        self.addCleanup(server.stop)
        return server

    def run_ok(self, *command, timeout=120):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
        self.assertEqual(done.returncode, 0, f"{' '.join(command)}\n{done.stdout}")
        return done.stdout


def receive(sock, size):
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise EOFError(f"{len(data)} of {size} bytes")
        data += part
    return data


def greet(sock, flags=3):
    magic, option_magic, offered = struct.unpack(">QQH", receive(sock, 18))
    assert magic == 0x4E42444D41474943 and option_magic == IHAVEOPT and offered == 3
    sock.sendall(struct.pack(">I", flags))


def send_option(sock, option, data=b"", length=None):
    sock.sendall(struct.pack(">QII", IHAVEOPT, option, len(data) if length is None else length) + data)


def read_replies(sock, option):
    """All replies to one option, up to the final one: [(type, data)]."""
    replies = []
    while True:
        magic, answered, kind, size = struct.unpack(">QIII", receive(sock, 20))
        assert magic == 0x3E889045565A9 and answered == option
        replies.append((kind, receive(sock, size)))
        if kind == ACK or kind & 0x80000000:
            return replies


def ask(sock, option, data=b""):
    send_option(sock, option, data)
    return read_replies(sock, option)


def go_data(name, infos=()):
    return struct.pack(">I", len(name)) + name + struct.pack(f">H{len(infos)}H", len(infos), *infos)


def go(sock, name=b"v", flags=3):
    greet(sock, flags)
    replies = ask(sock, GO, go_data(name))
    assert replies[-1][0] == ACK, replies
    return replies


def request(command, cookie, offset=0, length=0, flags=0, data=b"", magic=0x25609513):
    return struct.pack(">IHHQQI", magic, flags, command, cookie, offset, length) + data


def simple_reply(sock, data_bytes=0):
    magic, error, cookie = struct.unpack(">IIQ", receive(sock, 16))
    assert magic == 0x67446698, hex(magic)
    return error, cookie, receive(sock, data_bytes) if data_bytes and not error else b""


def closed_by_server(sock):
    """True once the server has closed: an orderly end or a reset."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def main():
    unittest.main(verbosity=2)
