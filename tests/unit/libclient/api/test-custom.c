/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "libclient/allot/custom.h"
#include "libclient/allot/session.h"
#include "libclient/allot/train.h"
#include "tests/support/suite.h"

static int scale(const struct allot_call *call, void *userdata) {
    double factor = allot_call_float(call, "factor");
    const float *x = call->inputs[0].data;
    float *y = call->outputs[0].data;

    ck_assert_uint_eq(call->n_inputs, 1);
    ck_assert_int_eq(call->inputs[0].dtype, ALLOT_F32);
    ck_assert_uint_eq(call->outputs[0].bytes, call->inputs[0].count * sizeof(float));
    if (factor == 0)
        return allot_call_fail(call, "a factor of 0 for %zu numbers", call->inputs[0].count);
    if (factor < 0)
        return -EIO;
    for (size_t i = 0; i < call->inputs[0].count; i++)
        y[i] = x[i] * (float)factor;
    ++*(int *)userdata;
    return 0;
}

static int scale_gradient(const struct allot_node *node, const struct allot_output *outputs_grad,
                          struct allot_output *inputs_grad, void *userdata) {
    struct allot_output two = allot_ones_like(outputs_grad[0]);

    inputs_grad[0] = allot_mul(outputs_grad[0], allot_add(two, two));
    return 0;
}

static int n_calls;
static const struct allot_op_options scale_options = {
    .size = sizeof(scale_options),
    .name = "Scale",
    .signature = "(x: T) -> (y: T); T: {f32}; factor: float = 2",
    .shape = allot_shapes_as_input,
    .compute = scale,
    .gradient = scale_gradient,
    .userdata = &n_calls,
};

/* The numbers of x in pieces of two, which must be even. */
static int pairs_shape(struct allot_shapes *shapes, void *userdata) {
    int64_t dims[ALLOT_RANK_MAX];

    if (allot_shapes_input(shapes, 0, dims) != 1)
        return allot_shapes_set(shapes, 0, -1, NULL);
    if (dims[0] > 0 && dims[0] % 2)
        return allot_shapes_fail(shapes, "%lld numbers are no pairs", (long long)dims[0]);
    return allot_shapes_set(shapes, 0, 2, (int64_t[]){ dims[0] < 0 ? -1 : dims[0] / 2, 2 });
}

static int pairs(const struct allot_call *call, void *userdata) {
    memcpy(call->outputs[0].data, call->inputs[0].data, call->inputs[0].bytes);
    return 0;
}

static struct allot_output node_of(struct allot_graph *graph, const char *name,
                                   struct allot_output x, double factor) {
    struct allot_op *op = allot_op_begin(graph, name, NULL);
    struct allot_error err = { 0 };
    struct allot_node *node;

    allot_op_input(op, x);
    if (factor != 2)
        allot_op_attr_float(op, "factor", factor);
    ck_assert_msg(allot_op_finish(op, &node, &err) == 0, "%s", err.text);
    return (struct allot_output){ node, 0 };
}

static int fetch(struct allot_graph *graph, struct allot_output output, char text[static 256],
                 struct allot_error *err) {
    struct allot_session_options options = ALLOT_SESSION_OPTIONS_INIT;
    struct allot_session *session;
    struct allot_tensor *tensor;
    int r;

    options.cpu_only = true;
    r = allot_session_new(&session, graph, &options, err);
    ck_assert_msg(r == 0, "%s", err->text);
    r = allot_session_run(session, NULL, NULL, 0, &output, 1, NULL, 0, &tensor, err);
    if (r == 0) {
        allot_tensor_format(tensor, text, 256);
        allot_tensor_unref(tensor);
    }
    allot_session_free(session);
    return r;
}

START_TEST(an_op_of_ones_own_is_built_run_and_has_a_gradient) {
    struct allot_error err = { 0 };
    struct allot_output x, y, d;
    struct allot_graph *graph;
    char text[256];

    ck_assert_msg(allot_op_register(&scale_options, &err) == 0, "%s", err.text);
    ck_assert_int_eq(allot_op_register(&scale_options, &err), -EEXIST);
    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    x = allot_constant_f32(graph, "x", 1, (int64_t[]){ 3 }, (float[]){ 1, 2, 3 });
    y = node_of(graph, "Scale", x, 2);
    ck_assert_msg(fetch(graph, y, text, &err) == 0, "%s", err.text);
    ck_assert_str_eq(text, "[2 4 6]");
    ck_assert_int_eq(n_calls, 1);
    d = allot_gradient(y, x);
    ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
    ck_assert_msg(fetch(graph, d, text, &err) == 0, "%s", err.text);
    ck_assert_str_eq(text, "[2 2 2]");
    ck_assert_int_lt(fetch(graph, node_of(graph, "Scale", x, 0), text, &err), 0);
    ck_assert_msg(strstr(err.text, "a factor of 0 for 3 numbers"), "%s", err.text);
    ck_assert_ptr_nonnull(strstr(err.text, "Scale_1"));
    ck_assert_int_eq(fetch(graph, node_of(graph, "Scale", x, -1), text, &err), -EIO);
    ck_assert_msg(strstr(err.text, "its function failed"), "%s", err.text);
    allot_graph_unref(graph);
}
END_TEST

START_TEST(shapes_of_ones_own_are_asked_for_and_misfits_named) {
    static const struct allot_op_options options = {
        .size = sizeof(options),
        .name = "Pairs",
        .signature = "(x: T) -> (y: T); T: type",
        .shape = pairs_shape,
        .compute = pairs,
    };
    struct allot_error err = { 0 };
    int64_t dims[ALLOT_RANK_MAX];
    struct allot_output x, y;
    struct allot_graph *graph;
    struct allot_op *op;
    struct allot_node *node;
    char text[256];

    ck_assert_int_eq(allot_op_register(&options, &err), 0);
    ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
    x = allot_constant_f32(graph, "x", 1, (int64_t[]){ 4 }, (float[]){ 1, 2, 3, 4 });
    y = node_of(graph, "Pairs", x, 2);
    ck_assert_int_eq(allot_output_shape(y, dims), 2);
    ck_assert(dims[0] == 2 && dims[1] == 2);
    ck_assert_int_eq(fetch(graph, y, text, &err), 0);
    ck_assert_str_eq(text, "[[1 2] [3 4]]");
    op = allot_op_begin(graph, "Pairs", "odd");
    allot_op_input(op, allot_slice(x, (int64_t[]){ 0 }, (int64_t[]){ 3 }, 1));
    ck_assert_int_eq(allot_op_finish(op, &node, &err), -EINVAL);
    ck_assert_str_eq(err.text, "node 'odd': Pairs: 3 numbers are no pairs");
    ck_assert_ptr_null(allot_gradient(y, x).node);
    ck_assert_int_eq(allot_graph_error(graph, &err), -EINVAL);
    ck_assert_str_eq(err.text, "node 'Pairs': op Pairs has no gradient");
    allot_graph_unref(graph);
}
END_TEST

START_TEST(what_cannot_be_registered_is_refused) {
    static const struct {
        struct allot_op_options options;
        int code;
        const char *says;
    } cases[] = {
        { { .name = "A", .signature = "() -> ()" }, -EINVAL, "needs name, signature, and compute" },
        { { .signature = "() -> ()", .compute = pairs }, -EINVAL, "needs name" },
        { { .name = "B", .signature = "(x: T) -> ()", .compute = pairs }, -EINVAL, "character 5" },
        { { .name = "C", .signature = "() -> (y: f32)", .compute = pairs },
          -EINVAL,
          "it needs a shape function" },
        { { .name = "D", .signature = "(v: var f32) -> ()", .compute = pairs },
          -ENOTSUP,
          "takes values, not variables" },
        { { .name = "E", .signature = "() -> ()", .ptx = "x" }, -EINVAL, "ptx_entry" },
        { { .name = "F", .signature = "() -> ()", .compute = pairs, .block_threads = 1025 },
          -EINVAL,
          "at most 1024 threads" },
        { { .name = "G", .signature = "(x: N * f32) -> (); N: int", .ptx = "x", .ptx_entry = "x" },
          -ENOTSUP,
          "takes no lists" },
        { { .name = "MatMul", .signature = "() -> ()", .compute = pairs }, -EEXIST, "already" },
        { { .name = "a b", .signature = "() -> ()", .compute = pairs }, -EINVAL, "cannot be the" },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        struct allot_op_options options = cases[i].options;
        struct allot_error err = { 0 };

        options.size = sizeof(options);
        ck_assert_int_eq(allot_op_register(&options, &err), cases[i].code);
        ck_assert_msg(strstr(err.text, cases[i].says), "%s", err.text);
    }
}
END_TEST

/* Which of them it gives is the table's. */
static int astray;
static int stray_gradient(const struct allot_node *node, const struct allot_output *outputs_grad,
                          struct allot_output *inputs_grad, void *userdata) {
    struct allot_node *group = allot_group(*(struct allot_graph **)userdata, NULL, NULL, 0);
    const struct allot_output strays[] = { { outputs_grad[0].node, 5 },
                                           { outputs_grad[0].node, -1 },
                                           { group, 0 } };

    inputs_grad[0] = strays[astray];
    return 0;
}

START_TEST(a_gradient_that_is_no_output_is_refused) {
    static const char *const says[] = {
        "node 'Stray': the gradient of op Stray gives output 5 of ",
        "node 'Stray': the gradient of op Stray gives output -1 of ",
        "/NoOp' for input 0, which has 0 outputs",
    };
    static struct allot_graph *graph;
    const struct allot_op_options options = {
        .size = sizeof(options),
        .name = "Stray",
        .signature = "(x: T) -> (y: T); T: {f32}",
        .shape = allot_shapes_as_input,
        .compute = pairs,
        .gradient = stray_gradient,
        .userdata = &graph,
    };

    ck_assert_int_eq(allot_op_register(&options, NULL), 0);
    for (astray = 0; astray < (int)ELEMENTSOF(says); astray++) {
        struct allot_output x, y, gradient = { 0 };
        struct allot_error err = { 0 };
        struct allot_node *node;
        struct allot_op *op;

        ck_assert_int_eq(allot_graph_new(&graph, NULL), 0);
        x = allot_scalar(graph, ALLOT_F32, 3);
        op = allot_op_begin(graph, "Stray", NULL);
        allot_op_input(op, x);
        ck_assert_int_eq(allot_op_finish(op, &node, NULL), 0);
        y = allot_square((struct allot_output){ node, 0 });
        ck_assert_int_eq(allot_gradients(&y, 1, &x, 1, NULL, &gradient, &err), -EINVAL);
        ck_assert_msg(strstr(err.text, says[astray]), "%s", err.text);
        ck_assert_ptr_null(gradient.node);
        allot_graph_unref(graph);
    }
}
END_TEST

SUITE("custom", an_op_of_ones_own_is_built_run_and_has_a_gradient,
      shapes_of_ones_own_are_asked_for_and_misfits_named, what_cannot_be_registered_is_refused,
      a_gradient_that_is_no_output_is_refused)
