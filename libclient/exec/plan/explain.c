/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/units.h"
#include "libclient/core/log.h"
#include "libclient/exec/plan/dynamic_placement.h"
#include "libclient/graph/graph.h"
#include "libclient/place/why.h"

/* Alternatives are tried for every op of a plan only up to so many simulated tasks: a second or
 * two. */
#define ALTERNATIVES_MAX 2e7

/* Amounts that differ by less are the same to a lease. */
#define STEP_BYTES (64u << 10)

static const char *device_name(const struct dynamic_placement *dynamic, uint32_t device) {
    return machine_short_name(dynamic->machine.devices[device].name);
}

/* Another node of the group, a variable if there is one; NULL: it is alone. */
static const struct node *partner(const struct dynamic_placement *dynamic, uint32_t id) {
    const struct placer_choice *choices = dynamic->last.choices;
    const struct task_build *build = &dynamic->last.build;
    const struct node *found = NULL;

    for (uint32_t t = 0; t < build->graph.n_tasks; t++) {
        const struct node *other = graph_node(dynamic->graph, build->node[t]);

        if (build->is_fetch[t] || other->id == id || choices[other->id].group != choices[id].group)
            continue;
        if (strcmp(other->op->name, "Variable") == 0)
            return other;
        found = found ? found : other;
    }
    return found;
}

/* Why there is no choice. */
static void say_only(const struct dynamic_placement *dynamic, const struct node *node,
                     char text[static EXPLAIN_WHY_SIZE]) {
    const struct node *with = partner(dynamic, node->id);

    if (dynamic->placement->devices[node->id] != PLACEMENT_NONE)
        snprintf(text, EXPLAIN_WHY_SIZE, "its value stays where the first plan put it");
    else if (*node->device)
        snprintf(text, EXPLAIN_WHY_SIZE, "pinned: '%.64s'", node->device);
    else if (with)
        snprintf(text, EXPLAIN_WHY_SIZE, "with %s'%.96s'",
                 strcmp(with->op->name, "Variable") == 0 ? "its variable " : "", with->name);
    else if (dynamic->last.choices[node->id].devices &
             (dynamic->last.choices[node->id].devices - 1))
        snprintf(text, EXPLAIN_WHY_SIZE, "it is fed from the host");
    else
        snprintf(text, EXPLAIN_WHY_SIZE, "no other device has a kernel for it");
}

static void say_why(const struct dynamic_placement *dynamic, const struct node *node,
                    const struct why *why, char text[static EXPLAIN_WHY_SIZE]) {
    const struct node *with = why->kind == WHY_ONLY ? NULL : partner(dynamic, node->id);
    const char *other = device_name(dynamic, why->other);
    char bytes[UNITS_TEXT_SIZE];
    int n = 0;

    if (with)
        n = snprintf(text, EXPLAIN_WHY_SIZE, "with %s'%.64s': ",
                     strcmp(with->op->name, "Variable") == 0 ? "its variable " : "", with->name);
    switch (why->kind) {
    case WHY_ONLY:
        say_only(dynamic, node, text);
        break;
    case WHY_SLOWER:
        n += snprintf(text + n, EXPLAIN_WHY_SIZE - (size_t)n,
                      "on %s the step would take %.1f us longer", other, why->longer_usec);
        if (why->more_copies)
            snprintf(text + n, EXPLAIN_WHY_SIZE - (size_t)n, ", with %d %s %s",
                     abs(why->more_copies), abs(why->more_copies) == 1 ? "copy" : "copies",
                     why->more_copies > 0 ? "more" : "fewer");
        break;
    case WHY_EQUAL:
        snprintf(text + n, EXPLAIN_WHY_SIZE - (size_t)n, "on %s the step would take as long",
                 other);
        break;
    case WHY_FASTER:
        snprintf(text + n, EXPLAIN_WHY_SIZE - (size_t)n,
                 "the search ended before it tried %s, where the step might be %.1f us shorter",
                 other, -why->longer_usec);
        break;
    case WHY_MEMORY:
        snprintf(text + n, EXPLAIN_WHY_SIZE - (size_t)n,
                 "memory: with it on %s, %s would be missing", other,
                 units_format_bytes(why->lacking_bytes, bytes));
        break;
    case WHY_BLOCKED:
        snprintf(text + n, EXPLAIN_WHY_SIZE - (size_t)n, "what it needs does not reach %s in time",
                 other);
        break;
    }
}

int explain_task(const struct dynamic_placement *dynamic, uint32_t task,
                 char text[static EXPLAIN_WHY_SIZE]) {
    const struct dynamic_placement_plan *plan = &dynamic->last;
    const double n_tasks = plan->build.graph.n_tasks;
    const bool tries = n_tasks * n_tasks * (plan->build.graph.n_devices - 1) <= ALTERNATIVES_MAX;
    const struct node *node = graph_node(dynamic->graph, plan->build.node[task]);
    uint64_t allowed = plan->build.graph.allowed[plan->build.graph.unit[task]];
    struct why why = { .kind = WHY_ONLY };
    int r = 0;

    if (!tries && allowed & (allowed - 1)) {
        snprintf(text, EXPLAIN_WHY_SIZE, "by the plan with the shortest step found");
        return 0;
    }
    if (tries)
        r = why_find(&plan->build.graph, &plan->result.plan, plan->rank, task, &why);
    if (r == 0)
        say_why(dynamic, node, &why, text);
    return r;
}

static enum task_cost_source source_of(const struct dynamic_placement_plan *plan, uint32_t task) {
    return plan->build
        .sources[(size_t)task * plan->build.graph.n_devices + plan->result.plan.device[task]];
}

/* Where the times come from. */
static void write_sources(const struct dynamic_placement_plan *plan, FILE *to) {
    unsigned n[] = { [TASK_COST_NONE] = 0, [TASK_COST_TOLD] = 0 };

    for (uint32_t t = 0; t < plan->build.graph.n_tasks; t++)
        n[source_of(plan, t)]++;
    fprintf(to, "; costs: %u measured, %u modelled", n[TASK_COST_MEASURED], n[TASK_COST_MODELLED]);
    if (n[TASK_COST_TOLD])
        fprintf(to, ", %u told by hints", n[TASK_COST_TOLD]);
}

/* " [12.3 us, measured]"; "": it takes no time. */
static void say_cost(const struct dynamic_placement_plan *plan, uint32_t task, char *text,
                     size_t size) {
    static const char *const sources[] = { [TASK_COST_MODELLED] = "modelled",
                                           [TASK_COST_MEASURED] = "measured",
                                           [TASK_COST_TOLD] = "told by a hint" };
    enum task_cost_source source = source_of(plan, task);

    *text = '\0';
    if (source != TASK_COST_NONE)
        snprintf(text, size, " [%.1f us, %s]",
                 task_graph_cost(&plan->build.graph, task, plan->result.plan.device[task]),
                 sources[source]);
}

/* Peaks by device, and how the plan was found. */
static void write_whole(const struct dynamic_placement *dynamic, FILE *to) {
    const struct dynamic_placement_plan *plan = &dynamic->last;
    const struct task_graph *graph = &plan->build.graph;
    const struct assignment *made = &plan->result.plan;

    fprintf(to, "plan of %u tasks: a step of %.1f us is expected, with %u copies between devices; ",
            graph->n_tasks, made->makespan_usec, assignment_copies(graph, made));
    fprintf(to, "found by %s (%.1f us) and search%s; peak", plan->result.way,
            plan->result.begun_usec,
            plan->is_kept              ? " of an earlier run, kept in the cache folder"
            : plan->result.was_stopped ? ", which was stopped early"
                                       : "");
    for (uint32_t d = 0; d < graph->n_devices; d++) {
        char peak[UNITS_TEXT_SIZE], cap[UNITS_TEXT_SIZE];

        fprintf(to, "%s %s %s", d ? "," : "", device_name(dynamic, d),
                units_format_bytes(made->peak_bytes[d], peak));
        if (graph->memory_bytes[d] != UINT64_MAX)
            fprintf(to, " of %s", units_format_bytes(graph->memory_bytes[d], cap));
    }
    write_sources(plan, to);
}

int explain_whole(const struct dynamic_placement *dynamic, char **ret) {
    char *whole = NULL;
    size_t size;
    FILE *text = open_memstream(&whole, &size);

    if (!text)
        return -ENOMEM;
    write_whole(dynamic, text);
    if (fclose(text) != 0) {
        free(whole);
        return -ENOMEM;
    }
    *ret = whole;
    return 0;
}

/* Calls `line` for every op in the order in which they start, and for the whole. */
static int say_all(const struct dynamic_placement *dynamic,
                   void (*line)(void *data, const char *text), void *data) {
    const struct dynamic_placement_plan *plan = &dynamic->last;
    const struct task_graph *graph = &plan->build.graph;
    cleanup(freep) uint32_t *by_rank = malloc(((size_t)graph->n_tasks + 1) * sizeof(*by_rank));
    cleanup(freep) char *whole = NULL;
    int r = by_rank ? 0 : -ENOMEM;

    for (uint32_t t = 0; r == 0 && t < graph->n_tasks; t++)
        by_rank[plan->rank[t]] = t;
    for (uint32_t i = 0; r == 0 && i < graph->n_tasks; i++) {
        uint32_t task = by_rank[i];
        const struct node *node = graph_node(dynamic->graph, plan->build.node[task]);
        char why[EXPLAIN_WHY_SIZE] = "", cost[64], all[1024];

        if (plan->build.is_fetch[task])
            continue;
        r = explain_task(dynamic, task, why);
        say_cost(plan, task, cost, sizeof(cost));
        snprintf(all, sizeof(all), "%.256s: (%s): %s (%s)%s", node->name, node->op->name,
                 dynamic->machine.devices[plan->result.plan.device[task]].name, why, cost);
        if (r == 0)
            line(data, all);
    }
    if (r == 0)
        r = explain_whole(dynamic, &whole);
    if (r == 0)
        line(data, whole);
    return r;
}

static void to_log(void *data, const char *text) {
    log_say(ALLOT_LOG_INFO, "%s", text);
}

void explain_log(const struct dynamic_placement *dynamic) {
    if (say_all(dynamic, to_log, NULL) < 0)
        log_say(ALLOT_LOG_WARNING, "no host memory to explain the plan");
}

static void to_file(void *data, const char *text) {
    fprintf(data, "%s\n", text);
}

int explain_text(const struct dynamic_placement *dynamic, char **ret) {
    char *text = NULL;
    size_t size;
    FILE *file;
    int r;

    if (dynamic->last.build.graph.n_tasks == 0)
        return -ENODATA;
    file = open_memstream(&text, &size);
    if (!file)
        return -ENOMEM;
    r = say_all(dynamic, to_file, file);
    if (fclose(file) != 0)
        r = -ENOMEM;
    if (r < 0) {
        free(text);
        return r;
    }
    *ret = text;
    return 0;
}

/* ---- What is missing ------------------------------------------------------------------------- */

/* Whether a plan fits if every GPU has so many bytes. */
static int would_do(struct task_graph *graph, const struct machine *machine, uint64_t bytes,
                    bool *ret) {
    const struct dynamic_options options = { .seed = 1 };
    struct dynamic_result result;
    int r;

    for (uint32_t d = 0; d < graph->n_devices; d++)
        graph->memory_bytes[d] = machine->devices[d].is_gpu ? bytes : UINT64_MAX;
    r = dynamic_plan(graph, &options, &result);
    assignment_done(&result.plan);
    *ret = r == 0;
    return r == -ENOSPC ? 0 : r;
}

/* The least memory of each GPU, to 1 %, with which a plan was found; 0: none was. */
static int find_enough(const struct dynamic_placement_plan *plan, const struct machine *machine,
                       uint64_t *ret) {
    struct task_graph graph = plan->build.graph; /* with memory of its own */
    uint64_t memory[TASK_GRAPH_DEVICES_MAX];
    uint64_t low = 0, high = 0;
    bool does;
    int r;

    graph.memory_bytes = memory;
    graph.is_capped = true;
    for (uint32_t t = 0; t < graph.n_tasks; t++)
        high += graph.resident_bytes[t] + MAX(graph.output_bytes[t], graph.own_bytes[t]);
    high *= 2; /* outputs and their copies */
    r = would_do(&graph, machine, high, &does);
    if (r < 0 || !does) {
        *ret = 0;
        return r;
    }
    while (r == 0 && high - low > high / 100 + STEP_BYTES) {
        uint64_t middle = low + (high - low) / 2;

        r = would_do(&graph, machine, middle, &does);
        *(does ? &high : &low) = middle;
    }
    *ret = high;
    return r;
}

int explain_lack(const struct dynamic_placement *dynamic, const struct dynamic_placement_plan *plan,
                 struct allot_error *err) {
    const struct task_graph *graph = &plan->build.graph;
    char lack[UNITS_TEXT_SIZE], have[UNITS_TEXT_SIZE], enough_text[UNITS_TEXT_SIZE];
    uint32_t d = plan->result.lacking_device;
    uint64_t enough = 0;
    int r;

    if (d == TASK_GRAPH_NONE)
        return error_set(err, -EINVAL, "no plan: %s", plan->result.text);
    r = find_enough(plan, &dynamic->machine, &enough);
    if (r < 0)
        return r;
    units_format_bytes(plan->result.lacking_bytes, lack);
    units_format_bytes(graph->memory_bytes[d], have);
    units_format_bytes(enough, enough_text);
    return error_set(err, -ENOMEM,
                     "no plan fits the memory of this session: in the best one %s lacks %s, as its "
                     "share leaves %s for tensors%s%s%s",
                     device_name(dynamic, d), lack, have, enough ? "; a lease with " : "",
                     enough ? enough_text : "",
                     enough ? " for tensors on each GPU, besides the context, would do" : "");
}
