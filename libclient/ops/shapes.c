/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/ops/shapes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/graph.h"

int shapes_refuse(const struct opdef_shapes *shapes, struct allot_error *err, const struct shape *a,
                  const struct shape *b, const char *what) {
    char one[SHAPE_TEXT_SIZE], other[SHAPE_TEXT_SIZE];

    return error_set(err, -EINVAL, "%s: %s and %s: %s", shapes->node->op->name,
                     shape_format(a, one), shape_format(b, other), what);
}

int shapes_refuse_one(const struct opdef_shapes *shapes, struct allot_error *err,
                      const struct shape *a, const char *format, ...) {
    char text[SHAPE_TEXT_SIZE], what[256];
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    return error_set(err, -EINVAL, "%s: %s: %s", shapes->node->op->name, shape_format(a, text),
                     what);
}

int shapes_axis(const struct opdef_shapes *shapes, const struct shape *shape, int64_t axis,
                int *ret, struct allot_error *err) {
    if (axis < -shape->rank || axis >= shape->rank)
        return shapes_refuse_one(shapes, err, shape, "there is no axis %" PRId64, axis);
    *ret = (int)(axis < 0 ? axis + shape->rank : axis);
    return 0;
}

int shapes_axes(const struct opdef_shapes *shapes, const struct shape *shape, uint32_t *ret,
                struct allot_error *err) {
    const struct attr *axes = graph_node_attr(shapes->node, "axes");
    uint32_t bits = 0;

    for (size_t i = 0; i < axes->ints.n; i++) {
        int at = 0, r = shapes_axis(shapes, shape, axes->ints.values[i], &at, err);

        if (r < 0)
            return r;
        if (bits & 1u << at)
            return shapes_refuse_one(shapes, err, shape, "axis %d is named twice", at);
        bits |= 1u << at;
    }
    *ret = bits;
    return 0;
}

int shapes_input(const struct opdef_shapes *shapes, size_t i, struct shape *ret,
                 struct allot_error *err) {
    const struct allot_tensor *value = shapes->values[i];
    const struct shape *own = &shapes->inputs[i];
    int64_t open[SHAPE_RANK_MAX];
    int r = shapes_rank(shapes, i, 1, err);

    if (r < 0)
        return r;
    for (int d = 0; d < SHAPE_RANK_MAX; d++)
        open[d] = SHAPE_UNKNOWN;
    if (own->rank < 0 || own->dims[0] < 0)
        *ret = shape_unknown();
    else if (own->dims[0] > SHAPE_RANK_MAX)
        return shapes_refuse_one(shapes, err, own, "a shape has at most %d dimensions",
                                 SHAPE_RANK_MAX);
    else if (shape_make(ret, (int)own->dims[0], value ? tensor_data(value) : open) < 0)
        return shapes_refuse_one(shapes, err, own, "a dimension of the input shape is below -1");
    return 0;
}

int shapes_merge(const struct opdef_shapes *shapes, size_t from, size_t to, struct shape *ret,
                 struct allot_error *err) {
    struct shape merged = shape_unknown();

    for (size_t i = from; i < to; i++)
        if (shape_merge(&merged, &merged, &shapes->inputs[i]) < 0)
            return shapes_refuse(shapes, err, &merged, &shapes->inputs[i],
                                 "the inputs must have the same shape");
    *ret = merged;
    return 0;
}

int shapes_rank(const struct opdef_shapes *shapes, size_t i, int rank, struct allot_error *err) {
    const struct shape *own = &shapes->inputs[i];

    if (own->rank < 0 || own->rank == rank)
        return 0;
    return rank == 0
               ? shapes_refuse_one(shapes, err, own, "input %zu must be a single number", i)
               : shapes_refuse_one(shapes, err, own, "input %zu must have %d dimension%s, not %d",
                                   i, rank, rank == 1 ? "" : "s", own->rank);
}

int shapes_none(struct opdef_shapes *shapes, struct allot_error *err) {
    return 0;
}

int shapes_same(struct opdef_shapes *shapes, struct allot_error *err) {
    shapes->outputs[0] = shapes->inputs[0];
    return 0;
}

int shapes_merged(struct opdef_shapes *shapes, struct allot_error *err) {
    return shapes_merge(shapes, 0, shapes->n_inputs, &shapes->outputs[0], err);
}

int shapes_like(struct opdef_shapes *shapes, struct allot_error *err) {
    shapes->outputs[0] = shapes->inputs[1];
    return 0;
}

int shapes_single(struct opdef_shapes *shapes, struct allot_error *err) {
    shapes->outputs[0] = (struct shape){ 0 };
    return 0;
}

int shapes_stretched(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape all = shapes->inputs[0];

    for (size_t i = 1; i < shapes->n_inputs; i++) {
        struct shape before = all;

        if (shape_broadcast(&all, &before, &shapes->inputs[i]) < 0)
            return shapes_refuse(shapes, err, &before, &shapes->inputs[i],
                                 "the shapes do not broadcast to one");
    }
    shapes->outputs[0] = all;
    return 0;
}

int shapes_attr(struct opdef_shapes *shapes, struct allot_error *err) {
    shapes->outputs[0] = graph_node_attr(shapes->node, "shape")->shape;
    return 0;
}

int shapes_value(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape shape;
    int r = shapes_input(shapes, 0, &shape, err);

    if (r < 0)
        return r;
    if (shapes->values[0] && !shape_is_whole(&shape))
        return shapes_refuse_one(shapes, err, &shape, "no dimension can be open here");
    shapes->outputs[0] = shape;
    return 0;
}
