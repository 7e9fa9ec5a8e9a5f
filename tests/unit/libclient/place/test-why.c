/* SPDX-License-Identifier: Apache-2.0 */
/* Machines and what ops cost on them, ranks of a plan, and why a task is where it is. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/cost_model.h"
#include "libclient/place/why.h"
#include "tests/support/libclient/place/task_fixture.h"
#include "tests/support/suite.h"

static struct machine *machine_new(uint32_t n) {
    struct machine *machine = calloc(1, sizeof(*machine));

    ck_assert_ptr_nonnull(machine);
    machine->n_devices = n;
    for (uint32_t d = 0; d < n; d++) {
        machine->devices[d] = (struct machine_device){ .is_gpu = d > 0,
                                                       .product_per_usec = { 50, 100, 800 },
                                                       .op_per_usec = 100,
                                                       .bytes_per_usec = 1000,
                                                       .launch_usec = 4,
                                                       .memory_bytes = UINT64_MAX };
        for (uint32_t e = 0; e < n; e++)
            if (d != e)
                machine_connect(machine, d, e, 3, 50, d * n + e);
    }
    return machine;
}

START_TEST(an_op_costs_the_longest_of_its_parts_and_a_launch) {
    struct machine *machine = machine_new(2);
    const struct machine_device *device = &machine->devices[1];
    struct cost_work work = { .products = 1000, .format = MACHINE_F32 };

    ck_assert_double_eq(cost_model_usec(device, &work), 10 + 4);
    work.format = MACHINE_F64;
    ck_assert_double_eq(cost_model_usec(device, &work), 20 + 4);
    work.bytes = 50000;
    ck_assert_double_eq(cost_model_usec(device, &work), 50 + 4);
    work.ops = 6000;
    ck_assert_double_eq(cost_model_usec(device, &work), 60 + 4);
    work.is_nothing = true;
    ck_assert_double_eq(cost_model_usec(device, &work), 0);
    ck_assert_int_eq(machine_format_of(DTYPE_BF16), MACHINE_F16);
    ck_assert_int_eq(machine_format_of(DTYPE_I64), MACHINE_F64);
    ck_assert_str_eq(machine_short_name("/job:localhost/replica:0/task:0/device:GPU:1"), "GPU:1");
    free(machine);
}
END_TEST

/* A chain 0 → 1 of 10 µs and 100 bytes each, where task 1 is 5 µs faster on device 1. */
static void make_chain(struct task_graph *graph) {
    static const uint32_t first[] = { 0, 0, 1 }, items[] = { 0 }, none[] = { 0, 0, 0 };
    struct machine *machine = machine_new(2);

    *graph = (struct task_graph){ .n_tasks = 2 };
    ck_assert_int_eq(machine_apply(machine, graph), 0);
    ck_assert_uint_eq(graph->n_channels, 3); /* from 0 to 1 is number 1, from 1 to 0 number 2 */
    free(machine);
    graph->cost_usec = calloc(4, sizeof(double));
    for (unsigned i = 0; i < 4; i++)
        graph->cost_usec[i] = i == 3 ? 5 : 10;
    graph->output_bytes = calloc(3, sizeof(uint64_t));
    graph->output_bytes[0] = 100;
    graph->own_bytes = calloc(3, sizeof(uint64_t));
    graph->resident_bytes = calloc(3, sizeof(uint64_t));
    graph->resident_bytes[0] = 100;
    graph->group = malloc(3 * sizeof(uint32_t));
    graph->pin = malloc(3 * sizeof(uint32_t));
    memset(graph->group, 0xff, 3 * sizeof(uint32_t));
    memset(graph->pin, 0xff, 3 * sizeof(uint32_t));
    graph->inputs = (struct order_lists){ memcpy(malloc(sizeof(first)), first, sizeof(first)),
                                          memcpy(malloc(sizeof(items)), items, sizeof(items)) };
    graph->before = (struct order_lists){ memcpy(malloc(sizeof(none)), none, sizeof(none)),
                                          calloc(1, sizeof(uint32_t)) };
    ck_assert_int_eq(task_graph_complete(graph), 0);
}

/* All on device 0: 20 µs. With task 1 on device 1: 10 + 3 + 2 + 5 = 20 µs and a copy. */
START_TEST(a_reason_says_what_the_next_best_device_would_cost) {
    struct task_graph graph;
    struct assignment plan;
    enum timeline_fault fault;
    uint32_t rank[2];
    double start[2];
    struct why why;

    make_chain(&graph);
    ck_assert_int_eq(assignment_init(&plan, &graph), 0);
    assignment_order(&graph, &plan, graph.topological);
    ck_assert_int_eq(timeline_run(&graph, &plan, start, &fault), 0);
    ck_assert_uint_eq(plan.peak_bytes[0], 100); /* the output lies in what is resident */
    ck_assert_int_eq(assignment_rank(&graph, &plan, start, rank), 0);
    ck_assert(rank[0] == 0 && rank[1] == 1);
    ck_assert_uint_eq(assignment_copies(&graph, &plan), 0);

    ck_assert_int_eq(why_find(&graph, &plan, rank, 1, &why), 0);
    ck_assert_int_eq(why.kind, WHY_EQUAL);
    ck_assert_int_eq(why.more_copies, 1);
    graph.cost_usec[3] = 6;
    ck_assert_int_eq(why_find(&graph, &plan, rank, 1, &why), 0);
    ck_assert_int_eq(why.kind, WHY_SLOWER);
    ck_assert_uint_eq(why.other, 1);
    ck_assert_double_eq(why.longer_usec, 1);
    graph.cost_usec[3] = 2;
    ck_assert_int_eq(why_find(&graph, &plan, rank, 1, &why), 0);
    ck_assert_int_eq(why.kind, WHY_FASTER);
    graph.memory_bytes[1] = 60;
    ck_assert_int_eq(why_find(&graph, &plan, rank, 1, &why), 0);
    ck_assert_int_eq(why.kind, WHY_MEMORY);
    ck_assert_uint_eq(why.lacking_bytes, 40);
    graph.links[1].bytes_per_usec = 0;
    ck_assert_int_eq(why_find(&graph, &plan, rank, 1, &why), 0);
    ck_assert_int_eq(why.kind, WHY_BLOCKED);
    graph.allowed[graph.unit[1]] = 1;
    ck_assert_int_eq(why_find(&graph, &plan, rank, 1, &why), 0);
    ck_assert_int_eq(why.kind, WHY_ONLY);
    assignment_done(&plan);
    task_graph_done(&graph);
}
END_TEST

START_TEST(ranks_keep_needs_and_the_order_of_every_device) {
    uint64_t random = 11;

    for (unsigned round = 0; round < 100; round++) {
        const struct task_fixture_shape shape = { .n_tasks = 40, .n_devices = 3, .is_round = true };
        struct task_graph graph;
        struct assignment plan;
        enum timeline_fault fault;
        uint32_t rank[64], seen = 0;
        double start[64];

        task_fixture_random(&graph, &random, &shape);
        ck_assert_int_eq(assignment_init(&plan, &graph), 0);
        task_fixture_assign(&graph, &random, &plan);
        ck_assert_int_eq(timeline_run(&graph, &plan, start, &fault), 0);
        ck_assert_int_eq(assignment_rank(&graph, &plan, start, rank), 0);
        for (uint32_t v = 0; v < graph.n_tasks; v++) {
            for (uint32_t i = graph.inputs.first[v]; i < graph.inputs.first[v + 1]; i++)
                ck_assert_uint_lt(rank[graph.inputs.items[i]], rank[v]);
            for (uint32_t i = graph.before.first[v]; i < graph.before.first[v + 1]; i++)
                ck_assert_uint_lt(rank[graph.before.items[i]], rank[v]);
            seen += rank[v];
        }
        ck_assert_uint_eq(seen, 39 * 40 / 2);
        for (uint32_t d = 0; d < graph.n_devices; d++)
            for (uint32_t i = plan.first[d]; i + 1 < plan.first[d + 1]; i++)
                ck_assert_uint_lt(rank[plan.sequence[i]], rank[plan.sequence[i + 1]]);
        assignment_done(&plan);
        task_graph_done(&graph);
    }
}
END_TEST

SUITE("why", an_op_costs_the_longest_of_its_parts_and_a_launch,
      a_reason_says_what_the_next_best_device_would_cost,
      ranks_keep_needs_and_the_order_of_every_device)
