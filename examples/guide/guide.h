/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * What the programs of the device guide share: an end with words where something fails, and the
 * guide's two matrices. Everything else that they need is in the installed headers.
 */
#include <stdio.h>
#include <stdlib.h>

#include <allot/log.h>
#include <allot/ops.h>
#include <allot/session.h>

static inline void must(int r, const struct allot_error *err) {
    if (r >= 0)
        return;
    printf("error: %s\n", err->text);
    exit(EXIT_FAILURE);
}

static inline struct allot_graph *graph_new(void) {
    struct allot_error err;
    struct allot_graph *graph;

    must(allot_graph_new(&graph, &err), &err);
    return graph;
}

/* 1 … 6 as a matrix of so many rows. */
static inline struct allot_output one_to_six(struct allot_graph *graph, const char *name,
                                             int64_t rows) {
    static const float numbers[] = { 1, 2, 3, 4, 5, 6 };

    return allot_constant_f32(graph, name, 2, (int64_t[]){ rows, 6 / rows }, numbers);
}

/* From 0 to 1, as a column. */
static inline struct allot_tensor *hundred_points(void) {
    struct allot_tensor *points;
    struct allot_error err;

    must(allot_tensor_new(&points, ALLOT_F32, 2, (int64_t[]){ 100, 1 }, &err), &err);
    for (int i = 0; i < 100; i++)
        ((float *)allot_tensor_data(points))[i] = (float)i / 100;
    return points;
}

static inline struct allot_session *session_new(struct allot_graph *graph,
                                                const struct allot_session_options *options) {
    struct allot_session *session;
    struct allot_error err;

    must(allot_graph_error(graph, &err), &err);
    must(allot_session_new(&session, graph, options, &err), &err);
    return session;
}

static inline struct allot_tensor *value_of(struct allot_session *session,
                                            struct allot_output output) {
    struct allot_tensor *tensor;
    struct allot_error err;

    must(allot_session_run(session, NULL, NULL, 0, &output, 1, NULL, 0, &tensor, &err), &err);
    return tensor;
}

static inline void run_node(struct allot_session *session, struct allot_node *node) {
    struct allot_error err;

    must(allot_session_run(session, NULL, NULL, 0, NULL, 0, &node, 1, NULL, &err), &err);
}

static inline void print_tensor(const char *name, struct allot_tensor *tensor) {
    char text[256];

    printf("%s%s\n", name, allot_tensor_format(tensor, text, sizeof(text)));
    fflush(stdout);
    allot_tensor_unref(tensor);
}

/* The log, which goes to standard error by itself, among what the program prints. */
static inline void print_line(void *userdata, enum allot_log_level level, const char *text) {
    puts(text);
    fflush(stdout);
}
