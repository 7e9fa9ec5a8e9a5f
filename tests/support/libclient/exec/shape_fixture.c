/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/exec/shape_fixture.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "libclient/graph/grad.h"

static void check(struct stager *stager, const char *feeds, const char *fetches,
                  const char *expected) {
    const char *text = stager_run(stager, feeds, fetches, "");

    ck_assert_msg(strcmp(text, expected) == 0, "%s with %s: %s instead of %s", fetches, feeds, text,
                  expected);
}

static void refused(struct stager *stager, const char *feeds, const char *fetches,
                    const char *says) {
    const char *text = stager_run(stager, feeds, fetches, "");

    ck_assert_msg(text[0] == '!' && strstr(text, says), "%s with %s: %s instead of %s", fetches,
                  feeds, text, says);
}

static void feed_reshape(struct stager *stager) {
    check(stager, "sh:i64=[2,3]", "reshaped twice", "[[1 2 3] [4 5 6]] | [[2 4 6] [8 10 12]]");
    check(stager, "sh:i64=[3,2]", "reshaped", "[[1 2] [3 4] [5 6]]");
    check(stager, "sh:i64=[-1,2]", "reshaped", "[[1 2] [3 4] [5 6]]");
    check(stager, "sh:i64=[6,1]", "twice sh", "[[2] [4] [6] [8] [10] [12]] | [6 1]");
    refused(stager, "sh:i64=[4,4]", "reshaped",
            "'reshaped': Reshape: [6] and [4, 4]: the shapes do not hold the same number");
    refused(stager, "sh:i64=[-1,-1]", "reshaped", "only one dimension can be left open");
    refused(stager, "sh:i64=[4611686018427387904,4]", "reshaped", "more elements than can be");
    refused(stager, "sh:i64=[-5,3]", "reshaped", "below -1");
    check(stager, "sh:i64=[2,3]", "reshaped", "[[1 2 3] [4 5 6]]");
    ck_assert(!stager->run.was_planned || stager->run.n_kernels == 0);
    /* Another shape of the shape is another rank. */
    check(stager, "any:i64=[1,6]", "any/reshaped", "[[1 2 3 4 5 6]]");
    check(stager, "any:i64=[6]", "any/reshaped", "[1 2 3 4 5 6]");
    check(stager, "any:i64=[1,1,-1]", "any/reshaped", "[[[1 2 3 4 5 6]]]");
}

void shaper_feed(struct stager *stager) {
    stager_node(stager, "sh", "Placeholder", "", "T=i64 shape=[2]");
    stager_node(stager, "any", "Placeholder", "", "T=i64 shape=?");
    stager_node(stager, "n", "Placeholder", "", "T=i64 shape=[]");
    stager_node(stager, "f", "Placeholder", "", "T=f32 shape=[]");
    stager_node(stager, "six", "Identity", "f32=[1,2,3,4,5,6]", "");
    stager_node(stager, "reshaped", "Reshape", "@six @sh", "");
    stager_node(stager, "twice", "Add", "@reshaped @reshaped", "");
    stager_node(stager, "any/reshaped", "Reshape", "@six @any", "");
    feed_reshape(stager);

    /* By way of arithmetic, and of ops that only give another shape. */
    stager_node(stager, "square", "Mul", "@sh @sh", "");
    stager_node(stager, "pair", "Reshape", "@square i64=[2,1]", "");
    stager_node(stager, "flat", "Squeeze", "@pair", "axes=[1]");
    stager_node(stager, "filled", "Fill", "@sh f32=3", "");
    stager_node(stager, "filled/2", "Fill", "@flat @f", "");
    check(stager, "sh:i64=[1,2]", "filled", "[[3 3]]");
    check(stager, "sh:i64=[1,2] f:f32=7", "filled/2", "[[7 7 7 7]]");
    check(stager, "sh:i64=[2,1] f:f32=8", "filled/2", "[[8] [8] [8] [8]]");
    check(stager, "sh:i64=[0,1]", "filled", "[]");
    refused(stager, "sh:i64=[2,-1]", "filled", "no dimension can be open here");
    stager_node(stager, "stretched", "BroadcastTo", "f32=2 @square", "");
    check(stager, "sh:i64=[1,2]", "stretched", "[[2 2 2 2]]");
    refused(stager, "any:i64=[3]", "any/reshaped", "the same number of elements");

    stager_node(stager, "n/square", "Mul", "@n @n", "");
    stager_node(stager, "counted", "Range", "i64=0 @n/square i64=1", "");
    stager_node(stager, "counted/f32", "Range", "f32=0.5 @f f32=0.5", "");
    check(stager, "n:i64=2", "counted", "[0 1 2 3]");
    check(stager, "n:i64=0", "counted", "[]");
    check(stager, "n:i64=1", "counted n/square", "[0] | 1");
    check(stager, "f:f32=2", "counted/f32", "[0.5 1 1.5]");
    check(stager, "f:f32=1.1 n:i64=1", "counted counted/f32", "[0] | [0.5 1]");

    /* What is random is the same numbers as with the same shape written down. */
    stager_node(stager, "random", "RandomUniform", "@square", "T=f32 seed=3");
    stager_node(stager, "random/const", "RandomUniform", "i64=[4,1]", "T=f32 seed=3");
    stager_node(stager, "same", "Equal", "@random @random/const", "");
    stager_node(stager, "all", "All", "@same", "");
    check(stager, "sh:i64=[2,1]", "all", "True");
    stager_node(stager, "normal", "RandomNormal", "@sh", "T=f32 seed=3");
    stager_node(stager, "truncated", "TruncatedNormal", "@sh", "T=f32 seed=3");
    stager_node(stager, "normal/n", "Size", "@normal", "");
    stager_node(stager, "truncated/n", "Size", "@truncated", "");
    check(stager, "sh:i64=[2,3]", "normal/n truncated/n", "6 | 6");
}

void shaper_compute(struct stager *stager) {
    stager_node(stager, "v", "Variable", "", "T=f32 shape=[]");
    stager_node(stager, "v/set", "Assign", "@v f32=2", "");
    stager_node(stager, "v/add", "AssignAdd", "@v f32=1", "");
    stager_node(stager, "v/n", "Cast", "@v", "U=i64");
    stager_node(stager, "v/shape", "ExpandDims", "@v/n", "");
    stager_node(stager, "filled", "Fill", "@v/shape f32=3", "");
    stager_node(stager, "counted", "Range", "i64=0 @v/n i64=1", "");
    stager_node(stager, "total", "Sum", "@counted", "");
    stager_node(stager, "counted/2", "Range", "i64=0 @total i64=1", "");
    stager_node(stager, "random", "RandomUniform", "@v/shape", "T=f32 seed=3");
    stager_node(stager, "random/n", "Size", "@random", "");
    stager_node(stager, "pair", "Pack", "@v/n i64=2", "");
    stager_node(stager, "stretched", "BroadcastTo", "f32=[1,2] @pair", "");
    ck_assert_str_eq(stager_run(stager, "", "", "v/set"), "");
    check(stager, "", "filled counted", "[3 3] | [0 1]");
    check(stager, "", "counted/2 random/n stretched", "[0] | 2 | [[1 2] [1 2]]");
    /* The change was made before what reads it here. */
    ck_assert_str_eq(stager_run(stager, "", "filled v", "v/add"), "[3 3 3] | 3");
    check(stager, "", "filled counted counted/2", "[3 3 3] | [0 1 2] | [0 1 2]");
    check(stager, "", "random/n stretched", "3 | [[1 2] [1 2] [1 2]]");
    ck_assert_str_eq(stager_run(stager, "", "v", "v/add"), "4");
    check(stager, "", "counted/2 v filled", "[0 1 2 3 4 5] | 4 | [3 3 3 3]");

    /* Some of it is fed, some has to be computed. */
    stager_node(stager, "from", "Placeholder", "", "T=i64 shape=[]");
    stager_node(stager, "between", "Range", "@from @v/n i64=1", "");
    check(stager, "from:i64=1", "between", "[1 2 3]");
    check(stager, "from:i64=3", "between", "[3]");

    /* How many there are, and what they are, in one. */
    stager_node(stager, "x", "Placeholder", "", "T=f32 shape=[?]");
    stager_node(stager, "above", "Greater", "@x f32=0", "");
    stager_node(stager, "where", "Where", "@above", "");
    stager_node(stager, "where/n", "Size", "@where", "");
    stager_node(stager, "numbered", "Range", "i64=0 @where/n i64=1", "");
    stager_node(stager, "largest", "Max", "@numbered", "");
    stager_node(stager, "ones", "ExpandDims", "@largest", "");
    stager_node(stager, "last", "Fill", "@ones f32=1", "");
    check(stager, "x:f32=[1,-1,2,3]", "numbered last", "[0 1 2] | [1 1]");
    check(stager, "x:f32=[1,-1]", "last numbered where", "[] | [0] | [[0]]");
}

static void gradient(struct stager *stager, struct edge y, struct edge x, const char *name) {
    struct edge grad;
    struct allot_error err = { 0 };
    char input[64];
    int r = grad_add(stager->graph, &y, 1, &x, 1, NULL, &grad, &err);

    ck_assert_msg(r == 0, "%s", err.text);
    ck_assert(!edge_is_none(grad));
    snprintf(input, sizeof(input), "@%s:%u", graph_node(stager->graph, grad.node)->name,
             grad.output);
    stager_node(stager, name, "Identity", input, "");
}

void shaper_differentiate(struct stager *stager) {
    struct edge x = stager_node(stager, "x", "Placeholder", "", "T=f32 shape=[?]"), y;
    struct edge c = stager_node(stager, "c", "Placeholder", "", "T=f32 shape=[]");

    stager_node(stager, "sh", "Placeholder", "", "T=i64 shape=?");
    stager_node(stager, "v", "Variable", "", "T=f32 shape=[2]");
    stager_node(stager, "v/set", "Assign", "@v f32=[2,2]", "");
    stager_node(stager, "v/shape", "Cast", "@v", "U=i64");
    ck_assert_str_eq(stager_run(stager, "", "", "v/set"), "");

    for (int computed = 0; computed < 2; computed++) {
        const char *shape = computed ? "@v/shape" : "@sh", *in = computed ? "/v" : "/f";
        const char *feed =
            computed ? "x:f32=[1,2,3,4] c:f32=5" : "sh:i64=[2,2] x:f32=[1,2,3,4] c:f32=5";
        char inputs[64], name[32];

        stager_node(stager, strcat(strcpy(name, "reshaped"), in), "Reshape",
                    strcat(strcpy(inputs, "@x "), shape), "");
        snprintf(inputs, sizeof(inputs), "@%s", name);
        stager_node(stager, strcat(strcpy(name, "rows"), in), "Prod", inputs, "axes=[1]");
        snprintf(inputs, sizeof(inputs), "@%s", name);
        y = stager_node(stager, strcat(strcpy(name, "mean"), in), "Mean", inputs, "");
        gradient(stager, y, x, strcat(strcpy(name, "dx"), in));
        check(stager, feed, name, "[1 0.5 2 1.5]");

        snprintf(inputs, sizeof(inputs), "%s @c", shape);
        stager_node(stager, strcat(strcpy(name, "filled"), in), "Fill", inputs, "");
        snprintf(inputs, sizeof(inputs), "@%s", name);
        stager_node(stager, strcat(strcpy(name, "squares"), in), "Square", inputs, "");
        snprintf(inputs, sizeof(inputs), "@%s", name);
        y = stager_node(stager, strcat(strcpy(name, "sum"), in), "Sum", inputs, "");
        gradient(stager, y, c, strcat(strcpy(name, "dc"), in));
        check(stager, feed, name, "40");

        snprintf(inputs, sizeof(inputs), "@c %s", shape);
        y = stager_node(stager, strcat(strcpy(name, "stretched"), in), "BroadcastTo", inputs, "");
        gradient(stager, y, c, strcat(strcpy(name, "dstretched"), in));
        check(stager, feed, name, "4");
    }
    /* The same graph with other numbers. */
    check(stager, "sh:i64=[4,1] x:f32=[1,2,3,4] c:f32=5", "dx/f", "[0.25 0.25 0.25 0.25]");
    check(stager, "sh:i64=[3,1] c:f32=5", "dc/f dstretched/f", "30 | 3");
}
