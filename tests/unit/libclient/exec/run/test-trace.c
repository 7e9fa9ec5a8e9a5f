/* SPDX-License-Identifier: Apache-2.0 */
/* Traces of runs on the CPU: what the memory timeline says, and that they are JSON everywhere. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "libclient/allot/ops.h"
#include "libclient/allot/session.h"
#include "tests/support/base/comma_locale.h"

enum { N = 1 << 12, TEXT = 1 << 18 };

static struct allot_error err;

#define must(call)                                                                                 \
    do {                                                                                           \
        int must_r_ = call;                                                                        \
                                                                                                   \
        ck_assert_msg(must_r_ == 0, "%s", err.text);                                               \
    } while (0)

/* The largest number of live bytes, and the last. Times are whole nanoseconds, so that a reader of
 * whole numbers has them in thousandths; it is enough here that they are numbers. */
static void read_live(char *text, size_t n, int64_t *ret_most, int64_t *ret_last) {
    struct json_reader reader;
    char *name, *value;
    size_t ignored;

    *ret_most = *ret_last = 0;
    json_reader_init(&reader, text, n);
    must(json_enter(&reader, JSON_OBJECT));
    while (json_next_member(&reader, &name, &ignored) > 0) {
        if (strcmp(name, "traceEvents") != 0) {
            must(json_skip(&reader, NULL, NULL));
            continue;
        }
        must(json_enter(&reader, JSON_ARRAY));
        while (json_next_element(&reader) > 0) {
            bool is_live = false;

            must(json_enter(&reader, JSON_OBJECT));
            while (json_next_member(&reader, &name, &ignored) > 0)
                if (strcmp(name, "name") == 0) {
                    must(json_read_string(&reader, &value, NULL));
                    is_live = strcmp(value, "live bytes") == 0;
                } else if (is_live && strcmp(name, "args") == 0) {
                    must(json_enter(&reader, JSON_OBJECT));
                    ck_assert_int_eq(json_next_member(&reader, &name, &ignored), 1);
                    must(json_read_int(&reader, ret_last));
                    ck_assert_int_eq(json_next_member(&reader, &name, &ignored), 0);
                    *ret_most = *ret_last > *ret_most ? *ret_last : *ret_most;
                } else
                    must(json_skip(&reader, NULL, NULL));
        }
    }
    ck_assert_msg(json_finish(&reader) == 0, "%s", reader.why);
}

/* A run of `y`, which is fed with `x`; the trace is looked at. */
static uint64_t run(struct allot_graph *graph, struct allot_output x, struct allot_output y,
                    unsigned threads, int64_t *ret_most) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_run_metadata metadata = { .size = sizeof(metadata) };
    struct allot_run_options run_options = ALLOT_RUN_OPTIONS_INIT;
    char path[] = "/tmp/allot-trace.XXXXXX", *text = malloc(TEXT);
    struct allot_callable *callable;
    struct allot_session *session;
    struct allot_tensor *fed, *value;
    int64_t last;
    FILE *file;
    size_t n;

    options.cpu_only = true;
    options.inter_op_threads = threads;
    options.per_session_threads = true;
    close(mkstemp(path));
    run_options.metadata = &metadata;
    run_options.trace_file = path;
    must(allot_graph_error(graph, &err));
    must(allot_session_new(&session, graph, &options, &err));
    must(allot_callable_new(&callable, session, &x, 1, &y, 1, NULL, 0, &err));
    must(allot_tensor_new(&fed, ALLOT_F32, 1, (int64_t[]){ N }, &err));
    memset(allot_tensor_data(fed), 0, N * sizeof(float));
    must(allot_callable_run(callable, &run_options, &fed, &value, &err));
    file = fopen(path, "re");
    n = fread(text, 1, TEXT, file);
    fclose(file);
    unlink(path);
    read_live(text, n, ret_most, &last);
    ck_assert_int_eq(last, 0);
    free(text);
    allot_tensor_unref(fed);
    allot_tensor_unref(value);
    allot_callable_free(callable);
    allot_session_free(session);
    return metadata.step_bytes;
}

static struct allot_graph *graph_new(struct allot_output *ret_x) {
    struct allot_graph *graph;

    must(allot_graph_new(&graph, &err));
    *ret_x = allot_placeholder(graph, "x", ALLOT_F32, 1, (int64_t[]){ N });
    return graph;
}

START_TEST(what_is_computed_in_place_is_live_once) {
    struct allot_output x, y;
    struct allot_graph *graph = graph_new(&x);
    uint64_t step_bytes;
    int64_t most;

    y = x;
    for (int i = 0; i < 5; i++)
        y = allot_neg(allot_exp(y));
    step_bytes = run(graph, x, allot_sum(y), 1, &most);
    ck_assert_int_ge(most, N * (int64_t)sizeof(float));
    ck_assert_int_lt(most, 2 * N * (int64_t)sizeof(float));
    ck_assert_uint_le((uint64_t)most, step_bytes);
    allot_graph_unref(graph);
}
END_TEST

START_TEST(what_is_live_together_is_added_up) {
    for (unsigned threads = 1; threads <= 4; threads += 3) {
        struct allot_output x, y, parts[3];
        struct allot_graph *graph = graph_new(&x);
        uint64_t step_bytes;
        int64_t most;

        for (int i = 0; i < 3; i++) /* each is needed twice, so none is written over */
            parts[i] = allot_exp(i ? parts[i - 1] : x);
        y = allot_mul(allot_mul(parts[0], parts[1]), allot_mul(parts[2], parts[0]));
        step_bytes = run(graph, x, allot_sum(allot_mul(y, parts[1])), threads, &most);
        ck_assert_int_ge(most, 3 * N * (int64_t)sizeof(float));
        ck_assert_uint_le((uint64_t)most, step_bytes);
        allot_graph_unref(graph);
    }
}
END_TEST

START_TEST(a_trace_is_json_in_every_locale) {
    struct allot_output x;
    struct allot_graph *graph;
    int64_t most;

    if (!comma_locale_set())
        return;
    graph = graph_new(&x);
    run(graph, x, allot_sum(allot_exp(x)), 1, &most);
    ck_assert_int_gt(most, 0);
    allot_graph_unref(graph);
}
END_TEST

SUITE("trace", what_is_computed_in_place_is_live_once, what_is_live_together_is_added_up,
      a_trace_is_json_in_every_locale)
