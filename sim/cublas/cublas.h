/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The simulated cuBLAS: handles, and how a call becomes work on the handle's stream.
 *
 * A call checks its arguments as the real library does, copies what it needs into a job and
 * submits it. The job finds its operands when it runs: only then is it known what is in them, and
 * whether they are still there.
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

/* A scalar that the program gave by pointer, of the host or of the device. */
struct cublas_scalar {
    bool on_device;
    unsigned char value[8]; /* or the address */
};
struct cublas_scalar cublas_scalar_take(const struct cublasContext *handle, const void *pointer,
                                        size_t bytes);
/* Its bytes, when the job runs. False: not accessible. */
bool cublas_scalar_read(const struct cublasContext *handle, const struct cublas_scalar *scalar,
                        void *ret, size_t bytes);

/* Device memory for a job. NULL: not accessible, and then the context has failed. */
void *cublas_memory(const struct cublasContext *handle, const void *address, uint64_t bytes,
                    bool write);

/*
 * Around what a job computes with the host's library. False: the process ends, and the job is
 * skipped: the host's library ends its threads then, and hangs if it is used meanwhile.
 */
bool cublas_compute_begin(void);
void cublas_compute_end(void);

/* Submit `run` with a job that free() releases. */
cublasStatus_t cublas_submit(const struct cublasContext *handle, work_fn run, void *job, bool wait);
