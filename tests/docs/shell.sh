#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shell scripts are clean for shellcheck: `run` with all its parts, the others each alone.
# shellcheck source=tree.sh
. "$(dirname "$0")/tree.sh"

mapfile -t files < <(tree '*.sh' | grep -v -e '^scripts/' -e '^tests/docs/tree.sh')
shellcheck -x -a run && shellcheck -x -P SCRIPTDIR .ci/run "${files[@]}"
