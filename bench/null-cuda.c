/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libcuda.so.1 that can do nothing, for the GPU rows of ./run bench graph.
 *
 * It has every call that Allot makes and hands each on to the simulator's, until it is told to be
 * idle: then what a warm step calls (launches, copies, events, waits) answers CUDA_SUCCESS at once.
 * What a step costs then is what liballot itself costs, with an indirect call and a branch for each
 * call of the driver: no clock is read around calls, which would cost as much as what is measured.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/null-cuda.h"
#include "driver/cuda.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT extern const char gpusimMarker[];
EXPORT const char gpusimMarker[] = "gpusim: simulated GPUs, not a driver";

static struct cuda_calls real;
static enum null_cuda mode;
static _Atomic unsigned long long n_idle, n_other;

/* What a step that has run before may call. */
static const bool is_of_a_step[CUDA_CALL_COUNT] = {
    [CUDA_CALL_launch_kernel] = true,     [CUDA_CALL_copy_htod_async] = true,
    [CUDA_CALL_copy_dtoh_async] = true,   [CUDA_CALL_copy_dtod_async] = true,
    [CUDA_CALL_copy_peer_async] = true,   [CUDA_CALL_event_record] = true,
    [CUDA_CALL_event_query] = true,       [CUDA_CALL_event_synchronize] = true,
    [CUDA_CALL_stream_wait_event] = true, [CUDA_CALL_stream_synchronize] = true,
    [CUDA_CALL_ctx_set_current] = true,
};

__attribute__((constructor)) static void load_real(void) {
    static const char *const names[] = {
#define X(needed, since, where, field, symbol, ...) #symbol,
#define X0(needed, since, where, field, symbol)     #symbol,
        CUDA_CALLS(X, X0)
#undef X
#undef X0
    };
    void *library = dlopen(NULL_CUDA_OVER, RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        fprintf(stderr, "null-cuda: %s\n", dlerror());
        exit(1);
    }
    for (int i = 0; i < CUDA_CALL_COUNT; i++)
        ((void **)&real)[i] = dlsym(library, names[i]);
}

EXPORT void null_cuda_set(enum null_cuda to, struct null_cuda_counts *ret_counts) {
    *ret_counts = (struct null_cuda_counts){ n_idle, n_other };
    mode = to;
    n_idle = n_other = 0;
}

/* Whether a call is to be answered here. */
static inline bool is_idle(enum cuda_call call) {
    if (__builtin_expect(mode == NULL_CUDA_COUNTS, 0))
        atomic_fetch_add(is_of_a_step[call] ? &n_idle : &n_other, 1);
    return mode != NULL_CUDA_WORKS && is_of_a_step[call];
}

#define X(needed, since, where, field, symbol, parameters, arguments)                              \
    EXPORT CUresult null_##field parameters __asm__(#symbol);                                      \
    CUresult null_##field parameters {                                                             \
        return is_idle(CUDA_CALL_##field) ? CUDA_SUCCESS : real.field arguments;                   \
    }
#define X0(needed, since, where, field, symbol)                                                    \
    EXPORT CUresult null_##field(void) __asm__(#symbol);                                           \
    CUresult null_##field(void) {                                                                  \
        return is_idle(CUDA_CALL_##field) ? CUDA_SUCCESS : real.field();                           \
    }
CUDA_CALLS(X, X0)
