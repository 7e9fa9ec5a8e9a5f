/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/plan.h"
#include "base/random.h"
#include "tests/support/allocator/plan_shape.h"
#include "tests/support/suite.h"

START_TEST(nothing_needs_nothing) {
    struct plan_buffer never[] = { { 5, 5, 100, 9 }, { 7, 3, 100, 9 }, { 0, 10, 0, 9 } };
    uint64_t bytes = 1;

    ck_assert_int_eq(plan_fast(NULL, 0, NULL, &bytes), 0);
    ck_assert_uint_eq(bytes, 0);
    ck_assert_int_eq(plan_check(NULL, 0, 0), 0);
    ck_assert_int_eq(plan_fast(never, 3, NULL, &bytes), 0);
    ck_assert_uint_eq(bytes, 0);
    ck_assert_uint_eq(never[0].offset, 0);
}
END_TEST

START_TEST(the_lower_bound_is_the_most_live_at_once) {
    struct plan_buffer buffers[] = {
        { 0, 10, 100, 0 }, { 10, 20, 300, 0 }, { 5, 15, 50, 0 }, { 19, 21, 10, 0 }
    };
    uint64_t bytes;

    ck_assert_int_eq(plan_lower_bound(buffers, ELEMENTSOF(buffers), &bytes), 0);
    ck_assert_uint_eq(bytes, 350);
    ck_assert_int_eq(plan_fast(buffers, ELEMENTSOF(buffers), NULL, &bytes), 0);
    ck_assert_uint_eq(bytes, 350);
    ck_assert_int_eq(plan_check(buffers, ELEMENTSOF(buffers), bytes), 0);
}
END_TEST

START_TEST(sums_that_overflow_are_refused) {
    static const struct plan_buffer hostile[][2] = {
        { { 0, 2, UINT64_MAX - 5, 1 }, { 1, 3, 100, 2 } },
        { { 0, 2, INT64_MAX, 1 }, { 1, 3, 1, 2 } },
        { { 0, 2, (uint64_t)1 << 63, 1 }, { 5, 3, UINT64_MAX, 2 } },
        /* They never meet, but the sum is what counts. */
        { { 0, 1, INT64_MAX, 1 }, { 2, 3, INT64_MAX, 2 } },
    };

    for (unsigned k = 0; k < ELEMENTSOF(hostile); k++) {
        struct plan_buffer buffers[2] = { hostile[k][0], hostile[k][1] };
        uint64_t bytes = 7;

        ck_assert_int_eq(plan_lower_bound(buffers, 2, &bytes), -EOVERFLOW);
        ck_assert_int_eq(plan_fast(buffers, 2, NULL, &bytes), -EOVERFLOW);
        ck_assert_uint_eq(bytes, 7);
        ck_assert_mem_eq(buffers, hostile[k], sizeof(buffers));
    }
}
END_TEST

START_TEST(more_than_can_be_counted_are_refused) {
    struct plan_buffer one = { 0, 1, 1, 9 };
    uint64_t bytes = 7;

    ck_assert_int_eq(plan_lower_bound(&one, SIZE_MAX, &bytes), -EOVERFLOW);
    ck_assert_int_eq(plan_fast(&one, (size_t)1 << 29, NULL, &bytes), -EOVERFLOW);
    ck_assert_uint_eq(bytes, 7);
    ck_assert_uint_eq(one.offset, 9);
}
END_TEST

START_TEST(the_largest_times_and_sizes_are_planned) {
    struct plan_buffer buffers[] = {
        { 0, UINT64_MAX, 5, 1 },
        { UINT64_MAX - 1, UINT64_MAX, INT64_MAX - 20, 1 },
        { 0, 1, 7, 1 },
        { UINT64_MAX, UINT64_MAX, 100, 1 },
        { UINT64_MAX, 0, UINT64_MAX, 1 },
        { 3, 4, 0, 1 },
    };
    uint64_t bytes;

    ck_assert_int_eq(plan_fast(buffers, ELEMENTSOF(buffers), NULL, &bytes), 0);
    ck_assert_uint_eq(bytes, INT64_MAX - 15);
    ck_assert_ptr_null(plan_mistake(buffers, ELEMENTSOF(buffers), bytes));
}
END_TEST

START_TEST(one_begins_where_another_ends) {
    struct plan_buffer chain[] = { { 0, 4, 100, 0 }, { 4, 6, 100, 0 }, { 6, 7, 100, 0 } };
    struct plan_buffer meeting[] = { { 0, 5, 100, 0 }, { 4, 6, 100, 0 } };
    struct plan_buffer same[] = { { 3, 4, 10, 0 }, { 3, 4, 20, 0 }, { 3, 4, 30, 0 } };
    uint64_t bytes;

    ck_assert_int_eq(plan_fast(chain, 3, NULL, &bytes), 0);
    ck_assert_uint_eq(bytes, 100);
    ck_assert_int_eq(plan_fast(meeting, 2, NULL, &bytes), 0);
    ck_assert_uint_eq(bytes, 200);
    ck_assert_int_eq(plan_fast(same, 3, NULL, &bytes), 0);
    ck_assert_uint_eq(bytes, 60);
    ck_assert_int_eq(plan_fast(same, 1, NULL, &bytes), 0);
    ck_assert_uint_eq(bytes, 10);
    ck_assert_uint_eq(same[0].offset, 0);
}
END_TEST

START_TEST(the_check_sees_overlaps_and_what_sticks_out) {
    struct plan_buffer buffers[] = { { 0, 10, 100, 0 }, { 5, 15, 50, 99 } };

    ck_assert_int_eq(plan_check(buffers, 2, 200), -EUCLEAN);
    buffers[1].offset = 100;
    ck_assert_int_eq(plan_check(buffers, 2, 150), 0);
    ck_assert_int_eq(plan_check(buffers, 2, 149), -EUCLEAN);
    buffers[1].start = 10;
    buffers[1].offset = 0;
    ck_assert_int_eq(plan_check(buffers, 2, 100), 0);
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

START_TEST(every_plan_is_one_and_none_is_below_the_bound) {
    cleanup(freep) struct plan_buffer *buffers = calloc(400, sizeof(*buffers));

    ck_assert_ptr_nonnull(buffers);
    for (uint64_t seed = 1; seed < 300; seed++) {
        uint64_t random = seed, lower, fast;
        size_t n = 1 + random_next(&random) % (seed % 10 ? 40 : 400);

        make(buffers, n, &random);
        ck_assert_int_eq(plan_lower_bound(buffers, n, &lower), 0);
        ck_assert_int_eq(plan_fast(buffers, n, NULL, &fast), 0);
        ck_assert_msg(plan_check(buffers, n, fast) == 0, "seed %llu", (unsigned long long)seed);
        ck_assert_uint_ge(fast, lower);
    }
}
END_TEST

START_TEST(a_plan_that_is_called_off_changes_nothing) {
    enum { N = 300 };
    struct plan_buffer buffers[N], before[N];
    atomic_bool halt = true;
    uint64_t bytes = 7;

    for (uint64_t i = 0; i < N; i++)
        buffers[i] = (struct plan_buffer){ i % 17, i % 17 + 1 + i % 5, 1 + i % 7, 99 };
    memcpy(before, buffers, sizeof(before));
    ck_assert_int_eq(plan_fast(buffers, N, &halt, &bytes), -ECANCELED);
    ck_assert_mem_eq(buffers, before, sizeof(before));
    ck_assert_uint_eq(bytes, 7);
    halt = false;
    ck_assert_int_eq(plan_fast(buffers, N, &halt, &bytes), 0);
    ck_assert_int_eq(plan_check(buffers, N, bytes), 0);
}
END_TEST

SUITE("plan", nothing_needs_nothing, the_lower_bound_is_the_most_live_at_once,
      sums_that_overflow_are_refused, more_than_can_be_counted_are_refused,
      the_largest_times_and_sizes_are_planned, one_begins_where_another_ends,
      the_check_sees_overlaps_and_what_sticks_out, every_plan_is_one_and_none_is_below_the_bound,
      a_plan_that_is_called_off_changes_nothing)
