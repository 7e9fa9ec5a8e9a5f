/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML's three lists (compute, graphics, MPS) exist in three versions each: records of 16 bytes,
 * and from version 2 on of 24 with the MIG instance. Drivers 535.43 to 535.86 filled version 3 with
 * 32 bytes a record, and 535.98 had no version 3 at all. Version 2 works in all of them, so we use
 * that with the early 535. The buffers have room for 32 bytes a record in any case: a driver that
 * is wrong about its records must not write past them.
 */
#include "driver/nvml_process.h"

#include <errno.h>

#include "driver/nvml_calls.h"

#define RECORD_MAX  32
#define RECORDS_MAX 65536 /* a GPU with more processes is a broken answer */

/* The first driver of release 535 whose version 3 is right. */
#define RELEASE_535       535
#define RELEASE_535_SOUND 98

static bool is_v3_sound(const struct nvml *nvml) {
    return nvml->release != RELEASE_535 || nvml->minor_release >= RELEASE_535_SOUND;
}

/* Ask for one list in the newest version that the library has. Returns -errno instead of
 * nvmlReturn_t. */
static int ask_list(const struct nvml *nvml, const struct nvml_device *device,
                    enum nvml_process_kind kind, unsigned *n, void *records, size_t *ret_stride,
                    struct allot_error *err) {
    bool with_v3 = is_v3_sound(nvml);

#define ASK(list)                                                                                  \
    if (with_v3 && nvml->calls.list##_v3) {                                                        \
        *ret_stride = sizeof(nvmlProcessInfo_t);                                                   \
        return nvml_try_##list##_v3(nvml, device, err, device->handle, n, records);                \
    }                                                                                              \
    if (nvml->calls.list##_v2) {                                                                   \
        *ret_stride = sizeof(nvmlProcessInfo_v2_t);                                                \
        return nvml_try_##list##_v2(nvml, device, err, device->handle, n, records);                \
    }                                                                                              \
    *ret_stride = sizeof(nvmlProcessInfo_v1_t);                                                    \
    return nvml_try_##list##_v1(nvml, device, err, device->handle, n, records);

    switch (kind) {
    case NVML_COMPUTE:
        ASK(compute_processes)
    case NVML_GRAPHICS:
        ASK(graphics_processes)
    default:
        ASK(mps_processes)
    }
#undef ASK
}

/* How many records to try next, if `n` were needed a moment ago and `room` was not enough. */
static unsigned more_room(unsigned n, unsigned room) {
    if (n >= RECORDS_MAX / 2 || room >= RECORDS_MAX / 2)
        return RECORDS_MAX;
    return MAX(n + n / 4, room * 2);
}

/* Read one list into a buffer of its own; try again as long as it grows meanwhile. */
static int read_list(const struct nvml *nvml, const struct nvml_device *device,
                     enum nvml_process_kind kind, char **ret, unsigned *ret_n, size_t *ret_stride,
                     struct allot_error *err) {
    unsigned room = 64;

    for (;;) {
        cleanup(freep) char *records = calloc(room, RECORD_MAX);
        unsigned n = room;
        int r;

        if (!records)
            return error_set(err, -ENOMEM, "%s: out of memory", device->label);
        r = ask_list(nvml, device, kind, &n, records, ret_stride, err);
        if (r == 0) {
            *ret_n = MIN(n, room);
            *ret = TAKE(records);
            return 0;
        }
        if (r != -ENOBUFS || room >= RECORDS_MAX)
            return r;
        room = more_room(n, room);
    }
}

static bool is_before(const struct nvml_process *a, const struct nvml_process *b) {
    if (a->pid != b->pid)
        return a->pid < b->pid;
    if (a->gpu_instance != b->gpu_instance)
        return a->gpu_instance < b->gpu_instance;
    return a->compute_instance < b->compute_instance;
}

static int compare(const void *a, const void *b) {
    return is_before(a, b) ? -1 : is_before(b, a);
}

static struct nvml_process read_record(const char *record, size_t stride,
                                       enum nvml_process_kind kind) {
    nvmlProcessInfo_v2_t info = {
        .gpuInstanceId = NVML_NO_INSTANCE,
        .computeInstanceId = NVML_NO_INSTANCE,
    };
    struct nvml_process process;

    memcpy(&info, record, MIN(stride, sizeof(info)));
    process = (struct nvml_process){
        .pid = info.pid,
        .kinds = kind,
        .has_used = info.usedGpuMemory != (unsigned long long)NVML_VALUE_NOT_AVAILABLE,
        .used_bytes = info.usedGpuMemory,
        .gpu_instance = info.gpuInstanceId,
        .compute_instance = info.computeInstanceId,
    };
    if (!process.has_used)
        process.used_bytes = 0;
    return process;
}

/* Merge records of the same process (sorted, so they are neighbours), which all have the same
 * bytes. */
static size_t join(struct nvml_process *list, size_t n) {
    size_t last = 0;

    if (n == 0)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (compare(&list[last], &list[i]) != 0) {
            list[++last] = list[i];
            continue;
        }
        list[last].kinds |= list[i].kinds;
        list[last].has_used |= list[i].has_used;
        list[last].used_bytes = MAX(list[last].used_bytes, list[i].used_bytes);
    }
    return last + 1;
}

int nvml_process_list(const struct nvml *nvml, const struct nvml_device *device,
                      struct nvml_process **ret, size_t *ret_n, struct allot_error *err) {
    static const enum nvml_process_kind kinds[] = { NVML_COMPUTE, NVML_GRAPHICS, NVML_MPS };
    cleanup(freep) struct nvml_process *list = NULL;
    size_t total = 0;
    unsigned n_lists = 0;
    int r, absent = 0;

    for (size_t k = 0; k < ELEMENTSOF(kinds); k++) {
        cleanup(freep) char *records = NULL;
        struct nvml_process *longer;
        size_t stride = 0;
        unsigned n = 0;

        r = read_list(nvml, device, kinds[k], &records, &n, &stride, err);
        if (r == -EOPNOTSUPP) {
            absent = r;
            continue;
        }
        if (r < 0)
            return r; /* half a list would look as if processes had ended */
        n_lists++;
        if (n == 0)
            continue;
        longer = realloc(list, (total + n) * sizeof(*list));
        if (!longer)
            return error_set(err, -ENOMEM, "%s: out of memory", device->label);
        list = longer;
        for (unsigned i = 0; i < n; i++)
            list[total++] = read_record(records + i * stride, stride, kinds[k]);
    }
    if (n_lists == 0)
        return absent; /* `err` has the last error */
    if (total > 0)
        qsort(list, total, sizeof(*list), compare);
    *ret_n = join(list, total);
    *ret = TAKE(list);
    return 0;
}

int nvml_process_use_list(const struct nvml *nvml, const struct nvml_device *device,
                          uint64_t since_usec, struct nvml_process_use **ret, size_t *ret_n,
                          struct allot_error *err) {
    cleanup(freep) nvmlProcessUtilizationSample_t *samples = NULL;
    cleanup(freep) struct nvml_process_use *list = NULL;
    unsigned room = 128, n = room;
    size_t used = 0;
    int r;

    for (;;) {
        free(samples);
        samples = calloc(room, sizeof(*samples));
        if (!samples)
            return error_set(err, -ENOMEM, "%s: out of memory", device->label);
        n = room;
        r = nvml_try_process_utilization(nvml, device, err, device->handle, samples, &n,
                                         since_usec);
        if (r != -ENOBUFS || room >= RECORDS_MAX)
            break;
        room = more_room(n, room);
    }
    if (r == -ENOENT) /* nothing since then */
        n = 0;
    else if (r < 0)
        return r;
    n = MIN(n, room);
    list = n > 0 ? calloc(n, sizeof(*list)) : NULL;
    if (n > 0 && !list)
        return error_set(err, -ENOMEM, "%s: out of memory", device->label);
    for (unsigned i = 0; i < n; i++) {
        const nvmlProcessUtilizationSample_t *s = &samples[i];

        if (s->pid == 0 || s->timeStamp <= since_usec || s->smUtil > 100 || s->memUtil > 100 ||
            s->encUtil > 100 || s->decUtil > 100)
            continue;
        list[used++] = (struct nvml_process_use){
            .pid = s->pid,
            .usec = s->timeStamp,
            .sm = s->smUtil,
            .memory = s->memUtil,
            .encoder = s->encUtil,
            .decoder = s->decUtil,
        };
    }
    *ret_n = used;
    *ret = used > 0 ? TAKE(list) : NULL;
    return 0;
}

int nvml_process_limit_get(const struct nvml *nvml, const struct nvml_device *device,
                           const char *cgroup, struct nvml_limit *ret, struct allot_error *err) {
    nvmlGetMemoryLimits_v1_t limits = { .nameSpace = cgroup };
    int r = nvml_try_memory_limits(nvml, device, err, device->handle, &limits);

    if (r < 0)
        return r;
    *ret = (struct nvml_limit){ limits.softLimit, limits.hardLimit, limits.currentUsed };
    return 0;
}

int nvml_process_limit_set(const struct nvml *nvml, const struct nvml_device *device,
                           const char *cgroup, const struct nvml_limit *limit,
                           struct allot_error *err) {
    nvmlSetMemoryLimits_v1_t limits = { cgroup, limit->soft_bytes, limit->hard_bytes };

    return nvml_try_set_memory_limits(nvml, device, err, device->handle, &limits);
}
