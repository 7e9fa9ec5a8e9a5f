/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * NVML library: the simulated libnvidia-ml.so.1 as its clients have it, by dlopen; and processes
 * that hold memory for it to show.
 */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>

#include "tests/support/sim/box/sim_box.h"

/* Functions that the vendor advises against are what older clients call. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

/* A symbol of the library; fails the test if there is none. */
void *nvml_library_symbol(const char *name);
/* NV(nvmlDeviceGetCount_v2)(&n): with the vendor's prototype. */
#define NV(name) ((__typeof__(&name))nvml_library_symbol(#name))

#define ck_assert_nvml(call, expected)                                                             \
    do {                                                                                           \
        nvmlReturn_t answered_ = (call);                                                           \
                                                                                                   \
        ck_assert_msg(answered_ == (expected), "%s: %s instead of %s", #call,                      \
                      NV(nvmlErrorString)(answered_), #expected);                                  \
    } while (0)
#define ck_assert_nvml_ok(call) ck_assert_nvml(call, NVML_SUCCESS)

/* Make a box, initialise NVML on it. */
void nvml_library_init(struct sim_box *ret, const struct box_spec *spec);
nvmlDevice_t nvml_library_device(unsigned index);

/* What a child process is to hold. */
struct nvml_library_hold {
    struct box_part part;
    uint64_t bytes;
    unsigned busy_percent; /* of the last second, as if a kernel had run */
};
/* Start it; returns once it holds. sim_box_kill() ends it. */
pid_t nvml_library_hold(struct sim_box *sim_box, const struct nvml_library_hold *hold);
