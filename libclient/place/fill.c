/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fill: the placements that need no simulation.
 *
 * Baechi's m-TOPO, and what people do by hand for pipelines: fill the devices one after another in
 * topological order. Each is filled up to its memory, an even share of the memory or an even share
 * of the work (3); tasks are taken breadth or depth first (2); each device then runs by rank or
 * depth first (2): twelve variants. Also round robin, and everything on one device.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/charges.h"

enum even {
    EVEN_NOT,
    EVEN_MEMORY,
    EVEN_WORK,
};

struct fill {
    const struct heuristic *heuristic;
    struct charges charges;
    enum even even;
    double *unit_work; /* by unit */
    double done[TASK_GRAPH_DEVICES_MAX], target;
};

static void fill_done(struct fill *f) {
    charges_done(&f->charges);
    free(f->unit_work);
}

/* What a device's share is measured in: work, or bytes as charged. */
static double amount(const struct fill *f, uint32_t v, uint32_t device) {
    uint32_t unit = f->heuristic->graph->unit[v];

    if (f->even != EVEN_WORK)
        return charges_extra(&f->charges, v, device);
    return f->charges.of_unit[unit] == TASK_GRAPH_NONE ? f->unit_work[unit] : 0;
}

static int place_all(struct fill *f, const uint32_t *sequence) {
    const struct task_graph *g = f->heuristic->graph;
    uint32_t at = 0;

    for (uint32_t i = 0; i < g->n_tasks; i++) {
        uint32_t v = sequence[i], device;
        uint64_t choices = charges_choices(&f->charges, v);
        double more;

        for (;; at++) {
            device = f->heuristic->devices[at];
            more = amount(f, v, device);
            if (choices >> device & 1 && charges_fit(&f->charges, v, device) &&
                f->done[device] + more <= f->target)
                break;
            if (__builtin_popcountll(choices) == 1 || !(choices >> device & 1) ||
                at + 1 == f->heuristic->n_devices) {
                while (choices && !charges_fit(&f->charges, v, (uint32_t)__builtin_ctzll(choices)))
                    choices &= choices - 1;
                if (!choices)
                    return -ENOENT;
                device = (uint32_t)__builtin_ctzll(choices);
                break;
            }
        }
        f->done[device] += more;
        charges_place(&f->charges, v, device);
    }
    return 0;
}

int fill_plan(const struct heuristic *h, unsigned variant, unsigned strictness,
              struct assignment *ret) {
    const struct task_graph *g = h->graph;
    bool is_deep = variant & 1, runs_deep = variant & 2;
    cleanup(fill_done) struct fill f = { .heuristic = h, .even = variant >> 2 };
    cleanup(freep) double *priority = malloc(((size_t)g->n_tasks + 1) * sizeof(*priority));
    double sum = 0, most = 0;
    int r = charges_init(&f.charges, g, ret, strictness);

    if (r < 0)
        return r;
    f.unit_work = calloc((size_t)g->n_units + 1, sizeof(*f.unit_work));
    if (!f.unit_work || !priority)
        return -ENOMEM;
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        double weight = f.even == EVEN_WORK ? h->mean_usec[v]
                                            : (double)g->resident_bytes[v] +
                                                  f.charges.share * (double)g->own_bytes[v];

        f.unit_work[g->unit[v]] += h->mean_usec[v];
        sum += weight;
        most = fmax(most, weight);
        priority[v] = runs_deep ? -(double)h->depth[v] : h->rank[v];
    }
    f.target = f.even == EVEN_NOT ? INFINITY : sum / MAX(1u, h->n_devices) + most;
    r = place_all(&f, is_deep ? h->depth_first : g->topological);
    return r < 0 ? r : heuristic_dispatch(h, priority, ret);
}

int fill_round_robin(const struct heuristic *h, unsigned variant, unsigned strictness,
                     struct assignment *ret) {
    const struct task_graph *g = h->graph;
    cleanup(charges_done) struct charges charges = { 0 };
    uint32_t turn = 0;
    int r = charges_init(&charges, g, ret, strictness);

    (void)variant;
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < g->n_tasks; i++) {
        uint32_t v = g->topological[i], k = 0, device = 0;
        uint64_t choices = charges_choices(&charges, v);

        for (; k < g->n_devices; k++) {
            device = (turn + k) % g->n_devices;
            if (choices >> device & 1 && charges_fit(&charges, v, device))
                break;
        }
        if (k == g->n_devices)
            return -ENOENT;
        charges_place(&charges, v, device);
        turn = (device + 1) % g->n_devices;
    }
    assignment_order(g, ret, g->topological);
    return 0;
}

int fill_single(const struct heuristic *h, unsigned variant, unsigned strictness,
                struct assignment *ret) {
    const struct task_graph *g = h->graph;
    uint32_t device = variant % FILL_SINGLE_DEEP;

    if (strictness > 0)
        return -ENOENT;
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        uint64_t allowed = g->allowed[g->unit[v]];
        uint32_t best = device;

        if (!(allowed >> device & 1)) {
            best = (uint32_t)__builtin_ctzll(allowed);
            for (; allowed; allowed &= allowed - 1) {
                uint32_t d = (uint32_t)__builtin_ctzll(allowed);

                if (task_graph_cost(g, v, d) < task_graph_cost(g, v, best))
                    best = d;
            }
        }
        ret->device[v] = best;
    }
    if (variant < FILL_SINGLE_DEEP)
        return heuristic_dispatch(h, h->rank, ret);
    assignment_order(g, ret, h->depth_first);
    return 0;
}
