/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix: products of matrices, single and in batches that stretch. */
#include <inttypes.h>
#include <stdio.h>

#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

/* Rows and columns of the product; -1: open. */
static int inner(const struct opdef_shapes *shapes, const char *turn_a, const char *turn_b,
                 int64_t *ret_rows, int64_t *ret_columns, struct allot_error *err) {
    const struct shape *a = &shapes->inputs[0], *b = &shapes->inputs[1];
    bool turned_a = node_bool(shapes->node, turn_a), turned_b = node_bool(shapes->node, turn_b);
    int64_t left = SHAPE_UNKNOWN, right = SHAPE_UNKNOWN;
    char what[160];

    *ret_rows = *ret_columns = SHAPE_UNKNOWN;
    if (a->rank >= 2) {
        *ret_rows = a->dims[a->rank - (turned_a ? 1 : 2)];
        left = a->dims[a->rank - (turned_a ? 2 : 1)];
    }
    if (b->rank >= 2) {
        right = b->dims[b->rank - (turned_b ? 1 : 2)];
        *ret_columns = b->dims[b->rank - (turned_b ? 2 : 1)];
    }
    if (left < 0 || right < 0 || left == right)
        return 0;
    snprintf(what, sizeof(what), "the inner dimensions %" PRId64 " and %" PRId64 " differ%s%s%s",
             left, right, turned_a || turned_b ? " (transposed: " : "",
             turned_a && turned_b ? "both"
             : turned_a           ? "the first"
             : turned_b           ? "the second"
                                  : "",
             turned_a || turned_b ? ")" : "");
    return shapes_refuse(shapes, err, a, b, what);
}

static int mat_mul_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape out = { .rank = 2 };
    int r;

    for (size_t i = 0; i < 2; i++)
        if (shapes->inputs[i].rank >= 0 && shapes->inputs[i].rank != 2)
            return shapes_refuse(shapes, err, &shapes->inputs[0], &shapes->inputs[1],
                                 "both must be matrices, of two dimensions");
    r = inner(shapes, "transpose_a", "transpose_b", &out.dims[0], &out.dims[1], err);
    if (r == 0)
        shapes->outputs[0] = out;
    return r;
}

static int batch_mat_mul_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape x = shapes->inputs[0], y = shapes->inputs[1], out;
    int64_t rows, columns;
    int r;

    if ((x.rank >= 0 && x.rank < 2) || (y.rank >= 0 && y.rank < 2))
        return shapes_refuse(shapes, err, &x, &y, "both must have two dimensions at least");
    r = inner(shapes, "adj_x", "adj_y", &rows, &columns, err);
    if (r < 0 || x.rank < 0 || y.rank < 0)
        return r;
    x.rank -= 2;
    y.rank -= 2;
    if (shape_broadcast(&out, &x, &y) < 0)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &shapes->inputs[1],
                             "the dimensions before the last two do not broadcast to one shape");
    out.dims[out.rank++] = rows;
    out.dims[out.rank++] = columns;
    shapes->outputs[0] = out;
    return 0;
}

/* Products in which each of two matrices is turned or not. */
static struct edge product(struct build *build, bool batch, struct edge a, struct edge b,
                           bool turn_a, bool turn_b) {
    return build_with(build, batch ? "BatchMatMul" : "MatMul", EDGES(a, b),
                      { batch ? "adj_x" : "transpose_a", attr_bool(turn_a) },
                      { batch ? "adj_y" : "transpose_b", attr_bool(turn_b) });
}

/*
 * C = op(A)·op(B). If neither is transposed: dA = dC·Bᵀ, dB = Aᵀ·dC. The gradient of a transposed
 * factor is transposed, which the product does by itself if its factors are exchanged.
 */
static int gradient_of(struct graph_gradient *gradient, bool batch, bool turn_a, bool turn_b,
                       struct allot_error *err) {
    struct build build = gradient_build(gradient, err);
    struct edge dc = gradient_dy(gradient), a = gradient_x(gradient, 0),
                b = gradient_x(gradient, 1), da = GRAPH_NO_EDGE, db = GRAPH_NO_EDGE;

    /* That of the second factor first, as it mostly is a weight: where ops run in the order of the
     * graph, the sum of its gradient over replicas begins while that of the first is computed. */
    if (gradient->wanted[1])
        db = turn_b ? product(&build, batch, dc, a, true, turn_a)
                    : product(&build, batch, a, dc, !turn_a, false);
    if (gradient->wanted[0])
        da = turn_a ? product(&build, batch, b, dc, turn_b, true)
                    : product(&build, batch, dc, b, false, !turn_b);
    gradient->inputs_grad[0] = batch ? gradient_unstretch(&build, da, a) : da;
    gradient->inputs_grad[1] = batch ? gradient_unstretch(&build, db, b) : db;
    return build.r;
}

static int mat_mul_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return gradient_of(gradient, false, node_bool(gradient->node, "transpose_a"),
                       node_bool(gradient->node, "transpose_b"), err);
}

static int batch_mat_mul_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return gradient_of(gradient, true, node_bool(gradient->node, "adj_x"),
                       node_bool(gradient->node, "adj_y"), err);
}

#define PRODUCT_TYPES "{f16, bf16, f32, f64, i32, i64}"

static const struct opdef_row rows[] = {
    { "MatMul",
      "(a: T, b: T) -> (product: T); T: " PRODUCT_TYPES
      "; transpose_a: bool = false; transpose_b: bool = false",
      mat_mul_shape, mat_mul_gradient },
    { "BatchMatMul",
      "(x: T, y: T) -> (output: T); T: " PRODUCT_TYPES "; adj_x: bool = false; adj_y: bool = false",
      batch_mat_mul_shape, batch_mat_mul_gradient },
};

const struct ops_table ops_matrix = OPS_TABLE(rows);
