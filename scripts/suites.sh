# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Suites: what `./run test` runs, in this order, each within its seconds (builds included, first-time
# downloads not). A suite is a function suite_NAME that runs its tests and hands the counts of single
# tests to suite_count; one that ran no test, or was cut off, has failed.

suites=(unit clang asan tsan)
declare -A suite_budget=([docs]=60 [unit]=240 [integration]=240 [clang]=180 [asan]=360 [tsan]=300 [fuzz]=180 [clients]=240)
declare -A suite_about=(
    [docs]="the tree itself: man pages, format, shell, licences, layers, lengths"
    [unit]="unit tests, release build (gcc)"
    [integration]="whole programs against a simulated box"
    [clang]="clang build with -Werror, and its unit tests"
    [asan]="unit and integration tests under address and undefined behaviour sanitizers"
    [tsan]="unit and integration tests under the thread sanitizer"
    [fuzz]="libFuzzer targets, each for some seconds over its corpus"
    [clients]="programs nobody here wrote: nvidia-smi, nvtop, nvitop, gpustat, cuda-bindings"
)

suite_long=             # yes: --long
suite_passed=0 suite_failed=0 suite_skips=()    # of the suite that runs now

# suite_count FILE: add what tally.py printed.
suite_count() {
    local word rest
    while read -r word rest; do
        case $word in
        passed) suite_passed=$((suite_passed + rest)) ;;
        failed) suite_failed=$((suite_failed + rest)) ;;
        skip) suite_skips+=("$rest") ;;
        esac
    done <"$1"
}

# suite_tally LOG FILE...: count FILEs, show what failed.
suite_tally() {
    local log=$logs/test/$1
    shift
    "$python" "$top/scripts/tally.py" --failures "$@" >"$log.tally" 2>"$log.failures"
    suite_count "$log.tally"
    [ ! -s "$log.failures" ] || tail -n 120 "$log.failures" | sed 's/^/    | /'
}

# suite_meson NAME VARIANT SUITE...: the meson suites SUITE of a variant.
suite_meson() {
    local name=$1 variant=$2 dir args=() rc=0 inner
    shift 2
    build_variant "$variant" || {
        suite_failed=$((suite_failed + 1))
        return
    }
    dir=$(build_dir "$variant")
    for inner in "$@"; do
        args+=(--suite "$inner")
    done
    rm -f "$dir/meson-logs/run-$name.json"
    step_quietly "run ${dir##*/}: $*" "test/$name.log" \
        env -u GPUSIM_BOX ALLOT_TEST_LONG="$suite_long" \
        ASAN_OPTIONS=detect_stack_use_after_return=1:abort_on_error=0 \
        UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1 \
        meson test -C "$dir" --no-rebuild --logbase "run-$name" "${args[@]}" || rc=$?
    if [ -f "$dir/meson-logs/run-$name.json" ]; then
        suite_tally "$name" "$dir/meson-logs/run-$name.json"
    fi
    if [ "$rc" -ne 0 ] && [ "$suite_failed" -eq 0 ]; then
        suite_failed=1
        step_show_log "test/$name.log"
    fi
}

suite_unit() { suite_meson unit release unit; }
suite_integration() { suite_meson integration release integration; }
suite_clang() { suite_meson clang clang unit; }
suite_asan() { suite_meson asan asan unit integration; }
suite_tsan() { suite_meson tsan tsan unit integration; }

# suite_run NAME: one suite within its budget; the row of the table goes to $suite_rows.
suite_run() {
    local began=$SECONDS note=
    suite_passed=0 suite_failed=0 suite_skips=()
    say "$1: ${suite_about[$1]}"
    deadline=$((SECONDS + suite_budget[$1] * (${#suite_long} > 0 ? 10 : 1)))
    step_cut_off=
    "suite_$1"
    deadline=
    if [ -n "$step_cut_off" ]; then
        note="cut off after ${suite_budget[$1]} s"
        [ "$suite_failed" -gt 0 ] || suite_failed=1
    elif [ $((suite_passed + suite_failed + ${#suite_skips[@]})) -eq 0 ]; then
        note="ran no test"
        suite_failed=1
    fi
    suite_rows+=("$(printf '%-12s %8d %8d %8d   %-12s %s' "$1" "$suite_passed" "$suite_failed" \
        "${#suite_skips[@]}" "$(step_time $((SECONDS - began)))" "$note")")
    total_passed=$((total_passed + suite_passed))
    total_failed=$((total_failed + suite_failed))
    all_skips+=("${suite_skips[@]/#/$1: }")
}

suites_run() {
    local name chosen=() suite_rows=() all_skips=() total_passed=0 total_failed=0
    while [ $# -gt 0 ]; do
        case $1 in
        --long) suite_long=yes ;;
        -*) die "test: no option $1" "./run test [suite...] [--long]; suites: ${suites[*]}" ;;
        *)
            [ -n "${suite_budget[$1]:-}" ] || die "test: no suite $1" "suites: ${suites[*]}"
            chosen+=("$1")
            ;;
        esac
        shift
    done
    [ "${#chosen[@]}" -gt 0 ] || chosen=("${suites[@]}")
    build_werror=true
    packages_need build test
    vendor_setup
    for name in "${chosen[@]}"; do
        suite_run "$name"
    done

    say ""
    printf '%-12s %8s %8s %8s   %s\n' suite passed failed skipped time
    printf '%s\n' "${suite_rows[@]}"
    if [ "${#all_skips[@]}" -gt 0 ]; then
        say "skipped:"
        printf '  %s\n' "${all_skips[@]}"
    fi
    printf '%d passed, %d failed' "$total_passed" "$total_failed"
    [ "${#all_skips[@]}" -eq 0 ] || printf ', %d skipped' "${#all_skips[@]}"
    printf '\n'
    [ "$total_failed" -eq 0 ]
}
