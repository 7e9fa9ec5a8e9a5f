/* SPDX-License-Identifier: Apache-2.0 */
/* Something that calls itself NVML and has little of it. */
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#include "tests/fake/fake.h"

FAKE_EXPORT struct fake fake;

nvmlReturn_t nvmlInit_v2(void) {
    fake.n_init++;
    return NVML_SUCCESS;
}
