#!/usr/bin/python3
"""Durability shown, not assumed: no answer before the stable-storage calls of both sites returned.

The daemons run with thread engines under shim.so, which holds each call of one site back and writes down when it returned.
For each write of the host there must be, at both sites, a call that made exactly those bytes stable between the
request and the answer (a synchronous write, or a write and then a sync).  Of a write-back volume that is asked of FUA, and of what
was answered before a FLUSH by the time the FLUSH is answered.  That the check can fail is shown with a shim
that lies (SHIM_LIE): it lets the daemon go on at once, as if it answered too early.
"""
import collections
import os
import time

import pair

SHIM = os.environ.get("SYNCREP_SHIM", "")
DELAY_MS = 150
Call = collections.namedtuple("Call", "name begin end offset length stable")


def calls(path):
    with open(path) as file:
        return [Call(name, *map(int, numbers)) for name, *numbers in map(str.split, file)]


def covered(parts, first, end):
    """Do the (first, end) parts cover the range?"""
    for part_first, part_end in sorted(parts):
        if part_first <= first < part_end:
            first = part_end
    return first >= end


def stable_by(log, asked, answered, first, end):
    """Was the range written and made stable between the request and its answer?"""
    inside = [call for call in log if call.begin >= asked and call.end <= answered]
    parts = []
    for call in inside:
        if call.name != "write" or call.length <= 0:
            continue
        if call.stable or any(s.name == "sync" and s.stable and s.begin >= call.end for s in inside):
            parts.append((call.offset, call.offset + call.length))
    return covered(parts, first, end)


@pair.unittest.skipUnless(SHIM, "SYNCREP_SHIM names no library")
class Durability(pair.Case):
    def shimmed(self, slow_site, lie, *create):
        """A pair with volume v, and the paths of the logs of calls, of what comes from here on."""
        other = "b" if slow_site == "a" else "a"
        p = self.pair(set={"both.store.engine": "threads"}, env={"both.LD_PRELOAD": SHIM})
        p.ctl_ok("a", "volume", "create", "v", "--size", "16MiB", *create)
        p.wait_sync("v")
        p.nbd("a", "v").pwrite(os.urandom(pair.MIB), 8 * pair.MIB)
        logs = {}
        for name in pair.SITES:
            site = p.sites[name]
            logs[name] = os.path.join(p.folder, f"calls-{name}")
            site.env["SHIM_MATCH"] = site.pool + "/v.img"
            site.env["SHIM_LOG"] = logs[name]
            if name == slow_site:
                site.env["SHIM_DELAY_MS"] = str(DELAY_MS)
                if lie:
                    site.env["SHIM_LIE"] = "1"
        for name in (other, slow_site):
            p.restart(name)
        p.wait_sync("v")
        self.assertEqual(p.site_status("a")["engine"], "threads")
        return p, logs

    def run_with(self, slow_site, lie=False):
        """Does all kinds of writes; returns [(site, what)] of those answered before they were stable at that site."""
        p, logs = self.shimmed(slow_site, lie)
        h = p.nbd("a", "v")
        done = []

        def timed(what, first, length, call):
            asked = time.monotonic_ns()
            call()
            done.append((what, asked, time.monotonic_ns(), first, first + length))

        for i, length in enumerate((4096, 4096, 512, 65536, 4096)):
            first = i * pair.MIB
            timed(f"write of {length}", first, length, lambda: h.pwrite(os.urandom(length), first))
        timed("FUA write", 5 * pair.MIB, 4096, lambda: h.pwrite(os.urandom(4096), 5 * pair.MIB, pair.nbd.CMD_FLAG_FUA))
        timed("zeroing", 8 * pair.MIB, 65536, lambda: h.zero(65536, 8 * pair.MIB))
        timed("zeroing without hole", 8 * pair.MIB + 65536, 65536,
              lambda: h.zero(65536, 8 * pair.MIB + 65536, pair.nbd.CMD_FLAG_NO_HOLE))
        timed("trim", 8 * pair.MIB + 131072, 65536, lambda: h.trim(65536, 8 * pair.MIB + 131072))
        h.flush()
        p.compare("v")  # it stayed in sync: nothing was answered alone
        early = []
        for name, log in logs.items():
            log = calls(log)
            early += [(name, what) for what, asked, answered, first, end in done
                      if not stable_by(log, asked, answered, first, end)]
        for what, asked, answered, _, _ in done:
            if not lie:
                self.assertGreaterEqual(answered - asked, DELAY_MS * 1_000_000, what)
        return early

    def run_write_back(self, slow_site, lie=False):
        """Writes and flushes; returns [(site, what)] of the flushes, and writes with FUA, answered before all that they cover
        was stable at that site."""
        p, logs = self.shimmed(slow_site, lie, "--durability", "write-back")
        h = p.nbd("a", "v")
        done = []  # (what, when the first request was sent, when the last one was answered, first byte, end)

        def flushed(what, first, length, *calls):
            asked = time.monotonic_ns()
            for call in calls:
                call()
            done.append((what, asked, time.monotonic_ns(), first, first + length))

        for i, length in enumerate((4096, 512, 65536)):
            first = i * pair.MIB
            flushed(f"flush of {length}", first, length, lambda: h.pwrite(os.urandom(length), first), h.flush)
        flushed("flush of zeroes", 8 * pair.MIB, 512, lambda: h.zero(512, 8 * pair.MIB), h.flush)
        flushed("FUA write", 5 * pair.MIB, 4096, lambda: h.pwrite(os.urandom(4096), 5 * pair.MIB, pair.nbd.CMD_FLAG_FUA))
        p.compare("v")
        self.assertEqual(p.status("a", "v")["mode"], "mirroring")
        early = []
        for name, log in logs.items():
            log = calls(log)
            if not lie:
                self.assertTrue(any(call.name == "write" and not call.stable for call in log), "nothing was cached")
            early += [(name, what) for what, asked, answered, first, end in done
                      if not stable_by(log, asked, answered, first, end)]
        return early

    def test_write_back_flushed_at_the_active_site_first(self):
        self.assertEqual(self.run_write_back("a"), [])

    def test_write_back_flushed_at_the_alternate_first(self):
        self.assertEqual(self.run_write_back("b"), [])

    def test_the_check_of_write_back_can_fail(self):
        for name in pair.SITES:
            early = self.run_write_back(name, lie=True)
            self.assertIn((name, "flush of 4096"), early)
            self.assertIn((name, "FUA write"), early)
            self.assertEqual({site for site, _ in early}, {name})

    def test_stable_at_the_active_site_first(self):
        self.assertEqual(self.run_with("a"), [])

    def test_stable_at_the_alternate_first(self):
        self.assertEqual(self.run_with("b"), [])

    def test_the_check_can_fail(self):
        for name in pair.SITES:
            early = self.run_with(name, lie=True)
            self.assertIn((name, "write of 4096"), early)
            self.assertEqual({site for site, _ in early}, {name})


if __name__ == "__main__":
    pair.main()
