/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedule: puts the items into the order that needs least memory (place/order.h); where several
 * run at once, on threads or on GPUs, plans when they run (place/simulate.h).
 *
 * Running more at once needs more memory. The costs that kernels give decide how much more is worth
 * it: the least memory with which the simulated run takes at most SLOWER_PERCENT longer than with
 * unlimited memory, but never more memory than running ops as soon as they are ready needs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/exec/plan/compile.h"
#include "libclient/place/order.h"
#include "libclient/place/simulate.h"

/* Below this it does not matter, and people expect the order of the graph. */
enum { WORTH_BYTES = 64 << 10 };

enum { SLOWER_PERCENT = 5 };
/* How often to halve the range of memory in the search for the least that is fast enough. */
enum { HALVINGS = 3 };
/* What an item costs besides its kernel, in nanoseconds, and the bytes copied per nanosecond. */
enum { ITEM_NSEC = 100, COPY_BYTES = 8 };
/* An item that splits its work uses as many threads as get at least this much of it each. With
 * less, waking the threads and waiting for the last one costs too much: then two items side by side
 * end sooner than one after the other, even if each could use all threads. */
enum { WIDE_NSEC = 1000000 };

/* Which values each item makes and uses, as the order wants it. */
struct value_flow {
    uint32_t *first_makes, *makes, *first_uses, *uses, *first_over, *over, *n_users;
    uint64_t *bytes;
};

static void flow_done(struct value_flow *flow) {
    free(flow->first_makes);
    free(flow->makes);
    free(flow->first_uses);
    free(flow->uses);
    free(flow->first_over);
    free(flow->over);
    free(flow->n_users);
    free(flow->bytes);
}

static int flow_room(const struct program *program, struct value_flow *flow) {
    flow->first_makes = calloc(program->n_items + 1, sizeof(*flow->first_makes));
    flow->first_uses = calloc(program->n_items + 1, sizeof(*flow->first_uses));
    flow->first_over = calloc(program->n_items + 1, sizeof(*flow->first_over));
    flow->makes = malloc((program->n_values + 1) * sizeof(*flow->makes));
    flow->uses = malloc((program->n_args + 1) * sizeof(*flow->uses));
    flow->over = malloc((program->n_args + 1) * sizeof(*flow->over));
    flow->n_users = calloc(program->n_values + 1, sizeof(*flow->n_users));
    flow->bytes = calloc(program->n_values + 1, sizeof(*flow->bytes));
    return flow->first_makes && flow->first_uses && flow->first_over && flow->makes && flow->uses &&
                   flow->over && flow->n_users && flow->bytes
               ? 0
               : -ENOMEM;
}

static int flow_make(const struct program *program, struct value_flow *flow) {
    uint32_t n_makes = 0, n_uses = 0, n_over = 0;
    cleanup(freep) uint32_t *mark = calloc(program->n_values + 1, sizeof(*mark));

    if (!mark || flow_room(program, flow) < 0)
        return -ENOMEM;
    for (uint32_t v = 0; v < program->n_values; v++)
        if (program->values[v].where == VALUE_SLAB)
            flow->bytes[v] = (program->values[v].bytes + PROGRAM_ALIGNMENT - 1) /
                             PROGRAM_ALIGNMENT * PROGRAM_ALIGNMENT;
    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];
        const uint32_t *args = &program->args[item->first_arg];

        flow->first_makes[i] = n_makes;
        flow->first_uses[i] = n_uses;
        flow->first_over[i] = n_over;
        for (uint32_t a = 0; a < item->n_inputs; a++) {
            if (args[a] == PROGRAM_NONE || flow->bytes[args[a]] == 0 || mark[args[a]] == i + 1)
                continue;
            mark[args[a]] = i + 1;
            flow->n_users[args[a]]++;
            flow->uses[n_uses++] = args[a];
            if (program_may_lie_over(program, item, a))
                flow->over[n_over++] = args[a];
        }
        for (uint32_t a = item->n_inputs; a < item->n_inputs + item->n_outputs; a++)
            flow->makes[n_makes++] = args[a];
        if (item->scratch != PROGRAM_NONE)
            flow->makes[n_makes++] = item->scratch;
    }
    flow->first_makes[program->n_items] = n_makes;
    flow->first_uses[program->n_items] = n_uses;
    flow->first_over[program->n_items] = n_over;
    return 0;
}

int compile_permute(struct compile *compile, const uint32_t *sequence) {
    struct program *program = compile->program;
    struct program_item *items = malloc((program->n_items + 1) * sizeof(*items));
    cleanup(freep) uint32_t *now = malloc((program->n_items + 1) * sizeof(*now));

    if (!items || !now) {
        free(items);
        return -ENOMEM;
    }
    for (uint32_t s = 0; s < program->n_items; s++) {
        items[s] = program->items[sequence[s]];
        now[sequence[s]] = s;
    }
    free(program->items);
    program->items = items;
    for (uint32_t v = 0; v < program->n_values; v++)
        if (program->values[v].producer != PROGRAM_NONE)
            program->values[v].producer = now[program->values[v].producer];
    for (uint32_t e = 0; e < compile->n_edges; e++)
        compile->edges[e] =
            (struct precedence){ now[compile->edges[e].first], now[compile->edges[e].then] };
    return 0;
}

/* The queue of each item, and how long it takes. */
struct item_work {
    uint64_t *nsec;
    uint32_t *queue, *width, *n_lanes;
    uint32_t n_queues;
};

static void work_done(struct item_work *work) {
    free(work->nsec);
    free(work->queue);
    free(work->width);
    free(work->n_lanes);
}

static int work_make(const struct compile *compile, struct item_work *work) {
    const struct program *program = compile->program;
    uint32_t n_threads = compile->request->n_threads, n_intra = compile->request->n_intra_threads;

    work->n_queues = compile_n_queues(program);
    work->nsec = malloc((program->n_items + 1) * sizeof(*work->nsec));
    work->queue = malloc((program->n_items + 1) * sizeof(*work->queue));
    work->width = malloc((program->n_items + 1) * sizeof(*work->width));
    work->n_lanes = malloc((work->n_queues + 1) * sizeof(*work->n_lanes));
    if (!work->nsec || !work->queue || !work->width || !work->n_lanes)
        return -ENOMEM;
    for (uint32_t q = 0; q < work->n_queues; q++)
        work->n_lanes[q] = q == 0 ? n_threads : 1;
    for (uint32_t i = 0; i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];
        uint64_t nsec = item->cost;

        if (item->kind == ITEM_COPY)
            nsec = program->values[program->args[item->first_arg]].bytes / COPY_BYTES;
        work->queue[i] = compile_queue(program, item);
        work->width[i] = 1;
        if (item->pooled && nsec >= 2 * WIDE_NSEC && n_intra > 1) {
            uint64_t wanted = MIN((uint64_t)n_intra, nsec / WIDE_NSEC);

            work->width[i] = (uint32_t)MIN((uint64_t)n_threads, wanted);
            nsec = nsec * work->width[i] / wanted;
        }
        work->nsec[i] = nsec + ITEM_NSEC;
    }
    return 0;
}

static void times_done(struct simulate_result *times) {
    free(times->sequence);
    free(times->begin);
    free(times->end);
}

static int times_init(struct simulate_result *times, uint32_t n) {
    *times = (struct simulate_result){
        .sequence = malloc((n + 1) * sizeof(*times->sequence)),
        .begin = malloc((n + 1) * sizeof(*times->begin)),
        .end = malloc((n + 1) * sizeof(*times->end)),
    };
    return times->sequence && times->begin && times->end ? 0 : -ENOMEM;
}

static void swap(struct simulate_result *a, struct simulate_result *b) {
    struct simulate_result kept = *a;

    *a = *b;
    *b = kept;
}

/* Find the least memory with which it takes no longer than `nsec`. `best` achieves that with as
 * much memory as is allowed; `alone_bytes` are not enough. */
static int find_least(const struct simulate_problem *problem, const uint32_t *sequence,
                      uint64_t alone_bytes, uint64_t nsec, struct simulate_result *best,
                      struct simulate_result *other) {
    uint64_t low = alone_bytes, high = best->bytes;
    int r = 0;

    for (int i = 0; r == 0 && i < HALVINGS && low < high; i++) {
        uint64_t middle = low + (high - low) / 2;

        r = simulate_within(problem, sequence, middle, other);
        if (r == 0 && other->nsec <= nsec && other->bytes < best->bytes) {
            swap(best, other);
            high = best->bytes;
        } else
            low = middle;
    }
    return r;
}

/* When items run, into `best`; `other` is room. */
static int find_times(const struct simulate_problem *problem, const uint32_t *sequence,
                      uint64_t alone_bytes, uint64_t *ret_ready_bytes, struct simulate_result *best,
                      struct simulate_result *other) {
    uint64_t nsec, most_bytes;
    int r = simulate_ready(problem, other);

    if (r < 0)
        return r;
    *ret_ready_bytes = other->bytes;
    nsec = other->nsec;
    most_bytes = MAX(other->bytes, alone_bytes);
    r = simulate_within(problem, sequence, UINT64_MAX, best);
    if (r < 0 || best->bytes <= alone_bytes)
        return r;
    nsec = MIN(nsec, best->nsec);
    nsec += nsec * SLOWER_PERCENT / 100;
    r = simulate_within(problem, sequence, alone_bytes, other);
    if (r == 0 && other->nsec <= nsec) {
        swap(best, other);
        return 0;
    }
    if (r == 0 && best->bytes > most_bytes)
        r = simulate_within(problem, sequence, most_bytes, best);
    return r < 0 ? r
                 : find_least(problem, sequence, alone_bytes, MAX(nsec, best->nsec), best, other);
}

/* When items run, and in the order in which they begin. */
static int plan_times(struct compile *compile, const struct order_problem *order, bool is_worth,
                      uint32_t *sequence, uint64_t alone_bytes) {
    struct program *program = compile->program;
    cleanup(times_done) struct simulate_result best = { 0 }, other = { 0 };
    cleanup(work_done) struct item_work work = { 0 };
    struct simulate_problem problem = { .order = order };
    int r = work_make(compile, &work);

    if (r == 0)
        r = times_init(&best, program->n_items);
    if (r == 0)
        r = times_init(&other, program->n_items);
    if (r < 0)
        return r;
    problem.nsec = work.nsec;
    problem.queue = work.queue;
    problem.width = work.width;
    problem.n_lanes = work.n_lanes;
    problem.n_queues = work.n_queues;
    r = is_worth ? find_times(&problem, sequence, alone_bytes, &program->ready_order_bytes, &best,
                              &other)
                 : simulate_within(&problem, sequence, UINT64_MAX, &best);
    if (r < 0)
        return r;
    memcpy(sequence, best.sequence, program->n_items * sizeof(*sequence));
    for (uint32_t s = 0; s < program->n_items; s++) {
        other.begin[s] = best.begin[sequence[s]];
        other.end[s] = best.end[sequence[s]];
    }
    compile->begin = TAKE(other.begin);
    compile->end = TAKE(other.end);
    return 0;
}

/* The host does not run in step with GPUs, even on one thread. */
static bool is_one_by_one(const struct compile *compile) {
    return compile->request->n_threads == 1 && !compile->program->has_gpu;
}

static int find_order(struct compile *compile, const struct compile_edges *edges,
                      const struct value_flow *flow, bool is_worth) {
    struct program *program = compile->program;
    cleanup(freep) uint32_t *sequence = malloc((program->n_items + 1) * sizeof(*sequence));
    const struct order_problem problem = {
        .n_jobs = program->n_items,
        .n_buffers = program->n_values,
        .before = { edges->first_before, edges->before },
        .after = { edges->first_after, edges->after },
        .makes = { flow->first_makes, flow->makes },
        .uses = { flow->first_uses, flow->uses },
        .over = { flow->first_over, flow->over },
        .bytes = flow->bytes,
        .n_users = flow->n_users,
        .halt = compile->request->halt,
    };
    bool one_by_one = is_one_by_one(compile);
    uint64_t bytes = 0;
    int r = 0;

    if (!sequence)
        return -ENOMEM;
    for (uint32_t i = 0; i < program->n_items; i++)
        sequence[i] = i;
    if (is_worth && one_by_one) {
        r = order_ready(&problem, sequence);
        if (r == 0)
            r = order_profile(&problem, sequence, &program->ready_order_bytes, NULL);
    }
    if (r == 0 && is_worth)
        r = order_find(&problem, sequence, &bytes);
    if (r == 0 && !one_by_one)
        r = plan_times(compile, &problem, is_worth, sequence, bytes);
    return r < 0 ? r : compile_permute(compile, sequence);
}

int compile_schedule(struct compile *compile) {
    const struct program *program = compile->program;
    struct compile_edges edges = { 0 };
    struct value_flow flow = { 0 };
    uint64_t bytes = 0;
    int r;

    if (compile->planned)
        return compile_keep_order(compile);
    for (uint32_t v = 0; v < program->n_values; v++)
        if (program->values[v].where == VALUE_SLAB)
            bytes += program->values[v].bytes;
    if (bytes < WORTH_BYTES && is_one_by_one(compile))
        return 0;
    r = compile_edges(compile, &edges);
    if (r == 0)
        r = flow_make(program, &flow);
    if (r == 0)
        r = find_order(compile, &edges, &flow, bytes >= WORTH_BYTES);
    compile_edges_done(&edges);
    flow_done(&flow);
    return r;
}
