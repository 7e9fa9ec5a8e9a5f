/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Step plan: the graphs of ./run bench graph, or others of that form, made into programs for the
 * host's CPU. Any failure fails the test.
 */
#include <stdint.h>

#include "bench/graph-shapes.h"
#include "libclient/exec/plan/program.h"

/* Everything that a program needs to run: threads for ops, threads inside ops, and the device. */
struct step_plan {
    struct thread_pool *inter, *intra;
    struct device *device;
};

void step_plan_begin(struct step_plan *plan, uint32_t n_threads, uint32_t n_intra);
void step_plan_end(struct step_plan *plan);

/* For `n_threads`, each op on up to `n_intra`; ends before the plan does. */
struct program *step_plan_program(const struct shape_of_row *shape, struct step_plan *plan,
                                  uint32_t n_threads, uint32_t n_intra);
