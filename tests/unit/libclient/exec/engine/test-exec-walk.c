/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs, run with one to eight threads, against numbers computed one after the other here.
 * A plan whose memory overlaps, or an edge that is missing, gives other numbers.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/stop/cancel.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/graph/build.h"
#include "libclient/ops/ops.h"
#include "tests/support/suite.h"

enum { NODES_MAX = 400, VARIABLES = 3, FETCHES_MAX = 12 };

/* What each node of the walk is, and what it must give. */
struct walk_node {
    struct edge edge;
    float *expected;
    float *first; /* what the first run gave, to the bit; NULL: not fetched yet */
};

struct walk {
    uint64_t random;
    size_t n; /* elements of every tensor */
    struct allot_graph *graph;
    struct allot_error err;
    struct build build;
    struct walk_node nodes[NODES_MAX];
    uint32_t n_nodes;
    uint32_t last_write[VARIABLES]; /* node; UINT32_MAX */
    float *held[VARIABLES];         /* what the variable holds where the graph has got to */
    struct edge variables[VARIABLES];
    struct edge feed;
    struct allot_tensor *fed;
};

static uint32_t below(struct walk *walk, uint32_t n) {
    return (uint32_t)(random_next(&walk->random) % n);
}

static float *room(const struct walk *walk) {
    float *numbers = calloc(walk->n, sizeof(*numbers));

    ck_assert_ptr_nonnull(numbers);
    return numbers;
}

static const struct walk_node *pick(struct walk *walk) {
    return &walk->nodes[below(walk, walk->n_nodes)];
}

static struct walk_node *grow(struct walk *walk, struct edge edge) {
    struct walk_node *node = &walk->nodes[walk->n_nodes++];

    ck_assert_msg(walk->build.r == 0, "%s", walk->err.text);
    node->edge = edge;
    node->expected = room(walk);
    return node;
}

static void add_binary(struct walk *walk) {
    static const char *const ops[] = { "Add", "Sub", "Maximum", "Minimum" };
    uint32_t op = below(walk, 4);
    const struct walk_node *a = pick(walk), *b = pick(walk);
    struct walk_node *c = grow(walk, build_2(&walk->build, ops[op], a->edge, b->edge));

    for (size_t i = 0; i < walk->n; i++) {
        float x = a->expected[i], y = b->expected[i];

        c->expected[i] = op == 0   ? x + y
                         : op == 1 ? x - y
                         : op == 2 ? (x > y ? x : y)
                         : x < y   ? x
                                   : y;
    }
}

static void add_unary(struct walk *walk) {
    uint32_t op = below(walk, 3);
    const struct walk_node *a = pick(walk);
    struct walk_node *b = grow(walk, build_1(&walk->build,
                                             op == 0   ? "Neg"
                                             : op == 1 ? "Abs"
                                                       : "Identity",
                                             a->edge));

    for (size_t i = 0; i < walk->n; i++)
        b->expected[i] = op == 0   ? -a->expected[i]
                         : op == 1 ? (a->expected[i] < 0 ? -a->expected[i] : a->expected[i])
                                   : a->expected[i];
}

static void add_sum(struct walk *walk) {
    struct edge inputs[5];
    const struct walk_node *nodes[5];
    uint32_t n = 1 + below(walk, 5);
    struct walk_node *sum;

    for (uint32_t i = 0; i < n; i++)
        inputs[i] = (nodes[i] = pick(walk))->edge;
    sum = grow(walk, build_n(&walk->build, "AddN", inputs, n, NULL, 0));
    for (size_t i = 0; i < walk->n; i++) {
        sum->expected[i] = nodes[0]->expected[i];
        for (uint32_t k = 1; k < n; k++)
            sum->expected[i] += nodes[k]->expected[i];
    }
}

static void add_write(struct walk *walk) {
    static const char *const ops[] = { "Assign", "AssignAdd", "AssignSub" };
    uint32_t v = below(walk, VARIABLES), op = below(walk, 3);
    const struct walk_node *value = pick(walk);
    struct edge written = build_2(&walk->build, ops[op], walk->variables[v], value->edge);

    ck_assert_msg(walk->build.r == 0, "%s", walk->err.text);
    walk->last_write[v] = written.node;
    for (size_t i = 0; i < walk->n; i++)
        walk->held[v][i] = op == 0   ? value->expected[i]
                           : op == 1 ? walk->held[v][i] + value->expected[i]
                                     : walk->held[v][i] - value->expected[i];
}

/* A read sees what was last written before it in the graph, if that is part of the run: which it
 * is, because the read waits for it. */
static void add_read(struct walk *walk) {
    uint32_t v = below(walk, VARIABLES);
    struct build_node request = { .op = "ReadVariable",
                                  .inputs = &walk->variables[v],
                                  .n_inputs = 1,
                                  .controls = &walk->last_write[v],
                                  .n_controls = 1 };
    struct walk_node *node;
    uint32_t id;

    ck_assert_int_eq(build_add(walk->graph, &request, &id, &walk->err), 0);
    node = grow(walk, (struct edge){ id, 0 });
    memcpy(node->expected, walk->held[v], walk->n * sizeof(float));
}

static void walk_begin(struct walk *walk, uint64_t seed) {
    int64_t dims[1];

    *walk = (struct walk){ .random = seed };
    walk->n = below(walk, 3) ? 1 + below(walk, 40) : 1000 + below(walk, 3000);
    dims[0] = (int64_t)walk->n;
    ck_assert_int_eq(graph_new(&walk->graph), 0);
    walk->build = (struct build){ walk->graph, &walk->err, 0 };
    ck_assert_int_eq(allot_tensor_new(&walk->fed, ALLOT_F32, 1, dims, NULL), 0);
    for (size_t i = 0; i < walk->n; i++)
        ((float *)tensor_data(walk->fed))[i] = (float)below(walk, 64) - 32;
    walk->feed = build_n(&walk->build, "Placeholder", NULL, 0,
                         (struct build_attr[]){
                             { "T", { .kind = ATTR_DTYPE, .dtype = DTYPE_F32 } },
                             { "shape", { .kind = ATTR_SHAPE, .shape = walk->fed->shape } },
                         },
                         2);
    memcpy(grow(walk, walk->feed)->expected, tensor_data(walk->fed), walk->n * sizeof(float));
    for (uint32_t v = 0; v < VARIABLES; v++) {
        walk->held[v] = room(walk);
        walk->variables[v] =
            build_n(&walk->build, "Variable", NULL, 0,
                    (struct build_attr[]){
                        { "T", { .kind = ATTR_DTYPE, .dtype = DTYPE_F32 } },
                        { "shape", { .kind = ATTR_SHAPE, .shape = walk->fed->shape } },
                    },
                    2);
        /* Each run begins with the same value. */
        walk->last_write[v] = build_2(&walk->build, "Assign", walk->variables[v], walk->feed).node;
        memcpy(walk->held[v], tensor_data(walk->fed), walk->n * sizeof(float));
    }
}

static void walk_grow(struct walk *walk) {
    uint32_t n = 20 + below(walk, NODES_MAX - 40);

    while (walk->n_nodes < n)
        switch (below(walk, 10)) {
        case 0:
            add_write(walk);
            break;
        case 1:
            add_read(walk);
            break;
        case 2:
        case 3:
            add_unary(walk);
            break;
        case 4:
            add_sum(walk);
            break;
        default:
            add_binary(walk);
        }
}

static void walk_end(struct walk *walk) {
    for (uint32_t i = 0; i < walk->n_nodes; i++) {
        free(walk->nodes[i].expected);
        free(walk->nodes[i].first);
    }
    for (uint32_t v = 0; v < VARIABLES; v++)
        free(walk->held[v]);
    allot_tensor_unref(walk->fed);
    graph_unref(walk->graph);
}

/* Every write is a target: what a read sees must not depend on which fetches were chosen. */
static uint32_t all_writes(const struct walk *walk, uint32_t *ret) {
    uint32_t n = 0;

    for (uint32_t i = 0; i < graph_n_nodes(walk->graph); i++)
        if (strncmp(graph_node(walk->graph, i)->op->name, "Assign", 6) == 0)
            ret[n++] = i;
    return n;
}

/* The same number: signs of zero are the op's own affair. */
static bool is_close(float a, float b) {
    return a == b || (a != a && b != b);
}

static void check_node(const struct walk *walk, struct walk_node *node,
                       const struct allot_tensor *tensor) {
    const float *numbers = tensor_data(tensor);

    for (size_t i = 0; i < walk->n; i++)
        ck_assert_msg(is_close(numbers[i], node->expected[i]), "'%s': %g at %zu instead of %g",
                      graph_node(walk->graph, node->edge.node)->name, (double)numbers[i], i,
                      (double)node->expected[i]);
    if (node->first)
        ck_assert_msg(memcmp(numbers, node->first, walk->n * sizeof(float)) == 0,
                      "'%s': other bits than in the first run",
                      graph_node(walk->graph, node->edge.node)->name);
    else
        memcpy(node->first = room(walk), numbers, walk->n * sizeof(float));
}

static void walk_run(struct walk *walk, struct engine *engine, const uint32_t *writes,
                     uint32_t n_writes) {
    uint32_t which[FETCHES_MAX], n = 1 + below(walk, FETCHES_MAX - 1);
    struct edge fetches[FETCHES_MAX];
    struct allot_tensor *tensors[FETCHES_MAX];
    struct engine_call call = { &walk->feed, 1, fetches, n, writes, n_writes };
    struct engine_run run = { 0 };
    int r;

    for (uint32_t i = 0; i < n; i++)
        fetches[i] = walk->nodes[which[i] = below(walk, walk->n_nodes)].edge;
    r = engine_run(engine, &call, &run, &walk->fed, tensors, &walk->err);
    ck_assert_msg(r == 0, "%s", walk->err.text);
    for (uint32_t i = 0; i < n; i++) {
        check_node(walk, &walk->nodes[which[i]], tensors[i]);
        allot_tensor_unref(tensors[i]);
    }
}

static void walk_whole(uint64_t seed) {
    static uint32_t writes[4 * NODES_MAX];
    struct walk walk;
    uint32_t n_writes;

    walk_begin(&walk, seed);
    walk_grow(&walk);
    n_writes = all_writes(&walk, writes);
    for (unsigned threads = 1; threads <= 8; threads += threads == 1 ? 1 : 3) {
        struct engine_options options = { .inter_threads = threads,
                                          .intra_threads = 1 + threads / 4,
                                          .no_gpu = true,
                                          .seed = 1,
                                          .deterministic = true };
        struct engine *engine;

        ck_assert_int_eq(engine_new(&engine, walk.graph, &options, &walk.err), 0);
        for (int round = 0; round < 4; round++)
            walk_run(&walk, engine, writes, n_writes);
        engine_free(engine);
    }
    walk_end(&walk);
}

START_TEST(random_graphs_give_the_same_numbers_with_any_threads) {
    ck_assert_int_eq(ops_register_all(NULL), 0);
    for (uint64_t seed = 1; seed <= 30; seed++)
        walk_whole(seed);
}
END_TEST

struct canceller {
    struct cancel *cancel;
    long nsec;
};

static void *cancel_later(void *userdata) {
    struct canceller *canceller = userdata;
    struct timespec pause = { 0, canceller->nsec };

    nanosleep(&pause, NULL);
    cancel_give(canceller->cancel);
    return NULL;
}

static void walk_cancelled(unsigned threads) {
    static uint32_t writes[4 * NODES_MAX];
    struct engine_options options = { .inter_threads = threads,
                                      .intra_threads = 1,
                                      .no_gpu = true };
    struct engine *engine;
    struct walk walk;
    uint32_t n_writes;

    walk_begin(&walk, threads);
    walk_grow(&walk);
    n_writes = all_writes(&walk, writes);
    ck_assert_int_eq(engine_new(&engine, walk.graph, &options, &walk.err), 0);
    for (int round = 0; round < 20; round++) {
        struct cancel cancel;
        struct canceller canceller = { &cancel, (long)below(&walk, 200000) };
        struct edge fetch = walk.nodes[walk.n_nodes - 1].edge;
        struct engine_call call = { &walk.feed, 1, &fetch, 1, writes, n_writes };
        struct engine_run run = { .cancel = &cancel };
        struct allot_tensor *tensor = NULL;
        pthread_t thread;
        int r;

        cancel_init(&cancel);
        ck_assert_int_eq(pthread_create(&thread, NULL, cancel_later, &canceller), 0);
        r = engine_run(engine, &call, &run, &walk.fed, &tensor, &walk.err);
        ck_assert_msg(r == 0 || r == -ECANCELED, "%d: %s", r, walk.err.text);
        ck_assert_int_eq(tensor != NULL, r == 0);
        allot_tensor_unref(tensor);
        pthread_join(thread, NULL);
        cancel_done(&cancel);
        walk_run(&walk, engine, writes, n_writes);
    }
    engine_free(engine);
    walk_end(&walk);
}

/* Stopped anywhere, a run gives everything or nothing, and the next one goes well. */
START_TEST(cancelled_anywhere_nothing_is_left_behind) {
    ck_assert_int_eq(ops_register_all(NULL), 0);
    for (unsigned threads = 1; threads <= 8; threads++)
        walk_cancelled(threads);
}
END_TEST

SUITE_TIMEOUT("exec-walk", 300, random_graphs_give_the_same_numbers_with_any_threads,
              cancelled_anywhere_nothing_is_left_behind)
