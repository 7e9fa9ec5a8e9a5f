/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_GRAPH_H
#define ALLOT_GRAPH_H
/*
 * Graphs: ops, and what flows between them. A graph computes nothing: a session runs it
 * (session.h). Ops are put in by the typed helpers of ops.h, or by name with the builder below.
 *
 *     struct allot_graph *graph;
 *     struct allot_output a, b, c;
 *
 *     allot_graph_new(&graph, &err);
 *     allot_with_device(graph, "/cpu:0") {
 *         a = allot_constant_f32(graph, "a", 2, (int64_t[]){ 2, 3 }, (float[]){ 1, 2, 3, 4, 5, 6
 * }); b = allot_constant_f32(graph, "b", 2, (int64_t[]){ 3, 2 }, (float[]){ 1, 2, 3, 4, 5, 6 });
 *     }
 *     c = allot_matmul(a, b);
 *     if (allot_graph_error(graph, &err) < 0)
 *         …                           "node 'MatMul': MatMul: [2, 3] and [4, 5]: the inner …"
 *
 * Types and shapes are checked when a node is made. Helpers that give an output keep the first
 * error in the graph, where allot_graph_error() finds it; what is built on a failed output fails
 * with it, in silence.
 *
 * Threads: a graph has one builder at a time: a thread that calls anything here that changes it, or
 * looks something up in it, must keep others from doing so meanwhile. Sessions on other threads may
 * run it all the while: nodes only ever come to it, and never change. References may be taken and
 * given back by any thread. Callbacks (device functions) may not call back into the graph.
 *
 * Functions return 0 or -errno, with a sentence in `err` (NULL: not wanted):
 *
 *     -EINVAL   types, shapes or attributes do not fit          -ENOMEM   no host memory
 *     -ENOENT   no such op, node or output
 *
 * NULL where something must be is -EINVAL as well, here and in all headers of the library. Helpers
 * keep that in the graph; where there is no graph either, it is said through the log (log.h). What
 * only looks at something tells of NULL that it is empty: 0, "", a rank of -1.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct allot_graph;
struct allot_node; /* lives as long as its graph */
struct allot_op;   /* a node in the making */

/* What a node gives: number `index` of its outputs. `node` is NULL where it could not be made, and
 * for gradients that there are not. */
struct allot_output {
    struct allot_node *node;
    int index;
};

int allot_graph_new(struct allot_graph **ret, struct allot_error *err);
struct allot_graph *allot_graph_ref(struct allot_graph *graph);   /* accepts NULL */
struct allot_graph *allot_graph_unref(struct allot_graph *graph); /* accepts and returns NULL */

/* The first error of a helper since the graph was made, or since it was cleared: its code, with the
 * sentence in `err`. 0: there was none. */
int allot_graph_error(const struct allot_graph *graph, struct allot_error *err);
void allot_graph_clear_error(struct allot_graph *graph);

/* The seed of random ops that have none of their own. 0, at first: another in each session. */
void allot_graph_set_seed(struct allot_graph *graph, uint64_t seed);

/* ---- Looking ----------------------------------------------------------------------------------
 */

size_t allot_graph_n_nodes(const struct allot_graph *graph);
/* In order of making; NULL: there are no more. */
struct allot_node *allot_graph_node(const struct allot_graph *graph, size_t i);
/* By name: "matmul", or "matmul:1" for its second output. */
int allot_graph_find(const struct allot_graph *graph, const char *name, struct allot_output *ret,
                     struct allot_error *err);

const char *allot_node_name(const struct allot_node *node);
const char *allot_node_op(const struct allot_node *node);     /* "MatMul" */
const char *allot_node_device(const struct allot_node *node); /* as asked for; "": anywhere */
int allot_node_n_outputs(const struct allot_node *node);
int allot_node_n_inputs(const struct allot_node *node);
struct allot_output allot_node_input(const struct allot_node *node, int i);

/* The number of dimensions, with their lengths in `dims`; -1: not known, as single lengths may be.
 * `dims` may be NULL. */
int allot_output_shape(struct allot_output output, int64_t dims[ALLOT_RANK_MAX]);
enum allot_dtype allot_output_dtype(struct allot_output output);
/* Whether it is the handle of a variable. */
bool allot_output_is_variable(struct allot_output output);

/* ---- Scopes: what holds for all nodes made until the pop ---------------------------------------
 */

/*
 * A device: "/gpu:0", "/job:worker/task:1", … Scopes further in go before those further out, part
 * by part; NULL ends them all. Errors are kept as the helpers' are.
 */
int allot_device_push(struct allot_graph *graph, const char *device);
/*
 * A function that is asked for each node: its op ("MatMul"), its name, and the device that scopes
 * further in gave it. It returns the device, in memory that stays until the next call, or NULL for
 * no change.
 */
typedef const char *(*allot_device_fn)(const char *op, const char *name, const char *device,
                                       void *userdata);
int allot_device_push_fn(struct allot_graph *graph, allot_device_fn fn, void *userdata);
void allot_device_pop(struct allot_graph *graph);

/* Nodes that run only after those. `n` 0 ends what scopes further out ask for. */
int allot_control_push(struct allot_graph *graph, struct allot_node *const *nodes, size_t n);
static inline int allot_control_push_one(struct allot_graph *graph, struct allot_node *node) {
    return allot_control_push(graph, &node, 1);
}
void allot_control_pop(struct allot_graph *graph);
/* Nodes on the device of that one, whatever other scopes say. */
int allot_colocate_push(struct allot_graph *graph, struct allot_node *node);
void allot_colocate_pop(struct allot_graph *graph);
/* Names under "name/"; the second time "name_1/". */
int allot_name_push(struct allot_graph *graph, const char *name);
void allot_name_pop(struct allot_graph *graph);

/* allot_with_device(graph, "/cpu:0") { … }, where `break` and `return` must not leave the block. */
#define ALLOT_WITH(push, pop)          ALLOT_WITH_AT(push, pop, __LINE__)
#define ALLOT_WITH_AT(push, pop, line) ALLOT_WITH_AS(push, pop, line)
#define ALLOT_WITH_AS(push, pop, line)                                                             \
    for (int allot_once_##line = ((push), 1); allot_once_##line; (pop), allot_once_##line = 0)
#define allot_with_device(graph, device)                                                           \
    ALLOT_WITH(allot_device_push(graph, device), allot_device_pop(graph))
#define allot_with_control(graph, node)                                                            \
    ALLOT_WITH(allot_control_push_one(graph, node), allot_control_pop(graph))
#define allot_with_name(graph, name) ALLOT_WITH(allot_name_push(graph, name), allot_name_pop(graph))

/* ---- Any op by name ----------------------------------------------------------------------------
 */

/*
 * An op of ops.md (allot(3)) or of allot_op_register(): its inputs in order (lists by
 * allot_op_inputs), then allot_op_finish(), which ends the builder in any case. Faults on the way
 * are told there. Type and length attributes need not be given where inputs tell them. `name` NULL:
 * as the op; it gets a number where it is taken.
 */
struct allot_op *allot_op_begin(struct allot_graph *graph, const char *op, const char *name);
void allot_op_input(struct allot_op *op, struct allot_output input);
void allot_op_inputs(struct allot_op *op, const struct allot_output *inputs, size_t n);
void allot_op_attr_int(struct allot_op *op, const char *name, int64_t value);
void allot_op_attr_float(struct allot_op *op, const char *name, double value);
void allot_op_attr_bool(struct allot_op *op, const char *name, bool value);
void allot_op_attr_type(struct allot_op *op, const char *name, enum allot_dtype value);
void allot_op_attr_shape(struct allot_op *op, const char *name, int rank, const int64_t *dims);
void allot_op_attr_string(struct allot_op *op, const char *name, const char *value);
void allot_op_attr_tensor(struct allot_op *op, const char *name, struct allot_tensor *value);
void allot_op_attr_ints(struct allot_op *op, const char *name, const int64_t *values, size_t n);
void allot_op_device(struct allot_op *op, const char *device);
void allot_op_control(struct allot_op *op, struct allot_node *node);
void allot_op_colocate(struct allot_op *op, struct allot_node *node);
int allot_op_finish(struct allot_op *op, struct allot_node **ret, struct allot_error *err);
void allot_op_cancel(struct allot_op *op); /* accepts NULL */

/* ---- Files -------------------------------------------------------------------------------------
 */

/* The whole graph as graph-file.md (allot(3)) describes it; by a new file and a rename. */
int allot_graph_save(const struct allot_graph *graph, const char *path, struct allot_error *err);
/* A graph from such a file, checked as if its nodes were made by hand. -EBADMSG: it is none, or
 * damaged. */
int allot_graph_load(struct allot_graph **ret, const char *path, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
