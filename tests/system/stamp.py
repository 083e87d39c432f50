"""STAMP and CHECK: a host that never forgets what it was told.

The writer keeps several connections busy with overlapping requests; every 4 KiB block it writes is filled with a stamp
(block number, sequence number).  It remembers each request: when it was sent, when and how it was answered.  From that
follows what a block may hold:

    A request is *over* once it is answered, or once its connection is gone.  A block must hold the data of one of the requests
    that touched it (or what it held at first), and of none that was over before another, acknowledged one was sent.

So acknowledged writes are never lost, nor is one that was over ever seen again over a newer one; concurrent ones may win in
either order, and one that was never acknowledged may have happened or not.  The same rule checks reads while it runs.

    writer = Stamp(pair, "v"); writer.start(); ...; writer.stop(); writer.check()
"""
import collections
import errno
import random
import select
import threading
import time

import nbd

import pair as harness

BLOCK = 4096
WORDS = BLOCK // 32
MAGIC = b"STAMPED!"
ZERO = bytes(BLOCK)
RECENT = 20000


def stamped(block, sequence):
    return (MAGIC + block.to_bytes(8, "little") + sequence.to_bytes(8, "little") + b"<-- ok\0\0") * WORDS


class Request:
    """One write (sequence > 0), zeroing or trim (sequence 0: the blocks read as zeroes)."""

    __slots__ = ("sequence", "sent", "over", "acknowledged")

    def __init__(self, sequence, sent):
        self.sequence, self.sent = sequence, sent
        self.over = None
        self.acknowledged = False


class Block:
    __slots__ = ("requests", "newest", "kept")

    def __init__(self):
        self.kept = 0
        first = Request(0, -1)
        first.over = -1
        self.requests = [first]
        self.newest = -1  # when the newest of the acknowledged requests was sent

    def prune(self):
        """Forgets what nothing can show any more, not even a read that was sent RECENT ticks ago."""
        if len(self.requests) > 2 * self.kept + 64:
            limit = self.newest - RECENT
            self.requests = [r for r in self.requests if r.over is None or r.over >= limit]
            self.kept = len(self.requests)

    def allowed(self, newest=None):
        """Sequence numbers that it may hold."""
        limit = self.newest if newest is None else newest
        return {r.sequence for r in self.requests if r.over is None or r.over >= limit}


class Connection:
    def __init__(self):
        self.handle = None
        self.retry_at = 0.0
        self.in_flight = {}  # cookie: operation


class Operation:
    def __init__(self, kind, first, count, request, begun, buffer=None, newest=None):
        self.kind, self.first, self.count, self.request = kind, first, count, request
        self.begun, self.buffer, self.newest = begun, buffer, newest


class Stamp:
    """site: where the host connects: a name, or a function that gives one (or None: nowhere now).  read_share, zero_share: of the requests.
    rate: at most that many requests a second.  allow: error numbers that a request may be answered with."""

    def __init__(self, pair, volume, site="a", size=None, connections=3, depth=4, hot=16, hot_share=0.3, read_share=0.1,
                 zero_share=0.0, blocks_max=8, rate=None, allow=(), seed=1, flush_share=0.02):
        self.pair, self.volume, self.site = pair, volume, site
        self.size = size or pair.status("a", volume)["volumes"][0]["size_bytes"]
        self.n_blocks = self.size // BLOCK
        self.depth, self.blocks_max = depth, blocks_max
        self.hot, self.hot_share = min(hot, self.n_blocks), hot_share
        self.read_share, self.zero_share, self.flush_share = read_share, zero_share, flush_share
        self.rate, self.allow = rate, set(allow)
        self.random = random.Random(seed)
        self.blocks = collections.defaultdict(Block)
        self.connections = [Connection() for _ in range(connections)]
        self.tick = self.sequence = 0
        self.acknowledged = 0
        self.errors = collections.Counter()
        self.latencies = []          # (when sent, seconds) of acknowledged writes, zeroings and trims
        self.problem = None
        self.thread = None
        self.command = "idle"        # what the thread is to do: run, drain, end
        self.drained = threading.Event()

    # ---- for tests

    def preset(self, number, sequence):
        """The block was given this stamp by something else."""
        request = Request(sequence, self.tick)
        request.over, request.acknowledged = self.tick, True
        self.blocks[number].requests = [request]
        self.blocks[number].newest = self.tick

    def start(self):
        self.command = "run"
        if not self.thread:
            self.thread = threading.Thread(target=self.guarded, daemon=True)
            self.thread.start()
        return self

    def quiesce(self, timeout=30):
        """Sends nothing more and waits for what is in flight to be answered."""
        self.drained.clear()
        self.command = "drain"
        if not self.drained.wait(timeout * harness.SLOW):
            raise harness.Failure(f"requests were not answered within {timeout} s")
        self.raise_problem()

    def stop(self, timeout=30):
        if self.thread and self.thread.is_alive() and not self.problem:
            self.quiesce(timeout)
        self.command = "end"
        if self.thread:
            self.thread.join(30)
        self.thread = None
        self.raise_problem()

    def raise_problem(self):
        if self.problem:
            raise harness.Failure(f"STAMP: {self.problem}")

    def wait_acknowledged(self, more=1, timeout=30):
        """Waits until that many requests more were acknowledged."""
        target = self.acknowledged + more
        harness.wait_for(lambda: self.problem or self.acknowledged >= target, timeout,
                         f"{more} more writes are acknowledged")
        self.raise_problem()

    def latency_max(self, since=0.0):
        return max((seconds for sent, seconds in self.latencies if sent >= since), default=0.0)

    def check(self, site=None, timeout=30):
        """Reads every block through the export (of a large volume: those it touched): all of it must be allowed.  Hosts
        must be quiet."""
        self.raise_problem()
        handle = self.pair.nbd(site or self.site_now(), self.volume, timeout)
        step = 256
        runs = [(first, min(step, self.n_blocks - first)) for first in range(0, self.n_blocks, step)]
        if self.n_blocks > 65536:
            runs = [(number, 1) for number in sorted(self.blocks)]
        for first, count in runs:
            data = handle.pread(count * BLOCK, first * BLOCK)
            for i in range(count):
                self.check_block(first + i, data[i * BLOCK:(i + 1) * BLOCK], "CHECK")
        self.raise_problem()
        handle.shutdown()
        return handle

    # ---- what a block may hold

    def check_block(self, number, data, where, newest=None):
        if number not in self.blocks:
            if data != ZERO:
                self.fail(f"{where}: block {number} was never written but is not zero: {data[:32].hex()}")
            return
        block = self.blocks[number]
        allowed = block.allowed(newest)
        sequence = self.sequence_of(number, data[:32])
        whole = ZERO if sequence == 0 else stamped(number, sequence)
        if sequence in allowed and data == whole:
            return
        # A request that was cut off may have been done in part, by sectors.
        found = {self.sequence_of(number, data[i:i + 32]) for i in range(0, BLOCK, 512)}
        if found <= allowed and all(data[i:i + 512] == (ZERO if s == 0 else stamped(number, s))[i:i + 512]
                                    for i in range(0, BLOCK, 512) for s in [self.sequence_of(number, data[i:i + 32])]):
            return
        known = [(r.sequence, r.sent, r.over, r.acknowledged) for r in block.requests[-8:]]
        self.fail(f"{where}: block {number} holds {found or sequence}, allowed {sorted(allowed)}; newest acknowledged "
                  f"sent at {block.newest}; (sequence, sent, over, acknowledged): {known}")

    @staticmethod
    def sequence_of(number, head):
        if head == ZERO[:32]:
            return 0
        if head[:8] != MAGIC or int.from_bytes(head[8:16], "little") != number:
            return -1
        return int.from_bytes(head[16:24], "little")

    def fail(self, text):
        if not self.problem:
            self.problem = text

    # ---- the thread

    def guarded(self):
        try:
            self.loop()
        except Exception as error:  # told to the test by raise_problem
            self.fail(f"{type(error).__name__}: {error}")
        finally:
            self.drained.set()
            for connection in self.connections:
                connection.handle = None

    def site_now(self):
        return self.site() if callable(self.site) else self.site

    def loop(self):
        next_at = time.monotonic()
        while self.command != "end" and not self.problem:
            now = time.monotonic()
            for connection in self.connections:
                if connection.handle is None and now >= connection.retry_at:
                    self.connect(connection)
                if self.command == "run" and connection.handle and connection.handle.aio_is_ready():
                    while len(connection.in_flight) < self.depth and (not self.rate or now >= next_at):
                        self.issue(connection)
                        if self.rate:
                            next_at = max(next_at + 1 / self.rate, now - 0.1)
            if self.command == "drain" and not any(c.in_flight for c in self.connections):
                self.drained.set()
            self.poll(next_at - now if self.rate and self.command == "run" else 0.05)

    def poll(self, seconds):
        poller = select.poll()
        by_fd = {}
        for connection in self.connections:
            if connection.handle and (connection.handle.aio_is_dead() or connection.handle.aio_is_closed()):
                self.complete(connection)
                self.lost(connection)
            if connection.handle is None:
                continue
            direction = connection.handle.aio_get_direction()
            events = (select.POLLIN if direction & nbd.AIO_DIRECTION_READ else 0) | (
                select.POLLOUT if direction & nbd.AIO_DIRECTION_WRITE else 0)
            fd = connection.handle.aio_get_fd()
            by_fd[fd] = connection
            poller.register(fd, events)
        for fd, events in poller.poll(max(1, min(50, int(seconds * 1000)))):
            self.notify(by_fd[fd], events)

    def notify(self, connection, events):
        handle = connection.handle
        try:
            direction = handle.aio_get_direction()
            if direction & nbd.AIO_DIRECTION_READ and events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                handle.aio_notify_read()
            elif direction & nbd.AIO_DIRECTION_WRITE and events & (select.POLLOUT | select.POLLHUP | select.POLLERR):
                handle.aio_notify_write()
        except nbd.Error:
            pass
        self.complete(connection)
        if handle.aio_is_dead() or handle.aio_is_closed():
            self.lost(connection)

    def connect(self, connection):
        connection.retry_at = time.monotonic() + 0.05
        handle = nbd.NBD()
        handle.set_export_name(self.volume)
        site = self.site_now()
        if site is None:
            return
        try:
            handle.aio_connect_unix(self.pair.sites[site].nbd)
        except nbd.Error:
            return
        connection.handle = handle

    def lost(self, connection):
        self.tick += 1
        for operation in connection.in_flight.values():
            if operation.request:
                operation.request.over = self.tick
        connection.in_flight.clear()
        connection.handle = None

    def choose(self):
        """First block and number of blocks of a request."""
        count = self.random.randint(1, self.blocks_max)
        top = self.hot if self.random.random() < self.hot_share else self.n_blocks
        first = self.random.randrange(top)
        return first, min(count, self.n_blocks - first)

    def issue(self, connection):
        first, count = self.choose()
        dice = self.random.random()
        self.tick += 1
        now = time.monotonic()
        handle = connection.handle
        try:
            if dice < self.read_share:
                buffer = nbd.Buffer(count * BLOCK)
                newest = [self.blocks[first + i].newest for i in range(count)]
                cookie = handle.aio_pread(buffer, first * BLOCK)
                operation = Operation("read", first, count, None, now, buffer, newest)
            elif dice < self.read_share + self.flush_share:
                cookie = handle.aio_flush()
                operation = Operation("flush", 0, 0, None, now)
            else:
                cookie, operation = self.change(handle, first, count, dice, now)
        except nbd.Error:
            return  # the connection is broken: seen by poll
        connection.in_flight[cookie] = operation

    def change(self, handle, first, count, dice, now):
        if dice > 1 - self.zero_share:
            sequence = 0
            if self.random.random() < 0.5:
                cookie = handle.aio_trim(count * BLOCK, first * BLOCK)
            else:
                cookie = handle.aio_zero(count * BLOCK, first * BLOCK)
        else:
            self.sequence += 1
            sequence = self.sequence
            data = bytearray(b"".join(stamped(first + i, sequence) for i in range(count)))
            cookie = handle.aio_pwrite(nbd.Buffer.from_bytearray(data), first * BLOCK)
        request = Request(sequence, self.tick)
        for i in range(count):
            block = self.blocks[first + i]
            block.prune()
            block.requests.append(request)
        return cookie, Operation("change", first, count, request, now)

    def complete(self, connection):
        for cookie in list(connection.in_flight):
            try:
                if not connection.handle.aio_command_completed(cookie):
                    continue
                error = 0
            except nbd.Error as failure:
                if failure.errnum == errno.ENOTCONN or connection.handle.aio_is_dead():
                    continue  # the connection is gone; see lost
                error = failure.errnum
            operation = connection.in_flight.pop(cookie)
            self.tick += 1
            self.answered(operation, error)

    def answered(self, operation, error):
        if operation.request:
            operation.request.over = self.tick
        if error == errno.ESHUTDOWN:
            return  # the server is stopping: as if the connection had gone
        if error:
            self.errors[error] += 1
            if error not in self.allow:
                self.fail(f"{operation.kind} at block {operation.first}: {errno.errorcode.get(error, error)}")
            return
        if operation.kind == "read":
            data = operation.buffer.to_bytearray()
            for i in range(operation.count):
                self.check_block(operation.first + i, bytes(data[i * BLOCK:(i + 1) * BLOCK]), "read",
                                 operation.newest[i])
        elif operation.request:
            operation.request.acknowledged = True
            self.acknowledged += 1
            self.latencies.append((operation.begun, time.monotonic() - operation.begun))
            for i in range(operation.count):
                block = self.blocks[operation.first + i]
                block.newest = max(block.newest, operation.request.sent)
