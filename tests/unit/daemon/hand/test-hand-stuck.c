/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver that hangs, and a reader that is not given up for it: what works all the same. The time
 * after which it would be is longer than the tests may take.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include "daemon/hand/hand.h"
#include "daemon/enforce/process.h"
#include "sim/box/fault.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

#define NEVER (UINT64_C(3600) * 1000 * 1000)

struct bench {
    struct sim_box s;
    sd_event *event;
    struct hand *hand;
    unsigned n_samples, n_stale, n_answers, n_processes;
    uint64_t stale_since, taken_usec;
    int r;
};

static void sampled(void *userdata, const struct sample *sample) {
    struct bench *bench = userdata;

    bench->n_samples++;
    bench->taken_usec = sample->taken_usec;
}

static void happened(void *userdata, const struct sample_event *event) {
}

static void stale(void *userdata, uint64_t since_usec, const char *reason) {
    struct bench *bench = userdata;

    bench->n_stale++;
    bench->stale_since = since_usec;
    ck_assert_ptr_nonnull(strstr(reason, "overdue"));
}

static void done(void *userdata, int r, const struct hand_answer *answer,
                 const struct allot_error *err) {
    struct bench *bench = userdata;

    bench->n_answers++;
    bench->r = r;
    if (answer)
        bench->n_processes += answer->signalled.n_processes;
}

/* A reader that is stuck in the driver. */
static uint32_t start(struct bench *bench) {
    struct hand_options options = {
        .driver = DRIVER_SIM,
        .hand.program = ALLOT_HAND,
        .reader.program = ALLOT_READER,
        .period_usec = 50000,
        .timeout_usec = NEVER,
        .stale_usec = 100000,
        .watcher = { bench, sampled, happened, stale },
    };
    struct allot_error err = { 0 };
    struct box_fault fault = { .kind = FAULT_CALL_HANG,
                               .gpu = -1,
                               .call = "nvmlDeviceGetMemoryInfo*" };
    uint32_t id;

    memset(bench, 0, sizeof(*bench));
    sim_box_init(&bench->s, NULL);
    setenv("ALLOT_SIM_DIR", SIM_LIB_DIR, 1);
    ck_assert_int_ge(sd_event_new(&bench->event), 0);
    options.event = bench->event;
    ck_assert_msg(hand_new(&bench->hand, &options, &err) == 0, "%s", err.text);
    while (bench->n_samples < 1)
        ck_assert_int_ge(sd_event_run(bench->event, UINT64_MAX), 0);
    ck_assert_int_ge(box_lock(bench->s.box), 0);
    ck_assert_int_eq(fault_add(bench->s.box, &fault, &id), 0);
    box_unlock(bench->s.box);
    while (bench->n_stale == 0)
        ck_assert_int_ge(sd_event_run(bench->event, UINT64_MAX), 0);
    return id;
}

static void finish(struct bench *bench) {
    hand_free(bench->hand);
    sd_event_unref(bench->event);
    sim_box_done(&bench->s);
}

START_TEST(readings_are_stale_as_soon_as_one_is_overdue) {
    struct bench bench;
    uint32_t id = start(&bench);

    ck_assert_uint_eq(bench.n_stale, 1);
    ck_assert_uint_eq(bench.stale_since, bench.taken_usec);
    ck_assert_uint_eq(hand_stale_since(bench.hand), bench.taken_usec);
    ck_assert_uint_eq(hand_n_readers_replaced(bench.hand), 0);
    ck_assert_int_ge(box_lock(bench.s.box), 0);
    ck_assert_int_eq(fault_clear(bench.s.box, id), 0);
    box_unlock(bench.s.box);
    while (hand_stale_since(bench.hand) != 0)
        ck_assert_int_ge(sd_event_run(bench.event, UINT64_MAX), 0);
    finish(&bench);
}
END_TEST

START_TEST(signals_do_not_wait_for_the_driver) {
    struct hand_signal signal = { .signal = SIGKILL };
    struct process_id ids[2];
    struct bench bench;
    int status;

    start(&bench);
    for (unsigned i = 0; i < 2; i++) {
        pid_t pid = fork();

        if (pid == 0)
            for (;;)
                pause();
        ck_assert_int_gt(pid, 0);
        ck_assert_int_eq(process_identify(&ids[i], pid), 0);
        signal.pid = ids[i].pid;
        signal.start = ids[i].start;
        ck_assert_int_eq(hand_signal(bench.hand, &signal, done, &bench), 0);
    }
    while (bench.n_answers < 2)
        ck_assert_int_ge(sd_event_run(bench.event, UINT64_MAX), 0);
    ck_assert_uint_eq(bench.n_processes, 2);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(waitpid(ids[i].pid, &status, 0), ids[i].pid);
        ck_assert(WIFSIGNALED(status));
    }
    ck_assert_int_eq(hand_signal(bench.hand, &signal, done, &bench), 0);
    while (bench.n_answers < 3)
        ck_assert_int_ge(sd_event_run(bench.event, UINT64_MAX), 0);
    ck_assert_int_eq(bench.r, -ESRCH);
    ck_assert_uint_eq(hand_n_replaced(bench.hand) + hand_n_readers_replaced(bench.hand), 0);
    /* One that is open when all ends is dropped. */
    ck_assert_int_eq(hand_signal(bench.hand, &signal, done, &bench), 0);
    finish(&bench);
    ck_assert_uint_eq(bench.n_answers, 3);
}
END_TEST

SUITE_TIMEOUT("hand-stuck", 120, readings_are_stale_as_soon_as_one_is_overdue,
              signals_do_not_wait_for_the_driver)
