/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Memory: what every hook does that allocates or frees memory.
 *
 * Taking: memory_take() charges before the driver is called; memory_keep() notes under which key it
 * will be given back; memory_drop() refunds where the driver failed. Giving back: memory_lift()
 * takes the entry out first, because the driver may hand the same key to another thread as soon as
 * it is free; then memory_gone() or, where the driver refused, memory_put_back(). Any thread.
 */
#include "guard/credit.h"
#include "guard/hook.h"
#include "guard/table.h"

/* A charge that is being made. `share` CREDIT_NONE: nothing is charged, everything passes. */
struct memory_charge {
    int share;
    uint64_t bytes;
};

/* The share of a device, or of the current context's: CREDIT_NONE and CREDIT_REFUSED as there. */
int memory_share_of(CUdevice device);
int memory_share_here(void);
void *memory_context(void); /* current; NULL: none */
/* The device of a share, as this process counts them; false: it is not known yet. */
bool memory_device_of(int share, CUdevice *ret);

/*
 * Charge what an allocation of `bytes` takes on the current device, or exactly `bytes` on `share`.
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult memory_take(struct memory_charge *charge, uint64_t bytes);
CUresult memory_take_on(struct memory_charge *charge, int share, uint64_t bytes);
void memory_drop(struct memory_charge *charge);
/* After the fact it is known to be `bytes` instead. */
void memory_settle(struct memory_charge *charge, uint64_t bytes);
/* False: no host memory; the caller gives the device memory back and drops the charge. */
bool memory_keep(const struct memory_charge *charge, enum table_kind kind, uint64_t key,
                 void *context);

bool memory_lift(struct table_entry *entry, enum table_kind kind, uint64_t key);
void memory_gone(const struct table_entry *entry);
void memory_put_back(const struct table_entry *entry);

/* Where the driver has no such call, or there is no driver. */
#define OR_NOT_SUPPORTED(real)                                                                     \
    do {                                                                                           \
        if (!(real))                                                                               \
            return hook_error();                                                                   \
    } while (0)

/*
 * The body of a hook that takes `bytes` of the current device: charged, called, and ended by
 * `result`, which sees `charge` and the driver's `r`. Where the arguments do not mean an allocation
 * (`meant`) the driver says what is wrong with them.
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

/* Such a result: `*object` is kept under its name until it is given back, or destroyed again. */
#define MEMORY_KEPT(charge, r, kind, object, context, destroy)                                     \
    ((r) != CUDA_SUCCESS ? (memory_drop(charge), (r))                                              \
     : memory_keep(charge, kind, (uint64_t)(uintptr_t)(*(object)), context)                        \
         ? CUDA_SUCCESS                                                                            \
         : (REAL(destroy)(*(object)), memory_drop(charge), CUDA_ERROR_OUT_OF_MEMORY))

/* Defines the hook of a call that gives back what `kind` has under its one argument. */
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
