#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# liballot's graphs on the CPU against TensorFlow, ONNX Runtime and OpenBLAS, taking turns in one run:
# ./run bench graph [--rounds N] [--clock wall|cpu] [--rows ROW,...] [--json FILE]
#
#   --clock cpu   CPU time instead of the wall clock: where others use the machine
#   --rows        of: chain wide layered build-chain build-wide mlp matmul peaks
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=scripts/step.sh
. "$top/scripts/step.sh"
# shellcheck source=scripts/cache.sh
. "$top/scripts/cache.sh"

pinned=$top/scripts/requirements/graph-peers.txt
name=venv/graph-peers-$(cache_key "file:$pinned" "$("$python" -VV)")
cache_entry "TensorFlow and ONNX Runtime (300 MB)" "$name" cache_venv "$pinned" ||
    die "the wheels of scripts/requirements/graph-peers.txt could not be installed" \
        "check the network and pip's configuration (pip config list)"
: >"$top/build/bench/graph-peers.log"
exec "$cache/$name/bin/python" "$top/bench/graph-table.py" "$top/build/bench/graph-allot" \
    "$cache/$name/bin/python" --log "$top/build/bench/graph-peers.log" "$@"
