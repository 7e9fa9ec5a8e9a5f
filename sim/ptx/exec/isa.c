/* SPDX-License-Identifier: Apache-2.0 */
/* Which build of the executor this CPU runs, and its arithmetic functions by name. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sim/ptx/exec/exec.h"

extern const struct ptx_isa ptx_isa_baseline;
#ifdef PTX_HAVE_V3
extern const struct ptx_isa ptx_isa_v3;
#endif
#ifdef PTX_HAVE_V4
extern const struct ptx_isa ptx_isa_v4;
#endif

#define N_BUCKETS 2048
static const struct ptx_isa *chosen;
static const struct ptx_alu *buckets[N_BUCKETS]; /* open addressing by key */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool wanted(const struct ptx_isa *isa) {
    const char *only = secure_getenv("GPUSIM_ISA"); /* to compare the builds with one another */

    return !only || !strcmp(only, isa->name);
}

static void choose(void) {
    chosen = &ptx_isa_baseline;
#ifdef PTX_HAVE_V3
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2") && wanted(&ptx_isa_v3))
        chosen = &ptx_isa_v3;
#endif
#ifdef PTX_HAVE_V4
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        wanted(&ptx_isa_v4))
        chosen = &ptx_isa_v4;
#endif
    for (const struct ptx_alu *const *table = chosen->tables; *table; table++)
        for (const struct ptx_alu *alu = *table; alu->key; alu++) {
            size_t at = ptx_ir_hash(alu->key, strlen(alu->key)) % N_BUCKETS;

            while (buckets[at])
                at = (at + 1) % N_BUCKETS;
            buckets[at] = alu;
        }
}

const struct ptx_isa *ptx_isa_get(void) {
    pthread_once(&once, choose);
    return chosen;
}

const struct ptx_alu *ptx_isa_find(const struct ptx_isa *isa, const char *key) {
    size_t at = ptx_ir_hash(key, strlen(key)) % N_BUCKETS;

    for (; buckets[at]; at = (at + 1) % N_BUCKETS)
        if (!strcmp(buckets[at]->key, key))
            return buckets[at];
    return NULL;
}
