/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Strategy: the mirrored strategy, as pieces of graph.
 *
 * Each replica's backward pass begins with the part of the batch that it has, so the sum of all
 * gradients is that of the whole batch. Gradients are added up in groups, in the order in which the
 * backward pass makes them: the first group is under way between the devices while the rest is
 * computed. The optimizer's steps wait for the whole backward pass of their replica, so that they
 * never stand before it on a stream and hold it up.
 */
#include "libclient/allot/strategy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/allot/config.h"
#include "libclient/api/helper.h"
#include "libclient/api/replica.h"
#include "libclient/api/strategy.h"
#include "libclient/graph/scope.h"

/* Gradients that are added up together: enough that links are busy, few enough that the first ones
 * need not wait long. */
enum { GROUP_BYTES = 32 << 20 };

struct allot_strategy {
    struct replica_scope scope;
    bool is_open; /* between push and pop */
};

static const struct allot_output none = { NULL, 0 };

static struct allot_output failed(struct allot_graph *graph, const struct allot_error *err) {
    handle_fail(graph, err);
    return none;
}

/* ---- The strategy and its scope -------------------------------------------------------------- */

/* Device 0 as a node has it that is made in a scope of that device. */
static int name_first(struct replica_scope *scope, struct allot_error *err) {
    struct scope_ids controls = { 0 }, colocate = { 0 };
    int r = scope_push_bare(scope->graph, err);

    if (r < 0)
        return r;
    r = scope_apply(scope->graph, "NoOp", "", scope->devices[0], &controls, &colocate,
                    &scope->first, err);
    scope_ids_done(&controls);
    scope_ids_done(&colocate);
    scope_pop(scope->graph);
    return r;
}

static int take_devices(struct replica_scope *scope, const char *const *devices, size_t n,
                        struct allot_error *err) {
    const size_t n_gpus = n ? 0 : allot_devices(NULL, 0);
    char name[32];

    /* The CPU is the first of the list. */
    scope->n = n ? n : n_gpus > 1 ? n_gpus - 1 : 1;
    scope->devices = calloc(scope->n, sizeof(char *));
    scope->copies = calloc(scope->n, sizeof(*scope->copies));
    if (!scope->devices || !scope->copies)
        return error_set(err, -ENOMEM, "no host memory for a strategy");
    for (size_t i = 0; i < scope->n; i++) {
        snprintf(name, sizeof(name), n_gpus > 1 ? "/device:GPU:%zu" : "/device:CPU:%zu", i);
        if (n && !devices[i])
            return error_null(err, "device of a strategy");
        scope->devices[i] = strdup(n ? devices[i] : name);
        if (!scope->devices[i])
            return error_set(err, -ENOMEM, "no host memory for a strategy");
    }
    return name_first(scope, err);
}

struct allot_strategy *allot_mirrored(struct allot_graph *graph, const char *const *devices,
                                      size_t n) {
    struct allot_strategy *strategy;
    struct allot_error err = { 0 };
    int r = handle_check(graph, &err);

    if (r == 0 && n && !devices)
        r = error_null(&err, "array of devices");
    strategy = r == 0 ? calloc(1, sizeof(*strategy)) : NULL;
    if (r == 0 && !strategy)
        r = error_set(&err, -ENOMEM, "no host memory for a strategy");
    if (r == 0) {
        strategy->scope.graph = graph_ref(graph);
        strategy->scope.batch = GRAPH_NO_EDGE;
        r = take_devices(&strategy->scope, devices, n, &err);
    }
    if (r == 0)
        return strategy;
    handle_fail(graph, &err);
    return allot_strategy_free(strategy);
}

struct allot_strategy *allot_strategy_free(struct allot_strategy *strategy) {
    if (!strategy)
        return NULL;
    for (size_t i = 0; strategy->scope.devices && i < strategy->scope.n; i++)
        free(strategy->scope.devices[i]);
    for (size_t i = 0; strategy->scope.copies && i < strategy->scope.n; i++)
        map_done(&strategy->scope.copies[i]);
    free(strategy->scope.devices);
    free(strategy->scope.copies);
    free(strategy->scope.first);
    free(strategy->scope.ranges);
    graph_unref(strategy->scope.graph);
    free(strategy);
    return NULL;
}

const char *const *strategy_devices(const struct allot_strategy *strategy) {
    return (const char *const *)strategy->scope.devices;
}

struct allot_strategy *strategy_again(const struct allot_strategy *from, struct allot_graph *graph,
                                      const char *const *devices, size_t n) {
    struct allot_strategy *strategy = allot_mirrored(graph, devices, n);
    const size_t n_ranges = from->scope.n_ranges;
    struct allot_error err;

    if (!strategy || n_ranges == 0)
        return strategy;
    strategy->scope.ranges = calloc(n_ranges, sizeof(*strategy->scope.ranges));
    if (!strategy->scope.ranges) {
        error_set(&err, -ENOMEM, "no host memory for a strategy");
        handle_fail(graph, &err);
        return allot_strategy_free(strategy);
    }
    memcpy(strategy->scope.ranges, from->scope.ranges, n_ranges * sizeof(*strategy->scope.ranges));
    strategy->scope.n_ranges = n_ranges;
    return strategy;
}

size_t allot_strategy_n_replicas(const struct allot_strategy *strategy) {
    return strategy ? strategy->scope.n : 0;
}

int allot_strategy_push(struct allot_strategy *strategy) {
    struct replica_scope *scope;
    struct replica_range *ranges;
    struct allot_error err;

    if (!strategy)
        return -EINVAL;
    scope = &strategy->scope;
    ranges = realloc(scope->ranges, (scope->n_ranges + 1) * sizeof(*ranges));
    if (ranges)
        scope->ranges = ranges;
    if (!ranges || strategy->is_open)
        return handle_fail(
            scope->graph,
            (error_set(&err, ranges ? -EINVAL : -ENOMEM,
                       ranges ? "the scope of a strategy is open already" : "no host memory"),
             &err));
    scope->ranges[scope->n_ranges++] =
        (struct replica_range){ graph_n_nodes(scope->graph), UINT32_MAX };
    strategy->is_open = true;
    return allot_device_push(scope->graph, scope->devices[0]);
}

void allot_strategy_pop(struct allot_strategy *strategy) {
    if (!strategy || !strategy->is_open)
        return;
    strategy->is_open = false;
    allot_device_pop(strategy->scope.graph);
    strategy->scope.ranges[strategy->scope.n_ranges - 1].end = graph_n_nodes(strategy->scope.graph);
}

/* ---- Values of replicas ---------------------------------------------------------------------- */

static int check_output(const struct allot_strategy *strategy, struct allot_output output,
                        struct allot_error *err) {
    const struct allot_graph *graph = strategy ? strategy->scope.graph : NULL;

    if (!strategy)
        return error_null(err, "strategy");
    if (!output.node)
        return error_set(err, -EINVAL, "an output that was given to a strategy failed before");
    if (handle_node(output.node)->graph != graph)
        return error_set(err, -EINVAL, "'%s' is a node of another graph",
                         allot_node_name(output.node));
    if (output.index < 0 || output.index >= allot_node_n_outputs(output.node))
        return error_set(err, -EINVAL, "'%s' has no output %d", allot_node_name(output.node),
                         output.index);
    return 0;
}

static int copies_of(struct allot_strategy *strategy, struct allot_output output,
                     struct allot_output **ret, struct allot_error *err) {
    struct replica_scope *scope = strategy ? &strategy->scope : NULL;
    cleanup(freep) struct edge *edges = NULL;
    int r = check_output(strategy, output, err);

    if (r < 0)
        return r;
    edges = calloc(scope->n, sizeof(*edges));
    *ret = calloc(scope->n, sizeof(**ret));
    if (!edges || !*ret)
        return error_set(err, -ENOMEM, "no host memory for replicas");
    r = replica_copy(scope, handle_edge(output), edges, err);
    for (size_t i = 0; r == 0 && i < scope->n; i++)
        (*ret)[i] = handle_output(scope->graph, edges[i]);
    return r;
}

struct allot_output allot_strategy_replica(struct allot_strategy *strategy,
                                           struct allot_output output, size_t i) {
    struct allot_graph *graph = handle_graph(&output, 1);
    cleanup(freep) struct allot_output *copies = NULL;
    struct allot_error err = { 0 };
    int r = copies_of(strategy, output, &copies, &err);

    if (r == 0 && i >= strategy->scope.n)
        r = error_set(&err, -EINVAL, "there is no replica %zu of %zu", i, strategy->scope.n);
    return r < 0 ? failed(graph, &err) : copies[i];
}

/* The part of the batch that a replica has. */
static struct allot_output weight_of(const struct replica_scope *scope, size_t replica,
                                     enum allot_dtype dtype) {
    struct allot_output batch = handle_output(scope->graph, scope->batch);

    if (!batch.node)
        return allot_scalar(scope->graph, dtype, 1 / (double)scope->n);
    return helper_with(
        scope->graph, NULL, "ShardWeight", &batch, 1, { "T", attr_dtype((enum dtype)dtype) },
        { "index", attr_int((int64_t)replica) }, { "count", attr_int((int64_t)scope->n) });
}

struct allot_output allot_strategy_mean(struct allot_strategy *strategy,
                                        struct allot_output value) {
    struct allot_graph *graph = handle_graph(&value, 1);
    cleanup(freep) struct allot_output *copies = NULL;
    struct allot_output mean = none;
    struct allot_error err = { 0 };

    if (copies_of(strategy, value, &copies, &err) < 0)
        return failed(graph, &err);
    for (size_t i = 0; i < strategy->scope.n; i++) {
        struct allot_output zero = allot_scalar(graph, allot_output_dtype(value), 0);

        allot_with_device(graph, strategy->scope.devices[i]) {
            struct allot_output weight = weight_of(&strategy->scope, i, allot_output_dtype(value));

            /* The mean of no rows is no number. */
            copies[i] =
                allot_select(allot_greater(weight, zero), allot_mul(copies[i], weight), zero);
        }
    }
    allot_with_device(graph, strategy->scope.devices[0]) {
        mean = allot_add_n(copies, strategy->scope.n);
    }
    return mean;
}

/* ---- One step of all replicas ---------------------------------------------------------------- */

struct training {
    struct allot_strategy *strategy;
    struct allot_graph *graph;
    size_t n;                       /* replicas */
    size_t n_mirrored, n_variables; /* mirrored ones first */
    struct allot_output *variables; /* by replica and variable */
    struct allot_output *gradients; /* likewise; no node: none */
    size_t *order;                  /* mirrored variables, in the order of their gradients */
    struct allot_node **applied;
};

static void training_done(struct training *training) {
    free(training->variables);
    free(training->gradients);
    free(training->order);
    free(training->applied);
}

static struct allot_output *gradient_at(const struct training *training, size_t replica,
                                        size_t variable) {
    return &training->gradients[replica * training->n_variables + variable];
}

/* The variables of the graph that are no copies. */
static int list_variables(struct training *training, struct allot_error *err) {
    const struct replica_scope *scope = &training->strategy->scope;
    const uint32_t n_nodes = graph_n_nodes(scope->graph);
    const size_t most = scope->graph->variables.n + 1;

    training->variables = calloc(training->n * most, sizeof(struct allot_output));
    training->gradients = calloc(training->n * most, sizeof(struct allot_output));
    training->order = calloc(most, sizeof(size_t));
    training->applied = calloc(training->n + 1, sizeof(struct allot_node *));
    if (!training->variables || !training->gradients || !training->order || !training->applied)
        return error_set(err, -ENOMEM, "no host memory for a training step");
    for (int mirrored = 1; mirrored >= 0; mirrored--) {
        for (uint32_t id = 0; id < n_nodes; id++) {
            const struct graph_variable *variable = graph_variable(scope->graph, id);

            /* What the loss does not depend on has no copies and no gradient. */
            if (variable && variable->mirror_of == UINT32_MAX &&
                replica_is_in(scope, id) == mirrored &&
                (!mirrored || map_find(&scope->copies[0], id)))
                training->variables[training->n_variables++] =
                    handle_output(scope->graph, (struct edge){ id, 0 });
        }
        if (mirrored)
            training->n_mirrored = training->n_variables;
    }
    for (size_t i = 1; i < training->n; i++)
        for (size_t v = 0; v < training->n_variables; v++)
            training->variables[i * training->n_variables + v] = handle_output(
                scope->graph,
                (struct edge){ replica_of(scope, handle_node(training->variables[v].node)->id, i),
                               0 });
    return 0;
}

static int add_gradients(struct training *training, const struct allot_output *losses,
                         struct allot_error *err) {
    const struct replica_scope *scope = &training->strategy->scope;
    int r = 0;

    for (size_t i = 0; r == 0 && i < training->n; i++) {
        struct allot_output weight = none;

        allot_with_device(training->graph, scope->devices[i]) {
            weight = weight_of(scope, i, allot_output_dtype(losses[i]));
        }
        if (!weight.node)
            return allot_graph_error(training->graph, err);
        r = allot_gradients(&losses[i], 1, &training->variables[i * training->n_variables],
                            training->n_variables, &weight, gradient_at(training, i, 0), err);
    }
    return r;
}

/* Into the order in which the backward pass makes them. Insertion will do: there are few variables,
 * and most are in order already. */
static size_t sort_gradients(struct training *training) {
    size_t n = 0;

    for (size_t v = 0; v < training->n_mirrored; v++) {
        const struct allot_node *own = gradient_at(training, 0, v)->node;
        size_t at = n;

        if (!own)
            continue;
        for (; at > 0 && handle_node(gradient_at(training, 0, training->order[at - 1])->node)->id >
                             handle_node(own)->id;
             at--)
            training->order[at] = training->order[at - 1];
        training->order[at] = v;
        n++;
    }
    return n;
}

static uint64_t bytes_of(struct allot_output output) {
    const struct node_output *own = &handle_node(output.node)->outputs[output.index];

    return (uint64_t)shape_count(&own->shape) * dtype_bytes(own->dtype);
}

/* Gradients order[first] to order[end - 1] become their sums over all replicas. */
static int reduce_group(struct training *training, const size_t *group, size_t n_group,
                        struct allot_error *err) {
    const struct build_attr attr = { "replicas", attr_int((int64_t)training->n) };
    cleanup(freep) struct allot_output *inputs = calloc(training->n * n_group, sizeof(*inputs));
    struct allot_output made;

    if (!inputs)
        return error_set(err, -ENOMEM, "no host memory for a training step");
    for (size_t i = 0; i < training->n; i++)
        for (size_t g = 0; g < n_group; g++)
            inputs[i * n_group + g] = *gradient_at(training, i, group[g]);
    made = helper_node(training->graph, "all_reduce", "AllReduce", inputs, training->n * n_group,
                       &attr, 1);
    if (!made.node)
        return allot_graph_error(training->graph, err);
    for (size_t i = 0; i < training->n; i++)
        for (size_t g = 0; g < n_group; g++)
            *gradient_at(training, i, group[g]) =
                (struct allot_output){ made.node, (int)(i * n_group + g) };
    return 0;
}

/* Groups are of one type each. */
static int reduce_all(struct training *training, size_t n_sorted, struct allot_error *err) {
    cleanup(freep) size_t *group = calloc(n_sorted + 1, sizeof(*group));
    cleanup(freep) bool *is_done = calloc(n_sorted + 1, sizeof(*is_done));
    int r = group && is_done ? 0 : error_set(err, -ENOMEM, "no host memory for a training step");

    for (size_t first = 0; r == 0 && first < n_sorted; first++) {
        size_t n_group = 0;
        uint64_t bytes = 0;

        for (size_t k = first; k < n_sorted && bytes < GROUP_BYTES; k++) {
            const size_t v = training->order[k];

            if (is_done[k] || allot_output_dtype(training->variables[v]) !=
                                  allot_output_dtype(training->variables[training->order[first]]))
                continue;
            is_done[k] = true;
            group[n_group++] = v;
            bytes += bytes_of(training->variables[v]);
        }
        if (n_group > 0)
            r = reduce_group(training, group, n_group, err);
    }
    return r;
}

/* The optimizer's variables for replica `i`, made from `begin` on, are copies of those for replica
 * 0, which were made from `first` on: in the same order. */
static void note_mirrors(struct allot_graph *graph, uint32_t first, uint32_t begin) {
    uint32_t own = first;

    for (uint32_t id = begin; id < graph_n_nodes(graph); id++) {
        struct graph_variable *variable = graph_variable(graph, id);

        if (!variable)
            continue;
        while (!graph_variable(graph, own))
            own++;
        variable->mirror_of = own++;
    }
}

static struct allot_node *apply_replica(struct training *training,
                                        struct allot_optimizer *optimizer, size_t replica,
                                        struct allot_node *const *after, size_t n_after) {
    struct allot_graph *graph = training->graph;
    struct allot_node *made = NULL;

    allot_with_device(graph, training->strategy->scope.devices[replica]) {
        allot_control_push(graph, after, n_after);
        made = allot_apply_gradients(optimizer, gradient_at(training, replica, 0),
                                     &training->variables[replica * training->n_variables],
                                     training->n_mirrored);
        allot_control_pop(graph);
    }
    return made;
}

/* The nodes that end the backward pass of a replica: what makes its gradients. */
static size_t last_nodes(const struct training *training, size_t replica, size_t n_sorted,
                         struct allot_node **ret) {
    for (size_t k = 0; k < n_sorted; k++)
        ret[k] = gradient_at(training, replica, training->order[k])->node;
    return n_sorted;
}

/* Variables that are not mirrored: one step with the sum of all. */
static struct allot_node *apply_single(struct training *training, struct allot_optimizer *optimizer,
                                       struct allot_error *err) {
    const size_t first = training->n_mirrored, n = training->n_variables - first;
    cleanup(freep) struct allot_output *parts = calloc(training->n + 1, sizeof(*parts));
    cleanup(freep) struct allot_output *sums = calloc(n + 1, sizeof(*sums));

    if (!parts || !sums) {
        error_set(err, -ENOMEM, "no host memory for a training step");
        return NULL;
    }
    for (size_t v = 0; v < n; v++) {
        if (!gradient_at(training, 0, first + v)->node)
            continue;
        for (size_t i = 0; i < training->n; i++)
            parts[i] = *gradient_at(training, i, first + v);
        if (allot_colocate_push(training->graph, training->variables[first + v].node) < 0)
            return NULL;
        sums[v] = allot_add_n(parts, training->n);
        allot_colocate_pop(training->graph);
    }
    return allot_apply_gradients(optimizer, sums, &training->variables[first], n);
}

static bool has_single(const struct training *training) {
    for (size_t v = training->n_mirrored; v < training->n_variables; v++)
        if (gradient_at(training, 0, v)->node)
            return true;
    return false;
}

static int apply_all(struct training *training, struct allot_optimizer *optimizer, size_t n_sorted,
                     struct allot_error *err) {
    cleanup(freep) struct allot_node **ends =
        calloc(training->n * n_sorted + 1, sizeof(struct allot_node *));
    struct allot_graph *graph = training->graph;
    uint32_t first = 0;
    int r = ends ? 0 : error_set(err, -ENOMEM, "no host memory for a training step");

    for (size_t i = 0; r == 0 && i < training->n; i++)
        last_nodes(training, i, n_sorted, &ends[i * n_sorted]);
    if (r == 0 && n_sorted > 0)
        r = reduce_all(training, n_sorted, err);
    for (size_t i = 0; r == 0 && n_sorted > 0 && i < training->n; i++) {
        const uint32_t begin = graph_n_nodes(graph);

        training->applied[i] = apply_replica(training, optimizer, i, &ends[i * n_sorted], n_sorted);
        if (!training->applied[i])
            return allot_graph_error(graph, err);
        if (i == 0)
            first = begin;
        else
            note_mirrors(graph, first, begin);
    }
    return r;
}

static int train(struct training *training, struct allot_optimizer *optimizer,
                 struct allot_output loss, struct allot_node **ret, struct allot_error *err) {
    cleanup(freep) struct allot_output *losses = NULL;
    size_t n_sorted, n_applied = 0;
    int r = copies_of(training->strategy, loss, &losses, err);

    if (r == 0 && allot_output_shape(loss, NULL) > 0)
        r = error_set(err, -EINVAL,
                      "the loss '%s' must be a single number: the mean over the rows of the batch",
                      allot_node_name(loss.node));
    if (r == 0)
        r = list_variables(training, err);
    if (r == 0)
        r = add_gradients(training, losses, err);
    if (r < 0)
        return r;
    n_sorted = sort_gradients(training);
    if (n_sorted == 0 && !has_single(training))
        return error_set(err, -EINVAL, "there is nothing to train: no variable has a gradient");
    r = apply_all(training, optimizer, n_sorted, err);
    if (r == 0 && n_sorted > 0)
        n_applied = training->n;
    if (r == 0 && has_single(training)) {
        training->applied[n_applied] = apply_single(training, optimizer, err);
        if (!training->applied[n_applied++])
            return err->code ? err->code : allot_graph_error(training->graph, err);
    }
    if (r == 0)
        *ret = allot_group(training->graph, "train", training->applied, n_applied);
    return r;
}

struct allot_node *allot_strategy_minimize(struct allot_strategy *strategy,
                                           struct allot_optimizer *optimizer,
                                           struct allot_output loss) {
    struct training training = { .strategy = strategy,
                                 .graph = strategy ? strategy->scope.graph : NULL,
                                 .n = allot_strategy_n_replicas(strategy) };
    struct allot_node *made = NULL;
    struct allot_error err = { 0 };
    int r = !strategy    ? error_null(&err, "strategy")
            : !optimizer ? error_null(&err, "optimizer")
                         : train(&training, optimizer, loss, &made, &err);

    if (r < 0)
        handle_fail(training.graph ? training.graph : handle_graph(&loss, 1), &err);
    training_done(&training);
    return r < 0 ? NULL : made;
}
