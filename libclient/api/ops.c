/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The typed helpers of allot/ops.h that compute. Each makes one node in the graph of its inputs. If
 * an input has no node, its graph already has the error.
 */
#include "libclient/allot/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/api/helper.h"

static const struct allot_output none = { NULL, 0 };

/* How many helpers on this thread had no input that tells their graph. A pending name may have been
 * meant for one of them; the next helper must not use it. */
static _Thread_local uint64_t n_lost;

char *helper_name(struct allot_graph *graph) {
    if (graph->named_by == &n_lost && graph->named_at != n_lost)
        helper_drop(graph);
    return TAKE(graph->next_name);
}

void helper_drop(struct allot_graph *graph) {
    if (!graph) {
        n_lost++;
        return;
    }
    free(graph->next_name);
    graph->next_name = NULL;
}

struct allot_output helper_node(struct allot_graph *graph, const char *name, const char *op,
                                const struct allot_output *inputs, size_t n_inputs,
                                const struct build_attr *attrs, size_t n_attrs) {
    struct build_node request = {
        .op = op, .name = name, .n_inputs = n_inputs, .attrs = attrs, .n_attrs = n_attrs
    };
    cleanup(freep) struct edge *edges = NULL;
    cleanup(freep) char *next = NULL;
    struct allot_error err = { 0 };
    uint32_t id;
    int r;

    if (n_inputs && !inputs) {
        error_set(&err, -EINVAL, "%zu inputs of op %s: NULL was given", n_inputs, op);
        handle_fail(graph, &err);
        helper_drop(graph);
        return none;
    }
    if (!graph && n_inputs == 0) { /* nor a graph to keep the error in */
        error_set(&err, -EINVAL,
                  "a node of op %s has no inputs, so it is not known which graph to add it to: "
                  "give it an input, or a graph",
                  op);
        handle_fail(NULL, &err);
    }
    if (!graph)
        graph = handle_graph(inputs, n_inputs);
    if (!graph) {
        helper_drop(NULL);
        return none;
    }
    next = helper_name(graph);
    if (!name)
        request.name = next;
    for (size_t i = 0; i < n_inputs; i++)
        if (!inputs[i].node) {
            /* The helper failed and reported it; using an output that was never made is an error of
             * its own. */
            if (graph->failure.code == 0) {
                error_set(&err, -EINVAL, "input %zu of op %s is not an output of a node", i, op);
                handle_fail(graph, &err);
            }
            return none;
        }
    if (n_inputs && !handle_graph(inputs, n_inputs))
        return none;
    edges = malloc((n_inputs ? n_inputs : 1) * sizeof(edges[0]));
    r = edges ? 0 : error_set(&err, -ENOMEM, "no host memory for a node of op %s", op);
    for (size_t i = 0; i < n_inputs && r == 0; i++)
        edges[i] = handle_edge(inputs[i]);
    request.inputs = edges;
    if (r == 0)
        r = build_add(graph, &request, &id, &err);
    if (r < 0) {
        handle_fail(graph, &err);
        return none;
    }
    return (struct allot_output){ handle_of(graph_node(graph, id)), 0 };
}

void allot_name_next(struct allot_graph *graph, const char *name) {
    struct allot_error err;

    if (handle_check(graph, &err) < 0) {
        handle_fail(NULL, &err);
        return;
    }
    free(graph->next_name);
    graph->next_name = name ? strdup(name) : NULL;
    graph->named_by = &n_lost;
    graph->named_at = n_lost;
    if (name && !graph->next_name) {
        error_set(&err, -ENOMEM, "no host memory for a name");
        handle_fail(graph, &err);
    }
}

/* ---- By table -------------------------------------------------------------------------------- */

#define X(name, op)                                                                                \
    struct allot_output allot_##name(struct allot_output x) {                                      \
        return helper_node(NULL, NULL, #op, &x, 1, NULL, 0);                                       \
    }
ALLOT_UNARY_OPS(X)
#undef X

#define X(name, op)                                                                                \
    struct allot_output allot_##name(struct allot_output x, struct allot_output y) {               \
        return helper_node(NULL, NULL, #op, (struct allot_output[]){ x, y }, 2, NULL, 0);          \
    }
ALLOT_BINARY_OPS(X)
#undef X

static struct allot_output reduce(const char *op, struct allot_output x, const int64_t *axes,
                                  size_t n, bool keep_dims) {
    return helper_with(NULL, NULL, op, &x, 1, { "axes", attr_ints(axes, n) },
                       { "keep_dims", attr_bool(keep_dims) });
}

#define X(name, op)                                                                                \
    struct allot_output allot_##name(struct allot_output x) {                                      \
        return reduce(#op, x, NULL, 0, false);                                                     \
    }                                                                                              \
    struct allot_output allot_##name##_along(struct allot_output x, const int64_t *axes, size_t n, \
                                             bool keep_dims) {                                     \
        return reduce(#op, x, axes, n, keep_dims);                                                 \
    }
ALLOT_REDUCTIONS(X)
#undef X

/* ---- By hand --------------------------------------------------------------------------------- */

struct allot_output allot_leaky_relu(struct allot_output x, double alpha) {
    return helper_with(NULL, NULL, "LeakyRelu", &x, 1, { "alpha", attr_float(alpha) });
}

struct allot_output allot_select(struct allot_output condition, struct allot_output t,
                                 struct allot_output e) {
    return helper_node(NULL, NULL, "Select", (struct allot_output[]){ condition, t, e }, 3, NULL,
                       0);
}

struct allot_output allot_add_n(const struct allot_output *inputs, size_t n) {
    return helper_node(NULL, NULL, "AddN", inputs, n, NULL, 0);
}

struct allot_output allot_matmul_of(struct allot_output a, struct allot_output b, bool transpose_a,
                                    bool transpose_b) {
    return helper_with(NULL, NULL, "MatMul", ((struct allot_output[]){ a, b }), 2,
                       { "transpose_a", attr_bool(transpose_a) },
                       { "transpose_b", attr_bool(transpose_b) });
}

struct allot_output allot_arg_max(struct allot_output x, int axis) {
    return helper_with(NULL, NULL, "ArgMax", &x, 1, { "axis", attr_int(axis) });
}

struct allot_output allot_arg_min(struct allot_output x, int axis) {
    return helper_with(NULL, NULL, "ArgMin", &x, 1, { "axis", attr_int(axis) });
}

struct allot_output allot_cast(struct allot_output x, enum allot_dtype dtype) {
    return helper_with(NULL, NULL, "Cast", &x, 1, { "U", attr_dtype((enum dtype)dtype) });
}

/* An op with an input and a shape; the shape becomes a Const node. */
static struct allot_output with_shape(const char *op, struct allot_output x, int rank,
                                      const int64_t *dims) {
    struct allot_graph *graph = handle_graph(&x, 1);
    struct allot_output shape;
    char *next;

    if (!graph) {
        helper_drop(NULL);
        return none;
    }
    next = TAKE(graph->next_name); /* it is for the node, not for the shape */
    shape = helper_shape(graph, rank, dims);
    graph->next_name = next;
    return helper_node(NULL, NULL, op, (struct allot_output[]){ x, shape }, 2, NULL, 0);
}

struct allot_output allot_reshape(struct allot_output x, int rank, const int64_t *dims) {
    return with_shape("Reshape", x, rank, dims);
}

struct allot_output allot_broadcast_to(struct allot_output x, int rank, const int64_t *dims) {
    return with_shape("BroadcastTo", x, rank, dims);
}

struct allot_output allot_transpose(struct allot_output x, const int64_t *perm, size_t n) {
    return helper_with(NULL, NULL, "Transpose", &x, 1, { "perm", attr_ints(perm, perm ? n : 0) });
}

struct allot_output allot_expand_dims(struct allot_output x, int axis) {
    return helper_with(NULL, NULL, "ExpandDims", &x, 1, { "axis", attr_int(axis) });
}

struct allot_output allot_squeeze(struct allot_output x, const int64_t *axes, size_t n) {
    return helper_with(NULL, NULL, "Squeeze", &x, 1, { "axes", attr_ints(axes, n) });
}

struct allot_output allot_concat(const struct allot_output *values, size_t n, int axis) {
    return helper_with(NULL, NULL, "Concat", values, n, { "axis", attr_int(axis) });
}

struct allot_output allot_pack(const struct allot_output *values, size_t n, int axis) {
    return helper_with(NULL, NULL, "Pack", values, n, { "axis", attr_int(axis) });
}

static int many(const char *op, struct allot_output x, int axis, size_t n,
                struct allot_output *ret) {
    struct allot_error err;
    struct allot_output first;

    if (!ret) {
        error_null(&err, "place for outputs");
        helper_drop(handle_graph(&x, 1));
        return handle_fail(handle_graph(&x, 1), &err);
    }
    first = helper_with(NULL, NULL, op, &x, 1, { "N", attr_int((int64_t)n) },
                        { "axis", attr_int(axis) });
    for (size_t i = 0; i < n; i++)
        ret[i] = (struct allot_output){ first.node, first.node ? (int)i : 0 };
    return first.node ? 0 : -EINVAL;
}

int allot_split(struct allot_output x, int axis, size_t n, struct allot_output *ret) {
    return many("Split", x, axis, n, ret);
}

int allot_unpack(struct allot_output x, int axis, size_t n, struct allot_output *ret) {
    return many("Unpack", x, axis, n, ret);
}

struct allot_output allot_slice(struct allot_output x, const int64_t *begin, const int64_t *size,
                                size_t n) {
    return helper_with(NULL, NULL, "Slice", &x, 1, { "begin", attr_ints(begin, n) },
                       { "size", attr_ints(size, n) });
}

struct allot_output allot_gather(struct allot_output params, struct allot_output indices,
                                 int axis) {
    return helper_with(NULL, NULL, "Gather", ((struct allot_output[]){ params, indices }), 2,
                       { "axis", attr_int(axis) });
}

struct allot_output allot_tile(struct allot_output x, const int64_t *multiples, size_t n) {
    return helper_with(NULL, NULL, "Tile", &x, 1, { "multiples", attr_ints(multiples, n) });
}

struct allot_output allot_pad(struct allot_output x, const int64_t *before, const int64_t *after,
                              size_t n) {
    return helper_with(NULL, NULL, "Pad", &x, 1, { "before", attr_ints(before, n) },
                       { "after", attr_ints(after, n) });
}

struct allot_output allot_one_hot(struct allot_output indices, int64_t depth,
                                  enum allot_dtype dtype, double on, double off) {
    struct allot_graph *graph = handle_graph(&indices, 1);
    struct allot_output numbers[3] = { indices };
    char *next;

    if (!graph) {
        helper_drop(NULL);
        return none;
    }
    next = TAKE(graph->next_name);
    numbers[1] = allot_scalar(graph, dtype, on);
    numbers[2] = allot_scalar(graph, dtype, off);
    graph->next_name = next;
    return helper_with(graph, NULL, "OneHot", numbers, 3, { "depth", attr_int(depth) });
}
