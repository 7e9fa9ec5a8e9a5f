/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/task_graph.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The same edges the other way; `n` rows each. */
static int reverse(struct order_lists *ret, const struct order_lists *lists, uint32_t n) {
    uint32_t n_items = lists->first[n];
    uint32_t *first = calloc((size_t)n + 2, sizeof(*first));
    uint32_t *items = malloc(((size_t)n_items + 1) * sizeof(*items));

    if (!first || !items) {
        free(first);
        free(items);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n_items; i++)
        first[lists->items[i] + 2]++;
    for (uint32_t i = 2; i < n + 2; i++)
        first[i] += first[i - 1];
    for (uint32_t v = 0; v < n; v++)
        for (uint32_t i = lists->first[v]; i < lists->first[v + 1]; i++)
            items[first[lists->items[i] + 1]++] = v;
    *ret = (struct order_lists){ first, items };
    return 0;
}

static int sort_topologically(struct task_graph *graph) {
    uint32_t n = graph->n_tasks, made = 0;
    cleanup(freep) uint32_t *missing = malloc(((size_t)n + 1) * sizeof(*missing));
    uint32_t *order = graph->topological = malloc(((size_t)n + 1) * sizeof(*order));

    graph->position = malloc(((size_t)n + 1) * sizeof(*graph->position));
    if (!missing || !order || !graph->position)
        return -ENOMEM;
    for (uint32_t v = 0; v < n; v++) {
        missing[v] = graph->inputs.first[v + 1] - graph->inputs.first[v] +
                     graph->before.first[v + 1] - graph->before.first[v];
        if (missing[v] == 0)
            order[made++] = v;
    }
    for (uint32_t i = 0; i < made; i++) {
        const struct order_lists *ways[] = { &graph->consumers, &graph->unlocks };

        graph->position[order[i]] = i;
        for (unsigned k = 0; k < 2; k++)
            for (uint32_t j = ways[k]->first[order[i]]; j < ways[k]->first[order[i] + 1]; j++)
                if (--missing[ways[k]->items[j]] == 0)
                    order[made++] = ways[k]->items[j];
    }
    return made < n ? -EINVAL : 0;
}

struct keyed {
    uint32_t group, task;
};

static int by_group(const void *a, const void *b) {
    const struct keyed *x = a, *y = b;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    return x->task < y->task ? -1 : x->task > y->task;
}

/* Units are numbered by their first task. */
static int form_units(struct task_graph *graph) {
    uint32_t n = graph->n_tasks, n_keyed = 0;
    cleanup(freep) struct keyed *keyed = malloc(((size_t)n + 1) * sizeof(*keyed));
    cleanup(freep) uint32_t *leader = malloc(((size_t)n + 1) * sizeof(*leader));
    uint32_t *first = calloc((size_t)n + 2, sizeof(*first));
    uint32_t *items = malloc(((size_t)n + 1) * sizeof(*items));

    graph->members = (struct order_lists){ first, items };
    graph->unit = malloc(((size_t)n + 1) * sizeof(*graph->unit));
    graph->allowed = malloc(((size_t)n + 1) * sizeof(*graph->allowed));
    graph->unit_resident = calloc((size_t)n + 1, sizeof(*graph->unit_resident));
    if (!keyed || !leader || !first || !items || !graph->unit || !graph->allowed ||
        !graph->unit_resident)
        return -ENOMEM;
    for (uint32_t v = 0; v < n; v++) {
        leader[v] = v;
        if (graph->group[v] != TASK_GRAPH_NONE)
            keyed[n_keyed++] = (struct keyed){ graph->group[v], v };
    }
    qsort(keyed, n_keyed, sizeof(*keyed), by_group);
    for (uint32_t i = 1; i < n_keyed; i++)
        if (keyed[i].group == keyed[i - 1].group)
            leader[keyed[i].task] = leader[keyed[i - 1].task];
    graph->n_units = 0;
    for (uint32_t v = 0; v < n; v++)
        graph->unit[v] = leader[v] == v ? graph->n_units++ : graph->unit[leader[v]];
    for (uint32_t v = 0; v < n; v++)
        first[graph->unit[v] + 1]++;
    for (uint32_t u = 0; u < graph->n_units; u++)
        first[u + 1] += first[u];
    for (uint32_t v = n; v-- > 0;)
        items[--first[graph->unit[v] + 1]] = v;
    for (uint32_t u = 0; u < graph->n_units; u++) /* undo what filling shifted */
        first[u] = first[u + 1];
    first[graph->n_units] = n;
    for (uint32_t u = 0; u < graph->n_units; u++)
        graph->allowed[u] = UINT64_MAX;
    for (uint32_t v = 0; v < n; v++) {
        uint64_t mask = 0;

        for (uint32_t d = 0; d < graph->n_devices; d++)
            if (isfinite(task_graph_cost(graph, v, d)) &&
                (graph->pin[v] == TASK_GRAPH_NONE || graph->pin[v] == d))
                mask |= UINT64_C(1) << d;
        graph->allowed[graph->unit[v]] &= mask;
        graph->unit_resident[graph->unit[v]] += graph->resident_bytes[v];
    }
    return 0;
}

/* Whether all times and bytes of a step can be added up without losing precision. */
static bool is_in_range(const struct task_graph *graph) {
    double usec = 0, bytes = 0, latency = 0, inverse = 0;

    for (uint32_t i = 0; i < graph->n_devices * graph->n_devices; i++)
        if (graph->links[i].bytes_per_usec > 0) {
            latency = fmax(latency, graph->links[i].latency_usec);
            inverse = fmax(inverse, 1 / graph->links[i].bytes_per_usec);
        }
    for (uint32_t v = 0; v < graph->n_tasks; v++) {
        double most = 0;

        for (uint32_t d = 0; d < graph->n_devices; d++)
            if (isfinite(task_graph_cost(graph, v, d)))
                most = fmax(most, task_graph_cost(graph, v, d));
        usec += most + graph->n_devices * (latency + (double)graph->output_bytes[v] * inverse);
        bytes += (double)graph->output_bytes[v] + (double)graph->own_bytes[v] +
                 (double)graph->resident_bytes[v];
    }
    return usec <= TASK_GRAPH_USEC_MAX && bytes <= TASK_GRAPH_BYTES_MAX;
}

int task_graph_complete(struct task_graph *graph) {
    uint64_t most = 0;
    int r;

    if (graph->n_devices == 0 || graph->n_devices > TASK_GRAPH_DEVICES_MAX)
        return -EINVAL;
    if (!graph->own_bytes)
        graph->own_bytes = graph->output_bytes;
    if (!is_in_range(graph))
        return -ERANGE;
    r = reverse(&graph->consumers, &graph->inputs, graph->n_tasks);
    if (r == 0)
        r = reverse(&graph->unlocks, &graph->before, graph->n_tasks);
    if (r == 0)
        r = sort_topologically(graph);
    if (r == 0)
        r = form_units(graph);
    if (r < 0)
        return r;
    for (uint32_t v = 0; v < graph->n_tasks; v++)
        most += graph->resident_bytes[v] + MAX(graph->output_bytes[v], graph->own_bytes[v]);
    graph->has_media = false;
    for (size_t i = 0; i < (size_t)graph->n_devices * graph->n_devices; i++)
        graph->has_media |= graph->links[i].media != 0;
    graph->is_capped = false;
    for (uint32_t d = 0; d < graph->n_devices; d++)
        graph->is_capped |= graph->memory_bytes[d] < most;
    return 0;
}

static void lists_done(struct order_lists *lists) {
    free((void *)lists->first);
    free((void *)lists->items);
}

void task_graph_done(struct task_graph *graph) {
    lists_done(&graph->inputs);
    lists_done(&graph->before);
    lists_done(&graph->consumers);
    lists_done(&graph->unlocks);
    lists_done(&graph->members);
    free(graph->memory_bytes);
    free(graph->links);
    free(graph->cost_usec);
    if (graph->own_bytes != graph->output_bytes)
        free(graph->own_bytes);
    free(graph->output_bytes);
    free(graph->resident_bytes);
    free(graph->group);
    free(graph->pin);
    free(graph->topological);
    free(graph->position);
    free(graph->unit);
    free(graph->allowed);
    free(graph->unit_resident);
    *graph = (struct task_graph){ 0 };
}
