# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Pycuda: it has no wheels, so it is compiled once per interpreter into the cache, against cuda.h and a
# library made here that has the driver's names and nothing behind them. That takes a minute of one core,
# without optimisation, which its tests do not miss.

pycuda_dir=         # folder for PYTHONPATH, empty where it could not be made

pycuda_fill() {
    local pinned=$1 dir=$2 work=$2/work source
    "$python" -m venv "$dir/venv" && mkdir -p "$work/lib" || return 1
    cache_pip "$dir/venv" install --only-binary :all: -r "$pinned-build.txt" -r "$pinned-run.txt" || return 1
    cache_pip "$dir/venv" download --no-deps --no-binary pycuda --no-build-isolation -d "$work" -r "$pinned.txt" ||
        return 1
    tar -xf "$work"/pycuda-*.tar.gz -C "$work" || return 1
    source=$(find "$work" -maxdepth 1 -type d -name 'pycuda-*')
    sed -n 's/^FUNCTION(\(.*\))/void \1(void) {}/p' "$top/vendor/cuda_names.def" >"$work/cuda.c"
    gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$work/lib/libcuda.so" "$work/cuda.c" || return 1
    cat >"$source/siteconf.py" <<-END
	USE_SHIPPED_BOOST = True
	CUDA_ROOT = None
	CUDA_ENABLE_GL = False
	CUDA_ENABLE_CURAND = False
	CUDA_INC_DIR = ["$vendor_include"]
	CUDADRV_LIB_DIR = ["$work/lib"]
	CUDADRV_LIBNAME = ["cuda"]
	CXXFLAGS = ["-O0", "-g0", "-w"]
	LDFLAGS = []
	END
    "$dir/venv/bin/pip" install --no-index --no-deps --no-build-isolation --target "$dir/lib" "$source" || return 1
    cache_pip "$dir/venv" install --no-deps --only-binary :all: --target "$dir/lib" -r "$pinned-run.txt" || return 1
    rm -rf "$dir/venv" "$work"
}

# Without it its tests skip: a compiler or a header that it does not like is no fault of ours.
pycuda_setup() {
    local name include pinned=$top/scripts/requirements/pycuda
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    [ -f "$include/Python.h" ] || packages_need pycuda
    [ -n "$vendor_include" ] || vendor_setup
    name=pycuda/$(cache_key "file:$pinned.txt" "file:$pinned-build.txt" "file:$pinned-run.txt" \
        "file:$top/scripts/pycuda.sh" "$("$python" -VV)")
    if cache_entry "pycuda, compiled" "$name" pycuda_fill "$pinned"; then
        pycuda_dir=$cache/$name/lib
    else
        say "pycuda could not be compiled: its tests skip"
    fi
}
