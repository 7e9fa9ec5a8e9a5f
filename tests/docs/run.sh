#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# `./run test` counts every test once and fails when it should: made-up suites through the real parts.
set -u -o pipefail

source=$(cd "$(dirname "$0")/../.." && pwd)
top=$(mktemp -d) || exit 1
trap 'rm -rf "$top"' EXIT
python=/usr/bin/python3
ln -s "$source/scripts" "$top/scripts"
mkdir "$top/tests"
printf '# a comment\ngood: tap: no such*\n' >"$top/tests/expected-skips"
unset CI
# shellcheck source=../../scripts/step.sh
. "$source/scripts/step.sh"
# shellcheck source=../../scripts/suites.sh
. "$source/scripts/suites.sh"

packages_need() { :; }
vendor_setup() { :; }
suites=(good bad empty slow skipping)
suites_all=() suites_long=()
suite_budget=([good]=20 [bad]=20 [empty]=20 [slow]=1 [skipping]=20)
suite_about=([good]=- [bad]=- [empty]=- [slow]=- [skipping]=-)

record() { printf '{"name": "%s", "stdout": "%s", "stderr": "", "result": "%s", "returncode": %d}\n' "$@"; }

suite_good() {
    {
        record check '100%: Checks: 7, Failures: 0, Errors: 0\n' OK 0
        record tap '1..3\nok 1 a\nok 2 b\nok 3 c # SKIP no such device\n' OK 0
        record plain 'hello\n' OK 0
    } >"$top/good.json"
    mkdir -p "$logs/test"
    suite_results good 0 "$top/good.json"
}
suite_bad() {
    {
        record check '50%: Checks: 4, Failures: 1, Errors: 1\nfile.c:3: broken\n' FAIL 1
        record leaky '100%: Checks: 2, Failures: 0, Errors: 0\n' FAIL 1
        record short '1..3\nok 1 a\n' FAIL 1
        record late '' TIMEOUT 1
    } >"$top/bad.json"
    mkdir -p "$logs/test"
    suite_results bad 1 "$top/bad.json"
}
suite_empty() { :; }
suite_slow() {
    printf 'sleep 300 &\necho $! >%q\nwait\n' "$top/child" >"$top/sleeps"
    suite_checks slow < <(printf 'sleeps\tbash %q\n' "$top/sleeps")
}
suite_skipping() {
    printf 'echo "skipped: no reason"\nexit 77\n' >"$top/cannot"
    suite_checks skipping < <(printf 'cannot\tbash %q\n' "$top/cannot")
}

# expect STATUS CLOSING SUITE...
expect() {
    local status=$1 closing=$2 out rc=0
    shift 2
    out=$(suites_run "$@" 2>&1) || rc=$?
    if [ "$rc" -ne "$status" ] || [ "$(tail -n 1 <<<"$out")" != "$closing" ]; then
        printf 'test %s: exit %d, expected %d and "%s"; said:\n%s\n' "$*" "$rc" "$status" "$closing" "$out"
        exit 1
    fi
}

expect 0 "10 passed, 0 failed, 1 skipped" good
# 2 of 4 checks, 1 of 2 (the bad exit is one more failure), 1 of 3 in TAP, none of the late one.
expect 1 "4 passed, 6 failed" bad
expect 1 "0 passed, 1 failed" empty
expect 0 "0 passed, 0 failed, 1 skipped" skipping
expect 1 "14 passed, 7 failed, 1 skipped" good bad empty
expect 1 "0 passed, 1 failed" slow
state=$(sed 's/.*) //' "/proc/$(cat "$top/child")/stat" 2>/dev/null)
if [ -n "$state" ] && [ "${state:0:1}" != Z ]; then
    echo "a suite that was cut off left a process behind"
    exit 1
fi
# In CI a skip has to be listed.
export CI=true
expect 0 "10 passed, 0 failed, 1 skipped" good
expect 1 "0 passed, 1 failed" skipping
unset CI
suites=(good)
expect 0 "10 passed, 0 failed, 1 skipped"
suites_all=(skipping)
expect 0 "10 passed, 0 failed, 2 skipped" --all
expect 1 "     give --all, or the names of suites" --all good
expect 1 "     suites: good skipping" nonsense

# A program of bench/meson.build would hide a script of the same name from `./run bench NAME`.
names=$({
    sed -n "s/.*executable('\\([^']*\\)'.*/\\1/p" "$source/bench/meson.build"
    basename -a -s .sh "$source"/bench/*.sh
} | sed 's/^bench-//' | sort | uniq -d)
if [ -n "$names" ]; then
    printf 'both a program and a script of ./run bench: %s\n' "$names"
    exit 1
fi
