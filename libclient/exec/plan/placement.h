/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Placement: which device each node of a graph runs on, kept from run to run.
 *
 * The first run of a session places all nodes that the graph has then. Later nodes are placed when
 * a run first uses them; nodes that have a device keep it. One thread at a time.
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
    uint32_t *devices; /* by node: index of the session's devices; PLACEMENT_NONE: the dynamic
                          placer decides, anew for each plan */
    enum placer_reason *reasons;
};
#define PLACEMENT_NONE UINT32_MAX

/* What is placed, and where. Borrowed for a call. */
struct placement_request {
    const struct allot_graph *graph;
    struct device *const *devices;
    uint32_t n_devices;
    bool soft;
    const atomic_bool *halt; /* set: -ECANCELED; NULL: it never is */
};

/*
 * Place the nodes that were added since. `log`: log where each new one goes, and why if that is not
 * obvious. -EINVAL with the placer's words, -ECANCELED by `halt`; what was placed before stays.
 */
int placement_extend(struct placement *placement, const struct placement_request *request, bool log,
                     struct allot_error *err);

/* Where the first `n` nodes may go, in ret[i], given those that have a device. The others get no
 * device by this. The errors of placement_extend(). */
int placement_choices(struct placement *placement, const struct placement_request *request,
                      uint32_t n, struct placer_choice *ret, struct allot_error *err);
void placement_done(struct placement *placement);
