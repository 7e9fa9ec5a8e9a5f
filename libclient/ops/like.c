/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Like: ops that take a shape from a tensor of which they read nothing else. Gradients are made of
 * them: they are right for open dimensions, cost nothing where shapes are the same, and need no
 * shape arithmetic in the graph.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

/* `small` must stretch to `large`. */
static int must_stretch(const struct opdef_shapes *shapes, const struct shape *small,
                        const struct shape *large, struct allot_error *err) {
    struct shape both;

    if (small->rank < 0 || large->rank < 0)
        return 0;
    if (small->rank > large->rank || shape_broadcast(&both, small, large) < 0)
        return shapes_refuse(shapes, err, small, large,
                             "the first does not broadcast to the second");
    for (int d = 0; d < both.rank; d++)
        if (large->dims[d] >= 0 && both.dims[d] != large->dims[d])
            return shapes_refuse(shapes, err, small, large,
                                 "the first does not broadcast to the second");
    return 0;
}

static int sum_like_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int r = must_stretch(shapes, &shapes->inputs[1], &shapes->inputs[0], err);

    return r < 0 ? r : shapes_like(shapes, err);
}

static int broadcast_like_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *x = &shapes->inputs[0], *like = &shapes->inputs[1];
    struct shape wide = { 0 };
    uint32_t axes;
    int r, at = 0;

    if (x->rank >= 0 && like->rank >= 0) {
        r = shapes_axes(shapes, like, &axes, err);
        if (r < 0)
            return r;
        wide = *x;
        if (axes) {
            if (x->rank + __builtin_popcount(axes) != like->rank)
                return shapes_refuse(shapes, err, x, like,
                                     "the first must have the dimensions of the second without "
                                     "the axes");
            wide.rank = like->rank;
            for (int d = 0; d < like->rank; d++)
                wide.dims[d] = axes & 1u << d ? 1 : x->dims[at++];
        }
        r = must_stretch(shapes, &wide, like, err);
        if (r < 0)
            return r;
    }
    return shapes_like(shapes, err);
}

static int reshape_like_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int64_t have = shape_count(&shapes->inputs[0]), want = shape_count(&shapes->inputs[1]);

    if (have >= 0 && want >= 0 && have != want)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &shapes->inputs[1],
                             "the shapes do not hold the same number of elements");
    return shapes_like(shapes, err);
}

/* `piece` at `begin` lies within `whole`. */
static int must_hold(const struct opdef_shapes *shapes, const struct shape *whole,
                     const struct shape *piece, struct allot_error *err) {
    const struct attr *begin = graph_node_attr(shapes->node, "begin");

    if (whole->rank < 0 || piece->rank < 0)
        return 0;
    if (whole->rank != piece->rank || begin->ints.n != (size_t)whole->rank)
        return shapes_refuse(shapes, err, whole, piece,
                             "both, and begin, must have the same number of dimensions");
    for (int d = 0; d < whole->rank; d++) {
        int64_t from = begin->ints.values[d];

        if (from < 0 || (whole->dims[d] >= 0 &&
                         (from > whole->dims[d] || piece->dims[d] > whole->dims[d] - from)))
            return shapes_refuse(shapes, err, whole, piece, "the piece is not within the whole");
    }
    return 0;
}

static int slice_like_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int r = must_hold(shapes, &shapes->inputs[0], &shapes->inputs[1], err);

    return r < 0 ? r : shapes_like(shapes, err);
}

static int slice_grad_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int r = must_hold(shapes, &shapes->inputs[1], &shapes->inputs[0], err);

    return r < 0 ? r : shapes_like(shapes, err);
}

static int split_like_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape all = shapes->inputs[0];
    int64_t length = 0, whole = SHAPE_UNKNOWN;
    int axis = 0, r;

    if (all.rank >= 0) {
        r = shapes_axis(shapes, &all, node_int(shapes->node, "axis"), &axis, err);
        if (r < 0)
            return r;
        whole = all.dims[axis];
        all.dims[axis] = SHAPE_UNKNOWN;
    }
    for (size_t i = 0; i < shapes->n_outputs; i++) {
        struct shape *part = &shapes->outputs[i];
        const struct shape *like = &shapes->inputs[i + 1];

        if (shape_merge(part, &all, like) < 0)
            return shapes_refuse(shapes, err, &shapes->inputs[0], like,
                                 "the parts must have the same shape except along the axis");
        if (all.rank < 0 || length < 0 || part->dims[axis] < 0)
            length = SHAPE_UNKNOWN;
        else if (__builtin_add_overflow(length, part->dims[axis], &length))
            return shapes_refuse_one(shapes, err, like, "more elements than can be counted");
    }
    if (length >= 0 && whole >= 0 && length != whole)
        return shapes_refuse_one(shapes, err, &shapes->inputs[0],
                                 "the parts are %" PRId64 " long together, axis %d is not", length,
                                 axis);
    return 0;
}

/* ---- Gradients ------------------------------------------------------------------------------- */

/* dx = op(dy, x) */
static int like_x(struct graph_gradient *gradient, const char *op, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] = build_2(&build, op, gradient_dy(gradient), gradient_x(gradient, 0));
    return build.r;
}

static int sum_like_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return like_x(gradient, "BroadcastLike", err);
}

static int reshape_like_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return like_x(gradient, "ReshapeLike", err);
}

static int broadcast_like_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);
    struct edge dy = gradient_dy(gradient);

    if (graph_node_attr(gradient->node, "axes")->ints.n)
        dy = build_with(&build, "Sum", EDGES(dy), gradient_attr(gradient, "axes"));
    gradient->inputs_grad[0] = gradient_unstretch(&build, dy, gradient_x(gradient, 0));
    return build.r;
}

static int with_begin(struct graph_gradient *gradient, const char *op, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_with(&build, op, EDGES(gradient_dy(gradient), gradient_x(gradient, 0)),
                   gradient_attr(gradient, "begin"));
    return build.r;
}

static int slice_like_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return with_begin(gradient, "SliceGrad", err);
}

static int slice_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return with_begin(gradient, "SliceLike", err);
}

static int split_like_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);
    uint32_t n = gradient->node->n_outputs;
    struct edge *edges = malloc((n ? n : 1) * sizeof(edges[0]));

    if (!edges)
        return error_set(err, -ENOMEM, "no host memory for a gradient");
    for (uint32_t i = 0; i < n; i++)
        edges[i] = gradient_or_zeros(&build, gradient, i);
    gradient->inputs_grad[0] =
        build_n(&build, "Concat", edges, n,
                (const struct build_attr[]){ gradient_attr(gradient, "axis") }, 1);
    free(edges);
    return build.r;
}

static const struct opdef_row rows[] = {
    { "SumLike", "(x: T, like: U) -> (y: T); T: " NUMBERS "; U: type", sum_like_shape,
      sum_like_gradient },
    { "BroadcastLike", "(x: T, like: U) -> (y: T); T: type; U: type; axes: ints = []",
      broadcast_like_shape, broadcast_like_gradient },
    { "ReshapeLike", "(x: T, like: U) -> (y: T); T: type; U: type", reshape_like_shape,
      reshape_like_gradient },
    { "SliceLike", "(x: T, like: U) -> (y: T); T: type; U: type; begin: ints", slice_like_shape,
      slice_like_gradient },
    { "SliceGrad",
      "(gradient: T, like: U) -> (x_gradient: T); T: " NUMBERS "; U: type; begin: ints",
      slice_grad_shape, slice_grad_gradient },
    { "SplitLike",
      "(x: T, like: N * U) -> (outputs: N * T); N: int; T: type; U: type; axis: int = 0",
      split_like_shape, split_like_gradient },
};

const struct ops_table ops_like = OPS_TABLE(rows);
