/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Initialising, and the way into every other call.
 *
 * Several libraries of one process may call nvmlInit, and each calls nvmlShutdown, so
 * initialisations are counted. The first opens the box, and it stays open: closing it would break
 * calls in other threads and gain nothing. Only a program that names another box between two
 * initialisations gets another one; the old mapping then stays for the rest of the process.
 */
#include "sim/nvml/core.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim/box/fault.h"
#include "sim/box/devnode.h"
#include "sim/nvml/stub.h"

static struct {
    pthread_mutex_t lock; /* for initialising and shutting down */
    atomic_uint users;
    _Atomic(struct box *) box;
    _Atomic uint32_t visible;
} core = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void core_fork_prepare(void) {
    pthread_mutex_lock(&core.lock);
}

static void core_fork_done(void) {
    pthread_mutex_unlock(&core.lock);
}

/* A fork while another thread initialises must not leave the child with a lock that none of its
 * threads holds. */
__attribute__((constructor)) static void core_load(void) {
    (void)pthread_atfork(core_fork_prepare, core_fork_done, core_fork_done);
}

struct box *core_box(void) {
    return atomic_load(&core.users) > 0 ? atomic_load(&core.box) : NULL;
}

uint32_t core_visible(void) {
    return atomic_load(&core.visible);
}

nvmlReturn_t core_lock(struct box *box) {
    switch (box_lock(box)) {
    case 0:
        return NVML_SUCCESS;
    case -ETIMEDOUT:
        return NVML_ERROR_TIMEOUT;
    default:
        return NVML_ERROR_UNKNOWN;
    }
}

/* Whether `box` is still the file that this process is told to use. */
static bool still_the_box(const struct box *box) {
    char path[PATH_MAX];
    struct stat opened, named;
    bool given;

    return box_path(path, &given, NULL) == 0 && stat(path, &named) == 0 &&
           fstat(box->fd, &opened) == 0 && opened.st_dev == named.st_dev &&
           opened.st_ino == named.st_ino;
}

static nvmlReturn_t open_box(void) {
    struct box *box = atomic_load(&core.box);
    struct allot_error err = { 0 };

    if (!box || !still_the_box(box)) {
        int r = box_open_default(&box, &err);

        if (r < 0) {
            fprintf(stderr, "libnvidia-ml.so.1 (simulated): %s\n",
                    err.text[0] ? err.text : strerror(-r));
            return NVML_ERROR_DRIVER_NOT_LOADED;
        }
        atomic_store(&core.box, box);
    }

    atomic_store(&core.visible, devnode_visible_gpus(box));
    return NVML_SUCCESS;
}

/* A call that a fault makes slow, or hang, waits without the lock: other calls may still initialise
 * and shut down. */
static nvmlReturn_t initialise(const char *call) {
    nvmlReturn_t r = NVML_SUCCESS;
    int code;

    pthread_mutex_lock(&core.lock);
    if (atomic_load(&core.users) == 0)
        r = open_box();
    pthread_mutex_unlock(&core.lock);
    if (r != NVML_SUCCESS)
        return r;
    if (fault_call(atomic_load(&core.box), call, -1, &code) && code != NVML_SUCCESS)
        return (nvmlReturn_t)code;
    atomic_fetch_add(&core.users, 1);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit(void) {
    return initialise(__func__);
}

nvmlReturn_t nvmlInit_v2(void) {
    return initialise(__func__);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    REQUIRE(!(flags & ~(unsigned)(NVML_INIT_FLAG_NO_GPUS | NVML_INIT_FLAG_NO_ATTACH |
                                  NVML_INIT_FLAG_FORCE_INIT)));
    return initialise(__func__);
}

nvmlReturn_t nvmlShutdown(void) {
    nvmlReturn_t r = NVML_ERROR_UNINITIALIZED;

    pthread_mutex_lock(&core.lock);
    if (atomic_load(&core.users) > 0) {
        atomic_fetch_sub(&core.users, 1);
        r = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&core.lock);
    return r;
}

/* The vendor's own texts: people search the web for them. */
const char *nvmlErrorString(nvmlReturn_t result) {
    static const struct {
        nvmlReturn_t code;
        const char *text;
    } texts[] = {
        { NVML_SUCCESS, "Success" },
        { NVML_ERROR_UNINITIALIZED, "Uninitialized" },
        { NVML_ERROR_INVALID_ARGUMENT, "Invalid Argument" },
        { NVML_ERROR_NOT_SUPPORTED, "Not Supported" },
        { NVML_ERROR_NO_PERMISSION, "Insufficient Permissions" },
        { NVML_ERROR_ALREADY_INITIALIZED, "Already Initialized" },
        { NVML_ERROR_NOT_FOUND, "Not Found" },
        { NVML_ERROR_INSUFFICIENT_SIZE, "Insufficient Size" },
        { NVML_ERROR_INSUFFICIENT_POWER, "Insufficient External Power" },
        { NVML_ERROR_DRIVER_NOT_LOADED, "Driver Not Loaded" },
        { NVML_ERROR_TIMEOUT, "Timeout" },
        { NVML_ERROR_IRQ_ISSUE, "Interrupt Request Issue" },
        { NVML_ERROR_LIBRARY_NOT_FOUND, "NVML Shared Library Not Found" },
        { NVML_ERROR_FUNCTION_NOT_FOUND, "Function Not Found" },
        { NVML_ERROR_CORRUPTED_INFOROM, "Corrupted infoROM" },
        { NVML_ERROR_GPU_IS_LOST, "GPU is lost" },
        { NVML_ERROR_RESET_REQUIRED, "GPU requires restart" },
        { NVML_ERROR_OPERATING_SYSTEM, "The operating system has blocked the request." },
        { NVML_ERROR_LIB_RM_VERSION_MISMATCH, "RM has detected an NVML/RM version mismatch." },
        { NVML_ERROR_IN_USE, "In use by another client" },
        { NVML_ERROR_MEMORY, "Insufficient Memory" },
        { NVML_ERROR_NO_DATA, "No data" },
        { NVML_ERROR_VGPU_ECC_NOT_SUPPORTED, "The requested vgpu operation is not available on "
                                             "target device, because ECC is enabled" },
        { NVML_ERROR_INSUFFICIENT_RESOURCES, "Insufficient Resources" },
        { NVML_ERROR_FREQ_NOT_SUPPORTED, "Requested frequency is not supported" },
        { NVML_ERROR_ARGUMENT_VERSION_MISMATCH, "The provided version is invalid/unsupported" },
        { NVML_ERROR_DEPRECATED, "The requested functionality has been deprecated" },
        { NVML_ERROR_NOT_READY, "The system is not ready for the request" },
        { NVML_ERROR_GPU_NOT_FOUND, "No GPUs were found" },
        { NVML_ERROR_INVALID_STATE,
          "Resource not in correct state to perform requested operation" },
        { NVML_ERROR_RESET_TYPE_NOT_SUPPORTED, "The requested reset type is not supported" },
    };

    for (size_t i = 0; i < ELEMENTSOF(texts); i++)
        if (texts[i].code == result)
            return texts[i].text;
    return "Unknown Error";
}

int stub_answer(const char *call) {
    struct box *box = core_box();
    int code;

    if (!box)
        return NVML_ERROR_UNINITIALIZED;
    if (fault_call(box, call, -1, &code))
        return code;
    return NVML_ERROR_NOT_SUPPORTED;
}

/* What is the same for all handles: checks that need no lock, in NVML's order. */
static nvmlReturn_t check_call(struct box **ret, const char *call, int gpu, bool valid,
                               unsigned accepts) {
    struct box *box = core_box();
    int code;

    if (!box)
        return NVML_ERROR_UNINITIALIZED;
    if (!valid || (gpu >= 0 && ((unsigned)gpu >= box->n_gpus ||
                                !(core_visible() & UINT32_C(1) << (unsigned)gpu))))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (fault_call(box, call, gpu, &code) && code != NVML_SUCCESS)
        return (nvmlReturn_t)code;
    if ((accepts & BY_ROOT) && geteuid() != 0)
        return NVML_ERROR_NO_PERMISSION;
    *ret = box;
    return NVML_SUCCESS;
}

static nvmlReturn_t enter_location(struct target *ret, const char *call, bool valid,
                                   const struct handle_location *location, unsigned accepts) {
    struct target t = { 0 };
    struct box *box = NULL;
    nvmlReturn_t r;

    r = check_call(&box, call, valid ? (int)location->gpu : -1, valid, accepts);
    if (r != NVML_SUCCESS)
        return r;
    r = core_lock(box);
    if (r != NVML_SUCCESS)
        return r;

    t.box = box;
    t.gpu = &box->file->gpu[location->gpu];
    t.model = box_model(box, location->gpu);
    t.part.gpu = location->gpu;
    if (location->gi != HANDLE_WHOLE) {
        t.gi = &t.gpu->gi[location->gi];
        t.part.part = 1 + location->gi;
    }
    if (location->ci != HANDLE_WHOLE)
        t.ci = &t.gi->ci[location->ci];

    if (t.gpu->lost)
        r = NVML_ERROR_GPU_IS_LOST;
    else if ((t.gi && (!t.gpu->mig_enabled || !t.gi->in_use)) || (t.ci && !t.ci->in_use))
        r = NVML_ERROR_INVALID_ARGUMENT; /* destroyed since the handle was given out */
    if (r != NVML_SUCCESS) {
        core_leave(&t);
        return r;
    }
    *ret = t;
    return NVML_SUCCESS;
}

nvmlReturn_t core_enter(struct target *ret, const char *call, nvmlDevice_t device,
                        unsigned accepts) {
    struct handle_location location;
    bool valid = handle_locate_device(device, &location);

    if (valid && core_box() && location.gi != HANDLE_WHOLE && !(accepts & ON_MIG))
        return NVML_ERROR_NOT_SUPPORTED;
    if (valid && core_box() && location.gi == HANDLE_WHOLE && !(accepts & ON_GPU))
        return NVML_ERROR_NOT_SUPPORTED;
    return enter_location(ret, call, valid, &location, accepts);
}

nvmlReturn_t core_enter_gi(struct target *ret, const char *call, nvmlGpuInstance_t instance,
                           unsigned accepts) {
    struct handle_location location;
    bool valid = handle_locate_gi(instance, &location);

    return enter_location(ret, call, valid, &location, accepts);
}

nvmlReturn_t core_enter_ci(struct target *ret, const char *call, nvmlComputeInstance_t instance,
                           unsigned accepts) {
    struct handle_location location;
    bool valid = handle_locate_ci(instance, &location);

    return enter_location(ret, call, valid, &location, accepts);
}

nvmlReturn_t core_enter_box(struct target *ret, const char *call, unsigned accepts) {
    struct box *box = NULL;
    nvmlReturn_t r = check_call(&box, call, -1, true, accepts);

    if (r == NVML_SUCCESS)
        r = core_lock(box);
    if (r == NVML_SUCCESS)
        ret->box = box;
    return r;
}

void core_leave(struct target *target) {
    if (target->box)
        box_unlock(target->box);
    target->box = NULL;
}

nvmlReturn_t core_give_text(char *to, unsigned length, const char *text) {
    size_t size = strlen(text) + 1;

    REQUIRE(to);
    if (length < size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(to, text, size);
    return NVML_SUCCESS;
}

nvmlReturn_t core_give_list(unsigned *count, const void *array, unsigned n) {
    unsigned room;

    REQUIRE(count);
    room = *count;
    *count = n;
    if (n == 0)
        return NVML_SUCCESS;
    if (room < n)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    REQUIRE(array);
    return NVML_SUCCESS;
}
