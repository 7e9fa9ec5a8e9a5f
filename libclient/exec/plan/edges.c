/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Edges: which items wait for which, as lists. Workers count for each item how many others it still
 * waits for, so every edge costs something in every run. An edge that others imply is left out if
 * that is found quickly: within a few steps back from the other ends.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/exec/plan/compile.h"

/* How many steps to look back from each predecessor of an item; more if there are few edges: this
 * many in total cost a millisecond or two at most. */
enum { LOOK_BACK = 16, LOOK_BACK_ALL = 1 << 19 };

/* Turn counts at [i + 1] into where row i begins; returns the sum. */
static uint32_t sum_up(uint32_t *first, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        first[i + 1] += first[i];
    return first[n];
}

void compile_edges_done(struct compile_edges *edges) {
    free(edges->first_before);
    free(edges->before);
    free(edges->first_after);
    free(edges->after);
    *edges = (struct compile_edges){ 0 };
}

/* Rows of edges by their first end, each once: `mark[j] == i + 1` when i → j is known already. */
static void list_after(const struct compile *compile, const uint32_t *first, const uint32_t *row,
                       uint32_t *mark, struct compile_edges *ret) {
    uint32_t n = compile->program->n_items, at = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t begin = at;

        for (uint32_t e = first[i]; e < first[i + 1]; e++) {
            if (mark[row[e]] == i + 1)
                continue;
            mark[row[e]] = i + 1;
            ret->after[at++] = row[e];
        }
        ret->first_after[i] = begin;
    }
    ret->first_after[n] = at;
}

int compile_edges(const struct compile *compile, struct compile_edges *ret) {
    uint32_t n = compile->program->n_items, n_edges = compile->n_edges;
    cleanup(freep) uint32_t *first = calloc(n + 2, sizeof(*first));
    cleanup(freep) uint32_t *row = malloc((n_edges + 1) * sizeof(*row));
    cleanup(freep) uint32_t *mark = calloc(n + 1, sizeof(*mark));

    ret->first_before = calloc(n + 2, sizeof(*ret->first_before));
    ret->before = malloc((n_edges + 1) * sizeof(*ret->before));
    ret->first_after = calloc(n + 2, sizeof(*ret->first_after));
    ret->after = malloc((n_edges + 1) * sizeof(*ret->after));
    if (!first || !row || !mark || !ret->first_before || !ret->before || !ret->first_after ||
        !ret->after) {
        compile_edges_done(ret);
        return -ENOMEM;
    }
    for (uint32_t e = 0; e < n_edges; e++)
        first[compile->edges[e].first + 2]++;
    sum_up(first, n + 1);
    for (uint32_t e = 0; e < n_edges; e++)
        row[first[compile->edges[e].first + 1]++] = compile->edges[e].then;
    list_after(compile, first, row, mark, ret);

    for (uint32_t e = 0; e < ret->first_after[n]; e++)
        ret->first_before[ret->after[e] + 2]++;
    sum_up(ret->first_before, n + 1);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t e = ret->first_after[i]; e < ret->first_after[i + 1]; e++)
            ret->before[ret->first_before[ret->after[e] + 1]++] = i;
    return 0;
}

struct before_search {
    const struct compile_edges *edges;
    uint32_t *mark;  /* by item: the last that it was found to come before, + 1 */
    uint32_t *stack; /* room for all items */
    uint32_t n_steps;
};

/* Mark the items that must run before `item`: at most n_steps of them, none below `lowest`. */
static void mark_before(struct before_search *search, uint32_t item, uint32_t lowest,
                        uint32_t stamp) {
    const struct compile_edges *edges = search->edges;
    uint32_t n_stack = 0, n_left = search->n_steps;

    search->stack[n_stack++] = item;
    while (n_stack > 0) {
        uint32_t at = search->stack[--n_stack];

        for (uint32_t e = edges->first_before[at]; e < edges->first_before[at + 1]; e++) {
            uint32_t before = edges->before[e];

            if (before < lowest || search->mark[before] == stamp)
                continue;
            if (n_left-- == 0)
                return;
            search->mark[before] = stamp;
            search->stack[n_stack++] = before;
        }
    }
}

/* The same edges by their first end. */
static void list_again(struct compile_edges *edges, uint32_t n_items) {
    uint32_t *next = edges->first_after; /* at [i + 1] while rows are filled */

    memset(next, 0, (n_items + 2) * sizeof(*next));
    for (uint32_t e = 0; e < edges->first_before[n_items]; e++)
        next[edges->before[e] + 2]++;
    sum_up(next, n_items + 1);
    for (uint32_t i = 0; i < n_items; i++)
        for (uint32_t e = edges->first_before[i]; e < edges->first_before[i + 1]; e++)
            edges->after[next[edges->before[e] + 1]++] = i;
}

int compile_edges_reduce(const struct compile *compile, struct compile_edges *edges) {
    uint32_t n_items = compile->program->n_items;
    cleanup(freep) uint32_t *mark = calloc(n_items + 1, sizeof(*mark));
    cleanup(freep) uint32_t *stack = malloc((n_items + 1) * sizeof(*stack));
    uint32_t n_edges = edges->first_before[n_items], n = 0, begin = 0;
    struct before_search search = { edges, mark, stack, LOOK_BACK + LOOK_BACK_ALL / (n_edges + 1) };

    if (!mark || !stack)
        return -ENOMEM;
    for (uint32_t i = 0; i < n_items; i++) {
        uint32_t end = edges->first_before[i + 1];

        if (compile_check(compile) < 0)
            return -ECANCELED;
        edges->first_before[i] = n;
        /* The highest first: what it implies lies below it. */
        for (uint32_t e = end; end - begin > 1 && e-- > begin;)
            if (mark[edges->before[e]] != i + 1)
                mark_before(&search, edges->before[e], edges->before[begin], i + 1);
        for (uint32_t e = begin; e < end; e++)
            if (mark[edges->before[e]] != i + 1)
                edges->before[n++] = edges->before[e];
        begin = end;
    }
    edges->first_before[n_items] = n;
    list_again(edges, n_items);
    return 0;
}
