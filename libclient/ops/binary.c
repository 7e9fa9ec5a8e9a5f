/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binary: element by element, of tensors that stretch to one shape. The gradient of a stretched
 * input is summed over the dimensions that the stretch repeated.
 */
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

/* static int <name>_gradient(…): by x and by y, each unstretched; z is the output. */
#define GRADIENT(name, by_x, by_y)                                                                 \
    static int name##_gradient(struct graph_gradient *gradient, struct allot_error *err) {         \
        struct build build = gradient_build(gradient, err), *b = &build;                           \
        struct edge dz = gradient_dy(gradient), x = gradient_x(gradient, 0),                       \
                    y = gradient_x(gradient, 1), z = gradient_y(gradient, 0);                      \
                                                                                                   \
        (void)z;                                                                                   \
        if (gradient->wanted[0])                                                                   \
            gradient->inputs_grad[0] = gradient_unstretch(b, (by_x), x);                           \
        if (gradient->wanted[1])                                                                   \
            gradient->inputs_grad[1] = gradient_unstretch(b, (by_y), y);                           \
        return build.r;                                                                            \
    }

static struct edge negative(struct build *b, struct edge value) {
    return build_1(b, "Neg", value);
}

static struct edge product(struct build *b, struct edge one, struct edge other) {
    return build_2(b, "Mul", one, other);
}

/* y·x^(y−1), and 0 for y = 0, where x^(−1) need not be finite. */
static struct edge pow_by_x(struct build *b, struct edge x, struct edge y, enum dtype dtype) {
    struct edge is_zero = build_2(b, "Equal", y, build_number(b, dtype, 0));
    struct edge tame = build_3(b, "Select", is_zero, build_1(b, "OnesLike", y), y);

    return product(b, y, build_2(b, "Pow", x, gradient_shift(b, tame, -1)));
}

/* ln x where x > 0, else 0: and no NaN on the way that a product would keep. */
static struct edge safe_log(struct build *b, struct edge x, enum dtype dtype) {
    struct edge above = build_2(b, "Greater", x, build_number(b, dtype, 0));
    struct edge tame = build_3(b, "Select", above, x, build_1(b, "OnesLike", x));

    return build_1(b, "Log", tame);
}

/* dz where `op` is true for x and y (or is false), else 0. */
static struct edge where(struct build *b, const char *op, struct edge x, struct edge y,
                         struct edge dz, bool holds) {
    struct edge zeros = build_1(b, "ZerosLike", dz), mask = build_2(b, op, x, y);

    return holds ? build_3(b, "Select", mask, dz, zeros) : build_3(b, "Select", mask, zeros, dz);
}

GRADIENT(add, dz, dz)
GRADIENT(sub, dz, negative(b, dz))
GRADIENT(mul, product(b, dz, y), product(b, dz, x))
GRADIENT(div, build_2(b, "Div", dz, y), negative(b, build_2(b, "Div", product(b, dz, z), y)))
GRADIENT(floor_mod, dz, negative(b, product(b, dz, build_2(b, "FloorDiv", x, y))))
GRADIENT(pow, product(b, dz, pow_by_x(b, x, y, gradient_type(gradient))),
         product(b, dz, product(b, z, safe_log(b, x, gradient_type(gradient)))))
/* Where both are the same, all of it goes to x. */
GRADIENT(maximum, where(b, "GreaterEqual", x, y, dz, true),
         where(b, "GreaterEqual", x, y, dz, false))
GRADIENT(minimum, where(b, "LessEqual", x, y, dz, true), where(b, "LessEqual", x, y, dz, false))
GRADIENT(squared, product(b, gradient_scale(b, dz, 2), build_2(b, "Sub", x, y)),
         product(b, gradient_scale(b, dz, 2), build_2(b, "Sub", y, x)))

static int select_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err), *b = &build;
    struct edge dz = gradient_dy(gradient), condition = gradient_x(gradient, 0);
    struct edge zeros = build_1(b, "ZerosLike", dz);

    if (gradient->wanted[1])
        gradient->inputs_grad[1] = gradient_unstretch(b, build_3(b, "Select", condition, dz, zeros),
                                                      gradient_x(gradient, 1));
    if (gradient->wanted[2])
        gradient->inputs_grad[2] = gradient_unstretch(b, build_3(b, "Select", condition, zeros, dz),
                                                      gradient_x(gradient, 2));
    return build.r;
}

static int add_n_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    for (uint32_t i = 0; i < gradient->node->n_inputs; i++)
        gradient->inputs_grad[i] = gradient_dy(gradient);
    return 0;
}

static int bias_add_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    struct build build = gradient_build(gradient, err);

    gradient->inputs_grad[0] = gradient_dy(gradient);
    if (gradient->wanted[1])
        gradient->inputs_grad[1] = build_1(&build, "BiasAddGrad", gradient_dy(gradient));
    return build.r;
}

static int bias_add_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    const struct shape *value = &shapes->inputs[0], *bias = &shapes->inputs[1];
    struct shape out = *value;

    if (bias->rank >= 0 && bias->rank != 1)
        return shapes_refuse(shapes, err, value, bias, "the bias must have one dimension");
    if (value->rank == 0)
        return shapes_refuse(shapes, err, value, bias, "a single number has no last dimension");
    if (value->rank > 0 && bias->rank == 1) {
        int64_t *last = &out.dims[out.rank - 1];

        if (*last >= 0 && bias->dims[0] >= 0 && *last != bias->dims[0])
            return shapes_refuse(shapes, err, value, bias,
                                 "the bias must be as long as the last dimension");
        if (*last < 0)
            *last = bias->dims[0];
    }
    shapes->outputs[0] = out;
    return 0;
}

static int add_n_shape(struct opdef_shapes *shapes, struct allot_error *err) {
    if (shapes->n_inputs == 0)
        return shapes_refuse_one(shapes, err, &(struct shape){ SHAPE_UNKNOWN },
                                 "there is nothing to add: one input at least");
    return shapes_merged(shapes, err);
}

#define TWO(types)   "(x: T, y: T) -> (z: T); T: " types
#define TRUTH(types) "(x: T, y: T) -> (z: bool); T: " types

static const struct opdef_row rows[] = {
    { "Add", TWO(NUMBERS), shapes_stretched, add_gradient },
    { "Sub", TWO(NUMBERS), shapes_stretched, sub_gradient },
    { "Mul", TWO(NUMBERS), shapes_stretched, mul_gradient },
    { "Div", TWO(NUMBERS), shapes_stretched, div_gradient },
    { "FloorDiv", TWO(NUMBERS), shapes_stretched, .is_flat = true },
    { "FloorMod", TWO(NUMBERS), shapes_stretched, floor_mod_gradient },
    { "Pow", TWO(NUMBERS), shapes_stretched, pow_gradient },
    { "Maximum", TWO(NUMBERS), shapes_stretched, maximum_gradient },
    { "Minimum", TWO(NUMBERS), shapes_stretched, minimum_gradient },
    { "SquaredDifference", TWO(NUMBERS), shapes_stretched, squared_gradient },
    { "Less", TRUTH(NUMBERS), shapes_stretched, .is_flat = true },
    { "LessEqual", TRUTH(NUMBERS), shapes_stretched, .is_flat = true },
    { "Greater", TRUTH(NUMBERS), shapes_stretched, .is_flat = true },
    { "GreaterEqual", TRUTH(NUMBERS), shapes_stretched, .is_flat = true },
    { "Equal", TRUTH("type"), shapes_stretched, .is_flat = true },
    { "NotEqual", TRUTH("type"), shapes_stretched, .is_flat = true },
    { "LogicalAnd", "(x: bool, y: bool) -> (z: bool)", shapes_stretched, .is_flat = true },
    { "LogicalOr", "(x: bool, y: bool) -> (z: bool)", shapes_stretched, .is_flat = true },
    { "Select", "(condition: bool, t: T, e: T) -> (output: T); T: type", shapes_stretched,
      select_gradient },
    { "AddN", "(inputs: N * T) -> (sum: T); N: int; T: " NUMBERS, add_n_shape, add_n_gradient },
    { "BiasAdd", "(value: T, bias: T) -> (output: T); T: " NUMBERS, bias_add_shape,
      bias_add_gradient },
};

const struct ops_table ops_binary = OPS_TABLE(rows);
