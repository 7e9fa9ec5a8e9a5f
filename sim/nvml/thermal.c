/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thermal: temperatures, their thresholds, and fans where a card has any.
 */
#include "sim/nvml/core.h"

static void read_now(struct target *t, struct utilization_readings *ret) {
    utilization_read(t->box, t->part.gpu, ret);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType,
                                      unsigned int *temp) {
    ENTER(t, device, ON_GPU);
    struct utilization_readings now;

    REQUIRE(temp && sensorType == NVML_TEMPERATURE_GPU);
    read_now(&t, &now);
    *temp = now.temperature_c;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    ENTER(t, device, ON_GPU);
    struct utilization_readings now;

    REQUIRE_VERSION(temperature, nvmlTemperature_v1);
    REQUIRE(temperature->sensorType == NVML_TEMPERATURE_GPU);
    read_now(&t, &now);
    temperature->temperature = (int)now.temperature_c;
    return NVML_SUCCESS;
}

/* Where the driver itself begins to slow the card down, below the hardware's own threshold. */
static unsigned gpu_max(const struct target *t) {
    return t->model->temperature_slowdown_c - MIN(t->model->temperature_slowdown_c, 4u);
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device,
                                            nvmlMarginTemperature_t *marginTempInfo) {
    ENTER(t, device, ON_GPU);
    struct utilization_readings now;

    REQUIRE_VERSION(marginTempInfo, nvmlMarginTemperature_v1);
    if (t.model->nvml_architecture < NVML_DEVICE_ARCH_ADA)
        return NVML_ERROR_NOT_SUPPORTED;
    read_now(&t, &now);
    marginTempInfo->marginTemperature = (int)gpu_max(&t) - (int)now.temperature_c;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device,
                                               nvmlTemperatureThresholds_t thresholdType,
                                               unsigned int *temp) {
    ENTER(t, device, ON_GPU);

    REQUIRE(temp);
    switch (thresholdType) {
    case NVML_TEMPERATURE_THRESHOLD_SHUTDOWN:
        *temp = t.model->temperature_shutdown_c;
        return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_SLOWDOWN:
        *temp = t.model->temperature_slowdown_c;
        return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_MEM_MAX:
        if (t.model->memory_bus_bits < 1024)
            return NVML_ERROR_NOT_SUPPORTED; /* GDDR has no sensor of its own */
        *temp = 95;
        return NVML_SUCCESS;
    case NVML_TEMPERATURE_THRESHOLD_GPU_MAX:
        *temp = gpu_max(&t);
        return NVML_SUCCESS;
    default:
        return (unsigned)thresholdType < NVML_TEMPERATURE_THRESHOLD_COUNT
                   ? NVML_ERROR_NOT_SUPPORTED
                   : NVML_ERROR_INVALID_ARGUMENT;
    }
}

nvmlReturn_t nvmlDeviceGetThermalSettings(nvmlDevice_t device, unsigned int sensorIndex,
                                          nvmlGpuThermalSettings_t *pThermalSettings) {
    ENTER(t, device, ON_GPU);
    struct utilization_readings now;

    REQUIRE(pThermalSettings && (sensorIndex == 0 || sensorIndex == NVML_THERMAL_TARGET_ALL));
    read_now(&t, &now);
    *pThermalSettings = (nvmlGpuThermalSettings_t){ .count = 1 };
    pThermalSettings->sensor[0].controller = NVML_THERMAL_CONTROLLER_GPU_INTERNAL;
    pThermalSettings->sensor[0].defaultMaxTemp = (int)t.model->temperature_shutdown_c;
    pThermalSettings->sensor[0].currentTemp = (int)now.temperature_c;
    pThermalSettings->sensor[0].target = NVML_THERMAL_TARGET_GPU;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t device, unsigned int *numFans) {
    ENTER(t, device, ON_GPU);
    REQUIRE(numFans);
    *numFans = t.model->fans;
    return NVML_SUCCESS;
}

static nvmlReturn_t fan_speed(struct target *t, unsigned fan, unsigned *ret) {
    struct utilization_readings now;

    REQUIRE(ret);
    if (t->model->fans == 0)
        return NVML_ERROR_NOT_SUPPORTED; /* cooled by the chassis */
    REQUIRE(fan < t->model->fans);
    read_now(t, &now);
    *ret = now.fan_percent;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed) {
    ENTER(t, device, ON_GPU);
    return fan_speed(&t, 0, speed);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t device, unsigned int fan, unsigned int *speed) {
    ENTER(t, device, ON_GPU);
    return fan_speed(&t, fan, speed);
}

nvmlReturn_t nvmlDeviceGetTargetFanSpeed(nvmlDevice_t device, unsigned int fan,
                                         unsigned int *targetSpeed) {
    ENTER(t, device, ON_GPU);
    return fan_speed(&t, fan, targetSpeed);
}

nvmlReturn_t nvmlDeviceGetFanSpeedRPM(nvmlDevice_t device, nvmlFanSpeedInfo_t *fanSpeed) {
    ENTER(t, device, ON_GPU);
    unsigned percent = 0;
    nvmlReturn_t r;

    REQUIRE_VERSION(fanSpeed, nvmlFanSpeedInfo_v1);
    r = fan_speed(&t, fanSpeed->fan, &percent);
    if (r == NVML_SUCCESS)
        fanSpeed->speed = percent * 33; /* 3300 turns a minute at most */
    return r;
}

nvmlReturn_t nvmlDeviceGetMinMaxFanSpeed(nvmlDevice_t device, unsigned int *minSpeed,
                                         unsigned int *maxSpeed) {
    ENTER(t, device, ON_GPU);

    REQUIRE(minSpeed && maxSpeed);
    if (t.model->fans == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *minSpeed = 30;
    *maxSpeed = 100;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFanControlPolicy_v2(nvmlDevice_t device, unsigned int fan,
                                              nvmlFanControlPolicy_t *policy) {
    ENTER(t, device, ON_GPU);
    unsigned percent;
    nvmlReturn_t r;

    REQUIRE(policy);
    r = fan_speed(&t, fan, &percent);
    if (r == NVML_SUCCESS)
        *policy = NVML_FAN_POLICY_TEMPERATURE_CONTINOUS_SW;
    return r;
}
