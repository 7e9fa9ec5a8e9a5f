/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/libclient/graph/graph_fixture.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "libclient/core/tensor.h"
#include "libclient/ops/ops.h"

#define WORDS_MAX 16

struct allot_graph *graph_fixture_new(void) {
    struct allot_graph *graph;
    struct allot_error err = { 0 };

    ck_assert_msg(ops_register_all(&err) == 0, "%s", err.text);
    ck_assert_int_eq(graph_new(&graph), 0);
    return graph;
}

/* "[1,?,3]" or a single number. Returns how many. */
static size_t numbers(const char *text, double *values) {
    size_t n = 0;

    if (*text != '[') {
        values[0] = strtod(text, NULL);
        return 1;
    }
    text++;
    while (*text && *text != ']') {
        char *end = (char *)text + 1;

        ck_assert_uint_lt(n, WORDS_MAX);
        values[n++] = *text == '?' ? -1 : strtod(text, &end);
        text = end;
        if (*text == ',')
            text++;
    }
    return n;
}

static struct shape shape_of(const char *text) {
    double values[WORDS_MAX];
    int64_t dims[WORDS_MAX];
    struct shape shape;
    size_t n;

    if (*text == '?')
        return shape_unknown();
    n = numbers(text, values);
    for (size_t i = 0; i < n; i++)
        dims[i] = (int64_t)values[i];
    ck_assert_int_eq(shape_make(&shape, (int)n, dims), 0);
    return shape;
}

static struct allot_tensor *tensor_from(enum dtype dtype, const char *text) {
    struct allot_tensor *tensor;
    double values[WORDS_MAX];
    size_t n = numbers(text, values);
    struct shape shape = { .rank = *text == '[', .dims = { (int64_t)n } };

    if (shape.rank == 0)
        shape.dims[0] = 0;
    ck_assert_int_eq(constant_new(&tensor, dtype, &shape, 0, NULL), 0);
    for (size_t i = 0; i < n; i++)
        switch (dtype) {
        case DTYPE_I32:
            ((int32_t *)tensor_data(tensor))[i] = (int32_t)values[i];
            break;
        case DTYPE_I64:
            ((int64_t *)tensor_data(tensor))[i] = (int64_t)values[i];
            break;
        case DTYPE_F32:
            ((float *)tensor_data(tensor))[i] = (float)values[i];
            break;
        default:
            ck_assert_int_eq(dtype, DTYPE_F64);
            ((double *)tensor_data(tensor))[i] = values[i];
            break;
        }
    return tensor;
}

struct allot_tensor *graph_fixture_tensor(const char *word) {
    size_t length = strcspn(word, "=");
    char type[8] = { 0 };
    enum dtype dtype;

    ck_assert_uint_lt(length, sizeof(type));
    memcpy(type, word, length);
    dtype = dtype_by_name(type);
    ck_assert_msg(dtype != DTYPE_NONE && word[length] == '=', "%s", word);
    return tensor_from(dtype, word + length + 1);
}

static int input(struct allot_graph *graph, const char *word, struct edge *ret,
                 struct allot_error *err) {
    bool is_variable = strncmp(word, "var:", 4) == 0;
    size_t length;
    struct build build = { graph, err, 0 };
    char type[8] = { 0 };
    enum dtype dtype;

    if (*word == '@')
        return graph_find_output(graph, word + 1, ret, err);
    if (is_variable)
        word += 4;
    length = strcspn(word, "[?=");
    ck_assert_uint_lt(length, sizeof(type));
    memcpy(type, word, length);
    word += length;
    dtype = dtype_by_name(type);
    ck_assert_msg(dtype != DTYPE_NONE, "%s", type);
    if (*word == '=') {
        struct allot_tensor *tensor = tensor_from(dtype, word + 1);

        *ret = build_const(&build, tensor);
        allot_tensor_unref(tensor);
    } else
        *ret = build_n(&build, is_variable ? "Variable" : "Placeholder", NULL, 0,
                       (const struct build_attr[]){ { "T", attr_dtype(dtype) },
                                                    { "shape", attr_shape(shape_of(word)) } },
                       2);
    return build.r;
}

/* A value as text, of the kind that the op has under that name. */
static void attr_of(struct build_attr *ret, enum attr_kind kind, const char *name, const char *text,
                    int64_t ints[static WORDS_MAX]) {
    double values[WORDS_MAX];
    size_t n;

    ret->name = name;
    switch (kind) {
    case ATTR_INT:
        ret->value = attr_int(strtoll(text, NULL, 10));
        break;
    case ATTR_FLOAT:
        ret->value = attr_float(strtod(text, NULL));
        break;
    case ATTR_BOOL:
        ret->value = attr_bool(strcmp(text, "true") == 0);
        break;
    case ATTR_DTYPE:
        ret->value = attr_dtype(dtype_by_name(text));
        break;
    case ATTR_SHAPE:
        ret->value = attr_shape(shape_of(text));
        break;
    case ATTR_INTS:
        n = numbers(text, values);
        for (size_t i = 0; i < n; i++)
            ints[i] = (int64_t)values[i];
        ret->value = attr_ints(ints, n);
        break;
    default:
        ret->value = attr_string(text);
        break;
    }
}

static int add(struct allot_graph *graph, const char *name, const char *op, const char *inputs,
               const char *attrs, uint32_t *ret, struct allot_error *err) {
    cleanup(freep) char *in = strdup(inputs), *at = strdup(attrs);
    const struct opdef *def = opdef_find(op);
    struct build_attr given[WORDS_MAX];
    int64_t ints[WORDS_MAX][WORDS_MAX];
    struct edge edges[WORDS_MAX];
    struct build_node request = { .op = op, .name = name, .inputs = edges, .attrs = given };
    char *word, *save;

    for (word = strtok_r(in, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        int r = input(graph, word, &edges[request.n_inputs++], err);

        if (r < 0)
            return r;
    }
    for (word = strtok_r(at, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        size_t n = request.n_attrs++;
        int i;

        ck_assert_ptr_nonnull(value);
        *value++ = '\0';
        i = def ? opdef_attr_index(def, word) : -1;
        attr_of(&given[n], i < 0 ? ATTR_STRING : def->attrs[i].kind, word, value, ints[n]);
    }
    return build_add(graph, &request, ret, err);
}

int graph_fixture_add(struct allot_graph *graph, const char *op, const char *inputs,
                      const char *attrs, uint32_t *ret, struct allot_error *err) {
    return add(graph, NULL, op, inputs, attrs, ret, err);
}

struct edge graph_fixture_node(struct allot_graph *graph, const char *name, const char *op,
                               const char *inputs, const char *attrs) {
    struct allot_error err = { 0 };
    uint32_t id = 0;
    int r = add(graph, name, op, inputs, attrs, &id, &err);

    ck_assert_msg(r == 0, "%s", err.text);
    return (struct edge){ id, 0 };
}
