/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "sim/box/charge.h"
#include "sim/box/event.h"
#include "sim/box/fault.h"
#include "sim/box/proc.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

#define MIB (UINT64_C(1) << 20)

static uint32_t add(struct sim_box *s, struct box_fault fault) {
    uint32_t id;

    ck_assert_int_eq(box_lock(s->box), 0);
    ck_assert_int_eq(fault_add(s->box, &fault, &id), 0);
    box_unlock(s->box);
    return id;
}

static void *call_that_hangs(void *argument) {
    struct sim_box *s = argument;
    int code;

    fault_call(s->box, "nvmlDeviceGetMemoryInfo", 0, &code);
    return NULL;
}

START_TEST(a_failing_call_answers_its_code_as_often_as_ordered) {
    struct sim_box s;
    int code = 0;

    sim_box_init(&s, NULL);
    ck_assert(!fault_call(s.box, "nvmlDeviceGetName", 0, &code));
    add(&s,
        (struct box_fault){
            .kind = FAULT_CALL_FAIL, .gpu = 1, .code = 15, .remaining = 2, .call = "nvmlDev*" });
    ck_assert(!fault_call(s.box, "nvmlDeviceGetName", 0, &code));
    ck_assert(!fault_call(s.box, "cuMemAlloc", 1, &code));
    ck_assert(fault_call(s.box, "nvmlDeviceGetName", 1, &code));
    ck_assert_int_eq(code, 15);
    ck_assert(fault_call(s.box, "nvmlDeviceGetUUID", 1, &code));
    ck_assert(!fault_call(s.box, "nvmlDeviceGetName", 1, &code));
    ck_assert_uint_eq(s.box->file->n_faults, 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_name_means_all_its_versions_and_a_star_all_that_begin_so) {
    struct sim_box s;
    int code;

    sim_box_init(&s, NULL);
    add(&s,
        (struct box_fault){ .kind = FAULT_CALL_FAIL, .gpu = -1, .code = 2, .call = "cuMemAlloc" });
    ck_assert(fault_call(s.box, "cuMemAlloc", -1, &code));
    ck_assert(fault_call(s.box, "cuMemAlloc_v2", -1, &code));
    ck_assert(!fault_call(s.box, "cuMemAllocAsync", -1, &code));
    sim_box_done(&s);
    ck_assert(fault_names("cuMemcpy", "cuMemcpy_ptds"));
    ck_assert(fault_names("cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds"));
    ck_assert(!fault_names("cuMemcpyHtoD_v2", "cuMemcpyHtoD"));
    ck_assert(!fault_names("nvmlInit", "nvmlInitWithFlags"));
    ck_assert(fault_names("nvmlInit*", "nvmlInitWithFlags"));
    ck_assert(!fault_names("cuMem", "cuMem_vx"));
}
END_TEST

START_TEST(a_hang_takes_as_many_calls_as_ordered_and_keeps_them) {
    pthread_t thread;
    struct sim_box s;
    int code;

    sim_box_init(&s, NULL);
    add(&s, (struct box_fault){ .kind = FAULT_CALL_HANG,
                                .gpu = -1,
                                .remaining = 1,
                                .call = "nvmlDeviceGetMemoryInfo" });
    pthread_create(&thread, NULL, call_that_hangs, &s);
    for (bool hit = false; !hit; usleep(1000)) {
        box_lock(s.box);
        hit = s.box->file->fault[0].hits;
        box_unlock(s.box);
    }
    ck_assert(!fault_call(s.box, "nvmlDeviceGetMemoryInfo", 0, &code));
    ck_assert_int_eq(pthread_tryjoin_np(thread, NULL), EBUSY);
    box_lock(s.box);
    ck_assert_int_eq(fault_clear(s.box, 0), 0);
    box_unlock(s.box);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(the_hint_outlives_a_process_that_dies_while_injecting) {
    struct sim_box s;
    int code;

    sim_box_init(&s, NULL);
    add(&s, (struct box_fault){ .kind = FAULT_CALL_FAIL, .gpu = -1, .code = 2, .call = "cuInit" });
    s.box->file->n_faults++; /* died before the fault was made valid */
    box_lock(s.box);
    ck_assert_int_eq(fault_clear(s.box, 0), 0);
    box_unlock(s.box);
    ck_assert_uint_eq(s.box->file->n_faults, 0);
    add(&s, (struct box_fault){ .kind = FAULT_CALL_FAIL, .gpu = -1, .code = 2, .call = "cuInit" });
    ck_assert(fault_call(s.box, "cuInit", -1, &code));
    sim_box_done(&s);
}
END_TEST

START_TEST(a_slow_call_takes_its_time) {
    struct sim_box s;
    uint64_t before;
    int code;

    sim_box_init(&s, NULL);
    add(&s, (struct box_fault){
                .kind = FAULT_CALL_SLOW, .gpu = -1, .argument = 30000000, .call = "cuInit" });
    before = box_now_ns();
    ck_assert(!fault_call(s.box, "cuInit", -1, &code));
    ck_assert_uint_ge(box_now_ns() - before, 30000000);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_hanging_call_goes_on_when_the_fault_is_cleared) {
    pthread_t thread;
    struct sim_box s;
    struct timespec soon;
    uint32_t id;

    sim_box_init(&s, NULL);
    id = add(&s, (struct box_fault){
                     .kind = FAULT_CALL_HANG, .gpu = -1, .call = "nvmlDeviceGetMemoryInfo" });
    pthread_create(&thread, NULL, call_that_hangs, &s);
    for (bool hit = false; !hit; usleep(1000)) {
        box_lock(s.box);
        hit = s.box->file->fault[0].hits;
        box_unlock(s.box);
    }
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += 50000000;
    soon.tv_sec += soon.tv_nsec / 1000000000;
    soon.tv_nsec %= 1000000000;
    ck_assert_int_eq(pthread_timedjoin_np(thread, NULL, &soon), ETIMEDOUT);
    box_lock(s.box);
    ck_assert_int_eq(fault_clear(s.box, id + 1), -ENOENT);
    ck_assert_int_eq(fault_clear(s.box, id), 0);
    box_unlock(s.box);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    sim_box_done(&s);
}
END_TEST

START_TEST(allocations_fail_after_so_many_bytes) {
    const struct box_part part = { 0, 0 };
    struct sim_box s;
    uint32_t slot;

    sim_box_init(&s, NULL);
    add(&s, (struct box_fault){ .kind = FAULT_ALLOC_AFTER, .gpu = 0, .argument = 10 * MIB });
    box_lock(s.box);
    ck_assert_int_eq(proc_join(s.box, &slot), 0);
    ck_assert_int_eq(charge_take(s.box, slot, part, 8 * MIB, NULL), 0);
    ck_assert_int_eq(charge_take(s.box, slot, part, 4 * MIB, NULL), -EIO);
    ck_assert_int_eq(charge_take(s.box, slot, part, 2 * MIB, NULL), 0);
    ck_assert_int_eq(charge_take(s.box, slot, part, 1, NULL), -EIO);
    ck_assert_int_eq(charge_take(s.box, slot, (struct box_part){ 1, 0 }, MIB, NULL), 0);
    ck_assert_int_eq(fault_clear(s.box, 0), 0);
    ck_assert_int_eq(charge_take(s.box, slot, part, 1, NULL), 0);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

static unsigned count_random_failures(uint64_t seed, uint64_t *ret_pattern) {
    struct sim_box s;
    unsigned n = 0;

    sim_box_init(&s, NULL);
    add(&s,
        (struct box_fault){
            .kind = FAULT_ALLOC_RANDOM, .gpu = -1, .argument = UINT32_MAX / 4, .random = seed });
    box_lock(s.box);
    *ret_pattern = 0;
    for (int i = 0; i < 4000; i++) {
        const bool fails = fault_alloc(s.box, 0, 1);

        n += fails;
        if (i < 64)
            *ret_pattern |= (uint64_t)fails << i;
    }
    box_unlock(s.box);
    sim_box_done(&s);
    return n;
}

START_TEST(random_failures_keep_to_their_probability_and_their_seed) {
    uint64_t a, b, c;

    ck_assert_uint_gt(count_random_failures(1, &a), 850);
    ck_assert_uint_lt(count_random_failures(1, &b), 1150);
    count_random_failures(2, &c);
    ck_assert_uint_eq(a, b);
    ck_assert_uint_ne(a, c);
}
END_TEST

START_TEST(troubles_of_a_gpu_are_posted_as_events_and_can_be_undone) {
    struct box_event event;
    uint64_t cursor = 0;
    struct sim_box s;

    sim_box_init(&s, NULL);
    box_lock(s.box);
    fault_xid(s.box, 1, 31);
    fault_ecc(s.box, 0, true, 3);
    fault_lost(s.box, 1);
    ck_assert_int_eq(event_next(s.box, &cursor, &event), 0);
    ck_assert_uint_eq(event.data, 31);
    ck_assert_uint_eq(event.gpu, 1);
    ck_assert_uint_eq(event.type, 8);
    ck_assert_int_eq(event_next(s.box, &cursor, &event), 0);
    ck_assert_uint_eq(event.type, 2);
    ck_assert_int_eq(event_next(s.box, &cursor, &event), 0);
    ck_assert_uint_eq(event.data, 79);
    ck_assert_int_eq(event_next(s.box, &cursor, &event), -ENOENT);
    ck_assert(s.box->file->gpu[1].lost);
    ck_assert_uint_eq(s.box->file->gpu[0].ecc.uncorrected_volatile, 3);
    fault_recover(s.box, 1);
    ck_assert(!s.box->file->gpu[1].lost);
    ck_assert_uint_eq(s.box->file->gpu[1].last_xid, 0);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

START_TEST(a_late_reader_gets_the_events_that_are_still_there) {
    struct box_event event;
    uint64_t cursor = 0;
    struct sim_box s;

    sim_box_init(&s, NULL);
    box_lock(s.box);
    for (int i = 1; i <= BOX_MAX_EVENTS + 10; i++)
        fault_xid(s.box, 0, i % 50 + 1);
    ck_assert_int_eq(event_next(s.box, &cursor, &event), 0);
    ck_assert_uint_eq(event.seq, 11);
    box_unlock(s.box);
    sim_box_done(&s);
}
END_TEST

static int post_soon(struct sim_box *s, void *argument) {
    usleep(20000);
    box_lock(s->box);
    fault_xid(s->box, 0, 63);
    box_unlock(s->box);
    return 0;
}

START_TEST(a_waiter_is_woken_by_another_process) {
    struct sim_box s;
    uint32_t seen;
    pid_t pid;

    sim_box_init(&s, NULL);
    box_lock(s.box);
    seen = s.box->file->event_futex;
    box_unlock(s.box);
    ck_assert_int_eq(event_wait(s.box, seen, 10), -ETIMEDOUT);
    pid = sim_box_fork(post_soon, &s, NULL);
    ck_assert_int_eq(event_wait(s.box, seen, 20000), 0);
    ck_assert_uint_eq(event_last(s.box), 1);
    sim_box_expect_success(pid);
    sim_box_done(&s);
}
END_TEST

SUITE("fault", a_failing_call_answers_its_code_as_often_as_ordered,
      a_name_means_all_its_versions_and_a_star_all_that_begin_so, a_slow_call_takes_its_time,
      a_hang_takes_as_many_calls_as_ordered_and_keeps_them,
      the_hint_outlives_a_process_that_dies_while_injecting,
      a_hanging_call_goes_on_when_the_fault_is_cleared, allocations_fail_after_so_many_bytes,
      random_failures_keep_to_their_probability_and_their_seed,
      troubles_of_a_gpu_are_posted_as_events_and_can_be_undone,
      a_late_reader_gets_the_events_that_are_still_there, a_waiter_is_woken_by_another_process)
