/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon that hangs, or a process without descriptors: no run waits where it cannot be stopped,
 * and the books agree afterwards.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "allocator/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/random.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/exec/memory/shared_box.h"

/* A daemon that does not answer hangs after two seconds: less than that, and more. */
#define STOPPED_USEC UINT64_C(1500000)
#define KEPT_USEC    UINT64_C(3500000)

/*
 * A daemon that hangs answers neither yes nor no: time limits and cancellations work all the same.
 */
START_TEST(a_daemon_that_hangs_keeps_no_run) {
    struct runner runner, again;
    struct gpu_fixture fixture;
    uint64_t begun;

    shared_box_begin();
    open_session(&fixture);
    check_books(&fixture, NULL);
    runner = again = runner_line(&fixture, "Next", VALUE);
    kill(shared_box_allotd.pid, SIGSTOP);
    begun = clock_usec(CLOCK_MONOTONIC);
    runner_begin(&runner, 20000);
    runner_await(&runner, -ETIMEDOUT);
    ck_assert_uint_lt(runner.ended_usec - begun, SOON_USEC);
    runner_begin(&runner, 0);
    runner_begin(&again, 20000);
    runner_await(&again, -ETIMEDOUT);
    runner_cancel(&runner);
    ck_assert_msg(strstr(runner.err.text, "4 MiB"), "%s", runner.err.text);
    kill(shared_box_allotd.pid, SIGCONT);
    runner_check(&runner);
    check_books(&fixture, NULL);
    runner_done(&runner);
    gpu_fixture_session_close(&fixture);
    shared_box_end();
}
END_TEST

/*
 * A run in the queue that gives something back meanwhile can be stopped, and ends at its time
 * limit.
 */
START_TEST(a_daemon_that_hangs_keeps_no_run_that_gives_back) {
    shared_box_begin();
    for (unsigned round = 0; round < 4; round++) {
        const uint64_t limit_usec = round % 2 ? 1000000 : 0;
        struct runner waiter, holder;
        struct gpu_fixture mine, theirs;
        struct allot_lease *filler;
        uint64_t begun;

        open_session(&mine);
        check_books(&mine, NULL);
        open_session(&theirs);
        waiter = runner_line(&mine, "Next", 3 * VALUE);
        holder = runner_line(&theirs, "Hold", VALUE);
        runner_begin(&holder, 0);
        await_held(round + 1);
        filler = real_allotd_fill(&shared_box_allotd, 0);
        begun = clock_usec(CLOCK_MONOTONIC);
        runner_begin(&waiter, limit_usec);
        real_allotd_await_waiting(&shared_box_allotd, 1);
        kill(shared_box_allotd.pid, SIGSTOP);
        sem_post(&gpu_fixture_let_go);
        runner_await(&holder, 0);
        begun = limit_usec ? begun : clock_usec(CLOCK_MONOTONIC);
        if (!limit_usec)
            cancel_give(&waiter.cancel);
        runner_await(&waiter, limit_usec ? -ETIMEDOUT : -ECANCELED);
        ck_assert_uint_lt(waiter.ended_usec - begun, limit_usec + STOPPED_USEC);
        kill(shared_box_allotd.pid, SIGCONT);
        /* All that was given back is reported: enough for a run that needs no more. */
        allot_lease_free(filler);
        runner_check(&waiter);
        check_books(&mine, NULL);
        runner_done(&waiter);
        runner_done(&holder);
        gpu_fixture_session_close(&mine);
        gpu_fixture_session_close(&theirs);
    }
    shared_box_end();
}
END_TEST

/* With what it held a moment before, and while the report of that is on its way. */
START_TEST(a_daemon_that_hangs_keeps_no_session_that_ends) {
    uint64_t before;

    shared_box_begin();
    before = real_allotd_held(&shared_box_allotd, 0);
    for (unsigned round = 0; round < 2; round++) {
        struct runner small, large;
        struct gpu_fixture fixture;
        uint64_t begun;

        open_session(&fixture);
        small = runner_line(&fixture, "Next", VALUE);
        large = runner_line(&fixture, "Next", 4 * VALUE);
        runner_check(&small);
        kill(shared_box_allotd.pid, SIGSTOP);
        if (round == 1) {
            runner_begin(&large, 20000);
            runner_await(&large, -ETIMEDOUT);
        }
        begun = clock_usec(CLOCK_MONOTONIC);
        gpu_fixture_session_close(&fixture);
        ck_assert_uint_lt(clock_usec(CLOCK_MONOTONIC) - begun, KEPT_USEC);
        kill(shared_box_allotd.pid, SIGCONT);
        runner_done(&small);
        runner_done(&large);
        while (real_allotd_held(&shared_box_allotd, 0) != before)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    shared_box_end();
}
END_TEST

/* A run waits for it as long as for a daemon that is away, not for both times in a row. */
START_TEST(a_daemon_that_hangs_is_waited_for_as_one_that_is_away) {
    shared_box_begin();
    for (unsigned round = 0; round < 2; round++) {
        struct runner runner;
        struct gpu_fixture fixture;
        uint64_t begun;

        open_session_of(&fixture, (struct gpus_options){ .no_wait = round == 0,
                                                         .wait_usec = round == 0 ? 0 : 1000000 });
        check_books(&fixture, NULL);
        runner = runner_line(&fixture, "Next", VALUE);
        kill(shared_box_allotd.pid, SIGSTOP);
        begun = clock_usec(CLOCK_MONOTONIC);
        runner_begin(&runner, 0);
        runner_await(&runner, -ENOMEM);
        ck_assert_uint_lt(runner.ended_usec - begun, round == 0 ? KEPT_USEC : 2000000);
        ck_assert_msg(strstr(runner.err.text, "does not answer"), "%s", runner.err.text);
        kill(shared_box_allotd.pid, SIGCONT);
        runner_check(&runner);
        check_books(&fixture, NULL);
        runner_done(&runner);
        gpu_fixture_session_close(&fixture);
    }
    shared_box_end();
}
END_TEST

/* A session that is made on a thread of its own. */
struct opener {
    struct engine_options options;
    struct allot_graph *graph;
    struct engine *engine;
    struct allot_error err;
    uint64_t begun_usec, took_usec;
    pthread_t thread;
    int r;
};

static void *open_one(void *argument) {
    struct opener *opener = argument;

    opener->r = engine_new(&opener->engine, opener->graph, &opener->options, &opener->err);
    opener->took_usec = clock_usec(CLOCK_MONOTONIC) - opener->begun_usec;
    return NULL;
}

static void opener_begin(struct opener *opener, bool no_wait, uint64_t wait_usec) {
    *opener = (struct opener){ .options = { .inter_threads = 1, .intra_threads = 1 } };
    opener->options.gpus = (struct gpus_options){ .no_wait = no_wait, .wait_usec = wait_usec };
    ck_assert_int_eq(graph_new(&opener->graph), 0);
    opener->begun_usec = clock_usec(CLOCK_MONOTONIC);
    ck_assert_int_eq(pthread_create(&opener->thread, NULL, open_one, opener), 0);
}

/* It is not made: least of all with GPUs that others may have leases on. */
static void opener_fails(struct opener *opener, uint64_t most_usec) {
    ck_assert_int_eq(pthread_join(opener->thread, NULL), 0);
    ck_assert_msg(opener->r == -ENOTCONN, "%d: %s", opener->r, opener->err.text);
    ck_assert_msg(strstr(opener->err.text, "does not answer"), "%s", opener->err.text);
    ck_assert_uint_lt(opener->took_usec, most_usec);
    graph_unref(opener->graph);
}

START_TEST(a_daemon_that_hangs_keeps_no_new_session) {
    struct opener opener;
    struct gpu_fixture fixture;

    shared_box_begin();
    for (unsigned round = 0; round < 2; round++) {
        kill(shared_box_allotd.pid, SIGSTOP);
        opener_begin(&opener, round == 0, round == 0 ? 0 : 1000000);
        opener_fails(&opener, KEPT_USEC);
        kill(shared_box_allotd.pid, SIGCONT);
        real_allotd_await_leases(&shared_box_allotd, 0);
    }
    open_session(&fixture);
    gpu_fixture_session_close(&fixture);
    shared_box_end();
}
END_TEST

/* Nor does the process of a job, whose lease exists. */
START_TEST(a_daemon_that_hangs_keeps_no_new_session_of_a_job) {
    struct allot_lease_options options = ALLOT_LEASE_OPTIONS_INIT;
    struct allot_lease *lease;
    struct opener opener;
    struct gpu_fixture fixture;

    shared_box_begin();
    options.amount.mode = ALLOT_LEASE_GROW;
    ck_assert_int_eq(allot_lease_acquire(&lease, &options, NULL), 0);
    for (size_t i = 0;; i++) {
        const char *name, *value;

        if (allot_lease_environment(lease, i, &name, &value) < 0)
            break;
        setenv(name, value, 1);
    }
    kill(shared_box_allotd.pid, SIGSTOP);
    opener_begin(&opener, true, 0);
    opener_fails(&opener, KEPT_USEC);
    kill(shared_box_allotd.pid, SIGCONT);
    open_session(&fixture);
    gpu_fixture_session_close(&fixture);
    allot_lease_free(lease);
    shared_box_end();
}
END_TEST

START_TEST(a_daemon_that_hangs_keeps_no_new_session_in_line) {
    const uint64_t wait_usec = 1000000;
    struct allot_lease *filler;
    struct opener opener;

    shared_box_begin();
    filler = real_allotd_fill(&shared_box_allotd, 0);
    opener_begin(&opener, false, wait_usec);
    real_allotd_await_waiting(&shared_box_allotd, 1);
    kill(shared_box_allotd.pid, SIGSTOP);
    opener_fails(&opener, wait_usec + KEPT_USEC);
    kill(shared_box_allotd.pid, SIGCONT);
    real_allotd_await_leases(&shared_box_allotd, 1);
    real_allotd_await_waiting(&shared_box_allotd, 0);
    allot_lease_free(filler);
    shared_box_end();
}
END_TEST

struct asker {
    struct allot_lease_options options;
    struct allot_lease *lease;
    pthread_t thread;
    int r;
};

static void *ask(void *argument) {
    struct asker *asker = argument;

    asker->r = allot_lease_acquire(&asker->lease, &asker->options, NULL);
    return NULL;
}

/* A grant that no run waits for any more is given back: this process would keep it. */
START_TEST(a_grant_that_meets_a_cancellation_is_no_lease) {
    uint64_t seed = 5;
    unsigned n_cancelled = 0;

    shared_box_begin();
    for (unsigned round = 0; round < 200; round++) {
        struct asker asker = { .options = ALLOT_LEASE_OPTIONS_INIT };

        asker.options.amount.mode = ALLOT_LEASE_EXCLUSIVE;
        asker.options.cancel_fd = eventfd(0, EFD_CLOEXEC);
        ck_assert_int_eq(pthread_create(&asker.thread, NULL, ask, &asker), 0);
        for (uint64_t spin = random_next(&seed) % 1000000; spin > 0; spin--)
            __asm__ volatile("");
        ck_assert_int_eq(eventfd_write(asker.options.cancel_fd, 1), 0);
        ck_assert_int_eq(pthread_join(asker.thread, NULL), 0);
        ck_assert_msg(asker.r == 0 || asker.r == -ECANCELED, "%d", asker.r);
        n_cancelled += asker.r < 0;
        if (asker.r == 0) {
            ck_assert_int_eq(allot_lease_release(asker.lease, NULL), 0);
            allot_lease_free(asker.lease);
        }
        close(asker.options.cancel_fd);
        real_allotd_await_leases(&shared_box_allotd, 0);
    }
    ck_assert_uint_gt(n_cancelled, 0);
    shared_box_end();
}
END_TEST

/* No descriptor is left. */
static size_t take_descriptors(int *ret, size_t n) {
    size_t i = 0;

    while (i < n && (ret[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        i++;
    ck_assert(i < n && errno == EMFILE);
    return i;
}

static void give_descriptors(const int *fds, size_t n) {
    while (n > 0)
        close(fds[--n]);
}

START_TEST(without_descriptors_no_run_waits_and_nothing_is_lost) {
    static int fds[1 << 20];
    struct runner small, waiter;
    struct allot_lease *filler;
    struct gpu_memory_part part = { .bytes = 2 * MIB, .tag = "test" };
    uint32_t failed;
    struct gpu_fixture fixture;
    struct gpu *gpu;
    uint64_t gone;
    size_t n;

    shared_box_begin();
    open_session(&fixture);
    check_books(&fixture, NULL);
    gpu = fixture.engine->devices[1]->gpu;
    small = runner_line(&fixture, "Next", VALUE);
    waiter = runner_line(&fixture, "Next", 8 * VALUE);
    runner_check(&small);
    filler = real_allotd_fill(&shared_box_allotd, 0);
    n = take_descriptors(fds, ELEMENTSOF(fds));
    runner_begin(&waiter, 0);
    runner_await(&waiter, -ENOMEM);
    ck_assert_msg(strstr(waiter.err.text, "ulimit -n"), "%s", waiter.err.text);
    give_descriptors(fds, n);
    check_books(&fixture, filler);

    /* The lease's one connection is the waiter's, and there cannot be another. */
    runner_begin(&waiter, 0);
    real_allotd_await_waiting(&shared_box_allotd, 1);
    n = take_descriptors(fds, ELEMENTSOF(fds));
    arena_trim(gpu->arena, 0, &gone);
    ck_assert_uint_gt(gone, 2 * MIB);
    ck_assert_int_eq(gpu_memory_alloc_all(gpu, &part, 1, NULL, NULL, NULL, &failed, NULL), 0);
    gpu_memory_dealloc(gpu, part.block.handle);
    give_descriptors(fds, n);
    runner_cancel(&waiter);
    real_allotd_await_waiting(&shared_box_allotd, 0);
    check_books(&fixture, filler);
    runner_done(&small);
    runner_done(&waiter);
    gpu_fixture_session_close(&fixture);
    allot_lease_free(filler);
    shared_box_end();
}
END_TEST

SUITE_TIMEOUT("hang-gpu", 120, a_daemon_that_hangs_keeps_no_run,
              a_daemon_that_hangs_keeps_no_run_that_gives_back,
              a_daemon_that_hangs_keeps_no_session_that_ends,
              a_daemon_that_hangs_is_waited_for_as_one_that_is_away,
              a_daemon_that_hangs_keeps_no_new_session,
              a_daemon_that_hangs_keeps_no_new_session_of_a_job,
              a_daemon_that_hangs_keeps_no_new_session_in_line,
              a_grant_that_meets_a_cancellation_is_no_lease,
              without_descriptors_no_run_waits_and_nothing_is_lost)
