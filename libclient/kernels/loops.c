/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/kernels/loops.h"

#define LEVEL_ROW(level)                                                                           \
    {                                                                                              \
        .unary = unary_loops_##level, .test = test_loops_##level, .binary = binary_loops_##level,  \
        .compare = compare_loops_##level, .widen = widen_##level, .narrow = narrow_##level,        \
    }

const struct loops *loops_get(void) {
    static const struct loops baseline = LEVEL_ROW(baseline);
#ifdef LOOPS_HAVE_V3
    static const struct loops v3 = LEVEL_ROW(v3);

    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("bmi") &&
        __builtin_cpu_supports("popcnt"))
        return &v3;
#endif
    return &baseline;
}
