/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "libclient/allot/log.h"
#include "libclient/allot/train.h"
#include "tests/support/suite.h"

static void unref_graph(struct allot_graph **graph) {
    allot_graph_unref(*graph);
}

static struct allot_graph *graph_new(void) {
    struct allot_error err = { 0 };
    struct allot_graph *graph;

    ck_assert_msg(allot_graph_new(&graph, &err) == 0, "%s", err.text);
    return graph;
}

static void no_error(const struct allot_graph *graph) {
    struct allot_error err = { 0 };

    ck_assert_msg(allot_graph_error(graph, &err) == 0, "%s", err.text);
}

static void says(struct allot_graph *graph, const char *text) {
    struct allot_error err = { 0 };

    ck_assert_int_lt(allot_graph_error(graph, &err), 0);
    ck_assert_msg(strstr(err.text, text), "%s instead of %s", err.text, text);
    allot_graph_clear_error(graph);
    no_error(graph);
}

static const int64_t two_three[] = { 2, 3 }, three_two[] = { 3, 2 }, three[] = { 3 };
static const float numbers[] = { 1, 2, 3, 4, 5, 6 };

START_TEST(the_matmul_of_the_guide_is_built) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    struct allot_output a, b, c, found;
    int64_t dims[ALLOT_RANK_MAX];

    allot_with_device(graph, "/cpu:0") {
        a = allot_constant_f32(graph, "a", 2, two_three, numbers);
        b = allot_constant_f32(graph, "b", 2, three_two, numbers);
    }
    c = allot_matmul(a, b);
    no_error(graph);
    ck_assert_str_eq(allot_node_name(c.node), "MatMul");
    ck_assert_str_eq(allot_node_device(a.node), "/device:CPU:0");
    ck_assert_str_eq(allot_node_device(c.node), "");
    ck_assert_int_eq(allot_output_shape(c, dims), 2);
    ck_assert(dims[0] == 2 && dims[1] == 2);
    ck_assert_int_eq(allot_output_dtype(c), ALLOT_F32);
    ck_assert_int_eq(allot_graph_find(graph, "MatMul:0", &found, NULL), 0);
    ck_assert_ptr_eq(found.node, c.node);
    ck_assert_int_eq(allot_graph_find(graph, "MatMul:1", &found, NULL), -ENOENT);
    ck_assert_uint_eq(allot_graph_n_nodes(graph), 3);
    ck_assert_ptr_eq(allot_graph_node(graph, 2), c.node);
    ck_assert_ptr_null(allot_graph_node(graph, 3));
    ck_assert_int_eq(allot_node_n_inputs(c.node), 2);
    ck_assert_ptr_eq(allot_node_input(c.node, 1).node, b.node);
    ck_assert_ptr_null(allot_node_input(c.node, 2).node);
}
END_TEST

START_TEST(the_first_error_stays_and_what_follows_is_silent) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new(), *other = graph_new();
    struct allot_output a = allot_constant_f32(graph, "a", 2, two_three, numbers), bad, far;

    bad = allot_matmul(a, a);
    ck_assert_ptr_null(bad.node);
    ck_assert_ptr_null(allot_add(bad, a).node);
    ck_assert_ptr_null(allot_relu(bad).node);
    ck_assert_ptr_null(allot_cast(a, (enum allot_dtype)77).node);
    says(graph, "node 'MatMul': MatMul: [2, 3] and [2, 3]: the inner dimensions 3 and 2 differ");
    ck_assert_ptr_nonnull(allot_relu(a).node);
    ck_assert_ptr_null(allot_add((struct allot_output){ NULL, 0 }, a).node);
    says(graph, "input 0 of op Add is not an output of a node");
    ck_assert_ptr_null(allot_relu((struct allot_output){ NULL, 0 }).node);
    far = allot_constant_f32(other, "a", 2, two_three, numbers);
    ck_assert_ptr_null(allot_add(a, far).node);
    says(graph, "'a:0' is an output of another graph");
    ck_assert_ptr_null(allot_relu((struct allot_output){ a.node, 5 }).node);
    says(graph, "input x is not an output of this graph");
    ck_assert_ptr_null(allot_constant_f32(graph, "x", 9, two_three, numbers).node);
    says(graph, "a tensor has 0 to 8 dimensions");
    ck_assert_ptr_null(allot_placeholder(graph, "p", ALLOT_F32, 1, (int64_t[]){ -2 }).node);
    says(graph, "placeholder 'p'");
    ck_assert_ptr_null(allot_reshape(a, 9, two_three).node);
    says(graph, "a shape has 0 to 8 dimensions, not 9");
}
END_TEST

START_TEST(names_go_to_the_next_node_and_no_other) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    struct allot_output a = allot_constant_f32(graph, "a", 2, two_three, numbers), r;

    allot_name_next(graph, "flat");
    r = allot_reshape(a, 1, (int64_t[]){ -1 });
    ck_assert_str_eq(allot_node_name(r.node), "flat");
    ck_assert_str_eq(allot_node_name(allot_relu(r).node), "Relu");
    allot_with_name(graph, "layer") {
        allot_name_next(graph, "out");
        r = allot_one_hot(allot_cast(r, ALLOT_I32), 4, ALLOT_F32, 1, 0);
    }
    ck_assert_str_eq(allot_node_name(r.node), "layer/OneHot");
    ck_assert_str_eq(allot_node_name(allot_node_input(r.node, 0).node), "layer/out");
    no_error(graph);
}
END_TEST

START_TEST(a_name_is_for_one_helper_whatever_becomes_of_it) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    struct allot_output a = allot_scalar(graph, ALLOT_F32, 1), nothing = { NULL, 0 };
    struct allot_output v = allot_variable(graph, "v", a), flags = allot_less(a, a);
    struct allot_output product = allot_mul(v, v);
    struct allot_optimizer *sgd = allot_sgd(1);
    char name[16], next[16];
    int n = 0;

    /* Which name the helper's node has: "mine" and a number, or one of its own. */
#define NAMED(call, text)                                                                          \
    do {                                                                                           \
        const struct allot_node *named_;                                                           \
                                                                                                   \
        snprintf(name, sizeof(name), "mine%d", n);                                                 \
        snprintf(next, sizeof(next), "next%d", n++);                                               \
        allot_name_next(graph, name);                                                              \
        named_ = (call);                                                                           \
        ck_assert_str_eq(allot_node_name(named_), strcmp(text, OWN) ? (text) : name);              \
        allot_name_next(graph, next);                                                              \
        ck_assert_str_eq(allot_node_name(allot_neg(a).node), next);                                \
        allot_name_next(graph, name);                                                              \
        named_ = (call);                                                                           \
        ck_assert_msg(strncmp(allot_node_name(allot_neg(a).node), "mine", 4) != 0, #call);         \
    } while (0)
#define OWN "own"
    NAMED(allot_group(graph, NULL, NULL, 0), OWN);
    NAMED(allot_group(graph, "group", NULL, 0), "group");
    NAMED(allot_read(v).node, OWN);
    NAMED(allot_assign(v, a).node, OWN);
    NAMED(allot_assign_sub(v, a).node, OWN);
    NAMED(allot_initializer(graph), OWN);
    NAMED(allot_variable(graph, NULL, a).node, OWN);
    NAMED(allot_assert(flags, NULL, 0, "x"), OWN);
    NAMED(allot_filled(graph, ALLOT_F32, 1, three, 0).node, OWN);
    NAMED(allot_minimize(sgd, product), OWN);
    NAMED((allot_gradient(product, v), NULL), "");
    no_error(graph);
    /* Those that fail. */
    NAMED(allot_neg(nothing).node, "");
    NAMED(allot_reshape(nothing, 1, three).node, "");
    NAMED(allot_one_hot(nothing, 3, ALLOT_F32, 1, 0).node, "");
    NAMED(allot_read(nothing).node, "");
    NAMED(allot_assign(nothing, a).node, "");
    NAMED(allot_assign(nothing, nothing).node, "");
    NAMED(allot_assert(nothing, NULL, 0, "x"), "");
    NAMED(allot_minimize(sgd, nothing), "");
    NAMED(allot_variable(graph, NULL, nothing).node, "");
    NAMED(allot_const(graph, NULL, NULL).node, "");
    NAMED(allot_placeholder(graph, NULL, ALLOT_F32, 9, three).node, "");
    NAMED(allot_scalar(graph, ALLOT_U8, -1).node, "");
    NAMED(allot_read(a).node, "");
    NAMED(allot_matmul(a, a).node, "");
#undef OWN
#undef NAMED
    allot_optimizer_free(sgd);
}
END_TEST

START_TEST(every_helper_makes_its_node) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    struct allot_output x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 4 }), n;
    struct allot_output y = allot_placeholder(graph, "y", ALLOT_F32, 2, (int64_t[]){ -1, 4 });
    struct allot_output t = allot_placeholder(graph, "t", ALLOT_BOOL, -1, NULL), parts[3];
    struct allot_output any = allot_placeholder(graph, "any", ALLOT_F32, -1, NULL);
    struct allot_output labels = allot_placeholder(graph, "l", ALLOT_I64, -1, NULL);

#define X(name, op)                                                                                \
    n = allot_##name(strcmp(#op, "LogicalNot") == 0 || strcmp(#op, "Where") == 0 ? t : x);         \
    no_error(graph);                                                                               \
    ck_assert_str_eq(allot_node_op(n.node), #op);
    ALLOT_UNARY_OPS(X)
#undef X
#define X(name, op)                                                                                \
    n = strncmp(#op, "Logical", 7) == 0  ? allot_##name(t, t)                                      \
        : strncmp(#op, "Sparse", 6) == 0 ? allot_##name(any, labels)                               \
                                         : allot_##name(any, any);                                 \
    no_error(graph);                                                                               \
    ck_assert_str_eq(allot_node_op(n.node), #op);
    ALLOT_BINARY_OPS(X)
#undef X
#define X(name, op)                                                                                \
    n = allot_##name(strcmp(#op, "All") == 0 || strcmp(#op, "Any") == 0 ? t : x);                  \
    no_error(graph);                                                                               \
    ck_assert_str_eq(allot_node_op(n.node), #op);                                                  \
    ck_assert_int_eq(allot_output_shape(n, NULL), 0);                                              \
    n = allot_##name##_along(strcmp(#op, "All") == 0 || strcmp(#op, "Any") == 0 ? t : x,           \
                             (int64_t[]){ -1 }, 1, true);                                          \
    no_error(graph);
    ALLOT_REDUCTIONS(X)
#undef X
    allot_leaky_relu(x, 0.1);
    allot_select(t, x, y);
    allot_add_n((struct allot_output[]){ x, y }, 2);
    allot_matmul_of(x, y, false, true);
    allot_arg_max(x, -1);
    allot_arg_min(x, 0);
    allot_broadcast_to(x, 3, (int64_t[]){ 2, 3, 4 });
    allot_transpose(x, NULL, 0);
    allot_transpose(x, (int64_t[]){ 1, 0 }, 2);
    allot_squeeze(allot_expand_dims(x, -1), (int64_t[]){ 2 }, 1);
    allot_concat((struct allot_output[]){ x, y }, 2, 0);
    allot_pack((struct allot_output[]){ x, y }, 2, 0);
    ck_assert_int_eq(allot_split(x, 1, 2, parts), 0);
    ck_assert_int_eq(parts[1].index, 1);
    ck_assert_int_eq(allot_unpack(allot_concat(parts, 2, 0), 1, 2, parts), 0);
    allot_slice(x, (int64_t[]){ 0, 1 }, (int64_t[]){ -1, 2 }, 2);
    allot_gather(x, labels, 0);
    allot_tile(x, (int64_t[]){ 1, 2 }, 2);
    allot_pad(x, (int64_t[]){ 1, 2 }, (int64_t[]){ 0, 0 }, 2);
    allot_filled(graph, ALLOT_BF16, 1, three, 2);
    allot_random_uniform(graph, ALLOT_F32, 1, three, -1, 1, 7);
    allot_random_normal(graph, ALLOT_F32, 1, three, 0, 1, 7);
    allot_truncated_normal(graph, ALLOT_F64, 1, three, 0, 1, 7);
    n = allot_range(allot_scalar(graph, ALLOT_I32, 0), allot_scalar(graph, ALLOT_I32, 5),
                    allot_scalar(graph, ALLOT_I32, 2));
    no_error(graph);
    ck_assert_int_eq(allot_output_shape(n, (int64_t[ALLOT_RANK_MAX]){ 0 }), 1);
    allot_print(x, "x is ");
    ck_assert_ptr_nonnull(allot_assert(allot_any(t), &x, 1, "none of t"));
    ck_assert_ptr_nonnull(allot_assert(allot_any(t), NULL, 0, "none of t"));
    allot_check_numerics(x, "x");
    no_error(graph);
    ck_assert_int_lt(allot_split(x, 1, 3, parts), 0);
    ck_assert_ptr_null(parts[2].node);
    says(graph, "axis 1 cannot be cut into 3 parts of one size");
}
END_TEST

START_TEST(variables_are_initialised_assigned_and_read_in_order) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    struct allot_output v, w, after;
    struct allot_node *init;

    allot_with_device(graph, "/cpu:0") v =
        allot_variable(graph, "v", allot_constant_f32(graph, NULL, 1, three, numbers));
    w = allot_variable(graph, "w", allot_scalar(graph, ALLOT_I32, 7));
    allot_variable_of(graph, "bare", ALLOT_F32, 1, three);
    allot_with_device(graph, "/gpu:0") after =
        allot_assign_add(v, allot_constant_f32(graph, NULL, 1, three, numbers));
    no_error(graph);
    ck_assert(allot_output_is_variable(v) && !allot_output_is_variable(after));
    ck_assert_str_eq(allot_node_op(after.node), "ReadVariable");
    ck_assert_str_eq(allot_node_device(after.node), "/device:CPU:0");
    ck_assert_str_eq(allot_node_name(after.node), "v/read");
    ck_assert_ptr_eq(allot_node_input(after.node, 0).node, v.node);
    ck_assert_ptr_ne(allot_read(v).node, after.node);
    init = allot_initializer(graph);
    no_error(graph);
    ck_assert_str_eq(allot_node_name(init), "init");
    ck_assert_ptr_null(allot_read(after).node);
    says(graph, "'v/read' (op ReadVariable) is not a variable");
    ck_assert_ptr_null(allot_assign(w, after).node);
    says(graph, "node 'w/Assign' (op Assign): input value is of type i32, as T is, but 'v/read:0'");
}
END_TEST

/* Its memory outlasts runs, so no feed can settle how much it is. */
START_TEST(a_variable_has_a_shape_that_is_all_known) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    const int64_t open[] = { -1, 3 }, huge[] = { INT64_MAX, 3 };
    struct allot_output rows = allot_placeholder(graph, "rows", ALLOT_F32, 2, open), found;

    no_error(graph);
    ck_assert_ptr_null(allot_variable(graph, "v", rows).node);
    says(graph, "node 'v': Variable: [?, 3]: all of a variable's shape must be known");
    ck_assert_ptr_null(allot_variable_of(graph, "w", ALLOT_F32, -1, NULL).node);
    says(graph, "node 'w': Variable: <unknown>: all of");
    ck_assert_ptr_null(allot_variable_of(graph, "h", ALLOT_F32, 2, huge).node);
    says(graph, "node 'h': Variable: [9223372036854775807, 3]: more elements than");
    ck_assert_int_eq(allot_graph_find(graph, "v", &found, NULL), -ENOENT);
    ck_assert_ptr_nonnull(allot_variable_of(graph, "v", ALLOT_F32, 2, two_three).node);
    no_error(graph);
}
END_TEST

START_TEST(scopes_must_be_popped_as_they_were_pushed) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    struct allot_node *node = allot_group(graph, NULL, NULL, 0);

    allot_device_pop(graph);
    says(graph, "a device scope cannot be popped: the innermost is none");
    ck_assert_int_eq(allot_control_push(graph, &node, 1), 0);
    allot_device_pop(graph);
    says(graph, "a device scope cannot be popped: the innermost is a control");
    allot_control_pop(graph);
    /* What failed is popped all the same, and leaves nothing behind. */
    ck_assert_int_lt(allot_device_push(graph, "/gpu:zero"), 0);
    allot_device_pop(graph);
    says(graph, "'/gpu:zero' is not a device name");
    ck_assert_int_lt(allot_name_push(graph, "a b"), 0);
    allot_name_pop(graph);
    says(graph, "cannot be the name of a node");
    ck_assert_int_lt(allot_colocate_push(graph, NULL), 0);
    allot_colocate_pop(graph);
    says(graph, "no node to share a device with");
    allot_name_pop(graph);
    says(graph, "the innermost is none");
}
END_TEST

START_TEST(the_builder_takes_any_op_by_name) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new(), *other = graph_new();
    struct allot_output x = allot_placeholder(graph, "x", ALLOT_F32, 2, two_three);
    struct allot_error err = { 0 };
    struct allot_node *node;
    struct allot_op *op;

    op = allot_op_begin(graph, "Concat", "both");
    allot_op_inputs(op, (struct allot_output[]){ x, x }, 2);
    allot_op_attr_int(op, "axis", 1);
    allot_op_device(op, "/gpu:1");
    allot_op_control(op, x.node);
    allot_op_colocate(op, x.node);
    ck_assert_int_eq(allot_op_finish(op, &node, &err), 0);
    ck_assert_str_eq(allot_node_name(node), "both");
    ck_assert_str_eq(allot_node_device(node), "/device:GPU:1");

    op = allot_op_begin(graph, "Concat", NULL);
    allot_op_attr_float(op, "axis", 1);
    ck_assert_int_eq(allot_op_finish(op, &node, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "attribute 'axis' is of kind int, not float"));
    op = allot_op_begin(graph, "Neg", NULL);
    allot_op_input(op, allot_placeholder(other, "x", ALLOT_F32, 2, two_three));
    ck_assert_int_eq(allot_op_finish(op, &node, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "another graph"));
    op = allot_op_begin(graph, "Neg", NULL);
    allot_op_input(op, (struct allot_output){ NULL, 0 });
    ck_assert_int_eq(allot_op_finish(op, &node, &err), -EINVAL);
    op = allot_op_begin(graph, "Nothing", NULL);
    ck_assert_int_eq(allot_op_finish(op, &node, &err), -ENOENT);
    op = allot_op_begin(graph, "Placeholder", NULL);
    allot_op_attr_shape(op, "shape", 12, two_three);
    ck_assert_int_eq(allot_op_finish(op, &node, &err), -EINVAL);
    for (int i = 0; i < 2; i++) {
        op = allot_op_begin(graph, "Print", NULL);
        allot_op_input(op, x);
        allot_op_attr_string(op, "message", "hello");
        if (i)
            allot_op_attr_string(op, "message", "again");
        ck_assert_int_eq(allot_op_finish(op, &node, &err), i ? -EINVAL : 0);
    }
    ck_assert_ptr_nonnull(strstr(err.text, "attribute 'message' is given twice"));
    allot_op_cancel(allot_op_begin(graph, "Neg", "never"));
    allot_op_cancel(NULL);
    ck_assert_int_eq(allot_op_finish(NULL, &node, &err), -ENOMEM);
    no_error(graph);
}
END_TEST

/* ---- Training -------------------------------------------------------------------------------- */

static struct allot_output regression(struct allot_graph *graph, struct allot_output *ret_w) {
    struct allot_output x = allot_placeholder(graph, "x", ALLOT_F32, 2, (int64_t[]){ -1, 3 });
    struct allot_output y = allot_placeholder(graph, "y", ALLOT_F32, 2, (int64_t[]){ -1, 1 });
    struct allot_output w =
        allot_variable(graph, "w", allot_filled(graph, ALLOT_F32, 2, (int64_t[]){ 3, 1 }, 0.5));
    struct allot_output b =
        allot_variable(graph, "b", allot_filled(graph, ALLOT_F32, 1, (int64_t[]){ 1 }, 0));

    *ret_w = w;
    return allot_mean(allot_square(allot_sub(allot_bias_add(allot_matmul(x, w), b), y)));
}

START_TEST(ops_are_listed_and_a_near_miss_is_suggested) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    size_t n = allot_ops(NULL, 0), n_matmul = 0;
    const char *names[2048] = { "" };
    struct allot_error err = { 0 };
    struct allot_node *node;

    ck_assert_uint_gt(n, 100);
    ck_assert_uint_lt(n, sizeof(names) / sizeof(names[0]));
    ck_assert_uint_eq(allot_ops(names, 1), n);
    ck_assert_ptr_null(names[1]);
    ck_assert_uint_eq(allot_ops(names, n), n);
    for (size_t i = 0; i < n; i++)
        n_matmul += strcmp(names[i], "MatMul") == 0;
    ck_assert_uint_eq(n_matmul, 1);
    ck_assert_int_eq(allot_op_finish(allot_op_begin(graph, "matmul", NULL), &node, &err), -ENOENT);
    ck_assert_str_eq(err.text, "there is no op 'matmul': did you mean 'MatMul'?");
    ck_assert_int_eq(allot_op_finish(allot_op_begin(graph, "Frobnicate", NULL), &node, &err),
                     -ENOENT);
    ck_assert_str_eq(err.text, "there is no op 'Frobnicate': allot_ops() lists them");
}
END_TEST

START_TEST(optimizers_are_pieces_of_graph_with_variables_of_their_own) {
    static const struct {
        const char *name, *op, *slots[4];
    } cases[] = {
        { "GradientDescent", "ApplyGradientDescent", { NULL } },
        { "Momentum", "ApplyMomentum", { "w/Momentum", "b/Momentum" } },
        { "Adam", "ApplyAdam", { "w/Adam", "w/Adam_1", "b/Adam", "beta1_power" } },
    };

    for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
        cleanup(unref_graph) struct allot_graph *graph = graph_new();
        struct allot_optimizer *optimizer = i == 0   ? allot_sgd(0.1)
                                            : i == 1 ? allot_momentum(0.1, 0.9, true)
                                                     : allot_adam(0.1, ALLOT_ADAM_DEFAULTS);
        struct allot_output w, loss = regression(graph, &w), found;
        struct allot_node *train = allot_minimize(optimizer, loss);

        no_error(graph);
        ck_assert_str_eq(allot_node_name(train), cases[i].name);
        ck_assert_int_eq(allot_graph_find(graph, "update_w", &found, NULL), 0);
        ck_assert_str_eq(allot_node_op(found.node), cases[i].op);
        ck_assert_ptr_eq(allot_node_input(found.node, 0).node, w.node);
        for (size_t s = 0; s < 4 && cases[i].slots[s]; s++) {
            ck_assert_msg(allot_graph_find(graph, cases[i].slots[s], &found, NULL) == 0, "%s",
                          cases[i].slots[s]);
            ck_assert(allot_output_is_variable(found));
        }
        ck_assert_ptr_nonnull(allot_initializer(graph));
        no_error(graph);
        allot_optimizer_free(optimizer);
    }
}
END_TEST

START_TEST(what_cannot_be_trained_is_refused) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    struct allot_output x = allot_placeholder(graph, "x", ALLOT_F32, 0, NULL), w;
    struct allot_optimizer *sgd = allot_sgd(0.1);

    ck_assert_ptr_null(allot_minimize(sgd, x));
    says(graph, "the graph has no variable");
    w = allot_variable(graph, "w", allot_scalar(graph, ALLOT_F32, 1));
    ck_assert_ptr_null(allot_minimize(sgd, x));
    says(graph, "no variable has a gradient");
    ck_assert_ptr_null(allot_minimize(NULL, allot_square(w)));
    says(graph, "no host memory for an optimizer");
    ck_assert_ptr_null(allot_minimize(sgd, allot_cast(w, ALLOT_I32)));
    says(graph, "is of type i32, which has no gradients");
    ck_assert_ptr_null(allot_apply_gradients(sgd, &x, &x, 1));
    says(graph, "'x' (op Placeholder) is not a variable: it cannot be trained");
    allot_optimizer_set_rate(sgd, allot_placeholder(graph, "rate", ALLOT_F32, 0, NULL));
    ck_assert_ptr_nonnull(allot_minimize(sgd, allot_square(w)));
    no_error(graph);
    allot_optimizer_free(sgd);
    allot_optimizer_free(NULL);
}
END_TEST

static void keep_line(void *userdata, enum allot_log_level level, const char *text) {
    ck_assert_int_eq(level, ALLOT_LOG_ERROR);
    snprintf(userdata, 128, "%s", text);
}

START_TEST(what_is_not_given_is_said) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    struct allot_output a = allot_scalar(graph, ALLOT_F32, 1);
    struct allot_error err = { 0 };
    struct allot_node *node;
    char line[128] = "";

    allot_name_next(graph, "never");
    allot_name_next(graph, NULL); /* as if nothing had been said */
    ck_assert_str_eq(allot_node_name(allot_neg(a).node), "Neg");
    ck_assert_int_eq(allot_name_push(graph, NULL), -EINVAL);
    allot_name_pop(graph);
    says(graph, "a name scope without a name");
    ck_assert_int_eq(allot_op_finish(allot_op_begin(graph, NULL, "n"), &node, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "node 'n': no op was named") != NULL, "%s", err.text);
    ck_assert_ptr_null(allot_placeholder(graph, "p", ALLOT_F32, 2, NULL).node);
    says(graph,
         "placeholder 'p': its shape is not valid: it has 2 dimensions whose lengths are not "
         "given: NULL");
    ck_assert_ptr_null(allot_reshape(a, 2, NULL).node);
    says(graph, "nothing to copy");
    /* Without inputs there is no graph whose error it could be. */
    allot_log_set(keep_line, line);
    ck_assert_ptr_null(allot_concat(NULL, 0, 0).node);
    ck_assert_msg(strstr(line, "op Concat has no inputs") != NULL, "%s", line);
    ck_assert_ptr_null(allot_add_n(NULL, 0).node);
    ck_assert_msg(strstr(line, "op AddN has no inputs") != NULL, "%s", line);
    allot_log_set(NULL, NULL);
    no_error(graph);
}
END_TEST

START_TEST(numbers_that_a_type_cannot_hold_are_errors) {
    static const struct {
        enum allot_dtype dtype;
        double good[2], bad[3];
    } rows[] = {
        { ALLOT_I8, { -128, 127 }, { -129, 128, NAN } },
        { ALLOT_I8, { -1, 1 }, { -128.9, 127.9, 0.5 } },
        { ALLOT_U8, { -0.0, 255 }, { -1, 256, NAN } },
        { ALLOT_U8, { 0, 1 }, { -0.5, 255.5, 1e-300 } },
        { ALLOT_I32, { -0x1p31, 0x1p31 - 1 }, { 1e20, -0x1p31 - 1, -INFINITY } },
        { ALLOT_I32, { 1, 2 }, { 1.5, -1.5, 0x1p30 + 0.5 } },
        { ALLOT_I64, { -0x1p63, 0x1p62 }, { NAN, 0x1p63, INFINITY } },
        { ALLOT_U64, { 0, 0x1.fp63 }, { NAN, 0x1p64, -1 } },
    };
    cleanup(unref_graph) struct allot_graph *graph = graph_new();

    for (size_t i = 0; i < ELEMENTSOF(rows); i++) {
        for (size_t k = 0; k < 2; k++)
            ck_assert_ptr_nonnull(allot_scalar(graph, rows[i].dtype, rows[i].good[k]).node);
        no_error(graph);
        for (size_t k = 0; k < 3; k++) {
            ck_assert_ptr_null(allot_scalar(graph, rows[i].dtype, rows[i].bad[k]).node);
            says(graph, "is not a number of type ");
            allot_filled(graph, rows[i].dtype, 1, three, rows[i].bad[k]);
            says(graph, "is not a number of type ");
        }
    }
    ck_assert_ptr_nonnull(allot_scalar(graph, ALLOT_F32, NAN).node);
    ck_assert_ptr_nonnull(allot_scalar(graph, ALLOT_BOOL, 7).node);
    no_error(graph);
}
END_TEST

START_TEST(errors_name_nodes_and_shapes_as_they_are) {
    cleanup(unref_graph) struct allot_graph *graph = graph_new();
    struct allot_output a = allot_constant_f32(graph, "a", 2, two_three, numbers), p;

    p = allot_variable(graph, "p", a);
    no_error(graph);
    allot_assign(p, allot_scalar(graph, ALLOT_I32, 1));
    says(graph, "node 'p/Assign' (op Assign): ");
    allot_bias_add(a, a);
    says(graph, "[2, 3] and [2, 3]");
}
END_TEST

SUITE("graph-api", the_matmul_of_the_guide_is_built,
      the_first_error_stays_and_what_follows_is_silent, names_go_to_the_next_node_and_no_other,
      a_name_is_for_one_helper_whatever_becomes_of_it, every_helper_makes_its_node,
      variables_are_initialised_assigned_and_read_in_order,
      a_variable_has_a_shape_that_is_all_known, scopes_must_be_popped_as_they_were_pushed,
      the_builder_takes_any_op_by_name, ops_are_listed_and_a_near_miss_is_suggested,
      optimizers_are_pieces_of_graph_with_variables_of_their_own, what_cannot_be_trained_is_refused,
      what_is_not_given_is_said, numbers_that_a_type_cannot_hold_are_errors,
      errors_name_nodes_and_shapes_as_they_are)
