/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plan-case: one planning problem as JSON on standard input (tests/cases/plan/README.md), the plan
 * or the error as JSON on standard output.
 *
 *     plan-case [--seconds S] [--events N] [--seed N] [--threads N] < case.json
 *
 * --events is the planner's own budget and gives the same plan on every machine; --seconds is a
 * limit of time instead: the search ends by then, but the heuristics are tried in any case.
 *
 * Three members are ours, for cases that sessions make (tests/support/libclient/place/plan_case.h):
 * "channel" of a link, a number that links which carry one transfer at a time share; "media" of a
 * link, a hexadecimal mask of what else it shares; and "own_bytes" of a node, what its output takes
 * where it was made, if not all of it.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "libclient/place/dynamic.h"

#define EVENTS_PER_SECOND 200e6 /* more than two threads simulate: the time decides */

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

/*
 * The case is read in place: a tree of objects would take more memory than the planner. A span is
 * the text of one value, without the white space around it.
 */
struct span {
    const char *text; /* NULL: there is none */
    size_t n;
};

#define DEPTH_MAX 64

static const char *skip_space(const char *at) {
    return at + strspn(at, " \t\r\n");
}

static const char *skip_string(const char *at) {
    for (at++; *at != '"'; at++) {
        if (*at == '\\' && at[1])
            at++;
        if ((unsigned char)*at < ' ')
            die("this is no JSON: a text does not end", NULL);
    }
    return at + 1;
}

static const char *skip_value(const char *at, unsigned depth) {
    char close = *at == '{' ? '}' : ']';

    if (*at == '"')
        return skip_string(at);
    if (*at != '{' && *at != '[') {
        size_t n = strcspn(at, ",:]}[{\" \t\r\n");

        if (n == 0)
            die("this is no JSON: a value is missing", NULL);
        return at + n;
    }
    if (depth == DEPTH_MAX)
        die("this is no JSON for us: too many lists and objects in each other", NULL);
    at = skip_space(at + 1);
    while (*at != close) {
        if (close == '}') {
            if (*at != '"')
                die("this is no JSON: a member has no name", NULL);
            at = skip_space(skip_string(at));
            if (*at++ != ':')
                die("this is no JSON: a member has no value", NULL);
            at = skip_space(at);
        }
        at = skip_space(skip_value(at, depth + 1));
        if (*at == ',' && at[1] && *skip_space(at + 1) != close)
            at = skip_space(at + 1);
        else if (*at != close)
            die("this is no JSON: a list or an object does not end", NULL);
    }
    return at + 1;
}

/* The next value of a list, or the next member's value of an object; `at` begins behind the
 * bracket. False: there is none. */
static bool next(const char **at, struct span *ret_name, struct span *ret) {
    const char *value = skip_space(*at), *end;

    if (*value == ',')
        value = skip_space(value + 1);
    if (*value == ']' || *value == '}')
        return false;
    if (ret_name) {
        *ret_name = (struct span){ value, (size_t)(skip_string(value) - value) };
        value = skip_space(skip_space(value + ret_name->n) + 1);
    }
    end = skip_value(value, 0);
    *ret = (struct span){ value, (size_t)(end - value) };
    *at = end;
    return true;
}

static bool is_text(struct span span, const char *text) {
    return span.text && span.n == strlen(text) && memcmp(span.text, text, span.n) == 0;
}

struct member {
    const char *name;
    struct span value; /* of the last member of that name; null counts as none */
};

static void read_members(struct span object, struct member *members, size_t n) {
    struct span name, value;
    const char *at;

    if (!object.text || *object.text != '{')
        die("an object was expected with the member", members[0].name);
    at = object.text + 1;
    while (next(&at, &name, &value))
        for (size_t i = 0; i < n; i++)
            if (name.n == strlen(members[i].name) + 2 &&
                memcmp(name.text + 1, members[i].name, name.n - 2) == 0)
                members[i].value = is_text(value, "null") ? (struct span){ 0 } : value;
}

/* Where the values of a list begin. */
static const char *list(struct span value, const char *name) {
    if (!value.text || *value.text != '[')
        die("a list was expected", name);
    return value.text + 1;
}

static uint32_t list_length(struct span value, const char *name) {
    const char *at = list(value, name);
    uint32_t n = 0;

    while (next(&at, NULL, &value))
        if (++n > INT32_MAX / TASK_GRAPH_DEVICES_MAX)
            die("there are too many", name);
    return n;
}

static double number(struct span value, const char *name) {
    char *end = NULL;
    double x;

    if (!value.text || !strchr("0123456789-", *value.text))
        die("a number was expected", name);
    x = strtod(value.text, &end);
    if (end != value.text + value.n)
        die("a number was expected", name);
    if (!isfinite(x) || x < 0)
        die("a number of 0 or more was expected", name);
    return x;
}

static uint64_t bytes(struct span value, const char *name) {
    double x = number(value, name);

    if (x >= 0x1p62)
        die("too many bytes", name);
    return strspn(value.text, "0123456789") == value.n ? strtoull(value.text, NULL, 10)
                                                       : (uint64_t)x;
}

static uint32_t index_below(struct span value, uint32_t limit, const char *name) {
    if (!value.text || strspn(value.text, "0123456789") != value.n || value.n > 18 ||
        strtoull(value.text, NULL, 10) >= limit)
        die("an index is out of range", name);
    return (uint32_t)strtoul(value.text, NULL, 10);
}

static char *read_text(void) {
    size_t size = 1 << 20, n = 0, got;
    char *text = need(malloc(size));

    while ((got = fread(text + n, 1, size - n - 1, stdin)) > 0) {
        n += got;
        if (n + 1 == size)
            text = need(realloc(text, size *= 2));
    }
    text[n] = 0;
    if (strlen(text) != n)
        die("this is no JSON: it has a zero byte", NULL);
    return text;
}

/* ---- The case -------------------------------------------------------------------------------- */

/* Links without a channel have one of their own. */
static uint32_t read_channel(struct task_graph *g, struct span channel) {
    uint32_t most = TASK_GRAPH_DEVICES_MAX * TASK_GRAPH_DEVICES_MAX;
    uint32_t number = channel.text ? index_below(channel, most, "channel") : g->n_channels;

    if (number >= g->n_channels)
        g->n_channels = number + 1;
    return number;
}

static void read_link(struct task_graph *g, struct span link) {
    enum { FROM, TO, LATENCY, RATE, CHANNEL, MEDIA, N };
    struct member m[N] = {
        { .name = "from" },         { .name = "to" },      { .name = "latency_us" },
        { .name = "bytes_per_us" }, { .name = "channel" }, { .name = "media" },
    };
    struct task_link *at;
    uint32_t from, to;

    read_members(link, m, N);
    from = index_below(m[FROM].value, g->n_devices, "from");
    to = index_below(m[TO].value, g->n_devices, "to");
    at = &g->links[from * g->n_devices + to];
    if (from == to || at->bytes_per_usec > 0)
        die("a link leads to itself or is there twice", NULL);
    at->latency_usec = number(m[LATENCY].value, "latency_us");
    at->bytes_per_usec = number(m[RATE].value, "bytes_per_us");
    if (!(at->bytes_per_usec > 0))
        die("a link has no bandwidth", NULL);
    at->channel = read_channel(g, m[CHANNEL].value);
    if (m[MEDIA].value.text && *m[MEDIA].value.text == '"')
        at->media = strtoull(m[MEDIA].value.text + 1, NULL, 16);
}

static void read_machine(struct task_graph *g, struct span devices, struct span links) {
    uint32_t n = list_length(devices, "devices");
    const char *at = list(devices, "devices");
    struct span value;

    if (n == 0 || n > TASK_GRAPH_DEVICES_MAX)
        die("there are none or too many", "devices");
    g->n_devices = n;
    g->memory_bytes = need(calloc(n, sizeof(*g->memory_bytes)));
    g->links = need(calloc((size_t)n * n, sizeof(*g->links)));
    for (uint32_t d = 0; next(&at, NULL, &value); d++) {
        struct member memory = { .name = "memory_bytes" };

        read_members(value, &memory, 1);
        g->memory_bytes[d] = memory.value.text ? bytes(memory.value, memory.name) : UINT64_MAX;
    }
    at = list(links, "links");
    while (next(&at, NULL, &value))
        read_link(g, value);
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
            realloc(edges->items, (edges->size += edges->size / 2 + 64) * sizeof(*edges->items)));
    edges->items[edges->n++] = from;
}

/* What is read, and the tasks of colocation groups by the names of these. */
struct tasks {
    struct task_graph *graph;
    struct edges inputs, before;
    struct named {
        struct span group;
        uint32_t task;
    } * named;
    uint32_t n_named, named_size;
};

static void read_group(struct tasks *tasks, struct span group, uint32_t v) {
    tasks->graph->group[v] = TASK_GRAPH_NONE;
    if (!group.text)
        return;
    if (tasks->n_named == tasks->named_size)
        tasks->named =
            need(realloc(tasks->named, (tasks->named_size += tasks->named_size / 2 + 64) *
                                           sizeof(*tasks->named)));
    tasks->named[tasks->n_named++] = (struct named){ group, v };
}

static int compare_groups(const struct named *x, const struct named *y) {
    if (x->group.n != y->group.n)
        return x->group.n < y->group.n ? -1 : 1;
    return memcmp(x->group.text, y->group.text, x->group.n);
}

static int by_group(const void *a, const void *b) {
    const struct named *x = a, *y = b;
    int order = compare_groups(x, y);

    return order ? order : x->task < y->task ? -1 : x->task > y->task;
}

/* The number of a colocation group: that of its first task. */
static void number_groups(struct tasks *tasks) {
    uint32_t number = 0;

    if (tasks->n_named > 0)
        qsort(tasks->named, tasks->n_named, sizeof(*tasks->named), by_group);
    for (uint32_t i = 0; i < tasks->n_named; i++) {
        if (i == 0 || compare_groups(&tasks->named[i - 1], &tasks->named[i]) != 0)
            number = tasks->named[i].task;
        tasks->graph->group[tasks->named[i].task] = number;
    }
    free(tasks->named);
}

static void read_task(struct tasks *tasks, struct span node, uint32_t v) {
    enum { INPUTS, AFTER, OUTPUT, OWN, RESIDENT, COST, COLOCATE, PIN, N };
    struct member m[N] = {
        { .name = "inputs" },         { .name = "after" },
        { .name = "output_bytes" },   { .name = "own_bytes" },
        { .name = "resident_bytes" }, { .name = "cost_us" },
        { .name = "colocate" },       { .name = "pin" },
    };
    struct task_graph *g = tasks->graph;
    struct span value;
    const char *at;
    uint32_t d = 0;

    read_members(node, m, N);
    at = list(m[INPUTS].value, "inputs");
    while (next(&at, NULL, &value)) {
        struct member input = { .name = "node" };

        read_members(value, &input, 1);
        edge_add(&tasks->inputs, v, index_below(input.value, g->n_tasks, "node"));
    }
    if (m[AFTER].value.text) {
        at = list(m[AFTER].value, "after");
        while (next(&at, NULL, &value))
            edge_add(&tasks->before, v, index_below(value, g->n_tasks, "after"));
    }
    tasks->inputs.first[v + 1] = tasks->inputs.n;
    tasks->before.first[v + 1] = tasks->before.n;
    g->output_bytes[v] = bytes(m[OUTPUT].value, "output_bytes");
    g->own_bytes[v] = m[OWN].value.text ? bytes(m[OWN].value, "own_bytes") : g->output_bytes[v];
    g->resident_bytes[v] = bytes(m[RESIDENT].value, "resident_bytes");
    if (list_length(m[COST].value, "cost_us") != g->n_devices)
        die("one cost for each device was expected", "cost_us");
    at = list(m[COST].value, "cost_us");
    while (next(&at, NULL, &value))
        g->cost_usec[(size_t)v * g->n_devices + d++] =
            is_text(value, "null") ? INFINITY : number(value, "cost_us");
    g->pin[v] =
        m[PIN].value.text ? index_below(m[PIN].value, g->n_devices, "pin") : TASK_GRAPH_NONE;
    read_group(tasks, m[COLOCATE].value, v);
}

static void read_tasks(struct task_graph *g, struct span nodes) {
    size_t n = list_length(nodes, "nodes");
    const char *at = list(nodes, "nodes");
    struct tasks tasks = { .graph = g };
    struct span node;

    tasks.inputs = (struct edges){ .first = need(calloc(n + 1, sizeof(uint32_t))),
                                   .items = need(calloc(1, sizeof(uint32_t))),
                                   .size = 1 };
    tasks.before = (struct edges){ .first = need(calloc(n + 1, sizeof(uint32_t))),
                                   .items = need(calloc(1, sizeof(uint32_t))),
                                   .size = 1 };
    g->n_tasks = (uint32_t)n;
    g->cost_usec = need(calloc(n * g->n_devices + 1, sizeof(*g->cost_usec)));
    g->output_bytes = need(calloc(n + 1, sizeof(*g->output_bytes)));
    g->own_bytes = need(calloc(n + 1, sizeof(*g->own_bytes)));
    g->resident_bytes = need(calloc(n + 1, sizeof(*g->resident_bytes)));
    g->group = need(calloc(n + 1, sizeof(*g->group)));
    g->pin = need(calloc(n + 1, sizeof(*g->pin)));
    for (uint32_t v = 0; next(&at, NULL, &node); v++)
        read_task(&tasks, node, v);
    number_groups(&tasks);
    g->inputs = (struct order_lists){ tasks.inputs.first, tasks.inputs.items };
    g->before = (struct order_lists){ tasks.before.first, tasks.before.items };
}

static void read_case(struct task_graph *g) {
    enum { DEVICES, LINKS, NODES, N };
    struct member m[N] = { { .name = "devices" }, { .name = "links" }, { .name = "nodes" } };
    char *text = read_text();
    const char *begin = skip_space(text), *end = skip_value(begin, 0);

    if (*skip_space(end))
        die("this is no JSON: something follows it", NULL);
    read_members((struct span){ begin, (size_t)(end - begin) }, m, N);
    read_machine(g, m[DEVICES].value, m[LINKS].value);
    read_tasks(g, m[NODES].value);
    free(text);
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

struct limit {
    uint64_t begin, end; /* usec */
};

static double used(void *data) {
    const struct limit *limit = data;

    return (double)(clock_usec(CLOCK_MONOTONIC) - limit->begin) /
           (double)(limit->end - limit->begin);
}

/* Without --seconds: one, and more for what is larger than 3,000 tasks on 8 devices. */
static double default_seconds(const struct task_graph *g) {
    return fmin(fmax((double)g->n_tasks * g->n_devices / 40000, 1), 8);
}

int main(int argc, char **argv) {
    struct limit limit = { .begin = clock_usec(CLOCK_MONOTONIC) };
    struct dynamic_options options = { .seed = 1, .data = &limit, .n_threads = 2 };
    struct task_graph graph = { 0 };
    struct dynamic_result result;
    double seconds = -1;
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
    read_case(&graph);
    r = task_graph_complete(&graph);
    if (r < 0)
        die(r == -EINVAL   ? "the graph has a cycle"
            : r == -ERANGE ? "the times or bytes are too large"
                           : "no memory",
            NULL);
    if (options.budget == 0) {
        seconds = seconds < 0 ? default_seconds(&graph) : seconds;
        options.budget = (uint64_t)(seconds * EVENTS_PER_SECOND);
        limit.end = limit.begin + (uint64_t)(seconds * 1e6) + 1;
        options.used = used;
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
