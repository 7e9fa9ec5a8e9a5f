#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# C is laid out by clang-format 14 (Debian 12's): other versions differ in details.
# shellcheck source=tree.sh
. "$(dirname "$0")/tree.sh"

if ! clang-format --version | grep -q 'version 14\.'; then
    echo "skipped: clang-format is not version 14"
    exit 77
fi
mapfile -t files < <(tree '*.[ch]' '*.cu')
complain "$(clang-format --dry-run -Werror "${files[@]}" 2>&1 | grep -E 'error:' | cut -d: -f1 | uniq -c)" \
    "clang-format -i would change (lines, file):"
