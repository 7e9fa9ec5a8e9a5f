/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Driver: the state of libcuda.so.1 in one process: the box it opened, the devices it shows, one
 * lock.
 *
 * There is one `driver`. Before cuInit() only its state may be read. After cuInit() its fields are
 * constant unless marked otherwise. `driver.lock` guards contexts, allocations and every other
 * object; it is held for bookkeeping only, never while bytes are copied or a callback runs. The
 * box's own lock is taken inside it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "sim/box/box.h"
#include "sim/cuda/core/api.h"

enum driver_state {
    DRIVER_NEW,
    DRIVER_READY,
    DRIVER_FORKED, /* the parent used it: a child must not, as with the real one */
};

enum {
    DRIVER_MAX_DEVICES = BOX_MAX_GPUS,
};

/* What a program sees as device `ordinal`: a GPU, or one instance of a GPU in MIG mode. */
struct cuda_device {
    int ordinal;
    struct box_part part;  /* the part of the box that its memory is */
    uint32_t gi_id, ci_id; /* UINT32_MAX: the whole GPU */
    const struct sim_model *model;
    unsigned multiprocessors;
    uint64_t total_bytes;
    char name[96];
    CUuuid uuid;     /* of the GPU */
    CUuuid mig_uuid; /* of the instance; the same as `uuid` for a whole GPU */
    uint32_t pci_domain, pci_bus, pci_device;
};

struct executor;

struct driver {
    _Atomic int state; /* enum driver_state */
    pthread_mutex_t lock;
    struct box *box;
    uint32_t slot;             /* of this process in the box */
    struct executor *executor; /* executes the work of all streams */
    int n_devices;
    struct cuda_device devices[DRIVER_MAX_DEVICES];
};
extern struct driver driver;

/* The CUDA version that this driver claims, even before cuInit(). */
int driver_cuda_version(void);

static inline void driver_lock(void) {
    pthread_mutex_lock(&driver.lock);
}
static inline void driver_unlock(void) {
    pthread_mutex_unlock(&driver.lock);
}
static inline void driver_unlockp(pthread_mutex_t **lock) {
    pthread_mutex_unlock(*lock);
}
/* Hold the lock until the end of the scope. */
#define DRIVER_LOCKED()                                                                            \
    cleanup(driver_unlockp) __attribute__((unused)) pthread_mutex_t *driver_locked_ =              \
        (driver_lock(), &driver.lock)

/* What every entry point does first: check that the driver is up and that no fault was injected. */
CUresult driver_enter_slow(const char *call, int gpu);
static inline CUresult driver_enter(const char *call, int gpu) {
    if (__builtin_expect(atomic_load_explicit(&driver.state, memory_order_acquire) ==
                                 DRIVER_READY &&
                             !__atomic_load_n(&driver.box->file->n_faults, __ATOMIC_RELAXED),
                         1))
        return CUDA_SUCCESS;
    return driver_enter_slow(call, gpu);
}
#define ENTER(gpu)                                                                                 \
    do {                                                                                           \
        CUresult enter_ = driver_enter(__func__, gpu);                                             \
        if (enter_ != CUDA_SUCCESS)                                                                \
            return enter_;                                                                         \
    } while (0)

/* Go on only if `call` succeeds. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        CUresult try_ = (call);                                                                    \
        if (try_ != CUDA_SUCCESS)                                                                  \
            return try_;                                                                           \
    } while (0)

/* The device with that ordinal, or NULL. */
static inline struct cuda_device *device_get(CUdevice ordinal) {
    return ordinal >= 0 && ordinal < driver.n_devices ? &driver.devices[ordinal] : NULL;
}

/* Round up to a multiple of `to`, a power of two; 0 if that overflows. */
static inline uint64_t round_up(uint64_t bytes, uint64_t to) {
    uint64_t rounded = (bytes + to - 1) & ~(to - 1);

    return rounded >= bytes ? rounded : 0;
}
