# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Suites: what `./run test` runs, in this order, each within its seconds (builds and first-time downloads
# not counted). A suite is a function suite_NAME that runs its tests and hands the counts of single
# tests to suite_count; one that ran no test, or was cut off, has failed.

suites=(docs unit model daemon clients ctl systemd hostile)  # what ./run test runs
suites_all=(asan tsan fuzz mutate)                    # and with --all
suites_long=(clang qemu fresh)                        # and with --long; each also by its name
declare -A suite_budget=([docs]=120 [unit]=600 [model]=300 [daemon]=480 [clients]=480 [ctl]=480 [systemd]=420 [hostile]=300 [asan]=1200 [tsan]=1200 [fuzz]=600 [clang]=900 [mutate]=120 [qemu]=900 [fresh]=2400)
declare -A suite_budget_long=([mutate]=18000)         # with --long, where it is not ten times that
declare -A suite_about=(
    [docs]="the tree itself: man pages, format, shell, licences, layers, lengths, the ABI of liballot"
    [unit]="unit tests, release build (gcc)"
    [model]="spin models of the daemon's protocol, whole and broken on purpose"
    [daemon]="allotd on simulated boxes: sharing, waiting, restarts, kill points, hostile clients"
    [clients]="programs from elsewhere: nvidia-smi, nvtop, nvitop, gpustat, cuda-bindings, cuda-core, numba"
    [ctl]="gpuctl against a real daemon on a simulated box, top in tmux"
    [systemd]="installing, units, jobs, restarts and locked mode under a systemd booted in a container"
    [hostile]="users who mean harm, each an attack that worked once, under a systemd booted in a container"
    [asan]="unit tests, fuzz corpora and the daemon under address and undefined behaviour sanitizers (clang)"
    [tsan]="unit tests of what has threads under the thread sanitizer; all of them with --long"
    [fuzz]="libFuzzer targets, each for some seconds over its corpus"
    [clang]="clang release build with -Werror, and its unit tests"
    [mutate]="small mistakes put into the sources, one at a time: the unit tests notice most of them"
    [qemu]="systemd on Debian's own kernel, in a virtual machine without KVM"
    [fresh]="./run demo and ./run test of the committed state in an empty Debian tree"
)

suite_long=             # yes: --long
suite_scale=${ALLOT_TIME_SCALE:-1} # for slow or busy machines: every budget times this
suite_jobs=$(($(nproc) * 3)) # tests at a time, where most of them wait
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

# suite_results NAME STATUS FILE: count what the runner left in FILE and show what failed. A runner
# that ended badly without saying which test did is a failure too.
suite_results() {
    local log=$logs/test/$1
    if [ -f "$3" ]; then
        "$python" "$top/scripts/tally.py" --failures "$3" >"$log.tally" 2>"$log.failures"
        suite_count "$log.tally"
        [ ! -s "$log.failures" ] || tail -n 120 "$log.failures" | sed 's/^/    | /'
    fi
    if [ "$2" -ne 0 ] && [ "$suite_failed" -eq 0 ]; then
        suite_failed=1
        [ ! -f "$log.log" ] || step_show_log "test/$1.log"
    fi
}

suite_sanitizers=(
    ASAN_OPTIONS=detect_stack_use_after_return=1:abort_on_error=0
    "UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1:suppressions=$top/tests/ubsan-suppressions"
    TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1
)

# suite_meson NAME VARIANT SUITE...: the meson suites SUITE of a variant. Under a sanitizer less of a test's time
# is waiting, and each takes a few times longer.
suite_meson() {
    local name=$1 variant=$2 dir args=() rc=0 inner jobs=$suite_jobs slower=$suite_scale
    shift 2
    clients_programs
    build_variant "$variant" || {
        suite_failed=$((suite_failed + 1))
        return
    }
    dir=$(build_dir "$variant")
    case $variant in
    asan | tsan) jobs=$(($(nproc) * 2)) slower=$((suite_scale * 4)) ;;
    esac
    for inner in "$@"; do
        args+=(--suite "$inner")
    done
    rm -f "$dir/meson-logs/run-$name.json"
    step_quietly "$name: $* of ${dir##*/}" "test/$name.log" \
        env -u GPUSIM_BOX PYTHONUNBUFFERED=1 ALLOT_TEST_LONG="$suite_long" ALLOT_TEST_REAL_DRIVER_DIR="$clients_driver" \
        "${suite_sanitizers[@]}" \
        CK_TIMEOUT_MULTIPLIER="$slower" meson test -C "$dir" --no-rebuild --num-processes "$jobs" \
        -t "$suite_scale" --logbase "run-$name" "${args[@]}" || rc=$?
    suite_results "$name" "$rc" "$dir/meson-logs/run-$name.json"
}

# suite_checks NAME: tests that are commands, as many at a time as there are processors. They are named on
# stdin, as scripts/checks.py reads them.
suite_checks() {
    local list=$logs/test/$1.list rc=0
    mkdir -p "$logs/test"
    cat >"$list"
    step_quietly "$1" "test/$1.tap" "$python" "$top/scripts/checks.py" --jobs "$(nproc)" "$list" || rc=$?
    suite_results "$1" "$rc" "$logs/test/$1.tap"
}

# The checks in tests/docs: each executable there is one.
suite_docs() {
    suite_checks docs < <(
        for check in "$top"/tests/docs/*.*; do
            [ -x "$check" ] || continue
            name=${check##*/}
            printf '%s\t%q\n' "${name%.*}" "$check"
        done
    )
}

# The models in tests/model: each must hold, or show the mistake that was put into it.
suite_model() {
    suite_checks model < <(
        "$top/tests/model/check.sh" --list | while read -r name; do
            printf '%s\t%q %q\n' "$name" "$top/tests/model/check.sh" "$name"
        done
    )
}

# Every fuzz target of tests/fuzz, over its corpus and what earlier runs found. A crash leaves its
# input in build-asan/crashes: it goes into the corpus with the fix.
suite_fuzz() {
    local dir targets seconds most=15
    [ -z "$suite_long" ] || most=600
    build_variant asan || {
        suite_failed=1
        return
    }
    dir=$(build_dir asan)
    targets=("$top"/tests/fuzz/fuzz-*.c)
    seconds=$(((deadline - SECONDS) * $(nproc) / ${#targets[@]} - 5))
    seconds=$((seconds < most ? seconds : most))
    mkdir -p "$dir/crashes"
    suite_checks fuzz < <(
        for target in "${targets[@]}"; do
            noun=${target##*/fuzz-}
            noun=${noun%.c}
            mkdir -p "$dir/found/$noun"
            printf 'fuzz-%s\t' "$noun"
            printf '%q ' "$dir/tests/fuzz/fuzz-$noun" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
                -print_final_stats=1 -error_exitcode=1 -artifact_prefix="$dir/crashes/$noun-" "$dir/found/$noun" "$top/tests/fuzz/corpus/$noun"
            printf '\n'
        done
    )
    suite_fuzz_coverage <"$logs/test/fuzz.tap"
}

# What each target reached, from libFuzzer's last line: edges of the code, features, runs.
suite_fuzz_coverage() {
    awk '
        /^(not )?ok / { name = $1 == "ok" ? $3 : $4 }
        /DONE +cov: / {
            for (i = 1; i < NF; i++) {
                if ($i == "cov:") edges = $(i + 1)
                if ($i == "ft:") features = $(i + 1)
            }
            sub("#", "", $2)
            printf "    %-20s %7d edges %7d features %9d runs\n", name, edges, features, $2
        }'
}

# Each result is a line that counts, for step_done.
suite_python_env=(PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1)
suite_pytest_options=(-v -o console_output_style=count -p no:cacheprovider)

# suite_pytest NAME SECONDS: the pytest files under tests/NAME, each test within so many seconds.
suite_pytest() {
    local report=$logs/test/$1.xml rc=0
    clients_python
    clients_programs
    if [ "$1" = clients ]; then
        pycuda_setup
        clients_frameworks
    fi
    build_variant release || {
        suite_failed=1
        return
    }
    rm -f "$report"
    step_quietly "$1" "test/$1.log" \
        env -u GPUSIM_BOX -u LD_LIBRARY_PATH "${suite_python_env[@]}" ALLOT_TEST_LONG="$suite_long" \
        ALLOT_BUILD="$top/build" ALLOT_CLIENTS_ROOT="$clients_root" ALLOT_TIME_SCALE="$suite_scale" \
        ALLOT_PYCUDA="$pycuda_dir" ALLOT_TENSORFLOW="$clients_tensorflow" ALLOT_TORCH="$clients_torch" \
        "$clients_venv/bin/pytest" "${suite_pytest_options[@]}" -n "$suite_jobs" --dist worksteal --rootdir "$top/tests/$1" \
        --timeout $(($2 * suite_scale)) --junitxml "$report" "$top/tests/$1" || rc=$?
    suite_results "$1" "$rc" "$report"
}

# suite_boxes NAME VARIANT [TEST...]: the tests of tests/daemon, with the binaries of a variant.
suite_boxes() {
    local name=$1 variant=$2 report=$logs/test/$1.tap rc=0
    shift 2
    if ! build_variant release || ! build_variant "$variant"; then # jobs run on a release box
        suite_failed=$((suite_failed + 1))
        return
    fi
    step_quietly "$name: tests/daemon" "test/$name.tap" \
        env -u GPUSIM_BOX -u LD_LIBRARY_PATH "${suite_sanitizers[@]}" ALLOT_BUILD="$(build_dir "$variant")" \
        ALLOT_SIM_BUILD="$top/build" ALLOT_TIME_SCALE="$suite_scale" ALLOT_TEST_LONG="$suite_long" \
        "$python" -B "$top/tests/daemon/run.py" --jobs "$suite_jobs" "$@" || rc=$?
    suite_results "$name" "$rc" "$report"
}

# suite_machine NAME JOBS FILE...: tests/NAME in a container with a systemd of its own, in namespaces that go
# with whoever cuts the suite off.
suite_machine() {
    local name=$1 jobs=$2 report=$logs/test/$1.xml rc=0 reason
    local within=(unshare --mount --pid --fork --kill-child --mount-proc)
    [ "$(id -u)" -ne 0 ] || packages_need systemd
    shift 2
    reason=$("$python" "$top/tests/systemd/machine.py")
    if [ -n "$reason" ]; then
        suite_skips+=("$reason")
        return
    fi
    clients_python
    if ! tree_setup || ! build_variant release; then
        suite_failed=1
        return
    fi
    rm -f "$report"
    step_quietly "$name" "test/$name.log" \
        env -u GPUSIM_BOX -u LD_LIBRARY_PATH "${suite_python_env[@]}" ALLOT_TIME_SCALE="$suite_scale" \
        ALLOT_BUILD="$top/build" ALLOT_TREE="$tree" \
        "${within[@]}" "$clients_venv/bin/pytest" "${suite_pytest_options[@]}" -n "$jobs" --dist loadscope \
        --rootdir "$top/tests/$name" --timeout $((240 * suite_scale)) --junitxml "$report" "$@" || rc=$?
    suite_results "$name" "$rc" "$report"
}

suite_systemd() { suite_machine systemd 2 "$top"/tests/systemd/test_{install,units,jobs,without_guard,selftest,enforce,life}.py; }
suite_hostile() { suite_machine hostile 0 "$top"/tests/hostile/test_*.py; }

suite_qemu() {
    local rc=0
    if [ "$(id -u)" -ne 0 ]; then
        suite_skips+=("root is needed to make the machine's files")
        return
    fi
    packages_need systemd qemu
    if ! tree_setup || ! kernel_setup || ! build_variant release; then
        suite_failed=1
        return
    fi
    step_quietly "tests/systemd/qemu.sh" test/qemu.tap \
        env ALLOT_BUILD="$top/build" ALLOT_TREE="$tree" ALLOT_KERNEL="$kernel" ALLOT_TIME_SCALE="$suite_scale" \
        "$top/tests/systemd/qemu.sh" || rc=$?
    [ "$rc" -ne 77 ] || rc=0 # the report says why it was skipped
    suite_results qemu "$rc" "$logs/test/qemu.tap"
}

suite_fresh() {
    local rc=0
    packages_need fresh
    step_quietly "tests/fresh/debootstrap.sh" test/fresh.tap "$top/tests/fresh/debootstrap.sh" || rc=$?
    [ "$rc" -ne 77 ] || rc=0 # the report says why it was skipped
    suite_results fresh "$rc" "$logs/test/fresh.tap"
}

# suite_mutate: with --long 150 mutants of each part, of which the unit tests must notice 85 percent. Else ten of one
# part, and half: of ten, two that no test notices are no news, and five are.
suite_mutate() {
    local parts=(wire) options=(--count 10 --at-least 50 --within $((80 * suite_scale)))
    if [ -n "$suite_long" ]; then
        parts=(wire daemon/broker guard/credit.c daemon/hand) options=(--count 150 --at-least 85)
    fi
    build_variant release || {
        suite_failed=1
        return
    }
    suite_checks mutate < <(
        for part in "${parts[@]}"; do
            printf 'mutants of %s\t%q --seed %q' "$part" "$top/tests/mutate/mutate.py" "${ALLOT_TEST_SEED:-1}"
            printf ' %q' "${options[@]}" --work "$top/build-mutate/${part//\//-}" "$part"
            printf '\n'
        done
    )
}

suite_unit() { suite_meson unit release unit; }
suite_daemon() { suite_boxes daemon release; }
suite_clients() { suite_pytest clients 180; }
suite_ctl() { suite_pytest ctl 180; }
suite_clang() { suite_meson clang clang unit; }
suite_asan() {
    suite_meson asan asan unit fuzz
    suite_boxes asan-daemon asan test_sharing test_queue test_life test_restart test_hostile
}
suite_tsan() {
    if [ -n "$suite_long" ]; then
        suite_meson tsan tsan unit
    else
        suite_meson tsan tsan allocator libclient guard sim
    fi
}

# suite_cpu: seconds of processor time that all that has ended so far took.
suite_cpu() {
    local stat
    stat=$(<"/proc/$$/stat")
    read -ra stat <<<"${stat##*) }"
    printf '%d\n' $(((stat[13] + stat[14]) / $(getconf CLK_TCK)))
}

# suite_is_expected SKIP: tests/expected-skips has a pattern for it.
suite_is_expected() {
    local pattern
    while read -r pattern; do
        # shellcheck disable=SC2053  # it is a pattern
        if [[ $pattern != '#'* ]] && [[ $1 == $pattern ]]; then
            return 0
        fi
    done <"$top/tests/expected-skips"
    return 1
}

# suite_judge_skips NAME: in CI a skip that is not expected is a failure; elsewhere it is shown as one that would be.
suite_judge_skips() {
    local skip expected=()
    for skip in "${suite_skips[@]}"; do
        if suite_is_expected "$1: $skip"; then
            expected+=("$skip")
        elif [ -n "${CI:-}" ]; then
            suite_failed=$((suite_failed + 1))
            say "    | skipped, which tests/expected-skips does not list: $1: $skip"
            unlisted_skips+=("$1: $skip")
        else
            expected+=("$skip (not in tests/expected-skips)")
        fi
    done
    suite_skips=("${expected[@]}")
}

# suite_run NAME: one suite within its budget; the row of the table goes to $suite_rows.
suite_run() {
    local began=$SECONDS note= budget=${suite_budget[$1]} cpu
    cpu=$(suite_cpu)
    suite_passed=0 suite_failed=0 suite_skips=()
    say "$1: ${suite_about[$1]}"
    [ -z "$suite_long" ] || budget=${suite_budget_long[$1]:-$((budget * 10))}
    budget=$((budget * suite_scale))
    deadline=$((SECONDS + budget))
    step_cut_off=
    "suite_$1"
    deadline=
    if [ -n "$step_cut_off" ]; then
        note="cut off after $budget s"
        [ "$suite_failed" -gt 0 ] || suite_failed=1
    elif [ $((suite_passed + suite_failed + ${#suite_skips[@]})) -eq 0 ]; then
        note="ran no test"
        suite_failed=1
    fi
    suite_judge_skips "$1"
    suite_rows+=("$(printf '%-12s %8d %8d %8d   %-12s %5d s   %s' "$1" "$suite_passed" "$suite_failed" \
        "${#suite_skips[@]}" "$(step_time $((SECONDS - began)))" $(($(suite_cpu) - cpu)) "$note")")
    total_passed=$((total_passed + suite_passed))
    total_failed=$((total_failed + suite_failed))
    all_skips+=("${suite_skips[@]/#/$1: }")
}

# suites_build_ahead CHOSEN...: from `model` to `systemd` most of the time is waited.
suites_build_ahead() {
    local name variants=()
    for name in "$@"; do
        case $name in
        asan | tsan | clang) variants+=("$name") ;;
        fuzz) [[ " $* " = *" asan "* ]] || variants+=(asan) ;;
        esac
    done
    if [ "${#variants[@]}" -gt 0 ]; then
        build_variant release || return 0 # first, as the suites in between need it
        build_ahead "${variants[@]}"
    fi
}

suites_run() {
    local every=("${suites[@]}" "${suites_all[@]}" "${suites_long[@]}")
    local name all= chosen=() suite_rows=() all_skips=() unlisted_skips=() total_passed=0 total_failed=0
    while [ $# -gt 0 ]; do
        case $1 in
        --all) all=yes ;;
        --long) suite_long=yes ;;
        -*) die "test: no option $1" "./run test [--all | SUITE...] [--long]; suites: ${every[*]}" ;;
        *)
            [ -n "${suite_budget[$1]:-}" ] || die "test: no suite $1" "suites: ${every[*]}"
            chosen+=("$1")
            ;;
        esac
        shift
    done
    if [ "${#chosen[@]}" -eq 0 ]; then
        chosen=("${suites[@]}")
        [ -z "$all$suite_long" ] || chosen+=("${suites_all[@]}")
        [ -z "$suite_long" ] || chosen+=("${suites_long[@]}")
    elif [ -n "$all" ]; then
        die "test: --all cannot be given together with ${chosen[*]}" "give --all, or the names of suites"
    fi
    build_werror=true
    packages_need build test
    vendor_setup
    for name in "${chosen[@]}"; do
        case $name in
        asan | tsan | fuzz | clang) build_ahead_end ;;
        model) suites_build_ahead "${chosen[@]}" ;;
        esac
        suite_run "$name"
    done

    say ""
    printf '%-12s %8s %8s %8s   %-12s %7s\n' suite passed failed skipped time cpu
    printf '%s\n' "${suite_rows[@]}"
    if [ "${#all_skips[@]}" -gt 0 ]; then
        say "skipped:"
        printf '  %s\n' "${all_skips[@]}"
    fi
    if [ "${#unlisted_skips[@]}" -gt 0 ]; then
        say "skipped and not listed in tests/expected-skips, so failed:"
        printf '  %s\n' "${unlisted_skips[@]}"
    fi
    printf '%d passed, %d failed' "$total_passed" "$total_failed"
    [ "${#all_skips[@]}" -eq 0 ] || printf ', %d skipped' "${#all_skips[@]}"
    printf '\n'
    [ "$total_failed" -eq 0 ]
}
