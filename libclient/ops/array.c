/* SPDX-License-Identifier: Apache-2.0 */
/* Array: the same elements in another shape, order or type, put together or taken apart. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

/* ---- Reshape, broadcast ---------------------------------------------------------------------- */

static int reshape_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *x = &shapes->inputs[0];
    int64_t count = shape_count(x), known = 1;
    struct shape out;
    int open = -1, r = shapes_input(shapes, 1, &out, err);

    if (r < 0)
        return r;
    if (!shapes->values[1]) {
        shapes->outputs[0] = out;
        return 0;
    }
    for (int d = 0; d < out.rank; d++)
        if (out.dims[d] < 0 && open >= 0)
            return shapes_refuse(shapes, err, x, &out, "only one dimension can be left open");
        else if (out.dims[d] < 0)
            open = d;
        else if (__builtin_mul_overflow(known, out.dims[d], &known))
            return shapes_refuse(shapes, err, x, &out, "more elements than can be counted");
    if (count >= 0) {
        if (open >= 0 && known > 0 && count % known == 0)
            out.dims[open] = count / known;
        if (shape_count(&out) != count)
            return shapes_refuse(shapes, err, x, &out,
                                 "the shapes do not hold the same number of elements");
    }
    shapes->outputs[0] = out;
    return 0;
}

static int broadcast_to_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape out, both;
    int r = shapes_input(shapes, 1, &out, err);

    if (r < 0)
        return r;
    if (shapes->values[1] && !shape_is_whole(&out))
        return shapes_refuse(shapes, err, &shapes->inputs[0], &out, "no dimension can be open");
    if (out.rank >= 0 && shapes->inputs[0].rank > out.rank)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &out,
                             "broadcasting cannot remove dimensions");
    if (shape_is_whole(&out) && (shape_broadcast(&both, &shapes->inputs[0], &out) < 0 ||
                                 (both.rank >= 0 && !shape_equal(&both, &out))))
        return shapes_refuse(shapes, err, &shapes->inputs[0], &out,
                             "only dimensions of 1 can be broadcast");
    shapes->outputs[0] = out;
    return 0;
}

/* Give the gradient the shape of x. */
static int reshape_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        build_2(&build, "ReshapeLike", gradient_dy(gradient), gradient_x(gradient, 0));
    return build.r;
}

static int broadcast_to_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] =
        gradient_unstretch(&build, gradient_dy(gradient), gradient_x(gradient, 0));
    return build.r;
}

/* ---- Order and number of dimensions ---------------------------------------------------------- */

static int transpose_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct attr *perm = graph_node_attr(shapes->node, "perm");
    const struct shape *x = &shapes->inputs[0];
    /* Check the perm even if the rank is not known: the perm tells it. */
    struct shape out = { .rank = x->rank < 0 && perm->ints.n ? (int)perm->ints.n : x->rank };
    uint32_t seen = 0;

    if (perm->ints.n > SHAPE_RANK_MAX)
        return shapes_refuse_one(shapes, err, x,
                                 "perm has %zu entries, and there are no more than "
                                 "%d dimensions",
                                 perm->ints.n, SHAPE_RANK_MAX);
    if (perm->ints.n && perm->ints.n != (size_t)out.rank)
        return shapes_refuse_one(shapes, err, x, "perm has %zu entries for %d dimensions",
                                 perm->ints.n, x->rank);
    for (int d = 0; d < out.rank; d++) {
        int64_t from = perm->ints.n ? perm->ints.values[d] : out.rank - 1 - d;

        if (from < 0 || from >= out.rank || seen & 1u << from)
            return shapes_refuse_one(shapes, err, x,
                                     "perm must name each dimension once, and entry %d is %" PRId64,
                                     d, from);
        seen |= 1u << from;
        out.dims[d] = x->rank < 0 ? SHAPE_UNKNOWN : x->dims[from];
    }
    shapes->outputs[0] = out;
    return 0;
}

static int transpose_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    const struct attr *perm = graph_node_attr(gradient->node, "perm");
    struct build build = gradient_build(gradient, err);
    int64_t inverse[SHAPE_RANK_MAX];

    for (size_t i = 0; i < perm->ints.n; i++) /* each dimension once: transpose_shape() */
        inverse[perm->ints.values[i]] = (int64_t)i;
    gradient->inputs_grad[0] = build_with(&build, "Transpose", EDGES(gradient_dy(gradient)),
                                          { "perm", attr_ints(inverse, perm->ints.n) });
    return build.r;
}

static int expand_dims_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int64_t axis = node_int(shapes->node, "axis");
    const struct shape *x = &shapes->inputs[0];
    struct shape out = { .rank = x->rank + 1 };

    if (x->rank < 0)
        return 0;
    if (out.rank > SHAPE_RANK_MAX)
        return shapes_refuse_one(shapes, err, x, "the result has too many dimensions");
    if (axis < -out.rank || axis >= out.rank)
        return shapes_refuse_one(shapes, err, x, "there is no position %" PRId64 " for a dimension",
                                 axis);
    if (axis < 0)
        axis += out.rank;
    for (int d = 0; d < out.rank; d++)
        out.dims[d] = d == axis ? 1 : x->dims[d < axis ? d : d - 1];
    shapes->outputs[0] = out;
    return 0;
}

static int squeeze_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct attr *axes = graph_node_attr(shapes->node, "axes");
    const struct shape *x = &shapes->inputs[0];
    struct shape out = { 0 };
    uint32_t bits;
    int r;

    if (x->rank < 0)
        return 0;
    r = shapes_axes(shapes, x, &bits, err);
    if (r < 0)
        return r;
    for (int d = 0; d < x->rank; d++) {
        if (axes->ints.n == 0 && x->dims[d] < 0)
            return 0; /* whether it goes is not known: nor is the rank */
        if (bits & 1u << d && x->dims[d] > 1)
            return shapes_refuse_one(shapes, err, x, "axis %d is %" PRId64 " long, not 1", d,
                                     x->dims[d]);
        if (bits & 1u << d && x->dims[d] == 0)
            return shapes_refuse_one(shapes, err, x, "axis %d is 0 long, not 1", d);
        if (axes->ints.n ? !(bits & 1u << d) : x->dims[d] != 1)
            out.dims[out.rank++] = x->dims[d];
    }
    shapes->outputs[0] = out;
    return 0;
}

static int cast_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] = build_with(&build, "Cast", EDGES(gradient_dy(gradient)),
                                          { "U", attr_dtype(gradient_type(gradient)) });
    return build.r;
}

static int where_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int rank = shapes->inputs[0].rank;

    shapes->outputs[0] =
        (struct shape){ .rank = 2,
                        .dims = { SHAPE_UNKNOWN, rank < 0 ? SHAPE_UNKNOWN : (int64_t)rank } };
    return 0;
}

/* ---- Together and apart ---------------------------------------------------------------------- */

static int concat_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape all = shape_unknown(), next;
    int64_t length = 0;
    int axis = 0, r;

    if (shapes->n_inputs == 0)
        return shapes_refuse_one(shapes, err, &all, "there is nothing to put together");
    for (size_t i = 0; i < shapes->n_inputs; i++) {
        next = shapes->inputs[i];
        if (next.rank < 0) {
            length = SHAPE_UNKNOWN;
            continue;
        }
        r = shapes_axis(shapes, &next, node_int(shapes->node, "axis"), &axis, err);
        if (r < 0)
            return r;
        if (next.dims[axis] < 0)
            length = SHAPE_UNKNOWN;
        else if (length >= 0 && __builtin_add_overflow(length, next.dims[axis], &length))
            return shapes_refuse_one(shapes, err, &next, "more elements than can be counted");
        next.dims[axis] = SHAPE_UNKNOWN;
        if (shape_merge(&all, &all, &next) < 0)
            return shapes_refuse(shapes, err, &shapes->inputs[0], &shapes->inputs[i],
                                 "their shapes must be the same except along the axis");
    }
    if (all.rank >= 0)
        all.dims[axis] = length;
    shapes->outputs[0] = all;
    return 0;
}

static int concat_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);
    uint32_t n = gradient->node->n_inputs;
    struct edge *edges = malloc((n + 1) * sizeof(edges[0])), parts;

    if (!edges)
        return error_set(err, -ENOMEM, "no host memory for a gradient");
    edges[0] = gradient_dy(gradient);
    memcpy(edges + 1, gradient->node->inputs, n * sizeof(edges[0]));
    parts = build_n(&build, "SplitLike", edges, n + 1,
                    (const struct build_attr[]){ gradient_attr(gradient, "axis") }, 1);
    for (uint32_t i = 0; i < n && !edge_is_none(parts); i++)
        gradient->inputs_grad[i] = (struct edge){ parts.node, i };
    free(edges);
    return build.r;
}

static int split_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape part = shapes->inputs[0];
    int64_t n = (int64_t)shapes->n_outputs;
    int axis, r;

    if (n == 0)
        return shapes_refuse_one(shapes, err, &part, "there must be at least one part");
    if (part.rank >= 0) {
        r = shapes_axis(shapes, &part, node_int(shapes->node, "axis"), &axis, err);
        if (r < 0)
            return r;
        if (part.dims[axis] >= 0) {
            if (part.dims[axis] % n)
                return shapes_refuse_one(shapes, err, &part,
                                         "axis %d cannot be cut into %" PRId64 " parts of one size",
                                         axis, n);
            part.dims[axis] /= n;
        }
    }
    for (size_t i = 0; i < shapes->n_outputs; i++)
        shapes->outputs[i] = part;
    return 0;
}

/* Put the parts together again, with zeros for a part that has no gradient. */
static int join(struct graph_gradient *gradient, const char *op, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);
    uint32_t n = gradient->node->n_outputs;
    struct edge *edges = malloc((n ? n : 1) * sizeof(edges[0]));

    if (!edges)
        return error_set(err, -ENOMEM, "no host memory for a gradient");
    for (uint32_t i = 0; i < n; i++)
        edges[i] = gradient_or_zeros(&build, gradient, i);
    gradient->inputs_grad[0] = build_n(
        &build, op, edges, n, (const struct build_attr[]){ gradient_attr(gradient, "axis") }, 1);
    free(edges);
    return build.r;
}

static int split_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return join(gradient, "Concat", err);
}

static int unpack_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return join(gradient, "Pack", err);
}

static int pack_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int64_t axis = node_int(shapes->node, "axis");
    struct shape part, out = { 0 };
    int r = shapes_merge(shapes, 0, shapes->n_inputs, &part, err);

    if (r < 0)
        return r;
    if (shapes->n_inputs == 0)
        return shapes_refuse_one(shapes, err, &part, "there is nothing to pack");
    if (part.rank < 0)
        return 0;
    out.rank = part.rank + 1;
    if (out.rank > SHAPE_RANK_MAX)
        return shapes_refuse_one(shapes, err, &part, "the result has too many dimensions");
    if (axis < -out.rank || axis >= out.rank)
        return shapes_refuse_one(shapes, err, &part,
                                 "there is no position %" PRId64 " for a dimension", axis);
    if (axis < 0)
        axis += out.rank;
    for (int d = 0; d < out.rank; d++)
        out.dims[d] = d == axis ? (int64_t)shapes->n_inputs : part.dims[d < axis ? d : d - 1];
    shapes->outputs[0] = out;
    return 0;
}

static int pack_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);
    uint32_t n = gradient->node->n_inputs;
    struct edge parts = build_with(&build, "Unpack", EDGES(gradient_dy(gradient)),
                                   { "N", attr_int(n) }, gradient_attr(gradient, "axis"));

    for (uint32_t i = 0; i < n && !edge_is_none(parts); i++)
        gradient->inputs_grad[i] = (struct edge){ parts.node, i };
    return build.r;
}

static int unpack_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *x = &shapes->inputs[0];
    struct shape part = { 0 };
    int axis, r;

    if (x->rank < 0)
        return 0;
    r = shapes_axis(shapes, x, node_int(shapes->node, "axis"), &axis, err);
    if (r < 0)
        return r;
    if (x->dims[axis] >= 0 && x->dims[axis] != (int64_t)shapes->n_outputs)
        return shapes_refuse_one(shapes, err, x, "axis %d holds %" PRId64 ", not %zu parts", axis,
                                 x->dims[axis], shapes->n_outputs);
    for (int d = 0; d < x->rank; d++)
        if (d != axis)
            part.dims[part.rank++] = x->dims[d];
    for (size_t i = 0; i < shapes->n_outputs; i++)
        shapes->outputs[i] = part;
    return 0;
}

static const struct opdef_row rows[] = {
    { "Reshape", "(x: T, shape: i64) -> (y: T); T: type", reshape_shape, reshape_gradient,
      .shaped_by = 1 << 1 },
    { "BroadcastTo", "(x: T, shape: i64) -> (y: T); T: type", broadcast_to_shape,
      broadcast_to_gradient, .shaped_by = 1 << 1 },
    { "Transpose", "(x: T) -> (y: T); T: type; perm: ints = []", transpose_shape,
      transpose_gradient },
    { "ExpandDims", "(x: T) -> (y: T); T: type; axis: int = 0", expand_dims_shape,
      reshape_gradient },
    { "Squeeze", "(x: T) -> (y: T); T: type; axes: ints = []", squeeze_shape, reshape_gradient },
    { "Cast", "(x: T) -> (y: U); T: type; U: type", shapes_same, cast_gradient },
    { "Concat", "(values: N * T) -> (output: T); N: int; T: type; axis: int = 0", concat_shape,
      concat_gradient },
    { "Split", "(x: T) -> (outputs: N * T); N: int; T: type; axis: int = 0", split_shape,
      split_gradient },
    { "Pack", "(values: N * T) -> (output: T); N: int; T: type; axis: int = 0", pack_shape,
      pack_gradient },
    { "Unpack", "(x: T) -> (outputs: N * T); N: int; T: type; axis: int = 0", unpack_shape,
      unpack_gradient },
    { "Where", "(condition: bool) -> (indices: i64)", where_shape, .is_flat = true },
};

const struct ops_table ops_array = OPS_TABLE(rows);
