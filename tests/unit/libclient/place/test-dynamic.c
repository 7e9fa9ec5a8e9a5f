/* SPDX-License-Identifier: Apache-2.0 */
/* The dynamic placer: valid, never worse than a heuristic, near the best there is, the same again.
 */
#include <check.h>
#include <errno.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/dynamic.h"
#include "libclient/place/heuristic.h"
#include "tests/support/libclient/place/task_fixture.h"
#include "tests/support/suite.h"

static const struct dynamic_options brief = { .seed = 1, .budget = 200000, .n_threads = 1 };

static void check_valid(const struct task_graph *g, const struct assignment *plan) {
    struct assignment again;
    enum timeline_fault fault;
    uint8_t *seen = calloc(g->n_tasks + 1, 1);

    for (uint32_t d = 0; d < g->n_devices; d++)
        for (uint32_t i = plan->first[d]; i < plan->first[d + 1]; i++) {
            ck_assert_uint_eq(plan->device[plan->sequence[i]], d);
            ck_assert_uint_eq(seen[plan->sequence[i]]++, 0);
        }
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        ck_assert_uint_eq(seen[v], 1);
        ck_assert(g->allowed[g->unit[v]] >> plan->device[v] & 1);
        ck_assert_uint_eq(plan->device[v],
                          plan->device[g->members.items[g->members.first[g->unit[v]]]]);
    }
    ck_assert_int_eq(assignment_init(&again, g), 0);
    assignment_copy(g, &again, plan);
    ck_assert_int_eq(timeline_run(g, &again, NULL, &fault), 0);
    ck_assert_int_eq(fault, TIMELINE_OK);
    ck_assert_double_eq(again.makespan_usec, plan->makespan_usec);
    for (uint32_t d = 0; d < g->n_devices; d++)
        ck_assert_uint_eq(again.peak_bytes[d], plan->peak_bytes[d]);
    assignment_done(&again);
    free(seen);
}

/* The best that any heuristic finds as it is; INFINITY: none. */
static double best_heuristic(const struct task_graph *g) {
    static const struct {
        heuristic_fn *plan;
        unsigned n_variants;
    } ways[] = { { heft_plan, 2 },  { greedy_whitepaper, 1 }, { greedy_etf, 1 },
                 { fill_plan, 12 }, { fill_round_robin, 1 },  { stages_plan, 4 },
                 { fill_single, 1 } };
    struct heuristic heuristic;
    struct assignment plan;
    double best = INFINITY;

    for (uint32_t u = 0; u < g->n_units; u++)
        if (!g->allowed[u])
            return INFINITY;
    ck_assert_int_eq(heuristic_init(&heuristic, g), 0);
    ck_assert_int_eq(assignment_init(&plan, g), 0);
    for (unsigned i = 0; i < ELEMENTSOF(ways); i++)
        for (unsigned k = 0; k < ways[i].n_variants; k++)
            for (unsigned s = 0; s < HEURISTIC_STRICT; s++) {
                enum timeline_fault fault;

                if (ways[i].plan(&heuristic, k, s, &plan) < 0)
                    continue;
                ck_assert_int_eq(timeline_run(g, &plan, NULL, &fault), 0);
                if (fault != TIMELINE_OK)
                    continue;
                best = fmin(best, plan.makespan_usec);
                break; /* stricter ones are not asked for */
            }
    assignment_done(&plan);
    heuristic_done(&heuristic);
    return best;
}

START_TEST(a_plan_is_valid_and_never_worse_than_a_heuristic) {
    uint64_t random = 3;
    unsigned n_found = 0;

    for (unsigned round = 0; round < 60; round++) {
        struct task_fixture_shape shape = {
            .n_tasks = 1 + task_fixture_below(&random, 120),
            .n_devices = 1 + task_fixture_below(&random, 5),
            .is_capped = round % 3 == 1,
            .is_round = round % 2,
            .has_groups = round % 4 == 2,
            .lacks_links = round % 5 == 4,
        };
        struct dynamic_result result;
        struct task_graph graph;
        int r;

        task_fixture_random(&graph, &random, &shape);
        r = dynamic_plan(&graph, &brief, &result);
        if (r == 0) {
            check_valid(&graph, &result.plan);
            ck_assert_double_le(result.plan.makespan_usec, best_heuristic(&graph));
            ck_assert_double_le(result.plan.makespan_usec, result.begun_usec);
            ck_assert_ptr_nonnull(result.way);
            n_found++;
        } else {
            ck_assert_int_eq(r, -ENOSPC);
            ck_assert_int_gt(strlen(result.text), 10);
            ck_assert_double_eq(best_heuristic(&graph), INFINITY);
        }
        assignment_done(&result.plan);
        task_graph_done(&graph);
    }
    ck_assert_uint_ge(n_found, 45);
}
END_TEST

START_TEST(threads_do_not_change_the_plan_and_a_seed_repeats_it) {
    uint64_t random = 5;
    struct task_fixture_shape shape = { .n_tasks = 150, .n_devices = 3, .is_capped = true };
    struct task_graph graph;
    struct dynamic_result one, two, other;
    struct dynamic_options options = brief;

    task_fixture_random(&graph, &random, &shape);
    ck_assert_int_eq(dynamic_plan(&graph, &options, &one), 0);
    options.n_threads = 2;
    ck_assert_int_eq(dynamic_plan(&graph, &options, &two), 0);
    options.seed = 99;
    ck_assert_int_eq(dynamic_plan(&graph, &options, &other), 0);
    ck_assert_mem_eq(one.plan.device, two.plan.device, 150 * sizeof(uint32_t));
    ck_assert_mem_eq(one.plan.sequence, two.plan.sequence, 150 * sizeof(uint32_t));
    ck_assert(memcmp(one.plan.device, other.plan.device, 150 * sizeof(uint32_t)) != 0 ||
              memcmp(one.plan.sequence, other.plan.sequence, 150 * sizeof(uint32_t)) != 0);
    assignment_done(&one.plan);
    assignment_done(&two.plan);
    assignment_done(&other.plan);
    task_graph_done(&graph);
}
END_TEST

static bool stop_soon(void *data) {
    return ++*(unsigned *)data > 3;
}

START_TEST(a_stop_ends_with_the_best_so_far) {
    uint64_t random = 9;
    struct task_fixture_shape shape = { .n_tasks = 300, .n_devices = 4 };
    unsigned asked = 0;
    struct dynamic_options options = {
        .budget = UINT64_MAX / 2, .is_stopped = stop_soon, .data = &asked, .n_threads = 1
    };
    struct dynamic_result result;
    struct task_graph graph;

    task_fixture_random(&graph, &random, &shape);
    ck_assert_int_eq(dynamic_plan(&graph, &options, &result), 0);
    check_valid(&graph, &result.plan);
    ck_assert(result.was_stopped);
    assignment_done(&result.plan);
    task_graph_done(&graph);
}
END_TEST

/* What is missing is said in words. */
START_TEST(a_graph_that_cannot_fit_is_refused_in_words) {
    static const struct {
        uint64_t memory, resident;
        bool has_kernel;
        const char *text;
    } rows[] = {
        { 100, 10, false, "no device has a kernel" },
        { 100, 101, true, "keep 101 bytes on one device; the largest that they may use has 100" },
        { 100, 90, true, "together: 340 are missing" },
    };

    for (unsigned i = 0; i < ELEMENTSOF(rows); i++) {
        uint64_t random = 1;
        struct task_fixture_shape shape = { .n_tasks = 6, .n_devices = 2, .is_round = true };
        struct dynamic_result result;
        struct task_graph graph;

        task_fixture_random(&graph, &random, &shape);
        for (uint32_t v = 0; v < 6; v++) {
            graph.resident_bytes[v] = rows[i].resident;
            graph.unit_resident[v] = rows[i].resident;
            if (!rows[i].has_kernel)
                graph.allowed[v] = 0;
        }
        graph.memory_bytes[0] = graph.memory_bytes[1] = rows[i].memory;
        graph.is_capped = true;
        ck_assert_int_eq(dynamic_plan(&graph, &brief, &result), -ENOSPC);
        ck_assert_msg(strstr(result.text, rows[i].text), "\"%s\" lacks \"%s\"", result.text,
                      rows[i].text);
        task_graph_done(&graph);
    }
}
END_TEST

/* The best of all devices and all orders that start tasks as early as they can. */
static double best_of_all(const struct task_graph *g, struct assignment *plan) {
    uint32_t n = g->n_tasks, n_ways = 1, order[8], count[8] = { 0 };
    double best = INFINITY;

    for (uint32_t i = 0; i < n; i++)
        n_ways *= g->n_devices;
    for (uint32_t way = 0; way < n_ways; way++) {
        for (uint32_t v = 0, rest = way; v < n; v++, rest /= g->n_devices)
            plan->device[v] = rest % g->n_devices;
        for (uint32_t i = 0; i < n; i++) {
            order[i] = i;
            count[i] = 0;
        }
        for (uint32_t i = 0; i < n;) { /* Heap's algorithm: every permutation */
            enum timeline_fault fault;

            if (i == 0 || count[i] < i) {
                if (i > 0) {
                    uint32_t k = i % 2 ? count[i] : 0, kept = order[k];

                    order[k] = order[i];
                    order[i] = kept;
                    count[i]++;
                }
                assignment_order(g, plan, order);
                timeline_run(g, plan, NULL, &fault);
                if (fault == TIMELINE_OK)
                    best = fmin(best, plan->makespan_usec);
                i = 1;
            } else
                count[i++] = 0;
        }
    }
    return best;
}

START_TEST(small_graphs_get_the_best_plan_there_is) {
    uint64_t random = 17;
    double sum = 0;
    enum { GRAPHS = 12 };

    for (unsigned i = 0; i < GRAPHS; i++) {
        struct task_fixture_shape shape = { .n_tasks = 5, .n_devices = 3 };
        struct dynamic_result result;
        struct task_graph graph;
        struct assignment plan;
        double best;

        task_fixture_random(&graph, &random, &shape);
        ck_assert_int_eq(assignment_init(&plan, &graph), 0);
        ck_assert_int_eq(dynamic_plan(&graph, &brief, &result), 0);
        best = best_of_all(&graph, &plan);
        ck_assert_double_ge(result.plan.makespan_usec, best);
        sum += best > 0 ? result.plan.makespan_usec / best : 1;
        assignment_done(&plan);
        assignment_done(&result.plan);
        task_graph_done(&graph);
    }
    ck_assert_double_le(sum / GRAPHS, 1.03);
}
END_TEST

/* Every placement and every order of up to ten tasks, but for those that cannot be better. */
struct exhaustion {
    const struct task_graph *graph;
    struct assignment *plan;
    double best;
    double tail[10]; /* by task: the least time from its end to the end of the step */
    uint32_t order[10], n;
    bool is_done[10];
    double end[10], busy[3];
};

/* What the links do to each other is left out: a step is never shorter. */
static double earliest_end(const struct exhaustion *x, uint32_t v) {
    const struct task_graph *g = x->graph;
    uint32_t here = x->plan->device[v];
    double start = x->busy[here];

    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
        uint32_t u = g->inputs.items[i], there = x->plan->device[u];

        start =
            fmax(start, x->end[u] + (there == here ? 0 : task_graph_transfer(g, u, there, here)));
    }
    for (uint32_t i = g->before.first[v]; i < g->before.first[v + 1]; i++)
        start = fmax(start, x->end[g->before.items[i]]);
    return start + task_graph_cost(g, v, here);
}

static bool is_ready(const struct exhaustion *x, uint32_t v) {
    const struct task_graph *g = x->graph;
    bool is_ready = !x->is_done[v];

    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++)
        is_ready &= x->is_done[g->inputs.items[i]];
    for (uint32_t i = g->before.first[v]; i < g->before.first[v + 1]; i++)
        is_ready &= x->is_done[g->before.items[i]];
    return is_ready;
}

static void exhaust_orders(struct exhaustion *x) {
    enum timeline_fault fault;

    if (x->n == x->graph->n_tasks) {
        assignment_order(x->graph, x->plan, x->order);
        ck_assert_int_eq(timeline_run(x->graph, x->plan, NULL, &fault), 0);
        if (fault == TIMELINE_OK)
            x->best = fmin(x->best, x->plan->makespan_usec);
        return;
    }
    for (uint32_t v = 0; v < x->graph->n_tasks; v++) {
        uint32_t here = x->plan->device[v];
        double busy = x->busy[here], end;

        if (!is_ready(x, v))
            continue;
        end = earliest_end(x, v);
        if (end + x->tail[v] >= x->best)
            return; /* v must run at some time, and later is no better */
        x->order[x->n++] = v;
        x->is_done[v] = true;
        x->end[v] = x->busy[here] = end;
        exhaust_orders(x);
        x->busy[here] = busy;
        x->is_done[v] = false;
        x->n--;
    }
}

/* The best of all plans, or `best` if none is better. */
static double exhaust(const struct task_graph *g, struct assignment *plan, double best) {
    struct exhaustion x = { .graph = g, .plan = plan, .best = best };
    uint32_t n_ways = 1;

    for (uint32_t i = g->n_tasks; i-- > 0;) {
        uint32_t v = g->topological[i];
        const struct order_lists *ways[] = { &g->consumers, &g->unlocks };

        n_ways *= g->n_devices;
        for (unsigned k = 0; k < 2; k++)
            for (uint32_t j = ways[k]->first[v]; j < ways[k]->first[v + 1]; j++) {
                uint32_t w = ways[k]->items[j];
                double least = INFINITY;

                for (uint32_t d = 0; d < g->n_devices; d++)
                    least = fmin(least, task_graph_cost(g, w, d));
                x.tail[v] = fmax(x.tail[v], least + x.tail[w]);
            }
    }
    for (uint32_t way = 0; way < n_ways; way++) {
        double load[3] = { 0 };
        bool is_allowed = true;

        for (uint32_t v = 0, rest = way; v < g->n_tasks; v++, rest /= g->n_devices) {
            plan->device[v] = rest % g->n_devices;
            is_allowed &= g->allowed[g->unit[v]] >> plan->device[v] & 1;
            load[plan->device[v]] += task_graph_cost(g, v, plan->device[v]);
        }
        for (uint32_t d = 0; d < g->n_devices; d++)
            is_allowed &= load[d] < x.best;
        if (is_allowed)
            exhaust_orders(&x);
    }
    return x.best;
}

START_TEST(graphs_of_ten_tasks_are_near_the_best_of_all_plans) {
    uint64_t random = 29;
    double sum = 0;
    enum { GRAPHS = 24 };

    for (unsigned i = 0; i < GRAPHS; i++) {
        struct task_fixture_shape shape = {
            .n_tasks = 6 + i % 5, .n_devices = 3, .is_capped = i % 3 == 1, .is_round = i % 2
        };
        struct dynamic_result result;
        struct task_graph graph;
        struct assignment plan;
        int r;

        task_fixture_random(&graph, &random, &shape);
        ck_assert_int_eq(assignment_init(&plan, &graph), 0);
        r = dynamic_plan(&graph, &brief, &result);
        if (r == 0 && result.plan.makespan_usec > 0)
            sum += result.plan.makespan_usec /
                   exhaust(&graph, &plan, result.plan.makespan_usec * (1 + 1e-9));
        else {
            ck_assert(r == 0 || r == -ENOSPC);
            ck_assert(r == 0 || isinf(exhaust(&graph, &plan, INFINITY)));
            sum += 1;
        }
        assignment_done(&plan);
        assignment_done(&result.plan);
        task_graph_done(&graph);
    }
    ck_assert_double_le(sum / GRAPHS, 1.03);
}
END_TEST

static double a_little_more(void *data) {
    double *used = data, now = *used;

    *used += 0.002;
    return now;
}

START_TEST(a_limit_of_time_ends_the_search_and_not_the_heuristics) {
    uint64_t random = 31;

    for (unsigned round = 0; round < 2; round++) {
        struct task_fixture_shape shape = { .n_tasks = 150, .n_devices = 4 };
        double used = round; /* 1: nothing is left for the search */
        struct dynamic_options options = {
            .budget = UINT64_MAX / 2, .used = a_little_more, .data = &used, .n_threads = 1
        };
        struct dynamic_result result;
        struct task_graph graph;

        task_fixture_random(&graph, &random, &shape);
        ck_assert_int_eq(dynamic_plan(&graph, &options, &result), 0);
        check_valid(&graph, &result.plan);
        ck_assert_double_le(result.plan.makespan_usec, best_heuristic(&graph));
        ck_assert_double_ge(used, 1);
        ck_assert_double_le(used, 1.1);
        assignment_done(&result.plan);
        task_graph_done(&graph);
    }
}
END_TEST

/* What the heap holds, by the largest of the moments at which the planner asks. */
static bool note_heap(void *data) {
    struct mallinfo2 now = mallinfo2();
    size_t *most = data;

    *most = MAX(*most, now.uordblks + now.hblkhd);
    return false;
}

START_TEST(a_large_graph_takes_less_than_200_bytes_for_each_task_and_device) {
    uint64_t random = 37;
    struct task_fixture_shape shape = { .n_tasks = 24000, .n_devices = 4 };
    struct task_graph graph;
    struct dynamic_result result;
    size_t before = 0, most = 0;
    struct dynamic_options options = {
        .budget = 2000000, .is_stopped = note_heap, .data = &most, .n_threads = 2
    };

    note_heap(&before);
    task_fixture_random(&graph, &random, &shape);
    ck_assert_int_eq(dynamic_plan(&graph, &options, &result), 0);
    if (most > before) /* a sanitizer's heap says nothing */
        ck_assert_uint_le(most - before, UINT64_C(200) * shape.n_tasks * shape.n_devices);
    assignment_done(&result.plan);
    task_graph_done(&graph);
}
END_TEST

SUITE_TIMEOUT("dynamic", 120, a_plan_is_valid_and_never_worse_than_a_heuristic,
              threads_do_not_change_the_plan_and_a_seed_repeats_it,
              a_stop_ends_with_the_best_so_far, a_graph_that_cannot_fit_is_refused_in_words,
              small_graphs_get_the_best_plan_there_is,
              graphs_of_ten_tasks_are_near_the_best_of_all_plans,
              a_limit_of_time_ends_the_search_and_not_the_heuristics,
              a_large_graph_takes_less_than_200_bytes_for_each_task_and_device)
