/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Compile: a program while it is being built. Internal to the files that build it; one thread.
 */
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

struct compile {
    const struct program_request *request;
    struct program *program;
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
    /* By item, as they stand: when it would run, in nanoseconds, if several are to run at once;
     * made by compile_schedule(). NULL: one after the other. */
    uint64_t *begin, *end;
    /* Items that read each value, made by compile_uses(). */
    uint32_t *first_use, *uses;
    uint32_t n_pins_max, n_pins;
};

static inline struct port *compile_port(const struct compile *compile, struct edge edge) {
    return &compile->ports[compile->first_port[compile->local[edge.node]] + edge.output];
}

/* 0, or -ECANCELED: the caller has set `halt`. Every loop over nodes or items asks at each. */
static inline int compile_check(const struct compile *compile) {
    return halt_is_set(compile->request->halt) ? -ECANCELED : 0;
}

/* prune.c: which nodes are needed, and the shape of everything. */
int compile_prune(struct compile *compile, struct allot_error *err);
int compile_shapes(struct compile *compile, struct allot_error *err);
/* lower.c: items, values and edges, in graph order. */
int compile_lower(struct compile *compile, struct allot_error *err);
int compile_edge(struct compile *compile, uint32_t first, uint32_t then); /* -ENOMEM */
/* An item that copies `from`, once `after` has run, into a new value. */
int compile_copy(struct compile *compile, uint32_t from, uint32_t after, enum value_where where,
                 uint32_t space, uint32_t index, uint32_t *ret);
/* The bytes of `value` in `space`, and after which item they are there. */
int compile_value_in(struct compile *compile, uint32_t value, uint32_t after, uint32_t space,
                     uint32_t *ret, uint32_t *ret_after, struct allot_error *err);
/* An item that reads the variable `handle`, once `after` has run, and gives it to `port`. */
int compile_read(struct compile *compile, struct port *port, const struct node *node,
                 uint32_t handle, uint32_t after);
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
/* layout.c: where values lie. */
int compile_layout(struct compile *compile);
/* edges.c: the edges as lists, each edge once; those before an item in their order. `first_*` have
 * n_items + 1 entries. All to be freed. */
struct compile_edges {
    uint32_t *first_before, *before, *first_after, *after;
};
int compile_edges(const struct compile *compile, struct compile_edges *ret); /* -ENOMEM */
void compile_edges_done(struct compile_edges *edges);
/* Leave out edges that others imply, many of them at least. -ENOMEM. */
int compile_edges_reduce(const struct compile *compile, struct compile_edges *edges);
/* gpu_events.c: which items and streams wait for work on devices. */
int compile_gpu_events(struct compile *compile, const struct compile_edges *edges);

/* Room for one more in an array that grows; -ENOMEM. */
int compile_room(void *array, uint32_t *n_max, uint32_t n, size_t element_bytes);
