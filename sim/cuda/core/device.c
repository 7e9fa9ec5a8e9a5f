/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/core/device.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/gpuid.h"
#include "sim/box/charge.h"
#include "sim/box/proc.h"
#include "sim/cuda/core/driver.h"
#include "sim/cuda/memory/array.h"

/* nvml.h: GeForce cards do not reach each other over PCIe. */
#define BRAND_GEFORCE 5

/* ENTER() for a call about one device, which it finds. */
#define ENTER_DEVICE(device, dev)                                                                  \
    do {                                                                                           \
        ENTER(-1);                                                                                 \
        (device) = device_get(dev);                                                                \
        if (!(device))                                                                             \
            return CUDA_ERROR_INVALID_DEVICE;                                                      \
    } while (0)

bool device_lost(const struct cuda_device *device) {
    return __atomic_load_n(&driver.box->file->gpu[device->part.gpu].lost, __ATOMIC_RELAXED);
}

CUresult device_take(const struct cuda_device *device, uint64_t bytes) {
    int r = box_lock(driver.box);

    if (r < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    r = charge_take(driver.box, driver.slot, device->part, bytes, NULL);
    box_unlock(driver.box);
    if (r == 0)
        return CUDA_SUCCESS;
    return r == -ENODEV ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_OUT_OF_MEMORY;
}

void device_give(const struct cuda_device *device, uint64_t bytes) {
    if (box_lock(driver.box) < 0)
        return;
    charge_give(driver.box, driver.slot, device->part, bytes);
    box_unlock(driver.box);
}

void device_count_context(const struct cuda_device *device, int delta) {
    struct box_usage *usage;

    if (box_lock(driver.box) < 0)
        return;
    usage = &driver.box->file->proc[driver.slot].usage[device->part.gpu];
    usage->contexts += (uint32_t)delta;
    if (usage->contexts > 0) {
        usage->kinds |= PROC_COMPUTE;
        usage->gi_id = device->gi_id;
        usage->ci_id = device->ci_id;
    } else {
        usage->kinds &= ~(uint32_t)PROC_COMPUTE;
        usage->gi_id = usage->ci_id = UINT32_MAX;
    }
    box_unlock(driver.box);
}

static bool is_mig(const struct cuda_device *device) {
    return device->part.part != 0;
}

unsigned device_nvlinks(const struct cuda_device *a, const struct cuda_device *b) {
    return __atomic_load_n(&driver.box->file->gpu[a->part.gpu].nvlinks[b->part.gpu],
                           __ATOMIC_RELAXED);
}

bool device_can_access(const struct cuda_device *device, const struct cuda_device *peer) {
    unsigned brand = device->model->nvml_brand, other = peer->model->nvml_brand;

    if (device->part.gpu == peer->part.gpu || is_mig(device) || is_mig(peer))
        return false;
    if (device_nvlinks(device, peer) > 0)
        return true;
    return brand != BRAND_GEFORCE && other != BRAND_GEFORCE &&
           !__atomic_load_n(&driver.box->file->no_p2p, __ATOMIC_RELAXED);
}

bool device_is_on_fabric(const struct cuda_device *device) {
    unsigned n = 0;

    for (unsigned gpu = 0; gpu < driver.box->n_gpus; gpu++)
        n += __atomic_load_n(&driver.box->file->gpu[device->part.gpu].nvlinks[gpu],
                             __ATOMIC_RELAXED);
    return n > device->model->nvlink_links;
}

unsigned device_uplink(const struct cuda_device *device) {
    return __atomic_load_n(&driver.box->file->gpu[device->part.gpu].pcie_switch, __ATOMIC_RELAXED);
}

bool device_is_behind_one_switch(const struct cuda_device *a, const struct cuda_device *b) {
    return device_uplink(a) == device_uplink(b) && device_can_access(a, b);
}

uint64_t device_persisting_l2(const struct cuda_device *device) {
    return device->model->cc_major >= 8 ? device->model->l2_bytes * 3 / 4 : 0;
}

CUresult cuDeviceGetCount(int *count) {
    ENTER(-1);
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = driver.n_devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(-1);
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    if (!device_get(ordinal))
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    if (!name || len < 1)
        return CUDA_ERROR_INVALID_VALUE;
    snprintf(name, (size_t)len, "%s", device->name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    *uuid = device->uuid;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    if (!uuid)
        return CUDA_ERROR_INVALID_VALUE;
    *uuid = device->mig_uuid;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *deviceNodeMask, CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    return luid && deviceNodeMask ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = device->total_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *bytes = device->total_bytes > UINT32_MAX ? UINT32_MAX : (unsigned)device->total_bytes;
    return CUDA_SUCCESS;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    if (!major || !minor)
        return CUDA_ERROR_INVALID_VALUE;
    *major = (int)device->model->cc_major;
    *minor = (int)device->model->cc_minor;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    if (!prop)
        return CUDA_ERROR_INVALID_VALUE;
    *prop = (CUdevprop){
        .maxThreadsPerBlock = 1024,
        .maxThreadsDim = { 1024, 1024, 64 },
        .maxGridSize = { 2147483647, 65535, 65535 },
        .sharedMemPerBlock = (int)device->model->shared_bytes_per_block,
        .totalConstantMemory = 65536,
        .SIMDWidth = 32,
        .memPitch = 2147483647,
        .regsPerBlock = 65536,
        .clockRate = (int)device->model->sm_clock_max_mhz * 1000,
        .textureAlign = 512,
    };
    return CUDA_SUCCESS;
}

static struct pci_id pci_of(const struct cuda_device *device) {
    return (struct pci_id){ device->pci_domain, (uint8_t)device->pci_bus,
                            (uint8_t)device->pci_device, 0 };
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
    char text[PCI_ID_TEXT_SIZE];
    struct cuda_device *device;
    struct pci_id id;

    ENTER_DEVICE(device, dev);
    if (!pciBusId || len < 1)
        return CUDA_ERROR_INVALID_VALUE;
    id = pci_of(device);
    snprintf(pciBusId, (size_t)len, "%s", pci_id_format(&id, PCI_ID_CUDA, text));
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId) {
    struct pci_id wanted;

    ENTER(-1);
    if (!dev || !pciBusId)
        return CUDA_ERROR_INVALID_VALUE;
    if (pci_id_parse(&wanted, pciBusId) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < driver.n_devices; i++) {
        struct pci_id id = pci_of(&driver.devices[i]);

        if (pci_id_compare(&id, &wanted) == 0) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
    struct cuda_device *device, *peer;

    ENTER_DEVICE(device, dev);
    peer = device_get(peerDev);
    if (!peer)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!canAccessPeer)
        return CUDA_ERROR_INVALID_VALUE;
    *canAccessPeer = device_can_access(device, peer);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice,
                                 CUdevice dstDevice) {
    struct cuda_device *source, *target;
    bool access, nvlink;

    ENTER_DEVICE(source, srcDevice);
    target = device_get(dstDevice);
    if (!target || source == target)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    access = device_can_access(source, target);
    nvlink = access && device_nvlinks(source, target) > 0;
    switch ((int)attrib) {
    case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
        *value = nvlink ? 0 : 1;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
        *value = access;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = nvlink;
        return CUDA_SUCCESS;
    case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
        *value = access;
        return CUDA_SUCCESS;
    case 5: /* CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED, since 13.0 */
        *value = 0;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuDeviceGetP2PAtomicCapabilities(unsigned int *capabilities,
                                          const CUatomicOperation *operations, unsigned int count,
                                          CUdevice srcDevice, CUdevice dstDevice) {
    struct cuda_device *source, *target;

    ENTER_DEVICE(source, srcDevice);
    target = device_get(dstDevice);
    if (!target || source == target)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!capabilities || !operations || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        capabilities[i] = 0; /* only what P2P attributes promise */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetHostAtomicCapabilities(unsigned int *capabilities,
                                           const CUatomicOperation *operations, unsigned int count,
                                           CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    if (!capabilities || !operations || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++)
        capabilities[i] = 0; /* PCIe: no native atomics on host memory */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int *pi, CUexecAffinityType type, CUdevice dev) {
    struct cuda_device *device;

    ENTER_DEVICE(device, dev);
    if (!pi || type != CU_EXEC_AFFINITY_TYPE_SM_COUNT)
        return CUDA_ERROR_INVALID_VALUE;
    *pi = 0; /* needs an MPS server */
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements, CUarray_format format,
                                            unsigned numChannels, CUdevice dev) {
    struct cuda_device *device;
    unsigned bytes = array_channel_bytes(format) * numChannels;

    ENTER_DEVICE(device, dev);
    if (!maxWidthInElements || !bytes || (numChannels != 1 && numChannels != 2 && numChannels != 4))
        return CUDA_ERROR_INVALID_VALUE;
    *maxWidthInElements = 268435456u / (bytes > 4 ? bytes / 4 : 1);
    return CUDA_SUCCESS;
}
