#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The models of the daemon's protocol, each as it is and each broken on purpose: spin must find every
# mistake and no other. Without arguments all of them, with a name that one; --list names them.
set -euo pipefail

models=$(cd "$(dirname "$0")" && pwd)

# name, what must come of it (holds, or what spin says), model, macros; LTL: with weak fairness.
rows=(
    "queue|holds|queue.pml|"
    "queue-served|holds|queue.pml|LTL"
    "queue-no-wakeup|assertion violated|queue.pml|NO_WAKEUP"
    "queue-delays|assertion violated|queue.pml|NO_KEEP"
    "queue-room|assertion violated|queue.pml|WIDE_ROOM"
    "queue-overcommits|assertion violated|queue.pml|NO_CHECK"
    "queue-starves|acceptance cycle|queue.pml|LTL NO_AGEING"
    "growth-banker|holds|growth.pml|BANKER LTL"
    "growth-deadlock|holds|growth.pml|DETECT"
    "growth-no-rule|invalid end state|growth.pml|NO_RULE"
    "growth-half-rule|invalid end state|growth.pml|BANKER HALF_RULE"
    "restart|holds|restart.pml|"
    "restart-lost|holds|restart.pml|LOST"
    "restart-reply-first|assertion violated|restart.pml|REPLY_FIRST"
    "restart-no-releasing|assertion violated|restart.pml|NO_RELEASING"
    "restart-no-grace|assertion violated|restart.pml|LOST NO_GRACE"
)

check() {
    local expected=$2 model=$3 macros=() words macro build=(-DSAFETY) search=() found
    read -ra words <<<"$4"
    for macro in ${words[@]+"${words[@]}"}; do
        macros+=("-D$macro")
        if [ "$macro" = LTL ]; then
            build=()
            search=(-a -f)
        fi
    done
    rm -rf "${work:?}"/*
    spin -a ${macros[@]+"${macros[@]}"} "$models/$model" >spin.log 2>&1 || {
        cat spin.log
        return 1
    }
    "${CC:-cc}" -O1 -w -DMEMLIM=1024 ${build[@]+"${build[@]}"} -o pan pan.c
    ./pan -m1000000 ${search[@]+"${search[@]}"} >pan.log 2>&1 || true
    if grep -q 'max search depth too small' pan.log || ! grep -q 'errors: ' pan.log; then
        found="no verdict"
    elif grep -q 'errors: 0' pan.log; then
        found=holds
    else
        found=$(sed -n 's/^pan:1: //p' pan.log)
    fi
    case $found in
    "$expected"*) echo "$1: $found" ;;
    *)
        echo "$1: expected: $expected; found: $found"
        cat pan.log
        return 1
        ;;
    esac
}

if [ "${1:-}" = --list ]; then
    printf '%s\n' "${rows[@]%%|*}"
    exit 0
fi
command -v spin >/dev/null || {
    echo "skipped: no spin, which checks the models (Debian package spin)"
    exit 77
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0 known=0
for row in "${rows[@]}"; do
    IFS='|' read -r name expected model macros <<<"$row"
    [ $# -eq 0 ] || [ "$1" = "$name" ] || continue
    known=1
    check "$name" "$expected" "$model" "$macros" || failed=1
done
if [ "$known" -eq 0 ]; then
    echo "no model $1; there are: ${rows[*]%%|*}"
    exit 1
fi
exit "$failed"
