/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Graph reference: a graph run node by node on the CPU's kernels, without plan, threads or shared
 * memory: the reference for the executor.
 *
 * Failures of the reference itself fail the test; those of the graph are returned. One thread.
 */
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/topo.h"

struct graph_reference {
    struct allot_graph *graph;
    struct map variables; /* id of a Variable → its value, a struct allot_tensor */
    uint64_t step;
    struct allot_error error; /* of the last run */
};

void graph_reference_init(struct graph_reference *reference, struct allot_graph *graph);
void graph_reference_done(struct graph_reference *reference);

/* One step: `feeds` stand for the outputs request->feeds names, in their order; `ret` gets a
 * reference for each of request->fetches. Returns the error of the first node that failed. */
int graph_reference_run(struct graph_reference *reference, const struct topo_request *request,
                        struct allot_tensor *const *feeds, struct allot_tensor **ret);
