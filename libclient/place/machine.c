/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/place/machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum machine_format machine_format_of(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F64:
    case DTYPE_I64:
    case DTYPE_U64:
        return MACHINE_F64;
    case DTYPE_F16:
    case DTYPE_BF16:
        return MACHINE_F16;
    default:
        return MACHINE_F32;
    }
}

void machine_connect(struct machine *machine, uint32_t from, uint32_t to, double latency_usec,
                     double bytes_per_usec, uint32_t channel) {
    machine->links[from * machine->n_devices + to] =
        (struct task_link){ latency_usec, bytes_per_usec, channel, 0 };
    if (channel >= machine->n_channels)
        machine->n_channels = channel + 1;
}

void machine_share(struct machine *machine, uint32_t from, uint32_t to, uint32_t medium) {
    if (medium < TASK_GRAPH_MEDIA_MAX)
        machine->links[from * machine->n_devices + to].media |= UINT64_C(1) << medium;
}

int machine_apply(const struct machine *machine, struct task_graph *graph) {
    uint32_t n = machine->n_devices;

    graph->n_devices = n;
    graph->n_channels = machine->n_channels;
    graph->memory_bytes = calloc(n + 1, sizeof(*graph->memory_bytes));
    graph->links = calloc((size_t)n * n + 1, sizeof(*graph->links));
    if (!graph->memory_bytes || !graph->links)
        return -ENOMEM;
    for (uint32_t d = 0; d < n; d++)
        graph->memory_bytes[d] = machine->devices[d].memory_bytes;
    memcpy(graph->links, machine->links, (size_t)n * n * sizeof(*graph->links));
    return 0;
}

const char *machine_short_name(const char *name) {
    const char *mark = strstr(name, "/device:");

    return mark ? mark + strlen("/device:") : name;
}
