/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Topo: which nodes must run for a step, in an order in which each comes after all that it needs.
 *
 * Pure: reads the nodes that there are when it is called, which never change. Any thread.
 */
#include "libclient/graph/graph.h"

/* What is asked of a step. */
struct topo_request {
    const struct edge *fetches; /* outputs that are wanted */
    size_t n_fetches;
    const uint32_t *targets; /* nodes that must run, whatever their outputs */
    size_t n_targets;
    const struct edge
        *feeds; /* outputs that the caller gives, so that nothing has to compute them */
    size_t n_feeds;
};

/*
 * The ids, ascending, in an array to free(). A node that has a fed output still runs if another of
 * its outputs is wanted, if it is a target or if a node has a control edge from it. -EINVAL: no
 * such output or node; -ENOMEM.
 */
int topo_prune(const struct allot_graph *graph, const struct topo_request *request, uint32_t **ret,
               size_t *ret_n, struct allot_error *err);
