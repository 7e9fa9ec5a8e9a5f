/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/exec/engine/shape_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "libclient/graph/grad.h"

static void check(struct stage_fixture *fixture, const char *feeds, const char *fetches,
                  const char *expected) {
    const char *text = stage_fixture_run(fixture, feeds, fetches, "");

    ck_assert_msg(strcmp(text, expected) == 0, "%s with %s: %s instead of %s", fetches, feeds, text,
                  expected);
}

static void refused(struct stage_fixture *fixture, const char *feeds, const char *fetches,
                    const char *says) {
    const char *text = stage_fixture_run(fixture, feeds, fetches, "");

    ck_assert_msg(text[0] == '!' && strstr(text, says), "%s with %s: %s instead of %s", fetches,
                  feeds, text, says);
}

static void feed_reshape(struct stage_fixture *fixture) {
    check(fixture, "sh:i64=[2,3]", "reshaped twice", "[[1 2 3] [4 5 6]] | [[2 4 6] [8 10 12]]");
    check(fixture, "sh:i64=[3,2]", "reshaped", "[[1 2] [3 4] [5 6]]");
    check(fixture, "sh:i64=[-1,2]", "reshaped", "[[1 2] [3 4] [5 6]]");
    check(fixture, "sh:i64=[6,1]", "twice sh", "[[2] [4] [6] [8] [10] [12]] | [6 1]");
    refused(fixture, "sh:i64=[4,4]", "reshaped",
            "'reshaped': Reshape: [6] and [4, 4]: the shapes do not hold the same number");
    refused(fixture, "sh:i64=[-1,-1]", "reshaped", "only one dimension can be left open");
    refused(fixture, "sh:i64=[4611686018427387904,4]", "reshaped", "more elements than can be");
    refused(fixture, "sh:i64=[-5,3]", "reshaped", "below -1");
    check(fixture, "sh:i64=[2,3]", "reshaped", "[[1 2 3] [4 5 6]]");
    ck_assert(!fixture->run.was_planned || fixture->run.n_kernels == 0);
    /* Another shape of the shape is another rank. */
    check(fixture, "any:i64=[1,6]", "any/reshaped", "[[1 2 3 4 5 6]]");
    check(fixture, "any:i64=[6]", "any/reshaped", "[1 2 3 4 5 6]");
    check(fixture, "any:i64=[1,1,-1]", "any/reshaped", "[[[1 2 3 4 5 6]]]");
}

void shape_fixture_feed(struct stage_fixture *fixture) {
    stage_fixture_node(fixture, "sh", "Placeholder", "", "T=i64 shape=[2]");
    stage_fixture_node(fixture, "any", "Placeholder", "", "T=i64 shape=?");
    stage_fixture_node(fixture, "n", "Placeholder", "", "T=i64 shape=[]");
    stage_fixture_node(fixture, "f", "Placeholder", "", "T=f32 shape=[]");
    stage_fixture_node(fixture, "six", "Identity", "f32=[1,2,3,4,5,6]", "");
    stage_fixture_node(fixture, "reshaped", "Reshape", "@six @sh", "");
    stage_fixture_node(fixture, "twice", "Add", "@reshaped @reshaped", "");
    stage_fixture_node(fixture, "any/reshaped", "Reshape", "@six @any", "");
    feed_reshape(fixture);

    /* By way of arithmetic, and of ops that only give another shape. */
    stage_fixture_node(fixture, "square", "Mul", "@sh @sh", "");
    stage_fixture_node(fixture, "pair", "Reshape", "@square i64=[2,1]", "");
    stage_fixture_node(fixture, "flat", "Squeeze", "@pair", "axes=[1]");
    stage_fixture_node(fixture, "filled", "Fill", "@sh f32=3", "");
    stage_fixture_node(fixture, "filled/2", "Fill", "@flat @f", "");
    check(fixture, "sh:i64=[1,2]", "filled", "[[3 3]]");
    check(fixture, "sh:i64=[1,2] f:f32=7", "filled/2", "[[7 7 7 7]]");
    check(fixture, "sh:i64=[2,1] f:f32=8", "filled/2", "[[8] [8] [8] [8]]");
    check(fixture, "sh:i64=[0,1]", "filled", "[]");
    refused(fixture, "sh:i64=[2,-1]", "filled", "no dimension can be open here");
    stage_fixture_node(fixture, "stretched", "BroadcastTo", "f32=2 @square", "");
    check(fixture, "sh:i64=[1,2]", "stretched", "[[2 2 2 2]]");
    refused(fixture, "any:i64=[3]", "any/reshaped", "the same number of elements");

    stage_fixture_node(fixture, "n/square", "Mul", "@n @n", "");
    stage_fixture_node(fixture, "counted", "Range", "i64=0 @n/square i64=1", "");
    stage_fixture_node(fixture, "counted/f32", "Range", "f32=0.5 @f f32=0.5", "");
    check(fixture, "n:i64=2", "counted", "[0 1 2 3]");
    check(fixture, "n:i64=0", "counted", "[]");
    check(fixture, "n:i64=1", "counted n/square", "[0] | 1");
    check(fixture, "f:f32=2", "counted/f32", "[0.5 1 1.5]");
    check(fixture, "f:f32=1.1 n:i64=1", "counted counted/f32", "[0] | [0.5 1]");

    /* What is random is the same numbers as with the same shape written down. */
    stage_fixture_node(fixture, "random", "RandomUniform", "@square", "T=f32 seed=3");
    stage_fixture_node(fixture, "random/const", "RandomUniform", "i64=[4,1]", "T=f32 seed=3");
    stage_fixture_node(fixture, "same", "Equal", "@random @random/const", "");
    stage_fixture_node(fixture, "all", "All", "@same", "");
    check(fixture, "sh:i64=[2,1]", "all", "True");
    stage_fixture_node(fixture, "normal", "RandomNormal", "@sh", "T=f32 seed=3");
    stage_fixture_node(fixture, "truncated", "TruncatedNormal", "@sh", "T=f32 seed=3");
    stage_fixture_node(fixture, "normal/n", "Size", "@normal", "");
    stage_fixture_node(fixture, "truncated/n", "Size", "@truncated", "");
    check(fixture, "sh:i64=[2,3]", "normal/n truncated/n", "6 | 6");
}

void shape_fixture_compute(struct stage_fixture *fixture) {
    stage_fixture_node(fixture, "v", "Variable", "", "T=f32 shape=[]");
    stage_fixture_node(fixture, "v/set", "Assign", "@v f32=2", "");
    stage_fixture_node(fixture, "v/add", "AssignAdd", "@v f32=1", "");
    stage_fixture_node(fixture, "v/n", "Cast", "@v", "U=i64");
    stage_fixture_node(fixture, "v/shape", "ExpandDims", "@v/n", "");
    stage_fixture_node(fixture, "filled", "Fill", "@v/shape f32=3", "");
    stage_fixture_node(fixture, "counted", "Range", "i64=0 @v/n i64=1", "");
    stage_fixture_node(fixture, "total", "Sum", "@counted", "");
    stage_fixture_node(fixture, "counted/2", "Range", "i64=0 @total i64=1", "");
    stage_fixture_node(fixture, "random", "RandomUniform", "@v/shape", "T=f32 seed=3");
    stage_fixture_node(fixture, "random/n", "Size", "@random", "");
    stage_fixture_node(fixture, "pair", "Pack", "@v/n i64=2", "");
    stage_fixture_node(fixture, "stretched", "BroadcastTo", "f32=[1,2] @pair", "");
    ck_assert_str_eq(stage_fixture_run(fixture, "", "", "v/set"), "");
    check(fixture, "", "filled counted", "[3 3] | [0 1]");
    check(fixture, "", "counted/2 random/n stretched", "[0] | 2 | [[1 2] [1 2]]");
    /* The change was made before what reads it here. */
    ck_assert_str_eq(stage_fixture_run(fixture, "", "filled v", "v/add"), "[3 3 3] | 3");
    check(fixture, "", "filled counted counted/2", "[3 3 3] | [0 1 2] | [0 1 2]");
    check(fixture, "", "random/n stretched", "3 | [[1 2] [1 2] [1 2]]");
    ck_assert_str_eq(stage_fixture_run(fixture, "", "v", "v/add"), "4");
    check(fixture, "", "counted/2 v filled", "[0 1 2 3 4 5] | 4 | [3 3 3 3]");

    /* Some of it is fed, some has to be computed. */
    stage_fixture_node(fixture, "from", "Placeholder", "", "T=i64 shape=[]");
    stage_fixture_node(fixture, "between", "Range", "@from @v/n i64=1", "");
    check(fixture, "from:i64=1", "between", "[1 2 3]");
    check(fixture, "from:i64=3", "between", "[3]");

    /* How many there are, and what they are, in one. */
    stage_fixture_node(fixture, "x", "Placeholder", "", "T=f32 shape=[?]");
    stage_fixture_node(fixture, "above", "Greater", "@x f32=0", "");
    stage_fixture_node(fixture, "where", "Where", "@above", "");
    stage_fixture_node(fixture, "where/n", "Size", "@where", "");
    stage_fixture_node(fixture, "numbered", "Range", "i64=0 @where/n i64=1", "");
    stage_fixture_node(fixture, "largest", "Max", "@numbered", "");
    stage_fixture_node(fixture, "ones", "ExpandDims", "@largest", "");
    stage_fixture_node(fixture, "last", "Fill", "@ones f32=1", "");
    check(fixture, "x:f32=[1,-1,2,3]", "numbered last", "[0 1 2] | [1 1]");
    check(fixture, "x:f32=[1,-1]", "last numbered where", "[] | [0] | [[0]]");
}

static void gradient(struct stage_fixture *fixture, struct edge y, struct edge x,
                     const char *name) {
    struct edge grad;
    struct allot_error err = { 0 };
    char input[64];
    int r = grad_add(fixture->graph, &y, 1, &x, 1, NULL, &grad, &err);

    ck_assert_msg(r == 0, "%s", err.text);
    ck_assert(!edge_is_none(grad));
    snprintf(input, sizeof(input), "@%s:%u", graph_node(fixture->graph, grad.node)->name,
             grad.output);
    stage_fixture_node(fixture, name, "Identity", input, "");
}

void shape_fixture_differentiate(struct stage_fixture *fixture) {
    struct edge x = stage_fixture_node(fixture, "x", "Placeholder", "", "T=f32 shape=[?]"), y;
    struct edge c = stage_fixture_node(fixture, "c", "Placeholder", "", "T=f32 shape=[]");

    stage_fixture_node(fixture, "sh", "Placeholder", "", "T=i64 shape=?");
    stage_fixture_node(fixture, "v", "Variable", "", "T=f32 shape=[2]");
    stage_fixture_node(fixture, "v/set", "Assign", "@v f32=[2,2]", "");
    stage_fixture_node(fixture, "v/shape", "Cast", "@v", "U=i64");
    ck_assert_str_eq(stage_fixture_run(fixture, "", "", "v/set"), "");

    for (int computed = 0; computed < 2; computed++) {
        const char *shape = computed ? "@v/shape" : "@sh", *in = computed ? "/v" : "/f";
        const char *feed =
            computed ? "x:f32=[1,2,3,4] c:f32=5" : "sh:i64=[2,2] x:f32=[1,2,3,4] c:f32=5";
        char inputs[64], name[32];

        stage_fixture_node(fixture, strcat(strcpy(name, "reshaped"), in), "Reshape",
                           strcat(strcpy(inputs, "@x "), shape), "");
        snprintf(inputs, sizeof(inputs), "@%s", name);
        stage_fixture_node(fixture, strcat(strcpy(name, "rows"), in), "Prod", inputs, "axes=[1]");
        snprintf(inputs, sizeof(inputs), "@%s", name);
        y = stage_fixture_node(fixture, strcat(strcpy(name, "mean"), in), "Mean", inputs, "");
        gradient(fixture, y, x, strcat(strcpy(name, "dx"), in));
        check(fixture, feed, name, "[1 0.5 2 1.5]");

        snprintf(inputs, sizeof(inputs), "%s @c", shape);
        stage_fixture_node(fixture, strcat(strcpy(name, "filled"), in), "Fill", inputs, "");
        snprintf(inputs, sizeof(inputs), "@%s", name);
        stage_fixture_node(fixture, strcat(strcpy(name, "squares"), in), "Square", inputs, "");
        snprintf(inputs, sizeof(inputs), "@%s", name);
        y = stage_fixture_node(fixture, strcat(strcpy(name, "sum"), in), "Sum", inputs, "");
        gradient(fixture, y, c, strcat(strcpy(name, "dc"), in));
        check(fixture, feed, name, "40");

        snprintf(inputs, sizeof(inputs), "@c %s", shape);
        y = stage_fixture_node(fixture, strcat(strcpy(name, "stretched"), in), "BroadcastTo",
                               inputs, "");
        gradient(fixture, y, c, strcat(strcpy(name, "dstretched"), in));
        check(fixture, feed, name, "4");
    }
    /* The same graph with other numbers. */
    check(fixture, "sh:i64=[4,1] x:f32=[1,2,3,4] c:f32=5", "dx/f", "[0.25 0.25 0.25 0.25]");
    check(fixture, "sh:i64=[3,1] c:f32=5", "dc/f dstretched/f", "30 | 3");
}
