/* SPDX-License-Identifier: Apache-2.0 */
/* In which sequence to do things that need memory: on small graphs against all sequences there are,
 * on large ones against the rules. */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/libclient/place/order_fixture.h"
#include "tests/support/suite.h"

/* The least that any sequence needs, by trying all. */
static uint64_t least(const struct order_problem *problem, uint32_t *sequence, uint32_t n_done,
                      uint32_t done, uint64_t best) {
    uint64_t bytes;

    if (n_done == problem->n_jobs) {
        ck_assert_int_eq(order_profile(problem, sequence, &bytes, NULL), 0);
        return bytes < best ? bytes : best;
    }
    for (uint32_t job = 0; job < problem->n_jobs; job++) {
        bool is_ready = !(done >> job & 1);

        for (uint32_t i = problem->before.first[job]; i < problem->before.first[job + 1]; i++)
            is_ready = is_ready && done >> problem->before.items[i] & 1;
        if (!is_ready)
            continue;
        sequence[n_done] = job;
        best = least(problem, sequence, n_done + 1, done | 1u << job, best);
    }
    return best;
}

static void check_sequence(const struct order_problem *problem, const uint32_t *sequence) {
    uint32_t *at = calloc(problem->n_jobs + 1, sizeof(*at));

    ck_assert_ptr_nonnull(at);
    for (uint32_t s = 0; s < problem->n_jobs; s++) {
        ck_assert_uint_lt(sequence[s], problem->n_jobs);
        ck_assert_uint_eq(at[sequence[s]], 0);
        at[sequence[s]] = s + 1;
    }
    for (uint32_t job = 0; job < problem->n_jobs; job++)
        for (uint32_t i = problem->before.first[job]; i < problem->before.first[job + 1]; i++)
            ck_assert_uint_lt(at[problem->before.items[i]], at[job]);
    free(at);
}

START_TEST(small_graphs_come_close_to_the_least) {
    static struct order_fixture world;
    uint64_t random = 7;
    uint64_t found_sum = 0, least_sum = 0;
    int n_exact = 0;

    for (int round = 0; round < 200; round++) {
        uint32_t sequence[8], scratch[8];
        uint64_t found, best;

        order_fixture_random(&world, &random, 2 + order_fixture_below(&random, 6));
        ck_assert_int_eq(order_find(&world.problem, sequence, &found), 0);
        check_sequence(&world.problem, sequence);
        best = least(&world.problem, scratch, 0, 0, UINT64_MAX);
        ck_assert_uint_ge(found, best);
        n_exact += found == best;
        found_sum += found;
        least_sum += best;
    }
    ck_assert_int_gt(n_exact, 180);
    ck_assert_uint_lt(found_sum * 100, least_sum * 101);
}
END_TEST

START_TEST(never_more_than_first_ready_first) {
    static struct order_fixture world;
    static uint32_t sequence[ORDER_FIXTURE_JOBS_MAX], ready[ORDER_FIXTURE_JOBS_MAX];
    uint64_t random = 11;

    for (int round = 0; round < 20; round++) {
        uint64_t found, plain;

        order_fixture_random(&world, &random, 300);
        ck_assert_int_eq(order_find(&world.problem, sequence, &found), 0);
        ck_assert_int_eq(order_ready(&world.problem, ready), 0);
        ck_assert_int_eq(order_profile(&world.problem, ready, &plain, NULL), 0);
        check_sequence(&world.problem, sequence);
        check_sequence(&world.problem, ready);
        ck_assert_uint_le(found, plain);
    }
}
END_TEST

/* The guide's case: many branches that each start large and end small. First ready first has all of
 * the large ones at once. */
START_TEST(hungry_branches_one_after_the_other) {
    static struct order_fixture world;
    static uint32_t sequence[ORDER_FIXTURE_JOBS_MAX];
    uint64_t found, plain;
    enum { BRANCHES = 50 };

    memset(world.n_inputs, 0, sizeof(world.n_inputs));
    for (uint32_t b = 0; b < BRANCHES; b++)
        world.bytes[b] = 1000;
    for (uint32_t b = 0; b < BRANCHES; b++) {
        world.bytes[BRANCHES + b] = 1;
        world.n_inputs[BRANCHES + b] = 1;
        world.inputs[BRANCHES + b][0] = b;
    }
    order_fixture_settle(&world, 2 * BRANCHES);
    ck_assert_int_eq(order_find(&world.problem, sequence, &found), 0);
    ck_assert_int_eq(order_ready(&world.problem, sequence), 0);
    ck_assert_int_eq(order_profile(&world.problem, sequence, &plain, NULL), 0);
    ck_assert_uint_eq(found, 1001);
    ck_assert_uint_eq(plain, BRANCHES * 1000 + 1);
}
END_TEST

START_TEST(nothing_is_a_graph_too) {
    static struct order_fixture world;
    uint32_t sequence[1];
    uint64_t bytes;

    order_fixture_settle(&world, 0);
    ck_assert_int_eq(order_find(&world.problem, sequence, &bytes), 0);
    ck_assert_uint_eq(bytes, 0);
}
END_TEST

START_TEST(an_order_is_called_off) {
    static struct order_fixture world;
    static uint32_t sequence[ORDER_FIXTURE_JOBS_MAX];
    atomic_bool halt = true;
    uint64_t random = 3, bytes;

    order_fixture_random(&world, &random, 500);
    world.problem.halt = &halt;
    ck_assert_int_eq(order_find(&world.problem, sequence, &bytes), -ECANCELED);
    halt = false;
    ck_assert_int_eq(order_find(&world.problem, sequence, &bytes), 0);
    check_sequence(&world.problem, sequence);
    halt = true;
    ck_assert_int_eq(order_profile(&world.problem, sequence, &bytes, NULL), -ECANCELED);
}
END_TEST

SUITE("order", small_graphs_come_close_to_the_least, never_more_than_first_ready_first,
      hungry_branches_one_after_the_other, nothing_is_a_graph_too, an_order_is_called_off)
