#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fresh: does a stranger's Debian 12 build, show and test this clone?
#
#     tests/fresh/debootstrap.sh [COMMAND...]      (as root; default: "demo" "test")
#
# Makes an empty Debian tree, clones the committed state into it and gives each COMMAND to ./run
# there, in mount and pid namespaces of its own: nothing is mounted or left running on the host, and
# the tree is removed at the end (FRESH_KEEP=1 keeps it, FRESH_DIR=… says where it is made). The
# machine's mirror, proxy and trust are handed over, since the tree must reach the same network; its
# packages, caches, toolkit and environment are not. Prints TAP.
set -u -o pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
suite=bookworm
[ $# -gt 0 ] || set -- demo test

skip() {
    echo "1..0 # SKIP $1"
    echo "skipped: $1"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "root is needed to make a Debian tree"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
unshare --mount --pid --fork true 2>/dev/null || skip "mount and pid namespaces are not to be had here"

work=$(mktemp -d "${FRESH_DIR:-${TMPDIR:-/tmp}}/allot-fresh.XXXXXX") || exit 1
tree=$work/tree
# shellcheck disable=SC2317  # reached through the trap
finish() {
    if [ -n "${FRESH_KEEP:-}" ]; then
        echo "# kept: $tree"
    else
        rm -rf --one-file-system "$work"
    fi
}
trap finish EXIT
running=
trap '[ -z "$running" ] || kill -KILL "$running"; exit 130' INT TERM

# The machine's Debian sources, without what others it has.
/usr/bin/python3 "$top/scripts/nonfree.py" "$suite" "$work/debian.sources" || exit 1
sed -i 's/^Components: .*/Components: main/' "$work/debian.sources"
mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' "$work/debian.sources" | head -n 1)

echo "# an empty Debian $suite"
debootstrap --variant=minbase "$suite" "$tree" "$mirror" >"$work/debootstrap.log" 2>&1 || {
    tail -n 20 "$work/debootstrap.log"
    exit 1
}

# The way to the network.
rm -f "$tree/etc/apt/sources.list"
cp "$work/debian.sources" "$tree/etc/apt/sources.list.d/"
cp -L /etc/resolv.conf /etc/hosts "$tree/etc/"
apt-config dump Acquire | grep -E '^Acquire::((http|https|ftp)::|Check-Valid-Until|Retries)' >"$tree/etc/apt/apt.conf.d/50host" || true
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$tree/etc/"
settings=()
for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_DEFAULT_TIMEOUT \
    ALLOT_TIME_SCALE; do
    [ -z "${!name:-}" ] || settings+=("$name=${!name}")
done
bundle=${PIP_CERT:-${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}}
if [ -f "$bundle" ]; then
    # Not where ca-certificates keeps its own: installing that package would write over it.
    cp -L "$bundle" "$tree/etc/host-certificates.crt"
    settings+=(PIP_CERT=/etc/host-certificates.crt SSL_CERT_FILE=/etc/host-certificates.crt)
    echo 'Acquire::https::CaInfo "/etc/host-certificates.crt";' >>"$tree/etc/apt/apt.conf.d/50host"
fi

git -c safe.directory="$top" clone -q --no-local "$top" "$tree/root/allot" || exit 1
echo "# $(git -C "$tree/root/allot" log -1 --format='%h %s')"

# inside COMMAND: ./run COMMAND in the tree, as a person who has just logged in.
# shellcheck disable=SC2016  # expanded by the inner shell
inside() {
    exec unshare --mount --pid --fork --kill-child -- bash -c '
        mount --make-rprivate / &&
        mount --bind "$1" "$1" && # a root that is a mount: tests make mount namespaces
        mount -t proc proc "$1/proc" &&
        mount -t tmpfs -o mode=1777 tmpfs "$1/tmp" &&
        mkdir -p "$1/dev/pts" "$1/dev/shm" &&
        mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$1/dev/pts" &&
        mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" || exit 1
        tree=$1 command=$2
        shift 2
        exec chroot "$tree" /usr/bin/env -i HOME=/root TERM=xterm LANG=C.UTF-8 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" \
            bash -c "cd /root/allot && exec ./run $command"
    ' fresh "$tree" "$1" "${settings[@]}" </dev/null
}

echo "1..$#"
status=0 n=0
for command in "$@"; do
    n=$((n + 1))
    began=$SECONDS
    rc=0
    inside "$command" > >(sed -u 's/^/# /') 2>&1 &
    running=$!
    wait "$running" || rc=$?
    running=
    wait
    if [ "$rc" -eq 0 ]; then
        echo "ok $n - ./run $command ($((SECONDS - began)) s)"
    else
        echo "not ok $n - ./run $command (exit $rc after $((SECONDS - began)) s)"
        status=1
    fi
done
exit "$status"
