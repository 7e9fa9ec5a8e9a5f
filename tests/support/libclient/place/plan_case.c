/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/place/plan_case.h"

#include <check.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void write_list(FILE *to, const struct order_lists *lists, uint32_t task,
                       const char *format) {
    for (uint32_t i = lists->first[task]; i < lists->first[task + 1]; i++) {
        fputs(i > lists->first[task] ? "," : "", to);
        fprintf(to, strcmp(format, "node") == 0 ? "{\"node\":%" PRIu32 "}" : "%" PRIu32,
                lists->items[i]);
    }
}

static void write_machine(const struct task_graph *graph, FILE *to) {
    const char *comma = "";

    fprintf(to, "{\"name\":\"session\",\"devices\":[");
    for (uint32_t d = 0; d < graph->n_devices; d++) {
        fprintf(to, "%s{\"name\":\"%" PRIu32 "\",\"type\":\"%s\",\"memory_bytes\":", d ? "," : "",
                d, d ? "GPU" : "CPU");
        if (graph->memory_bytes[d] == UINT64_MAX)
            fprintf(to, "null}");
        else
            fprintf(to, "%" PRIu64 "}", graph->memory_bytes[d]);
    }
    fprintf(to, "],\"links\":[");
    for (uint32_t i = 0; i < graph->n_devices * graph->n_devices; i++) {
        const struct task_link *link = &graph->links[i];

        if (!(link->bytes_per_usec > 0))
            continue;
        fprintf(to,
                "%s{\"from\":%" PRIu32 ",\"to\":%" PRIu32
                ",\"latency_us\":%.17g,\"bytes_per_us\":%.17g,\"channel\":%" PRIu32
                ",\"media\":\"%" PRIx64 "\"}",
                comma, i / graph->n_devices, i % graph->n_devices, link->latency_usec,
                link->bytes_per_usec, link->channel, link->media);
        comma = ",";
    }
    fprintf(to, "]");
}

static void write_task(const struct task_graph *graph, uint32_t v, FILE *to) {
    fprintf(to, "%s{\"name\":\"%" PRIu32 "\",\"inputs\":[", v ? "," : "", v);
    write_list(to, &graph->inputs, v, "node");
    fprintf(to, "],\"after\":[");
    write_list(to, &graph->before, v, "number");
    fprintf(to,
            "],\"output_bytes\":%" PRIu64 ",\"own_bytes\":%" PRIu64 ",\"resident_bytes\":%" PRIu64
            ",\"cost_us\":[",
            graph->output_bytes[v], graph->own_bytes[v], graph->resident_bytes[v]);
    for (uint32_t d = 0; d < graph->n_devices; d++) {
        double cost = task_graph_cost(graph, v, d);

        fputs(d ? "," : "", to);
        if (isfinite(cost))
            fprintf(to, "%.17g", cost);
        else
            fputs("null", to);
    }
    fprintf(to, "],\"colocate\":");
    if (graph->group[v] == TASK_GRAPH_NONE)
        fputs("null", to);
    else
        fprintf(to, "\"%" PRIu32 "\"", graph->group[v]);
    fprintf(to, ",\"pin\":null}");
}

void plan_case_write(const struct task_graph *graph, const char *path) {
    FILE *to = fopen(path, "we");

    ck_assert_ptr_nonnull(to);
    write_machine(graph, to);
    fprintf(to, ",\"nodes\":[");
    for (uint32_t v = 0; v < graph->n_tasks; v++)
        write_task(graph, v, to);
    fprintf(to, "]}\n");
    ck_assert_int_eq(fclose(to), 0);
}

static struct json_object *member(struct json_object *object, const char *name) {
    struct json_object *value = NULL;

    ck_assert_msg(json_object_object_get_ex(object, name, &value), "no member '%s' in %s", name,
                  json_object_to_json_string(object));
    return value;
}

void plan_case_ask(const char *program, const char *path, uint64_t budget,
                   const struct task_graph *graph, struct assignment *ret) {
    struct json_object *answer, *devices, *orders;
    char command[1024], *text = NULL;
    uint32_t n = 0;
    size_t size = 0;
    FILE *from;

    ck_assert_int_lt(snprintf(command, sizeof(command),
                              "'%s' --events %" PRIu64 " --seed 1 --threads 1 < '%s'", program,
                              budget, path),
                     (int)sizeof(command));
    from = popen(command, "re");
    ck_assert_ptr_nonnull(from);
    ck_assert_int_gt(getline(&text, &size, from), 0);
    ck_assert_int_eq(pclose(from), 0);
    answer = json_tokener_parse(text);
    free(text);
    ck_assert_ptr_nonnull(answer);
    ck_assert_int_eq(assignment_init(ret, graph), 0);
    devices = member(answer, "assignment");
    orders = member(answer, "order");
    ck_assert_uint_eq(json_object_array_length(devices), graph->n_tasks);
    ck_assert_uint_eq(json_object_array_length(orders), graph->n_devices);
    for (uint32_t v = 0; v < graph->n_tasks; v++)
        ret->device[v] = (uint32_t)json_object_get_int(json_object_array_get_idx(devices, v));
    for (uint32_t d = 0; d < graph->n_devices; d++) {
        struct json_object *order = json_object_array_get_idx(orders, d);

        ret->first[d] = n;
        for (size_t i = 0; i < json_object_array_length(order) && n < graph->n_tasks; i++)
            ret->sequence[n++] = (uint32_t)json_object_get_int(json_object_array_get_idx(order, i));
    }
    ret->first[graph->n_devices] = n;
    ck_assert_uint_eq(n, graph->n_tasks);
    ret->makespan_usec = json_object_get_double(member(answer, "makespan_us"));
    json_object_put(answer);
}
