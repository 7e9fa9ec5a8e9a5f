/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps as the dynamic placer expects them, as the executor takes them, and as the simple placer's
 * take, in the modelled time of timing-only boxes.
 */
#include <math.h>
#include <stdio.h>

#include "bench/placement-graphs.h"
#include "libclient/api/session.h"
#include "libclient/exec/engine/engine.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { BUDGET = 20000 };

/* Sanitizers find nothing in the fifth graph that they do not find in the first, in minutes. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TRIED = 1 };
#else
enum { TRIED = PLACEMENT_GRAPHS };
#endif

/* The parts of the expected step by which the executed one may differ. */
#define WORST 0.10
#define MEAN  0.05

static struct allot_error err;

/* The executed step, and what was expected; 0: the simple placer expects nothing. */
static double measure(unsigned i, enum allot_placer placer, double *ret_expected) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_session *session;
    struct placement_graph graph;
    double usec;

    options.placer = placer;
    options.placer_budget = BUDGET;
    options.inter_op_threads = options.intra_op_threads = 1;
    ck_assert_msg(placement_graph_new(&graph, i, NULL, NULL, &err) == 0, "%s", err.text);
    ck_assert_msg(allot_session_new(&session, graph.graph, &options, &err) == 0, "%s", err.text);
    ck_assert_msg(placement_graph_time(&graph, session, &usec, &err) == 0, "%s", err.text);
    *ret_expected =
        session->engine->dynamic ? session->engine->dynamic->last.result.plan.makespan_usec : 0;
    allot_session_free(session);
    placement_graph_done(&graph);
    return usec;
}

static void compare_on(const struct box_spec *spec) {
    double sum = 0, worst = 0;
    struct sim_box box;

    sim_box_init_driver(&box, spec, SIM_LIB_DIR);
    for (unsigned i = 0; i < TRIED; i++) {
        double expected, ignored, usec = measure(i, ALLOT_PLACER_DYNAMIC, &expected);
        double simple = measure(i, ALLOT_PLACER_SIMPLE, &ignored);

        fprintf(stderr, "graph %u: expected %.1f us, took %.1f us (%+.1f %%), simple %.1f us\n", i,
                expected, usec, 100 * (usec - expected) / expected, simple);
        ck_assert_msg(usec <= simple * 1.01, "graph %u: %f us, by the simple placer %f us", i, usec,
                      simple);
        sum += fabs(usec - expected) / expected;
        worst = fmax(worst, fabs(usec - expected) / expected);
    }
    ck_assert_msg(worst <= WORST, "the worst is off by %.1f %%", 100 * worst);
    ck_assert_msg(sum / TRIED <= MEAN, "they are off by %.1f %% on average", 100 * sum / TRIED);
    sim_box_done(&box);
}

START_TEST(expectations_hold_with_nvlink) {
    compare_on(&(struct box_spec){ .n_gpus = 2, .models = "a100-40g", .timing_only = true });
}
END_TEST

START_TEST(expectations_hold_with_pcie) {
    compare_on(&(struct box_spec){
        .n_gpus = 4, .models = "a100-40g", .nvlink = "none", .timing_only = true });
}
END_TEST

START_TEST(expectations_hold_with_unequal_gpus) {
    compare_on(&(struct box_spec){ .n_gpus = 2, .models = "a100-40g,t4-16g", .timing_only = true });
}
END_TEST

SUITE_TIMEOUT("placement-graphs-gpu", 500, expectations_hold_with_nvlink,
              expectations_hold_with_pcie, expectations_hold_with_unequal_gpus)
