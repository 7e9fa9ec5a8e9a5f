/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs of one process that need more together than its limit allows, but not one by one: they wait
 * for each other, as long as one of them will give memory back.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "allocator/arena.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpus.h"
#include "libclient/exec/memory/ticket.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/exec/memory/shared_box.h"

/* Of the arena. A run with Hold takes twice what it is fed with: nothing of MOST fits beside one of
 * MOST, and HALF is more than is left beside two of HALF. */
enum { PAGE = 2 * MIB, LIMIT = 9 * PAGE, MOST = 4 * PAGE, HALF = 2 * PAGE };

static struct gpu_fixture fixture;

/* No daemon manages the box: the arena's cap alone refuses. */
static void begin_alone(void) {
    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    fixture.limit_bytes = LIMIT;
    gpu_fixture_session_open(&fixture, 2);
}

static void end_alone(void) {
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}

/* The same limit by a lease. */
static void open_leased(struct gpus_options options) {
    struct gpu_fixture probe;

    open_session(&probe);
    options.n_gpus = 1;
    options.limit_bytes =
        real_allotd_held(&shared_box_allotd, 0) + LIMIT; /* what a context takes */
    gpu_fixture_session_close(&probe);
    open_session_of(&fixture, options);
}

static bool is_in_line(void) {
    return ticket_is_any(fixture.engine->devices[1]->gpu);
}

static void await_in_line(void) {
    while (!is_in_line())
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

static void await_live(uint64_t bytes) {
    struct arena_stats stats;

    do {
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
        arena_get_stats(fixture.engine->devices[1]->gpu->arena, &stats);
    } while (stats.live_bytes < bytes);
}

/* Has its memory until holder_end(). */
static void holder_begin(struct runner *holder, int64_t bytes) {
    unsigned n = atomic_load(&gpu_fixture_n_held);

    *holder = runner_line(&fixture, "Hold", bytes);
    runner_begin(holder, 0);
    await_held(n + 1);
}

static void holder_end(struct runner *holder) {
    sem_post(&gpu_fixture_let_go);
    runner_await(holder, 0);
    runner_done(holder);
}

/* Puts what comes `from` a placeholder, of so many bytes, into a variable of its own. */
static struct runner runner_put(struct runner runner, struct edge from, int64_t bytes) {
    struct edge v = source(&fixture, "Variable", "/gpu:0", bytes / 4);

    runner.has_target = true;
    runner.target = add(&fixture, "Put", NULL, (struct edge[]){ v, next(&fixture, "/gpu:0", from) },
                        2, NULL, 0);
    return runner;
}

static void check_waits_for_another(void) {
    for (int round = 0; round < 3; round++) {
        struct runner waiter = runner_line(&fixture, "Next", MOST), holder;

        holder_begin(&holder, MOST);
        runner_begin(&waiter, 0);
        await_in_line();
        holder_end(&holder);
        runner_await(&waiter, 0);
        ck_assert(!is_in_line());
        runner_done(&waiter);
    }
}

START_TEST(a_run_waits_for_what_another_one_has) {
    begin_alone();
    check_waits_for_another();
    end_alone();
}
END_TEST

START_TEST(so_it_does_under_a_lease) {
    shared_box_begin();
    open_leased((struct gpus_options){ 0 });
    check_books(&fixture, NULL);
    check_waits_for_another();
    check_books(&fixture, NULL);
    gpu_fixture_session_close(&fixture);
    shared_box_end();
}
END_TEST

START_TEST(a_run_that_may_not_wait_is_refused_at_once) {
    shared_box_begin();
    for (int round = 0; round < 2; round++) {
        struct runner waiter, holder;

        open_leased(round ? (struct gpus_options){ .wait_usec = 50000 }
                          : (struct gpus_options){ .no_wait = true });
        waiter = runner_line(&fixture, "Next", MOST);
        holder_begin(&holder, MOST);
        runner_begin(&waiter, 0);
        runner_await(&waiter, -ENOMEM);
        ck_assert_msg(strstr(waiter.err.text, "8 MiB"), "%s", waiter.err.text);
        holder_end(&holder);
        runner_check(&waiter);
        runner_done(&waiter);
        gpu_fixture_session_close(&fixture);
    }
    shared_box_end();
}
END_TEST

START_TEST(a_cancellation_or_a_time_limit_ends_that_wait) {
    struct runner waiter, behind, holder;

    begin_alone();
    waiter = runner_line(&fixture, "Next", MOST);
    behind = runner_line(&fixture, "Next", MOST);
    holder_begin(&holder, MOST);
    runner_begin(&waiter, 0);
    await_in_line();
    /* The same for a run that is not the first in the queue. */
    runner_begin(&behind, 50000);
    runner_await(&behind, -ETIMEDOUT);
    runner_begin(&behind, 0);
    runner_cancel(&behind);
    runner_cancel(&waiter);
    ck_assert_msg(strstr(waiter.err.text, "the run was cancelled: 'Placeholder"), "%s",
                  waiter.err.text);
    ck_assert_msg(strstr(waiter.err.text, "8 MiB"), "%s", waiter.err.text);
    ck_assert(!is_in_line());
    runner_begin(&waiter, 50000);
    runner_await(&waiter, -ETIMEDOUT);
    ck_assert_msg(strstr(waiter.err.text, "8 MiB"), "%s", waiter.err.text);
    holder_end(&holder);
    runner_check(&waiter);
    runner_done(&waiter);
    runner_done(&behind);
    end_alone();
}
END_TEST

START_TEST(memory_that_no_run_will_give_back_is_refused) {
    struct runner put, waiter, large, holder;

    begin_alone();
    /* More than the limit, whatever else runs. */
    large = runner_line(&fixture, "Next", LIMIT + PAGE);
    holder_begin(&holder, PAGE);
    runner_begin(&large, 0);
    runner_await(&large, -ENOMEM);
    holder_end(&holder);
    /*
     * A variable keeps its memory, so a run is refused: at once if no other runs, else when the
     * last has ended.
     */
    put = runner_line(&fixture, "Next", HALF);
    put = runner_put(put, put.y, HALF);
    runner_check(&put);
    waiter = runner_line(&fixture, "Next", 2 * MOST);
    runner_begin(&waiter, 0);
    runner_await(&waiter, -ENOMEM);
    holder_begin(&holder, PAGE);
    runner_begin(&waiter, 0);
    await_in_line();
    holder_end(&holder);
    runner_await(&waiter, -ENOMEM);
    runner_done(&large);
    runner_done(&put);
    runner_done(&waiter);
    end_alone();
}
END_TEST

/* A small one would fit beside the first run; but then another, and so the large one never. */
START_TEST(a_later_run_does_not_overtake) {
    struct runner waiter, small, again, holder;

    begin_alone();
    waiter = runner_line(&fixture, "Next", MOST);
    small = runner_line(&fixture, "Next", PAGE);
    again = runner_line(&fixture, "Next", PAGE / 2);
    runner_check(&again);
    holder_begin(&holder, MOST);
    runner_begin(&waiter, 0);
    await_in_line();
    runner_begin(&small, 50000);
    runner_await(&small, -ETIMEDOUT);
    runner_begin(&small, 0);
    holder_end(&holder);
    runner_await(&waiter, 0);
    runner_await(&small, 0);
    runner_done(&waiter);
    runner_done(&small);
    runner_done(&again);
    end_alone();
}
END_TEST

/* Both have memory, and each needs some of the other's: one is refused, and ends, and the other
 * gets it. */
START_TEST(of_two_that_wait_for_each_other_one_is_refused) {
    struct runner runners[2];
    int n_refused = 0;

    begin_alone();
    for (int i = 0; i < 2; i++) {
        runners[i] = runner_line(&fixture, "Hold", HALF);
        /* The host's part comes when the GPU is past Hold: only then the variable is made. */
        runners[i] = runner_put(runners[i], next(&fixture, "/cpu:0", runners[i].y), HALF);
        runner_begin(&runners[i], 0);
    }
    await_live(4 * HALF);
    for (int i = 0; i < 2; i++)
        sem_post(&gpu_fixture_let_go);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(pthread_join(runners[i].thread, NULL), 0);
        ck_assert_msg(runners[i].r == 0 || runners[i].r == -ENOMEM, "%s", runners[i].err.text);
        n_refused += runners[i].r == -ENOMEM;
        cancel_done(&runners[i].cancel);
        runner_done(&runners[i]);
    }
    ck_assert_int_eq(n_refused, 1);
    end_alone();
}
END_TEST

/* No run in the queue will give anything back. */
START_TEST(runs_in_the_queue_are_not_waited_for) {
    struct runner put, grows, waiters[3];

    begin_alone();
    /* By a run that holds memory and needs more than there is in all. */
    grows = runner_line(&fixture, "Hold", MOST);
    grows = runner_put(grows, next(&fixture, "/cpu:0", grows.y), MOST);
    runner_begin(&grows, 0);
    await_held(1);
    for (int i = 0; i < 3; i++) {
        waiters[i] = runner_line(&fixture, "Next", MOST);
        runner_begin(&waiters[i], 0);
        await_in_line();
    }
    sem_post(&gpu_fixture_let_go);
    runner_await(&grows, -ENOMEM);
    for (int i = 0; i < 3; i++) {
        runner_await(&waiters[i], 0);
        runner_done(&waiters[i]);
    }
    /* By each other, where a variable leaves too little for any. */
    put = runner_line(&fixture, "Next", HALF);
    put = runner_put(put, put.y, HALF);
    runner_check(&put);
    for (int i = 0; i < 3; i++) {
        waiters[i] = runner_line(&fixture, "Next", 2 * MOST);
        runner_begin(&waiters[i], 0);
    }
    for (int i = 0; i < 3; i++) {
        runner_await(&waiters[i], -ENOMEM);
        runner_done(&waiters[i]);
    }
    runner_done(&put);
    runner_done(&grows);
    end_alone();
}
END_TEST

START_TEST(so_it_is_with_two_gpus) {
    struct runner both, holder;

    begin_alone();
    ck_assert_uint_eq(fixture.engine->n_devices, 3);
    both = runner_line(&fixture, "Next", MOST);
    both.y = next(&fixture, "/gpu:1", both.y);
    holder = runner_line(&fixture, "Next", MOST);
    holder.y = one_op(&fixture, "Hold", "/gpu:1", holder.x);
    for (int round = 0; round < 2; round++) {
        unsigned n = atomic_load(&gpu_fixture_n_held);

        runner_begin(&holder, 0);
        await_held(n + 1);
        runner_begin(&both, 0);
        while (!ticket_is_any(NULL))
            nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
        if (round == 0)
            runner_cancel(&both);
        sem_post(&gpu_fixture_let_go);
        runner_await(&holder, 0);
        if (round == 1)
            runner_await(&both, 0);
    }
    runner_done(&both);
    runner_done(&holder);
    end_alone();
}
END_TEST

/* Many at once, of all sizes. */
enum { N_CROWD = 6, N_ROUNDS = 2 };

static void *run_again_and_again(void *userdata) {
    struct runner *runners = userdata;

    for (int i = 0; i < N_ROUNDS; i++)
        runner_check(&runners[i]);
    return NULL;
}

START_TEST(a_crowd_gets_through) {
    struct runner runners[N_CROWD][N_ROUNDS];
    pthread_t threads[N_CROWD];

    begin_alone();
    for (int i = 0; i < N_CROWD; i++)
        for (int k = 0; k < N_ROUNDS; k++) {
            runners[i][k] =
                runner_line(&fixture, "Next", (int64_t)(1 + (i * 5 + k * 3) % 8) * PAGE);
            if (i % 3 == 0)
                runners[i][k].y = next(&fixture, "/gpu:1", runners[i][k].y);
        }
    for (int i = 0; i < N_CROWD; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_again_and_again, runners[i]), 0);
    for (int i = 0; i < N_CROWD; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    ck_assert(!is_in_line());
    for (int i = 0; i < N_CROWD; i++)
        for (int k = 0; k < N_ROUNDS; k++)
            runner_done(&runners[i][k]);
    end_alone();
}
END_TEST

/* A cap of less than a page is a cap of nothing, and must not be taken for no cap. */
START_TEST(a_limit_of_less_than_a_page_is_refused) {
    static const struct {
        struct gpus_options options;
        const char *says; /* NULL: it is enough */
    } cases[] = {
        { { .limit_bytes = 1 }, "1 bytes of " },
        { { .limit_bytes = 1 << 20 }, "1048576 bytes of " },
        { { .limit_bytes = (2 << 20) - 1, .no_growth = true }, "2097151 bytes of " },
        { { .limit_bytes = 2 << 20 }, NULL },
        { { .limit_bytes = 5 << 20 }, NULL },
    };

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct allot_error err = { 0 };
        const struct gpus *gpus = NULL;
        struct arena_stats stats;
        int r = gpus_get(&gpus, &cases[i].options, &err);

        ck_assert_msg(r == (cases[i].says ? -EINVAL : 0), "case %zu: %d %s", i, r, err.text);
        if (cases[i].says) {
            ck_assert_msg(strstr(err.text, cases[i].says) &&
                              strstr(err.text, " are less than a page of 2097152: nothing could "
                                               "be allocated; a larger limit or fraction"),
                          "%s", err.text);
            continue;
        }
        arena_get_stats(gpus->gpus[0]->arena, &stats);
        ck_assert_uint_eq(stats.cap_bytes, cases[i].options.limit_bytes >> 21 << 21);
        gpus_put(gpus);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

SUITE_TIMEOUT("limit-gpu", 120, a_limit_of_less_than_a_page_is_refused,
              a_run_waits_for_what_another_one_has, so_it_does_under_a_lease,
              a_run_that_may_not_wait_is_refused_at_once,
              a_cancellation_or_a_time_limit_ends_that_wait,
              memory_that_no_run_will_give_back_is_refused, a_later_run_does_not_overtake,
              of_two_that_wait_for_each_other_one_is_refused, runs_in_the_queue_are_not_waited_for,
              so_it_is_with_two_gpus, a_crowd_gets_through)
