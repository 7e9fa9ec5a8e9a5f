/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/nvml_topology.h"

#include <errno.h>

#include "driver/nvml_calls.h"

static int read_mig(const struct nvml *nvml, const struct nvml_device *gpu, unsigned index,
                    struct nvml_mig *ret, struct allot_error *err) {
    struct nvml_mig mig = { 0 };
    nvmlDeviceAttributes_t attributes;
    nvmlDevice_t handle;
    int r;

    r = nvml_try_mig_by_index(nvml, gpu, err, gpu->handle, index, &handle);
    if (r < 0)
        return r;
    mig.device.handle = handle;
    r = nvml_try_device_uuid(nvml, gpu, err, handle, mig.uuid, sizeof(mig.uuid));
    if (r < 0)
        return r;
    mig.uuid[sizeof(mig.uuid) - 1] = 0;
    memcpy(mig.device.label, mig.uuid, sizeof(mig.uuid));
    r = nvml_try_gpu_instance_id(nvml, &mig.device, err, handle, &mig.gpu_instance);
    if (r < 0)
        return r;
    r = nvml_try_compute_instance_id(nvml, &mig.device, err, handle, &mig.compute_instance);
    if (r < 0)
        return r;
    if (nvml_try_device_attributes(nvml, &mig.device, NULL, handle, &attributes) == 0) {
        mig.has_attributes = true;
        mig.multiprocessors = attributes.multiprocessorCount;
        mig.gpu_slices = attributes.gpuInstanceSliceCount;
        mig.compute_slices = attributes.computeInstanceSliceCount;
        mig.memory_bytes = (uint64_t)attributes.memorySizeMB << 20;
    }
    *ret = mig;
    return 0;
}

int nvml_topology_list_migs(const struct nvml *nvml, const struct nvml_device *device,
                            struct nvml_mig **ret, size_t *ret_n, struct allot_error *err) {
    cleanup(freep) struct nvml_mig *list = NULL;
    unsigned current = 0, pending, room = 0;
    size_t n = 0;
    int r;

    r = nvml_try_mig_mode(nvml, device, err, device->handle, &current, &pending);
    if (driver_is_gone(r))
        return r;
    if (r == 0 && current == NVML_DEVICE_MIG_ENABLE) {
        r = nvml_try_max_migs(nvml, device, err, device->handle, &room);
        if (r < 0)
            return r;
        room = MIN(room, 64u);
        list = calloc(room ? room : 1, sizeof(*list));
        if (!list)
            return error_set(err, -ENOMEM, "%s: out of memory", device->label);
    }
    for (unsigned i = 0; i < room; i++) {
        r = read_mig(nvml, device, i, &list[n], err);
        if (driver_is_gone(r))
            return r;
        n += r == 0; /* skip numbers without an instance, and instances that were just removed */
    }
    *ret_n = n;
    *ret = n > 0 ? TAKE(list) : NULL;
    return 0;
}

int nvml_topology_path(const struct nvml *nvml, const struct nvml_device *a,
                       const struct nvml_device *b, enum nvml_path *ret, struct allot_error *err) {
    nvmlGpuTopologyLevel_t level;
    int r = nvml_try_common_ancestor(nvml, a, err, a->handle, b->handle, &level);

    if (r < 0)
        return r;
    /* NVIDIA left gaps of ten for future levels: an unknown level counts as the next known one. */
    *ret = level <= NVML_TOPOLOGY_INTERNAL     ? NVML_PATH_BOARD
           : level <= NVML_TOPOLOGY_SINGLE     ? NVML_PATH_SWITCH
           : level <= NVML_TOPOLOGY_MULTIPLE   ? NVML_PATH_SWITCHES
           : level <= NVML_TOPOLOGY_HOSTBRIDGE ? NVML_PATH_BRIDGE
           : level <= NVML_TOPOLOGY_NODE       ? NVML_PATH_NODE
                                               : NVML_PATH_SYSTEM;
    return 0;
}

int nvml_topology_p2p(const struct nvml *nvml, const struct nvml_device *a,
                      const struct nvml_device *b, uint32_t *ret, struct allot_error *err) {
    static const struct {
        nvmlGpuP2PCapsIndex_t index;
        uint32_t bit;
    } caps[] = {
        { NVML_P2P_CAPS_INDEX_READ, NVML_P2P_READ },
        { NVML_P2P_CAPS_INDEX_WRITE, NVML_P2P_WRITE },
        { NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_NVLINK },
        { NVML_P2P_CAPS_INDEX_ATOMICS, NVML_P2P_ATOMICS },
    };
    uint32_t bits = 0;

    for (size_t i = 0; i < ELEMENTSOF(caps); i++) {
        nvmlGpuP2PStatus_t status;
        int r = nvml_try_p2p_status(nvml, a, err, a->handle, b->handle, caps[i].index, &status);

        if (r < 0)
            return r;
        if (status == NVML_P2P_STATUS_OK)
            bits |= caps[i].bit;
    }
    *ret = bits;
    return 0;
}

int nvml_topology_pcie(const struct nvml *nvml, const struct nvml_device *device,
                       unsigned *ret_generation, unsigned *ret_width, struct allot_error *err) {
    unsigned generation, width;
    int r = nvml_try_pcie_generation(nvml, device, err, device->handle, &generation);

    if (r == 0)
        r = nvml_try_pcie_width(nvml, device, err, device->handle, &width);
    if (r < 0)
        return r;
    *ret_generation = generation;
    *ret_width = width;
    return 0;
}

static enum nvml_link_end read_end(const struct nvml *nvml, const struct nvml_device *device,
                                   unsigned link) {
    nvmlIntNvLinkDeviceType_t type;

    if (nvml_try_link_remote_type(nvml, device, NULL, device->handle, link, &type) < 0)
        return NVML_END_UNKNOWN;
    switch (type) {
    case NVML_NVLINK_DEVICE_TYPE_GPU:
        return NVML_END_GPU;
    case NVML_NVLINK_DEVICE_TYPE_SWITCH:
        return NVML_END_SWITCH;
    case NVML_NVLINK_DEVICE_TYPE_IBMNPU:
        return NVML_END_CPU;
    default:
        return NVML_END_UNKNOWN;
    }
}

int nvml_topology_list_links(const struct nvml *nvml, const struct nvml_device *device,
                             struct nvml_link ret[static NVML_LINKS_MAX], size_t *ret_n,
                             struct allot_error *err) {
    size_t n = 0;

    for (unsigned link = 0; link < NVML_LINKS_MAX; link++) {
        nvmlEnableState_t is_active;
        nvmlPciInfo_t remote;
        int r = nvml_try_link_state(nvml, device, err, device->handle, link, &is_active);

        if (driver_is_gone(r))
            return r;
        if (r == -EINVAL) /* past the last link */
            break;
        if (r < 0 || !is_active)
            continue;
        ret[n] = (struct nvml_link){ .number = link, .end = read_end(nvml, device, link) };
        if (nvml_try_link_version(nvml, device, NULL, device->handle, link, &ret[n].version) < 0)
            ret[n].version = 0;
        if (nvml_try_link_remote_pci(nvml, device, NULL, device->handle, link, &remote) == 0) {
            ret[n].has_remote = true;
            ret[n].remote =
                (struct pci_id){ remote.domain, (uint8_t)remote.bus, (uint8_t)remote.device, 0 };
        }
        n++;
    }
    *ret_n = n;
    return 0;
}
