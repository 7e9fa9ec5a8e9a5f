/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU is short of memory while earlier runs have left some idle: that is given back, the longest
 * unused first, before any run fails for lack of memory.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "allocator/internal.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "tests/support/libclient/exec/engine/gpu_fixture.h"
#include "tests/support/suite.h"

/* Step memory of a run is one value of so many bytes, which is changed where it lies. Pages of the
 * arena are 2 MiB; more than one for each would only be more for the simulator to compute: under
 * the thread sanitizer it takes 0.2 us for each element of each op. */
enum { MIB = 1 << 20, LIMIT = 6 * MIB, VALUE = 2 * MIB };

struct line {
    struct edge x, y;
    struct allot_tensor *fed;
};

static void line_make(struct gpu_fixture *fixture, struct line *line, int64_t bytes) {
    line->x = source(fixture, "Placeholder", NULL, bytes / 4);
    line->y = next(fixture, "/gpu:0", next(fixture, "/gpu:0", line->x));
    line->fed = numbers(bytes / 4);
}

static int line_run(struct gpu_fixture *fixture, const struct line *line, bool *ret_planned) {
    struct engine_call call = { &line->x, line->fed ? 1 : 0, &line->y, 1, NULL, 0 };
    struct engine_run run = { 0 };
    struct allot_tensor *tensor;
    int r = engine_run(fixture->engine, &call, &run, &line->fed, &tensor, &fixture->err);

    if (ret_planned)
        *ret_planned = run.was_planned;
    if (r < 0)
        return r;
    ck_assert_float_eq(((float *)tensor_data(tensor))[5], line->fed ? 7 : 6);
    allot_tensor_unref(tensor);
    return 0;
}

static void line_check(struct gpu_fixture *fixture, const struct line *line) {
    int r = line_run(fixture, line, NULL);

    ck_assert_msg(r == 0, "%s", fixture->err.text);
}

/* How many run states the plan for this line has idle; -1: there is no such plan. */
static int n_idle(const struct gpu_fixture *fixture, const struct line *line) {
    struct cache_entry *entry;

    list_foreach (entry, &fixture->engine->cache.entries, link)
        if (entry->program->n_feeds > 0 && entry->program->feeds[0].edge.node == line->x.node)
            return (int)entry->n_idle;
    return -1;
}

START_TEST(many_kinds_of_runs_use_the_same_memory) {
    struct line lines[12];
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    fixture.limit_bytes = LIMIT;
    gpu_fixture_session_open(&fixture, 1);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 12; i++) {
            if (round == 0)
                line_make(&fixture, &lines[i], VALUE + i * 4096);
            line_check(&fixture, &lines[i]);
        }
    for (int i = 0; i < 12; i++)
        allot_tensor_unref(lines[i].fed);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

START_TEST(the_longest_unused_goes_first_and_no_more_than_needed) {
    struct line lines[4];
    struct gpu_fixture fixture;
    bool was_planned;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    fixture.limit_bytes = LIMIT;
    gpu_fixture_session_open(&fixture, 1);
    for (int i = 0; i < 4; i++)
        line_make(&fixture, &lines[i], VALUE);
    for (int i = 0; i < 3; i++)
        line_check(&fixture, &lines[i]);
    line_check(&fixture, &lines[0]);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(n_idle(&fixture, &lines[i]), 1);
    line_check(&fixture, &lines[3]);
    ck_assert_int_eq(n_idle(&fixture, &lines[0]), 1);
    ck_assert_int_eq(n_idle(&fixture, &lines[1]), 0);
    ck_assert_int_eq(n_idle(&fixture, &lines[2]), 1);
    ck_assert_int_eq(n_idle(&fixture, &lines[3]), 1);
    /* Its plan is still there. */
    ck_assert_int_eq(line_run(&fixture, &lines[1], &was_planned), 0);
    ck_assert(!was_planned);
    ck_assert_int_eq(n_idle(&fixture, &lines[2]), 0);
    for (int i = 0; i < 4; i++)
        allot_tensor_unref(lines[i].fed);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

START_TEST(sessions_make_way_for_each_other) {
    struct gpu_fixture fixture, other;
    struct line mine, theirs;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    fixture.limit_bytes = LIMIT;
    gpu_fixture_session_open(&fixture, 2);
    other = fixture;
    gpu_fixture_session_open(&other, 1);
    line_make(&fixture, &mine, 2 * VALUE);
    line_make(&other, &theirs, 2 * VALUE);
    for (int round = 0; round < 3; round++) {
        line_check(&fixture, &mine);
        ck_assert_int_eq(n_idle(&fixture, &mine), 1);
        line_check(&other, &theirs);
        ck_assert_int_eq(n_idle(&fixture, &mine), 0);
    }
    gpu_fixture_session_close(&fixture);
    line_check(&other, &theirs);
    allot_tensor_unref(mine.fed);
    allot_tensor_unref(theirs.fed);
    gpu_fixture_session_close(&other);
    gpu_fixture_close(&fixture);
}
END_TEST

/* Constants of unused plans: a plan is built anew, but nothing fails. */
START_TEST(constants_of_idle_plans_make_way) {
    struct line lines[6];
    struct gpu_fixture fixture;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    fixture.limit_bytes = LIMIT;
    gpu_fixture_session_open(&fixture, 1);
    for (int i = 0; i < 6; i++) {
        struct allot_tensor *tensor = numbers(VALUE / 4);
        struct build build = { fixture.graph, &fixture.err, 0 };

        lines[i] = (struct line){ .x = build_const(&build, tensor) };
        ck_assert_int_eq(build.r, 0);
        lines[i].y = next(&fixture, "/gpu:0", lines[i].x);
        allot_tensor_unref(tensor);
    }
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 6; i++)
            line_check(&fixture, &lines[i]);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

START_TEST(variables_get_what_is_idle_too) {
    struct gpu_fixture fixture;
    struct line lines[3];
    struct engine_run run = { 0 };
    struct allot_tensor *fed = numbers(VALUE / 4);
    struct edge x, v;
    uint32_t put;
    int r;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    fixture.limit_bytes = LIMIT;
    gpu_fixture_session_open(&fixture, 1);
    x = source(&fixture, "Placeholder", NULL, VALUE / 4);
    v = source(&fixture, "Variable", "/gpu:0", VALUE / 4);
    put = add(&fixture, "Put", NULL, (struct edge[]){ v, x }, 2, NULL, 0);
    for (int i = 0; i < 3; i++) {
        line_make(&fixture, &lines[i], VALUE);
        line_check(&fixture, &lines[i]);
    }
    r = engine_run(fixture.engine, &(struct engine_call){ &x, 1, NULL, 0, &put, 1 }, &run, &fed,
                   NULL, &fixture.err);
    ck_assert_msg(r == 0, "%s", fixture.err.text);
    for (int i = 0; i < 3; i++)
        allot_tensor_unref(lines[i].fed);
    allot_tensor_unref(fed);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

/* What does not fit beside what is in use is refused, with the words of the arena. */
START_TEST(memory_that_cannot_be_had_is_refused) {
    struct gpu_fixture fixture;
    struct line small, large;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    fixture.limit_bytes = LIMIT;
    gpu_fixture_session_open(&fixture, 1);
    line_make(&fixture, &small, VALUE);
    line_make(&fixture, &large, 2 * LIMIT);
    line_check(&fixture, &small);
    ck_assert_int_eq(line_run(&fixture, &large, NULL), -ENOMEM);
    ck_assert_msg(strstr(fixture.err.text, "asked for 12 MiB"), "%s", fixture.err.text);
    /* Nothing was given back for a request that can never succeed. */
    ck_assert_int_eq(n_idle(&fixture, &small), 1);
    allot_tensor_unref(small.fed);
    allot_tensor_unref(large.fed);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

START_TEST(sixteen_threads_have_addresses_of_their_own) {
    struct gpu_fixture fixture;
    const struct arena *arena;

    gpu_fixture_open(&fixture, SIM_LIB_DIR);
    gpu_fixture_session_open(&fixture, 1);
    arena = fixture.engine->devices[1]->gpu->arena;
    /* Where the driver has none, as under the thread sanitizer, there is nothing to share. */
    ck_assert_uint_le(15 * arena->slice_bytes, arena->slices_end / 2);
    gpu_fixture_session_close(&fixture);
    gpu_fixture_close(&fixture);
}
END_TEST

SUITE_TIMEOUT("alloc-gpu", 300, many_kinds_of_runs_use_the_same_memory,
              the_longest_unused_goes_first_and_no_more_than_needed,
              sessions_make_way_for_each_other, constants_of_idle_plans_make_way,
              variables_get_what_is_idle_too, memory_that_cannot_be_had_is_refused,
              sixteen_threads_have_addresses_of_their_own)
