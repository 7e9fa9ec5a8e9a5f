/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * The calls of NVML that Allot makes, and struct nvml around them: for driver/nvml*.c only.
 *
 * A line of the table is X(needed, since, field, symbol, (parameters), (arguments)); X0 is the same
 * for a call without parameters. `since` is the driver release that first had the symbol, 0 if it
 * is older than any driver in use. nvml_check.c checks each line against the vendor's header.
 *
 * For each line there is nvml_try_FIELD(nvml, device, err, parameters…), which makes the call and
 * returns 0 or -errno with a text that names the call and the device (NULL: it concerns none).
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS /* do not rename functions to newer versions */
#include <nvml.h>
#include <string.h>

#include "driver/driver.h"
#include "driver/nvml.h"

/* clang-format off */
#define NVML_CALLS_SYSTEM(X, X0)                                                                   \
    X0(true, 0, init, nvmlInit_v2)                                                                 \
    X0(true, 0, shutdown, nvmlShutdown)                                                            \
    X(true, 0, driver_version, nvmlSystemGetDriverVersion,                                         \
      (char *version, unsigned length), (version, length))                                         \
    X(false, 0, nvml_version, nvmlSystemGetNVMLVersion,                                            \
      (char *version, unsigned length), (version, length))                                         \
    X(false, 418, cuda_version, nvmlSystemGetCudaDriverVersion_v2,                                 \
      (int *cuda_driver_version), (cuda_driver_version))

#define NVML_CALLS_DEVICE(X, X0)                                                                   \
    X(true, 0, device_count, nvmlDeviceGetCount_v2, (unsigned *device_count), (device_count))      \
    X(true, 0, device_by_index, nvmlDeviceGetHandleByIndex_v2,                                     \
      (unsigned index, nvmlDevice_t *device), (index, device))                                     \
    X(true, 0, device_by_uuid, nvmlDeviceGetHandleByUUID,                                          \
      (const char *uuid, nvmlDevice_t *device), (uuid, device))                                    \
    X(false, 0, device_by_bus_id, nvmlDeviceGetHandleByPciBusId_v2,                                \
      (const char *pci_bus_id, nvmlDevice_t *device), (pci_bus_id, device))                        \
    X(true, 0, device_uuid, nvmlDeviceGetUUID,                                                     \
      (nvmlDevice_t device, char *uuid, unsigned length), (device, uuid, length))                  \
    X(true, 0, device_name, nvmlDeviceGetName,                                                     \
      (nvmlDevice_t device, char *name, unsigned length), (device, name, length))                  \
    X(false, 0, device_index, nvmlDeviceGetIndex,                                                  \
      (nvmlDevice_t device, unsigned *index), (device, index))                                     \
    X(false, 0, device_minor, nvmlDeviceGetMinorNumber,                                            \
      (nvmlDevice_t device, unsigned *minor_number), (device, minor_number))                       \
    X(false, 0, device_serial, nvmlDeviceGetSerial,                                                \
      (nvmlDevice_t device, char *serial, unsigned length), (device, serial, length))              \
    X(false, 0, device_vbios, nvmlDeviceGetVbiosVersion,                                           \
      (nvmlDevice_t device, char *version, unsigned length), (device, version, length))            \
    X(true, 390, device_pci, nvmlDeviceGetPciInfo_v3,                                              \
      (nvmlDevice_t device, nvmlPciInfo_t *pci), (device, pci))                                    \
    X(false, 396, device_compute_capability, nvmlDeviceGetCudaComputeCapability,                   \
      (nvmlDevice_t device, int *major, int *minor), (device, major, minor))                       \
    X(false, 495, device_cores, nvmlDeviceGetNumGpuCores,                                          \
      (nvmlDevice_t device, unsigned *num_cores), (device, num_cores))                             \
    X(false, 450, device_memory_affinity, nvmlDeviceGetMemoryAffinity,                             \
      (nvmlDevice_t device, unsigned node_set_size, unsigned long *node_set,                       \
       nvmlAffinityScope_t scope),                                                                 \
      (device, node_set_size, node_set, scope))

#define NVML_CALLS_READING(X, X0)                                                                  \
    X(true, 0, memory_info, nvmlDeviceGetMemoryInfo,                                               \
      (nvmlDevice_t device, nvmlMemory_t *memory), (device, memory))                               \
    X(false, 510, memory_info_v2, nvmlDeviceGetMemoryInfo_v2,                                      \
      (nvmlDevice_t device, nvmlMemory_v2_t *memory), (device, memory))                            \
    X(false, 0, utilization, nvmlDeviceGetUtilizationRates,                                        \
      (nvmlDevice_t device, nvmlUtilization_t *utilization), (device, utilization))                \
    X(false, 0, temperature, nvmlDeviceGetTemperature,                                             \
      (nvmlDevice_t device, nvmlTemperatureSensors_t sensor_type, unsigned *temp),                 \
      (device, sensor_type, temp))                                                                 \
    X(false, 570, temperature_v, nvmlDeviceGetTemperatureV,                                        \
      (nvmlDevice_t device, nvmlTemperature_t *temperature), (device, temperature))                \
    X(false, 0, power_usage, nvmlDeviceGetPowerUsage,                                              \
      (nvmlDevice_t device, unsigned *power), (device, power))                                     \
    X(false, 0, power_limit, nvmlDeviceGetEnforcedPowerLimit,                                      \
      (nvmlDevice_t device, unsigned *limit), (device, limit))                                     \
    X(false, 0, clock, nvmlDeviceGetClockInfo,                                                     \
      (nvmlDevice_t device, nvmlClockType_t type, unsigned *clock), (device, type, clock))         \
    X(false, 0, ecc_errors, nvmlDeviceGetTotalEccErrors,                                           \
      (nvmlDevice_t device, nvmlMemoryErrorType_t error_type, nvmlEccCounterType_t counter_type,   \
       unsigned long long *ecc_counts),                                                            \
      (device, error_type, counter_type, ecc_counts))                                              \
    X(false, 450, remapped_rows, nvmlDeviceGetRemappedRows,                                        \
      (nvmlDevice_t device, unsigned *corr_rows, unsigned *unc_rows, unsigned *is_pending,         \
       unsigned *failure_occurred),                                                                \
      (device, corr_rows, unc_rows, is_pending, failure_occurred))

#define NVML_CALLS_PROCESS(X, X0)                                                                  \
    X(true, 0, compute_processes_v1, nvmlDeviceGetComputeRunningProcesses,                         \
      (nvmlDevice_t device, unsigned *info_count, nvmlProcessInfo_v1_t *infos),                    \
      (device, info_count, infos))                                                                 \
    X(false, 455, compute_processes_v2, nvmlDeviceGetComputeRunningProcesses_v2,                   \
      (nvmlDevice_t device, unsigned *info_count, nvmlProcessInfo_v2_t *infos),                    \
      (device, info_count, infos))                                                                 \
    X(false, 510, compute_processes_v3, nvmlDeviceGetComputeRunningProcesses_v3,                   \
      (nvmlDevice_t device, unsigned *info_count, nvmlProcessInfo_t *infos),                       \
      (device, info_count, infos))                                                                 \
    X(false, 0, graphics_processes_v1, nvmlDeviceGetGraphicsRunningProcesses,                      \
      (nvmlDevice_t device, unsigned *info_count, nvmlProcessInfo_v1_t *infos),                    \
      (device, info_count, infos))                                                                 \
    X(false, 455, graphics_processes_v2, nvmlDeviceGetGraphicsRunningProcesses_v2,                 \
      (nvmlDevice_t device, unsigned *info_count, nvmlProcessInfo_v2_t *infos),                    \
      (device, info_count, infos))                                                                 \
    X(false, 510, graphics_processes_v3, nvmlDeviceGetGraphicsRunningProcesses_v3,                 \
      (nvmlDevice_t device, unsigned *info_count, nvmlProcessInfo_t *infos),                       \
      (device, info_count, infos))                                                                 \
    X(false, 455, mps_processes_v1, nvmlDeviceGetMPSComputeRunningProcesses,                       \
      (nvmlDevice_t device, unsigned *info_count, nvmlProcessInfo_v1_t *infos),                    \
      (device, info_count, infos))                                                                 \
    X(false, 455, mps_processes_v2, nvmlDeviceGetMPSComputeRunningProcesses_v2,                    \
      (nvmlDevice_t device, unsigned *info_count, nvmlProcessInfo_v2_t *infos),                    \
      (device, info_count, infos))                                                                 \
    X(false, 510, mps_processes_v3, nvmlDeviceGetMPSComputeRunningProcesses_v3,                    \
      (nvmlDevice_t device, unsigned *info_count, nvmlProcessInfo_t *infos),                       \
      (device, info_count, infos))                                                                 \
    X(false, 375, process_utilization, nvmlDeviceGetProcessUtilization,                            \
      (nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,                           \
       unsigned *process_samples_count, unsigned long long last_seen_time_stamp),                  \
      (device, utilization, process_samples_count, last_seen_time_stamp))

#define NVML_CALLS_EVENT(X, X0)                                                                    \
    X(false, 0, event_set_create, nvmlEventSetCreate, (nvmlEventSet_t *set), (set))                \
    X(false, 0, event_set_free, nvmlEventSetFree, (nvmlEventSet_t set), (set))                     \
    X(false, 0, event_set_wait_v1, nvmlEventSetWait,                                               \
      (nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeoutms), (set, data, timeoutms))     \
    X(false, 450, event_set_wait_v2, nvmlEventSetWait_v2,                                          \
      (nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeoutms), (set, data, timeoutms))     \
    X(false, 0, register_events, nvmlDeviceRegisterEvents,                                         \
      (nvmlDevice_t device, unsigned long long event_types, nvmlEventSet_t set),                   \
      (device, event_types, set))                                                                  \
    X(false, 0, supported_events, nvmlDeviceGetSupportedEventTypes,                                \
      (nvmlDevice_t device, unsigned long long *event_types), (device, event_types))

#define NVML_CALLS_MIG(X, X0)                                                                      \
    X(false, 450, mig_mode, nvmlDeviceGetMigMode,                                                  \
      (nvmlDevice_t device, unsigned *current_mode, unsigned *pending_mode),                       \
      (device, current_mode, pending_mode))                                                        \
    X(false, 450, max_migs, nvmlDeviceGetMaxMigDeviceCount,                                        \
      (nvmlDevice_t device, unsigned *count), (device, count))                                     \
    X(false, 450, mig_by_index, nvmlDeviceGetMigDeviceHandleByIndex,                               \
      (nvmlDevice_t device, unsigned index, nvmlDevice_t *mig_device),                             \
      (device, index, mig_device))                                                                 \
    X(false, 450, gpu_instance_id, nvmlDeviceGetGpuInstanceId,                                     \
      (nvmlDevice_t device, unsigned *id), (device, id))                                           \
    X(false, 450, compute_instance_id, nvmlDeviceGetComputeInstanceId,                             \
      (nvmlDevice_t device, unsigned *id), (device, id))                                           \
    X(false, 455, device_attributes, nvmlDeviceGetAttributes_v2,                                   \
      (nvmlDevice_t device, nvmlDeviceAttributes_t *attributes), (device, attributes))

#define NVML_CALLS_LINK(X, X0)                                                                     \
    X(false, 0, common_ancestor, nvmlDeviceGetTopologyCommonAncestor,                              \
      (nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuTopologyLevel_t *path_info),             \
      (device1, device2, path_info))                                                               \
    X(false, 384, p2p_status, nvmlDeviceGetP2PStatus,                                              \
      (nvmlDevice_t device1, nvmlDevice_t device2, nvmlGpuP2PCapsIndex_t p2p_index,                \
       nvmlGpuP2PStatus_t *p2p_status),                                                            \
      (device1, device2, p2p_index, p2p_status))                                                   \
    X(false, 0, link_state, nvmlDeviceGetNvLinkState,                                              \
      (nvmlDevice_t device, unsigned link, nvmlEnableState_t *is_active),                          \
      (device, link, is_active))                                                                   \
    X(false, 0, link_version, nvmlDeviceGetNvLinkVersion,                                          \
      (nvmlDevice_t device, unsigned link, unsigned *version), (device, link, version))            \
    X(false, 396, link_remote_pci, nvmlDeviceGetNvLinkRemotePciInfo_v2,                            \
      (nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci), (device, link, pci))               \
    X(false, 470, link_remote_type, nvmlDeviceGetNvLinkRemoteDeviceType,                           \
      (nvmlDevice_t device, unsigned link, nvmlIntNvLinkDeviceType_t *nv_link_device_type),        \
      (device, link, nv_link_device_type))                                                         \
    X(false, 0, pcie_generation, nvmlDeviceGetMaxPcieLinkGeneration,                               \
      (nvmlDevice_t device, unsigned *max_link_gen), (device, max_link_gen))                       \
    X(false, 0, pcie_width, nvmlDeviceGetMaxPcieLinkWidth,                                         \
      (nvmlDevice_t device, unsigned *max_link_width), (device, max_link_width))

#define NVML_CALLS_LIMIT(X, X0)                                                                    \
    X(false, 615, set_memory_limits, nvmlDeviceSetMemoryLimits_v1,                                 \
      (nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits), (device, limits))                   \
    X(false, 615, memory_limits, nvmlDeviceGetMemoryLimits_v1,                                     \
      (nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits), (device, limits))

#define NVML_CALLS(X, X0)                                                                          \
    NVML_CALLS_SYSTEM(X, X0)                                                                       \
    NVML_CALLS_DEVICE(X, X0)                                                                       \
    \
    NVML_CALLS_READING(X, X0)                                                                      \
    NVML_CALLS_PROCESS(X, X0)                                                                      \
    NVML_CALLS_EVENT(X, X0)                                                                        \
    NVML_CALLS_MIG(X, X0)                                                                          \
    NVML_CALLS_LINK(X, X0)                                                                         \
    NVML_CALLS_LIMIT(X, X0)
/* clang-format on */

struct nvml_calls {
#define X(needed, since, field, symbol, parameters, arguments) nvmlReturn_t(*field) parameters;
#define X0(needed, since, field, symbol)                       nvmlReturn_t (*field)(void);
    NVML_CALLS(X, X0)
#undef X
#undef X0
};

enum nvml_call {
#define X(needed, since, field, ...) NVML_CALL_##field,
    NVML_CALLS(X, X)
#undef X
        NVML_CALL_COUNT,
};

struct nvml {
    struct driver_object object; /* the first member, as driver_open() requires */
    struct nvml_calls calls;
    unsigned release, minor_release; /* 535, 154 of driver 535.154.05; 0: it does not say */
};

static inline const char *nvml_label(const struct nvml_device *device) {
    return device ? device->label : NULL;
}

#define NVML_TRY(field, ...)                                                                       \
    nvmlReturn_t code;                                                                             \
                                                                                                   \
    if (!nvml->calls.field || nvml->object.generation != driver_generation)                        \
        return driver_refuse(&nvml->object, NVML_CALL_##field, nvml_label(for_device), err);       \
    code = nvml->calls.field(__VA_ARGS__);                                                         \
    if (code == NVML_SUCCESS)                                                                      \
        return 0;                                                                                  \
    return driver_fail(&nvml->object, NVML_CALL_##field, nvml_label(for_device), (int)code, err);

#define X(needed, since, field, symbol, parameters, arguments)                                     \
    static inline int nvml_try_##field(const struct nvml *nvml,                                    \
                                       const struct nvml_device *for_device,                       \
                                       struct allot_error *err, DRIVER_UNPACK parameters) {        \
        NVML_TRY(field, DRIVER_UNPACK arguments)                                                   \
    }
#define X0(needed, since, field, symbol)                                                           \
    static inline int nvml_try_##field(                                                            \
        const struct nvml *nvml, const struct nvml_device *for_device, struct allot_error *err) {  \
        NVML_TRY(field)                                                                            \
    }
NVML_CALLS(X, X0)
#undef X
#undef X0
#undef NVML_TRY
