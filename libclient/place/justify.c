/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Justify: better orders for given devices.
 *
 * Each idle device takes its ready task of highest priority, so the result depends on the choice of
 * priorities. The time that the step still needs after a task is a good one. Forward-backward
 * improvement makes it better: pack the finished step once more from its end to its beginning, run
 * the order found that way forwards again, and repeat until that gains nothing.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/heuristic.h"

static const struct dispatch_record *run(const struct heuristic *h, const double *priority,
                                         struct assignment *plan) {
    const struct task_graph *g = h->graph;
    struct dispatch_input tried = h->slots;

    tried.device = plan->device;
    heuristic_sort(h, priority, tried.task_at);
    for (uint32_t i = 0; i < g->n_tasks; i++)
        tried.slot[tried.task_at[i]] = i;
    for (uint32_t d = 0; d < g->n_devices; d++) {
        tried.load_usec[d] = 0;
        tried.resident_bytes[d] = 0;
    }
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        tried.load_usec[plan->device[v]] += task_graph_cost(g, v, plan->device[v]);
        tried.resident_bytes[plan->device[v]] += g->resident_bytes[v];
    }
    return dispatch_record(h->dispatch, &tried, -1);
}

static bool is_linked(const struct task_graph *g, const struct assignment *plan) {
    for (uint32_t v = 0; v < g->n_tasks; v++)
        for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
            uint32_t from = plan->device[g->inputs.items[i]];

            if (from != plan->device[v] &&
                !(task_graph_link(g, from, plan->device[v])->bytes_per_usec > 0))
                return false;
        }
    return true;
}

int heuristic_dispatch(const struct heuristic *h, const double *priority, struct assignment *plan) {
    const struct task_graph *g = h->graph;

    if (!is_linked(g, plan))
        return -ENOENT;
    assignment_order(g, plan, run(h, priority, plan)->sequence);
    return 0;
}

static double delay(const struct task_graph *g, const struct assignment *plan, uint32_t u,
                    uint32_t w) {
    uint32_t from = plan->device[u], to = plan->device[w];

    return from == to ? 0 : task_graph_transfer(g, u, from, to);
}

/* The longest way from each task's start to the end, with the devices as they are. */
static void rank_all(const struct task_graph *g, const struct assignment *plan, double *ret) {
    for (uint32_t i = g->n_tasks; i-- > 0;) {
        uint32_t v = g->topological[i];
        double most = 0;

        for (uint32_t j = g->consumers.first[v]; j < g->consumers.first[v + 1]; j++)
            most =
                fmax(most, ret[g->consumers.items[j]] + delay(g, plan, v, g->consumers.items[j]));
        for (uint32_t j = g->unlocks.first[v]; j < g->unlocks.first[v + 1]; j++)
            most = fmax(most, ret[g->unlocks.items[j]]);
        ret[v] = most + task_graph_cost(g, v, plan->device[v]);
    }
}

/* Pack the step from its end: tasks in the reverse order of their ends. */
static void pack_back(const struct heuristic *h, const struct assignment *plan,
                      const struct dispatch_record *record, double *ret) {
    const struct task_graph *g = h->graph;
    double busy[TASK_GRAPH_DEVICES_MAX] = { 0 };

    for (uint32_t v = 0; v < g->n_tasks; v++)
        ret[v] = -record->end[v];
    heuristic_sort(h, ret, h->scratch); /* backwards, so that consumers come before producers */
    for (uint32_t i = g->n_tasks; i-- > 0;) {
        uint32_t v = h->scratch[i], d = plan->device[v];
        double at = busy[d];

        for (uint32_t j = g->consumers.first[v]; j < g->consumers.first[v + 1]; j++)
            at = fmax(at, ret[g->consumers.items[j]] + delay(g, plan, v, g->consumers.items[j]));
        for (uint32_t j = g->unlocks.first[v]; j < g->unlocks.first[v + 1]; j++)
            at = fmax(at, ret[g->unlocks.items[j]]);
        ret[v] = busy[d] = at + task_graph_cost(g, v, d);
    }
}

int heuristic_justify(const struct heuristic *h, struct assignment *plan, unsigned n_rounds) {
    const struct task_graph *g = h->graph;
    size_t n = (size_t)g->n_tasks + 1;
    cleanup(freep) double *priority = malloc(n * sizeof(*priority));
    cleanup(freep) double *start = malloc(n * sizeof(*start));
    cleanup(freep) uint32_t *best = malloc(n * sizeof(*best));
    enum timeline_fault fault;
    cleanup(freep) double *rank = malloc(n * sizeof(*rank));
    double makespan, overflow, highest = 0;
    bool is_better = false;
    int r;

    if (!priority || !start || !best || !rank)
        return -ENOMEM;
    r = timeline_run(g, plan, start, &fault);
    if (r < 0 || (fault != TIMELINE_OK && fault != TIMELINE_MEMORY))
        return r;
    makespan = plan->makespan_usec;
    overflow = fault == TIMELINE_MEMORY ? INFINITY : 0;
    rank_all(g, plan, rank);
    for (uint32_t v = 0; v < g->n_tasks; v++)
        highest = fmax(highest, rank[v]);
    for (unsigned way = 0; way < 5; way++) {
        double last = INFINITY;

        if (way == 0)
            for (uint32_t v = 0; v < g->n_tasks; v++)
                priority[v] = -start[v];
        else if (way == 1)
            memcpy(priority, rank, g->n_tasks * sizeof(*rank));
        else if (way > 2) /* tasks that little depends on wait for gaps */
            for (uint32_t v = 0; v < g->n_tasks; v++)
                priority[v] = rank[v] < (way == 3 ? 0.03 : 0.1) * highest
                                  ? rank[v] - 2.0 * g->n_tasks - highest
                                  : -(double)h->depth[v];
        else
            for (uint32_t v = 0; v < g->n_tasks; v++)
                priority[v] = -(double)h->depth[v];
        for (unsigned round = 0; round < n_rounds; round++) {
            const struct dispatch_record *record = run(h, priority, plan);

            if (record->overflow < overflow ||
                (record->overflow == overflow && record->makespan < makespan)) {
                makespan = record->makespan;
                overflow = record->overflow;
                is_better = true;
                memcpy(best, record->sequence, g->n_tasks * sizeof(*best));
            }
            if (record->makespan >= last && round > 2)
                break;
            last = record->makespan;
            pack_back(h, plan, record, priority);
        }
    }
    if (!is_better)
        return 0;
    assignment_order(g, plan, best);
    return timeline_run(g, plan, NULL, &fault);
}
