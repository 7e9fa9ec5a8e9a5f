/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scope: a stack of frames, walked from the innermost for each node.
 *
 * Devices follow TensorFlow: a device name fills in the parts that inner scopes left open; a device
 * function's answer replaces what was given so far; a colocated node takes the device of its
 * partner, if that has one, whatever else is given.
 */
#include "libclient/graph/scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/core/spec.h"
#include "libclient/graph/graph.h"
#include "libclient/graph/name.h"

enum scope_kind {
    SCOPE_DEVICE,
    SCOPE_DEVICE_NONE,
    SCOPE_FUNCTION,
    SCOPE_CONTROLS,
    SCOPE_COLOCATE,
    SCOPE_NAME,
    SCOPE_HINT,
    SCOPE_PLACELESS,
    SCOPE_BARE,
};

struct graph_scope {
    struct graph_scope *outer;
    enum scope_kind kind;
    struct spec spec;         /* of a device */
    scope_device_fn function; /* of a device function */
    void *userdata;
    char *prefix;    /* of a name; owned */
    uint32_t *nodes; /* controls, colocation; owned */
    size_t n_nodes;
    const struct graph_hint *hint; /* the graph's */
};

static int push(struct allot_graph *graph, enum scope_kind kind, struct allot_error *err) {
    struct graph_scope *scope = calloc(1, sizeof(*scope));

    if (!scope)
        return error_set(err, -ENOMEM, "no host memory for a scope");
    scope->kind = kind;
    scope->outer = graph->scope;
    graph->scope = scope;
    return 0;
}

void scope_pop(struct allot_graph *graph) {
    struct graph_scope *scope = graph->scope;

    if (!scope)
        return;
    graph->scope = scope->outer;
    free(scope->prefix);
    free(scope->nodes);
    free(scope);
}

static int parse(struct spec *ret, const char *device, struct allot_error *err) {
    if (spec_parse(ret, device) < 0)
        return error_set(err, -EINVAL,
                         "'%.128s' is not a device name: it is written \"/gpu:0\", \"/cpu:0\" or "
                         "\"/job:worker/task:0/device:GPU:0\"",
                         device);
    return 0;
}

int scope_push_device(struct allot_graph *graph, const char *device, struct allot_error *err) {
    struct spec spec = { 0 };
    int r = device ? parse(&spec, device, err) : 0;

    if (r == 0)
        r = push(graph, device ? SCOPE_DEVICE : SCOPE_DEVICE_NONE, err);
    if (r == 0)
        graph->scope->spec = spec;
    return r;
}

int scope_push_function(struct allot_graph *graph, scope_device_fn fn, void *userdata,
                        struct allot_error *err) {
    int r = push(graph, SCOPE_FUNCTION, err);

    if (r < 0)
        return r;
    graph->scope->function = fn;
    graph->scope->userdata = userdata;
    return 0;
}

int scope_push_controls(struct allot_graph *graph, const uint32_t *nodes, size_t n,
                        struct allot_error *err) {
    uint32_t *copy = n ? malloc(n * sizeof(copy[0])) : NULL;
    int r;

    if (n && !copy)
        return error_set(err, -ENOMEM, "no host memory for a scope");
    r = push(graph, SCOPE_CONTROLS, err);
    if (r < 0) {
        free(copy);
        return r;
    }
    if (n)
        memcpy(copy, nodes, n * sizeof(copy[0]));
    graph->scope->nodes = copy;
    graph->scope->n_nodes = n;
    return 0;
}

int scope_push_colocate(struct allot_graph *graph, uint32_t node, struct allot_error *err) {
    int r = scope_push_controls(graph, &node, node == UINT32_MAX ? 0 : 1, err);

    if (r == 0)
        graph->scope->kind = SCOPE_COLOCATE;
    return r;
}

int scope_push_name(struct allot_graph *graph, const char *name, struct allot_error *err) {
    size_t length = strlen(name);
    char *prefix, *made;
    int r;

    if (length > 1 && name[length - 1] == '/' && name_is_valid(name)) {
        prefix = strdup(name);
        r = prefix ? 0 : error_set(err, -ENOMEM, "no host memory for a scope");
    } else {
        r = name_new(graph, name, &made, err);
        if (r < 0)
            return r;
        length = strlen(made);
        prefix = realloc(made, length + 2);
        if (prefix)
            memcpy(prefix + length, "/", 2);
        else {
            free(made);
            r = error_set(err, -ENOMEM, "no host memory for a scope");
        }
    }
    if (r == 0)
        r = push(graph, SCOPE_NAME, err);
    if (r < 0) {
        free(prefix);
        return r;
    }
    graph->scope->prefix = prefix;
    return 0;
}

int scope_push_hint(struct allot_graph *graph, double cost_usec, const char *prefer, bool together,
                    struct allot_error *err) {
    const struct graph_hint *outer = scope_hint(graph);
    struct graph_hint *hint = calloc(1, sizeof(*hint));
    struct spec spec;
    int r = hint ? 0 : error_set(err, -ENOMEM, "no host memory for a scope");

    if (r == 0 && prefer)
        r = parse(&spec, prefer, err);
    if (r == 0 && outer) {
        hint->cost_usec = outer->cost_usec;
        hint->together = outer->together;
        prefer = prefer ? prefer : outer->prefer;
    }
    if (r == 0 && prefer && !(hint->prefer = strdup(prefer)))
        r = error_set(err, -ENOMEM, "no host memory for a scope");
    if (r == 0)
        r = push(graph, SCOPE_HINT, err);
    if (r < 0) {
        if (hint)
            free(hint->prefer);
        free(hint);
        return r;
    }
    if (cost_usec > 0)
        hint->cost_usec = cost_usec;
    if (together)
        hint->together = ++graph->n_together;
    hint->next = graph->hints;
    graph->hints = hint;
    graph->scope->hint = hint;
    return 0;
}

const struct graph_hint *scope_hint(const struct allot_graph *graph) {
    for (const struct graph_scope *scope = graph->scope; scope && scope->kind != SCOPE_BARE;
         scope = scope->outer)
        if (scope->kind == SCOPE_HINT)
            return scope->hint;
    return NULL;
}

int scope_push_placeless(struct allot_graph *graph, struct allot_error *err) {
    return push(graph, SCOPE_PLACELESS, err);
}

int scope_push_bare(struct allot_graph *graph, struct allot_error *err) {
    return push(graph, SCOPE_BARE, err);
}

enum scope_about scope_innermost(const struct allot_graph *graph) {
    static const enum scope_about abouts[] = {
        [SCOPE_DEVICE] = SCOPE_ABOUT_DEVICE,     [SCOPE_DEVICE_NONE] = SCOPE_ABOUT_DEVICE,
        [SCOPE_FUNCTION] = SCOPE_ABOUT_DEVICE,   [SCOPE_CONTROLS] = SCOPE_ABOUT_CONTROL,
        [SCOPE_COLOCATE] = SCOPE_ABOUT_COLOCATE, [SCOPE_NAME] = SCOPE_ABOUT_NAME,
        [SCOPE_HINT] = SCOPE_ABOUT_HINT,         [SCOPE_PLACELESS] = SCOPE_ABOUT_NONE,
        [SCOPE_BARE] = SCOPE_ABOUT_NONE,
    };

    return graph->scope ? abouts[graph->scope->kind] : SCOPE_ABOUT_NONE;
}

const char *scope_prefix(const struct allot_graph *graph) {
    for (const struct graph_scope *scope = graph->scope; scope; scope = scope->outer) {
        if (scope->kind == SCOPE_NAME)
            return scope->prefix;
        if (scope->kind == SCOPE_BARE)
            break;
    }
    return "";
}

int scope_has_controls(const struct allot_graph *graph) {
    for (const struct graph_scope *scope = graph->scope; scope; scope = scope->outer) {
        if (scope->kind == SCOPE_CONTROLS)
            return scope->n_nodes > 0;
        if (scope->kind == SCOPE_BARE)
            break;
    }
    return false;
}

/* Do not search longer lists for each new entry: a group of all nodes of a graph would take
 * quadratic time.
 */
enum { LIST_SHORT = 32, WORD_BITS = 64 };

static int mark(struct scope_ids *list, uint32_t id) {
    size_t word = id / WORD_BITS;

    if (word >= list->n_seen) {
        size_t n = MAX(word + 1, 2 * list->n_seen);
        uint64_t *grown = realloc(list->seen, n * sizeof(grown[0]));

        if (!grown)
            return -ENOMEM;
        memset(grown + list->n_seen, 0, (n - list->n_seen) * sizeof(grown[0]));
        list->seen = grown;
        list->n_seen = n;
    }
    list->seen[word] |= UINT64_C(1) << id % WORD_BITS;
    return 0;
}

static bool is_listed(const struct scope_ids *list, uint32_t id) {
    if (list->seen)
        return id / WORD_BITS < list->n_seen && list->seen[id / WORD_BITS] >> id % WORD_BITS & 1;
    for (size_t i = 0; i < list->n; i++)
        if (list->ids[i] == id)
            return true;
    return false;
}

void scope_ids_done(struct scope_ids *list) {
    free(list->ids);
    free(list->seen);
}

int scope_ids_add(struct scope_ids *list, uint32_t id) {
    if (is_listed(list, id))
        return 0;
    for (size_t i = 0; list->n == LIST_SHORT && i < LIST_SHORT; i++)
        if (mark(list, list->ids[i]) < 0)
            return -ENOMEM;
    if (list->n >= LIST_SHORT && mark(list, id) < 0)
        return -ENOMEM;
    if (list->n == list->size) {
        size_t size = list->size ? list->size * 2 : 8;
        uint32_t *grown = realloc(list->ids, size * sizeof(grown[0]));

        if (!grown)
            return -ENOMEM;
        list->ids = grown;
        list->size = size;
    }
    list->ids[list->n++] = id;
    return 0;
}

static int add_all(struct scope_ids *list, const struct graph_scope *scope) {
    int r = 0;

    for (size_t i = 0; i < scope->n_nodes && r == 0; i++)
        r = scope_ids_add(list, scope->nodes[i]);
    return r;
}

int scope_apply(struct allot_graph *graph, const char *op, const char *name, const char *own,
                struct scope_ids *controls, struct scope_ids *colocate, char **ret_device,
                struct allot_error *err) {
    bool device_open = true, controls_open = true, colocate_open = true;
    char text[SPEC_TEXT_SIZE];
    struct spec device, outer;
    char *copy;
    int r = parse(&device, own, err);

    for (const struct graph_scope *scope = graph->scope; scope && r == 0; scope = scope->outer) {
        if (scope->kind == SCOPE_BARE)
            break;
        if (scope->kind == SCOPE_DEVICE_NONE)
            device_open = false;
        else if (scope->kind == SCOPE_PLACELESS)
            device_open = colocate_open = false;
        else if (scope->kind == SCOPE_DEVICE && device_open) {
            outer = scope->spec;
            spec_override(&outer, &device);
            device = outer;
        } else if (scope->kind == SCOPE_FUNCTION && device_open) {
            const char *answer =
                scope->function(op, name, spec_format(&device, text), scope->userdata);

            if (answer)
                r = parse(&device, answer, err);
            if (r < 0)
                r = error_wrap(err, r, "the device function, asked about '%s' (op %s)", name, op);
        } else if (scope->kind == SCOPE_CONTROLS && controls_open) {
            controls_open = scope->n_nodes > 0;
            r = add_all(controls, scope);
        } else if (scope->kind == SCOPE_COLOCATE && colocate_open)
            r = add_all(colocate, scope);
        if (r == -ENOMEM)
            error_set(err, r, "no host memory for the scopes of a node");
    }
    if (r < 0)
        return r;
    for (size_t i = colocate->n; i-- > 0;)
        if (graph_node(graph, colocate->ids[i])->device[0])
            r = parse(&device, graph_node(graph, colocate->ids[i])->device, err);
    copy = strdup(spec_format(&device, text));
    if (!copy)
        return error_set(err, -ENOMEM, "no host memory for the device of a node");
    *ret_device = copy;
    return r;
}
