/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NVML that calls its own names through its linkage table, as NVIDIA's does: what is preloaded
 * stands in front of it there, too. It has two devices; the second has the UUID that stands in
 * CUDA_VISIBLE_DEVICES.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop
#include <stdio.h>
#include <stdlib.h>

static char devices[2];

nvmlReturn_t nvmlInit_v2(void) {
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) {
    *n = sizeof(devices);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    unsigned n;
    nvmlReturn_t r = nvmlDeviceGetCount_v2(&n);

    if (r != NVML_SUCCESS || index >= n)
        return r != NVML_SUCCESS ? r : NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)&devices[index];
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    const char *second = getenv("CUDA_VISIBLE_DEVICES");

    snprintf(uuid, length, "%s",
             (char *)device == &devices[1] && second ? second
                                                     : "GPU-00000000-0000-0000-0000-000000000000");
    return NVML_SUCCESS;
}
