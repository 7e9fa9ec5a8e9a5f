/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs of shapes that depend on data, variables and control edges between, run in as many
 * stages as that takes with one to three threads, against the same graph run node by node in the
 * order it was written.
 */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "libclient/core/tensor.h"
#include "tests/support/libclient/graph/graph_reference.h"
#include "tests/support/libclient/exec/engine/stage_fixture.h"
#include "tests/support/suite.h"

enum { GRAPHS = 40, NODES = 60, RUNS = 4, VARIABLES = 3 };

/* All numbers are single f32 that are small integers, so that each may become a shape. */
struct walk {
    struct stage_fixture *fixture;
    uint64_t random;
    struct edge numbers[NODES + 2], variables[VARIABLES];
    uint32_t n_numbers;
    uint32_t writes[NODES];
    uint32_t n_writes;
    uint32_t n_named;
};

static uint32_t below(struct walk *walk, uint32_t n) {
    return (uint32_t)(random_next(&walk->random) % n);
}

/* "@name:0" of an output; two of them at once. */
static const char *words(struct walk *walk, struct edge x, struct edge y) {
    static char text[128];
    const struct allot_graph *graph = walk->fixture->graph;

    snprintf(text, sizeof(text), "@%s:%u @%s:%u", graph_node(graph, x.node)->name, x.output,
             graph_node(graph, y.node)->name, y.output);
    return text;
}

static const char *word(struct walk *walk, struct edge x, const char *more) {
    static char text[128];

    snprintf(text, sizeof(text), "@%s:%u %s", graph_node(walk->fixture->graph, x.node)->name,
             x.output, more);
    return text;
}

/* A node, sometimes with a control edge to one that there is. */
static struct edge add(struct walk *walk, const char *op, const char *inputs, const char *attrs) {
    char name[32], control[64];

    snprintf(name, sizeof(name), "n%u", walk->n_named++);
    if (below(walk, 5))
        return stage_fixture_node(walk->fixture, name, op, inputs, attrs);
    snprintf(
        control, sizeof(control), "%s",
        graph_node(walk->fixture->graph, walk->numbers[below(walk, walk->n_numbers)].node)->name);
    return stage_fixture_node_after(walk->fixture, name, op, inputs, attrs, control);
}

/* How many numbers there are below x, as far as 0 to 6 goes, by way of their shape. */
static struct edge count(struct walk *walk, struct edge x) {
    struct edge n = add(walk, "Cast", word(walk, x, ""), "U=i64"), many;
    static const char *const shapes[] = { "Fill", "Reshape", "Where", "BroadcastTo" };
    const char *op = shapes[below(walk, 4)];

    many = add(walk, "Range", word(walk, n, "i64=7 i64=1"), "");
    if (strcmp(op, "Where") == 0) {
        many = add(walk, "Greater", word(walk, many, "i64=2"), "");
        many = add(walk, "Where", word(walk, many, ""), "");
    } else if (strcmp(op, "Reshape") == 0) {
        struct edge size = add(walk, "Size", word(walk, many, ""), "");

        size = add(walk, "Pack", word(walk, size, "i64=1"), "");
        many = add(walk, "Reshape", words(walk, many, size), "");
    } else {
        struct edge sum = add(walk, "Sum", word(walk, many, ""), ""), shape;

        shape = add(walk, "ExpandDims", word(walk, sum, ""), "");
        many = strcmp(op, "Fill") == 0 ? add(walk, "Fill", word(walk, shape, "f32=1"), "")
                                       : add(walk, "BroadcastTo", words(walk, sum, shape), "");
    }
    return add(walk, "Cast", word(walk, add(walk, "Size", word(walk, many, ""), ""), ""), "U=f32");
}

static void step(struct walk *walk) {
    struct edge x = walk->numbers[below(walk, walk->n_numbers)];
    struct edge y = walk->numbers[below(walk, walk->n_numbers)];
    struct edge v = walk->variables[below(walk, VARIABLES)], made;

    switch (below(walk, 6)) {
    case 0:
        made = add(walk, "ReadVariable", word(walk, v, ""), "");
        break;
    case 1:
    case 2:
        made = add(walk, below(walk, 2) ? "Assign" : "AssignAdd", words(walk, v, x), "");
        walk->writes[walk->n_writes++] = made.node;
        return;
    case 3:
        made = count(walk, x);
        break;
    default:
        made = add(walk, below(walk, 2) ? "Add" : "Sub", words(walk, x, y), "");
        break;
    }
    /* Small again. */
    walk->numbers[walk->n_numbers++] = add(walk, "FloorMod", word(walk, made, "f32=7"), "");
}

static void compare(struct walk *walk, struct graph_reference *reference, uint32_t round) {
    struct edge feed = walk->numbers[0], fetches[8];
    struct allot_tensor *fed = graph_fixture_tensor("f32=0"), *expected[8], *got[8];
    struct engine_call call = { &feed, 1, fetches, 8, walk->writes, walk->n_writes };
    struct topo_request request = { .fetches = fetches,
                                    .n_fetches = 8,
                                    .targets = walk->writes,
                                    .n_targets = walk->n_writes,
                                    .feeds = &feed,
                                    .n_feeds = 1 };
    struct engine_run run = { 0 };
    int r;

    *(float *)tensor_data(fed) = (float)(round % 3);
    for (int i = 0; i < 8; i++)
        fetches[i] = walk->numbers[below(walk, walk->n_numbers)];
    ck_assert_msg(graph_reference_run(reference, &request, &fed, expected) == 0, "%s",
                  reference->error.text);
    r = engine_run(walk->fixture->engine, &call, &run, &fed, got, &walk->fixture->err);
    ck_assert_msg(r == 0, "%s", walk->fixture->err.text);
    for (int i = 0; i < 8; i++) {
        ck_assert_msg(
            *(float *)tensor_data(got[i]) == *(float *)tensor_data(expected[i]),
            "'%s' is %g instead of %g", graph_node(walk->fixture->graph, fetches[i].node)->name,
            (double)*(float *)tensor_data(got[i]), (double)*(float *)tensor_data(expected[i]));
        allot_tensor_unref(got[i]);
        allot_tensor_unref(expected[i]);
    }
    allot_tensor_unref(fed);
}

static void take_walk(uint64_t seed, unsigned threads) {
    struct stage_fixture fixture;
    struct walk walk = { .fixture = &fixture, .random = seed };
    struct graph_reference reference;
    uint32_t init[VARIABLES];

    stage_fixture_open(&fixture, threads, false);
    graph_reference_init(&reference, fixture.graph);
    walk.numbers[walk.n_numbers++] =
        stage_fixture_node(&fixture, "fed", "Placeholder", "", "T=f32 shape=[]");
    walk.numbers[walk.n_numbers++] = stage_fixture_node(&fixture, "four", "Identity", "f32=4", "");
    for (int i = 0; i < VARIABLES; i++) {
        char name[16];

        snprintf(name, sizeof(name), "v%d", i);
        walk.variables[i] = stage_fixture_node(&fixture, name, "Variable", "", "T=f32 shape=[]");
        snprintf(name, sizeof(name), "init%d", i);
        init[i] = stage_fixture_node(&fixture, name, "Assign",
                                     word(&walk, walk.variables[i], "f32=3"), "")
                      .node;
        ck_assert_str_eq(stage_fixture_run(&fixture, "", "", name), "");
    }
    ck_assert_int_eq(
        graph_reference_run(&reference,
                            &(struct topo_request){ .targets = init, .n_targets = VARIABLES }, NULL,
                            NULL),
        0);
    for (int i = 0; i < NODES; i++)
        step(&walk);
    for (uint32_t round = 0; round < RUNS; round++)
        compare(&walk, &reference, round);
    graph_reference_done(&reference);
    stage_fixture_close(&fixture);
}

START_TEST(stages_give_what_the_graph_says) {
    for (uint64_t seed = 1; seed <= GRAPHS; seed++)
        take_walk(seed, 1 + (unsigned)(seed % 3));
}
END_TEST

SUITE_TIMEOUT("exec-stage-walk", 300, stages_give_what_the_graph_says)
