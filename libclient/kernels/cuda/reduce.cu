/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions, gradients of Gather, places of the largest, softmax: for one type. A block works on
 * one result where it takes in a row; where results lie beside each other a thread does, so that
 * neighbours read neighbours. The order of additions follows from the shape alone.
 */
#include "libclient/kernels/cuda/types.cuh"

static __device__ __forceinline__ int64_t offset(int rank, const int64_t (&n)[8],
                                                 const int64_t (&step)[8], int64_t i) {
    int64_t at = 0;

#pragma unroll
    for (int r = 7; r >= 0; r--) {
        if (r >= rank)
            continue;
        at += i % n[r] * step[r];
        i /= n[r];
    }
    return at;
}

#if TYPE_IS_FLOAT
#define INFINITE       __longlong_as_double(0x7ff0000000000000ll)
#define FIRST_MAX      (-INFINITE)
#define FIRST_MIN      INFINITE
#define TAKE_MAX(s, a) ((a) > (s) || (a) != (a) ? (a) : (s))
#define TAKE_MIN(s, a) ((a) < (s) || (a) != (a) ? (a) : (s))
#else
#define BITS      (8 * (int)sizeof(elem))
#define FIRST_MAX (TYPE_IS_SIGNED ? (total) ~(uint64_t)0 << (BITS - 1) : (total)0)
#define FIRST_MIN                                                                                  \
    (TYPE_IS(BOOL) ? 1 : TYPE_IS_SIGNED ? ~FIRST_MAX : (total) ~(uint64_t)0 >> (64 - BITS))
#define TAKE_MAX(s, a) ((a) > (s) ? (a) : (s))
#define TAKE_MIN(s, a) ((a) < (s) ? (a) : (s))
#endif
#define TAKE_SUM(s, a)  ((s) + (a))
#define TAKE_PROD(s, a) ((s) * (a))

/* The totals of a block's threads, joined pairwise; the result is in `lanes[0]`. */
#define JOIN_LANES(take)                                                                           \
    __syncthreads();                                                                               \
    for (int half = GPU_THREADS / 2; half; half /= 2) {                                            \
        if (threadIdx.x < half)                                                                    \
            lanes[threadIdx.x] = take(lanes[threadIdx.x], lanes[threadIdx.x + half]);              \
        __syncthreads();                                                                           \
    }

static __device__ __forceinline__ elem finish(total t, double divisor) {
#if TYPE_IS_FLOAT
    return store((work)(divisor == 0 ? t : t / divisor));
#else
    return store(divisor == 0 ? t : t / (total)divisor);
#endif
}

#define REDUCE(name, first, take)                                                                  \
    KERNEL(name##_rows)(const gpu_reduce r) {                                                      \
        __shared__ total lanes[GPU_THREADS];                                                       \
                                                                                                   \
        for (int64_t out = blockIdx.x; out < r.n_out; out += gridDim.x) {                          \
            const elem *x = (const elem *)r.x + offset(r.stays_rank, r.stays, r.stays_step, out);  \
            total s = first;                                                                       \
                                                                                                   \
            for (int64_t i = threadIdx.x; i < r.count; i += GPU_THREADS) {                         \
                total a = load(x[offset(r.goes_rank, r.goes, r.goes_step, i)]);                    \
                s = take(s, a);                                                                    \
            }                                                                                      \
            lanes[threadIdx.x] = s;                                                                \
            JOIN_LANES(take)                                                                       \
            if (threadIdx.x == 0)                                                                  \
                ((elem *)r.d)[out] = finish(lanes[0], r.divisor);                                  \
            __syncthreads();                                                                       \
        }                                                                                          \
    }                                                                                              \
    KERNEL(name##_columns)(const gpu_reduce r) {                                                   \
        GRID_EACH(out, (uint64_t)r.n_out) {                                                        \
            const elem *x =                                                                        \
                (const elem *)r.x + offset(r.stays_rank, r.stays, r.stays_step, (int64_t)out);     \
            total s = first;                                                                       \
                                                                                                   \
            for (int64_t i = 0; i < r.count; i++) {                                                \
                total a = load(x[offset(r.goes_rank, r.goes, r.goes_step, i)]);                    \
                s = take(s, a);                                                                    \
            }                                                                                      \
            ((elem *)r.d)[out] = finish(s, r.divisor);                                             \
        }                                                                                          \
    }

REDUCE(Max, FIRST_MAX, TAKE_MAX)
REDUCE(Min, FIRST_MIN, TAKE_MIN)
#if !TYPE_IS(BOOL)
REDUCE(Sum, 0, TAKE_SUM)
REDUCE(Prod, 1, TAKE_PROD)

/* Rows that go to one place are added in order: the same bits each time. */
KERNEL(gather_grad)(const gpu_gather g) {
    GRID_EACH(i, (uint64_t)(g.outer * g.n * g.inner)) {
        int64_t inner = (int64_t)i % g.inner, at = (int64_t)i / g.inner % g.n,
                outer = (int64_t)i / g.inner / g.n;
        work sum = 0;

        for (int64_t k = 0; k < g.count; k++) {
            int64_t index =
                g.wide ? ((const int64_t *)g.indices)[k] : ((const int32_t *)g.indices)[k];

            if (index == at)
                sum += load(((const elem *)g.from)[(outer * g.count + k) * g.inner + inner]);
        }
        ((elem *)g.to)[i] = store(sum);
    }
}

KERNEL(place)(const gpu_place p) {
    GRID_EACH(out, (uint64_t)(p.outer * p.inner)) {
        const elem *x =
            (const elem *)p.x + (int64_t)out / p.inner * p.n * p.inner + (int64_t)out % p.inner;
        work best = load(x[0]);
        int64_t place = 0;

        for (int64_t i = 1; i < p.n && best == best; i++) {
            work a = load(x[i * p.inner]);

            if ((p.smallest ? a < best : a > best) || a != a) {
                best = a;
                place = i;
            }
        }
        p.to[out] = place;
    }
}
#endif

#if TYPE_IS_FLOAT
/* A row is one block's: the largest, the sum of the exponentials, then each element. */
KERNEL(softmax)(const gpu_softmax s) {
    __shared__ double lanes[GPU_THREADS];

    for (int64_t row = blockIdx.x; row < s.n_rows; row += gridDim.x) {
        const elem *x = (const elem *)s.x + row * s.n, *labels = (const elem *)s.labels + row * s.n;
        elem *d = (elem *)s.d + row * s.n;
        const int64_t label = s.op != 3       ? -1
                              : s.wide_labels ? ((const int64_t *)s.labels)[row]
                                              : ((const int32_t *)s.labels)[row];
        double t = FIRST_MAX, max, sum, log_sum;

        for (int64_t i = threadIdx.x; i < s.n; i += GPU_THREADS)
            t = TAKE_MAX(t, (double)load(x[i]));
        lanes[threadIdx.x] = t;
        JOIN_LANES(TAKE_MAX)
        max = lanes[0];
        __syncthreads();
        t = 0;
        for (int64_t i = threadIdx.x; i < s.n; i += GPU_THREADS)
            t += m_exp((work)(load(x[i]) - (work)max));
        lanes[threadIdx.x] = t;
        JOIN_LANES(TAKE_SUM)
        sum = lanes[0];
        log_sum = log(sum);
        __syncthreads();
        t = 0;
        for (int64_t i = threadIdx.x; i < s.n; i += GPU_THREADS) {
            const work shifted = load(x[i]) - (work)max;
            const work y = m_exp(shifted) / (work)sum;
            work of = 0;

            if (s.op == 2)
                of = load(labels[i]);
            else if (i == label)
                of = 1;
            if (of != 0)
                t += of * (log_sum - ((double)load(x[i]) - max));
            d[i] = store(s.op == 1 ? shifted - (work)log_sum : y - of);
        }
        lanes[threadIdx.x] = t;
        JOIN_LANES(TAKE_SUM)
        /* A label that is no class makes the loss NaN, because a kernel cannot report an error. */
        if (threadIdx.x == 0 && s.op >= 2)
            ((elem *)s.loss)[row] = s.op == 3 && (label < 0 || label >= s.n)
                                        ? store((work)__longlong_as_double(0x7ff8000000000000ll))
                                        : store((work)lanes[0]);
        __syncthreads();
    }
}
#endif
