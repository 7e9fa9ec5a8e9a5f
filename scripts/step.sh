# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Step: one line of progress for one piece of work.
#
#     step_run "release build" build/release.log ninja -C build
#
# runs the command with its output in build/logs/build/release.log and prints one line: the label, how
# much is done while it runs (rewritten on a terminal, now and then a line of its own elsewhere), and the
# time taken. A failure shows the end of that log. The command (a program or a function) runs in a
# process group of its own, so that a time limit or Ctrl-C ends everything it started.

logs=$top/build/logs
deadline=           # $SECONDS at which the suite that runs now is cut off; empty: no limit
step_cut_off=       # set when the last step was ended by its deadline
step_pid=
step_watcher=

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
    step_watch_end
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

# step_line LABEL TEXT: the step's line, written over the one before on a terminal.
step_line() {
    if [ -t 1 ]; then
        printf '\r  %-52s %s\033[K' "$1" "$2"
    else
        printf '  %-52s %s\n' "$1" "$2"
    fi
}

# step_done LOG: "12 of 345, " as ninja, meson, pytest and TAP count; nothing where the log does not tell.
step_done() {
    [ -f "$1" ] || return 0
    awk '
        /^#/ { next }
        /^1\.\.[0-9]+/ { of = substr($1, 4); is_tap = 1 }
        /^(not )?ok / && is_tap { n++ }
        !is_tap && match($0, /(^ *|\[ *)[0-9]+\/[0-9]+[] ]/) {
            split(substr($0, RSTART, RLENGTH), part, "/")
            gsub(/[^0-9]/, "", part[1])
            n = part[1] + 0
            of = part[2] + 0
        }
        END { if (of > 0) printf "%d of %d, ", n, of }' "$1"
}

# step_watch LABEL LOG LIMIT: show how far it is, until LIMIT seconds are over. A log gets a line every 15
# seconds, after two minutes one a minute.
step_watch() {
    local began=$SECONDS gone=0 pause
    [ ! -t 1 ] || step_line "$1" ""
    while kill -0 $$ 2>/dev/null; do
        pause=15
        if [ -t 1 ]; then
            pause=1
        elif [ "$gone" -ge 120 ]; then
            pause=60
        fi
        if [ "$3" != infinity ]; then
            [ "$gone" -lt "$3" ] || return 0
            pause=$((pause < $3 - gone ? pause : $3 - gone))
        fi
        sleep "$pause"
        gone=$((SECONDS - began))
        [ "$pause" -eq 15 ] || [ "$pause" -eq 60 ] || [ -t 1 ] || continue
        step_line "$1" "$(step_done "$2")$(step_time "$gone")"
    done
}

step_watch_end() {
    [ -n "$step_watcher" ] || return 0
    kill -KILL -- "-$step_watcher" 2>/dev/null # bash blocks TERM while it forks: its sleep would live on
    wait "$step_watcher" 2>/dev/null
    step_watcher=
}

# step_quietly LABEL LOG COMMAND...: like step_run, but a failure shows nothing more: the caller will.
step_quietly() {
    local label=$1 log=$logs/$2 began=$SECONDS rc=0 limit=infinity outcome
    shift 2
    step_cut_off=
    if [ -n "$deadline" ]; then
        limit=$((deadline > SECONDS ? deadline - SECONDS : 1))
    fi
    mkdir -p "${log%/*}"
    trap step_interrupted INT TERM
    set -m
    ("$@") </dev/null >"$log" 2>&1 &
    step_pid=$!
    step_watch "$label" "$log" "$limit" </dev/null &
    step_watcher=$!
    set +m
    wait -n "$step_pid" "$step_watcher" 2>/dev/null || rc=$?
    if ! kill -0 "$step_watcher" 2>/dev/null; then
        step_cut_off=yes
        step_kill
        rc=124
    fi
    step_watch_end
    step_pid=
    trap - INT TERM
    outcome=$(step_time $((SECONDS - began)))
    if [ -n "$step_cut_off" ]; then
        outcome="out of time after $outcome"
    elif [ "$rc" -eq 77 ]; then
        outcome=skipped
    elif [ "$rc" -ne 0 ]; then
        outcome="FAILED $outcome"
    else
        outcome="ok $outcome"
    fi
    step_line "$label" "$outcome"
    [ ! -t 1 ] || printf '\n'
    return "$rc"
}

# step_apart LIMIT COMMAND...: what does not count against a suite's budget. Within a suite it has a limit of its
# own: LIMIT seconds, or none where that is empty.
step_apart() {
    local whole=$deadline began=$SECONDS limit=$1 rc=0
    shift
    deadline=${whole:+${limit:+$((SECONDS + limit))}}
    "$@" || rc=$?
    deadline=${whole:+$((whole + SECONDS - began))}
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
