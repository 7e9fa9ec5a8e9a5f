/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread has its own copy of the devices, so it shares only a flag with the reader. NVML cannot
 * be woken while it waits: it waits WAIT_MSEC at a time, so ending it may take that long.
 */
#include "daemon/hand/reader/events.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "driver/driver.h"
#include "driver/nvml_events.h"

#define WAIT_MSEC 300

struct listened {
    struct nvmlDevice_st *handle; /* of an instance: its GPU's */
    struct gpuid id;
    uint32_t gpu_instance, compute_instance; /* of an instance */
    bool is_mig;
};

struct events_listener {
    pthread_t thread;
    atomic_bool stop;
    struct nvml_events *events;
    atomic_bool *is_changed;
    events_listener_fn tell;
    void *userdata;
    size_t n;
    struct listened devices[SAMPLE_DEVICES_MAX];
};

static enum sample_event_kind event_kind(enum nvml_event_type type) {
    switch (type) {
    case NVML_EVENT_XID:
        return SAMPLE_EVENT_XID;
    case NVML_EVENT_ECC_CORRECTED:
        return SAMPLE_EVENT_ECC_CORRECTED;
    case NVML_EVENT_ECC_UNCORRECTED:
        return SAMPLE_EVENT_ECC_UNCORRECTED;
    case NVML_EVENT_MIG_CHANGED:
        return SAMPLE_EVENT_MIG_CHANGED;
    case NVML_EVENT_UNAVAILABLE:
        return SAMPLE_EVENT_UNAVAILABLE;
    case NVML_EVENT_OTHER:
        break;
    }
    return SAMPLE_EVENT_OTHER;
}

/* The device of an event: its instance where the driver says which and it is known. */
static const struct gpuid *event_device(const struct events_listener *listener,
                                        const struct nvml_event *event) {
    const struct gpuid *gpu = NULL;

    for (size_t i = 0; i < listener->n; i++) {
        if (listener->devices[i].handle != event->handle)
            continue;
        if (!listener->devices[i].is_mig)
            gpu = &listener->devices[i].id;
        else if (listener->devices[i].gpu_instance == event->gpu_instance &&
                 listener->devices[i].compute_instance == event->compute_instance)
            return &listener->devices[i].id;
    }
    return gpu;
}

static void *listen_loop(void *argument) {
    struct events_listener *listener = argument;

    while (!atomic_load(&listener->stop)) {
        const struct gpuid *id;
        struct nvml_event event;
        int r = nvml_events_wait(listener->events, WAIT_MSEC, &event, NULL);

        if (r == -ETIMEDOUT)
            continue;
        if (r < 0) {
            /* A lost device wakes the waiter with an error; the samples say more about it. */
            atomic_store(listener->is_changed, true);
            if (driver_is_gone(r) && r != -ENXIO && r != -ENOTRECOVERABLE)
                break;
            for (int i = 0; i < 10 && !atomic_load(&listener->stop); i++)
                nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
            continue;
        }
        atomic_store(listener->is_changed, true);
        id = event_device(listener, &event);
        if (id)
            listener->tell(listener->userdata,
                           &(struct sample_event){ .kind = event_kind(event.type),
                                                   .device = *id,
                                                   .data = event.data,
                                                   .at_usec = clock_usec(CLOCK_BOOTTIME) });
    }
    return NULL;
}

/* The i-th device as it would be listened to; false: it is not open. */
static bool entry_of(const struct device_reader *devices, size_t n, size_t i,
                     struct listened *ret) {
    const struct device_reader *gpu = &devices[i];

    for (size_t j = 0; devices[i].seen.is_mig && j < n; j++)
        if (gpuid_equal(&devices[j].seen.id, &devices[i].seen.parent))
            gpu = &devices[j];
    if (!gpu->handle.handle)
        return false;
    *ret = (struct listened){
        .handle = gpu->handle.handle,
        .id = devices[i].seen.id,
        .is_mig = devices[i].seen.is_mig,
        .gpu_instance = devices[i].seen.gpu_instance,
        .compute_instance = devices[i].seen.compute_instance,
    };
    return true;
}

bool events_listener_fits(const struct events_listener *listener,
                          const struct device_reader *devices, size_t n) {
    struct listened entry;
    size_t n_open = 0;

    if (!listener)
        return false;
    for (size_t i = 0; i < n; i++) {
        const struct listened *mine = &listener->devices[n_open];

        if (!entry_of(devices, n, i, &entry))
            continue;
        if (n_open++ >= listener->n || mine->handle != entry.handle ||
            mine->is_mig != entry.is_mig || mine->gpu_instance != entry.gpu_instance ||
            mine->compute_instance != entry.compute_instance || !gpuid_equal(&mine->id, &entry.id))
            return false;
    }
    return n_open == listener->n;
}

int events_listener_new(struct events_listener **ret, const struct nvml *nvml,
                        const struct device_reader *devices, size_t n, atomic_bool *is_changed,
                        events_listener_fn tell, void *userdata) {
    struct events_listener *listener = calloc(1, sizeof(*listener));
    size_t n_events = 0;
    int r;

    if (!listener)
        return -ENOMEM;
    listener->is_changed = is_changed;
    listener->tell = tell;
    listener->userdata = userdata;
    r = nvml_events_new(&listener->events, nvml, NULL);
    if (r < 0)
        goto fail;
    for (size_t i = 0; i < n && listener->n < ELEMENTSOF(listener->devices); i++) {
        if (!entry_of(devices, n, i, &listener->devices[listener->n]))
            continue;
        listener->n++;
        if (!devices[i].seen.is_mig &&
            nvml_events_add(listener->events, &devices[i].handle, NULL) == 0)
            n_events++;
    }
    r = n_events ? -pthread_create(&listener->thread, NULL, listen_loop, listener) : -EOPNOTSUPP;
    if (r < 0)
        goto fail;
    *ret = listener;
    return 0;
fail:
    nvml_events_free(listener->events);
    free(listener);
    return r;
}

struct events_listener *events_listener_free(struct events_listener *listener) {
    if (!listener)
        return NULL;
    atomic_store(&listener->stop, true);
    pthread_join(listener->thread, NULL);
    nvml_events_free(listener->events);
    free(listener);
    return NULL;
}
