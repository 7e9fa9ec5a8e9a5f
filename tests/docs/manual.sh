#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages can be made from their sources, and name a section that exists.
# shellcheck source=tree.sh
. "$(dirname "$0")/tree.sh"

mapfile -t files < <(tree '*.scd')
if [ "${#files[@]}" -eq 0 ]; then
    echo "skipped: no manual page yet"
    exit 77
fi
status=0
for file in "${files[@]}"; do
    if ! error=$(scdoc <"$file" 2>&1 >/dev/null); then
        printf '%s: %s\n' "$file" "$error"
        status=1
    fi
done
exit "$status"
