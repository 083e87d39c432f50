#!/bin/bash
# Servers that are no daemon, and daemons behind a full queue: one clear message, in time.
. "$(dirname "$0")/common.sh"
mkdir -p "$DIR/run"

# serve PYTHON-BODY: a server whose connection is `c`; runs until killed
serve() {
    rm -f "$SYNCREP_CONTROL" "$DIR/up"
    python3 - "$SYNCREP_CONTROL" "$DIR/up" "$1" <<'PY' &
import socket, struct, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen(8)
open(sys.argv[2], "w").close()
while True:
    c, _ = s.accept()
    try:
        exec(sys.argv[3])
        c.close()
    except OSError:
        pass
PY
    SERVER=$!
    for _ in $(seq 200); do [ -e "$DIR/up" ] && break; sleep 0.05; done
}
unserve() {
    kill -KILL $SERVER
    wait $SERVER 2>/dev/null
}

serve 'c.recv(9999); c.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")'; expect 3 status; unserve
serve 'c.recv(9999); c.sendall(struct.pack("<I", 0xffffffff))'; expect 3 pause vm1; unserve
serve 'c.recv(9999); c.sendall(struct.pack("<I", 40) + b"\xff" * 40)'; expect 3 status; unserve
serve 'c.recv(9999); c.sendall(struct.pack("<I", 0))'; expect 3 status; unserve
serve 'c.recv(9999); c.sendall(struct.pack("<I", 100) + b"x")'; expect 3 volume list; unserve
serve 'pass'; expect 3 status; unserve
serve 'c.recv(9999); c.sendall(b"\x10"); time.sleep(3)'; expect 4 status --timeout 200ms; unserve
serve 'time.sleep(60)'; expect 4 status --timeout 200ms; unserve

# Something that is no socket, a stale socket, no permission
rm -f "$SYNCREP_CONTROL"; echo x >"$SYNCREP_CONTROL"
expect 3 status
"$FAKE" "$SYNCREP_CONTROL" >/dev/null 2>"$DIR/err" && fail "a daemon replaced a file that is no socket"
grep -q "$SYNCREP_CONTROL" "$DIR/err" || fail "its message does not name the path"
rm -f "$SYNCREP_CONTROL"
python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$SYNCREP_CONTROL"
expect 3 status
start_fake vm1:protected # replaces the stale one
expect 0 status
[ "$(stat -c %a "$SYNCREP_CONTROL")" = 660 ] || fail "mode of the socket"

# A second daemon is refused and leaves the first alone
"$FAKE" "$SYNCREP_CONTROL" >/dev/null 2>"$DIR/err" && fail "two daemons on one socket"
grep -q "another daemon" "$DIR/err" || fail "the second daemon says: $(cat "$DIR/err")"
expect 0 status
stop_fake
[ -e "$SYNCREP_CONTROL" ] && fail "the socket is left behind"
finish
