/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/place/task_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

uint32_t task_fixture_below(uint64_t *random, uint32_t n) {
    return (uint32_t)((random_next(random) >> 32) * n >> 32);
}

static double some(uint64_t *random, uint32_t most, bool is_round) {
    double x = task_fixture_below(random, most);

    return is_round ? x : x + task_fixture_below(random, 1000) / 1000.0;
}

static void make_machine(struct task_graph *g, uint64_t *random,
                         const struct task_fixture_shape *shape) {
    uint32_t d = g->n_devices;

    g->memory_bytes = malloc(d * sizeof(*g->memory_bytes));
    g->links = calloc((size_t)d * d, sizeof(*g->links));
    for (uint32_t i = 0; i < d; i++)
        g->memory_bytes[i] = UINT64_MAX;
    for (uint32_t i = 0; i < d; i++)
        for (uint32_t j = 0; j < d; j++)
            if (i != j && (!shape->lacks_links || i == 0 || j == 0))
                g->links[i * d + j] =
                    (struct task_link){ some(random, 5, shape->is_round),
                                        shape->is_round ? 10 : 7.3, g->n_channels++ };
}

static void make_edges(struct task_graph *g, uint64_t *random) {
    uint32_t n = g->n_tasks, n_in = 0, n_before = 0;
    uint32_t *first = calloc(n + 1, sizeof(*first)), *items = malloc((n * 3 + 1) * sizeof(*items));
    uint32_t *first_before = calloc(n + 1, sizeof(*first)),
             *before = malloc((n + 1) * sizeof(*before));

    for (uint32_t v = 0; v < n; v++) {
        for (uint32_t k = 0; v > 0 && k < task_fixture_below(random, 4); k++) {
            uint32_t back = 1 + task_fixture_below(random, v < 12 ? v : 12), u = v - back;
            bool is_there = false;

            for (uint32_t i = first[v]; i < n_in; i++)
                is_there |= items[i] == u;
            if (!is_there)
                items[n_in++] = u;
        }
        if (v > 0 && task_fixture_below(random, 8) == 0)
            before[n_before++] = task_fixture_below(random, v);
        first[v + 1] = n_in;
        first_before[v + 1] = n_before;
    }
    g->inputs = (struct order_lists){ first, items };
    g->before = (struct order_lists){ first_before, before };
}

void task_fixture_random(struct task_graph *g, uint64_t *random,
                         const struct task_fixture_shape *shape) {
    uint32_t n = shape->n_tasks, d = shape->n_devices;
    uint64_t total = 0;

    *g = (struct task_graph){ .n_tasks = n, .n_devices = d };
    make_machine(g, random, shape);
    make_edges(g, random);
    g->cost_usec = malloc((size_t)n * d * sizeof(*g->cost_usec) + 1);
    g->output_bytes = malloc((n + 1) * sizeof(*g->output_bytes));
    g->resident_bytes = malloc((n + 1) * sizeof(*g->resident_bytes));
    g->group = malloc((n + 1) * sizeof(*g->group));
    g->pin = malloc((n + 1) * sizeof(*g->pin));
    for (uint32_t v = 0; v < n; v++) {
        g->output_bytes[v] = task_fixture_below(random, 100);
        g->resident_bytes[v] = task_fixture_below(random, 3) ? 0 : task_fixture_below(random, 50);
        g->group[v] = g->pin[v] = TASK_GRAPH_NONE;
        total += g->output_bytes[v] / 2 + g->resident_bytes[v];
        for (uint32_t i = 0; i < d; i++)
            g->cost_usec[(size_t)v * d + i] = some(random, 20, shape->is_round);
        if (shape->has_groups) {
            if (task_fixture_below(random, 6) == 0)
                g->group[v] = task_fixture_below(random, 3);
            else if (task_fixture_below(random, 10) == 0)
                g->pin[v] = task_fixture_below(random, d);
            else if (task_fixture_below(random, 10) == 0)
                g->cost_usec[(size_t)v * d + task_fixture_below(random, d)] = INFINITY;
        }
    }
    for (uint32_t i = 0; shape->is_capped && i < d; i++)
        g->memory_bytes[i] = total * 3 / 2 / d + 400;
    if (task_graph_complete(g) < 0)
        abort();
}

void task_fixture_assign(const struct task_graph *g, uint64_t *random, struct assignment *ret) {
    for (uint32_t u = 0; u < g->n_units; u++) {
        uint32_t device;

        do
            device = task_fixture_below(random, g->n_devices);
        while (!(g->allowed[u] >> device & 1));
        for (uint32_t i = g->members.first[u]; i < g->members.first[u + 1]; i++)
            ret->device[g->members.items[i]] = device;
    }
    assignment_order(g, ret, g->topological);
}

/* One transfer, as the second opinion keeps it. */
struct sent {
    uint32_t task, to;
    double queued, start, end; /* start < 0: not yet */
};

double task_fixture_makespan(const struct task_graph *g, const struct assignment *plan,
                             double *start, double *end) {
    uint32_t n = g->n_tasks, d = g->n_devices, n_sent = 0, at[TASK_GRAPH_DEVICES_MAX];
    struct sent *sent = malloc(((size_t)n * d + 1) * sizeof(*sent));
    double now = 0, last = 0;
    bool is_stuck = false;

    memcpy(at, plan->first, d * sizeof(*at));
    for (uint32_t v = 0; v < n; v++)
        start[v] = end[v] = -1;
    for (;;) {
        double next = INFINITY;
        bool has_changed = true;

        while (has_changed) { /* tasks: what ends now lets others start now */
            has_changed = false;
            for (uint32_t k = 0; k < d; k++) {
                uint32_t v;
                bool can = at[k] < plan->first[k + 1];

                if (!can)
                    continue;
                if (at[k] > plan->first[k])
                    can = end[plan->sequence[at[k] - 1]] <= now;
                v = plan->sequence[at[k]];
                for (uint32_t i = g->before.first[v]; i < g->before.first[v + 1]; i++) {
                    uint32_t u = g->before.items[i];

                    can &= start[u] >= 0 && end[u] <= now;
                }
                for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
                    uint32_t u = g->inputs.items[i];
                    bool is_here = plan->device[u] == k && start[u] >= 0 && end[u] <= now;

                    for (uint32_t j = 0; j < n_sent; j++)
                        is_here |= sent[j].task == u && sent[j].to == k && sent[j].start >= 0 &&
                                   sent[j].end <= now;
                    can &= is_here;
                }
                if (can) {
                    start[v] = now;
                    end[v] = now + task_graph_cost(g, v, k);
                    at[k]++;
                    has_changed = true;
                }
            }
        }
        for (uint32_t v = 0; v < n; v++) /* by number: the order of a queue */
            if (start[v] >= 0 && end[v] == now)
                for (uint32_t k = 0; k < d; k++) {
                    bool is_wanted = false, is_known = k == plan->device[v];

                    for (uint32_t i = g->consumers.first[v]; i < g->consumers.first[v + 1]; i++)
                        is_wanted |= plan->device[g->consumers.items[i]] == k;
                    for (uint32_t j = 0; j < n_sent; j++)
                        is_known |= sent[j].task == v && sent[j].to == k;
                    if (is_wanted && !is_known)
                        sent[n_sent++] = (struct sent){ v, k, now, -1, -1 };
                }
        for (uint32_t j = 0; j < n_sent; j++) { /* transfers are queued in their order */
            uint32_t from = plan->device[sent[j].task];
            bool is_free = sent[j].start < 0;

            for (uint32_t i = 0; i < n_sent; i++)
                if (i != j && plan->device[sent[i].task] == from && sent[i].to == sent[j].to)
                    is_free &= sent[i].start < 0 ? i > j : sent[i].end <= now;
            if (is_free) {
                sent[j].start = now;
                sent[j].end = now + task_graph_transfer(g, sent[j].task, from, sent[j].to);
                has_changed |= sent[j].end == now;
            }
        }
        if (has_changed)
            continue;
        for (uint32_t v = 0; v < n; v++)
            if (start[v] >= 0 && end[v] > now)
                next = fmin(next, end[v]);
        for (uint32_t j = 0; j < n_sent; j++)
            if (sent[j].start >= 0 && sent[j].end > now)
                next = fmin(next, sent[j].end);
        if (isinf(next))
            break;
        now = next;
    }
    for (uint32_t v = 0; v < n; v++) {
        is_stuck |= start[v] < 0;
        last = fmax(last, end[v]);
    }
    free(sent);
    return is_stuck ? NAN : last;
}
