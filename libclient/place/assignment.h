/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Assignment: a device for every task of a task graph, and an order for every device.
 *
 * What the dynamic placer answers with. Owned by the caller; one thread at a time.
 */
#include "libclient/place/task_graph.h"

struct assignment {
    uint32_t *device;   /* by task */
    uint32_t *sequence; /* tasks of device 0 in order, then those of device 1, … */
    uint32_t *first;    /* by device, n_devices + 1: where its tasks begin in `sequence` */
    double makespan_usec;
    uint64_t *peak_bytes; /* by device */
};

int assignment_init(struct assignment *plan, const struct task_graph *graph); /* -ENOMEM */
void assignment_done(struct assignment *plan);
void assignment_copy(const struct task_graph *graph, struct assignment *to,
                     const struct assignment *from);

/* Fill `sequence` and `first` from tasks sorted as they are to start. */
void assignment_order(const struct task_graph *graph, struct assignment *plan,
                      const uint32_t *tasks);

/* The position of each task if all start one after the other: by `start`, after what they need, and
 * in the order of their device. -ENOMEM. */
int assignment_rank(const struct task_graph *graph, const struct assignment *plan,
                    const double *start, uint32_t *ret_rank);

/* Outputs that are sent to another device, each once for every device. */
uint32_t assignment_copies(const struct task_graph *graph, const struct assignment *plan);
