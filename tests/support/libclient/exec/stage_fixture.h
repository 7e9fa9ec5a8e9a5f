/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stager: an engine whose graph, feeds and results are text (see grapher.h).
 *
 *     stager_node(&stager, "y", "Add", "@x f32=1", "");
 *     ck_assert_str_eq(stager_run(&stager, "x:f32=[1,2]", "y", ""), "[2 3]");
 */
#include <stdbool.h>

#include "base/error.h"
#include "libclient/exec/run/engine.h"
#include "tests/support/libclient/graph/graph_fixture.h"

struct stager {
    struct allot_graph *graph;
    struct engine *engine;
    struct engine_run run; /* how to run; what the last run was */
    struct allot_error err;
    int code; /* of the last run */
    char text[1024];
};

/* `gpu`: on those that the environment shows. */
void stager_open(struct stager *ret, unsigned threads, bool gpu);
void stager_close(struct stager *stager);

struct edge stager_node(struct stager *stager, const char *name, const char *op, const char *inputs,
                        const char *attrs);
/* The same, once the node `control` has run. */
struct edge stager_node_after(struct stager *stager, const char *name, const char *op,
                              const char *inputs, const char *attrs, const char *control);

/*
 * Feeds ("name:i64=[2,3]"), fetches and targets (names) with spaces between. What was fetched, with
 * " | " between, or "!" and the words of the error; there until the next run.
 */
const char *stager_run(struct stager *stager, const char *feeds, const char *fetches,
                       const char *targets);
