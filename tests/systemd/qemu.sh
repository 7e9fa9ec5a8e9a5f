#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The same under Debian's own kernel, in a virtual machine: what a container cannot show.
#
#     ALLOT_TREE=… ALLOT_KERNEL=… ALLOT_BUILD=… tests/systemd/qemu.sh
#
# Linux 6.1 has no SO_PEERPIDFD, and the memory controller is on cgroup2, so that a limit of the user's
# slice can be seen to hold for a job in a scope of its own. No KVM needed: it takes a minute or two.
# Prints TAP.
set -u -o pipefail

here=$(cd "$(dirname "$0")" && pwd)
skip() {
    echo "1..0 # SKIP $1"
    echo "skipped: $1"
    exit 77
}
[ "$(id -u)" -eq 0 ] || skip "root is needed to make the machine's files"
for program in qemu-system-x86_64 cpio zstd meson; do
    command -v "$program" >/dev/null || skip "$program is not installed"
done
[ "$(uname -m)" = x86_64 ] || skip "the kernel is for x86-64"

work=$(mktemp -d "${TMPDIR:-/tmp}/allot-qemu.XXXXXX") || exit 1
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
cp -a "$ALLOT_TREE" "$root" || exit 1
meson install -C "$ALLOT_BUILD" --no-rebuild --quiet --destdir "$root" >/dev/null || exit 1
cp "$ALLOT_BUILD/examples/hold" "$root/usr/local/bin/"
install -m 755 "$here/selftest" "$root/usr/local/bin/selftest"
ln -sf /lib/systemd/systemd "$root/init"
: >"$root/etc/machine-id"
printf 'ada:x:1000:1000::/tmp:/bin/bash\n' >>"$root/etc/passwd"
printf 'ada:x:1000:\n' >>"$root/etc/group"
printf 'ada:*:19000:0:99999:7:::\n' >>"$root/etc/shadow"
printf '/usr/local/lib\n/usr/local/lib/x86_64-linux-gnu\n' >"$root/etc/ld.so.conf.d/allot.conf"
chroot "$root" ldconfig
units=$root/etc/systemd/system
libraries=$(cd "$root" && find usr/local -name libnvidia-ml.so.1 | head -n 1)
for unit in allotd.service allot-hand@.service allot-reader@.service; do
    mkdir -p "$units/$unit.d"
    printf '[Service]\nEnvironment=GPUSIM_BOX=/run/gpusim/box ALLOT_SIM_DIR=/%s\nReadWritePaths=-/run/gpusim\nProtectProc=default\n' \
        "${libraries%/*}" >"$units/$unit.d/simulated.conf"
done
cat >"$units/selftest.service" <<END
[Unit]
After=basic.target dbus.service systemd-logind.service
Wants=dbus.service systemd-logind.service
[Service]
Type=oneshot
Environment=GPUSIM_BOX=/run/gpusim/box LIBRARIES=/${libraries%/*}
ExecStart=/usr/local/bin/selftest
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
END
printf '[Unit]\nRequires=basic.target\nWants=selftest.service\nAfter=basic.target\n' >"$units/test.target"
(cd "$root" && find . -xdev | cpio -o -H newc --quiet) | zstd -1 -q -o "$work/initrd" || exit 1
rm -rf --one-file-system "$root"

timeout $((600 * ${ALLOT_TIME_SCALE:-1})) qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -M q35 -m 2048 \
    -nodefaults -display none -serial "file:$work/console" -no-reboot -kernel "$ALLOT_KERNEL" -initrd "$work/initrd" \
    -append "console=ttyS0 panic=-1 quiet loglevel=1 mitigations=off systemd.unit=test.target systemd.show_status=0 rdinit=/init" \
    </dev/null >"$work/qemu.log" 2>&1
tr -d '\r' <"$work/console" | grep -aE '^(ok|not ok|1\.\.|#) ?' || {
    echo "1..1"
    echo "not ok 1 - the machine said nothing"
    tail -n 20 "$work/qemu.log" "$work/console" | sed 's/^/# /'
    exit 1
}
! tr -d '\r' <"$work/console" | grep -aq '^not ok' && tr -d '\r' <"$work/console" | grep -aq '^1\.\.'
