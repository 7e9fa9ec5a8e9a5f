# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Clients: programs that the simulated box must convince. Debian's nvidia-smi, nvtop and the real
# driver libraries are unpacked into the cache, never installed: an apt state of our own names
# contrib and non-free, the system's does not change. The Python ones live in a venv.
#
# The wheels are pinned by hash. The packages are not: Debian's archive drops a version when it has the
# next one, so a pinned one could not be fetched for long. apt checks them instead, by the keys that the
# machine's own sources name (scripts/nonfree.py copies Signed-By): the signature of the archive's Release
# file, and by the hashes in it each index and each package.

clients_debs=(libcuda1 libnvidia-ml1 nvidia-smi nvtop)
clients_root=       # folder with the unpacked packages, empty where Debian has none for this machine
clients_venv=
clients_driver=     # folder with libcuda.so.1 and libnvidia-ml.so.1 of the real driver
clients_tensorflow= # venv with TensorFlow, empty where the pinned wheels are not for this machine
clients_torch=      # venv with PyTorch, empty unless the cache has it

clients_unpack() {
    local codename=$1 dir=$2 apt deb options
    apt=$dir/apt
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,etc,debs}
    "$python" "$top/scripts/nonfree.py" "$codename" "$apt/etc/nonfree.sources" || return 1
    options=(-q -o "Dir::State=$apt/state" -o "Dir::State::status=/var/lib/dpkg/status"
        -o "Dir::Cache=$apt/cache" -o "Dir::Etc::sourcelist=$apt/etc/nonfree.sources"
        -o "Dir::Etc::sourceparts=-" -o APT::Sandbox::User=root -o Acquire::Languages=none)
    # Another repository with the same suite name may lack these components: what counts is the download.
    apt-get "${options[@]}" update || say "apt-get update reported errors: trying the downloads all the same"
    (cd "$apt/debs" && apt-get "${options[@]}" download "${clients_debs[@]}") || return 1
    for deb in "$apt"/debs/*.deb; do
        dpkg-deb -x "$deb" "$dir/root" || return 1
    done
    rm -rf "$apt"
}

# gpustat comes as source alone; it is built with pinned tools, not with those that pip would fetch.
clients_fill() {
    local pinned=$1 dir=$2
    cache_venv "$pinned/clients.txt" "$dir" &&
        cache_pip "$dir" install --no-deps --no-build-isolation --no-binary gpustat -r "$pinned/gpustat.txt"
}

clients_python() {
    local pinned=$top/scripts/requirements name
    name=venv/clients-$(cache_key "file:$pinned/clients.txt" "file:$pinned/gpustat.txt" "$("$python" -VV)")
    cache_entry "Python clients" "$name" clients_fill "$pinned" || cache_die clients
    clients_venv=$cache/$name
}

# On a Debian that has the packages a failed download is an error; elsewhere clients_root stays empty
# and the tests that need it skip.
clients_programs() {
    local system name
    # shellcheck source=/dev/null
    system=$(. /etc/os-release && printf '%s %s %s' "$ID" "${VERSION_CODENAME:-}" "$(dpkg --print-architecture)")
    [[ $system = debian\ *\ amd64 ]] || return 0
    packages_need clients
    read -r _ system _ <<<"$system"
    name=debs/clients-$system-$(cache_key "${clients_debs[@]}")
    cache_entry "Debian's NVIDIA clients" "$name" clients_unpack "$system" ||
        die "Debian's packages ${clients_debs[*]} could not be fetched" \
            "check the network, and that the mirror in /etc/apt carries contrib and non-free"
    clients_root=$cache/$name/root
    clients_driver=$(dirname "$(find "$clients_root" -name libcuda.so.1 | head -n 1)")
}

# PyTorch with the CUDA libraries that it loads takes gigabytes: only ALLOT_TEST_TORCH=yes fetches it.
clients_frameworks() {
    local pinned=$top/scripts/requirements name version
    version=$("$python" -VV)
    if [ -n "$clients_root" ] && [[ $version = Python\ 3.11.* ]]; then
        name=venv/tensorflow-$(cache_key "file:$pinned/tensorflow.txt" "$version")
        cache_entry "TensorFlow" "$name" cache_venv "$pinned/tensorflow.txt" ||
            cache_die tensorflow
        clients_tensorflow=$cache/$name
    fi
    name=venv/torch-$(cache_key "file:$pinned/torch.txt" "$version")
    if [ "${ALLOT_TEST_TORCH:-}" = yes ]; then
        cache_entry "PyTorch" "$name" cache_venv "$pinned/torch.txt" ||
            cache_die torch
    fi
    [ ! -e "$cache/$name/.complete" ] || clients_torch=$cache/$name
}
