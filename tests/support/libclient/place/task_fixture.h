/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Task fixture: random task graphs, and a slow second opinion on what an assignment costs.
 */
#include "libclient/place/assignment.h"

struct task_fixture_shape {
    uint32_t n_tasks, n_devices;
    bool is_capped;   /* memory of about 1.5 × an even share */
    bool is_round;    /* costs and transfers are whole: many things happen at one moment */
    bool has_groups;  /* colocation groups, pins and devices without a kernel */
    bool lacks_links; /* devices above 0 reach each other only through device 0 */
};

/* A graph by chance; task_graph_done() frees it. */
void task_fixture_random(struct task_graph *ret, uint64_t *random,
                         const struct task_fixture_shape *shape);

/* Devices by chance, as units and kernels allow, and an order in which the graph can run. */
void task_fixture_assign(const struct task_graph *graph, uint64_t *random, struct assignment *ret);

/* The makespan, by looking through all tasks and transfers at every moment. NAN: a deadlock. */
double task_fixture_makespan(const struct task_graph *graph, const struct assignment *plan,
                             double *ret_start, double *ret_end);

uint32_t task_fixture_below(uint64_t *random, uint32_t n);
