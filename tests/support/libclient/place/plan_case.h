/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Plan case: a task graph as a case for tests/plan-case, and the plan that it answers with.
 */
#include "libclient/place/assignment.h"

/* Write the case to a new file. Fails the test. */
void plan_case_write(const struct task_graph *graph, const char *path);
/* Run `program` on the case with this budget, on one thread, and read its plan. Fails the test. */
void plan_case_ask(const char *program, const char *path, uint64_t budget,
                   const struct task_graph *graph, struct assignment *ret);
