# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Cache: downloads and venvs that a second clone reuses, under $XDG_CACHE_HOME/allot.
#
# An entry is a folder that is whole once it holds the file .complete. It is filled in place (a venv
# cannot be moved) under a lock, so that two clones at once do the work once and never see half of it.
# The name of an entry says all that went into it: nothing is ever refreshed, only added.

cache=${XDG_CACHE_HOME:-${HOME:-$top/build}/.cache}/allot

# The interpreter of the distribution, not one that a version manager put in front of it.
python=/usr/bin/python3
[ -x "$python" ] || python=python3

# cache_entry LABEL NAME FUNCTION...: FUNCTION DIR fills $cache/NAME, unless that is there already.
cache_entry() {
    local label=$1 name=$2
    shift 2
    [ ! -e "$cache/$name/.complete" ] || return 0
    mkdir -p "$cache/$name" 2>/dev/null ||
        die "cannot write to the cache $cache" "set XDG_CACHE_HOME to a folder that you may write"
    step_apart "" step_run "$label" "setup/${name//\//-}.log" cache_fill "$cache/$name" "$@"
}

cache_fill() {
    local dir=$1
    shift
    exec 9>"$dir.lock"
    flock 9
    [ ! -e "$dir/.complete" ] || return 0
    rm -rf "$dir"
    mkdir -p "$dir"
    "$@" "$dir" 9>&- || return 1
    touch "$dir/.complete"
}

# A name for the contents of files or words: $(cache_key file:requirements.txt python3.11)
cache_key() {
    local part
    for part in "$@"; do
        case $part in
        file:*) cat "${part#file:}" ;;
        *) printf '%s\n' "$part" ;;
        esac
    done | sha256sum | cut -c1-12
}

# cache_pip VENV VERB ARGUMENT...: pip takes only files whose hashes stand in the requirement files that it is given.
cache_pip() {
    local venv=$1 verb=$2
    shift 2
    "$venv/bin/pip" "$verb" -q --no-cache-dir --require-hashes "$@"
}

cache_venv() {
    local requirements=$1 dir=$2
    "$python" -m venv "$dir" || return 1
    if [ -n "$requirements" ]; then
        cache_pip "$dir" install --only-binary :all: -r "$requirements" || return 1
    fi
}

cache_wheels() {
    local venv=$1 requirements=$2 dir=$3
    cache_pip "$venv" download --no-deps --only-binary :all: -d "$dir" -r "$requirements"
}

# cache_die NAME: what scripts/requirements/NAME.txt pins is not to be had.
cache_die() {
    die "the files that scripts/requirements/$1.txt pins could not be fetched, or are not those whose hashes it has" \
        "the log above says which; check the network and pip's configuration (pip config list)"
}
