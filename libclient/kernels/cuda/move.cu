/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that put elements elsewhere, by the size of an element. */
#define TYPE BOOL
#include "libclient/kernels/cuda/types.cuh"

#define SIZES(X)                                                                                   \
    X(1, uint8_t)                                                                                  \
    X(2, uint16_t)                                                                                 \
    X(4, uint32_t)                                                                                 \
    X(8, uint64_t)

#define MOVE(bytes, T)                                                                             \
    KERNEL(move_##bytes)(const gpu_move m) {                                                       \
        GRID_EACH(i, m.n) {                                                                        \
            uint64_t rest = i;                                                                     \
            int64_t to = 0, from = 0;                                                              \
                                                                                                   \
            _Pragma("unroll") for (int r = 15; r >= 0; r--) {                                      \
                if (r >= m.rank)                                                                   \
                    continue;                                                                      \
                int64_t index = (int64_t)(rest % (uint64_t)m.dims[r]);                             \
                                                                                                   \
                rest /= (uint64_t)m.dims[r];                                                       \
                to += index * m.to_step[r];                                                        \
                from += index * m.from_step[r];                                                    \
            }                                                                                      \
            *(T *)(m.to + to) = m.from ? *(const T *)(m.from + from) : (T)m.number;                \
        }                                                                                          \
    }
SIZES(MOVE)

/* in[0] is the condition. */
#define SELECT(bytes, T)                                                                           \
    KERNEL(select_##bytes)(const gpu_each e) {                                                     \
        GRID_EACH(i, e.n) {                                                                        \
            uint64_t rest = i;                                                                     \
            int64_t at[3] = { 0, 0, 0 };                                                           \
                                                                                                   \
            if (e.rank == 0)                                                                       \
                for (int k = 0; k < 3; k++)                                                        \
                    at[k] = (int64_t)i * e.step[0][k];                                             \
            _Pragma("unroll") for (int r = GPU_RANK_MAX - 1; r >= 0; r--) {                        \
                if (r >= e.rank)                                                                   \
                    continue;                                                                      \
                int64_t index = (int64_t)(rest % (uint64_t)e.dims[r]);                             \
                                                                                                   \
                rest /= (uint64_t)e.dims[r];                                                       \
                for (int k = 0; k < 3; k++)                                                        \
                    at[k] += index * e.step[r][k];                                                 \
            }                                                                                      \
            ((T *)e.d)[i] = ((const uint8_t *)e.in[0])[at[0]] ? ((const T *)e.in[1])[at[1]]        \
                                                              : ((const T *)e.in[2])[at[2]];       \
        }                                                                                          \
    }
SIZES(SELECT)

static __device__ __forceinline__ int64_t index_at(const void *indices, int64_t i, int bytes) {
    return bytes == 8   ? ((const int64_t *)indices)[i]
           : bytes == 4 ? ((const int32_t *)indices)[i]
                        : ((const uint8_t *)indices)[i];
}

/* An index out of range gives 0, because a kernel cannot report an error. */
#define GATHER(bytes, T)                                                                           \
    KERNEL(gather_##bytes)(const gpu_gather g) {                                                   \
        GRID_EACH(i, (uint64_t)(g.outer * g.count * g.inner)) {                                    \
            int64_t inner = (int64_t)i % g.inner, which = (int64_t)i / g.inner % g.count,          \
                    outer = (int64_t)i / g.inner / g.count,                                        \
                    index = index_at(g.indices, which, g.wide ? 8 : 4);                            \
                                                                                                   \
            ((T *)g.to)[i] = index < 0 || index >= g.n                                             \
                                 ? (T)0                                                            \
                                 : ((const T *)g.from)[(outer * g.n + index) * g.inner + inner];   \
        }                                                                                          \
    }
SIZES(GATHER)

#define ONE_HOT(bytes, T)                                                                          \
    KERNEL(one_hot_##bytes)(const gpu_one_hot h) {                                                 \
        GRID_EACH(i, (uint64_t)(h.outer * h.depth * h.inner)) {                                    \
            int64_t inner = (int64_t)i % h.inner, at = (int64_t)i / h.inner % h.depth,             \
                    outer = (int64_t)i / h.inner / h.depth,                                        \
                    index = index_at(h.indices, outer * h.inner + inner, h.index_bytes);           \
                                                                                                   \
            ((T *)h.to)[i] = index == at ? *(const T *)h.on : *(const T *)h.off;                   \
        }                                                                                          \
    }
SIZES(ONE_HOT)
