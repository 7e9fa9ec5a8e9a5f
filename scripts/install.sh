# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# Install: the files under $PREFIX, and on a live system what a package's scripts would do: the users
# `allot` and `allot-reader`, /run/allot, the linker's cache, the journal's catalog, the units and a first configuration.
#
# Where that cannot be done or is not wanted (DESTDIR, an ordinary user, another prefix, no systemd) it
# prints what is left to do. Every step may be repeated. A step that fails does not stop the others: each
# prints its remedy, and the exit status is 1.

install_config=/etc/allot/allotd.conf # allotd reads this one, whatever the prefix
install_failed=

# install_is_system: systemd and the linker look under this prefix by themselves.
install_is_system() { [ "$install_prefix" = /usr/local ] || [ "$install_prefix" = /usr ]; }

install_is_booted() { [ -d /run/systemd/system ]; }

# The commands that make the system know the files, one a line: COMMAND # WHAT.
install_commands() {
    local lib=$install_prefix/lib
    printf '%-63s # %s\n' "systemd-sysusers $lib/sysusers.d/allotd.conf" "the users allot and allot-reader" \
        "systemd-tmpfiles --create $lib/tmpfiles.d/allotd.conf" "/run/allot" \
        ldconfig "the linker's cache" \
        "journalctl --update-catalog" "the journal's catalog" \
        "systemctl daemon-reload" "the units"
}

# install_remedy COMMAND...: what is missing as long as the command has not run.
install_remedy() {
    case $1 in
    systemd-sysusers) say "the units need two users: useradd --system allot; useradd --system allot-reader; groupadd --system allot-admin" ;;
    systemd-tmpfiles) say "the units need /run/allot, which belongs to root: $*" ;;
    ldconfig) say "programs that are linked with liballot do not find it before this has run: $*" ;;
    journalctl) say "journalctl -x does not explain allotd's messages before this has run: $*" ;;
    systemctl) say "systemd does not know the units before this has run: $*" ;;
    esac
}

# install_step LABEL REMEDY COMMAND...
install_step() {
    local label=$1 remedy=$2
    shift 2
    if ! step_run "$label" "install/${1##*/}.log" "$@"; then
        say "    $remedy"
        install_failed=yes
    fi
}

# The files. A build that `./run build` has finished is installed as it is: that needs no compiler and no
# packages, and `sudo ./run install` compiles nothing as root.
install_files() {
    if ! build_is_current || ! command -v meson >/dev/null; then
        build_release
    fi
    step_run "files under ${DESTDIR:-}$install_prefix" install/files.log \
        meson install -C "$top/build" --no-rebuild ${DESTDIR:+--destdir "$DESTDIR"} ||
        die "not everything could be installed" "run it as root; PREFIX=\$HOME/.local ./run install needs no root"
}

install_copy() {
    install -d -m 755 "${2%/*}" && install -m 644 "$1" "$2"
}

# An administrator's configuration is never touched; the commented one is also in share/doc/allot.
install_configuration() {
    local file=${DESTDIR:-}$install_config
    [ ! -e "$file" ] && [ ! -L "$file" ] || return 0
    install_step "$file" "copy systemd/allotd.conf there; without it the defaults apply" \
        install_copy "$top/systemd/allotd.conf" "$file"
}

# Programs linked with liballot must find it: ldconfig knows the folder on Debian, elsewhere maybe not.
install_library() {
    local folder
    folder=$(sed -n "s,.*\"\($install_prefix/[^\"]*\)/liballot\.so[.0-9]*\".*,\1,p" "$top/build/meson-info/intro-installed.json")
    ldconfig -p | grep -qF "=> $folder/liballot.so" && return 0
    say "ldconfig does not look in $folder"
    return 1
}

install_system() {
    local command what words
    while IFS='#' read -r command what; do
        read -ra words <<<"$command"
        if [ "${words[0]}" = systemctl ] && ! install_is_booted; then
            continue # there is no systemd to tell
        elif ! command -v "${words[0]}" >/dev/null; then
            say "  ${words[0]} is not installed: $(install_remedy "${words[@]}")"
        else
            install_step "${what# }" "$(install_remedy "${words[@]}")" "${words[@]}"
        fi
    done < <(install_commands)
    install_step "the linker finds liballot" "add that folder to /etc/ld.so.conf.d/allot.conf, then: ldconfig" install_library
    install_configuration
    install_step "allotd runs and can use $install_config" "mend this before allotd is started again: allotd.conf(5)" \
        "$install_prefix/sbin/allotd" --check-config
}

install_tell_system() {
    if ! install_is_booted; then
        say "installed under $install_prefix. systemd does not run here; once it does:"
        say "  systemctl enable --now allotd     # without systemd: start allotd by hand, allotd(8)"
    elif systemctl --quiet is-active allotd.service; then
        say "installed under $install_prefix. The allotd that runs is still the one from before:"
        say "  systemctl restart allotd          # jobs run on and keep their leases"
    else
        say "installed under $install_prefix. Next:"
        say "  systemctl enable --now allotd     # policy: $install_config"
    fi
}

# For a package, for another machine's tree, or for root to do later.
install_tell_commands() {
    say "installed under ${DESTDIR:-}$install_prefix. On the system that it is for, as root:"
    install_commands | sed 's/^/  /'
    if [ ! -e "${DESTDIR:-}$install_config" ]; then
        say "  install -D -m 644 $install_prefix/share/doc/allot/allotd.conf $install_config"
    fi
    say "  systemctl enable --now allotd     # or, where an older allotd runs: systemctl restart allotd"
}

install_tell_own() {
    say "installed under ${DESTDIR:-}$install_prefix, for a box of your own: the system itself was not changed, and systemd"
    say "does not look there. Start allotd with every path given (README.md, Install), and first:"
    say "  PATH=$install_prefix/bin:$install_prefix/sbin:\$PATH"
}

# Root leaves nothing in an ordinary user's clone that this user cannot write again.
install_give_back() {
    [ "$(id -u)" -ne 0 ] || chown -R --reference="$top/build" "$logs" "$top/build/meson-logs"
}

install_run() {
    install_prefix=${PREFIX:-/usr/local}
    install_prefix=${install_prefix%/}
    PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin # su keeps an ordinary user's
    if [ -z "${DESTDIR:-}" ] && install_is_system && [ ! -w "$install_prefix" ]; then
        die "$install_prefix is not yours to write" \
            "as root: sudo ./run install; or for yourself: PREFIX=\$HOME/.local ./run install"
    fi
    trap install_give_back EXIT
    install_files
    if ! install_is_system; then
        install_tell_own
    elif [ -n "${DESTDIR:-}" ]; then
        install_configuration
        install_tell_commands
    elif [ "$(id -u)" -ne 0 ]; then
        install_tell_commands
    else
        install_system
        [ -n "$install_failed" ] || install_tell_system
    fi
    [ -z "$install_failed" ] || die "not everything was done" "the lines above say what to do; ./run install may be repeated"
}
