#!/usr/bin/python3
"""Peers with certificates that are not good: one clear line at both sites, nothing taken for in sync, hosts go on."""
import contextlib
import os
import re
import shutil
import time

import pair
import tools


@contextlib.contextmanager
def fresh(p, name):
    """Inside, the site has an empty state folder and an empty pool."""
    folders = [os.path.join(p.folder, name, "state"), p.sites[name].pool]
    for path in folders:
        os.rename(path, path + ".away")
        os.mkdir(path)
    yield
    for path in folders:
        shutil.rmtree(path)
        os.rename(path + ".away", path)


class Certificates(pair.Case):
    def setUp(self):
        self.p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "500ms"}, link=True)
        self.certs = os.path.join(self.p.folder, "certs")

    def make(self, folder, *names):
        tools.run_ok(os.path.join(pair.TOP, "deploy", "make-certs"), folder, *names)
        return folder

    def install(self, site, certificate, key, ca=None):
        """Site b (or a) gets other files, as an administrator would copy them, and is started again."""
        for source, target in ((certificate, f"{site}.crt"), (key, f"{site}.key")):
            with open(source, "rb") as file:
                data = file.read()
            with open(os.path.join(self.certs, target), "wb") as file:
                file.write(data)
        if ca:
            self.edit(site, r"ca: .*", f"ca: {ca}")

    def edit(self, site, pattern, instead):
        path = self.p.sites[site].config
        with open(path) as file:
            text, n = re.subn(pattern, instead, file.read())
        self.assertGreaterEqual(n, 1)
        with open(path, "w") as file:
            file.write(text)

    def stays_apart(self, *wanted):
        """With site b back: lines of the logs that say why, few of them, and nothing served as in sync."""
        p = self.p
        h = p.nbd("a", "v")
        marks = {site: len(p.log(site).splitlines()) for site in pair.SITES}
        p.start("b")
        h.pwrite(b"alone" * 100, 4096)
        status = p.wait_status("a", "v", sync="out-of-sync")
        self.assertEqual(status["verdict"], "exposed")
        for site, pattern in zip(pair.SITES, wanted):
            def said():
                return [line for line in p.log(site).splitlines()[marks[site]:] if re.search(pattern, line, re.I)]
            lines = pair.wait_for(said, 20, f"the log of {site} names the cause ({pattern})")
            print(f"\n   {site}: {lines[0]}", end="")
        print()
        link = p.site_status("a")["link"]
        self.assertNotEqual(link["state"], "up")
        self.assertTrue(link["last_error"])
        self.assertNotEqual(p.status("b", "v")["sync"], "in-sync")
        self.assertIsNone(p.try_nbd("b", "v"))
        # What repeats is logged once with a count: many more attempts, few more lines.
        marks = {site: len(p.log(site).splitlines()) for site in pair.SITES}
        pair.wait_for(lambda: p.ctl("a", "wait", "--for", "connected", "--timeout", "3s").code == 4, 30, "it stays apart")
        for site in pair.SITES:
            lines = p.log(site).splitlines()[marks[site]:]
            self.assertLess(len(lines), 15, f"{site}: {lines}")
        self.assertEqual(bytes(h.pread(500, 4096)), b"alone" * 100)
        h.shutdown()

    def does_not_start(self, pattern):
        code, out = tools.run(pair.SYNCREPD, "--config", self.p.sites["b"].config, timeout=30)
        self.assertIn(code, (1, 2, 70), out)
        self.assertRegex(out, pattern)

    def mended(self, restore, stop=True):
        if stop:
            self.p.stop("b")
        restore()
        self.p.start("b")
        self.p.compare("v")

    def saved(self):
        kept = {}
        for path in [os.path.join(self.certs, name) for name in os.listdir(self.certs)] + [
                self.p.sites[site].config for site in pair.SITES]:
            with open(path, "rb") as file:
                kept[path] = file.read()

        def restore():
            for path, data in kept.items():
                with open(path, "wb") as file:
                    file.write(data)
        return restore

    def test_another_name(self):
        """A certificate of the right CA for another site: refused by its own daemon, and by the peer if that uses it."""
        p = self.p
        restore = self.saved()
        self.make(self.certs, "a", "stranger")
        p.stop("b")
        self.install("b", os.path.join(self.certs, "stranger.crt"), os.path.join(self.certs, "stranger.key"))
        self.does_not_start(r"stranger|names? .*\bb\b")
        self.edit("b", r"(?m)^site: b$", "site: stranger")
        self.does_not_start(r"state.*\bb\b")
        with fresh(p, "b"):
            p.start("b")
            pair.wait_for(lambda: re.search(r"certificate.*\bb\b", p.log("a")), 20, "a names the name it wants")
            p.wait_status("a", "v", sync="out-of-sync")
            self.assertEqual(p.ctl_ok("b", "volume", "list").doc["volumes"], [])
            p.stop("b")
        self.mended(restore, stop=False)

    def test_another_authority(self):
        restore = self.saved()
        other = self.make(os.path.join(self.p.folder, "other"), "a", "b")
        self.p.stop("b")
        self.install("b", os.path.join(other, "b.crt"), os.path.join(other, "b.key"), os.path.join(other, "ca.crt"))
        self.stays_apart(r"certificate|issuer|verif|alert|\bCA\b", r"certificate|issuer|verif|alert|\bCA\b")
        self.mended(restore)

    def test_an_expired_certificate(self):
        """It expires while it is in use: the next handshake names that, and its own daemon does not start on it again."""
        p = self.p
        restore = self.saved()
        p.stop("b")
        until = time.time() + 6 * pair.SLOW
        self.issue("b", until)
        p.start("b")
        p.wait_sync("v")
        pair.wait_for(lambda: time.time() > until + 1, 60, "the certificate expires")
        self.assertEqual(p.status("a", "v")["sync"], "in-sync", "a link that is up stays up")
        p.link.drop()
        lines = [pair.wait_for(lambda: re.search(r".*expired.*", p.log(site)), 20, f"{site} says so") for site in pair.SITES]
        print("".join(f"\n   {line.group()}" for line in lines))
        h = p.nbd("a", "v")
        h.pwrite(b"alone", 0)
        self.assertEqual(p.wait_status("a", "v", sync="out-of-sync")["verdict"], "exposed")
        h.shutdown()
        p.stop("b")
        self.does_not_start("expired")
        self.mended(restore, stop=False)

    def issue(self, name, until):
        """A certificate that is good until then (make-certs counts in days)."""
        config, request = (os.path.join(self.p.folder, name + end) for end in (".cnf", ".csr"))
        with open(config, "w") as file:
            file.write("[req]\ndistinguished_name=n\nprompt=no\n[n]\nO=x\n[d]\ndefault_md=sha256\n"
                       f"database={self.p.folder}/index\nserial={self.p.folder}/serial\nnew_certs_dir={self.p.folder}\n"
                       "policy=any\nx509_extensions=site\n[any]\norganizationName=optional\n[site]\n"
                       "basicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n"
                       f"keyUsage=critical,digitalSignature\nsubjectAltName=DNS:{name}\n")
        for file_name, text in (("index", ""), ("serial", "77\n")):
            with open(os.path.join(self.p.folder, file_name), "w") as file:
                file.write(text)
        ours = [os.path.join(self.certs, one) for one in (name + ".key", name + ".crt", "ca.crt", "ca.key")]
        tools.run_ok("openssl", "req", "-new", "-config", config, "-key", ours[0], "-out", request)
        tools.run_ok("openssl", "ca", "-batch", "-config", config, "-name", "d", "-in", request, "-notext", "-out", ours[1],
                     "-startdate", "20200101000000Z", "-enddate", time.strftime("%Y%m%d%H%M%SZ", time.gmtime(until)),
                     "-cert", ours[2], "-keyfile", ours[3])

    def test_plain_against_tls(self):
        restore = self.saved()
        self.p.stop("b")
        self.edit("b", r"(?m)^tls:(\n +.*)+", "insecure: true")
        self.stays_apart(r"TLS|plain|protocol", r"TLS|plain|protocol|closed")
        self.mended(restore)


class Identity(pair.Case):
    def test_another_group(self):
        """Right certificates, but a site of another group: never mirrored to."""
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "500ms"})
        p.stop("b")
        with open(p.sites["b"].config) as file:
            good = file.read()
        with open(p.sites["b"].config, "w") as file:
            file.write(re.sub(r"(?m)^group: .*", "group: 11111111-2222-4333-8444-555555555555", good))
        code, out = tools.run(pair.SYNCREPD, "--config", p.sites["b"].config, timeout=30)
        self.assertIn(code, (1, 2, 70), out)
        self.assertIn("group", out)
        with fresh(p, "b"):  # no group in the state yet: now the peer has to notice
            p.start("b")
            pair.wait_for(lambda: "group" in p.log("a"), 20, "the other group is named")
            p.wait_status("a", "v", sync="out-of-sync")
            self.assertEqual(p.ctl_ok("b", "volume", "list").doc["volumes"], [])
            p.stop("b")
        with open(p.sites["b"].config, "w") as file:
            file.write(good)
        p.start("b")
        p.compare("v")


if __name__ == "__main__":
    pair.main()
