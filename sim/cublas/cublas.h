/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The simulated cuBLAS: handles, and how a call becomes work on the handle's stream.
 *
 * A call checks its arguments as the real library does, copies what it needs into a job and submits
 * it. The job looks up its operands when it runs: only then are their contents known, and whether
 * they still exist.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "sim/private.h"
#include "vendor/cublas_calls.h"

struct cublasContext {
    uint64_t magic;
    const struct private_table *cuda;
    CUcontext context; /* current when the handle was made */
    struct cost_device device;
    CUstream stream;
    cublasPointerMode_t pointer_mode;
    cublasAtomicsMode_t atomics_mode;
    cublasMath_t math_mode;
    int sm_count_target;
    void *workspace;
    size_t workspace_bytes;
};

/* What this library exports. */
#define X(needed, since, field, symbol, parameters, arguments)                                     \
    __attribute__((visibility("default"))) cublasStatus_t symbol parameters;
CUBLAS_CALLS(X)
#undef X

enum cublas_status {
#define X(code, name, error, text) name = code,
#include "vendor/cublas_codes.h"
#undef X
};

/* CUBLAS_STATUS_NOT_INITIALIZED unless `handle` is one. */
cublasStatus_t cublas_check_handle(cublasHandle_t handle);

/* A scalar that the program passed by pointer, in host or in device memory. */
struct cublas_scalar {
    bool on_device;
    unsigned char value[8]; /* or the address */
};
struct cublas_scalar cublas_scalar_take(const struct cublasContext *handle, const void *pointer,
                                        size_t bytes);
/* Read the scalar's bytes, when the job runs. False: they are not accessible. */
bool cublas_scalar_read(const struct cublasContext *handle, const struct cublas_scalar *scalar,
                        void *ret, size_t bytes);

/* Finds the device memory of an operand for a job. NULL: not accessible; the context has then
 * failed. */
void *cublas_memory(const struct cublasContext *handle, const void *address, uint64_t bytes,
                    bool write);

/*
 * Call these before and after a job computes with the host's BLAS library. False: the process is
 * ending, skip the job. The host's library ends its threads then, and a call into it would hang.
 */
bool cublas_compute_begin(void);
void cublas_compute_end(void);

/* Submit `run` with a job that free() releases. */
cublasStatus_t cublas_submit(const struct cublasContext *handle, work_fn run, void *job, bool wait);
