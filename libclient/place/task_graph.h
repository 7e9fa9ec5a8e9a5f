/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Task graph: what the dynamic placer plans, a graph of tasks and the machine that is to run it.
 *
 * Plain facts, filled in once and not changed afterwards; any thread may read them. Times are
 * microseconds as doubles: measured costs and modelled transfers have fractions, and a plan's
 * times are compared with each other, never with a clock.
 *
 * A task runs on one device. Its one output lives there, and is copied once to every other device
 * that has a task that reads it. Tasks of one *unit* share a device: the tasks of a colocation
 * group are a unit, and so is every other task by itself.
 */
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "libclient/place/order.h"

#define TASK_GRAPH_DEVICES_MAX 64
#define TASK_GRAPH_MEDIA_MAX   64
#define TASK_GRAPH_NONE        UINT32_MAX
#define TASK_GRAPH_USEC_MAX    1e12   /* all tasks and transfers, one after the other */
#define TASK_GRAPH_BYTES_MAX   0x1p62 /* all that tasks make and keep */

/* From one device to another. */
struct task_link {
    double latency_usec;
    double bytes_per_usec; /* 0: there is no link */
    uint32_t channel;      /* carries one transfer at a time; links may share one */
    /* Bit mask of what links of other channels share with this one, such as the lanes of a card or
     * an uplink: a transfer waits until all of it is free. */
    uint64_t media;
};

struct task_graph {
    uint32_t n_devices, n_tasks, n_channels;
    uint64_t *memory_bytes;  /* by device; UINT64_MAX: no cap */
    struct task_link *links; /* from * n_devices + to */

    double *cost_usec; /* task * n_devices + device; INFINITY: there is no kernel */
    uint64_t *output_bytes, *resident_bytes;
    uint64_t *own_bytes; /* that an output takes on its own device; NULL at first: output_bytes.
                            Less where it lies in memory that is resident anyway */
    uint32_t *group; /* any number that the tasks of a colocation group share; TASK_GRAPH_NONE */
    uint32_t *pin;   /* device; TASK_GRAPH_NONE */

    /* Edges, each once. `inputs` carry the output of a task, `before` only order. */
    struct order_lists inputs, before;

    /* Derived by task_graph_complete(). */
    struct order_lists consumers, unlocks; /* the same edges the other way */
    uint32_t *topological;                 /* tasks, breadth first, the lowest number first */
    uint32_t *position;                    /* of each task in it */
    uint32_t n_units;
    uint32_t *unit;             /* by task */
    struct order_lists members; /* unit → tasks */
    uint64_t *allowed;          /* by unit: bit mask of devices */
    uint64_t *unit_resident;    /* by unit: bytes */
    bool is_capped;             /* some plan could exceed a device's memory */
    bool has_media;             /* of some link */
};

/* Check the facts and derive the rest. -EINVAL: a cycle, or no device or too many. -ERANGE: times
 * or bytes above the limits. -ENOMEM. */
int task_graph_complete(struct task_graph *graph);
void task_graph_done(struct task_graph *graph); /* frees all arrays */

static inline double task_graph_cost(const struct task_graph *graph, uint32_t task,
                                     uint32_t device) {
    return graph->cost_usec[(uint64_t)task * graph->n_devices + device];
}

static inline const struct task_link *task_graph_link(const struct task_graph *graph, uint32_t from,
                                                      uint32_t to) {
    return &graph->links[from * graph->n_devices + to];
}

static inline double task_graph_transfer(const struct task_graph *graph, uint32_t task,
                                         uint32_t from, uint32_t to) {
    const struct task_link *link = task_graph_link(graph, from, to);

    return link->latency_usec + (double)graph->output_bytes[task] / link->bytes_per_usec;
}
