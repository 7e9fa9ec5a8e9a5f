/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement: fills the placer's problem from the graph and the table of kernels. Nodes of the same
 * op with kernels on the same types of device are one op to the placer, so that it decides once for
 * all of them.
 */
#include "libclient/exec/plan/placement.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/halt.h"
#include "base/map.h"
#include "libclient/core/log.h"
#include "libclient/device/device.h"
#include "libclient/graph/graph.h"
#include "libclient/kernels/kernel.h"

enum { TYPE_GPU, TYPE_CPU, N_TYPES };
static const char *const types[N_TYPES] = { DEVICE_GPU_TYPE, DEVICE_CPU_TYPE };
static const enum kernel_device kernel_types[N_TYPES] = { KERNEL_GPU, KERNEL_CPU };

/* Everything the problem points to. */
struct problem_parts {
    struct placer_op *ops;
    uint32_t n_ops;
    const struct opdef **defs; /* of ops */
    uint8_t *masks;            /* of ops: bit per type that has a kernel */
    struct placer_node *nodes;
    struct placer_edge *edges;
    enum placer_flow *flows;
    struct placer_kernel *kernels;
    const char **device_names;
    struct map known; /* (opdef, types, inputs, outputs) → op + 1 */
    size_t n_edges, n_flows, n_kernels;
};

static void problem_parts_done(struct problem_parts *parts) {
    free(parts->ops);
    free(parts->defs);
    free(parts->masks);
    free(parts->nodes);
    free(parts->edges);
    free(parts->flows);
    free(parts->kernels);
    free(parts->device_names);
    map_done(&parts->known);
}

static int problem_parts_make(struct problem_parts *parts, const struct allot_graph *graph,
                              uint32_t n_nodes, uint32_t n_devices) {
    size_t n_edges = 0, n_flows = 0;

    for (uint32_t i = 0; i < n_nodes; i++) {
        n_edges += graph_node(graph, i)->n_inputs;
        n_flows += graph_node(graph, i)->n_inputs + graph_node(graph, i)->n_outputs;
    }
    parts->ops = calloc(n_nodes + 1, sizeof(*parts->ops));
    parts->defs = calloc(n_nodes + 1, sizeof(struct opdef *));
    parts->masks = calloc(n_nodes + 1, sizeof(*parts->masks));
    parts->nodes = calloc(n_nodes + 1, sizeof(*parts->nodes));
    parts->edges = calloc(n_edges + 1, sizeof(*parts->edges));
    parts->flows = calloc(n_flows + 1, sizeof(*parts->flows));
    parts->kernels = calloc((size_t)N_TYPES * n_nodes + 1, sizeof(*parts->kernels));
    parts->device_names = calloc(n_devices + 1, sizeof(char *));
    return parts->ops && parts->defs && parts->masks && parts->nodes && parts->edges &&
                   parts->flows && parts->kernels && parts->device_names
               ? 0
               : -ENOMEM;
}

static bool is_same_op(const struct problem_parts *parts, uint32_t op, const struct node *node,
                       uint8_t mask) {
    return parts->defs[op] == node->op && parts->masks[op] == mask &&
           parts->ops[op].n_inputs == node->n_inputs && parts->ops[op].n_outputs == node->n_outputs;
}

static void op_flows(struct problem_parts *parts, struct placer_op *op,
                     const struct allot_graph *graph, const struct node *node) {
    op->inputs = &parts->flows[parts->n_flows];
    op->n_inputs = node->n_inputs;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        parts->flows[parts->n_flows++] =
            node_input(graph, node, i)->is_variable ? PLACER_RESOURCE : PLACER_VALUE;
    op->outputs = &parts->flows[parts->n_flows];
    op->n_outputs = node->n_outputs;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        parts->flows[parts->n_flows++] =
            node->outputs[i].is_variable ? PLACER_RESOURCE : PLACER_VALUE;
}

static int op_of(struct problem_parts *parts, const struct allot_graph *graph,
                 const struct node *node, uint32_t *ret) {
    const struct kernel *rows[N_TYPES];
    struct placer_op *op;
    uint8_t mask = 0;
    uint64_t key;
    void *found;

    for (int type = 0; type < N_TYPES; type++) {
        rows[type] = kernel_find(node, kernel_types[type]);
        mask |= (uint8_t)((rows[type] != NULL) << type);
    }
    key = ((uintptr_t)node->op * 31 + node->n_inputs) * 31 + node->n_outputs * 4 + mask;
    found = map_find(&parts->known, key);
    *ret = (uint32_t)((uintptr_t)found - 1);
    if (found && is_same_op(parts, *ret, node, mask))
        return 0;

    *ret = parts->n_ops++;
    op = &parts->ops[*ret];
    parts->defs[*ret] = node->op;
    parts->masks[*ret] = mask;
    op->name = node->op->name;
    op->is_metadata = node->op->flags & OPDEF_METADATA;
    op_flows(parts, op, graph, node);
    op->kernels = &parts->kernels[parts->n_kernels];
    for (uint32_t type = 0; type < N_TYPES; type++)
        if (rows[type]) {
            parts->kernels[parts->n_kernels++] =
                (struct placer_kernel){ type, rows[type]->priority };
            op->n_kernels++;
        }
    return found ? 0 : map_put(&parts->known, key, (void *)((uintptr_t)*ret + 1));
}

static int node_of(struct problem_parts *parts, const struct placement *placement,
                   const struct allot_graph *graph, const struct node *node) {
    struct placer_node *placed = &parts->nodes[node->id];
    int r = op_of(parts, graph, node, &placed->op);

    if (r < 0)
        return r;
    placed->name = node->name;
    placed->requested = node->device;
    placed->assigned =
        node->id < placement->n_nodes && placement->devices[node->id] != PLACEMENT_NONE
            ? parts->device_names[placement->devices[node->id]]
            : NULL;
    placed->colocate = node->colocate;
    placed->n_colocate = node->n_colocate;
    placed->inputs = &parts->edges[parts->n_edges];
    for (uint32_t i = 0; i < node->n_inputs; i++)
        parts->edges[parts->n_edges++] =
            (struct placer_edge){ node->inputs[i].node, node->inputs[i].output };
    return 0;
}

static void say_where(const struct placement *placement, const struct allot_graph *graph,
                      struct device *const *devices, uint32_t first, uint32_t n) {
    for (uint32_t i = first; i < n; i++) {
        const struct node *node = graph_node(graph, i);
        const char *device = devices[placement->devices[i]]->name;

        if (placement->reasons[i] == PLACER_FIRST || placement->reasons[i] == PLACER_REQUESTED)
            log_say(ALLOT_LOG_INFO, "%s: (%s): %s", node->name, node->op->name, device);
        else
            log_say(ALLOT_LOG_INFO, "%s: (%s): %s (%s)", node->name, node->op->name, device,
                    placer_reason_text(placement->reasons[i]));
    }
}

static int grow(struct placement *placement, uint32_t n) {
    uint32_t *devices = realloc(placement->devices, (n + 1) * sizeof(*devices));
    enum placer_reason *reasons;

    if (!devices)
        return -ENOMEM;
    placement->devices = devices;
    reasons = realloc(placement->reasons, (n + 1) * sizeof(*reasons));
    if (!reasons)
        return -ENOMEM;
    placement->reasons = reasons;
    return 0;
}

static int called_off(struct allot_error *err) {
    return error_set(err, -ECANCELED, "the placement was cancelled");
}

static int no_memory(uint32_t n, struct allot_error *err) {
    return error_set(err, -ENOMEM, "no host memory to place %u nodes", n);
}

/* The placer's error in the library's words. */
static int refused(enum placer_code code, uint32_t n, const struct placer_error *error,
                   struct allot_error *err) {
    return code == PLACER_OK          ? 0
           : code == PLACER_CANCELLED ? called_off(err)
           : code == PLACER_NO_MEMORY ? no_memory(n, err)
                                      : error_set(err, -EINVAL, "%s", error->text);
}

static int ask(struct placement *placement, uint32_t n, const struct placer_problem *problem,
               struct allot_error *err) {
    cleanup(freep) uint32_t *chosen = calloc(n + 1, sizeof(*chosen));
    cleanup(freep) enum placer_reason *reasons = calloc(n + 1, sizeof(*reasons));
    cleanup(freep) struct placer_error *error = calloc(1, sizeof(*error));
    int r;

    if (!chosen || !reasons || !error || grow(placement, n) < 0)
        return no_memory(n, err);
    r = refused(placer_simple(problem, chosen, reasons, error), n, error, err);
    placement->n_passes++;
    if (r < 0)
        return r;
    memcpy(&placement->devices[placement->n_nodes], &chosen[placement->n_nodes],
           (n - placement->n_nodes) * sizeof(*chosen));
    memcpy(&placement->reasons[placement->n_nodes], &reasons[placement->n_nodes],
           (n - placement->n_nodes) * sizeof(*reasons));
    return 0;
}

/* The first `n` nodes of the graph as the placer's problem, in `parts`. */
static int describe(struct problem_parts *parts, const struct placement *placement,
                    const struct placement_request *request, uint32_t n, struct placer_problem *ret,
                    struct allot_error *err) {
    int r = problem_parts_make(parts, request->graph, n, request->n_devices);

    for (uint32_t i = 0; r == 0 && i < request->n_devices; i++)
        parts->device_names[i] = request->devices[i]->name;
    for (uint32_t i = 0; r == 0 && i < n; i++)
        r = halt_is_set(request->halt)
                ? -ECANCELED
                : node_of(parts, placement, request->graph, graph_node(request->graph, i));
    *ret = (struct placer_problem){
        .types = types,
        .n_types = N_TYPES,
        .devices = parts->device_names,
        .n_devices = request->n_devices,
        .ops = parts->ops,
        .n_ops = parts->n_ops,
        .nodes = parts->nodes,
        .n_nodes = n,
        .soft = request->soft,
        .halt = request->halt,
    };
    return r == -ECANCELED ? called_off(err) : r < 0 ? no_memory(n, err) : 0;
}

int placement_extend(struct placement *placement, const struct placement_request *request, bool log,
                     struct allot_error *err) {
    cleanup(problem_parts_done) struct problem_parts parts = { 0 };
    uint32_t n = graph_n_nodes(request->graph);
    struct placer_problem problem;
    int r;

    if (n == placement->n_nodes)
        return 0;
    r = describe(&parts, placement, request, n, &problem, err);
    if (r == 0)
        r = ask(placement, n, &problem, err);
    if (r < 0)
        return r;
    if (log)
        say_where(placement, request->graph, request->devices, placement->n_nodes, n);
    placement->n_nodes = n;
    return 0;
}

int placement_choices(struct placement *placement, const struct placement_request *request,
                      uint32_t n, struct placer_choice *ret, struct allot_error *err) {
    cleanup(problem_parts_done) struct problem_parts parts = { 0 };
    cleanup(freep) struct placer_error *error = calloc(1, sizeof(*error));
    struct placer_problem problem;
    int r;

    if (!error || grow(placement, n) < 0)
        return no_memory(n, err);
    for (; placement->n_nodes < n; placement->n_nodes++)
        placement->devices[placement->n_nodes] = PLACEMENT_NONE;
    r = describe(&parts, placement, request, n, &problem, err);
    return r < 0 ? r : refused(placer_choices(&problem, ret, error), n, error, err);
}

void placement_done(struct placement *placement) {
    free(placement->devices);
    free(placement->reasons);
}
