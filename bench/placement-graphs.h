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
    struct allot_strategy *strategy;   /* NULL: not mirrored */
    struct allot_optimizer *optimizer; /* NULL: nothing is trained */
    struct allot_node *init, *step;    /* `init` NULL: there are no variables */
};

enum placement_split {
    PLACEMENT_WHOLE, /* the graph as it is */
    PLACEMENT_PARTS, /* a copy on each GPU with its part of the rows; mirrored, if it is trained */
};

/* The graphs of all kinds, those that cannot be split first. */
enum { PLACEMENT_GRAPHS = 15 };

const char *placement_graph_name(unsigned i);
/* How many layers a name can speak of; 0: it has none. */
int placement_graph_layers(unsigned i);
/* Whether its rows can be split among copies. */
bool placement_graph_splits(unsigned i, enum placement_split split);

/* Graph number `i`, made inside the scopes that `push` has pushed (NULL: none), for `n_gpus`
 * copies if it is split. Returns -errno. */
int placement_graph_new(struct placement_graph *ret, unsigned i, enum placement_split split,
                        unsigned n_gpus, int (*push)(struct allot_graph *graph, void *data),
                        void *data, struct allot_error *err);
void placement_graph_done(struct placement_graph *graph);

/* Modelled microseconds of one step: the second, as the first loads kernels and constants. With
 * PLACEMENT_TRACE in the environment, a third step writes a trace to that file. */
int placement_graph_time(const struct placement_graph *graph, struct allot_session *session,
                         double *ret_usec, struct allot_error *err);

/* bench/placement-families.c: makes one copy for so many rows, and gives its last output. */
struct placement_family {
    const char *name;
    struct allot_output (*make)(struct allot_graph *graph, int64_t rows);
    int n_layers;
    bool is_trained;
    int64_t rows; /* 0: it cannot be split */
};
extern const struct placement_family placement_families[PLACEMENT_GRAPHS];
