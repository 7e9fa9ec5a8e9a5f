/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/memory.h"

#include <pthread.h>
#include <stdatomic.h>

enum { DEVICES = 64 };

/* Share of each device number, plus one; 0: not looked up yet. Valid in this process only: a forked
 * child may see other devices. */
static _Atomic int shares[DEVICES];

int memory_share_of(CUdevice device) {
    CUuuid uuid;
    CUresult r = CUDA_ERROR_NOT_SUPPORTED;
    int known, share;

    if (credit_is_off())
        return CREDIT_NONE;
    if (device < 0 || device >= DEVICES)
        return CREDIT_REFUSED;
    known = shares[device];
    if (__builtin_expect(known > 0, 1))
        return known - 1;
    /* v2 names the MIG instance where there is one. */
    if (REAL(cuDeviceGetUuid_v2))
        r = REAL(cuDeviceGetUuid_v2)(&uuid, device);
    else if (REAL(cuDeviceGetUuid))
        r = REAL(cuDeviceGetUuid)(&uuid, device);
    if (r != CUDA_SUCCESS)
        return CREDIT_REFUSED;
    share = credit_share((const uint8_t *)uuid.bytes);
    if (share >= 0)
        shares[device] = share + 1;
    return share;
}

int memory_share_here(void) {
    CUdevice device;

    if (credit_is_off())
        return CREDIT_NONE;
    /* No current context: the driver will report that itself. */
    if (!REAL(cuCtxGetDevice) || REAL(cuCtxGetDevice)(&device) != CUDA_SUCCESS)
        return CREDIT_NONE;
    return memory_share_of(device);
}

bool memory_device_of(int share, CUdevice *ret) {
    for (int device = 0; device < DEVICES; device++)
        if (shares[device] == share + 1) {
            *ret = device;
            return true;
        }
    return false;
}

void *memory_context(void) {
    CUcontext context = NULL;

    if (REAL(cuCtxGetCurrent))
        REAL(cuCtxGetCurrent)(&context);
    return context;
}

CUresult memory_take_on(struct memory_charge *charge, int share, uint64_t bytes) {
    *charge = (struct memory_charge){ share, share >= 0 ? bytes : 0 };
    if (share == CREDIT_NONE)
        return CUDA_SUCCESS;
    if (share < 0 || !credit_take(share, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult memory_take(struct memory_charge *charge, uint64_t bytes) {
    return memory_take_on(charge, memory_share_here(), credit_size(bytes));
}

void memory_drop(struct memory_charge *charge) {
    if (charge->share >= 0)
        credit_give(charge->share, charge->bytes);
    charge->bytes = 0;
}

void memory_settle(struct memory_charge *charge, uint64_t bytes) {
    if (charge->share < 0)
        return;
    if (bytes > charge->bytes)
        credit_force(charge->share, bytes - charge->bytes);
    else if (bytes < charge->bytes)
        credit_give(charge->share, charge->bytes - bytes);
    charge->bytes = bytes;
}

bool memory_keep(const struct memory_charge *charge, enum table_kind kind, uint64_t key,
                 void *context) {
    struct table_entry entry = { .key = key,
                                 .bytes = charge->bytes,
                                 .context = context,
                                 .share = (int16_t)charge->share,
                                 .kind = (uint8_t)kind };

    return charge->share < 0 || table_put(&entry);
}

bool memory_lift(struct table_entry *entry, enum table_kind kind, uint64_t key) {
    return table_take(kind, key, entry);
}

void memory_gone(const struct table_entry *entry) {
    credit_give(entry->share, entry->bytes);
}

void memory_put_back(const struct table_entry *entry) {
    /* There was room for it before; if there is none now, the charge stays until the process
     * ends. */
    table_put(entry);
}

static void forget_devices(void) {
    for (int device = 0; device < DEVICES; device++)
        shares[device] = 0;
}

__attribute__((constructor)) static void begin(void) {
    pthread_atfork(NULL, NULL, forget_devices);
}
