/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of the dynamic placer that make way for better ones once they were measured: what the model
 * believes of a simulated box is made wrong, and the steps show it.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/log.h"
#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "libclient/api/session.h"
#include "libclient/exec/engine/engine.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { WIDE = 1024, BRANCHES = 4, DEEP = 3 };

struct world {
    struct sim_box box;
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_session_options options;
    struct allot_error err;
};

/* The log, to be read by tests. */
static char said[1 << 16];

static void hear(void *data, enum allot_log_level level, const char *text) {
    size_t n = strlen(said);

    snprintf(said + n, sizeof(said) - n, "%s\n", text);
}

static const struct box_spec four = { .n_gpus = 4, .models = "a100-40g", .timing_only = true };
static const struct box_spec two_real = { .n_gpus = 2, .models = "t4-16g" };

static void open_graph(struct world *world) {
    ck_assert_int_eq(allot_graph_new(&world->graph, &world->err), 0);
}

static void open_world(struct world *world, const struct box_spec *spec) {
    *world = (struct world){ .options = ALLOT_SESSION_OPTIONS_INIT };
    sim_box_init_driver(&world->box, spec, SIM_LIB_DIR);
    allot_log_set(hear, NULL);
    said[0] = '\0';
    world->options.placer = ALLOT_PLACER_DYNAMIC;
    world->options.placer_budget = 20000;
    world->options.inter_op_threads = world->options.intra_op_threads = 1;
    world->options.random_seed = 5;
    open_graph(world);
}

static void open_session(struct world *world) {
    int r = allot_graph_error(world->graph, &world->err);

    if (r == 0)
        r = allot_session_new(&world->session, world->graph, &world->options, &world->err);
    ck_assert_msg(r == 0, "%s", world->err.text);
}

static void close_session(struct world *world) {
    world->session = allot_session_free(world->session);
    allot_graph_unref(world->graph);
    world->graph = NULL;
}

static void close_world(struct world *world) {
    close_session(world);
    sim_box_done(&world->box);
}

/* BRANCHES chains of products, which meet at the end. */
static struct allot_output branches(struct world *world) {
    struct allot_output ends[BRANCHES];

    for (int b = 0; b < BRANCHES; b++) {
        ends[b] = allot_random_uniform(world->graph, ALLOT_F32, 2, (int64_t[]){ WIDE, WIDE }, 0, 1,
                                       b + 1);
        for (int i = 0; i < DEEP; i++)
            ends[b] = allot_matmul(ends[b], ends[b]);
        ends[b] = allot_sum(ends[b]);
    }
    return allot_add_n(ends, BRANCHES);
}

static const struct dynamic_placement_plan *last_plan(const struct world *world) {
    return &world->session->engine->dynamic->last;
}

static void run(struct world *world, struct allot_output fetch, int times) {
    for (int i = 0; i < times; i++) {
        struct allot_tensor *value;
        int r = allot_session_run(world->session, NULL, NULL, 0, &fetch, 1, NULL, 0, &value,
                                  &world->err);

        ck_assert_msg(r == 0, "%s", world->err.text);
        allot_tensor_unref(value);
    }
}

/* A new graph and session, as another program would have them. */
static void begin(struct world *world, struct allot_output *ret) {
    if (!world->graph)
        open_graph(world);
    *ret = branches(world);
    open_session(world);
}

static void expect_said(const char *what) {
    ck_assert_msg(strstr(said, what), "no '%s' in:\n%s", what, said);
}

/* The model believes that all GPUs but the first are slow: everything goes there. */
static void slander(struct world *world) {
    struct machine *machine = &world->session->engine->dynamic->machine;

    for (uint32_t d = 0; d < machine->n_devices; d++) {
        struct machine_device *device = &machine->devices[d];
        double part = d == 1 ? 0.25 : 0.001;

        for (int f = 0; f < N_MACHINE_FORMATS; f++)
            device->product_per_usec[f] *= part;
        device->op_per_usec *= part;
        device->bytes_per_usec *= part;
        device->launch_usec *= d == 1 ? 4 : 100;
    }
}

static uint64_t devices_used(const struct world *world) {
    const struct dynamic_placement_plan *plan = last_plan(world);
    uint64_t mask = 0;

    for (uint32_t t = 0; t < plan->build.graph.n_tasks; t++)
        if (strcmp(graph_node(world->graph, plan->build.node[t])->op->name, "MatMul") == 0)
            mask |= UINT64_C(1) << plan->result.plan.device[t];
    return mask;
}

START_TEST(a_plan_that_was_wrong_makes_way_if_the_session_says_so) {
    struct allot_output end;
    struct world world;

    open_world(&world, &four);
    for (int does_replace = 0; does_replace < 2; does_replace++) {
        world.options.placer_measure = 2;
        world.options.replace_above = does_replace ? 1.5 : 0;
        said[0] = '\0';
        begin(&world, &end);
        slander(&world);
        run(&world, end, 4);
        ck_assert_uint_eq(devices_used(&world), 2);
        run(&world, end, 1);
        if (does_replace) {
            ck_assert_uint_eq(devices_used(&world), 0x1e);
            expect_said("re-placement: the old plan was expected to take ");
            expect_said("replace_above is 1.50); the new plan takes ");
        } else {
            ck_assert_uint_eq(devices_used(&world), 2);
            ck_assert_ptr_null(strstr(said, "re-placement"));
        }
        run(&world, end, 3);
        close_session(&world);
    }
    open_graph(&world);
    close_world(&world);
}
END_TEST

START_TEST(a_ratio_that_is_none_is_refused) {
    struct world world;

    open_world(&world, &four);
    for (int i = 0; i < 3; i++) {
        world.options.replace_above = (double[]){ 1, -2, NAN }[i];
        ck_assert_int_eq(allot_session_new(&world.session, world.graph, &world.options, &world.err),
                         -EINVAL);
        ck_assert_ptr_nonnull(strstr(world.err.text, "replace_above"));
        world.session = NULL;
    }
    close_world(&world);
}
END_TEST

enum { ROWS = 48, LAYERS = 2, STEPS = 8 };

/* Two towers with weights of their own, trained for STEPS steps; the losses, and the devices of the
 * weights after the last. */
static void train(struct world *world, bool does_replace, float losses[STEPS], uint64_t *ret_at) {
    struct allot_optimizer *optimizer = allot_sgd(0.05);
    struct allot_output ends[2], loss;
    struct allot_node *step, *init;

    world->options.replace_above = does_replace ? 1.2 : 0;
    if (!world->graph)
        open_graph(world);
    for (int b = 0; b < 2; b++) {
        ends[b] = allot_random_uniform(world->graph, ALLOT_F32, 2, (int64_t[]){ ROWS, ROWS }, -1, 1,
                                       b + 3);
        for (int i = 0; i < LAYERS; i++)
            ends[b] = allot_matmul(
                ends[b],
                allot_variable(world->graph, "w",
                               allot_random_uniform(world->graph, ALLOT_F32, 2,
                                                    (int64_t[]){ ROWS, ROWS }, -1, 1, b + 7)));
        ends[b] = allot_mean(allot_square(ends[b]));
    }
    loss = allot_add(ends[0], ends[1]);
    step = allot_minimize(optimizer, loss);
    init = allot_initializer(world->graph);
    open_session(world);
    if (does_replace)
        slander(world);
    ck_assert_int_eq(
        allot_session_run(world->session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &world->err), 0);
    for (int i = 0; i < STEPS; i++) {
        struct allot_tensor *value;
        int r = allot_session_run(world->session, NULL, NULL, 0, &loss, 1, &step, 1, &value,
                                  &world->err);

        ck_assert_msg(r == 0, "%s", world->err.text);
        memcpy(&losses[i], allot_tensor_data(value), sizeof(float));
        allot_tensor_unref(value);
    }
    *ret_at = 0;
    for (uint32_t i = 0; i < graph_n_nodes(world->graph); i++)
        if (strcmp(graph_node(world->graph, i)->op->name, "Variable") == 0)
            *ret_at |= UINT64_C(1) << world->session->engine->placement.devices[i];
    close_session(world);
    allot_optimizer_free(optimizer);
}

/* On a box that computes: the weights of one tower move to the other GPU in the midst of it. */
START_TEST(variables_move_with_their_values) {
    float plain[STEPS], moved[STEPS];
    struct world world;
    uint64_t at;

    open_world(&world, &two_real);
    train(&world, true, moved, &at);
    expect_said("re-placement: the old plan was expected to take ");
    expect_said("'w");
    ck_assert_uint_ne(at & 4, 0);
    train(&world, false, plain, &at);
    for (int i = 0; i < STEPS; i++)
        ck_assert_msg(memcmp(&plain[i], &moved[i], sizeof(float)) == 0, "step %d: %a and %a", i,
                      (double)plain[i], (double)moved[i]);
    sim_box_done(&world.box);
}
END_TEST

/* Runs on several threads: none fails, none sees half of a move, and in the end the plan is
 * another. */
struct racer {
    struct world *world;
    struct allot_node *step;
    _Atomic unsigned *n_left;
    unsigned n_done;
    int result;
};

static void *race(void *data) {
    struct racer *racer = data;

    while (racer->result == 0 && atomic_load(racer->n_left) > 0) {
        struct allot_error err;

        racer->result = allot_session_run(racer->world->session, NULL, NULL, 0, NULL, 0,
                                          &racer->step, 1, NULL, &err);
        if (atomic_load(racer->n_left) > 0)
            atomic_fetch_sub(racer->n_left, 1);
        racer->n_done++;
        if (racer->result < 0)
            fprintf(stderr, "%s\n", err.text);
    }
    return NULL;
}

START_TEST(runs_on_other_threads_are_not_disturbed) {
    /* Sums that a float has exactly. */
    enum { THREADS = 3, ADDS = 100, PRODUCT = ROWS * ROWS * ROWS };
    struct allot_output one, sums[2], values[2];
    struct racer racers[THREADS];
    pthread_t threads[THREADS];
    _Atomic unsigned n_left = ADDS;
    struct allot_node *init;
    struct world world;

    open_world(&world, &two_real);
    world.options.replace_above = 1.2;
    one = allot_filled(world.graph, ALLOT_F32, 2, (int64_t[]){ ROWS, ROWS }, 1);
    for (int b = 0; b < 2; b++) {
        struct allot_output w = allot_variable(world.graph, "w", one), product = one;

        values[b] = w;

        for (int i = 0; i < 3; i++)
            product = allot_matmul(product, one);
        sums[b] = allot_assign_add(w, product);
    }
    init = allot_initializer(world.graph);
    open_session(&world);
    slander(&world);
    ck_assert_int_eq(
        allot_session_run(world.session, NULL, NULL, 0, NULL, 0, &init, 1, NULL, &world.err), 0);
    for (int i = 0; i < THREADS; i++) {
        racers[i] = (struct racer){ &world, sums[i % 2].node, &n_left, 0, 0 };
        ck_assert_int_eq(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(racers[i].result, 0);
    }
    for (int b = 0; b < 2; b++) {
        unsigned n = racers[b].n_done + (b == 0 ? racers[2].n_done : 0);
        struct allot_tensor *value;
        const float *data;

        ck_assert_int_eq(allot_session_run(world.session, NULL, NULL, 0, &values[b], 1, NULL, 0,
                                           &value, &world.err),
                         0);
        data = allot_tensor_data(value);
        for (int i = 0; i < ROWS * ROWS; i++)
            ck_assert_float_eq(data[i], 1 + (float)n * PRODUCT);
        allot_tensor_unref(value);
    }
    close_world(&world);
}
END_TEST

SUITE_TIMEOUT("placer-replace-gpu", 120, a_plan_that_was_wrong_makes_way_if_the_session_says_so,
              a_ratio_that_is_none_is_refused, variables_move_with_their_values,
              runs_on_other_threads_are_not_disturbed)
