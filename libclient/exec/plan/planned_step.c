/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/planned_step.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "libclient/exec/plan/dynamic_placement.h"
#include "libclient/graph/graph.h"
#include "libclient/place/timeline.h"

static const struct node *node_of(const struct dynamic_placement *dynamic, uint32_t task) {
    return graph_node(dynamic->graph, dynamic->last.build.node[task]);
}

static void add_spans(struct planned_step *step, const struct dynamic_placement *dynamic,
                      const struct timeline_record *record) {
    const struct task_graph *graph = &dynamic->last.build.graph;
    const struct assignment *plan = &dynamic->last.result.plan;

    for (uint32_t t = 0; t < graph->n_tasks; t++) {
        const double usec = task_graph_cost(graph, t, plan->device[t]);

        if (!dynamic->last.build.is_fetch[t] && usec > 0)
            step->spans[step->n_spans++] =
                (struct planned_span){ node_of(dynamic, t), plan->device[t], PLANNED_OP,
                                       record->start_usec[t], record->start_usec[t] + usec };
    }
    for (size_t i = 0; i < record->n_transfers; i++) {
        const struct timeline_transfer *transfer = &record->transfers[i];

        if (transfer->end_usec > transfer->start_usec)
            step->spans[step->n_spans++] =
                (struct planned_span){ node_of(dynamic, transfer->task), transfer->to,
                                       plan->device[transfer->task], transfer->start_usec,
                                       transfer->end_usec };
    }
}

static void add_levels(struct planned_step *step, const struct timeline_record *record,
                       uint32_t n_devices) {
    for (uint32_t d = 0; d < n_devices; d++)
        for (size_t i = record->first_level[d]; i < record->first_level[d + 1]; i++)
            step->levels[step->n_levels++] =
                (struct planned_level){ d, record->levels[i].usec, record->levels[i].bytes };
}

int planned_step_new(struct planned_step **ret, const struct dynamic_placement *dynamic) {
    const struct task_graph *graph = &dynamic->last.build.graph;
    struct timeline_record record = { 0 };
    struct planned_step *step;
    int r;

    *ret = NULL;
    if (graph->n_tasks == 0)
        return 0;
    r = timeline_record(graph, &dynamic->last.result.plan, &record);
    if (r < 0)
        return r;
    step = calloc(1, sizeof(*step));
    if (step) {
        step->usec = dynamic->last.result.plan.makespan_usec;
        step->spans = calloc(graph->n_tasks + record.n_transfers + 1, sizeof(*step->spans));
        step->levels = calloc(record.first_level[graph->n_devices] + 1, sizeof(*step->levels));
    }
    if (step && step->spans && step->levels) {
        add_spans(step, dynamic, &record);
        add_levels(step, &record, graph->n_devices);
        *ret = TAKE(step);
    } else
        r = -ENOMEM;
    planned_step_free(step);
    timeline_record_done(&record);
    return r;
}

struct planned_step *planned_step_free(struct planned_step *step) {
    if (!step)
        return NULL;
    free(step->spans);
    free(step->levels);
    free(step);
    return NULL;
}
