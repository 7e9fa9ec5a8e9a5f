/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/placement-graphs.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 2048, BATCH = 1024, BRANCHES = 6, LAYERS = 4, TOWERS = 2, HEADS = 4 };

static struct allot_output uniform(struct allot_graph *graph, int64_t rows, int64_t columns) {
    return allot_random_uniform(graph, ALLOT_F32, 2, (int64_t[]){ rows, columns }, -1, 1, 7);
}

static struct allot_output weight(struct allot_graph *graph, int64_t rows, int64_t columns) {
    return allot_variable(graph, "w", uniform(graph, rows, columns));
}

static void push(struct allot_graph *graph, const char *what, int i) {
    char name[32];

    snprintf(name, sizeof(name), "%s_%d", what, i);
    allot_name_push(graph, name);
}

/* Chains of products beside each other, which meet at the end. */
static struct allot_output branches(struct allot_graph *graph) {
    struct allot_output ends[BRANCHES];

    for (int b = 0; b < BRANCHES; b++) {
        push(graph, "branch", b);
        ends[b] = uniform(graph, WIDE, WIDE);
        for (int i = 0; i < 3 + b % 3; i++)
            ends[b] = allot_matmul(ends[b], ends[b]);
        ends[b] = allot_sum(ends[b]);
        allot_name_pop(graph);
    }
    return allot_add_n(ends, BRANCHES);
}

/* Blocks that split and meet again. */
static struct allot_output diamonds(struct allot_graph *graph) {
    struct allot_output h = uniform(graph, WIDE, WIDE);

    for (int i = 0; i < LAYERS; i++) {
        struct allot_output parts[3];

        push(graph, "layer", i);
        for (int k = 0; k < 3; k++) {
            push(graph, "branch", k);
            parts[k] = allot_matmul(allot_matmul(h, h), h);
            allot_name_pop(graph);
        }
        h = allot_add_n(parts, 3);
        allot_name_pop(graph);
    }
    return allot_sum(h);
}

static struct allot_output perceptron(struct allot_graph *graph) {
    struct allot_output h = uniform(graph, BATCH, WIDE);

    for (int i = 0; i < LAYERS; i++) {
        push(graph, "layer", i);
        h = allot_relu(allot_matmul(h, weight(graph, WIDE, WIDE)));
        allot_name_pop(graph);
    }
    return allot_mean(h);
}

/* Perceptrons with weights of their own, side by side. */
static struct allot_output towers(struct allot_graph *graph) {
    struct allot_output ends[TOWERS];

    for (int t = 0; t < TOWERS; t++) {
        push(graph, "branch", t);
        ends[t] = uniform(graph, BATCH, WIDE);
        for (int i = 0; i < 3; i++)
            ends[t] = allot_tanh(allot_matmul(ends[t], weight(graph, WIDE, WIDE)));
        ends[t] = allot_mean(ends[t]);
        allot_name_pop(graph);
    }
    return allot_add_n(ends, TOWERS);
}

/* A transformer's layers with heads that can run side by side, without the norms. */
static struct allot_output attention(struct allot_graph *graph) {
    struct allot_output h = uniform(graph, BATCH, WIDE);

    for (int i = 0; i < 2; i++) {
        struct allot_output heads[HEADS];

        push(graph, "layer", i);
        for (int k = 0; k < HEADS; k++) {
            struct allot_output q, v, scores;

            push(graph, "branch", k);
            q = allot_matmul(h, weight(graph, WIDE, WIDE / HEADS));
            v = allot_matmul(h, weight(graph, WIDE, WIDE / HEADS));
            scores = allot_softmax(allot_matmul(q, allot_transpose(v, (int64_t[]){ 1, 0 }, 2)));
            heads[k] = allot_matmul(allot_matmul(scores, v), weight(graph, WIDE / HEADS, WIDE));
            allot_name_pop(graph);
        }
        h = allot_relu(allot_add_n(heads, HEADS));
        allot_name_pop(graph);
    }
    return allot_mean(h);
}

static const struct {
    const char *name;
    struct allot_output (*make)(struct allot_graph *graph);
    bool is_trained;
} graphs[PLACEMENT_GRAPHS] = {
    { "branches", branches, false },    { "diamonds", diamonds, false },
    { "perceptron", perceptron, true }, { "towers", towers, true },
    { "attention", attention, true },
};

int placement_graph_new(struct placement_graph *ret, unsigned i,
                        int (*scopes)(struct allot_graph *graph, void *data), void *data,
                        struct allot_error *err) {
    struct allot_output end;
    int r;

    *ret = (struct placement_graph){ .name = graphs[i].name };
    r = allot_graph_new(&ret->graph, err);
    if (r < 0)
        return r;
    if (scopes)
        scopes(ret->graph, data);
    end = graphs[i].make(ret->graph);
    ret->step = end.node;
    if (graphs[i].is_trained) {
        ret->optimizer = allot_sgd(0.1);
        ret->step = allot_minimize(ret->optimizer, end);
        ret->init = allot_initializer(ret->graph);
    }
    return allot_graph_error(ret->graph, err);
}

void placement_graph_done(struct placement_graph *graph) {
    allot_graph_unref(graph->graph);
    allot_optimizer_free(graph->optimizer);
}

static int host_clock(unsigned long long *ret) {
    const char *dir = getenv("ALLOT_SIM_DIR");
    unsigned long long (*clock)(void) = NULL;
    char path[4096];
    void *library;

    snprintf(path, sizeof(path), "%s/libcuda.so.1", dir ? dir : "");
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return -ENOENT;
    *(void **)&clock = dlsym(library, "gpusimHostClock");
    if (clock)
        *ret = clock();
    dlclose(library);
    return clock ? 0 : -ENOENT;
}

static int run(struct allot_session *session, struct allot_node *target, struct allot_error *err) {
    return allot_session_run(session, NULL, NULL, 0, NULL, 0, &target, 1, NULL, err);
}

int placement_graph_time(const struct placement_graph *graph, struct allot_session *session,
                         double *ret_usec, struct allot_error *err) {
    unsigned long long begin, end;
    int r = graph->init ? run(session, graph->init, err) : 0;

    if (r == 0)
        r = run(session, graph->step, err);
    if (r == 0)
        r = host_clock(&begin);
    if (r == 0)
        r = run(session, graph->step, err);
    if (r == 0)
        r = host_clock(&end);
    if (r == 0)
        *ret_usec = (double)(end - begin) / 1e3;
    return r;
}
