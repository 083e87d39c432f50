# Sourced by the tests of syncrepctl:  TEST CTL FAKE
set -u
CTL=$1
FAKE=$2
DIR=$(mktemp -d /tmp/srctl-XXXXXX)
export SYNCREP_CONTROL=$DIR/run/control.sock
FAILED=0
FAKE_PID=

stop_fake() {
    [ -n "$FAKE_PID" ] || return 0
    kill -CONT "$FAKE_PID" 2>/dev/null
    kill -TERM "$FAKE_PID" 2>/dev/null
    wait "$FAKE_PID"
    local code=$?
    FAKE_PID=
    [ $code -eq 0 ] || fail "the daemon ended with $code"
}

clean_up() {
    [ -n "$FAKE_PID" ] && kill -KILL "$FAKE_PID" 2>/dev/null
    rm -rf "$DIR"
}
trap clean_up EXIT

fail() {
    echo "FAILED: $*" >&2
    FAILED=1
}

# start_fake NAME:VERDICT...: returns when it listens
start_fake() {
    rm -f "$DIR/ready"
    mkfifo "$DIR/ready"
    "$FAKE" "$SYNCREP_CONTROL" "$@" >"$DIR/ready" &
    FAKE_PID=$!
    local line=
    read -r -t 20 line <"$DIR/ready"
    [ "$line" = ready ] || { fail "the fake daemon did not start"; exit 1; }
}

# Ends the test: its exit code
finish() {
    stop_fake
    [ $FAILED -eq 0 ] && echo passed
    exit $FAILED
}

# valid_json FILE: exactly one document with version and ok, error only if not ok; exit code as in it
valid_json() {
    python3 - "$1" "$2" <<'PY'
import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
code = int(sys.argv[2])
assert d["version"] == 1, d
assert isinstance(d["ok"], bool) and isinstance(d["command"], str), d
if "check" in d:
    assert d["ok"] and d["check"]["exit"] == code, d
    sys.exit(0)
assert d["ok"] == (code == 0), (d, code)
assert ("error" in d) == (code != 0), d
if code:
    e = d["error"]
    assert e["exit"] == code and e["code"] and e["message"], (d, code)
    assert isinstance(e["object"], str) and isinstance(e["hint"], str), d
PY
}

# expect CODE ARG...: the same exit code with and without --json, valid JSON, and words in either case
expect() {
    local want=$1 code
    shift
    timeout 20 "$CTL" "$@" >"$DIR/out" 2>"$DIR/err"
    code=$?
    [ $code -eq "$want" ] || fail "'$*' gave $code, not $want: $(cat "$DIR/out" "$DIR/err")"
    [ -s "$DIR/out" ] || [ -s "$DIR/err" ] || fail "'$*' said nothing"
    case "$*" in *--check*) ;; *)
        [ "$want" -eq 0 ] || [ -s "$DIR/err" ] || fail "'$*' failed without a word on stderr" ;;
    esac
    timeout 20 "$CTL" "$@" --json >"$DIR/out" 2>"$DIR/err"
    code=$?
    [ $code -eq "$want" ] || fail "'$* --json' gave $code, not $want"
    [ -s "$DIR/err" ] && fail "'$* --json' wrote to stderr: $(cat "$DIR/err")"
    valid_json "$DIR/out" "$want" || fail "'$* --json': $(cat "$DIR/out")"
}
