/* SPDX-License-Identifier: Apache-2.0 */
/* The helpers of allot/ops.h that bring values into a graph: constants, variables, control. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/number.h"
#include "libclient/allot/ops.h"
#include "libclient/api/helper.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/scope.h"

static const struct allot_output none = { NULL, 0 };

static struct allot_output failed(struct allot_graph *graph, const struct allot_error *err) {
    handle_fail(graph, err);
    helper_drop(graph);
    return none;
}

static bool is_graph(struct allot_graph *graph) {
    struct allot_error err;

    return handle_check(graph, &err) == 0 || handle_fail(NULL, &err) == 0;
}

/* ---- Constants ------------------------------------------------------------------------------- */

struct allot_output allot_const(struct allot_graph *graph, const char *name,
                                struct allot_tensor *tensor) {
    struct allot_error err;

    if (!tensor) {
        error_null(&err, "tensor");
        return failed(graph, &err);
    }
    return helper_with(graph, name, "Const", NULL, 0, { "T", attr_dtype(tensor->dtype) },
                       { "value", attr_tensor(tensor) });
}

struct allot_output allot_constant(struct allot_graph *graph, const char *name,
                                   enum allot_dtype dtype, int rank, const int64_t *dims,
                                   const void *data) {
    struct allot_error err = { 0 };
    struct allot_output output;
    struct allot_tensor *tensor;

    if (allot_tensor_copy_of(&tensor, dtype, rank, dims, data, &err) < 0)
        return failed(graph, &err);
    output = allot_const(graph, name, tensor);
    allot_tensor_unref(tensor);
    return output;
}

struct allot_output allot_constant_f32(struct allot_graph *graph, const char *name, int rank,
                                       const int64_t *dims, const float *data) {
    return allot_constant(graph, name, ALLOT_F32, rank, dims, data);
}

/* Whether the type can represent the number. Floats round, so they can represent every number. */
static bool has_number(enum dtype dtype, double value) {
    const int bits = (int)dtype_bytes(dtype) * 8;

    if (dtype_kind(dtype) == DTYPE_KIND_SIGNED)
        return value >= -ldexp(1, bits - 1) && value < ldexp(1, bits - 1) && trunc(value) == value;
    return dtype_kind(dtype) != DTYPE_KIND_UNSIGNED ||
           (value >= 0 && value < ldexp(1, bits) && trunc(value) == value);
}

static struct allot_output number(struct allot_graph *graph, enum allot_dtype dtype, double value) {
    struct allot_error err = { 0 };
    struct allot_output output;
    struct allot_tensor *tensor;
    char text[NUMBER_SIZE];

    if (dtype_is_valid((int)dtype) && !has_number((enum dtype)dtype, value)) {
        error_set(&err, -ERANGE, "%s is not a number of type %s", number_format(text, value, 17),
                  dtype_name((enum dtype)dtype));
        return failed(graph, &err);
    }
    if (constant_new(&tensor, (enum dtype)dtype, &(struct shape){ 0 }, value, &err) < 0)
        return failed(graph, &err);
    output = allot_const(graph, NULL, tensor);
    allot_tensor_unref(tensor);
    return output;
}

struct allot_output allot_scalar(struct allot_graph *graph, enum allot_dtype dtype, double value) {
    return number(graph, dtype, value);
}

struct allot_output helper_shape(struct allot_graph *graph, int rank, const int64_t *dims) {
    struct allot_error err = { 0 };

    if (rank < 0 || rank > SHAPE_RANK_MAX) {
        error_set(&err, -EINVAL, "a shape has 0 to %d dimensions, not %d", SHAPE_RANK_MAX, rank);
        return failed(graph, &err);
    }
    return allot_constant(graph, NULL, ALLOT_I64, 1, (int64_t[]){ rank }, dims);
}

struct allot_output allot_filled(struct allot_graph *graph, enum allot_dtype dtype, int rank,
                                 const int64_t *dims, double value) {
    struct allot_output inputs[2];
    char *next;

    if (!is_graph(graph))
        return none;
    next = TAKE(graph->next_name);
    inputs[0] = helper_shape(graph, rank, dims);
    inputs[1] = number(graph, dtype, value);
    graph->next_name = next;
    return helper_node(graph, NULL, "Fill", inputs, 2, NULL, 0);
}

static bool take_shape(struct allot_graph *graph, const char *what, const char *name, int rank,
                       const int64_t *dims, struct shape *ret) {
    struct allot_error err = { 0 };

    if (shape_take(ret, rank, dims, &err) == 0)
        return true;
    error_wrap(&err, -EINVAL, "%s '%s': its shape is not valid", what, name ? name : "");
    failed(graph, &err);
    return false;
}

struct allot_output allot_placeholder(struct allot_graph *graph, const char *name,
                                      enum allot_dtype dtype, int rank, const int64_t *dims) {
    struct shape shape;

    if (!take_shape(graph, "placeholder", name, rank, dims, &shape))
        return none;
    return helper_with(graph, name, "Placeholder", NULL, 0, { "T", attr_dtype((enum dtype)dtype) },
                       { "shape", attr_shape(shape) });
}

static struct allot_output random_op(struct allot_graph *graph, const char *op,
                                     enum allot_dtype dtype, int rank, const int64_t *dims,
                                     struct build_attr one, struct build_attr other,
                                     uint64_t seed) {
    struct allot_output shape;
    char *next;

    if (!is_graph(graph))
        return none;
    next = TAKE(graph->next_name);
    shape = helper_shape(graph, rank, dims);
    graph->next_name = next;
    return helper_with(graph, NULL, op, &shape, 1, { "T", attr_dtype((enum dtype)dtype) },
                       { "seed", attr_int((int64_t)seed) }, one, other);
}

struct allot_output allot_random_uniform(struct allot_graph *graph, enum allot_dtype dtype,
                                         int rank, const int64_t *dims, double minimum,
                                         double maximum, uint64_t seed) {
    return random_op(graph, "RandomUniform", dtype, rank, dims,
                     (struct build_attr){ "minimum", attr_float(minimum) },
                     (struct build_attr){ "maximum", attr_float(maximum) }, seed);
}

struct allot_output allot_random_normal(struct allot_graph *graph, enum allot_dtype dtype, int rank,
                                        const int64_t *dims, double mean, double stddev,
                                        uint64_t seed) {
    return random_op(graph, "RandomNormal", dtype, rank, dims,
                     (struct build_attr){ "mean", attr_float(mean) },
                     (struct build_attr){ "stddev", attr_float(stddev) }, seed);
}

struct allot_output allot_truncated_normal(struct allot_graph *graph, enum allot_dtype dtype,
                                           int rank, const int64_t *dims, double mean,
                                           double stddev, uint64_t seed) {
    return random_op(graph, "TruncatedNormal", dtype, rank, dims,
                     (struct build_attr){ "mean", attr_float(mean) },
                     (struct build_attr){ "stddev", attr_float(stddev) }, seed);
}

struct allot_output allot_range(struct allot_output start, struct allot_output limit,
                                struct allot_output delta) {
    return helper_node(NULL, NULL, "Range", (struct allot_output[]){ start, limit, delta }, 3, NULL,
                       0);
}

/* ---- Variables ------------------------------------------------------------------------------- */

/* Readers of the variable do not wait for the control scope that it was made in: it exists before
 * every run. */
static struct allot_output variable_node(struct allot_graph *graph, const char *name,
                                         enum dtype dtype, struct shape shape) {
    struct allot_output variable;

    if (allot_control_push(graph, NULL, 0) < 0) {
        helper_drop(graph);
        return none;
    }
    variable = helper_with(graph, name, "Variable", NULL, 0, { "T", attr_dtype(dtype) },
                           { "shape", attr_shape(shape) });
    allot_control_pop(graph);
    return variable;
}

struct allot_output allot_variable_of(struct allot_graph *graph, const char *name,
                                      enum allot_dtype dtype, int rank, const int64_t *dims) {
    struct shape shape;

    if (!take_shape(graph, "variable", name, rank, dims, &shape))
        return none;
    return variable_node(graph, name, (enum dtype)dtype, shape);
}

/* A node that writes the variable, on the variable's device whatever the scopes say, named
 * "<variable>/<what>". */
static struct allot_output write_node(const char *op, struct allot_output variable,
                                      struct allot_output value) {
    const struct node *own = handle_node(variable.node);
    struct allot_output output;
    cleanup(freep) char *name = NULL;
    struct allot_error err;
    size_t size;

    if (!own) {
        helper_drop(handle_graph(&value, 1));
        return none;
    }
    size = strlen(own->name) + strlen(op) + 3;
    name = malloc(size);
    if (!name) {
        error_set(&err, -ENOMEM, "no host memory for a node of op %s", op);
        return failed(own->graph, &err);
    }
    snprintf(name, size, "%s/%s/", own->name, op);
    if (scope_push_placeless(own->graph, &err) < 0)
        return failed(own->graph, &err);
    allot_device_push(own->graph, own->device);
    output =
        helper_node(own->graph, name, op, (struct allot_output[]){ variable, value }, 2, NULL, 0);
    allot_device_pop(own->graph);
    scope_pop(own->graph);
    return output;
}

struct allot_output allot_variable(struct allot_graph *graph, const char *name,
                                   struct allot_output initial) {
    struct allot_output variable, assign;
    const struct node_output *value;
    struct allot_error err;

    if (!is_graph(graph))
        return none;
    if (!initial.node) {
        helper_drop(graph);
        return none;
    }
    if (handle_node(initial.node)->graph != graph || initial.index < 0 ||
        initial.index >= allot_node_n_outputs(initial.node)) {
        error_set(&err, -EINVAL, "variable '%s': its initial value is not an output of this graph",
                  name ? name : "");
        return failed(graph, &err);
    }
    value = &handle_node(initial.node)->outputs[initial.index];
    variable = variable_node(graph, name, value->dtype, value->shape);
    if (!variable.node)
        return none;
    /* The initial value does not wait for the control scope of the variable. */
    if (allot_control_push(graph, NULL, 0) < 0)
        return none;
    assign = write_node("Assign", variable, initial);
    allot_control_pop(graph);
    if (!assign.node)
        return none;
    graph_variable(graph, handle_node(variable.node)->id)->initial = handle_node(assign.node)->id;
    return variable;
}

struct allot_node *allot_initializer(struct allot_graph *graph) {
    cleanup(freep) struct allot_node **nodes = NULL;
    const struct graph_variable *variable;
    cleanup(freep) char *next = NULL;
    struct allot_error err;
    size_t n = 0;

    if (!is_graph(graph))
        return NULL;
    next = helper_name(graph);
    nodes = calloc(graph->variables.n + 1, sizeof(struct allot_node *));
    if (!nodes) {
        error_set(&err, -ENOMEM, "no host memory for the initializer");
        handle_fail(graph, &err);
        return NULL;
    }
    for (size_t pos = 0; (variable = map_next(&graph->variables, &pos));)
        if (variable->initial != UINT32_MAX)
            nodes[n++] = handle_of(graph_node(graph, variable->initial));
    return allot_group(graph, next ? next : "init", nodes, n);
}

/* The value after a write: a read that waits for the write, and that has the name the caller gave.
 */
static struct allot_output changed(const char *op, struct allot_output variable,
                                   struct allot_output value) {
    struct allot_graph *graph = variable.node ? handle_node(variable.node)->graph : NULL;
    cleanup(freep) char *next = graph ? helper_name(graph) : NULL;
    struct allot_output write = write_node(op, variable, value), after;

    if (!write.node || allot_control_push(graph, &write.node, 1) < 0)
        return none;
    graph->next_name = TAKE(next);
    after = allot_read(variable);
    allot_control_pop(graph);
    return after;
}

struct allot_output allot_assign(struct allot_output variable, struct allot_output value) {
    return changed("Assign", variable, value);
}

struct allot_output allot_assign_add(struct allot_output variable, struct allot_output value) {
    return changed("AssignAdd", variable, value);
}

struct allot_output allot_assign_sub(struct allot_output variable, struct allot_output value) {
    return changed("AssignSub", variable, value);
}

struct allot_output allot_read(struct allot_output variable) {
    struct allot_graph *graph = handle_graph(&variable, 1);
    cleanup(freep) char *next = NULL;
    struct allot_error err = { 0 };
    struct edge edge;
    int r;

    if (!graph) {
        helper_drop(NULL);
        return none;
    }
    next = helper_name(graph);
    if (!allot_output_is_variable(variable)) {
        error_set(&err, -EINVAL, "'%s' (op %s) is not a variable: there is nothing to read",
                  allot_node_name(variable.node), allot_node_op(variable.node));
        return failed(graph, &err);
    }
    r = next ? build_read_named(graph, handle_edge(variable), next, &edge, &err)
             : build_read(graph, handle_edge(variable), true, &edge, &err);
    if (r < 0)
        return failed(graph, &err);
    return handle_output(graph, edge);
}

/* ---- Control --------------------------------------------------------------------------------- */

struct allot_node *allot_group(struct allot_graph *graph, const char *name,
                               struct allot_node *const *nodes, size_t n) {
    cleanup(freep) char *next = graph ? helper_name(graph) : NULL;
    struct allot_op *op = allot_op_begin(graph, "NoOp", name ? name : next);
    struct allot_error err = { 0 };
    struct allot_node *node;

    if (n && !nodes) {
        allot_op_cancel(op);
        error_null(&err, "array of nodes");
        handle_fail(graph, &err);
        return NULL;
    }
    for (size_t i = 0; i < n; i++)
        allot_op_control(op, nodes[i]);
    if (allot_op_finish(op, &node, &err) < 0) {
        handle_fail(graph, &err);
        return NULL;
    }
    return node;
}

struct allot_output allot_print(struct allot_output x, const char *message) {
    return helper_with(NULL, NULL, "Print", &x, 1, { "message", attr_string(message) });
}

struct allot_node *allot_assert(struct allot_output condition, const struct allot_output *data,
                                size_t n, const char *message) {
    cleanup(freep) struct allot_output *inputs = malloc((n + 1) * sizeof(inputs[0]));
    struct allot_graph *graph = handle_graph(&condition, 1);
    struct allot_error err;

    if (!graph) {
        helper_drop(NULL);
        return NULL;
    }
    if (!inputs || (n && !data)) {
        if (inputs)
            error_null(&err, "array of data");
        else
            error_set(&err, -ENOMEM, "no host memory for a node of op Assert");
        return failed(graph, &err).node;
    }
    inputs[0] = condition;
    if (n)
        memcpy(inputs + 1, data, n * sizeof(inputs[0]));
    return helper_with(graph, NULL, "Assert", inputs, n + 1, { "message", attr_string(message) })
        .node;
}

struct allot_output allot_check_numerics(struct allot_output x, const char *message) {
    return helper_with(NULL, NULL, "CheckNumerics", &x, 1, { "message", attr_string(message) });
}
