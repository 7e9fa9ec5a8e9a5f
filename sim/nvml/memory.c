/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a GPU or of a MIG device.
 *
 * NVML's first struct has no field for what driver and firmware keep back and counts it as used;
 * the second shows it, and there used + free + reserved = total.
 */
#include "sim/nvml/core.h"

#include <unistd.h>

struct memory {
    uint64_t total, reserved, used, free;
};

static nvmlReturn_t read_memory(struct target *t, struct memory *ret) {
    struct charge_sums sums;

    proc_reap(t->box);
    if (t->gi) {
        charge_sums_seen(t->box, t->part, &sums);
        ret->total = t->gi->memory_bytes;
        ret->reserved = ret->total - MIN(ret->total, sums.capacity_bytes);
        ret->used = sums.used_bytes;
    } else {
        ret->total = t->gpu->total_bytes;
        ret->reserved = t->gpu->reserved_bytes;
        ret->used = 0;
        for (unsigned part = 0; part < BOX_PARTS; part++) {
            if (part > 0 && !(t->gpu->mig_enabled && t->gpu->gi[part - 1].in_use))
                continue;
            charge_sums_seen(t->box, (struct box_part){ t->part.gpu, part }, &sums);
            ret->used += sums.used_bytes;
        }
        /* with MIG on, only root sees what all instances use together */
        if (t->gpu->mig_enabled && geteuid() != 0)
            return NVML_ERROR_NO_PERMISSION;
    }
    ret->free = ret->total - MIN(ret->total, ret->reserved + ret->used);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER(t, device, ON_ANY);
    struct memory now;
    nvmlReturn_t r;

    REQUIRE(memory);
    r = read_memory(&t, &now);
    if (r == NVML_SUCCESS)
        *memory =
            (nvmlMemory_t){ .total = now.total, .free = now.free, .used = now.total - now.free };
    return r;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER(t, device, ON_ANY);
    struct memory now;
    nvmlReturn_t r;

    REQUIRE_VERSION(memory, nvmlMemory_v2);
    r = read_memory(&t, &now);
    if (r != NVML_SUCCESS)
        return r;
    memory->total = now.total;
    memory->reserved = now.reserved;
    memory->free = now.free;
    memory->used = now.used;
    return NVML_SUCCESS;
}

/* A window into the memory: each process maps a little of it for its channels. */
nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1Memory) {
    ENTER(t, device, ON_ANY);
    uint64_t total = t.model->bar1_bytes, used = UINT64_C(1) << 20;

    REQUIRE(bar1Memory);
    if (t.gi)
        total = total / t.gpu->total_bytes * t.gi->memory_bytes + total % t.gpu->total_bytes *
                                                                      (t.gi->memory_bytes >> 20) /
                                                                      (t.gpu->total_bytes >> 20);
    proc_reap(t.box);
    for (uint32_t slot = 0; slot < MIN(t.box->file->proc_high, (uint32_t)BOX_MAX_PROCS); slot++) {
        const struct box_proc *proc = &t.box->file->proc[slot];

        if (proc->state == PROC_LIVE && proc->usage[t.part.gpu].contexts > 0 &&
            (!t.gi || proc->usage[t.part.gpu].gi_id == t.gi->id))
            used += UINT64_C(2) << 20;
    }
    used = MIN(used, total);
    *bar1Memory =
        (nvmlBAR1Memory_t){ .bar1Total = total, .bar1Free = total - used, .bar1Used = used };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *busWidth) {
    ENTER(t, device, ON_GPU);
    REQUIRE(busWidth);
    *busWidth = t.model->memory_bus_bits;
    return NVML_SUCCESS;
}
