/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input is a graph: each pair of bytes adds a node of some op over the values that there are, if
 * the op takes them. It is run by the executor on the CPU, with two threads, and node by node by
 * the reference: both fail, or both give the same.
 */
#include <check.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/core/tensor.h"
#include "libclient/exec/engine/engine.h"
#include "libclient/graph/build.h"
#include "libclient/ops/ops.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/libclient/graph/graph_fixture.h"
#include "tests/support/libclient/graph/graph_reference.h"

/* The fixtures assert by Check, which wants a suite around them: here a broken promise just ends.
 */
void _mark_point(const char *file, int line) {
    (void)file, (void)line;
}

void _ck_assert_failed(const char *file, int line, const char *expression, const char *message,
                       ...) {
    (void)message;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, expression);
    abort();
}

#define NODES_MAX   48
#define FETCHES_MAX 4

static const struct {
    const char *op;
    unsigned n_inputs;
    const char *constants, *attrs;
} ops[] = {
    { "Add", 2, "", "" },
    { "Sub", 2, "", "" },
    { "Mul", 2, "", "" },
    { "Maximum", 2, "", "" },
    { "Minimum", 2, "", "" },
    { "Neg", 1, "", "" },
    { "Abs", 1, "", "" },
    { "Relu", 1, "", "" },
    { "Square", 1, "", "" },
    { "Identity", 1, "", "" },
    { "MatMul", 2, "", "" },
    { "Transpose", 1, "", "" },
    { "Sum", 1, "", "axes=[0]" },
    { "Sum", 1, "", "axes=[1] keep_dims=true" },
    { "Max", 1, "", "axes=[0]" },
    { "ExpandDims", 1, "", "" },
    { "Reshape", 1, "i64=[-1]", "" },
    { "Reshape", 1, "i64=[2,-1]", "" },
    { "Slice", 1, "i64=[0] i64=[1]", "" },
    { "Shape", 1, "", "" },
    { "Size", 1, "", "" },
    { "Cast", 1, "", "U=f32" },
    { "Cast", 1, "", "U=i64" },
    { "Fill", 1, "f32=2", "" },
    { "Range", 1, "i64=5 i64=1", "" },
    { "Where", 1, "", "" },
    { "Greater", 2, "", "" },
    { "Equal", 2, "", "" },
};

struct made {
    struct allot_graph *graph;
    struct edge values[NODES_MAX + 4];
    uint32_t n_values;
};

static void add(struct made *made, const char *op, const char *inputs, const char *attrs) {
    struct allot_error err = { 0 };
    uint32_t id;

    if (graph_fixture_add(made->graph, op, inputs, attrs, &id, &err) == 0)
        made->values[made->n_values++] = (struct edge){ id, 0 };
}

static void make(struct made *made, const uint8_t *data, size_t size) {
    made->graph = graph_fixture_new();
    add(made, "Identity", "f32=[1,-2,3]", "");
    add(made, "Reshape", "f32=[1,2,3,4,5,6] i64=[2,3]", "");
    add(made, "Identity", "f32=-3", "");
    add(made, "Identity", "i64=[2,1]", "");
    for (size_t i = 0; i + 1 < size && made->n_values < NODES_MAX; i += 2) {
        const size_t op = data[i] % ELEMENTSOF(ops);
        const struct edge x = made->values[data[i + 1] % made->n_values];
        const struct edge y = made->values[data[i + 1] / made->n_values % made->n_values];
        char inputs[256];

        if (ops[op].n_inputs == 2)
            snprintf(inputs, sizeof(inputs), "@%s:0 @%s:0", graph_node(made->graph, x.node)->name,
                     graph_node(made->graph, y.node)->name);
        else
            snprintf(inputs, sizeof(inputs), "@%s:0 %s", graph_node(made->graph, x.node)->name,
                     ops[op].constants);
        add(made, ops[op].op, inputs, ops[op].attrs);
    }
}

static void same(const struct allot_tensor *a, const struct allot_tensor *b) {
    fuzz_check(a->dtype == b->dtype && a->bytes == b->bytes && shape_equal(&a->shape, &b->shape));
    if (a->dtype != DTYPE_F32) {
        fuzz_check(memcmp(tensor_data(a), tensor_data(b), a->bytes) == 0);
        return;
    }
    for (size_t i = 0; i < a->bytes / sizeof(float); i++) {
        const float x = ((const float *)tensor_data(a))[i], y = ((const float *)tensor_data(b))[i];
        const float scale = x < 0 ? -x : x;

        /* Sums may be grouped in another way. */
        fuzz_check((x != x && y != y) || x == y || (x > y ? x - y : y - x) <= scale * 1e-5f);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct engine_options options = {
        .inter_threads = 2, .intra_threads = 1, .no_gpu = true, .seed = 1, .deterministic = true
    };
    struct allot_tensor *got[FETCHES_MAX] = { 0 }, *expected[FETCHES_MAX] = { 0 };
    struct edge fetches[FETCHES_MAX];
    struct graph_reference reference;
    struct made made = { 0 };
    struct engine *engine;
    struct engine_run run = { 0 };
    struct allot_error err = { 0 };
    uint32_t n;
    int r, expected_r;

    make(&made, data, size);
    n = MIN(made.n_values, (uint32_t)FETCHES_MAX);
    for (uint32_t i = 0; i < n; i++)
        fetches[i] = made.values[made.n_values - 1 - i];
    graph_reference_init(&reference, made.graph);
    expected_r = graph_reference_run(
        &reference, &(struct topo_request){ .fetches = fetches, .n_fetches = n }, NULL, expected);
    fuzz_check(engine_new(&engine, made.graph, &options, &err) == 0);
    for (int round = 0; round < 2; round++) {
        r = engine_run(engine, &(struct engine_call){ .fetches = fetches, .n_fetches = n }, &run,
                       NULL, got, &err);
        fuzz_check((r == 0) == (expected_r == 0));
        for (uint32_t i = 0; r == 0 && i < n; i++) {
            same(expected[i], got[i]);
            allot_tensor_unref(got[i]);
        }
    }
    for (uint32_t i = 0; expected_r == 0 && i < n; i++)
        allot_tensor_unref(expected[i]);
    engine_free(engine);
    graph_reference_done(&reference);
    graph_unref(made.graph);
    return 0;
}
