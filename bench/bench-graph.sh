#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# liballot's graphs on the CPU against TensorFlow, ONNX Runtime and OpenBLAS, taking turns in one run, and what
# liballot itself costs for each op on a GPU, on a simulated box:
# ./run bench graph [--rounds N] [--clock wall|cpu] [--rows ROW,...] [--json FILE]
#
#   --clock cpu   CPU time instead of the wall clock: where others use the machine
#   --rows        of: chain wide layered build-chain build-wide mlp matmul peaks gpu-chain gpu-wide gpu-mlp
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/step.sh
. "$top/scripts/step.sh"
# shellcheck source=scripts/cache.sh
. "$top/scripts/cache.sh"

tmp=$(mktemp -d)
finish() {
    "$top/build/sim/gpusim" destroy >/dev/null 2>&1 || true
    rm -rf "$tmp"
}
trap finish EXIT
# The libcuda of null-cuda.c, and no daemon.
export GPUSIM_BOX=$tmp/box ALLOT_SIM_DIR=$top/build/bench ALLOT_SOCKET=$tmp/none
"$top/build/sim/gpusim" create --gpus 1 --model a100-40g >/dev/null

pinned=$top/scripts/requirements/graph-peers.txt
name=venv/graph-peers-$(cache_key "file:$pinned" "$("$python" -VV)")
cache_entry "TensorFlow and ONNX Runtime (300 MB)" "$name" cache_venv "$pinned" || cache_die graph-peers
: >"$top/build/bench/graph-peers.log"
"$cache/$name/bin/python" "$top/bench/graph-table.py" "$top/build/bench/graph-allot" \
    "$cache/$name/bin/python" --gpu "$top/build/bench/graph-gpu" --log "$top/build/bench/graph-peers.log" "$@"
