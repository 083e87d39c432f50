#!/bin/bash
# run.sh TARGET CORPUS [libFuzzer options]: the kept corpus, then on from it for a while.  What is new goes to a folder
# of its own, so that the kept one changes only on purpose; an input that fails stays in the working folder.
set -euo pipefail
target=$1 corpus=$2
shift 2
seconds=8
[[ ${SYNCREP_LONG:-0} == 1 ]] && seconds=3600
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -print_final_stats=1 "$@" "$fresh" "$corpus"
