/* SPDX-License-Identifier: Apache-2.0 */
/* When jobs would run on several lanes: random ones against what must hold at every moment, small
 * ones by hand. */
#include <check.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/place/simulate.h"
#include "tests/support/libclient/place/order_fixture.h"
#include "tests/support/suite.h"

enum { JOBS_MAX = 400, QUEUES = 2 };

/* Jobs of an order, with their queues and how long they take. */
struct world {
    struct order_fixture order;
    uint64_t nsec[JOBS_MAX];
    uint32_t queue[JOBS_MAX], width[JOBS_MAX], n_lanes[QUEUES];
    struct simulate_problem problem;
    uint32_t sequence[JOBS_MAX];
    uint64_t begin[JOBS_MAX], end[JOBS_MAX];
    struct simulate_result times;
};

static void settle(struct world *world, uint32_t n) {
    order_fixture_settle(&world->order, n);
    world->problem = (struct simulate_problem){ &world->order.problem, world->nsec,    world->queue,
                                                world->width,          world->n_lanes, QUEUES };
    world->times = (struct simulate_result){ .sequence = world->sequence,
                                             .begin = world->begin,
                                             .end = world->end };
}

static void make_random(struct world *world, uint64_t *random, uint32_t n) {
    order_fixture_random(&world->order, random, n);
    for (uint32_t job = 0; job < n; job++) {
        world->nsec[job] = 1 + order_fixture_below(random, 1000);
        world->queue[job] = order_fixture_below(random, 8) == 0;
        world->width[job] = order_fixture_below(random, 6) ? 1 : 1 + order_fixture_below(random, 8);
    }
    world->n_lanes[0] = 1 + order_fixture_below(random, 8);
    world->n_lanes[1] = 1;
    settle(world, n);
}

/* What lives, and how many jobs of a queue go on, at the moment when `job` has begun. */
static void check_moment(const struct world *world, uint32_t job, uint64_t *most) {
    const struct simulate_result *times = &world->times;
    uint64_t now = times->begin[job], bytes = 0;
    uint32_t n_running[QUEUES] = { 0 };

    for (uint32_t i = 0; i < world->order.problem.n_jobs; i++) {
        uint64_t until = times->end[i];

        n_running[world->queue[i]] += times->begin[i] <= now && now < times->end[i];
        for (uint32_t k = world->order.first_after[i]; k < world->order.first_after[i + 1]; k++)
            until = MAX(until, times->end[world->order.after[k]]);
        bytes += times->begin[i] <= now && now < until ? world->order.bytes[i] : 0;
    }
    for (uint32_t q = 0; q < QUEUES; q++)
        ck_assert_uint_le(n_running[q], world->n_lanes[q]);
    *most = MAX(*most, bytes);
}

static void check_times(const struct world *world) {
    const struct simulate_result *times = &world->times;
    uint64_t most = 0, last = 0, before = 0;

    for (uint32_t s = 0; s < world->order.problem.n_jobs; s++) {
        uint32_t job = times->sequence[s];
        uint64_t least =
            world->nsec[job] / MIN(world->width[job], world->n_lanes[world->queue[job]]);

        ck_assert_uint_ge(times->begin[job], before);
        before = times->begin[job];
        for (uint32_t i = 0; i < world->order.n_inputs[job]; i++)
            ck_assert_uint_le(times->end[world->order.inputs[job][i]], times->begin[job]);
        ck_assert_uint_ge(times->end[job], times->begin[job] + MAX(least, (uint64_t)1));
        ck_assert_uint_le(times->end[job], times->begin[job] + world->nsec[job]);
        last = MAX(last, times->end[job]);
        check_moment(world, job, &most);
    }
    ck_assert_uint_eq(times->nsec, last);
    ck_assert_uint_eq(times->bytes, most);
}

START_TEST(whatever_the_limit_it_is_kept_and_the_end_is_reached) {
    static struct world world;
    uint64_t random = 3;

    for (int round = 0; round < 60; round++) {
        uint32_t sequence[JOBS_MAX];
        uint64_t alone, free_bytes;

        make_random(&world, &random, 1 + order_fixture_below(&random, JOBS_MAX - 1));
        ck_assert_int_eq(order_find(&world.order.problem, sequence, &alone), 0);
        ck_assert_int_eq(simulate_ready(&world.problem, &world.times), 0);
        check_times(&world);
        ck_assert_int_eq(simulate_within(&world.problem, sequence, UINT64_MAX, &world.times), 0);
        check_times(&world);
        free_bytes = world.times.bytes;
        for (int part = 0; part <= 4; part++) {
            uint64_t limit =
                free_bytes > alone ? alone + (free_bytes - alone) * (uint64_t)part / 4 : alone;

            ck_assert_int_eq(simulate_within(&world.problem, sequence, limit, &world.times), 0);
            check_times(&world);
            ck_assert_uint_le(world.times.bytes, limit);
        }
    }
}
END_TEST

START_TEST(one_lane_keeps_the_sequence) {
    static struct world world;
    uint64_t random = 5;

    for (int round = 0; round < 20; round++) {
        uint32_t sequence[JOBS_MAX];
        uint64_t alone, sum = 0;

        make_random(&world, &random, 100);
        memset(world.queue, 0, sizeof(world.queue));
        world.n_lanes[0] = 1;
        ck_assert_int_eq(order_find(&world.order.problem, sequence, &alone), 0);
        ck_assert_int_eq(simulate_within(&world.problem, sequence, alone, &world.times), 0);
        ck_assert_uint_le(world.times.bytes, alone);
        for (uint32_t job = 0; job < 100; job++)
            sum += world.nsec[job];
        ck_assert_uint_eq(world.times.nsec, sum);
    }
}
END_TEST

/* Branches that each begin large and end small, on two lanes. */
static void make_branches(struct world *world, uint32_t n, uint32_t width) {
    for (uint32_t job = 0; job < 2 * n; job++) {
        world->order.bytes[job] = job < n ? 1000 : 1;
        world->nsec[job] = 100;
        world->queue[job] = 0;
        world->width[job] = width;
        world->order.n_inputs[job] = job >= n;
        world->order.inputs[job][0] = job - n;
    }
    world->n_lanes[0] = 2;
    world->n_lanes[1] = 1;
    settle(world, 2 * n);
}

START_TEST(memory_and_time_are_traded) {
    static struct world world;
    uint32_t sequence[JOBS_MAX];
    uint64_t alone;

    make_branches(&world, 10, 1);
    ck_assert_int_eq(order_find(&world.order.problem, sequence, &alone), 0);
    ck_assert_uint_eq(alone, 1001);
    ck_assert_int_eq(simulate_ready(&world.problem, &world.times), 0);
    ck_assert_uint_eq(world.times.nsec, 1000);
    ck_assert_uint_eq(world.times.bytes, 10002); /* all of the large ones, and two small */
    ck_assert_int_eq(simulate_within(&world.problem, sequence, UINT64_MAX, &world.times), 0);
    ck_assert_uint_eq(world.times.nsec, 1000);
    ck_assert_uint_eq(world.times.bytes, 2002); /* two branches at once */
    ck_assert_int_eq(simulate_within(&world.problem, sequence, alone, &world.times), 0);
    ck_assert_uint_eq(world.times.bytes, 1001); /* one after the other */
    ck_assert_uint_gt(world.times.nsec, 1000);
}
END_TEST

/* Jobs that use both lanes are done no sooner beside each other. */
START_TEST(wide_jobs_run_one_after_the_other) {
    static struct world world;
    uint32_t sequence[JOBS_MAX];
    uint64_t alone;

    make_branches(&world, 10, 2);
    ck_assert_int_eq(order_find(&world.order.problem, sequence, &alone), 0);
    ck_assert_int_eq(simulate_within(&world.problem, sequence, UINT64_MAX, &world.times), 0);
    ck_assert_uint_eq(world.times.nsec, 1000);
    ck_assert_uint_eq(world.times.bytes, 1001);
}
END_TEST

/* A lane that becomes free goes to the wide job that is under way. */
START_TEST(a_wide_job_takes_the_lanes_that_become_free) {
    static struct world world;

    make_branches(&world, 1, 1);
    world.order.n_inputs[1] = 0;
    world.width[1] = 2;
    world.nsec[1] = 500;
    settle(&world, 2);
    ck_assert_int_eq(simulate_ready(&world.problem, &world.times), 0);
    ck_assert_uint_eq(world.times.end[0], 100);
    ck_assert_uint_eq(world.times.end[1], 300); /* 100 of one lane, 400 of both */
}
END_TEST

/* 0 → 1 → 2, where each may write over what it reads; 3 reads what 0 made as well. */
START_TEST(what_is_written_over_takes_no_bytes) {
    static struct world world;
    static const uint32_t first_over[] = { 0, 0, 1, 2, 2 }, over[] = { 0, 1 };
    uint32_t sequence[] = { 0, 3, 1, 2 };
    uint64_t bytes;

    memset(world.order.n_inputs, 0, sizeof(world.order.n_inputs));
    for (uint32_t job = 0; job < 4; job++) {
        world.order.bytes[job] = job == 3 ? 1 : 100;
        world.nsec[job] = 10;
        world.queue[job] = 0;
        world.width[job] = 1;
        world.order.n_inputs[job] = job > 0;
        world.order.inputs[job][0] = job == 3 ? 0 : job - 1;
    }
    world.n_lanes[0] = 2;
    world.n_lanes[1] = 1;
    settle(&world, 4);
    ck_assert_int_eq(order_profile(&world.order.problem, sequence, &bytes, NULL), 0);
    ck_assert_uint_eq(bytes, 200);
    world.order.problem.over = (struct order_lists){ first_over, over };
    ck_assert_int_eq(order_profile(&world.order.problem, sequence, &bytes, NULL), 0);
    ck_assert_uint_eq(bytes, 101);
    /* Beside 3, the second may not: its bytes are still read. */
    ck_assert_int_eq(simulate_ready(&world.problem, &world.times), 0);
    ck_assert_uint_eq(world.times.bytes, 201);
    ck_assert_int_eq(simulate_within(&world.problem, sequence, 101, &world.times), 0);
    ck_assert_uint_eq(world.times.bytes, 101);
}
END_TEST

START_TEST(a_play_is_called_off) {
    static struct world world;
    atomic_bool halt = true;
    uint64_t random = 3;

    make_random(&world, &random, 100);
    world.order.problem.halt = &halt;
    ck_assert_int_eq(simulate_ready(&world.problem, &world.times), -ECANCELED);
    halt = false;
    ck_assert_int_eq(simulate_ready(&world.problem, &world.times), 0);
    check_times(&world);
}
END_TEST

SUITE("simulate", whatever_the_limit_it_is_kept_and_the_end_is_reached, one_lane_keeps_the_sequence,
      memory_and_time_are_traded, wide_jobs_run_one_after_the_other,
      a_wide_job_takes_the_lanes_that_become_free, what_is_written_over_takes_no_bytes,
      a_play_is_called_off)
