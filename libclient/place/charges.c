/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/charges.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const double shares[HEURISTIC_STRICT] = {
    0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0
};

double charges_share(unsigned strictness) {
    return shares[strictness];
}

int charges_init(struct charges *c, const struct task_graph *g, struct assignment *plan,
                 unsigned strictness) {
    if (strictness >= HEURISTIC_STRICT)
        return -ENOENT;
    *c = (struct charges){
        .graph = g,
        .share = shares[strictness],
        .copied = calloc((size_t)g->n_tasks + 1, sizeof(*c->copied)),
        .of_unit = malloc(((size_t)g->n_units + 1) * sizeof(*c->of_unit)),
        .device = plan->device,
    };
    if (!c->copied || !c->of_unit)
        return -ENOMEM;
    memset(c->of_unit, 0xff, ((size_t)g->n_units + 1) * sizeof(*c->of_unit));
    memset(c->device, 0xff, (size_t)g->n_tasks * sizeof(*c->device));
    return 0;
}

void charges_done(struct charges *c) {
    free(c->copied);
    free(c->of_unit);
}

uint64_t charges_choices(const struct charges *c, uint32_t v) {
    uint32_t unit = c->graph->unit[v];

    return c->of_unit[unit] != TASK_GRAPH_NONE ? UINT64_C(1) << c->of_unit[unit]
                                               : c->graph->allowed[unit];
}

double charges_extra(const struct charges *c, uint32_t v, uint32_t device) {
    const struct task_graph *g = c->graph;
    double bytes =
        c->of_unit[g->unit[v]] == TASK_GRAPH_NONE ? (double)g->unit_resident[g->unit[v]] : 0;

    if (c->share > 0) {
        bytes += c->share * (double)g->own_bytes[v];
        for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
            uint32_t u = g->inputs.items[i];

            if (c->device[u] != TASK_GRAPH_NONE && c->device[u] != device &&
                !(c->copied[u] >> device & 1))
                bytes += c->share * (double)g->output_bytes[u];
        }
    }
    return bytes;
}

/* Whether links lead to every neighbour that is placed or has only one possible device. */
static bool is_linked(const struct charges *c, uint32_t v, uint32_t device) {
    const struct task_graph *g = c->graph;

    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
        uint32_t from = c->device[g->inputs.items[i]];

        if (from != TASK_GRAPH_NONE && from != device &&
            !(task_graph_link(g, from, device)->bytes_per_usec > 0))
            return false;
    }
    for (uint32_t i = g->consumers.first[v]; i < g->consumers.first[v + 1]; i++) {
        uint32_t w = g->consumers.items[i], to = c->device[w];
        uint64_t allowed = g->allowed[g->unit[w]];

        if (to == TASK_GRAPH_NONE && __builtin_popcountll(allowed) == 1)
            to = (uint32_t)__builtin_ctzll(allowed);
        if (to != TASK_GRAPH_NONE && to != device &&
            !(task_graph_link(g, device, to)->bytes_per_usec > 0))
            return false;
    }
    return true;
}

bool charges_fit(const struct charges *c, uint32_t v, uint32_t device) {
    return (!c->graph->is_capped || c->used_bytes[device] + charges_extra(c, v, device) <=
                                        (double)c->graph->memory_bytes[device]) &&
           is_linked(c, v, device);
}

void charges_place(struct charges *c, uint32_t v, uint32_t device) {
    const struct task_graph *g = c->graph;

    c->used_bytes[device] += charges_extra(c, v, device);
    c->device[v] = device;
    c->of_unit[g->unit[v]] = device;
    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
        uint32_t u = g->inputs.items[i];

        if (c->device[u] != TASK_GRAPH_NONE && c->device[u] != device)
            c->copied[u] |= UINT64_C(1) << device;
    }
}
