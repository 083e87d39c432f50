"""The largest volume, 64 TiB, in pools that hold such files (tmpfs): sparse at both sites, tracked and resynced at its ends."""
import os

import pair
import tools

SIZE = 64 << 40


class Largest(pair.Case):
    def prepare(self, p):
        for site in pair.SITES:
            pair.mount_small(os.path.join(p.folder, site, "pool"), 64 * pair.MIB, "tmpfs")
            p.at_end(lambda folder=os.path.join(p.folder, site, "pool"): tools.run("umount", folder))

    def test_64_tib(self):
        p = self.pair(prepare=self.prepare, set={"both.stall_budget": "500ms"})
        done = p.ctl("a", "volume", "create", "v", "--size", "64TiB", "--wait=30s")
        self.assertEqual(done.code, 0, done)
        h = p.nbd("a", "v")
        self.assertEqual(h.get_size(), SIZE)
        ends = (0, SIZE // 2, SIZE - 4096)
        for at in ends:
            h.pwrite(at.to_bytes(8, "little") * 512, at)
        p.kill9("b")
        for at in ends:
            h.pwrite(bytes([7]) * 512, at)
        status = p.wait_status("a", "v", sync="out-of-sync")
        self.assertEqual(status["dirty_blocks"], len(ends))
        h.trim(1 << 31, 1 << 40)
        p.start("b")
        p.wait_sync("v")
        self.assertLess(p.status("a", "v")["counters"]["copied_bytes"], 4 * pair.MIB)
        for site in pair.SITES:
            with open(p.image(site, "v"), "rb") as image:
                self.assertEqual(os.fstat(image.fileno()).st_size, SIZE)
                self.assertLess(os.fstat(image.fileno()).st_blocks * 512, pair.MIB)
                for at in ends:
                    image.seek(at)
                    self.assertEqual(image.read(4096), bytes([7]) * 512 + (at.to_bytes(8, "little") * 512)[512:])
            print(f"   memory of {site}: {tools.rss_bytes(p.sites[site].pid) / pair.MIB:.1f} MiB")
        # Both gone at once: what is suspect is compared, and no more.
        p.kill9("b")
        h.shutdown()
        p.kill9("a")
        for site in pair.SITES:
            p.start(site)
        p.wait_sync("v")


if __name__ == "__main__":
    if os.geteuid() != 0:
        pair.skip("mounting needs root")
    pair.own_mounts()
    pair.main()
