/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several runs of one process, each of which fits alone: none holds a part that another waits for
 * while it waits itself.
 */

#include "base/clock.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/exec/memory/shared_box.h"

/* What a run needs is its constants and its step memory; it has both or waits with neither. */
START_TEST(runs_that_fit_one_by_one_get_through_one_by_one) {
    struct runner runners[2];
    struct gpu_fixture benches[2];
    struct allot_lease *filler;
    uint64_t given;

    shared_box_begin();
    for (int i = 0; i < 2; i++) {
        open_session(&benches[i]);
        runners[i] = runner_constant(&benches[i], 4 * VALUE);
    }
    check_books(&benches[0], NULL);
    filler = real_allotd_fill(&shared_box_allotd, 0);
    for (int i = 0; i < 2; i++) {
        runner_begin(&runners[i], 4 * SOON_USEC);
        real_allotd_await_waiting(&shared_box_allotd, i + 1);
    }
    /* The constants of one, those of the other, and half of what is then still needed. */
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, 4 * VALUE, NULL), 0);
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, 4 * VALUE, NULL), 0);
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, 2 * VALUE, NULL), 0);
    given = clock_usec(CLOCK_MONOTONIC);
    for (int i = 0; i < 2; i++) {
        runner_await(&runners[i], 0);
        ck_assert_uint_lt(runners[i].ended_usec - given, SOON_USEC);
    }
    real_allotd_await_waiting(&shared_box_allotd, 0);
    check_books(&benches[0], filler);
    for (int i = 0; i < 2; i++)
        gpu_fixture_session_close(&benches[i]);
    allot_lease_free(filler);
    shared_box_end();
}
END_TEST

/* Constants that are there from a run before are no more held than others. */
START_TEST(unused_constants_are_not_held_by_a_run_that_waits) {
    struct runner constants, put, small;
    struct gpu_fixture mine, theirs, others;
    struct allot_lease *filler;
    struct edge v;

    shared_box_begin();
    open_session(&mine);
    open_session(&theirs);
    open_session(&others);
    check_books(&mine, NULL);
    constants = runner_constant(&mine, 4 * VALUE);
    put = (struct runner){ .fixture = &theirs, .has_target = true, .fed = numbers(3 * COUNT) };
    put.x = source(&theirs, "Placeholder", NULL, 3 * COUNT);
    v = source(&theirs, "Variable", "/gpu:0", 3 * COUNT);
    put.target = add(&theirs, "Put", NULL, (struct edge[]){ v, put.x }, 2, NULL, 0);
    small = runner_line(&others, "Next", 4 * VALUE);
    filler = real_allotd_fill(&shared_box_allotd, 10 * VALUE);
    runner_check(&constants);
    /* Its constants stay, its step memory does not; and the variable leaves too little. */
    runner_check(&put);
    runner_begin(&constants, 0);
    real_allotd_await_waiting(&shared_box_allotd, 1);
    runner_begin(&small, 4 * SOON_USEC);
    runner_await(&small, 0);
    real_allotd_await_waiting(&shared_box_allotd, 1);
    gpu_fixture_session_close(&theirs);
    runner_await(&constants, 0);
    real_allotd_await_waiting(&shared_box_allotd, 0);
    check_books(&mine, filler);
    runner_done(&put);
    runner_done(&small);
    gpu_fixture_session_close(&mine);
    gpu_fixture_session_close(&others);
    allot_lease_free(filler);
    shared_box_end();
}
END_TEST

/* Nor is memory of one GPU while that of another is waited for. */
START_TEST(a_run_on_two_gpus_holds_neither_while_it_waits_for_the_other) {
    struct allot_lease *fillers[2];
    struct runner both, one;
    struct gpu_fixture fixture;

    shared_box_begin();
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    open_session_on(&fixture, 2);
    both = runner_line(&fixture, "Next", 4 * VALUE);
    both.y = next(&fixture, "/gpu:1", both.y);
    one = runner_line(&fixture, "Next", 4 * VALUE);
    for (unsigned i = 0; i < 2; i++)
        fillers[i] = real_allotd_fill_gpu(&shared_box_allotd, i, 0);
    runner_begin(&both, 0);
    real_allotd_await_waiting(&shared_box_allotd, 1);
    ck_assert_int_eq(allot_lease_shrink(fillers[0], NULL, 4 * VALUE, NULL), 0);
    runner_begin(&one, 4 * SOON_USEC);
    runner_await(&one, 0);
    real_allotd_await_waiting(&shared_box_allotd, 1);
    ck_assert_int_eq(allot_lease_shrink(fillers[1], NULL, 4 * VALUE, NULL), 0);
    runner_await(&both, 0);
    real_allotd_await_waiting(&shared_box_allotd, 0);
    runner_done(&both);
    runner_done(&one);
    gpu_fixture_session_close(&fixture);
    for (unsigned i = 0; i < 2; i++)
        allot_lease_free(fillers[i]);
    shared_box_end();
}
END_TEST

/* Many at once, where there is room for the largest alone, and some need both GPUs. */
enum { N_CROWD = 6, N_ROUNDS = 1, BIT = 2 * MIB };

static void *run_again_and_again(void *userdata) {
    struct runner *runner = userdata;

    for (int i = 0; i < N_ROUNDS; i++) {
        runner_check(&runner[0]);
        runner_check(&runner[1]);
    }
    return NULL;
}

START_TEST(a_crowd_gets_through) {
    struct runner runners[N_CROWD][2];
    struct gpu_fixture benches[N_CROWD];
    struct allot_lease *fillers[2];
    pthread_t threads[N_CROWD];

    shared_box_begin();
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    for (int i = 0; i < N_CROWD; i++) {
        const char *other = i % 2 ? "/gpu:1" : "/gpu:0";

        open_session_on(&benches[i], 2);
        runners[i][0] = runner_constant(&benches[i], 2 * BIT);
        if (i % 3 == 0)
            runners[i][0].y = next(&benches[i], "/gpu:1", runners[i][0].y);
        runners[i][1] = runner_line(&benches[i], "Next", (i % 3 + 1) * BIT);
        runners[i][1].y = next(&benches[i], other, runners[i][1].y);
    }
    for (unsigned i = 0; i < 2; i++)
        fillers[i] = real_allotd_fill_gpu(&shared_box_allotd, i, i ? 4 * BIT : 5 * BIT);
    for (int i = 0; i < N_CROWD; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_again_and_again, runners[i]), 0);
    for (int i = 0; i < N_CROWD; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    real_allotd_await_waiting(&shared_box_allotd, 0);
    for (int i = 0; i < N_CROWD; i++) {
        runner_done(&runners[i][1]);
        gpu_fixture_session_close(&benches[i]);
    }
    for (unsigned i = 0; i < 2; i++)
        allot_lease_free(fillers[i]);
    shared_box_end();
}
END_TEST

SUITE_TIMEOUT("crowd-gpu", 120, runs_that_fit_one_by_one_get_through_one_by_one,
              unused_constants_are_not_held_by_a_run_that_waits,
              a_run_on_two_gpus_holds_neither_while_it_waits_for_the_other, a_crowd_gets_through)
