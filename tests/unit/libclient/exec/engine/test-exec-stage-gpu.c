/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes that come from data, on GPUs of a simulated box: the numbers that settle them are needed
 * on the host, wherever they are computed. */
#include "libclient/device/device.h"
#include "tests/support/libclient/exec/engine/shape_fixture.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

static void on_gpu(void (*body)(struct stage_fixture *fixture), const char *node) {
    struct sim_box box;

    sim_box_init_driver(&box, NULL, SIM_LIB_DIR);
    for (unsigned threads = 1; threads <= 3; threads += 2) {
        struct stage_fixture fixture;
        uint32_t device;

        stage_fixture_open(&fixture, threads, true);
        body(&fixture);
        device = fixture.engine->placement.devices[graph_find(fixture.graph, node)->id];
        ck_assert(fixture.engine->devices[device]->is_gpu);
        stage_fixture_close(&fixture);
    }
    sim_box_done(&box);
}

/* What only passes a constant on has it on its own device. */
static void pass_constant(struct stage_fixture *fixture) {
    stage_fixture_node(fixture, "same", "Identity", "f32=[1,2,3]", "");
    stage_fixture_node(fixture, "column", "Reshape", "@same i64=[3,1]", "");
    stage_fixture_node(fixture, "sum", "Sum", "@column", "");
    for (int round = 0; round < 2; round++)
        ck_assert_str_eq(stage_fixture_run(fixture, "", "same sum column same", ""),
                         "[1 2 3] | 6 | [[1] [2] [3]] | [1 2 3]");
}

START_TEST(a_constant_comes_back_from_a_gpu) {
    on_gpu(pass_constant, "same");
}
END_TEST

START_TEST(shapes_are_fed_or_follow_from_feeds) {
    on_gpu(shape_fixture_feed, "filled/2");
}
END_TEST

START_TEST(shapes_are_computed) {
    on_gpu(shape_fixture_compute, "v/n");
}
END_TEST

START_TEST(gradients_go_through_shapes_from_data) {
    on_gpu(shape_fixture_differentiate, "dx/v");
}
END_TEST

SUITE_TIMEOUT("exec-stage-gpu", 120, a_constant_comes_back_from_a_gpu,
              shapes_are_fed_or_follow_from_feeds, shapes_are_computed,
              gradients_go_through_shapes_from_data)
