/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * cuBLAS: each call as cublas_FIELD(cublas, err, parameters…) for each line of
 * vendor/cublas_calls.h, with the results of driver/cuda.h. Matrices are column-major, as always in
 * BLAS.
 *
 * It belongs to the toolkit, not to the driver, and may be missing: then cublas_open() is -ELIBACC,
 * and the caller uses its own kernels.
 */
#include "base/cleanup.h"
#include "base/error.h"
#include "vendor/cublas_calls.h"
#include "driver/cuda.h"
#include "driver/driver.h"

struct cublas_calls {
#define X(needed, since, field, symbol, parameters, arguments) cublasStatus_t(*field) parameters;
    CUBLAS_CALLS(X)
#undef X
};

enum cublas_call {
#define X(needed, since, field, ...) CUBLAS_CALL_##field,
    CUBLAS_CALLS(X)
#undef X
        CUBLAS_CALL_COUNT,
};

/* Read only. */
struct cublas {
    struct driver_object object; /* the first member, as driver_open() requires */
    struct cublas_calls calls;
    const struct cuda *cuda; /* borrowed: names the device in messages */
};

/* `cuda` must outlive it. A context must be current before cublas_create(). */
int cublas_open(struct cublas **ret, const struct cuda *cuda, const struct driver_options *options,
                struct allot_error *err);
void cublas_close(struct cublas *cublas); /* accepts NULL */
DEFINE_FREEP(struct cublas, cublas_closep, cublas_close)

/* The slow paths of the calls below. */
int cublas_refuse(const struct cublas *cublas, enum cublas_call call, struct allot_error *err);
int cublas_fail(const struct cublas *cublas, enum cublas_call call, cublasStatus_t code,
                struct allot_error *err);

#define X(needed, since, field, symbol, parameters, arguments)                                     \
    static inline int cublas_##field(const struct cublas *cublas, struct allot_error *err,         \
                                     DRIVER_UNPACK parameters) {                                   \
        cublasStatus_t code;                                                                       \
                                                                                                   \
        if (!DRIVER_LIKELY(cublas->calls.field && cublas->object.generation == driver_generation)) \
            return cublas_refuse(cublas, CUBLAS_CALL_##field, err);                                \
        code = cublas->calls.field arguments;                                                      \
        if (DRIVER_LIKELY(code == CUBLAS_STATUS_SUCCESS))                                          \
            return 0;                                                                              \
        return cublas_fail(cublas, CUBLAS_CALL_##field, code, err);                                \
    }
CUBLAS_CALLS(X)
#undef X
