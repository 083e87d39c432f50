"""The peer link lets in only the peer: wrong names, wrong authorities, expired certificates, plain against TLS."""
import os
import shutil
import subprocess

import pair

MAKE_CERTS = os.path.join(pair.TOP, "deploy", "make-certs")


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class PeerTls(pair.Case):
    def files(self, p, name):
        """ca, certificate and key of a site, as its configuration names them."""
        with open(p.sites[name].config) as file:
            text = file.read()
        found = {}
        for key in ("ca", "certificate", "key"):
            line = next(line for line in text.splitlines() if line.strip().startswith(key + ":"))
            found[key] = line.split(":", 1)[1].strip().strip("'\"")
        return found

    def make(self, p, *sites, days=None):
        folder = os.path.join(p.folder, "other-certs")
        shutil.rmtree(folder, ignore_errors=True)
        run(MAKE_CERTS, folder, *sites, *(("--days", str(days)) if days is not None else ()))
        return folder

    def refused(self, p, *words):
        """The pair does not connect; the log of some site says why, once; nothing is shown as protected."""
        p.start("b")
        pair.wait_for(lambda: any(all(word in line for word in words) for name in pair.SITES
                                  for line in p.log(name).splitlines()), 20, f"a log line with {words}")
        shown = p.status("a", "v")
        self.assertNotEqual(shown["sync"], "in-sync")
        self.assertNotEqual(shown["verdict"], "protected")
        for name in pair.SITES:
            lines = [line for line in p.log(name).splitlines() if "peer link" in line]
            self.assertLess(len(lines), 40, "one line a reason, not one an attempt")

    def heal(self, p, saved):
        p.stop("b")
        for path, content in saved.items():
            with open(path, "wb") as file:
                file.write(content)
        p.start("b")
        p.compare("v")

    def exchange(self, p, take_ca=False, site="b", days=None, names=("a", "b")):
        """Stops b, gives it the certificates of another authority; returns what was there."""
        p.stop("b")
        folder, here = self.make(p, *names, days=days), self.files(p, "b")
        new = {here["certificate"]: f"{folder}/{site}.crt", here["key"]: f"{folder}/{site}.key"}
        if take_ca:
            new[here["ca"]] = f"{folder}/ca.crt"
        saved = {}
        for path, source in new.items():
            with open(path, "rb") as file:
                saved[path] = file.read()
            shutil.copyfile(source, path)
        return saved

    def out_of_sync(self, p):
        pair.wait_for(lambda: p.status("a", "v")["sync"] != "in-sync", 30, "a notices that b is gone")

    def test_another_authority(self):
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "500ms"})
        saved = self.exchange(p, take_ca=True)
        self.out_of_sync(p)
        self.refused(p, "certificate")
        self.heal(p, saved)

    def test_another_name(self):
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "500ms"})
        p.stop("b")
        here = self.files(p, "b")
        authority = os.path.dirname(here["ca"])
        folder = os.path.join(p.folder, "named")
        shutil.copytree(authority, folder)
        run(MAKE_CERTS, folder, "a", "stranger")
        saved = {}
        for key, source in (("certificate", "stranger.crt"), ("key", "stranger.key")):
            with open(here[key], "rb") as file:
                saved[here[key]] = file.read()
            shutil.copyfile(os.path.join(folder, source), here[key])
        self.out_of_sync(p)
        self.assertRefusedOrSaid(p, saved)

    def assertRefusedOrSaid(self, p, saved):
        """A certificate for another name is refused by its own daemon at once, or by the peer; either names it."""
        p.start("b", wait=False)
        site = p.sites["b"]
        pair.wait_for(lambda: "stranger" in p.log("b") or "stranger" in p.log("a"), 20, "the wrong name is named")
        if pair.alive(site.pid) and not p.ended(site):
            self.assertNotEqual(p.status("a", "v")["sync"], "in-sync")
            p.stop("b")
        for path, content in saved.items():
            with open(path, "wb") as file:
                file.write(content)
        p.start("b")
        p.compare("v")

    def test_plain_against_tls(self):
        p = self.pair(volumes={"v": "8MiB"}, set={"both.stall_budget": "500ms"})
        p.stop("b")
        self.out_of_sync(p)
        with open(p.sites["b"].config) as file:
            text = file.read()
        lines, kept, inside = text.splitlines(), [], False
        for line in lines:
            if line.startswith("tls:"):
                inside = True
                kept.append("insecure: true")
                continue
            if inside and line.startswith((" ", "\t")):
                continue
            inside = False
            kept.append(line)
        with open(p.sites["b"].config, "w") as file:
            file.write("\n".join(kept) + "\n")
        self.refused(p, "TLS")
        self.heal(p, {p.sites["b"].config: text.encode()})


if __name__ == "__main__":
    pair.main()
