/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MIG devices: the mode of a GPU, and the pairs of GPU instance and compute instance in it that a
 * program can run on. What they are cut from is in instance.c.
 */
#include "sim/nvml/core.h"

#include <stddef.h>
#include <string.h>

#include "sim/box/event.h"
#include "sim/box/mig.h"

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode,
                                  unsigned int *pendingMode) {
    ENTER(t, device, ON_GPU);

    REQUIRE(currentMode && pendingMode);
    if (!t.model->mig_profiles)
        return NVML_ERROR_NOT_SUPPORTED;
    *currentMode = t.gpu->mig_enabled ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    *pendingMode = t.gpu->mig_pending ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return NVML_SUCCESS;
}

static bool in_use(const struct target *t) {
    const struct box_file *file = t->box->file;

    for (uint32_t slot = 0; slot < MIN(file->proc_high, (uint32_t)BOX_MAX_PROCS); slot++)
        if (file->proc[slot].state == PROC_LIVE && file->proc[slot].usage[t->part.gpu].contexts > 0)
            return true;
    return false;
}

/* Takes a reset of the GPU, which needs it idle; until then the mode is pending. */
nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
                                  nvmlReturn_t *activationStatus) {
    ENTER(t, device, ON_GPU | BY_ROOT);

    REQUIRE(activationStatus && mode <= NVML_DEVICE_MIG_ENABLE);
    if (!t.model->mig_profiles)
        return NVML_ERROR_NOT_SUPPORTED;
    proc_reap(t.box);
    t.gpu->mig_pending = mode;
    *activationStatus = NVML_SUCCESS;
    if (t.gpu->mig_enabled == mode)
        return NVML_SUCCESS;
    if (in_use(&t)) {
        *activationStatus = NVML_ERROR_IN_USE;
        return NVML_SUCCESS;
    }
    for (unsigned i = 0; i < BOX_MAX_GI; i++)
        if (t.gpu->gi[i].in_use) {
            *activationStatus = NVML_ERROR_IN_USE; /* instances must be destroyed first */
            return NVML_SUCCESS;
        }
    t.gpu->mig_enabled = mode;
    event_post(t.box, t.part.gpu, UINT32_MAX, UINT32_MAX, nvmlEventMigConfigChange, 0);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *isMigDevice) {
    ENTER(t, device, ON_ANY);
    REQUIRE(isMigDevice);
    *isMigDevice = t.gi != NULL;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    ENTER(t, device, ON_MIG);
    REQUIRE(id);
    *id = t.gi->id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    ENTER(t, device, ON_MIG);
    REQUIRE(id);
    *id = t.ci->id;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    ENTER(t, device, ON_GPU);
    REQUIRE(count);
    *count = t.gpu->mig_enabled ? BOX_MAX_GI : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *migDevice) {
    ENTER(t, device, ON_GPU);

    REQUIRE(migDevice);
    if (!t.gpu->mig_enabled)
        return NVML_ERROR_NOT_FOUND;
    REQUIRE(index < BOX_MAX_GI);
    for (unsigned i = 0; i < BOX_MAX_GI; i++)
        for (unsigned j = 0; t.gpu->gi[i].in_use && j < BOX_MAX_CI; j++)
            if (t.gpu->gi[i].ci[j].in_use && index-- == 0) {
                *migDevice = handle_of_mig(t.part.gpu, i, j);
                return NVML_SUCCESS;
            }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice,
                                                          nvmlDevice_t *device) {
    ENTER(t, migDevice, ON_MIG);
    REQUIRE(device);
    *device = handle_of_gpu(t.part.gpu);
    return NVML_SUCCESS;
}

static nvmlReturn_t attributes(const char *call, nvmlDevice_t device, nvmlDeviceAttributes_t *ret,
                               size_t size) {
    ENTER_(t, core_enter(&t, call, device, ON_MIG));
    const struct sim_mig_profile *profile = model_find_profile(t.model, NULL, t.gi->profile_id);
    nvmlDeviceAttributes_t whole = {
        .multiprocessorCount = t.ci->multiprocessors,
        .sharedCopyEngineCount = profile ? profile->copy_engines : 0,
        .sharedDecoderCount = profile ? profile->decoders : 0,
        .gpuInstanceSliceCount = t.gi->compute_slices,
        .computeInstanceSliceCount = t.ci->compute_slices,
        .memorySizeMB = t.gi->memory_bytes >> 20,
    };

    REQUIRE(ret);
    memcpy(ret, &whole, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *ret) {
    return attributes(__func__, device, ret,
                      offsetof(nvmlDeviceAttributes_t, gpuInstanceSliceCount));
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *ret) {
    return attributes(__func__, device, ret, sizeof(*ret));
}
