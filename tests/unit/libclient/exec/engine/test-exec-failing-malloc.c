/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of a session fails once: a clear error, nothing lost, and the next try works. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/core/tensor.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/graph/build.h"
#include "libclient/ops/ops.h"
#include "tests/support/libclient/graph/graph_fixture.h"
#include "tests/support/base/failing_malloc.h"
#include "tests/support/suite.h"

enum { N = 40000, DEPTH = 12 };

static struct edge build_all(struct allot_graph *graph, struct edge *ret_feed) {
    struct allot_error err = { 0 };
    struct build build = { graph, &err, 0 };
    struct shape shape = { 1, { N } };
    struct edge levels[DEPTH], sum;

    *ret_feed = build_n(&build, "Placeholder", NULL, 0,
                        (struct build_attr[]){
                            { "T", { .kind = ATTR_DTYPE, .dtype = DTYPE_F32 } },
                            { "shape", { .kind = ATTR_SHAPE, .shape = shape } },
                        },
                        2);
    levels[0] = *ret_feed;
    for (int i = 1; i < DEPTH; i++)
        levels[i] = build_2(&build, i % 2 ? "Add" : "Mul", levels[i - 1], levels[i / 2]);
    sum = build_2(&build, "Sub", levels[DEPTH - 1], levels[3]);
    ck_assert_msg(build.r == 0, "%s", err.text);
    return sum;
}

static int try(struct allot_graph *graph, unsigned threads, struct edge feed,
               struct allot_tensor *fed, struct edge fetch, struct allot_tensor **ret,
               struct allot_error *err) {
    struct engine_options options = {
        .inter_threads = threads, .intra_threads = 1, .no_gpu = true, .seed = 1
    };
    struct engine_call call = { &feed, 1, &fetch, 1, NULL, 0 };
    struct engine_run run = { 0 };
    struct engine *engine = NULL;
    int r = engine_new(&engine, graph, &options, err);

    if (r == 0)
        r = engine_run(engine, &call, &run, &fed, ret, err);
    engine_free(engine);
    return r;
}

static void fail_each(struct allot_graph *graph, struct edge feed, struct allot_tensor *fed,
                      struct edge fetch) {
    struct allot_tensor *tensor = NULL;

    for (unsigned threads = 1; threads <= 2; threads++)
        for (uint64_t n = 1;; n++) {
            struct allot_error err = { 0 };
            int r;

            failing_malloc_at(n);
            r = try(graph, threads, feed, fed, fetch, &tensor, &err);
            if (!failing_malloc_end()) {
                ck_assert_msg(r == 0, "%s", err.text);
                ck_assert_uint_gt(n, 50);
                tensor = allot_tensor_unref(tensor);
                break;
            }
            /* What is only an offer (a cache, a message) may go without. */
            ck_assert_msg(r == 0 || r == -ENOMEM || r == -EAGAIN, "allocation %llu: %d: %s",
                          (unsigned long long)n, r, err.text);
            ck_assert_msg(r == 0 || err.text[0], "allocation %llu: no words",
                          (unsigned long long)n);
            tensor = r == 0 ? allot_tensor_unref(tensor) : NULL;
        }
    allot_tensor_unref(fed);
    graph_unref(graph);
}

START_TEST(each_allocation_fails_once) {
    struct allot_graph *graph;
    struct allot_tensor *fed;
    struct edge feed, fetch;
    int64_t dims[] = { N };

    ck_assert_int_eq(ops_register_all(NULL), 0);
    ck_assert_int_eq(graph_new(&graph), 0);
    fetch = build_all(graph, &feed);
    ck_assert_int_eq(allot_tensor_new(&fed, ALLOT_F32, 1, dims, NULL), 0);
    fail_each(graph, feed, fed, fetch);
}
END_TEST

/* A shape that follows from what is fed, and one that has to be computed. */
START_TEST(each_allocation_fails_once_in_stages) {
    struct allot_graph *graph = graph_fixture_new();
    struct edge feed = graph_fixture_node(graph, "sh", "Placeholder", "", "T=i64 shape=[2]"), fetch;

    graph_fixture_node(graph, "square", "Mul", "@sh @sh", "");
    graph_fixture_node(graph, "pair", "Identity", "@square", "");
    graph_fixture_node(graph, "filled", "Fill", "@pair f32=1", "");
    graph_fixture_node(graph, "n", "Sum", "@filled", "");
    graph_fixture_node(graph, "n/i64", "Cast", "@n", "U=i64");
    fetch = graph_fixture_node(graph, "counted", "Range", "i64=0 @n/i64 i64=1", "");
    fail_each(graph, feed, graph_fixture_tensor("i64=[2,3]"), fetch);
}
END_TEST

SUITE_TIMEOUT("exec-failing-malloc", 300, each_allocation_fails_once,
              each_allocation_fails_once_in_stages)
