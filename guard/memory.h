/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Memory: what every hook does that allocates or frees memory.
 *
 * Taking: memory_take() charges before the driver is called; memory_keep() records the key by which
 * it will be given back; memory_drop() refunds if the driver failed. Giving back: memory_lift()
 * removes the entry first, because the driver may hand the same key to another thread as soon as it
 * is free; then memory_gone() or, if the driver refused, memory_put_back(). Any thread.
 */
#include "guard/credit.h"
#include "guard/hook.h"
#include "guard/table.h"

/* A charge that is being made. `share` CREDIT_NONE: nothing is charged, everything is allowed. */
struct memory_charge {
    int share;
    uint64_t bytes;
};

/* The share of a device, or of the current context's device; or CREDIT_NONE, CREDIT_REFUSED. */
int memory_share_of(CUdevice device);
int memory_share_here(void);
void *memory_context(void); /* the current one; NULL: none */
/* The device number of a share in this process; false: not known yet. */
bool memory_device_of(int share, CUdevice *ret);

/*
 * Charge what an allocation of `bytes` takes on the current device, or exactly `bytes` on `share`.
 * CUDA_ERROR_OUT_OF_MEMORY if refused.
 */
CUresult memory_take(struct memory_charge *charge, uint64_t bytes);
CUresult memory_take_on(struct memory_charge *charge, int share, uint64_t bytes);
void memory_drop(struct memory_charge *charge);
/* Correct the charge to `bytes`, which are known only afterwards. */
void memory_settle(struct memory_charge *charge, uint64_t bytes);
/* False: no host memory; the caller gives the device memory back and drops the charge. */
bool memory_keep(const struct memory_charge *charge, enum table_kind kind, uint64_t key,
                 void *context);

bool memory_lift(struct table_entry *entry, enum table_kind kind, uint64_t key);
void memory_gone(const struct table_entry *entry);
void memory_put_back(const struct table_entry *entry);

/* The error if the driver has no such call, or there is no driver. */
#define OR_NOT_SUPPORTED(real)                                                                     \
    do {                                                                                           \
        if (!(real))                                                                               \
            return hook_error();                                                                   \
    } while (0)

/*
 * The body of a hook that takes `bytes` on the current device: it charges, calls the driver, and
 * ends with `result`, which sees `charge` and the driver's `r`. If the arguments mean no allocation
 * (`meant` is false), the driver reports what is wrong with them.
 */
#define MEMORY_TAKES(symbol, meant, bytes, arguments, result)                                      \
    __typeof__(&symbol) real = REAL(symbol);                                                       \
    struct memory_charge charge;                                                                   \
    CUresult r;                                                                                    \
                                                                                                   \
    OR_NOT_SUPPORTED(real);                                                                        \
    if (!(meant))                                                                                  \
        return real arguments;                                                                     \
    r = memory_take(&charge, bytes);                                                               \
    if (r != CUDA_SUCCESS)                                                                         \
        return r;                                                                                  \
    r = real arguments;                                                                            \
    return result

/* Such a result: record `*object` under its handle until it is given back, or destroy it again. */
#define MEMORY_KEPT(charge, r, kind, object, context, destroy)                                     \
    ((r) != CUDA_SUCCESS ? (memory_drop(charge), (r))                                              \
     : memory_keep(charge, kind, (uint64_t)(uintptr_t)(*(object)), context)                        \
         ? CUDA_SUCCESS                                                                            \
         : (REAL(destroy)(*(object)), memory_drop(charge), CUDA_ERROR_OUT_OF_MEMORY))

/* Define the hook of a call that gives back what `kind` has under its only argument. */
#define MEMORY_GIVES_BACK(symbol, type, kind)                                                      \
    CUresult symbol(type object) {                                                                 \
        __typeof__(&symbol) real = REAL(symbol);                                                   \
        struct table_entry entry;                                                                  \
        bool known;                                                                                \
        CUresult r;                                                                                \
                                                                                                   \
        OR_NOT_SUPPORTED(real);                                                                    \
        known = memory_lift(&entry, kind, (uint64_t)(uintptr_t)object);                            \
        r = real(object);                                                                          \
        if (known && r == CUDA_SUCCESS)                                                            \
            memory_gone(&entry);                                                                   \
        else if (known)                                                                            \
            memory_put_back(&entry);                                                               \
        return r;                                                                                  \
    }
