/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/assignment.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/heap.h"

int assignment_init(struct assignment *plan, const struct task_graph *graph) {
    *plan = (struct assignment){
        .device = calloc((size_t)graph->n_tasks + 1, sizeof(*plan->device)),
        .sequence = calloc((size_t)graph->n_tasks + 1, sizeof(*plan->sequence)),
        .first = calloc((size_t)graph->n_devices + 1, sizeof(*plan->first)),
        .peak_bytes = calloc(graph->n_devices, sizeof(*plan->peak_bytes)),
        .makespan_usec = INFINITY,
    };
    if (plan->device && plan->sequence && plan->first && plan->peak_bytes)
        return 0;
    assignment_done(plan);
    return -ENOMEM;
}

void assignment_done(struct assignment *plan) {
    free(plan->device);
    free(plan->sequence);
    free(plan->first);
    free(plan->peak_bytes);
    *plan = (struct assignment){ 0 };
}

void assignment_copy(const struct task_graph *graph, struct assignment *to,
                     const struct assignment *from) {
    memcpy(to->device, from->device, graph->n_tasks * sizeof(*to->device));
    memcpy(to->sequence, from->sequence, graph->n_tasks * sizeof(*to->sequence));
    memcpy(to->first, from->first, (graph->n_devices + 1) * sizeof(*to->first));
    memcpy(to->peak_bytes, from->peak_bytes, graph->n_devices * sizeof(*to->peak_bytes));
    to->makespan_usec = from->makespan_usec;
}

void assignment_order(const struct task_graph *graph, struct assignment *plan,
                      const uint32_t *tasks) {
    uint32_t at[TASK_GRAPH_DEVICES_MAX + 1] = { 0 };

    for (uint32_t v = 0; v < graph->n_tasks; v++)
        at[plan->device[v] + 1]++;
    for (uint32_t d = 0; d < graph->n_devices; d++)
        at[d + 1] += at[d];
    memcpy(plan->first, at, (graph->n_devices + 1) * sizeof(*at));
    for (uint32_t i = 0; i < graph->n_tasks; i++)
        plan->sequence[at[plan->device[tasks[i]]]++] = tasks[i];
}

int assignment_rank(const struct task_graph *graph, const struct assignment *plan,
                    const double *start, uint32_t *ret_rank) {
    size_t n = (size_t)graph->n_tasks + 1;
    cleanup(freep) uint32_t *missing = malloc(n * sizeof(*missing));
    cleanup(freep) uint32_t *next = malloc(n * sizeof(*next));
    cleanup(freep) struct heap_entry *entries = malloc(n * sizeof(*entries));
    struct heap heap = { entries, 0 };
    uint32_t n_ranked = 0;

    if (!missing || !next || !entries)
        return -ENOMEM;
    for (uint32_t v = 0; v < graph->n_tasks; v++) {
        missing[v] = graph->inputs.first[v + 1] - graph->inputs.first[v] +
                     graph->before.first[v + 1] - graph->before.first[v];
        next[v] = TASK_GRAPH_NONE;
    }
    for (uint32_t d = 0; d < graph->n_devices; d++)
        for (uint32_t i = plan->first[d]; i + 1 < plan->first[d + 1]; i++) {
            next[plan->sequence[i]] = plan->sequence[i + 1];
            missing[plan->sequence[i + 1]]++;
        }
    for (uint32_t v = 0; v < graph->n_tasks; v++)
        if (missing[v] == 0)
            heap_push(&heap, (struct heap_entry){ (int64_t)(start[v] * 1e6), v });
    while (heap.n > 0) {
        uint32_t v = heap_pop(&heap).job;
        const struct order_lists *lists[] = { &graph->consumers, &graph->unlocks };

        ret_rank[v] = n_ranked++;
        for (size_t l = 0; l < ELEMENTSOF(lists); l++)
            for (uint32_t i = lists[l]->first[v]; i < lists[l]->first[v + 1]; i++) {
                uint32_t w = lists[l]->items[i];

                if (--missing[w] == 0)
                    heap_push(&heap, (struct heap_entry){ (int64_t)(start[w] * 1e6), w });
            }
        if (next[v] != TASK_GRAPH_NONE && --missing[next[v]] == 0)
            heap_push(&heap, (struct heap_entry){ (int64_t)(start[next[v]] * 1e6), next[v] });
    }
    return 0;
}

uint32_t assignment_copies(const struct task_graph *graph, const struct assignment *plan) {
    uint32_t n = 0;

    for (uint32_t v = 0; v < graph->n_tasks; v++) {
        uint64_t there = 0;

        for (uint32_t i = graph->consumers.first[v]; i < graph->consumers.first[v + 1]; i++)
            there |= UINT64_C(1) << plan->device[graph->consumers.items[i]];
        n += (uint32_t)__builtin_popcountll(there & ~(UINT64_C(1) << plan->device[v]));
    }
    return n;
}
