/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/dynamic_placement.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/halt.h"
#include "libclient/core/log.h"
#include "libclient/device/device.h"
#include "libclient/exec/plan/compile.h"
#include "libclient/exec/plan/explain.h"
#include "libclient/exec/plan/hints.h"
#include "libclient/exec/plan/machine_probe.h"
#include "libclient/exec/plan/op_key.h"
#include "libclient/exec/plan/plan_store.h"

void dynamic_placement_plan_done(struct dynamic_placement_plan *plan) {
    task_build_done(&plan->build);
    assignment_done(&plan->result.plan);
    free(plan->choices);
    free(plan->start);
    free(plan->rank);
    *plan = (struct dynamic_placement_plan){ 0 };
}

void dynamic_placement_show(struct dynamic_placement *dynamic,
                            struct dynamic_placement_plan *plan) {
    struct dynamic_placement_plan last = dynamic->last;

    dynamic->last = *plan;
    *plan = last;
}

int dynamic_placement_new(struct dynamic_placement **ret,
                          const struct dynamic_placement_options *options,
                          struct placement *placement, struct device *const *devices,
                          uint32_t n_devices, unsigned n_cpu_threads) {
    struct dynamic_placement *dynamic = calloc(1, sizeof(*dynamic));

    if (!dynamic)
        return -ENOMEM;
    dynamic->options = *options;
    dynamic->placement = placement;
    dynamic->options.cache_dir = NULL; /* the caller's */
    machine_probe(&dynamic->machine, devices, n_devices, n_cpu_threads);
    for (uint32_t d = 0; d < dynamic->machine.n_devices; d++)
        dynamic->kinds[d] = op_key_of_kind(dynamic->machine.devices[d].kind);
    cache_folder_init(&dynamic->folder, options->cache_dir);
    cost_store_init(&dynamic->costs, &dynamic->folder);
    *ret = dynamic;
    return 0;
}

struct dynamic_placement *dynamic_placement_free(struct dynamic_placement *dynamic) {
    if (dynamic) {
        dynamic_placement_plan_done(&dynamic->last);
        cost_store_done(&dynamic->costs);
    }
    free(dynamic);
    return NULL;
}

static bool is_variable(const struct node *node) {
    return strcmp(node->op->name, "Variable") == 0;
}

/* ---- A plan ---------------------------------------------------------------------------------- */

struct stops {
    const struct dynamic_placement_options *options;
    const atomic_bool *halt;
};

static bool is_stopped(void *data) {
    const struct stops *stops = data;

    return halt_is_set(stops->halt) ||
           (stops->options->is_stopped && stops->options->is_stopped(stops->options->data));
}

static uint64_t variable_bytes(const struct node *node) {
    int64_t n = shape_count(&node->outputs[0].shape);

    return n > 0 ? (uint64_t)n * dtype_bytes(node->outputs[0].dtype) : 0;
}

/* Memory for the plan: without what is left free, and without the variables that lie there and that
 * the plan does not use. */
static void limit_memory(const struct dynamic_placement *dynamic, const struct compile *compile,
                         struct task_graph *graph) {
    uint64_t taken[TASK_GRAPH_DEVICES_MAX];

    memcpy(taken, dynamic->reserve_bytes, sizeof(taken));
    for (uint32_t i = 0; i < dynamic->placement->n_nodes; i++) {
        const struct node *node = graph_node(compile->request->graph, i);
        uint32_t device = dynamic->placement->devices[i];

        if (device != PLACEMENT_NONE && is_variable(node) && compile->local[i] == PROGRAM_NONE)
            taken[device] += variable_bytes(node);
    }
    for (uint32_t d = 0; d < graph->n_devices; d++)
        if (graph->memory_bytes[d] != UINT64_MAX)
            graph->memory_bytes[d] -= MIN(taken[d], graph->memory_bytes[d]);
}

static int settle_order(struct dynamic_placement_plan *plan) {
    const struct task_graph *graph = &plan->build.graph;
    enum timeline_fault fault;
    int r;

    plan->start = calloc((size_t)graph->n_tasks + 1, sizeof(*plan->start));
    plan->rank = calloc((size_t)graph->n_tasks + 1, sizeof(*plan->rank));
    if (!plan->start || !plan->rank)
        return -ENOMEM;
    r = timeline_run(graph, &plan->result.plan, plan->start, &fault);
    return r < 0 ? r : assignment_rank(graph, &plan->result.plan, plan->start, plan->rank);
}

/* Devices that are gone are no choice. */
static int avoid_gone(const struct dynamic_placement *dynamic, const struct allot_graph *graph,
                      struct placer_choice *choices, uint32_t n, struct allot_error *err) {
    for (uint32_t i = 0; dynamic->gone && i < n; i++) {
        uint64_t left = choices[i].devices & ~dynamic->gone;

        if (left == 0) {
            uint32_t d = (uint32_t)__builtin_ctzll(choices[i].devices & dynamic->gone);

            return error_set(err, -ENODEV,
                             "'%.96s' can only run on %s, which %s: let it run elsewhere too (no "
                             "device of its own, or allow_soft_placement), or make a new session",
                             graph_node(graph, i)->name,
                             machine_short_name(dynamic->machine.devices[d].name),
                             dynamic->gone_why[d]);
        }
        choices[i].devices = left;
    }
    return 0;
}

/* The task graph of a program, with the memory that it may use. */
static int build_tasks(const struct dynamic_placement *dynamic, const struct compile *compile,
                       struct dynamic_placement_plan *ret, struct allot_error *err) {
    const struct program_request *request = compile->request;
    const struct placement_request wanted = { request->graph, request->devices, request->n_devices,
                                              dynamic->options.soft, request->halt };
    const struct task_costs costs = { (struct cost_store *)&dynamic->costs, dynamic->kinds };
    uint32_t n = graph_n_nodes(request->graph);
    int r;

    ret->choices = calloc((size_t)n + 1, sizeof(*ret->choices));
    if (!ret->choices)
        return -ENOMEM;
    r = placement_choices(dynamic->placement, &wanted, n, ret->choices, err);
    if (r == 0)
        r = avoid_gone(dynamic, request->graph, ret->choices, n, err);
    if (r == 0)
        r = hints_join(request->graph, ret->choices, n);
    if (r == 0)
        r = task_build_make(&ret->build, compile, ret->choices, &dynamic->machine, &costs);
    if (r == 0)
        limit_memory(dynamic, compile, &ret->build.graph);
    return r;
}

/* By a search, unless the same was searched before. */
static int find_plan(struct dynamic_placement *dynamic, const struct dynamic_options *options,
                     struct dynamic_placement_plan *plan) {
    const struct task_graph *graph = &plan->build.graph;
    char key[KEPT_PLAN_KEY_SIZE];
    int r;

    if (!*dynamic->folder.path || graph->n_tasks < 2 || graph->n_devices < 2)
        return dynamic_plan(graph, options, &plan->result);
    kept_plan_key(graph, options, dynamic->costs.version, key);
    r = plan_store_find(&dynamic->folder, graph, key, &plan->result);
    plan->is_kept = r == 0;
    if (r == 0)
        return 0;
    r = dynamic_plan(graph, options, &plan->result);
    /* A search that was stopped has not found what the next one would. */
    if (r == 0 && !plan->result.was_stopped)
        plan_store_keep(&dynamic->folder, graph, key, &plan->result);
    return r;
}

/* On -ENOSPC, `*ret` has the task graph, so that the error can say what would do. */
static int plan_make(struct dynamic_placement *dynamic, const struct compile *compile,
                     struct dynamic_placement_plan *ret, struct allot_error *err) {
    const struct program_request *request = compile->request;
    const struct stops stops = { &dynamic->options, request->halt };
    const struct dynamic_options options = {
        .seed = 1,
        .budget = dynamic->options.budget ? dynamic->options.budget : DYNAMIC_PLACEMENT_BUDGET,
        .is_stopped = is_stopped,
        .data = (void *)&stops,
    };
    cleanup(freep) double *wished = NULL;
    double *costs;
    int r = build_tasks(dynamic, compile, ret, err);

    if (r < 0)
        return r;
    r = hints_costs(request->graph, &ret->build, &dynamic->machine, &wished);
    if (r < 0)
        return r;
    /* The plan is made with the user's wishes, and then timed as it will be. */
    costs = ret->build.graph.cost_usec;
    ret->build.graph.cost_usec = wished ? wished : costs;
    r = find_plan(dynamic, &options, ret);
    ret->build.graph.cost_usec = costs;
    if (compile_check(compile) < 0)
        return -ECANCELED;
    return r < 0 ? r : settle_order(ret);
}

static int fail(const struct dynamic_placement *dynamic, const struct dynamic_placement_plan *plan,
                int r, struct allot_error *err) {
    if (r == -ENOSPC)
        return explain_lack(dynamic, plan, err);
    if (r == -ERANGE)
        return error_set(err, -EINVAL, "the tensors or times of this graph are too large to plan");
    return r; /* an error that has its words, or -ENOMEM and -ECANCELED, which program.c words */
}

/* ---- What the program is told ---------------------------------------------------------------- */

/* A copy of the plan that stays with the program. */
static int keep_plan(const struct compile *compile, const struct dynamic_placement_plan *plan) {
    const struct task_graph *graph = &plan->build.graph;
    const struct assignment *made = &plan->result.plan;
    struct program_plan *kept = calloc(1, sizeof(*kept));
    size_t n = graph->n_tasks;

    compile->program->plan = kept;
    if (!kept)
        return -ENOMEM;
    kept->device = malloc((n + 1) * sizeof(*kept->device));
    kept->sequence = malloc((n + 1) * sizeof(*kept->sequence));
    kept->first = malloc(((size_t)graph->n_devices + 1) * sizeof(*kept->first));
    if (!kept->device || !kept->sequence || !kept->first)
        return -ENOMEM;
    kept->expected_usec = made->makespan_usec;
    kept->n_tasks = graph->n_tasks;
    kept->n_devices = graph->n_devices;
    memcpy(kept->device, made->device, n * sizeof(*kept->device));
    memcpy(kept->sequence, made->sequence, n * sizeof(*kept->sequence));
    memcpy(kept->first, made->first, ((size_t)graph->n_devices + 1) * sizeof(*kept->first));
    return 0;
}

/* Nodes that are no task go with the first node that reads them. */
static void place_others(const struct compile *compile, const struct dynamic_placement_plan *plan,
                         uint32_t *devices) {
    const struct allot_graph *graph = compile->request->graph;

    for (uint32_t i = compile->n_nodes; i-- > 0;) {
        const struct node *node = graph_node(graph, compile->nodes[i]);
        uint32_t at = devices[node->id];

        if (at == PLACEMENT_NONE)
            at = devices[node->id] = (uint32_t)__builtin_ctzll(plan->choices[node->id].devices);
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            uint32_t from = node->inputs[k].node;

            if (devices[from] == PLACEMENT_NONE && plan->choices[from].devices >> at & 1)
                devices[from] = at;
        }
    }
}

static int tell(struct dynamic_placement *dynamic, struct compile *compile,
                const struct dynamic_placement_plan *plan) {
    const struct task_graph *graph = &plan->build.graph;
    uint32_t n = graph_n_nodes(compile->request->graph);

    compile->own_placement = malloc(((size_t)n + 1) * sizeof(*compile->own_placement));
    compile->planned = calloc((size_t)compile->n_nodes + 1, sizeof(*compile->planned));
    if (!compile->own_placement || !compile->planned)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        compile->own_placement[i] = PLACEMENT_NONE;
    for (uint32_t i = 0; i < compile->n_nodes; i++) {
        uint32_t task = plan->build.task[i], at;

        if (task == TASK_GRAPH_NONE)
            continue;
        at = plan->result.plan.device[task];
        compile->own_placement[compile->nodes[i]] = at;
        compile->planned[i] =
            (struct planned_node){ plan->start[task],
                                   plan->start[task] + task_graph_cost(graph, task, at),
                                   plan->rank[task] };
    }
    place_others(compile, plan, compile->own_placement);
    compile->placement = compile->own_placement;
    for (uint32_t i = 0; i < compile->n_nodes; i++)
        if (is_variable(graph_node(compile->request->graph, compile->nodes[i])))
            dynamic->placement->devices[compile->nodes[i]] =
                compile->own_placement[compile->nodes[i]];
    return 0;
}

int dynamic_placement_time(struct dynamic_placement *dynamic, const struct program_request *request,
                           const struct program_plan *plan, double *ret_usec) {
    cleanup(dynamic_placement_plan_done) struct dynamic_placement_plan now = { 0 };
    struct program program = { 0 };
    struct compile compile = { .request = request, .program = &program };
    enum timeline_fault fault = TIMELINE_NO_KERNEL;
    int r = compile_prune(&compile, NULL);

    if (r == 0)
        r = compile_shapes(&compile, NULL);
    if (r == 0)
        r = build_tasks(dynamic, &compile, &now, NULL);
    if (r == 0 &&
        (now.build.graph.n_tasks != plan->n_tasks || now.build.graph.n_devices != plan->n_devices))
        r = -EINVAL;
    if (r == 0)
        r = assignment_init(&now.result.plan, &now.build.graph);
    if (r == 0) {
        struct assignment *to = &now.result.plan;

        memcpy(to->device, plan->device, plan->n_tasks * sizeof(*to->device));
        memcpy(to->sequence, plan->sequence, plan->n_tasks * sizeof(*to->sequence));
        memcpy(to->first, plan->first, ((size_t)plan->n_devices + 1) * sizeof(*to->first));
        r = timeline_run(&now.build.graph, to, NULL, &fault);
        *ret_usec = r == 0 && fault == TIMELINE_OK ? to->makespan_usec : INFINITY;
    }
    free(program.asked);
    compile_done(&compile);
    return r;
}

/* ---- Variables ------------------------------------------------------------------------------- */

/* Whether the program makes a variable that it has no other use for, and that has no device. */
static bool only_initialises(const struct dynamic_placement *dynamic,
                             const struct compile *compile) {
    const struct allot_graph *graph = compile->request->graph;

    for (uint32_t i = 0; i < compile->n_nodes; i++) {
        uint32_t id = compile->nodes[i];
        bool is_used = false;

        if (!is_variable(graph_node(graph, id)) ||
            (id < dynamic->placement->n_nodes && dynamic->placement->devices[id] != PLACEMENT_NONE))
            continue;
        for (uint32_t k = i + 1; k < compile->n_nodes && !is_used; k++) {
            const struct node *node = graph_node(graph, compile->nodes[k]);
            const struct kernel *kernel = kernel_find(node, KERNEL_CPU);

            for (uint32_t j = 0; j < node->n_inputs; j++)
                is_used |=
                    node->inputs[j].node == id && !(kernel && kernel->flags & KERNEL_INITIALISES);
        }
        if (!is_used)
            return true;
    }
    return false;
}

/* A request for everything that the graph has, fed with what it leaves open. */
struct whole_request {
    struct program_request request;
    struct edge *feeds;
    struct shape *shapes;
    uint32_t *targets;
};

static void whole_done(struct whole_request *whole) {
    free(whole->feeds);
    free(whole->shapes);
    free(whole->targets);
}

static int whole_make(struct whole_request *whole, const struct placement_request *request) {
    uint32_t n = graph_n_nodes(request->graph), n_feeds = 0;

    whole->feeds = calloc((size_t)n + 1, sizeof(*whole->feeds));
    whole->shapes = calloc((size_t)n + 1, sizeof(*whole->shapes));
    whole->targets = calloc((size_t)n + 1, sizeof(*whole->targets));
    if (!whole->feeds || !whole->shapes || !whole->targets)
        return -ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        const struct node *node = graph_node(request->graph, i);
        struct shape shape;

        whole->targets[i] = i;
        if (strcmp(node->op->name, "Placeholder") != 0)
            continue;
        shape = node->outputs[0].shape;
        shape.rank = MAX(shape.rank, 0);
        for (int d = 0; d < shape.rank; d++)
            if (shape.dims[d] < 0)
                shape.dims[d] = DYNAMIC_PLACEMENT_UNKNOWN;
        whole->feeds[n_feeds] = (struct edge){ i, 0 };
        whole->shapes[n_feeds++] = shape;
    }
    whole->request = (struct program_request){
        .graph = (struct allot_graph *)request->graph,
        .feeds = whole->feeds,
        .feed_shapes = whole->shapes,
        .n_feeds = n_feeds,
        .targets = whole->targets,
        .n_targets = n,
        .devices = request->devices,
        .n_devices = request->n_devices,
        .halt = request->halt,
    };
    return 0;
}

/* Where shapes do not fit together, too much is not known or no plan fits: each variable goes to
 * the device that it may use with most memory left. */
static int place_without_plan(struct dynamic_placement *dynamic,
                              const struct placement_request *request, struct allot_error *err) {
    uint32_t n = graph_n_nodes(request->graph);
    cleanup(freep) struct placer_choice *choices = calloc((size_t)n + 1, sizeof(*choices));
    uint64_t left[TASK_GRAPH_DEVICES_MAX];
    int r = choices ? placement_choices(dynamic->placement, request, n, choices, err) : -ENOMEM;

    if (r == 0)
        r = avoid_gone(dynamic, request->graph, choices, n, err);

    for (uint32_t d = 0; d < dynamic->machine.n_devices; d++)
        left[d] = dynamic->machine.devices[d].is_gpu ? dynamic->machine.devices[d].memory_bytes : 0;
    for (uint32_t i = 0; r == 0 && i < n; i++) {
        const struct node *node = graph_node(request->graph, i);
        uint32_t best = PLACEMENT_NONE;

        if (!is_variable(node) || dynamic->placement->devices[i] != PLACEMENT_NONE)
            continue;
        for (uint32_t d = 0; d < dynamic->machine.n_devices; d++)
            if (choices[i].devices >> d & 1 && (best == PLACEMENT_NONE || left[d] > left[best]))
                best = d;
        dynamic->placement->devices[i] = best;
        left[best] -= MIN(left[best], variable_bytes(node));
    }
    return r;
}

int dynamic_placement_variables(struct dynamic_placement *dynamic,
                                const struct placement_request *request, struct allot_error *err) {
    cleanup(whole_done) struct whole_request whole = { 0 };
    cleanup(dynamic_placement_plan_done) struct dynamic_placement_plan plan = { 0 };
    struct program program = { 0 };
    struct compile compile = { .request = &whole.request, .program = &program };
    int r = whole_make(&whole, request);

    if (r == 0)
        r = compile_prune(&compile, NULL);
    if (r == 0)
        r = compile_shapes(&compile, NULL);
    if (r == 0 && (compile.asks || program.has_next))
        r = -EINVAL;
    if (r == 0)
        r = plan_make(dynamic, &compile, &plan, NULL);
    if (r == 0)
        r = tell(dynamic, &compile, &plan);
    free(program.asked);
    compile_done(&compile);
    return r == 0 || r == -ENOMEM || r == -ECANCELED ? r
                                                     : place_without_plan(dynamic, request, err);
}

int dynamic_placement_make(struct dynamic_placement *dynamic, struct compile *compile,
                           struct allot_error *err) {
    const struct program_request *request = compile->request;
    const struct placement_request wanted = { request->graph, request->devices, request->n_devices,
                                              dynamic->options.soft, request->halt };
    struct dynamic_placement_plan plan = { 0 };
    int r =
        only_initialises(dynamic, compile) ? dynamic_placement_variables(dynamic, &wanted, err) : 0;

    if (r == 0)
        r = plan_make(dynamic, compile, &plan, err);
    if (r == 0)
        r = tell(dynamic, compile, &plan);
    if (r == 0)
        r = keep_plan(compile, &plan);
    if (r < 0) {
        r = fail(dynamic, &plan, r, err);
        dynamic_placement_plan_done(&plan);
        return r;
    }
    dynamic_placement_plan_done(&dynamic->last);
    dynamic->last = plan;
    dynamic->graph = request->graph;
    if (dynamic->options.log)
        explain_log(dynamic);
    return 0;
}

/* ---- Memory ---------------------------------------------------------------------------------- */

void dynamic_placement_begin(struct dynamic_placement *dynamic) {
    memset(dynamic->reserve_bytes, 0, sizeof(dynamic->reserve_bytes));
}

bool dynamic_placement_fits(struct dynamic_placement *dynamic, const struct program *program) {
    const struct task_graph *graph = &dynamic->last.build.graph;
    bool does_fit = true;

    for (uint32_t d = 0; d < graph->n_devices; d++) {
        uint64_t bytes = program->slab_bytes ? program->slab_bytes[d] : 0;

        if (graph->memory_bytes[d] == UINT64_MAX)
            continue;
        for (uint32_t v = 0; v < program->n_values; v++)
            if (program->values[v].space == d && (program->values[v].where == VALUE_HANDLE ||
                                                  program->values[v].where == VALUE_CONSTANT))
                bytes += program->values[v].bytes;
        if (bytes > graph->memory_bytes[d]) {
            dynamic->reserve_bytes[d] += bytes - graph->memory_bytes[d];
            does_fit = false;
        }
    }
    return does_fit;
}
