/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "libclient/allot/train.h"
#include "libclient/graph/file.h"
#include "libclient/graph/format.h"
#include "tests/support/libclient/graph/graph_fixture.h"
#include "tests/support/suite.h"
#include "tests/support/tmpdir.h"

/* A little of everything: scopes, variables, gradients, an optimizer, constants, lists. */
static struct allot_graph *sample(void) {
    struct allot_output x, w, b, loss, parts[2];
    struct allot_optimizer *adam = allot_adam(0.1, ALLOT_ADAM_DEFAULTS);
    struct allot_error err = { 0 };
    struct allot_graph *graph;

    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    allot_graph_set_seed(graph, 99);
    x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 4 });
    allot_with_device(graph, "/job:worker/gpu:1") w = allot_variable(
        graph, "w", allot_random_normal(graph, ALLOT_F32, 2, (int64_t[]){ 4, 2 }, 0, 0.5, 3));
    b = allot_variable(graph, "b", allot_filled(graph, ALLOT_F32, 1, (int64_t[]){ 2 }, 0));
    allot_with_name(graph, "layer") {
        loss = allot_relu(allot_bias_add(allot_matmul(x, w), b));
        ck_assert_int_eq(allot_split(loss, 1, 2, parts), 0);
        allot_colocate_push(graph, w.node);
        loss = allot_mean(allot_square(allot_concat(parts, 2, -1)));
        allot_colocate_pop(graph);
    }
    allot_with_control(graph, loss.node) {
        allot_print(loss, "loss ");
        allot_read(w);
    }
    allot_minimize(adam, loss);
    allot_initializer(graph);
    allot_optimizer_free(adam);
    ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
    return graph;
}

static void same(const struct allot_graph *a, const struct allot_graph *b) {
    ck_assert_uint_eq(graph_n_nodes(a), graph_n_nodes(b));
    ck_assert_uint_eq(a->seed, b->seed);
    for (uint32_t i = 0; i < graph_n_nodes(a); i++) {
        const struct node *x = graph_node(a, i), *y = graph_node(b, i);

        ck_assert_ptr_eq(x->op, y->op);
        ck_assert_str_eq(x->name, y->name);
        ck_assert_str_eq(x->device, y->device);
        ck_assert_uint_eq(x->n_inputs, y->n_inputs);
        ck_assert_uint_eq(x->n_controls, y->n_controls);
        ck_assert_uint_eq(x->n_colocate, y->n_colocate);
        for (uint32_t n = 0; n < x->n_inputs; n++)
            ck_assert(x->inputs[n].node == y->inputs[n].node &&
                      x->inputs[n].output == y->inputs[n].output);
        for (uint32_t n = 0; n < x->n_controls; n++)
            ck_assert_uint_eq(x->controls[n], y->controls[n]);
        for (uint32_t n = 0; n < x->n_colocate; n++)
            ck_assert_uint_eq(x->colocate[n], y->colocate[n]);
        for (size_t n = 0; n < x->op->n_attrs; n++)
            ck_assert_msg(attr_equal(&x->attrs[n], &y->attrs[n]), "%s of %s", x->op->attrs[n].name,
                          x->name);
        for (uint32_t n = 0; n < x->n_outputs; n++)
            ck_assert(shape_equal(&x->outputs[n].shape, &y->outputs[n].shape));
        if (graph_variable(a, i)) {
            ck_assert_uint_eq(graph_variable(a, i)->initial, graph_variable(b, i)->initial);
            ck_assert_uint_eq(graph_variable(a, i)->read, graph_variable(b, i)->read);
        }
    }
}

START_TEST(a_graph_comes_back_from_its_file_as_it_was) {
    struct allot_graph *graph = sample(), *again;
    const char *dir = tmpdir();
    char path[512];
    struct allot_error err = { 0 };
    struct allot_output more;

    snprintf(path, sizeof(path), "%s/model.graph", dir);
    ck_assert_msg(allot_graph_save(graph, path, &err) == 0, "%s", err.text);
    ck_assert_int_eq(allot_graph_save(graph, path, &err), 0); /* over the old one */
    ck_assert_msg(allot_graph_load(&again, path, &err) == 0, "%s", err.text);
    same(graph, again);
    /* It is a graph like any other: names go on where they were. */
    ck_assert_int_eq(allot_graph_find(again, "x", &more, NULL), 0);
    allot_name_next(again, "x");
    ck_assert_str_eq(allot_node_name(allot_relu(more).node), "x_1");
    ck_assert_ptr_nonnull(allot_initializer(again));
    allot_graph_unref(again);
    allot_graph_unref(graph);
}
END_TEST

START_TEST(files_that_cannot_be_read_or_written_are_named) {
    struct allot_graph *graph = sample(), *again;
    const char *dir = tmpdir();
    char path[512];
    struct allot_error err = { 0 };

    snprintf(path, sizeof(path), "%s/none/model.graph", dir);
    ck_assert_int_eq(allot_graph_save(graph, path, &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_int_eq(allot_graph_load(&again, path, &err), -ENOENT);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_int_eq(allot_graph_load(&again, dir, &err), -EISDIR);
    ck_assert_int_eq(allot_graph_save(graph, dir, &err), -EISDIR);
    snprintf(path, sizeof(path), "%s/pipe", dir);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(allot_graph_load(&again, path, &err), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err.text, "it is not a regular file"));
    allot_graph_unref(graph);
}
END_TEST

/* The checksum made right again, so that what lies behind it is looked at. */
static int decode(uint8_t *bytes, size_t size, bool mend, struct allot_error *err) {
    struct allot_graph *graph = NULL;
    int r;

    if (mend) {
        uint32_t sum = crc32c(0, bytes, size - 4);

        for (int i = 0; i < 4; i++)
            bytes[size - 4 + i] = (uint8_t)(sum >> 8 * i);
    }
    r = graph_decode(&graph, bytes, size, err);
    graph_unref(graph);
    return r;
}

START_TEST(cut_and_damaged_files_are_refused) {
    struct allot_graph *graph = sample();
    struct allot_error err = { 0 };
    uint8_t *bytes, *copy;
    size_t size, n_read = 0;

    ck_assert_int_eq(graph_encode(graph, &bytes, &size, NULL), 0);
    copy = malloc(size + 8);
    for (size_t n = 0; n < size; n += n < 200 ? 1 : 13) {
        memcpy(copy, bytes, size);
        ck_assert_int_eq(decode(copy, n, false, &err), -EBADMSG);
        if (n >= FORMAT_MAGIC_SIZE + 24)
            ck_assert_int_eq(decode(copy, n, true, &err), -EBADMSG);
    }
    /* A byte changed: found by the checksum; without it refused, or another graph. */
    for (size_t n = 0; n < size - 4; n++) {
        memcpy(copy, bytes, size);
        copy[n] ^= (uint8_t)(1 + n % 255);
        ck_assert_int_lt(decode(copy, size, false, &err), 0);
        if (n % 5 == 0)
            n_read += decode(copy, size, true, &err) == 0;
    }
    ck_assert_uint_gt(n_read, 0);
    memcpy(copy, bytes, size);
    ck_assert_int_eq(decode(copy, size + 4, true, &err), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(err.text, "bytes follow the graph"));
    memcpy(copy, bytes, size);
    copy[FORMAT_MAGIC_SIZE] = 2;
    ck_assert_int_eq(decode(copy, size, true, &err), -ENOTSUP);
    ck_assert_str_eq(err.text, "the file has version 2, and only 1 is known here");
    ck_assert_int_eq(decode(copy, 0, false, &err), -EBADMSG);
    free(copy);
    free(bytes);
    graph_unref(graph);
}
END_TEST

/* Bytes by hand, for files that nothing here would write. */
struct forger {
    uint8_t bytes[1024];
    size_t n;
};

static void number(struct forger *forger, uint64_t value, size_t n) {
    for (size_t i = 0; i < n; i++)
        forger->bytes[forger->n++] = (uint8_t)(value >> 8 * i);
}

static void text(struct forger *forger, const char *words) {
    number(forger, strlen(words), 4);
    memcpy(forger->bytes + forger->n, words, strlen(words));
    forger->n += strlen(words);
}

static void head(struct forger *forger, uint32_t n_nodes) {
    *forger = (struct forger){ .n = FORMAT_MAGIC_SIZE };
    memcpy(forger->bytes, FORMAT_MAGIC, FORMAT_MAGIC_SIZE);
    number(forger, FORMAT_VERSION, 4);
    number(forger, n_nodes, 4);
    number(forger, 0, 8);
}

static void no_op(struct forger *forger, const char *op, const char *name, uint32_t n_controls,
                  uint32_t control) {
    text(forger, op);
    text(forger, name);
    text(forger, "");
    number(forger, 0, 4);
    number(forger, n_controls, 4);
    if (n_controls == 1)
        number(forger, control, 4);
    number(forger, 0, 4);
    number(forger, 0, 4);
}

static void refused(struct forger *forger, int code, const char *says) {
    struct allot_error err = { 0 };

    number(forger, 0, 4); /* no variables */
    number(forger, 0, 4); /* the checksum */
    ck_assert_int_eq(decode(forger->bytes, forger->n, true, &err), code);
    ck_assert_msg(code == 0 || strstr(err.text, says), "%s instead of %s", err.text, says);
}

START_TEST(forged_files_are_refused) {
    struct allot_graph *graph = sample(); /* registers the ops */
    struct forger forger;

    head(&forger, 1);
    no_op(&forger, "NoOp", "a", 0, 0);
    refused(&forger, 0, "");
    head(&forger, 2);
    no_op(&forger, "NoOp", "a", 0, 0);
    no_op(&forger, "NoOp", "a", 0, 0);
    refused(&forger, -EBADMSG, "node 1 of the file, 'a', would differ");
    head(&forger, 1);
    no_op(&forger, "NoOp", "a", 1, 0);
    refused(&forger, -EBADMSG, "a control dependency is not a node of this graph");
    head(&forger, 1);
    no_op(&forger, "NoOp", "a", UINT32_MAX, 0);
    refused(&forger, -EBADMSG, "the file is damaged at byte");
    head(&forger, 1);
    no_op(&forger, "Unheard", "a", 0, 0);
    refused(&forger, -ENOENT, "node 0 of the file: there is no op 'Unheard'");
    head(&forger, 1);
    no_op(&forger, "NoOp", "a b", 0, 0);
    refused(&forger, -EBADMSG, "cannot be the name of a node");
    head(&forger, UINT32_MAX);
    refused(&forger, -EBADMSG, "the file is damaged at byte");
    graph_unref(graph);
}
END_TEST

SUITE("graph-file", a_graph_comes_back_from_its_file_as_it_was,
      files_that_cannot_be_read_or_written_are_named, cut_and_damaged_files_are_refused,
      forged_files_are_refused)
