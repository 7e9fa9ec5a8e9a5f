/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a waiter may take of a device although others wait for it: by its definition, state by
 * state.
 */
#include <stdlib.h>

#include "base/random.h"
#include "daemon/broker/books.h"
#include "daemon/broker/queue/backfill.h"
#include "tests/support/suite.h"

#define G BOOKS_GRANULE

static uint64_t backfill(uint64_t usable, uint64_t vague, const uint64_t *leases, uint32_t n_leases,
                         const uint64_t *needs, uint32_t n_needs) {
    uint64_t in[2][BACKFILL_LEASES_MAX + 1], found;
    struct backfill_case what = { .usable_bytes = usable * G,
                                  .vague_bytes = vague * G,
                                  .lease_bytes = in[0],
                                  .n_leases = n_leases,
                                  .need_bytes = in[1],
                                  .n_needs = n_needs };

    for (uint32_t i = 0; i < n_leases; i++)
        in[0][i] = leases[i] * G;
    for (uint32_t i = 0; i < n_needs; i++)
        in[1][i] = needs[i] * G;
    found = backfill_bytes(&what);
    return found == UINT64_MAX ? found : found / G;
}

START_TEST(it_is_the_least_that_is_left_over_when_a_waiter_starts) {
    uint64_t one[] = { 24 }, two[] = { 20, 4 }, halves[] = { 20, 20 };

    ck_assert_uint_eq(backfill(40, 0, one, 1, (uint64_t[]){ 32 }, 1), 8);
    ck_assert_uint_eq(backfill(40, 0, two, 2, (uint64_t[]){ 32 }, 1), 4);
    ck_assert_uint_eq(backfill(40, 0, halves, 2, (uint64_t[]){ 20 }, 1), 0);
    ck_assert_uint_eq(backfill(40, 0, halves, 2, (uint64_t[]){ 40 }, 1), 0);
    /* The second starts beside the first, or after it. */
    ck_assert_uint_eq(backfill(40, 0, one, 1, (uint64_t[]){ 20, 18 }, 2), 2);
    /* Parts of 5 may come back at any time. */
    ck_assert_uint_eq(backfill(40, 5, one, 1, (uint64_t[]){ 32 }, 1), 3);
    ck_assert_uint_eq(backfill(40, 9, one, 1, (uint64_t[]){ 32 }, 1), 0);
}
END_TEST

START_TEST(a_waiter_that_can_never_start_here_is_not_delayed) {
    uint64_t one[] = { 24 };

    ck_assert_uint_eq(backfill(40, 0, one, 1, NULL, 0), UINT64_MAX);
    ck_assert_uint_eq(backfill(40, 0, one, 1, (uint64_t[]){ 41 }, 1), UINT64_MAX);
    ck_assert_uint_eq(backfill(40, 0, one, 1, (uint64_t[]){ 41, 30 }, 2), 10);
}
END_TEST

START_TEST(what_would_take_too_long_to_try_has_none) {
    uint64_t many[BACKFILL_LEASES_MAX + 1];

    for (size_t i = 0; i < ELEMENTSOF(many); i++)
        many[i] = 2;
    ck_assert_uint_eq(backfill(400, 0, many, BACKFILL_LEASES_MAX, (uint64_t[]){ 399 }, 1), 1);
    ck_assert_uint_eq(backfill(400, 0, many, BACKFILL_LEASES_MAX + 1, (uint64_t[]){ 399 }, 1), 0);
    ck_assert_uint_eq(backfill(UINT64_C(1) << 40, 0, many, 1, (uint64_t[]){ 399 }, 1), 0);
}
END_TEST

/* Every lease there or gone, every waiter in front waiting or running, or gone. */
static uint64_t try_all(uint64_t usable, const uint64_t *leases, uint32_t n_leases,
                        const uint64_t *needs, uint32_t n_needs) {
    uint64_t least = UINT64_MAX;

    for (uint32_t k = 0; k < n_needs; k++)
        for (uint32_t set = 0; set < UINT32_C(1) << (n_leases + k); set++) {
            uint64_t used = 0;

            for (uint32_t i = 0; i < n_leases + k; i++)
                if (set >> i & 1)
                    used += i < n_leases ? leases[i] : needs[i - n_leases];
            if (used + needs[k] <= usable)
                least = MIN(least, usable - used - needs[k]);
        }
    return least;
}

START_TEST(it_is_what_trying_every_state_gives) {
    uint64_t random = 5;

    for (unsigned i = 0; i < 3000; i++) {
        uint64_t leases[5], needs[4], usable = 1 + random_next(&random) % 300;
        uint32_t n_leases = random_next(&random) % 6, n_needs = random_next(&random) % 5;

        for (uint32_t j = 0; j < n_leases; j++)
            leases[j] = 1 + random_next(&random) % usable;
        for (uint32_t j = 0; j < n_needs; j++)
            needs[j] = 1 + random_next(&random) % usable;
        ck_assert_uint_eq(backfill(usable, 0, leases, n_leases, needs, n_needs),
                          try_all(usable, leases, n_leases, needs, n_needs));
    }
}
END_TEST

SUITE("backfill", it_is_the_least_that_is_left_over_when_a_waiter_starts,
      a_waiter_that_can_never_start_here_is_not_delayed, what_would_take_too_long_to_try_has_none,
      it_is_what_trying_every_state_gives)
