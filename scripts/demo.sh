# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Demo: a simulated box, programs that hold memory on it, and what NVIDIA's and other people's tools
# say about that. Everything it makes is in one temporary folder and ends with it.

demo_dir=
demo_pids=()

demo_end() {
    local pid
    trap - EXIT
    trap '' INT TERM    # a second Ctrl-C must not leave half of it behind
    for pid in "${demo_pids[@]}"; do
        kill "$pid" 2>/dev/null
    done
    for pid in "${demo_pids[@]}"; do
        wait "$pid" 2>/dev/null
    done
    if [ -n "$demo_dir" ]; then
        [ ! -e "$GPUSIM_BOX" ] || "$top/build/sim/gpusim" destroy >/dev/null
        rm -rf "$demo_dir"
    fi
}

# demo_show SENTENCE COMMAND...: what is done and what comes of it.
demo_show() {
    local words=("${@:2}")
    printf '\n== %s\n' "$1"
    words[0]=${words[0]##*/}
    printf '$ %s\n' "${words[*]}"
    "${@:2}" || die "${words[0]} failed (exit $?)" "./run test shows whether the build is sound"
}

# demo_hold NAME DEVICE SIZE: start a program that holds memory, and wait until it does.
demo_hold() {
    local said=$demo_dir/$1
    : >"$said"
    "$top/build/examples/hold" --device "$2" "$3" >"$said" 2>&1 &
    demo_pids+=($!)
    while ! grep -q holds "$said"; do
        kill -0 "$!" 2>/dev/null || die "hold ended: $(cat "$said")" "./run test shows whether the build is sound"
        sleep 0.05
    done
    printf '$ hold --device %s %s &\n' "$2" "$3"
    cat "$said"
}

demo_run() {
    local smi sim=$top/build/sim
    build_release
    clients_python
    clients_programs
    smi=$clients_root/usr/lib/nvidia/current/nvidia-smi

    trap demo_end EXIT
    trap 'exit 130' INT TERM
    demo_dir=$(mktemp -d "${TMPDIR:-/tmp}/allot-demo.XXXXXX") || die "no temporary folder" "is TMPDIR writable?"
    export GPUSIM_BOX=$demo_dir/box
    unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER
    demo_show "A box of four GPUs that are not there: one shared file, and NVIDIA's two libraries over it." \
        "$sim/gpusim" create --gpus 4 --model a100-40g

    export LD_LIBRARY_PATH=$sim/lib
    printf '\n== Three CUDA programs that know nothing of it take memory.\n'
    demo_hold first 0 8GiB
    demo_hold second 0 4GiB
    demo_hold third 2 30GiB
    if [ -n "$clients_root" ]; then
        demo_show "NVIDIA's own nvidia-smi, unmodified, from Debian's package (it counts the programs' contexts, too):" "$smi"
    fi
    demo_show "nvitop, from PyPI, asks the same libraries:" "$clients_venv/bin/nvitop" -1 --ascii

    kill -KILL "${demo_pids[0]}"
    wait "${demo_pids[0]}" 2>/dev/null
    printf '\n== The first program is killed with -9. It could clean nothing up; its 8 GiB are free all the same.\n'
    if [ -n "$clients_root" ]; then
        demo_show "What is left on the GPUs:" "$smi" --query-compute-apps=pid,used_memory,gpu_uuid --format=csv
    fi
    demo_show "And gpusim's own picture of the box:" "$sim/gpusim" show
    demo_end
    printf 'The box is gone, and so are its programs. Your own: build/sim/gpusim create, then\n'
    printf 'build/sim/gpusim exec -- nvidia-smi (or any program that speaks NVML or CUDA).\n'
}
