/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Events of devices: NVML wakes the waiting thread. See driver/nvml.h.
 *
 * One thread waits on a set at a time; others may add devices to it meanwhile.
 */
#include "driver/nvml.h"

struct nvml_events;

enum nvml_event_type {
    NVML_EVENT_XID = 1 << 0, /* `data` is the number */
    NVML_EVENT_ECC_CORRECTED = 1 << 1,
    NVML_EVENT_ECC_UNCORRECTED = 1 << 2,
    NVML_EVENT_MIG_CHANGED = 1 << 3,
    NVML_EVENT_UNAVAILABLE = 1 << 4, /* the GPU cannot be used, or asks to be recovered */
    NVML_EVENT_OTHER = 1 << 5,       /* memory retired, poisoned data; the reading says more */
};

struct nvml_event {
    enum nvml_event_type type;
    struct nvmlDevice_st *handle; /* of the device, to compare with nvml_device.handle */
    uint64_t data;
    uint32_t gpu_instance, compute_instance; /* UINT32_MAX: not from an instance */
};

/* An empty set; `nvml` must outlive it. */
int nvml_events_new(struct nvml_events **ret, const struct nvml *nvml, struct allot_error *err);
struct nvml_events *nvml_events_free(struct nvml_events *events); /* accepts NULL, returns NULL */
DEFINE_FREEP(struct nvml_events, nvml_events_freep, nvml_events_free)

/* Add the events of `device` to the set: all types above that it can report. -EOPNOTSUPP if none.
 */
int nvml_events_add(struct nvml_events *events, const struct nvml_device *device,
                    struct allot_error *err);

/* Wait for the next event; -ETIMEDOUT if none comes within `timeout_msec`. */
int nvml_events_wait(struct nvml_events *events, unsigned timeout_msec, struct nvml_event *ret,
                     struct allot_error *err);
