/* SPDX-License-Identifier: Apache-2.0 */
/* Piece: ops that take parts of a tensor by position, step or index, or repeat it, and their
 * gradients.
 */
#include "libclient/graph/piece.h"

#include <inttypes.h>

#include "base/error.h"
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

/* An attribute with an entry per dimension of x. -EINVAL; 1: x is not known at all. */
static int per_dimension(const struct opdef_shapes *shapes, const struct shape *x, const char *name,
                         const struct attr **ret, struct allot_error *err) {
    *ret = graph_node_attr(shapes->node, name);
    if (x->rank < 0)
        return 1;
    if ((*ret)->ints.n != (size_t)x->rank)
        return shapes_refuse_one(shapes, err, x, "%s has %zu entries for %d dimensions", name,
                                 (*ret)->ints.n, x->rank);
    return 0;
}

/* ---- Slice, pad ------------------------------------------------------------------------------ */

static int slice_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *x = &shapes->inputs[0];
    struct shape out = { .rank = x->rank };
    const struct attr *begin, *size;
    int r = per_dimension(shapes, x, "begin", &begin, err);

    if (r == 0)
        r = per_dimension(shapes, x, "size", &size, err);
    if (r != 0)
        return r < 0 ? r : 0;
    for (int d = 0; d < x->rank; d++) {
        int64_t from = begin->ints.values[d], n = size->ints.values[d], length = x->dims[d];

        if (from < 0 || n < -1 || (length >= 0 && (from > length || n > length - from)))
            return shapes_refuse_one(shapes, err, x,
                                     "%" PRId64 " from %" PRId64 " on are not within dimension %d",
                                     n, from, d);
        out.dims[d] = n >= 0 ? n : length < 0 ? SHAPE_UNKNOWN : length - from;
    }
    shapes->outputs[0] = out;
    return 0;
}

static int slice_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_with(&build, "SliceGrad", EDGES(gradient_dy(gradient), gradient_x(gradient, 0)),
                   gradient_attr(gradient, "begin"));
    return build.r;
}

static int pad_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *x = &shapes->inputs[0];
    const struct attr *before, *after;
    struct shape out = *x;
    int r = per_dimension(shapes, x, "before", &before, err);

    if (r == 0)
        r = per_dimension(shapes, x, "after", &after, err);
    if (r != 0)
        return r < 0 ? r : 0;
    for (int d = 0; d < x->rank; d++) {
        if (before->ints.values[d] < 0 || after->ints.values[d] < 0)
            return shapes_refuse_one(shapes, err, x, "dimension %d is padded by less than 0", d);
        if (out.dims[d] >= 0 &&
            (__builtin_add_overflow(out.dims[d], before->ints.values[d], &out.dims[d]) ||
             __builtin_add_overflow(out.dims[d], after->ints.values[d], &out.dims[d])))
            return shapes_refuse_one(shapes, err, x, "more elements than can be counted");
    }
    shapes->outputs[0] = out;
    return 0;
}

static int pad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_with(&build, "SliceLike", EDGES(gradient_dy(gradient), gradient_x(gradient, 0)),
                   { "begin", *graph_node_attr(gradient->node, "before") });
    return build.r;
}

/* ---- Strided --------------------------------------------------------------------------------- */

/* The shape of x[…]; open dimensions give open ones, unless an entry is taken. */
static int strided(const struct opdef_shapes *shapes, const struct shape *x, struct shape *ret,
                   struct allot_error *err) {
    struct shape guess = *x, out = { 0 };
    struct piece piece;
    int r;

    if (x->rank < 0) {
        *ret = shape_unknown();
        return 0;
    }
    /* Long enough that no end is cut off, for the checks that follow. */
    for (int d = 0; d < x->rank; d++)
        if (guess.dims[d] < 0)
            guess.dims[d] = INT64_C(1) << 40;
    r = piece_of(&piece, shapes->node, &guess, err);
    if (r < 0)
        return error_wrap(err, r, "%s", shapes->node->op->name);
    for (int d = 0; d < x->rank; d++)
        if (!piece.dropped[d])
            out.dims[out.rank++] = x->dims[d] < 0 ? SHAPE_UNKNOWN : piece.count[d];
    *ret = out;
    return 0;
}

static int strided_slice_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    return strided(shapes, &shapes->inputs[0], &shapes->outputs[0], err);
}

static int strided_slice_grad_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape piece, merged;
    int r = strided(shapes, &shapes->inputs[1], &piece, err);

    if (r < 0)
        return r;
    if (shape_merge(&merged, &piece, &shapes->inputs[0]) < 0)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &piece,
                             "the gradient must have the shape of the piece");
    shapes->outputs[0] = shapes->inputs[1];
    return 0;
}

static struct edge same_piece(struct build *build, const struct graph_gradient *g, const char *op,
                              const struct edge *edges, size_t n) {
    const struct build_attr attrs[] = {
        gradient_attr(g, "begin"),    gradient_attr(g, "end"),
        gradient_attr(g, "strides"),  gradient_attr(g, "begin_mask"),
        gradient_attr(g, "end_mask"), gradient_attr(g, "shrink_axis_mask"),
    };

    return build_n(build, op, edges, n, attrs, sizeof(attrs) / sizeof(attrs[0]));
}

static int strided_slice_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] = same_piece(&build, gradient, "StridedSliceGrad",
                                          EDGES(gradient_dy(gradient), gradient_x(gradient, 0)));
    return build.r;
}

static int strided_slice_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        same_piece(&build, gradient, "StridedSlice", EDGES(gradient_dy(gradient)));
    return build.r;
}

/* ---- Gather ---------------------------------------------------------------------------------- */

static int gathered(const struct opdef_shapes *shapes, const struct shape *params,
                    const struct shape *indices, struct shape *ret, struct allot_error *err) {
    struct shape out = { 0 };
    int axis, r;

    *ret = shape_unknown();
    if (params->rank < 0)
        return 0;
    r = shapes_axis(shapes, params, node_int(shapes->node, "axis"), &axis, err);
    if (r < 0 || indices->rank < 0)
        return r;
    if (params->rank + indices->rank - 1 > SHAPE_RANK_MAX)
        return shapes_refuse(shapes, err, params, indices, "the result has too many dimensions");
    for (int d = 0; d < params->rank; d++)
        if (d != axis)
            out.dims[out.rank++] = params->dims[d];
        else
            for (int i = 0; i < indices->rank; i++)
                out.dims[out.rank++] = indices->dims[i];
    *ret = out;
    return 0;
}

static int gather_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    return gathered(shapes, &shapes->inputs[0], &shapes->inputs[1], &shapes->outputs[0], err);
}

static int gather_grad_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape piece, merged;
    int r = gathered(shapes, &shapes->inputs[2], &shapes->inputs[1], &piece, err);

    if (r < 0)
        return r;
    if (shape_merge(&merged, &piece, &shapes->inputs[0]) < 0)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &piece,
                             "the gradient must have the shape of the gathered elements");
    shapes->outputs[0] = shapes->inputs[2];
    return 0;
}

static int gather_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_with(&build, "GatherGrad",
                   EDGES(gradient_dy(gradient), gradient_x(gradient, 1), gradient_x(gradient, 0)),
                   gradient_attr(gradient, "axis"));
    return build.r;
}

static int gather_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_with(&build, "Gather", EDGES(gradient_dy(gradient), gradient_x(gradient, 1)),
                   gradient_attr(gradient, "axis"));
    return build.r;
}

/* ---- Tile ------------------------------------------------------------------------------------ */

static int tiled(const struct opdef_shapes *shapes, const struct shape *x, struct shape *ret,
                 struct allot_error *err) {
    const struct attr *multiples;
    struct shape out = *x;
    int r = per_dimension(shapes, x, "multiples", &multiples, err);

    if (r < 0)
        return r;
    for (int d = 0; d < x->rank; d++) {
        if (multiples->ints.values[d] < 0)
            return shapes_refuse_one(shapes, err, x, "dimension %d has a negative multiple", d);
        if (out.dims[d] >= 0 &&
            __builtin_mul_overflow(out.dims[d], multiples->ints.values[d], &out.dims[d]))
            return shapes_refuse_one(shapes, err, x, "more elements than can be counted");
    }
    *ret = out;
    return 0;
}

static int tile_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    return tiled(shapes, &shapes->inputs[0], &shapes->outputs[0], err);
}

static int tile_grad_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape tiles = shape_unknown(), merged;
    int r = tiled(shapes, &shapes->inputs[1], &tiles, err);

    if (r < 0)
        return r;
    if (shape_merge(&merged, &tiles, &shapes->inputs[0]) < 0)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &tiles,
                             "the gradient must have the shape of the tiles");
    shapes->outputs[0] = shapes->inputs[1];
    return 0;
}

static int tile_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_with(&build, "TileGrad", EDGES(gradient_dy(gradient), gradient_x(gradient, 0)),
                   gradient_attr(gradient, "multiples"));
    return build.r;
}

static int tile_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] = build_with(&build, "Tile", EDGES(gradient_dy(gradient)),
                                          gradient_attr(gradient, "multiples"));
    return build.r;
}

#define PIECE                                                                                      \
    "; begin: ints; end: ints; strides: ints; begin_mask: int = 0; end_mask: int = 0; "            \
    "shrink_axis_mask: int = 0"

static const struct opdef_row rows[] = {
    { "Slice", "(x: T) -> (y: T); T: type; begin: ints; size: ints", slice_shape, slice_gradient },
    { "Pad", "(x: T) -> (y: T); T: " NUMBERS "; before: ints; after: ints; value: float = 0",
      pad_shape, pad_gradient },
    { "StridedSlice", "(x: T) -> (y: T); T: type" PIECE, strided_slice_shape,
      strided_slice_gradient },
    { "StridedSliceGrad", "(gradient: T, like: T) -> (x_gradient: T); T: " NUMBERS PIECE,
      strided_slice_grad_shape, strided_slice_grad_gradient },
    { "Gather", "(params: T, indices: I) -> (output: T); T: type; I: {i32, i64}; axis: int = 0",
      gather_shape, gather_gradient },
    { "GatherGrad",
      "(gradient: T, indices: I, like: T) -> (params_gradient: T); T: " NUMBERS
      "; I: {i32, i64}; axis: int = 0",
      gather_grad_shape, gather_grad_gradient },
    { "Tile", "(x: T) -> (y: T); T: type; multiples: ints", tile_shape, tile_gradient },
    { "TileGrad", "(gradient: T, like: T) -> (x_gradient: T); T: " NUMBERS "; multiples: ints",
      tile_grad_shape, tile_grad_gradient },
};

const struct ops_table ops_piece = OPS_TABLE(rows);
