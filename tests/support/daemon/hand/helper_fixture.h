/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Helper fixture: allotd's side of its helpers, both of which are the test itself, behind sockets.
 * The test says every word that they say.
 */
#include <systemd/sd-event.h>

#include "daemon/hand/hand.h"
#include "daemon/hand/wire.h"
#include "tests/support/suite.h"

#define HELPER_FIXTURE_HOUR (UINT64_C(3600) * 1000 * 1000)

struct helper_fixture_end {
    int listener, fd; /* fd: that is spoken to */
    char path[108];
};

struct helper_fixture {
    struct helper_fixture_end reader, hand,
        fallback; /* the last one comes to the hand's listener, too */
    sd_event *event;
    struct hand *it;
    unsigned n_samples, n_events, n_stale, n_answers;
    struct sample last;
    struct sample_device devices[4];
    struct sample_process processes[600];
    struct sample_event happened;
    uint64_t stale_since;
    char stale_reason[256];
    int r;
    bool has_answer;
    struct hand_answer answer;
    struct allot_error err;
};

/* Let allotd's side work; what it does comes to us within this, or the test's time runs out. */
#define HELPER_FIXTURE_UNTIL(bench, condition)                                                     \
    while (!(condition))                                                                           \
    ck_assert_int_ge(sd_event_run((bench)->event, 2000), 0)

extern union hand_message helper_fixture_got;  /* the last question */
extern union hand_message helper_fixture_said; /* what is answered next */

/* For calls of the hand: keeps the answer. */
void helper_fixture_done(void *userdata, int r, const struct hand_answer *answer,
                         const struct allot_error *err);
/* The next connection. */
void helper_fixture_accept_at(struct helper_fixture *bench, struct helper_fixture_end *end,
                              int listener);
/* The next question, into helper_fixture_got: one of this kind. */
void helper_fixture_get(struct helper_fixture *bench, struct helper_fixture_end *end,
                        uint32_t kind);
/* Nothing is asked, though allotd's side had its turn. */
void helper_fixture_expect_silence(struct helper_fixture *bench, struct helper_fixture_end *end);
/* A row, for the question that came last. */
void helper_fixture_put(struct helper_fixture_end *end, union hand_message *row, uint32_t kind);
/* Answer it with helper_fixture_said, which is zero afterwards. */
void helper_fixture_say(struct helper_fixture_end *end, int r, const char *text);
void helper_fixture_greet(struct helper_fixture *bench, struct helper_fixture_end *end);
/* A start of both that is greeted. */
void helper_fixture_start(struct helper_fixture *bench, uint64_t timeout_usec, uint64_t period_usec,
                          uint64_t stale_usec);
/* And the end; allotd's side has closed everything. */
void helper_fixture_finish(struct helper_fixture *bench);
struct gpuid helper_fixture_gpu_of(uint8_t number);
void helper_fixture_put_device(struct helper_fixture *bench, uint8_t number);
/* A sample with two GPUs and no process, from the question on. */
void helper_fixture_take_sample(struct helper_fixture *bench);
