/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a step for one to eight threads: it is no more than ops need that run as soon as
 * they are ready, and what that costs in time is little. The graphs are those of ./run bench graph.
 */
#include <stdlib.h>

#include "libclient/allot/train.h"
#include "libclient/place/simulate.h"
#include "tests/support/libclient/exec/plan/step_plan.h"
#include "tests/support/suite.h"

enum { THREADS_MAX = 8 };

static const struct named {
    const char *name;
    void (*build)(struct shape_of_row *);
} named[] = {
    { "branches", shape_branches },
    { "mlp", shape_mlp },
    { "transformer", shape_transformer },
    { "layered", shape_layered },
};

/* ---- No more than first ready, first run --------------------------------------------------------
 */

START_TEST(a_plan_needs_no_more_than_the_ready_order) {
    for (size_t i = 0; i < ELEMENTSOF(named); i++) {
        struct shape_of_row shape = { 0 };

        named[i].build(&shape);
        for (uint32_t n = 1; n <= THREADS_MAX; n++)
            for (uint32_t n_intra = 1; n_intra <= n; n_intra += MAX(n - 1, 1u)) {
                struct step_plan plan;
                struct program *program;

                step_plan_begin(&plan, n, n_intra);
                program = step_plan_program(&shape, &plan, n, n_intra);
                ck_assert_msg(program->ready_order_bytes > 0 &&
                                  program->slab_bytes[0] <= program->ready_order_bytes,
                              "%s, %u threads, %u in an op: %llu bytes, ready order %llu",
                              named[i].name, n, n_intra, (unsigned long long)program->slab_bytes[0],
                              (unsigned long long)program->ready_order_bytes);
                program_free(program);
                step_plan_end(&plan);
            }
        shape_done(&shape);
    }
}
END_TEST

/* Branches of products that each keep all threads busy. */
static void shape_products(struct shape_of_row *ret) {
    enum { N = 6, SIDE = 1024 };
    const int64_t dims[] = { SIDE, SIDE };
    struct allot_output x, ends[N];

    ck_assert_int_eq(allot_graph_new(&ret->graph, NULL), 0);
    ret->feeds[0] = x = allot_placeholder(ret->graph, NULL, ALLOT_F32, 2, dims);
    ck_assert_int_eq(allot_tensor_new(&ret->feed_tensors[0], ALLOT_F32, 2, dims, NULL), 0);
    ret->n_feeds = 1;
    for (uint32_t i = 0; i < N; i++)
        ends[i] = allot_mean(allot_matmul(allot_matmul(x, x), x));
    ret->fetch = allot_add_n(ends, N);
}

START_TEST(ops_that_use_all_threads_are_planned_one_after_the_other) {
    struct shape_of_row shape = { 0 };
    uint64_t bytes[2];

    shape_products(&shape);
    for (uint32_t n_intra = 1; n_intra <= 2; n_intra++) {
        struct step_plan plan;
        struct program *program;

        step_plan_begin(&plan, 2, n_intra);
        program = step_plan_program(&shape, &plan, 2, n_intra);
        bytes[n_intra - 1] = program->slab_bytes[0];
        program_free(program);
        step_plan_end(&plan);
    }
    ck_assert_uint_ge(bytes[0], 16 << 20); /* two products of two branches */
    ck_assert_uint_lt(bytes[1], 9 << 20);  /* of one */
    shape_done(&shape);
}
END_TEST

/* ---- What it costs in time ----------------------------------------------------------------------
 */

/* How long the items would take, played by their costs, with the edges of `program`: of those that
 * may begin, the first as they stand does. */
static uint64_t played(const struct program *program, uint32_t n_threads, uint32_t n_intra) {
    uint32_t n = program->n_items, n_edges = 0, at = 0;
    uint32_t *first = calloc(3 * (size_t)n + 3, sizeof(*first)), *none = first + n + 1,
             *queue = none + n + 1;
    uint32_t *first_before = calloc(n + 2, sizeof(*first_before)), *before, *after;
    uint32_t *width = calloc(2 * (size_t)n + 2, sizeof(*width)), *as_they_stand = width + n + 1;
    uint64_t *nsec = calloc(3 * (size_t)n + 3, sizeof(*nsec));
    struct simulate_result times = { calloc(n + 1, sizeof(uint32_t)), nsec + n + 1,
                                     nsec + 2 * n + 2 };
    struct order_problem order = { .n_jobs = n };
    struct simulate_problem problem = { &order, nsec, queue, width, &n_threads, 1 };

    for (uint32_t i = 0; i < n; i++)
        n_edges += program->items[i].n_successors;
    before = calloc(n_edges + 1, sizeof(*before));
    after = calloc(n_edges + 1, sizeof(*after));
    for (uint32_t i = 0; i < n; i++) {
        const struct program_item *item = &program->items[i];
        uint32_t wide = item->pooled ? (uint32_t)MIN(item->cost / 1000000, (uint64_t)n_intra) : 1;

        nsec[i] = item->cost + 100;
        width[i] = MIN(MAX(wide, 1u), n_threads);
        as_they_stand[i] = i;
        first_before[i + 1] = first_before[i] + item->n_predecessors;
        first[i] = at;
        for (uint32_t s = 0; s < item->n_successors; s++)
            after[at++] = program->successors[item->first_successor + s];
    }
    first[n] = at;
    ck_assert_uint_eq(first_before[n], n_edges);
    order.before = (struct order_lists){ first_before, before }; /* only counted */
    order.after = (struct order_lists){ first, after };
    order.makes = order.uses = (struct order_lists){ none, none };
    order.n_users = none; /* there are no buffers */
    ck_assert_int_eq(simulate_within(&problem, as_they_stand, UINT64_MAX, &times), 0);
    free(first);
    free(first_before);
    free(before);
    free(after);
    free(width);
    free(nsec);
    free(times.sequence);
    return times.nsec;
}

/* A program for one thread has no edges but those of the graph. */
START_TEST(sharing_memory_costs_little_time) {
    for (size_t i = 0; i < ELEMENTSOF(named); i++) {
        struct shape_of_row shape = { 0 };

        named[i].build(&shape);
        for (uint32_t n = 2; n <= THREADS_MAX; n++)
            for (uint32_t n_intra = 1; n_intra <= n; n_intra += n - 1) {
                struct step_plan plan;
                struct program *free_one, *planned;
                uint64_t nsec, free_nsec;

                step_plan_begin(&plan, n, n_intra);
                free_one = step_plan_program(&shape, &plan, 1, n_intra);
                planned = step_plan_program(&shape, &plan, n, n_intra);
                free_nsec = played(free_one, n, n_intra);
                nsec = played(planned, n, n_intra);
                ck_assert_msg(nsec <= free_nsec * 105 / 100,
                              "%s, %u threads, %u in an op: %llu us, without edges %llu us",
                              named[i].name, n, n_intra, (unsigned long long)nsec / 1000,
                              (unsigned long long)free_nsec / 1000);
                program_free(free_one);
                program_free(planned);
                step_plan_end(&plan);
            }
        shape_done(&shape);
    }
}
END_TEST

SUITE_TIMEOUT("exec-memory", 300, a_plan_needs_no_more_than_the_ready_order,
              ops_that_use_all_threads_are_planned_one_after_the_other,
              sharing_memory_costs_little_time)
