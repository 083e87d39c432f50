#!/bin/bash
# What the JSON says: fields, 64-bit numbers, any bytes, several documents a line each.
. "$(dirname "$0")/common.sh"
start_fake vm1:resyncing vm2:offline

"$CTL" status --json >"$DIR/s" || fail "status"
"$CTL" volume show vm1 --json >"$DIR/v" || fail "volume show"
"$CTL" pause vm1 nosuch --json >"$DIR/p"
"$CTL" resolve vm1 --keep london --plan --json >"$DIR/r" || fail "a plan"
"$CTL" failover force --plan --json >"$DIR/r2"
[ $? -eq 5 ] || fail "a plan that needs force"
"$CTL" events --json >"$DIR/e" || fail "events"
timeout 2 "$CTL" status --json --watch=0.1 >"$DIR/w"
[ $? -eq 124 ] || fail "--watch ended by itself"
timeout 20 "$CTL" events --follow --json --timeout 300ms >"$DIR/f"
[ $? -eq 4 ] || fail "--follow with a timeout"
"$CTL" --json --version >"$DIR/ver" || fail "version"

python3 - "$DIR" <<'PY' || fail "contents"
import json, sys
d = sys.argv[1]
s = json.load(open(d + "/s"))
a, b = s["collections"]
assert a["name"] == "vm1" and a["sync"] == "out-of-sync" and a["verdict"] == "exposed" and a["cause"] == "resyncing"
assert a["resync"] == {"running": True, "done_blocks": 1672, "total_blocks": 5000, "bytes_per_s": 4 << 20, "eta_s": 65}
assert a["dirty_bytes"] == 3328 * 4096 and a["role"] == "active" and a["peer_role"] == "alternate"
assert b["verdict"] == "offline" and b["resync"]["eta_s"] is None
assert a["next_command"] and a["counters"]["writes"] == 0
assert s["site"]["name"] == "london" and s["site"]["link"]["state"] == "up" and s["site"]["link"]["tls"] is True
assert s["site"]["pools"][0]["free_bytes"] == 3 << 30
v = json.load(open(d + "/v"))["volume"]
assert v["size_bytes"] == 64 << 40 and v["allocated_bytes"] == 12345678901234
assert v["path"].startswith("/srv/pool/with \"quotes\""), v["path"]
p = json.load(open(d + "/p"))
assert not p["ok"] and [r["ok"] for r in p["results"]] == [True, False] and p["error"]["code"] == "not-found"
assert p["results"][1]["error"]["object"] == "nosuch" and p["error"]["exit"] == 1
r = json.load(open(d + "/r"))["plan"]
assert r["possible"] and r["command"] == "resolve" and [side["site"] for side in r["sides"]] == ["london", "paris"]
assert r["sides"][1]["dirty_blocks"] == 8 and "8 blocks" in r["sides"][1]["lost"] and r["sides"][0]["lost"] == ""
r = json.load(open(d + "/r2"))
assert r["error"]["code"] == r["plan"]["code"] == "needs-force" and not r["plan"]["possible"] and r["plan"]["exit"] == 5
assert r["plan"]["sides"][1] == {"site": "paris", "known": False} and r["plan"]["may_be_lost"]
e = json.load(open(d + "/e"))["events"]
assert [x["kind"] for x in e] == ["daemon", "link", "sync"], e
assert e[1]["object"] == "paris" and e[1]["level"] == "warning"
w = [json.loads(line) for line in open(d + "/w")]
assert len(w) >= 3 and all(x["ok"] and len(x["collections"]) == 2 for x in w)
f = [json.loads(line) for line in open(d + "/f")]
assert len(f) == 4 and f[3]["ok"] is False and f[3]["error"]["exit"] == 4
assert json.load(open(d + "/ver"))["syncrepctl"]
PY

# An answer longer than a frame comes in parts and is one document
stop_fake
start_fake many:900
"$CTL" status --json >"$DIR/s" || fail "long status"
"$CTL" volume list --json >"$DIR/v" || fail "long list"
python3 -c '
import json, sys
s = json.load(open(sys.argv[1] + "/s")); v = json.load(open(sys.argv[1] + "/v"))
names = [c["name"] for c in s["collections"]]
assert len(names) == 900 and len(set(names)) == 900 and len(v["volumes"]) == 900
' "$DIR" || fail "parts"
"$CTL" pause --all >"$DIR/out" || fail "pause --all"
[ "$(wc -l <"$DIR/out")" -eq 900 ] || fail "pause --all left some out"
finish
