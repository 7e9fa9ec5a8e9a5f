#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The allocator against TensorFlow's, ONNX Runtime's and PyTorch's, each the real one out of its
# wheel, interleaved in one run: ./run bench allocator [--torch] [--reps N] [--no-fit | --fit-only]
#   [--json FILE]
#
#   --torch    PyTorch too: its wheel has 900 MB
#   --no-fit   leave out the search for the smallest capacity, which takes a quarter of an hour
#   --fit-only  only that search
#
# What a peer needs at least is kept in the cache, by its version and the trace: to look again costs
# only our own search. Two searches run at a time.
set -eu -o pipefail

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$top/build/bench
cache=${XDG_CACHE_HOME:-${HOME:-$top/build}/.cache}/allot
requirements=$top/scripts/requirements
# pinned FILE NAME: NAME==VERSION, as a requirement file has it.
pinned() { sed -n "s/^\($2==[^ ]*\).*/\1/p" "$requirements/$1.txt"; }
tensorflow=$(pinned allocator-peers tensorflow-cpu) onnxruntime=$(pinned allocator-peers onnxruntime)
torch=$(pinned allocator-torch torch)
python=/usr/bin/python3
[ -x "$python" ] || python=python3

with_torch='' reps=7 fit=yes times=yes json=$build/allocator.json
while [ $# -gt 0 ]; do
    case $1 in
    --torch) with_torch=yes ;;
    --no-fit) fit='' ;;
    --fit-only) times='' ;;
    --reps) reps=$2 && shift ;;
    --json) json=$2 && shift ;;
    *)
        echo "usage: ./run bench allocator [--torch] [--reps N] [--no-fit | --fit-only] [--json FILE]" >&2
        exit 1
        ;;
    esac
    shift
done

# A venv is whole once it has .complete; an unfinished one is made again.
venv=$cache/peers-${tensorflow##*=}-${onnxruntime##*=}
if [ ! -e "$venv/.complete" ]; then
    echo "fetching $tensorflow and $onnxruntime (300 MB) into $venv"
    rm -rf "$venv"
    mkdir -p "$cache"
    "$python" -m venv "$venv"
    "$venv/bin/pip" install -q --no-cache-dir --require-hashes --no-deps --only-binary :all: \
        -r "$requirements/allocator-peers.txt"
    touch "$venv/.complete"
fi
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

# engine NAME COMPILER ARGUMENT...: build/bench/engine-NAME.so, unless it is newer than its source.
engine() {
    local name=$1
    shift
    [ "$build/engine-$name.so" -nt "$top/bench/engine-${name%%-*}.$([ "$1" = g++ ] && echo cc || echo c)" ] ||
        "$@" -O2 -w -D_GNU_SOURCE -fPIC -shared -I"$top" -o "$build/engine-$name.so.new" "${after[@]}" &&
        { [ ! -e "$build/engine-$name.so.new" ] || mv "$build/engine-$name.so.new" "$build/engine-$name.so"; }
}

tf=$site/tensorflow
after=("$top/bench/engine-tf.cc" -L"$tf" -l:libtensorflow_framework.so.2 "-Wl,-rpath,$tf")
engine tf g++ -std=c++17 -I"$tf/include"
engine tf-fixed g++ -std=c++17 -DFIXED -I"$tf/include"
ort=$(echo "$site"/onnxruntime/capi/libonnxruntime.so.*)
after=("$top/bench/engine-ort.c")
engine ort gcc "-DORT_LIBRARY=\"$ort\""
engine ort-asked gcc -DASKED "-DORT_LIBRARY=\"$ort\""

peers=(tf ort) fits=(allot tf tf-fixed ort ort-asked)
if [ -n "$with_torch" ]; then
    dir=$cache/torch-${torch##*=}
    if [ ! -e "$dir/.complete" ]; then
        echo "fetching $torch (900 MB)"
        rm -rf "$dir"
        mkdir -p "$dir"
        "$venv/bin/pip" download -q --no-cache-dir --require-hashes --no-deps --only-binary :all: -d "$dir" \
            -r "$requirements/allocator-torch.txt"
        "$python" - "$dir" <<'END'
import glob, sys, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
for name in wheel.namelist():
    if name.startswith(("torch/include/c10/", "torch/include/torch/headeronly/")) or \
            name in ("torch/lib/libc10.so", "torch/lib/libc10_cuda.so"):
        wheel.extract(name, sys.argv[1])
END
        rm -f "$dir"/*.whl
        touch "$dir/.complete"
    fi
    cuda=$(sed -n 's/^-Dvendor_cuda=//p' "$top/build/.configured" 2>/dev/null || true)
    [ -e "$cuda/cuda_runtime_api.h" ] || cuda=/usr/local/cuda/include
    mkdir -p "$build/cudart"
    echo 'libcudart.so.12 { global: cuda*; fake_*; };' >"$build/cudart/map"
    gcc -O2 -w -D_GNU_SOURCE -fPIC -shared -Wl,-soname,libcudart.so.12 \
        "-Wl,--version-script=$build/cudart/map" "$top/bench/fake-cudart.c" -o "$build/cudart/libcudart.so.12"
    after=("$top/bench/engine-torch.cc" -L"$dir/torch/lib" -L"$build/cudart" -l:libc10_cuda.so
        -l:libc10.so -l:libcudart.so.12 "-Wl,-rpath,$dir/torch/lib:$build/cudart")
    engine torch g++ -std=c++17 -I"$dir/torch/include" -I"$cuda"
    peers+=(torch) fits+=(torch)
fi

traces=$build/traces
[ "$traces/serving.trace" -nt "$build/tracegen" ] || "$build/tracegen" --all "$traces"
quiet() {
    TF_CPP_MIN_LOG_LEVEL=3 "$@" 2>>"$build/allocator.log"
}
engines=(--engine allot --engine allot-ptr)
for peer in "${peers[@]}"; do
    engines+=(--engine "$peer")
done
all=("$traces"/{lifo,random,training,shift,holes-1k,holes-10k,live-1k,live-10k,live-100k,live-1m,serving}.trace)
: >"$build/allocator.log"
if [ -n "$times" ]; then
    rm -f "$json" "$json".*
    echo "replaying: $reps laps of each, taking turns"
    quiet "$build/replay" "${engines[@]}" --reps "$reps" --json "${all[@]}" >"$json"
    echo "one thread and two, taking turns"
    for round in $(seq "$reps"); do # 160 G: two of the largest trace at once
        for threads in 1 2; do
            quiet "$build/replay" --engine allot --engine tf --capacity 160G --reps 3 --threads "$threads" \
                --json "$traces"/{lifo,random,training,live-10k}.trace >"$json.$threads.$round"
        done
        # What two CPUs of this machine are worth: two processes that share nothing.
        for trace in lifo random training live-10k; do
            pids=()
            for k in a b; do
                "$build/replay" --engine allot --capacity 160G --reps 3 --json "$traces/$trace.trace" \
                    >"$json.alone.$trace.$round.$k" &
                pids+=($!)
            done
            wait "${pids[@]}"
        done
    done
    echo "size shifts in 200 ways"
    for seed in $(seq 200); do
        "$build/tracegen" --seed "$seed" shift >"$traces/some-shift.trace"
        quiet "$build/replay" --engine allot --reps 1 --json "$traces/some-shift.trace" >"$json.shift.$seed"
    done
    rm -f "$traces/some-shift.trace"
fi

# fit_one ENGINE TRACE: a line of JSON beside $json, and in the cache by what it depends on.
fit_one() {
    local engine=$1 trace=$2 versions key kept
    case $engine in
    allot) versions=$(sha256sum <"$build/replay") ;;
    torch) versions=$torch ;;
    *) versions="$tensorflow $onnxruntime $(sha256sum <"$top/bench/engine-${engine%%-*}".c*)" ;;
    esac
    key=$({ echo "$engine $versions" && cat "$trace"; } | sha256sum)
    kept=$cache/fits/${key%% *}.json
    if [ ! -s "$kept" ]; then
        TF_CPP_MIN_LOG_LEVEL=3 "$build/replay" --fit --engine "$engine" --json "$trace" >"$kept.$$" \
            2>>"$build/allocator.log"
        mv "$kept.$$" "$kept"
    fi
    cp "$kept" "$json.fit.$engine.$(basename "$trace" .trace)"
}

if [ -n "$fit" ]; then
    echo "looking for the smallest capacities"
    rm -f "$json".fit.*
    mkdir -p "$cache/fits"
    export -f fit_one
    export top build cache json tensorflow onnxruntime torch
    # ONNX Runtime that takes what is asked has a region per block: with 10⁶ one replay takes 20 minutes.
    for trace in "${all[@]}"; do
        printf '%s\n' "${fits[@]/%/ $trace}"
    done | sed '/^ort-asked .*live-1m/d' | xargs -P 2 -L 1 bash -eu -o pipefail -c 'fit_one "$@"' fit
fi
exec "$python" "$top/bench/allocator-table.py" "$json"
