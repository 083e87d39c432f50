#!/usr/bin/python3
"""deploy/examples: an address that is where the active site is, in two network namespaces that stand for two hosts."""
import os
import subprocess
import sys

import guardian
import pair
import stamp
import tools

SCRIPT = os.path.join(os.path.dirname(__file__), "..", "..", "deploy", "examples", "floating-address")
ADDRESS = "192.0.2.7/24"


class FloatingAddress(pair.Case):
    def setUp(self):
        self.p = self.pair(volumes={"v": "32MiB"}, set={"both.stall_budget": "2s"})
        self.hosts = {}
        for name in "a", "b":
            host = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stdin=subprocess.DEVNULL)
            self.spawned(host)
            pair.wait_for(lambda: self.own_network(host.pid), 10, "a network namespace of its own")
            self.hosts[name] = host.pid
            self.assertEqual(self.at(name, "ip", "link", "set", "lo", "up")[0], 0)
        self.services = {}
        for name in "a", "b":
            self.follow(name)

    def spawned(self, process):
        self.p.tell_guardian(f"pid {process.pid} {guardian.start_time(process.pid)}")

        def end():
            process.kill()
            process.wait()
        self.addCleanup(end)

    @staticmethod
    def own_network(pid):
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")

    def environment(self, name, **more):
        return {"SYNCREP_CONTROL": self.p.sites[name].ctl, "SYNCREPCTL": pair.SYNCREPCTL, **more}

    def at(self, name, *command, **more):
        return tools.run("nsenter", "--net", "--target", str(self.hosts[name]), *command, env=self.environment(name, **more))

    def follow(self, name):
        process = subprocess.Popen(["nsenter", "--net", "--target", str(self.hosts[name]), SCRIPT, "follow", "v", ADDRESS,
                                    "lo"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   env={**os.environ, **self.environment(name)})
        self.spawned(process)
        self.services[name] = process

    def has(self, name):
        return ADDRESS.split("/", 1)[0] in self.at(name, "ip", "-o", "address", "show", "dev", "lo")[1]

    def only_at(self, name):
        other = "b" if name == "a" else "a"
        pair.wait_for(lambda: self.has(name) and not self.has(other), 30, f"the address is at {name} alone")

    def test_planned_and_lost(self):
        writer = stamp.Stamp(self.p, "v", site=lambda: self.p.serving("v"), connections=2).start()
        writer.wait_acknowledged(50)
        self.only_at("a")
        self.assertEqual(self.at("b", SCRIPT, "planned", "v")[0], 0)
        self.only_at("b")
        code, out = self.at("b", SCRIPT, "planned", "v")
        self.assertEqual(code, 0, out)  # twice is as good as once
        self.assertEqual(self.at("a", SCRIPT, "lost", "v")[0], 1)  # b answers and is active
        self.only_at("b")
        writer.wait_acknowledged(50)
        self.p.wait_sync("v")
        self.p.kill9("b")
        pair.wait_for(lambda: not self.has("b"), 30, "it goes with the daemon")
        code, out = self.at("a", SCRIPT, "lost", "v", FENCE="false")
        self.assertEqual(code, 1, out)
        self.assertFalse(self.has("a"))
        code, out = self.at("a", SCRIPT, "lost", "v", FENCE="true")
        self.assertEqual(code, 0, out)
        self.only_at("a")
        writer.wait_acknowledged(50)
        self.p.start("b")
        self.p.wait_sync("v")
        self.only_at("a")
        writer.stop()
        self.p.compare("v")
        writer.check("a")
        self.services["a"].terminate()
        self.services["a"].wait(20)
        pair.wait_for(lambda: not self.has("a"), 10, "it goes with the service")

    def test_usage(self):
        for words in [], ["follow"], ["follow", "v", ADDRESS], ["lost"], ["nix", "v"]:
            self.assertEqual(self.at("a", SCRIPT, *words)[0], 2, words)
        self.assertEqual(self.at("a", SCRIPT, "planned", "nix")[0], 1)


if __name__ == "__main__":
    if os.geteuid() != 0 or tools.run("unshare", "--net", "true")[0] != 0:
        pair.skip("network namespaces need root")
    sys.exit(pair.main())
