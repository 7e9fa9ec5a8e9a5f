/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

static const struct box_spec cut = { .n_gpus = 2,
                                     .models = "a100-40g",
                                     .mig = "0:3g.20gb+2x1c.3g.20gb" };

static nvmlDevice_t mig(unsigned index) {
    nvmlDevice_t device;

    ck_assert_nvml_ok(
        NV(nvmlDeviceGetMigDeviceHandleByIndex)(nvml_library_device(0), index, &device));
    return device;
}

START_TEST(mig_devices_are_enumerated_under_their_gpu) {
    nvmlDeviceAttributes_t attributes;
    nvmlDevice_t device, parent;
    unsigned current, pending, n, gi, ci;
    char name[96], uuid[96];
    struct sim_box s;

    nvml_library_init(&s, &cut);
    ck_assert_nvml_ok(NV(nvmlDeviceGetMigMode)(nvml_library_device(0), &current, &pending));
    ck_assert_uint_eq(current, NVML_DEVICE_MIG_ENABLE);
    ck_assert_nvml_ok(NV(nvmlDeviceGetMigMode)(nvml_library_device(1), &current, &pending));
    ck_assert_uint_eq(current, NVML_DEVICE_MIG_DISABLE);
    ck_assert_nvml_ok(NV(nvmlDeviceGetMaxMigDeviceCount)(nvml_library_device(0), &n));
    ck_assert_uint_eq(n, 7);
    ck_assert_nvml(NV(nvmlDeviceGetMigDeviceHandleByIndex)(nvml_library_device(0), 3, &device),
                   NVML_ERROR_NOT_FOUND);
    ck_assert_nvml(NV(nvmlDeviceGetMigDeviceHandleByIndex)(nvml_library_device(0), 7, &device),
                   NVML_ERROR_INVALID_ARGUMENT);

    device = mig(1);
    ck_assert_nvml_ok(NV(nvmlDeviceIsMigDeviceHandle)(device, &n));
    ck_assert_uint_eq(n, 1);
    ck_assert_nvml_ok(NV(nvmlDeviceGetIndex)(device, &n));
    ck_assert_uint_eq(n, 1);
    ck_assert_nvml_ok(NV(nvmlDeviceGetGpuInstanceId)(device, &gi));
    ck_assert_nvml_ok(NV(nvmlDeviceGetComputeInstanceId)(device, &ci));
    ck_assert_uint_eq(gi, s.box->file->gpu[0].gi[1].id);
    ck_assert_uint_eq(ci, 0);
    ck_assert_nvml_ok(NV(nvmlDeviceGetName)(device, name, sizeof(name)));
    ck_assert_str_eq(name, "SIM A100-SXM4-40GB MIG 1c.3g.20gb");
    ck_assert_nvml_ok(NV(nvmlDeviceGetUUID)(device, uuid, sizeof(uuid)));
    ck_assert_str_eq(uuid, s.box->file->gpu[0].gi[1].ci[0].uuid);
    ck_assert_nvml_ok(NV(nvmlDeviceGetHandleByUUID)(uuid, &parent));
    ck_assert_ptr_eq(parent, device);
    snprintf(uuid, sizeof(uuid), "MIG-%s/%u/%u", s.box->file->gpu[0].uuid, gi, ci);
    ck_assert_nvml_ok(NV(nvmlDeviceGetHandleByUUID)(uuid, &parent));
    ck_assert_ptr_eq(parent, device);
    ck_assert_nvml_ok(NV(nvmlDeviceGetDeviceHandleFromMigDeviceHandle)(device, &parent));
    ck_assert_ptr_eq(parent, nvml_library_device(0));
    ck_assert_nvml_ok(NV(nvmlDeviceGetAttributes_v2)(device, &attributes));
    ck_assert_uint_eq(attributes.multiprocessorCount, 14);
    ck_assert_uint_eq(attributes.gpuInstanceSliceCount, 3);
    ck_assert_uint_eq(attributes.computeInstanceSliceCount, 1);
    ck_assert_uint_eq(attributes.memorySizeMB, 19968);
    ck_assert_nvml(NV(nvmlDeviceGetTemperature)(device, NVML_TEMPERATURE_GPU, &n),
                   NVML_ERROR_NOT_SUPPORTED);
    sim_box_done(&s);
}
END_TEST

static int look_as_nobody(struct sim_box *s, void *argument) {
    nvmlMemory_t memory;
    unsigned n = 0;

    if (setresuid(65534, 65534, 65534) < 0)
        return 1;
    return !(NV(nvmlDeviceGetMemoryInfo)(nvml_library_device(0), &memory) ==
                 NVML_ERROR_NO_PERMISSION &&
             NV(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_library_device(0), &n, NULL) ==
                 NVML_ERROR_NO_PERMISSION &&
             NV(nvmlDeviceGetMemoryInfo)(mig(0), &memory) == NVML_SUCCESS);
}

START_TEST(memory_and_processes_are_those_of_the_instance) {
    nvmlMemory_v2_t memory = { .version = nvmlMemory_v2 };
    nvmlProcessInfo_t infos[4];
    nvmlUtilization_t rates;
    struct sim_box s;
    unsigned n = 4;
    pid_t pid;

    nvml_library_init(&s, &cut);
    pid = nvml_library_hold(&s, &(struct nvml_library_hold){ { 0, 2 }, 300 * MIB, 0 });
    ck_assert_nvml_ok(NV(nvmlDeviceGetMemoryInfo_v2)(mig(0), &memory));
    ck_assert_uint_eq(memory.used, 0);
    ck_assert_nvml_ok(NV(nvmlDeviceGetMemoryInfo_v2)(mig(1), &memory));
    ck_assert_uint_eq(memory.used, 300 * MIB);
    ck_assert_uint_eq(memory.total, 19968 * MIB);
    ck_assert_uint_eq(memory.used + memory.free + memory.reserved, memory.total);
    ck_assert_nvml_ok(NV(nvmlDeviceGetComputeRunningProcesses_v3)(mig(1), &n, infos));
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(infos[0].pid, (unsigned)pid);
    ck_assert_uint_eq(infos[0].gpuInstanceId, s.box->file->gpu[0].gi[1].id);
    ck_assert_uint_eq(infos[0].computeInstanceId, 0);
    n = 4;
    ck_assert_nvml_ok(NV(nvmlDeviceGetComputeRunningProcesses_v3)(mig(0), &n, infos));
    ck_assert_uint_eq(n, 0);
    ck_assert_nvml(NV(nvmlDeviceGetUtilizationRates)(nvml_library_device(0), &rates),
                   NVML_ERROR_NOT_SUPPORTED);
    if (geteuid() == 0) {
        ck_assert_nvml_ok(NV(nvmlDeviceGetMemoryInfo_v2)(nvml_library_device(0), &memory));
        ck_assert_uint_eq(memory.used, 300 * MIB);
        n = 4;
        ck_assert_nvml_ok(
            NV(nvmlDeviceGetComputeRunningProcesses_v3)(nvml_library_device(0), &n, infos));
        ck_assert_uint_eq(n, 1);
        sim_box_expect_success(sim_box_fork(look_as_nobody, &s, NULL));
    }
    sim_box_done(&s);
}
END_TEST

START_TEST(instances_are_made_and_destroyed_by_root) {
    nvmlGpuInstanceProfileInfo_v2_t profile = { .version = nvmlGpuInstanceProfileInfo_v2 };
    nvmlComputeInstanceInfo_t ci_info;
    nvmlGpuInstanceInfo_t gi_info;
    nvmlComputeInstance_t ci;
    nvmlGpuInstance_t gi, again;
    nvmlDevice_t gpu, device;
    nvmlReturn_t status;
    struct sim_box s;
    unsigned n;

    if (geteuid() != 0)
        return;
    nvml_library_init(&s, &(struct box_spec){ .n_gpus = 1, .models = "a100-40g" });
    gpu = nvml_library_device(0);
    ck_assert_nvml(NV(nvmlDeviceCreateGpuInstance)(gpu, 9, &gi), NVML_ERROR_NOT_SUPPORTED);
    ck_assert_nvml_ok(NV(nvmlDeviceSetMigMode)(gpu, NVML_DEVICE_MIG_ENABLE, &status));
    ck_assert_int_eq(status, NVML_SUCCESS);
    ck_assert_nvml_ok(
        NV(nvmlDeviceGetGpuInstanceProfileInfoV)(gpu, NVML_GPU_INSTANCE_PROFILE_3_SLICE, &profile));
    ck_assert_uint_eq(profile.id, 9);
    ck_assert_str_eq(profile.name, "MIG 3g.20gb");
    ck_assert_nvml_ok(NV(nvmlDeviceGetGpuInstanceRemainingCapacity)(gpu, 9, &n));
    ck_assert_uint_eq(n, 2);
    ck_assert_nvml_ok(NV(nvmlDeviceCreateGpuInstance)(gpu, 9, &gi));
    ck_assert_nvml_ok(NV(nvmlDeviceGetGpuInstanceRemainingCapacity)(gpu, 9, &n));
    ck_assert_uint_eq(n, 1);
    ck_assert_nvml(NV(nvmlDeviceCreateGpuInstance)(gpu, 0, &again),
                   NVML_ERROR_INSUFFICIENT_RESOURCES);
    ck_assert_nvml_ok(NV(nvmlGpuInstanceGetInfo)(gi, &gi_info));
    ck_assert_ptr_eq(gi_info.device, gpu);
    ck_assert_uint_eq(gi_info.profileId, 9);
    ck_assert_nvml_ok(NV(nvmlDeviceGetGpuInstanceById)(gpu, gi_info.id, &again));
    ck_assert_ptr_eq(again, gi);

    ck_assert_nvml_ok(
        NV(nvmlGpuInstanceCreateComputeInstance)(gi, NVML_COMPUTE_INSTANCE_PROFILE_3_SLICE, &ci));
    ck_assert_nvml_ok(NV(nvmlComputeInstanceGetInfo_v2)(ci, &ci_info));
    ck_assert_ptr_eq(ci_info.gpuInstance, gi);
    ck_assert_uint_eq(ci_info.placement.size, 3);
    device = mig(0);
    ck_assert_nvml(NV(nvmlGpuInstanceDestroy)(gi), NVML_ERROR_IN_USE);
    ck_assert_nvml_ok(NV(nvmlDeviceSetMigMode)(gpu, NVML_DEVICE_MIG_DISABLE, &status));
    ck_assert_int_eq(status, NVML_ERROR_IN_USE);
    ck_assert_nvml_ok(NV(nvmlDeviceSetMigMode)(gpu, NVML_DEVICE_MIG_ENABLE, &status));

    const pid_t pid = nvml_library_hold(&s, &(struct nvml_library_hold){ { 0, 1 }, 2 * MIB, 0 });

    ck_assert_nvml(NV(nvmlComputeInstanceDestroy)(ci), NVML_ERROR_IN_USE);
    sim_box_kill(pid);
    ck_assert_nvml_ok(NV(nvmlComputeInstanceDestroy)(ci));
    ck_assert_nvml(NV(nvmlDeviceGetGpuInstanceId)(device, &n), NVML_ERROR_INVALID_ARGUMENT);
    ck_assert_nvml_ok(NV(nvmlGpuInstanceDestroy)(gi));
    ck_assert_nvml(NV(nvmlGpuInstanceGetInfo)(gi, &gi_info), NVML_ERROR_INVALID_ARGUMENT);
    ck_assert_nvml_ok(NV(nvmlDeviceSetMigMode)(gpu, NVML_DEVICE_MIG_DISABLE, &status));
    ck_assert_int_eq(status, NVML_SUCCESS);
    sim_box_done(&s);
}
END_TEST

SUITE("nvml-mig", mig_devices_are_enumerated_under_their_gpu,
      memory_and_processes_are_those_of_the_instance, instances_are_made_and_destroyed_by_root)
