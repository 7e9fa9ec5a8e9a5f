/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/exec/memory/shared_box.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "allocator/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "tests/support/suite.h"

struct real_allotd shared_box_allotd;
static struct gpu_fixture box; /* no session of its own */

void open_session_of(struct gpu_fixture *fixture, struct gpus_options gpus) {
    struct engine_options options = {
        .inter_threads = 2, .intra_threads = 1, .gpus = gpus, .seed = 5
    };
    int r;

    *fixture = (struct gpu_fixture){ 0 };
    ck_assert_int_eq(graph_new(&fixture->graph), 0);
    r = engine_new(&fixture->engine, fixture->graph, &options, &fixture->err);
    ck_assert_msg(r == 0, "%s", fixture->err.text);
    ck_assert_uint_eq(fixture->engine->n_devices, 1 + MAX(gpus.n_gpus, 1u));
}

void open_session_on(struct gpu_fixture *fixture, uint32_t n_gpus) {
    open_session_of(fixture, (struct gpus_options){ .n_gpus = n_gpus });
}

void open_session(struct gpu_fixture *fixture) {
    open_session_on(fixture, 1);
}

void shared_box_open(const char *sim_dir, const char *allotd_path) {
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    gpu_fixture_open(&box, sim_dir);
    real_allotd_start(&shared_box_allotd, &box.box, allotd_path);
}

void shared_box_end(void) {
    real_allotd_stop(&shared_box_allotd);
    gpu_fixture_close(&box);
}

void check_books(const struct gpu_fixture *fixture, struct allot_lease *filler) {
    static uint64_t context_bytes;
    struct arena_stats stats;
    uint64_t held = real_allotd_held(&shared_box_allotd, filler ? allot_lease_id(filler) : 0);

    arena_get_stats(fixture->engine->devices[1]->gpu->arena, &stats);
    if (stats.reserved_bytes == 0)
        context_bytes = held;
    ck_assert_uint_eq(held, stats.reserved_bytes + context_bytes);
}

static void *run(void *userdata) {
    struct runner *runner = userdata;
    struct engine_call call = { &runner->x,          runner->fed ? 1 : 0, &runner->y,
                                !runner->has_target, &runner->target,     runner->has_target };
    struct allot_tensor *tensor = NULL;

    runner->r = engine_run(runner->fixture->engine, &call, &runner->run, &runner->fed, &tensor,
                           &runner->err);
    runner->ended_usec = clock_usec(CLOCK_MONOTONIC);
    allot_tensor_unref(tensor);
    return NULL;
}

void runner_begin(struct runner *runner, uint64_t timeout_usec) {
    cancel_init(&runner->cancel);
    runner->run = (struct engine_run){ .cancel = &runner->cancel, .timeout_usec = timeout_usec };
    runner->err = (struct allot_error){ 0 };
    ck_assert_int_eq(pthread_create(&runner->thread, NULL, run, runner), 0);
}

void runner_await(struct runner *runner, int expected) {
    ck_assert_int_eq(pthread_join(runner->thread, NULL), 0);
    ck_assert_msg(runner->r == expected, "%d: %s", runner->r, runner->err.text);
    cancel_done(&runner->cancel);
}

void runner_check(struct runner *runner) {
    runner_begin(runner, 0);
    runner_await(runner, 0);
}

void runner_cancel(struct runner *runner) {
    uint64_t given = clock_usec(CLOCK_MONOTONIC);

    cancel_give(&runner->cancel);
    runner_await(runner, -ECANCELED);
    ck_assert_uint_lt(runner->ended_usec - given, SOON_USEC);
}

struct runner runner_line(struct gpu_fixture *fixture, const char *op, int64_t bytes) {
    struct edge x = source(fixture, "Placeholder", NULL, bytes / 4);
    struct edge held = one_op(fixture, op, "/gpu:0", x);

    return (struct runner){
        .fixture = fixture, .x = x, .y = next(fixture, "/gpu:0", held), .fed = numbers(bytes / 4)
    };
}

struct runner runner_constant(struct gpu_fixture *fixture, int64_t bytes) {
    struct allot_tensor *tensor = numbers(bytes / 4);
    struct build build = { fixture->graph, &fixture->err, 0 };
    struct edge x = build_const(&build, tensor);

    ck_assert_int_eq(build.r, 0);
    allot_tensor_unref(tensor);
    return (struct runner){ .fixture = fixture, .x = x, .y = next(fixture, "/gpu:0", x) };
}

void runner_done(struct runner *runner) {
    allot_tensor_unref(runner->fed);
}

void await_held(unsigned n) {
    while (atomic_load(&gpu_fixture_n_held) < n)
        nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL);
}
