/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of every shape: limits, the greedy plans beside them, and random ones with a judge. Plans
 * are the same on every machine, so limits are exact and tests do not depend on luck.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "tests/support/allocator/plan_shape.h"
#include "tests/support/suite.h"

static void plan(struct plan_buffer *buffers, size_t n, const char *name, uint64_t seed,
                 uint64_t *ret_lower, uint64_t *ret_bytes) {
    const char *mistake;

    ck_assert_int_eq(plan_lower_bound(buffers, n, ret_lower), 0);
    ck_assert_int_eq(plan_fast(buffers, n, NULL, ret_bytes), 0);
    mistake = plan_mistake(buffers, n, *ret_bytes);
    ck_assert_msg(!mistake, "%s, seed %llu: %s", name, (unsigned long long)seed, mistake);
    ck_assert_uint_ge(*ret_bytes, *ret_lower);
}

/* The most that a plan may need, in ten-thousandths of the lower bound. */
static const struct {
    const char *name;
    uint64_t hundred, thousand, ten_thousand;
} limits[] = {
    { "chain", 10000, 10000, 10000 },       { "branches", 10000, 10000, 10450 },
    { "residual", 10000, 10000, 10000 },    { "u_net", 10000, 10000, 10000 },
    { "diffusion", 10000, 10000, 10300 },   { "inception", 10000, 10000, 10000 },
    { "transformer", 10000, 10000, 10000 }, { "transformer_training", 10000, 10000, 10000 },
    { "training", 10000, 10000, 10000 },    { "checkpoints", 10000, 10000, 10000 },
    { "towers", 10000, 10950, 10650 },      { "recurrent", 10000, 10000, 10000 },
    { "long_lives", 10300, 10200, 10200 },  { "magnitudes", 10000, 10350, 10650 },
    { "crowd", 10200, 10350, 10400 },       { "cuts", 11050, 12250, 14400 },
    { "holes", 10000, 10300, 12100 },       { "tiles", 10000, 10000, 11550 },
};

static uint64_t limit_of(const char *name, size_t n) {
    for (unsigned k = 0; k < ELEMENTSOF(limits); k++)
        if (strcmp(limits[k].name, name) == 0)
            return n == 100    ? limits[k].hundred
                   : n == 1000 ? limits[k].thousand
                               : limits[k].ten_thousand;
    ck_abort_msg("no limit for %s", name);
}

static void stay_within_limits(size_t n, uint64_t n_seeds) {
    cleanup(freep) struct plan_buffer *buffers = calloc(n, sizeof(*buffers));

    ck_assert_ptr_nonnull(buffers);
    ck_assert_uint_eq(ELEMENTSOF(limits), n_plan_shapes);
    for (size_t s = 0; s < n_plan_shapes; s++)
        for (uint64_t seed = 1; seed <= n_seeds; seed++) {
            uint64_t random = seed, lower, bytes, limit = limit_of(plan_shapes[s].name, n);

            plan_shapes[s].make(buffers, n, &random);
            plan(buffers, n, plan_shapes[s].name, seed, &lower, &bytes);
            ck_assert_msg((double)bytes <= (double)lower * (double)limit / 1e4,
                          "%s, %zu buffers, seed %llu: %.4f of the bound, not %.4f",
                          plan_shapes[s].name, n, (unsigned long long)seed,
                          (double)bytes / (double)lower, (double)limit / 1e4);
        }
}

START_TEST(a_hundred_stay_within_their_limits) {
    stay_within_limits(100, 20);
}
END_TEST

START_TEST(a_thousand_stay_within_their_limits) {
    stay_within_limits(1000, 3);
}
END_TEST

START_TEST(ten_thousand_stay_within_their_limits) {
    stay_within_limits(10000, 1);
}
END_TEST

START_TEST(graphs_need_at_most_a_tenth_more_than_the_bound) {
    for (unsigned k = 0; k < ELEMENTSOF(limits); k++)
        for (size_t s = 0; s < n_plan_shapes; s++)
            if (plan_shapes[s].graph_like && strcmp(plan_shapes[s].name, limits[k].name) == 0)
                ck_assert_uint_le(limits[k].ten_thousand, 11000);
}
END_TEST

START_TEST(greedy_plans_are_never_better) {
    static const struct {
        size_t n;
        uint64_t n_seeds;
    } runs[] = { { 2, 3 }, { 10, 20 }, { 100, 20 }, { 1000, 2 } };
    cleanup(freep) struct plan_buffer *buffers = calloc(1000, sizeof(*buffers));

    ck_assert_ptr_nonnull(buffers);
    for (unsigned k = 0; k < ELEMENTSOF(runs); k++)
        for (size_t s = 0; s < n_plan_shapes; s++)
            for (uint64_t seed = 1; seed <= runs[k].n_seeds; seed++) {
                uint64_t random = seed, lower, bytes, lowest, tightest;

                plan_shapes[s].make(buffers, runs[k].n, &random);
                plan(buffers, runs[k].n, plan_shapes[s].name, seed, &lower, &bytes);
                lowest = plan_greedy(buffers, runs[k].n, GREEDY_LOWEST);
                ck_assert_ptr_null(plan_mistake(buffers, runs[k].n, lowest));
                tightest = plan_greedy(buffers, runs[k].n, GREEDY_TIGHTEST);
                ck_assert_ptr_null(plan_mistake(buffers, runs[k].n, tightest));
                ck_assert_msg(bytes <= lowest && bytes <= tightest,
                              "%s, %zu buffers, seed %llu: %llu, greedy %llu and %llu",
                              plan_shapes[s].name, runs[k].n, (unsigned long long)seed,
                              (unsigned long long)bytes, (unsigned long long)lowest,
                              (unsigned long long)tightest);
            }
}
END_TEST

/* Any lives and sizes, some of them empty, all in granules of the alignment. */
static void make(struct plan_buffer *buffers, size_t n, uint64_t alignment, uint64_t *random) {
    uint64_t span = 1 + random_next(random) % (n * 2), longest = 1 + random_next(random) % span;
    uint64_t largest = 1 + random_next(random) % 4096;
    uint64_t origin = random_next(random) % 2 ? 0 : UINT64_MAX - 2 * span;

    for (size_t i = 0; i < n; i++) {
        uint64_t start = origin + random_next(random) % span;
        uint64_t end = start + random_next(random) % (longest + 1);

        buffers[i] =
            (struct plan_buffer){ start, end, random_next(random) % largest * alignment, 12345 };
    }
}

START_TEST(random_plans_hold_and_keep_the_alignment) {
    static const uint64_t alignments[] = { 1, 3, 256, (uint64_t)2 << 20, (uint64_t)1 << 40 };
    const char *seed_text = getenv("ALLOT_SEED"), *longer = getenv("ALLOT_TEST_LONG");
    uint64_t first = seed_text ? strtoull(seed_text, NULL, 10) : 1;
    uint64_t last = seed_text ? first : longer && *longer ? 20000 : 400;
    cleanup(freep) struct plan_buffer *buffers = calloc(700, sizeof(*buffers));
    cleanup(freep) struct plan_buffer *again = calloc(700, sizeof(*again));

    ck_assert_ptr_nonnull(buffers);
    ck_assert_ptr_nonnull(again);
    for (uint64_t seed = first; seed <= last; seed++) {
        uint64_t random = seed, alignment = alignments[seed % ELEMENTSOF(alignments)];
        uint64_t lower, bytes, bytes_again;
        size_t n = 1 + random_next(&random) % (seed % 20 ? 60 : 700);
        char name[64];

        snprintf(name, sizeof(name), "random, ALLOT_SEED=%llu", (unsigned long long)seed);
        make(buffers, n, alignment, &random);
        memcpy(again, buffers, n * sizeof(*buffers));
        plan(buffers, n, name, seed, &lower, &bytes);
        ck_assert_int_eq(plan_check(buffers, n, bytes), 0);
        ck_assert_uint_le(bytes, plan_greedy(again, n, GREEDY_LOWEST));
        for (size_t i = 0; i < n; i++)
            ck_assert_uint_eq(buffers[i].offset % alignment, 0);

        /* The same lives give the same plan, whatever the offsets were. */
        for (size_t i = 0; i < n; i++) {
            again[i] = buffers[i];
            again[i].offset = 99;
        }
        ck_assert_int_eq(plan_fast(again, n, NULL, &bytes_again), 0);
        ck_assert_uint_eq(bytes, bytes_again);
        ck_assert_mem_eq(buffers, again, n * sizeof(*buffers));
    }
}
END_TEST

START_TEST(only_the_order_of_moments_counts) {
    cleanup(freep) struct plan_buffer *buffers = calloc(500, sizeof(*buffers));
    cleanup(freep) struct plan_buffer *stretched = calloc(500, sizeof(*stretched));

    ck_assert_ptr_nonnull(buffers);
    ck_assert_ptr_nonnull(stretched);
    for (size_t s = 0; s < n_plan_shapes; s++) {
        uint64_t random = 4, bytes, bytes_stretched;

        plan_shapes[s].make(buffers, 500, &random);
        for (size_t i = 0; i < 500; i++)
            stretched[i] = (struct plan_buffer){ 1000 + buffers[i].start * 17,
                                                 1000 + buffers[i].end * 17, buffers[i].bytes, 0 };
        ck_assert_int_eq(plan_fast(buffers, 500, NULL, &bytes), 0);
        ck_assert_int_eq(plan_fast(stretched, 500, NULL, &bytes_stretched), 0);
        ck_assert_uint_eq(bytes, bytes_stretched);
        for (size_t i = 0; i < 500; i++)
            ck_assert_uint_eq(buffers[i].offset, stretched[i].offset);
    }
}
END_TEST

START_TEST(the_judge_sees_every_mistake) {
    struct plan_buffer buffers[] = { { 0, 10, 100, 0 }, { 5, 15, 50, 100 }, { 10, 12, 100, 0 } };

    ck_assert_ptr_null(plan_mistake(buffers, 3, 150));
    ck_assert_ptr_nonnull(plan_mistake(buffers, 3, 149));
    buffers[1].offset = 99;
    ck_assert_ptr_nonnull(plan_mistake(buffers, 3, 150));
    buffers[1].offset = 100;
    buffers[2].offset = 1;
    ck_assert_ptr_nonnull(plan_mistake(buffers, 3, 150));
    buffers[2].end = 10;
    ck_assert_ptr_nonnull(plan_mistake(buffers, 3, 150));
    buffers[2].offset = 0;
    ck_assert_ptr_null(plan_mistake(buffers, 3, 150));
}
END_TEST

SUITE_TIMEOUT("plan-shapes", 400, a_hundred_stay_within_their_limits,
              a_thousand_stay_within_their_limits, ten_thousand_stay_within_their_limits,
              graphs_need_at_most_a_tenth_more_than_the_bound, greedy_plans_are_never_better,
              random_plans_hold_and_keep_the_alignment, only_the_order_of_moments_counts,
              the_judge_sees_every_mistake)
