/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Scalar: what each elementwise op does to one element, as tables that compile as C and as CUDA C.
 * The loops of the CPU and the kernels of the GPU are both expanded from them.
 *
 * A row: X(op, weight, types, expression, types, expression). `weight` is about how many cheap
 * operations an element costs. The expressions see `a` and `b`, elements of type T, and `w`, the
 * numbers from the node's attributes (double); W is a type in which sums and products wrap: that of
 * T itself for floats, unsigned and not narrower than int for integers. 16-bit floats are computed
 * as floats. The row of an op determines which types it has.
 */
#include "libclient/kernels/math.h"

/* L(type, T, W, …) for each type of a set. */
#define FLOATS(L, ...)                                                                             \
    L(F32, float, float, __VA_ARGS__)                                                              \
    L(F64, double, double, __VA_ARGS__)
#define SIGNED(L, ...)                                                                             \
    L(I8, int8_t, uint32_t, __VA_ARGS__)                                                           \
    L(I16, int16_t, uint32_t, __VA_ARGS__)                                                         \
    L(I32, int32_t, uint32_t, __VA_ARGS__)                                                         \
    L(I64, int64_t, uint64_t, __VA_ARGS__)
#define UNSIGNED(L, ...)                                                                           \
    L(U8, uint8_t, uint32_t, __VA_ARGS__)                                                          \
    L(U16, uint16_t, uint32_t, __VA_ARGS__)                                                        \
    L(U32, uint32_t, uint32_t, __VA_ARGS__)                                                        \
    L(U64, uint64_t, uint64_t, __VA_ARGS__)
#define INTS(L, ...)  SIGNED(L, __VA_ARGS__) UNSIGNED(L, __VA_ARGS__)
#define TRUTH(L, ...) L(BOOL, uint8_t, uint32_t, __VA_ARGS__)
#define NO_TYPES(L, ...)

/* ---- Functions by type ----------------------------------------------------------------------- */

#ifdef __CUDACC__
#define MATH_PAIR(name, for_float, for_double)                                                     \
    MATH_FN float name(float x) {                                                                  \
        return for_float(x);                                                                       \
    }                                                                                              \
    MATH_FN double name(double x) {                                                                \
        return for_double(x);                                                                      \
    }
#define MATH_PAIR2(name, for_float, for_double)                                                    \
    MATH_FN float name(float x, float y) {                                                         \
        return for_float(x, y);                                                                    \
    }                                                                                              \
    MATH_FN double name(double x, double y) {                                                      \
        return for_double(x, y);                                                                   \
    }
#define MATH_LINKAGE static __device__ __forceinline__
#else
#define MATH_LINKAGE static inline __attribute__((unused))
#define MATH_PAIR(name, for_float, for_double)                                                     \
    MATH_LINKAGE float name##_f(float x) {                                                         \
        return for_float(x);                                                                       \
    }                                                                                              \
    MATH_LINKAGE double name##_d(double x) {                                                       \
        return for_double(x);                                                                      \
    }
#define MATH_PAIR2(name, for_float, for_double)                                                    \
    MATH_LINKAGE float name##_f(float x, float y) {                                                \
        return for_float(x, y);                                                                    \
    }                                                                                              \
    MATH_LINKAGE double name##_d(double x, double y) {                                             \
        return for_double(x, y);                                                                   \
    }
#endif

/* The remainder of x / y, with the sign of y. */
MATH_LINKAGE float math_floor_mod(float x, float y) {
    float r = fmodf(x, y);

    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
MATH_LINKAGE double math_floor_mod_double(double x, double y) {
    double r = fmod(x, y);

    return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
MATH_LINKAGE double math_sigmoid_double(double x) {
    double e = exp(-fabs(x));

    return (x > 0 ? 1 : e) / (1 + e);
}
MATH_LINKAGE double math_softplus_double(double x) {
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

MATH_PAIR(m_abs, fabsf, fabs)
MATH_PAIR(m_sqrt, sqrtf, sqrt)
MATH_PAIR(m_exp, math_exp, exp)
MATH_PAIR(m_expm1, math_expm1, expm1)
MATH_PAIR(m_log, math_log, log)
MATH_PAIR(m_log1p, math_log1p, log1p)
MATH_PAIR(m_sin, sinf, sin)
MATH_PAIR(m_cos, cosf, cos)
MATH_PAIR(m_tanh, math_tanh, tanh)
MATH_PAIR(m_sigmoid, math_sigmoid, math_sigmoid_double)
MATH_PAIR(m_softplus, math_softplus, math_softplus_double)
MATH_PAIR(m_erf, erff, erf)
MATH_PAIR(m_erfc, erfcf, erfc)
MATH_PAIR(m_floor, floorf, floor)
MATH_PAIR(m_ceil, ceilf, ceil)
MATH_PAIR(m_rint, rintf, rint)
MATH_PAIR2(m_pow, powf, pow)
MATH_PAIR2(m_floor_mod, math_floor_mod, math_floor_mod_double)

#ifndef __CUDACC__
#define MATH_BY_TYPE(name, x) _Generic((x), float : name##_f, default : name##_d)
#define m_abs(x)              MATH_BY_TYPE(m_abs, x)(x)
#define m_sqrt(x)             MATH_BY_TYPE(m_sqrt, x)(x)
#define m_exp(x)              MATH_BY_TYPE(m_exp, x)(x)
#define m_expm1(x)            MATH_BY_TYPE(m_expm1, x)(x)
#define m_log(x)              MATH_BY_TYPE(m_log, x)(x)
#define m_log1p(x)            MATH_BY_TYPE(m_log1p, x)(x)
#define m_sin(x)              MATH_BY_TYPE(m_sin, x)(x)
#define m_cos(x)              MATH_BY_TYPE(m_cos, x)(x)
#define m_tanh(x)             MATH_BY_TYPE(m_tanh, x)(x)
#define m_sigmoid(x)          MATH_BY_TYPE(m_sigmoid, x)(x)
#define m_softplus(x)         MATH_BY_TYPE(m_softplus, x)(x)
#define m_erf(x)              MATH_BY_TYPE(m_erf, x)(x)
#define m_erfc(x)             MATH_BY_TYPE(m_erfc, x)(x)
#define m_floor(x)            MATH_BY_TYPE(m_floor, x)(x)
#define m_ceil(x)             MATH_BY_TYPE(m_ceil, x)(x)
#define m_rint(x)             MATH_BY_TYPE(m_rint, x)(x)
#define m_pow(x, y)           MATH_BY_TYPE(m_pow, x)(x, y)
#define m_floor_mod(x, y)     MATH_BY_TYPE(m_floor_mod, x)(x, y)
#endif

/* a to the power of b; wraps: the low bits of the true result. */
MATH_LINKAGE uint64_t math_int_pow(uint64_t a, uint64_t b) {
    uint64_t power = 1;

    for (; b; b >>= 1, a *= a)
        power *= b & 1 ? a : 1;
    return power;
}

/* Quotient and remainder of integers, rounded towards 0. Divided by 0 they are 0, where no check
 * came before; the smallest number by -1 wraps. */
#define INT_DIV(a, b)                                                                              \
    ((b) == 0 ? (T)0 : (T)-1 < (T)1 && (b) == (T)-1 ? (T)((W)0 - (W)(a)) : (T)((a) / (b)))
#define INT_MOD(a, b) ((b) == 0 || ((T)-1 < (T)1 && (b) == (T)-1) ? (T)0 : (T)((a) % (b)))
/* Whether rounding down gives one less: the remainder is not 0 and its sign differs from that of b.
 */
#define INT_BELOW(a, b)                                                                            \
    ((T)-1 < (T)1 && INT_MOD(a, b) != 0 && (INT_MOD(a, b) < (T)1) != ((b) < (T)1))

/* Gelu's curve and its slope: by the error function, or by its approximation with tanh. */
#define GELU_INNER(x) ((T)0.7978845608028654 * ((x) + (T)0.044715 * (x) * (x) * (x)))
#define GELU_PHI(x)                                                                                \
    ((T)0.5 * (w[0] != 0 ? 1 + m_tanh(GELU_INNER(x)) : m_erfc((x) * (T)-0.7071067811865476)))
#define GELU_SLOPE(x)                                                                              \
    (w[0] != 0 ? (T)0.5 * (1 - m_tanh(GELU_INNER(x)) * m_tanh(GELU_INNER(x))) *                    \
                     (T)0.7978845608028654 * (1 + 3 * (T)0.044715 * (x) * (x))                     \
               : (T)0.3989422804014327 * m_exp((T)-0.5 * (x) * (x)))

/* ---- One argument ---------------------------------------------------------------------------- */
/* clang-format off */
#define UNARY_OPS(X)                                                                               \
    X(Neg, 1, FLOATS, -a, SIGNED, (W)0 - (W)a)                                                     \
    X(Abs, 1, FLOATS, m_abs(a), SIGNED, a > 0 ? (W)a : (W)0 - (W)a)                                \
    X(Sign, 1, FLOATS, a > 0 ? (T)1 : a < 0 ? (T)-1 : a, SIGNED, (a > 0) - (a < 0))                \
    X(Square, 1, FLOATS, a * a, SIGNED, (W)a * (W)a)                                               \
    X(Relu, 1, FLOATS, a > 0 || a != a ? a : 0, SIGNED, a > 0 ? a : 0)                             \
    X(Relu6, 1, FLOATS, a > 6 ? 6 : a > 0 || a != a ? a : 0, SIGNED, a > 6 ? 6 : a > 0 ? a : 0)    \
    X(Exp, 8, FLOATS, m_exp(a), NO_TYPES, 0)                                                       \
    X(Expm1, 8, FLOATS, m_expm1(a), NO_TYPES, 0)                                                   \
    X(Log, 8, FLOATS, m_log(a), NO_TYPES, 0)                                                       \
    X(Log1p, 10, FLOATS, m_log1p(a), NO_TYPES, 0)                                                  \
    X(Sqrt, 4, FLOATS, m_sqrt(a), NO_TYPES, 0)                                                     \
    X(Rsqrt, 6, FLOATS, 1 / m_sqrt(a), NO_TYPES, 0)                                                \
    X(Reciprocal, 4, FLOATS, 1 / a, NO_TYPES, 0)                                                   \
    X(Sin, 40, FLOATS, m_sin(a), NO_TYPES, 0)                                                      \
    X(Cos, 40, FLOATS, m_cos(a), NO_TYPES, 0)                                                      \
    X(Tanh, 12, FLOATS, m_tanh(a), NO_TYPES, 0)                                                    \
    X(Sigmoid, 10, FLOATS, m_sigmoid(a), NO_TYPES, 0)                                              \
    X(Elu, 10, FLOATS, a > 0 ? a : m_expm1(a), NO_TYPES, 0)                                        \
    X(Silu, 10, FLOATS, a * m_sigmoid(a), NO_TYPES, 0)                                             \
    X(Softplus, 20, FLOATS, m_softplus(a), NO_TYPES, 0)                                            \
    X(Erf, 40, FLOATS, m_erf(a), NO_TYPES, 0)                                                      \
    X(Floor, 1, FLOATS, m_floor(a), NO_TYPES, 0)                                                   \
    X(Ceil, 1, FLOATS, m_ceil(a), NO_TYPES, 0)                                                     \
    X(Round, 1, FLOATS, m_rint(a), NO_TYPES, 0)                                                    \
    X(LeakyRelu, 1, FLOATS, a > 0 ? a : a * (T)w[0], NO_TYPES, 0)                                  \
    X(Gelu, 40, FLOATS, a * GELU_PHI(a), NO_TYPES, 0)                                              \
    X(LogicalNot, 1, TRUTH, a == 0, NO_TYPES, 0)

/* One argument; the result is a bool. */
#define TEST_OPS(X)                                                                                \
    X(IsNan, 1, FLOATS, a != a, NO_TYPES, 0)                                                       \
    X(IsFinite, 1, FLOATS, a - a == 0, NO_TYPES, 0)

/* Parts of larger ops. */
#define INNER_OPS(X)                                                                               \
    X(ExpMinus, 8, FLOATS, m_exp(a - (T)w[0]), NO_TYPES, 0)                                        \
    X(MinusMinus, 1, FLOATS, (a - (T)w[0]) - (T)w[1], NO_TYPES, 0)                                 \
    X(Over, 4, FLOATS, a / (T)w[0], NO_TYPES, 0)

/* ---- Two arguments ---------------------------------------------------------------------------- */
#define BINARY_OPS(X)                                                                              \
    X(Add, 1, FLOATS, a + b, INTS, (W)a + (W)b)                                                    \
    X(Sub, 1, FLOATS, a - b, INTS, (W)a - (W)b)                                                    \
    X(Mul, 1, FLOATS, a * b, INTS, (W)a * (W)b)                                                    \
    X(Div, 4, FLOATS, a / b, INTS, INT_DIV(a, b))                                                  \
    X(FloorDiv, 8, FLOATS, m_floor(a / b), INTS, INT_DIV(a, b) - INT_BELOW(a, b))                  \
    X(FloorMod, 40, FLOATS, m_floor_mod(a, b), INTS, INT_MOD(a, b) + (INT_BELOW(a, b) ? b : 0))    \
    X(Pow, 60, FLOATS, m_pow(a, b), INTS, math_int_pow((uint64_t)a, (uint64_t)b))                  \
    X(Maximum, 1, FLOATS, a >= b || a != a ? a : b, INTS, a >= b ? a : b)                          \
    X(Minimum, 1, FLOATS, a <= b || a != a ? a : b, INTS, a <= b ? a : b)                          \
    X(SquaredDifference, 1, FLOATS, (a - b) * (a - b), INTS, ((W)a - (W)b) * ((W)a - (W)b))        \
    X(LogicalAnd, 1, TRUTH, a != 0 && b != 0, NO_TYPES, 0)                                         \
    X(LogicalOr, 1, TRUTH, a != 0 || b != 0, NO_TYPES, 0)                                          \
    X(ReluGrad, 1, FLOATS, b > 0 ? a : 0, NO_TYPES, 0)                                             \
    X(Relu6Grad, 1, FLOATS, b > 0 && b < 6 ? a : 0, NO_TYPES, 0)                                   \
    X(LeakyReluGrad, 1, FLOATS, b > 0 ? a : a * (T)w[0], NO_TYPES, 0)                              \
    X(EluGrad, 1, FLOATS, b < 0 ? a * (b + 1) : a, NO_TYPES, 0)                                    \
    X(SoftplusGrad, 10, FLOATS, a * m_sigmoid(b), NO_TYPES, 0)                                     \
    X(SiluGrad, 12, FLOATS, a * (m_sigmoid(b) * (1 + b * m_sigmoid(-b))), NO_TYPES, 0)             \
    X(GeluGrad, 50, FLOATS, a * (GELU_PHI(b) + b * GELU_SLOPE(b)), NO_TYPES, 0)                    \
    X(TanhGrad, 1, FLOATS, b * (1 - a * a), NO_TYPES, 0)                                           \
    X(SigmoidGrad, 1, FLOATS, b * (a * (1 - a)), NO_TYPES, 0)

/* Two arguments; the result is a bool. */
#define COMPARE_OPS(X)                                                                             \
    X(Equal, 1, FLOATS, a == b, EQUAL_TYPES, a == b)                                               \
    X(NotEqual, 1, FLOATS, a != b, EQUAL_TYPES, a != b)                                            \
    X(Less, 1, FLOATS, a < b, INTS, a < b)                                                         \
    X(LessEqual, 1, FLOATS, a <= b, INTS, a <= b)                                                  \
    X(Greater, 1, FLOATS, a > b, INTS, a > b)                                                      \
    X(GreaterEqual, 1, FLOATS, a >= b, INTS, a >= b)
#define EQUAL_TYPES(L, ...) INTS(L, __VA_ARGS__) TRUTH(L, __VA_ARGS__)

/* ---- Steps of optimizers: three arguments ------------------------------------------------------ */
#define APPLY_OPS(X)                                                                               \
    X(Descend, a - (T)w[0] * b)                       /* variable, gradient */                     \
    X(Decay, a * (T)w[0] + b)                         /* accumulator, gradient */                  \
    X(DescendAhead, a - (T)w[0] * (b + (T)w[1] * c))  /* variable, gradient, accumulator */        \
    X(Approach, a + (b - a) * (T)w[0])                /* m, gradient */                            \
    X(ApproachSquare, a + (b * b - a) * (T)w[0])      /* v, gradient */                            \
    X(Blend, a * (T)w[0] + b * (T)w[1])               /* m, gradient */                            \
    X(Normalised, a - (T)w[0] * b / (m_sqrt(c) + (T)w[1])) /* variable, m, v */

/* ---- Types ------------------------------------------------------------------------------------ */

/*
 * Casts `a` from type F to type T: integers keep their low bits; floats lose their fraction and are
 * clamped to the range of the type; NaN becomes 0, as on GPUs. X(type, T, expression for floats,
 * expression for integers and bools)
 */
#define CAST_TO(X)                                                                                 \
    X(F32, float, a, a)                                                                            \
    X(F64, double, a, a)                                                                           \
    X(I8, int8_t, CAST_WITHIN(-128, 128, -128, 127), a)                                            \
    X(I16, int16_t, CAST_WITHIN(-32768, 32768, -32768, 32767), a)                                  \
    X(I32, int32_t, CAST_WITHIN(-0x1p31f, 0x1p31f, INT32_MIN, INT32_MAX), a)                       \
    X(I64, int64_t, CAST_WITHIN(-0x1p63f, 0x1p63f, INT64_MIN, INT64_MAX), a)                       \
    X(U8, uint8_t, CAST_WITHIN(0, 256, 0, 255), a)                                                 \
    X(U16, uint16_t, CAST_WITHIN(0, 65536, 0, 65535), a)                                           \
    X(U32, uint32_t, CAST_WITHIN(0, 0x1p32f, 0, UINT32_MAX), a)                                    \
    X(U64, uint64_t, CAST_WITHIN(0, 0x1p64f, 0, UINT64_MAX), a)                                    \
    X(BOOL, uint8_t, a != 0, a != 0)
#define CAST_WITHIN(least, beyond, low, high) a != a ? (T)0 : a <= (F)(least) ? (T)(low) : a >= (F)(beyond) ? (T)(high) : (T)a
#define CAST_FROM_FLOATS(L, ...) FLOATS(L, __VA_ARGS__)
#define CAST_FROM_OTHERS(L, ...) INTS(L, __VA_ARGS__) TRUTH(L, __VA_ARGS__)
/* clang-format on */
