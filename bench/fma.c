/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/fma.h"

#if defined(__x86_64__)
/* As many sums as keep the multipliers busy until the first is there again. */
#define SUMS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
enum { N_SUMS = 12 };

#define DECLARE(n) , sum##n = x
#define ADD(n)     __asm__ volatile("vfmadd231ps %1, %1, %0" : "+v"(sum##n) : "v"(x));
#define RUN(name, isa, vector_bytes)                                                               \
    static __attribute__((target(isa))) void name(uint64_t n_fmas) {                               \
        typedef float vector __attribute__((vector_size(vector_bytes)));                           \
        const uint64_t each = N_SUMS * (vector_bytes) / sizeof(float);                             \
        vector x = { 0 } SUMS(DECLARE);                                                            \
                                                                                                   \
        for (uint64_t n = 0; n < n_fmas; n += each) {                                              \
            SUMS(ADD)                                                                              \
        }                                                                                          \
    }
RUN(run_wide, "avx512f", 64)
RUN(run_narrow, "avx,fma", 32)

bool fma_run(uint64_t n_fmas) {
    if (__builtin_cpu_supports("avx512f"))
        run_wide(n_fmas);
    else if (__builtin_cpu_supports("fma"))
        run_narrow(n_fmas);
    else
        return false;
    return true;
}
#else
bool fma_run(uint64_t n_fmas) {
    return false;
}
#endif
