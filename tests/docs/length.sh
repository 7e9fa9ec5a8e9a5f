#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No source file outgrows one noun: past 700 lines there is a second one inside.
# shellcheck source=tree.sh
. "$(dirname "$0")/tree.sh"

mapfile -t files < <(tree '*.[ch]' '*.cu' '*.py' '*.sh' run)
complain "$(wc -l "${files[@]}" | awk '$2 != "total" && $1 > 700')" "over 700 lines:"
