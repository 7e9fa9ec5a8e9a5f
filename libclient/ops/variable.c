/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variable: ops on values that outlive a step. The gradient of a read goes to the handle, which
 * adds up those of all reads.
 */
#include <errno.h>

#include "base/error.h"
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

#define WRITES (OPDEF_STATEFUL | OPDEF_SIDE_EFFECT)

/* A variable's memory lasts from run to run, so its size cannot depend on what a run computes. */
static int variable_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *shape = &graph_node_attr(shapes->node, "shape")->shape;

    if (!shape_is_whole(shape))
        return shapes_refuse_one(shapes, err, shape,
                                 "all of a variable's shape must be known when it is made");
    if (shape_count(shape) < 0)
        return shapes_refuse_one(shapes, err, shape, "more elements than can be counted");
    shapes->outputs[0] = *shape;
    return 0;
}

/* A value for a variable: input `at` must have the shape of input 0. */
static int fits(struct opdef_shapes *shapes, size_t at, struct allot_error *err) {
    struct shape merged;

    if (shape_merge(&merged, &shapes->inputs[0], &shapes->inputs[at]) < 0)
        return shapes_refuse(shapes, err, &shapes->inputs[0], &shapes->inputs[at],
                             "the variable and the value must have the same shape");
    return 0;
}

static int assign_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    return fits(shapes, 1, err);
}

/* Handles first, then single numbers, one of them the gradient. */
static int apply_shape(struct opdef_shapes *shapes, size_t n_handles, size_t gradient,
                       struct allot_error *err) {
    int r = 0;

    for (size_t i = 1; i < shapes->n_inputs && r == 0; i++)
        r = i < n_handles || i == gradient ? fits(shapes, i, err) : shapes_rank(shapes, i, 0, err);
    return r;
}

static int descent_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    return apply_shape(shapes, 1, 2, err);
}

/* An optimizer's state and parameters have the variable's type, or f32 for a 16-bit variable: in 16
 * bits 0.999 would be 1 and 1e-8 would be 0. */
static int remembered_type(struct opdef_shapes *shapes, struct allot_error *err) {
    enum dtype own = graph_node_attr(shapes->node, "T")->dtype,
               kept = graph_node_attr(shapes->node, "S")->dtype;

    return kept == own || (kept == DTYPE_F32 && dtype_bytes(own) == 2)
               ? 0
               : error_set(err, -EINVAL,
                           "op %s on a variable of type %s must keep its state in the same type "
                           "(or in f32 for 16-bit types), not in %s",
                           shapes->node->op->name, dtype_name(own), dtype_name(kept));
}

static int momentum_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int r = remembered_type(shapes, err);

    return r < 0 ? r : apply_shape(shapes, 2, 3, err);
}

static int adam_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    int r = remembered_type(shapes, err);

    return r < 0 ? r : apply_shape(shapes, 3, 9, err);
}

static const struct opdef_row rows[] = {
    { "Variable", "() -> (variable: var T); T: type; shape: shape", variable_shape,
      .flags = OPDEF_STATEFUL },
    { "ReadVariable", "(variable: var T) -> (value: T); T: type", shapes_same, gradient_pass,
      .flags = OPDEF_STATEFUL },
    { "Assign", "(variable: var T, value: T) -> (); T: type", assign_shape, .flags = WRITES },
    { "AssignAdd", "(variable: var T, value: T) -> (); T: " NUMBERS, assign_shape,
      .flags = WRITES },
    { "AssignSub", "(variable: var T, value: T) -> (); T: " NUMBERS, assign_shape,
      .flags = WRITES },
    { "ApplyGradientDescent", "(variable: var T, rate: T, gradient: T) -> (); T: " FLOATS,
      descent_shape, .flags = WRITES },
    { "ApplyMomentum",
      "(variable: var T, accumulator: var S, rate: S, gradient: T, momentum: S) -> (); T: " FLOATS
      "; S: " FLOATS "; use_nesterov: bool = false",
      momentum_shape, .flags = WRITES },
    { "ApplyAdam",
      "(variable: var T, m: var S, v: var S, beta1_power: S, beta2_power: S, rate: S, beta1: S, "
      "beta2: S, epsilon: S, gradient: T) -> (); T: " FLOATS "; S: " FLOATS
      "; use_nesterov: bool = false",
      adam_shape, .flags = WRITES },
};

const struct ops_table ops_variable = OPS_TABLE(rows);
