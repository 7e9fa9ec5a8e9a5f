/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/heuristic.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/dispatch.h"

static void find_means(struct heuristic *h) {
    const struct task_graph *g = h->graph;

    h->shortest_usec = INFINITY;
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        double sum = 0;
        uint64_t allowed = g->allowed[g->unit[v]];

        for (uint32_t d = 0; d < g->n_devices; d++) {
            double cost = task_graph_cost(g, v, d);

            if (allowed >> d & 1)
                sum += cost;
            if (isfinite(cost) && cost > 0)
                h->shortest_usec = fmin(h->shortest_usec, cost);
        }
        h->mean_usec[v] = allowed ? sum / __builtin_popcountll(allowed) : 0;
    }
    if (!isfinite(h->shortest_usec))
        h->shortest_usec = 0;
}

static void find_ranks(struct heuristic *h) {
    const struct task_graph *g = h->graph;
    uint32_t n_links = 0;

    for (uint32_t i = 0; i < g->n_devices * g->n_devices; i++)
        if (g->links[i].bytes_per_usec > 0) {
            h->mean_latency_usec += g->links[i].latency_usec;
            h->mean_usec_per_byte += 1 / g->links[i].bytes_per_usec;
            n_links++;
        }
    if (n_links > 0) {
        h->mean_latency_usec /= n_links;
        h->mean_usec_per_byte /= n_links;
    }
    for (uint32_t i = g->n_tasks; i-- > 0;) {
        uint32_t v = g->topological[i];
        double most = 0;
        double copy = h->mean_latency_usec + (double)g->output_bytes[v] * h->mean_usec_per_byte;

        for (uint32_t j = g->consumers.first[v]; j < g->consumers.first[v + 1]; j++)
            most = fmax(most, h->rank[g->consumers.items[j]] + copy);
        for (uint32_t j = g->unlocks.first[v]; j < g->unlocks.first[v + 1]; j++)
            most = fmax(most, h->rank[g->unlocks.items[j]]);
        h->rank[v] = h->mean_usec[v] + most;
    }
}

static int by_key(const void *a, const void *b) {
    const struct heuristic_key *x = a, *y = b;

    if (x->priority != y->priority)
        return x->priority > y->priority ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

void heuristic_sort(const struct heuristic *h, const double *priority, uint32_t *ret_tasks) {
    const struct task_graph *g = h->graph;

    for (uint32_t v = 0; v < g->n_tasks; v++)
        h->keys[v] = (struct heuristic_key){ priority[v], g->position[v], v };
    qsort(h->keys, g->n_tasks, sizeof(*h->keys), by_key);
    for (uint32_t i = 0; i < g->n_tasks; i++)
        ret_tasks[i] = h->keys[i].task;
}

static void sort_devices(struct heuristic *h) {
    const struct task_graph *g = h->graph;
    double cost[TASK_GRAPH_DEVICES_MAX] = { 0 };
    uint64_t used = 0;

    for (uint32_t u = 0; u < g->n_units; u++)
        used |= g->allowed[u];
    for (uint32_t d = 0; d < g->n_devices; d++)
        for (uint32_t v = 0; v < g->n_tasks; v++)
            if (isfinite(task_graph_cost(g, v, d)))
                cost[d] += task_graph_cost(g, v, d);
    for (uint32_t d = 0; d < g->n_devices; d++) {
        uint32_t i = h->n_devices;

        if (!(used >> d & 1))
            continue;
        for (; i > 0 && cost[h->devices[i - 1]] > cost[d]; i--)
            h->devices[i] = h->devices[i - 1];
        h->devices[i] = d;
        h->n_devices++;
    }
}

/* The task that was unlocked last runs next. */
static int walk_depth_first(struct heuristic *h) {
    const struct task_graph *g = h->graph;
    cleanup(freep) uint32_t *missing = malloc(((size_t)g->n_tasks + 1) * sizeof(*missing));
    cleanup(freep) uint32_t *stack = malloc(((size_t)g->n_tasks + 1) * sizeof(*stack));
    uint32_t n_stack = 0, made = 0;

    if (!missing || !stack)
        return -ENOMEM;
    for (uint32_t i = g->n_tasks; i-- > 0;) {
        uint32_t v = g->topological[i];

        missing[v] = g->inputs.first[v + 1] - g->inputs.first[v] + g->before.first[v + 1] -
                     g->before.first[v];
        if (missing[v] == 0)
            stack[n_stack++] = v;
    }
    while (n_stack > 0) {
        const struct order_lists *ways[] = { &g->consumers, &g->unlocks };
        uint32_t v = stack[--n_stack];

        h->depth[v] = made;
        h->depth_first[made++] = v;
        for (unsigned k = 0; k < 2; k++)
            for (uint32_t j = ways[k]->first[v]; j < ways[k]->first[v + 1]; j++)
                if (--missing[ways[k]->items[j]] == 0)
                    stack[n_stack++] = ways[k]->items[j];
    }
    return 0;
}

int heuristic_init(struct heuristic *h, const struct task_graph *graph) {
    size_t n = (size_t)graph->n_tasks + 1;
    int r = -ENOMEM;

    *h = (struct heuristic){
        .graph = graph,
        .mean_usec = malloc(n * sizeof(*h->mean_usec)),
        .rank = malloc(n * sizeof(*h->rank)),
        .by_rank = malloc(n * sizeof(*h->by_rank)),
        .depth_first = malloc(n * sizeof(*h->depth_first)),
        .depth = malloc(n * sizeof(*h->depth)),
        .keys = malloc(n * sizeof(*h->keys)),
        .scratch = malloc(n * sizeof(*h->scratch)),
        .slots = {
            .slot = malloc(n * sizeof(uint32_t)),
            .task_at = malloc(n * sizeof(uint32_t)),
            .n_slots = graph->n_tasks,
            .load_usec = malloc(graph->n_devices * sizeof(double)),
            .resident_bytes = malloc(graph->n_devices * sizeof(uint64_t)),
        },
    };
    if (!h->mean_usec || !h->rank || !h->by_rank || !h->depth_first || !h->depth || !h->keys ||
        !h->scratch || !h->slots.slot || !h->slots.task_at || !h->slots.load_usec ||
        !h->slots.resident_bytes)
        goto fail;
    r = dispatch_new(&h->dispatch, graph);
    if (r < 0)
        goto fail;
    find_means(h);
    find_ranks(h);
    heuristic_sort(h, h->rank, h->by_rank);
    sort_devices(h);
    r = walk_depth_first(h);
fail:
    if (r < 0)
        heuristic_done(h);
    return r;
}

void heuristic_done(struct heuristic *h) {
    free(h->mean_usec);
    free(h->rank);
    free(h->by_rank);
    free(h->depth_first);
    free(h->depth);
    free(h->keys);
    free(h->scratch);
    free(h->slots.slot);
    free(h->slots.task_at);
    free(h->slots.load_usec);
    free(h->slots.resident_bytes);
    dispatch_free(h->dispatch);
    *h = (struct heuristic){ 0 };
}
