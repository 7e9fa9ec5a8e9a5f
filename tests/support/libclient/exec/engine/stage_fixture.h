/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/*
 * Stage fixture: an engine whose graph, feeds and results are text (see graph_fixture.h).
 *
 *     stage_fixture_node(&fixture, "y", "Add", "@x f32=1", "");
 *     ck_assert_str_eq(stage_fixture_run(&fixture, "x:f32=[1,2]", "y", ""), "[2 3]");
 */
#include <stdbool.h>

#include "base/error.h"
#include "libclient/exec/engine/engine.h"
#include "tests/support/libclient/graph/graph_fixture.h"

struct stage_fixture {
    struct allot_graph *graph;
    struct engine *engine;
    struct engine_run run; /* how to run; what the last run was */
    struct allot_error err;
    int code; /* of the last run */
    char text[1024];
};

/* `gpu`: on those that the environment shows. */
void stage_fixture_open(struct stage_fixture *ret, unsigned threads, bool gpu);
void stage_fixture_close(struct stage_fixture *fixture);

struct edge stage_fixture_node(struct stage_fixture *fixture, const char *name, const char *op,
                               const char *inputs, const char *attrs);
/* The same, once the node `control` has run. */
struct edge stage_fixture_node_after(struct stage_fixture *fixture, const char *name,
                                     const char *op, const char *inputs, const char *attrs,
                                     const char *control);

/*
 * Feeds ("name:i64=[2,3]"), fetches and targets (names) are separated by spaces. Returns the
 * fetched values, separated by " | ", or "!" and the error's text; valid until the next run.
 */
const char *stage_fixture_run(struct stage_fixture *fixture, const char *feeds, const char *fetches,
                              const char *targets);
