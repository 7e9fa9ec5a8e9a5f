# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Tree: what the checks of this folder look at. Works in a clone and in an unpacked archive.
set -u -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

# tree PATTERN...: our own files whose name matches, without what was built.
tree() {
    local names=() pattern
    for pattern in "$@"; do
        names+=(-o -name "$pattern")
    done
    find . \( -path './build' -o -path './build-*' -o -path './.git' -o -name __pycache__ \) -prune -o \
        -type f \( "${names[@]:1}" \) -print | sed 's,^\./,,' | sort
}

# complain LINES SENTENCE: fail if there are any.
complain() {
    [ -n "$1" ] || return 0
    printf '%s\n%s\n' "$2" "$1"
    exit 1
}
