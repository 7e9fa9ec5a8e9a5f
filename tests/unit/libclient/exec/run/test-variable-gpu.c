/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variables on a GPU that several runs read and write at once. What a run has queued on the compute
 * stream is not done yet, and other runs must not notice: they see neither half of a write nor
 * memory of another run.
 */
#include <errno.h>
#include <time.h>

#include "base/cleanup.h"
#include "libclient/core/buffer.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "tests/support/suite.h"
#include "tests/support/libclient/exec/memory/shared_box.h"

static struct gpu_fixture fixture;
static struct edge v; /* of COUNT numbers */

static void begin(void) {
    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    gpu_fixture_session_open(&fixture, 2);
    v = source(&fixture, "Variable", "/gpu:0", COUNT);
}

static void end(void) {
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}

/* Writes i + plus, from a feed. */
static struct runner runner_put(float plus, struct edge (*between)(struct edge x)) {
    struct runner put = { .fixture = &fixture, .has_target = true, .fed = numbers(COUNT) };
    struct edge value;

    for (int64_t i = 0; i < COUNT; i++)
        ((float *)tensor_data(put.fed))[i] += plus;
    put.x = source(&fixture, "Placeholder", NULL, COUNT);
    value = between ? between(put.x) : put.x;
    put.target = add(&fixture, "Put", NULL, (struct edge[]){ v, value }, 2, NULL, 0);
    return put;
}

static struct edge held(struct edge x) {
    return one_op(&fixture, "Hold", "/gpu:0", x); /* and one more */
}

static struct runner runner_fetch(struct edge y) {
    return (struct runner){ .fixture = &fixture, .y = y };
}

/* What it has queued stands still until let_go(). */
static void begin_held(struct runner *runner) {
    unsigned n = atomic_load(&gpu_fixture_n_held);

    runner_begin(runner, 0);
    await_held(n + 1);
}

static void let_go(void) {
    sem_post(&gpu_fixture_let_go);
}

static struct variable *variable_now(void) {
    struct variable *variable;

    ck_assert_int_eq(variable_table_get(&fixture.engine->variables,
                                        graph_node(fixture.graph, v.node),
                                        fixture.engine->devices[1], &variable),
                     0);
    return variable;
}

/* Where it lies. */
static const void *bytes_now(void) {
    struct variable *variable = variable_now();
    const void *data;

    pthread_mutex_lock(&variable->lock);
    data = variable->buffer->data;
    pthread_mutex_unlock(&variable->lock);
    return data;
}

static struct edge on_cpu(struct edge x) {
    return next(&fixture, "/cpu:0", x);
}

static struct edge on_other_gpu(struct edge x) {
    return next(&fixture, "/gpu:1", x);
}

static struct edge on_gpu(struct edge x) {
    return next(&fixture, "/gpu:0", x);
}

static struct edge itself(struct edge x) {
    return x;
}

/*
 * Every read of the variable comes after the writes that another run has queued, however it reads.
 * Until that is queued the variable is not initialised.
 */
START_TEST(a_read_comes_behind_a_write_that_is_queued) {
    struct edge (*const ways[])(struct edge) = { itself, on_cpu, on_other_gpu, on_gpu };
    const float plus[] = { 0, 1, 1, 1 };
    struct runner put;

    begin();
    for (size_t i = 0; i < ELEMENTSOF(ways); i++) {
        struct runner look;

        v = source(&fixture, "Variable", "/gpu:0", COUNT);
        put = runner_put(100, held);
        look = runner_fetch(ways[i](v));
        begin_held(&put);
        do {
            runner_begin(&look, 100000);
            pthread_join(look.thread, NULL);
            cancel_done(&look.cancel);
        } while (look.r == -ENODATA);
        ck_assert_msg(look.r == -ETIMEDOUT, "way %zu: %d %s", i, look.r, look.err.text);
        let_go();
        runner_await(&put, 0);
        check_run(&fixture, look.y, NULL, look.y, 101 + plus[i]);
        runner_done(&put);
    }
    end();
}
END_TEST

/*
 * The compute stream:   Hold │ v, as a reader has it, is copied │ the copy is raised
 *
 * When the reader has ended, only that copy still needs the old bytes, and it has not run yet.
 * Another run's feed goes to the device on another stream, and must not go there.
 */
START_TEST(bytes_that_a_queued_copy_reads_are_not_reused) {
    struct runner put, raise, feeds;
    struct buffer *old;
    bool is_settled;

    begin();
    put = runner_put(100, NULL); /* what is fed later is not that */
    runner_check(&put);
    raise = runner_line(&fixture, "Hold", 4096);
    raise.has_target = true;
    raise.target = add(&fixture, "Raise", NULL, (struct edge[]){ v, raise.y }, 2, NULL, 0);
    feeds = runner_line(&fixture, "Next", VALUE);
    ck_assert_int_eq(variable_read(variable_now(), &old, &is_settled), 0);
    ck_assert(is_settled);
    begin_held(&raise);
    while (bytes_now() == old->data)
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
    buffer_unref(old);
    /* It may wait for the GPU; what it copies meanwhile it has copied when its time is over. */
    runner_begin(&feeds, 200000);
    runner_await(&feeds, -ETIMEDOUT);
    let_go();
    runner_await(&raise, 0);
    check_run(&fixture, v, NULL, v, 101);
    runner_done(&put);
    runner_done(&raise);
    runner_done(&feeds);
    end();
}
END_TEST

/* A variable that no run writes is read at once, whatever else the GPU has to do. */
START_TEST(a_read_does_not_wait_for_others_that_read) {
    struct runner put, look, holder;

    begin();
    put = runner_put(0, NULL);
    runner_check(&put);
    look = runner_fetch(v);
    runner_check(&look);
    holder = runner_fetch(held(v));
    begin_held(&holder);
    runner_check(&look);
    let_go();
    runner_await(&holder, 0);
    runner_done(&put);
    end();
}
END_TEST

/* Even if others read the old bytes, so that the write goes to new ones. */
START_TEST(a_variable_that_could_not_be_written_is_what_it_was) {
    struct runner put, spoil;
    struct buffer *old;
    bool ignored;

    begin();
    put = runner_put(100, NULL);
    spoil = runner_line(&fixture, "Next", 4096);
    spoil.has_target = true;
    spoil.target = add(&fixture, "Spoil", NULL, (struct edge[]){ v, spoil.y }, 2, NULL, 0);
    runner_begin(&spoil, 0);
    runner_await(&spoil, -EIO);
    ck_assert_int_eq(variable_read(variable_now(), &old, &ignored), -ENODATA);
    runner_check(&put);
    runner_begin(&spoil, 0);
    runner_await(&spoil, -EIO);
    ck_assert_int_eq(variable_read(variable_now(), &old, &ignored), 0);
    runner_begin(&spoil, 0);
    runner_await(&spoil, -EIO);
    buffer_unref(old);
    check_run(&fixture, v, NULL, v, 100);
    runner_done(&put);
    runner_done(&spoil);
    end();
}
END_TEST

/* A thread that was in a context which is gone, and a program with a context of its own. */
static void *visit_twice(void *barrier) {
    for (int i = 0; i < 2; i++) {
        struct runner own = runner_line(&fixture, "Next", 4096);

        check_run(&fixture, own.x, own.fed, own.y, 2);
        runner_done(&own);
        pthread_barrier_wait(barrier);
        pthread_barrier_wait(barrier);
    }
    return NULL;
}

static const struct cuda *cuda_now(void) {
    return fixture.engine->devices[1]->gpu->cuda;
}

START_TEST(contexts_change_hands) {
    pthread_barrier_t barrier;
    CUcontext own, now;
    pthread_t thread;

    begin();
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, visit_twice, &barrier), 0);
    pthread_barrier_wait(&barrier);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_session_open(&fixture, 2);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);

    ck_assert_int_eq(cuda_ctx_create(cuda_now(), NULL, &own, 0, 0), 0);
    for (int i = 0; i < 3; i++) {
        struct runner runner = runner_line(&fixture, "Next", 4096 << i);

        check_run(&fixture, runner.x, runner.fed, runner.y, 2);
        ck_assert_int_eq(cuda_ctx_get_current(cuda_now(), NULL, &now), 0);
        ck_assert_ptr_eq(now, own);
        runner_done(&runner);
    }
    gpu_fixture_session_close(&fixture);
    gpu_fixture_session_open(&fixture, 2);
    ck_assert_int_eq(cuda_ctx_get_current(cuda_now(), NULL, &now), 0);
    ck_assert_ptr_eq(now, own);
    cuda_ctx_destroy(cuda_now(), NULL, own);
    pthread_barrier_destroy(&barrier);
    end();
}
END_TEST

SUITE_TIMEOUT("variable-gpu", 120, a_read_comes_behind_a_write_that_is_queued,
              bytes_that_a_queued_copy_reads_are_not_reused,
              a_read_does_not_wait_for_others_that_read,
              a_variable_that_could_not_be_written_is_what_it_was, contexts_change_hands)
