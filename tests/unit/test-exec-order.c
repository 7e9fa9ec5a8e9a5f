/* SPDX-License-Identifier: Apache-2.0 */
/* In which sequence to do things that need memory: on small graphs against all sequences there are,
 * on large ones against the rules. */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "libclient/exec/order.h"
#include "tests/support/suite.h"

enum { JOBS_MAX = 4096, INPUTS = 3 };

/* Jobs that each make one buffer and use those of up to INPUTS earlier jobs. */
struct world {
    struct order_problem problem;
    uint32_t inputs[JOBS_MAX][INPUTS], n_inputs[JOBS_MAX];
    uint32_t first_before[JOBS_MAX + 1], before[JOBS_MAX * INPUTS];
    uint32_t first_after[JOBS_MAX + 1], after[JOBS_MAX * INPUTS];
    uint32_t first_makes[JOBS_MAX + 1], makes[JOBS_MAX];
    uint64_t bytes[JOBS_MAX];
    uint32_t n_users[JOBS_MAX];
};

static uint32_t below(uint64_t *random, uint32_t n) {
    return (uint32_t)(random_next(random) % n);
}

static void world_settle(struct world *world, uint32_t n) {
    uint32_t n_before = 0, n_after = 0;

    memset(world->n_users, 0, sizeof(world->n_users));
    for (uint32_t job = 0; job < n; job++) {
        world->first_before[job] = n_before;
        world->first_makes[job] = world->makes[job] = job;
        for (uint32_t i = 0; i < world->n_inputs[job]; i++) {
            world->before[n_before++] = world->inputs[job][i];
            world->n_users[world->inputs[job][i]]++;
        }
    }
    for (uint32_t job = 0; job < n; job++) {
        world->first_after[job] = n_after;
        for (uint32_t later = job + 1; later < n; later++)
            for (uint32_t i = 0; i < world->n_inputs[later]; i++)
                if (world->inputs[later][i] == job)
                    world->after[n_after++] = later;
    }
    world->first_before[n] = n_before;
    world->first_after[n] = n_after;
    world->first_makes[n] = n;
    world->problem = (struct order_problem){
        .n_jobs = n,
        .n_buffers = n,
        .before = { world->first_before, world->before },
        .after = { world->first_after, world->after },
        .makes = { world->first_makes, world->makes },
        .uses = { world->first_before, world->before },
        .bytes = world->bytes,
        .n_users = world->n_users,
    };
}

static void world_random(struct world *world, uint64_t *random, uint32_t n) {
    for (uint32_t job = 0; job < n; job++) {
        world->bytes[job] = 1 + below(random, 100);
        world->n_inputs[job] = 0;
        for (uint32_t i = 0; i < INPUTS && job > 0; i++) {
            uint32_t input = below(random, job);
            bool is_new = below(random, 2) == 0;

            for (uint32_t k = 0; k < world->n_inputs[job]; k++)
                is_new = is_new && world->inputs[job][k] != input;
            if (is_new)
                world->inputs[job][world->n_inputs[job]++] = input;
        }
    }
    world_settle(world, n);
}

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
    static struct world world;
    uint64_t random = 7;
    uint64_t found_sum = 0, least_sum = 0;
    int n_exact = 0;

    for (int round = 0; round < 200; round++) {
        uint32_t sequence[8], scratch[8];
        uint64_t found, best;

        world_random(&world, &random, 2 + below(&random, 6));
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
    static struct world world;
    static uint32_t sequence[JOBS_MAX], ready[JOBS_MAX];
    uint64_t random = 11;

    for (int round = 0; round < 20; round++) {
        uint64_t found, plain;

        world_random(&world, &random, 300);
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
    static struct world world;
    static uint32_t sequence[JOBS_MAX];
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
    world_settle(&world, 2 * BRANCHES);
    ck_assert_int_eq(order_find(&world.problem, sequence, &found), 0);
    ck_assert_int_eq(order_ready(&world.problem, sequence), 0);
    ck_assert_int_eq(order_profile(&world.problem, sequence, &plain, NULL), 0);
    ck_assert_uint_eq(found, 1001);
    ck_assert_uint_eq(plain, BRANCHES * 1000 + 1);
}
END_TEST

START_TEST(nothing_is_a_graph_too) {
    static struct world world;
    uint32_t sequence[1];
    uint64_t bytes;

    world_settle(&world, 0);
    ck_assert_int_eq(order_find(&world.problem, sequence, &bytes), 0);
    ck_assert_uint_eq(bytes, 0);
}
END_TEST

SUITE("exec-order", small_graphs_come_close_to_the_least, never_more_than_first_ready_first,
      hungry_branches_one_after_the_other, nothing_is_a_graph_too)
