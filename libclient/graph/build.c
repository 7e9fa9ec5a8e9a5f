/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Build: makes a node in four steps. First, the request is brought into the order of the op (lists
 * and their lengths, reads of variables, attributes). Then come scopes and name. Then the node is
 * laid out in one block of memory and its shapes are inferred. Finally it is published. Only the
 * last step changes the graph, except for reads of variables and names, which do no harm.
 */
#include "libclient/graph/build.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/graph/name.h"
#include "libclient/graph/scope.h"

/* A node in the making. */
struct draft {
    struct allot_graph *graph;
    const struct build_node *request;
    const struct opdef *op;
    struct allot_error *err;
    struct edge *inputs;
    struct attr attrs[OPDEF_ATTRS_MAX]; /* borrowed, until they are copied into the node */
    size_t n_outputs;
    struct scope_ids controls, colocate;
    char *name, *device;
};

static void draft_done(struct draft *draft) {
    free(draft->inputs);
    scope_ids_done(&draft->controls);
    scope_ids_done(&draft->colocate);
    free(draft->name);
    free(draft->device);
}

static const char *called(const struct draft *draft) {
    return draft->name            ? draft->name
           : draft->request->name ? draft->request->name
                                  : draft->request->op;
}

/* The length of a name without the final '/' that marks it as whole: see name_new(). */
static int called_length(const struct draft *draft) {
    size_t length = strlen(called(draft));

    return (int)(length > 1 && called(draft)[length - 1] == '/' ? length - 1 : length);
}

/* "node 'sum' (op AddN): <what>" */
#define refuse(draft, ...)                                                                         \
    (error_set((draft)->err, -EINVAL, __VA_ARGS__),                                                \
     error_wrap((draft)->err, -EINVAL, "node '%.*s' (op %s)", called_length(draft), called(draft), \
                (draft)->request->op))

static int no_memory(struct draft *draft) {
    return error_set(draft->err, -ENOMEM, "no host memory for node '%.*s' (op %s)",
                     called_length(draft), called(draft), draft->request->op);
}

/* ---- What the request says ------------------------------------------------------------------- */

static int take_attrs(struct draft *draft) {
    const struct build_node *request = draft->request;
    char types[OPDEF_DTYPES_SIZE];

    for (size_t i = 0; i < request->n_attrs; i++) {
        const struct build_attr *given = &request->attrs[i];
        int at = opdef_attr_index(draft->op, given->name);
        const struct opdef_attr *def;

        if (at < 0)
            return refuse(draft, "the op has no attribute '%s'", given->name);
        def = &draft->op->attrs[at];
        if (def->kind != given->value.kind)
            return refuse(draft, "attribute '%s' is of kind %s, not %s", def->name,
                          attr_kind_name(def->kind), attr_kind_name(given->value.kind));
        if (draft->attrs[at].kind != ATTR_NONE)
            return refuse(draft, "attribute '%s' is given twice", def->name);
        if (attr_is_null(&given->value))
            return refuse(draft, "attribute '%s': NULL was given", def->name);
        if (def->kind == ATTR_DTYPE &&
            (!dtype_is_valid((int)given->value.dtype) || !(def->dtypes & 1u << given->value.dtype)))
            return refuse(draft, "%s is not one of the types %s that %s may be",
                          dtype_name(given->value.dtype), opdef_dtypes_format(def->dtypes, types),
                          def->name);
        draft->attrs[at] = given->value;
    }
    return 0;
}

/* Lengths of input lists that are not given, from the number of inputs. */
static int take_lengths(struct draft *draft) {
    const struct opdef *op = draft->op;
    size_t n_known = 0, n_open = 0, n = draft->request->n_inputs;
    int open = -1;

    for (size_t i = 0; i < op->n_inputs; i++) {
        int at = op->inputs[i].length_attr;

        if (at < 0)
            n_known++;
        else if (draft->attrs[at].kind == ATTR_NONE && (open == -1 || open == at)) {
            open = at;
            n_open++;
        } else if (draft->attrs[at].kind == ATTR_NONE)
            return refuse(draft, "attribute '%s', the length of input %s, must be given",
                          op->attrs[at].name, op->inputs[i].name);
        else if (draft->attrs[at].i < 0 || draft->attrs[at].i > BUILD_LIST_MAX)
            return refuse(draft, "attribute '%s' is %lld, but a list has 0 to %d entries",
                          op->attrs[at].name, (long long)draft->attrs[at].i, BUILD_LIST_MAX);
        else
            n_known += (size_t)draft->attrs[at].i;
    }
    if (n_open && n >= n_known && (n - n_known) % n_open == 0) {
        if ((n - n_known) / n_open > BUILD_LIST_MAX)
            return refuse(draft, "%zu inputs are given, but a list has at most %d entries", n,
                          BUILD_LIST_MAX);
        draft->attrs[open] = attr_int((int64_t)((n - n_known) / n_open));
    } else if (n != n_known || n_open)
        return refuse(draft, "%zu input%s, but the op takes %zu%s", n,
                      n == 1 ? " is given" : "s are given", n_known,
                      n_open ? " and its lists" : "");
    return 0;
}

static size_t arg_length(const struct draft *draft, const struct opdef_arg *arg) {
    return arg->length_attr < 0 ? 1 : (size_t)draft->attrs[arg->length_attr].i;
}

/* One input of the flat list: a read where it is a handle, and its type. */
static int take_input(struct draft *draft, const struct opdef_arg *arg, struct edge *input) {
    struct allot_graph *graph = draft->graph;
    const struct opdef_attr *def;
    const struct node_output *output;
    char types[OPDEF_DTYPES_SIZE];
    struct attr *type;
    int r;

    if (input->node >= graph_n_nodes(graph) ||
        input->output >= graph_node(graph, input->node)->n_outputs)
        return refuse(draft, "input %s is not an output of this graph", arg->name);
    output = graph_output(graph, *input);
    if (arg->is_variable && !output->is_variable)
        return refuse(draft, "input %s is a variable, but '%s:%u' (op %s) is a value", arg->name,
                      graph_node(graph, input->node)->name, input->output,
                      graph_node(graph, input->node)->op->name);
    if (output->is_variable && !arg->is_variable) {
        r = build_read(graph, *input, false, input, draft->err);
        if (r < 0)
            return r;
        output = graph_output(graph, *input);
    }
    if (arg->type_attr < 0) {
        if (output->dtype != arg->dtype)
            return refuse(draft, "input %s is of type %s, but '%s:%u' is of type %s", arg->name,
                          dtype_name(arg->dtype), graph_node(graph, input->node)->name,
                          input->output, dtype_name(output->dtype));
        return 0;
    }
    def = &draft->op->attrs[arg->type_attr];
    type = &draft->attrs[arg->type_attr];
    if (type->kind == ATTR_NONE) {
        if (!(def->dtypes & 1u << output->dtype))
            return refuse(draft, "'%s:%u' is of type %s, which input %s cannot be: it is one of %s",
                          graph_node(graph, input->node)->name, input->output,
                          dtype_name(output->dtype), arg->name,
                          opdef_dtypes_format(def->dtypes, types));
        *type = attr_dtype(output->dtype);
    } else if (type->dtype != output->dtype)
        return refuse(draft, "input %s is of type %s, as %s is, but '%s:%u' is of type %s",
                      arg->name, dtype_name(type->dtype), def->name,
                      graph_node(graph, input->node)->name, input->output,
                      dtype_name(output->dtype));
    return 0;
}

static int take_inputs(struct draft *draft) {
    const struct opdef *op = draft->op;
    size_t n = draft->request->n_inputs, at = 0;
    int r;

    draft->inputs = malloc((n ? n : 1) * sizeof(draft->inputs[0]));
    if (!draft->inputs)
        return no_memory(draft);
    if (n)
        memcpy(draft->inputs, draft->request->inputs, n * sizeof(draft->inputs[0]));
    for (size_t i = 0; i < op->n_inputs; i++)
        for (size_t j = arg_length(draft, &op->inputs[i]); j > 0; j--) {
            r = take_input(draft, &op->inputs[i], &draft->inputs[at++]);
            if (r < 0)
                return r;
        }
    return 0;
}

static int fill_attrs(struct draft *draft) {
    const struct opdef *op = draft->op;

    for (size_t i = 0; i < op->n_attrs; i++) {
        if (draft->attrs[i].kind != ATTR_NONE)
            continue;
        if (!op->attrs[i].has_default)
            return refuse(draft, "attribute '%s' (%s) must be given", op->attrs[i].name,
                          attr_kind_name(op->attrs[i].kind));
        draft->attrs[i] = op->attrs[i].value;
    }
    for (size_t i = 0; i < op->n_outputs; i++) {
        int at = op->outputs[i].length_attr;

        if (at >= 0 && (draft->attrs[at].i < 0 || draft->attrs[at].i > BUILD_LIST_MAX))
            return refuse(draft, "attribute '%s' is %lld, but a list has 0 to %d entries",
                          op->attrs[at].name, (long long)draft->attrs[at].i, BUILD_LIST_MAX);
        draft->n_outputs += arg_length(draft, &op->outputs[i]);
    }
    return 0;
}

static int take_lists(struct draft *draft) {
    const struct build_node *request = draft->request;
    uint32_t n_nodes = graph_n_nodes(draft->graph);
    int r = 0;

    for (size_t i = 0; i < request->n_controls && r == 0; i++)
        r = request->controls[i] < n_nodes
                ? scope_ids_add(&draft->controls, request->controls[i])
                : refuse(draft, "a control dependency is not a node of this graph");
    for (size_t i = 0; i < request->n_colocate && r == 0; i++)
        r = request->colocate[i] < n_nodes
                ? scope_ids_add(&draft->colocate, request->colocate[i])
                : refuse(draft, "a node to share a device with is not in this graph");
    return r == -ENOMEM ? no_memory(draft) : r;
}

/* ---- The node -------------------------------------------------------------------------------- */

/* The next `bytes` of a block whose parts are laid out one after the other. */
static void *part(char **at, size_t bytes) {
    void *start = *at;

    *at += (bytes + 15) / 16 * 16;
    return start;
}

static size_t rounded(size_t bytes) {
    return (bytes + 15) / 16 * 16;
}

static int lay_out(const struct draft *draft, struct node **ret) {
    size_t n_inputs = draft->request->n_inputs, n_attrs = draft->op->n_attrs;
    size_t name_size = strlen(draft->name) + 1, device_size = strlen(draft->device) + 1;
    struct node *node;
    char *at;

    at = calloc(1, rounded(sizeof(*node)) + rounded(n_attrs * sizeof(node->attrs[0])) +
                       rounded(draft->n_outputs * sizeof(node->outputs[0])) +
                       rounded(n_inputs * sizeof(node->inputs[0])) +
                       rounded(draft->controls.n * sizeof(uint32_t)) +
                       rounded(draft->colocate.n * sizeof(uint32_t)) + rounded(name_size) +
                       rounded(device_size));
    if (!at)
        return -ENOMEM;
    node = part(&at, sizeof(*node));
    node->graph = draft->graph;
    node->op = draft->op;
    node->attrs = part(&at, n_attrs * sizeof(node->attrs[0]));
    node->outputs = part(&at, draft->n_outputs * sizeof(node->outputs[0]));
    node->n_outputs = (uint32_t)draft->n_outputs;
    node->inputs = part(&at, n_inputs * sizeof(node->inputs[0]));
    node->n_inputs = (uint32_t)n_inputs;
    node->controls = part(&at, draft->controls.n * sizeof(uint32_t));
    node->n_controls = (uint32_t)draft->controls.n;
    node->colocate = part(&at, draft->colocate.n * sizeof(uint32_t));
    node->n_colocate = (uint32_t)draft->colocate.n;
    node->name = part(&at, name_size);
    node->device = part(&at, device_size);
    memcpy(node->name, draft->name, name_size);
    memcpy(node->device, draft->device, device_size);
    if (n_inputs)
        memcpy(node->inputs, draft->inputs, n_inputs * sizeof(node->inputs[0]));
    if (node->n_controls)
        memcpy(node->controls, draft->controls.ids, node->n_controls * sizeof(uint32_t));
    if (node->n_colocate)
        memcpy(node->colocate, draft->colocate.ids, node->n_colocate * sizeof(uint32_t));
    *ret = node;
    return 0;
}

static void discard(struct node *node) {
    for (size_t i = 0; i < node->op->n_attrs; i++)
        attr_done(&node->attrs[i]);
    free(node);
}

static void type_outputs(struct node *node) {
    const struct opdef *op = node->op;
    size_t at = 0;

    for (size_t i = 0; i < op->n_outputs; i++) {
        const struct opdef_arg *arg = &op->outputs[i];
        size_t n = arg->length_attr < 0 ? 1 : (size_t)node->attrs[arg->length_attr].i;

        for (; n > 0; n--)
            node->outputs[at++] = (struct node_output){
                .dtype = arg->type_attr < 0 ? arg->dtype : node->attrs[arg->type_attr].dtype,
                .is_variable = arg->is_variable,
                .shape = shape_unknown(),
            };
    }
}

/* The value that an output always has: of a Const, or of what passes one on. NULL: not known. */
static const struct allot_tensor *known_value(const struct allot_graph *graph, struct edge edge) {
    const struct node *node = graph_node(graph, edge.node);

    while (node->n_inputs == 1 &&
           (strcmp(node->op->name, "Identity") == 0 || strcmp(node->op->name, "StopGradient") == 0))
        node = graph_node(graph, node->inputs[0].node);
    return strcmp(node->op->name, "Const") == 0 ? graph_node_attr(node, "value")->tensor : NULL;
}

static int infer(struct draft *draft, struct node *node) {
    size_t n_in = node->n_inputs, n_out = node->n_outputs;
    cleanup(freep) struct shape *shapes = NULL;
    cleanup(freep) const struct allot_tensor **values = NULL;
    struct opdef_shapes inference;
    int r;

    if (!node->op->shape)
        return 0;
    shapes = malloc((n_in + n_out + 1) * sizeof(shapes[0]));
    values = malloc((n_in + 1) * sizeof(values[0]));
    if (!shapes || !values)
        return no_memory(draft);
    for (size_t i = 0; i < n_in; i++) {
        shapes[i] = graph_output(draft->graph, node->inputs[i])->shape;
        values[i] = known_value(draft->graph, node->inputs[i]);
    }
    for (size_t i = 0; i < n_out; i++)
        shapes[n_in + i] = shape_unknown();
    inference = (struct opdef_shapes){ node, shapes, n_in, values, shapes + n_in, n_out };
    r = node->op->shape(&inference, draft->err);
    if (r < 0)
        return error_wrap(draft->err, r, "node '%s'", node->name);
    for (size_t i = 0; i < n_out; i++)
        node->outputs[i].shape = shapes[n_in + i];
    return 0;
}

static int publish(struct allot_graph *graph, struct node *node) {
    cleanup(freep) struct graph_variable *variable = NULL;
    uint32_t id = graph_n_nodes(graph);
    struct node ***block = &graph->blocks[id / GRAPH_BLOCK_NODES];

    if (id / GRAPH_BLOCK_NODES >= ELEMENTSOF(graph->blocks))
        return -ENOMEM;
    if (!*block)
        *block = calloc(GRAPH_BLOCK_NODES, sizeof((*block)[0]));
    if (!*block || map_put_text(&graph->names, node->name, node) < 0)
        return -ENOMEM;
    if (node->n_inputs == 0 && node->n_outputs == 1 && node->outputs[0].is_variable) {
        variable = malloc(sizeof(*variable));
        if (!variable || map_put(&graph->variables, id, variable) < 0) {
            map_take_text(&graph->names, node->name);
            return -ENOMEM;
        }
        *TAKE(variable) = (struct graph_variable){
            .id = id, .initial = UINT32_MAX, .read = UINT32_MAX, .mirror_of = UINT32_MAX
        };
    }
    node->id = id;
    (*block)[id % GRAPH_BLOCK_NODES] = node;
    atomic_store_explicit(&graph->n_nodes, id + 1, memory_order_release);
    return 0;
}

static int draft_make(struct draft *draft, uint32_t *ret) {
    const struct build_node *request = draft->request;
    struct node *node;
    int r;

    draft->op = opdef_find(request->op);
    if (!draft->op)
        return opdef_missing(request->op, draft->err);
    r = take_attrs(draft);
    if (r == 0)
        r = take_lengths(draft);
    if (r == 0)
        r = take_inputs(draft);
    if (r == 0)
        r = fill_attrs(draft);
    if (r == 0)
        r = take_lists(draft);
    if (r == 0)
        r = name_new(draft->graph, request->name ? request->name : request->op, &draft->name,
                     draft->err);
    if (r == 0)
        r = scope_apply(draft->graph, request->op, draft->name,
                        request->device ? request->device : "", &draft->controls, &draft->colocate,
                        &draft->device, draft->err);
    if (r < 0)
        return r;

    if (lay_out(draft, &node) < 0)
        return no_memory(draft);
    for (size_t i = 0; i < draft->op->n_attrs && r == 0; i++)
        if (attr_copy(&node->attrs[i], &draft->attrs[i]) < 0)
            r = no_memory(draft);
    if (r == 0) {
        node->hint = scope_hint(draft->graph);
        type_outputs(node);
        r = infer(draft, node);
    }
    if (r == 0 && publish(draft->graph, node) < 0)
        r = no_memory(draft);
    if (r < 0) {
        discard(node);
        return r;
    }
    *ret = node->id;
    return 0;
}

int build_add(struct allot_graph *graph, const struct build_node *request, uint32_t *ret,
              struct allot_error *err) {
    struct allot_error words;
    struct draft draft = { .graph = graph, .request = request, .err = err ? err : &words };
    int r = draft_make(&draft, ret);

    draft_done(&draft);
    return r;
}

/* ---- Reads of variables ---------------------------------------------------------------------- */

/* Put the read where the variable is, whatever scopes say; `bare`: without control edges too. */
static int read_new(struct allot_graph *graph, struct edge variable, const char *name, bool bare,
                    struct edge *ret, struct allot_error *err) {
    struct build_node request = { .op = "ReadVariable",
                                  .name = name,
                                  .device = graph_node(graph, variable.node)->device,
                                  .inputs = &variable,
                                  .n_inputs = 1 };
    uint32_t id;
    int r = bare ? scope_push_bare(graph, err) : scope_push_placeless(graph, err);

    if (r < 0)
        return r;
    r = build_add(graph, &request, &id, err);
    scope_pop(graph);
    if (r == 0)
        *ret = (struct edge){ id, 0 };
    return r;
}

int build_read(struct allot_graph *graph, struct edge variable, bool fresh, struct edge *ret,
               struct allot_error *err) {
    const struct node *node = graph_node(graph, variable.node);
    struct graph_variable *known = graph_variable(graph, variable.node);
    bool shared = known && !fresh && !scope_has_controls(graph);
    cleanup(freep) char *name = NULL;
    size_t size = strlen(node->name) + sizeof("/read/");
    int r;

    if (shared && known->read != UINT32_MAX) {
        *ret = (struct edge){ known->read, 0 };
        return 0;
    }
    name = malloc(size);
    if (!name)
        return error_set(err, -ENOMEM, "no host memory to read variable '%s'", node->name);
    snprintf(name, size, "%s/read/", node->name);
    r = read_new(graph, variable, name, shared, ret, err);
    if (r == 0 && shared)
        known->read = ret->node;
    return r;
}

int build_read_named(struct allot_graph *graph, struct edge variable, const char *name,
                     struct edge *ret, struct allot_error *err) {
    return read_new(graph, variable, name, false, ret, err);
}
