/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs that wait for memory of a GPU which somebody else has, with a real allotd on a simulated
 * box: what ends the wait, and who does not wait with them.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "allocator/allocator.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/random.h"
#include "libclient/allot/lease.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/gpu_memory.h"
#include "libclient/exec/cancel.h"
#include "tests/support/gpubench.h"
#include "tests/support/realallotd.h"
#include "tests/support/suite.h"

enum { MIB = 1 << 20, VALUE = 4 * MIB, COUNT = VALUE / 4 };
/* What is at once on a machine that others use, too; the waits themselves have no end. */
#define SOON_USEC UINT64_C(5000000)
/* A daemon that does not answer hangs after two seconds: less than that, and more. */
#define STOPPED_USEC UINT64_C(1500000)
#define KEPT_USEC    UINT64_C(3500000)

static struct realallotd allotd;
static struct bench box; /* no session of its own */

static void open_session_of(struct bench *bench, struct gpus_options gpus) {
    struct engine_options options = {
        .inter_threads = 2, .intra_threads = 1, .gpus = gpus, .seed = 5
    };
    int r;

    *bench = (struct bench){ 0 };
    ck_assert_int_eq(graph_new(&bench->graph), 0);
    r = engine_new(&bench->engine, bench->graph, &options, &bench->err);
    ck_assert_msg(r == 0, "%s", bench->err.text);
    ck_assert_uint_eq(bench->engine->n_devices, 1 + MAX(gpus.n_gpus, 1u));
}

static void open_session_on(struct bench *bench, uint32_t n_gpus) {
    open_session_of(bench, (struct gpus_options){ .n_gpus = n_gpus });
}

static void open_session(struct bench *bench) {
    open_session_on(bench, 1);
}

static void setup(void) {
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    bench_open(&box, SIM_LIB_DIR);
    realallotd_start(&allotd, &box.box, ALLOTD);
}

static void teardown(void) {
    realallotd_stop(&allotd);
    bench_close(&box);
}

/* The daemon's books and the process's agree: what the arena has, and the context. */
static void check_books(const struct bench *bench, struct allot_lease *filler) {
    static uint64_t context_bytes;
    struct arena_stats stats;
    uint64_t held = realallotd_held(&allotd, filler ? allot_lease_id(filler) : 0);

    arena_get_stats(bench->engine->devices[1]->gpu->arena, &stats);
    if (stats.reserved_bytes == 0)
        context_bytes = held;
    ck_assert_uint_eq(held, stats.reserved_bytes + context_bytes);
}

/* ---- Runs on threads of their own --------------------------------------------------------------
 */

struct runner {
    struct bench *bench;
    struct edge x, y;
    uint32_t target; /* instead of `y`, where `has_target` */
    bool has_target;
    struct allot_tensor *fed;
    struct cancel cancel;
    struct engine_run run;
    struct allot_error err;
    uint64_t ended_usec;
    pthread_t thread;
    int r;
};

static void *run(void *userdata) {
    struct runner *runner = userdata;
    struct engine_call call = { &runner->x,          runner->fed ? 1 : 0, &runner->y,
                                !runner->has_target, &runner->target,     runner->has_target };
    struct allot_tensor *tensor = NULL;

    runner->r =
        engine_run(runner->bench->engine, &call, &runner->run, &runner->fed, &tensor, &runner->err);
    runner->ended_usec = clock_usec(CLOCK_MONOTONIC);
    allot_tensor_unref(tensor);
    return NULL;
}

static void begin(struct runner *runner, uint64_t timeout_usec) {
    cancel_init(&runner->cancel);
    runner->run = (struct engine_run){ .cancel = &runner->cancel, .timeout_usec = timeout_usec };
    runner->err = (struct allot_error){ 0 };
    ck_assert_int_eq(pthread_create(&runner->thread, NULL, run, runner), 0);
}

static void await(struct runner *runner, int expected) {
    ck_assert_int_eq(pthread_join(runner->thread, NULL), 0);
    ck_assert_msg(runner->r == expected, "%d: %s", runner->r, runner->err.text);
    cancel_done(&runner->cancel);
}

static void check(struct runner *runner) {
    begin(runner, 0);
    await(runner, 0);
}

static void give_and_await(struct runner *runner) {
    uint64_t given = clock_usec(CLOCK_MONOTONIC);

    cancel_give(&runner->cancel);
    await(runner, -ECANCELED);
    ck_assert_uint_lt(runner->ended_usec - given, SOON_USEC);
}

/* Step memory of `bytes`. */
static struct runner line(struct bench *bench, const char *op, int64_t bytes) {
    struct edge x = source(bench, "Placeholder", NULL, bytes / 4);
    struct edge held = one_op(bench, op, "/gpu:0", x);

    return (struct runner){
        .bench = bench, .x = x, .y = next(bench, "/gpu:0", held), .fed = numbers(bytes / 4)
    };
}

static struct runner constant(struct bench *bench, int64_t bytes) {
    struct allot_tensor *tensor = numbers(bytes / 4);
    struct build build = { bench->graph, &bench->err, 0 };
    struct edge x = build_const(&build, tensor);

    ck_assert_int_eq(build.r, 0);
    allot_tensor_unref(tensor);
    return (struct runner){ .bench = bench, .x = x, .y = next(bench, "/gpu:0", x) };
}

static void runner_done(struct runner *runner) {
    allot_tensor_unref(runner->fed);
}

/* ---- Tests -------------------------------------------------------------------------------------
 */

START_TEST(a_cancellation_ends_a_wait_for_step_memory) {
    struct allot_lease *filler;
    struct runner runner;
    struct bench bench;

    setup();
    open_session(&bench);
    check_books(&bench, NULL);
    runner = line(&bench, "Next", VALUE);
    filler = realallotd_fill(&allotd, 0);
    for (int round = 0; round < 3; round++) {
        begin(&runner, 0);
        realallotd_await_waiting(&allotd, 1);
        give_and_await(&runner);
        ck_assert_msg(strstr(runner.err.text, "the run was cancelled: 'Placeholder"), "%s",
                      runner.err.text);
        ck_assert_msg(strstr(runner.err.text, "4 MiB"), "%s", runner.err.text);
        /* The daemon has forgotten it, and nobody holds what was not used. */
        realallotd_await_waiting(&allotd, 0);
        check_books(&bench, filler);
    }
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, VALUE, NULL), 0);
    check(&runner);
    check_books(&bench, filler);
    runner_done(&runner);
    session_close(&bench);
    allot_lease_free(filler);
    teardown();
}
END_TEST

START_TEST(constants_are_waited_for_beside_other_runs) {
    struct runner constants, again, host;
    struct allot_lease *filler;
    struct bench bench;

    setup();
    open_session(&bench);
    check_books(&bench, NULL);
    constants = constant(&bench, VALUE);
    again = constants;
    host = line(&bench, "Next", 4096);
    host.y = next(&bench, "/cpu:0", host.x);
    filler = realallotd_fill(&allotd, 0);
    begin(&constants, 0);
    realallotd_await_waiting(&allotd, 1);
    /* One that has to be planned, and needs nothing of the GPU; and one that needs the same plan.
     */
    check(&host);
    begin(&again, 20000);
    await(&again, -ETIMEDOUT);
    begin(&again, 0);
    give_and_await(&again);
    ck_assert_uint_eq(realallotd_held(&allotd, allot_lease_id(filler)) > 0, 1);
    give_and_await(&constants);
    ck_assert_msg(strstr(constants.err.text, "the run was cancelled: 'Const"), "%s",
                  constants.err.text);
    ck_assert_msg(strstr(constants.err.text, "4 MiB"), "%s", constants.err.text);
    realallotd_await_waiting(&allotd, 0);
    check_books(&bench, filler);

    begin(&constants, 50000);
    await(&constants, -ETIMEDOUT);
    ck_assert_msg(strstr(constants.err.text, "took longer than 50000 us: 'Const"), "%s",
                  constants.err.text);
    ck_assert_msg(strstr(constants.err.text, "4 MiB"), "%s", constants.err.text);

    /* Two at once: one brings them for both. */
    begin(&constants, 0);
    begin(&again, 0);
    realallotd_await_waiting(&allotd, 1);
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, 4 * VALUE, NULL), 0);
    await(&constants, 0);
    await(&again, 0);
    check_books(&bench, filler);
    runner_done(&host);
    session_close(&bench);
    allot_lease_free(filler);
    teardown();
}
END_TEST

/* Wait until a Hold has begun. */
static void await_held(unsigned n) {
    while (atomic_load(&gpubench_n_held) < n)
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}

/* What another session of the process has used becomes idle: enough by itself, or not quite. */
START_TEST(memory_that_becomes_idle_in_the_process_ends_a_wait) {
    setup();
    for (unsigned round = 0; round < 2; round++) {
        struct runner waiter, holder;
        struct bench mine, theirs;
        struct allot_lease *filler;

        open_session(&mine);
        check_books(&mine, NULL);
        open_session(&theirs);
        waiter = line(&mine, "Next", round ? 3 * VALUE : VALUE);
        holder = line(&theirs, "Hold", VALUE);
        begin(&holder, 0);
        await_held(round + 1);
        /* In the second round what the daemon has left is not enough without it. */
        filler = realallotd_fill(&allotd, round ? VALUE : 0);
        begin(&waiter, 0);
        realallotd_await_waiting(&allotd, 1);
        sem_post(&gpubench_let_go);
        await(&holder, 0);
        await(&waiter, 0);
        realallotd_await_waiting(&allotd, 0);
        check_books(&mine, filler);
        runner_done(&waiter);
        runner_done(&holder);
        session_close(&mine);
        session_close(&theirs);
        allot_lease_free(filler);
    }
    teardown();
}
END_TEST

/* Its session does not run again. */
START_TEST(what_a_stopped_run_left_is_had_when_the_gpu_is_through) {
    setup();
    for (unsigned round = 0; round < 2; round++) {
        struct runner waiter, holder;
        struct bench mine, theirs;
        struct allot_lease *filler;

        open_session(&mine);
        check_books(&mine, NULL);
        open_session(&theirs);
        waiter = line(&mine, "Next", VALUE);
        holder = line(&theirs, "Hold", VALUE);
        begin(&holder, 0);
        await_held(round + 1);
        give_and_await(&holder);
        filler = realallotd_fill(&allotd, 0);
        if (round == 0) {
            begin(&waiter, 0);
            realallotd_await_waiting(&allotd, 1);
            sem_post(&gpubench_let_go);
            await(&waiter, 0);
        } else {
            sem_post(&gpubench_let_go);
            check(&waiter);
        }
        realallotd_await_waiting(&allotd, 0);
        check_books(&mine, filler);
        runner_done(&waiter);
        runner_done(&holder);
        session_close(&mine);
        session_close(&theirs);
        allot_lease_free(filler);
    }
    teardown();
}
END_TEST

/* Who writes a variable may need new bytes for it: those who read it do not wait with it. */
START_TEST(a_variable_is_read_while_a_write_waits_for_memory) {
    struct runner put, read, peek;
    struct allot_lease *filler;
    struct bench bench;
    struct edge v;

    setup();
    open_session(&bench);
    check_books(&bench, NULL);
    put = (struct runner){ .bench = &bench, .has_target = true, .fed = numbers(COUNT) };
    put.x = source(&bench, "Placeholder", NULL, COUNT);
    v = source(&bench, "Variable", "/gpu:0", COUNT);
    put.target = add(&bench, "Put", NULL, (struct edge[]){ v, put.x }, 2, NULL, 0);
    read = (struct runner){ .bench = &bench, .y = v };
    check(&put);
    check(&read);
    /* A reader that is held on the GPU has the old bytes. */
    peek = (struct runner){ .bench = &bench, .y = one_op(&bench, "Hold", "/gpu:0", v) };
    begin(&peek, 0);
    await_held(1);
    filler = realallotd_fill(&allotd, 0);
    begin(&put, 0);
    realallotd_await_waiting(&allotd, 1);
    check(&read);
    give_and_await(&put);
    ck_assert_msg(strstr(put.err.text, "'Put"), "%s", put.err.text);
    ck_assert_msg(strstr(put.err.text, "4 MiB"), "%s", put.err.text);
    sem_post(&gpubench_let_go);
    await(&peek, 0);
    check_run(&bench, v, NULL, v, 0);
    runner_done(&put);
    session_close(&bench);
    allot_lease_free(filler);
    teardown();
}
END_TEST

/* One that hangs answers neither yes nor no: limits and cancellations are heard all the same. */
START_TEST(a_daemon_that_hangs_keeps_no_run) {
    struct runner runner, again;
    struct bench bench;
    uint64_t begun;

    setup();
    open_session(&bench);
    check_books(&bench, NULL);
    runner = again = line(&bench, "Next", VALUE);
    kill(allotd.pid, SIGSTOP);
    begun = clock_usec(CLOCK_MONOTONIC);
    begin(&runner, 20000);
    await(&runner, -ETIMEDOUT);
    ck_assert_uint_lt(runner.ended_usec - begun, SOON_USEC);
    begin(&runner, 0);
    begin(&again, 20000);
    await(&again, -ETIMEDOUT);
    give_and_await(&runner);
    ck_assert_msg(strstr(runner.err.text, "4 MiB"), "%s", runner.err.text);
    kill(allotd.pid, SIGCONT);
    check(&runner);
    check_books(&bench, NULL);
    runner_done(&runner);
    session_close(&bench);
    teardown();
}
END_TEST

/* Who waits in line, and has something to give back meanwhile, is heard and kept to its limit. */
START_TEST(a_daemon_that_hangs_keeps_no_run_that_gives_back) {
    setup();
    for (unsigned round = 0; round < 4; round++) {
        const uint64_t limit_usec = round % 2 ? 1000000 : 0;
        struct runner waiter, holder;
        struct bench mine, theirs;
        struct allot_lease *filler;
        uint64_t begun;

        open_session(&mine);
        check_books(&mine, NULL);
        open_session(&theirs);
        waiter = line(&mine, "Next", 3 * VALUE);
        holder = line(&theirs, "Hold", VALUE);
        begin(&holder, 0);
        await_held(round + 1);
        filler = realallotd_fill(&allotd, 0);
        begun = clock_usec(CLOCK_MONOTONIC);
        begin(&waiter, limit_usec);
        realallotd_await_waiting(&allotd, 1);
        kill(allotd.pid, SIGSTOP);
        sem_post(&gpubench_let_go);
        await(&holder, 0);
        begun = limit_usec ? begun : clock_usec(CLOCK_MONOTONIC);
        if (!limit_usec)
            cancel_give(&waiter.cancel);
        await(&waiter, limit_usec ? -ETIMEDOUT : -ECANCELED);
        ck_assert_uint_lt(waiter.ended_usec - begun, limit_usec + STOPPED_USEC);
        kill(allotd.pid, SIGCONT);
        /* All that was given back is told: it is enough for who needs no more. */
        allot_lease_free(filler);
        check(&waiter);
        check_books(&mine, NULL);
        runner_done(&waiter);
        runner_done(&holder);
        session_close(&mine);
        session_close(&theirs);
    }
    teardown();
}
END_TEST

/* With what it held a moment before, and with the word of that on its way. */
START_TEST(a_daemon_that_hangs_keeps_no_session_that_ends) {
    uint64_t before;

    setup();
    before = realallotd_held(&allotd, 0);
    for (unsigned round = 0; round < 2; round++) {
        struct runner small, large;
        struct bench bench;
        uint64_t begun;

        open_session(&bench);
        small = line(&bench, "Next", VALUE);
        large = line(&bench, "Next", 4 * VALUE);
        check(&small);
        kill(allotd.pid, SIGSTOP);
        if (round == 1) {
            begin(&large, 20000);
            await(&large, -ETIMEDOUT);
        }
        begun = clock_usec(CLOCK_MONOTONIC);
        session_close(&bench);
        ck_assert_uint_lt(clock_usec(CLOCK_MONOTONIC) - begun, KEPT_USEC);
        kill(allotd.pid, SIGCONT);
        runner_done(&small);
        runner_done(&large);
        while (realallotd_held(&allotd, 0) != before)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    teardown();
}
END_TEST

/* As long as a daemon that is away, and not first the one and then the other. */
START_TEST(a_daemon_that_hangs_is_waited_for_as_one_that_is_away) {
    setup();
    for (unsigned round = 0; round < 2; round++) {
        struct runner runner;
        struct bench bench;
        uint64_t begun;

        open_session_of(&bench, (struct gpus_options){ .no_wait = round == 0,
                                                       .wait_usec = round == 0 ? 0 : 1000000 });
        check_books(&bench, NULL);
        runner = line(&bench, "Next", VALUE);
        kill(allotd.pid, SIGSTOP);
        begun = clock_usec(CLOCK_MONOTONIC);
        begin(&runner, 0);
        await(&runner, -ENOMEM);
        ck_assert_uint_lt(runner.ended_usec - begun, round == 0 ? KEPT_USEC : 2000000);
        ck_assert_msg(strstr(runner.err.text, "does not answer"), "%s", runner.err.text);
        kill(allotd.pid, SIGCONT);
        check(&runner);
        check_books(&bench, NULL);
        runner_done(&runner);
        session_close(&bench);
    }
    teardown();
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

START_TEST(without_descriptors_nobody_waits_and_nothing_is_lost) {
    static int fds[1 << 20];
    struct runner small, waiter;
    struct allot_lease *filler;
    struct arena_block block;
    struct bench bench;
    struct gpu *gpu;
    uint64_t gone;
    size_t n;

    setup();
    open_session(&bench);
    check_books(&bench, NULL);
    gpu = bench.engine->devices[1]->gpu;
    small = line(&bench, "Next", VALUE);
    waiter = line(&bench, "Next", 8 * VALUE);
    check(&small);
    filler = realallotd_fill(&allotd, 0);
    n = take_descriptors(fds, ELEMENTSOF(fds));
    begin(&waiter, 0);
    await(&waiter, -ENOMEM);
    ck_assert_msg(strstr(waiter.err.text, "ulimit -n"), "%s", waiter.err.text);
    give_descriptors(fds, n);
    check_books(&bench, filler);

    /* The lease's one connection is the waiter's, and there cannot be another. */
    begin(&waiter, 0);
    realallotd_await_waiting(&allotd, 1);
    n = take_descriptors(fds, ELEMENTSOF(fds));
    arena_trim(gpu->arena, 0, &gone);
    ck_assert_uint_gt(gone, 2 * MIB);
    ck_assert_int_eq(gpu_memory_alloc(gpu, 2 * MIB, "test", NULL, &block, NULL), 0);
    gpu_memory_dealloc(gpu, block.handle);
    give_descriptors(fds, n);
    give_and_await(&waiter);
    realallotd_await_waiting(&allotd, 0);
    check_books(&bench, filler);
    runner_done(&small);
    runner_done(&waiter);
    session_close(&bench);
    allot_lease_free(filler);
    teardown();
}
END_TEST

/* Whoever comes first: nothing is lost, and nothing kept that nobody uses. */
START_TEST(a_grant_that_meets_a_cancellation_leaks_nothing) {
    struct allot_lease *filler;
    struct bench bench;
    uint64_t seed = 11;
    int64_t bytes = 2 * MIB;

    setup();
    open_session(&bench);
    check_books(&bench, NULL);
    filler = realallotd_fill(&allotd, 0);
    for (int round = 0; round < 24; round++) {
        /* More than all that the runs before have left idle. */
        struct runner runner = line(&bench, "Next", bytes);

        begin(&runner, 0);
        realallotd_await_waiting(&allotd, 1);
        if (random_next(&seed) % 2)
            cancel_give(&runner.cancel);
        ck_assert_int_eq(allot_lease_shrink(filler, NULL, 2 * MIB, NULL), 0);
        for (uint64_t spin = random_next(&seed) % 100000; spin > 0; spin--)
            __asm__ volatile("");
        cancel_give(&runner.cancel);
        ck_assert_int_eq(pthread_join(runner.thread, NULL), 0);
        ck_assert_msg(runner.r == 0 || runner.r == -ECANCELED, "%d: %s", runner.r, runner.err.text);
        cancel_done(&runner.cancel);
        realallotd_await_waiting(&allotd, 0);
        check_books(&bench, filler);
        runner_done(&runner);
        /* Whether it ran or not, it may have grown. */
        if (allot_lease_grow(filler, NULL, 2 * MIB, 0, NULL) < 0)
            bytes += 2 * MIB;
    }
    session_close(&bench);
    allot_lease_free(filler);
    teardown();
}
END_TEST

/* What a run needs is its constants and its step memory; it has both or waits with neither. */
START_TEST(runs_that_fit_one_by_one_get_through_one_by_one) {
    struct runner runners[2];
    struct bench benches[2];
    struct allot_lease *filler;
    uint64_t given;

    setup();
    for (int i = 0; i < 2; i++) {
        open_session(&benches[i]);
        runners[i] = constant(&benches[i], 4 * VALUE);
    }
    check_books(&benches[0], NULL);
    filler = realallotd_fill(&allotd, 0);
    for (int i = 0; i < 2; i++) {
        begin(&runners[i], 4 * SOON_USEC);
        realallotd_await_waiting(&allotd, i + 1);
    }
    /* The constants of one, those of the other, and half of what is then still needed. */
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, 4 * VALUE, NULL), 0);
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, 4 * VALUE, NULL), 0);
    ck_assert_int_eq(allot_lease_shrink(filler, NULL, 2 * VALUE, NULL), 0);
    given = clock_usec(CLOCK_MONOTONIC);
    for (int i = 0; i < 2; i++) {
        await(&runners[i], 0);
        ck_assert_uint_lt(runners[i].ended_usec - given, SOON_USEC);
    }
    realallotd_await_waiting(&allotd, 0);
    check_books(&benches[0], filler);
    for (int i = 0; i < 2; i++)
        session_close(&benches[i]);
    allot_lease_free(filler);
    teardown();
}
END_TEST

/* Constants that are there from a run before are no more held than others. */
START_TEST(constants_that_nobody_uses_are_not_held_by_a_run_that_waits) {
    struct runner constants, put, small;
    struct bench mine, theirs, others;
    struct allot_lease *filler;
    struct edge v;

    setup();
    open_session(&mine);
    open_session(&theirs);
    open_session(&others);
    check_books(&mine, NULL);
    constants = constant(&mine, 4 * VALUE);
    put = (struct runner){ .bench = &theirs, .has_target = true, .fed = numbers(3 * COUNT) };
    put.x = source(&theirs, "Placeholder", NULL, 3 * COUNT);
    v = source(&theirs, "Variable", "/gpu:0", 3 * COUNT);
    put.target = add(&theirs, "Put", NULL, (struct edge[]){ v, put.x }, 2, NULL, 0);
    small = line(&others, "Next", 4 * VALUE);
    filler = realallotd_fill(&allotd, 10 * VALUE);
    check(&constants);
    /* Its constants stay, its step memory does not; and the variable leaves too little. */
    check(&put);
    begin(&constants, 0);
    realallotd_await_waiting(&allotd, 1);
    begin(&small, 4 * SOON_USEC);
    await(&small, 0);
    realallotd_await_waiting(&allotd, 1);
    session_close(&theirs);
    await(&constants, 0);
    realallotd_await_waiting(&allotd, 0);
    check_books(&mine, filler);
    runner_done(&put);
    runner_done(&small);
    session_close(&mine);
    session_close(&others);
    allot_lease_free(filler);
    teardown();
}
END_TEST

/* Nor is memory of one GPU while that of another is waited for. */
START_TEST(a_run_on_two_gpus_holds_neither_while_it_waits_for_the_other) {
    struct allot_lease *fillers[2];
    struct runner both, one;
    struct bench bench;

    setup();
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    open_session_on(&bench, 2);
    both = line(&bench, "Next", 4 * VALUE);
    both.y = next(&bench, "/gpu:1", both.y);
    one = line(&bench, "Next", 4 * VALUE);
    for (unsigned i = 0; i < 2; i++)
        fillers[i] = realallotd_fill_gpu(&allotd, i, 0);
    begin(&both, 0);
    realallotd_await_waiting(&allotd, 1);
    ck_assert_int_eq(allot_lease_shrink(fillers[0], NULL, 4 * VALUE, NULL), 0);
    begin(&one, 4 * SOON_USEC);
    await(&one, 0);
    realallotd_await_waiting(&allotd, 1);
    ck_assert_int_eq(allot_lease_shrink(fillers[1], NULL, 4 * VALUE, NULL), 0);
    await(&both, 0);
    realallotd_await_waiting(&allotd, 0);
    runner_done(&both);
    runner_done(&one);
    session_close(&bench);
    for (unsigned i = 0; i < 2; i++)
        allot_lease_free(fillers[i]);
    teardown();
}
END_TEST

/* Many at once, where there is room for the largest alone, and some need both GPUs. */
enum { N_CROWD = 6, N_ROUNDS = 4, BIT = 2 * MIB };

static void *run_again_and_again(void *userdata) {
    struct runner *runner = userdata;

    for (int i = 0; i < N_ROUNDS; i++) {
        check(&runner[0]);
        check(&runner[1]);
    }
    return NULL;
}

START_TEST(a_crowd_gets_through) {
    struct runner runners[N_CROWD][2];
    struct bench benches[N_CROWD];
    struct allot_lease *fillers[2];
    pthread_t threads[N_CROWD];

    setup();
    setenv("CUDA_VISIBLE_DEVICES", "0,1", 1);
    for (int i = 0; i < N_CROWD; i++) {
        const char *other = i % 2 ? "/gpu:1" : "/gpu:0";

        open_session_on(&benches[i], 2);
        runners[i][0] = constant(&benches[i], 2 * BIT);
        if (i % 3 == 0)
            runners[i][0].y = next(&benches[i], "/gpu:1", runners[i][0].y);
        runners[i][1] = line(&benches[i], "Next", (i % 3 + 1) * BIT);
        runners[i][1].y = next(&benches[i], other, runners[i][1].y);
    }
    for (unsigned i = 0; i < 2; i++)
        fillers[i] = realallotd_fill_gpu(&allotd, i, i ? 4 * BIT : 5 * BIT);
    for (int i = 0; i < N_CROWD; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, run_again_and_again, runners[i]), 0);
    for (int i = 0; i < N_CROWD; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    realallotd_await_waiting(&allotd, 0);
    for (int i = 0; i < N_CROWD; i++) {
        runner_done(&runners[i][1]);
        session_close(&benches[i]);
    }
    for (unsigned i = 0; i < 2; i++)
        allot_lease_free(fillers[i]);
    teardown();
}
END_TEST

SUITE_TIMEOUT("wait-gpu", 120, a_cancellation_ends_a_wait_for_step_memory,
              constants_are_waited_for_beside_other_runs,
              memory_that_becomes_idle_in_the_process_ends_a_wait,
              what_a_stopped_run_left_is_had_when_the_gpu_is_through,
              a_variable_is_read_while_a_write_waits_for_memory, a_daemon_that_hangs_keeps_no_run,
              a_daemon_that_hangs_keeps_no_run_that_gives_back,
              a_daemon_that_hangs_keeps_no_session_that_ends,
              a_daemon_that_hangs_is_waited_for_as_one_that_is_away,
              without_descriptors_nobody_waits_and_nothing_is_lost,
              a_grant_that_meets_a_cancellation_leaks_nothing,
              runs_that_fit_one_by_one_get_through_one_by_one,
              constants_that_nobody_uses_are_not_held_by_a_run_that_waits,
              a_run_on_two_gpus_holds_neither_while_it_waits_for_the_other, a_crowd_gets_through)
