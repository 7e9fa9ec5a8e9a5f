/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keep order: puts the items into the order of the dynamic placer's plan, and sees to it that GPUs
 * keep it.
 *
 * Items stand as they begin by the plan; a copy is queued when its producer ends. On each stream of
 * a GPU an edge leads from every item to the next one: the host then queues them in that order, and
 * the GPU waits for nothing by it. On the host, the order is that in which items are begun; several
 * threads may still run them side by side. The planned times also say which values are never alive
 * together (exec/plan/layout.c).
 *
 * Without such a plan, sums over replicas fix the order of each GPU's ops.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/plan/compile.h"
#include "libclient/exec/plan/dynamic_placement.h"
#include "libclient/place/heap.h"

/* When an item begins, and what decides between items that begin together. */
struct item_start {
    double start, end;
    uint32_t kind; /* 0: a copy, which is there before what begins then */
    uint32_t rank, item;
};

static int by_moment(const void *a, const void *b) {
    const struct item_start *x = a, *y = b;

    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

static struct item_start moment_of(const struct compile *compile, uint32_t i) {
    const struct program *program = compile->program;
    const struct program_item *item = &program->items[i];
    const struct planned_node none = { 0, 0, 0 };
    const struct planned_node *planned =
        item->node && compile->local[item->node->id] != PROGRAM_NONE
            ? &compile->planned[compile->local[item->node->id]]
            : &none;

    if (item->kind == ITEM_COPY) {
        const struct program_value *from = &program->values[program->args[item->first_arg]];
        const struct program_value *to = &program->values[program->args[item->first_arg + 1]];
        const struct task_link *link =
            machine_link(&compile->request->dynamic->machine, from->space, to->space);
        double usec = from->space == to->space || !(link->bytes_per_usec > 0)
                          ? 0
                          : link->latency_usec + (double)from->bytes / link->bytes_per_usec;

        return (struct item_start){ planned->end, planned->end + usec, 0, planned->rank, i };
    }
    return (struct item_start){ planned->start, planned->end, 1, planned->rank, i };
}

/* An order in which each item comes after all that it needs. Of the items that could be next, the
 * one that the plan begins first is: `position` has, by item, its place in the order of those
 * times. */
static int sort_items(const struct compile *compile, const uint32_t *position,
                      uint32_t *ret_sequence) {
    uint32_t n = compile->program->n_items, n_sorted = 0;
    struct compile_edges edges = { 0 };
    cleanup(freep) uint32_t *missing = malloc(((size_t)n + 1) * sizeof(*missing));
    cleanup(freep) struct heap_entry *entries = malloc(((size_t)n + 1) * sizeof(*entries));
    struct heap heap = { entries, 0 };
    int r = compile_edges(compile, &edges);

    if (r < 0 || !missing || !entries) {
        compile_edges_done(&edges);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        missing[i] = edges.first_before[i + 1] - edges.first_before[i];
        if (missing[i] == 0)
            heap_push(&heap, (struct heap_entry){ position[i], i });
    }
    while (heap.n > 0) {
        uint32_t i = heap_pop(&heap).job;

        ret_sequence[n_sorted++] = i;
        for (uint32_t e = edges.first_after[i]; e < edges.first_after[i + 1]; e++)
            if (--missing[edges.after[e]] == 0)
                heap_push(&heap, (struct heap_entry){ position[edges.after[e]], edges.after[e] });
    }
    compile_edges_done(&edges);
    return 0;
}

/* On each stream, the items one after the other. */
static int chain_streams(struct compile *compile) {
    const struct program *program = compile->program;
    uint32_t n_queues = compile_n_queues(program);
    cleanup(freep) uint32_t *last = malloc(((size_t)n_queues + 1) * sizeof(*last));
    int r = 0;

    if (!last)
        return -ENOMEM;
    for (uint32_t q = 0; q < n_queues; q++)
        last[q] = PROGRAM_NONE;
    for (uint32_t i = 0; r == 0 && i < program->n_items; i++) {
        uint32_t queue = compile_queue(program, &program->items[i]);

        if (queue == 0)
            continue;
        r = compile_edge(compile, last[queue], i);
        last[queue] = i;
    }
    return r;
}

static uint64_t nsec(double usec) {
    return (uint64_t)llround(usec * 1e3);
}

int compile_keep_order(struct compile *compile) {
    uint32_t n = compile->program->n_items;
    cleanup(freep) struct item_start *moments = malloc(((size_t)n + 1) * sizeof(*moments));
    cleanup(freep) struct item_start *sorted = malloc(((size_t)n + 1) * sizeof(*sorted));
    cleanup(freep) uint32_t *position = malloc(((size_t)n + 1) * sizeof(*position));
    cleanup(freep) uint32_t *sequence = malloc(((size_t)n + 1) * sizeof(*sequence));
    uint64_t now = 0;
    int r;

    compile->begin = malloc(((size_t)n + 1) * sizeof(*compile->begin));
    compile->end = malloc(((size_t)n + 1) * sizeof(*compile->end));
    if (!moments || !sorted || !position || !sequence || !compile->begin || !compile->end)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        moments[i] = sorted[i] = moment_of(compile, i);
    qsort(sorted, n, sizeof(*sorted), by_moment);
    for (uint32_t i = 0; i < n; i++)
        position[sorted[i].item] = i;
    r = sort_items(compile, position, sequence);
    if (r == 0)
        r = compile_permute(compile, sequence);
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        now = MAX(now, nsec(moments[sequence[i]].start));
        compile->begin[i] = now;
        compile->end[i] = MAX(now + 1, nsec(moments[sequence[i]].end));
    }
    return r < 0 ? r : chain_streams(compile);
}

int compile_sums_order(struct compile *compile) {
    struct program *program = compile->program;
    cleanup(freep) uint32_t *last = NULL;
    uint32_t n_queues;
    int r = 0;

    if (compile->n_all_reduces == 0)
        return 0;
    n_queues = compile_n_queues(program);
    last = malloc(n_queues * sizeof(*last));
    if (!last)
        return -ENOMEM;
    memset(last, 0xff, n_queues * sizeof(*last)); /* PROGRAM_NONE */
    for (uint32_t i = 0; r == 0 && i < program->n_items; i++) {
        const struct program_item *item = &program->items[i];
        const uint32_t queue = compile_queue(program, item);

        /* Updates run as their sums are done. */
        if (item->kind == ITEM_WRITE || queue == 0 || (queue - 1) % N_GPU_STREAMS != GPU_COMPUTE)
            continue;
        r = compile_edge(compile, last[queue], i);
        last[queue] = i;
    }
    return r;
}
