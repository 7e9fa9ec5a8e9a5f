# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Step: one line of progress for one piece of work.
#
#     step_run "release build" build/release.log ninja -C build
#
# prints the label, runs the command with its output in build/logs/build/release.log, and ends the
# line with the time taken. A failure shows the end of that log. The command (a program or a function)
# runs in a process group of its own, so that a time limit or Ctrl-C ends everything it started.

logs=$top/build/logs
deadline=           # $SECONDS at which the suite that runs now is cut off; empty: no limit
step_cut_off=       # set when the last step was ended by its deadline
step_pid=

say() { printf '%s\n' "$*"; }

# die MESSAGE [REMEDY]: the command ends here.
die() {
    printf 'run: %s\n' "$1" >&2
    if [ $# -gt 1 ]; then
        printf '     %s\n' "$2" >&2
    fi
    exit 1
}

step_kill() {
    [ -n "$step_pid" ] || return 0
    kill -TERM -- "-$step_pid" 2>/dev/null
    for _ in {1..20}; do
        kill -0 -- "-$step_pid" 2>/dev/null || break
        sleep 0.5
    done
    kill -KILL -- "-$step_pid" 2>/dev/null
    wait "$step_pid" 2>/dev/null
    step_pid=
}

step_interrupted() {
    trap - INT TERM
    step_kill
    printf '\ninterrupted\n' >&2
    exit 130
}

# step_show_log LOG: what matters of a log, indented: from the first failure of ninja on, else its end.
step_show_log() {
    local lines=${ALLOT_LOG_LINES:-30}
    if grep -q '^FAILED: ' "$logs/$1"; then
        sed -n '/^FAILED: /,$p' "$logs/$1" | grep -v '^\[[0-9]*/[0-9]*\]' | head -n "$lines"
    else
        tail -n "$lines" "$logs/$1"
    fi | cut -c 1-400 | sed 's/^/    | /'
    say "    full log: ${logs#"$PWD"/}/$1"
}

# step_quietly LABEL LOG COMMAND...: like step_run, but a failure shows nothing more: the caller will.
step_quietly() {
    local label=$1 log=$logs/$2 began=$SECONDS rc=0 limit=infinity timer
    shift 2
    step_cut_off=
    if [ -n "$deadline" ]; then
        limit=$((deadline > SECONDS ? deadline - SECONDS : 1))
    fi
    mkdir -p "${log%/*}"
    printf '  %-52s ' "$label"
    trap step_interrupted INT TERM
    set -m
    ("$@") </dev/null >"$log" 2>&1 &
    step_pid=$!
    sleep "$limit" &
    timer=$!
    set +m
    wait -n "$step_pid" "$timer" 2>/dev/null || rc=$?
    if kill -0 "$timer" 2>/dev/null; then
        kill "$timer"
    else
        step_cut_off=yes
        step_kill
        rc=124
    fi
    wait "$timer" 2>/dev/null
    step_pid=
    trap - INT TERM
    if [ -n "$step_cut_off" ]; then
        printf 'out of time after %s\n' "$(step_time $((SECONDS - began)))"
    elif [ "$rc" -eq 77 ]; then
        printf 'skipped\n'
    elif [ "$rc" -ne 0 ]; then
        printf 'FAILED %s\n' "$(step_time $((SECONDS - began)))"
    else
        printf 'ok %s\n' "$(step_time $((SECONDS - began)))"
    fi
    return "$rc"
}

step_run() {
    step_quietly "$@" && return 0
    local rc=$?
    step_show_log "$2"
    return "$rc"
}

step_time() {
    if [ "$1" -lt 100 ]; then
        printf '%d s' "$1"
    else
        printf '%d min %02d s' $(($1 / 60)) $(($1 % 60))
    fi
}
