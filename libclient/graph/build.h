/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Build: how a node is added to a graph.
 *
 * Everything is checked at once: the op, the number and types of its inputs, its attributes, the
 * shapes. Type and length attributes that follow from the inputs need not be given. If a value is
 * wanted and the input is the handle of a variable, a ReadVariable is put in between. A failure
 * leaves nothing behind. One thread at a time.
 */
#include "libclient/graph/graph.h"

/* Entries of a list of inputs or outputs: more than any program needs, and few enough that a
 * hostile file cannot take all memory. */
#define BUILD_LIST_MAX 65536

struct build_attr {
    const char *name;
    struct attr value; /* borrowed */
};

struct build_node {
    const char *op;
    const char *name;   /* NULL: as the op; made unique (name.h) */
    const char *device; /* NULL: as the scopes say; parts that are not given are theirs too */
    const struct edge *inputs; /* flat: lists lie in a row */
    size_t n_inputs;
    const struct build_attr *attrs;
    size_t n_attrs;
    const uint32_t *controls; /* besides those of the scopes */
    size_t n_controls;
    const uint32_t *colocate; /* likewise */
    size_t n_colocate;
};

/* -EINVAL with a sentence that names node, op, and what does not fit; -ENOENT: no such op. */
int build_add(struct allot_graph *graph, const struct build_node *request, uint32_t *ret,
              struct allot_error *err);

/*
 * The value of a variable. Outside of control scopes all readers share one node; inside, each gets
 * a new one, so that it reads the variable after the nodes of the scope. `fresh`: make a new one in
 * any case.
 */
int build_read(struct allot_graph *graph, struct edge variable, bool fresh, struct edge *ret,
               struct allot_error *err);
/* Always a new one, with the name `name` instead of one made from the variable's. */
int build_read_named(struct allot_graph *graph, struct edge variable, const char *name,
                     struct edge *ret, struct allot_error *err);

/* A tensor whose elements are all the same number. -EOVERFLOW, -ENOMEM. */
int constant_new(struct allot_tensor **ret, enum dtype dtype, const struct shape *shape,
                 double value, struct allot_error *err);

/*
 * Several nodes in a row: after the first failure, kept in `r`, or if an input is GRAPH_NO_EDGE,
 * the calls do nothing and return GRAPH_NO_EDGE. They return output 0 (also for a node without
 * outputs, for its id).
 */
struct build {
    struct allot_graph *graph;
    struct allot_error *err;
    int r;
};

struct edge build_n(struct build *build, const char *op, const struct edge *inputs, size_t n_inputs,
                    const struct build_attr *attrs, size_t n_attrs);
struct edge build_1(struct build *build, const char *op, struct edge x);
struct edge build_2(struct build *build, const char *op, struct edge x, struct edge y);
struct edge build_3(struct build *build, const char *op, struct edge x, struct edge y,
                    struct edge z);
/* build_with(build, "Sum", EDGES(x), { "axes", attr_ints(axes, n) }, …) */
#define build_with(build, op, edges, ...)                                                          \
    build_n(build, op, edges, (const struct build_attr[]){ __VA_ARGS__ },                          \
            sizeof((const struct build_attr[]){ __VA_ARGS__ }) / sizeof(struct build_attr))
#define EDGES(...)                                                                                 \
    (const struct edge[]){ __VA_ARGS__ },                                                          \
        sizeof((const struct edge[]){ __VA_ARGS__ }) / sizeof(struct edge)
/* A single number of that type. */
struct edge build_number(struct build *build, enum dtype dtype, double value);
struct edge build_const(struct build *build, struct allot_tensor *tensor);
