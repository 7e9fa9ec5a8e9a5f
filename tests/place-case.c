/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Place-case: one placement problem as JSON on standard input (tests/cases/placer/README.md), the
 * placement or the error as JSON on standard output.
 */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/place/placer.h"

__attribute__((noreturn)) static void die(const char *what, const char *which) {
    fprintf(stderr, "place-case: %s%s%s\n", what, which ? ": " : "", which ? which : "");
    exit(2);
}

/* Everything lives until the end. */
static void **kept;
static size_t n_kept;

static void *need(void *memory) {
    kept = realloc(kept, (n_kept + 1) * sizeof(*kept));
    if (!memory || !kept)
        die("no memory", NULL);
    kept[n_kept++] = memory;
    return memory;
}

static struct json_object *member(struct json_object *object, const char *name) {
    struct json_object *value;

    if (!json_object_is_type(object, json_type_object) ||
        !json_object_object_get_ex(object, name, &value))
        die("a member is missing", name);
    return value;
}

static const char *text(struct json_object *object, const char *name) {
    return json_object_get_string(member(object, name));
}

static size_t length(struct json_object *array) {
    if (!json_object_is_type(array, json_type_array))
        die("a list was expected", json_object_to_json_string(array));
    return json_object_array_length(array);
}

struct reading {
    struct placer_problem problem;
    const char *types[PLACER_TYPES_MAX];
    struct placer_op *ops;
    struct placer_node *nodes;
};

/* The number of a type; those without a preference come behind all others. */
static uint32_t type_of(struct reading *reading, const char *name) {
    for (uint32_t i = 0; i < reading->problem.n_types; i++)
        if (strcmp(reading->types[i], name) == 0)
            return i;
    if (reading->problem.n_types == PLACER_TYPES_MAX)
        die("too many device types", name);
    reading->types[reading->problem.n_types] = name;
    return (uint32_t)reading->problem.n_types++;
}

static const enum placer_flow *read_flows(struct json_object *list, size_t *ret_n) {
    size_t n = length(list);
    enum placer_flow *flows = need(calloc(n + 1, sizeof(*flows)));

    for (size_t i = 0; i < n; i++) {
        const char *flow = json_object_get_string(json_object_array_get_idx(list, i));

        flows[i] = strcmp(flow, "ref") == 0        ? PLACER_REF
                   : strcmp(flow, "resource") == 0 ? PLACER_RESOURCE
                                                   : PLACER_VALUE;
    }
    *ret_n = n;
    return flows;
}

static void read_op(struct reading *reading, struct placer_op *op, const char *name,
                    struct json_object *object) {
    struct json_object *kernels = member(object, "kernels"), *metadata;
    struct placer_kernel *list = need(calloc(length(kernels) + 1, sizeof(*list)));

    op->name = name;
    op->inputs = read_flows(member(object, "inputs"), &op->n_inputs);
    op->outputs = read_flows(member(object, "outputs"), &op->n_outputs);
    op->n_kernels = length(kernels);
    for (size_t i = 0; i < op->n_kernels; i++) {
        struct json_object *kernel = json_object_array_get_idx(kernels, i);

        list[i].type = type_of(reading, text(kernel, "type"));
        list[i].priority = json_object_get_int(member(kernel, "priority"));
    }
    op->kernels = list;
    op->is_metadata = json_object_object_get_ex(object, "metadata", &metadata) &&
                      json_object_get_boolean(metadata);
}

static uint32_t node_of(struct reading *reading, const char *name, size_t n) {
    for (uint32_t i = 0; i < reading->problem.n_nodes; i++)
        if (strncmp(reading->nodes[i].name, name, n) == 0 && reading->nodes[i].name[n] == 0)
            return i;
    die("no such node", name);
}

static void read_node(struct reading *reading, struct placer_node *node,
                      struct json_object *object) {
    struct json_object *inputs = member(object, "inputs"), *colocate = member(object, "colocate");
    const char *op = text(object, "op");
    struct placer_edge *edges = need(calloc(length(inputs) + 1, sizeof(*edges)));
    uint32_t *others = need(calloc(length(colocate) + 1, sizeof(*others)));

    while (node->op < reading->problem.n_ops && strcmp(reading->ops[node->op].name, op) != 0)
        node->op++;
    if (node->op == reading->problem.n_ops)
        die("no such op", op);
    if (length(inputs) != reading->ops[node->op].n_inputs)
        die("not as many inputs as its op declares", node->name);
    for (size_t i = 0; i < length(inputs); i++) {
        const char *from = json_object_get_string(json_object_array_get_idx(inputs, i));
        const char *colon = strrchr(from, ':');

        if (!colon)
            die("no NODE:OUTPUT", from);
        edges[i].node = node_of(reading, from, (size_t)(colon - from));
        edges[i].output = (uint32_t)atoi(colon + 1);
    }
    for (size_t i = 0; i < length(colocate); i++) {
        const char *name = json_object_get_string(json_object_array_get_idx(colocate, i));

        others[i] = node_of(reading, name, strlen(name));
    }
    node->inputs = edges;
    node->requested = text(object, "requested");
    node->assigned = text(object, "assigned");
    node->colocate = others;
    node->n_colocate = length(colocate);
}

static void read_problem(struct reading *reading, struct json_object *root) {
    struct json_object *types = member(root, "device_type_priority"), *ops = member(root, "ops");
    struct json_object *devices = member(root, "devices"), *nodes = member(root, "nodes"), *local;
    const char **names = need(calloc(length(devices) + 1, sizeof(*names)));

    for (size_t i = 0; i < length(types); i++)
        type_of(reading, json_object_get_string(json_object_array_get_idx(types, i)));
    for (size_t i = 0; i < length(devices); i++)
        names[i] = json_object_get_string(json_object_array_get_idx(devices, i));
    reading->problem.devices = names;
    reading->problem.n_devices = length(devices);
    reading->ops =
        need(calloc((size_t)json_object_object_length(ops) + 1, sizeof(struct placer_op)));
    json_object_object_foreach(ops, name, op) {
        read_op(reading, &reading->ops[reading->problem.n_ops++], name, op);
    }
    reading->nodes = need(calloc(length(nodes) + 1, sizeof(struct placer_node)));
    reading->problem.n_nodes = length(nodes);
    for (size_t i = 0; i < length(nodes); i++)
        reading->nodes[i].name = text(json_object_array_get_idx(nodes, i), "name");
    for (size_t i = 0; i < length(nodes); i++)
        read_node(reading, &reading->nodes[i], json_object_array_get_idx(nodes, i));
    /* Devices of a type that no kernel and no preference names still have one. */
    for (size_t i = 0; i < length(devices); i++) {
        struct spec spec;

        if (spec_parse(&spec, names[i]) == 0 && spec.has_type)
            type_of(reading, need(strdup(spec.type)));
    }
    reading->problem.types = reading->types;
    reading->problem.ops = reading->ops;
    reading->problem.nodes = reading->nodes;
    reading->problem.soft = json_object_get_boolean(member(root, "allow_soft_placement"));
    if (json_object_object_get_ex(root, "local_device", &local))
        reading->problem.local_device = json_object_get_string(local);
}

static struct json_object *read_input(void) {
    static char buffer[1 << 22];
    struct json_object *root;

    buffer[fread(buffer, 1, sizeof(buffer) - 1, stdin)] = 0;
    root = json_tokener_parse(buffer);
    if (!root)
        die("no JSON on standard input", NULL);
    return root;
}

/* As TensorFlow calls it. */
static const char *code_name(enum placer_code code) {
    static const char *const names[] = {
        [PLACER_OK] = "OK",
        [PLACER_INVALID_ARGUMENT] = "INVALID_ARGUMENT",
        [PLACER_INTERNAL] = "INTERNAL",
        [PLACER_FAILED_PRECONDITION] = "FAILED_PRECONDITION",
        [PLACER_NO_MEMORY] = "RESOURCE_EXHAUSTED",
        [PLACER_CANCELLED] = "CANCELLED",
    };

    return names[code];
}

int main(void) {
    struct json_object *root = read_input(), *answer = json_object_new_object();
    struct json_object *inner = json_object_new_object();
    struct reading reading = { 0 };
    struct placer_error error;
    uint32_t *devices;

    read_problem(&reading, root);
    devices = need(calloc(reading.problem.n_nodes + 1, sizeof(*devices)));
    if (placer_simple(&reading.problem, devices, NULL, &error) != PLACER_OK) {
        json_object_object_add(inner, "code", json_object_new_string(code_name(error.code)));
        json_object_object_add(inner, "message", json_object_new_string(error.text));
        json_object_object_add(answer, "error", inner);
    } else {
        for (size_t i = 0; i < reading.problem.n_nodes; i++)
            json_object_object_add(inner, reading.nodes[i].name,
                                   json_object_new_string(reading.problem.devices[devices[i]]));
        json_object_object_add(answer, "devices", inner);
    }
    puts(json_object_to_json_string_ext(answer, JSON_C_TO_STRING_PRETTY));
    json_object_put(answer);
    json_object_put(root);
    while (n_kept)
        free(kept[--n_kept]);
    free(kept);
    return 0;
}
