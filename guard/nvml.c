/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nvml: a table of names like libcuda's, but short. The visible devices are those of the lease and,
 * for an instance of a partitioned GPU, that GPU. Every call that counts devices rebuilds the list.
 *
 * Unlike libcuda, this library calls some of its own names through its linkage table, and so
 * reaches the guard. Such a call from inside a hook passes through; one from any other function of
 * the library sees the job's devices, like the program itself.
 */
#include "guard/nvml.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVML_NO_UNVERSIONED_FUNC_DEFS 1
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#include "base/cleanup.h"
#include "base/gpuid.h"
#include "guard/credit.h"
#include "guard/elf.h"

#define NVML_HOOKS(X)                                                                              \
    X(nvmlDeviceGetCount)                                                                          \
    X(nvmlDeviceGetCount_v2)                                                                       \
    X(nvmlDeviceGetHandleByIndex)                                                                  \
    X(nvmlDeviceGetHandleByIndex_v2)                                                               \
    X(nvmlDeviceGetHandleByUUID)                                                                   \
    X(nvmlDeviceGetHandleByPciBusId)                                                               \
    X(nvmlDeviceGetHandleByPciBusId_v2)                                                            \
    X(nvmlDeviceGetHandleBySerial)                                                                 \
    X(nvmlDeviceGetMigDeviceHandleByIndex)                                                         \
    X(nvmlDeviceGetIndex)                                                                          \
    X(nvmlDeviceGetMemoryInfo)                                                                     \
    X(nvmlDeviceGetMemoryInfo_v2)
#define NVML_USES(X)                                                                               \
    X(nvmlDeviceGetUUID)                                                                           \
    X(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)

enum {
#define X(symbol) NVML_##symbol,
    NVML_HOOKS(X) N_NVML_HOOKS,
    NVML_BEFORE_USES = N_NVML_HOOKS - 1,
    NVML_USES(X) N_NVML_REALS,
#undef X
};

#define SONAME "libnvidia-ml.so.1"

static _Atomic(void *) reals[N_NVML_REALS];
static _Atomic bool library_known;

static const struct {
    const char *name;
    void (*function)(void);
} hooks[N_NVML_REALS] = {
#define X(symbol) [NVML_##symbol] = { #symbol, (void (*)(void))symbol },
    NVML_HOOKS(X)
#undef X
#define X(symbol) [NVML_##symbol] = { #symbol, NULL },
        NVML_USES(X)
#undef X
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void forget_lock(void) {
    pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(NULL, NULL, forget_lock);
}

static void adopt(const struct elf_object *object) {
    pthread_mutex_lock(&lock);
    if (!library_known)
        for (size_t i = 0; i < N_NVML_REALS; i++)
            reals[i] = elf_symbol(object, hooks[i].name);
    library_known = true;
    pthread_mutex_unlock(&lock);
}

static bool adopt_if_it(const struct elf_object *object, void *user) {
    (void)user;
    if (!elf_is(object, SONAME))
        return false;
    adopt(object);
    return true;
}

static void *find_real(size_t i) {
    if (!library_known && !elf_each(adopt_if_it, NULL) && dlopen(SONAME, RTLD_NOW))
        elf_each(adopt_if_it, NULL);
    return reals[i];
}

#define NVML_REAL(symbol) ((__typeof__(&symbol))find_real(NVML_##symbol))

/* The error for a program that calls a hook whose library function does not exist. */
static nvmlReturn_t error(void) {
    return library_known ? NVML_ERROR_FUNCTION_NOT_FOUND : NVML_ERROR_LIBRARY_NOT_FOUND;
}

bool nvml_find(const char *name, struct resolve_name *ret) {
    size_t i = 0;

    while (i < N_NVML_HOOKS && strcmp(hooks[i].name, name) != 0)
        i++;
    if (i == N_NVML_HOOKS)
        return false;
    *ret = (struct resolve_name){ .soname = SONAME, .real = &reals[i], .adopt = adopt };
    memcpy(&ret->ours, &hooks[i].function, sizeof(ret->ours));
    return true;
}

/* ---- Which devices ----------------------------------------------------------------------------
 */

/* How many hooks this thread is in. If two, the library called the second. */
static _Thread_local unsigned depth __attribute__((tls_model("initial-exec")));

static void leave(const unsigned *entered) {
    depth = *entered;
}

/* Comes first in every hook's body. */
#define ENTER() cleanup(leave) __attribute__((unused)) const unsigned entered = depth++

static bool is_held_to_lease(void) {
    const char *lease = secure_getenv("ALLOT_LEASE");

    return depth == 1 && lease && *lease && credit_n_shares() > 0;
}

/* The share of a device; -1: none. `*ret_parent`: the device is the GPU of an instance. */
static int share_of(nvmlDevice_t device, bool *ret_parent) {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    struct gpuid id;
    int share;

    *ret_parent = false;
    if (!NVML_REAL(nvmlDeviceGetUUID) ||
        NVML_REAL(nvmlDeviceGetUUID)(device, uuid, sizeof(uuid)) != NVML_SUCCESS ||
        gpuid_parse(&id, uuid) < 0)
        return -1;
    share = credit_share(id.uuid);
    for (int i = 0; share < 0 && i < credit_n_shares(); i++) {
        nvmlDevice_t instance, parent;

        if (strncmp(credit_uuid(i), "MIG-", 4) == 0 && NVML_REAL(nvmlDeviceGetHandleByUUID) &&
            NVML_REAL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) &&
            NVML_REAL(nvmlDeviceGetHandleByUUID)(credit_uuid(i), &instance) == NVML_SUCCESS &&
            NVML_REAL(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(instance, &parent) ==
                NVML_SUCCESS &&
            parent == device) {
            *ret_parent = true;
            share = i;
        }
    }
    return share < 0 ? -1 : share;
}

static bool may_see(nvmlDevice_t device) {
    bool parent;

    return !is_held_to_lease() || share_of(device, &parent) >= 0;
}

/* The job's devices in the library's order: their number, and the one at index `wanted`. */
static nvmlReturn_t seen(unsigned wanted, nvmlDevice_t *ret, unsigned *ret_n) {
    unsigned n = 0, n_seen = 0;
    nvmlReturn_t r;

    if (!NVML_REAL(nvmlDeviceGetCount_v2) || !NVML_REAL(nvmlDeviceGetHandleByIndex_v2))
        return error();
    r = NVML_REAL(nvmlDeviceGetCount_v2)(&n);
    if (r != NVML_SUCCESS)
        return r;
    r = NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned i = 0; i < n; i++) {
        nvmlDevice_t device;

        if (NVML_REAL(nvmlDeviceGetHandleByIndex_v2)(i, &device) != NVML_SUCCESS ||
            !may_see(device))
            continue;
        if (n_seen++ == wanted && ret) {
            *ret = device;
            r = NVML_SUCCESS;
        }
    }
    if (ret_n) {
        *ret_n = n_seen;
        r = NVML_SUCCESS;
    }
    return r;
}

static nvmlReturn_t count(nvmlReturn_t (*real)(unsigned *), unsigned *n) {
    if (!real)
        return error();
    return n && is_held_to_lease() ? seen(0, NULL, n) : real(n);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount) {
    ENTER();

    return count(NVML_REAL(nvmlDeviceGetCount), deviceCount);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount) {
    ENTER();

    return count(NVML_REAL(nvmlDeviceGetCount_v2), deviceCount);
}

static nvmlReturn_t by_index(nvmlReturn_t (*real)(unsigned, nvmlDevice_t *), unsigned index,
                             nvmlDevice_t *device) {
    if (!real)
        return error();
    return device && is_held_to_lease() ? seen(index, device, NULL) : real(index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
    ENTER();

    return by_index(NVML_REAL(nvmlDeviceGetHandleByIndex), index, device);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    ENTER();

    return by_index(NVML_REAL(nvmlDeviceGetHandleByIndex_v2), index, device);
}

/* Check a device that the library found by one of its names. */
static nvmlReturn_t found(nvmlReturn_t r, const nvmlDevice_t *device) {
    return r == NVML_SUCCESS && !may_see(*device) ? NVML_ERROR_NOT_FOUND : r;
}

static nvmlReturn_t by_text(nvmlReturn_t (*real)(const char *, nvmlDevice_t *), const char *text,
                            nvmlDevice_t *device) {
    return real ? found(real(text, device), device) : error();
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER();

    return by_text(NVML_REAL(nvmlDeviceGetHandleByUUID), uuid, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device) {
    ENTER();

    return by_text(NVML_REAL(nvmlDeviceGetHandleByPciBusId), pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device) {
    ENTER();

    return by_text(NVML_REAL(nvmlDeviceGetHandleByPciBusId_v2), pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device) {
    ENTER();

    return by_text(NVML_REAL(nvmlDeviceGetHandleBySerial), serial, device);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
                                                 nvmlDevice_t *migDevice) {
    ENTER();
    __typeof__(&nvmlDeviceGetMigDeviceHandleByIndex) real =
        NVML_REAL(nvmlDeviceGetMigDeviceHandleByIndex);

    if (!real)
        return error();
    return found(real(device, index, migDevice), migDevice);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    ENTER();
    __typeof__(&nvmlDeviceGetIndex) real = NVML_REAL(nvmlDeviceGetIndex);
    unsigned n = 0;
    nvmlReturn_t r;

    if (!real)
        return error();
    r = real(device, index);
    if (r != NVML_SUCCESS || !is_held_to_lease() || seen(0, NULL, &n) != NVML_SUCCESS)
        return r;
    for (unsigned i = 0; i < n; i++) {
        nvmlDevice_t ours;

        if (seen(i, &ours, NULL) == NVML_SUCCESS && ours == device)
            *index = i;
    }
    return r;
}

/* ---- How much memory ------------------------------------------------------------------------- */

/* The job's share of a device; false: do not show it, or the device is not the job's. */
static bool share_view(nvmlDevice_t device, struct credit_view *ret) {
    bool parent;
    int share = is_held_to_lease() ? share_of(device, &parent) : -1;

    return share >= 0 && !parent && credit_view(share, ret);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER();
    __typeof__(&nvmlDeviceGetMemoryInfo) real = NVML_REAL(nvmlDeviceGetMemoryInfo);
    struct credit_view view;
    nvmlReturn_t r;

    if (!real)
        return error();
    r = real(device, memory);
    if (r == NVML_SUCCESS && share_view(device, &view)) {
        memory->total = MIN(memory->total, view.limit_bytes);
        memory->used = MIN(view.held_bytes, memory->total);
        memory->free = memory->total - memory->used;
    }
    return r;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER();
    __typeof__(&nvmlDeviceGetMemoryInfo_v2) real = NVML_REAL(nvmlDeviceGetMemoryInfo_v2);
    struct credit_view view;
    nvmlReturn_t r;

    if (!real)
        return error();
    r = real(device, memory);
    if (r == NVML_SUCCESS && share_view(device, &view)) {
        memory->total = MIN(memory->total, view.limit_bytes);
        memory->reserved = 0;
        memory->used = MIN(view.held_bytes, memory->total);
        memory->free = memory->total - memory->used;
    }
    return r;
}
