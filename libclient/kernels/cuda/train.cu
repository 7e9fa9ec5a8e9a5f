/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers, random numbers, and products: for one type. */
#include "libclient/kernels/cuda/types.cuh"
#include "libclient/kernels/philox.h"

/* ---- Products ----------------------------------------------------------------------------------
 */

enum { TILE = 16 };

/* A block makes a square of the result, a thread an element of it. */
KERNEL(gemm)(const gpu_gemm g) {
    __shared__ work left[TILE][TILE + 1], right[TILE][TILE + 1];
    const int x = threadIdx.x % TILE, y = threadIdx.x / TILE;
    const int64_t row = (int64_t)blockIdx.y * TILE + y, column = (int64_t)blockIdx.x * TILE + x;
    work sum = 0;

    for (int64_t k = 0; k < g.k; k += TILE) {
        left[y][x] = row < g.m && k + x < g.k
                         ? load(((const elem *)g.a)[row * g.a_row + (k + x) * g.a_column])
                         : (work)0;
        right[y][x] = column < g.n && k + y < g.k
                          ? load(((const elem *)g.b)[(k + y) * g.b_row + column * g.b_column])
                          : (work)0;
        __syncthreads();
        for (int i = 0; i < TILE; i++)
            sum += left[y][i] * right[i][x];
        __syncthreads();
    }
    if (row < g.m && column < g.n)
        ((elem *)g.c)[row * g.n + column] = store(sum);
}

#if TYPE_IS_FLOAT
/* ---- Optimizers --------------------------------------------------------------------------------
 */

/* The optimizer's memory and its numbers: of the variable's type, or floats if that has 16 bits. */
static __device__ __forceinline__ work kept(const gpu_apply &p, const void *x, uint64_t i) {
    return p.wide ? ((const work *)x)[i] : load(((const elem *)x)[i]);
}

static __device__ __forceinline__ void keep(const gpu_apply &p, void *x, uint64_t i, work value) {
    if (p.wide)
        ((work *)x)[i] = value;
    else
        ((elem *)x)[i] = store(value);
}

#define NUMBER(k) kept(p, p.number[k], 0)
/* The steps of scalar.h, as functions. */
#define X(name, expression)                                                                        \
    static __device__ __forceinline__ work step_##name(work a, work b, work c, double w0,          \
                                                       double w1) {                                \
        typedef work T;                                                                            \
        const double w[2] = { w0, w1 };                                                            \
                                                                                                   \
        (void)w, (void)c;                                                                          \
        return expression;                                                                         \
    }
APPLY_OPS(X)
#undef X
#define STEP(name, to, x, y, z, w0, w1) to = step_##name(x, y, z, (double)(w0), (double)(w1));

KERNEL(ApplyGradientDescent)(const gpu_apply p) {
    GRID_EACH(i, p.n) {
        work v = load(((elem *)p.x[0])[i]), g = load(((const elem *)p.gradient)[i]);

        STEP(Descend, v, v, g, g, NUMBER(0), 0)
        ((elem *)p.x[0])[i] = store(v);
    }
}

KERNEL(ApplyMomentum)(const gpu_apply p) {
    GRID_EACH(i, p.n) {
        work v = load(((elem *)p.x[0])[i]), m = kept(p, p.x[1], i),
             g = load(((const elem *)p.gradient)[i]);

        STEP(Decay, m, m, g, g, NUMBER(1), 0)
        if (p.nesterov)
            STEP(DescendAhead, v, v, g, m, NUMBER(0), NUMBER(1))
        else
            STEP(Descend, v, v, m, m, NUMBER(0), 0)
        ((elem *)p.x[0])[i] = store(v);
        keep(p, p.x[1], i, m);
    }
}

/* The numbers: powers of the betas, rate, betas, epsilon. */
KERNEL(ApplyAdam)(const gpu_apply p) {
    const double rate = (double)NUMBER(2) * sqrt(1 - (double)NUMBER(1)) / (1 - (double)NUMBER(0)),
                 one1 = 1 - (double)NUMBER(3), one2 = 1 - (double)NUMBER(4);

    GRID_EACH(i, p.n) {
        work v = load(((elem *)p.x[0])[i]), m = kept(p, p.x[1], i), s = kept(p, p.x[2], i),
             g = load(((const elem *)p.gradient)[i]), used;

        STEP(Approach, m, m, g, g, one1, 0)
        STEP(ApproachSquare, s, s, g, g, one2, 0)
        used = m;
        if (p.nesterov)
            STEP(Blend, used, m, g, g, NUMBER(3), one1)
        STEP(Normalised, v, v, used, s, rate, NUMBER(5))
        ((elem *)p.x[0])[i] = store(v);
        keep(p, p.x[1], i, m);
        keep(p, p.x[2], i, s);
    }
}

/* ---- Random ------------------------------------------------------------------------------------
 */

#if TYPE_IS(F64)
#define UNIFORM(r, i)   philox_within_double(philox_uniform_double_at(r.seed, r.step, i), r.a, r.b)
#define NORMAL(r, i)    (philox_normal_double_at(r.seed, r.step, i, 0) * r.b + r.a)
#define TRUNCATED(r, i) (philox_truncated_double_at(r.seed, r.step, i) * r.b + r.a)
#else
#define UNIFORM(r, i)                                                                              \
    philox_within(philox_uniform_at(r.seed, r.step, i, r.bits), (float)r.a, (float)r.b)
#define NORMAL(r, i)    (philox_normal_at(r.seed, r.step, i, 0) * (float)r.b + (float)r.a)
#define TRUNCATED(r, i) (philox_truncated_at(r.seed, r.step, i) * (float)r.b + (float)r.a)
#endif
#define RANDOM(name, draw)                                                                         \
    KERNEL(name)(const gpu_random r) {                                                             \
        GRID_EACH(i, r.n)                                                                          \
        ((elem *)r.d)[i] = store(draw(r, i));                                                      \
    }
RANDOM(RandomUniform, UNIFORM)
RANDOM(RandomNormal, NORMAL)
RANDOM(TruncatedNormal, TRUNCATED)
#endif
