/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions with the dynamic placer whose lease changes between two steps: a card that is drained or
 * lost, a lease that ends, memory that is wanted back; with the daemon itself, on a simulated box
 * that computes.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "libclient/allot/lease.h"
#include "libclient/allot/log.h"
#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "libclient/api/session.h"
#include "libclient/device/device.h"
#include "libclient/device/gpu.h"
#include "libclient/device/lease_news.h"
#include "libclient/exec/engine/engine.h"
#include "tests/support/daemon/real_allotd.h"
#include "tests/support/suite.h"
#include "wire/client.h"

enum { ROWS = 48, LAYERS = 2, TOWERS = 2, STEPS = 6, MIB = 1 << 20 };

struct world {
    struct sim_box box;
    struct real_allotd daemon;
    struct allot_graph *graph;
    struct allot_session *session;
    struct allot_session_options options;
    struct allot_optimizer *optimizer;
    struct allot_output loss;
    struct allot_node *step, *init;
    struct allot_error err;
};

static char said[1 << 16];

static void hear(void *data, enum allot_log_level level, const char *text) {
    size_t n = strlen(said);

    snprintf(said + n, sizeof(said) - n, "%s\n", text);
}

/* A tower on each GPU, with weights of its own. `pin`: the second tower is told where it is. */
static void build(struct world *world, const char *pin) {
    struct allot_output ends[TOWERS];

    ck_assert_int_eq(allot_graph_new(&world->graph, &world->err), 0);
    for (int b = 0; b < TOWERS; b++) {
        if (pin && b == 1)
            allot_device_push(world->graph, pin);
        ends[b] = allot_random_uniform(world->graph, ALLOT_F32, 2, (int64_t[]){ ROWS, ROWS }, -1, 1,
                                       b + 3);
        for (int i = 0; i < LAYERS; i++)
            ends[b] = allot_matmul(
                ends[b],
                allot_variable(world->graph, "w",
                               allot_random_uniform(world->graph, ALLOT_F32, 2,
                                                    (int64_t[]){ ROWS, ROWS }, -1, 1, b + 7)));
        ends[b] = allot_mean(allot_square(ends[b]));
        if (pin && b == 1)
            allot_device_pop(world->graph);
    }
    world->loss = allot_add(ends[0], ends[1]);
    world->optimizer = allot_sgd(0.05);
    world->step = allot_minimize(world->optimizer, world->loss);
    world->init = allot_initializer(world->graph);
}

static void open_session(struct world *world, const char *pin) {
    int r;

    build(world, pin);
    world->options.placer = ALLOT_PLACER_DYNAMIC;
    world->options.placer_budget = 10000;
    world->options.gpus = 2;
    world->options.random_seed = 5;
    world->options.inter_op_threads = world->options.intra_op_threads = 1;
    r = allot_graph_error(world->graph, &world->err);
    if (r == 0)
        r = allot_session_new(&world->session, world->graph, &world->options, &world->err);
    ck_assert_msg(r == 0, "%s", world->err.text);
    /* The CPU is no match. */
    for (int f = 0; f < N_MACHINE_FORMATS; f++)
        world->session->engine->dynamic->machine.devices[0].product_per_usec[f] /= 1000;
    world->session->engine->dynamic->machine.devices[0].launch_usec = 1000;
}

static void open_world(struct world *world, const char *pin) {
    static const struct box_spec spec = { .n_gpus = 2, .models = "t4-16g" };

    *world = (struct world){ .options = ALLOT_SESSION_OPTIONS_INIT };
    sim_box_init_driver(&world->box, &spec, SIM_LIB_DIR);
    real_allotd_start(&world->daemon, &world->box, ALLOTD);
    allot_log_set(hear, NULL);
    said[0] = '\0';
    open_session(world, pin);
}

static void close_session(struct world *world) {
    allot_session_free(world->session);
    allot_graph_unref(world->graph);
    allot_optimizer_free(world->optimizer);
}

static void close_world(struct world *world) {
    close_session(world);
    real_allotd_stop(&world->daemon);
    sim_box_done(&world->box);
}

/* -errno, or 0 and the loss. */
static int step(struct world *world, float *ret) {
    struct allot_tensor *value;
    int r = allot_session_run(world->session, NULL, NULL, 0, &world->loss, 1, &world->step, 1,
                              &value, &world->err);

    if (r < 0)
        return r;
    memcpy(ret, allot_tensor_data(value), sizeof(float));
    allot_tensor_unref(value);
    return 0;
}

static void initialise(struct world *world) {
    int r = allot_session_run(world->session, NULL, NULL, 0, NULL, 0, &world->init, 1, NULL,
                              &world->err);

    ck_assert_msg(r == 0, "%s", world->err.text);
}

static void steps(struct world *world, float *ret, int n) {
    for (int i = 0; i < n; i++) {
        int r = step(world, &ret[i]);

        ck_assert_msg(r == 0, "step %d: %s", i, world->err.text);
    }
}

/* Devices with variables, as a mask. */
static uint64_t variables_at(const struct world *world) {
    uint64_t mask = 0;

    for (uint32_t i = 0; i < graph_n_nodes(world->graph); i++)
        if (strcmp(graph_node(world->graph, i)->op->name, "Variable") == 0)
            mask |= UINT64_C(1) << world->session->engine->placement.devices[i];
    return mask;
}

static const char *uuid_of(const struct world *world, uint32_t gpu) {
    return world->session->engine->devices[gpu + 1]->gpu->uuid;
}

/* The thread of the lease has heard something. */
static void await_news(uint64_t n) {
    while (lease_news_count() < n)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

static void call(struct world *world, enum wire_method method, const void *parameters) {
    struct allot_error err = { 0 };
    int r = client_call(world->daemon.client, method, parameters, 60000000, NULL, NULL, &err);

    ck_assert_msg(r == 0, "%s", err.text);
}

static void drain(struct world *world, uint32_t gpu) {
    const char *const devices[] = { uuid_of(world, gpu) };

    call(world, WIRE_METHOD_DRAIN,
         &(struct wire_drain){ .devices = devices, .n_devices = 1, .reason = "a fan is loud" });
    await_news(1);
}

static void expect_said(const char *what) {
    ck_assert_msg(strstr(said, what), "no '%s' in:\n%s", what, said);
}

static void expect_error(const struct world *world, const char *what) {
    ck_assert_msg(strstr(world->err.text, what), "no '%s' in: %s", what, world->err.text);
}

/* A world, and the losses of a session in it that nothing disturbed. */
static void open_after_reference(struct world *world, float ret[STEPS]) {
    open_world(world, NULL);
    initialise(world);
    steps(world, ret, STEPS);
    ck_assert_uint_eq(variables_at(world), 6); /* both GPUs: there is something to move */
    close_session(world);
    open_session(world, NULL);
}

START_TEST(steps_leave_a_card_that_is_drained_with_the_same_bits) {
    float plain[STEPS], moved[STEPS];
    struct world world;
    uint64_t used;

    open_after_reference(&world, plain);
    initialise(&world);
    steps(&world, moved, STEPS / 2);
    ck_assert_uint_eq(variables_at(&world), 6);
    used = sim_box_used(&world.box, 1);
    drain(&world, 1);
    steps(&world, moved + STEPS / 2, STEPS / 2);
    ck_assert_uint_eq(variables_at(&world), 2);
    ck_assert_int_eq(memcmp(plain, moved, sizeof(plain)), 0);
    expect_said("GPU:1 is being drained (");
    expect_said("a fan is loud");
    expect_said("steps are planned without it from now on");
    expect_said("variables (");
    /* Its memory went back. Under the thread sanitizer the simulated driver has addresses for the
     * arena of one GPU alone; the other is made of regions, which stay. */
#if !defined(__SANITIZE_THREAD__)
    ck_assert_uint_lt(sim_box_used(&world.box, 1), used);
#else
    ck_assert_uint_le(sim_box_used(&world.box, 1), used);
#endif
    close_world(&world);
}
END_TEST

START_TEST(what_can_be_nowhere_else_is_refused_in_words) {
    struct world world;
    float loss;

    open_world(&world, "/gpu:1");
    initialise(&world);
    steps(&world, &loss, 1);
    drain(&world, 1);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(step(&world, &loss), -ENODEV);
        expect_error(&world, "can only run on GPU:1, which is being drained (");
        expect_error(&world, "allow_soft_placement");
    }
    close_world(&world);
}
END_TEST

/* Everything moves to the CPU, whose kernels round otherwise. */
START_TEST(a_lease_that_ends_leaves_the_cpu) {
    float plain[STEPS], moved[STEPS];
    struct world world;
    union wire_reply reply;

    open_after_reference(&world, plain);
    initialise(&world);
    steps(&world, moved, STEPS / 2);
    ck_assert_int_eq(
        client_call(world.daemon.client, WIRE_METHOD_GET_BOX, NULL, 60000000, &reply, NULL, NULL),
        0);
    ck_assert_uint_eq(reply.get_box.box->n_leases, 1);
    call(&world, WIRE_METHOD_RELEASE,
         &(struct wire_release){ .lease = reply.get_box.box->leases[0].id });
    await_news(1);
    steps(&world, moved + STEPS / 2, STEPS / 2);
    ck_assert_uint_eq(variables_at(&world), 1);
    for (int i = 0; i < STEPS; i++)
        ck_assert_float_eq_tol(plain[i], moved[i], fabsf(plain[i]) * 1e-4f);
    expect_said("is no longer leased (");
    expect_said("on the CPU alone, as no GPU is left");
    close_world(&world);
}
END_TEST

static void note(struct world *world, enum allot_lease_event event, uint32_t gpu, uint64_t bytes,
                 const char *text) {
    lease_news_note(
        NULL, &(struct allot_lease_notice){
                  .event = event, .device = uuid_of(world, gpu), .bytes = bytes, .text = text });
}

/* The values are gone: one run says so, then they can be made again elsewhere. */
START_TEST(a_lost_card_is_named_and_the_session_goes_on) {
    float again[STEPS];
    struct world world;

    open_world(&world, NULL);
    initialise(&world);
    steps(&world, again, 2);
    note(&world, ALLOT_LEASE_LOST, 1, 0, "GPU-1 is lost: it fell off the bus");
    ck_assert_int_eq(step(&world, &again[0]), -ENODEV);
    expect_error(&world, "GPU:1 is lost (");
    expect_error(&world, "fell off the bus");
    expect_error(&world, "restore a checkpoint or initialise them again");
    ck_assert_int_lt(step(&world, &again[0]), 0); /* they have no value */
    initialise(&world);
    steps(&world, again, STEPS);
    ck_assert_uint_eq(variables_at(&world), 2);
    for (int i = 0; i < STEPS; i++)
        ck_assert(isfinite(again[i]) && again[i] > 0);
    close_world(&world);
}
END_TEST

/* Less memory than a plan was made for; then less than any needs. */
START_TEST(memory_that_is_wanted_back_is_planned_around) {
    struct world world;
    uint64_t limit;
    float loss;

    open_world(&world, NULL);
    initialise(&world);
    steps(&world, &loss, 1);
    limit = world.session->engine->devices[2]->memory_limit_bytes;
    note(&world, ALLOT_LEASE_RECALL, 1, limit / 2, "others need it");
    steps(&world, &loss, 1);
    ck_assert_uint_eq(world.session->engine->dynamic->machine.devices[2].memory_bytes,
                      limit - limit / 2);
    note(&world, ALLOT_LEASE_RECALL, 1, limit, "others need all of it");
    ck_assert_int_eq(step(&world, &loss), -ENOMEM);
    expect_error(&world, "GPU:1 lacks ");
    close_world(&world);
}
END_TEST

/* Another job takes a GPU before the session has taken its memory: the plan goes to the other. */
START_TEST(memory_that_another_job_took_is_planned_around) {
    static const struct box_spec spec = { .n_gpus = 2, .models = "t4-16g", .timing_only = true };
    struct world world = { .options = ALLOT_SESSION_OPTIONS_INIT };
    const struct dynamic_placement_plan *plan;
    struct allot_output ends[2], end;
    struct allot_lease *other;
    struct allot_tensor *value;
    uint64_t used = 0;
    int r;

    sim_box_init_driver(&world.box, &spec, SIM_LIB_DIR);
    real_allotd_start(&world.daemon, &world.box, ALLOTD);
    allot_log_set(hear, NULL);
    ck_assert_int_eq(allot_graph_new(&world.graph, &world.err), 0);
    for (int b = 0; b < 2; b++) {
        ends[b] =
            allot_random_uniform(world.graph, ALLOT_F32, 2, (int64_t[]){ 2048, 2048 }, 0, 1, b + 1);
        for (int i = 0; i < 3; i++)
            ends[b] = allot_matmul(ends[b], ends[b]);
        ends[b] = allot_sum(ends[b]);
    }
    end = allot_add_n(ends, 2);
    world.options.placer = ALLOT_PLACER_DYNAMIC;
    world.options.placer_budget = 10000;
    world.options.gpus = 2;
    world.options.no_wait = true;
    r = allot_session_new(&world.session, world.graph, &world.options, &world.err);
    ck_assert_msg(r == 0, "%s", world.err.text);
    other = real_allotd_fill_gpu(&world.daemon, 0, 4 * MIB);
    r = allot_session_run(world.session, NULL, NULL, 0, &end, 1, NULL, 0, &value, &world.err);
    ck_assert_msg(r == 0, "%s", world.err.text);
    allot_tensor_unref(value);
    plan = &world.session->engine->dynamic->last;
    for (uint32_t t = 0; t < plan->build.graph.n_tasks; t++)
        if (strcmp(graph_node(world.graph, plan->build.node[t])->op->name, "MatMul") == 0)
            used |= UINT64_C(1) << plan->result.plan.device[t];
    ck_assert_uint_eq(used, 4);
    expect_said("as other jobs have the rest");
    allot_lease_free(other);
    close_world(&world);
}
END_TEST

START_TEST(the_end_that_the_process_makes_is_no_news) {
    const struct allot_lease_notice ends = { .event = ALLOT_LEASE_ENDING, .text = "lease 1 ends" };
    const uint64_t before = lease_news_count();

    lease_news_leave();
    lease_news_note(NULL, &ends);
    ck_assert_uint_eq(lease_news_count(), before);
    lease_news_forget();
    lease_news_note(NULL, &ends);
    ck_assert_uint_gt(lease_news_count(), before);
}
END_TEST

SUITE_TIMEOUT("placer-lease-gpu", 120, steps_leave_a_card_that_is_drained_with_the_same_bits,
              what_can_be_nowhere_else_is_refused_in_words, a_lease_that_ends_leaves_the_cpu,
              a_lost_card_is_named_and_the_session_goes_on,
              memory_that_is_wanted_back_is_planned_around,
              memory_that_another_job_took_is_planned_around,
              the_end_that_the_process_makes_is_no_news)
