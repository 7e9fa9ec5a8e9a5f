/* SPDX-License-Identifier: Apache-2.0 */
/* The elementwise ops of scalar.h, for one type. */
#include "libclient/kernels/cuda/types.cuh"

/* Where element `i` of the output finds its inputs. */
static __device__ __forceinline__ void find(const gpu_each &e, uint64_t i, int64_t at[3]) {
    if (e.rank == 0) {
        for (int k = 0; k < 3; k++)
            at[k] = (int64_t)i * e.step[0][k];
        return;
    }
    at[0] = at[1] = at[2] = 0;
#pragma unroll /* so that the struct is never indexed by a variable, which would copy it */
    for (int r = GPU_RANK_MAX - 1; r >= 0; r--) {
        if (r >= e.rank)
            continue;
        int64_t index = (int64_t)(i % (uint64_t)e.dims[r]);

        i /= (uint64_t)e.dims[r];
        for (int k = 0; k < 3; k++)
            at[k] += index * e.step[r][k];
    }
}

#define ARGUMENT(k) load(((const elem *)e.in[k])[at[k]])

#define ONE(name, T_, W_, result, put, expression)                                                 \
    KERNEL(name)(const gpu_each e) {                                                               \
        typedef T_ T;                                                                              \
        typedef W_ W;                                                                              \
        const double *w = e.w;                                                                     \
                                                                                                   \
        (void)w, (void)sizeof(W);                                                                  \
        GRID_EACH(i, e.n) {                                                                        \
            int64_t at[3];                                                                         \
                                                                                                   \
            find(e, i, at);                                                                        \
            T a = ARGUMENT(0);                                                                     \
            ((result *)e.d)[i] = put(expression);                                                  \
        }                                                                                          \
    }
#define TWO(name, T_, W_, result, put, expression)                                                 \
    KERNEL(name)(const gpu_each e) {                                                               \
        typedef T_ T;                                                                              \
        typedef W_ W;                                                                              \
        const double *w = e.w;                                                                     \
                                                                                                   \
        (void)w, (void)sizeof(W), (void)sizeof(T);                                                 \
        GRID_EACH(i, e.n) {                                                                        \
            int64_t at[3];                                                                         \
                                                                                                   \
            find(e, i, at);                                                                        \
            T a = ARGUMENT(0), b = ARGUMENT(1);                                                    \
            ((result *)e.d)[i] = put(expression);                                                  \
        }                                                                                          \
    }
#define TRUTH_OF(x) ((uint8_t)((x) ? 1 : 0))

/* Of each set of types that a row names, expand only the type that this file is compiled for. */
#undef FLOATS
#undef SIGNED
#undef UNSIGNED
#undef TRUTH
#if TYPE_IS_FLOAT
#define FLOATS(L, ...) L(0, work, work, __VA_ARGS__)
#else
#define FLOATS(L, ...)
#endif
#if TYPE_IS(I64) || TYPE_IS(U64)
#define WRAPS uint64_t
#else
#define WRAPS uint32_t
#endif
#if TYPE_IS_SIGNED
#define SIGNED(L, ...) L(0, work, WRAPS, __VA_ARGS__)
#else
#define SIGNED(L, ...)
#endif
#if TYPE_IS_UNSIGNED
#define UNSIGNED(L, ...) L(0, work, WRAPS, __VA_ARGS__)
#else
#define UNSIGNED(L, ...)
#endif
#if TYPE_IS(BOOL)
#define TRUTH(L, ...) L(0, work, uint32_t, __VA_ARGS__)
#else
#define TRUTH(L, ...)
#endif

#define X_ONE(type, T, W, op, expression)     ONE(op, T, W, elem, store, expression)
#define X_TEST(type, T, W, op, expression)    ONE(op, T, W, uint8_t, TRUTH_OF, expression)
#define X_TWO(type, T, W, op, expression)     TWO(op, T, W, elem, store, expression)
#define X_COMPARE(type, T, W, op, expression) TWO(op, T, W, uint8_t, TRUTH_OF, expression)

#define X(op, weight, types, expression, more, other)                                              \
    types(X_ONE, op, expression) more(X_ONE, op, other)
UNARY_OPS(X)
#undef X
#define X(op, weight, types, expression, more, other)                                              \
    types(X_TEST, op, expression) more(X_TEST, op, other)
TEST_OPS(X)
#undef X
#define X(op, weight, types, expression, more, other)                                              \
    types(X_TWO, op, expression) more(X_TWO, op, other)
BINARY_OPS(X)
#undef X
#define X(op, weight, types, expression, more, other)                                              \
    types(X_COMPARE, op, expression) more(X_COMPARE, op, other)
COMPARE_OPS(X)
#undef X

/* ---- Casts from this type ----------------------------------------------------------------------
 */

#define CAST(to, T_, expression, other)                                                            \
    KERNEL(Cast_##to)(const gpu_each e) {                                                          \
        typedef T_ T;                                                                              \
        typedef work F;                                                                            \
                                                                                                   \
        (void)sizeof(F);                                                                           \
        GRID_EACH(i, e.n) {                                                                        \
            F a = load(((const elem *)e.in[0])[i]);                                                \
            ((T *)e.d)[i] = (T)(TYPE_IS_FLOAT ? (T)(expression) : (T)(other));                     \
        }                                                                                          \
    }
CAST_TO(CAST)

/* Doubles are rounded once: to odd in between, which the CPU does too. */
static __device__ __forceinline__ float to_float(work a) {
#if TYPE_IS(F64)
    float f = (float)a;
    uint32_t bits = __float_as_uint(f);
    uint32_t down = ((double)f > a) == (a > 0) && f != 0 ? bits - 1 : bits;

    return (double)f == a || a != a || f - f != 0 ? f : __uint_as_float(down | 1);
#else
    return (float)a;
#endif
}

#define CAST_HALF(to, put)                                                                         \
    KERNEL(Cast_##to)(const gpu_each e) {                                                          \
        GRID_EACH(i, e.n)                                                                          \
        ((uint16_t *)e.d)[i] = put(to_float(load(((const elem *)e.in[0])[i])));                    \
    }
CAST_HALF(F16, store_f16)
CAST_HALF(BF16, store_bf16)

/* ---- Sums of many ------------------------------------------------------------------------------
 */

#if !TYPE_IS(BOOL)
KERNEL(AddN)(const gpu_sum s) {
    GRID_EACH(i, s.n) {
        work sum = load(((const elem *)s.in[0])[i]);

        for (uint32_t k = 1; k < s.n_inputs; k++)
            sum += load(((const elem *)s.in[k])[i]);
        ((elem *)s.d)[i] = store(sum);
    }
}
#endif
