/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Utilization: the busy share of the wall time, of a GPU and of each process on it.
 *
 * Neither a GPU in MIG mode nor its instances have one, as with the vendor's driver.
 */
#include "sim/nvml/core.h"

enum {
    SAMPLING_PERIOD_US = 62500, /* a tick of sim/box/utilization.h */
};

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    ENTER(t, device, ON_GPU);
    struct utilization_readings now;

    REQUIRE(utilization);
    if (t.gpu->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    proc_reap(t.box);
    utilization_read(t.box, t.part.gpu, &now);
    *utilization = (nvmlUtilization_t){ .gpu = now.utilization, .memory = now.memory_utilization };
    return NVML_SUCCESS;
}

/* The engines for video and optical flow, which the simulator never uses. */
#define ENGINES(X)                                                                                 \
    X(nvmlDeviceGetEncoderUtilization)                                                             \
    X(nvmlDeviceGetDecoderUtilization)                                                             \
    X(nvmlDeviceGetJpgUtilization)                                                                 \
    X(nvmlDeviceGetOfaUtilization)
#define X(name)                                                                                    \
    nvmlReturn_t name(nvmlDevice_t device, unsigned int *percent, unsigned int *period_us) {       \
        ENTER(t, device, ON_GPU);                                                                  \
                                                                                                   \
        REQUIRE(percent &&period_us);                                                              \
        if (t.gpu->mig_enabled)                                                                    \
            return NVML_ERROR_NOT_SUPPORTED;                                                       \
        *percent = 0;                                                                              \
        *period_us = SAMPLING_PERIOD_US;                                                           \
        return NVML_SUCCESS;                                                                       \
    }
ENGINES(X)
#undef X

nvmlReturn_t nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device,
                                             nvmlGpuDynamicPstatesInfo_t *pDynamicPstatesInfo) {
    ENTER(t, device, ON_GPU);
    struct utilization_readings now;

    REQUIRE(pDynamicPstatesInfo);
    if (t.gpu->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    utilization_read(t.box, t.part.gpu, &now);
    *pDynamicPstatesInfo = (nvmlGpuDynamicPstatesInfo_t){ 0 };
    for (unsigned i = 0; i <= NVML_GPU_UTILIZATION_DOMAIN_BUS; i++)
        pDynamicPstatesInfo->utilization[i].bIsPresent = 1;
    pDynamicPstatesInfo->utilization[NVML_GPU_UTILIZATION_DOMAIN_GPU].percentage = now.utilization;
    pDynamicPstatesInfo->utilization[NVML_GPU_UTILIZATION_DOMAIN_FB].percentage =
        now.memory_utilization;
    return NVML_SUCCESS;
}

/* What sample `s` shows for `type`. -1: there is no such sampling. */
static int64_t sampled(struct target *t, nvmlSamplingType_t type,
                       const struct utilization_sample *s) {
    struct utilization_readings now;

    switch (type) {
    case NVML_GPU_UTILIZATION_SAMPLES:
        return s->utilization;
    case NVML_MEMORY_UTILIZATION_SAMPLES:
        return s->memory_utilization;
    case NVML_ENC_UTILIZATION_SAMPLES:
    case NVML_DEC_UTILIZATION_SAMPLES:
    case NVML_JPG_UTILIZATION_SAMPLES:
    case NVML_OFA_UTILIZATION_SAMPLES:
        return 0;
    case NVML_TOTAL_POWER_SAMPLES:
        clock_read(t, &now);
        return now.power_mw;
    case NVML_PROCESSOR_CLK_SAMPLES:
        clock_read(t, &now);
        return now.sm_clock_mhz;
    case NVML_MEMORY_CLK_SAMPLES:
        clock_read(t, &now);
        return now.memory_clock_mhz;
    default:
        return -1;
    }
}

nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, nvmlSamplingType_t type,
                                  unsigned long long lastSeenTimeStamp,
                                  nvmlValueType_t *sampleValType, unsigned int *sampleCount,
                                  nvmlSample_t *samples) {
    ENTER(t, device, ON_GPU);
    struct utilization_sample history[BOX_BUSY_TICKS];
    unsigned first = 0, n;

    REQUIRE(sampleValType && sampleCount && !(samples && *sampleCount == 0) &&
            (unsigned)type < NVML_SAMPLINGTYPE_COUNT);
    if (type == NVML_MODULE_POWER_SAMPLES ||
        (t.gpu->mig_enabled && type != NVML_TOTAL_POWER_SAMPLES &&
         type != NVML_PROCESSOR_CLK_SAMPLES && type != NVML_MEMORY_CLK_SAMPLES))
        return NVML_ERROR_NOT_SUPPORTED;

    proc_reap(t.box);
    n = utilization_samples(t.box, t.part.gpu, history);
    while (first < n && history[first].at_us <= lastSeenTimeStamp)
        first++;
    if (first == n)
        return NVML_ERROR_NOT_FOUND;

    *sampleValType = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!samples) {
        *sampleCount = n - first;
        return NVML_SUCCESS;
    }
    *sampleCount = MIN(*sampleCount, n - first);
    for (unsigned i = 0; i < *sampleCount; i++) {
        samples[i] = (nvmlSample_t){ .timeStamp = history[first + i].at_us };
        samples[i].sampleValue.uiVal = (unsigned)sampled(&t, type, &history[first + i]);
    }
    return NVML_SUCCESS;
}

struct process_load {
    unsigned pid, sm, memory;
};

/* Processes that kept the GPU busy in the last second; NOT_FOUND: none since `last_seen_us`. */
static nvmlReturn_t loads(struct target *t, uint64_t last_seen_us, uint64_t now_us,
                          struct process_load ret[static BOX_MAX_PROCS], unsigned *ret_n) {
    struct process_row rows[BOX_MAX_PROCS];
    unsigned n, busy = 0;
    nvmlReturn_t r;

    if (t->gpu->mig_enabled)
        return NVML_ERROR_NOT_SUPPORTED;
    r = process_collect(t, PROC_COMPUTE | PROC_GRAPHICS, rows, &n);
    if (r != NVML_SUCCESS)
        return r;
    for (unsigned i = 0; i < n; i++) {
        unsigned compute =
            utilization_of_process(t->box, rows[i].slot, t->part.gpu, UTILIZATION_COMPUTE);
        unsigned memory =
            utilization_of_process(t->box, rows[i].slot, t->part.gpu, UTILIZATION_MEMORY);

        if (compute + memory > 0)
            ret[busy++] = (struct process_load){ rows[i].pid, MIN(compute + memory, 100u), memory };
    }
    if (busy == 0 || last_seen_us >= now_us)
        return NVML_ERROR_NOT_FOUND;
    *ret_n = busy;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *utilization,
                                             unsigned int *processSamplesCount,
                                             unsigned long long lastSeenTimeStamp) {
    ENTER(t, device, ON_GPU);
    struct process_load load[BOX_MAX_PROCS];
    uint64_t now_us = box_now_us();
    nvmlReturn_t r;
    unsigned n;

    REQUIRE(processSamplesCount);
    /*
     * The caller asks for the size of its buffer. One entry per process is enough; callers expect
     * INSUFFICIENT_SIZE, even if there is no process.
     */
    if (!utilization) {
        struct process_row rows[BOX_MAX_PROCS];

        if (t.gpu->mig_enabled)
            return NVML_ERROR_NOT_SUPPORTED;
        r = process_collect(&t, PROC_COMPUTE | PROC_GRAPHICS, rows, &n);
        if (r != NVML_SUCCESS)
            return r;
        *processSamplesCount = MAX(n, 1u);
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    r = loads(&t, lastSeenTimeStamp, now_us, load, &n);
    if (r == NVML_SUCCESS)
        r = core_give_list(processSamplesCount, utilization, n);
    for (unsigned i = 0; r == NVML_SUCCESS && i < n; i++)
        utilization[i] = (nvmlProcessUtilizationSample_t){
            .pid = load[i].pid,
            .timeStamp = now_us,
            .smUtil = load[i].sm,
            .memUtil = load[i].memory,
        };
    return r;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device,
                                                   nvmlProcessesUtilizationInfo_t *info) {
    ENTER(t, device, ON_GPU);
    struct process_load load[BOX_MAX_PROCS];
    uint64_t now_us = box_now_us();
    nvmlReturn_t r;
    unsigned n;

    REQUIRE_VERSION(info, nvmlProcessesUtilizationInfo_v1);
    r = loads(&t, info->lastSeenTimeStamp, now_us, load, &n);
    if (r != NVML_SUCCESS)
        return r;
    if (!info->procUtilArray)
        info->processSamplesCount = 0;
    r = core_give_list(&info->processSamplesCount, info->procUtilArray, n);
    if (r != NVML_SUCCESS)
        return r;
    for (unsigned i = 0; i < n; i++)
        info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
            .timeStamp = now_us,
            .pid = load[i].pid,
            .smUtil = load[i].sm,
            .memUtil = load[i].memory,
        };
    info->lastSeenTimeStamp = now_us;
    return NVML_SUCCESS;
}
