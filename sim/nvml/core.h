/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML, from the inside: what every entry point of the simulated libnvidia-ml.so.1 begins with.
 *
 * An entry point names what it works on, a GPU or a MIG device. It goes on only if NVML is
 * initialised, the handle is valid, no fault was injected and the GPU is still there. It then holds
 * the lock of the box until it returns:
 *
 *     nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
 *         ENTER(t, device, ON_GPU);
 *         REQUIRE(minor);
 *         *minor = t.gpu->minor;
 *         return NVML_SUCCESS;
 *     }
 *
 * Any thread, any number at once, also in the child of a fork. The box stays mapped once it was
 * opened, so a call that races with nvmlShutdown() reads valid memory.
 */
#include <stdbool.h>
#include <stdint.h>

/* We define and export both nvmlInit and nvmlInit_v2, so neither may be a macro. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#pragma GCC visibility push(default)
#include <nvml.h>
#pragma GCC visibility pop

#include "base/cleanup.h"
#include "sim/box/box.h"
#include "sim/box/utilization.h"
#include "sim/box/charge.h"
#include "sim/box/proc.h"

/* What an entry point accepts. A MIG handle where only a GPU will do is NOT_SUPPORTED. */
enum {
    ON_GPU = 1,
    ON_MIG = 2,
    ON_ANY = ON_GPU | ON_MIG,
    BY_ROOT = 4, /* NO_PERMISSION for other users */
};

struct target {
    struct box *box; /* locked; NULL: not entered */
    const struct sim_model *model;
    struct box_gpu *gpu;
    struct box_gi *gi; /* NULL: the whole GPU */
    struct box_ci *ci; /* NULL: the whole GPU, or (of a GPU instance handle) all of it */
    struct box_part part;
};

nvmlReturn_t core_enter(struct target *ret, const char *call, nvmlDevice_t device,
                        unsigned accepts);
nvmlReturn_t core_enter_gi(struct target *ret, const char *call, nvmlGpuInstance_t instance,
                           unsigned accepts);
nvmlReturn_t core_enter_ci(struct target *ret, const char *call, nvmlComputeInstance_t instance,
                           unsigned accepts);
/* A call that concerns no device: `gpu` stays NULL. */
nvmlReturn_t core_enter_box(struct target *ret, const char *call, unsigned accepts);
void core_leave(struct target *target); /* nothing to do if never entered */

#define ENTER_(t, enter)                                                                           \
    cleanup(core_leave) struct target t = { 0 };                                                   \
    nvmlReturn_t t##_entered_ = enter;                                                             \
                                                                                                   \
    if (t##_entered_ != NVML_SUCCESS)                                                              \
    return t##_entered_
#define ENTER(t, device, accepts)      ENTER_(t, core_enter(&t, __func__, device, accepts))
#define ENTER_GI(t, instance, accepts) ENTER_(t, core_enter_gi(&t, __func__, instance, accepts))
#define ENTER_CI(t, instance, accepts) ENTER_(t, core_enter_ci(&t, __func__, instance, accepts))
#define ENTER_BOX(t)                   ENTER_(t, core_enter_box(&t, __func__, 0))

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
    } while (0)
#define REQUIRE_VERSION(pointer, expected)                                                         \
    do {                                                                                           \
        if (!(pointer))                                                                            \
            return NVML_ERROR_INVALID_ARGUMENT;                                                    \
        if ((pointer)->version != (expected))                                                      \
            return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;                                           \
    } while (0)

/* Consumer cards lack what servers need: serial numbers, applications clocks, accounting. */
static inline bool is_consumer(const struct target *target) {
    return target->model->nvml_brand == NVML_BRAND_GEFORCE ||
           target->model->nvml_brand == NVML_BRAND_GEFORCE_RTX;
}

/* power.c: what was set, or what the model has. */
unsigned power_limit_mw(const struct target *target);

/* core.c */
struct box *core_box(void);  /* NULL: not initialised */
uint32_t core_visible(void); /* bit per GPU that this process may open */
nvmlReturn_t core_lock(struct box *box);
/* INSUFFICIENT_SIZE where `text` and its NUL do not fit. */
nvmlReturn_t core_give_text(char *to, unsigned length, const char *text);
/*
 * NVML's way to return a list of `n`: `*count` is the room in the array and becomes the length of
 * the list. SUCCESS: the caller copies `n` elements. An array that is NULL has no room.
 */
nvmlReturn_t core_give_list(unsigned *count, const void *array, unsigned n);

/* handle.c: handles are addresses in tables of their own; the location follows from the address. */
nvmlDevice_t handle_of_gpu(unsigned gpu);
nvmlDevice_t handle_of_mig(unsigned gpu, unsigned gi, unsigned ci); /* slots, not ids */
nvmlGpuInstance_t handle_of_gi(unsigned gpu, unsigned gi);
nvmlComputeInstance_t handle_of_ci(unsigned gpu, unsigned gi, unsigned ci);
#define HANDLE_WHOLE UINT32_MAX
struct handle_location {
    uint32_t gpu, gi, ci; /* HANDLE_WHOLE: the whole */
};
/* False: never given out. Looks at the address alone, so any value may be asked for. */
bool handle_locate_device(nvmlDevice_t device, struct handle_location *ret);
bool handle_locate_gi(nvmlGpuInstance_t instance, struct handle_location *ret);
bool handle_locate_ci(nvmlComputeInstance_t instance, struct handle_location *ret);

/* process.c */
struct process_row {
    unsigned pid;
    uint64_t used_bytes;
    uint32_t gi_id, ci_id; /* UINT32_MAX: none */
    uint32_t slot;
};
/*
 * Living processes with a context of one of `kinds` (PROC_COMPUTE …) on the target, visible from
 * this pid namespace. NO_PERMISSION: a GPU in MIG mode shows all its instances to root alone.
 */
nvmlReturn_t process_collect(struct target *target, unsigned kinds,
                             struct process_row rows[static BOX_MAX_PROCS], unsigned *ret_n);
/* The program of `pid`, cut to `length`. NOT_FOUND: no such process. */
nvmlReturn_t process_name(unsigned pid, char *name, unsigned length);

/* nvlink.c */
struct nvlink_end {
    bool active;
    bool to_switch;
    unsigned peer;      /* GPU index, if not to a switch */
    unsigned peer_link; /* the link's number over there */
};
/* Where link `link` of GPU `gpu` leads; false: the model has no such link. */
bool nvlink_end(const struct box *box, unsigned gpu, unsigned link, struct nvlink_end *ret);

/* clock.c: clocks as they are after what the administrator set. */
void clock_read(struct target *target, struct utilization_readings *ret);
