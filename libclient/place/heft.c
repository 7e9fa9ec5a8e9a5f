/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HEFT (Topcuoglu, Hariri, Wu 2002): tasks by upward rank, each on the device where it ends first,
 * in the first gap that holds it. Links are free, or a transfer queues behind those before it.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/charges.h"

struct gap {
    double from, to;
};

struct gaps {
    struct gap *gaps; /* in order; the last has no end */
    uint32_t n, size;
};

struct heft {
    const struct heuristic *heuristic;
    struct charges charges;
    struct gaps gaps[TASK_GRAPH_DEVICES_MAX];
    double *start, *end;
    double *arrived;   /* task * n_devices + device; < 0: not there */
    double *link_free; /* from * n_devices + to */
    double busy[TASK_GRAPH_DEVICES_MAX];
    bool is_queued;
};

static void heft_done(struct heft *t) {
    charges_done(&t->charges);
    for (uint32_t d = 0; d < TASK_GRAPH_DEVICES_MAX; d++)
        free(t->gaps[d].gaps);
    free(t->start);
    free(t->end);
    free(t->arrived);
    free(t->link_free);
}

/* When the inputs of `v` would be on `device`. */
static double arrival(struct heft *t, uint32_t v, uint32_t device, bool is_final) {
    const struct task_graph *g = t->heuristic->graph;
    uint64_t busy = 0;
    double latest = 0;

    for (uint32_t i = g->before.first[v]; i < g->before.first[v + 1]; i++)
        latest = fmax(latest, t->end[g->before.items[i]]);
    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
        uint32_t u = g->inputs.items[i], from = t->charges.device[u];
        double *known = &t->arrived[(size_t)u * g->n_devices + device], when = *known;

        if (from == device)
            when = t->end[u];
        else if (when < 0) {
            when = t->end[u];
            if (t->is_queued)
                when = fmax(when, busy >> from & 1 ? t->busy[from]
                                                   : t->link_free[from * g->n_devices + device]);
            when += task_graph_transfer(g, u, from, device);
            t->busy[from] = when;
            busy |= UINT64_C(1) << from;
            if (is_final) {
                *known = when;
                t->link_free[from * g->n_devices + device] = when;
            }
        }
        latest = fmax(latest, when);
    }
    return latest;
}

static uint32_t gap_find(const struct gaps *gaps, double ready, double usec, double *ret_begin) {
    uint32_t low = 0, high = gaps->n - 1;

    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (gaps->gaps[middle].to < ready)
            low = middle + 1;
        else
            high = middle;
    }
    for (;; low++) {
        double begin = fmax(gaps->gaps[low].from, ready);

        if (begin + usec <= gaps->gaps[low].to) {
            *ret_begin = begin;
            return low;
        }
    }
}

static int gap_fill(struct gaps *gaps, uint32_t at, double from, double to, double shortest) {
    struct gap old = gaps->gaps[at];
    struct gap pieces[2];
    uint32_t n = 0;

    if (from - old.from >= shortest && from > old.from)
        pieces[n++] = (struct gap){ old.from, from };
    if (old.to - to >= shortest && old.to > to)
        pieces[n++] = (struct gap){ to, old.to };
    if (gaps->n + 1 > gaps->size) {
        struct gap *more = realloc(gaps->gaps, (size_t)gaps->size * 2 * sizeof(*more));

        if (!more)
            return -ENOMEM;
        gaps->gaps = more;
        gaps->size *= 2;
    }
    memmove(gaps->gaps + at + n, gaps->gaps + at + 1, (gaps->n - at - 1) * sizeof(*gaps->gaps));
    memcpy(gaps->gaps + at, pieces, n * sizeof(*pieces));
    gaps->n = gaps->n - 1 + n;
    return 0;
}

static int place(struct heft *t, uint32_t v) {
    const struct task_graph *g = t->heuristic->graph;
    uint32_t best = TASK_GRAPH_NONE, best_gap = 0;
    double best_end = INFINITY, best_begin = 0;

    for (uint64_t choices = charges_choices(&t->charges, v); choices; choices &= choices - 1) {
        uint32_t d = (uint32_t)__builtin_ctzll(choices), gap;
        double begin, usec = task_graph_cost(g, v, d);

        if (!charges_fit(&t->charges, v, d))
            continue;
        gap = gap_find(&t->gaps[d], arrival(t, v, d, false), usec, &begin);
        if (best == TASK_GRAPH_NONE || begin + usec < best_end) {
            best = d;
            best_gap = gap;
            best_begin = begin;
            best_end = begin + usec;
        }
    }
    if (best == TASK_GRAPH_NONE)
        return -ENOENT;
    arrival(t, v, best, true);
    charges_place(&t->charges, v, best);
    t->start[v] = best_begin;
    t->end[v] = best_end;
    return gap_fill(&t->gaps[best], best_gap, best_begin, best_end, t->heuristic->shortest_usec);
}

struct timed {
    double start, end;
    uint32_t position, task;
};

static int by_start(const void *a, const void *b) {
    const struct timed *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

int heft_plan(const struct heuristic *h, unsigned variant, unsigned strictness,
              struct assignment *ret) {
    const struct task_graph *g = h->graph;
    size_t n = (size_t)g->n_tasks + 1;
    cleanup(heft_done) struct heft t = { .heuristic = h, .is_queued = variant == 1 };
    cleanup(freep) struct timed *timed = malloc(n * sizeof(*timed));
    int r = charges_init(&t.charges, g, ret, strictness);

    if (r < 0)
        return r;
    t.start = malloc(n * sizeof(*t.start));
    t.end = malloc(n * sizeof(*t.end));
    t.arrived = malloc(n * g->n_devices * sizeof(*t.arrived));
    t.link_free = calloc((size_t)g->n_devices * g->n_devices, sizeof(*t.link_free));
    if (!timed || !t.start || !t.end || !t.arrived || !t.link_free)
        return -ENOMEM;
    for (size_t i = 0; i < n * g->n_devices; i++)
        t.arrived[i] = -1;
    for (uint32_t d = 0; d < g->n_devices; d++) {
        t.gaps[d] = (struct gaps){ malloc(16 * sizeof(struct gap)), 1, 16 };
        if (!t.gaps[d].gaps)
            return -ENOMEM;
        t.gaps[d].gaps[0] = (struct gap){ 0, INFINITY };
    }
    for (uint32_t i = 0; i < g->n_tasks; i++) {
        r = place(&t, h->by_rank[i]);
        if (r < 0)
            return r;
    }
    for (uint32_t v = 0; v < g->n_tasks; v++)
        timed[v] = (struct timed){ t.start[v], t.end[v], g->position[v], v };
    qsort(timed, g->n_tasks, sizeof(*timed), by_start);
    for (uint32_t i = 0; i < g->n_tasks; i++)
        h->scratch[i] = timed[i].task;
    assignment_order(g, ret, h->scratch);
    return 0;
}
