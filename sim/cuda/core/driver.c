/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/cuda/core/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "base/visible.h"
#include "sim/box/charge.h"
#include "sim/cuda/core/stub.h"
#include "sim/cuda/memory/address_space.h"
#include "sim/time/executor.h"
#include "sim/box/fault.h"
#include "sim/box/devnode.h"
#include "sim/box/proc.h"

struct driver driver = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The box is opened once and stays open: its descriptor carries the presence of this process. */
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct box *) opened;

static void in_child(void) {
    int ready = DRIVER_READY;

    /* Neither lock can be trusted here: the thread that held it exists only in the parent. */
    driver.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    open_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    atomic_compare_exchange_strong(&driver.state, &ready, DRIVER_FORKED);
}

__attribute__((constructor)) static void load(void) {
    pthread_atfork(NULL, NULL, in_child);
}

static struct box *open_box(void) {
    struct box *box = atomic_load(&opened);
    struct allot_error err = { 0 };

    if (box)
        return box;
    pthread_mutex_lock(&open_lock);
    box = atomic_load(&opened);
    if (!box) {
        if (box_open_default(&box, &err) < 0) {
            if (secure_getenv("GPUSIM_VERBOSE"))
                fprintf(stderr, "gpusim: %s\n", err.text);
            box = NULL;
        }
        atomic_store(&opened, box);
    }
    pthread_mutex_unlock(&open_lock);
    return box;
}

int driver_cuda_version(void) {
    struct box *box = open_box();

    return box ? (int)box->file->cuda_driver_version : CUDA_VERSION;
}

int stub_answer(const char *name) {
    CUresult r = driver_enter(name, -1);

    return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r;
}

CUresult driver_enter_slow(const char *call, int gpu) {
    int code;

    switch (atomic_load(&driver.state)) {
    case DRIVER_READY:
        if (fault_call(driver.box, call, gpu, &code))
            return (CUresult)code;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_INITIALIZED;
    }
}

static CUuuid uuid_bytes(const char *text) {
    struct gpuid id = { 0 };
    CUuuid uuid;

    gpuid_parse(&id, text);
    memcpy(uuid.bytes, id.uuid, sizeof(uuid.bytes));
    return uuid;
}

/* Everything about a device that does not change while the process lives. Needs the box's lock. */
static void device_fill(struct cuda_device *device, int ordinal, unsigned gpu, int gi, int ci) {
    const struct box_gpu *file = &driver.box->file->gpu[gpu];
    const struct sim_model *model = box_model(driver.box, gpu);

    *device = (struct cuda_device){
        .ordinal = ordinal,
        .part = { gpu, 0 },
        .gi_id = UINT32_MAX,
        .ci_id = UINT32_MAX,
        .model = model,
        .multiprocessors = model->multiprocessors,
        .uuid = uuid_bytes(file->uuid),
        .pci_domain = file->pci_domain,
        .pci_bus = file->pci_bus,
        .pci_device = file->pci_device,
    };
    device->mig_uuid = device->uuid;
    snprintf(device->name, sizeof(device->name), "%s", model->name);
    if (gi >= 0) {
        const struct box_gi *instance = &file->gi[gi];
        const struct sim_mig_profile *profile =
            model_find_profile(model, NULL, instance->profile_id);

        device->part.part = 1 + (unsigned)gi;
        device->gi_id = instance->id;
        device->ci_id = instance->ci[ci].id;
        device->multiprocessors = instance->ci[ci].multiprocessors;
        device->mig_uuid = uuid_bytes(instance->ci[ci].uuid);
        snprintf(device->name, sizeof(device->name), "%s MIG %s", model->name,
                 profile ? profile->name : "");
    }
    device->total_bytes = box_capacity(driver.box, device->part);
}

/* Which devices this process sees, by device nodes and environment. Needs the box's lock. */
static CUresult find_devices(void) {
    struct visible_gpu gpus[BOX_MAX_GPUS];
    struct visible_mig migs[BOX_MAX_GPUS * BOX_MAX_GI * BOX_MAX_CI];
    struct {
        unsigned gpu;
        int gi, ci;
    } mig_at[ELEMENTSOF(migs)];
    unsigned gpu_at[BOX_MAX_GPUS];
    struct visible_box visible = { .gpus = gpus, .migs = migs };
    struct visible_env env =
        visible_env(getenv("CUDA_VISIBLE_DEVICES"), getenv("CUDA_DEVICE_ORDER"));
    cleanup(freep) struct visible_list *list = malloc(sizeof(*list));
    uint32_t allowed = devnode_visible_gpus(driver.box);

    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned g = 0; g < driver.box->n_gpus; g++) {
        const struct box_gpu *file = &driver.box->file->gpu[g];
        size_t at = visible.n_gpus;

        if (!(allowed & (1u << g)) || file->lost)
            continue;
        gpu_at[at] = g;
        gpus[visible.n_gpus++] = (struct visible_gpu){
            .uuid = file->uuid,
            .pci = { file->pci_domain, (uint8_t)file->pci_bus, (uint8_t)file->pci_device, 0 },
            .speed_rank = UINT32_MAX - box_model(driver.box, g)->speed_rank,
            .mig_enabled = file->mig_enabled,
        };
        for (int i = 0; file->mig_enabled && i < BOX_MAX_GI; i++)
            for (int c = 0; file->gi[i].in_use && c < BOX_MAX_CI; c++) {
                if (!file->gi[i].ci[c].in_use)
                    continue;
                mig_at[visible.n_migs].gpu = g;
                mig_at[visible.n_migs].gi = i;
                mig_at[visible.n_migs].ci = c;
                migs[visible.n_migs++] = (struct visible_mig){
                    .uuid = file->gi[i].ci[c].uuid,
                    .gpu = at,
                    .gpu_instance = file->gi[i].id,
                    .compute_instance = file->gi[i].ci[c].id,
                };
            }
    }
    if (visible_decide(list, &visible, &env) < 0)
        return CUDA_ERROR_NO_DEVICE;

    driver.n_devices = 0;
    for (size_t i = 0; i < list->n_devices && i < DRIVER_MAX_DEVICES; i++) {
        const struct visible_device *seen = &list->devices[i];
        struct cuda_device *device = &driver.devices[driver.n_devices];

        if (seen->mig == VISIBLE_WHOLE)
            device_fill(device, driver.n_devices, gpu_at[seen->gpu], -1, -1);
        else
            device_fill(device, driver.n_devices, mig_at[seen->mig].gpu, mig_at[seen->mig].gi,
                        mig_at[seen->mig].ci);
        driver.n_devices++;
    }
    return driver.n_devices > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static CUresult start(void) {
    CUresult result;

    driver.box = open_box();
    if (!driver.box)
        return CUDA_ERROR_NO_DEVICE;
    if (box_lock(driver.box) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    result = find_devices();
    if (result == CUDA_SUCCESS && proc_join(driver.box, &driver.slot) < 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    box_unlock(driver.box);
    if (result == CUDA_SUCCESS)
        result = address_space_open();
    if (result == CUDA_SUCCESS && !driver.executor &&
        executor_new(&driver.executor, (unsigned)MAX(sysconf(_SC_NPROCESSORS_ONLN), 2L)) < 0)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

CUresult cuInit(unsigned int Flags) {
    CUresult result = CUDA_SUCCESS;
    struct box *box;
    int code;

    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    box = open_box();
    if (box && fault_call(box, __func__, -1, &code))
        return (CUresult)code;

    DRIVER_LOCKED();
    switch (atomic_load(&driver.state)) {
    case DRIVER_FORKED:
        return CUDA_ERROR_NOT_INITIALIZED;
    case DRIVER_READY:
        return CUDA_SUCCESS;
    }
    result = start();
    if (result == CUDA_SUCCESS)
        atomic_store(&driver.state, DRIVER_READY);
    return result;
}

CUresult cuDriverGetVersion(int *driverVersion) {
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = driver_cuda_version();
    return CUDA_SUCCESS;
}
