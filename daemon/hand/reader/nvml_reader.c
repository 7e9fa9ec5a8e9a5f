/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sample is read at three speeds. Memory, use, heat, clocks and processes: each time. Modes and
 * ECC counters: every SLOW_SAMPLES. Identity and links: when the set of devices changed, when an
 * event reported a change, or after FULL_SAMPLES.
 *
 *     known[]   what was ever read, by this reader or one before it; a row per GPU and instance
 *     handle    in known[], NULL while it is closed or lost
 *
 * Closed devices: NVML opens a GPU when its handle is requested; if by index, also those before it.
 * So while a device is closed, the others are requested by their bus ids, and GPUs that were not
 * seen before stay unseen. NVML itself is shut down and initialised again, because it keeps devices
 * open.
 *
 * NVML finds GPUs only when it is initialised. A GPU that was lost and is back shows only after
 * that, so with a lost GPU it is initialised again every RETRY_SAMPLES.
 */
#include "daemon/hand/reader/nvml_reader.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/safe_text.h"
#include "daemon/hand/reader/device_reader.h"
#include "daemon/hand/reader/events.h"
#include "driver/nvml_process.h"
#include "driver/nvml_topology.h"

#define SLOW_SAMPLES  10
#define FULL_SAMPLES  60
#define RETRY_SAMPLES 10

struct nvml_reader {
    struct driver_options options;
    struct nvml_reader_sink sink;
    struct nvml *nvml; /* NULL: not open */
    struct nvml_system system;
    struct events_listener *listener; /* NULL: none, the driver reports no events */
    atomic_bool is_changed;           /* an event says that everything is to be read again */
    bool was_cut;
    unsigned n_samples, n_since_open;
    unsigned n_gpus;    /* NVML's count when known[] was made */
    unsigned n_unknown; /* of them, those that could never be identified */
    size_t n;
    struct device_reader known[SAMPLE_DEVICES_MAX];
};

int nvml_reader_new(struct nvml_reader **ret, enum driver_choice driver,
                    const struct nvml_reader_sink *sink) {
    struct nvml_reader *reader = calloc(1, sizeof(*reader));

    if (!reader)
        return -ENOMEM;
    reader->options = driver_options_read(driver);
    reader->sink = *sink;
    *ret = reader;
    return 0;
}

/* ---- Opening and closing
 * --------------------------------------------------------------------------- */

static void shut(struct nvml_reader *reader) {
    reader->listener = events_listener_free(reader->listener);
    nvml_close(TAKE(reader->nvml));
    for (size_t i = 0; i < reader->n; i++)
        reader->known[i].handle.handle = NULL;
    reader->n_gpus = reader->n_unknown = 0;
}

struct nvml_reader *nvml_reader_free(struct nvml_reader *reader) {
    if (!reader)
        return NULL;
    shut(reader);
    free(reader);
    return NULL;
}

/* NVML, opened. */
static int open_nvml(struct nvml_reader *reader, struct allot_error *err) {
    int r;

    if (reader->nvml)
        return 0;
    r = nvml_open(&reader->nvml, &reader->options, err);
    if (r < 0)
        return r;
    reader->n_since_open = 0;
    r = nvml_system_read(reader->nvml, &reader->system, err);
    if (r < 0)
        shut(reader);
    return r;
}

static struct device_reader *find(struct nvml_reader *reader, const struct gpuid *id) {
    for (size_t i = 0; i < reader->n; i++)
        if (gpuid_equal(&reader->known[i].seen.id, id))
            return &reader->known[i];
    return NULL;
}

/* Find or make the row of `id`; NULL: there are as many as are looked at. */
static struct device_reader *know(struct nvml_reader *reader, const struct gpuid *id) {
    struct device_reader *known = find(reader, id);

    if (known)
        return known;
    if (reader->n == ELEMENTSOF(reader->known)) {
        reader->was_cut = true;
        return NULL;
    }
    known = &reader->known[reader->n++];
    *known = (struct device_reader){ .seen.id = *id };
    return known;
}

void nvml_reader_know(struct nvml_reader *reader, const struct sample_device *device) {
    struct device_reader *known = know(reader, &device->id);

    if (known)
        known->seen = *device;
}

int nvml_reader_close(struct nvml_reader *reader, const struct gpuid *gpu, bool closed,
                      struct allot_error *err) {
    struct device_reader *known = find(reader, gpu);
    char text[GPUID_TEXT_SIZE];

    if (!known || known->seen.is_mig)
        return error_set(err, -ENOENT, "there is no GPU %s here", gpuid_format(gpu, text));
    if (known->is_closed == closed)
        return 0;
    known->is_closed = closed;
    shut(reader);
    return 0;
}

/* Identity of the GPU behind `handle`; its row. -ENOSPC: one too many. */
static int identify(struct nvml_reader *reader, const struct nvml_device *handle, uint32_t index,
                    struct device_reader **ret, struct allot_error *err) {
    struct nvml_identity identity;
    struct device_reader *known;
    struct gpuid id;
    int r;

    r = nvml_identity_read(reader->nvml, handle, &identity, err);
    if (r < 0)
        return r;
    if (gpuid_parse(&id, identity.uuid) < 0)
        return error_set(err, -EBADMSG, "GPU %u has an invalid UUID: %s", index, identity.uuid);
    known = know(reader, &id);
    if (!known)
        return -ENOSPC;
    known->handle = *handle;
    known->seen.parent = id;
    known->seen.is_mig = false;
    known->seen.index = index;
    device_reader_identify(known, &identity, NULL);
    *ret = known;
    return 0;
}

/* The instances of a partitioned GPU; they are looked up each time, since their handles may
 * change. */
static int read_migs(struct nvml_reader *reader, const struct device_reader *gpu, bool slow,
                     struct allot_error *err) {
    cleanup(freep) struct nvml_mig *migs = NULL;
    struct gpuid parent = gpu->seen.id;
    size_t n;
    int r;

    r = nvml_topology_list_migs(reader->nvml, &gpu->handle, &migs, &n, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < n; i++) {
        struct nvml_identity identity;
        struct device_reader *known;
        struct gpuid id;
        bool is_new;

        if (gpuid_parse(&id, migs[i].uuid) < 0)
            continue;
        is_new = !find(reader, &id);
        known = know(reader, &id);
        if (!known)
            break;
        known->handle = migs[i].device;
        known->seen.parent = parent;
        known->seen.is_mig = true;
        known->seen.gpu_instance = migs[i].gpu_instance;
        known->seen.compute_instance = migs[i].compute_instance;
        known->seen.place = (uint32_t)i;
        known->seen.index = gpu->seen.index;
        if (is_new)
            atomic_store(&reader->is_changed, true); /* events are to know it */
        if (is_new || slow) {
            if (nvml_identity_read(reader->nvml, &known->handle, &identity, NULL) < 0)
                continue;
            device_reader_identify(known, &identity, gpu);
        }
        r = device_reader_read(known, reader->nvml, is_new || slow, err);
        if (r < 0)
            device_reader_lose(known, r, err);
        else
            known->seen.health = SAMPLE_OK;
        known->is_here = true;
    }
    return 0;
}

/* ---- Finding GPUs
 * ---------------------------------------------------------------------------------- */

static bool any_closed(const struct nvml_reader *reader) {
    for (size_t i = 0; i < reader->n; i++)
        if (reader->known[i].is_closed)
            return true;
    return false;
}

/* By index, all there are; those that cannot be identified stay what they were. */
static int find_all(struct nvml_reader *reader, struct allot_error *err) {
    unsigned n;
    int r = nvml_device_count(reader->nvml, &n, err);

    if (r < 0)
        return r;
    reader->n_unknown = 0;
    for (size_t i = 0; i < reader->n; i++)
        if (!reader->known[i].seen.is_mig)
            reader->known[i].handle.handle = NULL;
    for (unsigned i = 0; i < n; i++) {
        struct nvml_device handle;
        struct device_reader *known;

        r = nvml_device_at(reader->nvml, &handle, i, err);
        if (r == 0)
            r = identify(reader, &handle, i, &known, err);
        if (r == -ENOSPC)
            break;
        if (r == 0) {
            known->is_here = true;
            known->seen.health = SAMPLE_OK;
            continue;
        }
        /*
         * Lost, at this index: the device that is known to have been there. One that was lost
         * before this reader started is searched for until it is back.
         */
        reader->n_unknown++;
        for (size_t j = 0; j < reader->n; j++)
            if (!reader->known[j].seen.is_mig && reader->known[j].seen.index == i &&
                !reader->known[j].is_here) {
                reader->known[j].is_here = true;
                reader->known[j].handle.handle = NULL;
                device_reader_lose(&reader->known[j], r, err);
                reader->n_unknown--;
                break;
            }
    }
    reader->n_gpus = n;
    return 0;
}

/* By bus id, those that are known and not closed. */
static void find_open(struct nvml_reader *reader, struct allot_error *err) {
    for (size_t i = 0; i < reader->n; i++) {
        struct device_reader *known = &reader->known[i], *same;
        struct nvml_device handle;
        int r;

        if (known->seen.is_mig || known->is_closed)
            continue;
        known->is_here = true;
        r = nvml_device_find_pci(reader->nvml, &handle, &known->seen.pci, err);
        if (r == 0)
            r = identify(reader, &handle, known->seen.index, &same, err);
        if (r == 0 && same != known)
            r = error_set(err, -ENXIO, "another GPU is in its place on the bus");
        if (r < 0) {
            known->handle.handle = NULL;
            device_reader_lose(known, r, err);
        } else
            known->seen.health = SAMPLE_OK;
    }
}

/* Whether the handles and identities of last time are still valid. */
static bool is_settled(struct nvml_reader *reader) {
    unsigned n;

    if (!reader->n_since_open || atomic_exchange(&reader->is_changed, false) ||
        reader->n_samples % FULL_SAMPLES == 0)
        return false;
    if (reader->n_unknown && !any_closed(reader))
        return false;
    for (size_t i = 0; i < reader->n; i++)
        if (!reader->known[i].seen.is_mig && !reader->known[i].is_closed &&
            (!reader->known[i].handle.handle || reader->known[i].seen.health != SAMPLE_OK))
            return false;
    if (any_closed(reader))
        return true;
    return nvml_device_count(reader->nvml, &n, NULL) == 0 && n == reader->n_gpus;
}

static int find_gpus(struct nvml_reader *reader, bool *ret_full, struct allot_error *err) {
    int r = 0;

    for (size_t i = 0; i < reader->n; i++)
        reader->known[i].is_here = false;
    *ret_full = !is_settled(reader);
    if (!*ret_full) {
        for (size_t i = 0; i < reader->n; i++)
            reader->known[i].is_here = !reader->known[i].seen.is_mig;
        return 0;
    }
    if (any_closed(reader))
        find_open(reader, err);
    else
        r = find_all(reader, err);
    for (size_t i = 0; i < reader->n; i++)
        if (reader->known[i].handle.handle && !reader->known[i].seen.is_mig &&
            reader->known[i].is_here && reader->known[i].seen.health == SAMPLE_OK)
            device_reader_read_links(&reader->known[i], reader->nvml, reader->known, reader->n);
    return r;
}

/* ---- Processes
 * -------------------------------------------------------------------------------------- */

static uint32_t kinds_of(uint32_t kinds) {
    return (kinds & NVML_COMPUTE ? SAMPLE_COMPUTE : 0) |
           (kinds & NVML_GRAPHICS ? SAMPLE_GRAPHICS : 0) |
           (kinds & NVML_MPS ? SAMPLE_MPS_CLIENT : 0);
}

/* What each process computed since the sample before; `uses` may be NULL: the driver does not say.
 */
static void take_busy(struct sample_process *process, const struct nvml_process_use *uses,
                      size_t n) {
    if (!uses)
        return;
    process->has_busy = true;
    for (size_t i = 0; i < n; i++)
        if (uses[i].pid == (uint32_t)process->pid)
            process->busy = MAX(process->busy, uses[i].sm);
}

static int read_processes(struct nvml_reader *reader, struct device_reader *known, size_t *n_rows,
                          struct hand_sampled *sampled) {
    static const struct nvml_process_use nobody;
    cleanup(freep) struct nvml_process *list = NULL;
    cleanup(freep) struct nvml_process_use *uses = NULL;
    struct allot_error trouble;
    size_t n = 0, n_uses = 0;
    bool has_uses;
    int r;

    r = nvml_process_list(reader->nvml, &known->handle, &list, &n, &trouble);
    if (r < 0)
        safe_text_clean(sampled->list_trouble, sizeof(sampled->list_trouble), trouble.text,
                        strlen(trouble.text));
    else
        sampled->n_listed++;
    if (r < 0 || n == 0)
        return 0;
    has_uses = nvml_process_use_list(reader->nvml, &known->handle, known->use_usec, &uses, &n_uses,
                                     NULL) == 0;
    for (size_t i = 0; i < n_uses; i++)
        known->use_usec = MAX(known->use_usec, uses[i].usec);
    for (size_t i = 0; i < n; i++) {
        struct sample_process process = {
            .pid = (pid_t)list[i].pid,
            .device = known->seen.id,
            .kinds = kinds_of(list[i].kinds),
            .has_used = list[i].has_used,
            .used_bytes = list[i].used_bytes,
        };

        if ((*n_rows)++ >= SAMPLE_PROCESSES_MAX) {
            reader->was_cut = true;
            break;
        }
        take_busy(&process, has_uses ? (uses ? uses : &nobody) : NULL, n_uses);
        r = reader->sink.process(reader->sink.userdata, &process);
        if (r)
            return r;
    }
    return 0;
}

int nvml_reader_used(struct nvml_reader *reader, const struct gpuid *device, pid_t pid,
                     uint64_t *ret, struct allot_error *err) {
    cleanup(freep) struct nvml_process *list = NULL;
    const struct device_reader *known = find(reader, device);
    struct nvml_device handle;
    char text[GPUID_TEXT_SIZE];
    uint64_t used = 0;
    bool is_listed = false;
    size_t n;
    int r;

    if (!known || known->seen.health == SAMPLE_CLOSED || known->is_closed)
        return error_set(err, -ENODEV, "the device is not open");
    /* By name: a reader that has just taken over has not taken a sample yet. */
    r = open_nvml(reader, err);
    if (r == 0)
        r = nvml_device_find(reader->nvml, &handle, gpuid_format(device, text), err);
    if (r == 0)
        r = nvml_process_list(reader->nvml, &handle, &list, &n, err);
    if (r < 0)
        return r == -ENOENT ? error_set(err, -ENODEV, "the device is not there") : r;
    for (size_t i = 0; i < n; i++) {
        if (list[i].pid != (uint32_t)pid)
            continue;
        if (!list[i].has_used)
            return error_set(err, -ENODATA, "the driver does not say what process %d uses",
                             (int)pid);
        is_listed = true;
        used += list[i].used_bytes;
    }
    if (!is_listed)
        return error_set(err, -ENOENT, "process %d is no longer on the device", (int)pid);
    *ret = used;
    return 0;
}

/* ---- A sample
 * ---------------------------------------------------------------------------------------- */

static int compare_known(const void *a, const void *b) {
    const struct sample_device *x = &((const struct device_reader *)a)->seen;
    const struct sample_device *y = &((const struct device_reader *)b)->seen;
    int order = pci_id_compare(&x->pci, &y->pci);

    if (order)
        return order;
    if (x->is_mig != y->is_mig)
        return x->is_mig ? 1 : -1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Nothing reports that an instance is gone: rely on its GPU's list. */
static void drop_gone(struct nvml_reader *reader) {
    size_t n = 0;

    for (size_t i = 0; i < reader->n; i++) {
        const struct device_reader *known = &reader->known[i];

        if (known->is_here || known->is_closed || !known->seen.is_mig)
            reader->known[n++] = *known;
    }
    reader->n = n;
}

static int send_rows(struct nvml_reader *reader, struct hand_sampled *sampled) {
    size_t n_rows = 0;
    int r = 0;

    for (size_t i = 0; r == 0 && i < reader->n; i++) {
        struct device_reader *known = &reader->known[i];

        if (known->is_here && known->handle.handle && known->seen.health == SAMPLE_OK &&
            !known->seen.mig_enabled)
            r = read_processes(reader, known, &n_rows, sampled);
        if (r == 0 && known->is_here)
            r = reader->sink.device(reader->sink.userdata, &known->seen);
    }
    return r;
}

static void mark_closed(struct nvml_reader *reader) {
    for (size_t i = 0; i < reader->n; i++) {
        struct device_reader *known = &reader->known[i];

        for (size_t j = 0; j < reader->n; j++)
            if (reader->known[j].is_closed &&
                gpuid_equal(&known->seen.parent, &reader->known[j].seen.id)) {
                known->is_here = true;
                known->handle.handle = NULL;
                known->seen.readings.has &= READINGS_BIT(minor) | READINGS_BIT(numa);
                known->seen.health = SAMPLE_CLOSED;
                strcpy(known->seen.trouble, "its handles are closed while it is drained");
            }
    }
}

int nvml_reader_sample(struct nvml_reader *reader, struct hand_sampled *ret,
                       struct allot_error *err) {
    struct hand_sampled sampled = { .taken_usec = clock_usec(CLOCK_BOOTTIME) };
    struct allot_error trouble = { 0 };
    bool is_full, slow, any_lost;
    size_t n;
    int r;

    r = open_nvml(reader, err);
    if (r < 0)
        return r;
    reader->was_cut = false;
    r = find_gpus(reader, &is_full, err);
    if (r < 0) {
        shut(reader);
        return r;
    }
    slow = is_full || reader->n_samples % SLOW_SAMPLES == 0;
    n = reader->n; /* those found below are instances, already read */
    for (size_t i = 0; i < n; i++) {
        struct device_reader *known = &reader->known[i];

        if (known->seen.is_mig || !known->handle.handle || known->seen.health != SAMPLE_OK)
            continue;
        r = device_reader_read(known, reader->nvml, slow, &trouble);
        if (r == 0 && known->seen.mig_enabled)
            r = read_migs(reader, known, slow, &trouble);
        if (r < 0)
            device_reader_lose(known, r, &trouble);
    }
    mark_closed(reader);
    drop_gone(reader);
    qsort(reader->known, reader->n, sizeof(reader->known[0]), compare_known);
    if (is_full && !events_listener_fits(reader->listener, reader->known, reader->n)) {
        reader->listener = events_listener_free(reader->listener);
        /* Best effort: without events, samples still show what is lost and what ECC counted. */
        events_listener_new(&reader->listener, reader->nvml, reader->known, reader->n,
                            &reader->is_changed, reader->sink.event, reader->sink.userdata);
    }
    r = send_rows(reader, &sampled);
    any_lost = reader->n_unknown > 0;
    for (size_t i = 0; i < reader->n; i++)
        any_lost |= reader->known[i].seen.health == SAMPLE_LOST;
    reader->n_samples++;
    reader->n_since_open++;

    sampled.is_simulated = nvml_is_simulated(reader->nvml);
    sampled.cuda_version = reader->system.cuda;
    sampled.cut = reader->was_cut;
    memcpy(sampled.driver_version, reader->system.driver, sizeof(sampled.driver_version));
    if (any_lost && reader->n_since_open % RETRY_SAMPLES == 0)
        shut(reader);
    if (r)
        return r;
    *ret = sampled;
    return 0;
}
