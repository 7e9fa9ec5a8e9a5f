/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Reckoner: a graph run node by node on the CPU's kernels, without plan, threads or shared memory:
 * the reference for whoever runs it better.
 *
 * Failures of the reckoner itself fail the test; those of the graph are returned. One thread.
 */
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/topo.h"

struct reckoner {
    struct allot_graph *graph;
    struct map variables; /* id of a Variable → its value, a struct allot_tensor */
    uint64_t step;
    struct allot_error error; /* of the last run */
};

void reckoner_init(struct reckoner *reckoner, struct allot_graph *graph);
void reckoner_done(struct reckoner *reckoner);

/* One step: `feeds` stand for the outputs request->feeds names, in their order; `ret` gets a
 * reference for each of request->fetches. What the first node that failed answered. */
int reckoner_run(struct reckoner *reckoner, const struct topo_request *request,
                 struct allot_tensor *const *feeds, struct allot_tensor **ret);
