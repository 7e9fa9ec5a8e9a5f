#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every source file says its licence in its first lines.
# shellcheck source=tree.sh
. "$(dirname "$0")/tree.sh"

mapfile -t files < <(tree '*.[chS]' '*.cu' '*.py' '*.sh' '*.map' meson.build meson_options.txt '*.scd' '*.in' run)
complain "$(for file in "${files[@]}"; do
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || printf '%s\n' "$file"
done)" "no SPDX-License-Identifier: Apache-2.0 in the first three lines of:"
