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

# measure GPUS LINKS WORD...: microseconds
measure() {
    local links=()

    case $2 in
    PCIe) links=(--nvlink none --uplink own) ;;
    uplink) links=(--nvlink none --uplink one --no-p2p) ;;
    esac
    "$top/build/sim/gpusim" create --timing-only --gpus "$1" --model a100-80g "${links[@]}" >/dev/null
    shift 2
    "$top/build/bench/replica-steps" "$@"
    "$top/build/sim/gpusim" destroy >/dev/null
}

# step MODEL ROWS BYTES: with so many bytes of gradients
step() {
    local one several sum links n

    one=$(measure 1 NVLink "$1" 1 "$2")
    for links in NVLink PCIe uplink; do
        for n in 2 4 8; do
            several=$(measure "$n" $links "$1" "$n" "$2")
            sum=$(measure "$n" $links sum "$n" "$3")
            awk -v what="$1, $2 rows a GPU, $n x A100, $links" -v n="$n" -v links=$links \
                -v one="$one" -v several="$several" -v sum="$sum" 'BEGIN {
                goal = links == "NVLink" && n == 4 ? 3.7 : links == "NVLink" && n == 8 ? 7.2 : 0
                times = n * one / several
                open = several > one ? several - one : 0
                hidden = open < sum ? 100 * (1 - open / sum) : 0
                printf "%-44s %9.1f us a step, %.2f times one GPU", what, several, times
                if (goal)
                    printf " (%.2f of the goal)", times / goal
                printf "; %.0f %% of the sum is hidden\n", hidden }'
        done
    done
}

echo "All times are modelled. uplink: PCIe behind one uplink, without copies from GPU to GPU."
step mlp 512 301989888
step transformer 2 201326592
for bytes in 33554432 268435456 1073741824; do
    for n in 2 4 8; do
        awk -v bytes=$bytes -v n="$n" -v usec="$(measure "$n" NVLink sum "$n" $bytes)" 'BEGIN {
            rate = bytes / usec * 2 * (n - 1) / n / 1000
            printf "%-44s %9.1f us, %.0f GB/s, %.0f %% of the links\n",
                   "sum of " bytes / 1048576 " MiB, " n " x A100, NVLink", usec, rate, 100 * rate / 255 }'
    done
done
