/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs on GPUs of a simulated box that are stopped: by a time limit or a cancellation, while a
 * kernel is under way that ends only when the test lets it. They return at once, and nothing that
 * the GPU still works on is touched.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/arena.h"
#include "base/clock.h"
#include "libclient/core/buffer.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/stop/cancel.h"
#include "tests/support/libclient/exec/engine/gpu_fixture.h"
#include "tests/support/suite.h"

enum { COUNT = 30000, LIMIT_USEC = 20000, WALK_ROUNDS = 12 };

static void pause_usec(long usec) {
    struct timespec pause = { usec / 1000000, usec % 1000000 * 1000 };

    nanosleep(&pause, NULL);
}

struct canceller {
    struct cancel cancel;
    long usec;
    pthread_t thread;
};

static void *cancel_later(void *userdata) {
    struct canceller *canceller = userdata;

    pause_usec(canceller->usec);
    cancel_give(&canceller->cancel);
    return NULL;
}

static void canceller_begin(struct canceller *canceller, long usec) {
    cancel_init(&canceller->cancel);
    canceller->usec = usec;
    ck_assert_int_eq(pthread_create(&canceller->thread, NULL, cancel_later, canceller), 0);
}

static void canceller_end(struct canceller *canceller) {
    pthread_join(canceller->thread, NULL);
    cancel_done(&canceller->cancel);
}

/* Kinds of graphs in which something waits for a GPU at another point. */
enum { FETCHES, TARGETS_ONLY, GOES_ON_AT_THE_HOST, GOES_ON_AT_ANOTHER, N_SHAPES };

struct held {
    struct edge x, y;
    float plus;
    int shape;
};

static void held_make(struct gpu_fixture *fixture, struct held *held, int shape) {
    held->shape = shape;
    held->x = source(fixture, "Placeholder", NULL, COUNT);
    held->y = next(fixture, "/gpu:0", one_op(fixture, "Hold", "/gpu:0", held->x));
    held->plus = 2;
    if (shape < GOES_ON_AT_THE_HOST)
        return;
    held->y = next(fixture, shape == GOES_ON_AT_THE_HOST ? "/cpu:0" : "/gpu:1", held->y);
    held->y = next(fixture, "/gpu:0", held->y);
    held->plus = 4;
}

static int held_run(struct gpu_fixture *fixture, const struct held *held, struct engine_run *run,
                    struct allot_tensor *fed) {
    bool fetches = held->shape != TARGETS_ONLY;
    struct engine_call call = { &held->x, 1, &held->y, fetches, &held->y.node, !fetches };
    struct allot_tensor *tensor = NULL;
    int r = engine_run(fixture->engine, &call, run, &fed, &tensor, &fixture->err);

    ck_assert_int_eq(tensor != NULL, r == 0 && fetches);
    allot_tensor_unref(tensor);
    return r;
}

/* A run that is not held, or that was let go already, goes well. */
static void held_check(struct gpu_fixture *fixture, const struct held *held) {
    struct allot_tensor *fed = numbers(COUNT);

    sem_post(&gpu_fixture_let_go);
    check_run(fixture, held->x, fed, held->y, held->plus);
    allot_tensor_unref(fed);
}

/* Leave a run on the GPU that is held there: one that is stopped before it came so far is no use.
 */
static void held_leave(struct gpu_fixture *fixture, const struct held *held,
                       struct allot_tensor *fed) {
    unsigned before = atomic_load(&gpu_fixture_n_held);
    struct engine_run run = { .timeout_usec = LIMIT_USEC };

    for (; atomic_load(&gpu_fixture_n_held) == before; run.timeout_usec *= 2)
        ck_assert_int_eq(held_run(fixture, held, &run, fed), -ETIMEDOUT);
}

static void check_stopped(struct gpu_fixture *fixture, const struct held *held, bool by_time) {
    struct allot_tensor *fed = numbers(COUNT);
    struct canceller canceller;
    struct engine_run run = { .timeout_usec = by_time ? LIMIT_USEC : 0,
                              .cancel = by_time ? NULL : &canceller.cancel };
    int r;

    /* On a busy machine an earlier run was stopped before it came to the GPU, and left its leave.
     */
    while (sem_trywait(&gpu_fixture_let_go) == 0)
        ;
    if (!by_time)
        canceller_begin(&canceller, LIMIT_USEC);
    /* Nothing lets it go: if the run waited for the GPU it would not come back. */
    r = held_run(fixture, held, &run, fed);
    ck_assert_msg(r == (by_time ? -ETIMEDOUT : -ECANCELED), "%d: %s", r, fixture->err.text);
    /* What it was fed with is the GPU's until it is done; the caller may let go of it. */
    memset(tensor_data(fed), 0xff, COUNT * sizeof(float));
    allot_tensor_unref(fed);
    if (!by_time)
        canceller_end(&canceller);
}

START_TEST(stopped_runs_do_not_wait_for_the_gpu) {
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 8; threads += threads < 3 ? 1 : 5)
        for (int shape = 0; shape < N_SHAPES; shape++) {
            struct held held;

            gpu_fixture_session_open(&fixture, threads);
            held_make(&fixture, &held, shape);
            held_check(&fixture, &held);
            for (int round = 0; round < 4; round++) {
                check_stopped(&fixture, &held, round % 2);
                sem_post(&gpu_fixture_let_go);
                held_check(&fixture, &held);
            }
            gpu_fixture_session_close(&fixture);
        }
    gpu_fixture_close(&fixture);
}
END_TEST

/* The next run is behind what is left on the GPU, and can be stopped there. */
START_TEST(a_run_behind_it_is_stopped_in_time_too) {
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct held held;

        gpu_fixture_session_open(&fixture, threads);
        held_make(&fixture, &held, FETCHES);
        check_stopped(&fixture, &held, true);
        check_stopped(&fixture, &held, true);
        check_stopped(&fixture, &held, false);
        sem_post(&gpu_fixture_let_go);
        held_check(&fixture, &held);
        gpu_fixture_session_close(&fixture);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

static uint64_t live_bytes(const struct gpu_fixture *fixture, int gpu) {
    struct arena_stats stats;

    arena_get_stats(fixture->engine->devices[1 + gpu]->gpu->arena, &stats);
    return stats.live_bytes;
}

/* Memory of a run that was stopped stays as it is until the GPU is through with it. */
START_TEST(what_the_gpu_works_on_is_kept) {
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct allot_tensor *fed = numbers(COUNT);
        struct engine_run run = { .timeout_usec = LIMIT_USEC };
        struct held held;
        uint64_t live;

        gpu_fixture_session_open(&fixture, threads);
        held_make(&fixture, &held, GOES_ON_AT_ANOTHER);
        held_leave(&fixture, &held, fed);
        live = live_bytes(&fixture, 0);
        ck_assert_uint_ge(live, COUNT * sizeof(float));
        ck_assert_uint_gt(atomic_load(&fed->refs), 1);
        /* Neither is it given to the next run, which has to wait. */
        ck_assert_int_eq(held_run(&fixture, &held, &run, fed), -ETIMEDOUT);
        ck_assert_uint_eq(live_bytes(&fixture, 0), live);
        sem_post(&gpu_fixture_let_go);
        held_check(&fixture, &held);
        ck_assert_uint_eq(atomic_load(&fed->refs), 1);
        ck_assert_uint_eq(live_bytes(&fixture, 0), live);
        gpu_fixture_session_close(&fixture);
        allot_tensor_unref(fed);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

static void *close_session(void *userdata) {
    gpu_fixture_session_close(userdata);
    return NULL;
}

START_TEST(a_session_ends_when_the_gpu_is_through) {
    struct gpu_fixture fixture;
    struct allot_tensor *fed = numbers(COUNT);
    struct held held;
    pthread_t thread;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    gpu_fixture_session_open(&fixture, 2);
    held_make(&fixture, &held, FETCHES);
    held_leave(&fixture, &held, fed);
    ck_assert_int_eq(pthread_create(&thread, NULL, close_session, &fixture), 0);
    pause_usec(50000);
    ck_assert_int_eq(pthread_tryjoin_np(thread, NULL), EBUSY);
    ck_assert_uint_gt(sim_box_used(&fixture.box, 0), 0);
    sem_post(&gpu_fixture_let_go);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(sim_box_used(&fixture.box, 0), 0);
    ck_assert_uint_eq(atomic_load(&fed->refs), 1);
    allot_tensor_unref(fed);
    gpu_fixture_close(&fixture);
}
END_TEST

/* Writes of variables that were queued are over before the next run looks. */
START_TEST(variables_are_whole_behind_a_stopped_run) {
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct allot_tensor *fed = numbers(COUNT), *tensor;
        struct edge x, v, y;
        uint32_t put[2];
        struct engine_run run = { 0 }, limited = { .timeout_usec = LIMIT_USEC };
        struct engine_call first = { &x, 1, NULL, 0, put, 1 },
                           second = { &x, 1, NULL, 0, put + 1, 1 },
                           read = { NULL, 0, &v, 1, NULL, 0 };
        float got;

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, COUNT);
        v = source(&fixture, "Variable", "/gpu:0", COUNT);
        put[0] = add(&fixture, "Put", NULL, (struct edge[]){ v, x }, 2, NULL, 0);
        y = next(&fixture, "/gpu:0", one_op(&fixture, "Hold", "/gpu:0", x));
        put[1] = add(&fixture, "Put", NULL, (struct edge[]){ v, y }, 2, NULL, 0);
        ck_assert_int_eq(engine_run(fixture.engine, &first, &run, &fed, NULL, &fixture.err), 0);
        ck_assert_int_eq(engine_run(fixture.engine, &second, &limited, &fed, NULL, &fixture.err),
                         -ETIMEDOUT);
        sem_post(&gpu_fixture_let_go);
        ck_assert_int_eq(engine_run(fixture.engine, &read, &run, NULL, &tensor, &fixture.err), 0);
        got = ((float *)tensor_data(tensor))[0];
        ck_assert(got == 0 || got == 2);
        check_numbers(tensor, 1, got);
        allot_tensor_unref(tensor);
        allot_tensor_unref(fed);
        gpu_fixture_session_close(&fixture);
    }
    gpu_fixture_close(&fixture);
}
END_TEST

/* Stopped anywhere, a run gives everything or nothing, and the next one goes well. */
START_TEST(stopped_anywhere_nothing_is_left_behind) {
    static const char *const devices[] = { "/gpu:0", "/cpu:0", "/gpu:1", "/gpu:0" };
    struct allot_tensor *fed = numbers(COUNT);
    unsigned long seed = 1;
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 8; threads++) {
        struct edge x, ends[5], sum;
        uint64_t took = 0;

        gpu_fixture_session_open(&fixture, threads);
        x = source(&fixture, "Placeholder", NULL, COUNT);
        for (int b = 0; b < 5; b++) {
            ends[b] = x;
            for (int i = 0; i < 6; i++)
                ends[b] = next(&fixture, devices[(b + i) % 4], ends[b]);
        }
        sum = (struct edge){ add(&fixture, "AddN", "/cpu:0", ends, 5, NULL, 0), 0 };
        for (int round = 0; round < WALK_ROUNDS; round++) {
            struct engine_call call = { &x, 1, &sum, 1, NULL, 0 };
            struct canceller canceller;
            struct engine_run run = { .cancel = &canceller.cancel }, plain = { 0 };
            struct allot_tensor *tensor = NULL;
            uint64_t begin;
            int r;

            seed = seed * 6364136223846793005 + 1442695040888963407;
            canceller_begin(&canceller, (long)(took ? (seed >> 33) % took : 300));
            r = engine_run(fixture.engine, &call, &run, &fed, &tensor, &fixture.err);
            ck_assert_msg(r == 0 || r == -ECANCELED, "%d: %s", r, fixture.err.text);
            ck_assert_int_eq(tensor != NULL, r == 0);
            allot_tensor_unref(tensor);
            canceller_end(&canceller);
            begin = clock_usec(CLOCK_MONOTONIC);
            r = engine_run(fixture.engine, &call, &plain, &fed, &tensor, &fixture.err);
            took = clock_usec(CLOCK_MONOTONIC) - begin;
            ck_assert_msg(r == 0, "%s", fixture.err.text);
            check_numbers(tensor, 5, 6);
            allot_tensor_unref(tensor);
        }
        gpu_fixture_session_close(&fixture);
    }
    allot_tensor_unref(fed);
    gpu_fixture_close(&fixture);
}
END_TEST

START_TEST(a_plan_is_stopped_before_anything_is_queued) {
    enum { LENGTH = 6000, LATE_USEC = 500000 };
    struct allot_tensor *fed = numbers(4);
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 2; threads++) {
        struct edge x, y;

        gpu_fixture_session_open(&fixture, threads);
        y = x = source(&fixture, "Placeholder", NULL, 4);
        for (int i = 0; i < LENGTH; i++) {
            struct allot_tensor *zeros;
            struct build_attr attrs[] = { { "T", attr_dtype(DTYPE_F32) }, { "value", { 0 } } };
            struct edge inputs[2] = { y };

            ck_assert_int_eq(allot_tensor_new(&zeros, ALLOT_F32, 0, NULL, NULL), 0);
            attrs[1].value = attr_tensor(zeros);
            inputs[1] = (struct edge){ add(&fixture, "Const", NULL, NULL, 0, attrs, 2), 0 };
            allot_tensor_unref(zeros);
            y = next(&fixture, "/gpu:0", y);
            inputs[0] = y;
            y = (struct edge){ add(&fixture, "Add", "/gpu:0", inputs, 2, NULL, 0), 0 };
        }
        for (uint64_t limit_usec = 100; limit_usec <= 30000; limit_usec *= 3) {
            struct engine_call call = { &x, 1, &y, 1, NULL, 0 };
            struct engine_run run = { .timeout_usec = limit_usec };
            uint64_t usec = clock_usec(CLOCK_THREAD_CPUTIME_ID);
            struct allot_tensor *tensor = NULL;
            int r = engine_run(fixture.engine, &call, &run, &fed, &tensor, &fixture.err);

            usec = clock_usec(CLOCK_THREAD_CPUTIME_ID) - usec;
            ck_assert_int_eq(r, -ETIMEDOUT);
            ck_assert_msg(usec < limit_usec + LATE_USEC, "%llu us", (unsigned long long)usec);
            ck_assert(limit_usec > 100 || !run.was_planned);
        }
        check_run(&fixture, x, fed, y, LENGTH);
        gpu_fixture_session_close(&fixture);
    }
    allot_tensor_unref(fed);
    gpu_fixture_close(&fixture);
}
END_TEST

SUITE_TIMEOUT("stop-gpu", 300, stopped_runs_do_not_wait_for_the_gpu,
              a_run_behind_it_is_stopped_in_time_too, what_the_gpu_works_on_is_kept,
              a_session_ends_when_the_gpu_is_through, variables_are_whole_behind_a_stopped_run,
              stopped_anywhere_nothing_is_left_behind, a_plan_is_stopped_before_anything_is_queued)
