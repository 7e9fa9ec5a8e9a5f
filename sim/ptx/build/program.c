/* SPDX-License-Identifier: Apache-2.0 */
/* Programs: functions translated on first use; and which build of the executor runs them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "sim/ptx/build/build.h"

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

static bool wanted(const char *name) {
    const char *only = secure_getenv("GPUSIM_ISA"); /* to compare the builds with one another */

    return !only || !strcmp(only, name);
}

static void choose(void) {
    chosen = &ptx_isa_baseline;
#ifdef PTX_HAVE_V3
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("bmi2") && wanted("v3"))
        chosen = &ptx_isa_v3;
#endif
#ifdef PTX_HAVE_V4
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && wanted("v4"))
        chosen = &ptx_isa_v4;
#endif
    for (const struct ptx_alu *const *table = chosen->tables; *table; table++)
        for (const struct ptx_alu *alu = *table; alu->key; alu++) {
            size_t at = ptx_hash(alu->key, strlen(alu->key)) % N_BUCKETS;

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
    size_t at = ptx_hash(key, strlen(key)) % N_BUCKETS;

    for (; buckets[at]; at = (at + 1) % N_BUCKETS)
        if (!strcmp(buckets[at]->key, key))
            return buckets[at];
    return NULL;
}

const char *ptx_isa_name(void) {
    return ptx_isa_get()->name;
}

void ptx_program_free(struct ptx_program *program) {
    if (!program)
        return;
    free(program->code);
    free(program->consts);
    ptx_arena_done(&program->arena);
    free(program);
}

int ptx_program_get(struct ptx_function *function, const struct ptx_program **ret,
                    struct allot_error *err) {
    struct ptx_program *program = atomic_load_explicit(&function->program, memory_order_acquire);
    struct allot_error own = { 0 };
    int r = 0;

    if (program) {
        *ret = program;
        return 0;
    }
    if (!err)
        err = &own;
    err->code = 0;
    pthread_mutex_lock(&function->module->lock);
    program = atomic_load_explicit(&function->program, memory_order_acquire);
    if (!program && (!function->defined || !function->module->linked)) {
        r = error_set(err, -EBADMSG, "'%s' has no body", function->name);
    } else if (!program) {
        program = calloc(1, sizeof(*program));
        if (program) {
            program->function = function;
            r = ptx_program_build(function, program, err);
        } else {
            r = error_set(err, -ENOMEM, "out of memory");
        }
        if (r < 0) {
            ptx_program_free(program);
            if (!err->code)
                error_set(err, r, "cannot be translated");
            error_wrap(err, r, "'%s'", function->name);
        } else {
            atomic_store_explicit(&function->program, program, memory_order_release);
        }
    }
    pthread_mutex_unlock(&function->module->lock);
    if (!r)
        *ret = program;
    return r;
}

uint64_t ptx_clock_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}
