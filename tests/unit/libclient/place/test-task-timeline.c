/* SPDX-License-Identifier: Apache-2.0 */
/* What an assignment costs: by hand, against a slow second opinion, and dispatched in part. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/dispatch.h"
#include "libclient/place/timeline.h"
#include "tests/support/libclient/place/task_fixture.h"
#include "tests/support/suite.h"

enum { ROUNDS = 300 };

static struct task_fixture_shape shape_of(uint64_t *random, uint32_t most) {
    return (struct task_fixture_shape){
        .n_tasks = 1 + task_fixture_below(random, most),
        .n_devices = 1 + task_fixture_below(random, 5),
        .is_capped = task_fixture_below(random, 2),
        .is_round = task_fixture_below(random, 2),
    };
}

START_TEST(a_timeline_agrees_with_a_second_opinion) {
    uint64_t random = 7;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct task_fixture_shape shape = shape_of(&random, 40);
        struct task_graph graph;
        struct assignment plan;
        enum timeline_fault fault;
        double start[64], other_start[64], other_end[64], other;

        task_fixture_random(&graph, &random, &shape);
        ck_assert_int_eq(assignment_init(&plan, &graph), 0);
        task_fixture_assign(&graph, &random, &plan);
        ck_assert_int_eq(timeline_run(&graph, &plan, start, &fault), 0);
        ck_assert(fault == TIMELINE_OK || fault == TIMELINE_MEMORY);
        other = task_fixture_makespan(&graph, &plan, other_start, other_end);
        ck_assert_msg(plan.makespan_usec == other, "round %u: %f, not %f", round,
                      plan.makespan_usec, other);
        for (uint32_t v = 0; v < graph.n_tasks; v++)
            ck_assert_msg(start[v] == other_start[v], "round %u, task %u: %f, not %f", round, v,
                          start[v], other_start[v]);
        assignment_done(&plan);
        task_graph_done(&graph);
    }
}
END_TEST

/* What people are shown of a step is what it costs. */
static void check_record(const struct task_graph *graph, const struct assignment *plan,
                         const double *start) {
    struct timeline_record record;

    ck_assert_int_eq(timeline_record(graph, plan, &record), 0);
    ck_assert_int_eq(memcmp(record.start_usec, start, graph->n_tasks * sizeof(*start)), 0);
    ck_assert_uint_eq(record.n_transfers, assignment_copies(graph, plan));
    for (size_t i = 0; i < record.n_transfers; i++) {
        const struct timeline_transfer *transfer = &record.transfers[i];
        uint32_t from = plan->device[transfer->task];

        ck_assert_double_ge(transfer->start_usec,
                            start[transfer->task] + task_graph_cost(graph, transfer->task, from));
        ck_assert_double_eq_tol(transfer->end_usec - transfer->start_usec,
                                task_graph_transfer(graph, transfer->task, from, transfer->to),
                                1e-9 * (1 + transfer->end_usec));
    }
    ck_assert_uint_eq(record.first_level[0], 0);
    for (uint32_t d = 0; d < graph->n_devices; d++) {
        uint64_t peak = 0;

        ck_assert_uint_lt(record.first_level[d], record.first_level[d + 1]);
        for (size_t i = record.first_level[d]; i < record.first_level[d + 1]; i++) {
            ck_assert(i == record.first_level[d] ||
                      record.levels[i].usec >= record.levels[i - 1].usec);
            peak = MAX(peak, record.levels[i].bytes);
        }
        ck_assert_uint_eq(peak, plan->peak_bytes[d]);
    }
    timeline_record_done(&record);
}

START_TEST(a_record_agrees_with_the_timeline) {
    uint64_t random = 11;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct task_fixture_shape shape = shape_of(&random, 40);
        struct task_graph graph;
        struct assignment plan;
        enum timeline_fault fault;
        double start[64];

        task_fixture_random(&graph, &random, &shape);
        ck_assert_int_eq(assignment_init(&plan, &graph), 0);
        task_fixture_assign(&graph, &random, &plan);
        ck_assert_int_eq(timeline_run(&graph, &plan, start, &fault), 0);
        check_record(&graph, &plan, start);
        assignment_done(&plan);
        task_graph_done(&graph);
    }
}
END_TEST

/* Two tasks on two devices: 0 makes 100 bytes in 5 µs, 1 reads them. */
static void make_pair(struct task_graph *graph) {
    static const uint32_t first[] = { 0, 0, 1 }, items[] = { 0 }, none[] = { 0, 0, 0 };

    *graph = (struct task_graph){ .n_tasks = 2, .n_devices = 2, .n_channels = 2 };
    graph->memory_bytes = calloc(2, sizeof(uint64_t));
    graph->memory_bytes[0] = graph->memory_bytes[1] = UINT64_MAX;
    graph->links = calloc(4, sizeof(*graph->links));
    graph->links[1] = (struct task_link){ 3, 50, 0 };
    graph->links[2] = (struct task_link){ 3, 50, 1 };
    graph->cost_usec = calloc(4, sizeof(double));
    for (unsigned i = 0; i < 4; i++)
        graph->cost_usec[i] = 5;
    graph->output_bytes = calloc(3, sizeof(uint64_t));
    graph->output_bytes[0] = 100;
    graph->resident_bytes = calloc(3, sizeof(uint64_t));
    graph->resident_bytes[1] = 7;
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

START_TEST(a_transfer_takes_latency_and_bytes_and_both_ends_hold_the_tensor) {
    struct task_graph graph;
    struct assignment plan;
    enum timeline_fault fault;

    make_pair(&graph);
    ck_assert_int_eq(assignment_init(&plan, &graph), 0);
    plan.device[1] = 1;
    assignment_order(&graph, &plan, graph.topological);
    ck_assert_int_eq(timeline_run(&graph, &plan, NULL, &fault), 0);
    ck_assert_int_eq(fault, TIMELINE_OK);
    ck_assert_double_eq(plan.makespan_usec, 5 + 3 + 2 + 5);
    ck_assert_uint_eq(plan.peak_bytes[0], 100);
    ck_assert_uint_eq(plan.peak_bytes[1], 107);
    graph.memory_bytes[1] = 106;
    ck_assert_int_eq(timeline_run(&graph, &plan, NULL, &fault), 0);
    ck_assert_int_eq(fault, TIMELINE_MEMORY);
    assignment_done(&plan);
    task_graph_done(&graph);
}
END_TEST

START_TEST(orders_that_wait_for_each_other_and_missing_links_are_faults) {
    struct task_graph graph;
    struct assignment plan;
    enum timeline_fault fault;
    const uint32_t backwards[] = { 1, 0 };

    make_pair(&graph);
    ck_assert_int_eq(assignment_init(&plan, &graph), 0);
    assignment_order(&graph, &plan, backwards);
    ck_assert_int_eq(timeline_run(&graph, &plan, NULL, &fault), 0);
    ck_assert_int_eq(fault, TIMELINE_DEADLOCK);
    graph.links[1].bytes_per_usec = 0;
    plan.device[1] = 1;
    assignment_order(&graph, &plan, graph.topological);
    ck_assert_int_eq(timeline_run(&graph, &plan, NULL, &fault), 0);
    ck_assert_int_eq(fault, TIMELINE_NO_LINK);
    graph.cost_usec[0] = INFINITY;
    ck_assert_int_eq(timeline_run(&graph, &plan, NULL, &fault), 0);
    ck_assert_int_eq(fault, TIMELINE_NO_KERNEL);
    assignment_done(&plan);
    task_graph_done(&graph);
}
END_TEST

/* An input of dispatch with room to move tasks: slots 4 apart, by chance. */
struct world {
    struct task_graph graph;
    struct assignment plan;
    struct dispatch_input input;
    struct dispatch *dispatch;
};

static void world_make(struct world *w, uint64_t *random, uint32_t most) {
    struct task_fixture_shape shape = shape_of(random, most);
    uint32_t n;

    task_fixture_random(&w->graph, random, &shape);
    n = w->graph.n_tasks;
    /* Half of the machines have links that share media. */
    w->graph.has_media = task_fixture_below(random, 2) == 0;
    for (uint32_t i = 0; w->graph.has_media && i < w->graph.n_devices * w->graph.n_devices; i++)
        w->graph.links[i].media = task_fixture_below(random, 8);
    ck_assert_int_eq(assignment_init(&w->plan, &w->graph), 0);
    task_fixture_assign(&w->graph, random, &w->plan);
    w->input = (struct dispatch_input){
        .device = w->plan.device,
        .slot = malloc(n * sizeof(uint32_t)),
        .task_at = malloc(4 * n * sizeof(uint32_t)),
        .n_slots = 4 * n,
        .load_usec = calloc(w->graph.n_devices, sizeof(double)),
        .resident_bytes = calloc(w->graph.n_devices, sizeof(uint64_t)),
    };
    memset(w->input.task_at, 0xff, 4 * n * sizeof(uint32_t));
    for (uint32_t v = 0; v < n; v++) {
        uint32_t slot;

        do
            slot = task_fixture_below(random, 4 * n);
        while (w->input.task_at[slot] != TASK_GRAPH_NONE);
        w->input.slot[v] = slot;
        w->input.task_at[slot] = v;
        w->input.load_usec[w->plan.device[v]] += task_graph_cost(&w->graph, v, w->plan.device[v]);
        w->input.resident_bytes[w->plan.device[v]] += w->graph.resident_bytes[v];
    }
    ck_assert_int_eq(dispatch_new(&w->dispatch, &w->graph), 0);
}

static void world_done(struct world *w) {
    dispatch_free(w->dispatch);
    free(w->input.slot);
    free(w->input.task_at);
    free(w->input.load_usec);
    free(w->input.resident_bytes);
    assignment_done(&w->plan);
    task_graph_done(&w->graph);
}

START_TEST(a_dispatched_order_has_the_timeline_that_was_simulated) {
    uint64_t random = 11;

    for (unsigned round = 0; round < ROUNDS; round++) {
        const struct dispatch_record *record;
        enum timeline_fault fault;
        struct world w;

        world_make(&w, &random, 150);
        record = dispatch_record(w.dispatch, &w.input, -1);
        assignment_order(&w.graph, &w.plan, record->sequence);
        ck_assert_int_eq(timeline_run(&w.graph, &w.plan, NULL, &fault), 0);
        ck_assert(fault == TIMELINE_OK || fault == TIMELINE_MEMORY);
        ck_assert_double_eq(w.plan.makespan_usec, record->makespan);
        for (uint32_t d = 0; w.graph.is_capped && d < w.graph.n_devices; d++)
            ck_assert_uint_ge(record->peak_bytes[d], w.plan.peak_bytes[d]);
        if (fault == TIMELINE_MEMORY)
            ck_assert_double_gt(record->overflow, 0);
        world_done(&w);
    }
}
END_TEST

/* The first moment at which another device for the task shows. */
static double shows(const struct world *w, const struct dispatch_record *record, uint32_t v) {
    const double *at = w->graph.is_capped ? record->start : record->end;
    double since = record->ready[v];

    for (uint32_t i = w->graph.inputs.first[v]; i < w->graph.inputs.first[v + 1]; i++)
        since = fmin(since, at[w->graph.inputs.items[i]]);
    return since;
}

static void move(struct world *w, uint32_t v, uint32_t device) {
    uint32_t old = w->plan.device[v];

    w->input.load_usec[old] -= task_graph_cost(&w->graph, v, old);
    w->input.load_usec[device] += task_graph_cost(&w->graph, v, device);
    w->input.resident_bytes[old] -= w->graph.resident_bytes[v];
    w->input.resident_bytes[device] += w->graph.resident_bytes[v];
    w->plan.device[v] = device;
}

START_TEST(a_trial_from_a_snapshot_equals_a_whole_run) {
    uint64_t random = 13;

    for (unsigned round = 0; round < ROUNDS / 3; round++) {
        struct dispatch *fresh;
        struct world w;

        world_make(&w, &random, 400);
        ck_assert_int_eq(dispatch_new(&fresh, &w.graph), 0);
        dispatch_record(w.dispatch, &w.input, -1);
        for (unsigned k = 0; k < 20; k++) {
            const struct dispatch_record *record, *whole;
            uint32_t v = task_fixture_below(&random, w.graph.n_tasks), old = w.plan.device[v];
            uint32_t device = task_fixture_below(&random, w.graph.n_devices);
            double makespan = 0, overflow = 0, since;

            record = dispatch_record(w.dispatch, &w.input, INFINITY);
            since = shows(&w, record, v);
            move(&w, v, device);
            ck_assert(dispatch_try(w.dispatch, &w.input, since, INFINITY, &makespan, &overflow));
            whole = dispatch_record(fresh, &w.input, -1);
            ck_assert_double_eq(makespan, whole->makespan);
            ck_assert_double_eq(overflow, whole->overflow);
            ck_assert(!dispatch_try(w.dispatch, &w.input, since, whole->makespan * 0.999 - 1e-6,
                                    &makespan, &overflow));
            if (task_fixture_below(&random, 2)) {
                move(&w, v, old);
                continue;
            }
            record = dispatch_record(w.dispatch, &w.input, since);
            for (uint32_t t = 0; t < w.graph.n_tasks; t++)
                ck_assert(record->start[t] == whole->start[t] && record->end[t] == whole->end[t]);
        }
        dispatch_free(fresh);
        world_done(&w);
    }
}
END_TEST

SUITE_TIMEOUT("task-timeline", 60, a_timeline_agrees_with_a_second_opinion,
              a_record_agrees_with_the_timeline,
              a_transfer_takes_latency_and_bytes_and_both_ends_hold_the_tensor,
              orders_that_wait_for_each_other_and_missing_links_are_faults,
              a_dispatched_order_has_the_timeline_that_was_simulated,
              a_trial_from_a_snapshot_equals_a_whole_run)
