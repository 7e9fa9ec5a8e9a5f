/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Planned step: what the dynamic placer expects of a program, kept with it, so that a trace shows
 * the plan beside what happened. Made with the program, and never changed then; any thread.
 */
#include <stddef.h>
#include <stdint.h>

struct dynamic_placement;
struct node;

struct planned_span {
    const struct node *node;     /* the graph's: the op, or what is copied */
    uint32_t device;             /* that runs it, or that a copy arrives at */
    uint32_t from;               /* of a copy: the device that has it; PLANNED_OP: an op */
    double begin_usec, end_usec; /* from the beginning of the step */
};
#define PLANNED_OP UINT32_MAX

/* Bytes on a device from this moment on, variables included. */
struct planned_level {
    uint32_t device;
    double usec;
    uint64_t bytes;
};

struct planned_step {
    double usec; /* the whole */
    struct planned_span *spans;
    size_t n_spans;
    struct planned_level *levels; /* by device in order of time */
    size_t n_levels;
};

/* Of the last plan. `*ret` is NULL if it has no tasks. -ENOMEM. */
int planned_step_new(struct planned_step **ret, const struct dynamic_placement *dynamic);
struct planned_step *planned_step_free(struct planned_step *step); /* accepts and returns NULL */
