/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/exec/plan/step_plan.h"

#include <check.h>
#include <stdlib.h>

#include "libclient/api/handle.h"
#include "libclient/core/pool.h"
#include "libclient/core/tensor.h"
#include "libclient/device/device.h"

void step_plan_begin(struct step_plan *plan, uint32_t n_threads, uint32_t n_intra) {
    ck_assert_int_eq(kernel_register_all(NULL), 0);
    ck_assert_int_eq(pool_new(&plan->inter, n_threads - 1, "inter"), 0);
    ck_assert_int_eq(pool_new(&plan->intra, n_intra - 1, "intra"), 0);
    ck_assert_int_eq(device_cpu_new(&plan->device, plan->intra, NULL), 0);
}

void step_plan_end(struct step_plan *plan) {
    device_unref(plan->device);
    pool_free(plan->intra);
    pool_free(plan->inter);
}

struct program *step_plan_program(const struct shape_of_row *shape, struct step_plan *plan,
                                  uint32_t n_threads, uint32_t n_intra) {
    struct edge feeds[LAYERED_INPUTS], fetch = handle_edge(shape->fetch);
    struct shape shapes[LAYERED_INPUTS];
    uint32_t target = shape->target ? handle_node(shape->target)->id : 0;
    uint32_t *placement = calloc(graph_n_nodes(shape->graph) + 1, sizeof(*placement));
    struct program_request request = {
        .graph = shape->graph,
        .feeds = feeds,
        .feed_shapes = shapes,
        .n_feeds = (uint32_t)shape->n_feeds,
        .fetches = &fetch,
        .n_fetches = 1,
        .targets = &target,
        .n_targets = shape->target != NULL,
        .devices = &plan->device,
        .n_devices = 1,
        .placement = placement,
        .n_threads = n_threads,
        .n_intra_threads = n_intra,
        .deterministic = true,
        .seed = 1,
    };
    struct allot_error err = { 0 };
    struct program *program = NULL;

    ck_assert_ptr_nonnull(placement);
    for (uint32_t i = 0; i < shape->n_feeds; i++) {
        feeds[i] = handle_edge(shape->feeds[i]);
        shapes[i] = shape->feed_tensors[i]->shape;
    }
    ck_assert_msg(program_new(&program, &request, &err) == 0, "%s", err.text);
    free(placement);
    return program;
}
