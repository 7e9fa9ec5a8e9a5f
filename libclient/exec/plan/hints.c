/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/hints.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/core/spec.h"
#include "libclient/exec/plan/task_build.h"
#include "libclient/graph/graph.h"

/* On a device that the user does not prefer, an op counts as this many times longer. */
#define UNLIKED 1.25

static uint32_t root_of(uint32_t *parent, uint32_t group) {
    while (parent[group] != group)
        group = parent[group] = parent[parent[group]];
    return group;
}

int hints_join(const struct allot_graph *graph, struct placer_choice *choices, uint32_t n) {
    cleanup(freep) uint32_t *parent = malloc(((size_t)n + 1) * sizeof(*parent));
    cleanup(freep) uint32_t *first = NULL; /* by number of together: a node of it, + 1 */

    if (graph->n_together == 0)
        return 0;
    first = calloc((size_t)graph->n_together + 1, sizeof(*first));
    if (!parent || !first)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        parent[i] = i;
    for (uint32_t i = 0; i < n; i++) {
        const struct graph_hint *hint = graph_node(graph, i)->hint;
        uint32_t mine, theirs;
        uint64_t both;

        if (!hint || hint->together == 0)
            continue;
        if (first[hint->together] == 0) {
            first[hint->together] = i + 1;
            continue;
        }
        mine = root_of(parent, choices[i].group);
        theirs = root_of(parent, choices[first[hint->together] - 1].group);
        both = choices[mine].devices & choices[theirs].devices;
        if (mine == theirs || both == 0)
            continue;
        parent[mine] = theirs;
        choices[theirs].devices = both;
    }
    for (uint32_t i = 0; i < n; i++) {
        choices[i].group = root_of(parent, choices[i].group);
        choices[i].devices = choices[choices[i].group].devices;
    }
    return 0;
}

static bool is_preferred(const struct machine *machine, uint32_t device,
                         const struct spec *wanted) {
    struct spec spec;

    return spec_parse(&spec, machine->devices[device].name) == 0 && spec_matches(wanted, &spec);
}

int hints_costs(const struct allot_graph *graph, const struct task_build *build,
                const struct machine *machine, double **ret) {
    const struct task_graph *tasks = &build->graph;
    size_t n = (size_t)tasks->n_tasks * tasks->n_devices;
    double *costs = NULL;

    *ret = NULL;
    for (uint32_t t = 0; t < tasks->n_tasks; t++) {
        const struct graph_hint *hint = graph_node(graph, build->node[t])->hint;
        struct spec wanted;

        if (!hint || !hint->prefer || build->is_fetch[t] || spec_parse(&wanted, hint->prefer) < 0)
            continue;
        if (!costs) {
            costs = malloc((n + 1) * sizeof(*costs));
            if (!costs)
                return -ENOMEM;
            memcpy(costs, tasks->cost_usec, n * sizeof(*costs));
        }
        for (uint32_t d = 0; d < tasks->n_devices; d++)
            if (!is_preferred(machine, d, &wanted))
                costs[(size_t)t * tasks->n_devices + d] *= UNLIKED;
    }
    *ret = costs;
    return 0;
}
