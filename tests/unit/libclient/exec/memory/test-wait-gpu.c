/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs that wait for GPU memory that another process holds: what ends the wait, and which runs do
 * not wait with them.
 */
#include <errno.h>
#include <string.h>

#include "base/random.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/exec/memory/shared_box.h"

START_TEST(a_cancellation_ends_a_wait_for_step_memory) {
    struct allot_lease *filler;
    struct runner runner;
    struct gpu_fixture fixture;

    shared_box_begin();
    open_session(&fixture);
    check_books(&fixture, NULL);
    runner = runner_line(&fixture, "Next", VALUE);
    filler = real_allotd_fill(&shared_box_allotd, 0);
    for (int round = 0; round < 3; round++) {
        runner_begin(&runner, 0);
        real_allotd_await_waiting(&shared_box_allotd, 1);
        runner_cancel(&runner);
        ck_assert_msg(strstr(runner.err.text, "the run was cancelled: 'Placeholder"), "%s",
                      runner.err.text);
        ck_assert_msg(strstr(runner.err.text, "4 MiB"), "%s", runner.err.text);
        /* The daemon has dropped it, and no process holds what was not used. */
        real_allotd_await_waiting(&shared_box_allotd, 0);
        check_books(&fixture, filler);
    }
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, VALUE, NULL), 0);
    runner_check(&runner);
    check_books(&fixture, filler);
    runner_done(&runner);
    gpu_fixture_session_close(&fixture);
    allot_lease_free(filler);
    shared_box_end();
}
END_TEST

START_TEST(constants_are_waited_for_beside_other_runs) {
    struct runner constants, again, host;
    struct allot_lease *filler;
    struct gpu_fixture fixture;

    shared_box_begin();
    open_session(&fixture);
    check_books(&fixture, NULL);
    constants = runner_constant(&fixture, VALUE);
    again = constants;
    host = runner_line(&fixture, "Next", 4096);
    host.y = next(&fixture, "/cpu:0", host.x);
    filler = real_allotd_fill(&shared_box_allotd, 0);
    runner_begin(&constants, 0);
    real_allotd_await_waiting(&shared_box_allotd, 1);
    /* One that has to be planned, and needs nothing of the GPU; and one that needs the same plan.
     */
    runner_check(&host);
    runner_begin(&again, 20000);
    runner_await(&again, -ETIMEDOUT);
    runner_begin(&again, 0);
    runner_cancel(&again);
    ck_assert_uint_eq(real_allotd_held(&shared_box_allotd, allot_lease_id(filler)) > 0, 1);
    runner_cancel(&constants);
    ck_assert_msg(strstr(constants.err.text, "the run was cancelled: 'Const"), "%s",
                  constants.err.text);
    ck_assert_msg(strstr(constants.err.text, "4 MiB"), "%s", constants.err.text);
    real_allotd_await_waiting(&shared_box_allotd, 0);
    check_books(&fixture, filler);

    runner_begin(&constants, 50000);
    runner_await(&constants, -ETIMEDOUT);
    ck_assert_msg(strstr(constants.err.text, "took longer than 50000 us: 'Const"), "%s",
                  constants.err.text);
    ck_assert_msg(strstr(constants.err.text, "4 MiB"), "%s", constants.err.text);

    /* Two at once: one copies the constants for both. */
    runner_begin(&constants, 0);
    runner_begin(&again, 0);
    real_allotd_await_waiting(&shared_box_allotd, 1);
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, 4 * VALUE, NULL), 0);
    runner_await(&constants, 0);
    runner_await(&again, 0);
    check_books(&fixture, filler);
    runner_done(&host);
    gpu_fixture_session_close(&fixture);
    allot_lease_free(filler);
    shared_box_end();
}
END_TEST

/*
 * Their memory may be what that run has used, so they are copied after it; but not by a run that
 * was stopped.
 */
START_TEST(a_stop_ends_a_wait_for_the_gpu_that_constants_go_to) {
    struct runner constants, holder;
    struct gpu_fixture fixture;

    shared_box_begin();
    open_session(&fixture);
    constants = runner_constant(&fixture, VALUE);
    holder = runner_line(&fixture, "Hold", VALUE);
    runner_begin(&holder, 0);
    await_held(1);
    runner_begin(&constants, 50000);
    runner_await(&constants, -ETIMEDOUT);
    runner_begin(&constants, 0);
    runner_cancel(&constants);
    runner_begin(&constants, 0);
    sem_post(&gpu_fixture_let_go);
    runner_await(&holder, 0);
    runner_await(&constants, 0);
    check_run(&fixture, constants.x, NULL, constants.y, 1);
    runner_done(&holder);
    gpu_fixture_session_close(&fixture);
    shared_box_end();
}
END_TEST

/* What another session of the process has used becomes idle: enough by itself, or not quite. */
START_TEST(memory_that_becomes_idle_in_the_process_ends_a_wait) {
    shared_box_begin();
    for (unsigned round = 0; round < 2; round++) {
        struct runner waiter, holder;
        struct gpu_fixture mine, theirs;
        struct allot_lease *filler;

        open_session(&mine);
        check_books(&mine, NULL);
        open_session(&theirs);
        waiter = runner_line(&mine, "Next", round ? 3 * VALUE : VALUE);
        holder = runner_line(&theirs, "Hold", VALUE);
        runner_begin(&holder, 0);
        await_held(round + 1);
        /* In the second round what the daemon has left is not enough without it. */
        filler = real_allotd_fill(&shared_box_allotd, round ? VALUE : 0);
        runner_begin(&waiter, 0);
        real_allotd_await_waiting(&shared_box_allotd, 1);
        sem_post(&gpu_fixture_let_go);
        runner_await(&holder, 0);
        runner_await(&waiter, 0);
        real_allotd_await_waiting(&shared_box_allotd, 0);
        check_books(&mine, filler);
        runner_done(&waiter);
        runner_done(&holder);
        gpu_fixture_session_close(&mine);
        gpu_fixture_session_close(&theirs);
        allot_lease_free(filler);
    }
    shared_box_end();
}
END_TEST

/* Its session runs nothing more. */
START_TEST(memory_of_a_stopped_run_is_free_when_the_gpu_is_done) {
    shared_box_begin();
    for (unsigned round = 0; round < 2; round++) {
        struct runner waiter, holder;
        struct gpu_fixture mine, theirs;
        struct allot_lease *filler;

        open_session(&mine);
        check_books(&mine, NULL);
        open_session(&theirs);
        waiter = runner_line(&mine, "Next", VALUE);
        holder = runner_line(&theirs, "Hold", VALUE);
        runner_begin(&holder, 0);
        await_held(round + 1);
        runner_cancel(&holder);
        filler = real_allotd_fill(&shared_box_allotd, 0);
        if (round == 0) {
            runner_begin(&waiter, 0);
            real_allotd_await_waiting(&shared_box_allotd, 1);
            sem_post(&gpu_fixture_let_go);
            runner_await(&waiter, 0);
        } else {
            sem_post(&gpu_fixture_let_go);
            runner_check(&waiter);
        }
        real_allotd_await_waiting(&shared_box_allotd, 0);
        check_books(&mine, filler);
        runner_done(&waiter);
        runner_done(&holder);
        gpu_fixture_session_close(&mine);
        gpu_fixture_session_close(&theirs);
        allot_lease_free(filler);
    }
    shared_box_end();
}
END_TEST

/* A run that writes a variable may need new bytes for it: its readers do not wait with it. */
START_TEST(a_variable_is_read_while_a_write_waits_for_memory) {
    struct runner put, read, peek;
    struct allot_lease *filler;
    struct gpu_fixture fixture;
    struct edge v;

    shared_box_begin();
    open_session(&fixture);
    check_books(&fixture, NULL);
    put = (struct runner){ .fixture = &fixture, .has_target = true, .fed = numbers(COUNT) };
    put.x = source(&fixture, "Placeholder", NULL, COUNT);
    v = source(&fixture, "Variable", "/gpu:0", COUNT);
    put.target = add(&fixture, "Put", NULL, (struct edge[]){ v, put.x }, 2, NULL, 0);
    read = (struct runner){ .fixture = &fixture, .y = v };
    runner_check(&put);
    runner_check(&read);
    /* A reader that is held on the GPU has the old bytes. */
    peek = (struct runner){ .fixture = &fixture, .y = one_op(&fixture, "Hold", "/gpu:0", v) };
    runner_begin(&peek, 0);
    await_held(1);
    filler = real_allotd_fill(&shared_box_allotd, 0);
    runner_begin(&put, 0);
    real_allotd_await_waiting(&shared_box_allotd, 1);
    runner_check(&read);
    runner_cancel(&put);
    ck_assert_msg(strstr(put.err.text, "'Put"), "%s", put.err.text);
    ck_assert_msg(strstr(put.err.text, "4 MiB"), "%s", put.err.text);
    sem_post(&gpu_fixture_let_go);
    runner_await(&peek, 0);
    check_run(&fixture, v, NULL, v, 0);
    runner_done(&put);
    gpu_fixture_session_close(&fixture);
    allot_lease_free(filler);
    shared_box_end();
}
END_TEST

/* Whichever comes first: nothing is lost, and nothing kept that is not used. */
START_TEST(a_grant_that_meets_a_cancellation_leaks_nothing) {
    struct allot_lease *filler;
    struct gpu_fixture fixture;
    uint64_t seed = 11;
    int64_t bytes = 2 * MIB;

    shared_box_begin();
    open_session(&fixture);
    check_books(&fixture, NULL);
    filler = real_allotd_fill(&shared_box_allotd, 0);
    for (int round = 0; round < 24; round++) {
        /* More than all that the runs before have left idle. */
        struct runner runner = runner_line(&fixture, "Next", bytes);

        runner_begin(&runner, 0);
        real_allotd_await_waiting(&shared_box_allotd, 1);
        if (random_next(&seed) % 2)
            cancel_give(&runner.cancel);
        ck_assert_int_eq(allot_lease_shrink(filler, NULL, 2 * MIB, NULL), 0);
        for (uint64_t spin = random_next(&seed) % 100000; spin > 0; spin--)
            __asm__ volatile("");
        cancel_give(&runner.cancel);
        ck_assert_int_eq(pthread_join(runner.thread, NULL), 0);
        ck_assert_msg(runner.r == 0 || runner.r == -ECANCELED, "%d: %s", runner.r, runner.err.text);
        cancel_done(&runner.cancel);
        real_allotd_await_waiting(&shared_box_allotd, 0);
        check_books(&fixture, filler);
        runner_done(&runner);
        /* Whether it ran or not, it may have grown. */
        if (allot_lease_grow(filler, NULL, 2 * MIB, 0, NULL) < 0)
            bytes += 2 * MIB;
    }
    gpu_fixture_session_close(&fixture);
    allot_lease_free(filler);
    shared_box_end();
}
END_TEST

SUITE_TIMEOUT("wait-gpu", 120, a_cancellation_ends_a_wait_for_step_memory,
              constants_are_waited_for_beside_other_runs,
              a_stop_ends_a_wait_for_the_gpu_that_constants_go_to,
              memory_that_becomes_idle_in_the_process_ends_a_wait,
              memory_of_a_stopped_run_is_free_when_the_gpu_is_done,
              a_variable_is_read_while_a_write_waits_for_memory,
              a_grant_that_meets_a_cancellation_leaks_nothing)
