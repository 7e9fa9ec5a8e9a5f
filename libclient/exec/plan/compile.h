/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Compile: a program while it is being built. Internal to the files that build it; one thread.
 */
#include <errno.h>

#include "base/halt.h"
#include "base/map.h"
#include "libclient/exec/plan/program.h"

/* An output of a node: a value under the node's own shape. */
struct port {
    enum dtype dtype;
    struct shape shape;
    struct allot_tensor *known; /* on the host, if it is known ahead; one reference */
    uint32_t value;
    uint32_t after; /* item that must have run before it is used; PROGRAM_NONE */
    uint32_t feed;  /* it is fed by this one; PROGRAM_NONE */
    bool is_open;   /* its shape is known only when it is computed */
    bool can_know;  /* it would be known if what is fed were */
    bool is_asked;  /* … and a shape depends on it */
};

/* `first` must have run before `then` begins. */
struct precedence {
    uint32_t first, then;
};

/* When a node is to run, in microseconds from the begin of the step, by the dynamic placer's plan.
 */
struct planned_node {
    double start, end;
    uint32_t rank; /* of its task among all as they start; PROGRAM_NONE: it has none */
};

struct compile {
    const struct program_request *request;
    struct program *program;
    const uint32_t *placement; /* device of each node of the graph */
    uint32_t *own_placement;   /* the same, if the dynamic placer made it for this program */
    struct planned_node
        *planned;    /* by local: when the dynamic placer runs it; NULL: another placer */
    uint32_t *nodes; /* those that are needed, in graph order */
    uint32_t n_nodes;
    uint32_t *local;      /* node → index in `nodes`; PROGRAM_NONE */
    uint32_t *first_port; /* by local, n_nodes + 1 */
    struct port *ports;
    uint32_t *node_item; /* by local: item after which the node has run; PROGRAM_NONE: at once */
    bool *is_needed;     /* by local: it runs; else only what is fed of it is used */
    bool *is_later;      /* by local: the next stage's */
    bool *is_control;    /* by local: some node waits for it by a control edge */
    bool asks;           /* the program must be told what is fed: some port is_asked */
    uint8_t *later_uses; /* by local, of a variable: what the next stage does to it, prune.c's */

    uint32_t n_values_max, n_items_max, n_args_max;
    struct precedence *edges;
    uint32_t n_edges, n_edges_max;
    struct map copies;           /* (value, space) → the same bytes there, + 1 */
    struct kernel_value *values; /* room for the inputs and outputs of the largest node */
    uint32_t *arguments;         /* likewise, for their values */
    /* By item, in their current order: when it would begin and end, in nanoseconds, if several
     * items run at once; made by compile_schedule(). NULL: items run one after the other. */
    uint64_t *begin, *end;
    /* Items that read each value, made by compile_uses(). */
    uint32_t *first_use, *uses;
    uint32_t n_pins_max, n_pins;
    uint32_t n_all_reduces; /* so far: they take channels in turn */
    uint32_t *channel_ends; /* all_reduce.c's: the last item on each stream of each; NULL */
};

static inline struct port *compile_port(const struct compile *compile, struct edge edge) {
    return &compile->ports[compile->first_port[compile->local[edge.node]] + edge.output];
}

/* 0, or -ECANCELED: the caller has set `halt`. Every loop over nodes or items checks it at each
 * step. */
static inline int compile_check(const struct compile *compile) {
    return halt_is_set(compile->request->halt) ? -ECANCELED : 0;
}

/* prune.c: which nodes are needed, and the shape of everything. */
int compile_prune(struct compile *compile, struct allot_error *err);
int compile_shapes(struct compile *compile, struct allot_error *err);
/* lower.c: items, values and edges, in graph order. */
int compile_lower(struct compile *compile, struct allot_error *err);
int compile_edge(struct compile *compile, uint32_t first, uint32_t then); /* -ENOMEM */
int compile_value(struct compile *compile, const struct program_value *value, uint32_t *ret);
int compile_item(struct compile *compile, enum item_kind kind, const struct node *node,
                 uint32_t device, uint32_t *ret);
/* The values of the newest item: inputs first, then outputs. */
int compile_args(struct compile *compile, const uint32_t *values, uint32_t n_inputs,
                 uint32_t n_outputs);
/* Edges from what the node waits for to an item. */
int compile_controls(struct compile *compile, const struct node *node, uint32_t item);
/* Which of the op's arguments the flat input or output `i` belongs to. */
uint32_t compile_argument(const struct node *node, const struct opdef_arg *args, size_t n_args,
                          uint32_t i);
/* An item that copies `from`, once `after` has run, into a new value. */
int compile_copy(struct compile *compile, uint32_t from, uint32_t after, enum value_where where,
                 uint32_t space, uint32_t index, uint32_t *ret);
/* The bytes of `value` in `space`, and after which item they are there. */
int compile_value_in(struct compile *compile, uint32_t value, uint32_t after, uint32_t space,
                     uint32_t *ret, uint32_t *ret_after, struct allot_error *err);
/* An item that reads the variable `handle`, once `after` has run, and gives it to `port`. */
int compile_read(struct compile *compile, struct port *port, const struct node *node,
                 uint32_t handle, uint32_t after);
/* all_reduce.c: the items of a sum over replicas. */
int compile_all_reduce(struct compile *compile, uint32_t local, const struct node *node,
                       struct port *ports, struct allot_error *err);
/* How many copies one GPU sends for such a sum, one after the other. */
uint32_t compile_all_reduce_steps(uint64_t bytes, uint32_t n_replicas);
/* fetch.c: what leaves the program. */
int compile_fetches(struct compile *compile, struct allot_error *err);
/* Items that read each value, in order. */
int compile_uses(struct compile *compile); /* -ENOMEM */
/* fuse_update.c: products that are subtracted from a variable as they are computed. */
int compile_fuse_update(struct compile *compile); /* -ENOMEM */
/* variables.c: edges that keep reads and writes of a variable in the order of the graph. */
int compile_variables(struct compile *compile);
/* schedule.c: another order of the items, with less memory. */
int compile_schedule(struct compile *compile);
int compile_permute(struct compile *compile, const uint32_t *sequence); /* -ENOMEM */
/* keep_order.c: the order of the dynamic placer's plan instead. */
int compile_keep_order(struct compile *compile);
/* If gradients are added up over replicas, each GPU runs its ops in the order of the
 * graph, so that the backward pass makes gradients in the order in which they are added up. */
int compile_sums_order(struct compile *compile); /* -ENOMEM */
/* layout.c: where values lie. */
int compile_layout(struct compile *compile);
/* edges.c: lists of edges: for each item, the items that it waits for, in order, and those that
 * wait for it. Each edge is there once. `first_*` have n_items + 1 entries. Free them with
 * compile_edges_done(). */
struct compile_edges {
    uint32_t *first_before, *before, *first_after, *after;
};
int compile_edges(const struct compile *compile, struct compile_edges *ret); /* -ENOMEM */
void compile_edges_done(struct compile_edges *edges);
/* Leave out edges that others imply, at least many of them. -ENOMEM. */
int compile_edges_reduce(const struct compile *compile, struct compile_edges *edges);
/* gpu_events.c: which items and streams wait for work on devices. */
int compile_gpu_events(struct compile *compile, const struct compile_edges *edges);
/* Which queue runs an item: 0 are the host's threads, others one stream each. */
uint32_t compile_queue(const struct program *program, const struct program_item *item);
uint32_t compile_n_queues(const struct program *program);

/* Free what was made on the way, but not the program. */
void compile_done(struct compile *compile);

/* Room for one more in an array that grows; -ENOMEM. */
int compile_room(void *array, uint32_t *n_max, uint32_t n, size_t element_bytes);
