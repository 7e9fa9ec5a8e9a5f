/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Program: the steps of building a program, in order, and the numbers that are fixed at the end.
 */
#include "libclient/exec/plan/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "libclient/core/buffer.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/plan/compile.h"
#include "libclient/exec/plan/dynamic_placement.h"
#include "libclient/exec/plan/op_key.h"
#include "libclient/exec/plan/planned_step.h"

void compile_done(struct compile *compile) {
    uint32_t n_ports = compile->first_port ? compile->first_port[compile->n_nodes] : 0;

    for (uint32_t i = 0; compile->ports && i < n_ports; i++)
        allot_tensor_unref(compile->ports[i].known);
    free(compile->own_placement);
    free(compile->planned);
    free(compile->nodes);
    free(compile->local);
    free(compile->first_port);
    free(compile->ports);
    free(compile->node_item);
    free(compile->is_needed);
    free(compile->is_later);
    free(compile->is_control);
    free(compile->later_uses);
    free(compile->edges);
    free(compile->begin);
    free(compile->end);
    free(compile->values);
    free(compile->arguments);
    free(compile->first_use);
    free(compile->uses);
    free(compile->channel_ends);
    map_done(&compile->copies);
}

/* Successors of each item, its number of predecessors, and what waits for work on devices. */
static int settle_edges(struct compile *compile) {
    struct program *program = compile->program;
    struct compile_edges edges = { 0 };
    int r = compile_edges(compile, &edges);

    /* A single thread does not use them. */
    if (r == 0 && compile->begin)
        r = compile_edges_reduce(compile, &edges);
    program->ready = malloc((program->n_items + 1) * sizeof(*program->ready));
    if (r < 0 || !program->ready) {
        compile_edges_done(&edges);
        return r < 0 ? r : -ENOMEM;
    }
    for (uint32_t i = 0; i < program->n_items; i++) {
        struct program_item *item = &program->items[i];

        item->first_successor = edges.first_after[i];
        item->n_successors = edges.first_after[i + 1] - edges.first_after[i];
        item->n_predecessors = edges.first_before[i + 1] - edges.first_before[i];
        if (item->n_predecessors == 0)
            program->ready[program->n_ready++] = i;
    }
    r = compile_gpu_events(compile, &edges);
    program->successors = TAKE(edges.after);
    compile_edges_done(&edges);
    return r;
}

static bool has_late_address(const struct program *program, uint32_t value) {
    enum value_where where = value == PROGRAM_NONE ? VALUE_CONSTANT : program->values[value].where;

    return where == VALUE_FEED || where == VALUE_FETCH || where == VALUE_READ ||
           where == VALUE_OPEN;
}

static int settle_places(struct compile *compile) {
    struct program *program = compile->program;
    uint32_t n = 0;

    program->first_place = calloc(program->n_values + 2, sizeof(*program->first_place));
    program->places = malloc((program->n_args + 1) * sizeof(*program->places));
    program->late = malloc((program->n_values + 1) * sizeof(*program->late));
    if (!program->first_place || !program->places || !program->late)
        return -ENOMEM;
    for (uint32_t a = 0; a < program->n_args; a++)
        if (has_late_address(program, program->args[a]))
            program->first_place[program->args[a] + 2]++;
    for (uint32_t v = 0; v < program->n_values; v++)
        program->first_place[v + 2] = n += program->first_place[v + 2];
    for (uint32_t a = 0; a < program->n_args; a++)
        if (has_late_address(program, program->args[a]))
            program->places[program->first_place[program->args[a] + 1]++] = a;
    for (uint32_t v = 0; v < program->n_values; v++)
        if (has_late_address(program, v))
            program->late[program->n_late++] = v;
    return 0;
}

bool program_may_lie_over(const struct program *program, const struct program_item *item,
                          uint32_t a) {
    const uint32_t *args = &program->args[item->first_arg];
    const struct program_value *input, *output;
    uint32_t flags = item->kind == ITEM_KERNEL ? item->kernel->flags : 0;

    if (!(flags & KERNEL_IN_PLACE_ANY) && !(flags & KERNEL_IN_PLACE && a == 0))
        return false;
    if (item->n_outputs == 0 || args[a] == PROGRAM_NONE)
        return false;
    for (uint32_t other = 1; flags & KERNEL_IN_PLACE && other < item->n_inputs; other++)
        if (args[other] == args[0])
            return false;
    input = &program->values[args[a]];
    output = &program->values[args[item->n_inputs]];
    return input->where == VALUE_SLAB && output->where == VALUE_SLAB &&
           input->space == output->space && input->bytes == output->bytes;
}

static int settle_feeds(struct compile *compile) {
    const struct program_request *request = compile->request;
    struct program *program = compile->program;

    program->feeds = calloc(request->n_feeds + 1, sizeof(*program->feeds));
    if (!program->feeds)
        return -ENOMEM;
    for (uint32_t i = 0; i < request->n_feeds; i++)
        program->feeds[i] = (struct program_feed){
            request->feeds[i],
            compile_port(compile, request->feeds[i])->dtype,
            request->feed_shapes[i],
        };
    program->n_feeds = request->n_feeds;
    return 0;
}

static int make(struct compile *compile, struct allot_error *err) {
    static int (*const steps[])(struct compile * compile) = {
        compile_fuse_update, compile_uses, compile_variables, compile_sums_order,
        compile_schedule,    compile_uses, compile_layout,    settle_edges,
        settle_places,       settle_feeds,
    };
    int r = compile_prune(compile, err);

    if (r == 0)
        r = compile_shapes(compile, err);
    if (r < 0 || compile->asks)
        return r;
    if (compile->request->dynamic)
        r = dynamic_placement_make(compile->request->dynamic, compile, err);
    if (r == 0 && compile->request->dynamic)
        r = planned_step_new(&compile->program->planned, compile->request->dynamic);
    if (r == 0)
        r = compile_lower(compile, err);
    if (r == 0)
        r = compile_fetches(compile, err);
    for (size_t i = 0; r == 0 && i < ELEMENTSOF(steps); i++) {
        r = compile_check(compile);
        if (r == 0)
            r = steps[i](compile);
    }
    return r == 0 && compile->request->dynamic ? op_key_items(compile) : r;
}

int program_new(struct program **ret, const struct program_request *request,
                struct allot_error *err) {
    struct program *program = calloc(1, sizeof(*program));
    struct compile compile = { .request = request,
                               .program = program,
                               .placement = request->placement };
    struct allot_error own = { 0 };
    int r;

    if (!program)
        return error_set(err, -ENOMEM, "no host memory for a plan");
    program->graph = graph_ref(request->graph);
    program->deterministic = request->deterministic;
    program->devices = request->devices;
    program->n_devices = request->n_devices;
    r = make(&compile, &own);
    compile_done(&compile);
    if (r < 0) {
        program_free(program);
        if (r == -ECANCELED)
            return error_set(err, r, "the planning was cancelled");
        if (own.code == 0)
            return error_set(err, r, "no host memory for a plan of %u nodes",
                             request->graph->n_nodes);
        return error_set(err, r, "%s", own.text);
    }
    *ret = program;
    return 0;
}

void program_plan_free(struct program_plan *plan) {
    if (!plan)
        return;
    free(plan->device);
    free(plan->sequence);
    free(plan->first);
    free(plan);
}

struct program *program_free(struct program *program) {
    if (!program)
        return NULL;
    for (uint32_t i = 0; i < program->n_items; i++)
        if (program->items[i].state_free)
            program->items[i].state_free(program->items[i].state);
        else
            free(program->items[i].state);
    for (uint32_t v = 0; v < program->n_values; v++) {
        allot_tensor_unref(program->values[v].constant);
        buffer_unref(program->values[v].uploaded);
    }
    graph_unref(program->graph);
    planned_step_free(program->planned);
    free(program->feeds);
    free(program->asked);
    for (uint32_t i = 0; i < program->n_fetches; i++)
        allot_tensor_unref(program->fetches[i].known);
    free(program->fetches);
    free(program->fetch_of);
    free(program->is_done);
    free(program->variables);
    free(program->values);
    free(program->items);
    free(program->args);
    free(program->successors);
    free(program->pins);
    free(program->first_place);
    free(program->places);
    free(program->late);
    free(program->ready);
    free(program->waits);
    free(program->event_items);
    free(program->first_told);
    free(program->told);
    free(program->slab_bytes);
    free(program->cost_keys);
    program_plan_free(program->plan);
    free(program);
    return NULL;
}
