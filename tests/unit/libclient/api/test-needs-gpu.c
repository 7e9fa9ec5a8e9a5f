/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a job will need, before it takes anything, and the lease that is exactly that: on a
 * simulated box with the daemon itself.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/lease.h"
#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "libclient/api/session.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/exec/engine/engine.h"
#include "tests/support/daemon/real_allotd.h"
#include "tests/support/suite.h"

enum { WIDTH = 2048, LAYERS = 3, MIB = 1 << 20, WEIGHT_BYTES = WIDTH * WIDTH * 4 };

struct world {
    struct sim_box box;
    struct real_allotd daemon;
    struct allot_graph *graph;
    struct allot_optimizer *optimizer;
    struct allot_node *step, *init;
    struct allot_session_options options;
    struct allot_needs needs;
    struct allot_error err;
};

/* A perceptron of LAYERS weights, trained by gradient descent. */
static void open_world(struct world *world, bool has_daemon) {
    static const struct box_spec spec = { .n_gpus = 2, .models = "t4-16g", .timing_only = true };
    struct allot_output h;

    *world = (struct world){ .options = ALLOT_SESSION_OPTIONS_INIT,
                             .needs = { .size = sizeof(struct allot_needs) } };
    sim_box_init_driver(&world->box, &spec, SIM_LIB_DIR);
    if (has_daemon)
        real_allotd_start(&world->daemon, &world->box, ALLOTD);
    ck_assert_int_eq(allot_graph_new(&world->graph, &world->err), 0);
    h = allot_random_uniform(world->graph, ALLOT_F32, 2, (int64_t[]){ 256, WIDTH }, -1, 1, 3);
    for (int i = 0; i < LAYERS; i++)
        h = allot_tanh(allot_matmul(
            h, allot_variable(world->graph, "w",
                              allot_random_uniform(world->graph, ALLOT_F32, 2,
                                                   (int64_t[]){ WIDTH, WIDTH }, -1, 1, 5))));
    world->optimizer = allot_sgd(0.1);
    world->step = allot_minimize(world->optimizer, allot_mean(h));
    world->init = allot_initializer(world->graph);
    ck_assert_msg(allot_graph_error(world->graph, &world->err) == 0, "%s", world->err.text);
    world->options.placer = ALLOT_PLACER_DYNAMIC;
    world->options.placer_budget = 10000;
}

static void close_world(struct world *world, bool has_daemon) {
    allot_graph_unref(world->graph);
    allot_optimizer_free(world->optimizer);
    if (has_daemon)
        real_allotd_stop(&world->daemon);
    sim_box_done(&world->box);
}

static int plan(struct world *world) {
    return allot_session_plan(&world->needs, world->graph, &world->options, NULL, NULL, 0, NULL, 0,
                              &world->step, 1, &world->err);
}

static void train(struct world *world, struct allot_session *session) {
    struct allot_node *const targets[] = { world->init, world->step, world->step };

    for (size_t i = 0; i < 3; i++) {
        int r =
            allot_session_run(session, NULL, NULL, 0, NULL, 0, &targets[i], 1, NULL, &world->err);

        ck_assert_msg(r == 0, "%zu: %s", i, world->err.text);
    }
}

static const struct device *gpu_of(const struct allot_session *session, uint32_t i) {
    ck_assert_uint_lt(i + 1, session->engine->n_devices);
    return session->engine->devices[i + 1];
}

START_TEST(a_plan_takes_nothing_and_the_session_leases_exactly_that) {
    struct allot_session *session;
    struct world world;

    if (!sim_box_arenas_move())
        return;
    open_world(&world, true);
    ck_assert_msg(plan(&world) == 0, "%s", world.err.text);
    ck_assert_uint_eq(sim_box_used(&world.box, 0) + sim_box_used(&world.box, 1), 0);
    real_allotd_await_leases(&world.daemon, 0);
    ck_assert_uint_gt(world.needs.n_gpus, 0);
    ck_assert_double_gt(world.needs.step_usec, 0);
    ck_assert_uint_gt(world.needs.gpus[0].tensor_bytes, (uint64_t)LAYERS * WEIGHT_BYTES / 2);
    ck_assert_uint_gt(world.needs.gpus[0].lease_bytes, world.needs.gpus[0].tensor_bytes);

    world.options.needs = &world.needs;
    ck_assert_msg(allot_session_new(&session, world.graph, &world.options, &world.err) == 0, "%s",
                  world.err.text);
    ck_assert_uint_eq(session->engine->n_devices - 1, world.needs.n_gpus);
    for (uint32_t i = 0; i < world.needs.n_gpus; i++) {
        ck_assert_str_eq(gpu_of(session, i)->gpu->uuid, world.needs.gpus[i].device);
        ck_assert_uint_eq(gpu_of(session, i)->memory_limit_bytes, world.needs.gpus[i].tensor_bytes);
    }
    train(&world, session);
    allot_session_free(session);
    close_world(&world, true);
}
END_TEST

START_TEST(a_plan_avoids_what_other_jobs_have) {
    struct allot_lease *other;
    struct world world;
    char first[96];

    open_world(&world, true);
    world.options.visible_devices = "0,1";
    ck_assert_msg(plan(&world) == 0, "%s", world.err.text);
    memcpy(first, world.needs.gpus[0].device, sizeof(first));
    other = real_allotd_fill_gpu(&world.daemon, 0, 8 * MIB);
    ck_assert_msg(plan(&world) == 0, "%s", world.err.text);
    ck_assert_uint_eq(world.needs.n_gpus, 1);
    ck_assert_str_ne(world.needs.gpus[0].device, first);
    allot_lease_free(other);
    close_world(&world, true);
}
END_TEST

START_TEST(what_no_gpu_can_have_is_said_in_bytes) {
    struct world world;

    open_world(&world, true);
    world.options.memory_limit = 4 * MIB; /* less than one weight */
    allot_device_push(world.graph, "/gpu:0");
    world.step =
        allot_sum(allot_variable(world.graph, "pinned",
                                 allot_random_uniform(world.graph, ALLOT_F32, 2,
                                                      (int64_t[]){ WIDTH, WIDTH }, -1, 1, 5)))
            .node;
    allot_device_pop(world.graph);
    ck_assert_int_eq(plan(&world), -ENOMEM);
    ck_assert_msg(strstr(world.err.text, "GPU:0 lacks 12 MiB") != NULL, "%s", world.err.text);
    ck_assert_msg(strstr(world.err.text, "would do") != NULL, "%s", world.err.text);
    close_world(&world, true);
}
END_TEST

/* Without a daemon the arena keeps to the same bytes. */
START_TEST(needs_hold_without_a_daemon) {
    struct allot_session *session;
    struct world world;

    if (!sim_box_arenas_move())
        return;
    open_world(&world, false);
    ck_assert_msg(plan(&world) == 0, "%s", world.err.text);
    world.options.needs = &world.needs;
    ck_assert_msg(allot_session_new(&session, world.graph, &world.options, &world.err) == 0, "%s",
                  world.err.text);
    ck_assert_uint_eq(gpu_of(session, 0)->memory_limit_bytes, world.needs.gpus[0].tensor_bytes);
    train(&world, session);
    allot_session_free(session);
    world.needs.gpus[0].device[0] = '\0';
    ck_assert_int_eq(allot_session_new(&session, world.graph, &world.options, &world.err), -EINVAL);
    close_world(&world, false);
}
END_TEST

SUITE_TIMEOUT("needs-gpu", 120, a_plan_takes_nothing_and_the_session_leases_exactly_that,
              a_plan_avoids_what_other_jobs_have, what_no_gpu_can_have_is_said_in_bytes,
              needs_hold_without_a_daemon)
