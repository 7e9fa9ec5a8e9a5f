#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Training by the mirrored strategy with as many rows for each GPU, and sums over replicas, in the modelled
# time of timing-only simulated boxes: ./run bench replicas
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tmp=$(mktemp -d)
finish() {
    "$top/build/sim/gpusim" destroy >/dev/null 2>&1 || true
    rm -rf "$tmp"
}
trap finish EXIT
export GPUSIM_BOX=$tmp/box ALLOT_SIM_DIR=$top/build/sim/lib ALLOT_SOCKET=$tmp/none

# measure GPUS NVLINK WORD...: microseconds
measure() {
    "$top/build/sim/gpusim" create --timing-only --gpus "$1" --model a100-80g --nvlink "$2" >/dev/null
    shift 2
    "$top/build/bench/replicas" "$@"
    "$top/build/sim/gpusim" destroy >/dev/null
}

step() {
    local one several links

    one=$(measure 1 none "$1" 1 "$2")
    for links in all none; do
        for n in 2 4 8; do
            several=$(measure "$n" "$links" "$1" "$n" "$2")
            awk -v what="$1, $2 rows a GPU, $n x A100, $([ $links = all ] && echo NVLink || echo PCIe)" -v n="$n" \
                -v one="$one" -v several="$several" \
                'BEGIN { printf "%-44s %9.1f us a step, %.2f times one GPU\n", what, several, n * one / several }'
        done
    done
}

step mlp 512
step transformer 2
for bytes in 33554432 268435456; do
    for n in 2 4 8; do
        awk -v bytes=$bytes -v n="$n" -v usec="$(measure "$n" all sum "$n" $bytes)" 'BEGIN {
            printf "%-44s %9.1f us, %.0f GB/s a link\n", "sum of " bytes / 1048576 " MiB, " n " x A100, NVLink", usec,
                   bytes / usec * 2 * (n - 1) / n / 1000 }'
    done
done
