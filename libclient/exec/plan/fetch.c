/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetch: what leaves a program: the requested outputs and, if a shape depends on data, everything
 * that the next stage is fed with.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/plan/compile.h"

enum { HOST = 0 };

/* A fetched variable is read behind everything that was made before: after the last write. */
static int read_last(struct compile *compile, struct port *port) {
    uint32_t handle = port->value;
    const struct node *node = compile->program->values[handle].node;

    return compile_read(compile, port, node, handle, port->after);
}

/* Every fetch ends up in a tensor of its own on the host. */
static int fetch_new(struct compile *compile, struct edge edge, struct allot_error *err) {
    struct program *program = compile->program;
    struct port *port = compile_port(compile, edge);
    struct program_fetch *fetch = &program->fetches[program->n_fetches];
    uint32_t value, after;
    int r;

    r = program->values[port->value].where == VALUE_HANDLE ? read_last(compile, port) : 0;
    if (r == 0)
        r = compile_value_in(compile, port->value, port->after, HOST, &value, &after, err);
    if (r == 0 && program->values[value].where == VALUE_SLAB) {
        program->values[value].where = VALUE_FETCH;
        program->values[value].index = program->n_fetches;
    } else if (r == 0 && program->values[value].where != VALUE_FETCH &&
               program->values[value].where != VALUE_OPEN)
        r = compile_copy(compile, value, after, VALUE_FETCH, HOST, program->n_fetches, &value);
    if (r < 0)
        return r;
    *fetch = (struct program_fetch){ edge, port->dtype, port->shape, value,
                                     allot_tensor_ref(port->known) };
    program->n_fetches++;
    return 0;
}

static bool is_later_edge(const struct compile *compile, struct edge edge) {
    return compile->is_later[compile->local[edge.node]];
}

/* A variable is read after everything has run: in the last stage. */
static bool is_later_fetch(const struct compile *compile, struct edge edge) {
    return is_later_edge(compile, edge) ||
           (compile->program->has_next && graph_output(compile->request->graph, edge)->is_variable);
}

/* What the next stage uses of this one: each output once. */
static int fetch_for_next(struct compile *compile, struct allot_error *err) {
    const struct allot_graph *graph = compile->request->graph;
    cleanup(freep) bool *is_taken =
        calloc(compile->first_port[compile->n_nodes] + 1, sizeof(*is_taken));

    if (!is_taken)
        return -ENOMEM;
    for (uint32_t i = 0; i < compile->n_nodes; i++) {
        const struct node *node = graph_node(graph, compile->nodes[i]);

        for (uint32_t k = 0; compile->is_later[i] && k < node->n_inputs; k++) {
            struct edge edge = node->inputs[k];
            uint32_t port = compile->first_port[compile->local[edge.node]] + edge.output;
            int r;

            if (is_later_edge(compile, edge) || is_taken[port] ||
                compile->ports[port].feed != PROGRAM_NONE || graph_output(graph, edge)->is_variable)
                continue;
            is_taken[port] = true;
            r = fetch_new(compile, edge, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int note_done(struct compile *compile) {
    const struct program_request *request = compile->request;
    struct program *program = compile->program;

    program->n_graph = graph_n_nodes(request->graph);
    program->is_done = calloc(program->n_graph + 1, sizeof(*program->is_done));
    if (!program->is_done)
        return -ENOMEM;
    if (request->is_done)
        memcpy(program->is_done, request->is_done, request->n_done * sizeof(*request->is_done));
    for (uint32_t i = 0; i < compile->n_nodes; i++)
        if (compile->is_needed[i] && !compile->is_later[i])
            program->is_done[compile->nodes[i]] = true;
    return 0;
}

int compile_fetches(struct compile *compile, struct allot_error *err) {
    const struct program_request *request = compile->request;
    struct program *program = compile->program;
    size_t n = (size_t)request->n_fetches +
               (program->has_next ? compile->first_port[compile->n_nodes] : 0);
    int r = 0;

    program->fetches = calloc(n + 1, sizeof(*program->fetches));
    program->fetch_of = calloc(request->n_fetches + 1, sizeof(*program->fetch_of));
    if (!program->fetches || !program->fetch_of)
        return -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < request->n_fetches; i++) {
        bool later = is_later_fetch(compile, request->fetches[i]);

        program->fetch_of[i] = later ? PROGRAM_NONE : program->n_fetches;
        r = later ? 0 : fetch_new(compile, request->fetches[i], err);
    }
    if (r == 0 && program->has_next)
        r = fetch_for_next(compile, err);
    return r == 0 && program->has_next ? note_done(compile) : r;
}
