/* SPDX-License-Identifier: Apache-2.0 */
/* Each symbol of the table that fake-cuda.c does not answer itself. */
#pragma GCC visibility push(default)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#pragma GCC visibility pop

#include "driver/cuda_calls.h"
#include "tests/fake/fake.h"

#define X(needed, since, where, field, symbol, parameters, arguments)                              \
    FAKE_IF_##needed(FAKE_WEAK CUresult symbol parameters { return (CUresult)fake.code; })
#define X0(needed, since, where, field, symbol)                                                    \
    FAKE_IF_##needed(FAKE_WEAK CUresult symbol(void) { return (CUresult)fake.code; })
CUDA_CALLS(X, X0)
