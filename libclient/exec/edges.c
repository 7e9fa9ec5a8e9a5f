/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Edges: which items wait for which, as lists.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "libclient/exec/compile.h"

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
    ret->first_after = calloc(n + 1, sizeof(*ret->first_after));
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
