/* SPDX-License-Identifier: Apache-2.0 */
/* A fake cuBLAS: it computes nothing. */
#include "vendor/cublas_calls.h"
#include "tests/fake/fake.h"

FAKE_EXPORT struct fake fake;

#define X(needed, since, field, symbol, parameters, arguments)                                     \
    FAKE_IF_##needed(FAKE_EXPORT cublasStatus_t symbol parameters;                                 \
                     FAKE_EXPORT cublasStatus_t symbol parameters { return fake.code; })
CUBLAS_CALLS(X)
