/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A live session as a case for plan-case, which has the same core: it answers with the session's
 * devices and order. So what is measured on cases is what sessions do.
 */
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "libclient/api/session.h"
#include "libclient/exec/engine/engine.h"
#include "tests/support/libclient/place/plan_case.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { LAYERS = 4, WIDTH = 1024, BATCH = 512, BUDGET = 30000 };

/* A perceptron with two branches, trained by momentum. */
static struct allot_node *make_graph(struct allot_graph *graph, struct allot_optimizer *optimizer,
                                     struct allot_node **ret_init) {
    struct allot_output x, h, ends[2];
    struct allot_node *step;

    x = allot_random_uniform(graph, ALLOT_F32, 2, (int64_t[]){ BATCH, WIDTH }, -1, 1, 3);
    for (int b = 0; b < 2; b++) {
        h = x;
        for (int i = 0; i < LAYERS; i++) {
            struct allot_output w = allot_variable(
                graph, "w",
                allot_random_uniform(graph, ALLOT_F32, 2, (int64_t[]){ WIDTH, WIDTH }, -1, 1, 5));

            h = allot_tanh(allot_matmul(h, w));
        }
        ends[b] = allot_mean(allot_mul(h, h));
    }
    step = allot_minimize(optimizer, allot_add_n(ends, 2));
    *ret_init = allot_initializer(graph);
    return step;
}

static void run(struct allot_session *session, struct allot_node *target) {
    struct allot_error err = { 0 };
    int r = allot_session_run(session, NULL, NULL, 0, NULL, 0, &target, 1, NULL, &err);

    ck_assert_msg(r == 0, "%s", err.text);
}

static void compare(struct allot_session *session, const char *dir) {
    const struct dynamic_placement_plan *plan = &session->engine->dynamic->last;
    const struct task_graph *graph = &plan->build.graph;
    struct assignment other;
    char path[PATH_MAX];

    ck_assert_int_lt(snprintf(path, sizeof(path), "%.3000s/case.json", dir), (int)sizeof(path));
    plan_case_write(graph, path);
    plan_case_ask(PLAN_CASE, path, BUDGET, graph, &other);
    ck_assert_double_eq(other.makespan_usec, plan->result.plan.makespan_usec);
    ck_assert_int_eq(
        memcmp(other.device, plan->result.plan.device, graph->n_tasks * sizeof(*other.device)), 0);
    ck_assert_int_eq(
        memcmp(other.first, plan->result.plan.first, (graph->n_devices + 1) * sizeof(*other.first)),
        0);
    ck_assert_int_eq(memcmp(other.sequence, plan->result.plan.sequence,
                            graph->n_tasks * sizeof(*other.sequence)),
                     0);
    assignment_done(&other);
}

/* Once with room for all, and once with so little that every GPU has to take a part. */
START_TEST(plan_case_answers_with_the_plan_of_the_session) {
    static const struct box_spec box_of = { .n_gpus = 3,
                                            .models = "a100-40g,a100-40g,t4-16g",
                                            .timing_only = true };

    for (int is_tight = 0; is_tight < 2 && (!is_tight || sim_box_arenas_move()); is_tight++) {
        struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
        struct allot_optimizer *optimizer = allot_momentum(0.1, 0.9, false);
        struct allot_error err = { 0 };
        struct allot_session *session;
        struct allot_node *step, *init;
        struct allot_graph *graph;
        struct sim_box box;

        sim_box_init_driver(&box, &box_of, SIM_LIB_DIR);
        ck_assert_int_eq(allot_graph_new(&graph, &err), 0);
        step = make_graph(graph, optimizer, &init);
        ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
        options.placer = ALLOT_PLACER_DYNAMIC;
        options.placer_budget = BUDGET;
        options.memory_limit = is_tight ? 48 << 20 : 0;
        ck_assert_msg(allot_session_new(&session, graph, &options, &err) == 0, "%s", err.text);
        run(session, init);
        compare(session, box.dir);
        run(session, step);
        compare(session, box.dir);
        allot_session_free(session);
        allot_graph_unref(graph);
        allot_optimizer_free(optimizer);
        sim_box_done(&box);
    }
}
END_TEST

SUITE_TIMEOUT("plan-case-gpu", 240, plan_case_answers_with_the_plan_of_the_session)
