/* SPDX-License-Identifier: Apache-2.0 */
/* Each symbol of the table that fake-nvml.c does not answer itself. */
#pragma GCC visibility push(default)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#pragma GCC visibility pop

#include "driver/nvml_calls.h"
#include "tests/fake/fake.h"

#define X(needed, since, field, symbol, parameters, arguments)                                     \
    FAKE_IF_##needed(FAKE_WEAK nvmlReturn_t symbol parameters { return (nvmlReturn_t)fake.code; })
#define X0(needed, since, field, symbol)                                                           \
    FAKE_IF_##needed(FAKE_WEAK nvmlReturn_t symbol(void) { return (nvmlReturn_t)fake.code; })
NVML_CALLS(X, X0)
