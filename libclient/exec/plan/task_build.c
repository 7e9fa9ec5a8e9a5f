/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/exec/plan/task_build.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/plan/compile.h"
#include "libclient/exec/plan/cost_store.h"
#include "libclient/exec/plan/op_key.h"
#include "libclient/exec/plan/op_work.h"

enum { HOST = 0 };

/* Edges as they are found, before they are sorted. */
struct edge_list {
    struct precedence *edges;
    uint32_t n, n_max;
};

/* What was last done to a variable, by task. */
struct last_use {
    uint32_t write;
    uint32_t *reads; /* since that write */
    uint32_t n_reads, n_reads_max;
};

struct building {
    const struct compile *compile;
    const struct placer_choice *choices;
    const struct machine *machine;
    const struct task_costs *costs;
    struct task_build *build;
    struct edge_list inputs, before;
    struct last_use *lasts;   /* by local, of a variable */
    bool *is_charged;         /* by local, of a constant: its bytes are some task's */
    uint32_t *first_sum;      /* by local, of a sum between GPUs: its first task; TASK_GRAPH_NONE */
    uint32_t *first_consumer; /* of the inputs, once those of earlier nodes are known */
};

static const struct node *node_at(const struct building *b, uint32_t local) {
    return graph_node(b->compile->request->graph, b->compile->nodes[local]);
}

static bool is_op(const struct node *node, const char *name) {
    return strcmp(node->op->name, name) == 0;
}

static int edge_add(struct edge_list *list, uint32_t from, uint32_t to) {
    int r;

    if (from == TASK_GRAPH_NONE || from == to)
        return 0;
    r = compile_room(&list->edges, &list->n_max, list->n, sizeof(*list->edges));
    if (r == 0)
        list->edges[list->n++] = (struct precedence){ from, to };
    return r;
}

static uint64_t round_up(uint64_t bytes) {
    return (bytes + PROGRAM_ALIGNMENT - 1) / PROGRAM_ALIGNMENT * PROGRAM_ALIGNMENT;
}

static uint64_t port_bytes(const struct port *port) {
    int64_t n = port->is_open ? 0 : shape_count(&port->shape);

    return n > 0 ? round_up((uint64_t)n * dtype_bytes(port->dtype)) : 0;
}

/* A kernel of the node, on the GPU or else the CPU: this file asks what is the same on both. */
static const struct kernel *kernel_of(const struct node *node) {
    const struct kernel *kernel = kernel_find(node, KERNEL_GPU);

    return kernel ? kernel : kernel_find(node, KERNEL_CPU);
}

static bool is_alias(const struct node *node) {
    const struct kernel *kernel = kernel_of(node);

    return kernel && kernel->flags & KERNEL_ALIAS;
}

/* ---- Tasks ----------------------------------------------------------------------------------- */

static uint32_t task_new(struct building *b, uint32_t node, uint32_t group, uint64_t devices,
                         const struct cost_work *work) {
    struct task_graph *g = &b->build->graph;
    uint32_t t = g->n_tasks++;

    b->build->node[t] = node;
    g->group[t] = group;
    g->pin[t] = TASK_GRAPH_NONE;
    for (uint32_t d = 0; d < g->n_devices; d++)
        g->cost_usec[(size_t)t * g->n_devices + d] =
            !(devices >> d & 1) ? INFINITY
            : work              ? cost_model_usec(&b->machine->devices[d], work)
                                : 0;
    return t;
}

/* What is known better than by the model: what the user says, or what was measured. */
static void settle_costs(struct building *b, uint32_t local, uint32_t task) {
    const struct node *node = node_at(b, local);
    const double told_usec = node->hint ? node->hint->cost_usec : 0;
    struct task_graph *g = &b->build->graph;
    uint64_t key = b->costs->store && told_usec <= 0 ? op_key_of(b->compile, local) : 0;

    for (uint32_t d = 0; d < g->n_devices; d++) {
        double *cost = &g->cost_usec[(size_t)task * g->n_devices + d];
        uint8_t *source = &b->build->sources[(size_t)task * g->n_devices + d];

        if (!isfinite(*cost))
            continue;
        *source = TASK_COST_MODELLED;
        if (told_usec > 0) {
            *cost = told_usec;
            *source = TASK_COST_TOLD;
        } else if (key && cost_store_find(b->costs->store, b->costs->kinds[d], key, cost))
            *source = TASK_COST_MEASURED;
    }
}

/* A renamed input is what it was, unless the user wants it elsewhere. */
static bool joins_input(const struct building *b, const struct node *node) {
    const struct compile *compile = b->compile;
    uint32_t from = compile->local[node->inputs[0].node];
    uint32_t task = b->build->task[from];

    return task != TASK_GRAPH_NONE && node->n_controls == 0 &&
           b->choices[node->id].group == node->id && *node->device == '\0' && node->n_colocate == 0;
}

/*
 * A sum over replicas that GPUs make among themselves (exec/plan/all_reduce.c) is two tasks on each
 * of them. Between its two tasks and those of the next GPU, a ring of them sends as many bytes as
 * the steps of the sum do: the first sends the replica's numbers, the second what is left. What a
 * step takes besides its bytes counts as bytes, too.
 */
static uint32_t n_replicas_of(const struct node *node) {
    return is_op(node, "AllReduce") ? (uint32_t)node_int(node, "replicas") : 0;
}

static uint32_t n_sum_tasks(const struct node *node) {
    return 2 * n_replicas_of(node);
}

/* The devices that the replica's first input may be made on. */
static const struct placer_choice *replica_choice(const struct building *b, const struct node *node,
                                                  uint32_t replica) {
    return &b->choices[node->inputs[replica * (node->n_inputs / n_replicas_of(node))].node];
}

/* Whether the replicas are on one GPU each, and on no other. */
static bool is_between_gpus(const struct building *b, const struct node *node) {
    uint64_t seen = UINT64_C(1) << HOST;

    for (uint32_t i = 0; i < n_replicas_of(node); i++) {
        uint64_t devices = replica_choice(b, node, i)->devices;

        if (__builtin_popcountll(devices) != 1 || seen & devices)
            return false;
        seen |= devices;
    }
    return n_replicas_of(node) > 1;
}

static void make_sum(struct building *b, uint32_t local) {
    const struct compile *compile = b->compile;
    const struct node *node = node_at(b, local);
    const struct port *ports = &compile->ports[compile->first_port[local]];
    struct task_graph *g = &b->build->graph;
    uint32_t n = n_replicas_of(node), first = g->n_tasks;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < node->n_inputs / n; i++)
        bytes += port_bytes(&ports[i]);
    for (uint32_t i = 0; i < 2 * n; i++) {
        const struct placer_choice *choice = replica_choice(b, node, i % n);
        uint32_t here = (uint32_t)__builtin_ctzll(choice->devices);
        uint32_t next = (uint32_t)__builtin_ctzll(replica_choice(b, node, (i + 1) % n)->devices);
        const struct task_link *link = machine_link(b->machine, here, next);
        uint32_t n_steps = compile_all_reduce_steps(bytes, n);
        struct cost_work work = { .format = MACHINE_F32,
                                  .bytes = 3.0 * (double)bytes * (n - 1) / n };
        uint32_t t = task_new(b, node->id, choice->group, choice->devices, i < n ? &work : NULL);

        g->output_bytes[t] = bytes;
        if (i < n)
            g->output_bytes[t] =
                bytes / n * (n - 2) + (uint64_t)((n_steps - MIN(n_steps, 2u)) * link->latency_usec *
                                                 link->bytes_per_usec);
        else
            g->own_bytes[t] = bytes;
    }
    b->first_sum[local] = first;
    b->build->task[local] = first + n;
}

static void make_task(struct building *b, uint32_t local) {
    const struct compile *compile = b->compile;
    const struct node *node = node_at(b, local);
    const struct placer_choice *choice = &b->choices[node->id];
    const struct port *ports = &compile->ports[compile->first_port[local]];
    struct task_graph *g = &b->build->graph;
    const struct kernel *kernel = kernel_of(node);
    struct cost_work work;
    uint64_t bytes = 0;
    uint32_t t;

    for (uint32_t i = 0; i < node->n_outputs; i++)
        bytes += port_bytes(&ports[i]);
    if (!compile->is_needed[local]) { /* it is fed */
        t = task_new(b, node->id, TASK_GRAPH_NONE, UINT64_C(1) << HOST, NULL);
        b->build->task[local] = t;
        g->output_bytes[t] = bytes;
        return;
    }
    if (compile->is_later[local] || is_op(node, "Const"))
        return;
    if (is_alias(node) && joins_input(b, node)) {
        b->build->task[local] = b->build->task[compile->local[node->inputs[0].node]];
        return;
    }
    if (is_between_gpus(b, node)) {
        make_sum(b, local);
        return;
    }
    work = op_work_of(compile, local);
    work.is_nothing |= is_op(node, "Variable") || is_op(node, "ReadVariable");
    t = task_new(b, node->id, choice->group, choice->devices, &work);
    b->build->task[local] = t;
    if (!work.is_nothing)
        settle_costs(b, local, t);
    if (is_op(node, "Variable"))
        g->resident_bytes[t] = bytes;
    else
        g->output_bytes[t] = bytes;
    /* What lies in a variable has its bytes already. */
    if (!is_op(node, "Variable") && !is_op(node, "ReadVariable") && !(kernel && kernel->writes))
        g->own_bytes[t] = bytes;
}

/* ---- Edges ----------------------------------------------------------------------------------- */

static bool is_variable(const struct building *b, struct edge edge) {
    return graph_output(b->compile->request->graph, edge)->is_variable;
}

/* Consumers of a read so far, in graph order: the node's own edges come last. */
static int after_readers(struct building *b, uint32_t read, uint32_t writer) {
    int r = edge_add(&b->before, read, writer);

    for (uint32_t e = b->first_consumer[read]; r == 0 && e < b->inputs.n; e++)
        if (b->inputs.edges[e].first == read && b->inputs.edges[e].then != writer)
            r = edge_add(&b->before, b->inputs.edges[e].then, writer);
    return r;
}

static int use_variable(struct building *b, const struct node *node, struct edge edge,
                        uint32_t task) {
    uint32_t variable = b->compile->local[edge.node];
    struct last_use *last = &b->lasts[variable];
    int r = edge_add(&b->before, b->build->task[variable], task);

    if (r == 0)
        r = edge_add(&b->before, last->write, task);
    if (r < 0)
        return r;
    if (is_op(node, "ReadVariable")) {
        r = compile_room(&last->reads, &last->n_reads_max, last->n_reads, sizeof(*last->reads));
        if (r == 0)
            last->reads[last->n_reads++] = task;
        return r;
    }
    for (uint32_t i = 0; r == 0 && i < last->n_reads; i++)
        r = after_readers(b, last->reads[i], task);
    last->write = task;
    last->n_reads = 0;
    return r;
}

/* The bytes of a constant count once, with the first task that uses it. */
static void use_constant(struct building *b, uint32_t local, uint32_t task) {
    if (b->is_charged[local])
        return;
    b->is_charged[local] = true;
    b->build->graph.resident_bytes[task] +=
        port_bytes(&b->compile->ports[b->compile->first_port[local]]);
}

/* The task that makes this output; TASK_GRAPH_NONE. */
static uint32_t task_of(const struct building *b, struct edge edge) {
    uint32_t local = b->compile->local[edge.node];
    const struct node *node = node_at(b, local);

    if (b->first_sum[local] == TASK_GRAPH_NONE)
        return b->build->task[local];
    return b->first_sum[local] + n_replicas_of(node) +
           edge.output / (node->n_inputs / n_replicas_of(node));
}

static int connect_input(struct building *b, const struct node *node, uint32_t i, uint32_t task) {
    const struct compile *compile = b->compile;
    struct edge edge = node->inputs[i];
    uint32_t from = compile->local[edge.node];
    const struct kernel *kernel = kernel_of(node);
    uint32_t argument = compile_argument(node, node->op->inputs, node->op->n_inputs, i);

    if (is_variable(b, edge))
        return use_variable(b, node, edge, task);
    if (kernel && kernel->shape_inputs >> argument & 1)
        return 0;
    if (b->build->task[from] == TASK_GRAPH_NONE) {
        if (is_op(node_at(b, from), "Const"))
            use_constant(b, from, task);
        return 0;
    }
    return edge_add(&b->inputs, task_of(b, edge), task);
}

/* Each replica's own numbers and those of the one before it come first; then what both have. No
 * sum begins before all replicas have theirs. */
static int connect_sum(struct building *b, const struct node *node, uint32_t first) {
    uint32_t n = n_replicas_of(node), n_tensors = node->n_inputs / n;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < n; i++) {
        uint32_t before = (i + n - 1) % n;

        for (uint32_t k = 0; r == 0 && k < node->n_inputs; k++) {
            uint32_t from = task_of(b, node->inputs[k]), whose = k / n_tensors;

            r = edge_add(whose == i || whose == before ? &b->inputs : &b->before, from, first + i);
        }
        for (uint32_t k = 0; r == 0 && k < node->n_controls; k++)
            if (b->compile->local[node->controls[k]] != PROGRAM_NONE)
                r = edge_add(&b->before, b->build->task[b->compile->local[node->controls[k]]],
                             first + i);
        if (r == 0)
            r = edge_add(&b->inputs, first + i, first + n + i);
        if (r == 0)
            r = edge_add(&b->inputs, first + before, first + n + i);
    }
    return r;
}

static int connect_node(struct building *b, uint32_t local) {
    const struct compile *compile = b->compile;
    const struct node *node = node_at(b, local);
    uint32_t task = b->build->task[local];
    int r = 0;

    if (task == TASK_GRAPH_NONE || b->build->node[task] != node->id || !compile->is_needed[local])
        return 0;
    b->first_consumer[task] = b->inputs.n;
    if (b->first_sum[local] != TASK_GRAPH_NONE)
        return connect_sum(b, node, b->first_sum[local]);
    for (uint32_t i = 0; r == 0 && i < node->n_inputs; i++)
        r = connect_input(b, node, i, task);
    for (uint32_t i = 0; r == 0 && i < node->n_controls; i++) {
        uint32_t from = compile->local[node->controls[i]];

        if (from != PROGRAM_NONE)
            r = edge_add(&b->before, b->build->task[from], task);
    }
    return r;
}

static int make_fetches(struct building *b) {
    const struct program_request *request = b->compile->request;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < request->n_fetches; i++) {
        struct edge edge = request->fetches[i];
        uint32_t from = task_of(b, edge), t;

        if (from == TASK_GRAPH_NONE || is_variable(b, edge))
            continue;
        t = task_new(b, edge.node, TASK_GRAPH_NONE, UINT64_C(1) << HOST, NULL);
        b->build->is_fetch[t] = true;
        r = edge_add(&b->inputs, from, t);
    }
    return r;
}

static int by_target(const void *a, const void *b) {
    const struct precedence *x = a, *y = b;

    if (x->then != y->then)
        return x->then < y->then ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* Sorted, each once. */
static int lists_make(struct order_lists *ret, struct edge_list *list, uint32_t n_tasks) {
    uint32_t *first = calloc((size_t)n_tasks + 2, sizeof(*first));
    uint32_t *items = calloc((size_t)list->n + 1, sizeof(*items));
    uint32_t n = 0;

    *ret = (struct order_lists){ first, items };
    if (!first || !items)
        return -ENOMEM;
    if (list->n > 0)
        qsort(list->edges, list->n, sizeof(*list->edges), by_target);
    for (uint32_t e = 0; e < list->n; e++) {
        if (e > 0 && by_target(&list->edges[e], &list->edges[e - 1]) == 0)
            continue;
        items[n++] = list->edges[e].first;
        first[list->edges[e].then + 1] = n;
    }
    for (uint32_t t = 0; t < n_tasks; t++)
        first[t + 1] = MAX(first[t + 1], first[t]);
    return 0;
}

/* ---- The whole ------------------------------------------------------------------------------- */

static int make_room(struct building *b) {
    struct task_build *build = b->build;
    struct task_graph *g = &build->graph;
    size_t n = (size_t)b->compile->n_nodes + b->compile->request->n_fetches + 1;

    for (uint32_t i = 0; i < b->compile->n_nodes; i++)
        n += n_sum_tasks(node_at(b, i));
    build->task = malloc(n * sizeof(*build->task));
    build->node = calloc(n, sizeof(*build->node));
    build->is_fetch = calloc(n, sizeof(*build->is_fetch));
    build->sources = calloc(n * g->n_devices, sizeof(*build->sources));
    g->cost_usec = calloc(n * g->n_devices, sizeof(*g->cost_usec));
    g->output_bytes = calloc(n, sizeof(*g->output_bytes));
    g->own_bytes = calloc(n, sizeof(*g->own_bytes));
    g->resident_bytes = calloc(n, sizeof(*g->resident_bytes));
    g->group = calloc(n, sizeof(*g->group));
    g->pin = calloc(n, sizeof(*g->pin));
    b->lasts = calloc(n, sizeof(*b->lasts));
    b->is_charged = calloc(n, sizeof(*b->is_charged));
    b->first_sum = malloc(n * sizeof(*b->first_sum));
    b->first_consumer = calloc(n, sizeof(*b->first_consumer));
    if (!build->task || !build->node || !build->is_fetch || !build->sources || !g->cost_usec ||
        !g->output_bytes || !g->own_bytes || !g->resident_bytes || !g->group || !g->pin ||
        !b->lasts || !b->is_charged || !b->first_sum || !b->first_consumer)
        return -ENOMEM;
    for (uint32_t i = 0; i < b->compile->n_nodes; i++) {
        build->task[i] = b->first_sum[i] = TASK_GRAPH_NONE;
        b->lasts[i].write = TASK_GRAPH_NONE;
    }
    return 0;
}

static void building_done(struct building *b) {
    for (uint32_t i = 0; b->lasts && i < b->compile->n_nodes; i++)
        free(b->lasts[i].reads);
    free(b->lasts);
    free(b->is_charged);
    free(b->first_sum);
    free(b->first_consumer);
    free(b->inputs.edges);
    free(b->before.edges);
}

int task_build_make(struct task_build *ret, const struct compile *compile,
                    const struct placer_choice *choices, const struct machine *machine,
                    const struct task_costs *costs) {
    cleanup(building_done) struct building b = { compile, choices, machine, costs, ret };
    int r;

    *ret = (struct task_build){ 0 };
    r = machine_apply(machine, &ret->graph);
    if (r == 0)
        r = make_room(&b);
    for (uint32_t i = 0; r == 0 && i < compile->n_nodes; i++) {
        r = compile_check(compile);
        if (r == 0)
            make_task(&b, i);
    }
    for (uint32_t i = 0; r == 0 && i < compile->n_nodes; i++)
        r = connect_node(&b, i);
    if (r == 0)
        r = make_fetches(&b);
    if (r == 0)
        r = lists_make(&ret->graph.inputs, &b.inputs, ret->graph.n_tasks);
    if (r == 0)
        r = lists_make(&ret->graph.before, &b.before, ret->graph.n_tasks);
    return r < 0 ? r : task_graph_complete(&ret->graph);
}

void task_build_done(struct task_build *build) {
    task_graph_done(&build->graph);
    free(build->task);
    free(build->node);
    free(build->is_fetch);
    free(build->sources);
    *build = (struct task_build){ 0 };
}
