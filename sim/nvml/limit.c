/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limit: how much of a GPU's memory the processes of a cgroup may take.
 *
 * A cgroup is named by its folder under a cgroup2 mount, the box knows it by its path in the
 * hierarchy; a folder that is gone, or is no cgroup, cannot be opened as one.
 */
#include "sim/nvml/core.h"

#include <errno.h>
#include <stdlib.h>

#include "sim/box/cgroup.h"

/* The first driver that has these calls. On a box with an older one they refuse. */
#define FIRST_DRIVER 615

static bool driver_has_limits(const struct target *t) {
    return strtoul(t->box->file->driver_version, NULL, 10) >= FIRST_DRIVER;
}

static nvmlReturn_t find_cgroup(const char *folder, char ret[static BOX_CGROUP_MAX]) {
    REQUIRE(folder);
    switch (cgroup_of_folder(ret, BOX_CGROUP_MAX, folder)) {
    case 0:
        return NVML_SUCCESS;
    case -ENAMETOOLONG:
        return NVML_ERROR_INVALID_ARGUMENT;
    default:
        return NVML_ERROR_OPERATING_SYSTEM;
    }
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits) {
    ENTER(t, device, ON_GPU | BY_ROOT);
    char cgroup[BOX_CGROUP_MAX];
    nvmlReturn_t r;

    if (!driver_has_limits(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(limits);
    REQUIRE(limits->softLimit <= limits->hardLimit && limits->softLimit <= t.gpu->total_bytes);
    REQUIRE(limits->hardLimit <= t.gpu->total_bytes ||
            limits->hardLimit == NVML_DEVICE_MEMORY_LIMIT_MAX);
    r = find_cgroup(limits->nameSpace, cgroup);
    if (r != NVML_SUCCESS)
        return r;
    return charge_limit_set(t.box, t.part.gpu, cgroup, limits->softLimit, limits->hardLimit) < 0
               ? NVML_ERROR_INSUFFICIENT_RESOURCES
               : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits) {
    ENTER(t, device, ON_GPU);
    char cgroup[BOX_CGROUP_MAX];
    uint64_t soft, hard, used;
    nvmlReturn_t r;

    if (!driver_has_limits(&t))
        return NVML_ERROR_NOT_SUPPORTED;
    REQUIRE(limits);
    r = find_cgroup(limits->nameSpace, cgroup);
    if (r != NVML_SUCCESS)
        return r;
    proc_reap(t.box);
    if (charge_limit_get(t.box, t.part.gpu, cgroup, &soft, &hard, &used) < 0)
        return NVML_ERROR_NOT_FOUND;
    limits->softLimit = soft;
    limits->hardLimit = hard;
    limits->currentUsed = used;
    return NVML_SUCCESS;
}
