/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/box/fault.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

static const char *const names[] = {
#define X(name) #name,
#include "sim/nvml/names.def"
#undef X
};

/* Any function of the library, as a caller in another language would see it. */
typedef nvmlReturn_t (*any_fn)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);

static bool works_uninitialised(const char *name) {
    return !strncmp(name, "nvmlInit", 8) || !strcmp(name, "nvmlErrorString") ||
           !strcmp(name, "nvmlInternalGetExportTable");
}

START_TEST(before_init_every_call_says_uninitialized) {
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        any_fn call = (any_fn)nvml_library_symbol(names[i]);

        if (!works_uninitialised(names[i]))
            ck_assert_msg(call(0, 0, 0, 0, 0, 0) == NVML_ERROR_UNINITIALIZED, "%s", names[i]);
    }
}
END_TEST

START_TEST(a_call_with_null_or_garbage_crashes_nothing) {
    const uintptr_t
        firsts[] = { 0, 1, 0x1000, UINTPTR_MAX, 0 /* a device */, 0 /* not quite one */ };
    uintptr_t first[ELEMENTSOF(firsts)];
    struct sim_box s;

    nvml_library_init(&s, &(struct box_spec){ .n_gpus = 1, .models = "a100-40g", .seed = 1 });
    memcpy(first, firsts, sizeof(first));
    first[4] = (uintptr_t)nvml_library_device(0);
    first[5] = first[4] + 1;
    for (size_t i = 0; i < ELEMENTSOF(names); i++) {
        any_fn call = (any_fn)nvml_library_symbol(names[i]);

        if (works_uninitialised(names[i]) || !strcmp(names[i], "nvmlShutdown"))
            continue;
        for (size_t j = 0; j < ELEMENTSOF(first); j++) {
            /* where a string or struct is expected first, garbage is the caller's own fault */
            if (j != 0 && strncmp(names[i], "nvmlDevice", 10) != 0)
                continue;
            if (j != 0 && (strstr(names[i], "HandleBy") || strstr(names[i], "DrainState") ||
                           strstr(names[i], "GetCount")))
                continue;
            nvmlReturn_t r = call(first[j], 0, 0, 0, 0, 0);

            if (j != 4 && !strncmp(names[i], "nvmlDevice", 10))
                ck_assert_msg(r == NVML_ERROR_INVALID_ARGUMENT || r == NVML_ERROR_NOT_SUPPORTED,
                              "%s(%#zx): %d", names[i], (size_t)first[j], r);
        }
    }
    sim_box_done(&s);
}
END_TEST

START_TEST(the_private_table_has_the_process_list_and_nothing_unknown) {
    unsigned char id[16] = { 0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                             0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4 };
    nvmlReturn_t (*get)(const void **, const void *) =
        (__typeof__(get))nvml_library_symbol("nvmlInternalGetExportTable");
    static char rows[2][4128];
    const uintptr_t *table;
    struct sim_box s;
    unsigned n = 2;
    uint64_t bytes;
    pid_t pid;

    nvml_library_init(&s, NULL);
    pid = nvml_library_hold(&s, &(struct nvml_library_hold){ { 0, 0 }, 64 * MIB, 0 });
    ck_assert_nvml_ok(get((const void **)&table, id));
    ck_assert_uint_ge(table[0], 231 * sizeof(table[0]));
    ck_assert_nvml_ok(((any_fn)table[213])((uintptr_t)nvml_library_device(0), (uintptr_t)&n,
                                           (uintptr_t)rows, 0, 0, 0));
    ck_assert_uint_eq(n, 1);
    ck_assert_mem_eq(rows[0], &pid, sizeof(pid));
    memcpy(&bytes, rows[0] + 8, sizeof(bytes));
    ck_assert_uint_eq(bytes, 64 * MIB);
    ck_assert_ptr_nonnull(strstr(rows[0] + 32, "test-nvml"));
    ck_assert_nvml(((any_fn)table[100])(0, 0, 0, 0, 0, 0), NVML_ERROR_NOT_SUPPORTED);
    id[0]++;
    ck_assert_nvml(get((const void **)&table, id), NVML_ERROR_NOT_SUPPORTED);
    sim_box_done(&s);
}
END_TEST

START_TEST(init_and_shutdown_are_counted) {
    struct sim_box s;
    unsigned n;

    nvml_library_init(&s, NULL);
    ck_assert_nvml_ok(NV(nvmlInitWithFlags)(0));
    ck_assert_nvml_ok(NV(nvmlShutdown)());
    ck_assert_nvml_ok(NV(nvmlDeviceGetCount_v2)(&n));
    ck_assert_uint_eq(n, 2);
    ck_assert_nvml_ok(NV(nvmlShutdown)());
    ck_assert_nvml(NV(nvmlDeviceGetCount_v2)(&n), NVML_ERROR_UNINITIALIZED);
    ck_assert_nvml(NV(nvmlShutdown)(), NVML_ERROR_UNINITIALIZED);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_named_box_that_is_not_there_is_no_driver) {
    setenv("GPUSIM_BOX", "/nonexistent/box", 1);
    ck_assert_nvml(NV(nvmlInit_v2)(), NVML_ERROR_DRIVER_NOT_LOADED);
}
END_TEST

START_TEST(a_device_is_found_by_everything_it_is_called) {
    char uuid[96], serial[32], text[96];
    struct sim_box s;
    nvmlPciInfo_t pci;
    nvmlDevice_t found;
    unsigned value;

    nvml_library_init(&s, &(struct box_spec){ .n_gpus = 3, .models = "a100-40g,t4-16g,h100-80g" });
    for (unsigned i = 0; i < 3; i++) {
        const struct box_gpu *gpu = &s.box->file->gpu[i];
        nvmlDevice_t device = nvml_library_device(i);

        ck_assert_nvml_ok(NV(nvmlDeviceGetIndex)(device, &value));
        ck_assert_uint_eq(value, i);
        ck_assert_nvml_ok(NV(nvmlDeviceGetMinorNumber)(device, &value));
        ck_assert_uint_eq(value, gpu->minor);
        ck_assert_nvml_ok(NV(nvmlDeviceGetUUID)(device, uuid, sizeof(uuid)));
        ck_assert_str_eq(uuid, gpu->uuid);
        ck_assert_nvml_ok(NV(nvmlDeviceGetHandleByUUID)(uuid, &found));
        ck_assert_ptr_eq(found, device);
        ck_assert_nvml_ok(NV(nvmlDeviceGetSerial)(device, serial, sizeof(serial)));
        ck_assert_nvml_ok(NV(nvmlDeviceGetHandleBySerial)(serial, &found));
        ck_assert_ptr_eq(found, device);
        ck_assert_nvml_ok(NV(nvmlDeviceGetPciInfo_v3)(device, &pci));
        ck_assert_nvml_ok(NV(nvmlDeviceGetHandleByPciBusId_v2)(pci.busId, &found));
        ck_assert_ptr_eq(found, device);
        ck_assert_nvml_ok(NV(nvmlDeviceGetHandleByPciBusId_v2)(pci.busIdLegacy, &found));
        ck_assert_ptr_eq(found, device);
        ck_assert_uint_eq(pci.bus, gpu->pci_bus);
        ck_assert_nvml_ok(NV(nvmlDeviceGetName)(device, text, sizeof(text)));
        ck_assert_str_eq(text, box_model(s.box, i)->name);
        ck_assert_nvml(NV(nvmlDeviceGetName)(device, text, 4), NVML_ERROR_INSUFFICIENT_SIZE);
    }
    ck_assert_nvml(NV(nvmlDeviceGetHandleByIndex_v2)(3, &found), NVML_ERROR_INVALID_ARGUMENT);
    ck_assert_nvml(NV(nvmlDeviceGetHandleByUUID)("GPU-no", &found), NVML_ERROR_NOT_FOUND);
    ck_assert_nvml(NV(nvmlDeviceGetHandleByPciBusId_v2)("x", &found), NVML_ERROR_INVALID_ARGUMENT);
    ck_assert_nvml(NV(nvmlDeviceGetHandleByPciBusId_v2)("77:1.0", &found), NVML_ERROR_NOT_FOUND);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_uuid_in_ascii_or_binary_finds_the_device) {
    nvmlUUID_t id = { .version = nvmlUUID_v1, .type = NVML_UUID_TYPE_ASCII };
    struct sim_box s;
    nvmlDevice_t found;
    unsigned n = 0;

    nvml_library_init(&s, NULL);
    memcpy(id.value.str, s.box->file->gpu[1].uuid, NVML_DEVICE_UUID_ASCII_LEN);
    ck_assert_nvml_ok(NV(nvmlDeviceGetHandleByUUIDV)(&id, &found));
    ck_assert_ptr_eq(found, nvml_library_device(1));
    id.type = NVML_UUID_TYPE_BINARY;
    for (const char *p = s.box->file->gpu[1].uuid + 4; *p && n < 32; p++) {
        if (*p == '-')
            continue;
        unsigned digit =
            isdigit((unsigned char)*p) ? (unsigned)(*p - '0') : (unsigned)(*p - 'a' + 10);

        id.value.bytes[n / 2] = (unsigned char)(n % 2 ? id.value.bytes[n / 2] | digit : digit << 4);
        n++;
    }
    ck_assert_nvml_ok(NV(nvmlDeviceGetHandleByUUIDV)(&id, &found));
    ck_assert_ptr_eq(found, nvml_library_device(1));
    id.version = 7;
    ck_assert_nvml(NV(nvmlDeviceGetHandleByUUIDV)(&id, &found),
                   NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    sim_box_done(&s);
}
END_TEST

START_TEST(older_structs_are_not_overrun) {
    struct sim_box s;
    struct {
        nvmlPciInfo_t pci;
    } now;
    unsigned char guard[sizeof(now)];
    nvmlDevice_t device;

    nvml_library_init(&s, NULL);
    device = nvml_library_device(0);
    memset(&now, 0xa5, sizeof(now));
    memset(guard, 0xa5, sizeof(guard));
    ck_assert_nvml_ok(NV(nvmlDeviceGetPciInfo)(device, &now.pci));
    ck_assert_uint_eq(now.pci.bus, s.box->file->gpu[0].pci_bus);
    ck_assert_mem_eq(&now.pci.pciSubSystemId, guard,
                     sizeof(now) - offsetof(nvmlPciInfo_t, pciSubSystemId));
    ck_assert_nvml_ok(NV(nvmlDeviceGetPciInfo_v2)(device, &now.pci));
    ck_assert_mem_eq(now.pci.busId, guard, sizeof(now.pci.busId));
    sim_box_done(&s);
}
END_TEST

START_TEST(memory_adds_up_in_both_versions) {
    nvmlMemory_v2_t v2 = { .version = nvmlMemory_v2 };
    struct sim_box s;
    nvmlMemory_t v1;
    nvmlDevice_t device;

    nvml_library_init(&s, NULL);
    device = nvml_library_device(0);
    nvml_library_hold(&s, &(struct nvml_library_hold){ { 0, 0 }, 100 * MIB, 0 });
    ck_assert_nvml_ok(NV(nvmlDeviceGetMemoryInfo)(device, &v1));
    ck_assert_nvml_ok(NV(nvmlDeviceGetMemoryInfo_v2)(device, &v2));
    ck_assert_uint_eq(v2.total, s.box->file->gpu[0].total_bytes);
    ck_assert_uint_eq(v2.reserved, s.box->file->gpu[0].reserved_bytes);
    ck_assert_uint_eq(v2.used, 100 * MIB);
    ck_assert_uint_eq(v2.used + v2.free + v2.reserved, v2.total);
    ck_assert_uint_eq(v1.total, v2.total);
    ck_assert_uint_eq(v1.used, v2.used + v2.reserved);
    ck_assert_uint_eq(v1.used + v1.free, v1.total);
    v2.version = 0;
    ck_assert_nvml(NV(nvmlDeviceGetMemoryInfo_v2)(device, &v2),
                   NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    sim_box_done(&s);
}
END_TEST

START_TEST(two_processes_are_seen_in_every_shape_and_a_killed_one_is_gone) {
    nvmlProcessDetailList_t list = { .version = nvmlProcessDetailList_v1,
                                     .mode = NVML_PROCESS_MODE_ALL };
    nvmlProcessDetail_v1_t details[4];
    nvmlProcessInfo_v1_t v1[4];
    nvmlProcessInfo_t v3[4];
    nvmlDevice_t device;
    struct sim_box s;
    pid_t pid[2];
    unsigned n = 0;

    nvml_library_init(&s, NULL);
    device = nvml_library_device(1);
    ck_assert_nvml_ok(NV(nvmlDeviceGetComputeRunningProcesses_v3)(device, &n, NULL));
    pid[0] = nvml_library_hold(&s, &(struct nvml_library_hold){ { 1, 0 }, 64 * MIB, 0 });
    pid[1] = nvml_library_hold(&s, &(struct nvml_library_hold){ { 1, 0 }, 500 * MIB, 0 });

    ck_assert_nvml(NV(nvmlDeviceGetComputeRunningProcesses_v3)(device, &n, NULL),
                   NVML_ERROR_INSUFFICIENT_SIZE);
    ck_assert_uint_eq(n, 2);
    n = 1;
    memset(v3, 0x5a, sizeof(v3));
    ck_assert_nvml(NV(nvmlDeviceGetComputeRunningProcesses_v3)(device, &n, v3),
                   NVML_ERROR_INSUFFICIENT_SIZE);
    ck_assert_uint_eq(n, 2);
    ck_assert_uint_eq(v3[0].pid, 0x5a5a5a5a);

    n = 4;
    ck_assert_nvml_ok(NV(nvmlDeviceGetComputeRunningProcesses_v3)(device, &n, v3));
    ck_assert_uint_eq(n, 2);
    n = 4;
    ck_assert_nvml_ok(NV(nvmlDeviceGetComputeRunningProcesses)(device, &n, v1));
    list.numProcArrayEntries = 4;
    list.procArray = details;
    ck_assert_nvml_ok(NV(nvmlDeviceGetRunningProcessDetailList)(device, &list));
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t bytes = i == 0 ? 64 * MIB : 500 * MIB;

        ck_assert_uint_eq(v3[i].pid, (unsigned)pid[i]);
        ck_assert_uint_eq(v3[i].usedGpuMemory, bytes);
        ck_assert_uint_eq(v3[i].gpuInstanceId, UINT32_MAX);
        ck_assert_uint_eq(v1[i].pid, (unsigned)pid[i]);
        ck_assert_uint_eq(v1[i].usedGpuMemory, bytes);
        ck_assert_uint_eq(details[i].pid, (unsigned)pid[i]);
        ck_assert_uint_eq(details[i].usedGpuMemory, bytes);
    }
    n = 4;
    ck_assert_nvml_ok(NV(nvmlDeviceGetGraphicsRunningProcesses_v2)(device, &n, v3));
    ck_assert_uint_eq(n, 0);

    sim_box_kill(pid[0]);
    n = 4;
    ck_assert_nvml_ok(NV(nvmlDeviceGetComputeRunningProcesses_v2)(device, &n, v3));
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(v3[0].pid, (unsigned)pid[1]);
    sim_box_kill(pid[1]);
    n = 4;
    ck_assert_nvml_ok(NV(nvmlDeviceGetComputeRunningProcesses_v2)(device, &n, v3));
    ck_assert_uint_eq(n, 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_process_has_the_name_it_was_started_by) {
    char name[4];
    struct sim_box s;

    nvml_library_init(&s, NULL);
    ck_assert_nvml_ok(NV(nvmlSystemGetProcessName)((unsigned)getpid(), name, sizeof(name)));
    ck_assert_uint_eq(strlen(name), 3); /* cut, not refused */
    ck_assert_nvml(NV(nvmlSystemGetProcessName)(0x7ffffffe, name, sizeof(name)),
                   NVML_ERROR_NOT_FOUND);
    ck_assert_nvml(NV(nvmlSystemGetProcessName)(1, name, 0), NVML_ERROR_INVALID_ARGUMENT);
    sim_box_done(&s);
}
END_TEST

START_TEST(utilization_is_of_the_device_and_of_each_process) {
    nvmlProcessUtilizationSample_t sample[4];
    nvmlProcessUtilizationInfo_v1_t info[4];
    nvmlProcessesUtilizationInfo_t infos = { .version = nvmlProcessesUtilizationInfo_v1 };
    nvmlUtilization_t rates;
    nvmlValueType_t type;
    nvmlSample_t history[64];
    unsigned n = ELEMENTSOF(history);
    nvmlDevice_t device;
    struct sim_box s;
    pid_t pid;

    nvml_library_init(&s, NULL);
    device = nvml_library_device(0);
    nvml_library_hold(&s, &(struct nvml_library_hold){ { 0, 0 }, 2 * MIB, 0 });
    pid = nvml_library_hold(&s, &(struct nvml_library_hold){ { 0, 0 }, 2 * MIB, 40 });

    ck_assert_nvml_ok(NV(nvmlDeviceGetUtilizationRates)(device, &rates));
    ck_assert_uint_le(rates.gpu, 40);
    ck_assert_uint_ge(rates.gpu, 10); /* of the last second, part of which has passed */
    ck_assert_nvml_ok(
        NV(nvmlDeviceGetSamples)(device, NVML_GPU_UTILIZATION_SAMPLES, 0, &type, &n, history));
    ck_assert_int_eq(type, NVML_VALUE_TYPE_UNSIGNED_INT);
    ck_assert_uint_gt(n, 16);
    ck_assert_uint_lt(history[0].timeStamp, history[n - 1].timeStamp);

    n = 4;
    ck_assert_nvml_ok(NV(nvmlDeviceGetProcessUtilization)(device, sample, &n, 0));
    ck_assert_uint_eq(n, 1); /* the idle one is not there */
    ck_assert_uint_eq(sample[0].pid, (unsigned)pid);
    ck_assert_uint_ge(sample[0].smUtil, 10);
    ck_assert_nvml(NV(nvmlDeviceGetProcessesUtilizationInfo)(device, &infos),
                   NVML_ERROR_INSUFFICIENT_SIZE);
    ck_assert_uint_eq(infos.processSamplesCount, 1);
    infos.procUtilArray = info;
    ck_assert_nvml_ok(NV(nvmlDeviceGetProcessesUtilizationInfo)(device, &infos));
    ck_assert_uint_eq(info[0].pid, (unsigned)pid);
    sim_box_kill(pid);
    n = 4;
    ck_assert_nvml(NV(nvmlDeviceGetProcessUtilization)(device, sample, &n, 0),
                   NVML_ERROR_NOT_FOUND);
    n = 0;
    ck_assert_nvml(NV(nvmlDeviceGetProcessUtilization)(nvml_library_device(1), NULL, &n, 0),
                   NVML_ERROR_INSUFFICIENT_SIZE);
    ck_assert_uint_gt(n, 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_lost_gpu_answers_nothing_else_and_the_others_go_on) {
    struct sim_box s;
    nvmlDevice_t lost, well, found;
    unsigned value;

    nvml_library_init(&s, NULL);
    lost = nvml_library_device(0);
    well = nvml_library_device(1);
    box_lock(s.box);
    fault_lost(s.box, 0);
    box_unlock(s.box);
    ck_assert_nvml(NV(nvmlDeviceGetTemperature)(lost, NVML_TEMPERATURE_GPU, &value),
                   NVML_ERROR_GPU_IS_LOST);
    ck_assert_nvml(NV(nvmlDeviceGetHandleByIndex_v2)(0, &found), NVML_ERROR_GPU_IS_LOST);
    ck_assert_nvml_ok(NV(nvmlDeviceGetTemperature)(well, NVML_TEMPERATURE_GPU, &value));
    ck_assert_nvml_ok(NV(nvmlDeviceGetCount_v2)(&value));
    ck_assert_uint_eq(value, 2);
    box_lock(s.box);
    fault_recover(s.box, 0);
    box_unlock(s.box);
    ck_assert_nvml_ok(NV(nvmlDeviceGetTemperature)(lost, NVML_TEMPERATURE_GPU, &value));
    sim_box_done(&s);
}
END_TEST

START_TEST(an_injected_fault_fails_the_call_it_names_on_the_gpu_it_names) {
    const struct box_fault fault = { .kind = FAULT_CALL_FAIL,
                                     .gpu = 1,
                                     .code = NVML_ERROR_UNKNOWN,
                                     .call = "nvmlDeviceGetPower*",
                                     .remaining = 1 };
    struct sim_box s;
    unsigned value;
    uint32_t id;

    nvml_library_init(&s, NULL);
    box_lock(s.box);
    ck_assert_int_eq(fault_add(s.box, &fault, &id), 0);
    box_unlock(s.box);
    ck_assert_nvml_ok(NV(nvmlDeviceGetPowerUsage)(nvml_library_device(0), &value));
    ck_assert_nvml(NV(nvmlDeviceGetPowerUsage)(nvml_library_device(1), &value), NVML_ERROR_UNKNOWN);
    ck_assert_nvml_ok(NV(nvmlDeviceGetPowerUsage)(nvml_library_device(1), &value));
    sim_box_done(&s);
}
END_TEST

static int set_as_nobody(struct sim_box *s, void *device) {
    unsigned limit;

    if (setresuid(65534, 65534, 65534) < 0)
        return 1;
    return !(NV(nvmlDeviceSetPersistenceMode)(device, 1) == NVML_ERROR_NO_PERMISSION &&
             NV(nvmlDeviceSetComputeMode)(device, 0) == NVML_ERROR_NO_PERMISSION &&
             NV(nvmlDeviceSetPowerManagementLimit)(device, 65000) == NVML_ERROR_NO_PERMISSION &&
             NV(nvmlDeviceSetEccMode)(device, 0) == NVML_ERROR_NO_PERMISSION &&
             NV(nvmlDeviceSetAccountingMode)(device, 1) == NVML_ERROR_NO_PERMISSION &&
             NV(nvmlDeviceSetApplicationsClocks)(device, 5001, 600) == NVML_ERROR_NO_PERMISSION &&
             NV(nvmlDeviceSetMemoryLimits_v1)(device, NULL) == NVML_ERROR_NO_PERMISSION &&
             NV(nvmlDeviceGetPowerManagementLimit)(device, &limit) == NVML_SUCCESS);
}

START_TEST(only_root_changes_shared_settings) {
    nvmlDevice_t device;
    nvmlEnableState_t state, pending;
    struct sim_box s;
    unsigned value;

    if (geteuid() != 0)
        return; /* nothing to compare with */
    nvml_library_init(&s, NULL);
    device = nvml_library_device(0);
    sim_box_expect_success(sim_box_fork(set_as_nobody, &s, device));

    ck_assert_nvml_ok(NV(nvmlDeviceSetPowerManagementLimit)(device, 65000));
    ck_assert_nvml_ok(NV(nvmlDeviceGetEnforcedPowerLimit)(device, &value));
    ck_assert_uint_eq(value, 65000);
    ck_assert_nvml(NV(nvmlDeviceSetPowerManagementLimit)(device, 1), NVML_ERROR_INVALID_ARGUMENT);
    ck_assert_nvml_ok(NV(nvmlDeviceSetEccMode)(device, NVML_FEATURE_DISABLED));
    ck_assert_nvml_ok(NV(nvmlDeviceGetEccMode)(device, &state, &pending));
    ck_assert_int_eq(state, NVML_FEATURE_ENABLED);
    ck_assert_int_eq(pending, NVML_FEATURE_DISABLED);
    ck_assert_nvml_ok(NV(nvmlDeviceSetApplicationsClocks)(device, 5001, 600));
    nvml_library_hold(&s, &(struct nvml_library_hold){ { 0, 0 }, 2 * MIB, 50 });
    ck_assert_nvml_ok(NV(nvmlDeviceGetClockInfo)(device, NVML_CLOCK_SM, &value));
    ck_assert_uint_eq(value, 600);
    ck_assert_nvml_ok(NV(nvmlDeviceResetApplicationsClocks)(device));
    ck_assert_nvml_ok(NV(nvmlDeviceGetClockInfo)(device, NVML_CLOCK_SM, &value));
    ck_assert_uint_eq(value, box_model(s.box, 0)->sm_clock_max_mhz);
    sim_box_done(&s);
}
END_TEST

START_TEST(accounting_remembers_a_process_that_ended) {
    nvmlAccountingStats_t stats;
    nvmlDevice_t device;
    struct sim_box s;
    unsigned pids[8], n = 0;
    pid_t pid;

    if (geteuid() != 0)
        return;
    nvml_library_init(&s, NULL);
    device = nvml_library_device(0);
    ck_assert_nvml(NV(nvmlDeviceGetAccountingPids)(device, &n, NULL), NVML_ERROR_NOT_SUPPORTED);
    ck_assert_nvml_ok(NV(nvmlDeviceSetAccountingMode)(device, NVML_FEATURE_ENABLED));
    pid = nvml_library_hold(&s, &(struct nvml_library_hold){ { 0, 0 }, 64 * MIB, 0 });
    ck_assert_nvml_ok(NV(nvmlDeviceGetAccountingStats)(device, (unsigned)pid, &stats));
    ck_assert_uint_eq(stats.isRunning, 1);
    ck_assert_uint_eq(stats.time, 0);
    ck_assert_uint_eq(stats.maxMemoryUsage, 64 * MIB);
    sim_box_kill(pid);
    ck_assert_nvml_ok(NV(nvmlDeviceGetAccountingStats)(device, (unsigned)pid, &stats));
    ck_assert_uint_eq(stats.isRunning, 0);
    ck_assert_uint_eq(stats.maxMemoryUsage, 64 * MIB);
    n = ELEMENTSOF(pids);
    ck_assert_nvml_ok(NV(nvmlDeviceGetAccountingPids)(device, &n, pids));
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(pids[0], (unsigned)pid);
    ck_assert_nvml_ok(NV(nvmlDeviceClearAccountingPids)(device));
    ck_assert_nvml(NV(nvmlDeviceGetAccountingStats)(device, (unsigned)pid, &stats),
                   NVML_ERROR_NOT_FOUND);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_gpu_without_its_device_node_is_not_there) {
    char dir[PATH_MAX], node[PATH_MAX + 16], uuid[96];
    struct sim_box s;
    nvmlDevice_t hidden, found;
    unsigned n;
    FILE *file;

    snprintf(dir, sizeof(dir), "/tmp/allot-nodes-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(node, sizeof(node), "%s/nvidia1", dir);
    nvml_library_init(&s, &(struct box_spec){ .n_gpus = 2, .models = "t4-16g", .dev_dir = dir });
    hidden = nvml_library_device(0);
    ck_assert_nvml_ok(NV(nvmlShutdown)());

    file = fopen(node, "w");
    ck_assert_ptr_nonnull(file);
    fclose(file);
    ck_assert_nvml_ok(NV(nvmlInit_v2)());
    ck_assert_nvml_ok(NV(nvmlDeviceGetCount_v2)(&n));
    ck_assert_uint_eq(n, 1);
    ck_assert_nvml_ok(NV(nvmlDeviceGetUUID)(nvml_library_device(0), uuid, sizeof(uuid)));
    ck_assert_str_eq(uuid, s.box->file->gpu[1].uuid);
    ck_assert_nvml(NV(nvmlDeviceGetUUID)(hidden, uuid, sizeof(uuid)), NVML_ERROR_INVALID_ARGUMENT);
    ck_assert_nvml(NV(nvmlDeviceGetHandleByUUID)(s.box->file->gpu[0].uuid, &found),
                   NVML_ERROR_NOT_FOUND);
    unlink(node);
    rmdir(dir);
    sim_box_done(&s);
}
END_TEST

START_TEST(fields_carry_their_own_answer) {
    nvmlFieldValue_t values[] = {
        { .fieldId = NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION },
        { .fieldId = NVML_FI_DEV_ECC_CURRENT },
        { .fieldId = NVML_FI_DEV_NVLINK_LINK_COUNT },
        { .fieldId = NVML_FI_DEV_MEMORY_TEMP },
        { .fieldId = 100000 },
    };
    struct sim_box s;

    nvml_library_init(&s, NULL);
    ck_assert_nvml_ok(
        NV(nvmlDeviceGetFieldValues)(nvml_library_device(0), ELEMENTSOF(values), values));
    ck_assert_int_eq(values[0].nvmlReturn, NVML_SUCCESS);
    ck_assert_int_eq(values[0].valueType, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG);
    ck_assert_uint_eq(values[1].value.uiVal, 1);
    ck_assert_uint_eq(values[2].value.uiVal, 0);
    ck_assert_int_eq(values[3].nvmlReturn, NVML_ERROR_NOT_SUPPORTED); /* GDDR has no sensor */
    ck_assert_int_eq(values[4].nvmlReturn, NVML_ERROR_INVALID_ARGUMENT);
    sim_box_done(&s);
}
END_TEST

static nvmlReturn_t level(unsigned a, unsigned b, nvmlGpuTopologyLevel_t *ret) {
    return NV(nvmlDeviceGetTopologyCommonAncestor)(nvml_library_device(a), nvml_library_device(b),
                                                   ret);
}

START_TEST(links_lead_to_the_peer_and_back) {
    nvmlGpuTopologyLevel_t near, far;
    nvmlIntNvLinkDeviceType_t type;
    nvmlGpuP2PStatus_t status;
    struct sim_box s;
    nvmlPciInfo_t pci;

    nvml_library_init(&s,
                      &(struct box_spec){ .n_gpus = 4, .models = "a100-40g", .nvlink = "pairs" });
    ck_assert_nvml_ok(NV(nvmlDeviceGetNvLinkRemotePciInfo_v2)(nvml_library_device(2), 5, &pci));
    ck_assert_uint_eq(pci.bus, s.box->file->gpu[3].pci_bus);
    ck_assert_nvml_ok(NV(nvmlDeviceGetNvLinkRemoteDeviceType)(nvml_library_device(2), 5, &type));
    ck_assert_int_eq(type, NVML_NVLINK_DEVICE_TYPE_GPU);
    ck_assert_nvml(NV(nvmlDeviceGetNvLinkRemotePciInfo_v2)(nvml_library_device(2), 12, &pci),
                   NVML_ERROR_NOT_SUPPORTED);
    ck_assert_nvml_ok(NV(nvmlDeviceGetP2PStatus)(nvml_library_device(0), nvml_library_device(1),
                                                 NVML_P2P_CAPS_INDEX_NVLINK, &status));
    ck_assert_int_eq(status, NVML_P2P_STATUS_OK);
    ck_assert_nvml_ok(NV(nvmlDeviceGetP2PStatus)(nvml_library_device(0), nvml_library_device(2),
                                                 NVML_P2P_CAPS_INDEX_NVLINK, &status));
    ck_assert_int_eq(status, NVML_P2P_STATUS_NOT_SUPPORTED);
    ck_assert_nvml_ok(level(0, 1, &near));
    ck_assert_nvml_ok(level(0, 3, &far));
    ck_assert_int_lt(near, far);
    sim_box_done(&s);
}
END_TEST

/* Check's own lock does not survive a fork beside threads: no assertions in these two. */
static struct {
    __typeof__(&nvmlInit_v2) init;
    __typeof__(&nvmlShutdown) shutdown;
    __typeof__(&nvmlDeviceGetHandleByIndex_v2) handle;
    __typeof__(&nvmlDeviceGetMemoryInfo) memory;
    int stop, failures;
} busy;

static bool init_query_shutdown(void) {
    nvmlMemory_t memory;
    nvmlDevice_t device;

    return busy.init() == NVML_SUCCESS && busy.handle(1, &device) == NVML_SUCCESS &&
           busy.memory(device, &memory) == NVML_SUCCESS && busy.shutdown() == NVML_SUCCESS;
}

static void *keep_querying(void *argument) {
    while (!__atomic_load_n(&busy.stop, __ATOMIC_RELAXED))
        if (!init_query_shutdown())
            __atomic_add_fetch(&busy.failures, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* The address sanitizer's allocator has locks that a fork beside threads may leave locked. */
#if defined(__SANITIZE_ADDRESS__)
static const unsigned forks = 0;
#else
static const unsigned forks = 20;
#endif
START_TEST(threads_and_forks_may_come_at_any_time) {
    pthread_t thread[4];
    struct sim_box s;
    int status[20];

    nvml_library_init(&s, NULL);
    busy.init = NV(nvmlInit_v2);
    busy.shutdown = NV(nvmlShutdown);
    busy.handle = NV(nvmlDeviceGetHandleByIndex_v2);
    busy.memory = NV(nvmlDeviceGetMemoryInfo);
    for (unsigned i = 0; i < ELEMENTSOF(thread); i++)
        ck_assert_int_eq(pthread_create(&thread[i], NULL, keep_querying, NULL), 0);
    for (unsigned i = 0; i < forks; i++) {
        const pid_t pid = fork();

        if (pid == 0)
            _exit(!init_query_shutdown());
        waitpid(pid, &status[i], 0);
    }
    __atomic_store_n(&busy.stop, 1, __ATOMIC_RELAXED);
    for (unsigned i = 0; i < ELEMENTSOF(thread); i++)
        pthread_join(thread[i], NULL);
    for (unsigned i = 0; i < forks; i++)
        ck_assert_int_eq(status[i], 0);
    ck_assert_int_eq(busy.failures, 0);
    sim_box_done(&s);
}
END_TEST

SUITE_TIMEOUT("nvml", 60, before_init_every_call_says_uninitialized,
              a_call_with_null_or_garbage_crashes_nothing,
              the_private_table_has_the_process_list_and_nothing_unknown,
              init_and_shutdown_are_counted, a_named_box_that_is_not_there_is_no_driver,
              a_device_is_found_by_everything_it_is_called,
              a_uuid_in_ascii_or_binary_finds_the_device, older_structs_are_not_overrun,
              memory_adds_up_in_both_versions,
              two_processes_are_seen_in_every_shape_and_a_killed_one_is_gone,
              a_process_has_the_name_it_was_started_by,
              utilization_is_of_the_device_and_of_each_process,
              a_lost_gpu_answers_nothing_else_and_the_others_go_on,
              an_injected_fault_fails_the_call_it_names_on_the_gpu_it_names,
              only_root_changes_shared_settings, accounting_remembers_a_process_that_ended,
              a_gpu_without_its_device_node_is_not_there, fields_carry_their_own_answer,
              links_lead_to_the_peer_and_back, threads_and_forks_may_come_at_any_time)
