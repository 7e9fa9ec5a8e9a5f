/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>

#include "base/random.h"
#include "bench/lookup.h"
#include "tests/support/suite.h"

START_TEST(the_lookup_finds_what_was_added_and_nothing_else) {
    cleanup(freep) uint64_t *addresses = calloc(4097, sizeof(*addresses));
    struct lookup lookup = { 0 };
    uint64_t random = 9;
    bool in[4097] = { 0 };

    ck_assert_ptr_nonnull(addresses);
    for (uint64_t i = 1; i < 4097; i++)
        addresses[i] = (i % 2 ? i << 8 : random_next(&random) & ~(uint64_t)255) + 256;
    ck_assert_uint_eq(lookup_take(&lookup, 256), 0);
    for (unsigned n = 0; n < 200000; n++) {
        uint64_t i = 1 + random_next(&random) % 4096;

        ck_assert_uint_eq(lookup_take(&lookup, addresses[i]), in[i] ? i : 0);
        if (!in[i])
            ck_assert_int_eq(lookup_add(&lookup, addresses[i], i), 0);
        in[i] = !in[i];
    }
    for (uint64_t i = 1; i < 4097; i++)
        ck_assert_uint_eq(lookup_take(&lookup, addresses[i]), in[i] ? i : 0);
    ck_assert_uint_eq(lookup.n, 0);
    lookup_done(&lookup);
}
END_TEST

SUITE("lookup", the_lookup_finds_what_was_added_and_nothing_else)
