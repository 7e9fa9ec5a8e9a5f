/* SPDX-License-Identifier: Apache-2.0 */
/* The answers of the fake NVML: two GPUs, of which the first may be in MIG mode. */
#pragma GCC visibility push(default)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#pragma GCC visibility pop

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/fake/fake.h"

FAKE_EXPORT struct fake fake = {
    .driver = "550.54.14",
    .total = 1000,
    .reserved = 100,
    .free = 600,
    .used = 300,
};

#ifdef FAKE_MARKER
FAKE_EXPORT const char gpusimMarker[] = "a fake of the simulator";
#endif

/* The device handles are the addresses of these: GPUs 0 and 1, then the instances of GPU 0. */
static char handles[4];

static unsigned number_of(nvmlDevice_t device) {
    return (unsigned)((char *)(void *)device - handles);
}

static nvmlDevice_t handle_of(unsigned number) {
    return (nvmlDevice_t)(void *)&handles[number];
}

static const char *const uuids[] = {
    "GPU-00000000-0000-0000-0000-000000000000",
    "GPU-11111111-1111-1111-1111-111111111111",
    "MIG-22222222-2222-2222-2222-222222222222",
    "MIG-33333333-3333-3333-3333-333333333333",
};

#define ANSWER(...)                                                                                \
    if (fake.code)                                                                                 \
        return (nvmlReturn_t)fake.code;                                                            \
    __VA_ARGS__                                                                                    \
    return NVML_SUCCESS

nvmlReturn_t nvmlInit_v2(void) {
    if (fake.init_usec)
        usleep(fake.init_usec);
    if (!fake.init_code)
        __atomic_add_fetch(&fake.n_init, 1, __ATOMIC_RELAXED);
    return (nvmlReturn_t)fake.init_code;
}

nvmlReturn_t nvmlShutdown(void) {
    fake.n_done++;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "%s", fake.driver);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    ANSWER(*count = 2;);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    if (index >= 2)
        return NVML_ERROR_INVALID_ARGUMENT;
    ANSWER(*device = handle_of(index););
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    for (unsigned i = 0; i < 4; i++)
        if (strcmp(uuid, uuids[i]) == 0) {
            ANSWER(*device = handle_of(i););
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    ANSWER(snprintf(uuid, length, "%s", uuids[number_of(device)]););
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    ANSWER(snprintf(name, length, "Fake %u", number_of(device)););
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    ANSWER({
        memset(pci, 0, sizeof(*pci));
        pci->domain = 1;
        pci->bus = 0x3b + number_of(device);
        pci->pciDeviceId = 0x20b010de;
    });
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ANSWER(*memory = ((nvmlMemory_t){ fake.total, fake.free, fake.total - fake.free }););
}

/* One version of a list: the count that is wanted where it does not fit. */
#define LIST(type, list, n_list, fill)                                                             \
    unsigned n = n_list + fake.grows_by;                                                           \
                                                                                                   \
    if (fake.code)                                                                                 \
        return (nvmlReturn_t)fake.code;                                                            \
    if (*count < n) {                                                                              \
        *count = n_list;                                                                           \
        return NVML_ERROR_INSUFFICIENT_SIZE;                                                       \
    }                                                                                              \
    *count = n_list;                                                                               \
    for (unsigned i = 0; i < n_list; i++) {                                                        \
        const struct fake_process *p = &list[i];                                                   \
        type info = fill;                                                                          \
                                                                                                   \
        memcpy((char *)infos + i * sizeof(info), &info, sizeof(info));                             \
    }                                                                                              \
    return NVML_SUCCESS;

#define V1                                                                                         \
    { p->pid, p->used }
#define V2                                                                                         \
    { p->pid, p->used, p->gpu_instance, p->compute_instance }
#define WIDE                                                                                       \
    { p->pid, p->used, p->gpu_instance, p->compute_instance, 0 }

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *count,
                                                  nvmlProcessInfo_v1_t *infos){
    LIST(nvmlProcessInfo_v1_t, fake.compute, fake.n_compute, V1)
}
#ifndef FAKE_BARE
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_v2_t *infos){
    LIST(nvmlProcessInfo_v2_t, fake.compute, fake.n_compute, V2)
}

/* The early 535 wrote 32 bytes a record. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                     nvmlProcessInfo_t *infos) {
    if (strcmp(fake.driver, "535.54.03") == 0) {
        LIST(nvmlProcessDetail_v1_t, fake.compute, fake.n_compute, WIDE)
    }
    LIST(nvmlProcessInfo_t, fake.compute, fake.n_compute, V2)
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_v2_t *infos){
    LIST(nvmlProcessInfo_v2_t, fake.graphics, fake.n_graphics, V2)
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                      nvmlProcessInfo_t *infos){
    LIST(nvmlProcessInfo_t, fake.graphics, fake.n_graphics, V2)
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count,
                                                        nvmlProcessInfo_t *infos) {
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned *count,
                                                        nvmlProcessInfo_v2_t *infos) {
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    ANSWER(*memory = ((nvmlMemory_v2_t){ memory->version, fake.total, fake.reserved, fake.free,
                                         fake.used }););
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    if (strcmp(bus_id, "00000001:3C:00.0") != 0)
        return NVML_ERROR_NOT_FOUND;
    ANSWER(*device = handle_of(1););
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    ANSWER(*index = number_of(device););
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    ANSWER(*minor = 7 - number_of(device););
}

nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned size, unsigned long *nodes,
                                         nvmlAffinityScope_t scope) {
    ANSWER({
        memset(nodes, 0, size * sizeof(*nodes));
        nodes[1] = 4; /* node 66 */
    });
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *use) {
    ANSWER(*use = ((nvmlUtilization_t){ 42, (unsigned)NVML_VALUE_NOT_AVAILABLE }););
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature) {
    return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensor,
                                      unsigned *degrees) {
    ANSWER(*degrees = 37;);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *limit) {
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, nvmlMemoryErrorType_t type,
                                         nvmlEccCounterType_t counter, unsigned long long *n) {
    ANSWER(*n = 10 * (unsigned)type + (unsigned)counter;);
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                             nvmlProcessUtilizationSample_t *samples,
                                             unsigned *count, unsigned long long since) {
    static const nvmlProcessUtilizationSample_t all[] = {
        { 100, 5000, 50, 20, 0, 0 },   { 101, 900, 1, 1, 1, 1 },
        { 102, 6000, 37100, 0, 0, 0 }, /* seen on real drivers */
        { 0, 7000, 0, 0, 0, 0 },       { 103, 8000, 100, 100, 3, 4 },
    };

    if (fake.code)
        return (nvmlReturn_t)fake.code;
    if (since > 10000)
        return NVML_ERROR_NOT_FOUND;
    memcpy(samples, all, sizeof(all));
    *count = 5;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    if (number_of(device) != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    ANSWER(*current = *pending = fake.is_mig;);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    ANSWER(*count = 7;);
}

/* Numbers 1 and 4 of 7: there are holes in between. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index,
                                                 nvmlDevice_t *mig) {
    if (index != 1 && index != 4)
        return NVML_ERROR_NOT_FOUND;
    ANSWER(*mig = handle_of(index == 1 ? 2 : 3););
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    ANSWER(*id = number_of(device) - 1;);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    ANSWER(*id = 0;);
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    if (number_of(device) == 3)
        return NVML_ERROR_NOT_SUPPORTED;
    ANSWER(*attributes = ((nvmlDeviceAttributes_t){
               .multiprocessorCount = 14,
               .gpuInstanceSliceCount = 1,
               .computeInstanceSliceCount = 1,
               .memorySizeMB = 4864,
           }););
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    ANSWER(*device = handle_of(0););
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b,
                                                 nvmlGpuTopologyLevel_t *level) {
    ANSWER(*level = NVML_TOPOLOGY_HOSTBRIDGE;);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index,
                                    nvmlGpuP2PStatus_t *status) {
    ANSWER(*status = index == NVML_P2P_CAPS_INDEX_NVLINK ? NVML_P2P_STATUS_GPU_NOT_SUPPORTED
                                                         : NVML_P2P_STATUS_OK;);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned *generation) {
    ANSWER(*generation = 4;);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned *width) {
    ANSWER(*width = 16;);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, nvmlEnableState_t *up) {
    if (link >= 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    ANSWER(*up = link != 1;);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link,
                                                 nvmlIntNvLinkDeviceType_t *type) {
    ANSWER(*type = link == 0 ? NVML_NVLINK_DEVICE_TYPE_SWITCH : NVML_NVLINK_DEVICE_TYPE_GPU;);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link,
                                                 nvmlPciInfo_t *pci) {
    if (link == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    ANSWER(*pci = ((nvmlPciInfo_t){ .domain = 1, .bus = 0x3c }););
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits) {
    if (strcmp(limits->nameSpace, "/sys/fs/cgroup/job") != 0)
        return NVML_ERROR_OPERATING_SYSTEM;
    ANSWER({
        fake.soft = limits->softLimit;
        fake.hard = limits->hardLimit;
    });
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
    ANSWER({
        limits->softLimit = fake.soft;
        limits->hardLimit = fake.hard;
        limits->currentUsed = 77;
    });
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    ANSWER(*types = number_of(device) == 0 ? nvmlEventTypeAll : nvmlEventTypeClock;);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types,
                                      nvmlEventSet_t set) {
    if (types & (nvmlEventTypeClock | nvmlEventTypePState))
        return NVML_ERROR_INVALID_ARGUMENT; /* nobody wants to be woken by those */
    ANSWER();
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    if (!fake.event)
        return NVML_ERROR_TIMEOUT;
    ANSWER(*data = ((nvmlEventData_t){ handle_of(0), fake.event, 79, 1, 0 }););
}
#endif
