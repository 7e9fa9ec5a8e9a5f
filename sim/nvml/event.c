/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Event: waiting until something happens to a GPU.
 *
 * A set remembers how far it has read the box's ring of events and what it wants of each GPU;
 * waiting is sleeping on the ring's futex. Sets are kept in a list so that a handle can be checked
 * by looking for it; a set that is freed while a thread waits on it lives until that thread is out.
 */
#include "sim/nvml/core.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "sim/box/event.h"
#include "sim/box/fault.h"

enum {
    EVENT_TYPES = 16, /* bits of nvmlEventTypeAll */
};

struct nvmlEventSet_st {
    struct nvmlEventSet_st *next;
    unsigned refs;   /* the handle's and one per waiting thread */
    uint64_t cursor; /* last event looked at */
    bool freed;
    unsigned long long types[BOX_MAX_GPUS];    /* wanted, 0: not registered */
    uint64_t since[BOX_MAX_GPUS][EVENT_TYPES]; /* last event before the type was asked for */
};

static pthread_mutex_t sets_lock =
    PTHREAD_MUTEX_INITIALIZER; /* may be taken while the box is locked */
static struct nvmlEventSet_st *sets;

static void sets_fork_prepare(void) {
    pthread_mutex_lock(&sets_lock);
}

static void sets_fork_done(void) {
    pthread_mutex_unlock(&sets_lock);
}

__attribute__((constructor)) static void sets_load(void) {
    (void)pthread_atfork(sets_fork_prepare, sets_fork_done, sets_fork_done);
}

/* The set behind a handle, referenced; NULL: there is none. */
static struct nvmlEventSet_st *set_get(nvmlEventSet_t handle) {
    struct nvmlEventSet_st *set;

    pthread_mutex_lock(&sets_lock);
    for (set = sets; set; set = set->next)
        if (set == handle && !set->freed) {
            set->refs++;
            break;
        }
    pthread_mutex_unlock(&sets_lock);
    return set;
}

static void set_unref(struct nvmlEventSet_st *set) {
    bool last;

    pthread_mutex_lock(&sets_lock);
    last = --set->refs == 0;
    for (struct nvmlEventSet_st **p = &sets; last && *p; p = &(*p)->next)
        if (*p == set) {
            *p = set->next;
            break;
        }
    pthread_mutex_unlock(&sets_lock);
    if (last)
        free(set);
}

static void set_unrefp(struct nvmlEventSet_st **set) {
    if (*set)
        set_unref(*set);
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    ENTER_BOX(t);
    struct nvmlEventSet_st *new;

    REQUIRE(set);
    new = calloc(1, sizeof(*new));
    if (!new)
        return NVML_ERROR_MEMORY;
    new->refs = 1;
    new->cursor = event_last(t.box);
    pthread_mutex_lock(&sets_lock);
    new->next = sets;
    sets = new;
    pthread_mutex_unlock(&sets_lock);
    *set = new;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    ENTER_BOX(t);
    struct nvmlEventSet_st *found = set_get(set);

    REQUIRE(found);
    pthread_mutex_lock(&sets_lock);
    found->freed = true;
    pthread_mutex_unlock(&sets_lock);
    set_unref(found);
    set_unref(found);
    event_wake(t.box); /* threads that wait on it find it freed */
    return NVML_SUCCESS;
}

static unsigned long long supported_types(const struct target *t) {
    unsigned long long types =
        nvmlEventTypePState | nvmlEventTypeXidCriticalError | nvmlEventTypeClock;

    if (t->gpu->ecc_enabled)
        types |= nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError;
    if (t->model->mig_profiles)
        types |= nvmlEventMigConfigChange;
    return types;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *eventTypes) {
    ENTER(t, device, ON_GPU);
    REQUIRE(eventTypes);
    *eventTypes = supported_types(&t);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes,
                                      nvmlEventSet_t set) {
    ENTER(t, device, ON_GPU);
    cleanup(set_unrefp) struct nvmlEventSet_st *found = set_get(set);

    REQUIRE(found && !(eventTypes & ~(unsigned long long)nvmlEventTypeAll));
    if (eventTypes & ~supported_types(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    for (unsigned type = 0; type < EVENT_TYPES; type++)
        if (eventTypes & ~found->types[t.part.gpu] & 1ull << type)
            found->since[t.part.gpu][type] = event_last(t.box);
    found->types[t.part.gpu] |= eventTypes;
    return NVML_SUCCESS;
}

static bool wants(const struct nvmlEventSet_st *set, const struct box_event *event) {
    unsigned type = event->type ? (unsigned)__builtin_ctzll(event->type) : EVENT_TYPES;

    return event->gpu < BOX_MAX_GPUS && type < EVENT_TYPES &&
           (set->types[event->gpu] & event->type) && event->seq > set->since[event->gpu][type];
}

/* The next event that the set wants. Needs the box locked. */
static nvmlReturn_t take(struct box *box, struct nvmlEventSet_st *set, nvmlEventData_t *ret) {
    struct box_event event;
    bool lost = false;

    while (event_next(box, &set->cursor, &event) == 0) {
        if (!wants(set, &event))
            continue;
        /* only root sees the events of single instances, as with the vendor's driver */
        if (event.gi_id != UINT32_MAX && geteuid() != 0)
            continue;
        *ret = (nvmlEventData_t){
            .device = handle_of_gpu(event.gpu),
            .eventType = event.type,
            .eventData = event.data,
            .gpuInstanceId = event.gi_id,
            .computeInstanceId = event.ci_id,
        };
        return NVML_SUCCESS;
    }
    for (unsigned gpu = 0; gpu < box->n_gpus; gpu++)
        lost |= set->types[gpu] && box->file->gpu[gpu].lost;
    return lost ? NVML_ERROR_GPU_IS_LOST : NVML_ERROR_TIMEOUT;
}

static nvmlReturn_t wait_for(const char *call, nvmlEventSet_t handle, unsigned timeout_ms,
                             nvmlEventData_t *ret) {
    cleanup(set_unrefp) struct nvmlEventSet_st *set = NULL;
    struct box *box = core_box();
    uint64_t start_ns = box_now_ns();
    int code;

    if (!box)
        return NVML_ERROR_UNINITIALIZED;
    set = set_get(handle);
    REQUIRE(set);
    if (fault_call(box, call, -1, &code))
        return (nvmlReturn_t)code;

    for (;;) {
        uint64_t waited_ms = (box_now_ns() - start_ns) / 1000000;
        nvmlReturn_t r = core_lock(box);
        uint32_t seen;
        bool freed;

        if (r != NVML_SUCCESS)
            return r;
        r = take(box, set, ret);
        seen = __atomic_load_n(&box->file->event_futex, __ATOMIC_RELAXED);
        box_unlock(box);

        pthread_mutex_lock(&sets_lock);
        freed = set->freed;
        pthread_mutex_unlock(&sets_lock);
        if (freed)
            return NVML_ERROR_INVALID_ARGUMENT;
        if (r != NVML_ERROR_TIMEOUT || (timeout_ms != UINT32_MAX && waited_ms >= timeout_ms))
            return r;
        (void)event_wait(box, seen,
                         timeout_ms == UINT32_MAX ? UINT32_MAX : timeout_ms - (uint32_t)waited_ms);
    }
}

/* The first version of nvmlEventData_t ends before the MIG ids. */
nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms) {
    nvmlEventData_t whole;
    nvmlReturn_t r;

    if (!data)
        return core_box() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
    r = wait_for(__func__, set, timeoutms, &whole);
    if (r == NVML_SUCCESS)
        memcpy(data, &whole, offsetof(nvmlEventData_t, gpuInstanceId));
    return r;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data,
                                 unsigned int timeoutms) {
    nvmlEventData_t whole;
    nvmlReturn_t r;

    if (!data)
        return core_box() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
    r = wait_for(__func__, set, timeoutms, &whole);
    if (r == NVML_SUCCESS)
        *data = whole;
    return r;
}
