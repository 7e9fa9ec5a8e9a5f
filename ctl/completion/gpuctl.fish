# SPDX-License-Identifier: Apache-2.0
# Fish completion of gpuctl: gpuctl itself knows the words.
function __gpuctl_complete
    set -l words (commandline -opc) (commandline -ct)
    gpuctl __complete -- $words[2..-1] 2>/dev/null
end
function __gpuctl_in_command
    set -l words (commandline -opc)
    contains -- run $words; and contains -- -- $words
end
complete -c gpuctl -n 'not __gpuctl_in_command' -f -a '(__gpuctl_complete)'
complete -c gpuctl -n __gpuctl_in_command -a '(__fish_complete_subcommand --fcs-skip=(contains -i -- -- (commandline -opc)))'
