/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/plan-search.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tests/support/allocator/plan_shape.h"
#include "tests/support/suite.h"

START_TEST(nothing_is_found_at_once) {
    struct plan_buffer never[] = { { 5, 5, 100, 9 }, { 7, 3, 100, 9 }, { 0, 10, 0, 9 } };
    uint64_t bytes = 1;

    ck_assert_int_eq(plan_search(NULL, 0, 0, 0, &bytes), 1);
    ck_assert_int_eq(plan_search(never, 3, 0, 1000, &bytes), 1);
    ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(what_cannot_be_counted_is_refused) {
    struct plan_buffer buffers[] = { { 0, 1, INT64_MAX, 1 }, { 2, 3, INT64_MAX, 2 } };
    uint64_t bytes = 7;

    ck_assert_int_eq(plan_search(buffers, 2, 0, 1000, &bytes), -EOVERFLOW);
    ck_assert_int_eq(plan_search(buffers, SIZE_MAX / 2, 0, 1000, &bytes), -EOVERFLOW);
    ck_assert_uint_eq(bytes, 7);
    ck_assert_uint_eq(buffers[0].offset, 1);
}
END_TEST

/* Lives and sizes of all kinds. */
static void make(struct plan_buffer *buffers, size_t n, uint64_t *random) {
    uint64_t span = 1 + random_next(random) % (n * 2), unit = 1 + random_next(random) % 1000;
    uint64_t longest = 1 + random_next(random) % span;

    for (size_t i = 0; i < n; i++) {
        uint64_t start = random_next(random) % span;

        buffers[i] = (struct plan_buffer){ start, start + random_next(random) % (longest + 1),
                                           random_next(random) % 40 * unit, 12345 };
    }
}

START_TEST(no_search_is_worse_than_the_fast_plan) {
    cleanup(freep) struct plan_buffer *buffers = calloc(400, sizeof(*buffers));

    ck_assert_ptr_nonnull(buffers);
    for (uint64_t seed = 1; seed < 300; seed++) {
        uint64_t random = seed, lower, fast, searched;
        size_t n = 1 + random_next(&random) % (seed % 10 ? 40 : 400);

        make(buffers, n, &random);
        ck_assert_int_eq(plan_lower_bound(buffers, n, &lower), 0);
        ck_assert_int_eq(plan_fast(buffers, n, NULL, &fast), 0);
        ck_assert_int_ge(plan_search(buffers, n, 0, 5000, &searched), 0);
        ck_assert_msg(plan_check(buffers, n, searched) == 0, "seed %llu", (unsigned long long)seed);
        ck_assert_uint_le(searched, fast);
        ck_assert_uint_ge(searched, lower);
    }
}
END_TEST

/* A box cut into pieces has a plan without a gap: the search must find one of that size. */
static bool cut(struct plan_buffer *piece, struct plan_buffer *other, uint64_t *random) {
    *other = *piece;
    if (random_next(random) % 2) {
        if (piece->end - piece->start < 2)
            return false;
        piece->end = other->start =
            piece->start + 1 + random_next(random) % (piece->end - piece->start - 1);
    } else {
        if (piece->bytes < 2)
            return false;
        other->bytes = 1 + random_next(random) % (piece->bytes - 1);
        piece->bytes -= other->bytes;
    }
    return true;
}

START_TEST(the_search_finds_plans_without_a_gap) {
    unsigned better = 0;

    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct plan_buffer buffers[80] = { { 0, 64, 1 << 16, 0 } };
        uint64_t random = seed, lower, fast, searched;
        size_t n = 1;

        while (n < ELEMENTSOF(buffers))
            n += cut(&buffers[random_next(&random) % n], &buffers[n], &random);
        ck_assert_int_eq(plan_lower_bound(buffers, n, &lower), 0);
        ck_assert_uint_eq(lower, 1 << 16);
        ck_assert_int_eq(plan_fast(buffers, n, NULL, &fast), 0);
        /* Some milliseconds are enough; the limit is for machines that have other things to do. */
        ck_assert_int_eq(plan_search(buffers, n, 0, 60000000, &searched), 1);
        ck_assert_uint_eq(searched, lower);
        ck_assert_int_eq(plan_check(buffers, n, searched), 0);
        better += searched < fast;
    }
    ck_assert_uint_ge(better, 10);
}
END_TEST

START_TEST(without_a_budget_the_search_is_the_fast_plan) {
    static const size_t sizes[] = { 50, 1000, 4096 };
    cleanup(freep) struct plan_buffer *buffers = calloc(4096, sizeof(*buffers));
    cleanup(freep) struct plan_buffer *searched = calloc(4096, sizeof(*searched));

    ck_assert_ptr_nonnull(buffers);
    ck_assert_ptr_nonnull(searched);
    for (unsigned k = 0; k < ELEMENTSOF(sizes); k++)
        for (size_t s = 0; s < n_plan_shapes; s++) {
            uint64_t random = 5, fast, bytes, lower;

            plan_shapes[s].make(buffers, sizes[k], &random);
            memcpy(searched, buffers, sizes[k] * sizeof(*buffers));
            ck_assert_int_eq(plan_fast(buffers, sizes[k], NULL, &fast), 0);
            ck_assert_int_eq(plan_lower_bound(buffers, sizes[k], &lower), 0);
            ck_assert_int_eq(plan_search(searched, sizes[k], 0, 0, &bytes), fast == lower);
            ck_assert_uint_eq(fast, bytes);
            ck_assert_mem_eq(buffers, searched, sizes[k] * sizeof(*buffers));
        }
}
END_TEST

START_TEST(the_largest_search_and_one_beyond_it_end_well) {
    static const size_t sizes[] = { 4096, 4097 };
    cleanup(freep) struct plan_buffer *buffers = calloc(4097, sizeof(*buffers));

    ck_assert_ptr_nonnull(buffers);
    for (unsigned k = 0; k < ELEMENTSOF(sizes); k++) {
        uint64_t random = 11, fast, searched;

        for (size_t i = 0; i < sizes[k]; i++) {
            uint64_t start = random_next(&random) % 400;

            buffers[i] = (struct plan_buffer){ start, start + 1 + random_next(&random) % 40,
                                               (1 + random_next(&random) % 1000) * 256, 0 };
        }
        ck_assert_int_eq(plan_fast(buffers, sizes[k], NULL, &fast), 0);
        ck_assert_int_ge(plan_search(buffers, sizes[k], 0, 300000, &searched), 0);
        ck_assert_uint_le(searched, fast);
        ck_assert_int_eq(plan_check(buffers, sizes[k], searched), 0);
    }
}
END_TEST

START_TEST(sizes_of_all_magnitudes_are_searched) {
    /* Units: one byte beside petabytes cannot be counted in 31 bits. */
    struct plan_buffer buffers[] = {
        { 0, 2, (uint64_t)1 << 50, 0 },
        { 1, 3, 1, 0 },
        { 2, 4, ((uint64_t)1 << 50) + 7, 0 },
        { 3, 5, 3, 0 },
        { 0, UINT64_MAX, 5, 0 },
    };
    uint64_t bytes;

    ck_assert_int_ge(plan_search(buffers, ELEMENTSOF(buffers), 0, 20000, &bytes), 0);
    ck_assert_int_eq(plan_check(buffers, ELEMENTSOF(buffers), bytes), 0);
}
END_TEST

SUITE("plan-search", nothing_is_found_at_once, what_cannot_be_counted_is_refused,
      no_search_is_worse_than_the_fast_plan, the_search_finds_plans_without_a_gap,
      without_a_budget_the_search_is_the_fast_plan, the_largest_search_and_one_beyond_it_end_well,
      sizes_of_all_magnitudes_are_searched)
