/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation fails once: building, gradients, optimizers, saving and loading answer with
 * -ENOMEM and words, and give back all that they took. malloc() and its like are wrapped when the
 * test is linked (meson.build).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "libclient/allot/train.h"
#include "libclient/graph/file.h"
#include "libclient/graph/topo.h"
#include "libclient/ops/ops.h"
#include "tests/support/suite.h"

static long n_left = -1; /* until one fails; negative: none does */
static long n_alive;

static bool denied(void) {
    return n_left >= 0 && n_left-- == 0;
}

#define WRAP(type, name, parameters, arguments)                                                    \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        type made = denied() ? NULL : __real_##name arguments;                                     \
                                                                                                   \
        n_alive += made != NULL;                                                                   \
        return made;                                                                               \
    }
WRAP(void *, malloc, (size_t size), (size))
WRAP(void *, calloc, (size_t n, size_t size), (n, size))
WRAP(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))
WRAP(char *, strdup, (const char *text), (text))
WRAP(char *, strndup, (const char *text, size_t n), (text, n))

void *__real_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size);
void *__wrap_realloc(void *block, size_t size) {
    void *made = denied() ? NULL : __real_realloc(block, size);

    n_alive += made && !block;
    return made;
}

void __real_free(void *block);
void __wrap_free(void *block);
void __wrap_free(void *block) {
    n_alive -= block != NULL;
    __real_free(block);
}

/* 0, or the first error of all that is done. */
static int build(struct allot_graph *graph) {
    struct allot_output x, w, b, loss, parts[2];
    struct allot_optimizer *optimizer;
    struct allot_op *op;
    struct allot_node *node;
    int r;

    x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 4 });
    allot_with_device(graph, "/gpu:1") w = allot_variable(
        graph, "w", allot_random_normal(graph, ALLOT_F32, 2, (int64_t[]){ 4, 2 }, 0, 1, 3));
    b = allot_variable(graph, "b", allot_filled(graph, ALLOT_F32, 1, (int64_t[]){ 2 }, 0));
    allot_with_name(graph, "layer") {
        loss = allot_relu(allot_bias_add(allot_matmul(x, w), b));
        allot_split(loss, 1, 2, parts);
        allot_name_next(graph, "joined");
        loss = allot_mean(allot_square(allot_concat(parts, 2, -1)));
    }
    if (loss.node)
        allot_with_control(graph, loss.node) allot_assign_add(b, b);
    optimizer = allot_adam(0.1, ALLOT_ADAM_DEFAULTS);
    allot_minimize(optimizer, loss);
    allot_optimizer_free(optimizer);
    allot_initializer(graph);
    r = allot_graph_error(graph, NULL);
    if (r < 0)
        return r;
    op = allot_op_begin(graph, "Slice", "piece");
    allot_op_input(op, loss);
    allot_op_attr_ints(op, "begin", NULL, 0);
    allot_op_attr_ints(op, "size", NULL, 0);
    allot_op_device(op, "/cpu:0");
    allot_op_control(op, loss.node);
    return allot_op_finish(op, &node, NULL);
}

static int keep(struct allot_graph *graph) {
    struct allot_graph *again = NULL;
    uint32_t *ids = NULL, target;
    uint8_t *bytes = NULL;
    size_t size, n;
    int r = graph_encode(graph, &bytes, &size, NULL);

    if (r == 0)
        r = graph_decode(&again, bytes, size, NULL);
    target = r == 0 ? graph_n_nodes(again) - 1 : 0;
    if (r == 0)
        r = topo_prune(again, &(struct topo_request){ .targets = &target, .n_targets = 1 }, &ids,
                       &n, NULL);
    free(ids);
    free(bytes);
    graph_unref(again);
    return r;
}

START_TEST(each_allocation_fails_once_and_nothing_is_lost) {
    long at;

    ck_assert_int_eq(ops_register_all(NULL), 0);
    for (at = 0; at < 100000; at++) {
        long before = n_alive;
        struct allot_graph *graph = NULL;
        int r;

        n_left = at;
        r = allot_graph_new(&graph, NULL);
        if (r == 0)
            r = build(graph);
        if (r == 0)
            r = keep(graph);
        allot_graph_unref(graph);
        if (n_left >= 0) { /* none failed any more */
            n_left = -1;
            ck_assert_int_eq(r, 0);
            ck_assert_int_eq(n_alive, before);
            break;
        }
        n_left = -1;
        ck_assert_msg(r == -ENOMEM, "allocation %ld failed, and the answer was %d", at, r);
        ck_assert_msg(n_alive == before, "allocation %ld failed, and %ld blocks are lost", at,
                      n_alive - before);
    }
    ck_assert_int_gt(at, 500); /* as many were tried at least */
}
END_TEST

START_TEST(ops_are_registered_in_the_end_however_often_it_fails) {
    long at = 0;
    int r;

    do {
        n_left = at++;
        r = ops_register_all(NULL);
        n_left = -1;
        ck_assert(r == 0 || r == -ENOMEM);
    } while (r < 0 && at < 10000);
    ck_assert_int_eq(r, 0);
    ck_assert_ptr_nonnull(opdef_find("MatMul"));
    ck_assert_ptr_nonnull(opdef_find("SplitLike"));
}
END_TEST

SUITE_TIMEOUT("graph-memory", 120, each_allocation_fails_once_and_nothing_is_lost,
              ops_are_registered_in_the_end_however_often_it_fails)
