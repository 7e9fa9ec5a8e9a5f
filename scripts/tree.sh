# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Tree: a small Debian with systemd in it, which tests/systemd boots. Made once, in the cache, as root.

tree_packages=(systemd systemd-sysv dbus libpam-systemd libinih1 libjson-c5 libsqlite3-0 python3)
tree=                   # its folder

tree_fill() {
    local codename=$1 dir=$2 mirror include
    "$python" "$top/scripts/nonfree.py" "$codename" "$dir/debian.sources" || return 1
    mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' "$dir/debian.sources" | head -n 1)
    include=$(IFS=,; printf '%s' "${tree_packages[*]}")
    debootstrap --variant=minbase --include="$include" "$codename" "$dir/root" "$mirror" || return 1
    rm -rf "$dir"/root/var/cache/apt/archives/*.deb "$dir"/root/var/lib/apt/lists/* \
        "$dir"/root/usr/share/{doc,man,locale} "$dir/debian.sources"
}

# tree_setup: $tree is there afterwards. 1: it could not be made.
tree_setup() {
    local codename=bookworm name # systemd 252, whatever this machine has
    name=tree/systemd-$codename-$(cache_key "${tree_packages[@]}")
    cache_entry "a Debian with systemd" "$name" tree_fill "$codename" || return 1
    tree=$cache/$name/root
}
