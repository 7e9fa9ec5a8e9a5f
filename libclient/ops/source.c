/* SPDX-License-Identifier: Apache-2.0 */
/* Source: ops that bring values into a graph. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/graph.h"
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

static int const_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct allot_tensor *value = graph_node_attr(shapes->node, "value")->tensor;

    if (value->dtype != graph_node_attr(shapes->node, "T")->dtype)
        return error_set(err, -EINVAL, "Const: T is %s, but the value is of type %s",
                         dtype_name(graph_node_attr(shapes->node, "T")->dtype),
                         dtype_name(value->dtype));
    shapes->outputs[0] = value->shape;
    return 0;
}

static int fill_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int r = shapes_rank(shapes, 1, 0, err);

    return r < 0 ? r : shapes_value(shapes, err);
}

static int random_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    return shapes_value(shapes, err);
}

/* How many numbers there are from start to limit, each as the kernel computes them. */
static int range_count(const struct opdef_shapes *shapes, int64_t *ret, struct allot_error *err) {
    double f[3];
    int64_t i[3];
    bool whole = true;

    for (int at = 0; at < 3; at++) {
        const struct allot_tensor *value = shapes->values[at];

        switch (value->dtype) {
        case DTYPE_I32:
            i[at] = *(const int32_t *)tensor_data(value);
            break;
        case DTYPE_I64:
            i[at] = *(const int64_t *)tensor_data(value);
            break;
        case DTYPE_F32:
            f[at] = (double)*(const float *)tensor_data(value);
            whole = false;
            break;
        default:
            f[at] = *(const double *)tensor_data(value);
            whole = false;
            break;
        }
    }
    if (whole ? i[2] == 0 : !(f[2] != 0))
        return error_set(err, -EINVAL, "Range: the step must not be 0");
    if (whole) {
        /* In 128 bits: from -2^63 to 2^63 by 1 must not wrap. */
        __int128 span = (__int128)i[1] - i[0], step = i[2], n = 0;

        if ((span > 0) == (step > 0) && span != 0)
            n = (span + step + (step > 0 ? -1 : 1)) / step;
        if (n > INT64_MAX)
            return error_set(err, -EINVAL, "Range: more numbers than can be counted");
        *ret = (int64_t)n;
        return 0;
    }
    f[0] = ceil((f[1] - f[0]) / f[2]);
    if (!(f[0] < 0x1p62))
        return error_set(err, -EINVAL, "Range: more numbers than can be counted");
    *ret = f[0] > 0 ? (int64_t)f[0] : 0;
    return 0;
}

static int range_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int64_t n = SHAPE_UNKNOWN;
    int r = 0;

    for (size_t i = 0; i < 3 && r == 0; i++)
        r = shapes_rank(shapes, i, 0, err);
    if (r == 0 && shapes->values[0] && shapes->values[1] && shapes->values[2])
        r = range_count(shapes, &n, err);
    if (r < 0)
        return r;
    shapes->outputs[0] = (struct shape){ .rank = 1, .dims = { n } };
    return 0;
}

static int one_hot_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int64_t depth = node_int(shapes->node, "depth"), axis = node_int(shapes->node, "axis");
    const struct shape *indices = &shapes->inputs[0];
    struct shape out = { .rank = indices->rank + 1 };
    int r = shapes_rank(shapes, 1, 0, err);

    if (r == 0)
        r = shapes_rank(shapes, 2, 0, err);
    if (r < 0)
        return r;
    if (depth < 0)
        return shapes_refuse_one(shapes, err, indices,
                                 "depth is %" PRId64 ", but it must be 0 or more", depth);
    if (indices->rank < 0)
        return 0;
    if (axis < -1 || axis > indices->rank)
        return shapes_refuse_one(shapes, err, indices, "there is no axis %" PRId64, axis);
    if (out.rank > SHAPE_RANK_MAX)
        return shapes_refuse_one(shapes, err, indices, "the result has too many dimensions");
    if (axis < 0)
        axis = indices->rank;
    for (int d = 0; d < out.rank; d++)
        out.dims[d] = d == axis ? depth : indices->dims[d < axis ? d : d - 1];
    shapes->outputs[0] = out;
    return 0;
}

static int fill_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[1] = build_1(&build, "Sum", gradient_dy(gradient));
    return build.r;
}

static const struct opdef_row rows[] = {
    { "Const", "() -> (output: T); T: type; value: tensor", const_shape, .is_flat = true },
    { "Placeholder", "() -> (output: T); T: type; shape: shape = ?", shapes_attr, .is_flat = true,
      .flags = OPDEF_STATEFUL },
    { "Fill", "(shape: i64, value: T) -> (output: T); T: type", fill_shape, fill_gradient,
      .shaped_by = 1 << 0 },
    { "Range", "(start: T, limit: T, delta: T) -> (output: T); T: {i32, i64, f32, f64}",
      range_shape, .shaped_by = 7, .is_flat = true },
    { "OneHot",
      "(indices: I, on: T, off: T) -> (output: T); T: type; I: {u8, i32, i64}; depth: int; "
      "axis: int = -1",
      one_hot_shape, .is_flat = true },
    { "RandomUniform",
      "(shape: i64) -> (output: T); T: " FLOATS
      "; minimum: float = 0; maximum: float = 1; seed: int = 0",
      random_shape, .flags = OPDEF_STATEFUL, .shaped_by = 1 << 0, .is_flat = true },
    { "RandomNormal",
      "(shape: i64) -> (output: T); T: " FLOATS
      "; mean: float = 0; stddev: float = 1; seed: int = 0",
      random_shape, .flags = OPDEF_STATEFUL, .shaped_by = 1 << 0, .is_flat = true },
    { "TruncatedNormal",
      "(shape: i64) -> (output: T); T: " FLOATS
      "; mean: float = 0; stddev: float = 1; seed: int = 0",
      random_shape, .flags = OPDEF_STATEFUL, .shaped_by = 1 << 0, .is_flat = true },
};

const struct ops_table ops_source = OPS_TABLE(rows);
