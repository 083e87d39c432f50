"""Other people's clients at work: libnbd's tools, qemu's, fio, several connections at once."""
import json
import os
import random
import threading

import nbd
import nbdtest

SIZE = 64 << 20


class Clients(nbdtest.Case):
    def setUp(self):
        self.memserver = self.server(f"v:{SIZE}", f"w:{SIZE}")
        self.uri = self.memserver.uri("v")
        self.image = os.path.join(self.memserver.folder, "image")

    def make_image(self):
        """Data, holes, and an end that is not aligned to anything."""
        rng = random.Random(1)
        with open(self.image, "wb") as image:
            image.truncate(SIZE)
            for at in (0, 5 << 20, (9 << 20) + 4096, 40 << 20, SIZE - 70000):
                image.seek(at)
                image.write(rng.randbytes(70000))

    def test_nbdinfo(self):
        info = json.loads(self.run_ok("nbdinfo", "--json", self.uri))["exports"][0]
        self.assertEqual(info["export-size"], SIZE)
        self.assertEqual(info["export-name"], "v")
        self.assertEqual(info["description"], "sparse memory")
        for name in "can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero", "can_multi_conn", "can_df", "can_cache":
            self.assertTrue(info[name], name)
        self.assertFalse(info["is_read_only"])
        self.assertEqual((info["block_size_minimum"], info["block_size_preferred"], info["block_size_maximum"]),
                         (1, 4096, 32 << 20))
        self.assertEqual(info["contexts"], ["base:allocation"])
        listed = json.loads(self.run_ok("nbdinfo", "--json", "--list", self.memserver.uri("")))
        self.assertEqual([e["export-name"] for e in listed["exports"]], ["v", "w"])

    def test_nbdcopy_there_and_back(self):
        self.make_image()
        self.run_ok("nbdcopy", "--flush", self.image, self.uri)
        self.run_ok("nbdcopy", self.uri, self.image + ".back")
        self.run_ok("cmp", self.image, self.image + ".back")
        self.run_ok("nbdcopy", "--connections=4", self.uri, self.memserver.uri("w"))
        self.run_ok("qemu-img", "compare", "-f", "raw", "-F", "raw", self.uri, self.memserver.uri("w"))

    def test_qemu_img(self):
        self.make_image()
        self.run_ok("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", self.image, self.uri)
        self.run_ok("qemu-img", "compare", "-f", "raw", "-F", "raw", self.image, self.uri)
        mapped = json.loads(self.run_ok("qemu-img", "map", "--output=json", "-f", "raw", self.uri))
        self.assertTrue(any(not e["data"] and e["zero"] for e in mapped))
        self.assertEqual(sum(e["length"] for e in mapped), SIZE)
        self.assertLess(sum(e["length"] for e in mapped if e["data"]), 8 << 20)

    def test_qemu_io(self):
        def io(*commands):
            out = self.run_ok("qemu-io", "-f", "raw", *(part for c in commands for part in ("-c", c)), self.uri)
            self.assertNotIn("verification failed", out)
            self.assertNotIn("error", out.lower())
            return out

        io("write -P 1 0 1M", "write -f -P 2 4096 4096", "flush", "read -P 1 0 4096", "read -P 2 4096 4096")
        stats = self.memserver.stats()
        self.assertGreaterEqual(stats["fua"], 1)
        self.assertGreaterEqual(stats["flush"], 1)
        io("write -z 0 8192", "read -P 0 0 8192", "read -P 1 8192 4096")
        io("write -P 3 2M 1M", "write -z -u 2M 64k", "read -P 0 2M 64k", "read -P 3 2162688 64k")
        io("discard 2M 1M", "read -P 0 2M 1M")
        io("write -P 4 1023 513", "read -P 4 1023 513", "read -P 4 1500 30")
        io("aio_write -P 5 8M 4M", "aio_write -P 6 16M 4M", "aio_flush", "read -P 5 8M 4M", "read -P 6 16M 4M")

    def test_block_status(self):
        handle = nbd.NBD()
        handle.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
        handle.connect_uri(self.uri)

        def status(length, offset, flags=0):
            found = []
            handle.block_status(length, offset, lambda name, at, entries, error: found.extend(entries) or 0, flags)
            return list(zip(found[::2], found[1::2]))

        self.assertEqual(status(SIZE, 0), [(SIZE, 3)])
        handle.pwrite(b"x" * 10000, 8192)
        self.assertEqual(status(SIZE, 0), [(8192, 3), (12288, 0), (SIZE - 20480, 3)])
        self.assertEqual(status(SIZE, 0, nbd.CMD_FLAG_REQ_ONE), [(8192, 3)])
        self.assertEqual(status(100, 8200), [(100, 0)])
        for block in range(0, 2048, 2):  # more extents than fit in one reply: the rest is asked for again
            handle.pwrite(b"y" * 4096, (20 << 20) + block * 4096)
        entries = status(8 << 20, 20 << 20)
        self.assertGreater(len(entries), 16)
        self.assertTrue(all(length == 4096 for length, _ in entries))
        self.assertEqual([flags for _, flags in entries[:4]], [0, 3, 0, 3])
        handle.zero(12288, 8192)
        self.assertEqual(status(1 << 20, 0), [(1 << 20, 3)])
        handle.zero(4096, 0, nbd.CMD_FLAG_NO_HOLE)
        self.assertEqual(status(1 << 20, 0)[0], (4096, 0))
        handle.cache(4096, 0)
        handle.shutdown()

    def test_fio_verify(self):
        self.run_ok("fio", "--name=job", "--ioengine=nbd", f"--uri={self.uri}", "--rw=randrw", "--bsrange=512-128k",
                    "--blockalign=512", f"--size={SIZE}", "--iodepth=32", "--io_size=64m", "--verify=crc32c",
                    "--do_verify=1", "--verify_fatal=1", "--allow_file_create=0", "--verify_state_save=0",
                    timeout=200)

    def test_several_connections_at_once(self):
        failures = []

        def work(number):
            try:
                handle = nbd.NBD()
                handle.connect_uri(self.uri)
                rng = random.Random(number)
                base, mine = number * (8 << 20), bytearray(8 << 20)
                for _ in range(40):
                    at = rng.randrange(len(mine) - 65536)
                    data = rng.randbytes(rng.randrange(1, 65536))
                    handle.pwrite(data, base + at)
                    mine[at:at + len(data)] = data
                handle.flush()
                if bytes(handle.pread(len(mine), base)) != bytes(mine):
                    failures.append(f"{number}: other data")
                handle.shutdown()
            except Exception as error:  # the thread must not die unseen
                failures.append(f"{number}: {error}")

        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        nbdtest.wait_until(lambda: self.memserver.stats()["connections"] == 0)
        self.assertEqual(self.memserver.stats()["budget_used"], 0)


nbdtest.main()
