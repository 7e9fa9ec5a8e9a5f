#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What pip fetches is pinned by hash: every requirement has some, every call of pip asks for them, and a wheel that was
# changed is refused, in words, when it is fetched and when it is unpacked from the cache.
# shellcheck source=tree.sh
. "$(dirname "$0")/tree.sh"

mapfile -t files < <(find scripts/requirements -name '*.txt' | sort)
complain "$(awk '
    /^[^# ]/ { if (pin != "" && n == 0) print file ": " pin; file = FILENAME; pin = $1; n = 0 }
    /^[^# ]/ && $1 !~ /^[A-Za-z0-9._-]+==[^*]+$/ { print FILENAME ": " $0 }
    { n += gsub(/--hash=sha256:[0-9a-f]+/, "") }
    END { if (n == 0) print file ": " pin }' "${files[@]}")" "not pinned by version and hash (scripts/pin.py writes the hashes):"
complain "$(grep -nE 'pip"? "?(install|download|wheel|[$]verb)' run scripts/*.sh bench/*.sh tests/*/*.sh |
    grep -vE -e '--require-hashes|--no-index' -e '^tests/docs/pins.sh:')" "pip without --require-hashes:"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC2034  # for the parts of ./run
top=$PWD python=/usr/bin/python3
[ -x "$python" ] || python=python3
# shellcheck source=../../scripts/cache.sh
. scripts/cache.sh
# shellcheck source=../../scripts/vendor.sh
. scripts/vendor.sh
# pip takes wheels from this folder and from nowhere else.
export PIP_NO_INDEX=1 PIP_FIND_LINKS=$work/index PIP_CONFIG_FILE=/dev/null
mkdir "$work/index"
wheel=$work/index/nvidia_example-1.0-py3-none-any.whl
"$python" - "$wheel" <<'END'
import sys
import zipfile

with zipfile.ZipFile(sys.argv[1], "w") as wheel:
    wheel.writestr("nvidia/cu13/include/example.h", "/* an example */\n")
    wheel.writestr("nvidia_example-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: nvidia-example\nVersion: 1.0\n")
    wheel.writestr("nvidia_example-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr("nvidia_example-1.0.dist-info/RECORD", "")
END
printf 'nvidia-example==1.0 --hash=sha256:%s\n' "$(sha256sum <"$wheel" | cut -d' ' -f1)" >"$work/example.txt"

# expect STATUS WORDS COMMAND...: it ends so, and says the words.
expect() {
    local status=$1 words=$2 out rc=0
    shift 2
    out=$("$@" 2>&1) || rc=1
    if [ "$rc" -ne "$status" ] || ! grep -q "$words" <<<"$out"; then
        printf '%s: exit %d, expected %d and "%s"; said:\n%s\n' "$*" "$rc" "$status" "$words" "$out"
        exit 1
    fi
}

"$python" -m venv "$work/venv" || exit 1
expect 0 "" cache_wheels "$work/venv" "$work/example.txt" "$work/wheels"
expect 0 "1 files" vendor_unpack "$work/example.txt" "$work/wheels" "$work/unpacked"
# The byte of the header in the archive, which zip would find too, and one that zip does not look at.
for byte in 60 12; do
    rm -rf "$work/changed" && cp -r "$work/wheels" "$work/changed"
    printf 'X' | dd of="$work/changed/${wheel##*/}" bs=1 seek="$byte" conv=notrunc status=none
    expect 1 "not the file that is pinned" vendor_unpack "$work/example.txt" "$work/changed" "$work/other"
    PIP_FIND_LINKS=$work/changed expect 1 "DO NOT MATCH THE HASHES" \
        cache_wheels "$work/venv" "$work/example.txt" "$work/fetched"
done
[ ! -e "$work/other" ] || { echo "a changed wheel was unpacked" && exit 1; }
sed 's/ --hash.*//' "$work/example.txt" >"$work/open.txt"
expect 1 "Hashes are required" cache_wheels "$work/venv" "$work/open.txt" "$work/fetched"
