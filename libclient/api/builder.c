/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builder: builds a node for callers that name the op. It copies all arguments, so the caller need
 * not keep them, and keeps the first error for allot_op_finish().
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/api/handle.h"
#include "libclient/graph/build.h"
#include "libclient/graph/scope.h"
#include "libclient/ops/ops.h"

struct allot_op {
    struct allot_graph *graph; /* borrowed */
    char *op, *name, *device;  /* name, device NULL: none */
    struct edge *inputs;
    size_t n_inputs, inputs_size;
    struct build_attr attrs[OPDEF_ATTRS_MAX]; /* names and values owned */
    size_t n_attrs;
    struct scope_ids controls, colocate;
    struct allot_error failure; /* the first; code 0: none */
};

size_t allot_ops(const char **ret, size_t n) {
    const struct opdef *op;
    size_t i;

    if (ops_register_all(NULL) < 0)
        return 0;
    for (i = 0; (op = opdef_at(i)); i++)
        if (ret && i < n)
            ret[i] = op->name;
    return i;
}

void allot_op_cancel(struct allot_op *op) {
    if (!op)
        return;
    for (size_t i = 0; i < op->n_attrs; i++) {
        free((char *)op->attrs[i].name);
        attr_done(&op->attrs[i].value);
    }
    free(op->op);
    free(op->name);
    free(op->device);
    free(op->inputs);
    scope_ids_done(&op->controls);
    scope_ids_done(&op->colocate);
    free(op);
}

#define fail(op, ...)                                                                              \
    do {                                                                                           \
        if ((op)->failure.code == 0)                                                               \
            error_set(&(op)->failure, __VA_ARGS__);                                                \
    } while (0)

static void no_memory(struct allot_op *op) {
    fail(op, -ENOMEM, "no host memory for a node");
}

struct allot_op *allot_op_begin(struct allot_graph *graph, const char *name_of_op,
                                const char *name) {
    struct allot_op *op = calloc(1, sizeof(*op));

    if (!op)
        return NULL;
    op->graph = graph;
    op->op = strdup(name_of_op ? name_of_op : "");
    op->name = name ? strdup(name) : NULL;
    if (!op->op || (name && !op->name))
        no_memory(op);
    else if (handle_check(graph, &op->failure) < 0)
        ; /* that is what will be said */
    else if (!name_of_op)
        error_set(&op->failure, -EINVAL, "node '%s': no op was named: NULL was given",
                  name ? name : "");
    return op;
}

void allot_op_inputs(struct allot_op *op, const struct allot_output *inputs, size_t n) {
    if (!op || op->failure.code)
        return;
    if (n && !inputs) {
        error_null(&op->failure, "array of inputs");
        return;
    }
    if (op->n_inputs + n > op->inputs_size) {
        size_t size = (op->n_inputs + n) * 2;
        struct edge *grown = realloc(op->inputs, size * sizeof(grown[0]));

        if (!grown) {
            no_memory(op);
            return;
        }
        op->inputs = grown;
        op->inputs_size = size;
    }
    for (size_t i = 0; i < n; i++) {
        const struct node *node = handle_node(inputs[i].node);

        if (!node)
            fail(op, -EINVAL,
                 "input %zu of a node of op %s comes from a node that could not be added: see the "
                 "earlier error",
                 op->n_inputs, op->op);
        else if (node->graph != op->graph)
            fail(op, -EINVAL, "'%s:%d' is an output of another graph", node->name, inputs[i].index);
        op->inputs[op->n_inputs++] = handle_edge(inputs[i]);
    }
}

void allot_op_input(struct allot_op *op, struct allot_output input) {
    allot_op_inputs(op, &input, 1);
}

static void give(struct allot_op *op, const char *name, struct attr value) {
    struct build_attr *attr;

    if (!op || op->failure.code)
        return;
    if (!name || attr_is_null(&value)) {
        fail(op, -EINVAL, "attribute '%s' of op %s: NULL was given", name ? name : "", op->op);
        return;
    }
    if (op->n_attrs == OPDEF_ATTRS_MAX) {
        fail(op, -EINVAL, "more than %d attributes for op %s", OPDEF_ATTRS_MAX, op->op);
        return;
    }
    attr = &op->attrs[op->n_attrs];
    attr->name = strdup(name);
    if (!attr->name || attr_copy(&attr->value, &value) < 0) {
        free((char *)attr->name);
        no_memory(op);
        return;
    }
    op->n_attrs++;
}

void allot_op_attr_int(struct allot_op *op, const char *name, int64_t value) {
    give(op, name, attr_int(value));
}

void allot_op_attr_float(struct allot_op *op, const char *name, double value) {
    give(op, name, attr_float(value));
}

void allot_op_attr_bool(struct allot_op *op, const char *name, bool value) {
    give(op, name, attr_bool(value));
}

void allot_op_attr_type(struct allot_op *op, const char *name, enum allot_dtype value) {
    give(op, name, attr_dtype((enum dtype)value));
}

void allot_op_attr_shape(struct allot_op *op, const char *name, int rank, const int64_t *dims) {
    struct allot_error err;
    struct shape shape;

    if (!op)
        return;
    if (shape_take(&shape, rank, dims, &err) < 0)
        fail(op, -EINVAL, "attribute '%s' of op %s is not a shape: %s", name ? name : "",
             op->op ? op->op : "", err.text);
    else
        give(op, name, attr_shape(shape));
}

void allot_op_attr_string(struct allot_op *op, const char *name, const char *value) {
    give(op, name, attr_string(value));
}

void allot_op_attr_tensor(struct allot_op *op, const char *name, struct allot_tensor *value) {
    give(op, name, attr_tensor(value));
}

void allot_op_attr_ints(struct allot_op *op, const char *name, const int64_t *values, size_t n) {
    give(op, name, attr_ints(values, n));
}

void allot_op_device(struct allot_op *op, const char *device) {
    if (!op || op->failure.code)
        return;
    free(op->device);
    op->device = device ? strdup(device) : NULL;
    if (!device)
        error_null(&op->failure, "device");
    else if (!op->device)
        no_memory(op);
}

static void join(struct allot_op *op, struct scope_ids *list, const struct allot_node *node) {
    if (!node)
        fail(op, -EINVAL, "a node that op %s is tied to failed before", op->op);
    else if (handle_node(node)->graph != op->graph)
        fail(op, -EINVAL, "'%s' is a node of another graph", handle_node(node)->name);
    else if (scope_ids_add(list, handle_node(node)->id) < 0)
        no_memory(op);
}

void allot_op_control(struct allot_op *op, struct allot_node *node) {
    if (op && op->failure.code == 0)
        join(op, &op->controls, node);
}

void allot_op_colocate(struct allot_op *op, struct allot_node *node) {
    if (op && op->failure.code == 0)
        join(op, &op->colocate, node);
}

int allot_op_finish(struct allot_op *op, struct allot_node **ret, struct allot_error *err) {
    struct build_node request;
    uint32_t id;
    int r;

    if (!op)
        return error_set(err, -ENOMEM, "no host memory for a node");
    if (op->failure.code) {
        r = error_set(err, op->failure.code, "%s", op->failure.text);
        allot_op_cancel(op);
        return r;
    }
    request = (struct build_node){
        .op = op->op,
        .name = op->name,
        .device = op->device,
        .inputs = op->inputs,
        .n_inputs = op->n_inputs,
        .attrs = op->attrs,
        .n_attrs = op->n_attrs,
        .controls = op->controls.ids,
        .n_controls = op->controls.n,
        .colocate = op->colocate.ids,
        .n_colocate = op->colocate.n,
    };
    r = build_add(op->graph, &request, &id, err);
    if (r == 0 && ret)
        *ret = handle_of(graph_node(op->graph, id));
    allot_op_cancel(op);
    return r;
}
