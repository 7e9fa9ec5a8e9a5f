# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Build: one folder per variant, configured only when its options change.
#
#     release build/        debug build-debug/    asan build-asan/ (clang: address + undefined, fuzz targets)
#     clang   build-clang/  tsan  build-tsan/

build_werror=${CI:+true}    # warnings are errors in CI and in tests, and only there

# Compilations are remembered in the shared cache, under paths that are relative to the clone: a second
# clone, wherever it lies, compiles only what differs.
export CCACHE_DIR=$cache/ccache CCACHE_MAXSIZE=5G CCACHE_BASEDIR=$top CCACHE_NOHASHDIR=yes

build_dir() {
    if [ "$1" = release ]; then
        printf '%s\n' "$top/build"
    else
        printf '%s\n' "$top/build-$1"
    fi
}

# build_options VARIANT: the meson options of a variant, one a line.
build_options() {
    case $1 in
    release | clang) printf '%s\n' -Dbuildtype=release ;;
    debug) printf '%s\n' -Dbuildtype=debug ;;
    asan) printf '%s\n' -Dbuildtype=debugoptimized -Db_sanitize=address,undefined -Db_lundef=false \
        -Dfuzz=true -Dbench=false -Ddocs=false ;;
    tsan) printf '%s\n' -Dbuildtype=debugoptimized -Db_sanitize=thread -Db_lundef=false \
        -Dbench=false -Ddocs=false ;;
    esac
}

build_compiler() {
    case $1 in
    clang | asan) printf 'clang\n' ;;
    *) printf '%s\n' "${CC:-gcc}" ;;
    esac
}

# build_cc VARIANT: the compiler, behind ccache where there is one.
build_cc() {
    local compiler
    compiler=$(build_compiler "$1")
    [[ $compiler = *ccache* ]] || ! command -v ccache >/dev/null || compiler="ccache $compiler"
    printf '%s\n' "$compiler"
}

# A build folder that was made for another place or compiler is of no use; what setup put there is.
build_forget() {
    find "$1" -mindepth 1 -maxdepth 1 ! -name vendor ! -name logs -exec rm -rf {} +
}

build_configure() {
    local variant=$1 dir base options
    dir=$(build_dir "$variant")
    mapfile -t options < <(build_options "$variant")
    options+=("--prefix=${PREFIX:-/usr/local}" "-Dvendor_cuda=$vendor_include"
        "-Dvendor_nvml=$vendor/nvml/include" "-Dnvcc=$vendor_nvcc")
    if [ -n "$build_werror" ] || grep -qsx -- -Dwerror=true "$dir/.configured"; then
        options+=(-Dwerror=true)
    fi
    base="$top $(build_compiler "$variant")"
    if [ -f "$dir/build.ninja" ] && [ "$(cat "$dir/.configured" 2>/dev/null)" = "$(printf '%s\n' "$base" "${options[@]}")" ]; then
        return 0
    fi
    if [ -d "$dir" ] && [ "$(head -n 1 "$dir/.configured" 2>/dev/null)" != "$base" ]; then
        build_forget "$dir"
    fi
    local again=()
    [ ! -f "$dir/build.ninja" ] || again=(--reconfigure)
    step_run "configure ${dir##*/}" "build/configure-$variant.log" \
        env CC="$(build_cc "$variant")" meson setup "${again[@]}" "${options[@]}" "$dir" "$top" || return 1
    printf '%s\n' "$base" "${options[@]}" >"$dir/.configured"
}

# build_variant VARIANT: needs vendor_setup before it. .compiled is as old as the sources that went into it.
build_variant() {
    local dir
    dir=$(build_dir "$1")
    build_configure "$1" && rm -f "$dir/.compiled" && touch "$dir/.compiling" &&
        step_apart $((1800 * ${ALLOT_TIME_SCALE:-1})) \
            step_run "compile ${dir##*/}" "build/compile-$1.log" ninja -j "$(nproc)" -C "$dir" &&
        mv "$dir/.compiling" "$dir/.compiled"
}

# build_is_current: build/ was made for this prefix and compiler, and from the sources as they are now;
# tests, scripts and texts are copied or not installed. Looks at files alone: it can be asked where no
# compiler is installed.
build_is_current() {
    local configured=$top/build/.configured
    [ "$(head -n 1 "$configured" 2>/dev/null)" = "$top $(build_compiler release)" ] &&
        grep -qxF -- "--prefix=${PREFIX:-/usr/local}" "$configured" && [ -f "$top/build/.compiled" ] &&
        [ -z "$(find "$top" \( -path "$top/build" -o -path "$top/build-*" -o -path "$top/tests" -o -path "$top/scripts" \
            -o -name .git -o -name __pycache__ \) -prune -o -type f ! -name '*.md' -newer "$top/build/.compiled" -print -quit)" ]
}

# build_ahead VARIANT...: compile beside tests that leave the processors idle, with what these leave.
# build_ahead_end, before anything else is compiled: ninja goes on later where it was stopped.
build_ahead_pid=

build_ahead() {
    local variant
    for variant in "$@"; do
        build_configure "$variant" || return 0 # its suite will say so
    done
    set -m
    (
        for variant in "$@"; do
            nice -n 19 ninja -j "$(nproc)" -C "$(build_dir "$variant")" || exit
        done
    ) </dev/null >"$logs/build/ahead.log" 2>&1 &
    build_ahead_pid=$!
    set +m
    trap build_ahead_end EXIT
}

build_ahead_end() {
    [ -n "$build_ahead_pid" ] || return 0
    kill -TERM -- "-$build_ahead_pid" 2>/dev/null
    wait "$build_ahead_pid" 2>/dev/null
    build_ahead_pid=
}

# Everything that a command needs before it can use build/.
build_release() {
    packages_need build
    vendor_setup
    build_variant release || die "the build failed" "the log above says where"
}
