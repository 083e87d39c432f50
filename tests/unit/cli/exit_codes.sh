#!/bin/bash
# Every verb: done, refused, daemon down, daemon that hangs, wrong usage; the same code with and without --json.
. "$(dirname "$0")/common.sh"

VERBS=("status" "status vm1" "pool list" "volume create new --size 1MiB" "volume list" "volume show vm1"
    "volume delete vm1" "collection list" "collection show vm1" "pause vm1" "resume vm1" "replace vm1"
    "wait vm1 --for in-sync" "tune stall_budget=5s" "events" "events --follow" "reload" "pause --all" "status --check"
    "wait --for connected" "resume vm1 --wait" "pause vm1 vm2 --wait=5s" "switchover vm1" "failback vm1" "failover vm1"
    "resolve vm1 --keep paris" "switchover vm1 --plan" "failback vm1 --plan" "failover vm1 --plan"
    "resolve vm1 --keep paris --plan")

# Daemon down
for verb in "${VERBS[@]}"; do
    expect 3 $verb
done

start_fake vm1:protected vm2:protected

# Done
for verb in "status" "status -x" "status vm1" "status --check" "pool list" "volume list" "volume show vm1" \
    "collection list" "collection show vm1" "pause vm1" "resume vm1" "pause vm1 --wait=5s" "pause vm1 vm2" \
    "pause --all" "resume --all" "resume vm1 --wait" "resume vm1 vm2 --wait=10s" "replace vm1" "replace vm1 --wait=5s" \
    "replace force --force=force" "volume delete force --force=force" "volume delete vm1" "tune stall_budget=5s" \
    "tune resync_max_rate=0 resync_latency_factor=300%" "events" "reload" "wait vm1 --for in-sync" \
    "wait vm1 vm2 --for protected --timeout 5s" "wait --for connected" "wait --all --for active" "pause late" \
    "volume create n1 --size 1MiB" "volume create n2 --size 64TiB --pool main --peer-pool p --wait" \
    "switchover vm1" "switchover vm1 --to paris --wait=5s" "failback vm1" "failback vm1 --to paris --timeout 5s --wait" \
    "failover vm1" "failover vm1 --wait" "failover force --force=force" "resolve vm1 --keep paris" \
    "resolve vm1 --keep london --wait=5s" "switchover vm1 --plan" "failback vm1 --plan --to paris" \
    "failover vm1 --plan" "resolve vm1 --keep paris --plan" \
    "volume create n3 --import /dev/x --active-site paris" "volume create n4 --size 1GiB --preallocate --wait=5s"; do
    expect 0 $verb
done

# Refused, by class
expect 1 pause refused
expect 1 pause nosuch
expect 1 status nosuch
expect 1 volume show nosuch
expect 1 collection show nosuch
expect 1 volume create exists --size 1MiB
expect 1 volume create nospace --size 1MiB
expect 1 resume ioerror
expect 1 wait nosuch --for in-sync
expect 1 pause vm1 nosuch vm2 --wait=5s
expect 3 resume peerdown
expect 3 volume create peerdown --size 1MiB
expect 2 replace invalid
expect 2 tune nokey=1
expect 2 tune stall_budget=never
expect 5 volume delete force
expect 5 replace force
for plan in "" --plan; do
    for verb in switchover failback failover "resolve --keep paris"; do
        expect 1 $verb refused $plan
        expect 1 $verb nosuch $plan
        expect 3 $verb peerdown $plan
    done
    expect 5 failover force $plan
done
expect 4 switchover handing
expect 4 failback handing --timeout 1s

# Timed out
expect 4 pause slow --timeout 300ms
expect 4 status slow --timeout 300ms
expect 4 volume create slow --size 1MiB --timeout 300ms
expect 4 wait never --for in-sync --timeout 300ms
expect 4 wait never vm1 --for in-sync --timeout 300ms
expect 4 wait vm1 --for in-sync --timeout 1ms
expect 4 resume never --wait=200ms
expect 4 volume create never --size 1MiB --wait=200ms
expect 4 replace never --wait=200ms
expect 4 switchover slow --timeout 300ms
expect 4 switchover slow --plan --timeout 300ms
expect 4 failback slow --plan --timeout 300ms
expect 4 failover slow --timeout 300ms
expect 4 failover never --wait=200ms
expect 4 resolve slow --keep paris --timeout 300ms

# Usage: nothing is ignored
for verb in "" "nosuch" "volume" "volume nosuch" "status a b" "status --nosuch" "status --check -x" "status --watch --check" \
    "status --watch=0" "status --watch=x" "pool list x" "volume list x" "volume show" "volume show a b" "volume create" \
    "volume create a" "volume create a --size" "volume create a --size x" "volume create a --size 1" \
    "volume create a --size 65TiB" "volume create a --size 1048577" "volume create a b --size 1MiB" \
    "volume create ../a --size 1MiB" "volume create a --size 1MiB --size 2MiB" "volume create a --import rel" \
    "volume create a --import /x --preallocate" "volume create a --size 1MiB --pool ./p" "volume delete" \
    "volume delete a --force=b" "volume delete a --force" "collection show" "collection create a" "pause" \
    "pause --all vm1" "pause vm1 --wait 60s" "pause vm1 --wait=soon" "pause vm1 --wait=0" "resume" "resume -z vm1" \
    "replace" "replace a b" "replace a --force=b" "wait vm1" "wait --for in-sync" "wait vm1 --for happy" \
    "wait vm1 --for in-sync --timeout never" "tune" "tune x" "tune =x" "tune x=" "events x" "events --follow=1" \
    "reload x" "switchover" "switchover vm1 vm2" "switchover vm1 --to" "switchover vm1 --force=vm1" "switchover ../vm1" \
    "switchover vm1 --plan=yes" "switchover vm1 --plan --plan" "failback" "failback vm1 vm2" "failback vm1 --timeout never" \
    "failback vm1 --timeout 0" "failback vm1 --wait=soon" "failover" "failover vm1 vm2" "failover vm1 --force" \
    "failover vm1 --force=vm2" "failover vm1 --to paris" "resolve vm1" "resolve --keep paris" "resolve vm1 --keep" \
    "resolve vm1 vm2 --keep paris" "resolve vm1 --keep paris --force=vm1" "switchover invalid" "resolve invalid --keep x" "status --timeout 0" "--nosuch" "status --timeout 1s --timeout 2s"; do
    expect 2 $verb
done
expect 2 --control "/$(printf 'x%.0s' {1..200})" status

# The verdicts of status --check
stop_fake
start_fake
expect 0 status --check
stop_fake
start_fake vm1:protected vm2:exposed
expect 1 status --check
expect 0 status --check vm1
expect 0 status
stop_fake
start_fake vm1:exposed vm2:offline vm3:protected
expect 2 status --check
expect 1 status --check nosuch

# A daemon that hangs answers nobody, but its kernel goes on accepting
kill -STOP "$FAKE_PID"
for verb in "status" "status --check" "pause vm1" "wait vm1 --for in-sync --timeout 100ms" "events" "reload" \
    "volume create new --size 1MiB"; do
    case $verb in
    *--timeout*) expect 4 $verb ;;
    *) expect 4 $verb --timeout 200ms ;;
    esac
done
kill -CONT "$FAKE_PID"

# The daemon goes away under a client that waits
"$CTL" events --follow >"$DIR/follow" 2>&1 &
follower=$!
for _ in $(seq 200); do [ -s "$DIR/follow" ] && break; sleep 0.05; done
stop_fake
wait $follower
[ $? -eq 3 ] || fail "a follower of a daemon that stops does not end with 3"
finish
