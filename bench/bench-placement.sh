#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Steps by the dynamic placer against rules of thumb, in the modelled time of timing-only simulated boxes:
# ./run bench placement [GRAPH…]
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tmp=$(mktemp -d)
finish() {
    "$top/build/sim/gpusim" destroy >/dev/null 2>&1 || true
    rm -rf "$tmp"
}
trap finish EXIT
export GPUSIM_BOX=$tmp/box ALLOT_SIM_DIR=$top/build/sim/lib ALLOT_SOCKET=$tmp/none
graphs=("$@")

measure() {
    echo "== $1 (modelled)"
    shift
    "$top/build/sim/gpusim" create --timing-only "$@" >/dev/null
    "$top/build/bench/placement-rules" "${graphs[@]}" >"$tmp/table" 2>"$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
    grep -v '^summary ' "$tmp/table"
    sed -n 's/^summary //p' "$tmp/table" >>"$tmp/summaries"
    "$top/build/sim/gpusim" destroy >/dev/null
}

measure "2 x A100, NVLink" --gpus 2 --model a100-40g
measure "4 x A100, NVLink" --gpus 4 --model a100-40g
measure "8 x A100, NVLink" --gpus 8 --model a100-40g
measure "2 x A100, PCIe behind one uplink" --gpus 2 --model a100-40g --nvlink none --uplink one --no-p2p
measure "4 x A100, PCIe behind one uplink" --gpus 4 --model a100-40g --nvlink none --uplink one --no-p2p
measure "8 x A100, PCIe behind one uplink" --gpus 8 --model a100-40g --nvlink none --uplink one --no-p2p
measure "A100 + T4" --gpus 2 --model a100-40g,t4-16g
measure "4 x A100, NVLink, tight memory" --gpus 4 --model a100-40g --memory 1280M
awk '{ n += $1; off += $3; gain += $5; ratio = $2 > ratio ? $2 : ratio; worst = $4 > worst ? $4 : worst }
    END { printf "%d steps, all modelled: at worst %.3f times the best rule, which takes %.2f times as long on average; " \
                 "expected steps are off by %.1f %% on average, %.1f %% at worst\n", n, ratio, exp(gain / n), 100 * off / n,
                 100 * worst }' "$tmp/summaries"
