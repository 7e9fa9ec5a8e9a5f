#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How long a look at the box takes: gpuctl status, with allotd and without, beside nvidia-smi, turn by
# turn on the same simulated box of eight GPUs. Medians; the ratios are what counts.
set -u -o pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=../scripts/step.sh
. "$top/scripts/step.sh"
# shellcheck source=../scripts/packages.sh
. "$top/scripts/packages.sh"
# shellcheck source=../scripts/cache.sh
. "$top/scripts/cache.sh"
# shellcheck source=../scripts/clients.sh
. "$top/scripts/clients.sh"
rounds=${1:-101}

clients_programs
[ -n "$clients_root" ] || die "nvidia-smi is not packaged for this system" "Debian 12 on amd64 has it"
dir=$(mktemp -d) || exit 1
daemon=
finish() {
    [ -z "$daemon" ] || kill "$daemon"
    [ -z "$daemon" ] || wait "$daemon"
    "$top/build/sim/gpusim" destroy >/dev/null
    rm -rf "$dir"
}
export GPUSIM_BOX=$dir/box ALLOT_SOCKET=$dir/io.allot LD_LIBRARY_PATH=$top/build/sim/lib
"$top/build/sim/gpusim" create --gpus 8 --model a100-40g >/dev/null || exit 1
trap finish EXIT
: >"$dir/allotd.conf"
"$top/build/daemon/allotd" --driver sim --config "$dir/allotd.conf" --socket "$ALLOT_SOCKET" \
    --state-dir "$dir/state" --db "$dir/accounts.db" 2>"$dir/log" &
daemon=$!
until "$top/build/ctl/gpuctl" explain --mem 1G >/dev/null 2>&1; do
    kill -0 "$daemon" 2>/dev/null || die "allotd ended: $(tail -n 3 "$dir/log")"
    sleep 0.05
done

"$python" - "$rounds" "$top/build/ctl/gpuctl" "$clients_root/usr/lib/nvidia/current/nvidia-smi" <<'END'
import os
import statistics
import sys
import time

rounds, gpuctl, smi = int(sys.argv[1]), sys.argv[2], sys.argv[3]
commands = {
    "nvidia-smi": [smi],
    "gpuctl status": [gpuctl, "status"],
    "gpuctl status, no daemon": [gpuctl, "--socket", "/nonexistent", "status"],
    "/bin/true": ["/bin/true"],
}
null = os.open("/dev/null", os.O_RDWR)
times = {name: [] for name in commands}
for _ in range(rounds):
    for name, words in commands.items():
        began = time.perf_counter()
        pid = os.posix_spawn(words[0], words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, null, 1)])
        os.waitpid(pid, 0)
        times[name].append(time.perf_counter() - began)
base = statistics.median(times["nvidia-smi"])
for name, values in times.items():
    median = statistics.median(values)
    print(f"{name:26} {median * 1e3:7.2f} ms   {median / base:5.2f} of nvidia-smi's")
END
