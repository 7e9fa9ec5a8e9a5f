/* SPDX-License-Identifier: Apache-2.0 */
/* Random walks over all configurations, with the device oracle as judge. ALLOT_SEED repeats one. */
#include <stdlib.h>
#include <time.h>

#include "tests/support/suite.h"
#include "tests/support/allocator/arena_walk.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define STEPS 1500
#else
#define STEPS 4000
#endif

START_TEST(every_configuration_keeps_its_invariants_on_a_random_walk) {
    const char *seed = getenv("ALLOT_SEED"), *longer = getenv("ALLOT_TEST_LONG");
    uint64_t first = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
    unsigned rounds = seed ? 1 : longer && *longer ? 40 : 2;

    for (unsigned round = 0; round < rounds; round++)
        for (unsigned n = 0; n < n_arena_walk_configs; n++) {
            struct arena_walk_options options = arena_walk_configs[n];
            struct arena_walk_numbers numbers = { .seed = (first + round) * 1000 + n };
            char *mistake;

            options.check_every = round % 2 ? 64 : 3;
            options.oracle.seed = first + n;
            mistake = arena_walk_run(&options, &numbers, round % 2 ? STEPS * 4 : STEPS);
            ck_assert_msg(!mistake, "configuration %u, ALLOT_SEED=%llu: %s", n,
                          (unsigned long long)(first + round), mistake);
        }
}
END_TEST

SUITE_TIMEOUT("arena-walk", 300, every_configuration_keeps_its_invariants_on_a_random_walk)
