/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Placement: which device each node of a graph runs on, kept from run to run.
 *
 * The first run of a session places all nodes that the graph has then. Later nodes are placed when
 * a run first meets them; nodes that have a place keep it. One thread at a time.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "libclient/place/placer.h"

struct allot_error;
struct allot_graph;
struct device;

struct placement {
    uint32_t n_nodes;  /* placed so far */
    uint32_t n_passes; /* how often the placer was asked */
    uint32_t *devices; /* by node: index of the session's devices */
    enum placer_reason *reasons;
};

/*
 * Place the nodes that were added since. `log`: say where each new one goes, and why where that is
 * not plain, through the log. -EINVAL with the placer's words, -ECANCELED if `*halt` was set (NULL:
 * it never is); what was placed before stays so.
 */
int placement_extend(struct placement *placement, const struct allot_graph *graph,
                     struct device *const *devices, uint32_t n_devices, bool soft, bool log,
                     const atomic_bool *halt, struct allot_error *err);
void placement_done(struct placement *placement);
