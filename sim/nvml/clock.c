/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clock: how fast a GPU runs, the clocks that can be set, and why it is throttled.
 *
 * The box derives clocks from work done. An administrator can restrict them: the
 * applications clock is a ceiling while there is work, locked clocks are a range at all times.
 */
#include "sim/nvml/core.h"

#include <string.h>

enum {
    CLOCK_STEP_MHZ = 15,
    MEMORY_IDLE_MHZ = 405, /* of cards with GDDR; HBM has one speed */
    MAX_CLOCKS = 256,
};

static bool has_idle_memory_clock(const struct target *t) {
    return t->model->memory_bus_bits < 1024;
}

static unsigned clamp(unsigned mhz, unsigned min, unsigned max) {
    mhz = MIN(mhz, max);
    return MAX(mhz, min);
}

void clock_read(struct target *t, struct utilization_readings *ret) {
    const struct box_gpu *gpu = t->gpu;

    utilization_read(t->box, t->part.gpu, ret);
    if (!gpu->sm_clock_mhz.fixed) {
        if (gpu->app_sm_mhz)
            ret->sm_clock_mhz = MIN(ret->sm_clock_mhz, gpu->app_sm_mhz);
        if (gpu->locked_sm_max_mhz)
            ret->sm_clock_mhz =
                clamp(ret->sm_clock_mhz, gpu->locked_sm_min_mhz, gpu->locked_sm_max_mhz);
    }
    if (!gpu->memory_clock_mhz.fixed && gpu->locked_memory_max_mhz)
        ret->memory_clock_mhz =
            clamp(ret->memory_clock_mhz, gpu->locked_memory_min_mhz, gpu->locked_memory_max_mhz);
}

/* The video clock follows the SM clock at this ratio on current architectures. */
static unsigned video_of(unsigned sm_mhz) {
    return sm_mhz * 9 / 10;
}

static nvmlReturn_t pick(nvmlClockType_t type, unsigned sm, unsigned memory, unsigned video,
                         unsigned *ret) {
    REQUIRE(ret);
    switch (type) {
    case NVML_CLOCK_GRAPHICS:
    case NVML_CLOCK_SM:
        *ret = sm;
        return NVML_SUCCESS;
    case NVML_CLOCK_MEM:
        *ret = memory;
        return NVML_SUCCESS;
    case NVML_CLOCK_VIDEO:
        *ret = video;
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
}

static nvmlReturn_t current(struct target *t, nvmlClockType_t type, unsigned *ret) {
    struct utilization_readings now;

    clock_read(t, &now);
    return pick(type, now.sm_clock_mhz, now.memory_clock_mhz, now.video_clock_mhz, ret);
}

static nvmlReturn_t maximum(const struct target *t, nvmlClockType_t type, unsigned *ret) {
    return pick(type, t->model->sm_clock_max_mhz, t->model->memory_clock_mhz,
                video_of(t->model->sm_clock_max_mhz), ret);
}

static nvmlReturn_t applications(const struct target *t, nvmlClockType_t type, bool by_default,
                                 unsigned *ret) {
    unsigned sm = t->gpu->app_sm_mhz, memory = t->gpu->app_memory_mhz;

    REQUIRE(ret);
    if (is_consumer(t) || type == NVML_CLOCK_VIDEO)
        return NVML_ERROR_NOT_SUPPORTED;
    if (by_default || sm == 0)
        sm = t->model->sm_clock_base_mhz;
    if (by_default || memory == 0)
        memory = t->model->memory_clock_mhz;
    return pick(type, sm, memory, 0, ret);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                    unsigned int *clock) {
    ENTER(t, device, ON_ANY);
    return current(&t, type, clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, nvmlClockType_t type,
                                       unsigned int *clock) {
    ENTER(t, device, ON_ANY);
    return maximum(&t, type, clock);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                            unsigned int *clockMHz) {
    ENTER(t, device, ON_GPU);
    return applications(&t, clockType, false, clockMHz);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                                   unsigned int *clockMHz) {
    ENTER(t, device, ON_GPU);
    return applications(&t, clockType, true, clockMHz);
}

nvmlReturn_t nvmlDeviceGetMaxCustomerBoostClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                                unsigned int *clockMHz) {
    ENTER(t, device, ON_GPU);

    if (is_consumer(&t) || clockType == NVML_CLOCK_VIDEO)
        return NVML_ERROR_NOT_SUPPORTED;
    return maximum(&t, clockType, clockMHz);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t device, nvmlClockType_t clockType,
                                nvmlClockId_t clockId, unsigned int *clockMHz) {
    ENTER(t, device, ON_GPU);

    switch (clockId) {
    case NVML_CLOCK_ID_CURRENT:
        return current(&t, clockType, clockMHz);
    case NVML_CLOCK_ID_APP_CLOCK_TARGET:
        return applications(&t, clockType, false, clockMHz);
    case NVML_CLOCK_ID_APP_CLOCK_DEFAULT:
        return applications(&t, clockType, true, clockMHz);
    case NVML_CLOCK_ID_CUSTOMER_BOOST_MAX:
        return maximum(&t, clockType, clockMHz);
    default:
        return NVML_ERROR_INVALID_ARGUMENT;
    }
}

/* Fastest first, as the driver lists them. */
static unsigned memory_clocks(const struct target *t, unsigned ret[static 2]) {
    ret[0] = t->model->memory_clock_mhz;
    ret[1] = MEMORY_IDLE_MHZ;
    return has_idle_memory_clock(t) ? 2 : 1;
}

static unsigned sm_clocks(const struct target *t, unsigned ret[static MAX_CLOCKS]) {
    unsigned n = 0, mhz = t->model->sm_clock_max_mhz;

    for (; n < MAX_CLOCKS && mhz >= t->model->sm_clock_idle_mhz && mhz > 0; mhz -= CLOCK_STEP_MHZ) {
        ret[n++] = mhz;
        if (mhz < CLOCK_STEP_MHZ)
            break;
    }
    return n;
}

static bool is_one_of(const unsigned *clocks, unsigned n, unsigned mhz) {
    for (unsigned i = 0; i < n; i++)
        if (clocks[i] == mhz)
            return true;
    return false;
}

nvmlReturn_t nvmlDeviceGetSupportedMemoryClocks(nvmlDevice_t device, unsigned int *count,
                                                unsigned int *clocksMHz) {
    ENTER(t, device, ON_GPU);
    unsigned clocks[2], n = memory_clocks(&t, clocks);
    nvmlReturn_t r = core_give_list(count, clocksMHz, n);

    if (r == NVML_SUCCESS)
        memcpy(clocksMHz, clocks, n * sizeof(clocks[0]));
    return r;
}

nvmlReturn_t nvmlDeviceGetSupportedGraphicsClocks(nvmlDevice_t device, unsigned int memoryClockMHz,
                                                  unsigned int *count, unsigned int *clocksMHz) {
    ENTER(t, device, ON_GPU);
    unsigned memory[2], clocks[MAX_CLOCKS], n = sm_clocks(&t, clocks);
    nvmlReturn_t r;

    REQUIRE(count);
    if (!is_one_of(memory, memory_clocks(&t, memory), memoryClockMHz))
        return NVML_ERROR_NOT_FOUND;
    r = core_give_list(count, clocksMHz, n);
    if (r == NVML_SUCCESS && n > 0)
        memcpy(clocksMHz, clocks, n * sizeof(clocks[0]));
    return r;
}

nvmlReturn_t nvmlDeviceSetApplicationsClocks(nvmlDevice_t device, unsigned int memClockMHz,
                                             unsigned int graphicsClockMHz) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    unsigned memory[2], clocks[MAX_CLOCKS];

    if (is_consumer(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(is_one_of(memory, memory_clocks(&t, memory), memClockMHz) &&
            is_one_of(clocks, sm_clocks(&t, clocks), graphicsClockMHz));
    t.gpu->app_memory_mhz = memClockMHz;
    t.gpu->app_sm_mhz = graphicsClockMHz;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceResetApplicationsClocks(nvmlDevice_t device) {
    ENTER(t, device, ON_GPU | BY_ROOT);

    if (is_consumer(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    t.gpu->app_memory_mhz = 0;
    t.gpu->app_sm_mhz = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetGpuLockedClocks(nvmlDevice_t device, unsigned int minGpuClockMHz,
                                          unsigned int maxGpuClockMHz) {
    ENTER(t, device, ON_GPU | BY_ROOT);

    if (minGpuClockMHz == NVML_CLOCK_LIMIT_ID_TDP)
        minGpuClockMHz = t.model->sm_clock_base_mhz;
    if (maxGpuClockMHz == NVML_CLOCK_LIMIT_ID_TDP)
        maxGpuClockMHz = t.model->sm_clock_base_mhz;
    else if (maxGpuClockMHz == NVML_CLOCK_LIMIT_ID_UNLIMITED)
        maxGpuClockMHz = t.model->sm_clock_max_mhz;
    REQUIRE(maxGpuClockMHz > 0 && minGpuClockMHz <= maxGpuClockMHz);
    /* the driver takes the nearest it has */
    t.gpu->locked_sm_min_mhz = MIN(minGpuClockMHz, t.model->sm_clock_max_mhz);
    t.gpu->locked_sm_max_mhz =
        clamp(maxGpuClockMHz, t.model->sm_clock_idle_mhz, t.model->sm_clock_max_mhz);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceResetGpuLockedClocks(nvmlDevice_t device) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    t.gpu->locked_sm_min_mhz = 0;
    t.gpu->locked_sm_max_mhz = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMemoryLockedClocks(nvmlDevice_t device, unsigned int minMemClockMHz,
                                             unsigned int maxMemClockMHz) {
    ENTER(t, device, ON_GPU | BY_ROOT);

    if (!has_idle_memory_clock(&t))
        return NVML_ERROR_NOT_SUPPORTED; /* nothing to choose from */
    REQUIRE(maxMemClockMHz > 0 && minMemClockMHz <= maxMemClockMHz);
    t.gpu->locked_memory_min_mhz = MIN(minMemClockMHz, t.model->memory_clock_mhz);
    t.gpu->locked_memory_max_mhz =
        clamp(maxMemClockMHz, MEMORY_IDLE_MHZ, t.model->memory_clock_mhz);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceResetMemoryLockedClocks(nvmlDevice_t device) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    t.gpu->locked_memory_min_mhz = 0;
    t.gpu->locked_memory_max_mhz = 0;
    return NVML_SUCCESS;
}

static unsigned long long event_reasons(struct target *t) {
    struct utilization_readings now;
    unsigned long long reasons = 0;

    clock_read(t, &now);
    if (now.utilization == 0)
        return nvmlClocksEventReasonGpuIdle;
    if (now.power_mw >= power_limit_mw(t))
        reasons |= nvmlClocksEventReasonSwPowerCap;
    if (now.temperature_c >= t->model->temperature_slowdown_c)
        reasons |= nvmlClocksEventReasonSwThermalSlowdown | nvmlClocksThrottleReasonHwSlowdown |
                   nvmlClocksThrottleReasonHwThermalSlowdown;
    if ((t->gpu->app_sm_mhz && now.sm_clock_mhz == t->gpu->app_sm_mhz) ||
        (t->gpu->locked_sm_max_mhz && now.sm_clock_mhz == t->gpu->locked_sm_max_mhz))
        reasons |= nvmlClocksEventReasonApplicationsClocksSetting;
    return reasons;
}

static const unsigned long long supported_reasons =
    nvmlClocksEventReasonGpuIdle | nvmlClocksEventReasonApplicationsClocksSetting |
    nvmlClocksEventReasonSwPowerCap | nvmlClocksThrottleReasonHwSlowdown |
    nvmlClocksEventReasonSyncBoost | nvmlClocksEventReasonSwThermalSlowdown |
    nvmlClocksThrottleReasonHwThermalSlowdown | nvmlClocksThrottleReasonHwPowerBrakeSlowdown |
    nvmlClocksEventReasonDisplayClockSetting;

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device,
                                                    unsigned long long *clocksEventReasons) {
    ENTER(t, device, ON_GPU);
    REQUIRE(clocksEventReasons);
    *clocksEventReasons = event_reasons(&t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                       unsigned long long *clocksThrottleReasons) {
    ENTER(t, device, ON_GPU);
    REQUIRE(clocksThrottleReasons);
    *clocksThrottleReasons = event_reasons(&t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedClocksEventReasons(
    nvmlDevice_t device, unsigned long long *supportedClocksEventReasons) {
    ENTER(t, device, ON_GPU);
    REQUIRE(supportedClocksEventReasons);
    *supportedClocksEventReasons = supported_reasons;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedClocksThrottleReasons(
    nvmlDevice_t device, unsigned long long *supportedClocksThrottleReasons) {
    ENTER(t, device, ON_GPU);
    REQUIRE(supportedClocksThrottleReasons);
    *supportedClocksThrottleReasons = supported_reasons;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pState) {
    ENTER(t, device, ON_ANY);
    struct utilization_readings now;

    REQUIRE(pState);
    utilization_read(t.box, t.part.gpu, &now);
    *pState = (nvmlPstates_t)now.performance_state;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerState(nvmlDevice_t device, nvmlPstates_t *pState) {
    ENTER(t, device, ON_ANY);
    struct utilization_readings now;

    REQUIRE(pState);
    utilization_read(t.box, t.part.gpu, &now);
    *pState = (nvmlPstates_t)now.performance_state;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedPerformanceStates(nvmlDevice_t device, nvmlPstates_t *pstates,
                                                     unsigned int size) {
    ENTER(t, device, ON_GPU);
    nvmlPstates_t has[] = { NVML_PSTATE_0, NVML_PSTATE_8 };
    unsigned n = has_idle_memory_clock(&t) ? 2 : 1, room = size / (unsigned)sizeof(*pstates);

    REQUIRE(pstates);
    if (room < n)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < room; i++)
        pstates[i] = i < n ? has[i] : NVML_PSTATE_UNKNOWN;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinMaxClockOfPState(nvmlDevice_t device, nvmlClockType_t type,
                                              nvmlPstates_t pstate, unsigned int *minClockMHz,
                                              unsigned int *maxClockMHz) {
    ENTER(t, device, ON_GPU);
    bool idle = pstate == NVML_PSTATE_8;
    nvmlReturn_t r;

    REQUIRE(minClockMHz && maxClockMHz);
    if (pstate != NVML_PSTATE_0 && !(idle && has_idle_memory_clock(&t)))
        return NVML_ERROR_NOT_SUPPORTED;
    r = pick(type, t.model->sm_clock_idle_mhz, idle ? MEMORY_IDLE_MHZ : t.model->memory_clock_mhz,
             video_of(t.model->sm_clock_idle_mhz), minClockMHz);
    if (r != NVML_SUCCESS)
        return r;
    if (idle)
        return pick(type, t.model->sm_clock_idle_mhz, MEMORY_IDLE_MHZ,
                    video_of(t.model->sm_clock_idle_mhz), maxClockMHz);
    return maximum(&t, type, maxClockMHz);
}
