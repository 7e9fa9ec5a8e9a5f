/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of the fake CUDA driver: two devices; device 1 is that of the current context. */
#pragma GCC visibility push(default)
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#pragma GCC visibility pop

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake/fake.h"

FAKE_EXPORT struct fake fake;

#ifdef FAKE_MARKER
FAKE_EXPORT const char gpusimMarker[] = "a fake of the simulator";
#endif

CUresult cuInit(unsigned flags) {
    if (fake.init_usec)
        usleep(fake.init_usec);
    if (!fake.init_code)
        __atomic_add_fetch(&fake.n_init, 1, __ATOMIC_RELAXED);
    return (CUresult)fake.init_code;
}

CUresult cuDriverGetVersion(int *version) {
    *version = 12040;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    *count = 2;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
    snprintf(name, (size_t)length, "Fake %d", device);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    *device = 1;
    return CUDA_SUCCESS;
}

#ifndef FAKE_BARE
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    memset(uuid->bytes, 0x99, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    memset(uuid->bytes, 0x11 * device, sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}
#endif
