# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Packages: what the project needs from Debian, installed only where it is missing.

# Groups, by what needs them. `clients` is what nvtop, unpacked beside the system, is linked to.
declare -A packages=(
    [build]="gcc g++ ccache libc6-dev meson ninja-build pkgconf check libinih-dev libjson-c-dev libncurses-dev libopenblas-dev libsqlite3-dev libsystemd-dev scdoc python3 python3-venv ca-certificates"
    [test]="abigail-tools gdb clang llvm libclang-rt-dev clang-format shellcheck spin tmux zsh fish"
    [clients]="libncursesw6 libsystemd0 libtinfo6 ncurses-base"
    [pycuda]="g++ libpython3-dev python3-dev"
    [fresh]="debootstrap git"
    [systemd]="debootstrap musl-tools systemd-container util-linux"
    [qemu]="cpio qemu-system-x86 zstd"
)

packages_missing() {
    local name
    for name in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || printf '%s\n' "$name"
    done
}

packages_apt() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}

# Old package lists name files that are gone from the mirrors, so one failure is followed by one update.
packages_install() {
    if [ -z "$(apt-cache --no-all-versions madison "$@" 2>/dev/null)" ] ||
        ! packages_apt install --no-install-recommends "$@"; then
        packages_apt update && packages_apt install --no-install-recommends "$@"
    fi
}

# packages_need GROUP...
packages_need() {
    local group words names=() missing=()
    for group in "$@"; do
        read -ra words <<<"${packages[$group]}"
        names+=("${words[@]}")
    done
    mapfile -t missing < <(packages_missing "${names[@]}")
    [ "${#missing[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        die "missing: ${missing[*]}" "this is not Debian: install the equivalents by hand and make dpkg-query know them, or use Debian 12"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            die "Debian packages are missing and neither root nor sudo is at hand" \
                "ask an administrator for: apt-get install --no-install-recommends ${missing[*]}"
        sudo -v || die "sudo refused" "as root: apt-get install --no-install-recommends ${missing[*]}"
    fi
    step_run "${#missing[@]} Debian packages" setup/packages.log packages_install "${missing[@]}" ||
        die "apt-get could not install: ${missing[*]}" \
            "check the network and /etc/apt/sources.list*, then: apt-get update && apt-get install ${missing[*]}"
}
