#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What the guard adds to an allocation and its free, over the bare simulated driver, with 0 to
# 100,000 allocations alive: both runs alternate, medians are compared. ./run bench guard [ROUNDS]
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${ALLOT_BUILD:-$top/build}
rounds=${1:-5}
tmp=$(mktemp -d)
allotd=

finish() {
    if [ -n "$allotd" ]; then
        kill "$allotd" 2>/dev/null || true
        wait "$allotd" 2>/dev/null || true
    fi
    GPUSIM_BOX=$tmp/box "$build/sim/gpusim" destroy >/dev/null 2>&1 || true
    rm -rf "$tmp"
}
trap finish EXIT

export GPUSIM_BOX=$tmp/box ALLOT_SOCKET=$tmp/io.allot
"$build/sim/gpusim" create --gpus 1 --model a100-40g >/dev/null
"$build/sim/gpusim" exec -- "$build/daemon/allotd" --driver sim --socket "$ALLOT_SOCKET" \
    --state-dir "$tmp/state" --db "$tmp/accounts.db" 2>"$tmp/allotd.log" &
allotd=$!
for _ in $(seq 600); do
    "$build/ctl/gpuctl" queue >/dev/null 2>&1 && break
    sleep 0.1
done

for round in $(seq "$rounds"); do
    printf 'round %s of %s\r' "$round" "$rounds" >&2
    "$build/sim/gpusim" exec -- "$build/bench/guard-pairs" | sed 's/^/bare /' >>"$tmp/results"
    "$build/sim/gpusim" exec -- "$build/ctl/gpuctl" run --grow -- "$build/bench/guard-pairs" |
        sed 's/^/guard /' >>"$tmp/results"
done

awk '
    function median(list, n,   i, j, t) {
        for (i = 1; i <= n; i++)
            for (j = i + 1; j <= n; j++)
                if (list[j] < list[i]) { t = list[i]; list[i] = list[j]; list[j] = t }
        return list[int((n + 1) / 2)]
    }
    $2 == "launch" || $2 == "copy" { if ($1 == "guard") way[$2] = $3; next }
    { key = $1 " " $2; n[key]++; value[key, n[key]] = $3; if (!seen[$2]++) order[++count] = $2 }
    END {
        printf "%8s  %10s  %10s  %10s\n", "alive", "bare ns", "guard ns", "added ns"
        for (i = 1; i <= count; i++) {
            for (k in list) delete list[k]
            for (j = 1; j <= n["bare " order[i]]; j++) list[j] = value["bare " order[i], j]
            bare = median(list, n["bare " order[i]])
            for (k in list) delete list[k]
            for (j = 1; j <= n["guard " order[i]]; j++) list[j] = value["guard " order[i], j]
            guard = median(list, n["guard " order[i]])
            printf "%8d  %10.1f  %10.1f  %10.1f\n", order[i], bare, guard, guard - bare
        }
        printf "a launch goes to the driver: %s; a copy: %s\n", way["launch"], way["copy"]
        print "goal: at most 150 ns added, the same from 0 to 100,000"
    }' "$tmp/results"
