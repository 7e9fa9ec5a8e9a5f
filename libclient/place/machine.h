/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Machine: what a plan is made for: devices with their rates and their memory, and the links
 * between them.
 *
 * Plain facts, filled in by the caller; pure. A link belongs to a channel, which carries one
 * transfer at a time, in order: links that share a stream share a channel. What else links share,
 * the lanes of a card or an uplink, are media, which carry one transfer at a time as well.
 */
#include <stdbool.h>
#include <stdint.h>

#include "libclient/core/dtype.h"
#include "libclient/place/task_graph.h"

#define MACHINE_NAME_SIZE 224

/* Number formats that a device multiplies at rates of their own. */
enum machine_format { MACHINE_F64, MACHINE_F32, MACHINE_F16, N_MACHINE_FORMATS };

struct machine_device {
    char name[MACHINE_NAME_SIZE];
    char kind[256]; /* model of the device, and version of its driver: costs are measured by kind */
    bool is_gpu;
    double product_per_usec[N_MACHINE_FORMATS]; /* multiply-adds of a matrix product */
    double op_per_usec;                         /* simple operations on single elements */
    double bytes_per_usec;                      /* of its memory */
    double launch_usec;                         /* what each op costs besides */
    uint64_t memory_bytes;                      /* for the plan; UINT64_MAX: no limit */
};

struct machine {
    uint32_t n_devices;
    struct machine_device devices[TASK_GRAPH_DEVICES_MAX];
    struct task_link links[TASK_GRAPH_DEVICES_MAX * TASK_GRAPH_DEVICES_MAX]; /* as in task_graph */
    uint32_t n_channels;
};

enum machine_format machine_format_of(enum dtype dtype);

void machine_connect(struct machine *machine, uint32_t from, uint32_t to, double latency_usec,
                     double bytes_per_usec, uint32_t channel);
/* The link shares medium number `medium`; nothing if there are too many of them. */
void machine_share(struct machine *machine, uint32_t from, uint32_t to, uint32_t medium);
static inline const struct task_link *machine_link(const struct machine *machine, uint32_t from,
                                                   uint32_t to) {
    return &machine->links[from * machine->n_devices + to];
}

/* Give the graph the machine's devices, memory and links. -ENOMEM. */
int machine_apply(const struct machine *machine, struct task_graph *graph);

/* "GPU:1" of "/job:localhost/replica:0/task:0/device:GPU:1", for people. */
const char *machine_short_name(const char *name);
