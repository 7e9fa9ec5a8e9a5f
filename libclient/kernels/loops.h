/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Loops: the inner loops of the CPU kernels, over elements that lie in a row.
 *
 * The files loops_*.c are compiled once per level of the vector unit, and the best level that the
 * CPU has is chosen when the first kernel is registered. (Not by the compiler's own clones: their
 * resolvers run before a sanitizer is ready.) No level fuses or reorders arithmetic, so all give
 * the same bits.
 */
#include <stddef.h>
#include <stdint.h>

#include "libclient/core/dtype.h"
#include "libclient/kernels/scalar.h"

/* d[i] of a[i], b[i], c[i] for i < n. `d` may be any of the others, and overlaps none otherwise.
 * `with`: the numbers that the op's attributes give, as the row wants them. */
typedef void (*loop_fn)(void *d, const void *a, const void *b, const void *c, size_t n,
                        const void *with);

enum loop_form { LOOP_VV, LOOP_SV, LOOP_VS, N_LOOP_FORMS }; /* S: a single element, for all i */

#define X(op, ...) UNARY_##op,
enum unary_op { UNARY_OPS(X) N_UNARY_OPS };
#undef X
#define X(op, ...) TEST_##op,
enum test_op { TEST_OPS(X) N_TEST_OPS };
#undef X
#define X(op, ...) BINARY_##op,
enum binary_op { BINARY_OPS(X) N_BINARY_OPS };
#undef X
#define X(op, ...) COMPARE_##op,
enum compare_op { COMPARE_OPS(X) N_COMPARE_OPS };
#undef X

/* A NULL is a type that the op does not have. Columns of 16-bit floats are those of f32: see
 * loop_half(). */
struct loops {
    const loop_fn (*unary)[N_DTYPES];
    const loop_fn (*test)[N_DTYPES];
    const loop_fn (*binary)[N_DTYPES][N_LOOP_FORMS];
    const loop_fn (*compare)[N_DTYPES][N_LOOP_FORMS];
    /* 16-bit floats to floats and back */
    void (*widen)(float *to, const uint16_t *from, size_t n, enum dtype from_dtype);
    void (*narrow)(uint16_t *to, const float *from, size_t n, enum dtype to_dtype);
};
const struct loops *loops_get(void);

/* ---- For loops_*.c ----------------------------------------------------------------------------
 */

#ifndef LOOPS_LEVEL
#define LOOPS_LEVEL baseline
#endif
#define LOOPS_JOIN_(a, b) a##_##b
#define LOOPS_JOIN(a, b)  LOOPS_JOIN_(a, b)
/* The name of an external symbol at this level. */
#define LEVEL(name) LOOPS_JOIN(name, LOOPS_LEVEL)

#ifdef __clang__
#define LOOP_EACH(n) _Pragma("clang loop vectorize(assume_safety)") for (size_t i = 0; i < (n); i++)
#else
#define LOOP_EACH(n) _Pragma("GCC ivdep") for (size_t i = 0; i < (n); i++)
#endif

#define LOOP(name)                                                                                 \
    static void name(void *d_, const void *a_, const void *b_, const void *c_, size_t n,           \
                     const void *with)

#define LOOPS_OF(level)                                                                            \
    extern const loop_fn unary_loops_##level[N_UNARY_OPS][N_DTYPES],                               \
        test_loops_##level[N_TEST_OPS][N_DTYPES],                                                  \
        binary_loops_##level[N_BINARY_OPS][N_DTYPES][N_LOOP_FORMS],                                \
        compare_loops_##level[N_COMPARE_OPS][N_DTYPES][N_LOOP_FORMS];                              \
    void widen_##level(float *to, const uint16_t *from, size_t n, enum dtype from_dtype);          \
    void narrow_##level(uint16_t *to, const float *from, size_t n, enum dtype to_dtype);
LOOPS_OF(baseline)
LOOPS_OF(v3)
