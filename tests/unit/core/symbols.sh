#!/bin/bash
# The core has no clock, socket, file or thread: the symbols it takes from elsewhere are base's and these.
set -euo pipefail
core=$1 base=$2
allowed='^(memcpy|memmove|memset|memcmp|strdup|strlen|malloc|calloc|realloc|free|snprintf|vsnprintf|__snprintf_chk|__vsnprintf_chk|__memcpy_chk|__memset_chk|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_)$'
defined=$(nm --defined-only "$core" "$base" 2>/dev/null | awk 'NF == 3 {print $3}' | sort -u)
bad=0
for symbol in $(nm --undefined-only "$core" | awk '$1 == "U" {print $2}' | sort -u); do
    grep -qx -- "$symbol" <<<"$defined" && continue
    [[ $symbol =~ $allowed ]] && continue
    echo "core/ uses $symbol, which is not on the list"
    bad=1
done
exit $bad
