#!/usr/bin/python3
"""A file system on a loop mount over nbdfuse: made, filled, checked, mounted again, and equal at both sites."""
import hashlib
import os
import shutil
import subprocess
import sys

import guardian
import pair
import tools
from tools import run_ok

SOURCE = "/usr/share/doc"
ENOUGH_BYTES = 10 << 20


def digests(folder):
    """{path below the folder: digest of the contents}"""
    found = {}
    for top, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(top, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
    return found


def copy_some(target):
    """Copies packages' documentation until there is enough."""
    copied = 0
    for name in sorted(os.listdir(SOURCE)):
        folder = os.path.join(SOURCE, name)
        if copied > ENOUGH_BYTES or not os.path.isdir(folder) or os.path.islink(folder):
            continue
        shutil.copytree(folder, os.path.join(target, name), symlinks=True, ignore_dangling_symlinks=True)
        copied += sum(os.lstat(os.path.join(top, one)).st_size for top, _, names in os.walk(folder) for one in names)
    for top, _, names in os.walk(target):
        for path in [top] + [os.path.join(top, name) for name in names]:
            if not os.path.islink(path):
                fd = os.open(path, os.O_RDONLY)
                os.fsync(fd)
                os.close(fd)


class Ext4(pair.Case):
    def mount_export(self):
        """The volume as a file in a FUSE mount; ended with the test."""
        fuse = os.path.join(self.p.folder, "fuse")
        os.makedirs(fuse, exist_ok=True)
        process = subprocess.Popen(["nbdfuse", fuse, tools.uri(self.p, "a", "v")], stdin=subprocess.DEVNULL)
        self.p.tell_guardian(f"pid {process.pid} {guardian.start_time(process.pid)}")
        path = os.path.join(fuse, "nbd")

        def end():
            if process.poll() is None:
                tools.run("umount", fuse)
                process.wait(timeout=60)
        self.addCleanup(end)
        pair.wait_for(lambda: os.path.exists(path) or process.poll() is not None, 30, "nbdfuse mounts")
        if process.poll() is not None:
            self.skipTest("nbdfuse cannot mount here")
        return path, end

    def mount(self, path):
        code, out = tools.run("mount", "-o", "loop", path, self.mounted)
        if code != 0:
            raise pair.Failure(f"mount: {out}")
        self.addCleanup(lambda: os.path.ismount(self.mounted) and tools.run("umount", self.mounted))

    def round(self, path, action):
        self.mount(path)
        result = action()
        run_ok("umount", self.mounted, timeout=120)
        run_ok("fsck.ext4", "-fn", path)
        return result

    def test_a_tree_survives(self):
        self.p = self.pair(volumes={"v": "192MiB"})
        self.mounted = os.path.join(self.p.folder, "mounted")
        os.makedirs(self.mounted)
        path, end = self.mount_export()
        run_ok("mkfs.ext4", "-q", "-F", path)
        self.round(path, lambda: copy_some(self.mounted))
        first = self.round(path, lambda: digests(self.mounted))
        self.assertGreater(len(first), 50)
        for name, digest in first.items():
            with open(os.path.join(SOURCE, name), "rb") as file:
                self.assertEqual(hashlib.sha256(file.read()).hexdigest(), digest, name)

        def change():
            for name in sorted(first)[::3]:
                os.unlink(os.path.join(self.mounted, name))
            tools.run("fstrim", self.mounted)  # where nbdfuse passes it on
            with open(os.path.join(self.mounted, "new"), "wb") as file:
                file.write(os.urandom(3 << 20))
                os.fsync(file.fileno())
            return digests(self.mounted)
        second = self.round(path, change)
        self.p.restart("b")
        self.p.wait_sync("v")
        self.assertEqual(self.round(path, lambda: digests(self.mounted)), second)
        end()
        self.p.compare("v")
        run_ok("fsck.ext4", "-fn", self.p.image("b", "v"))


if __name__ == "__main__":
    if os.geteuid() != 0:
        pair.skip("mounting needs root")
    for device in "/dev/fuse", "/dev/loop-control":
        if not os.path.exists(device):
            pair.skip(f"there is no {device}")
    pair.own_mounts()
    sys.exit(pair.main())
