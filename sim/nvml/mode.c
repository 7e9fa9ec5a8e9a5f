/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mode: settings that an administrator can switch, and those that no GPU here has.
 */
#include "sim/nvml/core.h"

static nvmlEnableState_t state_of(uint32_t on) {
    return on ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    ENTER(t, device, ON_ANY);
    REQUIRE(mode);
    *mode = state_of(t.gpu->persistence);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t mode) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    REQUIRE(mode == NVML_FEATURE_ENABLED || mode == NVML_FEATURE_DISABLED);
    t.gpu->persistence = mode;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, nvmlComputeMode_t *mode) {
    ENTER(t, device, ON_ANY);
    REQUIRE(mode);
    *mode = (nvmlComputeMode_t)t.gpu->compute_mode;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, nvmlComputeMode_t mode) {
    ENTER(t, device, ON_GPU | BY_ROOT);

    REQUIRE((unsigned)mode < NVML_COMPUTEMODE_COUNT);
    if (mode == NVML_COMPUTEMODE_EXCLUSIVE_THREAD)
        return NVML_ERROR_NOT_SUPPORTED; /* gone since CUDA 8 */
    if (t.gpu->mig_enabled && mode != NVML_COMPUTEMODE_DEFAULT)
        return NVML_ERROR_NOT_SUPPORTED;
    t.gpu->compute_mode = mode;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, nvmlEnableState_t *display) {
    ENTER(t, device, ON_GPU);
    REQUIRE(display);
    *display = is_consumer(&t) ? NVML_FEATURE_DISABLED : NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, nvmlEnableState_t *isActive) {
    ENTER(t, device, ON_GPU);
    REQUIRE(isActive);
    *isActive = NVML_FEATURE_DISABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetVirtualizationMode(nvmlDevice_t device,
                                             nvmlGpuVirtualizationMode_t *pVirtualMode) {
    ENTER(t, device, ON_GPU);
    REQUIRE(pVirtualMode);
    *pVirtualMode = NVML_GPU_VIRTUALIZATION_MODE_NONE;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAPIRestriction(nvmlDevice_t device, nvmlRestrictedAPI_t apiType,
                                         nvmlEnableState_t *isRestricted) {
    ENTER(t, device, ON_GPU);

    REQUIRE(isRestricted && (unsigned)apiType < NVML_RESTRICTED_API_COUNT);
    if (apiType != NVML_RESTRICTED_API_SET_APPLICATION_CLOCKS)
        return NVML_ERROR_NOT_SUPPORTED;
    *isRestricted = NVML_FEATURE_ENABLED; /* root only */
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderCapacity(nvmlDevice_t device, nvmlEncoderType_t encoderQueryType,
                                          unsigned int *encoderCapacity) {
    ENTER(t, device, ON_GPU);
    REQUIRE(encoderCapacity && (unsigned)encoderQueryType <= NVML_ENCODER_QUERY_AV1);
    *encoderCapacity = 100;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessionCount,
                                       unsigned int *averageFps, unsigned int *averageLatency) {
    ENTER(t, device, ON_GPU);
    REQUIRE(sessionCount && averageFps && averageLatency);
    *sessionCount = *averageFps = *averageLatency = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *sessionCount,
                                          nvmlEncoderSessionInfo_t *sessionInfos) {
    ENTER(t, device, ON_GPU);
    return core_give_list(sessionCount, sessionInfos, 0);
}

nvmlReturn_t nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *fbcStats) {
    ENTER(t, device, ON_GPU);
    REQUIRE(fbcStats);
    *fbcStats = (nvmlFBCStats_t){ 0 };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *sessionCount,
                                      nvmlFBCSessionInfo_t *sessionInfo) {
    ENTER(t, device, ON_GPU);
    return core_give_list(sessionCount, sessionInfo, 0);
}
