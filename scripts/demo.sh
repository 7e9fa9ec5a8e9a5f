# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Demo: a simulated box, allotd, and programs from elsewhere that share a card by leases. Everything
# it makes is in one temporary folder and ends with it.

demo_dir=
demo_pids=()            # of the jobs, and by their names:
declare -A demo_pid=()
demo_daemon=

demo_end() {
    local pid
    trap - EXIT
    trap '' INT TERM    # a second Ctrl-C must not leave half of it behind
    for pid in "${demo_pids[@]}" $demo_daemon; do
        kill "$pid" 2>/dev/null
    done
    for pid in "${demo_pids[@]}" $demo_daemon; do
        wait "$pid" 2>/dev/null
    done
    if [ -n "$demo_dir" ]; then
        [ ! -e "$GPUSIM_BOX" ] || "$top/build/sim/gpusim" destroy >/dev/null
        rm -rf "$demo_dir"
    fi
}

demo_say() { printf '\n== %s\n' "$1"; }

# demo_fail SENTENCE: with what the daemon had to say.
demo_fail() {
    [ ! -s "$demo_dir/allotd.log" ] || tail -n 5 "$demo_dir/allotd.log" | sed 's/^/    | /' >&2
    die "$1" "./run test shows whether the build is sound"
}

# demo_show COMMAND...: the command as one would type it, and what comes of it.
demo_show() {
    local words=("$@")
    words[0]=${words[0]##*/}
    printf '$ %s\n' "${words[*]}"
    "$@" || demo_fail "${words[0]} failed (exit $?)"
}

# demo_wait SENTENCE COMMAND...: until the command succeeds; two minutes are for machines on their knees.
demo_wait() {
    local what=$1 tries=2400
    shift
    until "$@" 2>/dev/null; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || demo_fail "$what did not come to pass"
        sleep 0.05
    done
}

demo_allotd() {
    "$top/build/daemon/allotd" --driver sim --config "$demo_dir/allotd.conf" --socket "$ALLOT_SOCKET" \
        --state-dir "$demo_dir/state" --db "$demo_dir/accounts.db" 2>>"$demo_dir/allotd.log" &
    demo_daemon=$!
    demo_wait "allotd" "$gpuctl" explain --mem 1G >/dev/null
}

# demo_start NAME OPTION... -- WORD...: a job under gpuctl run, in the background.
demo_start() {
    local name=$1 options=()
    shift
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    printf '$ gpuctl run --name %s %s -- python job.py %s &\n' "$name" "${options[*]}" "$*"
    (cd "$demo_dir" && PATH=$clients_venv/bin:$PATH exec "$gpuctl" run --name "$name" "${options[@]}" -- python job.py "$@") \
        >"$demo_dir/$name" 2>&1 &
    demo_pids+=($!)
    demo_pid[$name]=$!
}

# demo_until NAME TEXT: until the job has said that; the line.
demo_until() {
    demo_wait "$1: $2" grep -q "$2" "$demo_dir/$1"
    printf '[%s] %s\n' "$1" "$(grep -m 1 "$2" "$demo_dir/$1")"
}

demo_step() { grep -o '^step [0-9]*' "$demo_dir/$1" | tail -n 1 | cut -d ' ' -f 2; }

# demo_is_past NAME STEP
demo_is_past() { [ "$(demo_step "$1")" -gt "$2" ]; }

demo_stop() {
    kill "${demo_pid[$1]}"
    wait "${demo_pid[$1]}" || demo_fail "job $1 ended badly: $(tail -n 3 "$demo_dir/$1")"
    printf '[%s] %s\n' "$1" "$(tail -n 1 "$demo_dir/$1")"
}

demo_run() {
    local gpuctl=$top/build/ctl/gpuctl step
    build_release
    clients_python

    trap demo_end EXIT
    trap 'exit 130' INT TERM
    demo_dir=$(mktemp -d "${TMPDIR:-/tmp}/allot-demo.XXXXXX") || die "no temporary folder" "is TMPDIR writable?"
    : >"$demo_dir/allotd.conf"
    cp "$top/scripts/demo_job.py" "$demo_dir/job.py"
    export GPUSIM_BOX=$demo_dir/box ALLOT_SOCKET=$demo_dir/io.allot LD_LIBRARY_PATH=$top/build/sim/lib
    unset CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER LD_PRELOAD

    demo_say "A box of four GPUs that are not there, and allotd to share them."
    demo_show "$top/build/sim/gpusim" create --gpus 4 --model a100-40g
    printf '$ allotd --driver sim … &\n'
    demo_allotd

    demo_say "Two programs, written with cuda-bindings from PyPI, each with 0.4 of the first card."
    demo_start alpha --devices 0 --fraction 0.4 -- work 12
    demo_start beta --devices 0 --fraction 0.4 -- work 9
    demo_until alpha "the card has"
    demo_until alpha holds
    demo_until beta holds

    demo_say "A third one does not fit: it waits, and is told its place and the reason."
    demo_start gamma --devices 0 --fraction 0.4 -- work 6
    demo_until gamma waiting

    demo_say "A job that takes all it can get, with a tenth of the second card, is held to that share."
    demo_start greedy --devices 1 --fraction 0.1 -- greedy
    demo_until greedy "the card has"
    demo_until greedy took
    wait "${demo_pid[greedy]}" || demo_fail "greedy ended badly: $(tail -n 3 "$demo_dir/greedy")"

    demo_say "A job linked with liballot spreads two towers over two cards: what it will need, what goes where, and why."
    printf '$ CUDA_VISIBLE_DEVICES=2,3 spread page.html\n'
    (cd "$demo_dir" && CUDA_VISIBLE_DEVICES=2,3 exec "$top/build/examples/spread" page.html) >"$demo_dir/spread" 2>&1 ||
        demo_fail "spread ended badly: $(tail -n 3 "$demo_dir/spread")"
    demo_until spread "^a step needs"
    demo_until spread "^MatMul: (MatMul)"
    demo_until spread "^MatMul_3: (MatMul)"
    demo_until spread "^plan of"

    demo_say "Another trains a network on the third card, in memory that grows with its batches."
    printf '$ CUDA_VISIBLE_DEVICES=2 train trace.json &\n'
    (cd "$demo_dir" && CUDA_VISIBLE_DEVICES=2 exec "$top/build/examples/train" trace.json) >"$demo_dir/train" 2>&1 &
    demo_pids+=($!)
    demo_pid[train]=$!
    demo_until train "Creating device"
    demo_until train "^MatMul: (MatMul)"
    demo_until train "batch 64"

    demo_say "Who holds what, and who waits:"
    demo_show "$gpuctl" status

    demo_say "The daemon is killed with -9. The jobs work on; a new one knows them."
    step=$(demo_step alpha)
    printf '[alpha] step %s\n$ kill -9 allotd\n' "$step"
    kill -KILL "$demo_daemon"
    wait "$demo_daemon" 2>/dev/null
    demo_wait "work without a daemon" demo_is_past alpha $((step + 5))
    printf '[alpha] step %s\n$ allotd --driver sim … &\n' "$(demo_step alpha)"
    demo_allotd
    demo_show "$gpuctl" leases

    demo_say "The training goes on as if nothing had happened, and leaves a trace of its last step for Perfetto."
    demo_until train "batch 1024"
    demo_until train "batch 8192"
    wait "${demo_pid[train]}" || demo_fail "train ended badly: $(tail -n 3 "$demo_dir/train")"
    printf '[train] trace.json: %s events\n' "$(grep -c '"ph":"X"' "$demo_dir/trace.json")"

    demo_say "The first job ends, and the one that waited starts."
    demo_stop alpha
    demo_until gamma holds
    demo_show "$gpuctl" leases
    demo_stop beta
    demo_stop gamma
    demo_end
    demo_say "All gone again: jobs, daemon, box. Your own: build/sim/gpusim create, then docs/simulator.md."
}
