#!/usr/bin/env python3
"""The wire between the two sites, which can be cut: a TCP proxy in front of each site's peer address.

    proxy.py CONFIG_A CONFIG_B          prints "ports TO_A TO_B"

Site a dials TO_B, site b dials TO_A.  Where they lead to is read from `listen` of the configurations when a connection
comes in.  Commands on stdin, each answered by "ok":

    cut both|ab|ba    nothing passes any more in that direction, no reset, no end; new connections hang
    heal both|ab|ba   everything passes again, what was held back first
    drop              reset all connections (new ones are taken)
    delay MS          each direction takes that much longer
    rate BYTES        a second, in each direction; 0: no limit

Ends with stdin.
"""
import collections
import re
import selectors
import socket
import struct
import subprocess
import sys
import time

CHUNK = 256 * 1024
HELD_MAX = 4 * 1024 * 1024  # of one direction; beyond, the sender's window fills up, as on a real wire


def listen_address(config):
    """First peer address that a site listens on."""
    with open(config) as file:
        text = file.read()
    found = re.search(r"^listen:\s*(?:\[|-|\n)?\s*-?\s*[\"']?([^\s\"',\]]+):(\d+)", text, re.M)
    return found.group(1), int(found.group(2))


class Pipe:
    """One direction of one connection."""

    def __init__(self, source, sink, direction):
        self.source, self.sink, self.direction = source, sink, direction
        self.held = collections.deque()  # (due, bytes)
        self.held_bytes = 0
        self.ended = False   # the source sent its end
        self.passed = False  # and the sink was told


class Connection:
    def __init__(self, inner, outer, direction):
        back = "ba" if direction == "ab" else "ab"
        self.sockets = (inner, outer)
        self.pipes = (Pipe(inner, outer, direction), Pipe(outer, inner, back))
        self.connecting = True


class Wire:
    def __init__(self, config_a, config_b):
        self.listeners = {}
        for direction, config in (("ba", config_a), ("ab", config_b)):
            listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            listener.setblocking(False)
            self.listeners[direction] = (listener, config)
        self.connections = []
        self.is_cut = {"ab": False, "ba": False}
        self.delay = 0.0
        self.rate = 0
        self.tokens = {"ab": 0.0, "ba": 0.0}
        self.refilled = time.monotonic()
        self.input = b""

    def ports(self):
        return [self.listeners[direction][0].getsockname()[1] for direction in ("ba", "ab")]

    # ---- commands

    def command(self, line):
        word, *rest = line.split()
        if word == "cut":
            for direction in ("ab", "ba") if rest[0] == "both" else (rest[0],):
                self.is_cut[direction] = True
        elif word == "heal":
            for direction in ("ab", "ba") if rest[0] == "both" else (rest[0],):
                self.is_cut[direction] = False
        elif word == "drop":
            for connection in list(self.connections):
                self.close(connection, reset=True)
        elif word == "delay":
            self.delay = float(rest[0]) / 1000
        elif word == "rate":
            self.rate = int(rest[0])
        else:
            raise ValueError(line)
        print("ok", flush=True)

    def read_commands(self):
        data = sys.stdin.buffer.raw.read(4096)
        if not data:
            return False
        *lines, self.input = (self.input + data).split(b"\n")
        for line in lines:
            self.command(line.decode())
        return True

    # ---- connections

    def accept(self, direction):
        listener, config = self.listeners[direction]
        try:
            inner, _ = listener.accept()
        except OSError:
            return
        outer = socket.socket()
        for sock in (inner, outer):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            outer.connect_ex(listen_address(config))
        except (OSError, AttributeError):
            pass  # seen as an error of the socket below
        self.connections.append(Connection(inner, outer, direction))

    def close(self, connection, reset=False):
        for sock in connection.sockets:
            if reset:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
        self.connections.remove(connection)

    def receive(self, connection, pipe):
        try:
            data = pipe.source.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self.close(connection, reset=True)
            return
        if not data:
            pipe.ended = True
        else:
            pipe.held.append((time.monotonic() + self.delay, data))
            pipe.held_bytes += len(data)

    def send(self, connection, pipe, now):
        """Passes on what is due; returns False if the connection broke."""
        while pipe.held and pipe.held[0][0] <= now and not self.is_cut[pipe.direction]:
            due, data = pipe.held.popleft()
            most = len(data)
            if self.rate:
                most = min(most, int(self.tokens[pipe.direction]))
                if most == 0:
                    pipe.held.appendleft((due, data))
                    return True
            try:
                sent = pipe.sink.send(data[:most])
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close(connection, reset=True)
                return False
            self.tokens[pipe.direction] -= sent
            pipe.held_bytes -= sent
            if sent < len(data):
                pipe.held.appendleft((due, data[sent:]))
                return True
        if pipe.ended and not pipe.held and not pipe.passed and not self.is_cut[pipe.direction]:
            pipe.passed = True
            try:
                pipe.sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass
        return True

    # ---- the loop

    def refill(self, now):
        if self.rate:
            for direction in self.tokens:
                self.tokens[direction] = min(self.rate * 0.1, self.tokens[direction] + self.rate * (now - self.refilled))
        self.refilled = now

    def wishes(self, now):
        """What to wait for: {socket: events} and the latest time to wake up."""
        wanted, wake = collections.defaultdict(int), now + 3600
        for connection in self.connections:
            if connection.connecting:
                wanted[connection.sockets[1]] |= selectors.EVENT_WRITE
                continue
            for pipe in connection.pipes:
                if self.is_cut[pipe.direction]:
                    continue
                if not pipe.ended and pipe.held_bytes < HELD_MAX:
                    wanted[pipe.source] |= selectors.EVENT_READ
                if pipe.held:
                    if pipe.held[0][0] > now:
                        wake = min(wake, pipe.held[0][0])
                    elif self.rate and self.tokens[pipe.direction] < 1:
                        wake = min(wake, now + 0.005)
                    else:
                        wanted[pipe.sink] |= selectors.EVENT_WRITE
        return wanted, wake

    def serve(self, connection, ready, now):
        if connection.connecting:
            outer = connection.sockets[1]
            if not ready.get(outer):
                return
            connection.connecting = False
            if outer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
                self.close(connection, reset=True)
                return
        for pipe in connection.pipes:
            if ready.get(pipe.source, 0) & selectors.EVENT_READ and not pipe.ended:
                self.receive(connection, pipe)
            if connection not in self.connections or not self.send(connection, pipe, now):
                return
        if all(pipe.passed for pipe in connection.pipes):
            self.close(connection)

    def run(self):
        while True:
            now = time.monotonic()
            self.refill(now)
            wanted, wake = self.wishes(now)
            with selectors.DefaultSelector() as selector:
                selector.register(sys.stdin, selectors.EVENT_READ)
                if not any(self.is_cut.values()):
                    for listener, _ in self.listeners.values():
                        selector.register(listener, selectors.EVENT_READ)
                for sock, events in wanted.items():
                    selector.register(sock, events)
                ready = {key.fileobj: events for key, events in selector.select(max(0, wake - now))}
            if sys.stdin in ready and not self.read_commands():
                return
            for direction, (listener, _) in self.listeners.items():
                if listener in ready:
                    self.accept(direction)
            now = time.monotonic()
            for connection in list(self.connections):
                if connection in self.connections:
                    self.serve(connection, ready, now)


class Proxy:
    """The proxy as a process of a test: Proxy(config_a, config_b), then cut(), heal() and the rest."""

    def __init__(self, config_a, config_b):
        self.process = subprocess.Popen([sys.executable, "-B", __file__, config_a, config_b], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.to_a, self.to_b = (int(word) for word in self.process.stdout.readline().split()[1:])

    def command(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline() != "ok\n":
            raise AssertionError(f"the proxy failed at '{line}'")

    def cut(self, direction="both"):
        self.command(f"cut {direction}")

    def heal(self, direction="both"):
        self.command(f"heal {direction}")

    def drop(self):
        self.command("drop")

    def delay(self, ms):
        self.command(f"delay {ms}")

    def rate(self, bytes_per_s):
        self.command(f"rate {bytes_per_s}")

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()


def main():
    wire = Wire(*sys.argv[1:3])
    print("ports", *wire.ports(), flush=True)
    wire.run()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
