/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan-case: one planning problem as JSON on standard input (tests/cases/plan/README.md), the plan
 * or the error as JSON on standard output.
 *
 *     plan-case [--seconds S] [--events N] [--seed N] [--threads N] < case.json
 *
 * --events is the planner's own budget and gives the same plan on every machine; --seconds is a
 * limit of time, on top of it.
 *
 * Three members are ours, for cases that sessions make (tests/support/libclient/place/plan_case.h):
 * "channel" of a link, a number that links which carry one transfer at a time share; "media" of a
 * link, a hexadecimal mask of what else it shares; and "own_bytes" of a node, what its output takes
 * where it was made, if not all of it.
 */
#include <errno.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "libclient/place/dynamic.h"

#define EVENTS_PER_SECOND 60e6 /* more than two threads simulate: the time decides */

__attribute__((noreturn)) static void die(const char *what, const char *which) {
    fprintf(stderr, "plan-case: %s%s%s\n", what, which ? ": " : "", which ? which : "");
    exit(2);
}

static void *need(void *memory) {
    if (!memory)
        die("no memory", NULL);
    return memory;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static struct json_object *find(struct json_object *object, const char *name) {
    struct json_object *value = NULL;

    if (!json_object_is_type(object, json_type_object))
        die("an object was expected with the member", name);
    json_object_object_get_ex(object, name, &value);
    return value;
}

static struct json_object *list(struct json_object *object, const char *name) {
    struct json_object *value = find(object, name);

    if (!json_object_is_type(value, json_type_array))
        die("a list was expected", name);
    return value;
}

static double number(struct json_object *value, const char *name) {
    double x;

    if (!json_object_is_type(value, json_type_int) && !json_object_is_type(value, json_type_double))
        die("a number was expected", name);
    x = json_object_get_double(value);
    if (!isfinite(x) || x < 0)
        die("a number of 0 or more was expected", name);
    return x;
}

static uint64_t bytes(struct json_object *value, const char *name) {
    double x = number(value, name);

    if (x >= 0x1p62)
        die("too many bytes", name);
    return json_object_is_type(value, json_type_int) ? (uint64_t)json_object_get_int64(value)
                                                     : (uint64_t)x;
}

static uint32_t index_below(struct json_object *value, uint32_t limit, const char *name) {
    int64_t i = json_object_get_int64(value);

    if (!json_object_is_type(value, json_type_int) || i < 0 || i >= limit)
        die("an index is out of range", name);
    return (uint32_t)i;
}

static struct json_object *read_json(void) {
    size_t size = 1 << 20, n = 0, got;
    char *text = need(malloc(size));
    struct json_tokener *tokener = need(json_tokener_new());
    struct json_object *object;

    while ((got = fread(text + n, 1, size - n, stdin)) > 0) {
        n += got;
        if (n == size)
            text = need(realloc(text, size *= 2));
    }
    if (n > INT32_MAX)
        die("the case is larger than 2 GiB", NULL);
    object = json_tokener_parse_ex(tokener, text, (int)n);
    if (!object)
        die("this is no JSON", json_tokener_error_desc(json_tokener_get_error(tokener)));
    json_tokener_free(tokener);
    free(text);
    return object;
}

/* ---- The case -------------------------------------------------------------------------------- */

/* Links without a channel have one of their own. */
static uint32_t read_channel(struct task_graph *g, struct json_object *channel) {
    uint32_t most = TASK_GRAPH_DEVICES_MAX * TASK_GRAPH_DEVICES_MAX;
    uint32_t number = channel ? index_below(channel, most, "channel") : g->n_channels;

    if (number >= g->n_channels)
        g->n_channels = number + 1;
    return number;
}

static void read_machine(struct task_graph *g, struct json_object *object) {
    struct json_object *devices = list(object, "devices"), *links = list(object, "links");
    size_t n = json_object_array_length(devices);

    if (n == 0 || n > TASK_GRAPH_DEVICES_MAX)
        die("there are none or too many", "devices");
    g->n_devices = (uint32_t)n;
    g->memory_bytes = need(calloc(n, sizeof(*g->memory_bytes)));
    g->links = need(calloc(n * n, sizeof(*g->links)));
    for (uint32_t d = 0; d < n; d++) {
        struct json_object *memory = find(json_object_array_get_idx(devices, d), "memory_bytes");

        g->memory_bytes[d] = memory ? bytes(memory, "memory_bytes") : UINT64_MAX;
    }
    for (size_t i = 0; i < json_object_array_length(links); i++) {
        struct json_object *link = json_object_array_get_idx(links, i);
        uint32_t from = index_below(find(link, "from"), g->n_devices, "from");
        uint32_t to = index_below(find(link, "to"), g->n_devices, "to");
        struct task_link *at = &g->links[from * g->n_devices + to];

        if (from == to || at->bytes_per_usec > 0)
            die("a link leads to itself or is there twice", NULL);
        at->latency_usec = number(find(link, "latency_us"), "latency_us");
        at->bytes_per_usec = number(find(link, "bytes_per_us"), "bytes_per_us");
        if (!(at->bytes_per_usec > 0))
            die("a link has no bandwidth", NULL);
        at->channel = read_channel(g, find(link, "channel"));
        at->media = strtoull(json_object_get_string(find(link, "media")) ?: "0", NULL, 16);
    }
}

struct edges {
    uint32_t *first, *items;
    uint32_t n, size;
};

static void edge_add(struct edges *edges, uint32_t to, uint32_t from) {
    for (uint32_t i = edges->first[to]; i < edges->n; i++)
        if (edges->items[i] == from)
            return; /* each once */
    if (edges->n == edges->size)
        edges->items = need(
            realloc(edges->items, (edges->size = edges->size * 2 + 64) * sizeof(*edges->items)));
    edges->items[edges->n++] = from;
}

/* The number of a colocation group: that of its first task. */
static uint32_t group_of(struct json_object *groups, struct json_object *name, uint32_t task) {
    struct json_object *known;

    if (!name)
        return TASK_GRAPH_NONE;
    known = find(groups, json_object_get_string(name));
    if (known)
        return (uint32_t)json_object_get_int64(known);
    json_object_object_add(groups, json_object_get_string(name), json_object_new_int64(task));
    return task;
}

static void read_task(struct task_graph *g, struct json_object *node, uint32_t v,
                      struct json_object *groups, struct edges *inputs, struct edges *before) {
    struct json_object *ins = list(node, "inputs"), *afters = find(node, "after");
    struct json_object *costs = list(node, "cost_us"), *pin = find(node, "pin");

    for (size_t i = 0; i < json_object_array_length(ins); i++)
        edge_add(inputs, v,
                 index_below(find(json_object_array_get_idx(ins, i), "node"), g->n_tasks, "node"));
    if (afters && !json_object_is_type(afters, json_type_array))
        die("a list was expected", "after");
    for (size_t i = 0; afters && i < json_object_array_length(afters); i++)
        edge_add(before, v, index_below(json_object_array_get_idx(afters, i), g->n_tasks, "after"));
    inputs->first[v + 1] = inputs->n;
    before->first[v + 1] = before->n;
    g->output_bytes[v] = bytes(find(node, "output_bytes"), "output_bytes");
    g->own_bytes[v] =
        find(node, "own_bytes") ? bytes(find(node, "own_bytes"), "own_bytes") : g->output_bytes[v];
    g->resident_bytes[v] = bytes(find(node, "resident_bytes"), "resident_bytes");
    if (json_object_array_length(costs) != g->n_devices)
        die("one cost for each device was expected", "cost_us");
    for (uint32_t d = 0; d < g->n_devices; d++) {
        struct json_object *cost = json_object_array_get_idx(costs, d);

        g->cost_usec[(size_t)v * g->n_devices + d] = cost ? number(cost, "cost_us") : INFINITY;
    }
    g->pin[v] = pin ? index_below(pin, g->n_devices, "pin") : TASK_GRAPH_NONE;
    g->group[v] = group_of(groups, find(node, "colocate"), v);
}

static void read_tasks(struct task_graph *g, struct json_object *object) {
    struct json_object *nodes = list(object, "nodes"), *groups = json_object_new_object();
    size_t n = json_object_array_length(nodes);
    struct edges inputs = { .first = need(calloc(n + 1, sizeof(uint32_t))) };
    struct edges before = { .first = need(calloc(n + 1, sizeof(uint32_t))) };

    if (n > INT32_MAX / TASK_GRAPH_DEVICES_MAX)
        die("there are too many", "nodes");
    inputs.items = need(calloc(1, sizeof(uint32_t)));
    before.items = need(calloc(1, sizeof(uint32_t)));
    inputs.size = before.size = 1;
    g->n_tasks = (uint32_t)n;
    g->cost_usec = need(calloc(n * g->n_devices + 1, sizeof(*g->cost_usec)));
    g->output_bytes = need(calloc(n + 1, sizeof(*g->output_bytes)));
    g->own_bytes = need(calloc(n + 1, sizeof(*g->own_bytes)));
    g->resident_bytes = need(calloc(n + 1, sizeof(*g->resident_bytes)));
    g->group = need(calloc(n + 1, sizeof(*g->group)));
    g->pin = need(calloc(n + 1, sizeof(*g->pin)));
    for (uint32_t v = 0; v < n; v++)
        read_task(g, json_object_array_get_idx(nodes, v), v, groups, &inputs, &before);
    json_object_put(groups);
    g->inputs = (struct order_lists){ inputs.first, inputs.items };
    g->before = (struct order_lists){ before.first, before.items };
}

/* ---- The answer ------------------------------------------------------------------------------ */

static void print_plan(const struct task_graph *g, const struct assignment *plan) {
    printf("{\"assignment\":[");
    for (uint32_t v = 0; v < g->n_tasks; v++)
        printf("%s%u", v ? "," : "", plan->device[v]);
    printf("],\"order\":[");
    for (uint32_t d = 0; d < g->n_devices; d++) {
        printf("%s[", d ? "," : "");
        for (uint32_t i = plan->first[d]; i < plan->first[d + 1]; i++)
            printf("%s%u", i > plan->first[d] ? "," : "", plan->sequence[i]);
        printf("]");
    }
    printf("],\"makespan_us\":%.17g,\"peak_bytes\":[", plan->makespan_usec);
    for (uint32_t d = 0; d < g->n_devices; d++)
        printf("%s%llu", d ? "," : "", (unsigned long long)plan->peak_bytes[d]);
    printf("]}\n");
}

static bool is_late(void *data) {
    return clock_usec(CLOCK_MONOTONIC) >= *(const uint64_t *)data;
}

int main(int argc, char **argv) {
    uint64_t deadline = UINT64_MAX, begin = clock_usec(CLOCK_MONOTONIC);
    struct dynamic_options options = {
        .seed = 1, .budget = 0, .is_stopped = is_late, .data = &deadline, .n_threads = 2
    };
    struct task_graph graph = { 0 };
    struct dynamic_result result;
    struct json_object *object;
    double seconds = 1;
    int r;

    for (int i = 1; i < argc; i += 2) {
        double value = i + 1 < argc ? strtod(argv[i + 1], NULL) : -1;

        if (!(value >= 0))
            die("usage: plan-case [--seconds S] [--events N] [--seed N] [--threads N] < case.json",
                NULL);
        if (strcmp(argv[i], "--seconds") == 0)
            seconds = value;
        else if (strcmp(argv[i], "--events") == 0)
            options.budget = (uint64_t)value;
        else if (strcmp(argv[i], "--seed") == 0)
            options.seed = (uint64_t)value;
        else if (strcmp(argv[i], "--threads") == 0)
            options.n_threads = (unsigned)value;
        else
            die("there is no option", argv[i]);
    }
    object = read_json();
    read_machine(&graph, object);
    read_tasks(&graph, object);
    json_object_put(object);
    r = task_graph_complete(&graph);
    if (r < 0)
        die(r == -EINVAL   ? "the graph has a cycle"
            : r == -ERANGE ? "the times or bytes are too large"
                           : "no memory",
            NULL);
    if (options.budget == 0) {
        options.budget = (uint64_t)(seconds * EVENTS_PER_SECOND);
        deadline = begin + (uint64_t)(seconds * 1e6);
    }
    r = dynamic_plan(&graph, &options, &result);
    if (r == -ENOSPC)
        printf("{\"error\":{\"code\":\"infeasible\",\"message\":\"%s\"}}\n", result.text);
    else if (r < 0)
        die("no memory", NULL);
    else
        print_plan(&graph, &result.plan);
    assignment_done(&result.plan);
    task_graph_done(&graph);
    return 0;
}
