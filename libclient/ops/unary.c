/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unary: element by element, one tensor in and one out, and the fused gradients of those for which
 * one kernel is better than several. Each gradient is written in terms of x, y or both, whichever
 * takes less to keep.
 */
#include "libclient/ops/gradient.h"
#include "libclient/ops/ops.h"
#include "libclient/ops/shapes.h"

/* static int <name>_gradient(…): dx is the expression, of build b, dy, x and y. */
#define GRADIENT(name, expression)                                                                 \
    static int name##_gradient(struct graph_gradient *gradient, struct allot_error *err) {         \
        struct build build = gradient_build(gradient, err), *b = &build;                           \
        struct edge dy = gradient_dy(gradient), x = gradient_x(gradient, 0),                       \
                    y = gradient_y(gradient, 0);                                                   \
                                                                                                   \
        (void)x;                                                                                   \
        (void)y;                                                                                   \
        gradient->inputs_grad[0] = (expression);                                                   \
        return build.r;                                                                            \
    }

GRADIENT(neg, build_1(b, "Neg", dy))
GRADIENT(abs, build_2(b, "Mul", dy, build_1(b, "Sign", x)))
GRADIENT(exp, build_2(b, "Mul", dy, y))
GRADIENT(expm1, build_2(b, "Mul", dy, build_1(b, "Exp", x)))
GRADIENT(log, build_2(b, "Div", dy, x))
GRADIENT(log1p, build_2(b, "Div", dy, gradient_shift(b, x, 1)))
GRADIENT(sqrt, build_2(b, "Div", gradient_scale(b, dy, 0.5), y))
GRADIENT(rsqrt, build_2(b, "Mul", gradient_scale(b, dy, -0.5),
                        build_2(b, "Mul", y, build_1(b, "Square", y))))
GRADIENT(square, build_2(b, "Mul", dy, gradient_scale(b, x, 2)))
GRADIENT(reciprocal, build_1(b, "Neg", build_2(b, "Mul", dy, build_1(b, "Square", y))))
GRADIENT(sin, build_2(b, "Mul", dy, build_1(b, "Cos", x)))
GRADIENT(cos, build_1(b, "Neg", build_2(b, "Mul", dy, build_1(b, "Sin", x))))
GRADIENT(tanh, build_2(b, "TanhGrad", y, dy))
GRADIENT(sigmoid, build_2(b, "SigmoidGrad", y, dy))
GRADIENT(relu, build_2(b, "ReluGrad", dy, y))
GRADIENT(relu6, build_2(b, "Relu6Grad", dy, y))
GRADIENT(elu, build_2(b, "EluGrad", dy, y))
GRADIENT(silu, build_2(b, "SiluGrad", dy, x))
GRADIENT(softplus, build_2(b, "SoftplusGrad", dy, x))
GRADIENT(leaky, build_with(b, "LeakyReluGrad", EDGES(dy, x), gradient_attr(gradient, "alpha")))
GRADIENT(gelu, build_with(b, "GeluGrad", EDGES(dy, x), gradient_attr(gradient, "approximate")))
/* 2/√π · e^(-x²) */
GRADIENT(erf, build_2(b, "Mul", gradient_scale(b, dy, 1.1283791670955126),
                      build_1(b, "Exp", build_1(b, "Neg", build_1(b, "Square", x)))))

/* ---- Gradients of the fused gradients -------------------------------------------------------- */

/* z = g·f'(x): dg = dz·f'(x), the same op again; dx = dz·g·f''(x). */
static int fused(struct graph_gradient *gradient, struct allot_error *err, const char *attr,
                 struct edge (*second)(struct build *, const struct graph_gradient *,
                                       struct edge)) {
    struct build build = gradient_build(gradient, err);
    struct edge dz = gradient_dy(gradient), g = gradient_x(gradient, 0),
                x = gradient_x(gradient, 1);
    struct build_attr attrs[1] = { 0 };

    if (attr)
        attrs[0] = gradient_attr(gradient, attr);
    gradient->inputs_grad[0] =
        build_n(&build, gradient->node->op->name, EDGES(dz, x), attrs, attr ? 1 : 0);
    if (second && gradient->wanted[1])
        gradient->inputs_grad[1] =
            build_2(&build, "Mul", build_2(&build, "Mul", dz, g), second(&build, gradient, x));
    return build.r;
}

/* f'' = 0 */
static int relu_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return fused(gradient, err, NULL, NULL);
}

static int leaky_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return fused(gradient, err, "alpha", NULL);
}

/* s(1 − s), where s is the sigmoid */
static struct edge softplus_second(struct build *b, const struct graph_gradient *gradient,
                                   struct edge x) {
    struct edge s = build_1(b, "Sigmoid", x);

    return build_2(b, "Sub", s, build_1(b, "Square", s));
}

static int softplus_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return fused(gradient, err, NULL, softplus_second);
}

/* s(1 − s)(2 + x(1 − 2s)) */
static struct edge silu_second(struct build *b, const struct graph_gradient *gradient,
                               struct edge x) {
    struct edge s = build_1(b, "Sigmoid", x);
    struct edge slope = build_2(b, "Sub", s, build_1(b, "Square", s));
    struct edge inner = gradient_shift(b, gradient_scale(b, s, -2), 1);

    return build_2(b, "Mul", slope, gradient_shift(b, build_2(b, "Mul", x, inner), 2));
}

static int silu_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return fused(gradient, err, NULL, silu_second);
}

/* Exactly: φ(x)(2 − x²). By tanh u, u = k(x + c·x³): (1 − t²)(u' + x·u''/2 − x·t·u'²). */
static struct edge gelu_second(struct build *b, const struct graph_gradient *gradient,
                               struct edge x) {
    static const double k = 0.7978845608028654, c = 0.044715; /* √(2/π) */
    struct edge square = build_1(b, "Square", x), u, u1, t, sum;

    if (!node_bool(gradient->node, "approximate"))
        return build_2(b, "Mul",
                       gradient_scale(b, build_1(b, "Exp", gradient_scale(b, square, -0.5)), k / 2),
                       gradient_shift(b, build_1(b, "Neg", square), 2));
    u = gradient_scale(b, build_2(b, "Add", x, gradient_scale(b, build_2(b, "Mul", square, x), c)),
                       k);
    u1 = gradient_shift(b, gradient_scale(b, square, 3 * c * k), k);
    t = build_1(b, "Tanh", u);
    sum = build_2(b, "Add", u1, gradient_scale(b, square, 3 * c * k)); /* x·u''/2 = 3ckx² */
    sum = build_2(b, "Sub", sum,
                  build_2(b, "Mul", build_2(b, "Mul", x, t), build_1(b, "Square", u1)));
    return build_2(b, "TanhGrad", t, sum);
}

static int gelu_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return fused(gradient, err, "approximate", gelu_second);
}

/* Of the output y: f' = y + 1 below 0, else 1. */
static struct edge elu_second(struct build *b, const struct graph_gradient *gradient,
                              struct edge y) {
    struct edge below = build_2(b, "Less", y, build_number(b, gradient_type(gradient), 0));

    return build_with(b, "Cast", EDGES(below), { "U", attr_dtype(gradient_type(gradient)) });
}

static int elu_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return fused(gradient, err, NULL, elu_second);
}

/* z = dy(1 − y²), or dy·y(1 − y): by y, dz·dy·(−2y), or dz·dy·(1 − 2y). */
static int by_output(struct graph_gradient *gradient, struct allot_error *err, double shift) {
    struct build build = gradient_build(gradient, err), *b = &build;
    struct edge dz = gradient_dy(gradient), y = gradient_x(gradient, 0),
                dy = gradient_x(gradient, 1), factor;

    gradient->inputs_grad[1] = build_2(b, gradient->node->op->name, y, dz);
    if (gradient->wanted[0]) {
        factor = gradient_scale(b, y, -2);
        if (shift != 0)
            factor = gradient_shift(b, factor, shift);
        gradient->inputs_grad[0] = build_2(b, "Mul", build_2(b, "Mul", dz, dy), factor);
    }
    return build.r;
}

static int tanh_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return by_output(gradient, err, 0);
}

static int sigmoid_grad_gradient(struct graph_gradient *gradient, struct allot_error *err) {
    return by_output(gradient, err, 1);
}

#define ONE(types)   "(x: T) -> (y: T); T: " types
#define FUSED(other) "(gradients: T, " other ": T) -> (backprops: T); T: " FLOATS

static const struct opdef_row rows[] = {
    { "Neg", ONE(SIGNED), shapes_same, neg_gradient },
    { "Abs", ONE(SIGNED), shapes_same, abs_gradient },
    { "Sign", ONE(SIGNED), shapes_same, .is_flat = true },
    { "Square", ONE(SIGNED), shapes_same, square_gradient },
    { "Exp", ONE(FLOATS), shapes_same, exp_gradient },
    { "Expm1", ONE(FLOATS), shapes_same, expm1_gradient },
    { "Log", ONE(FLOATS), shapes_same, log_gradient },
    { "Log1p", ONE(FLOATS), shapes_same, log1p_gradient },
    { "Sqrt", ONE(FLOATS), shapes_same, sqrt_gradient },
    { "Rsqrt", ONE(FLOATS), shapes_same, rsqrt_gradient },
    { "Reciprocal", ONE(FLOATS), shapes_same, reciprocal_gradient },
    { "Sin", ONE(FLOATS), shapes_same, sin_gradient },
    { "Cos", ONE(FLOATS), shapes_same, cos_gradient },
    { "Tanh", ONE(FLOATS), shapes_same, tanh_gradient },
    { "Sigmoid", ONE(FLOATS), shapes_same, sigmoid_gradient },
    { "Relu", ONE(SIGNED), shapes_same, relu_gradient },
    { "Relu6", ONE(SIGNED), shapes_same, relu6_gradient },
    { "LeakyRelu", ONE(FLOATS) "; alpha: float = 0.2", shapes_same, leaky_gradient },
    { "Elu", ONE(FLOATS), shapes_same, elu_gradient },
    { "Gelu", ONE(FLOATS) "; approximate: bool = false", shapes_same, gelu_gradient },
    { "Silu", ONE(FLOATS), shapes_same, silu_gradient },
    { "Softplus", ONE(FLOATS), shapes_same, softplus_gradient },
    { "Erf", ONE(FLOATS), shapes_same, erf_gradient },
    { "Floor", ONE(FLOATS), shapes_same, .is_flat = true },
    { "Ceil", ONE(FLOATS), shapes_same, .is_flat = true },
    { "Round", ONE(FLOATS), shapes_same, .is_flat = true },
    { "ZerosLike", "(like: T) -> (y: T); T: type", shapes_same, .is_flat = true },
    { "OnesLike", "(like: T) -> (y: T); T: type", shapes_same, .is_flat = true },
    { "LogicalNot", "(x: bool) -> (y: bool)", shapes_same, .is_flat = true },
    { "IsNan", "(x: T) -> (y: bool); T: " FLOATS, shapes_same, .is_flat = true },
    { "IsFinite", "(x: T) -> (y: bool); T: " FLOATS, shapes_same, .is_flat = true },
    { "ReluGrad", FUSED("features"), shapes_merged, relu_grad_gradient },
    { "Relu6Grad", FUSED("features"), shapes_merged, relu_grad_gradient },
    { "LeakyReluGrad", FUSED("features") "; alpha: float = 0.2", shapes_merged,
      leaky_grad_gradient },
    { "SoftplusGrad", FUSED("features"), shapes_merged, softplus_grad_gradient },
    { "SiluGrad", FUSED("features"), shapes_merged, silu_grad_gradient },
    { "GeluGrad", FUSED("features") "; approximate: bool = false", shapes_merged,
      gelu_grad_gradient },
    { "EluGrad", FUSED("outputs"), shapes_merged, elu_grad_gradient },
    { "TanhGrad", "(y: T, dy: T) -> (z: T); T: " FLOATS, shapes_merged, tanh_grad_gradient },
    { "SigmoidGrad", "(y: T, dy: T) -> (z: T); T: " FLOATS, shapes_merged, sigmoid_grad_gradient },
};

const struct ops_table ops_unary = OPS_TABLE(rows);
