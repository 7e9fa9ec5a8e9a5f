/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Hints: what users tell the dynamic placer (struct graph_hint), put into its terms.
 */
#include <stdint.h>

struct allot_graph;
struct machine;
struct placer_choice;
struct task_build;

/* Merge the groups of nodes that should share a device, where some device can run all of their
 * nodes. -ENOMEM. */
int hints_join(const struct allot_graph *graph, struct placer_choice *choices, uint32_t n);

/* The costs with which preferences count, to be freed, instead of those of the task graph; NULL: no
 * node has a preference. -ENOMEM. */
int hints_costs(const struct allot_graph *graph, const struct task_build *build,
                const struct machine *machine, double **ret);
