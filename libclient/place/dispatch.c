/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One moment after the other: everything that ends now ends; every idle device starts its first
 * ready task, again and again while tasks without duration end; then idle channels take the first
 * of their queues. (libclient/place/timeline.c runs a given order by the same rules.)
 *
 * The ready tasks of a device are a set of slots: a bit for each, a bit for each 64 of those, and
 * so on, so that the lowest slot is found by three counts of zeros. What changes while a step runs
 * lies in one block of memory, so that a snapshot is one copy.
 */
#include "libclient/place/dispatch.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/event_heap.h"

struct queued {
    double since;
    uint32_t task, to;
    uint32_t previous, next; /* in the channel's queue */
};

/* What a channel or a device does now. */
struct channel_use {
    uint32_t task, to, log; /* being carried; task NONE: idle */
    uint32_t first, last;   /* queue; NONE: empty */
};

/* The fixed part of the block. */
struct moment_state {
    double now;
    uint32_t n_started, n_log, n_queued;
    struct event_heap heap; /* of `events` */
    double last_end;
    uint32_t last_task;
    uint64_t idle, offered; /* bit masks of devices: without a task; with ready tasks */
    uint64_t media;         /* that carry something */
};

struct dispatch_snapshot {
    bool is_valid;
    double now;
    uint8_t *block;
    struct queued *queued; /* what was queued, channel by channel */
    uint32_t n_queued, queued_size;
};

struct dispatch {
    const struct task_graph *graph;
    uint64_t n_simulated;                    /* tasks and transfers */
    uint32_t n_slots, words, words1, words2; /* of one device's set */

    double *tail;   /* by task: the least time from its end to the end of the step */
    uint32_t *need; /* of a fresh step: inputs and predecessors by task */

    /* The block, and what lies in it. */
    uint8_t *block;
    size_t block_size;
    struct moment_state *state;
    uint32_t *missing;               /* by task */
    uint64_t *ready;                 /* by device: words, words1, words2 */
    uint32_t *running;               /* by device: task, unless it is idle */
    uint32_t *latest;                /* by device: the task that started last */
    double *started_usec;            /* by device */
    struct channel_use *uses;        /* by channel */
    struct event_heap_entry *events; /* of the heap */
    uint64_t *live, *peak;           /* by device; only if capped */
    uint32_t *left;                  /* by task: what keeps its output alive; only if capped */
    uint32_t *copy_left;             /* by task and device; only if capped */

    struct queued *queue; /* pool */
    uint32_t queue_size;
    uint32_t *touched; /* channels that may carry something now */
    struct dispatch_snapshot snapshots[DISPATCH_SNAPSHOTS];
    struct dispatch_record record;
    uint32_t n_snapshots;
};

static size_t aligned(size_t n) {
    return (n + 63) & ~(size_t)63;
}

/* NULL: only find the size. */
static void layout(struct dispatch *s, uint8_t *block) {
    const struct task_graph *g = s->graph;
    size_t n = g->n_tasks, d = g->n_devices, set = s->words + s->words1 + s->words2;
    size_t at = 0;

#define PART(field, bytes)                                                                         \
    do {                                                                                           \
        if (block)                                                                                 \
            s->field = (void *)(block + at);                                                       \
        at += aligned(bytes);                                                                      \
    } while (0)
    PART(state, sizeof(*s->state));
    PART(missing, n * sizeof(*s->missing));
    PART(ready, d * set * sizeof(*s->ready));
    PART(running, d * sizeof(*s->running));
    PART(latest, d * sizeof(*s->latest));
    PART(started_usec, d * sizeof(*s->started_usec));
    PART(uses, g->n_channels * sizeof(*s->uses));
    PART(events, (d + g->n_channels) * sizeof(*s->events));
    if (g->is_capped) {
        PART(live, d * sizeof(*s->live));
        PART(peak, d * sizeof(*s->peak));
        PART(left, n * sizeof(*s->left));
        PART(copy_left, n * d * sizeof(*s->copy_left));
    }
#undef PART
    s->block_size = at;
}

static uint64_t *ready_of(const struct dispatch *s, uint32_t device) {
    return s->ready + (size_t)device * (s->words + s->words1 + s->words2);
}

static inline void ready_put(const struct dispatch *s, uint32_t device, uint32_t slot) {
    uint64_t *set = ready_of(s, device);

    set[slot >> 6] |= UINT64_C(1) << (slot & 63);
    set[s->words + (slot >> 12)] |= UINT64_C(1) << (slot >> 6 & 63);
    set[s->words + s->words1 + (slot >> 18)] |= UINT64_C(1) << (slot >> 12 & 63);
}

/* The set must not be empty. */
static inline uint32_t ready_take(const struct dispatch *s, uint32_t device, bool *ret_is_last) {
    uint64_t *set = ready_of(s, device), *set1 = set + s->words, *set2 = set1 + s->words1;
    uint32_t i = 0, slot;

    while (!set2[i])
        i++;
    slot = i << 6 | (uint32_t)__builtin_ctzll(set2[i]);
    slot = slot << 6 | (uint32_t)__builtin_ctzll(set1[slot]);
    slot = slot << 6 | (uint32_t)__builtin_ctzll(set[slot]);
    *ret_is_last = false;
    if (!(set[slot >> 6] &= set[slot >> 6] - 1))
        if (!(set1[slot >> 12] &= set1[slot >> 12] - 1))
            if (!(set2[slot >> 18] &= set2[slot >> 18] - 1)) {
                while (i < s->words2 && !set2[i])
                    i++;
                *ret_is_last = i == s->words2;
            }
    return slot;
}

static inline void became_ready(struct dispatch *s, const struct dispatch_input *plan,
                                uint32_t task, uint32_t cause, uint32_t arrival,
                                bool is_recording) {
    ready_put(s, plan->device[task], plan->slot[task]);
    s->state->offered |= UINT64_C(1) << plan->device[task];
    if (is_recording) {
        s->record.ready[task] = s->state->now;
        s->record.cause[task] = cause;
        s->record.arrival[task] = arrival;
    }
}

static inline void release(struct dispatch *s, uint32_t task, uint32_t device) {
    if (--s->left[task] == 0)
        s->live[device] -= s->graph->own_bytes[task];
}

/* A task has ended: each of its inputs has one user less. */
static inline void consume(struct dispatch *s, const struct dispatch_input *plan, uint32_t task,
                           uint32_t here) {
    const struct order_lists *inputs = &s->graph->inputs;

    for (uint32_t i = inputs->first[task]; i < inputs->first[task + 1]; i++) {
        uint32_t u = inputs->items[i];

        if (plan->device[u] == here)
            release(s, u, here);
        else if (--s->copy_left[(size_t)u * s->graph->n_devices + here] == 0)
            s->live[here] -= s->graph->output_bytes[u];
    }
}

static inline void enqueue(struct dispatch *s, uint32_t task, uint32_t from, uint32_t to,
                           uint32_t *n_touched) {
    uint32_t channel = task_graph_link(s->graph, from, to)->channel;
    struct channel_use *use = &s->uses[channel];
    uint32_t i = s->state->n_queued++, after = use->last;
    double now = s->state->now;

    s->queue[i] = (struct queued){ now, task, to, TASK_GRAPH_NONE, TASK_GRAPH_NONE };
    while (
        after != TASK_GRAPH_NONE && s->queue[after].since == now &&
        (s->queue[after].task > task || (s->queue[after].task == task && s->queue[after].to > to)))
        after = s->queue[after].previous;
    s->queue[i].previous = after;
    if (after == TASK_GRAPH_NONE) {
        s->queue[i].next = use->first;
        use->first = i;
    } else {
        s->queue[i].next = s->queue[after].next;
        s->queue[after].next = i;
    }
    if (s->queue[i].next == TASK_GRAPH_NONE)
        use->last = i;
    else
        s->queue[s->queue[i].next].previous = i;
    if (use->task == TASK_GRAPH_NONE)
        s->touched[(*n_touched)++] = channel;
}

static inline void end_task(struct dispatch *s, const struct dispatch_input *plan, uint32_t here,
                            uint32_t *n_touched, bool is_recording, bool is_capped) {
    const struct task_graph *g = s->graph;
    uint32_t v = s->running[here];
    uint64_t away = 0;

    s->state->idle |= UINT64_C(1) << here;
    s->state->last_end = s->state->now;
    s->state->last_task = v;
    if (is_recording)
        s->record.end[v] = s->state->now;
    if (is_capped) {
        consume(s, plan, v, here);
        release(s, v, here);
    }
    for (uint32_t i = g->consumers.first[v]; i < g->consumers.first[v + 1]; i++) {
        uint32_t w = g->consumers.items[i], there = plan->device[w];

        if (there != here)
            away |= UINT64_C(1) << there;
        else if (--s->missing[w] == 0)
            became_ready(s, plan, w, v, TASK_GRAPH_NONE, is_recording);
    }
    for (uint32_t i = g->unlocks.first[v]; i < g->unlocks.first[v + 1]; i++)
        if (--s->missing[g->unlocks.items[i]] == 0)
            became_ready(s, plan, g->unlocks.items[i], v, TASK_GRAPH_NONE, is_recording);
    for (; away; away &= away - 1)
        enqueue(s, v, here, (uint32_t)__builtin_ctzll(away), n_touched);
}

static inline void end_transfer(struct dispatch *s, const struct dispatch_input *plan,
                                uint32_t channel, uint32_t *n_touched, bool is_recording,
                                bool is_capped) {
    const struct task_graph *g = s->graph;
    struct channel_use *use = &s->uses[channel];
    uint32_t u = use->task, to = use->to;

    use->task = TASK_GRAPH_NONE;
    s->state->media &= ~task_graph_link(g, plan->device[u], to)->media;
    if (use->first != TASK_GRAPH_NONE)
        s->touched[(*n_touched)++] = channel;
    if (is_capped)
        release(s, u, plan->device[u]);
    for (uint32_t i = g->consumers.first[u]; i < g->consumers.first[u + 1]; i++) {
        uint32_t w = g->consumers.items[i];

        if (plan->device[w] == to && --s->missing[w] == 0)
            became_ready(s, plan, w, u, use->log, is_recording);
    }
}

static inline void hold(struct dispatch *s, uint32_t device, uint64_t bytes) {
    s->live[device] += bytes;
    if (s->live[device] > s->peak[device])
        s->peak[device] = s->live[device];
}

/*
 * Count what keeps an output alive: its own run, its consumers here, its transfers; without
 * consumers the whole step.
 */
static inline void begin_output(struct dispatch *s, const struct dispatch_input *plan, uint32_t v,
                                uint32_t here) {
    const struct task_graph *g = s->graph;
    uint32_t first = g->consumers.first[v], last = g->consumers.first[v + 1], left = 1;
    uint64_t away = 0;

    for (uint32_t i = first; i < last; i++) {
        uint32_t there = plan->device[g->consumers.items[i]];

        if (there == here)
            left++;
        else {
            if (!(away >> there & 1))
                s->copy_left[(size_t)v * g->n_devices + there] = 0;
            s->copy_left[(size_t)v * g->n_devices + there]++;
            away |= UINT64_C(1) << there;
        }
    }
    s->left[v] = left + (uint32_t)__builtin_popcountll(away) + (first == last);
    hold(s, here, g->own_bytes[v]);
}

static inline bool start_tasks(struct dispatch *s, const struct dispatch_input *plan, double limit,
                               bool is_recording, bool is_capped) {
    const struct task_graph *g = s->graph;
    double now = s->state->now;

    for (uint64_t able = s->state->idle & s->state->offered; able; able &= able - 1) {
        uint32_t d = (uint32_t)__builtin_ctzll(able);
        bool is_last;
        uint32_t v = plan->task_at[ready_take(s, d, &is_last)];
        double end;

        s->state->idle &= ~(able & -able);
        if (is_last)
            s->state->offered &= ~(able & -able);
        end = now + task_graph_cost(g, v, d);
        if (!is_recording &&
            (now + (plan->load_usec[d] - s->started_usec[d]) > limit || end + s->tail[v] > limit))
            return false;
        s->started_usec[d] += end - now;
        if (is_recording) {
            s->record.start[v] = now;
            s->record.before[v] = s->latest[d];
            s->record.sequence[s->state->n_started] = v;
        }
        s->state->n_started++;
        s->latest[d] = v;
        s->running[d] = v;
        if (is_capped)
            begin_output(s, plan, v, d);
        event_heap_put(&s->state->heap, end, d);
    }
    return true;
}

static inline void start_transfer(struct dispatch *s, const struct dispatch_input *plan,
                                  uint32_t channel, bool is_recording, bool is_capped) {
    const struct task_graph *g = s->graph;
    struct channel_use *use = &s->uses[channel];
    struct queued *q = &s->queue[use->first];
    double end = s->state->now + task_graph_transfer(g, q->task, plan->device[q->task], q->to);

    use->task = q->task;
    use->to = q->to;
    use->first = q->next;
    if (q->next == TASK_GRAPH_NONE)
        use->last = TASK_GRAPH_NONE;
    else
        s->queue[q->next].previous = TASK_GRAPH_NONE;
    if (is_recording) {
        s->record.transfers[s->state->n_log] =
            (struct dispatch_transfer){ q->task, q->to, s->state->now, end, use->log };
        use->log = s->state->n_log;
    }
    s->state->n_log++;
    s->state->media |= task_graph_link(g, plan->device[q->task], q->to)->media;
    if (is_capped)
        hold(s, q->to, g->output_bytes[q->task]);
    event_heap_put(&s->state->heap, end, g->n_devices + channel);
}

static inline bool is_before(const struct queued *a, const struct queued *b) {
    if (a->since != b->since)
        return a->since < b->since;
    return a->task != b->task ? a->task < b->task : a->to < b->to;
}

/* Of the transfers whose channel and media are free, the one that was queued first; NONE. */
static uint32_t next_channel(const struct dispatch *s, const struct dispatch_input *plan) {
    const struct task_graph *g = s->graph;
    uint32_t best = TASK_GRAPH_NONE;

    for (uint32_t c = 0; c < g->n_channels; c++) {
        const struct queued *q = &s->queue[s->uses[c].first];

        if (s->uses[c].task != TASK_GRAPH_NONE || s->uses[c].first == TASK_GRAPH_NONE ||
            task_graph_link(g, plan->device[q->task], q->to)->media & s->state->media)
            continue;
        if (best == TASK_GRAPH_NONE || is_before(q, &s->queue[s->uses[best].first]))
            best = c;
    }
    return best;
}

static inline void start_transfers(struct dispatch *s, const struct dispatch_input *plan,
                                   uint32_t n_touched, bool is_recording, bool is_capped) {
    if (s->graph->has_media)
        for (uint32_t c; (c = next_channel(s, plan)) != TASK_GRAPH_NONE;)
            start_transfer(s, plan, c, is_recording, is_capped);
    else
        for (uint32_t i = 0; i < n_touched; i++)
            if (s->uses[s->touched[i]].task == TASK_GRAPH_NONE &&
                s->uses[s->touched[i]].first != TASK_GRAPH_NONE)
                start_transfer(s, plan, s->touched[i], is_recording, is_capped);
}

static void snapshot_take(struct dispatch *s, struct dispatch_snapshot *snapshot) {
    uint32_t n = 0;

    for (uint32_t c = 0; c < s->graph->n_channels; c++)
        for (uint32_t i = s->uses[c].first; i != TASK_GRAPH_NONE; i = s->queue[i].next)
            n++;
    if (n > snapshot->queued_size) {
        struct queued *more = realloc(snapshot->queued, (size_t)n * 2 * sizeof(*more));

        if (!more) {
            snapshot->is_valid = false; /* a trial then begins earlier */
            return;
        }
        snapshot->queued = more;
        snapshot->queued_size = n * 2;
    }
    n = 0;
    for (uint32_t c = 0; c < s->graph->n_channels; c++)
        for (uint32_t i = s->uses[c].first; i != TASK_GRAPH_NONE; i = s->queue[i].next) {
            snapshot->queued[n] = s->queue[i];
            snapshot->queued[n++].previous = c;
        }
    memcpy(snapshot->block, s->block, s->block_size);
    snapshot->n_queued = n;
    snapshot->now = s->state->now;
    snapshot->is_valid = true;
}

static void snapshot_restore(struct dispatch *s, const struct dispatch_snapshot *snapshot) {
    memcpy(s->block, snapshot->block, s->block_size);
    s->state->n_queued = 0;
    for (uint32_t i = 0; i < snapshot->n_queued; i++) {
        uint32_t channel = snapshot->queued[i].previous, at = s->state->n_queued++;
        struct channel_use *use = &s->uses[channel];
        bool is_first = i == 0 || snapshot->queued[i - 1].previous != channel;

        s->queue[at] = snapshot->queued[i];
        s->queue[at].previous = is_first ? TASK_GRAPH_NONE : at - 1;
        s->queue[at].next = TASK_GRAPH_NONE;
        if (is_first)
            use->first = at;
        else
            s->queue[at - 1].next = at;
        use->last = at;
    }
}

static void begin(struct dispatch *s, const struct dispatch_input *plan, bool is_recording) {
    const struct task_graph *g = s->graph;

    memset(s->block, 0, s->block_size);
    memcpy(s->missing, s->need, (size_t)g->n_tasks * sizeof(*s->missing));
    s->state->idle = g->n_devices == 64 ? UINT64_MAX : (UINT64_C(1) << g->n_devices) - 1;
    for (uint32_t d = 0; d < g->n_devices; d++)
        s->latest[d] = TASK_GRAPH_NONE;
    for (uint32_t c = 0; c < g->n_channels; c++)
        s->uses[c] = (struct channel_use){ TASK_GRAPH_NONE, 0, TASK_GRAPH_NONE, TASK_GRAPH_NONE,
                                           TASK_GRAPH_NONE };
    s->state->last_task = TASK_GRAPH_NONE;
    s->state->heap.events = s->events;
    for (uint32_t i = 0; i < g->n_tasks && !s->missing[g->topological[i]]; i++)
        became_ready(s, plan, g->topological[i], TASK_GRAPH_NONE, TASK_GRAPH_NONE, is_recording);
}

/* The snapshots lie at equal counts of started tasks. */
static inline uint32_t snapshot_due(const struct dispatch *s, uint32_t n_started) {
    return (uint32_t)((uint64_t)n_started * (s->n_snapshots + 1) / (s->graph->n_tasks + 1));
}

static __attribute__((always_inline)) inline bool run(struct dispatch *s,
                                                      const struct dispatch_input *plan,
                                                      double limit, bool is_fresh,
                                                      bool is_recording, bool is_capped) {
    struct moment_state *state = s->state;
    uint32_t n_touched = 0, taken = snapshot_due(s, state->n_started);
    uint32_t before = state->n_started + state->n_log;

    while (is_fresh || state->heap.n > 0) {
        if (!is_fresh)
            state->now = s->events[0].time;
        is_fresh = false;
        do {
            while (event_heap_is_due(&state->heap, state->now)) {
                uint32_t resource = event_heap_take(&state->heap);

                if (resource < s->graph->n_devices)
                    end_task(s, plan, resource, &n_touched, is_recording, is_capped);
                else
                    end_transfer(s, plan, resource - s->graph->n_devices, &n_touched, is_recording,
                                 is_capped);
            }
            if (!start_tasks(s, plan, limit, is_recording, is_capped)) {
                s->n_simulated += state->n_started + state->n_log - before;
                return false;
            }
        } while (event_heap_is_due(&state->heap, state->now));
        start_transfers(s, plan, n_touched, is_recording, is_capped);
        n_touched = 0;
        if (is_recording && snapshot_due(s, state->n_started) > taken) {
            uint32_t due = snapshot_due(s, state->n_started);

            for (uint32_t i = taken; i < due && i < s->n_snapshots; i++)
                s->snapshots[i].is_valid = false;
            taken = due;
            if (due <= s->n_snapshots && state->n_started < s->graph->n_tasks)
                snapshot_take(s, &s->snapshots[due - 1]);
        }
    }
    s->n_simulated += state->n_started + state->n_log - before;
    return true;
}

static bool restore(struct dispatch *s, const struct dispatch_input *plan, double since,
                    bool is_recording) {
    for (uint32_t i = s->n_snapshots; i-- > 0;)
        if (s->snapshots[i].is_valid) {
            if (s->snapshots[i].now < since) {
                snapshot_restore(s, &s->snapshots[i]);
                return true;
            }
            if (is_recording)
                s->snapshots[i].is_valid = false;
        }
    begin(s, plan, is_recording);
    return false;
}

static double overflow(const struct dispatch *s, const struct dispatch_input *plan) {
    double sum = 0;

    for (uint32_t d = 0; s->graph->is_capped && d < s->graph->n_devices; d++) {
        uint64_t cap = s->graph->memory_bytes[d], used = s->peak[d] + plan->resident_bytes[d];

        if (used > cap)
            sum += (double)(used - cap) / (double)(cap + 1);
    }
    return sum;
}

const struct dispatch_record *dispatch_record(struct dispatch *s, const struct dispatch_input *plan,
                                              double since) {
    bool is_restored = restore(s, plan, since, true);

    if (s->graph->is_capped)
        run(s, plan, INFINITY, !is_restored, true, true);
    else
        run(s, plan, INFINITY, !is_restored, true, false);
    s->record.makespan = s->state->last_end;
    s->record.last = s->state->last_task;
    s->record.n_transfers = s->state->n_log;
    s->record.overflow = overflow(s, plan);
    for (uint32_t d = 0; d < s->graph->n_devices; d++)
        s->record.peak_bytes[d] = plan->resident_bytes[d] + (s->graph->is_capped ? s->peak[d] : 0);
    return &s->record;
}

bool dispatch_try(struct dispatch *s, const struct dispatch_input *plan, double since, double limit,
                  double *ret_makespan, double *ret_overflow) {
    bool is_restored = restore(s, plan, since, false), is_done;

    if (s->graph->is_capped)
        is_done = run(s, plan, limit, !is_restored, false, true);
    else
        is_done = run(s, plan, limit, !is_restored, false, false);
    if (!is_done || s->state->last_end > limit)
        return false;
    *ret_makespan = s->state->last_end;
    *ret_overflow = overflow(s, plan);
    return true;
}

uint64_t dispatch_events(const struct dispatch *s) {
    return s->n_simulated;
}

struct dispatch *dispatch_free(struct dispatch *s) {
    if (!s)
        return NULL;
    for (uint32_t i = 0; i < DISPATCH_SNAPSHOTS; i++) {
        free(s->snapshots[i].block);
        free(s->snapshots[i].queued);
    }
    free(s->tail);
    free(s->need);
    free(s->block);
    free(s->queue);
    free(s->touched);
    free(s->record.start);
    free(s->record.end);
    free(s->record.ready);
    free(s->record.cause);
    free(s->record.before);
    free(s->record.sequence);
    free(s->record.arrival);
    free(s->record.transfers);
    free(s->record.peak_bytes);
    free(s);
    return NULL;
}

/* At most one transfer for each edge of data, and for each task and other device. */
static uint32_t most_transfers(const struct task_graph *g) {
    uint64_t n = 0;

    for (uint32_t v = 0; v < g->n_tasks; v++) {
        uint32_t consumers = g->consumers.first[v + 1] - g->consumers.first[v];

        n += consumers < g->n_devices - 1 ? consumers : g->n_devices - 1;
    }
    return (uint32_t)n;
}

int dispatch_new(struct dispatch **ret, const struct task_graph *g) {
    struct dispatch *s = calloc(1, sizeof(*s));
    size_t n = (size_t)g->n_tasks + 1, n_transfers = (size_t)most_transfers(g) + 1;
    bool is_short = false;

    if (!s)
        return -ENOMEM;
    s->graph = g;
    s->n_slots = g->n_tasks * 4;
    s->words = (s->n_slots + 63) / 64 + 1;
    s->words1 = (s->words + 63) / 64 + 1;
    s->words2 = (s->words1 + 63) / 64;
    layout(s, NULL);
    s->tail = calloc(n, sizeof(*s->tail));
    s->need = calloc(n, sizeof(*s->need));
    s->block = aligned_alloc(64, aligned(s->block_size));
    s->queue = malloc(n_transfers * sizeof(*s->queue));
    s->touched =
        malloc((2 * (size_t)g->n_devices * g->n_devices + n_transfers) * sizeof(*s->touched));
    s->record.start = calloc(n, sizeof(double));
    s->record.end = calloc(n, sizeof(double));
    s->record.ready = calloc(n, sizeof(double));
    s->record.cause = calloc(n, sizeof(uint32_t));
    s->record.before = calloc(n, sizeof(uint32_t));
    s->record.sequence = calloc(n, sizeof(uint32_t));
    s->record.arrival = calloc(n, sizeof(uint32_t));
    s->record.transfers = calloc(n_transfers, sizeof(*s->record.transfers));
    s->record.peak_bytes = calloc(g->n_devices, sizeof(uint64_t));
    s->n_snapshots = MIN(MAX(g->n_tasks / 32, 3u), g->n_tasks > 20000 ? 6u : DISPATCH_SNAPSHOTS);
    for (uint32_t i = 0; i < s->n_snapshots; i++) {
        s->snapshots[i].block = malloc(s->block_size);
        is_short |= !s->snapshots[i].block;
    }
    if (!s->tail || !s->need || !s->block || !s->queue || !s->touched || !s->record.start ||
        !s->record.end || !s->record.ready || !s->record.cause || !s->record.before ||
        !s->record.sequence || !s->record.arrival || !s->record.transfers ||
        !s->record.peak_bytes || is_short) {
        dispatch_free(s);
        return -ENOMEM;
    }
    layout(s, s->block);
    for (uint32_t i = g->n_tasks; i-- > 0;) {
        uint32_t v = g->topological[i];
        const struct order_lists *ways[] = { &g->consumers, &g->unlocks };

        s->need[v] = g->inputs.first[v + 1] - g->inputs.first[v] + g->before.first[v + 1] -
                     g->before.first[v];
        for (unsigned k = 0; k < 2; k++)
            for (uint32_t j = ways[k]->first[v]; j < ways[k]->first[v + 1]; j++) {
                uint32_t w = ways[k]->items[j];
                double least = INFINITY;

                for (uint32_t d = 0; d < g->n_devices; d++)
                    if (g->allowed[g->unit[w]] >> d & 1)
                        least = fmin(least, task_graph_cost(g, w, d));
                s->tail[v] = fmax(s->tail[v], least + s->tail[w]);
            }
    }
    *ret = s;
    return 0;
}
