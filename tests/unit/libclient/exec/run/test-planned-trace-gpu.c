/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace of a session with the dynamic placer: the planned step stands beside the executed one,
 * on one time line, op for op and on the same devices.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/ops.h"
#include "libclient/allot/session.h"
#include "tests/support/sim/box/sim_box.h"
#include "tests/support/suite.h"

enum { BRANCHES = 2, DEEP = 3, WIDE = 1024, PLANNED = 1000, EVENTS_MAX = 512 };

struct event {
    char name[64], category[32];
    unsigned pid, tid;
    double begin, end; /* us */
};

/* Each event of the file is a line. */
static size_t read_events(const char *path, struct event *ret, unsigned *n_levels,
                          double *planned_usec) {
    FILE *file = fopen(path, "re");
    char line[1024];
    size_t n = 0;

    ck_assert_ptr_nonnull(file);
    *n_levels = 0;
    *planned_usec = 0;
    while (fgets(line, sizeof(line), file)) {
        struct event *event = &ret[n];
        const char *outcome = strstr(line, "\"planned_usec\":");

        *n_levels += strstr(line, "\"planned bytes\"") != NULL;
        if (outcome)
            *planned_usec = strtod(outcome + strlen("\"planned_usec\":"), NULL);
        if (sscanf(line,
                   "{\"ph\":\"X\",\"name\":\"%63[^\"]\",\"cat\":\"%31[^\"]\",\"pid\":%u,\"tid\":%u,"
                   "\"ts\":%lf,\"dur\":%lf",
                   event->name, event->category, &event->pid, &event->tid, &event->begin,
                   &event->end) != 6)
            continue;
        event->end += event->begin;
        ck_assert_uint_lt(++n, EVENTS_MAX);
    }
    fclose(file);
    return n;
}

static const struct event *find(const struct event *events, size_t n, const char *name,
                                const char *category) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(events[i].name, name) == 0 && strcmp(events[i].category, category) == 0 &&
            (strcmp(category, "Planned") != 0 || events[i].tid == 0))
            return &events[i];
    return NULL;
}

START_TEST(the_plan_stands_beside_what_happened) {
    const struct box_spec spec = { .n_gpus = 2, .models = "a100-40g", .timing_only = true };
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_run_options run = ALLOT_RUN_OPTIONS_INIT;
    static struct event events[EVENTS_MAX];
    struct allot_output ends[BRANCHES], sum;
    struct allot_callable *callable;
    struct allot_session *session;
    struct allot_error err = { 0 };
    struct allot_tensor *value;
    struct allot_graph *graph;
    struct sim_box box;
    char path[PATH_MAX + 16];
    unsigned n_levels, n_products = 0, devices = 0;
    double planned_usec, last = 0;
    size_t n;

    sim_box_init_driver(&box, &spec, SIM_LIB_DIR);
    snprintf(path, sizeof(path), "%s/trace.json", box.dir);
    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    for (int b = 0; b < BRANCHES; b++) {
        ends[b] = allot_random_uniform(graph, ALLOT_F32, 2, (int64_t[]){ WIDE, WIDE }, 0, 1, 7);
        for (int i = 0; i < DEEP; i++)
            ends[b] = allot_matmul(ends[b], ends[b]);
    }
    sum = allot_sum(allot_add_n(ends, BRANCHES));
    options.placer = ALLOT_PLACER_DYNAMIC;
    options.placer_budget = 20000;
    options.gpus = 2;
    ck_assert_msg(allot_session_new(&session, graph, &options, &err) == 0, "%s", err.text);
    ck_assert_int_eq(allot_callable_new(&callable, session, NULL, 0, &sum, 1, NULL, 0, &err), 0);
    run.trace_file = path;
    for (int i = 0; i < 2; i++) {
        ck_assert_msg(allot_callable_run(callable, &run, NULL, &value, &err) == 0, "%s", err.text);
        allot_tensor_unref(value);
    }
    n = read_events(path, events, &n_levels, &planned_usec);
    for (size_t i = 0; i < n; i++) {
        const struct event *own = &events[i], *planned;

        if (strcmp(own->category, "Planned") == 0)
            last = own->end > last ? own->end : last;
        if (strcmp(own->category, "MatMul") != 0)
            continue;
        n_products++;
        devices |= 1u << own->pid;
        planned = find(events, n, own->name, "Planned");
        ck_assert_msg(planned != NULL, "'%s' ran, but is not planned", own->name);
        ck_assert_uint_eq(planned->pid, PLANNED + own->pid);
        ck_assert_double_gt(planned->end, planned->begin);
    }
    ck_assert_uint_eq(n_products, BRANCHES * DEEP);
    ck_assert_uint_eq(devices, 6); /* both GPUs */
    ck_assert_uint_gt(n_levels, 0);
    /* Both begin at 0, and the plan ends when it says. */
    ck_assert_double_gt(planned_usec, 0);
    ck_assert_double_le(last, planned_usec + 0.01);
    ck_assert_double_ge(last, planned_usec * 0.5);
    /* On a row, one after the other. */
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (events[i].pid >= PLANNED && events[i].pid == events[k].pid &&
                events[i].tid == events[k].tid)
                ck_assert(events[i].begin >= events[k].end - 0.002 ||
                          events[k].begin >= events[i].end - 0.002);
    allot_callable_free(callable);
    allot_session_free(session);

    /* The simple placer plans nothing. */
    options.placer = ALLOT_PLACER_SIMPLE;
    ck_assert_int_eq(allot_session_new(&session, graph, &options, &err), 0);
    ck_assert_int_eq(allot_callable_new(&callable, session, NULL, 0, &sum, 1, NULL, 0, &err), 0);
    ck_assert_int_eq(allot_callable_run(callable, &run, NULL, &value, &err), 0);
    allot_tensor_unref(value);
    n = read_events(path, events, &n_levels, &planned_usec);
    ck_assert_uint_gt(n, 0);
    ck_assert_uint_eq(n_levels, 0);
    ck_assert_double_eq(planned_usec, 0);
    for (size_t i = 0; i < n; i++)
        ck_assert_str_ne(events[i].category, "Planned");
    allot_callable_free(callable);
    allot_session_free(session);
    allot_graph_unref(graph);
    sim_box_done(&box);
}
END_TEST

SUITE("planned-trace-gpu", the_plan_stands_beside_what_happened)
