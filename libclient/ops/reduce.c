/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reduce: many elements to one, along some axes or all. The gradient is stretched back over the
 * elements by BroadcastLike, which knows the axes that were dropped, so it is right for any rank.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

static int reduce_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *x = &shapes->inputs[shapes->n_inputs - 1];
    bool keep = node_bool(shapes->node, "keep_dims");
    struct shape out = { 0 };
    uint32_t axes;
    int r;

    if (x->rank < 0) {
        if (graph_node_attr(shapes->node, "axes")->ints.n || keep)
            return 0;
        shapes->outputs[0] = out;
        return 0;
    }
    r = shapes_axes(shapes, x, &axes, err);
    if (r < 0)
        return r;
    if (graph_node_attr(shapes->node, "axes")->ints.n == 0)
        axes = UINT32_MAX;
    for (int d = 0; d < x->rank; d++)
        if (!(axes & 1u << d))
            out.dims[out.rank++] = x->dims[d];
        else if (keep)
            out.dims[out.rank++] = 1;
    shapes->outputs[0] = out;
    return 0;
}

/* The shape function of ProdGrad: the output and all directions have the shape of x; the gradient
 * that comes in must have the shape of the product.
 */
static int prod_grad_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape reduced = shape_unknown(), merged;
    struct opdef_shapes forward = *shapes;
    int r;

    forward.n_inputs = 2;
    forward.outputs = &reduced;
    r = reduce_shape(&forward, err);
    if (r < 0)
        return r;
    if (shape_merge(&merged, &reduced, &shapes->inputs[0]) < 0)
        return shapes_refuse(shapes, err, &reduced, &shapes->inputs[0],
                             "the product and its gradient must have the same shape");
    return shapes_merge(shapes, 1, shapes->n_inputs, &shapes->outputs[0], err);
}

static int arg_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *x = &shapes->inputs[0];
    struct shape out = { 0 };
    int axis, r;

    if (x->rank < 0)
        return 0;
    r = shapes_axis(shapes, x, node_int(shapes->node, "axis"), &axis, err);
    if (r < 0)
        return r;
    if (x->dims[axis] == 0)
        return shapes_refuse_one(shapes, err, x, "axis %d is empty", axis);
    for (int d = 0; d < x->rank; d++)
        if (d != axis)
            out.dims[out.rank++] = x->dims[d];
    shapes->outputs[0] = out;
    return 0;
}

static int bias_add_grad_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *x = &shapes->inputs[0];

    if (x->rank == 0)
        return shapes_refuse_one(shapes, err, x, "a single number has no last dimension");
    shapes->outputs[0] =
        (struct shape){ .rank = 1, .dims = { x->rank < 0 ? SHAPE_UNKNOWN : x->dims[x->rank - 1] } };
    return 0;
}

/* Stretch a value of the output's shape back to the shape of the input. */
static struct edge back(struct build *build, const struct graph_gradient *gradient,
                        struct edge value) {
    bool keep = node_bool(gradient->node, "keep_dims");

    return build_n(build, "BroadcastLike", EDGES(value, gradient_x(gradient, 0)),
                   (const struct build_attr[]){ gradient_attr(gradient, "axes") }, keep ? 0 : 1);
}

static int sum_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] = back(&build, gradient, gradient_dy(gradient));
    return build.r;
}

/* Each element's share: divide before stretching, when there are fewer elements to divide. */
static int mean_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err), *b = &build;
    struct edge x = gradient_x(gradient, 0), y = gradient_y(gradient, 0), n;
    int64_t many = shape_count(&graph_output(gradient->graph, x)->shape);
    int64_t few = shape_count(&graph_output(gradient->graph, y)->shape);

    if (many >= 0 && few > 0)
        n = build_number(b, gradient_type(gradient), (double)(many / few));
    else /* at least 1: an empty tensor has a gradient of nothing, not an error */
        n = build_with(b, "Cast",
                       EDGES(build_2(b, "FloorDiv", build_1(b, "Size", x),
                                     build_2(b, "Maximum", build_1(b, "Size", y),
                                             build_number(b, DTYPE_I64, 1)))),
                       { "U", attr_dtype(gradient_type(gradient)) });
    gradient->inputs_grad[0] = back(b, gradient, build_2(b, "Div", gradient_dy(gradient), n));
    return build.r;
}

static int prod_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_with(&build, "ProdGrad", EDGES(gradient_dy(gradient), gradient_x(gradient, 0)),
                   gradient_attr(gradient, "axes"), gradient_attr(gradient, "keep_dims"));
    return build.r;
}

/* Replace direction number `instead` by `direction`. */
static struct edge prod_along(struct build *build, const struct graph_gradient *gradient,
                              struct edge *inputs, uint32_t instead, struct edge direction) {
    uint32_t n = gradient->node->n_inputs;

    memcpy(inputs, gradient->node->inputs, n * sizeof(*inputs));
    inputs[instead] = direction;
    return build_n(build, "ProdGrad", inputs, instead < n ? n : n + 1,
                   (const struct build_attr[]){ gradient_attr(gradient, "axes"),
                                                gradient_attr(gradient, "keep_dims") },
                   2);
}

/*
 * ProdGrad is the derivative of a product with respect to each element and along all given
 * directions; the order of these does not matter. So the gradient for x has one direction more, and
 * the gradient for a direction puts the incoming gradient in its place.
 */
static int prod_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err), *b = &build;
    uint32_t n = gradient->node->n_inputs;
    cleanup(freep) struct edge *inputs = malloc((n + 1) * sizeof(*inputs));
    struct edge dy = gradient_dy(gradient);

    if (!inputs)
        return error_set(err, -ENOMEM, "no host memory for a gradient");
    if (gradient->wanted[0]) {
        struct edge of_one =
            prod_along(b, gradient, inputs, 0, build_1(b, "OnesLike", gradient_x(gradient, 0)));

        gradient->inputs_grad[0] =
            build_with(b, "Sum", EDGES(build_2(b, "Mul", dy, of_one)),
                       gradient_attr(gradient, "axes"), gradient_attr(gradient, "keep_dims"));
    }
    for (uint32_t i = 1; i < n; i++)
        if (gradient->wanted[i])
            gradient->inputs_grad[i] = prod_along(b, gradient, inputs, i == 1 ? n : i, dy);
    return build.r;
}

/* Those that are the largest share evenly. */
static int extreme_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err), *b = &build;
    struct edge x = gradient_x(gradient, 0), chosen, n;

    chosen = build_with(b, "Cast",
                        EDGES(build_2(b, "Equal", x, back(b, gradient, gradient_y(gradient, 0)))),
                        { "U", attr_dtype(gradient_type(gradient)) });
    n = build_with(b, "Sum", EDGES(chosen), gradient_attr(gradient, "axes"),
                   gradient_attr(gradient, "keep_dims"));
    gradient->inputs_grad[0] =
        build_2(b, "Mul", chosen, back(b, gradient, build_2(b, "Div", gradient_dy(gradient), n)));
    return build.r;
}

static int bias_add_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_2(&build, "BroadcastLike", gradient_dy(gradient), gradient_x(gradient, 0));
    return build.r;
}

#define REDUCE(types) "(x: T) -> (y: T); T: " types "; axes: ints = []; keep_dims: bool = false"

static const struct opdef_row rows[] = {
    { "Sum", REDUCE(NUMBERS), reduce_shape, sum_gradient },
    { "Mean", REDUCE(NUMBERS), reduce_shape, mean_gradient },
    { "Prod", REDUCE(NUMBERS), reduce_shape, prod_gradient },
    { "Max", REDUCE(NUMBERS), reduce_shape, extreme_gradient },
    { "Min", REDUCE(NUMBERS), reduce_shape, extreme_gradient },
    { "ProdGrad",
      "(gradient: T, x: T, directions: N * T) -> (x_gradient: T); N: int; T: " FLOATS
      "; axes: ints = []; keep_dims: bool = false",
      prod_grad_shape, prod_grad_gradient },
    { "All", "(x: bool) -> (y: bool); axes: ints = []; keep_dims: bool = false", reduce_shape,
      .is_flat = true },
    { "Any", "(x: bool) -> (y: bool); axes: ints = []; keep_dims: bool = false", reduce_shape,
      .is_flat = true },
    { "ArgMax", "(x: T) -> (index: i64); T: " NUMBERS "; axis: int = 0", arg_shape,
      .is_flat = true },
    { "ArgMin", "(x: T) -> (index: i64); T: " NUMBERS "; axis: int = 0", arg_shape,
      .is_flat = true },
    { "BiasAddGrad", "(gradient: T) -> (output: T); T: " NUMBERS, bias_add_grad_shape,
      bias_add_grad_gradient },
};

const struct ops_table ops_reduce = OPS_TABLE(rows);
