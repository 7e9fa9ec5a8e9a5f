/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Scalar: what each elementwise op does to one element, as tables that compile as C and as CUDA C.
 * The loops of the CPU and the kernels of the GPU are both expanded from them.
 *
 * A row: X(op, weight, types, expression, types, expression). `weight` is about how many cheap
 * operations an element costs. The expressions see `a` and `b`, elements of type T, and `with`, the
 * numbers from the node's attributes; W is a type in which sums and products wrap: that of T itself
 * for floats, unsigned and not narrower than int for integers. 16-bit floats are computed as
 * floats. Which types an op has is what stands in its row.
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

/* ---- Functions by type ------------------------------------------------------------------------
 */

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
MATH_PAIR(m_tan, tanf, tan)
MATH_PAIR(m_tanh, math_tanh, tanh)
MATH_PAIR(m_sigmoid, math_sigmoid, math_sigmoid_double)
MATH_PAIR(m_softplus, math_softplus, math_softplus_double)
MATH_PAIR(m_erf, erff, erf)
MATH_PAIR(m_floor, floorf, floor)
MATH_PAIR(m_ceil, ceilf, ceil)
MATH_PAIR(m_rint, rintf, rint)
MATH_PAIR2(m_pow, powf, pow)
MATH_PAIR2(m_fmod, fmodf, fmod)

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
#define m_tan(x)              MATH_BY_TYPE(m_tan, x)(x)
#define m_tanh(x)             MATH_BY_TYPE(m_tanh, x)(x)
#define m_sigmoid(x)          MATH_BY_TYPE(m_sigmoid, x)(x)
#define m_softplus(x)         MATH_BY_TYPE(m_softplus, x)(x)
#define m_erf(x)              MATH_BY_TYPE(m_erf, x)(x)
#define m_floor(x)            MATH_BY_TYPE(m_floor, x)(x)
#define m_ceil(x)             MATH_BY_TYPE(m_ceil, x)(x)
#define m_rint(x)             MATH_BY_TYPE(m_rint, x)(x)
#define m_pow(x, y)           MATH_BY_TYPE(m_pow, x)(x, y)
#define m_fmod(x, y)          MATH_BY_TYPE(m_fmod, x)(x, y)
#endif

/* ---- One argument -----------------------------------------------------------------------------
 */
/* clang-format off */
#define UNARY_OPS(X)                                                                               \
    X(Neg, 1, FLOATS, -a, INTS, (W)0 - (W)a)                                                       \
    X(Abs, 1, FLOATS, m_abs(a), SIGNED, a > 0 ? (W)a : (W)0 - (W)a)                                \
    X(Sign, 1, FLOATS, a > 0 ? (T)1 : a < 0 ? (T)-1 : a, SIGNED, (a > 0) - (a < 0))                \
    X(Square, 1, FLOATS, a * a, INTS, (W)a * (W)a)                                                 \
    X(Sqrt, 4, FLOATS, m_sqrt(a), NO_TYPES, 0)                                                     \
    X(Rsqrt, 6, FLOATS, 1 / m_sqrt(a), NO_TYPES, 0)                                                \
    X(Reciprocal, 4, FLOATS, 1 / a, NO_TYPES, 0)                                                   \
    X(Exp, 8, FLOATS, m_exp(a), NO_TYPES, 0)                                                       \
    X(Expm1, 8, FLOATS, m_expm1(a), NO_TYPES, 0)                                                   \
    X(Log, 8, FLOATS, m_log(a), NO_TYPES, 0)                                                       \
    X(Log1p, 10, FLOATS, m_log1p(a), NO_TYPES, 0)                                                  \
    X(Sin, 40, FLOATS, m_sin(a), NO_TYPES, 0)                                                      \
    X(Cos, 40, FLOATS, m_cos(a), NO_TYPES, 0)                                                      \
    X(Tanh, 12, FLOATS, m_tanh(a), NO_TYPES, 0)                                                    \
    X(Erf, 40, FLOATS, m_erf(a), NO_TYPES, 0)                                                      \
    X(Sigmoid, 10, FLOATS, m_sigmoid(a), NO_TYPES, 0)                                              \
    X(Softplus, 20, FLOATS, m_softplus(a), NO_TYPES, 0)                                            \
    X(Floor, 1, FLOATS, m_floor(a), NO_TYPES, 0)                                                   \
    X(Ceil, 1, FLOATS, m_ceil(a), NO_TYPES, 0)                                                     \
    X(Round, 1, FLOATS, m_rint(a), INTS, a)                                                        \
    X(Relu, 1, FLOATS, a > 0 || a != a ? a : 0, INTS, a > 0 ? a : 0)                               \
    X(LogicalNot, 1, TRUTH, a == 0, NO_TYPES, 0)

/* One argument, and the result says yes or no. */
#define TEST_OPS(X)                                                                                \
    X(IsNan, 1, FLOATS, a != a, NO_TYPES, 0)                                                       \
    X(IsInf, 1, FLOATS, a - a != 0 && a == a, NO_TYPES, 0)                                         \
    X(IsFinite, 1, FLOATS, a - a == 0, NO_TYPES, 0)

/* ---- Two arguments ---------------------------------------------------------------------------- */
#define BINARY_OPS(X)                                                                              \
    X(Add, 1, FLOATS, a + b, INTS, (W)a + (W)b)                                                    \
    X(Sub, 1, FLOATS, a - b, INTS, (W)a - (W)b)                                                    \
    X(Mul, 1, FLOATS, a * b, INTS, (W)a * (W)b)                                                    \
    X(Div, 4, FLOATS, a / b, NO_TYPES, 0)                                                          \
    X(Maximum, 1, FLOATS, a >= b || a != a ? a : b, INTS, a >= b ? a : b)                          \
    X(Minimum, 1, FLOATS, a <= b || a != a ? a : b, INTS, a <= b ? a : b)                          \
    X(Pow, 60, FLOATS, m_pow(a, b), NO_TYPES, 0)                                                   \
    X(SquaredDifference, 1, FLOATS, (a - b) * (a - b), INTS, ((W)a - (W)b) * ((W)a - (W)b))        \
    X(LogicalAnd, 1, TRUTH, a != 0 && b != 0, NO_TYPES, 0)                                         \
    X(LogicalOr, 1, TRUTH, a != 0 || b != 0, NO_TYPES, 0)

/* … and the result says yes or no. */
#define COMPARE_OPS(X)                                                                             \
    X(Equal, 1, FLOATS, a == b, EQUAL_TYPES, a == b)                                               \
    X(NotEqual, 1, FLOATS, a != b, EQUAL_TYPES, a != b)                                            \
    X(Less, 1, FLOATS, a < b, INTS, a < b)                                                         \
    X(LessEqual, 1, FLOATS, a <= b, INTS, a <= b)                                                  \
    X(Greater, 1, FLOATS, a > b, INTS, a > b)                                                      \
    X(GreaterEqual, 1, FLOATS, a >= b, INTS, a >= b)
#define EQUAL_TYPES(L, ...) INTS(L, __VA_ARGS__) TRUTH(L, __VA_ARGS__)
/* clang-format on */
