/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Fault: the faults that `gpusim inject` scripted.
 */
#include <stdbool.h>
#include <stdint.h>

#include "sim/box/box.h"

/*
 * Every NVML and CUDA entry point calls this first, without the lock. It waits if a fault makes the
 * call slow, or hang until the fault is cleared. True: the call must fail with `*ret_code`. Costs
 * one load if no fault is injected.
 */
bool fault_call(struct box *box, const char *call, int gpu, int *ret_code);
/* Whether `pattern` means `call`: the name in any of its versions ("cuMemAlloc" is cuMemAlloc_v2
 * too), or all that begin so ("cuMem*"). */
bool fault_names(const char *pattern, const char *call);
/* Whether an allocation of `bytes` is to fail. Needs the lock. */
bool fault_alloc(struct box *box, int gpu, uint64_t bytes);

/* Script a fault; its id for fault_clear(). -ENOSPC: too many at once. These need the lock. */
int fault_add(struct box *box, const struct box_fault *fault, uint32_t *ret_id);
/* Undo fault `id`; 0: all. -ENOENT: no such fault. Hanging calls go on. */
int fault_clear(struct box *box, uint32_t id);

/* Hardware errors of a device. Each is reported through NVML's events. These need the lock. */
void fault_xid(struct box *box, unsigned gpu, uint64_t xid); /* 79: also lost */
void fault_ecc(struct box *box, unsigned gpu, bool uncorrected, uint64_t n);
void fault_lost(struct box *box, unsigned gpu);
/* Restore full health: the GPU is on the bus again, its counters and last Xid are cleared. */
void fault_recover(struct box *box, unsigned gpu);
