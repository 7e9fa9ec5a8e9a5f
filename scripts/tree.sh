# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Tree: a small Debian with systemd in it, which tests/systemd boots. Made once, in the cache, as root.
#
# Its packages, and the kernel, are not pinned by hash: Debian's archive drops a version when it has the next
# one. debootstrap and apt check the signature of the archive's Release file by Debian's keyring, and by the
# hashes in it each package; without a keyring debootstrap ends here, instead of going on with a warning.

tree_packages=(systemd systemd-sysv dbus libpam-systemd libinih1 libjson-c5 libsqlite3-0 python3)
tree=                   # its folder

tree_fill() {
    local codename=$1 dir=$2 mirror include
    "$python" "$top/scripts/nonfree.py" "$codename" "$dir/debian.sources" || return 1
    mirror=$(sed -n 's/^URIs: *\([^ ]*\).*/\1/p' "$dir/debian.sources" | head -n 1)
    include=$(IFS=,; printf '%s' "${tree_packages[*]}")
    debootstrap --force-check-gpg --variant=minbase --include="$include" "$codename" "$dir/root" "$mirror" || return 1
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

kernel=                 # Debian's own kernel, for a virtual machine

kernel_fill() {
    local dir=$1 package
    package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$package" ] || return 1
    (cd "$dir" && apt-get -q -o APT::Sandbox::User=root download "$package") || return 1
    dpkg-deb --fsys-tarfile "$dir"/*.deb | tar -x -C "$dir" --wildcards './boot/vmlinuz*' || return 1
    rm -f "$dir"/*.deb
    mv "$dir"/boot/vmlinuz-* "$dir/vmlinuz"
}

# kernel_setup: $kernel is there afterwards. 1: it could not be fetched.
kernel_setup() {
    cache_entry "Debian's kernel" kernel/cloud-amd64 kernel_fill || return 1
    kernel=$cache/kernel/cloud-amd64/vmlinuz
}
