/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Schedule: puts the items into the order in which they need least memory (exec/order.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/exec/compile.h"
#include "libclient/exec/order.h"

/* Below this it does not matter, and the order of the graph is the one people expect. */
enum { WORTH_BYTES = 64 << 10 };

/* Which values each item makes and uses, as the order wants it. */
struct flow {
    uint32_t *first_makes, *makes, *first_uses, *uses, *n_users;
    uint64_t *bytes;
};

static void flow_done(struct flow *flow) {
    free(flow->first_makes);
    free(flow->makes);
    free(flow->first_uses);
    free(flow->uses);
    free(flow->n_users);
    free(flow->bytes);
}

static int flow_make(const struct program *program, struct flow *flow) {
    uint32_t n_makes = 0, n_uses = 0;
    cleanup(freep) uint32_t *mark = calloc(program->n_values + 1, sizeof(*mark));

    flow->first_makes = calloc(program->n_items + 1, sizeof(*flow->first_makes));
    flow->first_uses = calloc(program->n_items + 1, sizeof(*flow->first_uses));
    flow->makes = malloc((program->n_values + 1) * sizeof(*flow->makes));
    flow->uses = malloc((program->n_args + 1) * sizeof(*flow->uses));
    flow->n_users = calloc(program->n_values + 1, sizeof(*flow->n_users));
    flow->bytes = calloc(program->n_values + 1, sizeof(*flow->bytes));
    if (!mark || !flow->first_makes || !flow->first_uses || !flow->makes || !flow->uses ||
        !flow->n_users || !flow->bytes)
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
        for (uint32_t a = 0; a < item->n_inputs; a++) {
            if (args[a] == PROGRAM_NONE || flow->bytes[args[a]] == 0 || mark[args[a]] == i + 1)
                continue;
            mark[args[a]] = i + 1;
            flow->n_users[args[a]]++;
            flow->uses[n_uses++] = args[a];
        }
        for (uint32_t a = item->n_inputs; a < item->n_inputs + item->n_outputs; a++)
            flow->makes[n_makes++] = args[a];
        if (item->scratch != PROGRAM_NONE)
            flow->makes[n_makes++] = item->scratch;
    }
    flow->first_makes[program->n_items] = n_makes;
    flow->first_uses[program->n_items] = n_uses;
    return 0;
}

static int permute(struct compile *compile, const uint32_t *sequence) {
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

static int find_order(struct compile *compile, const struct compile_edges *edges,
                      const struct flow *flow) {
    struct program *program = compile->program;
    cleanup(freep) uint32_t *sequence = malloc((program->n_items + 1) * sizeof(*sequence));
    const struct order_problem problem = {
        .n_jobs = program->n_items,
        .n_buffers = program->n_values,
        .before = { edges->first_before, edges->before },
        .after = { edges->first_after, edges->after },
        .makes = { flow->first_makes, flow->makes },
        .uses = { flow->first_uses, flow->uses },
        .bytes = flow->bytes,
        .n_users = flow->n_users,
    };
    uint64_t bytes;
    int r;

    if (!sequence)
        return -ENOMEM;
    r = order_ready(&problem, sequence);
    if (r == 0)
        r = order_peak(&problem, sequence, &program->ready_order_bytes);
    if (r == 0)
        r = order_find(&problem, sequence, &bytes);
    return r < 0 ? r : permute(compile, sequence);
}

int compile_order(struct compile *compile) {
    const struct program *program = compile->program;
    struct compile_edges edges = { 0 };
    struct flow flow = { 0 };
    uint64_t bytes = 0;
    int r;

    for (uint32_t v = 0; v < program->n_values; v++)
        if (program->values[v].where == VALUE_SLAB)
            bytes += program->values[v].bytes;
    if (bytes < WORTH_BYTES)
        return 0;
    r = compile_edges(compile, &edges);
    if (r == 0)
        r = flow_make(program, &flow);
    if (r == 0)
        r = find_order(compile, &edges, &flow);
    compile_edges_done(&edges);
    flow_done(&flow);
    return r;
}
