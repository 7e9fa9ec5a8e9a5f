/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Greedy: a simulated execution that grows task by task, with link queues and memory over time.
 *
 * Two heuristics use it: that of TensorFlow's white paper, 3.2.1 (each ready task goes where it
 * would end first), and Baechi's m-ETF (of all ready tasks and devices, the pair that starts
 * first). Residents count for ever; a device's running peak of outputs and copies is kept, so that
 * a resident added late is checked against the past too.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/heuristic.h"

static const double margins[] = { 1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5 };

struct queue_entry {
    double time;
    uint32_t position; /* breaks ties */
    uint32_t task;
    uint64_t bytes;
};

struct task_queue {
    struct queue_entry *entries;
    uint32_t n, size;
};

static bool entry_before(const struct queue_entry *a, const struct queue_entry *b) {
    return a->time < b->time || (a->time == b->time && a->position < b->position);
}

static int queue_put(struct task_queue *q, struct queue_entry entry) {
    uint32_t i = q->n;

    if (q->n == q->size) {
        uint32_t size = q->size * 2 + 16;
        struct queue_entry *more = realloc(q->entries, (size_t)size * sizeof(*more));

        if (!more)
            return -ENOMEM;
        q->entries = more;
        q->size = size;
    }
    q->n++;
    while (i > 0 && entry_before(&entry, &q->entries[(i - 1) / 2])) {
        q->entries[i] = q->entries[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->entries[i] = entry;
    return 0;
}

static struct queue_entry queue_take(struct task_queue *q) {
    struct queue_entry first = q->entries[0], last = q->entries[--q->n];
    uint32_t i = 0;

    for (uint32_t child; (child = 2 * i + 1) < q->n; i = child) {
        if (child + 1 < q->n && entry_before(&q->entries[child + 1], &q->entries[child]))
            child++;
        if (!entry_before(&q->entries[child], &last))
            break;
        q->entries[i] = q->entries[child];
    }
    q->entries[i] = last;
    return first;
}

struct greedy {
    const struct task_graph *graph;
    double margin;
    uint32_t *device; /* borrowed from the plan; NONE: not placed */
    uint32_t *of_unit;
    uint32_t *sequence, n_placed;
    uint32_t *left;    /* by task: consumers that are not placed */
    uint32_t *missing; /* by task: predecessors that are not placed */
    double *end, *arrived, *link_free;
    double free[TASK_GRAPH_DEVICES_MAX], busy[TASK_GRAPH_DEVICES_MAX];
    uint64_t resident[TASK_GRAPH_DEVICES_MAX], live[TASK_GRAPH_DEVICES_MAX],
        top[TASK_GRAPH_DEVICES_MAX];
    struct task_queue releases[TASK_GRAPH_DEVICES_MAX];
};

static void greedy_done(struct greedy *c) {
    free(c->of_unit);
    free(c->sequence);
    free(c->left);
    free(c->missing);
    free(c->end);
    free(c->arrived);
    free(c->link_free);
    for (uint32_t d = 0; d < TASK_GRAPH_DEVICES_MAX; d++)
        free(c->releases[d].entries);
}

static int greedy_init(struct greedy *c, const struct heuristic *h, unsigned strictness,
                       struct assignment *plan) {
    const struct task_graph *g = h->graph;
    size_t n = (size_t)g->n_tasks + 1;

    if (strictness >= ELEMENTSOF(margins))
        return -ENOENT;
    *c = (struct greedy){
        .graph = g,
        .margin = margins[strictness],
        .device = plan->device,
        .of_unit = malloc(((size_t)g->n_units + 1) * sizeof(*c->of_unit)),
        .sequence = malloc(n * sizeof(*c->sequence)),
        .left = malloc(n * sizeof(*c->left)),
        .missing = malloc(n * sizeof(*c->missing)),
        .end = malloc(n * sizeof(*c->end)),
        .arrived = malloc(n * g->n_devices * sizeof(*c->arrived)),
        .link_free = calloc((size_t)g->n_devices * g->n_devices, sizeof(*c->link_free)),
    };
    if (!c->of_unit || !c->sequence || !c->left || !c->missing || !c->end || !c->arrived ||
        !c->link_free)
        return -ENOMEM;
    memset(c->of_unit, 0xff, ((size_t)g->n_units + 1) * sizeof(*c->of_unit));
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        c->device[v] = TASK_GRAPH_NONE;
        c->left[v] = g->consumers.first[v + 1] - g->consumers.first[v];
        c->missing[v] = g->inputs.first[v + 1] - g->inputs.first[v] + g->before.first[v + 1] -
                        g->before.first[v];
    }
    for (size_t i = 0; i < n * g->n_devices; i++)
        c->arrived[i] = -1;
    return 0;
}

static uint64_t choices(const struct greedy *c, uint32_t v) {
    uint32_t unit = c->graph->unit[v];

    return c->of_unit[unit] != TASK_GRAPH_NONE ? UINT64_C(1) << c->of_unit[unit]
                                               : c->graph->allowed[unit];
}

/* When `v` could see all its inputs on `device`; < 0: one cannot be copied there. */
static double arrival(struct greedy *c, uint32_t v, uint32_t device, bool is_final) {
    const struct task_graph *g = c->graph;
    uint64_t busy = 0;
    double latest = 0;

    for (uint32_t i = g->before.first[v]; i < g->before.first[v + 1]; i++)
        latest = fmax(latest, c->end[g->before.items[i]]);
    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
        uint32_t u = g->inputs.items[i], from = c->device[u];
        double *known = &c->arrived[(size_t)u * g->n_devices + device], when = *known;
        double *link_free = &c->link_free[from * g->n_devices + device];

        if (from == device)
            when = c->end[u];
        else if (when < 0) {
            if (!(task_graph_link(g, from, device)->bytes_per_usec > 0))
                return -1;
            when = fmax(c->end[u], busy >> from & 1 ? c->busy[from] : *link_free) +
                   task_graph_transfer(g, u, from, device);
            c->busy[from] = when;
            busy |= UINT64_C(1) << from;
            if (is_final)
                *known = *link_free = when;
        }
        latest = fmax(latest, when);
    }
    return latest;
}

static uint64_t unit_resident(const struct greedy *c, uint32_t v) {
    uint32_t unit = c->graph->unit[v];

    return c->of_unit[unit] == TASK_GRAPH_NONE ? c->graph->unit_resident[unit] : 0;
}

/* Bytes that `v` brings to `device`: its output and the copies that it needs. */
static uint64_t brought(const struct greedy *c, uint32_t v, uint32_t device) {
    const struct task_graph *g = c->graph;
    uint64_t bytes = g->own_bytes[v];

    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
        uint32_t u = g->inputs.items[i];

        if (c->device[u] != device && c->arrived[(size_t)u * g->n_devices + device] < 0)
            bytes += g->output_bytes[u];
    }
    return bytes;
}

enum fit_result { FIT_YES, FIT_LATER, FIT_NEVER };

static enum fit_result fits(struct greedy *c, uint32_t v, uint32_t device, double begin) {
    double cap = (double)c->graph->memory_bytes[device] * c->margin;
    uint64_t resident = c->resident[device] + unit_resident(c, v);
    struct task_queue *releases = &c->releases[device];

    if (!c->graph->is_capped || c->graph->memory_bytes[device] == UINT64_MAX)
        return FIT_YES;
    if ((double)(resident + c->top[device]) > cap)
        return FIT_NEVER;
    while (releases->n > 0 && releases->entries[0].time <= begin)
        c->live[device] -= queue_take(releases).bytes;
    if ((double)(resident + c->live[device] + brought(c, v, device)) <= cap)
        return FIT_YES;
    return c->live[device] ? FIT_LATER : FIT_NEVER;
}

/* All consumers of `u` are placed: when its bytes go is known. */
static int release(struct greedy *c, uint32_t u) {
    const struct task_graph *g = c->graph;
    double last[TASK_GRAPH_DEVICES_MAX];
    uint32_t home = c->device[u];
    uint64_t where = UINT64_C(1) << home;
    int r = 0;

    last[home] = c->end[u];
    for (uint32_t i = g->consumers.first[u]; i < g->consumers.first[u + 1]; i++) {
        uint32_t w = g->consumers.items[i], d = c->device[w];

        last[d] = fmax(where >> d & 1 ? last[d] : 0, c->end[w]);
        where |= UINT64_C(1) << d;
        if (d != home)
            last[home] = fmax(last[home], c->arrived[(size_t)u * g->n_devices + d]);
    }
    for (; where && r == 0; where &= where - 1) {
        uint32_t d = (uint32_t)__builtin_ctzll(where);

        r = queue_put(&c->releases[d],
                      (struct queue_entry){ last[d], 0, u,
                                            d == home ? g->own_bytes[u] : g->output_bytes[u] });
    }
    return r;
}

static int place(struct greedy *c, uint32_t v, uint32_t device) {
    const struct task_graph *g = c->graph;
    uint64_t bytes = g->is_capped ? brought(c, v, device) : 0;
    int r = 0;

    c->resident[device] += unit_resident(c, v);
    c->of_unit[g->unit[v]] = device;
    c->end[v] = fmax(c->free[device], arrival(c, v, device, true)) + task_graph_cost(g, v, device);
    c->free[device] = c->end[v];
    c->device[v] = device;
    c->sequence[c->n_placed++] = v;
    if (!g->is_capped)
        return 0;
    c->live[device] += bytes;
    c->top[device] = MAX(c->top[device], c->live[device]);
    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1] && r == 0; i++)
        if (--c->left[g->inputs.items[i]] == 0)
            r = release(c, g->inputs.items[i]);
    return r;
}

static void queue_done(struct task_queue *q) {
    free(q->entries);
}

int greedy_whitepaper(const struct heuristic *h, unsigned variant, unsigned strictness,
                      struct assignment *ret) {
    const struct task_graph *g = h->graph;
    cleanup(greedy_done) struct greedy c = { 0 };
    cleanup(queue_done) struct task_queue ready = { 0 };
    int r = greedy_init(&c, h, strictness, ret);

    (void)variant;
    for (uint32_t i = 0; i < g->n_tasks && r == 0 && !c.missing[g->topological[i]]; i++)
        r = queue_put(&ready, (struct queue_entry){ 0, i, g->topological[i], 0 });
    while (r == 0 && ready.n > 0) {
        const struct order_lists *ways[] = { &g->consumers, &g->unlocks };
        uint32_t v = queue_take(&ready).task, best = TASK_GRAPH_NONE;
        double best_end = INFINITY;

        for (uint64_t options = choices(&c, v); options; options &= options - 1) {
            uint32_t d = (uint32_t)__builtin_ctzll(options);
            double when = arrival(&c, v, d, false), begin = fmax(when, c.free[d]);

            if (when < 0 || fits(&c, v, d, begin) != FIT_YES)
                continue;
            if (best == TASK_GRAPH_NONE || begin + task_graph_cost(g, v, d) < best_end) {
                best = d;
                best_end = begin + task_graph_cost(g, v, d);
            }
        }
        if (best == TASK_GRAPH_NONE)
            return -ENOENT;
        r = place(&c, v, best);
        for (unsigned k = 0; k < 2; k++)
            for (uint32_t i = ways[k]->first[v]; i < ways[k]->first[v + 1] && r == 0; i++) {
                uint32_t w = ways[k]->items[i];
                double when = 0;

                if (--c.missing[w] > 0)
                    continue;
                for (uint32_t j = g->inputs.first[w]; j < g->inputs.first[w + 1]; j++)
                    when = fmax(when, c.end[g->inputs.items[j]]);
                for (uint32_t j = g->before.first[w]; j < g->before.first[w + 1]; j++)
                    when = fmax(when, c.end[g->before.items[j]]);
                r = queue_put(&ready, (struct queue_entry){ when, g->position[w], w, 0 });
            }
    }
    if (r < 0)
        return r;
    assignment_order(g, ret, c.sequence);
    return 0;
}

/* Of m-ETF: what could run on a device. */
struct offers {
    struct task_queue now;     /* inputs there before the device is free; by position */
    struct task_queue later;   /* by arrival */
    struct task_queue blocked; /* did not fit; again after the next release */
    bool has_head;
    struct queue_entry head;
};

struct etf {
    struct greedy clock;
    struct offers offers[TASK_GRAPH_DEVICES_MAX];
};

static void etf_done(struct etf *e) {
    for (uint32_t d = 0; d < TASK_GRAPH_DEVICES_MAX; d++) {
        free(e->offers[d].now.entries);
        free(e->offers[d].later.entries);
        free(e->offers[d].blocked.entries);
    }
    greedy_done(&e->clock);
}

static int offer(struct etf *e, uint32_t v, uint32_t d) {
    double when = arrival(&e->clock, v, d, false);
    uint32_t position = e->clock.graph->position[v];

    if (when < 0)
        return 0;
    if (when <= e->clock.free[d])
        return queue_put(&e->offers[d].now, (struct queue_entry){ 0, position, v, 0 });
    return queue_put(&e->offers[d].later, (struct queue_entry){ when, position, v, 0 });
}

static int find_head(struct etf *e, uint32_t d) {
    struct offers *o = &e->offers[d];
    const uint32_t *device = e->clock.device;
    int r = 0;

    while (r == 0 && o->later.n > 0 &&
           (device[o->later.entries[0].task] != TASK_GRAPH_NONE ||
            o->later.entries[0].time <= e->clock.free[d])) {
        struct queue_entry entry = queue_take(&o->later);

        entry.time = 0;
        if (device[entry.task] == TASK_GRAPH_NONE)
            r = queue_put(&o->now, entry);
    }
    while (o->now.n > 0 && device[o->now.entries[0].task] != TASK_GRAPH_NONE)
        queue_take(&o->now);
    o->has_head = o->now.n > 0 || o->later.n > 0;
    if (o->now.n > 0) {
        o->head = o->now.entries[0];
        o->head.time = e->clock.free[d];
    } else if (o->later.n > 0)
        o->head = o->later.entries[0];
    return r;
}

static int offer_blocked(struct etf *e, uint32_t d) {
    struct task_queue again = e->offers[d].blocked;
    int r = 0;

    e->offers[d].blocked = (struct task_queue){ 0 };
    for (uint32_t i = 0; i < again.n && r == 0; i++)
        if (e->clock.device[again.entries[i].task] == TASK_GRAPH_NONE)
            r = offer(e, again.entries[i].task, d);
    free(again.entries);
    return r;
}

/* Nothing can start: wait for the next release on a device where something is blocked. */
static int await_release(struct etf *e) {
    struct greedy *c = &e->clock;
    uint32_t best = TASK_GRAPH_NONE;
    double when;
    int r;

    for (uint32_t d = 0; d < c->graph->n_devices; d++)
        if (e->offers[d].blocked.n > 0 && c->releases[d].n > 0 &&
            (best == TASK_GRAPH_NONE ||
             c->releases[d].entries[0].time < c->releases[best].entries[0].time))
            best = d;
    if (best == TASK_GRAPH_NONE)
        return -ENOENT;
    when = c->releases[best].entries[0].time;
    c->free[best] = fmax(c->free[best], when);
    while (c->releases[best].n > 0 && c->releases[best].entries[0].time <= when)
        c->live[best] -= queue_take(&c->releases[best]).bytes;
    r = offer_blocked(e, best);
    return r < 0 ? r : find_head(e, best);
}

static int take_pair(struct etf *e, uint32_t v, uint32_t device) {
    struct greedy *c = &e->clock;
    const struct task_graph *g = c->graph;
    const struct order_lists *ways[] = { &g->consumers, &g->unlocks };
    uint32_t before[TASK_GRAPH_DEVICES_MAX];
    uint64_t changed = UINT64_C(1) << device;
    int r;

    for (uint32_t d = 0; d < g->n_devices; d++)
        before[d] = c->releases[d].n;
    r = place(c, v, device);
    for (unsigned k = 0; k < 2; k++)
        for (uint32_t i = ways[k]->first[v]; i < ways[k]->first[v + 1] && r == 0; i++) {
            uint32_t w = ways[k]->items[i];

            if (--c->missing[w] > 0)
                continue;
            for (uint64_t m = choices(c, w); m && r == 0; m &= m - 1) {
                r = offer(e, w, (uint32_t)__builtin_ctzll(m));
                changed |= m & -m;
            }
        }
    for (uint32_t d = 0; d < g->n_devices && r == 0; d++) {
        if (e->offers[d].blocked.n > 0 && c->releases[d].n != before[d]) {
            r = offer_blocked(e, d);
            changed |= UINT64_C(1) << d;
        } else if (e->offers[d].has_head && e->offers[d].head.task == v)
            changed |= UINT64_C(1) << d;
    }
    for (; changed && r == 0; changed &= changed - 1)
        r = find_head(e, (uint32_t)__builtin_ctzll(changed));
    return r;
}

int greedy_etf(const struct heuristic *h, unsigned variant, unsigned strictness,
               struct assignment *ret) {
    const struct task_graph *g = h->graph;
    cleanup(etf_done) struct etf e = { 0 };
    struct greedy *c = &e.clock;
    int r = greedy_init(c, h, strictness, ret);

    (void)variant;
    for (uint32_t i = 0; i < g->n_tasks && r == 0 && !c->missing[g->topological[i]]; i++)
        for (uint64_t m = choices(c, g->topological[i]); m && r == 0; m &= m - 1)
            r = offer(&e, g->topological[i], (uint32_t)__builtin_ctzll(m));
    for (uint32_t d = 0; d < g->n_devices && r == 0; d++)
        r = find_head(&e, d);
    while (r == 0 && c->n_placed < g->n_tasks) {
        uint32_t d = TASK_GRAPH_NONE, v, home;
        struct offers *o;
        double when;
        enum fit_result fit = FIT_NEVER;
        bool is_stale;

        for (uint32_t i = 0; i < g->n_devices; i++)
            if (e.offers[i].has_head &&
                (d == TASK_GRAPH_NONE || entry_before(&e.offers[i].head, &e.offers[d].head)))
                d = i;
        if (d == TASK_GRAPH_NONE) {
            r = await_release(&e);
            continue;
        }
        o = &e.offers[d];
        v = o->head.task;
        when = arrival(c, v, d, false);
        is_stale = when > o->head.time; /* a link was taken meanwhile */
        home = c->of_unit[g->unit[v]];
        if (when >= 0 && (home == TASK_GRAPH_NONE || home == d) && !is_stale)
            fit = fits(c, v, d, fmax(when, c->free[d]));
        else if (when < 0 || (home != TASK_GRAPH_NONE && home != d))
            is_stale = false;
        if (fit == FIT_YES) {
            r = take_pair(&e, v, d);
            continue;
        }
        if (o->now.n > 0 && o->now.entries[0].task == v)
            queue_take(&o->now);
        else
            queue_take(&o->later);
        if (is_stale)
            r = queue_put(&o->later, (struct queue_entry){ when, g->position[v], v, 0 });
        else if (fit == FIT_LATER)
            r = queue_put(&o->blocked, (struct queue_entry){ 0, 0, v, 0 });
        if (r == 0)
            r = find_head(&e, d);
    }
    if (r < 0)
        return r;
    assignment_order(g, ret, c->sequence);
    return 0;
}
