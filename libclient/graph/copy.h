/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Copy: the first nodes of a graph in a new one, under the same ids and names.
 */
#include "libclient/graph/graph.h"

/*
 * Nodes 0 to n - 1, with what the graph remembers of variables, but for hints of the placer. No
 * other thread may build `from` meanwhile. -EINVAL: one of the variables is a copy of a strategy,
 * so its graph was built for a number of devices; -ENOMEM.
 */
int graph_copy(struct allot_graph **ret, const struct allot_graph *from, uint32_t n,
               struct allot_error *err);
