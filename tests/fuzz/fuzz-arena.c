/* SPDX-License-Identifier: Apache-2.0 */
/* An input's first byte chooses a configuration, the rest are calls of the arena's API; the oracle
 * is the judge. */
#include <stdio.h>

#include "base/cleanup.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/allocator/arena_walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    cleanup(freep) char *mistake = NULL;
    struct arena_walk_numbers numbers = { .data = data + 1 };
    struct arena_walk_options options;

    if (size < 2)
        return 0;
    numbers.size = size - 1;
    options = arena_walk_configs[data[0] % n_arena_walk_configs];
    options.check_every = 8;
    options.oracle.seed = data[0];
    mistake = arena_walk_run(&options, &numbers, 2000);
    if (mistake)
        fprintf(stderr, "configuration %u: %s\n", data[0] % n_arena_walk_configs, mistake);
    fuzz_check(!mistake);
    return 0;
}
