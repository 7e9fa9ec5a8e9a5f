/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attribute: the numbers that describe a device.
 */
#include "sim/cuda/core/device.h"
#include "sim/cuda/core/driver.h"

/* Attributes that an administrator can change while a program runs. */
static CUresult changing(const struct cuda_device *device, CUdevice_attribute attribute, int *ret) {
    const struct box_gpu *gpu = &driver.box->file->gpu[device->part.gpu];

    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
        *ret = (int)__atomic_load_n(&gpu->compute_mode, __ATOMIC_RELAXED);
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
        *ret = (int)__atomic_load_n(&gpu->ecc_enabled, __ATOMIC_RELAXED);
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
        *ret = gpu->numa_node;
        return CUDA_SUCCESS;
    default:
        /* A later header may define this attribute; the driver of this box does not know it. */
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev) {
    const struct cuda_device *device;
    const struct sim_model *m;

    ENTER(-1);
    if (!pi)
        return CUDA_ERROR_INVALID_VALUE;
    device = device_get(dev);
    if (!device)
        return CUDA_ERROR_INVALID_DEVICE;
    m = device->model;
    switch ((int)attrib) {
#define ATTRIBUTE(name, value)                                                                     \
    case CU_DEVICE_ATTRIBUTE_##name:                                                               \
        *pi = (int)(value);                                                                        \
        return CUDA_SUCCESS;
#include "sim/cuda/core/attributes.def"
#undef ATTRIBUTE
    default:
        return changing(device, attrib, pi);
    }
}
