"""Each wrong request gets its own error and leaves the stream in step (a good read follows every one)."""
import errno

import nbd
import nbdtest
from nbdtest import go, receive, request, simple_reply, closed_by_server

SIZE = 1 << 20
PATTERN = bytes(range(256)) * 16
READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZEROES, STATUS = range(8)


class Errors(nbdtest.Case):
    def setUp(self):
        self.memserver = self.server(f"v:{SIZE}", f"r:{SIZE},ro", f"bad:{SIZE + 4096}", f"slow:{SIZE},slowzero")
        self.sock = self.memserver.connect()
        self.addCleanup(self.sock.close)
        self.cookie = 0

    def open(self, name=b"v"):
        go(self.sock, name)
        if name == b"v":
            self.assertEqual(self.call(WRITE, 0, 4096, data=PATTERN), 0)

    def call(self, command, offset, length, flags=0, data=b""):
        self.cookie += 1
        self.sock.sendall(request(command, self.cookie, offset, length, flags, data))
        error, cookie, _ = simple_reply(self.sock, length if command == READ else 0)
        self.assertEqual(cookie, self.cookie)
        return error

    def good_read(self, want=PATTERN):
        self.cookie += 1
        self.sock.sendall(request(READ, self.cookie, 0, 4096))
        self.assertEqual(simple_reply(self.sock, 4096), (0, self.cookie, want))

    def expect(self, error, *args, **kwargs):
        self.assertEqual(self.call(*args, **kwargs), error)
        self.good_read()

    def test_beyond_the_end(self):
        self.open()
        self.expect(errno.ENOSPC, WRITE, SIZE - 4096, 8192, data=b"x" * 8192)
        self.expect(errno.ENOSPC, WRITE, SIZE, 1, data=b"x")
        for command in READ, TRIM, ZEROES, CACHE:
            self.expect(errno.EINVAL, command, SIZE - 4096, 8192)

    def test_offset_and_length_that_wrap_around(self):
        self.open()
        self.expect(errno.ENOSPC, WRITE, 2**64 - 4096, 8192, data=b"x" * 8192)
        for command in READ, TRIM, ZEROES, CACHE:
            self.expect(errno.EINVAL, command, 2**64 - 1, 2**32 - 1)

    def test_empty_requests(self):
        self.open()
        for command in READ, WRITE, TRIM, ZEROES, CACHE, STATUS:
            self.expect(errno.EINVAL, command, 0, 0)

    def test_unknown_commands_and_flags(self):
        self.open()
        for command in 8, 9, 255, 0xFFFF:
            self.expect(errno.EINVAL, command, 0, 4096)
        for command in READ, TRIM, ZEROES, CACHE:
            self.expect(errno.EINVAL, command, 0, 4096, flags=0x8000)
        self.expect(errno.EINVAL, WRITE, 0, 4096, flags=0x8000, data=b"x" * 4096)
        self.expect(errno.EINVAL, FLUSH, 0, 0, flags=0x20)
        self.expect(errno.EINVAL, FLUSH, 0, 4096)
        self.expect(errno.EINVAL, READ, 0, 4096, flags=4)  # DF without structured replies
        self.expect(errno.EINVAL, STATUS, 0, 4096)  # no context was chosen
        self.expect(0, READ, 4096, 4096, flags=1)  # FUA may come with any command

    def test_too_long(self):
        self.open()
        big = (32 << 20) + 1
        self.expect(errno.ENOSPC, WRITE, 0, big, data=bytes(big))
        self.expect(errno.EINVAL, READ, 0, big)
        self.expect(errno.EINVAL, TRIM, 0, 2**32 - 1)

    def test_a_write_that_nobody_would_send_ends_the_connection(self):
        self.open()
        self.sock.sendall(request(WRITE, 9, 0, 2**32 - 1))
        self.assertTrue(closed_by_server(self.sock))

    def test_bad_magic_ends_the_connection(self):
        self.open()
        self.sock.sendall(request(READ, 9, 0, 4096, magic=0x25609514))
        self.assertTrue(closed_by_server(self.sock))

    def test_read_only(self):
        self.open(b"r")
        zeroes = bytes(4096)
        self.assertEqual(self.call(WRITE, 0, 1 << 20, data=b"x" * (1 << 20)), errno.EPERM)
        self.good_read(zeroes)
        for command in TRIM, ZEROES:
            self.assertEqual(self.call(command, 0, 4096), errno.EPERM)
            self.good_read(zeroes)
        self.assertEqual(self.call(FLUSH, 0, 0), 0)

    def test_an_error_from_below(self):
        self.open(b"bad")
        self.assertEqual(self.call(READ, SIZE, 4096), errno.EIO)
        self.assertEqual(self.call(WRITE, SIZE, 4096, data=bytes(4096)), errno.EIO)
        self.good_read(bytes(4096))

    def test_pipelined_good_and_bad(self):
        self.open()
        batch = b"".join(
            request(READ, 100 + i, 0, 4096) + request(WRITE, 200 + i, SIZE, 512, data=b"y" * 512) for i in range(20))
        self.sock.sendall(batch)
        good = bad = 0
        for _ in range(40):
            error, cookie = nbdtest.struct.unpack(">4xIQ", receive(self.sock, 16))
            if cookie < 200:
                self.assertEqual((error, receive(self.sock, 4096)), (0, PATTERN))
                good += 1
            else:
                self.assertEqual(error, errno.ENOSPC)
                bad += 1
        self.assertEqual((good, bad), (20, 20))

    def test_errors_in_structured_replies(self):
        handle = nbd.NBD()
        handle.set_strict_mode(0)
        handle.connect_uri(self.memserver.uri("v"))
        handle.pwrite(PATTERN, 0)
        for wrong, number in ((lambda: handle.pread(8192, SIZE - 4096), errno.EINVAL),
                              (lambda: handle.pwrite(b"x" * 4096, SIZE), errno.ENOSPC),
                              (lambda: handle.pread(0, 0), errno.EINVAL),
                              (lambda: handle.trim(0, 0), errno.EINVAL),
                              (lambda: handle.zero(4096, 0, 0x1000), errno.EINVAL),
                              (lambda: handle.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE),
                               errno.EOPNOTSUPP)):
            with self.assertRaises(nbd.Error) as caught:
                wrong()
            self.assertEqual(caught.exception.errnum, number)
            self.assertEqual(bytes(handle.pread(4096, 0)), PATTERN)
        self.assertEqual(bytes(handle.pread(65536, 65536)), bytes(65536))  # a hole chunk
        self.assertEqual(bytes(handle.pread_structured(8192, 0, lambda *_: 0, nbd.CMD_FLAG_DF)), PATTERN + bytes(4096))
        self.assertTrue(handle.can_fast_zero())
        handle.shutdown()

    def test_fast_zero_is_offered_only_where_it_is_fast(self):
        handle = nbd.NBD()
        handle.connect_uri(self.memserver.uri("slow"))
        self.assertFalse(handle.can_fast_zero())
        self.assertTrue(handle.can_zero())
        handle.shutdown()


nbdtest.main()
