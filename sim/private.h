/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Private: the functions that the simulated libcuda.so.1 offers to the other simulated libraries,
 * through one exported symbol. A real driver has a private table for its cuBLAS too; this is a
 * different one.
 */
#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/time/cost.h"
#include "sim/time/executor.h"

#define PRIVATE_SYMBOL "gpusimPrivate"

struct private_order {
    work_fn run; /* runs on the executor's threads; returns the cost */
    void *argument;
    void (*release)(void *argument); /* may be NULL; not called when submitting fails */
};

struct private_table {
    uint32_t size; /* of this struct; another size means another build */
    bool timing_only;
    /* The current context and its device. */
    CUresult (*current)(CUcontext *ret_context, struct cost_device *ret_device);
    /* Compute work for `stream`; with `wait` also wait for it, as a blocking call does. */
    CUresult (*submit)(CUstream stream, const struct private_order *order, bool wait);
    /* Where device memory is, if `context` may access all of it that way; NULL: it may not. */
    void *(*memory)(CUcontext context, CUdeviceptr address, uint64_t bytes, bool write);
    /* Something went wrong in work of `context`: it answers `error` from now on. */
    void (*fail)(CUcontext context, CUresult error);
};

/* NULL before cuInit(). */
typedef const struct private_table *(*private_fn)(void);
