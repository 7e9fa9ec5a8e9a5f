/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax: along the last dimension, and the losses of classifiers. The losses give their own
 * gradient as a second output, computed with them; it is a value like any other and has a gradient
 * too, so that second derivatives are right.
 */
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

static int softmax_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    if (shapes->inputs[0].rank == 0)
        return shapes_refuse_one(shapes, err, &shapes->inputs[0],
                                 "a single number has no last dimension");
    return shapes_same(shapes, err);
}

static void loss_of(struct opdef_shapes *shapes, const struct shape *logits) {
    struct shape loss = *logits;

    if (loss.rank > 0)
        loss.dims[--loss.rank] = 0;
    shapes->outputs[0] = loss;
    shapes->outputs[1] = *logits;
}

static int entropy_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape logits;

    if (shape_merge(&logits, &shapes->inputs[0], &shapes->inputs[1]) < 0)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &shapes->inputs[1],
                             "logits and labels must have the same shape");
    if (logits.rank == 0)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &shapes->inputs[1],
                             "a single number has no classes");
    loss_of(shapes, &logits);
    return 0;
}

static int sparse_entropy_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    struct shape logits = shapes->inputs[0], labels = shapes->inputs[1], batch;

    if (logits.rank == 0)
        return shapes_refuse(shapes, err, &logits, &labels, "a single number has no classes");
    if (logits.rank < 0 && labels.rank == SHAPE_RANK_MAX)
        return shapes_refuse(shapes, err, &logits, &labels,
                             "the labels leave no dimension for the classes");
    if (logits.rank < 0 && labels.rank >= 0) {
        logits = labels;
        logits.dims[logits.rank++] = SHAPE_UNKNOWN;
    }
    if (logits.rank > 0) {
        batch = logits;
        batch.dims[--batch.rank] = 0;
        if (shape_merge(&batch, &batch, &labels) < 0)
            return shapes_refuse(shapes, err, &shapes->inputs[0], &labels,
                                 "the labels must have the shape of the logits without the last "
                                 "dimension");
        batch.dims[batch.rank] = logits.dims[batch.rank];
        batch.rank++;
        logits = batch;
    }
    loss_of(shapes, &logits);
    return 0;
}

/* Sum along the last dimension, which stays as 1. */
static struct edge sum_last(struct build *build, struct edge value) {
    static const int64_t last[] = { -1 };

    return build_with(build, "Sum", EDGES(value), { "axes", attr_ints(last, 1) },
                      { "keep_dims", attr_bool(true) });
}

/* s·(g − Σ g·s): the gradient of the logits, given the gradient g of their softmax s. */
static struct edge through(struct build *b, struct edge g, struct edge s) {
    return build_2(b, "Mul", s, build_2(b, "Sub", g, sum_last(b, build_2(b, "Mul", g, s))));
}

static int softmax_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] = through(&build, gradient_dy(gradient), gradient_y(gradient, 0));
    return build.r;
}

static int log_softmax_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err), *b = &build;
    struct edge dy = gradient_dy(gradient), s = build_1(b, "Exp", gradient_y(gradient, 0));

    gradient->inputs_grad[0] = build_2(b, "Sub", dy, build_2(b, "Mul", s, sum_last(b, dy)));
    return build.r;
}

/* What comes back for each loss, a row each. */
static struct edge by_row(struct build *build, struct edge dloss) {
    return build_with(build, "ExpandDims", EDGES(dloss), { "axis", attr_int(-1) });
}

static struct edge sum_of(struct build *build, struct edge one, struct edge other) {
    if (edge_is_none(one) || edge_is_none(other))
        return edge_is_none(one) ? other : one;
    return build_2(build, "Add", one, other);
}

static struct edge by_logits(struct build *b, const struct graph_gradient *gradient) {
    struct edge dloss = gradient->outputs_grad[0], dback = gradient->outputs_grad[1];
    struct edge by_loss = GRAPH_NO_EDGE, by_back = GRAPH_NO_EDGE;

    if (!edge_is_none(dloss))
        by_loss = build_2(b, "Mul", by_row(b, dloss), gradient_y(gradient, 1));
    if (!edge_is_none(dback))
        by_back = through(b, dback, build_1(b, "Softmax", gradient_x(gradient, 0)));
    return sum_of(b, by_loss, by_back);
}

static int sparse_entropy_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] = by_logits(&build, gradient);
    return build.r;
}

static int entropy_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err), *b = &build;
    struct edge dloss = gradient->outputs_grad[0], dback = gradient->outputs_grad[1];
    struct edge by_loss = GRAPH_NO_EDGE, by_back = GRAPH_NO_EDGE;

    if (gradient->wanted[0])
        gradient->inputs_grad[0] = by_logits(b, gradient);
    if (!gradient->wanted[1])
        return build.r;
    if (!edge_is_none(dloss))
        by_loss = build_1(
            b, "Neg",
            build_2(b, "Mul", by_row(b, dloss), build_1(b, "LogSoftmax", gradient_x(gradient, 0))));
    if (!edge_is_none(dback))
        by_back = build_1(b, "Neg", dback);
    gradient->inputs_grad[1] = sum_of(b, by_loss, by_back);
    return build.r;
}

static const struct opdef_row rows[] = {
    { "Softmax", "(logits: T) -> (softmax: T); T: " FLOATS, softmax_shape, softmax_gradient },
    { "LogSoftmax", "(logits: T) -> (softmax: T); T: " FLOATS, softmax_shape,
      log_softmax_gradient },
    { "SoftmaxCrossEntropy", "(logits: T, labels: T) -> (loss: T, backprop: T); T: " FLOATS,
      entropy_shape, entropy_gradient },
    { "SparseSoftmaxCrossEntropy",
      "(logits: T, labels: L) -> (loss: T, backprop: T); T: " FLOATS "; L: {i32, i64}",
      sparse_entropy_shape, sparse_entropy_gradient },
};

const struct ops_table ops_softmax = OPS_TABLE(rows);
