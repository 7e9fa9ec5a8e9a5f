/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Charges: a static estimate of memory while tasks are placed one by one: the residents of every
 * device, and a share of the outputs and copies as if they lived for ever. Pure; one thread.
 */
#include "libclient/place/heuristic.h"

struct charges {
    const struct task_graph *graph;
    double share; /* of the outputs */
    double used_bytes[TASK_GRAPH_DEVICES_MAX];
    uint64_t *copied;  /* by task: bit mask of devices that have a copy */
    uint32_t *device;  /* by task; NONE: not placed; borrowed from the plan */
    uint32_t *of_unit; /* by unit; NONE */
};

double charges_share(unsigned strictness); /* below HEURISTIC_STRICT */

int charges_init(struct charges *charges, const struct task_graph *graph, struct assignment *plan,
                 unsigned strictness); /* -ENOMEM; -ENOENT: no such strictness */
void charges_done(struct charges *charges);

uint64_t charges_choices(const struct charges *charges, uint32_t task); /* mask of devices */
double charges_extra(const struct charges *charges, uint32_t task, uint32_t device);
bool charges_fit(const struct charges *charges, uint32_t task, uint32_t device);
void charges_place(struct charges *charges, uint32_t task, uint32_t device);
