/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/search.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "libclient/place/dispatch.h"

struct undo {
    uint32_t task, device, slot; /* as they were */
};

struct search {
    const struct task_graph *graph;
    const struct search_options *options;
    struct dispatch *dispatch;
    struct dispatch_input plan;
    const struct dispatch_record *record;
    uint64_t random;
    double cost; /* of the current plan */
    double penalty;

    uint32_t *critical, n_critical;
    bool is_critical_stale;

    struct undo *changes; /* at most one of each task */
    uint32_t n_changes;
    double since; /* the changed plan is as recorded until then */

    uint32_t *best_device, *best_sequence;
    double best;

    bool has_all_links, has_stopped;
    uint64_t begun_at; /* events when the search began */
    uint64_t asked_at; /* events when the caller was last asked whether to stop, and for `used` */
    double used_first, used;
    uint32_t n_idle; /* moves in a row that changed nothing */
};

#define ASK_EVENTS 8192
#define IDLE_MAX   100000

static uint32_t below(struct search *s, uint32_t n) {
    return (uint32_t)((random_next(&s->random) >> 32) * n >> 32);
}

static double unit_interval(struct search *s) {
    return ((double)(random_next(&s->random) >> 11) + 0.5) * 0x1p-53;
}

static double cost_of(const struct search *s, double makespan, double overflow) {
    return makespan * (1 + s->penalty * overflow);
}

/* What decided when the step ended, from its end to its beginning. */
static void find_critical(struct search *s) {
    const struct dispatch_record *r = s->record;
    uint32_t v = r->last, n = 0;

    while (v != TASK_GRAPH_NONE && n < s->graph->n_tasks) {
        s->critical[n++] = v;
        if (r->start[v] > r->ready[v])
            v = r->before[v];
        else if (r->arrival[v] != TASK_GRAPH_NONE) {
            const struct dispatch_transfer *t = &r->transfers[r->arrival[v]];

            while (t->start > r->end[t->task] && t->before != TASK_GRAPH_NONE &&
                   n < s->graph->n_tasks) {
                s->critical[n++] = t->task;
                t = &r->transfers[t->before];
            }
            v = t->task;
        } else
            v = r->cause[v];
    }
    s->n_critical = n;
    s->is_critical_stale = false;
}

static uint32_t pick(struct search *s, unsigned percent_critical) {
    if (below(s, 100) >= percent_critical)
        return below(s, s->graph->n_tasks);
    if (s->is_critical_stale)
        find_critical(s);
    return s->n_critical > 0 ? s->critical[below(s, s->n_critical)] : 0;
}

static uint32_t n_inputs(const struct task_graph *g, uint32_t v) {
    return g->inputs.first[v + 1] - g->inputs.first[v];
}

static uint32_t n_consumers(const struct task_graph *g, uint32_t v) {
    return g->consumers.first[v + 1] - g->consumers.first[v];
}

/* A random producer or consumer; NONE: it has neither. */
static uint32_t neighbour(struct search *s, uint32_t v) {
    const struct task_graph *g = s->graph;
    uint32_t in = n_inputs(g, v), out = n_consumers(g, v), i;

    if (in + out == 0)
        return TASK_GRAPH_NONE;
    i = below(s, in + out);
    return i < in ? g->inputs.items[g->inputs.first[v] + i]
                  : g->consumers.items[g->consumers.first[v] + i - in];
}

/* The first moment at which a change of the task's device shows. */
static double shows_device(const struct search *s, uint32_t v) {
    const struct task_graph *g = s->graph;
    const double *at = g->is_capped ? s->record->start : s->record->end;
    double since = s->record->ready[v];

    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++)
        since = fmin(since, at[g->inputs.items[i]]);
    return since;
}

static bool is_linked(const struct search *s, uint32_t v, uint32_t device) {
    const struct task_graph *g = s->graph;

    for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++) {
        uint32_t from = s->plan.device[g->inputs.items[i]];

        if (from != device && !(task_graph_link(g, from, device)->bytes_per_usec > 0))
            return false;
    }
    for (uint32_t i = g->consumers.first[v]; i < g->consumers.first[v + 1]; i++) {
        uint32_t to = s->plan.device[g->consumers.items[i]];

        if (to != device && !(task_graph_link(g, device, to)->bytes_per_usec > 0))
            return false;
    }
    return true;
}

static void set_device(struct search *s, uint32_t v, uint32_t device) {
    const struct task_graph *g = s->graph;
    uint32_t old = s->plan.device[v];

    s->plan.load_usec[old] -= task_graph_cost(g, v, old);
    s->plan.resident_bytes[old] -= g->resident_bytes[v];
    s->plan.load_usec[device] += task_graph_cost(g, v, device);
    s->plan.resident_bytes[device] += g->resident_bytes[v];
    s->plan.device[v] = device;
}

/* Move a task and its unit. False: it may not go there, or the move has too many parts. */
static bool move_unit(struct search *s, uint32_t v, uint32_t device) {
    const struct task_graph *g = s->graph;
    uint32_t unit = g->unit[v];

    if (!(g->allowed[unit] >> device & 1) || s->plan.device[v] == device)
        return false;
    for (uint32_t i = g->members.first[unit]; i < g->members.first[unit + 1]; i++) {
        uint32_t w = g->members.items[i];

        s->changes[s->n_changes++] = (struct undo){ w, s->plan.device[w], s->plan.slot[w] };
        s->since = fmin(s->since, shows_device(s, w));
        set_device(s, w, device);
    }
    return true;
}

static void set_slot(struct search *s, uint32_t v, uint32_t slot) {
    s->plan.task_at[s->plan.slot[v]] = TASK_GRAPH_NONE;
    s->plan.slot[v] = slot;
    s->plan.task_at[slot] = v;
}

static bool move_slot(struct search *s, uint32_t v, uint32_t near) {
    uint32_t slot = near;

    for (unsigned i = 0; i < 64 && slot > 0; i++)
        if (s->plan.task_at[--slot] == TASK_GRAPH_NONE) {
            uint32_t low = slot;

            while (low > 0 && low + 8 > slot && s->plan.task_at[low - 1] == TASK_GRAPH_NONE)
                low--;
            slot = low + (slot - low) / 2;
            s->changes[s->n_changes++] = (struct undo){ v, s->plan.device[v], s->plan.slot[v] };
            s->since = fmin(s->since, s->record->ready[v]);
            set_slot(s, v, slot);
            return true;
        }
    return false;
}

static void undo(struct search *s) {
    while (s->n_changes > 0) {
        const struct undo *change = &s->changes[--s->n_changes];

        if (s->plan.device[change->task] != change->device)
            set_device(s, change->task, change->device);
        if (s->plan.slot[change->task] != change->slot)
            set_slot(s, change->task, change->slot);
    }
}

/* Another device for a task: mostly one where a neighbour is. */
static uint32_t pick_device(struct search *s, uint32_t v) {
    const struct task_graph *g = s->graph;

    for (unsigned i = 0; i < 3 && below(s, 100) < 70; i++) {
        uint32_t w = neighbour(s, v);

        if (w != TASK_GRAPH_NONE && s->plan.device[w] != s->plan.device[v])
            return s->plan.device[w];
    }
    return below(s, g->n_devices);
}

static bool try_device(struct search *s) {
    uint32_t v = pick(s, 70);

    return move_unit(s, v, pick_device(s, v));
}

/* Of two random neighbours the one with the larger tensor in between. */
static uint32_t close_neighbour(struct search *s, uint32_t v) {
    const struct task_graph *g = s->graph;
    uint32_t a = neighbour(s, v), b = neighbour(s, v);

    if (a == TASK_GRAPH_NONE)
        return a;
    /* The tensor between v and a consumer is v's own. */
    return g->output_bytes[g->position[a] < g->position[v] ? a : v] >=
                   g->output_bytes[g->position[b] < g->position[v] ? b : v]
               ? a
               : b;
}

/* Move a task, with some of its neighbours on the same device. */
static bool try_cluster(struct search *s) {
    uint32_t v = pick(s, 60), from = s->plan.device[v], to = pick_device(s, v);
    uint32_t size = 2 + below(s, below(s, 4) == 0 ? 24 : 5), at = v;
    bool is_close = below(s, 2) == 0;

    if (!move_unit(s, v, to))
        return false;
    for (uint32_t i = 0; i < size * 3 && size > 0; i++) {
        uint32_t w = is_close ? close_neighbour(s, at) : neighbour(s, at);

        if (w == TASK_GRAPH_NONE)
            break;
        if (s->plan.device[w] == from && move_unit(s, w, to))
            size--;
        else if (below(s, 3) == 0)
            w = s->changes[below(s, s->n_changes)].task;
        if (s->plan.device[w] == to)
            at = w;
    }
    return true;
}

/* Move what a device runs in one stretch to another device; sometimes exchange the two. */
static bool try_stretch(struct search *s) {
    const struct dispatch_record *r = s->record;
    uint32_t last = pick(s, 60), from = s->plan.device[last], to = pick_device(s, last), v = last;
    uint32_t size = 2 + below(s, below(s, 3) == 0 ? 64 : 12), n = 0;
    double since = r->start[last];

    for (; v != TASK_GRAPH_NONE && n < size; v = r->before[v])
        if (s->plan.device[v] == from && move_unit(s, v, to)) {
            since = r->start[v];
            n++;
        }
    if (n > 0 && below(s, 3) == 0)
        for (uint32_t i = 0; i < 4 * size; i++) {
            uint32_t w = below(s, s->graph->n_tasks), unit = s->graph->unit[w];

            if (s->plan.device[w] == to && r->start[w] >= since && r->start[w] <= r->start[last] &&
                s->graph->members.first[unit + 1] - s->graph->members.first[unit] == 1) {
                bool is_changed = false;

                for (uint32_t k = 0; k < s->n_changes; k++)
                    is_changed |= s->changes[k].task == w;
                if (!is_changed)
                    move_unit(s, w, from);
            }
        }
    return n > 0;
}

static bool try_swap(struct search *s) {
    uint32_t v = pick(s, 60), to = pick_device(s, v), from = s->plan.device[v];

    if (!move_unit(s, v, to))
        return false;
    for (unsigned i = 0; i < 16; i++) {
        uint32_t w = below(s, s->graph->n_tasks);

        if (s->plan.device[w] == to && w != v && s->graph->unit[w] != s->graph->unit[v] &&
            move_unit(s, w, from))
            return true;
    }
    return true;
}

/* Move a task that its device kept waiting before one that ran meanwhile. */
static bool try_earlier(struct search *s) {
    const struct dispatch_record *r = s->record;

    for (unsigned i = 0; i < 8; i++) {
        uint32_t v = pick(s, 70), w = v, n = 0, steps;

        if (!(r->start[v] > r->ready[v]))
            continue;
        for (uint32_t x = r->before[v];
             x != TASK_GRAPH_NONE && n < 32 && r->start[x] >= r->ready[v]; x = r->before[x])
            n++;
        if (n == 0)
            continue;
        for (steps = 1 + below(s, n); steps > 0; steps--)
            w = r->before[w];
        if (s->plan.slot[w] < s->plan.slot[v])
            return move_slot(s, v, s->plan.slot[w]);
        return false;
    }
    return false;
}

static bool try_slot(struct search *s) {
    uint32_t v = pick(s, 30), w = pick(s, 30);

    if (below(s, 2) == 0) { /* near in time */
        uint32_t i = s->record->before[v];

        w = i != TASK_GRAPH_NONE ? i : w;
    }
    return v != w && move_slot(s, v, s->plan.slot[w]);
}

/* Move all tasks of a block that are not there yet. */
static bool move_block(struct search *s, const struct blocks_level *level, uint32_t block,
                       uint32_t to) {
    bool is_moved = false;

    if (!(level->allowed[block] >> to & 1))
        return false;
    for (uint32_t i = level->members.first[block]; i < level->members.first[block + 1]; i++)
        is_moved |= move_unit(s, level->members.items[i], to);
    return is_moved;
}

/*
 * Move a block. Sometimes a block of about the same size makes room: it comes in exchange, or goes
 * to a third device.
 */
static bool try_block(struct search *s) {
    const struct blocks *blocks = s->options->blocks;
    const struct blocks_level *level;
    uint32_t v = pick(s, 60), from = s->plan.device[v], first, n, to, other = TASK_GRAPH_NONE;
    uint64_t least = UINT64_MAX;

    if (blocks->n_levels == 0)
        return false;
    level = &blocks->levels[below(s, blocks->n_levels)];
    first = level->members.first[level->block[v]];
    n = level->members.first[level->block[v] + 1] - first;
    to = pick_device(s, level->members.items[first + below(s, n)]);
    if (!move_block(s, level, level->block[v], to))
        return false;
    if (below(s, 3) == 0)
        return true;
    for (unsigned i = 0; i < 16; i++) {
        uint32_t w = below(s, s->graph->n_tasks), block = level->block[w];
        uint64_t a = level->resident_bytes[block], b = level->resident_bytes[level->block[v]];
        uint64_t difference = a > b ? a - b : b - a;

        if (s->plan.device[w] == to && block != level->block[v] && difference < least) {
            least = difference;
            other = block;
        }
    }
    if (other != TASK_GRAPH_NONE)
        move_block(s, level, other, below(s, 3) > 0 ? from : below(s, s->graph->n_devices));
    return true;
}

static bool pick_move(struct search *s) {
    uint32_t kind = below(s, 100);

    s->n_changes = 0;
    s->since = INFINITY;
    if (kind < 22)
        return try_device(s);
    if (kind < 28)
        return try_cluster(s);
    if (kind < 34)
        return try_stretch(s);
    if (kind < 39)
        return try_swap(s);
    if (kind < 75)
        return try_block(s);
    if (kind < 93)
        return try_earlier(s);
    return try_slot(s);
}

/* Where links are missing, a move may cut a task off from its neighbours. */
static bool is_possible(const struct search *s) {
    for (uint32_t i = 0; i < s->n_changes; i++)
        if (!is_linked(s, s->changes[i].task, s->plan.device[s->changes[i].task]))
            return false;
    return true;
}

/* Change the plan at random. False: there is nothing to try, and undo() is due all the same. */
static bool make_move(struct search *s) {
    return pick_move(s) && (s->has_all_links || is_possible(s));
}

/* Asking costs more than a short trial: once every so many events. */
static bool is_stopped(struct search *s) {
    uint64_t events = dispatch_events(s->dispatch);

    if (events < s->asked_at + ASK_EVENTS)
        return s->has_stopped;
    s->asked_at = events;
    if (s->options->is_stopped)
        s->has_stopped |= s->options->is_stopped(s->options->data);
    if (s->options->used)
        s->used = s->options->used(s->options->data);
    return s->has_stopped;
}

/* How much of the search is over: of its events, or of its time if that is more. */
static double part_over(const struct search *s) {
    double events = (double)(dispatch_events(s->dispatch) - s->begun_at), time = 0;

    if (s->options->used)
        time = (s->used - s->used_first) / fmax(s->options->until - s->used_first, 1e-9);
    return fmax(events / (double)s->options->budget, time);
}

static void keep(struct search *s) {
    if (s->record->overflow > 0 || s->record->makespan >= s->best)
        return;
    s->best = s->record->makespan;
    memcpy(s->best_device, s->plan.device, s->graph->n_tasks * sizeof(*s->best_device));
    memcpy(s->best_sequence, s->record->sequence, s->graph->n_tasks * sizeof(*s->best_sequence));
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

#define SAMPLES      100
#define SAMPLES_PART 0.1 /* of the search at most */

/* How much worse the gentlest tenth of all worsening moves makes the plan: a scale for heat. */
static double gentle(struct search *s) {
    double worse[SAMPLES];
    unsigned n = 0;

    for (unsigned i = 0; i < 4 * SAMPLES && n < SAMPLES && part_over(s) < SAMPLES_PART; i++) {
        double makespan, overflow;

        if (is_stopped(s))
            break;
        if (make_move(s) &&
            dispatch_try(s->dispatch, &s->plan, s->since, INFINITY, &makespan, &overflow) &&
            cost_of(s, makespan, overflow) > s->cost * (1 + 1e-9))
            worse[n++] = (cost_of(s, makespan, overflow) - s->cost) / s->cost;
        undo(s);
    }
    qsort(worse, n, sizeof(*worse), by_size);
    return n > 0 ? fmin(worse[n / 10], 0.1) : 0.001;
}

/*
 * The penalty for bytes above a cap grows while the heat falls: the search first walks through
 * plans that do not fit, and ends among those that do.
 */
#define PENALTY_LAST 16.0
#define COOLING      0.02

static void anneal(struct search *s) {
    double hot, part;

    s->begun_at = s->asked_at = dispatch_events(s->dispatch);
    if (s->options->used)
        s->used = s->used_first = s->options->used(s->options->data);
    s->penalty = 1;
    s->cost = cost_of(s, s->record->makespan, s->record->overflow);
    hot = gentle(s) * s->options->heat;
    /* A move that changes nothing simulates nothing; a search of such moves must end too. */
    while ((part = part_over(s)) < 1 && s->n_idle <= IDLE_MAX && !is_stopped(s)) {
        double limit, makespan, overflow;

        if (!make_move(s)) {
            undo(s);
            s->n_idle++;
            continue;
        }
        s->n_idle = 0;
        s->penalty = s->options->penalty * pow(PENALTY_LAST / s->options->penalty, part);
        s->cost = cost_of(s, s->record->makespan, s->record->overflow);
        limit = s->cost - s->record->makespan * hot * pow(COOLING, part) * log(unit_interval(s));
        if (dispatch_try(s->dispatch, &s->plan, s->since, limit, &makespan, &overflow) &&
            cost_of(s, makespan, overflow) <= limit) {
            s->record = dispatch_record(s->dispatch, &s->plan, s->since);
            s->is_critical_stale = true;
            keep(s);
        } else
            undo(s);
    }
}

static void search_done(struct search *s) {
    dispatch_free(s->dispatch);
    free(s->plan.device);
    free(s->plan.slot);
    free(s->plan.task_at);
    free(s->plan.load_usec);
    free(s->plan.resident_bytes);
    free(s->critical);
    free(s->changes);
    free(s->best_device);
    free(s->best_sequence);
}

struct started {
    double start;
    uint32_t position, task;
};

static int by_start(const void *a, const void *b) {
    const struct started *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->position < y->position ? -1 : x->position > y->position;
}

/* Priorities: as the plan starts its tasks. */
static int take_slots(struct search *s, struct assignment *plan) {
    const struct task_graph *g = s->graph;
    cleanup(freep) double *start = malloc(((size_t)g->n_tasks + 1) * sizeof(*start));
    cleanup(freep) struct started *started = malloc(((size_t)g->n_tasks + 1) * sizeof(*started));
    enum timeline_fault fault;
    int r;

    if (!start || !started)
        return -ENOMEM;
    r = timeline_run(g, plan, start, &fault);
    if (r < 0)
        return r;
    if (fault != TIMELINE_OK && fault != TIMELINE_MEMORY)
        return -EINVAL;
    for (uint32_t v = 0; v < g->n_tasks; v++)
        started[v] = (struct started){ start[v], g->position[v], v };
    qsort(started, g->n_tasks, sizeof(*started), by_start);
    memset(s->plan.task_at, 0xff, (size_t)s->plan.n_slots * sizeof(*s->plan.task_at));
    for (uint32_t i = 0; i < g->n_tasks; i++) {
        s->plan.slot[started[i].task] = 4 * i + 2;
        s->plan.task_at[4 * i + 2] = started[i].task;
    }
    if (fault == TIMELINE_OK)
        s->best = plan->makespan_usec;
    return 0;
}

int search_run(const struct task_graph *g, const struct search_options *options,
               struct assignment *plan) {
    cleanup(search_done) struct search s = { .graph = g, .options = options, .best = INFINITY };
    size_t n = (size_t)g->n_tasks + 1;
    double before;
    int r;

    s.random = options->seed;
    s.has_all_links = true;
    s.plan = (struct dispatch_input){
        .device = malloc(n * sizeof(uint32_t)),
        .slot = malloc(n * sizeof(uint32_t)),
        .task_at = malloc(4 * n * sizeof(uint32_t)),
        .n_slots = 4 * g->n_tasks,
        .load_usec = calloc(g->n_devices, sizeof(double)),
        .resident_bytes = calloc(g->n_devices, sizeof(uint64_t)),
    };
    s.changes = malloc(n * sizeof(*s.changes));
    s.critical = malloc(n * sizeof(*s.critical));
    s.best_device = malloc(n * sizeof(*s.best_device));
    s.best_sequence = malloc(n * sizeof(*s.best_sequence));
    if (!s.plan.device || !s.plan.slot || !s.plan.task_at || !s.plan.load_usec ||
        !s.plan.resident_bytes || !s.critical || !s.changes || !s.best_device || !s.best_sequence)
        return -ENOMEM;
    r = dispatch_new(&s.dispatch, g);
    if (r == 0)
        r = take_slots(&s, plan);
    if (r < 0)
        return r;
    before = s.best;
    memcpy(s.plan.device, plan->device, g->n_tasks * sizeof(*plan->device));
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        s.plan.load_usec[plan->device[v]] += task_graph_cost(g, v, plan->device[v]);
        s.plan.resident_bytes[plan->device[v]] += g->resident_bytes[v];
    }
    for (uint32_t i = 0; i < g->n_devices; i++)
        for (uint32_t j = 0; j < g->n_devices; j++)
            s.has_all_links &= i == j || task_graph_link(g, i, j)->bytes_per_usec > 0;
    s.record = dispatch_record(s.dispatch, &s.plan, -1);
    s.is_critical_stale = true;
    keep(&s);
    if (g->n_tasks > 1 && g->n_devices > 1)
        anneal(&s);
    if (s.best < before) {
        enum timeline_fault fault;

        memcpy(plan->device, s.best_device, g->n_tasks * sizeof(*plan->device));
        assignment_order(g, plan, s.best_sequence);
        return timeline_run(g, plan, NULL, &fault);
    }
    return 0;
}
