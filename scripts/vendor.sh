# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Vendor: NVIDIA's headers and nvcc. An installed CUDA toolkit is used; where there is none, the same
# files come from PyPI wheels into build/vendor. nvml.h is always the wheel's, because the toolkits'
# are older than the calls we know. ALLOT_TOOLKIT=wheels leaves an installed toolkit alone.

vendor=$top/build/vendor
vendor_include=     # folder with cuda.h, set by vendor_setup
vendor_nvcc=

vendor_is_toolkit() {
    local release
    [ -f "$1/include/cuda.h" ] && [ -x "$1/bin/nvcc" ] || return 1
    release=$("$1/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
    [ "${release:-0}" -ge 12 ]
}

# Prints the prefix of the installed toolkit, or nothing.
vendor_find_toolkit() {
    local nvcc prefix
    [ "${ALLOT_TOOLKIT:-auto}" != wheels ] || return 0
    nvcc=$(command -v nvcc || true)
    for prefix in "${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda /opt/cuda \
        "${nvcc:+$(dirname "$(dirname "$(readlink -f "$nvcc")")")}"; do
        if [ -n "$prefix" ] && vendor_is_toolkit "$prefix"; then
            printf '%s\n' "$prefix"
            return 0
        fi
    done
}

# vendor_unpack PINNED WHEELS DIR: the common folder of the wheels, which PINNED has the hashes of, becomes DIR, in
# one rename.
vendor_unpack() {
    local pinned=$1 wheels=$2 dir=$3 new=$3.new.$$
    rm -rf "$new"
    "$python" "$top/scripts/unwheel.py" "$pinned" "$new" "$wheels"/*.whl || return 1
    rm -rf "$dir"
    mv -T "$new" "$dir"
    printf '%s\n' "$wheels" >"$dir/.wheels"
}

# vendor_wheels LABEL NAME DIR: DIR holds what scripts/requirements/NAME.txt pins.
vendor_wheels() {
    local label=$1 name=$2 dir=$3 pinned=$top/scripts/requirements/$2.txt wheels pip
    wheels=wheels/$name-$(cache_key "file:$pinned" "$(uname -m)")
    pip=venv/pip-$(cache_key "$("$python" -VV)")
    [ "$(cat "$dir/.wheels" 2>/dev/null)" != "$cache/$wheels" ] || return 0
    if ! cache_entry "pip" "$pip" cache_venv "" ||
        ! cache_entry "$label (download)" "$wheels" cache_wheels "$cache/$pip" "$pinned"; then
        cache_die "$name"
    fi
    mkdir -p "$vendor"
    step_run "$label (unpack)" "setup/unpack-$name.log" vendor_unpack "$pinned" "$cache/$wheels" "$dir" ||
        die "the wheels in $cache/$wheels could not be unpacked" "./run clean --cache, then try again"
}

vendor_setup() {
    local toolkit
    vendor_wheels "nvml.h" nvml "$vendor/nvml"
    toolkit=$(vendor_find_toolkit)
    if [ -z "$toolkit" ]; then
        vendor_wheels "CUDA compiler and headers" cuda "$vendor/cuda"
        toolkit=$vendor/cuda
    fi
    vendor_include=$toolkit/include
    vendor_nvcc=$toolkit/bin/nvcc
}
