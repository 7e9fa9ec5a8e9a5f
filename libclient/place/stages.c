/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages: cut a line of tasks into one stretch for each device, where that costs least.
 *
 * What memory forces apart is best cut where little flows. The units stand in a line, depth or
 * breadth first; a plan is a place to cut for each device, in the order of their speed, and devices
 * may stay empty. Dynamic programming finds the best cuts within the memory of every device: the
 * least sum of transfers and work, for steps that pass the devices one after the other, or the
 * least maximum, for pipelines.
 *
 *     line       a  b  c | d  e  f  g | h  i        best[device][cut]: the least cost of all before
 *     device        0    |      1     |   2         the cut on the devices up to this one
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/charges.h"

#define STAGES_UNITS_MAX 4000

struct stages {
    const struct heuristic *heuristic;
    uint32_t n;       /* places in the line */
    uint32_t *line;   /* units */
    uint32_t *place;  /* by unit */
    double *work;     /* (n + 1) * n_devices: sums of the costs before each place */
    double *bytes;    /* n + 1: sums of the bytes before each place */
    double *cut_usec; /* n + 1: transfers over each cut, by the mean link */
    double *best;     /* n_devices + 1 rows of n + 1 */
    uint32_t *from;   /* the same: where the last device's stretch begins */
};

static void stages_done(struct stages *s) {
    free(s->line);
    free(s->place);
    free(s->work);
    free(s->bytes);
    free(s->cut_usec);
    free(s->best);
    free(s->from);
}

static void line_up(struct stages *s, const uint32_t *sequence) {
    const struct task_graph *g = s->heuristic->graph;

    memset(s->place, 0xff, g->n_units * sizeof(*s->place));
    for (uint32_t i = 0; i < g->n_tasks; i++) {
        uint32_t unit = g->unit[sequence[i]];

        if (s->place[unit] == TASK_GRAPH_NONE) {
            s->place[unit] = s->n;
            s->line[s->n++] = unit;
        }
    }
}

/* Each tensor crosses the cuts between the first and the last unit that has to do with it. */
static void weigh(struct stages *s, double share) {
    const struct heuristic *h = s->heuristic;
    const struct task_graph *g = h->graph;

    for (uint32_t v = 0; v < g->n_tasks; v++) {
        uint32_t at = s->place[g->unit[v]], low = at, high = at;
        double usec = h->mean_latency_usec + (double)g->output_bytes[v] * h->mean_usec_per_byte;

        for (uint32_t i = g->consumers.first[v]; i < g->consumers.first[v + 1]; i++) {
            low = MIN(low, s->place[g->unit[g->consumers.items[i]]]);
            high = MAX(high, s->place[g->unit[g->consumers.items[i]]]);
        }
        s->cut_usec[low + 1] += low < high ? usec : 0;
        s->cut_usec[high + 1] -= low < high ? usec : 0;
        s->bytes[at + 1] += (double)g->resident_bytes[v] + share * (double)g->own_bytes[v];
        for (uint32_t d = 0; d < g->n_devices; d++)
            if (g->allowed[g->unit[v]] >> d & 1)
                s->work[(size_t)(at + 1) * g->n_devices + d] += task_graph_cost(g, v, d);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        s->bytes[i + 1] += s->bytes[i];
        s->cut_usec[i + 1] += s->cut_usec[i];
        for (uint32_t d = 0; d < g->n_devices; d++)
            s->work[(size_t)(i + 1) * g->n_devices + d] += s->work[(size_t)i * g->n_devices + d];
    }
}

static void find_cuts(struct stages *s, bool is_pipeline) {
    const struct task_graph *g = s->heuristic->graph;
    size_t row = (size_t)s->n + 1;

    for (size_t i = 0; i < row * (s->heuristic->n_devices + 1); i++)
        s->best[i] = INFINITY;
    s->best[0] = 0;
    for (uint32_t k = 0; k < s->heuristic->n_devices; k++) {
        uint32_t d = s->heuristic->devices[k];
        const double *before = &s->best[k * row];
        double *now = &s->best[(k + 1) * row], cap = (double)g->memory_bytes[d];

        for (uint32_t to = 0; to <= s->n; to++) {
            now[to] = before[to];
            s->from[(k + 1) * row + to] = to;
            for (uint32_t from = to; from-- > 0 && s->bytes[to] - s->bytes[from] <= cap;) {
                double work = s->work[(size_t)to * g->n_devices + d] -
                              s->work[(size_t)from * g->n_devices + d];
                double cut = from > 0 ? s->cut_usec[from] : 0, cost;

                if (!isfinite(before[from]))
                    continue;
                cost =
                    is_pipeline ? fmax(before[from], fmax(work, cut)) : before[from] + work + cut;
                if (cost < now[to]) {
                    now[to] = cost;
                    s->from[(k + 1) * row + to] = from;
                }
            }
        }
    }
}

static void assign(struct stages *s, struct assignment *plan) {
    const struct task_graph *g = s->heuristic->graph;
    size_t row = (size_t)s->n + 1;
    uint32_t to = s->n;

    for (uint32_t k = s->heuristic->n_devices; k > 0; k--) {
        uint32_t from = s->from[k * row + to], d = s->heuristic->devices[k - 1];

        for (uint32_t i = from; i < to; i++) {
            uint32_t unit = s->line[i], at = d;
            uint64_t allowed = g->allowed[unit];

            if (!(allowed >> d & 1))
                at = (uint32_t)__builtin_ctzll(allowed);
            for (uint32_t j = g->members.first[unit]; j < g->members.first[unit + 1]; j++)
                plan->device[g->members.items[j]] = at;
        }
        to = from;
    }
}

int stages_plan(const struct heuristic *h, unsigned variant, unsigned strictness,
                struct assignment *ret) {
    const struct task_graph *g = h->graph;
    cleanup(stages_done) struct stages s = { .heuristic = h };
    size_t n = (size_t)g->n_units + 2;

    if (g->n_units > STAGES_UNITS_MAX)
        return -ENOENT;
    s.line = malloc(n * sizeof(*s.line));
    s.place = malloc(n * sizeof(*s.place));
    s.work = calloc(n * g->n_devices, sizeof(*s.work));
    s.bytes = calloc(n, sizeof(*s.bytes));
    s.cut_usec = calloc(n, sizeof(*s.cut_usec));
    s.best = malloc(n * (g->n_devices + 1) * sizeof(*s.best));
    s.from = calloc(n * (g->n_devices + 1), sizeof(*s.from));
    if (!s.line || !s.place || !s.work || !s.bytes || !s.cut_usec || !s.best || !s.from)
        return -ENOMEM;
    line_up(&s, variant & 1 ? g->topological : h->depth_first);
    weigh(&s, charges_share(strictness));
    find_cuts(&s, variant & 2);
    if (!isfinite(s.best[(size_t)h->n_devices * (s.n + 1) + s.n]))
        return -ENOENT;
    assign(&s, ret);
    return heuristic_dispatch(h, h->rank, ret);
}
