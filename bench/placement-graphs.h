/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Placement graphs: graphs that can be spread over several GPUs in different ways, and the clock of
 * the simulated box. Ops of layer i are named ".../layer_i/...", those of branch i
 * ".../branch_i/…", for rules that place by name.
 */
#include <allot/session.h>
#include <allot/train.h>

struct placement_graph {
    const char *name;
    struct allot_graph *graph;
    struct allot_optimizer *optimizer; /* NULL: nothing is trained */
    struct allot_node *init, *step;    /* `init` NULL: there are no variables */
};

/* How many there are. */
#define PLACEMENT_GRAPHS 5

/* Graph number `i`, made inside the scopes that `push` has pushed (NULL: none). Returns -errno. */
int placement_graph_new(struct placement_graph *ret, unsigned i,
                        int (*push)(struct allot_graph *graph, void *data), void *data,
                        struct allot_error *err);
void placement_graph_done(struct placement_graph *graph);

/* Modelled microseconds of one step: the second, as the first loads kernels and constants. */
int placement_graph_time(const struct placement_graph *graph, struct allot_session *session,
                         double *ret_usec, struct allot_error *err);
