/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Power: what a GPU draws and what it may draw.
 */
#include "sim/nvml/core.h"

unsigned power_limit_mw(const struct target *t) {
    return t->gpu->power_limit_mw ? t->gpu->power_limit_mw : t->model->power_limit_mw;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power) {
    ENTER(t, device, ON_GPU);
    struct utilization_readings now;

    REQUIRE(power);
    utilization_read(t.box, t.part.gpu, &now);
    *power = now.power_mw;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy) {
    ENTER(t, device, ON_GPU);
    struct utilization_readings now;

    REQUIRE(energy);
    utilization_read(t.box, t.part.gpu, &now);
    *energy = now.energy_mj;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, nvmlEnableState_t *mode) {
    ENTER(t, device, ON_GPU);
    REQUIRE(mode);
    *mode = NVML_FEATURE_ENABLED;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned int *limit) {
    ENTER(t, device, ON_GPU);
    REQUIRE(limit);
    *limit = power_limit_mw(&t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *limit) {
    ENTER(t, device, ON_GPU);
    REQUIRE(limit);
    *limit = power_limit_mw(&t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t device,
                                                      unsigned int *defaultLimit) {
    ENTER(t, device, ON_GPU);
    REQUIRE(defaultLimit);
    *defaultLimit = t.model->power_limit_mw;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device,
                                                          unsigned int *minLimit,
                                                          unsigned int *maxLimit) {
    ENTER(t, device, ON_GPU);
    REQUIRE(minLimit && maxLimit);
    *minLimit = t.model->power_min_mw;
    *maxLimit = t.model->power_max_mw;
    return NVML_SUCCESS;
}

static nvmlReturn_t set_limit(struct target *t, unsigned limit_mw) {
    REQUIRE(limit_mw >= t->model->power_min_mw && limit_mw <= t->model->power_max_mw);
    t->gpu->power_limit_mw = limit_mw;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    return set_limit(&t, limit);
}

nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device,
                                                  nvmlPowerValue_v2_t *powerValue) {
    ENTER(t, device, ON_GPU | BY_ROOT);

    REQUIRE_VERSION(powerValue, nvmlPowerValue_v2);
    REQUIRE(powerValue->powerScope < NVML_POWER_SCOPE_COUNT);
    if (powerValue->powerScope != NVML_POWER_SCOPE_GPU)
        return NVML_ERROR_NOT_SUPPORTED;
    return set_limit(&t, powerValue->powerValueMw);
}

nvmlReturn_t nvmlDeviceGetPowerSource(nvmlDevice_t device, nvmlPowerSource_t *powerSource) {
    ENTER(t, device, ON_GPU);
    REQUIRE(powerSource);
    *powerSource = NVML_POWER_SOURCE_AC;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, nvmlPerfPolicyType_t perfPolicyType,
                                          nvmlViolationTime_t *violTime) {
    ENTER(t, device, ON_GPU);

    REQUIRE(violTime && (unsigned)perfPolicyType < NVML_PERF_POLICY_COUNT &&
            !((unsigned)perfPolicyType > NVML_PERF_POLICY_RELIABILITY &&
              (unsigned)perfPolicyType < NVML_PERF_POLICY_TOTAL_APP_CLOCKS));
    violTime->referenceTime = box_now_us();
    violTime->violationTime = 0;
    return NVML_SUCCESS;
}
