/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/kernels/loops.h"

#define LEVEL_ROW(level, ...)                                                                      \
    {                                                                                              \
        .unary = unary_loops_##level, .apply = apply_loops_##level, .inner = inner_loops_##level,  \
        .test = test_loops_##level, .binary = binary_loops_##level,                                \
        .compare = compare_loops_##level, .cast = cast_loops_##level,                              \
        .cast_odd = cast_odd_##level, .select = select_loops_##level,                              \
        .reduce = reduce_loops_##level,                                                            \
        .gemm = { [DTYPE_F32] = gemm_f32_##level,                                                  \
                  [DTYPE_F64] = gemm_f64_##level,                                                  \
                  [DTYPE_I32] = gemm_i32_##level,                                                  \
                  [DTYPE_I64] = gemm_i64_##level },                                                \
        .widen = widen_##level, .narrow = narrow_##level, __VA_ARGS__                              \
    }

static const struct loops baseline = LEVEL_ROW(baseline);

const struct loops *loops_baseline(void) {
    return &baseline;
}

const struct loops *loops_get(void) {
#ifdef LOOPS_HAVE_V4
    static const struct loops v4 = LEVEL_ROW(v3, .tiles = loops_tile_v4);

    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return &v4;
#endif
#ifdef LOOPS_HAVE_V3
    static const struct loops v3 = LEVEL_ROW(v3);

    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("bmi") &&
        __builtin_cpu_supports("popcnt"))
        return &v3;
#endif
    return &baseline;
}
