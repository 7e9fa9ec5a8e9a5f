/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matching by the heaviest edge: each block looks for the neighbour that is worth most to be
 * joined with, among those that have not been joined on this level. The blocks are visited as
 * their first tasks come in the topological order.
 *
 * A block may not become so large that no choice is left: it has at most a part of what one device
 * computes and of what the smallest capped device keeps.
 */
#include "libclient/place/blocks.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORK_PART  0.5 /* of an even share of the work */
#define BYTES_PART 0.5 /* of the smallest capped memory */

struct matching {
    const struct task_graph *graph;
    double *work_usec;  /* by task: the least that it costs */
    double *joint_usec; /* by block, while its partner is looked for: copies between the two */
    uint32_t *touched;  /* blocks with joint_usec above 0 */
    uint32_t n_touched;
    double latency_usec, usec_per_byte; /* over all links */
    double work_most_usec;
    uint64_t bytes_most;
    double *block_usec; /* by block: work */
};

static void matching_done(struct matching *m) {
    free(m->work_usec);
    free(m->joint_usec);
    free(m->touched);
    free(m->block_usec);
}

static int matching_init(struct matching *m, const struct task_graph *g) {
    size_t n = (size_t)g->n_tasks + 1;
    uint32_t n_links = 0;
    double work = 0;

    *m = (struct matching){
        .graph = g,
        .work_usec = calloc(n, sizeof(double)),
        .joint_usec = calloc(n, sizeof(double)),
        .touched = calloc(n, sizeof(uint32_t)),
        .block_usec = calloc(n, sizeof(double)),
        .bytes_most = UINT64_MAX,
    };
    if (!m->work_usec || !m->joint_usec || !m->touched || !m->block_usec)
        return -ENOMEM;
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        double least = INFINITY;

        for (uint32_t d = 0; d < g->n_devices; d++)
            if (g->allowed[g->unit[v]] >> d & 1)
                least = fmin(least, task_graph_cost(g, v, d));
        m->work_usec[v] = least;
        work += least;
    }
    m->work_most_usec = work / g->n_devices * WORK_PART;
    for (uint32_t d = 0; d < g->n_devices; d++)
        if (g->memory_bytes[d] != UINT64_MAX)
            m->bytes_most = MIN(m->bytes_most, (uint64_t)((double)g->memory_bytes[d] * BYTES_PART));
    for (uint32_t i = 0; i < g->n_devices * g->n_devices; i++)
        if (g->links[i].bytes_per_usec > 0) {
            m->latency_usec += g->links[i].latency_usec;
            m->usec_per_byte += 1 / g->links[i].bytes_per_usec;
            n_links++;
        }
    m->latency_usec /= MAX(n_links, 1u);
    m->usec_per_byte /= MAX(n_links, 1u);
    return 0;
}

static void touch(struct matching *m, uint32_t block, uint32_t producer) {
    if (m->joint_usec[block] <= 0)
        m->touched[m->n_touched++] = block;
    m->joint_usec[block] +=
        m->latency_usec + (double)m->graph->output_bytes[producer] * m->usec_per_byte + 1e-9;
}

/* The block that `at` is best joined with; TASK_GRAPH_NONE: none. */
static uint32_t find_partner(struct matching *m, const struct blocks_level *level,
                             const uint32_t *joined, uint32_t at) {
    const struct task_graph *g = m->graph;
    uint32_t found = TASK_GRAPH_NONE;
    double most = 0;

    m->n_touched = 0;
    for (uint32_t k = level->members.first[at]; k < level->members.first[at + 1]; k++) {
        uint32_t v = level->members.items[k];

        for (uint32_t i = g->inputs.first[v]; i < g->inputs.first[v + 1]; i++)
            touch(m, level->block[g->inputs.items[i]], g->inputs.items[i]);
        for (uint32_t i = g->consumers.first[v]; i < g->consumers.first[v + 1]; i++)
            touch(m, level->block[g->consumers.items[i]], v);
    }
    for (uint32_t i = 0; i < m->n_touched; i++) {
        uint32_t other = m->touched[i];
        double work = m->block_usec[at] + m->block_usec[other];
        double worth = m->joint_usec[other] / (work + m->joint_usec[other]);

        m->joint_usec[other] = 0;
        if (other == at || joined[other] != TASK_GRAPH_NONE || work > m->work_most_usec ||
            !(level->allowed[at] & level->allowed[other]) ||
            level->resident_bytes[at] + level->resident_bytes[other] > m->bytes_most)
            continue;
        if (worth > most || (worth == most && other < found)) {
            most = worth;
            found = other;
        }
    }
    return found;
}

/* Number the blocks of `joined` (by block below: the block of this level) and list their tasks. */
static int level_make(struct blocks_level *level, const struct matching *m,
                      const struct blocks_level *below, const uint32_t *joined, uint32_t n_blocks) {
    const struct task_graph *g = m->graph;
    uint32_t *first = calloc((size_t)n_blocks + 2, sizeof(uint32_t));
    uint32_t *items = calloc((size_t)g->n_tasks + 1, sizeof(uint32_t));

    *level = (struct blocks_level){
        .n_blocks = n_blocks,
        .block = calloc((size_t)g->n_tasks + 1, sizeof(uint32_t)),
        .members = { first, items },
        .allowed = calloc((size_t)n_blocks + 1, sizeof(uint64_t)),
        .resident_bytes = calloc((size_t)n_blocks + 1, sizeof(uint64_t)),
    };
    if (!first || !items || !level->block || !level->allowed || !level->resident_bytes)
        return -ENOMEM;
    memset(m->block_usec, 0, ((size_t)g->n_tasks + 1) * sizeof(double));
    for (uint32_t b = 0; b < n_blocks; b++)
        level->allowed[b] = UINT64_MAX;
    for (uint32_t v = 0; v < g->n_tasks; v++) {
        uint32_t b = joined[below ? below->block[v] : g->unit[v]];

        level->block[v] = b;
        level->allowed[b] &= g->allowed[g->unit[v]];
        level->resident_bytes[b] += g->resident_bytes[v];
        m->block_usec[b] += m->work_usec[v];
        first[b + 2]++;
    }
    for (uint32_t b = 0; b < n_blocks; b++)
        first[b + 2] += first[b + 1];
    for (uint32_t i = 0; i < g->n_tasks; i++)
        items[first[level->block[g->topological[i]] + 1]++] = g->topological[i];
    return 0;
}

static void level_done(struct blocks_level *level) {
    free(level->block);
    free((void *)level->members.first);
    free((void *)level->members.items);
    free(level->allowed);
    free(level->resident_bytes);
    *level = (struct blocks_level){ 0 };
}

int blocks_init(struct blocks *blocks, const struct task_graph *g) {
    cleanup(matching_done) struct matching matching = { 0 };
    cleanup(freep) uint32_t *joined = malloc(((size_t)g->n_tasks + 1) * sizeof(*joined));
    cleanup(level_done) struct blocks_level below = { 0 };
    int r = joined ? matching_init(&matching, g) : -ENOMEM;

    *blocks = (struct blocks){ 0 };
    for (uint32_t u = 0; u < g->n_units && r == 0; u++)
        joined[u] = u;
    if (r == 0)
        r = level_make(&below, &matching, NULL, joined, g->n_units);
    for (unsigned l = 0; l < BLOCKS_LEVELS && r == 0; l++) {
        const struct blocks_level *from = l > 0 ? &blocks->levels[l - 1] : &below;
        uint32_t n_blocks = 0;

        memset(joined, 0xff, (size_t)from->n_blocks * sizeof(*joined));
        for (uint32_t i = 0; i < g->n_tasks; i++) {
            uint32_t at = from->block[g->topological[i]], other;

            if (joined[at] != TASK_GRAPH_NONE)
                continue;
            other = find_partner(&matching, from, joined, at);
            joined[at] = n_blocks++;
            if (other != TASK_GRAPH_NONE)
                joined[other] = joined[at];
        }
        if ((uint64_t)n_blocks * 20 > (uint64_t)from->n_blocks * 19 || n_blocks <= g->n_devices)
            break;
        r = level_make(&blocks->levels[l], &matching, from, joined, n_blocks);
        blocks->n_levels = l + 1;
    }
    if (r < 0)
        blocks_done(blocks);
    return r;
}

void blocks_done(struct blocks *blocks) {
    for (unsigned l = 0; l < blocks->n_levels; l++)
        level_done(&blocks->levels[l]);
    *blocks = (struct blocks){ 0 };
}
