/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles and how to get one.
 *
 * A handle is the address of an entry in the table below, which stores nothing: the position of the
 * entry says which GPU, GPU instance and compute instance the handle stands for. So a handle can be
 * checked without following it, means the same in every thread and after a fork, and costs nothing
 * to keep.
 */
#include "sim/nvml/core.h"

#include <string.h>

#include "base/gpuid.h"
#include "sim/box/fault.h"

enum {
    DEVICES_PER_GPU = 1 + BOX_MAX_GI * BOX_MAX_CI, /* the GPU itself, then its MIG devices */
};

struct nvmlDevice_st {
    uint64_t nothing;
};
struct nvmlGpuInstance_st {
    uint64_t nothing;
};
struct nvmlComputeInstance_st {
    uint64_t nothing;
};

static struct nvmlDevice_st devices[BOX_MAX_GPUS * DEVICES_PER_GPU];
static struct nvmlGpuInstance_st gpu_instances[BOX_MAX_GPUS * BOX_MAX_GI];
static struct nvmlComputeInstance_st compute_instances[BOX_MAX_GPUS * BOX_MAX_GI * BOX_MAX_CI];

nvmlDevice_t handle_of_gpu(unsigned gpu) {
    return &devices[gpu * DEVICES_PER_GPU];
}

nvmlDevice_t handle_of_mig(unsigned gpu, unsigned gi, unsigned ci) {
    return &devices[gpu * DEVICES_PER_GPU + 1 + gi * BOX_MAX_CI + ci];
}

nvmlGpuInstance_t handle_of_gi(unsigned gpu, unsigned gi) {
    return &gpu_instances[gpu * BOX_MAX_GI + gi];
}

nvmlComputeInstance_t handle_of_ci(unsigned gpu, unsigned gi, unsigned ci) {
    return &compute_instances[(gpu * BOX_MAX_GI + gi) * BOX_MAX_CI + ci];
}

/* The entry of a table that `handle` is the address of. */
static bool entry_of(const void *handle, const void *table, size_t table_bytes, size_t entry_bytes,
                     uint32_t *ret) {
    uintptr_t offset = (uintptr_t)handle - (uintptr_t)table;

    if ((uintptr_t)handle < (uintptr_t)table || offset >= table_bytes || offset % entry_bytes)
        return false;
    *ret = (uint32_t)(offset / entry_bytes);
    return true;
}
#define ENTRY_OF(handle, table, ret) entry_of(handle, table, sizeof(table), sizeof((table)[0]), ret)

bool handle_locate_device(nvmlDevice_t device, struct handle_location *ret) {
    uint32_t i;

    if (!ENTRY_OF(device, devices, &i))
        return false;
    *ret = (struct handle_location){ i / DEVICES_PER_GPU, HANDLE_WHOLE, HANDLE_WHOLE };
    i %= DEVICES_PER_GPU;
    if (i > 0) {
        ret->gi = (i - 1) / BOX_MAX_CI;
        ret->ci = (i - 1) % BOX_MAX_CI;
    }
    return true;
}

bool handle_locate_gi(nvmlGpuInstance_t instance, struct handle_location *ret) {
    uint32_t i;

    if (!ENTRY_OF(instance, gpu_instances, &i))
        return false;
    *ret = (struct handle_location){ i / BOX_MAX_GI, i % BOX_MAX_GI, HANDLE_WHOLE };
    return true;
}

bool handle_locate_ci(nvmlComputeInstance_t instance, struct handle_location *ret) {
    uint32_t i;

    if (!ENTRY_OF(instance, compute_instances, &i))
        return false;
    *ret = (struct handle_location){ i / BOX_MAX_CI / BOX_MAX_GI, i / BOX_MAX_CI % BOX_MAX_GI,
                                     i % BOX_MAX_CI };
    return true;
}

static nvmlReturn_t count(const char *call, unsigned *ret) {
    ENTER_(t, core_enter_box(&t, call, 0));

    REQUIRE(ret);
    *ret = (unsigned)__builtin_popcount(core_visible());
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount) {
    return count(__func__, deviceCount);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount) {
    return count(__func__, deviceCount);
}

/* Hand out GPU `gpu`: the driver attaches to it now, which fails for a lost one. */
static nvmlReturn_t attach(const struct target *t, unsigned gpu, nvmlDevice_t handle,
                           nvmlDevice_t *ret) {
    if (t->box->file->gpu[gpu].lost)
        return NVML_ERROR_GPU_IS_LOST;
    *ret = handle;
    return NVML_SUCCESS;
}

static nvmlReturn_t by_index(const char *call, unsigned index, nvmlDevice_t *ret) {
    ENTER_(t, core_enter_box(&t, call, 0));
    uint32_t visible = core_visible();

    REQUIRE(ret);
    for (unsigned gpu = 0; gpu < t.box->n_gpus; gpu++)
        if ((visible & UINT32_C(1) << gpu) && index-- == 0)
            return attach(&t, gpu, handle_of_gpu(gpu), ret);
    return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    return by_index(__func__, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    return by_index(__func__, index, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    ENTER_BOX(t);

    REQUIRE(serial && device);
    for (unsigned gpu = 0; gpu < t.box->n_gpus; gpu++)
        if ((core_visible() & UINT32_C(1) << gpu) &&
            strncmp(t.box->file->gpu[gpu].serial, serial, sizeof(t.box->file->gpu[gpu].serial)) ==
                0)
            return attach(&t, gpu, handle_of_gpu(gpu), device);
    return NVML_ERROR_NOT_FOUND;
}

/* Whether MIG device (gi, ci) of `gpu` is the one that `wanted` means. */
static bool is_mig(const struct box_gpu *gpu, const struct box_gi *gi, const struct box_ci *ci,
                   const struct gpuid *wanted) {
    struct gpuid id;

    if (wanted->kind == GPUID_MIG_PATH)
        return gpuid_parse(&id, gpu->uuid) == 0 && memcmp(id.uuid, wanted->uuid, 16) == 0 &&
               gi->id == wanted->gpu_instance && ci->id == wanted->compute_instance;
    return gpuid_parse(&id, ci->uuid) == 0 && memcmp(id.uuid, wanted->uuid, 16) == 0;
}

static nvmlReturn_t find_mig(const struct target *t, unsigned gpu, const struct gpuid *wanted,
                             nvmlDevice_t *ret) {
    const struct box_gpu *g = &t->box->file->gpu[gpu];

    for (unsigned i = 0; g->mig_enabled && i < BOX_MAX_GI; i++)
        for (unsigned j = 0; g->gi[i].in_use && j < BOX_MAX_CI; j++)
            if (g->gi[i].ci[j].in_use && is_mig(g, &g->gi[i], &g->gi[i].ci[j], wanted))
                return attach(t, gpu, handle_of_mig(gpu, i, j), ret);
    return NVML_ERROR_NOT_FOUND;
}

/* `any_kind`: a UUID in binary does not say whether it is of a GPU or of a MIG device. */
static nvmlReturn_t find_uuid(const struct target *t, const struct gpuid *wanted, bool any_kind,
                              nvmlDevice_t *ret) {
    for (unsigned gpu = 0; gpu < t->box->n_gpus; gpu++) {
        struct gpuid id;

        if (!(core_visible() & UINT32_C(1) << gpu))
            continue;
        if ((any_kind || wanted->kind == GPUID_GPU) &&
            gpuid_parse(&id, t->box->file->gpu[gpu].uuid) == 0 &&
            memcmp(id.uuid, wanted->uuid, 16) == 0)
            return attach(t, gpu, handle_of_gpu(gpu), ret);
        if (any_kind || wanted->kind != GPUID_GPU) {
            nvmlReturn_t r = find_mig(t, gpu, wanted, ret);

            if (r != NVML_ERROR_NOT_FOUND)
                return r;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER_BOX(t);
    struct gpuid wanted;

    REQUIRE(uuid && device);
    if (gpuid_parse(&wanted, uuid) < 0)
        return NVML_ERROR_NOT_FOUND;
    return find_uuid(&t, &wanted, false, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, nvmlDevice_t *device) {
    ENTER_BOX(t);
    char text[NVML_DEVICE_UUID_ASCII_LEN + 1] = "";
    struct gpuid wanted = { .kind = GPUID_MIG };

    REQUIRE(device);
    REQUIRE_VERSION(uuid, nvmlUUID_v1);
    switch (uuid->type) {
    case NVML_UUID_TYPE_ASCII:
        memcpy(text, uuid->value.str, NVML_DEVICE_UUID_ASCII_LEN);
        if (gpuid_parse(&wanted, text) < 0)
            return NVML_ERROR_NOT_FOUND;
        return find_uuid(&t, &wanted, false, device);
    case NVML_UUID_TYPE_BINARY:
        memcpy(wanted.uuid, uuid->value.bytes, sizeof(wanted.uuid));
        return find_uuid(&t, &wanted, true, device);
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
}

static nvmlReturn_t by_bus_id(const char *call, const char *text, nvmlDevice_t *ret) {
    ENTER_(t, core_enter_box(&t, call, 0));
    struct pci_id wanted;

    REQUIRE(text && ret && pci_id_parse(&wanted, text) == 0);
    for (unsigned gpu = 0; gpu < t.box->n_gpus; gpu++) {
        const struct box_gpu *g = &t.box->file->gpu[gpu];

        if ((core_visible() & UINT32_C(1) << gpu) && g->pci_domain == wanted.domain &&
            g->pci_bus == wanted.bus && g->pci_device == wanted.device && wanted.function == 0)
            return attach(&t, gpu, handle_of_gpu(gpu), ret);
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device) {
    return by_bus_id(__func__, pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device) {
    return by_bus_id(__func__, pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    ENTER(t, device, ON_ANY);

    REQUIRE(index);
    if (t.gi) { /* of the MIG device under its parent, as nvmlDeviceGetMigDeviceHandleByIndex */
        unsigned n = 0;

        for (unsigned i = 0; i < BOX_MAX_GI; i++)
            for (unsigned j = 0; t.gpu->gi[i].in_use && j < BOX_MAX_CI; j++) {
                if (&t.gpu->gi[i].ci[j] == t.ci) {
                    *index = n;
                    return NVML_SUCCESS;
                }
                n += t.gpu->gi[i].ci[j].in_use != 0;
            }
        return NVML_ERROR_NOT_FOUND;
    }
    *index =
        (unsigned)__builtin_popcount(core_visible() & ((UINT32_C(1) << t.part.gpu) - UINT32_C(1)));
    return NVML_SUCCESS;
}
