/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/nvml_events.h"

#include <errno.h>

#include "driver/nvml_calls.h"

struct nvml_events {
    const struct nvml *nvml;
    nvmlEventSet_t set;
};

static const struct {
    unsigned long long bit;
    enum nvml_event_type type;
} types[] = {
    { nvmlEventTypeXidCriticalError, NVML_EVENT_XID },
    { nvmlEventTypeSingleBitEccError, NVML_EVENT_ECC_CORRECTED },
    { nvmlEventTypeSingleBitEccErrorStorm, NVML_EVENT_ECC_CORRECTED },
    { nvmlEventTypeDoubleBitEccError, NVML_EVENT_ECC_UNCORRECTED },
    { nvmlEventMigConfigChange, NVML_EVENT_MIG_CHANGED },
    { nvmlEventTypeGpuUnavailableError, NVML_EVENT_UNAVAILABLE },
    { nvmlEventTypeGpuRecoveryAction, NVML_EVENT_UNAVAILABLE },
    { nvmlEventTypeDramRetirementEvent, NVML_EVENT_OTHER },
    { nvmlEventTypeDramRetirementFailure, NVML_EVENT_OTHER },
    { nvmlEventTypeNonFatalPoisonError, NVML_EVENT_OTHER },
    { nvmlEventTypeFatalPoisonError, NVML_EVENT_OTHER },
};

int nvml_events_new(struct nvml_events **ret, const struct nvml *nvml, struct allot_error *err) {
    cleanup(freep) struct nvml_events *events = calloc(1, sizeof(*events));
    int r;

    if (!events)
        return error_set(err, -ENOMEM, "out of memory");
    events->nvml = nvml;
    r = nvml_try_event_set_create(nvml, NULL, err, &events->set);
    if (r < 0)
        return r;
    *ret = TAKE(events);
    return 0;
}

struct nvml_events *nvml_events_free(struct nvml_events *events) {
    if (!events)
        return NULL;
    nvml_try_event_set_free(events->nvml, NULL, NULL, events->set);
    free(events);
    return NULL;
}

int nvml_events_add(struct nvml_events *events, const struct nvml_device *device,
                    struct allot_error *err) {
    unsigned long long supported, wanted = 0;
    int r;

    r = nvml_try_supported_events(events->nvml, device, err, device->handle, &supported);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ELEMENTSOF(types); i++)
        wanted |= supported & types[i].bit;
    if (!wanted)
        return error_set(err, -EOPNOTSUPP, "%s reports no events", device->label);
    return nvml_try_register_events(events->nvml, device, err, device->handle, wanted, events->set);
}

int nvml_events_wait(struct nvml_events *events, unsigned timeout_msec, struct nvml_event *ret,
                     struct allot_error *err) {
    const struct nvml *nvml = events->nvml;
    /* Version 1 does not set the instance ids. */
    nvmlEventData_t data = { .gpuInstanceId = UINT32_MAX, .computeInstanceId = UINT32_MAX };
    struct nvml_event event;
    int r;

    r = nvml->calls.event_set_wait_v2
            ? nvml_try_event_set_wait_v2(nvml, NULL, err, events->set, &data, timeout_msec)
            : nvml_try_event_set_wait_v1(nvml, NULL, err, events->set, &data, timeout_msec);
    if (r < 0)
        return r;
    event = (struct nvml_event){
        .type = NVML_EVENT_OTHER,
        .handle = data.device,
        .data = data.eventData,
        .gpu_instance = data.gpuInstanceId,
        .compute_instance = data.computeInstanceId,
    };
    for (size_t i = 0; i < ELEMENTSOF(types); i++)
        if (data.eventType & types[i].bit) {
            event.type = types[i].type;
            break;
        }
    *ret = event;
    return 0;
}
