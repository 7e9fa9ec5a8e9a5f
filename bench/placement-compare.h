/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Placement compare: the modelled step of a placement graph by the dynamic placer, and by what
 * people do by hand:
 *
 *     one GPU         everything on /gpu:0
 *     simple          the simple placer without any hint
 *     round robin     each op on the next GPU
 *     by layer        as many layers in a row on each GPU
 *     by branch       a branch on each GPU
 *     weights on CPU  variables on /cpu:0, the rest on /gpu:0
 *     data parallel   a copy on each GPU with its part of the rows; mirrored, if it is trained
 *
 * Where rows can be split, the dynamic placer plans the graph as it is and its copies, and the one
 * that it expects to take less time counts. Each is a session of its own, on the simulated box that
 * GPUSIM_BOX names.
 */
#include <allot/error.h>
#include <stdbool.h>
#include <stdint.h>

enum { PLACEMENT_RULES = 7 };

struct placement_box {
    int n_gpus;
    uint64_t budget; /* of the dynamic placer */
};

/* Times are in microseconds: NAN if the rule has no meaning for the graph, INFINITY if it does not
 * fit into memory. */
struct placement_comparison {
    double usec, expected_usec; /* by the dynamic placer */
    bool is_split;
    double rule_usec[PLACEMENT_RULES];
    double best_usec; /* of the rules */
};

const char *placement_rule_name(unsigned k);
/* Of graph number `i` (bench/placement-graphs.h). Returns -errno. */
int placement_compare(struct placement_comparison *ret, unsigned i, const struct placement_box *box,
                      struct allot_error *err);
