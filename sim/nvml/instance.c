/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instance: GPU instances and the compute instances in them, by the vendor's profiles.
 *
 * A profile has two numbers: the constant of nvml.h by which it is asked for ("profile"), and the
 * driver's own ("profile id", 19 for the smallest), which everything else takes. A compute profile
 * is simply a number of slices.
 */
#include "sim/nvml/core.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "sim/box/event.h"
#include "sim/box/mig.h"

static const struct sim_mig_profile *profile_by_number(const struct sim_model *model,
                                                       unsigned number) {
    for (size_t i = 0; i < model->n_mig_profiles; i++)
        if (model->mig_profiles[i].number == number)
            return &model->mig_profiles[i];
    return NULL;
}

static nvmlGpuInstanceProfileInfo_v2_t info_v2(const struct sim_mig_profile *profile) {
    nvmlGpuInstanceProfileInfo_v2_t info = {
        .version = nvmlGpuInstanceProfileInfo_v2,
        .id = profile->number,
        .sliceCount = profile->compute_slices,
        .instanceCount = profile->max_instances,
        .multiprocessorCount = profile->multiprocessors,
        .copyEngineCount = profile->copy_engines,
        .decoderCount = profile->decoders,
        .jpegCount = profile->compute_slices == 7,
        .ofaCount = profile->compute_slices == 7,
        .memorySizeMB = profile->memory_bytes >> 20,
    };

    snprintf(info.name, sizeof(info.name), "MIG %s", profile->name);
    return info;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                 nvmlGpuInstanceProfileInfo_t *info) {
    ENTER(t, device, ON_GPU);
    const struct sim_mig_profile *found = model_find_profile(t.model, NULL, profile);
    nvmlGpuInstanceProfileInfo_v2_t all;

    REQUIRE(info && profile < NVML_GPU_INSTANCE_PROFILE_COUNT);
    if (!found)
        return NVML_ERROR_NOT_SUPPORTED;
    all = info_v2(found);
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = all.id,
        .isP2pSupported = all.isP2pSupported,
        .sliceCount = all.sliceCount,
        .instanceCount = all.instanceCount,
        .multiprocessorCount = all.multiprocessorCount,
        .copyEngineCount = all.copyEngineCount,
        .decoderCount = all.decoderCount,
        .encoderCount = all.encoderCount,
        .jpegCount = all.jpegCount,
        .ofaCount = all.ofaCount,
        .memorySizeMB = all.memorySizeMB,
    };
    return NVML_SUCCESS;
}

/* The caller says by its version which struct is behind the pointer. */
static nvmlReturn_t give_profile(const struct sim_mig_profile *profile, void *ret) {
    nvmlGpuInstanceProfileInfo_v2_t v2;
    nvmlGpuInstanceProfileInfo_v3_t v3;
    unsigned version;

    REQUIRE(ret);
    if (!profile)
        return NVML_ERROR_NOT_SUPPORTED;
    memcpy(&version, ret, sizeof(version));
    v2 = info_v2(profile);
    if (version == nvmlGpuInstanceProfileInfo_v2) {
        memcpy(ret, &v2, sizeof(v2));
        return NVML_SUCCESS;
    }
    if (version != nvmlGpuInstanceProfileInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    v3 = (nvmlGpuInstanceProfileInfo_v3_t){
        .version = version,
        .id = v2.id,
        .sliceCount = v2.sliceCount,
        .instanceCount = v2.instanceCount,
        .multiprocessorCount = v2.multiprocessorCount,
        .copyEngineCount = v2.copyEngineCount,
        .decoderCount = v2.decoderCount,
        .jpegCount = v2.jpegCount,
        .ofaCount = v2.ofaCount,
        .memorySizeMB = v2.memorySizeMB,
    };
    memcpy(v3.name, v2.name, sizeof(v3.name));
    memcpy(ret, &v3, sizeof(v3));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile,
                                                  nvmlGpuInstanceProfileInfo_v2_t *info) {
    ENTER(t, device, ON_GPU);
    REQUIRE(profile < NVML_GPU_INSTANCE_PROFILE_COUNT);
    return give_profile(model_find_profile(t.model, NULL, profile), info);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned int profileId,
                                                      nvmlGpuInstanceProfileInfo_v2_t *info) {
    ENTER(t, device, ON_GPU);
    return give_profile(profile_by_number(t.model, profileId), info);
}

/* The profile with driver's number `id` of a GPU that is in MIG mode. */
static nvmlReturn_t find_profile(const struct target *t, unsigned id,
                                 const struct sim_mig_profile **ret) {
    if (!t->model->mig_profiles || !t->gpu->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    *ret = profile_by_number(t->model, id);
    return *ret ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t placements(const char *call, nvmlDevice_t device, unsigned profile_id,
                               nvmlGpuInstancePlacement_t *ret, unsigned *count) {
    ENTER_(t, core_enter(&t, call, device, ON_GPU));
    const struct sim_mig_profile *profile;
    unsigned starts[8], n;
    nvmlReturn_t r = find_profile(&t, profile_id, &profile);

    if (r != NVML_SUCCESS)
        return r;
    REQUIRE(count);
    n = mig_placements(profile, starts);
    if (!ret) {
        *count = n;
        return NVML_SUCCESS;
    }
    r = core_give_list(count, ret, n);
    for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++)
        ret[i] = (nvmlGpuInstancePlacement_t){ starts[i], profile->memory_slices };
    return r;
}

/* The first version did not look at *count: its callers have room for all of them. */
nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int profileId,
                                                        nvmlGpuInstancePlacement_t *ret,
                                                        unsigned int *count) {
    if (count)
        *count = UINT32_MAX;
    return placements(__func__, device, profileId, ret, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device,
                                                           unsigned int profileId,
                                                           nvmlGpuInstancePlacement_t *ret,
                                                           unsigned int *count) {
    return placements(__func__, device, profileId, ret, count);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int profileId,
                                                       unsigned int *count) {
    ENTER(t, device, ON_GPU);
    const struct sim_mig_profile *profile;
    nvmlReturn_t r = find_profile(&t, profileId, &profile);

    REQUIRE(count);
    if (r == NVML_SUCCESS)
        *count = mig_room(t.gpu, profile);
    return r;
}

static void tell_of_change(struct target *t) {
    event_post(t->box, t->part.gpu, UINT32_MAX, UINT32_MAX, nvmlEventMigConfigChange, 0);
}

static nvmlReturn_t create_gi(struct target *t, unsigned profile_id, int start,
                              nvmlGpuInstance_t *ret) {
    const struct sim_mig_profile *profile;
    nvmlReturn_t r = find_profile(t, profile_id, &profile);
    unsigned slot;

    REQUIRE(ret);
    if (r != NVML_SUCCESS)
        return r;
    if (mig_gi_new(t->gpu, profile, start, &slot) < 0)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    *ret = handle_of_gi(t->part.gpu, slot);
    tell_of_change(t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned int profileId,
                                         nvmlGpuInstance_t *gpuInstance) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    return create_gi(&t, profileId, -1, gpuInstance);
}

nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned int profileId,
                                                      const nvmlGpuInstancePlacement_t *placement,
                                                      nvmlGpuInstance_t *gpuInstance) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    REQUIRE(placement && placement->start < 8);
    return create_gi(&t, profileId, (int)placement->start, gpuInstance);
}

/* Whether a process has a context on the instance; `ci`: UINT32_MAX for any of it. */
static bool in_use(struct target *t, uint32_t gi_id, uint32_t ci_id) {
    const struct box_file *file = t->box->file;

    proc_reap(t->box);
    for (uint32_t slot = 0; slot < MIN(file->proc_high, (uint32_t)BOX_MAX_PROCS); slot++) {
        const struct box_usage *usage = &file->proc[slot].usage[t->part.gpu];

        if (file->proc[slot].state == PROC_LIVE && usage->contexts > 0 && usage->gi_id == gi_id &&
            (ci_id == UINT32_MAX || usage->ci_id == ci_id))
            return true;
    }
    return false;
}

nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t gpuInstance) {
    ENTER_GI(t, gpuInstance, BY_ROOT);

    if (in_use(&t, t.gi->id, UINT32_MAX) || mig_gi_free(t.gpu, t.part.part - 1) < 0)
        return NVML_ERROR_IN_USE;
    tell_of_change(&t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned int profileId,
                                       nvmlGpuInstance_t *gpuInstances, unsigned int *count) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    const struct sim_mig_profile *profile;
    nvmlReturn_t r = find_profile(&t, profileId, &profile);
    unsigned n = 0;

    if (r != NVML_SUCCESS)
        return r;
    REQUIRE(gpuInstances && count);
    for (unsigned i = 0; i < BOX_MAX_GI; i++)
        if (t.gpu->gi[i].in_use && t.gpu->gi[i].profile_id == profile->id)
            gpuInstances[n++] = handle_of_gi(t.part.gpu, i);
    *count = n;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id,
                                          nvmlGpuInstance_t *gpuInstance) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    int slot;

    REQUIRE(gpuInstance);
    if (!t.gpu->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    slot = mig_find_gi(t.gpu, id);
    if (slot < 0)
        return NVML_ERROR_NOT_FOUND;
    *gpuInstance = handle_of_gi(t.part.gpu, (unsigned)slot);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t gpuInstance, nvmlGpuInstanceInfo_t *info) {
    ENTER_GI(t, gpuInstance, 0);
    const struct sim_mig_profile *profile = model_find_profile(t.model, NULL, t.gi->profile_id);

    REQUIRE(info);
    *info = (nvmlGpuInstanceInfo_t){
        .device = handle_of_gpu(t.part.gpu),
        .id = t.gi->id,
        .profileId = profile ? profile->number : INVALID_GPU_INSTANCE_PROFILE_ID,
        .placement = { t.gi->placement_start, t.gi->placement_size },
    };
    return NVML_SUCCESS;
}

/* The slices of NVML_COMPUTE_INSTANCE_PROFILE_…; here the driver's number is the constant itself.
 * 0: a GPU with seven slices has no such profile. */
static unsigned compute_slices(unsigned profile) {
    static const unsigned slices[] = { 1, 2, 3, 4, 7 };

    return profile < ELEMENTSOF(slices) ? slices[profile] : 0;
}

static unsigned compute_profile(unsigned slices) {
    unsigned profile = 0;

    while (profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT && compute_slices(profile) != slices)
        profile++;
    return profile;
}

static nvmlReturn_t compute_info(struct target *t, unsigned profile, unsigned engine,
                                 nvmlComputeInstanceProfileInfo_v3_t *ret) {
    const struct sim_mig_profile *of_gi = model_find_profile(t->model, NULL, t->gi->profile_id);
    unsigned slices = compute_slices(profile);

    REQUIRE(profile < NVML_COMPUTE_INSTANCE_PROFILE_COUNT &&
            engine < NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_COUNT);
    if (!of_gi || slices == 0 || slices > t->gi->compute_slices)
        return NVML_ERROR_NOT_SUPPORTED;
    *ret = (nvmlComputeInstanceProfileInfo_v3_t){
        .version = nvmlComputeInstanceProfileInfo_v3,
        .id = profile,
        .sliceCount = slices,
        .instanceCount = t->gi->compute_slices / slices,
        .multiprocessorCount = t->gi->multiprocessors * slices / t->gi->compute_slices,
        .sharedCopyEngineCount = of_gi->copy_engines,
        .sharedDecoderCount = of_gi->decoders,
        .sharedJpegCount = of_gi->compute_slices == 7,
        .sharedOfaCount = of_gi->compute_slices == 7,
    };
    if (slices == t->gi->compute_slices)
        snprintf(ret->name, sizeof(ret->name), "MIG %s", of_gi->name);
    else
        snprintf(ret->name, sizeof(ret->name), "MIG %uc.%s", slices, of_gi->name);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t gpuInstance,
                                                          unsigned int profile,
                                                          unsigned int engProfile,
                                                          nvmlComputeInstanceProfileInfo_t *info) {
    ENTER_GI(t, gpuInstance, 0);
    nvmlComputeInstanceProfileInfo_v3_t v3;
    nvmlReturn_t r = compute_info(&t, profile, engProfile, &v3);

    REQUIRE(info);
    if (r == NVML_SUCCESS)
        *info = (nvmlComputeInstanceProfileInfo_t){
            .id = v3.id,
            .sliceCount = v3.sliceCount,
            .instanceCount = v3.instanceCount,
            .multiprocessorCount = v3.multiprocessorCount,
            .sharedCopyEngineCount = v3.sharedCopyEngineCount,
            .sharedDecoderCount = v3.sharedDecoderCount,
            .sharedEncoderCount = v3.sharedEncoderCount,
            .sharedJpegCount = v3.sharedJpegCount,
            .sharedOfaCount = v3.sharedOfaCount,
        };
    return r;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(
    nvmlGpuInstance_t gpuInstance, unsigned int profile, unsigned int engProfile,
    nvmlComputeInstanceProfileInfo_v2_t *info) {
    ENTER_GI(t, gpuInstance, 0);
    nvmlComputeInstanceProfileInfo_v3_t v3;
    nvmlReturn_t r;
    unsigned version;

    REQUIRE(info);
    version = info->version;
    if (version != nvmlComputeInstanceProfileInfo_v2 &&
        version != nvmlComputeInstanceProfileInfo_v3)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    r = compute_info(&t, profile, engProfile, &v3);
    if (r != NVML_SUCCESS)
        return r;
    v3.version = version; /* the third version is the second with one field more */
    memcpy(info, &v3, version == nvmlComputeInstanceProfileInfo_v2 ? sizeof(*info) : sizeof(v3));
    return NVML_SUCCESS;
}

/* Compute slices of the instance that are taken, as a mask: those of `ci` begin after those of
 * the compute instances with lower ids. */
static unsigned compute_start(const struct box_gi *gi, unsigned ci) {
    unsigned start = 0;

    for (unsigned i = 0; i < ci; i++)
        if (gi->ci[i].in_use)
            start += gi->ci[i].compute_slices;
    return start;
}

static unsigned compute_free(const struct box_gi *gi) {
    unsigned used = compute_start(gi, BOX_MAX_CI);

    return gi->compute_slices - MIN(used, gi->compute_slices);
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t gpuInstance,
                                                                unsigned int profileId,
                                                                unsigned int *count) {
    ENTER_GI(t, gpuInstance, 0);
    unsigned slices = compute_slices(profileId);

    REQUIRE(count && slices > 0);
    *count = compute_free(t.gi) / slices;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstancePossiblePlacements(
    nvmlGpuInstance_t gpuInstance, unsigned int profileId, nvmlComputeInstancePlacement_t *ret,
    unsigned int *count) {
    ENTER_GI(t, gpuInstance, 0);
    unsigned slices = compute_slices(profileId), n;
    nvmlReturn_t r;

    REQUIRE(count && slices > 0 && slices <= t.gi->compute_slices);
    n = t.gi->compute_slices / slices;
    if (!ret) {
        *count = n;
        return NVML_SUCCESS;
    }
    r = core_give_list(count, ret, n);
    for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++)
        ret[i] = (nvmlComputeInstancePlacement_t){ i * slices, slices };
    return r;
}

static nvmlReturn_t create_ci(struct target *t, unsigned profile_id, nvmlComputeInstance_t *ret) {
    unsigned slices = compute_slices(profile_id), ci;

    REQUIRE(ret && slices > 0);
    if (mig_ci_new(t->gpu, t->part.part - 1, slices, &ci) < 0)
        return NVML_ERROR_INSUFFICIENT_RESOURCES;
    *ret = handle_of_ci(t->part.gpu, t->part.part - 1, ci);
    tell_of_change(t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t gpuInstance,
                                                  unsigned int profileId,
                                                  nvmlComputeInstance_t *computeInstance) {
    ENTER_GI(t, gpuInstance, BY_ROOT);
    return create_ci(&t, profileId, computeInstance);
}

/* Its placement inside its GPU instance makes no difference: it only has to fit. */
nvmlReturn_t nvmlGpuInstanceCreateComputeInstanceWithPlacement(
    nvmlGpuInstance_t gpuInstance, unsigned int profileId,
    const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *computeInstance) {
    ENTER_GI(t, gpuInstance, BY_ROOT);
    REQUIRE(placement && placement->start < t.gi->compute_slices);
    return create_ci(&t, profileId, computeInstance);
}

nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t computeInstance) {
    ENTER_CI(t, computeInstance, BY_ROOT);

    if (in_use(&t, t.gi->id, t.ci->id))
        return NVML_ERROR_IN_USE;
    mig_ci_free(t.gpu, t.part.part - 1, (unsigned)(t.ci - t.gi->ci));
    tell_of_change(&t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t gpuInstance,
                                                unsigned int profileId,
                                                nvmlComputeInstance_t *computeInstances,
                                                unsigned int *count) {
    ENTER_GI(t, gpuInstance, 0);
    unsigned slices = compute_slices(profileId), n = 0;

    REQUIRE(computeInstances && count && slices > 0);
    for (unsigned i = 0; i < BOX_MAX_CI; i++)
        if (t.gi->ci[i].in_use && t.gi->ci[i].compute_slices == slices)
            computeInstances[n++] = handle_of_ci(t.part.gpu, t.part.part - 1, i);
    *count = n;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t gpuInstance, unsigned int id,
                                                   nvmlComputeInstance_t *computeInstance) {
    ENTER_GI(t, gpuInstance, 0);
    int ci;

    REQUIRE(computeInstance);
    ci = mig_find_ci(t.gi, id);
    if (ci < 0)
        return NVML_ERROR_NOT_FOUND;
    *computeInstance = handle_of_ci(t.part.gpu, t.part.part - 1, (unsigned)ci);
    return NVML_SUCCESS;
}

static nvmlReturn_t compute_instance(const char *call, nvmlComputeInstance_t instance,
                                     nvmlComputeInstanceInfo_t *ret, size_t size) {
    ENTER_(t, core_enter_ci(&t, call, instance, 0));
    nvmlComputeInstanceInfo_t whole = {
        .device = handle_of_gpu(t.part.gpu),
        .gpuInstance = handle_of_gi(t.part.gpu, t.part.part - 1),
        .id = t.ci->id,
        .profileId = compute_profile(t.ci->compute_slices),
        .placement = { compute_start(t.gi, (unsigned)(t.ci - t.gi->ci)), t.ci->compute_slices },
    };

    REQUIRE(ret);
    memcpy(ret, &whole, size);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo(nvmlComputeInstance_t computeInstance,
                                        nvmlComputeInstanceInfo_t *info) {
    return compute_instance(__func__, computeInstance, info,
                            offsetof(nvmlComputeInstanceInfo_t, placement));
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t computeInstance,
                                           nvmlComputeInstanceInfo_t *info) {
    return compute_instance(__func__, computeInstance, info, sizeof(*info));
}
