/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Hand fixture: allotd's side and its real helpers over a simulated box, with a record of what they
 * reported.
 */
#include <systemd/sd-event.h>

#include "daemon/hand/hand.h"
#include "tests/support/sim/nvml/nvml_library.h"
#include "tests/support/suite.h"

struct hand_fixture {
    struct sim_box s;
    sd_event *event;
    struct hand *hand;
    struct sample last; /* arrays are copies */
    unsigned n_samples, n_events, n_stale, n_answers;
    struct sample_event events[16];
    uint64_t stale_since;
    char stale_reason[256];
    int r;
    struct hand_answer answer;
    struct allot_error err;
};

/* Make a box of `spec` and helpers on it; allotd's side gives up on one after `timeout_usec`; 0:
 * 10 s. */
void hand_fixture_start(struct hand_fixture *bench, const struct box_spec *spec,
                        uint64_t timeout_usec);
void hand_fixture_finish(struct hand_fixture *bench);

/* Run the loop until `condition`; only the test's own time limit ends this otherwise. */
#define HAND_FIXTURE_UNTIL(bench, condition)                                                       \
    while (!(condition))                                                                           \
    ck_assert_int_ge(sd_event_run((bench)->event, UINT64_MAX), 0)

void hand_fixture_run_samples(struct hand_fixture *bench, unsigned n);
void hand_fixture_run_answer(struct hand_fixture *bench);

/* For hands of a test's own. */
struct hand_watcher hand_fixture_watcher(struct hand_fixture *bench);
/* For calls of the hand: keeps the answer. */
void hand_fixture_done(void *userdata, int r, const struct hand_answer *answer,
                       const struct allot_error *err);
