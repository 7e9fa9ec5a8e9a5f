/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ALLOT_GRAPH_H
#define ALLOT_GRAPH_H
/*
 * Graphs: ops and the tensors that flow between them. A graph computes nothing by itself: a session
 * runs it (session.h). Add ops with the typed helpers of ops.h, or by name with the builder below.
 *
 *     struct allot_graph *graph;
 *     struct allot_output a, b, c;
 *
 *     allot_graph_new(&graph, &err);
 *     allot_with_device(graph, "/cpu:0") {
 *         a = allot_constant_f32(graph, "a", 2, (int64_t[]){ 2, 3 },
 *                                (float[]){ 1, 2, 3, 4, 5, 6 });
 *         b = allot_constant_f32(graph, "b", 2, (int64_t[]){ 3, 2 },
 *                                (float[]){ 1, 2, 3, 4, 5, 6 });
 *     }
 *     c = allot_matmul(a, b);
 *     if (allot_graph_error(graph, &err) < 0)
 *         …                           "node 'MatMul': MatMul: [2, 3] and [4, 5]: the inner …"
 *
 * The library checks types and shapes when a node is made. Helpers that return an output keep the
 * first error in the graph; allot_graph_error() returns it. A helper that is given a failed output
 * fails too, and does not report it again.
 *
 * Threads: only one thread at a time may change a graph or look something up in it; the program
 * must see to that. Sessions on other threads may run the graph at the same time: nodes are only
 * ever added, and never change. Any thread may ref and unref a graph. Callbacks (device functions)
 * may not call back into the graph.
 *
 * Functions return 0 or -errno, with a message in `err` (NULL: not wanted):
 *
 *     -EINVAL   types, shapes or attributes do not fit          -ENOMEM   no host memory
 *     -ENOENT   no such op, node or output
 *
 * NULL for a required argument is -EINVAL as well, here and in all headers of the library. Helpers
 * keep that error in the graph; if there is no graph either, they log it (log.h). Functions that
 * only look at something treat NULL as empty: 0, "", a rank of -1.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "error.h"
#include "tensor.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct allot_graph;
struct allot_node; /* lives as long as its graph */
struct allot_op;   /* a node in the making */

/* Output number `index` of a node. `node` is NULL if the node could not be made, or if there is no
 * gradient. */
struct allot_output {
    struct allot_node *node;
    int index;
};

int allot_graph_new(struct allot_graph **ret, struct allot_error *err);
struct allot_graph *allot_graph_ref(struct allot_graph *graph);   /* accepts NULL */
struct allot_graph *allot_graph_unref(struct allot_graph *graph); /* accepts and returns NULL */

/* The first error of a helper since the graph was made or the last error was cleared: its code,
 * with the message in `err`. 0: there was none. */
int allot_graph_error(const struct allot_graph *graph, struct allot_error *err);
void allot_graph_clear_error(struct allot_graph *graph);

/* The seed of random ops that have none of their own. 0, at first: a different one in each session.
 */
void allot_graph_set_seed(struct allot_graph *graph, uint64_t seed);

/* ---- Looking ----------------------------------------------------------------------------------
 */

size_t allot_graph_n_nodes(const struct allot_graph *graph);
/* Node `i`, in the order they were made; NULL: there are no more. */
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

/* The number of dimensions, with their lengths in `dims`, which may be NULL. A rank or a length
 * that is not known is -1. */
int allot_output_shape(struct allot_output output, int64_t dims[ALLOT_RANK_MAX]);
enum allot_dtype allot_output_dtype(struct allot_output output);
/* Whether the output is the handle of a variable. */
bool allot_output_is_variable(struct allot_output output);

/* ---- Scopes: what holds for all nodes made until the pop ---------------------------------------
 */

/*
 * A device: "/gpu:0", "/job:worker/task:1", … Each part of the name that an inner scope gives
 * overrides that part of the outer scopes; NULL cancels all outer scopes. The graph keeps an error,
 * as it does for helpers.
 */
int allot_device_push(struct allot_graph *graph, const char *device);
/*
 * The library calls this function for each node, with its op ("MatMul"), its name, and the device
 * that inner scopes gave it. The function returns the device, in memory that stays valid until the
 * next call, or NULL for no change.
 */
typedef const char *(*allot_device_fn)(const char *op, const char *name, const char *device,
                                       void *userdata);
int allot_device_push_fn(struct allot_graph *graph, allot_device_fn fn, void *userdata);
void allot_device_pop(struct allot_graph *graph);

/* New nodes run only after these `nodes`. `n` 0 cancels the control scopes further out. */
int allot_control_push(struct allot_graph *graph, struct allot_node *const *nodes, size_t n);
static inline int allot_control_push_one(struct allot_graph *graph, struct allot_node *node) {
    return allot_control_push(graph, &node, 1);
}
void allot_control_pop(struct allot_graph *graph);
/* New nodes go to the device of `node`, whatever other scopes say. */
int allot_colocate_push(struct allot_graph *graph, struct allot_node *node);
void allot_colocate_pop(struct allot_graph *graph);
/* New nodes are named "name/…"; in a second scope of that name, "name_1/…". */
int allot_name_push(struct allot_graph *graph, const char *name);
void allot_name_pop(struct allot_graph *graph);

/*
 * What the dynamic placer (session.h) is told about new nodes; other placers ignore it. A hint is
 * not a rule: pins, colocation, kernels and memory come first. Fields that are 0 or NULL are as
 * scopes further out say. A graph file has no hints.
 */
struct allot_hint {
    size_t size;        /* sizeof(struct allot_hint) */
    double cost_usec;   /* how long each of these ops takes, on every device, instead of a model */
    const char *prefer; /* "/gpu:1", "/gpu": elsewhere an op counts as taking a quarter longer */
    bool keep_together; /* all on one device, where they can be */
};
#define ALLOT_HINT_INIT allot_hint_init()
static inline struct allot_hint allot_hint_init(void) {
    struct allot_hint hint;

    memset(&hint, 0, sizeof(hint));
    hint.size = sizeof(hint);
    return hint;
}
int allot_hint_push(struct allot_graph *graph, const struct allot_hint *hint);
void allot_hint_pop(struct allot_graph *graph);

/* allot_with_device(graph, "/cpu:0") { … }: do not leave the block by `break` or `return`. */
#define ALLOT_WITH(push, pop)          ALLOT_WITH_AT(push, pop, __LINE__)
#define ALLOT_WITH_AT(push, pop, line) ALLOT_WITH_AS(push, pop, line)
#define ALLOT_WITH_AS(push, pop, line)                                                             \
    for (int allot_once_##line = ((push), 1); allot_once_##line; (pop), allot_once_##line = 0)
#define allot_with_device(graph, device)                                                           \
    ALLOT_WITH(allot_device_push(graph, device), allot_device_pop(graph))
#define allot_with_control(graph, node)                                                            \
    ALLOT_WITH(allot_control_push_one(graph, node), allot_control_pop(graph))
#define allot_with_hint(graph, hint) ALLOT_WITH(allot_hint_push(graph, hint), allot_hint_pop(graph))
#define allot_with_name(graph, name) ALLOT_WITH(allot_name_push(graph, name), allot_name_pop(graph))

/* ---- Any op by name ----------------------------------------------------------------------------
 */

/* The names of all ops, those of allot_op_register() last. Returns how many there are; writes at
 * most `n` to `ret`. They live as long as the process. */
size_t allot_ops(const char **ret, size_t n);

/*
 * Builds any op of ops.md (allot(3)) or of allot_op_register(). Add its inputs in order (lists with
 * allot_op_inputs), then call allot_op_finish(), which frees the builder in any case and reports
 * the errors of all calls before it. Leave out type and length attributes that follow from the
 * inputs. `name` NULL: the op's name; a name that is taken gets a number.
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

/* Writes the whole graph as graph-file.md (allot(3)) describes it, to a new file that is then
 * renamed. */
int allot_graph_save(const struct allot_graph *graph, const char *path, struct allot_error *err);
/* Reads a graph from such a file and checks each node as if the program had made it. -EBADMSG: not
 * a graph file, or damaged. */
int allot_graph_load(struct allot_graph **ret, const char *path, struct allot_error *err);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
