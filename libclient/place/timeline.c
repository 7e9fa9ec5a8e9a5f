/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/timeline.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/event_heap.h"

struct transfer {
    uint32_t task, to, channel;
    double queued, start, end;
    uint32_t next; /* in its channel's queue */
};

struct timeline_run {
    const struct task_graph *graph;
    const struct assignment *plan;
    uint32_t *missing;
    double *start, *end;
    uint32_t running[TASK_GRAPH_DEVICES_MAX], at[TASK_GRAPH_DEVICES_MAX];
    struct transfer *transfers;
    size_t n_transfers, size;
    uint32_t *first, *last, *carried; /* by channel: queue, and what is carried */
    struct event_heap heap;
    double now;
    uint64_t media; /* that carry something */
};

static void timeline_done(struct timeline_run *t) {
    free(t->missing);
    free(t->start);
    free(t->end);
    free(t->transfers);
    free(t->first);
    free(t->last);
    free(t->carried);
    free(t->heap.events);
}

static int enqueue(struct timeline_run *t, uint32_t task, uint32_t from, uint32_t to) {
    uint32_t channel = task_graph_link(t->graph, from, to)->channel, *slot, i;

    if (t->n_transfers == t->size) {
        size_t size = t->size * 2 + 256;
        struct transfer *more = realloc(t->transfers, size * sizeof(*more));

        if (!more)
            return -ENOMEM;
        t->transfers = more;
        t->size = size;
    }
    i = (uint32_t)t->n_transfers++;
    t->transfers[i] = (struct transfer){ task, to, channel, t->now, 0, 0, TASK_GRAPH_NONE };
    /* Behind all that is queued, but for later tasks that ended at this very moment. */
    slot = &t->first[channel];
    if (t->last[channel] != TASK_GRAPH_NONE && *slot != TASK_GRAPH_NONE) {
        const struct transfer *last = &t->transfers[t->last[channel]];

        if (last->queued < t->now || last->task < task || (last->task == task && last->to < to))
            slot = &t->transfers[t->last[channel]].next;
        else
            while (*slot != TASK_GRAPH_NONE) {
                const struct transfer *other = &t->transfers[*slot];

                if (other->queued == t->now &&
                    (other->task > task || (other->task == task && other->to > to)))
                    break;
                slot = &t->transfers[*slot].next;
            }
    }
    t->transfers[i].next = *slot;
    *slot = i;
    if (t->transfers[i].next == TASK_GRAPH_NONE)
        t->last[channel] = i;
    return 0;
}

static int end_task(struct timeline_run *t, uint32_t here) {
    const struct task_graph *g = t->graph;
    uint32_t v = t->running[here];
    uint64_t away = 0;
    int r = 0;

    t->running[here] = TASK_GRAPH_NONE;
    t->end[v] = t->now;
    for (uint32_t i = g->consumers.first[v]; i < g->consumers.first[v + 1]; i++) {
        uint32_t w = g->consumers.items[i];

        if (t->plan->device[w] == here)
            t->missing[w]--;
        else
            away |= UINT64_C(1) << t->plan->device[w];
    }
    for (uint32_t i = g->unlocks.first[v]; i < g->unlocks.first[v + 1]; i++)
        t->missing[g->unlocks.items[i]]--;
    for (; away && r == 0; away &= away - 1)
        r = enqueue(t, v, here, (uint32_t)__builtin_ctzll(away));
    return r;
}

static void end_transfer(struct timeline_run *t, uint32_t channel) {
    const struct task_graph *g = t->graph;
    const struct transfer *transfer = &t->transfers[t->carried[channel]];

    t->carried[channel] = TASK_GRAPH_NONE;
    t->media &= ~task_graph_link(g, t->plan->device[transfer->task], transfer->to)->media;
    for (uint32_t i = g->consumers.first[transfer->task];
         i < g->consumers.first[transfer->task + 1]; i++)
        if (t->plan->device[g->consumers.items[i]] == transfer->to)
            t->missing[g->consumers.items[i]]--;
}

static bool is_before(const struct transfer *a, const struct transfer *b) {
    if (a->queued != b->queued)
        return a->queued < b->queued;
    return a->task != b->task ? a->task < b->task : a->to < b->to;
}

/* Of the transfers whose channel and media are free, the one that was queued first; NONE. */
static uint32_t next_channel(const struct timeline_run *t) {
    uint32_t best = TASK_GRAPH_NONE;

    for (uint32_t c = 0; c < t->graph->n_channels; c++) {
        const struct transfer *first;

        if (t->carried[c] != TASK_GRAPH_NONE || t->first[c] == TASK_GRAPH_NONE)
            continue;
        first = &t->transfers[t->first[c]];
        if (task_graph_link(t->graph, t->plan->device[first->task], first->to)->media & t->media)
            continue;
        if (!t->graph->has_media)
            return c; /* no transfer keeps another from starting */
        if (best == TASK_GRAPH_NONE || is_before(first, &t->transfers[t->first[best]]))
            best = c;
    }
    return best;
}

static void start_transfer(struct timeline_run *t, uint32_t channel) {
    struct transfer *transfer = &t->transfers[t->first[channel]];
    uint32_t from = t->plan->device[transfer->task];

    t->carried[channel] = t->first[channel];
    t->first[channel] = transfer->next;
    if (transfer->next == TASK_GRAPH_NONE)
        t->last[channel] = TASK_GRAPH_NONE;
    t->media |= task_graph_link(t->graph, from, transfer->to)->media;
    transfer->start = t->now;
    transfer->end = t->now + task_graph_transfer(t->graph, transfer->task, from, transfer->to);
    event_heap_put(&t->heap, transfer->end, t->graph->n_devices + channel);
}

static int advance(struct timeline_run *t) {
    const struct task_graph *g = t->graph;
    int r;

    do {
        while (event_heap_is_due(&t->heap, t->now)) {
            uint32_t resource = event_heap_take(&t->heap);

            if (resource >= g->n_devices)
                end_transfer(t, resource - g->n_devices);
            else if ((r = end_task(t, resource)) < 0)
                return r;
        }
        for (uint32_t d = 0; d < g->n_devices; d++) {
            uint32_t v;

            if (t->running[d] != TASK_GRAPH_NONE || t->at[d] == t->plan->first[d + 1])
                continue;
            v = t->plan->sequence[t->at[d]];
            if (t->missing[v] > 0)
                continue;
            t->at[d]++;
            t->running[d] = v;
            t->start[v] = t->now;
            event_heap_put(&t->heap, t->now + task_graph_cost(g, v, d), d);
        }
    } while (event_heap_is_due(&t->heap, t->now));
    for (uint32_t c; (c = next_channel(t)) != TASK_GRAPH_NONE;)
        start_transfer(t, c);
    return 0;
}

static enum timeline_fault check(const struct task_graph *g, const struct assignment *plan) {
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        uint32_t here = plan->device[v];

        if (!isfinite(task_graph_cost(g, v, here)))
            return TIMELINE_NO_KERNEL;
        for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
            uint32_t there = plan->device[g->inputs.items[i]];

            if (there != here && !(task_graph_link(g, there, here)->bytes_per_usec > 0))
                return TIMELINE_NO_LINK;
        }
    }
    return TIMELINE_OK;
}

struct level_change {
    uint32_t device;
    int64_t tick;
    int64_t bytes;
};

static int by_time(const void *a, const void *b) {
    const struct level_change *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return x->tick < y->tick ? -1 : x->tick > y->tick;
}

static int64_t tick(double usec) {
    return (int64_t)nearbyint(usec * 1e6);
}

static size_t change_add(struct level_change *changes, size_t n, uint32_t device, int64_t since,
                         int64_t until, uint64_t bytes) {
    if (bytes == 0 || until <= since)
        return n;
    changes[n] = (struct level_change){ device, since, (int64_t)bytes };
    changes[n + 1] = (struct level_change){ device, until, -(int64_t)bytes };
    return n + 2;
}

/* Where memory begins and ends to be used, in order, from the times of all tasks and transfers. */
static int find_changes(const struct timeline_run *t, struct level_change **ret, size_t *ret_n) {
    const struct task_graph *g = t->graph;
    const struct assignment *plan = t->plan;
    size_t n = 0;
    cleanup(freep) struct level_change *changes =
        malloc((g->n_tasks + t->n_transfers + 1) * 2 * sizeof(*changes));
    cleanup(freep) int64_t *sent = malloc(((size_t)g->n_tasks + 1) * sizeof(*sent));

    if (!changes || !sent)
        return -ENOMEM;
    for (uint32_t v = 0; v < g->n_tasks; v++)
        sent[v] = tick(t->end[v]);
    for (size_t i = 0; i < t->n_transfers; i++) {
        const struct transfer *transfer = &t->transfers[i];
        uint32_t u = transfer->task;
        int64_t used = 0;

        sent[u] = MAX(sent[u], tick(transfer->end));
        for (uint32_t k = g->consumers.first[u]; k < g->consumers.first[u + 1]; k++)
            if (plan->device[g->consumers.items[k]] == transfer->to)
                used = MAX(used, tick(t->end[g->consumers.items[k]]));
        n = change_add(changes, n, transfer->to, tick(transfer->start), used, g->output_bytes[u]);
    }
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        int64_t until = sent[v];

        if (g->consumers.first[v] == g->consumers.first[v + 1])
            until = tick(plan->makespan_usec);
        for (uint32_t k = g->consumers.first[v]; k < g->consumers.first[v + 1]; k++)
            if (plan->device[g->consumers.items[k]] == plan->device[v])
                until = MAX(until, tick(t->end[g->consumers.items[k]]));
        n = change_add(changes, n, plan->device[v], tick(t->start[v]), until, g->own_bytes[v]);
    }
    qsort(changes, n, sizeof(*changes), by_time);
    *ret = TAKE(changes);
    *ret_n = n;
    return 0;
}

/* Whether the level after this change lasts. */
static bool is_level(const struct level_change *changes, size_t n, size_t i) {
    return i + 1 == n || changes[i + 1].tick != changes[i].tick ||
           changes[i + 1].device != changes[i].device;
}

/* Peaks by device. */
static int measure(const struct timeline_run *t, struct assignment *plan) {
    const struct task_graph *g = t->graph;
    cleanup(freep) struct level_change *changes = NULL;
    size_t n;
    int r = find_changes(t, &changes, &n);

    if (r < 0)
        return r;
    memset(plan->peak_bytes, 0, g->n_devices * sizeof(*plan->peak_bytes));
    for (size_t i = 0, level = 0; i < n; i++) {
        if (i == 0 || changes[i].device != changes[i - 1].device)
            level = 0;
        level += (size_t)changes[i].bytes;
        if (is_level(changes, n, i))
            plan->peak_bytes[changes[i].device] =
                MAX(plan->peak_bytes[changes[i].device], (uint64_t)level);
    }
    for (uint32_t v = 0; v < g->n_tasks; v++)
        plan->peak_bytes[plan->device[v]] += g->resident_bytes[v];
    return 0;
}

/* From the first task to the last that can run. */
static int play(struct timeline_run *t) {
    const struct task_graph *g = t->graph;
    const struct assignment *plan = t->plan;
    size_t n = (size_t)g->n_tasks + 1;
    int r;

    t->missing = malloc(n * sizeof(*t->missing));
    t->start = malloc(n * sizeof(*t->start));
    t->end = malloc(n * sizeof(*t->end));
    t->first = malloc((g->n_channels + 1) * sizeof(*t->first));
    t->last = malloc((g->n_channels + 1) * sizeof(*t->last));
    t->carried = malloc((g->n_channels + 1) * sizeof(*t->carried));
    t->heap.events = malloc((g->n_devices + g->n_channels + 1) * sizeof(*t->heap.events));
    if (!t->missing || !t->start || !t->end || !t->first || !t->last || !t->carried ||
        !t->heap.events)
        return -ENOMEM;
    for (uint32_t v = 0; v < g->n_tasks; v++)
        t->missing[v] = g->inputs.first[v + 1] - g->inputs.first[v] + g->before.first[v + 1] -
                        g->before.first[v];
    for (uint32_t c = 0; c < g->n_channels; c++)
        t->first[c] = t->last[c] = t->carried[c] = TASK_GRAPH_NONE;
    for (uint32_t d = 0; d < g->n_devices; d++) {
        t->running[d] = TASK_GRAPH_NONE;
        t->at[d] = plan->first[d];
    }
    for (;;) {
        r = advance(t);
        if (r < 0)
            return r;
        if (t->heap.n == 0)
            break;
        t->now = t->heap.events[0].time;
    }
    return 0;
}

int timeline_run(const struct task_graph *g, struct assignment *plan, double *ret_start,
                 enum timeline_fault *ret_fault) {
    cleanup(timeline_done) struct timeline_run t = { .graph = g, .plan = plan };
    int r;

    *ret_fault = check(g, plan);
    if (*ret_fault != TIMELINE_OK)
        return 0;
    r = play(&t);
    if (r < 0)
        return r;
    for (uint32_t d = 0; d < g->n_devices; d++)
        if (t.at[d] < plan->first[d + 1]) {
            *ret_fault = TIMELINE_DEADLOCK;
            return 0;
        }
    plan->makespan_usec = 0;
    for (uint32_t v = 0; v < g->n_tasks; v++)
        plan->makespan_usec = fmax(plan->makespan_usec, t.end[v]);
    r = measure(&t, plan);
    if (r < 0)
        return r;
    for (uint32_t d = 0; d < g->n_devices; d++)
        if (plan->peak_bytes[d] > g->memory_bytes[d])
            *ret_fault = TIMELINE_MEMORY;
    if (ret_start)
        memcpy(ret_start, t.start, g->n_tasks * sizeof(*ret_start));
    return 0;
}

/* ---- For people ------------------------------------------------------------------------------ */

void timeline_record_done(struct timeline_record *record) {
    free(record->start_usec);
    free(record->transfers);
    free(record->levels);
    free(record->first_level);
}

/* Levels from the changes: one at the beginning of every device, and one wherever it changes. */
static int record_levels(const struct timeline_run *t, struct timeline_record *ret) {
    const struct task_graph *g = t->graph;
    cleanup(freep) struct level_change *changes = NULL;
    size_t n = 0, n_levels = 0, i = 0;
    int r = find_changes(t, &changes, &n);

    ret->levels = malloc((n + g->n_devices + 1) * sizeof(*ret->levels));
    ret->first_level = malloc(((size_t)g->n_devices + 1) * sizeof(*ret->first_level));
    if (r < 0 || !ret->levels || !ret->first_level)
        return -ENOMEM;
    for (uint32_t d = 0; d < g->n_devices; d++) {
        uint64_t bytes = 0;

        ret->first_level[d] = n_levels;
        for (uint32_t v = 0; v < g->n_tasks; v++)
            bytes += t->plan->device[v] == d ? g->resident_bytes[v] : 0;
        ret->levels[n_levels++] = (struct timeline_level){ 0, bytes };
        for (; i < n && changes[i].device == d; i++) {
            bytes += (uint64_t)changes[i].bytes;
            if (is_level(changes, n, i))
                ret->levels[n_levels++] =
                    (struct timeline_level){ (double)changes[i].tick / 1e6, bytes };
        }
    }
    ret->first_level[g->n_devices] = n_levels;
    return 0;
}

int timeline_record(const struct task_graph *g, const struct assignment *plan,
                    struct timeline_record *ret) {
    cleanup(timeline_done) struct timeline_run t = { .graph = g, .plan = plan };
    struct timeline_record record = { 0 };
    int r = play(&t);

    if (r == 0) {
        record.transfers = malloc((t.n_transfers + 1) * sizeof(*record.transfers));
        r = record.transfers ? record_levels(&t, &record) : -ENOMEM;
    }
    if (r < 0) {
        timeline_record_done(&record);
        return r;
    }
    for (size_t i = 0; i < t.n_transfers; i++) {
        const struct transfer *from = &t.transfers[i];

        record.transfers[i] =
            (struct timeline_transfer){ from->task, from->to, from->start, from->end };
    }
    record.n_transfers = t.n_transfers;
    record.start_usec = TAKE(t.start);
    *ret = record;
    return 0;
}
