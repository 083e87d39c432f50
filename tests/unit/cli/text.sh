#!/bin/bash
# What people read: golden texts, 80 columns, nothing that steers a terminal.  UPDATE=1 writes the golden texts anew.
. "$(dirname "$0")/common.sh"
GOLDEN=$(dirname "$0")/golden

# golden NAME ARG...
golden() {
    local file=$GOLDEN/$1.txt
    shift
    "$CTL" "$@" >"$DIR/out" 2>&1
    [ "${UPDATE:-}" = 1 ] && cp "$DIR/out" "$file"
    diff -u "$file" "$DIR/out" || fail "'$*' does not read as in $file"
    case $* in *--check*) return ;; esac # one line, for programs
    if awk 'length > 80 { bad = 1 } END { exit !bad }' "$DIR/out"; then fail "'$*' is wider than 80 columns"; fi
}

start_fake vm1:protected vm2:resyncing shop-db:exposed vm4:offline
golden help --help
for verb in status wait pause resume replace "volume create" "volume list" "volume show" "volume delete" \
    "collection list" "collection show" "collection create" "collection add" \
    "collection remove" "collection delete" "pool list" "pool create" events tune reload switchover failback failover resolve; do
    golden "help-${verb/ /-}" $verb --help
    grep -q '^Examples:' "$DIR/out" || fail "'$verb --help' has no examples"
done
golden status status
golden status-check status --check
golden status-name status vm2
golden volume-list volume list
golden collection-list collection list
golden pool-list pool list
golden force volume delete force
golden refused pause refused
golden plan-switchover switchover vm1 --plan
golden plan-failover failover refused --plan
golden plan-resolve resolve vm1 --keep london --plan
golden usage pause --wait=1s
golden unreachable --control /no status
TZ=UTC golden events events

# Bytes from elsewhere do not reach the terminal
"$CTL" volume show vm1 >"$DIR/out"
grep -q $'\x1b' "$DIR/out" && fail "an escape sequence came through"
grep -q 'with "quotes"??\[31m and ? bytes' "$DIR/out" || fail "the path is not shown: $(cat "$DIR/out")"

# A reader that goes away, and a full device
"$CTL" status --watch=0.1 | head -n 1 >/dev/null
[ "${PIPESTATUS[0]}" -eq 1 ] || fail "--watch into a closed pipe"
for verb in status "status --json" "volume list" events --help "--version"; do
    "$CTL" $verb >/dev/full 2>/dev/null && fail "'$verb' to a full device says 0"
done
"$CTL" status >&- 2>/dev/null && fail "a closed standard output says 0"
finish
