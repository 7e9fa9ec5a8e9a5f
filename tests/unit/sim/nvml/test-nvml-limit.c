/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/box/cgroup.h"
#include "sim/box/charge.h"
#include "sim/box/proc.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

/* The folder of a cgroup2 mount; false: this machine has none, or we are not root. */
static bool have_cgroup(char ret[PATH_MAX]) {
    cleanup(fclosep) FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[4096];

    while (file && fgets(line, sizeof(line), file))
        if (strstr(line, " - cgroup2 ") && sscanf(line, "%*d %*d %*s %*s %4095s", ret) == 1)
            return geteuid() == 0;
    fprintf(stderr, "no cgroup2 mount here, or not root: nothing to test limits with\n");
    return false;
}

START_TEST(a_limit_is_set_read_enforced_and_removed) {
    char folder[PATH_MAX];
    nvmlSetMemoryLimits_v1_t set = { .nameSpace = folder, .softLimit = 0, .hardLimit = 64 * MIB };
    nvmlGetMemoryLimits_v1_t get = { .nameSpace = folder };
    nvmlDevice_t device;
    struct sim_box s;
    uint32_t slot;
    pid_t pid;

    if (!have_cgroup(folder))
        return;
    nvml_library_init(&s, NULL);
    device = nvml_library_device(0);
    ck_assert_nvml(NV(nvmlDeviceGetMemoryLimits_v1)(device, &get), NVML_ERROR_NOT_FOUND);
    ck_assert_nvml_ok(NV(nvmlDeviceSetMemoryLimits_v1)(device, &set));
    pid = nvml_library_hold(&s, &(struct nvml_library_hold){ { 0, 0 }, 32 * MIB, 0 });
    ck_assert_nvml_ok(NV(nvmlDeviceGetMemoryLimits_v1)(device, &get));
    ck_assert_uint_eq(get.softLimit, 0);
    ck_assert_uint_eq(get.hardLimit, 64 * MIB);
    ck_assert_uint_eq(get.currentUsed, 32 * MIB);
    ck_assert_nvml(NV(nvmlDeviceGetMemoryLimits_v1)(nvml_library_device(1), &get),
                   NVML_ERROR_NOT_FOUND);

    box_lock(s.box);
    ck_assert_int_eq(proc_join(s.box, &slot), 0);
    ck_assert_int_lt(charge_take(s.box, slot, (struct box_part){ 0, 0 }, 40 * MIB, NULL), 0);
    ck_assert_int_eq(charge_take(s.box, slot, (struct box_part){ 1, 0 }, 40 * MIB, NULL), 0);
    box_unlock(s.box);

    set.hardLimit = NVML_DEVICE_MEMORY_LIMIT_MAX;
    ck_assert_nvml_ok(NV(nvmlDeviceSetMemoryLimits_v1)(device, &set));
    ck_assert_nvml(NV(nvmlDeviceGetMemoryLimits_v1)(device, &get), NVML_ERROR_NOT_FOUND);
    sim_box_kill(pid);
    sim_box_done(&s);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused) {
    char folder[PATH_MAX];
    nvmlSetMemoryLimits_v1_t set = { .nameSpace = folder, .softLimit = 3, .hardLimit = 2 };
    nvmlDevice_t device, mig;
    struct sim_box s;

    if (!have_cgroup(folder))
        return;
    nvml_library_init(&s,
                      &(struct box_spec){ .n_gpus = 1, .models = "a100-40g", .mig = "0:7g.40gb" });
    device = nvml_library_device(0);
    ck_assert_nvml(NV(nvmlDeviceSetMemoryLimits_v1)(device, &set), NVML_ERROR_INVALID_ARGUMENT);
    set.hardLimit = s.box->file->gpu[0].total_bytes + 1;
    ck_assert_nvml(NV(nvmlDeviceSetMemoryLimits_v1)(device, &set), NVML_ERROR_INVALID_ARGUMENT);
    set.hardLimit = 64 * MIB;
    set.nameSpace = "/nonexistent/cgroup";
    ck_assert_nvml(NV(nvmlDeviceSetMemoryLimits_v1)(device, &set), NVML_ERROR_OPERATING_SYSTEM);
    set.nameSpace = "/tmp";
    ck_assert_nvml(NV(nvmlDeviceSetMemoryLimits_v1)(device, &set), NVML_ERROR_OPERATING_SYSTEM);
    set.nameSpace = NULL;
    ck_assert_nvml(NV(nvmlDeviceSetMemoryLimits_v1)(device, &set), NVML_ERROR_INVALID_ARGUMENT);
    set.nameSpace = folder;
    ck_assert_nvml_ok(NV(nvmlDeviceGetMigDeviceHandleByIndex)(device, 0, &mig));
    ck_assert_nvml(NV(nvmlDeviceSetMemoryLimits_v1)(mig, &set), NVML_ERROR_NOT_SUPPORTED);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_driver_before_615_has_no_limits) {
    char folder[PATH_MAX];
    nvmlSetMemoryLimits_v1_t set = { .nameSpace = folder, .hardLimit = 64 * MIB };
    struct sim_box s;

    if (!have_cgroup(folder))
        return;
    nvml_library_init(&s, &(struct box_spec){ .n_gpus = 1, .models = "t4-16g", .driver = "580" });
    ck_assert_nvml(NV(nvmlDeviceSetMemoryLimits_v1)(nvml_library_device(0), &set),
                   NVML_ERROR_NOT_SUPPORTED);
    sim_box_done(&s);
}
END_TEST

SUITE("nvml-limit", a_limit_is_set_read_enforced_and_removed, what_makes_no_sense_is_refused,
      a_driver_before_615_has_no_limits)
