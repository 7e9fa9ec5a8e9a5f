/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of allot/graph.h but for the builder: graphs, files, looking into them, scopes. */
#include "libclient/allot/graph.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/api/handle.h"
#include "libclient/core/log.h"
#include "libclient/graph/file.h"
#include "libclient/graph/scope.h"
#include "libclient/ops/ops.h"

/* An hour: what takes longer is no op. */
#define HINT_USEC_MAX 3.6e9

int handle_fail(struct allot_graph *graph, const struct allot_error *err) {
    if (!graph) /* no caller could ask for it */
        log_say(ALLOT_LOG_ERROR, "%s", err->text);
    else if (graph->failure.code == 0)
        graph->failure = *err;
    return err->code;
}

struct allot_graph *handle_graph(const struct allot_output *outputs, size_t n) {
    struct allot_graph *graph = NULL;
    struct allot_error err;

    for (size_t i = 0; outputs && i < n; i++) {
        const struct node *node = handle_node(outputs[i].node);

        if (node && graph && node->graph != graph) {
            error_set(&err, -EINVAL, "'%s:%d' is an output of another graph", node->name,
                      outputs[i].index);
            handle_fail(graph, &err);
            return NULL;
        }
        graph = node ? node->graph : graph;
    }
    return graph;
}

int handle_check(const struct allot_graph *graph, struct allot_error *err) {
    return graph ? 0 : error_null(err, "graph");
}

/* For calls without `err`: the error is kept in the graph, or logged. */
static int check(struct allot_graph *graph) {
    struct allot_error err;

    return handle_check(graph, &err) < 0 ? handle_fail(NULL, &err) : 0;
}

int allot_graph_new(struct allot_graph **ret, struct allot_error *err) {
    int r = ret ? ops_register_all(err) : error_null(err, "place for a graph");

    if (r < 0)
        return r;
    r = graph_new(ret);
    return r < 0 ? error_set(err, r, "no host memory for a graph") : 0;
}

struct allot_graph *allot_graph_ref(struct allot_graph *graph) {
    return graph ? graph_ref(graph) : NULL;
}

struct allot_graph *allot_graph_unref(struct allot_graph *graph) {
    return graph_unref(graph);
}

int allot_graph_error(const struct allot_graph *graph, struct allot_error *err) {
    int r = handle_check(graph, err);

    if (r < 0)
        return r;
    if (graph->failure.code && err)
        *err = graph->failure;
    return graph->failure.code;
}

void allot_graph_clear_error(struct allot_graph *graph) {
    if (graph)
        graph->failure.code = 0;
}

void allot_graph_set_seed(struct allot_graph *graph, uint64_t seed) {
    if (check(graph) == 0)
        graph->seed = seed;
}

int allot_graph_save(const struct allot_graph *graph, const char *path, struct allot_error *err) {
    int r = handle_check(graph, err);

    if (r == 0 && !path)
        r = error_null(err, "path of a file");
    return r < 0 ? r : graph_file_save(graph, path, err);
}

int allot_graph_load(struct allot_graph **ret, const char *path, struct allot_error *err) {
    int r = !ret    ? error_null(err, "place for a graph")
            : !path ? error_null(err, "path of a file")
                    : ops_register_all(err);

    return r < 0 ? r : graph_file_load(ret, path, err);
}

/* ---- Looking --------------------------------------------------------------------------------- */

size_t allot_graph_n_nodes(const struct allot_graph *graph) {
    return graph ? graph_n_nodes(graph) : 0;
}

struct allot_node *allot_graph_node(const struct allot_graph *graph, size_t i) {
    return i < allot_graph_n_nodes(graph) ? handle_of(graph_node(graph, (uint32_t)i)) : NULL;
}

int allot_graph_find(const struct allot_graph *graph, const char *name, struct allot_output *ret,
                     struct allot_error *err) {
    struct edge edge;
    const struct node *node;
    int r = handle_check(graph, err);

    if (r == 0 && (!name || !ret))
        r = error_null(err, name ? "place for an output" : "name of a node");
    if (r < 0)
        return r;
    /* The bare name also finds a node without outputs. */
    node = graph_find(graph, name);
    if (node) {
        *ret = (struct allot_output){ handle_of(node), 0 };
        return 0;
    }
    r = graph_find_output(graph, name, &edge, err);
    if (r < 0)
        return r;
    *ret = handle_output(graph, edge);
    return 0;
}

const char *allot_node_name(const struct allot_node *node) {
    return node ? handle_node(node)->name : "";
}

const char *allot_node_op(const struct allot_node *node) {
    return node ? handle_node(node)->op->name : "";
}

const char *allot_node_device(const struct allot_node *node) {
    return node ? handle_node(node)->device : "";
}

int allot_node_n_outputs(const struct allot_node *node) {
    return node ? (int)handle_node(node)->n_outputs : 0;
}

int allot_node_n_inputs(const struct allot_node *node) {
    return node ? (int)handle_node(node)->n_inputs : 0;
}

struct allot_output allot_node_input(const struct allot_node *node, int i) {
    const struct node *own = handle_node(node);

    if (!own || i < 0 || (uint32_t)i >= own->n_inputs)
        return (struct allot_output){ NULL, 0 };
    return handle_output(own->graph, own->inputs[i]);
}

/* NULL: there is no such output. */
static const struct node_output *seen(struct allot_output output) {
    const struct node *node = handle_node(output.node);

    return node && output.index >= 0 && (uint32_t)output.index < node->n_outputs
               ? &node->outputs[output.index]
               : NULL;
}

int allot_output_shape(struct allot_output output, int64_t dims[ALLOT_RANK_MAX]) {
    const struct node_output *own = seen(output);

    if (!own || own->shape.rank < 0)
        return -1;
    if (dims)
        memcpy(dims, own->shape.dims, (size_t)own->shape.rank * sizeof(dims[0]));
    return own->shape.rank;
}

enum allot_dtype allot_output_dtype(struct allot_output output) {
    const struct node_output *own = seen(output);

    return own ? (enum allot_dtype)own->dtype : (enum allot_dtype)DTYPE_NONE;
}

bool allot_output_is_variable(struct allot_output output) {
    const struct node_output *own = seen(output);

    return own && own->is_variable;
}

/* ---- Scopes ---------------------------------------------------------------------------------- */

/* A push that fails still pushes an entry, because the caller will pop it. */
static int pushed(struct allot_graph *graph, int r, const struct allot_error *err,
                  enum scope_about about) {
    if (r == 0)
        return 0;
    handle_fail(graph, err);
    if (about == SCOPE_ABOUT_DEVICE)
        scope_push_device(graph, "", NULL);
    else if (about == SCOPE_ABOUT_CONTROL)
        scope_push_controls(graph, NULL, 0, NULL);
    else if (about == SCOPE_ABOUT_COLOCATE)
        scope_push_colocate(graph, UINT32_MAX, NULL);
    else if (about == SCOPE_ABOUT_NAME)
        scope_push_name(graph, "failed", NULL);
    else if (about == SCOPE_ABOUT_HINT)
        scope_push_hint(graph, 0, NULL, false, NULL);
    return r;
}

int allot_device_push(struct allot_graph *graph, const char *device) {
    struct allot_error err = { 0 };
    int r = check(graph);

    return r < 0 ? r
                 : pushed(graph, scope_push_device(graph, device, &err), &err, SCOPE_ABOUT_DEVICE);
}

int allot_device_push_fn(struct allot_graph *graph, allot_device_fn fn, void *userdata) {
    struct allot_error err = { 0 };
    int r = check(graph);

    if (r < 0)
        return r;
    r = fn ? scope_push_function(graph, fn, userdata, &err) : error_null(&err, "device function");
    return pushed(graph, r, &err, SCOPE_ABOUT_DEVICE);
}

static int is_of(const struct allot_graph *graph, const struct allot_node *node,
                 struct allot_error *err) {
    return handle_node(node)->graph == graph
               ? 0
               : error_set(err, -EINVAL, "'%s' is a node of another graph", allot_node_name(node));
}

int allot_control_push(struct allot_graph *graph, struct allot_node *const *nodes, size_t n) {
    struct allot_error err = { 0 };
    cleanup(freep) uint32_t *ids = NULL;
    size_t n_ids = 0;
    int r = check(graph);

    if (r < 0)
        return r;
    if (n && !nodes)
        return pushed(graph, error_null(&err, "array of nodes"), &err, SCOPE_ABOUT_CONTROL);
    ids = calloc(n + 1, sizeof(ids[0]));
    if (!ids)
        return pushed(graph, error_set(&err, -ENOMEM, "no host memory for a scope"), &err,
                      SCOPE_ABOUT_CONTROL);
    for (size_t i = 0; r == 0 && i < n; i++)
        if (nodes[i]) { /* one that failed has its error in the graph */
            r = is_of(graph, nodes[i], &err);
            ids[n_ids++] = handle_node(nodes[i])->id;
        }
    if (r == 0)
        r = scope_push_controls(graph, ids, n_ids, &err);
    return pushed(graph, r, &err, SCOPE_ABOUT_CONTROL);
}

int allot_colocate_push(struct allot_graph *graph, struct allot_node *node) {
    struct allot_error err = { 0 };
    int r = check(graph);

    if (r < 0)
        return r;
    r = node ? is_of(graph, node, &err)
             : error_set(&err, -EINVAL, "no node to share a device with");
    if (r == 0)
        r = scope_push_colocate(graph, handle_node(node)->id, &err);
    return pushed(graph, r, &err, SCOPE_ABOUT_COLOCATE);
}

int allot_name_push(struct allot_graph *graph, const char *name) {
    struct allot_error err = { 0 };
    int r = check(graph);

    if (r < 0)
        return r;
    r = name ? scope_push_name(graph, name, &err)
             : error_set(&err, -EINVAL, "a name scope without a name: NULL was given");
    return pushed(graph, r, &err, SCOPE_ABOUT_NAME);
}

static void pop(struct allot_graph *graph, enum scope_about about) {
    static const char *const names[] = { "none",       "a device", "a control",
                                         "a colocate", "a name",   "a hint" };
    enum scope_about innermost;
    struct allot_error err;

    if (check(graph) < 0)
        return;
    innermost = scope_innermost(graph);
    if (innermost == about) {
        scope_pop(graph);
        return;
    }
    error_set(&err, -EINVAL, "%s scope cannot be popped: the innermost is %s", names[about],
              innermost == SCOPE_ABOUT_NONE ? "none" : names[innermost]);
    handle_fail(graph, &err);
}

/* Fields that the caller's header does not have yet are as in a new hint. */
static int hint_take(struct allot_hint *ret, const struct allot_hint *given,
                     struct allot_error *err) {
    *ret = allot_hint_init();
    if (!given)
        return error_null(err, "hint");
    if (given->size < sizeof(size_t) || given->size > sizeof(*ret))
        return error_set(err, -EINVAL,
                         "a hint has the wrong size, %zu bytes: set it with its initialiser, and "
                         "compile with the headers of this library",
                         given->size);
    memcpy(ret, given, given->size);
    if (!isfinite(ret->cost_usec) || ret->cost_usec < 0 || ret->cost_usec > HINT_USEC_MAX)
        return error_set(err, -EINVAL, "a hint has the cost of %g us: 0 to %g are possible",
                         ret->cost_usec, HINT_USEC_MAX);
    return 0;
}

int allot_hint_push(struct allot_graph *graph, const struct allot_hint *given) {
    struct allot_error err = { 0 };
    struct allot_hint hint;
    int r = check(graph);

    if (r < 0)
        return r;
    r = hint_take(&hint, given, &err);
    if (r == 0)
        r = scope_push_hint(graph, hint.cost_usec, hint.prefer, hint.keep_together, &err);
    return pushed(graph, r, &err, SCOPE_ABOUT_HINT);
}

void allot_hint_pop(struct allot_graph *graph) {
    pop(graph, SCOPE_ABOUT_HINT);
}

void allot_device_pop(struct allot_graph *graph) {
    pop(graph, SCOPE_ABOUT_DEVICE);
}

void allot_control_pop(struct allot_graph *graph) {
    pop(graph, SCOPE_ABOUT_CONTROL);
}

void allot_colocate_pop(struct allot_graph *graph) {
    pop(graph, SCOPE_ABOUT_COLOCATE);
}

void allot_name_pop(struct allot_graph *graph) {
    pop(graph, SCOPE_ABOUT_NAME);
}
