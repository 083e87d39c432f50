#!/usr/bin/python3
"""Clients that nobody here wrote, through a real pair: afterwards in sync, and both copies equal."""
import json
import os
import random

import pair
import tools
from tools import run_ok

SIZE = 64 << 20


class Clients(pair.Case):
    def setUp(self):
        self.p = self.pair(volumes={"v": "64MiB"})
        self.image = os.path.join(self.p.folder, "image")

    def make_image(self):
        """Data, holes, and pieces that are aligned to nothing."""
        rng = random.Random(1)
        with open(self.image, "wb") as image:
            image.truncate(SIZE)
            for at in (0, 5 << 20, (9 << 20) + 4096, 40 << 20, SIZE - 700000):
                image.seek(at)
                image.write(rng.randbytes(700000))

    def both(self):
        return [tools.uri(self.p, "a", "v"), tools.uri(self.p, "a", "v", tcp=True)]

    def same_everywhere(self):
        self.p.compare("v")
        for site in pair.SITES:
            self.assertIsNone(pair.difference(self.image, self.p.image(site, "v")), f"copy of site {site}")

    def test_nbdinfo(self):
        for uri in self.both():
            info = json.loads(run_ok("nbdinfo", "--json", uri))["exports"][0]
            self.assertEqual((info["export-name"], info["export-size"]), ("v", SIZE))
            for flag in "can_flush", "can_fua", "can_trim", "can_zero", "can_multi_conn", "can_df", "can_cache":
                self.assertTrue(info[flag], flag)
            self.assertFalse(info["is_read_only"])
            self.assertEqual(info["contexts"], ["base:allocation"])
            self.assertEqual([info[f"block_size_{what}"] for what in ("minimum", "preferred", "maximum")],
                             [1, 4096, 32 << 20])
        listed = json.loads(run_ok("nbdinfo", "--json", "--list", tools.uri(self.p, "a", "")))
        self.assertEqual([export["export-name"] for export in listed["exports"]], ["v"])

    def test_nbdcopy_there_and_back(self):
        for uri in self.both():
            self.make_image()
            run_ok("nbdcopy", "--flush", self.image, uri)
            run_ok("nbdcopy", uri, self.image + ".back")
            self.assertIsNone(pair.difference(self.image, self.image + ".back"))
            self.same_everywhere()
            for site in pair.SITES:
                self.assertLess(os.stat(self.p.image(site, "v")).st_blocks * 512, SIZE // 4, "holes stay holes")

    def test_qemu_img(self):
        self.make_image()
        unix, tcp = self.both()
        run_ok("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", self.image, unix)
        run_ok("qemu-img", "compare", "-f", "raw", "-F", "raw", self.image, tcp)
        mapped = json.loads(run_ok("qemu-img", "map", "--output=json", "-f", "raw", tcp))
        self.assertEqual(sum(one["length"] for one in mapped), SIZE)
        self.assertLess(sum(one["length"] for one in mapped if one["data"]), SIZE // 4)
        self.same_everywhere()

    def io(self, *commands, uri=None):
        out = run_ok("qemu-io", "-f", "raw", *(part for one in commands for part in ("-c", one)), uri or self.both()[0])
        self.assertNotIn("verification failed", out)
        self.assertNotIn("error", out.lower())
        return out

    def test_qemu_io(self):
        for uri in self.both():
            self.io("write -P 1 0 1M", "write -f -P 2 4096 4096", "flush", "read -P 1 0 4096", "read -P 2 4096 4096",
                    "write -z 0 8192", "read -P 0 0 8192", "read -P 1 8192 4096",
                    "write -P 3 2M 1M", "write -z -u 2M 64k", "read -P 0 2M 64k", "read -P 3 2162688 64k",
                    "discard 2M 1M", "read -P 0 2M 1M",
                    "write -P 4 1023 513", "read -P 4 1023 513", "read -P 4 1500 30",
                    "write -z -f 1000 1000", "read -P 0 1000 1000",
                    "aio_write -P 5 8M 4M", "aio_write -P 6 16M 4M", "aio_flush", "read -P 5 8M 4M", "read -P 6 16M 4M",
                    uri=uri)
            self.assertIn("64 MiB (0x4000000) bytes", self.io("map", uri=uri).replace("not allocated", "allocated"))
            self.p.compare("v")

    def test_trimmed_areas_are_holes_at_both_sites(self):
        mib = 1 << 20
        for command in "discard 8M 4M", "write -z -u 8M 4M":
            self.io("write -P 7 4M 12M")
            for site in pair.SITES:
                self.assertFalse(tools.is_hole(self.p.image(site, "v"), 8 * mib, 4096))
            self.io(command, "read -P 0 8M 4M", "read -P 7 4M 4M", "read -P 7 12M 4M")
            for site in pair.SITES:
                self.assertTrue(tools.is_hole(self.p.image(site, "v"), 8 * mib, 4 * mib), f"{command} at {site}")
            self.p.compare("v")
        self.io("write -z 8M 4M", "read -P 0 8M 4M")  # without -u the space stays taken
        for site in pair.SITES:
            self.assertGreaterEqual(os.stat(self.p.image(site, "v")).st_blocks * 512, 12 * mib, f"write -z at {site}")
        self.io("discard 0 64M", "read -P 0 0 64M")
        for site in pair.SITES:
            self.assertTrue(tools.is_hole(self.p.image(site, "v"), 0, SIZE), f"all of it at {site}")
        self.p.compare("v")

    def test_trim_at_odd_edges_touches_nothing_else(self):
        self.io("write -P 9 0 1M", "discard 5000 100000", "read -P 9 0 5000", "read -P 9 105000 943576",
                "read -P 0 8192 94208")
        self.p.compare("v")

    def test_fio_with_several_jobs(self):
        share = SIZE // 4
        out = run_ok("fio", "--ioengine=nbd", f"--uri={self.both()[1]}", "--rw=randrw", "--bsrange=512-64k",
                     "--blockalign=512", f"--size={share}", f"--offset_increment={share}", "--numjobs=4", "--iodepth=16",
                     "--io_size=8m", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--verify_state_save=0",
                     "--allow_file_create=0", "--group_reporting", "--name=job", timeout=200)
        self.assertIn("err= 0", out)
        self.p.compare("v")

    def test_the_alternate_refuses_and_names_the_active_site(self):
        for tcp in False, True:
            code, out = tools.run("qemu-img", "info", tools.uri(self.p, "b", "v", tcp))  # prints what the server says
            self.assertNotEqual(code, 0)
            self.assertRegex(out, r"'?v'?.*active.*\ba\b|active at site a", "names volume and site")
            self.assertNotEqual(tools.run("nbdinfo", tools.uri(self.p, "b", "v", tcp))[0], 0)
        code, out = tools.run("nbdinfo", tools.uri(self.p, "b", "nothing"))
        self.assertNotEqual(code, 0)
        self.assertNotIn("site a", out)
        listed = json.loads(run_ok("nbdinfo", "--json", "--list", tools.uri(self.p, "b", "")) or "{}")
        self.assertEqual([export["export-name"] for export in listed.get("exports", [])], [])


class Connections(pair.Case):
    def test_a_flush_covers_what_other_connections_wrote(self):
        """MULTI_CONN: what one connection was told is done, another one reads, and its flush covers it at both sites."""
        p = self.pair(volumes={"v": "16MiB"})
        writer, other = p.nbd("a", "v"), p.nbd("a", "v")
        self.assertTrue(writer.can_multi_conn() and other.can_multi_conn())
        rng = random.Random(3)
        wanted = {}
        for turn in range(30):
            at = rng.randrange(4000) * 4096
            wanted[at] = rng.randbytes(4096)
            writer.pwrite(wanted[at], at)
            self.assertEqual(other.pread(4096, at), wanted[at])
            other.flush()
            for site in pair.SITES:  # from the disk itself, as far as the file system tells
                self.assertEqual(self.direct(p.image(site, "v"), at), wanted[at], f"copy of site {site}")
        p.kill9("a", "b")
        for site in pair.SITES:
            p.start(site)
        p.wait_sync("v")
        reader = p.nbd("a", "v")
        for at, data in wanted.items():
            self.assertEqual(reader.pread(4096, at), data)
        p.compare("v")

    @staticmethod
    def direct(path, at):
        fd = os.open(path, os.O_RDONLY)
        try:
            return os.pread(fd, 4096, at)
        finally:
            os.close(fd)


if __name__ == "__main__":
    pair.main()
