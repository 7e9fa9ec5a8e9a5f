# SPDX-License-Identifier: Apache-2.0
# Bash completion of gpuctl: gpuctl itself knows the words.
_gpuctl() {
    local current=${COMP_WORDS[COMP_CWORD]} line i command words=()

    # "--gpus=2" and "GPU-1:2" are one word to gpuctl, whatever COMP_WORDBREAKS says.
    line=${COMP_LINE:0:COMP_POINT}
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[-1]}

    # After `run [OPTION…] [--]` it is another command's turn.
    for ((i = 1; i < ${#words[@]} - 1; i++)); do
        if [[ ${words[i]} == -- ]]; then
            command=$((i + 1))
            break
        fi
    done
    if [[ -n $command && " ${words[*]:1:command} " == *" run "* ]] && declare -F _command_offset >/dev/null; then
        _command_offset "$command"
        return
    fi

    COMPREPLY=()
    while IFS=$'\t' read -r word _; do
        # Bash completes only what stands after the last "=" or ":".
        if [[ $COMP_WORDBREAKS == *=* && $current == *=* ]]; then
            word=${word#"${current%%=*}="}
        fi
        COMPREPLY+=("$word")
    done < <(gpuctl __complete -- "${words[@]:1}" 2>/dev/null)
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace
    if [[ ${#COMPREPLY[@]} -eq 0 ]]; then
        compopt -o default
    fi
}
complete -F _gpuctl gpuctl
