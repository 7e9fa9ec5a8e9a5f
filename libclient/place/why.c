/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/why.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* Times that differ by less are the same to people. */
#define SAME_PART 1e-6

static uint64_t lacking(const struct task_graph *graph, const struct assignment *plan) {
    uint64_t most = 0;

    for (uint32_t d = 0; d < graph->n_devices; d++)
        if (plan->peak_bytes[d] > graph->memory_bytes[d])
            most = MAX(most, plan->peak_bytes[d] - graph->memory_bytes[d]);
    return most;
}

/* What comes of the changed plan `trial`. */
static int judge(const struct task_graph *graph, const struct assignment *plan,
                 struct assignment *trial, struct why *ret) {
    enum timeline_fault fault;
    int r = timeline_run(graph, trial, NULL, &fault);

    if (r < 0)
        return r;
    if (fault != TIMELINE_OK && fault != TIMELINE_MEMORY) {
        ret->kind = WHY_BLOCKED;
        return 0;
    }
    ret->longer_usec = trial->makespan_usec - plan->makespan_usec;
    ret->more_copies =
        (int32_t)assignment_copies(graph, trial) - (int32_t)assignment_copies(graph, plan);
    if (fault == TIMELINE_MEMORY) {
        ret->kind = WHY_MEMORY;
        ret->lacking_bytes = lacking(graph, trial);
    } else if (fabs(ret->longer_usec) <= plan->makespan_usec * SAME_PART)
        ret->kind = WHY_EQUAL;
    else
        ret->kind = ret->longer_usec > 0 ? WHY_SLOWER : WHY_FASTER;
    return 0;
}

/* The alternative that is nearest to being chosen says most. */
static bool is_nearer(const struct why *a, const struct why *b) {
    bool runs = a->kind != WHY_MEMORY && a->kind != WHY_BLOCKED;
    bool other_runs = b->kind != WHY_MEMORY && b->kind != WHY_BLOCKED;

    if (runs != other_runs)
        return runs;
    if (runs)
        return a->longer_usec < b->longer_usec;
    if (a->kind != b->kind)
        return a->kind == WHY_MEMORY;
    return a->lacking_bytes < b->lacking_bytes;
}

int why_find(const struct task_graph *graph, const struct assignment *plan, const uint32_t *rank,
             uint32_t task, struct why *ret) {
    cleanup(freep) uint32_t *by_rank = malloc(((size_t)graph->n_tasks + 1) * sizeof(*by_rank));
    cleanup(assignment_done) struct assignment trial = { 0 };
    uint32_t unit = graph->unit[task];
    uint64_t others = graph->allowed[unit] & ~(UINT64_C(1) << plan->device[task]);
    int r = by_rank ? assignment_init(&trial, graph) : -ENOMEM;

    *ret = (struct why){ .kind = WHY_ONLY };
    if (r < 0)
        return r;
    for (uint32_t v = 0; v < graph->n_tasks; v++)
        by_rank[rank[v]] = v;
    for (; others; others &= others - 1) {
        struct why now = { .other = (uint32_t)__builtin_ctzll(others) };

        assignment_copy(graph, &trial, plan);
        for (uint32_t i = graph->members.first[unit]; i < graph->members.first[unit + 1]; i++)
            trial.device[graph->members.items[i]] = now.other;
        assignment_order(graph, &trial, by_rank);
        r = judge(graph, plan, &trial, &now);
        if (r < 0)
            return r;
        if (ret->kind == WHY_ONLY || is_nearer(&now, ret))
            *ret = now;
    }
    return 0;
}
