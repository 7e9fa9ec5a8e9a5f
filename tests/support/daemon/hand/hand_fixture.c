/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/daemon/hand/hand_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void sampled(void *userdata, const struct sample *sample) {
    struct hand_fixture *bench = userdata;

    free(bench->last.devices);
    free(bench->last.processes);
    bench->last = *sample;
    bench->last.devices = calloc(sample->n_devices + 1, sizeof(*sample->devices));
    bench->last.processes = calloc(sample->n_processes + 1, sizeof(*sample->processes));
    memcpy(bench->last.devices, sample->devices, sample->n_devices * sizeof(*sample->devices));
    if (sample->n_processes)
        memcpy(bench->last.processes, sample->processes,
               sample->n_processes * sizeof(*sample->processes));
    bench->n_samples++;
}

static void happened(void *userdata, const struct sample_event *event) {
    struct hand_fixture *bench = userdata;

    bench->events[bench->n_events++ % ELEMENTSOF(bench->events)] = *event;
}

static void stale(void *userdata, uint64_t since_usec, const char *reason) {
    struct hand_fixture *bench = userdata;

    bench->n_stale++;
    bench->stale_since = since_usec;
    snprintf(bench->stale_reason, sizeof(bench->stale_reason), "%s", reason);
}

void hand_fixture_done(void *userdata, int r, const struct hand_answer *answer,
                       const struct allot_error *err) {
    struct hand_fixture *bench = userdata;

    bench->n_answers++;
    bench->r = r;
    bench->err = *err;
    ck_assert_int_eq(answer != NULL, r == 0);
    if (answer)
        bench->answer = *answer;
}

struct hand_watcher hand_fixture_watcher(struct hand_fixture *bench) {
    return (struct hand_watcher){ bench, sampled, happened, stale };
}

void hand_fixture_start(struct hand_fixture *bench, const struct box_spec *spec,
                        uint64_t timeout_usec) {
    struct hand_options options = {
        .driver = DRIVER_SIM,
        .hand.program = ALLOT_HAND,
        .reader.program = ALLOT_READER,
        .period_usec = 50000,
        .timeout_usec = timeout_usec,
        .stale_usec =
            UINT64_C(600) * 1000 * 1000, /* tests/unit/daemon/hand/test-hand-stuck.c has less */
        .watcher = hand_fixture_watcher(bench),
    };
    struct allot_error err = { 0 };

    memset(bench, 0, sizeof(*bench));
    sim_box_init(&bench->s, spec);
    setenv("ALLOT_SIM_DIR", SIM_LIB_DIR, 1);
    ck_assert_int_ge(sd_event_new(&bench->event), 0);
    options.event = bench->event;
    ck_assert_msg(hand_new(&bench->hand, &options, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(bench->n_samples, 0); /* nothing comes from inside the call */
}

void hand_fixture_finish(struct hand_fixture *bench) {
    hand_free(bench->hand);
    sd_event_unref(bench->event);
    free(bench->last.devices);
    free(bench->last.processes);
    sim_box_done(&bench->s);
}

void hand_fixture_run_samples(struct hand_fixture *bench, unsigned n) {
    unsigned target = bench->n_samples + n;

    HAND_FIXTURE_UNTIL(bench, bench->n_samples >= target);
}

void hand_fixture_run_answer(struct hand_fixture *bench) {
    unsigned target = bench->n_answers + 1;

    HAND_FIXTURE_UNTIL(bench, bench->n_answers >= target);
}
