/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "sim/box/fault.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

static nvmlEventSet_t register_all(unsigned long long types) {
    nvmlEventSet_t set;

    ck_assert_nvml_ok(NV(nvmlEventSetCreate)(&set));
    for (unsigned i = 0; i < 2; i++)
        ck_assert_nvml_ok(NV(nvmlDeviceRegisterEvents)(nvml_library_device(i), types, set));
    return set;
}

static int xid_from_another_process(struct sim_box *s, void *argument) {
    usleep(200000);
    if (box_lock(s->box) < 0)
        return 1;
    fault_xid(s->box, 1, 31);
    box_unlock(s->box);
    return 0;
}

START_TEST(a_waiter_is_woken_by_what_another_process_does) {
    nvmlEventData_t data;
    nvmlEventSet_t set;
    uint64_t start_ns;
    struct sim_box s;
    pid_t pid;

    nvml_library_init(&s, NULL);
    set = register_all(nvmlEventTypeXidCriticalError);
    start_ns = box_now_ns();
    pid = sim_box_fork(xid_from_another_process, &s, NULL);
    ck_assert_nvml_ok(NV(nvmlEventSetWait_v2)(set, &data, 20000));
    ck_assert_uint_ge(box_now_ns() - start_ns, 150000000u);
    ck_assert_uint_lt(box_now_ns() - start_ns, 15000000000u);
    ck_assert_ptr_eq(data.device, nvml_library_device(1));
    ck_assert_uint_eq(data.eventType, nvmlEventTypeXidCriticalError);
    ck_assert_uint_eq(data.eventData, 31);
    ck_assert_uint_eq(data.gpuInstanceId, UINT32_MAX);
    sim_box_expect_success(pid);
    ck_assert_nvml(NV(nvmlEventSetWait_v2)(set, &data, 0), NVML_ERROR_TIMEOUT);
    ck_assert_nvml_ok(NV(nvmlEventSetFree)(set));
    sim_box_done(&s);
}
END_TEST

START_TEST(only_what_was_asked_for_and_happened_since_is_delivered) {
    nvmlEventData_t data;
    nvmlEventSet_t set;
    struct sim_box s;

    nvml_library_init(&s, NULL);
    box_lock(s.box);
    fault_xid(s.box, 0, 13);
    box_unlock(s.box);
    ck_assert_nvml_ok(NV(nvmlEventSetCreate)(&set));
    box_lock(s.box);
    fault_xid(s.box, 0, 14);
    box_unlock(s.box);
    ck_assert_nvml_ok(
        NV(nvmlDeviceRegisterEvents)(nvml_library_device(0), nvmlEventTypeXidCriticalError, set));
    box_lock(s.box);
    fault_ecc(s.box, 0, false, 3);
    fault_xid(s.box, 1, 15);
    fault_xid(s.box, 0, 16);
    box_unlock(s.box);
    ck_assert_nvml_ok(NV(nvmlEventSetWait_v2)(set, &data, 1000));
    ck_assert_uint_eq(data.eventData, 16);
    ck_assert_nvml(NV(nvmlEventSetWait_v2)(set, &data, 10), NVML_ERROR_TIMEOUT);
    ck_assert_nvml(NV(nvmlDeviceRegisterEvents)(nvml_library_device(0), 1ull << 40, set),
                   NVML_ERROR_INVALID_ARGUMENT);
    ck_assert_nvml(
        NV(nvmlDeviceRegisterEvents)(nvml_library_device(0), nvmlEventMigConfigChange, set),
        NVML_ERROR_NOT_SUPPORTED);
    sim_box_done(&s);
}
END_TEST

START_TEST(ecc_errors_arrive_as_events_and_as_counts) {
    unsigned long long count;
    nvmlEventData_t data;
    nvmlEventSet_t set;
    struct sim_box s;

    nvml_library_init(&s, NULL);
    set = register_all(nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError);
    box_lock(s.box);
    fault_ecc(s.box, 1, false, 5);
    fault_ecc(s.box, 1, true, 1);
    box_unlock(s.box);
    ck_assert_nvml_ok(NV(nvmlEventSetWait_v2)(set, &data, 1000));
    ck_assert_uint_eq(data.eventType, nvmlEventTypeSingleBitEccError);
    ck_assert_nvml_ok(NV(nvmlEventSetWait_v2)(set, &data, 1000));
    ck_assert_uint_eq(data.eventType, nvmlEventTypeDoubleBitEccError);
    ck_assert_nvml_ok(NV(nvmlDeviceGetTotalEccErrors)(
        nvml_library_device(1), NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_VOLATILE_ECC, &count));
    ck_assert_uint_eq(count, 5);
    ck_assert_nvml_ok(NV(nvmlDeviceGetMemoryErrorCounter)(
        nvml_library_device(1), NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC,
        NVML_MEMORY_LOCATION_DEVICE_MEMORY, &count));
    ck_assert_uint_eq(count, 1);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_lost_gpu_is_told_once_as_xid_and_then_by_the_answer) {
    nvmlEventData_t data;
    nvmlEventSet_t set;
    struct sim_box s;

    nvml_library_init(&s, NULL);
    set = register_all(nvmlEventTypeXidCriticalError);
    box_lock(s.box);
    fault_lost(s.box, 1);
    box_unlock(s.box);
    ck_assert_nvml_ok(NV(nvmlEventSetWait_v2)(set, &data, 1000));
    ck_assert_uint_eq(data.eventData, 79);
    ck_assert_nvml(NV(nvmlEventSetWait_v2)(set, &data, 1000), NVML_ERROR_GPU_IS_LOST);
    sim_box_done(&s);
}
END_TEST

START_TEST(the_first_version_writes_no_mig_ids) {
    nvmlEventData_t data, untouched;
    nvmlEventSet_t set;
    struct sim_box s;

    nvml_library_init(&s, NULL);
    set = register_all(nvmlEventTypeXidCriticalError);
    box_lock(s.box);
    fault_xid(s.box, 0, 43);
    box_unlock(s.box);
    memset(&data, 0x77, sizeof(data));
    memset(&untouched, 0x77, sizeof(untouched));
    ck_assert_nvml_ok(NV(nvmlEventSetWait)(set, &data, 1000));
    ck_assert_uint_eq(data.eventData, 43);
    ck_assert_uint_eq(data.gpuInstanceId, untouched.gpuInstanceId);
    sim_box_done(&s);
}
END_TEST

static void *wait_forever(void *set) {
    nvmlEventData_t data;
    nvmlReturn_t r = NV(nvmlEventSetWait_v2)(set, &data, UINT32_MAX);

    return (void *)(uintptr_t)r;
}

START_TEST(a_set_that_is_freed_lets_its_waiters_go) {
    nvmlEventData_t data;
    nvmlEventSet_t set;
    pthread_t thread;
    struct sim_box s;
    void *r;

    nvml_library_init(&s, NULL);
    set = register_all(nvmlEventTypeXidCriticalError);
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_forever, set), 0);
    usleep(100000);
    ck_assert_nvml_ok(NV(nvmlEventSetFree)(set));
    pthread_join(thread, &r);
    ck_assert_uint_eq((uintptr_t)r, NVML_ERROR_INVALID_ARGUMENT);
    ck_assert_nvml(NV(nvmlEventSetFree)(set), NVML_ERROR_INVALID_ARGUMENT);
    ck_assert_nvml(NV(nvmlEventSetWait_v2)(set, &data, 0), NVML_ERROR_INVALID_ARGUMENT);
    sim_box_done(&s);
}
END_TEST

SUITE("nvml-event", a_waiter_is_woken_by_what_another_process_does,
      only_what_was_asked_for_and_happened_since_is_delivered,
      ecc_errors_arrive_as_events_and_as_counts,
      a_lost_gpu_is_told_once_as_xid_and_then_by_the_answer, the_first_version_writes_no_mig_ids,
      a_set_that_is_freed_lets_its_waiters_go)
