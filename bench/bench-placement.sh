#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Steps by the dynamic placer against rules of thumb, in the modelled time of timing-only simulated boxes:
# ./run bench placement
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tmp=$(mktemp -d)
finish() {
    "$top/build/sim/gpusim" destroy >/dev/null 2>&1 || true
    rm -rf "$tmp"
}
trap finish EXIT
export GPUSIM_BOX=$tmp/box ALLOT_SIM_DIR=$top/build/sim/lib ALLOT_SOCKET=$tmp/none

measure() {
    echo "== $1"
    shift
    "$top/build/sim/gpusim" create --timing-only "$@" >/dev/null
    "$top/build/bench/placement-rules" 2>"$tmp/log" || { cat "$tmp/log" >&2; exit 1; }
    "$top/build/sim/gpusim" destroy >/dev/null
}

measure "2 x A100, NVLink" --gpus 2 --model a100-40g
measure "4 x A100, NVLink" --gpus 4 --model a100-40g
measure "8 x A100, NVLink" --gpus 8 --model a100-40g
measure "4 x A100, PCIe" --gpus 4 --model a100-40g --nvlink none
measure "A100 + T4" --gpus 2 --model a100-40g,t4-16g
